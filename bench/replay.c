/* SPDX-License-Identifier: Apache-2.0
 *
 * What does a repeated step cost beside its kernels?
 *
 *   replay     a long elementwise program recorded again and again, per op; captures of few and
 *              many kernels; the guards of a step over 200 parameters
 *   overhead   the training step of network.h: its time minus that of its launches
 *              (deft_stats.ns_kernels: from the first kernel's entry to the last one's end);
 *              what a step of 1 ms costs the program when it is left to run;
 *              with --peers the whole step beside other libraries' (peers.c)
 */
#include "bench.h"
#include "network.h"

#include <stdio.h>

#include "lazy/core/history.h"

enum { ROUNDS = 101 };

static double kernels_ns(deft_ctx *cx)
{
    return (double)bench_stats(cx).ns_kernels;
}

/* ---- replay ---- */

typedef struct chain {
    deft_ctx *cx;
    deft_tensor *a;
    int n;
} chain;

/* Numbers, unary and binary ops in turn. */
static deft_tensor *chain_ops(const chain *c, deft_tensor *a)
{
    deft_tensor *x = a;
    for (int i = 0; i < c->n; i += 2) {
        x = deft_add(x, a);
        x = deft_mul(x, a);
    }
    return x;
}

static void chain_again(void *user)
{
    const chain *const c = user;
    const deft_scope s = deft_scope_begin(c->cx);
    deft_tensor *x = chain_ops(c, c->a);
    bench_must(c->cx, deft_eval(&x, 1), "eval");
    bench_must(c->cx, deft_scope_end(s), "scope_end");
}

/* Seconds of one call without its kernels: `timed` is not measured from inside, `measured` is.
 * kernels: those alone. */
static double beside_kernels(void (*run)(void *), void *timed, void *measured,
                             deft_ctx *measured_cx, double *kernels)
{
    double t[ROUNDS], k[ROUNDS];
    for (int i = 0; i < 30; i++) run(timed), run(measured);
    for (int i = 0; i < ROUNDS; i++) {
        const double t0 = bench_now();
        for (int r = 0; r < 10; r++) run(timed);
        t[i] = (bench_now() - t0) / 10;
        const double before = kernels_ns(measured_cx);
        for (int r = 0; r < 10; r++) run(measured);
        k[i] = (kernels_ns(measured_cx) - before) * 1e-10;
    }
    *kernels = bench_median(k, ROUNDS);
    return bench_median(t, ROUNDS) - *kernels;
}

typedef struct captured {
    deft_ctx *cx;
    deft_capture *c;
    deft_tensor *in;
    chain chain;
} captured;

static deft_status captured_chain(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = chain_ops(user, in[0]);
    return DEFT_OK;
}

static void captured_again(void *user)
{
    const captured *const c = user;
    deft_tensor *out[1];
    const deft_scope s = deft_scope_begin(c->cx);
    bench_must(c->cx, deft_capture_call(c->c, &c->in, 1, out, 1), "capture_call");
    bench_must(c->cx, deft_scope_end(s), "scope_end");
}

typedef struct two {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *a;
} two;

static two open_one(int measure, int no_fusion)
{
    two w = { .rt = bench_runtime(1, DEFT_TIER_FULL, measure) };
    const deft_ctx_options o = { .size = sizeof o, .no_fusion = no_fusion };
    const float v[4] = { 1, 1, 1, 1 };
    bench_must(NULL, deft_ctx_create(w.rt, &o, &w.cx), "context");
    w.a = deft_keep(deft_from(w.cx, DEFT_SHAPE(4), DEFT_F32, v, sizeof v));
    return w;
}

static void close_one(two *w)
{
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

static void retraced(bench *b)
{
    enum { N = 1000 };
    two w[2] = { open_one(0, 0), open_one(1, 0) };
    chain c[2] = { { w[0].cx, w[0].a, N }, { w[1].cx, w[1].a, N } };
    double kernels;
    const double t = beside_kernels(chain_again, &c[0], &c[1], w[1].cx, &kernels);
    const uint64_t before = bench_stats(w[0].cx).system_allocations;
    for (int i = 0; i < 100; i++) chain_again(&c[0]);
    bench_row(b, "re-traced, per op of 1000", t / N * 1e9, "ns", "its kernel, ns an op",
              kernels / N * 1e9, BENCH_VALUE_AT_MOST, 8);
    bench_row(b, "re-traced: fresh memory, 100 steps",
              (double)(bench_stats(w[0].cx).system_allocations - before), "requests", "goal", 0,
              BENCH_VALUE_AT_MOST, 0);
    close_one(&w[0]);
    close_one(&w[1]);
}

/* n ops unfused: as many kernels, each in a launch of its own. */
static void captures(bench *b, int n)
{
    two w[2] = { open_one(0, n > 1), open_one(1, n > 1) };
    captured c[2];
    for (int i = 0; i < 2; i++) {
        c[i] = (captured){ .cx = w[i].cx, .in = w[i].a, .chain = { w[i].cx, w[i].a, n } };
        c[i].c = deft_capture_create(w[i].cx, captured_chain, &c[i].chain);
    }
    double kernels;
    const double t = beside_kernels(captured_again, &c[0], &c[1], w[1].cx, &kernels);
    const double goal = 0.25 + 0.08 * (n > 1 ? n : 1);
    char label[64];
    snprintf(label, sizeof label, "captured, %d kernel%s", n > 1 ? n : 1, n > 1 ? "s" : "");
    bench_row(b, label, t * 1e6, "us", "0.25 us + 0.08 us a kernel", goal, BENCH_RATIO_AT_MOST, 1);
    for (int i = 0; i < 2; i++) {
        deft_capture_destroy(&c[i].c);
        close_one(&w[i]);
    }
}

static void guards(bench *b)
{
    enum { PARAMS = 200, CHECKS = 200 };
    two w = open_one(0, 0);
    static deft_tensor *p[PARAMS];
    for (int i = 0; i < PARAMS; i++)
        p[i] = deft_keep(deft_full(w.cx, DEFT_SHAPE(1 + i), DEFT_F32, 1));
    for (int r = 0; r < 3; r++) {
        const deft_scope s = deft_step_begin(w.cx);
        for (int i = 0; i < PARAMS; i++) deft_assign(p[i], deft_mul(p[i], 0.5));
        bench_must(w.cx, deft_step_end(s), "step");
    }
    double t[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const double t0 = bench_now();
        bool ok = true;
        for (int k = 0; k < CHECKS; k++) ok &= df_last_guards_hold(w.cx);
        t[i] = (bench_now() - t0) / CHECKS;
        if (!ok) bench_must(w.cx, DEFT_E_STATE, "guards");
    }
    bench_row(b, "guards of a step over 200 parameters", bench_median(t, ROUNDS) * 1e6, "us",
              "goal", 1, BENCH_VALUE_AT_MOST, 1);
    close_one(&w);
}

void bench_replay(bench *b)
{
    retraced(b);
    captures(b, 1);
    captures(b, 10);
    captures(b, 100);
    guards(b);
}

/* ---- overhead ---- */

typedef struct left {
    deft_ctx *cx;
    deft_tensor *t;
    bool submits;
} left;

/* Kernels of about 1 ms. Nothing is in flight when it begins. */
static void left_step(left *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->t, deft_sin(deft_sin(deft_sin(w->t))));
    bench_must(w->cx, w->submits ? deft_step_submit(s) : deft_step_end(s), "step");
}

/* The program's own part of a step that is left to run, and of one that is not. One processor is
 * left to the program. */
static void left_to_run(bench *b, uint32_t n_threads)
{
    enum { N = 1 << 19 };
    deft_runtime *rt = bench_runtime(n_threads > 1 ? n_threads - 1 : 1, DEFT_TIER_FULL, 0);
    double t[2][ROUNDS];
    left w[2];
    for (int k = 0; k < 2; k++) {
        w[k] = (left){ .cx = bench_ctx(rt, DEFT_STRICT), .submits = k == 1 };
        w[k].t = deft_keep(deft_full(w[k].cx, DEFT_SHAPE(N), DEFT_F32, 1));
    }
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 2; k++) {
            const double t0 = bench_now();
            left_step(&w[k]);
            t[k][i] = bench_now() - t0;
            bench_must(w[k].cx, deft_wait(w[k].cx), "wait");
        }
    const double submit = bench_median(t[1], ROUNDS), end = bench_median(t[0], ROUNDS);
    bench_row(b, "step left to run, until it returns", submit * 1e6, "us", "step_end, us",
              end * 1e6, BENCH_RATIO_AT_MOST, 0.1);
    for (int k = 0; k < 2; k++) deft_ctx_destroy(&w[k].cx);
    deft_runtime_destroy(&rt);
}

/* Seconds of a step without its kernels, both of the same step, so that a machine whose speed
 * drifts moves neither apart; the clock's own readings, some 0.1 us, count as overhead. */
static double step_overhead(void (*run)(void *), network *w, double *kernels)
{
    double t[ROUNDS], k[ROUNDS];
    for (int i = 0; i < 30; i++) run(w);
    for (int i = 0; i < ROUNDS; i++) {
        const double before = kernels_ns(w->cx), t0 = bench_now();
        for (int r = 0; r < 10; r++) run(w);
        t[i] = (bench_now() - t0) / 10;
        k[i] = (kernels_ns(w->cx) - before) * 1e-10;
        t[i] -= k[i];
    }
    *kernels = bench_median(k, ROUNDS);
    return bench_median(t, ROUNDS);
}

void bench_overhead(bench *b)
{
    static const int64_t batches[] = { 1, 8, 64 };
    static const struct {
        const char *name;
        void (*run)(void *);
        double goal;
    } ways[] = { { "captured", network_train_captured, 3 },
                 { "re-traced", network_train_again, 5 } };
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_FULL, 1);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            network w;
            network_open(&w, rt, batches[i]);
            double kernels;
            const double t = step_overhead(ways[k].run, &w, &kernels);
            char label[64];
            snprintf(label, sizeof label, "step at batch %d, %s", (int)batches[i], ways[k].name);
            bench_row(b, label, t * 1e6, "us", "its launches alone, us", kernels * 1e6,
                      BENCH_VALUE_AT_MOST, ways[k].goal);
            network_close(&w);
        }
    left_to_run(b, deft_runtime_threads(rt));
    deft_runtime_destroy(&rt);
    if (b->peers) bench_overhead_peers(b);
}
