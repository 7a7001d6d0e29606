/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, and results whose size is data. Values by hand for every dtype; random operands of all
 * ranks and layouts against plain C, on every way of running a program; how many launches and plans
 * it takes.
 */
#include "support/faces.h"
#include "support/half_ref.h"
#include "support/int_ref.h"
#include "ops/dtype.h"
#include "support/harness.h"
#include "base/compiler.h"
#include "support/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values as doubles: small ones, exact in every dtype that holds them ---- */

enum { MOST = 300000 };

static double get(deft_dtype t, const void *p, int64_t i)
{
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
        return ((const bool *)p)[i];
    INT_REF_CASES:
        return int_ref_double(t, int_ref_get(t, p, (size_t)i));
    case DEFT_F32: return (double)((const float *)p)[i];
    case DEFT_F64: return ((const double *)p)[i];
    case DEFT_F16:
    case DEFT_BF16: return half_value(t, ((const uint16_t *)p)[i]);
    }
    return 0;
}

static void put(deft_dtype t, void *p, int64_t i, double v)
{
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
        ((bool *)p)[i] = v != 0;
        return;
    INT_REF_CASES:
        int_ref_put(t, p, (size_t)i, (int64_t)v);
        return;
    case DEFT_F32: ((float *)p)[i] = (float)v; return;
    case DEFT_F64: ((double *)p)[i] = v; return;
    case DEFT_F16:
    case DEFT_BF16: ((uint16_t *)p)[i] = half_bits(t, v); return;
    }
}

static bool same(double a, double b)
{
    return (a != a && b != b) || (a == b && signbit(a) == signbit(b));
}

static void expect(rig *r, const char *what, deft_tensor *t, deft_dtype dtype, deft_shape shape,
                   const double *want)
{
    cr_assert_not_null(t, "%s: %s", what, deft_message(r->cx));
    cr_assert_eq(deft_dtype_of(t), dtype, "%s: %s", what, deft_dtype_name(deft_dtype_of(t)));
    const deft_shape s = deft_shape_get(t);
    cr_assert_eq(s.rank, shape.rank, "%s: rank %u", what, s.rank);
    for (uint32_t i = 0; i < s.rank; i++)
        cr_assert_eq(s.dim[i], shape.dim[i], "%s: axis %u is %d", what, i, (int)s.dim[i]);
    const int64_t n = deft_numel(t);
    const size_t bytes = (size_t)n * deft_dtype_size(dtype);
    char *const got = malloc(bytes + 1);
    OK(r, deft_read(t, dtype, got, bytes));
    for (int64_t i = 0; i < n; i++)
        cr_assert(same(get(dtype, got, i), want[i]), "%s: element %d is %g, not %g", what, (int)i,
                  get(dtype, got, i), want[i]);
    free(got);
}
#define EXPECT(r, what, t, dtype, shape, ...)                                                      \
    expect((r), (what), (t), (dtype), (shape), (const double[]){ __VA_ARGS__ })

static void expect_count(rig *r, const char *what, deft_tensor *count, double want)
{
    expect(r, what, count, DEFT_I64, DEFT_SHAPE(), &want);
}

static deft_tensor *from(rig *r, deft_dtype t, int64_t n, const double *v)
{
    double buf[64];
    for (int64_t i = 0; i < n; i++) put(t, buf, i, v[i]);
    return deft_from(r->cx, DEFT_SHAPE(n), t, buf, (size_t)n * deft_dtype_size(t));
}

/* ---- by hand ---- */

Test(sizes, values_of_every_dtype)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int t = 0; t < DF_N_RECORDED; t++) {
        const deft_dtype d = (deft_dtype)t;
        const char *const name = deft_dtype_name(d);
        deft_tensor *n;
        if (d == DEFT_BOOL) {
            deft_tensor *const x = from(&r, d, 5, (const double[]){ 0, 1, 1, 0, 1 });
            EXPECT(&r, name, deft_nonzero(x, 4, &n), DEFT_I64, DEFT_SHAPE(4, 1), 1, 2, 4, 0);
            expect_count(&r, name, n, 3);
            EXPECT(&r, name, deft_unique(x, 3, &n), d, DEFT_SHAPE(3), 0, 1, 0);
            expect_count(&r, name, n, 2);
            EXPECT(&r, name, deft_argsort(x, 0, 0), DEFT_I64, DEFT_SHAPE(5), 0, 3, 1, 2, 4);
            EXPECT(&r, name, deft_argsort(x, 0, 1), DEFT_I64, DEFT_SHAPE(5), 1, 2, 4, 0, 3);
            EXPECT(&r, name, deft_sort(x, 0, 1), d, DEFT_SHAPE(5), 1, 1, 1, 0, 0);
            EXPECT(&r, name, deft_compress(x, x, 5, NULL), d, DEFT_SHAPE(5), 1, 1, 1, 0, 0);
            continue;
        }
        deft_tensor *const x = from(&r, d, 7, (const double[]){ 3, 0, 7, 3, 0, 100, 1 });
        deft_tensor *const is = from(&r, DEFT_BOOL, 7, (const double[]){ 1, 1, 0, 0, 1, 1, 0 });
        EXPECT(&r, name, deft_nonzero(x, 6, &n), DEFT_I64, DEFT_SHAPE(6, 1), 0, 2, 3, 5, 6, 0);
        expect_count(&r, name, n, 5);
        EXPECT(&r, name, deft_compress(x, is, 6, &n), d, DEFT_SHAPE(6), 3, 0, 0, 100, 0, 0);
        expect_count(&r, name, n, 4);
        EXPECT(&r, name, deft_unique(x, 7, &n), d, DEFT_SHAPE(7), 0, 1, 3, 7, 100, 0, 0);
        expect_count(&r, name, n, 5);
        EXPECT(&r, name, deft_argsort(x, -1, 0), DEFT_I64, DEFT_SHAPE(7), 1, 4, 6, 0, 3, 2, 5);
        EXPECT(&r, name, deft_argsort(x, -1, 1), DEFT_I64, DEFT_SHAPE(7), 5, 2, 0, 3, 6, 1, 4);
        EXPECT(&r, name, deft_sort(x, 0, 0), d, DEFT_SHAPE(7), 0, 0, 1, 3, 3, 7, 100);
        EXPECT(&r, name, deft_sort(x, 0, 1), d, DEFT_SHAPE(7), 100, 7, 3, 3, 1, 0, 0);
    }
    rig_close(&r);
}

/* Signs, NaN, zeros, and keys that differ in one half alone. */
Test(sizes, order_of_special_values)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *n;
    const double inf = HUGE_VAL, nan = NAN;
    for (int t = DEFT_F32; t <= DEFT_F64; t++) {
        const deft_dtype d = (deft_dtype)t;
        const char *const name = deft_dtype_name(d);
        deft_tensor *const x =
            from(&r, d, 10, (const double[]){ nan, -0.0, 1, -inf, 0.0, -1, inf, -nan, -2, 0.0 });
        EXPECT(&r, name, deft_argsort(x, 0, 0), DEFT_I64, DEFT_SHAPE(10), 3, 8, 5, 1, 4, 9, 2, 6, 0,
               7);
        EXPECT(&r, name, deft_argsort(x, 0, 1), DEFT_I64, DEFT_SHAPE(10), 0, 7, 6, 2, 1, 4, 9, 5, 8,
               3);
        EXPECT(&r, name, deft_unique(x, 9, &n), d, DEFT_SHAPE(9), -inf, -2, -1, -0.0, 1, inf, nan,
               0, 0);
        expect_count(&r, name, n, 7);
        EXPECT(&r, name, deft_nonzero(x, 7, &n), DEFT_I64, DEFT_SHAPE(7, 1), 0, 2, 3, 5, 6, 7, 8);
        expect_count(&r, name, n, 7);
        const double least = d == DEFT_F32 ? 0x1p-149 : 0x1p-1074;
        deft_tensor *const y = from(&r, d, 4, (const double[]){ least, 0, -least, least });
        EXPECT(&r, name, deft_argsort(y, 0, 0), DEFT_I64, DEFT_SHAPE(4), 2, 1, 0, 3);
        EXPECT(&r, name, deft_nonzero(y, 4, NULL), DEFT_I64, DEFT_SHAPE(4, 1), 0, 2, 3, 0);
    }
    const int64_t v[8] = { INT64_MAX, 0, INT64_MIN, -1, 1, (int64_t)1 << 32, INT64_MIN + 1, -1 };
    deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(8), DEFT_I64, v, sizeof v);
    EXPECT(&r, "i64", deft_argsort(x, 0, 0), DEFT_I64, DEFT_SHAPE(8), 2, 6, 3, 7, 1, 4, 5, 0);
    EXPECT(&r, "i64", deft_argsort(x, 0, 1), DEFT_I64, DEFT_SHAPE(8), 0, 5, 4, 1, 3, 7, 6, 2);
    expect_count(&r, "i64", (deft_unique(x, 0, &n), n), 7);
    const int32_t w[4] = { INT32_MIN, INT32_MAX, -1, 0 };
    deft_tensor *const y = deft_from(r.cx, DEFT_SHAPE(4), DEFT_I32, w, sizeof w);
    EXPECT(&r, "i32", deft_argsort(y, 0, 0), DEFT_I64, DEFT_SHAPE(4), 0, 2, 3, 1);
    rig_close(&r);
}

Test(sizes, edges)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *n;
    deft_tensor *const zeros = deft_zeros(r.cx, DEFT_SHAPE(2, 3), DEFT_F32);
    deft_tensor *const x = rig_range(&r, 6, 1);
    EXPECT(&r, "none", deft_nonzero(zeros, 2, &n), DEFT_I64, DEFT_SHAPE(2, 2), 0, 0, 0, 0);
    expect_count(&r, "none", n, 0);
    EXPECT(&r, "no room", deft_nonzero(x, 0, &n), DEFT_I64, DEFT_SHAPE(0, 1), 0);
    expect_count(&r, "no room", n, 6);
    EXPECT(&r, "little room", deft_nonzero(x, 2, &n), DEFT_I64, DEFT_SHAPE(2, 1), 0, 1);
    expect_count(&r, "little room", n, 6);
    EXPECT(&r, "little room", deft_compress(x, deft_gt(x, 2), 2, &n), DEFT_F32, DEFT_SHAPE(2), 3,
           4);
    expect_count(&r, "little room", n, 4);
    EXPECT(&r, "little room", deft_unique(x, 2, &n), DEFT_F32, DEFT_SHAPE(2), 1, 2);
    expect_count(&r, "little room", n, 6);

    deft_tensor *const nothing = deft_zeros(r.cx, DEFT_SHAPE(3, 0), DEFT_F32);
    deft_tensor *const no = deft_zeros(r.cx, DEFT_SHAPE(3, 0), DEFT_BOOL);
    EXPECT(&r, "empty", deft_nonzero(nothing, 2, &n), DEFT_I64, DEFT_SHAPE(2, 2), 0, 0, 0, 0);
    expect_count(&r, "empty", n, 0);
    EXPECT(&r, "empty", deft_compress(nothing, no, 2, &n), DEFT_F32, DEFT_SHAPE(2), 0, 0);
    expect_count(&r, "empty", n, 0);
    EXPECT(&r, "empty", deft_unique(nothing, 2, &n), DEFT_F32, DEFT_SHAPE(2), 0, 0);
    expect_count(&r, "empty", n, 0);
    EXPECT(&r, "empty", deft_sort(nothing, 1, 0), DEFT_F32, DEFT_SHAPE(3, 0), 0);
    EXPECT(&r, "empty", deft_argsort(nothing, 0, 1), DEFT_I64, DEFT_SHAPE(3, 0), 0);

    deft_tensor *const one = deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 5);
    EXPECT(&r, "0-d", deft_nonzero(one, 3, &n), DEFT_I64, DEFT_SHAPE(3, 0), 0);
    expect_count(&r, "0-d", n, 1);
    EXPECT(&r, "0-d", deft_unique(one, 2, &n), DEFT_F32, DEFT_SHAPE(2), 5, 0);
    EXPECT(&r, "0-d", deft_compress(one, deft_gt(one, 1), 2, &n), DEFT_F32, DEFT_SHAPE(2), 5, 0);
    expect_count(&r, "0-d", n, 1);

    /* A mask that broadcasts, and one row over. */
    deft_tensor *const t = deft_reshape(x, DEFT_SHAPE(2, 3));
    deft_tensor *const is = from(&r, DEFT_BOOL, 3, (const double[]){ 1, 0, 1 });
    EXPECT(&r, "broadcast", deft_compress(t, is, 5, &n), DEFT_F32, DEFT_SHAPE(5), 1, 3, 4, 6, 0);
    expect_count(&r, "broadcast", n, 4);
    rig_close(&r);
}

/* Integers of 32 bits, the least and the greatest among them: sorted as halves of words. */
Test(sizes, unique_all_of_halves_of_words)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const deft_dtype d = is_signed ? DEFT_I32 : DEFT_U32;
        const double low = is_signed ? -2147483648.0 : 0,
                     top = is_signed ? 2147483647.0 : 4294967295.0;
        const double next = is_signed ? -1 : 1;
        deft_tensor *const x = from(&r, d, 6, (const double[]){ 7, top, low, 7, next, low });
        deft_tensor *at, *inverse, *counts, *n;
        deft_tensor *const v = deft_unique_all(x, 5, &at, &inverse, &counts, &n);
        EXPECT(&r, "values", v, d, DEFT_SHAPE(5), low, next, 7, top, 0);
        EXPECT(&r, "indices", at, DEFT_I64, DEFT_SHAPE(5), 2, 4, 0, 1, 0);
        EXPECT(&r, "inverse", inverse, DEFT_I64, DEFT_SHAPE(6), 2, 3, 0, 2, 1, 0);
        EXPECT(&r, "counts", counts, DEFT_I64, DEFT_SHAPE(5), 2, 1, 2, 1, 0);
        expect_count(&r, "count", n, 4);
    }
    rig_close(&r);
}

static void refuse(rig *r, deft_tensor *t, deft_status st, const char *words)
{
    cr_assert_null(t, "%s", words);
    cr_assert_eq(deft_error(r->cx), st, "%s: %s", words, deft_message(r->cx));
    cr_assert(strstr(deft_message(r->cx), words), "%s", deft_message(r->cx));
    deft_clear(r->cx);
}

Test(sizes, refusals)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 6, 0), *n = x;
    refuse(&r, deft_nonzero(x, -1, &n), DEFT_E_RANGE, "nonzero: room for -1");
    cr_assert_null(n, "no count without a result");
    refuse(&r, deft_unique(x, -2, NULL), DEFT_E_RANGE, "unique: room for -2");
    refuse(&r, deft_compress(x, x, 1, NULL), DEFT_E_DTYPE, "compress: the mask is f32, not bool");
    deft_tensor *const is = deft_ones(r.cx, DEFT_SHAPE(5), DEFT_BOOL);
    refuse(&r, deft_compress(x, is, 1, NULL), DEFT_E_SHAPE, "[5]");
    refuse(&r, deft_compress(x, is, -3, NULL), DEFT_E_RANGE, "compress: room for -3");
    refuse(&r, deft_sort(x, 1, 0), DEFT_E_RANGE, "sort: axis 1");
    refuse(&r, deft_argsort(deft_full(r.cx, DEFT_SHAPE(), DEFT_F32, 5), 0, 0), DEFT_E_RANGE,
           "argsort: axis 0");
    deft_tensor *const huge = deft_zeros(r.cx, DEFT_SHAPE((int64_t)1 << 32), DEFT_U8);
    refuse(&r, deft_argsort(huge, 0, 0), DEFT_E_LIMIT, "2^32");
    refuse(&r, deft_unique(huge, 9, NULL), DEFT_E_LIMIT, "2^32");
    cr_assert_null(deft_nonzero(NULL, 1, &n));
    deft_clear(r.cx);
    rig_close(&r);
}

/* ---- at random, against plain C ---- */

typedef struct way {
    deft_tier tier;
    uint32_t n_threads;
    int no_fusion;
} way;

static const way ways[] = {
    { DEFT_TIER_INTERPRET, 1, 1 }, { DEFT_TIER_INTERPRET, 2, 0 }, { DEFT_TIER_QUICK, 3, 0 },
    { DEFT_TIER_FULL, 1, 0 },      { DEFT_TIER_FULL, 4, 0 },
};

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

/* What a view shows, row-major. */
typedef struct seen {
    deft_shape shape;
    int64_t n;
    double *v;
    bool *is;
} seen;

static const double *keys;
static int by_key(const void *a, const void *b)
{
    const int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    const double x = keys[i], y = keys[k];
    if (x != x || y != y) return x == x ? -1 : y == y ? 1 : (i > k) - (i < k);
    return x < y ? -1 : x > y ? 1 : (i > k) - (i < k);
}
static int by_key_down(const void *a, const void *b)
{
    const int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    const double x = keys[i], y = keys[k];
    if (x != x || y != y) return x == x ? 1 : y == y ? -1 : (i > k) - (i < k);
    return x > y ? -1 : x < y ? 1 : (i > k) - (i < k);
}

static void check_nonzero(rig *r, const char *what, deft_tensor *t, const seen *s, int64_t max)
{
    double *const want = calloc((size_t)(max * s->shape.rank) + 1, sizeof *want);
    deft_tensor *n;
    int64_t found = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->v[i] == 0) continue;
        int64_t rest = i;
        for (uint32_t k = s->shape.rank; k-- > 0 && found < max;) {
            want[found * s->shape.rank + k] = (double)(rest % s->shape.dim[k]);
            rest /= s->shape.dim[k];
        }
        found++;
    }
    expect(r, what, deft_nonzero(t, max, &n), DEFT_I64, DEFT_SHAPE(max, s->shape.rank), want);
    expect_count(r, what, n, (double)found);
    free(want);
}

static void check_compress(rig *r, const char *what, deft_tensor *t, deft_tensor *mask,
                           const seen *s, int64_t max)
{
    double *const want = calloc((size_t)max + 1, sizeof *want);
    deft_tensor *n;
    int64_t found = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->is[i] && found++ < max) want[found - 1] = s->v[i];
    expect(r, what, deft_compress(t, mask, max, &n), deft_dtype_of(t), DEFT_SHAPE(max), want);
    expect_count(r, what, n, (double)found);
    free(want);
}

static void check_unique(rig *r, const char *what, deft_tensor *t, const seen *s, int64_t max)
{
    double *const want = calloc((size_t)max + 1, sizeof *want);
    int64_t *const at = malloc(((size_t)s->n + 1) * sizeof *at), found = 0;
    deft_tensor *n;
    for (int64_t i = 0; i < s->n; i++) at[i] = i;
    keys = s->v;
    qsort(at, (size_t)s->n, sizeof *at, by_key);
    for (int64_t i = 0; i < s->n; i++) {
        const double v = s->v[at[i]], last = i ? s->v[at[i - 1]] : 0;
        if (i && (v == last || (v != v && last != last))) continue;
        if (found++ < max) want[found - 1] = v;
    }
    expect(r, what, deft_unique(t, max, &n), deft_dtype_of(t), DEFT_SHAPE(max), want);
    expect_count(r, what, n, (double)found);
    free(want);
    free(at);
}

static void check_sort(rig *r, const char *what, deft_tensor *t, const seen *s, uint32_t axis,
                       bool down)
{
    double *const order = calloc((size_t)s->n + 1, sizeof *order);
    double *const value = calloc((size_t)s->n + 1, sizeof *value);
    const int64_t many = s->shape.dim[axis];
    int64_t by = 1;
    for (uint32_t k = axis + 1; k < s->shape.rank; k++) by *= s->shape.dim[k];
    int64_t *const at = malloc(((size_t)many + 1) * sizeof *at);
    for (int64_t first = 0; first < s->n; first++) {
        if (first / by % many != 0) continue;
        for (int64_t i = 0; i < many; i++) at[i] = first + i * by;
        keys = s->v;
        qsort(at, (size_t)many, sizeof *at, down ? by_key_down : by_key);
        for (int64_t i = 0; i < many; i++) {
            order[first + i * by] = (double)((at[i] - first) / by);
            value[first + i * by] = s->v[at[i]];
        }
    }
    expect(r, what, deft_argsort(t, (int)axis, down), DEFT_I64, s->shape, order);
    expect(r, what, deft_sort(t, (int)axis - (int)s->shape.rank, down), deft_dtype_of(t), s->shape,
           value);
    /* topk: the first elements along the axis */
    deft_shape some = s->shape;
    some.dim[axis] = (many * 2 + 1) / 3;
    int64_t n_some = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (i / by % many >= some.dim[axis]) continue;
        order[n_some] = order[i];
        value[n_some++] = value[i];
    }
    deft_tensor *chosen;
    expect(r, what, deft_topk(t, some.dim[axis], (int)axis, down, &chosen), deft_dtype_of(t), some,
           value);
    expect(r, what, chosen, DEFT_I64, some, order);
    free(order);
    free(value);
    free(at);
}

static double some_value(deft_dtype t, uint64_t *seed, unsigned spread)
{
    const uint64_t r = next(seed);
    const bool is_float = t != DEFT_BOOL && !int_ref_bits(t);
    if (r % 3 == 0) return is_float && r % 5 == 0 ? -0.0 : 0;
    if (is_float && r % 11 == 0) return NAN;
    if (is_float && r % 13 == 0) return r & 256 ? HUGE_VAL : -HUGE_VAL;
    const double v = (double)(next(seed) % spread) - (int_ref_is_unsigned(t) ? 0 : spread / 2);
    return t == DEFT_BOOL ? 1 : is_float ? v / 8 : v;
}

/* A view of n elements of data, `layout`: 0 plain, 1 flipped, 2 turned, 3 every second of the last
 * axis, 4 wrapped at an odd address, 5 computed, 6 a row repeated. */
static deft_tensor *view_of(rig *r, deft_dtype t, deft_shape s, char *data, int layout, seen *out)
{
    const size_t size = deft_dtype_size(t);
    int64_t n = 1, strides[DEFT_MAX_RANK], at[DEFT_MAX_RANK] = { 0 }, first = 0;
    deft_shape base = s;
    if (layout == 3 && s.rank) base.dim[s.rank - 1] *= 2;
    for (uint32_t i = 0; i < s.rank && layout == 2; i++) base.dim[i] = s.dim[s.rank - 1 - i];
    if (layout == 6 && s.rank) base.dim[0] = 1;
    int64_t by = 1, base_strides[DEFT_MAX_RANK];
    for (uint32_t i = base.rank; i-- > 0;) {
        base_strides[i] = by;
        by *= base.dim[i];
    }
    char *const from_data = data + (layout == 4);
    for (uint32_t i = 0; i < s.rank; i++) {
        n *= s.dim[i];
        strides[i] = base_strides[layout == 2 ? s.rank - 1 - i : i];
        if (layout == 1) {
            first += strides[i] * (s.dim[i] - 1);
            strides[i] = -strides[i];
        }
        if (layout == 3 && i + 1 == s.rank) strides[i] *= 2;
        if (layout == 6 && i == 0) strides[i] = 0;
    }
    if (n == 0) first = 0;
    out->shape = s;
    out->n = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, e = first;
        char one[8];
        for (uint32_t k = s.rank; k-- > 0;) {
            at[k] = rest % s.dim[k];
            rest /= s.dim[k];
            e += at[k] * strides[k];
        }
        memcpy(one, from_data + (size_t)e * size, size);
        out->v[i] = get(t, one, 0);
    }
    deft_tensor *x = deft_wrap(r->cx, base, t, from_data, (size_t)by * size, NULL);
    if (layout == 1) x = deft_flip(x, DEFT_ALL_AXES);
    if (layout == 2) {
        deft_axes order = { .n = s.rank };
        for (uint32_t i = 0; i < s.rank; i++) order.at[i] = (int32_t)(s.rank - 1 - i);
        x = deft_permute(x, order);
    }
    if (layout == 3 && s.rank) {
        deft_range ranges[DEFT_MAX_RANK];
        for (uint32_t i = 0; i < s.rank; i++) ranges[i] = DEFT_FULL;
        ranges[s.rank - 1] = DEFT_RS(0, DEFT_END, 2);
        x = deft_slice_n(x, s.rank, ranges);
    }
    if (layout == 5) x = t == DEFT_BOOL ? deft_logical_not(deft_logical_not(x)) : deft_add(x, 0);
    if (layout == 5 && t != DEFT_BOOL && !int_ref_bits(t)) /* -0 + 0 is 0 */
        for (int64_t i = 0; i < n; i++) out->v[i] += 0.0;
    if (layout == 6) x = deft_expand(x, s);
    return x;
}

static deft_shape some_shape(unsigned rank, uint64_t *seed, int64_t most)
{
    deft_shape s = { .rank = rank };
    for (uint32_t i = 0; i < rank; i++)
        s.dim[i] = next(seed) % 17 == 0 ? (int64_t)(next(seed) % 2)
                                        : 1 + (int64_t)(next(seed) % (uint64_t)most);
    return s;
}

static void one_case(rig *r, deft_dtype t, deft_shape s, int layout, uint64_t *seed, char *data,
                     bool *mask, seen *out)
{
    char what[120];
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    const int bits = int_ref_bits(t);
    const unsigned wide = bits == 8 ? 250 : bits == 16 ? 65000 : 1u << 20;
    const unsigned spread = next(seed) & 1 ? 9 : wide;
    cr_assert(2 * n + 8 <= MOST);
    for (int64_t i = 0; i < 2 * n + 8; i++) {
        char one[8];
        put(t, one, 0, some_value(t, seed, spread));
        memcpy(data + (layout == 4) + (size_t)i * deft_dtype_size(t), one, deft_dtype_size(t));
    }
    const uint64_t density = next(seed) % 5;
    for (int64_t i = 0; i < n; i++) mask[i] = density == 4 || next(seed) % 4 < density;
    const deft_scope sc = deft_scope_begin(r->cx);
    deft_tensor *const x = view_of(r, t, s, data, layout, out);
    deft_tensor *const is = deft_wrap(r->cx, s, DEFT_BOOL, mask, (size_t)n, NULL);
    out->is = mask;
    snprintf(what, sizeof what, "%s rank %u of %d layout %d", deft_dtype_name(t), s.rank, (int)n,
             layout);
    const int64_t max = (int64_t)(next(seed) % (uint64_t)(n + 10));
    check_nonzero(r, what, x, out, max);
    check_compress(r, what, x, is, out, max);
    check_unique(r, what, x, out, max);
    if (s.rank) check_sort(r, what, x, out, (uint32_t)(next(seed) % s.rank), next(seed) & 1);
    OK(r, deft_scope_end(sc));
}

Test(sizes, random_operands, .timeout = 200)
{
    char *const data = malloc(MOST * 8 + 16);
    bool *const mask = malloc(MOST);
    seen out = { .v = malloc(MOST * sizeof(double)) };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        rig r;
        const deft_runtime_options o = { .size = sizeof o,
                                         .tier = ways[w].tier,
                                         .n_threads = ways[w].n_threads };
        const deft_ctx_options c = { .size = sizeof c, .no_fusion = ways[w].no_fusion };
        const double share = (double)(w + 1) / (sizeof ways / sizeof *ways);
        uint64_t seed = 5;
        rig_open(&r, &o, &c);
        for (int i = 0; i < 105; i++) {
            if (i >= 3 && !test_time_left(share)) break;
            const int k = (int)test_scattered((uint32_t)i, 105);
            const deft_dtype t = (deft_dtype)(k % DF_N_RECORDED);
            const unsigned rank = (unsigned)(k / 6) % 5;
            const int64_t most[5] = { 1, 300, 20, 9, 6 };
            one_case(&r, t, some_shape(rank, &seed, most[rank]), (k / 5) % 7, &seed, data, mask,
                     &out);
        }
        /* Beyond what one task does, one row and many. Each way has another one first. */
        static const struct {
            deft_dtype t;
            int layout;
            deft_shape s;
        } large[] = {
            { DEFT_F32, 0, { 1, { 145000 } } },
            { DEFT_I64, 1, { 1, { 131073 } } },
            { DEFT_U8, 5, { 2, { 40, 3001 } } },
            { DEFT_F64, 4, { 2, { 5, 20011 } } },
        };
        for (size_t i = 0; i < DF_LEN(large) && (i == 0 || test_time_left(share)); i++) {
            const size_t k = (i + w) % DF_LEN(large);
            one_case(&r, large[k].t, large[k].s, large[k].layout, &seed, data, mask, &out);
        }
        rig_close(&r);
    }
    free(data);
    free(mask);
    free(out.v);
}

/* ---- plans ---- */

Test(sizes, other_sizes_run_the_same_kernels)
{
    rig r;
    const deft_runtime_options o = { .size = sizeof o, .tier = DEFT_TIER_QUICK, .n_threads = 1 };
    rig_open(&r, &o, NULL);
    static float x[5000];
    uint64_t seed = 9, built = 0, compiled = 0;
    for (int i = 0; i < 5000; i++) x[i] = (float)(next(&seed) % 3);
    for (int k = 0; k < 51; k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        const int64_t n = 2 + (int64_t)(next(&seed) % 2000), max = 2 + (int64_t)(next(&seed) % 900);
        deft_tensor *const t = deft_wrap(r.cx, DEFT_SHAPE(n), DEFT_F32, x, sizeof x, NULL);
        deft_tensor *const m = deft_wrap(r.cx, DEFT_SHAPE(2, n), DEFT_F32, x, sizeof x, NULL);
        deft_tensor *count[4];
        deft_tensor *all[9] = { deft_nonzero(t, max, &count[0]), deft_nonzero(m, max, &count[1]),
                                deft_compress(t, deft_gt(t, 1), max, &count[2]),
                                deft_unique(t, max, &count[3]), deft_sort(t, 0, 0) };
        memcpy(all + 5, count, sizeof count);
        for (int i = 0; i < 9; i++) OK(&r, deft_eval(&all[i], 1));
        OK(&r, deft_scope_end(s));
        if (k) continue;
        built = rig_stats(&r).plans_built;
        compiled = rig_stats(&r).kernels_compiled;
    }
    cr_expect_leq(rig_stats(&r).plans_built, built + 3, "%d plans, then %d", (int)built,
                  (int)rig_stats(&r).plans_built);
    cr_expect_leq(rig_stats(&r).kernels_compiled, compiled + 3, "%d kernels, then %d",
                  (int)compiled, (int)rig_stats(&r).kernels_compiled);
    rig_close(&r);
}

static uint64_t launches_of(rig *r, deft_tensor *t)
{
    const uint64_t before = rig_stats(r).launches;
    OK(r, deft_eval(&t, 1));
    return rig_stats(r).launches - before;
}

Test(sizes, launches)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 600, 0);
    deft_tensor *is = deft_gt(x, 3);
    OK(&r, deft_eval(&is, 1));
    cr_expect_eq(launches_of(&r, deft_nonzero(x, 50, NULL)), 1);
    cr_expect_eq(launches_of(&r, deft_nonzero(deft_reshape(x, DEFT_SHAPE(20, 30)), 50, NULL)), 2);
    cr_expect_eq(launches_of(&r, deft_compress(x, is, 50, NULL)), 1);
    cr_expect_eq(launches_of(&r, deft_compress(x, deft_lt(x, 9), 50, NULL)), 2);
    cr_expect_eq(launches_of(&r, deft_argsort(x, 0, 0)), 1);
    cr_expect_eq(launches_of(&r, deft_sort(x, 0, 0)), 1);
    cr_expect_eq(launches_of(&r, deft_unique(x, 50, NULL)), 3);
    rig_close(&r);
}

/* ---- in programs ---- */

/* The count is data: what it masks is summed in the same step, and the loop reads it at will. */
Test(sizes, count_is_data)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 20, 0);
    deft_tensor *const total = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(), DEFT_F32));
    deft_tensor *const many = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(), DEFT_I64));
    int64_t places[8];
    deft_tensor *const out =
        deft_wrap_mut(r.cx, DEFT_SHAPE(8), DEFT_I64, places, sizeof places, NULL);
    for (int k = 0; k < 3; k++) {
        memset(places, 0xA5, sizeof places);
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *n, *m;
        deft_tensor *const v = deft_compress(x, deft_ge(x, 14 + k), 10, &n);
        deft_tensor *const live = deft_lt(deft_iota(r.cx, DEFT_SHAPE(10), 0), n);
        deft_assign(total, deft_sum(deft_where(live, deft_add(v, 100), deft_num(r.cx, 0)),
                                    DEFT_ALL_AXES, 0));
        deft_assign(many, n);
        deft_assign(out, deft_squeeze(deft_nonzero(deft_gt(x, 15 + k), 8, &m), DEFT_AXES(1)));
        OK(&r, deft_step_end(s));
        int64_t got = 0;
        OK(&r, deft_item(many, &got));
        cr_expect_eq(got, 6 - k);
        float want = 0;
        for (int i = 14 + k; i < 20; i++) want += (float)(100 + i);
        cr_expect_eq(rig_item(&r, total), want);
        for (int i = 0; i < 8; i++)
            cr_expect_eq(places[i], i < 4 - k ? 16 + k + i : 0, "place %d: %d", i, (int)places[i]);
    }
    rig_close(&r);
}

/* Sorting a tensor into itself: the old values are read before they go. */
Test(sizes, sorted_in_place)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(from(&r, DEFT_I64, 6, (const double[]){ 5, 2, 4, 0, 3, 1 }));
    for (int k = 0; k < 3; k++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(x, deft_argsort(x, 0, k & 1));
        OK(&r, deft_step_end(s));
    }
    /* [3,5,1,4,2,0], then down [1,3,0,4,2,5], then up again */
    EXPECT(&r, "thrice", x, DEFT_I64, DEFT_SHAPE(6), 2, 0, 4, 1, 3, 5);
    int64_t memory[4] = { 3, 1, 2, 0 };
    deft_tensor *const m =
        deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_I64, memory, sizeof memory, NULL);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(m, deft_argsort(m, 0, 0));
    OK(&r, deft_step_end(s));
    cr_expect(memory[0] == 3 && memory[1] == 1 && memory[2] == 2 && memory[3] == 0);
    rig_close(&r);
}
