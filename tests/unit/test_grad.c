/* SPDX-License-Identifier: Apache-2.0
 *
 * What gradients mean beyond their formulas, which tests/diff/gradcheck.c looks at: what they are
 * with respect to, stops and hooks (functions of one's own: test_custom_grad.c), what a step with
 * them costs, and what each mistake says.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(grad, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)

static void expect_error(deft_status st, const char *part)
{
    cr_assert_eq(deft_error(r.cx), st, "%d: %s", (int)deft_error(r.cx), deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" lacks \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

/* ---- what it is with respect to ---- */

Test(grad, several_results_with_seeds_and_several_inputs)
{
    deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 5);
    deft_tensor *const of[] = { deft_mul(x, y), deft_sum(x, DEFT_ALL_AXES, 0) };
    deft_tensor *const seeds[] = { VECTOR(10, 100), deft_num(r.cx, 7) };
    deft_tensor *const with[] = { x, y };
    deft_tensor *g[2];
    cr_assert(deft_grad(of, seeds, 2, with, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 37, 507);
    EXPECT(g[1], 10, 200);
}

/* A batch of products with one matrix is one product for that; but who asks for the copies, or
 * hooks onto them, gets each one's. */
Test(grad, of_the_copies_of_a_matrix)
{
    deft_tensor *const a = deft_reshape(VECTOR(1, 2, 3, 4, 5, 6, 7, 8), DEFT_SHAPE(2, 2, 2));
    deft_tensor *const one = deft_reshape(VECTOR(1, 1, 1, 1), DEFT_SHAPE(2, 2));
    deft_tensor *const all = deft_expand(one, DEFT_SHAPE(2, 2, 2));
    deft_tensor *const l = deft_sum(deft_matmul(a, all), DEFT_ALL_AXES, 0);
    deft_tensor *const with[] = { all, one };
    deft_tensor *g[2];
    cr_assert(deft_grad(&l, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 4, 4, 6, 6, 12, 12, 14, 14);
    EXPECT(g[1], 16, 16, 20, 20);
}

Test(grad, of_something_in_the_middle)
{
    deft_tensor *const x = VECTOR(1, 2, 3);
    deft_tensor *const h = deft_mul(x, 2.0);
    EXPECT(rig_grad_of_sum(deft_square(h), h), 4, 8, 12);
}

Test(grad, a_result_may_be_asked_for_itself)
{
    deft_tensor *const x = VECTOR(4);
    deft_tensor *g;
    cr_assert(deft_grad(&x, NULL, 1, &x, 1, NULL, &g));
    EXPECT(g, 1);
}

Test(grad, an_assigned_tensor_stands_for_the_value_that_was_used)
{
    deft_tensor *const p = VECTOR(1, 2), *const x = VECTOR(5, 7);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const loss = deft_sum(deft_mul(deft_square(p), x), DEFT_ALL_AXES, 0);
    deft_assign(p, deft_mul(p, 10.0));
    deft_tensor *g;
    cr_assert(deft_grad(&loss, NULL, 1, &p, 1, NULL, &g), "%s", deft_message(r.cx));
    deft_keep(g);
    OK(&r, deft_step_end(s));
    EXPECT(g, 10, 28);
    EXPECT(p, 10, 20);
}

Test(grad, a_use_after_an_assign_is_of_the_new_value)
{
    deft_tensor *const p = VECTOR(1, 2);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(p, deft_mul(p, 10.0));
    deft_tensor *const g = deft_keep(rig_grad_of_sum(deft_square(p), p));
    OK(&r, deft_step_end(s));
    EXPECT(g, 20, 40);
}

Test(grad, views_of_one_tensor_that_overlap_add_up)
{
    deft_tensor *const x = VECTOR(1, 2, 3, 4);
    deft_tensor *const y = deft_mul(deft_slice(x, DEFT_R(0, 3)), deft_slice(x, DEFT_R(1, 4)));
    deft_tensor *const every = deft_mul(deft_slice(x, DEFT_RS(0, 4, 2)), 100.0);
    EXPECT(rig_grad_of_sum(deft_concat((deft_tensor *[]){ y, every }, 2, 0), x), 102, 4, 106, 3);
}

/* Kernels of the gradient of a product of three slices of x, at 0, a and b. */
static uint64_t kernels_of_slices(deft_tensor *x, int64_t a, int64_t b, deft_tensor **g)
{
    const deft_stats before = rig_stats(&r);
    deft_tensor *const q = deft_slice(x, DEFT_R(0, 2)), *const k = deft_slice(x, DEFT_R(a, a + 2));
    deft_tensor *const v = deft_slice(x, DEFT_R(b, b + 2));
    *g = deft_keep(rig_grad_of_sum(deft_mul(deft_square(q), deft_mul(k, v)), x));
    OK(&r, deft_eval(g, 1));
    return rig_stats(&r).kernels_run - before.kernels_run;
}

Test(grad, slices_side_by_side_are_one_kernel)
{
    deft_tensor *const x = VECTOR(1, 2, 3, 4, 5, 6);
    deft_tensor *g;
    cr_assert_eq(kernels_of_slices(x, 2, 4, &g), 1);
    EXPECT(g, 2 * 15, 4 * 24, 5, 4 * 6, 3, 4 * 4);
    cr_assert_eq(kernels_of_slices(x, 4, 2, &g), 1);
    EXPECT(g, 2 * 15, 4 * 24, 5, 4 * 6, 3, 4 * 4);
    kernels_of_slices(x, 1, 4, &g); /* overlap, and leave a gap */
    EXPECT(g, 2 * 2 * 5, 4 * 3 * 6 + 5, 4 * 6, 0, 2, 4 * 3);
    kernels_of_slices(x, 2, 3, &g); /* as many elements as x has, not side by side */
    EXPECT(g, 2 * 3 * 4, 4 * 4 * 5, 4, 4 * 5 + 3, 4 * 4, 0);
}

Test(grad, slices_and_other_uses_add_up)
{
    deft_tensor *const x = VECTOR(1, 2, 3, 4);
    deft_tensor *const low = deft_slice(x, DEFT_R(0, 2)), *const high = deft_slice(x, DEFT_R(2, 4));
    deft_tensor *const y =
        deft_concat((deft_tensor *[]){ deft_mul(low, high), deft_square(x) }, 2, 0);
    EXPECT(rig_grad_of_sum(y, x), 3 + 2, 4 + 4, 1 + 6, 2 + 8);
    deft_tensor *const z = deft_square(x);
    deft_tensor *const w = deft_mul(deft_slice(z, DEFT_R(0, 2)), deft_slice(z, DEFT_R(2, 4)));
    EXPECT(rig_grad_of_sum(deft_sum(w, DEFT_ALL_AXES, 0), x), 2 * 9, 4 * 16, 6 * 1, 8 * 4);
    /* Of the gradient: once more through what was joined. */
    deft_tensor *const first = rig_grad_of_sum(w, x);
    EXPECT(rig_grad_of_sum(first, x), 2 * 9 + 4 * 3, 2 * 16 + 8 * 4, 2 * 1 + 4 * 3, 2 * 4 + 8 * 4);
}

Test(grad, what_was_written_over_a_join_leaves_its_pieces_nothing_there)
{
    deft_tensor *const x = VECTOR(1, 2, 3), *const z = VECTOR(5);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const both = deft_concat((deft_tensor *[]){ x, z, x }, 3, 0);
    deft_assign(deft_slice(both, DEFT_R(2, 5)), deft_mul(z, 2.0));
    deft_tensor *const g = deft_keep(rig_grad_of_sum(deft_square(both), x));
    OK(&r, deft_step_end(s));
    EXPECT(g, 2, 4 + 4, 6); /* of both: 1 2 | 10 10 10 | 2 3 */
}

/* Launches of the gradient of a join of n rows. */
static uint64_t launches_of_join(int64_t n)
{
    deft_tensor *rows[16];
    deft_tensor *const x = deft_keep(deft_ones(r.cx, DEFT_SHAPE(n, 3), DEFT_F32));
    OK(&r, deft_eval(&x, 1));
    const deft_stats before = rig_stats(&r);
    const deft_scope s = deft_step_begin(r.cx);
    for (int64_t i = 0; i < n; i++) rows[i] = deft_square(deft_slice(x, DEFT_AT(n - 1 - i)));
    deft_keep(rig_grad_of_sum(deft_exp(deft_stack(rows, (size_t)n, 0)), x));
    OK(&r, deft_step_end(s));
    return rig_stats(&r).launches - before.launches;
}

Test(grad, a_piece_of_a_join_costs_no_copy_of_the_whole)
{
    const uint64_t some = launches_of_join(4), more = launches_of_join(16);
    cr_assert_leq(more - some, 12, "%d launches for 4 pieces, %d for 16", (int)some, (int)more);
}

Test(grad, what_an_earlier_step_computed_is_a_constant)
{
    deft_tensor *const x = VECTOR(3);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const y = deft_keep(deft_square(x));
    OK(&r, deft_step_end(s));
    cr_assert_null(rig_grad_of_sum(deft_mul(y, 2.0), x));
    expect_error(DEFT_E_STATE, "grad: no result depends on tensor 0, f32[1]");
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    deft_tensor *const of[] = { deft_mul(y, 2.0) };
    deft_tensor *g;
    cr_assert(deft_grad(of, NULL, 1, &x, 1, &zero, &g));
    EXPECT(g, 0);
}

Test(grad, a_read_within_a_step_keeps_what_was_recorded)
{
    deft_tensor *const x = VECTOR(3);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const y = deft_square(x);
    float v;
    OK(&r, deft_item(y, &v));
    deft_tensor *const g = deft_keep(rig_grad_of_sum(deft_mul(y, 2.0), x));
    OK(&r, deft_step_end(s));
    EXPECT(g, 12);
}

Test(grad, where_functions_have_kinks)
{
    deft_tensor *const x = VECTOR(-1, 0, 2);
    EXPECT(rig_grad_of_sum(deft_relu(x), x), 0, 0, 1);
    EXPECT(rig_grad_of_sum(deft_abs(x), x), -1, 0, 1);
    EXPECT(rig_grad_of_sum(deft_sign(x), x), 0, 0, 0);
    EXPECT(rig_grad_of_sum(deft_maximum(x, VECTOR(-2, 0, 3)), x), 1, 0.5f, 0);
}

Test(grad, equal_greatest_elements_share)
{
    deft_tensor *const x = VECTOR(5, 1, 5, 2);
    EXPECT(rig_grad_of_sum(deft_max(x, DEFT_ALL_AXES, 0), x), 0.5f, 0, 0.5f, 0);
    EXPECT(rig_grad_of_sum(deft_min(deft_neg(x), DEFT_ALL_AXES, 0), x), -0.5f, 0, -0.5f, 0);
}

Test(grad, products_with_zeros)
{
    deft_tensor *const none = VECTOR(2, 3, 4), *const one = VECTOR(2, 0, 4),
                       *const two = VECTOR(0, 3, 0);
    EXPECT(rig_grad_of_sum(deft_prod(none, DEFT_ALL_AXES, 0), none), 12, 8, 6);
    EXPECT(rig_grad_of_sum(deft_prod(one, DEFT_ALL_AXES, 0), one), 0, 8, 0);
    EXPECT(rig_grad_of_sum(deft_prod(two, DEFT_ALL_AXES, 0), two), 0, 0, 0);
}

Test(grad, powers_at_zero)
{
    deft_tensor *const x = VECTOR(0, 2);
    EXPECT(rig_grad_of_sum(deft_pow(x, VECTOR(0, 0)), x), 0, 0);
    EXPECT(rig_grad_of_sum(deft_pow(x, 1), x), 1, 1);
    deft_tensor *const y = VECTOR(2, 3);
    EXPECT(rig_grad_of_sum(deft_pow(VECTOR(0, 1), y), y), 0, 0);
}

/* ---- stops, hooks ---- */

Test(grad, nothing_goes_through_a_stop)
{
    deft_tensor *const x = VECTOR(2, 3);
    EXPECT(rig_grad_of_sum(deft_mul(deft_stop_gradient(x), x), x), 2, 3);
    cr_assert_null(rig_grad_of_sum(deft_stop_gradient(deft_square(x)), x));
    expect_error(DEFT_E_STATE, "no result depends");
}

Test(grad, of_the_stopped_tensor_itself)
{
    deft_tensor *const x = VECTOR(2, 3), *const still = deft_stop_gradient(x);
    deft_tensor *const of[] = { deft_sum(deft_mul(still, x), DEFT_ALL_AXES, 0) };
    deft_tensor *const with[] = { still, x };
    deft_tensor *g[2];
    cr_assert(deft_grad(of, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 2, 3);
    EXPECT(g[1], 2, 3);
}

static deft_tensor *halve(deft_ctx *cx, deft_tensor *grad, void *user)
{
    (void)cx;
    ++*(int *)user;
    return deft_mul(grad, 0.5);
}

Test(grad, hooks_change_what_flows)
{
    int calls = 0;
    deft_tensor *const x = VECTOR(2, 3);
    deft_tensor *const h = deft_mul(x, 4.0);
    cr_assert(deft_grad_hook(h, halve, &calls));
    cr_assert(deft_grad_hook(h, halve, &calls));
    deft_tensor *const y = deft_add(deft_square(h), h);
    EXPECT(rig_grad_of_sum(y, x), (16 + 1), (24 + 1));
    cr_assert_eq(calls, 2);
}

/* The function and what it takes need not live longer than the step. */
Test(grad, hooks_end_with_a_step_that_is_aborted)
{
    int calls = 0, before = 0;
    deft_tensor *const x = VECTOR(2, 3);
    deft_tensor *const h = deft_mul(x, 4.0);
    cr_assert(deft_grad_hook(h, halve, &before));
    const deft_scope step = deft_step_begin(r.cx);
    cr_assert(deft_grad_hook(h, halve, &calls));
    deft_step_abort(step);
    EXPECT(rig_grad_of_sum(deft_square(h), x), 8 * 4, 12 * 4);
    cr_assert_eq(calls, 0);
    cr_assert_eq(before, 1);
}

static deft_tensor *two_of_them(deft_ctx *cx, deft_tensor *grad, void *user)
{
    (void)user;
    return deft_concat((deft_tensor *[]){ grad, deft_zeros(cx, DEFT_SHAPE(1), DEFT_F32) }, 2, 0);
}

Test(grad, a_hook_must_keep_the_shape)
{
    deft_tensor *const x = VECTOR(2, 3);
    cr_assert(deft_grad_hook(x, two_of_them, NULL));
    cr_assert_null(rig_grad_of_sum(deft_square(x), x));
    expect_error(DEFT_E_SHAPE, "grad_hook: it made f32[3], it must be f32[2]");
}

static deft_status stopped_cell(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], deft_stop_gradient(in[1]));
    return DEFT_OK;
}

Test(grad, a_stop_within_a_loop_stops_there)
{
    deft_tensor *const x = VECTOR(2), *const w = VECTOR(3, 4);
    deft_tensor *const rows = deft_reshape(w, DEFT_SHAPE(2, 1));
    deft_tensor *out, *g[2];
    cr_assert(deft_scan(r.cx, stopped_cell, NULL, &x, 1, &rows, 1, 2, 0, &out));
    deft_tensor *const with[] = { x, w };
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    cr_assert(deft_grad(&out, NULL, 1, with, 2, &zero, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 12);
    EXPECT(g[1], 0, 0);
}

/* ---- forward mode, and value and gradient ---- */

Test(grad, forward_mode)
{
    deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 5);
    deft_tensor *const of[] = { deft_mul(x, y), deft_square(y),
                                deft_ones(r.cx, DEFT_SHAPE(2), DEFT_F32) };
    deft_tensor *const with[] = { x, y }, *const along[] = { VECTOR(1, 1), VECTOR(0, 10) };
    deft_tensor *moved[3];
    cr_assert(deft_jvp(of, 3, with, along, 2, NULL, moved), "%s", deft_message(r.cx));
    EXPECT(moved[0], 3, 25);
    EXPECT(moved[1], 0, 100);
    EXPECT(moved[2], 0, 0);
}

static deft_status squared_error(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[1] = deft_sub(deft_mul(in[0], in[1]), user);
    out[0] = deft_sum(deft_square(out[1]), DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

Test(grad, value_and_gradient_of_a_function)
{
    deft_tensor *const in[] = { VECTOR(1, 2), VECTOR(3, 5) };
    deft_tensor *values[2], *g[2];
    cr_assert(deft_value_and_grad(r.cx, squared_error, VECTOR(1, 11), in, 2, values, 2, g), "%s",
              deft_message(r.cx));
    deft_tensor *const all[] = { values[0], values[1], g[0], g[1] };
    OK(&r, deft_eval(all, 4));
    EXPECT(values[0], 5);
    EXPECT(values[1], 2, -1);
    EXPECT(g[0], 12, -10);
    EXPECT(g[1], 4, -4);
}

/* ---- what a step costs ---- */

/* Two layers, forwards, backwards and down. */
static void train(deft_tensor **p, deft_tensor *x, deft_tensor *labels, double rate)
{
    deft_tensor *g[2];
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const h = deft_tanh(deft_matmul(x, p[0]));
    deft_tensor *const loss = deft_cross_entropy(deft_matmul(h, p[1]), labels);
    cr_assert(deft_grad(&loss, NULL, 1, p, 2, NULL, g), "%s", deft_message(r.cx));
    for (int i = 0; i < 2; i++) deft_assign(p[i], deft_sub(p[i], deft_mul(g[i], rate)));
    OK(&r, deft_step_end(s));
}

Test(grad, steps_with_another_rate_are_one_plan)
{
    deft_rng rng = { 3, 0 };
    const uint8_t label[] = { 0, 2, 1, 1 };
    deft_tensor *p[] = { deft_keep(deft_normal(r.cx, &rng, DEFT_SHAPE(5, 6), DEFT_F32, 0, 0.5)),
                         deft_keep(deft_normal(r.cx, &rng, DEFT_SHAPE(6, 3), DEFT_F32, 0, 0.5)) };
    deft_tensor *const x = deft_keep(deft_normal(r.cx, &rng, DEFT_SHAPE(4, 5), DEFT_F32, 0, 1));
    deft_tensor *const labels = deft_keep(deft_from(r.cx, DEFT_SHAPE(4), DEFT_U8, label, 4));
    OK(&r, deft_eval((deft_tensor *[]){ p[0], p[1], x }, 3));
    const deft_stats before = rig_stats(&r);
    for (int i = 0; i < 50; i++) train(p, x, labels, 0.5 / (i + 1));
    cr_assert_eq(rig_stats(&r).plans_built - before.plans_built, 1);
}

/* The trace of the latest cut. */
static const char *latest_trace(void)
{
    static char text[1 << 14];
    cr_assert_lt(deft_show(r.cx, "trace", text, sizeof text), sizeof text);
    return text;
}

Test(grad, a_weight_shared_by_a_batch_gets_one_product)
{
    deft_tensor *const w = VECTOR(1, 2, 3, 4, 5, 6);
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(7, 4, 3), DEFT_F32);
    deft_tensor *const g = rig_grad_of_sum(deft_matmul(x, deft_reshape(w, DEFT_SHAPE(3, 2))), w);
    EXPECT(g, 28, 28, 28, 28, 28, 28);
    cr_assert(strstr(latest_trace(), "= matmul f32[3,2]"), "%s", latest_trace());
    cr_assert_null(strstr(latest_trace(), "= matmul f32[7,"), "%s", latest_trace());
}

/* A weight [out, in] is transposed for its product; its gradient is not. */
Test(grad, of_a_transposed_weight_comes_as_the_weight_lies)
{
    deft_tensor *const w = deft_reshape(VECTOR(1, 2, 3, 4, 5, 6), DEFT_SHAPE(2, 3));
    deft_tensor *const x = deft_reshape(VECTOR(1, 10, 100, 2, 20, 200), DEFT_SHAPE(1, 2, 3));
    deft_tensor *const scale = deft_reshape(VECTOR(1, 2), DEFT_SHAPE(2));
    deft_tensor *const g = rig_grad_of_sum(deft_mul(deft_matmul(x, deft_t(w)), scale), w);
    EXPECT(g, 3, 30, 300, 6, 60, 600);
    cr_assert(strstr(latest_trace(), "= matmul f32[2,3]"), "%s", latest_trace());
    cr_assert_null(strstr(latest_trace(), "= matmul f32[3,2]"), "%s", latest_trace());
    deft_tensor *const right = deft_reshape(VECTOR(1, 2, 10, 20), DEFT_SHAPE(2, 2));
    EXPECT(rig_grad_of_sum(deft_matmul(deft_t(w), right), w), 3, 3, 3, 30, 30, 30);
}

/* Nor is the transposed one passed over where it is asked for itself, or has a hook. */
Test(grad, of_a_transposed_weight_and_of_what_it_was_transposed_from)
{
    int calls = 0;
    deft_tensor *const w = deft_reshape(VECTOR(1, 2, 3, 4, 5, 6), DEFT_SHAPE(2, 3));
    deft_tensor *const turned = deft_t(w), *const x =
                                               deft_reshape(VECTOR(1, 2, 3), DEFT_SHAPE(1, 3));
    deft_tensor *const of[] = { deft_sum(deft_matmul(x, turned), DEFT_ALL_AXES, 0) };
    deft_tensor *const with[] = { turned, w };
    deft_tensor *g[2];
    cr_assert(deft_grad(of, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 1, 1, 2, 2, 3, 3);
    EXPECT(g[1], 1, 2, 3, 1, 2, 3);
    deft_tensor *const hooked = deft_t(w);
    cr_assert(deft_grad_hook(hooked, halve, &calls));
    EXPECT(rig_grad_of_sum(deft_matmul(x, hooked), w), 0.5f, 1, 1.5f, 0.5f, 1, 1.5f);
    cr_assert_eq(calls, 1);
}

/* Rows that are looked up are added to what the product gave the same table. */
Test(grad, of_a_table_that_is_a_weight_too_is_added_up_in_place)
{
    const int32_t at[] = { 1, 0, 1 };
    deft_tensor *const table = deft_reshape(VECTOR(1, 2, 3, 4), DEFT_SHAPE(2, 2));
    deft_tensor *const i = deft_from(r.cx, DEFT_SHAPE(3), DEFT_I32, at, sizeof at);
    deft_tensor *const looked_up = deft_embedding(table, i);
    deft_tensor *const scores = deft_matmul(looked_up, deft_t(table));
    deft_tensor *const g = rig_grad_of_sum(scores, table);
    EXPECT(g, 7 + 4, 10 + 6, 7 + 2 * 4, 10 + 2 * 6);
    const char *const adds = strstr(latest_trace(), "= index_add");
    cr_assert(adds, "%s", latest_trace());
    cr_assert_null(strstr(latest_trace(), "= add f32[2,2]"), "%s", latest_trace());
}

/* ---- NaN ---- */

/* NaN is taken before any number, and all NaNs are equal: docs/gradients.md. */
static deft_tensor *maximum_and_minimum(deft_tensor *a, deft_tensor *b)
{
    return deft_add(deft_maximum(a, b), deft_mul(deft_minimum(a, b), 10.0));
}

Test(grad, a_nan_was_taken)
{
    deft_tensor *const x = VECTOR(NAN, 1, NAN, 2, 3), *const y = VECTOR(5, NAN, NAN, 2, 4);
    EXPECT(rig_grad_of_sum(maximum_and_minimum(x, y), x), 11, 0, 5.5, 5.5, 10);
    EXPECT(rig_grad_of_sum(maximum_and_minimum(x, y), y), 0, 11, 5.5, 5.5, 1);
    EXPECT(rig_grad_of_sum(deft_max(x, DEFT_ALL_AXES, 0), x), 0.5, 0, 0.5, 0, 0);
    EXPECT(rig_grad_of_sum(deft_min(x, DEFT_ALL_AXES, 1), x), 0.5, 0, 0.5, 0, 0);
    EXPECT(rig_grad_of_sum(deft_max(deft_slice(x, DEFT_R(3, 5)), DEFT_ALL_AXES, 0), x), 0, 0, 0, 0,
           1);
    deft_tensor *const z = VECTOR(NAN, -1, 0, 2);
    EXPECT(rig_grad_of_sum(deft_relu(z), z), 1, 0, 0, 1);
    EXPECT(rig_grad_of_sum(deft_clamp(z, -0.5, 1.5), z), 1, 0, 1, 0);
    EXPECT(rig_grad_of_sum(deft_clamp(z, 0, 1), z), 1, 0, 0.5, 0);
}

static deft_status extremes(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const top = deft_max(in[0], DEFT_ALL_AXES, 0);
    out[0] = rig_grad_of_sum(deft_add(top, deft_sum(deft_relu(in[0]), DEFT_ALL_AXES, 0)), in[0]);
    return DEFT_OK;
}

Test(grad, a_nan_was_taken_in_each_example)
{
    deft_tensor *const x = deft_reshape(VECTOR(1, NAN, 2, NAN, NAN, 3, 5, 4, -1), DEFT_SHAPE(3, 3));
    deft_tensor *g = NULL;
    cr_assert(deft_vmap(r.cx, extremes, NULL, &x, NULL, 1, &g, NULL, 1), "%s", deft_message(r.cx));
    EXPECT(g, 1, 2, 1, 1.5, 1.5, 1, 2, 1, 0);
}

/* The first derivative of the square of a maximum; then the second is 2 where it was taken. */
Test(grad, a_nan_was_taken_the_second_time_too)
{
    deft_tensor *const x = VECTOR(NAN, 1, NAN);
    deft_tensor *const g = rig_grad_of_sum(deft_square(deft_max(x, DEFT_ALL_AXES, 0)), x);
    EXPECT(g, NAN, 0, NAN);
    EXPECT(rig_grad_of_sum(g, x), 1, 0, 1);
    deft_tensor *const y = VECTOR(NAN, -1);
    EXPECT(rig_grad_of_sum(rig_grad_of_sum(deft_square(deft_relu(y)), y), y), 2, 0);
}

Test(grad, nan_check_names_what_made_it)
{
    deft_tensor *const x = VECTOR(4, -1, 9), *const y = VECTOR(1, 2, 3);
    deft_tensor *const root = deft_sqrt(x);
    deft_tensor *const bad[] = { deft_sum(deft_mul(root, y), DEFT_ALL_AXES, 0) };
    cr_assert_eq(deft_nan_check(bad, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "nan_check: sqrt at "), "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), "makes NaN in 1 of 3 elements of f32[3]"), "%s",
              deft_message(r.cx));
    deft_tensor *const good[] = { deft_sqrt(y) };
    OK(&r, deft_nan_check(good, 1));
}

Test(grad, nan_check_of_gradients)
{
    deft_tensor *const x = VECTOR(0, 4);
    deft_tensor *const g[] = { rig_grad_of_sum(deft_mul(deft_sqrt(x), 0.0), x) };
    cr_assert_eq(deft_nan_check(g, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "div at "), "%s", deft_message(r.cx));
}

Test(grad, nan_check_of_what_came_in)
{
    deft_tensor *const x = VECTOR(0, NAN);
    deft_tensor *const y[] = { deft_mul(x, 2.0) };
    cr_assert_eq(deft_nan_check(y, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "a value of before, f32[2], holds NaN in 1 of 2"), "%s",
              deft_message(r.cx));
}

static deft_status root_of(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_sqrt(in[0]);
    return DEFT_OK;
}

static deft_status same(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], 1.0);
    return DEFT_OK;
}

Test(grad, nan_check_looks_at_no_branch_that_is_not_taken)
{
    deft_tensor *const x = VECTOR(-4);
    deft_tensor *const is_high = deft_any(deft_gt(x, 0.0), DEFT_ALL_AXES, 0);
    deft_tensor *out;
    cr_assert(deft_cond(is_high, root_of, same, NULL, &x, 1, &out, 1));
    OK(&r, deft_nan_check(&out, 1));
    cr_assert(deft_cond(deft_logical_not(is_high), root_of, same, NULL, &x, 1, &out, 1));
    cr_assert_eq(deft_nan_check(&out, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "cond at "), "%s", deft_message(r.cx));
}

/* ---- mistakes ---- */

static deft_status endless(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt(deft_sum(in[0], DEFT_ALL_AXES, 0), 100.0);
    return DEFT_OK;
}

static deft_status doubled(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], 2.0);
    return DEFT_OK;
}

Test(grad, mistakes)
{
    deft_tensor *const x = VECTOR(1, 2);
    deft_tensor *const n = deft_keep(deft_arange(r.cx, 0, 3, 1, DEFT_I64));
    deft_tensor *const y = deft_square(x), *const number = deft_num(r.cx, 1);
    deft_tensor *g, *out;
    cr_assert_not(deft_grad(&y, NULL, 1, &x, 1, NULL, &g));
    cr_assert_null(g);
    expect_error(DEFT_E_SHAPE, "grad: result 0 is f32[2]; without a seed it must have one element");
    cr_assert_not(deft_grad(&y, &n, 1, &x, 1, NULL, &g));
    expect_error(DEFT_E_SHAPE, "grad: seed 0 is i64[3], result 0 is f32[2]");
    cr_assert_null(rig_grad_of_sum(deft_mul(x, 2.0), n));
    expect_error(DEFT_E_DTYPE, "grad: tensor 0 is i64[3]; only floats have gradients");
    cr_assert_not(deft_grad(&n, NULL, 1, &x, 1, NULL, &g));
    expect_error(DEFT_E_DTYPE, "grad: result 0 is i64[3]");
    cr_assert_not(deft_grad(&y, NULL, 1, &number, 1, NULL, &g));
    expect_error(DEFT_E_ARG, "grad: tensor 0 is a bare number");
    cr_assert_not(deft_grad(&y, NULL, 1, &x, 0, NULL, &g));
    expect_error(DEFT_E_ARG, "grad: 1 results, 0 tensors");
    cr_assert(deft_while(r.cx, endless, doubled, NULL, &x, 1, INT64_MAX, &out));
    cr_assert_null(rig_grad_of_sum(out, x));
    expect_error(DEFT_E_LIMIT, "grad: through a while loop of at most 9223372036854775807");
    cr_assert_not(deft_grad_hook(x, NULL, NULL));
    expect_error(DEFT_E_ARG, "grad_hook: the function is NULL");
    cr_assert_not(deft_custom_grad(r.cx, same, NULL, NULL, &x, 1, &out, 1));
    expect_error(DEFT_E_ARG, "custom_grad: 1 tensors, 1 results");
    cr_assert_not(deft_jvp(&y, 1, &x, NULL, 1, NULL, &g));
    expect_error(DEFT_E_ARG, "jvp: the list of 1 tangents is NULL");
}
