/* SPDX-License-Identifier: Apache-2.0
 *
 * How near is a GPU to what its memory allows? Memory-bound programs, whole calls back to back,
 * from 1 K to 256 M elements, as a share of the speed at which the driver copies as many bytes from
 * one place on the GPU to another (read and written bytes both count). Then, with --peers, single
 * operations beside PyTorch's, by its own events; whole training steps are `train`'s.
 *
 * Runs on DEFT_CUDA(0). Where there is no GPU it says so and has no rows.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench.h"
#include "jit_cuda/driver/driver.h"
#include "peer.h"

enum { ROUNDS = 15, ROUNDS_QUICK = 3, COLUMNS = 1024, MAX_INPUTS = 4 };
static const double turn_seconds = 0.015, turn_seconds_quick = 0.005;
static const double copy_share = 0.9, small_slower = 2; /* goals: from 16 M elements; below */
static const int64_t large = 16 << 20;

static const int64_t sizes[] = { 1 << 10,  16 << 10, 256 << 10, 4 << 20,
                                 16 << 20, 64 << 20, 256 << 20 };

typedef struct gpu {
    deft_runtime *rt;
    deft_ctx *cx;
    df_driver *driver;
    df_cu_device device;
    df_cu_ctx primary;
    df_cu_stream stream;
} gpu;

typedef struct state {
    gpu *g;
    deft_tensor *t[MAX_INPUTS]; /* kept */
    int64_t n;
    df_cu_ptr from, to; /* of the copy */
    size_t bytes;
} state;

typedef struct gpu_case {
    const char *name;
    int n_in;
    double bytes_per_element; /* that have to be moved */
    bool rows;                /* inputs are [n / COLUMNS, COLUMNS] */
    void (*run)(const state *s);
} gpu_case;

/* ---- programs ---- */

static void eval1(const state *s, deft_scope scope, deft_tensor *t)
{
    bench_must(s->g->cx, deft_eval(&t, 1), "eval");
    bench_must(s->g->cx, deft_scope_end(scope), "scope_end");
}

static void gelu(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_gelu(s->t[0]));
}

static void fma3(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_add(deft_mul(s->t[0], s->t[1]), s->t[2]));
}

static void sum(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_sum(s->t[0], DEFT_ALL_AXES, 0));
}

static void softmax(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_softmax(s->t[0], 1));
}

static void layer_norm(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_layer_norm(s->t[0], 1, NULL, NULL, 1e-5));
}

static void column_sums(const state *s)
{
    const deft_scope scope = deft_scope_begin(s->g->cx);
    eval1(s, scope, deft_sum(s->t[0], DEFT_AXES(0), 0));
}

static void adam(const state *s)
{
    const deft_scope scope = deft_step_begin(s->g->cx);
    deft_tensor *p = s->t[0], *m = s->t[1], *v = s->t[2], *g = s->t[3];
    deft_assign(m, deft_lerp(m, g, 0.1));
    deft_assign(v, deft_lerp(v, deft_square(g), 0.001));
    deft_tensor *den = deft_add(deft_sqrt(deft_div(v, 0.5)), 1e-8);
    deft_assign(p, deft_sub(p, deft_mul(deft_div(m, den), 0.01)));
    bench_must(s->g->cx, deft_step_end(scope), "step_end");
}

static const gpu_case cases[] = {
    { "gelu", 1, 8, false, gelu },      { "a * b + c", 3, 16, false, fma3 },
    { "sum", 1, 4, false, sum },        { "column sums", 1, 4, true, column_sums },
    { "softmax", 1, 8, true, softmax }, { "layer norm", 1, 8, true, layer_norm },
    { "adam", 4, 28, false, adam },
};

/* ---- the GPU ---- */

static void must_driver(const gpu *g, df_cu_result r, const char *what)
{
    df_diag d = { 0 };
    if (r == 0) return;
    (void)df_driver_fail(g->driver, &d, r, "%s", what);
    fprintf(stderr, "gpu: %s\n", d.text);
    exit(1);
}

/* false: there is none, which is told. */
static bool open_gpu(gpu *g)
{
    char why[512];
    df_diag d = { 0 };
    const deft_ctx_options o = { .size = sizeof o, .numerics = DEFT_FAST, .device = DEFT_CUDA(0) };
    g->rt = bench_runtime(0, DEFT_TIER_AUTO, 0);
    if (deft_device_describe(g->rt, DEFT_CUDA(0), why, sizeof why) != DEFT_OK ||
        df_driver_open(&d, &df_mem_system, NULL, &g->driver) != DEFT_OK) {
        fprintf(stderr, "gpu: not measured: %s\n", *d.text ? d.text : why);
        deft_runtime_destroy(&g->rt);
        return false;
    }
    fprintf(stderr, "%s\n", why);
    if (deft_ctx_create(g->rt, &o, &g->cx) != DEFT_OK) exit(1);
    g->stream = deft_stream(g->cx, DEFT_CUDA(0));
    must_driver(g, g->driver->device_get(&g->device, 0), "cuDeviceGet");
    must_driver(g, g->driver->ctx_retain(&g->primary, g->device), "cuDevicePrimaryCtxRetain");
    must_driver(g, g->driver->ctx_push(g->primary), "cuCtxPushCurrent");
    return true;
}

static void close_gpu(gpu *g)
{
    df_cu_ctx before;
    deft_ctx_destroy(&g->cx);
    (void)g->driver->ctx_pop(&before);
    (void)g->driver->ctx_release(g->device);
    df_driver_close(&g->driver);
    deft_runtime_destroy(&g->rt);
}

static void copy(const state *s)
{
    must_driver(s->g, s->g->driver->copy(s->to, s->from, s->bytes, s->g->stream), "cuMemcpyDtoD");
}

/* ---- timing ---- */

/* Seconds of a call, of `calls` back to back: the host may run ahead of the GPU. */
static double turn(const state *s, void (*f)(const state *s), int calls)
{
    bench_must(s->g->cx, deft_wait(s->g->cx), "wait");
    const double start = bench_now();
    for (int i = 0; i < calls; i++) f(s);
    bench_must(s->g->cx, deft_wait(s->g->cx), "wait");
    return (bench_now() - start) / calls;
}

static int calls_for(const state *s, void (*f)(const state *s), double seconds)
{
    (void)turn(s, f, 3);
    const double one = turn(s, f, 10);
    return one > seconds ? 1 : (int)(seconds / one);
}

static void measure(const bench *b, const state *s, void (*f)(const state *s), double *ours,
                    double *copied)
{
    double a[ROUNDS], c[ROUNDS];
    const int rounds = b->quick ? ROUNDS_QUICK : ROUNDS;
    const double seconds = b->quick ? turn_seconds_quick : turn_seconds;
    const int n_ours = calls_for(s, f, seconds), n_copies = calls_for(s, copy, seconds);
    for (int i = 0; i < rounds; i++) {
        a[i] = turn(s, f, n_ours);
        c[i] = turn(s, copy, n_copies);
    }
    *ours = bench_median(a, (size_t)rounds);
    *copied = bench_median(c, (size_t)rounds);
}

/* ---- rows ---- */

static bool fits(const gpu *g, const gpu_case *k, int64_t n)
{
    size_t free_bytes = 0, total = 0;
    must_driver(g, g->driver->mem_info(&free_bytes, &total), "cuMemGetInfo");
    return (k->bytes_per_element + 4.0 * k->n_in) * 2 * (double)n < 0.8 * (double)free_bytes;
}

static void one_case(bench *b, gpu *g, const gpu_case *k, int64_t n)
{
    char label[64];
    double ours, copied;
    const bool small = n < 1 << 20;
    snprintf(label, sizeof label, "%s, %lld %s", k->name, (long long)(small ? n >> 10 : n >> 20),
             small ? "K" : "M");
    if (!bench_wants(b, label)) return;
    if (!fits(g, k, n)) {
        fprintf(stderr, "gpu: %s: no room\n", label);
        return;
    }
    state s = { .g = g, .n = n };
    const deft_scope scope = deft_scope_begin(g->cx);
    const deft_shape shape = k->rows ? DEFT_SHAPE(n / COLUMNS, COLUMNS) : DEFT_SHAPE(n);
    deft_rng rng = { .seed = 1 };
    for (int i = 0; i < k->n_in; i++)
        s.t[i] = deft_keep(deft_uniform(g->cx, &rng, shape, DEFT_F32, 0.1, 1));
    bench_must(g->cx, deft_eval(s.t, (size_t)k->n_in), "eval");
    bench_must(g->cx, deft_scope_end(scope), "scope_end");
    const double bytes = k->bytes_per_element * (double)n;
    s.bytes = (size_t)bytes / 2;
    must_driver(g, g->driver->mem_alloc(&s.from, s.bytes), "cuMemAlloc");
    must_driver(g, g->driver->mem_alloc(&s.to, s.bytes), "cuMemAlloc");
    measure(b, &s, k->run, &ours, &copied);
    if (n >= large)
        bench_row(b, label, bytes / ours * 1e-9, "GB/s", "copy on the GPU", bytes / copied * 1e-9,
                  BENCH_RATIO_AT_LEAST, copy_share);
    else
        bench_row(b, label, ours * 1e6, "us", "copy on the GPU", copied * 1e6, BENCH_RATIO_AT_MOST,
                  small_slower);
    (void)g->driver->mem_free(s.from);
    (void)g->driver->mem_free(s.to);
    for (int i = 0; i < k->n_in; i++) deft_drop(&s.t[i]);
    deft_runtime_trim(g->rt);
}

/* ---- beside PyTorch ---- */

typedef struct op_case {
    const char *line;  /* as bench/peers/ops.py has it */
    int64_t extent[4]; /* of its operands */
    deft_tensor *(*make)(const struct op_case *k, deft_tensor *const *t);
    int n_in;
    deft_dtype dtype;
} op_case;

typedef struct op_run {
    gpu *g;
    const op_case *k;
    deft_tensor *t[MAX_INPUTS];
} op_run;

static deft_tensor *op_softmax(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_softmax(t[0], 1);
}

static deft_tensor *op_layer_norm(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_layer_norm(t[0], 1, t[1], t[2], 1e-5);
}

static deft_tensor *op_matmul(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_matmul(t[0], t[1]);
}

static deft_tensor *op_matmul_f32(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_matmul(deft_cast(t[0], DEFT_F32), deft_cast(t[1], DEFT_F32));
}

static deft_tensor *op_matmul_gelu(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_gelu(deft_add(deft_matmul(t[0], t[1]), t[2]));
}

static deft_tensor *op_attention(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    return deft_attention(t[0], t[1], t[2], DEFT_ATTENTION(.is_causal = true));
}

static deft_tensor *op_attention_grad(const op_case *k, deft_tensor *const *t)
{
    (void)k;
    deft_tensor *out = deft_attention(t[0], t[1], t[2], DEFT_ATTENTION(.is_causal = true));
    deft_tensor *made[3] = { NULL, NULL, NULL }, *wrt[3] = { t[0], t[1], t[2] }, *seed = t[3];
    deft_grad(&out, &seed, 1, wrt, 3, NULL, made);
    return deft_concat(made, 3, 0);
}

static const op_case ops[] = {
    { "softmax 8192 8192", { 8192, 8192 }, op_softmax, 1, DEFT_F32 },
    { "layer_norm 8192 8192", { 8192, 8192 }, op_layer_norm, 3, DEFT_F32 },
    { "matmul 512 512 512", { 512, 512, 512 }, op_matmul, 2, DEFT_F32 },
    { "matmul 2048 2048 2048", { 2048, 2048, 2048 }, op_matmul, 2, DEFT_F32 },
    { "matmul 8192 8192 8192", { 8192, 8192, 8192 }, op_matmul, 2, DEFT_F32 },
    { "matmul_gelu 4096 4096 1024", { 4096, 4096, 1024 }, op_matmul_gelu, 3, DEFT_F32 },
    { "matmul_f16 2048 2048 2048", { 2048, 2048, 2048 }, op_matmul, 2, DEFT_F16 },
    { "matmul_f16 8192 8192 8192", { 8192, 8192, 8192 }, op_matmul, 2, DEFT_F16 },
    { "matmul_bf16 8192 8192 8192", { 8192, 8192, 8192 }, op_matmul, 2, DEFT_BF16 },
    { "matmul_f16_f32 8192 8192 8192", { 8192, 8192, 8192 }, op_matmul_f32, 2, DEFT_F16 },
    { "attention 8 12 1024 64", { 8, 12, 1024, 64 }, op_attention, 3, DEFT_F16 },
    { "attention_grad 8 12 1024 64", { 8, 12, 1024, 64 }, op_attention_grad, 4, DEFT_F16 },
};

static deft_shape operand_shape(const op_case *k, int i)
{
    const int64_t *const e = k->extent;
    if (k->make == op_layer_norm && i > 0) return DEFT_SHAPE(e[1]);
    if (k->make == op_matmul || k->make == op_matmul_f32 || k->make == op_matmul_gelu)
        return i == 0 ? DEFT_SHAPE(e[0], e[2]) : i == 1 ? DEFT_SHAPE(e[2], e[1]) : DEFT_SHAPE(e[1]);
    return k->n_in >= 3 && k->dtype == DEFT_F16 ? DEFT_SHAPE(e[0], e[1], e[2], e[3])
                                                : DEFT_SHAPE(e[0], e[1]);
}

static void run_op(void *user)
{
    const op_run *const r = user;
    const deft_scope scope = deft_scope_begin(r->g->cx);
    deft_tensor *t = r->k->make(r->k, r->t);
    bench_must(r->g->cx, deft_eval(&t, 1), r->k->line);
    bench_must(r->g->cx, deft_scope_end(scope), r->k->line);
}

static double op_seconds(op_run *r, double seconds)
{
    double a[10];
    gpu *const g = r->g;
    for (int i = 0; i < 3; i++) run_op(r);
    bench_must(g->cx, deft_wait(g->cx), "wait");
    double start = bench_now();
    for (int i = 0; i < 3; i++) run_op(r);
    bench_must(g->cx, deft_wait(g->cx), "wait");
    const double one = (bench_now() - start) / 3;
    const int calls = one * 10 > seconds ? 1 : (int)(seconds / 10 / one);
    for (int i = 0; i < 10; i++) {
        start = bench_now();
        for (int j = 0; j < calls; j++) run_op(r);
        bench_must(g->cx, deft_wait(g->cx), "wait");
        a[i] = (bench_now() - start) / calls;
    }
    return bench_median(a, 10);
}

static void beside_torch(bench *b, gpu *g)
{
    static const char *const modes[] = { "eager", "compiled" };
    char python[] = "python3", script[] = BENCH_SOURCE_ROOT "/bench/peers/ops.py";
    peer p;
    peer_open(&p, "torch", (char *const[]){ python, script, NULL });
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const op_case *const k = &ops[i];
        const double seconds = b->quick ? 0.05 : 0.5;
        op_run r = { .g = g, .k = k };
        if (!bench_wants(b, k->line)) continue;
        deft_rng rng = { .seed = 1 };
        const deft_scope scope = deft_scope_begin(g->cx);
        for (int j = 0; j < k->n_in; j++)
            r.t[j] = deft_keep(
                deft_cast(deft_normal(g->cx, &rng, operand_shape(k, j), DEFT_F32, 0, 1), k->dtype));
        bench_must(g->cx, deft_eval(r.t, (size_t)k->n_in), k->line);
        bench_must(g->cx, deft_scope_end(scope), k->line);
        const double ours = op_seconds(&r, seconds) * 1e6;
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            char label[96], reference[64], name[32], numbers[64];
            double its = 0;
            sscanf(k->line, "%31s %63[^\n]", name, numbers);
            snprintf(label, sizeof label, "%s", k->line);
            snprintf(reference, sizeof reference, "torch %s %s", p.version, modes[m]);
            if (peer_asked(&p, &its, "time %s %s %g %s", name, modes[m], seconds, numbers))
                bench_row(b, label, ours, "us", reference, its * 1e6, BENCH_RATIO_AT_MOST, 1);
            else
                bench_row_without(b, label, ours, "us", reference, p.why, 1);
        }
        for (int j = 0; j < k->n_in; j++) deft_drop(&r.t[j]);
        deft_runtime_trim(g->rt);
    }
    peer_close(&p);
}

void bench_gpu(bench *b)
{
    gpu g = { 0 };
    if (!open_gpu(&g)) return;
    void (*const before)(int) = signal(SIGPIPE, SIG_IGN); /* a peer's death is not ours */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            if (!b->quick || sizes[j] <= 256 << 10) one_case(b, &g, &cases[i], sizes[j]);
    if (b->peers) beside_torch(b, &g);
    signal(SIGPIPE, before);
    close_gpu(&g);
}
