/* SPDX-License-Identifier: Apache-2.0
 *
 * Quicksort of keys with AVX-512, for keys of one size. keys_avx512.c sets LANES, KEY, and NAME(x).
 *
 * Each step divides the keys by a pivot. A register of keys is compared with the pivot, and is
 * compressed to the front of the array and of the scratch memory. (Gueron and Krasnov, "Fast
 * Quicksort Implementation Using AVX Instructions", 2016.)
 *
 * A few registers of keys are sorted by Batcher's bitonic network (1968), which has no branch. The
 * lanes of each register are sorted first. Then runs of 1, 2, 4 ... registers are merged. A
 * register behind the last one stands for keys that are greater than all others. So comparisons
 * with it are left out.
 */

/* v, with the lanes of `mask` greater, and the others less than or equal to the lane that differs
 * by XOR with x. */
DF_INLINE __m512i NAME(exchange)(__m512i v, int x, unsigned mask)
{
    const __m512i other = PERMUTE(_mm512_xor_si512(LANE_NUMBERS, BROADCAST(x)), v);
    return MASK_MAX(MIN(v, other), (MASK)mask, v, other);
}

/* Sorts the lanes of a register in which they are bitonic. */
DF_INLINE __m512i NAME(merge_lanes)(__m512i v)
{
    if (LANES == 16) v = NAME(exchange)(v, 8, 0xff00);
    v = NAME(exchange)(v, 4, 0xf0f0);
    v = NAME(exchange)(v, 2, 0xcccc);
    return NAME(exchange)(v, 1, 0xaaaa);
}

DF_INLINE __m512i NAME(sort_lanes)(__m512i v)
{
    v = NAME(exchange)(v, 1, 0xaaaa);
    v = NAME(exchange)(v, 3, 0xcccc);
    v = NAME(exchange)(v, 1, 0xaaaa);
    v = NAME(exchange)(v, 7, 0xf0f0);
    v = NAME(exchange)(v, 2, 0xcccc);
    v = NAME(exchange)(v, 1, 0xaaaa);
    if (LANES == 8) return v;
    v = NAME(exchange)(v, 15, 0xff00);
    v = NAME(exchange)(v, 4, 0xf0f0);
    v = NAME(exchange)(v, 2, 0xcccc);
    return NAME(exchange)(v, 1, 0xaaaa);
}

/* Makes two sorted runs that begin at register b into two bitonic runs, the first of which has no
 * key that is greater than one of the second. */
DF_INLINE void NAME(mirror)(KEY *a, int64_t n, int64_t b, int64_t run)
{
    const __m512i backwards = _mm512_xor_si512(LANE_NUMBERS, BROADCAST(LANES - 1));
    const int64_t end = b + 2 * run;
    for (int64_t i = df_max_i64(end - n, 0); i < run; i++) {
        KEY *const p = a + (b + i) * LANES, *const q = a + (end - 1 - i) * LANES;
        const __m512i low = _mm512_load_si512(p);
        const __m512i high = PERMUTE(backwards, _mm512_load_si512(q));
        _mm512_store_si512(p, MIN(low, high));
        _mm512_store_si512(q, PERMUTE(backwards, MAX(low, high)));
    }
}

/* Exchanges keys of bitonic runs that are `by` registers apart. */
DF_INLINE void NAME(halve)(KEY *a, int64_t n, int64_t by)
{
    for (int64_t b = 0; b + by < n; b += 2 * by)
        for (int64_t i = b; i < df_min_i64(b + by, n - by); i++) {
            KEY *const p = a + i * LANES, *const q = p + by * LANES;
            const __m512i low = _mm512_load_si512(p), high = _mm512_load_si512(q);
            _mm512_store_si512(p, MIN(low, high));
            _mm512_store_si512(q, MAX(low, high));
        }
}

/* Sorts n registers of keys, which are aligned. */
static void NAME(network)(KEY *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        _mm512_store_si512(a + i * LANES, NAME(sort_lanes)(_mm512_load_si512(a + i * LANES)));
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t b = 0; b < n; b += 2 * run) NAME(mirror)(a, n, b, run);
        for (int64_t by = run / 2; by > 0; by /= 2) NAME(halve)(a, n, by);
        for (int64_t i = 0; i < n; i++)
            _mm512_store_si512(a + i * LANES, NAME(merge_lanes)(_mm512_load_si512(a + i * LANES)));
    }
}

/* Sorts at most FEW_REGISTERS of keys. */
static void NAME(sort_few)(KEY *a, int64_t n)
{
    _Alignas(64) KEY few[FEW_REGISTERS * LANES];
    const int64_t n_registers = (n + LANES - 1) / LANES;
    memcpy(few, a, (size_t)n * sizeof *a);
    for (int64_t i = n; i < n_registers * LANES; i++) few[i] = (KEY)-1;
    NAME(network)(few, n_registers);
    memcpy(a, few, (size_t)n * sizeof *a);
}

/* `split` of keys.h. What a store writes behind the keys that it is for is written again. */
static int64_t NAME(split)(KEY *a, KEY *b, int64_t n, KEY pivot)
{
    const __m512i p = BROADCAST(pivot);
    int64_t below = 0, others = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512i v = _mm512_loadu_si512(a + i);
        const MASK m = LESS(v, p);
        const int n_below = __builtin_popcount(m);
        _mm512_storeu_si512(a + below, COMPRESS(m, v));
        _mm512_storeu_si512(b + others, COMPRESS((MASK)~m, v));
        below += n_below;
        others += LANES - n_below;
    }
    for (; i < n; i++) {
        const KEY key = a[i];
        a[below] = key;
        b[others] = key;
        below += key < pivot;
        others += key >= pivot;
    }
    memcpy(a + below, b, (size_t)others * sizeof *a);
    return below;
}

/* The middle of two registers of keys that are evenly distributed over the array. */
static KEY NAME(pivot)(const KEY *a, int64_t n)
{
    _Alignas(64) KEY some[2 * LANES];
    for (int64_t i = 0; i < 2 * LANES; i++) some[i] = a[n / (2 * LANES) * i + n / (4 * LANES)];
    NAME(network)(some, 2);
    return some[LANES];
}

/* depth: how many more divisions may be uneven before digits are sorted, which always takes linear
 * time. */
static void NAME(quicksort)(KEY *a, KEY *b, int64_t n, int depth)
{
    while (n > FEW_REGISTERS * LANES) {
        if (depth-- == 0) {
            const KEY *const sorted = df_keys_sort_digits(sizeof *a, a, b, n);
            if (sorted != a) memcpy(a, sorted, (size_t)n * sizeof *a);
            return;
        }
        const KEY pivot = NAME(pivot)(a, n);
        int64_t below = NAME(split)(a, b, n, pivot);
        /* The pivot is the least key: the keys that equal it are in their places. */
        const bool is_least = below == 0;
        if (is_least && pivot == (KEY)-1) return;
        if (is_least) below = NAME(split)(a, b, n, (KEY)(pivot + 1));
        if (!is_least) NAME(quicksort)(a, b, below, depth);
        a += below;
        n -= below;
    }
    NAME(sort_few)(a, n);
}

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
#undef COMPRESS
