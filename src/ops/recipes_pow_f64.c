/* SPDX-License-Identifier: Apache-2.0
 *
 * pow of f64. y log2 |x| may be as large as 1075, and its error must be below 2^-54. So log2 is a
 * sum of two f64, h + l, with an error of about 2^-64. With s = (m - 1) / (m + 1), |s| < 0.172,
 *   log2 m = (2 / ln 2) s (1 + s^2 (1/3 + s^2 (1/5 + ...))),
 * where all but the innermost polynomial is computed in two parts.
 */
#include "ops/recipe_parts.h"

#include <math.h>

/* (atanh s / s - 1 - s^2 / 3) / s^4, in s^2, s in [0, 0.1716]: 2^-54 */
static const double atanh_table[] = {
    0x1.999999999999ap-3, 0x1.2492492492204p-3, 0x1.c71c71c7b4de7p-4,
    0x1.745d16c63d0dep-4, 0x1.3b13e9e57f4e5p-4, 0x1.1102c52148721p-4,
    0x1.e600a725b438ap-5, 0x1.5df02d7298e0dp-5, 0x1.0adc407b1127p-3,
};

/* 2^r on [-0.5, 0.5]: 2^-57.3 */
static const double exp2_table[] = {
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

typedef struct two {
    rid h, l;
} two;

/* a + b for |a| >= |b| or a = 0, exactly */
static two short_sum(rb f, rid a, rid b)
{
    const rid h = r_add(f, a, b);
    return (two){ h, r_add(f, r_sub(f, a, h), b) };
}

static two product(rb f, two a, two b)
{
    const rid h = r_mul(f, a.h, b.h);
    const rid l = r_fma(f, a.h, b.h, r_neg(f, h));
    return (two){ h, r_fma(f, a.l, b.h, r_fma(f, a.h, b.l, l)) };
}

/* log2(1 + g) */
static two log2_of_fraction(rb f, rid g)
{
    const rid d = r_add(f, g, r_k(f, 2));
    const rid d_low = r_sub(f, g, r_sub(f, d, r_k(f, 2)));
    const rid inverse = r_div(f, r_k(f, 1), d);
    const rid s = r_mul(f, g, inverse);
    const rid minus_s = r_neg(f, s);
    const rid rest = r_fma(f, minus_s, d_low, r_fma(f, minus_s, d, g));
    const two ss = { s, r_mul(f, rest, inverse) };
    const two s2 = product(f, ss, ss);
    const rid p = r_mul(f, s2.h, r_poly(f, s2.h, atanh_table, DF_LEN(atanh_table)));
    two q = short_sum(f, r_k(f, 0x1.5555555555555p-2), p);
    q.l = r_add(f, q.l, r_k(f, 0x1.5555555555555p-56));
    const two cubic = product(f, product(f, s2, q), ss);
    two sum = short_sum(f, ss.h, cubic.h);
    sum.l = r_add(f, sum.l, r_add(f, cubic.l, ss.l));
    const two factor = { r_k(f, 0x1.71547652b82fep1), r_k(f, 0x1.777d0ffda0d24p-55) };
    return product(f, sum, factor);
}

/* log2 a for 0 < a < inf */
static two log2_of(rb f, rid a)
{
    const rb i = r_i64(f);
    const int64_t from = 0x3fe6a09e667f3bcd; /* sqrt(1/2) */
    const rid denormal = r_lt(f, a, r_k(f, 0x1p-1022));
    const rid normal = r_select(f, denormal, r_mul(f, a, r_k(f, 0x1p54)), a);
    const rid origin = r_select(i, denormal, r_ki(i, from + ((int64_t)54 << 52)), r_ki(i, from));
    const rid above = r_sub(i, r_bits(f, normal), origin);
    const rid mantissa = r_and(i, above, r_ki(i, 0xfffffffffffff));
    const rid e = r_cast(f, r_shr(i, above, r_ki(i, 52)));
    const rid m = r_of_bits(f, r_add(i, mantissa, r_ki(i, from)));
    const two fraction = log2_of_fraction(f, r_sub(f, m, r_k(f, 1)));
    two sum = short_sum(f, e, fraction.h);
    sum.l = r_add(f, sum.l, fraction.l);
    return sum;
}

/* 2^(h + l). For |h| >= 1100, l has no meaning and is not used. */
static rid exp2_of(rb f, two t)
{
    const rid bound = r_k(f, 1100);
    const rid h = r_max(f, r_k(f, -1100), r_min(f, bound, t.h));
    const rid l = r_select(f, r_lt(f, r_abs(f, t.h), bound), t.l, r_k(f, 0));
    const rid rounder = r_rounder(f, 2 * r_bias(f));
    const rid sum = r_add(f, h, rounder);
    const rid n = r_sub(f, sum, rounder);
    const rid r = r_add(f, r_sub(f, h, n), l);
    return r_scale(f, r_poly(f, r, exp2_table, DF_LEN(exp2_table)), n, sum);
}

rid df_recipe_pow_f64(rb f, rid x, rid y)
{
    const rid a = r_abs(f, x);
    two log = log2_of(f, a);
    log.h = r_select(f, r_lt(f, a, r_k(f, INFINITY)), log.h, a);
    log.h = r_select(f, r_eq(f, a, r_k(f, 0)), r_k(f, -INFINITY), log.h);
    const rid h = r_mul(f, y, log.h);
    const rid l = r_fma(f, y, log.l, r_fma(f, y, log.h, r_neg(f, h)));
    return df_recipe_pow_special(f, x, y, exp2_of(f, (two){ h, l }));
}
