/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of few distinct elements are counted, not compared.
 *
 * A sample gives the distinct elements. A perfect hash, found by trial, gives each of them a slot
 * of its own in a small table. (Fredman, Komlos and Szemeredi, "Storing a Sparse Table with O(1)
 * Worst Case Access Time", 1984.) One pass over the row counts them. Elements that the sample did
 * not show are set aside and sorted as usual, so no input takes much longer than a sort. Both are
 * merged into the result.
 *
 * Elements are distinct when their bits are. Distinct NaNs, and zeros of both signs, compare as
 * equal: these must be written once more in the order of the row.
 */
#include "base/compiler.h"
#include "runtime/sort/keys.h"

enum {
    SAMPLE = 1024,
    MOST = 200,        /* distinct elements; 0 is the number of none */
    SLOT_BITS = 13,    /* of the table, which stays in the first cache */
    MOST_TRIALS = 100, /* of 200 elements, one in 11 succeeds */
    CHAINS = 4,        /* counters of one element, because each waits for its last addition */
    MAX_PIECES = 64,
};
#define LEAST_ROW ((int64_t)1 << 15) /* elements */

typedef struct counts {
    const df_routine_job *j;
    const df_keys *keys;
    const char *in;
    char *out, *work;
    size_t size;
    int64_t n_pieces;
    uint64_t factor; /* the slot of an element is the upper bits of its product with this */
    int64_t n;       /* distinct elements, from number 1 on */
    uint64_t value[MOST + 1];
    uint64_t key[MOST + 1];
    int64_t count[MOST + 1];
    uint8_t order[MOST]; /* numbers by their keys */
    int64_t n_aside[MAX_PIECES];
    uint8_t number[1 << SLOT_BITS];
} counts;

DF_INLINE uint64_t slot_of(uint64_t element, uint64_t factor)
{
    return element * factor >> (64 - SLOT_BITS);
}

/* An odd number for each i (Steele, Lea and Flood 2014). */
static uint64_t factor_of(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) | 1;
}

/* Gathers the distinct elements of the sample. Returns false when there are too many. */
static bool find_distinct(counts *x)
{
    enum { ROOM = 1 << 9 }; /* of an open hash table */
    uint16_t number[ROOM] = { 0 };
    const int64_t step = x->j->in_step * (int64_t)x->size, apart = x->j->n / SAMPLE;
    for (int64_t i = 0; i < SAMPLE; i++) {
        /* The distance varies, because elements may have a period. */
        const int64_t at = apart * i + (int64_t)(factor_of((uint64_t)i) % (uint64_t)apart);
        const uint64_t element = df_bits_load(x->in + at * step, x->size);
        uint64_t k = slot_of(element, factor_of(0)) % ROOM;
        while (number[k] && x->value[number[k]] != element) k = (k + 1) % ROOM;
        if (number[k]) continue;
        if (x->n == MOST) return false;
        x->value[++x->n] = element;
        number[k] = (uint16_t)x->n;
    }
    return true;
}

/* Finds a factor that gives all distinct elements slots of their own. */
static DF_COLD bool find_factor(counts *x)
{
    for (uint64_t trial = 0; trial < MOST_TRIALS; trial++) {
        int64_t i = 1;
        x->factor = factor_of(trial);
        memset(x->number, 0, sizeof x->number);
        for (; i <= x->n; i++) {
            uint8_t *const number = &x->number[slot_of(x->value[i], x->factor)];
            if (*number) break;
            *number = (uint8_t)i;
        }
        if (i > x->n) return true;
    }
    return false;
}

/* Puts the numbers in the order of their elements. Returns true for NaNs and -0. */
static DF_COLD bool order_values(counts *x)
{
    const deft_dtype t = x->j->dtype;
    const bool is_float = df_is_float(t);
    const uint64_t sign = df_sign_bit(t), infinity = is_float ? df_infinity_bits(t) : 0;
    bool loses = false;
    for (int64_t i = 1; i <= x->n; i++) {
        const uint64_t v = x->value[i];
        const uint64_t key = (is_float ? df_order_float_key(t, v) : v) ^ df_order_flip(x->j);
        int64_t at = i - 1;
        for (; at > 0 && x->key[x->order[at - 1]] > key; at--) x->order[at] = x->order[at - 1];
        x->order[at] = (uint8_t)i;
        x->key[i] = key;
        loses |= is_float && ((v & ~sign) > infinity || v == sign);
    }
    return loses;
}

/* ---- the pass ---- */

static int64_t begin_of(const counts *x, int64_t piece)
{
    return df_order_piece(x->j->n, x->n_pieces, piece);
}

/* Counts the element at `in`. One that has no number is copied to `to` instead. Returns where the
 * next one is to be copied. Number 0 has the value of number 1, which no empty slot has. */
#define COUNT_ONE(T, name)                                                                         \
    DF_INLINE char *count_one_##name(const counts *x, const char *in, uint32_t *count, char *to)   \
    {                                                                                              \
        T element;                                                                                 \
        memcpy(&element, in, sizeof element);                                                      \
        const uint8_t number = x->number[slot_of(element, x->factor)];                             \
        const bool is_aside = x->value[number] != element;                                         \
        if (DF_UNLIKELY(is_aside))                                                                 \
            memcpy(to, &element, sizeof element);                                                  \
        else                                                                                       \
            count[number]++;                                                                       \
        return to + (is_aside ? sizeof element : 0);                                               \
    }

/* Counts n elements, and copies those without a number to `aside`. Returns how many these are. */
#define COUNT(T, name)                                                                             \
    COUNT_ONE(T, name)                                                                             \
    static int64_t count_##name(const counts *x, const char *in, int64_t n, char *aside,           \
                                uint32_t count[CHAINS][MOST + 1])                                  \
    {                                                                                              \
        _Static_assert(CHAINS == 4, "four elements are written out");                              \
        const int64_t step = x->j->in_step * (int64_t)sizeof(T);                                   \
        char *to = aside;                                                                          \
        for (; n >= CHAINS; n -= CHAINS) {                                                         \
            to = count_one_##name(x, in, count[0], to);                                            \
            to = count_one_##name(x, in + step, count[1], to);                                     \
            to = count_one_##name(x, in + 2 * step, count[2], to);                                 \
            to = count_one_##name(x, in + 3 * step, count[3], to);                                 \
            in += CHAINS * step;                                                                   \
        }                                                                                          \
        for (; n > 0; n--, in += step) to = count_one_##name(x, in, count[0], to);                 \
        return (to - aside) / (int64_t)sizeof(T);                                                  \
    }
COUNT(uint32_t, narrow)
COUNT(uint64_t, wide)

/* Counts a piece. Its counts are left in its part of the result. */
static void count_piece(void *user, uint32_t piece, uint32_t thread)
{
    counts *const x = user;
    const int64_t begin = begin_of(x, piece), n = begin_of(x, piece + 1) - begin;
    const int64_t size = (int64_t)x->size;
    const char *const in = x->in + begin * x->j->in_step * size;
    char *const aside = x->work + begin * size;
    uint32_t count[CHAINS][MOST + 1] = { { 0 } };
    (void)thread;
    x->n_aside[piece] =
        size == 8 ? count_wide(x, in, n, aside, count) : count_narrow(x, in, n, aside, count);
    for (int64_t i = 1; i <= x->n; i++)
        for (int k = 1; k < CHAINS; k++) count[0][i] += count[k][i];
    memcpy(x->out + begin * size, count[0], sizeof count[0]);
}

/* Adds up the counts, and sorts what was set aside, in the front of the workspace. Returns the
 * number of these elements. */
static DF_COLD int64_t join_pieces(counts *x, bool *loses)
{
    int64_t n_aside = 0;
    for (int64_t p = 0; p < x->n_pieces; p++) {
        const size_t at = (size_t)begin_of(x, p) * x->size;
        uint32_t count[MOST + 1];
        memcpy(count, x->out + at, sizeof count);
        for (int64_t i = 1; i <= x->n; i++) x->count[i] += count[i];
        memmove(x->work + (size_t)n_aside * x->size, x->work + at, (size_t)x->n_aside[p] * x->size);
        n_aside += x->n_aside[p];
    }
    const deft_dtype t = x->j->dtype;
    const uint64_t flip = df_order_flip(x->j);
    *loses |= x->keys->load(t, flip, x->work, x->work, n_aside);
    x->keys->sort_loaded(t, flip, x->work, x->out, n_aside);
    return n_aside;
}

/* ---- the result ---- */

/* Elements of the result: `count` times a value, or elements from `from` on. */
typedef struct run {
    int64_t begin, count;
    uint64_t value;
    const char *from; /* or NULL */
} run;

typedef struct runs {
    const counts *x;
    int64_t n;
    run run[2 * MOST + 1];
} runs;

static void add_run(runs *r, int64_t count, uint64_t value, const char *from)
{
    const run *const last = r->n > 0 ? &r->run[r->n - 1] : NULL;
    const int64_t begin = last ? last->begin + last->count : 0;
    if (count > 0) r->run[r->n++] = (run){ begin, count, value, from };
}

static uint64_t key_at(const counts *x, int64_t i)
{
    const deft_dtype t = x->j->dtype;
    const uint64_t bits = df_bits_load(x->work + i * (int64_t)x->size, x->size);
    return (df_is_float(t) ? df_order_float_key(t, bits) : bits) ^ df_order_flip(x->j);
}

/* The first element from `at` on that was set aside and whose key is not less. */
static int64_t first_from(const counts *x, int64_t at, int64_t end, uint64_t key)
{
    while (at < end) {
        const int64_t middle = at + (end - at) / 2;
        if (key_at(x, middle) < key)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

static DF_COLD void merge(const counts *x, int64_t n_aside, runs *r)
{
    int64_t done = 0;
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t number = x->order[i], next = first_from(x, done, n_aside, x->key[number]);
        add_run(r, next - done, 0, x->work + done * (int64_t)x->size);
        add_run(r, x->count[number], x->value[number], NULL);
        done = next;
    }
    add_run(r, n_aside - done, 0, x->work + done * (int64_t)x->size);
}

static void fill(char *to, int64_t n, uint64_t value, size_t size)
{
    enum { LINE = 64 };
    char line[LINE];
    const int64_t bytes = n * (int64_t)size;
    int64_t i = 0;
    for (size_t k = 0; k < LINE; k += size) df_bits_store(line + k, value, size);
    for (; i + LINE <= bytes; i += LINE) memcpy(to + i, line, LINE);
    memcpy(to + i, line, (size_t)(bytes - i));
}

static void write_piece(void *user, uint32_t piece, uint32_t thread)
{
    const runs *const r = user;
    const counts *const x = r->x;
    const int64_t begin = begin_of(x, piece), end = begin_of(x, piece + 1);
    const int64_t size = (int64_t)x->size;
    (void)thread;
    for (int64_t i = 0; i < r->n; i++) {
        const run *const a = &r->run[i];
        const int64_t from = df_max_i64(a->begin, begin);
        const int64_t n = df_min_i64(a->begin + a->count, end) - from;
        if (n <= 0) continue;
        if (a->from)
            memcpy(x->out + from * size, a->from + (from - a->begin) * size, (size_t)(n * size));
        else
            fill(x->out + from * size, n, a->value, x->size);
    }
}

static void for_pieces(const counts *x, df_pool *pool, void (*task)(void *, uint32_t, uint32_t),
                       void *user)
{
    if (pool)
        df_pool_run(pool, (uint32_t)x->n_pieces, task, user);
    else
        task(user, 0, 0);
}

bool df_sort_counts(const df_routine_job *j, df_pool *pool, int64_t n_pieces, const char *in,
                    char *out, char *work, bool *loses)
{
    counts x = { .j = j, .keys = df_keys_best(), .in = in, .out = out, .work = work };
    runs r = { .x = &x };
    if (j->n < LEAST_ROW) return false;
    df_assert(n_pieces <= MAX_PIECES && (pool || n_pieces == 1));
    x.size = deft_dtype_size(j->dtype);
    x.n_pieces = n_pieces;
    if (!find_distinct(&x) || !find_factor(&x)) return false;
    x.value[0] = x.value[1];
    *loses = order_values(&x);
    for_pieces(&x, pool, count_piece, &x);
    merge(&x, join_pieces(&x, loses), &r);
    for_pieces(&x, pool, write_piece, &r);
    return true;
}
