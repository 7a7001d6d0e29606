/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients, by reverse mode: what is pending is walked back from results to inputs, and for each
 * operation on the way its derivative is recorded as ordinary operations. Gradients can be read,
 * assigned, used in loops and differentiated again; forward, backward and update are one trace,
 * fused and planned as one program. Nothing is computed here.
 *
 * What was recorded in the open step can be differentiated, whether it has been read since or not.
 * The end of a step (outside steps: of the outermost scope) forgets where values came from, so take
 * gradients before. A tensor that was assigned since it was used stands for the value that was
 * used.
 *
 * Gradients have the dtype and shape of the tensor they are of. Integers and bools have none:
 * comparisons, argmax, indices and the like are constants. Where a function has a kink or a jump,
 * docs/gradients.md says which value is taken.
 *
 * Unless stated otherwise these are recording calls: NULL or false means a mistake (deft/context.h
 * says which call delivers it). Results belong to the innermost open scope.
 */
#ifndef DEFT_GRAD_H
#define DEFT_GRAD_H

#include "deft/control.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct deft_grad_options {
    size_t size;         /* sizeof(deft_grad_options) */
    bool unused_is_zero; /* a tensor on which nothing depends has gradient 0; else it is an error */
} deft_grad_options;

/* out[i]: the gradient of sum over k of sum(of[k] * seeds[k]) with respect to with[i]. seeds NULL,
 * or one of them: 1, for which of[k] must have a single element; a seed has the shape and dtype of
 * its result, or is a bare number. n_of and n_with at least 1. options NULL: defaults. */
DEFT_API bool deft_grad(deft_tensor *const *of, deft_tensor *const *seeds, size_t n_of,
                        deft_tensor *const *with, size_t n_with, const deft_grad_options *options,
                        deft_tensor **out);

/* Calls fn once, with in; it sets values[0..n_values). grads[i]: the gradient of values[0], which
 * has a single element, with respect to in[i]. The others are whatever else is wanted of it. fn is
 * an ordinary function, and may read what it likes. */
DEFT_API bool deft_value_and_grad(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                                  size_t n_in, deft_tensor **values, size_t n_values,
                                  deft_tensor **grads);

/* Forward mode: out[k] is the derivative of of[k] when each with[i] moves by tangents[i]. By
 * reverse mode twice, the second time of something linear (as in Radul et al., "You Only Linearize
 * Once", 2023, the other way round); what only the first one needs is never computed. */
DEFT_API bool deft_jvp(deft_tensor *const *of, size_t n_of, deft_tensor *const *with,
                       deft_tensor *const *tangents, size_t n_with,
                       const deft_grad_options *options, deft_tensor **out);

/* t, as a constant. */
DEFT_API deft_tensor *deft_stop_gradient(deft_tensor *t);

/* Calls fn(cx, grad, user) when the gradient of t is complete, each time one is taken of something
 * that depends on t; what it returns, of the same shape and dtype, takes the gradient's place. It
 * records, under the rules of a loop's function (deft/control.h). Several are called in the order
 * they were given. user must live until t's record is gone: until the step ends. true, or an error.
 */
typedef deft_tensor *(*deft_grad_hook_fn)(deft_ctx *cx, deft_tensor *grad, void *user);
DEFT_API bool deft_grad_hook(deft_tensor *t, deft_grad_hook_fn fn, void *user);

/* A function with a derivative of its own. forward is called at once, and sets out[0..n_out). When
 * a gradient is taken through them, backward is called with what went in and came out and the
 * gradients of the results, and sets grad_in[i], of the shape and dtype of in[i], or leaves it NULL
 * for none. It is called once for each gradient that is taken; both record, under the rules of a
 * loop's function, but may call deft_device_work where this is in none of those. A bare number
 * among in is one in forward; backward sees it as f32, deft_num_i as i64. user must live until the
 * step ends. */
typedef deft_status (*deft_backward_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                        deft_tensor *const *out, deft_tensor *const *grad_out,
                                        size_t n_out, deft_tensor **grad_in, void *user);
DEFT_API bool deft_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward,
                               void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out);

/* Acting: computes everything pending behind list and looks for the first NaN. DEFT_E_NAN when
 * there is one, with a sentence that names the operation, its line, and how many: operations that
 * pass on NaNs of their operands are not named. For looking into a fault: nothing is fused across
 * values that are looked at. Loops and branches are named as a whole. */
DEFT_API DEFT_MUST_CHECK deft_status deft_nan_check(deft_tensor *const *list, size_t n);

#ifdef __cplusplus
}
#endif
#endif
