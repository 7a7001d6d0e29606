/* SPDX-License-Identifier: Apache-2.0
 *
 * How many launches (fork-joins) do common patterns take? Counted, not timed.
 */
#include "bench.h"

#include <stdio.h>

#define ROWS 64
#define COLS 256

static deft_tensor *filled(deft_ctx *cx, deft_shape s)
{
    static deft_rng rng = { 7, 0 };
    deft_tensor *t = deft_keep(deft_uniform(cx, &rng, s, DEFT_F32, 0.1, 0.9));
    bench_must(cx, deft_eval(&t, 1), "fill");
    return t;
}

static void count(bench *b, deft_ctx *cx, const char *label, const deft_stats *before, double goal)
{
    const deft_stats after = bench_stats(cx);
    bench_row(b, label, (double)(after.launches - before->launches), "launches", "goal", goal,
              BENCH_VALUE_AT_MOST, goal);
}

static void eval_one(bench *b, deft_ctx *cx, const char *label, deft_tensor *t, double goal)
{
    const deft_stats before = bench_stats(cx);
    bench_must(cx, deft_eval(&t, 1), label);
    count(b, cx, label, &before, goal);
}

static void adam(bench *b, deft_ctx *cx)
{
    enum { P = 20 };
    deft_tensor *p[P], *m[P], *v[P], *g[P];
    for (int i = 0; i < P; i++) {
        const deft_shape s = i % 2 ? DEFT_SHAPE(17 * i + 3) : DEFT_SHAPE(5 + i, 31 - i);
        p[i] = filled(cx, s);
        m[i] = filled(cx, s);
        v[i] = filled(cx, s);
        g[i] = filled(cx, s);
    }
    for (int round = 0; round < 2; round++) {
        const deft_stats before = bench_stats(cx);
        const deft_scope s = deft_step_begin(cx);
        for (int i = 0; i < P; i++) {
            deft_assign(m[i], deft_lerp(m[i], g[i], 0.1));
            deft_assign(v[i], deft_lerp(v[i], deft_square(g[i]), 0.001));
            deft_tensor *den = deft_add(deft_sqrt(deft_div(v[i], 0.5)), 1e-8);
            deft_assign(p[i], deft_sub(p[i], deft_mul(deft_div(m[i], den), 0.01)));
        }
        bench_must(cx, deft_step_end(s), "adam");
        if (round == 1) {
            count(b, cx, "Adam over 20 parameters", &before, 1);
            const deft_stats after = bench_stats(cx);
            bench_row(b, "Adam: results stored in place", (double)(after.donated - before.donated),
                      "of 60", "goal", 60, BENCH_VALUE_AT_LEAST, 60);
        }
    }
}

static deft_tensor *in(deft_tensor *u, int di, int dj)
{
    return deft_slice(u,
                      di == -1  ? DEFT_R(0, -2)
                      : di == 0 ? DEFT_R(1, -1)
                                : DEFT_R(2, DEFT_END),
                      dj == -1  ? DEFT_R(0, -2)
                      : dj == 0 ? DEFT_R(1, -1)
                                : DEFT_R(2, DEFT_END));
}

/* worst: NULL, or where the largest change goes. */
static void heat_step(bench *b, deft_ctx *cx, deft_tensor *u, deft_tensor *worst, bool counted)
{
    const char *const label = worst ? "heat step with its residual" : "heat step";
    const deft_stats before = bench_stats(cx);
    const deft_scope s = deft_step_begin(cx);
    deft_tensor *c = in(u, 0, 0);
    deft_tensor *sum =
        deft_add(deft_add(in(u, -1, 0), in(u, 1, 0)), deft_add(in(u, 0, -1), in(u, 0, 1)));
    deft_tensor *next = deft_add(c, deft_mul(deft_sub(sum, deft_mul(c, 4)), 0.2));
    if (worst) deft_assign(worst, deft_max(deft_abs(deft_sub(next, c)), DEFT_ALL_AXES, 0));
    deft_assign(c, next);
    bench_must(cx, deft_step_end(s), "heat");
    if (!counted) return;
    count(b, cx, label, &before, 1);
    if (worst) return;
    const deft_stats after = bench_stats(cx);
    bench_row(b, "heat step: fresh memory from the system",
              (double)(after.system_allocations - before.system_allocations), "requests", "goal", 0,
              BENCH_VALUE_AT_MOST, 0);
}

static void heat(bench *b, deft_ctx *cx)
{
    enum { N = 256 };
    deft_tensor *u = deft_keep(deft_zeros(cx, DEFT_SHAPE(N, N), DEFT_F32));
    deft_tensor *worst = deft_keep(deft_zeros(cx, DEFT_SHAPE(), DEFT_F32));
    deft_assign(deft_slice(u, DEFT_AT(0), DEFT_FULL), 100.0);
    bench_must(cx, deft_eval(&u, 1), "heat");
    bench_must(cx, deft_eval(&worst, 1), "heat");
    for (int round = 0; round < 4; round++) heat_step(b, cx, u, NULL, round == 3);
    for (int round = 0; round < 4; round++) heat_step(b, cx, u, worst, round == 3);
}

/* Softened gravity over all pairs, without the P x P matrix in memory. */
static void nbody(bench *b, deft_ctx *cx)
{
    enum { P = 512 };
    deft_tensor *x[3], *v[3], *mass = filled(cx, DEFT_SHAPE(P));
    for (int k = 0; k < 3; k++) {
        x[k] = filled(cx, DEFT_SHAPE(P));
        v[k] = filled(cx, DEFT_SHAPE(P));
    }
    for (int round = 0; round < 2; round++) {
        const deft_stats before = bench_stats(cx);
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *d[3], *r2 = NULL;
        for (int k = 0; k < 3; k++) {
            d[k] = deft_sub(deft_unsqueeze(x[k], 0), deft_unsqueeze(x[k], 1));
            r2 = r2 ? deft_add(r2, deft_square(d[k])) : deft_square(d[k]);
        }
        deft_tensor *inv = deft_div(deft_num(cx, 1), deft_sqrt(deft_add(r2, 1e-4)));
        deft_tensor *w = deft_mul(deft_unsqueeze(mass, 0), deft_mul(deft_mul(inv, inv), inv));
        for (int k = 0; k < 3; k++)
            deft_assign(
                v[k], deft_add(v[k], deft_mul(deft_sum(deft_mul(d[k], w), DEFT_AXES(1), 0), 0.01)));
        for (int k = 0; k < 3; k++) deft_assign(x[k], deft_add(x[k], deft_mul(v[k], 0.01)));
        bench_must(cx, deft_step_end(s), "nbody");
        if (round) count(b, cx, "N-body step", &before, 2);
    }
}

void bench_launches(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_INTERPRET, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    deft_tensor *x = filled(cx, DEFT_SHAPE(ROWS, COLS)), *y = filled(cx, DEFT_SHAPE(ROWS, COLS));
    deft_tensor *g = filled(cx, DEFT_SHAPE(COLS)), *c = filled(cx, DEFT_SHAPE(COLS));
    eval_one(b, cx, "sum of a map", deft_sum(deft_add(deft_mul(x, x), 1), DEFT_ALL_AXES, 0), 1);
    eval_one(b, cx, "mean squared error", deft_mean(deft_square(deft_sub(x, y)), DEFT_ALL_AXES, 0),
             1);
    eval_one(b, cx, "softmax", deft_softmax(x, -1), 1);
    eval_one(b, cx, "softmax over the first axis", deft_softmax(x, 0), 1);
    eval_one(b, cx, "log_softmax", deft_log_softmax(x, -1), 1);
    eval_one(b, cx, "layer norm", deft_layer_norm(x, 1, g, c, 1e-5), 1);
    static deft_rng rng = { 8, 0 };
    deft_tensor *label = deft_keep(deft_randint(cx, &rng, DEFT_SHAPE(ROWS), DEFT_I64, 0, COLS));
    bench_must(cx, deft_eval(&label, 1), "labels");
    eval_one(b, cx, "cross entropy", deft_cross_entropy(x, label), 1);
    adam(b, cx);
    heat(b, cx);
    nbody(b, cx);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
