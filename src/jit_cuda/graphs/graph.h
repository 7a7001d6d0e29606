/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: one run of a plan, put in launch by launch or as a graph.
 *
 *   run.c       the run itself, by launches
 *   graph.c     its launches as a graph of the driver's, and updates of that
 *   graphs.c    the graph tree of a queue (replay/tree.h): what is recorded, what is replayed, and
 *               in whose memory; graph_notes.c: what is told of it
 *   pool.h      that memory
 *   tree_notes.c      what it tells the structured log
 *   conditional.h  loops and branches as one graph
 */
#ifndef DF_JIT_CUDA_GRAPH_H
#define DF_JIT_CUDA_GRAPH_H

#include "jit_cuda/exec/layout.h"
#include "replay/tree.h"

/* ---- call.c ---- */

/* One run of a plan without parts. */
typedef struct df_cuda_call {
    df_cuda_device *c;
    df_diag *d;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_launch_io *io;
    df_queue *q;
    df_cuda_run_layout *f;
    bool by_table; /* how the frame is wanted */
    df_run_stats stats;
    df_buffer *arena;
    char *table;    /* the arena's address, or NULL */
    bool has_begun; /* launches may have been put in */
    struct df_cuda_conditional
        *whole; /* the loop or branch that it stands for, as its body; else NULL */
} df_cuda_call;

/* The rest of a run whose frame is laid out: memory, words, launches. On failure all is as it was.
 */
deft_status df_cuda_call_plain(df_cuda_call *r);
/* With room for a table of all words, so that it is the same by value and by table. */
int64_t df_cuda_call_arena_bytes(const df_cuda_call *r);
/* Words for an arena there, and copies. */
deft_status df_cuda_call_fill(df_cuda_call *r, char *arena);
deft_status df_cuda_call_put_table(df_cuda_call *r);
/* Phases, once the frame is laid out. */
void df_cuda_call_divide(df_cuda_call *r);
/* DEFT_E_RANGE: a check has failed, else the driver. Waits. */
deft_status df_cuda_call_fault(df_cuda_call *r);
bool df_cuda_call_is_interrupted(const df_cuda_call *r);
/* New memory for this root. */
/* A frame of the plan's, or a new one, NULL without memory; and back. */
df_cuda_run_layout *df_cuda_call_take_frame(const df_cuda_call *r);
void df_cuda_call_give_frame(const df_cuda_call *r, df_cuda_run_layout *f);
bool df_cuda_call_wants(const df_cuda_call *r, uint32_t buf);
deft_status df_cuda_call_new_root(df_cuda_call *r, uint32_t buf);

/* ---- graph.c ---- */

typedef struct df_cuda_graph df_cuda_graph;

/* capture: a stream to capture cuBLASLt's products in. The frame is filled. The GPU's context is
 * current, here and below. */
deft_status df_cuda_graph_create(df_diag *d, const df_cuda_call *r, df_cu_stream capture,
                                 df_cuda_graph **out);
/* The launches of r, which has one phase and no products of cuBLASLt's, as nodes of `to`, all of
 * them behind `before`, unless that is NULL; *end: a node behind all of them. It is updated when
 * its exec is known; `to` and that exec stay the caller's. */
deft_status df_cuda_graph_weave(df_diag *d, const df_cuda_call *r, df_cu_graph to,
                                df_cu_node before, df_cu_node *end, df_cuda_graph **out);
void df_cuda_graph_woven(df_cuda_graph *g, df_cu_exec exec);
void df_cuda_graph_destroy(df_cuda_graph **g);      /* its launches have ended; NULL is fine */
size_t df_cuda_graph_bytes(const df_cuda_graph *g); /* about */
size_t df_cuda_graph_nodes(const df_cuda_graph *g);
/* Whether it has the steps of the frame, in the same order by the same dependencies. */
bool df_cuda_graph_is_like(const df_cuda_graph *g, const df_cuda_call *r);
/* Nodes that were given other words. */
typedef struct df_cuda_updated {
    uint64_t nodes;
    uint64_t by_value; /* of these, kernels that might go by a table */
} df_cuda_updated;

/* What differs from the frame's words is set; *n: nodes more that were. */
deft_status df_cuda_graph_update(df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                 df_cu_stream capture, df_cuda_updated *n);
/* Phase i is put in. */
deft_status df_cuda_graph_launch(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t i);

/* ---- graphs.c ---- */

/* What the tree knows a call by: a plan's serial number; that of its body and WHOLE, for a loop or
 * a branch; a number of its own and WORK, for a work (work.h). */
#define DF_CUDA_WORK ((uint64_t)1 << 63)
#define DF_CUDA_WHOLE ((uint64_t)1 << 62)

typedef struct df_cuda_graphs df_cuda_graphs;

/* DEFT_E_BACKEND: the GPU cannot. */
deft_status df_cuda_graphs_create(df_diag *d, df_cuda_device *c, df_queue *q,
                                  const df_replay_options *wish, df_cuda_graphs **out);
/* Its queue is about to be destroyed; what is held lives on. NULL is fine. */
void df_cuda_graphs_close(df_cuda_graphs **s);
/* Runs what r has, whose frame is laid out; roots are in f->own. */
deft_status df_cuda_graphs_run(df_cuda_graphs *s, df_cuda_call *r);
/* Whether plan is to be laid out by table there. */
bool df_cuda_graphs_want_table(const df_cuda_graphs *s, const df_plan *plan);
/* Runs what w has as one graph, or *done is false, and nothing was done. */
deft_status df_cuda_graphs_run_whole(df_cuda_graphs *s, struct df_cuda_conditional *w, bool *done);
void df_cuda_graphs_begin(df_cuda_graphs *s);
void df_cuda_graphs_trim(df_cuda_graphs *s);
/* For other threads: a reference, NULL for NULL. Under the lock that keeps s from being closed. */
df_cuda_graphs *df_cuda_graphs_ref(df_cuda_graphs *s);
/* A trim, at once, or at the end of the run that s is in. Takes the reference. Any thread. */
void df_cuda_graphs_trim_from_outside(DEFT_OWN df_cuda_graphs *s);
df_replay_stats df_cuda_graphs_read(df_cuda_graphs *s);
bool df_cuda_graphs_show(df_cuda_graphs *s, df_str *out); /* false: no memory */
void df_cuda_graphs_each(df_cuda_graphs *s, df_replay_event_fn listen, void *user);

/* ---- tree_notes.c ---- */

/* What has been counted since something was told. */
typedef struct df_cuda_tree_notes {
    uint64_t hits, updates; /* updates: as they were then */
    uint64_t paths;         /* so far */
} df_cuda_tree_notes;

/* Whose run it was, and who listens. */
typedef struct df_cuda_teller {
    df_replay_event_fn decided;
    void *user;
    uint64_t owner, number; /* of a plan; 0: a work */
    uintptr_t site;
    uint32_t device;
} df_cuda_teller;

/* c has been run; updates: nodes that were set so far. A hit is counted and no more. */
void df_cuda_tree_notes_run(df_cuda_tree_notes *s, df_tree *tree, const df_cuda_teller *by,
                            const df_tree_call *c, uint64_t updates);
void df_cuda_tree_notes_each(const df_tree *tree, uint32_t device, df_replay_event_fn tell,
                             void *user);

#endif
