/* SPDX-License-Identifier: Apache-2.0
 *
 * What does recording one op cost? 1000 binary ops on live handles in a scope: handle, dtype and
 * shape check, record, call site; then the same with the scope's end, which frees handles and
 * records. Both for ops in an order that was never recorded before, and for the same ones again.
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
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
