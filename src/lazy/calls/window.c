/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that slide a window over images: convolution and pooling (deft/layers.h).
 * The elements under one position of the window, for all windows together, are a slice
 * whose step is the stride. A pool combines the kh * kw slices one after another, in one
 * kernel. A convolution puts them next to each other ("im2col", Chellapilla, Puri, Simard
 * 2006) for one product over all channels and positions:
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

#include <math.h>
#include <string.h>

enum {
    H = 2,
    W = 3,
    MAX_PLACES = 65536,
    NEAR_EDGE = 4 /* positions of a window whose conditions are recorded once */
};

/* The window and how it moves. Index 0 is for rows, 1 for columns; `out` is the number of
 * windows. */
typedef struct window {
    int64_t kernel[2], stride[2], padding[2], dilation[2], out[2];
} window;

/* The same window, which moves over images that are padded. */
static df_window over_padded(const window *w)
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

/* Checks the window and sets w->out for images of shape s. */
static bool fit(deft_ctx *cx, const char *what, const df_shape *s, window *w)
{
    for (int i = 0; i < 2; i++) {
        const char *const side = i ? "columns" : "rows";
        int64_t reach, room;
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->padding[i] < 0) {
            df_error(cx, DEFT_E_ARG,
                     "%s: %s have kernel %lld, stride %lld, padding %lld, dilation %lld", what,
                     side, (long long)w->kernel[i], (long long)w->stride[i],
                     (long long)w->padding[i], (long long)w->dilation[i]);
            return false;
        }
        if (!df_mul_i64(w->dilation[i], w->kernel[i] - 1, &reach) ||
            !df_add_i64(w->padding[i], w->padding[i], &room) ||
            !df_add_i64(room, s->dim[H + i], &room) || reach >= room) {
            df_error(cx, DEFT_E_SHAPE,
                     "%s: a window of %lld %s, dilation %lld, does not fit into %lld with %lld of "
                     "padding on either side",
                     what, (long long)w->kernel[i], side, (long long)w->dilation[i],
                     (long long)s->dim[H + i], (long long)w->padding[i]);
            return false;
        }
        w->out[i] = (room - reach - 1) / w->stride[i] + 1;
    }
    int64_t places;
    if (df_mul_i64(w->kernel[0], w->kernel[1], &places) && places <= MAX_PLACES) return true;
    df_error(cx, DEFT_E_LIMIT, "%s: a window of %lld by %lld, at most %d elements", what,
             (long long)w->kernel[0], (long long)w->kernel[1], (int)MAX_PLACES);
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

/* The images a, padded with `fill`. */
static uint32_t padded_images(deft_ctx *cx, uint32_t a, const window *w, uint32_t fill,
                              uintptr_t site)
{
    if (a == DF_BAD || (!w->padding[0] && !w->padding[1])) return a;
    const int64_t before[4] = { 0, 0, w->padding[0], w->padding[1] };
    df_shape s;
    df_rec_shape(&cx->rec, a, &s);
    s.dim[H] += 2 * w->padding[0];
    s.dim[W] += 2 * w->padding[1];
    return df_surround(cx, a, before, fill, &s, site);
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
    window slide;
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
    return fit(cx, "conv2d", &c->x, &c->slide);
}

/* All windows of x, as df_windows_of gives them. */
static uint32_t windows(deft_ctx *cx, const conv *c, uint32_t x, uintptr_t site)
{
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, x), 0, site);
    const uint32_t padded = padded_images(cx, x, &c->slide, zero, site);
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

static int64_t or_one(int64_t n)
{
    return n ? n : 1;
}

/* The number for one side of an option of two numbers, where 0 has no meaning. The first
 * is for rows, and for columns too when the second is 0. */
static int64_t of_side(const int64_t pair[2], int side)
{
    return side == 1 && pair[1] == 0 ? pair[0] : pair[side];
}

/* Whether `.padding =` in the text of a macro's arguments is followed by a number without
 * braces. Such a number sets only the rows, but looks as if it set both. */
static bool has_bare_padding(const char *written)
{
    const char *at = written ? strstr(written, ".padding") : NULL;
    if (!at) return false;
    at += strlen(".padding");
    at += strspn(at, " ");
    if (*at != '=') return false;
    return *(at + 1 + strspn(at + 1, " ")) != '{';
}

static bool check_padding(deft_ctx *cx, const char *what, const int64_t padding[2],
                          const char *written)
{
    if (padding[0] == 0 || padding[1] != 0 || !has_bare_padding(written)) return true;
    df_error(cx, DEFT_E_ARG,
             "%s: .padding = %lld is of rows alone: write { %lld, %lld } for both, or { %lld, 0 }",
             what, (long long)padding[0], (long long)padding[0], (long long)padding[0],
             (long long)padding[0]);
    return false;
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
    c.groups = or_one(o.groups);
    c.slide = (window){ .padding = { o.padding[0], o.padding[1] } };
    for (int i = 0; i < 2; i++) {
        c.slide.stride[i] = or_one(of_side(o.stride, i));
        c.slide.dilation[i] = or_one(of_side(o.dilation, i));
    }
    if (!check_padding(cx, "conv2d", o.padding, o.written) || !check_conv(cx, &c)) return NULL;
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

/* ---- pooling ---- */

static bool check_pool(deft_ctx *cx, const char *what, uint32_t x, const df_shape *s, window *w)
{
    char text[DF_SHAPE_TEXT];
    if (s->rank != 4 || !df_is_float(df_dtype_at(cx, x))) {
        df_error(cx, s->rank == 4 ? DEFT_E_DTYPE : DEFT_E_SHAPE,
                 "%s: x is %s%s; it takes floats, [N, C, H, W]", what,
                 deft_dtype_name(df_dtype_at(cx, x)), df_shape_text(s, text, sizeof text));
        return false;
    }
    if (!fit(cx, what, s, w)) return false;
    for (int i = 0; i < 2; i++) {
        if (w->padding[i] <= w->kernel[i] / 2) continue;
        df_error(cx, DEFT_E_ARG, "%s: padding %lld is more than half of kernel %lld", what,
                 (long long)w->padding[i], (long long)w->kernel[i]);
        return false;
    }
    return true;
}

/* Bools that broadcast to all windows: along one side (rows or columns), those windows in
 * which position i is the first within the image. Window o begins at o * stride -
 * padding. */
static uint32_t begins_with(deft_ctx *cx, const window *w, int side, int64_t i, uintptr_t site)
{
    const int64_t left = w->padding[side] - i, stride = w->stride[side], n = w->out[side];
    const df_shape s = side == 0 ? (df_shape){ .rank = 2, .dim = { n, 1 } }
                                 : (df_shape){ .rank = 1, .dim = { n } };
    const bool is_never = i > 0 && left % stride != 0;
    const int64_t o = is_never ? -1 : (left + stride - 1) / stride;
    const uint32_t at = df_iota_node(cx, &s, 0, site);
    const uint32_t first = df_number_i(cx, "max_pool2d", DEFT_I64, o, site);
    return df_map2(cx, i == 0 ? DF_OP_le : DF_OP_eq, first, at, site);
}

/* What a pool has combined so far. */
typedef struct pooled {
    uint32_t value;
    uint32_t has_nan;              /* max: whether an element so far is NaN */
    uint32_t begins[2][NEAR_EDGE]; /* max: begins_with of each side and position; DF_BAD: not yet */
} pooled;

/* takes | whether position k is the first of its window within the image, after padding
 * alone. Every window has such a position, because padding is at most half of the kernel. */
static uint32_t or_first(deft_ctx *cx, const window *w, int64_t k, pooled *a, uint32_t takes,
                         uintptr_t site)
{
    const int64_t place[2] = { k / w->kernel[1], k % w->kernel[1] };
    if (place[0] > w->padding[0] || place[1] > w->padding[1]) return takes;
    uint32_t first = DF_BAD;
    bool has_side = false;
    for (int i = 0; i < 2; i++) {
        if (w->padding[i] == 0) continue; /* then position 0 is the first of every window */
        const bool is_kept = place[i] < NEAR_EDGE;
        uint32_t by_side = is_kept ? a->begins[i][place[i]] : DF_BAD;
        if (by_side == DF_BAD) by_side = begins_with(cx, w, i, place[i], site);
        if (is_kept) a->begins[i][place[i]] = by_side;
        first = has_side ? df_map2(cx, DF_OP_bitwise_and, first, by_side, site) : by_side;
        has_side = true;
    }
    return has_side ? df_map2(cx, DF_OP_bitwise_or, takes, first, site) : takes;
}

/* b, the element at position k, where it is greater than a, the maximum of the earlier
 * positions; else a. So the first of equal elements stays and gets the gradient. NaN
 * counts as greater than everything else, and equal to NaN. Any element replaces padding,
 * even -infinity.
 *
 * Whether an element so far is NaN is known without the maximum. So the maxima of all positions
 * are one chain of comparisons, each of which waits for nothing but the one before. */
static void greater(deft_ctx *cx, const window *w, int64_t k, pooled *a, uint32_t b, uintptr_t site)
{
    const uint32_t is_nan = df_map1(cx, DF_OP_isnan, b, site);
    const uint32_t is_number_yet = df_map1(cx, DF_OP_logical_not, a->has_nan, site);
    const uint32_t is_first_nan = df_map2(cx, DF_OP_bitwise_and, is_number_yet, is_nan, site);
    const uint32_t is_more = df_map2(cx, DF_OP_lt, a->value, b, site);
    const uint32_t more =
        df_map2(cx, DF_OP_bitwise_or, is_more, or_first(cx, w, k, a, is_first_nan, site), site);
    a->value = df_where(cx, more, b, a->value, site);
    a->has_nan = df_map2(cx, DF_OP_bitwise_or, a->has_nan, is_nan, site);
}

static void sum(deft_ctx *cx, const window *w, int64_t k, pooled *a, uint32_t b, uintptr_t site)
{
    (void)w, (void)k;
    a->value = df_map2(cx, DF_OP_add, a->value, b, site);
}

typedef void (*combine_fn)(deft_ctx *cx, const window *w, int64_t k, pooled *a, uint32_t b,
                           uintptr_t site);

static uint32_t combined(deft_ctx *cx, uint32_t x, const window *w, uint32_t fill,
                         combine_fn combine, uintptr_t site)
{
    const uint32_t a = padded_images(cx, x, w, fill, site);
    const int64_t n = w->kernel[0] * w->kernel[1];
    const df_window over = over_padded(w);
    pooled out = { .value = at_place(cx, a, &over, 0, site), .has_nan = DF_BAD };
    for (int i = 0; i < 2 * NEAR_EDGE; i++) out.begins[i / NEAR_EDGE][i % NEAR_EDGE] = DF_BAD;
    if (combine == greater && n > 1) out.has_nan = df_map1(cx, DF_OP_isnan, out.value, site);
    for (int64_t k = 1; k < n && out.value != DF_BAD; k++)
        combine(cx, w, k, &out, at_place(cx, a, &over, k, site), site);
    return out.value;
}

/* Checks the arguments of a pool, and sets its record and window. NULL with the error
 * recorded. */
static deft_ctx *begin_pool(const char *what, deft_tensor *t, const deft_pool2d_options *options,
                            uint32_t *x, window *w, uintptr_t site)
{
    deft_pool2d_options o;
    df_shape s;
    deft_ctx *const cx = df_begin(what, t, x, &s, site);
    if (!cx) return NULL;
    if (!options) return df_error(cx, DEFT_E_ARG, "%s: options are NULL; a kernel is needed", what);
    if (!df_check_options(cx, what, "deft_pool2d_options", options->size)) return NULL;
    df_take_options(&o, sizeof o, options, options->size);
    *w = (window){ .dilation = { 1, 1 } };
    for (int i = 0; i < 2; i++) {
        const int64_t stride = of_side(o.stride, i);
        w->kernel[i] = of_side(o.kernel, i);
        w->stride[i] = stride ? stride : w->kernel[i];
        w->padding[i] = o.padding[i];
    }
    if (!check_padding(cx, what, o.padding, o.written)) return NULL;
    return check_pool(cx, what, *x, &s, w) ? cx : NULL;
}

deft_tensor *deft_max_pool2d(deft_tensor *x, const deft_pool2d_options *options)
{
    uint32_t a;
    window w;
    deft_ctx *const cx = begin_pool("max_pool2d", x, options, &a, &w, DF_SITE);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t least = df_number_f(cx, "max_pool2d", df_dtype_at(cx, a), -INFINITY, site);
    return df_result(cx, combined(cx, a, &w, least, greater, site));
}

deft_tensor *deft_avg_pool2d(deft_tensor *x, const deft_pool2d_options *options)
{
    uint32_t a;
    window w;
    deft_ctx *const cx = begin_pool("avg_pool2d", x, options, &a, &w, DF_SITE);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const deft_dtype t = df_dtype_at(cx, a);
    const uint32_t total = combined(cx, a, &w, df_cst(cx, t, 0, site), sum, site);
    const uint32_t n = df_cst(cx, t, (int32_t)(w.kernel[0] * w.kernel[1]), site);
    return df_result(cx, df_map2(cx, DF_OP_div, total, n, site));
}
