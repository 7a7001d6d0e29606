/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: the GPUs of a machine, values that move between devices, memory and work of the
 * program's own on a GPU, and replay.
 *
 * A value lives on a device: the CPU or one GPU. The device of a value never changes what a
 * program may do. In strict mode it does not change the bits of any result either. It
 * changes only what a program costs.
 *
 * Where work runs:
 *   - A context of a GPU (deft_ctx_options.device) computes on that GPU.
 *   - A context of the CPU computes on the CPU, except what has an operand on a GPU. That
 *     is computed on the GPU. With operands on several GPUs, the operand that was recorded
 *     first decides.
 *   - Work that is computed as one unit, such as a step, runs on one device, and its results
 *     live there.
 *   - Operands that live on another device are copied for each run. deft_explain and the log
 *     topic "why" report this once for each program.
 *   - Memory of deft_wrap_mut on another device gets its results when they are computed.
 *     It is written completely or, when the unit fails, not at all.
 *
 * Work on a GPU is only enqueued, in order. Each context has one queue (a CUDA stream) on
 * each GPU that it uses. These calls wait for the queue:
 *   - calls that give values to the program (deft_read, deft_map, ...);
 *   - deft_wait;
 *   - a computation that writes memory of deft_wrap_mut which is memory of the host.
 *
 * An index out of range is found before the computation has any effect. A failure of a GPU
 * is found late: a call that waits returns DEFT_E_BACKEND, and its sentence names the work
 * that was launched. The values on that GPU are then lost.
 *
 * deft_step_submit in a context that uses a GPU runs the step at once, because this only
 * enqueues work. A child process after a fork cannot use the GPUs of its parent; this is a
 * rule of the driver.
 *
 * Thread rule. Any thread may call a function whose first parameter is a deft_runtime. All
 * other functions follow the rule of the context (context.h): one thread at a time.
 */
#ifndef DEFT_DEVICE_H
#define DEFT_DEVICE_H

#include "deft/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices of a runtime ---- */

/** Returns the number of GPUs that deft could use, at most 16. No GPU is opened.
 *
 * why may be NULL. Otherwise it is a buffer of n bytes. When the result is 0, the buffer
 * gets a sentence with the reason; otherwise it gets "". The text is cut at n bytes and
 * always terminated. rt NULL gives 0 and "". */
DEFT_API uint32_t deft_gpu_count(deft_runtime *rt, char *why, size_t n);

/** Writes one line about a device to buf: "cpu: ..." or "cuda:0 (...)". The text is cut at n
 * bytes and always terminated.
 *
 * The call opens a GPU, and starts the compiler for the CPU. On failure buf has the reason.
 * DEFT_E_BACKEND: the device cannot be used. DEFT_E_ARG: rt is NULL, or there can be no
 * such device. DEFT_E_MEMORY is possible. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_describe(deft_runtime *rt, deft_device where,
                                                          char *buf, size_t n);

/** The memory of values on one device, for all contexts of a runtime. */
typedef struct deft_device_memory {
    uint64_t live_bytes; /**< Bytes in use. */
    uint64_t peak_bytes; /**< The most bytes that were in use at once. */
    /** Bytes that are freed and kept for reuse. deft_runtime_trim gives them back. */
    uint64_t cached_bytes;
    uint64_t requests;           /**< How often memory was requested. */
    uint64_t system_allocations; /**< How many of the requests went to the system. */
} deft_device_memory;

/** Copies the counters of a device to *out. size is sizeof(deft_device_memory). For a device
 * that was never opened all are 0. DEFT_E_ARG: rt or out is NULL, size is 0, or there can be
 * no such device. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_memory_read(deft_runtime *rt, deft_device where,
                                                             deft_device_memory *out, size_t size);

/* ---- values ---- */

/** Returns a new tensor with the value of t on the given device. The innermost open scope
 * owns it. It is no view of t, and no gradient passes through the call.
 *
 * A pending t is computed first, as by a read; inside a step the step's policy of syncs
 * decides. A value that already lives on the device is not copied, unless it is memory of
 * the caller (deft_wrap and its relatives).
 *
 * Returns NULL for a mistake, which context.h says how to collect. t NULL gives NULL.
 * DEFT_E_BACKEND: the device cannot be used. DEFT_E_STATE: the call is inside a captured
 * function, a loop, a branch or deft_vmap. DEFT_E_ARG: t is a bare number, or there can be
 * no such device. The failures of a computation are possible too (eval.h). */
DEFT_API deft_tensor *deft_to(deft_tensor *t, deft_device where);

/** Writes to *out the device on which the value of t lives. For a pending t this is the
 * device on which t would be computed now; for a bare number, that of the context. Nothing
 * is computed.
 *
 * DEFT_E_ARG: t or out is NULL. DEFT_E_STATE: the scope of t has ended, or the call is
 * inside the function of a loop, a branch or deft_vmap. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_of(deft_tensor *t, deft_device *out);

/** deft_wrap and deft_wrap_mut (tensor.h) for memory of a device. data is a CUdeviceptr, or a
 * pointer of cudaMalloc. where may be DEFT_CPU; then data is memory of the host.
 *
 * The memory stays the caller's. Work in the queue of cx reads it, and with _mut writes it,
 * until deft_wait has returned. A program with a stream of its own must order that stream
 * after deft_stream, or give its stream to the context (deft_ctx_options.stream).
 *
 * NULL means a mistake; the mistakes of deft_wrap are possible. DEFT_E_BACKEND: the device
 * cannot be used. DEFT_E_ARG: data is not on that GPU, or is not aligned to the size of an
 * element. */
DEFT_API deft_tensor *deft_wrap_device(deft_ctx *cx, deft_device where, deft_shape shape,
                                       deft_dtype dtype, const void *data, size_t bytes,
                                       const int64_t *strides);
DEFT_API deft_tensor *deft_wrap_device_mut(deft_ctx *cx, deft_device where, deft_shape shape,
                                           deft_dtype dtype, void *data, size_t bytes,
                                           const int64_t *strides);

/** deft_map (eval.h) without a copy between devices. *where gets the device on which the
 * value lives, and out->data is an address on that device. As in deft_map, a copy on the
 * same device is lent of memory of deft_wrap_mut and deft_wrap_device_mut.
 *
 * On a GPU the elements are valid for work that is enqueued in deft_stream later, and for
 * all work after deft_wait. The caller's use must end before deft_unmap, or be in that
 * stream. On failure *out is zero. Failures are those of deft_map; where NULL gives
 * DEFT_E_ARG. */
DEFT_API DEFT_MUST_CHECK deft_status deft_map_device(deft_tensor *t, deft_mapped *out,
                                                     deft_device *where);

/** Returns the CUstream of the queue of cx on a GPU, borrowed; it lives as long as cx. The
 * call opens the GPU when cx has not used it. DEFT_CPU and cx NULL give NULL. NULL for a GPU
 * means a mistake: DEFT_E_BACKEND when the GPU cannot be used, DEFT_E_ARG when there can be
 * no such device. */
DEFT_API void *deft_stream(deft_ctx *cx, deft_device where);

/* ---- external work ----
 *
 * deft_device_work calls a function of the program between the runs of deft. The function
 * enqueues its own CUDA work: kernels, calls of cuFFT, NCCL and the like.
 */

/** Enqueues work in `stream`, a CUstream, and returns without waiting for it.
 *
 * in[i] and out[i] are addresses on the device. They are row-major elements without gaps, of
 * the tensors in the order of the call. The function may only read what `in` points to, and
 * must write every element of `out`. Bools are bytes of 0 or 1. The CUDA context of the GPU
 * is current.
 *
 * When the work runs on the CPU, the addresses are those of the host and stream is NULL.
 * The work must then be done when the function returns.
 *
 * user is the member of deft_work. The function must not call deft. When it returns a
 * status other than DEFT_OK, deft_device_work fails with that status. */
typedef deft_status (*deft_work_fn)(void *stream, const void *const *in, void *const *out,
                                    void *user);

/** The work of one call. The struct and its name are read during the call only. */
typedef struct deft_work {
    size_t size;      /**< sizeof(deft_work) */
    deft_work_fn fn;  /**< The function; never NULL. */
    void *user;       /**< Passed to fn. */
    const char *name; /**< For messages and deft_show. NULL: "work". */

    /** 0: fn is called for each call.
     *
     * Another number is a promise: fn enqueues the same work whenever fn, user, key and the
     * addresses, dtypes and shapes of all tensors are the same. Where runs are replayed,
     * that work is then launched again, with all its arguments, without a call of fn. When
     * anything else changes, the program passes another key. All resources of the work, and
     * host memory that it reads, must exist for as long as such calls come. */
    uint64_t key;
} deft_work;

/** The shape and the dtype of a result. */
typedef struct deft_work_result {
    deft_shape shape; /**< Its extents. */
    deft_dtype dtype; /**< Its dtype; bools are bytes of 0 or 1. */
} deft_work_result;

/** An acting call: computes the tensors in[0..n_in) where they are pending, and calls w->fn.
 * out[0..n_out) get new tensors whose memory w->fn fills; results[i] describes out[i].
 *
 * The innermost open scope owns the results. in[i] are borrowed. Each number may be 0, and
 * is at most 65536. Inside a step, the step's policy of syncs decides whether pending
 * tensors may be computed.
 *
 * Where and when. The work runs on the device of the context or, in a context of the CPU,
 * on that of the first operand on a GPU. Operands on other devices, and memory of deft_wrap
 * with gaps, are copied for it. Work that is enqueued later in cx or in deft_stream runs
 * after it. Nothing on the host waits for it.
 *
 * In a step. The work takes effect at once. When the step fails, the results are gone like
 * everything that the step made. What fn wrote elsewhere stays written.
 *
 * Replay. With a key, and where runs are replayed, fn is first called as usual. Then it is
 * called once for a stream that the calling thread captures (cuStreamBeginCapture), and
 * again for each new set of addresses. When the work cannot be captured, for example
 * because it allocates memory, fn is called once more as usual. A later call tries again.
 *
 * Gradients. No gradient passes through the call. The functions of deft_custom_grad may
 * make it.
 *
 * On failure all of out are NULL. When fn fails, the work that it enqueued before still
 * runs. DEFT_E_STATE: the call is inside a captured function, a loop, a branch, a hook or
 * deft_vmap. DEFT_E_ARG: a bare number in `in`, a missing fn, a size of 0, or a NULL list.
 * DEFT_E_DTYPE, DEFT_E_SHAPE, DEFT_E_LIMIT: a wrong result or too many. Failures of the GPU
 * are found late. */
DEFT_API DEFT_MUST_CHECK deft_status deft_device_work(deft_ctx *cx, const deft_work *w,
                                                      deft_tensor *const *in, size_t n_in,
                                                      const deft_work_result *results,
                                                      deft_tensor **out, size_t n_out);

/* ---- replay (deft_ctx_options.replay, docs/graphs.md) ---- */

/** Counters of replay for one context on one GPU.
 *
 * A run is a run of one plan, or one call of deft_device_work. A step is one plan; with
 * loops and branches it may be several. */
typedef struct deft_replay_stats {
    uint64_t is_on; /**< 1 when runs are replayed, else 0. */
    uint64_t runs;  /**< All runs: the sum of the next five. */

    uint64_t plain;    /**< Runs whose kernels were launched one by one. */
    uint64_t recorded; /**< Runs for which a graph was made and launched. */
    /** Runs that launched an existing graph. At most its addresses and numbers were set. */
    uint64_t replayed;
    /** Runs that launched an existing graph in other memory, because a held value was in
     * its place. */
    uint64_t placed;
    uint64_t reshaped; /**< Runs that changed a graph of other extents to the new ones. */

    uint64_t updates;     /**< Launches within graphs that were given new arguments. */
    uint64_t graphs;      /**< Graphs that exist. */
    uint64_t graph_bytes; /**< An estimate of the memory that they take, in bytes. */
    uint64_t pool_bytes;  /**< Bytes of the graph pool: the memory that all graphs share. */
    /** The most bytes of the pool that were needed at once, since the last trim. */
    uint64_t peak_path_bytes;
    uint64_t separate_bytes; /**< Bytes that the graphs would need with a pool each. */
    uint64_t held;           /**< Values that live in the pool. */
    /** Tables of arguments that one copy put on the GPU before a graph, in place of updates. */
    uint64_t tables;
    uint64_t works;      /**< Calls of deft_device_work, which runs includes. */
    uint64_t work_calls; /**< Calls of their functions, including those for a capture. */
} deft_replay_stats;

/** Copies the counters of cx on a GPU to *out. size is sizeof(deft_replay_stats). All are 0
 * where nothing is replayed. deft_show(cx, "graphs", ...) says why a run was not replayed.
 * DEFT_E_ARG: cx or out is NULL, size is 0, or there can be no such device. */
DEFT_API DEFT_MUST_CHECK deft_status deft_replay_read(deft_ctx *cx, deft_device where,
                                                      deft_replay_stats *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
