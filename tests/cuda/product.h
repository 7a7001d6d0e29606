/* SPDX-License-Identifier: Apache-2.0
 *
 * Random matrix products: shapes, strides of every kind, awkward numbers, operands that end at an
 * inaccessible page, those of f32 in halves now and then; and what the CPU makes of them.
 */
#ifndef TEST_CUDA_PRODUCT_H
#define TEST_CUDA_PRODUCT_H

#include "jit_cuda/kernels/gemm.h"
#include "support/random_kernel.h"

typedef enum product_data {
    PRODUCT_TAME, /* small numbers, exact in their sums now and then */
    PRODUCT_WILD, /* NaN, infinities, zeros of either sign, denormals among them */
    PRODUCT_TINY, /* terms that underflow, to either zero */
    PRODUCT_N_DATA
} product_data;

typedef struct product {
    uint64_t seed;
    df_cuda_gemm_job j;
    product_data data;
    walled a, b, c;
    char *first; /* C's memory before; NULL: C has none */
    char *want;  /* and after */
    char *dense; /* the CPU's C, row-major */
    int64_t n_batch;
    char where[128]; /* for people */
} product;

/* most: of an extent. has_c: C has memory of its own. Aborts when memory is short. */
void product_make(product *p, uint64_t seed, deft_dtype t, int64_t most, bool has_c);
/* One of the given shape, A and B lying in memory as `in`. */
void product_of(product *p, uint64_t seed, deft_dtype t, deft_dtype in, int64_t m, int64_t n,
                int64_t k, bool has_c);
uint32_t product_pick(product *p, uint32_t n);
/* Whether C's memory is not as wanted, NaNs being equal; text says where. Sets it back. */
bool product_differs(product *p, char *text, size_t size);
void product_end(product *p);

#endif
