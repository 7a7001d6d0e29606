/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers of many distributions (deft/random.h), made of draws of deft_uniform and
 * deft_normal. No draw depends on a value, so that a replay and a recomputation draw the same.
 * Where textbooks try again until a candidate is accepted, candidates are drawn in advance.
 */
#include "nn/nn.h"

#include "deft/control.h"
#include "deft/random.h"

#include <math.h>

enum {
    CANDIDATES = 8,
    MOST_DEVIATIONS = 6 /* beyond, an f64 near 1 has too few digits for erf */
};

static bool is_float_type(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || t == DEFT_F16 || t == DEFT_BF16;
}

/* The dtype in which numbers of dtype t are computed. */
static deft_dtype computed_in(deft_dtype t)
{
    return t == DEFT_F64 ? DEFT_F64 : DEFT_F32;
}

static deft_tensor *number_of(deft_ctx *cx, double v)
{
    return deft_const_f(cx, v);
}

/* ---- standard numbers ---- */

/* Checks the arguments of a function with a shape. Returns false with the error recorded. */
static bool check_standard(deft_ctx *cx, const char *what, const deft_rng *rng, deft_dtype dtype)
{
    if (!cx) return false;
    if (!rng) return df_error(cx, DEFT_E_ARG, "%s: rng is NULL", what);
    if ((unsigned)dtype < DEFT_N_DTYPES && is_float_type(dtype)) return true;
    return df_error(cx, DEFT_E_DTYPE, "%s: not for %s", what,
                    (unsigned)dtype < DEFT_N_DTYPES ? deft_dtype_name(dtype) : "that dtype");
}

static deft_tensor *unit_draw(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype t)
{
    return deft_uniform(cx, rng, shape, t, 0, 1);
}

static deft_tensor *exponential_draw(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype t)
{
    return deft_neg(deft_log1p(deft_neg(unit_draw(cx, rng, shape, t))));
}

/* -log of an exponential number. That number may be 0, and then counts as half of the least
 * number above 0. */
static deft_tensor *gumbel_draw(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype t)
{
    const double least = t == DEFT_F64 ? 0x1p-54 : 0x1p-25;
    return deft_neg(deft_log(deft_maximum_f(exponential_draw(cx, rng, shape, t), least)));
}

static deft_tensor *laplace_draw(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype t)
{
    deft_tensor *const u = deft_rsub_f(unit_draw(cx, rng, shape, t), 0.5); /* (-1/2, 1/2] */
    deft_tensor *const far = deft_mul_f(deft_abs(u), -2);
    /* An end of the interval, where the logarithm is infinite, counts as the number before it. */
    const double most = t == DEFT_F64 ? 0x1p-53 - 1 : 0x1p-24 - 1;
    return deft_copysign(deft_log1p(deft_maximum_f(far, most)), u);
}

typedef deft_tensor *(*draw_fn)(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype t);

static deft_tensor *standard(deft_ctx *cx, const char *what, deft_rng *rng, deft_shape shape,
                             deft_dtype dtype, draw_fn draw)
{
    if (!check_standard(cx, what, rng, dtype)) return NULL;
    deft_tensor *const t = draw(cx, rng, shape, computed_in(dtype));
    return t && computed_in(dtype) != dtype ? deft_cast(t, dtype) : t;
}

static deft_tensor *truncated_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape,
                                     deft_dtype dtype, double low, double high)
{
    if (!check_standard(cx, "truncated_normal", rng, dtype)) return NULL;
    if (!(low < high && low <= (double)MOST_DEVIATIONS && high >= -(double)MOST_DEVIATIONS))
        return df_error(
            cx, DEFT_E_RANGE,
            "truncated_normal: bounds %g and %g are to be in order, and not both beyond "
            "%d or -%d",
            low, high, MOST_DEVIATIONS, MOST_DEVIATIONS);
    const double root = 0.70710678118654752440, from = erf(low * root), to = erf(high * root);
    deft_tensor *const u = deft_uniform(cx, rng, shape, DEFT_F64, from, to);
    if (!u) return NULL;
    deft_tensor *const x = deft_mul_f(deft_erfinv(u), 1.41421356237309504880);
    return deft_cast(deft_clamp(x, low, high), dtype);
}

/* ---- numbers with parameters ---- */

/* Sets x[i] to parameter i, expanded, in the dtype in which it is computed, and *as to the dtype of
 * the result. Returns the context, or NULL with the error recorded. */
static deft_ctx *begin_parameters(const char *what, const deft_rng *rng, deft_tensor **x, size_t n,
                                  deft_dtype *as)
{
    deft_shape s[2], all;
    for (size_t i = 0; i < n; i++)
        if (!x[i]) return NULL;
    deft_ctx *const cx = deft_ctx_of(x[0]);
    if (!cx) {
        (void)deft_abs(x[0]); /* records why x[0] cannot be used */
        return NULL;
    }
    if (!rng) return df_error(cx, DEFT_E_ARG, "%s: rng is NULL", what);
    *as = deft_result_type(x, n);
    if (!is_float_type(*as)) *as = DEFT_F32;
    for (size_t i = 0; i < n; i++) s[i] = deft_shape_get(x[i]);
    if (!deft_broadcast_shapes(s, n, &all)) {
        char a[DF_NN_TEXT], b[DF_NN_TEXT];
        return df_error(cx, DEFT_E_SHAPE, "%s: parameters %s and %s do not broadcast", what,
                        df_nn_text(x[0], a), df_nn_text(x[n - 1], b));
    }
    for (size_t i = 0; i < n; i++)
        if (!(x[i] = deft_expand(deft_cast(x[i], computed_in(*as)), all))) return NULL;
    return cx;
}

static deft_tensor *bernoulli(deft_rng *rng, deft_tensor *p)
{
    deft_dtype as;
    deft_ctx *const cx = begin_parameters("bernoulli", rng, &p, 1, &as);
    if (!cx) return NULL;
    return deft_lt(unit_draw(cx, rng, deft_shape_get(p), deft_dtype_of(p)), p);
}

/* Gamma numbers with shapes alpha, in the dtype of alpha. For alpha below 1, alpha + 1 is drawn,
 * and the result is multiplied by u^(1 / alpha). */
static deft_tensor *gamma_draw(deft_ctx *cx, deft_rng *rng, deft_tensor *alpha)
{
    const deft_dtype t = deft_dtype_of(alpha);
    const deft_shape shape = deft_shape_get(alpha);
    alpha = deft_stop_gradient(alpha);
    deft_tensor *const is_small = deft_lt_f(alpha, 1);
    deft_tensor *const a = deft_where(is_small, deft_add_f(alpha, 1), alpha);
    deft_tensor *const d = deft_sub_f(a, 1.0 / 3);
    deft_tensor *const c = deft_rsqrt(deft_mul_f(d, 9));
    deft_tensor *v = NULL, *is_found = NULL;
    for (int i = 0; i < CANDIDATES; i++) {
        deft_tensor *const z = deft_normal(cx, rng, shape, t, 0, 1);
        deft_tensor *const u = unit_draw(cx, rng, shape, t);
        deft_tensor *const w = deft_add_f(deft_mul(c, z), 1);
        deft_tensor *const cube = deft_mul(deft_square(w), w);
        deft_tensor *const is_above = deft_gt_f(cube, 0);
        deft_tensor *const safe = deft_where(is_above, cube, number_of(cx, 1));
        /* log u < z^2 / 2 + d - d v + d log v */
        deft_tensor *const bound =
            deft_add(deft_mul_f(deft_square(z), 0.5),
                     deft_mul(d, deft_add(deft_rsub_f(safe, 1), deft_log(safe))));
        deft_tensor *const takes =
            deft_bitwise_and(is_above, deft_lt(deft_log1p(deft_neg(u)), bound));
        v = v ? deft_where(is_found, v, safe) : safe;
        is_found = is_found ? deft_bitwise_or(is_found, takes) : takes;
    }
    deft_tensor *const e = exponential_draw(cx, rng, shape, t);
    deft_tensor *const less = deft_exp(deft_neg(deft_div(e, alpha)));
    deft_tensor *const g = deft_mul(d, v);
    deft_tensor *const r = deft_where(is_small, deft_mul(g, less), g);
    return deft_where(deft_gt_f(alpha, 0), r, number_of(cx, NAN));
}

static deft_tensor *gamma_numbers(deft_rng *rng, deft_tensor *alpha)
{
    deft_dtype as;
    deft_ctx *const cx = begin_parameters("gamma", rng, &alpha, 1, &as);
    return cx ? deft_cast(gamma_draw(cx, rng, alpha), as) : NULL;
}

static deft_tensor *beta_numbers(deft_rng *rng, deft_tensor *a, deft_tensor *b)
{
    deft_dtype as;
    deft_tensor *x[] = { a, b };
    deft_ctx *const cx = begin_parameters("beta", rng, x, 2, &as);
    if (!cx) return NULL;
    deft_tensor *const g = gamma_draw(cx, rng, x[0]), *const h = gamma_draw(cx, rng, x[1]);
    return deft_cast(deft_div(g, deft_add(g, h)), as);
}

static deft_tensor *dirichlet(deft_rng *rng, deft_tensor *alpha)
{
    deft_dtype as;
    deft_ctx *const cx = begin_parameters("dirichlet", rng, &alpha, 1, &as);
    if (!cx) return NULL;
    if (deft_rank(alpha) == 0) return df_error(cx, DEFT_E_SHAPE, "dirichlet: alpha has no axis");
    deft_tensor *const g = gamma_draw(cx, rng, alpha);
    deft_tensor *const sum = deft_sum(g, deft_axes_of(1, (const int[]){ -1 }), true);
    return deft_cast(deft_div(g, sum), as);
}

/* ---- counts ----
 *
 * A count is found by inversion. From a uniform number, the probabilities of counts are subtracted
 * until it is negative: first that of the most likely count, then those of its neighbours, on both
 * sides by turns. All is in f64. Neighbours have the ratio
 *
 *   p(k + 1) / p(k) = (a - b k) / (k + 1)
 *
 * where a is the mean and b is 0 for Poisson numbers, and a is n times the odds b for binomial
 * numbers.
 */

enum { REST, UP_P, DOWN_P, UP, DOWN, COUNT, N_SEARCH };

typedef struct search_of {
    deft_tensor *a, *b;
} search_of;

/* The logarithm of k!: Stirling's series at k + 10, less the logarithm of the factors between. */
static deft_tensor *log_factorial(deft_tensor *k)
{
    deft_tensor *const x = deft_add_f(k, 11);
    deft_tensor *product = deft_add_f(k, 1);
    for (int i = 2; i <= 10; i++) product = deft_mul(product, deft_add_f(k, i));
    deft_tensor *const y = deft_reciprocal(x), *const yy = deft_square(y);
    deft_tensor *series = deft_add_f(deft_mul_f(yy, -1.0 / 1680), 1.0 / 1260);
    series = deft_add_f(deft_mul(series, yy), -1.0 / 360);
    series = deft_add_f(deft_mul(series, yy), 1.0 / 12);
    deft_tensor *const main = deft_sub(deft_mul(deft_sub_f(x, 0.5), deft_log(x)), x);
    const double half_log = 0.91893853320467274178; /* log(2 pi) / 2 */
    return deft_sub(deft_add_f(deft_add(main, deft_mul(series, y)), half_log), deft_log(product));
}

/* Whether an element still has neighbours that count. */
static deft_status search_goes_on(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const is_left = deft_gt_f(deft_add(in[UP_P], in[DOWN_P]), 1e-30);
    out[0] = deft_any(deft_bitwise_and(deft_ge_f(in[REST], 0), is_left),
                      (deft_axes){ UINT32_MAX, { 0 } }, false);
    return DEFT_OK;
}

/* The rest less p, and the count where it thereby becomes negative. */
static void subtract_count(deft_tensor **rest, deft_tensor **count, deft_tensor *p, deft_tensor *k)
{
    deft_tensor *const next = deft_sub(*rest, p);
    deft_tensor *const is_it = deft_bitwise_and(deft_ge_f(*rest, 0), deft_lt_f(next, 0));
    *count = deft_where(is_it, k, *count);
    *rest = next;
}

static deft_status search_step(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const search_of *const s = user;
    (void)n_in, (void)n_out;
    deft_tensor *const zero = number_of(cx, 0);
    deft_tensor *const up = deft_maximum(deft_sub(s->a, deft_mul(s->b, in[UP])), zero);
    out[UP] = deft_add_f(in[UP], 1);
    out[UP_P] = deft_div(deft_mul(in[UP_P], up), out[UP]);
    out[DOWN] = deft_sub_f(in[DOWN], 1);
    deft_tensor *const down = deft_sub(s->a, deft_mul(s->b, out[DOWN]));
    deft_tensor *const ratio =
        deft_div(in[DOWN], deft_where(deft_gt(down, zero), down, number_of(cx, 1)));
    out[DOWN_P] = deft_where(deft_gt(in[DOWN], zero), deft_mul(in[DOWN_P], ratio), zero);
    out[REST] = in[REST];
    out[COUNT] = in[COUNT];
    subtract_count(&out[REST], &out[COUNT], out[UP_P], out[UP]);
    subtract_count(&out[REST], &out[COUNT], out[DOWN_P], out[DOWN]);
    return DEFT_OK;
}

/* Counts whose most likely value is `mode`, with probability exp(log_p). fine: whether the
 * parameters are in their range. */
static deft_tensor *found_count(deft_ctx *cx, deft_rng *rng, search_of s, deft_tensor *mode,
                                deft_tensor *log_p, deft_tensor *fine)
{
    if (!mode || !log_p || !fine) return NULL;
    deft_tensor *const u = unit_draw(cx, rng, deft_shape_get(mode), DEFT_F64);
    deft_tensor *const p = deft_exp(log_p);
    deft_tensor *init[N_SEARCH], *end[N_SEARCH];
    init[REST] = deft_where(fine, deft_sub(u, p), number_of(cx, -1));
    init[UP_P] = init[DOWN_P] = p;
    init[UP] = init[DOWN] = init[COUNT] = mode;
    if (!deft_while(cx, search_goes_on, search_step, &s, init, N_SEARCH, INT32_MAX, end))
        return NULL;
    return deft_where(fine, end[COUNT], number_of(cx, NAN));
}

static deft_tensor *poisson(deft_rng *rng, deft_tensor *mean)
{
    deft_dtype as;
    deft_ctx *const cx = begin_parameters("poisson", rng, &mean, 1, &as);
    if (!cx) return NULL;
    mean = deft_cast(deft_stop_gradient(mean), DEFT_F64);
    deft_tensor *const fine = deft_bitwise_and(deft_ge_f(mean, 0), deft_lt_f(mean, 0x1p52));
    deft_tensor *const m = deft_where(fine, mean, number_of(cx, 0)), *const mode = deft_floor(m);
    deft_tensor *const log = deft_log(deft_where(deft_gt_f(m, 0), m, number_of(cx, 1)));
    deft_tensor *const log_p = deft_sub(deft_sub(deft_mul(mode, log), m), log_factorial(mode));
    const search_of s = { m, deft_zeros(cx, (deft_shape){ .rank = 0 }, DEFT_F64) };
    return deft_cast(found_count(cx, rng, s, mode, log_p, fine), as);
}

static deft_tensor *binomial(deft_rng *rng, deft_tensor *n, deft_tensor *p)
{
    deft_dtype as;
    deft_tensor *x[] = { n, p };
    deft_ctx *const cx = begin_parameters("binomial", rng, x, 2, &as);
    if (!cx) return NULL;
    for (int i = 0; i < 2; i++) x[i] = deft_cast(deft_stop_gradient(x[i]), DEFT_F64);
    deft_tensor *const is_n =
        deft_bitwise_and(deft_bitwise_and(deft_ge_f(x[0], 0), deft_lt_f(x[0], 0x1p52)),
                         deft_eq(deft_floor(x[0]), x[0]));
    deft_tensor *const is_p = deft_bitwise_and(deft_ge_f(x[1], 0), deft_le_f(x[1], 1));
    deft_tensor *const fine = deft_bitwise_and(is_n, is_p);
    deft_tensor *const m = deft_where(fine, x[0], number_of(cx, 0));
    /* The rarer of success and failure is counted. */
    deft_tensor *const is_rare = deft_le_f(x[1], 0.5);
    deft_tensor *const q =
        deft_where(fine, deft_where(is_rare, x[1], deft_rsub_f(x[1], 1)), number_of(cx, 0));
    deft_tensor *const mode = deft_minimum(deft_floor(deft_mul(deft_add_f(m, 1), q)), m);
    deft_tensor *const rest = deft_sub(m, mode);
    deft_tensor *const log_q = deft_log(deft_where(deft_gt_f(q, 0), q, number_of(cx, 1)));
    deft_tensor *const ways =
        deft_sub(deft_sub(log_factorial(m), log_factorial(mode)), log_factorial(rest));
    deft_tensor *const log_p =
        deft_add(ways, deft_add(deft_mul(mode, log_q), deft_mul(rest, deft_log1p(deft_neg(q)))));
    deft_tensor *const odds = deft_div(q, deft_rsub_f(q, 1));
    const search_of s = { deft_mul(m, odds), odds };
    deft_tensor *const k = found_count(cx, rng, s, mode, log_p, fine);
    return deft_cast(deft_where(is_rare, k, deft_sub(m, k)), as);
}

static deft_tensor *categorical(deft_rng *rng, deft_tensor *logits, int axis)
{
    deft_dtype as;
    deft_ctx *const cx = begin_parameters("categorical", rng, &logits, 1, &as);
    if (!cx) return NULL;
    const deft_shape shape = deft_shape_get(logits);
    deft_tensor *const g = gumbel_draw(cx, rng, shape, deft_dtype_of(logits));
    return deft_argmax(deft_add(logits, g), deft_axes_of(1, &axis), false);
}

/* ---- orders and samples ---- */

static deft_shape line_of(int64_t n)
{
    return deft_shape_of(1, &n);
}

static deft_tensor *permutation(deft_ctx *cx, deft_rng *rng, int64_t n)
{
    if (!cx) return NULL;
    if (!rng) return df_error(cx, DEFT_E_ARG, "permutation: rng is NULL");
    if (n < 0) return df_error(cx, DEFT_E_RANGE, "permutation: of %lld numbers", (long long)n);
    return deft_argsort(unit_draw(cx, rng, line_of(n), DEFT_F64), 0, false);
}

/* k numbers with probabilities that are proportional to the weights. */
static deft_tensor *weighted(deft_ctx *cx, deft_rng *rng, int64_t n, int64_t k, bool replaces,
                             deft_tensor *weights)
{
    weights = deft_cast(weights, DEFT_F64);
    if (!replaces) {
        deft_tensor *indices;
        deft_tensor *const key =
            deft_add(deft_log(weights), gumbel_draw(cx, rng, line_of(n), DEFT_F64));
        return deft_topk(key, k, 0, true, &indices) ? indices : NULL;
    }
    deft_tensor *const sums = deft_cumsum(weights, 0);
    const deft_range last[] = { deft_range_of(n - 1, n - 1, 0) };
    deft_tensor *const u = unit_draw(cx, rng, line_of(k), DEFT_F64);
    deft_tensor *const at = deft_searchsorted(sums, deft_mul(u, deft_slice_n(sums, 1, last)), true);
    return deft_minimum_i(at, n - 1); /* rounding may give the sum itself */
}

static deft_tensor *choice(deft_ctx *cx, deft_rng *rng, int64_t n, int64_t k, bool replaces,
                           deft_tensor *weights)
{
    if (!cx) return NULL;
    if (!rng) return df_error(cx, DEFT_E_ARG, "choice: rng is NULL");
    if (n < 0 || k < 0 || (replaces ? n == 0 && k > 0 : k > n))
        return df_error(cx, DEFT_E_RANGE, "choice: %lld of %lld numbers, %s replacement",
                        (long long)k, (long long)n, replaces ? "with" : "without");
    if (weights && (deft_rank(weights) != 1 || deft_dim(weights, 0) != n)) {
        char text[DF_NN_TEXT];
        return df_error(cx, DEFT_E_SHAPE, "choice: weights are %s, not [%lld]",
                        df_nn_text(weights, text), (long long)n);
    }
    if (weights && n > 0) return weighted(cx, rng, n, k, replaces, weights);
    if (replaces) {
        deft_tensor *const u = unit_draw(cx, rng, line_of(k), DEFT_F64);
        deft_tensor *const at = deft_cast(deft_mul_f(u, (double)n), DEFT_I64);
        return deft_minimum_i(at, n - 1);
    }
    const deft_range first[] = { deft_range_of(0, k, 1) };
    return deft_slice_n(permutation(cx, rng, n), 1, first);
}

/* ---- public functions, with the line of their caller as call site ---- */

static uint64_t rng_next(const deft_rng *rng)
{
    return rng ? rng->next : 0;
}

/* A call that fails takes no number: `next` is what it was before. */
static deft_tensor *or_restore(deft_rng *rng, uint64_t next, deft_tensor *t)
{
    if (!t && rng) rng->next = next;
    return t;
}

/* Like DF_LAYER_RETURN, for a call that draws from rng. */
#define DRAW_RETURN(cx, call)                                                                      \
    do {                                                                                           \
        const uint64_t next = rng_next(rng);                                                       \
        DF_LAYER_RETURN(deft_tensor *, (cx), or_restore(rng, next, (call)));                       \
    } while (0)

#define STANDARD(name)                                                                             \
    deft_tensor *deft_##name(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype)      \
    {                                                                                              \
        DRAW_RETURN(cx, standard(cx, #name, rng, shape, dtype, name##_draw));                      \
    }
STANDARD(exponential)
STANDARD(laplace)
STANDARD(gumbel)
#undef STANDARD

deft_tensor *deft_truncated_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                   double low, double high)
{
    DRAW_RETURN(cx, truncated_normal(cx, rng, shape, dtype, low, high));
}

deft_tensor *deft_bernoulli(deft_rng *rng, deft_tensor *p)
{
    DRAW_RETURN(deft_ctx_of(p), bernoulli(rng, p));
}

deft_tensor *deft_gamma(deft_rng *rng, deft_tensor *alpha)
{
    DRAW_RETURN(deft_ctx_of(alpha), gamma_numbers(rng, alpha));
}

deft_tensor *deft_beta(deft_rng *rng, deft_tensor *a, deft_tensor *b)
{
    DRAW_RETURN(deft_ctx_of(a), beta_numbers(rng, a, b));
}

deft_tensor *deft_dirichlet(deft_rng *rng, deft_tensor *alpha)
{
    DRAW_RETURN(deft_ctx_of(alpha), dirichlet(rng, alpha));
}

deft_tensor *deft_poisson(deft_rng *rng, deft_tensor *mean)
{
    DRAW_RETURN(deft_ctx_of(mean), poisson(rng, mean));
}

deft_tensor *deft_binomial(deft_rng *rng, deft_tensor *n, deft_tensor *p)
{
    DRAW_RETURN(deft_ctx_of(n), binomial(rng, n, p));
}

deft_tensor *deft_categorical(deft_rng *rng, deft_tensor *logits, int axis)
{
    DRAW_RETURN(deft_ctx_of(logits), categorical(rng, logits, axis));
}

deft_tensor *deft_permutation(deft_ctx *cx, deft_rng *rng, int64_t n)
{
    DRAW_RETURN(cx, permutation(cx, rng, n));
}

deft_tensor *deft_choice(deft_ctx *cx, deft_rng *rng, int64_t n, int64_t k, bool replaces,
                         deft_tensor *weights)
{
    DRAW_RETURN(cx, choice(cx, rng, n, k, replaces, weights));
}
