/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a B whose columns are contiguous, for fast mode: each element of C is summed in
 * several chains, along k. There is no include guard: the file is included once per vector type.
 * The includer defines T, V, W, MASK, MASK_OF, LOAD, LOADM, ZERO, FMA, TARGET and NAME as for
 * tile_body.h, and these macros. All are undefined at the end.
 *
 *   MOST_ROWS              2 or 4: a tile of 4 x 4 needs more than 16 registers
 *   ADD(a, b)              the sum of two vectors
 *   SUMS(to, v, n)         to[j] = the sum of all lanes of v[j * n], for j < 4
 *   SUM(v)                 the sum of all lanes
 *
 * Nothing is transposed, so a row of B is read at the speed of memory. The chains are the lanes of
 * a vector, and two vectors for a single row.
 */

/* Multiplies `rows` rows and `columns` columns. One row has two vectors of chains per element. */
TARGET DF_INLINE void NAME(split_tile)(const df_block *g, const T *b, T *c, const int rows,
                                       const int columns)
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    const int n_chains = rows == 1 ? 2 : 1;
    const T *a = g->a;
    V acc[16];
#pragma GCC unroll 16
    for (int i = 0; i < rows * columns * n_chains; i++) acc[i] = ZERO;
    int64_t k = g->k;
    for (; k >= n_chains * W; k -= n_chains * W, a += n_chains * W, b += n_chains * W)
#pragma GCC unroll 2
        for (int u = 0; u < n_chains; u++) {
            V x[4];
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) x[i] = LOAD(a + i * a_row + u * W);
#pragma GCC unroll 8
            for (int j = 0; j < columns; j++) {
                const V y = LOAD(b + j * b_col + u * W);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++) {
                    V *const sum = &acc[(i * columns + j) * n_chains + u];
                    *sum = FMA(x[i], y, *sum);
                }
            }
        }
    for (; k > 0; k -= W, a += W, b += W) {
        const MASK mask = MASK_OF(df_min_i64(k, W));
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++) {
            const V y = LOADM(b + j * b_col, mask);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                V *const sum = &acc[(i * columns + j) * n_chains];
                *sum = FMA(LOADM(a + i * a_row, mask), y, *sum);
            }
        }
    }
    if (n_chains == 2)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) acc[2 * j] = ADD(acc[2 * j], acc[2 * j + 1]);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        if (columns == 1)
            c[i * c_row] = SUM(acc[i * n_chains]);
        else
#pragma GCC unroll 2
            for (int j = 0; j < columns; j += 4)
                SUMS(c + i * c_row + j, acc + (i * columns + j) * n_chains, n_chains);
}

TARGET DF_INLINE void NAME(split_rows)(const df_block *g, const int rows)
{
    const int most = rows == 2 && MOST_ROWS == 4 ? 8 : 4; /* columns: 8 to 16 chains */
    const T *b = g->b;
    T *c = g->c;
    int64_t left = g->n;
    for (; left >= most; left -= most, b += most * g->b_row, c += most)
        NAME(split_tile)(g, b, c, rows, most);
    for (; left > 0; left--, b += g->b_row, c++) NAME(split_tile)(g, b, c, rows, 1);
}

TARGET static void NAME(split)(const df_block *g)
{
    df_assert(g->first && g->m <= MOST_ROWS);
    switch (g->m) {
    case 1: NAME(split_rows)(g, 1); break;
    case 2: NAME(split_rows)(g, 2); break;
#if MOST_ROWS == 4
    case 3: NAME(split_rows)(g, 3); break;
    case 4: NAME(split_rows)(g, 4); break;
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
#undef SUMS
#undef MOST_ROWS
#undef TARGET
#undef NAME
