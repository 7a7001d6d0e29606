/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a B whose columns are contiguous: C[i][j] = sum over k of A[i][k] * Bt[j][k], each
 * one chain. There is no include guard: the file is included once per vector type. The includer
 * defines T, V, W, MASK, LOAD, STORE, LOADM, STOREM, SPLAT, ZERO, FMA and NAME as for tile_body.h,
 * and these macros. All are undefined at the end.
 *
 *   LOAD_HALF_M(p, m)     the lanes of mask m of half a vector; the other lanes are +0
 *   TWO_ROWS(low, high)   a vector of two halves
 *   TURN(y, t)            transposes W rows of W / 2 elements, of which t[i] has rows i and
 *                         i + W / 2, to W / 2 vectors
 *   SPREAD(to, row, r, m) transposes W / 2 vectors to W rows, which are `row` elements apart, and
 *                         stores the lanes of mask m of each
 *   TURN_PIECE(to, t, from, row, piece, many)
 *                         does piece 0 to W / 2 - 1 of transposing a square of W rows, which are
 *                         `row` elements apart, to to[step][column]. The pieces share t, W vectors,
 *                         and *from, which begins at the square. `many`: with few registers
 *
 * Most columns are computed two vectors at a time, for all rows at once, so that no square is
 * transposed twice. Squares go through a buffer, one run of two squares of each vector ahead of the
 * products. The two vectors share the loads of A. The pieces of a square alternate with steps of
 * the products, so that all of them are under way at once in the processor: its pipes are the
 * limit. A run of two lines of each column is faster than of one line, also where columns share
 * sets of the L1 cache.
 *
 * Tiles of one vector of columns and up to four rows compute what remains at the ends of n and k.
 * They also transpose squares that are cut off.
 *
 * Why this file is long: it is one template, and transposes thin matrices with the same macros.
 */

/* Stores the square of n columns and k steps, n and k up to W, as to[step][column]. Columns beyond
 * n get copies of the last one. */
AVX512 static void NAME(turn_part)(T *to, const T *b, int64_t b_col, int64_t n, int64_t k)
{
    for (int h = 0; h < 2; h++) {
        const int64_t left = k - h * (W / 2);
        if (left <= 0) return;
        const MASK mask = (MASK)(left >= W / 2 ? (1u << W / 2) - 1 : (1u << left) - 1);
        V t[W / 2], y[W / 2];
#pragma GCC unroll 8
        for (int i = 0; i < W / 2; i++) {
            const T *const low = b + df_min_i64(i, n - 1) * b_col + h * (W / 2);
            const T *const high = b + df_min_i64(i + W / 2, n - 1) * b_col + h * (W / 2);
            t[i] = TWO_ROWS(LOAD_HALF_M(low, mask), LOAD_HALF_M(high, mask));
        }
        TURN(y, t);
#pragma GCC unroll 8
        for (int p = 0; p < W / 2; p++) STORE(to + (h * (W / 2) + p) * W, y[p]);
    }
}

/* Multiplies one vector of columns, of which n exist, by the given rows. */
AVX512 DF_INLINE void NAME(dots_tile)(const df_block *g, const T *a, const T *b, T *c, int64_t n,
                                      const int rows)
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    const MASK mask = (MASK)((1u << n) - 1);
    V acc[4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) acc[i] = g->first ? ZERO : LOADM(c + i * c_row, mask);
    for (int64_t k = 0; k < g->k; k += W) {
        T y[W * W];
        const int64_t steps = df_min_i64(g->k - k, W);
        NAME(turn_part)(y, b + k, b_col, n, steps);
        for (int64_t p = 0; p < steps; p++, a++)
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                acc[i] = FMA(SPLAT(a + i * a_row), LOAD(y + p * W), acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) STOREM(c + i * c_row, mask, acc[i]);
}

#define TILE(rows)                                                                                 \
    AVX512 static void NAME(tile_##rows)(const df_block *g, const T *a, const T *b, T *c,          \
                                         int64_t n)                                                \
    {                                                                                              \
        NAME(dots_tile)(g, a, b, c, n, rows);                                                      \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
#undef TILE

enum {
    NAME(RUN) = 2 * W,    /* steps of k of a run */
    NAME(SQUARE) = W * W, /* elements of a square */
    NAME(MOST) = 8        /* rows of A that are multiplied at once */
};

/* Transposes the first run of two vectors of columns to to[line][vector][step][column]. */
AVX512 static void NAME(turn_run)(T *to, const T *b, int64_t b_col)
{
    for (int i = 0; i < 4; i++) {
        const T *from = b + i / 2 * W * b_col + i % 2 * W;
        V t[W];
#pragma GCC unroll 8
        for (int piece = 0; piece < W / 2; piece++)
            TURN_PIECE(to + (i % 2 * 2 + i / 2) * NAME(SQUARE), t, &from, b_col, piece, false);
    }
}

/* Adds one step of k to the sums of the given rows and two vectors of columns. The last row of A is
 * `last` elements behind the first. */
AVX512 DF_INLINE void NAME(pair_step)(V *acc, const T *a, int64_t a_row, int64_t last, const T *y,
                                      const int rows)
{
    V low = LOAD(y), high = LOAD(y + NAME(SQUARE));
    DF_OPAQUE_VECTOR(low);
    DF_OPAQUE_VECTOR(high);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const V s = SPLAT(a + (i == rows - 1 ? last : i * a_row));
        acc[2 * i] = FMA(s, low, acc[2 * i]);
        acc[2 * i + 1] = FMA(s, high, acc[2 * i + 1]);
    }
}

/* Multiplies all rows of A by the first n columns, two vectors at a time, for all whole runs of k.
 * A has `rows` rows or one less. Then its last row is computed twice, with equal results. */
AVX512 DF_INLINE void NAME(dots_pairs)(const df_block *g, int64_t n, const int rows)
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    const int64_t a_last = (g->m - 1) * a_row, c_last = (g->m - 1) * c_row;
    const int64_t n_runs = g->k / NAME(RUN);
    const T *b = g->b;
    T *c = g->c;
    alignas(64) T run[2][4 * NAME(SQUARE)];
    T *to = run[0], *y = run[1];
    NAME(turn_run)(to, b, b_col);
    for (; n > 0; n -= 2 * W, c += 2 * W) {
        const T *a = g->a, *p = b;
        V acc[16];
#pragma GCC unroll 16
        for (int i = 0; i < 2 * rows; i++) {
            const int64_t row = i / 2 == rows - 1 ? c_last : i / 2 * c_row;
            acc[i] = g->first ? ZERO : LOAD(c + row + i % 2 * W);
        }
        b += 2 * W * b_col;
        for (int64_t x = 1; x <= n_runs; x++) {
            T *const next = y;
            y = to, to = next;
            p = x < n_runs ? p + NAME(RUN) : b; /* the next run may be of other columns */
            if (x == n_runs && n == 2 * W) break;
            for (int i = 0; i < 4; i++) { /* square i of the next run, and half a square of y */
                const T *from = p + i / 2 * W * b_col + i % 2 * W;
                const T *step = y + i / 2 * 2 * NAME(SQUARE) + i % 2 * (W / 2) * W;
                T *const at = to + (i % 2 * 2 + i / 2) * NAME(SQUARE);
                V t[W];
#pragma GCC unroll 8
                for (int piece = 0; piece < W / 2; piece++, a++, step += W) {
                    TURN_PIECE(at, t, &from, b_col, piece, rows > 4);
                    NAME(pair_step)(acc, a, a_row, a_last, step, rows);
                }
                DF_OPAQUE(a);
            }
        }
        if (n == 2 * W)
#pragma GCC unroll 1
            for (int i = 0; i < NAME(RUN); i++)
                NAME(pair_step)(acc, a + i, a_row, a_last, y + (i + i / W * W) * W, rows);
#pragma GCC unroll 16
        for (int i = 0; i < 2 * rows; i++) {
            const int64_t row = i / 2 == rows - 1 ? c_last : i / 2 * c_row;
            STORE(c + row + i % 2 * W, acc[i]);
        }
    }
}

#define PAIRS(rows)                                                                                \
    AVX512 static void NAME(pairs_##rows)(const df_block *g, int64_t n)                            \
    {                                                                                              \
        NAME(dots_pairs)(g, n, rows);                                                              \
    }
PAIRS(1)
PAIRS(2)
PAIRS(3)
PAIRS(4)
PAIRS(6)
PAIRS(8)
#undef PAIRS

/* Multiplies all rows by one vector of columns, of which n exist. */
AVX512 static void NAME(dots_tiles)(const df_block *g, const T *a, const T *b, T *c, int64_t n)
{
    int64_t left = g->m;
    for (; left >= 4; left -= 4, a += 4 * g->a_row, c += 4 * g->c_row) NAME(tile_4)(g, a, b, c, n);
    if (left == 3) NAME(tile_3)(g, a, b, c, n);
    if (left == 2) NAME(tile_2)(g, a, b, c, n);
    if (left == 1) NAME(tile_1)(g, a, b, c, n);
}

/* Multiplies 1 to MOST rows. */
AVX512 static void NAME(dots_rows)(const df_block *g)
{
    static void (*const pairs[])(
        const df_block *, int64_t) = { NAME(pairs_1), NAME(pairs_2), NAME(pairs_3), NAME(pairs_4),
                                       NAME(pairs_6), NAME(pairs_6), NAME(pairs_8), NAME(pairs_8) };
    _Static_assert(DF_LEN(pairs) == NAME(MOST), "one for each number of rows");
    const int64_t paired = g->k >= NAME(RUN) ? g->n / (2 * W) * (2 * W) : 0;
    const int64_t done = g->k / NAME(RUN) * NAME(RUN);
    df_block rest = *g;
    if (paired > 0) pairs[g->m - 1](g, paired);
    rest.k -= done;
    rest.first = false;
    const T *const a = g->a, *const b = g->b;
    T *const c = g->c;
    for (int64_t i = 0; i < g->n; i += W)
        if (i >= paired)
            NAME(dots_tiles)(g, a, b + i * g->b_row, c + i, df_min_i64(g->n - i, W));
        else if (rest.k > 0)
            NAME(dots_tiles)(&rest, a + done, b + i * g->b_row + done, c + i, W);
}

/* With many rows, columns are multiplied in parts that stay in the L2 cache for all of them. */
AVX512 static void NAME(dots)(const df_block *g)
{
    const int64_t column_size = df_max_i64(g->k, 1) * (int64_t)sizeof(T);
    const int64_t fit = PART_BYTES / column_size / (2 * W) * (2 * W);
    const int64_t columns = g->m <= NAME(MOST) ? g->n : df_max_i64(fit, 2 * W);
    df_block part = *g;
    for (int64_t x = 0; x < g->n; x += columns)
        for (int64_t i = 0; i < g->m; i += part.m) {
            part.m = df_min_i64(g->m - i, NAME(MOST));
            part.n = df_min_i64(g->n - x, columns);
            part.a = (const T *)g->a + i * g->a_row;
            part.b = (const T *)g->b + x * g->b_row;
            part.c = (T *)g->c + i * g->c_row + x;
            NAME(dots_rows)(&part);
        }
}

/* Transposes w rows to n: to[p][x] = from[x][p]. One of both is up to MOST, and the other at least
 * W. The last vector overlaps the one before. Returns false for other extents, and does nothing. */
AVX512 static bool NAME(transpose_thin)(T *to, int64_t to_row, const T *from, int64_t from_row,
                                        int64_t n, int64_t w)
{
    if (w <= NAME(MOST) && n >= W) {
        for (int64_t x = 0; x < w; x += W / 2)
            for (int64_t p = 0; p < n; p += W) {
                const int64_t at = df_min_i64(p, n - W), rows = df_min_i64(w - x, W / 2);
                V r[W / 2];
#pragma GCC unroll 8
                for (int i = 0; i < W / 2; i++)
                    r[i] = i < rows ? LOAD(from + (x + i) * from_row + at) : ZERO;
                SPREAD(to + at * to_row + x, to_row, r, (__mmask8)((1u << rows) - 1));
            }
        return true;
    }
    if (n > NAME(MOST) || w < W) return false;
    for (int64_t p = 0; p < n; p += W / 2)
        for (int64_t x = 0; x < w; x += W) {
            const int64_t at = df_min_i64(x, w - W), rows = df_min_i64(n - p, W / 2);
            const T *const b = from + at * from_row + p;
            const MASK mask = (MASK)((1u << rows) - 1);
            V t[W / 2], y[W / 2];
#pragma GCC unroll 8
            for (int i = 0; i < W / 2; i++)
                t[i] = TWO_ROWS(LOAD_HALF_M(b + i * from_row, mask),
                                LOAD_HALF_M(b + (i + W / 2) * from_row, mask));
            TURN(y, t);
#pragma GCC unroll 8
            for (int i = 0; i < W / 2; i++)
                if (i < rows) STORE(to + (p + i) * to_row + at, y[i]);
        }
    return true;
}

#undef T
#undef V
#undef W
#undef MASK
#undef LOAD
#undef STORE
#undef LOADM
#undef STOREM
#undef LOAD_HALF_M
#undef TWO_ROWS
#undef TURN
#undef SPREAD
#undef TURN_PIECE
#undef SPLAT
#undef ZERO
#undef FMA
#undef NAME
