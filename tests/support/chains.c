/* SPDX-License-Identifier: Apache-2.0 */
#include "chains.h"

#include <math.h>
#include <stdbool.h>

/* As many blocks of `size` columns as there are. The sums of a block stay in registers. */
#define BLOCKS(size, T, fma_of)                                                                    \
    for (; x + (size) <= n; x += (size)) {                                                         \
        T sum[size];                                                                               \
        for (int i = 0; i < (size); i++) sum[i] = c[x + i];                                        \
        for (int64_t p = 0; p < k; p++)                                                            \
            for (int i = 0; i < (size); i++)                                                       \
                sum[i] = fma_of(a[p * a_step], b[p * b_step + x + i], sum[i]);                     \
        for (int i = 0; i < (size); i++) c[x + i] = sum[i];                                        \
    }

#define CHAINS(name, attribute, T, fma_of)                                                         \
    attribute static void name(int64_t n, int64_t k, const T *a, int64_t a_step, const T *b,       \
                               int64_t b_step, T *c)                                               \
    {                                                                                              \
        int64_t x = 0;                                                                             \
        BLOCKS(32, T, fma_of)                                                                      \
        BLOCKS(8, T, fma_of)                                                                       \
        BLOCKS(1, T, fma_of)                                                                       \
    }

CHAINS(plain_f32, , float, fmaf)
CHAINS(plain_f64, , double, fma)

/* Not each processor for x86-64 has the instructions. The functions of libm have the same bits. */
#if defined(__x86_64__)
CHAINS(fused_f32, __attribute__((target("avx2,fma"))), float, fmaf)
CHAINS(fused_f64, __attribute__((target("avx2,fma"))), double, fma)

static bool has_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define fused_f32 plain_f32
#define fused_f64 plain_f64

static bool has_fma(void)
{
    return true;
}
#endif

void chains_f32(int64_t n, int64_t k, const float *a, int64_t a_step, const float *b,
                int64_t b_step, float *c)
{
    (has_fma() ? fused_f32 : plain_f32)(n, k, a, a_step, b, b_step, c);
}

void chains_f64(int64_t n, int64_t k, const double *a, int64_t a_step, const double *b,
                int64_t b_step, double *c)
{
    (has_fma() ? fused_f64 : plain_f64)(n, k, a, a_step, b, b_step, c);
}
