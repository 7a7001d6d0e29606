/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: few rows times a matrix beyond the L2 cache, in fast mode. The steps
 * of k are divided into parts, which are entries of a batch, and the results of these are added.
 *
 * A thread then reads whole rows of B, one after the other. Without parts it reads the same columns
 * of all rows. Where rows are a power of 2 long, such columns share half of the sets of its cache.
 * On two threads of an Intel server, 1 x 1024 x 1024 took 92 us without parts, and takes 34.
 */
#ifndef DF_RUNTIME_MATMUL_DEEP_H
#define DF_RUNTIME_MATMUL_DEEP_H

#include "runtime/matmul.h"

typedef struct df_matmul_deep {
    df_matmul_job parts; /* with an entry for each part */
    df_matmul_job rest;  /* the last steps of k, fewer than there are parts. k = 0: none */
    size_t bytes;        /* of the results of both, which begin at c of `parts`: a multiple of 64 */
} df_matmul_deep;

/* Returns false, and leaves *out undefined, for a product that is better computed as it is. The
 * answer and the parts depend on the extents, the strides and the dtypes of the job. `work`: where
 * the results of the parts will be, or NULL. */
bool df_matmul_divide_deep(const df_matmul_job *j, char *work, df_matmul_deep *out);

/* Adds the results of the parts to those of j, and calls its epilogue. */
void df_matmul_join_deep(const df_matmul_job *j, const df_matmul_deep *d);

#endif
