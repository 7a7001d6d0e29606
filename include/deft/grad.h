/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients by reverse mode. The pending records are walked from results back to inputs.
 * For each operation on the way, its derivative is recorded as ordinary operations.
 *
 * Gradients can be read, assigned, used in loops and differentiated again. Forward pass,
 * backward pass and update are one trace, which is fused and planned as one program.
 * Nothing is computed here.
 *
 * Everything that was recorded in the open step can be differentiated, also after it has
 * been read. The end of a step forgets where values came from, and so does, outside steps,
 * the end of the outermost scope. So take gradients before. A tensor that was assigned
 * since it was used stands for the value that was used.
 *
 * A gradient has the dtype and shape of its tensor. Integers and bools have none:
 * comparisons, argmax, indices and the like are constants. Where a function has a kink or a
 * jump, docs/gradients.md says which value is taken.
 *
 * Unless a comment says otherwise these are recording calls. NULL or false means a mistake,
 * and context.h says which call delivers its status. Results belong to the innermost open
 * scope. Arrays are read during the call only. A context and its tensors belong to one
 * thread at a time. DEFT_E_MEMORY is possible everywhere.
 */
#ifndef DEFT_GRAD_H
#define DEFT_GRAD_H

#include "deft/control.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of deft_grad and deft_jvp. */
typedef struct deft_grad_options {
    size_t size; /**< sizeof(deft_grad_options) */
    /** A tensor on which no result depends has gradient 0. Otherwise it is a mistake
     * (DEFT_E_STATE). */
    bool unused_is_zero;
} deft_grad_options;

/** Sets out[i] to the gradient of the sum over k of sum(of[k] * seeds[k]) with respect to
 * with[i].
 *
 * seeds NULL, or seeds[k] NULL, means 1, and of[k] must then have a single element. A seed
 * has the shape and dtype of its result, or is a bare number. n_of and n_with are at least
 * 1. options NULL means defaults.
 *
 * DEFT_E_ARG: a missing list, or a bare number in `of` or `with`. DEFT_E_DTYPE: a tensor
 * that is no float. DEFT_E_SHAPE: a seed that does not fit, or is missing. DEFT_E_STATE: no
 * result depends on with[i]. DEFT_E_LIMIT: the gradient goes through a deft_while with a bound
 * that is too large: its states are kept for as many iterations as the bound permits. */
DEFT_API bool deft_grad(deft_tensor *const *of, deft_tensor *const *seeds, size_t n_of,
                        deft_tensor *const *with, size_t n_with, const deft_grad_options *options,
                        deft_tensor **out);

/** Calls fn once with in. fn sets values[0..n_values), each of which must not stay NULL.
 * grads[i] becomes the gradient of values[0], which has a single element, with respect to
 * in[i]. The other values are returned as they are.
 *
 * fn is an ordinary function and may read what it likes. A status other than DEFT_OK is the
 * mistake. n_in and n_values are at least 1, else DEFT_E_ARG. Other errors are those of
 * deft_grad. */
DEFT_API bool deft_value_and_grad(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                                  size_t n_in, deft_tensor **values, size_t n_values,
                                  deft_tensor **grads);

/** Forward mode: out[k] is the derivative of of[k] when every with[i] moves by tangents[i]. It
 * has the dtype and shape of of[k], and tangents[i] those of with[i].
 *
 * It is computed by reverse mode applied twice, the second time to something linear. This
 * is the reverse of Radul et al., "You Only Linearize Once", 2023. What only the first pass
 * needs is never computed. Errors are those of deft_grad. */
DEFT_API bool deft_jvp(deft_tensor *const *of, size_t n_of, deft_tensor *const *with,
                       deft_tensor *const *tangents, size_t n_with,
                       const deft_grad_options *options, deft_tensor **out);

/** The value of t as a constant: no gradient goes through it. */
DEFT_API deft_tensor *deft_stop_gradient(deft_tensor *t);

/** Receives the complete gradient of a tensor, and returns the gradient to use in its place,
 * with the same shape and dtype. It records under the rules of a loop's function
 * (control.h). */
typedef deft_tensor *(*deft_grad_hook_fn)(deft_ctx *cx, deft_tensor *grad, void *user);

/** Calls fn each time a gradient is taken of something that depends on t. Several hooks are
 * called in the order in which they were set. user is passed to fn and must live until the
 * step ends. A hook that was set in a step ends with it, whether it is committed or aborted.
 *
 * Returns true, or false with DEFT_E_ARG for a NULL fn. A hook that returns NULL, or
 * another shape or dtype, is a mistake of the call that takes the gradient. */
DEFT_API bool deft_grad_hook(deft_tensor *t, deft_grad_hook_fn fn, void *user);

/** The derivative of a custom function. It receives the inputs, the results, and the
 * gradients of the results. It sets grad_in[i] to the gradient of in[i], with the shape and
 * dtype of in[i]. A grad_in[i] that stays NULL means that there is none. */
typedef deft_status (*deft_backward_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                        deft_tensor *const *out, deft_tensor *const *grad_out,
                                        size_t n_out, deft_tensor **grad_in, void *user);

/** Calls forward at once, which sets out[0..n_out), and gives these results a derivative of
 * their own. Each time a gradient is taken through them, backward is called once.
 *
 * Both functions record under the rules of a loop's function. They may call
 * deft_device_work where deft_custom_grad itself is outside loops, branches and the like. A
 * bare number in the list `in` stays one in forward. In backward it is an f32, or an i64
 * when deft_num_i made it. user is passed to both and must live until the step ends.
 *
 * DEFT_E_ARG: a missing function, no result, too many tensors, or a result that stays NULL.
 * A status of forward other than DEFT_OK is the mistake. */
DEFT_API bool deft_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward,
                               void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out);

/** An acting call: computes everything pending that `list` depends on, and looks for the
 * first NaN. Returns DEFT_E_NAN when there is one.
 *
 * The sentence then names the operation, its source line and the number of NaNs. An
 * operation that only passes on a NaN of its operands is not named. A loop or branch is
 * named as one operation. The call is for finding faults: values that are looked at are not
 * fused, which is slow.
 *
 * DEFT_E_ARG: list is NULL, or has no tensor. DEFT_E_STATE: the call is inside the function
 * of a loop, a branch or deft_vmap. Other statuses are those of deft_eval (eval.h). */
DEFT_API DEFT_MUST_CHECK deft_status deft_nan_check(deft_tensor *const *list, size_t n);

#ifdef __cplusplus
}
#endif
#endif
