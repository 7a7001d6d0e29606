/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting networks of keys with AVX-512, for keys512_body.h. A network has no branch.
 *
 * Each register of keys is a row of a matrix, so that one instruction compares all columns of two
 * rows. First each column is sorted. Then groups of 1, 2, 4 ... neighbouring columns are merged in
 * pairs. A group is in order row by row. One group is read backwards, so that both together are
 * bitonic (Batcher, "Sorting Networks and their Applications", 1968). Reading backwards is the
 * exchange of a row with its mirror image, and of the columns within a group. (Blacher, Giesen,
 * Sanders and Wassenberg, "Vectorized and performance-portable Quicksort", 2022, merge columns
 * likewise.) A block of rows stays in registers.
 */

/* Steps of keys512_pairs.def for the rows v0, v1 ... */
#define LOAD_ROW(i) v##i = _mm512_load_si512(a + i * LANES);
#define STORE_ROW(i) _mm512_store_si512(a + i * LANES, v##i);
#define ORDER_ROWS(i, k) NAME(order)(&v##i, &v##k);
#define FOLD_ROWS(i, k) NAME(fold)(&v##i, &v##k, NAME(lane_xor)(width - 1));
#define EXCHANGE_LANES(i) v##i = NAME(exchange)(v##i, partner, upper);

DF_INLINE void NAME(order)(__m512i *low, __m512i *high)
{
    const __m512i least = MIN(*low, *high);
    *high = MAX(*low, *high);
    *low = least;
}

/* The same for a row `high` that is read in the order `mirror`, and stays in it. */
DF_INLINE void NAME(fold)(__m512i *low, __m512i *high, __m512i mirror)
{
    *high = PERMUTE(mirror, *high);
    NAME(order)(low, high);
}

/* Orders each lane and its partner. The lanes `upper` get the greater keys. */
DF_INLINE __m512i NAME(exchange)(__m512i v, __m512i partner, MASK upper)
{
    const __m512i other = PERMUTE(partner, v);
    return MASK_MAX(MIN(v, other), upper, v, other);
}

DF_INLINE __m512i NAME(lane_xor)(int x)
{
    return _mm512_xor_si512(LANE_NUMBERS, BROADCAST(x));
}

/* Merges groups of width / 2 columns in pairs, for rows whose halves have met their mirror images
 * before. A macro, because the rows are variables. */
#define MERGE_COLUMNS(rows, width)                                                                 \
    DF_FOLD_##rows(FOLD_ROWS);                                                                     \
    for (int by = width / 2, x = width - 1; by > 0; by /= 2, x = by) {                             \
        const __m512i partner = NAME(lane_xor)(x);                                                 \
        const MASK upper = TEST(LANE_NUMBERS, BROADCAST(by));                                      \
        DF_EACH_##rows(EXCHANGE_LANES)                                                             \
    }

/* Sorts all keys of a few rows. */
#define SORT_ROWS(rows, ...)                                                                       \
    static void NAME(sort_##rows)(KEY * a)                                                         \
    {                                                                                              \
        __m512i __VA_ARGS__;                                                                       \
        DF_EACH_##rows(LOAD_ROW);                                                                  \
        DF_SORT_##rows(ORDER_ROWS);                                                                \
        for (int width = 2; width <= LANES; width *= 2) {                                          \
            MERGE_COLUMNS(rows, width)                                                             \
        }                                                                                          \
        DF_EACH_##rows(STORE_ROW);                                                                 \
    }

SORT_ROWS(1, v0)
SORT_ROWS(4, v0, v1, v2, v3)

static void NAME(sort_columns)(KEY *a)
{
    __m512i DF_ROWS_16;
    DF_EACH_16(LOAD_ROW);
    DF_SORT_16(ORDER_ROWS);
    DF_EACH_16(STORE_ROW);
}

/* Sorts the columns of a block in which they are bitonic. */
static void NAME(halve_block)(KEY *a)
{
    __m512i DF_ROWS_16;
    DF_EACH_16(LOAD_ROW);
    DF_HALVE_16(ORDER_ROWS);
    DF_EACH_16(STORE_ROW);
}

static void NAME(merge_block)(KEY *a, int width)
{
    __m512i DF_ROWS_16;
    DF_EACH_16(LOAD_ROW);
    MERGE_COLUMNS(16, width)
    DF_EACH_16(STORE_ROW);
}

/* Orders n pairs of rows. `low` goes forwards, and `high` goes by `step` rows. */
static void NAME(fold_pairs)(KEY *low, KEY *high, int n, int step, __m512i mirror)
{
    for (int i = 0; i < n; i++, low += LANES, high += step * LANES) {
        __m512i v0 = _mm512_load_si512(low), v1 = _mm512_load_si512(high);
        NAME(fold)(&v0, &v1, mirror);
        _mm512_store_si512(low, v0);
        _mm512_store_si512(high, v1);
    }
}

/* Folds each group of `span` rows. A row behind the n-th has keys that are greater than all others,
 * so comparisons with it are left out. */
static void NAME(fold_rows)(KEY *a, int n, int span, __m512i mirror)
{
    for (int begin = 0, end = span; begin + span / 2 < n; begin = end, end += span) {
        const int missing = end > n ? end - n : 0;
        NAME(fold_pairs)
        (a + (begin + missing) * LANES, a + (end - 1 - missing) * LANES, span / 2 - missing, -1,
         mirror);
    }
}

/* Orders the rows i and i + by of each group of 2 by rows. */
static void NAME(halve_rows)(KEY *a, int n, int by)
{
    for (int begin = 0, end = by; end < n; begin += 2 * by, end += 2 * by) {
        const int pairs = end + by > n ? n - end : by;
        NAME(fold_pairs)(a + begin * LANES, a + end * LANES, pairs, 1, LANE_NUMBERS);
    }
}

/* Sorts n rows, which are full blocks. */
static void NAME(sort_blocks)(KEY *a, int n)
{
    int span = BLOCK;
    for (int b = 0; b < n; b += BLOCK) NAME(sort_columns)(a + b * LANES);
    for (; span < n; span *= 2) {
        NAME(fold_rows)(a, n, 2 * span, LANE_NUMBERS);
        for (int by = span / 2; by >= BLOCK; by /= 2) NAME(halve_rows)(a, n, by);
        for (int b = 0; b < n; b += BLOCK) NAME(halve_block)(a + b * LANES);
    }
    for (int width = 2; width <= LANES; width *= 2) {
        for (int s = span; s > BLOCK; s /= 2) NAME(fold_rows)(a, n, s, NAME(lane_xor)(width - 1));
        for (int b = 0; b < n; b += BLOCK) NAME(merge_block)(a + b * LANES, width);
    }
}

/* Sorts at most MOST_ROWS of keys of a, and writes their elements to `to`, which may be a. */
static DF_NOINLINE void NAME(sort_few)(const KEY *a, KEY *to, int64_t n, form f)
{
    _Alignas(64) KEY few[(MOST_ROWS + 1) * LANES];
    const int full = (int)((n + LANES - 1) / LANES);
    const int rows = full <= 1 ? 1 : full <= 4 ? 4 : (full + BLOCK - 1) / BLOCK * BLOCK;
    memcpy(few, a, (size_t)n * sizeof *a);
    for (int64_t i = n; i < rows * LANES; i += LANES) _mm512_storeu_si512(few + i, GREATEST);
    if (rows == 1)
        NAME(sort_1)(few);
    else if (rows == 4)
        NAME(sort_4)(few);
    else
        NAME(sort_blocks)(few, rows);
    NAME(write)(few, to, n, f);
}

#undef SORT_ROWS
#undef MERGE_COLUMNS
#undef EXCHANGE_LANES
#undef FOLD_ROWS
#undef ORDER_ROWS
#undef STORE_ROW
#undef LOAD_ROW
