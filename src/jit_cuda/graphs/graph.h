/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: a run of a plan as a graph, and graph trees.
 *
 *   graph.c         its launches as a CUDA graph, and updates of that graph
 *   graphs.c        the graph tree of a queue (replay/tree.h): records, replays and places graphs
 *   graph_notes.c   statistics of a graph tree, and text for people
 *   tree_notes.c    what a graph tree writes to the structured log
 *   conditional.h   loops and branches as one graph
 *   driver/pool.h   the graph pool, in whose memory graphs work
 */
#ifndef DF_JIT_CUDA_GRAPH_H
#define DF_JIT_CUDA_GRAPH_H

#include "jit_cuda/exec/call.h"
#include "jit_cuda/exec/work.h"
#include "replay/tree.h"

/* ---- graph.c ---- */

typedef struct df_cuda_graph df_cuda_graph;

/* Makes one CUDA graph for each phase of the layout of r. After a phase that has checks, the
 * host reads the fault words. The caller has filled in the argument words of the layout
 * (df_cuda_call_fill). capture: a stream to capture products of cuBLASLt in; NULL when there
 * are none. The caller owns *out. The GPU's context is current, here and in all functions of
 * graph.c. */
deft_status df_cuda_graph_create(df_diag *d, const df_cuda_call *r, df_cu_stream capture,
                                 df_cuda_graph **out);
/* Adds the launches of r to the graph `to`, which stays the caller's. r has at most one
 * phase, no products of cuBLASLt, and its words are filled in. All nodes depend on `before`,
 * unless that is NULL; *end is a node behind all of them. *out can be updated after
 * df_cuda_graph_woven. On failure some nodes may be in `to` already; the caller discards
 * `to`. */
deft_status df_cuda_graph_weave(df_diag *d, const df_cuda_call *r, df_cu_graph to,
                                df_cu_node before, df_cu_node *end, df_cuda_graph **out);
/* Sets the executable graph that contains the nodes of g. It stays the caller's. */
void df_cuda_graph_woven(df_cuda_graph *g, df_cu_exec exec);
/* Destroys *g, whose launches have ended. *g may be NULL, and is NULL afterwards. */
void df_cuda_graph_destroy(df_cuda_graph **g);
size_t df_cuda_graph_bytes(const df_cuda_graph *g); /* an estimate */
size_t df_cuda_graph_nodes(const df_cuda_graph *g);
/* Whether g was made for the plan of r, and has the steps of r, in the same order and with
 * the same dependencies. */
bool df_cuda_graph_is_like(const df_cuda_graph *g, const df_cuda_call *r);
/* Counts of updated nodes. */
typedef struct df_cuda_updated {
    uint64_t nodes; /* all of them */
    /* Kernels among them whose argument words are in the node, and not in a table (table.h). */
    uint64_t by_value;
} df_cuda_updated;

/* Updates the nodes of g whose argument words differ from those of r, and adds their number
 * to *n. df_cuda_graph_is_like must hold for g and r. After a failure some nodes are updated,
 * and g must not be launched. */
deft_status df_cuda_graph_update(df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                 df_cu_stream capture, df_cuda_updated *n);
/* Enqueues the graph of phase i in the queue of r. Does nothing when the phase has no nodes.
 * g was not made by df_cuda_graph_weave. */
deft_status df_cuda_graph_launch(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t i);

/* ---- graphs.c ---- */

typedef struct df_cuda_graphs df_cuda_graphs;

/* Creates the graph tree of a queue. wish is not kept; a 0 in it selects the default.
 * Returns DEFT_E_BACKEND when the GPU cannot have graphs. */
deft_status df_cuda_graphs_create(df_diag *d, df_cuda_device *c, df_queue *q,
                                  const df_replay_options *wish, df_cuda_graphs **out);
/* To be called before the queue is destroyed. Waits for the queue. Outputs that are held
 * stay valid. *s may be NULL, and is NULL afterwards. */
void df_cuda_graphs_close(df_cuda_graphs **s);
/* Runs r, whose layout is built. The roots are in r->f->own afterwards. */
deft_status df_cuda_graphs_run(df_cuda_graphs *s, df_cuda_call *r);
/* Runs external work through the graph tree. Results are in r->own, as for
 * df_cuda_graphs_run. */
deft_status df_cuda_graphs_work(df_cuda_graphs *s, df_cuda_work *r);
/* Whether the plan's kernels are to read their argument words from a table (table.h) in this
 * queue. Asked before a layout is built. */
bool df_cuda_graphs_want_table(const df_cuda_graphs *s, const df_plan *plan);
/* Runs a loop or a branch as one graph (conditional.h). *done is false when nothing was run,
 * and the host must run it. On failure *done is not set. */
deft_status df_cuda_graphs_run_whole(df_cuda_graphs *s, struct df_cuda_conditional *w, bool *done);
/* Begins a generation, such as a step of the program: the next call is matched from the root
 * of the tree. */
void df_cuda_graphs_begin(df_cuda_graphs *s);
/* Drops all graphs, and frees the memory of the graph pool at offsets above the last output
 * that is held. */
void df_cuda_graphs_trim(df_cuda_graphs *s);
/* Adds a reference for another thread, and returns s, which may be NULL. The caller holds the
 * lock that keeps s from being closed. */
df_cuda_graphs *df_cuda_graphs_ref(df_cuda_graphs *s);
/* Trims from any thread: at once, or at the end of the run that is in progress. Takes the
 * reference. s must not be NULL. */
void df_cuda_graphs_trim_from_outside(DEFT_OWN df_cuda_graphs *s);
/* Statistics of the tree. */
df_replay_stats df_cuda_graphs_read(df_cuda_graphs *s);
/* Appends the tree as text. Returns false when memory runs out. */
bool df_cuda_graphs_show(df_cuda_graphs *s, df_str *out);
/* Calls listen for each node of the tree. listen must not use s, whose lock is held. */
void df_cuda_graphs_each(df_cuda_graphs *s, df_replay_event_fn listen, void *user);

/* ---- tree_notes.c ---- */

/* What the notes of one tree need. All zeros at first. */
typedef struct df_cuda_tree_notes {
    uint64_t hits;    /* runs since the last note, all of which only replayed */
    uint64_t updates; /* the tree's node updates when the last note was written */
    uint64_t paths;   /* generations that have begun so far */
} df_cuda_tree_notes;

/* Whose run a note is about, and who receives the note. */
typedef struct df_cuda_teller {
    df_replay_event_fn decided; /* receives the note; not NULL */
    void *user;                 /* passed to decided */
    uint64_t owner, number;     /* of a plan; 0: external work */
    uintptr_t site;             /* the call site of the plan or of the work */
    uint32_t device;            /* the ordinal of the GPU */
} df_cuda_teller;

/* Reports that c has been run. When it only replayed, counts it instead. updates: the node
 * updates of the tree so far. */
void df_cuda_tree_notes_run(df_cuda_tree_notes *s, df_tree *tree, const df_cuda_teller *by,
                            const df_tree_call *c, uint64_t updates);
/* Reports each node of the tree. */
void df_cuda_tree_notes_each(const df_tree *tree, uint32_t device, df_replay_event_fn tell,
                             void *user);

#endif
