/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of matmul.c: calls into the BLAS that df_blas_open found.
 */
#ifndef DF_RUNTIME_BLAS_H
#define DF_RUNTIME_BLAS_H

#include "runtime/matmul.h"

/* Computes the first product of the batch into c, whose rows are c_row elements apart, on the
 * calling thread alone. Returns false, and does nothing, when a BLAS cannot express the strides or
 * extents. Any thread. */
bool df_blas_multiply(const df_blas *b, const df_matmul_job *j, void *c, int64_t c_row);

#endif
