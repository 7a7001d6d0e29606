/* SPDX-License-Identifier: Apache-2.0
 *
 * Quicksort with AVX-512, of comparables of one size (keys.h), which are called keys here.
 * keys_avx512.c sets LANES, KEY, NAME(x), and the instructions.
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
DF_INLINE MASK NAME(first_lanes)(int64_t n)
{
    return (MASK)((1u << df_min_i64(n, LANES)) - 1);
}

/* `load` of keys.h. */
static DF_NOINLINE bool NAME(load)(const KEY *in, KEY *to, int64_t n, form f)
{
    unsigned lost = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        const MASK valid = NAME(first_lanes)(n - i);
        const __m512i v = LOAD_MASKED(valid, in + i);
        lost |= NAME(loses)(v, f);
        STORE_MASKED(to + i, valid, NAME(key)(v, f));
    }
    return lost;
}

/* Writes the elements of n keys. `to` may be the keys. */
static DF_NOINLINE void NAME(write)(const KEY *keys, KEY *to, int64_t n, form f)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm512_storeu_si512(to + i, NAME(element)(_mm512_loadu_si512(keys + i), f));
    const MASK left = NAME(first_lanes)(n - i);
    STORE_MASKED(to + i, left, NAME(element)(LOAD_MASKED(left, keys + i), f));
}

#include "runtime/sort/keys512_halve.h"
#include "runtime/sort/keys512_network.h"

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
    /* Four registers are read before any store, which a later load would wait for. */
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        __m512i v[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) v[k] = _mm512_loadu_si512(a + i + k * LANES);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) DIVIDE(v[k], (MASK)-1, STORE_ALL);
    }
    for (; i < n; i += LANES) {
        const MASK valid = NAME(first_lanes)(n - i);
        const __m512i v = LOAD_MASKED(valid, a + i);
        DIVIDE(v, valid, STORE_SOME);
    }
#undef DIVIDE
    return x;
}

/* Writes the element of a key n times. */
static void NAME(fill)(KEY *a, int64_t n, KEY key, form f)
{
    const __m512i v = NAME(element)(BROADCAST(key), f);
    for (int64_t i = 0; i < n; i += LANES) STORE_MASKED(a + i, NAME(first_lanes)(n - i), v);
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

/* Sorts n keys of a by their digits, and writes their elements to `to`, which is a or b. */
static DF_COLD void NAME(sort_digits)(KEY *a, KEY *b, int64_t n, KEY *to, form f)
{
    KEYS_OF_COMPARABLES(a, n);
    KEY *const sorted = df_keys_sort_digits(sizeof *a, a, b, n);
    COMPARABLES_OF_KEYS(sorted, n);
    NAME(write)(sorted, to, n, f);
}

/* Sorts the n keys of a, and writes their elements to b when to_b is set, and else to a. The other
 * array is scratch memory.
 *
 * orders: the table of df_orders_make, or NULL.
 * depth: how many more divisions may be uneven before digits are sorted, which always takes linear
 * time. */
static void NAME(quicksort)(KEY *a, KEY *b, int64_t n, bool to_b, form f, const __m256i *orders,
                            int depth)
{
    while (n > MOST_ROWS * LANES) {
        KEY *const to = to_b ? b : a, *const other = to_b ? a : b;
        if (depth-- == 0) {
            NAME(sort_digits)(a, b, n, to, f);
            return;
        }
        const NAME(middle) pivot = NAME(pivot)(a, n);
        const bool in_two = orders && !pivot.is_frequent;
        const int64_t below = in_two ? NAME(halve)(a, n, pivot.key, orders) : 0;
        if (below > 0) {
            NAME(quicksort)(a, b, below, to_b, f, orders, depth);
            a += below;
            b += below;
            n -= below;
            continue;
        }
        /* The lesser keys go where they end, and the greater ones to the other array. */
        const NAME(parts) x = NAME(divide)(a, to, other, n, pivot.key);
        NAME(quicksort)(to, other + x.above, x.below, false, f, orders, depth);
        NAME(fill)(to + x.below, n - x.below - x.above, pivot.key, f);
        a = other;
        b = to + n - x.above;
        n = x.above;
        to_b = true;
    }
    NAME(sort_few)(a, to_b ? b : a, n, f);
}
