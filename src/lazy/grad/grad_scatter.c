/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of scatters that set, multiply, or take the least or the greatest. Those of additions
 * are in grad_shape.c. Below, t is the tensor, v are the values, and a *meeting* is an element of
 * the result with all values whose index selects it.
 */
#include "lazy/grad/grad.h"

/* A record that scatters. */
typedef struct scattered {
    df_grad *w;
    uint32_t k, t, at, v; /* at: the indices */
    uint32_t axis;
    bool slices; /* an index stands for a slice of v */
} scattered;

static scattered scattered_of(df_grad *w, uint32_t k)
{
    const df_node n = w->cx->rec.nodes[k];
    return (scattered){ .w = w,
                        .k = k,
                        .t = n.src[0].i,
                        .at = n.src[1].i,
                        .v = n.src[2].i,
                        .axis = n.attr,
                        .slices = df_op_scatters_slices((df_op)n.op) };
}

/* Combines values with base at the indices of s. */
static uint32_t met(const scattered *s, df_scatter_how how, uint32_t base, uint32_t values)
{
    if (base == DF_BAD || values == DF_BAD) return DF_BAD;
    const uint32_t src[3] = { base, s->at, values };
    return df_append(s->w->cx, df_scatter_op(s->slices, how), df_dtype_at(s->w->cx, base), s->axis,
                     src, NULL, 0, NULL, s->w->site);
}

/* For each value, the element of a that its index selects. a has the shape of t. */
static uint32_t selected(const scattered *s, uint32_t a)
{
    const uint32_t src[2] = { a, s->at };
    if (a == DF_BAD) return DF_BAD;
    return df_append(s->w->cx, s->slices ? DF_OP_take : DF_OP_gather, df_dtype_at(s->w->cx, a),
                     s->axis, src, NULL, 0, NULL, s->w->site);
}

/* Gives t its gradient, and then v. */
static bool give_both(const scattered *s, uint32_t of_t, uint32_t of_v)
{
    return df_grad_give(s->w, s->t, of_t) && df_grad_give(s->w, s->v, of_v);
}

static uint32_t zeros_like(const scattered *s, uint32_t like, deft_dtype t)
{
    deft_ctx *const cx = s->w->cx;
    df_shape shape;
    df_rec_shape(&cx->rec, like, &shape);
    const uint32_t zero = df_cst(cx, t, 0, s->w->site);
    return shape.rank ? df_expand_to(cx, zero, &shape, s->w->site) : zero;
}

static uint32_t in_shape(const scattered *s, uint32_t a, const df_shape *to)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(s->w->cx, DF_OP_reshape, df_dtype_at(s->w->cx, a), 0, &a, NULL, 0, to,
                     s->w->site);
}

/* Whether each value is the last of its meeting, in a shape that broadcasts to v. The number of
 * each value is stored at its index, and is read again. For slices one number stands for a
 * slice. */
static uint32_t is_last(const scattered *s)
{
    df_grad *const w = s->w;
    deft_ctx *const cx = w->cx;
    df_shape shape, line = { .rank = 1 };
    df_rec_shape(&cx->rec, s->at, &shape);
    if (!s->slices) {
        const uint32_t number = df_iota_node(cx, &shape, s->axis, w->site);
        const uint32_t kept = met(s, DF_SCATTER_SET, zeros_like(s, s->t, DEFT_I64), number);
        return df_grad_map2(w, DF_OP_eq, selected(s, kept), number);
    }
    line.dim[0] = 1;
    for (uint32_t i = 0; i < shape.rank; i++) line.dim[0] *= shape.dim[i];
    const uint32_t number = in_shape(s, df_iota_node(cx, &line, 0, w->site), &shape);
    line.dim[0] = df_rec_extents(&cx->rec, s->t)[s->axis];
    const uint32_t zero = df_cst(cx, DEFT_I64, 0, w->site);
    scattered rows = *s;
    rows.axis = 0;
    const uint32_t kept =
        met(&rows, DF_SCATTER_SET, df_expand_to(cx, zero, &line, w->site), number);
    const uint32_t is_it = df_grad_map2(w, DF_OP_eq, selected(&rows, kept), number);
    for (uint32_t i = s->axis + 1; i < cx->rec.nodes[s->t].rank; i++) shape.dim[shape.rank++] = 1;
    return in_shape(s, is_it, &shape);
}

/* An element at an index depends on its last value alone. */
bool df_grad_scatter_set(df_grad *w, uint32_t k, uint32_t g)
{
    const scattered s = scattered_of(w, k);
    deft_ctx *const cx = w->cx;
    const deft_dtype t = df_dtype_at(cx, k);
    if (df_grad_is_active(w, s.t) &&
        !df_grad_give(w, s.t, met(&s, DF_SCATTER_SET, g, zeros_like(&s, s.v, t))))
        return false;
    if (!df_grad_is_active(w, s.v)) return true;
    return df_grad_give(
        w, s.v, df_where(cx, is_last(&s), selected(&s, g), df_cst(cx, t, 0, w->site), w->site));
}

/* The gradient of a meeting is divided evenly between those that are equal to its result. */
bool df_grad_scatter_extremum(df_grad *w, uint32_t k, uint32_t g)
{
    const scattered s = scattered_of(w, k);
    deft_ctx *const cx = w->cx;
    const deft_dtype t = df_dtype_at(cx, k);
    const uint32_t zero = df_cst(cx, t, 0, w->site), result = selected(&s, k);
    const uint32_t of_t = df_grad_map2(w, DF_OP_bitwise_or, df_grad_map2(w, DF_OP_eq, s.t, k),
                                       df_map1(cx, DF_OP_isnan, s.t, w->site));
    const uint32_t of_v = df_grad_map2(w, DF_OP_bitwise_or, df_grad_map2(w, DF_OP_eq, s.v, result),
                                       df_map1(cx, DF_OP_isnan, s.v, w->site));
    const uint32_t n =
        met(&s, DF_SCATTER_ADD, df_to(cx, of_t, t, w->site), df_to(cx, of_v, t, w->site));
    const uint32_t share = df_grad_map2(w, DF_OP_div, g, n);
    return give_both(&s, df_where(cx, of_t, share, zero, w->site),
                     df_where(cx, of_v, selected(&s, share), zero, w->site));
}

/* g times the product of all other numbers of the meeting: the product of those that are not 0,
 * without the number itself, where no other one is 0. x is the number, n_zeros are the zeros of its
 * meeting, and rest is g times the product. */
static uint32_t of_factor(df_grad *w, uint32_t x, uint32_t is_zero, uint32_t n_zeros, uint32_t rest)
{
    deft_ctx *const cx = w->cx;
    const deft_dtype t = df_dtype_at(cx, x);
    const uint32_t others =
        df_grad_map2(w, DF_OP_sub, n_zeros, df_to(cx, is_zero, DEFT_I64, w->site));
    const uint32_t safe = df_where(cx, is_zero, df_cst(cx, t, 1, w->site), x, w->site);
    const uint32_t zero = df_cst(cx, t, 0, w->site);
    const uint32_t quotient = df_grad_map2(w, DF_OP_div, rest, safe);
    const uint32_t is_only = df_grad_map2(w, DF_OP_eq, others, df_cst(cx, DEFT_I64, 0, w->site));
    return df_where(cx, is_only, quotient, zero, w->site);
}

/* What is recorded has an order, in which gradients of these records are added. No call has two
 * arguments that record: their order would be the compiler's. */
bool df_grad_scatter_mul(df_grad *w, uint32_t k, uint32_t g)
{
    const scattered s = scattered_of(w, k);
    deft_ctx *const cx = w->cx;
    const deft_dtype t = df_dtype_at(cx, k);
    const uint32_t zero = df_cst(cx, t, 0, w->site), one = df_cst(cx, t, 1, w->site);
    const uint32_t zero_t = df_grad_map2(w, DF_OP_eq, s.t, zero);
    const uint32_t zero_v = df_grad_map2(w, DF_OP_eq, s.v, zero);
    const uint32_t one_v = df_to(cx, zero_v, DEFT_I64, w->site);
    const uint32_t one_t = df_to(cx, zero_t, DEFT_I64, w->site);
    const uint32_t n_zeros = met(&s, DF_SCATTER_ADD, one_t, one_v);
    const uint32_t factor_v = df_where(cx, zero_v, one, s.v, w->site);
    const uint32_t factor_t = df_where(cx, zero_t, one, s.t, w->site);
    const uint32_t product = met(&s, DF_SCATTER_MUL, factor_t, factor_v);
    const uint32_t rest = df_grad_map2(w, DF_OP_mul, g, product);
    const uint32_t rest_v = selected(&s, rest), n_v = selected(&s, n_zeros);
    const uint32_t of_v = of_factor(w, s.v, zero_v, n_v, rest_v);
    return give_both(&s, of_factor(w, s.t, zero_t, n_zeros, rest), of_v);
}
