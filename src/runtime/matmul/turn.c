/* SPDX-License-Identifier: Apache-2.0
 *
 * Which products are turned, and how. A column of C is computed as a row, in a tile of the
 * workspace. When a tile is finished, it is transposed into C, or into a piece of C for the
 * epilogue.
 *
 * The chain of an element stays the same, so this changes no bit in strict mode.
 */
#include "runtime/matmul/turn.h"

#include <stdalign.h>
#include <string.h>

#include "runtime/matmul/tile.h"

enum {
    MOST_COLUMNS = 8,       /* of the original */
    PIECE_BYTES = 16 << 10, /* of C that an epilogue gets at once, when the job has no c */
    COPY_PART = 16 << 10,   /* elements of B that a task copies, at least */
    ALIGN = 64
};

/* ---- results ---- */

/* Rows [m0, m1) and columns [n0, n1) of one batch entry of C. Their columns are rows at `tile`,
 * which are ld elements apart. */
typedef struct turned_tile {
    const char *tile;
    int64_t ld, entry, m0, m1, n0, n1;
} turned_tile;

static void finish_tile(const df_matmul_turned *t, uint32_t thread, turned_tile p)
{
    const df_matmul_job *const j = &t->original;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), columns = p.n1 - p.n0;
    const int64_t row0 = p.entry * j->m;
    alignas(ALIGN) char piece[PIECE_BYTES];
    /* A column is a row already: the tile is C itself, or there is no C. */
    if (columns == 1 && (t->job.c || !j->c)) {
        j->epilogue(j->user, thread, p.tile, 1, row0 + p.m0, row0 + p.m1, p.n0, p.n1);
        return;
    }
    const int64_t to_row = j->c ? j->c_row : columns;
    const int64_t c_offset = df_matmul_batch_offset(j, j->c_batch, p.entry) + p.n0;
    const int64_t most = j->c ? p.m1 - p.m0 : PIECE_BYTES / (columns * size);
    for (int64_t m = p.m0, end; m < p.m1; m = end) {
        char *const to = j->c ? j->c + (c_offset + m * to_row) * size : piece;
        end = df_min_i64(m + most, p.m1);
        df_tiles_pick(j->dtype)->transpose(to, to_row, p.tile + (m - p.m0) * size, p.ld, end - m,
                                           columns);
        if (j->epilogue) j->epilogue(j->user, thread, to, to_row, row0 + m, row0 + end, p.n0, p.n1);
    }
}

/* Rows [o0, o1) of the turned job are columns of the original, entry by entry. Its columns are rows
 * of the original. */
static void turned_epilogue(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                            int64_t o1, int64_t i0, int64_t i1)
{
    const df_matmul_turned *const t = user;
    const int64_t n = t->original.n, row_size = ld * (int64_t)deft_dtype_size(t->job.dtype);
    for (int64_t o = o0, end; o < o1; o = end) {
        const int64_t entry = o / n, n0 = o % n;
        end = df_min_i64(o1, (entry + 1) * n);
        finish_tile(t, thread,
                    (turned_tile){ .tile = tile + (o - o0) * row_size,
                                   .ld = ld,
                                   .entry = entry,
                                   .m0 = i0,
                                   .m1 = i1,
                                   .n0 = n0,
                                   .n1 = n0 + end - o });
    }
}

/* ---- the copy of B ---- */

size_t df_matmul_turned_work_size(const df_matmul_turned *t)
{
    const df_matmul_job *const j = &t->original;
    const size_t bytes = (size_t)(t->n_copies * j->n * j->k) * deft_dtype_size(j->dtype);
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* Copies one of the different matrices of the batch of B. */
static void copy_matrix(const df_matmul_turned *t, int64_t i)
{
    const df_matmul_job *const j = &t->original;
    const df_tiles *const tiles = df_tiles_pick(j->dtype);
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    char *const to = (char *)(uintptr_t)t->job.a + i * j->n * j->k * size;
    int64_t offset = 0, left = i;
    for (uint32_t x = j->batch_rank; x-- > 0;) {
        if (j->b_batch[x] == 0) continue;
        offset += left % j->batch_extent[x] * j->b_batch[x];
        left /= j->batch_extent[x];
    }
    const char *const from = j->b + offset * size;
    if (j->b_col == 1)
        tiles->transpose(to, j->k, from, j->b_row, j->n, j->k);
    else
        tiles->pack(to, j->k, from, j->b_col, j->b_row, j->n, j->k);
}

/* Returns how many matrices one task copies. */
static int64_t copies_per_task(const df_matmul_turned *t)
{
    return df_div_up(COPY_PART, t->original.n * t->original.k);
}

static void copy_task(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const df_matmul_turned *const t = user;
    const int64_t per_task = copies_per_task(t), end = df_min_i64((i + 1) * per_task, t->n_copies);
    for (int64_t x = i * per_task; x < end; x++) copy_matrix(t, x);
}

void df_matmul_prepare_turned(df_matmul_turned *t, df_pool *pool, void *work)
{
    if (t->n_copies == 0) return;
    const int64_t n_tasks = df_div_up(t->n_copies, copies_per_task(t));
    df_assert(n_tasks <= UINT32_MAX);
    t->job.a = work;
    if (n_tasks == 1)
        copy_task(t, 0, 0);
    else
        df_pool_run(pool, (uint32_t)n_tasks, copy_task, t);
}

/* Makes the A of the turned job copies of B, when tiles->dots or tiles->split can then multiply. */
static void choose_copies(df_matmul_turned *t)
{
    const df_matmul_job *const j = &t->original;
    df_matmul_job *const to = &t->job;
    t->n_copies = 0;
    if (j->packed || j->is_bf16 || j->a_col != 1 || j->a_row == 1 || j->b_row == 1 || j->k <= 1)
        return;
    t->n_copies = 1;
    to->a_row = j->k;
    to->a_col = 1;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        if (j->b_batch[i] == 0) continue;
        to->a_batch[i] = t->n_copies * j->n * j->k;
        t->n_copies *= j->batch_extent[i];
    }
}

/* ---- the decision ---- */

/* Builds with checks turn all products that are taller than twice their width, so that tests on
 * small tensors meet turned products. */
#ifdef DF_DEBUG
enum { TURNS_ALL = 1 };
#else
enum { TURNS_ALL = 0 };
#endif

/* Whether the product is computed faster as rows. As it is, its vectors are rows of B, so that most
 * of their lanes are empty. GFLOP/s of f32 with 1000 rows, on one thread of a Zen 5:
 *
 *     columns x k      A transposed        A row-major
 *                    as it is  turned   as it is  turned
 *        2 x 16         21       81        22       35
 *        2 x 64         23       90        23       60
 *        4 x 16         41      125        44       51
 *        4 x 64         46      146        47       98
 *        8 x 16         83      137        88       75
 *        8 x 64         95      192        95      124
 *
 * A row-major A is transposed in registers: a vector has 16 rows and 16 steps of k. Other strides
 * of A would make packing necessary, which takes longer than the product. Pairs of bf16 are packed
 * in any case; they gain from 24 rows on, and 1.3 to 4 times with 48 and more. */
static bool gains_by_turning(const df_matmul_job *j)
{
    enum { FEW = 4, TAIL = 8, SQUARES = 32, PAIRED = 24 };
    const int64_t row_size = j->k * (int64_t)deft_dtype_size(j->dtype);
    if (j->n == 1) return j->m > 1;
    if (TURNS_ALL) return j->m > 2 * j->n;
    if (j->is_bf16) return j->m >= PAIRED;
    if (j->a_row == 1) return j->m >= j->n + TAIL && j->k >= j->n;
    return j->a_col == 1 && j->n <= df_tiles_pick(j->dtype)->n_dots && j->m >= SQUARES &&
           row_size >= (j->n <= FEW ? 64 : 256);
}

void df_matmul_fold_batch(df_matmul_job *j)
{
    int64_t a_next = j->m * j->a_row, c_next = j->m * j->c_row;
    if (j->images) return;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        const int64_t n = j->batch_extent[i];
        if (n == 1) continue;
        if (j->b_batch[i] != 0 || j->a_batch[i] != a_next || (j->c && j->c_batch[i] != c_next))
            return;
        a_next *= n;
        c_next *= n;
    }
    j->m *= j->n_batch;
    j->n_batch = 1;
    j->batch_rank = 0;
}

bool df_matmul_turn(const df_matmul_job *j, df_matmul_turned *out)
{
    if (j->images || j->n > MOST_COLUMNS) return false;
    out->original = *j;
    df_matmul_fold_batch(&out->original);
    j = &out->original;
    if (!gains_by_turning(j)) return false;
    out->job = *j;
    df_matmul_job *const t = &out->job;
    t->m = j->n;
    t->n = j->m;
    t->a = j->b;
    t->b = j->a;
    memcpy(t->a_batch, j->b_batch, sizeof t->a_batch);
    memcpy(t->b_batch, j->a_batch, sizeof t->b_batch);
    t->a_row = j->b_col;
    t->a_col = j->b_row;
    t->b_row = j->a_col;
    t->b_col = j->a_row;
    t->c_row = j->m;
    t->user = out;
    if (j->n > 1 || j->c_row != 1) t->c = NULL;
    t->epilogue = t->c && !j->epilogue ? NULL : turned_epilogue;
    choose_copies(out);
    return true;
}
