/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of the weights of a convolution with the transformations of winograd.h. It follows
 * from the formula there, for each filter and channel:
 *
 *     gradient of g = G' [ sum over tiles of (A y A') * (B' d B) ] G      y: gradient of results
 *
 * The sum is a product of matrices for each position, whose depth are the tiles. It is computed
 * block by block: all threads transform the tiles of some rows,
 *
 *     gradient of results  -> Y  [position][panel of mr filters][tile][mr]
 *     images               -> V  [position][panel of nr channels][tile][nr]
 *
 * and then multiply them, each for some positions and panels, into P [position][filter][channel].
 * A sum is one chain of fma over the tiles, whatever the number of threads.
 */
#include "runtime/winograd/winograd_parts.h"

enum {
    POSITIONS = DF_WINOGRAD_POSITIONS,
    TURNED = DF_WINOGRAD_TURNED,
    BLOCK_BYTES = 2 << 20, /* of Y and V, where there are more rows of tiles than one */
    LANES = DF_WINOGRAD_LANES
};

typedef struct gradient {
    const df_matmul_job *j;
    const df_winograd_code *code;
    const df_tiles *tiles;
    const df_gemm_kernel *g; /* NULL: tiles->block multiplies */
    df_winograd_square square;
    int64_t nr;
    int64_t n_channels;
    int64_t rows, image_rows, columns;          /* of tiles: in all, of an image, and in a row */
    int64_t per_block;                          /* rows of tiles */
    int64_t y_position, v_position, p_position; /* elements from one position to the next */
    int64_t p_row;                              /* elements from one filter to the next */
    float *y, *v, *p;
    char *c; /* the results, [filters][ld] */
    int64_t ld;
    bool *is_finite;                           /* by filter */
    int64_t y0, y1;                            /* rows of tiles of the block at hand */
    size_t y_bytes, v_bytes, p_bytes, c_bytes; /* of the workspace */
} gradient;

static void lay_gradient(const df_matmul_job *j, const df_gemm_kernel *g, gradient *d)
{
    const df_images *const m = j->images;
    *d = (gradient){ .j = j, .code = df_winograd_pick(), .tiles = df_tiles_pick(j->dtype) };
    const bool is_square = df_winograd_find_square(m, &d->square);
    df_assert(is_square);
    (void)is_square;
    d->g = g && g->mr == TURNED && g->nr % TURNED == 0 ? g : NULL;
    d->nr = d->g ? d->g->nr : d->tiles->nr;
    df_assert(d->g || (d->tiles->mr == TURNED && d->nr % TURNED == 0));
    d->n_channels = j->n / DF_WINOGRAD_TAPS;
    d->image_rows = df_div_up(m->out[0], 2);
    d->columns = df_div_up(m->out[1], 2);
    d->rows = j->k / (m->out[0] * m->out[1]) * d->image_rows;
    const int64_t filters = df_div_up(j->m, TURNED) * TURNED;
    const int64_t channels = df_div_up(d->n_channels, d->nr) * d->nr;
    const int64_t row_bytes =
        POSITIONS * (filters + channels) * d->columns * (int64_t)sizeof(float);
    d->per_block = df_min_i64(d->rows, df_max_i64(1, BLOCK_BYTES / row_bytes));
    const int64_t n_tiles = d->per_block * d->columns;
    d->y_position = df_winograd_skewed(filters * n_tiles);
    d->v_position = df_winograd_skewed(channels * n_tiles);
    d->p_row = df_div_up(d->n_channels, LANES) * LANES;
    d->p_position = df_winograd_skewed(j->m * d->p_row);
    d->ld = j->c ? j->c_row : j->n;
    d->y_bytes = df_winograd_bytes(POSITIONS * d->y_position);
    d->v_bytes = df_winograd_bytes(POSITIONS * d->v_position);
    d->p_bytes = df_winograd_bytes(POSITIONS * d->p_position);
    d->c_bytes = j->c ? 0 : df_winograd_bytes(j->m * j->n);
}

size_t df_winograd_gradient_work_size(const df_matmul_job *j, const df_gemm_kernel *g)
{
    gradient d;
    lay_gradient(j, g, &d);
    return d.y_bytes + d.v_bytes + d.p_bytes + d.c_bytes + (size_t)j->m + DF_WINOGRAD_ALIGN;
}

/* Transforms the rows of tiles of the block for some channels: t says which, and where they go. */
static void turn_rows(const gradient *d, df_winograd_turn t, int64_t image, int64_t row,
                      void (*turn)(const df_winograd_turn *))
{
    const float *const from = t.from;
    float *const to = t.to;
    for (int64_t y = d->y0; y < d->y1; y += t.n_rows) {
        t.n = d->columns;
        t.n_rows = df_min_i64(d->y1 - y, d->image_rows - y % d->image_rows);
        t.to = to + (y - d->y0) * d->columns * t.to_row;
        t.from = from + y / d->image_rows * image;
        t.row = row + y % d->image_rows * 2;
        turn(&t);
    }
}

static void turn_images(const gradient *d, int64_t c)
{
    const df_images *const m = d->j->images;
    const int64_t n_tiles = (d->y1 - d->y0) * d->columns;
    const df_winograd_turn t = { .to = d->v + c / d->nr * d->nr * n_tiles + c % d->nr,
                                 .position = d->v_position,
                                 .to_row = d->nr,
                                 .n_channels = df_min_i64(TURNED, d->n_channels - c),
                                 .from = (const float *)(const void *)d->j->b + c * m->channel,
                                 .channel = m->channel,
                                 .from_row = m->row,
                                 .extent = { m->extent[0], m->extent[1] },
                                 .column = d->square.least[1] };
    turn_rows(d, t, m->image, d->square.least[0], d->code->turned_image);
}

static void turn_results(const gradient *d, int64_t i)
{
    const df_images *const m = d->j->images;
    const int64_t n_tiles = (d->y1 - d->y0) * d->columns;
    const df_winograd_turn t = { .to = d->y + i * n_tiles,
                                 .position = d->y_position,
                                 .to_row = TURNED,
                                 .n_channels = df_min_i64(TURNED, d->j->m - i),
                                 .from = (const float *)(const void *)d->j->a + i * d->j->a_row,
                                 .channel = d->j->a_row,
                                 .from_row = m->out[1],
                                 .extent = { m->out[0], m->out[1] } };
    turn_rows(d, t, m->out[0] * m->out[1], 0, d->code->turned_results);
}

static void turn_task(void *user, uint32_t i, uint32_t thread)
{
    const gradient *const d = user;
    const int64_t n_images = df_div_up(d->n_channels, TURNED);
    (void)thread;
    if (i < n_images)
        turn_images(d, i * TURNED);
    else
        turn_results(d, (i - n_images) * TURNED);
}

/* Adds the block to P, at one position and for one panel of channels. */
static void panel_task(void *user, uint32_t task, uint32_t thread)
{
    const gradient *const d = user;
    const int64_t n_tiles = (d->y1 - d->y0) * d->columns;
    const int64_t x = task % POSITIONS, c = task / POSITIONS * d->nr;
    const int64_t n = df_min_i64(d->nr, d->n_channels - c);
    const float *const v = d->v + x * d->v_position + c * n_tiles;
    (void)thread;
    for (int64_t i = 0; i < d->j->m; i += TURNED) {
        const df_winograd_tile t = { .k = n_tiles,
                                     .a = d->y + x * d->y_position + i * n_tiles,
                                     .b = v,
                                     .nr = d->nr,
                                     .c = d->p + x * d->p_position + i * d->p_row + c,
                                     .ld = d->p_row,
                                     .m = df_min_i64(TURNED, d->j->m - i),
                                     .n = n,
                                     .first = d->y0 == 0,
                                     .next = d->y + x * d->y_position + (i + TURNED) * n_tiles };
        df_winograd_multiply(d->g, d->tiles, TURNED, &t);
    }
}

static void gradient_task(void *user, uint32_t i, uint32_t thread)
{
    const gradient *const d = user;
    (void)thread;
    d->is_finite[i] = d->code->gradient((float *)(void *)d->c + i * d->ld, d->p + i * d->p_row,
                                        d->p_position, d->n_channels, d->square.where);
}

static void epilogue_task(void *user, uint32_t i, uint32_t thread)
{
    const gradient *const d = user;
    const df_matmul_job *const j = d->j;
    const int64_t row = (int64_t)i * TURNED;
    j->epilogue(j->user, thread, d->c + row * d->ld * (int64_t)sizeof(float), d->ld, row,
                df_min_i64(row + TURNED, j->m), 0, j->n);
}

bool df_winograd_run_gradient(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool,
                              void *work)
{
    gradient d;
    lay_gradient(j, g, &d);
    char *const at = df_winograd_aligned(work);
    d.y = (float *)(void *)at;
    d.v = d.y + d.y_bytes / sizeof(float);
    d.p = d.v + d.v_bytes / sizeof(float);
    char *const behind = at + d.y_bytes + d.v_bytes + d.p_bytes;
    d.c = j->c ? j->c : behind;
    d.is_finite = (bool *)(void *)(behind + d.c_bytes);
    const int64_t groups = df_div_up(d.n_channels, TURNED) + df_div_up(j->m, TURNED);
    for (; d.y0 < d.rows; d.y0 = d.y1) {
        d.y1 = df_min_i64(d.y0 + d.per_block, d.rows);
        df_winograd_run_tasks(pool, groups, turn_task, &d);
        df_winograd_run_tasks(pool, POSITIONS * df_div_up(d.n_channels, d.nr), panel_task, &d);
    }
    df_winograd_run_tasks(pool, j->m, gradient_task, &d);
    for (int64_t i = 0; i < j->m; i++)
        if (!d.is_finite[i]) return false;
    if (j->epilogue) df_winograd_run_tasks(pool, df_div_up(j->m, TURNED), epilogue_task, &d);
    return true;
}
