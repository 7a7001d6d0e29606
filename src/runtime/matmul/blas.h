/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to matmul.c: calls into the BLAS that df_blas_open found.
 */
#ifndef DF_RUNTIME_BLAS_H
#define DF_RUNTIME_BLAS_H

#include "runtime/matmul.h"

/* The first product of the batch into c (rows c_row apart), on the calling thread alone. false: it
 * has strides or numbers that a BLAS cannot express, and nothing was done. Any thread. */
bool df_blas_multiply(const df_blas *b, const df_matmul_job *j, void *c, int64_t c_row);

#endif
