/* SPDX-License-Identifier: Apache-2.0
 *
 * What routine.c shares with routine_scatter.c: the launches of a sort, and arithmetic for
 * grids. Private.
 */
#ifndef DF_JIT_CUDA_ROUTINE_PLAN_H
#define DF_JIT_CUDA_ROUTINE_PLAN_H

#include "jit_cuda/kernels/routine.h"
#include "jit_cuda/kernels/routine_params.h"

/* Appends a launch. params: `size` bytes, a struct of the kernel's type. */
void df_cuda_routine_add(df_cuda_launches *out, df_cuda_routine kernel, int64_t n_blocks,
                         const void *params, size_t size);
/* Thread blocks for n threads; threads stride over the grid. */
int64_t df_cuda_routine_blocks(int64_t n);

/* How the kernels read an element of dtype t (routine_params.h). */
uint32_t df_cuda_routine_kind(deft_dtype t);

/* Divides the rows of *s into pieces. n and n_rows must be set. */
void df_cuda_sort_split(sort_params *s);
/* Bytes of counts and totals together. */
size_t df_cuda_sort_count_size(const sort_params *s);
/* Appends one pass over the digit at s->shift. counts: address of counts and totals. */
void df_cuda_sort_pass(const sort_params *s, uint64_t counts, df_cuda_launches *out);

/* size, rounded up to a multiple of 256. */
static inline size_t df_cuda_align(size_t size)
{
    return (size + 255) & ~(size_t)255;
}

static inline int64_t df_cuda_ceil(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

#endif
