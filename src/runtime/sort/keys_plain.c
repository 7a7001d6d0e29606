/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h for the instructions that every machine has: a radix sort from the least significant
 * digit (Knuth, The Art of Computer Programming 3, 5.2.5). A digit that is the same in all keys
 * costs no pass.
 */
#include "runtime/sort/keys.h"

#define FROM_BITS plain_from_bits
#define TO_BITS plain_to_bits
#include "runtime/sort/keys_bits_body.h"

enum { MANY = 4096, NARROW = 8, MOST_PASSES = 8 };

/* The functions for keys of one size. There are at most MOST_PASSES digits: 8 narrow or 6 wide ones
 * of 64 bits. Narrow digits of few keys keep the counts small. */
#define KEYS_OF(T, name)                                                                           \
    static T *name##_digits(T *a, T *b, int64_t n)                                                 \
    {                                                                                              \
        uint32_t count[MOST_PASSES][1 << DF_ORDER_WIDE];                                           \
        const int bits = n < MANY ? NARROW : DF_ORDER_WIDE;                                        \
        const int n_passes = (8 * (int)sizeof(T) + bits - 1) / bits;                               \
        const uint32_t mask = (1u << bits) - 1;                                                    \
        if (n < 2) return a;                                                                       \
        for (int p = 0; p < n_passes; p++) memset(count[p], 0, sizeof **count << bits);            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T key = a[i];                                                                          \
            for (int p = 0; p < n_passes; p++, key >>= bits) count[p][key & mask]++;               \
        }                                                                                          \
        for (int p = 0; p < n_passes; p++) {                                                       \
            uint32_t *const at = count[p], sum = 0;                                                \
            const int shift = p * bits;                                                            \
            if (at[a[0] >> shift & mask] == n) continue;                                           \
            for (uint32_t d = 0; d <= mask; d++) {                                                 \
                const uint32_t here = at[d];                                                       \
                at[d] = sum;                                                                       \
                sum += here;                                                                       \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++) b[at[a[i] >> shift & mask]++] = a[i];                  \
            T *const other = a;                                                                    \
            a = b;                                                                                 \
            b = other;                                                                             \
        }                                                                                          \
        return a;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static int64_t name##_split(deft_dtype t, T flip, const char *in, T *to, int64_t n, T pivot,   \
                                bool *loses)                                                       \
    {                                                                                              \
        int64_t below = 0, end = n;                                                                \
        T some[KEYS_BLOCK];                                                                        \
        for (int64_t at = 0; at < n; at += KEYS_BLOCK) {                                           \
            const int64_t m = df_min_i64(n - at, KEYS_BLOCK);                                      \
            *loses |= plain_from_bits(t, flip, in + at * (int64_t)sizeof *to, some, m);            \
            for (int64_t i = 0; i < m; i++) {                                                      \
                const bool is_below = some[i] < pivot;                                             \
                to[is_below ? below : end - 1] = some[i];                                          \
                below += is_below;                                                                 \
                end -= !is_below;                                                                  \
            }                                                                                      \
        }                                                                                          \
        return below;                                                                              \
    }                                                                                              \
    static int64_t name##_between(const T *a, T *to, int64_t n, T low, T high, int64_t *n_below)   \
    {                                                                                              \
        int64_t n_found = 0;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T key = a[i];                                                                    \
            to[n_found] = key;                                                                     \
            n_found += key >= low && key <= high;                                                  \
            *n_below += key < low;                                                                 \
        }                                                                                          \
        return n_found;                                                                            \
    }                                                                                              \
                                                                                                   \
    static int64_t name##_find(const T *a, int64_t n, T key, int64_t nth)                          \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i < n; i++)                                                                         \
            if (a[i] == key && nth-- == 0) break;                                                  \
        return i;                                                                                  \
    }

KEYS_OF(uint32_t, narrow)
KEYS_OF(uint64_t, wide)

void *df_keys_sort_digits(size_t size, void *a, void *b, int64_t n)
{
    return size == 8 ? (void *)wide_digits(a, b, n) : (void *)narrow_digits(a, b, n);
}

static int64_t plain_split(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n,
                           uint64_t pivot, bool *loses)
{
    return df_bytes_of(t) == 8 ? wide_split(t, flip, in, to, n, pivot, loses)
                               : narrow_split(t, (uint32_t)flip, in, to, n, (uint32_t)pivot, loses);
}

static void plain_sort_loaded(deft_dtype t, uint64_t flip, void *a, void *b, int64_t n)
{
    const size_t size = df_bytes_of(t);
    const void *const sorted = df_keys_sort_digits(size, a, b, n);
    if (sorted != a) memcpy(a, sorted, (size_t)n * size);
    plain_to_bits(t, flip, a, n);
}

static int64_t plain_between(size_t size, const void *a, void *to, int64_t n, uint64_t low,
                             uint64_t high, int64_t *n_below)
{
    return size == 8 ? wide_between(a, to, n, low, high, n_below)
                     : narrow_between(a, to, n, (uint32_t)low, (uint32_t)high, n_below);
}

static int64_t plain_find(size_t size, const void *a, int64_t n, uint64_t key, int64_t nth)
{
    return size == 8 ? wide_find(a, n, key, nth) : narrow_find(a, n, (uint32_t)key, nth);
}

const df_keys df_keys_plain = {
    .load = plain_from_bits,
    .split = plain_split,
    .sort_loaded = plain_sort_loaded,
    .sort = df_keys_sort_digits,
    .from_bits = plain_from_bits,
    .between = plain_between,
    .find = plain_find,
};
