/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: the same product in another form, which is computed faster.
 */
#ifndef DF_RUNTIME_MATMUL_TURN_H
#define DF_RUNTIME_MATMUL_TURN_H

#include "runtime/matmul.h"

/* A product with few columns, and the product with few rows that equals it: (A B)' = B' A'. Lanes
 * then are rows of C, whichever way A lies in memory. */
typedef struct df_matmul_turned {
    df_matmul_job job;      /* its user is this struct: do not move it */
    df_matmul_job original; /* with the batch folded into rows where this is possible */
    /* How many matrices of the batch of B are copied, because their columns are not contiguous. The
     * A of `job` then is these copies. 0: its A is B itself. */
    int64_t n_copies;
} df_matmul_turned;

/* Returns false, and leaves *out undefined, for a product that is better computed as it is. The
 * answer depends on the extents, the strides and the dtypes of the job. */
bool df_matmul_turn(const df_matmul_job *j, df_matmul_turned *out);

/* Returns the bytes of workspace that df_matmul_prepare_turned needs: a multiple of 64. */
size_t df_matmul_turned_work_size(const df_matmul_turned *t);

/* Copies B to `work` where that is necessary, on the threads of the pool. Call this before t->job
 * is computed. */
void df_matmul_prepare_turned(df_matmul_turned *t, df_pool *pool, void *work);

/* Makes one tall product of the batch, when the rows of all entries follow each other at one stride
 * and all have the same B. An example is x [batch, time, k] times w [k, n]. */
void df_matmul_fold_batch(df_matmul_job *j);

#endif
