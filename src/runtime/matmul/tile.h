/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to matmul.c: the products of one block and the packing of panels, in C, per vector width.
 *
 *   tile_body.h    the algorithm, written once over a vector type; included per (width, dtype)
 *   tile_base.c    any machine     tile_avx2.c, tile_avx512.c    x86-64
 *   tile_x86.c     picks by CPU    tile_any.c                    elsewhere
 *   tile_dots_body.h, tile_dots.c  few rows times a transposed B, AVX2
 *
 * All of them give the same bits: every element is one chain acc = fma(a, b, acc), k ascending.
 */
#ifndef DF_RUNTIME_TILE_H
#define DF_RUNTIME_TILE_H

#include "base/compiler.h"
#include "deft/dtype.h"

/* A block of a product: C[m x n] (+)= A[m x k] * B[k x n]. Strides in elements; rows of B and C are
 * contiguous. */
typedef struct df_block {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_row, a_col, b_row, c_row;
    bool first; /* start from +0, else from C */
} df_block;

typedef struct df_tiles {
    uint32_t mr, nr; /* the largest tile, and the widths that pack is quickest for */
    void (*block)(const df_block *b);
    /* Packs a panel: to[p * width + x] = from[p * step + x * stride] for p < n, x < w; +0 for
     * w <= x < width. */
    void (*pack)(void *to, int64_t width, const void *from, int64_t step, int64_t stride, int64_t n,
                 int64_t w);
    /* As block for rows of A that are contiguous and a B whose columns are, b_row elements apart:
     * for some rows, as
     * many as n_dots, quicker than packing. NULL: not here. */
    void (*dots)(const df_block *b);
    uint32_t n_dots;
} df_tiles;

void df_tile_dots_f32(const df_block *b); /* AVX2 and FMA */
void df_tile_dots_f64(const df_block *b);

extern const df_tiles df_tiles_base_f32, df_tiles_base_f64;
extern const df_tiles df_tiles_avx2_f32, df_tiles_avx2_f64;     /* AVX2 and FMA */
extern const df_tiles df_tiles_avx512_f32, df_tiles_avx512_f64; /* AVX-512 F and VL */

/* The widest this machine runs. f32 or f64. */
const df_tiles *df_tiles_pick(deft_dtype dtype);

#endif
