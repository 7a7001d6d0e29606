/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/thirds/thirds.h: random products of f32 in fast mode where the processor has tiles.
 * Results are as near the exact sums as those of strict mode may be. They depend neither on the
 * number of threads nor on whether weights are packed once. Where a slice of a panel has an
 * infinity, a NaN or a huge number, so have the results. Without tiles, the tests pass and compute
 * nothing.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/matmul.h"
#include "runtime/thirds/thirds.h"
#include "support/budget.h"

enum {
    MOST_THREADS = 3,
    KEPT_ROWS = 256 /* most rows of products whose weights are kept */
};

static uint64_t state;

static int64_t drawn(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

/* All bits of the significand are random. */
static float value(void)
{
    return ldexpf((float)drawn(-0xffffff, 0xffffff), (int)drawn(-26, -22));
}

typedef struct fixture {
    df_matmul_job job;
    float *a, *b, *c[MOST_THREADS + 1]; /* results on i threads; [0]: in strict mode */
    int64_t a_numel, b_numel, c_numel;
    bool has_epilogue;
    bool is_apart; /* the rows of A of one entry are not behind those of the entry before */
} fixture;

static float *numbers(int64_t n)
{
    float *const p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) p[i] = value();
    return p;
}

static void draw_product(fixture *f)
{
    *f = (fixture){ .has_epilogue = drawn(0, 1) };
    const int64_t batch = drawn(0, 3) ? 1 : drawn(2, 5), k = drawn(32, drawn(0, 1) ? 80 : 700);
    int64_t m = drawn(32, 300), n = drawn(32, drawn(0, 1) ? 100 : 1500);
    while (m * n * k < 1 << 20) m += 10, n += 10;
    f->is_apart = batch > 1 && drawn(0, 1);
    if (f->is_apart) m = (m + DF_THIRDS_LANES - 1) / DF_THIRDS_LANES * DF_THIRDS_LANES;
    df_matmul_job *const j = &f->job;
    *j = (df_matmul_job){ .dtype = DEFT_F32,
                          .m = m,
                          .n = n,
                          .k = k,
                          .n_batch = batch,
                          .batch_rank = 1,
                          .batch_extent = { batch } };
    const bool a_turned = batch == 1 && drawn(0, 1), b_turned = drawn(0, 1);
    const int64_t a_row = (a_turned ? m : k) + drawn(0, 5),
                  b_row = (b_turned ? k : n) + drawn(0, 5);
    j->a_row = a_turned ? 1 : a_row;
    j->a_col = a_turned ? a_row : 1;
    j->b_row = b_turned ? 1 : b_row;
    j->b_col = b_turned ? b_row : 1;
    j->c_row = n + drawn(0, 5);
    j->a_batch[0] = m * j->a_row; /* the batch becomes rows */
    j->c_batch[0] = m * j->c_row;
    f->a_numel = (a_turned ? k : batch * m) * a_row;
    f->b_numel = (b_turned ? n : k) * b_row;
    f->c_numel = batch * m * j->c_row;
    f->a = numbers(f->a_numel);
    j->a = (const char *)f->a;
    if (f->is_apart) { /* row y of all entries, then row y + 1, or y - 1 */
        const bool is_reversed = drawn(0, 1);
        j->a_batch[0] = a_row;
        j->a_row = is_reversed ? -batch * a_row : batch * a_row;
        if (is_reversed) j->a += (m - 1) * batch * a_row * (int64_t)sizeof(float);
    }
    f->b = numbers(f->b_numel);
    for (int i = 0; i <= MOST_THREADS; i++) f->c[i] = numbers(f->c_numel);
    j->b = (const char *)f->b;
}

/* Row y of A, of those of all entries. */
static const float *row_of_a(const fixture *f, int64_t y)
{
    const df_matmul_job *const j = &f->job;
    return (const float *)(const void *)j->a + y / j->m * j->a_batch[0] + y % j->m * j->a_row;
}

static void drop_product(fixture *f)
{
    free(f->a);
    free(f->b);
    for (int i = 0; i <= MOST_THREADS; i++) free(f->c[i]);
}

typedef struct sink {
    float *to;
    int64_t row;
} sink;

static void collect(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                    int64_t o1, int64_t i0, int64_t i1)
{
    (void)thread;
    const sink *const s = user;
    for (int64_t y = o0; y < o1; y++)
        memcpy(s->to + y * s->row + i0, (const float *)(const void *)tile + (y - o0) * ld,
               (size_t)(i1 - i0) * sizeof(float));
}

/* Packs B as products with kept weights do. Returns NULL for products with too many rows for that.
 */
static char *keep_weights(df_matmul_job *j, df_pool *pool)
{
    df_weights w;
    if (!df_matmul_find_weights(j, &w)) return NULL;
    cr_assert(w.in_thirds && !w.is_a);
    char *const packed = aligned_alloc(64, ((size_t)w.bytes + 63) / 64 * 64);
    memset(packed, 0xff, (size_t)w.bytes);
    df_matmul_pack(&w, DEFT_F32, j->b, packed, pool);
    j->packed = packed;
    return packed;
}

static void run(const fixture *f, uint32_t n_threads, bool tiled, bool keeps, float *to)
{
    df_pool *pool = NULL;
    df_matmul_job j = f->job;
    sink s = { to, j.c_row };
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, n_threads, &pool), DEFT_OK);
    j.fast = j.in_thirds = tiled;
    cr_assert(df_matmul_gains_by_thirds(&j));
    j.c = f->has_epilogue ? NULL : (char *)to;
    if (f->has_epilogue) {
        j.epilogue = collect;
        j.user = &s;
    }
    void *const work = malloc(df_matmul_work_size(&j, NULL, n_threads) + 1);
    char *const packed = keeps ? keep_weights(&j, pool) : NULL;
    if (keeps) cr_assert_eq(packed != NULL, j.m * j.n_batch <= KEPT_ROWS && !f->is_apart);
    df_matmul_run(&j, NULL, NULL, pool, work);
    cr_assert_eq(df_thirds_run(&j, pool, work), tiled);
    free(packed);
    free(work);
    df_pool_destroy(&pool);
}

static void run_all(const fixture *f)
{
    run(f, 1, false, false, f->c[0]);
    for (uint32_t n = 1; n <= MOST_THREADS; n++)
        for (int keeps = 0; keeps < 2; keeps++) {
            run(f, n, true, keeps, f->c[n]);
            for (int64_t y = 0; y < f->job.m * f->job.n_batch; y++)
                cr_assert_eq(memcmp(f->c[1] + y * f->job.c_row, f->c[n] + y * f->job.c_row,
                                    (size_t)f->job.n * sizeof(float)),
                             0, "%u threads, kept weights: %d", n, keeps);
        }
}

static bool begin(uint64_t seed)
{
    state = seed;
    return df_matmul_enable_tiles();
}

static bool goes_on(int i)
{
    return i < 3 || (i < 200 && test_time_left(1));
}

/* The greatest sum of magnitudes that any chain of these elements has, at most. */
static void check_near(const fixture *f)
{
    const df_matmul_job *const j = &f->job;
    for (int64_t i = 0; i < 300; i++) {
        const int64_t y = drawn(0, j->m * j->n_batch - 1), x = drawn(0, j->n - 1);
        double exact = 0, magnitude = 0;
        for (int64_t k = 0; k < j->k; k++) {
            const double term =
                (double)row_of_a(f, y)[k * j->a_col] * (double)f->b[k * j->b_row + x * j->b_col];
            exact += term;
            magnitude += fabs(term);
        }
        /* Rounding to f32 is 2^-24. Sums of 32 terms are rounded 16 times, then 6 times per step,
         * mostly by less. */
        const double error = fabs((double)f->c[1][y * j->c_row + x] - exact);
        cr_assert_leq(error, 0x1p-22 * magnitude, "%g of %g, k %lld", error, magnitude,
                      (long long)j->k);
    }
}

Test(thirds, results_are_near_the_exact_sums)
{
    if (!begin(1)) return;
    for (int i = 0; goes_on(i); i++) {
        fixture f;
        draw_product(&f);
        run_all(&f);
        check_near(&f);
        drop_product(&f);
    }
}

/* With elements of few bits, all sums are exact, so that strict mode has the same bits. */
Test(thirds, sums_of_small_integers_are_exact)
{
    if (!begin(2)) return;
    for (int i = 0; goes_on(i); i++) {
        fixture f;
        draw_product(&f);
        for (int64_t x = 0; x < f.a_numel; x++) f.a[x] = (float)drawn(-2000, 2000);
        for (int64_t x = 0; x < f.b_numel; x++) f.b[x] = (float)drawn(-3, 3);
        run_all(&f);
        for (int64_t y = 0; y < f.job.m * f.job.n_batch; y++)
            for (int64_t x = 0; x < f.job.n; x++)
                cr_assert_eq(f.c[0][y * f.job.c_row + x], f.c[1][y * f.job.c_row + x]);
        drop_product(&f);
    }
}

Test(thirds, special_values_are_those_of_strict_mode)
{
    static const float special[] = { INFINITY, -INFINITY, NAN, 0x1p24f, -3e38f, 0x1p127f };
    if (!begin(3)) return;
    for (int i = 0; goes_on(i); i++) {
        fixture f;
        draw_product(&f);
        for (int64_t x = 0; x < f.a_numel; x++) f.a[x] = (float)drawn(-2000, 2000);
        for (int64_t x = 0; x < f.b_numel; x++) f.b[x] = (float)drawn(0, 3);
        for (int64_t n = drawn(1, 4); n > 0; n--) {
            const float v = special[drawn(0, 5)];
            if (drawn(0, 1))
                f.a[drawn(0, f.a_numel - 1)] = v;
            else
                f.b[drawn(0, f.b_numel - 1)] = v;
        }
        run_all(&f);
        for (int64_t y = 0; y < f.job.m * f.job.n_batch; y++)
            for (int64_t x = 0; x < f.job.n; x++) {
                const float strict = f.c[0][y * f.job.c_row + x],
                            fast = f.c[1][y * f.job.c_row + x];
                const bool near = fabsf(strict - fast) <= 1e-4f * fabsf(strict);
                cr_assert(near || strict == fast || (isnan(strict) && isnan(fast)), "%g, strict %g",
                          (double)fast, (double)strict);
            }
        drop_product(&f);
    }
}
