/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops with a test and branches as one graph, which decides on the GPU: nothing waits on the host.
 *
 *   conditional.c         one run: what it is made of, where everything lies, and why not
 *   conditional_graph.c   its graph: conditional nodes, and what surrounds them
 *   conditional.cu        the kernels that decide
 *
 *   loop     states: copies -> 0 -> test -> decide -> WHILE { body -> copies -> +1 -> test ->
 * decide } branch   decide -> IF { body }, IF { other }      two handles: ELSE is of CUDA 12.8
 *
 * A body's nodes have their addresses for good, so that each state stays in one place: what an
 * iteration makes of it is written over it, if the plan allows that as the end of a step
 * (df_root.donor), else beside it, and copied back when the whole iteration has read it.
 */
#ifndef DF_JIT_CUDA_CONDITIONAL_H
#define DF_JIT_CUDA_CONDITIONAL_H

#include "jit_cuda/graphs/graph.h"
#include "replay/tree.h"
#include "runtime/flow.h"

/* A plan within: the body, or the test or the other side. */
typedef struct df_cuda_side {
    df_cuda_call call; /* plan NULL: there is none */
    df_trace t;
    const df_port *port;
    uint32_t *of; /* per plan buffer that is a root: whose place among dest it is, or DF_NONE */
    int64_t *at;  /* then: where in the arena; of others nothing */
    int64_t arena_at;
} df_cuda_side;

typedef struct df_cuda_conditional {
    const df_flow_construct *w;
    df_cuda_device *c;
    df_queue *q;
    bool is_loop;
    df_cuda_side body, other;
    uint32_t n_dest;         /* as roots of body */
    char **dest;             /* where they are when all is done: of a loop, states all the while */
    int64_t *dest_at;        /* within the arena; of those that leave it nothing */
    df_buffer **lent, **own; /* of those that leave it: in the pool, else of their own */
    df_tree_out *out;        /* of those, one after the other */
    uint32_t n_out;
    int64_t count_at, arena_bytes;
    char *count, *holds; /* of a loop: its iterations so far; its test's root */
} df_cuda_conditional;

/* ---- conditional_run.c ---- */

/* df_flow_ops.run_whole */
deft_status df_cuda_run_conditional(df_cuda_device *c, df_queue *q, df_diag *d,
                                    const df_flow_construct *w, bool *done);

/* ---- conditional_kernels.c ---- */

enum { DF_CUDA_COUNT, DF_CUDA_LOOP, DF_CUDA_BRANCH, DF_CUDA_N_DECIDING };

/* Compiles the kernels that decide. It is tried once per device, unless memory was short. */
void df_cuda_deciding_make(df_cuda_device *c);
/* References to the kernels that decide, the device's. NULL: there are none. */
df_cuda_fn *const *df_cuda_deciding(const df_cuda_device *c);
void df_cuda_conditionals_destroy(df_cuda_device *c);

/* ---- conditional.c ---- */

/* Fills w, of which w, c, q, is_loop and n_dest are set: takes the run layouts of both plans, and
 * builds those that do not fit. Lists live in arena. Also after a failure w is to be closed. */
deft_status df_cuda_conditional_open(df_cuda_conditional *w, df_diag *d, df_arena *arena);
/* Gives back the layouts, and drops the buffers that were not handed out. */
void df_cuda_conditional_close(df_cuda_conditional *w);
/* Assigns what stays within it to places in its arena. */
void df_cuda_conditional_assign(df_cuda_conditional *w);
uint64_t df_cuda_conditional_variant(const df_cuda_conditional *w);
/* Buffers for what leaves it, as yet without memory, and their sizes in w->out. */
deft_status df_cuda_conditional_prepare(df_cuda_conditional *w);
/* All words for an arena there and results at base + offset, or in buffers of their own. */
deft_status df_cuda_conditional_aim(df_cuda_conditional *w, char *base, const uint64_t *offset,
                                    char *arena);
deft_status df_cuda_conditional_put_tables(df_cuda_conditional *w);

/* ---- conditional_graph.c ---- */

typedef struct df_cuda_conditional_graph df_cuda_conditional_graph;

/* The GPU's context is current, here and below; w is aimed. */
deft_status df_cuda_conditional_graph_create(df_diag *d, df_cuda_conditional *w,
                                             df_cuda_conditional_graph **out);
void df_cuda_conditional_graph_destroy(df_cuda_conditional_graph **g); /* NULL is fine */
size_t df_cuda_conditional_graph_bytes(const df_cuda_conditional_graph *g);
size_t df_cuda_conditional_graph_nodes(const df_cuda_conditional_graph *g);
bool df_cuda_conditional_graph_is_like(const df_cuda_conditional_graph *g, df_cuda_conditional *w);
/* On failure g is half w's: it is to be made anew. */
deft_status df_cuda_conditional_graph_update(df_cuda_conditional_graph *g, df_diag *d,
                                             df_cuda_conditional *w, df_cuda_updated *n);
deft_status df_cuda_conditional_graph_launch(df_cuda_conditional_graph *g, df_diag *d,
                                             const df_cuda_conditional *w);

#endif
