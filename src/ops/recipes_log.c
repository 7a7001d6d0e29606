/* SPDX-License-Identifier: Apache-2.0
 *
 * log, log2, log10, log1p, and the inverse trigonometric functions.
 *
 * x = 2^e (1 + g) with sqrt(1/2) <= 1 + g < sqrt(2), so log x = e ln 2 + log(1 + g). The integer
 * bits of x / sqrt(1/2) give exponent and fraction. One body serves f32 and f64; only the tables of
 * polynomials differ (tools/fit_recipes). The comment of a pair of tables gives the interval, and
 * the greatest relative error of the rounded polynomials in f32 and in f64.
 */
#include "ops/recipe_parts.h"

#include <math.h>

/* (log(1 + g) - g) / g^2 on [-0.2929, 0.4143], relative to log(1 + g): 2^-27.8, 2^-56.7 */
static const double log_f32[] = {
    -0x1.fffff8p-2, 0x1.55555p-2,   -0x1.000432p-2, 0x1.99a418p-3,  -0x1.5425cp-3,
    0x1.226e36p-3,  -0x1.0f4022p-3, 0x1.085f3ep-3,  -0x1.38400cp-4,
};
static const double log_f64[] = {
    -0x1.0000000000003p-1, 0x1.555555555551cp-2, -0x1.fffffffffdedbp-3, 0x1.99999999a17fbp-3,
    -0x1.55555556e2affp-3, 0x1.24924922459efp-3, -0x1.fffffef684b77p-4, 0x1.c71c71d892d6fp-4,
    -0x1.9999c90ed1364p-4, 0x1.745d45132bc71p-4, -0x1.555073d81570cp-4, 0x1.3b0aca0abff21p-4,
    -0x1.24dc53df5ce41p-4, 0x1.11d81d75b5d64p-4, -0x1.fb6daddb02577p-5, 0x1.cfb71ceb99ca6p-5,
    -0x1.d15dede53af5bp-5, 0x1.0b55a6888a59bp-4, -0x1.eb3bb63cd3b9p-5,  0x1.abceedd6f9978p-6,
};

/* (log2(1 + g) - g / ln 2) / g^2 on the same, relative to log2(1 + g): 2^-27.6, 2^-56 */
static const double log2_f32[] = {
    -0x1.71547p-1, 0x1.ec7094p-2,  -0x1.715ac8p-2, 0x1.277ef2p-2,  -0x1.eab17ap-3,
    0x1.a2e6e8p-3, -0x1.877bbep-3, 0x1.7e0baep-3,  -0x1.c35bd4p-4,
};
static const double log2_f64[] = {
    -0x1.71547652b82fep-1, 0x1.ec709dc3a0678p-2, -0x1.71547652b8575p-2, 0x1.2776c50ecd93p-2,
    -0x1.ec709dc31cac9p-3, 0x1.a61762cd9fbe6p-3, -0x1.7154769df82b1p-3, 0x1.484b0bb115d03p-3,
    -0x1.2776b0c0cdccbp-3, 0x1.0c9b7de749c2cp-3, -0x1.ec769295923f6p-4, 0x1.c66d6a71651f2p-4,
    -0x1.a5961bca39176p-4, 0x1.8b2c1ac1d4e8ap-4, -0x1.77b553bec0f84p-4, 0x1.57e6117714e29p-4,
    -0x1.1c0218c560971p-4, 0x1.1dd3e41d703a3p-4, -0x1.b1a88f7f59f89p-4, 0x1.e3e1d9f291e25p-4,
    -0x1.c02914f447fdep-5,
};

/* (log10(1 + g) - g / ln 10) / g^2 on the same, relative to log10(1 + g): 2^-27.7, 2^-55.1 */
static const double log10_f32[] = {
    -0x1.bcb7aap-3, 0x1.287a72p-3,  -0x1.bcbf2ap-4, 0x1.63cf38p-4,  -0x1.276f42p-4,
    0x1.f8852cp-5,  -0x1.d764ccp-5, 0x1.cb62a8p-5,  -0x1.0ef8f6p-5,
};
static const double log10_f64[] = {
    -0x1.bcb7b1526e50ep-3, 0x1.287a7636f4603p-3, -0x1.bcb7b1526ea5dp-4, 0x1.63c62774c81d5p-4,
    -0x1.287a763667bf5p-4, 0x1.fc3fa663c5b01p-5, -0x1.bcb7b1f13cabp-5,  0x1.8b4de2527025bp-5,
    -0x1.63c5fd3580e8ap-5, 0x1.43704477c955ep-5, -0x1.28808cff3172bp-5, 0x1.118b42455c08ep-5,
    -0x1.fb3d4c8b6761ep-6, 0x1.dc991e4c567d7p-6, -0x1.c90ecb36a9757p-6, 0x1.9d4edba99d907p-6,
    -0x1.3a0aa6427de44p-6, 0x1.3d3d2794b6a51p-6, -0x1.22c96b0f948edp-5, 0x1.61e2df301651bp-5,
    -0x1.4e1060ec90ba4p-6,
};

/* (asin s - s) / s^3, in s^2, s in [0, 0.5625], relative to asin: 2^-28.9, 2^-57.8 */
static const double asin_f32[] = {
    0x1.555526p-3, 0x1.33493p-4, 0x1.6a59fap-5, 0x1.169b28p-5, 0x1.ba239cp-8, 0x1.84f37ap-5,
};
static const double asin_f64[] = {
    0x1.55555555554d9p-3,  0x1.3333333344523p-4, 0x1.6db6db608548fp-5,  0x1.f1c72192f5c1dp-6,
    0x1.6e8b0be89c829p-6,  0x1.1c59f8d38f189p-6, 0x1.c8788dd035aafp-7,  0x1.84b975f503cccp-7,
    0x1.fd0116ad50f54p-8,  0x1.1e553fbf7fd11p-6, -0x1.628d321ba9ddfp-6, 0x1.18c1ea62dab65p-4,
    -0x1.3a13e19c8c9dcp-4, 0x1.e9c328a094e1dp-5,
};

/* (atan z - z) / z^3, in z^2, z in [0, 1], relative to atan: 2^-28.5, 2^-57.5 */
static const double atan_f32[] = {
    -0x1.55553ep-2, 0x1.9991ecp-3,  -0x1.24211ap-3, 0x1.c0946cp-4,   -0x1.5825f2p-4,
    0x1.da9c2ep-5,  -0x1.fe7d24p-6, 0x1.6551e2p-7,  -0x1.d5a1aap-10,
};
static const double atan_f64[] = {
    -0x1.5555555555526p-2, 0x1.99999999955b4p-3,  -0x1.249249237f57dp-3,  0x1.c71c717fcf76dp-4,
    -0x1.745d11ae74c7ap-4, 0x1.3b13669a2a047p-4,  -0x1.110e5126fd02dp-4,  0x1.e1bba66c1a4b8p-5,
    -0x1.ae5e72c0e6984p-5, 0x1.82dad79d1736p-5,   -0x1.59a3ff2ac6667p-5,  0x1.2c2e5ccfd4e26p-5,
    -0x1.e9fa0da6643e9p-6, 0x1.683cc98472e13p-6,  -0x1.c78fcd542af16p-7,  0x1.d7b927bbdceedp-8,
    -0x1.7a399ad4364a2p-9, 0x1.b3facbcd7bb8ap-11, -0x1.3f364d4b9695cp-13, 0x1.bbed9f7b04237p-17,
};

/* e as a float; g; and the exponent bits of 2^e minus those of 1. */
typedef struct parts {
    rid e, g, exponent;
} parts;

static int64_t sqrt_half_bits(rb f)
{
    return f.t == DEFT_F64 ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
}

/* Splits a normal x > 0. `from` has the bits of sqrt(1/2) 2^k, and k is subtracted from e. */
static parts split(rb f, rid x, rid from)
{
    const rb i = r_int(f);
    const int64_t mantissa_mask = f.t == DEFT_F64 ? 0xfffffffffffff : 0x7fffff;
    const rid above = r_sub(i, r_bits(f, x), from);
    const rid mantissa = r_and(i, above, r_ki(i, mantissa_mask));
    const rid m = r_of_bits(f, r_add(i, mantissa, r_ki(i, sqrt_half_bits(f))));
    const rid e = r_cast(f, r_shr(i, above, r_mantissa_bits(f)));
    return (parts){ e, r_sub(f, m, r_k(f, 1)), r_sub(i, above, mantissa) };
}

/* The same for any x > 0: a denormal x is scaled to a normal number first. */
static parts split_any(rb f, rid x)
{
    const rb i = r_int(f);
    const int64_t up = f.t == DEFT_F64 ? 54 : 24;
    const rid denormal = r_lt(f, x, r_kk(f, 0x1p-126, 0x1p-1022));
    const rid normal = r_select(f, denormal, r_mul(f, x, r_kk(f, 0x1p24, 0x1p54)), x);
    const int64_t from = sqrt_half_bits(f);
    const int64_t from_up = from + (up << (f.t == DEFT_F64 ? 52 : 23));
    return split(f, normal, r_select(i, denormal, r_ki(i, from_up), r_ki(i, from)));
}

/* y where 0 < x < inf; else -inf at 0, NaN below, x itself for inf and NaN. */
static rid log_domain(rb f, rid x, rid y)
{
    const rid bad = r_select(f, r_eq(f, x, r_k(f, 0)), r_k(f, -INFINITY), r_k(f, NAN));
    const rid upper = r_select(f, r_lt(f, x, r_k(f, INFINITY)), y, x);
    return r_select(f, r_lt(f, r_k(f, 0), x), upper, bad);
}

/* log(1 + g) + e ln 2 */
static rid log_of_parts(rb f, parts p)
{
    const rid y = r_fma(f, r_mul(f, p.g, p.g), R_POLY(f, p.g, log), p.g);
    return r_fma(f, p.e, r_kk(f, 0x1.62e43p-1, 0x1.62e42fefa39efp-1), y);
}

static rid build_log(rb f, rid x)
{
    return log_domain(f, x, log_of_parts(f, split_any(f, x)));
}

/* 1/ln 2 is used as 1 + 0.44..., so that g itself is not rounded. */
static rid build_log2(rb f, rid x)
{
    const parts p = split_any(f, x);
    const rid rest = r_kk(f, 0x1.c551dap-2, 0x1.c551d94ae0bf8p-2);
    const rid s = r_fma(f, R_POLY(f, p.g, log2), p.g, rest);
    return log_domain(f, x, r_add(f, r_fma(f, s, p.g, p.g), p.e));
}

static rid build_log10(rb f, rid x)
{
    const parts p = split_any(f, x);
    rid y = r_fma(f, R_POLY(f, p.g, log10), p.g, r_kk(f, -0x1.5b235ep-27, 0x1.95355baaafad3p-57));
    y = r_fma(f, p.g, r_kk(f, 0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2), r_mul(f, y, p.g));
    y = r_fma(f, p.e, r_kk(f, -0x1.ec10cp-27, -0x1.9dc1da994fd21p-59), y);
    y = r_fma(f, p.e, r_kk(f, 0x1.344136p-2, 0x1.34413509f79ffp-2), y);
    return log_domain(f, x, y);
}

/* u is 1 + x rounded, and c is the rounding error. Then log1p x = e ln 2 + log(1 + g + c 2^-e). For
 * |x| so small that e = 0, g + c is exactly x. */
static rid build_log1p(rb f, rid x)
{
    const rb i = r_int(f);
    const rid one = r_k(f, 1);
    const rid u = r_add(f, one, x);
    parts p = split(f, u, r_ki(i, sqrt_half_bits(f)));
    const rid c = r_sub(f, x, r_sub(f, u, one));
    /* 2^-e, or 0 where no normal float is so small: c is 0 there. */
    const rid one_bits = r_ki(i, f.t == DEFT_F64 ? 0x3ff0000000000000 : 0x3f800000);
    const rid shrink = r_of_bits(f, r_max(i, r_ki(i, 0), r_sub(i, one_bits, p.exponent)));
    p.g = r_fma(f, c, shrink, p.g);
    const rid y = r_with_sign(f, r_abs(f, log_of_parts(f, p)), x);
    const rid upper = r_select(f, r_lt(f, x, r_k(f, INFINITY)), y, x);
    const rid bad = r_select(f, r_eq(f, x, r_k(f, -1)), r_k(f, -INFINITY), r_k(f, NAN));
    return r_select(f, r_lt(f, r_k(f, -1), x), upper, bad);
}

rid df_recipe_log1p_of_pair(rb f, r_pair w, rid twice, bool is_short)
{
    const rb i = r_int(f);
    const r_pair u = r_two_sum(f, w.hi, r_select(f, twice, r_k(f, 0), r_k(f, 1)));
    parts p = split(f, u.hi, r_ki(i, sqrt_half_bits(f)));
    const rid shrink =
        r_of_bits(f, r_max(i, r_ki(i, 0), r_sub(i, r_ki(i, 0x3ff0000000000000), p.exponent)));
    p.g = r_fma(f, r_add(f, u.lo, w.lo), shrink, p.g);
    p.e = r_add(f, p.e, r_select(f, twice, r_k(f, 1), r_k(f, 0)));
    if (!is_short) return log_of_parts(f, p);
    const rid y = r_fma(f, r_mul(f, p.g, p.g), r_poly(f, p.g, log_f32, DF_LEN(log_f32)), p.g);
    return r_fma(f, p.e, r_k(f, 0x1.62e42fefa39efp-1), y);
}

/* |x| <= 0.5625: s = |x|. Above: asin|x| = pi/2 - 2 asin(s), s = sqrt((1 - |x|) / 2). */
typedef struct arc {
    rid large; /* whether |x| > 0.5625 */
    rid asin;  /* asin s; NaN where |x| > 1 */
} arc;

static arc arc_of(rb f, rid x)
{
    const rid a = r_abs(f, x);
    const rid large = r_lt(f, r_k(f, 0.5625), a);
    const rid half = r_fma(f, a, r_k(f, -0.5), r_k(f, 0.5));
    const rid z = r_select(f, large, half, r_mul(f, a, a));
    const rid s = r_select(f, large, r_sqrt(f, half), a);
    return (arc){ large, r_fma(f, r_mul(f, s, z), R_POLY(f, z, asin), s) };
}

static rid half_pi(rb f)
{
    return r_kk(f, 0x1.921fb6p0, 0x1.921fb54442d18p0);
}

static rid half_pi_rest(rb f)
{
    return r_kk(f, -0x1.777a5cp-25, 0x1.1a62633145c07p-54);
}

static rid build_asin(rb f, rid x)
{
    const arc a = arc_of(f, x);
    const rid y = r_fma(f, a.asin, r_k(f, -2), half_pi_rest(f));
    return r_with_sign(f, r_select(f, a.large, r_add(f, half_pi(f), y), a.asin), x);
}

/* large: 2 asin s, or pi - 2 asin s for x < 0; else pi/2 - asin x */
static rid build_acos(rb f, rid x)
{
    const arc a = arc_of(f, x);
    const rid negative = r_lt(f, x, r_k(f, 0));
    const rid twice = r_add(f, a.asin, a.asin);
    const rid pi = r_kk(f, 0x1.921fb6p1, 0x1.921fb54442d18p1);
    const rid mirrored = r_sub(f, pi, r_sub(f, twice, r_add(f, half_pi_rest(f), half_pi_rest(f))));
    const rid signed_asin = r_of_bits(f, r_xor(r_int(f), r_bits(f, a.asin), r_sign_of(f, x)));
    const rid small = r_sub(f, half_pi(f), r_sub(f, signed_asin, half_pi_rest(f)));
    return r_select(f, a.large, r_select(f, negative, mirrored, twice), small);
}

/* atan z, 0 <= z <= 1 */
static rid atan_of_ratio(rb f, rid z)
{
    const rid z2 = r_mul(f, z, z);
    return r_fma(f, r_mul(f, z, z2), R_POLY(f, z2, atan), z);
}

static rid build_atan(rb f, rid x)
{
    const rid a = r_abs(f, x), one = r_k(f, 1);
    const rid p = atan_of_ratio(f, r_div(f, r_min(f, one, a), r_max(f, one, a)));
    const rid y = r_select(f, r_lt(f, one, a), r_sub(f, half_pi(f), p), p);
    return r_with_sign(f, y, x);
}

/* The lesser of |x| and |y| divided by the greater: 1 for two infinities, 0 for two zeros. */
static rid build_atan2(rb f, rid y, rid x)
{
    const rid ay = r_abs(f, y), ax = r_abs(f, x);
    const rid low = r_min(f, ax, ay), high = r_max(f, ax, ay);
    const rid ratio = r_div(f, low, r_max(f, r_kk(f, 0x1p-149, 0x1p-1074), high));
    const rid both_infinite = r_eq(f, low, r_k(f, INFINITY));
    const rid p = atan_of_ratio(f, r_select(f, both_infinite, r_k(f, 1), ratio));
    const rid q = r_select(f, r_lt(f, ax, ay), r_sub(f, half_pi(f), p), p);
    const rid pi = r_kk(f, 0x1.921fb6p1, 0x1.921fb54442d18p1);
    const rid left = r_lt(r_int(f), r_bits(f, x), r_ki(r_int(f), 0));
    return r_with_sign(f, r_select(f, left, r_sub(f, pi, q), q), y);
}

#define RECIPE(name)                                                                               \
    uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x)                                \
    {                                                                                              \
        return build_##name((rb){ e, t }, x);                                                      \
    }
RECIPE(log)
RECIPE(log2)
RECIPE(log10)
RECIPE(log1p)
RECIPE(asin)
RECIPE(acos)
RECIPE(atan)

uint32_t df_recipe_atan2(df_emit *e, deft_dtype t, uint32_t y, uint32_t x)
{
    return build_atan2((rb){ e, t }, y, x);
}
