/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h for x86 with AVX-512: keys512_body.h for keys of 4 and of 8 bytes.
 */
#include "runtime/sort/keys.h"

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,popcnt,prefer-vector-width=512")
#endif

#define FROM_BITS from_bits_512
#define TO_BITS to_bits_512
#include "runtime/sort/keys_bits_body.h"
#include "runtime/sort/keys512_pairs.def"

enum { BLOCK = 16, MOST_ROWS = 64 };
enum { N_ORDERS = 256, LEAST_FOR_ORDERS = 1 << 13 /* keys; the table takes about 1 us */ };

/* Makes the permutations of 8 lanes that put the lanes of a mask, the index, first. */
static void df_orders_make(__m256i orders[N_ORDERS])
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (unsigned mask = 0; mask < N_ORDERS; mask++) {
        const __m256i first = _mm256_maskz_compress_epi32((__mmask8)mask, lanes);
        const __m256i others = _mm256_maskz_compress_epi32((__mmask8)~mask, lanes);
        const unsigned behind = 0xffu << __builtin_popcount(mask);
        orders[mask] = _mm256_mask_expand_epi32(first, (__mmask8)behind, others);
    }
}

#define NAME(x) narrow_##x
#define KEY uint32_t
#define LANES 16
#define LANE_NUMBERS _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define MASK __mmask16
#define BROADCAST(x) _mm512_set1_epi32((int)(x))
#define PERMUTE _mm512_permutexvar_epi32
#define MIN _mm512_min_epu32
#define MAX _mm512_max_epu32
#define MASK_MAX _mm512_mask_max_epu32
#define LESS _mm512_cmplt_epu32_mask
#define EQUAL _mm512_cmpeq_epu32_mask
#define TEST _mm512_test_epi32_mask
#define COMPRESS _mm512_maskz_compress_epi32
#define LOAD_MASKED _mm512_maskz_loadu_epi32
#define STORE_MASKED _mm512_mask_storeu_epi32
#define EIGHT __m256i
#define EIGHT_BROADCAST(x) _mm256_set1_epi32((int)(x))
#define EIGHT_LOAD(from) _mm256_loadu_si256((const void *)(from))
#define EIGHT_STORE(to, v) _mm256_storeu_si256((void *)(to), v)
#define EIGHT_LESS _mm256_cmplt_epu32_mask
#define EIGHT_ORDER(order, v) _mm256_permutevar8x32_epi32(v, order)
#include "runtime/sort/keys512_body.h"

#define NAME(x) wide_##x
#define KEY uint64_t
#define LANES 8
#define LANE_NUMBERS _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)
#define MASK __mmask8
#define BROADCAST(x) _mm512_set1_epi64((long long)(x))
#define PERMUTE _mm512_permutexvar_epi64
#define MIN _mm512_min_epu64
#define MAX _mm512_max_epu64
#define MASK_MAX _mm512_mask_max_epu64
#define LESS _mm512_cmplt_epu64_mask
#define EQUAL _mm512_cmpeq_epu64_mask
#define TEST _mm512_test_epi64_mask
#define COMPRESS _mm512_maskz_compress_epi64
#define LOAD_MASKED _mm512_maskz_loadu_epi64
#define STORE_MASKED _mm512_mask_storeu_epi64
#define EIGHT __m512i
#define EIGHT_BROADCAST BROADCAST
#define EIGHT_LOAD _mm512_loadu_si512
#define EIGHT_STORE _mm512_storeu_si512
#define EIGHT_LESS LESS
#define EIGHT_ORDER(order, v) _mm512_permutexvar_epi64(_mm512_cvtepu32_epi64(order), v)
#include "runtime/sort/keys512_body.h"

static void *sort_512(size_t size, void *a, void *b, int64_t n)
{
    int depth = 4;
    for (int64_t left = n; left > 0; left /= 2) depth += 2;
    __m256i table[N_ORDERS];
    const __m256i *const orders = n < LEAST_FOR_ORDERS ? NULL : table;
    if (orders) df_orders_make(table);
    if (size == 8)
        wide_quicksort(a, b, n, true, orders, depth);
    else
        narrow_quicksort(a, b, n, true, orders, depth);
    return b;
}

static int64_t split_512(size_t size, void *a, void *b, int64_t n, uint64_t pivot)
{
    return size == 8 ? wide_split(a, b, n, pivot) : narrow_split(a, b, n, (uint32_t)pivot);
}

static int64_t between_512(size_t size, const void *a, void *to, int64_t n, uint64_t low,
                           uint64_t high, int64_t *n_below)
{
    return size == 8 ? wide_between(a, to, n, low, high, n_below)
                     : narrow_between(a, to, n, (uint32_t)low, (uint32_t)high, n_below);
}

static int64_t find_512(size_t size, const void *a, int64_t n, uint64_t key, int64_t nth)
{
    return size == 8 ? wide_find(a, n, key, nth) : narrow_find(a, n, (uint32_t)key, nth);
}

const df_keys df_keys_avx512 = { sort_512,    split_512, from_bits_512, to_bits_512,
                                 between_512, find_512,  1 << 15 };

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
