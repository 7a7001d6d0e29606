/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of scatter_* and index_* against one value after the other: integers and floats,
 * indices of every dtype, few elements and many values, on one to three threads. The bits are
 * equal, bad indices are found, and nothing is written past the workspace.
 */
#include "runtime/routine.h"
#include "support/faces.h"
#include "support/int_ref.h"
#include "support/budget.h"
#include "support/elements.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static uint64_t state = 77123;

static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 20) % (uint64_t)n);
}

static df_pool *pools[3];

static void open_pools(void)
{
    df_diag d = { 0 };
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(df_pool_create(&d, &df_mem_system, i + 1, &pools[i]), DEFT_OK, "%s", d.text);
}

static void close_pools(void)
{
    for (int i = 0; i < 3; i++) df_pool_destroy(&pools[i]);
}

/* A box of [outer, rows, width]. The rows have indices, the width is kept, and the values of the
 * outer axis meet. at: the indices, none of which is negative. */
#define BOX(T, prefix)                                                                             \
    for (int64_t o = 0; o < j->extent[0]; o++)                                                     \
        for (int64_t r = 0; r < j->extent[1]; r++) {                                               \
            const int64_t *const row_at = at + o * j->index_step[0] + r * j->index_step[1];        \
            const T *const values =                                                                \
                (const T *)j->value + o * j->value_step[0] + r * j->value_step[1];                 \
            for (int64_t w = 0; w < j->extent[2]; w++) {                                           \
                const int64_t to = row_at[w * j->index_step[2]] * j->step + w * j->out_step[2];    \
                T *const x = (T *)out + to;                                                        \
                const T y = values[w * j->value_step[2]];                                          \
                *x = j->how == DF_SCATTER_ADD   ? (T)(prefix * x + y)                              \
                     : j->how == DF_SCATTER_SET ? y                                                \
                     : j->how == DF_SCATTER_MUL ? (T)(prefix * x * y)                              \
                     : j->how == DF_SCATTER_MIN ? (y < *x ? y : *x)                                \
                                                : (y > *x ? y : *x);                               \
            }                                                                                      \
        }                                                                                          \
    break;

static void combine(const df_scatter_job *j, const int64_t *at, void *out)
{
    switch (j->dtype) {
    CASES_OF_FACES:
        break;
    case DEFT_I8: BOX(int8_t, (uint64_t))
    case DEFT_I16: BOX(int16_t, (uint64_t))
    case DEFT_I32: BOX(int32_t, (uint64_t))
    case DEFT_I64: BOX(int64_t, (uint64_t))
    case DEFT_U8: BOX(uint8_t, (uint64_t))
    case DEFT_U16: BOX(uint16_t, (uint64_t))
    case DEFT_U32: BOX(uint32_t, (uint64_t))
    case DEFT_U64: BOX(uint64_t, (uint64_t))
    case DEFT_F32: BOX(float, (float))
    case DEFT_F64: BOX(double, (double))
    case DEFT_BOOL:
    case DEFT_F16:
    case DEFT_BF16: cr_assert_fail("not combined here");
    }
}

/* One value after the other. Returns false when one of the n indices is out of range. */
static bool plain(const df_scatter_job *j, int64_t n, void *out)
{
    int64_t *const at = malloc((size_t)n * sizeof *at);
    bool is_good = true;
    for (int64_t i = 0; i < n; i++) {
        at[i] = int_ref_get(j->index_dtype, j->index, (size_t)i);
        if (at[i] < 0) at[i] += j->n;
        is_good &= at[i] >= 0 && at[i] < j->n;
    }
    if (is_good) combine(j, at, out);
    free(at);
    return is_good;
}

/* Writes n bytes of at most 31 each. */
static void fill(char *to, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint64_t word = (uint64_t)below(INT64_C(1) << 44) * 0x9e3779b97f4a7c15u >> 3;
        memcpy(to + i, &(uint64_t){ word & 0x1f1f1f1f1f1f1f1fu }, 8);
    }
    for (; i < n; i++) to[i] = (char)below(32);
}

/* Number k of 1000 values of dtype t. */
static uint64_t value_bits(deft_dtype t, int64_t k)
{
    const union {
        double d;
        uint64_t bits;
    } wide = { (double)((float)k / 7) };
    const union {
        float f;
        uint32_t bits;
    } narrow = { (float)k / 7 };
    return t == DEFT_F64 ? wide.bits : t == DEFT_F32 ? narrow.bits : (uint64_t)k;
}

static void check_how(df_scatter_how how, deft_dtype t, deft_dtype index_dtype, int64_t outer,
                      int64_t rows, int64_t width, int64_t n, bool has_bad)
{
    const int64_t size = (int64_t)deft_dtype_size(t), gap = below(3);
    const int64_t index_size = (int64_t)deft_dtype_size(index_dtype);
    const int64_t per_row = below(2) ? width : 1; /* indices */
    df_scatter_job j = { .how = how,
                         .dtype = t,
                         .index_dtype = index_dtype,
                         .n = n,
                         .step = width + gap,
                         .rank = 3,
                         .extent = { outer, rows, width },
                         .out_step = { 0, 0, width > 1 ? 1 : 0 },
                         .index_step = { below(2) ? rows * per_row : 0, per_row, per_row > 1 },
                         .value_step = { rows * width, width, 1 } };
    const int64_t n_index = outer * rows * per_row, n_value = outer * rows * width;
    const size_t n_out = (size_t)(n * j.step * size);
    char *const index = malloc((size_t)n_index * 8);
    char *const value = malloc((size_t)(n_value * size));
    char *const before = malloc(n_out), *const want = malloc(n_out), *const got = malloc(n_out);
    const bool is_wide = index_dtype == DEFT_I64 || index_dtype == DEFT_I32;
    const bool is_negative = is_wide && below(3) > 0;
    const int64_t most = index_dtype == DEFT_BOOL ? 2 : is_wide && rows > n / 8 ? n : 256;
    for (int64_t i = 0; i < n_index; i++) {
        int64_t at = below(n < most ? n : most);
        if (is_negative && below(4) == 0) at -= n;
        element_store(index + i * index_size, (uint64_t)at, (size_t)index_size);
    }
    if (has_bad) element_store(index + below(rows) * index_size, (uint64_t)n, (size_t)index_size);
    for (int64_t i = 0; i < n_value; i++)
        element_store(value + i * size, value_bits(t, below(1000)), (size_t)size);
    if (below(3) == 0) memset(j.value_step, 0, sizeof j.value_step); /* one value for all */
    fill(before, n_out);
    j.index = index;
    j.value = value;
    memcpy(want, before, n_out);
    const bool is_good = plain(&j, n_index, want);
    for (int threads = 1; threads <= 3; threads++) {
        const size_t bytes = df_scatter_work_size(&j, (uint32_t)threads);
        char *const work = aligned_alloc(64, (bytes + 127) / 64 * 64);
        int64_t bad = 0;
        memset(work, 0x5a, bytes + 64);
        memcpy(got, before, n_out);
        j.out = got;
        const bool ok = df_scatter(&j, pools[threads - 1], work, &bad);
        cr_assert_eq(ok, is_good, "%d threads", threads);
        if (!ok) cr_assert_eq(bad, n);
        cr_assert(!ok || memcmp(got, want, n_out) == 0, "%s at %s: [%d,%d,%d] into %d, %d threads",
                  deft_dtype_name(t), deft_dtype_name(index_dtype), (int)outer, (int)rows,
                  (int)width, (int)n, threads);
        for (int i = 0; i < 64; i++) cr_assert_eq(work[bytes + (size_t)i], 0x5a, "past the work");
        free(work);
    }
    free(got);
    free(want);
    free(before);
    free(value);
    free(index);
}

static void check(deft_dtype t, deft_dtype index_dtype, int64_t outer, int64_t rows, int64_t width,
                  int64_t n, bool has_bad)
{
    check_how(DF_SCATTER_ADD, t, index_dtype, outer, rows, width, n, has_bad);
}

TestSuite(scatter_jobs, .init = open_pools, .fini = close_pools);

static const deft_dtype added[] = { DEFT_U8, DEFT_I32, DEFT_I64, DEFT_F32, DEFT_F64,
                                    DEFT_I8, DEFT_I16, DEFT_U16, DEFT_U32, DEFT_U64 };
static const deft_dtype at[] = { DEFT_BOOL, DEFT_U8,  DEFT_I32, DEFT_I64, DEFT_I8,
                                 DEFT_I16,  DEFT_U16, DEFT_U32, DEFT_U64 };

Test(scatter_jobs, every_dtype)
{
    static const int64_t widths[] = { 1, 3, 70 };
    for (size_t t = 0; t < sizeof added / sizeof *added; t++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++)
            for (size_t w = 0; w < 3; w++) {
                /* Under a limit, each width with each dtype, but not with each pair of dtypes. */
                if (test_is_limited() && (t + i) % 3 != w) continue;
                const int64_t rows = (w == 0 ? 40000 : w == 1 ? 14000 : 700) + below(1000);
                check(added[t], at[i], 1, rows, widths[w], 2 + below(200), false);
                check(added[t], at[i], 3, 300 + below(20000), widths[w], 1 + below(9), false);
                check(added[t], at[i], 1 + below(3), 1 + below(300), widths[w], 5, false);
            }
}

/* Rows that are long enough for threads to divide the indexed axis. Some jobs have few indices to
 * choose from, so that one thread would get nearly all rows. */
Test(scatter_jobs, long_rows)
{
    for (size_t t = 0; t < sizeof added / sizeof *added; t++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            check(added[t], at[i], 1, 300 + below(300), 120 + below(80), 1 + below(400), false);
            check(added[t], at[i], 1, 600, 100 + below(3), 2 + below(9), false);
            check(added[t], at[i], 1, 600, 64, 1000, i > 1);
        }
}

/* Vectors beyond the caches, whose elements threads divide. */
Test(scatter_jobs, long_vectors)
{
    enum { BYTES = 17 << 20, ROWS = 300000 };
    for (int i = 0; i < 16; i++) {
        const deft_dtype t = i & 1 ? DEFT_F32 : DEFT_F64;
        const int64_t n = BYTES / (int64_t)deft_dtype_size(t) + below(100);
        check(t, i & 2 ? DEFT_I32 : DEFT_I64, 1, ROWS, 1, n, false);
    }
}

Test(scatter_jobs, bad_indices)
{
    for (size_t t = 0; t < sizeof added / sizeof *added; t++)
        for (size_t i = 1; i < sizeof at / sizeof *at; i++) {
            check(added[t], at[i], 1, 50000, 1, 100, true);
            check(added[t], at[i], 2, 300, 5, 100, true);
        }
}

/* Each way to combine, in jobs that threads divide along a kept axis, along the indexed axis, and
 * not at all. */
Test(scatter_jobs, every_way_to_combine)
{
    const int n = (int)test_size(3, 1);
    for (int how = DF_SCATTER_SET; how <= DF_SCATTER_MAX; how++)
        for (size_t t = 0; t < sizeof added / sizeof *added; t++)
            for (int again = 0; again < n; again++) {
                const deft_dtype i = at[below(sizeof at / sizeof *at)];
                const df_scatter_how h = (df_scatter_how)how;
                check_how(h, added[t], i, 1 + below(3), 700, 70, 2 + below(200), false);
                check_how(h, added[t], i, 1, 600, 100 + below(80), 1 + below(400), false);
                check_how(h, added[t], i, 3, 300 + below(20000), 1 + below(3), 5, false);
                check_how(h, added[t], DEFT_I32, 1, 300000, 1, 2200000, t % 3 == 2);
            }
}
