/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that put tensors, or parts of them, next to each other: joining, padding,
 * rolling, triangles. A result is new memory that updates cover. Pieces that are views of
 * one tensor are read directly.
 */
#include "lazy/calls/compose.h"
#include "lazy/codes/codes.h"
#include "lazy/complex/complex.h"
#include "lazy/core/meet.h"

/* All elements along one axis, before the axes that the program does not see. */
static uint32_t flat(deft_ctx *cx, uint32_t a, df_face face, uintptr_t site)
{
    df_shape s, out = { .rank = 1 };
    df_rec_shape(&cx->rec, a, &s);
    df_face_show(face, &s);
    if (s.rank == 1) return a;
    df_shape_numel(&s, &out.dim[0]);
    if (!df_face_hide(cx, "flatten", face, &out)) return DF_BAD;
    return df_append(cx, DF_OP_reshape, df_dtype_at(cx, a), 0, &a, NULL, 0, &out, site);
}

static deft_tensor *join_list(const char *what, deft_tensor *const *parts, size_t n, int axis,
                              bool stack, uintptr_t site)
{
    if (!parts || !n) return NULL;
    deft_ctx *const cx = df_enter_of(what, 1, parts[0], DF_WHOLE_FACES, site);
    if (!cx) return NULL;
    if (n > 65536) return df_error(cx, DEFT_E_LIMIT, "%s: %zu parts", what, n);
    df_arena_reset(&cx->pass);
    uint32_t *const piece = df_arena_new(&cx->pass, uint32_t, n);
    if (!piece) return df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu parts", what, n);
    const df_meeting m = { .what = what, .first = 1, .op = DF_OP_update, .site = site };
    deft_dtype t;
    df_shape first, s;
    int at = -1;
    df_face face = 0;
    df_faces faces = 1;
    for (size_t i = 0; i < n; i++) {
        if (!df_enter_more_of(cx, what, (unsigned)i + 1, parts[i], DF_WHOLE_FACES)) return NULL;
        faces |= 1u << df_face_of(parts[i]);
    }
    if (faces > 1 ? !df_meet_faces(cx, what, parts, n, faces, piece, &t, &face, site)
                  : !df_meet(cx, &m, parts, n, piece, &t))
        return NULL;
    const bool is_flat = axis == DEFT_FLAT && !stack;
    for (size_t i = 0; i < n; i++) {
        if (is_flat && (piece[i] = flat(cx, piece[i], face, site)) == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, piece[i], &s);
        df_face_show(face, &s);
        if (i == 0) {
            first = s;
            at = is_flat ? 0 : df_check_axis(cx, what, axis, s.rank + (stack ? 1 : 0));
            if (at < 0) return NULL;
        }
        bool fits = s.rank == first.rank;
        for (uint32_t k = 0; fits && k < s.rank; k++)
            fits = s.dim[k] == first.dim[k] || (!stack && (int)k == at);
        char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
        if (!fits)
            return df_error(cx, DEFT_E_SHAPE, "%s: part 0 is %s, part %zu is %s", what,
                            df_shape_text(&first, a, sizeof a), i, df_shape_text(&s, b, sizeof b));
    }
    for (size_t i = 0; i < n; i++) {
        piece[i] = df_to(cx, piece[i], t, site);
        if (stack && piece[i] != DF_BAD)
            piece[i] = df_append(cx, DF_OP_unsqueeze, t, 1u << at, &piece[i], NULL, 0, NULL, site);
        if (piece[i] == DF_BAD) return NULL;
    }
    return df_result_faced(cx, df_join(cx, piece, n, (uint32_t)at, site), face);
}

deft_tensor *deft_concat(deft_tensor *const *parts, size_t n, int axis)
{
    return join_list("concat", parts, n, axis, false, DF_SITE);
}

deft_tensor *deft_stack(deft_tensor *const *parts, size_t n, int axis)
{
    return join_list("stack", parts, n, axis, true, DF_SITE);
}

/* n elements along axis, from index `start`, by `step`. */
static uint32_t part(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t start, int64_t step,
                     int64_t n, uintptr_t site)
{
    df_shape s;
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, a, &s);
    int64_t from[DEFT_MAX_RANK] = { 0 }, by[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) by[i] = 1;
    from[axis] = n ? start : 0;
    by[axis] = step;
    s.dim[axis] = n;
    return df_slice_node(cx, a, from, by, &s, site);
}

/* n copies of the element at index `at` of axis. */
static uint32_t repeat(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t at, int64_t n,
                       uintptr_t site)
{
    const uint32_t one = part(cx, a, axis, at, 1, 1, site);
    if (one == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, one, &s);
    s.dim[axis] = n;
    return df_expand_to(cx, one, &s, site);
}

/* Pads one axis in mode edge, reflect or wrap. */
static uint32_t pad_axis(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t dim, int64_t before,
                         int64_t after, deft_pad_mode mode, uintptr_t site)
{
    uint32_t piece[3];
    size_t n = 0;
    if (before)
        piece[n++] = mode == DEFT_PAD_EDGE      ? repeat(cx, a, axis, 0, before, site)
                     : mode == DEFT_PAD_REFLECT ? part(cx, a, axis, before, -1, before, site)
                                                : part(cx, a, axis, dim - before, 1, before, site);
    piece[n++] = a;
    if (after)
        piece[n++] = mode == DEFT_PAD_EDGE      ? repeat(cx, a, axis, dim - 1, after, site)
                     : mode == DEFT_PAD_REFLECT ? part(cx, a, axis, dim - 2, -1, after, site)
                                                : part(cx, a, axis, 0, 1, after, site);
    for (size_t i = 0; i < n; i++)
        if (piece[i] == DF_BAD) return DF_BAD;
    return df_join(cx, piece, n, axis, site);
}

uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, a, &s);
    int64_t start[DEFT_MAX_RANK], step[DEFT_MAX_RANK];
    bool nothing = false;
    for (uint32_t i = 0; i < s.rank; i++) {
        start[i] = s.dim[i] ? before[i] : 0;
        step[i] = 1;
        nothing |= s.dim[i] == 0;
    }
    const uint32_t base = df_expand_to(cx, fill, out, site);
    if (nothing || base == DF_BAD) return base;
    const uint32_t place = df_slice_node(cx, base, start, step, &s, site);
    const uint32_t src[3] = { base, a, place };
    return df_append(cx, DF_OP_update, df_dtype_at(cx, a), 0, src, NULL, 0, NULL, site);
}

static deft_tensor *pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                        deft_pad_mode mode, df_literal value, uintptr_t site)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin_faced("pad", t, &a, &s, site);
    const df_face face = cx ? df_face_of(t) : 0;
    if (!cx) return NULL;
    if (s.rank && (!before || !after))
        return df_error(cx, DEFT_E_ARG, "pad: before or after is NULL");
    if ((unsigned)mode > DEFT_PAD_WRAP) return df_error(cx, DEFT_E_ARG, "pad: mode %d", (int)mode);
    deft_shape grown = { .rank = s.rank };
    df_shape out;
    for (uint32_t i = 0; i < s.rank; i++) {
        const int64_t most = mode == DEFT_PAD_CONSTANT  ? INT64_MAX
                             : mode == DEFT_PAD_EDGE    ? (s.dim[i] ? INT64_MAX : 0)
                             : mode == DEFT_PAD_REFLECT ? df_max_i64(s.dim[i] - 1, 0)
                                                        : s.dim[i];
        if (before[i] < 0 || after[i] < 0 || before[i] > most || after[i] > most)
            return df_error(cx, DEFT_E_RANGE,
                            "pad: %lld before and %lld after axis %u of extent %lld",
                            (long long)before[i], (long long)after[i], i, (long long)s.dim[i]);
        if (!df_add_i64(s.dim[i], before[i], &grown.dim[i]) ||
            !df_add_i64(grown.dim[i], after[i], &grown.dim[i]))
            return df_error(cx, DEFT_E_SHAPE, "pad: axis %u overflows", i);
    }
    if (!df_check_shape(cx, "pad", &grown, &out)) return NULL;
    if (mode != DEFT_PAD_CONSTANT) {
        for (uint32_t i = 0; i < s.rank && a != DF_BAD; i++)
            if (before[i] || after[i])
                a = pad_axis(cx, a, i, s.dim[i], before[i], after[i], mode, site);
        return df_result_faced(cx, a, face);
    }
    uint32_t fill = df_literal_node(cx, "pad", df_dtype_at(cx, a), value, site);
    if (!face) return df_result(cx, df_surround(cx, a, before, fill, &out, site));
    int64_t all[DEFT_MAX_RANK] = { 0 };
    for (uint32_t i = 0; i < s.rank; i++) all[i] = before[i];
    if (!df_face_hide(cx, "pad", face, &out)) return NULL;
    fill = df_parts_join(cx, (df_parts){ fill, DF_BAD, true }, site);
    return df_result_faced(cx, df_surround(cx, a, all, fill, &out, site), face);
}

deft_tensor *deft_pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                      deft_pad_mode mode, double value)
{
    return pad(t, before, after, mode, df_literal_f(value), DF_SITE);
}

deft_tensor *deft_pad_i(deft_tensor *t, const int64_t *before, const int64_t *after,
                        deft_pad_mode mode, int64_t value)
{
    return pad(t, before, after, mode, df_literal_i(value), DF_SITE);
}

deft_tensor *deft_pad_u(deft_tensor *t, const int64_t *before, const int64_t *after,
                        deft_pad_mode mode, uint64_t value)
{
    return pad(t, before, after, mode, df_literal_u(value), DF_SITE);
}

deft_tensor *deft_roll(deft_tensor *t, int64_t shift, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin_of("roll", t, DF_WHOLE_FACES, &a, &s, DF_SITE);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const df_face face = df_face_of(t);
    df_shape whole;
    df_rec_shape(&cx->rec, a, &whole);
    if (axis == DEFT_FLAT) {
        a = flat(cx, a, face, site);
        if (a == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, a, &s);
        df_face_show(face, &s);
    }
    const int at = axis == DEFT_FLAT ? 0 : df_check_axis(cx, "roll", axis, s.rank);
    if (at < 0) return NULL;
    const int64_t n = s.dim[at];
    const int64_t by = n ? ((shift % n) + n) % n : 0;
    if (by == 0) return df_result_faced(cx, df_node_of(cx, t), face);
    const uint32_t piece[2] = { part(cx, a, (uint32_t)at, n - by, 1, by, site),
                                part(cx, a, (uint32_t)at, 0, 1, n - by, site) };
    if (piece[0] == DF_BAD || piece[1] == DF_BAD) return NULL;
    const uint32_t out = df_join(cx, piece, 2, (uint32_t)at, site);
    if (axis != DEFT_FLAT || out == DF_BAD) return df_result_faced(cx, out, face);
    return df_result_faced(
        cx, df_append(cx, DF_OP_reshape, df_dtype_at(cx, out), 0, &out, NULL, 0, &whole, site),
        face);
}

static deft_tensor *triangle(const char *what, deft_tensor *t, int64_t diagonal, bool lower,
                             uintptr_t site)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin_faced(what, t, &a, &s, site);
    if (!cx) return NULL;
    if (s.rank < 2)
        return df_error(cx, DEFT_E_SHAPE, "%s: needs at least 2 axes, has %u", what, s.rank);
    const df_shape m = { .rank = 2, .dim = { s.dim[s.rank - 2], s.dim[s.rank - 1] } };
    const uint32_t row = df_map2(cx, DF_OP_add, df_iota_node(cx, &m, 0, site),
                                 df_number_i(cx, what, DEFT_I64, diagonal, site), site);
    const uint32_t column = df_iota_node(cx, &m, 1, site);
    const uint32_t keep =
        lower ? df_map2(cx, DF_OP_le, column, row, site) : df_map2(cx, DF_OP_le, row, column, site);
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, a), 0, site);
    if (!df_face_of(t)) return df_result(cx, df_where(cx, keep, a, zero, site));
    const df_parts p = df_parts_of(cx, a, site);
    return df_parts_result(cx,
                           (df_parts){ df_where(cx, keep, p.re, zero, site),
                                       df_where(cx, keep, p.im, zero, site), false },
                           site);
}

deft_tensor *deft_tril(deft_tensor *t, int64_t diagonal)
{
    return triangle("tril", t, diagonal, true, DF_SITE);
}

deft_tensor *deft_triu(deft_tensor *t, int64_t diagonal)
{
    return triangle("triu", t, diagonal, false, DF_SITE);
}
