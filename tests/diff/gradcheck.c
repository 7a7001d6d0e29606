/* SPDX-License-Identifier: Apache-2.0
 *
 * Every differentiable op against differences, in f64: gradients, forward mode against both, and
 * gradients of gradients. Elementwise ops run over five shapes, among them broadcast, transposed
 * and reversed operands; the others over shapes of their own. The table is held against ops.def: an
 * op with a rule and no row here fails. --table prints a line for each row.
 * Why this file is long: a row for every op.
 */
#define DEFT_NO_GENERIC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "ops/op.h"
#include "../support/bits.h"
#include "../support/budget.h"

enum { MAX_IN = 3, MAX_N = 130 };

typedef deft_tensor *(*make_fn)(deft_ctx *cx, deft_tensor *const *x);

typedef struct operand {
    deft_shape shape;
    double low, high;
    int turned; /* 1: its last two axes are exchanged in memory; 2: its first axis is reversed */
} operand;

typedef struct row {
    const char *op, *what;
    make_fn f;
    int n_in;
    operand in[MAX_IN];
    bool is_flat; /* piecewise linear: its second derivative is 0, and is not looked at */
} row;

/* ---- one row at one point ---- */

typedef struct point {
    const row *r;
    double x[MAX_IN][MAX_N];
    int64_t n[MAX_IN];
} point;

static deft_runtime *rt;
static deft_ctx *cx;
static uint64_t state;
static long passed, failed;

static double uniform(double low, double high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

static void check(deft_status st, const row *r)
{
    if (st == DEFT_OK) return;
    printf("%s, %s: %s\n", r->op, r->what, deft_message(cx));
    exit(1);
}

static int64_t numel(const deft_shape *s)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

/* The leaves of operand i, and the operand that is made of them. */
static deft_tensor *leaf(const point *p, int i, deft_tensor **seen)
{
    const operand *const o = &p->r->in[i];
    deft_shape s = o->shape;
    if (o->turned == 1) {
        const int64_t d = s.dim[s.rank - 1];
        s.dim[s.rank - 1] = s.dim[s.rank - 2];
        s.dim[s.rank - 2] = d;
    }
    deft_tensor *const t = deft_from(cx, s, DEFT_F64, p->x[i], (size_t)p->n[i] * sizeof(double));
    *seen = o->turned == 1 ? deft_t(t) : o->turned == 2 ? deft_flip(t, DEFT_AXES(0)) : t;
    return t;
}

/* Weights for the elements of t, the same each time: a value with a gradient in every element. */
static deft_tensor *weighted(deft_tensor *t)
{
    deft_rng rng = { 7, 0 };
    return deft_mul(t, deft_uniform(cx, &rng, deft_shape_get(t), DEFT_F64, 0.5, 2));
}

static deft_tensor *total(deft_tensor *t)
{
    return deft_sum(weighted(t), DEFT_ALL_AXES, 0);
}

/* The value; x: the leaves. */
static deft_tensor *value(const point *p, deft_tensor **x)
{
    deft_tensor *in[MAX_IN];
    for (int i = 0; i < p->r->n_in; i++) x[i] = leaf(p, i, &in[i]);
    return p->r->f(cx, in);
}

static const deft_grad_options zero_is_fine = { .size = sizeof(deft_grad_options),
                                                .unused_is_zero = true };

static void gradients_of(deft_tensor *of, deft_tensor *const *x, int n, deft_tensor **g)
{
    deft_tensor *const list[] = { of };
    deft_grad(list, NULL, 1, x, (size_t)n, &zero_is_fine, g);
}

/* What is looked at: the weighted sum of f, or of its gradients. */
static deft_tensor *scalar(const point *p, int order, deft_tensor **x)
{
    deft_tensor *const first = total(value(p, x));
    if (order == 1) return first;
    deft_tensor *g[MAX_IN], *sum = NULL;
    gradients_of(first, x, p->r->n_in, g);
    for (int i = 0; i < p->r->n_in; i++) sum = sum ? deft_add(sum, total(g[i])) : total(g[i]);
    return sum;
}

static double scalar_at(const point *p, int order)
{
    deft_tensor *x[MAX_IN];
    double v = 0;
    const deft_scope s = deft_scope_begin(cx);
    check(deft_item_f64(scalar(p, order, x), &v), p->r);
    check(deft_scope_end(s), p->r);
    return v;
}

static void gradient_at(const point *p, int order, double g[MAX_IN][MAX_N])
{
    deft_tensor *x[MAX_IN], *out[MAX_IN];
    const deft_scope s = deft_scope_begin(cx);
    gradients_of(scalar(p, order, x), x, p->r->n_in, out);
    check(deft_eval(out, (size_t)p->r->n_in), p->r);
    for (int i = 0; i < p->r->n_in; i++)
        check(deft_read(out[i], DEFT_F64, g[i], (size_t)p->n[i] * sizeof(double)), p->r);
    for (int i = 0; i < p->r->n_in; i++) test_bits_add(DEFT_F64, g[i], (size_t)p->n[i]);
    check(deft_scope_end(s), p->r);
}

/* The weighted sum of the forward derivative along t. */
static double forward_at(const point *p, double t[MAX_IN][MAX_N])
{
    deft_tensor *x[MAX_IN], *tangent[MAX_IN], *moved[1];
    double v = 0;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const y[] = { value(p, x) };
    for (int i = 0; i < p->r->n_in; i++)
        tangent[i] =
            deft_from(cx, deft_shape_get(x[i]), DEFT_F64, t[i], (size_t)p->n[i] * sizeof(double));
    deft_jvp(y, 1, x, tangent, (size_t)p->r->n_in, &zero_is_fine, moved);
    check(deft_item_f64(total(moved[0]), &v), p->r);
    check(deft_scope_end(s), p->r);
    return v;
}

/* ---- comparison ---- */

static double distance(double a, double b)
{
    const double d = fabs(a - b) / (1 + fabs(b));
    return isnan(d) ? INFINITY : d;
}

static double worst_gradient(point *p, int order)
{
    const double step = 0x1p-17;
    double g[MAX_IN][MAX_N], worst = 0;
    gradient_at(p, order, g);
    for (int i = 0; i < p->r->n_in; i++)
        for (int64_t k = 0; k < p->n[i]; k++) {
            const double x = p->x[i][k];
            p->x[i][k] = x + step;
            const double above = scalar_at(p, order);
            p->x[i][k] = x - step;
            const double below = scalar_at(p, order);
            p->x[i][k] = x;
            const double d = distance(g[i][k], (above - below) / (2 * step));
            if (d > worst) worst = d;
        }
    return worst;
}

static double worst_forward(point *p)
{
    double g[MAX_IN][MAX_N], t[MAX_IN][MAX_N], dot = 0;
    gradient_at(p, 1, g);
    for (int i = 0; i < p->r->n_in; i++)
        for (int64_t k = 0; k < p->n[i]; k++) {
            t[i][k] = uniform(-1, 1);
            dot += g[i][k] * t[i][k];
        }
    return distance(forward_at(p, t), dot);
}

static void run(const row *r, bool table)
{
    point p = { .r = r };
    for (int i = 0; i < r->n_in; i++) {
        p.n[i] = numel(&r->in[i].shape);
        for (int64_t k = 0; k < p.n[i]; k++) p.x[i][k] = uniform(r->in[i].low, r->in[i].high);
    }
    const double first = worst_gradient(&p, 1), forward = worst_forward(&p);
    const double second = r->is_flat ? 0 : worst_gradient(&p, 2);
    const bool ok = first < 1e-6 && forward < 1e-10 && second < 1e-6;
    ok ? passed++ : failed++;
    if (ok && !table) return;
    printf("%-12s %-34s gradient %8.1e  forward %8.1e  second %8.1e  %s\n", r->op, r->what, first,
           forward, second, ok ? "ok" : "WRONG");
}

/* ---- elementwise ---- */

#define UNARY(name)                                                                                \
    static deft_tensor *f_##name(deft_ctx *c, deft_tensor *const *x)                               \
    {                                                                                              \
        (void)c;                                                                                   \
        return deft_##name(x[0]);                                                                  \
    }
#define BINARY(name)                                                                               \
    static deft_tensor *f_##name(deft_ctx *c, deft_tensor *const *x)                               \
    {                                                                                              \
        (void)c;                                                                                   \
        return deft_##name(x[0], x[1]);                                                            \
    }
#define MAKE(name, ...)                                                                            \
    static deft_tensor *f_##name(deft_ctx *c, deft_tensor *const *x)                               \
    {                                                                                              \
        (void)c;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }

/* X(op, low, high): where it is smooth. */
#define SMOOTH(X)                                                                                  \
    X(neg, -2, 2)                                                                                  \
    X(square, -2, 2)                                                                               \
    X(sqrt, 0.5, 2)                                                                                \
    X(rsqrt, 0.5, 2)                                                                               \
    X(reciprocal, 0.5, 2)                                                                          \
    X(exp, -2, 2)                                                                                  \
    X(exp2, -2, 2)                                                                                 \
    X(expm1, -2, 2)                                                                                \
    X(log, 0.5, 2)                                                                                 \
    X(log2, 0.5, 2)                                                                                \
    X(log10, 0.5, 2)                                                                               \
    X(log1p, -0.5, 2)                                                                              \
    X(sin, -3, 3)                                                                                  \
    X(cos, -3, 3)                                                                                  \
    X(tan, -1, 1)                                                                                  \
    X(asin, -0.8, 0.8)                                                                             \
    X(acos, -0.8, 0.8)                                                                             \
    X(atan, -3, 3)                                                                                 \
    X(sinh, -2, 2)                                                                                 \
    X(cosh, -2, 2)                                                                                 \
    X(tanh, -2, 2)                                                                                 \
    X(asinh, -2, 2)                                                                                \
    X(acosh, 1.2, 3)                                                                               \
    X(atanh, -0.8, 0.8)                                                                            \
    X(cbrt, 0.5, 2)                                                                                \
    X(sigmoid, -3, 3)                                                                              \
    X(erf, -2, 2)                                                                                  \
    X(erfc, -2, 2)                                                                                 \
    X(lgamma, 0.3, 4)                                                                              \
    X(digamma, 0.3, 4)                                                                             \
    X(erfinv, -0.9, 0.9)                                                                           \
    X(i0, -3, 3)                                                                                   \
    X(i0e, 0.3, 3)                                                                                 \
    X(i1, -3, 3)                                                                                   \
    X(i1e, 0.3, 3)                                                                                 \
    X(gelu, -3, 3)                                                                                 \
    X(silu, -3, 3)                                                                                 \
    X(softplus, -3, 3)
/* Away from their kinks and steps. */
#define KINKED(X)                                                                                  \
    X(abs, 0.5, 2)                                                                                 \
    X(relu, 0.5, 2)                                                                                \
    X(sign, 0.5, 2)                                                                                \
    X(floor, 0.1, 0.9)                                                                             \
    X(ceil, -0.9, -0.1)                                                                            \
    X(trunc, 1.1, 1.9)                                                                             \
    X(round, 0.6, 1.4)

/* X(op, low, high of the first, low, high of the second) */
#define PAIRS(X)                                                                                   \
    X(add, -2, 2, -2, 2)                                                                           \
    X(sub, -2, 2, -2, 2)                                                                           \
    X(mul, -2, 2, -2, 2)                                                                           \
    X(div, -2, 2, 0.5, 2)                                                                          \
    X(pow, 0.5, 2, -2, 2)                                                                          \
    X(atan2, 0.5, 2, -2, -0.5)                                                                     \
    X(hypot, -2, -0.5, 0.5, 2)                                                                     \
    X(logaddexp, -2, 2, -2, 2)
#define KINKED_PAIRS(X)                                                                            \
    X(remainder, 2.1, 2.9, 0.98, 1.02)                                                             \
    X(fmod, -2.9, -2.1, 0.98, 1.02)                                                                \
    X(trunc_div, 2.1, 2.9, 0.98, 1.02)                                                             \
    X(floor_div, 2.1, 2.9, 0.98, 1.02)                                                             \
    X(copysign, 0.5, 2, -2, -0.5)                                                                  \
    X(nextafter, 0.5, 2, -2, -0.5)                                                                 \
    X(minimum, -2, -1, 1, 2)                                                                       \
    X(maximum, -2, -1, 1, 2)

#define DEFINE1(name, ...) UNARY(name)
#define DEFINE2(name, ...) BINARY(name)
SMOOTH(DEFINE1)
KINKED(DEFINE1)
PAIRS(DEFINE2)
KINKED_PAIRS(DEFINE2)

typedef struct map_row {
    const char *op;
    make_fn f;
    int n_in;
    double low[2], high[2];
    bool is_flat;
} map_row;

#define ROW1(name, l, h) { #name, f_##name, 1, { l }, { h }, false },
#define ROW1K(name, l, h) { #name, f_##name, 1, { l }, { h }, true },
#define ROW2(name, l, h, l2, h2) { #name, f_##name, 2, { l, l2 }, { h, h2 }, false },
#define ROW2K(name, l, h, l2, h2) { #name, f_##name, 2, { l, l2 }, { h, h2 }, true },

MAKE(polygamma_1, deft_polygamma(1, x[0]))
MAKE(polygamma_4, deft_polygamma(4, x[0]))
MAKE(powi_2, deft_pow_i(x[0], 2))
MAKE(powi_5, deft_pow_i(x[0], 5))
MAKE(clamp, deft_clamp(x[0], -1, 1))
MAKE(where, deft_where(deft_lt(x[0], x[1]), deft_square(x[0]), deft_mul(x[0], x[1])))
MAKE(cast, deft_cast(deft_cast(x[0], DEFT_F64), DEFT_F64))

static const map_row maps[] = {
    SMOOTH(ROW1) KINKED(ROW1K) PAIRS(ROW2)
        KINKED_PAIRS(ROW2K){ "powi", f_powi_2, 1, { -2 }, { 2 }, false },
    { "powi", f_powi_5, 1, { -2 }, { 2 }, false },
    { "polygamma", f_polygamma_1, 1, { 0.5 }, { 3 }, false },
    { "polygamma", f_polygamma_4, 1, { 1 }, { 3 }, false },
    { "maximum", f_clamp, 1, { -0.9 }, { 0.9 }, true },
    { "where", f_where, 2, { -2, 0.5 }, { 0.4, 2 }, false },
};

static void run_map(const map_row *m, bool table)
{
    static const struct {
        const char *what;
        deft_shape shape[2];
        int turned[2];
    } shapes[] = {
        { "[]", { { 0, { 0 } }, { 0, { 0 } } }, { 0, 0 } },
        { "[5]", { { 1, { 5 } }, { 1, { 5 } } }, { 0, 0 } },
        { "[3,4], transposed", { { 2, { 3, 4 } }, { 2, { 3, 4 } } }, { 1, 0 } },
        { "[3,1] and [4], reversed", { { 2, { 3, 1 } }, { 1, { 4 } } }, { 2, 2 } },
        { "[2,1,3] and []", { { 3, { 2, 1, 3 } }, { 0, { 0 } } }, { 0, 0 } },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        row r = { .op = m->op, .what = shapes[i].what, .f = m->f, .n_in = m->n_in };
        for (int k = 0; k < m->n_in; k++)
            r.in[k] = (operand){ shapes[i].shape[k], m->low[k], m->high[k], shapes[i].turned[k] };
        r.is_flat = m->is_flat;
        run(&r, table);
    }
}

/* ---- the others ---- */

#define S(...)                                                                                     \
    {                                                                                              \
        sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t),                                \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SCALAR                                                                                     \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define ALL DEFT_ALL_AXES

MAKE(sum_all, deft_sum(deft_square(x[0]), ALL, 0))
MAKE(sum_axis, deft_sum(deft_square(x[0]), DEFT_AXES(1), 0))
MAKE(sum_keep, deft_sum(deft_square(x[0]), DEFT_AXES(0, 2), 1))
MAKE(prod_all, deft_prod(x[0], ALL, 0))
MAKE(prod_axis, deft_prod(x[0], DEFT_AXES(-1), 1))
MAKE(max_all, deft_max(x[0], ALL, 0))
MAKE(max_axis, deft_max(x[0], DEFT_AXES(0), 0))
MAKE(min_axis, deft_min(x[0], DEFT_AXES(1), 1))
MAKE(mean, deft_mean(deft_exp(x[0]), DEFT_AXES(1), 0))
MAKE(var, deft_var(x[0], DEFT_AXES(0), 0, 1))
MAKE(cumsum_0, deft_cumsum(deft_square(x[0]), 0))
MAKE(cumsum_1, deft_cumsum(deft_square(x[0]), -1))
MAKE(cumprod_0, deft_cumprod(x[0], 0))
MAKE(cumprod_1, deft_cumprod(deft_add_f(x[0], 3), -1))
MAKE(cumprod_zero,
     deft_cumprod(deft_mul(x[0], deft_ne_i(deft_iota(cx, deft_shape_get(x[0]), 0), 2)), 0))
MAKE(cummax, deft_cummax(x[0], 1))
MAKE(cummin, deft_cummin(x[0], 0))
MAKE(cumulative_sum, deft_cumulative_sum(deft_square(x[0]), 0, true))
MAKE(cumulative_prod, deft_cumulative_prod(x[0], 1, true))
MAKE(fma, deft_fma(x[0], x[1], deft_square(x[0])))
MAKE(nanmean, deft_nanmean(deft_square(x[0]), DEFT_AXES(0), 0))
MAKE(nanvar, deft_nanvar(x[0], DEFT_AXES(1), 1, 1))
MAKE(nanstd, deft_nanstd(x[0], ALL, 0, 0))
MAKE(nanmax, deft_nanmax(x[0], DEFT_AXES(0), 0))
MAKE(norm, deft_vector_norm(x[0], 2, DEFT_AXES(1), 0))
MAKE(norm_3, deft_vector_norm(x[0], 3, ALL, 0))
MAKE(norm_1, deft_vector_norm(x[0], 1, DEFT_AXES(0), 0))
MAKE(norm_max, deft_vector_norm(x[0], INFINITY, DEFT_AXES(0), 0))
MAKE(median, deft_median(x[0], 0, 0))
MAKE(quantile, deft_quantile(x[0], 0.3, 1, 1))
MAKE(logcumsumexp, deft_logcumsumexp(x[0], 0))
MAKE(logsumexp, deft_logsumexp(x[0], DEFT_AXES(0, 2), 0))
MAKE(shift, deft_mul(deft_shift(x[0], (int64_t[]){ 1, -1 }, DEFT_PAD_REFLECT, 0), x[0]))
MAKE(std, deft_std(x[0], DEFT_AXES(0), 0, 1))
MAKE(std_all, deft_std(x[0], ALL, 1, 0))
MAKE(diff, deft_diff(deft_square(x[0]), 2, 1, NULL, NULL))
MAKE(diff_joined, deft_diff(x[0], 1, 0, x[0], deft_square(x[0])))
MAKE(moveaxis, deft_moveaxis(deft_square(x[0]), DEFT_AXES(0), DEFT_AXES(-1)))
MAKE(repeat, deft_square(deft_repeat(x[0], 3, 0)))
MAKE(tile, deft_square(deft_tile(x[0], DEFT_SHAPE(2, 1, 2))))
MAKE(roll_n, deft_mul(deft_roll_n(x[0], (int64_t[]){ 1, -1 }, DEFT_AXES(0, 1)), x[0]))
MAKE(take_along_axis, deft_take_along_axis(deft_square(x[0]), deft_argsort(x[0], 1, true), 1))
MAKE(slice, deft_square(deft_slice(x[0], DEFT_R(1, 3), DEFT_AT(0))))
MAKE(slice_step, deft_square(deft_slice(x[0], DEFT_RS(-1, DEFT_END, -2), DEFT_RS(0, 4, 3))))
MAKE(slice_twice, deft_mul(deft_slice(x[0], DEFT_R(0, -1)), deft_slice(x[0], DEFT_R(1, DEFT_END))))
MAKE(permute, deft_mul(deft_permute(x[0], DEFT_AXES(2, 0, 1)), x[1]))
MAKE(expand, deft_square(deft_expand(x[0], DEFT_SHAPE(2, 3, 4))))
MAKE(reshape, deft_mul(deft_reshape(x[0], DEFT_SHAPE(4, 3)), x[1]))
MAKE(squeeze, deft_square(deft_squeeze(deft_unsqueeze(x[0], 1), ALL)))
MAKE(unsqueeze, deft_mul(deft_unsqueeze(x[0], 0), deft_unsqueeze(x[0], 1)))
MAKE(diagonal, deft_square(deft_diagonal(x[0], 1, 0, 1)))
MAKE(diagonal_low, deft_square(deft_diagonal(x[0], -1, 1, 2)))
MAKE(concat, deft_square(deft_concat(x, 2, 0)))
MAKE(stack, deft_square(deft_stack(x, 2, 1)))
MAKE(pad,
     deft_square(deft_pad(x[0], (int64_t[]){ 1, 2 }, (int64_t[]){ 0, 1 }, DEFT_PAD_REFLECT, 0)))
MAKE(roll, deft_mul(deft_roll(x[0], 1, 0), x[0]))
MAKE(tril, deft_square(deft_tril(x[0], 0)))
MAKE(matmul, deft_matmul(x[0], x[1]))
MAKE(softmax, deft_softmax(x[0], -1))
MAKE(log_softmax, deft_log_softmax(x[0], 0))
MAKE(layer_norm, deft_layer_norm(x[0], 1, x[1], x[2], 1e-3))
MAKE(rms_norm, deft_rms_norm(x[0], 1, x[1], 1e-3))
MAKE(conv2d, deft_conv2d(x[0], x[1], DEFT_CONV2D(.padding = { 1, 1 }, .bias = x[2])))
MAKE(conv2d_bare, deft_conv2d(x[0], x[1], NULL))
MAKE(conv2d_strided,
     deft_conv2d(x[0], x[1],
                 DEFT_CONV2D(.stride = { 2, 3 }, .padding = { 1, 0 }, .dilation = { 1, 2 })))
MAKE(conv2d_grouped, deft_conv2d(x[0], x[1], DEFT_CONV2D(.groups = 2)))
MAKE(max_pool2d, deft_max_pool2d(x[0], DEFT_POOL2D(.kernel = { 2, 2 })))
MAKE(max_pool2d_near, deft_max_pool2d(x[0], DEFT_POOL2D(.kernel = { 3, 2 }, .stride = { 1, 1 },
                                                        .padding = { 1, 1 })))
MAKE(avg_pool2d,
     deft_avg_pool2d(deft_square(x[0]),
                     DEFT_POOL2D(.kernel = { 2, 3 }, .stride = { 2, 1 }, .padding = { 0, 1 })))
MAKE(attention, deft_attention(x[0], x[1], x[2], NULL))
MAKE(attention_causal,
     deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.scale = 2, .is_causal = true)))
MAKE(lerp, deft_lerp(x[0], x[1], x[2]))

static deft_tensor *assigned(deft_ctx *c, deft_tensor *place, deft_tensor *root, deft_tensor *to)
{
    (void)c;
    deft_assign(place, to);
    return deft_mul(root, root);
}

static deft_tensor *f_update(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const copy = deft_mul(x[0], x[0]);
    return assigned(c, deft_slice(copy, DEFT_R(1, 3), DEFT_AT(1)), copy, x[1]);
}

static deft_tensor *f_update_view(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const copy = deft_mul(x[0], x[0]);
    deft_tensor *const part = deft_slice(deft_t(copy), DEFT_RS(3, DEFT_END, -2));
    return assigned(c, deft_diagonal(part, 0, 0, 1), copy, x[1]);
}

static deft_tensor *indices(deft_ctx *c, deft_shape s)
{
    static const int64_t at[] = { 2, 0, 2, -1, 1, 2, 0, 0, 1, -3, 2, 1 };
    return deft_from(c, s, DEFT_I64, at, (size_t)numel(&s) * sizeof *at);
}

MAKE(embedding, deft_embedding(deft_square(x[0]), indices(c, DEFT_SHAPE(2, 3))))
MAKE(take, deft_take(deft_square(x[0]), indices(c, DEFT_SHAPE(2, 2)), 0))
MAKE(take_1, deft_take(deft_square(x[0]), indices(c, DEFT_SHAPE(5)), 1))
MAKE(gather, deft_gather(deft_square(x[0]), indices(c, DEFT_SHAPE(3, 4)), 0))
MAKE(scatter_add, deft_square(deft_scatter_add(x[0], indices(c, DEFT_SHAPE(3, 4)), x[1], 0)))
MAKE(index_add, deft_square(deft_index_add(x[0], indices(c, DEFT_SHAPE(2, 2)), x[1], 1)))
MAKE(scatter_set, deft_square(deft_scatter(x[0], indices(c, DEFT_SHAPE(3, 4)), x[1], 0)))
MAKE(index_set, deft_square(deft_index_copy(x[0], indices(c, DEFT_SHAPE(2, 2)), x[1], 1)))
MAKE(scatter_mul, deft_square(deft_scatter_reduce(x[0], indices(c, DEFT_SHAPE(3, 4)), x[1], 0,
                                                  DEFT_SCATTER_PROD, true)))
MAKE(index_mul, deft_square(deft_index_reduce(x[0], indices(c, DEFT_SHAPE(2, 2)), x[1], 1,
                                              DEFT_SCATTER_PROD, true)))
MAKE(scatter_min, deft_square(deft_scatter_reduce(x[0], indices(c, DEFT_SHAPE(3, 4)), x[1], 0,
                                                  DEFT_SCATTER_AMIN, true)))
MAKE(index_min, deft_square(deft_index_reduce(x[0], indices(c, DEFT_SHAPE(2, 2)), x[1], 1,
                                              DEFT_SCATTER_AMIN, true)))
MAKE(scatter_max, deft_square(deft_scatter_reduce(x[0], indices(c, DEFT_SHAPE(3, 4)), x[1], 0,
                                                  DEFT_SCATTER_AMAX, true)))
MAKE(index_max, deft_square(deft_index_reduce(x[0], indices(c, DEFT_SHAPE(2, 2)), x[1], 1,
                                              DEFT_SCATTER_AMAX, true)))
MAKE(compress, deft_compress(x[0], deft_gt(x[0], deft_num(c, -1)), 11, NULL))
MAKE(compress_few, deft_compress(deft_square(x[0]), deft_gt(x[0], deft_num(c, -1)), 3, NULL))
MAKE(topk, deft_topk(x[0], 2, -1, 1, NULL))
MAKE(sort, deft_mul(deft_sort(x[0], -1, 0), x[0]))
MAKE(cross_entropy, deft_cross_entropy(x[0], indices(c, DEFT_SHAPE(1))))

/* ---- loops and branches ---- */

/* s' = tanh(s * w + x), y = s' * s; n' = n + 1, which is no float. */
static deft_status cell(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    deft_tensor *const w = user;
    (void)c, (void)n_in, (void)n_out;
    deft_tensor *const by = deft_cast(in[1], DEFT_F64);
    deft_tensor *const x = deft_mul(in[2], deft_add_f(by, 1)); /* recorded before the other */
    out[0] = deft_tanh(deft_add(deft_mul(in[0], w), x));
    out[1] = deft_add_i(in[1], 1);
    out[2] = deft_mul(out[0], in[0]);
    return DEFT_OK;
}

/* x: first state, rows, weight. */
static deft_tensor *f_scan(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I32) };
    deft_tensor *out[3];
    if (!deft_scan(c, cell, x[2], init, 2, &x[1], 1, deft_dim(x[1], 0), 1, out)) return NULL;
    return deft_add(deft_sum(out[2], DEFT_AXES(0), 0), out[0]);
}

/* s' = tanh(s w + x), of which s' and s w are stacked: a gradient computes neither again. */
static deft_status product_cell(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                                size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out;
    out[2] = deft_matmul(in[0], user);
    out[0] = out[1] = deft_tanh(deft_add(out[2], in[1]));
    return DEFT_OK;
}

/* x: first state, rows, weight. Results of the loop are read in all ways. */
static deft_tensor *f_scan_product(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[3];
    if (!deft_scan(c, product_cell, x[2], x, 1, &x[1], 1, deft_dim(x[1], 0), 2, out)) return NULL;
    return deft_add(deft_sum(deft_mul(out[1], deft_square(out[2])), DEFT_AXES(0), 0), out[0]);
}

/* Two states of which the second alone sees the weight, and the first sees it a turn later. */
static deft_status chain(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out;
    out[0] = deft_add(deft_mul_f(in[0], 0.5), in[1]);
    out[1] = deft_mul(in[1], user);
    return DEFT_OK;
}

static deft_tensor *f_scan_late(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const one = deft_ones(c, deft_shape_get(x[0]), DEFT_F64);
    deft_tensor *const init[] = { deft_zeros(c, deft_shape_get(x[0]), DEFT_F64), one };
    deft_tensor *out[2];
    return deft_scan(c, chain, x[0], init, 2, NULL, 0, 4, 0, out) ? out[0] : NULL;
}

/* A loop within a loop. */
static deft_status outer(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    deft_tensor *const init[] = { in[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I32) };
    deft_tensor *inner[3];
    (void)n_in, (void)n_out;
    if (!deft_scan(c, cell, user, init, 2, &in[1], 1, deft_dim(in[1], 0), 1, inner))
        return DEFT_E_STATE;
    out[0] = deft_add(inner[0], deft_sum(inner[2], DEFT_AXES(0), 0));
    return DEFT_OK;
}

static deft_tensor *f_scan_nested(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[1];
    return deft_scan(c, outer, x[2], x, 1, &x[1], 1, deft_dim(x[1], 0), 0, out) ? out[0] : NULL;
}

static deft_status squares(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_square(in[0]), in[1]);
    return DEFT_OK;
}

/* Its derivative at a negative number is NaN: it must not be looked at where it is not taken. */
static deft_status roots(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_sqrt(in[0]);
    return DEFT_OK;
}

static deft_tensor *f_cond(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[1];
    (void)c;
    deft_tensor *const is_low = deft_lt_f(deft_sum(x[0], ALL, 0), 0);
    return deft_cond(is_low, squares, roots, NULL, x, 2, out, 1) ? out[0] : NULL;
}

static const row rows[] = {
    { "cast", "[3]", f_cast, 1, { { S(3), -2, 2, 0 } }, true },
    { "sum", "all of [2,3,2]", f_sum_all, 1, { { S(2, 3, 2), -2, 2, 0 } }, false },
    { "sum", "axis 1 of [3,4], transposed", f_sum_axis, 1, { { S(3, 4), -2, 2, 1 } }, false },
    { "sum", "two axes, kept", f_sum_keep, 1, { { S(2, 3, 2), -2, 2, 2 } }, false },
    { "sum", "mean of exp", f_mean, 1, { { S(3, 4), -1, 1, 0 } }, false },
    { "sum", "variance", f_var, 1, { { S(5, 2), -1, 1, 0 } }, false },
    { "prod", "all of [5]", f_prod_all, 1, { { S(5), 0.5, 2, 0 } }, false },
    { "prod", "rows", f_prod_axis, 1, { { S(3, 3), -2, -0.5, 1 } }, false },
    { "max", "all of [7]", f_max_all, 1, { { S(7), -2, 2, 0 } }, true },
    { "max", "columns", f_max_axis, 1, { { S(4, 3), -2, 2, 1 } }, true },
    { "min", "rows, kept", f_min_axis, 1, { { S(3, 4), -2, 2, 2 } }, true },
    { "cumsum", "axis 0", f_cumsum_0, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "cumsum", "last axis", f_cumsum_1, 1, { { S(2, 5), -2, 2, 1 } }, false },
    { "cumprod", "axis 0", f_cumprod_0, 1, { { S(4, 2), 0.5, 2, 0 } }, false },
    { "cumprod", "last axis", f_cumprod_1, 1, { { S(2, 5), -2, 2, 1 } }, false },
    { "cumprod", "with a zero", f_cumprod_zero, 1, { { S(5, 2), 0.5, 2, 0 } }, false },
    { "cummax", "last axis", f_cummax, 1, { { S(3, 5), -2, 2, 1 } }, true },
    { "cummin", "axis 0", f_cummin, 1, { { S(5, 3), -2, 2, 0 } }, true },
    { "cumsum", "with an initial 0", f_cumulative_sum, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "cumprod", "with an initial 1", f_cumulative_prod, 1, { { S(2, 4), 0.5, 2, 0 } }, false },
    { "fma", "[3,2] and [2]", f_fma, 2, { { S(3, 2), -2, 2, 0 }, { S(2), -2, 2, 0 } }, false },
    { "where", "nanmean", f_nanmean, 1, { { S(3, 2), -2, 2, 0 } }, false },
    { "where", "nanvar", f_nanvar, 1, { { S(2, 4), -2, 2, 0 } }, false },
    { "where", "nanstd", f_nanstd, 1, { { S(2, 3), -2, 2, 1 } }, false },
    { "where", "nanmax", f_nanmax, 1, { { S(4, 3), -2, 2, 0 } }, true },
    { "sqrt", "the norm of order 2", f_norm, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "pow", "the norm of order 3", f_norm_3, 1, { { S(3, 2), 0.5, 2, 0 } }, false },
    { "abs", "the norm of order 1", f_norm_1, 1, { { S(3, 2), 0.5, 2, 0 } }, true },
    { "max", "the norm of order infinity", f_norm_max, 1, { { S(3, 2), 0.5, 2, 0 } }, true },
    { "gather", "median", f_median, 1, { { S(5, 2), -2, 2, 0 } }, true },
    { "gather", "quantile", f_quantile, 1, { { S(2, 5), -2, 2, 0 } }, true },
    { "logaddexp", "logcumsumexp", f_logcumsumexp, 1, { { S(5, 2), -2, 2, 0 } }, false },
    { "log", "logsumexp", f_logsumexp, 1, { { S(3, 2, 2), -2, 2, 0 } }, false },
    { "update", "shift", f_shift, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "sqrt", "std of axis 0", f_std, 1, { { S(4, 3), -2, 2, 0 } }, false },
    { "sqrt", "std of all", f_std_all, 1, { { S(3, 3), -2, 2, 1 } }, false },
    { "sub", "diff", f_diff, 1, { { S(2, 5), -2, 2, 0 } }, false },
    { "sub",
      "diff with more before and after",
      f_diff_joined,
      1,
      { { S(3, 2), -2, 2, 0 } },
      false },
    { "permute", "moveaxis", f_moveaxis, 1, { { S(2, 3, 4), -2, 2, 0 } }, false },
    { "expand", "repeat", f_repeat, 1, { { S(2, 3), -2, 2, 0 } }, false },
    { "expand", "tile", f_tile, 1, { { S(2, 3), -2, 2, 0 } }, false },
    { "update", "roll_n", f_roll_n, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "gather", "take_along_axis", f_take_along_axis, 1, { { S(2, 4), -2, 2, 0 } }, false },
    { "slice", "a row's middle", f_slice, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "slice", "backwards by 2, by 3", f_slice_step, 1, { { S(5, 4), -2, 2, 1 } }, false },
    { "slice", "overlapping", f_slice_twice, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "permute",
      "three axes",
      f_permute,
      2,
      { { S(2, 3, 4), -2, 2, 0 }, { S(4, 2, 3), -2, 2, 0 } },
      false },
    { "expand", "[3,1]", f_expand, 1, { { S(3, 1), -2, 2, 0 } }, false },
    { "expand", "[]", f_expand, 1, { { SCALAR, -2, 2, 0 } }, false },
    { "reshape",
      "[2,6] to [4,3]",
      f_reshape,
      2,
      { { S(2, 6), -2, 2, 1 }, { S(4, 3), -2, 2, 0 } },
      false },
    { "squeeze", "[3,2]", f_squeeze, 1, { { S(3, 2), -2, 2, 0 } }, false },
    { "unsqueeze", "an outer product", f_unsqueeze, 1, { { S(4), -2, 2, 0 } }, false },
    { "diagonal", "above", f_diagonal, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "diagonal", "below, last axes", f_diagonal_low, 1, { { S(2, 3, 3), -2, 2, 0 } }, false },
    { "update", "concat", f_concat, 2, { { S(2, 3), -2, 2, 0 }, { S(1, 3), -2, 2, 0 } }, false },
    { "update", "stack", f_stack, 2, { { S(2, 3), -2, 2, 0 }, { S(2, 3), -2, 2, 1 } }, false },
    { "update", "pad, reflected", f_pad, 1, { { S(2, 4), -2, 2, 0 } }, false },
    { "update", "roll", f_roll, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "update",
      "assign to a slice",
      f_update,
      2,
      { { S(4, 2), -2, 2, 0 }, { S(2), -2, 2, 0 } },
      false },
    { "update",
      "assign to views of views",
      f_update_view,
      2,
      { { S(3, 4), -2, 2, 0 }, { S(2), -2, 2, 0 } },
      false },
    { "where", "tril", f_tril, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "take", "axis 0, repeated", f_take, 1, { { S(3, 2), -2, 2, 0 } }, false },
    { "take", "axis 1", f_take_1, 1, { { S(2, 3), -2, 2, 1 } }, false },
    { "gather", "axis 0, repeated", f_gather, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "compress", "room enough", f_compress, 1, { { S(2, 5), -2, 2, 0 } }, false },
    { "compress", "too little room", f_compress_few, 1, { { S(2, 5), -2, 2, 0 } }, false },
    { "gather", "topk", f_topk, 1, { { S(2, 5), -2, 2, 0 } }, false },
    { "gather", "sort", f_sort, 1, { { S(2, 5), -2, 2, 0 } }, false },
    { "scatter_add",
      "axis 0, repeated",
      f_scatter_add,
      2,
      { { S(3, 4), -2, 2, 0 }, { S(3, 4), -2, 2, 1 } },
      false },
    { "index_add",
      "axis 1, repeated",
      f_index_add,
      2,
      { { S(2, 3), -2, 2, 1 }, { S(2, 2, 2), -2, 2, 0 } },
      false },
    { "scatter_set",
      "axis 0, repeated",
      f_scatter_set,
      2,
      { { S(3, 4), -2, 2, 1 }, { S(3, 4), -2, 2, 1 } },
      false },
    { "index_set",
      "axis 1, repeated",
      f_index_set,
      2,
      { { S(2, 3), -2, 2, 1 }, { S(2, 2, 2), -2, 2, 1 } },
      false },
    { "scatter_mul",
      "axis 0, repeated",
      f_scatter_mul,
      2,
      { { S(3, 4), -2, 2, 1 }, { S(3, 4), -2, 2, 1 } },
      false },
    { "index_mul",
      "axis 1, repeated",
      f_index_mul,
      2,
      { { S(2, 3), -2, 2, 1 }, { S(2, 2, 2), -2, 2, 1 } },
      false },
    { "scatter_min",
      "axis 0, repeated",
      f_scatter_min,
      2,
      { { S(3, 4), -2, 2, 1 }, { S(3, 4), -2, 2, 1 } },
      false },
    { "index_min",
      "axis 1, repeated",
      f_index_min,
      2,
      { { S(2, 3), -2, 2, 1 }, { S(2, 2, 2), -2, 2, 1 } },
      false },
    { "scatter_max",
      "axis 0, repeated",
      f_scatter_max,
      2,
      { { S(3, 4), -2, 2, 1 }, { S(3, 4), -2, 2, 1 } },
      false },
    { "index_max",
      "axis 1, repeated",
      f_index_max,
      2,
      { { S(2, 3), -2, 2, 1 }, { S(2, 2, 2), -2, 2, 1 } },
      false },
    { "matmul",
      "[3,4] [4,2]",
      f_matmul,
      2,
      { { S(3, 4), -2, 2, 0 }, { S(4, 2), -2, 2, 1 } },
      false },
    { "matmul",
      "[2,3,4] [4,2], shared",
      f_matmul,
      2,
      { { S(2, 3, 4), -2, 2, 0 }, { S(4, 2), -2, 2, 0 } },
      false },
    { "matmul",
      "[4] [3,4,2]",
      f_matmul,
      2,
      { { S(4), -2, 2, 0 }, { S(3, 4, 2), -2, 2, 0 } },
      false },
    { "matmul",
      "[2,1,2,3] [2,3,2]",
      f_matmul,
      2,
      { { S(2, 1, 2, 3), -2, 2, 0 }, { S(2, 3, 2), -2, 2, 1 } },
      false },
    { "exp", "softmax", f_softmax, 1, { { S(3, 4), -2, 2, 0 } }, false },
    { "log", "log_softmax", f_log_softmax, 1, { { S(4, 2), -2, 2, 0 } }, false },
    { "log", "cross_entropy", f_cross_entropy, 1, { { S(1, 4), -2, 2, 0 } }, false },
    { "div",
      "layer_norm",
      f_layer_norm,
      3,
      { { S(3, 5), -2, 2, 0 }, { S(5), -2, 2, 0 }, { S(5), -2, 2, 0 } },
      false },
    { "div", "rms_norm", f_rms_norm, 2, { { S(3, 5), -2, 2, 1 }, { S(5), -2, 2, 0 } }, false },
    { "take", "embedding", f_embedding, 1, { { S(3, 2), -2, 2, 0 } }, false },
    { "matmul",
      "conv2d, padded, bias",
      f_conv2d,
      3,
      { { S(2, 2, 3, 3), -2, 2, 1 }, { S(3, 2, 2, 2), -2, 2, 0 }, { S(3), -2, 2, 0 } },
      false },
    { "matmul",
      "conv2d, 1 by 1",
      f_conv2d_bare,
      2,
      { { S(2, 3, 2, 2), -2, 2, 0 }, { S(2, 3, 1, 1), -2, 2, 0 } },
      false },
    { "matmul",
      "conv2d, strided, dilated",
      f_conv2d_strided,
      2,
      { { S(1, 2, 4, 7), -2, 2, 0 }, { S(2, 2, 2, 2), -2, 2, 1 } },
      false },
    { "matmul",
      "conv2d, grouped",
      f_conv2d_grouped,
      2,
      { { S(1, 4, 3, 3), -2, 2, 0 }, { S(4, 2, 2, 1), -2, 2, 0 } },
      false },
    { "where", "max_pool2d", f_max_pool2d, 1, { { S(1, 2, 4, 5), -2, 2, 1 } }, true },
    { "where",
      "max_pool2d, overlapping, padded",
      f_max_pool2d_near,
      1,
      { { S(1, 2, 4, 3), -2, 2, 0 } },
      true },
    { "slice", "avg_pool2d", f_avg_pool2d, 1, { { S(2, 1, 4, 4), -2, 2, 0 } }, false },
    { "matmul",
      "attention",
      f_attention,
      3,
      { { S(2, 3, 2), -2, 2, 0 }, { S(4, 2), -2, 2, 1 }, { S(2, 4, 3), -2, 2, 0 } },
      false },
    { "matmul",
      "attention, causal",
      f_attention_causal,
      3,
      { { S(4, 2), -2, 2, 0 }, { S(3, 2), -2, 2, 0 }, { S(3, 2), -2, 2, 1 } },
      false },
    { "final",
      "attention, in blocks",
      f_attention,
      3,
      { { S(2, 1), -2, 2, 0 }, { S(130, 1), -2, 2, 0 }, { S(130, 1), -2, 2, 0 } },
      false },
    { "mul",
      "lerp",
      f_lerp,
      3,
      { { S(3), -2, 2, 0 }, { S(2, 3), -2, 2, 0 }, { SCALAR, 0, 1, 0 } },
      false },
    { "final",
      "scan",
      f_scan,
      3,
      { { S(3), -1, 1, 0 }, { S(4, 3), -1, 1, 0 }, { S(3), -1, 1, 0 } },
      false },
    { "final", "scan, a weight seen late", f_scan_late, 1, { { S(3), 0.5, 1, 0 } }, false },
    { "final",
      "scan with a product",
      f_scan_product,
      3,
      { { S(2, 3), -1, 1, 0 }, { S(4, 2, 3), -1, 1, 0 }, { S(3, 3), -1, 1, 0 } },
      false },
    { "final",
      "scan with a product, of one turn",
      f_scan_product,
      3,
      { { S(2, 3), -1, 1, 0 }, { S(1, 2, 3), -1, 1, 0 }, { S(3, 3), -1, 1, 0 } },
      false },
    { "final",
      "scan with a product, of none",
      f_scan_product,
      3,
      { { S(2, 3), -1, 1, 0 }, { S(0, 2, 3), -1, 1, 0 }, { S(3, 3), -1, 1, 0 } },
      false },
    { "final",
      "scan of one turn",
      f_scan,
      3,
      { { S(2), -1, 1, 0 }, { S(1, 2), -1, 1, 0 }, { SCALAR, -1, 1, 0 } },
      false },
    { "final",
      "scan of none",
      f_scan,
      3,
      { { S(2), -1, 1, 0 }, { S(0, 2), -1, 1, 0 }, { SCALAR, -1, 1, 0 } },
      false },
    { "final",
      "scan in scan",
      f_scan_nested,
      3,
      { { S(2), -1, 1, 0 }, { S(2, 3, 2), -1, 1, 0 }, { S(2), -1, 1, 0 } },
      false },
    { "cond", "the first", f_cond, 2, { { S(3), -2, -1, 0 }, { S(3), -1, 1, 0 } }, false },
    { "cond", "the other", f_cond, 2, { { S(3), 1, 2, 0 }, { S(3), -1, 1, 0 } }, false },
};

/* ---- every op ---- */

static const struct {
    const char *op, *rule;
} rules[] = {
#define OP(name, n, class, facets) { #name, facets },
#define GRAD(rule) #rule
#include "ops/ops.def"
};

static bool has_row(const char *op)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (!strcmp(maps[i].op, op)) return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].op, op)) return true;
    return false;
}

static void check_table(bool table)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const bool none = !strcmp(rules[i].rule, "none") || !strcmp(rules[i].rule, "leaf") ||
                          !strcmp(rules[i].rule, "call"); /* it refuses: test_opaque.c */
        if (none && table) printf("%-12s not differentiable\n", rules[i].op);
        if (none || has_row(rules[i].op)) continue;
        printf("%s has a rule for gradients and no row here\n", rules[i].op);
        failed++;
    }
}

/* On a GPU every kernel is compiled anew, so as many rows are run as the time allows. */
static bool goes_on(void)
{
    return !getenv("DEFT_DEVICE") || test_time_left(1);
}

/* The row to run as the i-th of n. Rows near each other are alike: on a GPU they are scattered. */
static size_t nth(size_t i, size_t n)
{
    return getenv("DEFT_DEVICE") ? test_scattered((uint32_t)i, (uint32_t)n) : i;
}

int main(int argc, char **argv)
{
    bool table = false;
    int times = 3;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--table")) table = true;
        if (!strcmp(argv[i], "--quick")) times = 1;
        if (!strcmp(argv[i], "--full")) times = 100;
        if (!strncmp(argv[i], "--op=", 5)) only = argv[i] + 5;
    }
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    for (int n = 0; n < times; n++) {
        state = (uint64_t)n + 1;
        for (size_t i = 0; i < sizeof maps / sizeof *maps && goes_on(); i++) {
            const map_row *const at = &maps[nth(i, sizeof maps / sizeof *maps)];
            if (!only || !strcmp(only, at->op)) run_map(at, table && n == 0);
            test_bits_next();
        }
        for (size_t i = 0; i < sizeof rows / sizeof *rows && goes_on(); i++) {
            const row *const at = &rows[nth(i, sizeof rows / sizeof *rows)];
            if (!only || !strcmp(only, at->op)) run(at, table && n == 0);
            test_bits_next();
        }
    }
    if (!only) check_table(table);
    failed += !test_bits_end();
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
