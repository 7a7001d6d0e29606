/* SPDX-License-Identifier: Apache-2.0
 *
 * sort: the elements of each row in order, without indices (keys.h).
 *
 * The comparables of a row are sorted, and become elements again. Elements that compare as equal
 * may still differ: NaNs, and zeros with different signs. In a row that has some, these elements
 * are written once more, in the order of the row. So the result is that of argsort and a gather.
 *
 * A row that is in order, or in the opposite order, is only copied. The elements of a row that has
 * few distinct ones are counted (sort_counts.c). With AVX-512, a long row is divided in two while
 * it is loaded, which is then no pass of its own.
 *
 * One long row on all threads: the row is divided into pieces, one for each thread. All pieces are
 * split at the same pivots, which a sample gives. The parts of all pieces between two pivots form a
 * bucket, and each thread sorts a bucket.
 *
 * Elements of less than 4 bytes are sorted as words, and fetched through the indices.
 */
#include "runtime/sort/keys.h"

enum { SAMPLE = 1024, FEW = 256 };     /* elements of a sample, for several pivots and for one */
#define LEAST_PIECE ((int64_t)1 << 14) /* elements */

/* ---- elements, keys and comparables ---- */

/* Where element i of the row is. */
static const char *element_at(const df_routine_job *j, const char *in, int64_t i)
{
    return in + i * j->in_step * (int64_t)deft_dtype_size(j->dtype);
}

/* Writes n elements of the row, of which the first is at `in`, as comparables. Returns what `load`
 * returns. */
static bool load(const df_routine_job *j, const df_keys *keys, const char *in, char *to, int64_t n)
{
    const size_t size = deft_dtype_size(j->dtype);
    if (j->in_step != 1) df_order_copy(size, in, j->in_step * (int64_t)size, to, n);
    return keys->load(j->dtype, df_order_flip(j), j->in_step == 1 ? in : to, to, n);
}

/* Writes `count` comparables in order: those of a sample of the n elements from `in` on. */
static DF_COLD void take_sample(const df_routine_job *j, const df_keys *keys, const char *in,
                                int64_t n, int64_t count, uint64_t *sample)
{
    const size_t size = deft_dtype_size(j->dtype);
    uint64_t scratch[SAMPLE];
    char *const to = (char *)sample;
    df_assert(count <= SAMPLE && count <= n);
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * (int64_t)size, element_at(j, in, n / count * i), size);
    keys->load(j->dtype, df_order_flip(j), to, to, count);
    keys->sort_loaded(j->dtype, df_order_flip(j), to, scratch, count);
    keys->load(j->dtype, df_order_flip(j), to, to, count);
}

/* Writes the elements whose keys say too little: NaNs and zeros, in the order of the row. */
static DF_COLD void repair(const df_routine_job *j, const char *in, char *out)
{
    const size_t size = deft_dtype_size(j->dtype);
    const int64_t step = j->in_step * (int64_t)size;
    const uint64_t sign = df_sign_bit(j->dtype), infinity = df_infinity_bits(j->dtype);
    const bool is_down = j->attr & DF_ORDER_DESCENDING;
    int64_t n_nan = 0, n_zero = 0, n_below = 0;
    for (int64_t i = 0; i < j->n; i++) {
        const uint64_t b = df_bits_load(in + i * step, size);
        const bool is_nan = (b & ~sign) > infinity, is_zero = (b & ~sign) == 0;
        n_nan += is_nan;
        n_zero += is_zero;
        n_below += !is_nan && !is_zero && b & sign;
    }
    int64_t nan_at = is_down ? 0 : j->n - n_nan;
    int64_t zero_at = is_down ? j->n - n_below - n_zero : n_below;
    for (int64_t i = 0; i < j->n; i++) {
        const uint64_t b = df_bits_load(in + i * step, size);
        if ((b & ~sign) > infinity) df_bits_store(out + nan_at++ * (int64_t)size, b, size);
        if ((b & ~sign) == 0) df_bits_store(out + zero_at++ * (int64_t)size, b, size);
    }
}

/* Whether no key is less than the one before it; down: greater. */
static bool is_in_order(size_t size, const void *keys, int64_t n, bool down)
{
    bool is = true;
    for (int64_t i = 1; i < n; i++) {
        const uint64_t a = df_key_at(size, keys, i - 1), b = df_key_at(size, keys, i);
        is &= down ? a >= b : a <= b;
    }
    return is;
}

/* Writes a row that is in order, or in the opposite order. Returns false when the row is neither.
 * Equal elements in the opposite order must be alike. */
static bool copy_ordered(const df_routine_job *j, const df_keys *keys, const char *in, char *out)
{
    enum { PART = 64 };
    const size_t size = deft_dtype_size(j->dtype);
    const int64_t step = j->in_step * (int64_t)size;
    uint64_t part[PART];
    bool up = true, down = true;
    for (int64_t at = 0; at + 1 < j->n && (up || down); at += PART - 1) {
        const int64_t n = df_min_i64(j->n - at, PART);
        const char *const from = element_at(j, in, at);
        if (step != (int64_t)size) df_order_copy(size, from, step, (char *)part, n);
        const void *const elements = step == (int64_t)size ? (const void *)from : part;
        const bool loses = keys->from_bits(j->dtype, df_order_flip(j), elements, part, n);
        up = up && is_in_order(size, part, n, false);
        down = down && !loses && is_in_order(size, part, n, true);
    }
    if (up)
        df_order_copy(size, in, step, out, j->n);
    else if (down)
        df_order_copy(size, element_at(j, in, j->n - 1), -step, out, j->n);
    return up || down;
}

/* ---- rows ---- */

/* Sorts a row of words and fetches its elements. work: 2 n words. */
static void sort_short_elements(const df_routine_job *j, const char *in, char *out, uint64_t *work)
{
    const size_t size = deft_dtype_size(j->dtype);
    const int64_t step = j->in_step * (int64_t)size;
    df_order_load(j, in, 0, j->n, 0, work);
    const uint64_t *const at = df_order_words(j, in, work, work + j->n, j->n);
    if (size == 1)
        for (int64_t i = 0; i < j->n; i++) out[i] = in[(int64_t)(uint32_t)at[i] * step];
    else
        for (int64_t i = 0; i < j->n; i++)
            memcpy(out + 2 * i, in + (int64_t)(uint32_t)at[i] * step, 2);
}

static bool is_short(const df_routine_job *j)
{
    return deft_dtype_size(j->dtype) < 4;
}

/* Sorts the elements of a row. Returns whether some must be repaired. */
static bool sort_elements(const df_routine_job *j, const df_keys *keys, const char *in, char *out,
                          char *work)
{
    const uint64_t flip = df_order_flip(j);
    const size_t size = deft_dtype_size(j->dtype);
    bool loses = false;
    int64_t below = 0;
    if (keys->n_split > 0 && j->n >= keys->n_split && j->in_step == 1) {
        uint64_t some[FEW];
        take_sample(j, keys, in, j->n, FEW, some);
        const uint64_t pivot = df_key_at(size, some, FEW / 2);
        below = keys->split(j->dtype, flip, in, out, j->n, pivot, &loses);
    } else {
        loses = load(j, keys, in, out, j->n);
    }
    const size_t behind = (size_t)below * size;
    if (below > 0) keys->sort_loaded(j->dtype, flip, out, work, below);
    keys->sort_loaded(j->dtype, flip, out + behind, work + behind, j->n - below);
    return loses;
}

void df_sort_values_row(const df_routine_job *j, const char *in, char *out, void *work)
{
    const df_keys *const keys = df_keys_best();
    if (is_short(j)) {
        sort_short_elements(j, in, out, work);
        return;
    }
    if (copy_ordered(j, keys, in, out)) return;
    bool loses = false;
    if (!df_sort_counts(j, NULL, 1, in, out, work, &loses))
        loses = sort_elements(j, keys, in, out, work);
    if (loses) repair(j, in, out);
}

size_t df_sort_values_row_size(const df_routine_job *j)
{
    const size_t each = is_short(j) ? 2 * sizeof(uint64_t) : deft_dtype_size(j->dtype);
    return ((size_t)j->n * each + 63) & ~(size_t)63;
}

/* ---- one long row on all threads ---- */

enum { MAX_PIECES = 64 };

typedef struct buckets {
    const df_routine_job *j;
    const df_keys *keys;
    const char *in;
    char *work, *out;
    size_t size;                               /* bytes of an element */
    deft_dtype comparable;                     /* the dtype by which comparables are compared */
    int64_t n;                                 /* pieces, and buckets */
    uint64_t pivot[MAX_PIECES];                /* between buckets */
    int64_t begin[MAX_PIECES][MAX_PIECES + 1]; /* of piece p: where its part of bucket b begins */
    int64_t at[MAX_PIECES + 1];                /* where bucket b begins in the result */
    bool loses[MAX_PIECES];                    /* per piece */
} buckets;

static int64_t n_pieces_of(const df_routine_job *j, uint32_t n_threads)
{
    return df_min_i64(df_min_i64(n_threads, MAX_PIECES), j->n / LEAST_PIECE);
}

bool df_sort_values_is_long(const df_routine_job *j, uint32_t n_threads)
{
    return !is_short(j) && j->n_batch < (int64_t)n_threads && n_pieces_of(j, n_threads) > 1;
}

static int64_t begin_of(const buckets *x, int64_t piece)
{
    return df_order_piece(x->j->n, x->n, piece);
}

static char *key_of(const buckets *x, char *keys, int64_t i)
{
    return keys + i * (int64_t)x->size;
}

/* Splits the comparables [begin, end) of a piece at the pivots between the buckets [from, to). */
static DF_COLD void split_loaded(buckets *x, int64_t piece, int64_t begin, int64_t end,
                                 int64_t from, int64_t to)
{
    if (to - from < 2) return;
    const int64_t middle = (from + to) / 2;
    char *const a = key_of(x, x->work, begin), *const b = key_of(x, x->out, begin);
    bool loses = false;
    const int64_t below =
        x->keys->split(x->comparable, 0, a, b, end - begin, x->pivot[middle], &loses);
    memcpy(a, b, (size_t)(end - begin) * x->size);
    x->begin[piece][middle] = begin + below;
    split_loaded(x, piece, begin, begin + below, from, middle);
    split_loaded(x, piece, begin + below, end, middle, to);
}

static DF_COLD void split_piece(void *user, uint32_t piece, uint32_t thread)
{
    buckets *const x = user;
    const df_routine_job *const j = x->j;
    const int64_t begin = begin_of(x, piece), end = begin_of(x, piece + 1), middle = x->n / 2;
    const char *in = element_at(j, x->in, begin);
    (void)thread;
    if (j->in_step != 1) {
        char *const to = key_of(x, x->out, begin);
        df_order_copy(x->size, in, j->in_step * (int64_t)x->size, to, end - begin);
        in = to;
    }
    bool loses = false;
    const int64_t at =
        begin + x->keys->split(j->dtype, df_order_flip(j), in, key_of(x, x->work, begin),
                               end - begin, x->pivot[middle], &loses);
    x->loses[piece] = loses;
    x->begin[piece][0] = begin;
    x->begin[piece][middle] = at;
    x->begin[piece][x->n] = end;
    split_loaded(x, piece, begin, at, 0, middle);
    split_loaded(x, piece, at, end, middle, x->n);
}

static void collect_bucket(void *user, uint32_t bucket, uint32_t thread)
{
    const buckets *const x = user;
    char *to = key_of(x, x->out, x->at[bucket]);
    (void)thread;
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t begin = x->begin[i][bucket];
        const size_t bytes = (size_t)(x->begin[i][bucket + 1] - begin) * x->size;
        memcpy(to, key_of(x, x->work, begin), bytes);
        to += bytes;
    }
}

static void sort_bucket(void *user, uint32_t bucket, uint32_t thread)
{
    const buckets *const x = user;
    const int64_t begin = x->at[bucket], n = x->at[bucket + 1] - begin;
    char *const keys = key_of(x, x->out, begin);
    (void)thread;
    x->keys->sort_loaded(x->j->dtype, df_order_flip(x->j), keys, key_of(x, x->work, begin), n);
}

/* Takes pivots from a sample. */
static DF_COLD void choose_pivots(buckets *x)
{
    uint64_t some[SAMPLE];
    take_sample(x->j, x->keys, x->in, x->j->n, SAMPLE, some);
    for (int64_t i = 1; i < x->n; i++) x->pivot[i] = df_key_at(x->size, some, SAMPLE * i / x->n);
}

static DF_COLD void place_buckets(buckets *x)
{
    int64_t sum = 0;
    for (int64_t b = 0; b < x->n; b++) {
        x->at[b] = sum;
        for (int64_t i = 0; i < x->n; i++) sum += x->begin[i][b + 1] - x->begin[i][b];
    }
    x->at[x->n] = sum;
}

void df_sort_values_long(const df_routine_job *j, df_pool *pool, const char *in, char *out,
                         void *work)
{
    const df_keys *const keys = df_keys_best();
    const uint32_t n = (uint32_t)n_pieces_of(j, df_pool_threads(pool));
    bool loses = false;
    if (copy_ordered(j, keys, in, out)) return;
    if (!df_sort_counts(j, pool, n, in, out, work, &loses)) {
        buckets x = { .j = j, .keys = keys, .in = in, .work = work, .out = out, .n = n };
        x.size = deft_dtype_size(j->dtype);
        x.comparable = x.size == 4                                 ? DEFT_U32
                       : keys->has_doubles && j->dtype == DEFT_F64 ? DEFT_F64
                                                                   : DEFT_U64;
        choose_pivots(&x);
        df_pool_run(pool, n, split_piece, &x);
        place_buckets(&x);
        df_pool_run(pool, n, collect_bucket, &x);
        df_pool_run(pool, n, sort_bucket, &x);
        for (uint32_t i = 0; i < n; i++) loses |= x.loses[i];
    }
    if (loses) repair(j, in, out);
}
