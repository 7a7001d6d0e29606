/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a GPU. All of a loop that is tagged as attention (fuser/plan.h, df_part_tag)
 * is one kernel, and its gradient is two, without scores in memory. This is for FAST traces
 * only. Sums have another order than in the loop, and exp is the GPU's. Products of
 * operands that were converted from halves are computed from halves.
 *
 *   distance from the loop   operands from f32: a few 1e-6 of the greatest element of a result
 *                            from halves: the error of rounding p and the gradients of scores to
 *                            halves, 2^-11 (f16) or 2^-8 (bf16) of each, averaged over keys
 *
 * The same job gives the same bits: nothing is added by atomics. Nothing here launches, or needs a
 * driver or a GPU. Nothing is allocated; any thread. For one loop:
 *
 *   df_cuda_attention_takes(&job, arch)    false: the loop runs iteration by iteration
 *   df_cuda_attention_plan(&job, arch, &plan)
 *   text = prelude + df_cuda_attention_text(plan.kernels)     once for each set, then kept
 *   for each launch: the entry df_cuda_attention_name(launch.kernel), a grid of launch.n_blocks by
 *       DF_CUDA_ATTENTION_THREADS threads, no dynamic shared memory, one parameter by value:
 *       plan.params. Smaller grids are correct: kernels stride over their tiles. Launches are
 *       independent.
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

/* A matrix for each batch entry. Strides are in elements of f32. block: the stride between
 * blocks of 128 keys. */
typedef struct df_cuda_matrix {
    uint64_t at;
    int64_t row, col, block;
    int64_t batch[DEFT_MAX_RANK];
} df_cuda_matrix;

/* One loop. Addresses are those of the device. Results are row-major, as the loop produces
 * them; a result with address 0 is not wanted. */
typedef struct df_cuda_attention_job {
    df_loop_tag what;
    uint32_t n_batch;
    int64_t batch[DEFT_MAX_RANK];
    int64_t n_queries, n_blocks, block; /* number of blocks of keys, and keys of each */
    int64_t width, value_width;
    df_cuda_matrix q, k, v;
    uint64_t m, l, acc; /* results of attention */
    df_cuda_matrix dout;
    uint64_t log_sum, less; /* inputs of the gradient: one value per query, row-major */
    uint64_t dq, dk, dv;    /* results of the gradient */
} df_cuda_attention_job;

/* X(pass): what a kernel computes. */
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

/* The number of a kernel is (pass * 3 + type) * 4 + width. Types are f32, f16, bf16; widths
 * are up to 32, 64, 96, 128. */
enum { DF_CUDA_ATTENTION_KERNELS = DF_CUDA_ATTENTION_N_PASSES * 12 };

typedef struct df_cuda_attention {
    attention_params params;
    uint64_t kernels; /* set of the kernels of the launches: bits 1 << kernel */
    uint32_t n;       /* number of launches; 0: there is nothing to do */
    struct {
        uint32_t kernel, n_blocks;
    } at[DF_CUDA_ATTENTION_LAUNCHES];
} df_cuda_attention;

/* Whether a kernel can compute the job. width and value_width must be equal, a multiple of
 * 4, at most 128. Blocks must have 128 keys. Columns must be contiguous, and everything
 * that is read must be at multiples of 16 bytes. There must be something to read.
 *
 * arch: 90 is sm_90. Halves have kernels of their own from 80 on, and only with is_scaled.
 * Otherwise they are computed as f32. */
bool df_cuda_attention_takes(const df_cuda_attention_job *j, int arch);
/* Plans the launches of a job that df_cuda_attention_takes accepts. */
void df_cuda_attention_plan(const df_cuda_attention_job *j, int arch, df_cuda_attention *out);

/* Appends the entries of a set of kernels to a program that begins with the prelude, at
 * most once per program. Same set, same text. */
void df_cuda_attention_text(uint64_t kernels, df_str *out);
/* Writes the name of an entry, for example "attention_grad_kv_bf16_128". */
void df_cuda_attention_name(uint32_t kernel, char out[48]);

#endif
