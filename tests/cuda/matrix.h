/* SPDX-License-Identifier: Apache-2.0
 *
 * The op matrix as kernels: each op on each dtype that it is known for by itself, of mode MAP; each
 * reduction and scan of mode ROW and of mode COL.
 */
#ifndef TEST_CUDA_MATRIX_H
#define TEST_CUDA_MATRIX_H

#include "support/random_kernel.h"

typedef struct matrix_kernel {
    one_op x;
    char where[48]; /* "add f32 <- f32" */
} matrix_kernel;

typedef struct matrix {
    matrix_kernel *at;
    uint32_t n;
} matrix;

/* Aborts when memory is short. */
void matrix_make(matrix *m);
void matrix_finish(matrix *m);

#endif
