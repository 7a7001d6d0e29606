/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that torch.cases names.
 */
#include "calls.h"

#include <string.h>

#define X(i) c->in[i]
#define NUM(i) c->of->number[i]
#define INT(i) ((int64_t)c->of->number[i])
#define FLAG(i) (c->of->number[i] != 0)
#define THREE(i)                                                                                   \
    {                                                                                              \
        INT(i), INT((i) + 1), INT((i) + 2)                                                         \
    }

#define CALL(name, expr)                                                                           \
    static bool call_##name(call *c)                                                               \
    {                                                                                              \
        return (c->out[0] = (expr)) != NULL;                                                       \
    }

/* ---- images ---- */

/* stride, padding, dilation, output_padding, groups; operand 2, when there is one, is the bias */
static deft_conv_options conv_of(const call *c)
{
    return (deft_conv_options){ .size = sizeof(deft_conv_options),
                                .stride = THREE(0),
                                .padding = THREE(3),
                                .dilation = THREE(6),
                                .output_padding = THREE(9),
                                .groups = INT(12),
                                .bias = X(2) };
}

static bool call_conv(call *c)
{
    const deft_conv_options o = conv_of(c);
    return (c->out[0] = deft_conv(X(0), X(1), &o)) != NULL;
}

static bool call_conv_transpose(call *c)
{
    const deft_conv_options o = conv_of(c);
    return (c->out[0] = deft_conv_transpose(X(0), X(1), &o)) != NULL;
}

/* kernel, stride, padding, dilation, ceil_mode, excludes_padding, divisor */
static deft_pool_options pool_of(const call *c)
{
    return (deft_pool_options){ .size = sizeof(deft_pool_options),
                                .kernel = THREE(0),
                                .stride = THREE(3),
                                .padding = THREE(6),
                                .dilation = THREE(9),
                                .ceil_mode = FLAG(12),
                                .excludes_padding = FLAG(13),
                                .divisor = INT(14) };
}

static bool call_max_pool(call *c)
{
    const deft_pool_options o = pool_of(c);
    return (c->out[0] = deft_max_pool(X(0), &o, &c->out[1])) != NULL;
}

static bool call_avg_pool(call *c)
{
    const deft_pool_options o = pool_of(c);
    return (c->out[0] = deft_avg_pool(X(0), &o)) != NULL;
}

static deft_shape sides_of(const call *c, size_t from)
{
    deft_shape s = { .rank = (uint32_t)(c->of->n - from) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = INT(from + i);
    return s;
}

CALL(adaptive_avg_pool, deft_adaptive_avg_pool(X(0), sides_of(c, 0)))
CALL(adaptive_max_pool, deft_adaptive_max_pool(X(0), sides_of(c, 0)))

CALL(max_unpool, deft_max_unpool(X(0), X(1), sides_of(c, 0)))

static bool call_unfold(call *c)
{
    const deft_pool_options o = pool_of(c);
    return (c->out[0] = deft_unfold(X(0), &o)) != NULL;
}

static bool call_fold(call *c)
{
    const deft_pool_options o = pool_of(c);
    return (c->out[0] = deft_fold(X(0), sides_of(c, 15), &o)) != NULL;
}

/* mode, aligned, scale of three sides, antialias, then the new extents */
static bool call_interpolate(call *c)
{
    const deft_sampling_options o = { .size = sizeof o,
                                      .mode = (deft_interpolation)INT(0),
                                      .is_aligned = FLAG(1),
                                      .scale = { NUM(2), NUM(3), NUM(4) },
                                      .antialias = FLAG(5) };
    return (c->out[0] = deft_interpolate(X(0), sides_of(c, 6), &o)) != NULL;
}

/* mode, aligned, border */
static bool call_grid_sample(call *c)
{
    const deft_sampling_options o = { .size = sizeof o,
                                      .mode = (deft_interpolation)INT(0),
                                      .is_aligned = FLAG(1),
                                      .border = (deft_border)INT(2) };
    return (c->out[0] = deft_grid_sample(X(0), X(1), &o)) != NULL;
}

/* ---- norms ---- */

/* groups, eps, then which of weight, bias, mean and var are operands 1 and so on */
static bool call_norm(call *c)
{
    deft_norm_options o = { .size = sizeof o, .eps = NUM(1) };
    deft_tensor **const at[] = { &o.weight, &o.bias, &o.mean, &o.var };
    int next = 1;
    for (int i = 0; i < 4; i++)
        if (FLAG(2 + i)) *at[i] = X(next++);
    c->out[0] = INT(0) == 0    ? deft_batch_norm(X(0), &o)
                : INT(0) == -1 ? deft_instance_norm(X(0), &o)
                               : deft_group_norm(X(0), INT(0), &o);
    return c->out[0] != NULL;
}

/* ---- losses ---- */

/* reduction, which of weight and pos_weight is the last operand (1, 2, else none), ignores,
 * ignored, smoothing, margin, beta, log_target, swap */
static deft_loss_options loss_of(const call *c)
{
    deft_loss_options o = { .size = sizeof o,
                            .reduction = (deft_reduction)INT(0),
                            .ignores = FLAG(2),
                            .ignored = INT(3),
                            .smoothing = NUM(4),
                            .margin = NUM(5),
                            .beta = NUM(6),
                            .log_target = FLAG(7),
                            .swap = FLAG(8) };
    int last = 0;
    while (last + 1 < MAX_TENSORS && X(last + 1)) last++;
    if (INT(1) == 1) o.weight = X(last);
    if (INT(1) == 2) o.pos_weight = X(last);
    return o;
}

#define LOSS2(name)                                                                                \
    static bool call_##name(call *c)                                                               \
    {                                                                                              \
        const deft_loss_options o = loss_of(c);                                                    \
        return (c->out[0] = deft_##name(X(0), X(1), &o)) != NULL;                                  \
    }
#define LOSS3(name)                                                                                \
    static bool call_##name(call *c)                                                               \
    {                                                                                              \
        const deft_loss_options o = loss_of(c);                                                    \
        return (c->out[0] = deft_##name(X(0), X(1), X(2), &o)) != NULL;                            \
    }
LOSS2(cross_entropy_loss)
LOSS2(nll_loss)
LOSS2(bce_loss)
LOSS2(bce_logits_loss)
LOSS2(mse_loss)
LOSS2(l1_loss)
LOSS2(smooth_l1_loss)
LOSS2(huber_loss)
LOSS2(kl_div)
LOSS2(hinge_embedding_loss)
LOSS2(soft_margin_loss)
LOSS3(cosine_embedding_loss)
LOSS3(margin_ranking_loss)
LOSS3(triplet_margin_loss)

/* blank, reduction, whether infinite losses count as 0, whether there are numbers of times, and of
 * labels */
static bool call_ctc_loss(call *c)
{
    const deft_ctc_options o = { .size = sizeof o,
                                 .blank = INT(0),
                                 .reduction = (deft_reduction)INT(1),
                                 .zero_infinity = FLAG(2) };
    deft_tensor *const n_times = FLAG(3) ? X(2) : NULL;
    deft_tensor *const n_targets = FLAG(4) ? X(FLAG(3) ? 3 : 2) : NULL;
    c->out[0] = deft_ctc_loss(deft_log_softmax(X(0), 2), X(1), n_times, n_targets, &o);
    return c->out[0] != NULL;
}

/* ---- attention ---- */

/* scale, causal, whether operand 3 is a mask, window, at the end, grouped, cap */
static bool call_attention(call *c)
{
    const deft_attention_options o = { .size = sizeof o,
                                       .scale = NUM(0),
                                       .is_causal = FLAG(1),
                                       .mask = FLAG(2) ? X(3) : NULL,
                                       .window = INT(3),
                                       .is_at_end = FLAG(4),
                                       .has_grouped_heads = FLAG(5),
                                       .cap = NUM(6) };
    return (c->out[0] = deft_attention(X(0), X(1), X(2), &o)) != NULL;
}

/* ---- recurrent layers ---- */

/* kind, layers, bidirectional, whether there are biases, whether there are first states. The
 * operands are x, the parameters in their order, h and c. */
static bool call_rnn(call *c)
{
    const int n = (int)INT(1) * (FLAG(2) ? 2 : 1);
    const bool is_lstm = INT(0) == DEFT_RNN_LSTM;
    deft_nn_rnn l = { .kind = (deft_rnn_kind)INT(0),
                      .n_layers = (int32_t)INT(1),
                      .is_bidirectional = FLAG(2) };
    int next = 1;
    for (int i = 0; i < n; i++) {
        l.at[i].weight_ih = X(next++);
        l.at[i].weight_hh = X(next++);
        if (FLAG(3)) l.at[i].bias_ih = X(next++);
        if (FLAG(3)) l.at[i].bias_hh = X(next++);
    }
    deft_tensor *const h = FLAG(4) ? X(next++) : NULL, *const cell =
                                                           FLAG(4) && is_lstm ? X(next) : NULL;
    c->out[0] = deft_nn_rnn_call(&l, X(0), h, cell, &c->out[1], is_lstm ? &c->out[2] : NULL);
    return c->out[0] != NULL;
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    call_fn f;
} calls[] = {
#define ROW(name) { #name, call_##name },
    ROW(conv) ROW(conv_transpose) ROW(max_pool) ROW(avg_pool) ROW(adaptive_avg_pool)
        ROW(adaptive_max_pool) ROW(unfold) ROW(fold) ROW(max_unpool) ROW(interpolate)
            ROW(grid_sample) ROW(norm) ROW(attention) ROW(rnn) ROW(cross_entropy_loss) ROW(nll_loss)
                ROW(bce_loss) ROW(bce_logits_loss) ROW(mse_loss) ROW(l1_loss) ROW(smooth_l1_loss)
                    ROW(huber_loss) ROW(kl_div) ROW(hinge_embedding_loss) ROW(soft_margin_loss)
                        ROW(cosine_embedding_loss) ROW(margin_ranking_loss) ROW(triplet_margin_loss)
                            ROW(ctc_loss)
};

call_fn call_named(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name)) return calls[i].f;
    return NULL;
}
