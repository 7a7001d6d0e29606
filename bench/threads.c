/* SPDX-License-Identifier: Apache-2.0
 *
 * Do two threads with a context each record twice as fast as one?
 */
#include "bench.h"

#include <pthread.h>

enum { ROUNDS = 4000, N = 1000 }; /* long enough for the scheduler to part the two */

static void *trace(void *user)
{
    deft_ctx *const cx = user;
    const float v[4] = { 1, 2, 3, 4 };
    deft_tensor *a = deft_from(cx, DEFT_SHAPE(4), DEFT_F32, v, sizeof v);
    for (int r = 0; r < ROUNDS; r++) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *x = a;
        for (int i = 0; i < N; i++) x = deft_add(x, a);
        bench_must(cx, deft_scope_end(s), "scope_end");
    }
    return NULL;
}

static double timed(deft_ctx *const *cx, int n)
{
    pthread_t id[2];
    const double t = bench_now();
    for (int i = 1; i < n; i++) pthread_create(&id[i], NULL, trace, cx[i]);
    trace(cx[0]);
    for (int i = 1; i < n; i++) pthread_join(id[i], NULL);
    return bench_now() - t;
}

void bench_threads(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_INTERPRET, 0);
    deft_ctx *cx[2] = { bench_ctx(rt, DEFT_STRICT), bench_ctx(rt, DEFT_STRICT) };
    double one[15], two[15];
    timed(cx, 2);
    for (int i = 0; i < 15; i++) {
        one[i] = timed(cx, 1);
        two[i] = timed(cx, 2);
    }
    const double t1 = bench_median(one, 15), t2 = bench_median(two, 15);
    bench_row(b, "two threads, two contexts", 2 * N * ROUNDS / t2 * 1e-6, "Mop/s",
              "one thread, Mop/s", N * ROUNDS / t1 * 1e-6, BENCH_RATIO_AT_LEAST, 1.9);
    deft_ctx_destroy(&cx[0]);
    deft_ctx_destroy(&cx[1]);
    deft_runtime_destroy(&rt);
}
