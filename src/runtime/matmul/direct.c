/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct convolution. A depthwise convolution has one row of weights for each channel, and sums of
 * kh * kw elements: to copy its windows takes longer than to multiply them. So each row of results
 * is computed in registers, tap by tap. The order is that of the product: each element is one chain
 * acc = fma(a, b, acc) with k ascending from +0.
 *
 * A task computes some rows of windows for all rows of A, and then runs the epilogue over them. The
 * gradient of such weights has one chain for each weight, over all windows of all images. The
 * chains of one channel run side by side, and a task computes those of a batch entry.
 *
 * Windows of 3 x 3 elements that move by 1 are computed from the image itself, with vectors of 64
 * bytes: masked loads yield the padding. Each vector that is loaded serves three rows of results.
 *
 * For all others, a task first copies the rows of the image that it reads, with their padding, into
 * memory that stays in a cache. With stride s along the columns, each such row is copied as s
 * phases. Phase f has the elements f, f + s, f + 2 s and so on, so a tap is a contiguous row of one
 * phase.
 */
#include "runtime/matmul/direct.h"

#include <string.h>

#include "runtime/matmul/windows.h"

enum {
    MAX_ROWS = 4,               /* rows of A: each reads the copy again */
    MAX_DEPTH = DF_DIRECT_TAPS, /* elements of a sum */
    COPY_BYTES =
        32 << 10,       /* of the copy: it stays in the first level cache where that is possible */
    TASK_MACS = 100000, /* multiply-adds that threads share in tasks, at least */
    BEHIND = 64         /* elements that df_image_row may read too many */
};

/* How a product is divided, and where things are in the copy. */
typedef struct direct {
    const df_matmul_job *j;
    const df_image_tiles *tiles;
    char *work;
    size_t thread_bytes, taps_bytes, copy_bytes; /* of one thread; parts of it */
    int64_t size;                                /* of an element */
    int64_t least[2], reach[2]; /* of taps: the least row and column, and from it to the greatest */
    int64_t n_phases, length;   /* of a row of the copy: phases, and elements of one */
    int64_t n_channels;
    int64_t image_rows; /* rows of windows of a batch entry */
    int64_t per_task;   /* of them in a task */
    int64_t n_parts;    /* tasks of an entry */
    bool is_3x3;        /* the image is read itself, and not copied */
} direct;

/* Copied elements of one row of windows more. */
static int64_t row_elements(const direct *d)
{
    return d->n_channels * d->n_phases * d->length;
}

/* Rows of an image that n rows of windows read. */
static int64_t rows_read(const direct *d, int64_t n)
{
    return d->reach[0] + 1 + (n - 1) * d->j->images->step[0];
}

/* Elements of a sum: of all channels and taps. In the gradient of the weights, such sums. */
static int64_t depth_of(const df_matmul_job *j)
{
    return j->images->is_transposed ? j->n : j->k;
}

bool df_direct_wants(const df_matmul_job *j)
{
    const df_images *const m = j->images;
    return m && j->m <= MAX_ROWS && depth_of(j) > 0 && depth_of(j) <= MAX_DEPTH && m->n_taps > 1 &&
           depth_of(j) % m->n_taps == 0 && m->step[0] > 0 && m->step[1] > 0 &&
           (!m->is_transposed || j->a_col == 1);
}

static void find_reach(direct *d)
{
    const df_images *const m = d->j->images;
    for (int i = 0; i < 2; i++) {
        int64_t most = d->least[i] = m->tap[i];
        for (int64_t t = 1; t < m->n_taps; t++) {
            d->least[i] = df_min_i64(d->least[i], m->tap[2 * t + i]);
            most = df_max_i64(most, m->tap[2 * t + i]);
        }
        d->reach[i] = most - d->least[i];
    }
}

static void divide(const df_matmul_job *j, direct *d)
{
    const df_images *const m = j->images;
    const int64_t row = df_max_i64(m->out[1], 1);
    *d = (direct){ .j = j, .tiles = df_image_tiles_pick(j->dtype) };
    d->size = (int64_t)deft_dtype_size(j->dtype);
    d->n_channels = depth_of(j) / m->n_taps;
    d->image_rows = (m->is_transposed ? j->k : j->n) / row;
    find_reach(d);
    d->n_phases = df_min_i64(m->step[1], d->reach[1] + 1);
    d->length = row + d->reach[1] / m->step[1];
    const int64_t fit = COPY_BYTES / (row_elements(d) * d->size) - d->reach[0];
    const int64_t rows = df_min_i64(df_max_i64(1, fit / m->step[0]), df_max_i64(1, d->image_rows));
    d->n_parts = df_div_up(d->image_rows, rows);
    d->per_task = df_div_up(d->image_rows, df_max_i64(d->n_parts, 1));
    d->taps_bytes = ((size_t)m->n_taps * sizeof(int64_t) + 63) & ~(size_t)63;
    const int64_t copied = rows_read(d, d->per_task) * row_elements(d) + BEHIND;
    d->copy_bytes = ((size_t)(copied * d->size) + 63) & ~(size_t)63;
    const int64_t columns = m->is_transposed ? j->n : d->per_task * row;
    const size_t tile = j->c ? 0 : (size_t)(columns * j->m * d->size);
    d->thread_bytes = d->taps_bytes + d->copy_bytes + ((tile + 63) & ~(size_t)63);
}

size_t df_direct_work_size(const df_matmul_job *j, uint32_t n_threads)
{
    direct d;
    divide(j, &d);
    return d.thread_bytes * n_threads + 64;
}

/* ---- one task ---- */

/* Copies one phase of rows [y0, y1) of one channel. Those outside of the image become 0. */
static void copy_phase(const direct *d, char *to, const char *image, int64_t phase, int64_t y0,
                       int64_t y1)
{
    const df_images *const m = d->j->images;
    const int64_t x = d->least[1] + phase, by = d->n_phases * d->length;
    const int64_t from = df_min_i64(df_max_i64(0, y0), y1);
    const int64_t end = df_max_i64(from, df_min_i64(m->extent[0], y1));
    const int64_t offset = from * m->row + x * m->column;
    int64_t a, b;
    df_images_within(x, m->step[1], m->extent[1], d->length, &a, &b);
    d->tiles->copy(to, by, image, 0, from - y0, 1, d->length, 0, 0);
    d->tiles->copy(to + (from - y0) * by * d->size, by,
                   (const char *)((uintptr_t)image + (uintptr_t)(offset * d->size)), m->row,
                   end - from, m->step[1] * m->column, d->length, a, b);
    d->tiles->copy(to + (end - y0) * by * d->size, by, image, 0, y1 - end, 1, d->length, 0, 0);
}

/* Copies what n rows of windows of one image read, from row y on. */
static void copy_rows(const direct *d, uint32_t thread, int64_t batch, int64_t image, int64_t y,
                      int64_t n)
{
    const df_images *const m = d->j->images;
    char *const own = d->work + thread * d->thread_bytes;
    int64_t *const tap = (int64_t *)(void *)own;
    char *const copy = own + d->taps_bytes;
    const int64_t read = rows_read(d, n), y0 = d->least[0] + m->step[0] * y;
    const int64_t by = d->n_phases * d->length, first = batch * d->n_channels;
    for (int64_t c = 0; c < d->n_channels; c++)
        for (int64_t f = 0; f < d->n_phases; f++)
            copy_phase(d, copy + (c * read * by + f * d->length) * d->size,
                       d->j->b + ((first + c) * m->channel + image * m->image) * d->size, f, y0,
                       y0 + read);
    for (int64_t t = 0; t < m->n_taps; t++) {
        const int64_t x = m->tap[2 * t + 1] - d->least[1];
        tap[t] = (m->tap[2 * t] - d->least[0]) * by + x % m->step[1] * d->length + x / m->step[1];
    }
}

/* Whether windows of 3 x 3 elements slide over one channel by 1, and there is code for them. */
static bool is_3x3(const direct *d)
{
    const df_images *const m = d->j->images;
    if (!d->tiles->rows_3x3 || d->n_channels != 1 || m->n_taps != 9) return false;
    if (m->step[0] != 1 || m->step[1] != 1 || m->column != 1) return false;
    for (int64_t t = 0; t < 9; t++)
        if (m->tap[2 * t] != m->tap[0] + t / 3 || m->tap[2 * t + 1] != m->tap[1] + t % 3)
            return false;
    return true;
}

/* direct_rows for such windows, without a copy of the image. */
static void direct_rows_3x3(const direct *d, int64_t batch, int64_t image, int64_t y, int64_t n,
                            char *to, int64_t ld)
{
    const df_matmul_job *const j = d->j;
    const df_images *const m = j->images;
    const char *const a = j->a + df_matmul_batch_offset(j, j->a_batch, batch) * d->size;
    for (int64_t of = 0; of < j->m; of++) {
        const df_image_3x3 r = { .to = to + of * ld * d->size,
                                 .to_row = m->out[1],
                                 .n_rows = n,
                                 .n = m->out[1],
                                 .a = a + of * j->a_row * d->size,
                                 .a_col = j->a_col,
                                 .from = j->b + (batch * m->channel + image * m->image) * d->size,
                                 .from_row = m->row,
                                 .extent = { m->extent[0], m->extent[1] },
                                 .row = m->tap[0] + y,
                                 .column = m->tap[1] };
        d->tiles->rows_3x3(&r);
    }
}

/* Computes n rows of windows of one image, from row y on. `to` is where they go. */
static void direct_rows(const direct *d, uint32_t thread, int64_t batch, int64_t image, int64_t y,
                        int64_t n, char *to, int64_t ld)
{
    const df_matmul_job *const j = d->j;
    const df_images *const m = j->images;
    const char *const own = d->work + thread * d->thread_bytes;
    const char *const copy = own + d->taps_bytes;
    const int64_t by = d->n_phases * d->length;
    copy_rows(d, thread, batch, image, y, n);
    const char *const a = j->a + df_matmul_batch_offset(j, j->a_batch, batch) * d->size;
    for (int64_t i = 0; i < n * j->m; i++) {
        const int64_t row = i / j->m, of = i % j->m;
        const df_image_row r = { .to = to + (of * ld + row * m->out[1]) * d->size,
                                 .n = m->out[1],
                                 .a = a + of * j->a_row * d->size,
                                 .a_col = j->a_col,
                                 .n_channels = d->n_channels,
                                 .n_taps = m->n_taps,
                                 .from = copy + row * m->step[0] * by * d->size,
                                 .channel = rows_read(d, n) * by,
                                 .tap = (const int64_t *)(const void *)own };
        d->tiles->row(&r);
    }
}

/* Where a task without c puts its results. */
static char *tile_of(const direct *d, uint32_t thread)
{
    return d->work + thread * d->thread_bytes + d->taps_bytes + d->copy_bytes;
}

/* Adds n rows of windows of one image, from row `at` of all images on, to the sums at `to`. */
static void sum_rows(const direct *d, uint32_t thread, int64_t batch, int64_t at, int64_t n,
                     char *to, int64_t ld)
{
    const df_matmul_job *const j = d->j;
    const df_images *const m = j->images;
    const char *const own = d->work + thread * d->thread_bytes;
    const char *const copy = own + d->taps_bytes;
    const int64_t by = d->n_phases * d->length;
    copy_rows(d, thread, batch, at / m->out[0], at % m->out[0], n);
    const char *const a = j->a + df_matmul_batch_offset(j, j->a_batch, batch) * d->size;
    for (int64_t i = 0; i < j->m * d->n_channels; i++) {
        const int64_t of = i / d->n_channels, c = i % d->n_channels;
        for (int64_t row = 0; row < n; row++)
            d->tiles->sums(to + (of * ld + c * m->n_taps) * d->size,
                           a + (of * j->a_row + (at + row) * m->out[1]) * d->size,
                           copy + (c * rows_read(d, n) + row * m->step[0]) * by * d->size,
                           m->out[1], (const int64_t *)(const void *)own, m->n_taps);
    }
}

/* The gradient of the weights of a batch entry. */
static void sum_task(const direct *d, int64_t batch, uint32_t thread)
{
    const df_matmul_job *const j = d->j;
    const int64_t of_image = j->images->out[0], ld = j->c ? j->c_row : j->n;
    char *const c =
        j->c ? j->c + df_matmul_batch_offset(j, j->c_batch, batch) * d->size : tile_of(d, thread);
    for (int64_t i = 0; i < j->m; i++) memset(c + i * ld * d->size, 0, (size_t)(j->n * d->size));
    for (int64_t y = 0; y < d->image_rows;) {
        const int64_t n =
            df_min_i64(df_min_i64(d->per_task, d->image_rows - y), of_image - y % of_image);
        sum_rows(d, thread, batch, y, n, c, ld);
        y += n;
    }
    if (j->epilogue) j->epilogue(j->user, thread, c, ld, batch * j->m, (batch + 1) * j->m, 0, j->n);
}

static void direct_task(const direct *d, int64_t task, uint32_t thread)
{
    const df_matmul_job *const j = d->j;
    const int64_t batch = task / d->n_parts, y0 = task % d->n_parts * d->per_task;
    const int64_t y1 = df_min_i64(y0 + d->per_task, d->image_rows), row = j->images->out[1];
    const int64_t of_image = j->images->out[0], ld = j->c ? j->c_row : d->per_task * row;
    char *const c = j->c
                        ? j->c + (df_matmul_batch_offset(j, j->c_batch, batch) + y0 * row) * d->size
                        : tile_of(d, thread);
    for (int64_t y = y0; y < y1;) {
        const int64_t n = df_min_i64(y1 - y, of_image - y % of_image);
        char *const to = c + (y - y0) * row * d->size;
        if (d->is_3x3)
            direct_rows_3x3(d, batch, y / of_image, y % of_image, n, to, ld);
        else
            direct_rows(d, thread, batch, y / of_image, y % of_image, n, to, ld);
        y += n;
    }
    if (j->epilogue)
        j->epilogue(j->user, thread, c, ld, batch * j->m, (batch + 1) * j->m, y0 * row, y1 * row);
}

/* ---- the call ---- */

/* All tasks, `each` of them in one piece of work. */
typedef struct work_list {
    const direct *d;
    int64_t n, each;
} work_list;

static void direct_piece(void *user, uint32_t i, uint32_t thread)
{
    const work_list *const l = user;
    const int64_t end = df_min_i64((i + 1) * l->each, l->n);
    for (int64_t t = i * l->each; t < end; t++)
        if (l->d->j->images->is_transposed)
            sum_task(l->d, t, thread);
        else
            direct_task(l->d, t, thread);
}

void df_direct_run(const df_matmul_job *j, df_pool *pool, void *work)
{
    direct d;
    divide(j, &d);
    d.is_3x3 = is_3x3(&d);
    d.work = (char *)(((uintptr_t)work + 63) & ~(uintptr_t)63);
    const int64_t n = (j->images->is_transposed ? 1 : d.n_parts) * j->n_batch,
                  macs = j->n * j->m * j->k * j->n_batch;
    const int64_t pieces = df_max_i64(1, df_min_i64(n, macs / TASK_MACS));
    work_list l = { .d = &d, .n = n, .each = df_div_up(n, pieces) };
    const int64_t n_pieces = df_div_up(n, l.each);
    if (n_pieces == 1 || df_pool_threads(pool) == 1)
        for (int64_t i = 0; i < n_pieces; i++) direct_piece(&l, (uint32_t)i, 0);
    else
        df_pool_run(pool, (uint32_t)n_pieces, direct_piece, &l);
}
