/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalar functions of the program, written as text.
 *
 * A formula is a function of scalars: a special function, a material law, a transform of colours.
 * It is defined once, and becomes an operator of the program (extend.h). A call applies it to all
 * elements, and records the operations of the text. So deft fuses it with what is around it,
 * compiles it for all devices, differentiates it, captures and exports it. The plan is that of the
 * same operations by hand.
 *
 *   deft_op *clip = NULL;
 *   deft_formula_define(rt, &(deft_formula_def){ .size = sizeof(deft_formula_def),
 *                                                .name = "acme.soft_clip", .version = 1,
 *                                                .text = "(x, limit) {              \n"
 *                                                        "    y = x / limit;        \n"
 *                                                        "    return limit * tanh(y);\n"
 *                                                        "}" },
 *                       &clip, NULL, 0);
 *   ...
 *   y = deft_apply(clip, x, deft_num(cx, 3));
 *
 * The language is a small part of C, without types:
 *
 *   formula     ( names of the inputs ) { statements }
 *   statement   name = expression ;      a name that is not used yet
 *               return expressions ;     the last one; several results are separated by commas
 *   operators   ?:  ||  &&  |  ^  &  == !=  < <= > >=  << >>  + -  * / %  unary - + ! ~
 *               with the precedence of C. They are deft_where, deft_logical_or and so on, on all
 *               elements: both sides of && and || and ?: are computed. % is deft_fmod. / is the
 *               exact quotient, also of integers: 1 / 2 is 0.5.
 *   functions   those of DEFT_UNARY_OPS and DEFT_BINARY_OPS (ops.h), under their names without
 *               deft_; min and max for minimum and maximum; where, fma, and clamp(x, low, high);
 *               names of dtypes, which are casts: f64(x), i32(x)
 *               polyval(x, a, b, c) is a x^2 + b x + c, as (a * x + b) * x + c
 *   formulas    with one result that the same runtime has already: acme.j1(x). Their names have no
 *               '-'
 *   numbers     1, 0x1f, 0.5, 1e-3, and pi, inf, nan
 *   comments    as in C
 *
 * Numbers follow the rules of numbers in calls (docs/promotion.md): they take the dtype of what
 * they meet, so a formula serves all dtypes. When both values of a choice with ?: are numbers, they
 * take the dtype to which the inputs promote. All numbers are part of the formula, in captures too.
 *
 * Numbers alone are computed when the formula is defined: + - * / and unary - as well as sqrt and
 * abs, in f64. For + - * of integers they are exact.
 *
 * A formula has up to 64 inputs, 64 results and 1000 operations, in at most 65,535 bytes.
 *
 * Derivatives follow from the operations. As everywhere, the derivative of c ? a : b is computed
 * from both a and b: where the one that is not taken is infinite or NaN, so is the derivative. A
 * `derivative` of the definition replaces what follows.
 */
#ifndef DEFT_FORMULA_H
#define DEFT_FORMULA_H

#include "deft/extend.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The same function in C, for checks: reads the inputs, and sets the results. */
typedef void (*deft_formula_fn)(const double *in, double *out);

/** The definition of a formula. It is read, and its texts copied, during deft_formula_define. */
typedef struct deft_formula_def {
    size_t size;      /**< sizeof(deft_formula_def) */
    const char *name; /**< As deft_op_def.name. */
    uint32_t version; /**< At least 1. A text that computes something else is another version. */
    const char *text; /**< The formula. */
    /** A formula of all partial derivatives: of the first result by each input, then of the
     * second, and so on. It has the inputs of `text`, and may have the results after them. A
     * partial derivative that is the number 0 means that there is none. NULL: derivatives follow
     * from `text`. For complex numbers it has the derivatives of an analytic function. */
    const char *derivative;
    /** deft_op_check compares the results of f64 inputs with those of this function. Two NaNs are
     * equal. NULL: nothing is compared. */
    deft_formula_fn reference;
    double ulps; /**< The most allowed, in units of the last place of the result. 0: 4. */
} deft_formula_def;

/** Defines a formula. *out becomes an operator that the runtime owns. deft_op_call takes it with
 * NULL attributes. deft_op_destroy removes it, but not while another formula calls it
 * (DEFT_E_STATE).
 *
 * why and n are as in deft_op_define. A sentence about a text names line and column. On failure
 * *out is NULL.
 *
 * DEFT_E_ARG: rt, def, out or the text is NULL, a member is out of its range, or a text is no
 * formula. DEFT_E_STATE: the runtime has another definition of that name. DEFT_E_LIMIT: a text is
 * too long, or has too many operations. DEFT_E_MEMORY is possible. Any thread. */
DEFT_API DEFT_MUST_CHECK deft_status deft_formula_define(deft_runtime *rt,
                                                         const deft_formula_def *def, deft_op **out,
                                                         char *why, size_t n);

/** Records a call of a formula, or of another operator with one result and without attributes.
 *
 * This is a recording call. in[0..n) is a list of tensors; their shapes broadcast. Returns the
 * result, or NULL for a mistake. Errors, ownership and thread rule are those of deft_op_call. */
DEFT_API deft_tensor *deft_apply_list(const deft_op *op, deft_tensor *const *in, size_t n);

/** The same with the tensors as arguments: deft_apply(op, x, y). */
#define deft_apply(op, ...)                                                                        \
    deft_apply_list(op, (deft_tensor *const[]){ __VA_ARGS__ },                                     \
                    sizeof((deft_tensor *const[]){ __VA_ARGS__ }) / sizeof(deft_tensor *))

#ifdef __cplusplus
}
#endif
#endif
