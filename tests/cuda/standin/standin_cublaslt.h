/* SPDX-License-Identifier: Apache-2.0
 *
 * libcublasLt-standin.so: what tests find in it by dlsym, and what it has of cuBLASLt.
 *
 * Products and fused epilogues, by three loops with a chain of sums, put into the streams of
 * libcuda-standin; without that library, in memory of the host and done in the call. Misuse is 7,
 * CUBLAS_STATUS_INVALID_VALUE; what it does not do is 15, NOT_SUPPORTED. It knows f32, f64, f16 and
 * bf16; computes in f32 (TF32 as f32) or f64; default, RELU, GELU, BIAS and their unions; column
 * and row order; strided batches; alpha and beta on the host. An algorithm wants 1 KiB of work
 * space if the preference allows that, and writes there. What comes out in halves is made of two
 * sums along k that are halves before they are added up, unless the preference excludes that.
 */
#ifndef TEST_CUDA_STANDIN_CUBLASLT_H
#define TEST_CUDA_STANDIN_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#define LT_API __attribute__((visibility("default")))

LT_API long standin_cublaslt_count(void); /* products asked for so far, refused ones too */
LT_API long standin_cublaslt_asked(void); /* heuristics, likewise */
/* The n-th product from now, n from 1, gives code. n 0: none. */
LT_API void standin_cublaslt_fail(long n, int code);

typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;

typedef struct lt_heuristic {
    lt_algo algo;
    size_t work_bytes;
    int status;
    float waves;
    int reserved[4];
} lt_heuristic;

struct lt_handle;
struct lt_desc;
struct lt_layout;
struct lt_preference;

LT_API size_t cublasLtGetVersion(void);
LT_API const char *cublasLtGetStatusName(int status);
LT_API const char *cublasLtGetStatusString(int status);
LT_API int cublasLtCreate(struct lt_handle **out);
LT_API int cublasLtDestroy(struct lt_handle *h);
LT_API int cublasLtMatmulDescCreate(struct lt_desc **out, int compute, int scale);
LT_API int cublasLtMatmulDescDestroy(struct lt_desc *d);
LT_API int cublasLtMatmulDescSetAttribute(struct lt_desc *d, int what, const void *from, size_t n);
LT_API int cublasLtMatrixLayoutCreate(struct lt_layout **out, int type, uint64_t rows,
                                      uint64_t cols, int64_t ld);
LT_API int cublasLtMatrixLayoutDestroy(struct lt_layout *l);
LT_API int cublasLtMatrixLayoutSetAttribute(struct lt_layout *l, int what, const void *from,
                                            size_t n);
LT_API int cublasLtMatmulPreferenceCreate(struct lt_preference **out);
LT_API int cublasLtMatmulPreferenceDestroy(struct lt_preference *p);
LT_API int cublasLtMatmulPreferenceSetAttribute(struct lt_preference *p, int what, const void *from,
                                                size_t n);
LT_API int cublasLtMatmulAlgoGetHeuristic(struct lt_handle *h, struct lt_desc *d,
                                          struct lt_layout *a, struct lt_layout *b,
                                          struct lt_layout *c, struct lt_layout *to,
                                          struct lt_preference *p, int most, lt_heuristic *out,
                                          int *n);
LT_API int cublasLtMatmul(struct lt_handle *h, struct lt_desc *d, const void *alpha, const void *a,
                          struct lt_layout *a_is, const void *b, struct lt_layout *b_is,
                          const void *beta, const void *c, struct lt_layout *c_is, void *to,
                          struct lt_layout *to_is, const lt_algo *algo, void *work,
                          size_t work_bytes, void *stream);

#endif
