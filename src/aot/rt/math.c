/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of libm that code of exported programs may call on processors that lack the
 * instruction. Results are those of IEEE 754 with rounding to nearest, bit for bit.
 */
#include "aot/rt/image.h"

/* ---- bits ---- */

static uint64_t aot_bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static double of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#define SIGN (UINT64_C(1) << 63)
#define MANTISSA ((UINT64_C(1) << 52) - 1)

static int exponent_of(double x)
{
    return (int)(aot_bits_of(x) >> 52 & 0x7FF);
}

static int is_finite(double x)
{
    return exponent_of(x) != 0x7FF;
}

/* ---- rounding to whole numbers ---- */

double deft_aot_trunc(double x);
double deft_aot_trunc(double x)
{
    const int e = exponent_of(x) - 1023;
    if (e >= 52) return e == 1024 ? x + x : x; /* whole, infinite, or NaN */
    if (e < 0) return of_bits(aot_bits_of(x) & SIGN);
    return of_bits(aot_bits_of(x) & ~(MANTISSA >> e));
}

double deft_aot_floor(double x);
double deft_aot_floor(double x)
{
    const double t = deft_aot_trunc(x);
    return t > x ? t - 1 : t;
}

double deft_aot_ceil(double x);
double deft_aot_ceil(double x)
{
    const double t = deft_aot_trunc(x);
    return t < x ? of_bits(aot_bits_of(t + 1) | (aot_bits_of(x) & SIGN)) : t;
}

double deft_aot_rint(double x);
double deft_aot_rint(double x)
{
    const double big = 4503599627370496.0; /* 2^52: a sum with it has no bits behind the point */
    const uint64_t sign = aot_bits_of(x) & SIGN;
    if (exponent_of(x) >= 1023 + 52) return is_finite(x) ? x : x + x;
    volatile double sum = of_bits(aot_bits_of(x) & ~SIGN) + big;
    return of_bits(aot_bits_of(sum - big) | sign);
}

float deft_aot_truncf(float x);
float deft_aot_truncf(float x)
{
    return (float)deft_aot_trunc(x);
}

float deft_aot_floorf(float x);
float deft_aot_floorf(float x)
{
    return (float)deft_aot_floor(x);
}

float deft_aot_ceilf(float x);
float deft_aot_ceilf(float x)
{
    return (float)deft_aot_ceil(x);
}

float deft_aot_rintf(float x);
float deft_aot_rintf(float x)
{
    return (float)deft_aot_rint(x);
}

/* ---- remainders ---- */

/* |x| as whole * 2^exponent; whole has at most 53 bits. */
static uint64_t split(double x, int *exponent)
{
    const int e = exponent_of(x);
    *exponent = (e ? e : 1) - 1075;
    return (aot_bits_of(x) & MANTISSA) | (e ? UINT64_C(1) << 52 : 0);
}

/* whole * 2^exponent, which is exact and at most 53 bits long. */
static double join(uint64_t whole, int exponent)
{
    if (whole == 0) return 0;
    while (!(whole >> 52) && exponent > -1074) {
        whole <<= 1;
        exponent--;
    }
    return of_bits((whole >> 52 ? (uint64_t)(exponent + 1075) << 52 : 0) | (whole & MANTISSA));
}

double deft_aot_fmod(double x, double y);
double deft_aot_fmod(double x, double y)
{
    int ex, ey;
    if (!is_finite(x) || y != y || y == 0) return (x * y) / (x * y);
    if (!is_finite(y)) return x;
    uint64_t a = split(x, &ex);
    const uint64_t b = split(y, &ey);
    if (ex < ey) return x; /* y is no denormal, so it is the larger one */
    for (a %= b; ex > ey; ex--) {
        a <<= 1;
        if (a >= b) a -= b;
    }
    return of_bits(aot_bits_of(join(a, ey)) | (aot_bits_of(x) & SIGN));
}

float deft_aot_fmodf(float x, float y);
float deft_aot_fmodf(float x, float y)
{
    return (float)deft_aot_fmod(x, y);
}

/* ---- fused multiply-add ---- */

/* The product is exact in f64. The sum is rounded to odd, so that rounding it to f32 is right
 * (Boldo and Melquiond, "When double rounding is odd", 2005). */
float deft_aot_fmaf(float x, float y, float z);
float deft_aot_fmaf(float x, float y, float z)
{
    const double p = (double)x * y, s = p + z;
    if (!is_finite(s)) return (float)s;
    const double back = s - p, error = (p - (s - back)) + (z - back); /* Knuth's exact sum */
    uint64_t u = aot_bits_of(s);
    if (error != 0 && !(u & 1)) {
        const int away = (error > 0) == (s > 0);
        if (s == 0) return (float)s;
        u = away ? u + 1 : u - 1;
    }
    return (float)of_bits(u);
}

typedef unsigned __int128 wide;

/* x shifted right. The last bit is set when any bit is lost. */
static wide shift_right(wide x, int by)
{
    if (by <= 0) return x;
    if (by >= 128) return x != 0;
    return x >> by | ((x & (((wide)1 << by) - 1)) != 0);
}

static int top_bit(wide x)
{
    const uint64_t high = (uint64_t)(x >> 64);
    return high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)x);
}

/* whole * 2^exponent, rounded once. whole is not 0, and its last bit may stand for lost ones. */
static double round_wide(wide whole, int exponent, uint64_t sign)
{
    int by = top_bit(whole) - 52;
    if (exponent + by < -1074) by = -1074 - exponent;
    if (by > 0) {
        const wide lost = by < 128 ? whole & (((wide)1 << by) - 1) : whole;
        const wide half = by <= 128 ? (wide)1 << (by - 1) : 0;
        whole = by < 128 ? whole >> by : 0;
        if (half && (lost > half || (lost == half && (whole & 1)))) whole++;
        exponent += by;
    }
    uint64_t m = (uint64_t)whole;
    if (m >> 53) {
        m >>= 1;
        exponent++;
    }
    if (exponent > 971 || (m && exponent + top_bit(m) > 1023))
        return of_bits(sign | UINT64_C(0x7FF) << 52);
    return of_bits(aot_bits_of(join(m, exponent)) | sign);
}

double deft_aot_fma(double x, double y, double z);
double deft_aot_fma(double x, double y, double z)
{
    int ex, ey, ez;
    if (is_finite(x) && is_finite(y) && !is_finite(z)) return z + z;
    if (!is_finite(x) || !is_finite(y) || x == 0 || y == 0) return x * y + z;
    if (z == 0) return x * y;
    wide p = (wide)split(x, &ex) * split(y, &ey);
    wide q = split(z, &ez);
    uint64_t sign = (aot_bits_of(x) ^ aot_bits_of(y)) & SIGN;
    const uint64_t sign_z = aot_bits_of(z) & SIGN;
    /* Both get as many zeros below as fit, and then the same unit. */
    int ep = ex + ey;
    const int room_p = 125 - top_bit(p), room_q = 125 - top_bit(q);
    p <<= room_p;
    ep -= room_p;
    q <<= room_q;
    ez -= room_q;
    const int e = ep > ez ? ep : ez;
    p = shift_right(p, e - ep);
    q = shift_right(q, e - ez);
    if (sign == sign_z) return round_wide(p + q, e, sign);
    if (p == q) return 0;
    if (p < q) sign = sign_z;
    return round_wide(p > q ? p - q : q - p, e, sign);
}
