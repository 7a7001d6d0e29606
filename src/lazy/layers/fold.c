/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows as columns, maxima at their places, and pools that divide an image into a number of parts
 * (deft/images.h).
 */
#define DEFT_NO_GENERIC
#include "deft/images.h"
#include "deft/ops.h"
#include "lazy/calls/compose.h"

#include <math.h>
#include <string.h>

/* ---- windows as columns ---- */

/* Sets the window of options, which are those of unfold and fold. Returns false with the error
 * recorded. */
static bool take_windows(deft_ctx *cx, const char *what, const deft_pool_options *options,
                         uint32_t n, df_slide *w)
{
    deft_pool_options o;
    if (!options) {
        df_error(cx, DEFT_E_ARG, "%s: options are NULL; a kernel is needed", what);
        return false;
    }
    if (!df_check_options(cx, what, "deft_pool_options", options->size)) return false;
    df_take_options(&o, sizeof o, options, options->size);
    *w = (df_slide){ .n = n };
    for (uint32_t i = 0; i < n; i++) {
        w->kernel[i] = df_slide_option(o.kernel, i, 0);
        w->stride[i] = df_slide_option(o.stride, i, 1);
        w->dilation[i] = df_slide_option(o.dilation, i, 1);
        w->padding[i] = o.padding[i];
    }
    return df_check_padding(cx, what, o.padding, n, o.written) && df_slide_check(cx, what, w);
}

/* The elements of a window, and the number of windows. */
static void count_windows(const df_slide *w, int64_t *places, int64_t *windows)
{
    *places = *windows = 1;
    for (uint32_t i = 0; i < w->n; i++) {
        *places *= w->kernel[i];
        *windows *= w->out[i];
    }
}

static uint32_t as_shape(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_reshape, df_dtype_at(cx, a), 0, &a, NULL, 0, s, site);
}

deft_tensor *deft_unfold(deft_tensor *x, const deft_pool_options *options)
{
    uint32_t a;
    df_shape s;
    df_slide w;
    char text[DF_SHAPE_TEXT];
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_begin("unfold", x, &a, &s, site);
    if (!cx) return NULL;
    if (s.rank < 3 || s.rank > 2 + DF_SIDES)
        return df_error(cx, DEFT_E_SHAPE,
                        "unfold: x is %s; it takes [N, C, ...] with one to three "
                        "sides",
                        df_shape_text(&s, text, sizeof text));
    if (!take_windows(cx, "unfold", options, s.rank - 2, &w)) return NULL;
    if (!df_slide_fit(cx, "unfold", &s, &w)) return NULL;
    const deft_dtype t = df_dtype_at(cx, a);
    int64_t places, windows, at[DF_SIDES] = { 0 };
    count_windows(&w, &places, &windows);
    a = df_slide_pad(cx, a, &w, df_cst(cx, t, 0, site), site);
    df_arena_reset(&cx->pass);
    uint32_t *const piece = df_arena_new(&cx->pass, uint32_t, (size_t)places);
    if (!piece)
        return df_error(cx, DEFT_E_MEMORY, "unfold: no memory for a window of %lld",
                        (long long)places);
    size_t n = 0;
    do {
        piece[n] = df_slide_at(cx, a, &w, at, site);
        if (piece[n] == DF_BAD) return NULL;
        piece[n] = df_append(cx, DF_OP_unsqueeze, t, 1u << 2, &piece[n], NULL, 0, NULL, site);
        if (piece[n++] == DF_BAD) return NULL;
    } while (df_slide_next(&w, at));
    const df_shape columns = { .rank = 3, .dim = { s.dim[0], s.dim[1] * places, windows } };
    return df_result(cx, as_shape(cx, df_join(cx, piece, n, 2, site), &columns, site));
}

/* Whether the columns x, of shape s, are those of images with these sides. Sets *images to their
 * shape. */
static bool check_fold(deft_ctx *cx, const df_shape *s, const deft_shape *sides, df_slide *w,
                       df_shape *images)
{
    char text[DF_SHAPE_TEXT];
    int64_t places, windows;
    *images = (df_shape){ .rank = 2 + sides->rank };
    for (uint32_t i = 0; i < sides->rank; i++) images->dim[2 + i] = sides->dim[i];
    if (!df_slide_fit(cx, "fold", images, w)) return false;
    count_windows(w, &places, &windows);
    if (s->rank == 3 && s->dim[1] % places == 0 && s->dim[2] == windows) {
        images->dim[0] = s->dim[0];
        images->dim[1] = s->dim[1] / places;
        return true;
    }
    df_error(cx, DEFT_E_SHAPE,
             "fold: x is %s; windows of %lld elements, %lld of them, make [N, C * %lld, %lld]",
             df_shape_text(s, text, sizeof text), (long long)places, (long long)windows,
             (long long)places, (long long)windows);
    return false;
}

/* `sum` with `part` added to the elements at position `at` of every window. */
static uint32_t added_at(deft_ctx *cx, uint32_t sum, uint32_t part, const df_slide *w,
                         const int64_t *at, uintptr_t site)
{
    const uint32_t place = df_slide_at(cx, sum, w, at, site);
    const uint32_t value = df_map2(cx, DF_OP_add, place, part, site);
    if (place == DF_BAD || value == DF_BAD) return DF_BAD;
    const uint32_t src[3] = { sum, value, place };
    return df_append(cx, DF_OP_update, df_dtype_at(cx, sum), 0, src, NULL, 0, NULL, site);
}

/* The images within those that are padded. */
static uint32_t without_padding(deft_ctx *cx, uint32_t a, const df_slide *w, const df_shape *images,
                                uintptr_t site)
{
    int64_t start[DEFT_MAX_RANK] = { 0 };
    const int64_t step[DEFT_MAX_RANK] = { 1, 1, 1, 1, 1 };
    if (a == DF_BAD) return DF_BAD;
    for (uint32_t i = 0; i < w->n; i++) start[2 + i] = w->padding[i];
    return df_slice_node(cx, a, start, step, images, site);
}

deft_tensor *deft_fold(deft_tensor *x, deft_shape sides, const deft_pool_options *options)
{
    uint32_t a;
    df_shape s, images;
    df_slide w;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_begin("fold", x, &a, &s, site);
    if (!cx) return NULL;
    const deft_dtype t = df_dtype_at(cx, a);
    if (sides.rank < 1 || sides.rank > DF_SIDES)
        return df_error(cx, DEFT_E_SHAPE, "fold: images have one to three sides, not %u",
                        sides.rank);
    if (t != DEFT_F32 && t != DEFT_F64)
        return df_error(cx, DEFT_E_DTYPE, "fold: x is %s; it takes f32 or f64", deft_dtype_name(t));
    if (!df_check_shape(cx, "fold", &sides, &images)) return NULL;
    if (!take_windows(cx, "fold", options, sides.rank, &w)) return NULL;
    if (!check_fold(cx, &s, &sides, &w, &images)) return NULL;
    int64_t places, windows, at[DF_SIDES] = { 0 };
    count_windows(&w, &places, &windows);
    df_shape padded = images,
             parts = { .rank = 3 + w.n, .dim = { images.dim[0], images.dim[1], places } };
    for (uint32_t i = 0; i < w.n; i++) {
        padded.dim[2 + i] += 2 * w.padding[i];
        parts.dim[3 + i] = w.out[i];
    }
    a = as_shape(cx, a, &parts, site);
    uint32_t sum = df_expand_to(cx, df_cst(cx, t, 0, site), &padded, site);
    int64_t start[DEFT_MAX_RANK] = { 0 };
    const int64_t step[DEFT_MAX_RANK] = { 1, 1, 1, 1, 1, 1 };
    df_shape one = parts;
    one.dim[2] = 1;
    do {
        uint32_t part = a == DF_BAD ? DF_BAD : df_slice_node(cx, a, start, step, &one, site);
        if (part == DF_BAD) return NULL;
        part = df_append(cx, DF_OP_squeeze, t, 1u << 2, &part, NULL, 0, NULL, site);
        sum = added_at(cx, sum, part, &w, at, site);
        start[2]++;
    } while (sum != DF_BAD && df_slide_next(&w, at));
    return df_result(cx, without_padding(cx, sum, &w, &images, site));
}

/* ---- maxima at their places ---- */

static deft_tensor *max_unpool(deft_ctx *cx, deft_tensor *x, deft_tensor *indices,
                               const deft_shape *sides)
{
    deft_shape s = deft_shape_get(x), images = *sides;
    const deft_shape lines = { .rank = 3, .dim = { s.dim[0], s.dim[1], -1 } };
    deft_shape flat = { .rank = 3, .dim = { s.dim[0], s.dim[1], 1 } };
    images.rank = s.rank;
    for (uint32_t i = 0; i < sides->rank; i++) {
        images.dim[2 + i] = sides->dim[i];
        flat.dim[2] *= sides->dim[i];
    }
    images.dim[0] = s.dim[0];
    images.dim[1] = s.dim[1];
    deft_tensor *const zeros = deft_zeros(cx, flat, deft_dtype_of(x));
    return deft_reshape(
        deft_scatter(zeros, deft_reshape(indices, lines), deft_reshape(x, lines), 2), images);
}

deft_tensor *deft_max_unpool(deft_tensor *x, deft_tensor *indices, deft_shape sides)
{
    uint32_t a, b;
    df_shape s, checked;
    char text[DF_SHAPE_TEXT];
    deft_ctx *const cx = df_begin("max_unpool", x, &a, &s, DF_SITE);
    if (!cx || (b = df_operand(cx, "max_unpool", 2, indices)) == DF_BAD) return NULL;
    if (!df_check_shape(cx, "max_unpool", &sides, &checked)) return NULL;
    df_rec_shape(&cx->rec, b, &checked);
    if (s.rank < 3 || s.rank > 2 + DF_SIDES || sides.rank != s.rank - 2 ||
        !df_shape_equal(&s, &checked) || !df_is_int(df_dtype_at(cx, b)))
        return df_error(cx, DEFT_E_SHAPE,
                        "max_unpool: x is %s; it takes [N, C, ...], integers of that shape, and an "
                        "extent for each of one to three sides",
                        df_shape_text(&s, text, sizeof text));
    DF_LAYER_RETURN(deft_tensor *, cx, max_unpool(cx, x, indices, &sides));
}

/* ---- pools with a number of parts ---- */

/* The elements of each part along an axis of `extent` elements, as indices [n, most]. *inside are
 * bools: which of them belong to the part. */
static deft_tensor *part_indices(deft_ctx *cx, int64_t extent, int64_t n, deft_tensor **inside)
{
    const int64_t most = (extent + n - 1) / n + (extent % n != 0);
    const deft_shape rows = deft_shape_of(2, (const int64_t[]){ n, 1 });
    const deft_shape columns = deft_shape_of(2, (const int64_t[]){ 1, most });
    deft_tensor *const o = deft_mul_i(deft_iota(cx, rows, 0), extent);
    deft_tensor *const from = deft_floor_div_i(o, n);
    deft_tensor *const to = deft_floor_div_i(deft_add_i(o, extent + n - 1), n);
    deft_tensor *const at = deft_add(from, deft_iota(cx, columns, 1));
    *inside = deft_lt(at, to);
    return deft_minimum_i(at, extent - 1);
}

/* t [n, most] with axes of extent 1 behind, as many as follow axis `axis` of rank r. */
static deft_tensor *before_axes(deft_tensor *t, uint32_t more)
{
    deft_shape s = deft_shape_get(t);
    for (uint32_t i = 0; i < more; i++) s.dim[s.rank++] = 1;
    return deft_reshape(t, s);
}

/* One side of x, reduced to n parts. */
static deft_tensor *reduced_side(deft_ctx *cx, deft_tensor *x, int axis, int64_t n, bool is_max)
{
    const deft_axes along = deft_axes_of(1, &(const int){ axis + 1 });
    deft_shape s = deft_shape_get(x);
    const int64_t extent = s.dim[axis];
    const uint32_t more = s.rank - (uint32_t)axis - 1;
    if (!x || n == extent) return x;
    if (extent % n == 0) {
        memmove(s.dim + axis + 2, s.dim + axis + 1, more * sizeof *s.dim);
        s.rank++;
        s.dim[axis] = n;
        s.dim[axis + 1] = extent / n;
        deft_tensor *const parts = deft_reshape(x, s);
        return is_max ? deft_max(parts, along, false) : deft_mean(parts, along, false);
    }
    deft_tensor *inside;
    deft_tensor *const at = part_indices(cx, extent, n, &inside);
    deft_tensor *const parts = deft_take(x, at, axis);
    deft_tensor *const mask = before_axes(inside, more);
    if (is_max) return deft_max(deft_where(mask, parts, deft_num(cx, -INFINITY)), along, false);
    deft_tensor *const sum = deft_sum(deft_where(mask, parts, deft_num_i(cx, 0)), along, false);
    deft_tensor *const count = deft_sum(mask, deft_axes_of(1, &(const int){ 1 }), false);
    return deft_div(sum, deft_cast(count, deft_dtype_of(sum)));
}

static deft_tensor *adaptive(deft_ctx *cx, deft_tensor *x, const deft_shape *out, bool is_max)
{
    const deft_dtype t = deft_dtype_of(x);
    const deft_dtype as = df_is_half(t) ? DEFT_F32 : t;
    deft_tensor *y = as == t ? x : deft_cast(x, as);
    for (uint32_t i = out->rank; i-- > 0;) y = reduced_side(cx, y, (int)i + 2, out->dim[i], is_max);
    return as == t ? y : deft_cast(y, t);
}

/* Returns NULL with the error recorded. */
static deft_ctx *begin_adaptive(const char *what, deft_tensor *x, const deft_shape *out,
                                uintptr_t site)
{
    uint32_t a;
    df_shape s;
    char text[DF_SHAPE_TEXT];
    deft_ctx *const cx = df_begin(what, x, &a, &s, site);
    if (!cx) return NULL;
    bool fits = s.rank >= 3 && s.rank <= 2 + DF_SIDES && out->rank == s.rank - 2;
    for (uint32_t i = 0; fits && i < out->rank; i++)
        fits = out->dim[i] > 0 && s.dim[2 + i] > 0 && out->dim[i] < INT32_MAX &&
               s.dim[2 + i] < INT32_MAX;
    if (!fits)
        return df_error(cx, DEFT_E_SHAPE,
                        "%s: x is %s; it takes [N, C, ...] and a number of parts for each of one "
                        "to three sides",
                        what, df_shape_text(&s, text, sizeof text));
    if (!df_is_float(df_dtype_at(cx, a)))
        return df_error(cx, DEFT_E_DTYPE, "%s: x is %s, not a float", what,
                        deft_dtype_name(df_dtype_at(cx, a)));
    return cx;
}

deft_tensor *deft_adaptive_avg_pool(deft_tensor *x, deft_shape out)
{
    deft_ctx *const cx = begin_adaptive("adaptive_avg_pool", x, &out, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, adaptive(cx, x, &out, false));
}

deft_tensor *deft_adaptive_max_pool(deft_tensor *x, deft_shape out)
{
    deft_ctx *const cx = begin_adaptive("adaptive_max_pool", x, &out, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, adaptive(cx, x, &out, true));
}
