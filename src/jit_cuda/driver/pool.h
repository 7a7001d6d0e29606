/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph pool: a range of GPU addresses that the graphs of a queue share
 * (replay/tree.h). With virtual memory, the range is reserved once and never moves. Only as
 * much of it is backed with memory as is needed.
 *
 * Where the driver has no virtual memory, the pool is one block of a given size. The block
 * is allocated when the first byte is backed, and freed when none is.
 *
 * The functions do not lock: calls with the same pool must not overlap. No function needs
 * the CUDA context to be current.
 */
#ifndef DF_JIT_CUDA_POOL_H
#define DF_JIT_CUDA_POOL_H

#include "jit_cuda/driver/gpu.h"

typedef struct df_cuda_pool df_cuda_pool;

/* Creates a pool without memory. With virtual memory, reserves as many addresses as the GPU
 * has bytes, and ignores most. Without it, most is the size of the block; 0: not given.
 * Returns DEFT_E_BACKEND when the GPU has no virtual memory and most is 0. g and mem must
 * outlive the pool. */
deft_status df_cuda_pool_create(df_diag *d, const df_mem *mem, df_gpu *g, uint64_t most,
                                df_cuda_pool **out);
/* No work may use the pool any more. *p may be NULL, and is NULL afterwards. */
void df_cuda_pool_destroy(df_cuda_pool **p);
/* The first address. Without virtual memory it is 0 while nothing is backed, and may differ
 * after the next allocation. */
df_cu_ptr df_cuda_pool_base(const df_cuda_pool *p);
/* Backs at least the first `bytes` of the pool. The backed size is rounded up to the
 * driver's granularity. Memory is mapped in pieces of at most 32 MiB, or of one granule when
 * that is more. Pieces that are entirely behind `bytes` are freed, after a wait for q. Queue
 * q may be NULL when no work uses the pool.
 *
 * Without virtual memory, the whole block is backed, or nothing when bytes is 0. bytes must
 * not exceed the size of the block.
 *
 * On failure the pool is as before. DEFT_E_MEMORY: the GPU has too little memory, or its
 * max_bytes would be exceeded. */
deft_status df_cuda_pool_back(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes);
uint64_t df_cuda_pool_bytes(const df_cuda_pool *p); /* bytes that are backed */

#endif
