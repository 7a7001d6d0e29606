/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles with AVX-512: 8 x 48 floats or 8 x 24 doubles. 24 of the 32 registers are accumulators.
 * Masked loads do not touch lanes outside the mask, so B and C may end anywhere.
 */
#include "runtime/matmul/tile.h"
#include "runtime/matmul/transpose512.h"

#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))

/* Transposes 8 rows of 16 floats to 16 rows of 8. */
AVX512 DF_INLINE void transpose_f32(float *to, int64_t to_row, const float *from, int64_t from_row)
{
    __m512 r[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm512_loadu_ps(from + i * from_row);
    df_transpose_8x16(to, to_row, r, 16);
}

/* Transposes 4 rows of 8 doubles to 8 rows of 4. */
AVX512 DF_INLINE void transpose_f64(double *to, int64_t to_row, const double *from,
                                    int64_t from_row)
{
    __m512d r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) r[i] = _mm512_loadu_pd(from + i * from_row);
    df_transpose_4x8(to, to_row, r, 8);
}

/* Transposes 16 rows of 16 floats. */
AVX512 DF_INLINE void square_f32(float *to, int64_t to_row, const float *from, int64_t from_row)
{
    __m512 y[16];
    df_square_f32(y, from, from_row);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) _mm512_storeu_ps(to + p * to_row, y[p]);
}

/* Transposes 8 rows of 8 doubles. */
AVX512 DF_INLINE void square_f64(double *to, int64_t to_row, const double *from, int64_t from_row)
{
    __m512d y[8];
    df_square_f64(y, from, from_row);
#pragma GCC unroll 8
    for (int p = 0; p < 8; p++) _mm512_storeu_pd(to + p * to_row, y[p]);
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
#define SQUARE(to, to_row, from, from_row) square_f32((to), (to_row), (from), (from_row))
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
#define SQUARE(to, to_row, from, from_row) square_f64((to), (to_row), (from), (from_row))
#define TARGET AVX512
#define NAME(x) x##_f64
#include "runtime/matmul/tile_body.h"

const df_tiles df_tiles_avx512_f32 = { 8,
                                       48,
                                       64,
                                       block_f32,
                                       pack_f32,
                                       df_tile_transpose512_f32,
                                       df_tile_dots512_f32,
                                       64,
                                       df_tile_split512_f32,
                                       4,
                                       sweep_f32,
                                       panels_f32 };
const df_tiles df_tiles_avx512_f64 = { 8,
                                       24,
                                       32,
                                       block_f64,
                                       pack_f64,
                                       df_tile_transpose512_f64,
                                       df_tile_dots512_f64,
                                       64,
                                       df_tile_split512_f64,
                                       4,
                                       sweep_f64,
                                       panels_f64 };
