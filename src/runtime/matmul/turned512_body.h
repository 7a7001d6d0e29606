/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of transposed panels with AVX-512 (df_image_run). This is a part of windows512_body.h, whose
 * macros it uses. TRANSPOSE(to, to_row, rows, n) stores the first n columns of NARROW vectors as
 * rows.
 */
/* Where a column of a run is. */
typedef struct NAME(column) {
    int64_t shown; /* the index in df_image_run.shown */
    int64_t channel, tap;
} NAME(column);

DF_INLINE void NAME(next_column)(const df_image_run *p, NAME(column) * at)
{
    if (++at->shown == p->n_taps) at->shown = 0;
    if (++at->tap < p->n_taps) return;
    at->tap = 0;
    at->channel++;
}

/* Columns [j, j + NARROW) of the windows [x, x + W) of a run. *at becomes the column behind. */
AVX512 DF_INLINE void NAME(turn)(const df_image_run *p, const uint32_t *mask, int64_t x, int64_t j,
                                 NAME(column) * at, int64_t step)
{
    V row[NARROW];
#pragma GCC unroll 8
    for (int i = 0; i < NARROW; i++) {
        row[i] = ZERO;
        if (j + i >= p->n_columns) continue;
        const int64_t from = p->shown[at->shown].offset + at->channel * p->channel + x * step;
        row[i] = NAME(load)(NAME(at)(p->from, from), step, mask[at->shown]);
        NAME(next_column)(p, at);
    }
    T *const to = (T *)p->to + x * p->to_row + j;
    if (p->n - x >= W)
        TRANSPOSE(to, p->to_row, row, W);
    else
        TRANSPOSE(to, p->to_row, row, p->n - x);
}

AVX512 DF_INLINE void NAME(turn_run)(const df_image_run *p, int64_t step)
{
    uint32_t mask[DF_RUN_COLUMNS];
    for (int64_t x = 0; x < p->n; x += W) {
        NAME(column) at = { 0, p->r0 / p->n_taps, p->r0 % p->n_taps };
        for (int64_t i = 0; i < p->n_taps && i < p->n_columns; i++)
            mask[i] = NAME(lanes)(p->shown[i].first, p->shown[i].end, x);
        for (int64_t j = 0; j < p->to_row; j += NARROW) NAME(turn)(p, mask, x, j, &at, step);
    }
}

AVX512 static void NAME(turned)(const df_image_run *p)
{
    if (p->step == 1)
        NAME(turn_run)(p, 1);
    else
        NAME(turn_run)(p, p->step);
}
