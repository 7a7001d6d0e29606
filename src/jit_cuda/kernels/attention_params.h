/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter of the kernels of attention.cu: C for attention.c, and the beginning of their text.
 * Addresses are those of the device, strides are in elements; rows are of f32, one after the other.
 */
#ifndef DF_JIT_CUDA_ATTENTION_PARAMS_H
#define DF_JIT_CUDA_ATTENTION_PARAMS_H

enum {
    ATTENTION_THREADS = 128,
    ATTENTION_RANK = 8,
    ATTENTION_BLOCK = 128 /* keys between which the rows of a scan are cut */
};

/* A matrix for each entry of the batch. */
typedef struct attention_matrix {
    unsigned long long at;
    long long row, block; /* block: from a block of keys to the next */
    long long batch[ATTENTION_RANK];
} attention_matrix;

/* Columns and results are row-major: [batch, query], [batch, query, width] and, of dk and dv,
 * [block, batch, key of the block, width]. */
typedef struct attention_params {
    attention_matrix q, k, v, dout;
    unsigned long long m, l, acc;         /* forwards: results */
    unsigned long long log_sum, less;     /* backwards */
    unsigned long long dq, dk, dv;        /* results */
    long long n_queries, n_keys, n_batch; /* n_keys: a multiple of ATTENTION_BLOCK */
    long long extent[ATTENTION_RANK];
    int rank, width;
    int is_causal;
    float unscale, scale; /* halves: q times unscale is what was lifted; its scores times scale */
    int unused;
} attention_params;

#endif
