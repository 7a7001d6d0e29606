/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation: shapes, constants, sequences, random numbers. A created tensor is itself a pending
 * expression, so it fuses into its users. wrap.c has values of the caller.
 */
#include "lazy/complex/complex.h"
#include "lazy/core/meet.h"
#include "lazy/core/recorder.h"

#include <math.h>

deft_shape deft_shape_of(size_t rank, const int64_t *dim)
{
    deft_shape s = { .rank = rank > DEFT_MAX_RANK ? DEFT_MAX_RANK + 1 : (uint32_t)rank };
    for (size_t i = 0; i < rank && i < DEFT_MAX_RANK; i++) s.dim[i] = dim[i];
    return s;
}

deft_axes deft_axes_of(size_t n, const int *at)
{
    deft_axes a = { .n = n > DEFT_MAX_RANK ? DEFT_MAX_RANK + 1 : (uint32_t)n };
    for (size_t i = 0; i < n && i < DEFT_MAX_RANK; i++) a.at[i] = at[i];
    return a;
}

deft_range deft_range_of(int64_t start, int64_t stop, int64_t step)
{
    return (deft_range){ start, stop, step };
}

/* ---- constants ---- */

static deft_tensor *filled(deft_ctx *cx, const char *what, const deft_shape *shape,
                           deft_dtype dtype, int32_t cst, const df_literal *value, uintptr_t site)
{
    df_shape s;
    if (!cx || !df_check_dtype(cx, what, dtype) || !df_check_shape(cx, what, shape, &s))
        return NULL;
    const deft_dtype t = df_record_dtype(dtype);
    const uint32_t n =
        value ? df_literal_node(cx, what, t, *value, site) : df_cst(cx, t, cst, site);
    const uint32_t all = df_expand_to(cx, n, &s, site);
    if (!df_is_complex(dtype)) return df_result(cx, all);
    return df_parts_result(cx, (df_parts){ all, DF_BAD, true }, site);
}

deft_tensor *deft_zeros(deft_ctx *cx, deft_shape shape, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return filled(cx, "zeros", &shape, dtype, 0, NULL, DF_SITE);
}

deft_tensor *deft_ones(deft_ctx *cx, deft_shape shape, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return filled(cx, "ones", &shape, dtype, 1, NULL, DF_SITE);
}

deft_tensor *deft_full(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_f(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_full_i(deft_ctx *cx, deft_shape shape, deft_dtype dtype, int64_t value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_i(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_full_u(deft_ctx *cx, deft_shape shape, deft_dtype dtype, uint64_t value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_u(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_num(deft_ctx *cx, double value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_f(cx, value, 0);
}

deft_tensor *deft_num_i(deft_ctx *cx, int64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_i(cx, value, 0);
}

deft_tensor *deft_num_u(deft_ctx *cx, uint64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_u(cx, value, 0);
}

/* ---- sequences ---- */

/* A number in the dtype in which creation computes, checked to fit `dtype`. */
static uint32_t literal_for(deft_ctx *cx, const char *what, deft_dtype dtype, df_literal v,
                            uintptr_t site)
{
    int64_t bits;
    if (!df_is_half(dtype)) return df_literal_node(cx, what, dtype, v, site);
    if (!df_number_bits(cx, what, dtype, v.f, &bits)) return DF_BAD;
    return df_number_f(cx, what, DEFT_F32, v.f, site);
}

static uint32_t number_for(deft_ctx *cx, const char *what, deft_dtype dtype, double v,
                           uintptr_t site)
{
    return literal_for(cx, what, dtype, df_literal_f(v), site);
}

/* first + place * step in the dtype in which creation computes, for places in i64. */
static uint32_t steps(deft_ctx *cx, const char *what, uint32_t places, df_literal first,
                      df_literal step, deft_dtype dtype, uintptr_t site)
{
    const uint32_t i = df_to(cx, places, df_is_half(dtype) ? DEFT_F32 : dtype, site);
    const uint32_t by = literal_for(cx, what, dtype, step, site);
    const uint32_t from = literal_for(cx, what, dtype, first, site);
    return df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, i, by, site), site);
}

/* first + iota * step in dtype. Halves are computed in f32 and rounded once. */
static uint32_t sequence(deft_ctx *cx, const char *what, int64_t n, df_literal first,
                         df_literal step, deft_dtype dtype, uintptr_t site)
{
    const df_shape s = { .rank = 1, .dim = { n } };
    const uint32_t places = df_iota_node(cx, &s, 0, site);
    return df_to(cx, steps(cx, what, places, first, step, dtype, site), dtype, site);
}

static bool check_arange(deft_ctx *cx, deft_dtype dtype)
{
    if (!cx || !df_check_dtype(cx, "arange", dtype)) return false;
    if (dtype != DEFT_BOOL && !df_is_face(dtype)) return true;
    df_error(cx, DEFT_E_DTYPE, "arange: not for %s", deft_dtype_name(dtype));
    return false;
}

deft_tensor *deft_arange(deft_ctx *cx, double start, double stop, double step, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!check_arange(cx, dtype)) return NULL;
    const double n = ceil((stop - start) / step);
    if (!(step != 0) || !isfinite(start) || !isfinite(n) || n > 0x1p53)
        return df_error(cx, DEFT_E_RANGE, "arange: from %g to %g by %g has no length", start, stop,
                        step);
    const int64_t len = n > 0 ? (int64_t)n : 0;
    return df_result(
        cx, sequence(cx, "arange", len, df_literal_f(start), df_literal_f(step), dtype, DF_SITE));
}

/* A step that is added in dtype. Unsigned integers go down by a step that wraps. */
static df_literal wrapped_step(int64_t step, deft_dtype dtype)
{
    const bool wraps = step < 0 && df_is_unsigned(dtype);
    return wraps ? df_literal_u((uint64_t)step & df_all_bits(dtype)) : df_literal_i(step);
}

/* The sequence from start to stop, which are u64 or i64, as is_large says. The distance of two i64
 * may need all 64 bits of an unsigned number. */
static deft_tensor *arange_of(deft_ctx *cx, bool is_large, uint64_t start, uint64_t stop,
                              int64_t step, deft_dtype dtype, uintptr_t site)
{
    if (!check_arange(cx, dtype)) return NULL;
    const uint64_t bias = is_large ? 0 : (uint64_t)1 << 63; /* keeps the order of signed numbers */
    const bool is_up = step > 0, is_less = (start ^ bias) < (stop ^ bias);
    const bool is_empty = start == stop || is_up != is_less;
    const uint64_t way = is_up ? stop - start : start - stop;
    const uint64_t by = is_up ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t n = is_empty || !by ? 0 : way / by + (way % by != 0);
    if (step == 0 || n > (uint64_t)1 << 53)
        return df_error(cx, DEFT_E_RANGE,
                        is_large ? "arange: from %llu to %llu by %lld has no length"
                                 : "arange: from %lld to %lld by %lld has no length",
                        (long long)start, (long long)stop, (long long)step);
    int64_t bits;
    const uint64_t last = start + (n - 1) * (uint64_t)step;
    if (n > 0 && !df_is_float(dtype) &&
        !(is_large ? df_number_bits_u(cx, "arange", dtype, last, &bits)
                   : df_number_bits_i(cx, "arange", dtype, (int64_t)last, &bits)))
        return NULL;
    const df_literal first = is_large ? df_literal_u(start) : df_literal_i((int64_t)start);
    return df_result(
        cx, sequence(cx, "arange", (int64_t)n, first, wrapped_step(step, dtype), dtype, site));
}

deft_tensor *deft_arange_i(deft_ctx *cx, int64_t start, int64_t stop, int64_t step,
                           deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return arange_of(cx, false, (uint64_t)start, (uint64_t)stop, step, dtype, DF_SITE);
}

deft_tensor *deft_arange_u(deft_ctx *cx, uint64_t start, uint64_t stop, int64_t step,
                           deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return arange_of(cx, true, start, stop, step, dtype, DF_SITE);
}

deft_tensor *deft_linspace(deft_ctx *cx, double first, double last, int64_t n, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx || !df_check_dtype(cx, "linspace", dtype)) return NULL;
    if (!df_is_float(dtype))
        return df_error(cx, DEFT_E_DTYPE, "linspace: not for %s", deft_dtype_name(dtype));
    if (n < 0) return df_error(cx, DEFT_E_RANGE, "linspace: %lld values", (long long)n);
    const uintptr_t site = DF_SITE;
    const df_shape s = { .rank = 1, .dim = { n } };
    const double step = n > 1 ? (last - first) / (double)(n - 1) : 0;
    const uint32_t places = df_iota_node(cx, &s, 0, site);
    uint32_t at =
        steps(cx, "linspace", places, df_literal_f(first), df_literal_f(step), dtype, site);
    if (n > 1) { /* the steps may end beside the last number, which has to be there */
        const uint32_t end = df_number_i(cx, "linspace", DEFT_I64, n - 1, site);
        const uint32_t is_end = df_map2(cx, DF_OP_eq, places, end, site);
        at = df_where(cx, is_end, number_for(cx, "linspace", dtype, last, site), at, site);
    }
    return df_result(cx, df_to(cx, at, dtype, site));
}

deft_tensor *deft_eye(deft_ctx *cx, int64_t rows, int64_t columns, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx || !df_check_dtype(cx, "eye", dtype)) return NULL;
    const deft_shape shape = { .rank = 2, .dim = { rows, columns } };
    df_shape s;
    if (!df_check_shape(cx, "eye", &shape, &s)) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t same =
        df_map2(cx, DF_OP_eq, df_iota_node(cx, &s, 0, site), df_iota_node(cx, &s, 1, site), site);
    const uint32_t out = df_to(cx, same, df_record_dtype(dtype), site);
    if (!df_is_complex(dtype)) return df_result(cx, out);
    return df_parts_result(cx, (df_parts){ out, DF_BAD, true }, site);
}

deft_tensor *deft_iota(deft_ctx *cx, deft_shape shape, int axis)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!cx || !df_check_shape(cx, "iota", &shape, &s)) return NULL;
    const int a = df_check_axis(cx, "iota", axis, s.rank);
    return a < 0 ? NULL : df_result(cx, df_iota_node(cx, &s, (uint32_t)a, DF_SITE));
}

/* ---- random numbers ---- */

/* Word number `word` of the draw's Philox block, as i64 in [0, 2^32). */
static uint32_t random_word(deft_ctx *cx, deft_rng *rng, uint64_t draw, uint32_t word,
                            const df_shape *s, uintptr_t site)
{
    const int64_t args[2] = { (int64_t)rng->seed, (int64_t)draw };
    df_recording_draw(cx, cx->rec.n_args, rng, draw);
    return df_append(cx, DF_OP_random, DEFT_I64, word, NULL, args, 2, s, site);
}

/* The number of random bits of a uniform number in [0, 1): those of the significand of t,
 * so that every value is exact. */
static int unit_bits(deft_dtype t)
{
    return (int)df_fraction_of(t) + 1;
}

/* A structural constant that is exact in t, which is f32 or f64. */
static uint32_t structural(deft_ctx *cx, deft_dtype t, float value, uintptr_t site)
{
    uint32_t attr; /* the bits of an f32 in both dtypes */
    memcpy(&attr, &value, sizeof attr);
    const df_shape scalar = { .rank = 0 };
    return df_append(cx, DF_OP_cst, t, attr, NULL, NULL, 0, &scalar, site);
}

/* Uniform numbers in [0, 1) with `keep` bits, in t, which is f32 or f64. plus_one: in (0,
 * 1]. */
static uint32_t unit(deft_ctx *cx, deft_rng *rng, uint64_t draw, uint32_t word, bool plus_one,
                     const df_shape *s, int keep, deft_dtype t, uintptr_t site)
{
    uint32_t bits = random_word(cx, rng, draw, word, s, site);
    if (keep <= 32) {
        bits = df_map2(cx, DF_OP_shift_right, bits, df_cst(cx, DEFT_I64, 32 - keep, site), site);
    } else {
        const uint32_t high =
            df_map2(cx, DF_OP_shift_left, bits, df_cst(cx, DEFT_I64, 21, site), site);
        const uint32_t low =
            df_map2(cx, DF_OP_shift_right, random_word(cx, rng, draw, word + 1, s, site),
                    df_cst(cx, DEFT_I64, 11, site), site);
        bits = df_map2(cx, DF_OP_bitwise_or, high, low, site);
    }
    if (plus_one) bits = df_map2(cx, DF_OP_add, bits, df_cst(cx, DEFT_I64, 1, site), site);
    const uint32_t by = structural(cx, t, ldexpf(1.0f, -keep), site);
    return df_map2(cx, DF_OP_mul, df_to(cx, bits, t, site), by, site);
}

/* cos(2 pi u) for f32 u in [0, 1): with a = 1/4 - |u - 1/2|, which is exact, it is -sin(2 pi a) =
 * a P(a^2). P has a relative error of 2^-24.5 with the rounded coefficients. So a draw needs no
 * reduction of a large argument, which costs most of a cosine
 * (docs/decisions/normal-numbers.md). */
static uint32_t cos_of_turn(deft_ctx *cx, uint32_t u, uintptr_t site)
{
    static const float p[] = { -0x1.921fb6p+2f, 0x1.4abbc2p+5f, -0x1.4668bp+6f, 0x1.324ccap+6f,
                               -0x1.3daff6p+5f };
    const uint32_t half = structural(cx, DEFT_F32, 0.5f, site);
    const uint32_t far = df_map1(cx, DF_OP_abs, df_map2(cx, DF_OP_sub, u, half, site), site);
    const uint32_t a = df_map2(cx, DF_OP_sub, structural(cx, DEFT_F32, 0.25f, site), far, site);
    const uint32_t square = df_map2(cx, DF_OP_mul, a, a, site);
    uint32_t y = structural(cx, DEFT_F32, p[4], site);
    for (int i = 3; i >= 0; i--)
        y = df_map2(cx, DF_OP_add, df_map2(cx, DF_OP_mul, y, square, site),
                    structural(cx, DEFT_F32, p[i], site), site);
    return df_map2(cx, DF_OP_mul, a, y, site);
}

static uint32_t cos_of_f64_turn(deft_ctx *cx, uint32_t u, uintptr_t site)
{
    const uint32_t turn = df_number_f(cx, "normal", DEFT_F64, 6.283185307179586476925, site);
    return df_map1(cx, DF_OP_cos, df_map2(cx, DF_OP_mul, u, turn, site), site);
}

static bool check_draw(deft_ctx *cx, const char *what, const deft_rng *rng, const deft_shape *shape,
                       deft_dtype t, bool floating, df_shape *s)
{
    if (!cx) return false;
    if (!rng) {
        df_error(cx, DEFT_E_ARG, "%s: rng is NULL", what);
        return false;
    }
    if (cx->body_nest != cx->draw_nest) {
        df_error(cx, DEFT_E_STATE,
                 "%s: inside a loop or branch each iteration would draw the same: draw before, and "
                 "pass the numbers as rows",
                 what);
        return false;
    }
    if (!df_check_dtype(cx, what, t) || !df_check_shape(cx, what, shape, s)) return false;
    if (floating ? df_is_float(t) : df_is_int(t)) return true;
    if (df_is_complex(t) && !strcmp(what, "normal")) return true;
    df_error(cx, DEFT_E_DTYPE, "%s: not for %s", what, deft_dtype_name(t));
    return false;
}

/* The handle of a draw. A draw that fails does not advance the generator. */
static deft_tensor *drawn(deft_ctx *cx, deft_rng *rng, uint32_t node)
{
    deft_tensor *const t = df_result(cx, node);
    rng->next += t != NULL;
    return t;
}

deft_tensor *deft_uniform(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                          double low, double high)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "uniform", rng, &shape, dtype, true, &s)) return NULL;
    const uintptr_t site = DF_SITE;
    const deft_dtype t = df_arithmetic_dtype(dtype);
    const uint32_t u = unit(cx, rng, rng->next, 0, false, &s, unit_bits(dtype), t, site);
    const uint32_t span = number_for(cx, "uniform", dtype, high - low, site);
    const uint32_t from = number_for(cx, "uniform", dtype, low, site);
    const uint32_t at = df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, u, span, site), site);
    return drawn(cx, rng, df_to(cx, at, dtype, site));
}

/* Normal numbers of a float dtype. */
static uint32_t normal(deft_ctx *cx, deft_rng *rng, const df_shape *s, deft_dtype dtype,
                       double mean, double deviation, uintptr_t site)
{
    const uint64_t draw = rng->next;
    /* Box-Muller: sqrt(-2 log u1) cos(2 pi u2), with u1 in (0, 1]. */
    const deft_dtype t = df_arithmetic_dtype(dtype);
    const int keep = unit_bits(t);
    const uint32_t u1 = unit(cx, rng, draw, 0, true, s, keep, t, site);
    const uint32_t u2 = unit(cx, rng, draw, 2, false, s, keep, t, site);
    const uint32_t r = df_map1(
        cx, DF_OP_sqrt,
        df_map2(cx, DF_OP_mul, df_map1(cx, DF_OP_log, u1, site), df_cst(cx, t, -2, site), site),
        site);
    const uint32_t c = t == DEFT_F32 ? cos_of_turn(cx, u2, site) : cos_of_f64_turn(cx, u2, site);
    const uint32_t z = df_map2(cx, DF_OP_mul, r, c, site);
    const uint32_t by = number_for(cx, "normal", dtype, deviation, site);
    const uint32_t from = number_for(cx, "normal", dtype, mean, site);
    const uint32_t at = df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, z, by, site), site);
    return df_to(cx, at, dtype, site);
}

/* Both parts of a complex number have half of its variance. */
static deft_tensor *complex_normal(deft_ctx *cx, deft_rng *rng, df_shape s, deft_dtype dtype,
                                   double mean, double deviation, uintptr_t site)
{
    const deft_dtype t = df_record_dtype(dtype);
    if (!df_face_hide(cx, "normal", df_face_for(dtype), &s)) return NULL;
    const uint32_t z = normal(cx, rng, &s, t, 0, deviation * 0.70710678118654752440, site);
    if (z == DF_BAD) return NULL;
    if (mean == 0) return df_wear(drawn(cx, rng, z), df_face_for(dtype));
    df_parts p = df_parts_of(cx, z, site);
    p.re = df_map2(cx, DF_OP_add, p.re, number_for(cx, "normal", t, mean, site), site);
    return df_wear(drawn(cx, rng, df_parts_join(cx, p, site)), df_face_for(dtype));
}

deft_tensor *deft_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                         double mean, double deviation)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "normal", rng, &shape, dtype, true, &s)) return NULL;
    if (df_is_complex(dtype)) return complex_normal(cx, rng, s, dtype, mean, deviation, DF_SITE);
    return drawn(cx, rng, normal(cx, rng, &s, dtype, mean, deviation, DF_SITE));
}

deft_tensor *deft_randint(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                          int64_t low, int64_t high)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "randint", rng, &shape, dtype, false, &s)) return NULL;
    int64_t range;
    if (__builtin_sub_overflow(high, low, &range) || range < 1 || range > (int64_t)1 << 31)
        return df_error(cx, DEFT_E_RANGE, "randint: [%lld, %lld) must hold 1 to 2^31 integers",
                        (long long)low, (long long)high);
    const uintptr_t site = DF_SITE;
    const uint32_t word = random_word(cx, rng, rng->next, 0, &s, site);
    const uint32_t by = df_number_i(cx, "randint", DEFT_I64, range, site);
    const uint32_t at = df_map2(cx, DF_OP_shift_right, df_map2(cx, DF_OP_mul, word, by, site),
                                df_cst(cx, DEFT_I64, 32, site), site);
    const uint32_t from = df_number_i(cx, "randint", DEFT_I64, low, site);
    /* Both ends must fit the dtype, or values would wrap. */
    if (df_number_i(cx, "randint", dtype, low, site) == DF_BAD ||
        df_number_i(cx, "randint", dtype, high - 1, site) == DF_BAD)
        return NULL;
    return drawn(cx, rng, df_to(cx, df_map2(cx, DF_OP_add, from, at, site), dtype, site));
}
