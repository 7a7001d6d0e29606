/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: a C function is recorded once and then replayed, without running its C code.
 *
 * A call of a capture is a step: everything takes effect, or nothing. The first call runs the
 * function and keeps what it recorded. A later call looks for a recording whose guards hold:
 *
 *   every input has the dtype and extents it had, and is memory to write (deft_wrap_mut) where it
 *   was; inputs and the tensors the function uses from outside are the same tensor in the same
 *   places (f(a, a) is not f(a, b)); memory that is written overlaps what is read where it did;
 *   deft_mixed_set is as it was.
 *
 * Addresses are arguments: memory may be wrapped anew for each call. Other strides or alignment are
 * other plans of the same recording, where the code of the kernels depends on them.
 *
 * When none holds, the function runs and is recorded again; sizes are never guessed. A capture
 * keeps at most DEFT_MAX_RECORDINGS, the least recently used one goes first; recordings that differ
 * in extents alone share plans and kernels. DEFT_LOG=why says what did not hold.
 *
 * Numbers. What a C number was while recording, it would stay for ever. So inside the function the
 * number of an operation has to come from deft_param_f/_i, which is looked up at each call, or has
 * to be marked by deft_const_f/_i; any other is an error that names it. Bounds of slices, axes,
 * options, and the numbers of calls that take no tensor instead are part of the function, as its
 * code is; a window that moves is passed in as an input.
 *
 * Random numbers. Each draw takes the next number of its deft_rng, as when the function runs; the
 * deft_rng must live as long as the capture. A call that fails takes none. Optimizers (deft/nn.h)
 * count their steps in the same way, and must live as long.
 *
 * What cannot be replayed runs as C code at each call, correctly, and is logged once with the
 * reason: a function that reads a value while it runs (the C code may depend on it, whether it was
 * computed just now or was there before; printing and saving read, too), makes tensors from memory,
 * or keeps tensors that it made.
 */
#ifndef DEFT_CAPTURE_H
#define DEFT_CAPTURE_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEFT_MAX_RECORDINGS 16

typedef struct deft_capture deft_capture;

/* Records what is to be captured: reads in[0..n_in), assigns what it likes, and sets out[0..n_out),
 * which are NULL before. Tensors from outside must be kept, or belong to a scope that is open at
 * every call; the capture keeps those it uses. in[] are handles of the call, valid while it runs,
 * one for each tensor: assigning one assigns the caller's tensor, which is seen through all others
 * that are the same tensor, and through the tensor itself; to gradients they are one as well. A
 * view (deft_slice and so on, unless it is kept) is not assigned: DEFT_E_ARG. Opens no step.
 * Anything but DEFT_OK fails the call with that status. */
typedef deft_status (*deft_capture_fn)(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user);

/* Runs nothing yet. user is handed to fn; it must be valid whenever the capture is called. NULL on
 * error. The capture dies with deft_capture_destroy, before its context; destroyed by its own
 * function, when that call has ended. */
DEFT_API deft_capture *deft_capture_create(deft_ctx *cx, deft_capture_fn fn, void *user);
DEFT_API void deft_capture_destroy(deft_capture **c); /* NULL and *c NULL are fine */

/* One step. The tensors of out belong to the innermost open scope, and keep their values: what the
 * function returns of the caller's memory is copied. The lists in and out lie apart. No step may be
 * open. */
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_call(deft_capture *c, deft_tensor *const *in,
                                                       size_t n_in, deft_tensor **out,
                                                       size_t n_out);

/* The value of a parameter from the next call on. name is copied. DEFT_E_MEMORY; DEFT_E_ARG. */
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_set_f(deft_capture *c, const char *name,
                                                        double value);
DEFT_API DEFT_MUST_CHECK deft_status deft_capture_set_i(deft_capture *c, const char *name,
                                                        int64_t value);

/* Inside a captured function: the parameter of that name, a number without a dtype of its own as
 * deft_num; an error when it was not set, or was set as the other kind. */
DEFT_API deft_tensor *deft_param_f(deft_ctx *cx, const char *name);
DEFT_API deft_tensor *deft_param_i(deft_ctx *cx, const char *name);
/* A number that is meant to stay: deft_num, allowed inside a captured function. */
DEFT_API deft_tensor *deft_const_f(deft_ctx *cx, double value);
DEFT_API deft_tensor *deft_const_i(deft_ctx *cx, int64_t value);

/* Counters since the capture was made. size = sizeof(deft_capture_stats). */
typedef struct deft_capture_stats {
    uint64_t calls;
    uint64_t replayed;   /* calls that ran no C code */
    uint64_t recordings; /* made */
    uint64_t missed;     /* calls that met recordings, none of which held */
} deft_capture_stats;
DEFT_API void deft_capture_stats_read(const deft_capture *c, deft_capture_stats *out, size_t size);

/* Why the latest call ran C code: one line, valid until the next call; "" when it did not. */
DEFT_API const char *deft_capture_reason(const deft_capture *c);

#ifdef __cplusplus
}
#endif
#endif
