/* SPDX-License-Identifier: Apache-2.0
 *
 * What does code made for the launches at hand save (docs/replay.md, "Variants"), and what does
 * looking for it cost? Kernel times on one thread, of one program on two runtimes in turn: one
 * makes variants, one never does. The last rows are launches that vary, where there is nothing to
 * save: whole calls, since that is where looking takes place.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lazy/core/lazy.h"

enum { SIDE = 64, N = SIDE * SIDE, N_MOST = 1 << 20, AFTER = 64 };

typedef struct world {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *t[4]; /* kept */
    uint32_t turn;
} world;

typedef struct variant_case {
    const char *name;
    void (*prepare)(world *w);
    void (*run)(world *w);
    bool kernels_only;
    double goal; /* time with variants over without, at most */
} variant_case;

static void must(world *w, deft_status st)
{
    bench_must(w->cx, st, "variants");
}

static deft_tensor *filled(world *w, deft_shape shape, int64_t n)
{
    float *const v = malloc((size_t)n * 4);
    if (!v) abort();
    for (int64_t i = 0; i < n; i++) v[i] = 0.1f + (float)(i * 7919 % 1000) / 1250;
    deft_tensor *const t = deft_keep(deft_from(w->cx, shape, DEFT_F32, v, (size_t)n * 4));
    free(v);
    if (!t) must(w, deft_error(w->cx));
    return t;
}

static void eval1(world *w, const deft_scope scope, deft_tensor *t)
{
    must(w, deft_eval(&t, 1));
    must(w, deft_scope_end(scope));
}

/* Sizes in no order, from 1 to 64. */
static int64_t any_size(world *w)
{
    w->turn = w->turn * 1664525 + 1013904223;
    return 1 + (w->turn >> 26);
}

/* ---- cases ---- */

static void four_vectors(world *w)
{
    for (int i = 0; i < 4; i++) w->t[i] = filled(w, DEFT_SHAPE(N), N);
}

static void square(world *w)
{
    w->t[0] = filled(w, DEFT_SHAPE(SIDE, SIDE), N);
}

static void wide(world *w)
{
    w->t[0] = filled(w, DEFT_SHAPE(SIDE, N), SIDE * N);
}

static void large(world *w)
{
    w->t[0] = filled(w, DEFT_SHAPE(N_MOST), N_MOST);
}

static void image(world *w)
{
    w->t[0] = filled(w, DEFT_SHAPE(N_MOST / 1024, 1024), N_MOST);
}

static void adam(world *w)
{
    const deft_scope scope = deft_step_begin(w->cx);
    deft_tensor *p = w->t[0], *m = w->t[1], *v = w->t[2], *g = w->t[3];
    deft_assign(m, deft_lerp(m, g, 0.1));
    deft_assign(v, deft_lerp(v, deft_square(g), 0.001));
    deft_tensor *den = deft_add(deft_sqrt(deft_div(v, 0.5)), 1e-8);
    deft_assign(p, deft_sub(p, deft_mul(deft_div(m, den), 0.01)));
    must(w, deft_step_end(scope));
}

static void mse(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    eval1(w, scope, deft_mean(deft_square(deft_sub(w->t[0], w->t[1])), DEFT_ALL_AXES, 0));
}

static deft_tensor *at(deft_tensor *u, int i, int j)
{
    return deft_slice(u, DEFT_R(1 + i, i == 1 ? DEFT_END : -1 + i),
                      DEFT_R(1 + j, j == 1 ? DEFT_END : -1 + j));
}

static void heat(world *w)
{
    const deft_scope scope = deft_step_begin(w->cx);
    deft_tensor *u = w->t[0], *c = at(u, 0, 0);
    deft_tensor *sum =
        deft_add(deft_add(at(u, -1, 0), at(u, 1, 0)), deft_add(at(u, 0, -1), at(u, 0, 1)));
    deft_assign(c, deft_add(c, deft_mul(deft_sub(sum, deft_mul(c, 4)), 0.2)));
    must(w, deft_step_end(scope));
}

static void blur(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    deft_tensor *sum = NULL;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            deft_tensor *x = deft_mul(at(w->t[0], i, j), (i ? 1 : 2) * (j ? 1 : 2) / 16.);
            sum = sum ? deft_add(sum, x) : x;
        }
    eval1(w, scope, sum);
}

/* So many rows as it happens, of one length. */
static void row_norms(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    deft_tensor *x = deft_slice(w->t[0], DEFT_R(0, any_size(w)));
    eval1(w, scope, deft_sum(deft_square(x), DEFT_AXES(1), 0));
}

/* Rows of 64, 128, 192 or 256 elements. */
static void multiples(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    deft_tensor *x = deft_slice(w->t[0], DEFT_FULL, DEFT_R(0, 64 * (1 + any_size(w) % 4)));
    eval1(w, scope, deft_sum(deft_square(x), DEFT_AXES(1), 0));
}

static void unlike(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    eval1(w, scope, deft_exp(deft_slice(w->t[0], DEFT_R(0, any_size(w)))));
}

static void streams(world *w)
{
    const deft_scope scope = deft_scope_begin(w->cx);
    eval1(w, scope, deft_add(w->t[0], 1));
}

static const variant_case cases[] = {
    { "adam, 4096: extents, divisor 0.5", four_vectors, adam, true, 0.9 },
    { "mse, 4096: extents", four_vectors, mse, true, 1 },
    { "heat, 64 x 64: extents", square, heat, true, 0.95 },
    { "blur of 1 M elements: shared rows", image, blur, true, 0.95 },
    { "norms of 1 to 64 rows of 64: rows", square, row_norms, true, 1 },
    { "norms of rows of 64 to 256: multiples", wide, multiples, true, 1 },
    { "exp of 1 to 64 elements: none", four_vectors, unlike, false, 1.03 },
    { "add to 1 M elements: none", large, streams, false, 1.05 },
};

/* ---- timing ---- */

static void open_world(world *w, uint32_t after, const variant_case *c)
{
    *w = (world){ .turn = 1 };
    w->rt = bench_runtime_with(1, DEFT_TIER_FULL, c->kernels_only, after);
    w->cx = bench_ctx(w->rt, DEFT_STRICT);
    c->prepare(w);
    for (int i = 0; i < 3 * DF_VARIANT_AFTER * DF_NUMBERS_FACTOR; i++) {
        c->run(w);
        if ((c->prepare == large || c->prepare == image) && i == 2 * AFTER) break;
    }
}

static double timed(world *w, const variant_case *c, int calls)
{
    const deft_stats before = bench_stats(w->cx);
    const double start = bench_now();
    for (int i = 0; i < calls; i++) c->run(w);
    const double whole = bench_now() - start;
    const deft_stats after = bench_stats(w->cx);
    return (c->kernels_only ? (double)(after.ns_kernels - before.ns_kernels) * 1e-9 : whole) /
           calls;
}

static void one_case(bench *b, const variant_case *c)
{
    enum { MOST = 41 };
    world w[2];
    double t[2][MOST];
    if (!bench_wants(b, c->name)) return;
    for (int i = 0; i < 2; i++) open_world(&w[i], i ? UINT32_MAX : AFTER, c);
    const int rounds = b->quick ? 5 : MOST;
    int calls = (int)(0.004 / timed(&w[0], c, 10));
    if (calls < 1) calls = 1;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++) {
            w[i].turn = (uint32_t)r; /* equal sizes on both sides */
            t[i][r] = timed(&w[i], c, calls);
        }
    bench_row(b, c->name, bench_median(t[0], (size_t)rounds) * 1e6, "us", "general code, us",
              bench_median(t[1], (size_t)rounds) * 1e6, BENCH_RATIO_AT_MOST, c->goal);
    for (int i = 0; i < 2; i++) {
        deft_ctx_destroy(&w[i].cx);
        deft_runtime_destroy(&w[i].rt);
    }
}

void bench_variants(bench *b)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) one_case(b, &cases[i]);
}
