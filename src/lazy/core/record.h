/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording: appending records, and the list of records as a whole. Functions that append return
 * the number of the record, or DF_BAD with the error recorded. Operands are record numbers; an
 * operand that is DF_BAD makes the result DF_BAD, so that calls can be nested. `site` is the return
 * address of the public call. All functions need the thread of the context.
 */
#ifndef DF_LAZY_RECORD_H
#define DF_LAZY_RECORD_H

#include "lazy/core/handle.h"

#define DF_BAD UINT32_MAX

/* ---- what tensors and records are ---- */

uint32_t df_node_of_slow(deft_ctx *cx, deft_tensor *t);
/* The record of t in this epoch. When t only has a value, an input record is appended. Recording
 * an operator in a new order asks this for each operand. */
DF_INLINE uint32_t df_node_of(deft_ctx *cx, deft_tensor *t)
{
    return DF_LIKELY(t->epoch == cx->epoch) ? t->node : df_node_of_slow(cx, t);
}
/* The dtype and shape of t. A lost tensor has dtype bool and no axes. */
deft_dtype df_tensor_dtype(const deft_ctx *cx, const deft_tensor *t);
void df_tensor_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out);

DF_INLINE deft_dtype df_dtype_at(const deft_ctx *cx, uint32_t node)
{
    return (deft_dtype)cx->rec.nodes[node].dtype;
}

DF_INLINE const int64_t *df_rec_extents(const df_rec *r, uint32_t node)
{
    return r->ext + r->shape[node];
}
void df_rec_shape(const df_rec *r, uint32_t node, df_shape *out);

/* ---- checks of arguments (check.c) ---- */

/* Returns false, with the error recorded, when t is no dtype. */
bool df_check_any_dtype(deft_ctx *cx, const char *what, deft_dtype t);
/* The same for a call that makes numbers: it refuses storage dtypes, too. */
bool df_check_dtype(deft_ctx *cx, const char *what, deft_dtype t);
/* Checks a shape that the program gave: its rank, no negative extent, no overflow. Returns false
 * with the error recorded. */
bool df_check_shape(deft_ctx *cx, const char *what, const deft_shape *in, df_shape *out);
/* The axis, which may count from the end, as a number in [0, rank), or -1 with the error
 * recorded. */
int df_check_axis(deft_ctx *cx, const char *what, int axis, uint32_t rank);
/* Sets *mask to a bit for each of the axes. Returns false with the error recorded. */
bool df_check_axes(deft_ctx *cx, const char *what, const deft_axes *axes, uint32_t rank,
                   uint32_t *mask);

/* ---- appending (record.c) ---- */

/* Begins a recording call with its first operand t. Returns the context, and sets the record and
 * the shape of t. Returns NULL with the error recorded. */
deft_ctx *df_begin(const char *what, deft_tensor *t, uint32_t *node, df_shape *s, uintptr_t site);
/* Appends a record after checking it against ops.def. `src` holds as many operands as the operator
 * has. `out_shape` may be NULL where the rule of the operator derives the shape: see
 * df_shape_infer. */
uint32_t df_append(deft_ctx *cx, df_op op, deft_dtype t, uint32_t attr, const uint32_t *src,
                   const int64_t *args, uint32_t n_args, const df_shape *out_shape, uintptr_t site);
uint32_t df_map1(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site);
/* Converts both operands to their common dtype first. */
uint32_t df_map2(deft_ctx *cx, df_op op, uint32_t a, uint32_t b, uintptr_t site);
uint32_t df_where(deft_ctx *cx, uint32_t c, uint32_t a, uint32_t b, uintptr_t site);
/* Reduces over the axes whose bits are set in `axes`. */
uint32_t df_reduce(deft_ctx *cx, df_op op, uint32_t a, uint32_t axes, bool keep, uintptr_t site);
/* Casts a to t, or returns a when it has dtype t. */
uint32_t df_to(deft_ctx *cx, uint32_t a, deft_dtype t, uintptr_t site);
uint32_t df_expand_to(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site);
/* The index along `axis`, as an i64 tensor of shape s. */
uint32_t df_iota_node(deft_ctx *cx, const df_shape *s, uint32_t axis, uintptr_t site);
uint32_t df_slice_node(deft_ctx *cx, uint32_t a, const int64_t *start, const int64_t *step,
                       const df_shape *out, uintptr_t site);

uint32_t df_mixed_cast(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site) DF_COLD;
/* Operand a of op in the dtype that the context's policy of mixed precision asks for
 * (deft_mixed_set). */
DF_INLINE uint32_t df_mixed_operand(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site)
{
    return DF_LIKELY(!cx->mixed) ? a : df_mixed_cast(cx, op, a, site);
}

/* The dtype to which operands of dtypes a and b promote in the public call `what`. Returns false
 * with the error recorded when they have none in common. */
bool df_common_dtype(deft_ctx *cx, const char *what, deft_dtype a, deft_dtype b, deft_dtype *out);
/* Record a, of an integer dtype, as indices in i64. What i64 cannot hold becomes an index that no
 * axis has. */
uint32_t df_indices(deft_ctx *cx, uint32_t a, uintptr_t site);

/* The n pieces one after another along axis (join.c). n is at least 1, and no piece is
 * DF_BAD. The caller has checked that their dtypes and their other extents are equal. */
uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site);

/* ---- numbers ---- */

/* The value of the number argument of the public call `what` as bits of dtype t. Returns false
 * with the error recorded when the number does not fit t. */
bool df_number_bits(deft_ctx *cx, const char *what, deft_dtype t, double v, int64_t *bits);
bool df_number_bits_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, int64_t *bits);
bool df_number_bits_u(deft_ctx *cx, const char *what, deft_dtype t, uint64_t v, int64_t *bits);
/* The same as a record without axes. */
uint32_t df_number_f(deft_ctx *cx, const char *what, deft_dtype t, double v, uintptr_t site);
uint32_t df_number_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, uintptr_t site);
uint32_t df_number_u(deft_ctx *cx, const char *what, deft_dtype t, uint64_t v, uintptr_t site);
/* A constant without axes. Its value is part of the trace and not an argument. */
uint32_t df_cst(deft_ctx *cx, deft_dtype t, int32_t value, uintptr_t site);

/* The dtype of the weak handle t that meets no tensor. Its `place` is the dtype of its 64 bits:
 * f64, i64, or u64 for an integer that i64 cannot hold. */
DF_INLINE deft_dtype df_weak_own_dtype(const deft_tensor *t)
{
    return t->place == DEFT_F64 ? DEFT_F32 : (deft_dtype)t->place;
}
/* The dtype that the weak handle t takes beside an operand of dtype `dtype`. Beside integers a
 * fractional number becomes f32; beside bools an integer becomes i64, or u64. */
DF_INLINE deft_dtype df_weak_dtype(const deft_tensor *t, deft_dtype dtype)
{
    if (t->place != DEFT_F64) return dtype == DEFT_BOOL ? df_weak_own_dtype(t) : dtype;
    return df_is_float(dtype) ? dtype : DEFT_F32;
}
/* A record of the weak handle t, in the dtype df_weak_dtype(t, dtype). */
uint32_t df_weak_node(deft_ctx *cx, const deft_tensor *t, deft_dtype dtype);
/* A weak handle for a bare number (number.c). `flags` is 0, DF_HANDLE_CONST or DF_HANDLE_PARAM. */
deft_tensor *df_weak_f(deft_ctx *cx, double value, uint8_t flags);
deft_tensor *df_weak_i(deft_ctx *cx, int64_t value, uint8_t flags);
deft_tensor *df_weak_u(deft_ctx *cx, uint64_t value, uint8_t flags);

/* ---- results ---- */

/* A handle for record `node`. NULL for DF_BAD, or with the error recorded when memory runs out. */
deft_tensor *df_result(deft_ctx *cx, uint32_t node);
/* The same for a record that is a view of the handle `of`. */
deft_tensor *df_result_view(deft_ctx *cx, uint32_t node, deft_tensor *of);
/* A handle for value v, whose reference it takes. NULL when memory runs out. */
deft_tensor *df_tensor_of(deft_ctx *cx, DEFT_OWN df_value *v);

/* ---- the list of records (record_list.c) ---- */

/* Removes all records: a new epoch begins. */
void df_rec_reset(deft_ctx *cx);
/* Removes the records from n on. The other two numbers are the new lengths of args and ext. */
void df_rec_truncate(deft_ctx *cx, uint32_t n, uint32_t n_args, uint32_t n_ext);
/* Gives record `node` the value v, with a reference of its own. */
void df_rec_resolve(deft_ctx *cx, uint32_t node, df_value *v);
/* Drops the reference of a record to *v. */
void df_rec_release(deft_ctx *cx, df_value **v);
/* Frees the memory of r (history.c). */
void df_rec_finish(deft_ctx *cx, df_rec *r);
/* Removes the records that nothing can refer to any more (forget.c). Records that stay get new
 * numbers. */
void df_forget(deft_ctx *cx);
/* Removes the annotations of the records from n on, and those of the step that ends
 * (annotations.c). */
void df_grad_annotations_truncate(deft_ctx *cx, uint32_t n);

#endif
