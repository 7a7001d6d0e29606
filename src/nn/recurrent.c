/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent layers. What depends on the input alone, the product with weight_ih, is computed for
 * all times at once. A deft_scan over time computes the rest, with the state as its states. The
 * backward direction is the same scan over the reverse of time.
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { MOST_STATES = 2 };

static int64_t n_gates(deft_rnn_kind kind)
{
    switch (kind) {
    case DEFT_RNN_TANH: return 1;
    case DEFT_RNN_LSTM: return 4;
    case DEFT_RNN_GRU: return 3;
    }
    return 0;
}

/* ---- making ---- */

/* Adds one parameter, such as weight_ih_l0_reverse. NULL after a mistake. */
static deft_tensor *rnn_parameter(deft_nn *nn, const char *of, int32_t layer, bool is_reverse,
                                  deft_shape s, deft_init init)
{
    char name[64];
    snprintf(name, sizeof name, "%s_l%d%s", of, (int)layer, is_reverse ? "_reverse" : "");
    return deft_nn_parameter(nn, name, s, init);
}

static bool make_direction(deft_nn_rnn_weights *w, deft_nn *nn, const deft_nn_rnn_options *o,
                           int32_t layer, bool is_reverse)
{
    const int64_t rows = n_gates(o->kind) * o->hidden;
    const int64_t width = layer == 0 ? o->input : o->hidden * (o->is_bidirectional ? 2 : 1);
    const double bound = 1 / sqrt((double)o->hidden);
    const deft_init uniform = { DEFT_INIT_UNIFORM, -bound, bound };
    const deft_shape ih = deft_shape_of(2, (const int64_t[]){ rows, width });
    const deft_shape hh = deft_shape_of(2, (const int64_t[]){ rows, o->hidden });
    const deft_shape bias = deft_shape_of(1, &rows);
    w->weight_ih = rnn_parameter(nn, "weight_ih", layer, is_reverse, ih, uniform);
    if (w->weight_ih) w->weight_hh = rnn_parameter(nn, "weight_hh", layer, is_reverse, hh, uniform);
    if (!w->weight_hh || o->lacks_bias) return w->weight_hh != NULL;
    w->bias_ih = rnn_parameter(nn, "bias_ih", layer, is_reverse, bias, uniform);
    if (w->bias_ih) w->bias_hh = rnn_parameter(nn, "bias_hh", layer, is_reverse, bias, uniform);
    return w->bias_hh != NULL;
}

static bool rnn_init(deft_nn_rnn *l, deft_nn *nn, const char *name,
                     const deft_nn_rnn_options *options)
{
    deft_nn_rnn_options o;
    *l = (deft_nn_rnn){ .n_layers = 0 };
    if (!nn) return false;
    if (!options) return df_error(nn->cx, DEFT_E_ARG, "rnn: options are NULL");
    if (!df_layer_options(nn->cx, "rnn", "deft_nn_rnn_options", &o, sizeof o, options,
                          options->size))
        return false;
    if (o.n_layers == 0) o.n_layers = 1;
    if (o.n_layers < 0 || o.n_layers > DEFT_RNN_MAX_LAYERS || o.input < 1 || o.hidden < 1 ||
        n_gates(o.kind) == 0)
        return df_error(
            nn->cx, DEFT_E_ARG,
            "rnn: kind %d, input %lld, hidden %lld, %d layers; there are 1 to %d layers",
            (int)o.kind, (long long)o.input, (long long)o.hidden, (int)o.n_layers,
            DEFT_RNN_MAX_LAYERS);
    const df_nn_mark m = df_nn_mark_of(nn);
    const bool named = name && *name;
    if (named && !deft_nn_push(nn, name)) return false;
    const int directions = o.is_bidirectional ? 2 : 1;
    bool made = true;
    for (int i = 0; i < o.n_layers * directions && made; i++)
        made = make_direction(&l->at[i], nn, &o, i / directions, i % directions == 1);
    if (named) deft_nn_pop(nn);
    if (made) {
        l->kind = o.kind;
        l->n_layers = o.n_layers;
        l->is_bidirectional = o.is_bidirectional;
        l->drop = (deft_nn_dropout){ nn, o.drop };
        return true;
    }
    *l = (deft_nn_rnn){ .n_layers = 0 };
    df_nn_truncate(nn, m);
    return false;
}

/* ---- one step of time ---- */

/* What the body of a scan needs: kind, weights and width of the state. */
typedef struct cell {
    deft_rnn_kind kind;
    const deft_nn_rnn_weights *w;
    int64_t hidden;
} cell;

/* Gate i of [batch, gates * hidden]. */
static deft_tensor *gate(const cell *c, deft_tensor *all, int64_t i)
{
    const deft_range range[] = { deft_range_of(0, DEFT_END, 1),
                                 deft_range_of(i * c->hidden, (i + 1) * c->hidden, 1) };
    return deft_slice_n(all, 2, range);
}

/* A deft_body_fn. in: h, and c of an LSTM; the products with the input at this time. out: the next
 * states, then the same as rows, and the product with weight_hh. Only gradients read rows other
 * than those of h. */
static deft_status step_of_time(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    const cell *const c = user;
    deft_tensor *const h = in[0], *const x = in[n_in - 1];
    deft_tensor *own = out[n_out - 1] = deft_matmul(h, deft_t(c->w->weight_hh));
    (void)cx;
    if (c->w->bias_hh) own = deft_add(own, c->w->bias_hh);
    switch (c->kind) {
    case DEFT_RNN_TANH: out[0] = deft_tanh(deft_add(x, own)); break;
    case DEFT_RNN_LSTM: {
        deft_tensor *const all = deft_add(x, own);
        deft_tensor *const in_gate = deft_sigmoid(gate(c, all, 0));
        deft_tensor *const forget = deft_sigmoid(gate(c, all, 1));
        deft_tensor *const new = deft_tanh(gate(c, all, 2));
        out[1] = deft_add(deft_mul(forget, in[1]), deft_mul(in_gate, new));
        out[0] = deft_mul(deft_sigmoid(gate(c, all, 3)), deft_tanh(out[1]));
        break;
    }
    case DEFT_RNN_GRU: {
        deft_tensor *const reset = deft_sigmoid(deft_add(gate(c, x, 0), gate(c, own, 0)));
        deft_tensor *const keep = deft_sigmoid(deft_add(gate(c, x, 1), gate(c, own, 1)));
        deft_tensor *const new =
            deft_tanh(deft_add(gate(c, x, 2), deft_mul(reset, gate(c, own, 2))));
        out[0] = deft_add(new, deft_mul(keep, deft_sub(h, new)));
        break;
    }
    }
    for (size_t i = 0; i < n_out / 2; i++) out[n_out / 2 + i] = out[i];
    return DEFT_OK;
}

/* ---- calling ---- */

static deft_tensor *time_first(deft_tensor *t)
{
    return deft_transpose(t, 0, 1);
}

static deft_tensor *in_reverse(deft_tensor *t, bool is_reverse)
{
    return is_reverse ? deft_flip(t, deft_axes_of(1, (const int[]){ 0 })) : t;
}

/* One direction of a layer for x [batch, time, width]: sets `state` to the last states, and returns
 * [time, batch, hidden]. */
static deft_tensor *run_direction(const cell *c, deft_tensor *x, bool is_reverse,
                                  deft_tensor **state, size_t n_states)
{
    cell of = *c;
    deft_tensor *end[2 * MOST_STATES + 1];
    deft_tensor *rows = deft_matmul(x, deft_t(c->w->weight_ih));
    if (c->w->bias_ih) rows = deft_add(rows, c->w->bias_ih);
    rows = in_reverse(time_first(rows), is_reverse);
    if (!rows || !deft_scan(deft_ctx_of(rows), step_of_time, &of, state, n_states, &rows, 1,
                            deft_dim(rows, 0), n_states + 1, end))
        return NULL;
    for (size_t i = 0; i < n_states; i++) state[i] = end[i];
    for (size_t i = n_states + 1; i < 2 * n_states + 1; i++) deft_drop(&end[i]);
    return in_reverse(end[n_states], is_reverse);
}

static bool rnn_fits(const deft_nn_rnn *l, deft_tensor *x, deft_tensor *const state[MOST_STATES],
                     int64_t n_directions)
{
    char a[DF_NN_TEXT], b[DF_NN_TEXT];
    deft_ctx *const cx = deft_ctx_of(x);
    const int64_t width = deft_dim(l->at[0].weight_ih, 1), hidden = deft_dim(l->at[0].weight_hh, 1);
    if (deft_rank(x) != 3 || deft_dim(x, 2) != width)
        return df_error(cx, DEFT_E_SHAPE, "rnn: x is %s; it takes [batch, time, %lld]",
                        df_nn_text(x, a), (long long)width);
    for (int i = 0; i < MOST_STATES; i++) {
        const deft_tensor *const t = state[i];
        if (!t || (deft_rank(t) == 3 && deft_dim(t, 0) == n_directions &&
                   deft_dim(t, 1) == deft_dim(x, 0) && deft_dim(t, 2) == hidden))
            continue;
        return df_error(cx, DEFT_E_SHAPE, "rnn: x is %s, a first state is %s, not [%lld,%lld,%lld]",
                        df_nn_text(x, a), df_nn_text(t, b), (long long)n_directions,
                        (long long)deft_dim(x, 0), (long long)hidden);
    }
    return true;
}

/* Row i of the first states, or zeros. */
static deft_tensor *first_state(deft_tensor *all, deft_tensor *x, int64_t hidden, int i,
                                deft_dtype dtype)
{
    const deft_shape s = deft_shape_of(2, (const int64_t[]){ deft_dim(x, 0), hidden });
    const deft_range range[] = { deft_range_of(i, i, 0) };
    if (!all) return deft_zeros(deft_ctx_of(x), s, dtype);
    return deft_cast(deft_slice_n(all, 1, range), dtype);
}

static deft_tensor *rnn_call(const deft_nn_rnn *l, deft_tensor *x,
                             deft_tensor *const first[MOST_STATES],
                             deft_tensor **const last[MOST_STATES])
{
    if (!x || !l->n_layers) return NULL;
    const bool is_lstm = l->kind == DEFT_RNN_LSTM;
    const int directions = l->is_bidirectional ? 2 : 1;
    const size_t n_states = is_lstm ? 2 : 1;
    deft_tensor *end[MOST_STATES][2 * DEFT_RNN_MAX_LAYERS];
    if (!is_lstm && (first[1] || last[1]))
        return df_error(deft_ctx_of(x), DEFT_E_ARG, "rnn: only an LSTM has a state c");
    if (!rnn_fits(l, x, first, l->n_layers * directions)) return NULL;
    const int64_t hidden = deft_dim(l->at[0].weight_hh, 1);
    const deft_dtype dtype = deft_result_type((deft_tensor *const[]){ x, l->at[0].weight_hh }, 2);
    for (int layer = 0; layer < l->n_layers; layer++) {
        deft_tensor *y[2];
        if (layer) x = deft_nn_dropout_call(&l->drop, x);
        for (int d = 0; d < directions; d++) {
            const int i = layer * directions + d;
            const cell c = { l->kind, &l->at[i], hidden };
            deft_tensor *state[MOST_STATES];
            for (size_t k = 0; k < n_states; k++)
                state[k] = first_state(first[k], x, hidden, i, dtype);
            y[d] = run_direction(&c, x, d == 1, state, n_states);
            for (size_t k = 0; k < n_states; k++) end[k][i] = state[k];
            if (!y[d]) return NULL;
        }
        x = time_first(directions == 1 ? y[0] : deft_concat(y, 2, 2));
    }
    for (size_t k = 0; k < n_states; k++)
        if (last[k]) *last[k] = deft_stack(end[k], (size_t)(l->n_layers * directions), 0);
    return x;
}

/* ---- public functions, with the line of their caller as call site ---- */

bool deft_nn_rnn_init(deft_nn_rnn *l, deft_nn *nn, const char *name,
                      const deft_nn_rnn_options *options)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, rnn_init(l, nn, name, options));
}

deft_tensor *deft_nn_rnn_call(const deft_nn_rnn *l, deft_tensor *x, deft_tensor *h, deft_tensor *c,
                              deft_tensor **h_end, deft_tensor **c_end)
{
    deft_tensor *const first[] = { h, c };
    deft_tensor **const last[] = { h_end, c_end };
    if (h_end) *h_end = NULL;
    if (c_end) *c_end = NULL;
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), rnn_call(l, x, first, last));
}
