/* SPDX-License-Identifier: Apache-2.0
 *
 * sin, cos, tan of f32.
 *
 * sin and cos reduce by pi: x = n pi + r with |r| <= pi/2, so that one odd polynomial serves both.
 * Up to BOUND the reduction is that of Cody and Waite, with three f32 parts of pi. Beyond, it is
 * done in f64 and correct for every f32. Both are computed and one is selected. If no lane of a
 * vector is beyond BOUND, a back end may skip the instructions that only the last operands of these
 * selects need. They are more than half of all.
 *
 * Near its poles, tan would need r with more precision than f32 has, so tan computes in f64.
 */
#include "ops/recipe_parts.h"

/* (sin r - r) / r^3, in r^2, r in [0, 1.571], relative to sin: 2^-27.2. Then searched nearby
 * (tools/fit_search.c) for the least error of the f32 evaluation on [0, 1.585], the range that
 * reduce_large leaves: no result exceeds 1. */
static const double sin_f32[] = { -0x1.55554cp-3, 0x1.110ec8p-7, -0x1.9f6b62p-13, 0x1.5d617p-19 };

/* (tan r - r) / r^3, in r^2, r in [0, 0.786], relative to tan: 2^-29.5 */
static const double tan_of_f32[] = {
    0x1.5555607eb8a41p-2, 0x1.110d83b956be4p-3,  0x1.baddb5d80d712p-5, 0x1.5c9c42579a08ep-6,
    0x1.637a9de7b4692p-7, 0x1.32f5e198f099dp-14, 0x1.1f589e84536c7p-8,
};

#define BOUND 0x1p17

/* x = (n + half / 2) pi / per_pi + r; the lowest bit of parity, an i32 or i64, is that of n. */
typedef struct reduced {
    rid r, parity;
} reduced;

/* Reduces |x| < BOUND in the dtype of f. The parts of pi / per_pi are all positive, so that -0
 * remains -0. */
static reduced reduce_small(rb f, rid x, const double part[3], double inverse, bool half)
{
    rid n, parity;
    if (half) {
        /* The rounder minus 1/2 is not representable, so x is moved by 1/2 before it is rounded. */
        const rid rounder = r_rounder(f, 0);
        const rid sum = r_add(f, r_fma(f, x, r_k(f, inverse), r_k(f, -0.5)), rounder);
        n = r_add(f, r_sub(f, sum, rounder), r_k(f, 0.5));
        parity = r_bits(f, sum);
    } else {
        const r_rounded k = r_round(f, x, r_k(f, inverse), 0);
        n = k.n;
        parity = r_low(f, k);
    }
    rid r = x;
    for (int i = 0; i < 3 && part[i] != 0; i++) r = r_fma(f, n, r_k(f, -part[i]), r);
    return (reduced){ r, parity };
}

/* Reduces any f32 x. `far` says whether |x| >= 2^78, and r is an f64. t = x / (2 pi) mod 1 is
 * computed as f1 + f2 + f3. The first part of 1 / (2 pi) has 29 bits, so its product with an f32 is
 * exact. Where |x| >= 2^78, the lowest bit of x is at least 2^55. Then the bits of 1 / (2 pi) above
 * 2^-55 contribute whole turns only, and the three parts are those of the following bits. In both
 * cases 135 bits are used, and the error is 2^-60 turns. No f32 is nearer than 2^-33 turns to a
 * multiple of a quarter turn. */
static reduced reduce_large(rb d, rid x, rid far, int per_pi, bool half)
{
    const rid c1 = r_select(d, far, r_k(d, 0x1.4a7f09dp-56), r_k(d, 0x1.45f306ep-3));
    const rid c2 = r_select(d, far, r_k(d, 0x1.7d1f534ddc0dbp-86), r_k(d, -0x1.b1bbead603d8bp-34));
    const rid c3 = r_select(d, far, r_k(d, 0x1.8a5664f10e41p-140), r_k(d, 0x1.f47d4d377036ep-88));
    const rid p1 = r_mul(d, x, c1), p2 = r_mul(d, x, c2);
    const rid f1 = r_sub(d, p1, r_rint(d, p1)), f2 = r_sub(d, p2, r_rint(d, p2));
    const rid f3 = r_fma(d, x, c3, r_fma(d, x, c2, r_neg(d, p2)));
    /* The nearest multiple of the period is subtracted from f1 and f2 exactly, then f3 is added. */
    const double per_turn = 2 * per_pi;
    const rid rounder = r_rounder(d, 0);
    const rid offset = half ? r_k(d, -0.5) : rounder;
    rid sum = r_fma(d, r_add(d, f1, f2), r_k(d, per_turn), offset);
    if (half) sum = r_add(d, sum, rounder);
    rid n = r_sub(d, sum, rounder);
    if (half) n = r_add(d, n, r_k(d, 0.5));
    const rid rest = r_add(d, r_fma(d, n, r_k(d, -1 / per_turn), f1), f2);
    const rid r = r_mul(d, r_add(d, rest, f3), r_k(d, 0x1.921fb54442d18p2));
    return (reduced){ r, r_bits(d, sum) };
}

static const double pi_f32[3] = { 0x1.921fb4p1, 0x1.4442dp-23, 0x1.84698ap-47 };

/* a = |x| is reduced by pi, and the parity of n is moved to the sign bit. */
static reduced reduce_by_pi(rb f, rid a, bool half)
{
    const rb d = r_f64(f.e), i = r_i32(f);
    const rid is_small = r_lt(f, a, r_k(f, BOUND));
    const rid far = r_le(f, r_k(f, 0x1p78), a);
    const reduced small = reduce_small(f, a, pi_f32, 0x1.45f306p-2, half);
    const reduced large = reduce_large(d, r_cast(d, a), far, 1, half);
    const rid parity = r_select(i, is_small, small.parity, r_cast(i, large.parity));
    return (reduced){ r_select(f, is_small, small.r, r_cast(f, large.r)),
                      r_shl(i, parity, r_ki(i, 31)) };
}

static rid sin_of_rest(rb f, rid r)
{
    const rid r2 = r_mul(f, r, r);
    return r_fma(f, r_mul(f, r2, r), r_poly(f, r2, sin_f32, DF_LEN(sin_f32)), r);
}

rid df_recipe_sin_f32(rb f, rid x)
{
    const rb i = r_i32(f);
    const reduced k = reduce_by_pi(f, r_abs(f, x), false);
    const rid flip = r_xor(i, k.parity, r_sign_of(f, x));
    return r_of_bits(f, r_xor(i, r_bits(f, sin_of_rest(f, k.r)), flip));
}

/* x = (n + 1/2) pi + r: cos x = -(-1)^n sin r */
rid df_recipe_cos_f32(rb f, rid x)
{
    const rb i = r_i32(f);
    const reduced k = reduce_by_pi(f, r_abs(f, x), true);
    const rid y = r_neg(f, sin_of_rest(f, k.r));
    return r_of_bits(f, r_xor(i, r_bits(f, y), k.parity));
}

static const double half_pi_f64[3] = { 0x1.921fb54442d18p0, 0x1.1a62633145c06p-54, 0 };

/* tan r, or -1 / tan r where n is odd */
rid df_recipe_tan_f32(rb f, rid x)
{
    const rb d = r_f64(f.e), i = r_i64(f);
    const rid a = r_abs(f, x), xd = r_cast(d, x);
    const rid is_small = r_lt(f, a, r_k(f, BOUND));
    const reduced small = reduce_small(d, xd, half_pi_f64, 0x1.45f306dc9c883p-1, false);
    const reduced large = reduce_large(d, xd, r_le(f, r_k(f, 0x1p78), a), 2, false);
    const rid r = r_select(d, is_small, small.r, large.r);
    const rid parity = r_select(i, is_small, small.parity, large.parity);
    const rid r2 = r_mul(d, r, r);
    const rid y = r_fma(d, r_mul(d, r2, r), r_poly(d, r2, tan_of_f32, DF_LEN(tan_of_f32)), r);
    const rid odd = r_lt(i, r_shl(i, parity, r_ki(i, 63)), r_ki(i, 0));
    return r_cast(f, r_div(d, r_select(d, odd, r_k(d, -1), y), r_select(d, odd, y, r_k(d, 1))));
}
