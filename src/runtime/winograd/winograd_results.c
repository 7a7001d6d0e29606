/* SPDX-License-Identifier: Apache-2.0
 *
 * How a convolution in fast mode (winograd.h) is divided. A task computes some rows of tiles for
 * all rows of A:
 *
 *     image, channel by channel  -> V  [position][panel of nr tiles][channel][nr]
 *     16 products U V            -> M  [position][GROUP rows][tiles]
 *     M, row by row              -> results, and then the epilogue
 *
 * U are the transformed weights, [position][panel of mr rows][channel][mr], which all tasks read.
 * Rows of tiles are counted through all images of a batch entry, so that a task has neighbouring
 * columns of C.
 *
 * The micro-kernel is that of other products. Each element of M is one chain of fma over the
 * channels, whatever tiles lie beside it. So the division changes no result.
 */
#include "runtime/winograd/winograd_parts.h"

#include <math.h>

enum {
    POSITIONS = DF_WINOGRAD_POSITIONS,
    TAPS = DF_WINOGRAD_TAPS,
    GROUP = 32,            /* rows of M at once. Each panel of V is read once for all of them */
    IMAGE_BYTES = 1 << 20, /* of V in a task, where there are no more rows of tiles than one */
    CHUNK = 32,            /* channels of weights that are packed at once: they stay in L1 */
    LANES = DF_WINOGRAD_LANES,
    TASK_LANES = 8 * LANES /* tiles that take as long as a task without tiles */
};

typedef struct division {
    const df_matmul_job *j;
    const df_winograd_code *code;
    const df_tiles *tiles;
    const df_gemm_kernel *g; /* NULL: tiles->block multiplies */
    int64_t mr, nr;
    int64_t n_channels;
    int64_t image_rows, columns; /* tiles in a column and in a row of an image */
    int64_t rows;                /* rows of tiles of a batch entry */
    int64_t per_task, n_parts;   /* rows of tiles of a task; tasks of a batch entry */
    df_winograd_square square;
    int64_t n_panels, m_panels;                 /* of V in a task, and of U */
    int64_t v_position, u_position, m_position; /* elements from one position to the next */
    size_t v_bytes, m_bytes, c_bytes;           /* of a thread, without c */
    size_t u_bytes;                             /* of all threads, for one batch entry */
    char *work;
} division;

/* ---- division ---- */

/* Returns the rows of tiles of a task with which the threads end first. */
static int64_t rows_per_task(const division *d, uint32_t n_threads)
{
    const int64_t tile_bytes = POSITIONS * d->n_channels * (int64_t)sizeof(float);
    const int64_t most = df_max_i64(1, IMAGE_BYTES / tile_bytes / d->columns);
    int64_t best = 1, least = INT64_MAX;
    for (int64_t rows = 1; rows <= df_min_i64(most, d->rows); rows++) {
        const int64_t n_tasks = df_div_up(d->rows, rows) * d->j->n_batch;
        const int64_t each = df_div_up(rows * d->columns, LANES) * LANES + TASK_LANES;
        const int64_t longest = df_div_up(n_tasks, n_threads) * each;
        if (longest > least) continue;
        best = rows;
        least = longest;
    }
    return best;
}

static void winograd_divide(const df_matmul_job *j, const df_gemm_kernel *g, uint32_t n_threads,
                            division *d)
{
    const df_images *const m = j->images;
    *d = (division){ .j = j, .code = df_winograd_pick(), .tiles = df_tiles_pick(j->dtype) };
    d->g = g && g->nr >= LANES ? g : NULL; /* so that a vector of tiles lies in two panels */
    const bool is_square = df_winograd_find_square(m, &d->square);
    df_assert(is_square);
    (void)is_square;
    d->mr = d->g ? d->g->mr : d->tiles->mr;
    d->nr = d->g ? d->g->nr : d->tiles->nr;
    d->n_channels = j->k / TAPS;
    d->image_rows = df_div_up(m->out[0], 2);
    d->columns = df_div_up(m->out[1], 2);
    d->rows = j->n / (m->out[0] * m->out[1]) * d->image_rows;
    d->per_task = rows_per_task(d, n_threads);
    d->n_parts = df_div_up(d->rows, d->per_task);
    d->n_panels = df_div_up(d->per_task * d->columns, d->nr);
    d->m_panels = df_div_up(j->m, d->mr);
    d->v_position = df_winograd_skewed(d->n_panels * d->nr * d->n_channels);
    d->u_position = df_winograd_skewed(d->m_panels * d->mr * d->n_channels);
    d->m_position = df_winograd_skewed(GROUP * d->n_panels * d->nr);
    /* The direct product of a row of tiles packs a panel of windows where V was, and packing
     * weights needs room for some channels. */
    const int64_t windows = j->k * d->nr, weights = CHUNK * TAPS * d->mr;
    d->v_bytes =
        df_winograd_bytes(df_max_i64(POSITIONS * d->v_position, df_max_i64(windows, weights)));
    d->m_bytes = df_winograd_bytes(POSITIONS * d->m_position + LANES);
    d->c_bytes = j->c ? 0 : df_winograd_bytes(j->m * 2 * d->per_task * m->out[1]);
    d->u_bytes = df_winograd_bytes(POSITIONS * d->u_position);
}

size_t df_winograd_results_work_size(const df_matmul_job *j, const df_gemm_kernel *g,
                                     uint32_t n_threads)
{
    division d;
    winograd_divide(j, g, n_threads, &d);
    return d.u_bytes * (size_t)j->n_batch + (d.v_bytes + d.m_bytes + d.c_bytes) * n_threads +
           DF_WINOGRAD_ALIGN;
}

static float *v_of(const division *d, uint32_t thread)
{
    const size_t each = d->v_bytes + d->m_bytes + d->c_bytes;
    return (float *)(void *)(d->work + d->u_bytes * (size_t)d->j->n_batch + thread * each);
}

/* ---- weights ---- */

/* Transforms a panel of rows of A of one batch entry. */
static void weights_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const df_matmul_job *const j = d->j;
    const int64_t batch = i / d->m_panels, panel = i % d->m_panels, row = panel * d->mr;
    const float *const a = (const float *)(const void *)j->a +
                           df_matmul_batch_offset(j, j->a_batch, batch) + row * j->a_row;
    float *const u = (float *)(void *)(d->work + d->u_bytes * (size_t)batch);
    float *const packed = v_of(d, thread);
    for (int64_t c = 0, n; c < d->n_channels; c += n) {
        n = df_min_i64(CHUNK, d->n_channels - c);
        d->tiles->pack(packed, d->mr, a + c * TAPS * j->a_col, j->a_col, j->a_row, n * TAPS,
                       df_min_i64(d->mr, j->m - row));
        d->code->weights(u + (panel * d->n_channels + c) * d->mr, d->u_position, packed, n, d->mr,
                         d->square.where);
    }
}

/* ---- one task ---- */

/* Some rows of tiles of a batch entry. */
typedef struct block {
    const division *d;
    uint32_t thread;
    int64_t batch, y0, y1; /* rows of tiles, counted through all images */
    char *c;               /* where the results of the first row begin */
    int64_t ld;
} block;

/* Rows of results before row y of tiles, in all images. */
static int64_t results_before(const division *d, int64_t y)
{
    return y / d->image_rows * d->j->images->out[0] + y % d->image_rows * 2;
}

/* Where the row y of tiles of row i of A begins in C. */
static float *results_at(const block *b, int64_t i, int64_t y)
{
    const int64_t row = results_before(b->d, y) - results_before(b->d, b->y0);
    return (float *)(void *)b->c + i * b->ld + row * b->d->j->images->out[1];
}

static void transform_images(const block *b)
{
    const division *const d = b->d;
    const df_images *const m = d->j->images;
    for (int64_t y = b->y0, n; y < b->y1; y += n) {
        n = df_min_i64(b->y1 - y, d->image_rows - y % d->image_rows);
        df_winograd_image p = { .to = v_of(d, b->thread),
                                .position = d->v_position,
                                .panel = d->n_channels * d->nr,
                                .width = d->nr,
                                .first = (y - b->y0) * d->columns,
                                .from = (const float *)(const void *)d->j->b +
                                        b->batch * d->n_channels * m->channel +
                                        y / d->image_rows * m->image,
                                .from_row = m->row,
                                .extent = { m->extent[0], m->extent[1] },
                                .row = d->square.least[0] + y % d->image_rows * 2,
                                .column = d->square.least[1],
                                .n_rows = n,
                                .n = d->columns };
        for (int64_t c = 0; c < d->n_channels; c++, p.to += d->nr, p.from += m->channel)
            d->code->image(&p);
    }
}

/* Computes rows [m0, m1) of M: the products of all positions. */
static void multiply_group(const block *b, float *to, int64_t m0, int64_t m1)
{
    const division *const d = b->d;
    const float *const v = v_of(d, b->thread);
    const float *const u = (const float *)(const void *)(d->work + d->u_bytes * (size_t)b->batch);
    const int64_t n = (b->y1 - b->y0) * d->columns, ld = d->n_panels * d->nr;
    for (int64_t x = 0; x < POSITIONS; x++)
        for (int64_t j = 0; j < n; j += d->nr) {
            const float *const panel = v + x * d->v_position + j * d->n_channels;
            for (int64_t i = m0; i < m1; i += d->mr) {
                const df_winograd_tile t = { .k = d->n_channels,
                                             .a = u + x * d->u_position + i * d->n_channels,
                                             .b = panel,
                                             .nr = d->nr,
                                             .c = to + x * d->m_position + (i - m0) * ld + j,
                                             .ld = ld,
                                             .m = df_min_i64(d->mr, m1 - i),
                                             .n = df_min_i64(d->nr, n - j),
                                             .first = true,
                                             .next = panel + d->nr * d->n_channels };
                df_winograd_multiply(d->g, d->tiles, d->mr, &t);
            }
        }
}

/* Computes a row of tiles as a direct product, of all rows of A. */
static void multiply_directly(const block *b, int64_t y)
{
    const division *const d = b->d;
    const df_matmul_job *const j = d->j;
    const int64_t first = results_before(d, y) * j->images->out[1];
    const int64_t end = results_before(d, y + 1) * j->images->out[1];
    float *const packed = v_of(d, b->thread);
    for (int64_t j0 = first; j0 < end; j0 += d->nr) {
        const int64_t n = df_min_i64(d->nr, end - j0);
        df_images_pack(j->images, j->dtype, (char *)packed, d->nr, j->b, b->batch, j->k, 0, j->k,
                       j0, j0 + n);
        d->tiles->block(&(df_block){ .m = j->m,
                                     .n = n,
                                     .k = j->k,
                                     .a = (const float *)(const void *)j->a +
                                          df_matmul_batch_offset(j, j->a_batch, b->batch),
                                     .b = packed,
                                     .c = results_at(b, 0, y) + (j0 - first),
                                     .a_row = j->a_row,
                                     .a_col = j->a_col,
                                     .b_row = d->nr,
                                     .c_row = b->ld,
                                     .first = true });
    }
}

/* Whether all results of a row of tiles are finite. */
static bool is_finite_row(const block *b, int64_t y)
{
    const int64_t n = results_before(b->d, y + 1) - results_before(b->d, y);
    for (int64_t i = 0; i < b->d->j->m; i++) {
        const float *const c = results_at(b, i, y);
        for (int64_t x = 0; x < n * b->d->j->images->out[1]; x++)
            if (!isfinite(c[x])) return false;
    }
    return true;
}

/* Transforms row i of the products to results. Returns whether these are all finite. */
static bool transform_row(const block *b, int64_t i, const float *products)
{
    const division *const d = b->d;
    bool is_finite = true;
    for (int64_t y = b->y0; y < b->y1; y++) {
        const df_winograd_results r = { .to = results_at(b, i, y),
                                        .n_rows = results_before(d, y + 1) - results_before(d, y),
                                        .n = d->j->images->out[1],
                                        .from = products + (y - b->y0) * d->columns,
                                        .position = d->m_position };
        is_finite &= d->code->results(&r);
    }
    return is_finite;
}

static void compute_block(const block *b)
{
    const division *const d = b->d;
    float *const products = v_of(d, b->thread) + d->v_bytes / sizeof(float);
    bool is_finite = true;
    transform_images(b);
    for (int64_t m0 = 0; m0 < d->j->m; m0 += GROUP) {
        const int64_t m1 = df_min_i64(m0 + GROUP, d->j->m);
        multiply_group(b, products, m0, m1);
        for (int64_t i = m0; i < m1; i++)
            is_finite &= transform_row(b, i, products + (i - m0) * d->n_panels * d->nr);
    }
    if (is_finite) return;
    for (int64_t y = b->y0; y < b->y1; y++)
        if (!is_finite_row(b, y)) multiply_directly(b, y);
}

static void block_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const df_matmul_job *const j = d->j;
    block b = { .d = d, .thread = thread, .batch = i / d->n_parts };
    b.y0 = i % d->n_parts * d->per_task;
    b.y1 = df_min_i64(b.y0 + d->per_task, d->rows);
    const int64_t first = results_before(d, b.y0) * j->images->out[1];
    const int64_t end = results_before(d, b.y1) * j->images->out[1];
    const int64_t of_c = df_matmul_batch_offset(j, j->c_batch, b.batch) + first;
    b.ld = j->c ? j->c_row : 2 * d->per_task * j->images->out[1];
    b.c = j->c ? j->c + of_c * (int64_t)sizeof(float)
               : (char *)v_of(d, thread) + d->v_bytes + d->m_bytes;
    compute_block(&b);
    if (j->epilogue)
        j->epilogue(j->user, thread, b.c, b.ld, b.batch * j->m, (b.batch + 1) * j->m, first, end);
}

/* ---- the call ---- */

void df_winograd_run_results(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool,
                             void *work)
{
    division d;
    winograd_divide(j, g, df_pool_threads(pool), &d);
    d.work = df_winograd_aligned(work);
    df_winograd_run_tasks(pool, d.m_panels * j->n_batch, weights_task, &d);
    df_winograd_run_tasks(pool, d.n_parts * j->n_batch, block_task, &d);
}
