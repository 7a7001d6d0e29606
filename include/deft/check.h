/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks for tests of a program: gradients against finite differences, and operators of the program
 * (extend.h) against what their bodies record.
 *
 * A check calls the function many times on copies of the given inputs, and computes the results. It
 * returns DEFT_OK when all is well, and DEFT_E_CHECK when it has found faults. Then deft_message
 * has the first fault, and the report has all of them, one in a line: the name of the fault, a
 * colon, and a sentence with the numbers.
 *
 *   - call: the function fails, or leaves a result NULL.
 *   - state: a second call on the same inputs has another result.
 *   - reference: a formula is farther from its reference than the definition allows.
 *   - reverse: the gradient (deft_grad) is not the slope that differences show.
 *   - forward: forward mode (deft_jvp) is not what the gradient says.
 *   - second: the gradient of the gradient is not the slope of the gradient.
 *   - batch: deft_vmap fails, or its results are not those of each example.
 *   - batch gradient: the gradient through deft_vmap is not that of each example.
 *   - loop: the function in deft_scan has another result than outside.
 *   - capture: a replayed capture has another result than the function.
 *
 * Differences are taken along directions that are drawn, for each input of dtype f32 or f64 by
 * itself. Other inputs stay as they are. L is the sum of all float results, each element times a
 * drawn weight, and d is the difference between the two inputs. The slope L(x + h v) - L(x - h v)
 * has to be near s, the sum of gradient times d:
 *
 *     |slope - s|  <=  tolerance (|slope| + sum of |gradient d|) + 64 eps sum of |weight result|
 *
 * eps is that of the dtype of the input. A fault in a single element is found in tensors with up to
 * some hundred elements of f32, or 100,000 of f64. So small inputs of f64 are best. They should lie
 * where the function is smooth within h.
 *
 * Both are acting calls. The thread rule is that of the context (context.h). Inputs are borrowed,
 * at most 64, and a bare number is taken for the tensor that it becomes. When options is NULL, all
 * have their defaults.
 *
 * The argument report may be NULL. Otherwise it is a buffer of n bytes. Its text is cut at n bytes
 * and always terminated. It is "" when there is no fault.
 *
 * DEFT_E_ARG: a missing function, operator or list, or a number that is out of its range.
 * DEFT_E_STATE: the call is inside a step, a captured function, a loop, a branch, deft_vmap or an
 * operator. An undelivered mistake from before is delivered instead. DEFT_E_MEMORY is possible, and
 * what a computation returns (eval.h).
 */
#ifndef DEFT_CHECK_H
#define DEFT_CHECK_H

#include "deft/eval.h"
#include "deft/extend.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the checks. Members that are zero have the default that their comment names. */
typedef struct deft_check_options {
    size_t size;         /**< sizeof(deft_check_options) */
    uint64_t seed;       /**< Of all numbers that are drawn. */
    uint32_t directions; /**< Directions for each input, at most 64. 0: 2. */
    double step;         /**< h. 0: 1e-5 for f64, 5e-3 for f32. */
    double tolerance;    /**< 0: 1e-6 for f64, 2e-3 for f32. */
    bool no_second;      /**< true: gradients of gradients are not checked. */
} deft_check_options;

/** Checks the gradients of fn: `call`, `reverse`, `forward` and `second`. It sets n_out results,
 * 1 to 64, under the rules of a loop's function (control.h), and may be called any number of times.
 * user is passed to it. An input of dtype f32 or f64 is needed, else DEFT_E_DTYPE. */
DEFT_API DEFT_MUST_CHECK deft_status deft_grad_check(deft_ctx *cx, deft_body_fn fn, void *user,
                                                     deft_tensor *const *in, size_t n_in,
                                                     size_t n_out,
                                                     const deft_check_options *options,
                                                     char *report, size_t n);

/** Checks an operator on in[0..n_in) with these attributes: all faults of the list. Gradients are
 * checked when an input is f32 or f64 and a result is a float.
 *
 * For deft_vmap, `loop` and `capture`, examples are made of the inputs: floats times 1, 9/8 and
 * 10/8, other elements shifted along the first axis. All inputs are mapped, along the first axis
 * and along the last one, and then each input alone. Results must have the bits that the operator
 * has for each example. NaNs are equal. An operator that draws random numbers fails the check. */
DEFT_API DEFT_MUST_CHECK deft_status deft_op_check(deft_ctx *cx, const deft_op *op,
                                                   deft_tensor *const *in, size_t n_in,
                                                   const void *attributes,
                                                   const deft_check_options *options, char *report,
                                                   size_t n);

/** Checks an operator on these inputs, for deft_op_cases_fn. label says which inputs they are, and
 * may be NULL. All else is as for deft_op_check, which it calls. */
typedef void (*deft_op_case_fn)(void *user, const char *label, const deft_op *op,
                                deft_tensor *const *in, size_t n_in, const void *attributes);

/** A function with the name deft_op_cases, which a shared library of operators exports for the
 * command `deft opcheck` (docs/cli.md). It defines its operators, and calls check(user, ...) for
 * each of them, once or with several inputs. A scope is open around it, in which it may compute. A
 * status other than DEFT_OK ends the command.
 *
 *   deft_status deft_op_cases(deft_ctx *cx, deft_op_case_fn check, void *user); */
typedef deft_status (*deft_op_cases_fn)(deft_ctx *cx, deft_op_case_fn check, void *user);

#ifdef __cplusplus
}
#endif
#endif
