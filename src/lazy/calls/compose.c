/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that are recorded as several records: reductions over lists of axes,
 * indexing, products, normalizations, losses. join.c has those that join and move. None
 * needs support of a back end.
 *
 * 16-bit floats ("halves") are cast to f32 at the start and rounded at the end, so that a
 * composite rounds once, like any other operator. The numbers in a composite are f32.
 * Operations that only move, select or compare keep the dtype.
 */
#include "lazy/calls/compose.h"
#include "lazy/calls/whole_product.h"
#include "lazy/codes/codes.h"
#include "lazy/complex/complex.h"
#include "lazy/core/meet.h"

#include "deft/layers.h"

#include <string.h>

uint32_t df_operand(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t)
{
    return df_enter_more(cx, what, which, t) ? df_node_of(cx, t) : DF_BAD;
}

/* Casts a record to the float dtype in which composites compute. */
static uint32_t as_float(deft_ctx *cx, uint32_t node, uintptr_t site)
{
    if (node == DF_BAD) return DF_BAD;
    return df_to(cx, node, df_arithmetic_dtype(df_dtype_at(cx, node)), site);
}

/* Casts halves to f32. Other records stay, floats or not. */
static uint32_t lifted(deft_ctx *cx, uint32_t node, uintptr_t site)
{
    if (node == DF_BAD || !df_is_half(df_dtype_at(cx, node))) return node;
    return df_to(cx, node, DEFT_F32, site);
}

/* The result of a composite whose operands promote to t: rounded to t when t is a half. */
static deft_tensor *composite_result(deft_ctx *cx, uint32_t node, deft_dtype t, uintptr_t site)
{
    return df_result(cx, df_is_half(t) ? df_to(cx, node, t, site) : node);
}

/* The same for an operation that is `high` (MIXED in ops.def): under a policy the result
 * keeps its dtype. */
static deft_tensor *high(deft_ctx *cx, uint32_t node, deft_dtype t, uintptr_t site)
{
    return cx->mixed ? df_result(cx, node) : composite_result(cx, node, t, site);
}

/* ---- elementwise with other arguments ---- */

/* The record of t for a conversion: a bare number keeps all its bits. */
static uint32_t all_bits(deft_ctx *cx, deft_tensor *t)
{
    return t->flags & DF_HANDLE_WEAK ? df_number_exact(cx, t) : df_node_of(cx, t);
}

deft_tensor *deft_cast(deft_tensor *t, deft_dtype dtype)
{
    deft_ctx *const cx = df_enter_of("cast", 1, t, DF_ALL_FACES, DF_SITE);
    if (!cx) return NULL;
    if (!df_check_any_dtype(cx, "cast", dtype)) return NULL;
    if (df_face_is_stored(df_face_of(t)) || df_is_stored(dtype))
        return df_cast_stored(cx, t, all_bits(cx, t), dtype, DF_SITE);
    if (df_face_of(t) || df_is_complex(dtype))
        return df_complex_cast(cx, df_complex_operand(cx, t, df_record_dtype(dtype), DF_SITE),
                               dtype, DF_SITE);
    return df_result(cx, df_to(cx, all_bits(cx, t), dtype, DF_SITE));
}

static uint32_t truth_of_complex(deft_ctx *cx, deft_tensor *t, uintptr_t site)
{
    return df_complex_truth(cx, df_complex_operand(cx, t, DEFT_F32, site), site);
}

deft_tensor *deft_where(deft_tensor *condition, deft_tensor *a, deft_tensor *b)
{
    uint32_t node[2];
    deft_ctx *const cx = df_enter_faced("where", 1, condition, DF_SITE);
    const df_meeting m = { .what = "where", .first = 2, .op = DF_OP_where, .site = DF_SITE };
    if (!cx || !df_enter_more_faced(cx, "where", 2, a) || !df_enter_more_faced(cx, "where", 3, b))
        return NULL;
    const uint32_t c =
        df_face_of(condition) ? truth_of_complex(cx, condition, m.site) : all_bits(cx, condition);
    if (df_face_of(a) || df_face_of(b)) return df_complex_where(cx, c, a, b, m.site);
    if (!df_meet(cx, &m, (deft_tensor *const[]){ a, b }, 2, node, NULL)) return NULL;
    return df_result(cx, df_where(cx, c, node[0], node[1], m.site));
}

deft_tensor *deft_fma(deft_tensor *a, deft_tensor *b, deft_tensor *c)
{
    uint32_t src[3];
    deft_dtype t;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_enter("fma", 1, a, site);
    const df_meeting m = { .what = "fma", .first = 1, .op = DF_OP_fma, .site = site };
    if (!cx || !df_meet(cx, &m, (deft_tensor *const[]){ a, b, c }, 3, src, &t)) return NULL;
    if (!df_is_float(t)) t = DEFT_F32;
    for (int i = 0; i < 3; i++)
        if ((src[i] = df_to(cx, src[i], t, site)) == DF_BAD) return NULL;
    return df_result(cx, df_append(cx, DF_OP_fma, t, 0, src, NULL, 0, NULL, site));
}

static deft_tensor *clamp(deft_tensor *t, df_literal low, df_literal high, uintptr_t site)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("clamp", t, &a, &s, site);
    if (!cx) return NULL;
    const deft_dtype d = df_dtype_at(cx, a);
    a = df_map2(cx, DF_OP_maximum, a, df_literal_node(cx, "clamp", d, low, site), site);
    a = df_map2(cx, DF_OP_minimum, a, df_literal_node(cx, "clamp", d, high, site), site);
    return df_result(cx, a);
}

deft_tensor *deft_clamp(deft_tensor *t, double low, double high)
{
    return clamp(t, df_literal_f(low), df_literal_f(high), DF_SITE);
}

deft_tensor *deft_clamp_i(deft_tensor *t, int64_t low, int64_t high)
{
    return clamp(t, df_literal_i(low), df_literal_i(high), DF_SITE);
}

deft_tensor *deft_clamp_u(deft_tensor *t, uint64_t low, uint64_t high)
{
    return clamp(t, df_literal_u(low), df_literal_u(high), DF_SITE);
}

deft_tensor *deft_clamp_t(deft_tensor *t, deft_tensor *low, deft_tensor *high)
{
    deft_tensor *list[3] = { t };
    uint32_t node[3];
    size_t n = 1;
    deft_ctx *const cx = df_enter("clamp", 1, t, DF_SITE);
    const df_meeting m = { .what = "clamp", .first = 1, .op = DF_OP_maximum, .site = DF_SITE };
    if (low) list[n++] = low;
    if (high) list[n++] = high;
    if (!cx || !df_meet(cx, &m, list, n, node, NULL)) return NULL;
    uint32_t a = node[0];
    if (low) a = df_map2(cx, DF_OP_maximum, a, node[1], m.site);
    if (high) a = df_map2(cx, DF_OP_minimum, a, node[n - 1], m.site);
    return df_result(cx, a);
}

static df_meeting lerp_meeting(uintptr_t site)
{
    return (df_meeting){ .what = "lerp", .first = 1, .op = DF_OP_add, .lifts = true, .site = site };
}

/* a + weight * (b - a). The operands promote to t. */
static deft_tensor *lerp(deft_ctx *cx, uint32_t a, uint32_t b, uint32_t weight, deft_dtype t,
                         uintptr_t site)
{
    a = lifted(cx, a, site);
    const uint32_t way = df_map2(cx, DF_OP_sub, lifted(cx, b, site), a, site);
    const uint32_t by = df_map2(cx, DF_OP_mul, lifted(cx, weight, site), way, site);
    return composite_result(cx, df_map2(cx, DF_OP_add, a, by, site), t, site);
}

deft_tensor *deft_lerp(deft_tensor *a, deft_tensor *b, deft_tensor *weight)
{
    uint32_t node[3];
    deft_dtype t;
    deft_tensor *const list[] = { a, b, weight };
    deft_ctx *const cx = df_enter("lerp", 1, a, DF_SITE);
    const df_meeting m = lerp_meeting(DF_SITE);
    if (!cx || !df_meet(cx, &m, list, 3, node, &t)) return NULL;
    return lerp(cx, node[0], node[1], node[2], t, m.site);
}

/* The records of a and b, which promote to *t. The weight is the C number v, for an
 * error. */
static deft_ctx *begin_lerp(deft_tensor *a, deft_tensor *b, double v, uint32_t node[2],
                            deft_dtype *t, uintptr_t site)
{
    deft_ctx *const cx = df_enter("lerp", 1, a, site);
    const df_meeting m = lerp_meeting(site);
    if (!cx || !df_meet(cx, &m, (deft_tensor *const[]){ a, b }, 2, node, t)) return NULL;
    if (!df_recording_freezes(cx)) return cx;
    df_recording_refuses(cx, "lerp", v, site);
    return NULL;
}

deft_tensor *deft_lerp_f(deft_tensor *a, deft_tensor *b, double weight)
{
    uint32_t node[2];
    deft_dtype t;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_lerp(a, b, weight, node, &t, site);
    if (!cx) return NULL;
    const uint32_t by = df_number_f(cx, "lerp", df_arithmetic_dtype(t), weight, site);
    return lerp(cx, node[0], node[1], by, df_is_float(t) ? t : DEFT_F32, site);
}

static deft_tensor *lerp_whole(deft_tensor *a, deft_tensor *b, df_literal weight, uintptr_t site)
{
    uint32_t node[2];
    deft_dtype t;
    deft_ctx *const cx = begin_lerp(a, b, weight.f, node, &t, site);
    if (!cx) return NULL;
    const deft_dtype as = t == DEFT_BOOL ? DEFT_I64 : df_is_half(t) ? DEFT_F32 : t;
    return lerp(cx, node[0], node[1], df_literal_node(cx, "lerp", as, weight, site), t, site);
}

deft_tensor *deft_lerp_i(deft_tensor *a, deft_tensor *b, int64_t weight)
{
    return lerp_whole(a, b, df_literal_i(weight), DF_SITE);
}

deft_tensor *deft_lerp_u(deft_tensor *a, deft_tensor *b, uint64_t weight)
{
    return lerp_whole(a, b, df_literal_u(weight), DF_SITE);
}

/* ---- reductions ---- */

static deft_tensor *record_reduction(df_op op, deft_tensor *t, const deft_axes *axes, int keep,
                                     uintptr_t site)
{
    uint32_t a, mask;
    df_shape s;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin_faced(what, t, &a, &s, site);
    if (!cx || !df_check_axes(cx, what, axes, s.rank, &mask)) return NULL;
    if (df_face_of(t))
        return df_complex_reduce(cx, op, df_parts_of(cx, a, site), mask, keep != 0, site);
    return df_result(cx, df_reduce(cx, op, a, mask, keep != 0, site));
}

#define DF_REDUCTION(name)                                                                         \
    deft_tensor *deft_##name(deft_tensor *t, deft_axes axes, bool keepdims)                        \
    {                                                                                              \
        return record_reduction(DF_OP_##name, t, &axes, keepdims, DF_SITE);                        \
    }
DF_REDUCTION(sum)
DF_REDUCTION(prod)
DF_REDUCTION(min)
DF_REDUCTION(max)
DF_REDUCTION(any)
DF_REDUCTION(all)
DF_REDUCTION(argmin)
DF_REDUCTION(argmax)
#undef DF_REDUCTION

/* The number of elements along the axes, as a number of dtype t. */
static uint32_t element_count(deft_ctx *cx, uint32_t a, uint32_t mask, deft_dtype t, uintptr_t site)
{
    const df_shape scalar = { .rank = 0 };
    return df_append(cx, DF_OP_count, t, mask, &a, NULL, 0, &scalar, site);
}

static uint32_t mean(deft_ctx *cx, uint32_t a, uint32_t mask, bool keep, uintptr_t site)
{
    a = as_float(cx, a, site);
    if (a == DF_BAD) return DF_BAD;
    const uint32_t n = element_count(cx, a, mask, df_dtype_at(cx, a), site);
    return df_map2(cx, DF_OP_div, df_reduce(cx, DF_OP_sum, a, mask, keep, site), n, site);
}

deft_tensor *deft_mean(deft_tensor *t, deft_axes axes, bool keepdims)
{
    uint32_t a, mask;
    df_shape s;
    deft_ctx *const cx = df_begin_faced("mean", t, &a, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "mean", &axes, s.rank, &mask)) return NULL;
    if (df_face_of(t)) {
        df_parts p = df_parts_of(cx, a, DF_SITE);
        p.re = mean(cx, p.re, mask, keepdims, DF_SITE);
        p.im = mean(cx, p.im, mask, keepdims, DF_SITE);
        return df_parts_result(cx, p, DF_SITE);
    }
    return high(cx, mean(cx, a, mask, keepdims, DF_SITE), df_dtype_at(cx, a), DF_SITE);
}

/* The sum of the squares of x - mean, divided by n - ddof. *centred is x - mean. With at
 * most ddof elements the division is by 0. Its result is infinite, or NaN when elements
 * are equal or missing. */
static uint32_t variance(deft_ctx *cx, uint32_t a, uint32_t mask, bool keep, int ddof,
                         uint32_t *centred, uintptr_t site)
{
    a = as_float(cx, a, site);
    const uint32_t c = df_map2(cx, DF_OP_sub, a, mean(cx, a, mask, true, site), site);
    if (c == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, c);
    uint32_t n = element_count(cx, a, mask, t, site);
    if (ddof) n = df_map2(cx, DF_OP_sub, n, df_cst(cx, t, ddof, site), site);
    if (ddof > 0) n = df_map2(cx, DF_OP_maximum, n, df_cst(cx, t, 0, site), site);
    *centred = c;
    const uint32_t sq = df_map1(cx, DF_OP_square, c, site);
    return df_map2(cx, DF_OP_div, df_reduce(cx, DF_OP_sum, sq, mask, keep, site), n, site);
}

deft_tensor *deft_var(deft_tensor *t, deft_axes axes, bool keepdims, int ddof)
{
    uint32_t a, mask, centred;
    df_shape s;
    deft_ctx *const cx = df_begin_faced("var", t, &a, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "var", &axes, s.rank, &mask)) return NULL;
    if (df_face_of(t)) { /* the mean of |x - mean|^2: the sum of the variances of the parts */
        const df_parts p = df_parts_of(cx, a, DF_SITE);
        const uint32_t re = variance(cx, p.re, mask, keepdims, ddof, &centred, DF_SITE);
        const uint32_t im = variance(cx, p.im, mask, keepdims, ddof, &centred, DF_SITE);
        return df_result(cx, df_map2(cx, DF_OP_add, re, im, DF_SITE));
    }
    const uint32_t v = variance(cx, a, mask, keepdims, ddof, &centred, DF_SITE);
    return high(cx, v, df_dtype_at(cx, a), DF_SITE);
}

static deft_tensor *record_running(df_op op, deft_tensor *t, int axis, uintptr_t site)
{
    uint32_t a;
    df_shape s;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin_faced(what, t, &a, &s, site);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, what, axis, s.rank);
    if (at < 0) return NULL;
    if (df_face_of(t))
        return df_complex_running(cx, op, df_parts_of(cx, a, site), (uint32_t)at, site);
    a = df_mixed_operand(cx, op, a, site);
    if (a == DF_BAD) return NULL;
    deft_dtype as;
    df_diag d; /* written only on failure */
    const deft_status st = df_dtype_operand(&d, op, df_dtype_at(cx, a), &as);
    if (st != DEFT_OK) return df_error(cx, st, "%s", d.text);
    a = df_to(cx, a, as, site);
    return df_result(cx, df_append(cx, op, as, (uint32_t)at, &a, NULL, 0, NULL, site));
}

#define DF_SCAN(name)                                                                              \
    deft_tensor *deft_##name(deft_tensor *t, int axis)                                             \
    {                                                                                              \
        return record_running(DF_OP_##name, t, axis, DF_SITE);                                     \
    }
DF_SCAN(cumsum)
DF_SCAN(cumprod)
DF_SCAN(cummin)
DF_SCAN(cummax)
#undef DF_SCAN

/* ---- indexing ---- */

static deft_tensor *append_index_op(deft_ctx *cx, df_op op, const deft_tensor *t, uint32_t a,
                                    uint32_t i, int axis, uintptr_t site)
{
    const df_face face = df_face_of(t);
    i = df_indices(cx, i, site);
    if (op == DF_OP_gather) i = df_indices_hide(cx, "gather", face, i, site);
    const uint32_t src[2] = { a, i };
    if (i == DF_BAD) return NULL;
    return df_result_faced(
        cx, df_append(cx, op, df_dtype_at(cx, a), (uint32_t)axis, src, NULL, 0, NULL, site), face);
}

static deft_tensor *index_op(df_op op, deft_tensor *t, deft_tensor *indices, int axis,
                             uintptr_t site)
{
    uint32_t a;
    df_shape s;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin_of(what, t, DF_ALL_FACES, &a, &s, site);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, what, axis, s.rank);
    if (df_face_is_packed(df_face_of(t)) && (op == DF_OP_gather || at == (int)s.rank - 1))
        return df_refuse_stored(cx, what, df_face_of(t), DF_SHARED_BYTES);
    const uint32_t i = at < 0 ? DF_BAD : df_operand(cx, what, 2, indices);
    if (i == DF_BAD) return NULL;
    if (!df_is_int(df_dtype_at(cx, i)))
        return df_error(cx, DEFT_E_DTYPE, "%s: indices are %s, not integers", what,
                        deft_dtype_name(df_dtype_at(cx, i)));
    return append_index_op(cx, op, t, a, i, at, site);
}

deft_tensor *deft_take(deft_tensor *t, deft_tensor *indices, int axis)
{
    return index_op(DF_OP_take, t, indices, axis, DF_SITE);
}

deft_tensor *deft_gather(deft_tensor *t, deft_tensor *indices, int axis)
{
    return index_op(DF_OP_gather, t, indices, axis, DF_SITE);
}

deft_tensor *deft_embedding(deft_tensor *table, deft_tensor *indices)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin_of("embedding", table, DF_ALL_FACES, &a, &s, DF_SITE);
    if (!cx) return NULL;
    if (df_face_is_packed(df_face_of(table)) && s.rank == 1)
        return df_refuse_stored(cx, "embedding", df_face_of(table), DF_SHARED_BYTES);
    const uint32_t i = df_operand(cx, "embedding", 2, indices);
    if (i == DF_BAD) return NULL;
    if (s.rank && df_is_int(df_dtype_at(cx, i)))
        return append_index_op(cx, DF_OP_take, table, a, i, 0, DF_SITE);
    char text[DF_SHAPE_TEXT];
    return df_error(cx, DEFT_E_SHAPE,
                    "embedding: the table is %s, indices are %s; it takes a table [entries, ...] "
                    "and integers",
                    df_shape_text(&s, text, sizeof text), deft_dtype_name(df_dtype_at(cx, i)));
}

/* indices[...] == class, a bool record with an axis of n classes appended. */
static uint32_t one_hot(deft_ctx *cx, uint32_t indices, int64_t n, uintptr_t site)
{
    if (indices == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, indices);
    const uint32_t rank = cx->rec.nodes[indices].rank;
    const uint32_t column =
        df_append(cx, DF_OP_unsqueeze, t, 1u << rank, &indices, NULL, 0, NULL, site);
    const df_shape classes = { .rank = 1, .dim = { n } };
    const uint32_t class = df_iota_node(cx, &classes, 0, site);
    return df_map2(cx, DF_OP_eq, df_indices(cx, column, site), class, site);
}

deft_tensor *deft_one_hot(deft_tensor *indices, int64_t n_classes, deft_dtype dtype)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("one_hot", indices, &a, &s, DF_SITE);
    if (!cx) return NULL;
    if (!df_check_dtype(cx, "one_hot", dtype)) return NULL;
    if (!df_is_int(df_dtype_at(cx, a)) || s.rank == DEFT_MAX_RANK || n_classes < 0)
        return df_error(cx, DEFT_E_ARG, "one_hot: %lld classes of %u-d %s indices",
                        (long long)n_classes, s.rank, deft_dtype_name(df_dtype_at(cx, a)));
    return df_result(cx, df_to(cx, one_hot(cx, a, n_classes, DF_SITE), dtype, DF_SITE));
}

/* ---- products ---- */

/* The product of two records of one dtype of numbers, with at least one axis each. Returns DF_BAD
 * with the error recorded. */
static uint32_t real_product(deft_ctx *cx, uint32_t na, uint32_t nb, uintptr_t site)
{
    df_shape sa, sb, want;
    uint32_t gone = 0;
    char ta[DF_SHAPE_TEXT], tb[DF_SHAPE_TEXT];
    if (na == DF_BAD || nb == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, na);
    const bool row = cx->rec.nodes[na].rank == 1, column = cx->rec.nodes[nb].rank == 1;
    if (row) na = df_append(cx, DF_OP_unsqueeze, t, 1, &na, NULL, 0, NULL, site);
    if (column) nb = df_append(cx, DF_OP_unsqueeze, t, 2, &nb, NULL, 0, NULL, site);
    if (na == DF_BAD || nb == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, na, &sa);
    df_rec_shape(&cx->rec, nb, &sb);
    /* Batch axes broadcast. The product record needs equal ones. */
    const uint32_t rank = sa.rank > sb.rank ? sa.rank : sb.rank;
    want.rank = rank;
    for (uint32_t i = 0; i + 2 < rank; i++) {
        const int64_t da = i + sa.rank >= rank ? sa.dim[i + sa.rank - rank] : 1;
        const int64_t db = i + sb.rank >= rank ? sb.dim[i + sb.rank - rank] : 1;
        if (da != db && da != 1 && db != 1) {
            df_error(cx, DEFT_E_SHAPE, "matmul: batch axes differ: a is %s, b is %s",
                     df_shape_text(&sa, ta, sizeof ta), df_shape_text(&sb, tb, sizeof tb));
            return DF_BAD;
        }
        want.dim[i] = da == 1 ? db : da;
    }
    df_shape full = want;
    full.dim[rank - 2] = sa.dim[sa.rank - 2];
    full.dim[rank - 1] = sa.dim[sa.rank - 1];
    if (!df_shape_equal(&full, &sa)) na = df_expand_to(cx, na, &full, site);
    full.dim[rank - 2] = sb.dim[sb.rank - 2];
    full.dim[rank - 1] = sb.dim[sb.rank - 1];
    if (!df_shape_equal(&full, &sb)) nb = df_expand_to(cx, nb, &full, site);
    const uint32_t src[2] = { na, nb };
    const uint32_t out = df_is_int(t) ? df_whole_product(cx, na, nb, site)
                                      : df_append(cx, DF_OP_matmul, t, 0, src, NULL, 0, NULL, site);
    if (row) gone |= 1u << (rank - 2);
    if (column) gone |= 1u << (rank - 1);
    if (!gone || out == DF_BAD) return out;
    return df_append(cx, DF_OP_squeeze, t, gone, &out, NULL, 0, NULL, site);
}

/* Of two complex operands, four real products; of one, two. */
static deft_tensor *complex_product(deft_ctx *cx, deft_tensor *a, deft_tensor *b, uintptr_t site)
{
    const deft_dtype t = df_complex_meet(cx, (deft_tensor *const[]){ a, b }, 2);
    df_parts x[2] = { df_complex_operand(cx, a, t, site), df_complex_operand(cx, b, t, site) };
    for (int i = 0; i < 2; i++) {
        x[i].re = df_to(cx, x[i].re, t, site);
        if (!x[i].is_real) x[i].im = df_to(cx, x[i].im, t, site);
    }
    df_parts out = { real_product(cx, x[0].re, x[1].re, site), DF_BAD, false };
    const uint32_t re_im = x[1].is_real ? DF_BAD : real_product(cx, x[0].re, x[1].im, site);
    const uint32_t im_re = x[0].is_real ? DF_BAD : real_product(cx, x[0].im, x[1].re, site);
    if (x[0].is_real || x[1].is_real) {
        out.im = x[0].is_real ? re_im : im_re;
    } else {
        const uint32_t im_im = real_product(cx, x[0].im, x[1].im, site);
        out.re = df_map2(cx, DF_OP_sub, out.re, im_im, site);
        out.im = df_map2(cx, DF_OP_add, re_im, im_re, site);
    }
    return df_parts_result(cx, out, site);
}

deft_tensor *deft_matmul(deft_tensor *a, deft_tensor *b)
{
    uint32_t na;
    df_shape sa, sb;
    deft_ctx *const cx = df_begin_faced("matmul", a, &na, &sa, DF_SITE);
    if (!cx || !df_enter_more_faced(cx, "matmul", 2, b)) return NULL;
    const uintptr_t site = DF_SITE;
    uint32_t nb = df_node_of(cx, b);
    if (nb == DF_BAD) return NULL;
    df_shown_shape(cx, b, &sb);
    char ta[DF_SHAPE_TEXT], tb[DF_SHAPE_TEXT];
    if (!sa.rank || !sb.rank || sa.dim[sa.rank - 1] != sb.dim[sb.rank == 1 ? 0 : sb.rank - 2])
        return df_error(cx, DEFT_E_SHAPE, "matmul: a is %s, b is %s",
                        df_shape_text(&sa, ta, sizeof ta), df_shape_text(&sb, tb, sizeof tb));
    if (df_face_of(a) || df_face_of(b)) return complex_product(cx, a, b, site);
    na = df_mixed_operand(cx, DF_OP_matmul, na, site);
    nb = df_mixed_operand(cx, DF_OP_matmul, nb, site);
    if (na == DF_BAD || nb == DF_BAD) return NULL;
    deft_dtype t;
    if (!df_common_dtype(cx, "matmul", df_dtype_at(cx, na), df_dtype_at(cx, nb), &t)) return NULL;
    if (t == DEFT_BOOL) t = DEFT_F32;
    const deft_dtype as = df_is_int(t) ? t : df_arithmetic_dtype(t);
    na = df_to(cx, na, as, site);
    nb = df_to(cx, nb, as, site);
    return composite_result(cx, real_product(cx, na, nb, site), t, site);
}

/* ---- normalizations and losses ---- */

/* x - max(x) along the axes, which keeps exp in range. Axes without elements have no
 * maximum and need none. */
static uint32_t shifted(deft_ctx *cx, uint32_t a, uint32_t mask, uintptr_t site)
{
    df_shape s;
    a = as_float(cx, a, site);
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, a, &s);
    for (uint32_t i = 0; i < s.rank; i++)
        if (mask >> i & 1u && s.dim[i] == 0) return a;
    return df_map2(cx, DF_OP_sub, a, df_reduce(cx, DF_OP_max, a, mask, true, site), site);
}

static uint32_t log_softmax(deft_ctx *cx, uint32_t a, uint32_t mask, uintptr_t site)
{
    const uint32_t x = shifted(cx, a, mask, site);
    const uint32_t s = df_reduce(cx, DF_OP_sum, df_map1(cx, DF_OP_exp, x, site), mask, true, site);
    return df_map2(cx, DF_OP_sub, x, df_map1(cx, DF_OP_log, s, site), site);
}

deft_tensor *deft_softmax(deft_tensor *t, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("softmax", t, &a, &s, DF_SITE);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "softmax", axis, s.rank);
    if (at < 0) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t e = df_map1(cx, DF_OP_exp, shifted(cx, a, 1u << at, site), site);
    const uint32_t sum = df_reduce(cx, DF_OP_sum, e, 1u << at, true, site);
    return high(cx, df_map2(cx, DF_OP_div, e, sum, site), df_dtype_at(cx, a), site);
}

deft_tensor *deft_log_softmax(deft_tensor *t, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("log_softmax", t, &a, &s, DF_SITE);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "log_softmax", axis, s.rank);
    if (at < 0) return NULL;
    return high(cx, log_softmax(cx, a, 1u << at, DF_SITE), df_dtype_at(cx, a), DF_SITE);
}

/* The mask of the last n_axes axes, over which a norm goes. 0 with the error recorded. */
static uint32_t last_axes(deft_ctx *cx, const char *what, uint32_t n_axes, uint32_t rank)
{
    if (n_axes > 0 && n_axes <= rank) return ((1u << n_axes) - 1) << (rank - n_axes);
    df_error(cx, DEFT_E_RANGE, "%s: over %u of %u axes", what, n_axes, rank);
    return 0;
}

/* The operands of a norm, their dtype, the shape of x, and the mask of its axes. */
typedef struct norm {
    const char *what;
    uint32_t node[3]; /* x, gain, bias; DF_NONE: not given */
    deft_dtype met;
    df_shape s;
    uint32_t mask;
} norm;

/* The operands of a norm; gain and bias may be NULL. */
static deft_ctx *begin_norm(norm *m, const char *what, deft_tensor *t, uint32_t n_axes,
                            deft_tensor *gain, deft_tensor *bias, uintptr_t site)
{
    deft_tensor *const all[3] = { t, gain, bias };
    deft_tensor *list[3];
    uint32_t node[3];
    size_t n = 0;
    deft_ctx *const cx = df_enter(what, 1, t, site);
    const df_meeting meeting = {
        .what = what, .first = 1, .op = DF_OP_mul, .lifts = true, .site = site
    };
    if (!cx) return NULL;
    for (unsigned i = 0; i < 3; i++)
        if (all[i]) list[n++] = all[i];
    if (!df_meet(cx, &meeting, list, n, node, &m->met)) return NULL;
    m->what = what;
    n = 0;
    for (unsigned i = 0; i < 3; i++) m->node[i] = all[i] ? node[n++] : DF_NONE;
    df_rec_shape(&cx->rec, m->node[0], &m->s);
    m->mask = last_axes(cx, what, n_axes, m->s.rank);
    return m->mask ? cx : NULL;
}

/* a / sqrt(square + eps), times the gain, plus the bias. */
static deft_tensor *normed(deft_ctx *cx, const norm *m, uint32_t a, uint32_t square, double eps,
                           uintptr_t site)
{
    if (square == DF_BAD) return NULL;
    const uint32_t e = df_number_f(cx, m->what, df_dtype_at(cx, square), eps, site);
    const uint32_t d = df_map1(cx, DF_OP_sqrt, df_map2(cx, DF_OP_add, square, e, site), site);
    uint32_t out = df_map2(cx, DF_OP_div, a, d, site);
    if (m->node[1] != DF_NONE)
        out = df_map2(cx, DF_OP_mul, out, lifted(cx, m->node[1], site), site);
    if (m->node[2] != DF_NONE)
        out = df_map2(cx, DF_OP_add, out, lifted(cx, m->node[2], site), site);
    return high(cx, out, m->met, site);
}

deft_tensor *deft_layer_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, deft_tensor *bias,
                             double eps)
{
    norm m;
    uint32_t centred = DF_BAD;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_norm(&m, "layer_norm", t, n_axes, gain, bias, site);
    if (!cx) return NULL;
    const uint32_t v = variance(cx, m.node[0], m.mask, true, 0, &centred, site);
    return normed(cx, &m, centred, v, eps, site);
}

deft_tensor *deft_rms_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, double eps)
{
    norm m;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_norm(&m, "rms_norm", t, n_axes, gain, NULL, site);
    if (!cx) return NULL;
    const uint32_t a = as_float(cx, m.node[0], site);
    const uint32_t square = mean(cx, df_map1(cx, DF_OP_square, a, site), m.mask, true, site);
    return normed(cx, &m, a, square, eps, site);
}

deft_tensor *deft_cross_entropy(deft_tensor *logits, deft_tensor *labels)
{
    uint32_t a;
    df_shape s, sl;
    deft_ctx *const cx = df_begin("cross_entropy", logits, &a, &s, DF_SITE);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t l = df_operand(cx, "cross_entropy", 2, labels);
    if (l == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, l, &sl);
    char ta[DF_SHAPE_TEXT], tb[DF_SHAPE_TEXT];
    if (s.rank != 2 || sl.rank != 1 || sl.dim[0] != s.dim[0] || !df_is_int(df_dtype_at(cx, l)))
        return df_error(cx, DEFT_E_SHAPE,
                        "cross_entropy: logits %s need integer labels [%lld], labels are %s %s",
                        df_shape_text(&s, ta, sizeof ta), (long long)(s.rank ? s.dim[0] : 0),
                        deft_dtype_name(df_dtype_at(cx, l)), df_shape_text(&sl, tb, sizeof tb));
    /* The log-probability of the label as a masked sum, which fuses into the row kernel.
     * A label that is no class makes no element of its row true, so the hits are counted
     * to give NaN there. */
    const uint32_t lp = log_softmax(cx, a, 2, site);
    const uint32_t hit = one_hot(cx, l, s.dim[1], site);
    if (lp == DF_BAD || hit == DF_BAD) return NULL;
    const deft_dtype t = df_dtype_at(cx, lp);
    const uint32_t zero = df_cst(cx, t, 0, site);
    const uint32_t picked =
        df_reduce(cx, DF_OP_sum, df_where(cx, hit, lp, zero, site), 2, false, site);
    const uint32_t found = df_reduce(cx, DF_OP_any, hit, 2, false, site);
    const uint32_t nan = df_map2(cx, DF_OP_div, zero, zero, site);
    const uint32_t row = df_where(cx, found, df_map1(cx, DF_OP_neg, picked, site), nan, site);
    return high(cx, mean(cx, row, 1, false, site), df_dtype_at(cx, a), site);
}
