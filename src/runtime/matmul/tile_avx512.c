/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles with AVX-512: 8 x 48 floats or 8 x 24 doubles. 24 of the 32 registers are accumulators.
 * Masked loads do not touch lanes outside the mask, so B and C may end anywhere.
 */
#include "runtime/matmul/tile.h"

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))

/* Transposes 8 rows of 16 floats to 16 rows of 8. First 4 x 4 squares are transposed within 128-bit
 * lanes. Register q of each half of the rows then holds columns q, q + 4, q + 8 and q + 12. Then
 * the registers q of both halves are joined. */
AVX512 DF_INLINE void transpose_f32(float *to, int64_t to_row, const float *from, int64_t from_row)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 t[8];
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
        const __m512 r0 = _mm512_loadu_ps(from + h * from_row);
        const __m512 r1 = _mm512_loadu_ps(from + (h + 1) * from_row);
        const __m512 r2 = _mm512_loadu_ps(from + (h + 2) * from_row);
        const __m512 r3 = _mm512_loadu_ps(from + (h + 3) * from_row);
        const __m512 s0 = _mm512_unpacklo_ps(r0, r1), s1 = _mm512_unpackhi_ps(r0, r1);
        const __m512 s2 = _mm512_unpacklo_ps(r2, r3), s3 = _mm512_unpackhi_ps(r2, r3);
        t[h] = _mm512_shuffle_ps(s0, s2, 0x44);
        t[h + 1] = _mm512_shuffle_ps(s0, s2, 0xee);
        t[h + 2] = _mm512_shuffle_ps(s1, s3, 0x44);
        t[h + 3] = _mm512_shuffle_ps(s1, s3, 0xee);
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __m512d a = _mm512_castps_pd(_mm512_permutex2var_ps(t[q], low, t[q + 4]));
        const __m512d b = _mm512_castps_pd(_mm512_permutex2var_ps(t[q], high, t[q + 4]));
        float *const at = to + q * to_row;
        _mm256_storeu_pd((double *)at, _mm512_castpd512_pd256(a));
        _mm256_storeu_pd((double *)(at + 4 * to_row), _mm512_extractf64x4_pd(a, 1));
        _mm256_storeu_pd((double *)(at + 8 * to_row), _mm512_castpd512_pd256(b));
        _mm256_storeu_pd((double *)(at + 12 * to_row), _mm512_extractf64x4_pd(b, 1));
    }
}

/* Transposes 4 rows of 8 doubles to 8 rows of 4, in the same way. */
AVX512 DF_INLINE void transpose_f64(double *to, int64_t to_row, const double *from,
                                    int64_t from_row)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
    const __m512d r0 = _mm512_loadu_pd(from), r1 = _mm512_loadu_pd(from + from_row);
    const __m512d r2 = _mm512_loadu_pd(from + 2 * from_row);
    const __m512d r3 = _mm512_loadu_pd(from + 3 * from_row);
    const __m512d t[4] = { _mm512_unpacklo_pd(r0, r1), _mm512_unpackhi_pd(r0, r1),
                           _mm512_unpacklo_pd(r2, r3), _mm512_unpackhi_pd(r2, r3) };
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        const __m512d a = _mm512_permutex2var_pd(t[q], low, t[q + 2]);
        const __m512d b = _mm512_permutex2var_pd(t[q], high, t[q + 2]);
        double *const at = to + q * to_row;
        _mm256_storeu_pd(at, _mm512_castpd512_pd256(a));
        _mm256_storeu_pd(at + 2 * to_row, _mm512_extractf64x4_pd(a, 1));
        _mm256_storeu_pd(at + 4 * to_row, _mm512_castpd512_pd256(b));
        _mm256_storeu_pd(at + 6 * to_row, _mm512_extractf64x4_pd(b, 1));
    }
}

#define T float
#define V __m512
#define W 16
#define MASK __mmask16
#define MASK_OF(n) ((__mmask16)((1u << (n)) - 1))
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps((p), (v))
#define LOADM(p, m) _mm512_maskz_loadu_ps((m), (p))
#define STOREM(p, m, v) _mm512_mask_storeu_ps((p), (m), (v))
#define SPLAT(p) _mm512_set1_ps(*(p))
#define ZERO _mm512_setzero_ps()
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define MR 8
#define NV 3
#define SQ 8
#define LONG 16
#define TRANSPOSE(to, to_row, from, from_row) transpose_f32((to), (to_row), (from), (from_row))
#define TARGET AVX512
#define NAME(x) x##_f32
#include "runtime/matmul/tile_body.h"

#define T double
#define V __m512d
#define W 8
#define MASK __mmask8
#define MASK_OF(n) ((__mmask8)((1u << (n)) - 1))
#define LOAD(p) _mm512_loadu_pd(p)
#define STORE(p, v) _mm512_storeu_pd((p), (v))
#define LOADM(p, m) _mm512_maskz_loadu_pd((m), (p))
#define STOREM(p, m, v) _mm512_mask_storeu_pd((p), (m), (v))
#define SPLAT(p) _mm512_set1_pd(*(p))
#define ZERO _mm512_setzero_pd()
#define FMA(a, b, c) _mm512_fmadd_pd((a), (b), (c))
#define MR 8
#define NV 3
#define SQ 4
#define LONG 8
#define TRANSPOSE(to, to_row, from, from_row) transpose_f64((to), (to_row), (from), (from_row))
#define TARGET AVX512
#define NAME(x) x##_f64
#include "runtime/matmul/tile_body.h"

const df_tiles df_tiles_avx512_f32 = {
    8, 48,        block_f32, pack_f32, df_tile_dots512_f32, 8, df_tile_split512_f32,
    4, sweep_f32, panels_f32
};
const df_tiles df_tiles_avx512_f64 = {
    8, 24,        block_f64, pack_f64, df_tile_dots512_f64, 8, df_tile_split512_f64,
    4, sweep_f64, panels_f64
};
