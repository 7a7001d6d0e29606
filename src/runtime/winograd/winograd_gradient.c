/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of the weights of a convolution with the transformations of winograd.h. It follows
 * from the formula there, for each filter and channel:
 *
 *     gradient of g = G' [ sum over tiles of (A y A') * (B' d B) ] G      y: gradient of results
 *
 * The sum is a product of matrices for each position, whose depth are the tiles. It is computed
 * block by block, of some rows of tiles each:
 *
 *     gradient of results  -> Y  [position][panel of mr filters][tile][mr]
 *     images               -> V  [position][panel of nr channels][tile][nr]
 *     16 products Y V      -> P  [position][filter][channel]
 *
 * The tiles are divided into parts, which have a P each. Every element of P is one chain of fma
 * over the tiles of its part. At the end the parts are added in their order. How many parts there
 * are depends on extents alone, and so the number of threads changes no bit.
 *
 * Where the threads can share the parts evenly, a part is a task: then Y, V and P stay in the L2
 * cache of one thread. Else all threads compute one part after the other: each transforms some
 * filters and channels of a block, and then multiplies at some positions.
 */
#include "runtime/winograd/winograd_parts.h"

enum {
    POSITIONS = DF_WINOGRAD_POSITIONS,
    TURNED = DF_WINOGRAD_TURNED,
    LANES = DF_WINOGRAD_LANES,
    SHARED_BYTES = 2 << 20, /* of Y and V of all threads, where there are more rows than one */
    OWN_BYTES = 1 << 20,    /* the same of one thread, whose L2 has P as well */
    PARTS_BYTES = 9 << 18,  /* of P in all parts, where there are more than one */
    MOST_PARTS = 4,
    LEAST_TILES = 64 /* of a part: adding it to the others takes as long as a few */
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
    int64_t n_parts, per_part;                  /* parts, and rows of tiles of a part */
    bool by_parts;                              /* a part is a task */
    uint32_t n_blocks;                          /* in memory: of each thread, or one */
    int64_t per_block;                          /* rows of tiles */
    int64_t y_position, v_position, p_position; /* elements from one position to the next */
    int64_t p_row;                              /* elements from one filter to the next */
    char *work;
    char *c; /* the results, [filters][ld] */
    int64_t ld;
    bool *is_finite;                           /* by filter */
    size_t y_bytes, v_bytes, p_bytes, c_bytes; /* of the workspace: of a block, of a part, of all */
} gradient;

/* Rows of tiles [y0, y1) of a part. */
typedef struct block {
    const gradient *d;
    float *y, *v, *p;
    int64_t y0, y1;
    bool first; /* of its part */
} block;

static void divide_gradient(gradient *d, uint32_t n_threads, int64_t row_bytes)
{
    const int64_t by_size = PARTS_BYTES / (int64_t)d->p_bytes;
    const int64_t most_parts = df_min_i64(by_size, d->rows * d->columns / LEAST_TILES);
    int64_t n = 1; /* a power of two, which most numbers of threads divide */
    while (2 * n <= df_min_i64(most_parts, MOST_PARTS)) n *= 2;
    d->per_part = df_div_up(d->rows, n);
    d->n_parts = df_div_up(d->rows, d->per_part);
    const int64_t turns = df_div_up(d->n_parts, n_threads);
    d->by_parts = 5 * d->n_parts >= 4 * turns * n_threads; /* at most a fifth of the time idle */
    d->n_blocks = d->by_parts ? n_threads : 1;
    const int64_t bytes = d->by_parts && n > 1 ? OWN_BYTES : SHARED_BYTES;
    const int64_t most = df_max_i64(1, bytes / row_bytes);
    d->per_block = df_div_up(d->per_part, df_div_up(d->per_part, most));
}

DF_COLD static void lay_gradient(const df_matmul_job *j, const df_gemm_kernel *g,
                                 uint32_t n_threads, gradient *d)
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
    d->p_row = df_div_up(d->n_channels, LANES) * LANES;
    d->p_position = df_winograd_skewed(j->m * d->p_row);
    d->p_bytes = df_winograd_bytes(POSITIONS * d->p_position);
    const int64_t filters = df_div_up(j->m, TURNED) * TURNED;
    const int64_t channels = df_div_up(d->n_channels, d->nr) * d->nr;
    divide_gradient(d, n_threads,
                    POSITIONS * (filters + channels) * d->columns * (int64_t)sizeof(float));
    const int64_t n_tiles = d->per_block * d->columns;
    d->y_position = df_winograd_skewed(filters * n_tiles);
    d->v_position = df_winograd_skewed(channels * n_tiles);
    d->ld = j->c ? j->c_row : j->n;
    d->y_bytes = df_winograd_bytes(POSITIONS * d->y_position);
    d->v_bytes = df_winograd_bytes(POSITIONS * d->v_position);
    d->c_bytes = j->c ? 0 : df_winograd_bytes(j->m * j->n);
}

static float *tiles_of(const gradient *d, uint32_t thread)
{
    return (float *)(void *)(d->work + thread * (d->y_bytes + d->v_bytes));
}

static float *part_of(const gradient *d, int64_t part)
{
    return tiles_of(d, d->n_blocks) + (size_t)part * (d->p_bytes / sizeof(float));
}

static char *results_of(const gradient *d)
{
    return (char *)part_of(d, d->n_parts);
}

static size_t gradient_bytes(const gradient *d)
{
    return d->n_blocks * (d->y_bytes + d->v_bytes) + (size_t)d->n_parts * d->p_bytes + d->c_bytes;
}

size_t df_winograd_gradient_work_size(const df_matmul_job *j, const df_gemm_kernel *g,
                                      uint32_t n_threads)
{
    gradient d;
    lay_gradient(j, g, n_threads, &d);
    return gradient_bytes(&d) + (size_t)j->m + DF_WINOGRAD_ALIGN;
}

/* ---- a block ---- */

/* Transforms the rows of tiles of the block for some channels: t says which, and where they go. */
DF_NOINLINE static void turn_rows(const block *b, df_winograd_turn t, int64_t image, int64_t row,
                                  void (*turn)(const df_winograd_turn *))
{
    const gradient *const d = b->d;
    const float *const from = t.from;
    float *const to = t.to;
    for (int64_t y = b->y0; y < b->y1; y += t.n_rows) {
        t.n = d->columns;
        t.n_rows = df_min_i64(b->y1 - y, d->image_rows - y % d->image_rows);
        t.to = to + (y - b->y0) * d->columns * t.to_row;
        t.from = from + y / d->image_rows * image;
        t.row = row + y % d->image_rows * 2;
        turn(&t);
    }
}

static void turn_images(const block *b, int64_t c)
{
    const gradient *const d = b->d;
    const df_images *const m = d->j->images;
    const int64_t n_tiles = (b->y1 - b->y0) * d->columns;
    const df_winograd_turn t = { .to = b->v + c / d->nr * d->nr * n_tiles + c % d->nr,
                                 .position = d->v_position,
                                 .to_row = d->nr,
                                 .n_channels = df_min_i64(TURNED, d->n_channels - c),
                                 .from = (const float *)(const void *)d->j->b + c * m->channel,
                                 .channel = m->channel,
                                 .from_row = m->row,
                                 .extent = { m->extent[0], m->extent[1] },
                                 .column = d->square.least[1] };
    turn_rows(b, t, m->image, d->square.least[0], d->code->turned_image);
}

static void turn_results(const block *b, int64_t i)
{
    const gradient *const d = b->d;
    const df_images *const m = d->j->images;
    const int64_t n_tiles = (b->y1 - b->y0) * d->columns;
    const df_winograd_turn t = { .to = b->y + i * n_tiles,
                                 .position = d->y_position,
                                 .to_row = TURNED,
                                 .n_channels = df_min_i64(TURNED, d->j->m - i),
                                 .from = (const float *)(const void *)d->j->a + i * d->j->a_row,
                                 .channel = d->j->a_row,
                                 .from_row = m->out[1],
                                 .extent = { m->out[0], m->out[1] } };
    turn_rows(b, t, m->out[0] * m->out[1], 0, d->code->turned_results);
}

static int64_t n_turns(const gradient *d)
{
    return df_div_up(d->n_channels, TURNED) + df_div_up(d->j->m, TURNED);
}

static void turn_task(void *user, uint32_t i, uint32_t thread)
{
    const block *const b = user;
    const int64_t n_images = df_div_up(b->d->n_channels, TURNED);
    (void)thread;
    if (i < n_images)
        turn_images(b, i * TURNED);
    else
        turn_results(b, (i - n_images) * TURNED);
}

static int64_t n_products(const gradient *d)
{
    return POSITIONS * df_div_up(d->n_channels, d->nr);
}

/* Adds the block to P, at one position and for one panel of channels. */
static void panel_task(void *user, uint32_t task, uint32_t thread)
{
    const block *const b = user;
    const gradient *const d = b->d;
    const int64_t n_tiles = (b->y1 - b->y0) * d->columns;
    const int64_t panels = df_div_up(d->n_channels, d->nr);
    const int64_t x = task / panels, c = task % panels * d->nr;
    const int64_t n = df_min_i64(d->nr, d->n_channels - c);
    const float *const v = b->v + x * d->v_position + c * n_tiles;
    (void)thread;
    for (int64_t i = 0; i < d->j->m; i += TURNED) {
        const df_winograd_tile t = { .k = n_tiles,
                                     .a = b->y + x * d->y_position + i * n_tiles,
                                     .b = v,
                                     .nr = d->nr,
                                     .c = b->p + x * d->p_position + i * d->p_row + c,
                                     .ld = d->p_row,
                                     .m = df_min_i64(TURNED, d->j->m - i),
                                     .n = n,
                                     .first = b->first,
                                     .next = b->y + x * d->y_position + (i + TURNED) * n_tiles };
        df_winograd_multiply(d->g, d->tiles, TURNED, &t);
    }
}

/* ---- parts ---- */

/* Computes P of a part, with the memory of a thread. pool NULL: on this thread alone. */
DF_NOINLINE static void compute_part(const gradient *d, int64_t part, uint32_t thread,
                                     df_pool *pool)
{
    const int64_t y0 = part * d->per_part, end = df_min_i64(y0 + d->per_part, d->rows);
    block b = { .d = d, .y = tiles_of(d, thread), .p = part_of(d, part), .first = true };
    b.v = b.y + d->y_bytes / sizeof(float);
    for (b.y0 = y0; b.y0 < end; b.y0 = b.y1, b.first = false) {
        b.y1 = df_min_i64(b.y0 + d->per_block, end);
        df_winograd_run_tasks(pool, n_turns(d), turn_task, &b);
        df_winograd_run_tasks(pool, n_products(d), panel_task, &b);
    }
}

static void part_task(void *user, uint32_t i, uint32_t thread)
{
    compute_part(user, i, thread, NULL);
}

/* Adds row i of all parts to that of the first one. */
static void add_parts(const gradient *d, int64_t i)
{
    for (int64_t part = 1; part < d->n_parts; part++)
        for (int64_t x = 0; x < POSITIONS; x++) {
            const int64_t at = x * d->p_position + i * d->p_row;
            float *const to = part_of(d, 0) + at;
            const float *const from = part_of(d, part) + at;
            for (int64_t c = 0; c < d->n_channels; c++) to[c] += from[c];
        }
}

static void gradient_task(void *user, uint32_t i, uint32_t thread)
{
    const gradient *const d = user;
    (void)thread;
    add_parts(d, i);
    d->is_finite[i] =
        d->code->gradient((float *)(void *)d->c + i * d->ld, part_of(d, 0) + i * d->p_row,
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
    lay_gradient(j, g, df_pool_threads(pool), &d);
    d.work = df_winograd_aligned(work);
    d.c = j->c ? j->c : results_of(&d);
    d.is_finite = (bool *)(d.work + gradient_bytes(&d));
    if (d.by_parts)
        df_winograd_run_tasks(pool, d.n_parts, part_task, &d);
    else
        for (int64_t part = 0; part < d.n_parts; part++) compute_part(&d, part, 0, pool);
    df_winograd_run_tasks(pool, j->m, gradient_task, &d);
    for (int64_t i = 0; i < j->m; i++)
        if (!d.is_finite[i]) return false;
    if (j->epilogue) df_winograd_run_tasks(pool, df_div_up(j->m, TURNED), epilogue_task, &d);
    return true;
}
