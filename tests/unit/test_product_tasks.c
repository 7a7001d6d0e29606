/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/matmul/matmul.c: how the columns of a product are divided among threads. The first and
 * the second half of the tasks, which are the shares of two threads, have nearly equally many
 * columns. The epilogue shows the tasks. Products here are so small that each task calls it once.
 * Also when threads share small products (small.c), which must show in no bit.
 */
#include <criterion/criterion.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/matmul.h"
#include "runtime/matmul/small.h"
#include "runtime/matmul/windows.h"

enum { TAPS = 9, CHANNELS = 8, ROWS = 96, MR = 8, NR = 48, MOST_TASKS = 256 };

typedef struct span {
    int64_t begin, end;
} span;

typedef struct tasks {
    _Atomic uint32_t n;
    span at[MOST_TASKS];
} tasks;

static void note_task(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                      int64_t o1, int64_t i0, int64_t i1)
{
    tasks *const t = user;
    (void)thread, (void)tile, (void)ld;
    cr_assert(o0 == 0 && o1 == ROWS);
    const uint32_t i = atomic_fetch_add(&t->n, 1);
    cr_assert_lt(i, MOST_TASKS);
    t->at[i] = (span){ i0, i1 };
}

/* Values do not matter here. */
static void multiply_nothing(int64_t k, const void *a, const void *b, void *c, int64_t ldc,
                             int64_t m, int64_t n, int64_t first, const void *next)
{
    (void)k, (void)a, (void)b, (void)c, (void)ldc, (void)m, (void)n, (void)first, (void)next;
}

/* A convolution of n_images images of side x side elements, with windows of 3 x 3 elements. */
static void divide(df_pool *pool, int64_t n_images, int64_t side, tasks *t)
{
    const df_gemm_kernel kernel = { multiply_nothing, MR, NR, 0 };
    const int64_t plane = side * side, k = CHANNELS * TAPS;
    int64_t tap[2 * TAPS];
    for (int64_t i = 0; i < TAPS; i++) {
        tap[2 * i] = i / 3 - 1;
        tap[2 * i + 1] = i % 3 - 1;
    }
    df_images images = { .tap = tap,
                         .n_taps = TAPS,
                         .step = { 1, 1 },
                         .extent = { side, side },
                         .out = { side, side },
                         .channel = plane,
                         .image = plane * CHANNELS,
                         .row = side,
                         .column = 1 };
    float *const a = calloc((size_t)(ROWS * k), sizeof *a);
    float *const b = calloc((size_t)(n_images * CHANNELS * plane), sizeof *b);
    df_matmul_job job = { .dtype = DEFT_F32,
                          .m = ROWS,
                          .n = n_images * plane,
                          .k = k,
                          .n_batch = 1,
                          .a = (const char *)a,
                          .b = (const char *)b,
                          .a_row = k,
                          .a_col = 1,
                          .images = &images,
                          .epilogue = note_task,
                          .user = t };
    void *const work = malloc(df_matmul_work_size(&job, &kernel, df_pool_threads(pool)) + 1);
    df_matmul_run(&job, &kernel, NULL, pool, work);
    free(work);
    free(a);
    free(b);
}

static int by_begin(const void *a, const void *b)
{
    const span *const x = a, *const y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

Test(product_tasks, two_threads_have_nearly_equally_many_columns)
{
    df_pool *pool = NULL;
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, 2, &pool), DEFT_OK);
    for (int64_t side = 20; side <= 36; side++) {
        tasks t = { 0 };
        divide(pool, 2, side, &t);
        const int64_t n = 2 * side * side;
        cr_assert(t.n > 1 && t.n % 2 == 0, "side %lld: %u tasks", (long long)side, t.n);
        qsort(t.at, t.n, sizeof *t.at, by_begin);
        for (uint32_t i = 0; i < t.n; i++)
            cr_assert_eq(t.at[i].end, i + 1 < t.n ? t.at[i + 1].begin : n);
        cr_assert_eq(t.at[0].begin, 0);
        const int64_t half = t.at[t.n / 2].begin;
        cr_assert_leq(llabs(2 * half - n), 2 * NR, "side %lld: %lld of %lld columns",
                      (long long)side, (long long)half, (long long)n);
    }
    df_pool_destroy(&pool);
}

/* ---- small products ---- */

static _Atomic uint64_t n_readings, clock_ns, clock_step;

/* Goes on by clock_step each time it is read, and counts that. */
static uint64_t stepping_clock(void)
{
    atomic_fetch_add(&n_readings, 1);
    return atomic_fetch_add(&clock_ns, atomic_load(&clock_step));
}

static void wait_for_both(void *user, uint32_t i, uint32_t thread)
{
    _Atomic uint32_t *const n = user;
    (void)i, (void)thread;
    atomic_fetch_add(n, 1);
    while (atomic_load(n) < 2) sched_yield();
}

/* Runs regions until the pool has measured that workers take so long to start. */
static void set_start(df_pool *pool, uint32_t ns)
{
    atomic_store(&clock_step, ns);
    for (int i = 0; i < 20000 && df_pool_start_ns(pool) != ns; i++) {
        _Atomic uint32_t n = 0;
        df_pool_run(pool, 2, wait_for_both, &n);
    }
    cr_assert_eq(df_pool_start_ns(pool), ns);
}

enum { SIDE = 64 };

static void multiply_small(df_pool *pool, const float *a, const float *b, float *c)
{
    const df_matmul_job job = { .dtype = DEFT_F32,
                                .m = SIDE,
                                .n = SIDE,
                                .k = SIDE,
                                .n_batch = 1,
                                .a = (const char *)a,
                                .b = (const char *)b,
                                .c = (char *)c,
                                .c_row = SIDE,
                                .a_row = SIDE,
                                .a_col = 1,
                                .b_row = SIDE,
                                .b_col = 1 };
    df_matmul_run(&job, NULL, NULL, pool, NULL);
}

/* The end of the last thread, in the time of one row or column. */
static int64_t end_of(int64_t extent, int64_t parts, int64_t head, int64_t part)
{
    return df_max_i64(extent - (parts - 1) * part, part + head);
}

Test(product_tasks, parts_of_small_products_end_as_soon_as_any)
{
    for (int64_t extent = 1; extent <= 300; extent += extent < 70 ? 1 : 7)
        for (int64_t unit = 1; unit <= 16; unit += 5)
            for (int64_t parts = 2; parts <= 9; parts++)
                for (int64_t head = 0; head <= extent / 2; head += 1 + extent / 9) {
                    const int64_t part = df_matmul_part_of_worker(extent, unit, parts, head);
                    int64_t least = end_of(extent, parts, head, 0);
                    for (int64_t other = 0; (parts - 1) * other < extent; other += unit)
                        least = df_min_i64(least, end_of(extent, parts, head, other));
                    cr_assert(part >= 0 && part % unit == 0 && (parts - 1) * part < extent);
                    cr_assert_eq(part > 0 ? end_of(extent, parts, head, part) : least, least,
                                 "%lld in %lld parts: %lld", (long long)extent, (long long)parts,
                                 (long long)part);
                }
}

/* The pool reads its clock only in regions. It times each region while no start delay is known. */
Test(product_tasks, small_products_are_divided_by_near_threads_alone)
{
    static float a[SIDE * SIDE], b[SIDE * SIDE], want[SIDE * SIDE], c[SIDE * SIDE];
    df_pool *pool = NULL, *alone = NULL;
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, 2, &pool), DEFT_OK);
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, 1, &alone), DEFT_OK);
    for (int i = 0; i < SIDE * SIDE; i++) {
        a[i] = (float)(i % 17) * 0.1f - 0.7f;
        b[i] = (float)(i % 13) * 0.3f - 1.1f;
    }
    multiply_small(alone, a, b, want);
    df_pool_use_clock(pool, stepping_clock);
    set_start(pool, 100000);
    const uint64_t before = atomic_load(&n_readings);
    for (int i = 0; i < 1000; i++) {
        memset(c, 0, sizeof c);
        multiply_small(pool, a, b, c);
        cr_assert_eq(memcmp(c, want, sizeof c), 0);
    }
    cr_expect_eq(atomic_load(&n_readings), before, "a region was opened for far threads");
    /* After a while the pool tries again, and then finds that the threads are near. */
    atomic_store(&clock_step, 200);
    for (int i = 0; i < 100000 && df_pool_start_ns(pool) != 200; i++) {
        memset(c, 0, sizeof c);
        multiply_small(pool, a, b, c);
        cr_assert_eq(memcmp(c, want, sizeof c), 0);
    }
    cr_expect_gt(atomic_load(&n_readings), before, "near threads share nothing");
    df_pool_destroy(&pool);
    df_pool_destroy(&alone);
}
