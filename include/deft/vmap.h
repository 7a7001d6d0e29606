/* SPDX-License-Identifier: Apache-2.0
 *
 * A function of one example, for many examples at once: what it records is recorded again with an
 * axis more, the examples, in each operation that depends on one of them. So there are as many
 * operations as for one example, whatever the number of examples, and what depends on none is
 * computed once. It goes with gradients either way: gradients inside the function are those of each
 * example (deft/grad.h), and what comes out can be differentiated.
 */
#ifndef DEFT_VMAP_H
#define DEFT_VMAP_H

#include <limits.h>

#include "deft/control.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In a list of axes: this tensor is the same for all examples. */
#define DEFT_NOT_MAPPED INT_MIN

/* Calls fn once, with in, where tensor i lacks the axis in_axes[i], which numbers examples
 * (negative ones count from the last); of DEFT_NOT_MAPPED it sees the tensor as it is. in_axes
 * NULL: 0 for all. At least one is mapped, and those that are have as many examples; there may be
 * none. fn sets n_out results, and out[i] is that of every example, put side by side along a new
 * axis, out_axes[i] (negative ones count from the last axis of out[i]); DEFT_NOT_MAPPED: result i
 * depends on no example, and comes as it is. out_axes NULL: 0 for all. n_in and n_out at least 1;
 * out may be the array of what is handed in.
 *
 * fn records under the rules of a loop's function (deft/control.h), but it may draw: each example
 * gets numbers of its own, those of row i of one draw of all. Tensors from outside may be used, and
 * are the same for all. user need not live longer than the call.
 *
 * Results have the bits that fn gives for each example alone. What differs: a deft_cond whose
 * condition depends on an example computes both branches, so that an index out of range in either
 * is an error; a deft_while whose test does turns until it holds for no example, and states stay as
 * they are from where it does not. A tensor in fn has at most DEFT_MAX_RANK - 1 axes if it depends
 * on an example.
 *
 * Recording call: false, with all of out NULL, means a mistake (deft/context.h).
 */
DEFT_API bool deft_vmap(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                        const int *in_axes, size_t n_in, deft_tensor **out, const int *out_axes,
                        size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
