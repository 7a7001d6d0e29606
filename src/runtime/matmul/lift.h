/* SPDX-License-Identifier: Apache-2.0
 *
 * The conversion of an operand of halves to f32, which is exact. Internal header of products.
 */
#ifndef DF_RUNTIME_MATMUL_LIFT_H
#define DF_RUNTIME_MATMUL_LIFT_H

#include "runtime/matmul.h"

typedef struct df_lifting {
    const df_matmul_job *job;
    const int64_t *batch; /* strides of the copy; 0: entries of the batch are the same matrix */
    const uint16_t *from;
    float *to;
    deft_dtype dtype;
    int64_t rows, columns, row, column; /* of one matrix, and strides of `from` */
    int64_t from_batch[DEFT_MAX_RANK];
} df_lifting;

/* Converts row i of all rows of all matrices. lifting: a df_lifting. A task of a pool. */
void df_matmul_lift_row(void *lifting, uint32_t i, uint32_t thread);

#endif
