/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched matrix product for DF_SEG_MATMUL: packing, cache blocking, micro-kernel, epilogue.
 * Strict: acc = fma(a, b, acc), k ascending, one chain per output; only M, N and batch are split.
 * Fast: the better of ours and a BLAS opened at run time, at one thread each, split by shape.
 */
#ifndef DF_RUNTIME_MATMUL_H
#define DF_RUNTIME_MATMUL_H

#include "runtime/device.h"
#include "runtime/pool.h"

typedef struct df_blas df_blas; /* opened library; NULL when there is none */

typedef struct df_matmul_job {
    deft_dtype dtype;         /* f32 or f64 */
    int64_t m, n, k, n_batch; /* batch linearized row-major over batch_extent */
    uint32_t batch_rank;
    int64_t batch_extent[DEFT_MAX_RANK];
    const char *a, *b;
    char *c; /* NULL: tiles only, the epilogue consumes them */
    int64_t a_batch[DEFT_MAX_RANK], b_batch[DEFT_MAX_RANK], c_batch[DEFT_MAX_RANK];
    int64_t a_row, a_col, b_row, b_col, c_row; /* strides in elements; c columns are contiguous */
    /* Runs the epilogue over rows [o0, o1) of (batch, m) linearized and columns [i0, i1), with C's
     * element (o0, i0) at tile and row stride ld elements. NULL: none. */
    void (*epilogue)(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                     int64_t o1, int64_t i0, int64_t i1);
    void *user;
    bool fast;
} df_matmul_job;

/* Bytes of work space for one call (packing buffers of all threads). */
size_t df_matmul_work_size(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads);

/* Uses the pool; g NULL: portable C micro-kernel. */
void df_matmul_run(const df_matmul_job *job, const df_gemm_kernel *g, df_blas *blas, df_pool *pool,
                   void *work);

deft_status df_blas_open(df_diag *d, const df_mem *mem, df_blas **out);
void df_blas_close(df_blas **b);

#endif
