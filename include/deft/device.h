/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs. A value lives on a device. Where it lives never changes what a program may do nor, in
 * strict mode, a bit of what it computes, only what it costs.
 *
 * Where work runs: on the device of the context (deft_ctx_options.device). In a context of the CPU,
 * what has an operand on a GPU is computed there, with several on the one that is recorded first.
 * What has to be computed as one unit (a step) runs on one device; results live there. Operands
 * that live elsewhere are copied there each time: deft_explain and the log topic "why" tell of it
 * once for each program. Memory of deft_wrap_mut on another device gets its results when they are
 * computed, and is written whole or, where the unit fails, not at all.
 *
 * Work on a GPU is only put into its queue, in order: one queue (a stream) for each context and
 * GPU. Calls that hand values out wait for it (deft_read, deft_map, ...), so do deft_wait and
 * whatever writes memory of deft_wrap_mut that the host has. What can fail by a mistake of the
 * program, an index outside, is found before anything takes effect; a GPU that fails does so late:
 * DEFT_E_BACKEND out of a call that waits, naming what was launched. Values on it are then lost.
 * A step that is submitted in a context that uses a GPU is run at once: it has only to be put in.
 *
 * A child after a fork cannot use the GPUs of its parent: that is a rule of the driver.
 */
#ifndef DEFT_DEVICE_H
#define DEFT_DEVICE_H

#include "deft/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- which there are ---- */

/* How many GPUs deft could use. 0: why, unless it is NULL, gets a sentence, cut at n and terminated
 * ("" where there are some). Opens none of them. Any thread. */
DEFT_API uint32_t deft_gpu_count(deft_runtime *rt, char *why, size_t n);

/* One line about a device ("cpu: ...", "cuda:0 (...)"), cut at n and terminated. Opens a GPU;
 * starts the compiler of the CPU. Fails with DEFT_E_BACKEND where the device can't be used, and buf
 * has the reason. Any thread. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_describe(deft_runtime *rt, deft_device where,
                                                          char *buf, size_t n);

/* Memory of values there, of the whole runtime. Bytes. */
typedef struct deft_device_memory {
    uint64_t live_bytes, peak_bytes;
    uint64_t cached_bytes;                 /* freed, kept for reuse: deft_runtime_trim */
    uint64_t requests, system_allocations; /* of the requests, those that went to the system */
} deft_device_memory;

/* size = sizeof(deft_device_memory). All 0 for a device that was never opened. DEFT_E_ARG: there
 * can be no such device. Any thread. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_memory_read(deft_runtime *rt, deft_device where,
                                                             deft_device_memory *out, size_t size);

/* ---- values ---- */

/* The value of t on that device. Computes t when it is pending, as a read does, and inside a step
 * as its policy of syncs says. What lives there already is not copied, memory of the caller's
 * apart. The result is a new tensor: no gradient goes through it, and it is no view. NULL, with the
 * error to be collected: DEFT_E_BACKEND, the device can't be used; DEFT_E_STATE inside a captured
 * function, a loop, a branch or deft_vmap; DEFT_E_ARG for a bare number. */
DEFT_API deft_tensor *deft_to(deft_tensor *t, deft_device where);

/* Where the value of t lives; of a pending one, where it would be computed if that came now. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_of(deft_tensor *t, deft_device *out);

/* deft_wrap and deft_wrap_mut for memory of a GPU, as the driver has it (CUdeviceptr, or what
 * cudaMalloc gives). What cx puts into its queue reads it, and with _mut writes it, until
 * deft_wait; a program with a stream of its own lets that wait, or hands it to the context.
 * DEFT_E_ARG: data is not there, or not at a multiple of an element's size. where may be DEFT_CPU.
 */
DEFT_API deft_tensor *deft_wrap_device(deft_ctx *cx, deft_device where, deft_shape shape,
                                       deft_dtype dtype, const void *data, size_t bytes,
                                       const int64_t *strides);
DEFT_API deft_tensor *deft_wrap_device_mut(deft_ctx *cx, deft_device where, deft_shape shape,
                                           deft_dtype dtype, void *data, size_t bytes,
                                           const int64_t *strides);

/* deft_map without a copy between devices: out->data is an address of the device that *where names
 * (memory of deft_wrap_mut and deft_wrap_device_mut is copied there, as in deft_map). On a GPU the
 * elements are there for what comes later in deft_stream, or after deft_wait. The caller's own use
 * has to end before deft_unmap, or be in that stream. */
DEFT_API DEFT_MUST_CHECK deft_status deft_map_device(deft_tensor *t, deft_mapped *out,
                                                     deft_device *where);

/* The CUstream that cx puts its work on that GPU into; lives as long as cx. NULL for DEFT_CPU, and
 * with the error to be collected when there is none. */
DEFT_API void *deft_stream(deft_ctx *cx, deft_device where);

/* ---- work of the caller's ---- */

/* Puts work into that stream and does not wait for it: kernels, calls of cuFFT, NCCL and the like.
 * in[i] and out[i] are addresses of the device: row-major elements, without gaps, of the tensors in
 * the order they were given. What is in `in` may only be read, what is in `out` is all to be
 * written; bools are bytes of 0 or 1. The GPU's context is current. In a context of the CPU the
 * addresses are the host's, stream is NULL, and the work is done when fn returns. fn calls nothing
 * of deft. Anything but DEFT_OK fails the call with that status. */
typedef deft_status (*deft_work_fn)(void *stream, const void *const *in, void *const *out,
                                    void *user);

typedef struct deft_work {
    size_t size; /* sizeof(deft_work) */
    deft_work_fn fn;
    void *user;       /* handed to fn */
    const char *name; /* for messages and deft_show; NULL: "work" */
    /* 0: fn is called each time. Else what fn puts in is the same whenever fn, user, key, and the
     * addresses, dtypes and shapes of all tensors are: where runs are replayed (below) it is put in
     * again, kernels and all their arguments as they were, without a call of fn. Another key says
     * that something else has changed. What was put in, and host memory that it reads, must exist
     * for as long as such calls come. */
    uint64_t key;
} deft_work;

/* What a result is. */
typedef struct deft_work_result {
    deft_shape shape;
    deft_dtype dtype;
} deft_work_result;

/* Acting, and a cut: in[0..n_in) are computed where they are pending, by the policy of the step as
 * in a read; then w->fn is called, and out[0..n_out) are new tensors of memory that it fills. They
 * belong to the innermost open scope. What comes later, in cx or in deft_stream, comes after the
 * work; nothing waits for it on the host. Either number may be 0.
 *
 * It is done where in[] live, as all work is (above); what lives elsewhere, and memory of
 * deft_wrap with gaps, is copied for it. It takes effect at once: when the step fails its results
 * are gone like all that the step made, but what fn writes elsewhere is not undone. When fn fails,
 * all of out are NULL, and what it had put in runs all the same.
 *
 * Where runs are replayed fn is called for the first time as ever, then once for a stream that is
 * captured (for this thread: cuStreamBeginCapture), and then for other addresses. What may not be
 * captured there, taking memory say, makes the capture fail: the work is put in as ever, by one
 * more call of fn, and tried again later.
 *
 * No gradient goes through it, but deft_custom_grad's functions may call it. In a captured
 * function, a loop, a branch, a hook or deft_vmap: DEFT_E_STATE. DEFT_E_ARG: a bare number, no fn,
 * lists that are NULL. Errors of the GPU come late. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_work(deft_ctx *cx, const deft_work *w,
                                                      deft_tensor *const *in, size_t n_in,
                                                      const deft_work_result *results,
                                                      deft_tensor **out, size_t n_out);

/* ---- replay: deft_ctx_options.replay ---- */

/* Of one GPU, in one context. Runs are those of plans, of which a step is one, or, with loops and
 * branches, several; and those of deft_device_work. */
typedef struct deft_replay_stats {
    uint64_t is_on; /* 1 or 0 */
    uint64_t runs;
    uint64_t plain;    /* put in kernel by kernel */
    uint64_t recorded; /* a graph was made and launched */
    uint64_t replayed; /* launched as it stood, addresses and numbers apart */
    uint64_t placed;   /* the same, in other memory, as something held was in the way */
    uint64_t reshaped; /* a graph of other extents was changed to these */
    uint64_t updates;  /* launches within graphs that were given other arguments */
    uint64_t graphs;   /* there are */
    uint64_t graph_bytes;
    uint64_t pool_bytes;      /* of memory that all graphs share */
    uint64_t peak_path_bytes; /* of these, the most that was needed at once */
    uint64_t separate_bytes;  /* what graphs would take that did not share */
    uint64_t held;            /* values that live there */
    uint64_t tables;     /* of arguments, put in before a graph by one copy in place of updates */
    uint64_t works;      /* of the runs, those of deft_device_work */
    uint64_t work_calls; /* of their functions: to put work in, or to have it captured */
} deft_replay_stats;

/* size = sizeof(deft_replay_stats). All 0 where nothing is replayed. Why a run was not replayed:
 * deft_show, "graphs". DEFT_E_ARG: there can be no such device. */
DEFT_API DEFT_MUST_CHECK deft_status deft_replay_read(deft_ctx *cx, deft_device where,
                                                      deft_replay_stats *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
