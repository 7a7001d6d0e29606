/* SPDX-License-Identifier: Apache-2.0
 *
 * A number that the caller passes becomes the bits of the dtype as which the program uses it.
 */
#ifndef DEFT_AOT_NUMBER_H
#define DEFT_AOT_NUMBER_H

#include <stdint.h>
#include <string.h>

/* What a slot or a parameter becomes. */
enum { AOT_AS_INTEGER, AOT_AS_F64, AOT_AS_F32, AOT_AS_F16, AOT_AS_BF16 };

static inline uint64_t aot_bits_of_double(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* The half next to v, and of two the even one. */
static inline uint64_t aot_bits_of_half(double v, int is_bf16)
{
    const int64_t fraction = is_bf16 ? 7 : 10, least = is_bf16 ? -126 : -14;
    const uint64_t infinite = is_bf16 ? 0x7F80 : 0x7C00, nan = infinite | infinite >> 1;
    const uint64_t bits = aot_bits_of_double(v);
    const int64_t field = (int64_t)(bits >> 52 & 2047);
    const int64_t e = field - 1023 < least ? least : field - 1023;
    const int64_t drop = 52 - fraction + (e - (field ? field - 1023 : -1022));
    const uint64_t sign = bits >> 63 << 15;
    const uint64_t low = bits & ((UINT64_C(1) << 52) - 1), m = low | (uint64_t)(field > 0) << 52;
    if (field == 2047 && low) return nan | sign;
    if (drop > 54) return sign;
    const uint64_t odd = m >> drop & 1, half = UINT64_C(1) << (drop - 1);
    const uint64_t all = ((uint64_t)(e - least) << fraction) + ((m + half - 1 + odd) >> drop);
    return (all < infinite ? all : infinite) | sign;
}

static inline uint64_t aot_bits_of_float(double v, uint32_t as)
{
    const float f = (float)v;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    if (as == AOT_AS_F16 || as == AOT_AS_BF16) return aot_bits_of_half(v, as == AOT_AS_BF16);
    return as == AOT_AS_F32 ? word : aot_bits_of_double(v);
}

/* The low bytes of an integer. */
static inline uint64_t aot_bits_of_integer(uint64_t v, uint32_t bytes)
{
    return bytes == 8 ? v : v & ((UINT64_C(1) << 8 * bytes) - 1);
}

/* given: an int64_t, or with is_integer 0 a double, as bits. `add` is added to an integer that
 * stays one. */
static inline uint64_t aot_bits_of_given(uint64_t given, uint64_t add, uint32_t as, uint32_t bytes,
                                         uint32_t is_integer)
{
    double v;
    memcpy(&v, &given, sizeof v);
    if (as == AOT_AS_INTEGER) return aot_bits_of_integer(given + add, bytes);
    return aot_bits_of_float(is_integer ? (double)(int64_t)given : v, as);
}

#endif
