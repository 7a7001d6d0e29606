/* SPDX-License-Identifier: Apache-2.0
 *
 * Quicksort of keys with AVX-512, for keys of one size. keys_avx512.c sets LANES, KEY, and NAME(x).
 *
 * Each step divides the keys by a pivot, which is the middle of a sample. Where few keys equal it,
 * it makes two parts (keys512_halve.h).
 *
 * Where many keys equal the pivot, and in short arrays, it makes three. The lesser keys are
 * compressed to the front of one array, the greater ones to the front of another. (Gueron and
 * Krasnov, "Fast Quicksort Implementation Using AVX Instructions", 2016.) Keys that equal the pivot
 * are only counted, so few distinct keys take few steps.
 *
 * A few registers of keys are sorted by a network.
 */
#include "runtime/sort/keys512_halve.h"
#include "runtime/sort/keys512_network.h"

DF_INLINE MASK NAME(first_lanes)(int64_t n)
{
    return (MASK)((1u << df_min_i64(n, LANES)) - 1);
}

/* Stores the first `count` lanes; STORE_ALL may write all. */
#define STORE_ALL(to, count, v) _mm512_storeu_si512(to, v)
#define STORE_SOME(to, count, v) STORE_MASKED(to, NAME(first_lanes)(count), v)

typedef struct NAME(parts) {
    int64_t below, above;
} NAME(parts);

/* Compresses the keys that are less than the pivot to low, and those that are greater to high.
 * Either may be a. Both have room for n keys. What a store writes behind its keys is written again,
 * or is room. */
static NAME(parts) NAME(divide)(const KEY *a, KEY *low, KEY *high, int64_t n, KEY pivot)
{
    const __m512i p = BROADCAST(pivot);
    NAME(parts) x = { 0, 0 };
    int64_t i = 0;
#define DIVIDE(v, valid, store)                                                                    \
    do {                                                                                           \
        const MASK is_below = valid & LESS(v, p), is_above = valid & LESS(p, v);                   \
        const int n_below = __builtin_popcount(is_below), n_above = __builtin_popcount(is_above);  \
        store(low + x.below, n_below, COMPRESS(is_below, v));                                      \
        store(high + x.above, n_above, COMPRESS(is_above, v));                                     \
        x.below += n_below;                                                                        \
        x.above += n_above;                                                                        \
    } while (0)
    /* Eight registers are read before any store, which a later load would wait for. */
    for (; i + 8 * LANES <= n; i += 8 * LANES) {
        __m512i v[8];
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) v[k] = _mm512_loadu_si512(a + i + k * LANES);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) DIVIDE(v[k], (MASK)-1, STORE_ALL);
    }
    for (; i < n; i += LANES) {
        const MASK valid = NAME(first_lanes)(n - i);
        const __m512i v = LOAD_MASKED(valid, a + i);
        DIVIDE(v, valid, STORE_SOME);
    }
#undef DIVIDE
    return x;
}

static void NAME(fill)(KEY *a, int64_t n, KEY key)
{
    for (int64_t i = 0; i < n; i++) a[i] = key;
}

/* `split` of keys.h. */
static int64_t NAME(split)(KEY *a, KEY *b, int64_t n, KEY pivot)
{
    const NAME(parts) x = NAME(divide)(a, a, b, n, pivot);
    NAME(fill)(a + x.below, n - x.below - x.above, pivot);
    memcpy(a + n - x.above, b, (size_t)x.above * sizeof *a);
    return x.below;
}

typedef struct NAME(middle) {
    KEY key;
    bool is_frequent; /* a sixteenth of the sample or more is equal */
} NAME(middle);

/* The middle of 4 registers of keys that are evenly distributed over the array. */
static NAME(middle) NAME(pivot)(const KEY *a, int64_t n)
{
    enum { N = 4 * LANES, MIDDLE = N / 2, MANY = N / 16 };
    _Alignas(64) KEY some[N];
    for (int64_t i = 0; i < N; i++) some[i] = a[n / N * i + n / (2 * N)];
    NAME(sort_4)(some);
    const KEY key = some[MIDDLE];
    return (NAME(middle)){ key, key == some[MIDDLE - MANY] || key == some[MIDDLE + MANY] };
}

/* Sorts the n keys of a to b when to_b is set, and else in place. The other array is scratch
 * memory.
 *
 * orders: the table of df_orders_make, or NULL.
 * depth: how many more divisions may be uneven before digits are sorted, which always takes linear
 * time. */
static void NAME(quicksort)(KEY *a, KEY *b, int64_t n, bool to_b, const __m256i *orders, int depth)
{
    while (n > MOST_ROWS * LANES) {
        KEY *const to = to_b ? b : a, *const other = to_b ? a : b;
        if (depth-- == 0) {
            const KEY *const sorted = df_keys_sort_digits(sizeof *a, a, b, n);
            if (sorted != to) memcpy(to, sorted, (size_t)n * sizeof *a);
            return;
        }
        const NAME(middle) pivot = NAME(pivot)(a, n);
        const bool in_two = orders && !pivot.is_frequent;
        const int64_t below = in_two ? NAME(halve)(a, n, pivot.key, orders) : 0;
        if (below > 0) {
            NAME(quicksort)(a, b, below, to_b, orders, depth);
            a += below;
            b += below;
            n -= below;
            continue;
        }
        /* The lesser keys go where they end, and the greater ones to the other array. */
        const NAME(parts) x = NAME(divide)(a, to, other, n, pivot.key);
        NAME(quicksort)(to, other + x.above, x.below, false, orders, depth);
        NAME(fill)(to + x.below, n - x.below - x.above, pivot.key);
        a = other;
        b = to + n - x.above;
        n = x.above;
        to_b = true;
    }
    NAME(sort_few)(a, to_b ? b : a, n);
}

/* `between` of keys.h. */
static int64_t NAME(between)(const KEY *a, KEY *to, int64_t n, KEY low, KEY high, int64_t *n_below)
{
    const __m512i least = BROADCAST(low), greatest = BROADCAST(high);
    int64_t n_found = 0, i = 0;
#define COLLECT(v, valid, store)                                                                   \
    do {                                                                                           \
        const MASK is_below = valid & LESS(v, least);                                              \
        const MASK is = valid & (MASK) ~(is_below | LESS(greatest, v));                            \
        const int count = __builtin_popcount(is);                                                  \
        store(to + n_found, count, COMPRESS(is, v));                                               \
        n_found += count;                                                                          \
        *n_below += __builtin_popcount(is_below);                                                  \
    } while (0)
    for (; i + LANES <= n; i += LANES) {
        const __m512i v = _mm512_loadu_si512(a + i);
        COLLECT(v, (MASK)-1, STORE_ALL);
    }
    const MASK valid = NAME(first_lanes)(n - i);
    const __m512i v = LOAD_MASKED(valid, a + i);
    COLLECT(v, valid, STORE_SOME);
#undef COLLECT
    return n_found;
}

/* `find` of keys.h. */
static int64_t NAME(find)(const KEY *a, int64_t n, KEY key, int64_t nth)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const MASK valid = NAME(first_lanes)(n - i);
        unsigned is = valid & EQUAL(LOAD_MASKED(valid, a + i), BROADCAST(key));
        const int count = __builtin_popcount(is);
        if (nth < count) {
            for (; nth > 0; nth--) is &= is - 1;
            return i + (int64_t)df_ctz64(is);
        }
        nth -= count;
    }
    df_unreachable();
}

#undef STORE_SOME
#undef STORE_ALL
#undef EIGHT
#undef EIGHT_BROADCAST
#undef EIGHT_LOAD
#undef EIGHT_STORE
#undef EIGHT_LESS
#undef EIGHT_ORDER
#undef NAME
#undef KEY
#undef LANES
#undef LANE_NUMBERS
#undef MASK
#undef BROADCAST
#undef PERMUTE
#undef MIN
#undef MAX
#undef MASK_MAX
#undef LESS
#undef EQUAL
#undef TEST
#undef COMPRESS
#undef LOAD_MASKED
#undef STORE_MASKED
