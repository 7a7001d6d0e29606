/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, selecting, counting and random numbers. Compiled like ref_kernels.c, strictly.
 */
#include "ref_routines.h"

#include <math.h>
#include <string.h>

/* ---- selecting ---- */

static int worse(const float *x, int64_t a, int64_t b)
{
    return x[a] < x[b] || (x[a] == x[b] && a > b);
}

/* Moves heap[i] down until no child is worse. The worst of the best is heap[0]. */
static void sift(const float *x, int64_t *heap, int64_t n, int64_t i)
{
    const int64_t v = heap[i];
    for (int64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && worse(x, heap[c + 1], heap[c])) c++;
        if (!worse(x, heap[c], v)) break;
        heap[i] = heap[c];
    }
    heap[i] = v;
}

static void topk(const float *x, int64_t n, int64_t k, int64_t *heap)
{
    for (int64_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2; i-- > 0;) sift(x, heap, k, i);
    for (int64_t i = k; i < n; i++) {
        if (!(x[i] > x[heap[0]])) continue;
        heap[0] = i;
        sift(x, heap, k, 0);
    }
    while (k-- > 1) {
        const int64_t last = heap[0];
        heap[0] = heap[k];
        heap[k] = last;
        sift(x, heap, k, 0);
    }
}

/* ---- sorting ---- */

enum { DIGIT = 11, DIGITS = 1 << DIGIT, PASSES = 3 };

static uint32_t key_of(float f)
{
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b ^ ((0 - (b >> 31)) | (uint32_t)1 << 31);
}

static void argsort(const float *x, int64_t n, int64_t *index, uint32_t *work)
{
    static uint32_t count[PASSES][DIGITS];
    uint32_t *key[2] = { work, work + n }, *at[2] = { work + 2 * n, work + 3 * n };
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t k = key[0][i] = key_of(x[i]);
        at[0][i] = (uint32_t)i;
        for (int p = 0; p < PASSES; p++) count[p][k >> p * DIGIT & (DIGITS - 1)]++;
    }
    for (int p = 0; p < PASSES; p++) {
        uint32_t sum = 0;
        for (int d = 0; d < DIGITS; d++) {
            const uint32_t here = count[p][d];
            count[p][d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++) {
            const uint32_t k = key[p & 1][i], to = count[p][k >> p * DIGIT & (DIGITS - 1)]++;
            key[~p & 1][to] = k;
            at[~p & 1][to] = at[p & 1][i];
        }
    }
    for (int64_t i = 0; i < n; i++) index[i] = at[PASSES & 1][i];
}

/* ---- counting ---- */

#define COUNT(name, T)                                                                             \
    static void name(const int64_t *index, int64_t n, T *out, int64_t bins)                        \
    {                                                                                              \
        memset(out, 0, (size_t)bins * sizeof *out);                                                \
        for (int64_t i = 0; i < n; i++) out[index[i]] += 1;                                        \
    }

COUNT(count_i64, int64_t)
COUNT(count_i32, int32_t)
COUNT(count_f32, float)

/* ---- random numbers ---- */

enum { LANES = 16 };

/* The words of LANES blocks, from block number `first` on. */
static void philox(uint64_t seed, uint64_t first, uint32_t out[4][LANES])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t *const c0 = out[0], *const c1 = out[1], *const c2 = out[2], *const c3 = out[3];
    for (uint32_t i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)first + i;
        c1[i] = (uint32_t)((first + i) >> 32);
        c2[i] = c3[i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            const uint64_t p0 = (uint64_t)0xd2511f53 * c0[i], p1 = (uint64_t)0xcd9e8d57 * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
}

static float unit(uint32_t word)
{
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

static void uniform(uint64_t seed, float *out, int64_t n)
{
    uint32_t word[4][LANES];
    for (int64_t at = 0; at < n; at += 4 * LANES) {
        philox(seed, (uint64_t)at / 4, word);
        if (n - at < 4 * LANES) {
            for (int64_t i = at; i < n; i++) out[i] = unit(word[i % 4][(i - at) / 4]);
            break;
        }
        for (int i = 0; i < LANES; i++)
            for (int k = 0; k < 4; k++) out[at + 4 * i + k] = unit(word[k][i]);
    }
}

static void normal(uint64_t seed, float *out, int64_t n)
{
    uint32_t word[4][LANES];
    for (int64_t at = 0; at < n; at += 4 * LANES) {
        const int64_t here = n - at < 4 * LANES ? n - at : 4 * LANES;
        philox(seed, (uint64_t)at / 4, word);
        for (int64_t i = 0; i < here / 4; i++)
            for (int k = 0; k < 4; k += 2) {
                const float r = sqrtf(-2 * logf(1 - unit(word[k][i])));
                const float turn = 6.28318530717958647693f * unit(word[k + 1][i]);
                out[at + 4 * i + k] = r * cosf(turn);
                out[at + 4 * i + k + 1] = r * sinf(turn);
            }
    }
}

const ref_routines REF_TABLE = { topk, argsort, count_i64, count_i32, count_f32, uniform, normal };
