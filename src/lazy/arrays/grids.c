/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation by example, grids, and operations that arrange elements (deft/array.h).
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"

/* ---- creation ---- */

deft_tensor *deft_zeros_like(deft_tensor *t)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("zeros_like", t, &s, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, deft_zeros(cx, df_array_shape(&s), deft_dtype_of(t)));
}

deft_tensor *deft_ones_like(deft_tensor *t)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("ones_like", t, &s, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, deft_ones(cx, df_array_shape(&s), deft_dtype_of(t)));
}

deft_tensor *deft_full_like(deft_tensor *t, double value)
{
    df_shape s;
    int64_t bits;
    deft_ctx *const cx = df_array_begin_faced("full_like", t, &s, DF_SITE);
    if (!cx || !df_number_bits(cx, "full_like", df_record_dtype(deft_dtype_of(t)), value, &bits))
        return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, deft_full(cx, df_array_shape(&s), deft_dtype_of(t), value));
}

deft_tensor *deft_full_like_i(deft_tensor *t, int64_t value)
{
    df_shape s;
    int64_t bits;
    deft_ctx *const cx = df_array_begin_faced("full_like", t, &s, DF_SITE);
    if (!cx || !df_number_bits_i(cx, "full_like", df_record_dtype(deft_dtype_of(t)), value, &bits))
        return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx,
                    deft_full_i(cx, df_array_shape(&s), deft_dtype_of(t), value));
}

deft_tensor *deft_full_like_u(deft_tensor *t, uint64_t value)
{
    df_shape s;
    int64_t bits;
    deft_ctx *const cx = df_array_begin("full_like", t, &s, DF_SITE);
    if (!cx || !df_number_bits_u(cx, "full_like", deft_dtype_of(t), value, &bits)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx,
                    deft_full_u(cx, df_array_shape(&s), deft_dtype_of(t), value));
}

static deft_tensor *eye(deft_ctx *cx, deft_shape s, int64_t k, deft_dtype dtype)
{
    deft_tensor *const row = deft_iota(cx, s, 0), *const column = deft_iota(cx, s, 1);
    return deft_cast(deft_eq(deft_add(row, deft_num_i(cx, k)), column), dtype);
}

deft_tensor *deft_eye_k(deft_ctx *cx, int64_t rows, int64_t columns, int64_t k, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx || !df_check_dtype(cx, "eye_k", dtype)) return NULL;
    const deft_shape s = { .rank = 2, .dim = { rows, columns } };
    df_shape checked;
    if (!df_check_shape(cx, "eye_k", &s, &checked)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, eye(cx, s, k, dtype));
}

/* first + i * step, as deft_linspace computes it for one element more, which is left out. */
static deft_tensor *linspace_open(deft_ctx *cx, double first, double last, int64_t n,
                                  deft_dtype dtype)
{
    return df_array_part(deft_linspace(cx, first, last, n + 1, dtype), 0, 0, n);
}

deft_tensor *deft_linspace_open(deft_ctx *cx, double first, double last, int64_t n,
                                deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return NULL;
    if ((unsigned)dtype >= DEFT_N_DTYPES || !df_is_float(dtype))
        return df_error(cx, DEFT_E_DTYPE, "linspace_open: not for %s", deft_dtype_name(dtype));
    if (n < 0 || n == INT64_MAX)
        return df_error(cx, DEFT_E_RANGE, "linspace_open: %lld values", (long long)n);
    DF_LAYER_RETURN(deft_tensor *, cx, linspace_open(cx, first, last, n, dtype));
}

/* Tensor i of a grid: x along axis `at` of the shape s. */
static deft_tensor *along(deft_tensor *x, uint32_t at, deft_shape s)
{
    deft_shape line = { .rank = s.rank };
    for (uint32_t i = 0; i < s.rank; i++) line.dim[i] = i == at ? s.dim[i] : 1;
    return deft_expand(deft_reshape(x, line), s);
}

static deft_status grid(deft_ctx *cx, deft_tensor *const *x, uint32_t n, bool xy, deft_shape s,
                        deft_tensor **out)
{
    deft_tensor *made[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < n; i++) {
        made[i] = along(x[i], xy && i < 2 ? 1 - i : i, s);
        if (!made[i]) return cx->pending;
    }
    for (uint32_t i = 0; i < n; i++) out[i] = made[i];
    return DEFT_OK;
}

deft_status deft_meshgrid(deft_tensor *const *x, size_t n, bool xy, deft_tensor **out)
{
    deft_status st;
    const uintptr_t site = DF_SITE;
    if (n == 0) return DEFT_OK;
    deft_ctx *const cx = df_array_begin_list("meshgrid", x, n, &st, site);
    if (!cx) return st;
    if (!out) return df_error(cx, DEFT_E_ARG, "meshgrid: out is NULL"), cx->pending;
    if (n > DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_LIMIT, "meshgrid: %zu tensors, a grid has at most %d axes", n,
                        DEFT_MAX_RANK),
               cx->pending;
    deft_shape s = { .rank = (uint32_t)n };
    xy = xy && n > 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t rank = deft_rank(x[i]);
        if (rank > 1)
            return df_error(cx, DEFT_E_SHAPE, "meshgrid: tensor %u has %u axes, not 1", i, rank),
                   cx->pending;
        s.dim[xy && i < 2 ? 1 - i : i] = deft_numel(x[i]);
    }
    DF_LAYER_RETURN(deft_status, cx, grid(cx, x, (uint32_t)n, xy, s, out));
}

/* ---- shapes ---- */

bool deft_broadcast_shapes(const deft_shape *shapes, size_t n, deft_shape *out)
{
    deft_shape s = { .rank = 0 };
    for (size_t i = 0; i < n; i++) {
        if (shapes[i].rank > DEFT_MAX_RANK) return false;
        if (shapes[i].rank > s.rank) s.rank = shapes[i].rank;
    }
    for (uint32_t k = 0; k < s.rank; k++) s.dim[k] = 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t skip = s.rank - shapes[i].rank;
        for (uint32_t k = 0; k < shapes[i].rank; k++) {
            const int64_t dim = shapes[i].dim[k];
            int64_t *const met = &s.dim[skip + k];
            if (dim != *met && dim != 1 && *met != 1) return false;
            if (dim != 1) *met = dim;
        }
    }
    *out = s;
    return true;
}

static deft_status broadcast(deft_ctx *cx, deft_tensor *const *t, size_t n, deft_shape s,
                             deft_tensor **out)
{
    for (size_t i = 0; i < n; i++)
        if (!(out[i] = deft_expand(t[i], s))) return cx->pending;
    return DEFT_OK;
}

deft_status deft_broadcast_tensors(deft_tensor *const *t, size_t n, deft_tensor **out)
{
    const char *const what = "broadcast_tensors";
    deft_status st;
    const uintptr_t site = DF_SITE;
    if (n == 0) return DEFT_OK;
    deft_ctx *const cx = df_array_begin_list(what, t, n, &st, site);
    if (!cx) return st;
    if (!out) return df_error(cx, DEFT_E_ARG, "%s: out is NULL", what), cx->pending;
    deft_shape met = { .rank = 0 };
    for (size_t i = 0; i < n; i++) {
        const deft_shape both[2] = { met, deft_shape_get(t[i]) };
        if (deft_broadcast_shapes(both, 2, &met)) continue;
        char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
        df_shape s[2] = { { .rank = both[0].rank }, { .rank = both[1].rank } };
        for (int k = 0; k < 2; k++)
            for (uint32_t j = 0; j < s[k].rank; j++) s[k].dim[j] = both[k].dim[j];
        df_error(cx, DEFT_E_SHAPE, "%s: tensor %zu is %s, those before it make %s", what, i,
                 df_shape_text(&s[1], b, sizeof b), df_shape_text(&s[0], a, sizeof a));
        return cx->pending;
    }
    DF_LAYER_RETURN(deft_status, cx, broadcast(cx, t, n, met, out));
}

static deft_tensor *expand_dims(deft_tensor *t, uint32_t mask)
{
    for (int i = 0; i < DEFT_MAX_RANK && t; i++)
        if (mask >> i & 1u) t = deft_unsqueeze(t, i);
    return t;
}

deft_tensor *deft_expand_dims(deft_tensor *t, deft_axes axes)
{
    df_shape s;
    uint32_t mask;
    deft_ctx *const cx = df_array_begin_any("expand_dims", t, &s, DF_SITE);
    if (!cx) return NULL;
    const uint32_t n = axes.n == UINT32_MAX ? 0 : axes.n;
    if (axes.n == UINT32_MAX || s.rank + n > DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_RANGE, "expand_dims: %u axes beside %u, at most %d", n, s.rank,
                        DEFT_MAX_RANK);
    if (!df_check_axes(cx, "expand_dims", &axes, s.rank + n, &mask)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, expand_dims(t, mask));
}

deft_tensor *deft_moveaxis(deft_tensor *t, deft_axes from, deft_axes to)
{
    df_shape s;
    uint32_t taken, filled;
    deft_ctx *const cx = df_array_begin_any("moveaxis", t, &s, DF_SITE);
    if (!cx) return NULL;
    if (from.n != to.n || from.n == UINT32_MAX)
        return df_error(cx, DEFT_E_RANGE, "moveaxis: %d axes to %d positions", (int)from.n,
                        (int)to.n);
    if (!df_check_axes(cx, "moveaxis", &from, s.rank, &taken) ||
        !df_check_axes(cx, "moveaxis", &to, s.rank, &filled))
        return NULL;
    deft_axes order = { .n = s.rank };
    for (uint32_t i = 0; i < from.n; i++) {
        const int at = to.at[i] < 0 ? to.at[i] + (int)s.rank : to.at[i];
        order.at[at] = from.at[i] < 0 ? from.at[i] + (int)s.rank : from.at[i];
    }
    for (uint32_t i = 0, next = 0; i < s.rank; i++) {
        if (filled >> i & 1u) continue;
        while (taken >> next & 1u) next++;
        order.at[i] = (int32_t)next++;
    }
    DF_LAYER_RETURN(deft_tensor *, cx, deft_permute(t, order));
}

static deft_status unstack(deft_ctx *cx, deft_tensor *t, int axis, size_t n, deft_tensor **out)
{
    deft_range r[DEFT_MAX_RANK];
    for (int i = 0; i < axis; i++) r[i] = DEFT_FULL;
    for (size_t i = 0; i < n; i++) {
        r[axis] = DEFT_AT((int64_t)i);
        if (!(out[i] = deft_slice_n(t, (size_t)axis + 1, r))) return cx->pending;
    }
    return DEFT_OK;
}

deft_status deft_unstack(deft_tensor *t, int axis, size_t n, deft_tensor **out)
{
    df_shape s;
    if (!t) return DEFT_E_ARG;
    deft_ctx *const cx = df_array_begin_any("unstack", t, &s, DF_SITE);
    if (!cx) return DEFT_E_STATE;
    const int at = df_check_axis(cx, "unstack", axis, s.rank);
    if (at < 0) return cx->pending;
    if (n && !out) return df_error(cx, DEFT_E_ARG, "unstack: out is NULL"), cx->pending;
    if (n != (uint64_t)s.dim[at])
        return df_error(cx, DEFT_E_SHAPE, "unstack: axis %d has %lld elements, room is for %zu", at,
                        (long long)s.dim[at], n),
               cx->pending;
    DF_LAYER_RETURN(deft_status, cx, unstack(cx, t, at, n, out));
}

/* ---- copies side by side ---- */

/* t, with an axis inserted at `axis`, n times along it, and joined with the next axis or the one
 * before: which of the two is the caller's choice of axis. */
static deft_tensor *copies(deft_tensor *t, int axis, int64_t n, deft_shape out)
{
    deft_tensor *const open = deft_unsqueeze(t, axis);
    deft_shape s = deft_shape_get(open);
    s.dim[axis] = n;
    return deft_reshape(deft_expand(open, s), out);
}

deft_tensor *deft_repeat(deft_tensor *t, int64_t n, int axis)
{
    df_shape s;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_array_begin_any("repeat", t, &s, site);
    if (!cx) return NULL;
    if (n < 0) return df_error(cx, DEFT_E_RANGE, "repeat: %lld times", (long long)n);
    if (axis == DEFT_FLAT) {
        int64_t all;
        (void)df_shape_numel(&s, &all);
        s = (df_shape){ .rank = 1, .dim = { all } };
    }
    const int at = axis == DEFT_FLAT ? 0 : df_check_axis(cx, "repeat", axis, s.rank);
    if (at < 0) return NULL;
    if (s.rank == DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_LIMIT, "repeat: a tensor with %u axes, at most %d", s.rank,
                        DEFT_MAX_RANK - 1);
    deft_shape out = df_array_shape(&s);
    if (!df_mul_i64(s.dim[at], n, &out.dim[at]))
        return df_error(cx, DEFT_E_SHAPE, "repeat: %lld times %lld elements overflow", (long long)n,
                        (long long)s.dim[at]);
    if (!df_check_shape(cx, "repeat", &out, &s)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx,
                    copies(axis == DEFT_FLAT ? deft_flatten(t) : t, at + 1, n, out));
}

static deft_tensor *tile(deft_tensor *t, deft_shape s, deft_shape n)
{
    t = deft_reshape(t, s);
    for (int i = 0; i < (int)s.rank && t; i++) {
        if (n.dim[i] == 1) continue;
        s.dim[i] *= n.dim[i];
        t = copies(t, i, n.dim[i], s);
    }
    return t;
}

deft_tensor *deft_tile(deft_tensor *t, deft_shape n)
{
    df_shape s, checked;
    deft_ctx *const cx = df_array_begin_any("tile", t, &s, DF_SITE);
    if (!cx || !df_check_shape(cx, "tile", &n, &checked)) return NULL;
    const uint32_t rank = s.rank > n.rank ? s.rank : n.rank;
    deft_shape from = { .rank = rank }, times = { .rank = rank }, to = { .rank = rank };
    for (uint32_t i = 0; i < rank; i++) {
        from.dim[i] = i + s.rank < rank ? 1 : s.dim[i + s.rank - rank];
        times.dim[i] = i + n.rank < rank ? 1 : n.dim[i + n.rank - rank];
        if (!df_mul_i64(from.dim[i], times.dim[i], &to.dim[i]))
            return df_error(cx, DEFT_E_SHAPE, "tile: axis %u overflows", i);
    }
    if (!df_check_shape(cx, "tile", &to, &checked)) return NULL;
    if (rank == DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_LIMIT, "tile: a result with %u axes, at most %d", rank,
                        DEFT_MAX_RANK - 1);
    DF_LAYER_RETURN(deft_tensor *, cx, tile(t, from, times));
}

static deft_tensor *roll(deft_tensor *t, const int64_t *shifts, const deft_axes *axes)
{
    for (uint32_t i = 0; i < axes->n && t; i++) t = deft_roll(t, shifts[i], axes->at[i]);
    return t;
}

deft_tensor *deft_roll_n(deft_tensor *t, const int64_t *shifts, deft_axes axes)
{
    df_shape s;
    uint32_t mask = 0;
    deft_ctx *const cx = df_array_begin_any("roll_n", t, &s, DF_SITE);
    if (!cx) return NULL;
    if (!shifts && axes.n) return df_error(cx, DEFT_E_ARG, "roll_n: shifts is NULL");
    if (axes.n == UINT32_MAX)
        DF_LAYER_RETURN(deft_tensor *, cx, deft_roll(t, shifts[0], DEFT_FLAT));
    /* an axis may be named twice: its shifts add up */
    for (uint32_t i = 0; i < axes.n; i++) {
        if (axes.n > DEFT_MAX_RANK) return df_check_axes(cx, "roll_n", &axes, s.rank, &mask), NULL;
        if (df_check_axis(cx, "roll_n", axes.at[i], s.rank) < 0) return NULL;
    }
    if (axes.n == 0) return df_result_faced(cx, df_node_of(cx, t), df_face_of(t));
    DF_LAYER_RETURN(deft_tensor *, cx, roll(t, shifts, &axes));
}

/* ---- neighbours ---- */

static deft_tensor *shift(deft_tensor *t, const int64_t *by, deft_pad_mode mode, double value)
{
    int64_t before[DEFT_MAX_RANK], after[DEFT_MAX_RANK];
    deft_range r[DEFT_MAX_RANK];
    const deft_shape s = deft_shape_get(t);
    for (uint32_t i = 0; i < s.rank; i++) {
        before[i] = by[i] < 0 ? -by[i] : 0;
        after[i] = by[i] > 0 ? by[i] : 0;
        r[i] = DEFT_R(after[i], after[i] + s.dim[i]);
    }
    return deft_slice_n(deft_pad(t, before, after, mode, value), s.rank, r);
}

deft_tensor *deft_shift(deft_tensor *t, const int64_t *by, deft_pad_mode mode, double value)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("shift", t, &s, DF_SITE);
    if (!cx) return NULL;
    if (!by && s.rank) return df_error(cx, DEFT_E_ARG, "shift: by is NULL");
    if ((unsigned)mode > DEFT_PAD_WRAP)
        return df_error(cx, DEFT_E_ARG, "shift: mode %d", (int)mode);
    for (uint32_t i = 0; i < s.rank; i++) {
        const int64_t most = mode == DEFT_PAD_REFLECT ? df_max_i64(s.dim[i] - 1, 0)
                             : mode == DEFT_PAD_WRAP  ? s.dim[i]
                                                      : INT32_MAX;
        if (by[i] < -most || by[i] > most)
            return df_error(cx, DEFT_E_RANGE, "shift: by %lld along axis %u of extent %lld",
                            (long long)by[i], i, (long long)s.dim[i]);
    }
    DF_LAYER_RETURN(deft_tensor *, cx, shift(t, by, mode, value));
}
