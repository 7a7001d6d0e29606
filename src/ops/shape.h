/* SPDX-License-Identifier: Apache-2.0
 *
 * The shape and dtype rules of ops.def. Only these functions decide whether a node is well-formed.
 * Recording calls them before it appends a record; the parser and the verifier call them on nodes
 * that exist.
 */
#ifndef DF_OPS_SHAPE_H
#define DF_OPS_SHAPE_H

#include "base/diag.h"
#include "base/half.h"
#include "ops/dtype.h"
#include "ops/op.h"

/* Computes the number of elements. Returns false when 8 bytes per element would overflow an
 * int64_t. This also holds for the product of the other extents when an extent is 0. */
bool df_shape_numel(const df_shape *s, int64_t *out);

/* Whether rank and extents are equal. */
DF_INLINE bool df_shape_equal(const df_shape *a, const df_shape *b)
{
    return a->rank == b->rank && df_same_words(a->dim, b->dim, a->rank);
}

/* Writes "[4,8]" into buf, truncated to n bytes and terminated. Returns buf. */
const char *df_shape_text(const df_shape *s, char *buf, size_t n);
#define DF_SHAPE_TEXT 176 /* bytes that suffice for any shape */

/* Whether a node of op has extents of its own. These are the operators with the rules given,
 * expand, reshape, slice, diagonal and stack. For any other operator, the extents follow from its
 * operands and its attr. */
bool df_shape_takes_extents(df_op op);

/* Computes the shape of the result from the shapes of the operands, and checks attr and arguments.
 * If df_shape_takes_extents(op), *out has the wanted extents on entry, and they are checked. args
 * points to the arguments of the node (slice: start and step of each axis in turn). On failure the
 * sentence starts with the name of the operator, and *out is unchanged. */
deft_status df_shape_infer(df_diag *d, df_op op, uint32_t attr, const int64_t *args,
                           const df_shape *src, uint32_t n_src, df_shape *out);

/* Checks that the dtypes of the operands and of the result obey the rule of op. */
deft_status df_dtype_check(df_diag *d, df_op op, const deft_dtype *src, deft_dtype out);

/* What df_promote returns for two dtypes that have no common one. It is no dtype. */
#define DF_NO_DTYPE ((deft_dtype)DEFT_N_DTYPES)

/* The common dtype of two operands, by the table of the Python array API standard where that has
 * one. The higher of the categories bool, integer, float wins, then the wider dtype. An unsigned
 * integer and a signed one give the narrowest signed integer that can represent both. None can
 * represent u64 (docs/decisions/promotion-of-u64.md). f16 and bf16 give f32. Both must be valid
 * dtypes. */
deft_dtype df_promote(deft_dtype a, deft_dtype b);

/* The dtype to which an operand of op must be cast, when t is the common dtype of all operands:
 *   - floating operators cast bools and integers to f32, wide ones also halves;
 *   - sum, prod, cumsum and cumprod cast unsigned integers to u64, bools and other integers to i64;
 *   - scatter_add and index_add cast halves to f32;
 *   - boolean operators cast everything to bool.
 * Returns DEFT_E_DTYPE with a sentence when op is not defined for t. */
deft_status df_dtype_operand(df_diag *d, df_op op, deft_dtype t, deft_dtype *out);

/* The dtype of the result, when the operand that determines it has dtype `operand`. That is operand
 * 0, or operand 1 of where. All casts of df_dtype_operand must have been done. */
deft_dtype df_dtype_result(df_op op, deft_dtype operand);

/* Conversions of halves, which are given by their bits. t must be a half dtype. Each conversion
 * rounds once, to nearest even. */
DF_INLINE float df_f32_of_half(deft_dtype t, uint16_t bits)
{
    return t == DEFT_F16 ? df_f32_of_f16(bits) : df_f32_of_bf16(bits);
}

DF_INLINE uint16_t df_half_of_f32(deft_dtype t, float v)
{
    return t == DEFT_F16 ? df_f16_of_f32(v) : df_bf16_of_f32(v);
}

DF_INLINE uint16_t df_half_of_f64(deft_dtype t, double v)
{
    return df_half_of_f32(t, df_f32_odd_of_f64(v));
}

/* Beyond 2^53 one sticky bit replaces the low 11 bits, so that the conversion to f64 is exact. */
DF_INLINE uint16_t df_half_of_i64(deft_dtype t, int64_t v)
{
    const int64_t low = v & 2047;
    if (v > (int64_t)1 << 53 || v < -((int64_t)1 << 53)) v = v - low + (low ? 1024 : 0);
    return df_half_of_f64(t, (double)v);
}

DF_INLINE uint16_t df_half_of_u64(deft_dtype t, uint64_t v)
{
    const uint64_t low = v & 2047;
    if (v > (uint64_t)1 << 53) v = v - low + (low ? 1024 : 0);
    return df_half_of_f64(t, (double)v);
}

/* Whether a half dtype t can represent v, which must not be NaN. True for every other dtype. */
DF_INLINE bool df_half_holds(deft_dtype t, float v)
{
    return !df_is_half(t) || df_f32_bits(df_f32_of_half(t, df_half_of_f32(t, v))) == df_f32_bits(v);
}

/* The float dtype of arithmetic on values of dtype t: f64 for f64, else f32. */
DF_INLINE deft_dtype df_arithmetic_dtype(deft_dtype t)
{
    return t == DEFT_F64 ? DEFT_F64 : DEFT_F32;
}

#endif
