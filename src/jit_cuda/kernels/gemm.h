/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched matrix products on a GPU: C[b,m,n] = sum_k A[b,m,k] B[b,k,n]. The dtype is f32 or
 * f64; A and B may have any strides. In an f32 product A and B may be stored as f16 or
 * bf16, and are converted when they are read. There are two ways:
 *
 *   OURS  A kernel of gemm.cu. Each element is one chain acc = fma(a, b, acc), k ascending
 *         from +0, with the bits of runtime/matmul/matmul.c. The epilogue is part of the
 *         kernel: C need not exist. FAST products of halves use tensor cores
 *         (gemm_mma.cu), with any order of sums.
 *   LT    cuBLASLt (cublaslt.h), FAST traces only, with any order of sums.
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
 * Argument words, as in cuda_abi.h, are the entry's one parameter, by value. They are
 * DF_CUDA_GEMM_WORDS words of the product, then those of the epilogue (df_cuda_layout).
 * Grids are one-dimensional. Smaller grids are correct, because kernels stride over their
 * tiles.
 *
 * Nothing here needs a driver, except a choice with cuBLASLt: it asks the library, with the
 * GPU's context current. The text, and choices without cuBLASLt, are the same on every
 * machine.
 */
#ifndef DF_JIT_CUDA_GEMM_H
#define DF_JIT_CUDA_GEMM_H

#include "jit_cuda/gen/cuda_abi.h"

typedef struct df_cublaslt df_cublaslt; /* see cublaslt.h; NULL: not available */

enum {
    DF_CUDA_GEMM_AXES = DEFT_MAX_RANK,
    DF_CUDA_GEMM_WORDS = 15 + 4 * DF_CUDA_GEMM_AXES,
    DF_CUDA_GEMM_THREADS = 256
};

/* One product. Strides are in elements. C's columns are contiguous. */
typedef struct df_cuda_gemm_job {
    deft_dtype dtype;            /* f32 or f64 */
    deft_dtype a_dtype, b_dtype; /* as stored: dtype, or f16 or bf16 where dtype is f32 */
    bool fast;                   /* DF_TRACE_FAST */
    bool mma;                    /* the GPU's tensor cores accept halves: sm_80 and above */
    int64_t m, n, k;
    uint32_t batch_rank;
    int64_t batch_extent[DF_CUDA_GEMM_AXES];
    int64_t a_batch[DF_CUDA_GEMM_AXES], b_batch[DF_CUDA_GEMM_AXES], c_batch[DF_CUDA_GEMM_AXES];
    int64_t a_row, a_col, b_row, b_col, c_row;
    uint64_t a, b;
    uint64_t c; /* 0: only the epilogue reads it, and it need not exist */
    /* A MAP kernel over [batch..., M, N] that reads C by access c_access; NULL: none. The
     * arguments of its segment are `args`, with ptr[c_access] NULL and its strides 0. They
     * are not read without an epilogue. */
    const df_kernel *epilogue;
    uint32_t c_access;
    const df_kargs *args;
} df_cuda_gemm_job;

typedef enum df_cuda_gemm_way {
    DF_CUDA_GEMM_NOTHING,
    DF_CUDA_GEMM_OURS,
    DF_CUDA_GEMM_LT
} df_cuda_gemm_way;

/* How threads read the elements of an operand: neighbours along its row or column of C, or
 * along k. They read one element at a time with any strides, or WIDE: as many as fill 16
 * bytes in the product's dtype. */
typedef enum df_cuda_gemm_read {
    DF_CUDA_READ_ALONG_C,
    DF_CUDA_READ_ALONG_K,
    DF_CUDA_READ_WIDE_C,
    DF_CUDA_READ_WIDE_K
} df_cuda_gemm_read;

/* What the code of a product is specialised to, besides the epilogue kernel. Compared as
 * bytes. The flags are:
 *
 *   STORE          C is written
 *   EPILOGUE       there is an epilogue
 *   NARROW, WIDE   as for the epilogue kernel; WIDE holds of C too
 *   MMA            tensor cores; A and B are halves of one dtype, and WIDE reads 16 bytes
 */
typedef struct df_cuda_gemm_config {
    uint8_t dtype;    /* deft_dtype */
    uint8_t tile;     /* index in the table of gemm.c */
    uint8_t a, b;     /* df_cuda_gemm_read */
    uint8_t flags;    /* DF_CUDA_NARROW, DF_CUDA_WIDE, DF_CUDA_GEMM_STORE, DF_CUDA_GEMM_EPILOGUE */
    uint8_t c_access; /* 0 without EPILOGUE */
    uint8_t a_dtype, b_dtype; /* as stored */
} df_cuda_gemm_config;
_Static_assert(sizeof(df_cuda_gemm_config) == 8, "compared as bytes");

enum { DF_CUDA_GEMM_STORE = 16, DF_CUDA_GEMM_EPILOGUE = 32, DF_CUDA_GEMM_MMA = 64 };

typedef struct df_cuda_gemm {
    df_cuda_gemm_way way;
    bool fused;         /* the epilogue is part of the product */
    int64_t c_bytes;    /* size of a C that the caller must provide, 256-byte aligned; 0: none */
    int64_t work_bytes; /* LT: size of workspace, 256-byte aligned; 0: none */
    /* OURS */
    /* configuration of the code */
    df_cuda_gemm_config variant;
    int64_t n_blocks; /* one per tile, of DF_CUDA_GEMM_THREADS threads; fewer are correct, too */
    uint32_t n_words;
} df_cuda_gemm;

/* Chooses the way of a product. n_sms: multiprocessors of the GPU. lt: may be used for FAST
 * products; NULL: not. Any thread. */
df_cuda_gemm df_cuda_gemm_choose(const df_cuda_gemm_job *j, uint32_t n_sms, df_cublaslt *lt);
/* Sets the address and strides of a C that was provided for the product: row-major, all
 * batches. */
void df_cuda_gemm_dense(df_cuda_gemm_job *j, uint64_t c);
/* OURS: writes p->n_words words. */
void df_cuda_gemm_fill(const df_cuda_gemm_job *j, const df_cuda_gemm *p, uint64_t *words);
/* For an epilogue that is a launch of its own: sets ptr[c_access] and its strides in the
 * segment's arguments to those of C. */
void df_cuda_gemm_aim(const df_cuda_gemm_job *j, char **ptr, int64_t *stride);

/* ---- text ---- */

/* The text that follows the prelude, once in a program with entries of products. *n: its
 * length. */
const char *df_cuda_gemm_prelude(size_t *n);
/* Appends entry `name` of configuration v. epilogue: the kernel of its epilogue, whose key
 * is then part of the code's key; or NULL. The FAST flag of epilogue is the program's
 * `contracts`. Returns DEFT_E_COMPILE as df_cuda_text does. Any thread. */
deft_status df_cuda_gemm_text(df_diag *d, const df_cuda_gemm_config *v, const df_kernel *epilogue,
                              const char *name, const df_mem *mem, df_str *out);

#endif
