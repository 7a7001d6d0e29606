/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over keys that look for some of them, with AVX-512, behind keys512_body.h.
 */

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

#undef EQUAL
