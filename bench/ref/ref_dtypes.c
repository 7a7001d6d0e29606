/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of ref_dtypes.h. Integers wrap, so they are computed without a sign.
 */
#include "ref_dtypes.h"

#include <stdbool.h>
#include <string.h>

enum { LANES = 64, BLOCK = 4096 };

/* a * b + a in the type of u, which is unsigned and at least as wide as T. */
#define MULADD(name, T, U)                                                                         \
    static void muladd_##name(void *out, const void *pa, const void *pb, int64_t n)                \
    {                                                                                              \
        T *restrict to = out;                                                                      \
        const T *restrict a = pa, *restrict b = pb;                                                \
        for (int64_t i = 0; i < n; i++) to[i] = (T)((U)a[i] * (U)b[i] + (U)a[i]);                  \
    }
MULADD(i8, int8_t, uint8_t)
MULADD(u8, uint8_t, uint8_t)
MULADD(i16, int16_t, uint32_t)
MULADD(u16, uint16_t, uint32_t)
MULADD(i32, int32_t, uint32_t)
MULADD(u32, uint32_t, uint32_t)
MULADD(i64, int64_t, uint64_t)
MULADD(u64, uint64_t, uint64_t)
MULADD(f32, float, float)
MULADD(f64, double, double)

#define SUM_INT(name, T)                                                                           \
    static void sum_##name(void *out, const void *in, int64_t n)                                   \
    {                                                                                              \
        const T *restrict a = in;                                                                  \
        uint64_t sum = 0;                                                                          \
        for (int64_t i = 0; i < n; i++) sum += (uint64_t)a[i];                                     \
        *(uint64_t *)out = sum;                                                                    \
    }
SUM_INT(i8, int8_t)
SUM_INT(u8, uint8_t)
SUM_INT(i16, int16_t)
SUM_INT(u16, uint16_t)
SUM_INT(i32, int32_t)
SUM_INT(u32, uint32_t)
SUM_INT(i64, int64_t)
SUM_INT(u64, uint64_t)

/* Blocks of 4096, 64 accumulators each, and a balanced tree: the order of strict sums. */
#define SUM_FLOAT(name, T)                                                                         \
    static void sum_##name(void *out, const void *in, int64_t n)                                   \
    {                                                                                              \
        const T *restrict a = in;                                                                  \
        T stack[64];                                                                               \
        uint32_t depth = 0;                                                                        \
        for (int64_t b = 0; b * BLOCK < n; b++) {                                                  \
            T acc[LANES];                                                                          \
            const int64_t from = b * BLOCK, end = from + BLOCK < n ? from + BLOCK : n;             \
            for (int j = 0; j < LANES; j++) acc[j] = (T)-0.0;                                      \
            int64_t i = from;                                                                      \
            for (; i + LANES <= end; i += LANES)                                                   \
                for (int j = 0; j < LANES; j++) acc[j] += a[i + j];                                \
            for (int j = 0; i + j < end; j++) acc[j] += a[i + j];                                  \
            for (int h = LANES / 2; h > 0; h /= 2)                                                 \
                for (int j = 0; j < h; j++) acc[j] += acc[j + h];                                  \
            stack[depth++] = acc[0];                                                               \
            for (int64_t k = b + 1; k % 2 == 0; k /= 2, depth--)                                   \
                stack[depth - 2] += stack[depth - 1];                                              \
        }                                                                                          \
        for (; depth > 1; depth--) stack[depth - 2] += stack[depth - 1];                           \
        *(T *)out = depth ? stack[0] : 0;                                                          \
    }
SUM_FLOAT(f32, float)
SUM_FLOAT(f64, double)

/* NaN propagates. The lanes let compilers vectorize floats. */
#define MAX(name, T, S)                                                                            \
    static void max_##name(void *out, const void *in, int64_t n)                                   \
    {                                                                                              \
        const T *restrict a = in;                                                                  \
        T acc[LANES];                                                                              \
        int64_t i = 0;                                                                             \
        for (int j = 0; j < LANES; j++) acc[j] = a[0];                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int j = 0; j < LANES; j++)                                                        \
                acc[j] = ((acc[j] > a[i + j]) | (acc[j] != acc[j])) ? acc[j] : a[i + j];           \
        for (int j = 0; i + j < n; j++)                                                            \
            acc[j] = ((acc[j] > a[i + j]) | (acc[j] != acc[j])) ? acc[j] : a[i + j];               \
        for (int j = 1; j < LANES; j++)                                                            \
            acc[0] = ((acc[0] > acc[j]) | (acc[0] != acc[0])) ? acc[0] : acc[j];                   \
        *(T *)out = acc[0];                                                                        \
    }                                                                                              \
    static void widen_##name(float *restrict out, const void *in, int64_t n)                       \
    {                                                                                              \
        const T *restrict a = in;                                                                  \
        for (int64_t i = 0; i < n; i++) out[i] = (float)a[i];                                      \
    }
REF_DTYPES(MAX)

/* low is the least value, high the first above the range; both are exact. */
#define NARROW(name, T, low, high, least, most)                                                    \
    static void narrow_##name(void *out, const float *restrict a, int64_t n)                       \
    {                                                                                              \
        T *restrict to = out;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = a[i];                                                                  \
            const bool fits = (x >= (low)) & (x < (high));                                         \
            const T v = (T)(fits ? x : 0);                                                         \
            to[i] = x >= (high) ? (most) : x < (low) ? (least) : v;                                \
        }                                                                                          \
    }
NARROW(i8, int8_t, -0x1p7f, 0x1p7f, INT8_MIN, INT8_MAX)
NARROW(u8, uint8_t, 0, 0x1p8f, 0, UINT8_MAX)
NARROW(i16, int16_t, -0x1p15f, 0x1p15f, INT16_MIN, INT16_MAX)
NARROW(u16, uint16_t, 0, 0x1p16f, 0, UINT16_MAX)
NARROW(i32, int32_t, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX)
NARROW(u32, uint32_t, 0, 0x1p32f, 0, UINT32_MAX)
NARROW(i64, int64_t, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX)
NARROW(u64, uint64_t, 0, 0x1p64f, 0, UINT64_MAX)

static void narrow_f32(void *out, const float *restrict a, int64_t n)
{
    float *restrict to = out;
    for (int64_t i = 0; i < n; i++) to[i] = a[i];
}

static void narrow_f64(void *out, const float *restrict a, int64_t n)
{
    double *restrict to = out;
    for (int64_t i = 0; i < n; i++) to[i] = (double)a[i];
}

/* The loops in the order in which rows of b are read once for each row of a; compilers vectorize
 * the innermost one. U is unsigned and at least as wide as T. */
#define PRODUCT(name, T, U)                                                                        \
    static void product_##name(void *out, const void *pa, const void *pb, int64_t m, int64_t k,    \
                               int64_t n)                                                          \
    {                                                                                              \
        T *restrict to = out;                                                                      \
        const T *restrict a = pa, *restrict b = pb;                                                \
        memset(to, 0, (size_t)(m * n) * sizeof *to);                                               \
        for (int64_t i = 0; i < m; i++)                                                            \
            for (int64_t j = 0; j < k; j++) {                                                      \
                const U x = (U)a[i * k + j];                                                       \
                for (int64_t l = 0; l < n; l++)                                                    \
                    to[i * n + l] = (T)((U)to[i * n + l] + x * (U)b[j * n + l]);                   \
            }                                                                                      \
    }
PRODUCT(i8, int8_t, uint8_t)
PRODUCT(u8, uint8_t, uint8_t)
PRODUCT(i16, int16_t, uint32_t)
PRODUCT(u16, uint16_t, uint32_t)
PRODUCT(i32, int32_t, uint32_t)
PRODUCT(u32, uint32_t, uint32_t)
PRODUCT(i64, int64_t, uint64_t)
PRODUCT(u64, uint64_t, uint64_t)
#define product_f32 NULL
#define product_f64 NULL

/* ---- complex numbers ---- */

#define COMPLEX(name, T, O)                                                                        \
    static void muladd_##name(void *out, const void *pa, const void *pb, int64_t n)                \
    {                                                                                              \
        T *restrict to = out;                                                                      \
        const T *restrict a = pa, *restrict b = pb;                                                \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T re = a[2 * i], im = a[2 * i + 1], x = b[2 * i], y = b[2 * i + 1];              \
            to[2 * i] = re * x - im * y + re;                                                      \
            to[2 * i + 1] = re * y + im * x + im;                                                  \
        }                                                                                          \
    }                                                                                              \
    /* each part by itself has the order of SUM_FLOAT */                                           \
    static void sum_##name(void *out, const void *in, int64_t n)                                   \
    {                                                                                              \
        const T *restrict a = in;                                                                  \
        T stack[64][2], *const to = out;                                                           \
        uint32_t depth = 0;                                                                        \
        for (int64_t b = 0; b * BLOCK < n; b++) {                                                  \
            T acc[2 * LANES];                                                                      \
            const int64_t from = b * BLOCK, end = from + BLOCK < n ? from + BLOCK : n;             \
            for (int j = 0; j < 2 * LANES; j++) acc[j] = (T)-0.0;                                  \
            int64_t i = from;                                                                      \
            for (; i + LANES <= end; i += LANES)                                                   \
                for (int j = 0; j < 2 * LANES; j++) acc[j] += a[2 * i + j];                        \
            for (int j = 0; j < 2 * (int)(end - i); j++) acc[j] += a[2 * i + j];                   \
            for (int h = LANES; h > 1; h /= 2)                                                     \
                for (int j = 0; j < h; j++) acc[j] += acc[j + h];                                  \
            stack[depth][0] = acc[0], stack[depth++][1] = acc[1];                                  \
            for (int64_t k = b + 1; k % 2 == 0; k /= 2, depth--)                                   \
                for (int j = 0; j < 2; j++) stack[depth - 2][j] += stack[depth - 1][j];            \
        }                                                                                          \
        for (; depth > 1; depth--)                                                                 \
            for (int j = 0; j < 2; j++) stack[depth - 2][j] += stack[depth - 1][j];                \
        for (int j = 0; j < 2; j++) to[j] = depth ? stack[0][j] : 0;                               \
    }                                                                                              \
    static void cast_##name(void *out, const void *in, int64_t n)                                  \
    {                                                                                              \
        O *restrict to = out;                                                                      \
        const T *restrict a = in;                                                                  \
        for (int64_t i = 0; i < 2 * n; i++) to[i] = (O)a[i];                                       \
    }
COMPLEX(c64, float, double)
COMPLEX(c128, double, float)

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
const ref_complex JOIN(REF_TABLE, _complex)[2] = { { muladd_c64, sum_c64, cast_c64 },
                                                   { muladd_c128, sum_c128, cast_c128 } };

#define ROW(name, T, S)                                                                            \
    { muladd_##name, sum_##name, max_##name, widen_##name, narrow_##name, product_##name },
const ref_dtype REF_TABLE[REF_N_DTYPES] = { REF_DTYPES(ROW) };
