/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks: what is promised of names, of files, of steps that repeat, of steps that fail. Values
 * of layers and optimizers are compared in test_nn_torch.c.
 * Why this file is long: a test for each promise.
 */
#include "support/harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { IN = 5, HIDDEN = 8, OUT = 3, ROWS = 12 };

/* A small network with every kind of layer whose values depend on the mode. */
typedef struct net {
    rig r;
    deft_nn *nn;
    deft_nn_linear first, second;
    deft_nn_norm norm;
    deft_nn_dropout drop;
    deft_optim *optim;
    deft_tensor *x, *y;
} net;

static deft_tensor *data(rig *r, int64_t rows, int64_t columns)
{
    float v[ROWS * HIDDEN];
    for (int64_t i = 0; i < rows * columns; i++) v[i] = sinf((float)i * 1.7f);
    return deft_keep(deft_from(r->cx, DEFT_SHAPE(rows, columns), DEFT_F32, v,
                               (size_t)(rows * columns) * sizeof *v));
}

/* rig is open. */
static void net_fill(net *n, const deft_nn_options *o, const deft_optim_options *optim)
{
    rig *const r = &n->r;
    OK(r, deft_nn_create(r->cx, o, &n->nn));
    cr_assert(deft_nn_linear_init(&n->first, n->nn, "first", IN, HIDDEN, true));
    cr_assert(deft_nn_norm_init_layer(&n->norm, n->nn, "norm", HIDDEN));
    cr_assert(deft_nn_linear_init(&n->second, n->nn, "second", HIDDEN, OUT, false));
    n->drop = (deft_nn_dropout){ n->nn, 0.25 };
    OK(r, deft_optim_create(n->nn, optim, &n->optim));
    n->x = data(r, ROWS, IN);
    n->y = data(r, ROWS, OUT);
}

static void net_open(net *n, uint64_t seed, const deft_optim_options *optim)
{
    const deft_nn_options o = { .size = sizeof o, .seed = seed };
    rig_open(&n->r, NULL, NULL);
    net_fill(n, &o, optim);
}

static void net_close(net *n)
{
    deft_optim_destroy(&n->optim);
    deft_nn_destroy(&n->nn);
    cr_assert(!n->optim && !n->nn);
    rig_close(&n->r);
}

static deft_tensor *net_loss(net *n, deft_tensor *x, deft_tensor *y)
{
    deft_tensor *const h = deft_nn_norm_call(&n->norm, deft_nn_linear_call(&n->first, x));
    deft_tensor *const out =
        deft_nn_linear_call(&n->second, deft_nn_dropout_call(&n->drop, deft_gelu(h)));
    return deft_mean(deft_square(deft_sub(out, y)), DEFT_ALL_AXES, 0);
}

static void gradients(net *n, deft_tensor *x, deft_tensor *y, deft_tensor **g)
{
    deft_tensor *const loss = net_loss(n, x, y);
    cr_assert(deft_grad(&loss, NULL, 1, deft_optim_parameters(n->optim), deft_optim_n(n->optim),
                        NULL, g));
}

static void train(net *n, int steps, double rate)
{
    deft_tensor *g[16];
    for (int i = 0; i < steps; i++) {
        const deft_scope s = deft_step_begin(n->r.cx);
        gradients(n, n->x, n->y, g);
        cr_assert(deft_optim_step(n->optim, g, rate));
        OK(&n->r, deft_step_end(s));
    }
}

static void expect_same(net *a, net *b)
{
    float va[64], vb[64];
    for (size_t i = 0; i < deft_nn_n_parameters(a->nn); i++) {
        deft_tensor *const p = deft_nn_parameter_at(a->nn, i);
        const size_t size = (size_t)deft_numel(p) * sizeof *va;
        OK(&a->r, deft_read(p, DEFT_F32, va, size));
        OK(&b->r, deft_read(deft_nn_parameter_at(b->nn, i), DEFT_F32, vb, size));
        cr_assert_arr_eq(va, vb, size, "%s differs", deft_nn_name_at(a->nn, i));
    }
}

static void expect_error(rig *r, deft_status want, const char *part)
{
    cr_assert_eq(deft_error(r->cx), want, "%s, not %s: %s", deft_status_text(deft_error(r->cx)),
                 deft_status_text(want), deft_message(r->cx));
    cr_assert(strstr(deft_message(r->cx), part), "\"%s\" is not in: %s", part, deft_message(r->cx));
    deft_clear(r->cx);
}

/* ---- the list ---- */

Test(nn, names_and_counts)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    deft_nn_linear l;
    const deft_init ones = { .kind = DEFT_INIT_ONES };
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    deft_nn_pop(nn);
    cr_assert(deft_nn_push(nn, "blocks.0"));
    cr_assert(deft_nn_push(nn, "mlp"));
    cr_assert(deft_nn_linear_init(&l, nn, "up", 3, 4, true));
    deft_nn_pop(nn);
    deft_tensor *const gain = deft_nn_parameter(nn, "gain", DEFT_SHAPE(2, 2), ones);
    deft_nn_pop(nn);
    deft_tensor *const seen = deft_nn_buffer(nn, "seen", DEFT_SHAPE(), DEFT_I64, ones);
    cr_assert_eq(deft_nn_find(nn, "blocks.0.mlp.up.weight"), l.weight);
    cr_assert_eq(deft_nn_find(nn, "blocks.0.gain"), gain);
    cr_assert_eq(deft_nn_find(nn, "seen"), seen);
    cr_assert_null(deft_nn_find(nn, "blocks.0.mlp.up"));
    cr_assert_null(deft_nn_find(nn, "rng.seed"));
    cr_assert_eq(deft_nn_n_parameters(nn), 3);
    cr_assert_str_eq(deft_nn_name_at(nn, 1), "blocks.0.mlp.up.bias");
    cr_assert_null(deft_nn_parameter_at(nn, 3));
    cr_assert_eq(deft_nn_numel(nn, false), 12 + 4 + 4);
    cr_assert_eq(deft_nn_set_trainable(nn, "blocks.0.mlp", false), 2);
    cr_assert_eq(deft_nn_set_trainable(nn, "blocks.0.m", false), 0);
    cr_assert_eq(deft_nn_numel(nn, true), 4);
    cr_assert_eq(deft_nn_set_trainable(nn, NULL, true), 3);
    cr_assert_eq(deft_nn_numel(nn, true), 20);
    deft_nn_destroy(&nn);
    deft_nn_destroy(&nn);
    deft_nn_destroy(NULL);
    rig_close(&r);
}

/* What a failed _init had added is gone, its random numbers too. */
Test(nn, init_is_all_or_nothing)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    deft_nn_linear l;
    const deft_init zeros = { .kind = DEFT_INIT_ZEROS };
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    cr_assert(deft_nn_parameter(nn, "a.bias", DEFT_SHAPE(4), zeros));
    cr_assert(!deft_nn_linear_init(&l, nn, "a", 3, 4, true));
    expect_error(&r, DEFT_E_ARG, "linear: \"a.bias\" is there already");
    cr_assert(!l.weight && !l.bias);
    cr_assert_eq(deft_nn_n_parameters(nn), 1);
    cr_assert_eq(deft_nn_rng(nn)->next, 0);
    cr_assert(deft_nn_linear_init(&l, nn, "a", 3, 4, false));
    deft_nn_destroy(&nn);
    rig_close(&r);
}

static void moments(rig *r, deft_tensor *t, double *mean, double *deviation, double *most)
{
    double v[4] = { 0 };
    deft_tensor *const wide = deft_cast(t, DEFT_F64);
    OK(r, deft_item(deft_mean(wide, DEFT_ALL_AXES, 0), mean));
    OK(r, deft_item(deft_var(wide, DEFT_ALL_AXES, 0, 0), v));
    OK(r, deft_item(deft_max(deft_abs(wide), DEFT_ALL_AXES, 0), most));
    *deviation = sqrt(v[0]);
}

/* A weight [40, 30, 2]: fan in 60, fan out 80. */
Test(nn, beginnings)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    const struct {
        deft_init init;
        double mean, deviation, most; /* most 0: no bound */
    } cases[] = {
        { { DEFT_INIT_ZEROS, 0, 0 }, 0, 0, 0 },
        { { DEFT_INIT_ONES, 0, 0 }, 1, 0, 1 },
        { { DEFT_INIT_CONSTANT, 2.5, 0 }, 2.5, 0, 2.5 },
        { { DEFT_INIT_UNIFORM, -1, 3 }, 1, 4 / sqrt(12), 3 },
        { { DEFT_INIT_NORMAL, 2, 0.5 }, 2, 0.5, 0 },
        { { DEFT_INIT_KAIMING_UNIFORM, 0, 0 }, 0, sqrt(2. / 60), sqrt(6. / 60) },
        { { DEFT_INIT_KAIMING_NORMAL, 1, 0 }, 0, sqrt(1. / 60), 0 },
        { { DEFT_INIT_XAVIER_UNIFORM, 0, 0 }, 0, sqrt(2. / 140), sqrt(6. / 140) },
        { { DEFT_INIT_XAVIER_NORMAL, 3, 0 }, 0, 3 * sqrt(2. / 140), 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[8];
        double mean, deviation, most;
        snprintf(name, sizeof name, "w%d", (int)i);
        moments(&r, deft_nn_parameter(nn, name, DEFT_SHAPE(40, 30, 2), cases[i].init), &mean,
                &deviation, &most);
        /* 2,400 elements: five deviations of their mean, and of their deviation. */
        cr_assert(fabs(mean - cases[i].mean) <= cases[i].deviation * 5 / 48, "%s: mean %g", name,
                  mean);
        cr_assert(fabs(deviation - cases[i].deviation) <= cases[i].deviation * 5 / 68,
                  "%s: deviation %g, not %g", name, deviation, cases[i].deviation);
        cr_assert(!(cases[i].most > 0) ||
                      (most <= cases[i].most * 1.000001 && most > cases[i].most * 0.99),
                  "%s: most %g, not %g", name, most, cases[i].most);
    }
    cr_assert(deft_nn_fill(nn, "w0", (deft_init){ .kind = DEFT_INIT_ONES }));
    cr_assert_eq(rig_item(&r, deft_max(deft_nn_find(nn, "w0"), DEFT_ALL_AXES, 0)), 1);
    deft_nn_destroy(&nn);
    rig_close(&r);
}

static void expect_range(rig *r, deft_tensor *t, double least, double most)
{
    const double low = (double)rig_item(r, deft_min(t, DEFT_ALL_AXES, 0)),
                 high = (double)rig_item(r, deft_max(t, DEFT_ALL_AXES, 0));
    const double slack = 0.05 * (most - least) + 1e-6;
    cr_assert(low >= least - 1e-6 && low <= least + slack, "%g, not %g", low, least);
    cr_assert(high <= most + 1e-6 && high >= most - slack, "%g, not %g", high, most);
}

/* As PyTorch's layers begin. */
Test(nn, defaults_of_layers)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    deft_nn_linear linear;
    deft_nn_embedding embedding;
    deft_nn_norm layer, rms;
    deft_nn_self_attention attention;
    double mean, deviation, most;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    cr_assert(deft_nn_linear_init(&linear, nn, "linear", 25, 400, true));
    cr_assert(deft_nn_embedding_init(&embedding, nn, "embedding", 60, 40));
    cr_assert(deft_nn_norm_init_layer(&layer, nn, "layer", 8) &&
              deft_nn_norm_init_rms(&rms, nn, "rms", 8));
    cr_assert(deft_nn_self_attention_init(&attention, nn, "attention", 24, 3, 0));
    expect_range(&r, linear.weight, -0.2, 0.2);
    expect_range(&r, linear.bias, -0.2, 0.2);
    moments(&r, embedding.weight, &mean, &deviation, &most);
    cr_assert(fabs(mean) < 0.1 && fabs(deviation - 1) < 0.1, "%g, %g", mean, deviation);
    expect_range(&r, layer.weight, 1, 1);
    expect_range(&r, layer.bias, 0, 0);
    expect_range(&r, rms.weight, 1, 1);
    cr_assert(!rms.bias && layer.eps == 1e-5 && rms.eps == (double)FLT_EPSILON);
    expect_range(&r, attention.in.weight, -sqrt(6. / 96), sqrt(6. / 96));
    expect_range(&r, attention.in.bias, 0, 0);
    expect_range(&r, attention.out.weight, -1 / sqrt(24), 1 / sqrt(24));
    expect_range(&r, attention.out.bias, 0, 0);
    deft_nn_destroy(&nn);
    rig_close(&r);
}

/* ---- dropout ---- */

Test(nn, dropout)
{
    enum { N = 4000 };
    static float v[N];
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    deft_tensor *const x = deft_full(r.cx, DEFT_SHAPE(N), DEFT_F32, 3);
    deft_nn_dropout d = { nn, 0.25 };
    int zeros = 0;
    cr_assert(deft_nn_is_training(nn));
    rig_read(&r, deft_nn_dropout_call(&d, x), v, N);
    for (int i = 0; i < N; i++) {
        zeros += v[i] == 0;
        cr_assert(v[i] == 0 || v[i] == 4, "%g", (double)v[i]);
    }
    cr_assert(abs(zeros - N / 4) < 140, "%d of %d", zeros, N); /* five deviations */
    cr_assert_eq(deft_nn_rng(nn)->next, 1);
    deft_nn_set_training(nn, false);
    cr_assert_eq(deft_nn_dropout_call(&d, x), x);
    deft_nn_set_training(nn, true);
    d.p = 0;
    cr_assert_eq(deft_nn_dropout_call(&d, x), x);
    d.p = 1;
    cr_assert_eq(rig_item(&r, deft_max(deft_nn_dropout_call(&d, x), DEFT_ALL_AXES, 0)), 0);
    d.p = 1.5;
    cr_assert_null(deft_nn_dropout_call(&d, x));
    expect_error(&r, DEFT_E_RANGE, "dropout: p is 1.5");
    deft_nn_destroy(&nn);
    rig_close(&r);
}

/* ---- steps that repeat ---- */

/* Of the loss times scale, divided by it again. */
static void scaled_gradients(net *n, deft_tensor *scale, deft_tensor **g)
{
    deft_tensor *const loss = deft_mul(net_loss(n, n->x, n->y), scale);
    const size_t n_p = deft_optim_n(n->optim);
    cr_assert(deft_grad(&loss, NULL, 1, deft_optim_parameters(n->optim), n_p, NULL, g));
    for (size_t i = 0; i < n_p; i++) g[i] = deft_div(g[i], scale);
}

/* The rate, the seed of dropout, the scale of the loss and the bound of clipping change at each of
 * 1,000 steps. */
Test(nn, a_thousand_steps_are_one_plan)
{
    net n;
    deft_tensor *g[16];
    deft_stats first = { 0 };
    net_open(&n, 3, NULL);
    for (int i = 0; i < 1000; i++) {
        deft_nn_rng(n.nn)->seed = (uint64_t)i;
        const double rate = 1e-2 * deft_schedule_warm_up(i, 100) * deft_schedule_cosine(i, 1000, 0);
        const deft_stats before = rig_stats(&n.r);
        const deft_scope s = deft_step_begin(n.r.cx);
        scaled_gradients(&n, deft_num(n.r.cx, ldexp(1, i % 17)), g);
        cr_assert(deft_clip_grad_norm(g, deft_optim_n(n.optim), 1 + i % 7, NULL));
        cr_assert(deft_optim_step(n.optim, g, rate));
        OK(&n.r, deft_step_end(s));
        const deft_stats after = rig_stats(&n.r);
        if (i == 0) {
            first = after;
            cr_assert_eq(after.plans_built - before.plans_built, 1);
        }
        cr_assert_eq(after.syncs, before.syncs);
    }
    const deft_stats last = rig_stats(&n.r);
    cr_assert_eq(last.plans_built, first.plans_built);
    cr_assert_eq(last.kernels_known, first.kernels_known);
    cr_assert_eq(deft_optim_steps(n.optim), 1000);
    net_close(&n);
}

/* An update by hand: numbers of a captured function are its parameters. */
static deft_status descend(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    net *const n = user;
    deft_tensor *g[16];
    (void)in, (void)n_in, (void)out, (void)n_out;
    scaled_gradients(n, deft_param_f(cx, "scale"), g);
    for (size_t i = 0; i < deft_optim_n(n->optim); i++) {
        deft_tensor *const p = deft_optim_parameters(n->optim)[i];
        deft_assign(p, deft_sub(p, deft_mul(g[i], deft_param_f(cx, "rate"))));
    }
    return DEFT_OK;
}

Test(nn, a_thousand_captured_steps_are_one_plan)
{
    net n;
    net_open(&n, 3, NULL);
    deft_capture *c = deft_capture_create(n.r.cx, descend, &n);
    const uint64_t before = rig_stats(&n.r).plans_built;
    deft_stats first = { 0 };
    for (int i = 0; i < 1000; i++) {
        deft_nn_rng(n.nn)->seed = (uint64_t)i;
        OK(&n.r, deft_capture_set_f(c, "rate", 1e-2 * deft_schedule_cosine(i, 1000, 0)));
        OK(&n.r, deft_capture_set_f(c, "scale", ldexp(1, i % 17)));
        OK(&n.r, deft_capture_call(c, NULL, 0, NULL, 0));
        if (i == 0) first = rig_stats(&n.r);
    }
    const deft_stats last = rig_stats(&n.r);
    deft_capture_stats calls;
    deft_capture_stats_read(c, &calls, sizeof calls);
    cr_assert_eq(calls.replayed, 999);
    cr_assert_eq(last.plans_built - before, 1);
    cr_assert_eq(last.kernels_known, first.kernels_known);
    deft_capture_destroy(&c);
    net_close(&n);
}

/* ---- rows looked up ---- */

enum { WORDS = 11, WIDTH = 8, TEXT = 6 };

typedef struct reader {
    rig r;
    deft_nn *nn;
    deft_nn_embedding words;
    deft_nn_linear out;
    deft_optim *optim;
} reader;

static const int64_t good[TEXT] = { 3, 1, 4, 1, 5, 9 };

static deft_status read_text(reader *w, const int64_t *in)
{
    deft_ctx *const cx = w->r.cx;
    const size_t size = TEXT * sizeof *in;
    deft_tensor *g[8];
    const deft_scope s = deft_step_begin(cx);
    deft_tensor *const x =
        deft_nn_embedding_call(&w->words, deft_from(cx, DEFT_SHAPE(TEXT), DEFT_I64, in, size));
    deft_tensor *const loss =
        deft_cross_entropy(deft_nn_linear_call(&w->out, deft_gelu(x)),
                           deft_from(cx, DEFT_SHAPE(TEXT), DEFT_I64, good, size));
    cr_assert(deft_grad(&loss, NULL, 1, deft_optim_parameters(w->optim), deft_optim_n(w->optim),
                        NULL, g));
    cr_assert(deft_optim_step(w->optim, g, 0.01));
    return deft_step_end(s);
}

static void weights_of(reader *w, float v[2][WORDS * WIDTH])
{
    for (size_t i = 0; i < 2; i++) {
        deft_tensor *const p = i ? w->out.weight : w->words.weight;
        OK(&w->r, deft_read(p, DEFT_F32, v[i], sizeof v[i]));
    }
}

/* All is checked by the time the update runs; a step whose check fails has overwritten nothing. */
Test(nn, a_step_that_looks_rows_up_updates_in_place)
{
    float before[2][WORDS * WIDTH], after[2][WORDS * WIDTH];
    reader w;
    rig_open(&w.r, NULL, NULL);
    OK(&w.r, deft_nn_create(w.r.cx, NULL, &w.nn));
    cr_assert(deft_nn_embedding_init(&w.words, w.nn, "words", WORDS, WIDTH));
    cr_assert(deft_nn_linear_init(&w.out, w.nn, "out", WIDTH, WORDS, true));
    OK(&w.r, deft_optim_create(w.nn, NULL, &w.optim));
    OK(&w.r, read_text(&w, good));
    for (int bad = 0; bad < 2; bad++) {
        int64_t in[TEXT];
        memcpy(in, good, sizeof in);
        if (bad) in[4] = WORDS;
        const uint64_t donated = rig_stats(&w.r).donated;
        weights_of(&w, before);
        const deft_status st = read_text(&w, in);
        weights_of(&w, after);
        cr_assert_eq(st, bad ? DEFT_E_RANGE : DEFT_OK, "%d: %s", bad, deft_status_text(st));
        cr_assert_eq(memcmp(before, after, sizeof after) == 0, bad, "%d", bad);
        if (bad) continue;
        cr_assert_eq(rig_stats(&w.r).donated - donated, 3 * deft_optim_n(w.optim));
    }
    deft_optim_destroy(&w.optim);
    deft_nn_destroy(&w.nn);
    rig_close(&w.r);
}

static void one_launch(deft_optim_options o)
{
    enum { P = 20 };
    rig r;
    deft_nn *nn;
    deft_optim *optim;
    deft_tensor *g[P];
    rig_open(&r, NULL, NULL);
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    for (int i = 0; i < P; i++) {
        char name[8];
        const deft_shape s = i % 2 ? DEFT_SHAPE(17 * i + 3) : DEFT_SHAPE(5 + i, 31 - i);
        snprintf(name, sizeof name, "p%d", i);
        cr_assert(deft_nn_parameter(nn, name, s, (deft_init){ DEFT_INIT_NORMAL, 0, 1 }));
        g[i] = deft_keep(deft_ones(r.cx, s, DEFT_F32));
    }
    OK(&r, deft_eval(g, P));
    OK(&r, deft_optim_create(nn, &o, &optim));
    cr_assert_eq(deft_optim_n(optim), P);
    for (int round = 0; round < 3; round++) {
        const deft_stats before = rig_stats(&r);
        const deft_scope s = deft_step_begin(r.cx);
        cr_assert(deft_optim_step(optim, g, 0.1 / (round + 1)));
        OK(&r, deft_step_end(s));
        const deft_stats after = rig_stats(&r);
        cr_assert_eq(after.launches - before.launches, 1, "%d launches",
                     (int)(after.launches - before.launches));
        /* In the memory of what they replace. */
        cr_assert_geq(after.donated - before.donated, (o.kind == DEFT_OPTIM_SGD ? 2 : 3) * P);
    }
    /* Clipped: the squares, their sum, the update. */
    const uint64_t before = rig_stats(&r).launches;
    const deft_scope s = deft_step_begin(r.cx);
    cr_assert(deft_clip_grad_norm(g, P, 1, NULL));
    cr_assert(deft_optim_step(optim, g, 0.1));
    OK(&r, deft_step_end(s));
    cr_assert_leq(rig_stats(&r).launches - before, 3, "%d launches",
                  (int)(rig_stats(&r).launches - before));
    deft_optim_destroy(&optim);
    deft_nn_destroy(&nn);
    rig_close(&r);
}

Test(nn, an_update_is_one_launch)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    one_launch(o);
    o.accumulates = true;
    one_launch(o);
    o = deft_optim_defaults(DEFT_OPTIM_SGD);
    o.momentum = 0.9;
    one_launch(o);
}

/* ---- files ---- */

static const char *path_of(char buf[64], const char *name)
{
    snprintf(buf, 64, "/tmp/deft-nn-%d-%s", (int)getpid(), name);
    return buf;
}

/* 10 steps, a file, 10 steps; and from the file, in another process's place, the last 10 again. */
static void resume(const deft_optim_options *o)
{
    net a, b;
    char path[64];
    int64_t epochs = 7, other = 0;
    net_open(&a, 11, o);
    net_open(&b, 12, o);
    cr_assert(deft_nn_number(a.nn, "epochs", &epochs) && deft_nn_number(b.nn, "epochs", &other));
    train(&a, 10, 0.05);
    OK(&a.r, deft_nn_save(a.nn, path_of(path, "resume"), DEFT_NN_ALL));
    train(&a, 10, 0.05);
    OK(&b.r, deft_nn_load(b.nn, path, DEFT_NN_ALL));
    cr_assert_eq(other, 7);
    cr_assert_eq(deft_optim_steps(b.optim), 10);
    train(&b, 10, 0.05);
    expect_same(&a, &b);
    unlink(path);
    net_close(&a);
    net_close(&b);
}

Test(nn, resume_is_bit_equal)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    o.momentum = 0.9;
    o.nesterov = true;
    resume(NULL);
    resume(&o);
}

/* A file without one of the names: tensors, numbers and the random stream stay as they are. */
Test(nn, load_is_all_or_nothing)
{
    net a, b, same;
    char path[64];
    int64_t more = 5;
    net_open(&a, 11, NULL);
    net_open(&b, 12, NULL);
    net_open(&same, 12, NULL);
    cr_assert(deft_nn_number(b.nn, "more", &more));
    train(&a, 3, 0.05);
    OK(&a.r, deft_nn_save(a.nn, path_of(path, "partial"), DEFT_NN_ALL));
    cr_assert_neq(deft_nn_load(b.nn, path, DEFT_NN_ALL), DEFT_OK);
    cr_assert(strstr(deft_message(b.r.cx), "more"), "%s", deft_message(b.r.cx));
    cr_assert_eq(deft_nn_load(b.nn, "/nowhere/at-all", DEFT_NN_ALL), DEFT_E_NOT_FOUND);
    expect_same(&same, &b);
    cr_assert(more == 5 && deft_optim_steps(b.optim) == 0 && deft_nn_rng(b.nn)->seed == 12);
    /* Parameters alone are there. */
    OK(&b.r, deft_nn_load(b.nn, path, DEFT_NN_PARAMETERS));
    expect_same(&a, &b);
    cr_assert(more == 5 && deft_optim_steps(b.optim) == 0 && deft_nn_rng(b.nn)->seed == 12);
    unlink(path);
    net_close(&a);
    net_close(&b);
    net_close(&same);
}

/* Where no further step can be opened nothing is loaded. */
Test(nn, load_needs_a_step)
{
    net a, b, same;
    char path[64];
    net_open(&a, 11, NULL);
    net_open(&b, 12, NULL);
    net_open(&same, 12, NULL);
    OK(&a.r, deft_nn_save(a.nn, path_of(path, "deep"), DEFT_NN_ALL));
    const deft_scope outer = deft_scope_begin(b.r.cx);
    deft_scope s;
    do s = deft_scope_begin(b.r.cx);
    while (s.depth);
    deft_clear(b.r.cx);
    cr_assert_eq(deft_nn_load(b.nn, path, DEFT_NN_ALL), DEFT_E_LIMIT);
    OK(&b.r, deft_scope_end(outer));
    expect_same(&same, &b);
    OK(&b.r, deft_nn_load(b.nn, path, DEFT_NN_ALL));
    expect_same(&a, &b);
    unlink(path);
    net_close(&a);
    net_close(&b);
    net_close(&same);
}

/* ---- attention ---- */

/* Whether the latest cut had a record of that shape. */
static bool had(rig *r, const char *shape)
{
    static char text[1 << 16];
    cr_assert_lt(deft_show(r->cx, "trace", text, sizeof text), sizeof text);
    return strstr(text, shape) != NULL;
}

/* Beyond a block of keys the weights are kept only where some of them are dropped. */
Test(nn, attention_to_a_long_sequence_keeps_no_weights)
{
    enum { TIME = 140, WIDE = 4 };
    rig r;
    deft_nn *nn = NULL;
    deft_nn_self_attention l;
    float whole[TIME * WIDE], blocks[TIME * WIDE];
    rig_open(&r, NULL, NULL);
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    cr_assert(deft_nn_self_attention_init(&l, nn, "a", WIDE, 2, 0));
    deft_tensor *const x =
        deft_keep(deft_normal(r.cx, deft_nn_rng(nn), DEFT_SHAPE(1, TIME, WIDE), DEFT_F32, 0, 1));
    rig_read(&r, deft_nn_self_attention_call(&l, x), blocks, TIME * WIDE);
    cr_assert(!had(&r, "[1,2,140,140]"));
    l.drop.p = 1e-30; /* drops none */
    rig_read(&r, deft_nn_self_attention_call(&l, x), whole, TIME * WIDE);
    cr_assert(had(&r, "[1,2,140,140]"));
    for (int i = 0; i < TIME * WIDE; i++)
        cr_assert_float_eq(whole[i], blocks[i], 1e-5, "%d: %g, %g", i, (double)whole[i],
                           (double)blocks[i]);
    deft_nn_set_training(nn, false);
    rig_read(&r, deft_nn_self_attention_call(&l, x), whole, TIME * WIDE);
    cr_assert(!memcmp(whole, blocks, sizeof whole));
    deft_drop(&(deft_tensor *){ x });
    deft_nn_destroy(&nn);
    rig_close(&r);
}

/* ---- accumulation, frozen parameters ---- */

/* In f64, the sum of four quarters against the whole: within 1e-12 of the largest parameter after
 * ten updates by SGD, whose step is linear in the gradient. */
Test(nn, four_micro_batches_are_the_batch)
{
    net a, b;
    const deft_nn_options wide = { .size = sizeof wide, .dtype = DEFT_F64, .seed = 4 };
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    o.accumulates = true;
    rig_open(&a.r, NULL, NULL);
    rig_open(&b.r, NULL, NULL);
    net_fill(&a, &wide, NULL);
    net_fill(&b, &wide, &o);
    deft_optim_destroy(&a.optim);
    o.accumulates = false;
    o.name = "sgd";
    OK(&a.r, deft_optim_create(a.nn, &o, &a.optim));
    deft_nn_set_training(a.nn, false);
    deft_nn_set_training(b.nn, false);
    deft_tensor *g[16];
    for (int i = 0; i < 10; i++) {
        train(&a, 1, 0.3);
        for (int k = 0; k < 4; k++) {
            const deft_scope s = deft_step_begin(b.r.cx);
            const deft_range rows = DEFT_R(3 * k, 3 * k + 3);
            gradients(&b, deft_slice(b.x, rows), deft_slice(b.y, rows), g);
            cr_assert(deft_optim_accumulate(b.optim, g, 0.25));
            OK(&b.r, deft_step_end(s));
        }
        const deft_scope s = deft_step_begin(b.r.cx);
        cr_assert(deft_optim_step(b.optim, NULL, 0.3));
        OK(&b.r, deft_step_end(s));
        deft_tensor *const rest = deft_max(deft_abs(deft_optim_sums(b.optim)[0]), DEFT_ALL_AXES, 0);
        cr_assert_eq(rig_item(&b.r, rest), 0);
    }
    for (size_t i = 0; i < deft_nn_n_parameters(a.nn); i++) {
        double va[64], vb[64];
        const int n = (int)deft_numel(deft_nn_parameter_at(a.nn, i));
        OK(&a.r, deft_read(deft_nn_parameter_at(a.nn, i), DEFT_F64, va, (size_t)n * sizeof *va));
        OK(&b.r, deft_read(deft_nn_parameter_at(b.nn, i), DEFT_F64, vb, (size_t)n * sizeof *vb));
        for (int k = 0; k < n; k++)
            cr_assert(fabs(va[k] - vb[k]) <= 1e-12, "%s[%d]: %.17g, %.17g",
                      deft_nn_name_at(a.nn, i), k, va[k], vb[k]);
    }
    net_close(&a);
    net_close(&b);
}

Test(nn, frozen_parameters_stay)
{
    net n, same;
    net_open(&same, 2, NULL);
    net_open(&n, 2, NULL);
    cr_assert_eq(deft_nn_set_trainable(n.nn, "first", false), 2);
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    o.name = "tuning";
    deft_optim_destroy(&n.optim);
    OK(&n.r, deft_optim_create(n.nn, &o, &n.optim));
    cr_assert_eq(deft_optim_n(n.optim), 3);
    cr_assert(deft_nn_find(n.nn, "tuning.exp_avg.second.weight"));
    cr_assert_null(deft_nn_find(n.nn, "tuning.exp_avg.first.weight"));
    train(&n, 5, 0.1);
    float a[HIDDEN * IN], b[HIDDEN * IN], c[HIDDEN * OUT], d[HIDDEN * OUT];
    rig_read(&n.r, n.first.weight, a, HIDDEN * IN);
    rig_read(&same.r, same.first.weight, b, HIDDEN * IN);
    cr_assert_arr_eq(a, b, sizeof a);
    rig_read(&n.r, n.second.weight, c, HIDDEN * OUT);
    rig_read(&same.r, same.second.weight, d, HIDDEN * OUT);
    cr_assert_arr_neq(c, d, sizeof c);
    net_close(&n);
    net_close(&same);
}

/* A gradient that is not there leaves its parameter and the state of it alone. */
Test(nn, no_gradient_no_update)
{
    net n, same;
    deft_tensor *g[16];
    net_open(&same, 2, NULL);
    net_open(&n, 2, NULL);
    const deft_scope s = deft_step_begin(n.r.cx);
    gradients(&n, n.x, n.y, g);
    for (size_t i = 0; i < deft_optim_n(n.optim); i++) g[i] = NULL;
    cr_assert(deft_optim_step(n.optim, g, 0.1));
    OK(&n.r, deft_step_end(s));
    expect_same(&same, &n);
    net_close(&n);
    net_close(&same);
}

/* ---- steps that fail ---- */

Test(nn, a_failed_step_can_be_had_again)
{
    net a, b;
    deft_tensor *g[16];
    net_open(&a, 6, NULL);
    net_open(&b, 6, NULL);
    train(&a, 4, 0.05);
    train(&b, 3, 0.05);
    const deft_rng before = *deft_nn_rng(b.nn);
    const deft_scope s = deft_step_begin(b.r.cx);
    gradients(&b, b.x, b.y, g);
    cr_assert(deft_optim_step(b.optim, g, 0.05));
    deft_interrupt(b.r.cx);
    cr_assert_eq(deft_step_end(s), DEFT_E_INTERRUPTED);
    cr_assert_eq(deft_optim_steps(b.optim), 4);
    deft_optim_set_steps(b.optim, 3);
    *deft_nn_rng(b.nn) = before;
    train(&b, 1, 0.05);
    expect_same(&a, &b);
    net_close(&a);
    net_close(&b);
}

/* ---- layers in captured functions ---- */

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    net *const n = user;
    (void)cx, (void)n_in, (void)n_out;
    const deft_nn_norm rms = { n->norm.weight, NULL, 1e-6 };
    deft_tensor *const h = deft_nn_norm_call(&rms, deft_nn_linear_call(&n->first, in[0]));
    out[0] = deft_nn_linear_call(&n->second, deft_nn_dropout_call(&n->drop, h));
    return DEFT_OK;
}

Test(nn, layers_can_be_captured)
{
    net n;
    net_open(&n, 6, NULL);
    deft_capture *c = deft_capture_create(n.r.cx, captured, &n);
    float first[ROWS * OUT], then[ROWS * OUT];
    deft_tensor *out;
    OK(&n.r, deft_capture_call(c, &n.x, 1, &out, 1));
    rig_read(&n.r, out, first, ROWS * OUT);
    deft_nn_rng(n.nn)->next--; /* the same draw again */
    OK(&n.r, deft_capture_call(c, &n.x, 1, &out, 1));
    rig_read(&n.r, out, then, ROWS * OUT);
    cr_assert_arr_eq(first, then, sizeof first);
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert_eq(s.replayed, 1, "%s", deft_capture_reason(c));
    deft_capture_destroy(&c);
    net_close(&n);
}

static deft_status captured_update(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    net *const n = user;
    deft_tensor *g[16];
    (void)cx, (void)n_in, (void)out, (void)n_out;
    gradients(n, in[0], n->y, g);
    deft_optim_step(n->optim, g, 0.1);
    return DEFT_OK;
}

/* Its numbers would be those of the first call for ever. */
Test(nn, updates_cannot_be_captured)
{
    net n, same;
    net_open(&n, 6, NULL);
    net_open(&same, 6, NULL);
    deft_capture *c = deft_capture_create(n.r.cx, captured_update, &n);
    cr_assert_neq(deft_capture_call(c, &n.x, 1, NULL, 0), DEFT_OK);
    cr_assert(strstr(deft_message(n.r.cx), "number"), "%s", deft_message(n.r.cx));
    cr_assert_eq(deft_optim_steps(n.optim), 0);
    expect_same(&same, &n);
    deft_capture_destroy(&c);
    net_close(&n);
    net_close(&same);
}

/* The layer has the parameters of PyTorch's, and is the call with them. */
Test(nn, convolutions)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    deft_rng rng = { 5, 0 };
    for (int k = 0; k < 6; k++) {
        const int32_t sides = k / 2 + 1;
        const bool turned = k % 2;
        const char name[] = { (char)('a' + k), '\0' };
        const deft_nn_conv_options o = { .size = sizeof o,
                                         .in = 4,
                                         .out = 6,
                                         .n_sides = sides,
                                         .kernel = { 3, 0, 2 },
                                         .stride = { 2 },
                                         .padding = { 1 },
                                         .groups = 2,
                                         .is_transposed = turned,
                                         .output_padding = { turned },
                                         .lacks_bias = k == 3 };
        deft_nn_conv l;
        cr_assert(deft_nn_conv_init(&l, nn, name, &o));
        const int64_t kernel[3] = { 3, 3, 2 };
        deft_shape s = { .rank = 2 + (uint32_t)sides,
                         .dim = { turned ? 4 : 6, turned ? 3 : 2, 3, 3, 2 } };
        deft_shape images = { .rank = s.rank, .dim = { 2, 4, 5, 4, 6 } };
        int64_t n = s.dim[1];
        for (int i = 0; i < sides; i++) n *= kernel[i];
        const deft_shape got = deft_shape_get(l.weight);
        cr_assert(got.rank == s.rank && !memcmp(got.dim, s.dim, s.rank * sizeof *s.dim));
        expect_range(&r, l.weight, -1 / sqrt((double)n), 1 / sqrt((double)n));
        cr_assert(k == 3 ? !l.bias : deft_dim(l.bias, 0) == 6);

        const deft_scope scope = deft_scope_begin(r.cx);
        deft_tensor *const x = deft_normal(r.cx, &rng, images, DEFT_F32, 0, 1);
        const deft_conv_options of = { .size = sizeof of,
                                       .stride = { 2 },
                                       .padding = { 1 },
                                       .groups = 2,
                                       .output_padding = { turned },
                                       .bias = l.bias };
        deft_tensor *const want =
            turned ? deft_conv_transpose(x, l.weight, &of) : deft_conv(x, l.weight, &of);
        bool same = false;
        OK(&r, deft_item_bool(deft_all(deft_eq(deft_nn_conv_call(&l, x), want), DEFT_ALL_AXES, 0),
                              &same));
        cr_assert(same, "%d sides", (int)sides);
        OK(&r, deft_scope_end(scope));
    }
    cr_assert(deft_nn_find(nn, "a.weight") && deft_nn_find(nn, "c.bias") &&
              !deft_nn_find(nn, "d.bias"));

    deft_nn_conv_options bad = { .size = sizeof bad, .in = 4, .out = 6, .kernel = { 3 } };
    deft_nn_conv l;
    const size_t n = deft_nn_n_parameters(nn);
    bad.groups = 4;
    cr_assert(!deft_nn_conv_init(&l, nn, "x", &bad) && !l.weight);
    expect_error(&r, DEFT_E_SHAPE, "conv: 4 and 6 channels in 4 groups");
    bad.groups = 1;
    bad.kernel[0] = 0;
    cr_assert(!deft_nn_conv_init(&l, nn, "x", &bad));
    expect_error(&r, DEFT_E_ARG, "conv: a window of 0 elements along side 0");
    bad.n_sides = 4;
    cr_assert(!deft_nn_conv_init(&l, nn, "x", &bad));
    expect_error(&r, DEFT_E_ARG, "conv: 4 sides; there are 1 to 3");
    cr_assert(!deft_nn_conv_init(&l, nn, "x", NULL));
    expect_error(&r, DEFT_E_ARG, "conv: options are NULL");
    cr_assert_eq(deft_nn_n_parameters(nn), n);
    deft_nn_destroy(&nn);
    rig_close(&r);
}

/* ---- mistakes ---- */

Test(nn, mistakes_are_sentences)
{
    net n;
    deft_nn_self_attention attention;
    deft_nn_linear l;
    deft_tensor *g[16];
    const deft_init zeros = { .kind = DEFT_INIT_ZEROS },
                    kaiming = { DEFT_INIT_KAIMING_NORMAL, 0, 0 };
    net_open(&n, 1, NULL);
    rig *const r = &n.r;
    cr_assert_null(deft_nn_linear_call(&n.second, n.x));
    expect_error(r, DEFT_E_SHAPE, "linear: x is f32[12,5], weight is f32[3,8]");
    cr_assert_null(deft_nn_norm_call(&n.norm, n.x));
    expect_error(r, DEFT_E_SHAPE, "layer_norm: x is f32[12,5], weight is f32[8]");
    cr_assert(!deft_nn_self_attention_init(&attention, n.nn, "a", 10, 4, 0));
    expect_error(r, DEFT_E_SHAPE, "a width of 10 is not shared by 4 heads");
    cr_assert(deft_nn_self_attention_init(&attention, n.nn, "a", 8, 4, 0));
    cr_assert_null(deft_nn_self_attention_call(&attention, n.x));
    expect_error(r, DEFT_E_SHAPE, "self_attention: x is f32[12,5], not [batch, time, width]");
    cr_assert_null(deft_nn_parameter(n.nn, "k", DEFT_SHAPE(3), kaiming));
    expect_error(r, DEFT_E_SHAPE, "at least 2 axes");
    cr_assert_null(deft_nn_parameter(n.nn, "", DEFT_SHAPE(3), zeros));
    expect_error(r, DEFT_E_ARG, "no name");
    cr_assert(!deft_nn_fill(n.nn, "nobody", zeros));
    expect_error(r, DEFT_E_NOT_FOUND, "\"nobody\"");
    cr_assert_null(deft_nn_linear_call(&(deft_nn_linear){ 0 }, n.x));
    deft_clear(r->cx);

    cr_assert(!deft_optim_step(n.optim, g, 0.1) && deft_error(r->cx) == DEFT_E_STATE);
    expect_error(r, DEFT_E_STATE, "optim_step: no step is open");
    deft_scope s = deft_step_begin(r->cx);
    cr_assert(!deft_nn_linear_init(&l, n.nn, "late", 2, 2, true));
    expect_error(r, DEFT_E_STATE, "is to stay");
    cr_assert_eq(deft_nn_save(n.nn, "/tmp/deft-nn-none", DEFT_NN_ALL), DEFT_E_STATE);
    gradients(&n, n.x, n.y, g);
    cr_assert(!deft_optim_step(n.optim, NULL, 0.1));
    expect_error(r, DEFT_E_ARG, "none are accumulated");
    cr_assert(!deft_optim_accumulate(n.optim, g, 1));
    expect_error(r, DEFT_E_ARG, "options.accumulates");
    cr_assert(!deft_optim_step(n.optim, g, NAN));
    expect_error(r, DEFT_E_RANGE, "the rate is nan");
    cr_assert(!deft_clip_grad_norm(g, 5, 0, NULL));
    expect_error(r, DEFT_E_RANGE, "max_norm is 0");
    g[0] = g[1];
    cr_assert(!deft_optim_step(n.optim, g, 0.1));
    expect_error(r, DEFT_E_SHAPE, "gradient 0 is f32[8], its parameter f32[8,5]");
    cr_assert_eq(deft_optim_steps(n.optim), 0);
    deft_step_abort(s);

    deft_optim *o;
    deft_optim_options bad = deft_optim_defaults(DEFT_OPTIM_ADAM);
    cr_assert_eq(deft_optim_create(n.nn, &bad, &o), DEFT_E_ARG); /* the name is taken */
    cr_assert(strstr(deft_message(r->cx), "\"optim.step\""), "%s", deft_message(r->cx));
    bad.name = "other";
    cr_assert(deft_nn_buffer(n.nn, "other.exp_avg_sq.norm.bias", DEFT_SHAPE(1), DEFT_F32, zeros));
    cr_assert_eq(deft_optim_create(n.nn, &bad, &o), DEFT_E_ARG); /* half way */
    cr_assert_null(deft_nn_find(n.nn, "other.exp_avg.first.weight"));
    bad.beta2 = 1;
    cr_assert_eq(deft_optim_create(n.nn, &bad, &o), DEFT_E_RANGE);
    bad = deft_optim_defaults(DEFT_OPTIM_SGD);
    bad.nesterov = true;
    cr_assert_eq(deft_optim_create(n.nn, &bad, &o), DEFT_E_ARG);
    cr_assert_null(o);
    net_close(&n);
}

/* ---- schedules ---- */

Test(nn, schedules)
{
    cr_assert_eq(deft_schedule_warm_up(0, 4), 0.25);
    cr_assert_eq(deft_schedule_warm_up(3, 4), 1);
    cr_assert_eq(deft_schedule_warm_up(9, 4), 1);
    cr_assert_eq(deft_schedule_warm_up(0, 0), 1);
    cr_assert_eq(deft_schedule_cosine(0, 10, 0.1), 1);
    cr_assert_float_eq(deft_schedule_cosine(5, 10, 0.1), 0.55, 1e-12);
    cr_assert_float_eq(deft_schedule_cosine(10, 10, 0.1), 0.1, 1e-12);
    cr_assert_float_eq(deft_schedule_cosine(3, 0, 0.1), 0.1, 1e-12);
    cr_assert_float_eq(deft_schedule_linear(2, 8, 0.5), 0.875, 1e-12);
    cr_assert_eq(deft_schedule_linear(-1, 8, 0.5), 1);
}
