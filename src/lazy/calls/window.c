/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows that slide over images, and the convolution of images with two axes (deft/layers.h).
 * The elements under one position of the window, for all windows together, are a slice
 * whose step is the stride. A convolution puts the kh * kw slices next to each other ("im2col",
 * Chellapilla, Puri, Simard 2006) for one product over all channels and positions:
 *
 *   windows     [C, kh * kw, N, Ho, Wo]   reshaped to  [C * kh * kw, N * Ho * Wo]
 *   weights     [out, C, kh, kw]          reshaped to  [out, C * kh * kw]
 *   product     [out, N * Ho * Wo]        reshaped to  [out, N, Ho, Wo]
 *   result      [N, out, Ho, Wo]          a view of the product
 *
 * The images are the inner axes, so rows are long whatever the size of an image. Neither
 * the result nor its gradient, which has the same order, is moved. The alternatives are
 * worse. A sum of kh * kw products would read and write the result as often, and the
 * weights' gradients would be many small products. Indices in place of slices would
 * gather where slices copy, and their gradients would scatter.
 *
 * The fuser recognizes this form, and on the CPU the windows are not stored: what is recorded here
 * must be what fuser/kernels/windows.c describes.
 *
 * The gradient of the weights is that of the parts: one product with the same windows. The gradient
 * of x is another convolution (grad/grad_windows.c), or for a window of one element that of the
 * parts.
 */
#include "deft/layers.h"
#include "lazy/calls/compose.h"

#include <stdio.h>
#include <string.h>

enum { H = 2, W = 3, MAX_PLACES = 65536 };

/* The same window, which moves over images that are padded. */
static df_window over_padded(const df_slide *w)
{
    df_window v = { .start = { 0, 0 } };
    for (int i = 0; i < 2; i++) {
        v.kernel[i] = w->kernel[i];
        v.dilation[i] = w->dilation[i];
        v.stride[i] = w->stride[i];
        v.out[i] = w->out[i];
    }
    return v;
}

/* ---- checks ---- */

const char *df_side_name(uint32_t n, uint32_t i)
{
    static const char *const names[DF_SIDES] = { "columns", "rows", "planes" };
    return names[n - 1 - i];
}

bool df_slide_check(deft_ctx *cx, const char *what, const df_slide *w)
{
    int64_t places = 1;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->padding[i] < 0) {
            df_error(cx, DEFT_E_ARG,
                     "%s: %s have kernel %lld, stride %lld, padding %lld, dilation %lld", what,
                     df_side_name(w->n, i), (long long)w->kernel[i], (long long)w->stride[i],
                     (long long)w->padding[i], (long long)w->dilation[i]);
            return false;
        }
    }
    bool few = true;
    for (uint32_t i = 0; i < w->n; i++)
        few = few && df_mul_i64(places, w->kernel[i], &places) && places <= MAX_PLACES;
    if (few) return true;
    char text[80];
    size_t at = 0;
    for (uint32_t i = 0; i < w->n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", i ? " by " : "",
                               (long long)w->kernel[i]);
    df_error(cx, DEFT_E_LIMIT, "%s: a window of %s, at most %d elements", what, text,
             (int)MAX_PLACES);
    return false;
}

bool df_slide_fit(deft_ctx *cx, const char *what, const df_shape *s, df_slide *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        int64_t reach, room;
        const bool fits = df_mul_i64(w->dilation[i], w->kernel[i] - 1, &reach) &&
                          df_add_i64(w->padding[i], w->padding[i], &room) &&
                          df_add_i64(room, s->dim[H + i], &room) && reach < room;
        if (!fits) {
            df_error(cx, DEFT_E_SHAPE,
                     "%s: a window of %lld %s, dilation %lld, does not fit into %lld with %lld of "
                     "padding on either side",
                     what, (long long)w->kernel[i], df_side_name(w->n, i),
                     (long long)w->dilation[i], (long long)s->dim[H + i], (long long)w->padding[i]);
            return false;
        }
        w->out[i] = (room - reach - 1) / w->stride[i] + 1;
    }
    return true;
}

/* ---- options ---- */

int64_t df_slide_option(const int64_t *of, uint32_t i, int64_t otherwise)
{
    if (of[i]) return of[i];
    return of[0] ? of[0] : otherwise;
}

/* Whether `.padding =` in the text of a macro's arguments is followed by a number without
 * braces. Such a number sets only the first side, but looks as if it set all. */
static bool has_bare_padding(const char *written)
{
    const char *at = written ? strstr(written, ".padding") : NULL;
    if (!at) return false;
    at += strlen(".padding");
    at += strspn(at, " ");
    if (*at != '=') return false;
    return *(at + 1 + strspn(at + 1, " ")) != '{';
}

bool df_check_padding(deft_ctx *cx, const char *what, const int64_t *padding, uint32_t n,
                      const char *written)
{
    bool is_first_alone = padding[0] != 0 && n > 1;
    for (uint32_t i = 1; i < n; i++) is_first_alone = is_first_alone && padding[i] == 0;
    if (!is_first_alone || !has_bare_padding(written)) return true;
    const long long p = padding[0];
    const char *const side = df_side_name(n, 0);
    if (n == 2)
        df_error(
            cx, DEFT_E_ARG,
            "%s: .padding = %lld is of %s alone: write { %lld, %lld } for both, or { %lld, 0 }",
            what, p, side, p, p, p);
    else
        df_error(cx, DEFT_E_ARG,
                 "%s: .padding = %lld is of %s alone: write { %lld, %lld, %lld } for all", what, p,
                 side, p, p, p);
    return false;
}

/* ---- slices ---- */

static uint32_t permuted(deft_ctx *cx, uint32_t a, uint32_t perm, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_permute, df_dtype_at(cx, a), perm, &a, NULL, 0, NULL, site);
}

static uint32_t reshaped(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_reshape, df_dtype_at(cx, a), 0, &a, NULL, 0, s, site);
}

uint32_t df_slide_pad(deft_ctx *cx, uint32_t a, const df_slide *w, uint32_t fill, uintptr_t site)
{
    bool has_padding = false;
    int64_t before[DEFT_MAX_RANK] = { 0 };
    df_shape s;
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, a, &s);
    for (uint32_t i = 0; i < w->n; i++) {
        before[H + i] = w->padding[i];
        s.dim[H + i] += 2 * w->padding[i] + w->behind[i];
        has_padding = has_padding || w->padding[i] || w->behind[i];
    }
    return has_padding ? df_surround(cx, a, before, fill, &s, site) : a;
}

bool df_slide_next(const df_slide *w, int64_t at[DF_SIDES])
{
    for (uint32_t i = w->n; i-- > 0;) {
        if (++at[i] < w->kernel[i]) return true;
        at[i] = 0;
    }
    return false;
}

uint32_t df_slide_at(deft_ctx *cx, uint32_t a, const df_slide *w, const int64_t at[DF_SIDES],
                     uintptr_t site)
{
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK] = { 1, 1 };
    df_shape s;
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, a, &s);
    for (uint32_t i = 0; i < w->n; i++) {
        start[H + i] = at[i] * w->dilation[i];
        step[H + i] = w->stride[i];
        s.dim[H + i] = w->out[i];
    }
    return df_slice_node(cx, a, start, step, &s, site);
}

/* Position k of every window of images a. The shape is a's first two axes, then w->out. */
static uint32_t at_place(deft_ctx *cx, uint32_t a, const df_window *w, int64_t k, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    const int64_t start[4] = { 0, 0, w->start[0] + k / w->kernel[1] * w->dilation[0],
                               w->start[1] + k % w->kernel[1] * w->dilation[1] };
    const int64_t step[4] = { 1, 1, w->stride[0], w->stride[1] };
    df_shape s;
    df_rec_shape(&cx->rec, a, &s);
    s.dim[H] = w->out[0];
    s.dim[W] = w->out[1];
    return df_slice_node(cx, a, start, step, &s, site);
}

uint32_t df_windows_of(deft_ctx *cx, uint32_t images, const df_window *w, uintptr_t site)
{
    const int64_t n = w->kernel[0] * w->kernel[1];
    if (images == DF_BAD || n == 1) return at_place(cx, images, w, 0, site);
    const deft_dtype t = df_dtype_at(cx, images);
    df_arena_reset(&cx->pass);
    uint32_t *const piece = df_arena_new(&cx->pass, uint32_t, (size_t)n);
    if (!piece) {
        df_error(cx, DEFT_E_MEMORY, "conv2d: no memory for a window of %lld", (long long)n);
        return DF_BAD;
    }
    for (int64_t k = 0; k < n; k++) {
        const uint32_t a = at_place(cx, images, w, k, site);
        if (a == DF_BAD) return DF_BAD;
        piece[k] = df_append(cx, DF_OP_unsqueeze, t, 2, &a, NULL, 0, NULL, site);
        if (piece[k] == DF_BAD) return DF_BAD;
    }
    return df_join(cx, piece, (size_t)n, 1, site);
}

/* ---- convolution ---- */

typedef struct conv {
    df_shape x, w, bias;
    df_slide slide;
    int64_t groups;
    uint32_t bias_node; /* DF_BAD: none */
} conv;

static bool check_conv(deft_ctx *cx, conv *c)
{
    char x[DF_SHAPE_TEXT], w[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    df_shape_text(&c->x, x, sizeof x);
    df_shape_text(&c->w, w, sizeof w);
    if (c->x.rank != 4 || c->w.rank != 4) {
        df_error(cx, DEFT_E_SHAPE,
                 "conv2d: x is %s, w is %s; it takes [N, in, H, W] and [out, in / groups, kh, kw]",
                 x, w);
        return false;
    }
    const int64_t in = c->x.dim[1], out = c->w.dim[0], g = c->groups;
    if (g < 1 || in % g || out % g || in / g != c->w.dim[1]) {
        df_error(cx, DEFT_E_SHAPE,
                 "conv2d: x is %s, w is %s: %lld groups need channels in %lld times as many as w "
                 "has on axis 1, and both in and out divisible by %lld",
                 x, w, (long long)g, (long long)g, (long long)g);
        return false;
    }
    if (c->bias_node != DF_BAD && (c->bias.rank != 1 || c->bias.dim[0] != out)) {
        df_error(cx, DEFT_E_SHAPE, "conv2d: bias is %s, w is %s; it must be [%lld]",
                 df_shape_text(&c->bias, b, sizeof b), w, (long long)out);
        return false;
    }
    c->slide.kernel[0] = c->w.dim[2];
    c->slide.kernel[1] = c->w.dim[3];
    return df_slide_check(cx, "conv2d", &c->slide) && df_slide_fit(cx, "conv2d", &c->x, &c->slide);
}

/* All windows of x, as df_windows_of gives them. */
static uint32_t windows(deft_ctx *cx, const conv *c, uint32_t x, uintptr_t site)
{
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, x), 0, site);
    const uint32_t padded = df_slide_pad(cx, x, &c->slide, zero, site);
    const df_window over = over_padded(&c->slide);
    return df_windows_of(cx, permuted(cx, padded, 0x3201, site), &over, site);
}

/* The product, [out, N, Ho, Wo]. A single group has no axis of its own. */
static uint32_t conv_product(deft_ctx *cx, const conv *c, uint32_t columns, uint32_t w,
                             uintptr_t site)
{
    const int64_t *const o = c->slide.out, g = c->groups, out = c->w.dim[0], n = c->x.dim[0];
    const int64_t depth = c->w.dim[1] * c->w.dim[2] * c->w.dim[3];
    const df_shape a = { .rank = 3, .dim = { g, out / g, depth } };
    const df_shape b = { .rank = 3, .dim = { g, depth, n * o[0] * o[1] } };
    const df_shape a1 = { .rank = 2, .dim = { out, depth } };
    const df_shape b1 = { .rank = 2, .dim = { depth, n * o[0] * o[1] } };
    const df_shape images = { .rank = 4, .dim = { out, n, o[0], o[1] } };
    const uint32_t src[2] = { reshaped(cx, w, g == 1 ? &a1 : &a, site),
                              reshaped(cx, columns, g == 1 ? &b1 : &b, site) };
    if (src[0] == DF_BAD || src[1] == DF_BAD) return DF_BAD;
    return reshaped(cx,
                    df_append(cx, DF_OP_matmul, df_dtype_at(cx, w), 0, src, NULL, 0, NULL, site),
                    &images, site);
}

/* r [out, N, Ho, Wo] with the bias added. */
static uint32_t biased(deft_ctx *cx, const conv *c, uint32_t r, uintptr_t site)
{
    if (c->bias_node == DF_BAD || r == DF_BAD) return r;
    const df_shape s = { .rank = 4, .dim = { c->w.dim[0], 1, 1, 1 } };
    const uint32_t b = df_to(cx, c->bias_node, df_dtype_at(cx, r), site);
    return df_map2(cx, DF_OP_add, r, reshaped(cx, b, &s, site), site);
}

/* Record and shape of an operand after the first. */
static bool enter_window_operand(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t,
                                 uint32_t *node, df_shape *s)
{
    if (!df_enter_more(cx, what, which, t)) return false;
    *node = df_node_of(cx, t);
    if (*node != DF_BAD) df_rec_shape(&cx->rec, *node, s);
    return *node != DF_BAD;
}

deft_tensor *deft_conv2d(deft_tensor *x, deft_tensor *w, const deft_conv2d_options *options)
{
    deft_conv2d_options o;
    conv c = { .bias_node = DF_BAD };
    uint32_t nx, nw;
    deft_ctx *const cx = df_begin("conv2d", x, &nx, &c.x, DF_SITE);
    if (!cx || !enter_window_operand(cx, "conv2d", 2, w, &nw, &c.w)) return NULL;
    if (options && !df_check_options(cx, "conv2d", "deft_conv2d_options", options->size))
        return NULL;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (o.bias && !enter_window_operand(cx, "conv2d", 3, o.bias, &c.bias_node, &c.bias))
        return NULL;
    c.groups = o.groups ? o.groups : 1;
    c.slide = (df_slide){ .n = 2, .padding = { o.padding[0], o.padding[1] } };
    for (uint32_t i = 0; i < 2; i++) {
        c.slide.stride[i] = df_slide_option(o.stride, i, 1);
        c.slide.dilation[i] = df_slide_option(o.dilation, i, 1);
    }
    if (!df_check_padding(cx, "conv2d", o.padding, 2, o.written) || !check_conv(cx, &c))
        return NULL;
    const uintptr_t site = DF_SITE;
    nx = df_mixed_operand(cx, DF_OP_matmul, nx, site);
    nw = df_mixed_operand(cx, DF_OP_matmul, nw, site);
    if (nx == DF_BAD || nw == DF_BAD) return NULL;
    deft_dtype t;
    if (!df_common_dtype(cx, "conv2d", df_dtype_at(cx, nx), df_dtype_at(cx, nw), &t)) return NULL;
    if (!df_is_float(t)) t = DEFT_F32;
    nx = df_to(cx, nx, df_arithmetic_dtype(t), site);
    nw = df_to(cx, nw, df_arithmetic_dtype(t), site);
    if (nx == DF_BAD || nw == DF_BAD) return NULL;
    const uint32_t r = conv_product(cx, &c, windows(cx, &c, nx, site), nw, site);
    return df_result(cx, df_to(cx, permuted(cx, biased(cx, &c, r, site), 0x3201, site), t, site));
}
