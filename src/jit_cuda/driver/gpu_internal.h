/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of a GPU and of a queue, and what gpu.c, gpu_open.c, queue.c, copy.c, ring.c
 * and memory.c share.
 *
 * Locks: df_gpu.lock guards the fields that say so. Calls of the driver under the lock only
 * enqueue or query. The exception is the drop of a block that other queues used: it waits when
 * the block's queue is destroyed or no event can be recorded. The other fields of a queue belong
 * to the thread that uses the queue.
 */
#ifndef DF_JIT_CUDA_GPU_OWN_H
#define DF_JIT_CUDA_GPU_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/vec.h"
#include "jit_cuda/driver/gpu.h"

enum {
    DF_GPU_CLASSES = 320,     /* bound on the classes of base/size_class.h */
    DF_QUEUE_NOTES = 64,      /* how many of the latest launches are remembered */
    DF_QUEUE_NOTES_MARK = 16, /* launches between two queries of how far the GPU is */
    DF_RING_PIECES = 4        /* pieces of a queue's ring of pinned memory */
};

typedef struct df_gpu_block df_gpu_block;

/* Cached blocks by size class, the newest first. */
typedef struct df_gpu_free {
    df_gpu_block *cls[DF_GPU_CLASSES];
    uint64_t bytes;
} df_gpu_free;

typedef struct df_gpu_link {
    struct df_gpu_link *prev, *next;
} df_gpu_link;

struct df_gpu {
    const df_driver *dr;
    const df_mem *mem;
    const df_log *log;
    int ordinal;
    df_cu_device device;
    df_cu_ctx ctx;
    df_gpu_properties facts;
    df_gpu_options o;
    df_buffer_owner home;
    pthread_mutex_t lock;       /* guards all fields below */
    DF_VEC(df_cu_event) events; /* created and free for use */
    size_t n_events;            /* how many exist */
    df_queue *queues;           /* list of the queues that are not destroyed */
    df_gpu_free orphans;        /* cached blocks of destroyed queues; their work has ended */
    /* blocks whose work is not known to have ended; freed with the GPU */
    df_gpu_block *stuck;
    df_gpu_link ages; /* all cached blocks by age: next is the newest, prev the oldest */
    df_allocator_stats stats;
    uint64_t coming;     /* bytes of allocations that the driver is making at the moment */
    uint64_t peers;      /* bit i: peer access to the GPU of ordinal i was requested */
    atomic_bool is_lost; /* the GPU is unusable */
    /* the error that made the GPU unusable; written once, before is_lost */
    char lost[DF_DIAG_TEXT];
};

typedef struct df_queue_noted {
    df_launch_note n; /* n.ops is not valid; `ops` is the copy */
    char ops[64];
} df_queue_noted;

typedef struct df_ring_piece {
    df_cu_event ev;
    bool is_busy;   /* the GPU may still read or write the piece */
    bool is_marked; /* `ev` says when it is free; otherwise it is free when the queue is idle */
} df_ring_piece;

struct df_queue {
    df_gpu *g;
    df_cu_stream stream;
    bool is_theirs, is_blocking;
    df_cu_result late; /* error that a query found; the next call reports it */

    df_queue_noted noted[DF_QUEUE_NOTES]; /* launch i is at i % DF_QUEUE_NOTES */
    uint64_t n_noted, n_ended;            /* launches; launches that are known to have ended */
    df_cu_event mark;                     /* NULL: no event is pending */
    /* when `mark` is done, launches below this number have ended */
    uint64_t mark_covers;

    size_t piece_bytes;
    char *ring; /* memory of all DF_RING_PIECES pieces; NULL until the first copy */
    df_ring_piece piece[DF_RING_PIECES];
    uint32_t at_piece; /* the piece that is being filled */
    size_t filled;     /* bytes of that piece */

    /* Fields under the GPU's lock: */
    df_queue *next; /* in the list df_gpu.queues */
    uint32_t refs;  /* the owner, and each block that was made on the queue or used in it */
    bool is_ended;  /* destroyed: it has no stream, and memory only for its blocks' sake */
    bool is_unsure; /* destroyed, and its work may still run */
    df_gpu_free free;
    uint64_t n_dropped, n_settled; /* blocks dropped; blocks whose work is known to have ended */
    df_cu_event drop_mark;         /* event behind dropped blocks; NULL: none is pending */
    uint64_t drop_covers;          /* when drop_mark is done, n_settled may be this */
};

/* Whether r is an error that stays in the driver until the process ends. */
bool df_gpu_is_lasting(df_cu_result r);
/* Whether calls may be made. Returns DEFT_E_BACKEND in a forked child and when the GPU is
 * unusable. */
deft_status df_gpu_check(const df_gpu *g, df_diag *d);
/* Reports a failed call of the driver. The call was made for queue q, or for none when q is
 * NULL. Pass comes_late for a call that waits or queries: its error may belong to an earlier
 * launch, which the sentence then names. An error that stays makes the GPU unusable. */
deft_status df_gpu_failed(df_gpu *g, df_queue *q, df_diag *d, df_cu_result r, bool comes_late,
                          const char *call);
/* Makes the context current in order to destroy things, even when the GPU is unusable. The
 * call is tried twice, because callers cannot report its failure. Returns false when both
 * tries fail; otherwise df_gpu_leave must follow. */
bool df_gpu_enter_last(const df_gpu *g);
/* Returns a free event, or creates one, without a time stamp. Needs the lock and the
 * current context. */
df_cu_result df_gpu_event_take(df_gpu *g, df_cu_event *out);
/* Gives an event back for reuse and sets *ev to NULL; NULL is fine. Needs the lock. */
void df_gpu_event_give(df_gpu *g, df_cu_event *ev);

/* Makes the context current for a call on q. When a query has found an error earlier,
 * reports that error instead, and the context is not current. */
deft_status df_queue_enter(df_queue *q, df_diag *d);
/* Waits until all work of the queue has ended. The context must be current. `call` names
 * the call in the sentence of an error. */
deft_status df_queue_drain(df_queue *q, df_diag *d, const char *call);
/* ---- ring.c ---- */

/* Creates the ring unless the queue has one. The context must be current. */
deft_status df_ring_make(df_queue *q, df_diag *d);
/* Marks all pieces as free. All work of the queue must have ended. */
void df_ring_rest(df_queue *q);
/* Frees the ring and returns its events. The context must be current. */
void df_ring_finish(df_queue *q);
/* ---- memory.c ---- */

/* Gives the cached blocks of a queue that is being destroyed to the GPU. Needs the lock. */
void df_memory_leave(df_queue *q);
/* Records that the work on the first n_dropped blocks that q dropped has ended. Needs the
 * lock. */
void df_memory_settle(df_queue *q, uint64_t n_dropped);
/* Prepares the fields of the GPU that memory.c uses. */
void df_memory_init(df_gpu *g);
/* Counts memory that was not allocated here, such as the graph pool, as live memory.
 * Returns false, and counts nothing, when max_bytes would be exceeded. */
bool df_memory_claim(df_gpu *g, uint64_t bytes);
/* Undoes df_memory_claim. */
void df_memory_unclaim(df_gpu *g, uint64_t bytes);
/* Frees all cached and stuck blocks. Without the current context only memory of the host is
 * freed. */
void df_memory_finish(df_gpu *g, bool is_entered);
/* Drops a reference, the last of which frees the struct; needs the lock */
void df_queue_unref(df_queue *q);

#endif
