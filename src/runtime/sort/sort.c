/* SPDX-License-Identifier: Apache-2.0
 *
 * argsort and topk: the indices of the elements at the positions [first, first + m) of the order of
 * each row. sort: the elements themselves (sort_values.c).
 *
 * A row is sorted as words (sort_words.c), or only some elements are selected: the first ones
 * (select.c), or some in the middle (sort_middle.c). The words are in the workspace, with a part
 * for each thread, and in the result when it has room for all of them. Rows are distributed over
 * threads. When there are fewer rows than threads, all threads take part in each row, one row after
 * the other (sort_long.c).
 */
#include "runtime/sort/order.h"

#define ROWS_AT_ONCE ((int64_t)1 << 14) /* elements of a task: enough to wake a worker for */

static bool is_all(const df_routine_job *j)
{
    return j->m == j->n;
}

/* Whether the first elements alone are selected. */
static bool selects(const df_routine_job *j)
{
    return j->first == 0 && df_select_pays(j->n, j->m);
}

static bool selects_middle(const df_routine_job *j)
{
    return j->first > 0 && df_middle_pays(j);
}

static void order_row(const df_routine_job *j, const char *in, int64_t *out, uint64_t *work)
{
    const uint64_t *at;
    if (selects(j)) {
        at = df_select(j, in, 0, j->n, work, work + df_select_room(j->m));
    } else {
        if (is_all(j)) {
            df_order_row(j, in, out, work);
            return;
        }
        if (selects_middle(j) && df_middle(j, NULL, in, out, work)) return;
        df_order_load(j, in, 0, j->n, 0, work);
        at = df_order_words(j, in, work, work + j->n, j->n) + j->first;
    }
    for (int64_t i = 0; i < j->m; i++) out[i] = (int64_t)(uint32_t)at[i];
}

/* The bytes of workspace that a row needs on one thread. */
static size_t row_size(const df_routine_job *j)
{
    if (j->op == DF_OP_sort) return df_sort_values_row_size(j);
    const int64_t n = selects(j) ? 2 * df_select_room(j->m) : is_all(j) ? j->n : 2 * j->n;
    return (size_t)n * sizeof(uint64_t);
}

static char *result_at(const df_routine_job *j, int64_t row)
{
    const size_t size = j->op == DF_OP_sort ? deft_dtype_size(j->dtype) : sizeof *j->out;
    return (char *)j->out + row * j->m * (int64_t)size;
}

static void sort_row(const df_routine_job *j, const char *in, char *out, char *work)
{
    if (j->op == DF_OP_sort)
        df_sort_values_row(j, in, out, work);
    else
        order_row(j, in, (int64_t *)(void *)out, (uint64_t *)(void *)work);
}

static const char *row_at(const df_routine_job *j, int64_t row)
{
    int64_t at = 0;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        at += row % j->batch_extent[i] * j->in_batch[i];
        row /= j->batch_extent[i];
    }
    return j->in + at * (int64_t)deft_dtype_size(j->dtype);
}

typedef struct rows {
    const df_routine_job *j;
    char *work;
    int64_t each; /* rows per task */
} rows;

static void sort_rows(void *user, uint32_t task, uint32_t thread)
{
    const rows *const r = user;
    const df_routine_job *const j = r->j;
    const int64_t end = df_min_i64((task + 1) * r->each, j->n_batch);
    for (int64_t row = task * r->each; row < end; row++)
        sort_row(j, row_at(j, row), result_at(j, row), r->work + thread * row_size(j));
}

static bool is_parallel(const df_routine_job *j, uint32_t n_threads)
{
    return n_threads > 1 && j->n_batch > 1 && j->n > ROWS_AT_ONCE / j->n_batch;
}

static bool is_empty(const df_routine_job *j)
{
    return j->m <= 0 || j->n_batch <= 0;
}

/* Whether all threads take part in each row. */
static bool is_long(const df_routine_job *j, uint32_t n_threads)
{
    if (j->op == DF_OP_sort) return df_sort_values_is_long(j, n_threads);
    return df_sort_is_long(j, n_threads);
}

static void sort_long_row(const df_routine_job *j, df_pool *pool, int64_t row, void *work)
{
    const char *const in = row_at(j, row);
    int64_t *const out = (int64_t *)(void *)result_at(j, row);
    if (j->op == DF_OP_sort)
        df_sort_values_long(j, pool, in, (char *)out, work);
    else if (!selects_middle(j) || df_middle_pieces(j, df_pool_threads(pool)) < 1 ||
             !df_middle(j, pool, in, out, work))
        df_sort_long(j, pool, in, out, work);
}

size_t df_argsort_work_size(const df_routine_job *j, uint32_t n_threads)
{
    if (is_empty(j)) return 0;
    if (is_long(j, n_threads) && j->op != DF_OP_sort) return df_sort_long_work_size(j, n_threads);
    return (is_parallel(j, n_threads) ? n_threads : 1) * row_size(j);
}

void df_argsort(const df_routine_job *j, df_pool *pool, void *work)
{
    if (is_empty(j)) return;
    df_assert(j->first >= 0 && j->m <= j->n - j->first);
    if (is_long(j, df_pool_threads(pool))) {
        for (int64_t row = 0; row < j->n_batch; row++) sort_long_row(j, pool, row, work);
        return;
    }
    rows r = { j, work, j->n_batch };
    if (!is_parallel(j, df_pool_threads(pool))) {
        sort_rows(&r, 0, 0);
        return;
    }
    r.each = (ROWS_AT_ONCE + j->n - 1) / j->n;
    int64_t n = (j->n_batch + r.each - 1) / r.each;
    if (n > INT32_MAX) {
        r.each = (j->n_batch + INT32_MAX - 1) / INT32_MAX;
        n = (j->n_batch + r.each - 1) / r.each;
    }
    df_pool_run(pool, (uint32_t)n, sort_rows, &r);
}

/* ---- routine.h ---- */

/* Whether the routine is one of which.c. */
static bool finds(const df_routine_job *j)
{
    return j->op == DF_OP_which || j->op == DF_OP_compress;
}

size_t df_routine_work_size(const df_routine_job *j, uint32_t n_threads)
{
    return finds(j) ? df_which_work_size(j, n_threads) : df_argsort_work_size(j, n_threads);
}

void df_routine_run(const df_routine_job *j, df_pool *pool, void *work)
{
    df_assert(j->op == DF_OP_argsort || j->op == DF_OP_sort || j->op == DF_OP_topk || finds(j));
    if (finds(j))
        df_which(j, pool, work);
    else
        df_argsort(j, pool, work);
}
