/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks and packing over one vector type. There is no include guard: the file is included once per
 * vector type. The includer defines these macros, which are undefined at the end:
 *
 *   T, V, W                  element type, vector type, lanes of a vector
 *   MASK, MASK_OF(n)         type of a mask; the mask of the first n lanes
 *   LOAD(p), STORE(p, v)     all lanes
 *   LOADM(p, m)              the lanes of mask m; memory of other lanes is not touched
 *   STOREM(p, m, v)          as LOADM
 *   SPLAT(p)                 one element in all lanes
 *   ZERO, FMA(a, b, c)       a vector of +0; fused a * b + c
 *   MR, NV                   the largest tile: MR rows of NV vectors; MR * NV >= FLAT
 *   SQ, LONG                 extents of TRANSPOSE
 *   TRANSPOSE(to, to_row, from, from_row)
 *                            transposes SQ rows of LONG elements to LONG rows of SQ elements
 *   SQUARE(to, to_row, from, from_row)
 *                            transposes LONG rows of LONG elements. Not defined: not offered
 *   TARGET                   attribute of all functions
 *   NAME(x)                  x with the suffix of the includer
 *
 * A tile is an inline function whose shape is given by constants. So the compiler makes one body
 * per shape, with all of C in registers. To choose the shape within the loop would cost as much
 * as a small product.
 *
 * Why this file is long: a table of tile shapes, one body each, besides the algorithm.
 */

#define VECTOR (W * sizeof(T))  /* bytes of a vector */
#define AHEAD (8 * sizeof(T))   /* pack_rows prefetches 8 rows ahead; times step: bytes */
#define FLAT (MR == 8 ? 16 : 8) /* vectors in a tile of one row */

/* A sweep reads so many rows of B side by side, and so many vectors of each. On a Zen 5, 1 KiB of a
 * row at a time is read from L3 at 1.07 to 1.3 times the speed of 128 bytes. */
#define SWEEP_STEPS (MR == 8 ? 8 : 4)
#define SWEEP_VECS (MR == 8 ? 16 : 2)

/* Multiplies one tile of rows x vecs vectors. With `masked`, only the lanes of mask exist in the
 * last vector. */
TARGET DF_INLINE void NAME(tile)(const df_block *g, const T *a, const T *b, T *c, MASK mask,
                                 const int rows, const int vecs, const bool masked)
{
    const int64_t a_row = g->a_row, a_col = g->a_col, b_row = g->b_row, c_row = g->c_row;
    const bool is_far = g->is_far;
    V acc[MR * NV];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vecs; j++) {
            const T *const from = c + i * c_row + j * W;
            if (g->first)
                acc[i * vecs + j] = ZERO;
            else
                acc[i * vecs + j] = masked && j == vecs - 1 ? LOADM(from, mask) : LOAD(from);
        }
    for (int64_t k = g->k; k > 0; k--) {
        V y[MR * NV];
#pragma GCC unroll 16
        for (int j = 0; j < vecs; j++)
            y[j] = masked && j == vecs - 1 ? LOADM(b + j * W, mask) : LOAD(b + j * W);
        if (rows >= 3 && is_far)
#pragma GCC unroll 16
            for (int j = 0; j < vecs; j++)
                __builtin_prefetch((const void *)((uintptr_t)b + (uintptr_t)(vecs + j) * VECTOR));
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const V x = SPLAT(a + i * a_row);
#pragma GCC unroll 16
            for (int j = 0; j < vecs; j++) acc[i * vecs + j] = FMA(x, y[j], acc[i * vecs + j]);
        }
        a += a_col;
        b += b_row;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < vecs; j++) {
            T *const to = c + i * c_row + j * W;
            if (masked && j == vecs - 1)
                STOREM(to, mask, acc[i * vecs + j]);
            else
                STORE(to, acc[i * vecs + j]);
        }
}

/* Multiplies a column of tiles: all rows of the block, `most` at a time. The columns of B that it
 * reads stay in the L1 cache. */
TARGET DF_INLINE void NAME(column)(const df_block *g, const T *b, T *c, MASK mask, const int most,
                                   const int vecs, const bool masked)
{
    const T *a = g->a;
    int64_t left = g->m;
    for (; left >= most; left -= most) {
        /* Prefetch C of the next tile, because its chains cannot start before C is loaded. */
        if (left >= 2 * most && g->k >= 64)
            for (int i = most; i < 2 * most; i++)
#pragma GCC unroll 16
                for (int j = 0; j < vecs; j++) __builtin_prefetch(c + i * g->c_row + j * W, 1);
        NAME(tile)(g, a, b, c, mask, most, vecs, masked);
        a += most * g->a_row;
        c += most * g->c_row;
    }
    switch (left) {
#if MR == 8
    case 7: NAME(tile)(g, a, b, c, mask, 7, vecs, masked); break;
    case 6: NAME(tile)(g, a, b, c, mask, 6, vecs, masked); break;
    case 5: NAME(tile)(g, a, b, c, mask, 5, vecs, masked); break;
    case 4: NAME(tile)(g, a, b, c, mask, 4, vecs, masked); break;
#endif
    case 3: NAME(tile)(g, a, b, c, mask, 3, vecs, masked); break;
    case 2: NAME(tile)(g, a, b, c, mask, 2, vecs, masked); break;
    case 1: NAME(tile)(g, a, b, c, mask, 1, vecs, masked); break;
    }
}

/* Multiplies a tile of one or two rows. It has more vectors per row, which keep the FMA units busy.
 */
TARGET DF_INLINE void NAME(flat)(const df_block *g, const T *b, T *c, MASK mask, const int rows,
                                 const int vecs)
{
    NAME(tile)(g, g->a, b, c, mask, rows, vecs, true);
}

#define COLUMN(most, vecs, masked)                                                                 \
    TARGET static void NAME(column_##vecs##_##masked)(const df_block *g, const T *b, T *c,         \
                                                      MASK mask)                                   \
    {                                                                                              \
        NAME(column)(g, b, c, mask, most, vecs, masked);                                           \
    }
COLUMN(MR, 1, 0)
COLUMN(MR, 1, 1)
COLUMN(MR, 2, 0)
COLUMN(MR, 2, 1)
COLUMN(MR, 3, 0)
COLUMN(MR, 3, 1)
#if MR == 8
COLUMN(6, 4, 0)
COLUMN(6, 4, 1)
#endif
#undef COLUMN

#define ROW(rows, vecs)                                                                            \
    TARGET static void NAME(row_##rows##_##vecs)(const df_block *g, const T *b, T *c, MASK mask)   \
    {                                                                                              \
        NAME(flat)(g, b, c, mask, rows, vecs);                                                     \
    }
ROW(1, 4)
ROW(1, 5)
ROW(1, 6)
ROW(1, 7)
ROW(1, 8)
ROW(2, 4)
#if MR == 8
ROW(1, 9)
ROW(1, 10)
ROW(1, 11)
ROW(1, 12)
ROW(1, 13)
ROW(1, 14)
ROW(1, 15)
ROW(1, 16)
ROW(2, 5)
ROW(2, 6)
ROW(2, 7)
ROW(2, 8)
#define WIDE(vecs) NAME(row_1_##vecs)
#define WIDE2(vecs) NAME(row_2_##vecs)
#else
#define WIDE(vecs) NULL
#define WIDE2(vecs) NULL
#endif
#undef ROW

/* Divides the columns of a block evenly into tiles. Four vectors are one tile of up to six rows.
 * One vector alone cannot keep the FMA units busy. */
TARGET static void NAME(block)(const df_block *g)
{
    _Static_assert(NV == 3 && FLAT <= 16, "the tables have an entry per number of vectors");
    static void (*const column[NV + 2][2])(const df_block *, const T *, T *, MASK) = {
        { NULL, NULL },
        { NAME(column_1_0), NAME(column_1_1) },
        { NAME(column_2_0), NAME(column_2_1) },
        { NAME(column_3_0), NAME(column_3_1) },
#if MR == 8
        { NAME(column_4_0), NAME(column_4_1) },
#endif
    };
    static void (*const row[2][16 - NV])(const df_block *, const T *, T *, MASK) = {
        { NAME(row_1_4), NAME(row_1_5), NAME(row_1_6), NAME(row_1_7), NAME(row_1_8), WIDE(9),
          WIDE(10), WIDE(11), WIDE(12), WIDE(13), WIDE(14), WIDE(15), WIDE(16) },
        { NAME(row_2_4), WIDE2(5), WIDE2(6), WIDE2(7), WIDE2(8) },
    };
    const T *b = g->b;
    T *c = g->c;
    int64_t vecs = (g->n + W - 1) / W;
    /* Three to six rows of four vectors are more chains than of three, and need fewer loads. So is
     * the only tile of a narrow block. */
    const bool is_wide = MR == 8 && (g->m <= 6 || vecs == NV + 1);
    const int64_t most = g->m == 1 ? FLAT : g->m == 2 ? FLAT / 2 : is_wide ? NV + 1 : NV;
    for (int64_t left = g->n, groups = (vecs + most - 1) / most; groups > 0; groups--) {
        const int64_t v = (vecs + groups - 1) / groups;
        const int64_t w = df_min_i64(v * W, left);
        const int64_t last = w - (v - 1) * W;
        if (v > NV && g->m <= 2)
            row[g->m - 1][v - NV - 1](g, b, c, MASK_OF(last));
        else
            column[v][last != W](g, b, c, MASK_OF(last));
        b += w;
        c += w;
        left -= w;
        vecs -= v;
    }
}

/* Multiplies block by block, for a B in panels. */
TARGET static void NAME(panels)(const df_block *g)
{
    df_block part = *g;
    part.b_row = NV * W;
    for (int64_t left = g->n; left > 0; left -= NV * W) {
        part.n = df_min_i64(left, NV * W);
        NAME(block)(&part);
        part.b = (const T *)part.b + g->b_row;
        part.c = (T *)part.c + NV * W;
    }
}

/* Adds `steps` steps of k to `vecs` vectors of one row. x[i] has element i of A in all lanes. */
TARGET DF_INLINE void NAME(sweep_columns)(const T *b, int64_t b_row, T *c, const V *x,
                                          const bool first, const int steps, const int vecs)
{
    V sum[SWEEP_VECS];
#pragma GCC unroll 16
    for (int j = 0; j < vecs; j++) sum[j] = first ? ZERO : LOAD(c + j * W);
#pragma GCC unroll 8
    for (int i = 0; i < steps; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < vecs; j++) sum[j] = FMA(x[i], LOAD(b + j * W), sum[j]);
        b += b_row;
        DF_OPAQUE(b); /* else gcc keeps the addresses of all vectors on the stack */
    }
#pragma GCC unroll 16
    for (int j = 0; j < vecs; j++) STORE(c + j * W, sum[j]);
}

/* Adds `steps` steps of k to all columns of one row, up to SWEEP_STEPS. */
TARGET DF_INLINE void NAME(sweep_steps)(const df_block *g, int64_t k, const bool first,
                                        const int steps)
{
    const T *const a = (const T *)g->a + k * g->a_col, *b = (const T *)g->b + k * g->b_row;
    const int64_t b_row = g->b_row;
    T *c = g->c;
    V x[SWEEP_STEPS];
#pragma GCC unroll 8
    for (int i = 0; i < steps; i++) x[i] = SPLAT(a + i * g->a_col);
    int64_t left = g->n;
    for (; left >= SWEEP_VECS * W; left -= SWEEP_VECS * W, b += SWEEP_VECS * W, c += SWEEP_VECS * W)
        NAME(sweep_columns)(b, b_row, c, x, first, steps, SWEEP_VECS);
    for (; left >= 2 * W; left -= 2 * W, b += 2 * W, c += 2 * W)
        NAME(sweep_columns)(b, b_row, c, x, first, steps, 2);
    for (; left > 0; left -= W, b += W, c += W) {
        const MASK mask = MASK_OF(df_min_i64(left, W));
        V sum = first ? ZERO : LOADM(c, mask);
#pragma GCC unroll 8
        for (int i = 0; i < steps; i++) sum = FMA(x[i], LOADM(b + i * b_row, mask), sum);
        STOREM(c, mask, sum);
    }
}

TARGET static void NAME(sweep)(const df_block *g)
{
    if (g->k == 0) {
        NAME(block)(g);
        return;
    }
    df_assert(g->m == 1);
    int64_t k = 0;
    for (; k + SWEEP_STEPS <= g->k; k += SWEEP_STEPS)
        NAME(sweep_steps)(g, k, g->first && k == 0, SWEEP_STEPS);
    for (; k < g->k; k++) NAME(sweep_steps)(g, k, g->first && k == 0, 1);
}

/* Packs rows that are contiguous and as wide as the panel. */
TARGET DF_INLINE void NAME(pack_rows)(T *to, const int64_t width, const T *from, int64_t step,
                                      int64_t n)
{
    for (int64_t p = 0; p < n; p++, to += width, from += step) {
        /* The hardware does not prefetch across pages, and steps may be larger than a page. */
#pragma GCC unroll 16
        for (int64_t x = 0; x < width; x += 64 / (int64_t)sizeof(T))
            __builtin_prefetch((const void *)((uintptr_t)(from + x) + (uintptr_t)step * AHEAD));
#pragma GCC unroll 16
        for (int64_t x = 0; x < width; x++) to[x] = from[x];
    }
}

/* Packs columns that are contiguous: first full SQ x LONG rectangles, then the remaining columns
 * and rows. */
TARGET static void NAME(pack_columns)(void *to_, int64_t width, const void *from_, int64_t stride,
                                      int64_t n, int64_t w)
{
    T *const to = to_;
    const T *const from = from_;
    const int64_t n_whole = n / LONG * LONG;
    int64_t w_whole = w / SQ * SQ, w_square = 0;
#ifdef SQUARE
    w_square = w / LONG * LONG;
    for (int64_t p = 0; p < n_whole; p += LONG)
        for (int64_t x = 0; x < w_square; x += LONG)
            SQUARE(to + p * width + x, width, from + x * stride + p, stride);
#endif
    for (int64_t p = 0; p < n_whole; p += LONG)
        for (int64_t x = w_square; x < w_whole; x += SQ) {
            /* Prefetch the same columns of the panel that is packed next. */
#pragma GCC unroll 16
            for (int i = 0; i < SQ; i++)
                __builtin_prefetch((const void *)((uintptr_t)(from + (x + i) * stride + p) +
                                                  (uintptr_t)(w * stride) * sizeof(T)));
            TRANSPOSE(to + p * width + x, width, from + x * stride + p, stride);
        }
    if (w_whole < w && w > SQ) { /* the last SQ columns; some of them are packed again */
        for (int64_t p = 0; p < n_whole; p += LONG)
            TRANSPOSE(to + p * width + w - SQ, width, from + (w - SQ) * stride + p, stride);
        w_whole = w;
    }
    for (int64_t p = 0; p < n; p++)
        for (int64_t x = p < n_whole ? w_whole : 0; x < w; x++)
            to[p * width + x] = from[x * stride + p];
}

TARGET static void NAME(pack)(void *to_, int64_t width, const void *from_, int64_t step,
                              int64_t stride, int64_t n, int64_t w)
{
    T *const to = to_;
    const T *const from = from_;
    if (stride == 1 && w == width && width == NV * W)
        NAME(pack_rows)(to, NV * W, from, step, n);
    else if (stride == 1 && w == width && width == MR)
        NAME(pack_rows)(to, MR, from, step, n);
    else if (stride == 1)
        for (int64_t p = 0; p < n; p++)
            for (int64_t x = 0; x < w; x++) to[p * width + x] = from[p * step + x];
    else if (step == 1)
        NAME(pack_columns)(to, width, from, stride, n, w);
    else
        for (int64_t p = 0; p < n; p++)
            for (int64_t x = 0; x < w; x++) to[p * width + x] = from[p * step + x * stride];
    if (w < width)
        for (int64_t p = 0; p < n; p++)
            for (int64_t x = w; x < width; x++) to[p * width + x] = 0;
}

#undef T
#undef V
#undef W
#undef MASK
#undef MASK_OF
#undef LOAD
#undef STORE
#undef LOADM
#undef STOREM
#undef SPLAT
#undef ZERO
#undef FMA
#undef MR
#undef NV
#undef SQ
#undef LONG
#undef TRANSPOSE
#undef SQUARE
#undef TARGET
#undef NAME
#undef FLAT
#undef WIDE
#undef WIDE2
#undef SWEEP_STEPS
#undef SWEEP_VECS
#undef AHEAD
#undef VECTOR
