/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph pool: a range of GPU addresses that the graphs of a queue share
 * (replay/tree.h). The range is reserved once and never moves. Only as much of it is backed
 * with memory as is needed.
 *
 * Where the driver has no virtual memory, the pool is one block of a given size, or cannot
 * be created at all.
 */
#ifndef DF_JIT_CUDA_POOL_H
#define DF_JIT_CUDA_POOL_H

#include "jit_cuda/driver/gpu.h"

typedef struct df_cuda_pool df_cuda_pool;

/* Creates a pool without memory. With virtual memory, reserves as many addresses as the GPU
 * has bytes. most: the size of the block that is used without virtual memory; 0: not given.
 * Returns DEFT_E_BACKEND when the GPU has no virtual memory and most is 0. */
deft_status df_cuda_pool_create(df_diag *d, const df_mem *mem, df_gpu *g, uint64_t most,
                                df_cuda_pool **out);
/* no work may use the pool any more; NULL is fine */
void df_cuda_pool_destroy(df_cuda_pool **p);
/* the first address; may change while nothing is backed */
df_cu_ptr df_cuda_pool_base(const df_cuda_pool *p);
/* Backs at least the first `bytes` of the pool. The backed size is rounded up to the
 * driver's granularity. Memory is mapped in pieces of at most 32 MiB. Pieces that are
 * entirely behind `bytes` are freed, after a wait for q. Queue q may be NULL when no work
 * uses the pool. On DEFT_E_MEMORY the pool is as before. */
deft_status df_cuda_pool_back(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes);
uint64_t df_cuda_pool_bytes(const df_cuda_pool *p); /* bytes that are backed */

#endif
