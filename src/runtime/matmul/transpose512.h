/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposition of small blocks in registers, with AVX-512. First squares are transposed within
 * 128-bit lanes. Then register q of each half of the rows holds every fourth (f64: every second)
 * column from q on, and the registers q of both halves are joined.
 */
#ifndef DF_RUNTIME_TRANSPOSE512_H
#define DF_RUNTIME_TRANSPOSE512_H

#include "base/compiler.h"

#include <immintrin.h>

#define DF_AVX512 __attribute__((target("avx512f,avx2")))
/* Keeps a vector in a register. Otherwise gcc loads it again for each use of its value. */
#define DF_OPAQUE_VECTOR(x) __asm__("" : "+v"(x))

/* y[p] = element p of 16 rows, which are `row` elements apart. Each row is one load, so that its
 * cache line is read once. Half of the shuffles stay within 128-bit lanes, and Zen 5 does four of
 * these per cycle, but two of the others. */
DF_AVX512 DF_INLINE void df_square_f32(__m512 y[16], const float *from, int64_t row)
{
    __m512 t[16], u[16];
#pragma GCC unroll 4
    for (int h = 0; h < 16; h += 4) {
        const __m512 r0 = _mm512_loadu_ps(from), r1 = _mm512_loadu_ps(from + row);
        const __m512 r2 = _mm512_loadu_ps(from + 2 * row), r3 = _mm512_loadu_ps(from + 3 * row);
        const __m512 s0 = _mm512_unpacklo_ps(r0, r1), s1 = _mm512_unpackhi_ps(r0, r1);
        const __m512 s2 = _mm512_unpacklo_ps(r2, r3), s3 = _mm512_unpackhi_ps(r2, r3);
        t[h] = _mm512_shuffle_ps(s0, s2, 0x44);
        t[h + 1] = _mm512_shuffle_ps(s0, s2, 0xee);
        t[h + 2] = _mm512_shuffle_ps(s1, s3, 0x44);
        t[h + 3] = _mm512_shuffle_ps(s1, s3, 0xee);
        from += 4 * row;
        DF_OPAQUE(from);
    }
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
        u[p] = _mm512_shuffle_f32x4(t[p], t[p + 4], 0x44);
        u[p + 4] = _mm512_shuffle_f32x4(t[p + 8], t[p + 12], 0x44);
        u[p + 8] = _mm512_shuffle_f32x4(t[p], t[p + 4], 0xee);
        u[p + 12] = _mm512_shuffle_f32x4(t[p + 8], t[p + 12], 0xee);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 16; h += 8)
#pragma GCC unroll 4
        for (int p = h; p < h + 4; p++) {
            y[p] = _mm512_shuffle_f32x4(u[p], u[p + 4], 0x88);
            y[p + 4] = _mm512_shuffle_f32x4(u[p], u[p + 4], 0xdd);
        }
}

/* y[p] = element p of 8 rows, which are `row` elements apart. */
DF_AVX512 DF_INLINE void df_square_f64(__m512d y[8], const double *from, int64_t row)
{
    __m512d t[8], u[8];
#pragma GCC unroll 4
    for (int h = 0; h < 8; h += 2) {
        const __m512d r0 = _mm512_loadu_pd(from), r1 = _mm512_loadu_pd(from + row);
        t[h] = _mm512_unpacklo_pd(r0, r1);
        t[h + 1] = _mm512_unpackhi_pd(r0, r1);
        from += 2 * row;
        DF_OPAQUE(from);
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; p++) {
        u[p] = _mm512_shuffle_f64x2(t[p], t[p + 2], 0x44);
        u[p + 2] = _mm512_shuffle_f64x2(t[p + 4], t[p + 6], 0x44);
        u[p + 4] = _mm512_shuffle_f64x2(t[p], t[p + 2], 0xee);
        u[p + 6] = _mm512_shuffle_f64x2(t[p + 4], t[p + 6], 0xee);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4)
#pragma GCC unroll 2
        for (int p = h; p < h + 2; p++) {
            y[p] = _mm512_shuffle_f64x2(u[p], u[p + 2], 0x88);
            y[p + 2] = _mm512_shuffle_f64x2(u[p], u[p + 2], 0xdd);
        }
}

/* Transposes the 4 x 4 squares within the 128-bit lanes of 4 rows. These are `row` elements apart.
 */
DF_AVX512 DF_INLINE void df_square_rows_f32(__m512 t[4], const float *from, int64_t row)
{
    __m512 r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_loadu_ps(from + i * row);
        DF_OPAQUE_VECTOR(r[i]);
    }
    const __m512 s0 = _mm512_unpacklo_ps(r[0], r[1]), s1 = _mm512_unpackhi_ps(r[0], r[1]);
    const __m512 s2 = _mm512_unpacklo_ps(r[2], r[3]), s3 = _mm512_unpackhi_ps(r[2], r[3]);
    t[0] = _mm512_shuffle_ps(s0, s2, 0x44);
    t[1] = _mm512_shuffle_ps(s0, s2, 0xee);
    t[2] = _mm512_shuffle_ps(s1, s3, 0x44);
    t[3] = _mm512_shuffle_ps(s1, s3, 0xee);
}

/* Stores elements p, p + 4, p + 8 and p + 12 of 16 rows, of which t has four results of
 * df_square_rows_f32. to[e][x] becomes element e of row x. */
DF_AVX512 DF_INLINE void df_square_steps_f32(float *to, const __m512 t[16], int p)
{
    const __m512 u0 = _mm512_shuffle_f32x4(t[p], t[p + 4], 0x44);
    const __m512 u1 = _mm512_shuffle_f32x4(t[p], t[p + 4], 0xee);
    const __m512 u2 = _mm512_shuffle_f32x4(t[p + 8], t[p + 12], 0x44);
    const __m512 u3 = _mm512_shuffle_f32x4(t[p + 8], t[p + 12], 0xee);
    float *const at = to + p * 16;
    _mm512_store_ps(at, _mm512_shuffle_f32x4(u0, u2, 0x88));
    _mm512_store_ps(at + 64, _mm512_shuffle_f32x4(u0, u2, 0xdd));
    _mm512_store_ps(at + 128, _mm512_shuffle_f32x4(u1, u3, 0x88));
    _mm512_store_ps(at + 192, _mm512_shuffle_f32x4(u1, u3, 0xdd));
}

/* The same for 8 rows, of which t has two results of df_square_rows_f32. So fewer registers are in
 * use at once. */
DF_AVX512 DF_INLINE void df_half_square_steps_f32(float *to, const __m512 t[8], int p)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512d a = _mm512_castps_pd(_mm512_permutex2var_ps(t[p], low, t[p + 4]));
    const __m512d b = _mm512_castps_pd(_mm512_permutex2var_ps(t[p], high, t[p + 4]));
    double *const at = (double *)(void *)(to + p * 16);
    _mm256_store_pd(at, _mm512_castpd512_pd256(a));
    _mm256_store_pd(at + 32, _mm512_extractf64x4_pd(a, 1));
    _mm256_store_pd(at + 64, _mm512_castpd512_pd256(b));
    _mm256_store_pd(at + 96, _mm512_extractf64x4_pd(b, 1));
}

/* Transposes the 2 x 2 squares within the 128-bit lanes of 2 rows. These are `row` elements apart.
 */
DF_AVX512 DF_INLINE void df_square_rows_f64(__m512d t[2], const double *from, int64_t row)
{
    __m512d r0 = _mm512_loadu_pd(from), r1 = _mm512_loadu_pd(from + row);
    DF_OPAQUE_VECTOR(r0);
    DF_OPAQUE_VECTOR(r1);
    t[0] = _mm512_unpacklo_pd(r0, r1);
    t[1] = _mm512_unpackhi_pd(r0, r1);
}

/* Stores elements p, p + 2, p + 4 and p + 6 of 8 rows, of which t has four results of
 * df_square_rows_f64. to[e][x] becomes element e of row x. */
DF_AVX512 DF_INLINE void df_square_steps_f64(double *to, const __m512d t[8], int p)
{
    const __m512d u0 = _mm512_shuffle_f64x2(t[p], t[p + 2], 0x44);
    const __m512d u1 = _mm512_shuffle_f64x2(t[p], t[p + 2], 0xee);
    const __m512d u2 = _mm512_shuffle_f64x2(t[p + 4], t[p + 6], 0x44);
    const __m512d u3 = _mm512_shuffle_f64x2(t[p + 4], t[p + 6], 0xee);
    double *const at = to + p * 8;
    _mm512_store_pd(at, _mm512_shuffle_f64x2(u0, u2, 0x88));
    _mm512_store_pd(at + 16, _mm512_shuffle_f64x2(u0, u2, 0xdd));
    _mm512_store_pd(at + 32, _mm512_shuffle_f64x2(u1, u3, 0x88));
    _mm512_store_pd(at + 48, _mm512_shuffle_f64x2(u1, u3, 0xdd));
}

/* Transposes the 4 x 4 squares within the 128-bit lanes of 8 rows. */
DF_AVX512 DF_INLINE void df_transpose_squares(__m512 t[8], const __m512 r[8])
{
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
        const __m512 s0 = _mm512_unpacklo_ps(r[h], r[h + 1]);
        const __m512 s1 = _mm512_unpackhi_ps(r[h], r[h + 1]);
        const __m512 s2 = _mm512_unpacklo_ps(r[h + 2], r[h + 3]);
        const __m512 s3 = _mm512_unpackhi_ps(r[h + 2], r[h + 3]);
        t[h] = _mm512_shuffle_ps(s0, s2, 0x44);
        t[h + 1] = _mm512_shuffle_ps(s0, s2, 0xee);
        t[h + 2] = _mm512_shuffle_ps(s1, s3, 0x44);
        t[h + 3] = _mm512_shuffle_ps(s1, s3, 0xee);
    }
}

/* Stores the first n columns of 8 rows of 16 floats as n rows of 8. */
DF_AVX512 DF_INLINE void df_transpose_8x16(float *to, int64_t to_row, const __m512 r[8], int64_t n)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 t[8];
    df_transpose_squares(t, r);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __m512d a = _mm512_castps_pd(_mm512_permutex2var_ps(t[q], low, t[q + 4]));
        const __m512d b = _mm512_castps_pd(_mm512_permutex2var_ps(t[q], high, t[q + 4]));
        float *const at = to + q * to_row;
        if (q < n) _mm256_storeu_pd((double *)at, _mm512_castpd512_pd256(a));
        if (q + 4 < n) _mm256_storeu_pd((double *)(at + 4 * to_row), _mm512_extractf64x4_pd(a, 1));
        if (q + 8 < n) _mm256_storeu_pd((double *)(at + 8 * to_row), _mm512_castpd512_pd256(b));
        if (q + 12 < n)
            _mm256_storeu_pd((double *)(at + 12 * to_row), _mm512_extractf64x4_pd(b, 1));
    }
}

/* Stores the first n columns of 4 rows of 8 doubles as n rows of 4. */
DF_AVX512 DF_INLINE void df_transpose_4x8(double *to, int64_t to_row, const __m512d r[4], int64_t n)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
    const __m512d t[4] = { _mm512_unpacklo_pd(r[0], r[1]), _mm512_unpackhi_pd(r[0], r[1]),
                           _mm512_unpacklo_pd(r[2], r[3]), _mm512_unpackhi_pd(r[2], r[3]) };
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        const __m512d a = _mm512_permutex2var_pd(t[q], low, t[q + 2]);
        const __m512d b = _mm512_permutex2var_pd(t[q], high, t[q + 2]);
        double *const at = to + q * to_row;
        if (q < n) _mm256_storeu_pd(at, _mm512_castpd512_pd256(a));
        if (q + 2 < n) _mm256_storeu_pd(at + 2 * to_row, _mm512_extractf64x4_pd(a, 1));
        if (q + 4 < n) _mm256_storeu_pd(at + 4 * to_row, _mm512_castpd512_pd256(b));
        if (q + 6 < n) _mm256_storeu_pd(at + 6 * to_row, _mm512_extractf64x4_pd(b, 1));
    }
}

#endif
