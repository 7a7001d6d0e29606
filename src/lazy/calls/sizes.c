/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, and results whose size depends on data: four trace ops that the runtime
 * executes as routines (argsort, topk, which, compress), and the records around them. `which`
 * gives positions in a vector, and `compress` elements. Both give 0 where they found no more. So
 * nothing that follows needs the count, which is a separate reduction.
 */
#include "lazy/calls/sizes.h"

#include "lazy/complex/complex.h"

/* ---- sorting ---- */

/* a with axis and the last axis exchanged. */
static uint32_t swap_last(deft_ctx *cx, uint32_t a, uint32_t axis, uint32_t rank, uintptr_t site)
{
    uint32_t perm = 0;
    if (a == DF_BAD || axis == rank - 1) return a;
    for (uint32_t i = 0; i < rank; i++)
        perm |= (i == axis ? rank - 1 : i == rank - 1 ? axis : i) << 4 * i;
    return df_append(cx, DF_OP_permute, df_dtype_at(cx, a), perm, &a, NULL, 0, NULL, site);
}

/* Indices that sort the last axis. */
static uint32_t order(deft_ctx *cx, uint32_t a, bool descending, uintptr_t site)
{
    const uint32_t attr = descending ? DF_ORDER_DESCENDING : 0;
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_argsort, DEFT_I64, attr, &a, NULL, 0, NULL, site);
}

/* The elements of the last axis of a at the indices `at`, with that axis moved back to `axis`. */
static uint32_t elements_at(deft_ctx *cx, uint32_t a, uint32_t at, uint32_t axis, uint32_t rank,
                            uintptr_t site)
{
    if (a == DF_BAD || at == DF_BAD) return DF_BAD;
    const uint32_t src[2] = { a, at };
    const uint32_t out =
        df_append(cx, DF_OP_gather, df_dtype_at(cx, a), rank - 1, src, NULL, 0, NULL, site);
    return swap_last(cx, out, axis, rank, site);
}

static deft_tensor *sorted(const char *what, deft_tensor *t, int axis, bool descending, bool values,
                           uintptr_t site)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin(what, t, &a, &s, site);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, what, axis, s.rank);
    if (at < 0) return NULL;
    const uint32_t last = swap_last(cx, a, (uint32_t)at, s.rank, site);
    const uint32_t out = order(cx, last, descending, site);
    return df_result(cx, values ? elements_at(cx, last, out, (uint32_t)at, s.rank, site)
                                : swap_last(cx, out, (uint32_t)at, s.rank, site));
}

deft_tensor *deft_argsort(deft_tensor *t, int axis, bool descending)
{
    return sorted("argsort", t, axis, descending != 0, false, DF_SITE);
}

deft_tensor *deft_sort(deft_tensor *t, int axis, bool descending)
{
    return sorted("sort", t, axis, descending != 0, true, DF_SITE);
}

/* The elements at m positions of the order of the last axis of `last`, from position `first` on.
 * That axis is moved back to `at`. *indices is set unless it is NULL. */
static uint32_t positions(deft_ctx *cx, uint32_t last, int64_t first, int64_t m, bool descending,
                          uint32_t at, uint32_t *indices, uintptr_t site)
{
    df_shape s;
    if (last == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, last, &s);
    s.dim[s.rank - 1] = m;
    const uint32_t found = df_append(cx, DF_OP_topk, DEFT_I64, descending ? DF_ORDER_DESCENDING : 0,
                                     &last, &first, 1, &s, site);
    const uint32_t values = elements_at(cx, last, found, at, s.rank, site);
    if (indices) *indices = swap_last(cx, found, at, s.rank, site);
    return values;
}

deft_tensor *df_order_part(deft_tensor *t, int axis, int64_t first, int64_t m)
{
    uint32_t a;
    df_shape s;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_begin("topk", t, &a, &s, site);
    if (!cx) return NULL;
    const uint32_t at = (uint32_t)axis, last = swap_last(cx, a, at, s.rank, site);
    return df_result(cx, positions(cx, last, first, m, false, at, NULL, site));
}

deft_tensor *deft_topk(deft_tensor *t, int64_t k, int axis, bool largest, deft_tensor **indices)
{
    uint32_t a;
    df_shape s;
    if (indices) *indices = NULL;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_begin("topk", t, &a, &s, site);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "topk", axis, s.rank);
    if (at < 0) return NULL;
    if (k < 0 || k > s.dim[at])
        return df_error(cx, DEFT_E_RANGE, "topk: %lld of the %lld elements of axis %d",
                        (long long)k, (long long)s.dim[at], at);
    const uint32_t last = swap_last(cx, a, (uint32_t)at, s.rank, site);
    uint32_t moved;
    const uint32_t values = positions(cx, last, 0, k, largest, (uint32_t)at, &moved, site);
    if (values == DF_BAD || moved == DF_BAD) return NULL;
    deft_tensor *const chosen = indices ? df_result(cx, moved) : NULL;
    if (indices && !chosen) return NULL;
    deft_tensor *const out = df_result(cx, values);
    if (out && indices) *indices = chosen;
    return out;
}

/* ---- sizes that depend on data ---- */

bool df_check_room(deft_ctx *cx, const char *what, int64_t max, df_shape *out)
{
    const deft_shape s = { .rank = 1, .dim = { max } };
    if (max >= 0) return df_check_shape(cx, what, &s, out);
    df_error(cx, DEFT_E_RANGE, "%s: room for %lld", what, (long long)max);
    return false;
}

static uint32_t flat(deft_ctx *cx, uint32_t a, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    df_shape s, out = { .rank = 1 };
    df_rec_shape(&cx->rec, a, &s);
    if (s.rank == 1) return a;
    df_shape_numel(&s, &out.dim[0]);
    return df_append(cx, DF_OP_reshape, df_dtype_at(cx, a), 0, &a, NULL, 0, &out, site);
}

/* The number of elements of a that are not 0. */
static uint32_t n_nonzero(deft_ctx *cx, uint32_t a, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_reduce(cx, DF_OP_sum, df_to(cx, a, DEFT_BOOL, site), 1, false, site);
}

/* Returns both results or neither. The values get that face. of: the vector whose elements that are
 * not 0 are counted. */
static deft_tensor *give(deft_ctx *cx, uint32_t node, df_face face, uint32_t of,
                         deft_tensor **count, uintptr_t site)
{
    deft_tensor *const n = count && node != DF_BAD ? df_result(cx, n_nonzero(cx, of, site)) : NULL;
    if (count && !n) return NULL;
    deft_tensor *const t = df_result_faced(cx, node, face);
    if (t && count) *count = n;
    return t;
}

/* Row-major positions as indices of a tensor of shape s, [max, rank]. */
static uint32_t unravel(deft_ctx *cx, uint32_t at, const df_shape *s, int64_t max, uintptr_t site)
{
    const df_shape out = { .rank = 2, .dim = { max, s->rank } }, one = { 2, { max, 1 } };
    uint32_t rest = at, column[DEFT_MAX_RANK];
    if (s->rank == 0) return df_expand_to(cx, df_cst(cx, DEFT_I64, 0, site), &out, site);
    /* Not an unsqueeze: the fuser stores a reshape of a routine's result directly. */
    if (s->rank == 1) return df_append(cx, DF_OP_reshape, DEFT_I64, 0, &rest, NULL, 0, &out, site);
    for (uint32_t i = s->rank; i-- > 1;) {
        const uint32_t by = df_number_i(cx, "nonzero", DEFT_I64, s->dim[i], site);
        const uint32_t quotient = df_map2(cx, DF_OP_floor_div, rest, by, site);
        column[i] = df_map2(cx, DF_OP_sub, rest, df_map2(cx, DF_OP_mul, quotient, by, site), site);
        rest = quotient;
    }
    column[0] = rest;
    uint32_t to = df_append(cx, DF_OP_empty, DEFT_I64, 0, NULL, NULL, 0, &out, site);
    for (uint32_t i = 0; i < s->rank; i++) {
        const int64_t start[2] = { 0, i }, step[2] = { 1, 1 };
        if (column[i] == DF_BAD || to == DF_BAD) return DF_BAD;
        const uint32_t piece =
            df_append(cx, DF_OP_unsqueeze, DEFT_I64, 2, &column[i], NULL, 0, NULL, site);
        const uint32_t place = df_slice_node(cx, to, start, step, &one, site);
        const uint32_t src[3] = { to, piece, place };
        if (piece == DF_BAD || place == DF_BAD) return DF_BAD;
        to = df_append(cx, DF_OP_update, DEFT_I64, 0, src, NULL, 0, NULL, site);
    }
    return to;
}

deft_tensor *deft_nonzero(deft_tensor *t, int64_t max, deft_tensor **count)
{
    uint32_t a;
    df_shape s, room;
    if (count) *count = NULL;
    deft_ctx *const cx = df_begin_faced("nonzero", t, &a, &s, DF_SITE);
    if (!cx || !df_check_room(cx, "nonzero", max, &room)) return NULL;
    const uintptr_t site = DF_SITE;
    if (df_face_of(t)) a = df_complex_truth(cx, df_parts_of(cx, a, site), site);
    const uint32_t v = flat(cx, a, site);
    if (v == DF_BAD) return NULL;
    const uint32_t at =
        df_append(cx, DF_OP_which, DEFT_I64, DF_WHICH_ZEROS, &v, NULL, 0, &room, site);
    if (at == DF_BAD) return NULL;
    return give(cx, unravel(cx, at, &s, max, site), 0, v, count, site);
}

/* The elements of a where vector m is not 0. */
static uint32_t pick(deft_ctx *cx, uint32_t a, uint32_t m, const df_shape *room, uintptr_t site)
{
    const uint32_t src[2] = { flat(cx, a, site), m };
    if (src[0] == DF_BAD || m == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_compress, df_dtype_at(cx, a), 0, src, NULL, 0, room, site);
}

deft_tensor *deft_compress(deft_tensor *t, deft_tensor *mask, int64_t max, deft_tensor **count)
{
    uint32_t a;
    df_shape s, room, shape;
    if (count) *count = NULL;
    deft_ctx *const cx = df_begin_faced("compress", t, &a, &s, DF_SITE);
    if (!cx || !df_enter_more(cx, "compress", 2, mask)) return NULL;
    uint32_t m = df_node_of(cx, mask);
    if (m == DF_BAD || !df_check_room(cx, "compress", max, &room)) return NULL;
    if (df_dtype_at(cx, m) != DEFT_BOOL)
        return df_error(cx, DEFT_E_DTYPE, "compress: the mask is %s, not bool",
                        deft_dtype_name(df_dtype_at(cx, m)));
    const uintptr_t site = DF_SITE;
    df_rec_shape(&cx->rec, m, &shape);
    if (!df_shape_equal(&s, &shape)) m = df_expand_to(cx, m, &s, site);
    m = flat(cx, m, site);
    if (!df_face_of(t)) return give(cx, pick(cx, a, m, &room, site), 0, m, count, site);
    const df_parts z = df_parts_of(cx, a, site);
    const df_parts picked = { pick(cx, z.re, m, &room, site), pick(cx, z.im, m, &room, site),
                              false };
    return give(cx, df_parts_join(cx, picked, site), df_face_of(t), m, count, site);
}
