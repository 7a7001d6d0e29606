/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of pairs of bf16 with AVX-512 BF16: tiles of 8 x 48 f32. 24 of the 32 registers are
 * accumulators.
 */
#include "runtime/bf16/bf16.h"

#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")))

enum { MR = 8, NV = 3, LANES = 16, SIDE = 8 };

/* ---- packing ---- */

BF16 DF_INLINE __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= LANES ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}

/* Packs two rows of w elements, which are contiguous, as `width` pairs. odd NULL: a row of +0. */
BF16 static void pack_two_rows(uint32_t *to, int64_t width, const uint16_t *even,
                               const uint16_t *odd, int64_t w)
{
    for (int64_t x = 0; x < width; x += LANES) {
        const __mmask16 mask = first_lanes(w - x);
        const __m256i upper = _mm256_maskz_loadu_epi16(mask, even + x);
        __m512i pair = _mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16);
        if (odd) {
            const __m256i lower = _mm256_maskz_loadu_epi16(mask, odd + x);
            pair = _mm512_or_si512(pair, _mm512_cvtepu16_epi32(lower));
        }
        _mm512_mask_storeu_epi32(to + x, first_lanes(width - x), pair);
    }
}

/* Transposes 8 rows of 8 pairs. */
BF16 DF_INLINE void transpose_pairs(__m256i v[SIDE])
{
    __m256i t[SIDE], u[SIDE];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < SIDE; h += 4) {
        u[h] = _mm256_unpacklo_epi64(t[h], t[h + 2]);
        u[h + 1] = _mm256_unpackhi_epi64(t[h], t[h + 2]);
        u[h + 2] = _mm256_unpacklo_epi64(t[h + 1], t[h + 3]);
        u[h + 3] = _mm256_unpackhi_epi64(t[h + 1], t[h + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

/* Packs 8 lanes, of which w exist. The elements of a lane are contiguous along k. */
BF16 static void pack_lanes(uint32_t *to, int64_t width, const uint16_t *from, int64_t stride,
                            int64_t n, int64_t w)
{
    for (int64_t k = 0; k < n; k += 2 * SIDE, to += SIDE * width) {
        const __mmask16 mask = first_lanes(n - k);
        __m256i v[SIDE];
#pragma GCC unroll 8
        for (int i = 0; i < SIDE; i++)
            v[i] = _mm256_rol_epi32(
                _mm256_maskz_loadu_epi16(i < w ? mask : 0, from + i * stride + k), 16);
        transpose_pairs(v);
        const int64_t pairs = df_min_i64((n - k + 1) / 2, SIDE);
        if (pairs == SIDE) {
#pragma GCC unroll 8
            for (int p = 0; p < SIDE; p++)
                _mm256_storeu_si256((__m256i *)(void *)(to + p * width), v[p]);
        } else {
            for (int p = 0; p < pairs; p++)
                _mm256_storeu_si256((__m256i *)(void *)(to + p * width), v[p]);
        }
    }
}

static void pack_any(uint32_t *to, int64_t width, const uint16_t *from, int64_t step,
                     int64_t stride, int64_t n, int64_t w)
{
    for (int64_t k = 0; k < n; k += 2, to += width)
        for (int64_t x = 0; x < width; x++) {
            const uint16_t *const at = from + k * step + x * stride;
            const uint32_t even = x < w ? at[0] : 0, odd = x < w && k + 1 < n ? at[step] : 0;
            to[x] = even << 16 | odd;
        }
}

BF16 static void pack_bf16(uint32_t *to, int64_t width, const uint16_t *from, int64_t step,
                           int64_t stride, int64_t n, int64_t w)
{
    df_assert(width % SIDE == 0 && w <= width);
    if (stride == 1) {
        for (int64_t k = 0; k < n; k += 2, to += width)
            pack_two_rows(to, width, from + k * step, k + 1 < n ? from + (k + 1) * step : NULL, w);
    } else if (step == 1 || n == 1) {
        for (int64_t x = 0; x < width; x += SIDE)
            pack_lanes(to + x, width, x < w ? from + x * stride : from, stride, n, w - x);
    } else {
        pack_any(to, width, from, step, stride, n, w);
    }
}

BF16 static uint16_t least_bf16(const uint16_t *from, int64_t n)
{
    enum { HALVES = 32 };
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
    __m512i least = _mm512_set1_epi16(-1);
    uint16_t lane[HALVES], all = 0xffff;
    for (int64_t x = 0; x < n; x += HALVES) {
        const int64_t left = n - x;
        const __mmask32 mask = left >= HALVES ? 0xffffffffu : (1u << left) - 1;
        const __m512i bits = _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, from + x), magnitude);
        least = _mm512_min_epu16(least, _mm512_sub_epi16(bits, one)); /* 0 becomes the largest */
    }
    _mm512_storeu_si512(lane, least);
    for (int i = 0; i < HALVES; i++) all = lane[i] < all ? lane[i] : all;
    return all == 0xffff ? all : (uint16_t)(all + 1);
}

/* ---- the micro-kernel ---- */

/* One step: all products of a pair of columns of A and a pair of rows of B. */
BF16 DF_INLINE void bf16_step(__m512 *acc, const uint32_t *a, const uint32_t *b, const int rows,
                              const int vecs)
{
    __m512bh y[NV];
#pragma GCC unroll 3
    for (int j = 0; j < vecs; j++) y[j] = (__m512bh)_mm512_loadu_si512(b + j * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[i]);
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            acc[i * vecs + j] = _mm512_dpbf16_ps(acc[i * vecs + j], x, y[j]);
    }
}

BF16 DF_INLINE void bf16_tile(int64_t k, const uint32_t *a, const uint32_t *b, float *c,
                              int64_t ldc, int64_t m, int64_t n, bool first, const char *next,
                              const int rows, const int vecs)
{
    __m512 acc[MR * NV];
    __mmask16 mask[NV];
#pragma GCC unroll 3
    for (int j = 0; j < vecs; j++) mask[j] = first_lanes(n - j * LANES);
#pragma GCC unroll 24
    for (int i = 0; i < rows * vecs; i++) acc[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        if (first || i >= m) break;
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            acc[i * vecs + j] = _mm512_maskz_loadu_ps(mask[j], c + i * ldc + j * LANES);
    }
    if (rows == MR && vecs == NV)
        for (; k >= DF_GEMM_FETCH_STEPS; k -= DF_GEMM_FETCH_STEPS, next += DF_GEMM_FETCH_BYTES) {
            _mm_prefetch(next, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int u = 0; u < DF_GEMM_FETCH_STEPS; u++, a += MR, b += NV * LANES)
                bf16_step(acc, a, b, rows, vecs);
        }
    for (; k > 0; k--, a += MR, b += NV * LANES) bf16_step(acc, a, b, rows, vecs);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        if (i >= m) break;
#pragma GCC unroll 3
        for (int j = 0; j < vecs; j++)
            _mm512_mask_storeu_ps(c + i * ldc + j * LANES, mask[j], acc[i * vecs + j]);
    }
}

BF16 static void gemm_bf16(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,
                           int64_t n, int64_t first, const void *next)
{
    const int vecs = (int)((n + LANES - 1) / LANES);
    df_assert(m >= 1 && m <= MR && vecs >= 1 && vecs <= NV);
    switch (m <= MR / 2 ? -vecs : vecs) {
    case -1:
    case -2: bf16_tile(k, a, b, c, ldc, m, n, first, next, MR / 2, 2); break;
    case -3: bf16_tile(k, a, b, c, ldc, m, n, first, next, MR / 2, 3); break;
    case 1:
    case 2: bf16_tile(k, a, b, c, ldc, m, n, first, next, MR, 2); break;
    case 3: bf16_tile(k, a, b, c, ldc, m, n, first, next, MR, 3); break;
    }
}

#define CODE                                                                                       \
    .kernel = { gemm_bf16, MR, NV * LANES, 0 }, .unit = 1, .pack_a = pack_bf16, .pack = pack_bf16, \
    .least = least_bf16

const df_bf16_code *df_bf16_pick(void)
{
    static const df_bf16_code code = { CODE }, slow = { CODE, .is_slow = true };
    const bool has_it = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bf16");
    return !has_it ? NULL : __builtin_cpu_is("intel") ? &slow : &code;
}
