/* SPDX-License-Identifier: Apache-2.0
 *
 * What operations mean for complex numbers (docs/complex.md). Each is recorded as operations on the
 * parts of its operands. A policy of mixed precision (deft_mixed_set) has no effect on them.
 *
 * As in lazy/core/record.h, a failure is recorded in cx; records are then DF_BAD and handles NULL.
 * Operands that are DF_BAD are a failure that is recorded already. All functions need the thread of
 * the context.
 */
#ifndef DF_LAZY_COMPLEX_H
#define DF_LAZY_COMPLEX_H

#include "lazy/core/meet.h"
#include "lazy/complex/parts.h"

/* The parts of an operand: of a complex tensor, of a real one, or of a bare number, which takes
 * dtype t. The caller has entered the operand. */
df_parts df_complex_operand(deft_ctx *cx, deft_tensor *x, deft_dtype t, uintptr_t site);

/* The dtype of the parts in which n operands meet, at least one of which is complex. Bare numbers
 * count as f32. */
deft_dtype df_complex_meet(const deft_ctx *cx, deft_tensor *const *x, size_t n);

/* The result of unary operator op on the complex tensor x, or of powi with exponent attr. The error
 * is DEFT_E_DTYPE when op has no meaning for complex numbers. */
deft_tensor *df_complex_unary(deft_ctx *cx, df_op op, uint32_t attr, deft_tensor *x,
                              uintptr_t site);
/* The result of binary operator op on two operands, of which at least one is complex. */
deft_tensor *df_complex_binary(deft_ctx *cx, df_op op, df_parts a, df_parts b, uintptr_t site);
/* df_complex_binary for two tensors or bare numbers. */
deft_tensor *df_complex_binary_of(deft_ctx *cx, df_op op, deft_tensor *a, deft_tensor *b,
                                  uintptr_t site);
/* where(condition, a, b), for a bool record. */
deft_tensor *df_complex_where(deft_ctx *cx, uint32_t condition, deft_tensor *a, deft_tensor *b,
                              uintptr_t site);
/* x in another dtype, which may be real only when it is bool: else DEFT_E_DTYPE. */
deft_tensor *df_complex_cast(deft_ctx *cx, df_parts x, deft_dtype to, uintptr_t site);

/* ---- functions of parts, for other composites ---- */

df_parts df_complex_mul(deft_ctx *cx, df_parts a, df_parts b, uintptr_t site); /* functions.c */
/* Whether x is not 0, as a bool record. In functions.c. */
uint32_t df_complex_truth(deft_ctx *cx, df_parts x, uintptr_t site);
df_parts df_complex_conj(deft_ctx *cx, df_parts x, uintptr_t site);

/* ---- along axes (reduce.c) ---- */

/* The reduction op over the axes whose bits are set. */
deft_tensor *df_complex_reduce(deft_ctx *cx, df_op op, df_parts x, uint32_t axes, bool keep,
                               uintptr_t site);
/* The running sums or products along an axis. */
deft_tensor *df_complex_running(deft_ctx *cx, df_op op, df_parts x, uint32_t axis, uintptr_t site);

#endif
