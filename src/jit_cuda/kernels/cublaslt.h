/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt, opened at run time, for products of FAST traces: libcublasLt.so.13, .12 or .11, or what
 * DEFT_CUBLASLT names (a file or a folder). Sums in f32 (no TF32) or f64, in any order: results
 * differ from the strict ones by rounding alone. Operands that are halves, both of one dtype, are
 * given as halves.
 *
 * The library is asked which algorithm to take once for each shape, strides, dtype and alignment;
 * the answers are kept. One df_cublaslt for each GPU; any thread, with the GPU's context current.
 */
#ifndef DF_JIT_CUDA_CUBLASLT_H
#define DF_JIT_CUDA_CUBLASLT_H

#include "base/diag.h"
#include "base/mem.h"
#include "jit_cuda/kernels/gemm.h"

enum { DF_CUBLASLT_WORK = 32 << 20 }; /* bytes of work space that it may be given */

/* The library alone. path: a file or a folder, NULL: the usual names. NULL: there is none. */
void *df_cublaslt_library(const char *path);
/* path: a file or a folder, in place of DEFT_CUBLASLT; NULL: that, or the usual names. The GPU's
 * context is current. DEFT_E_BACKEND: there is none, or it will not start; d says what was tried.
 */
deft_status df_cublaslt_open(df_diag *d, const df_mem *mem, const char *path, df_cublaslt **out);
void df_cublaslt_close(df_cublaslt **lt);          /* NULL is fine; the library stays loaded */
size_t df_cublaslt_version(const df_cublaslt *lt); /* 130200 is 13.2 */

/* Whether the library takes j by its strides and knows an algorithm; *bytes: of work space, at most
 * DF_CUBLASLT_WORK. fused: with the epilogue of j, which df_cublaslt_fuses. False also when memory
 * is short. */
bool df_cublaslt_takes(df_cublaslt *lt, const df_cuda_gemm_job *j, bool fused, int64_t *bytes);
/* Whether the epilogue kernel of j is one that it has: a FAST bias of f32 along N, or C rounded to
 * the halves that A and B are; one result, whose columns are neighbours. */
bool df_cublaslt_fuses(const df_cuda_gemm_job *j);
/* Of a job that it fuses: the one whose C is what the epilogue stores. *bias: its address, where
 * there is one; *out: of C, not j->dtype where it is rounded. */
df_cuda_gemm_job df_cublaslt_with_epilogue(const df_cuda_gemm_job *j, uint64_t *bias,
                                           deft_dtype *out);
/* Puts the product into a stream. work: p->work_bytes, 256-byte aligned; 0 when there are none.
 * DEFT_E_BACKEND: it failed. */
deft_status df_cublaslt_run(df_cublaslt *lt, df_diag *d, const df_cuda_gemm_job *j,
                            const df_cuda_gemm *p, void *stream, uint64_t work);

#endif
