/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape and dtype rules of ops.def: the one place that knows what a well-formed record is. The
 * recorder asks before it appends, the parser and the verifier ask afterwards.
 */
#ifndef DF_OPS_SHAPE_H
#define DF_OPS_SHAPE_H

#include "base/diag.h"
#include "base/half.h"
#include "ops/dtype.h"
#include "ops/op.h"

/* Number of elements; false on overflow of int64 (also of bytes, at 8 bytes an element). */
bool df_shape_numel(const df_shape *s, int64_t *out);
DF_INLINE bool df_shape_equal(const df_shape *a, const df_shape *b)
{
    return a->rank == b->rank && df_same_words(a->dim, b->dim, a->rank);
}

/* "[4,8]" into buf (cut, always terminated); returns buf. */
const char *df_shape_text(const df_shape *s, char *buf, size_t n);
#define DF_SHAPE_TEXT 176

/* Whether a record of op carries extents of its own: given, expand, reshape, slice, diagonal. Those
 * of every other op follow from its operands'. */
bool df_shape_takes_extents(df_op op);

/* The result shape of op over its operands' shapes. For rules that take extents from the record
 * (given, expand, reshape, slice, diagonal) *out holds the wanted extents on entry and is checked.
 * args: the record's argument slots (slice: start, step per axis). Also refuses attributes without
 * meaning. The message starts with the op's name and names both shapes. */
deft_status df_shape_infer(df_diag *d, df_op op, uint32_t attr, const int64_t *args,
                           const df_shape *src, uint32_t n_src, df_shape *out);

/* Whether the dtypes of a record obey the op's rule. */
deft_status df_dtype_check(df_diag *d, df_op op, const deft_dtype *src, deft_dtype out);

/* Promotion as PyTorch has it for this set: categories bool < integer < float, then width; u8 with
 * a signed type gives the signed type, f16 with bf16 gives f32. */
deft_dtype df_promote(deft_dtype a, deft_dtype b);

/* The dtype an operand of dtype t must be cast to for op, when its operands have met in t: floating
 * ops lift bool and integers to f32; wide ones halves too; sum, prod and cumsum lift bool and
 * integers to i64; other arith ops refuse bool; boolean ops to bool. DEFT_E_DTYPE with a sentence
 * when the op has no meaning for t. */
deft_status df_dtype_operand(df_diag *d, df_op op, deft_dtype t, deft_dtype *out);

/* The result dtype once the operands have been cast. */
deft_dtype df_dtype_result(df_op op, deft_dtype operand);

/* Halves as bits; t is a half dtype. Rounded once, to nearest even. */
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

/* Beyond 2^53 what is lost below bit 11 is kept as one bit, so that the f64 is exact. */
DF_INLINE uint16_t df_half_of_i64(deft_dtype t, int64_t v)
{
    const int64_t low = v & 2047;
    if (v > (int64_t)1 << 53 || v < -((int64_t)1 << 53)) v = v - low + (low ? 1024 : 0);
    return df_half_of_f64(t, (double)v);
}

/* Whether a half dtype t holds v, a number; true for every other dtype. */
DF_INLINE bool df_half_holds(deft_dtype t, float v)
{
    return !df_is_half(t) || df_f32_bits(df_f32_of_half(t, df_half_of_f32(t, v))) == df_f32_bits(v);
}

/* The float dtype that t is calculated in: integers and bools count as f32. */
DF_INLINE deft_dtype df_arithmetic_dtype(deft_dtype t)
{
    return t == DEFT_F64 ? DEFT_F64 : DEFT_F32;
}

#endif
