/* SPDX-License-Identifier: Apache-2.0
 *
 * The public elementwise functions. Each first compares with the record in the history
 * (history.h). Then comes a fast path: equal dtypes that the op takes without a cast, and
 * equal shapes or a 0-d operand. Everything else is done by df_map1 and df_map2.
 */
#include "lazy/core/recorder.h"
#include "lazy/core/append.h"
#include "lazy/core/meet.h"
#include "lazy/complex/complex.h"

#include <math.h>
#include <string.h>

/* The record of a C number that the caller passed to an operation. */
static uint32_t operand_f(deft_ctx *cx, const char *what, deft_dtype t, double v, uintptr_t site)
{
    if (df_recording_freezes(cx)) return df_recording_refuses(cx, what, v, site);
    return df_number_f(cx, what, t, v, site);
}

static uint32_t operand_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, uintptr_t site)
{
    if (df_recording_freezes(cx)) return df_recording_refuses(cx, what, (double)v, site);
    return df_number_i(cx, what, t, v, site);
}

/* The context of t when t needs no further checks: it is usable and has a record of this
 * epoch. Else NULL. */
DF_INLINE deft_ctx *plain(const deft_tensor *t)
{
    if (DF_UNLIKELY(!t)) return NULL;
    const df_slab *const s = df_slab_of(t);
    const bool ok = s->magic == DF_SLAB_MAGIC && df_usable(t, s) && t->epoch == s->cx->epoch;
    return DF_LIKELY(ok) ? s->cx : NULL;
}

/* Whether op rounds to integers, which the elements of dtype t are. */
static bool rounds_nothing(df_op op, deft_dtype t)
{
    return df_is_int(t) &&
           (op == DF_OP_floor || op == DF_OP_ceil || op == DF_OP_trunc || op == DF_OP_round);
}

static deft_tensor *unary(df_op op, deft_tensor *x, uintptr_t site)
{
    deft_ctx *const same = plain(x);
    if (DF_LIKELY(same != NULL)) {
        const df_rec *const r = &same->rec;
        if (DF_LIKELY(r->n < r->same && r->nodes[r->n].op == op &&
                      r->nodes[r->n].src[0].i == x->node && !same->mixed))
            return df_handle_new_near(same, df_record_again(same, site), x);
    }
    deft_ctx *const cx = df_enter_faced(df_op_infos[op].name, 1, x, site);
    if (!cx) return NULL;
    if (DF_UNLIKELY(!same) && df_face_is_complex(df_face_of(x)))
        return df_complex_unary(cx, op, 0, x, site);
    const uint32_t a = df_node_of(cx, x);
    if (DF_UNLIKELY(a == DF_BAD)) return NULL;
    const df_rec *const r = &cx->rec;
    const df_node *const n = &r->nodes[a];
    if (DF_UNLIKELY(r->n < r->limit || !(cx->direct[op] & (1u << n->dtype)) || cx->mixed ||
                    !df_record_room(cx)))
        return df_result(cx, rounds_nothing(op, df_dtype_at(cx, a)) ? a : df_map1(cx, op, a, site));
    const df_node node = { .op = (uint8_t)op,
                           .dtype = (uint8_t)df_dtype_result(op, df_dtype_at(cx, a)),
                           .rank = cx->rec.nodes[a].rank,
                           .n_src = 1,
                           .src = { { a }, DF_NO_REF, DF_NO_REF } };
    return df_result(cx, df_record_push(cx, node, cx->rec.shape[a], site));
}

/* The operand whose extents the result shares, when no axis is broadcast. DF_BAD when the
 * general rule has to decide. */
DF_INLINE uint32_t common_shape(const df_rec *r, uint32_t a, uint32_t b)
{
    const uint32_t ra = r->nodes[a].rank, rb = r->nodes[b].rank;
    if (rb == 0) return a;
    if (ra == 0) return b;
    if (ra != rb) return DF_BAD;
    if (r->shape[a] == r->shape[b]) return a;
    for (uint32_t i = 0; i < ra; i++)
        if (r->ext[r->shape[a] + i] != r->ext[r->shape[b] + i]) return DF_BAD;
    return a;
}

static deft_tensor *binary_nodes(deft_ctx *cx, df_op op, uint32_t a, uint32_t b, uintptr_t site)
{
    if (DF_UNLIKELY(a == DF_BAD || b == DF_BAD)) return NULL;
    if (DF_UNLIKELY(cx->mixed)) return df_result(cx, df_map2(cx, op, a, b, site));
    if (df_record_is_map(&cx->rec, op, a, b)) return df_result(cx, df_record_again(cx, site));
    const df_node *const na = &cx->rec.nodes[a], *const nb = &cx->rec.nodes[b];
    const uint32_t like = common_shape(&cx->rec, a, b);
    const bool is_direct = cx->rec.n >= cx->rec.limit && na->dtype == nb->dtype &&
                           cx->direct[op] & (1u << na->dtype) && like != DF_BAD;
    if (!is_direct || !df_record_room(cx)) return df_result(cx, df_map2(cx, op, a, b, site));
    const df_rec *const r = &cx->rec;
    const df_node node = { .op = (uint8_t)op,
                           .dtype = (uint8_t)df_dtype_result(op, (deft_dtype)r->nodes[a].dtype),
                           .rank = r->nodes[like].rank,
                           .n_src = 2,
                           .src = { { a }, { b }, DF_NO_REF } };
    return df_result(cx, df_record_push(cx, node, r->shape[like], site));
}

/* The records of the two operands of op. A bare number takes the dtype of the other
 * operand. */
static bool operands(deft_ctx *cx, df_op op, deft_tensor *a, deft_tensor *b, uint32_t *na,
                     uint32_t *nb, uintptr_t site)
{
    const char *const what = df_op_infos[op].name;
    if (DF_UNLIKELY((a->flags | b->flags) & DF_HANDLE_WEAK)) {
        const df_meeting m = { .what = what, .first = 1, .op = op, .site = site };
        uint32_t node[2];
        if (!df_meet(cx, &m, (deft_tensor *const[]){ a, b }, 2, node, NULL)) return false;
        *na = node[0];
        *nb = node[1];
        return true;
    }
    *na = df_node_of(cx, a);
    *nb = df_node_of(cx, b);
    return *na != DF_BAD && *nb != DF_BAD;
}

/* A record of whether x is not 0. A bare number keeps all its bits. */
static uint32_t truth_of(deft_ctx *cx, deft_tensor *x, uintptr_t site)
{
    const bool is_number = x->flags & DF_HANDLE_WEAK;
    if (df_face_of(x)) return df_complex_truth(cx, df_complex_operand(cx, x, DEFT_F32, site), site);
    return df_to(cx, is_number ? df_number_exact(cx, x) : df_node_of(cx, x), DEFT_BOOL, site);
}

/* The context of two operands, either of which may be NULL after an earlier error. */
static deft_ctx *enter_two(const char *what, const deft_tensor *a, const deft_tensor *b,
                           uintptr_t site)
{
    if (DF_LIKELY(a != NULL)) return df_enter_faced(what, 1, a, site);
    deft_ctx *const cx = df_enter_faced(what, 2, b, site);
    if (cx && cx->pending == DEFT_OK) df_error(cx, DEFT_E_ARG, "%s: argument 1 is NULL", what);
    return NULL;
}

static deft_tensor *binary(df_op op, deft_tensor *a, deft_tensor *b, uintptr_t site)
{
    const char *const what = df_op_infos[op].name;
    deft_ctx *const same = plain(a);
    const bool are_plain = DF_LIKELY(same != NULL) && plain(b) == same;
    if (DF_LIKELY(are_plain && df_record_is_map(&same->rec, op, a->node, b->node) && !same->mixed))
        return df_handle_new_near(same, df_record_again(same, site), a);
    deft_ctx *const cx = enter_two(what, a, b, site);
    uint32_t na, nb;
    if (!cx) return NULL;
    if (are_plain) /* neither needs the checks below */
        return binary_nodes(cx, op, df_node_of(cx, a), df_node_of(cx, b), site);
    if (!df_enter_more_faced(cx, what, 2, b)) return NULL;
    if (DF_UNLIKELY((a->flags | b->flags) >= DF_HANDLE_FACE))
        return df_complex_binary_of(cx, op, a, b, site);
    if (!operands(cx, op, a, b, &na, &nb, site)) return NULL;
    return binary_nodes(cx, op, na, nb, site);
}

/* op on the complex tensor a and a C number; swapped: the number is the first operand. */
static DF_COLD deft_tensor *complex_number(deft_ctx *cx, df_op op, deft_tensor *a, df_literal v,
                                           bool swapped, uintptr_t site)
{
    const char *const what = df_op_infos[op].name;
    const df_parts z = df_complex_operand(cx, a, DEFT_F32, site);
    if (z.re == DF_BAD) return NULL;
    if (op == DF_OP_pow && !swapped && v.is_int && v.i >= 0 && v.i <= 16)
        return df_complex_unary(cx, DF_OP_powi, (uint32_t)v.i, a, site);
    if (df_recording_freezes(cx)) return df_recording_refuses(cx, what, v.f, site), NULL;
    const df_parts x = { df_literal_node(cx, what, df_dtype_at(cx, z.re), v, site), DF_BAD, true };
    return swapped ? df_complex_binary(cx, op, x, z, site) : df_complex_binary(cx, op, z, x, site);
}

/* binary_f and binary_i without the history. */
static DF_NOINLINE deft_tensor *binary_f_slow(df_op op, deft_tensor *a, double v, uintptr_t site)
{
    deft_ctx *const cx = df_enter_faced(df_op_infos[op].name, 1, a, site);
    if (!cx) return NULL;
    if (DF_UNLIKELY(df_face_of(a))) return complex_number(cx, op, a, df_literal_f(v), false, site);
    const uint32_t na = df_mixed_operand(cx, op, df_node_of(cx, a), site);
    if (na == DF_BAD) return NULL;
    const deft_dtype t = df_dtype_at(cx, na);
    /* A double makes f32 of an integer tensor, even a whole one; the _i form keeps
     * integers. */
    const uint32_t nb = operand_f(cx, df_op_infos[op].name, df_is_float(t) ? t : DEFT_F32, v, site);
    return binary_nodes(cx, op, na, nb, site);
}

static DF_NOINLINE deft_tensor *binary_i_slow(df_op op, deft_tensor *a, int64_t v, uintptr_t site)
{
    deft_ctx *const cx = df_enter_faced(df_op_infos[op].name, 1, a, site);
    if (!cx) return NULL;
    if (DF_UNLIKELY(df_face_of(a))) return complex_number(cx, op, a, df_literal_i(v), false, site);
    const uint32_t na = df_mixed_operand(cx, op, df_node_of(cx, a), site);
    if (na == DF_BAD) return NULL;
    const deft_dtype t = df_dtype_at(cx, na);
    /* the exponent is an attribute, not an argument */
    if (op == DF_OP_pow && t != DEFT_BOOL && v >= 0 && v <= 16)
        return df_result(cx, df_append(cx, DF_OP_powi, t, (uint32_t)v, &na, NULL, 0, NULL, site));
    if (op == DF_OP_pow && df_is_int(t) && v < 0)
        return df_error(cx, DEFT_E_RANGE,
                        "pow: %s to the power %lld is no integer: cast to a float first",
                        deft_dtype_name(t), (long long)v);
    const uint32_t nb = operand_i(cx, df_op_infos[op].name, t == DEFT_BOOL ? DEFT_I64 : t, v, site);
    return binary_nodes(cx, op, na, nb, site);
}

/* ---- numbers that are recorded again ----
 *
 * A program that records again meets the same two records at the same positions: the number, and
 * the operation on it. Both are then recorded here. An operand of another dtype would be cast
 * between the two, so where the operation follows its number, both have the operand's dtype. */

/* Whether the history has, at this position, a number of dtype t and then op on a and that
 * number. */
DF_INLINE bool is_map_of_number(const deft_ctx *cx, df_op op, const deft_tensor *a, deft_dtype t)
{
    const df_rec *const r = &cx->rec;
    const df_node *const n = &r->nodes[r->n];
    return r->n + 1 < r->same && n->op == DF_OP_num && n->dtype == t && n[1].op == op &&
           n[1].src[0].i == a->node && n[1].src[1].i == r->n && !cx->mixed && !cx->recording;
}

/* Records both again, with these bits of the number. */
DF_INLINE deft_tensor *again_with_number(deft_ctx *cx, const deft_tensor *a, int64_t bits,
                                         uintptr_t site)
{
    cx->rec.args[cx->rec.n_args++] = bits;
    return df_handle_new_near(cx, df_record_pair_again(cx, site), a);
}

static deft_tensor *binary_f(df_op op, deft_tensor *a, double v, uintptr_t site)
{
    deft_ctx *const cx = plain(a);
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (DF_LIKELY(cx && is_map_of_number(cx, op, a, DEFT_F32) && !isinf(f)))
        return again_with_number(cx, a, bits, site);
    return binary_f_slow(op, a, v, site);
}

static deft_tensor *binary_i(df_op op, deft_tensor *a, int64_t v, uintptr_t site)
{
    deft_ctx *const cx = plain(a);
    const float f = (float)(double)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (DF_LIKELY(cx && op != DF_OP_pow)) { /* which has no number for small exponents */
        if (DF_LIKELY(is_map_of_number(cx, op, a, DEFT_F32)))
            return again_with_number(cx, a, bits, site);
        if (v == (int32_t)v && is_map_of_number(cx, op, a, DEFT_I32))
            return again_with_number(cx, a, (uint32_t)v, site);
    }
    return binary_i_slow(op, a, v, site);
}

/* An integer that i64 cannot hold is used as a bare number. */
static DF_NOINLINE deft_tensor *large(df_op op, bool swaps, deft_tensor *a, uint64_t v,
                                      uintptr_t site)
{
    deft_ctx *const cx = df_enter_faced(df_op_infos[op].name, 1, a, site);
    deft_tensor *const b = cx ? df_weak_u(cx, v, 0) : NULL;
    if (!b) return NULL;
    return swaps ? binary(op, b, a, site) : binary(op, a, b, site);
}

static DF_NOINLINE deft_tensor *binary_u(df_op op, deft_tensor *a, uint64_t v, uintptr_t site)
{
    return DF_LIKELY(v <= INT64_MAX) ? binary_i(op, a, (int64_t)v, site)
                                     : large(op, false, a, v, site);
}

#define DF_UNARY(name)                                                                             \
    deft_tensor *deft_##name(deft_tensor *x)                                                       \
    {                                                                                              \
        return unary(DF_OP_##name, x, (uintptr_t)DF_RETURN_ADDRESS());                             \
    }
DEFT_UNARY_OPS(DF_UNARY)
#undef DF_UNARY

/* gt and ge are lt and le with the operands exchanged; rsub, rdiv and rpow are sub, div and pow.
 * The logical ops are bitwise ops on bools. */
static deft_tensor *swapped(df_op op, deft_tensor *a, deft_tensor *b, uintptr_t site)
{
    return binary(op, b, a, site);
}

static deft_tensor *swapped_number(df_op op, const char *what, deft_tensor *a, bool is_float,
                                   double f, int64_t i, uintptr_t site)
{
    deft_ctx *const cx = df_enter_faced(what, 1, a, site);
    if (!cx) return NULL;
    if (DF_UNLIKELY(df_face_of(a)))
        return complex_number(cx, op, a, is_float ? df_literal_f(f) : df_literal_i(i), true, site);
    const uint32_t na = df_node_of(cx, a);
    if (na == DF_BAD) return NULL;
    const deft_dtype t = df_dtype_at(cx, na);
    const uint32_t nb = is_float ? operand_f(cx, what, df_is_float(t) ? t : DEFT_F32, f, site)
                                 : operand_i(cx, what, t == DEFT_BOOL ? DEFT_I64 : t, i, site);
    return binary_nodes(cx, op, nb, na, site);
}

static deft_tensor *logical(df_op op, const char *what, deft_tensor *a, deft_tensor *b,
                            uintptr_t site)
{
    deft_ctx *const cx = enter_two(what, a, b, site);
    if (!cx || !df_enter_more_faced(cx, what, 2, b)) return NULL;
    const uint32_t na = truth_of(cx, a, site), nb = truth_of(cx, b, site);
    return binary_nodes(cx, op, na, nb, site);
}

static deft_tensor *logical_number(df_op op, const char *what, deft_tensor *a, bool v,
                                   uintptr_t site)
{
    deft_ctx *const cx = df_enter_faced(what, 1, a, site);
    if (!cx) return NULL;
    const uint32_t na = df_node_of(cx, a);
    if (na == DF_BAD) return NULL;
    return binary_nodes(cx, op, truth_of(cx, a, site), operand_i(cx, what, DEFT_BOOL, v, site),
                        site);
}

#define DF_PLAIN(name)                                                                             \
    deft_tensor *deft_##name(deft_tensor *a, deft_tensor *b)                                       \
    {                                                                                              \
        return binary(DF_OP_##name, a, b, DF_SITE);                                                \
    }                                                                                              \
    deft_tensor *deft_##name##_f(deft_tensor *a, double b)                                         \
    {                                                                                              \
        return binary_f(DF_OP_##name, a, b, DF_SITE);                                              \
    }                                                                                              \
    deft_tensor *deft_##name##_i(deft_tensor *a, int64_t b)                                        \
    {                                                                                              \
        return binary_i(DF_OP_##name, a, b, DF_SITE);                                              \
    }                                                                                              \
    deft_tensor *deft_##name##_u(deft_tensor *a, uint64_t b)                                       \
    {                                                                                              \
        return binary_u(DF_OP_##name, a, b, DF_SITE);                                              \
    }
#define DF_SWAPPED(name, op)                                                                       \
    deft_tensor *deft_##name(deft_tensor *a, deft_tensor *b)                                       \
    {                                                                                              \
        return swapped(op, a, b, DF_SITE);                                                         \
    }                                                                                              \
    deft_tensor *deft_##name##_f(deft_tensor *a, double b)                                         \
    {                                                                                              \
        return swapped_number(op, #name, a, true, b, 0, DF_SITE);                                  \
    }                                                                                              \
    deft_tensor *deft_##name##_i(deft_tensor *a, int64_t b)                                        \
    {                                                                                              \
        return swapped_number(op, #name, a, false, 0, b, DF_SITE);                                 \
    }                                                                                              \
    deft_tensor *deft_##name##_u(deft_tensor *a, uint64_t b)                                       \
    {                                                                                              \
        return b <= INT64_MAX ? swapped_number(op, #name, a, false, 0, (int64_t)b, DF_SITE)        \
                              : large(op, true, a, b, DF_SITE);                                    \
    }
#define DF_LOGICAL(name, op)                                                                       \
    deft_tensor *deft_##name(deft_tensor *a, deft_tensor *b)                                       \
    {                                                                                              \
        return logical(op, #name, a, b, DF_SITE);                                                  \
    }                                                                                              \
    deft_tensor *deft_##name##_f(deft_tensor *a, double b)                                         \
    {                                                                                              \
        return logical_number(op, #name, a, b != 0, DF_SITE);                                      \
    }                                                                                              \
    deft_tensor *deft_##name##_i(deft_tensor *a, int64_t b)                                        \
    {                                                                                              \
        return logical_number(op, #name, a, b != 0, DF_SITE);                                      \
    }                                                                                              \
    deft_tensor *deft_##name##_u(deft_tensor *a, uint64_t b)                                       \
    {                                                                                              \
        return logical_number(op, #name, a, b != 0, DF_SITE);                                      \
    }
deft_tensor *deft_polygamma(int order, deft_tensor *x)
{
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_enter("polygamma", 2, x, site);
    if (!cx) return NULL;
    if (order == 0) return unary(DF_OP_digamma, x, site);
    const uint32_t a = df_mixed_operand(cx, DF_OP_polygamma, df_node_of(cx, x), site);
    if (a == DF_BAD) return NULL;
    const deft_dtype own = df_dtype_at(cx, a), t = df_is_float(own) ? own : DEFT_F32;
    const uint32_t src = df_to(cx, a, t, site);
    if (src == DF_BAD) return NULL;
    return df_result(cx,
                     df_append(cx, DF_OP_polygamma, t, (uint32_t)order, &src, NULL, 0, NULL, site));
}

/* include/deft/ops.h is generated from the same table: tools/gen_ops_h. powi is deft_pow_i. */
#define deft_powi deft_pow_i
#define deft_wrapped_sum deft_sum /* matmul records it */
#define DF_DECLARED(name)                                                                          \
    _Static_assert(sizeof(&deft_##name) > 0, #name " is not declared: run tools/gen_ops_h");
#define OP(name, n_src, class, facets) DF_STAMP_##class(name)
#define DF_STAMP_leaf(name)
#define DF_STAMP_unary(name) DF_DECLARED(name)
#define DF_STAMP_binary(name) DF_DECLARED(name) DF_PLAIN(name)
#define DF_STAMP_ternary(name) DF_DECLARED(name)
#define DF_STAMP_reduce(name) DF_DECLARED(name)
#define DF_STAMP_scan(name) DF_DECLARED(name)
#define DF_STAMP_view(name)
#define DF_STAMP_index(name)
#define DF_STAMP_update(name)
#define DF_STAMP_contract(name)
#define DF_STAMP_routine(name)
#define DF_STAMP_control(name)
#include "ops/ops.def"
DF_SWAPPED(gt, DF_OP_lt)
DF_SWAPPED(ge, DF_OP_le)
DF_SWAPPED(rsub, DF_OP_sub)
DF_SWAPPED(rdiv, DF_OP_div)
DF_SWAPPED(rpow, DF_OP_pow)
DF_LOGICAL(logical_and, DF_OP_bitwise_and)
DF_LOGICAL(logical_or, DF_OP_bitwise_or)
DF_LOGICAL(logical_xor, DF_OP_bitwise_xor)
