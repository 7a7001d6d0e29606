/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles with AVX2 and FMA: 4 x 24 floats or 4 x 12 doubles. 12 of the 16 registers are
 * accumulators. Tiles of 6 x 16 floats are as fast. They are not used, because packing
 * transposes squares of 4 rows, and 6 is not a multiple of 4.
 */
#include "runtime/matmul/tile.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

/* The eight words that begin at index 8 - n are a mask: the first n words are -1, the others 0. A
 * lane of f32 takes one word, and a lane of f64 takes two. */
static const int32_t first_lanes[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };

/* These two transpose a square of 4 x 4 elements. Rows of `from` are from_row elements apart, and
 * rows of `to` are to_row elements apart. */
AVX2 DF_INLINE void transpose_f32(float *to, int64_t to_row, const float *from, int64_t from_row)
{
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + from_row);
    __m128 r2 = _mm_loadu_ps(from + 2 * from_row), r3 = _mm_loadu_ps(from + 3 * from_row);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, r0);
    _mm_storeu_ps(to + to_row, r1);
    _mm_storeu_ps(to + 2 * to_row, r2);
    _mm_storeu_ps(to + 3 * to_row, r3);
}

AVX2 DF_INLINE void transpose_f64(double *to, int64_t to_row, const double *from, int64_t from_row)
{
    const __m256d r0 = _mm256_loadu_pd(from), r1 = _mm256_loadu_pd(from + from_row);
    const __m256d r2 = _mm256_loadu_pd(from + 2 * from_row);
    const __m256d r3 = _mm256_loadu_pd(from + 3 * from_row);
    const __m256d s0 = _mm256_unpacklo_pd(r0, r1), s1 = _mm256_unpackhi_pd(r0, r1);
    const __m256d s2 = _mm256_unpacklo_pd(r2, r3), s3 = _mm256_unpackhi_pd(r2, r3);
    _mm256_storeu_pd(to, _mm256_permute2f128_pd(s0, s2, 0x20));
    _mm256_storeu_pd(to + to_row, _mm256_permute2f128_pd(s1, s3, 0x20));
    _mm256_storeu_pd(to + 2 * to_row, _mm256_permute2f128_pd(s0, s2, 0x31));
    _mm256_storeu_pd(to + 3 * to_row, _mm256_permute2f128_pd(s1, s3, 0x31));
}

/* tile_body.h explains these macros, and undefines them at its end. */
#define T float
#define V __m256
#define W 8
#define MASK __m256i
#define MASK_OF(n) _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + 8 - (n)))
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps((p), (v))
#define LOADM(p, m) _mm256_maskload_ps((p), (m))
#define STOREM(p, m, v) _mm256_maskstore_ps((p), (m), (v))
#define SPLAT(p) _mm256_broadcast_ss(p)
#define ZERO _mm256_setzero_ps()
#define FMA(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define MR 4
#define NV 3
/* TRANSPOSE turns SQ rows of LONG elements into LONG rows of SQ elements. */
#define SQ 4
#define LONG 4
#define TRANSPOSE(to, to_row, from, from_row) transpose_f32((to), (to_row), (from), (from_row))
#define TARGET AVX2
#define NAME(x) x##_f32
#include "runtime/matmul/tile_body.h"

#define T double
#define V __m256d
#define W 4
#define MASK __m256i
#define MASK_OF(n) _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + 8 - 2 * (n)))
#define LOAD(p) _mm256_loadu_pd(p)
#define STORE(p, v) _mm256_storeu_pd((p), (v))
#define LOADM(p, m) _mm256_maskload_pd((p), (m))
#define STOREM(p, m, v) _mm256_maskstore_pd((p), (m), (v))
#define SPLAT(p) _mm256_broadcast_sd(p)
#define ZERO _mm256_setzero_pd()
#define FMA(a, b, c) _mm256_fmadd_pd((a), (b), (c))
#define MR 4
#define NV 3
#define SQ 4
#define LONG 4
#define TRANSPOSE(to, to_row, from, from_row) transpose_f64((to), (to_row), (from), (from_row))
#define TARGET AVX2
#define NAME(x) x##_f64
#include "runtime/matmul/tile_body.h"

void df_tile_transpose_f32(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                           int64_t w)
{
    pack_columns_f32(to, to_row, from, from_row, n, w);
}

void df_tile_transpose_f64(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                           int64_t w)
{
    pack_columns_f64(to, to_row, from, from_row, n, w);
}

/* Only for CPUs with AVX2 and FMA: df_tiles_pick checks that. The dots functions are in
 * tile_dots.c. They are used for products of at most n_dots rows (tile.h). */
const df_tiles df_tiles_avx2_f32 = { 4,
                                     24,
                                     24,
                                     block_f32,
                                     pack_f32,
                                     df_tile_transpose_f32,
                                     df_tile_dots_f32,
                                     4,
                                     df_tile_split_f32,
                                     2,
                                     sweep_f32,
                                     panels_f32 };
const df_tiles df_tiles_avx2_f64 = { 4,
                                     12,
                                     12,
                                     block_f64,
                                     pack_f64,
                                     df_tile_transpose_f64,
                                     df_tile_dots_f64,
                                     4,
                                     df_tile_split_f64,
                                     2,
                                     sweep_f64,
                                     panels_f64 };
