/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a transposed B in fast mode, with AVX2 and with AVX-512.
 */
#include "runtime/matmul/tile.h"

#include <immintrin.h>
#include <stdalign.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))

/* The eight words that begin at index 8 - n are a mask of n words. */
static const int32_t first_lanes[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };

/* ---- sums of all lanes ---- */

/* Returns the sums of the lanes of four vectors. */
AVX2 DF_INLINE __m128 sums_f32(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

AVX2 DF_INLINE __m256d sums_f64(__m256d a, __m256d b, __m256d c, __m256d d)
{
    const __m256d s = _mm256_hadd_pd(a, b), t = _mm256_hadd_pd(c, d);
    return _mm256_add_pd(_mm256_permute2f128_pd(s, t, 0x20), _mm256_permute2f128_pd(s, t, 0x31));
}

AVX2 DF_INLINE float sum_f32(__m256 v)
{
    return _mm_cvtss_f32(sums_f32(v, v, v, v));
}

AVX2 DF_INLINE double sum_f64(__m256d v)
{
    return _mm256_cvtsd_f64(sums_f64(v, v, v, v));
}

AVX512 DF_INLINE __m256 fold_f32(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

AVX512 DF_INLINE __m256d fold_f64(__m512d v)
{
    return _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
}

/* The lane i of the result has the sum of the lanes of v[i]. */
AVX2 DF_INLINE __m256 lane_sums_avx2_f32(const __m256 v[8])
{
    return _mm256_set_m128(sums_f32(v[4], v[5], v[6], v[7]), sums_f32(v[0], v[1], v[2], v[3]));
}

/* Adds the pairs of 128-bit lanes of two vectors. Those of `a` become the lower half. */
AVX512 DF_INLINE __m512d pair_sums_f64(__m512d a, __m512d b)
{
    return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
}

AVX512 DF_INLINE __m512 pair_sums_f32(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* As lane_sums_avx2_f32. All sums together take as many shuffles as a transposition of half of the
 * vectors. */
AVX512 DF_INLINE __m512 lane_sums_avx512_f32(const __m512 v[16])
{
    __m512 s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 *const r = v + 4 * i;
        const __m512d a = _mm512_castps_pd(
            _mm512_add_ps(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1])));
        const __m512d b = _mm512_castps_pd(
            _mm512_add_ps(_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3])));
        s[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    return pair_sums_f32(pair_sums_f32(s[0], s[1]), pair_sums_f32(s[2], s[3]));
}

AVX512 DF_INLINE __m512d lane_sums_avx512_f64(const __m512d v[8])
{
    __m512d s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        s[i] = _mm512_add_pd(_mm512_unpacklo_pd(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_pd(v[2 * i], v[2 * i + 1]));
    return pair_sums_f64(pair_sums_f64(s[0], s[1]), pair_sums_f64(s[2], s[3]));
}

/* ---- AVX2 ---- */

#define T float
#define V __m256
#define W 8
#define MASK __m256i
#define MASK_OF(n) _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + 8 - (n)))
#define LOAD(p) _mm256_loadu_ps(p)
#define LOADM(p, m) _mm256_maskload_ps((p), (m))
#define ZERO _mm256_setzero_ps()
#define FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define ADD(a, b) _mm256_add_ps((a), (b))
#define SUM(v) sum_f32(v)
#define STORE(p, v) _mm256_storeu_ps((p), (v))
#define LANE_SUMS(v) lane_sums_avx2_f32(v)
#define MOST_ROWS 2
#define TARGET AVX2
#define NAME(x) x##_avx2_f32
#include "runtime/matmul/tile_split_body.h"

#define T double
#define V __m256d
#define W 4
#define MASK __m256i
#define MASK_OF(n) _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + 8 - 2 * (n)))
#define LOAD(p) _mm256_loadu_pd(p)
#define LOADM(p, m) _mm256_maskload_pd((p), (m))
#define ZERO _mm256_setzero_pd()
#define FMA(a, b, c) _mm256_fmadd_pd((a), (b), (c))
#define ADD(a, b) _mm256_add_pd((a), (b))
#define SUM(v) sum_f64(v)
#define STORE(p, v) _mm256_storeu_pd((p), (v))
#define LANE_SUMS(v) sums_f64((v)[0], (v)[1], (v)[2], (v)[3])
#define MOST_ROWS 2
#define TARGET AVX2
#define NAME(x) x##_avx2_f64
#include "runtime/matmul/tile_split_body.h"

/* ---- AVX-512 ---- */

#define T float
#define V __m512
#define W 16
#define MASK __mmask16
#define MASK_OF(n) ((__mmask16)((1u << (n)) - 1))
#define LOAD(p) _mm512_loadu_ps(p)
#define LOADM(p, m) _mm512_maskz_loadu_ps((m), (p))
#define ZERO _mm512_setzero_ps()
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define ADD(a, b) _mm512_add_ps((a), (b))
#define SUM(v) sum_f32(fold_f32(v))
#define STORE(p, v) _mm512_storeu_ps((p), (v))
#define LANE_SUMS(v) lane_sums_avx512_f32(v)
#define MOST_ROWS 4
#define TARGET AVX512
#define NAME(x) x##_avx512_f32
#include "runtime/matmul/tile_split_body.h"

#define T double
#define V __m512d
#define W 8
#define MASK __mmask8
#define MASK_OF(n) ((__mmask8)((1u << (n)) - 1))
#define LOAD(p) _mm512_loadu_pd(p)
#define LOADM(p, m) _mm512_maskz_loadu_pd((m), (p))
#define ZERO _mm512_setzero_pd()
#define FMA(a, b, c) _mm512_fmadd_pd((a), (b), (c))
#define ADD(a, b) _mm512_add_pd((a), (b))
#define SUM(v) sum_f64(fold_f64(v))
#define STORE(p, v) _mm512_storeu_pd((p), (v))
#define LANE_SUMS(v) lane_sums_avx512_f64(v)
#define MOST_ROWS 4
#define TARGET AVX512
#define NAME(x) x##_avx512_f64
#include "runtime/matmul/tile_split_body.h"

void df_tile_split_f32(const df_block *g)
{
    split_avx2_f32(g);
}

void df_tile_split_f64(const df_block *g)
{
    split_avx2_f64(g);
}

void df_tile_split512_f32(const df_block *g)
{
    split_avx512_f32(g);
}

void df_tile_split512_f64(const df_block *g)
{
    split_avx512_f64(g);
}
