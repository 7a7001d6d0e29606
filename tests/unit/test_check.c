/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_grad_check and deft_op_check: they pass what is right, and name each planted fault.
 */
#include "support/harness.h"
#include "support/operator_functions.h"

#include <math.h>
#include <string.h>

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(check, .init = set_up, .fini = tear_down);

static char report[4096];

static deft_tensor *square_matrix(deft_dtype t)
{
    return deft_keep(
        deft_cast(rig_tensor(&r, DEFT_SHAPE(3, 3),
                             (float[]){ 0.5f, -1.25f, 2, 0.75f, 1.5f, -0.375f, 1, 0.25f, -2.5f }),
                  t));
}

/* tanh(x) w, for matrices, and the sums of rows of x. */
BODY(body)
{
    UNUSED;
    out[0] = deft_matmul(deft_tanh(in[0]), in[1]);
    out[1] = deft_sum(in[0], DEFT_AXES(-1), false);
    return DEFT_OK;
}

static deft_tensor *slope_of_tanh(deft_tensor *x)
{
    return deft_add(deft_neg(deft_square(deft_tanh(x))), 1);
}

/* The right gradient, which each planted one changes. */
GRADIENT(right)
{
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)user;
    deft_tensor *const rows = deft_expand(deft_unsqueeze(grad_out[1], -1), deft_shape_get(in[0]));
    grad_in[0] =
        deft_add(deft_mul(deft_matmul(grad_out[0], deft_t(in[1])), slope_of_tanh(in[0])), rows);
    grad_in[1] = deft_matmul(deft_t(deft_tanh(in[0])), grad_out[0]);
    return DEFT_OK;
}

#define PLANTED(name, ...)                                                                         \
    GRADIENT(name)                                                                                 \
    {                                                                                              \
        (void)right(cx, in, n_in, out, grad_out, n_out, grad_in, user);                            \
        __VA_ARGS__;                                                                               \
        return DEFT_OK;                                                                            \
    }

PLANTED(doubles_the_second, grad_in[1] = deft_mul(grad_in[1], 2))
PLANTED(turns_the_sign, grad_in[0] = deft_neg(grad_in[0]))
PLANTED(forgets_an_input, grad_in[1] = NULL)
PLANTED(forgets_a_result,
        grad_in[0] = deft_mul(deft_matmul(grad_out[0], deft_t(in[1])), slope_of_tanh(in[0])))
PLANTED(transposes, grad_in[1] = deft_t(grad_in[1]))
PLANTED(has_another_shape, grad_in[1] = deft_sum(grad_in[1], DEFT_AXES(0), false))
PLANTED(has_another_dtype, grad_in[1] = deft_cast(grad_in[1], DEFT_F16))
PLANTED(is_wrong_in_one_element,
        grad_in[0] = deft_mul(grad_in[0],
                              deft_where(deft_eq(deft_iota(cx, DEFT_SHAPE(3, 3), 1), 2),
                                         deft_ones_like(in[0]),
                                         deft_cast(deft_full(cx, DEFT_SHAPE(), DEFT_F32, 1.001),
                                                   deft_dtype_of(in[0])))))
PLANTED(stops_the_second, /* the slope of tanh is taken for a constant */
        grad_in[1] = deft_matmul(deft_t(deft_stop_gradient(deft_tanh(in[0]))), grad_out[0]))

RULE(right_rule)
{
    UNUSED;
    (void)n;
    deft_tensor *const w = is_mapped[1] ? in[1] : deft_unsqueeze(in[1], 0);
    deft_tensor *const x = is_mapped[0] ? in[0] : deft_unsqueeze(in[0], 0);
    deft_tensor *const sum = deft_sum(x, DEFT_AXES(-1), false);
    out[0] = deft_matmul(deft_tanh(x), w);
    out[1] = is_mapped[0] ? sum : deft_expand(sum, DEFT_SHAPE(n, 3));
    return DEFT_OK;
}

#define PLANTED_RULE(name, ...)                                                                    \
    RULE(name)                                                                                     \
    {                                                                                              \
        const deft_status st = right_rule(cx, n, in, is_mapped, n_in, out, n_out, user);           \
        __VA_ARGS__;                                                                               \
        return st;                                                                                 \
    }

/* Three examples of matrices of 3 x 3: no shape tells. */
PLANTED_RULE(is_off_by_an_axis, out[0] = deft_transpose(out[0], 0, 1))
PLANTED_RULE(sums_another_axis, if (is_mapped[0]) out[1] = deft_sum(in[0], DEFT_AXES(1), false))
PLANTED_RULE(takes_the_first_example,
             out[1] = deft_expand(deft_slice(out[1], DEFT_R(0, 1)), DEFT_SHAPE(n, 3)))
PLANTED_RULE(mixes_examples, out[0] = deft_flip(out[0], DEFT_AXES(0)))
PLANTED_RULE(has_no_axis_when_alone, if (!is_mapped[0]) out[1] = deft_slice(out[1], DEFT_AT(0)))
PLANTED_RULE(loses_bits, out[0] = deft_mul(deft_mul(out[0], 3), 1.0 / 3))
PLANTED_RULE(stops_gradients, out[0] = deft_stop_gradient(out[0]))
/* The slope of a root of 0 is infinite, and 0 times that is NaN. */
PLANTED_RULE(has_nan_gradients,
             out[0] = deft_add(out[0], deft_mul(deft_sqrt(deft_mul(out[0], 0)), 0)))

static double n_calls;

BODY(counts_its_calls)
{
    (void)body(cx, in, n_in, out, n_out, user);
    out[1] = deft_mul(out[1], 1 + n_calls++);
    return DEFT_OK;
}

static deft_tensor *of_the_first_call;

BODY(keeps_the_first_call)
{
    (void)body(cx, in, n_in, out, n_out, user);
    if (!of_the_first_call) of_the_first_call = out[1];
    out[1] = deft_add(out[1], of_the_first_call);
    return DEFT_OK;
}

BODY(fails_for_rank_3)
{
    UNUSED;
    if (deft_shape_get(in[0]).rank != 2) return DEFT_E_SHAPE;
    return body(cx, in, n_in, out, n_out, user);
}

BODY(leaves_a_result)
{
    (void)body(cx, in, n_in, out, n_out, user);
    out[1] = NULL;
    return DEFT_OK;
}

BODY(takes_what_is_missing)
{
    (void)body(cx, in, n_in, out, n_out, user);
    deft_tensor *const at = deft_full_i(cx, DEFT_SHAPE(1), DEFT_I64, 7);
    out[1] = deft_take(out[1], at, 0);
    return DEFT_OK;
}

static deft_rng its_rng = { .seed = 3 };

BODY(draws)
{
    (void)body(cx, in, n_in, out, n_out, user);
    out[1] = deft_mul(out[1], deft_uniform(cx, &its_rng, DEFT_SHAPE(3), DEFT_F32, 0, 1));
    return DEFT_OK;
}

static const struct {
    const char *fault, *name;
    deft_body_fn body;
    deft_backward_fn grad;
    deft_op_batch_fn batch;
} planted[] = {
    { "reverse", "planted.doubles", body, doubles_the_second, NULL },
    { "reverse", "planted.sign", body, turns_the_sign, NULL },
    { "reverse", "planted.input", body, forgets_an_input, NULL },
    { "reverse", "planted.result", body, forgets_a_result, NULL },
    { "reverse", "planted.transposes", body, transposes, NULL },
    { "reverse", "planted.shape", body, has_another_shape, NULL },
    { "reverse", "planted.dtype", body, has_another_dtype, NULL },
    { "reverse", "planted.element", body, is_wrong_in_one_element, NULL },
    { "second", "planted.second", body, stops_the_second, NULL },
    { "batch", "planted.axis", body, NULL, is_off_by_an_axis },
    { "batch", "planted.other_axis", body, NULL, sums_another_axis },
    { "batch", "planted.first", body, right, takes_the_first_example },
    { "batch", "planted.mixes", body, right, mixes_examples },
    { "batch", "planted.alone", body, NULL, has_no_axis_when_alone },
    { "batch", "planted.bits", body, NULL, loses_bits },
    { "batch gradient", "planted.stops", body, NULL, stops_gradients },
    { "batch gradient", "planted.nan", body, NULL, has_nan_gradients },
    { "state", "planted.counts", counts_its_calls, NULL, NULL },
    { "call", "planted.keeps", keeps_the_first_call, NULL, NULL },
    { "call", "planted.rank", fails_for_rank_3, NULL, NULL },
    { "call", "planted.leaves", leaves_a_result, NULL, NULL },
    { "call", "planted.missing", takes_what_is_missing, NULL, NULL },
    { "state", "planted.draws", draws, NULL, NULL },
};

static deft_op *define(const char *name, deft_body_fn fn, deft_backward_fn grad,
                       deft_op_batch_fn batch)
{
    char why[256];
    deft_op *op = NULL;
    const deft_op_def d = { .size = sizeof d,
                            .name = name,
                            .version = 1,
                            .n_in = 2,
                            .n_out = 2,
                            .body = fn,
                            .grad = grad,
                            .batch = batch };
    cr_assert_eq(deft_op_define(r.rt, &d, &op, why, sizeof why), DEFT_OK, "%s", why);
    return op;
}

static deft_status check_op(const deft_op *op, deft_tensor *x, deft_tensor *w)
{
    return deft_op_check(r.cx, op, (deft_tensor *const[]){ x, w }, 2, NULL, NULL, report,
                         sizeof report);
}

Test(check, passes_right_operators)
{
    static const struct {
        const char *name;
        deft_backward_fn grad;
        deft_op_batch_fn batch;
    } row[] = {
        { "right.plain", NULL, NULL },
        { "right.gradient", right, NULL },
        { "right.rule", NULL, right_rule },
        { "right.both", right, right_rule },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            deft_tensor *const x = square_matrix(f64 ? DEFT_F64 : DEFT_F32);
            const deft_op *const op = define(row[i].name, body, row[i].grad, row[i].batch);
            const deft_status st = check_op(op, x, deft_add(x, 0.125));
            cr_assert_eq(st, DEFT_OK, "%s: %s\n%s", row[i].name, deft_message(r.cx), report);
            cr_assert_str_eq(report, "");
            cr_assert_eq(deft_error(r.cx), DEFT_OK);
        }
}

/* Each fault is the first one of its report, except of operators that fail elsewhere first. */
Test(check, names_each_planted_fault)
{
    deft_tensor *const x = square_matrix(DEFT_F64);
    deft_tensor *const w = deft_keep(deft_add(x, 0.125));
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        char line[64];
        const bool of_rank = planted[i].body == fails_for_rank_3;
        const deft_op *const op =
            define(planted[i].name, planted[i].body, planted[i].grad, planted[i].batch);
        const deft_status st =
            check_op(op, of_rank ? deft_unsqueeze(x, 0) : x, of_rank ? deft_unsqueeze(w, 0) : w);
        (void)snprintf(line, sizeof line, "%s: ", planted[i].fault);
        cr_assert_eq(st, DEFT_E_CHECK, "%s: %s", planted[i].name, deft_message(r.cx));
        cr_assert(!strncmp(report, line, strlen(line)), "%s: %s", planted[i].name, report);
        cr_assert(strstr(deft_message(r.cx), line), "%s: %s", planted[i].name, deft_message(r.cx));
        cr_assert_eq(deft_error(r.cx), DEFT_OK);
    }
}

Test(check, names_the_input_and_the_numbers)
{
    deft_tensor *const x = square_matrix(DEFT_F64);
    const deft_op *const op = define("planted.doubles", body, doubles_the_second, NULL);
    cr_assert_eq(check_op(op, x, x), DEFT_E_CHECK);
    cr_assert(strstr(report, "reverse: input 1, direction 0: the gradient says "), "%s", report);
    cr_assert(!strstr(report, "input 0"), "%s", report);
    /* The text is cut. */
    char small[8];
    cr_assert_eq(deft_op_check(r.cx, op, (deft_tensor *const[]){ x, x }, 2, NULL, NULL, small, 8),
                 DEFT_E_CHECK);
    cr_assert_str_eq(small, "reverse");
    cr_assert_eq(deft_op_check(r.cx, op, (deft_tensor *const[]){ x, x }, 2, NULL, NULL, NULL, 0),
                 DEFT_E_CHECK);
}

BODY(of_indices)
{
    UNUSED;
    out[0] = deft_take(in[0], in[1], 0);
    out[1] = deft_lt(in[0], 1);
    return DEFT_OK;
}

BODY(of_bools)
{
    UNUSED;
    out[0] = deft_logical_not(in[0]);
    out[1] = deft_sum(in[1], DEFT_ALL_AXES, false);
    return DEFT_OK;
}

BODY(of_complex)
{
    UNUSED;
    out[0] = deft_mul(in[0], in[1]);
    out[1] = deft_abs(in[0]);
    return DEFT_OK;
}

Test(check, takes_all_dtypes)
{
    deft_tensor *const x = square_matrix(DEFT_F32);
    deft_tensor *const i = deft_arange_i(r.cx, 0, 3, 1, DEFT_I64);
    const deft_op *op = define("right.indices", of_indices, NULL, NULL);
    cr_assert_eq(check_op(op, x, i), DEFT_OK, "%s", report);
    op = define("right.bools", of_bools, NULL, NULL);
    cr_assert_eq(check_op(op, deft_gt(x, 0), i), DEFT_OK, "%s", report);
    op = define("right.complex", of_complex, NULL, NULL);
    cr_assert_eq(check_op(op, deft_complex(x, x), deft_cast(x, DEFT_F16)), DEFT_OK, "%s", report);
    /* A bare number, and no element. */
    op = define("right.number", of_complex, NULL, NULL);
    cr_assert_eq(check_op(op, x, deft_num(r.cx, 1.5)), DEFT_OK, "%s", report);
    cr_assert_eq(check_op(op, deft_slice(x, DEFT_R(0, 0)), deft_num(r.cx, 1.5)), DEFT_OK, "%s",
                 report);
}

/* ---- gradients of functions ---- */

static int n_out_of_order;

BODY(smooth)
{
    UNUSED;
    out[0] = deft_mul(deft_sin(in[0]), deft_exp(in[1]));
    return DEFT_OK;
}

BODY(with_wrong_gradient)
{
    n_out_of_order++;
    return deft_custom_grad(cx, body, user ? stops_the_second : transposes, user, in, n_in, out,
                            n_out)
               ? DEFT_OK
               : DEFT_E_STATE;
}

/* The reverse of the gradient is taken as if the sine were linear: forward mode differs. */
GRADIENT(frozen_back)
{
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)user;
    deft_tensor *const g = deft_stop_gradient(grad_out[0]);
    grad_in[0] = deft_mul(g, deft_cos(in[0]));
    return DEFT_OK;
}

BODY(sine)
{
    UNUSED;
    out[0] = deft_sin(in[0]);
    return DEFT_OK;
}

BODY(frozen)
{
    return deft_custom_grad(cx, sine, frozen_back, user, in, n_in, out, n_out) ? DEFT_OK
                                                                               : DEFT_E_STATE;
}

Test(check, compares_gradients_with_differences)
{
    for (int f64 = 0; f64 < 2; f64++) {
        deft_tensor *const x = square_matrix(f64 ? DEFT_F64 : DEFT_F32);
        deft_tensor *const in[] = { x, deft_mul(x, 0.5) };
        cr_assert_eq(deft_grad_check(r.cx, smooth, NULL, in, 2, 1, NULL, report, sizeof report),
                     DEFT_OK, "%s", report);
        cr_assert_eq(
            deft_grad_check(r.cx, with_wrong_gradient, NULL, in, 2, 2, NULL, report, sizeof report),
            DEFT_E_CHECK);
        cr_assert(!strncmp(report, "reverse: input 1,", 17), "%s", report);
    }
    deft_tensor *const x = square_matrix(DEFT_F64), *const in[] = { x, x };
    cr_assert_eq(deft_grad_check(r.cx, frozen, NULL, in, 1, 1, NULL, report, sizeof report),
                 DEFT_E_CHECK);
    cr_assert(!strncmp(report, "forward: input 0,", 17), "%s", report);
    int user = 0;
    cr_assert_eq(
        deft_grad_check(r.cx, with_wrong_gradient, &user, in, 2, 2, NULL, report, sizeof report),
        DEFT_E_CHECK);
    cr_assert(!strncmp(report, "second: input ", 14), "%s", report);
    const deft_check_options first = { .size = sizeof first, .no_second = true };
    cr_assert_eq(
        deft_grad_check(r.cx, with_wrong_gradient, &user, in, 2, 2, &first, report, sizeof report),
        DEFT_OK, "%s", report);
}

Test(check, follows_its_options)
{
    deft_tensor *const x = square_matrix(DEFT_F64), *const in[] = { x, x };
    n_out_of_order = 0;
    deft_check_options o = {
        .size = sizeof o, .directions = 1, .no_second = true, .tolerance = 10
    };
    cr_assert_eq(
        deft_grad_check(r.cx, with_wrong_gradient, NULL, in, 2, 2, &o, report, sizeof report),
        DEFT_OK, "%s", report);
    cr_assert_eq(n_out_of_order, 6); /* three values for each input */
    o.directions = 5;
    cr_assert_eq(
        deft_grad_check(r.cx, with_wrong_gradient, NULL, in, 2, 2, &o, report, sizeof report),
        DEFT_OK);
    cr_assert_eq(n_out_of_order, 36);
    o.tolerance = 0;
    o.step = 0.5; /* too large for the slope */
    cr_assert_eq(deft_grad_check(r.cx, smooth, NULL, in, 2, 1, &o, report, sizeof report),
                 DEFT_E_CHECK);
    cr_assert(strstr(report, "(step 0.5, tolerance 1e-06)"), "%s", report);
}

static deft_status inside_step;

BODY(checks_inside)
{
    UNUSED;
    inside_step = deft_grad_check(cx, sine, NULL, in, 1, 1, NULL, NULL, 0);
    out[0] = in[0];
    return DEFT_OK;
}

Test(check, reports_mistakes_of_its_call)
{
    deft_tensor *const x = square_matrix(DEFT_F64), *out;
    const deft_op *const op = define("right.plain", body, NULL, NULL);
#define REFUSES(st, part, ...)                                                                     \
    do {                                                                                           \
        cr_assert_eq((__VA_ARGS__), st, "%s", deft_message(r.cx));                                 \
        cr_assert(strstr(deft_message(r.cx), part), "%s", deft_message(r.cx));                     \
    } while (0)
#define GRAD(...) deft_grad_check(r.cx, __VA_ARGS__, report, sizeof report)
    REFUSES(DEFT_E_ARG, "the function is NULL", GRAD(NULL, NULL, &x, 1, 1, NULL));
    REFUSES(DEFT_E_ARG, "0 results", GRAD(sine, NULL, &x, 1, 0, NULL));
    REFUSES(DEFT_E_ARG, "65 results", GRAD(sine, NULL, &x, 1, 65, NULL));
    REFUSES(DEFT_E_ARG, "the list is NULL", GRAD(sine, NULL, NULL, 1, 1, NULL));
    REFUSES(DEFT_E_ARG, "input 0 is NULL", GRAD(sine, NULL, &(deft_tensor *){ NULL }, 1, 1, NULL));
    REFUSES(DEFT_E_ARG, "sizeof(deft_check_options)",
            GRAD(sine, NULL, &x, 1, 1, &(deft_check_options){ 0 }));
    REFUSES(DEFT_E_ARG, "65 directions",
            GRAD(sine, NULL, &x, 1, 1,
                 &(deft_check_options){ .size = sizeof(deft_check_options), .directions = 65 }));
    REFUSES(DEFT_E_ARG, "step nan",
            GRAD(sine, NULL, &x, 1, 1,
                 &(deft_check_options){ .size = sizeof(deft_check_options), .step = NAN }));
    deft_tensor *const i = deft_arange_i(r.cx, 0, 3, 1, DEFT_I64);
    REFUSES(DEFT_E_DTYPE, "none of 1 inputs is f32 or f64", GRAD(sine, NULL, &i, 1, 1, NULL));
    REFUSES(DEFT_E_ARG, "op_check: the operator is NULL",
            deft_op_check(r.cx, NULL, &x, 1, NULL, NULL, report, sizeof report));
    REFUSES(DEFT_E_CHECK, "call: right.plain: 1 inputs and 2 results, it has 2 and 2",
            deft_op_check(r.cx, op, &x, 1, NULL, NULL, report, sizeof report));
    cr_assert_eq(deft_grad_check(NULL, sine, NULL, &x, 1, 1, NULL, NULL, 0), DEFT_E_ARG);
    cr_assert_eq(deft_op_check(NULL, op, &x, 1, NULL, NULL, NULL, 0), DEFT_E_ARG);
    /* A mistake from before is delivered. */
    (void)deft_add(x, rig_range(&r, 4, 0));
    REFUSES(DEFT_E_SHAPE, "add", GRAD(sine, NULL, &x, 1, 1, NULL));
    cr_assert_eq(GRAD(sine, NULL, &x, 1, 1, NULL), DEFT_OK, "%s", deft_message(r.cx));
    const deft_scope step = deft_step_begin(r.cx);
    REFUSES(DEFT_E_STATE, "inside a step", GRAD(sine, NULL, &x, 1, 1, NULL));
    OK(&r, deft_step_end(step));
    deft_tensor *const state = deft_sum(x, DEFT_ALL_AXES, false);
    cr_assert(deft_vmap(r.cx, checks_inside, NULL, &x, NULL, 1, &out, NULL, 1));
    cr_assert_eq(inside_step, DEFT_E_STATE);
    (void)state;
}
