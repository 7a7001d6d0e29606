/* SPDX-License-Identifier: Apache-2.0
 *
 * Values combined with elements where indices say. By hand for every dtype; random operands of all
 * ranks and layouts against plain C, bit for bit, on every way of running a program and on sizes
 * that threads share; what a fault and a mistake say; how many launches and how much memory it
 * takes; within loops.
 * Why this file is long: one reference in plain C serves all of these.
 */
#include "base/compiler.h"
#include "ops/op.h"
#include "support/faces.h"
#include "support/int_ref.h"
#include "support/budget.h"
#include "support/half_ref.h"
#include "support/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those that are added up as they are come first. */
static const deft_dtype numbers[] = { DEFT_U8,  DEFT_I32, DEFT_I64, DEFT_F32, DEFT_F64, DEFT_I8,
                                      DEFT_I16, DEFT_U16, DEFT_U32, DEFT_U64, DEFT_F16, DEFT_BF16 };
enum { N_PLAIN = 10 };

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

static void add_to(deft_dtype t, void *p, int64_t i, const void *q, int64_t k)
{
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
    case DEFT_F16:
    case DEFT_BF16:
        return;
    INT_REF_CASES:
        int_ref_put(t, p, (size_t)i,
                    (int64_t)((uint64_t)int_ref_get(t, p, (size_t)i) +
                              (uint64_t)int_ref_get(t, q, (size_t)k)));
        return;
    case DEFT_F32: ((float *)p)[i] += ((const float *)q)[k]; return;
    case DEFT_F64: ((double *)p)[i] += ((const double *)q)[k]; return;
    }
}

/* Element i of p meets element k of q. */
static void meet(df_scatter_how how, deft_dtype t, void *p, int64_t i, const void *q, int64_t k)
{
    const size_t size = deft_dtype_size(t);
    if (how == DF_SCATTER_ADD) {
        add_to(t, p, i, q, k);
    } else if (how == DF_SCATTER_SET) {
        memcpy((char *)p + (size_t)i * size, (const char *)q + (size_t)k * size, size);
    } else if (how != DF_SCATTER_MUL) {
        const bool is_integer = t != DEFT_F32 && t != DEFT_F64;
        const double x = get(t, p, i), y = get(t, q, k);
        const bool is_less =
            is_integer ? int_ref_less(t, int_ref_get(t, q, (size_t)k), int_ref_get(t, p, (size_t)i))
                       : y < x;
        const bool is_same =
            memcmp((char *)p + (size_t)i * size, (const char *)q + (size_t)k * size, size) == 0;
        if (!is_same && is_less == (how == DF_SCATTER_MIN)) meet(DF_SCATTER_SET, t, p, i, q, k);
    } else if (t == DEFT_F32) {
        ((float *)p)[i] *= ((const float *)q)[k];
    } else if (t == DEFT_F64) {
        ((double *)p)[i] *= ((const double *)q)[k];
    } else {
        int_ref_put(t, p, (size_t)i,
                    (int64_t)((uint64_t)int_ref_get(t, p, (size_t)i) *
                              (uint64_t)int_ref_get(t, q, (size_t)k)));
    }
}

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

static void expect(rig *r, const char *what, deft_tensor *t, deft_dtype dtype, deft_shape shape,
                   const void *want)
{
    cr_assert_not_null(t, "%s: %s", what, deft_message(r->cx));
    cr_assert_eq(deft_dtype_of(t), dtype, "%s: %s", what, deft_dtype_name(deft_dtype_of(t)));
    const deft_shape s = deft_shape_get(t);
    cr_assert_eq(s.rank, shape.rank, "%s: rank %u", what, s.rank);
    for (uint32_t i = 0; i < s.rank; i++)
        cr_assert_eq(s.dim[i], shape.dim[i], "%s: axis %u is %d", what, i, (int)s.dim[i]);
    const int64_t n = deft_numel(t);
    const size_t size = deft_dtype_size(dtype);
    char *const got = malloc((size_t)n * size + 1);
    OK(r, deft_read(t, dtype, got, (size_t)n * size));
    for (int64_t i = 0; i < n; i++)
        cr_assert(memcmp(got + (size_t)i * size, (const char *)want + (size_t)i * size, size) == 0,
                  "%s: element %d is %.9g, not %.9g", what, (int)i, get(dtype, got, i),
                  get(dtype, want, i));
    free(got);
}

static deft_tensor *from(rig *r, deft_dtype t, deft_shape s, const double *v)
{
    double buf[64];
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    for (int64_t i = 0; i < n; i++) put(t, buf, i, v[i]);
    return deft_from(r->cx, s, t, buf, (size_t)n * deft_dtype_size(t));
}
#define FROM(t, s, ...) from(&r, (t), (s), (const double[]){ __VA_ARGS__ })

static void expect_few(rig *r, const char *what, deft_tensor *t, deft_dtype dtype, deft_shape s,
                       const double *want)
{
    double buf[64];
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    for (int64_t i = 0; i < n; i++) put(dtype, buf, i, want[i]);
    expect(r, what, t, dtype, s, buf);
}
#define EXPECT(what, t, dtype, s, ...)                                                             \
    expect_few(&r, (what), (t), (dtype), (s), (const double[]){ __VA_ARGS__ })

/* ---- by hand ---- */

Test(scatter, values_of_every_dtype)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        const deft_dtype t = numbers[k];
        const char *const name = deft_dtype_name(t);
        deft_tensor *const x = FROM(t, DEFT_SHAPE(4), 1, 2, 3, 4);
        deft_tensor *const at = FROM(DEFT_I64, DEFT_SHAPE(5), 0, 2, -1, 0, -4);
        deft_tensor *const v = FROM(t, DEFT_SHAPE(5), 10, 20, 30, 40, 50);
        EXPECT(name, deft_index_add(x, at, v, 0), t, DEFT_SHAPE(4), 101, 2, 23, 34);
        EXPECT(name, deft_scatter_add(x, at, v, -1), t, DEFT_SHAPE(4), 101, 2, 23, 34);
        EXPECT(name, x, t, DEFT_SHAPE(4), 1, 2, 3, 4);

        deft_tensor *const m = FROM(t, DEFT_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
        deft_tensor *const two = FROM(DEFT_I64, DEFT_SHAPE(2), 2, 2);
        deft_tensor *const w = FROM(t, DEFT_SHAPE(2, 2), 10, 20, 30, 40);
        EXPECT(name, deft_index_add(m, two, w, 1), t, DEFT_SHAPE(2, 3), 1, 2, 33, 4, 5, 76);
        deft_tensor *const each = FROM(DEFT_I64, DEFT_SHAPE(2, 2), 1, -1, 0, 1);
        EXPECT(name, deft_scatter_add(m, each, w, 1), t, DEFT_SHAPE(2, 3), 1, 12, 23, 34, 45, 6);
        EXPECT(name, deft_scatter_add(m, each, w, 0), t, DEFT_SHAPE(2, 3), 31, 2, 3, 14, 65, 6);
    }
    /* u8 wraps, and so does i32 */
    deft_tensor *const at = FROM(DEFT_U8, DEFT_SHAPE(2), 0, 0);
    EXPECT("u8", deft_index_add(FROM(DEFT_U8, DEFT_SHAPE(1), 250), at, deft_num_i(r.cx, 4), 0),
           DEFT_U8, DEFT_SHAPE(1), 2);
    EXPECT("i32",
           deft_index_add(FROM(DEFT_I32, DEFT_SHAPE(1), 2147483646), at, deft_num_i(r.cx, 1), 0),
           DEFT_I32, DEFT_SHAPE(1), -2147483648.0);
    rig_close(&r);
}

Test(scatter, shapes_and_what_broadcasts)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const zeros = deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32);
    deft_tensor *const at = FROM(DEFT_I32, DEFT_SHAPE(2, 3), 0, 1, 1, 2, 1, -1);
    EXPECT("counts", deft_index_add(zeros, at, deft_num(r.cx, 1), 0), DEFT_F32, DEFT_SHAPE(3), 1, 3,
           2);
    EXPECT("a row", deft_index_add(zeros, at, FROM(DEFT_F32, DEFT_SHAPE(3), 1, 2, 4), 0), DEFT_F32,
           DEFT_SHAPE(3), 1, 8, 5);
    /* Indices of rank 0 take their axis away, of rank 2 put two in its place. */
    deft_tensor *const m = deft_zeros(r.cx, DEFT_SHAPE(2, 3), DEFT_F32);
    EXPECT(
        "one",
        deft_index_add(m, FROM(DEFT_I64, DEFT_SHAPE(), 1), FROM(DEFT_F32, DEFT_SHAPE(2), 5, 6), 1),
        DEFT_F32, DEFT_SHAPE(2, 3), 0, 5, 0, 0, 6, 0);
    EXPECT("many", deft_index_add(m, at, FROM(DEFT_F32, DEFT_SHAPE(2, 1, 1), 1, 10), 1), DEFT_F32,
           DEFT_SHAPE(2, 3), 1, 3, 2, 10, 30, 20);
    /* Nothing to add, nothing to add to. */
    deft_tensor *const none = deft_zeros(r.cx, DEFT_SHAPE(0), DEFT_I64);
    EXPECT("none", deft_index_add(FROM(DEFT_F32, DEFT_SHAPE(2), 7, 8), none, deft_num(r.cx, 1), 0),
           DEFT_F32, DEFT_SHAPE(2), 7, 8);
    EXPECT("empty",
           deft_index_add(deft_zeros(r.cx, DEFT_SHAPE(0, 2), DEFT_F32), none, deft_num(r.cx, 1), 0),
           DEFT_F32, DEFT_SHAPE(0, 2), 0);
    /* The other way round: what gather reads is what scatter_add writes. */
    deft_tensor *const i = FROM(DEFT_I64, DEFT_SHAPE(2, 2), 2, 0, 1, 1);
    deft_tensor *const g = FROM(DEFT_F32, DEFT_SHAPE(2, 2), 1, 2, 3, 4);
    EXPECT("adjoint", deft_gather(deft_scatter_add(m, i, g, 1), i, 1), DEFT_F32, DEFT_SHAPE(2, 2),
           1, 2, 7, 7);
    rig_close(&r);
}

/* Which value stays, what wraps, NaN, and what becomes of the element itself. */
Test(scatter, every_reduction)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const at = FROM(DEFT_I64, DEFT_SHAPE(5), 2, 0, 2, -2, 2);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const deft_dtype t = numbers[i];
        const char *const name = deft_dtype_name(t);
        deft_tensor *const x = FROM(t, DEFT_SHAPE(4), 3, 9, 6, 7);
        deft_tensor *const v = FROM(t, DEFT_SHAPE(5), 2, 5, 4, 1, 3);
        EXPECT(name, deft_scatter(x, at, v, 0), t, DEFT_SHAPE(4), 5, 9, 3, 7);
        EXPECT(name, deft_index_copy(x, at, v, 0), t, DEFT_SHAPE(4), 5, 9, 3, 7);
#define REDUCED(how, self, ...)                                                                    \
    EXPECT(name, deft_scatter_reduce(x, at, v, 0, how, self), t, DEFT_SHAPE(4), __VA_ARGS__);      \
    EXPECT(name, deft_index_reduce(x, at, v, 0, how, self), t, DEFT_SHAPE(4), __VA_ARGS__)
        REDUCED(DEFT_SCATTER_SUM, true, 8, 9, 16, 7);
        REDUCED(DEFT_SCATTER_SUM, false, 5, 9, 10, 7);
        REDUCED(DEFT_SCATTER_PROD, true, 15, 9, 144 - (t == DEFT_I8) * 256, 7);
        REDUCED(DEFT_SCATTER_PROD, false, 5, 9, 24, 7);
        REDUCED(DEFT_SCATTER_MEAN, true, 4, 9, i < 3 || (i > 4 && i < N_PLAIN) ? 3 : 3.2, 7);
        REDUCED(DEFT_SCATTER_MEAN, false, 5, 9, i < 3 || (i > 4 && i < N_PLAIN) ? 2 : 2.5, 7);
        REDUCED(DEFT_SCATTER_AMIN, true, 3, 9, 1, 7);
        REDUCED(DEFT_SCATTER_AMIN, false, 5, 9, 1, 7);
        REDUCED(DEFT_SCATTER_AMAX, true, 5, 9, 6, 7);
        REDUCED(DEFT_SCATTER_AMAX, false, 5, 9, 4, 7);
    }
    deft_tensor *const two = FROM(DEFT_I64, DEFT_SHAPE(2), 0, 0);
    deft_tensor *const b = FROM(DEFT_BOOL, DEFT_SHAPE(2), 1, 0);
    EXPECT("bool", deft_index_copy(b, two, FROM(DEFT_BOOL, DEFT_SHAPE(2), 1, 0), 0), DEFT_BOOL,
           DEFT_SHAPE(2), 0, 0);
    EXPECT("rounded down",
           deft_index_reduce(FROM(DEFT_I8, DEFT_SHAPE(1), -4), two, deft_num_i(r.cx, -2), 0,
                             DEFT_SCATTER_MEAN, true),
           DEFT_I8, DEFT_SHAPE(1), -3);
    EXPECT("half",
           deft_index_reduce(FROM(DEFT_F32, DEFT_SHAPE(1), 4), two,
                             FROM(DEFT_F32, DEFT_SHAPE(2), 1, 2), 0, DEFT_SCATTER_MEAN, 0),
           DEFT_F32, DEFT_SHAPE(1), 1.5);
    for (int how = DEFT_SCATTER_AMIN; how <= DEFT_SCATTER_AMAX; how++) {
        float got = 0;
        deft_tensor *const v = FROM(DEFT_F32, DEFT_SHAPE(2), (double)NAN, 2);
        OK(&r, deft_read(deft_index_reduce(FROM(DEFT_F32, DEFT_SHAPE(1), 4), two, v, 0,
                                           (deft_scatter_how)how, true),
                         DEFT_F32, &got, sizeof got));
        cr_assert(got != got, "%g", (double)got);
    }
    rig_close(&r);
}

static void gradients_of(rig *r, deft_tensor *out, deft_tensor *const *x, const double *of_t,
                         const double *of_v)
{
    deft_tensor *g[2];
    deft_tensor *const weights = deft_add(deft_iota(r->cx, deft_shape_get(out), 0), 1);
    deft_tensor *const sum =
        deft_sum(deft_mul(out, deft_cast(weights, DEFT_F64)), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&sum, NULL, 1, x, 2, NULL, g), "%s", deft_message(r->cx));
    expect_few(r, "of t", g[0], DEFT_F64, deft_shape_get(x[0]), of_t);
    expect_few(r, "of v", g[1], DEFT_F64, deft_shape_get(x[1]), of_v);
}

/* The last of equal indices has the gradient of the element. Ties share it. Zeros are no obstacle
 * to the gradient of a product. */
Test(scatter, gradients_where_values_meet)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const at = FROM(DEFT_I64, DEFT_SHAPE(4), 1, 2, 1, 2);
#define GRADIENTS(call, of_t, of_v)                                                                \
    {                                                                                              \
        const deft_scope sc = deft_step_begin(r.cx);                                               \
        deft_tensor *const t = FROM(DEFT_F64, DEFT_SHAPE(3), 3, 5, 0);                             \
        deft_tensor *const v = FROM(DEFT_F64, DEFT_SHAPE(4), 5, 0, 2, 7);                          \
        gradients_of(&r, call, (deft_tensor *const[]){ t, v }, (const double[])of_t,               \
                     (const double[])of_v);                                                        \
        OK(&r, deft_step_end(sc));                                                                 \
    }
#define L(...) { __VA_ARGS__ }
    GRADIENTS(deft_scatter(t, at, v, 0), L(1, 0, 0), L(0, 0, 2, 3))
    GRADIENTS(deft_index_copy(t, at, v, 0), L(1, 0, 0), L(0, 0, 2, 3))
    GRADIENTS(deft_scatter_reduce(t, at, v, 0, DEFT_SCATTER_AMAX, true), L(1, 1, 0), L(1, 0, 0, 3))
    GRADIENTS(deft_scatter_reduce(t, at, v, 0, DEFT_SCATTER_AMIN, true), L(1, 0, 1.5),
              L(0, 1.5, 2, 0))
    GRADIENTS(deft_scatter_reduce(t, at, v, 0, DEFT_SCATTER_AMAX, false), L(1, 0, 0), L(2, 0, 0, 3))
    GRADIENTS(deft_scatter_reduce(t, at, v, 0, DEFT_SCATTER_PROD, true), L(1, 20, 0),
              L(20, 0, 50, 0))
    GRADIENTS(deft_index_reduce(t, at, v, 0, DEFT_SCATTER_PROD, false), L(1, 0, 0), L(4, 21, 10, 0))
    GRADIENTS(deft_index_reduce(t, at, v, 0, DEFT_SCATTER_MEAN, false), L(1, 0, 0),
              L(1, 1.5, 1, 1.5))
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

static int64_t numel(deft_shape s)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

static void unravel(deft_shape s, int64_t i, int64_t *at)
{
    for (uint32_t k = s.rank; k-- > 0; i /= s.dim[k]) at[k] = i % s.dim[k];
}

static int64_t ravel(deft_shape s, const int64_t *at)
{
    int64_t i = 0;
    for (uint32_t k = 0; k < s.rank; k++) i = i * s.dim[k] + at[k];
    return i;
}

typedef struct kase {
    deft_dtype t;
    deft_shape base, index, value;
    uint32_t axis;
    bool slices;
    df_scatter_how how;
    int layout; /* of indices and values: 0 plain, 1 turned, 2 flipped, 3 computed, 4 repeated */
} kase;

static void plain(const kase *k, void *out, const int64_t *index, const void *value)
{
    for (int64_t i = 0; i < numel(k->value); i++) {
        int64_t at[2 * DEFT_MAX_RANK] = { 0 }, to[DEFT_MAX_RANK] = { 0 };
        unravel(k->value, i, at);
        int64_t which = i;
        for (uint32_t j = 0; j < k->base.rank; j++)
            to[j] = at[!k->slices || j <= k->axis ? j : j + k->index.rank - 1];
        if (k->slices) which = ravel(k->index, at + k->axis);
        to[k->axis] = index[which] + (index[which] < 0 ? k->base.dim[k->axis] : 0);
        meet(k->how, k->t, out, ravel(k->base, to), value, i);
    }
}

/* data as a tensor that shows it row-major from memory laid out otherwise. memory has room. */
static deft_tensor *laid_out(rig *r, deft_dtype t, deft_shape s, const char *data, char *memory,
                             int layout)
{
    const int64_t n = numel(s);
    const size_t size = deft_dtype_size(t);
    deft_shape base = s;
    if (layout == 1)
        for (uint32_t i = 0; i < s.rank; i++) base.dim[i] = s.dim[s.rank - 1 - i];
    for (int64_t i = 0; i < n; i++) {
        int64_t at[DEFT_MAX_RANK], to[DEFT_MAX_RANK];
        unravel(s, i, at);
        for (uint32_t k = 0; k < s.rank; k++)
            to[k] = layout == 1 ? at[s.rank - 1 - k] : layout == 2 ? s.dim[k] - 1 - at[k] : at[k];
        memcpy(memory + (size_t)ravel(base, to) * size, data + (size_t)i * size, size);
    }
    deft_tensor *x = deft_wrap(r->cx, base, t, memory, (size_t)n * size, NULL);
    if (layout == 1) {
        deft_axes order = { .n = s.rank };
        for (uint32_t i = 0; i < s.rank; i++) order.at[i] = (int32_t)(s.rank - 1 - i);
        x = deft_permute(x, order);
    }
    if (layout == 2) x = deft_flip(x, DEFT_ALL_AXES);
    if (layout == 3) x = deft_mul(x, 1);
    return x;
}

/* Sums of f32s of many sizes: another order gives other bits. */
static double some_value(deft_dtype t, uint64_t *seed)
{
    const double v = (double)(int64_t)(next(seed) % 2001) - 1000;
    const double by[] = { 1e-3, 1.0 / 3, 1, 7e4, 1e9 };
    return t == DEFT_F32 || t == DEFT_F64 ? v * by[next(seed) % 5]
           : int_ref_is_unsigned(t)       ? v * v
                                          : v;
}

/* The call of case k. */
static deft_tensor *scattered(const kase *k, deft_tensor *x, deft_tensor *at, deft_tensor *v)
{
    static const deft_scatter_how hows[] = { [DF_SCATTER_MUL] = DEFT_SCATTER_PROD,
                                             [DF_SCATTER_MIN] = DEFT_SCATTER_AMIN,
                                             [DF_SCATTER_MAX] = DEFT_SCATTER_AMAX };
    const int axis = (int)k->axis;
    if (k->how == DF_SCATTER_ADD)
        return k->slices ? deft_index_add(x, at, v, axis) : deft_scatter_add(x, at, v, axis);
    if (k->how == DF_SCATTER_SET)
        return k->slices ? deft_index_copy(x, at, v, axis) : deft_scatter(x, at, v, axis);
    return k->slices ? deft_index_reduce(x, at, v, axis, hows[k->how], true)
                     : deft_scatter_reduce(x, at, v, axis, hows[k->how], true);
}

static void one_case(rig *r, const kase *k, uint64_t *seed)
{
    char what[160];
    const size_t size = deft_dtype_size(k->t);
    const int64_t n = numel(k->base), n_index = numel(k->index), n_value = numel(k->value);
    char *const base = malloc((size_t)n * size + 8), *const value =
                                                         malloc((size_t)n_value * size + 8);
    char *const want = malloc((size_t)n * size + 8);
    char *const memory[2] = { malloc((size_t)n_value * size + 8), malloc((size_t)n_index * 8 + 8) };
    int64_t *const index = malloc((size_t)n_index * 8 + 8);
    for (int64_t i = 0; i < n; i++) put(k->t, base, i, some_value(k->t, seed));
    for (int64_t i = 0; i < n_value; i++) put(k->t, value, i, some_value(k->t, seed));
    if (k->layout == 4)
        for (int64_t i = 1; i < n_value; i++) memcpy(value + (size_t)i * size, value, size);
    const int64_t extent = k->base.dim[k->axis];
    for (int64_t i = 0; i < n_index; i++)
        index[i] = (int64_t)(next(seed) % (uint64_t)(2 * extent)) - extent;
    memcpy(want, base, (size_t)n * size);
    plain(k, want, index, value);
    snprintf(what, sizeof what,
             "%s %s axis %u of rank %u, indices of rank %u, %d values, layout %d",
             df_op_infos[df_scatter_op(k->slices, k->how)].name, deft_dtype_name(k->t), k->axis,
             k->base.rank, k->index.rank, (int)n_value, k->layout);
    const deft_shape one = { .rank = k->value.rank > 0, .dim = { 1 } };
    const deft_scope sc = deft_scope_begin(r->cx);
    deft_tensor *const x = deft_wrap(r->cx, k->base, k->t, base, (size_t)n * size, NULL);
    deft_tensor *const at =
        laid_out(r, DEFT_I64, k->index, (const char *)index, memory[1], (int)(next(seed) % 4));
    deft_tensor *v = k->layout == 4 ? deft_wrap(r->cx, one, k->t, value, size, NULL)
                                    : laid_out(r, k->t, k->value, value, memory[0], k->layout);
    deft_tensor *const out = scattered(k, x, at, v);
    expect(r, what, out, k->t, k->base, want);
    OK(r, deft_scope_end(sc));
    free(base), free(value), free(want), free(index), free(memory[0]), free(memory[1]);
}

static kase case_of(deft_dtype t, deft_shape base, deft_shape index, uint32_t axis, bool slices,
                    int layout)
{
    kase k = { t, base, index, index, axis, slices, DF_SCATTER_ADD, layout };
    if (!slices) return k;
    k.value.rank = base.rank - 1 + index.rank;
    for (uint32_t i = 0; i < k.value.rank; i++)
        k.value.dim[i] = i < axis                ? base.dim[i]
                         : i < axis + index.rank ? index.dim[i - axis]
                                                 : base.dim[i - index.rank + 1];
    return k;
}

static kase some_case(uint64_t *seed, int number)
{
    static const int64_t most[] = { 0, 300, 20, 9, 6 };
    deft_shape base = { .rank = 1 + (uint32_t)(next(seed) % 4) }, index = { .rank = base.rank };
    const bool slices = next(seed) & 1;
    const uint32_t axis = (uint32_t)(next(seed) % base.rank);
    for (uint32_t i = 0; i < base.rank; i++)
        base.dim[i] = index.dim[i] = 1 + (int64_t)(next(seed) % (uint64_t)most[base.rank]);
    if (slices) {
        index.rank = (uint32_t)(next(seed) % 4);
        for (uint32_t i = 0; i < index.rank; i++) index.dim[i] = 1 + (int64_t)(next(seed) % 9);
    } else {
        for (uint32_t i = 0; i < base.rank; i++)
            if (i == axis)
                index.dim[i] = 1 + (int64_t)(next(seed) % 30);
            else if (index.dim[i] > 1 && next(seed) % 3 == 0)
                index.dim[i]--;
    }
    kase k = case_of(numbers[number % N_PLAIN], base, index, axis, slices, number / N_PLAIN % 5);
    k.how = (df_scatter_how)(next(seed) % (DF_SCATTER_MAX + 1));
    return k;
}

Test(scatter, random_operands, .timeout = 200)
{
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        rig r;
        const deft_runtime_options o = { .size = sizeof o,
                                         .tier = ways[w].tier,
                                         .n_threads = ways[w].n_threads };
        const deft_ctx_options c = { .size = sizeof c, .no_fusion = ways[w].no_fusion };
        const double share = (double)(w + 1) / (sizeof ways / sizeof *ways);
        uint64_t seed = 5 + w;
        rig_open(&r, &o, &c);
        for (int i = 0; i < 100 && (i < 30 || test_time_left(share)); i++) {
            const kase k = some_case(&seed, i);
            one_case(&r, &k, &seed);
        }
        /* What threads share: columns, rows, both, and where nothing but the result can be shared.
         */
        const kase large[] = {
            case_of(DEFT_F32, DEFT_SHAPE(50, 700), DEFT_SHAPE(90), 0, true, 0),
            case_of(DEFT_F32, DEFT_SHAPE(900, 30), DEFT_SHAPE(40), 1, true, 1),
            case_of(DEFT_F64, DEFT_SHAPE(8, 30, 129), DEFT_SHAPE(5, 9), 1, true, 0),
            case_of(DEFT_F32, DEFT_SHAPE(40000, 7), DEFT_SHAPE(40000, 1), 1, false, 0),
            case_of(DEFT_F32, DEFT_SHAPE(7, 3001), DEFT_SHAPE(30, 3000), 0, false, 0),
            case_of(DEFT_F32, DEFT_SHAPE(1100000), DEFT_SHAPE(300000), 0, false, 0),
            case_of(DEFT_F64, DEFT_SHAPE(600000), DEFT_SHAPE(300000), 0, true, 3),
            case_of(DEFT_F32, DEFT_SHAPE(5), DEFT_SHAPE(270000), 0, true, 4),
            case_of(DEFT_F64, DEFT_SHAPE(1, 530000, 2), DEFT_SHAPE(140000), 1, true, 0),
            case_of(DEFT_U8, DEFT_SHAPE(100, 3), DEFT_SHAPE(100000), 0, true, 2),
        };
        for (size_t i = 0; i < DF_LEN(large); i++) /* each is run in one way at least */
            if (i % DF_LEN(ways) == w || test_time_left(share)) one_case(&r, &large[i], &seed);
        rig_close(&r);
    }
}

/* ---- mistakes and faults ---- */

static void refuse(rig *r, deft_tensor *t, deft_status st, const char *words)
{
    cr_assert_null(t, "%s", words);
    cr_assert_eq(deft_error(r->cx), st, "%s: %s", words, deft_message(r->cx));
    cr_assert(strstr(deft_message(r->cx), words), "%s", deft_message(r->cx));
    deft_clear(r->cx);
}

Test(scatter, refusals)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 6, 0), *const v = rig_range(&r, 2, 0);
    deft_tensor *const at = FROM(DEFT_I64, DEFT_SHAPE(2), 0, 1);
    refuse(&r, deft_index_add(x, v, v, 0), DEFT_E_DTYPE,
           "index_add: indices are f32, not integers");
    refuse(&r, deft_scatter_add(x, at, at, 0), DEFT_E_DTYPE,
           "scatter_add: values are i64, the tensor is f32");
    refuse(&r, deft_index_add(x, at, rig_range(&r, 3, 0), 0), DEFT_E_SHAPE,
           "index_add: values [3] at indices [2] along axis 0, must be [2]");
    refuse(&r, deft_index_add(x, at, v, 1), DEFT_E_RANGE, "index_add: axis 1");
    deft_tensor *const m = deft_zeros(r.cx, DEFT_SHAPE(2, 3), DEFT_F32);
    refuse(&r, deft_scatter_add(m, at, v, 0), DEFT_E_SHAPE,
           "scatter_add: indices [2] along axis 0 do not fit [2,3]");
    refuse(&r, deft_scatter_add(m, deft_zeros(r.cx, DEFT_SHAPE(1, 4), DEFT_I64), v, 0),
           DEFT_E_SHAPE, "scatter_add: indices [1,4] along axis 0 do not fit [2,3]");
    deft_tensor *const none = deft_zeros(r.cx, DEFT_SHAPE(0, 3), DEFT_F32);
    refuse(&r, deft_index_add(none, at, deft_num(r.cx, 1), 0), DEFT_E_SHAPE,
           "index_add: indices [2] into axis 0 of [0,3], which is empty");
    deft_tensor *const is = deft_ones(r.cx, DEFT_SHAPE(6), DEFT_BOOL);
    refuse(&r, deft_index_add(is, at, deft_ones(r.cx, DEFT_SHAPE(2), DEFT_BOOL), 0), DEFT_E_DTYPE,
           "index_add: the operand is bool");
    refuse(&r, deft_index_add(FROM(DEFT_U8, DEFT_SHAPE(2), 1, 2), at, deft_num_i(r.cx, 256), 0),
           DEFT_E_RANGE, "256 does not fit u8");
    deft_tensor *const deep = deft_zeros(r.cx, DEFT_SHAPE(1, 1, 1, 1, 1), DEFT_F32);
    refuse(&r,
           deft_index_add(deep, deft_zeros(r.cx, DEFT_SHAPE(1, 1, 1, 1, 1), DEFT_I64),
                          deft_num(r.cx, 1), 0),
           DEFT_E_LIMIT, "index_add: the result has rank 9");
    refuse(&r, deft_scatter_reduce(x, at, v, 0, (deft_scatter_how)9, true), DEFT_E_ARG,
           "scatter_reduce: 9 is no reduction");
    refuse(&r, deft_index_reduce(is, at, is, 0, DEFT_SCATTER_AMAX, true), DEFT_E_DTYPE,
           "index_reduce: the tensor is bool: arithmetic needs numbers");
    refuse(&r, deft_index_reduce(x, at, rig_range(&r, 3, 0), 0, DEFT_SCATTER_AMAX, true),
           DEFT_E_SHAPE, "values [3] at indices [2] along axis 0, must be [2]");
    refuse(&r, deft_index_copy(x, at, at, 0), DEFT_E_DTYPE,
           "index_copy: values are i64, the tensor is f32");
    cr_assert_null(deft_index_add(NULL, at, v, 0));
    deft_clear(r.cx);
    cr_assert_null(deft_index_add(x, NULL, v, 0));
    deft_clear(r.cx);
    cr_assert_null(deft_scatter_add(x, at, NULL, 0));
    deft_clear(r.cx);
    rig_close(&r);
}

/* The first index outside, of few and of many, and nothing of the step took effect. */
Test(scatter, an_index_outside_fails_the_whole_step)
{
    enum { MANY = 300000 };
    rig r;
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 4 };
    rig_open(&r, &o, NULL);
    deft_tensor *const x = deft_keep(FROM(DEFT_F32, DEFT_SHAPE(3), 1, 2, 3));
    deft_tensor *const y = deft_keep(FROM(DEFT_F32, DEFT_SHAPE(3), 4, 5, 6));
    float memory[3] = { 7, 8, 9 };
    deft_tensor *const m =
        deft_wrap_mut(r.cx, DEFT_SHAPE(3), DEFT_F32, memory, sizeof memory, NULL);
    int64_t *const many = calloc(MANY, sizeof *many);
    many[200000] = 5;
    many[270000] = -9;
    const double few[][2] = { { 1, 3 }, { -4, 0 }, { 7, -5 } };
    const char *const say[] = { "index_add: index 3 is outside [0,3)",
                                "index_add: index -1 is outside [0,3)",
                                "index_add: index 7 is outside [0,3)",
                                "index_add: index 5 is outside [0,3)" };
    for (int k = 0; k < 4; k++) {
        deft_tensor *const at =
            k < 3 ? from(&r, DEFT_I64, DEFT_SHAPE(2), few[k])
                  : deft_wrap(r.cx, DEFT_SHAPE(MANY), DEFT_I64, many, MANY * sizeof *many, NULL);
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(y, deft_add(y, 1));
        deft_assign(x, deft_index_add(x, at, deft_num(r.cx, 1), 0));
        deft_assign(m, deft_index_add(m, at, deft_num(r.cx, 1), 0));
        cr_expect_eq(deft_step_end(s), DEFT_E_RANGE);
        cr_expect(strstr(deft_message(r.cx), say[k]), "%s", deft_message(r.cx));
        EXPECT("x", x, DEFT_F32, DEFT_SHAPE(3), 1, 2, 3);
        EXPECT("y", y, DEFT_F32, DEFT_SHAPE(3), 4, 5, 6);
        cr_expect(memory[0] == 7 && memory[1] == 8 && memory[2] == 9);
    }
    /* Seen by threads that share the columns, where nothing outlives the failed read. */
    enum { ROWS = 400, WIDTH = 256 };
    float *const out = malloc(3 * WIDTH * sizeof *out);
    cr_expect_eq(deft_read(deft_index_add(deft_zeros(r.cx, DEFT_SHAPE(3, WIDTH), DEFT_F32),
                                          deft_wrap(r.cx, DEFT_SHAPE(ROWS), DEFT_I64, many + 199900,
                                                    ROWS * sizeof *many, NULL),
                                          deft_num(r.cx, 1), 0),
                           DEFT_F32, out, 3 * WIDTH * sizeof *out),
                 DEFT_E_RANGE);
    cr_expect(strstr(deft_message(r.cx), say[3]), "%s", deft_message(r.cx));
    free(out);
    many[200000] = many[270000] = 0;
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x,
                deft_index_add(
                    x, deft_wrap(r.cx, DEFT_SHAPE(MANY), DEFT_I64, many, MANY * sizeof *many, NULL),
                    deft_num(r.cx, 1), 0));
    deft_assign(m, deft_index_add(m, FROM(DEFT_I64, DEFT_SHAPE(2), 1, 1), deft_num(r.cx, 1), 0));
    OK(&r, deft_step_end(s));
    EXPECT("x", x, DEFT_F32, DEFT_SHAPE(3), MANY + 1, 2, 3);
    cr_expect(memory[0] == 7 && memory[1] == 10 && memory[2] == 9);
    free(many);
    rig_close(&r);
}

/* ---- plans ---- */

static uint64_t launches_of(rig *r, deft_tensor *t)
{
    const uint64_t before = rig_stats(r).launches;
    OK(r, deft_eval(&t, 1));
    return rig_stats(r).launches - before;
}

Test(scatter, launches)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 600, 0), *const v = rig_range(&r, 20, 0);
    deft_tensor *at = deft_iota(r.cx, DEFT_SHAPE(20), 0);
    OK(&r, deft_eval(&at, 1));
    deft_tensor *const zeros = deft_zeros(r.cx, DEFT_SHAPE(600), DEFT_F32);
    cr_expect_eq(launches_of(&r, deft_index_add(zeros, at, v, 0)), 2, "zeros, then values");
    cr_expect_eq(launches_of(&r, deft_index_add(x, at, v, 0)), 2, "a copy, then values");
    cr_expect_eq(launches_of(&r, deft_index_add(x, at, deft_exp(v), 0)), 2, "values beside it");
    cr_expect_eq(launches_of(&r, deft_index_add(deft_exp(x), at, v, 0)), 2, "over what is made");
    cr_expect_eq(launches_of(&r, deft_index_add(deft_index_add(zeros, at, v, 0), at, v, 0)), 3,
                 "in place");
    cr_expect_eq(launches_of(&r, deft_mul(deft_index_add(zeros, at, v, 0), 2)), 3, "and after it");
    rig_close(&r);
}

Test(scatter, other_sizes_run_the_same_plan)
{
    rig r;
    const deft_runtime_options o = { .size = sizeof o, .tier = DEFT_TIER_QUICK, .n_threads = 1 };
    rig_open(&r, &o, NULL);
    static float v[5000];
    static int64_t at[5000];
    uint64_t seed = 9, built = 0;
    for (int k = 0; k < 30; k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        const int64_t n = 2 + (int64_t)(next(&seed) % 2000),
                      many = 2 + (int64_t)(next(&seed) % 900);
        for (int64_t i = 0; i < n; i++) at[i] = (int64_t)(next(&seed) % (uint64_t)many);
        deft_tensor *t =
            deft_index_add(deft_zeros(r.cx, DEFT_SHAPE(many), DEFT_F32),
                           deft_wrap(r.cx, DEFT_SHAPE(n), DEFT_I64, at, sizeof at, NULL),
                           deft_wrap(r.cx, DEFT_SHAPE(n), DEFT_F32, v, sizeof v, NULL), 0);
        OK(&r, deft_eval(&t, 1));
        OK(&r, deft_scope_end(s));
        if (k == 0) built = rig_stats(&r).plans_built;
    }
    cr_expect_eq(rig_stats(&r).plans_built, built);
    rig_close(&r);
}

/* ---- in programs ---- */

/* What is written over is read elsewhere too: before, after, and as the values themselves. */
Test(scatter, the_base_keeps_its_value)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(FROM(DEFT_F32, DEFT_SHAPE(4), 1, 2, 3, 4));
    deft_tensor *const at = deft_keep(FROM(DEFT_I64, DEFT_SHAPE(2), 3, 0));
    for (int k = 0; k < 2; k++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const y = deft_add(x, 10); /* stored: it is added to */
        deft_tensor *const z = deft_index_add(y, at, deft_slice(y, DEFT_R(1, 3)), 0);
        deft_tensor *const both = deft_keep(deft_sub(z, y));
        deft_assign(x, deft_index_add(x, at, deft_slice(x, DEFT_R(0, 2)), 0));
        OK(&r, deft_step_end(s));
        if (k == 0) {
            EXPECT("x", x, DEFT_F32, DEFT_SHAPE(4), 3, 2, 3, 5);
            EXPECT("both", both, DEFT_F32, DEFT_SHAPE(4), 13, 0, 0, 12);
        } else {
            EXPECT("x", x, DEFT_F32, DEFT_SHAPE(4), 5, 2, 3, 8);
            EXPECT("both", both, DEFT_F32, DEFT_SHAPE(4), 13, 0, 0, 12);
        }
    }
    rig_close(&r);
}

/* The element of state 0 that row in[1] names grows by one. */
static deft_status count_one(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_index_add(in[0], in[1], deft_num(cx, 1), 0);
    return out[0] ? DEFT_OK : DEFT_E_ARG;
}

Test(scatter, in_loops)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int bad = 0; bad < 2; bad++) {
        deft_tensor *const init = deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32);
        deft_tensor *const rows = FROM(DEFT_I64, DEFT_SHAPE(4), 0, 2, bad ? 3 : -1, 2), *out;
        cr_assert(deft_scan(r.cx, count_one, NULL, &init, 1, &rows, 1, 4, 0, &out), "%s",
                  deft_message(r.cx));
        if (!bad) EXPECT("scan", out, DEFT_F32, DEFT_SHAPE(3), 1, 0, 3);
        float got[3];
        if (bad) {
            cr_expect_eq(deft_read(out, DEFT_F32, got, sizeof got), DEFT_E_RANGE);
            cr_expect(strstr(deft_message(r.cx), "index_add: index 3 is outside [0,3)"), "%s",
                      deft_message(r.cx));
        }
    }
    rig_close(&r);
}
