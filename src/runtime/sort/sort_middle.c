/* SPDX-License-Identifier: Apache-2.0
 *
 * A few elements in the middle of the order of a row, without a sort of the row (Floyd and Rivest,
 * "Expected Time Bounds for Selection", 1975).
 *
 * A sorted sample of the keys gives two keys between which those of the elements very probably are.
 * One pass makes all keys, counts those before the first of the two, and collects those between
 * them, which are then sorted, or searched for one key. When the wanted keys are not among them,
 * the caller sorts the row. Another pass finds the index of each wanted key. Equal elements keep
 * their order: the number of equal keys before it says which of them is wanted.
 */
#include "runtime/sort/keys.h"

enum { MAX_PIECES = 64, LEAST_SAMPLE = 64, MOST_SAMPLE = 4096, MOST_WANTED = 2 };
enum { PART = 1024 }; /* elements of a part of the row, whose keys stay in the first cache */
#define LEAST_ROW ((int64_t)512)       /* elements */
#define LEAST_PIECE ((int64_t)1 << 14) /* elements */

typedef struct middle {
    const df_routine_job *j;
    const df_keys *ways;
    const char *in;
    size_t size;        /* bytes of a key */
    char *keys, *found; /* n each; each piece has the part of its elements */
    uint64_t low, high;
    int64_t n; /* pieces */
    int64_t n_found[MAX_PIECES], n_below[MAX_PIECES];
} middle;

bool df_middle_pays(const df_routine_job *j)
{
    return j->n >= LEAST_ROW && j->m <= MOST_WANTED;
}

int64_t df_middle_pieces(const df_routine_job *j, uint32_t n_threads)
{
    return df_min_i64(df_min_i64(n_threads, MAX_PIECES), j->n / LEAST_PIECE);
}

/* ---- the sample ---- */

/* About 4 sqrt(n): then the sample and the elements between the two keys take equally long. */
static int64_t sample_size(int64_t n)
{
    int64_t s = LEAST_SAMPLE;
    while (s < MOST_SAMPLE && s * s < 4 * n) s *= 2;
    return s;
}

/* Three deviations of the rank of an element in a sample of s. */
static int64_t margin_of(int64_t s)
{
    int64_t root = 1;
    while ((root + 1) * (root + 1) <= s) root++;
    return 3 * root / 2;
}

/* The n elements at `in`, which are `step` bytes apart, as keys. */
static void load_keys(const middle *x, const char *in, int64_t step, int64_t n, char *to)
{
    const df_routine_job *const j = x->j;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
    if (size >= 4) {
        if (step != size) df_order_copy((size_t)size, in, step, to, n);
        x->ways->from_bits(j->dtype, flip, step == size ? in : to, to, n);
        return;
    }
#define ROW(T)                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const uint64_t key = df_order_key(T, in + i * step) ^ flip;                                \
        const size_t bytes = df_bytes_of(T) == 8 ? 8 : 4;                                          \
        memcpy(to + (size_t)i * bytes, &key, bytes);                                               \
    }                                                                                              \
    break
#include "runtime/sort/order_each.def"
}

/* Whether the keys of the row stay in the first cache. Then they are written before the sample is
 * taken from them. */
static bool is_one_part(const df_routine_job *j)
{
    return j->n <= PART;
}

static int64_t step_of(const middle *x)
{
    return x->j->in_step * (int64_t)deft_dtype_size(x->j->dtype);
}

/* The sample is where keys are collected later: a row of LEAST_ROW elements has room for two. */
static void choose_bounds(middle *x)
{
    const df_routine_job *const j = x->j;
    const int64_t s = sample_size(j->n), margin = margin_of(s), bytes = s * (int64_t)x->size;
    df_assert(2 * s <= j->n);
    if (is_one_part(j))
        df_order_copy(x->size, x->keys, j->n / s * (int64_t)x->size, x->found, s);
    else
        load_keys(x, x->in, j->n / s * step_of(x), s, x->found);
    const char *const sorted = x->ways->sort(x->size, x->found, x->found + bytes, s);
    const double share = (double)s / (double)j->n;
    const int64_t low = (int64_t)((double)j->first * share) - margin;
    const int64_t high = (int64_t)((double)(j->first + j->m) * share) + margin;
    x->low = low < 0 ? 0 : df_key_at(x->size, sorted, low);
    x->high = high >= s ? UINT64_MAX : df_key_at(x->size, sorted, high);
}

/* ---- the pass ---- */

static int64_t begin_of(const middle *x, int64_t piece)
{
    return df_order_piece(x->j->n, x->n, piece);
}

/* Writes the keys of a piece, part by part, and collects those between the bounds while the part is
 * in the first cache. */
static void collect(void *user, uint32_t piece, uint32_t thread)
{
    middle *const x = user;
    const int64_t begin = begin_of(x, piece), end = begin_of(x, piece + 1), step = step_of(x);
    const int64_t size = (int64_t)x->size;
    int64_t n_found = 0, n_below = 0;
    (void)thread;
    for (int64_t at = begin; at < end; at += PART) {
        const int64_t n = df_min_i64(end - at, PART);
        char *const keys = x->keys + at * size;
        if (!is_one_part(x->j)) load_keys(x, x->in + at * step, step, n, keys);
        n_found += x->ways->between(x->size, keys, x->found + (begin + n_found) * size, n, x->low,
                                    x->high, &n_below);
    }
    x->n_found[piece] = n_found;
    x->n_below[piece] = n_below;
}

/* The index of the element whose key is at position `at` of the sorted keys. */
static int64_t index_of(const middle *x, const char *sorted, int64_t at)
{
    const uint64_t key = df_key_at(x->size, sorted, at);
    int64_t first = at;
    while (first > 0 && df_key_at(x->size, sorted, first - 1) == key) first--;
    return x->ways->find(x->size, x->keys, x->j->n, key, at - first);
}

bool df_middle(const df_routine_job *j, df_pool *pool, const char *in, int64_t *out, uint64_t *work)
{
    middle x = { .j = j, .ways = df_keys_best(), .in = in, .keys = (char *)work, .n = 1 };
    const int64_t size = deft_dtype_size(j->dtype) == 8 ? 8 : 4;
    x.size = (size_t)size;
    x.found = x.keys + j->n * size;
    if (pool) x.n = df_middle_pieces(j, df_pool_threads(pool));
    if (is_one_part(j)) load_keys(&x, in, step_of(&x), j->n, x.keys);
    choose_bounds(&x);
    if (pool)
        df_pool_run(pool, (uint32_t)x.n, collect, &x);
    else
        collect(&x, 0, 0);
    int64_t n = 0, below = 0;
    for (int64_t i = 0; i < x.n; i++) {
        memmove(x.found + n * size, x.found + begin_of(&x, i) * size,
                (size_t)(x.n_found[i] * size));
        n += x.n_found[i];
        below += x.n_below[i];
    }
    if (below > j->first || below + n < j->first + j->m || n > j->n / 2) return false;
    char *const work_of_found = x.found + n * size;
    if (j->m == 1 && x.ways->nth) {
        int64_t lesser, at = j->first - below;
        const uint64_t key = x.ways->nth(x.size, x.found, work_of_found, n, at, &lesser);
        out[0] = x.ways->find(x.size, x.keys, j->n, key, at - lesser);
        return true;
    }
    const char *const sorted = x.ways->sort(x.size, x.found, work_of_found, n);
    for (int64_t i = 0; i < j->m; i++) out[i] = index_of(&x, sorted, j->first - below + i);
    return true;
}
