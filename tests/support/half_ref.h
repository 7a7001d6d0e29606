/* SPDX-License-Identifier: Apache-2.0
 *
 * f16 and bf16 by their definition: a value is an integer significand times a power of two, in f64
 * arithmetic, with C's rint for the rounding. Shares nothing with base/half.h.
 */
#ifndef TEST_HALF_REF_H
#define TEST_HALF_REF_H

#include "deft/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct half_form {
    int fraction, bias, special; /* special: the exponent of infinities and NaN */
} half_form;

static inline bool half_is(deft_dtype t)
{
    return t == DEFT_F16 || t == DEFT_BF16;
}

static inline half_form half_form_of(deft_dtype t)
{
    return t == DEFT_F16 ? (half_form){ 10, 15, 31 } : (half_form){ 7, 127, 255 };
}

static inline double half_value(deft_dtype t, uint16_t h)
{
    const half_form f = half_form_of(t);
    const int e = h >> f.fraction & f.special, m = h & ((1 << f.fraction) - 1);
    const double v = e == f.special ? (m ? (double)NAN : (double)INFINITY)
                     : e == 0       ? ldexp(m, 1 - f.bias - f.fraction)
                                    : ldexp(m | 1 << f.fraction, e - f.bias - f.fraction);
    return h & 0x8000 ? -v : v;
}

/* v rounded once, to nearest even; one NaN for all. */
static inline uint16_t half_bits(deft_dtype t, double v)
{
    const half_form f = half_form_of(t);
    const int sign = signbit(v) ? 0x8000 : 0, one = 1 << f.fraction;
    const int infinity = f.special << f.fraction;
    if (isnan(v)) return (uint16_t)(infinity | one >> 1);
    if (isinf(v)) return (uint16_t)(sign | infinity);
    int e = 0;
    (void)frexp(v, &e);
    int unit = (e - 1 > 1 - f.bias ? e - 1 : 1 - f.bias) - f.fraction;
    int q = (int)rint(ldexp(fabs(v), -unit > 4000 ? 4000 : -unit));
    if (q == 2 * one) {
        q = one;
        unit++;
    }
    if (q < one) return (uint16_t)(sign | q);
    const int exponent = unit + f.fraction + f.bias;
    return (uint16_t)(sign |
                      (exponent >= f.special ? infinity : exponent << f.fraction | (q - one)));
}

static inline uint16_t half_bits_i(deft_dtype t, int64_t k)
{
    const uint64_t a = k < 0 ? 0 - (uint64_t)k : (uint64_t)k;
    int shift = 0;
    while (a >> shift >= UINT64_C(4) << half_form_of(t).fraction) shift++;
    const uint64_t q = a >> shift, rest = a - (q << shift); /* q: two bits more than are kept */
    const double v = ldexp((double)(2 * q + (rest != 0)), shift - 1);
    return half_bits(t, k < 0 ? -v : v);
}

static inline uint16_t half_bits_u(deft_dtype t, uint64_t k)
{
    /* one sticky bit below what a double keeps */
    return k <= INT64_MAX ? half_bits_i(t, (int64_t)k)
                          : half_bits(t, ldexp((double)(k >> 12 << 1 | ((k & 4095) != 0)), 11));
}

/* Rounds v to t, whatever dtype that is of f16, bf16, f32 and f64. */
static inline double half_round(deft_dtype t, double v)
{
    if (half_is(t)) return half_value(t, half_bits(t, v));
    return t == DEFT_F32 ? (double)(float)v : v;
}

#endif
