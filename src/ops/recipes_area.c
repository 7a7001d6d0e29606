/* SPDX-License-Identifier: Apache-2.0
 *
 * The inverse hyperbolic functions, which are areas. Each is log1p(w). w is the sum of two floats:
 * what rounding took from the first is the second. f32 is computed in f64, with the short
 * polynomial of f32. Beyond 2^30, asinh and acosh are log(2 x) to the last bit.
 */
#include "ops/recipe_parts.h"

#include <math.h>

/* a * a exactly */
static r_pair square_of(rb f, rid a)
{
    const rid p = r_mul(f, a, a);
    return (r_pair){ p, r_fma(f, a, a, r_neg(f, p)) };
}

/* The root of p. Its low part is 0 where p is 0. */
static r_pair root_of(rb f, r_pair p)
{
    const rid s = r_sqrt(f, p.hi);
    const rid rest = r_add(f, r_fma(f, r_neg(f, s), s, p.hi), p.lo);
    const rid lo = r_div(f, rest, r_add(f, s, s));
    return (r_pair){ s, r_select(f, r_eq(f, s, r_k(f, 0)), r_k(f, 0), lo) };
}

/* The result y, which is of f64, in the dtype of f; `wide` is f64. */
static rid narrowed(rb f, rid y)
{
    return f.t == DEFT_F64 ? y : r_cast(f, y);
}

/* asinh a = log1p(a + a^2 / (1 + sqrt(1 + a^2))) */
static rid build_asinh(rb f, rid x)
{
    const rb d = r_f64(f.e);
    const bool is_short = f.t != DEFT_F64;
    const rid one = r_k(d, 1), a = r_abs(d, is_short ? r_cast(d, x) : x);
    const rid large = r_lt(d, r_k(d, 0x1p30), a);
    const r_pair p = square_of(d, a);
    r_pair q = r_two_sum(d, one, p.hi);
    q.lo = r_add(d, q.lo, p.lo);
    const r_pair s = root_of(d, q);
    const r_pair below = r_two_sum(d, one, s.hi);
    const rid ratio = r_div(d, p.hi, below.hi);
    const rid rest = r_sub(d, r_add(d, r_fma(d, r_neg(d, ratio), below.hi, p.hi), p.lo),
                           r_mul(d, ratio, r_add(d, below.lo, s.lo)));
    r_pair w = r_two_sum(d, a, ratio);
    w.lo = r_add(d, w.lo, r_div(d, rest, below.hi));
    w.hi = r_select(d, large, a, w.hi);
    w.lo = r_select(d, large, r_k(d, 0), w.lo);
    const rid y = df_recipe_log1p_of_pair(d, w, large, is_short);
    const rid upper = r_select(d, r_lt(d, a, r_k(d, INFINITY)), y, a);
    return r_with_sign(f, r_abs(f, narrowed(f, upper)), x);
}

/* acosh x = log1p((x - 1) + sqrt(x^2 - 1)) */
static rid build_acosh(rb f, rid x)
{
    const rb d = r_f64(f.e);
    const bool is_short = f.t != DEFT_F64;
    const rid v = is_short ? r_cast(d, x) : x, minus_one = r_k(d, -1);
    const rid large = r_lt(d, r_k(d, 0x1p30), v);
    const r_pair p = square_of(d, v);
    r_pair q = r_two_sum(d, p.hi, minus_one);
    q = r_two_sum(d, q.hi, r_add(d, q.lo, p.lo));
    const r_pair s = root_of(d, q), z = r_two_sum(d, v, minus_one);
    r_pair w = r_two_sum(d, z.hi, s.hi);
    w.lo = r_add(d, w.lo, r_add(d, z.lo, s.lo));
    w.hi = r_select(d, large, v, w.hi);
    w.lo = r_select(d, large, r_k(d, 0), w.lo);
    const rid y = df_recipe_log1p_of_pair(d, w, large, is_short);
    const rid upper = r_select(d, r_lt(d, v, r_k(d, INFINITY)), y, v);
    return narrowed(f, r_select(d, r_le(d, r_k(d, 1), v), upper, r_k(d, NAN)));
}

/* atanh a = log1p(2 a / (1 - a)) / 2 */
static rid build_atanh(rb f, rid x)
{
    const rb d = r_f64(f.e);
    const bool is_short = f.t != DEFT_F64;
    const rid one = r_k(d, 1), a = r_abs(d, is_short ? r_cast(d, x) : x);
    const r_pair below = r_two_sum(d, one, r_neg(d, a));
    const rid above = r_add(d, a, a), ratio = r_div(d, above, below.hi);
    const rid rest =
        r_sub(d, r_fma(d, r_neg(d, ratio), below.hi, above), r_mul(d, ratio, below.lo));
    const r_pair w = { ratio, r_div(d, rest, below.hi) };
    const rid never = r_lt(d, one, r_k(d, 0));
    const rid y = r_mul(d, r_k(d, 0.5), df_recipe_log1p_of_pair(d, w, never, is_short));
    const rid edge = r_select(d, r_eq(d, a, one), r_k(d, INFINITY), r_k(d, NAN));
    const rid all = r_select(d, r_lt(d, a, one), y, edge);
    return r_with_sign(f, r_abs(f, narrowed(f, all)), x);
}

#define RECIPE(name)                                                                               \
    uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x)                                \
    {                                                                                              \
        return build_##name((rb){ e, t }, x);                                                      \
    }
RECIPE(asinh)
RECIPE(acosh)
RECIPE(atanh)
