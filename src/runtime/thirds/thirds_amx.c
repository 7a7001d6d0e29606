/* SPDX-License-Identifier: Apache-2.0
 *
 * Thirds of f32 in the tiles of AMX (thirds.h). The eight tiles are four of C, two of A and two of
 * B.
 *
 * A tile of A has 16 rows of 32 bf16, and one of B 16 rows of 16 pairs of bf16, which are 32 steps
 * of k. The order of steps within a tile is free, so the pair i of a row consists of steps i and
 * 16 + i. Then packing moves no element from lane to lane, unless it transposes.
 */
#include "runtime/bf16/amx.h"
#include "runtime/matmul/transpose512.h"
#include "runtime/thirds/thirds.h"

#if defined(__linux__) && (__GNUC__ >= 12 || __clang_major__ >= 16)

#include <immintrin.h>
#include <stdalign.h>
#include <string.h>

#define VECTORS __attribute__((target("avx512f,avx512bw,avx2")))
#define TILES __attribute__((target("avx512f,amx-tile,amx-bf16")))

enum {
    SIDE = 16,   /* rows of a tile, and words of a row */
    ROW = 64,    /* bytes of a row */
    AREA = 1024, /* bytes of a tile */
    LINE = 64,   /* bytes of a cache line */
    THIRDS = 3,
    PRODUCTS = 6, /* of thirds */
    LANES = DF_THIRDS_LANES
};

/* ---- packing ---- */

VECTORS DF_INLINE __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= SIDE ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}

/* Stores a row of each third: words whose lower halves are of `low`, and upper ones of `high`. */
VECTORS DF_INLINE void store_thirds(char *to, __m512 low, __m512 high)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(-0x10000);
#pragma GCC unroll 3
    for (int i = 0; i < THIRDS; i++) {
        const __m512i l = _mm512_add_epi32(_mm512_castps_si512(low), half);
        const __m512i h = _mm512_add_epi32(_mm512_castps_si512(high), half);
        const __m512i words = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(l, 16), h);
        _mm512_store_si512(to + i * 2 * AREA, words);
        low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_and_si512(l, upper)));
        high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_and_si512(h, upper)));
    }
}

/* Transposes the words of a tile. */
VECTORS DF_NOINLINE static void transpose_tile(char *tile)
{
    __m512 y[SIDE];
    df_square_f32(y, (const float *)(const void *)tile, SIDE);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_store_ps(tile + i * ROW, y[i]);
}

VECTORS static bool pack_thirds(void *to, bool of_b, const float *from, int64_t step,
                                int64_t stride, int64_t n, int64_t w)
{
    const bool along_k = step == 1;
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    char *tile = to;
    df_assert(along_k || stride == 1);
    for (int64_t k = 0; k < n; k += DF_THIRDS_STEP, tile += (THIRDS - 1) * 2 * AREA)
        for (int half = 0; half < 2; half++, tile += AREA) {
            const int64_t x = half * SIDE;
            if (!of_b && x >= w) continue; /* multiply_half reads no such tile */
            for (int i = 0; i < SIDE; i++) {
                __mmask16 is_low, is_high;
                const float *at;
                if (along_k) {
                    is_low = x + i < w ? first_lanes(n - k) : 0;
                    is_high = x + i < w ? first_lanes(n - k - SIDE) : 0;
                    at = from + (x + i) * stride + k;
                } else {
                    is_low = k + i < n ? first_lanes(w - x) : 0;
                    is_high = k + i + SIDE < n ? first_lanes(w - x) : 0;
                    at = from + (k + i) * step + x;
                    __builtin_prefetch(at + DF_THIRDS_STEP * step);
                    __builtin_prefetch(at + (DF_THIRDS_STEP + SIDE) * step);
                }
                const __m512 low = _mm512_maskz_loadu_ps(is_low, at);
                const __m512 high = _mm512_maskz_loadu_ps(is_high, at + SIDE * step);
                most =
                    _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(low), magnitude));
                most =
                    _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(high), magnitude));
                store_thirds(tile + i * ROW, low, high);
            }
            for (int i = 0; i < THIRDS && along_k == of_b; i++) transpose_tile(tile + i * 2 * AREA);
        }
    const __m512i bound = _mm512_castps_si512(_mm512_set1_ps(0x1p24f));
    return _mm512_cmpge_epu32_mask(most, bound) == 0;
}

/* ---- tiles ---- */

/* Adds product i of thirds, tiles 4 and 5 times tiles 6 and 7. Prefetches a sixth of the next step
 * of A and of B, and n_lines lines of `ahead`. */
#define MULTIPLY(i)                                                                                \
    do {                                                                                           \
        if (is_far) prefetch_tile(b + DF_THIRDS_BYTES + (i)*AREA);                                 \
        prefetch_tile(a + DF_THIRDS_BYTES + (i)*AREA);                                             \
        prefetch_ahead(&ahead, n_lines);                                                           \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        _tile_dpbf16ps(1, 4, 7);                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
        _tile_dpbf16ps(3, 5, 7);                                                                   \
    } while (0)
#define LOAD_A(third)                                                                              \
    do {                                                                                           \
        _tile_loadd(4, a + (third)*2 * AREA, ROW);                                                 \
        _tile_loadd(5, a + (third)*2 * AREA + AREA, ROW);                                          \
    } while (0)
#define LOAD_B(third)                                                                              \
    do {                                                                                           \
        _tile_loadd(6, b + (third)*2 * AREA, ROW);                                                 \
        _tile_loadd(7, b + (third)*2 * AREA + AREA, ROW);                                          \
    } while (0)

DF_INLINE void prefetch_tile(const char *tile)
{
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) __builtin_prefetch(tile + i * ROW);
}

/* Prefetches the first n lines, or all that are left, and removes them. A row that does not begin
 * with a line may end in one more, which is left out. */
DF_INLINE void prefetch_ahead(df_thirds_ahead *ahead, int64_t n)
{
    for (; n > 0 && ahead->n_rows > 0; n--) {
        __builtin_prefetch(ahead->row + ahead->done, 0, 2);
        ahead->done += LINE;
        if (ahead->done < ahead->bytes) continue;
        ahead->done = 0;
        ahead->row += ahead->stride;
        ahead->n_rows--;
    }
}

/* Loads tile `half` of a third of B, and adds its product with tile 4 of A to tile c. */
#define MULTIPLY_TILE(c, tile, at, third, half)                                                    \
    do {                                                                                           \
        _tile_loadd(tile, (at) + (third)*2 * AREA + (half)*AREA, ROW);                             \
        _tile_dpbf16ps(c, 4, tile);                                                                \
    } while (0)

/* Adds product i of thirds, tile 4 times a third of both panels of B. Each tile of C is added to
 * once, so that four chains are in flight. Prefetches a sixth of the next step of B. */
#define MULTIPLY_TWO(i, third)                                                                     \
    do {                                                                                           \
        if (is_far) prefetch_tile(b + DF_THIRDS_BYTES + (i)*AREA);                                 \
        MULTIPLY_TILE(0, 5, b, third, 0);                                                          \
        MULTIPLY_TILE(1, 6, b, third, 1);                                                          \
        if (!next) break;                                                                          \
        if (is_far) prefetch_tile(next + DF_THIRDS_BYTES + (i)*AREA);                              \
        MULTIPLY_TILE(2, 7, next, third, 0);                                                       \
        MULTIPLY_TILE(3, 5, next, third, 1);                                                       \
    } while (0)

TILES static void multiply_half(int64_t n_steps, const void *packed_a, const void *packed_b,
                                const void *next_b, float *c, int64_t c_row, int64_t m, int64_t n,
                                bool first, bool is_far)
{
    enum { WIDE = 2 * LANES };
    alignas(ROW) float edge[SIDE * WIDE];
    const bool is_whole = m == SIDE && n == (next_b ? WIDE : LANES);
    float *const to = is_whole ? c : edge;
    const int64_t row = is_whole ? c_row : WIDE, row_size = row * (int64_t)sizeof(float);
    const char *a = packed_a, *b = packed_b, *next = next_b;
    for (int64_t y = 0; y < m && !is_whole && !first; y++)
        memcpy(edge + y * WIDE, c + y * c_row, (size_t)n * sizeof(float));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!first) {
        _tile_loadd(0, to, row_size);
        _tile_loadd(1, to + SIDE, row_size);
    }
    if (!first && next) {
        _tile_loadd(2, to + LANES, row_size);
        _tile_loadd(3, to + LANES + SIDE, row_size);
    }
    for (; n_steps > 0; n_steps--, a += DF_THIRDS_BYTES, b += DF_THIRDS_BYTES) {
        _tile_loadd(4, a, ROW);
        MULTIPLY_TWO(0, 2);
        MULTIPLY_TWO(1, 1);
        _tile_loadd(4, a + 2 * AREA, ROW);
        MULTIPLY_TWO(2, 1);
        MULTIPLY_TWO(3, 0);
        _tile_loadd(4, a + 2 * 2 * AREA, ROW);
        MULTIPLY_TWO(4, 0);
        _tile_loadd(4, a, ROW);
        MULTIPLY_TWO(5, 0);
        if (next) next += DF_THIRDS_BYTES;
    }
    _tile_stored(0, to, row_size);
    _tile_stored(1, to + SIDE, row_size);
    if (next) {
        _tile_stored(2, to + LANES, row_size);
        _tile_stored(3, to + LANES + SIDE, row_size);
    }
    for (int64_t y = 0; y < m && !is_whole; y++)
        memcpy(c + y * c_row, edge + y * WIDE, (size_t)n * sizeof(float));
}

TILES static void multiply_thirds(int64_t n_steps, const void *packed_a, const void *packed_b,
                                  float *c, int64_t c_row, int64_t m, int64_t n, bool first,
                                  bool is_far, df_thirds_ahead ahead)
{
    const int64_t all_lines = ahead.n_rows * df_div_up(ahead.bytes, LINE);
    const int64_t n_lines = df_div_up(all_lines, n_steps * PRODUCTS); /* for each product */
    alignas(ROW) float edge[LANES * LANES];
    const bool is_whole = m == LANES && n == LANES;
    if (m <= SIDE) {
        multiply_half(n_steps, packed_a, packed_b, NULL, c, c_row, m, n, first, is_far);
        return;
    }
    float *const to = is_whole ? c : edge;
    const int64_t row = is_whole ? c_row : LANES, row_size = row * (int64_t)sizeof(float);
    const char *a = packed_a, *b = packed_b;
    for (int64_t y = 0; y < m && !is_whole && !first; y++)
        memcpy(edge + y * LANES, c + y * c_row, (size_t)n * sizeof(float));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!first) {
        _tile_loadd(0, to, row_size);
        _tile_loadd(1, to + SIDE, row_size);
        _tile_loadd(2, to + SIDE * row, row_size);
        _tile_loadd(3, to + SIDE * row + SIDE, row_size);
    }
    for (; n_steps > 0; n_steps--, a += DF_THIRDS_BYTES, b += DF_THIRDS_BYTES) {
        LOAD_A(0);
        LOAD_B(2);
        MULTIPLY(0);
        LOAD_B(1);
        MULTIPLY(1);
        LOAD_A(1);
        MULTIPLY(2);
        LOAD_B(0);
        MULTIPLY(3);
        LOAD_A(2);
        MULTIPLY(4);
        LOAD_A(0);
        MULTIPLY(5);
    }
    _tile_stored(0, to, row_size);
    _tile_stored(1, to + SIDE, row_size);
    _tile_stored(2, to + SIDE * row, row_size);
    _tile_stored(3, to + SIDE * row + SIDE, row_size);
    for (int64_t y = 0; y < m && !is_whole; y++)
        memcpy(c + y * c_row, edge + y * LANES, (size_t)n * sizeof(float));
}

const df_thirds_code *df_thirds_pick(void)
{
    static const df_thirds_code code = { pack_thirds, multiply_thirds, multiply_half, df_amx_begin,
                                         df_amx_end };
    return &code;
}

#else

const df_thirds_code *df_thirds_pick(void)
{
    return NULL;
}

#endif
