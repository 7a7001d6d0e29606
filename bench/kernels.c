/* SPDX-License-Identifier: Apache-2.0
 *
 * Is fused code as fast as C written by hand for the purpose? Nine kernels, strict against strict C
 * and fast against fast C (bench/ref, the faster of the compilers found), on the same threads:
 * kernel time alone on one thread at 4 K and 256 K elements; the whole call, recording included, on
 * all threads at 1 M and 16 M.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_kernels.h"
#include "lazy/core/lazy.h"
#include "runtime/cpu.h"

enum { COLS = 256, ITERATIONS = 50, MAX_ARRAYS = 8 };

typedef struct state {
    deft_ctx *cx;
    int64_t n;    /* elements (pairs for N-body) */
    int64_t side; /* of the square cases */
    float *in[MAX_ARRAYS], *out[MAX_ARRAYS];
    int32_t *counts;
    deft_tensor *t[MAX_ARRAYS]; /* kept, on in[] */
    const ref_kernels *ref;
    df_pool *pool;
    uint32_t threads;
    float result;
    int flip;
} state;

typedef struct kernel_case {
    const char *name;
    int n_in;
    void (*prepare)(state *s); /* makes t[] from in[]; NULL: 1-d of n */
    void (*run)(state *s);
    int64_t (*units)(const state *s); /* what ref splits: elements, rows or blocks */
    void (*ref)(state *s, int64_t begin, int64_t end);
    void (*ref_finish)(state *s);
} kernel_case;

static void must(state *s, deft_status st)
{
    bench_must(s->cx, st, "kernels");
}

static int64_t by_element(const state *s)
{
    return s->n;
}

static int64_t by_row(const state *s)
{
    return s->n / COLS;
}

static int64_t by_block(const state *s)
{
    return (s->n + REF_BLOCK - 1) / REF_BLOCK;
}

static int64_t by_side(const state *s)
{
    return s->side;
}

static void eval1(state *s, const deft_scope scope, deft_tensor *t)
{
    must(s, deft_eval(&t, 1));
    must(s, deft_scope_end(scope));
}

/* ---- the nine ---- */

static void gelu(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    eval1(s, scope, deft_gelu(s->t[0]));
}

static void gelu_ref(state *s, int64_t b, int64_t e)
{
    s->ref->gelu(s->out[0], s->in[0], b, e);
}

#define RATE 0.02f
#define VOL 0.3f

static void black_scholes(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *spot = s->t[0], *k = s->t[1], *t = s->t[2];
    deft_tensor *w = deft_mul(deft_sqrt(t), VOL);
    deft_tensor *d1 =
        deft_div(deft_add(deft_log(deft_div(spot, k)), deft_mul(t, RATE + VOL * VOL / 2)), w);
    deft_tensor *d2 = deft_sub(d1, w);
    deft_tensor *n1 = deft_mul(deft_add(deft_erf(deft_mul(d1, 0.70710678f)), 1), 0.5);
    deft_tensor *n2 = deft_mul(deft_add(deft_erf(deft_mul(d2, 0.70710678f)), 1), 0.5);
    deft_tensor *disc = deft_mul(k, deft_exp(deft_mul(t, -RATE)));
    deft_tensor *both[2] = { deft_sub(deft_mul(spot, n1), deft_mul(disc, n2)),
                             deft_sub(deft_mul(disc, deft_sub(deft_num(s->cx, 1), n2)),
                                      deft_mul(spot, deft_sub(deft_num(s->cx, 1), n1))) };
    must(s, deft_eval(both, 2));
    must(s, deft_scope_end(scope));
}

static void black_scholes_ref(state *s, int64_t b, int64_t e)
{
    s->ref->black_scholes(s->out[0], s->out[1], s->in[0], s->in[1], s->in[2], RATE, VOL,
                          RATE + VOL * VOL / 2, b, e);
}

static void adam(state *s)
{
    const deft_scope scope = deft_step_begin(s->cx);
    deft_tensor *p = s->t[0], *m = s->t[1], *v = s->t[2], *g = s->t[3];
    deft_assign(m, deft_lerp(m, g, 0.1));
    deft_assign(v, deft_lerp(v, deft_square(g), 0.001));
    deft_tensor *den = deft_add(deft_sqrt(deft_div(v, 0.5)), 1e-8);
    deft_assign(p, deft_sub(p, deft_mul(deft_div(m, den), 0.01)));
    must(s, deft_step_end(scope));
}

static void adam_ref(state *s, int64_t b, int64_t e)
{
    s->ref->adam(s->out[0], s->out[1], s->out[2], s->in[3], 0.1f, 0.001f, 0.5f, 0.01f, 1e-8f, b, e);
}

static void mse(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    eval1(s, scope, deft_mean(deft_square(deft_sub(s->t[0], s->t[1])), DEFT_ALL_AXES, 0));
}

static void mse_ref(state *s, int64_t b, int64_t e)
{
    s->ref->mse_blocks(s->out[0], s->in[0], s->in[1], s->n, b, e);
}

static void mse_finish(state *s)
{
    s->result = s->ref->join(s->out[0], by_block(s)) / (float)s->n;
}

static void rows_prepare(state *s)
{
    const deft_shape shape = DEFT_SHAPE(s->n / COLS, COLS);
    s->t[0] = deft_wrap(s->cx, shape, DEFT_F32, s->in[0], (size_t)s->n * 4, NULL);
    for (int i = 1; i < 3; i++)
        s->t[i] = deft_wrap(s->cx, DEFT_SHAPE(COLS), DEFT_F32, s->in[i], COLS * 4, NULL);
}

static void softmax(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    eval1(s, scope, deft_softmax(s->t[0], -1));
}

static void softmax_ref(state *s, int64_t b, int64_t e)
{
    s->ref->softmax(s->out[0], s->in[0], COLS, b, e);
}

static void layer_norm(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    eval1(s, scope, deft_layer_norm(s->t[0], 1, s->t[1], s->t[2], 1e-5));
}

static void layer_norm_ref(state *s, int64_t b, int64_t e)
{
    s->ref->layer_norm(s->out[0], s->in[0], s->in[1], s->in[2], 1e-5f, COLS, b, e);
}

static void square_prepare(state *s)
{
    s->t[0] = deft_keep(
        deft_from(s->cx, DEFT_SHAPE(s->side, s->side), DEFT_F32, s->in[0], (size_t)s->n * 4));
}

static deft_tensor *at(deft_tensor *u, int i, int j)
{
    return deft_slice(u, DEFT_R(1 + i, i == 1 ? DEFT_END : -1 + i),
                      DEFT_R(1 + j, j == 1 ? DEFT_END : -1 + j));
}

static void heat(state *s)
{
    const deft_scope scope = deft_step_begin(s->cx);
    deft_tensor *u = s->t[0], *c = at(u, 0, 0);
    deft_tensor *sum =
        deft_add(deft_add(at(u, -1, 0), at(u, 1, 0)), deft_add(at(u, 0, -1), at(u, 0, 1)));
    deft_assign(c, deft_add(c, deft_mul(deft_sub(sum, deft_mul(c, 4)), 0.2)));
    must(s, deft_step_end(scope));
}

static void heat_ref(state *s, int64_t b, int64_t e)
{
    float *const from = s->out[s->flip], *const to = s->out[!s->flip];
    if (b < 1) b = 1;
    if (e > s->side - 1) e = s->side - 1;
    if (b < e) s->ref->heat(to, from, 0.2f, s->side, b, e);
}

static void heat_finish(state *s)
{
    s->flip = !s->flip;
}

static void bodies_prepare(state *s)
{
    for (int i = 0; i < 4; i++)
        s->t[i] =
            deft_wrap(s->cx, DEFT_SHAPE(s->side), DEFT_F32, s->in[i], (size_t)s->side * 4, NULL);
}

static void nbody(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *d[3], *a[3];
    for (int k = 0; k < 3; k++)
        d[k] = deft_sub(deft_unsqueeze(s->t[k], 0), deft_unsqueeze(s->t[k], 1));
    deft_tensor *r2 = deft_add(
        deft_add(deft_add(deft_mul(d[0], d[0]), deft_mul(d[1], d[1])), deft_mul(d[2], d[2])), 1e-3);
    deft_tensor *inv = deft_div(deft_num(s->cx, 1), deft_sqrt(r2));
    deft_tensor *w = deft_mul(deft_unsqueeze(s->t[3], 0), deft_mul(deft_mul(inv, inv), inv));
    for (int k = 0; k < 3; k++) a[k] = deft_sum(deft_mul(d[k], w), DEFT_AXES(1), 0);
    must(s, deft_eval(a, 3));
    must(s, deft_scope_end(scope));
}

static void nbody_ref(state *s, int64_t b, int64_t e)
{
    s->ref->nbody(s->out[0], s->out[1], s->out[2], s->in[0], s->in[1], s->in[2], s->in[3], 1e-3f,
                  s->side, b, e);
}

static void points_prepare(state *s)
{
    for (int64_t i = 0; i < s->side; i++) {
        s->in[0][i] = -2 + 3 * (float)i / (float)s->side;
        s->in[1][i] = -1.5f + 3 * (float)i / (float)s->side;
    }
    s->t[0] = deft_wrap(s->cx, DEFT_SHAPE(s->side), DEFT_F32, s->in[0], (size_t)s->side * 4, NULL);
    s->t[1] =
        deft_wrap(s->cx, DEFT_SHAPE(s->side, 1), DEFT_F32, s->in[1], (size_t)s->side * 4, NULL);
}

static void mandelbrot(state *s)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    const deft_shape shape = DEFT_SHAPE(s->side, s->side);
    deft_tensor *x = deft_zeros(s->cx, shape, DEFT_F32), *y = x;
    deft_tensor *count = deft_zeros(s->cx, shape, DEFT_I32);
    for (int i = 0; i < ITERATIONS; i++) {
        deft_tensor *xx = deft_mul(x, x), *yy = deft_mul(y, y);
        deft_tensor *alive = deft_le(deft_add(xx, yy), 4);
        count = deft_add(count, deft_cast(alive, DEFT_I32));
        deft_tensor *nx = deft_add(deft_sub(xx, yy), s->t[0]);
        deft_tensor *ny = deft_add(deft_mul(deft_mul(x, y), 2), s->t[1]);
        x = deft_where(alive, nx, x);
        y = deft_where(alive, ny, y);
    }
    eval1(s, scope, count);
}

static void mandelbrot_ref(state *s, int64_t b, int64_t e)
{
    s->ref->mandelbrot(s->counts, s->in[0], s->in[1], ITERATIONS, s->side, b, e);
}

static const kernel_case cases[] = {
    { "gelu", 1, NULL, gelu, by_element, gelu_ref, NULL },
    { "black-scholes", 3, NULL, black_scholes, by_element, black_scholes_ref, NULL },
    { "adam", 4, NULL, adam, by_element, adam_ref, NULL },
    { "mse", 2, NULL, mse, by_block, mse_ref, mse_finish },
    { "softmax", 1, rows_prepare, softmax, by_row, softmax_ref, NULL },
    { "layer norm", 3, rows_prepare, layer_norm, by_row, layer_norm_ref, NULL },
    { "heat", 1, square_prepare, heat, by_side, heat_ref, heat_finish },
    { "n-body", 4, bodies_prepare, nbody, by_side, nbody_ref, NULL },
    { "mandelbrot", 2, points_prepare, mandelbrot, by_side, mandelbrot_ref, NULL },
};

/* ---- timing ---- */

typedef struct slice_job {
    state *s;
    const kernel_case *k;
    int64_t units;
    uint32_t n;
} slice_job;

static void ref_slice(void *user, uint32_t i, uint32_t thread)
{
    const slice_job *const j = user;
    (void)thread;
    j->k->ref(j->s, j->units * i / j->n, j->units * (i + 1) / j->n);
}

static void run_ref(state *s, const kernel_case *k)
{
    slice_job job = { s, k, k->units(s), s->threads };
    if (s->threads > 1 && job.units > 1)
        df_pool_run(s->pool, job.n, ref_slice, &job);
    else
        k->ref(s, 0, job.units);
    if (k->ref_finish) k->ref_finish(s);
}

static float *array(int64_t n)
{
    float *const p = aligned_alloc(64, ((size_t)n * 4 + 4095) / 64 * 64);
    if (!p) abort();
    for (int64_t i = 0; i < n; i++) p[i] = 0.1f + (float)(i * 7919 % 1000) / 1250;
    return p;
}

/* Runs that are not timed bring back what the others pushed out of the caches: a last-level cache
 * of today takes several passes to settle. */
#define SETTLE 0.02

/* Seconds of one run: of its kernels alone, or of the whole call. */
static double timed_run(state *s, const kernel_case *k, bool kernels_only, int calls)
{
    const double until = bench_now() + (kernels_only ? 0 : SETTLE);
    do k->run(s);
    while (bench_now() < until);
    const deft_stats before = bench_stats(s->cx);
    const double t = bench_now();
    for (int i = 0; i < calls; i++) k->run(s);
    const double whole = bench_now() - t;
    const deft_stats after = bench_stats(s->cx);
    return (kernels_only ? (double)(after.ns_kernels - before.ns_kernels) * 1e-9 : whole) / calls;
}

/* The same of the reference. The times of our kernels include the two readings of the clock around
 * each launch, which count in a kernel of 0.1 us. So each call of the reference is timed alone. */
static double timed_ref(state *s, const kernel_case *k, bool kernels_only, int calls)
{
    const double until = bench_now() + (kernels_only ? 0 : SETTLE);
    do run_ref(s, k);
    while (bench_now() < until);
    double sum = 0;
    const double t = bench_now();
    for (int i = 0; i < calls; i++) {
        const double start = kernels_only ? bench_now() : 0;
        run_ref(s, k);
        sum += kernels_only ? bench_now() - start : 0;
    }
    return (kernels_only ? sum : bench_now() - t) / calls;
}

static void one_case(bench *b, deft_runtime *rt, df_pool *pool, const kernel_case *k,
                     deft_numerics mode, int64_t n, const char *size, uint32_t threads)
{
    const bool kernels_only = n <= 1 << 18;
    char label[64], reference[64];
    snprintf(label, sizeof label, "%s %s %s %s", k->name, mode == DEFT_STRICT ? "strict" : "fast",
             size, kernels_only ? "kernel" : "call");
    if (!bench_wants(b, label)) return;
    state s = {
        .n = n, .side = (int64_t)llround(sqrt((double)n)), .pool = pool, .threads = threads
    };
    s.cx = bench_ctx(rt, mode);
    for (int i = 0; i < 4; i++) {
        s.in[i] = array(n);
        s.out[i] = array(n);
    }
    s.counts = (int32_t *)(void *)array(n);
    if (k->prepare)
        k->prepare(&s);
    else
        for (int i = 0; i < k->n_in; i++)
            s.t[i] = deft_keep(deft_from(s.cx, DEFT_SHAPE(n), DEFT_F32, s.in[i], (size_t)n * 4));
    if (!s.t[0]) bench_must(s.cx, deft_error(s.cx), k->name);

    for (int i = 0; i < 3; i++) k->run(&s);
    const double guess = timed_run(&s, k, false, 1);
    int calls = (int)((b->quick ? 0.001 : 0.01) / guess);
    if (calls < 1) calls = 1;
    const int rounds = b->quick ? 3 : guess > 0.05 ? 7 : 15;
    double ours[15], ref[8][15], best = INFINITY;
    const char *best_name = "none";
    for (int r = 0; r < rounds; r++) {
        ours[r] = timed_run(&s, k, kernels_only, calls);
        for (int i = 0; i < ref_n_tables && i < 8; i++) {
            if (ref_tables[i]->strict != (mode == DEFT_STRICT)) continue;
            s.ref = ref_tables[i];
            ref[i][r] = timed_ref(&s, k, kernels_only, calls);
        }
    }
    for (int i = 0; i < ref_n_tables && i < 8; i++) {
        if (ref_tables[i]->strict != (mode == DEFT_STRICT)) continue;
        const double t = bench_median(ref[i], (size_t)rounds);
        if (t < best) best = t, best_name = ref_tables[i]->name;
    }
    snprintf(reference, sizeof reference, "%s, us", best_name);
    bench_row(b, label, bench_median(ours, (size_t)rounds) * 1e6, "us", reference, best * 1e6,
              BENCH_RATIO_AT_MOST, 1.05);
    for (int i = 0; i < 4; i++) {
        free(s.in[i]);
        free(s.out[i]);
    }
    free(s.counts);
    deft_ctx_destroy(&s.cx);
}

void bench_kernels(bench *b)
{
    static const struct {
        int64_t n;
        const char *name;
    } sizes[] = { { 1 << 12, "4K" }, { 1 << 18, "256K" }, { 1 << 20, "1M" }, { 1 << 24, "16M" } };
    /* What AUTO comes to, without a wait for it. */
    deft_runtime *one = bench_runtime_with(1, DEFT_TIER_FULL, 1, 64);
    deft_runtime *all = bench_runtime_with(0, DEFT_TIER_FULL, 0, 64);
    df_pool *const pool = df_cpu_pool(all->dev); /* the reference runs on the same threads */
    const int n_sizes = b->quick ? 2 : 4;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int i = 0; i < n_sizes; i++) {
            const bool small = sizes[i].n <= 1 << 18;
            for (int mode = 0; mode < 2; mode++)
                one_case(b, small ? one : all, pool, &cases[k], (deft_numerics)mode, sizes[i].n,
                         sizes[i].name, small ? 1 : df_pool_threads(pool));
        }
    deft_runtime_destroy(&one);
    deft_runtime_destroy(&all);
}
