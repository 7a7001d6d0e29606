/* SPDX-License-Identifier: Apache-2.0
 *
 * erf, erfc, gelu.
 *
 * erf x = 1 - exp(-z) with z = x + x S(x). One polynomial S serves all x, and 1 - exp(-z) is
 * accurate near 0.
 *
 * For x >= 0, erfc x = exp(-x^2) R(x), where R is rational with positive coefficients. gelu x is
 * max(x, 0) - |x| erfc(|x| / sqrt 2) / 2. For x <= 0 the subtraction is exact, and above it does
 * not cancel.
 *
 * For f32 operands, the roundings of numerator, denominator, quotient and exponential would add up
 * to more than 2 ULP in f32. So erfc computes in f64, except for the polynomial of the exponential.
 * In f64 the square of an f32 is exact, no power of two overflows, and only the last cast rounds a
 * denormal result. For gelu f32 is enough: it divides by 1 / R = 1 + |x| + s with a small s.
 *
 * For f64 operands there is no wider dtype. There R is a polynomial in (x - M) / (x + M), divided
 * by 1 + x. The rounding errors of the last operations are computed and added (after N. Juffa's
 * erfcx).
 *
 * tools/fit_recipes, tools/fit_rational and tools/fit_tail derive the tables.
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

/* In t = (a - M) / (a + M): (1 + a) exp(a^2) erfc a on [0, 27.3], M = ERFC_MIDDLE: 2^-56.3. M is
 * chosen such that rounding the first coefficient to f64 changes it by 2^-60 only. */
#define ERFC_MIDDLE 0x1.058p2
static const double erfc_f64_table[] = {
    0x1.5da3feed1a836p-1,   -0x1.93266909d809p-3,   0x1.e1a16820d2ac5p-4,   -0x1.9c84325bc7ae7p-5,
    0x1.9d8ed2360204ap-8,   0x1.ca2378aef032bp-7,   -0x1.1c8efdf3cfdabp-6,  0x1.a1192f73c76b8p-7,
    -0x1.bba2ee3c4217ep-8,  0x1.55f71b9d46fb2p-9,   -0x1.449e8d19ec584p-11, 0x1.8868e2cc0dc4bp-20,
    0x1.11ca812e630c3p-14,  -0x1.6f7d54a01d908p-16, -0x1.50a45e62d6967p-20, 0x1.96157cf03336ep-19,
    -0x1.15d3b0388842ap-21, -0x1.496b81fc94ccfp-22, 0x1.03c33b19714b3p-23,  0x1.fa2a084bd14cfp-26,
    -0x1.4ee2eac4bcd83p-26, -0x1.02456fa5a4f61p-28, 0x1.1f9581f7ecd9cp-29,  0x1.38a35058c243fp-31,
};

/* (1 + a) exp(a^2 / 2) erfc(a / sqrt 2) on [0, 38.6], M = GELU_MIDDLE: 2^-56.2 */
#define GELU_MIDDLE 0x1.228p2
static const double gelu_f64_table[] = {
    0x1.dd31f68c17fc4p-1,   -0x1.820a0ea625814p-3,  0x1.9143f2ac9eb5bp-5,  0x1.2a09cf929721bp-5,
    -0x1.ed96299b4583fp-5,  0x1.76873808c9b3ap-5,   -0x1.68527142f7736p-6, 0x1.885ea30972dadp-8,
    0x1.432a51f5e44ddp-15,  -0x1.711fd9e241bap-11,  0x1.697f08979d58ap-13, 0x1.f0f82a90b9f1ap-15,
    -0x1.1633ce21e8e96p-15, -0x1.5e1d43365386dp-18, 0x1.71a3f5dc3c359p-18, 0x1.68f47bdf82a54p-21,
    -0x1.f163cfad22e84p-21, -0x1.3c061f0028c71p-23, 0x1.4de2c9d877df1p-23, 0x1.4e376420a34dbp-25,
    -0x1.87b6cf9a2077p-26,  -0x1.257cb2e3a6a74p-27, 0x1.1815dd13e32e2p-29, 0x1.18d159cc61846p-30,
};

/* 1 / erfcx(a / sqrt 2) = 1 + a + a top / bottom on [0, 14.5]: 2^-27.2 */
static const double mills_top[] = { -0x1.a12a6ap-3, -0x1.4c7efap-5, 0x1.675198p-6, 0x1.96ffaep-7,
                                    0x1.1168p-9 };
static const double mills_bottom[] = { 0x1.02p0, 0x1.c3990cp-1, 0x1.791278p-2, 0x1.4de31ep-4,
                                       0x1.0dd86p-7 };

enum { MILLS_TERMS = DF_LEN(mills_top) };
_Static_assert(DF_LEN(mills_bottom) == MILLS_TERMS, "the polynomials have as many terms");

/* exp r on [-0.3475, 0.3475]: 2^-28.1 */
static const double exp_terms_f32[] = { 0x1p0,         0x1p0,         0x1.fffffap-2, 0x1.55549p-3,
                                        0x1.555a22p-5, 0x1.123b04p-7, 0x1.695414p-10 };

/* The same for bf16, where errors of 2^-20 change no result: 2^-20.2 and 2^-21.9. The first
 * coefficients are 1, because half of a denormal operand may lie in the middle between results. */
static const double erfcx_top_bf16[] = { 0x1p0, 0x1.06d55fp0, 0x1.ec014ap-2, 0x1.8e3b8ap-4 };
static const double erfcx_bottom_bf16[] = { 0x1p0, 0x1.13d87ep1, 0x1.e9992ap0, 0x1.b3bf5ep-1,
                                            0x1.60f67cp-3 };
static const double exp_bf16[] = { 0x1p0,         0x1p0,         0x1.fffd02p-2,
                                   0x1.55547ap-3, 0x1.576636p-5, 0x1.123f1ep-7 };

static rid build_erf(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, f.t == DEFT_F64 ? 6 : 4), r_abs(f, x));
    const rid z = r_fma(f, a, R_POLY(f, a, erfS), a);
    return r_with_sign(f, df_recipe_one_minus_exp_neg(f, z), x);
}

/* The polynomial in x with coefficients c[i] scale^i, in the precision of f. */
static rid scaled_poly(rb f, rid x, const double *c, size_t n, double scale)
{
    double s[16], power = 1;
    df_assert(n <= DF_LEN(s));
    for (size_t i = 0; i < n; i++, power *= scale)
        s[i] = f.t == DEFT_F32 ? (double)(float)(c[i] * power) : c[i] * power;
    return r_poly(f, x, s, n);
}

/* For a >= 0, an f64 with the value of an f32: computes 2^shift exp(-s2 a^2), and the polynomials
 * top and bottom at scale a. s2 is scale^2 and a power of 2. */
typedef struct tail {
    rid exp, top, bottom;
} tail;

static tail tail_f32(rb f, rid a, double scale, double s2, int shift)
{
    const rb d = r_f64(f.e);
    const rid square = r_mul(d, a, a);
    const r_rounded k = r_round(d, square, r_k(d, -s2 * 0x1.71547652b82fep0), r_bias(d) + shift);
    /* This is -r / s2; the coefficients contain the factor s2. */
    const rid rest = r_fma(d, k.n, r_k(d, 0x1.62e42fefa39efp-1 / s2), square);
    const rid p = scaled_poly(f, r_cast(f, rest), exp_terms_f32, DF_LEN(exp_terms_f32), -s2);
    return (tail){ r_mul(d, r_cast(d, p), r_power(d, r_low(d, k))),
                   scaled_poly(d, a, erfcx_top_f32, DF_LEN(erfcx_top_f32), scale),
                   scaled_poly(d, a, erfcx_bottom_f32, DF_LEN(erfcx_bottom_f32), scale) };
}

/* The same with f32 only, for fast mode: the error is about 4 ULP. The square is computed in two
 * parts, because the exponential would multiply its error. shift keeps 2^k a normal
 * number down to results that are 0; the last product removes it. */
static tail tail_fast(rb f, rid a, double scale, double s2, int shift)
{
    const rid h = r_mul(f, a, a);
    const rid l = r_fma(f, a, a, r_neg(f, h));
    const r_rounded k = r_round(f, h, r_k(f, -s2 * 0x1.715476p0), r_bias(f) + shift);
    rid rest = r_fma(f, k.n, r_k(f, 0x1.62e4p-1 / s2), h);
    rest = r_add(f, r_fma(f, k.n, r_k(f, 0x1.7f7d1cp-20 / s2), rest), l);
    const rid p = scaled_poly(f, rest, exp_terms_f32, DF_LEN(exp_terms_f32), -s2);
    return (tail){ r_mul(f, p, r_power(f, r_low(f, k))),
                   scaled_poly(f, a, erfcx_top_f32, DF_LEN(erfcx_top_f32), scale),
                   scaled_poly(f, a, erfcx_bottom_f32, DF_LEN(erfcx_bottom_f32), scale) };
}

/* The same for a that is a bf16, whose square is an f32. All bf16 are rounded to the same results
 * as by tail_f32. */
static tail tail_bf16(rb f, rid a, double scale, double s2, int shift)
{
    const rid h = r_mul(f, a, a);
    const r_rounded k = r_round(f, h, r_k(f, -s2 * 0x1.715476p0), r_bias(f) + shift);
    const rid rest = r_fma(f, k.n, r_k(f, 0x1.62e43p-1 / s2), h);
    const rid p = scaled_poly(f, rest, exp_bf16, DF_LEN(exp_bf16), -s2);
    return (tail){ r_mul(f, p, r_power(f, r_low(f, k))),
                   scaled_poly(f, a, erfcx_top_bf16, DF_LEN(erfcx_top_bf16), scale),
                   scaled_poly(f, a, erfcx_bottom_bf16, DF_LEN(erfcx_bottom_bf16), scale) };
}

static rid erfc_fast(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 10.25), r_abs(f, x));
    const tail t = f.e->between_bf16 ? tail_bf16(f, a, 1, 1, 32) : tail_fast(f, a, 1, 1, 32);
    const rid y = r_mul(f, r_div(f, r_mul(f, t.exp, t.top), t.bottom), r_k(f, 0x1p-32));
    return r_select(f, r_lt(f, x, r_k(f, 0)), r_sub(f, r_k(f, 2), y), y);
}

static rid gelu_fast(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 14.5), r_abs(f, x));
    const double scale = 0x1.6a09e667f3bcdp-1;
    const tail t =
        f.e->between_bf16 ? tail_bf16(f, a, scale, 0.5, 31) : tail_fast(f, a, scale, 0.5, 31);
    const rid y = r_div(f, r_mul(f, t.exp, r_mul(f, t.top, a)), t.bottom);
    return r_fma(f, y, r_k(f, -0x1p-32), r_max(f, r_k(f, -0.0), x));
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

/* a / 2 for an f32 a >= 0: the exponent becomes one less. Products keep the processor busy here,
 * and integers have units of their own. For a below 2^-125 the result is another number below
 * 2^-126. */
static rid half_by_exponent(rb f, rid a)
{
    const rb whole = r_int(f);
    const rid less = r_sub(whole, r_bits(f, a), r_ki(whole, 1 << 23));
    return r_of_bits(f, r_max(whole, r_ki(whole, 0), less));
}

/* gelu x = max(x, 0) - exp(-a^2 / 2) q / 2 with a = |x|, q = a / d and d = 1 / erfcx(a / sqrt 2).
 * d is 1 + a + s. Beside d, s is at most 0.15, so the roundings within s hardly count. The rounding
 * errors of d and q are computed and added. The sum 1 + a less 1 is exact, because 1 is a multiple
 * of its last bit. Of the exponential, 1 - rest + w, only the small w is a polynomial. So there are
 * three roundings of full weight: of rest, of q rest, and of the last sum. For a below 2^-125, the
 * square of a is rounded to 0, also with the half that is then wrong.
 *
 * The shift is that of tail_fast. The maximum is with -0, so that a negative x gives -0 when q's
 * product is rounded to 0.
 *
 * The exponential needs no quotient. Its steps stand between those that do, so that a processor
 * finds them while it divides. One part after the other takes 1.04 times as long (Zen 5). */
static rid gelu_f32(rb f, rid x)
{
    const rid one = r_k(f, 1);
    const rid a = r_min(f, r_k(f, 14.5), r_abs(f, x));
    rid top = r_k(f, mills_top[MILLS_TERMS - 1]), bottom = r_k(f, mills_bottom[MILLS_TERMS - 1]);
    const rid half = half_by_exponent(f, a), h = r_mul(f, a, half);
    for (int i = MILLS_TERMS - 1; i-- > 0;) {
        top = r_fma(f, top, a, r_k(f, mills_top[i]));
        bottom = r_fma(f, bottom, a, r_k(f, mills_bottom[i]));
    }

    /* k.n has 8 bits and the first part of ln 2 has 15, so their product added to h is exact. */
    const rid l = r_fma(f, a, half, r_neg(f, h));
    const r_rounded k = r_round(f, h, r_k(f, -0x1.715476p0), r_bias(f) + 31);
    const rid s = r_div(f, r_mul(f, top, a), bottom);
    const rid sum = r_add(f, a, one);
    const rid rest =
        r_add(f, r_fma(f, k.n, r_k(f, 0x1.62e4p-1), h), r_fma(f, k.n, r_k(f, 0x1.7f7d1cp-20), l));

    const rid d = r_add(f, sum, s), inverse = r_div(f, one, d);
    const rid lost = r_sub(f, a, r_sub(f, sum, one));
    const rid d_low = r_add(f, r_add(f, r_sub(f, sum, d), s), lost);
    const rid w = r_mul(f, r_mul(f, rest, rest), scaled_poly(f, rest, exp_terms_f32 + 2, 5, -1));
    const rid q = r_mul(f, a, inverse), minus_q = r_neg(f, q);
    const rid lacks = r_fma(f, minus_q, d_low, r_fma(f, minus_q, d, a));

    rid y = r_fma(f, q, w, r_mul(f, lacks, inverse));
    y = r_add(f, q, r_fma(f, minus_q, rest, y));
    y = r_mul(f, y, r_power(f, r_low(f, k)));
    return r_fma(f, y, r_k(f, -0x1p-32), r_max(f, r_k(f, -0.0), x));
}

/* A fit of one tail: with t = (a - middle) / (a + middle) and s2, a power of 2, the polynomial P
 * has P(t) / (1 + a) = exp(s2 a^2) erfc(sqrt(s2) a). */
typedef struct tail_fit {
    double middle, s2;
    const double *c; /* TAIL_TERMS */
} tail_fit;

enum { TAIL_TERMS = DF_LEN(erfc_f64_table) };
_Static_assert(DF_LEN(gelu_f64_table) == TAIL_TERMS, "both tails have as many terms");

static const tail_fit erfc_tail = { ERFC_MIDDLE, 1, erfc_f64_table };
static const tail_fit gelu_tail = { GELU_MIDDLE, 0.5, gelu_f64_table };

/* 2^LIFT exp(-s2 a^2) = (1 + em1) power. */
#define LIFT 64
typedef struct decay {
    rid em1, power;
} decay;

static decay decay_of(rb f, rid a, double s2)
{
    const rid h = r_mul(f, a, a);
    const rid l = r_fma(f, a, a, r_neg(f, h));
    const r_rounded k = r_round(f, h, r_k(f, -s2 * 0x1.71547652b82fep0), r_bias(f) + LIFT);
    rid rest = r_fma(f, k.n, r_k(f, 0x1.62e42fefa39efp-1 / s2), h);
    rest = r_add(f, r_fma(f, k.n, r_k(f, 0x1.abc9e3b39803fp-56 / s2), rest), l);
    return (decay){ df_recipe_expm1_of_rest(f, r_mul(f, rest, r_k(f, -s2))),
                    r_power(f, r_low(f, k)) };
}

/* An unevaluated sum, value + low. */
typedef struct pair {
    rid value, low;
} pair;

/* 2^LIFT exp(-s2 a^2) P(t) / (1 + a), times *factor unless factor is NULL. The value of P is near
 * its first coefficient, so only the last addition of the polynomial has a large rounding error.
 * From there on, each rounding error is computed and added at the end, so that only the last
 * addition rounds. One division serves both t and 1 / (1 + a). */
static rid tail_f64(rb f, rid a, const tail_fit *by, const rid *factor)
{
    const rid one = r_k(f, 1), middle = r_k(f, by->middle);
    const rid d = r_add(f, a, one);
    const rid d_low = r_sub(f, r_min(f, one, a), r_sub(f, d, r_max(f, one, a)));
    const rid plus = r_add(f, a, middle);
    const rid inverse = r_div(f, one, r_mul(f, plus, d));
    const rid over_plus = r_mul(f, inverse, d), over_d = r_mul(f, inverse, plus);

    /* a - middle - t (a + middle) is the rounding error of t, times a + middle. */
    rid t = r_mul(f, r_sub(f, a, middle), over_plus);
    const rid lacks = r_fma(f, r_add(f, t, one), r_k(f, -by->middle), a);
    t = r_fma(f, over_plus, r_fma(f, r_neg(f, t), a, lacks), t);

    const rid p = r_poly(f, t, by->c + 1, TAIL_TERMS - 1), first = r_k(f, by->c[0]);
    pair top = { r_fma(f, p, t, first), 0 };
    top.low = r_fma(f, p, t, r_sub(f, first, top.value));
    if (factor) {
        const rid product = r_mul(f, top.value, *factor);
        const rid exact = r_fma(f, top.value, *factor, r_neg(f, product));
        top = (pair){ product, r_fma(f, top.low, *factor, exact) };
    }
    const rid q = r_mul(f, top.value, over_d), minus_q = r_neg(f, q);
    rid rest = r_add(f, r_fma(f, minus_q, d, top.value), top.low);
    rest = r_fma(f, minus_q, d_low, rest);
    const rid q_low = r_mul(f, rest, over_d);

    const decay e = decay_of(f, a, by->s2);
    const rid y = r_add(f, q, r_fma(f, q, e.em1, r_fma(f, q_low, e.em1, q_low)));
    return r_mul(f, y, e.power);
}

static rid erfc_f64(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 27.3), r_abs(f, x));
    const rid y = r_mul(f, tail_f64(f, a, &erfc_tail, NULL), r_k(f, 0x1p-64));
    return r_select(f, r_lt(f, x, r_k(f, 0)), r_sub(f, r_k(f, 2), y), y);
}

/* The factor a is lifted too, because a denormal a must not be rounded before the end. */
static rid gelu_f64(rb f, rid x)
{
    const rid a = r_min(f, r_k(f, 38.6), r_abs(f, x));
    const rid lifted = r_mul(f, a, r_k(f, 0x1p64));
    const rid y = tail_f64(f, a, &gelu_tail, &lifted);
    return r_sub(f, r_max(f, r_k(f, -0.0), x), r_mul(f, y, r_k(f, 0x1p-129)));
}

uint32_t df_recipe_erf(df_emit *e, deft_dtype t, uint32_t x)
{
    return build_erf((rb){ e, t }, x);
}

uint32_t df_recipe_erfc(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t };
    if (t == DEFT_F64) return erfc_f64(f, x);
    return e->fast || e->between_bf16 ? erfc_fast(f, x) : erfc_f32(f, x);
}

uint32_t df_recipe_gelu(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t };
    if (t == DEFT_F64) return gelu_f64(f, x);
    return e->fast || e->between_bf16 ? gelu_fast(f, x) : gelu_f32(f, x);
}
