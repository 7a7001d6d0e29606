/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the graph tree of a queue: its state (graphs.c), and its statistics
 * (graph_notes.c).
 */
#ifndef DF_JIT_CUDA_GRAPHS_H
#define DF_JIT_CUDA_GRAPHS_H

#include "jit_cuda/graphs/conditional.h"
#include "jit_cuda/driver/gpu_internal.h"
#include "jit_cuda/driver/pool.h"
#include "jit_cuda/exec/table.h"
#include "jit_cuda/exec/work.h"

/* What the tree knows as one graph. One of `graph`, `whole` and `work` is set. */
typedef struct df_cuda_kept {
    df_cuda_graph *graph;             /* of a plan */
    df_cuda_conditional_graph *whole; /* of a loop or a branch */
    /* of external work: a list for different addresses, the latest first */
    df_cuda_captured *work;
    df_cuda_weighing updates; /* node updates that a table would have saved */
    const char *table;        /* address of the table in the latest run */
    df_cu_event ended;        /* event behind its last launch, once it is dropped */
    struct df_cuda_kept *next;
} df_cuda_kept;

struct df_cuda_graphs {
    /* one of the queue, of each buffer in the graph pool, and of each thread that trims */
    _Atomic uint32_t refs;
    df_cuda_device *c;
    atomic_bool trim_wanted; /* another thread asked for a trim */
    pthread_mutex_t lock;    /* guards all fields below */
    df_queue *q;             /* NULL: the queue is being destroyed */
    df_tree *tree;
    df_cuda_pool *pool;
    df_cu_stream capture;  /* a stream for captures; NULL until the first */
    df_cuda_kept *leaving; /* graphs that were dropped and may still run, oldest first */
    deft_status checked;   /* of the current call: DEFT_E_RANGE when its fault words say so */
    uint32_t table_from;   /* value of DEFT_CUDA_TABLE */
    uint64_t updates, tables, launches, works, work_calls;
    df_cuda_tree_notes told;
};

DF_INLINE uint32_t df_cuda_graphs_device(const df_cuda_graphs *s)
{
    return (uint32_t)s->c->gpu->ordinal;
}

/* ---- graphs.c ---- */

void df_cuda_graphs_lock(df_cuda_graphs *s);
/* Unlocks. Trims before that when another thread has asked for it. */
void df_cuda_graphs_unlock(df_cuda_graphs *s);

#endif
