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
 * results are not finite, the row of tiles that they are in is computed again as a product.
 */
#ifndef DF_RUNTIME_WINOGRAD_H
#define DF_RUNTIME_WINOGRAD_H

#include "runtime/matmul.h"

/* Whether such a product is computed here. Then the next two do what df_matmul_work_size and
 * df_matmul_run do. The answer depends on extents and strides, on `fast` and on the machine. Each
 * result depends neither on the number of threads nor on g. */
bool df_winograd_wants(const df_matmul_job *j);
size_t df_winograd_work_size(const df_matmul_job *j, const df_gemm_kernel *g, uint32_t n_threads);
void df_winograd_run(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool, void *work);

/* ---- per instruction set ---- */

enum { DF_WINOGRAD_POSITIONS = 16 };

/* Rows of tiles of one channel of one image, as columns of panels: B' d B. Element p of tile t is
 * at to + p * position + t / width * panel + t % width. */
typedef struct df_winograd_image {
    float *to;
    int64_t position, panel, width;
    int64_t first; /* number of the first tile */
    const float *from;
    int64_t from_row;    /* elements from one row of the image to the next */
    int64_t extent[2];   /* rows and columns of the image */
    int64_t row, column; /* where the first tile begins; may be outside of the image */
    int64_t n_rows, n;   /* rows of tiles, and tiles in a row */
} df_winograd_image;

/* One row of tiles of one channel of the results: A' m A. Element p of tile t is at
 * from + p * position + t. Up to 15 elements behind the last tile may be read. */
typedef struct df_winograd_results {
    float *to;         /* two rows of results, or the last one */
    int64_t n_rows, n; /* of results; n is also the distance of rows */
    const float *from;
    int64_t position;
} df_winograd_results;

typedef struct df_winograd_code {
    void (*image)(const df_winograd_image *p);
    /* Returns whether all results are finite. */
    bool (*results)(const df_winograd_results *p);
    /* G g G' for n channels and `width` rows of weights. Tap t of a channel is the row where[t] of
     * its 9 rows of `width` elements at `from`. Element p is in row p * position / width of `to`,
     * from the row of its channel on. */
    void (*weights)(float *to, int64_t position, const float *from, int64_t n, int64_t width,
                    const int64_t where[9]);
} df_winograd_code;

extern const df_winograd_code df_winograd_avx512;

/* Returns NULL where there is no such code. */
const df_winograd_code *df_winograd_pick(void);

#endif
