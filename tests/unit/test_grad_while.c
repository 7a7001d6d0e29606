/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of while loops: of the iterations that were taken, and of no others.
 */
#include <criterion/criterion.h>

#include <math.h>

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

TestSuite(grad_while, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define FN(name)                                                                                   \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

FN(is_small)
{
    UNUSED;
    out[0] = deft_lt(deft_sum(in[0], DEFT_ALL_AXES, 0), deft_const_f(cx, 100));
    return DEFT_OK;
}

/* x times the tensor `user`. */
FN(scale)
{
    UNUSED;
    out[0] = deft_mul(in[0], user);
    return DEFT_OK;
}

static deft_tensor *scaled(deft_tensor *x, deft_tensor *w, int64_t most)
{
    deft_tensor *y;
    cr_assert(deft_while(r.cx, is_small, scale, w, &x, 1, most, &y), "%s", deft_message(r.cx));
    return y;
}

/* 3, 9, 27, 81, 243: four iterations. */
Test(grad_while, is_that_of_the_iterations_that_were_taken)
{
    deft_tensor *const x = VECTOR(1, 2), *const w =
                                             deft_keep(deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 3));
    EXPECT(rig_grad_of_sum(scaled(x, w, 50), x), 81, 81);
    EXPECT(rig_grad_of_sum(scaled(x, w, 50), w), 3 * 4 * 27);
    EXPECT(rig_grad_of_sum(scaled(x, w, 4), x), 81, 81);
}

Test(grad_while, ends_at_the_bound)
{
    deft_tensor *const x = VECTOR(1, 2), *const w =
                                             deft_keep(deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 3));
    EXPECT(rig_grad_of_sum(scaled(x, w, 2), x), 9, 9);
    EXPECT(rig_grad_of_sum(scaled(x, w, 2), w), 3 * 2 * 3);
    EXPECT(rig_grad_of_sum(scaled(x, w, 0), x), 1, 1);
}

Test(grad_while, of_no_iteration_is_that_of_the_state)
{
    deft_tensor *const x = VECTOR(60, 70), *const w = deft_keep(
                                               deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 3));
    EXPECT(rig_grad_of_sum(scaled(x, w, 50), x), 1, 1);
    EXPECT(rig_grad_of_sum(deft_add(scaled(x, w, 50), w), w), 2);
}

FN(above_one)
{
    UNUSED;
    out[0] = deft_gt(in[0], 1);
    return DEFT_OK;
}

FN(root)
{
    UNUSED;
    out[0] = deft_sqrt(deft_sub(in[0], 1));
    return DEFT_OK;
}

/* 5, 2, 1: the root of 0 has an infinite derivative, and its iteration is not taken. */
Test(grad_while, looks_at_no_iteration_that_was_not_taken)
{
    deft_tensor *const x = deft_keep(deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 5)), *y;
    cr_assert(deft_while(r.cx, above_one, root, NULL, &x, 1, 9, &y));
    EXPECT(rig_grad_of_sum(y, x), 0.125f);
}

FN(counts_to_two)
{
    UNUSED;
    out[0] = deft_lt_i(in[1], 2);
    return DEFT_OK;
}

FN(square_and_count)
{
    UNUSED;
    out[0] = deft_square(in[0]);
    out[1] = deft_add_i(in[1], 1);
    out[2] = deft_add(in[2], in[0]);
    return DEFT_OK;
}

/* x^4, and x + x^2 in another state. */
static deft_tensor *fourth_power(deft_ctx *cx, deft_tensor *x, deft_tensor **sum)
{
    deft_tensor *const in[] = { x, deft_zeros(cx, DEFT_SHAPE(), DEFT_I64), deft_zeros_like(x) };
    deft_tensor *out[3];
    if (!deft_while(cx, counts_to_two, square_and_count, NULL, in, 3, 5, out)) return NULL;
    if (sum) *sum = out[2];
    return out[0];
}

Test(grad_while, of_states_of_several_dtypes_and_of_gradients)
{
    deft_tensor *const x = VECTOR(1, 2, -3);
    deft_tensor *sum, *const y = fourth_power(r.cx, x, &sum);
    deft_tensor *const g = rig_grad_of_sum(y, x);
    EXPECT(rig_grad_of_sum(sum, x), 3, 5, -5);
    EXPECT(g, 4, 32, -108);
    EXPECT(rig_grad_of_sum(g, x), 12, 48, 108);
    deft_tensor *const along = VECTOR(1, 0, 2), *of[] = { y }, *with[] = { x }, *image;
    cr_assert(deft_jvp(of, 1, with, &along, 1, NULL, &image), "%s", deft_message(r.cx));
    EXPECT(image, 4, 0, -216);
}

FN(power_in_scan)
{
    UNUSED;
    out[0] = fourth_power(cx, deft_mul(in[0], 0.5), NULL);
    return DEFT_OK;
}

/* ((x/2)^4/2)^4 = x^16 / 2^20. */
Test(grad_while, within_a_scan)
{
    deft_tensor *const x = VECTOR(2, -2);
    deft_tensor *y;
    cr_assert(deft_scan(r.cx, power_in_scan, NULL, &x, 1, NULL, 0, 2, 0, &y));
    EXPECT(rig_grad_of_sum(y, x), 0.5f, -0.5f);
}

/* The value and the gradient of what is scaled. */
FN(value_and_gradient)
{
    UNUSED;
    deft_tensor *y, *sum, *x = in[0];
    if (!deft_while(cx, is_small, scale, in[1], &x, 1, 12, &y)) return deft_error(cx);
    sum = deft_sum(y, DEFT_ALL_AXES, 0);
    out[0] = y;
    return deft_grad(&sum, NULL, 1, &x, 1, NULL, &out[1]) ? DEFT_OK : deft_error(cx);
}

Test(grad_while, a_capture_takes_other_iterations_with_other_values)
{
    deft_capture *c = deft_capture_create(r.cx, value_and_gradient, NULL);
    deft_tensor *const w = deft_keep(deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 3));
    deft_tensor *const in[2][2] = { { VECTOR(1, 2), w }, { VECTOR(30, 20), w } }, *out[2];
    for (int i = 0; i < 6; i++) {
        OK(&r, deft_capture_call(c, in[i % 2], 2, out, 2));
        if (i % 2)
            EXPECT(out[0], 90, 60), EXPECT(out[1], 3, 3);
        else
            EXPECT(out[0], 81, 162), EXPECT(out[1], 81, 81);
    }
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert_geq(s.replayed, 3, "%d", (int)s.replayed);
    deft_capture_destroy(&c);
}

Test(grad_while, each_example_has_its_own_number_of_iterations)
{
    deft_tensor *const x = deft_reshape(VECTOR(1, 2, 30, 20, 200, 0), DEFT_SHAPE(3, 2));
    deft_tensor *const in[] = { x, VECTOR(3, 3, 3) };
    deft_tensor *out[2];
    cr_assert(deft_vmap(r.cx, value_and_gradient, NULL, in, NULL, 2, out, NULL, 2), "%s",
              deft_message(r.cx));
    EXPECT(out[0], 81, 162, 90, 60, 200, 0);
    EXPECT(out[1], 81, 81, 3, 3, 1, 1);
}
