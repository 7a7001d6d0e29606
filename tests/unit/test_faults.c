/* SPDX-License-Identifier: Apache-2.0
 *
 * The faults lazy runtimes are known for, one test each, by name.
 */
#include "support/harness.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

/* One SGD step over a window of rows of x: what the recompile tests repeat. */
static float window_step(rig *r, deft_tensor *x, deft_tensor *w, int64_t from, int64_t n, double lr)
{
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *batch = deft_slice(x, DEFT_R(from, from + n));
    deft_tensor *err = deft_sub(deft_matmul(batch, w), 1);
    deft_tensor *grad = deft_div(deft_matmul(deft_t(batch), err), (double)n);
    deft_tensor *loss = deft_keep(deft_mean(deft_square(err), DEFT_ALL_AXES, 0));
    deft_assign(w, deft_sub(w, deft_mul(grad, lr)));
    OK(r, deft_step_end(s));
    const float v = rig_item(r, loss);
    deft_drop(&loss);
    return v;
}

static deft_tensor *matrix(rig *r, int64_t rows, int64_t columns)
{
    deft_rng rng = { 3, 0 };
    deft_tensor *t =
        deft_keep(deft_uniform(r->cx, &rng, DEFT_SHAPE(rows, columns), DEFT_F32, -1, 1));
    OK(r, deft_eval(&t, 1));
    return t;
}

Test(faults, hash_collision_accepted)
{
    rig r;
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .hash_bits = 1
    };
    rig_open(&r, &o, NULL);
    deft_tensor *a = rig_range(&r, 4, 1);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 40; i++) { /* 40 programs over two hashes */
            deft_tensor *x = a;
            for (int k = 0; k < 6; k++) x = i >> k & 1 ? deft_add(x, 1) : deft_mul(x, 2);
            float want = 3;
            for (int k = 0; k < 6; k++) want = i >> k & 1 ? want + 1 : want * 2;
            float got[4];
            rig_read(&r, x, got, 4);
            cr_assert_eq(got[2], want, "program %d", i);
        }
    cr_assert_eq(rig_stats(&r).plans_built, 40);
    rig_close(&r);
}

Test(faults, numbers_that_change_recompile)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = matrix(&r, 200, 8), *w = matrix(&r, 8, 1);
    window_step(&r, x, w, 0, 16, 0.1);
    const deft_stats before = rig_stats(&r);
    for (int i = 1; i < 12; i++) /* learning rate and window move; both numbers meet at 16 */
        window_step(&r, x, w, 16 * i, 16, i == 5 ? 1 : 0.1 / i);
    const deft_stats after = rig_stats(&r);
    cr_assert_eq(after.plans_built, before.plans_built);
    cr_assert_eq(after.kernels_known, before.kernels_known);
    deft_tensor *a = rig_range(&r, 4, 0);
    float v[4];
    rig_read(&r, deft_add(deft_mul(a, 2.0), 3.0), v, 4);
    const uint64_t plans = rig_stats(&r).plans_built;
    rig_read(&r, deft_add(deft_mul(a, 2.0), 2.0), v, 4); /* two numbers become equal */
    cr_assert_eq(rig_stats(&r).plans_built, plans);
    cr_assert_eq(v[3], 8);
    rig_close(&r);
}

Test(faults, sizes_that_change_recompile)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = matrix(&r, 200, 8), *w = matrix(&r, 8, 1);
    for (int i = 0; i < 3; i++) window_step(&r, x, w, 0, 16, 0.1);
    const deft_stats before = rig_stats(&r);
    for (int n = 2; n < 60; n++) window_step(&r, x, w, n, n, 0.1); /* passes 8, the width, too */
    const deft_stats after = rig_stats(&r);
    cr_assert_leq(after.plans_built, before.plans_built + 1, "%d new plans",
                  (int)(after.plans_built - before.plans_built));
    cr_assert(isfinite(window_step(&r, x, w, 0, 1, 0.1)));
    rig_close(&r);
}

Test(faults, call_site_enters_the_key)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 4, 1);
    float v[4];
    rig_read(&r, deft_exp(deft_neg(a)), v, 4);
    const uint64_t plans = rig_stats(&r).plans_built;
    rig_read(&r, deft_exp(deft_neg(a)), v, 4);
    cr_assert_eq(rig_stats(&r).plans_built, plans);
    rig_close(&r);
}

Test(faults, output_overwritten_by_the_next_step)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *p = rig_range(&r, 64, 1), *held[8], *same[8];
    float v[64];
    for (int i = 0; i < 8; i++) {
        same[i] = rig_range(&r, 64, 0);
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(p, deft_add(p, 1));
        held[i] = deft_keep(deft_mul(p, 10));
        deft_assign(same[i], p); /* another handle on the very value that the next step replaces */
        OK(&r, deft_step_end(s));
    }
    for (int i = 0; i < 8; i++) {
        rig_read(&r, same[i], v, 64);
        cr_assert(v[0] == (float)(i + 2) && v[63] == (float)(i + 65), "step %d", i);
        rig_read(&r, held[i], v, 64);
        cr_assert_eq(v[0], (float)(i + 2) * 10);
        cr_assert_eq(v[63], (float)(i + 65) * 10);
    }
    rig_close(&r);
}

Test(faults, donation_while_a_reader_is_pending)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *p = rig_range(&r, 64, 1);
    float v[64];
    deft_mapped m;
    OK(&r, deft_map(p, &m)); /* an export pins the value */
    deft_scope s = deft_step_begin(r.cx);
    deft_tensor *rev = deft_flip(p, DEFT_ALL_AXES);
    deft_tensor *other = deft_keep(deft_add(rev, p));
    deft_assign(p, deft_mul(p, 2));
    OK(&r, deft_step_end(s));
    cr_assert_eq(((const float *)m.data)[63], 64);
    deft_unmap(&m);
    OK(&r, deft_map(p, &m));
    s = deft_step_begin(r.cx); /* nothing but the export stands in the way */
    deft_assign(p, deft_mul(p, 1.5));
    OK(&r, deft_step_end(s));
    cr_assert_eq(((const float *)m.data)[63], 128);
    deft_unmap(&m);
    s = deft_step_begin(r.cx);
    deft_assign(p, deft_div(p, 1.5));
    OK(&r, deft_step_end(s));
    cr_assert(rig_stats(&r).donated > 0, "and without it the memory is taken over");
    rig_read(&r, other, v, 64);
    for (int i = 0; i < 64; i++) cr_assert_eq(v[i], 65);
    s = deft_step_begin(r.cx); /* in place would read what was just written */
    deft_assign(p, deft_add(deft_flip(p, DEFT_ALL_AXES), p));
    OK(&r, deft_step_end(s));
    rig_read(&r, p, v, 64);
    for (int i = 0; i < 64; i++) cr_assert_eq(v[i], 130);
    rig_close(&r);
}

/* The first launch looks up some rows, the second all of them: the parameter that the second
 * updates is not overwritten, the one that the third does is. */
Test(faults, donation_before_the_last_check)
{
    enum { ROWS = 6, WIDTH = 8, PART = 2 };
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const table = deft_reshape(rig_range(&r, 64, 1), DEFT_SHAPE(8, WIDTH));
    deft_tensor *const early = rig_range(&r, 1, 5), *const late = rig_range(&r, 1, 7);
    for (int bad = 0; bad < 2; bad++) {
        const int64_t at[ROWS] = { 1, 2, 3, 4, 5, bad ? 8 : 6 };
        float before[2], after[2];
        rig_read(&r, early, &before[0], 1);
        rig_read(&r, late, &before[1], 1);
        const uint64_t donated = rig_stats(&r).donated;
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const rows =
            deft_take(table, deft_from(r.cx, DEFT_SHAPE(ROWS), DEFT_I64, at, sizeof at), 0);
        deft_tensor *const some = deft_sum(deft_slice(rows, DEFT_R(0, PART)), DEFT_ALL_AXES, 0);
        deft_tensor *const every = deft_sum(deft_mul(rows, some), DEFT_ALL_AXES, 0);
        deft_assign(early, deft_add(early, some));
        deft_assign(late, deft_add(late, every));
        cr_assert_eq(deft_step_end(s), bad ? DEFT_E_RANGE : DEFT_OK);
        if (!bad) cr_assert_eq(rig_stats(&r).donated - donated, 1);
        rig_read(&r, early, &after[0], 1);
        rig_read(&r, late, &after[1], 1);
        for (int i = 0; i < 2; i++) cr_assert_eq(before[i] == after[i], bad, "%d %d", bad, i);
    }
    rig_close(&r);
}

Test(faults, random_numbers_differ_under_recomputation)
{
    rig r;
    const deft_ctx_options no = { .size = sizeof no, .no_fusion = 1 };
    rig_open(&r, NULL, NULL);
    deft_ctx *plain;
    OK(&r, deft_ctx_create(r.rt, &no, &plain));
    float a[50], b[50], c[50];
    deft_rng r1 = { 11, 4 }, r2 = r1;
    deft_tensor *x = deft_normal(r.cx, &r1, DEFT_SHAPE(50), DEFT_F32, 0, 1);
    deft_tensor *y = deft_uniform(r.cx, &r1, DEFT_SHAPE(50), DEFT_F32, 0, 1);
    rig_read(&r, deft_add(x, y), a, 50);
    rig_read(&r, x, b, 50); /* computed again */
    deft_tensor *px = deft_normal(plain, &r2, DEFT_SHAPE(50), DEFT_F32, 0, 1);
    deft_tensor *py = deft_uniform(plain, &r2, DEFT_SHAPE(50), DEFT_F32, 0, 1);
    cr_assert_eq(deft_read(px, DEFT_F32, c, sizeof c), DEFT_OK);
    cr_assert_eq(memcmp(b, c, sizeof b), 0);
    cr_assert_eq(deft_read(deft_add(px, py), DEFT_F32, c, sizeof c), DEFT_OK);
    cr_assert_eq(memcmp(a, c, sizeof a), 0);
    cr_assert_eq(r1.next, 6);
    deft_tensor *two = deft_sub(deft_uniform(r.cx, &r1, DEFT_SHAPE(50), DEFT_F32, 0, 1),
                                deft_uniform(r.cx, &r1, DEFT_SHAPE(50), DEFT_F32, 0, 1));
    rig_read(&r, deft_abs(two), a, 50);
    float sum = 0;
    for (int i = 0; i < 50; i++) sum += a[i];
    cr_assert(sum > 1, "two draws are never one");
    deft_ctx_destroy(&plain);
    rig_close(&r);
}

Test(faults, size_inferred_by_ratio)
{
    rig r;
    rig_open(&r, NULL, NULL);
    static const int sizes[] = { 8, 16, 4, 1, 2, 300 };
    for (int i = 0; i < 6; i++) { /* n - 1 differences of n values */
        const int n = sizes[i];
        deft_tensor *a = deft_square(rig_range(&r, n, 0));
        deft_tensor *d = deft_sub(deft_slice(a, DEFT_R(1, DEFT_END)), deft_slice(a, DEFT_R(0, -1)));
        cr_assert_eq(deft_dim(d, 0), n - 1);
        float v[300];
        rig_read(&r, d, v, n - 1);
        for (int k = 0; k < n - 1; k++) cr_assert_eq(v[k], (float)(2 * k + 1), "n %d", n);
    }
    rig_close(&r);
}

Test(faults, stale_branch_replayed)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 4, 1);
    for (int i = 0; i < 20; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *x = deft_add(a, i);
        x = i % 3 ? deft_mul(x, 2) : deft_sub(x, 1);
        const float want = i % 3 ? (float)(4 + i) * 2 : (float)(4 + i) - 1;
        float v[4];
        rig_read(&r, x, v, 4);
        cr_assert_eq(v[3], want);
        OK(&r, deft_scope_end(s));
    }
    cr_assert_eq(rig_stats(&r).plans_built, 2);
    rig_close(&r);
}

Test(faults, f64_read_into_a_float)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = deft_full(r.cx, DEFT_SHAPE(2), DEFT_F64, 1.5);
    float f[2] = { 0 };
    OK(&r, deft_read(a, DEFT_F32, f, sizeof f));
    cr_assert(f[0] == 1.5f && f[1] == 1.5f);
    cr_assert_eq(deft_read(a, DEFT_F64, (void *)f, sizeof f), DEFT_E_ARG, "16 bytes do not fit 8");
    rig_close(&r);
}

Test(faults, recompile_limit_reached_silently)
{
    rig r;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .max_plan_bytes = 64 << 10,
                                     .log = "why" };
    rig_open(&r, &o, NULL);
    deft_tensor *a = rig_range(&r, 4, 1);
    for (int i = 0; i < 200; i++) { /* more programs than the cache holds: slower, never wrong */
        deft_tensor *x = a;
        for (int k = 0; k < 8; k++) x = i >> k & 1 ? deft_add(x, 1) : deft_sub(x, 1);
        float v[4], want = 1;
        for (int k = 0; k < 8; k++) want += i >> k & 1 ? 1 : -1;
        rig_read(&r, x, v, 4);
        cr_assert_eq(v[0], want);
    }
    cr_assert(strstr(r.log, "plan miss"), "each miss has its line");
    rig_close(&r);
}

Test(faults, deep_graph_overflows_the_stack)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 2, 1), *x = a;
    for (int i = 0; i < 100000; i++) x = i & 1 ? deft_add(x, a) : deft_sub(x, a);
    float v[2];
    rig_read(&r, x, v, 2);
    cr_assert(v[0] == 1 && v[1] == 2);
    rig_close(&r);
}

Test(faults, constants_printed_in_decimal)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = deft_mul(rig_range(&r, 4, 1), 0.1);
    OK(&r, deft_eval(&x, 1));
    char text[1024];
    deft_show(r.cx, "trace", text, sizeof text);
    cr_assert(strstr(text, "0x1.99999"), "%s", text);
    rig_close(&r);
}

static void *sum_of_map(void *user)
{
    rig *const r = user;
    deft_ctx *cx;
    float out = 0;
    if (deft_ctx_create(r->rt, NULL, &cx) != DEFT_OK) return NULL;
    const float v[3] = { 1, 2, 3 };
    deft_tensor *a = deft_from(cx, DEFT_SHAPE(3), DEFT_F32, v, sizeof v);
    const deft_status st = deft_item(deft_sum(deft_square(a), DEFT_ALL_AXES, 0), &out);
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    deft_ctx_destroy(&cx);
    return st == DEFT_OK && out == 14 ? (void *)(uintptr_t)(1 + s.plans_built) : NULL;
}

Test(faults, thread_local_caches)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_t id;
        void *result;
        pthread_create(&id, NULL, sum_of_map, &r);
        pthread_join(id, &result);
        cr_assert_eq((uintptr_t)result, i == 0 ? 2u : 1u,
                     "thread %d must find the first one's plan", i);
    }
    rig_close(&r);
}

Test(faults, callers_state_changed)
{
    cpu_set_t before, after;
    fenv_t fe;
    rig r;
    cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
    fegetenv(&fe);
    fesetround(FE_UPWARD);
    volatile float tiny = 1e-10f;
    /* fegetround may look at another register than arithmetic does */
    volatile float up = 1 + tiny;
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 2, .tier = DEFT_TIER_FULL };
    rig_open(&r, &o, NULL);
    deft_tensor *x = matrix(&r, 300, 300);
    x = deft_matmul(x, x);
    OK(&r, deft_eval(&x, 1));
    cr_assert_eq(fegetround(), FE_UPWARD);
    volatile float after_up = 1 + tiny;
    fesetenv(&fe);
    volatile float nearest = 1 + tiny;
    cr_assert(after_up == up && up > nearest);
    rig_close(&r);
    cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
    cr_assert(CPU_EQUAL(&before, &after));
}

Test(faults, gradient_accumulation)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *g = rig_range(&r, 3, 0), *x = rig_range(&r, 3, 1);
    for (int i = 0; i < 5; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(g, deft_add(g, deft_mul(x, i)));
        OK(&r, deft_step_end(s));
    }
    float v[3];
    rig_read(&r, g, v, 3);
    cr_assert(v[0] == 10 && v[1] == 21 && v[2] == 32);
    rig_close(&r);
}

/* Changing numbers, learning rate, seed, window, and a shorter last batch in each round: two plans
 * at most (the shorter batch may need one of its own), and no kernel after both sizes were seen. */
Test(faults, a_thousand_steps_of_everything_changing)
{
    rig r;
    rig_open(&r, NULL, NULL);
    enum { ROWS = 150, BATCH = 32 };
    deft_tensor *x = matrix(&r, ROWS, 8), *w = matrix(&r, 8, 4), *m = matrix(&r, 8, 4);
    deft_tensor *y =
        deft_keep(deft_cast(deft_mul(deft_slice(x, DEFT_FULL, DEFT_AT(0)), 4), DEFT_I32));
    OK(&r, deft_eval(&y, 1));
    deft_rng rng = { 1, 0 };
    uint64_t kernels = 0;
    const uint64_t plans = rig_stats(&r).plans_built;
    for (int step = 0, from = 0; step < 1000; step++, from += BATCH) {
        if (from >= ROWS) from = 0;
        if (step % 97 == 0) rng.seed += 12345;
        const int64_t to = from + BATCH < ROWS ? from + BATCH : ROWS;
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *batch = deft_slice(x, DEFT_R(from, to)),
                    *label = deft_slice(y, DEFT_R(from, to));
        deft_tensor *mask =
            deft_gt(deft_uniform(r.cx, &rng, DEFT_SHAPE(to - from, 8), DEFT_F32, 0, 1),
                    0.1 + 0.0001 * step);
        deft_tensor *in = deft_where(mask, batch, deft_mul(batch, 0.5 / (step + 1)));
        deft_tensor *p = deft_softmax(deft_matmul(in, w), 1);
        deft_tensor *err = deft_sub(p, deft_one_hot(deft_remainder(label, 4), 4, DEFT_F32));
        deft_tensor *g = deft_div(deft_matmul(deft_t(in), err), (double)(to - from));
        deft_assign(m, deft_lerp(m, g, 1.0 / (1 + step % 10)));
        deft_assign(w, deft_sub(w, deft_mul(m, 0.1 / (1 + step))));
        OK(&r, deft_step_end(s));
        if (step == 6) kernels = rig_stats(&r).kernels_known; /* both sizes were seen */
    }
    const deft_stats after = rig_stats(&r);
    cr_assert_leq(after.plans_built - plans, 2, "%d plans", (int)(after.plans_built - plans));
    cr_assert_eq(after.kernels_known, kernels, "%d kernels more",
                 (int)(after.kernels_known - kernels));
    float v[32];
    rig_read(&r, w, v, 32);
    for (int i = 0; i < 32; i++) cr_assert(isfinite(v[i]));
    rig_close(&r);
}
