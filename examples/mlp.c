/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a small network to tell three arms of a spiral apart: two layers, gradients written by
 * hand, Adam (Kingma, Ba 2015). Forward pass, backward pass and the update of all parameters are
 * one step.
 *
 *   mlp [STEPS]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "deft/deft.h"

enum { PER_ARM = 100, ARMS = 3, POINTS = PER_ARM * ARMS, HIDDEN = 64 };
enum { W1, B1, W2, B2, N_PARAMS };

typedef struct model {
    deft_tensor *p[N_PARAMS];               /* parameters */
    deft_tensor *m[N_PARAMS], *v[N_PARAMS]; /* running means of gradients and of their squares */
    int step;
} model;

static void make_spiral(float points[POINTS][2], int32_t labels[POINTS])
{
    const double turn = 6.283185307179586;
    for (int i = 0; i < POINTS; i++) {
        const int arm = i / PER_ARM;
        const double r = (i % PER_ARM + 1) / (double)PER_ARM;
        const double angle =
            r * 4 + turn * arm / (double)ARMS + 0.12 * sin(i * 12.9898); /* fixed "noise" */
        points[i][0] = (float)(r * cos(angle));
        points[i][1] = (float)(r * sin(angle));
        labels[i] = arm;
    }
}

static void init_model(deft_ctx *cx, model *net)
{
    deft_rng rng = { 1, 0 };
    net->p[W1] = deft_normal(cx, &rng, DEFT_SHAPE(2, HIDDEN), DEFT_F32, 0, 1);
    net->p[B1] = deft_zeros(cx, DEFT_SHAPE(HIDDEN), DEFT_F32);
    net->p[W2] = deft_normal(cx, &rng, DEFT_SHAPE(HIDDEN, ARMS), DEFT_F32, 0, 0.1);
    net->p[B2] = deft_zeros(cx, DEFT_SHAPE(ARMS), DEFT_F32);
    for (int i = 0; i < N_PARAMS; i++) {
        net->m[i] = deft_zeros(cx, deft_shape_get(net->p[i]), DEFT_F32);
        net->v[i] = deft_zeros(cx, deft_shape_get(net->p[i]), DEFT_F32);
    }
    net->step = 0;
}

static deft_tensor *hidden(const model *net, deft_tensor *x)
{
    return deft_tanh(deft_add(deft_matmul(x, net->p[W1]), net->p[B1]));
}

static deft_tensor *logits(const model *net, deft_tensor *h)
{
    return deft_add(deft_matmul(h, net->p[W2]), net->p[B2]);
}

/* The gradient of the mean cross-entropy with respect to each parameter. */
static void gradients(const model *net, deft_tensor *x, deft_tensor *h, deft_tensor *scores,
                      deft_tensor *labels, deft_tensor *g[N_PARAMS])
{
    deft_tensor *const wanted = deft_one_hot(labels, ARMS, DEFT_F32);
    deft_tensor *const d2 = deft_div(deft_sub(deft_softmax(scores, 1), wanted), POINTS);
    deft_tensor *const slope = deft_sub(deft_num(deft_ctx_of(h), 1), deft_square(h));
    deft_tensor *const d1 = deft_mul(deft_matmul(d2, deft_t(net->p[W2])), slope);
    g[W2] = deft_matmul(deft_t(h), d2);
    g[B2] = deft_sum(d2, DEFT_AXES(0), 0);
    g[W1] = deft_matmul(deft_t(x), d1);
    g[B1] = deft_sum(d1, DEFT_AXES(0), 0);
}

static void adam(model *net, deft_tensor *const g[N_PARAMS], double rate)
{
    const double c1 = 1 - pow(0.9, net->step), c2 = 1 - pow(0.999, net->step);
    for (int i = 0; i < N_PARAMS; i++) {
        deft_assign(net->m[i], deft_lerp(net->m[i], g[i], 0.1));
        deft_assign(net->v[i], deft_lerp(net->v[i], deft_square(g[i]), 0.001));
        deft_tensor *const den =
            deft_add(deft_sqrt(deft_div(net->v[i], c2)), 1e-8); /* the v just assigned */
        deft_assign(net->p[i], deft_sub(net->p[i], deft_mul(deft_div(net->m[i], den), rate / c1)));
    }
}

static deft_status train(deft_ctx *cx, int n_steps, float *accuracy)
{
    static float points[POINTS][2];
    static int32_t answers[POINTS];
    make_spiral(points, answers);
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(POINTS, 2), DEFT_F32, points, sizeof points);
    deft_tensor *const labels =
        deft_from(cx, DEFT_SHAPE(POINTS), DEFT_I32, answers, sizeof answers);
    deft_tensor *const loss = deft_zeros(cx, DEFT_SHAPE(), DEFT_F32);
    model net;
    init_model(cx, &net);
    while (net.step < n_steps) {
        net.step++;
        const bool look = net.step % 100 == 0 || net.step == n_steps;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const h = hidden(&net, x), *const scores = logits(&net, h);
        deft_tensor *g[N_PARAMS];
        gradients(&net, x, h, scores, labels, g);
        if (look) deft_assign(loss, deft_cross_entropy(scores, labels));
        adam(&net, g, 0.01);
        const deft_status st = deft_step_end(s);
        if (st != DEFT_OK) return st;
        if (!look) continue;
        float now = 0;
        const deft_status read = deft_item(loss, &now);
        if (read != DEFT_OK) return read;
        printf("step %4d  loss %.4f\n", net.step, (double)now);
    }
    deft_tensor *const answer = deft_argmax(logits(&net, hidden(&net, x)), DEFT_AXES(1), 0);
    deft_tensor *const right = deft_cast(deft_eq(answer, labels), DEFT_F32);
    return deft_item(deft_mean(right, DEFT_ALL_AXES, 0), accuracy);
}

int main(int argc, char **argv)
{
    const int n_steps = argc > 1 ? atoi(argv[1]) : 500;
    float accuracy = 0;
    int exit_code = 1;
    deft_ctx *cx = NULL;
    if (n_steps < 1) {
        fprintf(stderr, "usage: mlp [STEPS]\n");
        return 2;
    }
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "mlp: no context\n");
        goto done;
    }
    if (train(cx, n_steps, &accuracy) != DEFT_OK) {
        fprintf(stderr, "mlp: %s\n", deft_message(cx));
        goto done;
    }
    printf("%.1f %% of the points are told apart\n", 100 * (double)accuracy);
    exit_code = accuracy < 0.97f;
done:
    deft_ctx_destroy(&cx);
    return exit_code;
}
