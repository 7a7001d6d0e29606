/* SPDX-License-Identifier: Apache-2.0
 *
 * One long row on all threads. The row is divided into pieces, one for each thread.
 *
 * Sorting is the radix sort of sort_words.c. In each pass the threads count the digits of their
 * pieces. The words with a digit go behind all words with smaller digits, and behind the words of
 * earlier pieces with the same digit. So the sort is stable, and each thread knows where the words
 * of its piece go.
 *
 * Selecting is done in each piece. The elements found are then sorted together. They are in the
 * order of the pieces, so equal elements keep their order.
 */
#include "runtime/sort/order.h"

enum { MAX_PIECES = 64, DIGITS = 1 << DF_ORDER_WIDE };
#define LEAST_PIECE ((int64_t)1 << 14) /* elements */

/* Where the words of a pass come from. */
typedef enum source { FROM_OPERAND, FROM_WORDS, FROM_UPPER } source;

typedef struct pass {
    const df_routine_job *j;
    const char *in;
    int64_t *out;
    uint64_t *from, *to;
    uint32_t (*count)[DIGITS]; /* per piece */
    int64_t n_pieces;
    int shift; /* position of the digit in a word */
    source source;
    bool to_index; /* write only indices, to `out` */
} pass;

static int64_t n_pieces_of(const df_routine_job *j, uint32_t n_threads)
{
    return df_min_i64(df_min_i64(n_threads, MAX_PIECES), j->n / LEAST_PIECE);
}

bool df_sort_is_long(const df_routine_job *j, uint32_t n_threads)
{
    return j->n_batch < (int64_t)n_threads && n_pieces_of(j, n_threads) > 1;
}

static bool selects(const df_routine_job *j, int64_t n_pieces)
{
    return j->first == 0 && df_select_pays(j->n / n_pieces, j->m);
}

/* Passes alternate between two arrays of words. When all indices are wanted, the result is one of
 * them. Those of a selection have a part for each piece. */
static int64_t n_words(const df_routine_job *j, int64_t n_pieces)
{
    if (selects(j, n_pieces)) return 2 * n_pieces * df_select_room(j->m);
    return j->m == j->n ? j->n : 2 * j->n;
}

size_t df_sort_long_work_size(const df_routine_job *j, uint32_t n_threads)
{
    const int64_t n_pieces = n_pieces_of(j, n_threads);
    return (size_t)n_words(j, n_pieces) * sizeof(uint64_t) +
           (size_t)n_pieces * DIGITS * sizeof(uint32_t);
}

static int64_t begin_of(const pass *p, int64_t piece)
{
    return p->j->n / p->n_pieces * piece + p->j->n % p->n_pieces * piece / p->n_pieces;
}

static void count_digits(void *user, uint32_t piece, uint32_t thread)
{
    const pass *const p = user;
    const int64_t begin = begin_of(p, piece), end = begin_of(p, piece + 1);
    uint32_t *const count = p->count[piece];
    (void)thread;
    if (p->source == FROM_OPERAND) {
        df_order_load(p->j, p->in, begin, end, 0, p->from + begin);
        df_order_fetch(p->to + begin, end - begin);
    }
    if (p->source == FROM_UPPER) df_order_load_half(p->j, p->in, 32, p->from + begin, end - begin);
    memset(count, 0, sizeof *p->count);
    for (int64_t i = begin; i < end; i++) count[p->from[i] >> p->shift & (DIGITS - 1)]++;
}

/* Turns the counts into the places of the first words. Returns false when all words have one digit,
 * so that they are in order. */
static bool place_digits(const pass *p)
{
    const uint64_t first = p->from[0] >> p->shift & (DIGITS - 1);
    int64_t alike = 0;
    uint32_t sum = 0;
    for (int64_t i = 0; i < p->n_pieces; i++) alike += p->count[i][first];
    if (alike == p->j->n) return false;
    for (int64_t d = 0; d < DIGITS; d++)
        for (int64_t i = 0; i < p->n_pieces; i++) {
            const uint32_t here = p->count[i][d];
            p->count[i][d] = sum;
            sum += here;
        }
    return true;
}

static void move_words(void *user, uint32_t piece, uint32_t thread)
{
    const pass *const p = user;
    const int64_t begin = begin_of(p, piece), end = begin_of(p, piece + 1);
    uint32_t *const at = p->count[piece];
    const uint64_t *const from = p->from;
    (void)thread;
    if (p->to_index)
        for (int64_t i = begin; i < end; i++)
            p->out[at[from[i] >> p->shift & (DIGITS - 1)]++] = (int64_t)(uint32_t)from[i];
    else
        for (int64_t i = begin; i < end; i++)
            p->to[at[from[i] >> p->shift & (DIGITS - 1)]++] = from[i];
}

static void write_indices(void *user, uint32_t piece, uint32_t thread)
{
    const pass *const p = user;
    const int64_t first = p->j->first;
    const int64_t end = df_min_i64(begin_of(p, piece + 1), first + p->j->m);
    (void)thread;
    for (int64_t i = df_max_i64(begin_of(p, piece), first); i < end; i++)
        p->out[i - first] = (int64_t)(uint32_t)p->from[i];
}

static void run(df_pool *pool, pass *p, void (*task)(void *, uint32_t, uint32_t))
{
    df_pool_run(pool, (uint32_t)p->n_pieces, task, p);
}

static void swap_words(pass *p)
{
    uint64_t *const other = p->from;
    p->from = p->to;
    p->to = other;
}

/* The last pass writes only indices when it does not read the result. */
static DF_COLD void sort_pieces(pass *p, df_pool *pool)
{
    const int bytes = (int)deft_dtype_size(p->j->dtype), n_halves = bytes == 8 ? 2 : 1;
    const int bits = 8 * bytes < DF_ORDER_KEY_BITS ? 8 * bytes : DF_ORDER_KEY_BITS;
    const int n_passes = n_halves * ((bits + DF_ORDER_WIDE - 1) / DF_ORDER_WIDE);
    if (n_passes % 2 == 0) swap_words(p);
    for (int half = 0; half < n_halves; half++)
        for (int low = 0; low < bits; low += DF_ORDER_WIDE) {
            p->shift = DF_ORDER_KEY_BITS + low;
            p->source = low > 0 ? FROM_WORDS : half > 0 ? FROM_UPPER : FROM_OPERAND;
            run(pool, p, count_digits);
            if (!place_digits(p)) continue;
            const bool is_last = half + 1 == n_halves && low + DF_ORDER_WIDE >= bits;
            p->to_index = is_last && (int64_t *)p->to == p->out;
            run(pool, p, move_words);
            if (p->to_index) return;
            swap_words(p);
        }
    run(pool, p, write_indices);
}

static void select_in_piece(void *user, uint32_t piece, uint32_t thread)
{
    const pass *const p = user;
    const int64_t room = df_select_room(p->j->m);
    uint64_t *const a = p->from + piece * room;
    const uint64_t *const found =
        df_select(p->j, p->in, begin_of(p, piece), begin_of(p, piece + 1), a, p->to + piece * room);
    (void)thread;
    if (found != a) memcpy(a, found, (size_t)p->j->m * sizeof *a);
}

/* Each piece has more than m elements. */
static DF_COLD void select_pieces(pass *p, df_pool *pool)
{
    const int64_t m = p->j->m, room = df_select_room(m), n = m * p->n_pieces;
    run(pool, p, select_in_piece);
    for (int64_t i = 1; i < p->n_pieces; i++)
        memmove(p->from + i * m, p->from + i * room, (size_t)m * sizeof *p->from);
    p->from = df_order_words(p->j, p->in, p->from, p->to, n);
    for (int64_t i = 0; i < m; i++) p->out[i] = (int64_t)(uint32_t)p->from[i];
}

void df_sort_long(const df_routine_job *j, df_pool *pool, const char *in, int64_t *out, void *work)
{
    pass p = { .j = j, .in = in, .out = out, .n_pieces = n_pieces_of(j, df_pool_threads(pool)) };
    const int64_t n = n_words(j, p.n_pieces);
    p.from = work;
    /* Access through the unsigned type of a signed one is allowed (C11 6.5, 7). */
    p.to = selects(j, p.n_pieces) || j->m < j->n ? p.from + n / 2 : (uint64_t *)out;
    p.count = (void *)(p.from + n);
    if (selects(j, p.n_pieces))
        select_pieces(&p, pool);
    else
        sort_pieces(&p, pool);
}
