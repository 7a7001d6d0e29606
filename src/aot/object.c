/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the code and the tables of an exported program for x86-64 Linux (code.h). Then
 * object_file.c and shared_file.c write them as ELF files.
 *
 * Code comes as linked blocks (runtime/code/object.h), of which only the addresses of called
 * functions are missing. The runtime part has those of libm, so that memcpy, memmove and memset
 * alone remain undefined.
 *
 * References: System V ABI, chapters 4 and 5; its AMD64 supplement, sections 3.2 and 4.4.
 */
#include "aot/code.h"

#include <elf.h>
#include <string.h>

#include "aot/facts.h"
#include "aot/rt_objects.h"
#include "runtime/code/callees.h"
#include "runtime/code/object.h"
#include "runtime/code/object_machine.h"
#include "runtime/cpu.h"

enum { NO_PLACE = -1 };

static void put_relocation(df_str *out, uint64_t at, uint32_t symbol, uint32_t type, int64_t addend)
{
    const Elf64_Rela r = { .r_offset = at,
                           .r_info = ELF64_R_INFO(symbol, type),
                           .r_addend = addend };
    df_str_putn(out, (const char *)&r, sizeof r);
}

/* An address in the tables. */
static void put_address(code_writer *w, uint32_t symbol, int64_t at)
{
    put_relocation(&w->rela_tables, w->tables.n, symbol, R_X86_64_64, at);
    code_put_word(&w->tables, 0, 8);
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

static int64_t object_add_block(code_writer *w, const df_object *o);

/* Where the function of libm is in the text, to which it is added the first time. */
static int64_t math_function(code_writer *w, uint32_t callee)
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
static int64_t object_add_block(code_writer *w, const df_object *o)
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
    code_align(&w->text, DF_OBJECT_ALIGN, (char)0xCC);
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
static void add_elf(code_writer *w, const void *elf, size_t n,
                    const char *const names[DF_CODE_PIECES], int64_t at[DF_CODE_PIECES])
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

/* What the code for products is for. For both dtypes it is smaller than for one and the other. */
enum { OF_F32, OF_F64, OF_BOTH, N_PRODUCTS };

typedef struct level {
    const char *name;
    uint32_t needs;
    const unsigned char *product[N_PRODUCTS]; /* ELF objects */
    size_t n_product[N_PRODUCTS];
} level;

#define PRODUCTS(v)                                                                                \
    { rt_f32_##v, rt_f64_##v, rt_both_##v },                                                       \
    {                                                                                              \
        sizeof rt_f32_##v, sizeof rt_f64_##v, sizeof rt_both_##v                                   \
    }

static const level levels[] = {
    { "x86-64-v4", AOT_CPU_V4, PRODUCTS(v4) },
    { "x86-64-v3", AOT_CPU_V3, PRODUCTS(v3) },
    { "x86-64-v2", AOT_CPU_V2, PRODUCTS(v1) },
    { "x86-64", AOT_CPU_ANY, PRODUCTS(v1) },
};

static const char *wanted_levels(const code_writer *w)
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
static uint32_t count_levels(code_writer *w, const char *list)
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
static deft_status object_add_kernel(code_writer *w, const df_compiler *c, uint32_t i,
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
static deft_status add_kernels(code_writer *w, const level *l, int64_t *at)
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

/* Adds the code for the products of the program. at: its places for f32 and f64, which are one when
 * the program has both; NO_PLACE where it has none. */
static void add_products(code_writer *w, const level *l, int64_t at[2])
{
    const char *const names[DF_CODE_PIECES] = { "deft_aot_product" };
    const bool has_f32 = program_has_products(w->p, false);
    const bool has_f64 = program_has_products(w->p, true);
    const int of = has_f32 && has_f64 ? OF_BOTH : has_f64 ? OF_F64 : OF_F32;
    int64_t place[DF_CODE_PIECES] = { NO_PLACE };
    if (has_f32 || has_f64) add_elf(w, l->product[of], l->n_product[of], names, place);
    at[0] = has_f32 ? place[0] : NO_PLACE;
    at[1] = has_f64 ? place[0] : NO_PLACE;
}

/* Adds the code of all levels, and the tables of their kernels. Sets, per level, the places of the
 * code for products of f32 and f64, the place of its table, and what the processor must have. */
static deft_status add_levels(code_writer *w, uint32_t n, int64_t *product, int64_t *kernels,
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
        if (!is_wanted(list, l->name)) continue;
        add_products(w, l, product + 2 * k);
        TRY(w->st);
        TRY(add_kernels(w, l, at));
        needs[k] = l->needs;
        kernels[k] = (int64_t)w->tables.n;
        for (uint32_t e = 0; e < 3 * n_kernels; e++) {
            if (at[e] != NO_PLACE)
                put_address(w, SYM_TEXT, at[e]);
            else
                code_put_word(&w->tables, 0, 8);
        }
        k++;
    }
done:
    return st;
}

/* ---- the image ---- */

/* Appends an array to the read-only data. Returns where it begins. */
static int64_t put_array(code_writer *w, const void *at, size_t bytes)
{
    code_align(&w->rodata, 64, 0);
    const int64_t begin = (int64_t)w->rodata.n;
    df_str_putn(&w->rodata, at ? at : "", bytes);
    return begin;
}

#define ARRAY(v) put_array(w, w->p->v.at, w->p->v.n * sizeof *w->p->v.at)

static void object_put_image(code_writer *w, uint32_t n_levels, const int64_t *product,
                             const int64_t *kernels, const uint32_t *needs)
{
    const program *const p = w->p;
    const int64_t levels_at = (int64_t)w->tables.n;
    for (uint32_t i = 0; i < n_levels; i++) {
        code_put_word(&w->tables, needs[i], 8);
        for (uint32_t f64 = 0; f64 < 2; f64++) {
            if (product[2 * i + f64] != NO_PLACE)
                put_address(w, SYM_TEXT, product[2 * i + f64]);
            else
                code_put_word(&w->tables, 0, 8);
        }
        put_address(w, SYM_TABLES, kernels[i]);
    }
    const int64_t array[] = { ARRAY(values),   ARRAY(slots),  ARRAY(guards), ARRAY(bufs),
                              ARRAY(binds),    ARRAY(nums),   ARRAY(list),   ARRAY(segs),
                              ARRAY(launches), ARRAY(steps),  ARRAY(loops),  ARRAY(roots),
                              ARRAY(rows),     ARRAY(blocks), ARRAY(pieces), ARRAY(routines) };
    const int64_t data = put_array(w, p->data.at, p->data.n);
    w->image = (int64_t)w->tables.n;
    for (size_t i = 0; i < DF_LEN(array); i++) put_address(w, SYM_RODATA, array[i]);
    if (w->routine != NO_PLACE)
        put_address(w, SYM_TEXT, w->routine);
    else
        code_put_word(&w->tables, 0, 8);
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
                               .arena = p->arena_slot,
                               .n_blocks = (uint32_t)p->blocks.n };
    df_str_putn(&w->tables, (const char *)&counts + offsetof(aot_image, n_values),
                sizeof counts - offsetof(aot_image, n_values));
}
_Static_assert(offsetof(aot_image, n_values) == 20 * sizeof(void *),
               "put_image writes 20 addresses");
_Static_assert(sizeof(aot_level) == 32, "put_image writes four words");

/* ---- the exported functions ---- */

static void put_bytes(code_writer *w, const char *bytes, size_t n)
{
    df_str_putn(&w->text, bytes, n);
}

static void put_i32(code_writer *w, int64_t v)
{
    code_put_word(&w->text, v, 4);
}

static void put_image_address(code_writer *w)
{
    put_bytes(w, "\x48\x8D\x3D", 3); /* lea rdi, [rip + image] */
    put_relocation(&w->rela_text, w->text.n, SYM_TABLES, R_X86_64_PC32, w->image - 4);
    put_i32(w, 0);
}

/* Stores the n arguments of a function, each of 8 bytes, side by side at the stack pointer. The
 * first parameters of the program are the first arguments. */
static void put_prologue(code_writer *w, uint32_t n)
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
    put_image_address(w);
    put_bytes(w, "\x48\x89\xE6", 3); /* mov rsi, rsp */
}

static void object_put_call(code_writer *w, int64_t to)
{
    put_bytes(w, "\xE8", 1);
    put_i32(w, to - ((int64_t)w->text.n + 4));
    put_bytes(w, "\xC9\xC3", 2); /* leave; ret */
}

static code_function put_run(code_writer *w)
{
    code_align(&w->text, 64, (char)0xCC);
    const int64_t at = (int64_t)w->text.n;
    put_prologue(w, (uint32_t)w->p->params.n + 2);
    object_put_call(w, w->run);
    return (code_function){ at, (int64_t)w->text.n - at };
}

static code_function put_workspace(code_writer *w)
{
    const uint32_t n = w->p->n_extents;
    code_align(&w->text, 64, (char)0xCC);
    const int64_t at = (int64_t)w->text.n;
    put_prologue(w, n + 1);
    put_bytes(w, "\x48\x8B\x94\x24", 4); /* mov rdx, [rsp + n]: the threads */
    put_i32(w, 8 * (int64_t)n);
    object_put_call(w, w->workspace);
    return (code_function){ at, (int64_t)w->text.n - at };
}

/* A function with the parameters of deft_aot_run, or of deft_aot_workspace, but the image. */
static code_function put_any(code_writer *w, int64_t to, bool has_threads)
{
    code_align(&w->text, 64, (char)0xCC);
    const int64_t at = (int64_t)w->text.n;
    if (has_threads) put_bytes(w, "\x48\x89\xF2", 3); /* mov rdx, rsi */
    put_bytes(w, "\x48\x89\xFE", 3);                  /* mov rsi, rdi */
    put_image_address(w);
    put_bytes(w, "\xE9", 1); /* jmp */
    put_i32(w, to - ((int64_t)w->text.n + 4));
    return (code_function){ at, (int64_t)w->text.n - at };
}

/* ---- exported ---- */

enum { MOST_LEVELS = DF_LEN(levels) };

static deft_status object_write_all(code_writer *w, df_str *object, df_str *shared)
{
    deft_status st = DEFT_OK;
    const char *const list = wanted_levels(w);
    int64_t product[2 * MOST_LEVELS], kernels[MOST_LEVELS], at[DF_CODE_PIECES] = { NO_PLACE };
    uint32_t needs[MOST_LEVELS];
    const uint32_t n = count_levels(w, list);
    TRY(w->st);
    w->levels = list;
    const char *const names[DF_CODE_PIECES] = { "deft_aot_run", "deft_aot_workspace" };
    if (w->p->blocks.n > 0)
        add_elf(w, rt_run_blocks, sizeof rt_run_blocks, names, at);
    else
        add_elf(w, rt_run, sizeof rt_run, names, at);
    TRY(w->st);
    w->run = at[0];
    w->workspace = at[1];
    const char *const routine[DF_CODE_PIECES] = { "deft_aot_routine" };
    at[0] = NO_PLACE;
    if (w->p->routines.n > 0) add_elf(w, rt_routine, sizeof rt_routine, routine, at);
    TRY(w->st);
    w->routine = at[0];
    TRY(add_levels(w, n, product, kernels, needs));
    object_put_image(w, n, product, kernels, needs);
    w->function[0] = put_run(w);
    w->function[1] = put_workspace(w);
    w->function[2] = put_any(w, w->run, false);
    w->function[3] = put_any(w, w->workspace, true);
    if (!w->text.ok || !w->rodata.ok || !w->tables.ok || !w->rela_text.ok || !w->rela_tables.ok)
        return df_fail_mem(w->d, "export", w->text.cap);
    if (object) TRY(object_file_write(w, object));
    if (shared) TRY(shared_file_write(w, shared));
done:
    return st;
}

deft_status object_write(program *p, df_str *object, df_str *shared)
{
    code_writer w = { .p = p, .d = p->d };
    df_str *const all[] = { &w.text, &w.rodata, &w.tables, &w.rela_text, &w.rela_tables };
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_init(all[i], p->mem);
    for (uint32_t i = 0; i < DF_N_CALLEES; i++) w.math[i] = NO_PLACE;
    const deft_status st = object_write_all(&w, object, shared);
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_finish(all[i]);
    return st;
}
