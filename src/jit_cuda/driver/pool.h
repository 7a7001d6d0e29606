/* SPDX-License-Identifier: Apache-2.0
 *
 * A range of a GPU's addresses, reserved once and never moved, of which as much is backed with
 * memory as is needed: what the graphs of a queue share (replay/tree.h). Where the driver has no
 * virtual memory it is one block of a size that is given, or nothing at all.
 */
#ifndef DF_JIT_CUDA_POOL_H
#define DF_JIT_CUDA_POOL_H

#include "jit_cuda/driver/gpu.h"

typedef struct df_cuda_pool df_cuda_pool;

/* Reserves as many addresses as the GPU has bytes. most: of the pool, 0: not given. DEFT_E_BACKEND:
 * the GPU has no virtual memory, and most is 0. */
deft_status df_cuda_pool_create(df_diag *d, const df_mem *mem, df_gpu *g, uint64_t most,
                                df_cuda_pool **out);
void df_cuda_pool_destroy(df_cuda_pool **p);        /* nothing runs there any more; NULL is fine */
df_cu_ptr df_cuda_pool_base(const df_cuda_pool *p); /* may change while nothing is backed */
/* Backs the first `bytes`, at least, and as little beyond as the driver's granularity and pieces of
 * 32 MiB allow; less than now: waits for q (NULL: nothing runs there) and gives memory back.
 * DEFT_E_MEMORY: it is as it was. */
deft_status df_cuda_pool_back(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes);
uint64_t df_cuda_pool_bytes(const df_cuda_pool *p); /* backed */

#endif
