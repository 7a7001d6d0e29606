/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_attention.
 *
 * S queries and T keys have S times T scores. For long sequences, that is far more than
 * everything else, and each score is needed only briefly. So a scan goes over blocks of
 * keys. For each query it carries the greatest score m so far, the sum l of exp(score -
 * m), and acc, the sum of the values with the same weights. A greater m scales l and acc
 * down (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
 * al., "FlashAttention", 2022). The results are acc / l, and the logarithm of the sum, m
 * + log l.
 *
 * The gradient of a scan would keep the states, with an acc for each block. The backward
 * pass here needs none of them. With p = exp(score - log sum) and delta = sum(dout * out)
 * of a query:
 *
 *   dv = p^T dout
 *   dscore = p * (dout v^T - delta)
 *   dq = dscore k
 *   dk = dscore^T q
 *
 * It is again a scan over the blocks, with dq as its state and dk and dv as its rows. The
 * logarithm of the sum is a result like the other one, so that the backward pass has a
 * gradient, too. A gradient g of that result adds p * g to dscore.
 *
 * The first block has a key for every query, so after it m is a finite number. Before it
 * m is -infinity, for which exp(m - new m) is 0. With a mask or a window of the caller, a query
 * may see no key of a block, or none at all. Then exponents are taken relative to 0 while m is
 * -infinity, and a query that sees no key has the result 0.
 *
 * Why this file is long: both passes of one function.
 */
#define DEFT_NO_GENERIC
#include "deft/control.h"
#include "deft/layers.h"
#include "deft/ops.h"
#include "deft/capture.h"
#include "lazy/calls/compose.h"
#include "lazy/calls/control.h"
#include "lazy/run/body.h"
#include "lazy/grad/grad.h"

#include <math.h>

enum {
    BLOCK = DEFT_ATTENTION_BLOCK,
    FEW_QUERIES = 16, /* with up to as many queries, all scores are stored */
};

#define ROW DEFT_AXES(-1)

/* ---- scores ---- */

/* What the caller's mask is. */
typedef enum mask_kind { NO_MASK = 0, VISIBLE = 1, ADDED = 2 } mask_kind;

/* Which keys a query sees, and what its scores are, beyond the tag of the scan. */
typedef struct manner {
    mask_kind mask;
    bool is_causal;  /* without a tag */
    bool is_at_end;  /* the last query is at the last key; else the first one at the first */
    bool has_window; /* keys as far as the window are not seen */
    bool has_cap;    /* scores are capped */
} manner;

/* Whether a device's own attention cannot compute this. */
static bool is_special(const manner *m)
{
    return m->mask != NO_MASK || m->is_at_end || m->has_window || m->has_cap;
}

/* What the bodies of both scans need. */
typedef struct task {
    deft_tensor *q;            /* the queries, scaled */
    deft_tensor *dout;         /* backward pass: the gradient of the result */
    deft_tensor *log_sum;      /* backward pass: the logarithm of the sum */
    deft_tensor *less;         /* backward pass: what is subtracted from dout v^T */
    int64_t n_queries, n_keys; /* S and T: the numbers of queries and keys */
    bool has_padding;          /* keys from n_keys on are padding */
    df_loop_tag tag;           /* what the scan computes */
    manner how;
    deft_tensor *mask;   /* the caller's, with an axis of all keys; NULL: none */
    deft_tensor *window; /* the number of keys from the own one on; NULL: none */
    deft_tensor *cap;    /* the cap of scores; NULL: none */
} task;

/* The tensors of a call after q, k and v, in the order in which they are given. */
static void take_extras(task *a, deft_tensor *const *more)
{
    if (a->how.mask != NO_MASK) a->mask = *more++;
    if (a->how.has_window) a->window = *more++;
    if (a->how.has_cap) a->cap = *more++;
}

/* Bools that broadcast to [S, keys]: which of the keys at the positions `at` a query
 * sees. NULL: all. */
static deft_tensor *seen(deft_ctx *cx, const task *a, deft_tensor *at)
{
    deft_tensor *before = NULL, *inside = NULL;
    if (a->tag.is_causal) before = deft_le(at, deft_iota(cx, DEFT_SHAPE(a->n_queries, 1), 0));
    if (a->has_padding) inside = deft_lt(at, deft_const_i(cx, a->n_keys));
    return before && inside ? deft_bitwise_and(before, inside) : before ? before : inside;
}

static deft_tensor *both_seen(deft_tensor *a, deft_tensor *b)
{
    return a && b ? deft_bitwise_and(a, b) : a ? a : b;
}

/* Bools as of `seen`, for a special manner. mask: the caller's mask of these keys, if it is one of
 * bools. */
static deft_tensor *specially_seen(deft_ctx *cx, const task *a, deft_tensor *at, deft_tensor *mask)
{
    deft_tensor *own = deft_iota(cx, DEFT_SHAPE(a->n_queries, 1), 0), *is_seen = NULL;
    if (a->how.is_at_end) own = deft_add(own, deft_const_i(cx, a->n_keys - a->n_queries));
    if (a->how.is_causal) is_seen = deft_le(at, own);
    if (a->window) is_seen = both_seen(is_seen, deft_lt(deft_abs(deft_sub(own, at)), a->window));
    if (a->has_padding) is_seen = both_seen(is_seen, deft_lt(at, deft_const_i(cx, a->n_keys)));
    return a->how.mask == VISIBLE ? both_seen(is_seen, mask) : is_seen;
}

/* tanh of q k^T over the cap, and with the cap as factor. */
static deft_tensor *capped(const task *a, deft_tensor *s, deft_tensor **tanh)
{
    *tanh = deft_tanh(deft_div(s, a->cap));
    return deft_mul(*tanh, a->cap);
}

/* q k^T, and -infinity where a query does not see the key. mask: the caller's mask of these keys,
 * or NULL. *tanh: as of `capped`, where scores are. */
static deft_tensor *scores(deft_ctx *cx, const task *a, deft_tensor *k, deft_tensor *at,
                           deft_tensor *mask, deft_tensor **tanh)
{
    deft_tensor *s = deft_matmul(a->q, deft_t(k));
    deft_tensor *is_seen = NULL;
    if (is_special(&a->how)) {
        if (a->cap) s = capped(a, s, tanh);
        if (a->how.mask == ADDED) s = deft_add(s, mask);
        is_seen = specially_seen(cx, a, at, mask);
        if (!is_seen) return s;
    } else {
        if (!a->tag.is_causal && !a->has_padding) return s;
        is_seen = seen(cx, a, at);
    }
    return deft_where(is_seen, s, deft_const_f(cx, -INFINITY));
}

/* The number to which exponents are relative: m, or 0 where a query has seen no key. */
static deft_tensor *exponent_base(deft_ctx *cx, const task *a, deft_tensor *m)
{
    if (!is_special(&a->how)) return m;
    deft_tensor *const none = deft_const_f(cx, -INFINITY);
    return deft_where(deft_eq(m, none), deft_const_f(cx, 0), m);
}

/* ---- blocks ---- */

static int64_t n_key_blocks(int64_t n_keys)
{
    return (n_keys + BLOCK - 1) / BLOCK;
}

/* t, [..., T, D], as rows for a scan: [blocks, ..., BLOCK, D], padded with zeros. */
static deft_tensor *in_blocks(deft_tensor *t)
{
    deft_shape s = deft_shape_get(t);
    const uint32_t r = s.rank;
    if (!t) return NULL;
    const int64_t n = n_key_blocks(s.dim[r - 2]), more = n * BLOCK - s.dim[r - 2];
    const int64_t before[DEFT_MAX_RANK] = { 0 };
    int64_t after[DEFT_MAX_RANK] = { 0 };
    after[r - 2] = more;
    if (more) t = deft_pad(t, before, after, DEFT_PAD_CONSTANT, 0);
    deft_axes order = { .n = r + 1, .at = { (int32_t)r - 2 } };
    for (uint32_t i = 0; i < r - 2; i++) order.at[i + 1] = (int32_t)i;
    order.at[r - 1] = (int32_t)r - 1;
    order.at[r] = (int32_t)r;
    s.rank = r + 1;
    s.dim[r] = s.dim[r - 1];
    s.dim[r - 1] = BLOCK;
    s.dim[r - 2] = n;
    return deft_permute(deft_reshape(t, s), order);
}

/* The reverse of in_blocks: rows of a scan as a tensor of shape s. */
static deft_tensor *in_line(deft_tensor *rows, deft_shape s)
{
    const uint32_t r = s.rank;
    deft_axes order = { .n = r + 1 };
    for (uint32_t i = 0; i < r - 2; i++) order.at[i] = (int32_t)i + 1;
    order.at[r - 2] = 0;
    order.at[r - 1] = (int32_t)r - 1;
    order.at[r] = (int32_t)r;
    const int64_t n_keys = s.dim[r - 2];
    deft_range first[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < r; i++) first[i] = DEFT_FULL;
    first[r - 2] = DEFT_R(0, n_keys);
    s.dim[r - 2] = n_key_blocks(n_keys) * BLOCK;
    return deft_slice_n(deft_reshape(deft_permute(rows, order), s), r - 1, first);
}

/* The positions of the keys, in blocks. */
static deft_tensor *key_positions(deft_ctx *cx, int64_t n_keys)
{
    const int64_t n = n_key_blocks(n_keys);
    return deft_reshape(deft_iota(cx, DEFT_SHAPE(n * BLOCK), 0), DEFT_SHAPE(n, BLOCK));
}

/* The task of a call, as the forward pass needs it. in: q, scaled, k and v, and what else the
 * manner needs. */
static task task_of(deft_tensor *const *in, df_loop_tag tag, manner how)
{
    const int64_t n_keys = deft_dim(in[1], -2);
    task a = { .q = in[0],
               .n_queries = deft_dim(in[0], -2),
               .n_keys = n_keys,
               .has_padding = n_keys % BLOCK != 0,
               .tag = tag,
               .how = how };
    take_extras(&a, in + 3);
    return a;
}

static deft_tensor *columns_in_blocks(deft_tensor *t);

/* t with `more` elements of value v behind the last axis. */
static deft_tensor *padded_columns(deft_tensor *t, int64_t more, double v)
{
    const int64_t before[DEFT_MAX_RANK] = { 0 };
    int64_t after[DEFT_MAX_RANK] = { 0 };
    if (!t || !more) return t;
    after[deft_rank(t) - 1] = more;
    return deft_pad(t, before, after, DEFT_PAD_CONSTANT, v);
}

/* The caller's mask as rows for a scan: [blocks, ..., S, BLOCK]. */
static deft_tensor *mask_in_blocks(const task *a)
{
    const int64_t more = n_key_blocks(a->n_keys) * BLOCK - a->n_keys;
    return columns_in_blocks(padded_columns(a->mask, more, 0));
}

/* Runs a scan over the blocks. The attribute of its loop says what the scan computes, so
 * that a device may use an implementation of its own, or leave out what is masked. Returns
 * false with the error recorded. */
static bool scan_blocks(deft_ctx *cx, deft_body_fn body, df_loop_kind kind, task *a,
                        deft_tensor *const *init, size_t n_states, deft_tensor *const *rows,
                        size_t n_outs, deft_tensor **end)
{
    a->tag.kind = kind;
    a->tag.is_padded = a->has_padding;
    const size_t n_rows = a->mask ? 4 : 3;
    return df_scan(cx, body, a, init, n_states, rows, n_rows, n_key_blocks(a->n_keys), n_outs, end,
                   is_special(&a->how) ? 0 : df_loop_attr(a->tag), DF_SITE);
}

/* A tensor filled with value, of t's shape and dtype but with `last` as its last extent. */
static deft_tensor *initial_state(deft_ctx *cx, deft_tensor *t, int64_t last, double value)
{
    deft_shape s = deft_shape_get(t);
    s.dim[s.rank - 1] = last;
    return deft_full(cx, s, deft_dtype_of(t), value);
}

/* ---- forwards, block by block ---- */

/* The body of the forward scan. in: m, l, acc; keys, values, positions and the mask of a block.
 * out: new m, l, acc. */
static deft_status attend_forward_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                        deft_tensor **out, size_t n_out, void *user)
{
    (void)n_out;
    const task *const a = user;
    deft_tensor *tanh, *const s = scores(cx, a, in[3], in[5], n_in > 6 ? in[6] : NULL, &tanh);
    deft_tensor *const m = deft_maximum(in[0], deft_max(s, ROW, 1));
    deft_tensor *const base = exponent_base(cx, a, m);
    deft_tensor *const p = deft_exp(deft_sub(s, base));
    deft_tensor *const down = deft_exp(deft_sub(in[0], base));
    out[0] = m;
    out[1] = deft_add(deft_mul(in[1], down), deft_sum(p, ROW, 1));
    out[2] = deft_add(deft_mul(in[2], down), deft_matmul(p, in[4]));
    return DEFT_OK;
}

/* Sets end to m, l and acc after all blocks. in: q, k, v. init: m, l and acc before. Returns false
 * with the error recorded. */
static bool forward_scan(deft_ctx *cx, task *a, deft_tensor *const *in, deft_tensor *const *init,
                         deft_tensor **end)
{
    deft_tensor *const rows[] = { in_blocks(in[1]), in_blocks(in[2]), key_positions(cx, a->n_keys),
                                  a->mask ? mask_in_blocks(a) : NULL };
    return scan_blocks(cx, attend_forward_block, DF_LOOP_ATTENTION, a, init, 3, rows, 0, end);
}

/* ---- forwards, few queries ----
 *
 * All scores of a few queries take less memory than the keys, so they are stored. The scan over
 * blocks would copy keys and values into rows. Here they are read where they are. Each element is
 * computed by the same operations in the same order as in that scan, so that the bits are equal.
 * First a short scan finds m after each block. Then p and its products with the values are computed
 * for all blocks at once. A second short scan adds the blocks up.
 */

/* t, [..., S, blocks * BLOCK], as [blocks, ..., S, BLOCK]. */
static deft_tensor *columns_in_blocks(deft_tensor *t)
{
    deft_shape s = deft_shape_get(t);
    const uint32_t r = s.rank;
    if (!t) return NULL;
    deft_axes order = { .n = r + 1, .at = { (int32_t)r - 1 } };
    for (uint32_t i = 0; i < r - 1; i++) order.at[i + 1] = (int32_t)i;
    order.at[r] = (int32_t)r;
    s.rank = r + 1;
    s.dim[r] = BLOCK;
    s.dim[r - 1] /= BLOCK;
    return deft_permute(deft_reshape(t, s), order);
}

/* Elements [first, first + n) of axis `axis`. */
static deft_tensor *elements_along(deft_tensor *t, uint32_t axis, int64_t first, int64_t n)
{
    deft_range range[DEFT_MAX_RANK];
    if (!t) return NULL;
    for (uint32_t i = 0; i < axis; i++) range[i] = DEFT_FULL;
    range[axis] = DEFT_R(first, first + n);
    return deft_slice_n(t, axis + 1, range);
}

/* The products p v of each block, [blocks, ..., S, E]. The last block may have fewer keys. Then p
 * is 0 where the scan has padding, and the scan adds 0 to each product at least once. */
static deft_tensor *products_of_blocks(deft_ctx *cx, deft_tensor *p, deft_tensor *v)
{
    if (!p || !v) return NULL;
    const uint32_t axis = deft_rank(v) - 2;
    const int64_t n_keys = deft_dim(v, -2), n_full = n_keys / BLOCK, more = n_keys % BLOCK;
    if (more == 0) return deft_matmul(p, in_blocks(v));
    deft_tensor *const last_p =
        elements_along(elements_along(p, 0, n_full, 1), deft_rank(p) - 1, 0, more);
    deft_tensor *const last_v = deft_unsqueeze(elements_along(v, axis, n_full * BLOCK, more), 0);
    deft_tensor *const full_v = in_blocks(elements_along(v, axis, 0, n_full * BLOCK));
    deft_tensor *const parts[] = { deft_matmul(elements_along(p, 0, 0, n_full), full_v),
                                   deft_add(deft_matmul(last_p, last_v), deft_const_f(cx, 0)) };
    return deft_concat(parts, 2, 0);
}

/* The body of the first scan. in: m; the greatest scores of a block. out: new m, twice. */
static deft_status greatest_so_far(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = out[1] = deft_maximum(in[0], in[1]);
    return DEFT_OK;
}

/* The body of the second scan. in: m, l, acc; new m, the sum of p and p v of a block. out: new m,
 * l, acc. */
static deft_status add_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    deft_tensor *const down = deft_exp(deft_sub(in[0], exponent_base(cx, user, in[3])));
    out[0] = in[3];
    out[1] = deft_add(deft_mul(in[1], down), in[4]);
    out[2] = deft_add(deft_mul(in[2], down), in[5]);
    return DEFT_OK;
}

/* As forward_scan, for few queries. */
static bool forward_few(deft_ctx *cx, task *a, deft_tensor *const *in, deft_tensor *const *init,
                        deft_tensor **end)
{
    const int64_t n = n_key_blocks(a->n_keys), more = n * BLOCK - a->n_keys;
    deft_tensor *const at = deft_iota(cx, DEFT_SHAPE(a->n_keys), 0);
    deft_tensor *tanh, *s = scores(cx, a, in[1], at, a->mask, &tanh);
    if (!s) return false;
    s = columns_in_blocks(padded_columns(s, more, -INFINITY));
    deft_tensor *const top = deft_max(s, ROW, 1);
    deft_tensor *m[2];
    if (!df_scan(cx, greatest_so_far, NULL, init, 1, &top, 1, n, 1, m, 0, DF_SITE)) return false;
    deft_tensor *const p = deft_exp(deft_sub(s, exponent_base(cx, a, m[1])));
    deft_tensor *const rows[] = { m[1], deft_sum(p, ROW, 1), products_of_blocks(cx, p, in[2]) };
    return df_scan(cx, add_block, a, init, 3, rows, 3, n, 0, end, 0, DF_SITE);
}

/* ---- forwards ---- */

/* The result of a special manner, where the sum l is 0 for a query that sees no key. */
static void finish_special(deft_ctx *cx, deft_tensor *const *end, deft_tensor **out)
{
    deft_tensor *const zero = deft_const_f(cx, 0);
    deft_tensor *const sees = deft_ne(end[1], zero); /* NaN stays NaN */
    deft_tensor *const l = deft_where(sees, end[1], deft_const_f(cx, 1));
    out[0] = deft_div(end[2], l);
    out[1] = deft_where(sees, deft_add(end[0], deft_log(l)), zero);
}

/* in: q, k, v, and what else the manner needs. out: the result, and the logarithm of the sum. */
static deft_status forward(deft_ctx *cx, deft_tensor *const *in, deft_tensor **out, df_loop_tag tag,
                           manner how)
{
    task a = task_of(in, tag, how);
    deft_tensor *const init[] = { initial_state(cx, in[0], 1, -INFINITY),
                                  initial_state(cx, in[0], 1, 0),
                                  initial_state(cx, in[0], deft_dim(in[2], -1), 0) };
    deft_tensor *end[3];
    const bool few = a.n_queries <= FEW_QUERIES;
    if (few) a.has_padding = false; /* scores are padded, not keys */
    if (few ? !forward_few(cx, &a, in, init, end) : !forward_scan(cx, &a, in, init, end))
        return DEFT_E_STATE;
    if (is_special(&how)) {
        finish_special(cx, end, out);
        return DEFT_OK;
    }
    out[0] = deft_div(end[2], end[1]);
    out[1] = deft_add(end[0], deft_log(end[1]));
    return DEFT_OK;
}

/* ---- backwards ---- */

/* The body of the backward scan. in: dq; keys, values, positions and the mask of a block. out: dq;
 * dk and dv of the block, and with an added mask the gradient of its scores. */
static deft_status attend_backward_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                         deft_tensor **out, size_t n_out, void *user)
{
    const task *const a = user;
    deft_tensor *tanh, *const s = scores(cx, a, in[1], in[3], n_in > 4 ? in[4] : NULL, &tanh);
    deft_tensor *const p = deft_exp(deft_sub(s, a->log_sum));
    deft_tensor *const by_p = deft_matmul(a->dout, deft_t(in[2]));
    deft_tensor *by_score = deft_mul(p, deft_sub(by_p, a->less));
    if (n_out > 3) out[3] = by_score;
    if (a->cap) by_score = deft_mul(by_score, deft_sub(deft_const_f(cx, 1), deft_square(tanh)));
    out[0] = deft_add(in[0], deft_matmul(by_score, in[1]));
    out[1] = deft_matmul(deft_t(by_score), a->q);
    out[2] = deft_matmul(deft_t(p), a->dout);
    return DEFT_OK;
}

/* The gradient of an added mask, from the gradients of scores [blocks, ..., S, BLOCK]. */
static deft_tensor *gradient_of_mask(const task *a, deft_tensor *blocks)
{
    const uint32_t r = deft_rank(blocks) - 1;
    const deft_shape of = deft_shape_get(a->mask);
    deft_shape s = { .rank = r };
    deft_axes order = { .n = r + 1 }, sums = { .n = 0 };
    if (!blocks) return NULL;
    for (uint32_t i = 0; i + 1 < r; i++) {
        order.at[i] = (int32_t)i + 1;
        s.dim[i] = deft_dim(blocks, (int)i + 1);
        const bool is_axis = i + of.rank >= r;
        if (!is_axis || of.dim[i + of.rank - r] != s.dim[i]) sums.at[sums.n++] = (int32_t)i;
    }
    order.at[r - 1] = 0;
    order.at[r] = (int32_t)r;
    s.dim[r - 1] = n_key_blocks(a->n_keys) * BLOCK;
    deft_tensor *const line = deft_reshape(deft_permute(blocks, order), s);
    deft_tensor *const all = elements_along(line, r - 1, 0, a->n_keys);
    return deft_reshape(sums.n ? deft_sum(all, sums, true) : all, of);
}

/* in: as of forward. out, grad_out: as `out` of forward, and their gradients, of which none is
 * NULL. grad_in: the gradients of in. */
static deft_status backward(deft_ctx *cx, deft_tensor *const *in, deft_tensor *const *out,
                            deft_tensor *const *grad_out, deft_tensor **grad_in, df_loop_tag tag,
                            manner how)
{
    task a = task_of(in, tag, how);
    a.dout = grad_out[0];
    a.log_sum = out[1];
    a.less = deft_sub(deft_sum(deft_mul(grad_out[0], out[0]), ROW, 1), grad_out[1]);
    deft_tensor *const init[] = { initial_state(cx, in[0], deft_dim(in[0], -1), 0) };
    deft_tensor *const rows[] = { in_blocks(in[1]), in_blocks(in[2]), key_positions(cx, a.n_keys),
                                  a.mask ? mask_in_blocks(&a) : NULL };
    deft_tensor *end[4];
    const size_t n_outs = how.mask == ADDED ? 3 : 2;
    if (!scan_blocks(cx, attend_backward_block, DF_LOOP_ATTENTION_GRAD, &a, init, 1, rows, n_outs,
                     end))
        return DEFT_E_STATE;
    if (how.mask == ADDED) grad_in[3] = gradient_of_mask(&a, end[3]);
    grad_in[0] = end[0];
    grad_in[1] = in_line(end[1], deft_shape_get(in[1]));
    grad_in[2] = in_line(end[2], deft_shape_get(in[2]));
    return DEFT_OK;
}

/* ---- as custom functions ---- */

/* The user of the custom function is valid after the call, too: the attribute of the forward scan's
 * tag in the lower bits, and the manner above. */
enum { MANNER_SHIFT = 32 };

static void *user_of(df_loop_tag tag, const manner *m)
{
    const uint64_t bits = (uint64_t)m->mask | (m->is_causal ? 4u : 0u) | (m->is_at_end ? 8u : 0u) |
                          (m->has_window ? 16u : 0u) | (m->has_cap ? 32u : 0u);
    _Static_assert(sizeof(uintptr_t) == sizeof(uint64_t), "a pointer holds both");
    return (void *)(uintptr_t)(df_loop_attr(tag) | bits << MANNER_SHIFT);
}

static df_loop_tag tag_of(const void *user)
{
    df_loop_tag tag;
    df_loop_tag_of((uint32_t)(uintptr_t)user, &tag);
    return tag;
}

static manner manner_of(const void *user)
{
    const uint64_t bits = (uint64_t)(uintptr_t)user >> MANNER_SHIFT;
    return (manner){ .mask = (mask_kind)(bits & 3),
                     .is_causal = (bits & 4) != 0,
                     .is_at_end = (bits & 8) != 0,
                     .has_window = (bits & 16) != 0,
                     .has_cap = (bits & 32) != 0 };
}

static deft_status forward_of(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    return forward(cx, in, out, tag_of(user), manner_of(user));
}

static deft_status backward_of(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    (void)n_in, (void)n_out;
    return backward(cx, in, out, grad_out, grad_in, tag_of(user), manner_of(user));
}

/* Computes all scores at once, for keys that fit in a single block. */
static deft_status at_once(deft_ctx *cx, deft_tensor *const *in, deft_tensor **out, df_loop_tag tag,
                           manner how)
{
    task a = task_of(in, tag, how);
    a.has_padding = false;
    deft_tensor *const at = deft_iota(cx, DEFT_SHAPE(a.n_keys), 0);
    deft_tensor *tanh, *const s = scores(cx, &a, in[1], at, a.mask, &tanh);
    if (!is_special(&how)) {
        out[0] = deft_matmul(deft_softmax(s, -1), in[2]);
        return DEFT_OK;
    }
    deft_tensor *const m = deft_stop_gradient(exponent_base(cx, &a, deft_max(s, ROW, 1)));
    deft_tensor *const p = deft_exp(deft_sub(s, m)), *const sum = deft_sum(p, ROW, 1);
    deft_tensor *const sees = deft_ne(sum, deft_const_f(cx, 0));
    deft_tensor *const l = deft_where(sees, sum, deft_const_f(cx, 1));
    out[0] = deft_matmul(deft_div(p, l), in[2]);
    return DEFT_OK;
}

/* ---- the call ---- */

typedef struct operands {
    uint32_t node[3]; /* q, k, v */
    df_shape s[3];
    manner how;
    deft_tensor *mask; /* of the caller */
    double window, cap;
} operands;

/* The most tensors of a call: q, k, v, mask, window, cap. */
enum { MOST_INPUTS = 6 };

/* The batch axes of all three operands, broadcast, as the first axes of *out. Returns
 * false when they differ. */
static bool common_batch(const operands *o, df_shape *out)
{
    out->rank = 0;
    for (int i = 0; i < 3; i++)
        if (o->s[i].rank > out->rank) out->rank = o->s[i].rank;
    for (uint32_t j = 0; j + 2 < out->rank; j++) {
        out->dim[j] = 1;
        for (int i = 0; i < 3; i++) {
            const uint32_t off = out->rank - o->s[i].rank;
            const int64_t d = j < off ? 1 : o->s[i].dim[j - off];
            if (d != 1 && out->dim[j] != 1 && d != out->dim[j]) return false;
            if (d != 1) out->dim[j] = d;
        }
    }
    return true;
}

/* Checks shapes and dtypes, and sets *batch (common_batch). Returns false with the error
 * recorded. */
static bool check_attention_operands(deft_ctx *cx, const operands *o, df_shape *batch)
{
    char q[DF_SHAPE_TEXT], k[DF_SHAPE_TEXT], v[DF_SHAPE_TEXT];
    const df_shape *const s = o->s;
    const uint32_t a = s[0].rank, b = s[1].rank, c = s[2].rank;
    const deft_dtype t = df_dtype_at(cx, o->node[0]);
    const bool fits = a >= 2 && b >= 2 && c >= 2 && a < DEFT_MAX_RANK && b < DEFT_MAX_RANK &&
                      c < DEFT_MAX_RANK && s[0].dim[a - 1] == s[1].dim[b - 1] &&
                      s[1].dim[b - 2] == s[2].dim[c - 2] && s[1].dim[b - 2] > 0;
    if (!fits || !common_batch(o, batch)) {
        df_error(cx, DEFT_E_SHAPE,
                 "attention: q is %s, k is %s, v is %s; it takes [..., S, D], [..., T, D], [..., "
                 "T, E] with T at least 1 and at most %d axes",
                 df_shape_text(&s[0], q, sizeof q), df_shape_text(&s[1], k, sizeof k),
                 df_shape_text(&s[2], v, sizeof v), DEFT_MAX_RANK - 1);
        return false;
    }
    if (df_is_float(t) && df_dtype_at(cx, o->node[1]) == t && df_dtype_at(cx, o->node[2]) == t)
        return true;
    df_error(cx, DEFT_E_DTYPE, "attention: q is %s, k is %s, v is %s; it takes floats of one dtype",
             deft_dtype_name(t), deft_dtype_name(df_dtype_at(cx, o->node[1])),
             deft_dtype_name(df_dtype_at(cx, o->node[2])));
    return false;
}

/* Makes handles of the operands in the open body: with equal batch axes, and q scaled.
 * Returns false with the error recorded. */
static bool make_attention_inputs(deft_ctx *cx, const operands *o, const df_shape *batch,
                                  double scale, deft_tensor *in[MOST_INPUTS], size_t *n,
                                  uintptr_t site)
{
    const deft_dtype t = df_dtype_at(cx, o->node[0]);
    for (int i = 0; i < 3; i++) {
        df_shape want = *batch;
        uint32_t a = o->node[i];
        const df_shape *const s = &o->s[i];
        want.dim[want.rank - 2] = s->dim[s->rank - 2];
        want.dim[want.rank - 1] = s->dim[s->rank - 1];
        if (!df_shape_equal(&want, s)) a = df_expand_to(cx, a, &want, site);
        if (i == 0)
            a = df_map2(cx, DF_OP_mul, a, df_number_f(cx, "attention", t, scale, site), site);
        if (!(in[i] = df_result(cx, a))) return false;
    }
    *n = 3;
    if (o->how.mask != NO_MASK) {
        deft_shape s = deft_shape_get(o->mask);
        s.dim[s.rank - 1] = o->s[1].dim[o->s[1].rank - 2];
        in[(*n)++] = deft_expand(o->how.mask == ADDED ? deft_cast(o->mask, t) : o->mask, s);
        if (!in[*n - 1]) return false;
    }
    if (o->how.has_window) in[(*n)++] = deft_const_i(cx, (int64_t)o->window);
    if (o->how.has_cap) in[(*n)++] = deft_cast(deft_const_f(cx, o->cap), t);
    return true;
}

/* Computes the result within a body (lazy/run/body.h), whose handles end with it. Returns the
 * record of the result, or DF_BAD with the error recorded. */
static uint32_t attend(deft_ctx *cx, const operands *o, const df_shape *batch, double scale,
                       df_loop_tag tag, uintptr_t site)
{
    uint32_t was, made = DF_BAD;
    deft_tensor *in[MOST_INPUTS], *out[2] = { 0 };
    size_t n;
    if (!df_body_open(cx, site, &was)) return DF_BAD;
    bool ok = make_attention_inputs(cx, o, batch, scale, in, &n, site);
    const uint32_t first = cx->rec.n;
    if (ok && o->s[1].dim[o->s[1].rank - 2] <= BLOCK) {
        ok = at_once(cx, in, out, tag, o->how) == DEFT_OK;
        df_rec_sites_set(cx, first, site); /* df_custom_grad does this for its own records */
    } else if (ok) {
        ok = df_custom_grad(cx, forward_of, backward_of, user_of(tag, &o->how), in, n, out, 2, site,
                            true);
    }
    if (ok && out[0]) made = df_node_of(cx, out[0]);
    df_body_close(cx, was);
    return made;
}

/* Checks the mask of the caller against the queries and keys, and sets the manner. Returns false
 * with the error recorded. */
static bool take_manner(deft_ctx *cx, const deft_attention_options *o, const df_shape *batch,
                        operands *x)
{
    char text[DF_SHAPE_TEXT];
    const deft_tensor *const mask = o->mask;
    if (o->window < 0 || !(o->cap >= 0) || !isfinite(o->cap)) {
        df_error(cx, DEFT_E_ARG, "attention: window %lld and cap %g must be positive",
                 (long long)o->window, o->cap);
        return false;
    }
    x->how = (manner){ .is_causal = o->is_causal,
                       .is_at_end = o->is_at_end && (o->is_causal || o->window),
                       .has_window = o->window > 0,
                       .has_cap = o->cap > 0 };
    x->window = (double)o->window;
    x->cap = o->cap;
    x->mask = o->mask;
    if (!mask) return true;
    if (df_operand(cx, "attention", 4, o->mask) == DF_BAD) return false;
    const deft_dtype t = deft_dtype_of(mask);
    x->how.mask = t == DEFT_BOOL ? VISIBLE : ADDED;
    df_shape s = { .rank = deft_rank(mask) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = deft_dim(mask, (int)i);
    df_shape want = *batch;
    want.dim[want.rank - 2] = x->s[0].dim[x->s[0].rank - 2];
    want.dim[want.rank - 1] = x->s[1].dim[x->s[1].rank - 2];
    bool fits = (t == DEFT_BOOL || df_is_float(t)) && s.rank >= 2 && s.rank <= want.rank;
    for (uint32_t i = 0; fits && i < s.rank; i++) {
        const int64_t d = s.dim[i];
        fits = d == 1 || d == want.dim[want.rank - s.rank + i];
    }
    if (fits) return true;
    char of[DF_SHAPE_TEXT];
    df_error(
        cx, DEFT_E_SHAPE,
        "attention: the mask is %s%s, which does not broadcast to scores %s, or is neither bool "
        "nor float",
        deft_dtype_name(t), df_shape_text(&s, text, sizeof text),
        df_shape_text(&want, of, sizeof of));
    return false;
}

/* ---- groups of queries ----
 *
 * Some heads of queries share a head of keys and values (Ainslie et al., "GQA", 2023). They get an
 * axis of their own, along which keys and values broadcast.
 */

/* t [..., heads, M, N] as [..., heads / n, n, M, N]. */
static deft_tensor *parted_heads(deft_tensor *t, int64_t n)
{
    deft_shape s = deft_shape_get(t);
    const uint32_t r = s.rank;
    s.rank = r + 1;
    s.dim[r] = s.dim[r - 1];
    s.dim[r - 1] = s.dim[r - 2];
    s.dim[r - 2] = n;
    s.dim[r - 3] /= n;
    return deft_reshape(t, s);
}

static deft_tensor *grouped_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                      const deft_attention_options *options)
{
    deft_attention_options o = *options;
    deft_ctx *const cx = deft_ctx_of(q);
    if (!q || !k || !v) return NULL;
    const int64_t heads = deft_dim(q, -3), shared = deft_dim(k, -3);
    if (heads < 1 || shared < 1 || heads % shared || deft_dim(v, -3) != shared ||
        deft_rank(q) > DEFT_MAX_RANK - 2)
        return df_error(cx, DEFT_E_SHAPE,
                        "attention: %lld heads of queries do not share %lld heads of keys and %lld "
                        "of values",
                        (long long)heads, (long long)shared, (long long)deft_dim(v, -3));
    o.has_grouped_heads = false;
    if (o.mask && deft_rank(o.mask) > 2)
        o.mask = deft_dim(o.mask, -3) == heads ? parted_heads(o.mask, heads / shared)
                                               : deft_unsqueeze(o.mask, -3);
    deft_tensor *const y = deft_attention(parted_heads(q, heads / shared), deft_unsqueeze(k, -3),
                                          deft_unsqueeze(v, -3), &o);
    deft_shape s = deft_shape_get(q);
    s.dim[s.rank - 1] = deft_dim(v, -1);
    return deft_reshape(y, s);
}

static deft_tensor *ungrouped_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                        const deft_attention_options *o, uintptr_t site)
{
    operands x;
    df_shape batch;
    deft_tensor *const list[] = { q, k, v };
    deft_ctx *const cx = df_begin("attention", q, &x.node[0], &x.s[0], site);
    if (!cx) return NULL;
    for (unsigned i = 1; i < 3; i++) {
        if (!df_enter_more(cx, "attention", i + 1, list[i])) return NULL;
        if ((x.node[i] = df_node_of(cx, list[i])) == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, x.node[i], &x.s[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_mixed_operand(cx, DF_OP_matmul, x.node[i], site);
        if (x.node[i] == DF_BAD) return NULL;
    }
    if (!check_attention_operands(cx, &x, &batch)) return NULL;
    if (!take_manner(cx, o, &batch, &x)) return NULL;
    const double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)x.s[0].dim[x.s[0].rank - 1]);
    /* Halves are cast to f32, and the result is rounded once, as in other composites. */
    const deft_dtype callers_dtype = df_dtype_at(cx, x.node[0]);
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_to(cx, x.node[i], df_arithmetic_dtype(callers_dtype), site);
        if (x.node[i] == DF_BAD) return NULL;
    }
    const df_loop_tag tag = { .kind = DF_LOOP_ATTENTION,
                              .is_causal = o->is_causal,
                              .is_scaled = o->scale == 0, /* the default, 1 / sqrt(D) */
                              .from = callers_dtype };
    const uint8_t mixed = cx->mixed;
    cx->mixed = 0; /* the composite computes everything in that dtype */
    const uint32_t made = attend(cx, &x, &batch, scale, tag, site);
    cx->mixed = mixed;
    return df_result(cx, df_to(cx, made, callers_dtype, site));
}

deft_tensor *deft_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                            const deft_attention_options *options)
{
    deft_attention_options o;
    deft_ctx *const cx = df_enter("attention", 1, q, DF_SITE);
    if (!cx) return NULL;
    if (options && !df_check_options(cx, "attention", "deft_attention_options", options->size))
        return NULL;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (!o.has_grouped_heads) return ungrouped_attention(q, k, v, &o, DF_SITE);
    DF_LAYER_RETURN(deft_tensor *, cx, grouped_attention(q, k, v, &o));
}
