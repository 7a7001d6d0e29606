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

/* `nth` of keys.h: quickselect (Hoare, "Algorithm 65: Find", 1961). The pivot is the key of a small
 * sample at the share of the order at which the key is. */
static KEY NAME(nth)(KEY *a, KEY *b, int64_t n, int64_t nth, int64_t *n_below)
{
    enum { FEW = 4 * LANES, TURNS = 24 };
    *n_below = 0;
    for (int turn = 0; n > FEW; turn++) {
        _Alignas(64) KEY some[LANES];
        for (int64_t i = 0; i < LANES; i++) some[i] = a[n / LANES * i + n / (2 * LANES)];
        NAME(sort_1)(some);
        const KEY pivot = some[nth * LANES / n];
        if (turn == TURNS) NAME(quicksort)(a, b, n, false, (form){ 0 }, NULL, 0);
        if (turn == TURNS) break;
        const NAME(parts) x = NAME(divide)(a, a, b, n, pivot);
        const int64_t above = n - x.above; /* the position of the first greater key */
        if (nth < x.below) {
            n = x.below;
            continue;
        }
        *n_below += nth < above ? x.below : above;
        if (nth < above) return pivot;
        KEY *const greater = b;
        b = a;
        a = greater;
        n = x.above;
        nth -= above;
    }
    if (n <= FEW) NAME(sort_few)(a, a, n, (form){ 0 });
    int64_t first = nth;
    while (first > 0 && a[first - 1] == a[nth]) first--;
    *n_below += first;
    return a[nth];
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
