/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of images whose windows a product reads, as in a convolution. It is a convolution of
 * its own. The gradient of the parts would be a product with kh * kw rows for each channel. These
 * rows would then be added to zeros, slice by slice.
 *
 * Along one side of the images, window o shows under tap t the element
 *
 *   i = stride * o + dilation * t + start - before
 *
 * where `before` is the padding. The gradient of element i is a sum over all (o, t) that show it.
 * With u = i + before - start, these are the taps for which u - dilation * t is a multiple of the
 * stride. So they are equal for all i whose u has the same remainder. The elements of one remainder
 * are a *phase*. The gradient of a phase is a convolution of the gradient of the windows that moves
 * by 1 and has the taps of the phase in reverse order. Nothing is multiplied by the zeros that a
 * stride would put between windows.
 *
 *   dy       [out, N, Ho, Wo], padded
 *   weights  [out, C * T]             the taps of the phase, as [C, out * T']
 *   product  [C, N * rows * columns]  the phase, which is written to its place in the gradient
 *
 * The order of each sum is (channel of dy, tap from the last to the first), and padding takes part
 * as in every convolution (docs/decisions/convolution.md).
 */
#include "lazy/calls/compose.h"
#include "lazy/grad/grad.h"

enum {
    MANY_ROWS = 8, /* products of so many rows hide what it takes to pack windows */
    WIDER = 4      /* with fewer rows, dy has at most so many times as many channels */
};

/* How windows move along one side of the images. */
typedef struct side {
    int64_t kernel, dilation, stride;
    int64_t offset; /* before - start */
    int64_t extent; /* of the images, without padding */
    int64_t out;    /* windows */
} side;

/* The elements of one remainder along one side. */
typedef struct phase {
    int64_t n_taps, last_tap, step; /* taps last_tap, last_tap - step, .. */
    int64_t first, n;               /* elements first, first + stride, .. of the images */
    int64_t start, dilation;        /* of the windows of dy, from dy's first element on */
} phase;

/* A product whose operand 1 shows windows. */
typedef struct shown {
    uint32_t images; /* what gets the gradient: [C, N, H, W], or [N, C, H, W] if is_permuted */
    bool is_permuted;
    int64_t groups, channels, out, n; /* channels and out are those of a group */
    side side[2];                     /* rows, columns */
} shown;

/* ---- what a product reads ---- */

/* Whether the gradient of record k itself has to be recorded. */
static bool is_gradient_wanted(const df_grad *w, uint32_t k)
{
    return k - w->from < w->n && w->flags[k - w->from] & (DF_GRAD_ASKED | DF_GRAD_ANNOTATED);
}

static const df_node *grad_node(const df_grad *w, uint32_t k)
{
    return &w->cx->rec.nodes[k];
}

static const int64_t *grad_extents(const df_grad *w, uint32_t k)
{
    return df_rec_extents(&w->cx->rec, k);
}

/* start and step for each axis of slice k */
static const int64_t *slice_places(const df_grad *w, uint32_t k)
{
    return w->cx->rec.args + grad_node(w, k)->arg;
}

/* Whether slice k shows all of the first two axes of its operand. */
static bool is_full_before_sides(const df_grad *w, uint32_t k)
{
    const int64_t *const at = slice_places(w, k);
    const int64_t *const of = grad_extents(w, grad_node(w, k)->src[0].i), *const is =
                                                                              grad_extents(w, k);
    for (int i = 0; i < 2; i++)
        if (at[2 * i] != 0 || at[2 * i + 1] != 1 || is[i] != of[i]) return false;
    return true;
}

/* Whether update k writes row t of axis 1, and its value is a slice that shows all channels and
 * images. Sets *slice. */
static bool is_recorded_tap(const df_grad *w, uint32_t k, int64_t t, uint32_t *slice)
{
    const df_node *const n = grad_node(w, k);
    if (n->op != DF_OP_update || n->rank != 5 || is_gradient_wanted(w, k)) return false;
    const uint32_t value = n->src[1].i, place = n->src[2].i;
    const df_node *const v = grad_node(w, value), *const p = grad_node(w, place);
    if (v->op != DF_OP_unsqueeze || v->attr != 1u << 1 || is_gradient_wanted(w, value))
        return false;
    if (p->op != DF_OP_slice || p->src[0].i != n->src[0].i || grad_extents(w, place)[1] != 1)
        return false;
    const int64_t *const at = slice_places(w, place);
    for (int i = 0; i < 5; i++)
        if (at[2 * i] != (i == 1 ? t : 0) ||
            (i != 1 && grad_extents(w, place)[i] != grad_extents(w, k)[i]))
            return false;
    *slice = v->src[0].i;
    return grad_node(w, *slice)->op == DF_OP_slice && !is_gradient_wanted(w, *slice) &&
           is_full_before_sides(w, *slice);
}

/* Where slice k begins on the given side, and by how much it moves. */
static int64_t start_at(const df_grad *w, uint32_t k, int i)
{
    return slice_places(w, k)[2 * (2 + i)];
}

static int64_t stride_at(const df_grad *w, uint32_t k, int i)
{
    return slice_places(w, k)[2 * (2 + i) + 1];
}

/* Whether the taps form a grid of rows and columns. Sets kernel, dilation, stride and start. The
 * start goes to `offset`. */
static bool is_grid(const df_grad *w, const uint32_t *slice, int64_t n, side of[2])
{
    int64_t columns = 1;
    while (columns < n && start_at(w, slice[columns], 0) == start_at(w, slice[0], 0)) columns++;
    const int64_t rows = n / columns;
    if (rows * columns != n) return false;
    for (int i = 0; i < 2; i++) {
        const int64_t next = i ? 1 : columns;
        of[i].kernel = i ? columns : rows;
        of[i].offset = start_at(w, slice[0], i);
        of[i].stride = stride_at(w, slice[0], i);
        of[i].dilation = of[i].kernel > 1 ? start_at(w, slice[next], i) - of[i].offset : 1;
        if (of[i].stride < 1 || of[i].dilation < 1) return false;
    }
    for (int64_t t = 0; t < n; t++)
        for (int i = 0; i < 2; i++) {
            const int64_t at = of[i].offset + (i ? t % columns : t / columns) * of[i].dilation;
            if (start_at(w, slice[t], i) != at || stride_at(w, slice[t], i) != of[i].stride)
                return false;
        }
    return true;
}

/* Finds the images behind the joined windows `joined`, and how the window moves. */
static bool match_recorded_join(df_grad *w, uint32_t joined, shown *s)
{
    int64_t n = 0;
    uint32_t base = joined;
    for (; grad_node(w, base)->op == DF_OP_update; base = grad_node(w, base)->src[0].i) n++;
    if (grad_node(w, joined)->rank != 5 || grad_node(w, base)->op != DF_OP_empty) return false;
    if (n < 2 || grad_extents(w, joined)[1] != n) return false;
    df_arena_reset(&w->cx->pass);
    uint32_t *const slice = df_arena_new(&w->cx->pass, uint32_t, (size_t)n);
    if (!slice) return false; /* then the gradient is that of the parts */
    uint32_t at = joined;
    for (int64_t t = n; t-- > 0; at = grad_node(w, at)->src[0].i)
        if (!is_recorded_tap(w, at, t, &slice[t])) return false;
    s->images = grad_node(w, slice[0])->src[0].i;
    for (int64_t t = 1; t < n; t++)
        if (grad_node(w, slice[t])->src[0].i != s->images) return false;
    return is_grid(w, slice, n, s->side);
}

/* Goes from the images that windows show to those without padding. */
static void skip_padding(const df_grad *w, shown *s)
{
    uint32_t k = s->images;
    const df_node *n = grad_node(w, k);
    int64_t before[2] = { 0, 0 };
    s->is_permuted = n->op == DF_OP_permute && n->attr == 0x3201 && !is_gradient_wanted(w, k);
    if (s->is_permuted) n = grad_node(w, k = n->src[0].i);
    if (n->op == DF_OP_update && !is_gradient_wanted(w, k) && !df_grad_is_active(w, n->src[0].i)) {
        const uint32_t place = n->src[2].i;
        const bool is_slice =
            grad_node(w, place)->op == DF_OP_slice && grad_node(w, place)->src[0].i == n->src[0].i;
        if (is_slice && is_full_before_sides(w, place) && stride_at(w, place, 0) == 1 &&
            stride_at(w, place, 1) == 1) {
            for (int i = 0; i < 2; i++) before[i] = start_at(w, place, i);
            k = n->src[1].i;
        }
    }
    s->images = k;
    for (int i = 0; i < 2; i++) {
        s->side[i].offset = before[i] - s->side[i].offset;
        s->side[i].extent = grad_extents(w, k)[2 + i];
    }
}

/* Whether operand 1 of product k shows windows, and a convolution is the best way to the gradient
 * of their images. */
static bool match_windows(df_grad *w, uint32_t k, shown *s)
{
    const uint32_t a = df_grad_src(w, k, 0), b = df_grad_src(w, k, 1);
    const uint32_t rank = grad_node(w, b)->rank;
    if (grad_node(w, b)->op != DF_OP_reshape || rank > 3 || is_gradient_wanted(w, b)) return false;
    const uint32_t joined = grad_node(w, b)->src[0].i;
    *s = (shown){ .groups = rank == 3 ? grad_extents(w, k)[0] : 1 };
    if (grad_node(w, joined)->rank != 5 || !match_recorded_join(w, joined, s)) return false;
    const int64_t *const e = grad_extents(w, joined);
    int64_t numel = e[2];
    for (int i = 0; i < 2; i++) {
        s->side[i].out = e[3 + i];
        numel *= e[3 + i];
    }
    if (numel == 0 || e[0] == 0 || numel != grad_extents(w, b)[rank - 1]) return false;
    s->n = e[2];
    s->channels = e[0] / s->groups;
    s->out = grad_extents(w, a)[rank - 2];
    if (s->out == 0 || (s->channels < MANY_ROWS && s->out > WIDER * s->channels)) return false;
    skip_padding(w, s);
    return s->side[0].extent > 0 && s->side[1].extent > 0;
}

/* ---- phases ---- */

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* a / b, rounded down. b is positive. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* The phase of the elements i for which i + offset has remainder r. */
static phase phase_of(const side *s, int64_t r)
{
    phase p = { .step = s->stride / greatest_common_divisor(s->stride, s->dilation) };
    int64_t first = 0;
    while (first < s->kernel && first < p.step && (r - first * s->dilation) % s->stride) first++;
    if (first < s->kernel && first < p.step) {
        p.n_taps = (s->kernel - 1 - first) / p.step + 1;
        p.last_tap = first + (p.n_taps - 1) * p.step;
    }
    const int64_t a0 = -floor_div(r - s->offset, s->stride);
    p.first = s->stride * a0 + r - s->offset;
    p.n = p.first < s->extent ? (s->extent - 1 - p.first) / s->stride + 1 : 0;
    p.start = a0 + (r - p.last_tap * s->dilation) / s->stride;
    p.dilation = p.step * s->dilation / s->stride;
    return p;
}

/* How far the windows of all phases reach before and behind dy along one side. */
static void reach_of(const side *s, int64_t *before, int64_t *behind)
{
    *before = *behind = 0;
    for (int64_t r = 0; r < s->stride; r++) {
        const phase p = phase_of(s, r);
        if (p.n == 0 || p.n_taps == 0) continue;
        const int64_t end = p.start + (p.n_taps - 1) * p.dilation + p.n;
        *before = df_max_i64(*before, -p.start);
        *behind = df_max_i64(*behind, end - s->out);
    }
}

/* ---- recording ---- */

static uint32_t reshaped_to(df_grad *w, uint32_t a, const df_shape *s)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_reshape, df_dtype_at(w->cx, a), 0, &a, NULL, 0, s, w->site);
}

static uint32_t permuted_axes(df_grad *w, uint32_t a, uint32_t perm)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_permute, df_dtype_at(w->cx, a), perm, &a, NULL, 0, NULL, w->site);
}

/* The gradient g of the product as images, with zeros around them. */
static uint32_t padded_gradient(df_grad *w, const shown *s, uint32_t g, int64_t before[2])
{
    int64_t behind[2];
    df_shape images = { .rank = 4, .dim = { s->groups * s->out, s->n } };
    for (int i = 0; i < 2; i++) {
        images.dim[2 + i] = s->side[i].out;
        reach_of(&s->side[i], &before[i], &behind[i]);
    }
    const uint32_t dy = reshaped_to(w, g, &images);
    if (dy == DF_BAD || (!before[0] && !before[1] && !behind[0] && !behind[1])) return dy;
    const int64_t at[4] = { 0, 0, before[0], before[1] };
    for (int i = 0; i < 2; i++) images.dim[2 + i] += before[i] + behind[i];
    const uint32_t zero = df_cst(w->cx, df_dtype_at(w->cx, dy), 0, w->site);
    return df_surround(w->cx, dy, at, zero, &images, w->site);
}

/* The weights a of the taps of a phase, from the last tap to the first: [channels, out * taps]. */
static uint32_t weights_of(df_grad *w, const shown *s, uint32_t a, const phase p[2])
{
    const int64_t kernel[2] = { s->side[0].kernel, s->side[1].kernel };
    const df_shape all = { .rank = 5,
                           .dim = { s->groups, s->out, s->channels, kernel[0], kernel[1] } };
    const int64_t start[5] = { 0, 0, 0, p[0].last_tap, p[1].last_tap };
    const int64_t step[5] = { 1, 1, 1, -p[0].step, -p[1].step };
    df_shape taps = all;
    taps.dim[3] = p[0].n_taps;
    taps.dim[4] = p[1].n_taps;
    uint32_t v = reshaped_to(w, a, &all);
    if (v != DF_BAD) v = df_slice_node(w->cx, v, start, step, &taps, w->site);
    v = permuted_axes(w, v, 0x43120);
    const int64_t depth = s->out * p[0].n_taps * p[1].n_taps;
    const df_shape flat = { .rank = 3, .dim = { s->groups, s->channels, depth } };
    const df_shape flat1 = { .rank = 2, .dim = { s->channels, depth } };
    return reshaped_to(w, v, s->groups == 1 ? &flat1 : &flat);
}

/* One phase of the gradient of the images, in the order of their axes. `padded` is dy with `before`
 * zeros before it. */
static uint32_t gradient_of_phase(df_grad *w, const shown *s, uint32_t a, uint32_t padded,
                                  const int64_t before[2], const phase p[2])
{
    df_window v = { .stride = { 1, 1 } };
    int64_t n_taps = 1, numel = s->n;
    for (int i = 0; i < 2; i++) {
        v.kernel[i] = p[i].n_taps;
        v.start[i] = before[i] + p[i].start;
        v.dilation[i] = p[i].dilation;
        v.out[i] = p[i].n;
        n_taps *= p[i].n_taps;
        numel *= p[i].n;
    }
    const df_shape flat = { .rank = 3, .dim = { s->groups, s->out * n_taps, numel } };
    const df_shape flat1 = { .rank = 2, .dim = { s->out * n_taps, numel } };
    const df_shape images = { .rank = 4, .dim = { s->groups * s->channels, s->n, p[0].n, p[1].n } };
    const uint32_t taps = df_windows_of(w->cx, padded, &v, w->site);
    const uint32_t src[2] = { weights_of(w, s, a, p),
                              reshaped_to(w, taps, s->groups == 1 ? &flat1 : &flat) };
    if (src[0] == DF_BAD || src[1] == DF_BAD) return DF_BAD;
    const uint32_t product =
        df_append(w->cx, DF_OP_matmul, df_dtype_at(w->cx, src[0]), 0, src, NULL, 0, NULL, w->site);
    const uint32_t part = reshaped_to(w, product, &images);
    return s->is_permuted ? permuted_axes(w, part, 0x3201) : part;
}

/* `sum` with a phase of the gradient written to its elements. */
static uint32_t put_phase(df_grad *w, const shown *s, uint32_t sum, uint32_t g, const phase p[2])
{
    if (sum == DF_BAD || g == DF_BAD) return DF_BAD;
    const int64_t start[4] = { 0, 0, p[0].first, p[1].first };
    const int64_t step[4] = { 1, 1, s->side[0].stride, s->side[1].stride };
    df_shape part;
    df_rec_shape(&w->cx->rec, g, &part);
    const uint32_t src[3] = { sum, g, df_slice_node(w->cx, sum, start, step, &part, w->site) };
    if (src[2] == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_update, df_dtype_at(w->cx, sum), 0, src, NULL, 0, NULL, w->site);
}

/* The gradient of the images. a: the weights, [out, C * T] for each group. */
static uint32_t gradient_of_images(df_grad *w, const shown *s, uint32_t a, uint32_t g)
{
    int64_t before[2];
    const uint32_t padded = padded_gradient(w, s, g, before);
    if (padded == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(w->cx, padded);
    const bool is_whole = s->side[0].stride == 1 && s->side[1].stride == 1;
    uint32_t sum = DF_BAD;
    if (!is_whole) {
        df_shape images;
        df_rec_shape(&w->cx->rec, s->images, &images);
        sum = df_expand_to(w->cx, df_cst(w->cx, t, 0, w->site), &images, w->site);
    }
    for (int64_t r = 0; r < s->side[0].stride; r++)
        for (int64_t c = 0; c < s->side[1].stride; c++) {
            const phase p[2] = { phase_of(&s->side[0], r), phase_of(&s->side[1], c) };
            if (!p[0].n || !p[1].n || !p[0].n_taps || !p[1].n_taps) continue;
            const uint32_t part = gradient_of_phase(w, s, a, padded, before, p);
            sum = is_whole ? part : put_phase(w, s, sum, part, p);
            if (sum == DF_BAD) return DF_BAD;
        }
    return sum;
}

bool df_grad_windows(df_grad *w, uint32_t k, uint32_t g, bool *is_done)
{
    shown s;
    *is_done = match_windows(w, k, &s);
    if (!*is_done) return true;
    return df_grad_give(w, s.images, gradient_of_images(w, &s, df_grad_src(w, k, 0), g));
}
