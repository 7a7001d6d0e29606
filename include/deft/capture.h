/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: a C function is recorded once and then replayed without running its C code.
 *
 * A call of a capture is a step: everything takes effect, or nothing. The first call runs
 * the function and keeps what it recorded. A later call looks for a recording whose guards
 * hold. The guards are:
 *   - Every input has the dtype and the extents that it had.
 *   - An input is memory to write (deft_wrap_mut) exactly where it was so.
 *   - Equal inputs are equal again: f(a, a) is not f(a, b). The same holds between inputs
 *     and the tensors that the function uses from outside.
 *   - Memory that is written overlaps memory that is read exactly where it did.
 *   - The policy of deft_mixed_set is the same.
 *
 * Addresses are arguments: memory may be wrapped anew for each call. Other strides or
 * another alignment may need another plan, but not another recording.
 *
 * When no recording fits, the function runs and is recorded again. Sizes are never guessed.
 * A capture keeps at most DEFT_MAX_RECORDINGS and drops the one that was used least
 * recently. Recordings that differ only in extents share plans and kernels. DEFT_LOG=why
 * reports which guard failed.
 *
 * Numbers. A C number would keep the value that it had while recording. So, inside the
 * function, the number of an operation must come from deft_param_f or deft_param_i, which
 * are looked up at each call. Or it is marked by deft_const_f or deft_const_i. Any other
 * number is a mistake that names the number (DEFT_E_STATE). Bounds of slices, axes,
 * options, and the numbers of calls that take no tensor in their place are part of the
 * function, as its code is. A window that moves must be passed in as an input.
 *
 * Random numbers. Each draw takes the next number of its deft_rng, as when the function
 * runs. The deft_rng must live as long as the capture. A call that fails takes no number.
 * Optimizers (nn.h) count their steps in the same way and must live as long.
 *
 * What cannot be replayed. Such a function runs as C code at each call. The results are
 * correct, and the reason is logged once. This concerns a function that reads, prints or
 * saves a value while it runs, because its C code may depend on the value. It also concerns
 * a function that makes tensors from memory, or keeps tensors that it made.
 *
 * A capture and all calls here follow the thread rule of the context (context.h): one thread
 * at a time. The innermost open scope owns the tensors that calls return.
 */
#ifndef DEFT_CAPTURE_H
#define DEFT_CAPTURE_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The most recordings that a capture keeps. */
#define DEFT_MAX_RECORDINGS 16

/** A captured function with its recordings and parameters. The program owns it. */
typedef struct deft_capture deft_capture;

/** The function to capture. It reads in[0..n_in), assigns what it likes, and sets
 * out[0..n_out), which are NULL before. A result that stays NULL gives DEFT_E_ARG. user is
 * that of deft_capture_create.
 *
 * A tensor from outside must be kept, or belong to a scope that is open at every call. The
 * capture keeps those that it uses. in[] are handles for the call, valid while it runs.
 * Assigning one assigns the caller's tensor. The assignment is seen through all handles of
 * the same tensor; for gradients these are one tensor as well. Assigning an input that is a
 * view gives DEFT_E_ARG, unless the view is kept.
 *
 * The function opens no step. A status other than DEFT_OK fails the call with that status. */
typedef deft_status (*deft_capture_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user);

/** Makes a capture, which the caller owns, and runs nothing yet. user is passed to fn and
 * must be valid at every call. Returns NULL on a mistake: DEFT_E_ARG for a NULL fn,
 * DEFT_E_MEMORY. */
DEFT_API deft_capture *deft_capture_create(deft_ctx *cx, deft_capture_fn fn, void *user);

/** Destroys the capture and sets *c to NULL. NULL and *c NULL are allowed. It must come
 * before deft_ctx_destroy. When the captured function itself calls it, the capture ends
 * with that call. */
DEFT_API void deft_capture_destroy(deft_capture **c);

/** Runs the function, or replays a recording of it, as one step. No step may be open, else
 * the status is DEFT_E_STATE. in and out must not overlap: DEFT_E_ARG.
 *
 * out[0..n_out) get new tensors, which belong to the innermost open scope and keep their
 * values. Memory of the caller that the function returns is copied. On failure nothing has
 * taken effect, and out has no usable tensors. in[] are borrowed.
 *
 * DEFT_E_ARG: a bare number in the list `in`, or a NULL c or list. Other failures are those
 * of deft_step_end. */
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_call(deft_capture *c, deft_tensor *const *in,
                                                       size_t n_in, deft_tensor **out,
                                                       size_t n_out);

/** Sets a parameter from the next call on. The name is copied. DEFT_E_ARG: c is NULL, the name
 * is empty, or the parameter was set as the other kind of number. DEFT_E_MEMORY. */
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_set_f(deft_capture *c, const char *name,
                                                        double value);
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_set_i(deft_capture *c, const char *name,
                                                        int64_t value);
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_set_u(deft_capture *c, const char *name,
                                                        uint64_t value);

/** Inside a captured function: the parameter of that name, a bare number as deft_num makes
 * it. deft_param_i gives integers, also those of deft_capture_set_u. DEFT_E_STATE: no captured
 * function runs. DEFT_E_ARG: the parameter was never set, or was set as the other kind of
 * number. */
DEFT_API deft_tensor *deft_param_f(deft_ctx *cx, const char *name);
DEFT_API deft_tensor *deft_param_i(deft_ctx *cx, const char *name);

/** A bare number, like deft_num, that a captured function may use and that keeps its value. */
DEFT_API deft_tensor *deft_const_f(deft_ctx *cx, double value);
DEFT_API deft_tensor *deft_const_i(deft_ctx *cx, int64_t value);
DEFT_API deft_tensor *deft_const_u(deft_ctx *cx, uint64_t value);

/** Counters since the capture was made. */
typedef struct deft_capture_stats {
    uint64_t calls;      /**< Calls. */
    uint64_t replayed;   /**< Calls that ran no C code. */
    uint64_t recordings; /**< Recordings that were made. */
    uint64_t missed;     /**< Calls that found recordings, none of which fitted. */
} deft_capture_stats;

/** Copies the counters to *out. size is sizeof(deft_capture_stats). When c or out is NULL, the
 * call does nothing. */
DEFT_API void deft_capture_stats_read(const deft_capture *c, deft_capture_stats *out, size_t size);

/** Why the latest call ran C code, in one line; "" when it ran none, and for NULL. The text is
 * valid until the next call of c. */
DEFT_API const char *deft_capture_reason(const deft_capture *c);

#ifdef __cplusplus
}
#endif
#endif
