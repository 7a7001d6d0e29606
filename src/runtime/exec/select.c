/* SPDX-License-Identifier: Apache-2.0
 *
 * The first m elements of a row in order, without a sort of the row.
 *
 * A list has the words of the elements that may still be among the first m. Whenever it is full, it
 * is sorted and cut to m words. The key of the last of them is a bound. A later element can be
 * among the first m only when its key is below the bound: of equal keys, the lower index comes
 * first. So a scan compares blocks of elements with the bound, and most blocks have no element
 * below it.
 *
 * When m is small, the list never has more than m elements, and each element is put into its place.
 */
#include "runtime/exec/select_skip.h"

enum { FEW = 32, FULL = 4 };

typedef struct list {
    uint64_t *words, *other;
    int64_t n;
    uint64_t bound; /* elements whose keys are not below it are not among the first m */
} list;

bool df_select_pays(int64_t n, int64_t m)
{
    return m < n / FULL;
}

int64_t df_select_room(int64_t m)
{
    return 2 * m + DF_SELECT_BLOCK;
}

static uint64_t key_at(const df_routine_job *j, const char *in, int64_t index)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    return df_order_key(df_order_as(j->dtype), in + index * step) ^ df_order_flip(j);
}

static void cut(const df_routine_job *j, const char *in, list *l)
{
    uint64_t *const sorted = df_order_words(j, in, l->words, l->other, l->n);
    if (sorted != l->words) {
        l->other = l->words;
        l->words = sorted;
    }
    if (l->n < j->m) return;
    l->n = j->m;
    l->bound = key_at(j, in, (int64_t)(uint32_t)sorted[j->m - 1]);
}

/* Appends those of the elements [at, end) whose keys are below the bound. */
static void append(const df_routine_job *j, const char *in, int64_t at, int64_t end, list *l)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
    uint64_t key;
    int64_t n = l->n;
#define ROW(T)                                                                                     \
    for (int64_t i = at; i < end; i++) {                                                           \
        key = df_order_key(T, in + i * step) ^ flip;                                               \
        l->words[n] = df_order_word(key, i);                                                       \
        n += key < l->bound;                                                                       \
    }                                                                                              \
    break
#include "runtime/sort/order_each.def"
    l->n = n;
}

/* ---- few elements ---- */

/* The best elements so far, in order, as keys and indices. */
typedef struct best {
    uint64_t *key, *index;
    int64_t n, m;
} best;

/* Adds an element, whose index is above all others, and drops the last one of m + 1. Returns the
 * bound from then on. */
DF_INLINE uint64_t keep(best *x, uint64_t key, int64_t index)
{
    int64_t k = x->n < x->m ? x->n++ : x->m - 1;
    for (; k > 0 && x->key[k - 1] > key; k--) {
        x->key[k] = x->key[k - 1];
        x->index[k] = x->index[k - 1];
    }
    x->key[k] = key;
    x->index[k] = (uint64_t)index;
    return x->key[x->m - 1];
}

/* Adds the elements [at, end) that are among the best so far. */
static uint64_t keep_each(const df_routine_job *j, const char *in, int64_t at, int64_t end,
                          uint64_t bound, best *x)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
#define ROW(T)                                                                                     \
    for (int64_t i = at; i < end; i++) {                                                           \
        const uint64_t key = df_order_key(T, in + i * step) ^ flip;                                \
        if (key < bound || x->n < x->m) bound = keep(x, key, i);                                   \
    }                                                                                              \
    return bound
#include "runtime/sort/order_each.def"
    df_unreachable();
}

static uint64_t *select_few(const df_routine_job *j, const char *in, int64_t begin, int64_t end,
                            uint64_t *a, uint64_t *b)
{
    const df_select_skip_fn skip = df_select_skip_best();
    best x = { .key = a, .index = b, .m = j->m };
    int64_t at = df_min_i64(begin + j->m, end);
    uint64_t bound = keep_each(j, in, begin, at, 0, &x);
    while (at < end) {
        if (j->in_step == 1) at = skip(j->dtype, in, df_order_flip(j), bound, at, end);
        const int64_t next = df_min_i64(at + DF_SELECT_BLOCK, end);
        bound = keep_each(j, in, at, next, bound, &x);
        at = next;
    }
    for (int64_t i = 0; i < x.n; i++) a[i] = df_order_word(a[i], (int64_t)b[i]);
    return a;
}

/* ---- order.h ---- */

uint64_t *df_select(const df_routine_job *j, const char *in, int64_t begin, int64_t end,
                    uint64_t *a, uint64_t *b)
{
    if (j->m <= FEW) return select_few(j, in, begin, end, a, b);
    const df_select_skip_fn skip = df_select_skip_best();
    const int64_t room = df_select_room(j->m);
    list l = { .words = a, .other = b };
    int64_t at = df_min_i64(begin + 2 * j->m, end);
    df_order_load(j, in, begin, at, 0, l.words);
    l.n = at - begin;
    cut(j, in, &l);
    while (at < end) {
        if (j->in_step == 1) at = skip(j->dtype, in, df_order_flip(j), l.bound, at, end);
        const int64_t next = df_min_i64(at + DF_SELECT_BLOCK, end);
        append(j, in, at, next, &l);
        at = next;
        if (l.n + DF_SELECT_BLOCK > room || at == end) cut(j, in, &l);
    }
    return l.words;
}
