/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of products share: the tiles that they are cut into, and batches in their simplest
 * form.
 */
#ifndef DF_JIT_CUDA_GEMM_TILE_H
#define DF_JIT_CUDA_GEMM_TILE_H

#include "jit_cuda/kernels/gemm.h"

/* A thread block's part of C is bm by bn, a thread's tm by tn; k goes by slices of bk. bm / tm * bn
 * / tn is DF_CUDA_GEMM_THREADS, each factor 8 at least. */
typedef struct df_cuda_tile {
    uint8_t bm, bn, bk, tm, tn;
    uint8_t together; /* thread blocks that a multiprocessor is to hold, epilogues aside */
    double rate;      /* of a multiprocessor, the largest tile having 1: an estimate */
} df_cuda_tile;

enum { DF_CUDA_N_TILES = 5, DF_CUDA_N_MMA_TILES = 3 };

/* Of f32 and of f64, the largest first. */
extern const df_cuda_tile df_cuda_tiles[2][DF_CUDA_N_TILES];
/* Of halves by tensor cores; tm by tn is a warp's part. */
extern const df_cuda_tile df_cuda_mma_tiles[DF_CUDA_N_MMA_TILES];

const df_cuda_tile *df_cuda_gemm_tile(const df_cuda_gemm_config *v);

/* As few batch axes as there can be; one under which B stays and the rows of A and C go on becomes
 * rows. The row of (batch, m) that an element has stays the same. */
void df_cuda_gemm_fold(df_cuda_gemm_job *j);

#endif
