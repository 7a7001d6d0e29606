/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched matrix products on a GPU: C[b,m,n] = sum_k A[b,m,k] B[b,k,n], f32 or f64, any strides of
 * A and B. A and B of f32 may lie in memory as f16 or bf16, and are read as the f32 they are. Two
 * ways:
 *
 *   OURS  a kernel of gemm.cu: each element one chain acc = fma(a, b, acc), k ascending from +0,
 *         the bits of runtime/matmul.c. An epilogue kernel is part of it: C need not exist.
 *         FAST products of halves by tensor cores (gemm_mma.cu) in any order of sums.
 *   LT    cuBLASLt (cublaslt.h), FAST traces only: any order of sums.
 *
 * How a segment is run:
 *
 *   df_cuda_gemm_job j = ...;                             addresses of the device, strides, extents
 *   const df_cuda_gemm p = df_cuda_gemm_choose(&j, n_sms, lt);
 *   p.way == NOTHING: C is empty, nothing is to be launched
 *   p.c_bytes > 0:    j.c = so many bytes; df_cuda_gemm_dense(&j)      (only without `fused`)
 *   p.way == OURS:    launch entry p.variant (compiled, see below) with df_cuda_gemm_fill's words
 *   p.way == LT:      df_cublaslt_run(lt, d, &j, &p, stream, work of p.work_bytes)
 *   j.epilogue && !p.fused: df_cuda_gemm_aim, then the epilogue as any MAP kernel
 *
 * Words, as in cuda_abi.h, are the entry's one parameter, by value: DF_CUDA_GEMM_WORDS of the
 * product, then those of the epilogue (df_cuda_layout). Grids are one-dimensional and may be cut:
 * kernels stride over their tiles.
 *
 * Nothing here needs a driver, a choice with cuBLASLt aside: it asks the library, with the GPU's
 * context current. Text and choices of our own are the same on every machine.
 */
#ifndef DF_JIT_CUDA_GEMM_H
#define DF_JIT_CUDA_GEMM_H

#include "jit_cuda/gen/cuda_abi.h"

typedef struct df_cublaslt df_cublaslt; /* cublaslt.h; NULL: there is none */

enum {
    DF_CUDA_GEMM_AXES = DEFT_MAX_RANK,
    DF_CUDA_GEMM_WORDS = 15 + 4 * DF_CUDA_GEMM_AXES,
    DF_CUDA_GEMM_THREADS = 256
};

/* Strides in elements. C's columns are neighbours. */
typedef struct df_cuda_gemm_job {
    deft_dtype dtype;            /* f32 or f64 */
    deft_dtype a_dtype, b_dtype; /* in memory: dtype, or, where that is f32, f16 or bf16 */
    bool fast;                   /* DF_TRACE_FAST */
    bool mma;                    /* the GPU's tensor cores take halves so: sm_80 on */
    int64_t m, n, k;
    uint32_t batch_rank;
    int64_t batch_extent[DF_CUDA_GEMM_AXES];
    int64_t a_batch[DF_CUDA_GEMM_AXES], b_batch[DF_CUDA_GEMM_AXES], c_batch[DF_CUDA_GEMM_AXES];
    int64_t a_row, a_col, b_row, b_col, c_row;
    uint64_t a, b;
    uint64_t c; /* 0: only the epilogue reads it */
    /* A MAP over [batch..., M, N] that reads C by access c_access; NULL: none. args: of the
     * segment, with ptr[c_access] NULL and its strides 0; not read without an epilogue. */
    const df_kernel *epilogue;
    uint32_t c_access;
    const df_kargs *args;
} df_cuda_gemm_job;

typedef enum df_cuda_gemm_way {
    DF_CUDA_GEMM_NOTHING,
    DF_CUDA_GEMM_OURS,
    DF_CUDA_GEMM_LT
} df_cuda_gemm_way;

/* How threads take an operand's elements: neighbours along its row or column of C, or along k; one
 * at a time by any strides, or as many as fill 16 bytes in the product's dtype. */
typedef enum df_cuda_gemm_read {
    DF_CUDA_READ_ALONG_C,
    DF_CUDA_READ_ALONG_K,
    DF_CUDA_READ_WIDE_C,
    DF_CUDA_READ_WIDE_K
} df_cuda_gemm_read;

/* What code is made for, beside the epilogue kernel; compared as bytes. Flags: STORE: C is written;
 * EPILOGUE: there is one; NARROW, WIDE: facts of the epilogue, WIDE also of C; MMA: by tensor
 * cores, A and B being halves of one dtype, WIDE ones read 16 bytes at a time. */
typedef struct df_cuda_gemm_config {
    uint8_t dtype;    /* deft_dtype */
    uint8_t tile;     /* of the table in gemm.c */
    uint8_t a, b;     /* df_cuda_gemm_read */
    uint8_t flags;    /* DF_CUDA_NARROW, DF_CUDA_WIDE, DF_CUDA_GEMM_STORE, DF_CUDA_GEMM_EPILOGUE */
    uint8_t c_access; /* 0 without EPILOGUE */
    uint8_t a_dtype, b_dtype; /* in memory */
} df_cuda_gemm_config;
_Static_assert(sizeof(df_cuda_gemm_config) == 8, "compared as bytes");

enum { DF_CUDA_GEMM_STORE = 16, DF_CUDA_GEMM_EPILOGUE = 32, DF_CUDA_GEMM_MMA = 64 };

typedef struct df_cuda_gemm {
    df_cuda_gemm_way way;
    bool fused;         /* the epilogue is done by this way */
    int64_t c_bytes;    /* of a C that must be made for it, 256-byte aligned; 0: none */
    int64_t work_bytes; /* LT: of work space, 256-byte aligned; 0: none */
    /* OURS */
    df_cuda_gemm_config variant;
    int64_t n_blocks; /* one for each tile, of DF_CUDA_GEMM_THREADS threads: fewer will do */
    uint32_t n_words;
} df_cuda_gemm;

/* n_sms: multiprocessors of the GPU. lt: where FAST products may go; NULL: nowhere. Any thread. */
df_cuda_gemm df_cuda_gemm_choose(const df_cuda_gemm_job *j, uint32_t n_sms, df_cublaslt *lt);
/* The job with the address of a C that was made for it: row-major, all batches. */
void df_cuda_gemm_dense(df_cuda_gemm_job *j, uint64_t c);
/* OURS: words[p->n_words]. */
void df_cuda_gemm_fill(const df_cuda_gemm_job *j, const df_cuda_gemm *p, uint64_t *words);
/* For an epilogue that is a launch of its own: ptr[c_access] and stride of the segment's arguments
 * aimed at j->c. */
void df_cuda_gemm_aim(const df_cuda_gemm_job *j, char **ptr, int64_t *stride);

/* ---- text ---- */

/* Follows the prelude, once in a program that has entries of products. */
const char *df_cuda_gemm_prelude(size_t *n);
/* Appends entry `name` of v. epilogue: of v, which code is kept for by its key too; else NULL. Its
 * FAST flag is the program's `contracts`. DEFT_E_COMPILE as df_cuda_text. Any thread. */
deft_status df_cuda_gemm_text(df_diag *d, const df_cuda_gemm_config *v, const df_kernel *epilogue,
                              const char *name, const df_mem *mem, df_str *out);

#endif
