/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformations of winograd.h with AVX-512: 16 tiles, side by side, in one vector.
 */
#include "runtime/winograd/winograd_parts.h"

#include "runtime/matmul/transpose512.h"

#define AVX512 __attribute__((target("avx512f,avx2,fma")))

enum { LANES = DF_WINOGRAD_LANES };

/* The lanes [first, end) of a vector. */
DF_INLINE __mmask16 lanes_between(int64_t first, int64_t end)
{
    const int64_t a = df_max_i64(first, 0), b = df_min_i64(end, LANES);
    return (__mmask16)(a < b ? ((1u << b) - 1u) & ~((1u << a) - 1u) : 0);
}

/* p + n, where p need not be the address of an object. */
DF_INLINE const float *element_at(const float *p, int64_t n)
{
    return (const float *)((uintptr_t)p + (uintptr_t)n * sizeof(float));
}

/* Where the columns are that 16 tiles read: 34 of them. */
typedef struct columns {
    int64_t at;
    __mmask16 mask[3];
} columns;

/* `extent` columns of an image exist. */
DF_INLINE columns columns_from(int64_t at, int64_t extent)
{
    columns c = { .at = at };
    for (int64_t i = 0; i < 3; i++)
        c.mask[i] = lanes_between(-at - i * LANES, extent - at - i * LANES);
    return c;
}

/* Sets h[v] to column v of d B, in one row of the image, for 16 tiles. A row outside of the image
 * is 0. */
AVX512 DF_INLINE void transform_row(const float *row, bool is_inside, const columns *c, __m512 h[4])
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i next = _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    const __m512i next_odd =
        _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17);
    const float *const from = element_at(row, c->at);
    __m512 v[3];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        v[i] = _mm512_maskz_loadu_ps(is_inside ? c->mask[i] : 0, element_at(from, i * LANES));
    const __m512 d0 = _mm512_permutex2var_ps(v[0], even, v[1]);
    const __m512 d1 = _mm512_permutex2var_ps(v[0], odd, v[1]);
    const __m512 d2 = _mm512_permutex2var_ps(d0, next, v[2]);
    const __m512 d3 = _mm512_permutex2var_ps(d1, next_odd, v[2]);
    h[0] = _mm512_sub_ps(d0, d2);
    h[1] = _mm512_add_ps(d1, d2);
    h[2] = _mm512_sub_ps(d2, d1);
    h[3] = _mm512_sub_ps(d1, d3);
}

/* Where lanes of n tiles from number t on go. They may lie in two panels. */
typedef struct place {
    int64_t at[2];
    __mmask16 mask[2];
} place;

DF_INLINE place place_of_tiles(const df_winograd_image *p, int64_t t, int64_t n)
{
    const int64_t panel = t / p->width, lane = t % p->width, left = p->width - lane;
    return (place){ .at = { panel * p->panel + lane, (panel + 1) * p->panel - left },
                    .mask = { lanes_between(0, df_min_i64(n, left)), lanes_between(left, n) } };
}

AVX512 DF_INLINE void store_tiles(float *to, const place *at, __m512 v)
{
    _mm512_mask_storeu_ps(to + at->at[0], at->mask[0], v);
    if (at->mask[1])
        _mm512_mask_storeu_ps((float *)((uintptr_t)to + (uintptr_t)at->at[1] * sizeof(float)),
                              at->mask[1], v);
}

/* transform_row for row y of the image. */
AVX512 DF_INLINE void transform_image_row(const df_winograd_image *p, int64_t y, const columns *c,
                                          __m512 h[4])
{
    transform_row(element_at(p->from, y * p->from_row), y >= 0 && y < p->extent[0], c, h);
}

AVX512 static void transform_image(const df_winograd_image *p)
{
    for (int64_t x = 0; x < p->n; x += LANES) {
        const columns c = columns_from(p->column + 2 * x, p->extent[1]);
        __m512 h[4][4];
        transform_image_row(p, p->row, &c, h[0]);
        transform_image_row(p, p->row + 1, &c, h[1]);
        for (int64_t r = 0; r < p->n_rows; r++) {
            transform_image_row(p, p->row + 2 * r + 2, &c, h[2]);
            transform_image_row(p, p->row + 2 * r + 3, &c, h[3]);
            const place at =
                place_of_tiles(p, p->first + r * p->n + x, df_min_i64(p->n - x, LANES));
            float *to = p->to;
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++, to += p->position) {
                store_tiles(to, &at, _mm512_sub_ps(h[0][v], h[2][v]));
                store_tiles(to + 4 * p->position, &at, _mm512_add_ps(h[1][v], h[2][v]));
                store_tiles(to + 8 * p->position, &at, _mm512_sub_ps(h[2][v], h[1][v]));
                store_tiles(to + 12 * p->position, &at, _mm512_sub_ps(h[1][v], h[3][v]));
                h[0][v] = h[2][v];
                h[1][v] = h[3][v];
            }
        }
    }
}

/* Sets y to the pair of rows of A' m for column v of 16 tiles. */
AVX512 DF_INLINE void sum_column(const float *from, int64_t position, __m512 y[2])
{
    const __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + 4 * position);
    const __m512 c = _mm512_loadu_ps(from + 8 * position);
    const __m512 d = _mm512_loadu_ps(from + 12 * position);
    y[0] = _mm512_add_ps(_mm512_add_ps(a, b), c);
    y[1] = _mm512_sub_ps(_mm512_sub_ps(b, c), d);
}

/* Stores a row of results: two for each of 16 tiles, from column x on. */
AVX512 DF_INLINE __mmask16 store_results(float *to, int64_t x, int64_t n, __m512 even, __m512 odd)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 v[2] = { _mm512_permutex2var_ps(even, low, odd),
                          _mm512_permutex2var_ps(even, high, odd) };
    __mmask16 is_special = 0;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++, x += LANES) {
        const __mmask16 m = lanes_between(0, n - x);
        if (m) _mm512_mask_storeu_ps(to + x, m, v[i]);
        const __m512 zero = _mm512_sub_ps(v[i], v[i]); /* or NaN, for what is not finite */
        is_special |= _mm512_mask_cmp_ps_mask(m, zero, zero, _CMP_UNORD_Q);
    }
    return is_special;
}

AVX512 static bool transform_results(const df_winograd_results *p)
{
    __mmask16 is_special = 0;
    for (int64_t t = 0; 2 * t < p->n; t += LANES) {
        __m512 s[4][2];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) sum_column(p->from + v * p->position + t, p->position, s[v]);
        for (int64_t y = 0; y < p->n_rows; y++) {
            const __m512 s0 = y ? s[0][1] : s[0][0], s1 = y ? s[1][1] : s[1][0];
            const __m512 s2 = y ? s[2][1] : s[2][0], s3 = y ? s[3][1] : s[3][0];
            is_special |= store_results(p->to + y * p->n, 2 * t, p->n,
                                        _mm512_add_ps(_mm512_add_ps(s0, s1), s2),
                                        _mm512_sub_ps(_mm512_sub_ps(s1, s2), s3));
        }
    }
    return is_special == 0;
}

/* G times a column: x, (x + y + z) / 2, (x - y + z) / 2, z. */
AVX512 DF_INLINE void spread_column(__m512 x, __m512 y, __m512 z, __m512 to[4])
{
    const __m512 half = _mm512_set1_ps(0.5f), sum = _mm512_add_ps(x, z);
    to[0] = x;
    to[1] = _mm512_mul_ps(half, _mm512_add_ps(sum, y));
    to[2] = _mm512_mul_ps(half, _mm512_sub_ps(sum, y));
    to[3] = z;
}

/* G g G' for LANES rows of weights at most, of one channel. */
AVX512 DF_INLINE void transform_weight(float *to, int64_t position, const float *from,
                                       int64_t width, const int64_t where[9], __mmask16 m)
{
    __m512 h[3][4], u[4];
#pragma GCC unroll 3
    for (int v = 0; v < 3; v++)
        spread_column(_mm512_maskz_loadu_ps(m, from + where[v] * width),
                      _mm512_maskz_loadu_ps(m, from + where[3 + v] * width),
                      _mm512_maskz_loadu_ps(m, from + where[6 + v] * width), h[v]);
#pragma GCC unroll 4
    for (int y = 0; y < 4; y++) {
        spread_column(h[0][y], h[1][y], h[2][y], u);
#pragma GCC unroll 4
        for (int x = 0; x < 4; x++, to += position) _mm512_mask_storeu_ps(to, m, u[x]);
    }
}

AVX512 static void transform_weights(float *to, int64_t position, const float *from, int64_t n,
                                     int64_t width, const int64_t where[9])
{
    for (int64_t c = 0; c < n; c++, from += 9 * width, to += width)
        for (int64_t i = 0; i < width; i += LANES)
            transform_weight(to + i, position, from + i, width, where, lanes_between(0, width - i));
}

/* ---- the gradient of the weights ---- */

/* 16 tiles of some channels, by position and channel. */
typedef __m512 tiles[DF_WINOGRAD_POSITIONS][DF_WINOGRAD_TURNED];

/* Channel i of the tiles, whose first row is row y of the image at `from`: B' d B. */
AVX512 DF_INLINE void image_tiles(const df_winograd_turn *p, const float *from, int64_t y,
                                  const columns *c, tiles to, int64_t i)
{
    __m512 h[4][4];
    for (int64_t r = 0; r < 4; r++)
        transform_row(element_at(from, (y + r) * p->from_row), y + r >= 0 && y + r < p->extent[0],
                      c, h[r]);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        to[v][i] = _mm512_sub_ps(h[0][v], h[2][v]);
        to[4 + v][i] = _mm512_add_ps(h[1][v], h[2][v]);
        to[8 + v][i] = _mm512_sub_ps(h[2][v], h[1][v]);
        to[12 + v][i] = _mm512_sub_ps(h[1][v], h[3][v]);
    }
}

/* Sets to[0], to[by], to[2 * by] and to[3 * by] to A times a column of two elements. */
AVX512 DF_INLINE void spread_pair(__m512 a, __m512 b, __m512 *to, int64_t by)
{
    to[0] = a;
    to[by] = _mm512_add_ps(a, b);
    to[2 * by] = _mm512_sub_ps(a, b);
    to[3 * by] = _mm512_sub_ps(_mm512_setzero_ps(), b);
}

/* The same for tiles of a gradient of results: A y A'. */
AVX512 DF_INLINE void result_tiles(const df_winograd_turn *p, const float *from, int64_t y,
                                   const columns *c, tiles to, int64_t i)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 h[2][4];
    for (int64_t r = 0; r < 2; r++) {
        const bool is_inside = y + r < p->extent[0];
        const float *const row = element_at(from, (y + r) * p->from_row + c->at);
        const __m512 low = _mm512_maskz_loadu_ps(is_inside ? c->mask[0] : 0, row);
        const __m512 high =
            _mm512_maskz_loadu_ps(is_inside ? c->mask[1] : 0, element_at(row, LANES));
        spread_pair(_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high),
                    h[r], 1);
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) spread_pair(h[0][v], h[1][v], &to[v][i], 4 * DF_WINOGRAD_TURNED);
}

AVX512 DF_INLINE void turn(const df_winograd_turn *p, bool of_images)
{
    tiles t;
    for (int x = 0; x < DF_WINOGRAD_POSITIONS; x++)
        for (int64_t i = p->n_channels; i < DF_WINOGRAD_TURNED; i++) t[x][i] = _mm512_setzero_ps();
    for (int64_t x = 0; x < p->n; x += LANES) {
        const columns c = columns_from(p->column + 2 * x, p->extent[1]);
        for (int64_t r = 0; r < p->n_rows; r++) {
            for (int64_t i = 0; i < p->n_channels; i++)
                if (of_images)
                    image_tiles(p, p->from + i * p->channel, p->row + 2 * r, &c, t, i);
                else
                    result_tiles(p, p->from + i * p->channel, p->row + 2 * r, &c, t, i);
            float *const to = p->to + (r * p->n + x) * p->to_row;
            for (int64_t v = 0; v < DF_WINOGRAD_POSITIONS; v++)
                if (p->n - x >= LANES)
                    df_transpose_8x16(to + v * p->position, p->to_row, t[v], LANES);
                else
                    df_transpose_8x16(to + v * p->position, p->to_row, t[v], p->n - x);
        }
    }
}

AVX512 static void turn_image(const df_winograd_turn *p)
{
    turn(p, true);
}

AVX512 static void turn_results(const df_winograd_turn *p)
{
    turn(p, false);
}

/* G' times a column of four elements, for 16 channels. */
AVX512 DF_INLINE void gather_column(__m512 a, __m512 b, __m512 c, __m512 d, __m512 to[3])
{
    const __m512 half = _mm512_set1_ps(0.5f);
    const __m512 sum = _mm512_mul_ps(half, _mm512_add_ps(b, c));
    to[0] = _mm512_add_ps(a, sum);
    to[1] = _mm512_mul_ps(half, _mm512_sub_ps(b, c));
    to[2] = _mm512_add_ps(d, sum);
}

AVX512 static bool transform_gradient(float *to, const float *from, int64_t position, int64_t n,
                                      const int64_t where[9])
{
    const __m512i nine =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(9));
    __mmask16 is_special = 0;
    for (int64_t i = 0; i < n; i += LANES, from += LANES, to += 9 * LANES) {
        const __mmask16 m = lanes_between(0, n - i);
        __m512 h[3][4], g[3];
        for (int64_t v = 0; v < 4; v++) {
            __m512 p[4];
            for (int64_t u = 0; u < 4; u++)
                p[u] = _mm512_maskz_loadu_ps(m, from + (4 * u + v) * position);
            gather_column(p[0], p[1], p[2], p[3], g);
            for (int u = 0; u < 3; u++) h[u][v] = g[u];
        }
        for (int64_t u = 0; u < 3; u++) {
            gather_column(h[u][0], h[u][1], h[u][2], h[u][3], g);
            for (int64_t v = 0; v < 3; v++) {
                const __m512 zero = _mm512_sub_ps(g[v], g[v]); /* or NaN */
                is_special |= _mm512_mask_cmp_ps_mask(m, zero, zero, _CMP_UNORD_Q);
                _mm512_mask_i32scatter_ps(to + where[3 * u + v], m, nine, g[v], 4);
            }
        }
    }
    return is_special == 0;
}

const df_winograd_code df_winograd_avx512 = { transform_image,   turn_image,
                                              turn_results,      transform_gradient,
                                              transform_results, transform_weights };
