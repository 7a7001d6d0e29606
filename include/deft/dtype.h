/* SPDX-License-Identifier: Apache-2.0
 *
 * Dtypes: the types of the elements of tensors.
 *
 * A dtype never changes its number, because trace files store the number.
 */
#ifndef DEFT_DTYPE_H
#define DEFT_DTYPE_H

#include "deft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The type of the elements of a tensor. Every operation on halves, DEFT_F16 and DEFT_BF16,
 * computes in f32 and rounds its result once, to nearest, ties to even (docs/halves.md). */
typedef enum deft_dtype {
    DEFT_BOOL = 0,  /**< One byte: 0 or 1. */
    DEFT_U8 = 1,    /**< Unsigned, 8 bits. */
    DEFT_I32 = 2,   /**< Signed, 32 bits. */
    DEFT_I64 = 3,   /**< Signed, 64 bits. */
    DEFT_F32 = 4,   /**< IEEE binary32, the float of C. */
    DEFT_F64 = 5,   /**< IEEE binary64, the double of C. */
    DEFT_F16 = 6,   /**< IEEE binary16, 2 bytes. */
    DEFT_BF16 = 7,  /**< bfloat16, 2 bytes: the upper half of an f32. */
    DEFT_I8 = 8,    /**< Signed, 8 bits. */
    DEFT_I16 = 9,   /**< Signed, 16 bits. */
    DEFT_U16 = 10,  /**< Unsigned, 16 bits. */
    DEFT_U32 = 11,  /**< Unsigned, 32 bits. */
    DEFT_U64 = 12,  /**< Unsigned, 64 bits. */
    DEFT_C64 = 13,  /**< Complex: two f32, the float _Complex of C (docs/complex.md). */
    DEFT_C128 = 14, /**< Complex: two f64, the double _Complex of C. */

    /* Storage dtypes (docs/storage.md): moved, saved and cast, but without arithmetic. */
    DEFT_F8E4M3FN = 15, /**< A float of 8 bits: 4 of exponent, 3 of fraction, no infinity. */
    DEFT_F8E5M2 = 16,   /**< A float of 8 bits: 5 of exponent, 2 of fraction. */
    DEFT_E8M0 = 17,     /**< A power of two from 2^-127 to 2^127, 8 bits: a scale. */
    DEFT_U4 = 18,       /**< Unsigned, 4 bits: two elements of the last axis share a byte. */
    DEFT_I4 = 19        /**< Signed, 4 bits, likewise. */
} deft_dtype;

/** The number of dtypes. */
#define DEFT_N_DTYPES 20

/** The largest rank, the number of axes, of a tensor. Of a complex tensor, and of one of u4
 * or i4, it is one less. */
#define DEFT_MAX_RANK 8

/** The size of one element in bytes; 0 for a number that is no dtype. It is 1 for u4 and i4,
 * although n elements of their last axis take n / 2 bytes, rounded up. Any thread. */
DEFT_API size_t deft_dtype_size(deft_dtype dtype);

/** The name of a dtype, such as "f32" or "bool"; "?" for a number that is no dtype. The text
 * is static. Any thread. */
DEFT_API const char *deft_dtype_name(deft_dtype dtype);

/** The dtype to which operands of dtypes a and b are promoted. docs/promotion.md has the
 * table. u64 and a signed integer have no common dtype. A storage dtype has none with any
 * other. The result is then DEFT_N_DTYPES, which is no dtype. When only one argument is a
 * dtype, the result is that argument. When none is, the result is b. Any thread. */
DEFT_API deft_dtype deft_promote(deft_dtype a, deft_dtype b);

#ifdef __cplusplus
}
#endif
#endif
