/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: the same product in another form, which is computed faster.
 */
#ifndef DF_RUNTIME_MATMUL_TURN_H
#define DF_RUNTIME_MATMUL_TURN_H

#include "runtime/matmul.h"

/* A product with one column, and the product with one row that equals it: (A b)' = b' A'. Lanes
 * then lie on the elements of C, whichever way A lies in memory. */
typedef struct df_matmul_turned {
    df_matmul_job job;
    const df_matmul_job *original;
} df_matmul_turned;

/* Returns true for a product that should be turned. */
bool df_matmul_wants_turn(const df_matmul_job *j);

/* Fills in *out, which refers to j. */
void df_matmul_turn(const df_matmul_job *j, df_matmul_turned *out);

/* Makes one tall product of the batch, when the rows of all entries follow each other at one stride
 * and all have the same B. An example is x [batch, time, k] times w [k, n]. */
void df_matmul_fold_batch(df_matmul_job *j);

#endif
