/* SPDX-License-Identifier: Apache-2.0
 *
 * Results that are written around the caches, and reductions whose loads prefetch, through the
 * public API: all of them, because the limit is one byte. Values are compared with C. A hook in the
 * device counts the segments that do so.
 *
 * Why this file is long: each kind of kernel is run at many extents, beside its own loop in C.
 */
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "lazy/core/context.h"

static rig r;
static uint64_t n_streamed, n_fetched;
static deft_status (*real_run)(df_device *, df_diag *, const df_plan *, const df_trace *,
                               const int64_t *, df_launch_io *, df_run_stats *);

static deft_status counted(df_device *dev, df_diag *d, const df_plan *p, const df_trace *t,
                           const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    const deft_status st = real_run(dev, d, p, t, slots, io, stats);
    n_streamed += stats->streamed_segments;
    n_fetched += stats->fetched_segments;
    return st;
}

/* limit: the bytes from which launches stream. cache: those of the last cache. One that is larger
 * than 32 MiB for each processor is shared with others. */
static void open_rig(const char *limit, const char *cache)
{
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 2, .tier = DEFT_TIER_FULL, .variant_launches = 2
    };
    setenv("DEFT_STREAM_BYTES", limit, 1);
    setenv("DEFT_LAST_CACHE", cache, 1);
    rig_open(&r, &o, NULL);
    real_run = r.rt->dev->run;
    r.rt->dev->run = counted;
}

#define OWN_CACHE "33554432"
#define SHARED_CACHE "1099511627776"

static void set_up(void)
{
    open_rig("1", OWN_CACHE);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(stream, .init = set_up, .fini = tear_down);

static uint64_t streamed(void)
{
    const uint64_t n = n_streamed;
    n_streamed = 0;
    return n;
}

static float *numbers(int64_t n, int seed)
{
    float *const v = malloc(sizeof *v * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 37 + seed) % 1001) / 8;
    return v;
}

static deft_tensor *range(int64_t n, double first)
{
    deft_tensor *t = deft_keep(deft_arange(r.cx, first, first + (double)n, 1, DEFT_F32));
    OK(&r, deft_eval(&t, 1));
    return t;
}

Test(stream, any_length_and_any_start)
{
    static const int64_t lengths[] = { 1,  2,  15, 16,  17,  31,   33,   63,
                                       64, 65, 79, 127, 128, 1000, 4097, 70001 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int64_t skip = 0; skip < 18; skip += skip < 3 ? 1 : 7) {
            const int64_t n = lengths[k];
            float *const v = numbers(n + skip, 5), *const want = numbers(n, 0);
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *all = rig_vector(&r, n + skip, v);
            deft_tensor *const x = deft_slice(all, DEFT_R(skip, n + skip));
            deft_tensor *const y = deft_sub(deft_mul(x, 3), x);
            for (int64_t i = 0; i < n; i++) want[i] = v[i + skip] * 3 - v[i + skip];
            rig_expect(&r, y, n, want);
            cr_expect_eq(streamed(), 1, "%lld", (long long)n);
            deft_drop(&all);
            OK(&r, deft_scope_end(scope));
            free(v);
            free(want);
        }
}

/* x y - x, each result rounded to bf16: two elements share a word of such vectors. */
Test(stream, halves_of_any_length_and_any_start)
{
    static const int64_t lengths[] = { 1, 16, 31, 32, 33, 63, 64, 65, 95, 128, 1000, 70001 };
    enum { MOST = 70100 };
    static uint16_t v[MOST], w[MOST], want[MOST], got[MOST];
    for (uint32_t i = 0; i < MOST; i++) {
        v[i] = (uint16_t)(i * 40503u % 0x7f80u);
        w[i] = (uint16_t)(0x3f00u + i * 37u % 509u);
    }
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int64_t skip = 0; skip < 40; skip += skip < 2 ? 1 : 11) {
            const int64_t n = lengths[k];
            const size_t size = (size_t)n * sizeof *v;
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *all =
                deft_from(r.cx, DEFT_SHAPE(n + skip), DEFT_BF16, v, (size_t)(n + skip) * sizeof *v);
            deft_tensor *const x = deft_slice(all, DEFT_R(skip, n + skip));
            deft_tensor *const y = deft_from(r.cx, DEFT_SHAPE(n), DEFT_BF16, w, size);
            for (int64_t i = 0; i < n; i++) {
                const float a = df_f32_of_bf16(v[i + skip]);
                const uint16_t p = df_bf16_of_f32(a * df_f32_of_bf16(w[i]));
                want[i] = df_bf16_of_f32(df_f32_of_bf16(p) - a);
            }
            OK(&r, deft_read(deft_sub(deft_mul(x, y), x), DEFT_BF16, got, size));
            cr_expect(memcmp(got, want, size) == 0, "%lld from %lld", (long long)n,
                      (long long)skip);
            cr_expect_eq(streamed(), 1, "%lld", (long long)n);
            OK(&r, deft_scope_end(scope));
        }
}

static double *parts(int64_t n, int seed)
{
    double *const v = malloc(sizeof *v * (size_t)(2 * n + 1));
    for (int64_t i = 0; i < 2 * n; i++) v[i] = (double)((i * 37 + seed) % 1001) / 8;
    return v;
}

/* x y + x in c128, and the same rounded to c64, from element `skip` of x. */
static void expect_complex(int64_t n, int64_t skip)
{
    double *const v = parts(n + skip, 3), *const w = parts(n, 4), *const want = parts(n, 0);
    const double *const from = v + 2 * skip;
    float *const narrow = malloc(sizeof *narrow * (size_t)(2 * n));
    const size_t size = sizeof *v * (size_t)(2 * n);
    const deft_scope scope = deft_scope_begin(r.cx);
    deft_tensor *const all =
        deft_from(r.cx, DEFT_SHAPE(n + skip), DEFT_C128, v, sizeof *v * (size_t)(2 * (n + skip)));
    deft_tensor *const x = deft_slice(all, DEFT_R(skip, n + skip));
    deft_tensor *const y = deft_from(r.cx, DEFT_SHAPE(n), DEFT_C128, w, size);
    for (int64_t i = 0; i < 2 * n; i += 2) {
        want[i] = from[i] * w[i] - from[i + 1] * w[i + 1] + from[i];
        want[i + 1] = from[i] * w[i + 1] + from[i + 1] * w[i] + from[i + 1];
    }
    streamed();
    deft_tensor *const z = deft_add(deft_mul(x, y), x);
    OK(&r, deft_read(deft_cast(z, DEFT_C64), DEFT_C64, narrow, size / 2));
    for (int64_t i = 0; i < 2 * n; i++)
        cr_assert_eq(narrow[i], (float)want[i], "%lld from %lld: %lld", (long long)n,
                     (long long)skip, (long long)i);
    double *const got = parts(n, 1);
    OK(&r, deft_read(z, DEFT_C128, got, size));
    cr_expect(memcmp(got, want, size) == 0, "%lld from %lld", (long long)n, (long long)skip);
    cr_expect_eq(streamed(), 2, "%lld from %lld", (long long)n, (long long)skip);
    OK(&r, deft_scope_end(scope));
    free(v), free(w), free(want), free(got), free(narrow);
}

Test(stream, complex_numbers_of_any_length_and_any_start)
{
    static const int64_t lengths[] = { 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 4097 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int64_t skip = 0; skip < 10; skip++) expect_complex(lengths[k], skip);
}

/* Memory of the caller, and rows whose ends other rows follow. Where the parts of one number may
 * belong to two vectors, results go through the caches. */
Test(stream, complex_numbers_at_any_address_of_the_caller)
{
    enum { ROWS = 3, WIDE = 70, ROOM = 2 * ROWS * WIDE };
    static float memory[ROOM + 64], v[ROOM], want[ROOM];
    for (int i = 0; i < ROOM; i++) v[i] = (float)(i * 7 % 101);
    for (int at = 0; at < 20; at++)
        for (int64_t n = 1; n < WIDE; n += 6) {
            float *const to = memory + at;
            const size_t size = sizeof *to * 2 * ROWS * (size_t)n;
            const deft_scope step = deft_step_begin(r.cx);
            deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(ROWS, WIDE), DEFT_C64, v, sizeof v);
            deft_tensor *const y =
                deft_wrap_mut(r.cx, DEFT_SHAPE(ROWS, n), DEFT_C64, to, size, NULL);
            memset(memory, 0, sizeof memory);
            memset(want, 0, sizeof want);
            for (int64_t i = 0; i < 2 * ROWS * n; i++) {
                const float a = v[i / (2 * n) * 2 * WIDE + i % (2 * n)];
                want[i] = a + a;
            }
            streamed();
            deft_tensor *const part = deft_slice(x, DEFT_FULL, DEFT_R(0, n));
            deft_assign(y, deft_add(part, part));
            OK(&r, deft_step_end(step));
            cr_expect_eq(streamed(), (uintptr_t)to % 8 == 0, "%d, %lld", at, (long long)n);
            cr_expect(memcmp(to, want, sizeof want) == 0, "%d, %lld", at, (long long)n);
        }
}

/* Only where the last cache is shared with other processors. */
Test(stream, results_of_no_operand)
{
    for (int shared = 0; shared < 2; shared++) {
        rig_close(&r);
        open_rig("1", shared ? SHARED_CACHE : OWN_CACHE);
        for (int64_t n = 1; n < 300; n += n < 70 ? 1 : 23) {
            float want[300], first = 3; /* read: 4 bytes */
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *one = rig_vector(&r, 1, &first);
            for (int64_t i = 0; i < n; i++) want[i] = 9;
            streamed();
            rig_expect(&r, deft_mul(deft_expand(one, DEFT_SHAPE(n)), 3), n, want);
            cr_expect_eq(streamed(), n <= 2 || shared, "%lld", (long long)n);
            deft_drop(&one);
            OK(&r, deft_scope_end(scope));
        }
    }
}

/* Rows that begin anywhere in a line, and rows that are one part of wider ones. */
Test(stream, rows_of_a_part)
{
    enum { ROWS = 9, WIDE = 130 };
    float *const v = numbers(ROWS * WIDE, 1), *const w = numbers(ROWS * WIDE, 2);
    for (int64_t from = 0; from < 20; from += 3)
        for (int64_t n = 1; n <= WIDE - from; n = n * 3 + 1) {
            deft_tensor *a = rig_tensor(&r, DEFT_SHAPE(ROWS, WIDE), v);
            deft_tensor *b = rig_tensor(&r, DEFT_SHAPE(ROWS, WIDE), w);
            float want[ROWS * WIDE];
            memcpy(want, v, sizeof want);
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = from; j < from + n; j++) want[i * WIDE + j] = w[i * WIDE + j] + 1;
            const deft_scope step = deft_step_begin(r.cx);
            deft_tensor *const part = deft_slice(a, DEFT_FULL, DEFT_R(from, from + n));
            deft_tensor *const other = deft_slice(b, DEFT_FULL, DEFT_R(from, from + n));
            deft_assign(part, deft_add(other, 1));
            OK(&r, deft_step_end(step));
            rig_expect(&r, a, ROWS * WIDE, want);
            deft_drop(&a);
            deft_drop(&b);
        }
    cr_expect_gt(streamed(), 0);
    free(v);
    free(w);
}

/* Memory of the caller, in which results of two dtypes begin anywhere. The wider one is stored
 * first. */
Test(stream, any_address_of_the_caller)
{
    enum { N = 1000, ROOM = 256, PAGE = 4096 };
    char *const memory = aligned_alloc(PAGE, 16 * PAGE);
    float *const v = numbers(N, 3);
    for (int at = 0; at < ROOM; at += at < 8 ? 1 : 24)
        for (int other = 0; other < ROOM; other += 32) {
            char *const narrow = memory + at, *const wide = memory + 8 * PAGE + other;
            deft_tensor *x = rig_vector(&r, N, v), *z = rig_vector(&r, N, v);
            const deft_scope step = deft_step_begin(r.cx);
            deft_tensor *const a =
                deft_wrap_mut(r.cx, DEFT_SHAPE(N), DEFT_F32, narrow, N * 4, NULL);
            deft_tensor *const b = deft_wrap_mut(r.cx, DEFT_SHAPE(N), DEFT_F64, wide, N * 8, NULL);
            deft_assign(b, deft_cast(x, DEFT_F64));
            deft_assign(a, deft_add(deft_mul(x, 3), z));
            OK(&r, deft_step_end(step));
            for (size_t i = 0; i < N; i++) {
                float f;
                double d;
                memcpy(&f, narrow + i * sizeof f, sizeof f);
                memcpy(&d, wide + i * sizeof d, sizeof d);
                cr_assert(f == v[i] * 4 && d == (double)v[i], "%d, %d, %zu", at, other, i);
            }
            deft_drop(&x);
            deft_drop(&z);
        }
    cr_expect_gt(streamed(), 0);
    free(v);
    free(memory);
}

/* Vectors of two dtypes, of which the wider is stored first, at any two addresses of deft's own. */
Test(stream, results_of_two_dtypes_and_any_length)
{
    enum { MOST = 300 };
    float *const v = numbers(MOST, 7);
    deft_tensor *kept[2 * MOST];
    for (int n = 20; n < MOST; n++) {
        deft_tensor *x = rig_vector(&r, n, v), *z = rig_vector(&r, n, v);
        deft_tensor **const out = &kept[2 * n];
        const deft_scope scope = deft_scope_begin(r.cx);
        out[0] = deft_keep(deft_cast(x, DEFT_F64));
        out[1] = deft_keep(deft_add(deft_mul(x, 3), z));
        OK(&r, deft_eval(out, 2));
        double d[MOST];
        float f[MOST];
        OK(&r, deft_read(out[0], DEFT_F64, d, sizeof *d * (size_t)n));
        OK(&r, deft_read(out[1], DEFT_F32, f, sizeof *f * (size_t)n));
        for (int i = 0; i < n; i++)
            cr_assert(d[i] == (double)v[i] && f[i] == v[i] * 4, "%d, %d", n, i);
        OK(&r, deft_scope_end(scope));
        deft_drop(&x);
        deft_drop(&z);
    }
    for (int i = 40; i < 2 * MOST; i++) deft_drop(&kept[i]);
    cr_expect_gt(streamed(), 0);
    free(v);
}

/* Blocks of a transposed operand, of which each row ends at a line of its own. */
Test(stream, transposed_operands_of_any_extents)
{
    static const int64_t extents[] = { 1, 15, 16, 17, 127, 128, 129, 143, 144, 150, 271, 300 };
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        for (size_t j = 0; j < sizeof extents / sizeof *extents; j++) {
            const int64_t rows = extents[i], n = extents[j];
            float *const v = numbers(rows * n, 1), *const want = numbers(rows * n, 0);
            deft_tensor *x = rig_tensor(&r, DEFT_SHAPE(n, rows), v);
            for (int64_t k = 0; k < rows * n; k++) want[k] = v[k % n * rows + k / n] / 2;
            streamed();
            const deft_scope scope = deft_scope_begin(r.cx);
            rig_expect(&r, deft_mul(deft_t(x), 0.5), rows * n, want);
            cr_expect_eq(streamed(), 1, "%lld x %lld", (long long)rows, (long long)n);
            OK(&r, deft_scope_end(scope));
            deft_drop(&x);
            free(v);
            free(want);
        }
}

/* x' + 2 y in squares of registers, which store around the caches where all rows begin at a line.
 * Lanes of 512 elements share sets of the first cache. */
Test(stream, transposed_operands_in_sums)
{
    static const int64_t extents[] = { 3, 15, 16, 31, 48, 50, 64, 127, 160, 512 };
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        for (size_t j = 0; j < sizeof extents / sizeof *extents; j++) {
            const int64_t rows = extents[i], n = extents[j];
            float *const v = numbers(rows * n, 1), *const w = numbers(rows * n, 4);
            float *const want = numbers(rows * n, 0);
            deft_tensor *x = rig_tensor(&r, DEFT_SHAPE(n, rows), v);
            deft_tensor *y = rig_tensor(&r, DEFT_SHAPE(rows, n), w);
            for (int64_t k = 0; k < rows * n; k++) want[k] = v[k % n * rows + k / n] + 2 * w[k];
            streamed();
            const deft_scope scope = deft_scope_begin(r.cx);
            rig_expect(&r, deft_add(deft_t(x), deft_mul(y, 2)), rows * n, want);
            cr_expect_eq(streamed(), 1, "%lld x %lld", (long long)rows, (long long)n);
            OK(&r, deft_scope_end(scope));
            deft_drop(&x);
            deft_drop(&y);
            free(v);
            free(w);
            free(want);
        }
}

/* The same for elements of 8 bytes, and for a scalar of each row. */
Test(stream, transposed_operands_of_eight_bytes)
{
    for (int64_t rows = 7; rows < 60; rows += 9)
        for (int64_t n = 8; n < 600; n = n * 3 + 8 * (rows % 2)) {
            float *const v = numbers(rows * n, 1), *const w = numbers(rows, 4);
            deft_tensor *x = rig_tensor(&r, DEFT_SHAPE(n, rows), v);
            deft_tensor *scale = rig_tensor(&r, DEFT_SHAPE(rows, 1), w);
            deft_tensor *wide = deft_keep(deft_cast(x, DEFT_F64));
            deft_tensor *by = deft_keep(deft_cast(scale, DEFT_F64));
            OK(&r, deft_eval((deft_tensor *[]){ wide, by }, 2));
            streamed();
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *const y = deft_mul(deft_t(wide), by);
            double *const got = malloc(sizeof *got * (size_t)(rows * n));
            OK(&r, deft_read(y, DEFT_F64, got, sizeof *got * (size_t)(rows * n)));
            cr_expect_eq(streamed(), 1);
            for (int64_t k = 0; k < rows * n; k++)
                cr_assert(got[k] == (double)v[k % n * rows + k / n] * (double)w[k / n],
                          "%lld x %lld, %lld", (long long)rows, (long long)n, (long long)k);
            OK(&r, deft_scope_end(scope));
            deft_drop(&x);
            deft_drop(&scale);
            deft_drop(&wide);
            deft_drop(&by);
            free(got);
            free(v);
            free(w);
        }
}

/* Rows of 301 elements begin at no line. Where the last cache is shared, that is no reason to store
 * x' + y through the caches, and a launch of fewer bytes streams. */
Test(stream, transposed_operands_in_sums_where_the_last_cache_is_shared)
{
    enum { ROWS = 101, N = 301, MOVED = 3 * 4 * ROWS * N };
    static const struct {
        int limit;
        bool owned, shared; /* whether it streams */
    } cases[] = {
        { MOVED / 2, true, true },
        { MOVED * 10 / 9, false, true },
        { MOVED * 5, false, true },
        { MOVED * 8, false, false },
    };
    float *const v = numbers(ROWS * N, 1), *const w = numbers(ROWS * N, 4);
    float *const want = numbers(ROWS * N, 0);
    for (int64_t k = 0; k < ROWS * N; k++) want[k] = v[k % N * ROWS + k / N] + w[k];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int shared = 0; shared < 2; shared++) {
            char limit[16];
            snprintf(limit, sizeof limit, "%d", cases[c].limit);
            rig_close(&r);
            open_rig(limit, shared ? SHARED_CACHE : OWN_CACHE);
            deft_tensor *x = rig_tensor(&r, DEFT_SHAPE(N, ROWS), v);
            deft_tensor *y = rig_tensor(&r, DEFT_SHAPE(ROWS, N), w);
            streamed();
            const deft_scope scope = deft_scope_begin(r.cx);
            rig_expect(&r, deft_add(deft_t(x), y), ROWS * N, want);
            cr_expect_eq(streamed(), shared ? cases[c].shared : cases[c].owned, "%zu %d", c,
                         shared);
            OK(&r, deft_scope_end(scope));
            deft_drop(&x);
            deft_drop(&y);
        }
    free(v);
    free(w);
    free(want);
}

/* A transposed result is copied from a tile when the rows of its block are done. */
Test(stream, transposed_results_are_whole)
{
    enum { ROWS = 150, N = 300 };
    float *const v = numbers(ROWS * N, 1), *const want = numbers(ROWS * N, 0);
    deft_tensor *x = rig_tensor(&r, DEFT_SHAPE(ROWS, N), v);
    deft_tensor *y = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(N, ROWS), DEFT_F32));
    for (int64_t k = 0; k < ROWS * N; k++) want[k] = v[k] * 2;
    const deft_scope step = deft_step_begin(r.cx);
    deft_tensor *const z = deft_keep(deft_mul(x, 2));
    deft_assign(deft_t(y), z);
    OK(&r, deft_step_end(step));
    rig_expect(&r, z, ROWS * N, want);
    for (int64_t k = 0; k < ROWS * N; k++) want[k] = v[k % ROWS * N + k / ROWS] * 2;
    rig_expect(&r, y, ROWS * N, want);
    deft_drop(&x);
    deft_drop(&y);
    free(v);
    free(want);
}

Test(stream, an_update_in_place_does_not)
{
    enum { N = 1000 };
    float want[N];
    deft_tensor *const x = range(N, 0);
    for (int i = 0; i < N; i++) want[i] = (float)i;
    streamed();
    for (int k = 0; k < 4; k++) {
        const deft_scope step = deft_step_begin(r.cx);
        deft_assign(x, deft_mul(x, 2));
        OK(&r, deft_step_end(step));
        for (int i = 0; i < N; i++) want[i] *= 2;
        cr_expect_eq(streamed(), 0);
    }
    rig_expect(&r, x, N, want);
}

/* The second launch reads what all threads have written in the first, and waits for its maximum. */
Test(stream, the_next_launch_reads_it)
{
    enum { N = 300000 };
    float *const want = malloc(sizeof *want * N);
    deft_tensor *const x = range(N, 0);
    for (int k = 0; k < 20; k++) {
        const deft_scope scope = deft_scope_begin(r.cx);
        deft_tensor *const y = deft_keep(deft_mul(x, k));
        deft_tensor *const z = deft_sub(deft_flip(deft_sort(y, 0, false), DEFT_AXES(0)), y);
        for (int i = 0; i < N; i++) want[i] = (float)(N - 1 - i) * (float)k - (float)i * (float)k;
        rig_expect(&r, z, N, want);
        OK(&r, deft_scope_end(scope));
    }
    cr_expect_geq(streamed(), 40);
    free(want);
}

/* A submitted step runs on another thread, with which the reader then has to agree. */
Test(stream, a_submitted_step_is_read_by_another_thread)
{
    enum { N = 100003 };
    float *const want = malloc(sizeof *want * N);
    deft_tensor *const x = range(N, 1), *y = range(N, 0);
    for (int k = 0; k < 30; k++) {
        const deft_scope step = deft_step_begin(r.cx);
        deft_assign(y, deft_add(x, k));
        OK(&r, deft_step_submit(step));
        for (int i = 0; i < N; i++) want[i] = (float)(1 + i + k);
        rig_expect(&r, y, N, want);
    }
    cr_expect_geq(streamed(), 30);
    free(want);
}

static deft_status twice(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], deft_const_f(cx, 2));
    out[1] = deft_gt(in[0], deft_const_f(cx, 100));
    return DEFT_OK;
}

Test(stream, a_capture_and_results_of_two_dtypes)
{
    enum { N = 5003 };
    float *const want = malloc(sizeof *want * N);
    deft_capture *c = deft_capture_create(r.cx, twice, NULL);
    for (int k = 0; k < 5; k++) {
        const deft_scope scope = deft_scope_begin(r.cx);
        deft_tensor *in = range(N, k), *out[2];
        OK(&r, deft_capture_call(c, &in, 1, out, 2));
        for (int i = 0; i < N; i++) want[i] = (float)(2 * (k + i));
        rig_expect(&r, out[0], N, want);
        for (int i = 0; i < N; i++) want[i] = k + i > 100;
        rig_expect(&r, out[1], N, want);
        deft_drop(&in);
        OK(&r, deft_scope_end(scope));
    }
    cr_expect_geq(streamed(), 5);
    deft_capture_destroy(&c);
    free(want);
}

/* The parts of a complex number are loaded through two accesses of one buffer, and both count. The
 * launch moves 20 bytes for each element. */
Test(stream, both_parts_of_complex_operands_count)
{
    enum { N = 10000 };
    float *const v = numbers(2 * N, 1), *const want = malloc(sizeof *want * N);
    for (int i = 0; i < N; i++) want[i] = v[2 * i] * v[2 * i] - v[2 * i + 1] * v[2 * i + 1];
    for (int streams = 0; streams < 2; streams++) {
        rig_close(&r);
        open_rig(streams ? "199000" : "201000", OWN_CACHE);
        deft_tensor *x = deft_from(r.cx, DEFT_SHAPE(N), DEFT_C64, v, N * 8);
        deft_tensor *y = deft_from(r.cx, DEFT_SHAPE(N), DEFT_C64, v, N * 8);
        rig_expect(&r, deft_real(deft_mul(x, y)), N, want);
        cr_expect_eq(streamed(), (uint64_t)streams);
        deft_drop(&x);
        deft_drop(&y);
    }
    free(v);
    free(want);
}

/* ---- loads that prefetch ---- */

enum { BLOCK = 4096 }; /* elements. Shorter rows do not prefetch */

static uint64_t fetched(void)
{
    const uint64_t n = n_fetched;
    n_fetched = 0;
    return n;
}

/* Launches of one length get a variant, which knows that the length is a multiple of a vector or
 * more. Then accumulators stay in registers. */
Test(stream, reductions_of_long_rows_prefetch)
{
    static const int64_t lengths[] = { 1, 64, 4095, 4096, 4097, 5000, 8192, 12288, 70001 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int turn = 0; turn < 8; turn++) {
            const int64_t n = lengths[k];
            float *const v = numbers(n, turn), sum = 0, most = 0, place = 0;
            for (int64_t i = 0; i < n; i++) {
                v[i] = (float)((i * 37 + turn) % 17);
                sum += v[i] * v[i];
                if (v[i] > most) most = v[i], place = (float)i;
            }
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *x = rig_vector(&r, n, v);
            fetched();
            rig_expect(&r, deft_sum(deft_square(x), DEFT_ALL_AXES, 0), 1, &sum);
            rig_expect(&r, deft_max(x, DEFT_ALL_AXES, 0), 1, &most);
            rig_expect(&r, deft_argmax(x, DEFT_AXES(0), 0), 1, &place);
            cr_expect_eq(fetched(), n > BLOCK ? 3 : 0, "%lld", (long long)n);
            deft_drop(&x);
            OK(&r, deft_scope_end(scope));
            free(v);
        }
}

/* The parts of complex numbers alternate. Each of them is half of what is read. */
Test(stream, sums_of_complex_numbers_prefetch)
{
    static const int64_t lengths[] = { 4096, 4097, 8192, 10007 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int turn = 0; turn < 8; turn++) {
            const int64_t n = lengths[k];
            float *const v = numbers(2 * n, turn), sum[2] = { 0, 0 };
            for (int64_t i = 0; i < 2 * n; i++) sum[i % 2] += v[i] = (float)((i * 37 + turn) % 17);
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *x = deft_from(r.cx, DEFT_SHAPE(n), DEFT_C64, v, (size_t)n * 8);
            fetched();
            deft_tensor *const y = deft_view_as_real(deft_sum(x, DEFT_ALL_AXES, 0));
            rig_expect(&r, y, 2, sum);
            cr_expect_eq(fetched(), n > BLOCK ? 1 : 0, "%lld", (long long)n);
            deft_drop(&x);
            OK(&r, deft_scope_end(scope));
            free(v);
        }
}

/* Stages that read elements again, and short rows, find them in the near caches. */
Test(stream, a_softmax_and_short_rows_do_not_prefetch)
{
    enum { N = 3 * 5000 };
    float *const v = numbers(N, 3), *const got = malloc(sizeof *got * N);
    const deft_scope scope = deft_scope_begin(r.cx);
    deft_tensor *x = rig_vector(&r, N, v);
    fetched();
    rig_read(&r, deft_softmax(deft_reshape(x, DEFT_SHAPE(3, 5000)), 1), got, N);
    rig_read(&r, deft_sum(deft_reshape(x, DEFT_SHAPE(15, 1000)), DEFT_AXES(1), 0), got, 15);
    cr_expect_eq(fetched(), 0);
    rig_read(&r, deft_sum(deft_reshape(x, DEFT_SHAPE(3, 5000)), DEFT_AXES(1), 0), got, 3);
    cr_expect_eq(fetched(), 1);
    deft_drop(&x);
    OK(&r, deft_scope_end(scope));
    free(v);
    free(got);
}

Test(stream, long_rows_prefetch_about_the_second_cache_where_the_last_is_shared)
{
    enum { NEAR = 24000, LIMIT = NEAR * 4 / 5, MOST = LIMIT / 4 + 10 }; /* bytes, but MOST */
    rig_close(&r);
    open_rig("24000", SHARED_CACHE);
    for (int64_t n = LIMIT / 4 - 10; n <= MOST; n += 20) {
        float *const v = numbers(n, 3), sum = 0;
        for (int64_t i = 0; i < n; i++) sum += v[i] = (float)(i % 7);
        deft_tensor *x = rig_vector(&r, n, v);
        fetched();
        rig_expect(&r, deft_sum(x, DEFT_ALL_AXES, 0), 1, &sum);
        cr_expect_eq(fetched(), n == MOST, "%lld", (long long)n);
        deft_drop(&x);
        free(v);
    }
}

/* The elements of k rows of n columns, all of one dtype, reduced by C. Products of integers keep
 * one accumulator for each column, and go along whole rows. Strict maxima of floats keep 64, and do
 * not, though the launch asks for it. */
Test(stream, columns_are_reduced_along_whole_rows)
{
    static const int64_t columns[] = { 512, 519, 2048, 4100, 16411 };
    static const int64_t rows[] = { 63, 64, 65, 67, 200 };
    rig_close(&r);
    open_rig("1", SHARED_CACHE);
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
        for (size_t l = 0; l < sizeof rows / sizeof *rows; l++) {
            const int64_t n = columns[k], m = rows[l];
            int32_t *const a = malloc(sizeof *a * (size_t)m), *const b =
                                                                  malloc(4 * (size_t)(m * n));
            int32_t *const want = calloc((size_t)n, 4), *const got = malloc(4 * (size_t)n);
            float *const v = numbers(m * n, 3), *const most = numbers(n, 0);
            for (int64_t j = 0; j < n; j++) most[j] = v[j];
            for (int64_t i = 0; i < m; i++) {
                a[i] = (int32_t)(i * 40503u + 7u);
                for (int64_t j = 0; j < n; j++) {
                    b[i * n + j] = (int32_t)((uint32_t)(i * n + j) * 2654435761u);
                    want[j] =
                        (int32_t)((uint32_t)want[j] + (uint32_t)a[i] * (uint32_t)b[i * n + j]);
                    if (v[i * n + j] > most[j]) most[j] = v[i * n + j];
                }
            }
            const deft_scope scope = deft_scope_begin(r.cx);
            deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(1, m), DEFT_I32, a, 4 * (size_t)m);
            deft_tensor *const y =
                deft_from(r.cx, DEFT_SHAPE(m, n), DEFT_I32, b, 4 * (size_t)(m * n));
            deft_tensor *z = rig_vector(&r, m * n, v);
            fetched();
            OK(&r, deft_read(deft_matmul(x, y), DEFT_I32, got, 4 * (size_t)n));
            cr_expect(memcmp(got, want, 4 * (size_t)n) == 0, "%lld x %lld", (long long)m,
                      (long long)n);
            rig_expect(&r, deft_max(deft_reshape(z, DEFT_SHAPE(m, n)), DEFT_AXES(0), 0), n, most);
            cr_expect_eq(fetched(), 2, "%lld x %lld", (long long)m, (long long)n);
            deft_drop(&z);
            OK(&r, deft_scope_end(scope));
            free(a), free(b), free(want), free(got), free(v), free(most);
        }
}

/* The sums of columns of v, of their squares, and the sums in f64, one behind the other. */
static void sums_of_columns(const float *v, int64_t m, int64_t n, double *out, bool fetches)
{
    const deft_scope scope = deft_scope_begin(r.cx);
    deft_tensor *z = rig_tensor(&r, DEFT_SHAPE(m, n), v);
    fetched();
    deft_tensor *sum[3] = { deft_sum(z, DEFT_AXES(0), 0), deft_sum(deft_square(z), DEFT_AXES(0), 0),
                            deft_sum(deft_cast(z, DEFT_F64), DEFT_AXES(0), 0) };
    OK(&r, deft_eval(sum, 2)); /* one kernel */
    OK(&r, deft_eval(sum + 2, 1));
    for (int i = 0; i < 3; i++) {
        const size_t bytes = (size_t)n * sizeof *out;
        OK(&r, deft_read(sum[i], DEFT_F64, out + i * n, bytes));
    }
    cr_expect_eq(fetched() > 0, fetches, "%lld x %lld", (long long)m, (long long)n);
    deft_drop(&z);
    OK(&r, deft_scope_end(scope));
}

/* Sums of floats have a strict order, which is the same in registers and in sheets. */
Test(stream, sums_of_columns_have_the_same_bits_along_whole_rows)
{
    static const int64_t shape[][2] = { { 1024, 300 }, { 1100, 250 },  { 4097, 257 }, { 9000, 256 },
                                        { 1023, 700 }, { 2000, 1100 }, { 4096, 1024 } };
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++) {
        const int64_t m = shape[k][0], n = shape[k][1];
        const size_t size = sizeof(double) * (size_t)(3 * n);
        float *const v = numbers(m * n, 3);
        double *const want = malloc(size), *const got = malloc(size);
        for (int64_t i = 0; i < m * n; i++) v[i] = 1 / (v[i] - 60.3f);
        for (int shared = 0; shared < 2; shared++) {
            rig_close(&r);
            open_rig("1", shared ? SHARED_CACHE : OWN_CACHE);
            for (int turn = 0; turn < 3; turn++)
                sums_of_columns(v, m, n, shared ? got : want, shared);
        }
        cr_expect(memcmp(got, want, size) == 0, "%lld x %lld", (long long)m, (long long)n);
        free(v), free(want), free(got);
    }
}
