/* SPDX-License-Identifier: Apache-2.0
 *
 * Self-attention. Without dropout it uses deft_attention, which does not keep the weights of long
 * sequences in memory. With dropout it is composed of products and a softmax, and the weights, of
 * shape [batch, heads, time, time], are in memory. Masked scores are set to minus infinity before
 * the softmax, so their weights and gradients are 0.
 */
#include "nn/nn.h"

#include "deft/layers.h"

#include <math.h>

static bool self_attention_init(deft_nn_self_attention *l, deft_nn *nn, const char *name,
                                int64_t width, int64_t n_heads, double drop)
{
    *l = (deft_nn_self_attention){ .drop = { nn, drop }, .n_heads = n_heads, .causal = true };
    if (!nn) return false;
    if (n_heads < 1 || width < 1 || width % n_heads)
        return df_error(nn->cx, DEFT_E_SHAPE,
                        "self_attention: a width of %lld is not shared by %lld heads",
                        (long long)width, (long long)n_heads);
    const df_nn_mark m = df_nn_mark_of(nn);
    const bool named = name && *name;
    if (named && !deft_nn_push(nn, name)) return false;
    const deft_init xavier = { .kind = DEFT_INIT_XAVIER_UNIFORM },
                    zeros = { .kind = DEFT_INIT_ZEROS };
    const deft_shape square = deft_shape_of(2, (const int64_t[]){ 3 * width, width });
    l->in.weight = deft_nn_parameter(nn, "in_proj_weight", square, xavier);
    l->in.bias = deft_nn_parameter(nn, "in_proj_bias", deft_shape_of(1, square.dim), zeros);
    const bool made = l->in.weight && l->in.bias &&
                      deft_nn_linear_init(&l->out, nn, "out_proj", width, width, true);
    if (named) deft_nn_pop(nn);
    if (made && deft_assign_f(l->out.bias, 0)) return true;
    l->in = l->out = (deft_nn_linear){ 0 };
    df_nn_truncate(nn, m);
    return false;
}

/* Part k of a tensor [batch, time, 3, heads, size], as a view [batch, heads, time, size]. */
static deft_tensor *part(deft_tensor *all, int64_t k)
{
    const deft_range range[] = { deft_range_of(0, DEFT_END, 1), deft_range_of(0, DEFT_END, 1),
                                 deft_range_of(k, k, 0) };
    const deft_axes order = deft_axes_of(4, (const int[]){ 0, 2, 1, 3 });
    return deft_permute(deft_slice_n(all, 3, range), order);
}

/* The causal softmax of scores [.., time, time]: row i uses only the elements 0 .. i. */
static deft_tensor *causal_softmax(deft_tensor *scores, int64_t time)
{
    if (!scores) return NULL;
    deft_ctx *const cx = deft_ctx_of(scores);
    const deft_shape s = deft_shape_of(2, (const int64_t[]){ time, time });
    deft_tensor *const seen = deft_ge(deft_iota(cx, s, 0), deft_iota(cx, s, 1));
    return deft_softmax(deft_where(seen, scores, deft_const_f(cx, -INFINITY)), -1);
}

/* The result of all heads for query, key and value, each of shape [batch, heads, time, size]. */
static deft_tensor *mix(const deft_nn_self_attention *l, deft_tensor *const part[3], int64_t time,
                        int64_t size)
{
    if (!part[0]) return NULL;
    const bool drops = l->drop.p != 0 && deft_nn_is_training(l->drop.nn);
    const deft_attention_options o = { .size = sizeof o, .is_causal = l->causal };
    if (!drops && time > 0) return deft_attention(part[0], part[1], part[2], &o);
    deft_tensor *const scale = deft_const_f(deft_ctx_of(part[0]), 1 / sqrt((double)size));
    deft_tensor *const scores = deft_matmul(deft_mul(part[0], scale), deft_t(part[1]));
    deft_tensor *const weights =
        l->causal ? causal_softmax(scores, time) : deft_softmax(scores, -1);
    return deft_matmul(deft_nn_dropout_call(&l->drop, weights), part[2]);
}

static deft_tensor *self_attention_call(const deft_nn_self_attention *l, deft_tensor *x)
{
    if (!x) return NULL;
    deft_ctx *const cx = deft_ctx_of(x);
    const deft_shape s = deft_shape_get(x);
    if (s.rank != 3) {
        char a[DF_NN_TEXT];
        return df_error(cx, DEFT_E_SHAPE, "self_attention: x is %s, not [batch, time, width]",
                        df_nn_text(x, a));
    }
    const int64_t n = s.dim[0], time = s.dim[1], width = s.dim[2], size = width / l->n_heads;
    const deft_shape parted = deft_shape_of(5, (const int64_t[]){ n, time, 3, l->n_heads, size });
    deft_tensor *const all = deft_reshape(deft_nn_linear_call(&l->in, x), parted);
    deft_tensor *const parts[] = { part(all, 0), part(all, 1), part(all, 2) };
    deft_tensor *const mixed = mix(l, parts, time, size);
    const deft_axes back = deft_axes_of(4, (const int[]){ 0, 2, 1, 3 });
    return deft_nn_linear_call(&l->out, deft_reshape(deft_permute(mixed, back), s));
}

/* ---- public functions, with the line of their caller as call site ---- */

bool deft_nn_self_attention_init(deft_nn_self_attention *l, deft_nn *nn, const char *name,
                                 int64_t width, int64_t n_heads, double drop)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL,
                    self_attention_init(l, nn, name, width, n_heads, drop));
}

deft_tensor *deft_nn_self_attention_call(const deft_nn_self_attention *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), self_attention_call(l, x));
}
