/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches that values decide, as part of the trace.
 *
 * The C functions of a loop or branch run once for each call, while the call is recorded.
 * When the trace runs, values decide how often the recorded operations run. These
 * operations are fused and planned like all others.
 *
 * Rules for all functions here:
 *   - They are recording calls. They return true, or false for a mistake; then all of out
 *     are NULL. context.h has the error rule, and which call delivers the status that a
 *     comment names here.
 *   - Results in out belong to the innermost open scope. out may be the array of the
 *     operands.
 *   - Tensors, functions and arrays are borrowed. user is passed to the functions and need
 *     not live longer than the call.
 *   - A context and its tensors belong to one thread at a time.
 *   - Loops and branches nest, 16 deep together. A list has at most 65536 tensors.
 *   - DEFT_E_ARG: a function, list or number is missing or wrong, or a function leaves a
 *     result NULL. DEFT_E_LIMIT: nested too deep. DEFT_E_MEMORY is possible everywhere.
 *
 * Rules inside the functions (deft_body_fn):
 *   - Tensors from outside may be used. What depends on no state is computed once, before
 *     the loop.
 *   - Nothing can be read, computed or kept. Nothing can be drawn: draw before the loop, and
 *     pass the numbers as rows.
 *   - Only tensors that were made inside can be assigned. A value leaves as a state, a row
 *     or a result.
 *   - Breaking these rules is a mistake, DEFT_E_STATE.
 *
 * Bare numbers (deft_num). Among the operands of a branch a number stays a number inside.
 * When one branch gives a number as a result, the number takes the dtype and shape of the
 * other branch's result. The initial state of a loop, and a row that the body makes, meet no
 * tensor: deft_num is f32 there, and deft_num_i is i64.
 *
 * A loop is one launch. When its body is elementwise, the loop is one kernel with its states
 * in registers. Otherwise its iterations run one after the other inside the runtime.
 */
#ifndef DEFT_CONTROL_H
#define DEFT_CONTROL_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A function that records: the body of a loop, its test, a branch, or the function that
 * deft_vmap and some calls of grad.h take.
 *
 * It reads in[0..n_in), and sets all of out[0..n_out), which are NULL before. user is the
 * pointer of the call. A status other than DEFT_OK becomes the mistake of the call, unless
 * the function has recorded a mistake itself. */
typedef deft_status (*deft_body_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out, void *user);

/** Records a loop: while test holds, and at most `most` times, body makes new states from the
 * states.
 *
 *   - init: the n initial states; n is at least 1.
 *   - test: gets the n states and sets out[0] to a bool of shape []. It runs before each
 *     iteration.
 *   - body: gets the n states and sets the n next states, with the shapes and dtypes of
 *     init. A bare number takes both.
 *   - most: a bound on the number of iterations, at least 0. It is an argument of the trace. A
 *     gradient keeps the states of `most` iterations, so give it a bound near what it needs.
 *   - out: gets the n states after the loop; those of init when the test fails at first.
 *
 * DEFT_E_SHAPE: a next state has another shape or dtype than its state. DEFT_E_DTYPE: the
 * test makes no bool of shape []. */
DEFT_API bool deft_while(deft_ctx *cx, deft_body_fn test, deft_body_fn body, void *user,
                         deft_tensor *const *init, size_t n, int64_t most, deft_tensor **out);

/** Records a loop of `length` iterations over rows.
 *
 *   - init: the n_states initial states.
 *   - rows: n_rows tensors, whose first axes have `length` elements.
 *   - body: gets, in iteration i, the n_states states and then row i of each tensor in rows.
 *     It sets the n_states next states, like init, and then n_outs results.
 *   - length: the number of iterations, at least 0. It is an argument of the trace.
 *   - out: gets n_states + n_outs tensors. These are the states after the loop, and then for
 *     each result its rows of all iterations, along a new first axis of `length` elements.
 *
 * n_states, n_rows and n_outs may be 0, but n_states + n_outs may not.
 *
 * DEFT_E_SHAPE: a next state has another shape or dtype than its state, or a tensor in rows
 * has not `length` rows. DEFT_E_LIMIT: a result has DEFT_MAX_RANK axes already. */
DEFT_API bool deft_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init,
                        size_t n_states, deft_tensor *const *rows, size_t n_rows, int64_t length,
                        size_t n_outs, deft_tensor **out);

/** Records a branch: the results of `then` when condition is true, else those of `otherwise`.
 *
 *   - condition: a bool of shape []. NULL gives false without another mistake.
 *   - in: n_in operands, which both functions get; n_in may be 0.
 *   - out: gets the n_out results; n_out is at least 1.
 *
 * Both functions are recorded, and their results agree in shape and dtype. A value that only
 * one branch needs is computed only when that branch is taken. An index out of range in the
 * other branch is then no error.
 *
 * DEFT_E_DTYPE: the condition is no bool of shape []. DEFT_E_SHAPE: the results of the
 * branches differ in shape or dtype. */
DEFT_API bool deft_cond(deft_tensor *condition, deft_body_fn then, deft_body_fn otherwise,
                        void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
