/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/matmul/deep.h: random products of few rows in fast mode. An element is the sum of the
 * chains of four parts of k, and of the steps that are left, in this order, bit for bit. That does
 * not depend on the number of threads, and in strict mode an element is one chain.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/matmul.h"
#include "runtime/matmul/deep.h"
#include "support/budget.h"

enum { MOST_THREADS = 3, PARTS = 4 };

static uint64_t state;

static int64_t drawn(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

typedef struct fixture {
    df_matmul_job job;
    void *a, *b;
    bool has_epilogue;
} fixture;

static void put(deft_dtype t, void *p, int64_t i, double x)
{
    if (t == DEFT_F32)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}

static double get(deft_dtype t, const void *p, int64_t i)
{
    return t == DEFT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void *numbers(deft_dtype t, int64_t n)
{
    void *const p = malloc((size_t)n * deft_dtype_size(t));
    for (int64_t i = 0; i < n; i++) put(t, p, i, ldexp((double)drawn(-0xffffff, 0xffffff), -24));
    return p;
}

/* A large product is divided in all builds, and small ones in builds with checks. */
static void draw_product(fixture *f, bool is_large)
{
    *f = (fixture){ .has_epilogue = drawn(0, 1) };
    df_matmul_job *const j = &f->job;
    *j = (df_matmul_job){ .dtype = drawn(0, 1) ? DEFT_F32 : DEFT_F64,
                          .m = drawn(1, 10),
                          .n = is_large ? drawn(700, 1100) : drawn(2, 200),
                          .k = is_large ? drawn(400, 700) : drawn(1, 150),
                          .n_batch = 1,
                          .batch_rank = 1,
                          .batch_extent = { 1 } };
    const bool a_turned = drawn(0, 1), b_turned = drawn(0, 3) == 0;
    const int64_t a_row = (a_turned ? j->m : j->k) + drawn(0, 5);
    const int64_t b_row = (b_turned ? j->k : j->n) + drawn(0, 5);
    j->a_row = a_turned ? 1 : a_row;
    j->a_col = a_turned ? a_row : 1;
    j->b_row = b_turned ? 1 : b_row;
    j->b_col = b_turned ? b_row : 1;
    j->c_row = j->n + drawn(0, 5);
    f->a = numbers(j->dtype, (a_turned ? j->k : j->m) * a_row);
    f->b = numbers(j->dtype, (b_turned ? j->n : j->k) * b_row);
    j->a = f->a;
    j->b = f->b;
}

typedef struct sink {
    char *to;
    int64_t row, size;
} sink;

static void collect(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                    int64_t o1, int64_t i0, int64_t i1)
{
    (void)thread;
    const sink *const s = user;
    for (int64_t y = o0; y < o1; y++)
        memcpy(s->to + (y * s->row + i0) * s->size, tile + (y - o0) * ld * s->size,
               (size_t)((i1 - i0) * s->size));
}

static void *run(const fixture *f, uint32_t n_threads, bool fast)
{
    df_pool *pool = NULL;
    df_matmul_job j = f->job;
    const int64_t size = (int64_t)deft_dtype_size(j.dtype);
    char *const to = malloc((size_t)(j.m * j.c_row * size));
    sink s = { to, j.c_row, size };
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, n_threads, &pool), DEFT_OK);
    j.fast = fast;
    j.c = f->has_epilogue ? NULL : to;
    if (f->has_epilogue) {
        j.epilogue = collect;
        j.user = &s;
    }
    void *const work = malloc(df_matmul_work_size(&j, NULL, n_threads) + 1);
    df_matmul_run(&j, NULL, NULL, pool, work);
    free(work);
    df_pool_destroy(&pool);
    return to;
}

static double chain(const fixture *f, int64_t y, int64_t x, int64_t k0, int64_t k1)
{
    const df_matmul_job *const j = &f->job;
    double sum = 0;
    for (int64_t k = k0; k < k1; k++) {
        const double a = get(j->dtype, j->a, y * j->a_row + k * j->a_col);
        const double b = get(j->dtype, j->b, k * j->b_row + x * j->b_col);
        sum = j->dtype == DEFT_F32 ? (double)fmaf((float)a, (float)b, (float)sum) : fma(a, b, sum);
    }
    return sum;
}

static double rounded(deft_dtype t, double x)
{
    return t == DEFT_F32 ? (double)(float)x : x;
}

/* What an element is in fast mode. */
static double sum_of_parts(const fixture *f, int64_t y, int64_t x)
{
    const int64_t k = f->job.k, part = k / PARTS;
    double sum = chain(f, y, x, 0, part);
    for (int64_t i = 1; i < PARTS; i++)
        sum = rounded(f->job.dtype, sum + chain(f, y, x, i * part, (i + 1) * part));
    if (k % PARTS) sum = rounded(f->job.dtype, sum + chain(f, y, x, PARTS * part, k));
    return sum;
}

/* Returns whether the product is divided. */
static bool check(const fixture *f)
{
    const df_matmul_job *const j = &f->job;
    df_matmul_job fast = *j;
    df_matmul_deep d;
    fast.fast = true;
    const bool is_deep = df_matmul_divide_deep(&fast, NULL, &d);
    void *const strict = run(f, 1, false), *c[MOST_THREADS + 1];
    for (uint32_t n = 1; n <= MOST_THREADS; n++) c[n] = run(f, n, true);
    for (int64_t i = 0; i < 60; i++) {
        const int64_t y = drawn(0, j->m - 1), x = drawn(0, j->n - 1), at = y * j->c_row + x;
        cr_assert_eq(get(j->dtype, strict, at), chain(f, y, x, 0, j->k));
        for (uint32_t n = 1; n <= MOST_THREADS && is_deep; n++)
            cr_assert_eq(get(j->dtype, c[n], at), sum_of_parts(f, y, x), "%u threads: %lld %lld", n,
                         (long long)y, (long long)x);
    }
    const size_t size = deft_dtype_size(j->dtype), row = (size_t)j->n * size;
    for (uint32_t n = 2; n <= MOST_THREADS && is_deep; n++)
        for (int64_t y = 0; y < j->m; y++) {
            const size_t at = (size_t)(y * j->c_row) * size;
            cr_assert_eq(memcmp((char *)c[1] + at, (char *)c[n] + at, row), 0, "%u threads", n);
        }
    free(strict);
    for (uint32_t n = 1; n <= MOST_THREADS; n++) free(c[n]);
    free(f->a);
    free(f->b);
    return is_deep;
}

Test(deep, elements_are_sums_of_four_chains)
{
    int n_deep = 0, i = 0;
    state = 5;
    for (; i < 12 || (i < 300 && test_time_left(1)); i++) {
        fixture f;
        draw_product(&f, i % 4 == 0);
        n_deep += check(&f);
    }
    printf("%d products, %d of them in parts\n", i, n_deep);
    cr_assert_gt(n_deep, 0);
}

Test(deep, other_products_are_not_divided)
{
    df_matmul_deep d;
    const df_matmul_job good = { .dtype = DEFT_F32,
                                 .m = 1,
                                 .n = 1024,
                                 .k = 1024,
                                 .n_batch = 1,
                                 .a_col = 1,
                                 .b_row = 1024,
                                 .b_col = 1,
                                 .fast = true };
    cr_assert(df_matmul_divide_deep(&good, NULL, &d));
    cr_assert_eq(d.parts.n_batch, PARTS);
    df_matmul_job j = good;
    j.fast = false;
    cr_assert_not(df_matmul_divide_deep(&j, NULL, &d), "strict");
    j = good;
    j.m = 9;
    cr_assert_not(df_matmul_divide_deep(&j, NULL, &d), "many rows");
    j = good;
    j.n_batch = 2;
    cr_assert_not(df_matmul_divide_deep(&j, NULL, &d), "a batch");
    j = good;
    j.b_row = 1, j.b_col = 1024;
    cr_assert_not(df_matmul_divide_deep(&j, NULL, &d), "a transposed B");
    j = good;
    j.packed = "";
    cr_assert_not(df_matmul_divide_deep(&j, NULL, &d), "packed weights");
}
