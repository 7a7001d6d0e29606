/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting and selecting give the same indices as a plain stable sort: for every dtype, with ties,
 * NaNs and both zeros, for any part of a row, whatever the strides and the number of threads.
 */
#include "runtime/sort/keys.h"

#include <criterion/criterion.h>

#include "support/budget.h"
#include "support/elements.h"
#include "support/plain_sort.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <stdlib.h>
#include <string.h>

static uint64_t state = 20268;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 20;
}

static int64_t below(int64_t n)
{
    return (int64_t)(draw() % (uint64_t)n);
}

/* What the elements of a row are like. */
typedef enum pattern {
    BITS,
    FEW,
    RISING,
    FALLING,
    EQUAL,
    TINY,       /* denormals and zeros */
    SEVERAL,    /* some dozens of elements, and few others */
    HALF_EQUAL, /* half of the elements are equal */
    PIPE,       /* rising, then falling */
    SAW,
    N_PATTERNS
} pattern;

static uint64_t element(deft_dtype t, pattern p, int64_t i)
{
    static const double odd[] = { 0, -0.0, 1, -1, 2, 5 };
    const uint64_t infinity = df_is_float(t) ? df_infinity_bits(t) : 0;
    const int64_t k = p == RISING                     ? i
                      : p == FALLING                  ? -i
                      : p == PIPE                     ? (i < 20000 ? i : 40000 - i)
                      : p == SAW                      ? i % 512
                      : p == HALF_EQUAL               ? below(2) * below(100000)
                      : p == SEVERAL && below(40) > 0 ? below(90)
                                                      : below(1 << 20);
    if (p == TINY && df_is_float(t))
        return df_sign_bit(t) * (uint64_t)below(2) | (uint64_t)below(4);
    if (p == BITS) return draw() << 32 ^ draw();
    if (p == EQUAL) return df_is_float(t) ? df_sign_bit(t) * (uint64_t)(i & 1) : 1;
    if (p == FEW && df_is_float(t)) {
        if (below(7) == 0) return infinity + (uint64_t)below(3);
        if (below(7) == 0) return df_sign_bit(t) | (infinity + (uint64_t)below(3));
        if (below(2) == 0) return df_sign_bit(t) * (uint64_t)below(2);
        const float f = (float)odd[below(6)];
        const double d = f;
        uint64_t b = 0;
        if (t == DEFT_F64)
            memcpy(&b, &d, sizeof d);
        else
            memcpy(&b, &f, sizeof f);
        return df_is_half(t) ? b >> 16 : b;
    }
    if (p == FEW) return (uint64_t)(below(5) - 2);
    if (t == DEFT_F32) {
        const float f = (float)k;
        uint32_t b;
        memcpy(&b, &f, sizeof f);
        return b;
    }
    if (t == DEFT_F64) {
        const double d = (double)k;
        uint64_t b;
        memcpy(&b, &d, sizeof d);
        return b;
    }
    return (uint64_t)k;
}

/* The key of an element, written apart from the library: an unsigned number with its order. */
static uint64_t key(deft_dtype t, const char *at)
{
    const unsigned bits = 8 * (unsigned)deft_dtype_size(t);
    const uint64_t sign = (uint64_t)1 << (bits - 1);
    const uint64_t b = element_load(at, bits / 8);
    if (t == DEFT_BOOL || df_is_unsigned(t)) return b;
    if (!df_is_float(t)) return b ^ sign;
    const uint64_t magnitude = b & (sign - 1);
    if (magnitude > df_infinity_bits(t)) return UINT64_MAX;
    return b & sign ? sign - magnitude : sign + magnitude;
}

static size_t size_of_result(const df_routine_job *j)
{
    return j->op == DF_OP_sort ? deft_dtype_size(j->dtype) : sizeof(int64_t);
}

static void plain(const df_routine_job *j, const char *in, char *out)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    plain_item *const items = malloc((2 * (size_t)j->n + 1) * sizeof *items);
    for (int64_t i = 0; i < j->n; i++) {
        const uint64_t k = key(j->dtype, in + i * step);
        items[i] = (plain_item){ j->attr & DF_ORDER_DESCENDING ? ~k : k, i };
    }
    plain_sort(items, items + j->n, j->n);
    const size_t size = size_of_result(j);
    for (int64_t i = 0; i < j->m; i++) {
        const int64_t at = items[j->first + i].at;
        element_copy(out + (size_t)i * size,
                     j->op == DF_OP_sort ? in + at * step : (const char *)&at, size);
    }
    free(items);
}

static df_pool *pools[3];

/* Compares a job with the plain sort, on one to three threads. */
static void check(df_routine_job j, pattern p)
{
    const int64_t size = (int64_t)deft_dtype_size(j.dtype);
    const int64_t step = j.in_step < 0 ? -j.in_step : j.in_step, span = step * j.n + 1;
    const size_t n_out = (size_t)(j.n_batch * j.m) * size_of_result(&j);
    char *const in = malloc((size_t)(span * j.n_batch * size));
    char *const want = malloc(n_out + 1), *const got = malloc(n_out + 8);
    for (int64_t i = 0; i < span * j.n_batch; i++) {
        uint64_t b = element(j.dtype, p, i);
        if (j.dtype == DEFT_BOOL) b &= 1;
        element_store(in + i * size, b, (size_t)size);
    }
    j.in = in + (j.in_step < 0 && j.n > 0 ? (j.n - 1) * step * size : 0);
    j.batch_rank = 1;
    j.batch_extent[0] = j.n_batch;
    j.in_batch[0] = span;
    for (int64_t row = 0; row < j.n_batch; row++)
        plain(&j, j.in + row * span * size, want + (size_t)(row * j.m) * size_of_result(&j));
    for (int threads = 1; threads <= 3; threads++) {
        const size_t bytes = df_routine_work_size(&j, (uint32_t)threads);
        char *const work = aligned_alloc(64, (bytes + 127) / 64 * 64);
        memset(work + bytes, 0x5a, 64);
        memset(got, -1, n_out + 8);
        j.out = (int64_t *)(void *)got;
        df_routine_run(&j, pools[threads - 1], work);
        cr_assert(memcmp(got, want, n_out) == 0,
                  "%s of %s, %d rows of %d, %d from %d, step %d, pattern %d, attr %u, %d threads",
                  df_op_infos[j.op].name, deft_dtype_name(j.dtype), (int)j.n_batch, (int)j.n,
                  (int)j.m, (int)j.first, (int)j.in_step, (int)p, j.attr, threads);
        for (int i = 0; i < 8; i++)
            cr_assert_eq((signed char)got[n_out + (size_t)i], -1, "written past the result");
        for (int i = 0; i < 64; i++) cr_assert_eq(work[bytes + (size_t)i], 0x5a, "past the work");
        free(work);
    }
    free(got);
    free(want);
    free(in);
}

/* ---- which, compress ---- */

static const int64_t finds_lengths[] = { 0, 1, 63, 64, 65, 1000, 65536, 65537, 200003 };

/* Writes a mask in which all, none or some elements are not 0. Zeros of floats have both signs. */
static void draw_mask(const df_routine_job *j, char *mask, int64_t n, int64_t one_in)
{
    const size_t size = deft_dtype_size(j->mask_dtype);
    const uint64_t sign = df_is_float(j->mask_dtype) ? df_sign_bit(j->mask_dtype) : 0;
    for (int64_t i = 0; i < n; i++) {
        const bool is = one_in > 0 && below(one_in) == 0;
        const uint64_t b = is ? 1 : sign * (uint64_t)below(2);
        element_store(mask + (size_t)i * size, b, size);
    }
}

/* Compares a job with a loop, on one to three threads. */
static void check_found(df_routine_job j, int64_t one_in)
{
    const size_t size = deft_dtype_size(j.dtype), mask_size = deft_dtype_size(j.mask_dtype);
    const bool copies = j.op == DF_OP_compress;
    const size_t row = copies ? size : sizeof(int64_t), n_out = (size_t)j.m * row;
    const uint64_t sign = df_is_float(j.mask_dtype) ? df_sign_bit(j.mask_dtype) : 0;
    char *const in = malloc((size_t)(3 * j.n + 1) * size);
    char *const mask = malloc((size_t)(3 * j.n + 1) * mask_size);
    char *const want = calloc(n_out + 1, 1), *const got = malloc(n_out + 8);
    for (size_t i = 0; i < (size_t)(3 * j.n + 1) * size; i++) in[i] = (char)draw();
    draw_mask(&j, mask, 3 * j.n + 1, one_in);
    j.in = in + (j.in_step < 0 ? (size_t)(3 * j.n) * size : 0);
    j.mask = mask + (j.mask_step < 0 ? (size_t)(3 * j.n) * mask_size : 0);
    if (!copies && !(j.attr & DF_WHICH_ZEROS)) memset(want, -1, n_out);
    for (int64_t i = 0, k = 0; i < j.n && k < j.m; i++) {
        const uint64_t b = element_load(j.mask + i * j.mask_step * (int64_t)mask_size, mask_size);
        if ((b & ~sign) == 0) continue;
        const char *const from = j.in + i * j.in_step * (int64_t)size;
        element_copy(want + (size_t)k++ * row, copies ? from : (const char *)&i, row);
    }
    if (!copies) j.in = j.mask, j.dtype = j.mask_dtype, j.in_step = j.mask_step;
    for (int threads = 1; threads <= 3; threads++) {
        const size_t bytes = df_routine_work_size(&j, (uint32_t)threads);
        char *const work = aligned_alloc(64, (bytes + 127) / 64 * 64);
        memset(work + bytes, 0x5a, 64);
        memset(got, 0x6b, n_out + 8);
        j.out = (int64_t *)(void *)got;
        df_routine_run(&j, pools[threads - 1], work);
        cr_assert(memcmp(got, want, n_out) == 0,
                  "%s of %s, mask %s, %d of %d, one in %d, %d threads", df_op_infos[j.op].name,
                  deft_dtype_name(j.dtype), deft_dtype_name(j.mask_dtype), (int)j.m, (int)j.n,
                  (int)one_in, threads);
        for (int i = 0; i < 8; i++)
            cr_assert_eq(got[n_out + (size_t)i], 0x6b, "written past the result");
        for (int i = 0; i < 64; i++) cr_assert_eq(work[bytes + (size_t)i], 0x5a, "past the work");
        free(work);
    }
    free(got);
    free(want);
    free(mask);
    free(in);
}

static void each_op(deft_dtype t, pattern p, int64_t n, int64_t n_batch)
{
    df_routine_job j = { .op = DF_OP_argsort,
                         .attr = (uint32_t)below(2),
                         .dtype = t,
                         .n = n,
                         .m = n,
                         .in_step = (int64_t[]){ 1, 1, 2, -1 }[below(4)],
                         .n_batch = n_batch };
    check(j, p);
    j.op = DF_OP_sort;
    check(j, p);
    j.op = DF_OP_topk;
    const int64_t parts[] = { 0, 1, 8, 64, n / 5, n / 2, n - 1 };
    j.m = parts[below(7)];
    if (j.m >= 0 && j.m <= n) check(j, p);
    j.m = 1 + below(2);
    if (j.m > n) return;
    j.first = (int64_t[]){ (n - 1) / 2, n - j.m, below((int)(n - j.m) + 1) }[below(3)];
    j.first = j.first < n - j.m ? j.first : n - j.m;
    check(j, p);
}

/* Of the pairs of a dtype and a pattern, one in `part` at least, which are spread over all of them:
 * each dtype and each pattern is among them. Without a limit of time, all of them. */
static void each_dtype(int64_t n, int64_t n_batch, uint32_t part)
{
    const uint32_t n_all = DF_N_RECORDED * N_PATTERNS;
    for (uint32_t i = 0; i < n_all && (i < n_all / part || !test_is_limited()); i++) {
        const uint32_t k = test_scattered(i, n_all);
        each_op((deft_dtype)(k / N_PATTERNS), (pattern)(k % N_PATTERNS), n, n_batch);
    }
}

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

TestSuite(order, .init = open_pools, .fini = close_pools);

Test(order, rows_of_each_length)
{
    static const int64_t lengths[] = { 0, 1, 2, 3, 16, 17, 63, 64, 65, 80, 129, 1000, 4097, 17000 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        each_dtype(lengths[i], lengths[i] > 2000 ? 3 : 1 + below(40), lengths[i] < 1000 ? 1 : 3);
}

/* One row, or two, on all threads: in pieces of different lengths. */
Test(order, long_rows)
{
    each_dtype(test_size(200003, 50001), 1, 4);
    if (!test_is_limited()) each_dtype(33000, 2, 1);
    each_dtype(32768, 1, 4);
}

/* Lengths around those at which sorting changes its way: registers, networks, digits. */
Test(order, keys_of_each_length)
{
    const int64_t n = test_size(1100, 300);
    for (int64_t i = 0; i < n; i++)
        for (int t = DEFT_F32; t <= DEFT_F64; t++) {
            df_routine_job j = { .op = DF_OP_sort,
                                 .attr = (uint32_t)below(2),
                                 .dtype = (deft_dtype)t,
                                 .n = i,
                                 .m = i,
                                 .in_step = 1,
                                 .n_batch = 2 };
            check(j, (pattern)below(N_PATTERNS));
        }
}

/* A key at a position, and the number of lesser ones, beside sorted keys. */
static void check_nth(size_t size, const char *keys, const char *sorted, int64_t n)
{
    const df_keys *const ways = df_keys_best();
    if (!ways->nth || n == 0) return;
    const int64_t nth = below((int)n);
    char *const a = malloc((size_t)n * size), *const b = malloc((size_t)n * size);
    int64_t first = nth, n_below = -1;
    memcpy(a, keys, (size_t)n * size);
    while (first > 0 && df_key_at(size, sorted, first - 1) == df_key_at(size, sorted, nth)) first--;
    cr_assert_eq(ways->nth(size, a, b, n, nth, &n_below), df_key_at(size, sorted, nth));
    cr_assert_eq(n_below, first, "%d of %d keys of %d", (int)nth, (int)n, (int)size);
    free(a);
    free(b);
}

/* Both implementations on this machine give the same keys. */
Test(order, keys_are_sorted_alike)
{
    const df_keys *const ways[] = { &df_keys_plain, df_keys_best() };
    for (int k = 0; k < test_size(2000, 300); k++) {
        const int64_t n = k % 7 == 0 ? below(40000) : below(1500);
        const uint64_t mask[] = { 3, 255, UINT64_MAX };
        const uint64_t bits = mask[below(3)];
        for (size_t size = 4; size <= 8; size += 4) {
            const size_t bytes = (size_t)n * size;
            char *a[2], *b[2], *sorted[2];
            int64_t n_between[2], least[2] = { 0, 0 }, place[2] = { 0, 0 };
            const uint64_t pivot = bits & (uint64_t)below(1 << 20);
            for (int w = 0; w < 2; w++) a[w] = malloc(bytes + 1), b[w] = malloc(bytes + 1);
            for (int64_t i = 0; i < n; i++) {
                const uint64_t key = ((uint64_t)below(1 << 30) << 33 ^ (uint64_t)below(1 << 30)) &
                                     (below(9) ? bits : UINT64_MAX);
                for (int w = 0; w < 2; w++) element_store(a[w] + (size_t)i * size, key, size);
            }
            for (int w = 0; w < 2; w++) {
                n_between[w] = ways[w]->between(size, a[w], b[w], n, pivot / 2, pivot, &least[w]);
                const int64_t at = n_between[w] / 2;
                if (n_between[w] == 0) continue;
                const uint64_t key = df_key_at(size, b[w], at);
                int64_t before = 0;
                for (int64_t i = 0; i < at; i++) before += df_key_at(size, b[w], i) == key;
                place[w] = ways[w]->find(size, a[w], n, key, before);
            }
            cr_assert(n_between[0] == n_between[1] && least[0] == least[1] && place[0] == place[1]);
            cr_assert(memcmp(b[0], b[1], (size_t)n_between[0] * size) == 0);
            sorted[0] = ways[0]->sort(size, a[0], b[0], n);
            check_nth(size, a[1], sorted[0], n);
            sorted[1] = ways[1]->sort(size, a[1], b[1], n);
            cr_assert(memcmp(sorted[0], sorted[1], bytes) == 0, "%d keys of %d", (int)n, (int)size);
            for (int w = 0; w < 2; w++) free(a[w]), free(b[w]);
        }
    }
}

/* Both implementations make the keys of order.h, and say when elements are lost. */
Test(order, keys_are_made_alike)
{
    static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_I32, DEFT_I64, DEFT_U64 };
    const df_keys *const ways[] = { &df_keys_plain, df_keys_best() };
    for (int k = 0; k < test_size(2000, 300); k++) {
        const int64_t n = below(300);
        const deft_dtype t = dtypes[below(5)];
        const pattern p = (pattern)below(N_PATTERNS);
        const size_t size = deft_dtype_size(t), bytes = (size_t)n * size;
        const df_routine_job j = { .attr = (uint32_t)below(2), .dtype = t };
        const uint64_t flip = df_order_flip(&j);
        char *const in = malloc(bytes + 1), *const keys = malloc(bytes + 1);
        for (int64_t i = 0; i < n; i++) {
            const uint64_t b = element(t, p, i);
            element_store(in + (size_t)i * size, b, size);
        }
        for (int w = 0; w < 2; w++) {
            const bool is_in_place = below(2);
            if (is_in_place) memcpy(keys, in, bytes);
            const bool loses = ways[w]->from_bits(t, flip, is_in_place ? keys : in, keys, n);
            bool is_lost = false;
            for (int64_t i = 0; i < n; i++) {
                const uint64_t got = element_load(keys + (size_t)i * size, size);
                const uint64_t b = element_load(in + (size_t)i * size, size);
                cr_assert_eq(got, df_order_key(df_order_as(t), in + (size_t)i * size) ^ flip);
                if (!df_is_float(t)) continue;
                const bool is_nan = (b & ~df_sign_bit(t)) > df_infinity_bits(t);
                is_lost |= b == df_sign_bit(t) || (is_nan && b != df_all_bits(t) >> 1);
            }
            cr_assert(loses || !is_lost, "%s, way %d", deft_dtype_name(t), w);
        }
        free(keys);
        free(in);
    }
}

/* Makes this thread take denormals for zeros, or not. */
#ifdef __SSE2__
static void flush_denormals(bool do_flush)
{
    _mm_setcsr(do_flush ? 0x9fc0u : 0x1f80u);
}
#else
static void flush_denormals(bool do_flush)
{
    (void)do_flush;
}
#endif

/* The key of an element in sorted comparables, which have infinities for NaNs. */
static uint64_t key_without_nan(deft_dtype t, uint64_t flip, const char *at)
{
    const uint64_t infinity = df_is_float(t) ? df_infinity_bits(t) | df_sign_bit(t) : UINT64_MAX;
    const uint64_t k = df_order_key(df_order_as(t), at);
    return (df_is_float(t) && k > infinity ? infinity : k) ^ flip;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Elements that are loaded, or split, and sorted: in order, and none is lost but zeros' signs and
 * NaNs. Those before a split are less than the pivot. */
Test(order, elements_are_sorted_alike)
{
    static const deft_dtype dtypes[] = {
        DEFT_F32, DEFT_F64, DEFT_I32, DEFT_U32, DEFT_I64, DEFT_U64
    };
    const df_keys *const ways[] = { &df_keys_plain, df_keys_best() };
    for (int k = 0; k < test_size(2000, 300); k++) {
        const int64_t n = k % 7 == 0 ? below(40000) : below(1500);
        const deft_dtype t = dtypes[below(6)];
        const pattern p = (pattern)below(N_PATTERNS);
        const size_t size = deft_dtype_size(t), bytes = (size_t)n * size;
        const df_routine_job j = { .attr = (uint32_t)below(2), .dtype = t };
        const uint64_t flip = df_order_flip(&j);
        char *const in = malloc(bytes + 1), *const to = malloc(bytes + 1);
        char *const scratch = malloc(bytes + 1);
        uint64_t *const want = malloc((bytes + 1) * sizeof *want);
        bool is_lost = false;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t b = element(t, p, i);
            element_store(in + (size_t)i * size, b, size);
            want[i] = key_without_nan(t, flip, in + (size_t)i * size);
            is_lost |= df_is_float(t) && b == df_sign_bit(t);
        }
        const int64_t some = n > 0 ? below(n) : 0;
        const uint64_t some_key = n > 0 ? want[some] : 0;
        qsort(want, (size_t)n, sizeof *want, by_number);
        for (int w = 0; w < 2; w++) {
            bool loses = false;
            int64_t less = 0;
            flush_denormals(true);
            if (n > 0 && below(2)) {
                char pivot[8];
                ways[w]->load(t, flip, in + (size_t)some * size, pivot, 1);
                less = ways[w]->split(t, flip, in, to, n, element_load(pivot, size), &loses);
                cr_assert(less == n || want[less] >= some_key);
                /* equal floats may differ: zeros, and NaNs beside infinities */
                cr_assert(less == 0 || want[less - 1] < some_key + (df_is_float(t) ? 1 : 0));
            } else {
                loses = ways[w]->load(t, flip, in, to, n);
            }
            cr_assert(loses || !is_lost, "%s, way %d", deft_dtype_name(t), w);
            ways[w]->sort_loaded(t, flip, to, scratch, less);
            ways[w]->sort_loaded(t, flip, to + (size_t)less * size, scratch, n - less);
            flush_denormals(false);
            for (int64_t i = 0; i < n; i++)
                cr_assert_eq(key_without_nan(t, flip, to + (size_t)i * size), want[i],
                             "%s, way %d, pattern %d, element %d of %d", deft_dtype_name(t), w,
                             (int)p, (int)i, (int)n);
        }
        free(want);
        free(scratch);
        free(to);
        free(in);
    }
}

/* Each element is better than all before it, so that no block is skipped. */
Test(order, nothing_is_skipped)
{
    const int64_t n = 100000;
    for (int down = 0; down < 2; down++) {
        df_routine_job j = { .op = DF_OP_topk,
                             .attr = (uint32_t)down,
                             .dtype = DEFT_I32,
                             .n = n,
                             .m = 100,
                             .in_step = 1,
                             .n_batch = 1 };
        check(j, down ? RISING : FALLING);
        j.dtype = DEFT_F32;
        check(j, down ? RISING : FALLING);
    }
}

/* All lengths of vector and result, so that blocks of both end anywhere. */
Test(order, positions_and_elements_under_a_mask)
{
    for (size_t i = 0; i < sizeof finds_lengths / sizeof *finds_lengths; i++)
        for (int t = 0; t < DF_N_RECORDED; t++)
            for (int64_t one_in = 0; one_in <= 40; one_in = 3 * one_in + 1) {
                const int64_t n = finds_lengths[i], rooms[] = { n, below(n + 1), n + 70000 };
                if (n > 1000 && below(12) > 0) continue;
                df_routine_job j = { .op = below(3) ? DF_OP_compress : DF_OP_which,
                                     .attr = (uint32_t)below(2),
                                     .dtype = (deft_dtype)t,
                                     .n = n,
                                     .m = rooms[below(3)],
                                     .in_step = (int64_t[]){ 1, 1, 3, -2 }[below(4)],
                                     .n_batch = 1 };
                j.mask_dtype = (deft_dtype)(below(2) ? DEFT_BOOL : below(DF_N_RECORDED));
                j.mask_step = (int64_t[]){ 1, 1, 2, -3 }[below(4)];
                check_found(j, one_in);
            }
}
