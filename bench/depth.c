/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a chain of 10^6 distinct ops survive? Recorded, cut, fused, run, read.
 */
#include "bench.h"

void bench_depth(bench *b)
{
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_AUTO, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    const int n = b->quick ? 100000 : 1000000;
    const float v = 1;
    const double t = bench_now();
    deft_tensor *a = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v), *x = a;
    float out = 0;
    uint32_t random = 1;
    for (int i = 0; i < n; i += 2) { /* an aperiodic sequence: no two kernels are alike */
        random = random * 1664525u + 1013904223u;
        x = random >> 31 ? deft_minimum(deft_add(x, a), a) : deft_maximum(deft_sub(x, a), a);
    }
    bench_must(cx, deft_item(x, &out), "item");
    bench_row(b, "a chain of 10^6 distinct ops", bench_now() - t, "s", "limit, s", 60,
              BENCH_VALUE_AT_MOST, 60);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
