/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of products share: the tiles into which products are divided, and the
 * reduction of batch axes.
 */
#ifndef DF_JIT_CUDA_GEMM_TILE_H
#define DF_JIT_CUDA_GEMM_TILE_H

#include "jit_cuda/kernels/gemm.h"

/* A thread block computes bm by bn of C, and a thread tm by tn of that, for slices of bk
 * along k. The number of threads, (bm / tm) * (bn / tn), is DF_CUDA_GEMM_THREADS. Each of
 * the two factors is at least 8. */
typedef struct df_cuda_tile {
    uint8_t bm, bn, bk, tm, tn;
    /* thread blocks that a multiprocessor is to hold, when there is no long epilogue */
    uint8_t together;
    double rate; /* estimated speed of a multiprocessor, relative to the largest tile */
} df_cuda_tile;

enum { DF_CUDA_N_TILES = 5, DF_CUDA_N_MMA_TILES = 3 };

/* Tiles of f32 and of f64, the largest first. */
extern const df_cuda_tile df_cuda_tiles[2][DF_CUDA_N_TILES];
/* Tiles of halves with tensor cores; tm by tn is the part of a warp. */
extern const df_cuda_tile df_cuda_mma_tiles[DF_CUDA_N_MMA_TILES];

/* The tile of a configuration. */
const df_cuda_tile *df_cuda_gemm_tile(const df_cuda_gemm_config *v);

/* Merges batch axes into as few as possible. A batch axis becomes rows when B does not
 * depend on it and the rows of A and C continue along it. The row (batch, m) of each
 * element stays the same. */
void df_cuda_gemm_fold(df_cuda_gemm_job *j);

#endif
