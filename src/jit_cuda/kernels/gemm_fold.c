/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges the batch axes of a product into as few as possible, and turns the innermost batch
 * axis into rows where B does not depend on it (gemm_tile.h). The choice of a kernel (gemm.c)
 * and the calls of cuBLASLt (cublaslt.c) both begin with that.
 */
#include "jit_cuda/kernels/gemm_tile.h"

/* Overwrites batch axis `to` with batch axis `from`. */
static void move_axis(df_cuda_gemm_job *j, uint32_t to, uint32_t from)
{
    j->batch_extent[to] = j->batch_extent[from];
    j->a_batch[to] = j->a_batch[from];
    j->b_batch[to] = j->b_batch[from];
    j->c_batch[to] = j->c_batch[from];
}

/* Whether batch axis i continues an inner axis of n entries with strides a, b and c: the two are
 * then like one axis. Strides of C do not count when C is not in memory (j->c is 0). */
static bool continues(const df_cuda_gemm_job *j, uint32_t i, int64_t n, int64_t a, int64_t b,
                      int64_t c)
{
    return j->a_batch[i] == n * a && j->b_batch[i] == n * b && (!j->c || j->c_batch[i] == n * c);
}

void df_cuda_gemm_fold(df_cuda_gemm_job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->batch_rank; i++) {
        if (j->batch_extent[i] == 1) continue;
        move_axis(j, n, i);
        if (n > 0 &&
            continues(j, n - 1, j->batch_extent[n], j->a_batch[n], j->b_batch[n], j->c_batch[n])) {
            const int64_t extent = j->batch_extent[n - 1] * j->batch_extent[n];
            move_axis(j, n - 1, n);
            j->batch_extent[n - 1] = extent;
            continue;
        }
        n++;
    }
    j->batch_rank = n;
    if (n == 0) return;
    /* A single row has no row stride of its own, so it takes the strides of the batch axis. */
    if (j->m == 1) {
        j->a_row = j->a_batch[n - 1];
        j->c_row = j->c_batch[n - 1];
    }
    /* The batch axis must continue the rows of A and C, and B must be the same along it. */
    if (!continues(j, n - 1, j->m, j->a_row, 0, j->c_row)) return;
    j->m *= j->batch_extent[n - 1];
    j->batch_rank = n - 1;
}
