/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the object of an exported program: a relocatable ELF file for x86-64 Linux.
 *
 *   .text         the exported functions, the runtime part, the kernels of each level
 *   .rodata       the arrays of the image, and linked values
 *   .data.rel.ro  the image itself, and tables of addresses
 *   .bss          the level that this processor takes
 *
 * Code comes as linked blocks (runtime/code/object.h), of which only the addresses of called
 * functions are missing. The runtime part has those of libm, so that memcpy, memmove and memset
 * alone remain undefined.
 *
 * References: System V ABI, chapters 4 and 5; its AMD64 supplement, sections 3.2 and 4.4.
 */
#include "aot/program.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "aot/facts.h"
#include "aot/rt_objects.h"
#include "runtime/code/callees.h"
#include "runtime/code/object.h"
#include "runtime/code/object_machine.h"
#include "runtime/cpu.h"

/* ---- the file as it is written ---- */

/* Symbols of the file, in this order. */
enum { SYM_NONE, SYM_TEXT, SYM_RODATA, SYM_TABLES, SYM_BSS, SYM_FIRST_GLOBAL };
/* Globals. */
enum { SYM_RUN = SYM_FIRST_GLOBAL, SYM_WORKSPACE, SYM_MEMCPY, SYM_MEMMOVE, SYM_MEMSET, N_SYMBOLS };

/* Sections of the file. */
enum {
    SEC_NONE,
    SEC_TEXT,
    SEC_RODATA,
    SEC_TABLES,
    SEC_BSS,
    SEC_RELA_TEXT,
    SEC_RELA_TABLES,
    SEC_STACK,
    SEC_SYMBOLS,
    SEC_STRINGS,
    SEC_NAMES,
    N_SECTIONS
};

enum { NO_PLACE = -1, MATH_PIECES = DF_N_CALLEES };

typedef struct writer {
    program *p;
    df_diag *d;
    deft_status st;
    df_str text, rodata, tables, rela_text, rela_tables;
    int64_t math[MATH_PIECES]; /* where a function of libm is in the text; NO_PLACE: not yet */
    int64_t run, workspace;    /* of the runtime part */
    int64_t image;             /* in the tables */
} writer;

static void align_to(df_str *s, size_t to, char with)
{
    while (s->ok && s->n % to != 0) df_str_putc(s, with);
}

static void put_relocation(df_str *out, uint64_t at, uint32_t symbol, uint32_t type, int64_t addend)
{
    const Elf64_Rela r = { .r_offset = at,
                           .r_info = ELF64_R_INFO(symbol, type),
                           .r_addend = addend };
    df_str_putn(out, (const char *)&r, sizeof r);
}

static void object_put_word(df_str *s, int64_t word, size_t bytes)
{
    df_str_putn(s, (const char *)&word, bytes);
}

/* An address in the tables. */
static void put_address(writer *w, uint32_t symbol, int64_t at)
{
    put_relocation(&w->rela_tables, w->tables.n, symbol, R_X86_64_64, at);
    object_put_word(&w->tables, 0, 8);
}

/* ---- code ---- */

static const struct math_function {
    uint32_t callee;
    const char *symbol;
} math_functions[] = {
#define MATH(name)                                                                                 \
    {                                                                                              \
        DF_CALLEE_##name, "deft_aot_" #name                                                        \
    }
    MATH(floor), MATH(floorf), MATH(ceil), MATH(ceilf), MATH(trunc), MATH(truncf),
    MATH(rint),  MATH(rintf),  MATH(fmod), MATH(fmodf), MATH(fma),   MATH(fmaf)
#undef MATH
};

static int64_t object_add_block(writer *w, const df_object *o);

/* Where the function of libm is in the text, to which it is added the first time. */
static int64_t math_function(writer *w, uint32_t callee)
{
    if (w->math[callee] != NO_PLACE) return w->math[callee];
    for (size_t i = 0; i < DF_LEN(math_functions); i++) {
        if (math_functions[i].callee != callee) continue;
        const char *const names[DF_CODE_PIECES] = { math_functions[i].symbol };
        df_object *o = NULL;
        w->st = df_object_make(w->d, w->p->mem, rt_math, sizeof rt_math, names, &o);
        if (w->st != DEFT_OK) return 0;
        w->math[callee] = object_add_block(w, o) + o->piece[0].at;
        df_mem_free(w->p->mem, o, o->size);
        return w->math[callee];
    }
    w->st = df_fail(w->d, DEFT_E_INTERNAL, "export: a kernel calls a function that is not offered");
    return 0;
}

static uint32_t undefined_symbol(uint32_t callee)
{
    return callee == DF_CALLEE_memcpy    ? SYM_MEMCPY
           : callee == DF_CALLEE_memmove ? SYM_MEMMOVE
           : callee == DF_CALLEE_memset  ? SYM_MEMSET
                                         : SYM_NONE;
}

/* Appends the code of o, and makes its stubs jump to the functions. Returns where it begins. */
static int64_t object_add_block(writer *w, const df_object *o)
{
    int64_t function[DF_N_CALLEES];
    for (uint32_t i = 0; i < o->n_calls && w->st == DEFT_OK; i++)
        if (undefined_symbol(o->calls[i].callee) == SYM_NONE)
            function[i] = math_function(w, o->calls[i].callee);
    if (w->st != DEFT_OK) return 0;
    if (o->slot_reads > 0) {
        w->st = df_fail(w->d, DEFT_E_INTERNAL, "export: code calls a function without its stub");
        return 0;
    }
    align_to(&w->text, DF_OBJECT_ALIGN, (char)0xCC);
    const int64_t begin = (int64_t)w->text.n;
    df_str_putn(&w->text, (const char *)o + o->body, o->body_size);
    if (!w->text.ok) return 0;
    for (uint32_t i = 0; i < o->n_calls; i++) {
        const df_object_call *const c = &o->calls[i];
        /* The stubs stand before the slots, in the same order (runtime/code/object.c). */
        const int64_t stub = c->slot - (int64_t)o->n_calls * DF_STUB_BYTES;
        char *const at = w->text.at + begin + stub;
        at[0] = (char)0xE9; /* jmp, with the distance from its end */
        const uint32_t symbol = undefined_symbol(c->callee);
        if (symbol != SYM_NONE) {
            put_relocation(&w->rela_text, (uint64_t)(begin + stub + 1), symbol, R_X86_64_PLT32, -4);
            continue;
        }
        const int32_t distance = (int32_t)(function[i] - (begin + stub + 5));
        memcpy(at + 1, &distance, sizeof distance);
    }
    return begin;
}

/* Adds the code of `names` in the ELF object, and sets at[i] to the place of names[i]. */
static void add_elf(writer *w, const void *elf, size_t n, const char *const names[DF_CODE_PIECES],
                    int64_t at[DF_CODE_PIECES])
{
    df_object *o = NULL;
    if (w->st != DEFT_OK) return;
    w->st = df_object_make(w->d, w->p->mem, elf, n, names, &o);
    if (w->st != DEFT_OK) return;
    const int64_t begin = object_add_block(w, o);
    for (int i = 0; i < DF_CODE_PIECES; i++) at[i] = names[i] ? begin + o->piece[i].at : NO_PLACE;
    df_mem_free(w->p->mem, o, o->size);
}

/* ---- levels ---- */

typedef struct level {
    const char *name;
    uint32_t needs;
    const unsigned char *product[2]; /* ELF objects for products of f32 and of f64 */
    size_t n_product[2];
} level;

#define PRODUCTS(v)                                                                                \
    { rt_f32_##v, rt_f64_##v },                                                                    \
    {                                                                                              \
        sizeof rt_f32_##v, sizeof rt_f64_##v                                                       \
    }

static const level levels[] = {
    { "x86-64-v4", AOT_CPU_V4, PRODUCTS(v4) },
    { "x86-64-v3", AOT_CPU_V3, PRODUCTS(v3) },
    { "x86-64-v2", AOT_CPU_V2, PRODUCTS(v1) },
    { "x86-64", AOT_CPU_ANY, PRODUCTS(v1) },
};

static const char *wanted_levels(const writer *w)
{
    return w->p->o->levels ? w->p->o->levels : "x86-64-v4,x86-64-v3,x86-64";
}

static bool is_wanted(const char *list, const char *name)
{
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        if (df_text_equals(at, n, name)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* Checks the list of levels, and returns how many are wanted. */
static uint32_t count_levels(writer *w, const char *list)
{
    uint32_t n_wanted = 0, n_names = 0;
    for (size_t i = 0; i < DF_LEN(levels); i++) n_wanted += is_wanted(list, levels[i].name);
    for (const char *at = list; *at; n_names++) {
        const size_t n = strcspn(at, ",");
        at += n + (at[n] == ',');
    }
    if (n_wanted == 0 || n_names != n_wanted)
        w->st = df_fail(w->d, DEFT_E_ARG,
                        "export: levels '%.60s' must be some of x86-64, x86-64-v2, x86-64-v3, "
                        "x86-64-v4, each once",
                        list);
    return n_wanted;
}

/* Compiles kernel i, and adds its code. at: main, part and fin; NO_PLACE where there is none. */
static deft_status object_add_kernel(writer *w, const df_compiler *c, uint32_t i,
                                     const df_facts *facts, int64_t at[3])
{
    deft_status st = DEFT_OK;
    const df_kernel *const k = w->p->kernels.at[i];
    char text[DF_CODE_PIECES][DF_CODE_NAME];
    const char *names[DF_CODE_PIECES] = { NULL };
    int64_t place[DF_CODE_PIECES];
    const int n = df_code_has_parts(k, facts) ? DF_CODE_PIECES : 1;
    df_str elf;
    df_str_init(&elf, w->p->mem);
    TRY(c->object(c->self, w->d, &k, facts, 1, DF_OPT_O2, &elf));
    if (!elf.ok) TRY(df_fail_mem(w->d, "export", elf.n));
    for (int e = 0; e < n; e++) {
        df_code_name(text[e], 0, e);
        names[e] = text[e];
    }
    add_elf(w, elf.at, elf.n, names, place);
    TRY(w->st);
    for (int e = 0; e < 3; e++)
        if (place[e] != NO_PLACE) at[e] = place[e];
done:
    df_str_finish(&elf);
    return st;
}

/* Compiles all kernels for a level, and adds them. at: per kernel, main, part and fin. */
static deft_status add_kernels(writer *w, const level *l, int64_t *at)
{
    deft_status st = DEFT_OK;
    const program *const p = w->p;
    df_compiler c = { 0 };
    void *library = NULL;
    TRY(df_plugin_open_target(w->d, p->mem, l->name, &c, &library));
    if (!c.object)
        TRY(df_fail(w->d, DEFT_E_BACKEND, "export: the code generator makes no objects"));
    for (uint32_t i = 0; i < p->kernels.n; i++) {
        df_facts facts;
        const bool has_facts = facts_find(p, i, &facts);
        for (int e = 0; e < 3; e++) at[3 * i + (uint32_t)e] = NO_PLACE;
        /* Code that relies on facts has no part and fin. */
        if (!has_facts || df_code_has_parts(p->kernels.at[i], NULL))
            TRY(object_add_kernel(w, &c, i, NULL, at + 3 * i));
        if (has_facts) TRY(object_add_kernel(w, &c, i, &facts, at + 3 * i));
    }
done:
    df_plugin_close(&c, &library);
    return st;
}

/* Adds the code of all levels, and the tables of their kernels. Sets, per level, the places of the
 * code for products of f32 and f64, the place of its table, and what the processor must have. */
static deft_status add_levels(writer *w, uint32_t n, int64_t *product, int64_t *kernels,
                              uint32_t *needs)
{
    deft_status st = DEFT_OK;
    const char *const list = wanted_levels(w);
    const uint32_t n_kernels = (uint32_t)w->p->kernels.n;
    int64_t *const at = df_arena_new(&w->p->arena, int64_t, 3 * (size_t)n_kernels + 1);
    if (!at) return df_fail_mem(w->d, "export", n_kernels * sizeof *at);
    uint32_t k = 0;
    for (size_t i = 0; i < DF_LEN(levels) && k < n; i++) {
        const level *const l = &levels[i];
        int64_t place[DF_CODE_PIECES] = { NO_PLACE };
        if (!is_wanted(list, l->name)) continue;
        const char *const names[DF_CODE_PIECES] = { "deft_aot_product" };
        for (int f64 = 0; f64 < 2; f64++) {
            place[0] = NO_PLACE;
            if (program_has_products(w->p, f64))
                add_elf(w, l->product[f64], l->n_product[f64], names, place);
            TRY(w->st);
            product[2 * k + (uint32_t)f64] = place[0];
        }
        TRY(add_kernels(w, l, at));
        needs[k] = l->needs;
        kernels[k] = (int64_t)w->tables.n;
        for (uint32_t e = 0; e < 3 * n_kernels; e++) {
            if (at[e] != NO_PLACE)
                put_address(w, SYM_TEXT, at[e]);
            else
                object_put_word(&w->tables, 0, 8);
        }
        k++;
    }
done:
    return st;
}

/* ---- the image ---- */

/* Appends an array to the read-only data. Returns where it begins. */
static int64_t put_array(writer *w, const void *at, size_t bytes)
{
    align_to(&w->rodata, 64, 0);
    const int64_t begin = (int64_t)w->rodata.n;
    df_str_putn(&w->rodata, at ? at : "", bytes);
    return begin;
}

#define ARRAY(v) put_array(w, w->p->v.at, w->p->v.n * sizeof *w->p->v.at)

static void object_put_image(writer *w, uint32_t n_levels, const int64_t *product,
                             const int64_t *kernels, const uint32_t *needs)
{
    const program *const p = w->p;
    const int64_t levels_at = (int64_t)w->tables.n;
    for (uint32_t i = 0; i < n_levels; i++) {
        object_put_word(&w->tables, needs[i], 8);
        for (uint32_t f64 = 0; f64 < 2; f64++) {
            if (product[2 * i + f64] != NO_PLACE)
                put_address(w, SYM_TEXT, product[2 * i + f64]);
            else
                object_put_word(&w->tables, 0, 8);
        }
        put_address(w, SYM_TABLES, kernels[i]);
    }
    const int64_t array[] = { ARRAY(values),   ARRAY(slots), ARRAY(guards), ARRAY(bufs),
                              ARRAY(binds),    ARRAY(nums),  ARRAY(list),   ARRAY(segs),
                              ARRAY(launches), ARRAY(steps), ARRAY(loops),  ARRAY(roots),
                              ARRAY(rows) };
    const int64_t data = put_array(w, p->data.at, p->data.n);
    w->image = (int64_t)w->tables.n;
    for (size_t i = 0; i < DF_LEN(array); i++) put_address(w, SYM_RODATA, array[i]);
    put_address(w, SYM_TABLES, levels_at);
    put_address(w, SYM_RODATA, data);
    put_address(w, SYM_BSS, 0);
    const aot_image counts = { .n_values = (uint32_t)p->values.n,
                               .n_slots = (uint32_t)p->slots.n,
                               .n_guards = (uint32_t)p->guards.n,
                               .n_bufs = (uint32_t)p->bufs.n,
                               .n_segs = (uint32_t)p->segs.n,
                               .n_steps = (uint32_t)p->steps.n,
                               .n_roots = (uint32_t)p->roots.n,
                               .n_levels = n_levels,
                               .n_parameters = (uint32_t)p->params.n,
                               .arena = p->arena_slot };
    df_str_putn(&w->tables, (const char *)&counts + offsetof(aot_image, n_values),
                sizeof counts - offsetof(aot_image, n_values));
}
_Static_assert(offsetof(aot_image, n_values) == 16 * sizeof(void *),
               "put_image writes 16 addresses");
_Static_assert(sizeof(aot_level) == 32, "put_image writes four words");

/* ---- the exported functions ---- */

static void put_bytes(writer *w, const char *bytes, size_t n)
{
    df_str_putn(&w->text, bytes, n);
}

static void put_i32(writer *w, int64_t v)
{
    object_put_word(&w->text, v, 4);
}

/* Stores the n arguments of a function, each of 8 bytes, side by side at the stack pointer. The
 * first parameters of the program are the first arguments. */
static void put_prologue(writer *w, uint32_t n)
{
    static const char floats[8] = { (char)0x84, (char)0x8C, (char)0x94, (char)0x9C,
                                    (char)0xA4, (char)0xAC, (char)0xB4, (char)0xBC };
    static const char store[6][4] = { { 0x48, (char)0x89, (char)0xBC, 0x24 },   /* rdi */
                                      { 0x48, (char)0x89, (char)0xB4, 0x24 },   /* rsi */
                                      { 0x48, (char)0x89, (char)0x94, 0x24 },   /* rdx */
                                      { 0x48, (char)0x89, (char)0x8C, 0x24 },   /* rcx */
                                      { 0x4C, (char)0x89, (char)0x84, 0x24 },   /* r8 */
                                      { 0x4C, (char)0x89, (char)0x8C, 0x24 } }; /* r9 */
    put_bytes(w, "\x55\x48\x89\xE5\x48\x81\xEC", 7); /* push rbp; mov rbp, rsp; sub rsp, n */
    put_i32(w, (8 * (int64_t)n + 15) & ~15);
    uint32_t n_words = 0, n_floats = 0, n_memory = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_float = i < w->p->params.n && program_is_double(&w->p->params.at[i]);
        const uint32_t k = is_float ? n_floats++ : n_words++;
        if (is_float && k < 8) {
            put_bytes(w, "\xF2\x0F\x11", 3); /* movsd [rsp + n], xmm */
            put_bytes(w, &floats[k], 1);
            put_bytes(w, "\x24", 1);
        } else if (!is_float && k < 6) {
            put_bytes(w, store[k], 4); /* mov [rsp + n], register */
        } else {
            put_bytes(w, "\x48\x8B\x85", 3); /* mov rax, [rbp + n] */
            put_i32(w, 16 + 8 * (int64_t)n_memory++);
            put_bytes(w, "\x48\x89\x84\x24", 4); /* mov [rsp + n], rax */
        }
        put_i32(w, 8 * (int64_t)i);
    }
    put_bytes(w, "\x48\x8D\x3D", 3); /* lea rdi, [rip + image] */
    put_relocation(&w->rela_text, w->text.n, SYM_TABLES, R_X86_64_PC32, w->image - 4);
    put_i32(w, 0);
    put_bytes(w, "\x48\x89\xE6", 3); /* mov rsi, rsp */
}

static void object_put_call(writer *w, int64_t to)
{
    put_bytes(w, "\xE8", 1);
    put_i32(w, to - ((int64_t)w->text.n + 4));
    put_bytes(w, "\xC9\xC3", 2); /* leave; ret */
}

/* Where an exported function is. */
typedef struct function {
    int64_t at, size;
} function;

static function put_run(writer *w)
{
    align_to(&w->text, 64, (char)0xCC);
    const int64_t at = (int64_t)w->text.n;
    put_prologue(w, (uint32_t)w->p->params.n + 2);
    object_put_call(w, w->run);
    return (function){ at, (int64_t)w->text.n - at };
}

static function put_workspace(writer *w)
{
    const uint32_t n = w->p->n_extents;
    align_to(&w->text, 64, (char)0xCC);
    const int64_t at = (int64_t)w->text.n;
    put_prologue(w, n + 1);
    put_bytes(w, "\x48\x8B\x94\x24", 4); /* mov rdx, [rsp + n]: the threads */
    put_i32(w, 8 * (int64_t)n);
    object_put_call(w, w->workspace);
    return (function){ at, (int64_t)w->text.n - at };
}

/* ---- the file ---- */

typedef struct file {
    df_str *out;
    Elf64_Shdr section[N_SECTIONS];
    df_str names, strings;
} file;

static uint32_t object_put_name(df_str *s, const char *name)
{
    const uint32_t at = (uint32_t)s->n;
    df_str_putn(s, name, strlen(name) + 1);
    return at;
}

static void put_section(file *f, uint32_t i, const char *name, uint32_t type, uint64_t flags,
                        const df_str *bytes, uint64_t align)
{
    align_to(f->out, 64, 0);
    f->section[i] = (Elf64_Shdr){ .sh_name = object_put_name(&f->names, name),
                                  .sh_type = type,
                                  .sh_flags = flags,
                                  .sh_offset = f->out->n,
                                  .sh_size = bytes ? bytes->n : 0,
                                  .sh_addralign = align };
    if (bytes) df_str_putn(f->out, bytes->at ? bytes->at : "", bytes->n);
}

static void put_symbol(df_str *symbols, uint32_t name, unsigned char info, uint16_t section,
                       function where)
{
    const Elf64_Sym s = { .st_name = name,
                          .st_info = info,
                          .st_shndx = section,
                          .st_value = (Elf64_Addr)where.at,
                          .st_size = (Elf64_Xword)where.size };
    df_str_putn(symbols, (const char *)&s, sizeof s);
}

static void put_symbols(file *f, const char *name, function run, function workspace, df_str *out)
{
    const unsigned char local = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
    const unsigned char global = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    const unsigned char outside = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
    const function none = { 0, 0 };
    char other[96];
    put_symbol(out, 0, 0, 0, none);
    put_symbol(out, 0, local, SEC_TEXT, none);
    put_symbol(out, 0, local, SEC_RODATA, none);
    put_symbol(out, 0, local, SEC_TABLES, none);
    put_symbol(out, 0, local, SEC_BSS, none);
    (void)snprintf(other, sizeof other, "%s_workspace_bytes", name);
    put_symbol(out, object_put_name(&f->strings, name), global, SEC_TEXT, run);
    put_symbol(out, object_put_name(&f->strings, other), global, SEC_TEXT, workspace);
    put_symbol(out, object_put_name(&f->strings, "memcpy"), outside, SHN_UNDEF, none);
    put_symbol(out, object_put_name(&f->strings, "memmove"), outside, SHN_UNDEF, none);
    put_symbol(out, object_put_name(&f->strings, "memset"), outside, SHN_UNDEF, none);
}

/* Undefined symbols that nothing refers to would still be asked for. They are made weak. */
static void drop_unused(const writer *w, df_str *symbols)
{
    bool used[N_SYMBOLS] = { false };
    for (size_t at = 0; at + sizeof(Elf64_Rela) <= w->rela_text.n; at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, w->rela_text.at + at, sizeof r);
        used[ELF64_R_SYM(r.r_info)] = true;
    }
    for (uint32_t i = SYM_MEMCPY; i < N_SYMBOLS; i++) {
        Elf64_Sym s;
        char *const at = symbols->at + i * sizeof s;
        memcpy(&s, at, sizeof s);
        if (!used[i]) s.st_info = ELF64_ST_INFO(STB_WEAK, STT_NOTYPE);
        memcpy(at, &s, sizeof s);
    }
}

static deft_status object_put_file(writer *w, function run, function workspace, df_str *out)
{
    file f = { .out = out };
    df_str symbols, unused;
    df_str_init(&f.names, w->p->mem);
    df_str_init(&f.strings, w->p->mem);
    df_str_init(&symbols, w->p->mem);
    df_str_init(&unused, w->p->mem);
    Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                       EV_CURRENT, ELFOSABI_NONE },
                          .e_type = ET_REL,
                          .e_machine = EM_X86_64,
                          .e_version = EV_CURRENT,
                          .e_ehsize = sizeof header,
                          .e_shentsize = sizeof(Elf64_Shdr),
                          .e_shnum = N_SECTIONS,
                          .e_shstrndx = SEC_NAMES };
    const size_t begin = out->n;
    df_str_putn(out, (const char *)&header, sizeof header);
    df_str_putc(&f.names, '\0');
    df_str_putc(&f.strings, '\0');
    put_symbols(&f, w->p->o->name, run, workspace, &symbols);
    if (symbols.ok) drop_unused(w, &symbols);
    const uint64_t code = SHF_ALLOC | SHF_EXECINSTR, tables = SHF_ALLOC | SHF_WRITE;
    put_section(&f, SEC_TEXT, ".text", SHT_PROGBITS, code, &w->text, 64);
    put_section(&f, SEC_RODATA, ".rodata", SHT_PROGBITS, SHF_ALLOC, &w->rodata, 64);
    put_section(&f, SEC_TABLES, ".data.rel.ro", SHT_PROGBITS, tables, &w->tables, 8);
    put_section(&f, SEC_BSS, ".bss", SHT_NOBITS, tables, NULL, 8);
    f.section[SEC_BSS].sh_size = 8;
    put_section(&f, SEC_RELA_TEXT, ".rela.text", SHT_RELA, SHF_INFO_LINK, &w->rela_text, 8);
    put_section(&f, SEC_RELA_TABLES, ".rela.data.rel.ro", SHT_RELA, SHF_INFO_LINK, &w->rela_tables,
                8);
    put_section(&f, SEC_STACK, ".note.GNU-stack", SHT_PROGBITS, 0, &unused, 1);
    put_section(&f, SEC_SYMBOLS, ".symtab", SHT_SYMTAB, 0, &symbols, 8);
    put_section(&f, SEC_STRINGS, ".strtab", SHT_STRTAB, 0, &f.strings, 1);
    put_section(&f, SEC_NAMES, ".shstrtab", SHT_STRTAB, 0, NULL, 1);
    f.section[SEC_NAMES].sh_size = f.names.n;
    df_str_putn(out, f.names.at ? f.names.at : "", f.names.n);
    for (int i = 0; i < 2; i++) {
        Elf64_Shdr *const s = &f.section[i ? SEC_RELA_TABLES : SEC_RELA_TEXT];
        s->sh_link = SEC_SYMBOLS;
        s->sh_info = i ? SEC_TABLES : SEC_TEXT;
        s->sh_entsize = sizeof(Elf64_Rela);
    }
    f.section[SEC_SYMBOLS].sh_link = SEC_STRINGS;
    f.section[SEC_SYMBOLS].sh_info = SYM_FIRST_GLOBAL;
    f.section[SEC_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    align_to(out, 64, 0);
    header.e_shoff = out->n - begin;
    df_str_putn(out, (const char *)f.section, sizeof f.section);
    const bool ok = out->ok && symbols.ok && f.names.ok && f.strings.ok;
    if (ok) memcpy(out->at + begin, &header, sizeof header);
    df_str_finish(&f.names);
    df_str_finish(&f.strings);
    df_str_finish(&symbols);
    df_str_finish(&unused);
    return ok ? DEFT_OK : df_fail_mem(w->d, "export", out->cap);
}

/* ---- exported ---- */

enum { MOST_LEVELS = DF_LEN(levels) };

static deft_status object_write_all(writer *w, df_str *out)
{
    deft_status st = DEFT_OK;
    const char *const list = wanted_levels(w);
    int64_t product[2 * MOST_LEVELS], kernels[MOST_LEVELS], at[DF_CODE_PIECES] = { NO_PLACE };
    uint32_t needs[MOST_LEVELS];
    const uint32_t n = count_levels(w, list);
    TRY(w->st);
    const char *const names[DF_CODE_PIECES] = { "deft_aot_run", "deft_aot_workspace" };
    add_elf(w, rt_run, sizeof rt_run, names, at);
    TRY(w->st);
    w->run = at[0];
    w->workspace = at[1];
    TRY(add_levels(w, n, product, kernels, needs));
    object_put_image(w, n, product, kernels, needs);
    const function run = put_run(w), workspace = put_workspace(w);
    if (!w->text.ok || !w->rodata.ok || !w->tables.ok || !w->rela_text.ok || !w->rela_tables.ok)
        return df_fail_mem(w->d, "export", w->text.cap);
    TRY(object_put_file(w, run, workspace, out));
done:
    return st;
}

deft_status object_write(program *p, df_str *out)
{
    writer w = { .p = p, .d = p->d };
    df_str *const all[] = { &w.text, &w.rodata, &w.tables, &w.rela_text, &w.rela_tables };
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_init(all[i], p->mem);
    for (uint32_t i = 0; i < MATH_PIECES; i++) w.math[i] = NO_PLACE;
    const deft_status st = object_write_all(&w, out);
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_finish(all[i]);
    return st;
}
