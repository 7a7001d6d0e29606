/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed copies of weights: made at the second product with the same weights, never used after the
 * weights have changed, gone with the weights and when memory is short. Every product is compared,
 * bit for bit, with a chain of fma in C.
 */
#include <math.h>
#include <string.h>

#include "../support/harness.h"

enum { M = 4, K = 128, N = 96, RUNS = 4 };

static rig r;
static float host_x[M * K], host_w[N * K]; /* what x and w are to hold */
static deft_tensor *x, *w;

static void set_up(void)
{
    rig_interpret(&r, 2);
    for (int i = 0; i < M * K; i++) host_x[i] = (float)(i * 7 % 23) / 8 - 1;
    for (int i = 0; i < N * K; i++) host_w[i] = (float)(i * 5 % 19) / 4 - 2;
    const deft_scope s = deft_scope_begin(r.cx);
    x = rig_tensor(&r, DEFT_SHAPE(M, K), host_x);
    w = rig_tensor(&r, DEFT_SHAPE(N, K), host_w);
    OK(&r, deft_scope_end(s));
}

static void tear_down(void)
{
    deft_drop(&x);
    deft_drop(&w);
    rig_close(&r);
}

TestSuite(weights, .init = set_up, .fini = tear_down);

static uint64_t packed(void)
{
    return rig_stats(&r).packed_bytes;
}

static deft_tensor *product(deft_tensor *a, deft_tensor *b)
{
    return deft_matmul(a, deft_t(b));
}

/* y is the product of x and rows [first, first + n) of w. */
static void expect_product_of(deft_tensor *y, int first, int n)
{
    float want[M * N];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum = fmaf(host_x[i * K + k], host_w[(first + j) * K + k], sum);
            want[i * n + j] = sum;
        }
    rig_expect(&r, y, M * n, want);
}

static void expect_product(deft_tensor *y)
{
    expect_product_of(y, 0, N);
}

static void double_rows(int first, int n)
{
    for (int i = first * K; i < (first + n) * K; i++) host_w[i] *= 2;
}

/* A step of its own: no record that is left holds the weights. */
static void use(void)
{
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *y = deft_keep(product(x, w));
    OK(&r, deft_step_end(s));
    expect_product(y);
    deft_drop(&y);
}

static void use_twice(void)
{
    use();
    use();
    cr_assert_gt(packed(), 0);
}

/* Assigns 2 * w to w. The value depends on y, so that w is written after y was computed from it. */
static void double_after(deft_tensor *y, deft_tensor *zero)
{
    deft_tensor *const nothing = deft_mul(deft_max(y, DEFT_ALL_AXES, 0), zero);
    cr_assert(deft_assign(w, deft_add(deft_add(w, w), nothing)));
}

/* Assigns 2 * part to part, which is w or a view of w. */
static void double_in_step(int first, int n)
{
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const part = n == N ? w : deft_slice(w, DEFT_R(first, first + n), DEFT_FULL);
    cr_assert(deft_assign(part, deft_mul(part, 2)));
    OK(&r, deft_step_end(s));
    double_rows(first, n);
}

Test(weights, are_packed_at_their_second_use)
{
    const uint64_t live = rig_stats(&r).live_bytes;
    use();
    cr_expect_eq(packed(), 0);
    use();
    cr_expect_geq(packed(), N * K * sizeof(float));
    const uint64_t bytes = packed();
    for (int i = 0; i < RUNS; i++) use();
    cr_expect_eq(packed(), bytes);
    cr_expect_eq(rig_stats(&r).live_bytes, live);
}

Test(weights, take_their_copies_with_them)
{
    use_twice();
    deft_drop(&w);
    (void)rig_item(&r, deft_sum(x, DEFT_ALL_AXES, 0)); /* the records that named w are forgotten */
    cr_expect_eq(packed(), 0);
}

/* The value is replaced in its own memory. */
Test(weights, change_in_place)
{
    for (int i = 0; i < RUNS; i++) {
        use_twice();
        const uint64_t donated = rig_stats(&r).donated;
        double_in_step(0, N);
        cr_expect_eq(rig_stats(&r).donated, donated + 1);
        cr_expect_eq(packed(), 0);
    }
    use();
}

Test(weights, change_in_part)
{
    for (int i = 0; i < RUNS; i++) {
        use_twice();
        const uint64_t donated = rig_stats(&r).donated;
        double_in_step(i, 3);
        cr_expect_eq(rig_stats(&r).donated, donated + 1);
    }
    use();
}

/* The product reads the old weights, and the same step writes the new ones over them. */
Test(weights, change_in_the_step_that_uses_them)
{
    for (int i = 0; i < 2 * RUNS; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *first = deft_keep(product(x, w)), *second = deft_keep(product(x, w));
        double_after(second, deft_num(r.cx, 0));
        OK(&r, deft_step_end(s));
        expect_product(first);
        expect_product(second);
        double_rows(0, N);
        deft_drop(&first);
        deft_drop(&second);
        if (i % 3 == 2) use_twice();
    }
    cr_expect_gt(rig_stats(&r).donated, 0);
}

static deft_status product_then_change(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user)
{
    out[0] = product(in[0], w);
    if (user) double_after(out[0], deft_const_f(cx, 0));
    return (void)n_in, (void)n_out, DEFT_OK;
}

Test(weights, change_in_captures)
{
    deft_capture *c[2] = { NULL };
    for (int i = 0; i < 2; i++)
        c[i] = deft_capture_create(r.cx, product_then_change, i ? &r : NULL);
    for (int i = 0; i < 4 * RUNS; i++) {
        const int which = i % 5 > 3;
        deft_tensor *y = NULL;
        OK(&r, deft_capture_call(c[which], &x, 1, &y, 1));
        expect_product(y);
        if (which) double_rows(0, N);
    }
    cr_expect_gt(rig_stats(&r).donated, 0);
    for (int i = 0; i < 2; i++) deft_capture_destroy(&c[i]);
}

Test(weights, change_in_submitted_steps)
{
    deft_tensor *y[3 * RUNS];
    float want[3 * RUNS][M * N];
    for (int i = 0; i < 3 * RUNS; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        y[i] = deft_keep(product(x, w));
        if (i % 4 == 3) double_after(y[i], deft_num(r.cx, 0));
        OK(&r, deft_step_submit(s));
        for (int e = 0; e < M * N; e++) {
            want[i][e] = 0;
            for (int k = 0; k < K; k++)
                want[i][e] = fmaf(host_x[e / N * K + k], host_w[e % N * K + k], want[i][e]);
        }
        if (i % 4 == 3) double_rows(0, N);
    }
    for (int i = 0; i < 3 * RUNS; i++) {
        rig_expect(&r, y[i], M * N, want[i]);
        deft_drop(&y[i]);
    }
    cr_expect_gt(rig_stats(&r).donated, 0);
}

Test(weights, give_memory_back_when_it_is_short)
{
    use_twice();
    deft_runtime_trim(r.rt);
    cr_expect_eq(packed(), 0);
    use_twice();
}

/* Views of one buffer, of equal shapes at other places, and of other shapes. */
Test(weights, are_views)
{
    for (int i = 0; i < 4 * RUNS; i++) {
        const int first = i / 3 % 3 * 16, n = i % 2 ? 48 : 64;
        deft_tensor *const part = deft_slice(w, DEFT_R(first, first + n), DEFT_FULL);
        expect_product_of(product(x, part), first, n);
    }
}

/* Few columns: the weights are the left operand. */
Test(weights, are_the_left_operand)
{
    enum { MOST = 4 };
    for (int n = 1; n <= MOST; n++) {
        float want[N * MOST];
        for (int j = 0; j < N; j++)
            for (int i = 0; i < n; i++) {
                float sum = 0;
                for (int k = 0; k < K; k++) sum = fmaf(host_w[j * K + k], host_x[i * K + k], sum);
                want[j * n + i] = sum;
            }
        deft_tensor *const columns = deft_t(deft_slice(x, DEFT_R(0, n), DEFT_FULL));
        deft_tensor *v = deft_keep(deft_add(columns, 0));
        for (int i = 0; i < RUNS; i++) rig_expect(&r, deft_matmul(w, v), N * n, want);
        cr_expect_geq(packed(), N * K * sizeof(float), "%d columns", n);
        deft_runtime_trim(r.rt);
        deft_drop(&v);
    }
}

/* A loop packs weights that none of its iterations changes, whether they are an input of the plan
 * or are computed before the loop. */
static deft_status iterate(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    deft_tensor *const weights = *(deft_tensor **)user;
    out[0] = deft_mul(deft_add(deft_matmul(in[0], weights), in[0]), 0.25);
    return (void)cx, (void)n_in, (void)n_out, DEFT_OK;
}

Test(weights, of_loops)
{
    enum { SIDE = 96, LENGTH = 5 };
    float state[M * SIDE], next[M * SIDE], square[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) square[i] = (float)(i * 11 % 17) / 64;
    for (int i = 0; i < M * SIDE; i++) state[i] = (float)(i % 9) / 4;
    deft_tensor *s = rig_tensor(&r, DEFT_SHAPE(SIDE, SIDE), square);
    deft_tensor *start = rig_tensor(&r, DEFT_SHAPE(M, SIDE), state);
    for (int t = 0; t < LENGTH; t++) {
        for (int e = 0; e < M * SIDE; e++) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++)
                sum = fmaf(state[e / SIDE * SIDE + k], square[e % SIDE * SIDE + k], sum);
            next[e] = (sum + state[e]) * 0.25f;
        }
        memcpy(state, next, sizeof state);
    }
    for (int i = 0; i < 2 * RUNS; i++) {
        deft_tensor *weights = deft_t(i % 2 ? deft_neg(deft_neg(s)) : s), *out = NULL;
        cr_assert(deft_scan(r.cx, iterate, &weights, &start, 1, NULL, 0, LENGTH, 0, &out));
        rig_expect(&r, out, M * SIDE, state);
    }
    cr_expect_gt(packed(), 0);
    deft_drop(&s);
    deft_drop(&start);
}

/* Memory of the caller may change between two runs, so it is never packed. */
Test(weights, of_the_caller)
{
    deft_drop(&w);
    w = deft_keep(deft_wrap(r.cx, DEFT_SHAPE(N, K), DEFT_F32, host_w, sizeof host_w, NULL));
    for (int i = 0; i < RUNS; i++) {
        expect_product(product(x, w));
        double_rows(i, 2);
    }
    cr_expect_eq(packed(), 0);
}
