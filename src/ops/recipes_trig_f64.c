/* SPDX-License-Identifier: Apache-2.0
 *
 * sin, cos, tan of f64.
 *
 * As in f32, sin and cos reduce by pi, and tan by pi/2. Below BOUND the reduction uses three f64
 * parts of the period. Beyond, it uses integers (Payne and Hanek 1983).
 *
 * Let x = m 2^E with an integer m < 2^53. x / (2 pi) mod 1 needs only 192 bits of 1 / (2 pi), a
 * window whose position depends on E. All bits before the window contribute whole turns only, and
 * all bits after it less than 2^-138. No f64 is nearer than 2^-62 turns to a multiple of a quarter
 * turn, so 64 of the 128 bits that are kept are significant. They are converted to floats in signed
 * pieces, because a small negative remainder must not become an integer and a fraction that almost
 * cancels it.
 *
 * A straight line cannot index a table by E. So a tree of selects over all words of 1 / (2 pi)
 * finds the window, and shifts align it. No lane below BOUND needs these 170 instructions, so a
 * back end may skip them, as in f32.
 */
#include "ops/recipe_parts.h"

/* (sin r - r) / r^3, in r^2, r in [0, 1.571], relative to sin: 2^-61.5 */
static const double sin_table[] = {
    -0x1.5555555555555p-3,  0x1.11111111110c9p-7,  -0x1.a01a01a014eb4p-13, 0x1.71de3a52aa9abp-19,
    -0x1.ae6454d94abc6p-26, 0x1.6123ce49d0d2cp-33, -0x1.ae43da36da269p-41, 0x1.883bd0166d823p-49,
};

/* (tan r - r) / r^3, in r^2, r in [0, 0.786], relative to tan: 2^-59.9 */
static const double tan_table[] = {
    0x1.555555555555ep-2,  0x1.11111111105fp-3,    0x1.ba1ba1babcbcdp-5,  0x1.664f485dca8ecp-6,
    0x1.226e3a69cf39p-7,   0x1.d6d2ebde184p-9,     0x1.7db14fb2d6dd2p-10, 0x1.34beb121edceap-11,
    0x1.ff082ccada979p-13, 0x1.5f43a3acabbbp-14,   0x1.1879f0383ec61p-14, -0x1.a67c8fcd76ef3p-16,
    0x1.94c7a9fa6d3a2p-15, -0x1.9408420f24f61p-16, 0x1.475ac5d73facdp-17,
};

/* 64 zero bits, then 1 / (2 pi) = 0.28be... (hexadecimal) */
static const uint64_t inverse_turn[20] = {
    0x0000000000000000, 0x28be60db9391054a, 0x7f09d5f47d4d3770, 0x36d8a5664f10e410,
    0x7f9458eaf7aef158, 0x6dc91b8e909374b8, 0x01924bba82746487, 0x3f877ac72c4a69cf,
    0xba208d7d4baed121, 0x3a671c09ad17df90, 0x4e64758e60d4ce7d, 0x272117e2ef7e4a0e,
    0xc7fe25fff7816603, 0xfbcbc462d6829b47, 0xdb4d9fb3c9f2c26d, 0xd3d18fd9a797fa8b,
    0x5d49eeb1faf97c5e, 0xcf41ce7de294a4ba, 0x9afed7ec47e35742, 0x1580cc11bf1edaea
};

#define BOUND 0x1p28

typedef struct reduced {
    rid r, low; /* the reduced operand is r + low */
    rid parity; /* its lowest bit is that of n */
} reduced;

/* The reductions of sin, cos and tan: x = (n + half / 2) period + r. */
typedef struct reduction {
    double part[3]; /* of the period, all positive so that -0 stays -0 */
    double inverse;
    int turn_bits; /* period = 2^-turn_bits turns */
    bool half;
} reduction;

static const reduction by_pi = { { 0x1.921fb54442d18p1, 0x1.1a62633145c06p-53,
                                   0x1.c1cd129024e09p-106 },
                                 0x1.45f306dc9c883p-2,
                                 1,
                                 false };
static const reduction by_pi_half = { { 0x1.921fb54442d18p1, 0x1.1a62633145c06p-53,
                                        0x1.c1cd129024e09p-106 },
                                      0x1.45f306dc9c883p-2,
                                      1,
                                      true };
static const reduction by_half_pi = { { 0x1.921fb54442d18p0, 0x1.1a62633145c06p-54,
                                        0x1.c1cd129024e09p-107 },
                                      0x1.45f306dc9c883p-1,
                                      2,
                                      false };

static reduced reduce_small(rb f, rid x, const reduction *by)
{
    const rid rounder = r_rounder(f, 0), inverse = r_k(f, by->inverse);
    rid sum;
    if (by->half)
        sum = r_add(f, r_fma(f, x, inverse, r_k(f, -0.5)), rounder);
    else
        sum = r_fma(f, x, inverse, rounder);
    rid n = r_sub(f, sum, rounder);
    if (by->half) n = r_add(f, n, r_k(f, 0.5));
    /* r0 is exact, and so is the error of r0 - p that Dekker's short sum finds. */
    const rid r0 = r_fma(f, n, r_k(f, -by->part[0]), x);
    const rid p = r_mul(f, n, r_k(f, -by->part[1]));
    const rid p_low = r_fma(f, n, r_k(f, -by->part[1]), r_neg(f, p));
    const rid r = r_add(f, r0, p);
    const rid r_low = r_add(f, r_sub(f, r0, r), p);
    const rid low = r_fma(f, n, r_k(f, -by->part[2]), r_add(f, r_low, p_low));
    return (reduced){ r, low, r_bits(f, sum) };
}

/* Sets word[k] to the old word[k + by] for all k < 4, where by < 32. */
static void move_down(rb i, rid word[20], rid by)
{
    for (int step = 16; step > 0; step /= 2) {
        const rid set = r_ne(i, r_and(i, by, r_ki(i, step)), r_ki(i, 0));
        for (int k = 0; k < 3 + step && k + step < 20; k++)
            word[k] = r_select(i, set, word[k + step], word[k]);
    }
}

/* digit[0..3]: the top 128 bits of the fraction of a / (2 pi), 32 in each, the lowest first. */
static void fraction_of_turns(rb f, rid a, rid digit[4])
{
    const rb i = r_i64(f);
    const rid bits = r_bits(f, a), mask = r_ki(i, UINT32_MAX), half = r_ki(i, 32);
    /* E = exponent - 1075; the zero word in front moves the window to E + 64 >= 0. */
    const rid start = r_sub(i, r_lshr(i, bits, r_ki(i, 52)), r_ki(i, 1075 - 64));
    const rid fraction = r_and(i, bits, r_ki(i, 0xfffffffffffff));
    const rid m = r_or(i, fraction, r_ki(i, 0x10000000000000));

    rid word[20];
    for (int k = 0; k < 20; k++) word[k] = r_ki(i, (int64_t)inverse_turn[k]);
    move_down(i, word, r_lshr(i, start, r_ki(i, 6)));
    const rid left = r_and(i, start, r_ki(i, 63));
    const rid right = r_sub(i, r_ki(i, 64), left);
    rid limb[6]; /* of 32 bits, the lowest first */
    for (int k = 0; k < 3; k++) {
        const rid w = r_or(i, r_shl(i, word[k], left), r_lshr(i, word[k + 1], right));
        limb[5 - 2 * k] = r_lshr(i, w, half);
        limb[4 - 2 * k] = r_and(i, w, mask);
    }

    /* m limb modulo 2^192, m = m1 2^32 + m0: each column adds less than 2^64. */
    const rid m0 = r_and(i, m, mask), m1 = r_lshr(i, m, half);
    rid column = r_mul(i, m0, limb[0]);
    rid low = r_and(i, column, mask), second = low;
    for (int k = 1; k < 6; k++) {
        column = r_add(i, r_lshr(i, column, half), r_mul(i, m0, limb[k]));
        low = r_and(i, column, mask);
        second = r_add(i, r_add(i, r_lshr(i, second, half), r_mul(i, m1, limb[k - 1])), low);
        if (k >= 2) digit[k - 2] = r_and(i, second, mask);
    }
}

static reduced reduce_large(rb f, rid a, const reduction *by)
{
    const rb i = r_i64(f);
    rid digit[4];
    fraction_of_turns(f, a, digit);
    const rid turn = r_or(i, r_shl(i, digit[3], r_ki(i, 32)), digit[2]);
    const int period_bits = 64 - by->turn_bits;
    const int64_t middle = (int64_t)1 << (period_bits - 1);
    const rid rounded = by->half ? turn : r_add(i, turn, r_ki(i, middle));
    const rid n = r_lshr(i, rounded, r_ki(i, period_bits));
    rid rest = r_sub(i, turn, r_shl(i, n, r_ki(i, period_bits)));
    if (by->half) rest = r_sub(i, rest, r_ki(i, middle));
    /* 48 bits, rounded and signed; the next 48, signed; the last 32 */
    const rid sixteen = r_ki(i, 16);
    const rid whole = r_shr(i, r_add(i, rest, r_ki(i, 1 << 15)), sixteen);
    const rid rest16 = r_sub(i, rest, r_shl(i, whole, sixteen));
    const rid top = r_cast(f, whole);
    const rid next = r_cast(f, r_add(i, r_shl(i, rest16, r_ki(i, 32)), digit[1]));
    const rid last = r_cast(f, digit[0]);
    /* In units of 2^-48 turns: h + l, then times 2 pi. */
    const rid next_scaled = r_mul(f, next, r_k(f, 0x1p-48)), unit = r_k(f, 0x1p-80);
    const rid tail = r_fma(f, last, unit, next_scaled);
    const rid tail_low = r_fma(f, last, unit, r_sub(f, next_scaled, tail));
    const rid h = r_add(f, top, tail);
    const rid l = r_add(f, r_add(f, r_sub(f, top, h), tail), tail_low);
    const rid turn_hi = r_k(f, 0x1.921fb54442d18p-46), turn_lo = r_k(f, 0x1.1a62633145c07p-100);
    const rid r = r_mul(f, h, turn_hi);
    const rid exact = r_fma(f, h, turn_hi, r_neg(f, r));
    const rid low = r_fma(f, l, turn_hi, r_fma(f, h, turn_lo, exact));
    /* a - a is NaN for infinities and NaN, whose bits have no meaning above. */
    return (reduced){ r_add(f, r, r_sub(f, a, a)), low, n };
}

/* a >= 0 */
static reduced reduce(rb f, rid a, const reduction *by)
{
    const rid is_small = r_lt(f, a, r_k(f, BOUND));
    const reduced s = reduce_small(f, a, by), l = reduce_large(f, a, by);
    return (reduced){ r_select(f, is_small, s.r, l.r), r_select(f, is_small, s.low, l.low),
                      r_select(r_i64(f), is_small, s.parity, l.parity) };
}

/* sin(r + low), with the sign turned where parity is odd */
static rid sin_of(rb f, reduced k)
{
    const rb i = r_i64(f);
    const rid r2 = r_mul(f, k.r, k.r);
    const rid p = r_poly(f, r2, sin_table, DF_LEN(sin_table));
    /* sin(r + low) = sin r + low cos r. A rough cosine suffices, but it must be 0 at pi/2. */
    const rid cosine = r_fma(f, r2, r_k(f, -0x1.9f02f6222c72p-2), r_k(f, 1));
    const rid rest = r_fma(f, r_mul(f, r2, k.r), p, r_mul(f, k.low, cosine));
    const rid y = r_add(f, k.r, rest);
    return r_xor(i, r_bits(f, y), r_shl(i, k.parity, r_ki(i, 63)));
}

rid df_recipe_sin_f64(rb f, rid x)
{
    const rid bits = sin_of(f, reduce(f, r_abs(f, x), &by_pi));
    return r_of_bits(f, r_xor(r_i64(f), bits, r_sign_of(f, x)));
}

/* x = (n + 1/2) pi + r: cos x = -(-1)^n sin r */
rid df_recipe_cos_f64(rb f, rid x)
{
    return r_neg(f, r_of_bits(f, sin_of(f, reduce(f, r_abs(f, x), &by_pi_half))));
}

/* tan r, or -1 / tan r where n is odd */
rid df_recipe_tan_f64(rb f, rid x)
{
    const rb i = r_i64(f);
    const reduced k = reduce(f, r_abs(f, x), &by_half_pi);
    const rid r2 = r_mul(f, k.r, k.r);
    const rid p = r_poly(f, r2, tan_table, DF_LEN(tan_table));
    /* tan(r + low) = tan r + low (1 + tan^2 r), where 1 + r^2 suffices for the last factor. */
    const rid low = r_fma(f, r2, k.low, k.low);
    const rid y = r_add(f, k.r, r_fma(f, r_mul(f, r2, k.r), p, low));
    const rid odd = r_lt(i, r_shl(i, k.parity, r_ki(i, 63)), r_ki(i, 0));
    const rid t = r_div(f, r_select(f, odd, r_k(f, -1), y), r_select(f, odd, y, r_k(f, 1)));
    return r_of_bits(f, r_xor(i, r_bits(f, t), r_sign_of(f, x)));
}
