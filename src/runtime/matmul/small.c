/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/matmul/small.h"

#include "runtime/matmul/windows.h"

#include <stdalign.h>

/* Multiply-adds that one thread does in a ns, per column of the largest tile. Measured on Zen 5,
 * where this gives 96 for f32. Narrower vectors have narrower tiles. */
enum { RATE = 2 };

enum {
    READ_MACS = 3, /* multiply-adds that take as long as transposing or reading one element of B */
    FAR_MACS = 16, /* the same for an element of f32 from beyond L2, on one thread: 24 GB/s */
    LOAD_MACS = 1, /* the same for an element that lies well in a cache */
    TILE_GAIN = 8, /* multiply-adds of tiles of AMX in the time of one */
    SPLIT_BYTES = 256, /* least part of a column of B that tiles->split divides among lanes */
};

bool df_matmul_is_one_tile(const df_matmul_job *j, const df_tiles *t)
{
    return j->images && !j->images->is_transposed && j->a_col == 1 && j->n <= t->wide;
}

bool df_matmul_wants_dots(const df_matmul_job *j, const df_tiles *t)
{
    return t->dots && j->m <= t->n_dots && (j->a_col == 1 || j->k == 1) && j->b_row == 1 &&
           j->n > 1 && j->b_col != 1;
}

bool df_matmul_wants_blas(const df_matmul_job *j)
{
    enum { ROWS = 256, WEIGHT = 512 << 10 }; /* most rows, and most elements of B */
    if (j->packed || !j->fast || j->is_bf16 || j->n_batch != 1 || j->k <= 0 || j->b_row != 1 ||
        j->b_col <= 1)
        return false;
    const df_tiles *const t = df_tiles_pick(j->dtype);
    return j->m > t->n_split && (j->m <= 4 || j->n <= 16) && j->m <= ROWS && j->n * j->k <= WEIGHT;
}

double df_matmul_cost(const df_matmul_job *j)
{
    const int64_t m = j->is_tiled ? j->m / TILE_GAIN : j->m, elements = j->n * j->k;
    const bool is_far = elements * (int64_t)deft_dtype_size(j->dtype) > DF_MATMUL_WELL_BYTES;
    /* Few rows wait for B. More rows are multiplied while B is read. */
    const int64_t macs = is_far ? df_max_i64(m + READ_MACS, FAR_MACS) : m + READ_MACS;
    return (double)macs * (double)elements;
}

double df_matmul_ns(double macs, const df_tiles *t)
{
    return macs / (double)(RATE * t->nr);
}

void (*df_matmul_multiply_of(const df_matmul_job *j, const df_tiles *t))(const df_block *)
{
    /* Sums of lanes take longer than short chains. */
    const int64_t least_k = j->m <= 2 ? 1 : SPLIT_BYTES / (int64_t)deft_dtype_size(j->dtype);
    const bool splits = j->fast && t->split && j->m <= t->n_split && j->k >= least_k;
    if (df_matmul_wants_dots(j, t)) return splits ? t->split : t->dots;
    const bool is_large = j->n * j->k * (int64_t)deft_dtype_size(j->dtype) > DF_MATMUL_WELL_BYTES;
    return j->m == 1 && is_large && df_matmul_b_lies_well(j) ? t->sweep : t->block;
}

bool df_matmul_is_small(const df_matmul_job *j)
{
    enum { FEW = 8, SMALL = 64 };
    if (j->is_bf16 || j->n_batch != 1 || j->m > SMALL || j->k > 16 * SMALL) return false;
    if (j->n > 4 * SMALL && j->m > 2) return false;
    if (j->m <= FEW ? df_matmul_cost(j) > (double)DF_MATMUL_REGION_MACS
                    : j->m * j->n * j->k > SMALL * SMALL * SMALL)
        return false;
    return j->packed || df_matmul_b_lies_well(j) ||
           df_matmul_wants_dots(j, df_tiles_pick(j->dtype));
}

int64_t df_matmul_part_of_worker(int64_t extent, int64_t unit, int64_t parts, int64_t head)
{
    df_assert(parts > 1 && head >= 0 && unit > 0);
    /* With this part the caller ends last. One unit more for each worker may end sooner. */
    const int64_t part = df_max_i64(extent - head, 0) / parts / unit * unit, more = part + unit;
    const int64_t first = extent - (parts - 1) * part, less = extent - (parts - 1) * more;
    return less > 0 && df_max_i64(less, more + head) < first ? more : part;
}

/* A small product that threads share. It is two cache lines, which other threads fetch. */
typedef struct small_product {
    df_block g;
    void (*multiply)(const df_block *g);
    int64_t first, part; /* rows (or columns) of the first part, and at most of each other part */
    int64_t column_size; /* bytes from one column of B to the next; of a column, in panels */
    int32_t size;        /* of an element */
    bool by_columns;
} small_product;

static void small_task(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const small_product *const s = user;
    const int64_t from = i == 0 ? 0 : s->first + (i - 1) * s->part;
    df_block g = s->g;
    const int64_t left = (s->by_columns ? g.n : g.m) - from;
    const int64_t extent = df_min_i64(i == 0 ? s->first : s->part, left);
    if (s->by_columns) {
        g.b = (const char *)g.b + from * s->column_size;
        g.c = (char *)g.c + from * s->size;
        g.n = extent;
    } else {
        g.a = (const char *)g.a + from * g.a_row * s->size;
        g.c = (char *)g.c + from * g.c_row * s->size;
        g.m = extent;
    }
    s->multiply(&g);
}

/* Computes a small product, in parts when the pool says that this pays. Two parts of a 64^3 product
 * and a fork-join take two thirds of the time of one. Tall products are divided by rows, others by
 * columns. The first part is the caller's. It is larger, by what the caller multiplies until the
 * workers start. */
void df_matmul_run_small(const df_matmul_job *j, char *c, int64_t c_row, df_pool *pool)
{
    const df_tiles *const t = df_tiles_pick(j->dtype);
    const bool dots = !j->packed && df_matmul_wants_dots(j, t), by_columns = j->m < 4 * t->mr;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    const int64_t extent = by_columns ? j->n : j->m;
    const int64_t macs = (j->m + (dots ? READ_MACS : LOAD_MACS)) * j->n * j->k;
    alignas(128) small_product s = { .g = { j->m, j->n, j->k, j->a, j->b, c, j->a_row, j->a_col,
                                            dots ? j->b_col : j->b_row, c_row, true, false },
                                     .multiply = df_matmul_multiply_of(j, t),
                                     .column_size = j->b_col * size,
                                     .size = (int32_t)size,
                                     .by_columns = by_columns };
    _Static_assert(sizeof s <= 128, "two lines");
    if (j->packed) {
        s.g.b = j->packed;
        s.g.b_row = j->k * t->nr;
        s.multiply = t->panels;
        s.column_size = j->k * size;
    }
    int64_t parts = df_pool_share(pool, df_matmul_ns((double)macs, t));
    if (parts > 1) {
        const int64_t unit = !by_columns ? (t->mr + 1) / 2 : j->packed ? t->nr : t->nr / 3;
        const int64_t head = df_pool_start_ns(pool) * RATE * (int64_t)t->nr / (macs / extent);
        s.part = df_matmul_part_of_worker(extent, unit, parts, head);
        s.first = extent - (parts - 1) * s.part;
        if (s.part < (j->packed ? unit : 2 * unit)) parts = 1;
        /* Parts begin with a panel, so that the last one is shorter. */
        if (j->packed && by_columns) s.first = df_div_up(s.first, unit) * unit;
    }
    if (parts > 1)
        df_pool_run(pool, (uint32_t)parts, small_task, &s);
    else
        s.multiply(&s.g);
}
