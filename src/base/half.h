/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions between f32 and the bits of IEEE binary16 (f16) or bfloat16 (bf16). Conversion to f32
 * is exact; conversion from f32 rounds to nearest even. The code uses integer arithmetic and one
 * exact subtraction, so the caller's rounding mode and flushing of denormals do not matter. It has
 * no branches, so that loops vectorise. A NaN keeps its sign and the upper bits of its payload. It
 * becomes quiet when it is converted to f16, from f16, or to bf16.
 */
#ifndef DF_BASE_HALF_H
#define DF_BASE_HALF_H

#include "base/compiler.h"

#include <string.h>

DF_INLINE uint32_t df_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

DF_INLINE float df_f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

DF_INLINE float df_f32_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7FFFu;
    /* 2^-14 + rest 2^-24, minus 2^-14: exact, and all intermediate values are normal */
    const float above = df_f32_of_bits(0x38800000u + (rest << 13)) - 0x1p-14f;
    const uint32_t small = df_f32_bits(above) & 0x7FFFFFFFu;
    const uint32_t normal = (rest << 13) + 0x38000000u;
    const uint32_t special = (normal + 0x38000000u) | (rest > 0x7C00u ? 0x400000u : 0);
    const uint32_t large = rest < 0x7C00u ? normal : special;
    const uint32_t is_small = 0u - (uint32_t)(rest < 0x400u); /* a mask: no branch around `above` */
    return df_f32_of_bits((small & is_small) | (large & ~is_small) | sign);
}

DF_INLINE uint16_t df_f16_of_f32(float f)
{
    const uint32_t x = df_f32_bits(f), a = x & 0x7FFFFFFFu, sign = x >> 16 & 0x8000u;
    /* Rounding up may carry into the exponent, up to infinity. The resulting bits are correct. */
    const uint32_t normal = (a + 0xFFFu + (a >> 13 & 1) - 0x38000000u) >> 13;
    /* Below 2^-14, adjacent values differ by 2^-24. From a shift of 25 on, the result is 0. */
    const uint32_t shift = a >> 23 > 101 ? 126 - (a >> 23) : 25;
    const uint32_t m = (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t small =
        (m + (1u << ((shift - 1) & 31)) - 1 + (m >> (shift & 31) & 1)) >> (shift & 31);
    const uint32_t finite = a < 0x38800000u ? small : a < 0x47800000u ? normal : 0x7C00u;
    const uint32_t nan = 0x7E00u | (a >> 13 & 0x3FFu);
    return (uint16_t)((a > 0x7F800000u ? nan : finite) | sign);
}

DF_INLINE float df_f32_of_bf16(uint16_t h)
{
    return df_f32_of_bits((uint32_t)h << 16);
}

DF_INLINE uint16_t df_bf16_of_f32(float f)
{
    const uint32_t x = df_f32_bits(f);
    const uint32_t rounded = (x + 0x7FFFu + (x >> 16 & 1)) >> 16;
    return (uint16_t)((x & 0x7FFFFFFFu) > 0x7F800000u ? x >> 16 | 0x40u : rounded);
}

/* v rounded to odd. If f32 cannot represent v, this is the neighbour whose last bit is 1. Rounding
 * the result again, to a dtype of at most 22 bits of precision, gives the same as rounding v
 * directly (Boldo and Melquiond 2008). */
DF_INLINE float df_f32_odd_of_f64(double v)
{
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    const uint32_t sign = (uint32_t)(b >> 32) & 0x80000000u;
    const int64_t e = (int64_t)(b >> 52 & 0x7FF) - 1023 + 127;
    const uint64_t m = b & ((UINT64_C(1) << 52) - 1);
    const int64_t shift = e > 0 ? 29 : 30 - e;
    const uint64_t all = e > 0 ? m : m | UINT64_C(1) << 52;
    const uint64_t kept = shift > 63 ? 0 : all >> shift;
    const bool lost = shift > 63 ? v != 0 : (kept << shift) != all;
    uint32_t bits = (uint32_t)(e > 0 ? e << 23 : 0) + ((uint32_t)kept | lost);
    if (e >= 255) bits = 0x7F7FFFFFu;
    if (e == 2047 - 1023 + 127) bits = 0x7F800000u | (uint32_t)(m >> 29) | (m != 0 ? 0x400000u : 0);
    return df_f32_of_bits(bits | sign);
}

#endif
