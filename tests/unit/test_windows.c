/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/matmul/windows.h: the functions of every instruction set that this machine has, against
 * their definition. Programs only run those of one set. Products of windows that are one tile, on
 * this machine, against theirs.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/matmul.h"
#include "runtime/matmul/windows.h"

enum { MOST = 400, BEHIND = 64 };

static const df_image_tiles *sets[3][2] = {
    { &df_image_tiles_base_f32, &df_image_tiles_base_f64 },
};
static int n_sets = 1;

static void find_sets(void)
{
    n_sets = 1;
#if defined(__x86_64__)
    static const df_image_tiles *const avx2[] = { &df_image_tiles_avx2_f32,
                                                  &df_image_tiles_avx2_f64 };
    static const df_image_tiles *const avx512[] = { &df_image_tiles_avx512_f32,
                                                    &df_image_tiles_avx512_f64 };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        memcpy(sets[n_sets++], avx2, sizeof avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("bmi2"))
        memcpy(sets[n_sets++], avx512, sizeof avx512);
#endif
}

/* Element i of an array of f32, or of f64. */
static double get(bool wide, const void *p, int64_t i)
{
    return wide ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void put(bool wide, void *p, int64_t i, double v)
{
    if (wide)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

static double fused(bool wide, double a, double b, double c)
{
    return wide ? fma(a, b, c) : (double)fmaf((float)a, (float)b, (float)c);
}

static double from[MOST * 8 + BEHIND], weight[MOST], got[MOST * 4];

static void fill(bool wide)
{
    for (int64_t i = 0; i < MOST * 8 + BEHIND; i++)
        put(wide, from, i, (double)(i * 37 % 1009) / 64 + 0.1);
    for (int64_t i = 0; i < MOST; i++) put(wide, weight, i, (double)(i * 11 % 17) / 3 - 2);
}

Test(windows, copies_have_zeros_outside)
{
    find_sets();
    for (int k = 0; k < 2 * n_sets; k++) {
        const bool wide = k % 2;
        fill(wide);
        for (int64_t step = -2; step <= 3; step++)
            for (int64_t n = 1; n < 40; n += n < 18 ? 1 : 5)
                for (int64_t first = 0; first <= n; first += 1 + n / 3)
                    for (int64_t end = first; end <= n; end += 1 + n / 4) {
                        for (int64_t i = 0; i < MOST; i++) put(wide, got, i, -1);
                        const int64_t at = step < 0 ? 200 : 0, size = wide ? 8 : 4;
                        sets[k / 2][wide]->copy(got, 50, (char *)from + at * size, 300, 2, step, n,
                                                first, end);
                        for (int64_t i = 0; i < 100; i++) {
                            const int64_t x = i % 50;
                            const double is = get(wide, from, at + i / 50 * 300 + x * step);
                            const double want = x >= n ? -1 : x >= first && x < end ? is : 0;
                            cr_assert(get(wide, got, i) == want, "set %d, step %d, n %d, at %d",
                                      k / 2, (int)step, (int)n, (int)i);
                        }
                    }
    }
}

Test(windows, rows_are_chains_in_order)
{
    static const int64_t tap[] = { 0, 1, 2, 60, 61, 62, 125 };
    find_sets();
    for (int k = 0; k < 2 * n_sets; k++) {
        const bool wide = k % 2;
        fill(wide);
        for (int64_t n = 1; n < 140; n += n < 70 ? 1 : 13) {
            for (int64_t i = 0; i < MOST; i++) put(wide, got, i, -1);
            const df_image_row r = { .to = got,
                                     .n = n,
                                     .a = weight,
                                     .a_col = 2,
                                     .n_channels = 3,
                                     .n_taps = 7,
                                     .from = from,
                                     .channel = 500,
                                     .tap = tap };
            sets[k / 2][wide]->row(&r);
            for (int64_t x = 0; x < n; x++) {
                double want = 0;
                for (int64_t i = 0; i < 21; i++)
                    want = fused(wide, get(wide, weight, 2 * i),
                                 get(wide, from, i / 7 * 500 + tap[i % 7] + x), want);
                cr_assert(get(wide, got, x) == want, "set %d, n %d, at %d", k / 2, (int)n, (int)x);
            }
            cr_assert(get(wide, got, n) == -1, "set %d, n %d: written behind", k / 2, (int)n);
        }
    }
}

/* Element x of row r of a panel whose piece table is filled by lanes: 0 without a piece. */
static double of_panel(bool wide, const df_image_panel *p, int64_t lanes, int64_t r, int64_t x)
{
    const int64_t n_vectors = (p->n + lanes - 1) / lanes, lane = x % lanes;
    const df_image_piece *const piece =
        p->piece + (r % p->n_taps * n_vectors + x / lanes) * p->n_pieces;
    double v = 0;
    for (int64_t k = 0; k < p->n_pieces; k++)
        if (piece[k].mask >> lane & 1)
            v = get(wide, p->from, r / p->n_taps * p->channel + piece[k].offset + lane * p->step);
    return v;
}

static void check_panel(int set, bool wide, const df_image_panel *p)
{
    for (int64_t i = 0; i < MOST * 4; i++) put(wide, got, i, -1);
    sets[set][wide]->panel(p);
    const int64_t end = (p->r1 - p->r0) * p->to_row;
    for (int64_t i = 0; i < end + p->to_row; i++) { /* nothing is written behind the last row */
        const int64_t x = i % p->to_row;
        const double want = x < p->n && i < end ? of_panel(wide, p, sets[set][wide]->lanes,
                                                           p->r0 + i / p->to_row, x)
                                                : -1;
        cr_assert(get(wide, got, i) == want, "set %d, step %d, %d columns, %d pieces: at %d", set,
                  (int)p->step, (int)p->n, (int)p->n_pieces, (int)i);
    }
}

/* Each vector has its lanes from several runs, of which some show nothing. */
Test(windows, panels_consist_of_pieces)
{
    static df_image_piece piece[200];
    find_sets();
    for (int k = 0; k < 2 * n_sets; k++) {
        const bool wide = k % 2;
        const int64_t lanes = sets[k / 2][wide]->lanes;
        if (!sets[k / 2][wide]->panel) continue;
        fill(wide);
        for (uint32_t turn = 0; turn < 3000; turn++) {
            df_image_panel p = { .to = got,
                                 .n = 1 + turn % (3 * lanes),
                                 .from = from,
                                 .channel = 90,
                                 .step = turn % 5 == 4 ? -1 : 1 + (int64_t)(turn % 5 / 2),
                                 .n_taps = 1 + turn % 4,
                                 .n_pieces = 1 + turn / 7 % 4,
                                 .piece = piece };
            p.to_row = p.n + turn % 3;
            p.r0 = turn % 6;
            p.r1 = p.r0 + 1 + turn / 11 % 21;
            for (uint32_t i = 0; i < 200; i++) {
                const uint32_t run = i % (uint32_t)p.n_pieces;
                const uint32_t each = (uint32_t)(lanes / p.n_pieces);
                const uint32_t of_run = ((1u << each) - 1u) << run * each;
                piece[i].mask = (turn + i) % 9 == 0 ? 0u : of_run & ~((turn + i) % 5 << run * each);
                piece[i].offset = 60 + (turn * 7 + i * 13) % 80;
            }
            check_panel(k / 2, wide, &p);
        }
    }
}

/* Element j of window i of a run. */
static double of_run(bool wide, const df_image_run *p, int64_t i, int64_t j)
{
    const df_image_shown *const s = &p->shown[j % p->n_taps];
    const int64_t at = s->offset + (p->r0 + j) / p->n_taps * p->channel + i * p->step;
    return j < p->n_columns && i >= s->first && i < s->end ? get(wide, p->from, at) : 0;
}

static void check_run(int set, bool wide, const df_image_run *p)
{
    for (int64_t i = 0; i < MOST * 4; i++) put(wide, got, i, -1);
    sets[set][wide]->turned(p);
    for (int64_t i = 0; i < (p->n + 1) * p->to_row; i++) { /* nothing is written behind */
        const int64_t row = i / p->to_row, j = i % p->to_row;
        const double want = row < p->n ? of_run(wide, p, row, j) : -1;
        cr_assert(get(wide, got, i) == want,
                  "set %d, step %d, %d windows, %d columns, %d taps: window %d, column %d", set,
                  (int)p->step, (int)p->n, (int)p->n_columns, (int)p->n_taps, (int)row, (int)j);
    }
}

/* Runs of any length, with windows on both sides of an image, or outside of it. */
Test(windows, runs_are_transposed)
{
    static df_image_shown shown[DF_RUN_COLUMNS];
    find_sets();
    for (int k = 0; k < 2 * n_sets; k++) {
        const bool wide = k % 2;
        const df_image_tiles *const tiles = sets[k / 2][wide];
        if (!tiles->turned) continue;
        fill(wide);
        for (int64_t turn = 0; turn < 3000; turn++) {
            df_image_run p = { .to = got,
                               .to_row = (1 + turn % 5) * tiles->narrow,
                               .from = from,
                               .channel = 30,
                               .step = turn % 5 == 4 ? -2 : 1 + turn % 5 / 2,
                               .n_taps = 1 + turn / 3 % 50,
                               .r0 = turn % 37,
                               .n = 1 + turn / 7 % 38,
                               .shown = shown };
            p.n_columns = df_max_i64(1, p.to_row - turn % 7);
            for (int64_t i = 0; i < DF_RUN_COLUMNS; i++) {
                shown[i].offset = 100 + (turn * 7 + i * 13) % 80;
                shown[i].first = df_min_i64((turn + i) % 4, p.n);
                shown[i].end = df_max_i64(shown[i].first, p.n - (turn + i) / 4 % 3);
                if ((turn + i) % 9 == 0) shown[i].end = shown[i].first;
            }
            check_run(k / 2, wide, &p);
        }
    }
}

/* Result (y, x) of a window of 3 x 3 elements. An element outside of the image is 0. */
static double of_3x3(bool wide, const df_image_3x3 *r, int64_t y, int64_t x)
{
    double sum = 0;
    for (int64_t t = 0; t < 9; t++) {
        const int64_t i = r->row + y + t / 3, k = r->column + x + t % 3;
        const bool is_inside = i >= 0 && i < r->extent[0] && k >= 0 && k < r->extent[1];
        const double v = is_inside ? get(wide, r->from, i * r->from_row + k) : 0;
        sum = fused(wide, get(wide, weight, t * r->a_col), v, sum);
    }
    return sum;
}

static void check_3x3(int set, bool wide, const df_image_3x3 *r)
{
    for (int64_t i = 0; i < MOST * 4; i++) put(wide, got, i, -1);
    sets[set][wide]->rows_3x3(r);
    for (int64_t y = 0; y < r->n_rows; y++)
        for (int64_t x = 0; x < r->to_row; x++) {
            const double want = x < r->n ? of_3x3(wide, r, y, x) : -1;
            cr_assert(get(wide, got, y * r->to_row + x) == want,
                      "set %d, %d rows of %d from (%d, %d): at %d, %d", set, (int)r->n_rows,
                      (int)r->n, (int)r->row, (int)r->column, (int)y, (int)x);
        }
}

Test(windows, windows_of_3x3_are_chains_in_order_with_zeros_outside)
{
    find_sets();
    for (int k = 0; k < 2 * n_sets; k++) {
        if (!sets[k / 2][k % 2]->rows_3x3) continue;
        fill(k % 2);
        for (int64_t n = 1; n < 140; n += n < 70 ? 3 : 23)
            for (int64_t at = 0; at < 16; at++) {
                const int64_t size[2] = { 1 + at % 5, n + at / 4 - 2 > 0 ? n + at / 4 - 2 : 1 };
                const df_image_3x3 r = { .to = got,
                                         .to_row = n + 3,
                                         .n_rows = 1 + at % 7,
                                         .n = n,
                                         .a = weight,
                                         .a_col = 2,
                                         .from = from,
                                         .from_row = 160,
                                         .extent = { size[0], size[1] },
                                         .row = at % 4 - 2,
                                         .column = at / 4 - 2 };
                check_3x3(k / 2, k % 2, &r);
            }
    }
}

Test(windows, sums_are_chains_in_order)
{
    int64_t tap[30];
    find_sets();
    for (int64_t t = 0; t < 30; t++) tap[t] = t * 7 % 90;
    for (int k = 0; k < 2 * n_sets; k++) {
        const bool wide = k % 2;
        fill(wide);
        for (int64_t n_taps = 1; n_taps <= 30; n_taps++) {
            for (int64_t i = 0; i < MOST; i++) put(wide, got, i, 0.5);
            sets[k / 2][wide]->sums(got, weight, from, 33, tap, n_taps);
            for (int64_t t = 0; t <= n_taps; t++) {
                double want = 0.5;
                for (int64_t x = 0; x < 33 && t < n_taps; x++)
                    want = fused(wide, get(wide, weight, x), get(wide, from, tap[t] + x), want);
                cr_assert(get(wide, got, t) == want, "set %d, %d taps, at %d", k / 2, (int)n_taps,
                          (int)t);
            }
        }
    }
}

/* The product of 70 rows and all windows of 3 x 3 elements, padded by 1, of an image with
 * `channels` channels and size x size elements. */
static void check_product(bool wide, int64_t channels, int64_t size, uint32_t n_threads)
{
    enum { ROWS = 70, TAPS = 9 };
    const int64_t n = size * size, k = channels * TAPS, bytes = wide ? 8 : 4;
    int64_t tap[2 * TAPS];
    for (int64_t t = 0; t < TAPS; t++) tap[2 * t] = t / 3 - 1, tap[2 * t + 1] = t % 3 - 1;
    const df_images images = { .tap = tap,
                               .n_taps = TAPS,
                               .step = { 1, 1 },
                               .extent = { size, size },
                               .out = { size, size },
                               .channel = n,
                               .row = size,
                               .column = 1 };
    char *const a = malloc((size_t)(ROWS * k * bytes));
    char *const image = malloc((size_t)(channels * n * bytes));
    char *const c = malloc((size_t)(ROWS * n * bytes));
    for (int64_t i = 0; i < ROWS * k; i++) put(wide, a, i, (double)(i * 7 % 113) / 9 - 6);
    for (int64_t i = 0; i < channels * n; i++) put(wide, image, i, (double)(i * 5 % 97) / 7 - 7);
    const df_matmul_job job = { .dtype = wide ? DEFT_F64 : DEFT_F32,
                                .m = ROWS,
                                .n = n,
                                .k = k,
                                .n_batch = 1,
                                .a = a,
                                .b = image,
                                .c = c,
                                .a_row = k,
                                .a_col = 1,
                                .c_row = n,
                                .images = &images };
    df_pool *pool = NULL;
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, n_threads, &pool), DEFT_OK);
    void *const work = malloc(df_matmul_work_size(&job, NULL, n_threads) + 1);
    df_matmul_run(&job, NULL, NULL, pool, work);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = 0;
            for (int64_t r = 0; r < k; r++) {
                const int64_t y = j / size + tap[r % TAPS * 2],
                              x = j % size + tap[r % TAPS * 2 + 1];
                const bool is_inside = y >= 0 && y < size && x >= 0 && x < size;
                const double v = is_inside ? get(wide, image, r / TAPS * n + y * size + x) : 0;
                want = fused(wide, get(wide, a, i * k + r), v, want);
            }
            cr_assert(get(wide, c, i * n + j) == want, "%d x %d, %d threads: row %d, window %d",
                      (int)size, (int)size, (int)n_threads, (int)i, (int)j);
        }
    df_pool_destroy(&pool);
    free(work);
    free(a);
    free(image);
    free(c);
}

/* Sums of 900 elements are computed in slices. With AVX-512, tiles have up to 64 or 32 columns. */
Test(windows, products_of_few_windows_are_chains_in_order)
{
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++)
        for (int64_t size = 3; size <= 9; size++) {
            check_product(false, size % 2 ? 100 : 5, size, n_threads);
            check_product(true, size % 2 ? 5 : 100, size, n_threads);
        }
}
