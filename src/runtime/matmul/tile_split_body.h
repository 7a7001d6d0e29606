/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a B whose columns are contiguous, for fast mode: each element of C is summed in
 * several chains, along k. There is no include guard: the file is included once per vector type.
 * The includer defines T, V, W, MASK, MASK_OF, LOAD, LOADM, ZERO, FMA, TARGET and NAME as for
 * tile_body.h, and these macros. All are undefined at the end.
 *
 *   MOST_ROWS              2 or 4: a tile of 4 x 4 needs more than 16 registers
 *   ADD(a, b)              the sum of two vectors
 *   STORE(p, v)            stores all lanes
 *   LANE_SUMS(v)           a vector whose lane i has the sum of all lanes of v[i], for i < W
 *   SUM(v)                 the sum of all lanes
 *
 * Nothing is transposed, so a row of B is read at the speed of memory. The chains of several rows
 * are the lanes of a vector. A single row has four vectors of chains. In the L2 cache it reads
 * columns one after the other: 1.45 us for 256 x 256 floats on Zen 5. Two or four columns side by
 * side take 2.0 us there. Beyond L2, two columns are mostly as fast as one or faster. Long columns
 * are read one after the other again: for 1024 columns of 16 KiB that takes 157 to 166 us, and two
 * side by side take 165 to 189.
 */

#define N_CHAINS 4             /* vectors of chains of a single row */
#define NEAR_BYTES (512 << 10) /* a B up to this size stays in L2, beside A and C */
#define LONG_BYTES (8 << 10)   /* of a column that AMD's prefetching follows by itself */

/* Multiplies one row and `columns` columns, which share the N_CHAINS vectors of chains, and stores
 * a vector of partial sums of each column. */
TARGET DF_INLINE void NAME(split_row)(const df_block *g, const T *b, V *to, const int columns)
{
    const int64_t b_col = g->b_row;
    const int n_chains = N_CHAINS / columns;
    const T *a = g->a;
    V acc[N_CHAINS];
#pragma GCC unroll 4
    for (int i = 0; i < N_CHAINS; i++) acc[i] = ZERO;
    int64_t k = g->k;
    for (; k >= n_chains * W; k -= n_chains * W, a += n_chains * W, b += n_chains * W)
#pragma GCC unroll 4
        for (int i = 0; i < N_CHAINS; i++) {
            const int u = i / columns, j = i % columns;
            acc[i] = FMA(LOAD(a + u * W), LOAD(b + j * b_col + u * W), acc[i]);
        }
    for (; k > 0; k -= W, a += W, b += W) {
        const MASK mask = MASK_OF(df_min_i64(k, W));
#pragma GCC unroll 2
        for (int j = 0; j < columns; j++)
            acc[j] = FMA(LOADM(a, mask), LOADM(b + j * b_col, mask), acc[j]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < columns; j++) {
        to[j] = ADD(acc[j], acc[j + columns]);
        if (columns == 1) to[j] = ADD(to[j], ADD(acc[2], acc[3]));
    }
}

/* Multiplies one row by all columns. */
TARGET DF_INLINE void NAME(split_single)(const df_block *g, const int columns)
{
    const T *b = g->b;
    T *c = g->c;
    V sum[W];
    int64_t left = g->n;
    for (; left >= W; left -= W, c += W) {
        for (int j = 0; j < W; j += columns, b += columns * g->b_row)
            NAME(split_row)(g, b, sum + j, columns);
        STORE(c, LANE_SUMS(sum));
    }
    for (; left > 0; left--, b += g->b_row, c++) {
        NAME(split_row)(g, b, sum, 1);
        *c = SUM(sum[0]);
    }
}

/* Multiplies two or more rows and `columns` columns. `last` is the index of the last row. It is
 * computed twice when it is below rows - 1. */
TARGET DF_INLINE void NAME(split_tile)(const df_block *g, const T *b, T *c, const int rows,
                                       const int last, const int columns)
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    const T *a = g->a;
    V acc[16];
#pragma GCC unroll 16
    for (int i = 0; i < rows * columns; i++) acc[i] = ZERO;
    int64_t k = g->k;
    for (; k >= W; k -= W, a += W, b += W) {
        V x[4];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) x[i] = LOAD(a + df_min_i64(i, last) * a_row);
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++) {
            const V y = LOAD(b + j * b_col);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i * columns + j] = FMA(x[i], y, acc[i * columns + j]);
        }
    }
    if (k > 0) {
        const MASK mask = MASK_OF(k);
        V x[4];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) x[i] = LOADM(a + df_min_i64(i, last) * a_row, mask);
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++) {
            const V y = LOADM(b + j * b_col, mask);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i * columns + j] = FMA(x[i], y, acc[i * columns + j]);
        }
    }
    if (columns == 1) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) c[df_min_i64(i, last) * c_row] = SUM(acc[i]);
        return;
    }
    alignas(64) T sum[16];
#pragma GCC unroll 16
    for (int i = 0; i < rows * columns; i += W) STORE(sum + i, LANE_SUMS(acc + i));
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        memcpy(c + df_min_i64(i, last) * c_row, sum + i * columns, (size_t)columns * sizeof(T));
}

TARGET DF_INLINE void NAME(split_rows)(const df_block *g, const int rows, const int last)
{
    const int most = rows == 2 && MOST_ROWS == 4 ? 8 : 4; /* columns: 8 to 16 chains */
    const T *b = g->b;
    T *c = g->c;
    int64_t left = g->n;
    for (; left >= most; left -= most, b += most * g->b_row, c += most)
        NAME(split_tile)(g, b, c, rows, last, most);
    for (; left > 0; left--, b += g->b_row, c++) NAME(split_tile)(g, b, c, rows, last, 1);
}

TARGET static void NAME(split)(const df_block *g)
{
    df_assert(g->first && g->m <= MOST_ROWS);
    const int64_t column_size = g->k * (int64_t)sizeof(T);
    const bool one_by_one = g->n * column_size <= NEAR_BYTES ||
                            (column_size >= LONG_BYTES && !__builtin_cpu_is("intel"));
    switch (g->m) {
    case 1:
        if (one_by_one)
            NAME(split_single)(g, 1);
        else
            NAME(split_single)(g, 2);
        break;
    case 2: NAME(split_rows)(g, 2, 1); break;
#if MOST_ROWS == 4
    case 3: {
        int last = 2; /* with 12 chains, gcc spills: 2.7 us for 256 x 256 floats instead of 2.2 */
        DF_OPAQUE(last);
        NAME(split_rows)(g, 4, last);
        break;
    }
    case 4: NAME(split_rows)(g, 4, 3); break;
#endif
    }
}

#undef T
#undef V
#undef W
#undef MASK
#undef MASK_OF
#undef LOAD
#undef LOADM
#undef ZERO
#undef FMA
#undef ADD
#undef SUM
#undef STORE
#undef LANE_SUMS
#undef N_CHAINS
#undef NEAR_BYTES
#undef LONG_BYTES
#undef MOST_ROWS
#undef TARGET
#undef NAME
