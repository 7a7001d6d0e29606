/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a transposed B, with AVX2 and FMA.
 *
 * Half vectors are loaded into place, so that a vector needs only two shuffles. These shuffles and
 * the insertions can use three execution ports. 512-bit shuffles can use one, and 512-bit
 * insertions two (measured on Sapphire Rapids).
 */
#include "runtime/matmul/tile.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

/* Distances in bytes from a column to the first, third, fifth and seventh column after it. With
 * them, an address is one base, one distance and a scale. A pointer per column would need too many
 * registers. */
typedef struct df_dots_steps {
    int64_t one, three, five, seven;
} df_dots_steps;

AVX2 DF_INLINE __m256 halves_f32(const char *low, const char *high)
{
    const __m128 l = _mm_loadu_ps((const float *)(const void *)low);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(l),
                                _mm_loadu_ps((const float *)(const void *)high), 1);
}

AVX2 DF_INLINE void columns_f32(__m256 y[4], const char *b, df_dots_steps s)
{
    const __m256 t0 = halves_f32(b, b + 4 * s.one), t1 = halves_f32(b + s.one, b + s.five);
    const __m256 t2 = halves_f32(b + 2 * s.one, b + 2 * s.three);
    const __m256 t3 = halves_f32(b + s.three, b + s.seven);
    const __m256 u0 = _mm256_unpacklo_ps(t0, t1), u1 = _mm256_unpackhi_ps(t0, t1);
    const __m256 u2 = _mm256_unpacklo_ps(t2, t3), u3 = _mm256_unpackhi_ps(t2, t3);
    y[0] = _mm256_shuffle_ps(u0, u2, 0x44);
    y[1] = _mm256_shuffle_ps(u0, u2, 0xee);
    y[2] = _mm256_shuffle_ps(u1, u3, 0x44);
    y[3] = _mm256_shuffle_ps(u1, u3, 0xee);
}

AVX2 DF_INLINE __m256d halves_f64(const char *low, const char *high)
{
    const __m128d l = _mm_loadu_pd((const double *)(const void *)low);
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(l),
                                _mm_loadu_pd((const double *)(const void *)high), 1);
}

AVX2 DF_INLINE void columns_f64(__m256d y[2], const char *b, df_dots_steps s)
{
    const __m256d t0 = halves_f64(b, b + 2 * s.one), t1 = halves_f64(b + s.one, b + s.three);
    y[0] = _mm256_unpacklo_pd(t0, t1);
    y[1] = _mm256_unpackhi_pd(t0, t1);
}

DF_INLINE void fetch_four(const char *b, df_dots_steps s)
{
    __builtin_prefetch(b);
    __builtin_prefetch(b + s.one);
    __builtin_prefetch(b + 2 * s.one);
    __builtin_prefetch(b + s.three);
}

DF_INLINE void fetch_eight(const char *b, df_dots_steps s)
{
    fetch_four(b, s);
    __builtin_prefetch(b + 4 * s.one);
    __builtin_prefetch(b + s.five);
    __builtin_prefetch(b + 2 * s.three);
    __builtin_prefetch(b + s.seven);
}

#define T float
#define V __m256
#define W 8
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps((p), (v))
#define ZERO _mm256_setzero_ps()
#define FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define FMA_ONE(a, b, c) __builtin_fmaf((a), (b), (c))
#define SPLAT(p) _mm256_broadcast_ss(p)
#define STEP 4
#define COLUMNS(y, b, s) columns_f32((y), (b), (s))
#define FETCH(b, s) fetch_eight((b), (s))
#define TARGET AVX2
#define NAME(x) x##_f32
#include "runtime/matmul/tile_dots_body.h"

#define T double
#define V __m256d
#define W 4
#define LOAD(p) _mm256_loadu_pd(p)
#define STORE(p, v) _mm256_storeu_pd((p), (v))
#define ZERO _mm256_setzero_pd()
#define FMA(a, b, c) _mm256_fmadd_pd((a), (b), (c))
#define FMA_ONE(a, b, c) __builtin_fma((a), (b), (c))
#define SPLAT(p) _mm256_broadcast_sd(p)
#define STEP 2
#define COLUMNS(y, b, s) columns_f64((y), (b), (s))
#define FETCH(b, s) fetch_four((b), (s))
#define TARGET AVX2
#define NAME(x) x##_f64
#include "runtime/matmul/tile_dots_body.h"

void df_tile_dots_f32(const df_block *g)
{
    dots_f32(g);
}

void df_tile_dots_f64(const df_block *g)
{
    dots_f64(g);
}
