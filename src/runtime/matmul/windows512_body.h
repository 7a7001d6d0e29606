/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of df_image_tiles with AVX-512, for one dtype T, of which a vector V holds W. NAME
 * names them. LOAD(p, m), SECOND(p, m) and GATHER(p, step, m) load the lanes of mask m, from
 * elements that are 1, 2 or `step` apart, and yield 0 in the other lanes. LOADU(p) loads a vector.
 * OVER(v, p, m) and SELECT(v, m, u) are v but for the lanes of m, which are loaded or those of u.
 */

/* The lanes [first - x, end - x) of a vector. */
AVX512 DF_INLINE uint32_t NAME(lanes)(int64_t first, int64_t end, int64_t x)
{
    const int64_t a = df_max_i64(first - x, 0), b = df_min_i64(end - x, W);
    return a < b ? ((1u << b) - 1u) & ~((1u << a) - 1u) : 0;
}

AVX512 DF_INLINE V NAME(load)(const T *p, int64_t step, uint32_t m)
{
    return step == 1 ? LOAD(p, m) : step == 2 ? SECOND(p, m) : GATHER(p, step, m);
}

/* p + n, where p need not be the address of an object. */
DF_INLINE const T *NAME(at)(const T *p, int64_t n)
{
    return (const T *)((uintptr_t)p + (uintptr_t)n * sizeof(T));
}

AVX512 DF_INLINE void NAME(copy_step)(T *to, int64_t to_row, const T *from, int64_t from_row,
                                      int64_t n_rows, int64_t step, int64_t n, int64_t first,
                                      int64_t end)
{
    for (int64_t x = 0; x < n; x += W) {
        const uint32_t all = NAME(lanes)(0, n, x), m = NAME(lanes)(first, end, x);
        T *p = to + x;
        const T *q = NAME(at)(from, x * step);
        for (int64_t i = 0; i < n_rows; i++) {
            STORE(p, all, NAME(load)(q, step, m));
            p += to_row;
            q = NAME(at)(q, from_row);
        }
    }
}

AVX512 static void NAME(copy)(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n_rows, int64_t step, int64_t n, int64_t first, int64_t end)
{
    if (step == 1)
        NAME(copy_step)(to, to_row, from, from_row, n_rows, 1, n, first, end);
    else if (step == 2)
        NAME(copy_step)(to, to_row, from, from_row, n_rows, 2, n, first, end);
    else
        NAME(copy_step)(to, to_row, from, from_row, n_rows, step, n, first, end);
}

/* Packs n channels from c on, under taps [t0, t1). step, n_vectors and n_pieces are those of the
 * panel. What the last tap shows of the next panel is prefetched: other taps have shown the rest of
 * it. The hardware does not prefetch it, because a panel reads a short run of each channel. */
AVX512 DF_INLINE void NAME(panel_rows)(const df_image_panel *p, int64_t c, int n, int64_t t0,
                                       int64_t t1, int64_t step, int n_vectors, int64_t n_pieces)
{
    const uint32_t last = NAME(lanes)(0, p->n, (n_vectors - 1) * W);
    const T *const from = NAME(at)(p->from, c * p->channel);
    const df_image_piece *piece = p->piece + t0 * n_vectors * n_pieces;
    T *to = (T *)p->to + (c * p->n_taps + t0 - p->r0) * p->to_row;
    for (int64_t t = t0; t < t1; t++, to += p->to_row)
#pragma GCC unroll 3
        for (int i = 0; i < n_vectors; i++, piece += n_pieces) {
            V v[CHANNELS];
            const T *first = NAME(at)(from, piece->offset);
            if (t == p->n_taps - 1)
#pragma GCC unroll 4
                for (int x = 0; x < n; x++)
                    __builtin_prefetch(NAME(at)(first, x * p->channel + n_vectors * W * step), 0,
                                       2);
#pragma GCC unroll 4
            for (int x = 0; x < n; x++, first = NAME(at)(first, p->channel))
                v[x] = NAME(load)(first, step, piece->mask);
            for (int64_t k = 1; k < n_pieces; k++) {
                const T *q = NAME(at)(from, piece[k].offset);
                const uint32_t m = piece[k].mask;
#pragma GCC unroll 4
                for (int x = 0; x < n; x++, q = NAME(at)(q, p->channel))
                    v[x] = step == 1 ? OVER(v[x], q, m) : SELECT(v[x], m, NAME(load)(q, step, m));
            }
            T *row = to + i * W;
#pragma GCC unroll 4
            for (int x = 0; x < n; x++, row += p->n_taps * p->to_row) {
                if (i < n_vectors - 1)
                    STOREU(row, v[x]);
                else
                    STORE(row, last, v[x]);
            }
        }
}

AVX512 DF_INLINE void NAME(panel_of)(const df_image_panel *p, int64_t step, int n_vectors,
                                     int64_t n_pieces)
{
    for (int64_t r = p->r0; r < p->r1;) {
        const int64_t c = r / p->n_taps, t = r % p->n_taps;
        if (t == 0 && p->r1 - r >= CHANNELS * p->n_taps) {
            NAME(panel_rows)(p, c, CHANNELS, 0, p->n_taps, step, n_vectors, n_pieces);
            r += CHANNELS * p->n_taps;
        } else {
            const int64_t end = df_min_i64(p->n_taps, t + p->r1 - r);
            NAME(panel_rows)(p, c, 1, t, end, step, n_vectors, n_pieces);
            r += end - t;
        }
    }
}

AVX512 static void NAME(panel)(const df_image_panel *p)
{
    const int n_vectors = (int)((p->n + W - 1) / W);
    if (n_vectors == DF_PANEL_VECTORS && p->step == 1 && p->n_pieces == 1)
        NAME(panel_of)(p, 1, DF_PANEL_VECTORS, 1);
    else if (n_vectors == DF_PANEL_VECTORS && p->step == 1 && p->n_pieces == 2)
        NAME(panel_of)(p, 1, DF_PANEL_VECTORS, 2);
    else
        NAME(panel_of)(p, p->step, n_vectors, p->n_pieces);
}

#include "runtime/matmul/turned512_body.h"

/* n vectors of a row, from element x on. */
AVX512 DF_INLINE void NAME(vectors)(const df_image_row *r, int64_t x, int n)
{
    const T *a = r->a;
    V acc[4];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) acc[i] = ZERO;
    for (int64_t c = 0; c < r->n_channels; c++)
        for (int64_t t = 0; t < r->n_taps; t++, a += r->a_col) {
            const T *const from = (const T *)r->from + c * r->channel + r->tap[t] + x;
            const V w = SPLAT(*a);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) acc[i] = FMA(w, LOADU(from + i * W), acc[i]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        STORE((T *)r->to + x + i * W, NAME(lanes)(0, r->n, x + i * W), acc[i]);
}

AVX512 static void NAME(row)(const df_image_row *r)
{
    int64_t x = 0;
    for (; r->n - x > 3 * W; x += 4 * W) NAME(vectors)(r, x, 4);
    if (r->n - x > 2 * W)
        NAME(vectors)(r, x, 3);
    else if (r->n - x > W)
        NAME(vectors)(r, x, 2);
    else if (r->n - x > 0)
        NAME(vectors)(r, x, 1);
}

/* Rows of results in n vectors from column x on. Three rows of results are in progress: each vector
 * of the image is loaded once and serves all three. */
AVX512 DF_INLINE void NAME(block_3x3)(const df_image_3x3 *r, int64_t x, int n)
{
    const T *from = NAME(at)(r->from, r->row * r->from_row + r->column + x);
    T *to = (T *)r->to + x;
    V w[9], acc[3][4];
    uint32_t m[3][4], all[4];
#pragma GCC unroll 9
    for (int t = 0; t < 9; t++) w[t] = SPLAT(((const T *)r->a)[t * r->a_col]);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        all[i] = NAME(lanes)(0, r->n, x + i * W);
        for (int k = 0; k < 3; k++)
            m[k][i] = all[i] & NAME(lanes)(-r->column - k, r->extent[1] - r->column - k, x + i * W);
        acc[0][i] = acc[1][i] = acc[2][i] = ZERO;
    }
    for (int64_t y = 0; y < r->n_rows + 2; y++) {
        const bool is_inside = r->row + y >= 0 && r->row + y < r->extent[0];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
#pragma GCC unroll 3
            for (int k = 0; k < 3; k++) {
                const V v = LOAD(NAME(at)(from, i * W + k), is_inside ? m[k][i] : 0);
                acc[0][i] = FMA(w[6 + k], v, acc[0][i]);
                acc[1][i] = FMA(w[3 + k], v, acc[1][i]);
                acc[2][i] = FMA(w[k], v, acc[2][i]);
            }
            if (y >= 2) STORE(to + i * W, all[i], acc[0][i]);
            acc[0][i] = acc[1][i];
            acc[1][i] = acc[2][i];
            acc[2][i] = ZERO;
        }
        from = NAME(at)(from, r->from_row);
        if (y >= 2) to += r->to_row;
    }
}

AVX512 static void NAME(rows_3x3)(const df_image_3x3 *r)
{
    int64_t x = 0;
    for (; r->n - x > 3 * W; x += 4 * W) NAME(block_3x3)(r, x, 4);
    if (r->n - x > 2 * W)
        NAME(block_3x3)(r, x, 3);
    else if (r->n - x > W)
        NAME(block_3x3)(r, x, 2);
    else if (r->n - x > 0)
        NAME(block_3x3)(r, x, 1);
}

#undef T
#undef V
#undef W
#undef NAME
#undef ZERO
#undef SPLAT
#undef FMA
#undef LOAD
#undef LOADU
#undef OVER
#undef SELECT
#undef SECOND
#undef GATHER
#undef TRANSPOSE
#undef NARROW
#undef STOREU
#undef STORE
