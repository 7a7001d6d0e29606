/* SPDX-License-Identifier: Apache-2.0
 *
 * External work (df_device_memory_ops.work): a function of the program enqueues its own
 * work in a stream. deft passes it addresses and takes the results.
 *
 * In a queue with graphs, work with a key is a call of the graph tree, like a run of a
 * plan. At first its function is called for the queue's stream. Later the function is
 * captured into a graph, and from then on the graph is launched without calling the
 * function.
 */
#ifndef DF_JIT_CUDA_WORK_H
#define DF_JIT_CUDA_WORK_H

#include "jit_cuda/exec/layout.h"

struct df_tree_out;

/* One run of external work. */
typedef struct df_cuda_work {
    df_cuda_device *c;
    df_queue *q;
    df_diag *d;
    const df_work *w;
    uint32_t n_calls;   /* calls of its function in this run */
    deft_status status; /* the status of the call that was not captured */
    /* Per result: */
    /* a reference to its memory; NULL: in the graph pool, or not allocated yet */
    df_buffer **own;
    df_buffer **lent;        /* while a graph is launched: the buffer for its memory in the pool */
    struct df_tree_out *out; /* what the tree needs to know */
    void **at;               /* its address */
} df_cuda_work;

/* ---- work.c ---- */

/* What the tree knows a call by (df_tree_call.fn). For a plan it is the plan's serial
 * number. For a construct it is WHOLE and the serial number of its body. For external work
 * it is WORK and a hash. */
#define DF_CUDA_WORK ((uint64_t)1 << 63)
#define DF_CUDA_WHOLE ((uint64_t)1 << 62)

/* What the tree knows the work by: its function, and the form of its arguments. No plan has
 * such a number. */
uint64_t df_cuda_work_id(const df_work *w);
uint64_t df_cuda_work_variant(const df_work *w);
DF_INLINE bool df_cuda_is_work(uint64_t fn)
{
    return fn & DF_CUDA_WORK;
}
/* Allocates memory for result i unless it has some, and sets r->at[i]. */
deft_status df_cuda_work_new_result(df_cuda_work *r, df_diag *d, uint32_t i);
/* Allocates the results and calls the function for the queue's stream. Returns an error
 * only when the function was not called. A failure from the call on is in r->status, and
 * DEFT_OK is returned, because the run must not be repeated. */
deft_status df_cuda_work_plain(df_cuda_work *r);
/* Calls the function for the queue's stream, with the addresses in r->at. The GPU's context
 * is current. */
void df_cuda_work_enqueue(df_cuda_work *r);

/* A captured graph of external work, for certain addresses and arguments. */
typedef struct df_cuda_captured df_cuda_captured;

/* Calls the function and captures what it enqueues. The GPU's context is current, here and
 * in all functions below. */
deft_status df_cuda_capture(df_diag *d, df_cuda_work *r, df_cu_stream stream,
                            df_cuda_captured **out);
/* Destroys a list of captured graphs, whose launches must have ended. NULL is fine. */
void df_cuda_captured_destroy(df_cuda_captured **list);
size_t df_cuda_captured_bytes(const df_cuda_captured *g); /* an estimate */
const char *df_cuda_captured_name(const df_cuda_captured *g);
/* Looks for the graph of exactly the call r in a list, which is sorted by use. Moves the
 * graph to the front and returns true, or returns false. */
bool df_cuda_captured_find(df_cuda_captured **list, const df_cuda_work *r);
/* Whether a call that was not found is to be captured. The list is not empty. */
bool df_cuda_captured_is_due(df_cuda_captured *list, const df_cuda_work *r);
/* Puts g in front of the list. Returns the last graph of the list, which the caller then
 * owns, when the list is full; otherwise NULL. */
df_cuda_captured *df_cuda_captured_add(df_cuda_captured **list, DEFT_OWN df_cuda_captured *g);
/* Launches a captured graph. */
deft_status df_cuda_captured_launch(df_cuda_captured *g, df_diag *d, const df_cuda_work *r);

#endif
