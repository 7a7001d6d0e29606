/* SPDX-License-Identifier: Apache-2.0
 *
 * A loop with a test, or a branch, as one graph that decides on the GPU. The host waits for
 * nothing.
 *
 *   conditional_run.c       whether a construct can be one graph, and its run
 *   conditional.c           one run: its plans and their layouts, and where its memory is
 *   conditional_graph.c     its graph: conditional nodes, and the nodes around them
 *   conditional_kernels.c   the kernels that decide, compiled once per device
 *   conditional.cu          the text of those kernels
 *
 * The nodes, in order of their dependencies:
 *
 *   loop        copy states, count = 0 -> test -> decide -> WHILE { iteration }
 *   iteration   body -> copy states, count + 1 -> test -> decide
 *   branch      decide -> IF { body }, IF { other }
 *
 * A branch has two IF nodes, because ELSE needs CUDA 12.8.
 *
 * The nodes of a body have fixed addresses, so each state keeps its address. An iteration
 * writes a new state over the old one when the plan allows that at the end of a step
 * (df_root.donor). Otherwise the new state is written beside the old one, and copied back
 * when the iteration has read the old one.
 */
#ifndef DF_JIT_CUDA_CONDITIONAL_H
#define DF_JIT_CUDA_CONDITIONAL_H

#include "jit_cuda/graphs/graph.h"
#include "replay/tree.h"
#include "runtime/flow.h"

/* One plan of a construct: the body of a loop, or its test; one side of a branch, or the
 * other. */
typedef struct df_cuda_side {
    df_cuda_call call; /* call.plan NULL: there is no such plan */
    df_trace t;
    const df_port *port;
    uint32_t *of; /* per plan buffer that is a root: the index of its memory in dest, or DF_NONE */
    int64_t *at;  /* where `of` is DF_NONE: offset in the arena */
    /* offset in the arena */
    int64_t arena_at;
} df_cuda_side;

/* One run of a construct. */
typedef struct df_cuda_conditional {
    const df_flow_construct *w;
    df_cuda_device *c;
    df_queue *q;
    bool is_loop;
    /* other: the test of a loop */
    df_cuda_side body, other;
    uint32_t n_dest; /* number of results: the roots of body */
    /* Address of each result after the run. For a loop, also the address of its state
     * during the run. */
    char **dest;
    int64_t *dest_at; /* offset in the arena; 0 for results that are outputs */
    /* buffers of outputs: in the graph pool, or with memory of their own */
    df_buffer **lent, **own;
    df_tree_out *out; /* what the tree needs to know of outputs, which are n_out */
    uint32_t n_out;
    int64_t count_at, arena_bytes;
    char *count, *holds; /* addresses, of a loop: the iterations so far; the result of the test */
} df_cuda_conditional;

/* ---- conditional_run.c ---- */

/* Runs a construct as one graph: df_flow_ops.run_whole. When that is not possible, *done is
 * false and nothing has been done. */
deft_status df_cuda_run_conditional(df_cuda_device *c, df_queue *q, df_diag *d,
                                    const df_flow_construct *w, bool *done);

/* ---- conditional_kernels.c ---- */

enum { DF_CUDA_COUNT, DF_CUDA_LOOP, DF_CUDA_BRANCH, DF_CUDA_N_DECIDING };

/* Compiles the kernels that decide. Failure is final for the device, except when memory
 * runs out. */
void df_cuda_deciding_make(df_cuda_device *c);
/* The kernels that decide, which the device owns. NULL: the driver does not accept them, or
 * they are not compiled. */
df_cuda_fn *const *df_cuda_deciding(const df_cuda_device *c);
/* Drops the kernels that decide. */
void df_cuda_conditionals_destroy(df_cuda_device *c);

/* ---- conditional.c ---- */

/* Fills w, of which w, c, q, is_loop and n_dest are set. Takes the run layouts of both
 * plans, and builds those that do not fit. Lists are allocated in arena. After a failure,
 * too, w must be closed. */
deft_status df_cuda_conditional_open(df_cuda_conditional *w, df_diag *d, df_arena *arena);
/* Gives back the layouts and drops the buffers that were not handed out. */
void df_cuda_conditional_close(df_cuda_conditional *w);
/* Assigns offsets in the arena to all memory that does not leave the construct. */
void df_cuda_conditional_assign(df_cuda_conditional *w);
/* The signature: a hash of the slots and alignments of both plans. */
uint64_t df_cuda_conditional_variant(const df_cuda_conditional *w);
/* Creates buffers for the outputs, without memory, and fills their sizes into w->out. */
deft_status df_cuda_conditional_prepare(df_cuda_conditional *w);
/* Sets all addresses and words of the run. Outputs are at base + offset, or in buffers of
 * their own for DF_TREE_OUTSIDE. */
deft_status df_cuda_conditional_aim(df_cuda_conditional *w, char *base, const uint64_t *offset,
                                    char *arena);
/* Uploads the tables of both plans. */
deft_status df_cuda_conditional_put_tables(df_cuda_conditional *w);

/* ---- conditional_graph.c ---- */

typedef struct df_cuda_conditional_graph df_cuda_conditional_graph;

/* Records the graph of w, whose addresses are set (df_cuda_conditional_aim). The GPU's
 * context is current, here and in all functions below. */
deft_status df_cuda_conditional_graph_create(df_diag *d, df_cuda_conditional *w,
                                             df_cuda_conditional_graph **out);
/* its launches have ended; NULL is fine */
void df_cuda_conditional_graph_destroy(df_cuda_conditional_graph **g);
size_t df_cuda_conditional_graph_bytes(const df_cuda_conditional_graph *g);
size_t df_cuda_conditional_graph_nodes(const df_cuda_conditional_graph *g);
/* Whether g has the nodes of w, in the same order. Addresses may differ. */
bool df_cuda_conditional_graph_is_like(const df_cuda_conditional_graph *g, df_cuda_conditional *w);
/* Updates the nodes of g that differ from w, and adds their number to *n. After a failure g
 * must not be launched: it is partly updated. */
deft_status df_cuda_conditional_graph_update(df_cuda_conditional_graph *g, df_diag *d,
                                             df_cuda_conditional *w, df_cuda_updated *n);
/* Enqueues one launch of g. */
deft_status df_cuda_conditional_graph_launch(df_cuda_conditional_graph *g, df_diag *d,
                                             const df_cuda_conditional *w);

#endif
