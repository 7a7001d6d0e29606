/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the graph tree of a queue: what it holds (graphs.c), and what is told of it
 * (graph_notes.c).
 */
#ifndef DF_JIT_CUDA_GRAPHS_H
#define DF_JIT_CUDA_GRAPHS_H

#include "jit_cuda/graphs/conditional.h"
#include "jit_cuda/driver/gpu_internal.h"
#include "jit_cuda/driver/pool.h"
#include "jit_cuda/exec/table.h"
#include "jit_cuda/exec/work.h"

/* What the tree knows as a graph. */
typedef struct df_cuda_kept {
    df_cuda_graph *graph;             /* of a plan, else NULL; as the two that follow are */
    df_cuda_conditional_graph *whole; /* of a loop or a branch */
    df_cuda_captured *work;           /* for different addresses; the latest first */
    df_cuda_weighing updates;
    const char *table; /* where its latest run had it */
    df_cu_event ended; /* once dropped */
    struct df_cuda_kept *next;
} df_cuda_kept;

struct df_cuda_graphs {
    _Atomic uint32_t refs; /* the queue's, one of each buffer in the pool, and of who trims */
    df_cuda_device *c;
    atomic_bool trim_wanted;
    pthread_mutex_t lock; /* guards all below */
    df_queue *q;          /* NULL: it is gone */
    df_tree *tree;
    df_cuda_pool *pool;
    df_cu_stream capture;  /* made when something is first captured */
    df_cuda_kept *leaving; /* dropped, oldest first */
    deft_status checked;   /* of the call at hand: DEFT_E_RANGE where its words of fault say so */
    uint32_t table_from;   /* DEFT_CUDA_TABLE */
    uint64_t updates, tables, launches, works, work_calls;
    df_cuda_tree_notes told;
};

DF_INLINE uint32_t df_cuda_graphs_device(const df_cuda_graphs *s)
{
    return (uint32_t)s->c->gpu->ordinal;
}

/* ---- graphs.c ---- */

void df_cuda_graphs_lock(df_cuda_graphs *s);
/* Trims first, if another thread wished for it meanwhile. */
void df_cuda_graphs_unlock(df_cuda_graphs *s);

#endif
