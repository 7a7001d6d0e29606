/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of matmul.c: products of one block and packing of panels, in C, per vector width.
 *
 *   tile_body.h        the algorithm over a vector type; included per (width, dtype)
 *   tile_base.c        tiles for any machine
 *   tile_avx2.c        tiles for x86-64 with AVX2
 *   tile_avx512.c      tiles for x86-64 with AVX-512
 *   tile_x86.c         picks the tiles on x86-64
 *   tile_any.c         picks the tiles elsewhere
 *   tile_dots_body.h   few rows times a transposed B, over a vector type
 *   tile_dots.c        the same for AVX2
 *   tile_dots512_body.h, tile_dots512.c
 *                      the same for AVX-512, in squares
 *   tile_split_body.h, tile_split.c
 *                      the same for fast mode, with several chains per element
 *
 * All tiles give the same bits: each element is one chain acc = fma(a, b, acc) with k ascending.
 * tile_split.c alone does not.
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
    bool first; /* each chain starts from +0, else from the element of C */
    /* B comes from beyond the caches, and its rows may be pages apart. So the hardware does not
     * prefetch its next columns, and tiles of three rows and more do. */
    bool is_far;
} df_block;

typedef struct df_tiles {
    uint32_t mr, nr; /* rows and columns of the largest tile; pack is fastest for these widths */
    uint32_t wide;   /* columns of the widest tile that `block` has for several rows */
    void (*block)(const df_block *b);
    /* Packs a panel: to[p * width + x] = from[p * step + x * stride] for p < n and x < w. The
     * padding, w <= x < width, gets +0. */
    void (*pack)(void *to, int64_t width, const void *from, int64_t step, int64_t stride, int64_t n,
                 int64_t w);
    /* Transposes: to[p * to_row + x] = from[x * from_row + p] for p < n and x < w. Unlike pack, it
     * is fast for four to eight of either, too; with AVX-512 for one to eight. */
    void (*transpose)(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                      int64_t w);
    /* Does what `block` does, for a transposed B: its columns are contiguous, and b_row elements
     * apart. Rows of A are contiguous. Up to n_dots rows, this is faster than packing B. NULL: not
     * offered. */
    void (*dots)(const df_block *b);
    uint32_t n_dots;
    /* Does what `dots` does, for fast mode: sums each element in several chains. `first` must be
     * true, and there are up to n_split rows. NULL: not offered. */
    void (*split)(const df_block *b);
    uint32_t n_split;
    /* Does what `block` does, for one row. It goes along a few rows of B at a time, and loads and
     * stores C once for these. So it is faster when B comes from beyond the L2 cache. */
    void (*sweep)(const df_block *b);
    /* Does what `block` does, for a B in panels of nr columns, which are b_row elements apart. Each
     * is stored as [k][nr]. */
    void (*panels)(const df_block *b);
} df_tiles;

void df_tile_transpose_f32(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                           int64_t w); /* AVX2 */
void df_tile_transpose_f64(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n,
                           int64_t w);
void df_tile_transpose512_f32(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n, int64_t w); /* AVX-512 F, VL and DQ */
void df_tile_transpose512_f64(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n, int64_t w);
void df_tile_dots_f32(const df_block *b); /* AVX2 and FMA */
void df_tile_dots_f64(const df_block *b);
void df_tile_dots512_f32(const df_block *b); /* AVX-512 F, VL and DQ */
void df_tile_dots512_f64(const df_block *b);
void df_tile_split_f32(const df_block *b); /* AVX2 and FMA */
void df_tile_split_f64(const df_block *b);
void df_tile_split512_f32(const df_block *b); /* AVX-512 F, VL and DQ */
void df_tile_split512_f64(const df_block *b);

extern const df_tiles df_tiles_base_f32, df_tiles_base_f64;
extern const df_tiles df_tiles_avx2_f32, df_tiles_avx2_f64;     /* AVX2 and FMA */
extern const df_tiles df_tiles_avx512_f32, df_tiles_avx512_f64; /* AVX-512 F, VL, DQ */

/* Returns the tiles with the widest vectors that this machine has. dtype is f32 or f64. */
const df_tiles *df_tiles_pick(deft_dtype dtype);

#endif
