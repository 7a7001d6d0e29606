/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches in the trace: what they mean, what they cost, and what each mistake says.
 * tests/diff/control_programs.c compares whole programs.
 * Why this file is long: one subject, with a case for every rule of control.h.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"
#include "support/budget.h"
#include "support/fuse_check.h"
#include "trace/control.h"

static deft_runtime *rt;
static deft_ctx *cx;

static void set_up(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
}

static void tear_down(void)
{
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

TestSuite(control, .init = set_up, .fini = tear_down);

#define OK(call) cr_assert_eq((call), DEFT_OK, "%s", deft_message(cx))
#define FN(name)                                                                                   \
    static deft_status name(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,   \
                            size_t n_out, void *user)
#define UNUSED (void)c, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

static deft_tensor *row(size_t n, const float *v)
{
    return deft_from(cx, DEFT_SHAPE((int64_t)n), DEFT_F32, v, n * sizeof *v);
}

#define ROW(...)                                                                                   \
    row(sizeof((float[]){ __VA_ARGS__ }) / sizeof(float), (const float[]){ __VA_ARGS__ })

static void expect(deft_tensor *t, size_t n, const float *want)
{
    float got[32] = { 0 };
    cr_assert(t, "%s", deft_message(cx));
    OK(deft_read(t, DEFT_F32, got, n * sizeof *got));
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == want[i], "element %zu is %g, not %g", i, (double)got[i],
                  (double)want[i]);
}

#define EXPECT(t, ...)                                                                             \
    expect(t, sizeof((float[]){ __VA_ARGS__ }) / sizeof(float), (const float[]){ __VA_ARGS__ })

static deft_stats stats(void)
{
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    return s;
}

static deft_tensor *counter(void)
{
    return deft_zeros(cx, DEFT_SHAPE(), DEFT_I32);
}

/* ---- while ---- */

/* States: x, and an i32 that counts to *(int64_t *)user. */
FN(below)
{
    UNUSED;
    out[0] = deft_lt(in[1], *(int64_t *)user);
    return DEFT_OK;
}

FN(logistic)
{
    UNUSED;
    out[0] = deft_mul(deft_mul(in[0], 3.5), deft_sub(deft_num(c, 1), in[0]));
    out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

static float logistic_in_c(float x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x = x * 3.5f * (1 - x);
    return x;
}

Test(control, while_runs_until_its_test_fails)
{
    int64_t n = 37;
    int32_t count = 0;
    deft_tensor *out[2], *const init[] = { ROW(.1f, .2f, .3f), counter() };
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, INT64_MAX, out));
    EXPECT(out[0], logistic_in_c(.1f, n), logistic_in_c(.2f, n), logistic_in_c(.3f, n));
    OK(deft_item(out[1], &count));
    cr_assert_eq(count, 37);
}

Test(control, while_that_never_begins_gives_what_it_was_given)
{
    int64_t n = 0;
    deft_tensor *out[2], *const init[] = { ROW(1, 2), counter() };
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, 100, out));
    EXPECT(out[0], 1, 2);
    EXPECT(init[0], 1, 2);
}

Test(control, while_does_not_exceed_its_bound)
{
    int64_t n = 100;
    int32_t count = 0;
    deft_tensor *out[2], *const init[] = { ROW(.5f), counter() };
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, 3, out));
    OK(deft_item(out[1], &count));
    cr_assert_eq(count, 3);
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, 0, out));
    OK(deft_item(out[1], &count));
    cr_assert_eq(count, 0);
}

/* States: whether to stop, and x. */
FN(not_stopped)
{
    UNUSED;
    out[0] = deft_logical_not(in[0]);
    return DEFT_OK;
}

FN(doubled_until_it_is_large)
{
    UNUSED;
    out[1] = deft_add(in[1], deft_sum(in[1], DEFT_ALL_AXES, false));
    out[0] = deft_gt(deft_sum(out[1], DEFT_ALL_AXES, false), 1000);
    return DEFT_OK;
}

/* The result of a test may have dtype and shape of the first state. It must not be stored in the
 * memory of that state. */
Test(control, a_test_leaves_the_states_alone)
{
    bool stopped = false;
    deft_tensor *out[2], *const init[] = { deft_zeros(cx, DEFT_SHAPE(), DEFT_BOOL),
                                           ROW(1, 1, 1, 1) };
    cr_assert(deft_while(cx, not_stopped, doubled_until_it_is_large, NULL, init, 2, 100, out));
    OK(deft_item(out[0], &stopped));
    cr_assert(stopped);
    EXPECT(out[1], 625, 625, 625, 625);
}

FN(always)
{
    UNUSED;
    out[0] = deft_full(c, DEFT_SHAPE(), DEFT_BOOL, 1);
    return DEFT_OK;
}

FN(add_one)
{
    UNUSED;
    for (size_t i = 0; i < n_out; i++) out[i] = deft_add(in[i], 1);
    return DEFT_OK;
}

FN(less_its_sum)
{
    UNUSED;
    out[0] = deft_sub(in[0], deft_sum(in[0], DEFT_ALL_AXES, 0));
    return DEFT_OK;
}

/* What the caller's memory held is a result, and the memory is written in the same cut. */
Test(control, memory_is_written_after_it_was_a_result)
{
    float target[2] = { 1, 2 };
    deft_tensor *const mut =
        deft_wrap_mut(cx, DEFT_SHAPE(2), DEFT_F32, target, sizeof target, NULL);
    deft_tensor *const w = deft_keep(ROW(0, 0)), *out;
    const deft_scope s = deft_step_begin(cx);
    cr_assert(deft_scan(cx, less_its_sum, NULL, &mut, 1, NULL, 0, 0, 0, &out));
    deft_assign(w, out);
    deft_assign(mut, deft_add(out, 5));
    OK(deft_step_end(s));
    EXPECT(w, 1, 2);
    cr_assert_eq(target[0], 6);
    cr_assert_eq(target[1], 7);
}

/* One program with bounds of all sizes, of which the largest is none. */
/* Rows that are the same each time, wider than one number, which nothing else in the loop is. */
FN(constant_rows)
{
    UNUSED;
    out[0] = deft_add(in[0], 1.0);
    out[1] = deft_full(c, DEFT_SHAPE(2), DEFT_F32, 7);
    return DEFT_OK;
}

Test(control, a_scan_keeps_rows_of_a_constant)
{
    deft_tensor *state = deft_zeros(cx, DEFT_SHAPE(), DEFT_F32), *out[2];
    cr_assert(deft_scan(cx, constant_rows, NULL, &state, 1, NULL, 0, 3, 1, out));
    deft_tensor *const both[] = { out[0], out[1] };
    OK(deft_eval(both, 2));
    EXPECT(out[0], 3);
    EXPECT(out[1], 7, 7, 7, 7, 7, 7);
}

Test(control, a_bound_holds_exactly_however_large)
{
    const int32_t large = (int32_t)test_size((1 << 20) + 3, (1 << 17) + 3);
    const int64_t most[] = { INT64_MAX, 3, 2, large, INT64_MAX, 1 };
    static const int64_t limit[] = { 70000, 5, 4, 2000000, 5, 0 };
    const int32_t want[] = { 70000, 3, 2, large, 5, 0 };
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        const deft_scope s = deft_scope_begin(cx);
        int64_t n = limit[i];
        int32_t count = -1;
        deft_tensor *state[] = { ROW(0, 0), counter() };
        cr_assert(deft_while(cx, below, add_one, &n, state, 2, most[i], state));
        OK(deft_item(state[1], &count));
        cr_assert_eq(count, want[i], "%zu: %d", i, (int)count);
        EXPECT(state[0], (float)want[i], (float)want[i]);
        OK(deft_scope_end(s));
    }
}

Test(control, results_may_take_the_place_of_what_was_handed_in)
{
    int64_t n = 2;
    deft_tensor *state[] = { ROW(.5f, .25f), counter() };
    cr_assert(deft_while(cx, below, logistic, &n, state, 2, 9, state));
    EXPECT(state[0], logistic_in_c(.5f, 2), logistic_in_c(.25f, 2));
}

Test(control, a_thousand_iterations_are_one_launch)
{
    int64_t n = 1000;
    deft_tensor *out[2], *const init[] = { ROW(.1f, .2f, .3f), counter() };
    const uint64_t before = stats().launches;
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, INT64_MAX, out));
    EXPECT(out[0], logistic_in_c(.1f, n), logistic_in_c(.2f, n), logistic_in_c(.3f, n));
    cr_assert_eq(stats().launches - before, 1, "%llu",
                 (unsigned long long)(stats().launches - before));
}

Test(control, reading_one_result_brings_the_others)
{
    int64_t n = 5;
    int32_t count = 0;
    deft_tensor *out[2], *const init[] = { ROW(.1f), counter() };
    cr_assert(deft_while(cx, below, logistic, &n, init, 2, 100, out));
    EXPECT(out[0], logistic_in_c(.1f, n));
    const deft_stats before = stats();
    OK(deft_item(out[1], &count));
    cr_assert_eq(stats().cuts, before.cuts);
    cr_assert_eq(stats().recomputed, 0);
}

/* ---- scan ---- */

/* state += row; results: sum of the row, row times state. */
FN(running)
{
    UNUSED;
    out[0] = deft_add(in[0], in[1]);
    out[1] = deft_sum(in[1], DEFT_ALL_AXES, 0);
    out[2] = deft_mul(in[1], in[0]);
    return DEFT_OK;
}

static const char *latest_trace(void)
{
    static char text[1 << 13];
    cr_assert_lt(deft_show(cx, "trace", text, sizeof text), sizeof text);
    return text;
}

/* The sums of rows are there with the state, because a tensor is computed from them. Nothing names
 * the products of rows any more. */
Test(control, reading_one_result_leaves_rows_that_no_tensor_needs)
{
    deft_tensor *out[3], *const x = ROW(1, 2);
    deft_tensor *const rows = deft_reshape(ROW(1, 2, 3, 4, 5, 6), DEFT_SHAPE(3, 2));
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &rows, 1, 3, 2, out));
    deft_tensor *const doubled = deft_mul(out[1], 2);
    deft_drop(&out[1]);
    deft_drop(&out[2]);
    EXPECT(out[0], 10, 14);
    cr_assert_not_null(strstr(latest_trace(), "final f32[3] "), "%s", latest_trace());
    cr_assert_null(strstr(latest_trace(), "final f32[3,2] "), "%s", latest_trace());
    EXPECT(doubled, 6, 14, 22);
    cr_assert_null(strstr(latest_trace(), "= loop "), "%s", latest_trace());
}

Test(control, scan_hands_rows_in_and_stacks_results)
{
    deft_tensor *out[3], *const x = ROW(1, 2);
    deft_tensor *const rows = deft_reshape(ROW(1, 2, 3, 4, 5, 6), DEFT_SHAPE(3, 2));
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &rows, 1, 3, 2, out));
    EXPECT(out[2], 1, 4, 6, 16, 25, 48);
    EXPECT(out[1], 3, 7, 11);
    EXPECT(out[0], 10, 14);
    cr_assert_eq(deft_shape_get(out[1]).rank, 1);
    cr_assert_eq(deft_shape_get(out[2]).dim[0], 3);
}

Test(control, scan_over_nothing)
{
    deft_tensor *out[3], *const x = ROW(1, 2);
    deft_tensor *const rows = deft_zeros(cx, DEFT_SHAPE(0, 2), DEFT_F32);
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &rows, 1, 0, 2, out));
    EXPECT(out[0], 1, 2);
    OK(deft_eval(&out[2], 1));
    cr_assert_eq(deft_shape_get(out[2]).dim[0], 0);
    cr_assert_eq(deft_shape_get(out[2]).dim[1], 2);
}

/* Rows are read as they lie: transposed, reversed, with gaps in the caller's memory. */
Test(control, scan_over_rows_that_lie_anyhow)
{
    static const float memory[] = { 1, 3, 5, -9, 2, 4, 6, -9 };
    deft_tensor *out[3], *const x = ROW(1, 2);
    deft_tensor *const wrapped =
        deft_wrap(cx, DEFT_SHAPE(3, 2), DEFT_F32, memory, sizeof memory, (const int64_t[]){ 1, 4 });
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &wrapped, 1, 3, 2, out));
    EXPECT(out[2], 1, 4, 6, 16, 25, 48);
    deft_tensor *const turned = deft_t(deft_reshape(ROW(1, 3, 5, 2, 4, 6), DEFT_SHAPE(2, 3)));
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &turned, 1, 3, 2, out));
    EXPECT(out[2], 1, 4, 6, 16, 25, 48);
    deft_tensor *const rows =
        deft_flip(deft_reshape(ROW(5, 6, 3, 4, 1, 2), DEFT_SHAPE(3, 2)), DEFT_AXES(0));
    cr_assert(deft_scan(cx, running, NULL, &x, 1, &rows, 1, 3, 2, out));
    EXPECT(out[2], 1, 4, 6, 16, 25, 48);
}

/* One program, whose rows are all of an array at first. Then a row is a part of a longer one, and
 * the last program leaves out the first row. */
Test(control, rows_in_reverse_may_be_parts_of_rows_the_next_time)
{
    for (int i = 0; i < 3; i++) {
        deft_tensor *out[3], *const x = ROW(1, 2);
        deft_tensor *const all =
            i == 0   ? deft_reshape(ROW(5, 6, 3, 4, 1, 2), DEFT_SHAPE(3, 2))
            : i == 1 ? deft_reshape(ROW(5, 6, 0, 3, 4, 0, 1, 2, 0), DEFT_SHAPE(3, 3))
                     : deft_reshape(ROW(0, 0, 5, 6, 3, 4, 1, 2), DEFT_SHAPE(4, 2));
        deft_tensor *const rows =
            deft_slice(all, i == 2 ? deft_range_of(-1, 0, -1) : DEFT_FLIP, DEFT_R(0, 2));
        cr_assert(deft_scan(cx, running, NULL, &x, 1, &rows, 1, 3, 2, out));
        EXPECT(out[2], 1, 4, 6, 16, 25, 48);
    }
}

/* States a and b, and a row. What b becomes is stacked three times. a becomes what b was, which
 * then lies among the rows of the iteration before. */
FN(stacked_states)
{
    UNUSED;
    deft_tensor *const sum = deft_sum(in[0], DEFT_ALL_AXES, 0);
    deft_tensor *const fresh = deft_add(deft_mul(deft_sub(in[1], sum), 0.5), in[2]);
    out[0] = in[1];
    out[1] = out[2] = out[3] = fresh;
    out[4] = deft_reshape(fresh, DEFT_SHAPE(2, 1));
    out[5] = deft_mul(fresh, deft_sum(fresh, DEFT_ALL_AXES, 0));
    return DEFT_OK;
}

enum { STACKED = 5 };

/* The same in C. rows: of b, then of the products. */
static void stack_in_c(float a[2], float b[2], const float *given, float rows[2][2 * STACKED])
{
    for (int i = 0; i < STACKED; i++) {
        const float sum = a[0] + a[1];
        for (int k = 0; k < 2; k++) {
            a[k] = b[k];
            rows[0][2 * i + k] = (b[k] - sum) * 0.5f + given[2 * i + k];
        }
        memcpy(b, &rows[0][2 * (size_t)i], 2 * sizeof *b);
        for (int k = 0; k < 2; k++) rows[1][2 * i + k] = b[k] * (b[0] + b[1]);
    }
}

Test(control, states_that_are_stacked_lie_among_the_rows)
{
    static const float given[2 * STACKED] = { 1, 2, -3, 4, 5, 6, 7, -8, 9, 10 };
    float a[2] = { 1, 2 }, b[2] = { 3, 5 }, want[2][2 * STACKED];
    stack_in_c(a, b, given, want);
    for (int64_t length = STACKED; length >= 0; length -= STACKED) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *const init[] = { ROW(1, 2), ROW(3, 5) }, *out[6];
        deft_tensor *const all = deft_from(cx, DEFT_SHAPE(length, 2), DEFT_F32, given,
                                           (size_t)length * 2 * sizeof *given);
        cr_assert(deft_scan(cx, stacked_states, NULL, init, 2, &all, 1, length, 4, out));
        deft_keep(out[0]), deft_keep(out[1]);
        OK(deft_eval(out, 6));
        for (int i = 2; length && i < 6; i++)
            expect(deft_reshape(out[i], DEFT_SHAPE(2 * STACKED)), 2 * STACKED, want[i == 5]);
        OK(deft_scope_end(s));
        /* The rows are gone, and other values have their memory. */
        deft_tensor *other[8];
        for (int i = 0; i < 8; i++)
            other[i] = deft_keep(deft_full(cx, DEFT_SHAPE(STACKED, 2), DEFT_F32, -77));
        OK(deft_eval(other, 8));
        if (length) EXPECT(out[0], a[0], a[1]);
        if (length) EXPECT(out[1], b[0], b[1]);
        if (!length) EXPECT(out[0], 1, 2);
        if (!length) EXPECT(out[1], 3, 5);
        for (int i = 0; i < 8; i++) deft_drop(&other[i]);
        deft_drop(&out[0]), deft_drop(&out[1]);
    }
}

/* The rows of the first loop are gone before the second, which gets their memory. */
Test(control, a_final_state_outlives_the_rows_it_lay_among)
{
    static const float given[2 * STACKED] = { 1, 2, -3, 4, 5, 6, 7, -8, 9, 10 };
    float a[2] = { 1, 2 }, b[2] = { 3, 5 }, want[2][2 * STACKED];
    deft_tensor *first[6], *second[6], *const init[] = { ROW(1, 2), ROW(3, 5) };
    deft_tensor *const all = deft_from(cx, DEFT_SHAPE(STACKED, 2), DEFT_F32, given, sizeof given);
    stack_in_c(a, b, given, want);
    cr_assert(deft_scan(cx, stacked_states, NULL, init, 2, &all, 1, STACKED, 4, first));
    deft_tensor *const sums = deft_sum(first[2], DEFT_AXES(0), 0), *const other[] = { sums, sums };
    cr_assert(deft_scan(cx, stacked_states, NULL, other, 2, &all, 1, STACKED, 4, second));
    deft_tensor *const both[] = { first[0], first[1], second[2] };
    OK(deft_eval(both, 3));
    EXPECT(first[0], a[0], a[1]);
    EXPECT(first[1], b[0], b[1]);
}

/* state = 0.5 state + row, also a result: one kernel. */
FN(average)
{
    UNUSED;
    out[0] = out[1] = deft_add(deft_mul(in[0], 0.5), in[1]);
    return DEFT_OK;
}

/* One computed value, the same in each element of each row, is no array to read rows from. */
FN(add_row_and_product)
{
    UNUSED;
    out[0] = deft_add(in[0], in[1]);
    out[1] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

Test(control, rows_that_are_all_one_value)
{
    deft_tensor *const target = deft_keep(deft_zeros(cx, DEFT_SHAPE(2, 3), DEFT_F32));
    for (int assigned = 0; assigned < 2; assigned++) {
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *x = ROW(1, 2, 3), *out[2];
        deft_tensor *const w = deft_mul(deft_sum(x, DEFT_ALL_AXES, 0), 0.5);
        deft_tensor *rows = deft_expand(w, DEFT_SHAPE(2, 3));
        if (assigned) rows = deft_assign(target, rows);
        cr_assert(deft_scan(cx, add_row_and_product, NULL, &x, 1, &rows, 1, 2, 1, out), "%s",
                  deft_message(cx));
        EXPECT(out[0], 7, 8, 9);
        EXPECT(out[1], 3, 6, 9, 12, 15, 18);
        EXPECT(deft_sum(out[1], DEFT_AXES(0), 0), 15, 21, 27);
        OK(deft_step_end(s));
        if (assigned) EXPECT(target, 3, 3, 3, 3, 3, 3);
    }
}

Test(control, elementwise_rows_that_lie_anyhow)
{
    static const float memory[] = { 1, 3, 5, -9, 2, 4, 6, -9 };
    static const float want[] = { 1.5f, 3, 3.75f, 5.5f, 6.875f, 8.75f };
    deft_tensor *out[2], *const x = ROW(1, 2);
    deft_tensor *const rows[] = {
        deft_wrap(cx, DEFT_SHAPE(3, 2), DEFT_F32, memory, sizeof memory, (const int64_t[]){ 1, 4 }),
        deft_t(deft_reshape(ROW(1, 3, 5, 2, 4, 6), DEFT_SHAPE(2, 3))),
        deft_slice(deft_reshape(ROW(0, 1, 2, 0, 3, 4, 0, 5, 6), DEFT_SHAPE(3, 3)), DEFT_FULL,
                   DEFT_R(1, DEFT_END)),
        deft_add(deft_reshape(ROW(0, 1, 2, 3, 4, 5), DEFT_SHAPE(3, 2)), 1),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert(deft_scan(cx, average, NULL, &x, 1, &rows[i], 1, 3, 1, out));
        expect(out[1], 6, want);
        EXPECT(out[0], 6.875f, 8.75f);
    }
}

/* Rows that are also there as a whole. */
FN(add_row_and_all)
{
    UNUSED;
    out[0] = deft_add(deft_add(in[0], in[1]), (deft_tensor *)user);
    return DEFT_OK;
}

Test(control, rows_may_be_used_as_a_whole_too)
{
    deft_tensor *x = ROW(0, 0, 0), *const rows = ROW(1, 2, 4);
    cr_assert(deft_scan(cx, add_row_and_all, rows, &x, 1, &rows, 1, 3, 0, &x));
    EXPECT(x, 10, 13, 19);
}

/* The same program with an extent that broadcasts where it did not before. */
Test(control, extents_of_the_surroundings_are_guarded)
{
    for (int k = 0; k < 2; k++) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *x = ROW(0, 0, 0), *const rows = ROW(1, 2, 4);
        deft_tensor *const y = k ? ROW(5) : ROW(5, 6, 7);
        cr_assert(deft_scan(cx, add_row_and_all, y, &x, 1, &rows, 1, 3, 0, &x));
        if (k)
            EXPECT(x, 22, 22, 22);
        else
            EXPECT(x, 22, 25, 28);
        OK(deft_scope_end(s));
    }
}

FN(small_into_large)
{
    UNUSED;
    out[0] = deft_mul(in[0], 2);
    out[1] = deft_add(in[1], in[0]);
    return DEFT_OK;
}

Test(control, states_of_several_shapes)
{
    deft_tensor *state[] = { ROW(1), ROW(0, 10, 20) };
    cr_assert(deft_scan(cx, small_into_large, NULL, state, 2, NULL, 0, 4, 0, state));
    EXPECT(state[0], 16);
    EXPECT(state[1], 15, 25, 35);
}

FN(swap_states)
{
    UNUSED;
    out[0] = in[1];
    out[1] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

Test(control, states_advance_together)
{
    deft_tensor *state[] = { ROW(0, 1), ROW(1, 1) };
    cr_assert(deft_scan(cx, swap_states, NULL, state, 2, NULL, 0, 20, 0, state));
    EXPECT(state[0], 6765, 10946);
    EXPECT(state[1], 10946, 17711);
}

FN(only_results)
{
    UNUSED;
    out[0] = deft_mul(in[0], 2);
    return DEFT_OK;
}

Test(control, scan_without_states_is_a_map_of_rows)
{
    deft_tensor *out, *const rows = ROW(1, 2, 3);
    cr_assert(deft_scan(cx, only_results, NULL, NULL, 0, &rows, 1, 3, 1, &out));
    EXPECT(out, 2, 4, 6);
}

/* x = x @ m / |x|, in which the product and the sum need all of x. */
FN(power_iteration)
{
    UNUSED;
    deft_tensor *const y = deft_matmul(*(deft_tensor **)user, in[0]);
    out[0] = deft_div(y, deft_sqrt(deft_sum(deft_square(y), DEFT_ALL_AXES, 0)));
    return DEFT_OK;
}

Test(control, a_body_that_is_no_map)
{
    deft_tensor *m = deft_reshape(ROW(2, 1, 1, 2), DEFT_SHAPE(2, 2));
    deft_tensor *x = deft_reshape(ROW(1, 0), DEFT_SHAPE(2, 1));
    float got[2];
    cr_assert(deft_scan(cx, power_iteration, &m, &x, 1, NULL, 0, 60, 0, &x));
    OK(deft_read(x, DEFT_F32, got, sizeof got));
    for (int i = 0; i < 2; i++) cr_assert_float_eq(got[i], 0.70710678f, 1e-6f);
}

/* Jacobi steps on the inside of a line: writes through a view of its state. */
FN(smooth)
{
    UNUSED;
    deft_tensor *const u = deft_add(in[0], 0);
    deft_tensor *const sum =
        deft_add(deft_slice(u, DEFT_R(0, -2)), deft_slice(u, DEFT_R(2, DEFT_END)));
    deft_assign(deft_slice(u, DEFT_R(1, -1)), deft_mul(sum, 0.5));
    out[0] = u;
    return DEFT_OK;
}

Test(control, assigning_inside_what_was_made_inside)
{
    float u[5] = { 8, 0, 0, 0, 0 };
    deft_tensor *x = row(5, u);
    cr_assert(deft_scan(cx, smooth, NULL, &x, 1, NULL, 0, 3, 0, &x));
    for (int k = 0; k < 3; k++) {
        float next[5] = { u[0], 0, 0, 0, u[4] };
        for (int i = 1; i < 4; i++) next[i] = (u[i - 1] + u[i + 1]) * 0.5f;
        memcpy(u, next, sizeof u);
    }
    expect(x, 5, u);
}

FN(numbers_as_results)
{
    UNUSED;
    out[0] = deft_num(c, 7);
    return DEFT_OK;
}

Test(control, a_bare_number_takes_the_form_of_its_state)
{
    deft_tensor *x = ROW(1, 2, 3);
    cr_assert(deft_scan(cx, numbers_as_results, NULL, &x, 1, NULL, 0, 1, 0, &x));
    EXPECT(x, 7, 7, 7);
}

/* ---- branches ---- */

FN(take_there)
{
    UNUSED;
    out[0] = deft_take(in[0], in[1], 0);
    return DEFT_OK;
}

FN(negate)
{
    UNUSED;
    out[0] = deft_neg(deft_slice(in[0], DEFT_AT(0)));
    return DEFT_OK;
}

static deft_tensor *branch(float at, int64_t index)
{
    deft_tensor *out, *const in[] = { ROW(1, 2, 3),
                                      deft_full(cx, DEFT_SHAPE(), DEFT_I64, (double)index) };
    deft_tensor *const condition = deft_gt(deft_full(cx, DEFT_SHAPE(), DEFT_F32, (double)at), 0);
    return deft_cond(condition, take_there, negate, NULL, in, 2, &out, 1) ? out : NULL;
}

Test(control, the_other_branch_is_not_computed)
{
    EXPECT(branch(1, 2), 3);
    EXPECT(branch(-1, 77), -1);
    float v;
    cr_assert_eq(deft_item(branch(1, 77), &v), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(cx), "take: index 77"), "%s", deft_message(cx));
    EXPECT(branch(1, 1), 2);
}

FN(two_up)
{
    UNUSED;
    deft_tensor *const e = deft_exp(in[0]); /* needed by both results, and by no one else */
    out[0] = deft_add(e, 1);
    out[1] = deft_sum(e, DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

FN(two_down)
{
    UNUSED;
    out[0] = in[0];
    out[1] = deft_num(c, -1);
    return DEFT_OK;
}

Test(control, branches_with_several_results)
{
    for (int up = 0; up < 2; up++) {
        deft_tensor *out[2], *const x = ROW(0, 0);
        deft_tensor *const condition = deft_full(cx, DEFT_SHAPE(), DEFT_BOOL, up);
        cr_assert(deft_cond(condition, two_up, two_down, NULL, &x, 1, out, 2));
        if (up)
            EXPECT(out[0], 2, 2);
        else
            EXPECT(out[0], 0, 0);
        EXPECT(out[1], up ? 2 : -1);
    }
}

/* ---- nesting ---- */

/* state * 2 when the row is even, else plus the row, by a loop of its own. */
FN(fewer_than_row)
{
    UNUSED;
    out[0] = deft_lt(in[1], *(deft_tensor **)user);
    return DEFT_OK;
}

FN(count_up)
{
    UNUSED;
    deft_tensor *state[] = { in[0], deft_zeros(c, DEFT_SHAPE(), DEFT_F32) };
    deft_tensor *limit = in[1];
    if (!deft_while(c, fewer_than_row, add_one, &limit, state, 2, 100, state)) return DEFT_OK;
    out[0] = state[0];
    return DEFT_OK;
}

FN(twice)
{
    UNUSED;
    out[0] = deft_mul(in[0], 2);
    return DEFT_OK;
}

FN(even_or_odd)
{
    UNUSED;
    deft_tensor *const even = deft_eq(deft_remainder(in[1], 2), 0);
    return deft_cond(even, twice, count_up, NULL, in, 2, out, 1) ? DEFT_OK : DEFT_E_STATE;
}

Test(control, loops_in_branches_in_loops)
{
    deft_tensor *x = ROW(1, 10), *const rows = ROW(2, 3, 4, 1);
    cr_assert(deft_scan(cx, even_or_odd, NULL, &x, 1, &rows, 1, 4, 0, &x), "%s", deft_message(cx));
    EXPECT(x, (1 * 2 + 3) * 2 + 1, (10 * 2 + 3) * 2 + 1);
}

static int depth_left;

FN(deeper)
{
    UNUSED;
    if (depth_left-- == 0) {
        out[0] = deft_add(in[0], 1);
        return DEFT_OK;
    }
    return deft_scan(c, deeper, NULL, in, 1, NULL, 0, 2, 0, out) ? DEFT_OK : DEFT_E_LIMIT;
}

Test(control, nesting_is_bounded)
{
    deft_tensor *out, *const x = deft_zeros(cx, DEFT_SHAPE(), DEFT_F32);
    depth_left = 7;
    cr_assert(deft_scan(cx, deeper, NULL, &x, 1, NULL, 0, 2, 0, &out));
    EXPECT(out, 256);
    depth_left = 20;
    cr_assert_not(deft_scan(cx, deeper, NULL, &x, 1, NULL, 0, 2, 0, &out));
    cr_assert_eq(deft_error(cx), DEFT_E_LIMIT);
    cr_assert(strstr(deft_message(cx), "scan: nested more than 16 deep"), "%s", deft_message(cx));
}

/* ---- identity and replay ---- */

static void grow(int64_t n, int64_t iterations, float by)
{
    float data[16];
    for (int64_t i = 0; i < n; i++) data[i] = (float)i / 16;
    deft_tensor *out[2], *const init[] = { deft_mul(row((size_t)n, data), (double)by), counter() };
    cr_assert(deft_while(cx, below, logistic, &iterations, init, 2, 1000, out));
    float got[16];
    OK(deft_read(out[0], DEFT_F32, got, (size_t)n * sizeof *got));
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(got[i], logistic_in_c(data[i] * by, iterations), "%d", (int)i);
}

Test(control, extents_numbers_and_bounds_make_no_new_plan)
{
    const deft_scope s = deft_scope_begin(cx);
    grow(8, 10, 1);
    OK(deft_scope_end(s));
    const uint64_t built = stats().plans_built;
    for (int k = 0; k < 20; k++) {
        const deft_scope t = deft_scope_begin(cx);
        grow(2 + k % 14, k, 0.25f + (float)k / 64);
        OK(deft_scope_end(t));
    }
    cr_assert_eq(stats().plans_built, built, "%llu", (unsigned long long)stats().plans_built);
    cr_assert_gt(stats().cuts_matched, 15);
}

/* w -= rate * (w - row). */
FN(towards)
{
    UNUSED;
    out[0] = deft_sub(in[0], deft_mul(deft_sub(in[0], in[1]), deft_param_f(c, "rate")));
    return DEFT_OK;
}

static deft_status learn(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    deft_tensor *w = user, *next;
    (void)n_in, (void)n_out;
    if (!deft_scan(c, towards, NULL, &w, 1, in, 1, 2, 0, &next)) return DEFT_E_ARG;
    deft_assign(w, next);
    out[0] = deft_sum(next, DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

Test(control, a_capture_replays_loops_with_its_parameters)
{
    deft_tensor *const w = deft_keep(ROW(0, 0));
    OK(deft_eval(&w, 1));
    deft_capture *capture = deft_capture_create(cx, learn, w);
    float want[2] = { 0, 0 };
    for (int k = 0; k < 5; k++) {
        const float rate = 0.5f / (float)(k + 1);
        deft_tensor *out, *const rows = deft_reshape(ROW(1, 2, 3, (float)k), DEFT_SHAPE(2, 2));
        OK(deft_capture_set_f(capture, "rate", (double)rate));
        OK(deft_capture_call(capture, &rows, 1, &out, 1));
        want[0] -= (want[0] - 1) * rate, want[1] -= (want[1] - 2) * rate;
        want[0] -= (want[0] - 3) * rate, want[1] -= (want[1] - (float)k) * rate;
        expect(w, 2, want);
        EXPECT(out, want[0] + want[1]);
    }
    deft_capture_stats s;
    deft_capture_stats_read(capture, &s, sizeof s);
    cr_assert_eq(s.replayed, 4, "%s", deft_capture_reason(capture));
    deft_capture_destroy(&capture);
}

FN(long_body)
{
    UNUSED;
    deft_tensor *x = in[0];
    for (int i = 0; i < 100; i++) x = deft_add(x, 1);
    out[0] = x;
    return DEFT_OK;
}

/* A loop half recorded can't be cut; what is pending before and after it can. */
Test(control, budgets_do_not_cut_a_loop_in_two)
{
    const deft_step_options o = { .size = sizeof o, .max_nodes = 20 };
    deft_tensor *const w = deft_keep(ROW(0));
    const deft_scope s = deft_step_begin_with(cx, &o);
    deft_tensor *x = w;
    for (int i = 0; i < 15; i++) x = deft_add(x, 1);
    cr_assert(deft_scan(cx, long_body, NULL, &x, 1, NULL, 0, 3, 0, &x), "%s", deft_message(cx));
    for (int i = 0; i < 25; i++) x = deft_add(x, 1);
    deft_assign(w, x);
    OK(deft_step_end(s));
    EXPECT(w, 340);
    cr_assert_gt(stats().cuts, 1);
}

/* ---- steps ---- */

Test(control, a_step_that_fails_in_a_loop_changes_nothing)
{
    float target[3] = { 1, 1, 1 };
    deft_tensor *const w = deft_keep(ROW(1, 2, 3));
    deft_tensor *const mut =
        deft_wrap_mut(cx, DEFT_SHAPE(3), DEFT_F32, target, sizeof target, NULL);
    for (int bad = 1; bad >= 0; bad--) {
        int64_t n = 4;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *state[] = { w, counter() };
        cr_assert(deft_while(cx, below, logistic, &n, state, 2, 100, state));
        deft_assign(w, deft_add(state[0], branch(1, bad ? 9 : 1)));
        deft_assign(mut, state[0]);
        cr_assert_eq(deft_step_end(s), bad ? DEFT_E_RANGE : DEFT_OK, "%s", deft_message(cx));
        if (!bad) break;
        EXPECT(w, 1, 2, 3);
        cr_assert_eq(target[1], 1);
    }
    EXPECT(w, logistic_in_c(1, 4) + 2, logistic_in_c(2, 4) + 2, logistic_in_c(3, 4) + 2);
    for (int i = 0; i < 3; i++) cr_assert_eq(target[i], logistic_in_c((float)i + 1, 4));
}

/* ---- donation ---- */

/* A running sum of the rows. */
FN(add_row)
{
    UNUSED;
    out[0] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

/* The sum of the rows of a matrix with two columns, by a loop. */
static deft_tensor *sum_of_rows(deft_tensor *rows)
{
    deft_tensor *sum = deft_zeros(cx, DEFT_SHAPE(2), DEFT_F32);
    const int64_t n = deft_dim(rows, 0);
    return deft_scan(cx, add_row, NULL, &sum, 1, &rows, 1, n, 0, &sum) ? sum : NULL;
}

/* A kept matrix [4, 2] of the numbers 1 to 8. */
static deft_tensor *kept_matrix(void)
{
    deft_tensor *m = deft_keep(deft_reshape(ROW(1, 2, 3, 4, 5, 6, 7, 8), DEFT_SHAPE(4, 2)));
    OK(deft_eval(&m, 1));
    return m;
}

static deft_tensor *rows_of(deft_tensor *m, int64_t first, int64_t end)
{
    return deft_slice(m, DEFT_R(first, end));
}

Test(control, a_tensor_grows_in_place_before_loops_that_read_it)
{
    deft_tensor *const m = kept_matrix();
    for (int k = 0; k < 4; k++) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_assign(rows_of(m, k, k + 1), deft_full(cx, DEFT_SHAPE(1, 2), DEFT_F32, 10));
        deft_tensor *const sum = deft_keep(sum_of_rows(m)), *const rows = deft_mul(m, sum);
        deft_tensor *const scaled = deft_keep(sum_of_rows(rows));
        OK(deft_step_end(s));
        /* At first, the memory is that of the numbers it was made from. */
        if (k > 0) cr_assert_eq(stats().donated - donated, 1, "step %d", k);
        float got[8], want[2] = { 0, 0 }, squares[2];
        OK(deft_read(m, DEFT_F32, got, sizeof got));
        for (int i = 0; i < 8; i++) want[i % 2] += got[i];
        for (int i = 0; i < 2; i++) squares[i] = want[i] * want[i];
        expect(sum, 2, want);
        expect(scaled, 2, squares);
        for (int i = 0; i <= k; i++) cr_assert_eq(got[2 * i], 10);
    }
}

/* One tensor for all layers: each layer writes its row, and a loop reads the rows so far. */
Test(control, updates_before_and_after_a_loop_are_in_one_place)
{
    deft_tensor *const m = kept_matrix();
    float want[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    for (int k = 0; k < 4; k++) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *x = deft_full(cx, DEFT_SHAPE(1, 2), DEFT_F32, k);
        for (int layer = 0; layer < 3; layer++) {
            deft_assign(rows_of(m, layer, layer + 1), x);
            x = deft_reshape(sum_of_rows(rows_of(m, 0, layer + 2)), DEFT_SHAPE(1, 2));
        }
        deft_tensor *const last = deft_keep(deft_mul(x, 2));
        OK(deft_step_end(s));
        if (k > 0) cr_assert_eq(stats().donated - donated, 1, "step %d", k);
        for (int i = 0; i < 2; i++) {
            want[i] = (float)k;
            want[2 + i] = want[i] + want[2 + i];
            want[4 + i] = want[i] + want[2 + i] + want[4 + i];
        }
        expect(m, 8, want);
        EXPECT(last, 2 * (want[0] + want[2] + want[4] + want[6]),
               2 * (want[1] + want[3] + want[5] + want[7]));
    }
}

/* The version between two updates is read after the second one. */
Test(control, an_update_after_a_loop_leaves_what_is_read_later)
{
    deft_tensor *const m = kept_matrix();
    for (int k = 0; k < 3; k++) {
        float was[8], between[2] = { 0, 0 };
        OK(deft_read(m, DEFT_F32, was, sizeof was));
        const deft_scope s = deft_step_begin(cx);
        deft_assign(rows_of(m, 0, 1), deft_full(cx, DEFT_SHAPE(1, 2), DEFT_F32, k));
        deft_tensor *const first = deft_mul(m, 1), *const sum = sum_of_rows(m);
        deft_assign(rows_of(m, 1, 2), deft_reshape(sum, DEFT_SHAPE(1, 2)));
        deft_tensor *const total = sum_of_rows(m);
        deft_tensor *const late = deft_keep(sum_of_rows(deft_mul(first, deft_add(total, 1))));
        OK(deft_step_end(s));
        was[0] = was[1] = (float)k;
        for (int i = 0; i < 8; i++) between[i % 2] += was[i];
        for (int i = 0; i < 2; i++) was[2 + i] = between[i];
        expect(m, 8, was);
        for (int i = 0; i < 2; i++) between[i] *= was[i] + was[2 + i] + was[4 + i] + was[6 + i] + 1;
        expect(late, 2, between);
    }
}

Test(control, a_loop_reads_the_old_version_of_what_is_assigned)
{
    deft_tensor *const m = kept_matrix();
    for (int k = 0; k < 3; k++) {
        float was[8], want[2] = { 0, 0 };
        OK(deft_read(m, DEFT_F32, was, sizeof was));
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const old = deft_keep(sum_of_rows(m));
        deft_assign(rows_of(m, k, k + 1), deft_full(cx, DEFT_SHAPE(1, 2), DEFT_F32, -k));
        OK(deft_step_end(s));
        cr_assert_eq(stats().donated, donated);
        for (int i = 0; i < 8; i++) want[i % 2] += was[i];
        expect(old, 2, want);
        OK(deft_read(m, DEFT_F32, was, sizeof was));
        cr_assert_eq(was[2 * k], -k);
    }
}

Test(control, a_step_that_fails_after_a_loop_changes_nothing_in_place)
{
    deft_tensor *const m = kept_matrix(), *const table = deft_keep(ROW(3, 4, 5, 6));
    for (int bad = 1; bad >= 0; bad--) {
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const sum = deft_sum(table, DEFT_ALL_AXES, 0); /* of some launches */
        deft_tensor *const value = deft_sum(deft_mul(table, sum), DEFT_ALL_AXES, 0);
        deft_assign(rows_of(m, 0, 1), deft_expand(value, DEFT_SHAPE(1, 2)));
        deft_tensor *const at = deft_cast(deft_add(sum_of_rows(m), bad ? 0 : -339), DEFT_I64);
        deft_tensor *const found = deft_keep(deft_take(table, at, 0));
        cr_assert_eq(deft_step_end(s), bad ? DEFT_E_RANGE : DEFT_OK, "%s", deft_message(cx));
        if (bad) EXPECT(m, 1, 2, 3, 4, 5, 6, 7, 8);
        if (!bad) EXPECT(found, 3, 6);
    }
    EXPECT(m, 324, 324, 3, 4, 5, 6, 7, 8);
}

/* Every parameter is replaced as a whole, in the part after the loop. */
Test(control, what_replaces_a_tensor_after_a_loop_takes_its_memory)
{
    deft_tensor *const m = kept_matrix(), *const w = deft_keep(ROW(1, 1));
    OK(deft_eval((deft_tensor *[]){ w }, 1));
    for (int k = 0; k < 3; k++) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_assign(w, deft_add(deft_mul(w, 2), sum_of_rows(m)));
        OK(deft_step_end(s));
        cr_assert_eq(stats().donated - donated, 1, "step %d", k);
    }
    EXPECT(w, 8 + 7 * 16, 8 + 7 * 20);
}

/* A product: the loop is no kernel, so its plan stays one of parts. */
FN(times_matrix)
{
    UNUSED;
    out[0] = deft_matmul(in[0], (deft_tensor *)user);
    return DEFT_OK;
}

static deft_tensor *multiplied(deft_tensor *x, deft_tensor *matrix, int64_t times)
{
    cr_assert(deft_scan(cx, times_matrix, matrix, &x, 1, NULL, 0, times, 0, &x), "%s",
              deft_message(cx));
    return x;
}

static deft_tensor *kept_row(float a, float b)
{
    deft_tensor *const t = deft_keep(deft_reshape(ROW(a, b), DEFT_SHAPE(1, 2)));
    OK(deft_eval((deft_tensor *[]){ t }, 1));
    return t;
}

static deft_tensor *doubling(void)
{
    return deft_reshape(ROW(2, 0, 0, 2), DEFT_SHAPE(2, 2));
}

/* How many of n values, of which t is one, the last part stores in the memory of what they replace:
 * none on a GPU. */
static uint64_t n_donated(deft_tensor *t, uint64_t n)
{
    deft_device where = DEFT_CPU;
    OK(deft_device_of(t, &where));
    return where == DEFT_CPU ? n : 0;
}

/* early could be replaced before the loop, and late after it. Both wait for the last part. */
Test(control, the_last_part_writes_over_what_it_replaces)
{
    deft_tensor *const early = kept_row(1, 2), *const late = kept_row(1, 1);
    for (int k = 0; k < 3; k++) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const by = multiplied(early, doubling(), 2);
        deft_assign(early, deft_add(early, 1));
        deft_assign(late, deft_add(deft_mul(late, 2), by));
        OK(deft_step_end(s));
        cr_assert_eq(stats().donated - donated, n_donated(late, 2), "step %d", k);
    }
    EXPECT(early, 4, 5);
    EXPECT(late, 8 + 4 * (4 + 2 * 2 + 3), 8 + 4 * (4 * 2 + 2 * 3 + 4));
}

/* The state of the loop is the tensor itself. It is a result, and is read in the last part. */
Test(control, a_loop_without_iterations_leaves_the_old_version)
{
    deft_tensor *const w = kept_row(1, 2);
    for (int k = 0; k < 3; k++) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const same = deft_keep(multiplied(w, doubling(), 0));
        deft_tensor *const sum = deft_keep(deft_sum(deft_cumsum(same, 1), DEFT_ALL_AXES, 0));
        deft_assign(w, deft_add(deft_mul(w, 10), sum));
        OK(deft_step_end(s));
        cr_assert_eq(stats().donated - donated, n_donated(w, 1), "step %d", k);
        if (k == 0) EXPECT(same, 1, 2);
        if (k == 0) EXPECT(w, 14, 24);
        if (k == 1) EXPECT(same, 14, 24);
        if (k == 1) EXPECT(w, 192, 292);
    }
}

Test(control, a_step_that_fails_in_the_last_part_changes_nothing)
{
    deft_tensor *const w = kept_row(1, 2), *const table = deft_keep(ROW(3, 4, 5, 6));
    for (int bad = 1; bad >= 0; bad--) {
        const uint64_t donated = stats().donated;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const by = multiplied(w, doubling(), 1);
        deft_tensor *const at = deft_cast(deft_add(by, bad ? 0 : -2), DEFT_I64);
        deft_assign(w, deft_add(w, 1));
        deft_tensor *const found = deft_keep(deft_take(table, deft_reshape(at, DEFT_SHAPE(2)), 0));
        cr_assert_eq(deft_step_end(s), bad ? DEFT_E_RANGE : DEFT_OK, "%s", deft_message(cx));
        if (bad) EXPECT(w, 1, 2);
        if (!bad) EXPECT(found, 3, 5);
        if (!bad) cr_assert_leq(stats().donated - donated, 1);
    }
    EXPECT(w, 2, 3);
}

/* ---- submitted steps ---- */

Test(control, a_step_with_a_loop_may_be_left_to_run)
{
    float target[2] = { 0, 0 };
    deft_tensor *const w = deft_keep(ROW(.1f, .2f));
    deft_tensor *const mut =
        deft_wrap_mut(cx, DEFT_SHAPE(2), DEFT_F32, target, sizeof target, NULL);
    float want[2] = { .1f, .2f };
    for (int k = 0; k < 5; k++) {
        int64_t n = 3 + k;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *state[] = { w, counter() };
        cr_assert(deft_while(cx, below, logistic, &n, state, 2, INT64_MAX, state));
        deft_assign(w, state[0]);
        deft_assign(mut, state[0]);
        OK(deft_step_submit(s));
        for (int i = 0; i < 2; i++) want[i] = logistic_in_c(want[i], n);
    }
    expect(w, 2, want);
    OK(deft_wait(cx));
    cr_assert_eq(target[0], want[0]);
    cr_assert_eq(target[1], want[1]);
}

static void *interrupt_soon(void *user)
{
    const struct timespec t = { .tv_nsec = 30000000 };
    nanosleep(&t, NULL);
    deft_interrupt(user);
    return NULL;
}

Test(control, an_endless_loop_can_be_interrupted, .timeout = 60)
{
    pthread_t thread;
    deft_tensor *state[] = { deft_keep(ROW(.1f)), counter() };
    cr_assert(deft_while(cx, always, add_one, NULL, state, 2, INT64_MAX, state));
    cr_assert_eq(pthread_create(&thread, NULL, interrupt_soon, cx), 0);
    cr_assert_eq(deft_eval(state, 1), DEFT_E_INTERRUPTED);
    pthread_join(thread, NULL);
    EXPECT(ROW(2), 2);
}

/* ---- mistakes ---- */

static deft_tensor *outside;
static deft_scope outside_scope;

FN(reads)
{
    UNUSED;
    float v = 0;
    cr_assert_eq(deft_item(in[0], &v), DEFT_E_STATE);
    cr_assert_eq(deft_wait(c), DEFT_E_STATE);
    cr_assert_eq(deft_step_submit(*(deft_scope *)user), DEFT_E_STATE);
    cr_assert_eq(deft_step_end(*(deft_scope *)user), DEFT_E_STATE);
    cr_assert_eq(deft_eval(&outside, 1), DEFT_E_STATE);
    cr_assert(strstr(deft_message(c), "eval: inside the function of a loop"), "%s",
              deft_message(c));
    out[0] = deft_add(in[0], 1);
    return DEFT_OK;
}

Test(control, nothing_is_computed_inside)
{
    deft_tensor *x = ROW(1);
    outside = ROW(5);
    deft_scope s = deft_step_begin(cx);
    cr_assert(deft_scan(cx, reads, &s, &x, 1, NULL, 0, 3, 0, &x));
    EXPECT(x, 4);
    OK(deft_step_end(s));
}

FN(keeps)
{
    UNUSED;
    out[0] = deft_keep(deft_add(in[0], 1));
    return DEFT_OK;
}
FN(assigns)
{
    UNUSED;
    out[0] = in[0];
    deft_assign(outside, in[0]);
    return DEFT_OK;
}
FN(assigns_a_view)
{
    UNUSED;
    out[0] = in[0];
    deft_assign(deft_slice(outside, DEFT_AT(0)), 1);
    return DEFT_OK;
}
FN(draws)
{
    UNUSED;
    deft_rng rng = { 1, 2 };
    out[0] = deft_uniform(c, &rng, DEFT_SHAPE(1), DEFT_F32, 0, 1);
    return DEFT_OK;
}
FN(begins_a_step)
{
    UNUSED;
    out[0] = in[0];
    (void)deft_step_begin(c);
    return DEFT_OK;
}
FN(returns_outward)
{
    UNUSED;
    out[0] = deft_scope_return(outside_scope, in[0]);
    return DEFT_OK;
}
FN(of_another_shape)
{
    UNUSED;
    out[0] = deft_stack((deft_tensor *[]){ in[0], in[0] }, 2, 0);
    return DEFT_OK;
}
FN(of_another_dtype)
{
    UNUSED;
    out[0] = deft_cast(in[0], DEFT_F64);
    return DEFT_OK;
}
FN(leaves_null)
{
    UNUSED;
    return DEFT_OK;
}
FN(gives_up)
{
    UNUSED;
    return DEFT_E_LIMIT;
}
FN(adds_wrong_shapes)
{
    UNUSED;
    out[0] = deft_add(in[0], deft_zeros(c, DEFT_SHAPE(5, 7), DEFT_F32));
    return DEFT_OK;
}

Test(control, mistakes_inside_have_a_sentence)
{
    static const struct {
        deft_body_fn fn;
        deft_status status;
        const char *text;
    } cases[] = {
        { keeps, DEFT_E_STATE, "keep: a tensor made inside a loop" },
        { assigns, DEFT_E_STATE, "assign: a tensor from outside a loop, branch or vmap" },
        { assigns_a_view, DEFT_E_STATE, "assign: a tensor from outside a loop, branch or vmap" },
        { draws, DEFT_E_STATE, "uniform: inside a loop or branch each iteration" },
        { begins_a_step, DEFT_E_STATE, "step_begin: inside the function" },
        { returns_outward, DEFT_E_STATE, "scope_return: the scope is not open" },
        { of_another_shape, DEFT_E_SHAPE,
          "scan: its body makes result 0 f32[2,3], it must be f32[3]" },
        { of_another_dtype, DEFT_E_SHAPE,
          "scan: its body makes result 0 f64[3], it must be f32[3]" },
        { leaves_null, DEFT_E_ARG, "scan: its body leaves result 0 of 1 NULL" },
        { gives_up, DEFT_E_LIMIT, "scan: its body failed" },
        { adds_wrong_shapes, DEFT_E_SHAPE, "add: [3] and [5,7] do not broadcast" },
    };
    outside = deft_keep(ROW(5, 6, 7));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outside_scope = deft_scope_begin(cx);
        deft_tensor *out = outside, *const x = ROW(1, 2, 3);
        cr_assert_not(deft_scan(cx, cases[i].fn, NULL, &x, 1, NULL, 0, 3, 0, &out), "%zu", i);
        cr_assert_null(out);
        cr_assert_eq(deft_error(cx), cases[i].status, "%zu: %s", i, deft_message(cx));
        cr_assert(strstr(deft_message(cx), cases[i].text), "%zu: %s", i, deft_message(cx));
        deft_clear(cx);
        EXPECT(x, 1, 2, 3); /* and life goes on */
        OK(deft_scope_end(outside_scope));
    }
    EXPECT(outside, 5, 6, 7);
}

FN(is_no_bool)
{
    UNUSED;
    out[0] = in[0];
    return DEFT_OK;
}

static void refused(bool ok, deft_status status, const char *text)
{
    cr_assert_not(ok);
    cr_assert_eq(deft_error(cx), status, "%s", deft_message(cx));
    cr_assert(strstr(deft_message(cx), text), "%s", deft_message(cx));
    deft_clear(cx);
}

Test(control, mistakes_of_the_call_have_a_sentence)
{
    int64_t n = 3;
    deft_tensor *out[3], *init[] = { ROW(1, 2), counter() };
    deft_tensor *const rows = deft_zeros(cx, DEFT_SHAPE(2, 2), DEFT_F32);
    refused(deft_while(cx, is_no_bool, logistic, &n, init, 2, 9, out), DEFT_E_DTYPE,
            "while: its test makes f32[2], it must make bool[]");
    refused(deft_while(cx, below, logistic, &n, init, 0, 9, out), DEFT_E_ARG, "while: 0 states");
    refused(deft_while(cx, below, logistic, &n, init, 2, -1, out), DEFT_E_ARG, "at most -1");
    refused(deft_while(cx, below, NULL, &n, init, 2, 9, out), DEFT_E_ARG, "takes two functions");
    refused(deft_scan(cx, running, NULL, init, 1, &rows, 1, 3, 2, out), DEFT_E_SHAPE,
            "scan: rows 0 are [2,2], the first axis must have 3");
    refused(deft_scan(cx, running, NULL, init, 0, NULL, 0, 3, 0, out), DEFT_E_ARG,
            "something to make");
    refused(deft_cond(init[0], negate, negate, NULL, init, 1, out, 1), DEFT_E_DTYPE,
            "cond: the condition is f32[2], it must be bool[]");
    deft_tensor *const yes = deft_full(cx, DEFT_SHAPE(), DEFT_BOOL, 1);
    refused(deft_cond(yes, twice, negate, NULL, init, 1, out, 1), DEFT_E_SHAPE,
            "cond: its other branch makes result 0 f32[], it must be f32[2]");
    refused(deft_cond(yes, twice, negate, NULL, init, 1, out, 0), DEFT_E_ARG, "0 results");
    init[1] = NULL;
    refused(deft_while(cx, below, logistic, &n, init, 2, 9, out), DEFT_E_ARG,
            "while: argument 2 is NULL");
    EXPECT(init[0], 1, 2);
}

/* ---- the text form ---- */

static const char loop_text[] = "trace v1\n"
                                "%0 = input f32[4] strides=[1]\n"
                                "%1 = input f32[3,4] strides=[4,1]\n"
                                "%2 = cst i64[] 0\n"
                                "%3 = loop i64[] %2 most=3\n"
                                "%4 = carry f32[4] %0 %3\n"
                                "%5 = each f32[4] %1 %3\n"
                                "%6 = add f32[4] %4 %5\n"
                                "%7 = next f32[4] %4 %6 %3\n"
                                "%8 = stack f32[3,4] %6 %7\n"
                                "%9 = final f32[4] %7 %8\n"
                                "%10 = final f32[3,4] %8 %8\n"
                                "output %9\n"
                                "output %10\n";

static deft_status parse(const char *text, df_diag *d, df_arena *arena, df_trace **t)
{
    return df_trace_parse(d, text, strlen(text), arena, t);
}

Test(control, text_survives_printing)
{
    df_arena arena;
    df_diag d = { 0 };
    df_trace *t;
    df_str s;
    df_arena_init(&arena, &df_mem_system);
    df_str_init(&s, &df_mem_system);
    cr_assert_eq(parse(loop_text, &d, &arena, &t), DEFT_OK, "%s", d.text);
    df_trace_print(&s, t);
    cr_assert_str_eq(s.at, loop_text);
    df_str_finish(&s);
    df_arena_finish(&arena);
}

/* One line of loop_text, replaced, and what is said of it. */
Test(control, malformed_loops_are_refused)
{
    static const struct {
        const char *line, *by, *text;
    } cases[] = {
        { "%5 = each f32[4] %1 %3", "%5 = each f32[4] %1 %2",
          "%5: each: the last operand is no loop" },
        { "most=3", "most=4", "%5: each: there are not as many rows as iterations" },
        { "%8 = stack f32[3,4] %6 %7\n%9 = final f32[4] %7 %8\n%10 = final f32[3,4] %8 %8",
          "%8 = stack f32[5,4] %6 %7\n%9 = final f32[4] %7 %8\n%10 = final f32[5,4] %8 %8",
          "%8: stack: there are not as many rows as iterations" },
        { "%7 = next f32[4] %4 %6 %3", "%7 = next f32[4] %0 %6 %3",
          "%7: next: the first operand is no state" },
        { "%7 = next f32[4] %4 %6 %3", "%7 = next f32[4] %4 %6 %0",
          "%7: next: the last operand is neither" },
        { "%8 = stack f32[3,4] %6 %7\n%9 = final f32[4] %7 %8\n%10 = final f32[3,4] %8 %8",
          "%8 = next f32[4] %4 %6 %7\n%9 = final f32[4] %7 %8\n%10 = final f32[4] %8 %8",
          "%8: next: the state has a next already" },
        { "%8 = stack f32[3,4] %6 %7", "%8 = stack f32[3,4] %6 %3",
          "%8: stack: the list has two ends" },
        { "%9 = final f32[4] %7 %8", "%9 = final f32[4] %7 %7",
          "%9: final: the last operand is not" },
        { "%9 = final f32[4] %7 %8", "%9 = final f32[4] %6 %8",
          "%9: final: the first operand is neither" },
        { "output %9\n", "output %6\n",
          "%6: add: is part of a loop, of which final alone is seen" },
        { "%7 = next f32[4] %4 %6 %3\n%8 = stack f32[3,4] %6 %7\n%9 = final f32[4] %7 %8",
          "%7 = stack f32[3,4] %6 %3\n%8 = stack f32[3,4] %6 %7\n%9 = final f32[3,4] %7 %8",
          "%4: carry: the state has no next" },
        { "%5 = each f32[4] %1 %3", "%5 = carry f32[4] %4 %3",
          "%5: carry: the first operand is not there before the loop" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1200];
        df_arena arena;
        df_diag d = { 0 };
        df_trace *t;
        const char *const at = strstr(loop_text, cases[i].line);
        cr_assert(at, "%zu", i);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - loop_text), loop_text, cases[i].by,
                 at + strlen(cases[i].line));
        df_arena_init(&arena, &df_mem_system);
        cr_assert_neq(parse(text, &d, &arena, &t), DEFT_OK, "%zu", i);
        cr_assert(strstr(d.text, cases[i].text), "%zu: %s", i, d.text);
        df_arena_finish(&arena);
    }
}

Test(control, a_node_of_two_loops_is_refused)
{
    df_arena arena;
    df_diag d = { 0 };
    df_trace *t;
    df_arena_init(&arena, &df_mem_system);
    cr_assert_neq(parse("trace v1\n"
                        "%0 = input f32[4] strides=[1]\n"
                        "%1 = cst i64[] 0\n"
                        "%2 = loop i64[] %1 most=3\n"
                        "%3 = loop i64[] %1 most=3\n"
                        "%4 = carry f32[4] %0 %2\n"
                        "%5 = carry f32[4] %0 %3\n"
                        "%6 = add f32[4] %4 %5\n"
                        "%7 = next f32[4] %4 %6 %2\n"
                        "%8 = final f32[4] %7 %7\n"
                        "output %8\n",
                        &d, &arena, &t),
                  DEFT_OK);
    cr_assert(strstr(d.text, "%6: add: depends on two loops"), "%s", d.text);
    df_arena_finish(&arena);
}
