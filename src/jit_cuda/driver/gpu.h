/* SPDX-License-Identifier: Apache-2.0
 *
 * One GPU as this process uses it: its primary context, what it can do, its memory, its queues.
 *
 *   driver.h    the Driver API
 *   gpu.h       a GPU; queues; buffers; copies; errors that come late       gpu.c queue.c
 *               copy.c memory.c
 *   module.h    kernels compiled, loaded, found again                       module.c
 *   device.h    df_device over all of it: plans prepared and run            device.c launch.c ...
 *
 * Every call pushes the GPU's context and pops it again, so that a caller's own use of CUDA on the
 * same thread is not disturbed.
 *
 * Memory is *stream-ordered*: a buffer that is dropped may be had again at once by the queue it was
 * made on, where what comes later waits for what came before; by another queue when the work that
 * was in its queue when it was dropped has ended. Blocks are kept by size class and given back to
 * the driver, after the work on them, by a trim, when max_cached is exceeded, and before an
 * allocation fails: out of memory gives back what is cached, tries once more, and is then
 * DEFT_E_MEMORY with the numbers. Nothing is lost by that.
 *
 * Errors of what runs on a GPU come late. The queue keeps who asked for the latest launches
 * (df_launch_note), and the sentence of an error names the first of them that had not ended. With
 * DEFT_CUDA_BLOCKING=1 every launch is waited for, and the one to blame is known. An error that
 * the driver does not forget (an illegal address) is what every later call on this GPU fails with,
 * until the process ends; the sentence says so.
 *
 * In a forked child CUDA does not work: every call is DEFT_E_BACKEND, what is destroyed there gives
 * back the host's memory at most.
 */
#ifndef DF_JIT_CUDA_GPU_H
#define DF_JIT_CUDA_GPU_H

#include "base/log.h"
#include "jit_cuda/driver/driver.h"
#include "runtime/buffer.h"
#include "runtime/device.h"

typedef struct df_gpu df_gpu;

typedef struct df_gpu_options {
    uint64_t max_bytes;  /* buffers, cached ones too; 0: what the GPU has */
    uint64_t max_cached; /* freed and kept, beyond which a drop waits; 0: no bound of its own */
    uint32_t piece;      /* bytes that a copy from the host goes in; 0: 1 MiB */
    bool blocking;       /* as DEFT_CUDA_BLOCKING=1 */
    df_device *dev;      /* of the home of its buffers; may be NULL */
} df_gpu_options;

typedef struct df_gpu_properties {
    char name[64];
    int arch; /* 90 is compute capability 9.0 */
    int n_sms, threads_per_sm;
    int shared_per_block, shared_per_block_optin, shared_per_sm;
    uint64_t bytes, l2_bytes;
    bool has_va, has_graphs;
    bool has_conditionals; /* nodes that test on the GPU: from CUDA 12.4 on */
} df_gpu_properties;

/* DEFT_E_ARG: no such ordinal; DEFT_E_BACKEND: below compute capability 7.5, or the driver failed.
 */
deft_status df_gpu_open(df_diag *d, const df_driver *dr, const df_log *log, int ordinal,
                        const df_gpu_options *o, df_gpu **out);
void df_gpu_close(df_gpu **g); /* NULL is fine; every queue and every buffer must be gone */
const df_gpu_properties *df_gpu_facts_of(const df_gpu *g);
const df_driver *df_gpu_driver(const df_gpu *g);
/* Between the two the GPU's context is the thread's. DEFT_E_BACKEND also when the GPU is lost. */
deft_status df_gpu_enter(const df_gpu *g, df_diag *d);
void df_gpu_leave(const df_gpu *g);
/* The primary context, retained: what peer copies and graphs are told. */
df_cu_ctx df_gpu_ctx(const df_gpu *g);

/* ---- queues (queue.c) ---- */

/* Work in order: a stream, a ring of pinned memory for copies, notes of the latest launches. One
 * thread at a time. While its stream is being captured into a graph, the driver alone may be called
 * for it: events are recorded in it here and there, also when another queue looks for memory. */
typedef struct df_queue df_queue;

/* theirs: the caller's CUstream, of the primary context, used and not owned; NULL: one of our own,
 * which does not wait for the legacy stream. */
deft_status df_queue_create(df_diag *d, df_gpu *g, void *theirs, df_queue **out);
void df_queue_destroy(df_queue **q); /* waits; NULL is fine; buffers made on it may go on living */
df_cu_stream df_queue_stream(const df_queue *q);
df_gpu *df_queue_gpu(const df_queue *q);
/* All that was put in is done. The errors of launches come out here. */
deft_status df_queue_wait(df_queue *q, df_diag *d);
bool df_queue_is_idle(df_queue *q); /* and no error is known */
/* What comes into q from now on waits for what is in `other` now. Also across GPUs. */
deft_status df_queue_after(df_queue *q, df_diag *d, df_queue *other);

/* Who asked for a launch, for errors. */
typedef struct df_launch_note {
    uint32_t owner, number; /* of the plan, as df_plan has them */
    uintptr_t site;
    const char *ops; /* "exp, sum": the first 63 bytes are copied; NULL: not known */
} df_launch_note;

/* After each launch, or group of them: notes it; when blocking, waits for it. */
deft_status df_queue_launched(df_queue *q, df_diag *d, const df_launch_note *note);

/* What r, not 0, of call `what` is, where the driver was called directly for q: the sentence of
 * df_driver_fail, and the launch it may come from when it is of the kind that comes late. Remembers
 * what the driver does not forget. */
deft_status df_queue_fail(df_queue *q, df_diag *d, df_cu_result r, const char *what, ...)
    DF_PRINTF(4, 5);

/* ---- memory (memory.c) ---- */

/* A buffer of the GPU's memory, 256-byte aligned; refs = 1; its home is the GPU's (buffer.h).
 * bytes 0 gives one that has an address. */
deft_status df_gpu_buffer(df_queue *q, df_diag *d, int64_t bytes, df_buffer **out);
/* Borrows the caller's memory on that GPU. DEFT_E_ARG: it is not there. */
deft_status df_gpu_wrap(df_gpu *g, df_diag *d, void *data, int64_t bytes, df_buffer **out);
/* b is used in q, of the same GPU, too, from now on: when it is dropped, what comes later in its
 * own queue waits for what is in q then. */
deft_status df_gpu_used(df_buffer *b, df_diag *d, df_queue *q);
/* A buffer for memory of the GPU that somebody else gives out in the order of q. It is made without
 * memory; df_gpu_lend gives it some, once, and then cannot fail. When it is dropped, q waits for
 * the other queues it was used in, and `back` is called, on any thread; dropped before, nothing is.
 */
typedef struct df_gpu_loan {
    void (*back)(void *user, uint64_t what);
    void *user;
    uint64_t what;
} df_gpu_loan;
deft_status df_gpu_borrower(df_queue *q, df_diag *d, df_buffer **out);
void df_gpu_lend(df_buffer *b, void *data, int64_t bytes, const df_gpu_loan *loan);
df_allocator_stats df_gpu_read(df_gpu *g);
void df_gpu_trim(df_gpu *g); /* waits for the work on what it gives back */

/* ---- copies (copy.c) ---- */

/* From the host: `from` may change as soon as it returns. Large copies go in pieces through the
 * ring, or directly where `from` is pinned. */
deft_status df_queue_put(df_queue *q, df_diag *d, df_cu_ptr to, const void *from, size_t bytes);
/* To the host: waits. */
deft_status df_queue_get(df_queue *q, df_diag *d, void *to, df_cu_ptr from, size_t bytes);
deft_status df_queue_copy(df_queue *q, df_diag *d, df_cu_ptr to, df_cu_ptr from, size_t bytes);
/* From the memory of another GPU, after what is in its queue now; what comes later there waits for
 * the copy, so that `from` may be dropped at once. */
deft_status df_queue_copy_peer(df_queue *q, df_diag *d, df_cu_ptr to, df_queue *other,
                               df_cu_ptr from, size_t bytes);

#endif
