/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, block by block.
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
 * attention_call.c has the public call.
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
#include "lazy/layers/attention.h"

#include <math.h>

enum {
    BLOCK = DEFT_ATTENTION_BLOCK,
    FEW_QUERIES = 16, /* with up to as many queries, all scores are stored */
};

#define ROW DEFT_AXES(-1)

/* ---- scores ---- */

/* Whether a device's own attention cannot compute this. */
static bool is_special(const df_manner *m)
{
    return m->mask != DF_MASK_NONE || m->is_at_end || m->has_window || m->has_cap;
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
    df_manner how;
    deft_tensor *mask;   /* the caller's, with an axis of all keys; NULL: none */
    deft_tensor *window; /* the number of keys from the own one on; NULL: none */
    deft_tensor *cap;    /* the cap of scores; NULL: none */
} task;

/* The tensors of a call after q, k and v, in the order in which they are given. */
static void take_extras(task *a, deft_tensor *const *more)
{
    if (a->how.mask != DF_MASK_NONE) a->mask = *more++;
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
    return a->how.mask == DF_MASK_VISIBLE ? both_seen(is_seen, mask) : is_seen;
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
        if (a->how.mask == DF_MASK_ADDED) s = deft_add(s, mask);
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
static task task_of(deft_tensor *const *in, df_loop_tag tag, df_manner how)
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
 * First a short scan finds m before and after each block. Then p, its products with the values and
 * the factors that scale l and acc down are computed for all blocks at once. A second short scan
 * adds the blocks up. The bodies of both scans are elementwise, so each scan is one launch, and the
 * keys and values of the caller may grow in place (docs/control.md).
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

/* The body of the first scan. in: m; the greatest scores of a block. out: new m; as rows: new m,
 * m. */
static deft_status greatest_so_far(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = out[1] = deft_maximum(in[0], in[1]);
    out[2] = in[0];
    return DEFT_OK;
}

/* The body of the second scan. in: l, acc; the factors for l and for acc, the sum of p and p v of a
 * block. out: new l, acc. */
static deft_status add_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(deft_mul(in[0], in[2]), in[4]);
    out[1] = deft_add(deft_mul(in[1], in[3]), in[5]);
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
    deft_tensor *m[3]; /* after all blocks, after each, before each */
    if (!df_scan(cx, greatest_so_far, NULL, init, 1, &top, 1, n, 2, m, 0, DF_SITE)) return false;
    deft_tensor *const base = exponent_base(cx, a, m[1]), *const p = deft_exp(deft_sub(s, base));
    deft_tensor *const down = deft_exp(deft_sub(m[2], base));
    deft_tensor *const products = products_of_blocks(cx, p, in[2]);
    deft_tensor *const rows[] = { down, deft_expand(down, deft_shape_get(products)),
                                  deft_sum(p, ROW, 1), products };
    end[0] = m[0];
    return df_scan(cx, add_block, NULL, init + 1, 2, rows, 4, n, 0, end + 1, 0, DF_SITE);
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
                           df_manner how)
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
                            df_manner how)
{
    task a = task_of(in, tag, how);
    a.dout = grad_out[0];
    a.log_sum = out[1];
    a.less = deft_sub(deft_sum(deft_mul(grad_out[0], out[0]), ROW, 1), grad_out[1]);
    deft_tensor *const init[] = { initial_state(cx, in[0], deft_dim(in[0], -1), 0) };
    deft_tensor *const rows[] = { in_blocks(in[1]), in_blocks(in[2]), key_positions(cx, a.n_keys),
                                  a.mask ? mask_in_blocks(&a) : NULL };
    deft_tensor *end[4];
    const size_t n_outs = how.mask == DF_MASK_ADDED ? 3 : 2;
    if (!scan_blocks(cx, attend_backward_block, DF_LOOP_ATTENTION_GRAD, &a, init, 1, rows, n_outs,
                     end))
        return DEFT_E_STATE;
    if (how.mask == DF_MASK_ADDED) grad_in[3] = gradient_of_mask(&a, end[3]);
    grad_in[0] = end[0];
    grad_in[1] = in_line(end[1], deft_shape_get(in[1]));
    grad_in[2] = in_line(end[2], deft_shape_get(in[2]));
    return DEFT_OK;
}

/* ---- as custom functions ---- */

/* The user of the custom function is valid after the call, too: the attribute of the forward scan's
 * tag in the lower 16 bits, and the manner above. A pointer of 32 bits holds both. */
enum { MANNER_SHIFT = 16 };

static void *user_of(df_loop_tag tag, const df_manner *m)
{
    const uint32_t bits = (uint32_t)m->mask | (m->is_causal ? 4u : 0u) | (m->is_at_end ? 8u : 0u) |
                          (m->has_window ? 16u : 0u) | (m->has_cap ? 32u : 0u);
    const uint32_t attr = df_loop_attr(tag);
    df_assert(attr >> MANNER_SHIFT == 0);
    return (void *)(uintptr_t)(attr | bits << MANNER_SHIFT);
}

static df_loop_tag tag_of(const void *user)
{
    df_loop_tag tag;
    df_loop_tag_of((uint32_t)((uintptr_t)user & ((1u << MANNER_SHIFT) - 1)), &tag);
    return tag;
}

static df_manner manner_of(const void *user)
{
    const uint32_t bits = (uint32_t)(uintptr_t)user >> MANNER_SHIFT;
    return (df_manner){ .mask = (df_mask_kind)(bits & 3),
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

/* Computes all scores at once: for keys that fit in a single block, and in fast mode for few
 * queries. */
static deft_status at_once(deft_ctx *cx, deft_tensor *const *in, deft_tensor **out, df_loop_tag tag,
                           df_manner how)
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

deft_tensor *df_attend(deft_ctx *cx, deft_tensor *const *in, size_t n, df_loop_tag tag,
                       const df_manner *how, uintptr_t site)
{
    const uint32_t first = cx->rec.n;
    /* All scores of few queries are stored anyway, and a trace without loops lets keys and values
     * grow in place. The bits are others than those of blocks. */
    const bool is_few = deft_dim(in[0], -2) <= FEW_QUERIES;
    const bool has_blocks =
        deft_dim(in[1], -2) > BLOCK && !(is_few && (cx->trace_flags & DF_TRACE_FAST));
    deft_tensor *out[2] = { NULL };
    if (has_blocks)
        return df_custom_grad(cx, forward_of, backward_of, user_of(tag, how), in, n, out, 2, site,
                              true)
                   ? out[0]
                   : NULL;
    if (at_once(cx, in, out, tag, *how) != DEFT_OK) return NULL;
    df_rec_sites_set(cx, first, site); /* df_custom_grad does this for its own records */
    return out[0];
}
