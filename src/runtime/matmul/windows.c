/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of panels from images. Windows next to each other on one row of an image are a run. Their
 * elements under one tap are a strided row of the image, with zeros before and after.
 *
 * With vectors of 64 bytes, a vector of a packed row consists of pieces, one for each run in it.
 * Between channels, the pieces under a tap differ only by the address of the channel. So they are
 * found once. Then a few channels at a time are packed under all taps: the rows of an image that
 * the taps share stay in L1. Otherwise, a run is copied for all channels at once.
 */
#include "runtime/matmul/windows.h"

#include <stdalign.h>
#include <string.h>

#include "runtime/matmul/tile.h"

/* Where column n of the windows is: image and the row and column of the window. */
typedef struct place {
    int64_t image, y, x;
} place;

static place place_of(const df_images *m, int64_t n)
{
    const int64_t rows = n / m->out[1];
    return (place){ rows / m->out[0], rows % m->out[0], n % m->out[1] };
}

/* What a run of n windows from p on shows under tap t. */
static df_image_shown shown_by(const df_images *m, int64_t t, place p, int64_t n)
{
    const int64_t y = m->tap[2 * t] + m->step[0] * p.y, x = m->tap[2 * t + 1] + m->step[1] * p.x;
    df_image_shown s = { .offset = p.image * m->image + y * m->row + x * m->column };
    if (y >= 0 && y < m->extent[0])
        df_images_within(x, m->step[1], m->extent[1], n, &s.first, &s.end);
    return s;
}

/* Packs rows [r0, r1), counted through all batch entries, of the n windows from p on. `to` is where
 * the first element goes. */
static void pack_run(const df_images *m, const df_image_tiles *tiles, int64_t size, char *to,
                     int64_t width, const char *images, int64_t r0, int64_t r1, place p, int64_t n)
{
    for (int64_t t = 0; t < m->n_taps; t++) {
        const int64_t c0 = (r0 - t + m->n_taps - 1) / m->n_taps;
        const int64_t c1 = (r1 - t + m->n_taps - 1) / m->n_taps;
        if (c0 >= c1) continue;
        const df_image_shown s = shown_by(m, t, p, n);
        const int64_t from = s.offset + c0 * m->channel, row = c0 * m->n_taps + t - r0;
        tiles->copy(to + row * width * size, m->n_taps * width,
                    (const char *)((uintptr_t)images + (uintptr_t)(from * size)), m->channel,
                    c1 - c0, m->step[1] * m->column, n, s.first, s.end);
    }
}

/* Sets the columns [n, width) of n_rows rows to 0. */
static void pad_columns(char *to, int64_t n_rows, int64_t n, int64_t width, int64_t size)
{
    for (int64_t i = 0; i < n_rows && n < width; i++)
        memset(to + (i * width + n) * size, 0, (size_t)((width - n) * size));
}

enum { MOST_PIECES = 512 }; /* 8 KiB */

/* Sets what the run of n windows from p on, which begins at column `at` of a panel, shows under all
 * taps. It is the piece count[v] of vector v, and is counted there. */
static void set_pieces(const df_images *m, df_image_panel *panel, df_image_piece *piece,
                       int64_t lanes, int64_t n_vectors, place p, int64_t n, int64_t at,
                       int64_t count[DF_PANEL_VECTORS])
{
    for (int64_t t = 0; t < m->n_taps; t++) {
        const df_image_shown s = shown_by(m, t, p, n);
        for (int64_t v = at / lanes; v * lanes < at + n; v++) {
            const int64_t a = df_max_i64(at + s.first - v * lanes, 0);
            const int64_t b = df_min_i64(at + s.end - v * lanes, lanes);
            if (a >= b) continue;
            piece[(t * n_vectors + v) * panel->n_pieces + count[v]] =
                (df_image_piece){ .offset = s.offset + (v * lanes - at) * panel->step,
                                  .mask = ((1u << b) - 1u) & ~((1u << a) - 1u) };
        }
    }
    for (int64_t v = at / lanes; v * lanes < at + n; v++) count[v]++;
}

/* Packs rows [r0, r1), counted through all batch entries, of columns [j0, j1), which are a few
 * vectors. Returns false, and does nothing, when there would be too many pieces. */
static bool pack_by_pieces(const df_images *m, const df_image_tiles *tiles, char *to, int64_t width,
                           const char *images, int64_t r0, int64_t r1, int64_t j0, int64_t j1)
{
    const int64_t lanes = tiles->lanes, n_vectors = df_div_up(j1 - j0, lanes);
    df_image_piece piece[MOST_PIECES];
    int64_t runs[DF_PANEL_VECTORS] = { 0 }, count[DF_PANEL_VECTORS] = { 0 };
    df_image_panel panel = { .to = to,
                             .to_row = width,
                             .n = j1 - j0,
                             .from = images,
                             .channel = m->channel,
                             .step = m->step[1] * m->column,
                             .n_taps = m->n_taps,
                             .r0 = r0,
                             .r1 = r1,
                             .n_pieces = 1,
                             .piece = piece };
    df_assert(n_vectors <= DF_PANEL_VECTORS);
    for (int64_t j = j0, n; j < j1; j += n) {
        n = df_min_i64(m->out[1] - j % m->out[1], j1 - j);
        for (int64_t v = (j - j0) / lanes; v * lanes < j - j0 + n; v++)
            panel.n_pieces = df_max_i64(panel.n_pieces, ++runs[v]);
    }
    const int64_t n_pieces = m->n_taps * n_vectors * panel.n_pieces;
    if (n_pieces > MOST_PIECES) return false;
    memset(piece, 0, (size_t)n_pieces * sizeof *piece);
    for (int64_t j = j0, n; j < j1; j += n) {
        const place p = place_of(m, j);
        n = df_min_i64(m->out[1] - p.x, j1 - j);
        set_pieces(m, &panel, piece, lanes, n_vectors, p, n, j - j0, count);
    }
    tiles->panel(&panel);
    return true;
}

static void pack_windows(const df_images *m, const df_image_tiles *tiles, int64_t size, char *to,
                         int64_t width, const char *images, int64_t first_row, int64_t k0,
                         int64_t k1, int64_t j0, int64_t j1)
{
    for (int64_t j = j0, n; j < j1;) {
        n = df_min_i64(DF_PANEL_VECTORS * tiles->lanes, j1 - j);
        if (tiles->panel && pack_by_pieces(m, tiles, to + (j - j0) * size, width, images,
                                           first_row + k0, first_row + k1, j, j + n)) {
            j += n;
            continue;
        }
        const place p = place_of(m, j);
        n = df_min_i64(m->out[1] - p.x, j1 - j);
        pack_run(m, tiles, size, to + (j - j0) * size, width, images, first_row + k0,
                 first_row + k1, p, n);
        j += n;
    }
}

/* Packs what n windows from p on show, as rows of a transposed panel. A piece of each column is
 * first copied to a row of `rows`, and then all of them are transposed at once. */
static void pack_copied_run(const df_images *m, const df_image_tiles *tiles, deft_dtype t,
                            const df_image_run *run)
{
    enum { BYTES = 8 << 10 };
    alignas(64) char rows[BYTES];
    const int64_t size = (int64_t)deft_dtype_size(t), most = BYTES / DF_RUN_COLUMNS / size;
    for (int64_t x = 0, n; x < run->n; x += n) {
        n = df_min_i64(run->n - x, most);
        for (int64_t j = 0; j < run->n_columns; j++) {
            const df_image_shown *const s = &run->shown[j % m->n_taps];
            const int64_t c = (run->r0 + j) / m->n_taps;
            const int64_t from = s->offset + c * m->channel + x * run->step;
            const int64_t first = df_max_i64(s->first - x, 0), end = df_min_i64(s->end - x, n);
            tiles->copy(rows + j * most * size, most,
                        (const char *)((uintptr_t)run->from + (uintptr_t)(from * size)), 0, 1,
                        run->step, n, df_min_i64(first, n), df_max_i64(end, df_min_i64(first, n)));
        }
        df_tiles_pick(t)->pack((char *)run->to + x * run->to_row * size, run->to_row, rows, 1, most,
                               n, run->n_columns);
    }
}

/* The same as pack_windows for the transposed matrix: rows are windows. */
static void pack_transposed(const df_images *m, const df_image_tiles *tiles, deft_dtype t, char *to,
                            int64_t width, const char *images, int64_t first_row, int64_t k0,
                            int64_t k1, int64_t j0, int64_t j1)
{
    df_image_shown shown[DF_RUN_COLUMNS];
    const int64_t size = (int64_t)deft_dtype_size(t);
    const bool in_registers = tiles->turned && width % tiles->narrow == 0;
    df_image_run run = { .to_row = width,
                         .n_columns = j1 - j0,
                         .from = images,
                         .channel = m->channel,
                         .step = m->step[1] * m->column,
                         .n_taps = m->n_taps,
                         .r0 = first_row + j0,
                         .shown = shown };
    df_assert(run.n_columns <= DF_RUN_COLUMNS);
    for (int64_t k = k0; k < k1; k += run.n) {
        const place p = place_of(m, k);
        run.n = df_min_i64(m->out[1] - p.x, k1 - k);
        run.to = to + (k - k0) * width * size;
        for (int64_t i = 0; i < m->n_taps && i < run.n_columns; i++)
            shown[i] = shown_by(m, (run.r0 + i) % m->n_taps, p, run.n);
        if (in_registers)
            tiles->turned(&run);
        else
            pack_copied_run(m, tiles, t, &run);
    }
}

void df_images_pack(const df_images *m, deft_dtype t, char *to, int64_t width, const char *images,
                    int64_t batch, int64_t depth, int64_t k0, int64_t k1, int64_t j0, int64_t j1)
{
    const int64_t size = (int64_t)deft_dtype_size(t);
    if (m->is_transposed)
        pack_transposed(m, df_image_tiles_pick(t), t, to, width, images, batch * depth, k0, k1, j0,
                        j1);
    else
        pack_windows(m, df_image_tiles_pick(t), size, to, width, images, batch * depth, k0, k1, j0,
                     j1);
    if (!m->is_transposed) pad_columns(to, k1 - k0, j1 - j0, width, size);
}
