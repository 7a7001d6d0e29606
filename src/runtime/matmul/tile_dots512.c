/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a transposed B, with AVX-512: squares of W columns and W steps of k.
 *
 * A row of a square is one cache line, and all of it is loaded at once. With columns that are a
 * multiple of 4 KiB apart, all lines of a square belong to one set of the L1 cache. A line that was
 * loaded in pieces would then be evicted in between (8 GB/s instead of 42 on Zen 4).
 *
 * Zen 5 does four shuffles within 128-bit lanes per cycle, two of the others, and two
 * multiply-adds. One of its pipes can do both of the latter. With few rows, a square takes 64
 * shuffles, half of them within lanes, and 16 multiply-adds per row.
 */
#include "runtime/matmul/tile.h"
#include "runtime/matmul/transpose512.h"

#include <stdalign.h>

enum { PART_BYTES = 256 << 10 }; /* of B that several tiles of rows read one after the other */

#define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))

/* Merges the halves that are in two rows. */
AVX512 DF_INLINE __m512 two_rows_f32(__m256 low, __m256 high)
{
    return _mm512_mask_broadcast_f32x8(_mm512_castps256_ps512(low), 0xff00, high);
}

/* Transposes rows i and i + 8, merged in t[i], to y[p] = step p of rows 0 to 15. */
AVX512 DF_INLINE void turn_f32(__m512 y[8], const __m512 t[8])
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    __m512 v[8];
    df_transpose_squares(v, t);
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
        y[p] = _mm512_permutex2var_ps(v[p], low, v[p + 4]);
        y[p + 4] = _mm512_permutex2var_ps(v[p], high, v[p + 4]);
    }
}

AVX512 DF_INLINE __m512d two_rows_f64(__m256d low, __m256d high)
{
    return _mm512_mask_broadcast_f64x4(_mm512_castpd256_pd512(low), 0xf0, high);
}

/* Transposes rows i and i + 4, merged in t[i], to y[p] = step p of rows 0 to 7. */
AVX512 DF_INLINE void turn_f64(__m512d y[4], const __m512d t[4])
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_add_epi64(low, _mm512_set1_epi64(2));
    const __m512d u0 = _mm512_unpacklo_pd(t[0], t[1]), u1 = _mm512_unpackhi_pd(t[0], t[1]);
    const __m512d u2 = _mm512_unpacklo_pd(t[2], t[3]), u3 = _mm512_unpackhi_pd(t[2], t[3]);
    y[0] = _mm512_permutex2var_pd(u0, low, u2);
    y[1] = _mm512_permutex2var_pd(u1, low, u3);
    y[2] = _mm512_permutex2var_pd(u0, high, u2);
    y[3] = _mm512_permutex2var_pd(u1, high, u3);
}

/* Stores 8 rows of 16 floats as 16 rows, of which the lanes of the mask exist. */
AVX512 DF_INLINE void spread_f32(float *to, int64_t to_row, const __m512 r[8], __mmask8 lanes)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 t[8];
    df_transpose_squares(t, r);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __m512 a = _mm512_permutex2var_ps(t[q], low, t[q + 4]);
        const __m512 b = _mm512_permutex2var_ps(t[q], high, t[q + 4]);
        float *const at = to + q * to_row;
        _mm256_mask_storeu_ps(at, lanes, _mm512_castps512_ps256(a));
        _mm256_mask_storeu_ps(at + 4 * to_row, lanes, _mm512_extractf32x8_ps(a, 1));
        _mm256_mask_storeu_ps(at + 8 * to_row, lanes, _mm512_castps512_ps256(b));
        _mm256_mask_storeu_ps(at + 12 * to_row, lanes, _mm512_extractf32x8_ps(b, 1));
    }
}

/* Stores 4 rows of 8 doubles as 8 rows, of which the lanes of the mask exist. */
AVX512 DF_INLINE void spread_f64(double *to, int64_t to_row, const __m512d r[4], __mmask8 lanes)
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
        _mm256_mask_storeu_pd(at, lanes, _mm512_castpd512_pd256(a));
        _mm256_mask_storeu_pd(at + 2 * to_row, lanes, _mm512_extractf64x4_pd(a, 1));
        _mm256_mask_storeu_pd(at + 4 * to_row, lanes, _mm512_castpd512_pd256(b));
        _mm256_mask_storeu_pd(at + 6 * to_row, lanes, _mm512_extractf64x4_pd(b, 1));
    }
}

/* Does one of the 8 pieces of transposing a square of floats: loads four of the rows at *from, or
 * stores some of the steps. With many rows of A, registers have room for half of a square only. */
AVX512 DF_INLINE void turn_piece_f32(float *to, __m512 t[16], const float **from, int64_t row,
                                     const int piece, const bool many_rows)
{
    const int half = piece / 4, part = piece % 4;
    if (many_rows ? part < 2 : half == 0) {
        df_square_rows_f32(t + part * 4, *from, row);
        *from += 4 * row;
        DF_OPAQUE(*from);
    } else if (many_rows) {
        df_half_square_steps_f32(to + half * 8, t, 2 * part - 4);
        df_half_square_steps_f32(to + half * 8, t, 2 * part - 3);
    } else
        df_square_steps_f32(to, t, part);
}

/* Does one of the 4 pieces of transposing a square of doubles. */
AVX512 DF_INLINE void turn_piece_f64(double *to, __m512d t[8], const double **from, int64_t row,
                                     const int piece, const bool many_rows)
{
    (void)many_rows;
    if (piece >= 2) {
        df_square_steps_f64(to, t, piece - 2);
        return;
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        df_square_rows_f64(t + piece * 4 + i * 2, *from, row);
        *from += 2 * row;
        DF_OPAQUE(*from);
    }
}

#define T float
#define V __m512
#define W 16
#define MASK __mmask16
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps((p), (v))
#define LOADM(p, m) _mm512_maskz_loadu_ps((m), (p))
#define STOREM(p, m, v) _mm512_mask_storeu_ps((p), (m), (v))
#define LOAD_HALF_M(p, m) _mm256_maskz_loadu_ps((__mmask8)(m), (p))
#define TWO_ROWS(low, high) two_rows_f32((low), (high))
#define TURN(y, t) turn_f32((y), (t))
#define SPREAD(to, row, r, m) spread_f32((to), (row), (r), (m))
#define TURN_PIECE(to, t, from, row, piece, many)                                                  \
    turn_piece_f32((to), (t), (from), (row), (piece), (many))
#define SPLAT(p) _mm512_set1_ps(*(p))
#define ZERO _mm512_setzero_ps()
#define FMA(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define NAME(x) x##_f32
#include "runtime/matmul/tile_dots512_body.h"

#define T double
#define V __m512d
#define W 8
#define MASK __mmask8
#define LOAD(p) _mm512_loadu_pd(p)
#define STORE(p, v) _mm512_storeu_pd((p), (v))
#define LOADM(p, m) _mm512_maskz_loadu_pd((m), (p))
#define STOREM(p, m, v) _mm512_mask_storeu_pd((p), (m), (v))
#define LOAD_HALF_M(p, m) _mm256_maskz_loadu_pd((__mmask8)(m), (p))
#define TWO_ROWS(low, high) two_rows_f64((low), (high))
#define TURN(y, t) turn_f64((y), (t))
#define SPREAD(to, row, r, m) spread_f64((to), (row), (r), (m))
#define TURN_PIECE(to, t, from, row, piece, many)                                                  \
    turn_piece_f64((to), (t), (from), (row), (piece), (many))
#define SPLAT(p) _mm512_set1_pd(*(p))
#define ZERO _mm512_setzero_pd()
#define FMA(a, b, c) _mm512_fmadd_pd((a), (b), (c))
#define NAME(x) x##_f64
#include "runtime/matmul/tile_dots512_body.h"

void df_tile_dots512_f32(const df_block *g)
{
    dots_f32(g);
}

void df_tile_dots512_f64(const df_block *g)
{
    dots_f64(g);
}

void df_tile_transpose512_f32(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n, int64_t w)
{
    if (!transpose_thin_f32(to, to_row, from, from_row, n, w))
        df_tile_transpose_f32(to, to_row, from, from_row, n, w);
}

void df_tile_transpose512_f64(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n, int64_t w)
{
    if (!transpose_thin_f64(to, to_row, from, from_row, n, w))
        df_tile_transpose_f64(to, to_row, from, from_row, n, w);
}
