/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools over images with one to three axes (deft/images.h), and those over two axes of
 * deft/layers.h. The elements at one position of the window, for all windows together, are a
 * slice whose step is the stride. A pool combines the slices one after another, in one kernel.
 */
#include "deft/images.h"
#include "lazy/calls/compose.h"

#include <math.h>

enum { NEAR_EDGE = 4 /* positions of a window whose conditions are recorded once */ };

/* What a pool has combined so far. */
typedef struct pooled {
    uint32_t value;
    uint32_t has_nan;  /* max: whether an element so far is NaN */
    uint32_t distance; /* max with indices: from the window's first element to the greatest one */
    /* max: begins_with of each side and position; DF_BAD: not yet */
    uint32_t begins[DF_SIDES][NEAR_EDGE];
} pooled;

/* The pool of one call. */
typedef struct pool {
    const char *what;
    df_slide slide;
    uint32_t rank; /* that x must have; 0: any */
    df_shape images;
    bool has_indices;
} pool;

/* a / b, rounded up. b is positive. */
static int64_t ceil_div(int64_t a, int64_t b)
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* The windows of side i, numbered from 0, with a shape that broadcasts to all windows. */
static uint32_t window_numbers(deft_ctx *cx, const df_slide *w, uint32_t i, uintptr_t site)
{
    df_shape s = { .rank = w->n - i, .dim = { w->out[i], 1, 1 } };
    return df_iota_node(cx, &s, 0, site);
}

static uint32_t whole_number(deft_ctx *cx, int64_t v, uintptr_t site)
{
    return df_number_i(cx, "pool", DEFT_I64, v, site);
}

/* Bools that broadcast to all windows: along one side, those windows in which position i is the
 * first within the image. Window o begins at o * stride - padding. */
static uint32_t begins_with(deft_ctx *cx, const df_slide *w, uint32_t side, int64_t i,
                            uintptr_t site)
{
    const int64_t left = w->padding[side] - i * w->dilation[side], stride = w->stride[side];
    const int64_t from = left > 0 ? ceil_div(left, stride) : 0;
    const int64_t to = ceil_div(left + w->dilation[side], stride);
    const uint32_t at = window_numbers(cx, w, side, site);
    const int64_t o = i > 0 && to <= from ? -1 : from;
    const df_op op = i == 0 || to > from + 1 ? DF_OP_le : DF_OP_eq;
    const uint32_t begins = df_map2(cx, op, whole_number(cx, o, site), at, site);
    if (i == 0 || to <= from + 1) return begins;
    const uint32_t ends = df_map2(cx, DF_OP_lt, at, whole_number(cx, to, site), site);
    return df_map2(cx, DF_OP_bitwise_and, begins, ends, site);
}

/* takes | whether position `place` is the first of its window within the image, after padding
 * alone. */
static uint32_t or_first(deft_ctx *cx, const df_slide *w, const int64_t place[DF_SIDES], pooled *a,
                         uint32_t takes, uintptr_t site)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (place[i] > 0 && (place[i] - 1) * w->dilation[i] >= w->padding[i]) return takes;
    uint32_t first = DF_BAD;
    bool has_side = false;
    for (uint32_t i = 0; i < w->n; i++) {
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

/* From the first element of a window to position `at`, counted in elements of an image. */
static int64_t distance_to(const pool *p, const int64_t at[DF_SIDES])
{
    int64_t d = 0;
    for (uint32_t i = 0; i < p->slide.n; i++)
        d = d * p->images.dim[2 + i] + at[i] * p->slide.dilation[i];
    return d;
}

/* b, the element at position `at`, where it is greater than a, the maximum of the earlier
 * positions; else a. So the first of equal elements stays and gets the gradient. NaN
 * counts as greater than everything else, and equal to NaN. Any element replaces padding,
 * even -infinity.
 *
 * Whether an element so far is NaN is known without the maximum. So the maxima of all positions
 * are one chain of comparisons, each of which waits for nothing but the one before. */
static void greater(deft_ctx *cx, const pool *p, const int64_t at[DF_SIDES], pooled *a, uint32_t b,
                    uintptr_t site)
{
    const uint32_t is_nan = df_map1(cx, DF_OP_isnan, b, site);
    const uint32_t is_number_yet = df_map1(cx, DF_OP_logical_not, a->has_nan, site);
    const uint32_t is_first_nan = df_map2(cx, DF_OP_bitwise_and, is_number_yet, is_nan, site);
    const uint32_t is_more = df_map2(cx, DF_OP_lt, a->value, b, site);
    const uint32_t more = df_map2(cx, DF_OP_bitwise_or, is_more,
                                  or_first(cx, &p->slide, at, a, is_first_nan, site), site);
    a->value = df_where(cx, more, b, a->value, site);
    a->has_nan = df_map2(cx, DF_OP_bitwise_or, a->has_nan, is_nan, site);
    if (!p->has_indices) return;
    const uint32_t d = whole_number(cx, distance_to(p, at), site);
    a->distance = df_where(cx, more, d, a->distance, site);
}

static void add_element(deft_ctx *cx, const pool *p, const int64_t at[DF_SIDES], pooled *a,
                        uint32_t b, uintptr_t site)
{
    (void)p, (void)at;
    a->value = df_map2(cx, DF_OP_add, a->value, b, site);
}

typedef void (*combine_fn)(deft_ctx *cx, const pool *p, const int64_t at[DF_SIDES], pooled *a,
                           uint32_t b, uintptr_t site);

static pooled combined(deft_ctx *cx, uint32_t x, const pool *p, uint32_t fill, combine_fn combine,
                       uintptr_t site)
{
    int64_t at[DF_SIDES] = { 0 };
    const uint32_t a = df_slide_pad(cx, x, &p->slide, fill, site);
    pooled out = { .value = df_slide_at(cx, a, &p->slide, at, site), .has_nan = DF_BAD };
    for (int i = 0; i < DF_SIDES * NEAR_EDGE; i++)
        out.begins[i / NEAR_EDGE][i % NEAR_EDGE] = DF_BAD;
    bool more = df_slide_next(&p->slide, at);
    if (combine == greater && more) out.has_nan = df_map1(cx, DF_OP_isnan, out.value, site);
    if (p->has_indices) {
        df_shape s;
        if (out.value == DF_BAD) return out;
        df_rec_shape(&cx->rec, out.value, &s);
        out.distance = df_expand_to(cx, whole_number(cx, 0, site), &s, site);
    }
    for (; more && out.value != DF_BAD; more = df_slide_next(&p->slide, at))
        combine(cx, p, at, &out, df_slide_at(cx, a, &p->slide, at, site), site);
    return out;
}

/* ---- checks ---- */

static bool check_pool(deft_ctx *cx, pool *p, uint32_t x)
{
    const uint32_t rank = p->rank;
    static const char *const takes[DF_SIDES] = { "[N, C, W]", "[N, C, H, W]", "[N, C, D, H, W]" };
    char text[DF_SHAPE_TEXT];
    df_slide *const w = &p->slide;
    const df_shape *const s = &p->images;
    const bool has_rank = rank ? s->rank == rank : s->rank >= 3 && s->rank <= 2 + DF_SIDES;
    if (!has_rank || !df_is_float(df_dtype_at(cx, x))) {
        df_error(cx, has_rank ? DEFT_E_DTYPE : DEFT_E_SHAPE, "%s: x is %s%s; it takes floats, %s%s",
                 p->what, deft_dtype_name(df_dtype_at(cx, x)), df_shape_text(s, text, sizeof text),
                 takes[rank ? rank - 3 : 0], rank ? "" : " to [N, C, D, H, W]");
        return false;
    }
    if (!df_slide_check(cx, p->what, w) || !df_slide_fit(cx, p->what, s, w)) return false;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->padding[i] <= ((w->kernel[i] - 1) * w->dilation[i] + 1) / 2) continue;
        df_error(cx, DEFT_E_ARG, "%s: padding %lld is more than half of kernel %lld", p->what,
                 (long long)w->padding[i], (long long)w->kernel[i]);
        return false;
    }
    return true;
}

/* Counts windows that reach beyond the padding. The last of them begins within the image or the
 * padding before it. */
static void round_windows_up(pool *p)
{
    df_slide *const w = &p->slide;
    for (uint32_t i = 0; i < w->n; i++) {
        const int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        const int64_t extent = p->images.dim[2 + i], room = extent + 2 * w->padding[i];
        int64_t n = ceil_div(room - reach, w->stride[i]) + 1;
        if ((n - 1) * w->stride[i] >= extent + w->padding[i]) n--;
        const int64_t end = (n - 1) * w->stride[i] + reach;
        w->out[i] = n;
        w->behind[i] = end > room ? end - room : 0;
    }
}

/* The options of a pool over two axes as those of any pool. */
static void take_pool2d(const deft_pool2d_options *options, deft_pool_options *o)
{
    deft_pool2d_options given;
    df_take_options(&given, sizeof given, options, options->size);
    *o = (deft_pool_options){ .size = sizeof *o, .written = given.written };
    for (int i = 0; i < 2; i++) {
        o->kernel[i] = given.kernel[i];
        o->stride[i] = given.stride[i];
        o->padding[i] = given.padding[i];
    }
}

/* Sets *o to the options of the caller, of which one list is given. Returns false with the error
 * recorded. */
static bool take_pool(deft_ctx *cx, const pool *p, const deft_pool_options *options,
                      const deft_pool2d_options *options2d, deft_pool_options *o)
{
    if (!options && !options2d) {
        df_error(cx, DEFT_E_ARG, "%s: options are NULL; a kernel is needed", p->what);
        return false;
    }
    const char *const name = options ? "deft_pool_options" : "deft_pool2d_options";
    const size_t size = options ? options->size : options2d->size;
    if (!df_check_options(cx, p->what, name, size)) return false;
    if (options) df_take_options(o, sizeof *o, options, size);
    if (options2d) take_pool2d(options2d, o);
    return true;
}

/* Checks the arguments of a pool, and sets its record, options and window. rank: of x; 0: any.
 * NULL with the error recorded. */
static deft_ctx *begin_pool(pool *p, deft_tensor *t, const deft_pool_options *options,
                            const deft_pool2d_options *options2d, deft_pool_options *o, uint32_t *x,
                            uintptr_t site)
{
    const uint32_t rank = p->rank;
    deft_ctx *const cx = df_begin(p->what, t, x, &p->images, site);
    if (!cx || !take_pool(cx, p, options, options2d, o)) return NULL;
    const uint32_t sides = rank ? rank - 2 : p->images.rank > 2 ? p->images.rank - 2 : 1;
    p->slide = (df_slide){ .n = sides < DF_SIDES ? sides : DF_SIDES };
    for (uint32_t i = 0; i < p->slide.n; i++) {
        const int64_t kernel = df_slide_option(o->kernel, i, 0);
        p->slide.kernel[i] = kernel;
        p->slide.stride[i] = df_slide_option(o->stride, i, kernel);
        p->slide.padding[i] = o->padding[i];
        p->slide.dilation[i] = df_slide_option(o->dilation, i, 1);
    }
    if (!df_check_padding(cx, p->what, o->padding, p->slide.n, o->written)) return NULL;
    if (!check_pool(cx, p, *x)) return NULL;
    if (o->ceil_mode) round_windows_up(p);
    return cx;
}

/* ---- maxima ---- */

/* The row-major index within an image of the greatest element of each window. */
static uint32_t pool_indices(deft_ctx *cx, const pool *p, const pooled *a, uintptr_t site)
{
    const df_slide *const w = &p->slide;
    uint32_t sum = a->distance;
    int64_t step = 1;
    for (uint32_t i = w->n; i-- > 0;) {
        const uint32_t moves = df_map2(cx, DF_OP_mul, window_numbers(cx, w, i, site),
                                       whole_number(cx, w->stride[i] * step, site), site);
        const uint32_t from =
            df_map2(cx, DF_OP_sub, moves, whole_number(cx, w->padding[i] * step, site), site);
        sum = df_map2(cx, DF_OP_add, sum, from, site);
        step *= p->images.dim[2 + i];
    }
    return sum;
}

static deft_tensor *max_pool(deft_ctx *cx, const pool *p, uint32_t x, deft_tensor **indices,
                             uintptr_t site)
{
    const uint32_t least = df_number_f(cx, p->what, df_dtype_at(cx, x), -INFINITY, site);
    const pooled out = combined(cx, x, p, least, greater, site);
    if (indices) *indices = df_result(cx, pool_indices(cx, p, &out, site));
    return df_result(cx, out.value);
}

deft_tensor *deft_max_pool(deft_tensor *x, const deft_pool_options *options, deft_tensor **indices)
{
    uint32_t a;
    deft_pool_options o;
    pool p = { .what = "max_pool", .has_indices = indices != NULL };
    const uintptr_t site = DF_SITE;
    if (indices) *indices = NULL;
    deft_ctx *const cx = begin_pool(&p, x, options, NULL, &o, &a, site);
    return cx ? max_pool(cx, &p, a, indices, site) : NULL;
}

/* ---- means ---- */

/* The elements of each window along side i that count. Windows may reach beyond `extent`, and with
 * `before` they begin before the image. */
static uint32_t counted_elements(deft_ctx *cx, const pool *p, uint32_t i, bool has_padding,
                                 uintptr_t site)
{
    const df_slide *const w = &p->slide;
    const int64_t d = w->dilation[i];
    int64_t end = p->images.dim[2 + i];
    if (has_padding) end += w->padding[i];
    const uint32_t moves = df_map2(cx, DF_OP_mul, window_numbers(cx, w, i, site),
                                   whole_number(cx, w->stride[i], site), site);
    const uint32_t by = whole_number(cx, d, site);
    /* With u = -start of a window, the elements from ceil(u / d) to floor((end - 1 + u) / d). */
    const uint32_t u = df_map2(cx, DF_OP_sub, whole_number(cx, w->padding[i], site), moves, site);
    const uint32_t room = df_map2(cx, DF_OP_add, u, whole_number(cx, end - 1, site), site);
    uint32_t last = df_map2(cx, DF_OP_floor_div, room, by, site);
    last = df_map2(cx, DF_OP_minimum, last, whole_number(cx, w->kernel[i] - 1, site), site);
    uint32_t n = df_map2(cx, DF_OP_add, last, df_cst(cx, DEFT_I64, 1, site), site);
    if (!has_padding) {
        uint32_t first = df_map2(cx, DF_OP_add, u, whole_number(cx, d - 1, site), site);
        first = df_map2(cx, DF_OP_floor_div, first, by, site);
        first = df_map2(cx, DF_OP_maximum, first, df_cst(cx, DEFT_I64, 0, site), site);
        n = df_map2(cx, DF_OP_sub, n, first, site);
    }
    return n;
}

/* What the sum of each window is divided by, in dtype t. */
static uint32_t divisor(deft_ctx *cx, const pool *p, const deft_pool_options *o, deft_dtype t,
                        uintptr_t site)
{
    const df_slide *const w = &p->slide;
    bool is_ragged = false;
    int64_t places = 1;
    for (uint32_t i = 0; i < w->n; i++) {
        is_ragged = is_ragged || w->behind[i] || (o->excludes_padding && w->padding[i]);
        places *= w->kernel[i];
    }
    if (o->divisor) return df_number_i(cx, p->what, t, o->divisor, site);
    if (!is_ragged) return df_cst(cx, t, (int32_t)places, site);
    uint32_t n = counted_elements(cx, p, 0, !o->excludes_padding, site);
    for (uint32_t i = 1; i < w->n; i++)
        n = df_map2(cx, DF_OP_mul, n, counted_elements(cx, p, i, !o->excludes_padding, site), site);
    return df_to(cx, n, t, site);
}

static deft_tensor *avg_pool(deft_ctx *cx, const pool *p, const deft_pool_options *o, uint32_t x,
                             uintptr_t site)
{
    const deft_dtype t = df_dtype_at(cx, x);
    const pooled total = combined(cx, x, p, df_cst(cx, t, 0, site), add_element, site);
    const uint32_t n = divisor(cx, p, o, t, site);
    return df_result(cx, df_map2(cx, DF_OP_div, total.value, n, site));
}

deft_tensor *deft_avg_pool(deft_tensor *x, const deft_pool_options *options)
{
    uint32_t a;
    deft_pool_options o;
    pool p = { .what = "avg_pool" };
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_pool(&p, x, options, NULL, &o, &a, site);
    return cx ? avg_pool(cx, &p, &o, a, site) : NULL;
}

/* ---- the pools of images with two axes ---- */

deft_tensor *deft_max_pool2d(deft_tensor *x, const deft_pool2d_options *options)
{
    uint32_t a;
    deft_pool_options o;
    pool p = { .what = "max_pool2d", .rank = 4 };
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_pool(&p, x, NULL, options, &o, &a, site);
    return cx ? max_pool(cx, &p, a, NULL, site) : NULL;
}

deft_tensor *deft_avg_pool2d(deft_tensor *x, const deft_pool2d_options *options)
{
    uint32_t a;
    deft_pool_options o;
    pool p = { .what = "avg_pool2d", .rank = 4 };
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_pool(&p, x, NULL, options, &o, &a, site);
    return cx ? avg_pool(cx, &p, &o, a, site) : NULL;
}
