/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape and dtype rules of ops.def: the one place that knows what a well-formed record is. The
 * recorder asks before it appends, the parser and the verifier ask afterwards.
 */
#ifndef DF_OPS_SHAPE_H
#define DF_OPS_SHAPE_H

#include "base/diag.h"
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
 * a signed type gives the signed type. */
deft_dtype df_promote(deft_dtype a, deft_dtype b);

/* The dtype an operand of dtype t must be cast to for op, when its operands have met in t: floating
 * ops lift bool and integers to f32; sum, prod and cumsum lift bool and integers to i64; other
 * arith ops refuse bool; boolean ops to bool. DEFT_E_DTYPE with a sentence when the op has no
 * meaning for t. */
deft_status df_dtype_operand(df_diag *d, df_op op, deft_dtype t, deft_dtype *out);

/* The result dtype once the operands have been cast. */
deft_dtype df_dtype_result(df_op op, deft_dtype operand);

DF_INLINE bool df_is_float(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64;
}

DF_INLINE bool df_is_int(deft_dtype t)
{
    return t == DEFT_U8 || t == DEFT_I32 || t == DEFT_I64;
}

#endif
