/* SPDX-License-Identifier: Apache-2.0
 *
 * Values in the middle of an order, and counts of values in bins (deft/array.h).
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"
#include "lazy/calls/sizes.h"

#include <float.h>
#include <math.h>

/* y, or NaN where an element of t along axis is NaN. y has the axis with extent 1. */
static deft_tensor *nan_of(deft_ctx *cx, deft_tensor *t, int axis, deft_tensor *y)
{
    if (!y || !df_is_float(deft_dtype_of(t))) return y;
    deft_tensor *const any = deft_any(deft_isnan(t), deft_axes_of(1, &axis), true);
    return deft_where(any, deft_full(cx, (deft_shape){ .rank = 0 }, deft_dtype_of(y), NAN), y);
}

static deft_tensor *without(deft_tensor *t, int axis, bool keepdims)
{
    return keepdims ? t : deft_squeeze(t, deft_axes_of(1, &axis));
}

/* The axis over which a value in the middle is taken, with an element at least. -1 with the error
 * recorded. */
static int check_middle(deft_ctx *cx, const char *what, int axis, const df_shape *s)
{
    const int at = df_check_axis(cx, what, axis, s->rank);
    if (at < 0 || s->dim[at] > 0) return at;
    df_error(cx, DEFT_E_SHAPE, "%s: axis %d has no elements", what, at);
    return -1;
}

/* ---- the middle of an order ---- */

static deft_tensor *median(deft_ctx *cx, deft_tensor *t, int axis, bool keepdims)
{
    const int64_t k = (deft_dim(t, axis) - 1) / 2;
    return without(nan_of(cx, t, axis, df_order_part(t, axis, k, 1)), axis, keepdims);
}

deft_tensor *deft_median(deft_tensor *t, int axis, bool keepdims)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin("median", t, &s, DF_SITE);
    if (!cx) return NULL;
    const int at = check_middle(cx, "median", axis, &s);
    if (at < 0) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, median(cx, t, at, keepdims));
}

/* The element at position q * (n - 1) of the order, between two elements on the line from one to
 * the other. Equal elements need no line, which has no value between two infinities. */
static deft_tensor *quantile(deft_ctx *cx, deft_tensor *t, double q, int axis, bool keepdims)
{
    const deft_dtype own = deft_dtype_of(t);
    t = df_is_float(own) ? df_array_lift(t) : deft_cast(t, DEFT_F32);
    const int64_t n = deft_dim(t, axis);
    const double at = q * (double)(n - 1), low = floor(at);
    const int64_t k = df_min_i64((int64_t)low, n - 1);
    const int64_t m = df_min_i64(n - k, 2);
    deft_tensor *const beside = df_order_part(t, axis, k, m);
    deft_tensor *const a = df_array_part(beside, axis, 0, 1);
    deft_tensor *const b = df_array_part(beside, axis, m - 1, 1);
    deft_tensor *const between = deft_where(deft_eq(a, b), a, deft_lerp_f(a, b, at - low));
    return df_array_round(without(nan_of(cx, t, axis, between), axis, keepdims), own);
}

deft_tensor *deft_quantile(deft_tensor *t, double q, int axis, bool keepdims)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin("quantile", t, &s, DF_SITE);
    if (!cx) return NULL;
    const int at = check_middle(cx, "quantile", axis, &s);
    if (at < 0) return NULL;
    if (!(q >= 0 && q <= 1))
        return df_error(cx, DEFT_E_RANGE, "quantile: %g is not between 0 and 1", q);
    DF_LAYER_RETURN(deft_tensor *, cx, quantile(cx, t, q, at, keepdims));
}

/* ---- bins ---- */

/* The counts of the elements of flat, whose places among the n + 1 edges are in `bin`: 0 is
 * before the first bin, and n + 1 after the last one, which has its end, too. */
static deft_tensor *counted(deft_ctx *cx, deft_tensor *flat, deft_tensor *edges, deft_tensor *bin)
{
    const int64_t n = deft_dim(edges, 0) - 1;
    deft_tensor *const last = deft_slice_n(edges, 1, &(deft_range){ n, n, 0 });
    deft_tensor *const at = deft_where(deft_eq(flat, last), df_array_whole(cx, DEFT_I64, n), bin);
    const deft_shape s = { .rank = 1, .dim = { n + 2 } };
    deft_tensor *const counts =
        deft_index_add(deft_zeros(cx, s, DEFT_I64), at, df_array_whole(cx, DEFT_I64, 1), 0);
    return df_array_part(counts, 0, 1, n);
}

/* How many elements of t are in each bin [edge, next edge). Elements outside all bins, and NaN, are
 * counted in a bin before the first or after the last. */
static deft_tensor *histogram(deft_ctx *cx, deft_tensor *t, deft_tensor *edges)
{
    deft_tensor *const flat = deft_flatten(t);
    return counted(cx, flat, edges, deft_searchsorted(edges, flat, true));
}

deft_tensor *deft_histogram(deft_tensor *t, deft_tensor *edges)
{
    deft_tensor *met[2];
    deft_dtype as;
    deft_ctx *const cx = df_array_meet("histogram", t, edges, met, &as, DF_SITE);
    if (!cx) return NULL;
    if (deft_rank(met[1]) != 1 || deft_dim(met[1], 0) < 2)
        return df_error(cx, DEFT_E_SHAPE, "histogram: edges have %u axes and %lld elements",
                        deft_rank(met[1]), (long long)deft_numel(met[1]));
    DF_LAYER_RETURN(deft_tensor *, cx, histogram(cx, met[0], met[1]));
}

/* Whether (x - low) * n / (high - low) in dtype t, rounded down, is at most one bin away from the
 * bin that the rounded edges give: a bin is wide beside the spacing of numbers near the edges, and
 * nothing overflows. */
static bool is_regular(deft_dtype t, int64_t n, double low, double high)
{
    const double eps = t == DEFT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    const double most = t == DEFT_F64 ? DBL_MAX : (double)FLT_MAX;
    const double bin = (high - low) / (double)n;
    return n <= 1 << 16 && high - low < most / 4 && bin > 1 / (most / 4) &&
           bin >= 16 * eps * fmax(fabs(low), fabs(high));
}

/* The place of x among the edges: a guess, corrected by the two edges beside it. */
static deft_tensor *even_bin(deft_ctx *cx, deft_tensor *x, deft_tensor *edges, int64_t n,
                             double low, double high)
{
    const deft_dtype t = deft_dtype_of(x);
    deft_tensor *const scale =
        deft_full(cx, (deft_shape){ .rank = 0 }, t, (double)n / (high - low));
    deft_tensor *const first = deft_full(cx, (deft_shape){ .rank = 0 }, t, low);
    deft_tensor *const ratio = deft_floor(deft_mul(deft_sub(x, first), scale));
    deft_tensor *const inside =
        deft_maximum(deft_minimum(ratio, df_array_whole(cx, t, n - 1)), df_array_whole(cx, t, 0));
    deft_tensor *const guess = deft_cast(inside, DEFT_I64);
    deft_tensor *const one = df_array_whole(cx, DEFT_I64, 1);
    deft_tensor *const next = deft_add(guess, one);
    deft_tensor *const is_above = deft_ge(x, deft_take(edges, next, 0));
    deft_tensor *const is_below = deft_lt(x, deft_take(edges, guess, 0));
    deft_tensor *const bin =
        deft_sub(deft_add(next, deft_cast(is_above, DEFT_I64)), deft_cast(is_below, DEFT_I64));
    return deft_where(deft_isnan(x), df_array_whole(cx, DEFT_I64, n + 1), bin);
}

static deft_tensor *even_bins(deft_ctx *cx, deft_tensor *t, int64_t n, double low, double high)
{
    const deft_dtype own = deft_dtype_of(t);
    t = df_is_float(own) ? df_array_lift(t) : deft_cast(t, DEFT_F32);
    if (!t) return NULL;
    const deft_dtype as = deft_dtype_of(t);
    deft_tensor *const edges = deft_linspace(cx, low, high, n + 1, as);
    if (!is_regular(as, n, low, high)) return histogram(cx, t, edges);
    deft_tensor *const flat = deft_flatten(t);
    return counted(cx, flat, edges, even_bin(cx, flat, edges, n, low, high));
}

deft_tensor *deft_histc(deft_tensor *t, int64_t n, double low, double high)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin("histc", t, &s, DF_SITE);
    if (!cx) return NULL;
    if (n < 1 || n > UINT32_MAX || !(low < high) || !isfinite(low) || !isfinite(high))
        return df_error(cx, DEFT_E_RANGE, "histc: %lld bins from %g to %g", (long long)n, low,
                        high);
    DF_LAYER_RETURN(deft_tensor *, cx, even_bins(cx, t, n, low, high));
}

deft_tensor *deft_bucketize(deft_tensor *values, deft_tensor *edges, bool right)
{
    deft_tensor *met[2];
    deft_dtype as;
    deft_ctx *const cx = df_array_meet("bucketize", values, edges, met, &as, DF_SITE);
    if (!cx) return NULL;
    if (deft_rank(met[1]) != 1)
        return df_error(cx, DEFT_E_SHAPE, "bucketize: edges have %u axes, not 1",
                        deft_rank(met[1]));
    DF_LAYER_RETURN(deft_tensor *, cx, deft_searchsorted(met[1], met[0], right));
}
