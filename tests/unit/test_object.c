/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects and the compiler that keeps them: linked code computes what it should, also through calls
 * of other functions; any damage to an ELF file gives an error or an object that is sound; what is
 * kept is found again under the same key alone; and what the loader refuses is still compiled.
 */
#include <criterion/criterion.h>

#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/code/kept.h"
#include "runtime/code/machine.h"
#include "runtime/code/object.h"
#include "runtime/cpu.h"
#include "support/fail_mem.h"
#include "unit/hand_kernels.h"

/* ---- a compiler ---- */

static void *plugin;

static df_compiler open_compiler(const df_mem *mem)
{
    df_compiler c = { 0 };
    df_diag d = { 0 };
    const deft_status st = df_plugin_open(&d, mem, NULL, NULL, 0, &c, &plugin);
    cr_assert(st == DEFT_OK, "%s", d.text);
    return c;
}

/* ---- kernels: y = fmod(x, 3), which calls a function, and a fold with parts ---- */

enum { N = 1000 };

static void build_rem(kb *b, float divisor)
{
    kb_init(b, DF_MODE_MAP, "i", 1);
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1"));
    const uint32_t d = kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, F(divisor));
    const uint32_t y = kb_ins(b, DF_K_rem, DEFT_F32, x, d, 0, 0);
    kb_ins(b, DF_K_store, DEFT_F32, y, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "1"));
    kb_seal(b);
}

/* Runs code of build_rem(divisor) and compares. */
static void run_rem(const df_code *code, float divisor)
{
    static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i * 1.25f - 300;
    memset(y, 0, sizeof y);
    char *const ptr[] = { (char *)x, (char *)y };
    const int64_t stride[] = { 1, 1 }, base[2] = { 0 }, extent[] = { N };
    const uint64_t num[1] = { 0 };
    int64_t fault[3] = { 0 };
    const df_kargs args = {
        .ptr = ptr, .stride = stride, .base = base, .extent = extent, .num = num, .fault = fault
    };
    code->main(&args, 0, 1, 0, N);
    for (int i = 0; i < N; i++) cr_assert_eq(bits_f32(y[i]), bits_f32(fmodf(x[i], divisor)));
}

/* Runs code of build_fold over one row: `main`, and `part` and `fin`. */
static void run_fold(const df_code *code)
{
    enum { BLOCKS = (N + DF_BLOCK - 1) / DF_BLOCK };
    float *const x = random_floats(N, 7);
    float out[2][5] = { { 0 } };
    for (int way = 0; way < 2; way++) {
        char *ptr[6] = { (char *)x };
        int64_t stride[12] = { N, 1 }, base[6] = { 0 }, fault[3] = { 0 };
        const int64_t extent[] = { 1, N };
        const uint64_t num[1] = { 0 };
        uint64_t partial[4 * BLOCKS];
        for (int i = 0; i < 5; i++) {
            ptr[i + 1] = (char *)&out[way][i];
            stride[2 * i + 2] = 1;
        }
        const df_kargs args = { .ptr = ptr,
                                .stride = stride,
                                .base = base,
                                .extent = extent,
                                .num = num,
                                .fault = fault,
                                .partial = partial };
        if (way == 0) {
            code->main(&args, 0, 1, 0, 1);
        } else {
            code->part(&args, 0, 1, 0, BLOCKS);
            code->fin(&args, 0, 1, 0, 1);
        }
    }
    for (int i = 0; i < 4; i++)
        cr_assert_eq(bits_f32(out[0][i]), bits_f32(naive(fold_ops[i], x, 1, N)));
    cr_assert_arr_eq(out[0], out[1], sizeof out[0]);
    free(x);
}

/* The ELF object with both kernels. */
static void make_elf(const df_compiler *c, df_str *elf)
{
    kb rem, fold;
    df_diag d = { 0 };
    build_rem(&rem, 3);
    build_fold(&fold, DF_MODE_ROW, "or", "s1", "s0");
    const df_kernel *const k[] = { &rem.k, &fold.k };
    df_str_init(elf, &df_mem_system);
    const deft_status st = c->object(c->self, &d, k, NULL, 2, DF_OPT_O2, elf);
    cr_assert(st == DEFT_OK && elf->ok, "%s", d.text);
}

static const char *const rem_names[DF_CODE_PIECES] = { "df_k0" };
static const char *const fold_names[DF_CODE_PIECES] = { "df_k1", "df_k1_part", "df_k1_fin",
                                                        "df_k1_body" };

static void free_object(df_object *o)
{
    if (o) df_mem_free(&df_mem_system, o, o->size);
}

/* ---- linking and loading ---- */

/* Whether a page of the process is writable and executable. */
static bool has_open_page(void)
{
    char line[512];
    bool found = false;
    FILE *const f = fopen("/proc/self/maps", "r");
    cr_assert(f);
    while (fgets(line, sizeof line, f)) {
        const char *const rights = strchr(line, ' ');
        found |= rights && rights[2] == 'w' && rights[3] == 'x';
    }
    fclose(f);
    return found;
}

Test(object, linked_code_computes_what_it_should_and_calls_what_it_may)
{
    df_compiler c = open_compiler(&df_mem_system);
    df_str elf;
    df_object *rem, *fold;
    df_diag d = { 0 };
    df_loaded at[2];
    df_code code[2];
    make_elf(&c, &elf);
    cr_assert_eq(df_object_make(&d, &df_mem_system, elf.at, elf.n, rem_names, &rem), DEFT_OK, "%s",
                 d.text);
    cr_assert_eq(df_object_make(&d, &df_mem_system, elf.at, elf.n, fold_names, &fold), DEFT_OK,
                 "%s", d.text);
    df_str_finish(&elf);
    cr_assert(df_object_is_sound(rem, rem->size) && df_object_is_sound(fold, fold->size));
    cr_assert_eq(rem->n_calls, 1); /* fmodf */
    cr_assert_eq(fold->n_calls, 0);
    cr_assert_eq(df_object_load(&d, rem, &at[0], &code[0]), DEFT_OK, "%s", d.text);
    cr_assert_eq(df_object_load(&d, fold, &at[1], &code[1]), DEFT_OK, "%s", d.text);
    free_object(rem);
    free_object(fold);
    df_plugin_close(&c, &plugin); /* the code needs nothing of the compiler */
    run_rem(&code[0], 3);
    run_fold(&code[1]);
    cr_assert(code[1].body && code[1].size[3] > 0);
    cr_assert_not(has_open_page());
    for (int i = 0; i < 2; i++) df_object_unload(&at[i]);
    cr_assert_null(at[0].at);
}

Test(object, what_objects_do_not_offer_is_refused_with_a_reason)
{
    static const char *const absent[DF_CODE_PIECES] = { "df_k7" };
    df_compiler c = open_compiler(&df_mem_system);
    df_str elf;
    df_object *o;
    df_diag d = { 0 };
    make_elf(&c, &elf);
    cr_assert_eq(df_object_make(&d, &df_mem_system, elf.at, elf.n, absent, &o), DEFT_E_COMPILE);
    cr_assert(strstr(d.text, "no function 'df_k7'"), "%s", d.text);
    char *const name = memmem(elf.at, elf.n, "fmodf", 6);
    cr_assert(name);
    memcpy(name, "execv", 6); /* a function that code may not call */
    d = (df_diag){ 0 };
    cr_assert_eq(df_object_make(&d, &df_mem_system, elf.at, elf.n, rem_names, &o), DEFT_E_COMPILE);
    cr_assert(strstr(d.text, "may not call 'execv'"), "%s", d.text);
    cr_assert_null(o);
    elf.at[EI_CLASS] = ELFCLASS32;
    cr_assert_eq(df_object_make(&d, &df_mem_system, elf.at, elf.n, fold_names, &o), DEFT_E_COMPILE);
    df_str_finish(&elf);
    df_plugin_close(&c, &plugin);
}

/* An address of 8 bytes, which no body can have. */
#if defined(__aarch64__)
#define ABSOLUTE R_AARCH64_ABS64
#else
#define ABSOLUTE R_X86_64_64
#endif

Test(object, every_relocation_of_another_type_is_refused)
{
    char text[64];
    df_compiler c = open_compiler(&df_mem_system);
    df_str elf;
    df_object *o;
    df_diag d = { 0 };
    Elf64_Ehdr h;
    uint32_t n = 0;
    make_elf(&c, &elf);
    memcpy(&h, elf.at, sizeof h);
    for (uint32_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        memcpy(&s, elf.at + h.e_shoff + i * sizeof s, sizeof s);
        for (uint64_t r = 0; s.sh_type == SHT_RELA && r < s.sh_size; r += sizeof(Elf64_Rela)) {
            Elf64_Rela was, is;
            memcpy(&was, elf.at + s.sh_offset + r, sizeof was);
            is = was;
            is.r_info = ELF64_R_INFO(ELF64_R_SYM(was.r_info), ABSOLUTE);
            memcpy(elf.at + s.sh_offset + r, &is, sizeof is);
            for (int k = 0; k < 2; k++) {
                const char *const *const names = k ? fold_names : rem_names;
                if (df_object_make(&d, &df_mem_system, elf.at, elf.n, names, &o) != DEFT_OK) {
                    snprintf(text, sizeof text, "relocations of type %d ", ABSOLUTE);
                    cr_assert(strstr(d.text, text), "%s", d.text);
                    n++;
                }
                free_object(o);
            }
            memcpy(elf.at + s.sh_offset + r, &was, sizeof was);
        }
    }
    cr_assert_geq(n, 2);
    df_str_finish(&elf);
    df_plugin_close(&c, &plugin);
}

/* Damages an ELF file in up to three places, or cuts it off. */
static size_t damage(char *at, size_t n, uint64_t *seed)
{
    const uint64_t kind = random_next(seed) % 8;
    for (uint64_t i = 0; i <= kind % 3; i++) {
        char *const byte = at + random_next(seed) % n;
        *byte = kind < 4 ? (char)random_next(seed) : (char)(*byte ^ (1 << random_next(seed) % 8));
    }
    return kind == 7 ? random_next(seed) % n : n;
}

Test(object, a_damaged_file_gives_an_error_or_a_sound_object)
{
    df_compiler c = open_compiler(&df_mem_system);
    df_str elf;
    uint64_t seed = 20261127;
    int refused = 0, made = 0;
    make_elf(&c, &elf);
    for (int i = 0; i < 20000; i++) {
        df_object *o;
        char *const copy = malloc(elf.n);
        memcpy(copy, elf.at, elf.n);
        const size_t n = damage(copy, elf.n, &seed);
        char *const exact = malloc(n + 1); /* so that a read behind the end is found */
        memcpy(exact, copy, n);
        free(copy);
        const deft_status st =
            df_object_make(NULL, &df_mem_system, exact, n, i % 2 ? fold_names : rem_names, &o);
        cr_assert(st == DEFT_OK || st == DEFT_E_COMPILE || st == DEFT_E_MEMORY);
        cr_assert_eq(o != NULL, st == DEFT_OK);
        if (o) cr_assert(df_object_is_sound(o, o->size));
        refused += !o;
        made += o != NULL;
        free_object(o);
        free(exact);
    }
    cr_assert(refused > 1000 && made > 1000, "%d refused, %d made", refused, made);
    df_str_finish(&elf);
    df_plugin_close(&c, &plugin);
}

Test(object, numbers_that_do_not_fit_together_are_not_sound)
{
    df_compiler c = open_compiler(&df_mem_system);
    df_str elf;
    df_object *o;
    make_elf(&c, &elf);
    cr_assert_eq(df_object_make(NULL, &df_mem_system, elf.at, elf.n, rem_names, &o), DEFT_OK);
    const size_t n = o->size;
    cr_assert(df_object_is_sound(o, n));
    cr_assert_not(df_object_is_sound(o, n - 1));
    cr_assert_not(df_object_is_sound(o, 8));
    for (size_t word = 0; word < (sizeof *o + sizeof *o->calls) / 4; word++) {
        uint32_t *const at = (uint32_t *)o + word, was = *at;
        *at = UINT32_MAX - 7;
        cr_assert_not(df_object_is_sound(o, n), "word %zu", word);
        *at = was;
    }
    free_object(o);
    df_str_finish(&elf);
    df_plugin_close(&c, &plugin);
}

/* ---- the compiler that keeps code ---- */

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/deft-kept-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect(system(command) == 0);
}

TestSuite(kept, .init = make_folder, .fini = remove_folder);

/* A compiler over the folder, for a machine of this name; NULL: for this machine. */
typedef struct keeper {
    df_disk *disk;
    df_compiler c;
} keeper;

static void keeper_open(keeper *k, const df_mem *mem, const char *machine)
{
    const df_disk_options disk = { .folders = folder };
    k->disk = df_disk_open(mem, NULL, &disk);
    k->c = open_compiler(mem);
    const df_kept_options o = { .disk = k->disk, .machine = machine };
    df_kept_open(mem, NULL, &o, &k->c);
}

static void keeper_close(keeper *k)
{
    df_plugin_close(&k->c, &plugin);
    df_disk_close(&k->disk);
}

static bool recall(keeper *k, float divisor, df_opt level, df_code *out)
{
    kb b;
    build_rem(&b, divisor);
    *out = (df_code){ 0 };
    return k->c.recall(k->c.self, &b.k, NULL, level, out);
}

static void compile(keeper *k, float divisor, df_opt level, df_code *out)
{
    kb b;
    df_diag d = { 0 };
    build_rem(&b, divisor);
    const df_kernel *const kernel = &b.k;
    const deft_status st = k->c.compile(k->c.self, &d, &kernel, 1, level, out);
    cr_assert_eq(st, DEFT_OK, "%s", d.text);
}

Test(kept, code_is_found_under_its_own_key_alone)
{
    keeper k;
    df_code code;
    keeper_open(&k, &df_mem_system, "a");
    cr_assert_not(recall(&k, 3, DF_OPT_O2, &code));
    compile(&k, 3, DF_OPT_O2, &code);
    run_rem(&code, 3);
    k.c.release(k.c.self, &code);
    keeper_close(&k);

    keeper_open(&k, &df_mem_system, "a");
    cr_assert(recall(&k, 3, DF_OPT_O2, &code));
    run_rem(&code, 3);
    k.c.release(k.c.self, &code);
    cr_assert_not(recall(&k, 4, DF_OPT_O2, &code), "of another kernel");
    cr_assert_not(recall(&k, 3, DF_OPT_O0, &code), "of another level");
    kb b;
    build_rem(&b, 3);
    df_facts facts = { .rows = true };
    for (int i = 0; i < DF_MAX_AXES; i++) facts.extent[i] = DF_ANY;
    cr_assert_not(k.c.recall(k.c.self, &b.k, &facts, DF_OPT_O2, &code), "of a variant");
    df_diag d = { 0 };
    cr_assert_eq(k.c.specialize(k.c.self, &d, &b.k, &facts, &code), DEFT_OK, "%s", d.text);
    k.c.release(k.c.self, &code);
    cr_assert(k.c.recall(k.c.self, &b.k, &facts, DF_OPT_O2, &code));
    k.c.release(k.c.self, &code);
    facts.extent[0] = N;
    cr_assert_not(k.c.recall(k.c.self, &b.k, &facts, DF_OPT_O2, &code), "of another variant");
    keeper_close(&k);

    keeper_open(&k, &df_mem_system, "b");
    cr_assert_not(recall(&k, 3, DF_OPT_O2, &code), "of another machine");
    keeper_close(&k);
}

Test(kept, the_code_of_products_is_kept_too)
{
    keeper k;
    df_gemm_kernel made = { 0 }, found = { 0 };
    df_diag d = { 0 };
    keeper_open(&k, &df_mem_system, NULL);
    cr_assert_not(k.c.recall_gemm(k.c.self, DEFT_F32, &found));
    cr_assert_eq(k.c.gemm(k.c.self, &d, DEFT_F32, &made), DEFT_OK, "%s", d.text);
    keeper_close(&k);
    keeper_open(&k, &df_mem_system, NULL);
    cr_assert(k.c.recall_gemm(k.c.self, DEFT_F32, &found));
    cr_assert_not(k.c.recall_gemm(k.c.self, DEFT_F64, &made));
    cr_assert(found.fn && found.mr == made.mr && found.nr == made.nr && found.size > 0);
    /* C[1 x 2] = A[1 x 3] * B[3 x 2], in panels */
    float *const a = calloc((size_t)3 * found.mr, 4), *const b = calloc((size_t)3 * found.nr, 4);
    float c[2] = { 0 };
    for (int i = 0; i < 3; i++) {
        a[(uint32_t)i * found.mr] = (float)i + 1;
        b[(uint32_t)i * found.nr] = (float)i + 2;
        b[(uint32_t)i * found.nr + 1] = 1;
    }
    found.fn(3, a, b, c, 2, 1, 2, 1, a);
    cr_assert(c[0] == 1 * 2 + 2 * 3 + 3 * 4 && c[1] == 6, "%g %g", (double)c[0], (double)c[1]);
    free(a);
    free(b);
    keeper_close(&k);
}

/* A compiler whose objects our linker refuses. */
static df_compiler refused;

static deft_status make_refused(void *self, df_diag *d, const df_kernel *const *k,
                                const df_facts *facts, uint32_t n, df_opt level, df_str *elf)
{
    const deft_status st = refused.object(self, d, k, facts, n, level, elf);
    char *const name = memmem(elf->at, elf->n, "fmodf", 6);
    if (name) name[0] = 'x';
    return st;
}

Test(kept, an_object_that_is_refused_is_loaded_by_the_other_compiler)
{
    keeper k;
    df_code code;
    const df_disk_options disk = { .folders = folder };
    k.disk = df_disk_open(&df_mem_system, NULL, &disk);
    k.c = refused = open_compiler(&df_mem_system);
    k.c.object = make_refused;
    const df_kept_options o = { .disk = k.disk };
    df_kept_open(&df_mem_system, NULL, &o, &k.c);
    compile(&k, 3, DF_OPT_O2, &code);
    run_rem(&code, 3);
    k.c.release(k.c.self, &code);
    cr_assert_eq(df_disk_stats_get(k.disk).added, 0);
    cr_assert_not(recall(&k, 3, DF_OPT_O2, &code));
    keeper_close(&k);
}

Test(kept, without_memory_nothing_leaks)
{
    keeper k;
    df_code code;
    kb b;
    build_rem(&b, 3);
    const df_kernel *const kernel = &b.k;
    fail_mem *f = fail_mem_create();
    keeper_open(&k, fail_mem_get(f), "a");
    int failed = 0;
    for (size_t n = 1; n < 40; n++) {
        fail_mem_at(f, n, false);
        code = (df_code){ 0 };
        if (k.c.compile(k.c.self, NULL, &kernel, 1, DF_OPT_O2, &code) == DEFT_OK)
            k.c.release(k.c.self, &code);
        else
            failed++;
        fail_mem_at(f, n, false);
        if (recall(&k, 3, DF_OPT_O2, &code)) k.c.release(k.c.self, &code);
        fail_mem_at(f, 0, false);
    }
    cr_assert_gt(failed, 0);
    keeper_close(&k);
    const fail_mem_counts c = fail_mem_count(f);
    cr_assert(c.live_blocks == 0 && c.faults == 0, "%s", fail_mem_fault(f));
    fail_mem_destroy(&f);
}

/* ---- the machine ---- */

Test(object, the_description_of_the_machine_is_always_the_same)
{
    df_str a, b;
    df_str_init(&a, &df_mem_system);
    df_str_init(&b, &df_mem_system);
    df_machine_put(&a);
    df_machine_put(&b);
    cr_assert_geq(a.n, 24);
    cr_assert(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
    df_str_finish(&a);
    df_str_finish(&b);
}
