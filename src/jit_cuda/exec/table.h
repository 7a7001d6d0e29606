/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: when the argument words of a plan's kernels are passed in a
 * table.
 *
 * The words of a kernel are either the parameter of its graph node (by value), or are in
 * the table that is uploaded before the graph (MANY, cuda_abi.h). By value, each changed
 * address or number costs the update of a node, and a graph without changes costs nothing.
 * With a table, all changes cost one copy, which is made for each replay. Each kernel then
 * costs one more read of memory before it begins.
 *
 * Plans begin by value. Each graph counts the node updates of its latest replays that a
 * table would have saved. When these are many, the plan uses a table from the next run on.
 * The plan never returns to values, because nothing then shows what updates would have
 * cost. A graph whose plan was laid out the other way is recorded again in the memory that
 * it had.
 *
 *   DEFT_CUDA_TABLE=N   use a table from a mean of N nodes on; 0: never, 1: always
 */
#ifndef DF_JIT_CUDA_TABLE_H
#define DF_JIT_CUDA_TABLE_H

#include "jit_cuda/exec/device_internal.h"

/* The default of DEFT_CUDA_TABLE, an estimate. The update of a node costs some 0.5 us, and
 * the launch of its graph twice that. A copy costs some 5 us, and as much again until the
 * kernels that wait for it begin. */
enum { DF_CUDA_TABLE_FROM = 16 };

enum { DF_CUDA_TABLE_REPLAYS = 4 }; /* how many of the latest replays count */

/* Values of df_cuda_plan.table: how the kernels of a plan get their words in queues that
 * have graphs. */
enum {
    DF_CUDA_BY_VALUE,
    DF_CUDA_BY_TABLE,
    DF_CUDA_TABLE_REFUSED /* by value, because its entries with MANY cannot be had */
};

/* Of a graph: how many node updates each of its latest replays made that a table would have
 * saved. */
typedef struct df_cuda_weighing {
    uint32_t nodes[DF_CUDA_TABLE_REPLAYS];
    uint32_t n; /* replays counted so far */
} df_cuda_weighing;

/* The value of DEFT_CUDA_TABLE, or DF_CUDA_TABLE_FROM. */
uint32_t df_cuda_table_from(void);
/* Counts one more replay. Returns true, and resets w, when the mean of the latest replays
 * has reached `from`. */
bool df_cuda_table_weigh(df_cuda_weighing *w, uint64_t nodes, uint32_t from);
/* Whether the plan is to be laid out with a table. Any thread, as the functions below. */
bool df_cuda_table_is_wanted(const df_cuda_plan *p, uint32_t from);
/* Chooses a table for later runs, unless it was refused. */
void df_cuda_table_choose(df_cuda_plan *p);
/* A layout with a table has failed; `why` is logged. After DEFT_E_MEMORY and
 * DEFT_E_INTERRUPTED a table may be chosen again, otherwise it is refused for good. */
void df_cuda_table_refuse(df_cuda_plan *p, const df_log *log, const df_diag *why);

#endif
