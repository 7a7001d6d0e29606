/* SPDX-License-Identifier: Apache-2.0
 *
 * Work of the caller's (df_device_memory_ops.work): a function puts it into a stream, and deft
 * hands over addresses and takes the results. Where the queue's runs are graphs, a work with a
 * key is a call of the tree like a run of a plan: put in plainly at first, then captured into a
 * graph of its own, and launched from then on without the function.
 */
#ifndef DF_JIT_CUDA_WORK_H
#define DF_JIT_CUDA_WORK_H

#include "jit_cuda/graphs/graph.h"

struct df_tree_out;

/* One run of it. */
typedef struct df_cuda_work {
    df_cuda_device *c;
    df_queue *q;
    df_diag *d;
    const df_work *w;
    uint32_t n_calls;   /* of its function, so far */
    deft_status status; /* what came of the one that was no capture */
    /* Per result: */
    df_buffer **own;         /* its memory, or NULL: in the pool, or none as yet */
    df_buffer **lent;        /* while a graph is launched: what it will be in the pool */
    struct df_tree_out *out; /* for the tree */
    void **at;               /* where it is */
} df_cuda_work;

/* ---- work_run.c ---- */

/* df_device_memory_ops.work */
deft_status df_cuda_work_run(df_cuda_device *c, df_diag *d, df_queue *q, const df_work *w,
                             df_buffer **out);

/* ---- work.c ---- */

/* What the tree knows it by; no plan's number is one. */
uint64_t df_cuda_work_id(const df_work *w);
uint64_t df_cuda_work_variant(const df_work *w);
DF_INLINE bool df_cuda_is_work(uint64_t fn)
{
    return fn & DF_CUDA_WORK;
}
/* Memory of its own for result i, where it has none. */
deft_status df_cuda_work_new_result(df_cuda_work *r, df_diag *d, uint32_t i);
/* Calls the function for the queue's stream, in memory of the run's own. What fails from there on
 * is the run's, which must not begin again: r->status, and DEFT_OK is returned. */
deft_status df_cuda_work_plain(df_cuda_work *r);
/* Entered. The same where r->at says. */
void df_cuda_work_enqueue(df_cuda_work *r);

/* What the function put in for r->at, and for what it was called with. */
typedef struct df_cuda_captured df_cuda_captured;

/* Entered, as all that follow. Calls the function, for this stream. */
deft_status df_cuda_capture(df_diag *d, df_cuda_work *r, df_cu_stream stream,
                            df_cuda_captured **out);
/* With all that follow; their launches have ended; NULL is fine. */
void df_cuda_captured_destroy(df_cuda_captured **list);
size_t df_cuda_captured_bytes(const df_cuda_captured *g); /* about */
const char *df_cuda_captured_name(const df_cuda_captured *g);
/* Lists, the latest used first. Whether there is one of what the function would put in for r, which
 * then is the first. */
bool df_cuda_captured_find(df_cuda_captured **list, const df_cuda_work *r);
/* When not: whether r is to be captured. The list is not empty. */
bool df_cuda_captured_is_due(df_cuda_captured *list, const df_cuda_work *r);
/* Becomes the first; the last, or NULL, is the caller's. */
df_cuda_captured *df_cuda_captured_add(df_cuda_captured **list, DEFT_OWN df_cuda_captured *g);
deft_status df_cuda_captured_launch(df_cuda_captured *g, df_diag *d, const df_cuda_work *r);

/* ---- graphs.c ---- */

/* As df_cuda_graphs_run: results are in r->own. */
deft_status df_cuda_graphs_work(df_cuda_graphs *s, df_cuda_work *r);

#endif
