/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks and packing over one vector type. No include guard: the includer defines, per inclusion,
 *   T, V, W           element, vector, lanes            MASK, MASK_OF(n)   the first n lanes
 *   LOAD STORE        (p [, v])                         LOADM STOREM       (p, mask [, v]), absent
 * lanes are not touched SPLAT(p) ZERO FMA(a, b, c)                          one element to all
 * lanes, and so on MR, NV            the largest tile: MR rows of NV vectors; MR * NV >= FLAT SQ,
 * LONG, TRANSPOSE(to, to_row, from, from_row)     SQ rows of LONG elements to LONG rows of SQ
 *   TARGET            attribute of the functions        NAME(x)            x with the includer's
 * suffix and all are undefined at the end. The tile is a function of constants, so that the
 * compiler makes a body per shape with all of C in registers; one call per shape would cost as much
 * as a small product.
 *
 * size: a table of tile shapes, one body each, besides the algorithm.
 */

#define AHEAD (8 * sizeof(T))   /* rows to fetch ahead, in bytes per step */
#define FLAT (MR == 8 ? 16 : 8) /* vectors in a tile of one row */

/* One tile: rows x vecs vectors, of the last one only the lanes in mask when masked. */
TARGET DF_INLINE void NAME(tile)(const df_block *g, const T *a, const T *b, T *c, MASK mask,
                                 const int rows, const int vecs, const bool masked)
{
    const int64_t a_row = g->a_row, a_col = g->a_col, b_row = g->b_row, c_row = g->c_row;
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

/* A column of tiles of most rows, all rows of the block: B's part stays in the nearest cache. */
TARGET DF_INLINE void NAME(column)(const df_block *g, const T *b, T *c, MASK mask, const int most,
                                   const int vecs, const bool masked)
{
    const T *a = g->a;
    int64_t left = g->m;
    for (; left >= most; left -= most) {
        /* The tile below is next: a chain starts from C, so its load would be waited for. */
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

/* One or two rows alone: as many vectors as keep the adders busy without more rows. */
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

/* Dealt evenly: 4 vectors as they are with fewer rows, else as 2 + 2 (1 starves the adders). */
TARGET static void NAME(block)(const df_block *g)
{
    _Static_assert(NV == 3 && FLAT <= 16, "the tables have an entry per number of vectors");
    static void (*const column[NV + 1][2])(const df_block *, const T *, T *, MASK) = {
        { NULL, NULL },
        { NAME(column_1_0), NAME(column_1_1) },
        { NAME(column_2_0), NAME(column_2_1) },
        { NAME(column_3_0), NAME(column_3_1) },
    };
    static void (*const row[2][16 - NV])(const df_block *, const T *, T *, MASK) = {
        { NAME(row_1_4), NAME(row_1_5), NAME(row_1_6), NAME(row_1_7), NAME(row_1_8), WIDE(9),
          WIDE(10), WIDE(11), WIDE(12), WIDE(13), WIDE(14), WIDE(15), WIDE(16) },
        { NAME(row_2_4), WIDE2(5), WIDE2(6), WIDE2(7), WIDE2(8) },
    };
    const T *b = g->b;
    T *c = g->c;
#if MR == 8
    if (g->m >= 3 && g->n > 3 * W && g->n <= 4 * W) {
        const int64_t last = g->n - 3 * W;
        (last == W ? NAME(column_4_0) : NAME(column_4_1))(g, b, c, MASK_OF(last));
        return;
    }
#endif
    const int64_t most = g->m == 1 ? FLAT : g->m == 2 ? FLAT / 2 : NV;
    int64_t vecs = (g->n + W - 1) / W;
    for (int64_t left = g->n, groups = (vecs + most - 1) / most; groups > 0; groups--) {
        const int64_t v = (vecs + groups - 1) / groups;
        const int64_t w = df_min_i64(v * W, left);
        const int64_t last = w - (v - 1) * W;
        if (v > NV)
            row[g->m - 1][v - NV - 1](g, b, c, MASK_OF(last));
        else
            column[v][last != W](g, b, c, MASK_OF(last));
        b += w;
        c += w;
        left -= w;
        vecs -= v;
    }
}

/* Rows are contiguous and as wide as the panel. */
TARGET DF_INLINE void NAME(pack_rows)(T *to, const int64_t width, const T *from, int64_t step,
                                      int64_t n)
{
    for (int64_t p = 0; p < n; p++, to += width, from += step) {
        /* Steps of a page and more are beyond the machine's own foresight. */
#pragma GCC unroll 16
        for (int64_t x = 0; x < width; x += 64 / (int64_t)sizeof(T))
            __builtin_prefetch((const void *)((uintptr_t)(from + x) + (uintptr_t)step * AHEAD));
#pragma GCC unroll 16
        for (int64_t x = 0; x < width; x++) to[x] = from[x];
    }
}

/* Columns are contiguous: whole oblongs, then what is left over of either side. */
TARGET static void NAME(pack_columns)(T *to, int64_t width, const T *from, int64_t stride,
                                      int64_t n, int64_t w)
{
    const int64_t n_whole = n / LONG * LONG;
    int64_t w_whole = w / SQ * SQ;
    for (int64_t p = 0; p < n_whole; p += LONG)
        for (int64_t x = 0; x < w_whole; x += SQ) {
            /* The same columns of the panel that will be packed next. */
#pragma GCC unroll 16
            for (int i = 0; i < SQ; i++)
                __builtin_prefetch((const void *)((uintptr_t)(from + (x + i) * stride + p) +
                                                  (uintptr_t)(w * stride) * sizeof(T)));
            TRANSPOSE(to + p * width + x, width, from + x * stride + p, stride);
        }
    if (w_whole < w && w > SQ) { /* the last columns once more, with some that are done */
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
#undef TARGET
#undef NAME
#undef FLAT
#undef WIDE
#undef WIDE2
#undef AHEAD
