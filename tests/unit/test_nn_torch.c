/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers and optimizers against the values PyTorch gives in f64 (tests/support/nn_torch.py): the
 * result, the gradients of all that goes in, and parameters after several updates.
 */
#include "support/harness.h"

#include <math.h>

#include "nn_torch.inc"

enum { MOST = 128, MOST_PARAMETERS = 4 };

typedef struct values {
    const double *at;
    int n;
} values;
#define VALUES(array) ((values){ (array), (int)(sizeof(array) / sizeof *(array)) })

/* Relative to the largest of what is wanted: sums are taken in another order there. */
static void expect(rig *r, const char *what, deft_tensor *t, values want)
{
    double got[MOST], largest = 1e-3;
    OK(r, deft_read(t, DEFT_F64, got, (size_t)want.n * sizeof *got));
    for (int i = 0; i < want.n; i++) largest = fmax(largest, fabs(want.at[i]));
    for (int i = 0; i < want.n; i++)
        cr_assert(fabs(got[i] - want.at[i]) <= 1e-13 * largest, "%s[%d] is %.17g, not %.17g", what,
                  i, got[i], want.at[i]);
}

static deft_nn *network(rig *r)
{
    const deft_nn_options o = { .size = sizeof o, .dtype = DEFT_F64 };
    deft_nn *nn;
    OK(r, deft_nn_create(r->cx, &o, &nn));
    return nn;
}

static deft_tensor *tensor(rig *r, deft_shape s, values v)
{
    return deft_from(r->cx, s, DEFT_F64, v.at, (size_t)v.n * sizeof *v.at);
}

typedef struct layer_case {
    rig r;
    deft_nn *nn;
    deft_tensor *x; /* NULL: not differentiated */
    values y, seed, x_grad;
    const char *names[MOST_PARAMETERS];
    values parameters[MOST_PARAMETERS], grads[MOST_PARAMETERS];
} layer_case;

static void open_case(layer_case *c)
{
    rig_open(&c->r, NULL, NULL);
    c->nn = network(&c->r);
}

/* Parameters of those names, in the order they were made, get PyTorch's values. */
static void set_parameters(layer_case *c)
{
    size_t n = 0;
    for (; n < MOST_PARAMETERS && c->names[n]; n++) {
        deft_tensor *const p = deft_nn_find(c->nn, c->names[n]);
        cr_assert(p, "no %s", c->names[n]);
        cr_assert_eq(deft_nn_parameter_at(c->nn, n), p);
        cr_assert_str_eq(deft_nn_name_at(c->nn, n), c->names[n]);
        cr_assert_eq(deft_numel(p), c->parameters[n].n);
        deft_assign(p, tensor(&c->r, deft_shape_get(p), c->parameters[n]));
    }
    cr_assert_eq(deft_nn_n_parameters(c->nn), n);
}

static void close_case(layer_case *c, deft_tensor *y)
{
    deft_tensor *with[MOST_PARAMETERS + 1], *g[MOST_PARAMETERS + 1];
    size_t n = 0;
    deft_tensor *const seed = tensor(&c->r, deft_shape_get(y), c->seed);
    for (; n < MOST_PARAMETERS && c->names[n]; n++) with[n] = deft_nn_find(c->nn, c->names[n]);
    if (c->x) with[n] = c->x;
    deft_grad(&y, &seed, 1, with, n + (c->x != NULL), NULL, g);
    expect(&c->r, "y", y, c->y);
    for (size_t i = 0; i < n; i++) expect(&c->r, c->names[i], g[i], c->grads[i]);
    if (c->x) expect(&c->r, "x", g[n], c->x_grad);
    deft_nn_destroy(&c->nn);
    rig_close(&c->r);
}

#define CASE(name) .y = VALUES(name##_y), .seed = VALUES(name##_seed)

Test(nn_torch, linear)
{
    layer_case c = { CASE(linear), .x_grad = VALUES(linear_x_grad),
                     .names = { "a.weight", "a.bias" },
                     .parameters = { VALUES(linear_weight), VALUES(linear_bias) },
                     .grads = { VALUES(linear_weight_grad), VALUES(linear_bias_grad) } };
    deft_nn_linear l;
    open_case(&c);
    cr_assert(deft_nn_linear_init(&l, c.nn, "a", 4, 3, true));
    set_parameters(&c);
    c.x = tensor(&c.r, DEFT_SHAPE(2, 5, 4), VALUES(linear_x));
    close_case(&c, deft_nn_linear_call(&l, c.x));
}

Test(nn_torch, embedding)
{
    layer_case c = { CASE(embedding), .names = { "weight" },
                     .parameters = { VALUES(embedding_weight) },
                     .grads = { VALUES(embedding_weight_grad) } };
    deft_nn_embedding l;
    open_case(&c);
    cr_assert(deft_nn_embedding_init(&l, c.nn, "", 5, 3));
    set_parameters(&c);
    deft_tensor *const x = tensor(&c.r, DEFT_SHAPE(2, 3), VALUES(embedding_x));
    close_case(&c, deft_nn_embedding_call(&l, deft_cast(x, DEFT_I32)));
}

Test(nn_torch, layer_norm)
{
    layer_case c = { CASE(layer_norm), .x_grad = VALUES(layer_norm_x_grad),
                     .names = { "weight", "bias" },
                     .parameters = { VALUES(layer_norm_weight), VALUES(layer_norm_bias) },
                     .grads = { VALUES(layer_norm_weight_grad), VALUES(layer_norm_bias_grad) } };
    deft_nn_norm l;
    open_case(&c);
    cr_assert(deft_nn_norm_init_layer(&l, c.nn, NULL, 6));
    set_parameters(&c);
    c.x = tensor(&c.r, DEFT_SHAPE(3, 6), VALUES(layer_norm_x));
    close_case(&c, deft_nn_norm_call(&l, c.x));
}

Test(nn_torch, rms_norm)
{
    layer_case c = { CASE(rms_norm), .x_grad = VALUES(rms_norm_x_grad), .names = { "weight" },
                     .parameters = { VALUES(rms_norm_weight) },
                     .grads = { VALUES(rms_norm_weight_grad) } };
    deft_nn_norm l;
    open_case(&c);
    cr_assert(deft_nn_norm_init_rms(&l, c.nn, NULL, 6));
    l.eps = 1e-3;
    set_parameters(&c);
    c.x = tensor(&c.r, DEFT_SHAPE(3, 6), VALUES(rms_norm_x));
    close_case(&c, deft_nn_norm_call(&l, c.x));
}

#define ATTENTION(name)                                                                            \
    {                                                                                              \
        CASE(name),                                                                                \
            .x_grad = VALUES(name##_x_grad),                                                       \
            .names = { "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias" },     \
            .parameters = { VALUES(name##_in_proj_weight), VALUES(name##_in_proj_bias),            \
                            VALUES(name##_out_proj_weight), VALUES(name##_out_proj_bias) },        \
            .grads = {                                                                             \
                VALUES(name##_in_proj_weight_grad),                                                \
                VALUES(name##_in_proj_bias_grad),                                                  \
                VALUES(name##_out_proj_weight_grad),                                               \
                VALUES(name##_out_proj_bias_grad)                                                  \
            }                                                                                      \
    }

static void attend(layer_case *c, values x, bool causal)
{
    deft_nn_self_attention l;
    open_case(c);
    cr_assert(deft_nn_self_attention_init(&l, c->nn, NULL, 6, 2, 0));
    cr_assert(l.causal);
    l.causal = causal;
    set_parameters(c);
    c->x = tensor(&c->r, DEFT_SHAPE(2, 4, 6), x);
    close_case(c, deft_nn_self_attention_call(&l, c->x));
}

Test(nn_torch, causal_attention)
{
    layer_case c = ATTENTION(causal);
    attend(&c, VALUES(causal_x), true);
}

Test(nn_torch, open_attention)
{
    layer_case c = ATTENTION(open);
    attend(&c, VALUES(open_x), false);
}

/* ---- optimizers ---- */

/* A parameter of 3 elements, or of rows of 3. */
static void optimize_rows(const deft_optim_options *options, int64_t rows, values want)
{
    static const double start[6] = { 0.5, -1, 2, 1.5, 0, 3 };
    const int n = rows ? 3 * (int)rows : 3;
    const deft_shape shape = rows ? DEFT_SHAPE(rows, 3) : DEFT_SHAPE(3);
    rig r;
    rig_open(&r, NULL, NULL);
    deft_nn *nn = network(&r);
    deft_tensor *const p =
        deft_nn_parameter(nn, "p", shape, (deft_init){ .kind = DEFT_INIT_ZEROS });
    deft_assign(p, tensor(&r, shape, (values){ start, n }));
    deft_optim *o;
    OK(&r, deft_optim_create(nn, options, &o));
    const int n_steps = want.n / n;
    for (int t = 0; t < n_steps; t++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const at = deft_reshape(deft_arange(r.cx, 0, n, 1, DEFT_F64), shape);
        deft_tensor *const phase = deft_add(deft_mul(at, 1.5), t);
        deft_tensor *const g = deft_add(deft_cos(phase), deft_mul(p, 0.1));
        cr_assert(deft_optim_step(o, &g, 0.1 / (t + 1)));
        OK(&r, deft_step_end(s));
        expect(&r, "p", p, (values){ want.at + n * t, n });
    }
    cr_assert_eq(deft_optim_steps(o), n_steps);
    deft_optim_destroy(&o);
    deft_nn_destroy(&nn);
    rig_close(&r);
}

static void optimize(const deft_optim_options *options, values want)
{
    optimize_rows(options, 0, want);
}

Test(nn_torch, sgd)
{
    const deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    optimize(&o, VALUES(optim_sgd));
}

Test(nn_torch, momentum)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    o.momentum = 0.9;
    o.weight_decay = 0.02;
    optimize(&o, VALUES(optim_momentum));
}

Test(nn_torch, nesterov)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_SGD);
    o.momentum = 0.9;
    o.nesterov = true;
    optimize(&o, VALUES(optim_nesterov));
}

Test(nn_torch, adam)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAM);
    o.weight_decay = 0.02;
    optimize(&o, VALUES(optim_adam));
}

Test(nn_torch, adamw)
{
    optimize(NULL, VALUES(optim_adamw));
}

Test(nn_torch, amsgrad)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAM);
    o.amsgrad = true;
    optimize(&o, VALUES(optim_amsgrad));
}

Test(nn_torch, rmsprop)
{
    const deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_RMSPROP);
    optimize(&o, VALUES(optim_rmsprop));
}

Test(nn_torch, rmsprop_with_momentum_and_centered)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_RMSPROP);
    o.momentum = 0.9;
    o.centered = true;
    o.weight_decay = 0.02;
    optimize(&o, VALUES(optim_rmsprop_centered));
}

Test(nn_torch, adagrad)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAGRAD);
    o.rate_decay = 0.1;
    o.initial_sum = 0.5;
    optimize(&o, VALUES(optim_adagrad));
}

Test(nn_torch, adadelta)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADADELTA);
    o.weight_decay = 0.02;
    optimize(&o, VALUES(optim_adadelta));
}

Test(nn_torch, adamax)
{
    const deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAMAX);
    optimize(&o, VALUES(optim_adamax));
}

Test(nn_torch, nadam)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_NADAM);
    o.weight_decay = 0.02;
    optimize(&o, VALUES(optim_nadam));
}

Test(nn_torch, radam_before_and_after_the_variance_is_known)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_RADAM);
    optimize(&o, VALUES(optim_radam));
    o.beta1 = 0.8;
    o.beta2 = 0.9;
    optimize(&o, VALUES(optim_radam_short));
}

Test(nn_torch, lion)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_LION);
    o.beta2 = 0.95;
    o.weight_decay = 0.1;
    optimize(&o, VALUES(optim_lion));
}

Test(nn_torch, adafactor)
{
    deft_optim_options o = deft_optim_defaults(DEFT_OPTIM_ADAFACTOR);
    optimize_rows(&o, 2, VALUES(optim_adafactor_matrix));
    o.weight_decay = 0.1;
    optimize(&o, VALUES(optim_adafactor));
    o.weight_decay = 0;
    o.least_magnitude = 3;
    o.square_decay = 0.5;
    o.clip = 1.1;
    optimize_rows(&o, 2, VALUES(optim_adafactor_clipped));
}

Test(nn_torch, clip_grad_norm)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *g[3] = {
        tensor(&r, DEFT_SHAPE(2), (values){ (const double[]){ 3, -4 }, 2 }),
        NULL,
        tensor(&r, DEFT_SHAPE(2, 1), (values){ (const double[]){ 1, 2 }, 2 }),
    };
    deft_tensor *small[1] = { g[0] }, *norm;
    const uint64_t syncs = rig_stats(&r).syncs;
    cr_assert(deft_clip_grad_norm(g, 3, 2.5, &norm));
    cr_assert(deft_clip_grad_norm(small, 1, 1e9, NULL));
    cr_assert_eq(rig_stats(&r).syncs, syncs);
    expect(&r, "norm", norm, VALUES(clip_norm));
    expect(&r, "first", g[0], VALUES(clip_first));
    cr_assert_null(g[1]);
    expect(&r, "second", g[2], VALUES(clip_second));
    expect(&r, "small", small[0], (values){ (const double[]){ 3, -4 }, 2 });
    rig_close(&r);
}
