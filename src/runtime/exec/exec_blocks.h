/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the executor: loops that run block by block (exec_blocks.c).
 */
#ifndef DF_RUNTIME_EXEC_BLOCKS_H
#define DF_RUNTIME_EXEC_BLOCKS_H

#include "runtime/exec/exec.h"
#include "runtime/flow.h"

/* Runs all iterations of a loop without a test, when its rows do not depend on each other and that
 * is worth it; implements df_flow_ops.run_loop. */
deft_status df_run_loop_by_blocks(df_executor *x, df_diag *d, const df_flow_construct *w,
                                  bool *done);

#endif
