/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of views, reductions, indexing, updates and products. The gradient of a view
 * that reads some elements is written into zeros through the same view.
 */
#include "lazy/calls/compose.h"
#include "lazy/grad/grad.h"
#include "lazy/calls/views.h"

#define X df_grad_src(w, k, 0)

/* A view of record a by op, with the given attribute, arguments and extents. DF_BAD
 * passes through. */
static uint32_t view(df_grad *w, df_op op, uint32_t a, uint32_t attr, const int64_t *args,
                     uint32_t n_args, const df_shape *out)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(w->cx, op, df_dtype_at(w->cx, a), attr, &a, args, n_args, out, w->site);
}

/* ---- views ---- */

/* The gradients of slices of a tensor are collected until the tensor's gradient is
 * needed. When the slices are adjacent and cover the tensor, each element is written
 * once. An example is q, k and v as three slices of one projection. */
bool df_grad_slice(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t x = X;
    if (!df_grad_is_active(w, x)) return true;
    uint32_t *const sum = &w->sum[x - w->from];
    uint8_t *const flags = &w->flags[x - w->from];
    if (*sum != DF_BAD && !(*flags & DF_GRAD_PIECES)) {
        *sum = df_grad_add_place(w, x, *sum, k, g);
        return *sum != DF_BAD;
    }
    const df_grad_piece piece = { .k = k, .g = g, .next = *sum };
    *sum = (uint32_t)w->piece.n;
    *flags |= DF_GRAD_PIECES;
    if (df_vec_push(w->cx->mem, &w->piece, piece)) return true;
    *flags &= (uint8_t)~DF_GRAD_PIECES;
    *sum = DF_BAD;
    df_error(w->cx, DEFT_E_MEMORY, "%s: no memory for the gradient of a slice", w->what);
    return false;
}

bool df_grad_diagonal(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t x = X;
    if (!df_grad_is_active(w, x)) return true;
    const uint32_t sum = df_grad_add_place(w, x, df_grad_of(w, x), k, g);
    w->sum[x - w->from] = sum;
    return sum != DF_BAD;
}

bool df_grad_permute(df_grad *w, uint32_t k, uint32_t g)
{
    const df_node n = w->cx->rec.nodes[k];
    uint32_t back = 0;
    for (uint32_t i = 0; i < n.rank; i++) back |= i << (4 * (n.attr >> (4 * i) & 15u));
    return df_grad_give(w, n.src[0].i, view(w, DF_OP_permute, g, back, NULL, 0, NULL));
}

/* df_grad_give sums over what was broadcast. */
bool df_grad_expand(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, g);
}

bool df_grad_squeeze(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, view(w, DF_OP_unsqueeze, g, w->cx->rec.nodes[k].attr, NULL, 0, NULL));
}

bool df_grad_unsqueeze(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, view(w, DF_OP_squeeze, g, w->cx->rec.nodes[k].attr, NULL, 0, NULL));
}

bool df_grad_reshape(df_grad *w, uint32_t k, uint32_t g)
{
    df_shape s;
    df_rec_shape(&w->cx->rec, X, &s);
    return df_grad_give(w, X, view(w, DF_OP_reshape, g, 0, NULL, 0, &s));
}

/* ---- updates ---- */

/* The update of base a with value b: the gradient of a is 0 where b was written, and b's
 * is what the place shows. */
bool df_grad_update(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const df_node n = cx->rec.nodes[k];
    const uint32_t base = n.src[0].i, value = n.src[1].i, via = n.src[2].i;
    const uint32_t place = df_rebase(cx, via, base, g);
    if (place == DF_BAD || !df_grad_give(w, value, place)) return false;
    if (!df_grad_is_active(w, base)) return true;
    if (w->flags[k - w->from] & DF_GRAD_JOINED) return df_grad_give(w, base, g);
    const uint32_t src[3] = { g, df_grad_zeros(cx, via, w->site), place };
    if (src[1] == DF_BAD) return false;
    return df_grad_give(
        w, base, df_append(cx, DF_OP_update, (deft_dtype)n.dtype, 0, src, NULL, 0, NULL, w->site));
}

/* ---- reductions ---- */

/* g, which has the shape of reduction k, with the reduced axes restored with extent 1. */
static uint32_t kept(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t attr = w->cx->rec.nodes[k].attr, axes = attr & 255u;
    if (attr & DF_REDUCE_KEEPDIMS || !axes) return g;
    return view(w, DF_OP_unsqueeze, g, axes, NULL, 0, NULL);
}

static uint32_t expand_gradient(df_grad *w, uint32_t k, uint32_t g)
{
    df_shape s;
    df_rec_shape(&w->cx->rec, X, &s);
    return df_expand_to(w->cx, kept(w, k, g), &s, w->site);
}

bool df_grad_sum(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, expand_gradient(w, k, g));
}

static uint32_t reduce_as(df_grad *w, uint32_t k, df_op op, uint32_t a)
{
    return df_reduce(w->cx, op, a, w->cx->rec.nodes[k].attr & 255u, true, w->site);
}

/* Equal extrema share the gradient, and all NaNs count as equal. The result is NaN when
 * any element is NaN, so a NaN is always among the extrema. */
bool df_grad_reduced_extremum(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t x = X, zero = df_cst(cx, df_dtype_at(cx, x), 0, w->site);
    const uint32_t is_it =
        df_grad_map2(w, DF_OP_bitwise_or, df_grad_map2(w, DF_OP_eq, x, kept(w, k, k)),
                     df_map1(cx, DF_OP_isnan, x, w->site));
    const uint32_t hits = df_to(cx, is_it, df_dtype_at(cx, x), w->site);
    const uint32_t share =
        df_grad_map2(w, DF_OP_div, kept(w, k, g), reduce_as(w, k, DF_OP_sum, hits));
    return df_grad_give(w, x, df_where(cx, is_it, share, zero, w->site));
}

/* The derivative is the product of the other elements. Without zeros, that is the product
 * over x. At the only zero, it is the product of the rest. Beside a zero it is 0. */
bool df_grad_prod(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t x = X;
    const deft_dtype t = df_dtype_at(cx, x);
    const uint32_t zero = df_cst(cx, t, 0, w->site), one = df_cst(cx, t, 1, w->site);
    const uint32_t is_zero = df_grad_map2(w, DF_OP_eq, x, zero);
    const uint32_t safe = df_where(cx, is_zero, one, x, w->site);
    const uint32_t rest = reduce_as(w, k, DF_OP_prod, safe);
    const uint32_t zeros = reduce_as(w, k, DF_OP_sum, df_to(cx, is_zero, t, w->site));
    const uint32_t none = df_grad_map2(w, DF_OP_eq, zeros, zero),
                   single = df_grad_map2(w, DF_OP_eq, zeros, one);
    const uint32_t only = df_grad_map2(w, DF_OP_bitwise_and, is_zero, single);
    const uint32_t others = df_where(cx, none, df_grad_map2(w, DF_OP_div, rest, safe),
                                     df_where(cx, only, rest, zero, w->site), w->site);
    return df_grad_give(w, x, df_grad_map2(w, DF_OP_mul, kept(w, k, g), others));
}

uint32_t df_grad_turned(df_grad *w, uint32_t a, uint32_t axis)
{
    df_shape s;
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&w->cx->rec, a, &s);
    for (uint32_t i = 0; i < s.rank; i++) step[i] = 1;
    if (s.dim[axis] > 0) {
        start[axis] = s.dim[axis] - 1;
        step[axis] = -1;
    }
    return df_slice_node(w->cx, a, start, step, &s, w->site);
}

static uint32_t running(df_grad *w, df_op op, uint32_t a, uint32_t axis)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(w->cx, op, df_dtype_at(w->cx, a), axis, &a, NULL, 0, NULL, w->site);
}

/* Running sums from the end of the axis. */
static uint32_t sums_from_end(df_grad *w, uint32_t a, uint32_t axis)
{
    const uint32_t sums = running(w, DF_OP_cumsum, df_grad_turned(w, a, axis), axis);
    return df_grad_turned(w, sums, axis);
}

bool df_grad_cumsum(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, sums_from_end(w, g, w->cx->rec.nodes[k].attr));
}

/* An element is a factor of its own product and of all later ones. Before the first zero, the
 * derivative is the sum of g times these products, divided by the element. At the first zero the
 * products are those without it. After it, each product has a zero among its other factors. */
bool df_grad_cumprod(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t x = X, axis = cx->rec.nodes[k].attr;
    const deft_dtype t = df_dtype_at(cx, x);
    const uint32_t zero = df_cst(cx, t, 0, w->site), one = df_cst(cx, t, 1, w->site);
    const uint32_t is_zero = df_grad_map2(w, DF_OP_eq, x, zero);
    const uint32_t zeros = running(w, DF_OP_cumsum, df_to(cx, is_zero, DEFT_I64, w->site), axis);
    const uint32_t is_before = df_grad_map2(w, DF_OP_eq, zeros, df_cst(cx, DEFT_I64, 0, w->site));
    const uint32_t is_first =
        df_grad_map2(w, DF_OP_bitwise_and, is_zero,
                     df_grad_map2(w, DF_OP_eq, zeros, df_cst(cx, DEFT_I64, 1, w->site)));
    const uint32_t safe = df_where(cx, is_zero, one, x, w->site);
    const uint32_t rest = running(w, DF_OP_cumprod, df_where(cx, is_first, one, x, w->site), axis);
    const uint32_t all = sums_from_end(w, df_grad_map2(w, DF_OP_mul, g, k), axis);
    const uint32_t others = sums_from_end(w, df_grad_map2(w, DF_OP_mul, g, rest), axis);
    return df_grad_give(w, x,
                        df_where(cx, is_before, df_grad_map2(w, DF_OP_div, all, safe),
                                 df_where(cx, is_first, others, zero, w->site), w->site));
}

/* The gradient of each result goes to the last element so far that equals it. All NaNs are
 * equal. */
bool df_grad_running_extremum(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t x = X, axis = cx->rec.nodes[k].attr;
    const deft_dtype t = df_dtype_at(cx, x), t_sum = df_is_half(t) ? DEFT_F32 : t;
    df_shape s;
    df_rec_shape(&cx->rec, x, &s);
    const uint32_t is_it = df_grad_map2(w, DF_OP_bitwise_or, df_grad_map2(w, DF_OP_eq, x, k),
                                        df_map1(cx, DF_OP_isnan, x, w->site));
    const uint32_t own = df_where(cx, is_it, df_iota_node(cx, &s, axis, w->site),
                                  df_cst(cx, DEFT_I64, 0, w->site), w->site);
    const uint32_t src[3] = { df_to(cx, df_grad_zeros(cx, x, w->site), t_sum, w->site),
                              running(w, DF_OP_cummax, own, axis), df_to(cx, g, t_sum, w->site) };
    if (src[0] == DF_BAD || src[1] == DF_BAD || src[2] == DF_BAD) return false;
    const uint32_t sums =
        df_append(cx, DF_OP_scatter_add, t_sum, axis, src, NULL, 0, NULL, w->site);
    return df_grad_give(w, x, df_to(cx, sums, t, w->site));
}

/* ---- indexing ---- */

/* Adds g to x's gradient at the elements that record k read at `index`. It is added into the
 * gradient so far, or into zeros. So a table that is also used elsewhere, such as in the
 * head of a network, needs no second gradient of its size and no sum of both. */
static bool give_scattered(df_grad *w, uint32_t k, uint32_t index, df_op op, uint32_t g)
{
    const df_node n = w->cx->rec.nodes[k];
    const uint32_t x = n.src[0].i, sum = df_grad_of(w, x);
    const deft_dtype t = (deft_dtype)n.dtype, t_sum = df_is_half(t) ? DEFT_F32 : t;
    /* otherwise computed separately, so that it is rounded once */
    const bool goes_on = sum != DF_BAD && t_sum == t;
    if (!df_grad_is_active(w, x)) return true;
    const uint32_t base = goes_on ? sum : df_grad_zeros(w->cx, x, w->site);
    const uint32_t src[3] = { df_to(w->cx, base, t_sum, w->site), index,
                              df_to(w->cx, g, t_sum, w->site) };
    if (src[0] == DF_BAD || index == DF_BAD || src[2] == DF_BAD) return false;
    const uint32_t sums = df_append(w->cx, op, t_sum, n.attr, src, NULL, 0, NULL, w->site);
    if (!goes_on) return df_grad_give(w, x, df_to(w->cx, sums, t, w->site));
    w->sum[x - w->from] = sums;
    return sums != DF_BAD;
}

bool df_grad_take(df_grad *w, uint32_t k, uint32_t g)
{
    return give_scattered(w, k, w->cx->rec.nodes[k].src[1].i, DF_OP_index_add, g);
}

bool df_grad_gather(df_grad *w, uint32_t k, uint32_t g)
{
    return give_scattered(w, k, w->cx->rec.nodes[k].src[1].i, DF_OP_scatter_add, g);
}

/* Unused rows have the position -1, the last one, to which they add 0. */
bool df_grad_compress(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t mask = cx->rec.nodes[k].src[1].i;
    df_shape n, room;
    df_rec_shape(&cx->rec, mask, &n);
    if (n.dim[0] == 0) return true; /* there is no last position */
    df_rec_shape(&cx->rec, k, &room);
    const uint32_t at = df_append(cx, DF_OP_which, DEFT_I64, 0, &mask, NULL, 0, &room, w->site);
    const uint32_t is = df_grad_map2(w, DF_OP_le, df_cst(cx, DEFT_I64, 0, w->site), at);
    const uint32_t zero = df_cst(cx, (deft_dtype)cx->rec.nodes[k].dtype, 0, w->site);
    return give_scattered(w, k, at, DF_OP_index_add, df_where(cx, is, g, zero, w->site));
}

/* The gradient of the added values is g at the elements to which they were added. */
static bool give_gathered(df_grad *w, uint32_t k, df_op op, uint32_t g)
{
    const df_node n = w->cx->rec.nodes[k];
    const uint32_t src[2] = { g, n.src[1].i };
    if (!df_grad_give(w, n.src[0].i, g)) return false;
    if (!df_grad_is_active(w, n.src[2].i)) return true;
    return df_grad_give(
        w, n.src[2].i,
        df_append(w->cx, op, (deft_dtype)n.dtype, n.attr, src, NULL, 0, NULL, w->site));
}

bool df_grad_scatter_add(df_grad *w, uint32_t k, uint32_t g)
{
    return give_gathered(w, k, DF_OP_gather, g);
}

bool df_grad_index_add(df_grad *w, uint32_t k, uint32_t g)
{
    return give_gathered(w, k, DF_OP_take, g);
}

/* ---- products ---- */

/* The attribute of a permute that exchanges the last two of `rank` axes. */
static uint32_t exchange(uint32_t rank)
{
    uint32_t attr = 0;
    for (uint32_t i = 0; i < rank; i++)
        attr |= (i + 2 < rank ? i : i + 2 == rank ? i + 1 : i - 1) << (4 * i);
    return attr;
}

static uint32_t transposed(df_grad *w, uint32_t a)
{
    if (a == DF_BAD) return DF_BAD;
    return view(w, DF_OP_permute, a, exchange(w->cx->rec.nodes[a].rank), NULL, 0, NULL);
}

/* Whether the gradient of record k must be recorded: it is wanted, or k has annotations. */
static bool is_seen(const df_grad *w, uint32_t k)
{
    return k - w->from < w->n && w->flags[k - w->from] & (DF_GRAD_ASKED | DF_GRAD_ANNOTATED);
}

/* The record of which k is the transpose, when the gradient of k itself need not be
 * recorded. Else DF_BAD. */
static uint32_t transpose_of(const df_grad *w, uint32_t k)
{
    const df_node *const n = &w->cx->rec.nodes[k];
    if (n->op != DF_OP_permute || n->attr != exchange(n->rank) || is_seen(w, k)) return DF_BAD;
    return n->src[0].i;
}

static uint32_t gradient_matmul(df_grad *w, uint32_t a, uint32_t b)
{
    const uint32_t src[2] = { a, b };
    if (a == DF_BAD || b == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_matmul, df_dtype_at(w->cx, a), 0, src, NULL, 0, NULL, w->site);
}

/* Adds a times b to the gradient of record k, which is active. When k is the transpose of
 * a weight, the weight gets b^T a^T directly, which are the same sums. The optimizer's
 * update then reads the gradient in the order of the weight, and can be fused into tiles
 * of the product. */
static bool give_matmul(df_grad *w, uint32_t k, uint32_t a, uint32_t b)
{
    const uint32_t of = transpose_of(w, k);
    if (of == DF_BAD) return df_grad_give(w, k, gradient_matmul(w, a, b));
    return df_grad_give(w, of, gradient_matmul(w, transposed(w, b), transposed(w, a)));
}

/* a [..., m, n] reshaped to [all rows, n]. */
static uint32_t flatten_batch_rows(df_grad *w, uint32_t a)
{
    df_shape s, flat = { .rank = 2, .dim = { 1 } };
    df_rec_shape(&w->cx->rec, a, &s);
    if (s.rank == 2) return a;
    for (uint32_t i = 0; i + 1 < s.rank; i++) flat.dim[0] *= s.dim[i];
    flat.dim[1] = s.dim[s.rank - 1];
    return view(w, DF_OP_reshape, a, 0, NULL, 0, &flat);
}

/* The matrix that record b broadcasts over a batch. DF_BAD when there is none, or the
 * gradient of b itself must be recorded. */
static uint32_t broadcast_matrix(const df_grad *w, uint32_t b)
{
    const df_node *const n = &w->cx->rec.nodes[b];
    if (n->op != DF_OP_expand || n->rank == 2 || is_seen(w, b)) return DF_BAD;
    const uint32_t x = n->src[0].i;
    return w->cx->rec.nodes[x].rank == 2 ? x : DF_BAD;
}

bool df_grad_shared_matrix(df_grad *w, uint32_t b, uint32_t a, uint32_t g)
{
    if (!df_grad_is_active(w, b)) return true;
    const uint32_t all = flatten_batch_rows(w, a), gs = flatten_batch_rows(w, g);
    return all != DF_BAD && gs != DF_BAD && give_matmul(w, b, transposed(w, all), gs);
}

bool df_grad_matmul(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t a = X, b = df_grad_src(w, k, 1), one = broadcast_matrix(w, b);
    if (df_grad_is_active(w, a) && !give_matmul(w, a, g, transposed(w, b))) return false;
    if (!df_grad_is_active(w, b)) return true;
    bool is_done;
    if (!df_grad_windows(w, k, g, &is_done)) return false;
    if (is_done) return true;
    if (one == DF_BAD) return give_matmul(w, b, transposed(w, a), g);
    /* The matrix is shared by the batch: one product over all rows replaces a sum of one
     * product each. */
    return df_grad_shared_matrix(w, one, a, g);
}
