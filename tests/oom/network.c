/* SPDX-License-Identifier: Apache-2.0 */
#define DEFT_NO_GENERIC
#include "network.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const deft_init zeros = { .kind = DEFT_INIT_ZEROS }, normal = { DEFT_INIT_NORMAL, 0, 1 };

/* The cause of what a recording call left undelivered, else st. */
static deft_status cause(world *w, deft_status st)
{
    if (deft_error(w->cx) == DEFT_OK) return st;
    return deft_wait(w->cx);
}

/* f in a network that is made for it, with a scope around. */
static deft_status within(world *w, deft_status (*f)(world *w, deft_nn *nn))
{
    deft_nn *nn;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_status st;
    SUBJECT(w, st = deft_nn_create(w->cx, NULL, &nn));
    if (st == DEFT_OK) st = cause(w, f(w, nn));
    if (st != DEFT_OK && !nn && deft_error(w->cx) != DEFT_OK) w->wrong = "two errors at once";
    deft_nn_destroy(&nn);
    const deft_status end = deft_scope_end(s);
    return st != DEFT_OK ? st : end;
}

static deft_status got(world *w, deft_tensor *t)
{
    float out[N];
    const size_t n = (size_t)deft_numel(t);
    const deft_status st = t && n <= N ? deft_read(t, DEFT_F32, out, n * sizeof *out) : DEFT_E_ARG;
    /* A call that failed does not keep other tensors from being read. */
    if (st == DEFT_OK && deft_error(w->cx) == DEFT_OK) memcpy(w->got, out, n * sizeof *out);
    return cause(w, st);
}

/* ---- the list ---- */

static deft_status list(world *w, deft_nn *nn)
{
    deft_tensor *a = NULL, *b = NULL;
    int64_t number = 3;
    bool ok = false;
    SUBJECT(w, ok = deft_nn_push(nn, "a rather long prefix") && deft_nn_push(nn, "b"));
    if (ok) SUBJECT(w, a = deft_nn_parameter(nn, "a", DEFT_SHAPE(4, 6), normal));
    if (a) SUBJECT(w, b = deft_nn_buffer(nn, "b", DEFT_SHAPE(4), DEFT_I32, zeros));
    if (b) SUBJECT(w, ok = deft_nn_number(nn, "n", &number));
    if (b && ok) SUBJECT(w, ok = deft_nn_fill(nn, "a rather long prefix.b.a", normal));
    if (!a && deft_nn_rng(nn)->next) w->wrong = "a parameter that failed took a number";
    if ((a != NULL) != (deft_nn_n_parameters(nn) == 1)) w->wrong = "a parameter is there by half";
    return got(w, a);
}

#define LIST(name)                                                                                 \
    deft_status act_##name(world *w)                                                               \
    {                                                                                              \
        return within(w, list);                                                                    \
    }
LIST(nn_create)
LIST(nn_parameter)
LIST(nn_buffer)
LIST(nn_number)
LIST(nn_push)
LIST(nn_fill)
#undef LIST

/* ---- layers ---- */

static deft_status inits(world *w, deft_nn *nn)
{
    deft_nn_linear linear;
    deft_nn_embedding embedding;
    deft_nn_norm layer, rms;
    deft_nn_self_attention attention;
    bool ok;
    SUBJECT(w, ok = deft_nn_linear_init(&linear, nn, "linear", 6, 4, true));
    if (!ok && deft_nn_n_parameters(nn)) w->wrong = "linear is there by half";
    if (ok) SUBJECT(w, ok = deft_nn_embedding_init(&embedding, nn, "embedding", 4, 6));
    if (ok) SUBJECT(w, ok = deft_nn_norm_init_layer(&layer, nn, "layer", 6));
    if (!ok && deft_nn_n_parameters(nn) > 3) w->wrong = "a norm is there by half";
    if (ok) SUBJECT(w, ok = deft_nn_norm_init_rms(&rms, nn, "rms", 6));
    if (ok) SUBJECT(w, ok = deft_nn_self_attention_init(&attention, nn, "attention", 6, 2, 0));
    if (!ok && deft_nn_n_parameters(nn) > 6) w->wrong = "attention is there by half";
    const bool had_attention = ok;
    const deft_nn_rnn_options o = { .size = sizeof o, .input = 6, .hidden = 2 };
    deft_nn_batch_norm batch;
    deft_nn_rnn rnn;
    if (ok) SUBJECT(w, ok = deft_nn_rnn_init(&rnn, nn, "rnn", &o));
    if (!ok && had_attention && deft_nn_n_parameters(nn) > 10) w->wrong = "rnn is there by half";
    if (ok) SUBJECT(w, ok = deft_nn_batch_norm_init(&batch, nn, "batch", 6));
    const deft_nn_conv_options window = {
        .size = sizeof window, .in = 2, .out = 3, .kernel = { 3 }
    };
    deft_nn_conv conv;
    const size_t before_conv = deft_nn_n_parameters(nn);
    const bool had_batch = ok;
    if (ok) SUBJECT(w, ok = deft_nn_conv_init(&conv, nn, "conv", &window));
    if (!ok && had_batch && deft_nn_n_parameters(nn) > before_conv)
        w->wrong = "conv is there by half";
    return got(w, ok ? linear.weight : NULL);
}

#define INITS(name)                                                                                \
    deft_status act_##name(world *w)                                                               \
    {                                                                                              \
        return within(w, inits);                                                                   \
    }
INITS(nn_linear_init)
INITS(nn_embedding_init)
INITS(nn_norm_init_layer)
INITS(nn_norm_init_rms)
INITS(nn_self_attention_init)
INITS(nn_batch_norm_init)
INITS(nn_conv_init)
INITS(nn_rnn_init)
#undef INITS

static deft_status drop(world *w, deft_nn *nn)
{
    const deft_nn_dropout d = { nn, 0.5 };
    deft_tensor *t;
    SUBJECT(w, t = deft_nn_dropout_call(&d, w->x));
    return got(w, t);
}

deft_status act_nn_dropout_call(world *w)
{
    return within(w, drop);
}

deft_tensor *make_nn_linear_call(world *w)
{
    return deft_nn_linear_call(&(deft_nn_linear){ w->p[0], w->labels }, w->x);
}

deft_tensor *make_nn_embedding_call(world *w)
{
    return deft_nn_embedding_call(&(deft_nn_embedding){ w->p[0] }, w->labels);
}

deft_tensor *make_nn_norm_call(world *w)
{
    deft_tensor *const six = deft_full(w->cx, DEFT_SHAPE(6), DEFT_F32, 1);
    deft_tensor *const y = deft_nn_norm_call(&(deft_nn_norm){ six, six, 1e-5 }, w->x);
    return deft_nn_norm_call(&(deft_nn_norm){ six, NULL, 1e-5 }, y);
}

deft_tensor *make_nn_self_attention_call(world *w)
{
    const deft_nn_self_attention l = {
        .in = { deft_full(w->cx, DEFT_SHAPE(18, 6), DEFT_F32, 0.25), NULL },
        .out = { deft_full(w->cx, DEFT_SHAPE(6, 6), DEFT_F32, 0.5), NULL },
        .n_heads = 2,
        .causal = true,
    };
    return deft_nn_self_attention_call(&l, deft_unsqueeze(w->x, 0));
}

deft_tensor *make_nn_conv_call(world *w)
{
    deft_tensor *const x = deft_reshape(w->x, DEFT_SHAPE(1, 1, -1));
    const deft_nn_conv l = { .weight = deft_reshape(w->x, DEFT_SHAPE(-1, 1, 2)), .stride = { 1 } };
    return deft_nn_conv_call(&l, x);
}

deft_tensor *make_nn_batch_norm_call(world *w)
{
    deft_tensor *const six = deft_full(w->cx, DEFT_SHAPE(6), DEFT_F32, 1);
    const deft_nn_batch_norm l = { .weight = six, .bias = six, .mean = six, .var = six };
    return deft_nn_batch_norm_call(&l, w->x);
}

deft_tensor *make_nn_rnn_call(world *w)
{
    deft_tensor *h, *c;
    const deft_nn_rnn_weights weights = { deft_full(w->cx, DEFT_SHAPE(8, 6), DEFT_F32, 0.25),
                                          deft_full(w->cx, DEFT_SHAPE(8, 2), DEFT_F32, 0.5), NULL,
                                          deft_full(w->cx, DEFT_SHAPE(8), DEFT_F32, 0.5) };
    const deft_nn_rnn l = {
        .kind = DEFT_RNN_LSTM, .n_layers = 1, .is_bidirectional = true, .at = { weights, weights }
    };
    deft_tensor *const y = deft_nn_rnn_call(&l, deft_unsqueeze(w->x, 0), NULL, NULL, &h, &c);
    return y && c ? deft_add(deft_sum(y, DEFT_ALL_AXES, 0), h) : NULL;
}

deft_tensor *make_clip_grad_value(world *w)
{
    deft_tensor *g[] = { w->p[0], NULL, w->x };
    return deft_clip_grad_value(g, 3, 0.5) ? deft_add(g[0], g[2]) : NULL;
}

deft_tensor *make_clip_grad_norm(world *w)
{
    deft_tensor *g[] = { w->p[0], NULL, w->x }, *norm;
    return deft_clip_grad_norm(g, 3, 0.5, &norm) ? deft_add(g[2], norm) : NULL;
}

/* ---- optimizers ---- */

/* The rate of the steps below, as a tensor. */
static deft_tensor *rate_of(world *w)
{
    return deft_num(w->cx, 0.1);
}

/* A step of an optimizer that accumulates; what fails changes nothing. */
static deft_status update(world *w, deft_optim *o, deft_tensor *p, bool by_tensor)
{
    deft_tensor *const g[] = { w->x };
    const deft_scope s = deft_step_begin(w->cx);
    SUBJECT(w, deft_optim_accumulate(o, g, 0.5));
    if (by_tensor)
        SUBJECT(w, deft_optim_step_t(o, NULL, rate_of(w)));
    else
        SUBJECT(w, deft_optim_step(o, NULL, 0.1));
    if (deft_error(w->cx) != DEFT_OK && deft_optim_steps(o)) w->wrong = "a failed step was counted";
    deft_status st;
    SUBJECT(w, st = deft_step_end(s));
    return st == DEFT_OK ? got(w, p) : st;
}

static deft_status optimize_by(world *w, deft_nn *nn, bool by_tensor)
{
    deft_optim_options options = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    options.accumulates = true;
    deft_optim *o = NULL;
    deft_tensor *const p = deft_nn_parameter(nn, "p", DEFT_SHAPE(4, 6), normal);
    if (!p) return DEFT_E_MEMORY;
    deft_status st;
    SUBJECT(w, st = deft_optim_create(nn, &options, &o));
    if (st != DEFT_OK && (o || deft_nn_find(nn, "optim.exp_avg.p")))
        w->wrong = "an optimizer is there by half";
    if (st == DEFT_OK) st = update(w, o, p, by_tensor);
    deft_optim_destroy(&o);
    return st;
}

static deft_status optimize(world *w, deft_nn *nn)
{
    return optimize_by(w, nn, false);
}

static deft_status optimize_t(world *w, deft_nn *nn)
{
    return optimize_by(w, nn, true);
}

#define OPTIMIZE(name)                                                                             \
    deft_status act_##name(world *w)                                                               \
    {                                                                                              \
        return within(w, optimize);                                                                \
    }
OPTIMIZE(optim_create)
OPTIMIZE(optim_step)
OPTIMIZE(optim_accumulate)
#undef OPTIMIZE

deft_status act_optim_step_t(world *w)
{
    return within(w, optimize_t);
}

/* ---- the scale of a loss ---- */

static deft_status scaled_update(world *w, deft_optim *o, deft_scaler *k, deft_tensor *p,
                                 bool by_tensor)
{
    deft_tensor *g[] = { w->x }, *is_finite;
    const deft_scope s = deft_step_begin(w->cx);
    SUBJECT(w, g[0] = deft_scaler_loss(k, w->x));
    SUBJECT(w, is_finite = deft_scaler_unscale(k, g, 1));
    if (by_tensor)
        SUBJECT(w, deft_optim_step_if_t(o, g, rate_of(w), is_finite));
    else
        SUBJECT(w, deft_optim_step_if(o, g, 0.1, is_finite));
    SUBJECT(w, deft_scaler_update(k, is_finite));
    if (deft_error(w->cx) == DEFT_OK && !deft_optim_steps(o)) w->wrong = "a step was not counted";
    deft_status st;
    SUBJECT(w, st = deft_step_end(s));
    return st == DEFT_OK ? got(w, p) : st;
}

static deft_status scale_by(world *w, deft_nn *nn, bool by_tensor)
{
    deft_optim *o = NULL;
    deft_scaler *k = NULL;
    deft_tensor *const p = deft_nn_parameter(nn, "p", DEFT_SHAPE(4, 6), normal);
    if (!p) return DEFT_E_MEMORY;
    deft_status st = deft_optim_create(nn, NULL, &o);
    if (st == DEFT_OK) SUBJECT(w, st = deft_scaler_create(nn, NULL, &k));
    if (st != DEFT_OK && (k || deft_nn_find(nn, "scaler.scale")))
        w->wrong = "a scaler is there by half";
    if (st == DEFT_OK) st = scaled_update(w, o, k, p, by_tensor);
    deft_scaler_destroy(&k);
    deft_optim_destroy(&o);
    return st;
}

static deft_status scale(world *w, deft_nn *nn)
{
    return scale_by(w, nn, false);
}

static deft_status scale_t(world *w, deft_nn *nn)
{
    return scale_by(w, nn, true);
}

#define SCALE(name)                                                                                \
    deft_status act_##name(world *w)                                                               \
    {                                                                                              \
        return within(w, scale);                                                                   \
    }
SCALE(scaler_create)
SCALE(scaler_loss)
SCALE(scaler_unscale)
SCALE(scaler_update)
SCALE(optim_step_if)
#undef SCALE

deft_status act_optim_step_if_t(world *w)
{
    return within(w, scale_t);
}

/* ---- files ---- */

/* A file, and what it held after the list was changed; a load that fails leaves the change. */
static deft_status files(world *w, deft_nn *nn)
{
    char path[64];
    int64_t number = 3;
    deft_tensor *const p = deft_nn_parameter(nn, "p", DEFT_SHAPE(4, 6), normal);
    if (!p || !deft_nn_number(nn, "n", &number)) return DEFT_E_MEMORY;
    snprintf(path, sizeof path, "/tmp/deft-oom-nn-%d", (int)getpid());
    deft_status st;
    SUBJECT(w, st = deft_nn_save(nn, path, DEFT_NN_ALL));
    number = 4;
    deft_nn_rng(nn)->next = 9;
    if (st == DEFT_OK) {
        SUBJECT(w, st = deft_nn_load(nn, path, DEFT_NN_ALL));
        const bool as_saved = number == 3 && deft_nn_rng(nn)->next == 1;
        const bool as_changed = number == 4 && deft_nn_rng(nn)->next == 9;
        if (st == DEFT_OK ? !as_saved : !as_changed) w->wrong = "a load by half";
    }
    unlink(path);
    return st == DEFT_OK ? got(w, p) : st;
}

deft_status act_nn_save(world *w)
{
    return within(w, files);
}

deft_status act_nn_load(world *w)
{
    return within(w, files);
}

/* ---- what takes no memory ---- */

deft_status quiet_network(world *w)
{
    deft_nn *nn = NULL;
    deft_optim *o = NULL;
    deft_scaler *s = NULL;
    deft_nn_linear l;
    deft_status st = deft_nn_create(w->cx, NULL, &nn);
    if (st == DEFT_OK && (!deft_nn_linear_init(&l, nn, "l", 6, 4, true) || !deft_nn_push(nn, "a")))
        return DEFT_E_INTERNAL;
    if (st == DEFT_OK) st = deft_optim_create(nn, NULL, &o);
    if (st == DEFT_OK) st = deft_scaler_create(nn, NULL, &s);
    SUBJECT(w, deft_nn_pop(nn); (void)deft_nn_find(nn, "l.weight"); (void)deft_nn_n_parameters(nn);
            (void)deft_nn_parameter_at(nn, 1); (void)deft_nn_name_at(nn, 1);
            (void)deft_nn_numel(nn, true); (void)deft_nn_set_trainable(nn, "l", false);
            deft_nn_set_training(nn, false); (void)deft_nn_is_training(nn); (void)deft_nn_rng(nn);
            (void)deft_optim_defaults(DEFT_OPTIM_SGD); (void)deft_optim_n(o);
            (void)deft_optim_parameters(o); (void)deft_optim_steps(o); deft_optim_set_steps(o, 2);
            (void)deft_optim_sums(o); (void)deft_optim_averages(o);
            (void)deft_schedule_steps(1, 2, 0.5); (void)deft_schedule_polynomial(1, 2, 2);
            (void)deft_schedule_inverse_sqrt(1, 2); (void)deft_schedule_restarts(5, 2, 2, 0);
            (void)deft_schedule_one_cycle(1, 4, 2, 0.1, 0); (void)deft_schedule_warm_up(1, 2);
            (void)deft_schedule_cosine(1, 2, 0); (void)deft_schedule_linear(1, 2, 0);
            (void)deft_scaler_scale(s); deft_scaler_destroy(&s); deft_optim_destroy(&o);
            deft_nn_destroy(&nn));
    return st;
}
