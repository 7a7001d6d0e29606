/* SPDX-License-Identifier: Apache-2.0
 *
 * Words in order: a stable radix sort from the least significant digit (Knuth, The Art of Computer
 * Programming 3, 5.2.5). Floats become keys with the same order after Herf 2001.
 *
 * An element is one word, so a pass moves 8 bytes per element. Passes alternate between two arrays.
 * A digit that is the same in all elements costs no pass.
 *
 * Keys of 64 bits are sorted by their upper halves. Then each run of words with equal upper halves
 * is sorted by the lower halves, which are loaded through the indices. Most keys have an upper half
 * of their own. When few have, the runs are long, and the digits of the upper halves are few.
 */
#include "runtime/sort/keys.h"

enum { FEW = 24, MANY = 4096, NARROW = 8, MAX_PASSES = 4 };
enum { PART = 1024 }; /* words of a part of the row, which stay in the first cache */

void df_order_load(const df_routine_job *j, const char *in, int64_t begin, int64_t end, int shift,
                   uint64_t *to)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
#define ROW(T)                                                                                     \
    for (int64_t i = begin; i < end; i++)                                                          \
        to[i - begin] = df_order_word((df_order_key(T, in + i * step) ^ flip) >> shift, i);        \
    return
#include "runtime/sort/order_each.def"
    df_unreachable();
}

void df_order_load_half(const df_routine_job *j, const char *in, int shift, uint64_t *w, int64_t n)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
#define ROW(T)                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const int64_t index = (int64_t)(uint32_t)w[i];                                             \
        w[i] = df_order_word((df_order_key(T, in + index * step) ^ flip) >> shift, index);         \
    }                                                                                              \
    return
#include "runtime/sort/order_each.def"
    df_unreachable();
}

void df_order_copy(size_t size, const char *in, int64_t step, char *to, int64_t n)
{
    if (step == (int64_t)size) {
        memcpy(to, in, (size_t)n * size);
        return;
    }
#define COPY(bytes)                                                                                \
    case bytes:                                                                                    \
        for (int64_t i = 0; i < n; i++) memcpy(to + i * bytes, in + i * step, bytes);              \
        return
    switch (size) {
        COPY(1);
        COPY(2);
        COPY(4);
        COPY(8);
    }
#undef COPY
    df_unreachable();
}

static void insert(uint64_t *w, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t v = w[i];
        int64_t k = i;
        for (; k > 0 && w[k - 1] >> 32 > v >> 32; k--) w[k] = w[k - 1];
        w[k] = v;
    }
}

/* ---- passes ---- */

/* The digits of the keys of a row, and which of them differ. */
typedef struct digits {
    uint32_t count[MAX_PASSES][1 << DF_ORDER_WIDE];
    int bits, n;           /* of a digit; passes */
    int shift[MAX_PASSES]; /* of the digit of each pass, in a word */
} digits;

static void digits_init(digits *x, int64_t n)
{
    x->bits = n < MANY ? NARROW : DF_ORDER_WIDE;
    x->n = (DF_ORDER_KEY_BITS + x->bits - 1) / x->bits;
    for (int p = 0; p < x->n; p++) memset(x->count[p], 0, sizeof **x->count << x->bits);
}

static void digits_count(digits *x, const uint64_t *w, int64_t n)
{
    const int bits = x->bits, n_passes = x->n;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = (uint32_t)(w[i] >> 32);
        for (int p = 0; p < n_passes; p++, key >>= bits) x->count[p][key & mask]++;
    }
}

/* Leaves the passes whose digits differ, and turns their counts into the places of the first words.
 * first: any of the n words. */
static void digits_place(digits *x, uint64_t first, int64_t n)
{
    const int n_digits = x->n;
    const uint32_t mask = (1u << x->bits) - 1;
    x->n = 0;
    for (int p = 0; p < n_digits; p++) {
        const int shift = 32 + p * x->bits;
        uint32_t *const at = x->count[p], sum = 0;
        if (at[first >> shift & mask] == n) continue;
        for (uint32_t d = 0; d <= mask; d++) {
            const uint32_t here = at[d];
            at[d] = sum;
            sum += here;
        }
        if (x->n != p) memcpy(x->count[x->n], at, sizeof *at << x->bits);
        x->shift[x->n++] = shift;
    }
}

static void digits_move(digits *x, int p, const uint64_t *from, uint64_t *to, int64_t n)
{
    const uint32_t mask = (1u << x->bits) - 1;
    uint32_t *const at = x->count[p];
    const int shift = x->shift[p];
    for (int64_t i = 0; i < n; i++) to[at[from[i] >> shift & mask]++] = from[i];
}

static void digits_move_indices(digits *x, int p, const uint64_t *from, int64_t *to, int64_t n)
{
    const uint32_t mask = (1u << x->bits) - 1;
    uint32_t *const at = x->count[p];
    const int shift = x->shift[p];
    for (int64_t i = 0; i < n; i++) to[at[from[i] >> shift & mask]++] = (int64_t)(uint32_t)from[i];
}

/* Sorts the n words of a by their upper halves. */
static uint64_t *radix(uint64_t *a, uint64_t *b, int64_t n)
{
    digits x;
    if (n <= FEW) return insert(a, n), a;
    digits_init(&x, n);
    digits_count(&x, a, n);
    digits_place(&x, a[0], n);
    for (int p = 0; p < x.n; p++) {
        digits_move(&x, p, a, b, n);
        uint64_t *const other = a;
        a = b;
        b = other;
    }
    return a;
}

/* The same for words of which the index may count, too. */
static uint64_t *sort_halves(uint64_t *a, uint64_t *b, int64_t n)
{
    /* Words contain their index, so a sort of whole words is stable. */
    const df_keys *const keys = df_keys_best();
    return n < keys->n_words ? keys->sort(sizeof *a, a, b, n) : radix(a, b, n);
}

/* ---- keys of 64 bits ---- */

/* Sorts n words of equal upper halves by the lower halves. */
static void sort_run(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b, int64_t n)
{
    const uint64_t upper = a[0] >> 32;
    df_order_load_half(j, in, 0, a, n);
    const uint64_t *const sorted = n <= FEW ? (insert(a, n), a) : radix(a, b, n);
    for (int64_t i = 0; i < n; i++) a[i] = df_order_word(upper, (int64_t)(uint32_t)sorted[i]);
}

/* Fetches the elements of the words [begin, end) that are in runs. The words that are in none all
 * fetch the first element, because a branch would be hard to predict. */
static void fetch_runs(const df_routine_job *j, const char *in, const uint64_t *a, int64_t begin,
                       int64_t end, int64_t n)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    for (int64_t i = begin; i < end; i++) {
        const uint64_t upper = a[i] >> 32;
        const bool follows = i > 0 && a[i - 1] >> 32 == upper;
        const bool leads = i + 1 < n && a[i + 1] >> 32 == upper;
        __builtin_prefetch(in + (int64_t)(uint32_t)a[i] * step * (follows | leads));
    }
}

/* Sorts the runs of a, which is in the order of the upper halves. */
static void sort_runs(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b, int64_t n)
{
    int64_t fetched = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        if (i >= fetched) {
            fetched = df_min_i64(i + PART / 4, n);
            fetch_runs(j, in, a, i, fetched, n);
        }
        for (end = i + 1; end < n && a[end] >> 32 == a[i] >> 32;) end++;
        if (end > i + 1) sort_run(j, in, a + i, b + i, end - i);
    }
}

/* ---- order.h ---- */

uint64_t *df_order_words(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b,
                         int64_t n)
{
    const bool is_wide = deft_dtype_size(j->dtype) == 8;
    if (is_wide) df_order_load_half(j, in, 32, a, n);
    uint64_t *const sorted = sort_halves(a, b, n);
    if (is_wide) sort_runs(j, in, sorted, sorted == a ? b : a, n);
    return sorted;
}

static void write_indices(const uint64_t *w, int64_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (int64_t)(uint32_t)w[i];
}

/* df_order_row by digits. `b` becomes the result. While the digits are counted, its lines are
 * fetched in order: the first pass writes them at random, and would wait for each. */
static void sort_row_by_digits(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b)
{
    const int64_t n = j->n;
    const bool is_wide = deft_dtype_size(j->dtype) == 8;
    digits x;
    digits_init(&x, n);
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t some = df_min_i64(n - at, PART);
        df_order_load(j, in, at, at + some, is_wide ? 32 : 0, a + at);
        digits_count(&x, a + at, some);
        df_order_fetch(b + at, some);
    }
    digits_place(&x, a[0], n);
    const bool last_writes_indices = !is_wide && x.n % 2 == 1;
    uint64_t *from = a, *to = b;
    for (int p = 0; p < x.n - last_writes_indices; p++) {
        digits_move(&x, p, from, to, n);
        uint64_t *const other = from;
        from = to;
        to = other;
    }
    if (is_wide) sort_runs(j, in, from, to, n);
    if (last_writes_indices)
        digits_move_indices(&x, x.n - 1, from, (int64_t *)b, n);
    else
        write_indices(from, (int64_t *)b, n);
}

void df_order_row(const df_routine_job *j, const char *in, int64_t *out, uint64_t *work)
{
    /* Access through the unsigned type of a signed one is allowed (C11 6.5, 7). */
    uint64_t *const b = (uint64_t *)out;
    const int64_t n = j->n;
    if (n > FEW && n >= df_keys_best()->n_words) {
        sort_row_by_digits(j, in, work, b);
        return;
    }
    df_order_load(j, in, 0, n, 0, work);
    write_indices(df_order_words(j, in, work, b, n), out, n);
}
