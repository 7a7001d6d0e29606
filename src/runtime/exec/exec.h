/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the CPU device: the executor, which runs plans. See exec.c.
 */
#ifndef DF_RUNTIME_EXEC_H
#define DF_RUNTIME_EXEC_H

#include <stdatomic.h>

#include "runtime/device.h"
#include "runtime/matmul.h"
#include "runtime/packs.h"
#include "runtime/pool.h"
#include "runtime/tier.h"

typedef struct df_run_layout df_run_layout;

typedef enum df_tiles_state { DF_TILES_UNKNOWN, DF_TILES_ALLOWED, DF_TILES_NONE } df_tiles_state;

typedef struct df_executor {
    const df_mem *mem;
    df_allocator *allocator;
    df_packs *packs; /* packed copies of weights */
    df_pool *pool;
    df_pool *alone;        /* has no workers: for what one thread of `pool` computes by itself */
    df_tiers *tiers;       /* NULL: every kernel is interpreted */
    df_blas *_Atomic blas; /* NULL: not opened, or there is none */
    const df_gemm_kernel *_Atomic gemm[2]; /* f32, f64; NULL: the tiles in C */
    df_bf16_use bf16;
    /* Whether products of bf16 may use tiles. The first product that wants them asks. */
    df_tiles_state _Atomic tiles;
    double stream_bytes; /* launches that move more may stream (exec_stream.c) */
    double near_bytes;   /* of the second cache; infinity: not known */
    /* Of the last cache, or what this process may count on; infinity: not known. */
    double far_bytes;
    bool shares_far;              /* other processors use the last cache, too */
    bool measure;                 /* fill in the times of df_run_stats */
    struct df_spent *spent;       /* counts the time of launches; borrowed; may be NULL */
    df_run_layout *_Atomic frame; /* run layout of the last run, for the next; NULL: none */
} df_executor;

/* Frees the run layout. The device owns all other members. No run may be in progress. */
void df_executor_finish(df_executor *x);

/* Implements df_device.run. Any thread; runs may overlap. */
deft_status df_executor_run(df_executor *x, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats);

#endif
