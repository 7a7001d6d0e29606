/* SPDX-License-Identifier: Apache-2.0
 *
 * One matrix product, computed by our code or by a library: the sides that bench_matmul.c compares.
 *
 * The libraries run at their best: one thread of theirs per part of C over our pool, which no
 * library's own threads beat here, and OpenBLAS's own threads where that build is installed. A
 * product with one row or one column goes to OpenBLAS's matrix-vector function, when that is
 * faster.
 */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include "runtime/cpu.h"
#include "runtime/matmul.h"

typedef enum product_side {
    PRODUCT_STRICT, /* ours */
    PRODUCT_FAST,   /* ours */
    PRODUCT_OPENBLAS,
    PRODUCT_OPENBLAS_VECTOR,
    PRODUCT_ONEDNN,
    PRODUCT_OPENBLAS_THREADS,
    PRODUCT_READ, /* reads the larger operand and computes nothing */
    PRODUCT_N_SIDES
} product_side;

typedef void (*product_sgemm)(int, int, int, int, int, int, float, const float *, int,
                              const float *, int, float, float *, int);
typedef void (*product_sgemv)(int, int, int, int, float, const float *, int, const float *, int,
                              float, float *, int);
typedef int (*product_dnnl)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                            const float *, int64_t, float, float *, int64_t);

/* C [m x n] = A [m x k] B [k x n], f32 and row-major. A transposed operand lies in memory as
 * [k][m] or [n][k]. */
typedef struct product {
    int64_t m, n, k;
    uint32_t threads; /* 1 or 2 */
    bool a_transposed, b_transposed;
    float *a, *b, *c; /* each has product_create's elements */
    void *work;
    size_t work_size;
    df_pool *pool[3]; /* by number of threads */
    df_blas *blas;
    bool has_tiles; /* for fast mode */
    df_compiler compiler;
    void *plugin;
    df_gemm_kernel kernel_value;
    const df_gemm_kernel *kernel; /* NULL: no compiler */
    product_sgemm sgemm, sgemm_threads;
    product_sgemv sgemv;
    void (*set_threads)(int);
    product_dnnl dnnl;
    void (*omp_threads)(int);
    product_side side;
} product;

/* Opens the libraries and allocates operands of n_elements elements. Ends the process when memory
 * runs out. The product keeps pointers into *p: it must not move. */
void product_create(product *p, int64_t n_elements);
void product_destroy(product *p);

bool product_has(const product *p, product_side side);
const char *product_side_name(product_side side);

/* Computes the product by p->side. `user` is the product. */
void product_run(void *user);

/* Returns the bytes of the larger of A and B. */
int64_t product_weight_size(const product *p);

#endif
