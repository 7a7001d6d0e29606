/* SPDX-License-Identifier: Apache-2.0
 *
 * rsqrt, cbrt, hypot, logaddexp, integer powers, the dispatch of pow by dtype, and the random
 * number generator.
 *
 * hypot: squares of f32 are exact in f64, so f64 arithmetic has an error within 0.51 ULP, and no
 * intermediate result overflows. Operands in f64 are scaled by a power of two where the greater one
 * is outside [2^-500, 2^500]. As in C, the result is infinite if one operand is, even if the other
 * is NaN.
 */
#include "ops/recipe_parts.h"

#include <math.h>

uint32_t df_recipe_rsqrt(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t };
    return r_div(f, r_k(f, 1), r_sqrt(f, x));
}

static rid hypot_f32(rb f, rid a, rid b)
{
    const rb d = r_f64(f.e);
    const rid p = r_cast(d, a), q = r_cast(d, b);
    return r_cast(f, r_sqrt(d, r_add(d, r_mul(d, p, p), r_mul(d, q, q))));
}

/* m >= n >= 0 */
static rid hypot_f64(rb f, rid m, rid n)
{
    const rid one = r_k(f, 1), up = r_k(f, 0x1p600), down = r_k(f, 0x1p-600);
    const rid large = r_lt(f, r_k(f, 0x1p500), m), small = r_lt(f, m, r_k(f, 0x1p-500));
    const rid scale = r_select(f, large, down, r_select(f, small, up, one));
    const rid back = r_select(f, large, up, r_select(f, small, down, one));
    const rid p = r_mul(f, m, scale), q = r_mul(f, n, scale);
    return r_mul(f, r_sqrt(f, r_fma(f, p, p, r_mul(f, q, q))), back);
}

uint32_t df_recipe_hypot(df_emit *e, deft_dtype t, uint32_t x, uint32_t y)
{
    const rb f = { e, t };
    const rid a = r_abs(f, x), b = r_abs(f, y), inf = r_k(f, INFINITY);
    const rid endless = r_either(f, r_eq(f, a, inf), r_eq(f, b, inf));
    const rid h = t == DEFT_F64 ? hypot_f64(f, r_max(f, a, b), r_min(f, a, b)) : hypot_f32(f, a, b);
    return r_select(f, endless, inf, h);
}

static rid one(rb f)
{
    if (f.t == DEFT_F32 || f.t == DEFT_F64) return r_k(f, 1);
    return f.e->ins(f.e, DF_K_const, f.t, 0, 0, 0, 1);
}

/* Any power of a bool except the zeroth is the bool itself. For a negative exponent the reciprocal
 * is taken first: otherwise the power could overflow where the result is denormal. For integers,
 * 1 / x is 0 for all x except 1 and -1. */
uint32_t df_recipe_powi(df_emit *e, deft_dtype t, uint32_t x, int32_t exponent)
{
    const rb f = { e, t };
    if (exponent == 0) return one(f);
    if (t == DEFT_BOOL) return x;
    uint32_t left = exponent < 0 ? 0u - (uint32_t)exponent : (uint32_t)exponent;
    rid square = exponent < 0 ? r_div(f, one(f), x) : x;
    while (!(left & 1)) {
        square = r_mul(f, square, square);
        left >>= 1;
    }
    rid power = square;
    while (left >>= 1) {
        square = r_mul(f, square, square);
        if (left & 1) power = r_mul(f, power, square);
    }
    return power;
}

/* Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011. A word is an i64 in [0, 2^32), so a product of two is exact modulo 2^64. */
void df_recipe_philox(df_emit *e, uint32_t seed, uint32_t draw, uint32_t element, uint32_t out[4])
{
    const rb f = { e, DEFT_I64 };
    const rid mask = r_ki(f, UINT32_MAX), half = r_ki(f, 32);
    const rid m0 = r_ki(f, 0xd2511f53), m1 = r_ki(f, 0xcd9e8d57);
    const rid w0 = r_ki(f, 0x9e3779b9), w1 = r_ki(f, 0xbb67ae85);
    rid k0 = r_and(f, seed, mask), k1 = r_lshr(f, seed, half);
    rid c0 = r_and(f, element, mask), c1 = r_lshr(f, element, half);
    rid c2 = r_and(f, draw, mask), c3 = r_lshr(f, draw, half);
    for (int round = 0; round < 10; round++) {
        if (round > 0) {
            k0 = r_and(f, r_add(f, k0, w0), mask);
            k1 = r_and(f, r_add(f, k1, w1), mask);
        }
        const rid p0 = r_mul(f, c0, m0), p1 = r_mul(f, c2, m1);
        c0 = r_xor(f, r_xor(f, r_lshr(f, p1, half), c1), k0);
        c2 = r_xor(f, r_xor(f, r_lshr(f, p0, half), c3), k1);
        c1 = r_and(f, p1, mask);
        c3 = r_and(f, p0, mask);
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The greater of x and y, plus log1p(exp(-|x - y|)). Where it is infinite, the difference may have
 * no value. */
uint32_t df_recipe_logaddexp(df_emit *e, deft_dtype t, uint32_t x, uint32_t y)
{
    const rb f = { e, t };
    const rid top = r_max(f, x, y), far = r_neg_abs(f, r_sub(f, x, y));
    const rid more = df_recipe_log1p(e, t, df_recipe_exp(e, t, far));
    const rid is_endless = r_eq(f, r_abs(f, top), r_k(f, INFINITY));
    return r_select(f, is_endless, top, r_add(f, top, more));
}

/* x = 2^(3 q) m with m in [0.5, 4]. A parabola is within 10 % of the root of m. Each of two steps
 * of Halley's method (1694) triples the digits. The residual of the last step, which is Newton's,
 * is computed in twice the precision. f32 is computed in f64. */
static rid cbrt_of_normal(rb d, rid a)
{
    const rb i = r_int(d);
    const rid low = r_ki(i, 0xfffffffffffff), bits = r_bits(d, a);
    const rid fraction = r_or(i, r_and(i, bits, low), r_ki(i, 0x3ff0000000000000));
    const rid e = r_cast(d, r_sub(i, r_lshr(i, bits, r_mantissa_bits(d)), r_ki(i, 1023)));
    const r_rounded q = r_round(d, e, r_k(d, 0x1.5555555555555p-2), 1023);
    const r_rounded r = r_round(d, r_fma(d, q.n, r_k(d, -3), e), r_k(d, 1), 1023);
    const rid m = r_mul(d, r_of_bits(d, fraction), r_power(d, r_low(d, r)));
    static const double start[] = { 0.5307, 0.5838, -0.0785 };
    rid y = r_poly(d, m, start, DF_LEN(start));
    const rid twice = r_add(d, m, m);
    for (int step = 0; step < 2; step++) {
        const rid cube = r_mul(d, r_mul(d, y, y), y);
        y = r_mul(d, y, r_div(d, r_add(d, cube, twice), r_add(d, r_add(d, cube, cube), m)));
    }
    const rid square = r_mul(d, y, y), rest = r_fma(d, y, y, r_neg(d, square));
    const rid over = r_fma(d, rest, y, r_fma(d, square, y, r_neg(d, m)));
    y = r_sub(d, y, r_div(d, over, r_mul(d, r_k(d, 3), square)));
    return r_mul(d, y, r_power(d, r_low(d, q)));
}

uint32_t df_recipe_cbrt(df_emit *e, deft_dtype t, uint32_t x)
{
    const rb f = { e, t }, d = r_f64(e);
    const rid a = r_abs(d, t == DEFT_F64 ? x : r_cast(d, x));
    const rid tiny = r_lt(d, a, r_k(d, 0x1p-1022)); /* denormal in f64 */
    const rid scaled = r_select(d, tiny, r_mul(d, a, r_k(d, 0x1p54)), a);
    const rid y = cbrt_of_normal(d, scaled);
    const rid back = r_select(d, tiny, r_mul(d, y, r_k(d, 0x1p-18)), y);
    const rid is_plain = r_both(d, r_lt(d, r_k(d, 0), a), r_lt(d, a, r_k(d, INFINITY)));
    const rid all = r_select(d, is_plain, back, a);
    return r_with_sign(f, r_abs(f, t == DEFT_F64 ? all : r_cast(f, all)), x);
}

/* A negative power is that of 1 / x, which is 0 for all x except 1 and -1. */
static rid negative_power(rb f, rid x, rid y)
{
    const rid zero = r_ki(f, 0), one = r_ki(f, 1), minus_one = r_ki(f, -1);
    const rid is_odd = r_ne(f, r_and(f, y, one), zero);
    const rid of_minus_one = r_select(f, is_odd, minus_one, one);
    const rid rest = r_select(f, r_eq(f, x, minus_one), of_minus_one, zero);
    return r_select(f, r_eq(f, x, one), one, rest);
}

uint32_t df_recipe_pow_int(df_emit *e, deft_dtype t, uint32_t x, uint32_t y)
{
    const rb f = { e, t };
    const uint32_t bits = df_bits_of(t) - df_is_signed(t);
    rid power = r_ki(f, 1), square = x;
    for (uint32_t k = 0; k < bits; k++) {
        const rid bit = r_and(f, y, r_ki(f, (int64_t)((uint64_t)1 << k)));
        const rid more = r_mul(f, power, square);
        power = r_select(f, r_ne(f, bit, r_ki(f, 0)), more, power);
        if (k + 1 < bits) square = r_mul(f, square, square);
    }
    if (!df_is_signed(t)) return power;
    return r_select(f, r_lt(f, y, r_ki(f, 0)), negative_power(f, x, y), power);
}

uint32_t df_recipe_pow(df_emit *e, deft_dtype t, uint32_t x, uint32_t y)
{
    const rb f = { e, t };
    if (df_is_int(t)) return df_recipe_pow_int(e, t, x, y);
    return t == DEFT_F64 ? df_recipe_pow_f64(f, x, y) : df_recipe_pow_f32(f, x, y);
}
