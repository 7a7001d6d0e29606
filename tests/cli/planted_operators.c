/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared library of operators, for `deft opcheck`. Two are right, and twelve have one fault each,
 * which their names say. TEST_OPCHECK chooses: "right", "all", "none", or "fails".
 */
#include <deft/deft.h>

#include "../support/operator_functions.h"

#include <stdlib.h>
#include <string.h>

deft_status deft_op_cases(deft_ctx *cx, deft_op_case_fn check, void *user);

/* x w, for matrices. */
BODY(product)
{
    UNUSED;
    out[0] = deft_matmul(in[0], in[1]);
    return DEFT_OK;
}

/* The gradients of the product, times these numbers. */
static void gradients(deft_tensor *const *in, deft_tensor *const *grad_out, double of_x,
                      double of_w, deft_tensor **grad_in)
{
    grad_in[0] = deft_mul(deft_matmul(grad_out[0], deft_t(in[1])), of_x);
    grad_in[1] = deft_mul(deft_matmul(deft_t(in[0]), grad_out[0]), of_w);
}

GRADIENT(right)
{
    UNUSED;
    gradients(in, grad_out, 1, 1, grad_in);
    return DEFT_OK;
}

GRADIENT(doubled)
{
    UNUSED;
    gradients(in, grad_out, 1, 2, grad_in);
    return DEFT_OK;
}

GRADIENT(negated)
{
    UNUSED;
    gradients(in, grad_out, -1, 1, grad_in);
    return DEFT_OK;
}

GRADIENT(forgotten)
{
    UNUSED;
    gradients(in, grad_out, 1, 1, grad_in);
    grad_in[1] = NULL;
    return DEFT_OK;
}

GRADIENT(of_another_shape)
{
    UNUSED;
    gradients(in, grad_out, 1, 1, grad_in);
    grad_in[0] = deft_sum(grad_in[0], DEFT_AXES(0), false);
    return DEFT_OK;
}

GRADIENT(constant)
{
    UNUSED;
    gradients((deft_tensor *[]){ in[0], deft_stop_gradient(in[1]) }, grad_out, 1, 1, grad_in);
    return DEFT_OK;
}

RULE(right_rule)
{
    UNUSED;
    (void)n;
    out[0] = deft_matmul(is_mapped[0] ? in[0] : deft_unsqueeze(in[0], 0),
                         is_mapped[1] ? in[1] : deft_unsqueeze(in[1], 0));
    return DEFT_OK;
}

RULE(off_by_an_axis)
{
    const deft_status st = right_rule(cx, n, in, is_mapped, n_in, out, n_out, user);
    out[0] = deft_transpose(out[0], 0, 1);
    return st;
}

RULE(reversed)
{
    const deft_status st = right_rule(cx, n, in, is_mapped, n_in, out, n_out, user);
    out[0] = deft_flip(out[0], DEFT_AXES(0));
    return st;
}

RULE(rounded)
{
    const deft_status st = right_rule(cx, n, in, is_mapped, n_in, out, n_out, user);
    out[0] = deft_mul(out[0], 1.0000000000000002);
    return st;
}

RULE(without_gradient)
{
    const deft_status st = right_rule(cx, n, in, is_mapped, n_in, out, n_out, user);
    out[0] = deft_stop_gradient(out[0]);
    return st;
}

static double n_calls;

BODY(counts)
{
    (void)product(cx, in, n_in, out, n_out, user);
    out[0] = deft_mul(out[0], 1 + n_calls++);
    return DEFT_OK;
}

BODY(leaves_its_result)
{
    UNUSED;
    return DEFT_OK;
}

static void product_of_two(const double *in, double *out)
{
    *out = in[0] * in[1];
}

static const struct {
    const char *name;
    deft_body_fn body; /* NULL: a formula */
    deft_backward_fn grad;
    deft_op_batch_fn batch;
} operators[] = {
    { "right.derived", product, NULL, NULL },
    { "right.given", product, right, right_rule },
    { "wrong.doubled", product, doubled, NULL },
    { "wrong.negated", product, negated, NULL },
    { "wrong.forgotten", product, forgotten, NULL },
    { "wrong.shape", product, of_another_shape, NULL },
    { "wrong.second", product, constant, NULL },
    { "wrong.axis", product, NULL, off_by_an_axis },
    { "wrong.order", product, right, reversed },
    { "wrong.bits", product, NULL, rounded },
    { "wrong.stopped", product, NULL, without_gradient },
    { "wrong.state", counts, NULL, NULL },
    { "wrong.result", leaves_its_result, NULL, NULL },
    { "wrong.formula", NULL, NULL, NULL },
};

static deft_status define(deft_ctx *cx, size_t i, deft_op **op)
{
    char why[256];
    deft_runtime *const rt = deft_ctx_runtime(cx);
    if (!operators[i].body)
        return deft_formula_define(rt,
                                   &(deft_formula_def){ .size = sizeof(deft_formula_def),
                                                        .name = operators[i].name,
                                                        .version = 1,
                                                        .text = "(x, y) { return x * y * 1.5; }",
                                                        .reference = product_of_two },
                                   op, why, sizeof why);
    return deft_op_define(rt,
                          &(deft_op_def){ .size = sizeof(deft_op_def),
                                          .name = operators[i].name,
                                          .version = 1,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .body = operators[i].body,
                                          .grad = operators[i].grad,
                                          .batch = operators[i].batch },
                          op, why, sizeof why);
}

deft_status deft_op_cases(deft_ctx *cx, deft_op_case_fn check, void *user)
{
    static const double data[9] = { 0.5, -1.25, 2, 0.75, 1.5, -0.375, 1, 0.25, -2.5 };
    const char *const asked = getenv("TEST_OPCHECK");
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(3, 3), DEFT_F64, data, sizeof data);
    deft_tensor *const in[] = { x, deft_add(x, 0.125) };
    const bool all = asked && !strcmp(asked, "all");
    if (asked && !strcmp(asked, "none")) return DEFT_OK;
    if (asked && !strcmp(asked, "fails")) return DEFT_E_RANGE;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        deft_op *op;
        if (!all && strncmp(operators[i].name, "right.", 6) != 0) continue;
        const deft_status st = define(cx, i, &op);
        if (st != DEFT_OK) return st;
        check(user, i == 0 ? "two matrices" : NULL, op, in, 2, NULL);
    }
    return DEFT_OK;
}
