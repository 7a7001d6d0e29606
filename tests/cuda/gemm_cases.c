/* SPDX-License-Identifier: Apache-2.0
 *
 * Products' CUDA text, run on the CPU (shim.h), against runtime/matmul/matmul.c, bit for bit, all
 * NaNs being equal: random shapes, strides and data, f32, some of halves, and f64, with and
 * without epilogue kernels (against the interpreter over that C), by the variant that is chosen
 * and by others that the operands allow, tensor cores among them.
 *
 *   gemm_cases COMPILER FOLDER-OF-SHIM [--quick] [FILE.expect ...]
 *
 * The epilogues of all products in programs of tests/expect go the same way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch.h"
#include "jit_cuda/kernels/gemm.h"
#include "jit_cuda/kernels/gemm_tile.h"
#include "product.h"
#include "programs.h"
#include "runtime/interp/interp.h"
#include "support/budget.h"

enum { IN_BATCH = 24, BY = 3, MOST_WORDS = DF_CUDA_PARAM_BYTES / 8 };

/* One product, by BY variants. */
typedef struct subject {
    product p;
    random_kernel g;
    random_run r;
    bool has_epilogue;
    int64_t extent[DF_CUDA_GEMM_AXES + 2];
    df_cuda_gemm plan[BY];
    char name[BY][16];
} subject;

static struct {
    long products, halves, launches, mma, epilogues, programs, tile[DF_CUDA_N_TILES], wide[2],
        faults;
} n;
static batch_tools tools;

static void fault(const char *where, const char *what, const char *more)
{
    printf("%s: %s: %s\n", where, what, more);
    n.faults++;
}

/* ---- epilogues ---- */

/* A load of t that may stand for C; DF_NONE. */
static uint32_t find_load(const random_kernel *g, uint8_t t)
{
    for (uint32_t i = 0; i < g->k.n_ins; i++)
        if (g->ins[i].op == DF_K_load && g->ins[i].dtype == t && g->ins[i].imm < UINT8_MAX)
            return (uint32_t)g->ins[i].imm;
    return DF_NONE;
}

/* The epilogue is g, of shapes that go with the product. */
static void set_epilogue(subject *s, uint32_t c_access)
{
    const uint32_t rank = s->p.j.batch_rank;
    for (uint32_t i = 0; i < rank; i++) s->extent[i] = s->p.j.batch_extent[i];
    s->extent[rank] = s->p.j.m;
    s->extent[rank + 1] = s->p.j.n;
    s->g.given = s->extent;
    s->g.k.access = s->g.access;
    s->p.j.epilogue = &s->g.k;
    s->p.j.c_access = c_access;
    s->p.j.args = &s->r.a;
    s->has_epilogue = true;
}

/* A random MAP over as many axes that reads C. */
static void make_epilogue(subject *s, uint64_t seed)
{
    uint32_t c = DF_NONE;
    for (uint64_t i = 0; c == DF_NONE; i++) {
        random_kernel_make(&s->g, seed * 1009 + i, DF_MODE_MAP, false);
        if (s->g.k.n_axes == s->p.j.batch_rank + 2) c = find_load(&s->g, (uint8_t)s->p.j.dtype);
    }
    for (uint32_t x = 0; x < s->g.k.n_axes; x++) s->g.access[c].step[x] = DF_STEP_ANY;
    s->g.access[c].step[s->g.k.n_axes - 1u] = DF_STEP_UNIT;
    s->g.k.ins = s->g.ins;
    set_epilogue(s, c);
}

static void set_numbers(subject *s)
{
    for (uint32_t i = 0; i < s->g.k.n_ins; i++) {
        const df_ins *const ins = &s->g.k.ins[i];
        if (ins->op == DF_K_num && ins->imm >= 4) s->r.num[ins->imm] = 1;
    }
}

/* The interpreter over the CPU's C is what is wanted; then C is taken away. */
static void run_epilogue(subject *s)
{
    random_run *const r = &s->r;
    random_run_make(&s->g, r, 2.5, 0.75f, false);
    set_numbers(s);
    const uint64_t c = s->p.j.c;
    df_cuda_gemm_job j = s->p.j;
    df_cuda_gemm_dense(&j, (uintptr_t)s->p.dense);
    df_cuda_gemm_aim(&j, r->ptr, r->stride);
    void *const work = aligned_alloc(64, (df_interp_work_size(&s->g.k) + 127) & ~(size_t)63);
    if (!work) abort();
    df_interp_main(&s->g.k, work, &r->a, 0, r->n_outer, 0, r->n_inner);
    free(work);
    random_run_keep(&s->g, r);
    random_run_reset(&s->g, r);
    r->ptr[j.c_access] = NULL;
    for (uint32_t x = 0; x < s->g.k.n_axes; x++) r->stride[j.c_access * s->g.k.n_axes + x] = 0;
    s->p.j.c = c;
}

/* ---- variants ---- */

/* Another tile; reads, in whatever order, one element at a time. */
static void vary(subject *s, df_cuda_gemm *plan)
{
    df_cuda_gemm_config *const v = &plan->variant;
    v->tile = (uint8_t)product_pick(&s->p, v->flags & DF_CUDA_GEMM_MMA ? DF_CUDA_N_MMA_TILES
                                                                       : DF_CUDA_N_TILES);
    if (product_pick(&s->p, 2)) v->a = (uint8_t)product_pick(&s->p, 2);
    if (product_pick(&s->p, 2)) v->b = (uint8_t)product_pick(&s->p, 2);
    if (product_pick(&s->p, 3) == 0) v->flags &= (uint8_t)~DF_CUDA_NARROW;
    if (product_pick(&s->p, 3) == 0) v->flags &= (uint8_t)~DF_CUDA_WIDE;
}

/* By tensor cores where they may, but the first: the twin of their instruction adds in order. */
static void choose_plans(subject *s, uint32_t number)
{
    for (uint32_t i = 0; i < BY; i++) {
        s->p.j.fast = s->p.j.mma = i > 0;
        s->plan[i] = df_cuda_gemm_choose(&s->p.j, 1 + product_pick(&s->p, 200), NULL);
        snprintf(s->name[i], sizeof s->name[i], "p%u_%u", number, i);
        if (i > 0) vary(s, &s->plan[i]);
    }
}

/* Few terms that underflow: sums that are -0 before a slice is filled up. */
static void make_tiny(subject *s, uint64_t seed, uint32_t number)
{
    *s = (subject){ .has_epilogue = false };
    do {
        if (s->p.a.map) product_end(&s->p);
        product_of(&s->p, seed++, DEFT_F32, DEFT_BF16, 40, 24, 2, true);
    } while (s->p.data != PRODUCT_TINY);
    choose_plans(s, number);
}

static void make_random(subject *s, uint64_t seed, uint32_t number)
{
    const deft_dtype t = seed % 3 == 2 ? DEFT_F64 : DEFT_F32;
    const bool fused = seed % 2;
    *s = (subject){ .has_epilogue = false };
    do {
        if (s->p.a.map) product_end(&s->p);
        product_make(&s->p, seed, t, 300, !fused || seed % 6 < 2);
        seed += 1000000;
    } while (fused && s->p.j.batch_rank > 2);
    if (fused) {
        make_epilogue(s, seed);
        run_epilogue(s);
    }
    choose_plans(s, number);
}

/* A product whose epilogue the fuser has made; false: what it reads at indices is not for random
 * memory. */
static bool make_fused(subject *s, const df_plan *plan, const df_seg *seg, uint64_t seed,
                       uint32_t number)
{
    *s = (subject){ .has_epilogue = false };
    if (!random_kernel_of(&s->g, &plan->kernels[seg->kernel.i], seed)) return false;
    for (uint32_t i = 0; i < s->g.k.n_access; i++)
        if (s->g.access[i].kind == DF_ACCESS_AT) return false;
    do {
        if (s->p.a.map) product_end(&s->p);
        product_make(&s->p, seed++, seg->dtype, 200, seg->c.buf.i != DF_NONE);
    } while (s->p.j.batch_rank != seg->n_batch);
    set_epilogue(s, seg->c_access);
    const df_kernel *const k = &s->g.k;
    if (k->n_axes != seg->n_batch + 2 || k->role[k->n_axes - 1u] != DF_AXIS_INNER ||
        k->access[seg->c_access].step[k->n_axes - 1u] != DF_STEP_UNIT)
        fault(s->p.where, "epilogue", "not over [batch..., M, N]");
    run_epilogue(s);
    choose_plans(s, number);
    return true;
}

static bool put_text(const subject *s, df_str *out)
{
    df_diag d = { 0 };
    for (uint32_t i = 0; i < BY; i++) {
        if (s->plan[i].way == DF_CUDA_GEMM_NOTHING) continue;
        if (df_cuda_gemm_text(&d, &s->plan[i].variant, s->has_epilogue ? &s->g.k : NULL, s->name[i],
                              &df_mem_system, out) == DEFT_OK)
            continue;
        fault(s->p.where, s->name[i], d.text);
        return false;
    }
    return true;
}

static void put_table(const subject *s, uint32_t n_subjects, df_str *out)
{
    df_str_put(out, "extern \"C\" const shim_entry shim_entries[] = {\n");
    for (uint32_t i = 0; i < n_subjects * BY; i++) {
        const df_cuda_gemm *const plan = &s[i / BY].plan[i % BY];
        const char *const name = s[i / BY].name[i % BY];
        if (plan->way == DF_CUDA_GEMM_NOTHING) continue;
        df_str_fmt(out, "{ \"%s\", shim_call<one<%u>, %s> },\n", name, plan->n_words, name);
    }
    df_str_put(out, "{ nullptr, nullptr } };\n");
}

/* ---- runs ---- */

static void compare(subject *s, const char *name)
{
    char text[160];
    if (product_differs(&s->p, text, sizeof text)) fault(s->p.where, name, text);
    if (!s->has_epilogue) return;
    if (random_run_differs(&s->g, &s->r, text, sizeof text)) fault(s->p.where, name, text);
    random_run_reset(&s->g, &s->r);
}

static void run(const batch *b, subject *s)
{
    for (uint32_t i = 0; i < BY; i++) {
        df_cuda_gemm *const plan = &s->plan[i];
        const df_cuda_gemm_config *const v = &plan->variant;
        uint64_t words[MOST_WORDS];
        if (plan->way == DF_CUDA_GEMM_NOTHING) continue;
        if (plan->c_bytes != 0 || plan->fused != s->has_epilogue || plan->n_words > MOST_WORDS) {
            fault(s->p.where, s->name[i], "not the way that was expected");
            continue;
        }
        df_cuda_gemm_fill(&s->p.j, plan, words);
        const int64_t some = 1 + product_pick(&s->p, 12); /* blocks stride over the tiles */
        if (batch_call(b, s->p.where, s->name[i], words,
                       plan->n_blocks < some ? plan->n_blocks : some, DF_CUDA_GEMM_THREADS))
            compare(s, s->name[i]);
        else
            n.faults++;
        n.launches++;
        n.mma += (v->flags & DF_CUDA_GEMM_MMA) != 0;
        n.tile[v->tile] += (v->flags & DF_CUDA_GEMM_MMA) == 0;
        n.wide[0] += v->a >= DF_CUDA_READ_WIDE_C;
        n.wide[1] += (v->flags & DF_CUDA_WIDE) != 0;
    }
    n.products++;
    n.epilogues += s->has_epilogue;
    n.halves += s->p.j.a_dtype != s->p.j.dtype || s->p.j.b_dtype != s->p.j.dtype;
}

static void check_batch(subject *s, uint32_t n_subjects)
{
    static uint32_t number;
    df_str text;
    batch b;
    size_t size;
    df_str_init(&text, &df_mem_system);
    df_str_put(&text, "#include \"shim.h\"\n");
    const char *prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    prelude = df_cuda_gemm_prelude(&size);
    df_str_putn(&text, prelude, size);
    bool good = true;
    for (uint32_t i = 0; i < n_subjects; i++) good &= put_text(&s[i], &text);
    put_table(s, n_subjects, &text);
    good = good && batch_build_text(&b, &tools, &text, number++);
    n.faults += !good;
    for (uint32_t i = 0; i < n_subjects; i++) {
        if (good) run(&b, &s[i]);
        if (s[i].has_epilogue) random_run_end(&s[i].g, &s[i].r);
        product_end(&s[i].p);
    }
    if (good) batch_close(&b);
    df_str_finish(&text);
}

static void check_random(subject *s, uint64_t seed, uint32_t all)
{
    for (uint32_t done = 0; done < all && (done == 0 || test_time_left(0.6));) {
        const uint32_t here = all - done < IN_BATCH ? all - done : IN_BATCH;
        make_tiny(&s[0], seed + done, 0);
        for (uint32_t i = 1; i < here; i++) make_random(&s[i], seed + done + i, i);
        check_batch(s, here);
        done += here;
    }
}

static void check_programs(subject *s, const char *const *files, int n_files)
{
    programs p;
    uint32_t here = 0;
    programs_read(&p, files, n_files);
    for (uint32_t i = 0; i < p.n_plans; i++)
        for (uint32_t j = 0; j < p.plan[i]->n_segs; j++) {
            const df_seg *const seg = &p.plan[i]->segs[j];
            if (seg->kind != DF_SEG_MATMUL || seg->kernel.i == DF_NONE) continue;
            if (here == 0 && n.programs > 0 && !test_time_left(1)) continue;
            n.programs++;
            here += make_fused(&s[here], p.plan[i], seg, i * 100 + j, here);
            if (here < IN_BATCH) continue;
            check_batch(s, here);
            here = 0;
        }
    if (here > 0) check_batch(s, here);
    programs_finish(&p);
}

/* ---- choices that no small product shows ---- */

static void expect(bool holds, const char *what)
{
    if (!holds) fault("choice", what, "does not hold");
}

static void check_choices(void)
{
    random_kernel g;
    random_kernel_make(&g, 1, DF_MODE_MAP, false);
    g.k.n_axes = 2;
    g.k.role[0] = DF_AXIS_OUTER;
    g.k.role[1] = DF_AXIS_INNER;
    char *ptr[RANDOM_ACCESSES] = { NULL };
    int64_t stride[RANDOM_ACCESSES * 2] = { 0 }, base[RANDOM_ACCESSES] = { 0 };
    int64_t extent[2] = { 1 << 15, 1 << 14 };
    uint64_t num[RANDOM_NUMS] = { 0 };
    df_kargs a = { .ptr = ptr, .stride = stride, .base = base, .extent = extent, .num = num };
    for (uint32_t i = 0; i < g.k.n_access; i++) g.access[i].step[0] = DF_STEP_ANY;
    df_cuda_gemm_job j = { .dtype = DEFT_F32,
                           .a_dtype = DEFT_F32,
                           .b_dtype = DEFT_F32,
                           .m = extent[0],
                           .n = extent[1],
                           .k = 64,
                           .a = 256,
                           .b = 256,
                           .a_row = 64,
                           .a_col = 1,
                           .b_row = extent[1],
                           .b_col = 1,
                           .epilogue = &g.k,
                           .args = &a };
    df_cuda_gemm p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(p.way == DF_CUDA_GEMM_OURS && p.fused && p.c_bytes == 0, "fused");
    expect(p.variant.flags & DF_CUDA_NARROW, "narrow");
    expect(p.variant.tile == 0 && p.n_blocks == 256 * 128, "the largest tile for much work");
    expect(p.variant.a == DF_CUDA_READ_WIDE_K && p.variant.b == DF_CUDA_READ_WIDE_C, "wide reads");
    j.b_dtype = DEFT_F16;
    j.a = j.b = 8;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(p.variant.a == DF_CUDA_READ_ALONG_K && p.variant.b == DF_CUDA_READ_WIDE_C,
           "four halves are 8 bytes");
    expect(p.variant.b_dtype == DEFT_F16 && p.variant.a_dtype == DEFT_F32, "what B lies there as");
    j.a_dtype = DEFT_F16;
    j.mma = true;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(!(p.variant.flags & DF_CUDA_GEMM_MMA), "strict sums are chains");
    j.fast = true;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(p.variant.flags & DF_CUDA_GEMM_MMA && p.n_blocks == 256 * 128, "by tensor cores");
    expect(p.variant.a == DF_CUDA_READ_ALONG_K, "eight halves are 16 bytes");
    j.a = 16;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(p.variant.a == DF_CUDA_READ_WIDE_K, "and lie there");
    j.a_dtype = DEFT_BF16;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(!(p.variant.flags & DF_CUDA_GEMM_MMA), "of one dtype");
    j.a_dtype = j.b_dtype = DEFT_F32;
    stride[2 * (g.k.n_access - 1)] = 1 << 20;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(!(p.variant.flags & DF_CUDA_NARROW), "what lies far apart is not narrow");
    g.k.n_num = 600;
    p = df_cuda_gemm_choose(&j, 100, NULL);
    expect(!p.fused && p.c_bytes == j.m * j.n * 4, "more words than go by value: C in memory");
    expect(p.variant.flags == (DF_CUDA_GEMM_STORE | DF_CUDA_WIDE), "stored, 16 bytes at a time");
    j.n = 0;
    expect(df_cuda_gemm_choose(&j, 100, NULL).way == DF_CUDA_GEMM_NOTHING, "nothing to do");
}

int main(int argc, char **argv)
{
    const bool quick = argc > 3 && strcmp(argv[3], "--quick") == 0;
    if (argc < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    tools = (batch_tools){ .compiler = argv[1],
                           .shim = argv[2],
                           .folder = "/tmp/deft-shim-XXXXXX",
                           .runs_briefly = true };
    if (!mkdtemp(tools.folder)) return 2;
    subject *const s = calloc(IN_BATCH, sizeof *s);
    if (!s) return 2;
    check_random(s, quick ? 200000 : 1, quick ? 48 : 360);
    if (argc > 3 + quick)
        check_programs(s, (const char *const *)argv + 3 + quick, argc - 3 - quick);
    check_choices();
    free(s);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n.faults == 0 && system(command) != 0) n.faults++;
    printf(
        "%ld products (%ld with epilogues, %ld of them of programs; %ld of halves), %ld launches "
        "(tiles",
        n.products, n.epilogues, n.programs, n.halves, n.launches);
    for (int i = 0; i < DF_CUDA_N_TILES; i++) printf(" %ld", n.tile[i]);
    printf("; %ld by tensor cores; %ld read A and %ld write C 16 bytes at a time), %ld faults\n",
           n.mma, n.wide[0], n.wide[1], n.faults);
    return n.faults == 0 ? 0 : 1;
}
