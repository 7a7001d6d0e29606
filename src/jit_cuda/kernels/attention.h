/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a GPU: all of a scan that is tagged as attention (fuser/plan.h, df_part_tag) by one
 * kernel, its gradient by two, without scores in memory. FAST traces only: sums have another order,
 * exp is the GPU's, and products of operands that were lifted from halves are made of halves.
 *
 *   how far from the scan   operands from f32: a few 1e-6 of the greatest of a result
 *                           from halves: what rounding p and the gradients of scores to halves
 *                           makes, 2^-11 (f16) or 2^-8 (bf16) of each, averaged over keys
 *
 * Same job, same bits: nothing is added by atomics. Nothing here launches, or needs a driver or a
 * GPU. Nothing is allocated; any thread. For one loop:
 *
 *   df_cuda_attention_takes(&job, arch)    false: the loop turns
 *   df_cuda_attention_plan(&job, arch, &plan)
 *   text = prelude + df_cuda_attention_text(plan.kernels)     once for each set, then kept
 *   for each launch: the entry df_cuda_attention_name(launch.kernel), a grid of launch.n_blocks by
 *       DF_CUDA_ATTENTION_THREADS threads, no dynamic shared memory, one parameter by value:
 *       plan.params. Grids may be cut: kernels stride over their tiles. Launches are independent.
 */
#ifndef DF_JIT_CUDA_ATTENTION_H
#define DF_JIT_CUDA_ATTENTION_H

#include "base/str.h"
#include "jit_cuda/kernels/attention_params.h"
#include "ops/shape.h"

enum {
    DF_CUDA_ATTENTION_THREADS = ATTENTION_THREADS,
    DF_CUDA_ATTENTION_MOST_WIDTH = 128,
    DF_CUDA_ATTENTION_LAUNCHES = 2
};

/* Strides in elements of f32; of rows, of a batch axis, and, of keys, of a block of 128. */
typedef struct df_cuda_matrix {
    uint64_t at;
    int64_t row, col, block;
    int64_t batch[DEFT_MAX_RANK];
} df_cuda_matrix;

/* Addresses of the device. Results are row-major, as the scan makes them; 0: not wanted. */
typedef struct df_cuda_attention_job {
    df_loop_tag what;
    uint32_t n_batch;
    int64_t batch[DEFT_MAX_RANK];
    int64_t n_queries, n_blocks, block; /* blocks of keys, and keys of each */
    int64_t width, value_width;
    df_cuda_matrix q, k, v;
    uint64_t m, l, acc; /* attention: results */
    df_cuda_matrix dout;
    uint64_t log_sum, less; /* attention_grad: one for each query, row-major */
    uint64_t dq, dk, dv;    /* results */
} df_cuda_attention_job;

/* X(pass): what a kernel does. */
#define DF_CUDA_ATTENTION_PASSES(X)                                                                \
    X(forward)                                                                                     \
    X(grad_q)                                                                                      \
    X(grad_kv)

typedef enum df_cuda_attention_pass {
#define DF_CUDA_ATTENTION_PASS(pass) DF_CUDA_ATTENTION_##pass,
    DF_CUDA_ATTENTION_PASSES(DF_CUDA_ATTENTION_PASS)
#undef DF_CUDA_ATTENTION_PASS
        DF_CUDA_ATTENTION_N_PASSES
} df_cuda_attention_pass;

/* A kernel: (pass * 3 + type) * 4 + width: types f32, f16, bf16; widths up to 32, 64, 96, 128. */
enum { DF_CUDA_ATTENTION_KERNELS = DF_CUDA_ATTENTION_N_PASSES * 12 };

typedef struct df_cuda_attention {
    attention_params params;
    uint64_t kernels; /* bits 1 << kernel: those of the launches */
    uint32_t n;       /* 0: there is nothing to do */
    struct {
        uint32_t kernel, n_blocks;
    } at[DF_CUDA_ATTENTION_LAUNCHES];
} df_cuda_attention;

/* Whether there is a kernel: width and value_width equal, a multiple of 4, at most 128; blocks of
 * 128; columns side by side; all that is read at multiples of 16 bytes; something to read. arch: 90
 * is sm_90; halves have kernels from 80 on, and only with is_scaled, before and without they are
 * f32 like any. */
bool df_cuda_attention_takes(const df_cuda_attention_job *j, int arch);
/* Of a job that is taken. */
void df_cuda_attention_plan(const df_cuda_attention_job *j, int arch, df_cuda_attention *out);

/* Appends the entries of a set of kernels to a program that begins with the prelude; at most once
 * for each program. Same set, same text. */
void df_cuda_attention_text(uint64_t kernels, df_str *out);
/* out: "attention_grad_kv_bf16_128" */
void df_cuda_attention_name(uint32_t kernel, char out[48]);

#endif
