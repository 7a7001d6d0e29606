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
 *
 * The arena of a construct is GPU memory of the graph pool, which the graph tree lends for one
 * run. The df_arena of df_cuda_conditional_open is another thing: host memory for lists.
 */
#ifndef DF_JIT_CUDA_CONDITIONAL_H
#define DF_JIT_CUDA_CONDITIONAL_H

#include "jit_cuda/graphs/graph.h"
#include "replay/tree.h"
#include "runtime/flow.h"

/* One plan of a construct: the body of a loop, or its test; one side of a branch, or the
 * other. */
typedef struct df_cuda_side {
    df_cuda_call call;   /* the run of the plan */
    df_trace t;          /* the trace of the plan, with the inputs of this run */
    const df_port *port; /* per input of t: where it comes from */
    uint32_t *of;        /* per buffer of the plan: index in dest of its memory, or DF_NONE */
    /* Per buffer of the plan: offset in the arena of the construct. Only of roots whose `of` is
     * DF_NONE. */
    int64_t *at;
    /* Offset in the arena of the construct of the arena of this plan: its temporaries and its
     * table of argument words. */
    int64_t arena_at;
} df_cuda_side;

/* One run of a construct. A result is an output when something reads it outside the
 * construct. Other results are in the arena. */
typedef struct df_cuda_conditional {
    const df_flow_construct *w;
    df_cuda_device *c;
    df_queue *q;
    bool is_loop; /* else a branch */
    /* other: the test of a loop, or the other side of a branch */
    df_cuda_side body, other;
    uint32_t n_dest; /* number of results: the roots of body */
    /* Address of each result after the run. For a loop, also the address of its state
     * during the run. */
    char **dest;
    int64_t *dest_at; /* per result: offset in the arena; 0 for outputs */
    /* Per result; NULL: it is not an output, or there is no such buffer. An output that gets
     * memory of the graph pool moves from lent to own. */
    df_buffer **lent; /* buffers without memory */
    df_buffer **own;  /* buffers with memory */
    df_tree_out *out; /* per output: its size, for the graph tree */
    uint32_t n_out;
    int64_t count_at;    /* of a loop: offset in the arena of the count of iterations */
    int64_t arena_bytes; /* size of the arena, set by df_cuda_conditional_assign */
    /* Addresses, of a loop only: the iterations so far (int64_t), and the result of the test
     * (bool). */
    char *count, *holds;
} df_cuda_conditional;

/* ---- conditional_run.c ---- */

/* Runs a construct as one graph: df_flow_ops.run_whole. When that is not possible, *done is
 * false, nothing has been done, and the status is DEFT_OK. */
deft_status df_cuda_run_conditional(df_cuda_device *c, df_queue *q, df_diag *d,
                                    const df_flow_construct *w, bool *done);

/* ---- conditional_kernels.c ---- */

/* The kernels of conditional.cu. */
enum {
    DF_CUDA_COUNT,  /* sets the count of iterations to 0, or adds 1 */
    DF_CUDA_LOOP,   /* decides whether the next iteration runs */
    DF_CUDA_BRANCH, /* decides which side runs */
    DF_CUDA_N_DECIDING
};

/* Compiles the kernels that decide. Failure is final for the device, except when memory
 * runs out. Any thread. */
void df_cuda_deciding_make(df_cuda_device *c);
/* The kernels that decide, by the enum above. The device owns them. NULL: the driver does not
 * accept them, or they are not compiled. Any thread. */
df_cuda_fn *const *df_cuda_deciding(const df_cuda_device *c);
/* Drops the kernels that decide, if there are any. The device is being destroyed. */
void df_cuda_conditionals_destroy(df_cuda_device *c);

/* ---- conditional.c ---- */

/* Fills w, of which w, c, q, is_loop and n_dest are set and all else is 0. Takes the run
 * layouts of both plans, and builds those that do not fit. Lists are allocated in arena,
 * which must outlive w. After a failure, too, w must be closed. */
deft_status df_cuda_conditional_open(df_cuda_conditional *w, df_diag *d, df_arena *arena);
/* Gives back the layouts, and drops the buffers that are still in lent and own. */
void df_cuda_conditional_close(df_cuda_conditional *w);
/* Assigns offsets in the arena to all memory that does not leave the construct, and sets
 * w->arena_bytes. */
void df_cuda_conditional_assign(df_cuda_conditional *w);
/* The signature (replay/tree.h): a hash of the slots and alignments of both plans. */
uint64_t df_cuda_conditional_variant(const df_cuda_conditional *w);
/* Creates a buffer without memory for each output, in w->lent, and fills w->out and w->n_out.
 * To be called once. */
deft_status df_cuda_conditional_prepare(df_cuda_conditional *w);
/* Sets all addresses of the run, and the argument words of its kernels. `arena` is the address
 * of the arena. Output k, in the order of w->out, is at base + offset[k]. Where offset[k] is
 * DF_TREE_OUTSIDE, the output gets a buffer of its own, which may need memory. */
deft_status df_cuda_conditional_aim(df_cuda_conditional *w, char *base, const uint64_t *offset,
                                    char *arena);
/* Enqueues the upload of the tables of argument words of both plans, where they have one. To
 * be called before each launch. */
deft_status df_cuda_conditional_put_tables(df_cuda_conditional *w);

/* ---- conditional_graph.c ---- */

/* A recorded graph of a construct, which outlives the run that it was recorded for. */
typedef struct df_cuda_conditional_graph df_cuda_conditional_graph;

/* Records the graph of w, whose addresses are set (df_cuda_conditional_aim). The GPU's
 * context is current, here and in all functions below. */
deft_status df_cuda_conditional_graph_create(df_diag *d, df_cuda_conditional *w,
                                             df_cuda_conditional_graph **out);
/* Destroys a graph whose launches have ended. *g may be NULL, and is NULL afterwards. */
void df_cuda_conditional_graph_destroy(df_cuda_conditional_graph **g);
/* The memory of the graph, in bytes; an estimate. */
size_t df_cuda_conditional_graph_bytes(const df_cuda_conditional_graph *g);
/* The number of its nodes, without the conditional nodes. */
size_t df_cuda_conditional_graph_nodes(const df_cuda_conditional_graph *g);
/* Whether g has the nodes of w, in the same order. Addresses may differ. */
bool df_cuda_conditional_graph_is_like(const df_cuda_conditional_graph *g, df_cuda_conditional *w);
/* Updates the nodes of g that differ from w, and adds their number to *n.
 * df_cuda_conditional_graph_is_like must hold. After a failure g must not be launched: it is
 * partly updated. */
deft_status df_cuda_conditional_graph_update(df_cuda_conditional_graph *g, df_diag *d,
                                             df_cuda_conditional *w, df_cuda_updated *n);
/* Enqueues one launch of g in the queue of w. The tables are uploaded already
 * (df_cuda_conditional_put_tables). */
deft_status df_cuda_conditional_graph_launch(df_cuda_conditional_graph *g, df_diag *d,
                                             const df_cuda_conditional *w);

#endif
