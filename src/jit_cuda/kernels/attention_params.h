/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter of the kernels of attention.cu. This file is C for attention.c, and is the
 * beginning of the text of the kernels. Addresses are those of the device, strides are in
 * elements. Rows are of f32 and contiguous.
 */
#ifndef DF_JIT_CUDA_ATTENTION_PARAMS_H
#define DF_JIT_CUDA_ATTENTION_PARAMS_H

enum {
    ATTENTION_THREADS = 128,
    ATTENTION_RANK = 8,
    ATTENTION_BLOCK = 128 /* keys of a block; the rows of a loop are divided between blocks */
};

/* A matrix for each batch entry. */
typedef struct attention_matrix {
    unsigned long long at;
    long long row, block; /* block: from a block of keys to the next */
    long long batch[ATTENTION_RANK];
} attention_matrix;

/* The layouts of results are row-major. Columns, with one value per query, are [batch,
 * query]. acc and dq are [batch, query, width], and dk and dv are [block, batch, key of the
 * block, width]. */
typedef struct attention_params {
    attention_matrix q, k, v, dout;
    unsigned long long m, l, acc;         /* forward: results */
    unsigned long long log_sum, less;     /* gradient: inputs */
    unsigned long long dq, dk, dv;        /* gradient: results */
    long long n_queries, n_keys, n_batch; /* n_keys: a multiple of ATTENTION_BLOCK */
    long long extent[ATTENTION_RANK];
    int rank, width;
    int is_causal;
    /* halves: q * unscale is the original half; scores are multiplied by scale */
    float unscale, scale;
    int unused;
} attention_params;

#endif
