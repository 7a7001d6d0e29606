/* SPDX-License-Identifier: Apache-2.0
 *
 * A few elements in the middle of the order of a row, without a sort of the row (Floyd and Rivest,
 * "Expected Time Bounds for Selection", 1975).
 *
 * A sorted sample gives two keys between which the elements very probably are. One pass over the
 * row counts the elements before the first key, and collects those between the keys, which are then
 * sorted. When the elements are not among them, the caller sorts the row.
 */
#include "runtime/sort/keys.h"

enum { MAX_PIECES = 64, LEAST_SAMPLE = 64, MOST_SAMPLE = 4096, FEW = 8 };
#define LEAST_ROW ((int64_t)512)       /* elements */
#define LEAST_PIECE ((int64_t)1 << 14) /* elements */

typedef struct middle {
    const df_routine_job *j;
    const char *in;
    uint64_t *words;    /* each piece has the part of its elements */
    uint64_t low, high; /* keys */
    int64_t n;          /* pieces */
    int64_t n_found[MAX_PIECES], n_below[MAX_PIECES];
} middle;

bool df_middle_pays(const df_routine_job *j)
{
    return j->n >= LEAST_ROW && j->m <= j->n / FEW;
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

static void choose_bounds(middle *x)
{
    const df_routine_job *const j = x->j;
    const int64_t s = sample_size(j->n), margin = margin_of(s);
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    uint64_t some[2 * MOST_SAMPLE];
    for (int64_t i = 0; i < s; i++)
        some[i] =
            df_order_key(df_order_as(j->dtype), x->in + j->n / s * i * step) ^ df_order_flip(j);
    const uint64_t *const sorted = df_keys_best()->sort(sizeof *some, some, some + s, s);
    const double share = (double)s / (double)j->n;
    const int64_t low = (int64_t)((double)j->first * share) - margin;
    const int64_t high = (int64_t)((double)(j->first + j->m) * share) + margin;
    x->low = low < 0 ? 0 : sorted[low];
    x->high = high >= s ? UINT64_MAX : sorted[high];
}

/* ---- the pass ---- */

static int64_t begin_of(const middle *x, int64_t piece)
{
    return df_order_piece(x->j->n, x->n, piece);
}

static void collect(void *user, uint32_t piece, uint32_t thread)
{
    middle *const x = user;
    const df_routine_job *const j = x->j;
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const int64_t begin = begin_of(x, piece), end = begin_of(x, piece + 1);
    const uint64_t flip = df_order_flip(j), low = x->low, width = x->high - low;
    uint64_t *const words = x->words + begin;
    int64_t n = 0, below = 0;
    (void)thread;
#define ROW(T)                                                                                     \
    for (int64_t i = begin; i < end; i++) {                                                        \
        const uint64_t key = df_order_key(T, x->in + i * step) ^ flip;                             \
        words[n] = df_order_word(key, i);                                                          \
        n += key - low <= width;                                                                   \
        below += key < low;                                                                        \
    }                                                                                              \
    break
#include "runtime/sort/order_each.def"
    x->n_found[piece] = n;
    x->n_below[piece] = below;
}

bool df_middle(const df_routine_job *j, df_pool *pool, const char *in, int64_t *out, uint64_t *work)
{
    middle x = { .j = j, .in = in, .words = work, .n = 1 };
    choose_bounds(&x);
    if (pool) x.n = df_middle_pieces(j, df_pool_threads(pool));
    if (pool)
        df_pool_run(pool, (uint32_t)x.n, collect, &x);
    else
        collect(&x, 0, 0);
    int64_t n = 0, below = 0;
    for (int64_t i = 0; i < x.n; i++) {
        memmove(work + n, work + begin_of(&x, i), (size_t)x.n_found[i] * sizeof *work);
        n += x.n_found[i];
        below += x.n_below[i];
    }
    if (below > j->first || below + n < j->first + j->m) return false;
    const uint64_t *const sorted = df_order_words(j, in, work, work + j->n, n);
    for (int64_t i = 0; i < j->m; i++) out[i] = (int64_t)(uint32_t)sorted[j->first - below + i];
    return true;
}
