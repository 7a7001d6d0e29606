/* SPDX-License-Identifier: Apache-2.0
 *
 * pow of f32, and the special cases of pow in both dtypes.
 *
 * |x|^y = 2^(y log2 |x|) is computed in f64. log2 has a relative error of 2^-38, so y log2 |x|,
 * which is below 2^8, has an error of 2^-30. Every f32 is normal in f64, no power of two overflows,
 * and the last cast rounds a denormal result once.
 */
#include "ops/recipe_parts.h"

#include <math.h>

/* log2(1 + g) / g on [-0.2929, 0.4143]: 2^-38.4 */
static const double log2_table[] = {
    0x1.71547652b58e9p0,  -0x1.71547651b6f56p-1, 0x1.ec709de345dc8p-2, -0x1.715478885b927p-2,
    0x1.2776b6c8cd53ep-2, -0x1.ec6f2dee64467p-3, 0x1.a61b7f287f66cp-3, -0x1.7188d5b270f09p-3,
    0x1.481f93ec1c406p-3, -0x1.23d6206e6fe5cp-3, 0x1.0acec303be08ep-3, -0x1.13ba307661399p-3,
    0x1.0f5fef4a69b85p-3, -0x1.1d9c3c7ac1bfcp-4,
};

/* 2^r on [-0.5, 0.5]: 2^-29.0 */
static const double exp2_table[] = {
    0x1.00000002615p0,   0x1.62e430c7e922cp-1,  0x1.ebfbdadcb0b76p-3,  0x1.c6aed4b951e22p-5,
    0x1.3b2dbbc1032ep-7, 0x1.5f456a8a6b565p-10, 0x1.41d33366e8072p-13,
};

/* log2 of a > 0, an f64 with the value of an f32. The exponent is counted from sqrt(1/2). */
static rid log2_of(rb d, rid a)
{
    const rb i = r_i64(d);
    const int64_t from = 0x3fe6a09e667f3bcd;
    const rid above = r_sub(i, r_bits(d, a), r_ki(i, from - ((int64_t)1023 << 52)));
    const rid mantissa = r_and(i, above, r_ki(i, 0xfffffffffffff));
    const rid g = r_sub(d, r_of_bits(d, r_add(i, mantissa, r_ki(i, from))), r_k(d, 1));
    /* The biased exponent is positive: as the mantissa of 2^52 + biased it becomes a float. */
    const rid biased = r_or(i, r_lshr(i, above, r_ki(i, 52)), r_ki(i, 0x4330000000000000));
    const rid e = r_sub(d, r_of_bits(d, biased), r_k(d, 0x1p52 + 1023));
    return r_fma(d, r_poly(d, g, log2_table, DF_LEN(log2_table)), g, e);
}

rid df_recipe_pow_f32(rb f, rid x, rid y)
{
    const rb d = r_f64(f.e);
    const rid a = r_abs(f, x);
    rid log = log2_of(d, r_cast(d, a));
    log = r_select(d, r_lt(f, a, r_k(f, INFINITY)), log, r_cast(d, a));
    log = r_select(d, r_eq(f, a, r_k(f, 0)), r_k(d, -INFINITY), log);
    const rid t = r_max(d, r_k(d, -160), r_min(d, r_k(d, 130), r_mul(d, r_cast(d, y), log)));
    const rid sum = r_add(d, t, r_rounder(d, 1023));
    const rid r = r_sub(d, t, r_sub(d, sum, r_rounder(d, 1023)));
    const rid p = r_poly(d, r, exp2_table, DF_LEN(exp2_table));
    return df_recipe_pow_special(f, x, y, r_cast(f, r_mul(d, p, r_power(d, r_bits(d, sum)))));
}

rid df_recipe_pow_special(rb f, rid x, rid y, rid power)
{
    const rb i = r_int(f);
    const rid a = r_abs(f, x), one = r_k(f, 1);
    /* 1^y and x^0 are 1 even for NaN; |-1|^inf too. */
    const rid is_one = r_either(f, r_eq(f, a, one), r_eq(f, y, r_k(f, 0)));
    const rid magnitude = r_select(f, is_one, one, power);
    const rid half = r_mul(f, y, r_k(f, 0.5));
    const rid whole = r_eq(f, r_floor(f, y), y);
    const rid odd = r_both(f, whole, r_ne(f, r_floor(f, half), half));
    const rid sign = r_select(i, odd, r_sign_of(f, x), r_ki(i, 0));
    const rid value = r_of_bits(f, r_xor(i, r_bits(f, magnitude), sign));
    /* A finite negative x has real powers only for integral y. */
    const rid negative = r_both(f, r_lt(f, x, r_k(f, 0)), r_lt(f, r_k(f, -INFINITY), x));
    return r_select(f, r_both(f, negative, r_not_bool(f, whole)), r_k(f, NAN), value);
}

#define EITHER(name)                                                                               \
    uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x)                                \
    {                                                                                              \
        const rb f = { e, t };                                                                     \
        return t == DEFT_F64 ? df_recipe_##name##_f64(f, x) : df_recipe_##name##_f32(f, x);        \
    }
EITHER(sin)
EITHER(cos)
EITHER(tan)
