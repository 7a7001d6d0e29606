/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions with windows of 3 x 3 elements that move by 1, in fast mode, with 16 multiplications
 * for 4 results instead of 36.
 *
 * The method is F(2 x 2, 3 x 3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural
 * Networks" (2015), after Winograd. A tile is a square of 2 x 2 results of one channel. It depends
 * on 4 x 4 elements of the image, d, and on 3 x 3 weights, g:
 *
 *     results = A' [ (G g G') * (B' d B) ] A      where ' transposes and * goes element by element
 *
 *     B' = 1  0 -1  0      G = 1    0   0      A' = 1  1  1  0
 *          0  1  1  0          1/2  1/2 1/2         0  1 -1 -1
 *          0 -1  1  0          1/2 -1/2 1/2
 *          0  1  0 -1          0    0   1
 *
 * The sum over channels happens between the brackets. There it is a product of matrices for each of
 * the 16 positions of a tile.
 *
 * Special values are those of the direct product. An infinity or a NaN that a tile reads makes at
 * least one of its results infinite or NaN, and so does a sum that overflows on the way. Whenever
 * results are not finite, the row of tiles that they are in is computed again as a product, for
 * their filter. Other filters keep their results, because which filters a task has may depend on
 * the number of threads.
 *
 * With the tiles of AMX, the 16 products can be products of thirds (thirds/thirds.h). An element of
 * the transformed images that is no sum of thirds spoils its own tile alone, and such a weight its
 * own filter alone. A row of tiles with such an element, and a panel of filters with such a weight,
 * are computed again as direct products.
 */
#ifndef DF_RUNTIME_WINOGRAD_H
#define DF_RUNTIME_WINOGRAD_H

#include "runtime/matmul.h"

/* Whether such a product is computed here. Then the next two do what df_matmul_work_size and
 * df_matmul_run do. The answer depends on extents and strides, on `fast` and on the machine. Each
 * result depends neither on the number of threads nor on g.
 *
 * df_winograd_run returns false when the product must be computed directly, because the gradient
 * of some weight is not finite. Then the epilogue has not been called. */
bool df_winograd_wants(const df_matmul_job *j);
size_t df_winograd_work_size(const df_matmul_job *j, const df_gemm_kernel *g, uint32_t n_threads);
bool df_winograd_run(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool, void *work);

/* Whether the 16 products of such a convolution are faster as products of thirds (thirds/thirds.h).
 * Then j->in_thirds may be set. */
bool df_winograd_gains_by_thirds(const df_matmul_job *j);

#endif
