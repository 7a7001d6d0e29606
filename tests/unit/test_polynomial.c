/* SPDX-License-Identifier: Apache-2.0
 *
 * Polynomials: values, gradients, kernels, captures, mistakes.
 */
#include <criterion/criterion.h>

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

TestSuite(polynomial, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)

/* 2 x x - 3 x + 1 */
Test(polynomial, has_the_coefficient_of_the_highest_power_first)
{
    static const double c[] = { 2, -3, 1 };
    deft_tensor *const x = VECTOR(0, 1, 2, -1), *const of = VECTOR(2, -3, 1);
    EXPECT(deft_polyval(x, of), 1, 0, 3, 6);
    EXPECT(deft_polyval_f(x, c, 3), 1, 0, 3, 6);
    EXPECT(deft_polyval_f(x, c, 1), 2, 2, 2, 2);
    EXPECT(deft_polyval_f(x, c, 0), 0, 0, 0, 0);
    EXPECT(deft_polyval(x, deft_slice(of, DEFT_R(0, 1))), 2, 2, 2, 2);
    EXPECT(deft_polyval(x, deft_slice(of, DEFT_R(0, 0))), 0, 0, 0, 0);
    EXPECT(rig_grad_of_sum(deft_polyval(x, of), x), -3, 1, 5, -7);
    EXPECT(rig_grad_of_sum(deft_polyval(x, of), of), 6, 2, 4);
    EXPECT(rig_grad_of_sum(deft_polyval_f(x, c, 3), x), -3, 1, 5, -7);
}

/* One polynomial for each row. */
Test(polynomial, coefficients_broadcast)
{
    deft_tensor *const x = deft_reshape(VECTOR(1, 2, 3, 4), DEFT_SHAPE(2, 2));
    deft_tensor *const c = deft_reshape(VECTOR(1, 10, 2, 20), DEFT_SHAPE(2, 2, 1));
    EXPECT(deft_polyval(x, c), 3, 4, 50, 60);
}

Test(polynomial, dtypes_meet)
{
    deft_tensor *const x = deft_cast(VECTOR(1, 2), DEFT_I32);
    cr_assert_eq(deft_dtype_of(deft_polyval(x, deft_cast(VECTOR(1, 2), DEFT_I64))), DEFT_I64);
    cr_assert_eq(deft_dtype_of(deft_polyval(x, deft_slice(VECTOR(1, 2), DEFT_R(0, 0)))), DEFT_F32);
    cr_assert_eq(deft_dtype_of(deft_polyval_f(x, (double[]){ 1, 2 }, 2)), DEFT_F32);
    deft_tensor *const z = deft_complex(VECTOR(0), VECTOR(1));
    EXPECT(deft_real(deft_polyval_f(z, (double[]){ 1, 0, 3 }, 3)), 2);
    EXPECT(deft_imag(deft_polyval(z, deft_complex(VECTOR(1, 2), VECTOR(0, 1)))), 2);
}

/* Numbers are arguments: others need no plan of their own. */
Test(polynomial, is_one_kernel)
{
    deft_tensor *const x = deft_keep(rig_range(&r, 100, 0));
    uint64_t plans = 0;
    for (int i = 0; i < 3; i++) {
        const double c[] = { i + 1, 2 - i, i, 5, -i };
        const uint64_t before = rig_stats(&r).launches;
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *y = deft_polyval_f(x, c, 5);
        OK(&r, deft_eval(&y, 1));
        OK(&r, deft_scope_end(s));
        cr_assert_eq(rig_stats(&r).launches - before, 1);
        if (i == 0) plans = rig_stats(&r).plans_built;
    }
    cr_assert_eq(rig_stats(&r).plans_built, plans);
}

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = user ? deft_polyval_f(in[0], user, 2) : deft_polyval(in[0], in[1]);
    return DEFT_OK;
}

Test(polynomial, a_capture_takes_a_tensor_and_no_numbers)
{
    double c[] = { 1, 2 };
    deft_tensor *const in[] = { VECTOR(1, 2), VECTOR(3, 4) }, *out[1];
    deft_capture *of_tensor = deft_capture_create(r.cx, captured, NULL);
    deft_capture *of_numbers = deft_capture_create(r.cx, captured, c);
    for (int i = 0; i < 3; i++) {
        OK(&r, deft_capture_call(of_tensor, in, 2, out, 1));
        EXPECT(out[0], 7, 10);
    }
    cr_assert_eq(deft_capture_call(of_numbers, in, 2, out, 1), DEFT_E_STATE);
    deft_capture_destroy(&of_tensor);
    deft_capture_destroy(&of_numbers);
}

Test(polynomial, mistakes)
{
    deft_tensor *const x = VECTOR(1), *const b = deft_gt(x, 0);
    rig_expect_error(&r, deft_polyval(x, deft_sum(x, DEFT_ALL_AXES, 0)), DEFT_E_SHAPE,
                     "polyval: the coefficients have no axis");
    rig_expect_error(&r, deft_polyval(b, x), DEFT_E_DTYPE, "polyval: bool");
    rig_expect_error(&r, deft_polyval_f(b, NULL, 0), DEFT_E_DTYPE, "polyval: bool");
    rig_expect_error(&r, deft_polyval_f(x, NULL, 2), DEFT_E_ARG, "2 coefficients that are NULL");
}
