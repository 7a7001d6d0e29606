/* SPDX-License-Identifier: Apache-2.0
 *
 * What does it cost to make GPU code of a kernel? The writing of its CUDA text, and NVRTC: a kernel
 * by itself, and beside others in one program; then the same for the kernels of all examples, which
 * are run for their traces. For sm_90; no GPU is needed. Nothing that is made here may spill.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "jit_cuda/driver/nvrtc.h"
#include "programs.h"

enum { ARCH = 90, MOST = 32 };

static const struct {
    const char *label, *text;
} small[] = {
    { "gelu", "%0 = input f32[65536]\n%1 = gelu f32[65536] %0\noutput %1\n" },
    { "sum of a map", "%0 = input f32[65536]\n%1 = exp f32[65536] %0\n"
                      "%2 = sum f32[] %1 axes=[0]\noutput %2\n" },
    { "softmax", "%0 = input f32[128,512]\n%1 = max f32[128,1] %0 axes=[1] keepdims\n"
                 "%2 = sub f32[128,512] %0 %1\n%3 = exp f32[128,512] %2\n"
                 "%4 = sum f32[128,1] %3 axes=[1] keepdims\n%5 = div f32[128,512] %3 %4\n"
                 "output %5\n" },
    { "column sums", "%0 = input f32[512,128]\n%1 = sum f32[128] %0 axes=[0]\noutput %1\n" },
};

typedef struct made {
    df_arena arena;
    df_plan *plan;
    const df_kernel *k;
    df_cuda_entry entry;
    double text_s; /* to write the kernel */
} made;

static void must(df_diag *d, deft_status st)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "cuda_codegen: %s\n", d->text);
    exit(1);
}

static void put_kernel(const made *m, uint32_t number, df_str *s)
{
    df_diag d = { 0 };
    char name[16];
    snprintf(name, sizeof name, "k%u", number);
    must(&d, df_cuda_text(&d, m->k, name, &m->entry, 1, &df_mem_system, s));
}

static void write_text(void *user)
{
    df_str s;
    df_str_init(&s, &df_mem_system);
    put_kernel(user, 0, &s);
    df_str_finish(&s);
}

static void make(made *m, const char *text)
{
    static const df_limits limits = { .n_threads = 8,
                                      .max_body = DF_MAX_BODY,
                                      .l1_bytes = 32 << 10,
                                      .l2_bytes = 1 << 20,
                                      .fuse = true };
    df_diag d = { 0 };
    df_trace *t = NULL, *simple = NULL;
    df_arena_init(&m->arena, &df_mem_system);
    must(&d, df_trace_parse(&d, text, strlen(text), &m->arena, &t));
    must(&d, df_trace_simplify(&d, t, DF_PASS_ALL, &m->arena, &simple, NULL));
    must(&d, df_fuse(&d, simple, &limits, &df_mem_system, &m->plan));
    m->k = &m->plan->kernels[0];
    m->entry = (df_cuda_entry){ DF_CUDA_MAIN, DF_CUDA_NARROW };
    if (df_cuda_lanes(m->k) > 1) m->entry.flags |= DF_CUDA_WIDE;
    m->text_s = bench_one(write_text, m, 5, bench_calls(write_text, m, 0.02));
}

/* Seconds of NVRTC for a program of n kernels, like m's; adds to *spilled. */
static double compile(const df_nvrtc *nv, const made *m, uint32_t n, uint32_t *spilled)
{
    df_str s;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    df_str_init(&s, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&s, prelude, size);
    for (uint32_t i = 0; i < n; i++) put_kernel(m, i, &s);
    const double t0 = bench_now();
    must(&d, df_nvrtc_compile(nv, &d, s.at, ARCH, true, &c));
    const double t = bench_now() - t0;
    for (uint32_t i = 0; i < n; i++) {
        char name[16], entry[64];
        df_cuda_usage u;
        snprintf(name, sizeof name, "k%u", i);
        df_cuda_entry_name(name, m->entry, entry, sizeof entry);
        must(&d, df_cubin_usage(&d, &c, entry, &u));
        *spilled += u.spilled;
    }
    df_cubin_finish(nv, &c);
    df_str_finish(&s);
    return t;
}

static void measure(bench *b, const df_nvrtc *nv, const made *m, const char *label)
{
    enum { ROUNDS = 3 };
    const int rounds = b->quick ? 1 : ROUNDS;
    static const uint32_t sizes[] = { 8, MOST };
    double alone[ROUNDS], many[2][ROUNDS];
    uint32_t spilled = 0;
    char row[64];
    for (int r = b->quick ? 0 : -1; r < rounds; r++)
        for (int i = -1; i < 2; i++) {
            const uint32_t n = i < 0 ? 1 : sizes[i];
            const double t = compile(nv, m, n, &spilled) / n;
            if (r >= 0) *(i < 0 ? &alone[r] : &many[i][r]) = t * 1e3;
        }
    const double one = bench_median(alone, (size_t)rounds);
    snprintf(row, sizeof row, "%s: its text", label);
    bench_row(b, row, m->text_s * 1e3, "ms", "NVRTC alone", one, BENCH_RATIO_AT_MOST, 0.05);
    for (int i = 0; i < 2; i++) {
        snprintf(row, sizeof row, "%s: NVRTC, each of %u", label, sizes[i]);
        bench_row(b, row, bench_median(many[i], (size_t)rounds), "ms", "NVRTC alone", one,
                  BENCH_RATIO_AT_MOST, 1);
    }
    snprintf(row, sizeof row, "%s: spilled", label);
    bench_row(b, row, spilled, "bytes", "limit", 0, BENCH_VALUE_AT_MOST, 0);
}

/* ---- the kernels of all examples ---- */

enum { IN_PROGRAM = 16, ONE_OF = 10 }; /* --quick: of so many kernels */

static const char *const examples[] = {
    "black_scholes 1000",
    "cnn --epochs 4",
    "digits --epochs 2",
    "heat 40 300",
    "hello",
    "image 97 61",
    "mandelbrot 30 20 9",
    "mlp 500",
    "nbody 30 2",
    "gpt --steps 16 --layers 2 --width 32 --heads 2 --length 16 --batch 4 --drop 0.1 --write 20 "
    "--strict 1 --check 1",
    "gpt2 --tokens 6000 --steps 4 --layers 2 --width 64 --heads 2 --length 16 --batch 2 --drop 0.1 "
    "--write 3 --strict 1 --check 1",
};

/* Runs them; their traces go to folder. */
static bool run_examples(const char *folder)
{
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_str_fmt(&s, "DEFT_TRACES='%s' '%s/tests/cuda/examples/with_examples' true", folder,
               BENCH_SOURCE_ROOT);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        df_str_fmt(&s, " -- %.*s '%s/examples/'%s", (int)strcspn(examples[i], " "), examples[i],
                   BENCH_BUILD_ROOT, examples[i]);
    df_str_put(&s, " >/dev/null");
    const bool good = s.ok && system(s.at) == 0;
    df_str_finish(&s);
    return good;
}

static void read_traces(programs *p, const char *folder)
{
    char pattern[128];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/*.trace", folder);
    if (glob(pattern, 0, NULL, &g) != 0) exit(1);
    programs_read(p, (const char *const *)g.gl_pathv, (int)g.gl_pathc);
    for (size_t i = 0; i < g.gl_pathc; i++) (void)unlink(g.gl_pathv[i]);
    globfree(&g);
    (void)rmdir(folder);
}

/* What ptxas says of the entries of a program. */
typedef struct usage {
    uint32_t spilled, registers;
} usage;

/* Milliseconds for a program of these kernels. */
static double compile_kernels(const df_nvrtc *nv, const df_kernel *const *k, uint32_t n, usage *u)
{
    df_str s;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    made m[IN_PROGRAM];
    df_str_init(&s, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&s, prelude, size);
    for (uint32_t i = 0; i < n; i++) {
        m[i] = (made){ .k = k[i], .entry = { DF_CUDA_MAIN, DF_CUDA_NARROW } };
        if (df_cuda_lanes(k[i]) > 1) m[i].entry.flags |= DF_CUDA_WIDE;
        put_kernel(&m[i], i, &s);
    }
    const double t0 = bench_now();
    must(&d, df_nvrtc_compile(nv, &d, s.at, ARCH, true, &c));
    const double t = bench_now() - t0;
    for (uint32_t i = 0; i < n; i++) {
        char name[16], entry[64];
        df_cuda_usage of;
        snprintf(name, sizeof name, "k%u", i);
        df_cuda_entry_name(name, m[i].entry, entry, sizeof entry);
        must(&d, df_cubin_usage(&d, &c, entry, &of));
        u->spilled += of.spilled;
        if (of.registers > u->registers) u->registers = of.registers;
    }
    df_cubin_finish(nv, &c);
    df_str_finish(&s);
    return t * 1e3;
}

static void measure_examples(bench *b, const df_nvrtc *nv)
{
    char folder[] = "/tmp/deft-bench-XXXXXX", row[64];
    programs p;
    usage u = { 0 };
    double alone = 0, together = 0;
    if (!mkdtemp(folder) || !run_examples(folder)) {
        (void)rmdir(folder);
        bench_row_without(b, "examples", 0, "ms", "NVRTC", "the examples did not run", 1);
        return;
    }
    read_traces(&p, folder);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p.n_kernels; i += b->quick ? ONE_OF : 1) p.kernel[n++] = p.kernel[i];
    for (uint32_t i = 0; i < n; i += IN_PROGRAM) {
        const uint32_t here = n - i < IN_PROGRAM ? n - i : IN_PROGRAM;
        for (uint32_t j = 0; j < here; j++) alone += compile_kernels(nv, p.kernel + i + j, 1, &u);
        together += compile_kernels(nv, p.kernel + i, here, &u);
    }
    snprintf(row, sizeof row, "examples: each of %u kernels, %d to a program", n, IN_PROGRAM);
    bench_row(b, row, together / n, "ms", "NVRTC alone", alone / n, BENCH_RATIO_AT_MOST, 1);
    bench_row(b, "examples: registers at most", u.registers, "registers", "limit", 255,
              BENCH_VALUE_AT_MOST, 255);
    bench_row(b, "examples: spilled", u.spilled, "bytes", "limit", 0, BENCH_VALUE_AT_MOST, 0);
    programs_finish(&p);
}

void bench_cuda_codegen(bench *b)
{
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &nv) != DEFT_OK) {
        bench_row_without(b, "NVRTC", 0, "ms", "NVRTC", d.text, 1);
        return;
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        made m = { 0 };
        if (!bench_wants(b, small[i].label)) continue;
        make(&m, small[i].text);
        measure(b, nv, &m, small[i].label);
        df_plan_destroy(&m.plan, &df_mem_system);
        df_arena_finish(&m.arena);
    }
    if (bench_wants(b, "examples")) measure_examples(b, nv);
    df_nvrtc_close(&nv);
}
