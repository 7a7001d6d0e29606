/* SPDX-License-Identifier: Apache-2.0
 *
 * What does recording one op cost? 1000 binary ops on live handles in a scope: handle, dtype and
 * shape check, record, call site; then the same with the scope's end, which frees handles and
 * records. Both for ops in an order that was never recorded before, and for the same ones again.
 *
 * And what does the call of an operator of the program cost beyond the same four ops by hand?
 */
#include "bench.h"

#include <stdlib.h>

enum {
    N = 1000,
    ROUNDS = 1001 /* some 80 ms: longer than the spells in which a shared machine is slow */
};

typedef struct state {
    deft_ctx *cx;
    deft_tensor *a, *b;
    double open; /* seconds of recording alone, last call */
    uint64_t random;
    deft_op *op;
} state;

static void record(void *user)
{
    state *const s = user;
    const deft_scope scope = deft_scope_begin(s->cx);
    const double t = bench_now();
    deft_tensor *x = s->a;
    for (int i = 0; i < N; i += 4) {
        x = deft_add(x, s->b);
        x = deft_mul(x, s->b);
        x = deft_sub(x, s->a);
        x = deft_maximum(x, s->b);
    }
    s->open = bench_now() - t;
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
}

/* Which ops follow each other is drawn anew each time. */
static void record_new(void *user)
{
    state *const s = user;
    const deft_scope scope = deft_scope_begin(s->cx);
    const double t = bench_now();
    deft_tensor *x = s->a;
    for (int i = 0; i < N; i++) {
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        x = s->random >> 63 ? deft_add(x, s->b) : deft_mul(x, s->b);
    }
    s->open = bench_now() - t;
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
}

/* The four ops as a program has them: a function of tensors. */
static __attribute__((noinline)) deft_tensor *four_by_hand(deft_tensor *x, deft_tensor *b,
                                                           deft_tensor *a)
{
    return deft_maximum(deft_sub(deft_mul(deft_add(x, b), b), a), b);
}

static void record_functions(void *user)
{
    state *const s = user;
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *x = s->a;
    for (int i = 0; i < N; i += 4) x = four_by_hand(x, s->b, s->a);
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
}

static deft_status four_ops(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *x = deft_add(in[0], in[1]);
    x = deft_mul(x, in[1]);
    x = deft_sub(x, in[2]);
    out[0] = deft_maximum(x, in[1]);
    return DEFT_OK;
}

/* The same by an operator. */
static void record_operators(void *user)
{
    state *const s = user;
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *x = s->a;
    for (int i = 0; i < N; i += 4)
        deft_op_call(s->cx, s->op, (deft_tensor *const[]){ x, s->b, s->a }, 3, NULL, &x, 1);
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
}

/* Nanoseconds that the call of an operator takes beyond its ops by hand. */
static double operator_call_ns(state *s)
{
    static double hand[ROUNDS], op[ROUNDS];
    const deft_op_def def = { .size = sizeof def,
                              .name = "bench.four_ops",
                              .version = 1,
                              .n_in = 3,
                              .n_out = 1,
                              .body = four_ops };
    bench_must(s->cx, deft_op_define(deft_ctx_runtime(s->cx), &def, &s->op, NULL, 0), "op_define");
    for (int i = 0; i < ROUNDS; i++) {
        double t = bench_now();
        record_functions(s);
        hand[i] = bench_now() - t;
        t = bench_now();
        record_operators(s);
        op[i] = bench_now() - t;
    }
    return (bench_median(op, ROUNDS) - bench_median(hand, ROUNDS)) / (N / 4) * 1e9;
}

/* A formula and the same calls by hand: recording, in a scope of their own, and the kernel. */
static deft_tensor *by_hand(deft_tensor *x)
{
    deft_tensor *const t = deft_square(deft_div(x, 3));
    deft_tensor *y = deft_mul(t, 0.0444479);
    y = deft_mul(deft_add(y, -0.3163866), t);
    y = deft_mul(deft_add(y, 1.2656208), t);
    y = deft_mul(deft_add(y, -2.2499997), t);
    return deft_add(y, 1);
}

static double time_of_scopes(deft_ctx *cx, const deft_op *op, deft_tensor *x)
{
    enum { TIMES = 200 };
    const double t = bench_now();
    for (int i = 0; i < TIMES; i++) {
        const deft_scope s = deft_scope_begin(cx);
        for (int k = 0; k < 20; k++) (void)(op ? deft_apply(op, x) : by_hand(x));
        bench_must(cx, deft_scope_end(s), "scope_end");
    }
    return (bench_now() - t) / TIMES / 20 * 1e9;
}

static void bench_formula(bench *b, deft_ctx *cx)
{
    static double hand[ROUNDS], op[ROUNDS];
    const deft_formula_def def = { .size = sizeof def,
                                   .name = "bench.j0",
                                   .version = 1,
                                   .text = "(x) { return polyval(square(x / 3), 0.0444479, "
                                           "-0.3163866, 1.2656208, -2.2499997, 1); }" };
    deft_op *j0 = NULL;
    deft_tensor *const x = deft_ones(cx, DEFT_SHAPE(8), DEFT_F32);
    bench_must(cx, deft_formula_define(deft_ctx_runtime(cx), &def, &j0, NULL, 0), "formula_define");
    for (int i = 0; i < ROUNDS; i++) {
        hand[i] = time_of_scopes(cx, NULL, x);
        op[i] = time_of_scopes(cx, j0, x);
    }
    bench_row(b, "formula of ten operations", bench_median(op, ROUNDS), "ns", "by hand, ns",
              bench_median(hand, ROUNDS), BENCH_RATIO_AT_MOST, 2.5);
}

static void mallocs(void *user)
{
    void **const p = user;
    for (int i = 0; i < N; i++) p[i] = malloc(64);
    for (int i = 0; i < N; i++) free(p[i]);
}

void bench_record(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_INTERPRET, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    const float data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    state s = { .cx = cx };
    s.a = deft_from(cx, DEFT_SHAPE(2, 4), DEFT_F32, data, sizeof data);
    s.b = deft_from(cx, DEFT_SHAPE(2, 4), DEFT_F32, data, sizeof data);
    static void *slots[N];
    static double open[ROUNDS], whole[ROUNDS], alloc[ROUNDS], new_open[ROUNDS], new_whole[ROUNDS];
    for (int i = 0; i < 20; i++) record(&s);
    for (int i = 0; i < ROUNDS; i++) {
        double t = bench_now();
        record_new(&s);
        new_whole[i] = bench_now() - t;
        new_open[i] = s.open;
        record(&s);
        t = bench_now();
        record(&s);
        whole[i] = bench_now() - t;
        open[i] = s.open;
        t = bench_now();
        mallocs(slots);
        alloc[i] = bench_now() - t;
    }
    const double ref = bench_median(alloc, ROUNDS) / N * 1e9;
    bench_row(b, "one op, in a new order", bench_median(new_open, ROUNDS) / N * 1e9, "ns",
              "malloc + free of 64 B, ns", ref, BENCH_VALUE_AT_MOST, 25);
    bench_row(b, "in a new order, with its release", bench_median(new_whole, ROUNDS) / N * 1e9,
              "ns", "malloc + free of 64 B, ns", ref, BENCH_VALUE_AT_MOST, 40);
    bench_row(b, "one op again", bench_median(open, ROUNDS) / N * 1e9, "ns",
              "malloc + free of 64 B, ns", ref, BENCH_VALUE_AT_MOST, 25);
    bench_row(b, "one op again, with its release", bench_median(whole, ROUNDS) / N * 1e9, "ns",
              "malloc + free of 64 B, ns", ref, BENCH_VALUE_AT_MOST, 40);
    bench_formula(b, cx);
    bench_row(b, "call of an operator, beyond its four ops", operator_call_ns(&s), "ns",
              "malloc + free of 64 B, ns", ref, BENCH_VALUE_AT_MOST, 10);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
