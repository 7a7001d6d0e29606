/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences, running values, deviations, and gathering with broadcasting (deft/array.h).
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"

/* ---- gathering ---- */

static deft_tensor *take_along(deft_tensor *t, deft_tensor *indices, int axis, const df_shape *of_t,
                               const df_shape *of_indices)
{
    return deft_gather(deft_expand(t, df_array_shape(of_t)),
                       deft_expand(indices, df_array_shape(of_indices)), axis);
}

deft_tensor *deft_take_along_axis(deft_tensor *t, deft_tensor *indices, int axis)
{
    const char *const what = "take_along_axis";
    df_shape s, i;
    deft_ctx *const cx = df_array_begin_faced(what, t, &s, DF_SITE);
    if (!cx || !df_enter_more(cx, what, 2, indices)) return NULL;
    const int at = df_check_axis(cx, what, axis, s.rank);
    if (at < 0) return NULL;
    df_tensor_shape(cx, indices, &i);
    if (!df_is_int(deft_dtype_of(indices)))
        return df_error(cx, DEFT_E_DTYPE, "%s: indices are %s, not integers", what,
                        deft_dtype_name(deft_dtype_of(indices)));
    df_shape met_t = s, met_i = i;
    bool fits = i.rank == s.rank;
    for (uint32_t k = 0; fits && k < s.rank; k++) {
        if ((int)k == at) continue;
        fits = s.dim[k] == i.dim[k] || s.dim[k] == 1 || i.dim[k] == 1;
        met_t.dim[k] = met_i.dim[k] = s.dim[k] == 1 ? i.dim[k] : s.dim[k];
    }
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    if (!fits)
        return df_error(cx, DEFT_E_SHAPE, "%s: %s at indices %s along axis %d", what,
                        df_shape_text(&s, a, sizeof a), df_shape_text(&i, b, sizeof b), at);
    DF_LAYER_RETURN(deft_tensor *, cx, take_along(t, indices, at, &met_t, &met_i));
}

/* ---- differences ---- */

static deft_tensor *difference(deft_tensor *t, int axis, int64_t n)
{
    deft_tensor *const next = df_array_part(t, axis, 1, n - 1);
    deft_tensor *const own = df_array_part(t, axis, 0, n - 1);
    return deft_dtype_of(t) == DEFT_BOOL ? deft_ne(next, own) : deft_sub(next, own);
}

static deft_tensor *diff(deft_tensor *t, int64_t n, int axis, deft_tensor *prepend,
                         deft_tensor *append)
{
    deft_tensor *part[3];
    size_t n_parts = 0;
    if (prepend) part[n_parts++] = prepend;
    part[n_parts++] = t;
    if (append) part[n_parts++] = append;
    if (n_parts > 1) t = deft_concat(part, n_parts, axis);
    deft_tensor *const whole = t;
    for (; n > 0 && t; n--) {
        const int64_t extent = deft_dim(t, axis);
        if (extent == 0) break;
        t = difference(t, axis, extent);
    }
    return t == whole && n_parts == 1 ? deft_slice_n(t, 0, NULL) : t;
}

/* Whether part has the shape of t but for the axis. Records the error otherwise. */
static bool continues(deft_ctx *cx, unsigned which, deft_tensor *part, const df_shape *s, int axis)
{
    df_shape p;
    if (!df_enter_more_faced(cx, "diff", which, part)) return false;
    df_shown_shape(cx, part, &p);
    bool fits = p.rank == s->rank;
    for (uint32_t k = 0; fits && k < s->rank; k++) fits = (int)k == axis || p.dim[k] == s->dim[k];
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    if (!fits)
        df_error(cx, DEFT_E_SHAPE, "diff: %s cannot be joined to %s along axis %d",
                 df_shape_text(&p, a, sizeof a), df_shape_text(s, b, sizeof b), axis);
    return fits;
}

deft_tensor *deft_diff(deft_tensor *t, int64_t n, int axis, deft_tensor *prepend,
                       deft_tensor *append)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("diff", t, &s, DF_SITE);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "diff", axis, s.rank);
    if (at < 0) return NULL;
    if (n < 0)
        return df_error(cx, DEFT_E_RANGE, "diff: the difference of order %lld", (long long)n);
    if (prepend && !continues(cx, 4, prepend, &s, at)) return NULL;
    if (append && !continues(cx, 5, append, &s, at)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, diff(t, n, at, prepend, append));
}

/* ---- deviations ---- */

static deft_tensor *deviation(deft_ctx *cx, deft_tensor *t, deft_axes axes, bool keepdims, int ddof)
{
    return df_array_round(df_array_root(cx, deft_var(df_array_lift(t), axes, keepdims, ddof)),
                          deft_dtype_of(t));
}

deft_tensor *deft_std(deft_tensor *t, deft_axes axes, bool keepdims, int ddof)
{
    df_shape s;
    uint32_t mask;
    deft_ctx *const cx = df_array_begin_faced("std", t, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "std", &axes, s.rank, &mask)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, deviation(cx, t, axes, keepdims, ddof));
}

/* ---- running values ---- */

/* A public call that runs along an axis of t begins. Returns the context and sets *at to the axis,
 * counted from the front. Returns NULL with the error recorded. */
static deft_ctx *begin_running(const char *what, deft_tensor *t, int axis, int *at, uintptr_t site)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced(what, t, &s, site);
    if (!cx) return NULL;
    *at = df_check_axis(cx, what, axis, s.rank);
    return *at < 0 ? NULL : cx;
}

/* `running`, which may be NULL. With include_initial, an element with the value `initial` precedes
 * it. */
static deft_tensor *with_initial(deft_ctx *cx, deft_tensor *running, int axis, bool include_initial,
                                 int64_t initial)
{
    if (!running || !include_initial) return running;
    deft_shape s = deft_shape_get(running);
    s.dim[axis] = 1;
    deft_tensor *const part[2] = { deft_full_i(cx, s, deft_dtype_of(running), initial), running };
    return deft_concat(part, 2, axis);
}

deft_tensor *deft_cumulative_sum(deft_tensor *t, int axis, bool include_initial)
{
    int at;
    deft_ctx *const cx = begin_running("cumulative_sum", t, axis, &at, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx,
                    with_initial(cx, deft_cumsum(t, at), at, include_initial, 0));
}

deft_tensor *deft_cumulative_prod(deft_tensor *t, int axis, bool include_initial)
{
    int at;
    deft_ctx *const cx = begin_running("cumulative_prod", t, axis, &at, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx,
                    with_initial(cx, deft_cumprod(t, at), at, include_initial, 1));
}

/* With each pass, an element has the sum of twice as many elements up to it. */
static deft_tensor *running_logarithm(deft_tensor *t, int axis)
{
    const deft_dtype own = deft_dtype_of(t);
    t = df_is_float(own) ? df_array_lift(t) : deft_cast(t, DEFT_F32);
    const int64_t n = t ? deft_dim(t, axis) : 0;
    for (int64_t by = 1; by < n && t; by *= 2) {
        deft_tensor *const sums =
            deft_logaddexp(df_array_part(t, axis, by, n - by), df_array_part(t, axis, 0, n - by));
        deft_tensor *const part[2] = { df_array_part(t, axis, 0, by), sums };
        t = deft_concat(part, 2, axis);
    }
    return df_array_round(t, own);
}

deft_tensor *deft_logcumsumexp(deft_tensor *t, int axis)
{
    int at;
    if (!df_enter("logcumsumexp", 1, t, DF_SITE)) return NULL; /* not for complex numbers */
    deft_ctx *const cx = begin_running("logcumsumexp", t, axis, &at, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, running_logarithm(t, at));
}
