/* SPDX-License-Identifier: Apache-2.0
 *
 * lgamma, digamma, polygamma.
 *
 * All compute in f64, for f32 operands too, and round once at the end. tools/fit_special derives
 * the tables. The comment of a table gives its interval, its variable, and its greatest relative
 * error.
 *
 * lgamma and digamma of a = |x|: with t = a - floor(a), a polynomial gives the function at 1 + t.
 * Its zeros at 1 and 2, or near 1.46, are factors of their own, so that results near them have no
 * larger relative error. The recurrence goes from there to a. From 8 on there is a polynomial in
 * 1 / a^2 beside the logarithm (Stirling). For x < 0 the reflection formulas
 *
 *      lgamma(-a) = log(pi / (a sin(pi a))) - lgamma(a)
 *      digamma(-a) = digamma(a) + 1 / a + pi / tan(pi a)
 *
 * have zeros between poles, at which terms cancel: errors there are relative to the terms, and not
 * to the result.
 */
#include "ops/recipe_parts.h"

#include <math.h>

#define FAR 8 /* from here on by the series in 1 / a^2 */
#define PI 0x1.921fb54442d18p1

/* -lgamma(1 + t) / (t (1 - t)) on [0.0, 1.0], powers of x - 0.5: 2^-54.4 */
static const double lgamma_near[] = {
    0x1.eeb95b094c191p-2,  -0x1.2aed059bd608ap-3,  0x1.01af62a2929cp-4,   -0x1.007aa83cee1acp-5,
    0x1.133423527f1f2p-6,  -0x1.34dbda14971e2p-7,  0x1.64f0664c4f943p-8,  -0x1.a5035232a7d25p-9,
    0x1.f814bab49d011p-10, -0x1.313e8a3ddad6fp-10, 0x1.750a7900f071ep-11, -0x1.cb44dee9facp-12,
    0x1.1c7e3a261c9ebp-12, -0x1.623f109df00eep-13, 0x1.b9e43433855c2p-14, -0x1.156abea920aefp-14,
    0x1.68f13e0fbb796p-15, -0x1.c85e4bc95846cp-16, 0x1.ba730a9784e07p-17, -0x1.18598e23bb974p-17,
    0x1.9759e019683dp-17,  -0x1.0467902760469p-17,
};

/* (lgamma(a) - (a - 1/2) log a + a - log(2 pi) / 2) a, in 1 / a^2,
 * on [0.0, 0.015625], powers of x: 2^-54.0 */
static const double lgamma_far[] = {
    0x1.5555555555555p-4,  -0x1.6c16c16c16c0fp-9, 0x1.a01a01a00d0c8p-11,
    -0x1.381381168d37p-11, 0x1.b951b7066a805p-11, -0x1.f69af4cedb3c1p-10,
    0x1.a2565f7c03969p-8,  -0x1.c6897db52d634p-6, 0x1.c29fa984fd96ep-4,
};

/* digamma(1 + t) / (t - ROOT) on [0.0, 1.0], powers of x - 0.5: 2^-54.2 */
static const double digamma_near[] = {
    0x1.e6f0cbb873616p-1,  -0x1.b1cb63005ee98p-2,  0x1.eca189b8e6f6dp-3,  -0x1.2feeeb98a78eap-3,
    0x1.8512e5903903ep-4,  -0x1.fb44202a2306bp-5,  0x1.4de9aa1779d23p-5,  -0x1.b9f8b11bfd3dp-6,
    0x1.2564717896ec6p-6,  -0x1.863563f44f303p-7,  0x1.03c0adafa529cp-7,  -0x1.5a06a5d662cb4p-8,
    0x1.cd2011454fd05p-9,  -0x1.336dbe66757c8p-9,  0x1.99d3f5c0cad5ep-10, -0x1.0fb38d217b8p-10,
    0x1.6a3e76070c135p-11, -0x1.fd8e50abf2196p-12, 0x1.53b23429da21bp-12, -0x1.2fae5cb379bf2p-13,
    0x1.94e73cc9821e1p-14, -0x1.75c084e78a4cdp-13, 0x1.f255c4568ac4dp-14,
};

/* (log a - 1 / (2 a) - digamma(a)) a^2, in 1 / a^2, on [0.0, 0.015625], powers of x: 2^-54.0 */
static const double digamma_far[] = {
    0x1.5555555555555p-4,  -0x1.11111111110eep-7, 0x1.04104103f3357p-8,
    -0x1.111110c5db913p-8, 0x1.f07bbcef74ac4p-8,  -0x1.59837b4a4780cp-6,
    0x1.5356fbc92b38cp-4,  -0x1.a43dc8de6cf74p-2, 0x1.c5b8542e7f8cap0,
};

/* sin(pi r) / r, in r^2, on [0.0, 0.25], powers of x: 2^-53.4 */
static const double sin_pi[] = {
    0x1.921fb54442d18p1,  -0x1.4abbce625be53p2,   0x1.466bc6775aae2p1,   -0x1.32d2cce62bd57p-1,
    0x1.50783487ec19ap-4, -0x1.e3074fdc520eap-8,  0x1.e8f4338e03a66p-12, -0x1.6fad488852625p-16,
    0x1.aabbe3815eb6p-21, -0x1.7ed4cd7222586p-26,
};

/* The zero of digamma at 1 + ROOT. */
#define ROOT 0x1.d8b618d5af8fep-2
#define ROOT_REST -0x1.1e563779a1f5bp-56

#define TABLE(f, x, name) r_poly(f, x, name, DF_LEN(name))

/* The position of a >= 0 below FAR, or between integers. */
typedef struct place {
    rid t;            /* a - floor(a) */
    rid product, sum; /* of the factors a - 1, a - 2, ... down to 1 + t; and of their reciprocals,
                       * times the product. 1 and 0 where a < 2 */
} place;

static place place_of(rb f, rid a)
{
    const rid one = r_k(f, 1), zero = r_k(f, 0);
    place p = { r_sub(f, a, r_floor(f, a)), one, zero };
    for (int k = 1; k < FAR - 1; k++) {
        const rid is_in = r_le(f, r_k(f, k + 1), a);
        const rid factor = r_sub(f, a, r_k(f, k));
        p.sum = r_select(f, is_in, r_fma(f, p.sum, factor, p.product), p.sum);
        p.product = r_select(f, is_in, r_mul(f, p.product, factor), p.product);
    }
    return p;
}

/* sin(pi r), 0 <= r <= 1/2 */
static rid sine(rb f, rid r)
{
    return r_mul(f, r, TABLE(f, r_mul(f, r, r), sin_pi));
}

/* The distance of t in [0, 1) to the nearest of 0 and 1. Beside 1 it is exact. */
static rid to_integer(rb f, rid t)
{
    return r_min(f, t, r_sub(f, r_k(f, 1), t));
}

static rid lgamma_f64(rb f, rid x)
{
    const rid one = r_k(f, 1), a = r_abs(f, x);
    const rid is_below = r_lt(f, a, one), is_far = r_le(f, r_k(f, FAR), a);
    const rid is_negative = r_lt(f, x, r_k(f, 0));
    const place p = place_of(f, a);
    const rid l = df_recipe_log(f.e, f.t, r_select(f, r_either(f, is_below, is_far), a, p.product));

    const rid u = r_sub(f, p.t, r_k(f, 0.5));
    const rid poly = r_mul(f, r_mul(f, p.t, r_sub(f, one, p.t)), TABLE(f, u, lgamma_near));
    /* below 1: log(a) is subtracted, but the reflection formula adds it once more */
    const rid sign = r_select(f, r_both(f, is_below, r_not_bool(f, is_negative)), r_k(f, -1), one);
    const rid near = r_fma(f, sign, l, r_neg(f, poly));

    const rid inverse = r_div(f, one, a);
    const rid rest = r_fma(f, TABLE(f, r_mul(f, inverse, inverse), lgamma_far), inverse,
                           r_k(f, 0.91893853320467274178 - 0.5));
    const rid far = r_fma(f, r_sub(f, a, r_k(f, 0.5)), r_sub(f, l, one), rest);
    const rid y = r_select(f, is_far, far, near);

    const rid over_pi = r_mul(f, sine(f, to_integer(f, p.t)), r_k(f, 1 / PI));
    const rid mirror = r_select(f, is_below, r_div(f, over_pi, a), r_mul(f, over_pi, a));
    const rid reflected = r_neg(f, r_add(f, df_recipe_log(f.e, f.t, mirror), y));
    const rid all = r_select(f, is_negative, reflected, y);
    const rid infinity = r_k(f, INFINITY);
    return r_select(f, r_eq(f, a, infinity), infinity, all);
}

static rid digamma_f64(rb f, rid x)
{
    const rid one = r_k(f, 1), zero = r_k(f, 0), a = r_abs(f, x);
    const rid is_below = r_lt(f, a, one), is_far = r_le(f, r_k(f, FAR), a);
    const rid is_negative = r_lt(f, x, zero);
    const place p = place_of(f, a);
    const rid inverse = r_div(f, one, a);

    const rid from_root = r_sub(f, r_sub(f, p.t, r_k(f, ROOT)), r_k(f, ROOT_REST));
    const rid u = r_sub(f, p.t, r_k(f, 0.5));
    const rid steps = r_div(f, p.sum, p.product);
    /* below 1: 1 / a is subtracted, but the reflection formula adds it again */
    const rid step =
        r_select(f, is_below, r_select(f, is_negative, zero, r_neg(f, inverse)), steps);
    const rid near = r_fma(f, from_root, TABLE(f, u, digamma_near), step);

    const rid square = r_mul(f, inverse, inverse);
    const rid series = r_mul(f, TABLE(f, square, digamma_far), square);
    const rid rest = r_fma(f, inverse, r_k(f, 0.5), series);
    const rid far = r_sub(f, df_recipe_log(f.e, f.t, a), rest);
    const rid y = r_select(f, is_far, far, near);

    /* pi / tan(pi a): the tangent has the sign of 1/2 - t, and cos(pi r) = sin(pi (1/2 - r)) */
    const rid r = to_integer(f, p.t);
    const rid cosine = sine(f, r_sub(f, r_k(f, 0.5), r));
    const rid slope = r_div(f, r_mul(f, r_k(f, PI), cosine), sine(f, r));
    const rid turned = r_select(f, r_lt(f, p.t, r_k(f, 0.5)), slope, r_neg(f, slope));
    const rid more = r_add(f, y, r_select(f, is_below, zero, inverse));
    const rid reflected = r_select(f, r_eq(f, r, zero), r_k(f, NAN), r_add(f, more, turned));
    const rid all = r_select(f, is_negative, reflected, y);
    const rid at_zero = r_of_bits(f, r_or(r_int(f), r_bits(f, r_k(f, -INFINITY)), r_sign_of(f, x)));
    const rid pole = r_of_bits(f, r_xor(r_int(f), r_bits(f, at_zero), r_sign_of(f, x)));
    const rid ended = r_select(f, r_eq(f, x, r_k(f, INFINITY)), x, all);
    return r_select(f, r_eq(f, a, zero), pole, ended);
}

/* x to the power -n, n > 0 */
static rid inverse_power(rb f, rid x, int n)
{
    return df_recipe_powi(f.e, f.t, x, -n);
}

/* The derivative of digamma of that order, n >= 1, times (-1)^(n + 1): n! times the sum of
 * (x + j)^-(n + 1) over all j >= 0. The first terms are added one by one. The others are
 * the formula of Euler and Maclaurin. */
static rid zeta_sum(rb f, rid x, int n)
{
    static const double bernoulli[] = { 1. / 6,       -1. / 30, 1. / 42,      -1. / 30,    5. / 66,
                                        -691. / 2730, 7. / 6,   -3617. / 510, 43867. / 798 };
    enum { TERMS = 12 };
    double factorial = 1;
    for (int i = 2; i <= n; i++) factorial *= i;
    const rid z = r_add(f, x, r_k(f, TERMS)), inverse = r_div(f, r_k(f, 1), z);
    const rid square = r_mul(f, inverse, inverse);
    double c[DF_LEN(bernoulli)], rising = 0.5; /* s (s + 1) ... (s + 2 k - 2) / (2 k)!, s = n + 1 */
    for (size_t k = 0; k < DF_LEN(bernoulli); k++) {
        rising = k == 0 ? (n + 1) / 2.
                        : rising * (n + 2. * (double)k) * (n + 2. * (double)k + 1) /
                              ((2. * (double)k + 1) * (2. * (double)k + 2));
        c[k] = bernoulli[k] * rising;
    }
    rid tail = r_mul(f, r_poly(f, square, c, DF_LEN(c)), inverse);
    tail = r_mul(f, r_add(f, tail, r_k(f, 0.5)), inverse);
    tail = r_mul(f, r_add(f, tail, r_k(f, 1. / n)), inverse_power(f, z, n));
    /* The tail is added last: beside it, each term of a large x is less than half an ULP. */
    rid sum = inverse_power(f, r_add(f, x, r_k(f, TERMS - 1)), n + 1);
    for (int j = TERMS - 1; j-- > 0;)
        sum = r_add(f, sum, inverse_power(f, r_add(f, x, r_k(f, j)), n + 1));
    return r_mul(f, r_add(f, sum, tail), r_k(f, factorial));
}

static rid polygamma_f64(rb f, rid x, int n)
{
    const rid zero = r_k(f, 0), one = r_k(f, 1);
    const rid is_negative = r_lt(f, x, zero);
    const rid from = n == 1 ? r_select(f, is_negative, r_sub(f, one, x), x) : x;
    const rid plus = zeta_sum(f, from, n);
    const rid y = n % 2 == 1 ? plus : r_neg(f, plus);
    if (n > 1) return r_select(f, r_le(f, zero, x), y, r_k(f, NAN));
    const rid t = r_sub(f, x, r_floor(f, x));
    const rid slope = r_div(f, r_k(f, PI), sine(f, to_integer(f, t)));
    return r_select(f, is_negative, r_sub(f, r_mul(f, slope, slope), y), y);
}

uint32_t df_recipe_lgamma(df_emit *e, deft_dtype t, uint32_t x)
{
    R_IN_F64(e, t, x, lgamma_f64(d, wide));
}

uint32_t df_recipe_digamma(df_emit *e, deft_dtype t, uint32_t x)
{
    R_IN_F64(e, t, x, digamma_f64(d, wide));
}

uint32_t df_recipe_polygamma(df_emit *e, deft_dtype t, uint32_t x, uint32_t order)
{
    R_IN_F64(e, t, x, polygamma_f64(d, wide, (int)order));
}
