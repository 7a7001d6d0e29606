/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops in the trace: how many launches they are, whole calls against compiled C loops, and what an
 * iteration costs that the executor turns itself. One thread.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_loops.h"

enum { STEPS = 1000 };

typedef struct work {
    deft_ctx *cx;
    deft_tensor *x, *rows;
    const ref_loops *ref;
    int which;
    float *memory, *more;
    int64_t n, steps;
} work;

static deft_status below(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_lt(in[1], ((work *)user)->steps);
    return DEFT_OK;
}

static deft_status logistic(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)n_in, (void)user;
    out[0] = deft_mul(deft_mul(in[0], 3.7), deft_sub(deft_num(cx, 1), in[0]));
    if (n_out > 1) out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

static void must(work *w, bool ok, deft_tensor **t, deft_scope s)
{
    if (!ok) bench_must(w->cx, deft_error(w->cx), "control");
    bench_must(w->cx, deft_eval(t, 1), "control");
    bench_must(w->cx, deft_scope_end(s), "control");
}

static void ours_while(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *out[2], *const in[] = { w->x, deft_zeros(w->cx, DEFT_SHAPE(), DEFT_I32) };
    must(w, deft_while(w->cx, below, logistic, w, in, 2, INT64_MAX, out), out, s);
}

static void ours_scan(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *out[1];
    must(w, deft_scan(w->cx, logistic, w, &w->x, 1, NULL, 0, w->steps, 0, out), out, s);
}

static void ref_logistic(void *user)
{
    work *const w = user;
    w->ref->logistic[w->which](w->memory, w->n, w->steps, 3.7f);
}

static deft_status average(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = out[1] = deft_add(deft_mul(in[0], 0.9), in[1]);
    return DEFT_OK;
}

static void ours_average(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *out[2];
    const bool ok = deft_scan(w->cx, average, w, &w->x, 1, &w->rows, 1, w->steps, 1, out);
    must(w, ok, out + 1, s);
}

static void ref_average(void *user)
{
    work *const w = user;
    w->ref->smooth(w->memory, w->more, w->steps, w->n, 0.9f);
}

/* The sum needs all elements, so that iterations are turned by the executor. */
static deft_status normal(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_sub(in[0], deft_mul(deft_mean(in[0], DEFT_ALL_AXES, 0), 0.5));
    return DEFT_OK;
}

static void ours_reduced(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *out[1];
    must(w, deft_scan(w->cx, normal, w, &w->x, 1, NULL, 0, w->steps, 0, out), out, s);
}

/* The same recorded anew for each iteration. */
static void ours_unrolled(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *x = w->x;
    for (int64_t i = 0; i < w->steps; i++) (void)normal(w->cx, &x, 1, &x, 1, NULL);
    must(w, true, &x, s);
}

static void launches(bench *b, work *w, const char *label, bench_fn f)
{
    if (!bench_wants(b, label)) return;
    f(w);
    const uint64_t before = bench_stats(w->cx).launches;
    f(w);
    bench_row(b, label, (double)(bench_stats(w->cx).launches - before), "launches",
              "iterations in the loop", STEPS, BENCH_VALUE_AT_MOST, 1);
}

/* The fastest of the reference's forms, by every compiler. */
static void fastest(work *w, const ref_loops *const *table, int n_tables, int n_forms, bench_fn f)
{
    double best = 1e30;
    work found = *w;
    for (int i = 0; i < n_tables * n_forms; i++) {
        w->ref = table[i / n_forms];
        w->which = i % n_forms;
        const double t = bench_one(f, w, 3, 1);
        if (t >= best) continue;
        best = t;
        found = *w;
    }
    *w = found;
}

static void compare(bench *b, work *w, const char *label, bench_fn f, bench_fn g, double goal)
{
    double tf, tg;
    if (!bench_wants(b, label)) return;
    f(w);
    bench_pair(f, w, g, w, b->quick ? 5 : 15, 1, &tf, &tg);
    bench_row(b, label, tf * 1e3, "ms", "C loop, -O3 -march=native", tg * 1e3, BENCH_RATIO_AT_MOST,
              goal);
}

static void set_size(work *w, int64_t n, int64_t steps)
{
    deft_drop(&w->x);
    deft_drop(&w->rows);
    w->n = n;
    w->steps = steps;
    w->x =
        deft_keep(deft_from(w->cx, DEFT_SHAPE(n), DEFT_F32, w->memory, (size_t)n * sizeof(float)));
}

void bench_control(bench *b)
{
    static const ref_loops *const table[] = {
#ifdef REF_HAVE_GCC
        &ref_loops_gcc,
#endif
#ifdef REF_HAVE_CLANG
        &ref_loops_clang,
#endif
    };
    const int n_tables = sizeof table / sizeof *table;
    enum { MOST = 1 << 20 };
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    work w = { .cx = bench_ctx(rt, DEFT_STRICT) };
    w.memory = malloc(MOST * sizeof *w.memory);
    w.more = malloc(MOST * sizeof *w.more);
    if (!w.memory || !w.more) exit(1);
    for (int i = 0; i < MOST; i++) w.memory[i] = (float)(i % 1000 + 1) / 1002;
    memset(w.more, 0, MOST * sizeof *w.more);
    set_size(&w, 4096, STEPS);
    launches(b, &w, "while, 1000 iterations of 4 K", ours_while);
    launches(b, &w, "scan, 1000 iterations of 4 K", ours_scan);
    fastest(&w, table, n_tables, 2, ref_logistic);
    compare(b, &w, "while, 1000 iterations of 4 K f32", ours_while, ref_logistic, 1.05);
    compare(b, &w, "scan, 1000 iterations of 4 K f32", ours_scan, ref_logistic, 1.05);

    set_size(&w, 1024, 1000);
    w.rows = deft_keep(deft_wrap(w.cx, DEFT_SHAPE(1000, 1024), DEFT_F32, w.memory,
                                 1000 * 1024 * sizeof *w.memory, NULL));
    fastest(&w, table, n_tables, 1, ref_average);
    compare(b, &w, "running average of 1000 rows of 1 K f32", ours_average, ref_average, 1.1);

    set_size(&w, 64, STEPS);
    const char *const label = "scan with a sum, 1000 iterations of 64 f32";
    if (bench_wants(b, label)) {
        double tf, tg;
        ours_reduced(&w);
        ours_unrolled(&w);
        bench_pair(ours_reduced, &w, ours_unrolled, &w, b->quick ? 5 : 15, 1, &tf, &tg);
        bench_row(b, label, tf * 1e6 / STEPS, "us/iteration", "recorded anew each iteration",
                  tg * 1e6 / STEPS, BENCH_VALUE_AT_MOST, 1);
    }
    set_size(&w, 0, 0);
    deft_drop(&w.x);
    deft_ctx_destroy(&w.cx);
    deft_runtime_destroy(&rt);
    free(w.memory);
    free(w.more);
}
