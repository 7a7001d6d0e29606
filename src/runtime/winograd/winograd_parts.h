/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of winograd.c: the two kinds of products, what they share, and the
 * transformations, per instruction set.
 */
#ifndef DF_RUNTIME_WINOGRAD_PARTS_H
#define DF_RUNTIME_WINOGRAD_PARTS_H

#include "runtime/matmul.h"
#include "runtime/matmul/tile.h"
#include "runtime/matmul/windows.h"

enum {
    DF_WINOGRAD_POSITIONS = 16,
    DF_WINOGRAD_TAPS = 9,
    DF_WINOGRAD_LANES = 16, /* tiles in a vector */
    DF_WINOGRAD_ALIGN = 64  /* bytes, of each array in the workspace */
};

/* Elements from one position to the next, where n of a position are stored. A few cache lines lie
 * between, so that the positions of an element do not share a set of a cache. */
int64_t df_winograd_skewed(int64_t n);

/* Bytes of an array of n elements in the workspace, and the first aligned address in it. */
size_t df_winograd_bytes(int64_t n);
char *df_winograd_aligned(void *work);

/* How the taps form a square of 3 x 3. */
typedef struct df_winograd_square {
    int64_t least[2];                /* row and column of the first tap */
    int64_t where[DF_WINOGRAD_TAPS]; /* the tap that shows element (i / 3, i % 3) */
} df_winograd_square;

/* Returns false when the taps form no square. */
bool df_winograd_find_square(const df_images *m, df_winograd_square *out);

/* A product of packed panels, as df_gemm_fn has them. */
typedef struct df_winograd_tile {
    int64_t k;
    const float *a, *b;
    int64_t nr; /* columns of a row of b */
    float *c;
    int64_t ld, m, n;
    bool first;
    const float *next; /* what is prefetched */
} df_winograd_tile;

/* g NULL: tiles->block multiplies. Rows of a have mr elements. */
void df_winograd_multiply(const df_gemm_kernel *g, const df_tiles *tiles, int64_t mr,
                          const df_winograd_tile *t);

/* Runs tasks 0 to n - 1. pool NULL: on this thread, as thread 0. */
void df_winograd_run_tasks(df_pool *pool, int64_t n, void (*task)(void *, uint32_t, uint32_t),
                           void *user);

/* ---- the two kinds: df_winograd_work_size and df_winograd_run ---- */

/* Whether there are more weights than tiles, so that a task has all tiles for some filters. */
bool df_winograd_is_by_filters(const df_matmul_job *j);

/* The convolution. */
size_t df_winograd_results_work_size(const df_matmul_job *j, const df_gemm_kernel *g,
                                     uint32_t n_threads);
void df_winograd_run_results(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool,
                             void *work);

/* The gradient of its weights. */
size_t df_winograd_gradient_work_size(const df_matmul_job *j, const df_gemm_kernel *g,
                                      uint32_t n_threads);
bool df_winograd_run_gradient(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool,
                              void *work);

/* ---- per instruction set ---- */

/* Rows of tiles of one channel of one image, as columns of panels: B' d B. Element p of tile t is
 * at to + p * position + t / width * panel + t % width. */
typedef struct df_winograd_image {
    float *to;
    int64_t position, panel, width;
    int64_t first; /* number of the first tile */
    const float *from;
    int64_t from_row;    /* elements from one row of the image to the next */
    int64_t extent[2];   /* rows and columns of the image */
    int64_t row, column; /* where the first tile begins; may be outside of the image */
    int64_t n_rows, n;   /* rows of tiles, and tiles in a row */
} df_winograd_image;

/* One row of tiles of one channel of the results: A' m A. Element p of tile t is at
 * from + p * position + t. Up to 15 elements behind the last tile may be read. */
typedef struct df_winograd_results {
    float *to;         /* two rows of results, or the last one */
    int64_t n_rows, n; /* of results; n is also the distance of rows */
    const float *from;
    int64_t position;
} df_winograd_results;

/* Rows of tiles of a few channels, which become neighbours: element p of tile t of channel i is at
 * to + p * position + t * to_row + i. Elements of channels behind the last one, up to
 * DF_WINOGRAD_TURNED, are 0. */
typedef struct df_winograd_turn {
    float *to;
    int64_t position, to_row;
    int64_t n_channels; /* at most DF_WINOGRAD_TURNED */
    const float *from;
    int64_t channel;                                     /* elements from one channel to the next */
    int64_t from_row, extent[2], row, column, n_rows, n; /* as in df_winograd_image */
} df_winograd_turn;

enum { DF_WINOGRAD_TURNED = 8 };

typedef struct df_winograd_code {
    void (*image)(const df_winograd_image *p);
    void (*turned_image)(const df_winograd_turn *p);
    /* Does the same for tiles of 2 x 2 elements of a gradient of results, y: A y A'. */
    void (*turned_results)(const df_winograd_turn *p);
    /* Gradients of n channels of weights: G' p G. Element p of channel i is at from + p * position
     * + i, and tap t of it goes to to[9 * i + where[t]]. Returns whether all are finite. */
    bool (*gradient)(float *to, const float *from, int64_t position, int64_t n,
                     const int64_t where[9]);
    /* Returns whether all results are finite. */
    bool (*results)(const df_winograd_results *p);
    /* G g G' for n channels and `width` rows of weights. Tap t of a channel is the row where[t] of
     * its 9 rows of `width` elements at `from`. Element p is in row p * position / width of `to`,
     * from the row of its channel on. */
    void (*weights)(float *to, int64_t position, const float *from, int64_t n, int64_t width,
                    const int64_t where[9]);
} df_winograd_code;

extern const df_winograd_code df_winograd_avx512;

/* Returns NULL where there is no such code. */
const df_winograd_code *df_winograd_pick(void);

#endif
