/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches over values, as part of the trace. Their C functions run once per call, while
 * it is recorded; how often their operations run is decided by values, when the trace runs. What
 * they record is fused and planned like everything else.
 *
 * A function reads in[0..n_in) and sets out[0..n_out), which are NULL before. Tensors from outside
 * may be used as they are: what depends on no state is computed once, before the loop. Inside,
 * nothing can be read, computed, kept or drawn (draw before, and pass the numbers as rows), and
 * only tensors made inside can be assigned: what is to leave a loop is a state, a row or a result.
 * Anything but DEFT_OK as its status makes the call fail with it.
 *
 * Bare numbers (deft_num) among in of a branch stay numbers in it, and what one branch gives as a
 * number is made like what the other gives. As the first state of a loop, or as a row that its body
 * makes, a number meets nothing: it is f32, deft_num_i i64.
 *
 * Recording calls: false, with all of out NULL, means a mistake (deft/context.h says which call
 * delivers it). out may be the array of what is handed in. Tensors of out belong to the innermost
 * open scope. Loops and branches nest, loops up to 16 deep. user is handed to the functions and
 * need not live longer than the call.
 *
 * A loop is one launch: when its body is elementwise, one kernel with the states in registers;
 * otherwise its iterations run one after the other without leaving the runtime.
 */
#ifndef DEFT_CONTROL_H
#define DEFT_CONTROL_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef deft_status (*deft_body_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out, void *user);

/* As long as test holds, and at most `most` times: states become what body makes of them. test sets
 * out[0] to a bool of shape [], body sets the n next states, of the shapes and dtypes of init (a
 * bare number takes both). out: the n states at the end; those of init when test never held. n at
 * least 1, most at least 0. */
DEFT_API bool deft_while(deft_ctx *cx, deft_body_fn test, deft_body_fn body, void *user,
                         deft_tensor *const *init, size_t n, int64_t most, deft_tensor **out);

/* length iterations. in of body: the n_states states, then row i of each of the n_rows tensors in
 * rows, whose first axes have length elements. Its out: the next states, then n_outs results. out
 * of the call: the states at the end, then each result's rows along a new first axis of length
 * elements. length may be 0; n_states, n_rows and n_outs too, but there must be something to make.
 */
DEFT_API bool deft_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init,
                        size_t n_states, deft_tensor *const *rows, size_t n_rows, int64_t length,
                        size_t n_outs, deft_tensor **out);

/* then's results if condition, a bool of shape [], is true, else otherwise's. Both are recorded,
 * with the same in; their results agree in shape and dtype. What only one of them needs is computed
 * only when it is asked for; an index out of range in the other is no error. */
DEFT_API bool deft_cond(deft_tensor *condition, deft_body_fn then, deft_body_fn otherwise,
                        void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
