/* SPDX-License-Identifier: Apache-2.0
 *
 * How a convolution in fast mode (winograd.h) is divided.
 *
 *     weights, row by row        -> U  [position][panel of mr rows][channel][mr]
 *     image, channel by channel  -> V  [position][panel of nr tiles][channel][nr]
 *     16 products U V            -> M  [position][a few rows][tiles]
 *     M, row by row              -> results, and then the epilogue
 *
 * With many tiles, a task computes some rows of tiles for all rows of A, and has a V of its own.
 * Rows of tiles are counted through all images of a batch entry, so that a task has neighbouring
 * columns of C. Each thread transforms all weights first, for itself: to read them from the cache
 * of another core would take longer. Only where there are several batch entries, the threads share
 * them.
 *
 * With more weights than tiles, all images are transformed first. Then a task computes all tiles
 * for some rows of A, and has a U of its own. It stays in L2, because it is read at once.
 *
 * The micro-kernel is that of other products. Each element of M is one chain of fma over the
 * channels, whatever tiles lie beside it. So the division changes no result.
 *
 * With thirds (thirds/thirds.h), U and V are transformed STEP channels at a time, into a part of
 * the thread's own memory, and packed from there. Then an element of M is a sum over steps. A task
 * that has a U of its own computes SLICE channels after the other.
 *
 * Why this file is long: both kinds of tasks and of elements share the struct `division`.
 */
#include "runtime/thirds/thirds.h"
#include "runtime/winograd/winograd_parts.h"

#include <math.h>
#include <string.h>

enum {
    POSITIONS = DF_WINOGRAD_POSITIONS,
    TAPS = DF_WINOGRAD_TAPS,
    GROUP = 32,             /* rows of M at once. Each panel of V is read once for all of them */
    IMAGE_BYTES = 3 << 18,  /* of V in a task, where there are no more rows of tiles than one */
    WEIGHT_BYTES = 1 << 19, /* of U in a task of its own: half of L2 */
    CHUNK = 32,             /* channels of weights that are packed at once: they stay in L1 */
    IMAGE_CHUNK = 8,        /* channels of images that a thread transforms at once */
    LANES = DF_WINOGRAD_LANES,
    TASK_LANES = 8 * LANES, /* tiles that take as long as a task without tiles */
    STEP = DF_THIRDS_STEP,
    SLICE = 4 * STEP,             /* channels of U that a task packs at once: they stay in L2 */
    THIRDS_BYTES = 6,             /* of an element */
    THIRDS_IMAGE_BYTES = 1 << 19, /* IMAGE_BYTES, as f32 are in L2 beside them */
    THIRDS_FILTERS = 64,          /* of a task that has all tiles. V is read once for all of them */
    THIRDS_GAP = 192 /* bytes between two positions, which else share sets of the caches */
};

typedef struct division {
    const df_matmul_job *j;
    const df_winograd_code *code;
    const df_tiles *tiles;
    const df_gemm_kernel *g;      /* NULL: tiles->block multiplies */
    const df_thirds_code *thirds; /* NULL: U and V are f32 */
    int64_t mr, nr;
    int64_t n_channels;
    int64_t element;             /* bytes of an element of U and V */
    int64_t image_rows, columns; /* tiles in a column and in a row of an image */
    int64_t rows;                /* rows of tiles of a batch entry */
    bool by_filters;             /* tasks have rows of A, and all tiles of the only batch entry */
    int64_t filters;             /* rows of A of a task */
    int64_t n_parts;             /* tasks of a batch entry */
    int64_t n_full, per_task;    /* of these, the first ones have per_task rows of tiles, */
    int64_t per_rest;            /* and the others per_rest */
    df_winograd_square square;
    int64_t n_panels, m_panels;                 /* of V and of U, each as its buffer has them */
    int64_t group;                              /* rows of M */
    int64_t v_position, u_position, m_position; /* elements from one position to the next */
    int64_t step_position;                      /* the same for a STEP of f32, before packing */
    bool has_own_weights;                       /* each thread has a U */
    int64_t n_shared;                   /* U, or V: of each batch entry, or of each thread */
    size_t shared_bytes;                /* of one of them */
    size_t own_bytes, m_bytes, c_bytes; /* of a thread: V, or U; M; results, without c */
    size_t step_bytes; /* of a thread, with thirds: a STEP of f32, and of weights before that */
    char *work;
    /* With thirds: for each panel of each U, or each STEP of V, whether it has elements that are no
     * sums of thirds. */
    bool *is_large;
    size_t n_large;
    bool *is_ready; /* by thread, with has_own_weights: whether its U is there */
} division;

/* ---- division ---- */

/* Sets how rows of tiles are divided into tasks of `per_task` rows. Where there is one batch entry,
 * all threads get as many of these, and then share the rest. Returns how long the longest thread
 * takes. */
static int64_t divide_rows(division *d, int64_t per_task, uint32_t n_threads)
{
    const int64_t n_batch = d->j->n_batch, round = n_batch == 1 ? n_threads : 1;
    d->per_task = per_task;
    d->n_full = d->rows / (per_task * round) * round;
    const int64_t rest = d->rows - d->n_full * per_task;
    d->per_rest = df_div_up(rest, round);
    d->n_parts = d->n_full + (rest > 0 ? df_div_up(rest, d->per_rest) : 0);
    const int64_t full = df_div_up(per_task * d->columns, LANES) * LANES + TASK_LANES;
    const int64_t short_one = df_div_up(d->per_rest * d->columns, LANES) * LANES + TASK_LANES;
    if (n_batch == 1) return d->n_full / n_threads * full + (rest > 0 ? short_one : 0);
    return df_div_up(d->n_parts * n_batch, n_threads) * full;
}

/* Divides the rows of tiles so that the threads end first. */
static void choose_rows(division *d, uint32_t n_threads)
{
    const int64_t tile_bytes = POSITIONS * d->n_channels * d->element;
    const int64_t bytes = d->thirds ? THIRDS_IMAGE_BYTES : IMAGE_BYTES;
    const int64_t most = df_max_i64(1, bytes / tile_bytes / d->columns);
    int64_t best = 1, least = INT64_MAX;
    for (int64_t rows = 1; rows <= df_min_i64(most, d->rows); rows++) {
        const int64_t longest = divide_rows(d, rows, n_threads);
        if (longest > least) continue;
        best = rows;
        least = longest;
    }
    divide_rows(d, best, n_threads);
}

/* Returns the rows of A of a task that has all tiles. */
static int64_t filters_per_task(const division *d, uint32_t n_threads)
{
    const int64_t row_bytes = POSITIONS * d->n_channels * d->element;
    const int64_t most = d->thirds ? THIRDS_FILTERS : df_min_i64(GROUP, WEIGHT_BYTES / row_bytes);
    const int64_t fair = df_div_up(d->j->m, (d->thirds ? 2 : 4) * (int64_t)n_threads);
    return df_max_i64(d->mr, df_min_i64(most, fair) / d->mr * d->mr);
}

static void use_thirds(division *d)
{
    d->thirds = df_thirds_pick();
    d->g = NULL;
    d->mr = d->nr = DF_THIRDS_LANES;
    d->element = THIRDS_BYTES;
}

/* Bytes of n channels of a panel of thirds. */
static int64_t thirds_panel(int64_t n_channels)
{
    return df_div_up(n_channels, STEP) * DF_THIRDS_BYTES;
}

/* Positions are counted in f32 all the same. */
static void place_thirds(division *d)
{
    const int64_t size = (int64_t)sizeof(float);
    const int64_t u = d->by_filters ? df_min_i64(d->n_channels, SLICE) : d->n_channels;
    d->v_position = (d->n_panels * thirds_panel(d->n_channels) + THIRDS_GAP) / size;
    d->u_position = (d->m_panels * thirds_panel(u) + THIRDS_GAP) / size;
    d->step_position = df_winograd_skewed(df_max_i64(d->n_panels * d->nr, d->mr) * STEP);
    d->n_large =
        (size_t)(d->by_filters ? df_div_up(d->n_channels, STEP) : d->m_panels * d->n_shared);
}

bool df_winograd_is_by_filters(const df_matmul_job *j)
{
    const df_images *const m = j->images;
    const int64_t images = j->n / (m->out[0] * m->out[1]);
    return j->n_batch == 1 && images * df_div_up(m->out[0], 2) * df_div_up(m->out[1], 2) <= j->m;
}

DF_COLD static void winograd_divide(const df_matmul_job *j, const df_gemm_kernel *g,
                                    uint32_t n_threads, division *d)
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
    d->element = (int64_t)sizeof(float);
    if (j->in_thirds) use_thirds(d);
    d->image_rows = df_div_up(m->out[0], 2);
    d->columns = df_div_up(m->out[1], 2);
    d->rows = j->n / (m->out[0] * m->out[1]) * d->image_rows;
    d->by_filters = df_winograd_is_by_filters(j);
    d->filters = d->by_filters ? filters_per_task(d, n_threads) : j->m;
    d->has_own_weights = !d->by_filters && j->n_batch == 1;
    d->n_shared = d->has_own_weights ? n_threads : j->n_batch;
    if (d->by_filters) {
        d->per_task = d->rows;
        d->n_parts = df_div_up(j->m, d->filters);
    } else
        choose_rows(d, n_threads);
    d->n_panels = df_div_up(d->per_task * d->columns, d->nr);
    d->m_panels = df_div_up(df_min_i64(d->filters, j->m), d->mr);
    d->group = d->by_filters ? d->filters : GROUP;
    d->v_position = df_winograd_skewed(d->n_panels * d->nr * d->n_channels);
    d->u_position = df_winograd_skewed(d->m_panels * d->mr * d->n_channels);
    if (d->thirds) place_thirds(d);
    d->m_position = df_winograd_skewed(d->group * d->n_panels * d->nr);
    /* The direct product of a row of tiles packs a panel of windows where V or U of the task was,
     * and packing weights needs room for some channels, where M will be. */
    const int64_t windows = j->k * d->nr, weights = CHUNK * TAPS * d->mr;
    const int64_t shared = d->by_filters ? d->v_position : d->u_position;
    const int64_t own = d->by_filters ? d->u_position : d->v_position;
    d->shared_bytes = df_winograd_bytes(POSITIONS * shared);
    d->own_bytes = df_winograd_bytes(df_max_i64(POSITIONS * own, windows));
    if (d->thirds) d->step_bytes = df_winograd_bytes(POSITIONS * d->step_position + weights);
    d->m_bytes = df_winograd_bytes(df_max_i64(POSITIONS * d->m_position + LANES, weights));
    d->c_bytes = j->c            ? 0
                 : d->by_filters ? df_winograd_bytes(d->filters * j->n)
                                 : df_winograd_bytes(j->m * 2 * d->per_task * m->out[1]);
}

static size_t winograd_thread_bytes(const division *d)
{
    return d->own_bytes + d->m_bytes + d->c_bytes + d->step_bytes;
}

/* Bytes of all but the flags, which follow. */
static size_t winograd_arrays(const division *d, uint32_t n_threads)
{
    return d->shared_bytes * (size_t)d->n_shared + winograd_thread_bytes(d) * n_threads;
}

size_t df_winograd_results_work_size(const df_matmul_job *j, const df_gemm_kernel *g,
                                     uint32_t n_threads)
{
    division d;
    winograd_divide(j, g, n_threads, &d);
    return winograd_arrays(&d, n_threads) + d.n_large + n_threads + DF_WINOGRAD_ALIGN;
}

static float *shared_of(const division *d, int64_t i)
{
    return (float *)(void *)(d->work + d->shared_bytes * (size_t)i);
}

/* Which of the transformed weights a task reads. */
static int64_t weights_index(const division *d, int64_t batch, uint32_t thread)
{
    return d->has_own_weights ? thread : batch;
}

static float *own_of(const division *d, uint32_t thread)
{
    return (float *)(void *)(d->work + d->shared_bytes * (size_t)d->n_shared +
                             thread * winograd_thread_bytes(d));
}

static float *products_of(const division *d, uint32_t thread)
{
    return own_of(d, thread) + d->own_bytes / sizeof(float);
}

/* Room for a STEP of f32. */
static float *thread_step(const division *d, uint32_t thread)
{
    return products_of(d, thread) + (d->m_bytes + d->c_bytes) / sizeof(float);
}

/* ---- weights ---- */

/* Transforms channels [c0, c1) of a panel of rows of A of one batch entry, from `row` on, to
 * thirds. Returns false when a weight is no sum of thirds. */
DF_NOINLINE static bool pack_filters(const division *d, uint32_t thread, int64_t batch, int64_t row,
                                     int64_t c0, int64_t c1, float *to)
{
    const df_matmul_job *const j = d->j;
    const float *const a = (const float *)(const void *)j->a +
                           df_matmul_batch_offset(j, j->a_batch, batch) + row * j->a_row;
    float *const step = thread_step(d, thread), *const packed = step + POSITIONS * d->step_position;
    const int64_t w = df_min_i64(d->mr, j->m - row);
    bool is_sum = true;
    for (int64_t c = c0; c < c1; c += STEP, to += DF_THIRDS_BYTES / sizeof *to) {
        const int64_t n = df_min_i64(STEP, c1 - c);
        d->tiles->pack(packed, d->mr, a + c * TAPS * j->a_col, j->a_col, j->a_row, n * TAPS, w);
        d->code->weights(step, d->step_position, packed, n, d->mr, d->square.where);
        for (int64_t x = 0; x < POSITIONS; x++)
            is_sum &= d->thirds->pack(to + x * d->u_position, false, step + x * d->step_position,
                                      d->mr, 1, n, w);
    }
    return is_sum;
}

/* Transforms a panel of rows of A of one batch entry, from `row` on. */
DF_NOINLINE static void transform_weights(const division *d, uint32_t thread, int64_t batch,
                                          int64_t row, float *to)
{
    const df_matmul_job *const j = d->j;
    const float *const a = (const float *)(const void *)j->a +
                           df_matmul_batch_offset(j, j->a_batch, batch) + row * j->a_row;
    float *const packed = products_of(d, thread);
    for (int64_t c = 0, n; c < d->n_channels; c += n) {
        n = df_min_i64(CHUNK, d->n_channels - c);
        d->tiles->pack(packed, d->mr, a + c * TAPS * j->a_col, j->a_col, j->a_row, n * TAPS,
                       df_min_i64(d->mr, j->m - row));
        d->code->weights(to + c * d->mr, d->u_position, packed, n, d->mr, d->square.where);
    }
}

DF_NOINLINE static void transform_panel(const division *d, uint32_t thread, int64_t batch,
                                        int64_t panel)
{
    const int64_t of = weights_index(d, batch, thread), row = panel * d->mr;
    float *const to = shared_of(d, of);
    if (d->thirds)
        d->is_large[of * d->m_panels + panel] =
            !pack_filters(d, thread, batch, row, 0, d->n_channels,
                          to + panel * thirds_panel(d->n_channels) / (int64_t)sizeof(float));
    else
        transform_weights(d, thread, batch, row, to + row * d->n_channels);
}

static void weights_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    transform_panel(d, thread, i / d->m_panels, i % d->m_panels);
}

/* Transforms the weights, in the first task of the thread. */
static void prepare_weights(const division *d, uint32_t thread)
{
    if (d->is_ready[thread]) return;
    for (int64_t panel = 0; panel < d->m_panels; panel++) transform_panel(d, thread, 0, panel);
    d->is_ready[thread] = true;
}

/* ---- one task ---- */

/* Some rows of tiles of a batch entry, for some rows of A. */
typedef struct block {
    const division *d;
    uint32_t thread;
    int64_t batch, y0, y1; /* rows of tiles, counted through all images */
    int64_t m0, m1;        /* rows of A */
    const float *u;        /* of m0 */
    float *v;              /* of y0 */
    char *c;               /* where the results of the first row begin */
    int64_t ld;
    bool v_is_large; /* V has an element that is no sum of thirds */
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
    return (float *)(void *)b->c + (i - b->m0) * b->ld + row * b->d->j->images->out[1];
}

/* Sets the lanes behind the last tile to 0, in n_channels channels from c0 on. They are multiplied,
 * too, although nothing reads the products. What the workspace held before may be denormals, with
 * which the processor multiplies several times as slowly. */
static void clear_padding(const block *b, int64_t c0, int64_t n_channels)
{
    const division *const d = b->d;
    const int64_t n = (b->y1 - b->y0) * d->columns, used = n % d->nr;
    float *to = b->v + (n - used) * d->n_channels + c0 * d->nr + used;
    for (int64_t x = 0; x < POSITIONS && used != 0; x++, to += d->v_position)
        for (int64_t c = 0; c < n_channels; c++)
            memset(to + c * d->nr, 0, (size_t)(d->nr - used) * sizeof *to);
}

/* Where the transformed images go. */
typedef struct image_sink {
    float *to;
    int64_t position, panel; /* elements from one position to the next, and from panel to panel */
} image_sink;

/* Transforms rows [y0, y1) of tiles of n_channels channels, from c0 on. */
static void transform_image_rows(const block *b, int64_t y0, int64_t y1, int64_t c0,
                                 int64_t n_channels, image_sink sink)
{
    const division *const d = b->d;
    const df_images *const m = d->j->images;
    for (int64_t y = y0, n; y < y1; y += n) {
        n = df_min_i64(y1 - y, d->image_rows - y % d->image_rows);
        df_winograd_image p = { .to = sink.to,
                                .position = sink.position,
                                .panel = sink.panel,
                                .width = d->nr,
                                .first = (y - y0) * d->columns,
                                .from = (const float *)(const void *)d->j->b +
                                        (b->batch * d->n_channels + c0) * m->channel +
                                        y / d->image_rows * m->image,
                                .from_row = m->row,
                                .extent = { m->extent[0], m->extent[1] },
                                .row = d->square.least[0] + y % d->image_rows * 2,
                                .column = d->square.least[1],
                                .n_rows = n,
                                .n = d->columns };
        for (int64_t c = 0; c < n_channels; c++, p.to += d->nr, p.from += m->channel)
            d->code->image(&p);
    }
}

/* Transforms n_channels channels, from c0 on. */
static void transform_images(const block *b, int64_t c0, int64_t n_channels)
{
    const division *const d = b->d;
    transform_image_rows(b, b->y0, b->y1, c0, n_channels,
                         (image_sink){ b->v + c0 * d->nr, d->v_position, d->n_channels * d->nr });
    clear_padding(b, c0, n_channels);
}

/* Transforms a STEP of channels, from c0 on, to thirds. Returns false when an element is no sum of
 * thirds. */
static bool pack_images(const block *b, int64_t c0)
{
    const division *const d = b->d;
    const int64_t n = df_min_i64(STEP, d->n_channels - c0), size = (int64_t)sizeof(float);
    const int64_t n_tiles = (b->y1 - b->y0) * d->columns, panel = STEP * d->nr;
    float *const step = thread_step(d, b->thread);
    bool is_sum = true;
    transform_image_rows(b, b->y0, b->y1, c0, n, (image_sink){ step, d->step_position, panel });
    for (int64_t x = 0; x < POSITIONS; x++)
        for (int64_t i = 0; i * d->nr < n_tiles; i++)
            is_sum &=
                d->thirds->pack(b->v + x * d->v_position +
                                    (i * thirds_panel(d->n_channels) + thirds_panel(c0)) / size,
                                true, step + x * d->step_position + i * panel, d->nr, 1, n,
                                df_min_i64(d->nr, n_tiles - i * d->nr));
    return is_sum;
}

/* Computes rows [m0, m1) of M: the products of all positions. */
static void multiply_group(const block *b, float *to, int64_t m0, int64_t m1)
{
    const division *const d = b->d;
    const int64_t n = (b->y1 - b->y0) * d->columns, ld = d->n_panels * d->nr;
    for (int64_t x = 0; x < POSITIONS; x++)
        for (int64_t j = 0; j < n; j += d->nr) {
            const float *const panel = b->v + x * d->v_position + j * d->n_channels;
            for (int64_t i = m0; i < m1; i += d->mr) {
                const df_winograd_tile t = { .k = d->n_channels,
                                             .a = b->u + x * d->u_position +
                                                  (i - b->m0) * d->n_channels,
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

/* Adds the products of channels [c0, c1) of all positions to `m` rows of M, whose panels of U begin
 * at `u`. V has all channels. */
static void multiply_in_thirds(const block *b, float *to, const float *u, int64_t m, int64_t c0,
                               int64_t c1)
{
    const division *const d = b->d;
    const int64_t n = (b->y1 - b->y0) * d->columns, ld = d->n_panels * d->nr;
    const int64_t size = (int64_t)sizeof(float), u_panel = thirds_panel(c1 - c0) / size;
    const int64_t v_panel = thirds_panel(d->n_channels) / size;
    for (int64_t x = 0; x < POSITIONS; x++)
        for (int64_t j = 0; j < n; j += d->nr)
            for (int64_t i = 0; i < m; i += d->mr)
                d->thirds->block(
                    df_div_up(c1 - c0, STEP), u + x * d->u_position + i / d->mr * u_panel,
                    b->v + x * d->v_position + j / d->nr * v_panel + thirds_panel(c0) / size,
                    to + x * d->m_position + i * ld + j, ld, df_min_i64(d->mr, m - i),
                    df_min_i64(d->nr, n - j), c0 == 0, false, (df_thirds_ahead){ 0 });
}

/* Computes a row of tiles as a direct product, for rows [m0, m1) of A. */
DF_COLD static void multiply_directly(const block *b, int64_t y, int64_t m0, int64_t m1)
{
    const division *const d = b->d;
    const df_matmul_job *const j = d->j;
    const int64_t first = results_before(d, y) * j->images->out[1];
    const int64_t end = results_before(d, y + 1) * j->images->out[1];
    float *const packed = own_of(d, b->thread);
    for (int64_t j0 = first; j0 < end; j0 += d->nr) {
        const int64_t n = df_min_i64(d->nr, end - j0);
        df_images_pack(j->images, j->dtype, (char *)packed, d->nr, j->b, b->batch, j->k, 0, j->k,
                       j0, j0 + n);
        d->tiles->block(&(df_block){ .m = m1 - m0,
                                     .n = n,
                                     .k = j->k,
                                     .a = (const float *)(const void *)j->a +
                                          df_matmul_batch_offset(j, j->a_batch, b->batch) +
                                          m0 * j->a_row,
                                     .b = packed,
                                     .c = results_at(b, m0, y) + (j0 - first),
                                     .a_row = j->a_row,
                                     .a_col = j->a_col,
                                     .b_row = d->nr,
                                     .c_row = b->ld,
                                     .first = true });
    }
}

/* Whether the results of a row of tiles are all finite for row i of A. */
static bool is_finite_row(const block *b, int64_t i, int64_t y)
{
    const int64_t n = results_before(b->d, y + 1) - results_before(b->d, y);
    const float *const c = results_at(b, i, y);
    for (int64_t x = 0; x < n * b->d->j->images->out[1]; x++)
        if (!isfinite(c[x])) return false;
    return true;
}

/* Computes a row of tiles again for the rows of A for which a result is not finite. */
DF_COLD static void correct_row(const block *b, int64_t y)
{
    for (int64_t m0 = b->m0, m1; m0 < b->m1; m0 = m1 + 1) {
        while (m0 < b->m1 && is_finite_row(b, m0, y)) m0++;
        for (m1 = m0; m1 < b->m1 && !is_finite_row(b, m1, y);) m1++;
        if (m0 < m1) multiply_directly(b, y, m0, m1);
    }
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

/* Whether the row of tiles has an element that is no sum of thirds. */
static bool is_large_row(const block *b, int64_t y)
{
    const division *const d = b->d;
    float *const to = thread_step(d, b->thread);
    for (int64_t c = 0; c < d->n_channels; c++) {
        transform_image_rows(b, y, y + 1, c, 1, (image_sink){ to, d->step_position, d->nr });
        for (int64_t x = 0; x < POSITIONS; x++)
            for (int64_t i = 0; i < d->columns; i++)
                if (!(fabsf(to[x * d->step_position + i]) < 0x1p24f)) return true;
    }
    return false;
}

/* Computes rows [m0, m1) of A with thirds. Returns whether all results are finite. Sets bit i of
 * *large when panel i of the block has a weight that is no sum of thirds. */
static bool compute_by_thirds(const block *b, int64_t m0, int64_t m1, uint64_t *large)
{
    const division *const d = b->d;
    const int64_t slice = d->by_filters ? SLICE : d->n_channels, size = (int64_t)sizeof(float);
    const int64_t panel = d->by_filters ? 0 : m0 / d->mr;
    float *const products = products_of(d, b->thread), *const own = own_of(d, b->thread);
    const float *const u = b->u + panel * thirds_panel(d->n_channels) / size;
    bool is_finite = true;
    df_assert(panel < 64);
    if (!d->by_filters && d->is_large[weights_index(d, b->batch, b->thread) * d->m_panels + panel])
        *large |= (uint64_t)1 << panel;
    for (int64_t c = 0, end; c < d->n_channels; c = end) {
        end = df_min_i64(c + slice, d->n_channels);
        for (int64_t i = 0; m0 + i * d->mr < m1 && d->by_filters; i++)
            if (!pack_filters(d, b->thread, b->batch, m0 + i * d->mr, c, end,
                              own + i * thirds_panel(end - c) / size))
                *large |= (uint64_t)1 << i;
        d->thirds->begin();
        multiply_in_thirds(b, products, u, m1 - m0, c, end);
        d->thirds->end();
    }
    for (int64_t i = m0; i < m1; i++)
        is_finite &= transform_row(b, i, products + (i - m0) * d->n_panels * d->nr);
    return is_finite;
}

/* Computes again what has elements that are no sums of thirds. V and U are overwritten. */
DF_COLD static void correct_large(const block *b, uint64_t large)
{
    const division *const d = b->d;
    for (int64_t m0 = b->m0; m0 < b->m1; m0 += d->mr, large >>= 1)
        for (int64_t y = b->y0; y < b->y1 && (large & 1); y++)
            multiply_directly(b, y, m0, df_min_i64(m0 + d->mr, b->m1));
    for (int64_t y = b->y0; y < b->y1 && b->v_is_large; y++)
        if (is_large_row(b, y)) multiply_directly(b, y, b->m0, b->m1);
}

static void compute_block(const block *b)
{
    const division *const d = b->d;
    float *const products = products_of(d, b->thread);
    bool is_finite = true;
    uint64_t large = 0;
    for (int64_t m0 = b->m0; m0 < b->m1; m0 += d->group) {
        const int64_t m1 = df_min_i64(m0 + d->group, b->m1);
        if (d->thirds) {
            is_finite &= compute_by_thirds(b, m0, m1, &large);
            continue;
        }
        multiply_group(b, products, m0, m1);
        for (int64_t i = m0; i < m1; i++)
            is_finite &= transform_row(b, i, products + (i - m0) * d->n_panels * d->nr);
    }
    if (b->v_is_large || large != 0) correct_large(b, large);
    for (int64_t y = b->y0; y < b->y1 && !is_finite; y++) correct_row(b, y);
}

/* Computes the block and its epilogue, once b has all but the results. */
static void finish_block(block *b)
{
    const division *const d = b->d;
    const df_matmul_job *const j = d->j;
    const int64_t first = results_before(d, b->y0) * j->images->out[1];
    const int64_t end = results_before(d, b->y1) * j->images->out[1];
    const int64_t of_c = df_matmul_batch_offset(j, j->c_batch, b->batch) + b->m0 * j->c_row + first;
    b->ld = j->c ? j->c_row : d->by_filters ? j->n : 2 * d->per_task * j->images->out[1];
    b->c = j->c ? j->c + of_c * (int64_t)sizeof(float)
                : (char *)products_of(d, b->thread) + d->m_bytes;
    compute_block(b);
    if (j->epilogue)
        j->epilogue(j->user, b->thread, b->c, b->ld, b->batch * j->m + b->m0,
                    b->batch * j->m + b->m1, first, end);
}

/* Some rows of tiles, for all rows of A. */
static void tiles_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    block b = { .d = d, .thread = thread, .batch = i / d->n_parts, .m1 = d->j->m };
    const int64_t part = i % d->n_parts, after = df_max_i64(0, part - d->n_full);
    b.y0 = (part - after) * d->per_task + after * d->per_rest;
    b.y1 = df_min_i64(b.y0 + (part < d->n_full ? d->per_task : d->per_rest), d->rows);
    if (d->has_own_weights) prepare_weights(d, thread);
    b.u = shared_of(d, weights_index(d, b.batch, thread));
    b.v = own_of(d, thread);
    if (!d->thirds) transform_images(&b, 0, d->n_channels);
    for (int64_t c = 0; c < d->n_channels && d->thirds; c += STEP)
        b.v_is_large |= !pack_images(&b, c);
    finish_block(&b);
}

/* Some channels of all tiles. */
static void images_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const block b = { .d = d, .thread = thread, .y1 = d->rows, .v = shared_of(d, 0) };
    const int64_t c0 = (int64_t)i * (d->thirds ? STEP : IMAGE_CHUNK);
    if (d->thirds) {
        d->is_large[i] = !pack_images(&b, c0);
        return;
    }
    transform_images(&b, c0, df_min_i64(IMAGE_CHUNK, d->n_channels - c0));
}

/* Some rows of A, for all tiles. */
static void filters_task(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    float *const u = own_of(d, thread);
    block b = { .d = d, .thread = thread, .y1 = d->rows, .u = u, .v = shared_of(d, 0) };
    b.m0 = i * d->filters;
    b.m1 = df_min_i64(b.m0 + d->filters, d->j->m);
    for (size_t x = 0; x < d->n_large; x++) b.v_is_large |= d->is_large[x];
    for (int64_t row = b.m0; row < b.m1 && !d->thirds; row += d->mr)
        transform_weights(d, thread, 0, row, u + (row - b.m0) * d->n_channels);
    finish_block(&b);
}

/* ---- the call ---- */

void df_winograd_run_results(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool,
                             void *work)
{
    division d;
    winograd_divide(j, g, df_pool_threads(pool), &d);
    d.work = df_winograd_aligned(work);
    const uint32_t n_threads = df_pool_threads(pool);
    d.is_large = (bool *)(d.work + winograd_arrays(&d, n_threads));
    d.is_ready = d.is_large + d.n_large;
    memset(d.is_ready, 0, n_threads);
    if (d.by_filters) {
        df_winograd_run_tasks(pool, df_div_up(d.n_channels, d.thirds ? STEP : IMAGE_CHUNK),
                              images_task, &d);
        df_winograd_run_tasks(pool, d.n_parts, filters_task, &d);
        return;
    }
    if (!d.has_own_weights) df_winograd_run_tasks(pool, d.m_panels * j->n_batch, weights_task, &d);
    df_winograd_run_tasks(pool, d.n_parts * j->n_batch, tiles_task, &d);
}
