/* SPDX-License-Identifier: Apache-2.0
 *
 * Training steps in captures: a captured step with its layers, clipping, scale of the loss and
 * update equals the same step recorded each time, bit for bit, while the rate, the count of steps
 * and what follows from them change at each call.
 */
#include <math.h>
#include <string.h>

#include "../support/harness.h"

#include "deft/nn.h"

enum { ROWS = 6, IN = 4, HIDDEN = 5, STEPS = 8, MOST = 256 };

typedef struct trainer {
    rig r;
    deft_nn *nn;
    deft_nn_linear first, second;
    deft_nn_norm norm;
    deft_nn_dropout drop;
    deft_optim *optim;
    deft_scaler *scaler; /* NULL: none */
    deft_tensor *x, *index;
    bool clips, captured;
    double rate; /* of a plain step */
} trainer;

static const float data[ROWS * IN] = { 1, -2, 3, 0.5f, 2, 1, -1, 4, 0, 3, 2, -3,
                                       2, 2,  1, 1,    5, 0, 1,  2, 3, 1, 0, -1 };

static void open_trainer(trainer *w, const deft_optim_options *o, deft_dtype dtype, bool scales)
{
    const deft_nn_options nn = { .size = sizeof nn, .seed = 7, .dtype = dtype };
    const deft_scaler_options s = { .size = sizeof s, .start = 8, .interval = 3 };
    const deft_runtime_options rt = { .size = sizeof rt,
                                      .n_threads = 1,
                                      .tier = DEFT_TIER_INTERPRET };
    const int64_t index[2] = { 1, 3 };
    rig_open(&w->r, &rt, NULL);
    OK(&w->r, deft_nn_create(w->r.cx, &nn, &w->nn));
    cr_assert(deft_nn_linear_init(&w->first, w->nn, "first", IN, HIDDEN, true));
    cr_assert(deft_nn_norm_init_layer(&w->norm, w->nn, "norm", HIDDEN));
    cr_assert(deft_nn_linear_init(&w->second, w->nn, "second", HIDDEN, 1, true));
    w->drop = (deft_nn_dropout){ w->nn, 0.25 };
    OK(&w->r, deft_optim_create(w->nn, o, &w->optim));
    if (scales) OK(&w->r, deft_scaler_create(w->nn, &s, &w->scaler));
    deft_tensor *const x = deft_from(w->r.cx, DEFT_SHAPE(ROWS, IN), DEFT_F32, data, sizeof data);
    w->x = deft_keep(deft_cast(x, dtype));
    w->index = deft_keep(deft_from(w->r.cx, DEFT_SHAPE(2), DEFT_I64, index, sizeof index));
}

static void close_trainer(trainer *w)
{
    deft_scaler_destroy(&w->scaler);
    deft_optim_destroy(&w->optim);
    deft_nn_destroy(&w->nn);
    rig_close(&w->r);
}

/* in: rows, and which of them to train with. */
static deft_status train(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    const trainer *const w = user;
    (void)n_in, (void)n_out;
    deft_tensor *g[8], *fine = NULL;
    const size_t n = deft_optim_n(w->optim);
    deft_tensor *const x = deft_take(in[0], in[1], 0);
    deft_tensor *const h =
        deft_tanh(deft_nn_norm_call(&w->norm, deft_nn_linear_call(&w->first, x)));
    deft_tensor *const y = deft_nn_linear_call(&w->second, deft_nn_dropout_call(&w->drop, h));
    deft_tensor *const loss = deft_mean(deft_square(y), DEFT_ALL_AXES, 0);
    deft_tensor *const scaled = w->scaler ? deft_scaler_loss(w->scaler, loss) : loss;
    if (!deft_grad(&scaled, NULL, 1, deft_optim_parameters(w->optim), n, NULL, g))
        return DEFT_E_STATE;
    if (w->scaler) fine = deft_scaler_unscale(w->scaler, g, n);
    if (w->clips) deft_clip_grad_norm(g, n, 0.5, NULL);
    deft_tensor *const rate = w->captured ? deft_param_f(cx, "rate") : deft_num(cx, w->rate);
    if (w->scaler) {
        deft_optim_step_if(w->optim, g, rate, fine);
        deft_scaler_update(w->scaler, fine);
    } else {
        deft_optim_step(w->optim, g, rate);
    }
    out[0] = loss;
    return DEFT_OK;
}

static double rate_of(int i)
{
    return 0.05 * deft_schedule_warm_up(i, 3) * deft_schedule_cosine(i, STEPS, 0.1);
}

static void plain_step(trainer *w, int i, double *loss)
{
    deft_tensor *out, *in[2] = { w->x, w->index };
    w->rate = rate_of(i);
    const deft_scope s = deft_step_begin(w->r.cx);
    OK(&w->r, train(w->r.cx, in, 2, &out, 1, w));
    deft_tensor *kept = deft_keep(out);
    OK(&w->r, deft_step_end(s));
    OK(&w->r, deft_read(kept, DEFT_F64, loss, sizeof *loss));
    deft_drop(&kept);
}

static void captured_step(trainer *w, deft_capture *c, int i, double *loss)
{
    deft_tensor *out, *in[2] = { w->x, w->index };
    OK(&w->r, deft_capture_set_f(c, "rate", rate_of(i)));
    OK(&w->r, deft_capture_call(c, in, 2, &out, 1));
    OK(&w->r, deft_read(out, DEFT_F64, loss, sizeof *loss));
}

static void expect_equal(trainer *a, trainer *b, int step)
{
    cr_assert_eq(deft_optim_steps(a->optim), step + 1);
    cr_assert_eq(deft_optim_steps(b->optim), step + 1);
    cr_assert_eq(deft_nn_rng(a->nn)->next, deft_nn_rng(b->nn)->next);
    for (size_t i = 0; i < deft_nn_n_parameters(a->nn); i++) {
        deft_tensor *const p = deft_nn_parameter_at(a->nn, i), *const q =
                                                                   deft_nn_parameter_at(b->nn, i);
        double x[MOST], y[MOST];
        const size_t n = (size_t)deft_numel(p) * sizeof *x;
        OK(&a->r, deft_read(p, DEFT_F64, x, n));
        OK(&b->r, deft_read(q, DEFT_F64, y, n));
        cr_assert(memcmp(x, y, n) == 0, "step %d, %s: %.17g, captured %.17g", step,
                  deft_nn_name_at(a->nn, i), x[0], y[0]);
    }
}

static void compare(const deft_optim_options *o, deft_dtype dtype, bool scales, bool clips)
{
    trainer a = { .clips = clips }, b = { .clips = clips, .captured = true };
    deft_capture_stats s;
    open_trainer(&a, o, dtype, scales);
    open_trainer(&b, o, dtype, scales);
    deft_capture *c = deft_capture_create(b.r.cx, train, &b);
    uint64_t plans = 0;
    for (int i = 0; i < STEPS; i++) {
        double x, y;
        plain_step(&a, i, &x);
        captured_step(&b, c, i, &y);
        cr_assert_eq(x, y, "step %d: a loss of %.17g, captured %.17g", i, x, y);
        expect_equal(&a, &b, i);
        if (i == 1) plans = rig_stats(&b.r).plans_built;
    }
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert(s.recordings == 1 && s.replayed == STEPS - 1, "%s", deft_capture_reason(c));
    cr_assert_eq(rig_stats(&b.r).plans_built, plans);
    deft_capture_destroy(&c);
    close_trainer(&a);
    close_trainer(&b);
}

Test(nn_capture, sgd_equals_plain_steps)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    compare(&o, DEFT_F32, false, false);
    o.momentum = 0.9;
    o.nesterov = true;
    o.weight_decay = 0.01;
    compare(&o, DEFT_F32, false, true);
}

Test(nn_capture, adam_equals_plain_steps)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAM);
    compare(&o, DEFT_F32, false, true);
    o.weight_decay = 0.01;
    compare(&o, DEFT_F64, false, false);
}

Test(nn_capture, adamw_equals_plain_steps)
{
    const deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    compare(&o, DEFT_F32, false, false);
    compare(&o, DEFT_F64, false, true);
}

Test(nn_capture, the_scale_of_the_loss_goes_along)
{
    const deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    compare(&o, DEFT_F32, true, true);
}

/* Micro-batches, each a call of one capture, and the update another one. */
static deft_status accumulate(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    const trainer *const w = user;
    (void)cx, (void)n_in, (void)n_out, (void)out;
    deft_tensor *g[8], *const y =
                           deft_nn_linear_call(&w->second, deft_nn_linear_call(&w->first, in[0]));
    deft_tensor *const loss = deft_mean(deft_square(y), DEFT_ALL_AXES, 0);
    deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    (void)deft_grad(&loss, NULL, 1, deft_optim_parameters(w->optim), deft_optim_n(w->optim), &o, g);
    deft_optim_accumulate(w->optim, g, 0.5);
    return DEFT_OK;
}

static deft_status apply(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    const trainer *const w = user;
    (void)in, (void)n_in, (void)n_out, (void)out;
    deft_optim_step(w->optim, NULL, w->captured ? deft_const_f(cx, 0.1) : deft_num(cx, 0.1));
    return DEFT_OK;
}

static void run(trainer *w, deft_capture *c, deft_capture_fn fn)
{
    deft_tensor *in[1] = { w->x };
    if (w->captured) {
        OK(&w->r, deft_capture_call(c, in, 1, NULL, 0));
        return;
    }
    const deft_scope s = deft_step_begin(w->r.cx);
    OK(&w->r, fn(w->r.cx, in, 1, NULL, 0, w));
    OK(&w->r, deft_step_end(s));
}

Test(nn_capture, gradients_may_be_accumulated)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAM);
    o.accumulates = true;
    trainer a = { .captured = false }, b = { .captured = true };
    open_trainer(&a, &o, DEFT_F32, false);
    open_trainer(&b, &o, DEFT_F32, false);
    deft_capture *add = deft_capture_create(b.r.cx, accumulate, &b);
    deft_capture *update = deft_capture_create(b.r.cx, apply, &b);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            run(&a, NULL, accumulate);
            run(&b, add, accumulate);
        }
        run(&a, NULL, apply);
        run(&b, update, apply);
        expect_equal(&a, &b, i);
    }
    deft_capture_stats s;
    deft_capture_stats_read(update, &s, sizeof s);
    cr_assert_eq(s.replayed, 3, "%s", deft_capture_reason(update));
    deft_capture_destroy(&add);
    deft_capture_destroy(&update);
    close_trainer(&a);
    close_trainer(&b);
}

/* A call that fails has not been: neither a step nor a draw is counted, the first time or later. */
Test(nn_capture, a_call_that_fails_counts_nothing)
{
    trainer w = { .captured = true };
    open_trainer(&w, NULL, DEFT_F32, false);
    deft_capture *c = deft_capture_create(w.r.cx, train, &w);
    const int64_t outside[2] = { 1, ROWS };
    deft_tensor *bad =
        deft_keep(deft_from(w.r.cx, DEFT_SHAPE(2), DEFT_I64, outside, sizeof outside));
    deft_tensor *out;
    const uint64_t drawn = deft_nn_rng(w.nn)->next;
    uint64_t each = 0;
    OK(&w.r, deft_capture_set_f(c, "rate", 0.1));
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ w.x, bad }, 2, &out, 1), DEFT_E_RANGE);
        cr_assert_eq(deft_optim_steps(w.optim), i);
        cr_assert_eq(deft_nn_rng(w.nn)->next, drawn + (uint64_t)i * each);
        OK(&w.r, deft_capture_call(c, (deft_tensor *[]){ w.x, w.index }, 2, &out, 1));
        cr_assert_eq(deft_optim_steps(w.optim), i + 1);
        if (i == 0) each = deft_nn_rng(w.nn)->next - drawn;
    }
    deft_optim_set_steps(w.optim, 40);
    OK(&w.r, deft_capture_set_f(c, "rate", INFINITY));
    cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ w.x, w.index }, 2, &out, 1), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(w.r.cx), "optim_step: the rate is inf"), "%s",
              deft_message(w.r.cx));
    cr_assert_eq(deft_optim_steps(w.optim), 40);
    deft_capture_destroy(&c);
    close_trainer(&w);
}

static deft_status writes_rate(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const trainer *const w = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *g[8], *const y = deft_nn_linear_call(&w->first, in[0]);
    out[0] = deft_mean(y, DEFT_ALL_AXES, 0);
    deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    (void)deft_grad(out, NULL, 1, deft_optim_parameters(w->optim), deft_optim_n(w->optim), &o, g);
    if (w->clips)
        deft_optim_step(w->optim, g, out[0]); /* a tensor */
    else
        deft_optim_step(w->optim, g, 0.01 * deft_schedule_warm_up(deft_optim_steps(w->optim), 5));
    return DEFT_OK;
}

/* A rate that C code computes would be that of the first call for ever. */
Test(nn_capture, a_rate_does_not_freeze)
{
    trainer w = { .captured = true };
    open_trainer(&w, NULL, DEFT_F32, false);
    deft_capture *c = deft_capture_create(w.r.cx, writes_rate, &w);
    deft_tensor *out;
    cr_assert_eq(deft_capture_call(c, &w.x, 1, &out, 1), DEFT_E_STATE);
    cr_assert(strstr(deft_message(w.r.cx), "optim_step: the rate: the number 0.002"), "%s",
              deft_message(w.r.cx));
    cr_assert(strstr(deft_message(w.r.cx), "deft_param_f"), "%s", deft_message(w.r.cx));
    cr_assert_eq(deft_optim_steps(w.optim), 0);
    w.clips = true;
    cr_assert_eq(deft_capture_call(c, &w.x, 1, &out, 1), DEFT_E_ARG);
    cr_assert(strstr(deft_message(w.r.cx), "is a tensor"), "%s", deft_message(w.r.cx));
    deft_capture_destroy(&c);
    close_trainer(&w);
}
