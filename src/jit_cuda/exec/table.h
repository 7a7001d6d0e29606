/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: when the kernels of a plan go by a table.
 *
 * A kernel's words are its node's parameter (by value), or lie in the table that is put in before
 * the graph (MANY, cuda_abi.h). By value a changed address or number costs the update of a node,
 * and a graph of which nothing has changed costs nothing. By table all that has changed costs one
 * copy, which is made each time, and each kernel one more read of memory before it begins.
 *
 * Plans begin by value. Each graph remembers how many nodes its latest replays set that a table
 * would have spared. Where these are many, its plan goes by table from the next run on, for good:
 * it does not go back, since nothing then shows what updates would have cost. A graph that finds
 * its plan laid out the other way is made anew in the memory that it had.
 *
 *   DEFT_CUDA_TABLE=N   from a mean of N nodes on; 0: never, 1: always
 */
#ifndef DF_JIT_CUDA_TABLE_H
#define DF_JIT_CUDA_TABLE_H

#include "jit_cuda/exec/device_internal.h"

/* A guess: some 0.5 us for the update of a node, and twice that for the launch of a graph that has
 * it; some 5 us for a copy and as much again until the kernels that wait for it begin. */
enum { DF_CUDA_TABLE_FROM = 16 };

enum { DF_CUDA_TABLE_REPLAYS = 4 }; /* the latest, that count */

/* How a plan's kernels go in queues that have graphs: df_cuda_plan.table. */
enum {
    DF_CUDA_BY_VALUE,
    DF_CUDA_BY_TABLE,
    DF_CUDA_TABLE_REFUSED /* by value: its entries with MANY cannot be had */
};

/* Of a graph: nodes that were set in its latest replays and that a table would have spared. */
typedef struct df_cuda_weighing {
    uint32_t nodes[DF_CUDA_TABLE_REPLAYS];
    uint32_t n; /* replays so far */
} df_cuda_weighing;

/* What the environment asks for, or DF_CUDA_TABLE_FROM. */
uint32_t df_cuda_table_from(void);
/* One replay more. true: the latest have reached the mean `from`; it then begins anew. */
bool df_cuda_table_weigh(df_cuda_weighing *w, uint64_t nodes, uint32_t from);
/* Whether the plan is to be laid out by table. Any thread, as below. */
bool df_cuda_table_is_wanted(const df_cuda_plan *p, uint32_t from);
void df_cuda_table_choose(df_cuda_plan *p);
/* It could not be laid out so. Where memory was short, or compiling was stopped, it may be tried
 * again, else not. */
void df_cuda_table_refuse(df_cuda_plan *p, const df_log *log, const df_diag *why);

#endif
