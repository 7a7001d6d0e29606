/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_vmap: applies a function of one example to many examples at once.
 *
 * The function is recorded once. Each of its operations that depends on an example is then
 * recorded again, with one more axis for the examples. So the number of operations does not
 * grow with the number of examples. What depends on no example is computed once.
 *
 * Gradients work inside and outside (grad.h). A gradient that is taken inside the function
 * is that of each example. The results of deft_vmap can be differentiated.
 */
#ifndef DEFT_VMAP_H
#define DEFT_VMAP_H

#include <limits.h>

#include "deft/control.h"

#ifdef __cplusplus
extern "C" {
#endif

/** As an axis of an operand: the tensor is the same for all examples. As an axis of a result:
 * the result depends on no example. */
#define DEFT_NOT_MAPPED INT_MIN

/** Records fn for all examples: calls fn once, for one example, and records what it recorded
 * again for all of them.
 *
 *   - fn: sets n_out results from n_in operands, under the rules of a loop's function
 *     (control.h), but it may draw random numbers. A draw of shape S becomes one draw of
 *     shape [n, S] for n examples, and example i gets row i of it. Tensors from outside may
 *     be used, and are the same for all.
 *   - user: is passed to fn, and need not live longer than the call.
 *   - in: n_in operands, at least 1.
 *   - in_axes: in_axes[i] is the axis of in[i] that numbers the examples. fn sees in[i]
 *     without that axis; with DEFT_NOT_MAPPED it sees in[i] as it is. A negative axis counts
 *     from the last one. in_axes NULL means axis 0 for all.
 *   - out: gets n_out results, at least 1. out may be the array of the operands.
 *   - out_axes: out_axes[i] is the axis of out[i] along which the results of all examples are
 *     stacked. With DEFT_NOT_MAPPED out[i] is the result as it is. A negative axis counts
 *     from the last axis of out[i]. out_axes NULL means axis 0 for all.
 *
 * At least one operand is mapped. All mapped operands have the same number of examples,
 * which may be 0. fn is called in that case too.
 *
 * Results have the bits that fn gives for each example alone. There are three differences:
 *   - Each example has random numbers of its own, as said above.
 *   - A deft_cond whose condition depends on an example computes both branches. An index
 *     out of range in either branch is an error.
 *   - A deft_while whose test depends on an example iterates until the test holds for no
 *     example. Once the test of an example has failed, its states stay as they are. The body
 *     still runs with these states, so an index out of range there is an error.
 *
 * This is a recording call. It returns true, or false for a mistake or when cx is NULL. When
 * it returns false, all of out are NULL, unless n_out is above 65536. context.h has the error
 * rule. The innermost open scope owns the results, and operands are borrowed. A context and
 * its tensors belong to one thread at a time.
 *
 * DEFT_E_ARG: fn, in or out is NULL, or a number of tensors is 0 or above 65536. The same
 * when no operand is mapped, when fn leaves a result NULL, or when a result that is not
 * mapped depends on an example. DEFT_E_RANGE: there is no such axis. DEFT_E_SHAPE: the
 * numbers of examples differ. DEFT_E_LIMIT: a tensor in fn that depends on an example has
 * DEFT_MAX_RANK axes, or functions nest more than 16 deep. Functions of loops, branches,
 * deft_vmap and grad.h count together. DEFT_E_MEMORY is possible. A status other than DEFT_OK
 * that fn returns becomes the mistake of the call, as deft_body_fn says. */
DEFT_API bool deft_vmap(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                        const int *in_axes, size_t n_in, deft_tensor **out, const int *out_axes,
                        size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
