/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows times a B whose columns are contiguous: C[i][j] = sum over k of A[i][k] * Bt[j][k].
 *
 * There is no include guard: the file is included once per vector type. The includer defines T, V,
 * W, LOAD, STORE, ZERO, FMA, SPLAT, TARGET and NAME as for tile_body.h, and these macros. All are
 * undefined at the end.
 *
 *   STEP               how many steps of k are done at a time: the elements of half a vector
 *   COLUMNS(y, b, s)   y[p] = B[p][0..W) for p < STEP, transposed in registers
 *   FETCH(b, s)        prefetches one cache line of each of the W columns
 *   FMA_ONE            FMA of elements
 *
 * Columns are transposed in registers, so that one vector is one step of W chains. Each chain takes
 * k in ascending order, so the bits are those of a packed B. To pack B into a panel costs a write
 * and a read of the panel, which few rows of A cannot make up for. Several vectors of columns at a
 * time keep enough chains in progress to hide the latency of an fma.
 */

#define FETCH_BYTES (16 << 10)
#define LINE 64

/* Does STEP steps of k for one vector of columns. Its accumulators, one per row, are n_acc apart.
 */
TARGET DF_INLINE void NAME(dots_step)(V *acc, const int n_acc, const T *a, int64_t a_row,
                                      const char *b, df_dots_steps s, const int rows)
{
    V y[STEP];
    COLUMNS(y, b, s);
#pragma GCC unroll 8
    for (int p = 0; p < STEP; p++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            acc[i * n_acc] = FMA(SPLAT(a + i * a_row + p), y[p], acc[i * n_acc]);
}

/* Multiplies `rows` rows of A and `groups` vectors of columns. */
TARGET DF_INLINE void NAME(dots_tile)(const df_block *g, const T *a, const T *b, T *c,
                                      const int rows, const int groups)
{
    const int64_t a_row = g->a_row, b_col = g->b_row, c_row = g->c_row;
    df_dots_steps s = { .one = b_col * (int64_t)sizeof(T) };
    const T *part[4]; /* of B, per group */
    V acc[8];
    s.three = 3 * s.one, s.five = 5 * s.one, s.seven = 7 * s.one;
    DF_OPAQUE(s.one);
    DF_OPAQUE(s.three);
    DF_OPAQUE(s.five);
    DF_OPAQUE(s.seven);
    /* The cache lines of a step are far apart, so the hardware does not prefetch them. Prefetch the
     * next columns when they stay in the L1 cache until they are used, else lines of these columns.
     */
    const int64_t next = groups * W * s.one;
    const int64_t ahead = next <= FETCH_BYTES ? next : 2 * LINE;
#pragma GCC unroll 8
    for (int q = 0; q < groups; q++) {
        part[q] = b + q * W * b_col;
        DF_OPAQUE(part[q]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int q = 0; q < groups; q++)
            acc[i * groups + q] = g->first ? ZERO : LOAD(c + i * c_row + q * W);
    int64_t k = 0;
    for (; k + STEP <= g->k; k += STEP, a += STEP) {
        /* A line is four steps long. Each of them prefetches the lines of one group. To unroll them
         * makes the code three times as long, and slower. */
        const int64_t u = k / STEP % 4;
        if (u < groups) FETCH((const char *)(b + u * W * b_col + k) + ahead, s);
#pragma GCC unroll 8
        for (int q = 0; q < groups; q++) {
            NAME(dots_step)(acc + q, groups, a, a_row, (const char *)part[q], s, rows);
            part[q] += STEP;
        }
    }
    for (; k < g->k; k++, a++)
#pragma GCC unroll 8
        for (int q = 0; q < groups; q++) {
            T column[W];
            for (int x = 0; x < W; x++) column[x] = b[(q * W + x) * b_col + k];
            const V y = LOAD(column);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                acc[i * groups + q] = FMA(SPLAT(a + i * a_row), y, acc[i * groups + q]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int q = 0; q < groups; q++) STORE(c + i * c_row + q * W, acc[i * groups + q]);
}

/* Multiplies the last columns, which are fewer than a vector. */
TARGET static void NAME(dots_edge)(const df_block *g, const T *a, const T *b, T *c, int64_t rows,
                                   int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            T acc = g->first ? 0 : c[i * g->c_row + j];
            for (int64_t k = 0; k < g->k; k++)
                acc = FMA_ONE(a[i * g->a_row + k], b[j * g->b_row + k], acc);
            c[i * g->c_row + j] = acc;
        }
}

TARGET DF_INLINE void NAME(dots_rows)(const df_block *g, const T *a, T *c, const int rows,
                                      const int groups)
{
    const T *b = g->b;
    int64_t left = g->n;
    for (; left >= groups * W; left -= groups * W, b += groups * W * g->b_row, c += groups * W)
        NAME(dots_tile)(g, a, b, c, rows, groups);
    for (; left >= W; left -= W, b += W * g->b_row, c += W) NAME(dots_tile)(g, a, b, c, rows, 1);
    if (left > 0) NAME(dots_edge)(g, a, b, c, rows, left);
}

TARGET static void NAME(dots)(const df_block *g)
{
    const T *a = g->a;
    T *c = g->c;
    int64_t left = g->m;
    for (; left >= 4; left -= 4, a += 4 * g->a_row, c += 4 * g->c_row)
        NAME(dots_rows)(g, a, c, 4, 2);
    if (left == 3) NAME(dots_rows)(g, a, c, 3, 2);
    if (left == 2) NAME(dots_rows)(g, a, c, 2, 4);
    if (left == 1) NAME(dots_rows)(g, a, c, 1, 4);
}

#undef T
#undef V
#undef W
#undef LOAD
#undef STORE
#undef ZERO
#undef FMA
#undef FMA_ONE
#undef SPLAT
#undef FETCH
#undef FETCH_BYTES
#undef LINE
#undef STEP
#undef COLUMNS
#undef TARGET
#undef NAME
