/* SPDX-License-Identifier: Apache-2.0
 *
 * Operand B of a product, where it shows windows of images instead of a matrix in memory
 * (df_windows in fuser/plan.h). Panels are packed from the images. Products of few rows and short
 * sums, as in depthwise convolutions, are computed from the images directly (direct.c).
 *
 * In all functions, an element outside of the image is 0 and takes part in sums like any other:
 * its product with an infinite weight is NaN.
 */
#ifndef DF_RUNTIME_WINDOWS_H
#define DF_RUNTIME_WINDOWS_H

#include "base/compiler.h"
#include "deft/dtype.h"

enum { DF_DIRECT_TAPS = 256 }; /* the most taps of a product that direct.c computes */

/* Values of a df_windows in a run. Strides are in elements. */
typedef struct df_images {
    /* Per tap: row and column, less the padding. NULL, where no element is read: there are more
     * than DF_DIRECT_TAPS. */
    const int64_t *tap;
    int64_t n_taps;
    int64_t step[2], extent[2], out[2];  /* rows, columns: see df_windows */
    int64_t channel, image, row, column; /* strides */
    bool is_transposed;
} df_images;

/* Packs rows [k0, k1) and columns [j0, j1) of a batch entry as tiles->pack does. Each row of `to`
 * has `width` elements, of which those behind the columns become 0. `depth` is the number of rows
 * of an entry, or of its columns when the windows are transposed. */
void df_images_pack(const df_images *m, deft_dtype t, char *to, int64_t width, const char *images,
                    int64_t batch, int64_t depth, int64_t k0, int64_t k1, int64_t j0, int64_t j1);

/* ---- per instruction set ---- */

/* One row of n results: to[x] is the chain of a[k * a_col] * from[c * channel + tap[t] + x] with
 * k = c * n_taps + t ascending, from +0. Up to 64 elements of `from` behind the last one that is
 * needed may be read. */
typedef struct df_image_row {
    void *to;
    int64_t n;
    const void *a;
    int64_t a_col, n_channels, n_taps;
    const void *from;
    int64_t channel;
    const int64_t *tap;
} df_image_row;

/* Rows of results of a window of 3 x 3 elements that moves by 1 over one channel, whose elements in
 * a row are neighbours. Result (i, k) is the chain of a[t * a_col] times element (row + i + t / 3,
 * column + k + t % 3) of the image, with t = 0, 1, .. 8 ascending, from +0. */
typedef struct df_image_3x3 {
    void *to;
    int64_t to_row;    /* elements from one row of results to the next */
    int64_t n_rows, n; /* of results */
    const void *a;
    int64_t a_col;
    const void *from;    /* element (0, 0) of the image */
    int64_t from_row;    /* elements from one row of the image to the next */
    int64_t extent[2];   /* rows and columns of the image */
    int64_t row, column; /* where the first window begins; may be outside of the image */
} df_image_3x3;

/* Lanes of a vector of packed elements. Lane l of `mask` is the element `offset` + l * step of a
 * channel. Neither offset + l * step of other lanes nor, without a mask, `offset` need exist. */
typedef struct df_image_piece {
    int64_t offset;
    uint32_t mask;
} df_image_piece;

/* Rows [r0, r1) of a few vectors of packed columns. Row r shows channel r / n_taps under tap
 * r % n_taps. Each vector consists of n_pieces pieces, and is 0 in all other lanes. */
typedef struct df_image_panel {
    void *to;
    int64_t to_row; /* elements from one row to the next */
    int64_t n;      /* columns that are written */
    const void *from;
    int64_t channel, step;
    int64_t n_taps, r0, r1;
    int64_t n_pieces;
    const df_image_piece *piece; /* per tap and vector: n_pieces of them */
} df_image_panel;

/* The strided row of an image that a run of windows, next to each other on one row, shows under one
 * tap. */
typedef struct df_image_shown {
    int64_t offset;     /* of the first element, from the images; need not exist */
    int64_t first, end; /* the windows for which it exists */
} df_image_shown;

enum { DF_RUN_COLUMNS = 64 }; /* the most columns of a df_image_run */

/* The rows of a transposed panel that a run of n windows gives: row i is window i. Column j shows
 * channel r / n_taps under tap r % n_taps, where r = r0 + j. */
typedef struct df_image_run {
    void *to;
    int64_t to_row;    /* elements from one row to the next; a multiple of `narrow` */
    int64_t n_columns; /* the others of a row become 0 */
    const void *from;
    int64_t channel, step;
    int64_t n_taps, r0, n;
    /* What the run shows in column j: shown[j % n_taps], at the channel of the column. */
    const df_image_shown *shown;
} df_image_run;

enum { DF_PANEL_VECTORS = 3 }; /* the most vectors of a df_image_panel, and the fastest */

typedef struct df_image_tiles {
    /* For n_rows rows: to[x] = from[x * step] where first <= x < end, and 0 for other x < n. Rows
     * are to_row and from_row elements apart. `from` is the address of x = 0, which need not
     * exist. */
    void (*copy)(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n_rows,
                 int64_t step, int64_t n, int64_t first, int64_t end);
    void (*row)(const df_image_row *r);
    /* For x = 0, 1, .. n - 1: sum[t] = fma(a[x], from[tap[t] + x], sum[t]) of each tap. */
    void (*sums)(void *sum, const void *a, const void *from, int64_t n, const int64_t *tap,
                 int64_t n_taps);
    /* Reads the image itself. NULL: rows are computed from copies. */
    void (*rows_3x3)(const df_image_3x3 *r);
    /* Packs rows of all taps of a channel before those of the next channel. NULL: not offered. */
    void (*panel)(const df_image_panel *p);
    int64_t lanes; /* of a vector of `panel` */
    /* Packs the rows of a transposed panel, `narrow` columns at a time. NULL: not offered. */
    void (*turned)(const df_image_run *p);
    int64_t narrow;
} df_image_tiles;

extern const df_image_tiles df_image_tiles_base_f32, df_image_tiles_base_f64;
extern const df_image_tiles df_image_tiles_avx2_f32, df_image_tiles_avx2_f64;
extern const df_image_tiles df_image_tiles_avx512_f32, df_image_tiles_avx512_f64;

/* `sums` for machines with FMA. Its chains are scalars, so wider vectors would not help. */
void df_image_sums_f32(void *sum, const void *a, const void *from, int64_t n, const int64_t *tap,
                       int64_t n_taps);
void df_image_sums_f64(void *sum, const void *a, const void *from, int64_t n, const int64_t *tap,
                       int64_t n_taps);

const df_image_tiles *df_image_tiles_pick(deft_dtype dtype);

/* Sets [*first, *end) to the x in [0, n) with 0 <= at + x * step < extent. */
DF_INLINE void df_images_within(int64_t at, int64_t step, int64_t extent, int64_t n, int64_t *first,
                                int64_t *end)
{
    int64_t a = 0, b = n;
    if (step > 0) {
        if (at < 0) a = (-at + step - 1) / step;
        b = at >= extent ? 0 : (extent - 1 - at) / step + 1;
    } else if (step < 0) {
        if (at >= extent) a = (at - extent - step) / -step;
        b = at < 0 ? 0 : at / -step + 1;
    } else if (at < 0 || at >= extent) {
        b = 0;
    }
    *first = a < n ? a : n;
    *end = b < n ? b : n;
    if (*end < *first) *end = *first;
}

#endif
