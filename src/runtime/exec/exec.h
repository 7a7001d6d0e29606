/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the CPU devices: running plans. See exec.c.
 */
#ifndef DF_RUNTIME_EXEC_H
#define DF_RUNTIME_EXEC_H

#include <stdatomic.h>

#include "runtime/device.h"
#include "runtime/matmul.h"
#include "runtime/pool.h"
#include "runtime/tier.h"

typedef struct df_run_layout df_run_layout;

typedef struct df_executor {
    const df_mem *mem;
    df_allocator *allocator;
    df_pool *pool;
    df_tiers *tiers; /* NULL: every kernel is interpreted */
    df_blas *_Atomic blas;
    const df_gemm_kernel *_Atomic gemm[2]; /* f32, f64; NULL: matmul's own tiles */
    bool measure;
    struct df_spent *spent;       /* is told of launches; NULL: not. The runtime's */
    df_run_layout *_Atomic frame; /* work space of the last run, for the next */
} df_executor;

void df_executor_finish(df_executor *x); /* gives the frame back; the rest is the device's */

/* df_device.run */
deft_status df_executor_run(df_executor *x, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats);

#endif
