/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt, opened at run time, for products of FAST traces. The library is
 * libcublasLt.so.13, .12 or .11, or the file or folder that DEFT_CUBLASLT names.
 *
 * Sums are in f32 (without TF32) or f64, in any order, so results differ from strict ones
 * by rounding. When both operands are halves of one dtype, they are passed as halves.
 *
 * The library is asked for an algorithm once for each combination of shape, strides, dtype
 * and alignment, and its answers are cached. There is one df_cublaslt per GPU. Any thread
 * may use it, with the GPU's context current.
 */
#ifndef DF_JIT_CUDA_CUBLASLT_H
#define DF_JIT_CUDA_CUBLASLT_H

#include "base/diag.h"
#include "base/mem.h"
#include "jit_cuda/kernels/gemm.h"

enum { DF_CUBLASLT_WORK = 32 << 20 }; /* bytes of workspace that it may be given */

/* Opens only the library. path: a file or a folder; NULL: the usual names. Returns NULL
 * when there is none. */
void *df_cublaslt_library(const char *path);
/* Opens the library for a GPU, whose context is current. path: a file or a folder; NULL
 * means DEFT_CUBLASLT or, without that, the usual names. The caller owns *out. Returns
 * DEFT_E_BACKEND when there is no library or it cannot start; d says what was tried. */
deft_status df_cublaslt_open(df_diag *d, const df_mem *mem, const char *path, df_cublaslt **out);
void df_cublaslt_close(df_cublaslt **lt);          /* NULL is fine; the library stays loaded */
size_t df_cublaslt_version(const df_cublaslt *lt); /* 130200 is 13.2 */

/* Whether the library accepts the strides of j and knows an algorithm. Sets *bytes to the
 * workspace that it needs, at most DF_CUBLASLT_WORK. With `fused` the epilogue of j is
 * included, which df_cublaslt_fuses must accept. Returns false also when memory runs out. */
bool df_cublaslt_takes(df_cublaslt *lt, const df_cuda_gemm_job *j, bool fused, int64_t *bytes);
/* Whether the library has the epilogue of j. It has a FAST bias of f32 along N, and the
 * rounding of C to the halves that A and B are. The epilogue must have one result, whose
 * columns are contiguous. */
bool df_cublaslt_fuses(const df_cuda_gemm_job *j);
/* For a job that df_cublaslt_fuses accepts: the job whose C is the result of the epilogue.
 * *bias: the address of the bias, or 0. *out: the dtype of C, which is not j->dtype when C
 * is rounded. */
df_cuda_gemm_job df_cublaslt_with_epilogue(const df_cuda_gemm_job *j, uint64_t *bias,
                                           deft_dtype *out);
/* Enqueues the product in a stream. work: the address of p->work_bytes of workspace,
 * 256-byte aligned; 0 when there is none. Returns DEFT_E_BACKEND when the library fails. */
deft_status df_cublaslt_run(df_cublaslt *lt, df_diag *d, const df_cuda_gemm_job *j,
                            const df_cuda_gemm *p, void *stream, uint64_t work);

#endif
