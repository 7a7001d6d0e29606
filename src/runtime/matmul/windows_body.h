/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of df_image_tiles as plain loops, for one dtype T. NAME(x) names them, TARGET is an
 * attribute, FMA(a, b, c) a fused multiply-add.
 */
TARGET static void NAME(copy)(void *to, int64_t to_row, const void *from, int64_t from_row,
                              int64_t n_rows, int64_t step, int64_t n, int64_t first, int64_t end)
{
    for (int64_t i = 0; i < n_rows; i++) {
        T *const x = (T *)to + i * to_row;
        const T *const y =
            (const T *)((uintptr_t)from + (uintptr_t)i * sizeof(T) * (uintptr_t)from_row);
        for (int64_t k = 0; k < first; k++) x[k] = 0;
        if (step == 1 && first < end)
            memcpy(x + first, y + first, (size_t)(end - first) * sizeof(T));
        else
            for (int64_t k = first; k < end; k++) x[k] = y[k * step];
        for (int64_t k = end; k < n; k++) x[k] = 0;
    }
}

#define LANES (64 / (int)sizeof(T))

TARGET static void NAME(row)(const df_image_row *r)
{
    for (int64_t x = 0; x < r->n; x += LANES) {
        const T *a = r->a;
        T acc[LANES] = { 0 };
        for (int64_t c = 0; c < r->n_channels; c++)
            for (int64_t t = 0; t < r->n_taps; t++, a += r->a_col) {
                const T *const from = (const T *)r->from + c * r->channel + r->tap[t] + x;
                for (int i = 0; i < LANES; i++) acc[i] = FMA(*a, from[i], acc[i]);
            }
        const int64_t n = df_min_i64(LANES, r->n - x);
        memcpy((T *)r->to + x, acc, (size_t)n * sizeof(T));
    }
}

/* The sums of k taps, as k chains side by side: one alone would wait for each addition. */
TARGET DF_INLINE void NAME(sums_of)(T *sum, const T *a, const T *from, int64_t n,
                                    const int64_t *tap, int k)
{
    T acc[DF_CHAINS];
#pragma GCC unroll 16
    for (int t = 0; t < k; t++) acc[t] = sum[t];
    for (int64_t x = 0; x < n; x++)
#pragma GCC unroll 16
        for (int t = 0; t < k; t++) acc[t] = FMA(a[x], from[tap[t] + x], acc[t]);
#pragma GCC unroll 16
    for (int t = 0; t < k; t++) sum[t] = acc[t];
}

TARGET static void NAME(sums)(void *sum, const void *a, const void *from, int64_t n,
                              const int64_t *tap, int64_t n_taps)
{
    for (int64_t t = 0; t < n_taps;) {
        T *const to = (T *)sum + t;
        const int64_t left = n_taps - t;
        const int k = left >= 9 ? 9 : left >= 4 ? 4 : 1;
        if (k == 9)
            NAME(sums_of)(to, a, from, n, tap + t, 9);
        else if (k == 4)
            NAME(sums_of)(to, a, from, n, tap + t, 4);
        else
            NAME(sums_of)(to, a, from, n, tap + t, 1);
        t += k;
    }
}
#undef T
#undef NAME
#undef LANES
#undef FMA
