/* SPDX-License-Identifier: Apache-2.0
 *
 * How long until the first result of a program never seen before, from the first record to the
 * value read? 8 ops on 4096 elements, a different program each time, and the training step of
 * network.h, in a process that has loaded the compiler. The whole process of such a step
 * (start_process.c), beyond an empty one.
 */
#include "bench.h"
#include "network.h"

static deft_tensor *op(int k, deft_tensor *x, deft_tensor *y)
{
    switch (k % 8) {
    case 0: return deft_add(x, y);
    case 1: return deft_mul(x, y);
    case 2: return deft_sub(x, y);
    case 3: return deft_maximum(x, y);
    case 4: return deft_tanh(x);
    case 5: return deft_minimum(x, y);
    case 6: return deft_abs(x);
    default: return deft_exp(deft_neg(deft_abs(x)));
    }
}

/* A runtime of its own for each round: nothing is known of the step. */
static double first_step_ms(void)
{
    enum { ROUNDS = 15 };
    double t[ROUNDS];
    for (int r = -1; r < ROUNDS; r++) {
        deft_runtime *rt = bench_runtime(0, DEFT_TIER_AUTO, 0);
        network w;
        network_open(&w, rt, 8);
        (void)deft_runtime_compiler(rt); /* starts it */
        const double t0 = bench_now();
        network_train_again(&w);
        (void)network_loss(&w);
        if (r >= 0) t[r] = bench_now() - t0;
        network_close(&w);
        deft_runtime_destroy(&rt);
    }
    return bench_median(t, ROUNDS) * 1e3;
}

static void first_steps(bench *b)
{
    bench_row(b, "training step, warm process", first_step_ms(), "ms", "limit, ms", 5,
              BENCH_VALUE_AT_MOST, 5);
    double empty = 0;
    const double t = bench_start_ms(BENCH_BUILD_ROOT "/bench/bench-start", "mlp",
                                    BENCH_BUILD_ROOT "/bench/bench-empty", &empty);
    bench_row(b, "training step, from process start", t - empty, "ms", "limit, ms", 5,
              BENCH_VALUE_AT_MOST, 5);
}

void bench_first(bench *b)
{
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_AUTO, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    static float data[4096];
    double t[41];
    for (int i = 0; i < 4096; i++) data[i] = (float)i / 4096;
    deft_tensor *a = deft_from(cx, DEFT_SHAPE(4096), DEFT_F32, data, sizeof data);
    deft_tensor *c = deft_from(cx, DEFT_SHAPE(4096), DEFT_F32, data, sizeof data);
    uint64_t random = 12345;
    const int rounds = 41;
    for (int r = -3; r < rounds; r++) {
        float out = 0;
        deft_runtime_settle(rt); /* the compiler is idle, as in a program's first call */
        const double t0 = bench_now();
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *x = a;
        for (int i = 0; i < 7; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            x = op((int)(random >> 33), x, c);
        }
        x = deft_sum(x, DEFT_ALL_AXES, 0);
        bench_must(cx, deft_item(x, &out), "item");
        if (r >= 0) t[r] = bench_now() - t0;
        bench_must(cx, deft_scope_end(s), "scope_end");
    }
    bench_row(b, "8 new ops on 4096 elements", bench_median(t, (size_t)rounds) * 1e3, "ms",
              "limit, ms", 1, BENCH_VALUE_AT_MOST, 1);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    first_steps(b);
}
