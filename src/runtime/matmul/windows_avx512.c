/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of images, with AVX-512. Masked loads do not touch lanes outside of the mask, so neither
 * padding nor the end of a row needs other code.
 */
#include "runtime/matmul/transpose512.h"
#include "runtime/matmul/windows.h"

enum { CHANNELS = 4 }; /* that are packed side by side: their rows fit L1 whatever their distance */

#define AVX512 __attribute__((target("avx512f,avx2,fma,bmi2")))

/* Every second float from p on. Neighbours of the wanted elements are not touched. */
AVX512 DF_INLINE __m512 second_f32(const float *p, uint32_t m)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const uint32_t wide = _pdep_u32(m, 0x55555555u);
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)wide, p);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(wide >> 16),
                                              (const float *)((uintptr_t)p + 16 * sizeof(float)));
    return _mm512_permutex2var_ps(low, even, high);
}

AVX512 DF_INLINE __m512d second_f64(const double *p, uint32_t m)
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const uint32_t wide = _pdep_u32(m, 0x5555u);
    const __m512d low = _mm512_maskz_loadu_pd((__mmask8)wide, p);
    const __m512d high = _mm512_maskz_loadu_pd((__mmask8)(wide >> 8),
                                               (const double *)((uintptr_t)p + 8 * sizeof(double)));
    return _mm512_permutex2var_pd(low, even, high);
}

/* Lanes that are `step` elements apart. */
AVX512 DF_INLINE __m512 gather_f32(const float *p, int64_t step, uint32_t m)
{
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i by = _mm512_set1_epi64(step * (int64_t)sizeof(float));
    const __m512i at =
        _mm512_add_epi64(_mm512_set1_epi64((int64_t)(uintptr_t)p), _mm512_mullox_epi64(lane, by));
    const __m512i more = _mm512_add_epi64(at, _mm512_slli_epi64(by, 3));
    const __m256 zero = _mm256_setzero_ps();
    const __m256 low = _mm512_mask_i64gather_ps(zero, (__mmask8)m, at, NULL, 1);
    const __m256 high = _mm512_mask_i64gather_ps(zero, (__mmask8)(m >> 8), more, NULL, 1);
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)),
                                               _mm256_castps_pd(high), 1));
}

AVX512 DF_INLINE __m512d gather_f64(const double *p, int64_t step, uint32_t m)
{
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i by = _mm512_set1_epi64(step * (int64_t)sizeof(double));
    const __m512i at =
        _mm512_add_epi64(_mm512_set1_epi64((int64_t)(uintptr_t)p), _mm512_mullox_epi64(lane, by));
    return _mm512_mask_i64gather_pd(_mm512_setzero_pd(), (__mmask8)m, at, NULL, 1);
}

#define T float
#define V __m512
#define W 16
#define NAME(x) x##_f32
#define ZERO _mm512_setzero_ps()
#define SPLAT(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define LOAD(p, m) _mm512_maskz_loadu_ps((__mmask16)(m), (p))
#define LOADU(p) _mm512_loadu_ps(p)
#define OVER(v, p, m) _mm512_mask_loadu_ps((v), (__mmask16)(m), (p))
#define SELECT(v, m, u) _mm512_mask_mov_ps((v), (__mmask16)(m), (u))
#define SECOND(p, m) second_f32((p), (m))
#define GATHER(p, step, m) gather_f32((p), (step), (m))
#define NARROW 8
#define TRANSPOSE(to, row, r, n) df_transpose_8x16((to), (row), (r), (n))
#define STOREU(p, v) _mm512_storeu_ps((p), (v))
#define STORE(p, m, v) _mm512_mask_storeu_ps((p), (__mmask16)(m), (v))
#include "runtime/matmul/windows512_body.h"

#define T double
#define V __m512d
#define W 8
#define NAME(x) x##_f64
#define ZERO _mm512_setzero_pd()
#define SPLAT(x) _mm512_set1_pd(x)
#define FMA(a, b, c) _mm512_fmadd_pd((a), (b), (c))
#define LOAD(p, m) _mm512_maskz_loadu_pd((__mmask8)(m), (p))
#define LOADU(p) _mm512_loadu_pd(p)
#define OVER(v, p, m) _mm512_mask_loadu_pd((v), (__mmask8)(m), (p))
#define SELECT(v, m, u) _mm512_mask_mov_pd((v), (__mmask8)(m), (u))
#define SECOND(p, m) second_f64((p), (m))
#define GATHER(p, step, m) gather_f64((p), (step), (m))
#define NARROW 4
#define TRANSPOSE(to, row, r, n) df_transpose_4x8((to), (row), (r), (n))
#define STOREU(p, v) _mm512_storeu_pd((p), (v))
#define STORE(p, m, v) _mm512_mask_storeu_pd((p), (__mmask8)(m), (v))
#include "runtime/matmul/windows512_body.h"

const df_image_tiles df_image_tiles_avx512_f32 = { copy_f32,     row_f32,   df_image_sums_f32,
                                                   rows_3x3_f32, panel_f32, 16,
                                                   turned_f32,   8 };
const df_image_tiles df_image_tiles_avx512_f64 = { copy_f64,     row_f64,   df_image_sums_f64,
                                                   rows_3x3_f64, panel_f64, 8,
                                                   turned_f64,   4 };
