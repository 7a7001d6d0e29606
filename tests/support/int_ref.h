/* SPDX-License-Identifier: Apache-2.0
 *
 * The integers of every integer dtype and of bool, for tests. Nothing here is taken from the tables
 * of the library.
 */
#ifndef TEST_INT_REF_H
#define TEST_INT_REF_H

#include "base/bits.h"
#include "deft/deft.h"

#include <string.h>

/* The C type of each integer dtype: INT_REF_TYPES(X) is X(dtype, type, its unsigned twin, bits). */
#define INT_REF_TYPES(X)                                                                           \
    X(DEFT_U8, uint8_t, uint8_t, 8)                                                                \
    X(DEFT_I8, int8_t, uint8_t, 8)                                                                 \
    X(DEFT_U16, uint16_t, uint16_t, 16)                                                            \
    X(DEFT_I16, int16_t, uint16_t, 16)                                                             \
    X(DEFT_U32, uint32_t, uint32_t, 32)                                                            \
    X(DEFT_I32, int32_t, uint32_t, 32)                                                             \
    X(DEFT_U64, uint64_t, uint64_t, 64)                                                            \
    X(DEFT_I64, int64_t, uint64_t, 64)

/* The cases of a switch over dtypes that stand for all integer dtypes. */
#define INT_REF_CASES                                                                              \
    case DEFT_U8:                                                                                  \
    case DEFT_I8:                                                                                  \
    case DEFT_U16:                                                                                 \
    case DEFT_I16:                                                                                 \
    case DEFT_U32:                                                                                 \
    case DEFT_I32:                                                                                 \
    case DEFT_U64:                                                                                 \
    case DEFT_I64

/* The bits of an element of an integer dtype; 0 for other dtypes. */
static inline int int_ref_bits(deft_dtype t)
{
#define INT_REF_ROW(dtype, T, U, bits)                                                             \
    if (t == dtype) return bits;
    INT_REF_TYPES(INT_REF_ROW)
#undef INT_REF_ROW
    return 0;
}

static inline bool int_ref_is_signed(deft_dtype t)
{
    return t == DEFT_I8 || t == DEFT_I16 || t == DEFT_I32 || t == DEFT_I64;
}

static inline bool int_ref_is_unsigned(deft_dtype t)
{
    return int_ref_bits(t) && !int_ref_is_signed(t);
}

/* v wrapped to dtype t, an integer or bool. A value of u64 is given by its bits. */
static inline int64_t int_ref_wrap(deft_dtype t, int64_t v)
{
#define INT_REF_ROW(dtype, T, U, bits)                                                             \
    if (t == dtype) return (int64_t)(T)(U)v;
    INT_REF_TYPES(INT_REF_ROW)
#undef INT_REF_ROW
    return v != 0;
}

/* Element i of data, and how it is written. v wraps. */
static inline int64_t int_ref_get(deft_dtype t, const void *data, size_t i)
{
#define INT_REF_ROW(dtype, T, U, bits)                                                             \
    if (t == dtype) {                                                                              \
        T v;                                                                                       \
        memcpy(&v, (const char *)data + i * sizeof v, sizeof v);                                   \
        return (int64_t)v;                                                                         \
    }
    INT_REF_TYPES(INT_REF_ROW)
#undef INT_REF_ROW
    return ((const uint8_t *)data)[i];
}

static inline void int_ref_put(deft_dtype t, void *data, size_t i, int64_t v)
{
    const int64_t wrapped = int_ref_wrap(t, v);
    const size_t size = t == DEFT_BOOL ? 1 : (size_t)int_ref_bits(t) / 8;
    df_bits_store((char *)data + i * size, (uint64_t)wrapped, size);
}

/* v wrapped to dtype t, as the low bits of a word. */
static inline uint64_t int_ref_word(deft_dtype t, int64_t v)
{
    const int bits = t == DEFT_BOOL ? 8 : int_ref_bits(t);
    return (uint64_t)int_ref_wrap(t, v) & (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1);
}

/* Whether a < b in dtype t. */
static inline bool int_ref_less(deft_dtype t, int64_t a, int64_t b)
{
    return t == DEFT_U64 ? (uint64_t)a < (uint64_t)b : a < b;
}

/* The value as a double, rounded once. */
static inline double int_ref_double(deft_dtype t, int64_t v)
{
    return t == DEFT_U64 ? (double)(uint64_t)v : (double)v;
}

static inline float int_ref_float(deft_dtype t, int64_t v)
{
    return t == DEFT_U64 ? (float)(uint64_t)v : (float)v;
}

/* The value of v, which need not fit: truncated and saturated; NaN gives 0. */
static inline int64_t int_ref_of_double(deft_dtype t, double v)
{
#define INT_REF_ROW(dtype, T, U, bits)                                                             \
    if (t == dtype) {                                                                              \
        const bool sign = (T)-1 < (T)1;                                                            \
        const double high =                                                                        \
            sign ? (double)((U)1 << (bits - 1)) : 2.0 * (double)((U)1 << (bits - 1));              \
        const double low = sign ? -high : 0;                                                       \
        const U top = (U)((U)1 << (bits - 1));                                                     \
        if (v != v) return 0;                                                                      \
        if (v >= high) return (int64_t)(T)(sign ? (U)(top - 1) : (U)-1);                           \
        if (v < low) return (int64_t)(T)(sign ? top : (U)0);                                       \
        return (int64_t)(T)v;                                                                      \
    }
    INT_REF_TYPES(INT_REF_ROW)
#undef INT_REF_ROW
    return v != 0;
}

#endif
