/* SPDX-License-Identifier: Apache-2.0
 *
 * erf, erfc, gelu.
 *
 * erf x = 1 - exp(-z), z = x + x S(x): one polynomial for all x, and 1 - exp(-z) is accurate near
 * 0.
 *
 * erfc x = exp(-x^2) R(x), x >= 0, with R rational and positive coefficients; gelu is
 * max(x, 0) - |x| erfc(|x| / sqrt 2) / 2, where the subtraction is exact for x <= 0 and harmless
 * above. In f32 the roundings of numerator, denominator, quotient and exponential add up to more
 * than 2 ULP, so these two work in f64 but for the polynomial of the exponential; the square of an
 * f32 is exact there, no power of two overflows, and a denormal result is rounded once, by the last
 * cast.
 *
 * tools/fit_recipes and tools/fit_rational derive the tables.
 */
#include "ops/recipe_parts.h"

/* S = -log(erfc x) / x - 1 on [0, 4] (f32), [0, 6] (f64), relative to erf: 2^-26.8, 2^-56.2 */
static const double erfS_f32[] = {
    0x1.06eba8p-3,  0x1.45f2fap-1,   0x1.a4fa72p-4,  -0x1.39ced6p-6,  -0x1.4f7952p-13,
    0x1.b4e558p-10, -0x1.4badfcp-11, 0x1.ed3092p-14, -0x1.366366p-17,
};
static const double erfS_f64[] = {
    0x1.06eba8214db68p-3,   0x1.45f306dc9c89ap-1,   0x1.a4f4e2a1b1d4dp-4,  -0x1.39668593c97cbp-6,
    -0x1.b6b68c3837f2ap-13, 0x1.bca67c0dfa2c7p-10,  -0x1.356551c4542dp-11, 0x1.b22ca5043535bp-16,
    0x1.0e7f1170a9adcp-14,  -0x1.f2abc64183c7cp-16, 0x1.c921db312f6ccp-19, 0x1.7cbc8cdd0ac77p-19,
    -0x1.d3e10872d3c71p-20, 0x1.6a4e742393973p-22,  0x1.253e5bd7c5ae2p-23, -0x1.2fc833c04a81p-23,
    0x1.19d21b9b1b6a5p-24,  -0x1.678338da7b611p-26, 0x1.56d3931e90534p-28, -0x1.f25b75d38428ap-31,
    0x1.11f950fabf3bdp-33,  -0x1.bac028c05ca72p-37, 0x1.f0cf74a8021f2p-41, -0x1.59f865ca21843p-45,
    0x1.c26e080d24faap-51,
};

/* exp(x^2) erfc x = top / bottom on [0, 10.3]: 2^-27.3 */
static const double erfcx_top_f32[] = { 0x1.000000199adb6p0, 0x1.3d74e9fe174f7p0,
                                        0x1.777838d4894f4p-1, 0x1.d722990219aa7p-3,
                                        0x1.0e1820b9e3191p-5 };
static const double erfcx_bottom_f32[] = { 0x1p0,
                                           0x1.2f293488879b2p1,
                                           0x1.33f2597bb688ap1,
                                           0x1.541f9f73b5d3p0,
                                           0x1.a18f125242c02p-2,
                                           0x1.deb95e502b343p-5 };

/* The same on [0, 28]: 2^-59.8 */
static const double erfcx_top_f64[] = {
    0x1p0,
    0x1.2be4ecf4617adp1,
    0x1.5c4c87b5e63f2p1,
    0x1.031da99dff61ap1,
    0x1.0ef1f004013bap0,
    0x1.9e35fb9e1bb07p-2,
    0x1.d42c0697c0ec5p-4,
    0x1.82cd7e88ff67fp-6,
    0x1.c0da03ecdbf8ep-9,
    0x1.4ca514183ca4dp-12,
    0x1.e4310bc0c1c84p-17,
};
static const double erfcx_bottom_f64[] = {
    0x1p0,
    0x1.bc53a77676564p1,
    0x1.68d581b618f04p2,
    0x1.6ab24117143d0p2,
    0x1.f691878509d2ep1,
    0x1.f9668a1e57039p0,
    0x1.79a739cf7d525p-1,
    0x1.a518866af906ap-3,
    0x1.59191cafd728dp-5,
    0x1.8e9f5b4328718p-8,
    0x1.26cc7ef05c9edp-11,
    0x1.ad1a86dae05f2p-16,
};

/* exp r on [-0.3475, 0.3475]: 2^-28.1 */
static const double exp_f32[] = { 0x1p0,         0x1p0,         0x1.fffffap-2, 0x1.55549p-3,
                                  0x1.555a22p-5, 0x1.123b04p-7, 0x1.695414p-10 };

static rid build_erf(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, f.t == DEFT_F64 ? 6 : 4), r_abs(f, x));
    const rid z = r_fma(f, a, R_POLY(f, a, erfS), a);
    return r_with_sign(f, df_recipe_one_minus_exp_neg(f, z), x);
}

/* polynomial in x with coefficients c[i] scale^i, in the precision of f */
static rid scaled_poly(rb f, rid x, const double *c, size_t n, double scale)
{
    double s[16], power = 1;
    df_assert(n <= DF_LEN(s));
    for (size_t i = 0; i < n; i++, power *= scale)
        s[i] = f.t == DEFT_F32 ? (double)(float)(c[i] * power) : c[i] * power;
    return r_poly(f, x, s, n);
}

/* For a >= 0, an f64 that holds an f32: 2^shift exp(-s2 a^2), and top and bottom at scale a. s2 is
 * scale^2 and a power of 2. */
typedef struct tail {
    rid exp, top, bottom;
} tail;

static tail tail_f32(rb f, rid a, double scale, double s2, int shift)
{
    const rb d = r_f64(f.e);
    const rid square = r_mul(d, a, a);
    const r_rounded k = r_round(d, square, r_k(d, -s2 * 0x1.71547652b82fep0), r_bias(d) + shift);
    /* -r / s2, whose factor goes into the coefficients */
    const rid rest = r_fma(d, k.n, r_k(d, 0x1.62e42fefa39efp-1 / s2), square);
    const rid p = scaled_poly(f, r_cast(f, rest), exp_f32, DF_LEN(exp_f32), -s2);
    return (tail){ r_mul(d, r_cast(d, p), r_power(d, k.low)),
                   scaled_poly(d, a, erfcx_top_f32, DF_LEN(erfcx_top_f32), scale),
                   scaled_poly(d, a, erfcx_bottom_f32, DF_LEN(erfcx_bottom_f32), scale) };
}

/* The same in f32 alone, where only speed counts: some 4 ULP. The square is in two parts, whose
 * error the exponential would multiply; a below 13, for 2^k to be a normal number. */
static tail tail_fast(rb f, rid a, double scale, double s2, int shift)
{
    const rid h = r_mul(f, a, a);
    const rid l = r_fma(f, a, a, r_neg(f, h));
    const r_rounded k = r_round(f, h, r_k(f, -s2 * 0x1.715476p0), r_bias(f) + shift);
    rid rest = r_fma(f, k.n, r_k(f, 0x1.62e4p-1 / s2), h);
    rest = r_add(f, r_fma(f, k.n, r_k(f, 0x1.7f7d1cp-20 / s2), rest), l);
    const rid p = scaled_poly(f, rest, exp_f32, DF_LEN(exp_f32), -s2);
    return (tail){ r_mul(f, p, r_power(f, k.low)),
                   scaled_poly(f, a, erfcx_top_f32, DF_LEN(erfcx_top_f32), scale),
                   scaled_poly(f, a, erfcx_bottom_f32, DF_LEN(erfcx_bottom_f32), scale) };
}

static rid erfc_fast(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 9.25), r_abs(f, x));
    const tail t = tail_fast(f, a, 1, 1, 0);
    const rid y = r_div(f, r_mul(f, t.exp, t.top), t.bottom);
    return r_select(f, r_lt(f, x, r_k(f, 0)), r_sub(f, r_k(f, 2), y), y);
}

static rid gelu_fast(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 13), r_abs(f, x));
    const tail t = tail_fast(f, a, 0x1.6a09e667f3bcdp-1, 0.5, -1);
    const rid y = r_div(f, r_mul(f, t.exp, r_mul(f, t.top, a)), t.bottom);
    return r_sub(f, r_max(f, r_k(f, -0.0), x), y);
}

static rid erfc_f32(rb f, rid x)
{
    const rb d = r_f64(f.e);
    const rid a = r_cast(d, r_min(f, r_k(f, 10.25), r_abs(f, x)));
    const tail t = tail_f32(f, a, 1, 1, 0);
    const rid y = r_div(d, r_mul(d, t.exp, t.top), t.bottom);
    const rid negative = r_lt(f, x, r_k(f, 0));
    return r_cast(f, r_select(d, negative, r_sub(d, r_k(d, 2), y), y));
}

/* With -0 for 0, a negative x whose y vanishes gives -0. */
static rid gelu_f32(rb f, rid x)
{
    const rb d = r_f64(f.e);
    const rid a = r_cast(d, r_min(f, r_k(f, 14.5), r_abs(f, x)));
    const tail t = tail_f32(f, a, 0x1.6a09e667f3bcdp-1, 0.5, -1);
    const rid top = r_mul(d, t.top, a);
    const rid y = r_cast(f, r_div(d, r_mul(d, t.exp, top), t.bottom));
    return r_sub(f, r_max(f, r_k(f, -0.0), x), y);
}

/* sum of c[i] root_s2^i x^i, as even(x^2) + x odd(x^2): half as many roundings follow each other,
 * and that of x2 = x^2 moves numerator and denominator alike. s2 = root_s2^2 is a power of 2. */
static rid halved_poly(rb f, rid x, rid x2, const double *c, size_t n, double root_s2, double s2)
{
    double part[2][8];
    df_assert(n <= 16);
    for (size_t i = 0; i < n; i++) part[i % 2][i / 2] = i % 2 ? c[i] * root_s2 : c[i];
    const rid odd = scaled_poly(f, x2, part[1], n / 2, s2);
    return r_fma(f, odd, x, scaled_poly(f, x2, part[0], (n + 1) / 2, s2));
}

/* 2^LIFT exp(-s2 a^2) erfcx(root_s2 a), times a where with_a. The square is in two parts, and exp r
 * is used as 1 + expm1 r, which takes out its last rounding. */
#define LIFT 64
static rid tail_f64(rb f, rid a, double root_s2, double s2, bool with_a)
{
    const rid h = r_mul(f, a, a);
    const rid l = r_fma(f, a, a, r_neg(f, h));
    const r_rounded k = r_round(f, h, r_k(f, -s2 * 0x1.71547652b82fep0), r_bias(f) + LIFT);
    rid rest = r_fma(f, k.n, r_k(f, 0x1.62e42fefa39efp-1 / s2), h);
    rest = r_add(f, r_fma(f, k.n, r_k(f, 0x1.abc9e3b39803fp-56 / s2), rest), l);
    const rid em1 = df_recipe_expm1_of_rest(f, r_mul(f, rest, r_k(f, -s2)));
    const size_t n = DF_LEN(erfcx_top_f64);
    rid top = halved_poly(f, a, h, erfcx_top_f64, n, root_s2, s2);
    const rid bottom = halved_poly(f, a, h, erfcx_bottom_f64, n + 1, root_s2, s2);
    if (with_a) top = r_mul(f, top, a);
    const rid y = r_div(f, r_fma(f, top, em1, top), bottom);
    return r_mul(f, y, r_power(f, k.low));
}

static rid erfc_f64(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 27.3), r_abs(f, x));
    const rid y = r_mul(f, tail_f64(f, a, 1, 1, false), r_k(f, 0x1p-64));
    return r_select(f, r_lt(f, x, r_k(f, 0)), r_sub(f, r_k(f, 2), y), y);
}

static rid gelu_f64(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 38.6), r_abs(f, x));
    const rid y = tail_f64(f, a, 0x1.6a09e667f3bcdp-1, 0.5, true);
    return r_sub(f, r_max(f, r_k(f, -0.0), x), r_mul(f, y, r_k(f, 0x1p-65)));
}

uint32_t df_recipe_erf(df_emit *e, deft_dtype t, uint32_t x)
{
    return build_erf((rb){ e, t }, x);
}

uint32_t df_recipe_erfc(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t };
    if (t == DEFT_F64) return erfc_f64(f, x);
    return e->fast ? erfc_fast(f, x) : erfc_f32(f, x);
}

uint32_t df_recipe_gelu(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t };
    if (t == DEFT_F64) return gelu_f64(f, x);
    return e->fast ? gelu_fast(f, x) : gelu_f32(f, x);
}
