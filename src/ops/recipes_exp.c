/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, exp2, expm1, sinh, cosh, tanh, sigmoid, silu, softplus.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, where ln 2 is in two parts. Then exp x = 2^n exp r. One body
 * serves f32 and f64; only the tables of polynomials differ. tools/fit_recipes derives them. The
 * comment of a table gives its interval, and the greatest relative error of the rounded polynomial
 * in f32 and in f64.
 *
 * 2^n is not a normal number for every n that occurs. exp scales by it in one op. The
 * -infinity of masked scores, and other very negative arguments, become one whose n is -2 bias.
 * Back ends make an exact 0 of that n. A product that is rounded to 0 or to a denormal takes some
 * 150 cycles on Intel's processors.
 *
 * Other functions need exp of negative numbers only, whose result may be denormal but does not
 * overflow. They compute with 2^(n + LIFT) and multiply by 2^-LIFT at the end, so that a denormal
 * result is rounded once.
 */
#include "ops/recipe_parts.h"

/* (exp r - 1 - r) / r^2 on [-0.3475, 0.3475], relative to exp: 2^-28.1, 2^-57.8 */
static const double exp_f32[] = { 0x1.fffffap-2, 0x1.55549p-3, 0x1.555a22p-5, 0x1.123b04p-7,
                                  0x1.695414p-10 };
static const double exp_f64[] = {
    0x1.000000000000ap-1,  0x1.55555555554f9p-3,  0x1.5555555550629p-5,  0x1.1111111127d09p-7,
    0x1.6c16c184a9d23p-10, 0x1.a01a012aa8e77p-13, 0x1.a01998b27e796p-16, 0x1.71df22fd74365p-19,
    0x1.28aeb476caa8dp-22, 0x1.ad85bb7fcf4dap-26,
};

/* (exp r - 1 - r) / r^2 on [-0.3475, 0.3475], relative to expm1: 2^-26.0, 2^-61.5 */
static const double expm1_f32[] = {
    0x1.fffffep-2, 0x1.5554aep-3, 0x1.555712p-5, 0x1.12292ep-7, 0x1.6b79b2p-10,
};
static const double expm1_f64[] = {
    0x1p-1,
    0x1.5555555555559p-3,
    0x1.555555555554dp-5,
    0x1.111111110f63p-7,
    0x1.6c16c16c1ab0fp-10,
    0x1.a01a01b01d04ep-13,
    0x1.a01a018e13ff5p-16,
    0x1.71ddf7b89d47p-19,
    0x1.27e51301d4d1ap-22,
    0x1.af5fe54c0043ep-26,
    0x1.1f1aea4eade75p-29,
};

/* (1 - exp(-r) - r) / r^2: the coefficients of the table above with other signs */
static const double neg_expm1_f32[] = {
    -0x1.fffffep-2, 0x1.5554aep-3, -0x1.555712p-5, 0x1.12292ep-7, -0x1.6b79b2p-10,
};
static const double neg_expm1_f64[] = {
    -0x1p-1,
    0x1.5555555555559p-3,
    -0x1.555555555554dp-5,
    0x1.111111110f63p-7,
    -0x1.6c16c16c1ab0fp-10,
    0x1.a01a01b01d04ep-13,
    -0x1.a01a018e13ff5p-16,
    0x1.71ddf7b89d47p-19,
    -0x1.27e51301d4d1ap-22,
    0x1.af5fe54c0043ep-26,
    -0x1.1f1aea4eade75p-29,
};

/* (exp r - 1 - r) 1.5 / r^2 on [-0.3475, 0.3475], relative to exp: 2^-28.2, 2^-57.8 */
static const double exp15_f32[] = {
    0x1.7ffffcp-1, 0x1.fffed8p-3, 0x1.00033ap-4, 0x1.9b5886p-7, 0x1.0f415p-9,
};
static const double exp15_f64[] = {
    0x1.800000000000fp-1,  0x1.fffffffffff76p-3,  0x1.fffffffff893ep-5,  0x1.99999999bb9c2p-7,
    0x1.111111237f4b7p-9,  0x1.381380e04646bp-12, 0x1.38133286135b5p-15, 0x1.156759a851ae9p-18,
    0x1.bd060e511421ep-22, 0x1.42252d4425abap-25,
};

/* 2^r on [-0.5, 0.5]: 2^-28.0, 2^-57.3 */
static const double exp2_f32[] = { 0x1p0,        0x1.62e43p-1,   0x1.ebfbd8p-3, 0x1.c6af76p-5,
                                   0x1.3b30ap-7, 0x1.5f0b82p-10, 0x1.3fa206p-13 };
static const double exp2_f64[] = {
    0x1p0,
    0x1.62e42fefa39efp-1,
    0x1.ebfbdff82c5a5p-3,
    0x1.c6b08d704a124p-5,
    0x1.3b2ab6fb9ffafp-7,
    0x1.5d87fe78a08fdp-10,
    0x1.4309130f14ca6p-13,
    0x1.ffcbfc5c18559p-17,
    0x1.62bfc71b3397fp-20,
    0x1.b525395b42f4fp-24,
    0x1.e61c16c1056fp-28,
    0x1.e9506e7458f2ep-32,
};

/* (cosh r - 1) / r^2, in r^2, r in [0, 0.3475], relative to cosh: 2^-33.2, 2^-70 */
static const double cosh_f32[] = { 0x1p-1, 0x1.5554e4p-5, 0x1.6d5196p-10 };
static const double cosh_f64[] = {
    0x1p-1,
    0x1.5555555555558p-5,
    0x1.6c16c16c14ff4p-10,
    0x1.a01a01ad84fffp-16,
    0x1.27e4cbfbf3087p-22,
    0x1.1f8c0a3fa8939p-29,
};

/* (sinh r - r) / r^3, in r^2, r in [0, 0.3475], relative to sinh: 2^-34.1, 2^-64 */
static const double sinh_f32[] = { 0x1.555556p-3, 0x1.110fe2p-7, 0x1.a28ee6p-13 };
static const double sinh_f64[] = {
    0x1.5555555555555p-3,  0x1.1111111111308p-7,  0x1.a01a019f15e6fp-13,
    0x1.71de3e2a4327ap-19, 0x1.ae56d4f40afccp-26, 0x1.736b43858cc74p-33,
};

/* (tanh x - x) / x^3, in x^2, x in [0, 0.625], relative to tanh: 2^-27.7, 2^-61.1 */
static const double tanh_f32[] = {
    -0x1.555532p-2, 0x1.110704p-3, -0x1.b838ap-5, 0x1.5211c4p-6, -0x1.758facp-8,
};
static const double tanh_f64[] = {
    -0x1.5555555555552p-2, 0x1.1111111110c54p-3,  -0x1.ba1ba1b9d1b7fp-5,  0x1.664f4870ca5eep-6,
    -0x1.226e32d073edap-7, 0x1.d6d35a58217ccp-9,  -0x1.7d9c348f08764p-10, 0x1.350b936866277p-11,
    -0x1.f113c984ac9ep-13, 0x1.801d2380c120bp-14, -0x1.facbac34c7aa3p-16, 0x1.960f9fd5632c2p-18,
};

/* (log(1 + u) - u) / u^2 on [0, 1], relative to log1p: 2^-30.2, 2^-59.1 */
static const double log1p01_f32[] = { -0x1.fffff8p-2, 0x1.5553b4p-2, -0x1.ffc552p-3, 0x1.97890ep-3,
                                      -0x1.4a6966p-3, 0x1.fefbf4p-4, -0x1.54af5ap-4, 0x1.588ab6p-5,
                                      -0x1.bfbf76p-7, 0x1.107bacp-9 };
static const double log1p01_f64[] = {
    -0x1.fffffffffffeep-2,  0x1.5555555554772p-2, -0x1.ffffffff8620fp-3, 0x1.9999998868f8ep-3,
    -0x1.555553dcd8488p-3,  0x1.249233abc27cfp-3, -0x1.fffe43c16eff9p-4, 0x1.c70f2d243f8afp-4,
    -0x1.994c493cc9639p-4,  0x1.72fdbed57e7edp-4, -0x1.5061add721d04p-4, 0x1.2cafade1e726ep-4,
    -0x1.0276e6b4be621p-4,  0x1.9cb683ddc95e1p-5, -0x1.25cffc513f05ap-5, 0x1.652642dd089ap-6,
    -0x1.61f45bd5debdbp-7,  0x1.0f1f1a807e833p-8, -0x1.2a826588963fp-10, 0x1.a1e265bed85d3p-13,
    -0x1.16320ec13be18p-16,
};

/* x = n ln 2 + r, |n| < 2^12. */
typedef struct parts {
    rid r;
    r_rounded whole; /* n */
} parts;

static parts split_exponent(rb f, rid x, int extra)
{
    const r_rounded k = r_round(f, x, r_log2e(f), extra);
    const rid r = r_fma(f, k.n, r_neg_ln2_hi(f), x);
    return (parts){ r_fma(f, k.n, r_neg_ln2_lo(f), r), k };
}

static rid exp_of_rest(rb f, rid r)
{
    const rid q = r_fma(f, R_POLY(f, r, exp), r, r_k(f, 1));
    return r_fma(f, q, r, r_k(f, 1));
}

rid df_recipe_expm1_of_rest(rb f, rid r)
{
    return r_fma(f, r_mul(f, r, r), R_POLY(f, r, expm1), r);
}

static rid build_exp(rb f, rid x)
{
    x = r_max(f, r_kk(f, -176, -1418), r_min(f, r_kk(f, 89, 710), x));
    const parts k = split_exponent(f, x, 2 * r_bias(f));
    return r_scale(f, exp_of_rest(f, k.r), k.whole.n, k.whole.sum);
}

static rid build_exp2(rb f, rid x)
{
    x = r_max(f, r_kk(f, -254, -2046), r_min(f, r_kk(f, 129, 1025), x));
    const rid rounder = r_rounder(f, 2 * r_bias(f));
    const rid sum = r_add(f, x, rounder);
    const rid n = r_sub(f, sum, rounder);
    return r_scale(f, R_POLY(f, r_sub(f, x, n), exp2), n, sum);
}

/* x where x^2 is negligible beside x, else y. For -0 and denormals. */
static rid tiny_or(rb f, rid x, rid y)
{
    return r_select(f, r_lt(f, r_abs(f, x), r_kk(f, 0x1p-25, 0x1p-54)), x, y);
}

/* 2^n (exp r - 1) + (2^n - 1), all at half scale: 2^n may overflow where the result does not. */
static rid build_expm1(rb f, rid x)
{
    const rid y = r_max(f, r_kk(f, -18, -38), r_min(f, r_kk(f, 89, 710), x));
    const parts k = split_exponent(f, y, r_bias(f) - 1);
    const rid p = df_recipe_expm1_of_rest(f, k.r);
    const rid s = r_power(f, r_low(f, k.whole));
    const rid half = r_fma(f, s, p, r_sub(f, s, r_k(f, 0.5)));
    return tiny_or(f, x, r_add(f, half, half));
}

/* exp|x| = 2^n (c + s), exp(-|x|) = 2^-n (c - s): no division, and for n = 0 no cancellation. */
typedef struct hyperbolic {
    rid c1;       /* cosh r - 1 */
    rid r, r3, p; /* sinh r = r + r3 p */
    rid up, down; /* 2^(n - 2), 2^(-n - 2): exp overflows before cosh does */
} hyperbolic;

static hyperbolic hyperbolic_of(rb f, rid x)
{
    const rid a = r_min(f, r_kk(f, 89.5, 710.5), r_abs(f, x));
    const parts k = split_exponent(f, a, r_bias(f) - 2);
    const rid r2 = r_mul(f, k.r, k.r);
    const rid up = r_power(f, r_low(f, k.whole));
    /* The exponent fields add up to 2 bias - 4; 0 will do for powers that are too small. */
    const rb i = r_int(f);
    const rid sum = r_ki(i, (int64_t)(2 * r_bias(f) - 4) << (f.t == DEFT_F64 ? 52 : 23));
    const rid down = r_max(i, r_ki(i, 0), r_sub(i, sum, r_bits(f, up)));
    return (hyperbolic){ .c1 = r_mul(f, r2, R_POLY(f, r2, cosh)),
                         .r = k.r,
                         .r3 = r_mul(f, r2, k.r),
                         .p = R_POLY(f, r2, sinh),
                         .up = up,
                         .down = r_of_bits(f, down) };
}

/* (1 + c1) a + s b, where s = r + r3 p. a is exact where that matters, and no product contains it.
 * Small and large terms are added separately: for n = 1, a and r b nearly cancel, so a rounding
 * error of s would dominate. */
static rid build_sinh(rb f, rid x)
{
    const hyperbolic h = hyperbolic_of(f, x);
    const rid a = r_sub(f, h.up, h.down), b = r_add(f, h.up, h.down);
    const rid small = r_fma(f, r_mul(f, h.r3, h.p), b, r_mul(f, h.c1, a));
    const rid half = r_add(f, r_fma(f, h.r, b, a), small);
    return tiny_or(f, x, r_with_sign(f, r_add(f, half, half), x));
}

/* The same with a and b exchanged. From n = 12 on (f32) up + down is inexact, so down must be added
 * last. */
static rid build_cosh(rb f, rid x)
{
    const hyperbolic h = hyperbolic_of(f, x);
    const rid a = r_add(f, h.up, h.down), b = r_sub(f, h.up, h.down);
    const rid sinh = r_fma(f, h.r3, h.p, h.r);
    const rid half = r_add(f, r_fma(f, h.c1, a, h.down), r_fma(f, sinh, b, h.up));
    return r_add(f, half, half);
}

rid df_recipe_one_minus_exp_neg(rb f, rid y)
{
    const r_rounded k = r_round(f, y, r_kk(f, -0x1.715476p0, -0x1.71547652b82fep0), r_bias(f));
    const rid r = r_fma(f, k.n, r_kk(f, 0x1.62e43p-1, 0x1.62e42fefa39efp-1), y);
    const rid p = r_fma(f, r_mul(f, r, r), R_POLY(f, r, neg_expm1), r);
    const rid s = r_power(f, r_low(f, k));
    return r_fma(f, s, p, r_sub(f, r_k(f, 1), s));
}

/* |x| < 0.625: a polynomial. Else 1 - 2 / (exp(2|x|) + 1), whose second term is below 1/2. */
static rid build_tanh(rb f, rid x)
{
    const rid a = r_abs(f, x);
    const rid x2 = r_mul(f, a, a);
    const rid near = r_fma(f, r_mul(f, x2, a), R_POLY(f, x2, tanh), a);

    const rid y = r_min(f, r_kk(f, 20, 40), r_add(f, a, a));
    const r_rounded k = r_round(f, y, r_log2e(f), r_bias(f));
    const rid p = exp_of_rest(f, r_fma(f, k.n, r_neg_ln2_hi(f), y));
    const rid sum = r_fma(f, p, r_power(f, r_low(f, k)), r_k(f, 1));
    const rid far = r_sub(f, r_k(f, 1), r_div(f, r_k(f, 2), sum));
    return r_with_sign(f, r_select(f, r_lt(f, a, r_k(f, 0.625)), near, far), x);
}

/* Lifts results down to e^-110 (f32) or e^-752 (f64) into the normal range. */
static int lift_exponent(rb f)
{
    return f.t == DEFT_F64 ? 64 : 32;
}

static rid lowering_factor(rb f)
{
    return r_kk(f, 0x1p-32, 0x1p-64);
}

/* 2^lift exp y for y = max(-bound, -|x|) */
static rid lifted_exp(rb f, rid y)
{
    const parts k = split_exponent(f, y, r_bias(f) + lift_exponent(f));
    return r_mul(f, exp_of_rest(f, k.r), r_power(f, r_low(f, k.whole)));
}

/* With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) where x < 0. Numerator and denominator are
 * multiplied by 1.5, because the relative rounding error of a sum just above 1 is greater than that
 * of a sum just above 1.5. */
static rid build_sigmoid(rb f, rid x)
{
    const rid y = r_max(f, r_kk(f, -105, -746), r_neg_abs(f, x));
    const parts k = split_exponent(f, y, r_bias(f) + lift_exponent(f));
    const rid c = r_k(f, 1.5);
    const rid q = r_fma(f, R_POLY(f, k.r, exp15), k.r, c);
    const rid p = r_fma(f, q, k.r, c);
    const rid e = r_mul(f, r_mul(f, p, r_power(f, r_low(f, k.whole))), lowering_factor(f));
    const rid top = r_select(f, r_lt(f, x, r_k(f, 0)), e, c);
    return r_div(f, top, r_add(f, c, e));
}

/* x / (1 + e), or x e / (1 + e) where x < 0. There x e = 2^n (x + x expm1 r). 1 + e is computed as
 * (1 + 2^n) + 2^n expm1 r, which rounds once, and expm1 r is corrected by that error. The rounding
 * errors of x e and of the division are added to the quotient, where a rough 1 / (1 + e) suffices.
 */
static rid build_silu(rb f, rid x)
{
    const rid y = r_max(f, r_kk(f, -110, -752), r_neg_abs(f, x));
    const parts k = split_exponent(f, y, r_bias(f) + lift_exponent(f));
    const rid q = r_fma(f, r_mul(f, k.r, k.r), R_POLY(f, k.r, exp), k.r);
    const rid s = r_power(f, r_low(f, k.whole)), one = r_k(f, 1);
    const rid power = r_mul(f, s, lowering_factor(f)), above = r_add(f, one, power);
    const rid sum = r_fma(f, power, q, above);
    const rid lost = r_fma(f, power, q, r_sub(f, above, sum));
    const rid by = r_sub(f, q, lost), product = r_fma(f, y, by, y);
    const rid product_low = r_fma(f, y, by, r_sub(f, y, product));
    const rid xe = r_mul(f, product, s), xe_low = r_mul(f, product_low, s);
    const rid negative = r_lt(f, x, r_k(f, 0));
    const rid quotient = r_div(f, r_select(f, negative, xe, x), sum);
    const rid rest = r_add(f, r_fma(f, r_neg(f, quotient), sum, xe), xe_low);
    const rid rough = r_fma(f, sum, r_k(f, -0.5), r_k(f, 0x1.75p+0));
    const rid corrected = r_neg_abs(f, r_fma(f, rest, rough, quotient)); /* 0 + -0 would be +0 */
    return r_select(f, negative, r_mul(f, corrected, lowering_factor(f)), quotient);
}

/* max(x, 0) + log(1 + e) */
static rid build_softplus(rb f, rid x)
{
    const rid y = r_max(f, r_kk(f, -105, -746), r_neg_abs(f, x));
    const rid e = r_mul(f, lifted_exp(f, y), lowering_factor(f));
    const rid log = r_fma(f, r_mul(f, e, e), R_POLY(f, e, log1p01), e);
    return r_add(f, r_max(f, r_k(f, 0), x), log);
}

#define RECIPE(name)                                                                               \
    uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x)                                \
    {                                                                                              \
        return build_##name((rb){ e, t }, x);                                                      \
    }
RECIPE(exp)
RECIPE(exp2)
RECIPE(expm1)
RECIPE(sinh)
RECIPE(cosh)
RECIPE(tanh)
RECIPE(sigmoid)
RECIPE(silu)
RECIPE(softplus)
