/* SPDX-License-Identifier: Apache-2.0
 *
 * Views, and the properties of a tensor. A view records an index map, never a copy. Its
 * handle remembers which tensor it is a view of, so that it can be assigned through. A
 * kept view becomes a tensor of its own.
 */
#include "lazy/complex/complex.h"
#include "lazy/core/meet.h"
#include "lazy/core/recorder.h"
#include "lazy/calls/views.h"

#include <string.h>

/* ---- properties of a tensor ---- */

deft_dtype deft_dtype_of(const deft_tensor *t)
{
    deft_ctx *const cx = df_look(t);
    return cx ? df_shown_dtype(cx, t) : DEFT_BOOL;
}

deft_shape deft_shape_get(const deft_tensor *t)
{
    deft_shape out = { 0 };
    deft_ctx *const cx = df_look(t);
    if (!cx) return out;
    df_shape s;
    df_shown_shape(cx, t, &s);
    out.rank = s.rank;
    memcpy(out.dim, s.dim, s.rank * sizeof *s.dim);
    return out;
}

uint32_t deft_rank(const deft_tensor *t)
{
    return deft_shape_get(t).rank;
}

int64_t deft_dim(const deft_tensor *t, int axis)
{
    const deft_shape s = deft_shape_get(t);
    if (axis < 0) axis += (int)s.rank;
    return axis < 0 || axis >= (int)s.rank ? -1 : s.dim[axis];
}

int64_t deft_numel(const deft_tensor *t)
{
    const deft_shape s = deft_shape_get(t);
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

deft_ctx *deft_ctx_of(const deft_tensor *t)
{
    return df_look(t);
}

/* ---- axes ---- */

static uint32_t view_record(deft_ctx *cx, df_op op, uint32_t node, uint32_t attr,
                            const int64_t *args, uint32_t n_args, const df_shape *out,
                            uintptr_t site)
{
    return df_append(cx, op, (deft_dtype)cx->rec.nodes[node].dtype, attr, &node, args, n_args, out,
                     site);
}

/* Makes the arguments and the shape of a view of elements, two of which share a byte, those of a
 * view of the bytes. n is the extent of the last axis before. Returns false when the view would
 * divide a byte, or move the last axis. */
static bool view_bytes(df_op op, uint32_t rank, int64_t n, uint32_t attr, int64_t *args,
                       df_shape *out)
{
    const uint32_t last = rank - 1;
    if (op == DF_OP_squeeze) return !(attr >> last & 1);
    if (op == DF_OP_unsqueeze) return !(attr >> rank & 1);
    if (op == DF_OP_permute) return (attr >> 4 * last & 15) == last;
    if (out->rank == 0) return false;
    int64_t *const m = &out->dim[out->rank - 1];
    bool fits = *m == n || (op == DF_OP_reshape && n % 2 == 0 && *m % 2 == 0);
    if (op == DF_OP_slice) { /* an odd number of elements ends where the row does */
        int64_t *const from = &args[2 * last];
        fits = *from % 2 == 0 && args[2 * last + 1] == 1 && (*m % 2 == 0 || *from + *m == n);
        *from /= 2;
    }
    *m = *m / 2 + *m % 2;
    return fits;
}

/* A view of t, whose record is `node`. Arguments and shape are for the axes that the program sees:
 * those that it does not see stay the last ones. */
static uint32_t view_of(deft_ctx *cx, df_op op, const deft_tensor *t, uint32_t node, uint32_t attr,
                        const int64_t *args, const df_shape *out, uintptr_t site)
{
    const uint32_t rank = cx->rec.nodes[node].rank;
    const df_face face = df_face_of(t);
    uint32_t n_args = df_op_n_args(op, rank - df_face_axes(face));
    if (!df_face_axes(face) && !df_face_is_packed(face))
        return view_record(cx, op, node, attr, args, n_args, out, site);
    int64_t all[2 * DEFT_MAX_RANK];
    df_shape hidden;
    if (args) memcpy(all, args, n_args * sizeof *args);
    if (df_face_is_packed(face)) {
        df_rec_shape(&cx->rec, node, &hidden);
        df_face_show(face, &hidden);
        const int64_t n = hidden.dim[rank - 1];
        if (out) hidden = *out;
        if (!view_bytes(op, rank, n, attr, all, &hidden))
            return df_refuse_stored(cx, df_op_infos[op].name, face, DF_SHARED_BYTES), DF_BAD;
        return view_record(cx, op, node, attr, all, n_args, out ? &hidden : NULL, site);
    }
    if (op == DF_OP_slice) {
        all[n_args++] = 0;
        all[n_args++] = 1;
    }
    if (op == DF_OP_permute) attr |= (rank - 1) << 4 * (rank - 1);
    if (out) {
        hidden = *out;
        if (!df_face_hide(cx, df_op_infos[op].name, face, &hidden)) return DF_BAD;
    }
    return view_record(cx, op, node, attr, all, n_args, out ? &hidden : NULL, site);
}

/* The handle of a view of `of`. `shape` has its last extent, as the program sees it; NULL: that of
 * `of`. */
static deft_tensor *result_shaped(deft_ctx *cx, uint32_t node, deft_tensor *of,
                                  const df_shape *shape)
{
    df_face face = df_face_of(of);
    if (shape && df_face_is_packed(face)) face = df_face_fitting(df_face_dtype(face), shape);
    return df_wear(df_result_view(cx, node, of), face);
}

static deft_tensor *result_view(deft_ctx *cx, uint32_t node, deft_tensor *of)
{
    return result_shaped(cx, node, of, NULL);
}

/* ---- slices ---- */

/* Whether the bounds of r differ and are in the wrong order, so that r is empty for every
 * extent. When only one bound counts from the end, the answer depends on the extent, and
 * is false unless it is certain. */
static bool is_reversed(const deft_range *r)
{
    const bool is_up = r->step > 0;
    int64_t a = r->start, b = r->stop;
    if (is_up && a == DEFT_END) return b != DEFT_END;
    if (b == DEFT_END) return false;
    if (a == DEFT_END) a = -1;
    if ((a < 0) == (b < 0)) return is_up ? a > b : a < b;
    return is_up ? a < 0 && b == 0 : a >= 0 && b == -1;
}

/* Resolves the range of one axis: start and step as the record has them, and the number
 * of elements. Returns false with the error recorded. */
static bool resolve_range(deft_ctx *cx, const deft_range *r, uint32_t axis, int64_t dim,
                          int64_t *start, int64_t *step, int64_t *count)
{
    const int64_t s = r->step;
    int64_t a = r->start, b = r->stop;
    if (s == 0) {
        if (a == DEFT_END) a = dim - 1;
        const int64_t at = a < 0 ? a + dim : a;
        if (at < 0 || at >= dim) {
            df_error(cx, DEFT_E_RANGE, "slice: index %lld on axis %u of extent %lld", (long long)a,
                     axis, (long long)dim);
            return false;
        }
        *start = at;
        *step = 1;
        *count = 1;
        return true;
    }
    if (s == INT64_MIN) {
        df_error(cx, DEFT_E_RANGE, "slice: step %lld on axis %u", (long long)s, axis);
        return false;
    }
    if (is_reversed(r)) {
        df_error(cx, DEFT_E_RANGE,
                 "slice: [%lld, %lld) by %lld on axis %u holds no element of any tensor: an empty "
                 "range has equal bounds, and DEFT_END goes to the end",
                 (long long)a, (long long)b, (long long)s, axis);
        return false;
    }
    if (a == DEFT_END)
        a = s > 0 ? dim : dim - 1;
    else if (a < 0 && a + dim >= -1)
        a = s < 0 && dim == 0 ? -1 : a + dim;
    if (b == DEFT_END)
        b = s > 0 ? dim : -1;
    else if (b < 0)
        b += dim;
    const bool ok = s > 0 ? a >= 0 && a <= dim && b >= 0 && b <= dim
                          : a >= -1 && a < df_max_i64(dim, 1) && b >= -1 && b < df_max_i64(dim, 1);
    if (!ok) {
        df_error(cx, DEFT_E_RANGE, "slice: [%lld, %lld) by %lld on axis %u of extent %lld",
                 (long long)r->start, (long long)r->stop, (long long)s, axis, (long long)dim);
        return false;
    }
    const int64_t span = s > 0 ? b - a : a - b;
    const int64_t by = s > 0 ? s : -s;
    *count = span > 0 ? (span - 1) / by + 1 : 0;
    *start = *count ? a : 0;
    *step = s;
    return true;
}

deft_tensor *deft_slice_n(deft_tensor *t, size_t n, const deft_range *ranges)
{
    uint32_t node;
    df_shape s;
    deft_ctx *const cx = df_begin_of("slice", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    if (n > s.rank || (n && !ranges))
        return df_error(cx, DEFT_E_RANGE, "slice: %zu ranges for a tensor with %u axes", n, s.rank);
    int64_t args[2 * DEFT_MAX_RANK];
    df_shape out = s;
    uint32_t gone = 0;
    for (uint32_t i = 0; i < s.rank; i++) {
        const deft_range whole = { 0, DEFT_END, 1 };
        const deft_range *const r = i < n ? &ranges[i] : &whole;
        if (!resolve_range(cx, r, i, s.dim[i], &args[2 * i], &args[2 * i + 1], &out.dim[i]))
            return NULL;
        if (r->step == 0) gone |= 1u << i;
    }
    uint32_t r = view_of(cx, DF_OP_slice, t, node, 0, args, &out, site);
    if (gone && r != DF_BAD) r = view_of(cx, DF_OP_squeeze, t, r, gone, NULL, NULL, site);
    return result_shaped(cx, r, t, &out);
}

deft_tensor *deft_flip(deft_tensor *t, deft_axes axes)
{
    uint32_t node, mask;
    df_shape s;
    deft_ctx *const cx = df_begin_of("flip", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "flip", &axes, s.rank, &mask)) return NULL;
    int64_t args[2 * DEFT_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) {
        const bool flip = mask >> i & 1u && s.dim[i] > 0;
        args[2 * i] = flip ? s.dim[i] - 1 : 0;
        args[2 * i + 1] = flip ? -1 : 1;
    }
    return result_view(cx, view_of(cx, DF_OP_slice, t, node, 0, args, &s, DF_SITE), t);
}

deft_status deft_split(deft_tensor *t, const int64_t *sizes, size_t n, int axis, deft_tensor **out)
{
    uint32_t node;
    df_shape s;
    if (!t) return DEFT_E_ARG;
    deft_ctx *const cx = df_begin_of("split", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return DEFT_E_STATE;
    if (!sizes || !out) {
        df_error(cx, DEFT_E_ARG, "split: %s is NULL", out ? "sizes" : "out");
        return cx->pending;
    }
    const int a = df_check_axis(cx, "split", axis, s.rank);
    if (a < 0) return cx->pending;
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (sizes[i] < 0 || !df_add_i64(sum, sizes[i], &sum)) sum = -1, n = 0;
    if (sum != s.dim[a]) {
        df_error(cx, DEFT_E_SHAPE, "split: the sizes add up to %lld, axis %d has %lld",
                 (long long)sum, a, (long long)s.dim[a]);
        return cx->pending;
    }
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t args[2 * DEFT_MAX_RANK] = { 0 };
        for (uint32_t k = 0; k < s.rank; k++) args[2 * k + 1] = 1;
        args[2 * a] = sizes[i] ? at : 0;
        df_shape part = s;
        part.dim[a] = sizes[i];
        const uint32_t r = view_of(cx, DF_OP_slice, t, node, 0, args, &part, DF_SITE);
        if (!(out[i] = result_shaped(cx, r, t, &part))) return cx->pending;
        at += sizes[i];
    }
    return DEFT_OK;
}

/* ---- shapes ---- */

deft_tensor *deft_reshape(deft_tensor *t, deft_shape shape)
{
    uint32_t node;
    df_shape s, out;
    deft_ctx *const cx = df_begin_of("reshape", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    int open = -1;
    int64_t known = 1, n = 1;
    for (uint32_t i = 0; i < shape.rank && i < DEFT_MAX_RANK; i++) {
        if (shape.dim[i] != -1) {
            if (!df_mul_i64(known, df_max_i64(shape.dim[i], 0), &known)) known = 0;
        } else if (open >= 0) {
            return df_error(cx, DEFT_E_SHAPE, "reshape: two extents are -1");
        } else {
            open = (int)i;
        }
    }
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    if (open >= 0) {
        char text[DF_SHAPE_TEXT];
        if (known == 0 || n % known)
            return df_error(cx, DEFT_E_SHAPE, "reshape: %s does not divide by %lld",
                            df_shape_text(&s, text, sizeof text), (long long)known);
        shape.dim[open] = n / known;
    }
    if (!df_check_shape(cx, "reshape", &shape, &out)) return NULL;
    return result_shaped(cx, view_of(cx, DF_OP_reshape, t, node, 0, NULL, &out, DF_SITE), t, &out);
}

deft_tensor *deft_flatten(deft_tensor *t)
{
    uint32_t node;
    df_shape s;
    deft_ctx *const cx = df_begin_of("flatten", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    df_shape out = { .rank = 1, .dim = { 1 } };
    for (uint32_t i = 0; i < s.rank; i++) out.dim[0] *= s.dim[i];
    return result_shaped(cx, view_of(cx, DF_OP_reshape, t, node, 0, NULL, &out, DF_SITE), t, &out);
}

static deft_tensor *permute(deft_ctx *cx, deft_tensor *t, uint32_t node, const uint32_t *order,
                            uint32_t rank, uintptr_t site)
{
    uint32_t attr = 0;
    for (uint32_t i = 0; i < rank; i++) attr |= order[i] << (4 * i);
    return result_view(cx, view_of(cx, DF_OP_permute, t, node, attr, NULL, NULL, site), t);
}

deft_tensor *deft_permute(deft_tensor *t, deft_axes order)
{
    uint32_t node, mask, at[DEFT_MAX_RANK];
    df_shape s;
    deft_ctx *const cx = df_begin_of("permute", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "permute", &order, s.rank, &mask)) return NULL;
    if (order.n != s.rank)
        return df_error(cx, DEFT_E_RANGE, "permute: %u axes named, the tensor has %u", order.n,
                        s.rank);
    for (uint32_t i = 0; i < s.rank; i++)
        at[i] = (uint32_t)(order.at[i] < 0 ? order.at[i] + (int)s.rank : order.at[i]);
    return permute(cx, t, node, at, s.rank, DF_SITE);
}

static deft_tensor *swap_axes(const char *what, deft_tensor *t, int a, int b, uintptr_t site)
{
    uint32_t node, at[DEFT_MAX_RANK];
    df_shape s;
    deft_ctx *const cx = df_begin_of(what, t, DF_ALL_FACES, &node, &s, site);
    if (!cx) return NULL;
    a = df_check_axis(cx, what, a, s.rank);
    b = a < 0 ? -1 : df_check_axis(cx, what, b, s.rank);
    if (b < 0) return NULL;
    for (uint32_t i = 0; i < s.rank; i++) at[i] = i;
    at[a] = (uint32_t)b;
    at[b] = (uint32_t)a;
    return permute(cx, t, node, at, s.rank, site);
}

deft_tensor *deft_transpose(deft_tensor *t, int a, int b)
{
    return swap_axes("transpose", t, a, b, DF_SITE);
}

deft_tensor *deft_t(deft_tensor *t)
{
    return swap_axes("t", t, -2, -1, DF_SITE);
}

deft_tensor *deft_expand(deft_tensor *t, deft_shape shape)
{
    uint32_t node;
    df_shape s, out;
    deft_ctx *const cx = df_begin_of("expand", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    for (uint32_t i = 0; i < shape.rank && i < DEFT_MAX_RANK; i++)
        if (shape.dim[i] == -1 && i + s.rank >= shape.rank)
            shape.dim[i] = s.dim[i + s.rank - shape.rank];
    if (!df_check_shape(cx, "expand", &shape, &out)) return NULL;
    return result_view(cx, view_of(cx, DF_OP_expand, t, node, 0, NULL, &out, DF_SITE), t);
}

deft_tensor *deft_squeeze(deft_tensor *t, deft_axes axes)
{
    uint32_t node, mask = 0;
    df_shape s;
    deft_ctx *const cx = df_begin_of("squeeze", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    if (axes.n == UINT32_MAX) {
        for (uint32_t i = 0; i < s.rank; i++)
            if (s.dim[i] == 1) mask |= 1u << i;
    } else if (!df_check_axes(cx, "squeeze", &axes, s.rank, &mask)) {
        return NULL;
    }
    return result_view(cx, view_of(cx, DF_OP_squeeze, t, node, mask, NULL, NULL, DF_SITE), t);
}

deft_tensor *deft_unsqueeze(deft_tensor *t, int axis)
{
    uint32_t node;
    df_shape s;
    deft_ctx *const cx = df_begin_of("unsqueeze", t, DF_ALL_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    const int a = df_check_axis(cx, "unsqueeze", axis, s.rank + 1);
    if (a < 0) return NULL;
    return result_view(cx, view_of(cx, DF_OP_unsqueeze, t, node, 1u << a, NULL, NULL, DF_SITE), t);
}

deft_tensor *deft_diagonal(deft_tensor *t, int64_t offset, int a, int b)
{
    uint32_t node;
    df_shape s, out = { 0 };
    deft_ctx *const cx = df_begin_of("diagonal", t, DF_WHOLE_FACES, &node, &s, DF_SITE);
    if (!cx) return NULL;
    a = df_check_axis(cx, "diagonal", a, s.rank);
    b = a < 0 ? -1 : df_check_axis(cx, "diagonal", b, s.rank);
    if (b < 0) return NULL;
    if (a == b) return df_error(cx, DEFT_E_RANGE, "diagonal: axis %d is named twice", a);
    for (uint32_t i = 0; i < s.rank; i++)
        if ((int)i != a && (int)i != b) out.dim[out.rank++] = s.dim[i];
    const int64_t rows = offset < 0 ? s.dim[a] + offset : s.dim[a];
    const int64_t columns = offset > 0 ? s.dim[b] - offset : s.dim[b];
    out.dim[out.rank++] = df_max_i64(df_min_i64(rows, columns), 0);
    const uint32_t attr = (uint32_t)a | (uint32_t)b << 4;
    df_shape whole = out;
    if (df_face_axes(df_face_of(t))) {
        whole.dim[whole.rank - 1] = 2;
        whole.dim[whole.rank++] = out.dim[out.rank - 1];
    }
    const uint32_t r = view_record(cx, DF_OP_diagonal, node, attr, &offset, 1, &whole, DF_SITE);
    if (r == DF_BAD || whole.rank == out.rank) return result_view(cx, r, t);
    uint32_t order = 0; /* the diagonal before the hidden axis */
    for (uint32_t i = 0; i < whole.rank; i++)
        order |= (i + 2 < whole.rank ? i : 2 * whole.rank - 3 - i) << 4 * i;
    return result_view(cx, view_record(cx, DF_OP_permute, r, order, NULL, 0, NULL, DF_SITE), t);
}
