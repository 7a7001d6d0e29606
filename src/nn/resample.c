/* SPDX-License-Identifier: Apache-2.0
 *
 * Images at other places than their elements (deft/images.h).
 *
 * deft_interpolate resamples one side after another. A new element is a sum of a few elements, its
 * taps, each with a weight. Taps are taken by indices, which are computed where they are used.
 * deft_grid_sample has places of any kind. It sums over the elements around a place, with indices
 * into flattened images.
 */
#include "nn/nn.h"

#include "deft/images.h"

#include <math.h>

enum { MOST_SIDES = 3 };

/* ---- what both do ---- */

static bool is_real(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || t == DEFT_F16 || t == DEFT_BF16;
}

/* Takes the options, and checks that x is images of floats. Returns false with the error
 * recorded. */
static bool take_sampling(deft_ctx *cx, const char *what, deft_tensor *x,
                          const deft_sampling_options *given, deft_sampling_options *o)
{
    char text[DF_NN_TEXT];
    if (!df_layer_options(cx, what, "deft_sampling_options", o, sizeof *o, given,
                          given ? given->size : 0))
        return false;
    if (!is_real(deft_dtype_of(x)))
        return df_error(cx, DEFT_E_DTYPE, "%s: x is %s; it takes floats", what,
                        df_nn_text(x, text));
    if (deft_rank(x) >= 3 && deft_rank(x) <= 2 + MOST_SIDES && deft_numel(x) > 0) return true;
    return df_error(cx, DEFT_E_SHAPE,
                    "%s: x is %s; it takes [N, C, ...] with one to three sides, and elements", what,
                    df_nn_text(x, text));
}

static deft_dtype sampling_dtype(deft_tensor *x)
{
    return deft_dtype_of(x) == DEFT_F64 ? DEFT_F64 : DEFT_F32;
}

/* The element before v, as an index from 0 to extent - 1. */
static deft_tensor *index_at(deft_tensor *v, int64_t extent)
{
    return deft_cast(deft_clamp(v, 0, (double)(extent - 1)), DEFT_I64);
}

/* ---- interpolation ---- */

/* One side that is resampled. */
typedef struct resampled {
    deft_ctx *cx;
    deft_tensor *x;       /* the images */
    int axis;             /* of the side */
    int64_t extent, n;    /* before and after */
    double step;          /* elements of x for each new one */
    deft_tensor *sum;     /* of the taps so far */
    deft_tensor *weights; /* their sum, where it is needed */
} resampled;

/* Adds a tap: the elements at `at`, of [n], times weight [n], in f64. Without a weight there is no
 * other tap. */
static void add_tap(resampled *r, deft_tensor *at, deft_tensor *weight)
{
    deft_tensor *const e = deft_take(r->x, index_at(at, r->extent), r->axis);
    deft_shape s = { .rank = deft_rank(r->x) - (uint32_t)r->axis, .dim = { r->n, 1, 1 } };
    if (!weight) {
        r->sum = e;
        return;
    }
    deft_tensor *const w = deft_cast(deft_reshape(weight, s), deft_dtype_of(r->x));
    deft_tensor *const term = deft_mul(e, w);
    r->sum = r->sum ? deft_add(r->sum, term) : term;
}

/* The places of new elements among the old ones, f64 [n]. */
static deft_tensor *places(const resampled *r, const deft_sampling_options *o)
{
    const deft_shape line = { .rank = 1, .dim = { r->n } };
    deft_tensor *const i = deft_cast(deft_iota(r->cx, line, 0), DEFT_F64);
    if (o->mode == DEFT_NEAREST) return deft_floor(deft_mul_f(i, r->step));
    if (!o->is_aligned) return deft_sub_f(deft_mul_f(deft_add_f(i, 0.5), r->step), 0.5);
    const double step = r->n > 1 ? (double)(r->extent - 1) / (double)(r->n - 1) : 0;
    return deft_mul_f(i, step);
}

/* The weight of an element at distance t: a line to 0 at distance 1, or Keys' two cubics. */
static deft_tensor *weight_at(deft_tensor *t, bool is_cubic, double a)
{
    t = deft_abs(t);
    if (!is_cubic) return deft_relu(deft_rsub_f(t, 1));
    deft_tensor *const near =
        deft_add_f(deft_mul(deft_sub_f(deft_mul_f(t, a + 2), a + 3), deft_square(t)), 1);
    deft_tensor *far = deft_add_f(deft_mul(deft_sub_f(t, 5), t), 8);
    far = deft_mul_f(deft_sub_f(deft_mul(far, t), 4), a);
    far = deft_where(deft_lt_f(t, 2), far, deft_num_i(deft_ctx_of(t), 0));
    return deft_where(deft_lt_f(t, 1), near, far);
}

/* Taps as far as a filter reaches that is as wide as a new element. */
static void add_wide_taps(resampled *r, bool is_cubic)
{
    const double wide = r->step > 1 ? r->step : 1, reach = (is_cubic ? 2 : 1) * wide;
    const deft_shape line = { .rank = 1, .dim = { r->n } };
    deft_tensor *const i = deft_cast(deft_iota(r->cx, line, 0), DEFT_F64);
    deft_tensor *const centre = deft_mul_f(deft_add_f(i, 0.5), r->step);
    deft_tensor *const from = deft_maximum_f(deft_floor(deft_add_f(centre, 0.5 - reach)), 0);
    deft_tensor *const to =
        deft_minimum_f(deft_floor(deft_add_f(centre, 0.5 + reach)), (double)r->extent);
    const int64_t n_taps = 2 * (int64_t)ceil(reach) + 1;
    for (int64_t k = 0; k < n_taps; k++) {
        deft_tensor *const at = deft_add_f(from, (double)k);
        deft_tensor *const t = deft_mul_f(deft_sub(deft_add_f(at, 0.5), centre), 1 / wide);
        deft_tensor *const w =
            deft_where(deft_lt(at, to), weight_at(t, is_cubic, -0.5), deft_num_i(r->cx, 0));
        r->weights = r->weights ? deft_add(r->weights, w) : w;
        add_tap(r, at, w);
    }
    deft_shape s = { .rank = deft_rank(r->x) - (uint32_t)r->axis, .dim = { r->n, 1, 1 } };
    r->sum = deft_div(r->sum, deft_cast(deft_reshape(r->weights, s), deft_dtype_of(r->x)));
}

static deft_tensor *resampled_side(resampled *r, const deft_sampling_options *o)
{
    const bool is_cubic = o->mode == DEFT_CUBIC;
    if (!r->x) return NULL;
    if (o->antialias) {
        add_wide_taps(r, is_cubic);
        return r->sum;
    }
    deft_tensor *at = places(r, o);
    if (o->mode == DEFT_NEAREST) {
        add_tap(r, at, NULL);
        return r->sum;
    }
    if (!is_cubic) at = deft_maximum_f(at, 0);
    deft_tensor *const before = deft_floor(at), *const t = deft_sub(at, before);
    for (int k = is_cubic ? -1 : 0; k <= (is_cubic ? 2 : 1); k++)
        add_tap(r, deft_add_f(before, k), weight_at(deft_sub_f(t, k), is_cubic, -0.75));
    return r->sum;
}

/* Sets *sides, where they are missing, and the steps. Returns false with the error recorded. */
static bool find_sides(deft_ctx *cx, deft_tensor *x, const deft_sampling_options *o,
                       deft_shape *sides, double *step)
{
    const uint32_t n = deft_rank(x) - 2;
    const bool has_sides = sides->rank > 0, has_scale = o->scale[0] != 0;
    char text[DF_NN_TEXT];
    bool fits = has_sides ? sides->rank == n : has_scale;
    sides->rank = n;
    for (uint32_t i = 0; fits && i < n; i++) {
        const double scale = o->scale[i] != 0 ? o->scale[i] : o->scale[0];
        const double extent = (double)deft_dim(x, (int)i + 2);
        fits = !has_scale || (scale > 0 && extent * scale < 0x1p31);
        if (fits && !has_sides) sides->dim[i] = (int64_t)floor(extent * scale);
        fits = fits && sides->dim[i] > 0 && sides->dim[i] < INT32_MAX;
        step[i] = has_scale ? 1 / scale : extent / (double)sides->dim[i];
    }
    if (fits) return true;
    return df_error(cx, DEFT_E_SHAPE,
                    "interpolate: x is %s; it takes positive extents for its %u sides, or a scale "
                    "that gives such",
                    df_nn_text(x, text), n);
}

static deft_tensor *interpolate(deft_ctx *cx, deft_tensor *x, deft_shape sides,
                                const deft_sampling_options *given)
{
    deft_sampling_options o;
    double step[MOST_SIDES];
    if (!x || !take_sampling(cx, "interpolate", x, given, &o)) return NULL;
    const bool is_smooth = o.mode == DEFT_LINEAR || o.mode == DEFT_CUBIC;
    if ((unsigned)o.mode > DEFT_AREA || o.border != DEFT_BORDER_ZEROS ||
        (!is_smooth && (o.is_aligned || o.antialias)) || (o.is_aligned && o.antialias))
        return df_error(cx, DEFT_E_ARG,
                        "interpolate: mode %d, border %d, aligned %d and antialias %d do not go "
                        "together",
                        (int)o.mode, (int)o.border, o.is_aligned, o.antialias);
    if (!find_sides(cx, x, &o, &sides, step)) return NULL;
    if (o.mode == DEFT_AREA) return deft_adaptive_avg_pool(x, sides);
    deft_tensor *y = deft_cast(x, sampling_dtype(x));
    for (uint32_t i = sides.rank; i-- > 0;) {
        resampled r = { .cx = cx,
                        .x = y,
                        .axis = (int)i + 2,
                        .extent = deft_dim(x, (int)i + 2),
                        .n = sides.dim[i],
                        .step = step[i] };
        y = resampled_side(&r, &o);
    }
    return deft_cast(y, deft_dtype_of(x));
}

/* ---- places of a grid ---- */

/* Number k of each place: [N, places]. */
static deft_tensor *grid_number(deft_tensor *grid, uint32_t k)
{
    const uint32_t r = deft_rank(grid);
    deft_range range[DEFT_MAX_RANK];
    for (uint32_t i = 0; i + 1 < r; i++) range[i] = deft_range_of(0, DEFT_END, 1);
    range[r - 1] = deft_range_of(k, k, 0);
    const deft_shape s = { .rank = 2, .dim = { deft_dim(grid, 0), -1 } };
    return deft_reshape(deft_slice_n(grid, r, range), s);
}

/* v mirrored at low and at high until it lies between them. */
static deft_tensor *reflected(deft_tensor *v, double low, double high)
{
    const double span = high - low;
    if (!(span > 0)) return deft_mul_f(v, 0);
    deft_tensor *const t = deft_abs(deft_sub_f(v, low));
    deft_tensor *const turns = deft_stop_gradient(deft_floor(deft_mul_f(t, 1 / span)));
    deft_tensor *const rest = deft_sub(t, deft_mul_f(turns, span));
    deft_tensor *const is_odd = deft_ne_f(deft_remainder_f(turns, 2), 0);
    return deft_add_f(deft_where(is_odd, deft_rsub_f(rest, span), rest), low);
}

/* A place, or an element, as one between the edges. Zeros are beyond the edges where they are. */
static deft_tensor *bordered(deft_tensor *at, int64_t extent, const deft_sampling_options *o)
{
    const double n = (double)extent;
    if (o->border == DEFT_BORDER_REFLECTION)
        at = o->is_aligned ? reflected(at, 0, n - 1) : reflected(at, -0.5, n - 0.5);
    return o->border == DEFT_BORDER_ZEROS ? at : deft_clamp(at, 0, n - 1);
}

/* A number of a grid as a place among `extent` elements. */
static deft_tensor *grid_place(deft_tensor *g, int64_t extent, const deft_sampling_options *o)
{
    const double n = (double)extent;
    g = deft_where(deft_eq(g, g), g, deft_num_i(deft_ctx_of(g), -1));
    return o->is_aligned ? deft_mul_f(deft_add_f(g, 1), (n - 1) / 2)
                         : deft_mul_f(deft_sub_f(deft_mul_f(deft_add_f(g, 1), n), 1), 0.5);
}

/* The elements around the places, along one side: those at before + first and so on. */
typedef struct cell_side {
    deft_tensor *before; /* the element before the place; for the nearest mode that element */
    deft_tensor *t;      /* how far the place is behind it; NULL: the nearest mode */
    int64_t extent;
    int n_taps, first;
} cell_side;

static cell_side side_of(deft_tensor *number, int64_t extent, const deft_sampling_options *o)
{
    static const int n_taps[] = { [DEFT_NEAREST] = 1, [DEFT_LINEAR] = 2, [DEFT_CUBIC] = 4 };
    cell_side side = { .extent = extent, .n_taps = n_taps[o->mode] };
    deft_tensor *at = grid_place(number, extent, o);
    if (o->mode == DEFT_CUBIC)
        side.first = -1; /* it is the elements that the border keeps inside */
    else
        at = bordered(at, extent, o);
    side.before = o->mode == DEFT_NEAREST ? deft_round(at) : deft_stop_gradient(deft_floor(at));
    side.t = o->mode == DEFT_NEAREST ? NULL : deft_sub(at, side.before);
    return side;
}

/* The weight of the element at before + offset. */
static deft_tensor *tap_weight(const cell_side *side, int offset)
{
    if (side->n_taps == 4) return weight_at(deft_sub_f(side->t, offset), true, -0.75);
    return offset ? side->t : deft_rsub_f(side->t, 1);
}

/* Adds the elements of one tap along each side; `which` numbers the choices of taps. flat: x as [N,
 * C, elements]. */
static deft_tensor *with_tap(deft_ctx *cx, deft_tensor *sum, deft_tensor *flat,
                             const cell_side *side, uint32_t n, int which,
                             const deft_sampling_options *o)
{
    deft_tensor *index = NULL, *weight = NULL, *inside = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const int offset = which % side[i].n_taps + side[i].first;
        const int64_t extent = side[i].extent;
        deft_tensor *at = offset ? deft_add_f(side[i].before, offset) : side[i].before;
        which /= side[i].n_taps;
        if (o->mode == DEFT_CUBIC) at = bordered(at, extent, o);
        deft_tensor *const own = index_at(at, extent);
        index = index ? deft_add(deft_mul_i(index, extent), own) : own;
        if (side[i].t) {
            deft_tensor *const w = tap_weight(&side[i], offset);
            weight = weight ? deft_mul(weight, w) : w;
        }
        /* An element behind the last one has weight 0, except beyond the edges. */
        if (o->border != DEFT_BORDER_ZEROS) continue;
        deft_tensor *const is_in =
            deft_bitwise_and(deft_ge_f(at, 0), deft_le_f(at, (double)(extent - 1)));
        inside = inside ? deft_bitwise_and(inside, is_in) : is_in;
    }
    deft_shape s = deft_shape_get(flat);
    s.dim[2] = deft_dim(index, 1);
    deft_tensor *e = deft_gather(flat, deft_expand(deft_unsqueeze(index, 1), s), 2);
    if (inside) e = deft_where(deft_unsqueeze(inside, 1), e, deft_num_i(cx, 0));
    if (weight) e = deft_mul(e, deft_unsqueeze(weight, 1));
    return sum ? deft_add(sum, e) : e;
}

static deft_tensor *grid_sample(deft_ctx *cx, deft_tensor *x, deft_tensor *grid,
                                const deft_sampling_options *given)
{
    deft_sampling_options o;
    char a[DF_NN_TEXT], b[DF_NN_TEXT];
    if (!x || !grid || !take_sampling(cx, "grid_sample", x, given, &o)) return NULL;
    const deft_shape s = deft_shape_get(x), g = deft_shape_get(grid);
    const uint32_t n = s.rank - 2;
    if (n < 2 || g.rank != s.rank || g.dim[0] != s.dim[0] || g.dim[g.rank - 1] != (int64_t)n ||
        !is_real(deft_dtype_of(grid)))
        return df_error(
            cx, DEFT_E_SHAPE,
            "grid_sample: x is %s, the grid is %s; it takes [N, C, H, W] and [N, Ho, Wo, "
            "2], or three sides, and floats",
            df_nn_text(x, a), df_nn_text(grid, b));
    if ((unsigned)o.mode > DEFT_CUBIC || (unsigned)o.border > DEFT_BORDER_REFLECTION ||
        o.scale[0] != 0 || o.antialias)
        return df_error(
            cx, DEFT_E_ARG,
            "grid_sample: mode %d, border %d, scale %g, antialias %d; it takes the modes "
            "nearest, linear and cubic",
            (int)o.mode, (int)o.border, o.scale[0], o.antialias);
    const deft_dtype t = sampling_dtype(x);
    cell_side side[MOST_SIDES];
    int n_all = 1;
    grid = deft_cast(grid, t);
    for (uint32_t i = 0; i < n; i++) {
        side[i] = side_of(grid_number(grid, n - 1 - i), s.dim[2 + i], &o);
        if (!side[i].before) return NULL;
        n_all *= side[i].n_taps;
    }
    const deft_shape lines = { .rank = 3, .dim = { s.dim[0], s.dim[1], -1 } };
    deft_tensor *const flat = deft_reshape(deft_cast(x, t), lines);
    deft_tensor *sum = NULL;
    for (int which = 0; which < n_all; which++) {
        sum = with_tap(cx, sum, flat, side, n, which, &o);
        if (!sum) return NULL;
    }
    deft_shape out = { .rank = s.rank, .dim = { s.dim[0], s.dim[1] } };
    for (uint32_t i = 0; i < n; i++) out.dim[2 + i] = g.dim[1 + i];
    return deft_cast(deft_reshape(sum, out), deft_dtype_of(x));
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_tensor *deft_interpolate(deft_tensor *x, deft_shape sides,
                              const deft_sampling_options *options)
{
    deft_ctx *const cx = deft_ctx_of(x);
    DF_LAYER_RETURN(deft_tensor *, cx, interpolate(cx, x, sides, options));
}

deft_tensor *deft_grid_sample(deft_tensor *x, deft_tensor *grid,
                              const deft_sampling_options *options)
{
    deft_ctx *const cx = deft_ctx_of(x);
    DF_LAYER_RETURN(deft_tensor *, cx, grid_sample(cx, x, grid, options));
}
