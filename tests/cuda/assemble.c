/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated CUDA text through NVRTC to cubins, no GPU needed: the kernels of all programs of
 * tests/expect, or of traces, the op matrix, random ones, strict and FAST, and routines, for one
 * architecture. Prints how many entries were assembled, the most registers, and what spills; no
 * entry of a program's kernel may, nor of the matrix.
 * Skipped, with a sentence, where there is no NVRTC.
 *
 *   assemble --arch=90 [--brief] [--random=40] [--only] [--matrix] [FILE.expect ...] [FILE.trace
 * ...]
 *
 * --brief: of each kernel the entry that launches mostly take, and its parts; else every kind.
 * --only: the kernels of the files alone, and the matrix if asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit_cuda/gen/held.h"
#include "jit_cuda/driver/nvrtc.h"
#include "jit_cuda/kernels/routine.h"
#include "matrix.h"
#include "programs.h"
#include "support/fail_mem.h"
#include "support/hand_kernel.h"
#include "support/budget.h"
#include "support/random_kernel.h"

enum { IN_PROGRAM = 32, MOST_ENTRIES = 8, SKIP = 77, N_REDUCTIONS = 2 };

typedef struct subject {
    const df_kernel *k;
    const char *where;
    bool may_spill;
    char name[16];
    df_cuda_entry entry[MOST_ENTRIES];
    uint32_t n_entries;
} subject;

typedef struct totals {
    long kernels, entries, spilling, spilled, stack, registers;
    const char *widest;
    double seconds;
} totals;

typedef struct asked {
    int arch, first_file;
    uint32_t n_random;
    bool brief, only, has_matrix;
} asked;

static long n_faults;

static void choose_entries(subject *s, bool brief)
{
    static const df_cuda_entry map[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                         { DF_CUDA_MAIN, 0 },
                                         { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_MANY } };
    static const df_cuda_entry row[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                         { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_LONG },
                                         { DF_CUDA_MAIN, DF_CUDA_LONG | DF_CUDA_MANY } };
    static const df_cuda_entry col[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                         { DF_CUDA_MAIN, DF_CUDA_NARROW },
                                         { DF_CUDA_MAIN, DF_CUDA_MANY } };
    static const df_cuda_entry loop[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW },
                                          { DF_CUDA_MAIN, DF_CUDA_MANY } };
    static const df_cuda_entry *const of[] = { map, row, col, loop };
    const uint8_t mode = s->k->mode;
    s->n_entries = brief ? 1 : mode == DF_MODE_LOOP ? 2 : 3;
    memcpy(s->entry, of[mode], sizeof *s->entry * s->n_entries);
    if (!brief && df_cuda_held_of(s->k).n > 0)
        s->entry[s->n_entries++] =
            (df_cuda_entry){ DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE | DF_CUDA_HELD };
    if (!(s->k->flags & DF_KERNEL_SPLIT)) return;
    s->entry[s->n_entries++] = (df_cuda_entry){ DF_CUDA_PART, DF_CUDA_NARROW | DF_CUDA_WIDE };
    s->entry[s->n_entries++] = (df_cuda_entry){ DF_CUDA_FIN, DF_CUDA_NARROW };
}

/* Adds what the log of a program says of subject s. */
static void count(totals *t, const subject *s, const df_cubin *c)
{
    for (uint32_t e = 0; e < s->n_entries; e++) {
        char name[64];
        df_diag d = { 0 };
        df_cuda_usage u;
        df_cuda_entry_name(s->name, s->entry[e], name, sizeof name);
        if (df_cubin_usage(&d, c, name, &u) != DEFT_OK) {
            printf("%s: %s\n", s->where, d.text);
            n_faults++;
            continue;
        }
        t->entries++;
        t->spilling += u.spilled > 0;
        t->spilled += u.spilled;
        if ((long)u.stack > t->stack) t->stack = u.stack;
        if ((long)u.registers > t->registers) {
            t->registers = u.registers;
            t->widest = s->where;
        }
        if (u.spilled == 0 || s->may_spill) continue;
        printf("%s: %s spills %u bytes with %u registers\n", s->where, name, u.spilled,
               u.registers);
        n_faults++;
    }
}

static void assemble(const df_nvrtc *nv, int arch, subject *s, uint32_t n, totals *t)
{
    df_str text;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    struct timespec t0, t1;
    df_str_init(&text, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    for (uint32_t i = 0; i < n; i++) {
        if (df_cuda_text(&d, s[i].k, s[i].name, s[i].entry, s[i].n_entries, &df_mem_system,
                         &text) == DEFT_OK)
            continue;
        printf("%s: %s\n", s[i].where, d.text);
        n_faults++;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    const deft_status st = df_nvrtc_compile(nv, &d, text.at, arch, true, &c);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    t->seconds += (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    if (st != DEFT_OK) {
        printf("%s to %s: %s\n", s[0].where, s[n - 1].where, d.text);
        n_faults++;
    } else {
        for (uint32_t i = 0; i < n; i++) count(t, &s[i], &c);
        t->kernels += n;
        df_cubin_finish(nv, &c);
    }
    df_str_finish(&text);
}

static void assemble_all(const df_nvrtc *nv, const asked *a, subject *s, uint32_t n)
{
    totals t = { .widest = "-" };
    for (uint32_t i = 0; i < n; i++) {
        snprintf(s[i].name, sizeof s[i].name, "k%u", i);
        choose_entries(&s[i], a->brief);
    }
    const uint32_t n_programs = (n + IN_PROGRAM - 1) / IN_PROGRAM;
    for (uint32_t i = 0; i < n_programs && (i == 0 || test_time_left(1)); i++) {
        const uint32_t at = test_scattered(i, n_programs) * IN_PROGRAM;
        assemble(nv, a->arch, s + at, n - at < IN_PROGRAM ? n - at : IN_PROGRAM, &t);
    }
    printf("%ld of %u kernels\n", t.kernels, n);
    printf(
        "sm_%d: %ld kernels, %ld entries; at most %ld registers (%s), %ld bytes of local memory; "
        "%ld spill (%ld bytes); %.0f ms of CPU for each kernel\n",
        a->arch, t.kernels, t.entries, t.registers, t.widest, t.stack, t.spilling, t.spilled,
        t.kernels ? t.seconds * 1000 / (double)t.kernels : 0);
}

/* ---- routines ---- */

/* All routines in one program: none may have local memory. */
static void assemble_routines(const df_nvrtc *nv, int arch)
{
    df_str text;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    uint32_t registers = 0, shared = 0;
    const char *widest = "-";
    df_str_init(&text, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    df_cuda_routine_text(((uint64_t)1 << DF_CUDA_N_ROUTINES) - 1, &text);
    if (df_nvrtc_compile(nv, &d, text.at, arch, true, &c) != DEFT_OK) {
        printf("routines: %s\n", d.text);
        n_faults++;
        df_str_finish(&text);
        return;
    }
    for (uint32_t i = 0; i < DF_CUDA_N_ROUTINES; i++) {
        const char *const name = df_cuda_routine_name((df_cuda_routine)i);
        df_cuda_usage u = { 0 };
        if (df_cubin_usage(&d, &c, name, &u) != DEFT_OK || u.spilled > 0 || u.stack > 0) {
            printf("%s: spills %u bytes, %u of local memory; %s\n", name, u.spilled, u.stack,
                   d.text);
            n_faults++;
        }
        if (u.shared > shared) shared = u.shared;
        if (u.registers <= registers) continue;
        registers = u.registers;
        widest = name;
    }
    printf("sm_%d: %d routines; at most %u registers (%s), %u bytes of shared memory\n", arch,
           DF_CUDA_N_ROUTINES, registers, widest, shared);
    df_cubin_finish(nv, &c);
    df_str_finish(&text);
}

/* ---- loads in flight ---- */

/* How often `words` stands in an entry of PTX before `until` first does. */
static uint32_t count_ahead(const char *ptx, const char *entry, const char *words,
                            const char *until)
{
    uint32_t n = 0;
    const char *at = strstr(ptx, entry);
    const char *const end = at ? strstr(at, until) : NULL;
    for (; end && (at = strstr(at, words)) && at < end; at++) n++;
    return n;
}

/* A thread of a short kernel reads all its groups before it goes on with any. Single elements are
 * read among the products, but all before the first store: the assembler is free to. */
static void check_flight(const df_nvrtc *nv, int arch)
{
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                             { DF_CUDA_MAIN, DF_CUDA_NARROW } };
    df_str text;
    df_diag d = { 0 };
    df_cubin c = { 0 };
    size_t size;
    hand_axpy p;
    hand_axpy_make(&p, DEFT_F32, false);
    df_str_init(&text, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    if (df_cuda_text(&d, &p.k, "axpy", entries, 2, &df_mem_system, &text) != DEFT_OK ||
        df_nvrtc_ptx(nv, &d, text.at, arch, true, &c) != DEFT_OK) {
        printf("axpy: %s\n", d.text);
        n_faults++;
    } else {
        /* Types of loads are named by two ways. */
        const uint32_t wide = count_ahead(c.at, "axpy_main_nw(", "ld.global.v2.u64", "mul.rn") +
                              count_ahead(c.at, "axpy_main_nw(", "ld.global.v4.b32", "mul.rn");
        const uint32_t one = count_ahead(c.at, "axpy_main_n(", "ld.global.f32", "st.global") +
                             count_ahead(c.at, "axpy_main_n(", "ld.global.b32", "st.global");
        printf("axpy: %u loads of 16 bytes before a product, %u of 4 before a store\n", wide, one);
        n_faults += wide != 8 || one != 8;
    }
    df_cubin_finish(nv, &c);
    df_str_finish(&text);
}

/* ---- refusals ---- */

static void expect_refusal(bool refused, const df_diag *d, const char *what, const char *words)
{
    if (refused && strstr(d->text, words)) return;
    printf("%s: is not refused with \"%s\": %s\n", what, words, d->text);
    n_faults++;
}

/* A sentence for what is not there, and the compiler's words for what it refuses. */
static void check_refusals(const df_nvrtc *nv)
{
    df_diag d = { 0 };
    df_cubin c;
    df_nvrtc *none = NULL;
    expect_refusal(df_nvrtc_compile(nv, &d, "", 61, false, &c) == DEFT_E_COMPILE, &d, "sm_61",
                   "knows no sm_61");
    expect_refusal(df_nvrtc_compile(nv, &d, "int f( {", 90, false, &c) == DEFT_E_COMPILE, &d,
                   "no CUDA", "error");
    expect_refusal(df_nvrtc_open(&d, &df_mem_system, "/nowhere", &none) == DEFT_E_BACKEND, &d,
                   "no library", "/nowhere");
}

/* Opening and compiling, the n-th allocation failing. */
static void check_memory(int arch)
{
    static const char text[] = "extern \"C\" __global__ void k(int *p) { *p = 1; }";
    fail_mem *f = fail_mem_create();
    bool done = false;
    for (size_t at = 1; !done && at < 100; at++) {
        df_diag d = { 0 };
        df_cubin c = { 0 };
        df_nvrtc *nv = NULL;
        const size_t failed = fail_mem_count(f).failed;
        fail_mem_at(f, at, false);
        deft_status st = df_nvrtc_open(&d, fail_mem_get(f), NULL, &nv);
        if (st == DEFT_OK) st = df_nvrtc_compile(nv, &d, text, arch, false, &c);
        fail_mem_at(f, 0, false);
        done = fail_mem_count(f).failed == failed;
        if (st != (done ? DEFT_OK : DEFT_E_MEMORY)) {
            printf("allocation %zu: %s\n", at, d.text);
            n_faults++;
        }
        if (st == DEFT_OK) df_cubin_finish(nv, &c);
        df_nvrtc_close(&nv);
        n_faults += fail_mem_count(f).live_blocks != 0 || fail_mem_count(f).faults != 0;
    }
    n_faults += !done;
    fail_mem_destroy(&f);
}

static asked read_arguments(int argc, char **argv)
{
    asked a = { .arch = 90, .first_file = 1, .n_random = 40 };
    for (; a.first_file < argc && argv[a.first_file][0] == '-'; a.first_file++) {
        const char *const s = argv[a.first_file];
        if (strncmp(s, "--arch=", 7) == 0) a.arch = atoi(s + 7);
        if (strncmp(s, "--random=", 9) == 0) a.n_random = (uint32_t)atoi(s + 9);
        a.brief |= strcmp(s, "--brief") == 0;
        a.only |= strcmp(s, "--only") == 0;
        a.has_matrix |= strcmp(s, "--matrix") == 0;
    }
    if (a.only) a.n_random = 0;
    return a;
}

static void make_random(random_kernel *g, subject *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        random_kernel_make(&g[i], 7000 + i, (df_mode)(i % 5 % 4), i % 5 == 4);
        if (i % 10 >= 5) g[i].k.flags |= DF_KERNEL_FAST;
        s[i] = (subject){ .k = &g[i].k, .where = "random", .may_spill = true };
    }
}

/* More reductions than fit shared memory, and beside scans. */
static void make_reductions(hand_reductions *r, subject *s)
{
    static const char *const where[] = { "reductions of columns", "and scans" };
    for (int i = 0; i < N_REDUCTIONS; i++) {
        hand_reductions_make(&r[i], true, i == 1, 6);
        s[i] = (subject){ .k = &r[i].k, .where = where[i], .may_spill = true };
    }
}

/* The op matrix, in programs of its own. */
static void assemble_matrix(const df_nvrtc *nv, const asked *a)
{
    matrix m;
    matrix_make(&m);
    subject *const s = calloc(m.n, sizeof *s);
    if (!s) exit(2);
    for (uint32_t i = 0; i < m.n; i++)
        s[i] = (subject){ .k = &m.at[i].x.k, .where = m.at[i].where };
    printf("the op matrix\n");
    assemble_all(nv, a, s, m.n);
    free(s);
    matrix_finish(&m);
}

static void assemble_kernels(const df_nvrtc *nv, const asked *a, const char *const *files,
                             int n_files)
{
    static hand_reductions reductions[N_REDUCTIONS];
    programs p;
    programs_read(&p, files, n_files);
    const uint32_t n_made = p.n_kernels + a->n_random, n = n_made + (a->only ? 0 : N_REDUCTIONS);
    subject *const s = calloc(n + 1, sizeof *s);
    random_kernel *const g = calloc(a->n_random + 1, sizeof *g);
    if (!s || !g) exit(2);
    for (uint32_t i = 0; i < p.n_kernels; i++)
        s[i] = (subject){ .k = p.kernel[i], .where = p.where[i] };
    make_random(g, s + p.n_kernels, a->n_random);
    if (!a->only) make_reductions(reductions, s + n_made);
    assemble_all(nv, a, s, n);
    free(g);
    free(s);
    programs_finish(&p);
}

int main(int argc, char **argv)
{
    const asked a = read_arguments(argc, argv);
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &nv) != DEFT_OK) {
        printf("skipped: %s\n", d.text);
        return SKIP;
    }
    printf("NVRTC %d.%d\n", df_nvrtc_version(nv) / 100, df_nvrtc_version(nv) % 100);
    if (!df_nvrtc_has(nv, a.arch)) {
        printf("skipped: this NVRTC does not know sm_%d\n", a.arch);
        return SKIP;
    }
    if (!a.only) check_refusals(nv);
    if (!a.only) check_memory(a.arch);
    if (!a.only) check_flight(nv, a.arch);
    assemble_kernels(nv, &a, (const char *const *)argv + a.first_file, argc - a.first_file);
    if (a.has_matrix) assemble_matrix(nv, &a);
    if (!a.only) assemble_routines(nv, a.arch);
    df_nvrtc_close(&nv);
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
