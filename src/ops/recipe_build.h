/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for writing recipes so that they read like mathematics. Internal header of recipes.
 *
 * Costs on the back ends determine how recipes are written:
 *   - A constant is the first operand of min and max. There a back end needs one instruction, and
 *     NaN still propagates.
 *   - Floats are rounded to integers by adding a large number (r_round), because a saturating cast
 *     takes many instructions.
 *   - Bitcasts and constants cost nothing.
 * Why this file is long: the vocabulary in which every recipe is written.
 */
#ifndef DF_OPS_RECIPE_BUILD_H
#define DF_OPS_RECIPE_BUILD_H

#include "ops/recipe.h"

#include "base/half.h"

#include <string.h>

/* An emitter, and the dtype in which it does arithmetic. */
typedef struct rb {
    df_emit *e;
    deft_dtype t;
} rb;

typedef uint32_t rid; /* id of a value */

static inline rb r_f64(df_emit *e)
{
    return (rb){ e, DEFT_F64 };
}

static inline rb r_i32(rb f)
{
    return (rb){ f.e, DEFT_I32 };
}

static inline rb r_i64(rb f)
{
    return (rb){ f.e, DEFT_I64 };
}

/* The same emitter with the integer dtype of the same width. */
static inline rb r_int(rb f)
{
    return (rb){ f.e, f.t == DEFT_F64 || f.t == DEFT_I64 ? DEFT_I64 : DEFT_I32 };
}

static inline rid r_ins(rb f, df_kop op, rid a, rid b, rid c)
{
    return f.e->ins(f.e, op, f.t, a, b, c, 0);
}

/* A float constant. When f.t is f32, the value must be representable in f32. */
static inline rid r_k(rb f, double value)
{
    uint64_t bits = 0;
    if (f.t == DEFT_F32) {
        const float narrow = (float)value;
        df_assert((double)narrow == value || value != value);
        bits = df_f32_bits(narrow);
    } else {
        memcpy(&bits, &value, sizeof value);
    }
    return f.e->ins(f.e, DF_K_const, f.t, 0, 0, 0, bits);
}

/* A float constant with one value for f32 and another for f64. */
static inline rid r_kk(rb f, double f32, double f64)
{
    return r_k(f, f.t == DEFT_F64 ? f64 : f32);
}

/* An integer constant. */
static inline rid r_ki(rb f, int64_t value)
{
    return f.e->ins(f.e, DF_K_const, f.t, 0, 0, 0, (uint64_t)value & df_all_bits(f.t));
}

#define R_UNARY(name)                                                                              \
    static inline rid r_##name(rb f, rid a)                                                        \
    {                                                                                              \
        return r_ins(f, DF_K_##name, a, 0, 0);                                                     \
    }
#define R_BINARY(name)                                                                             \
    static inline rid r_##name(rb f, rid a, rid b)                                                 \
    {                                                                                              \
        return r_ins(f, DF_K_##name, a, b, 0);                                                     \
    }
#define R_COMPARE(name)                                                                            \
    static inline rid r_##name(rb f, rid a, rid b)                                                 \
    {                                                                                              \
        return f.e->ins(f.e, DF_K_##name, DEFT_BOOL, a, b, 0, 0);                                  \
    }
R_UNARY(neg)
R_UNARY(abs)
R_UNARY(sqrt)
R_UNARY(rint)
R_UNARY(floor)
R_UNARY(not )
R_UNARY(cast)    /* to f.t */
R_UNARY(bitcast) /* to f.t */
R_BINARY(add)
R_BINARY(sub)
R_BINARY(mul)
R_BINARY(div)
R_BINARY(min)
R_BINARY(max)
R_BINARY(and)
R_BINARY(or)
R_BINARY(xor)
R_BINARY(shl)
R_BINARY(shr)
R_BINARY(lshr)
R_COMPARE(eq)
R_COMPARE(ne)
R_COMPARE(lt)
R_COMPARE(le)
#undef R_UNARY
#undef R_BINARY
#undef R_COMPARE

/* a * b + c */
static inline rid r_fma(rb f, rid a, rid b, rid c)
{
    return r_ins(f, DF_K_fma, a, b, c);
}

/* p 2^n, rounded once; `sum` is the rounding sum whose low bits are n + 2 bias (kops.def). */
static inline rid r_scale(rb f, rid p, rid n, rid sum)
{
    return r_ins(f, DF_K_scale, p, n, sum);
}

static inline rid r_select(rb f, rid condition, rid a, rid b)
{
    return r_ins(f, DF_K_select, condition, a, b);
}

static inline rid r_both(rb f, rid a, rid b)
{
    return f.e->ins(f.e, DF_K_and, DEFT_BOOL, a, b, 0, 0);
}

static inline rid r_either(rb f, rid a, rid b)
{
    return f.e->ins(f.e, DF_K_or, DEFT_BOOL, a, b, 0, 0);
}

static inline rid r_not_bool(rb f, rid a)
{
    return f.e->ins(f.e, DF_K_not, DEFT_BOOL, a, 0, 0, 0);
}

/* The bits of a float, and back. */
static inline rid r_bits(rb f, rid x)
{
    return r_bitcast(r_int(f), x);
}

static inline rid r_of_bits(rb f, rid i)
{
    return r_bitcast(f, i);
}

static inline int64_t r_sign_mask(rb f)
{
    return f.t == DEFT_F64 ? INT64_MIN : INT32_MIN;
}

/* The sign bit of x, as an integer. */
static inline rid r_sign_of(rb f, rid x)
{
    return r_and(r_int(f), r_bits(f, x), r_ki(r_int(f), r_sign_mask(f)));
}

/* magnitude with the sign of x. The sign bit of magnitude must be clear. */
static inline rid r_with_sign(rb f, rid magnitude, rid x)
{
    return r_of_bits(f, r_or(r_int(f), r_bits(f, magnitude), r_sign_of(f, x)));
}

/* -|x| */
static inline rid r_neg_abs(rb f, rid x)
{
    return r_of_bits(f, r_or(r_int(f), r_bits(f, x), r_ki(r_int(f), r_sign_mask(f))));
}

/* c[0] + c[1] x + ... + c[n-1] x^(n-1) */
static inline rid r_poly(rb f, rid x, const double *c, size_t n)
{
    rid y = r_k(f, c[n - 1]);
    for (size_t i = n - 1; i-- > 0;) y = r_fma(f, y, x, r_k(f, c[i]));
    return y;
}

/* The polynomial in x whose coefficients are the tables name_f32 and name_f64. */
#define R_POLY(f, x, name)                                                                         \
    ((f).t == DEFT_F64 ? r_poly(f, x, name##_f64, DF_LEN(name##_f64))                              \
                       : r_poly(f, x, name##_f32, DF_LEN(name##_f32)))

static inline int r_bias(rb f)
{
    return f.t == DEFT_F64 ? 1023 : 127;
}

static inline rid r_mantissa_bits(rb f)
{
    return r_ki(r_int(f), f.t == DEFT_F64 ? 52 : 23);
}

/* A number that rounds x to an integer when it is added, for |x| < 2^21 (f32) or 2^50 (f64). The
 * low bits of the sum are then those of the integer + extra, where 0 <= extra < 2^12. */
static inline rid r_rounder(rb f, int extra)
{
    return r_k(f, (f.t == DEFT_F64 ? 0x1.8p52 : 0x1.8p23) + extra);
}

/* n is x * scale rounded to an integer, as a float. The low bits of `sum` are those of n +
 * extra. */
typedef struct r_rounded {
    rid n, sum;
} r_rounded;

static inline r_rounded r_round(rb f, rid x, rid scale, int extra)
{
    const rid rounder = r_rounder(f, extra);
    const rid sum = r_fma(f, x, scale, rounder);
    return (r_rounded){ r_sub(f, sum, rounder), sum };
}

/* An integer whose low bits are those of n + extra. */
static inline rid r_low(rb f, r_rounded k)
{
    return r_bits(f, k.sum);
}

/* The float whose sign and exponent bits are the low bits of i: 2^(i - bias). */
static inline rid r_power(rb f, rid i)
{
    return r_of_bits(f, r_shl(r_int(f), i, r_mantissa_bits(f)));
}

/* 1/ln 2, and -ln 2 in two parts. */
static inline rid r_log2e(rb f)
{
    return r_kk(f, 0x1.715476p0, 0x1.71547652b82fep0);
}

static inline rid r_neg_ln2_hi(rb f)
{
    return r_kk(f, -0x1.62e43p-1, -0x1.62e42fefa39efp-1);
}

static inline rid r_neg_ln2_lo(rb f)
{
    return r_kk(f, 0x1.05c61p-29, -0x1.abc9e3b39803fp-56);
}

#endif
