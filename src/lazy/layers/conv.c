/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions over one to three axes ("sides"), and transposed ones (deft/images.h).
 *
 * deft_conv2d is the body of all of them, since the fuser knows how its product reads windows. One
 * side gets an axis of one row. With three sides, the planes under the window become channels:
 *
 *   planes      [N, Do, C, kd, H, W]   reshaped to  [N * Do, C * kd, H, W]
 *   weights     [out, C, kd, kh, kw]   reshaped to  [out, C * kd, kh, kw]
 *
 * A transposed convolution spreads element o over the elements i = stride * o + dilation * t -
 * padding, one for each tap t. Elements with i = stride * q + m, for one remainder m, are reached
 * by the taps for which m + padding - dilation * t is a multiple of the stride. With these taps,
 * from the last to the first, they are a convolution of x that moves by 1. The same phases exist
 * for records in grad/grad_windows.c.
 */
#define DEFT_NO_GENERIC
#include "deft/images.h"
#include "lazy/calls/compose.h"

#include <string.h>

/* One call: what it is named, and how its windows slide. */
typedef struct conv_call {
    const char *what;
    bool is_transposed;
    df_slide slide;
    int64_t more[DF_SIDES]; /* output_padding */
    int64_t groups;
    deft_tensor *bias;
    deft_shape x, w;
} conv_call;

/* ---- checks ---- */

static void operand_text(const deft_shape *of, char *text, size_t size)
{
    df_shape s = { .rank = of->rank };
    memcpy(s.dim, of->dim, of->rank * sizeof *of->dim);
    df_shape_text(&s, text, size);
}

/* Sets the extents of a transposed convolution. Returns false with the error recorded. */
static bool fit_transposed(deft_ctx *cx, conv_call *c)
{
    df_slide *const w = &c->slide;
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t n, reach;
        if (c->more[i] < 0 || (c->more[i] >= w->stride[i] && c->more[i] >= w->dilation[i])) {
            df_error(cx, DEFT_E_ARG,
                     "%s: %s have output_padding %lld, which is not below stride %lld or dilation "
                     "%lld",
                     c->what, df_side_name(w->n, i), (long long)c->more[i], (long long)w->stride[i],
                     (long long)w->dilation[i]);
            return false;
        }
        const int64_t extent = c->x.dim[2 + i];
        const bool fits = extent > 0 && df_mul_i64(extent - 1, w->stride[i], &n) &&
                          df_mul_i64(w->kernel[i] - 1, w->dilation[i], &reach) &&
                          df_add_i64(n, reach, &n) && df_add_i64(n, c->more[i] + 1, &n) &&
                          df_add_i64(n, -w->padding[i], &n) && df_add_i64(n, -w->padding[i], &n);
        if (!fits || n < 1) {
            df_error(cx, DEFT_E_SHAPE,
                     "%s: %lld %s, window %lld, stride %lld, padding %lld leave no element",
                     c->what, (long long)extent, df_side_name(w->n, i), (long long)w->kernel[i],
                     (long long)w->stride[i], (long long)w->padding[i]);
            return false;
        }
        w->out[i] = n;
    }
    return true;
}

static bool check_shapes(deft_ctx *cx, const conv_call *c)
{
    char x[DF_SHAPE_TEXT], w[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    operand_text(&c->x, x, sizeof x);
    operand_text(&c->w, w, sizeof w);
    const char *const form =
        c->is_transposed ? "[in, out / groups, ...]" : "[out, in / groups, ...]";
    if (c->x.rank < 3 || c->x.rank > 2 + DF_SIDES || c->w.rank != c->x.rank) {
        df_error(cx, DEFT_E_SHAPE,
                 "%s: x is %s, w is %s; it takes [N, in, ...] and %s with one to three sides",
                 c->what, x, w, form);
        return false;
    }
    const int64_t in = c->x.dim[1], g = c->groups;
    const int64_t out = c->is_transposed ? c->w.dim[1] * g : c->w.dim[0];
    const bool fits = c->is_transposed ? in == c->w.dim[0] : g > 0 && in / g == c->w.dim[1];
    if (g < 1 || in % g || out % g || !fits) {
        df_error(cx, DEFT_E_SHAPE, "%s: x is %s, w is %s, which do not fit in %lld groups as %s",
                 c->what, x, w, (long long)g, form);
        return false;
    }
    const deft_shape bias = deft_shape_get(c->bias);
    if (c->bias && (bias.rank != 1 || bias.dim[0] != out)) {
        operand_text(&bias, b, sizeof b);
        df_error(cx, DEFT_E_SHAPE, "%s: bias is %s, w is %s; it must be [%lld]", c->what, b, w,
                 (long long)out);
        return false;
    }
    return true;
}

/* Checks the operands and options of a call. Returns NULL with the error recorded. */
static deft_ctx *begin_conv(conv_call *c, deft_tensor *x, deft_tensor *w,
                            const deft_conv_options *options, uintptr_t site)
{
    uint32_t node;
    df_shape s;
    deft_conv_options o;
    deft_ctx *const cx = df_begin(c->what, x, &node, &s, site);
    if (!cx || df_operand(cx, c->what, 2, w) == DF_BAD) return NULL;
    if (options && !df_check_options(cx, c->what, "deft_conv_options", options->size)) return NULL;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (o.bias && df_operand(cx, c->what, 3, o.bias) == DF_BAD) return NULL;
    c->x = deft_shape_get(x);
    c->w = deft_shape_get(w);
    c->groups = o.groups ? o.groups : 1;
    c->bias = o.bias;
    if (!check_shapes(cx, c)) return NULL;
    c->slide.n = c->x.rank - 2;
    for (uint32_t i = 0; i < c->slide.n; i++) {
        c->slide.kernel[i] = c->w.dim[2 + i];
        c->slide.stride[i] = df_slide_option(o.stride, i, 1);
        c->slide.dilation[i] = df_slide_option(o.dilation, i, 1);
        c->slide.padding[i] = o.padding[i];
        c->more[i] = o.output_padding[i];
        if (!c->is_transposed && c->more[i])
            return df_error(cx, DEFT_E_ARG, "%s: output_padding is of deft_conv_transpose alone",
                            c->what);
    }
    if (!df_check_padding(cx, c->what, o.padding, c->slide.n, o.written)) return NULL;
    if (!df_slide_check(cx, c->what, &c->slide)) return NULL;
    if (c->is_transposed) return fit_transposed(cx, c) ? cx : NULL;
    return df_slide_fit(cx, c->what, &s, &c->slide) ? cx : NULL;
}

/* ---- convolution ---- */

/* The options of deft_conv2d for the last two sides; one side has rows of its own. */
static deft_conv2d_options conv2d_options(const df_slide *w, int64_t groups, deft_tensor *bias)
{
    deft_conv2d_options o = { .size = sizeof o, .groups = groups, .bias = bias };
    const uint32_t skip = w->n > 2 ? w->n - 2 : 0;
    o.stride[0] = o.dilation[0] = 1;
    for (uint32_t i = 0; i < w->n - skip; i++) {
        const uint32_t at = w->n == 1 ? 1 : i;
        o.stride[at] = w->stride[skip + i];
        o.padding[at] = w->padding[skip + i];
        o.dilation[at] = w->dilation[skip + i];
    }
    return o;
}

/* The planes of x under each window, as channels: [N * Do, C * kd, H, W]. */
static deft_tensor *planes_as_channels(deft_tensor *x, const df_slide *w)
{
    const int64_t pad[5] = { 0, 0, w->padding[0] }, kernel = w->kernel[0];
    const size_t size = (size_t)kernel * sizeof(deft_tensor *);
    const deft_shape s = deft_shape_get(x);
    const deft_axes order = deft_axes_of(5, (const int[]){ 0, 2, 1, 3, 4 });
    deft_ctx *const cx = deft_ctx_of(x);
    deft_tensor **const plane = df_mem_alloc(df_ctx_mem(cx), size);
    if (!plane)
        return df_error(cx, DEFT_E_MEMORY, "conv: no memory for %lld planes", (long long)kernel);
    if (w->padding[0]) x = deft_pad_i(x, pad, pad, DEFT_PAD_CONSTANT, 0);
    for (int64_t t = 0; t < kernel; t++) {
        const int64_t from = t * w->dilation[0];
        const deft_range range[] = { DEFT_FULL, DEFT_FULL,
                                     deft_range_of(from, from + (w->out[0] - 1) * w->stride[0] + 1,
                                                   w->stride[0]) };
        plane[t] = deft_permute(deft_slice_n(x, 3, range), order);
    }
    deft_tensor *const joined = deft_stack(plane, (size_t)kernel, 3);
    df_mem_free(df_ctx_mem(cx), plane, size);
    return deft_reshape(joined,
                        deft_shape_of(4, (const int64_t[]){ s.dim[0] * w->out[0], s.dim[1] * kernel,
                                                            s.dim[3], s.dim[4] }));
}

/* The convolution of x and weights w, [out, in / groups, ...], which fit. */
static deft_tensor *convolved(deft_tensor *x, deft_tensor *w, const df_slide *slide, int64_t groups,
                              deft_tensor *bias)
{
    const deft_conv2d_options o = conv2d_options(slide, groups, bias);
    if (slide->n == 2) return deft_conv2d(x, w, &o);
    if (slide->n == 1) {
        deft_tensor *const y = deft_conv2d(deft_unsqueeze(x, 2), deft_unsqueeze(w, 2), &o);
        return deft_squeeze(y, deft_axes_of(1, (const int[]){ 2 }));
    }
    const deft_shape s = deft_shape_get(w);
    const deft_shape flat =
        deft_shape_of(4, (const int64_t[]){ s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4] });
    const int64_t n = deft_dim(x, 0);
    deft_tensor *const y = deft_conv2d(planes_as_channels(x, slide), deft_reshape(w, flat), &o);
    const deft_shape parted = deft_shape_of(
        5, (const int64_t[]){ n, slide->out[0], s.dim[0], slide->out[1], slide->out[2] });
    return deft_permute(deft_reshape(y, parted), deft_axes_of(5, (const int[]){ 0, 2, 1, 3, 4 }));
}

static deft_tensor *conv(const conv_call *c, deft_tensor *x, deft_tensor *w)
{
    return convolved(x, w, &c->slide, c->groups, c->bias);
}

/* ---- transposed convolution ---- */

/* The elements stride * q + m of the result along one side. */
typedef struct conv_phase {
    int64_t n_taps, last_tap, step; /* taps last_tap, last_tap - step, .. */
    int64_t start, dilation;        /* of the windows of x */
    int64_t n;                      /* elements */
} conv_phase;

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

static conv_phase conv_phase_of(const df_slide *w, uint32_t i, int64_t m)
{
    const int64_t s = w->stride[i], d = w->dilation[i], u = m + w->padding[i];
    conv_phase p = { .step = s / common_divisor(s, d),
                     .n = m < w->out[i] ? (w->out[i] - 1 - m) / s + 1 : 0 };
    int64_t first = 0;
    const int64_t end = w->kernel[i] < p.step ? w->kernel[i] : p.step;
    while (first < end && (u - first * d) % s) first++;
    if (first < end) {
        p.n_taps = (w->kernel[i] - 1 - first) / p.step + 1;
        p.last_tap = first + (p.n_taps - 1) * p.step;
    }
    p.start = (u - p.last_tap * d) / s;
    p.dilation = p.step * d / s;
    return p;
}

/* w [in, out / groups, ...] as [out, in / groups, ...]. */
static deft_tensor *turned_weights(deft_tensor *w, int64_t groups)
{
    deft_shape s = deft_shape_get(w);
    if (groups == 1) return deft_transpose(w, 0, 1);
    const int64_t in = s.dim[0] / groups, out = s.dim[1];
    deft_shape parted = { .rank = s.rank + 1, .dim = { groups, in, out } };
    for (uint32_t i = 2; i < s.rank; i++) parted.dim[i + 1] = s.dim[i];
    s.dim[0] = out * groups;
    s.dim[1] = in;
    return deft_reshape(deft_transpose(deft_reshape(w, parted), 1, 2), s);
}

/* Elements [start, start + n) of each side of x, which are zeros beyond its ends. */
static deft_tensor *windowed(deft_tensor *x, const int64_t *start, const int64_t *n, uint32_t sides)
{
    const deft_shape s = deft_shape_get(x);
    int64_t before[DEFT_MAX_RANK] = { 0 }, behind[DEFT_MAX_RANK] = { 0 };
    deft_range range[DEFT_MAX_RANK] = { DEFT_FULL, DEFT_FULL };
    bool has_padding = false;
    for (uint32_t i = 0; i < sides; i++) {
        const int64_t extent = s.dim[2 + i], end = start[i] + n[i];
        const int64_t from = start[i] < 0 ? 0 : start[i] > extent ? extent : start[i];
        const int64_t to = end > extent ? extent : end < from ? from : end;
        range[2 + i] = deft_range_of(from, to, 1);
        before[2 + i] = start[i] < 0 ? (to > from ? -start[i] : n[i]) : 0;
        behind[2 + i] = n[i] - before[2 + i] - (to - from);
        has_padding = has_padding || before[2 + i] || behind[2 + i];
    }
    x = deft_slice_n(x, 2 + sides, range);
    return has_padding ? deft_pad_i(x, before, behind, DEFT_PAD_CONSTANT, 0) : x;
}

/* The phase p of the result. w: turned weights. */
static deft_tensor *phase_of_result(const conv_call *c, deft_tensor *x, deft_tensor *w,
                                    const conv_phase *p)
{
    df_slide slide = { .n = c->slide.n };
    int64_t start[DF_SIDES], n[DF_SIDES];
    deft_range taps[2 + DF_SIDES] = { DEFT_FULL, DEFT_FULL };
    for (uint32_t i = 0; i < slide.n; i++) {
        slide.kernel[i] = p[i].n_taps;
        slide.stride[i] = 1;
        slide.dilation[i] = p[i].dilation;
        slide.out[i] = p[i].n;
        start[i] = p[i].start;
        n[i] = (p[i].n_taps - 1) * p[i].dilation + p[i].n;
        taps[2 + i] = deft_range_of(p[i].last_tap, DEFT_END, -p[i].step);
    }
    return convolved(windowed(x, start, n, slide.n), deft_slice_n(w, 2 + slide.n, taps), &slide,
                     c->groups, NULL);
}

/* `sum` with a phase of the result written to its elements. */
static uint32_t put_phase_at(deft_ctx *cx, uint32_t sum, uint32_t part, const int64_t *m,
                             const df_slide *w, uintptr_t site)
{
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK] = { 1, 1 };
    df_shape s;
    if (sum == DF_BAD || part == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, part, &s);
    for (uint32_t i = 0; i < w->n; i++) {
        start[2 + i] = m[i];
        step[2 + i] = w->stride[i];
    }
    const uint32_t src[3] = { sum, part, df_slice_node(cx, sum, start, step, &s, site) };
    if (src[2] == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_update, df_dtype_at(cx, sum), 0, src, NULL, 0, NULL, site);
}

/* The result without its bias: all phases, each written to its elements of the result. */
static deft_tensor *joined_phases(deft_ctx *cx, const conv_call *c, deft_tensor *x, deft_tensor *w)
{
    const df_slide *const slide = &c->slide;
    const df_slide phases = { .n = slide->n,
                              .kernel = { slide->stride[0], slide->stride[1], slide->stride[2] } };
    df_shape all = { .rank = c->x.rank, .dim = { c->x.dim[0], c->w.dim[1] * c->groups } };
    bool is_whole = true;
    for (uint32_t i = 0; i < slide->n; i++) {
        is_whole = is_whole && slide->stride[i] == 1;
        all.dim[2 + i] = slide->out[i];
    }
    int64_t m[DF_SIDES] = { 0 };
    /* A handle, because the calls that make a part may compute what is pending. */
    deft_tensor *sum = NULL;
    do {
        conv_phase p[DF_SIDES];
        bool is_empty = false;
        for (uint32_t i = 0; i < slide->n; i++) {
            p[i] = conv_phase_of(slide, i, m[i]);
            is_empty = is_empty || !p[i].n || !p[i].n_taps;
        }
        if (is_empty) continue;
        deft_tensor *const part = phase_of_result(c, x, w, p);
        if (is_whole || !part) return part;
        const uint32_t node = df_node_of(cx, part);
        if (node == DF_BAD) return NULL;
        const uint32_t before =
            sum ? df_node_of(cx, sum)
                : df_expand_to(cx, df_cst(cx, df_dtype_at(cx, node), 0, 0), &all, 0);
        sum = df_result(cx, put_phase_at(cx, before, node, m, slide, 0));
        if (!sum) return NULL;
    } while (df_slide_next(&phases, m));
    if (sum) return sum;
    /* No weight reaches an element: with padding, the result may lie between the windows. */
    const deft_dtype t = deft_promote(deft_dtype_of(x), deft_dtype_of(w));
    return df_result(cx,
                     df_expand_to(cx, df_cst(cx, df_is_float(t) ? t : DEFT_F32, 0, 0), &all, 0));
}

static deft_tensor *conv_transpose(deft_ctx *cx, const conv_call *c, deft_tensor *x, deft_tensor *w)
{
    deft_tensor *const y = joined_phases(cx, c, x, turned_weights(w, c->groups));
    if (!c->bias || !y) return y;
    deft_shape s = { .rank = c->x.rank - 1, .dim = { deft_numel(c->bias), 1, 1, 1 } };
    return deft_add(y, deft_cast(deft_reshape(c->bias, s), deft_dtype_of(y)));
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_tensor *deft_conv(deft_tensor *x, deft_tensor *w, const deft_conv_options *options)
{
    conv_call c = { .what = "conv" };
    deft_ctx *const cx = begin_conv(&c, x, w, options, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, conv(&c, x, w));
}

deft_tensor *deft_conv_transpose(deft_tensor *x, deft_tensor *w, const deft_conv_options *options)
{
    conv_call c = { .what = "conv_transpose", .is_transposed = true };
    deft_ctx *const cx = begin_conv(&c, x, w, options, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, conv_transpose(cx, &c, x, w));
}
