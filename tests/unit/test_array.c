/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of deft/array.h, beyond the values that tests/array compares with NumPy: room that is
 * too small, halves, bare numbers, gradients where values are equal, captures, views that may be
 * assigned, and how many kernels a search takes.
 */
#include "support/harness.h"

#include <math.h>
#include <string.h>

#define EXPECT RIG_EXPECT

static deft_tensor *integers(rig *r, int64_t n, const int32_t *v)
{
    return deft_from(r->cx, DEFT_SHAPE(n), DEFT_I32, v, (size_t)n * sizeof *v);
}

/* Bins of equal width are found without a search. They are those of the edges. */
Test(array, histc_has_the_bins_of_its_edges)
{
    enum { SIZE = 4000 };
    static const struct {
        double low, high;
        int64_t n;
    } rows[] = { { 0, 1, 1 },       { 0, 1, 10 },         { -3, 7, 97 },         { 0.1, 0.7, 256 },
                 { 1000, 1001, 7 }, { 1000, 1001, 3000 }, { -1e-30, 1e-30, 50 }, { -3e38, 3e38, 9 },
                 { 0, 1e-42, 4 },   { -1, 1, 70000 } };
    rig r;
    rig_open(&r, NULL, NULL);
    uint32_t state = 5;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        static float x[SIZE];
        static int64_t got[70000], want[70000];
        const deft_scope s = deft_scope_begin(r.cx);
        const float width = (float)(rows[k].high - rows[k].low);
        for (int i = 0; i < SIZE; i++) {
            state = state * 1664525u + 1013904223u;
            const int64_t edge = state % (rows[k].n + 1);
            const float at = (float)rows[k].low + (float)edge * (width / (float)rows[k].n);
            x[i] = i % 3 == 0   ? (float)rows[k].low + width * ((float)(state >> 8) * 0x1.2p-24f)
                   : i % 3 == 1 ? at
                                : nextafterf(at, state & 1024 ? INFINITY : -INFINITY);
        }
        x[0] = NAN, x[1] = INFINITY, x[2] = -INFINITY, x[3] = (float)rows[k].high;
        deft_tensor *const t = deft_from(r.cx, DEFT_SHAPE(SIZE), DEFT_F32, x, sizeof x);
        deft_tensor *const edges =
            deft_linspace(r.cx, rows[k].low, rows[k].high, rows[k].n + 1, DEFT_F32);
        const size_t bytes = (size_t)rows[k].n * 8;
        OK(&r,
           deft_read(deft_histc(t, rows[k].n, rows[k].low, rows[k].high), DEFT_I64, got, bytes));
        OK(&r, deft_read(deft_histogram(t, edges), DEFT_I64, want, bytes));
        cr_expect(!memcmp(got, want, bytes), "%g to %g in %d bins", rows[k].low, rows[k].high,
                  (int)rows[k].n);
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
}

Test(array, unique_all_counts_what_has_no_room)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = integers(&r, 7, (const int32_t[]){ 5, 3, 5, 9, 3, 5, 1 });
    deft_tensor *indices, *inverse, *counts, *count;
    deft_tensor *values = deft_unique_all(x, 3, &indices, &inverse, &counts, &count);
    EXPECT(&r, values, 1, 3, 5);
    EXPECT(&r, indices, 6, 1, 0);
    EXPECT(&r, counts, 1, 2, 3);
    EXPECT(&r, inverse, 2, 1, 2, 3, 1, 2, 0);
    EXPECT(&r, count, 4);
    values = deft_unique_all(x, 6, &indices, NULL, &counts, NULL);
    EXPECT(&r, values, 1, 3, 5, 9, 0, 0);
    EXPECT(&r, indices, 6, 1, 0, 3, 0, 0);
    EXPECT(&r, counts, 1, 2, 3, 1, 0, 0);
    rig_expect(&r, deft_unique_all(x, 0, NULL, NULL, NULL, &count), 0, NULL);
    EXPECT(&r, count, 4);
    indices = x;
    rig_expect_error(&r, deft_unique_all(x, -1, &indices, NULL, NULL, NULL), DEFT_E_RANGE,
                     "unique_all: room for -1");
    cr_assert_null(indices);
    rig_close(&r);
}

Test(array, repetitions_that_are_data_fill_the_room)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 3, 1);
    deft_tensor *const n = integers(&r, 3, (const int32_t[]){ 2, -4, 1 });
    EXPECT(&r, deft_repeat_t(x, n, 0, 3), 1, 1, 3);
    EXPECT(&r, deft_repeat_t(x, n, 0, 2), 1, 1);
    EXPECT(&r, deft_repeat_t(x, n, 0, 5), 1, 1, 3, 0, 0);
    EXPECT(&r, deft_repeat_t(deft_zeros(r.cx, DEFT_SHAPE(0), DEFT_F32), deft_num_i(r.cx, 2), 0, 2),
           0, 0);
    deft_tensor *const m = deft_reshape(rig_range(&r, 4, 1), DEFT_SHAPE(2, 2));
    EXPECT(&r, deft_repeat_t(m, deft_num_i(r.cx, 2), -1, 4), 1, 1, 2, 2, 3, 3, 4, 4);
    rig_expect_error(&r, deft_repeat_t(x, integers(&r, 2, (const int32_t[]){ 1, 1 }), 0, 2),
                     DEFT_E_SHAPE, "repeat_t: repeats are [2], axis 0 has 3 elements");
    rig_close(&r);
}

Test(array, std_has_a_gradient_where_elements_are_equal)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const same = RIG_VECTOR(&r, 3, 3, 3), *const other = RIG_VECTOR(&r, 1, 2, 3);
    EXPECT(&r, rig_grad_of_sum(deft_std(same, DEFT_ALL_AXES, 0, 0), same), 0, 0, 0);
    EXPECT(&r, rig_grad_of_sum(deft_std(other, DEFT_ALL_AXES, 0, 1), other), -0.5f, 0, 0.5f);
    EXPECT(&r, deft_std(same, DEFT_ALL_AXES, 0, 3), NAN);
    EXPECT(&r, deft_std(other, DEFT_ALL_AXES, 0, 3), INFINITY);
    rig_close(&r);
}

Test(array, a_running_product_has_a_gradient_at_zeros)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, 2, 0, 3, 0, 5);
    /* 2 + 0 + ..: the products that lack the first zero are 2, 6, 0, 0 */
    EXPECT(&r, rig_grad_of_sum(deft_cumprod(x, 0), x), 1, 8, 0, 0, 0);
    deft_tensor *const y = RIG_VECTOR(&r, 1, 5, 2, 5, 7);
    EXPECT(&r, rig_grad_of_sum(deft_cummax(y, 0), y), 1, 2, 0, 1, 1);
    deft_tensor *const z = RIG_VECTOR(&r, 1, NAN, 2, NAN);
    EXPECT(&r, rig_grad_of_sum(deft_cummin(z, 0), z), 1, 2, 0, 1);
    rig_close(&r);
}

Test(array, logaddexp_weighs_operands_that_are_equal_alike)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const a = RIG_VECTOR(&r, -INFINITY, INFINITY, 3, 1000);
    deft_tensor *const b = RIG_VECTOR(&r, -INFINITY, INFINITY, 3, -1000);
    EXPECT(&r, rig_grad_of_sum(deft_logaddexp(a, b), a), 0.5f, 0.5f, 0.5f, 1);
    EXPECT(&r, deft_logaddexp(a, -INFINITY), -INFINITY, INFINITY, 3, 1000);
    rig_close(&r);
}

Test(array, integers_that_are_rounded_are_the_same_values)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = integers(&r, 2, (const int32_t[]){ 2147483647, -5 });
    cr_assert_eq(deft_dtype_of(deft_floor(x)), DEFT_I32);
    cr_assert_eq(deft_dtype_of(deft_round(x)), DEFT_I32);
    EXPECT(&r, deft_sub(deft_ceil(x), x), 0, 0);
    EXPECT(&r, deft_sub(deft_trunc(x), x), 0, 0);
    cr_assert_eq(deft_dtype_of(deft_floor(deft_gt(x, 0))), DEFT_F32);
    rig_close(&r);
}

Test(array, powers_of_integers_are_exact_and_wrap)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const int64_t base[6] = { 3, -3, 2, -1, 7, 0 }, power[6] = { 39, 39, 63, 5, 100, 0 };
    int64_t got[6], want[6] = { 4052555153018976267, -4052555153018976267, INT64_MIN, -1, 1, 1 };
    for (int i = 0; i < 100; i++) want[4] = (int64_t)((uint64_t)want[4] * 7);
    deft_tensor *const a = deft_from(r.cx, DEFT_SHAPE(6), DEFT_I64, base, sizeof base);
    deft_tensor *const b = deft_from(r.cx, DEFT_SHAPE(6), DEFT_I64, power, sizeof power);
    OK(&r, deft_read(deft_pow(a, b), DEFT_I64, got, sizeof got));
    for (int i = 0; i < 6; i++) cr_expect_eq(got[i], want[i], "%d: %lld", i, (long long)got[i]);
    /* a negative power of data */
    EXPECT(&r,
           deft_pow(integers(&r, 4, (const int32_t[]){ 1, -1, 2, 0 }),
                    deft_neg(deft_ones(r.cx, DEFT_SHAPE(4), DEFT_I32))),
           1, -1, 0, 0);
    rig_expect_error(&r, deft_pow(a, -1), DEFT_E_RANGE,
                     "pow: i64 to the power -1 is no integer: cast to a float first");
    rig_close(&r);
}

Test(array, neighbours_of_halves_are_halves)
{
    static const deft_dtype halves[2] = { DEFT_F16, DEFT_BF16 };
    static const uint16_t infinity[2] = { 0x7c00, 0x7f80 };
    rig r;
    rig_open(&r, NULL, NULL);
    for (int h = 0; h < 2; h++) {
        uint16_t all[0x7fff];
        for (uint32_t b = 0; b < 0x7fff; b++) all[b] = (uint16_t)b;
        static uint16_t above[0x7fff], below[0x7fff];
        deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(0x7fff), halves[h], all, sizeof all);
        OK(&r, deft_read(deft_nextafter(x, INFINITY), halves[h], above, sizeof above));
        OK(&r, deft_read(deft_nextafter(x, -INFINITY), halves[h], below, sizeof below));
        for (uint32_t b = 0; b <= infinity[h]; b++) {
            const uint32_t next = b == infinity[h] ? b : b + 1;
            cr_assert_eq(above[b], next, "%s %x: %x", deft_dtype_name(halves[h]), b, above[b]);
            const uint32_t before = b ? b - 1 : 0x8001;
            cr_assert_eq(below[b], before, "%s %x: %x", deft_dtype_name(halves[h]), b, below[b]);
        }
    }
    rig_close(&r);
}

Test(array, a_search_is_one_kernel)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const sorted = deft_keep(deft_arange(r.cx, 0, 1000, 1, DEFT_F32));
    deft_tensor *const x = RIG_VECTOR(&r, 0.5f, -1, 999.5f, 7, NAN);
    OK(&r, deft_eval(&sorted, 1));
    const deft_stats before = rig_stats(&r);
    EXPECT(&r, deft_mul(deft_searchsorted(sorted, x, true), 2), 2, 0, 2000, 16, 2000);
    const deft_stats after = rig_stats(&r);
    cr_expect_eq(after.launches - before.launches, 1, "%llu",
                 (unsigned long long)(after.launches - before.launches));
    rig_close(&r);
}

Test(array, numbers_among_operands_have_the_dtype_of_the_tensors)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const i = integers(&r, 2, (const int32_t[]){ 1, 2 });
    deft_tensor *const u = deft_cast(i, DEFT_U8);
    deft_tensor *const half = deft_cast(i, DEFT_BF16);
    deft_tensor *const f = deft_num(r.cx, 0.5), *const n = deft_num_i(r.cx, 3);
#define TYPE(...)                                                                                  \
    deft_result_type((deft_tensor *const[]){ __VA_ARGS__ },                                        \
                     sizeof((deft_tensor *[]){ __VA_ARGS__ }) / sizeof(deft_tensor *))
    cr_expect_eq(TYPE(i, u), DEFT_I32);
    cr_expect_eq(TYPE(u, n), DEFT_U8);
    cr_expect_eq(TYPE(n, u, f), DEFT_F32);
    cr_expect_eq(TYPE(half, f), DEFT_BF16);
    cr_expect_eq(TYPE(n), DEFT_I64);
    cr_expect_eq(TYPE(n, f), DEFT_F32);
    cr_expect_eq(TYPE(deft_gt(i, i), n), DEFT_I64);
    cr_expect_eq(deft_result_type(NULL, 0), DEFT_BOOL);
    cr_expect(deft_can_cast(DEFT_F16, DEFT_F32));
    cr_expect(!deft_can_cast(DEFT_F32, DEFT_F16));
    cr_expect(!deft_can_cast((deft_dtype)99, DEFT_F16));
    cr_expect_eq(deft_finfo(DEFT_BF16).max, 0x1.fep127);
    cr_expect_eq(deft_finfo(DEFT_BF16).smallest_normal, 0x1p-126);
    cr_expect_eq(deft_finfo(DEFT_I32).bits, 0);
    cr_expect_eq(deft_iinfo(DEFT_F32).bits, 0);
    cr_expect_eq(deft_iinfo(DEFT_BOOL).bits, 0);
    rig_close(&r);
}

Test(array, views_can_be_assigned)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(2, 3), DEFT_F32));
    deft_tensor *row[3];
    OK(&r, deft_unstack(x, 1, 3, row));
    deft_assign(row[1], 7);
    EXPECT(&r, x, 0, 7, 0, 0, 7, 0);
    deft_assign(deft_slice(deft_moveaxis(x, DEFT_AXES(1), DEFT_AXES(0)), DEFT_AT(2)), 9);
    EXPECT(&r, x, 0, 7, 9, 0, 7, 9);
    rig_close(&r);
}

typedef struct parts {
    rig r;
    deft_tensor *x;
} parts;

static deft_status arranged(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const sorted = deft_sort(in[0], 0, false);
    deft_tensor *const at = deft_searchsorted(sorted, deft_flip(in[0], DEFT_ALL_AXES), false);
    deft_tensor *const grown = deft_cumulative_sum(deft_cast(at, DEFT_F32), 0, true);
    out[0] = deft_add(deft_std(grown, DEFT_ALL_AXES, 0, 0), deft_roll(in[0], 2, DEFT_FLAT));
    return out[0] ? DEFT_OK : deft_error(cx);
}

Test(array, captures_hold_no_number_that_must_change)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, 3, 1, 2), *want = NULL, *got = NULL;
    float a[3], b[3];
    OK(&r, arranged(r.cx, &x, 1, &want, 1, NULL));
    rig_read(&r, want, a, 3);
    deft_capture *c = deft_capture_create(r.cx, arranged, NULL);
    for (int i = 0; i < 3; i++) {
        OK(&r, deft_capture_call(c, &x, 1, &got, 1));
        rig_read(&r, got, b, 3);
        cr_assert_eq(memcmp(a, b, sizeof a), 0);
    }
    deft_capture_destroy(&c);
    rig_close(&r);
}

/* ---- sets of integers ---- */

typedef struct set_case {
    deft_dtype t;
    uint64_t base, range; /* integers are base + [0, range), in the bits of t */
} set_case;

enum { SET_VALUES = 20000, SET_ELEMENTS = 40 };

static uint64_t set_draw(const set_case *x, uint32_t *state)
{
    const uint64_t high = *state = *state * 1664525u + 1013904223u;
    const uint64_t low = *state = *state * 1664525u + 1013904223u;
    return x->base + (high << 32 ^ low >> 8 ^ high) % x->range;
}

static deft_tensor *set_tensor(rig *r, deft_dtype t, const uint64_t *bits, int64_t n)
{
    return deft_cast(deft_from(r->cx, DEFT_SHAPE(n), DEFT_U64, bits, (size_t)n * 8), t);
}

static deft_status set_rows(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_isin(in[0], in[1], false);
    return DEFT_OK;
}

/* By itself, by deft_vmap with a set for all rows, and with a set for each. */
static void check_set(rig *r, const set_case *x)
{
    static uint64_t value[SET_VALUES], element[SET_ELEMENTS];
    static uint8_t want[SET_VALUES], got[SET_VALUES];
    const deft_scope s = deft_scope_begin(r->cx);
    const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * deft_dtype_size(x->t));
    uint32_t state = 7;
    for (int i = 0; i < SET_ELEMENTS; i++) element[i] = set_draw(x, &state);
    for (int i = 0; i < SET_VALUES; i++) {
        value[i] = i % 5 == 0 ? element[i % SET_ELEMENTS] : set_draw(x, &state);
        if (i % 7 == 0) value[i] = x->base + ((uint64_t)i << 40 | (uint64_t)i * 13);
        want[i] = 0;
        for (int k = 0; k < SET_ELEMENTS; k++) want[i] |= !((element[k] ^ value[i]) & mask);
    }
    deft_tensor *const t = set_tensor(r, x->t, value, SET_VALUES);
    deft_tensor *const set = set_tensor(r, x->t, element, SET_ELEMENTS);
    deft_tensor *const rows = deft_reshape(t, DEFT_SHAPE(1, SET_VALUES)), *of_rows[2];
    deft_tensor *const sets = deft_reshape(set, DEFT_SHAPE(1, SET_ELEMENTS));
    cr_assert(deft_vmap(r->cx, set_rows, NULL, (deft_tensor *const[]){ rows, set },
                        (const int[]){ 0, DEFT_NOT_MAPPED }, 2, &of_rows[0], (const int[]){ 0 },
                        1));
    cr_assert(deft_vmap(r->cx, set_rows, NULL, (deft_tensor *const[]){ rows, sets },
                        (const int[]){ 0, 0 }, 2, &of_rows[1], (const int[]){ 0 }, 1));
    deft_tensor *const all[3] = { deft_isin(t, set, false), of_rows[0], of_rows[1] };
    for (int k = 0; k < 3; k++) {
        OK(r, deft_read(all[k], DEFT_BOOL, got, sizeof got));
        cr_expect(!memcmp(got, want, sizeof got), "%s, %llx + %llx, way %d", deft_dtype_name(x->t),
                  (unsigned long long)x->base, (unsigned long long)x->range, k);
    }
    OK(r, deft_scope_end(s));
}

/* A small range is looked up in a table, a large one is searched. The distance between integers may
 * have a bit more than they have. */
Test(array, isin_finds_integers_of_any_range)
{
    static const deft_dtype dtypes[] = { DEFT_I8,  DEFT_U8,  DEFT_I16, DEFT_U16,
                                         DEFT_I32, DEFT_U32, DEFT_I64, DEFT_U64 };
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        const uint64_t sign = (uint64_t)1 << (8 * deft_dtype_size(dtypes[k]) - 1);
        const uint64_t whole = deft_dtype_size(dtypes[k]) == 8 ? ~(uint64_t)0 : 2 * sign;
        const uint64_t ranges[] = { 50, 65535, 65536, 65537, whole };
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            const uint64_t range = ranges[i] < whole ? ranges[i] : whole;
            check_set(&r, &(set_case){ dtypes[k], 0, range });
            check_set(&r, &(set_case){ dtypes[k], sign - 20, range });
            check_set(&r, &(set_case){ dtypes[k], 0 - range, range });
        }
    }
    rig_close(&r);
}

Test(array, mistakes_name_the_function_of_the_program)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 3, 1), *const m = deft_unsqueeze(x, 0);
    deft_tensor *out[8];
    rig_expect_error(&r, deft_searchsorted(m, x, false), DEFT_E_SHAPE,
                     "searchsorted: the sorted tensor has 2 axes, not 1");
    rig_expect_error(&r, deft_take_along_axis(x, m, 0), DEFT_E_DTYPE,
                     "take_along_axis: indices are f32, not integers");
    rig_expect_error(&r, deft_moveaxis(x, DEFT_AXES(0), DEFT_AXES(0, 1)), DEFT_E_RANGE,
                     "moveaxis: 1 axes to 2 positions");
    rig_expect_error(&r, deft_expand_dims(x, DEFT_AXES(0, 0)), DEFT_E_RANGE,
                     "expand_dims: axis 0 is named twice");
    rig_expect_error(&r, deft_tile(x, DEFT_SHAPE(1, -2)), DEFT_E_SHAPE,
                     "tile: extent -2 of axis 1 is negative");
    rig_expect_error(&r, deft_repeat(x, -3, 0), DEFT_E_RANGE, "repeat: -3 times");
    rig_expect_error(&r, deft_diff(x, 1, 0, m, NULL), DEFT_E_SHAPE,
                     "diff: [1,3] cannot be joined to [3] along axis 0");
    rig_expect_error(&r, deft_diff(x, -2, 0, NULL, NULL), DEFT_E_RANGE,
                     "diff: the difference of order -2");
    rig_expect_error(&r, deft_cumulative_sum(x, 1, true), DEFT_E_RANGE,
                     "cumulative_sum: axis 1 of a tensor with 1 axes");
    rig_expect_error(&r, deft_cummin(deft_gt(x, 1), 0), DEFT_E_DTYPE, "cummin");
    rig_expect_error(&r, deft_std(x, DEFT_AXES(2), 0, 0), DEFT_E_RANGE, "std: axis 2");
    cr_assert_eq(deft_unstack(x, 0, 2, out), DEFT_E_SHAPE);
    rig_expect_error(&r, NULL, DEFT_E_SHAPE, "unstack: axis 0 has 3 elements, room is for 2");
    cr_assert_eq(deft_meshgrid((deft_tensor *const[]){ x, m }, 2, false, out), DEFT_E_SHAPE);
    rig_expect_error(&r, NULL, DEFT_E_SHAPE, "meshgrid: tensor 1 has 2 axes, not 1");
    cr_assert_eq(deft_broadcast_tensors((deft_tensor *const[]){ x, rig_range(&r, 2, 0) }, 2, out),
                 DEFT_E_SHAPE);
    rig_expect_error(&r, NULL, DEFT_E_SHAPE,
                     "broadcast_tensors: tensor 1 is [2], those before it make [3]");
    rig_expect_error(&r, deft_isin(x, NULL, false), DEFT_E_ARG, "isin: argument 2 is NULL");
    cr_assert_null(deft_repeat(NULL, 2, 0));
    rig_close(&r);
}

Test(array, fma_rounds_once)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const a = RIG_VECTOR(&r, 1 + 0x1p-12f, 3);
    EXPECT(&r, deft_fma(a, a, deft_num(r.cx, -1)), 0x1p-11f + 0x1p-24f, 8);
    EXPECT(&r, deft_sub(deft_mul(a, a), 1), 0x1p-11f, 8);
    const int32_t i[2] = { 2, 3 };
    cr_assert_eq(deft_dtype_of(deft_fma(integers(&r, 2, i), a, a)), DEFT_F32);
    cr_assert_eq(
        deft_dtype_of(deft_fma(integers(&r, 2, i), integers(&r, 2, i), deft_num_i(r.cx, 1))),
        DEFT_F32);
    rig_close(&r);
}

Test(array, numbers_stand_on_the_left)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2, 4);
    EXPECT(&r, deft_rsub(x, 1), 0, -1, -3);
    EXPECT(&r, deft_rdiv(x, 0.5), 0.5f, 0.25f, 0.125f);
    EXPECT(&r, deft_rpow(x, 2), 2, 4, 16);
    EXPECT(&r, deft_rsub(x, deft_mul(x, x)), 0, 2, 12);
    deft_tensor *const i = deft_cast(x, DEFT_I32);
    cr_assert_eq(deft_dtype_of(deft_rpow(i, 3)), DEFT_I32);
    EXPECT(&r, deft_rpow(i, -3), -3, 9, 81);
    rig_expect_error(&r, deft_rsub(deft_cast(x, DEFT_U8), 300), DEFT_E_RANGE,
                     "rsub: the number 300");
    rig_close(&r);
}

Test(array, what_is_in_the_middle)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, 5, 1, 4, 2);
    EXPECT(&r, deft_median(x, 0, true), 2);
    EXPECT(&r, deft_quantile(x, 0.5, 0, false), 3);
    deft_tensor *const i = deft_cast(x, DEFT_I64);
    cr_assert_eq(deft_dtype_of(deft_median(i, 0, false)), DEFT_I64);
    cr_assert_eq(deft_dtype_of(deft_quantile(i, 0.5, 0, false)), DEFT_F32);
    EXPECT(&r, deft_quantile(RIG_VECTOR(&r, -INFINITY, -INFINITY, 3, 4), 0.2, 0, false), -INFINITY);
    EXPECT(&r, deft_median(RIG_VECTOR(&r, 1, NAN, 3), 0, false), NAN);
    EXPECT(&r, deft_quantile(RIG_VECTOR(&r, 1, NAN, 3), 0, 0, false), NAN);
    rig_expect_error(&r, deft_median(deft_slice(x, DEFT_R(1, 1)), 0, false), DEFT_E_SHAPE,
                     "median: axis 0 has no elements");
    rig_expect_error(&r, deft_quantile(x, 1.25, 0, false), DEFT_E_RANGE,
                     "quantile: 1.25 is not between 0 and 1");
    rig_close(&r);
}

Test(array, reductions_pass_over_nan)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, NAN, 3, NAN, -1);
    EXPECT(&r, deft_nansum(x, DEFT_ALL_AXES, 0), 2);
    EXPECT(&r, rig_grad_of_sum(deft_nanmean(x, DEFT_ALL_AXES, 0), x), 0, 0.5f, 0, 0.5f);
    EXPECT(&r, rig_grad_of_sum(deft_nanstd(x, DEFT_ALL_AXES, 0, 0), x), 0, 0.5f, 0, -0.5f);
    EXPECT(&r, deft_nanmax(deft_cast(x, DEFT_I32), DEFT_ALL_AXES, 0), 3);
    deft_tensor *const none = RIG_VECTOR(&r, NAN, NAN);
    EXPECT(&r, deft_nanmin(none, DEFT_ALL_AXES, 1), NAN);
    EXPECT(&r, deft_nanmean(none, DEFT_ALL_AXES, 1), NAN);
    EXPECT(&r, deft_nanprod(none, DEFT_ALL_AXES, 1), 1);
    deft_tensor *const half = deft_cast(RIG_VECTOR(&r, 2048, 1, 1, NAN), DEFT_F16);
    EXPECT(&r, deft_nansum(half, DEFT_ALL_AXES, 0), 2050);
    rig_close(&r);
}

Test(array, norms_have_gradients_at_zero)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const zero = RIG_VECTOR(&r, 0, 0), *const x = RIG_VECTOR(&r, 3, -4);
    const double order[] = { 1, 2, 3, (double)INFINITY };
    for (int i = 0; i < 4; i++)
        EXPECT(&r, rig_grad_of_sum(deft_vector_norm(zero, order[i], DEFT_ALL_AXES, 0), zero), 0, 0);
    EXPECT(&r, rig_grad_of_sum(deft_vector_norm(x, 2, DEFT_ALL_AXES, 0), x), 0.6f, -0.8f);
    EXPECT(&r, deft_vector_norm(x, 0, DEFT_ALL_AXES, 0), 2);
    EXPECT(&r, deft_vector_norm(deft_cast(x, DEFT_I32), 2, DEFT_ALL_AXES, 1), 5);
    rig_expect_error(&r, deft_vector_norm(x, (double)NAN, DEFT_ALL_AXES, 0), DEFT_E_RANGE,
                     "vector_norm: order");
    rig_close(&r);
}

Test(array, values_are_counted_in_bins)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = RIG_VECTOR(&r, 0, 0.5f, 1, 2, 2, NAN, -1, 9);
    EXPECT(&r, deft_histc(x, 2, 0, 2), 2, 3);
    EXPECT(&r, deft_histogram(x, RIG_VECTOR(&r, -5, 0, 2)), 1, 5);
    EXPECT(&r, deft_histogram(deft_cast(x, DEFT_BF16), RIG_VECTOR(&r, 0, 1, 1, 10)), 2, 0, 4);
    rig_expect_error(&r, deft_histc(x, 3, 1, 1), DEFT_E_RANGE, "histc: 3 bins from 1 to 1");
    rig_expect_error(&r, deft_histogram(x, deft_slice(x, DEFT_R(0, 1))), DEFT_E_SHAPE,
                     "histogram: edges have 1 axes and 1 elements");
    rig_close(&r);
}

Test(array, neighbours_are_found_beyond_edges)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3)));
    EXPECT(&r, deft_shift(x, (int64_t[]){ 0, 1 }, DEFT_PAD_CONSTANT, 9), 2, 3, 9, 5, 6, 9);
    EXPECT(&r, deft_shift(x, (int64_t[]){ -1, 0 }, DEFT_PAD_EDGE, 0), 1, 2, 3, 1, 2, 3);
    EXPECT(&r, deft_shift(x, (int64_t[]){ 1, -1 }, DEFT_PAD_WRAP, 0), 6, 4, 5, 3, 1, 2);
    EXPECT(&r, deft_shift(x, (int64_t[]){ 0, 2 }, DEFT_PAD_REFLECT, 0), 3, 2, 1, 6, 5, 4);
    rig_expect_error(&r, deft_shift(x, (int64_t[]){ 2, 0 }, DEFT_PAD_REFLECT, 0), DEFT_E_RANGE,
                     "shift: by 2 along axis 0 of extent 2");
    rig_close(&r);
}
