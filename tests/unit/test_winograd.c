/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/winograd/winograd.h: random convolutions and gradients of their weights in fast mode,
 * against the same product in strict mode. Results are near it. They depend neither on the number
 * of threads nor on the micro-kernel. With an infinity or a NaN they are the strict ones: all
 * gradients of the weights, and every row of tiles of a filter that has one. The same holds where
 * the products are products of thirds, on machines with tiles of AMX. There, tiles and filters with
 * huge numbers have the strict results, too.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/matmul.h"
#include "runtime/matmul/windows.h"
#include "runtime/winograd/winograd.h"
#include "runtime/winograd/winograd_parts.h"
#include "support/budget.h"
#include "support/stand_in.h"

enum { MOST_THREADS = 3, TAPS = 9 };

static df_pool *pools[MOST_THREADS + 1];
static uint64_t state;

static int64_t drawn(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

static float value(void)
{
    return (float)drawn(-1000, 1000) / 512;
}

static float *numbers(int64_t n)
{
    float *const p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) p[i] = value();
    return p;
}

/* A convolution, and where its operands lie. */
typedef struct convolution {
    df_matmul_job job;
    df_images images;
    int64_t tap[2 * TAPS], n_images, padding[2];
    float *image, *weights;
    int64_t n_results;
} convolution;

/* Makes the convolution of m filters, k weights each, with n results the gradient of its weights.
 * A is then the gradient of the results. */
static void make_gradient(convolution *c, int64_t m, int64_t k, int64_t n)
{
    c->images.is_transposed = true;
    c->job.k = n;
    c->job.n = k;
    c->job.a_row = n + drawn(0, 3);
    c->job.a_col = 1;
    c->job.c_row = k + drawn(0, 3);
    c->job.c_batch[0] = m * c->job.c_row;
}

/* for_thirds: with enough channels and filters for thirds. */
static void draw_convolution(convolution *c, bool for_thirds)
{
    *c = (convolution){ .n_images = drawn(1, 3) };
    const bool is_turned = drawn(0, 1), has_order = drawn(0, 2) > 0;
    const int64_t groups = drawn(0, 2) ? 1 : drawn(2, 3),
                  channels = for_thirds ? drawn(32, drawn(0, 1) ? 64 : 150) : drawn(1, 20);
    const int64_t m = for_thirds ? drawn(32, drawn(0, 1) ? 64 : 500) : drawn(5, 70),
                  before = drawn(0, 3), spare = drawn(0, 2);
    df_images *const i = &c->images;
    *i = (df_images){ .n_taps = TAPS, .step = { 1, 1 }, .column = 1 };
    for (int x = 0; x < 2; x++) {
        i->extent[x] = drawn(for_thirds ? 8 : 3, drawn(0, 3) ? 12 : 40);
        c->padding[x] = drawn(0, 2);
        i->out[x] = i->extent[x] + 2 * c->padding[x] - 2 - (i->extent[x] > 6 ? drawn(0, 1) : 0);
    }
    /* Images [n, groups * channels, rows, columns], or the channels outermost. */
    i->row = i->extent[1] + spare;
    const int64_t plane = i->row * i->extent[0];
    i->channel = is_turned ? plane * c->n_images : plane;
    i->image = is_turned ? plane : plane * channels * groups;
    for (int64_t t = 0; t < TAPS; t++) {
        const int64_t of = has_order ? t : TAPS - 1 - t; /* as the gradient of an image has them */
        c->tap[2 * t] = of / 3 - c->padding[0];
        c->tap[2 * t + 1] = of % 3 - c->padding[1];
    }
    i->tap = c->tap;
    const int64_t k = channels * TAPS, n = c->n_images * i->out[0] * i->out[1];
    c->job = (df_matmul_job){ .dtype = DEFT_F32,
                              .m = m,
                              .n = n,
                              .k = k,
                              .n_batch = groups,
                              .batch_rank = 1,
                              .batch_extent = { groups },
                              .a_batch = { m * k },
                              .c_batch = { m * (n + before) },
                              .a_row = drawn(0, 1) ? k : 1,
                              .c_row = n + before,
                              .images = i };
    c->job.a_col = c->job.a_row == 1 ? m : 1;
    c->image = numbers(plane * channels * groups * c->n_images);
    if (groups == 1 && !for_thirds && drawn(0, 1)) make_gradient(c, m, k, n);
    c->weights = numbers(groups * m * df_max_i64(k, n + 3));
    c->job.a = (const char *)c->weights;
    c->job.b = (const char *)c->image;
    c->n_results = groups * m * c->job.n;
}

/* ---- runs ---- */

typedef struct sink {
    const df_matmul_job *job;
    float *to;
} sink;

static void collect(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                    int64_t o1, int64_t i0, int64_t i1)
{
    const sink *const s = user;
    (void)thread;
    for (int64_t o = o0; o < o1; o++)
        for (int64_t i = i0; i < i1; i++)
            s->to[o * s->job->n + i] += ((const float *)(const void *)tile)[(o - o0) * ld + i - i0];
}

typedef enum numerics { STRICT, FAST, THIRDS } numerics;

/* Returns the results as [groups, m, n]. With `stores`, they are in C itself; else the epilogue
 * adds them to zeros. */
static float *results(const convolution *c, numerics how, bool stores, const df_gemm_kernel *g,
                      uint32_t n_threads)
{
    df_matmul_job job = c->job;
    float *const to = calloc((size_t)c->n_results, sizeof *to);
    float *const stored = stores ? numbers(job.n_batch * job.m * job.c_row) : NULL;
    sink s = { &c->job, to };
    job.fast = how != STRICT;
    job.in_thirds = how == THIRDS;
    job.c = (char *)stored;
    job.epilogue = stores ? NULL : collect;
    job.user = &s;
    cr_assert_eq(df_winograd_wants(&job), job.fast);
    void *const work = malloc(df_matmul_work_size(&job, g, n_threads) + 1);
    df_matmul_run(&job, g, NULL, pools[n_threads], work);
    for (int64_t i = 0; i < job.n_batch * job.m && stores; i++)
        memcpy(to + i * job.n, stored + i * job.c_row, (size_t)job.n * sizeof *to);
    free(work);
    free(stored);
    return to;
}

STAND_IN(kernel_8x48, float, chains_f32, 8, 48)
STAND_IN(kernel_4x8, float, chains_f32, 4, 8) /* its panels are narrower than a vector of tiles */

static const df_gemm_kernel kernels[] = { { kernel_8x48, 8, 48, 0 }, { kernel_4x8, 4, 8, 0 } };

/* Checks that result x is near, for sums of n terms of at most 4 each. The transformations add up
 * to 16 elements each. */
static void check_near(const float *is, const float *wanted, int64_t x, int64_t n)
{
    const double most = 4.0 * (double)n * 0x1p-24 * 16;
    cr_assert_lt(fabs((double)is[x] - (double)wanted[x]), most, "%lld: %g, not %g", (long long)x,
                 (double)is[x], (double)wanted[x]);
}

static bool are_equal(const float *a, const float *b)
{
    return *a == *b || (isnan(*a) && isnan(*b));
}

static void check_gradient(const convolution *c, const float *fast, const float *strict)
{
    bool is_special = false;
    for (int64_t x = 0; x < c->n_results; x++) is_special |= !isfinite(strict[x]);
    for (int64_t x = 0; x < c->n_results; x++)
        if (is_special)
            cr_assert(are_equal(&fast[x], &strict[x]));
        else
            check_near(fast, strict, x, c->job.k);
}

/* Checks the results in fast mode against the strict ones. */
static void check(const convolution *c, const float *fast, const float *strict)
{
    if (c->images.is_transposed) {
        check_gradient(c, fast, strict);
        return;
    }
    const df_images *const m = &c->images;
    const int64_t columns = m->out[1], n = c->job.n;
    bool *const is_special = calloc((size_t)(n / columns), 1);  /* by row of results */
    for (int64_t first = 0; first < c->n_results; first += n) { /* of a filter */
        for (int64_t row = 0; row < n / columns; row++) {
            is_special[row] = false;
            for (int64_t i = 0; i < columns; i++)
                is_special[row] |= !isfinite(strict[first + row * columns + i]);
        }
        for (int64_t x = 0; x < n; x++) {
            /* The other row of the same tiles. */
            const int64_t row = x / columns, y = row % m->out[0];
            const bool has_other = y % 2 || y + 1 < m->out[0];
            const bool special = is_special[row] || (has_other && is_special[row - y + (y ^ 1)]);
            if (special)
                cr_assert(memcmp(fast + first + x, strict + first + x, sizeof *fast) == 0);
            else
                check_near(fast, strict, first + x, c->job.k);
        }
    }
    free(is_special);
}

static void put_specials(const convolution *c)
{
    static const float special[] = { INFINITY, -INFINITY, NAN };
    const df_images *const m = &c->images;
    const int64_t n_channels = (m->is_transposed ? c->job.n : c->job.k) / TAPS;
    for (int64_t i = drawn(0, 3); i > 0; i--)
        c->image[drawn(0, c->n_images - 1) * m->image + drawn(0, n_channels - 1) * m->channel +
                 drawn(0, m->extent[0] - 1) * m->row + drawn(0, m->extent[1] - 1)] =
            special[drawn(0, 2)];
    if (drawn(0, 9) == 0) c->weights[drawn(0, c->job.m * c->job.k - 1)] = special[drawn(0, 2)];
}

/* Numbers that are no sums of thirds. */
static void put_huge(const convolution *c)
{
    const df_images *const m = &c->images;
    for (int64_t i = drawn(0, 3); i > 0; i--)
        c->image[drawn(0, c->n_images - 1) * m->image + drawn(0, c->job.k / TAPS - 1) * m->channel +
                 drawn(0, m->extent[0] - 1) * m->row + drawn(0, m->extent[1] - 1)] =
            ldexpf(drawn(0, 1) ? -1 : 1, (int)drawn(26, 40));
    if (drawn(0, 2) == 0) c->weights[drawn(0, c->job.m * c->job.k - 1)] = 0x1p30f;
}

static void open_pools(void)
{
    for (uint32_t i = 1; i <= MOST_THREADS; i++)
        cr_assert_eq(df_pool_create(NULL, &df_mem_system, i, &pools[i]), DEFT_OK);
}

Test(winograd, results_are_near_and_special_values_those_of_the_product)
{
    if (!df_winograd_pick()) cr_skip_test("no code for this machine");
    open_pools();
    const int n = (int)test_size(4000, 100);
    for (int i = 0; i < n; i++) {
        convolution c;
        state = (uint64_t)i;
        draw_convolution(&c, false);
        if (i % 3 == 0) put_specials(&c);
        float *const strict = results(&c, STRICT, true, NULL, 1);
        float *const first = results(&c, FAST, true, NULL, 1);
        check(&c, first, strict);
        for (uint32_t way = 0; way < 4; way++) {
            float *const other = results(&c, FAST, way < 2, way == 3 ? NULL : &kernels[way % 2],
                                         1 + way % MOST_THREADS);
            for (int64_t x = 0; x < c.n_results; x++) /* an epilogue adds to 0: -0 becomes +0 */
                cr_assert(are_equal(&first[x], &other[x]), "seed %d, way %u: %g, not %g", i, way,
                          (double)other[x], (double)first[x]);
            free(other);
        }
        free(strict);
        free(first);
        free(c.image);
        free(c.weights);
    }
    for (uint32_t i = 1; i <= MOST_THREADS; i++) df_pool_destroy(&pools[i]);
}

Test(winograd, results_by_thirds_are_near_and_do_not_depend_on_the_threads)
{
    if (!df_winograd_pick() || !df_matmul_enable_tiles()) cr_skip_test("no tiles on this machine");
    open_pools();
    const int n = (int)test_size(400, 30);
    int n_computed = 0;
    for (int i = 0; i < n; i++) {
        convolution c;
        state = (uint64_t)i;
        draw_convolution(&c, true);
        if (i % 3 == 0) put_specials(&c);
        if (i % 3 == 1) put_huge(&c);
        df_matmul_job job = c.job;
        job.fast = true;
        if (df_matmul_gains_by_thirds(&job)) {
            n_computed++;
            float *const strict = results(&c, STRICT, true, NULL, 1);
            float *const first = results(&c, THIRDS, true, NULL, 1);
            check(&c, first, strict);
            for (uint32_t way = 0; way < 4; way++) {
                float *const other =
                    results(&c, THIRDS, way < 2, &kernels[way % 2], 1 + way % MOST_THREADS);
                for (int64_t x = 0; x < c.n_results; x++)
                    cr_assert(are_equal(&first[x], &other[x]), "seed %d, way %u: %g, not %g", i,
                              way, (double)other[x], (double)first[x]);
                free(other);
            }
            free(strict);
            free(first);
        }
        free(c.image);
        free(c.weights);
    }
    cr_assert_gt(n_computed, n / 8);
    for (uint32_t i = 1; i <= MOST_THREADS; i++) df_pool_destroy(&pools[i]);
}
