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
 * m is -infinity, for which exp(m - new m) is 0.
 */
#define DEFT_NO_GENERIC
#include "deft/control.h"
#include "deft/layers.h"
#include "deft/ops.h"
#include "deft/capture.h"
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

/* What the bodies of both scans need. */
typedef struct task {
    deft_tensor *q;            /* the queries, scaled */
    deft_tensor *dout;         /* backward pass: the gradient of the result */
    deft_tensor *log_sum;      /* backward pass: the logarithm of the sum */
    deft_tensor *less;         /* backward pass: what is subtracted from dout v^T */
    int64_t n_queries, n_keys; /* S and T: the numbers of queries and keys */
    bool has_padding;          /* keys from n_keys on are padding */
    df_loop_tag tag;           /* what the scan computes */
} task;

/* Bools that broadcast to [S, keys]: which of the keys at the positions `at` a query
 * sees. NULL: all. */
static deft_tensor *seen(deft_ctx *cx, const task *a, deft_tensor *at)
{
    deft_tensor *before = NULL, *inside = NULL;
    if (a->tag.is_causal) before = deft_le(at, deft_iota(cx, DEFT_SHAPE(a->n_queries, 1), 0));
    if (a->has_padding) inside = deft_lt(at, deft_const_i(cx, a->n_keys));
    return before && inside ? deft_bitwise_and(before, inside) : before ? before : inside;
}

/* q k^T, and -infinity where a query does not see the key. */
static deft_tensor *scores(deft_ctx *cx, const task *a, deft_tensor *k, deft_tensor *at)
{
    deft_tensor *const s = deft_matmul(a->q, deft_t(k));
    if (!a->tag.is_causal && !a->has_padding) return s;
    return deft_where(seen(cx, a, at), s, deft_const_f(cx, -INFINITY));
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

/* The task of the scaled queries q and the keys k, as the forward pass needs it. */
static task task_of(deft_tensor *q, deft_tensor *k, df_loop_tag tag)
{
    const int64_t n_keys = deft_dim(k, -2);
    return (task){ .q = q,
                   .n_queries = deft_dim(q, -2),
                   .n_keys = n_keys,
                   .has_padding = n_keys % BLOCK != 0,
                   .tag = tag };
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
    return df_scan(cx, body, a, init, n_states, rows, 3, n_key_blocks(a->n_keys), n_outs, end,
                   df_loop_attr(a->tag), DF_SITE);
}

/* A tensor filled with value, of t's shape and dtype but with `last` as its last extent. */
static deft_tensor *initial_state(deft_ctx *cx, deft_tensor *t, int64_t last, double value)
{
    deft_shape s = deft_shape_get(t);
    s.dim[s.rank - 1] = last;
    return deft_full(cx, s, deft_dtype_of(t), value);
}

/* ---- forwards, block by block ---- */

/* The body of the forward scan. in: m, l, acc; keys, values and positions of a block.
 * out: new m, l, acc. */
static deft_status attend_forward_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                        deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    deft_tensor *const s = scores(cx, user, in[3], in[5]);
    deft_tensor *const m = deft_maximum(in[0], deft_max(s, ROW, 1));
    deft_tensor *const p = deft_exp(deft_sub(s, m)), *const down = deft_exp(deft_sub(in[0], m));
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
    deft_tensor *const rows[] = { in_blocks(in[1]), in_blocks(in[2]),
                                  key_positions(cx, a->n_keys) };
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
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const down = deft_exp(deft_sub(in[0], in[3]));
    out[0] = in[3];
    out[1] = deft_add(deft_mul(in[1], down), in[4]);
    out[2] = deft_add(deft_mul(in[2], down), in[5]);
    return DEFT_OK;
}

/* As forward_scan, for few queries. */
static bool forward_few(deft_ctx *cx, const task *a, deft_tensor *const *in,
                        deft_tensor *const *init, deft_tensor **end)
{
    const int64_t n = n_key_blocks(a->n_keys), more = n * BLOCK - a->n_keys;
    deft_tensor *const at = deft_iota(cx, DEFT_SHAPE(a->n_keys), 0);
    deft_tensor *s = scores(cx, a, in[1], at);
    const int64_t before[DEFT_MAX_RANK] = { 0 };
    int64_t after[DEFT_MAX_RANK] = { 0 };
    if (!s) return false;
    after[deft_rank(s) - 1] = more;
    if (more) s = deft_pad(s, before, after, DEFT_PAD_CONSTANT, -INFINITY);
    s = columns_in_blocks(s);
    deft_tensor *const top = deft_max(s, ROW, 1);
    deft_tensor *m[2];
    if (!df_scan(cx, greatest_so_far, NULL, init, 1, &top, 1, n, 1, m, 0, DF_SITE)) return false;
    deft_tensor *const p = deft_exp(deft_sub(s, m[1]));
    deft_tensor *const rows[] = { m[1], deft_sum(p, ROW, 1), products_of_blocks(cx, p, in[2]) };
    return df_scan(cx, add_block, NULL, init, 3, rows, 3, n, 0, end, 0, DF_SITE);
}

/* ---- forwards ---- */

/* in: q, k, v. out: the result, and the logarithm of the sum. */
static deft_status forward(deft_ctx *cx, deft_tensor *const *in, deft_tensor **out, df_loop_tag tag)
{
    task a = task_of(in[0], in[1], tag);
    deft_tensor *const init[] = { initial_state(cx, in[0], 1, -INFINITY),
                                  initial_state(cx, in[0], 1, 0),
                                  initial_state(cx, in[0], deft_dim(in[2], -1), 0) };
    deft_tensor *end[3];
    const bool few = a.n_queries <= FEW_QUERIES;
    if (few) a.has_padding = false; /* scores are padded, not keys */
    if (few ? !forward_few(cx, &a, in, init, end) : !forward_scan(cx, &a, in, init, end))
        return DEFT_E_STATE;
    out[0] = deft_div(end[2], end[1]);
    out[1] = deft_add(end[0], deft_log(end[1]));
    return DEFT_OK;
}

/* ---- backwards ---- */

/* The body of the backward scan. in: dq; keys, values and positions of a block. out: dq;
 * dk and dv of the block. */
static deft_status attend_backward_block(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                         deft_tensor **out, size_t n_out, void *user)
{
    const task *const a = user;
    (void)n_in, (void)n_out;
    deft_tensor *const p = deft_exp(deft_sub(scores(cx, a, in[1], in[3]), a->log_sum));
    deft_tensor *const by_p = deft_matmul(a->dout, deft_t(in[2]));
    deft_tensor *const by_score = deft_mul(p, deft_sub(by_p, a->less));
    out[0] = deft_add(in[0], deft_matmul(by_score, in[1]));
    out[1] = deft_matmul(deft_t(by_score), a->q);
    out[2] = deft_matmul(deft_t(p), a->dout);
    return DEFT_OK;
}

/* in: q, k, v. out, grad_out: as `out` of forward, and their gradients, of which none is NULL.
 * grad_in: the gradients of in. */
static deft_status backward(deft_ctx *cx, deft_tensor *const *in, deft_tensor *const *out,
                            deft_tensor *const *grad_out, deft_tensor **grad_in, df_loop_tag tag)
{
    task a = task_of(in[0], in[1], tag);
    a.dout = grad_out[0];
    a.log_sum = out[1];
    a.less = deft_sub(deft_sum(deft_mul(grad_out[0], out[0]), ROW, 1), grad_out[1]);
    deft_tensor *const init[] = { initial_state(cx, in[0], deft_dim(in[0], -1), 0) };
    deft_tensor *const rows[] = { in_blocks(in[1]), in_blocks(in[2]), key_positions(cx, a.n_keys) };
    deft_tensor *end[3];
    if (!scan_blocks(cx, attend_backward_block, DF_LOOP_ATTENTION_GRAD, &a, init, 1, rows, 2, end))
        return DEFT_E_STATE;
    grad_in[0] = end[0];
    grad_in[1] = in_line(end[1], deft_shape_get(in[1]));
    grad_in[2] = in_line(end[2], deft_shape_get(in[2]));
    return DEFT_OK;
}

/* ---- as custom functions ---- */

/* user: df_loop_attr of the forward scan's tag as a pointer, which is valid after the
 * call, too. */
static df_loop_tag tag_of(const void *user)
{
    df_loop_tag tag;
    df_loop_tag_of((uint32_t)(uintptr_t)user, &tag);
    return tag;
}

static deft_status forward_of(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    return forward(cx, in, out, tag_of(user));
}

static deft_status backward_of(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    (void)n_in, (void)n_out;
    return backward(cx, in, out, grad_out, grad_in, tag_of(user));
}

/* Computes all scores at once, for keys that fit in a single block. */
static deft_status at_once(deft_ctx *cx, deft_tensor *const *in, deft_tensor **out, df_loop_tag tag)
{
    task a = task_of(in[0], in[1], tag);
    a.has_padding = false;
    deft_tensor *const at = deft_iota(cx, DEFT_SHAPE(a.n_keys), 0);
    out[0] = deft_matmul(deft_softmax(scores(cx, &a, in[1], at), -1), in[2]);
    return DEFT_OK;
}

/* ---- the call ---- */

typedef struct operands {
    uint32_t node[3]; /* q, k, v */
    df_shape s[3];
} operands;

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
                                  double scale, deft_tensor *in[3], uintptr_t site)
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
    return true;
}

/* Computes the result within a body (lazy/run/body.h), whose handles end with it. Returns the
 * record of the result, or DF_BAD with the error recorded. */
static uint32_t attend(deft_ctx *cx, const operands *o, const df_shape *batch, double scale,
                       df_loop_tag tag, uintptr_t site)
{
    uint32_t was, made = DF_BAD;
    deft_tensor *in[3], *out[2] = { 0 };
    if (!df_body_open(cx, site, &was)) return DF_BAD;
    bool ok = make_attention_inputs(cx, o, batch, scale, in, site);
    const uint32_t first = cx->rec.n;
    if (ok && o->s[1].dim[o->s[1].rank - 2] <= BLOCK) {
        ok = at_once(cx, in, out, tag) == DEFT_OK;
        df_rec_sites_set(cx, first, site); /* df_custom_grad does this for its own records */
    } else if (ok) {
        ok = df_custom_grad(cx, forward_of, backward_of, (void *)(uintptr_t)df_loop_attr(tag), in,
                            3, out, 2, site, true);
    }
    if (ok && out[0]) made = df_node_of(cx, out[0]);
    df_body_close(cx, was);
    return made;
}

deft_tensor *deft_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                            const deft_attention_options *options)
{
    deft_attention_options o;
    operands x;
    df_shape batch;
    deft_tensor *const list[] = { q, k, v };
    deft_ctx *const cx = df_begin("attention", q, &x.node[0], &x.s[0], DF_SITE);
    if (!cx) return NULL;
    for (unsigned i = 1; i < 3; i++) {
        if (!df_enter_more(cx, "attention", i + 1, list[i])) return NULL;
        if ((x.node[i] = df_node_of(cx, list[i])) == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, x.node[i], &x.s[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_mixed_operand(cx, DF_OP_matmul, x.node[i], DF_SITE);
        if (x.node[i] == DF_BAD) return NULL;
    }
    if (options && !df_check_options(cx, "attention", "deft_attention_options", options->size))
        return NULL;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (!check_attention_operands(cx, &x, &batch)) return NULL;
    const double scale = o.scale != 0 ? o.scale : 1 / sqrt((double)x.s[0].dim[x.s[0].rank - 1]);
    /* Halves are cast to f32, and the result is rounded once, as in other composites. */
    const deft_dtype callers_dtype = df_dtype_at(cx, x.node[0]);
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_to(cx, x.node[i], df_arithmetic_dtype(callers_dtype), DF_SITE);
        if (x.node[i] == DF_BAD) return NULL;
    }
    const df_loop_tag tag = { .kind = DF_LOOP_ATTENTION,
                              .is_causal = o.is_causal,
                              .is_scaled = o.scale == 0, /* the default, 1 / sqrt(D) */
                              .from = callers_dtype };
    const uint8_t mixed = cx->mixed;
    cx->mixed = 0; /* the composite computes everything in that dtype */
    const uint32_t made = attend(cx, &x, &batch, scale, tag, DF_SITE);
    cx->mixed = mixed;
    return df_result(cx, df_to(cx, made, callers_dtype, DF_SITE));
}
