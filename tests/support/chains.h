/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains of fused multiply-adds, which define the bits of a product. A test of products spends most
 * of its time in its reference. So chains.c is optimized and has no sanitizer in any build.
 */
#ifndef TEST_CHAINS_H
#define TEST_CHAINS_H

#include <stdint.h>

/* A row of a product: c[x] = fma(a[p * a_step], b[p * b_step + x], c[x]) for each x below n, with p
 * ascending from 0 to k - 1. */
void chains_f32(int64_t n, int64_t k, const float *a, int64_t a_step, const float *b,
                int64_t b_step, float *c);
void chains_f64(int64_t n, int64_t k, const double *a, int64_t a_step, const double *b,
                int64_t b_step, double *c);

#endif
