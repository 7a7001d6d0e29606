/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a B whose columns are contiguous: C[i][j] = sum over k of A[i][k] * Bt[j][k], each
 * one chain. There is no include guard: the file is included once per vector type. The includer
 * defines T, V, W, MASK, LOAD, STORE, LOADM, STOREM, SPLAT, ZERO, FMA and NAME as for tile_body.h,
 * and these macros. All are undefined at the end.
 *
 *   HALF, LOAD_HALF(p)    type of half a vector; all its lanes
 *   LOAD_HALF_M(p, m)     the lanes of mask m; the other lanes are +0
 *   TWO_ROWS(low, high)   a vector of two halves
 *   TURN(y, t)            transposes W rows of W / 2 elements, of which t[i] has rows i and
 *                         i + W / 2, to W / 2 vectors
 *   SQUARE(y, from, row)  y[p] = element p of W rows, which are `row` elements apart
 *
 * A tile has one vector of columns and up to four rows. A whole square of B is transposed in
 * registers. Squares that are cut off by the end of n or k are transposed into a buffer first, so
 * that there is one small loop for them.
 *
 * With few rows, loads are the limit, and many of them load an element of A into all lanes. So two
 * to seven rows are multiplied by two vectors of columns at a time, which share these loads. Then
 * there is no room for whole squares: halves of lines are loaded. That is slow where columns share
 * sets of the L1 cache.
 *
 * Why this file is long: one tile for each number of rows that another limit slows down.
 */

enum { NAME(AHEAD) = 4 }; /* squares: one or two rows prefetch this far */

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

/* Adds W / 2 steps of k to the accumulators, one per row. */
AVX512 DF_INLINE void NAME(half_square)(V *acc, const T *a, int64_t a_row, const V *t,
                                        const int rows)
{
    V y[W / 2];
    TURN(y, t);
#pragma GCC unroll 8
    for (int p = 0; p < W / 2; p++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) acc[i] = FMA(SPLAT(a + i * a_row + p), y[p], acc[i]);
}

AVX512 DF_INLINE void NAME(square)(V *acc, const T *a, int64_t a_row, const T *b, int64_t b_col,
                                   const int rows)
{
    V t0[W / 2], t1[W / 2];
    if (rows <= 2)
#pragma GCC unroll 16
        for (int i = 0; i < W; i++)
            _mm_prefetch((const char *)((uintptr_t)(b + i * b_col) + NAME(AHEAD) * W * sizeof(T)),
                         _MM_HINT_T1);
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; i++) {
        const T *const low = b + i * b_col, *const high = b + (i + W / 2) * b_col;
        t0[i] = TWO_ROWS(LOAD_HALF(low), LOAD_HALF(high));
        t1[i] = TWO_ROWS(LOAD_HALF(low + W / 2), LOAD_HALF(high + W / 2));
    }
    NAME(half_square)(acc, a, a_row, t0, rows);
    NAME(half_square)(acc, a + W / 2, a_row, t1, rows);
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
    int64_t k = 0;
    if (n == W)
        for (; k + W <= g->k; k += W, a += W) NAME(square)(acc, a, a_row, b + k, b_col, rows);
    for (; k < g->k; k += W) {
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

/* Adds W / 2 steps of k for two vectors of columns. An element of A is loaded once for both. */
AVX512 DF_INLINE void NAME(half_pair)(V *acc, const T *a, int64_t a_row, const T *b, int64_t b_col,
                                      const int rows)
{
    V y[2][W / 2];
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        V t[W / 2];
#pragma GCC unroll 8
        for (int i = 0; i < W / 2; i++)
            t[i] = TWO_ROWS(LOAD_HALF(b + (q * W + i) * b_col),
                            LOAD_HALF(b + (q * W + i + W / 2) * b_col));
        TURN(y[q], t);
    }
#pragma GCC unroll 8
    for (int p = 0; p < W / 2; p++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const V x = SPLAT(a + i * a_row + p);
            acc[2 * i] = FMA(x, y[0][p], acc[2 * i]);
            acc[2 * i + 1] = FMA(x, y[1][p], acc[2 * i + 1]);
        }
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

/* Multiplies two vectors of columns by the given rows. The steps of k behind the last half of a
 * square are left to `rest`. */
AVX512 DF_INLINE void
NAME(dots_pair)(const df_block *g, const T *a, const T *b, T *c, const int rows,
                void (*rest)(const df_block *, const T *, const T *, T *, int64_t))
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    V acc[8];
    df_block left = *g;
#pragma GCC unroll 8
    for (int i = 0; i < 2 * rows; i++)
        acc[i] = g->first ? ZERO : LOAD(c + i / 2 * c_row + i % 2 * W);
    for (; left.k >= W / 2; left.k -= W / 2, a += W / 2, b += W / 2)
        NAME(half_pair)(acc, a, a_row, b, b_col, rows);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * rows; i++) STORE(c + i / 2 * c_row + i % 2 * W, acc[i]);
    if (left.k == 0) return;
    left.first = false;
    rest(&left, a, b, c, W);
    rest(&left, a, b + W * b_col, c + W, W);
}

#define PAIR(rows)                                                                                 \
    AVX512 static void NAME(pair_##rows)(const df_block *g, const T *a, const T *b, T *c)          \
    {                                                                                              \
        NAME(dots_pair)(g, a, b, c, rows, NAME(tile_##rows));                                      \
    }
PAIR(2)
PAIR(3)
PAIR(4)
#undef PAIR

/* Multiplies all rows, of which there are 2 to 7, by two vectors of columns. */
AVX512 static void NAME(dots_pairs)(const df_block *g, const T *b, T *c)
{
    const T *a = g->a;
    int64_t left = g->m;
    if (left == 7 || left == 4) {
        NAME(pair_4)(g, a, b, c);
        left -= 4, a += 4 * g->a_row, c += 4 * g->c_row;
    }
    if (left == 6 || left == 5) {
        NAME(pair_3)(g, a, b, c);
        left -= 3, a += 3 * g->a_row, c += 3 * g->c_row;
    }
    if (left == 3) NAME(pair_3)(g, a, b, c);
    if (left == 2) NAME(pair_2)(g, a, b, c);
}

/* Multiplies one row by two vectors of columns, which are two chains. */
AVX512 static void NAME(pair_1)(const df_block *g, const T *b, T *c)
{
    const int64_t b_col = g->b_row;
    const T *a = g->a;
    df_block left = *g;
    V acc[2] = { g->first ? ZERO : LOAD(c), g->first ? ZERO : LOAD(c + W) };
    for (; left.k >= W; left.k -= W, a += W, b += W)
#pragma GCC unroll 2
        for (int q = 0; q < 2; q++) {
            V y[W];
            SQUARE(y, b + q * W * b_col, b_col);
#pragma GCC unroll 16
            for (int p = 0; p < W; p++) acc[q] = FMA(SPLAT(a + p), y[p], acc[q]);
        }
    STORE(c, acc[0]);
    STORE(c + W, acc[1]);
    left.first = false;
    for (int q = 0; q < 2 && left.k > 0; q++)
        NAME(tile_1)(&left, a, b + q * W * b_col, c + q * W, W);
}

/* Multiplies eight rows by two vectors of columns, which share the loads of A. Registers have room
 * for their sums only. So squares of B are transposed into a buffer, one block of W steps ahead of
 * the products. Both alternate in pieces that are short enough to overlap in the processor. */
AVX512 static void NAME(pair_8)(const df_block *g, const T *b, T *c)
{
    enum { ROWS = 8 };
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row, n_blocks = g->k / W;
    const T *a = g->a;
    alignas(64) T block[2][W * 2 * W]; /* [step][column] */
    V acc[2 * ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < 2 * ROWS; i++)
        acc[i] = g->first ? ZERO : LOAD(c + i / 2 * c_row + i % 2 * W);
    for (int64_t x = -1; x < n_blocks; x++)
        for (int q = 0; q < 2; q++) {
            if (x + 1 < n_blocks) {
                T *const to = block[(x + 1) & 1] + q * W;
                V y[W];
                SQUARE(y, b + q * W * b_col + (x + 1) * W, b_col);
#pragma GCC unroll 16
                for (int p = 0; p < W; p++) STORE(to + p * 2 * W, y[p]);
            }
            if (x < 0) continue;
            const T *const from = block[x & 1] + q * W * W;
#pragma GCC unroll 2
            for (int p = 0; p < W / 2; p++) {
                const V low = LOAD(from + p * 2 * W), high = LOAD(from + p * 2 * W + W);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; i++) {
                    const V s = SPLAT(a + i * a_row + p);
                    acc[2 * i] = FMA(s, low, acc[2 * i]);
                    acc[2 * i + 1] = FMA(s, high, acc[2 * i + 1]);
                }
            }
            a += W / 2;
        }
#pragma GCC unroll 16
    for (int i = 0; i < 2 * ROWS; i++) STORE(c + i / 2 * c_row + i % 2 * W, acc[i]);
    if (g->k == n_blocks * W) return;
    df_block left = *g;
    left.k -= n_blocks * W;
    left.first = false;
    b += n_blocks * W;
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < ROWS; i += 4)
            NAME(tile_4)(&left, a + i * a_row, b + q * W * b_col, c + i * c_row + q * W, W);
}

/* The columns of B that several tiles of rows read stay in the L2 cache. */
AVX512 static void NAME(dots)(const df_block *g)
{
    const T *b = g->b;
    T *c = g->c;
    int64_t columns = g->n;
    if (g->m >= 2 && g->m < 8 && g->k >= W && g->b_row * (int64_t)sizeof(T) % SET_BYTES != 0)
        for (; columns >= 2 * W; columns -= 2 * W, b += 2 * W * g->b_row, c += 2 * W)
            NAME(dots_pairs)(g, b, c);
    if ((g->m == 1 || g->m == 8) && g->k >= W)
        for (; columns >= 2 * W; columns -= 2 * W, b += 2 * W * g->b_row, c += 2 * W)
            (g->m == 1 ? NAME(pair_1) : NAME(pair_8))(g, b, c);
    for (; columns > 0; columns -= W, b += W * g->b_row, c += W) {
        const int64_t n = df_min_i64(columns, W);
        const T *a = g->a;
        T *to = c;
        int64_t left = g->m;
        for (; left >= 4; left -= 4, a += 4 * g->a_row, to += 4 * g->c_row)
            NAME(tile_4)(g, a, b, to, n);
        if (left == 3) NAME(tile_3)(g, a, b, to, n);
        if (left == 2) NAME(tile_2)(g, a, b, to, n);
        if (left == 1) NAME(tile_1)(g, a, b, to, n);
    }
}

#undef T
#undef V
#undef HALF
#undef W
#undef MASK
#undef LOAD
#undef STORE
#undef LOADM
#undef STOREM
#undef LOAD_HALF
#undef LOAD_HALF_M
#undef TWO_ROWS
#undef TURN
#undef SQUARE
#undef SPLAT
#undef ZERO
#undef FMA
#undef NAME
