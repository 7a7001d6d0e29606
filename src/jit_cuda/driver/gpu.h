/* SPDX-License-Identifier: Apache-2.0
 *
 * One GPU as this process uses it: its primary context, its properties, its memory, its
 * queues.
 *
 *   driver.h        the Driver API                           driver.c
 *   gpu.h           GPU, queues, buffers, copies, errors     gpu.c gpu_open.c queue.c copy.c
 *                                                            ring.c memory.c
 *   module.h        kernels: compiled, loaded, cached        module.c compile.c background.c
 *   exec/device.h   df_device: plans prepared and run        device/ exec/
 *
 * Every call pushes the GPU's context and pops it again. A program's own use of CUDA on the
 * same thread is therefore not disturbed.
 *
 * Memory is *stream-ordered*. A dropped buffer may be reused at once by the queue it was
 * made on, because later work of a queue waits for its earlier work. Another queue may
 * reuse the buffer once the work that was in the first queue at the drop has ended.
 *
 * Freed blocks are cached by size class. Cached blocks are freed, after the work on them
 * has ended, in three cases: by a trim, when max_cached is exceeded, and when an allocation
 * fails. An allocation that fails is tried once more after that. Then it returns
 * DEFT_E_MEMORY with the numbers, and nothing else is lost.
 *
 * Errors of work on a GPU are reported late, by a later call. The queue remembers the
 * latest launches (df_launch_note), and an error names the first of them that was not known
 * to have ended. With DEFT_CUDA_BLOCKING=1 every launch is waited for, so the launch at
 * fault is known.
 *
 * Some errors stay in the driver until the process ends, for example an illegal address.
 * After such an error the GPU is *unusable*: every later call on it fails with that error,
 * and says so.
 *
 * In a forked child CUDA does not work. Every call there returns DEFT_E_BACKEND, and
 * destroying an object frees at most memory of the host.
 */
#ifndef DF_JIT_CUDA_GPU_H
#define DF_JIT_CUDA_GPU_H

#include "base/log.h"
#include "jit_cuda/driver/driver.h"
#include "runtime/buffer.h"
#include "runtime/device.h"

typedef struct df_gpu df_gpu;

typedef struct df_gpu_options {
    /* bound on live and cached bytes; 0: only the GPU's own memory bounds them */
    uint64_t max_bytes;
    /* bound on cached bytes: a drop that exceeds it waits and frees; 0: no bound */
    uint64_t max_cached;
    uint32_t piece; /* bytes of one piece of a copy through pinned memory; 0: 1 MiB */
    bool blocking;  /* wait for each launch, as with DEFT_CUDA_BLOCKING=1 */
    df_device *dev; /* the device that df_buffer_owner of its buffers names; may be NULL */
} df_gpu_options;

typedef struct df_gpu_properties {
    char name[64];
    int arch; /* 90 is compute capability 9.0 */
    int n_sms, threads_per_sm;
    int shared_per_block, shared_per_block_optin, shared_per_sm;
    uint64_t bytes, l2_bytes;
    bool has_va, has_graphs;
    bool has_conditionals; /* conditional graph nodes, from CUDA 12.4 on */
} df_gpu_properties;

/* Opens GPU number `ordinal`. o NULL means all defaults. The caller owns *out; dr and log
 * must outlive it. Returns DEFT_E_ARG when there is no such GPU. Returns DEFT_E_BACKEND
 * when its compute capability is below 7.5 or the driver fails. */
deft_status df_gpu_open(df_diag *d, const df_driver *dr, const df_log *log, int ordinal,
                        const df_gpu_options *o, df_gpu **out);
/* NULL is fine; its queues are destroyed and its buffers dropped before */
void df_gpu_close(df_gpu **g);
const df_gpu_properties *df_gpu_facts_of(const df_gpu *g);
const df_driver *df_gpu_driver(const df_gpu *g);
/* df_gpu_enter makes the GPU's context current on the calling thread; df_gpu_leave makes
 * the earlier context current again. When df_gpu_enter fails, the context is not current
 * and df_gpu_leave must not be called. It returns DEFT_E_BACKEND in a forked child and when
 * the GPU is unusable. */
deft_status df_gpu_enter(const df_gpu *g, df_diag *d);
void df_gpu_leave(const df_gpu *g);
/* The primary context, which the GPU retains. Peer copies and graphs need it. */
df_cu_ctx df_gpu_ctx(const df_gpu *g);

/* ---- queues (queue.c) ---- */

/* An ordered list of work: a stream, a ring of pinned memory for copies, and notes of the
 * latest launches. One thread uses a queue at a time.
 *
 * While the stream is being captured into a graph, only the driver may be called for the
 * queue. The functions of this header may record events in the stream, even on behalf of
 * another queue that allocates memory. */
typedef struct df_queue df_queue;

/* theirs: a CUstream of the primary context, which stays the caller's and must outlive the
 * queue. NULL means a stream of the queue's own, which does not wait for the legacy stream. */
deft_status df_queue_create(df_diag *d, df_gpu *g, void *theirs, df_queue **out);
/* waits for its work; NULL is fine; its buffers may outlive it */
void df_queue_destroy(df_queue **q);
df_cu_stream df_queue_stream(const df_queue *q);
df_gpu *df_queue_gpu(const df_queue *q);
/* Waits until all work of the queue has ended. Reports the errors of earlier launches. */
deft_status df_queue_wait(df_queue *q, df_diag *d);
/* Returns true when all work has ended and no error is known. Does not wait. */
bool df_queue_is_idle(df_queue *q);
/* Makes work that is enqueued in q from here on wait for all work that is in `other` at
 * this moment. The queues may belong to different GPUs. Does not wait on the host. */
deft_status df_queue_after(df_queue *q, df_diag *d, df_queue *other);

/* Who asked for a launch. An error of the GPU quotes it. */
typedef struct df_launch_note {
    uint32_t owner, number; /* of the plan, as in df_plan */
    uintptr_t site;         /* call site, or 0 */
    const char *ops; /* for example "exp, sum"; the first 63 bytes are copied; NULL: not known */
} df_launch_note;

/* To be called after each launch or group of launches: remembers a copy of the note. When
 * the queue is blocking, waits for the launch and reports its error. */
deft_status df_queue_launched(df_queue *q, df_diag *d, const df_launch_note *note);

/* Reports an error of a driver call that was made for q without a function of this header.
 * The error r is not 0, and `what` is a format string that describes the call. Returns the
 * status of df_driver_fail. An error that stays makes the GPU unusable, and its sentence
 * names the launch that may have caused it. */
deft_status df_queue_fail(df_queue *q, df_diag *d, df_cu_result r, const char *what, ...)
    DF_PRINTF(4, 5);

/* ---- memory (memory.c) ---- */

/* Creates a buffer of GPU memory with one reference, aligned to 256 bytes. Its owner is the
 * GPU (see df_buffer_owner in runtime/buffer.h). A buffer of 0 bytes has an address, too. */
deft_status df_gpu_buffer(df_queue *q, df_diag *d, int64_t bytes, df_buffer **out);
/* Wraps memory on this GPU that stays the caller's. Returns DEFT_E_ARG when data is not
 * memory of this GPU or is shorter than `bytes`. */
deft_status df_gpu_wrap(df_gpu *g, df_diag *d, void *data, int64_t bytes, df_buffer **out);
/* Declares that b is used in q, too; q must be a queue of the same GPU. When b is dropped,
 * its own queue is made to wait for the work that is then in q. Does nothing for wrapped
 * memory. Returns DEFT_E_ARG for a queue of another GPU, and DEFT_E_MEMORY. */
deft_status df_gpu_used(df_buffer *b, df_diag *d, df_queue *q);
/* A buffer for GPU memory that another allocator hands out in the order of q. It is created
 * without memory. df_gpu_lend gives it memory, at most once, and cannot fail.
 *
 * When the buffer is dropped, q is made to wait for the other queues that used it. Then
 * back(user, what) is called, on any thread. A buffer that is dropped before df_gpu_lend
 * calls nothing. */
typedef struct df_gpu_loan {
    void (*back)(void *user, uint64_t what);
    void *user;
    uint64_t what;
} df_gpu_loan;
deft_status df_gpu_borrower(df_queue *q, df_diag *d, df_buffer **out);
void df_gpu_lend(df_buffer *b, void *data, int64_t bytes, const df_gpu_loan *loan);
df_allocator_stats df_gpu_read(df_gpu *g);
void df_gpu_trim(df_gpu *g); /* frees all cached blocks; waits for the work on them */

/* ---- copies (copy.c) ---- */

/* Upload. `from` may change as soon as the call returns. Copies go through the ring in
 * pieces. A large copy from pinned memory goes directly, and the call waits for it. */
deft_status df_queue_put(df_queue *q, df_diag *d, df_cu_ptr to, const void *from, size_t bytes);
/* Download. Waits until the copy, and so all earlier work of q, has ended. */
deft_status df_queue_get(df_queue *q, df_diag *d, void *to, df_cu_ptr from, size_t bytes);
/* Enqueues a copy within the GPU. Does not wait. */
deft_status df_queue_copy(df_queue *q, df_diag *d, df_cu_ptr to, df_cu_ptr from, size_t bytes);
/* Enqueues in q a copy from the memory of another GPU. other: the queue that `from` was
 * written in. The copy waits for the work that is in `other` at this moment. Later work of
 * `other` waits for the copy, so `from` may be dropped at once. */
deft_status df_queue_copy_peer(df_queue *q, df_diag *d, df_cu_ptr to, df_queue *other,
                               df_cu_ptr from, size_t bytes);

#endif
