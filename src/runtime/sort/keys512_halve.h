/* SPDX-License-Identifier: Apache-2.0
 *
 * Division of keys in two parts with AVX-512, for keys512_body.h: those less than a pivot, and the
 * others.
 *
 * One permutation puts 8 keys in order, the lesser ones first. They are stored at both ends of the
 * room that is left. (Bramas, "A Novel Hybrid Quicksort Algorithm Vectorized using AVX-512 on Intel
 * Skylake", 2017, stores both parts likewise.) The permutations are in the table `orders`, which
 * keys_avx512.c makes. It pays for long arrays alone.
 */

/* Stores 8 keys. Those below the pivot go to the front of the room, and the others to its end. The
 * room has 16 keys or more. Returns how many are below. */
DF_INLINE int64_t NAME(store_eight)(EIGHT v, EIGHT pivot, KEY *front, KEY *end,
                                    const __m256i *orders)
{
    const __mmask8 is_below = EIGHT_LESS(v, pivot);
    const EIGHT parts = EIGHT_ORDER(orders[is_below], v);
    EIGHT_STORE(front, parts);
    EIGHT_STORE(end - 8, parts);
    return __builtin_popcount(is_below);
}

/* Copies the keys that are less than the pivot to the front of `to`, and the others behind them.
 * Returns the number of the lesser keys. */
static int64_t NAME(halve_few)(const KEY *a, KEY *to, int64_t n, KEY pivot, const __m256i *orders)
{
    const EIGHT p = EIGHT_BROADCAST(pivot);
    int64_t i = 0, below = 0;
    for (; i + 16 <= n; i += 8)
        below += NAME(store_eight)(EIGHT_LOAD(a + i), p, to + below, to + below + n - i, orders);
    for (; i < n; i++) {
        const bool is_below = LESS_ONE(a[i], pivot);
        to[is_below ? below : below + n - i - 1] = a[i];
        below += is_below;
    }
    return below;
}

/* Moves the keys of a that are less than the pivot before the others. Returns their number.
 *
 * A block of keys is taken out at each end, so that there is room. Then blocks are read where the
 * room is smaller, which leaves room for a block or more at both ends. */
static int64_t NAME(halve)(KEY *a, int64_t n, KEY pivot, const __m256i *orders)
{
    enum { UNROLL = 8, SIZE = 8 * UNROLL };
    const EIGHT p = EIGHT_BROADCAST(pivot);
    KEY taken[3 * SIZE];
    const int64_t n_last = SIZE + n % SIZE;
    KEY *first = a + SIZE, *last = a + n - n_last; /* what is not read yet */
    KEY *front = a, *end = a + n;                  /* the room, with what is not read yet */
    memcpy(taken, a, SIZE * sizeof *a);
    memcpy(taken + SIZE, last, (size_t)n_last * sizeof *a);
    while (first < last) {
        const bool at_front = first - front < end - last;
        const KEY *const from = at_front ? first : last - SIZE;
        first += at_front ? SIZE : 0;
        last -= at_front ? 0 : SIZE;
        EIGHT v[UNROLL];
#pragma GCC unroll 8
        for (int k = 0; k < UNROLL; k++) v[k] = EIGHT_LOAD(from + 8 * k);
#pragma GCC unroll 8
        for (int k = 0; k < UNROLL; k++) {
            const int64_t below = NAME(store_eight)(v[k], p, front, end, orders);
            front += below;
            end -= 8 - below;
        }
    }
    front += NAME(halve_few)(taken, front, SIZE + n_last, pivot, orders);
    return front - a;
}

/* Writes the keys of n elements to `to`: those that are less than the pivot, then the others.
 * Returns the number of the lesser ones. Sets *loses when an element is a NaN or a -0. */
static DF_NOINLINE int64_t NAME(halve_elements)(const KEY *in, KEY *to, int64_t n, form f,
                                                KEY pivot, const __m256i *orders, bool *loses)
{
    enum { UNROLL = 2, SIZE = 8 * UNROLL, MOST = 2 * SIZE };
    const EIGHT p = EIGHT_BROADCAST(pivot);
    KEY *front = to, *end = to + n, last[MOST];
    unsigned lost = 0;
    int64_t i = 0;
    for (; i + MOST <= n; i += SIZE) {
#pragma GCC unroll 2
        for (int k = 0; k < UNROLL; k++) {
            const EIGHT v = EIGHT_LOAD(in + i + 8 * k);
            lost |= EIGHT_LOSES(v, f);
            const int64_t below = NAME(store_eight)(EIGHT_KEY(v, f), p, front, end, orders);
            front += below;
            end -= 8 - below;
        }
    }
    lost |= NAME(load)(in + i, last, n - i, f);
    front += NAME(halve_few)(last, front, n - i, pivot, orders);
    *loses |= lost != 0;
    return front - to;
}
