/* SPDX-License-Identifier: Apache-2.0
 *
 * sort: the elements of each row in order, without indices (keys.h).
 *
 * The keys of a row are sorted, and become elements again. Elements with equal keys may still
 * differ: NaNs, and zeros with different signs. In a row that has some, these elements are written
 * once more, in the order of the row. So the result is that of argsort and a gather.
 *
 * A row that is in order, or in the opposite order, is only copied.
 *
 * One long row on all threads: the row is divided into pieces, one for each thread. All pieces are
 * split at the same pivots, which a sample gives. The parts of all pieces between two pivots form a
 * bucket, and each thread sorts a bucket.
 *
 * Elements of less than 4 bytes are sorted as words, and fetched through the indices.
 */
#include "runtime/sort/keys.h"

enum { SAMPLE = 1024 };                /* keys */
#define LEAST_PIECE ((int64_t)1 << 14) /* elements */

/* ---- elements and keys ---- */

/* Writes the keys of n elements of the row, of which the first is at `in`. Returns what from_bits
 * returns. */
static bool load_keys(const df_routine_job *j, const df_keys *keys, const char *in, char *to,
                      int64_t n)
{
    const size_t size = deft_dtype_size(j->dtype);
    if (j->in_step != 1) df_order_copy(size, in, j->in_step * (int64_t)size, to, n);
    return keys->from_bits(j->dtype, df_order_flip(j), j->in_step == 1 ? in : to, to, n);
}

/* Writes the elements whose keys say too little: NaNs and zeros, in the order of the row. */
static void repair(const df_routine_job *j, const char *in, char *out)
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

/* Writes a row that is in order, or in the opposite order. keys: of the row. Returns false when the
 * row is neither. Equal elements in the opposite order must be alike. */
static bool copy_ordered(const df_routine_job *j, const char *in, const char *keys, bool loses,
                         char *out)
{
    const size_t size = deft_dtype_size(j->dtype);
    const int64_t step = j->in_step * (int64_t)size;
    int64_t up = 1, down = 1;
    while (up < j->n && df_key_at(size, keys, up - 1) <= df_key_at(size, keys, up)) up++;
    if (up == j->n) return df_order_copy(size, in, step, out, j->n), true;
    while (!loses && down < j->n && df_key_at(size, keys, down - 1) >= df_key_at(size, keys, down))
        down++;
    if (down < j->n) return false;
    df_order_copy(size, in + (j->n - 1) * step, -step, out, j->n);
    return true;
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

void df_sort_values_row(const df_routine_job *j, const char *in, char *out, void *work)
{
    const size_t size = deft_dtype_size(j->dtype);
    const df_keys *const keys = df_keys_best();
    if (is_short(j)) {
        sort_short_elements(j, in, out, work);
        return;
    }
    const bool loses = load_keys(j, keys, in, work, j->n);
    if (copy_ordered(j, in, work, loses, out)) return;
    char *const sorted = keys->sort(size, work, out, j->n);
    if (sorted != out) memcpy(out, sorted, (size_t)j->n * size);
    keys->to_bits(j->dtype, df_order_flip(j), out, j->n);
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
    size_t size;                               /* bytes of a key */
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

static void load_keys_of_piece(void *user, uint32_t piece, uint32_t thread)
{
    buckets *const x = user;
    const int64_t begin = begin_of(x, piece), n = begin_of(x, piece + 1) - begin;
    const int64_t step = x->j->in_step * (int64_t)x->size;
    char *const to = key_of(x, x->work, begin);
    (void)thread;
    x->loses[piece] = load_keys(x->j, x->keys, x->in + begin * step, to, n);
}

/* Splits the keys [begin, end) of a piece at the pivots between the buckets [from, to). */
static void split_keys(buckets *x, int64_t piece, int64_t begin, int64_t end, int64_t from,
                       int64_t to)
{
    if (to - from < 2) return;
    const int64_t middle = (from + to) / 2;
    char *const keys = key_of(x, x->work, begin);
    const int64_t at = begin + x->keys->split(x->size, keys, key_of(x, x->out, begin), end - begin,
                                              x->pivot[middle]);
    x->begin[piece][middle] = at;
    split_keys(x, piece, begin, at, from, middle);
    split_keys(x, piece, at, end, middle, to);
}

static void split_piece(void *user, uint32_t piece, uint32_t thread)
{
    buckets *const x = user;
    (void)thread;
    x->begin[piece][0] = begin_of(x, piece);
    x->begin[piece][x->n] = begin_of(x, piece + 1);
    split_keys(x, piece, x->begin[piece][0], x->begin[piece][x->n], 0, x->n);
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
    const char *const sorted = x->keys->sort(x->size, keys, key_of(x, x->work, begin), n);
    if (sorted != keys) memcpy(keys, sorted, (size_t)n * x->size);
    x->keys->to_bits(x->j->dtype, df_order_flip(x->j), keys, n);
}

/* Takes pivots from a sample of the keys. */
static void choose_pivots(buckets *x)
{
    uint64_t some[2][SAMPLE];
    for (int64_t i = 0; i < SAMPLE; i++)
        some[0][i] = df_key_at(x->size, x->work, x->j->n / SAMPLE * i);
    const uint64_t *const sorted = x->keys->sort(sizeof **some, some[0], some[1], SAMPLE);
    for (int64_t i = 1; i < x->n; i++) x->pivot[i] = sorted[SAMPLE * i / x->n];
}

static void place_buckets(buckets *x)
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
    buckets x = { .j = j, .keys = df_keys_best(), .in = in, .work = work, .out = out };
    const uint32_t n = (uint32_t)n_pieces_of(j, df_pool_threads(pool));
    x.size = deft_dtype_size(j->dtype);
    x.n = n;
    bool loses = false;
    df_pool_run(pool, n, load_keys_of_piece, &x);
    for (uint32_t i = 0; i < n; i++) loses |= x.loses[i];
    if (copy_ordered(j, in, work, loses, out)) return;
    choose_pivots(&x);
    df_pool_run(pool, n, split_piece, &x);
    place_buckets(&x);
    df_pool_run(pool, n, collect_bucket, &x);
    df_pool_run(pool, n, sort_bucket, &x);
    if (loses) repair(j, in, out);
}
