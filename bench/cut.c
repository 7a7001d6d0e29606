/* SPDX-License-Identifier: Apache-2.0
 *
 * What does a cut cost when the plan is known? A chain of n ops on one element, evaluated again and
 * again. The time is that of the whole deft_eval, kernel included (a few ns an op): an upper bound
 * of the time to the first kernel's entry.
 */
#include "bench.h"

#include <stdio.h>

static double eval_time(deft_ctx *cx, deft_tensor *a, deft_tensor *one, int n)
{
    enum { ROUNDS = 5001 }; /* longer than the spells in which a shared machine is slow */
    static double t[ROUNDS];
    for (int r = -20; r < ROUNDS; r++) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *x = a;
        for (int i = 0; i < n; i++) x = i % 2 ? deft_mul(x, one) : deft_add(x, one);
        const double t0 = bench_now();
        const deft_status st = deft_eval(&x, 1);
        const double t1 = bench_now();
        bench_must(cx, st, "eval");
        bench_must(cx, deft_scope_end(s), "scope_end");
        if (r >= 0) t[r] = t1 - t0;
    }
    return bench_median(t, ROUNDS);
}

void bench_cut(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    const float v = 1;
    deft_tensor *a = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v);
    deft_tensor *one = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v);
    static const int sizes[] = { 1, 10, 100, 1000 };
    for (int i = 0; i < 4; i++) {
        char label[64];
        const double limit = 1e-6 + 10e-9 * sizes[i];
        const double t = eval_time(cx, a, one, sizes[i]);
        snprintf(label, sizeof label, "warm eval of %d ops, kernel included", sizes[i]);
        bench_row(b, label, t * 1e6, "us", "1 us + 10 ns/op", limit * 1e6, BENCH_RATIO_AT_MOST, 1);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
