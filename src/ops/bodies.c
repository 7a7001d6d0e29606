/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel ops of every elementwise operator. Rows of ops.def that name a kernel op or a recipe
 * get a generated wrapper. The short bodies of the other operators are in this file. All bodies are
 * straight lines: results are selected and nothing branches, so one body serves scalar and vector
 * code.
 *
 * Division with floor. For floats the pair follows C Python and PyTorch:
 *
 *   remainder(a, b)  r = fmod(a, b), plus b when r is not zero and its sign differs from b's. A
 *                    zero keeps the sign of a; b = 0 gives NaN; -1e-20 mod 1 rounds to 1.
 *   floor_div(a, b)  the integer nearest to (a - fmod(a, b)) / b, minus 1 where remainder added b.
 *                    Without rounding, that quotient would be an integer, so the nearest integer is
 *                    right and not the floor. A zero has the sign of a / b. b = 0 gives a / b, an
 *                    infinity or NaN.
 *   trunc_div(a, b)  the integer nearest to (a - fmod(a, b)) / b, likewise without the last step.
 *
 * For integers: truncated division and remainder. Where the remainder is not zero and its sign
 * differs from the sign of b, they are corrected by one step of b. A division by 0 gives
 * floor_div(a, 0) = 0 and remainder(a, 0) = a. MIN / -1 wraps to MIN.
 */
#include "ops/bodies.h"

#include "base/half.h"
#include "ops/shape.h"

#include <string.h>

/* ---- shorthands ---- */

static uint32_t ins1(df_emit *e, df_kop op, deft_dtype t, uint32_t a)
{
    return e->ins(e, op, t, a, 0, 0, 0);
}

static uint32_t ins2(df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b)
{
    return e->ins(e, op, t, a, b, 0, 0);
}

static uint32_t select(df_emit *e, deft_dtype t, uint32_t c, uint32_t a, uint32_t b)
{
    return e->ins(e, DF_K_select, t, c, a, b, 0);
}

static uint32_t constant_bits(df_emit *e, deft_dtype t, uint64_t bits)
{
    return e->ins(e, DF_K_const, t, 0, 0, 0, bits);
}

/* A constant of dtype t, which must represent v exactly. */
static uint32_t constant(df_emit *e, deft_dtype t, double v)
{
    uint64_t bits = 0;
    const float f = (float)v;
    df_assert(!df_is_half(t));
    if (t == DEFT_F32)
        bits = df_f32_bits(f);
    else if (t == DEFT_F64)
        memcpy(&bits, &v, sizeof v);
    else
        bits = df_int_bits(t, (int64_t)v);
    return constant_bits(e, t, bits);
}

static uint32_t infinity(df_emit *e, deft_dtype t)
{
    return constant_bits(e, t, df_infinity_bits(t));
}

/* The magnitude of a with the sign of b. */
static uint32_t copy_sign(df_emit *e, deft_dtype t, uint32_t a, uint32_t b)
{
    const deft_dtype i = t == DEFT_F32 ? DEFT_I32 : DEFT_I64;
    const uint64_t sign = t == DEFT_F32 ? 0x80000000u : (uint64_t)1 << 63;
    const uint64_t rest = t == DEFT_F32 ? 0x7fffffffu : ~sign;
    const uint32_t of_a =
        ins2(e, DF_K_and, i, ins1(e, DF_K_bitcast, i, a), constant_bits(e, i, rest));
    const uint32_t of_b =
        ins2(e, DF_K_and, i, ins1(e, DF_K_bitcast, i, b), constant_bits(e, i, sign));
    return ins1(e, DF_K_bitcast, t, ins2(e, DF_K_or, i, of_a, of_b));
}

/* Whether r, the truncated remainder of a division by b, is not zero and has not the sign of b. */
static uint32_t must_step(df_emit *e, deft_dtype t, uint32_t r, uint32_t b)
{
    const uint32_t zero = constant(e, t, 0);
    const uint32_t differ = ins2(e, DF_K_xor, DEFT_BOOL, ins2(e, DF_K_lt, DEFT_BOOL, r, zero),
                                 ins2(e, DF_K_lt, DEFT_BOOL, b, zero));
    return ins2(e, DF_K_and, DEFT_BOOL, ins2(e, DF_K_ne, DEFT_BOOL, r, zero), differ);
}

static uint32_t floor_div_int(df_emit *e, deft_dtype t, uint32_t a, uint32_t b)
{
    const uint32_t q = ins2(e, DF_K_div, t, a, b);
    if (df_is_unsigned(t)) return q;
    const uint32_t divides = ins2(e, DF_K_ne, DEFT_BOOL, b, constant(e, t, 0));
    const uint32_t step =
        ins2(e, DF_K_and, DEFT_BOOL, divides, must_step(e, t, ins2(e, DF_K_rem, t, a, b), b));
    return select(e, t, step, ins2(e, DF_K_sub, t, q, constant(e, t, 1)), q);
}

static uint32_t floor_div_float(df_emit *e, deft_dtype t, uint32_t a, uint32_t b)
{
    const uint32_t zero = constant(e, t, 0), one = constant(e, t, 1);
    const uint32_t plain = ins2(e, DF_K_div, t, a, b);
    const uint32_t r = ins2(e, DF_K_rem, t, a, b);
    const uint32_t whole = ins2(e, DF_K_div, t, ins2(e, DF_K_sub, t, a, r), b);
    const uint32_t q = select(e, t, must_step(e, t, r, b), ins2(e, DF_K_sub, t, whole, one), whole);
    const uint32_t low = ins1(e, DF_K_floor, t, q);
    const uint32_t above =
        ins2(e, DF_K_lt, DEFT_BOOL, constant(e, t, 0.5), ins2(e, DF_K_sub, t, q, low));
    const uint32_t nearest = select(e, t, above, ins2(e, DF_K_add, t, low, one), low);
    const uint32_t signed_zero = copy_sign(e, t, zero, plain);
    const uint32_t q_or_zero =
        select(e, t, ins2(e, DF_K_eq, DEFT_BOOL, q, zero), signed_zero, nearest);
    return select(e, t, ins2(e, DF_K_eq, DEFT_BOOL, b, zero), plain, q_or_zero);
}

/* ---- bodies that are not generated ---- */

#define BODY(name)                                                                                 \
    uint32_t df_body_##name(df_emit *e, deft_dtype t, deft_dtype out, const uint32_t src[3],       \
                            uint32_t attr)

BODY(sign)
{
    (void)out, (void)attr;
    const uint32_t x = src[0], zero = constant(e, t, 0);
    const uint32_t above = ins2(e, DF_K_lt, DEFT_BOOL, zero, x);
    if (df_is_unsigned(t)) return select(e, t, above, constant(e, t, 1), x);
    const uint32_t below = ins2(e, DF_K_lt, DEFT_BOOL, x, zero);
    return select(e, t, above, constant(e, t, 1), select(e, t, below, constant(e, t, -1), x));
}

BODY(square)
{
    (void)out, (void)attr;
    return ins2(e, DF_K_mul, t, src[0], src[0]);
}

BODY(reciprocal)
{
    (void)out, (void)attr;
    return ins2(e, DF_K_div, t, constant(e, t, 1), src[0]);
}

/* x is the first operand: max returns its second one when neither is greater, so relu(-0) is +0. */
BODY(relu)
{
    (void)out, (void)attr;
    return ins2(e, DF_K_max, t, src[0], constant(e, t, 0));
}

BODY(isnan)
{
    (void)t, (void)attr;
    return ins2(e, DF_K_ne, out, src[0], src[0]);
}

BODY(isinf)
{
    (void)attr;
    return ins2(e, DF_K_eq, out, ins1(e, DF_K_abs, t, src[0]), infinity(e, t));
}

BODY(isfinite)
{
    (void)attr;
    return ins2(e, DF_K_lt, out, ins1(e, DF_K_abs, t, src[0]), infinity(e, t));
}

BODY(powi)
{
    (void)out;
    return df_recipe_powi(e, t, src[0], (int32_t)attr);
}

BODY(polygamma)
{
    (void)out;
    return df_recipe_polygamma(e, t, src[0], attr);
}

BODY(floor_div)
{
    (void)out, (void)attr;
    return df_is_float(t) ? floor_div_float(e, t, src[0], src[1])
                          : floor_div_int(e, t, src[0], src[1]);
}

BODY(trunc_div)
{
    (void)out, (void)attr;
    const uint32_t a = src[0], b = src[1], plain = ins2(e, DF_K_div, t, a, b);
    if (!df_is_float(t)) return plain;
    const uint32_t r = ins2(e, DF_K_rem, t, a, b), zero = constant(e, t, 0);
    const uint32_t whole = ins2(e, DF_K_div, t, ins2(e, DF_K_sub, t, a, r), b);
    const uint32_t q = ins1(e, DF_K_rint, t, whole);
    const uint32_t or_zero =
        select(e, t, ins2(e, DF_K_eq, DEFT_BOOL, q, zero), copy_sign(e, t, zero, plain), q);
    const uint32_t is_finite =
        ins2(e, DF_K_lt, DEFT_BOOL, ins1(e, DF_K_abs, t, plain), infinity(e, t));
    return select(e, t, is_finite, or_zero, plain);
}

BODY(remainder)
{
    (void)out, (void)attr;
    const uint32_t r = ins2(e, DF_K_rem, t, src[0], src[1]);
    if (df_is_unsigned(t)) return r;
    return select(e, t, must_step(e, t, r, src[1]), ins2(e, DF_K_add, t, r, src[1]), r);
}

BODY(cast)
{
    (void)attr;
    return df_emit_cast(e, out, t, src[0]);
}

BODY(bitcast)
{
    (void)t, (void)attr;
    return ins1(e, DF_K_bitcast, out, src[0]);
}

BODY(signbit)
{
    (void)attr;
    const deft_dtype i = t == DEFT_F32 ? DEFT_I32 : DEFT_I64;
    return ins2(e, DF_K_lt, out, ins1(e, DF_K_bitcast, i, src[0]), constant(e, i, 0));
}

/* The bits of a magnitude count its numbers, so the next one is a step of the bits away. A half is
 * an f32 here, whose step is that of the half. Only the denormal numbers of f16 are no denormals of
 * f32: below 2^-14 a step is 2^-24. What lies beyond f16 rounds to infinity, so that 2^16 stands
 * for it. */
BODY(nextafter)
{
    (void)out, (void)attr;
    const deft_dtype i = t == DEFT_F32 ? DEFT_I32 : DEFT_I64;
    const bool is_f16 = t == DEFT_F32 && e->half == DEFT_F16;
    const uint32_t x = src[0], y = src[1], zero = constant(e, t, 0);
    const uint64_t by = t == DEFT_F32 && df_is_half(e->half)
                            ? (uint64_t)1 << (df_fraction_of(t) - df_fraction_of(e->half))
                            : 1;
    const uint32_t step = constant_bits(e, i, by);
    const uint32_t is_zero = ins2(e, DF_K_eq, DEFT_BOOL, x, zero);
    const uint32_t is_up = ins2(e, DF_K_lt, DEFT_BOOL, x, y);
    const uint32_t same = ins2(e, DF_K_eq, DEFT_BOOL, is_up, ins2(e, DF_K_lt, DEFT_BOOL, zero, x));
    const uint32_t away = ins2(e, DF_K_or, DEFT_BOOL, is_zero, same);
    uint32_t a = ins1(e, DF_K_abs, t, x);
    if (is_f16) a = ins2(e, DF_K_min, t, constant(e, t, 0x1p16), a);
    const uint32_t bits = ins1(e, DF_K_bitcast, i, a);
    uint32_t next = ins1(
        e, DF_K_bitcast, t,
        select(e, i, away, ins2(e, DF_K_add, i, bits, step), ins2(e, DF_K_sub, i, bits, step)));
    if (is_f16) {
        const uint32_t least = constant(e, t, 0x1p-14), by_16 = constant(e, t, 0x1p-24);
        const uint32_t is_small = select(e, DEFT_BOOL, away, ins2(e, DF_K_lt, DEFT_BOOL, a, least),
                                         ins2(e, DF_K_le, DEFT_BOOL, a, least));
        next = select(
            e, t, is_small,
            select(e, t, away, ins2(e, DF_K_add, t, a, by_16), ins2(e, DF_K_sub, t, a, by_16)),
            next);
    }
    next = copy_sign(e, t, next, select(e, t, is_zero, y, x));
    next = select(e, t, ins2(e, DF_K_eq, DEFT_BOOL, x, y), y, next);
    const uint32_t sum = ins2(e, DF_K_add, t, x, y);
    const uint32_t is_nan = ins2(e, DF_K_or, DEFT_BOOL, ins2(e, DF_K_ne, DEFT_BOOL, x, x),
                                 ins2(e, DF_K_ne, DEFT_BOOL, y, y));
    return select(e, t, is_nan, sum, next);
}

BODY(copysign)
{
    (void)out, (void)attr;
    return copy_sign(e, t, src[0], src[1]);
}

/* ---- generated wrappers: LOWER turns a row into `class, name, how, what` ---- */

#define WRAP_unary_body(name, what)                                                                \
    _Static_assert(DF_SAME_TEXT(#name, #what), #name ": bodies are named after their op");
#define WRAP_binary_body WRAP_unary_body

#define WRAP_unary_kop(name, what)                                                                 \
    BODY(name)                                                                                     \
    {                                                                                              \
        (void)t, (void)attr;                                                                       \
        return e->ins(e, DF_K_##what, out, src[0], 0, 0, 0);                                       \
    }
#define WRAP_binary_kop(name, what)                                                                \
    BODY(name)                                                                                     \
    {                                                                                              \
        (void)t, (void)attr;                                                                       \
        return e->ins(e, DF_K_##what, out, src[0], src[1], 0, 0);                                  \
    }
#define WRAP_ternary_kop(name, what)                                                               \
    BODY(name)                                                                                     \
    {                                                                                              \
        (void)t, (void)attr;                                                                       \
        return e->ins(e, DF_K_##what, out, src[0], src[1], src[2], 0);                             \
    }
#define WRAP_unary_recipe(name, what)                                                              \
    BODY(name)                                                                                     \
    {                                                                                              \
        (void)out, (void)attr;                                                                     \
        return df_recipe_##what(e, t, src[0]);                                                     \
    }
#define WRAP_binary_recipe(name, what)                                                             \
    BODY(name)                                                                                     \
    {                                                                                              \
        (void)out, (void)attr;                                                                     \
        return df_recipe_##what(e, t, src[0], src[1]);                                             \
    }
#define WRAP_leaf_fuser(name, what)
#define WRAP_reduce_kop(name, what)
#define WRAP_scan_kop(name, what)
#define WRAP_view_fuser(name, what)
#define WRAP_index_fuser(name, what)
#define WRAP_update_fuser(name, what)
#define WRAP_contract_fuser(name, what)
#define WRAP_routine_fuser(name, what)
#define WRAP_control_fuser(name, what)

#define WRAP_JOIN(class, name, how, what) WRAP_##class##_##how(name, what)
#define WRAP(...) WRAP_JOIN(__VA_ARGS__)

#define OP(name, n_src, class, facets) WRAP(class, name facets)
#define LOWER(how, what) , how, what
#include "ops/ops.def"
