/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of pairs of bf16 with the tiles of AMX, in fast mode. A tile has 16 rows of 64 bytes.
 *
 *     tdpbf16ps: C [16 x 16 f32] += A [16 rows x 16 pairs] B [16 pairs x 16 columns]
 *
 * The micro-kernel has 2 x 2 tiles of C, 32 x 32 elements, and reads a tile of A or of B for each
 * two products. A panel of A is stored tile by tile: rows 0 to 15 of 16 steps of k, then rows 16 to
 * 31 of these. A panel of B has a row per step of k, as in bf16_avx512.c.
 *
 * For each element, the instruction sums the 16 products of the elements of even k and those of odd
 * k apart, from +0, each by fused multiply-adds. It adds the two sums to each other, and the result
 * to C. Denormals count as 0 in operands and in sums, and MXCSR has no say.
 */
#include "runtime/bf16/amx.h"
#include "runtime/bf16/bf16.h"

/* GCC 11 and Clang 11 have the intrinsics; older compilers do without tiles. */
#if defined(__linux__) && (__has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>))

#include <immintrin.h>
#include <stdalign.h>

#define AMX __attribute__((target("amx-tile,amx-bf16")))
#define PACKS __attribute__((target("avx512f,avx512vl,avx512bw,avx2")))

enum {
    SIDE = 16,          /* rows of a tile, and words in a row */
    AREA = SIDE * SIDE, /* words of a tile */
    WORD = 4,           /* bytes */
    MR = 2 * SIDE,      /* rows of C in the micro-kernel */
    NR = 2 * SIDE,      /* columns */
    SLICE = 256         /* pairs: a panel of B then takes 32 KiB */
};

/* ---- packing ---- */

/* Packs w rows of A that are contiguous across, as those of a transposed matrix. */
PACKS static void pack_columns(uint32_t *to, const uint16_t *from, int64_t step, int64_t n,
                               int64_t w)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i row = _mm512_slli_epi32(lane, 4); /* SIDE words apart */
    for (int64_t k = 0; k < df_div_up(n, 2 * SIDE) * 2 * SIDE; k += 2) {
        uint32_t *const at = to + k / (2 * SIDE) * 2 * AREA + k / 2 % SIDE;
        for (int64_t x = 0; x < w; x += SIDE) {
            const __mmask16 mask = (__mmask16)(w - x >= SIDE ? 0xffffu : (1u << (w - x)) - 1u);
            const uint16_t *const even = from + k * step + x;
            __m256i halves[2];
            for (int i = 0; i < 2; i++)
                halves[i] = _mm256_maskz_loadu_epi16(k + i < n ? mask : 0, even + i * step);
            const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves[0]), 16);
            const __m512i pairs = _mm512_or_si512(upper, _mm512_cvtepu16_epi32(halves[1]));
            _mm512_i32scatter_epi32(at + x * SIDE, row, pairs, WORD);
        }
    }
}

/* Packs w rows of A. Rows beyond them get nothing, because a row of A shows in its row of C alone.
 */
PACKS static void pack_tiles(uint32_t *to, int64_t width, const uint16_t *from, int64_t step,
                             int64_t stride, int64_t n, int64_t w)
{
    df_assert(width == MR);
    (void)width;
    if (stride == 1 && step != 1) {
        pack_columns(to, from, step, n, w);
        return;
    }
    for (int64_t x = 0; x < w; x++) {
        uint32_t *at = to + x * SIDE;
        const uint16_t *const row = from + x * stride;
        for (int64_t k = 0; k < n; k += 2 * SIDE, at += 2 * AREA) {
            if (step == 1) {
                const __mmask32 mask = n - k >= 2 * SIDE ? 0xffffffffu : (1u << (n - k)) - 1;
                const __m512i pairs = _mm512_maskz_loadu_epi16(mask, row + k);
                _mm512_storeu_si512(at, _mm512_rol_epi32(pairs, 16));
                continue;
            }
            for (int64_t p = k; p < k + 2 * SIDE; p += 2) {
                const uint32_t even = p < n ? row[p * step] : 0;
                const uint32_t odd = p + 1 < n ? row[(p + 1) * step] : 0;
                at[(p - k) / 2] = even << 16 | odd;
            }
        }
    }
}

static void pack_tiles_of_b(uint32_t *to, int64_t width, const uint16_t *from, int64_t step,
                            int64_t stride, int64_t n, int64_t w)
{
    df_bf16_pick()->pack(to, width, from, step, stride, n, w);
}

/* ---- the micro-kernel ---- */

/* The tiles of C are numbers 0 to 3, those of A 4 and 5, those of B 6 and 7. */
AMX static void gemm_tiles(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,
                           int64_t n, int64_t first, const void *next)
{
    alignas(64) float edge[MR * NR];
    const bool is_whole = m == MR && n == NR;
    const char *left = a, *right = b;
    float *const to = is_whole ? c : edge, *const below = to + SIDE * (is_whole ? ldc : NR);
    const int64_t row = (is_whole ? ldc : NR) * (int64_t)sizeof *to;
    df_assert(k % SIDE == 0 && m >= 1 && m <= MR && n >= 1 && n <= NR);
    (void)next; /* to prefetch it gained nothing */
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        for (int64_t y = 0; y < m && !is_whole; y++)
            memcpy(edge + y * NR, (const float *)c + y * ldc, (size_t)n * sizeof *edge);
        _tile_loadd(0, to, row);
        _tile_loadd(1, to + SIDE, row);
        _tile_loadd(2, below, row);
        _tile_loadd(3, below + SIDE, row);
    }
    for (; k > 0; k -= SIDE, left += 2 * AREA * WORD, right += NR * SIDE * WORD) {
        _tile_loadd(4, left, SIDE * WORD);
        _tile_loadd(6, right, NR * WORD);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right + SIDE * WORD, NR * WORD);
        _tile_dpbf16ps(1, 4, 7);
        if (m <= SIDE) continue;
        _tile_loadd(5, left + AREA * WORD, SIDE * WORD);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, row);
    _tile_stored(1, to + SIDE, row);
    if (m > SIDE) {
        _tile_stored(2, below, row);
        _tile_stored(3, below + SIDE, row);
    }
    for (int64_t y = 0; y < m && !is_whole; y++)
        memcpy((float *)c + y * ldc, edge + y * NR, (size_t)n * sizeof *edge);
}

const df_bf16_code *df_bf16_tiles(void)
{
    static const df_bf16_code code = { .kernel = { gemm_tiles, MR, NR, 0 },
                                       .unit = SIDE,
                                       .slice = SLICE,
                                       .pack_a = pack_tiles,
                                       .pack = pack_tiles_of_b,
                                       .begin = df_amx_begin,
                                       .end = df_amx_end };
    return &code;
}

#else

const df_bf16_code *df_bf16_tiles(void)
{
    return NULL;
}

#endif
