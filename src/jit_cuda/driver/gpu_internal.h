/* SPDX-License-Identifier: Apache-2.0
 *
 * What gpu.c, queue.c, copy.c and memory.c share: a GPU and a queue from within.
 *
 * Locks: df_gpu.lock guards what is said below; calls of the driver that only put something in or
 * ask are made under it, none that waits. A queue's own fields belong to the thread that uses it.
 */
#ifndef DF_JIT_CUDA_GPU_OWN_H
#define DF_JIT_CUDA_GPU_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/vec.h"
#include "jit_cuda/driver/gpu.h"

enum {
    DF_GPU_CLASSES = 320,     /* of base/size_class.h */
    DF_QUEUE_NOTES = 64,      /* the latest launches */
    DF_QUEUE_NOTES_MARK = 16, /* launches between two looks at how far the GPU is */
    DF_RING_PIECES = 4        /* of pinned memory, for copies */
};

typedef struct df_gpu_block df_gpu_block;

/* Freed blocks, by class: newest first. */
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
    pthread_mutex_t lock;       /* guards all below */
    DF_VEC(df_cu_event) events; /* at hand */
    size_t n_events;            /* made */
    df_queue *queues;           /* that are not destroyed */
    df_gpu_free orphans;        /* blocks of destroyed queues: no work is on them */
    df_gpu_block *stuck;        /* of which it is not known whether work is on them */
    df_gpu_link ages;           /* cached blocks, all queues': next the newest, prev the oldest */
    df_allocator_stats stats;
    uint64_t coming; /* bytes that the driver is being asked for */
    uint64_t peers;  /* bit per ordinal: peer access was asked for */
    atomic_bool is_lost;
    char lost[DF_DIAG_TEXT]; /* written once, before is_lost */
};

typedef struct df_queue_noted {
    df_launch_note n; /* its ops: below */
    char ops[64];
} df_queue_noted;

typedef struct df_ring_piece {
    df_cu_event ev;
    bool is_busy;   /* the GPU may still read or write it */
    bool is_marked; /* until ev; else until all of the queue's work is done */
} df_ring_piece;

struct df_queue {
    df_gpu *g;
    df_cu_stream stream;
    bool is_theirs, is_blocking;
    df_cu_result late; /* found by a query: comes out of the next call */

    df_queue_noted noted[DF_QUEUE_NOTES]; /* number i at i % DF_QUEUE_NOTES */
    uint64_t n_noted, n_ended;            /* launches; those known to have ended */
    df_cu_event mark;                     /* NULL: none is under way */
    uint64_t mark_covers;                 /* launches that have ended when it has */

    size_t piece_bytes;
    char *ring; /* DF_RING_PIECES of them, or NULL until the first copy */
    df_ring_piece piece[DF_RING_PIECES];
    uint32_t at_piece;
    size_t filled; /* bytes of that piece */

    /* Under the GPU's lock: */
    df_queue *next; /* of df_gpu.queues */
    uint32_t refs;  /* the owner, and blocks that were made on it or used in it */
    bool is_ended;  /* destroyed: there is no stream any more */
    bool is_unsure; /* then: whether its work has ended is not known */
    df_gpu_free free;
    uint64_t n_dropped, n_settled; /* blocks dropped; those whose work is known to have ended */
    df_cu_event drop_mark;         /* NULL: none is under way */
    uint64_t drop_covers;
};

/* Whether r is an error that the driver does not forget. */
bool df_gpu_is_lasting(df_cu_result r);
/* May calls be made? DEFT_E_BACKEND: a forked child, or the GPU is lost. */
deft_status df_gpu_check(const df_gpu *g, df_diag *d);
/* The sentence of a failed call; q NULL: of none. comes_late: a wait or a query, which gives the
 * errors of earlier launches. Remembers what lasts. */
deft_status df_gpu_failed(df_gpu *g, df_queue *q, df_diag *d, df_cu_result r, bool comes_late,
                          const char *call);
/* To end things: also when the GPU is lost, and tried twice, because nobody hears of its failure.
 */
bool df_gpu_enter_last(const df_gpu *g);
/* An event without a time, the context being current. Under the lock. */
df_cu_result df_gpu_event_take(df_gpu *g, df_cu_event *out);
void df_gpu_event_give(df_gpu *g,
                       df_cu_event *ev); /* under the lock; of NULL: nothing; leaves NULL */

/* A queue: entered, and its late error told. */
deft_status df_queue_enter(df_queue *q, df_diag *d);
/* Waits; entered. */
deft_status df_queue_drain(df_queue *q, df_diag *d, const char *call);
/* ---- ring.c ---- */

/* Makes the ring, unless the queue has one. The context is current. */
deft_status df_ring_make(df_queue *q, df_diag *d);
/* All pieces are free again, because all work of the queue has ended. */
void df_ring_rest(df_queue *q);
/* Gives the ring and its events back. The context is current. */
void df_ring_finish(df_queue *q);

/* memory.c: what the queue, which has ended, had cached is the GPU's; under the lock. */
void df_memory_leave(df_queue *q);
void df_memory_settle(df_queue *q, uint64_t n_dropped); /* under the lock */
void df_memory_init(df_gpu *g);
/* Memory that is had by other ways counts as live, within max_bytes; false: it would be exceeded.
 */
bool df_memory_claim(df_gpu *g, uint64_t bytes);
void df_memory_unclaim(df_gpu *g, uint64_t bytes);
void df_memory_finish(df_gpu *g, bool is_entered); /* or only the host's memory is given back */
void df_queue_unref(df_queue *q);                  /* under the lock */

#endif
