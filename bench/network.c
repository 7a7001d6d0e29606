/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include "bench.h"

enum { W1, B1, W2, B2 };

static void adam(network *w, deft_tensor *const *g, deft_tensor *rate)
{
    deft_ctx *const cx = w->cx;
    for (int i = 0; i < NETWORK_PARAMS; i++) {
        deft_assign(w->m[i], deft_lerp(w->m[i], g[i], deft_const_f(cx, 0.1)));
        deft_assign(w->v[i], deft_lerp(w->v[i], deft_square(g[i]), deft_const_f(cx, 0.001)));
        deft_tensor *const den = deft_add(deft_sqrt(w->v[i]), deft_const_f(cx, 1e-8));
        deft_assign(w->p[i], deft_sub(w->p[i], deft_mul(deft_div(w->m[i], den), rate)));
    }
}

static deft_tensor *hidden_of(network *w, deft_tensor *x)
{
    return deft_maximum(deft_add(deft_matmul(x, w->p[W1]), w->p[B1]), deft_const_f(w->cx, 0));
}

static deft_tensor *scores_of(network *w, deft_tensor *h)
{
    return deft_add(deft_matmul(h, w->p[W2]), w->p[B2]);
}

static void train(network *w, deft_tensor *x, deft_tensor *labels, deft_tensor *rate)
{
    deft_ctx *const cx = w->cx;
    deft_tensor *const h = hidden_of(w, x), *const scores = scores_of(w, h);
    deft_tensor *const wanted = deft_one_hot(labels, NETWORK_CLASSES, DEFT_F32);
    deft_tensor *const d2 = deft_sub(deft_softmax(scores, 1), wanted);
    deft_tensor *const open = deft_cast(deft_gt(h, deft_const_f(cx, 0)), DEFT_F32);
    deft_tensor *const d1 = deft_mul(deft_matmul(d2, deft_t(w->p[W2])), open);
    deft_tensor *const g[NETWORK_PARAMS] = { deft_matmul(deft_t(x), d1),
                                             deft_sum(d1, DEFT_AXES(0), 0),
                                             deft_matmul(deft_t(h), d2),
                                             deft_sum(d2, DEFT_AXES(0), 0) };
    adam(w, g, rate);
}

static deft_status captured_train(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)out;
    train(user, in[0], in[1], deft_param_f(cx, "rate"));
    return DEFT_OK;
}

void network_train_captured(void *user)
{
    network *const w = user;
    bench_must(w->cx, deft_capture_call(w->c, (deft_tensor *[]){ w->x, w->labels }, 2, NULL, 0),
               "capture_call");
}

void network_train_again(void *user)
{
    network *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    train(w, w->x, w->labels, deft_num(w->cx, 0.001));
    bench_must(w->cx, deft_step_end(s), "step");
}

void network_open(network *w, deft_runtime *rt, int64_t batch)
{
    static const int64_t rows[NETWORK_PARAMS] = { NETWORK_IN, 1, NETWORK_HIDDEN, 1 };
    static const int64_t columns[NETWORK_PARAMS] = { NETWORK_HIDDEN, NETWORK_HIDDEN,
                                                     NETWORK_CLASSES, NETWORK_CLASSES };
    deft_rng rng = { 1, 0 };
    *w = (network){ .cx = bench_ctx(rt, DEFT_STRICT), .batch = batch };
    for (int i = 0; i < NETWORK_PARAMS; i++) {
        const deft_shape s =
            rows[i] == 1 ? DEFT_SHAPE(columns[i]) : DEFT_SHAPE(rows[i], columns[i]);
        w->start[i] = deft_keep(deft_normal(w->cx, &rng, s, DEFT_F32, 0, 0.05));
        w->zeros[i] = deft_keep(deft_zeros(w->cx, s, DEFT_F32));
        w->p[i] = deft_keep(deft_mul(w->start[i], 1));
        w->m[i] = deft_keep(deft_zeros(w->cx, s, DEFT_F32));
        w->v[i] = deft_keep(deft_zeros(w->cx, s, DEFT_F32));
    }
    w->x = deft_keep(deft_normal(w->cx, &rng, DEFT_SHAPE(batch, NETWORK_IN), DEFT_F32, 0, 1));
    w->labels =
        deft_keep(deft_randint(w->cx, &rng, DEFT_SHAPE(batch), DEFT_I32, 0, NETWORK_CLASSES));
    w->c = deft_capture_create(w->cx, captured_train, w);
    bench_must(w->cx, deft_capture_set_f(w->c, "rate", 0.001), "rate");
}

void network_reset(network *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    for (int i = 0; i < NETWORK_PARAMS; i++) {
        deft_assign(w->p[i], w->start[i]);
        deft_assign(w->m[i], w->zeros[i]);
        deft_assign(w->v[i], w->zeros[i]);
    }
    bench_must(w->cx, deft_step_end(s), "reset");
}

float network_loss(network *w)
{
    float loss = 0;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const t = deft_cross_entropy(scores_of(w, hidden_of(w, w->x)), w->labels);
    bench_must(w->cx, deft_item(t, &loss), "loss");
    bench_must(w->cx, deft_scope_end(s), "scope_end");
    return loss;
}

void network_read_start(network *w, network_start *out)
{
    float *p = out->p;
    for (int i = 0; i < NETWORK_PARAMS; i++) {
        const size_t size = (size_t)deft_numel(w->start[i]) * sizeof *p;
        bench_must(w->cx, deft_read(w->start[i], DEFT_F32, p, size), "read");
        p += deft_numel(w->start[i]);
    }
    const size_t n = (size_t)w->batch;
    bench_must(w->cx, deft_read(w->x, DEFT_F32, out->x, n * NETWORK_IN * sizeof *out->x), "read");
    bench_must(w->cx, deft_read(w->labels, DEFT_I32, out->labels, n * sizeof *out->labels), "read");
}

void network_close(network *w)
{
    deft_capture_destroy(&w->c);
    deft_ctx_destroy(&w->cx);
}
