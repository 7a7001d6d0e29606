/* SPDX-License-Identifier: Apache-2.0
 *
 * Learns to read handwritten digits with a convolutional network: two layers of 3x3 windows, each
 * followed by a pool, then one of all that is left. Gradients come from deft_grad; forward pass,
 * backward pass and the update by Adam (Kingma, Ba 2015) are one step, and all steps replay one
 * plan.
 *
 *   cnn [--epochs N] [--data FILE] [--checkpoint FILE]
 *
 * The network is trained twice: straight through, with a checkpoint written half way (kept when
 * --checkpoint names it), and from that checkpoint to the end. Every parameter must come out equal,
 * bit for bit. Each mini-batch is moved by up to a pixel, as the number of the step says: where a
 * slice begins is a plain argument, like the learning rate.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "deft/deft.h"

#include "digits_data.h"
#include "learning.h"
#include "progress.h"

#ifndef DIGITS_FILE
#define DIGITS_FILE "examples/data/digits.bin"
#endif

enum { BATCH = 64, SIDE = DIGITS_SIDE, FRAMED = SIDE + 2, WIDTH_1 = 24, WIDTH_2 = 48 };
enum { LEFT = WIDTH_2 * (SIDE / 4) * (SIDE / 4) }; /* numbers of an image after both pools */
enum { W1, B1, W2, B2, W3, B3, N_PARAMS };
static const double RATE = 6e-3, DECAY = 1e-4; /* of the parameters, each step, times the rate */

typedef struct run {
    deft_ctx *cx;
    const digits *data;
    int64_t n_epochs; /* of the whole training */
    learned net;
    int32_t *order;               /* of the training images in this epoch */
    deft_tensor *pixels, *labels; /* the caller's bytes, wrapped: all images */
    deft_tensor *x, *y;           /* as shuffled: f32 [n,1,10,10] with a frame of zeros, i32 [n] */
    deft_tensor *loss;            /* summed over the epoch */
} run;

/* ---- model ---- */

static void init_params(run *r)
{
    deft_rng rng = { 2024, 0 };
    const deft_shape shape[N_PARAMS] = {
        DEFT_SHAPE(WIDTH_1, 1, 3, 3),       DEFT_SHAPE(WIDTH_1),
        DEFT_SHAPE(WIDTH_2, WIDTH_1, 3, 3), DEFT_SHAPE(WIDTH_2),
        DEFT_SHAPE(LEFT, DIGITS_CLASSES),   DEFT_SHAPE(DIGITS_CLASSES)
    };
    const double fan_in[N_PARAMS] = { [W1] = 9, [W2] = WIDTH_1 * 9, [W3] = LEFT };
    for (int i = 0; i < N_PARAMS; i++) {
        r->net.p[i] = fan_in[i] > 0
                          ? deft_normal(r->cx, &rng, shape[i], DEFT_F32, 0, sqrt(2 / fan_in[i]))
                          : deft_zeros(r->cx, shape[i], DEFT_F32);
        r->net.m[i] = deft_zeros(r->cx, shape[i], DEFT_F32);
        r->net.v[i] = deft_zeros(r->cx, shape[i], DEFT_F32);
    }
}

static deft_tensor *layer(deft_tensor *x, deft_tensor *w, deft_tensor *b)
{
    deft_tensor *const y = deft_conv2d(x, w, DEFT_CONV2D(.padding = { 1, 1 }, .bias = b));
    return deft_max_pool2d(deft_relu(y), DEFT_POOL2D(.kernel = { 2, 2 }));
}

/* The scores of the classes for images [n,1,8,8]. */
static deft_tensor *scores(const run *r, deft_tensor *x)
{
    deft_tensor *const h = layer(layer(x, r->net.p[W1], r->net.p[B1]), r->net.p[W2], r->net.p[B2]);
    deft_tensor *const flat = deft_reshape(h, DEFT_SHAPE(deft_dim(h, 0), LEFT));
    return deft_add(deft_matmul(flat, r->net.p[W3]), r->net.p[B3]);
}

static void adam(run *r, deft_tensor *const g[N_PARAMS], double rate)
{
    const double n = (double)r->net.n_steps;
    const double c1 = 1 - pow(0.9, n), c2 = 1 - pow(0.999, n);
    for (int i = 0; i < N_PARAMS; i++) {
        deft_assign(r->net.m[i], deft_lerp(r->net.m[i], g[i], 0.1));
        deft_assign(r->net.v[i], deft_lerp(r->net.v[i], deft_square(g[i]), 0.001));
        deft_tensor *const den = deft_add(deft_sqrt(deft_div(r->net.v[i], c2)), 1e-8);
        deft_tensor *const kept = deft_mul(r->net.p[i], 1 - rate * DECAY);
        deft_assign(r->net.p[i], deft_sub(kept, deft_mul(deft_div(r->net.m[i], den), rate / c1)));
    }
}

/* ---- training ---- */

static deft_status run_open(deft_runtime *rt, const digits *d, int64_t n_epochs, run *r)
{
    const int64_t n = d->n_images, n_train = d->n_train;
    *r = (run){ .data = d, .n_epochs = n_epochs, .net.n_params = N_PARAMS };
    const deft_status st = deft_ctx_create(rt, NULL, &r->cx);
    if (st != DEFT_OK) return st;
    r->order = malloc((size_t)n_train * sizeof *r->order);
    if (!r->order) return DEFT_E_MEMORY;
    init_params(r);
    r->pixels = deft_wrap(r->cx, DEFT_SHAPE(n, 1, SIDE, SIDE), DEFT_U8, d->pixels,
                          (size_t)n * DIGITS_PIXELS, NULL);
    r->labels = deft_wrap(r->cx, DEFT_SHAPE(n), DEFT_U8, d->labels, (size_t)n, NULL);
    r->x = deft_zeros(r->cx, DEFT_SHAPE(n_train, 1, FRAMED, FRAMED), DEFT_F32);
    r->y = deft_zeros(r->cx, DEFT_SHAPE(n_train), DEFT_I32);
    r->loss = deft_zeros(r->cx, DEFT_SHAPE(), DEFT_F32);
    return DEFT_OK;
}

static void run_close(run *r)
{
    deft_ctx_destroy(&r->cx);
    free(r->order);
    r->order = NULL;
}

static deft_tensor *bright(deft_tensor *pixels)
{
    return deft_div(deft_cast(pixels, DEFT_F32), DIGITS_DARKEST);
}

static deft_status shuffle(run *r)
{
    const uint32_t n = r->data->n_train;
    learning_shuffle(r->net.n_epochs, r->order, n);
    const int64_t frame[] = { 0, 0, 1, 1 };
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const order =
        deft_from(r->cx, DEFT_SHAPE(n), DEFT_I32, r->order, n * sizeof *r->order);
    deft_tensor *const images = bright(deft_take(r->pixels, order, 0));
    deft_assign(r->x, deft_pad(images, frame, frame, DEFT_PAD_CONSTANT, 0));
    deft_assign(r->y, deft_cast(deft_take(r->labels, order, 0), DEFT_I32));
    deft_assign(r->loss, 0);
    return deft_step_end(s);
}

/* One step on images [from, to) of the shuffled set, moved by up to a pixel either way. */
static deft_status train_step(run *r, int64_t from, int64_t to)
{
    const int64_t move = r->net.n_steps * 4 % 9, dy = move / 3, dx = move % 3;
    const int64_t n_steps = r->n_epochs * ((r->data->n_train + BATCH - 1) / BATCH);
    const double done = (double)r->net.n_steps / (double)n_steps;
    const double rate = RATE * 0.5 * (1 + cos(3.141592653589793 * done));
    deft_tensor *g[N_PARAMS];
    r->net.n_steps++;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const x =
        deft_slice(r->x, DEFT_R(from, to), DEFT_FULL, DEFT_R(dy, dy + SIDE), DEFT_R(dx, dx + SIDE));
    deft_tensor *const y = deft_slice(r->y, DEFT_R(from, to));
    deft_tensor *const loss = deft_cross_entropy(scores(r, x), y);
    deft_grad(&loss, NULL, 1, r->net.p, N_PARAMS, NULL, g);
    deft_assign(r->loss, deft_add(r->loss, deft_mul(loss, (double)(to - from))));
    adam(r, g, rate);
    return deft_step_end(s);
}

/* Trains until so many epochs are done, with a line of progress. */
static deft_status train(run *r, int64_t until, const char *title)
{
    const int64_t n = r->data->n_train;
    while (r->net.n_epochs < until) {
        deft_status st = shuffle(r);
        for (int64_t from = 0; from < n && st == DEFT_OK; from += BATCH)
            st = train_step(r, from, from + BATCH < n ? from + BATCH : n);
        float loss = 0;
        if (st == DEFT_OK) st = deft_item(r->loss, &loss);
        if (st != DEFT_OK) return st;
        r->net.n_epochs++;
        progress_show(r->net.n_epochs == r->n_epochs, "%-9s epoch %3lld of %lld  loss %.4f", title,
                      (long long)r->net.n_epochs, (long long)r->n_epochs, (double)loss / (double)n);
    }
    return DEFT_OK;
}

/* The part of the test images that is read rightly. */
static deft_status test(run *r, double *accuracy)
{
    float right = 0;
    const deft_scope s = deft_scope_begin(r->cx);
    const deft_range rest = DEFT_R(r->data->n_train, DEFT_END);
    deft_tensor *const best =
        deft_argmax(scores(r, bright(deft_slice(r->pixels, rest))), DEFT_AXES(1), 0);
    deft_tensor *const hits = deft_cast(deft_eq(best, deft_slice(r->labels, rest)), DEFT_F32);
    const deft_status st = deft_item(deft_mean(hits, DEFT_ALL_AXES, 0), &right);
    const deft_status end = deft_scope_end(s);
    *accuracy = 100 * (double)right;
    return st != DEFT_OK ? st : end;
}

/* ---- the whole story ---- */

static deft_status learn(run *r, const char *checkpoint, double *accuracy)
{
    deft_status st = train(r, r->n_epochs / 2, "network");
    if (st == DEFT_OK) st = learning_save(r->cx, checkpoint, &r->net);
    if (st == DEFT_OK) st = train(r, r->n_epochs, "network");
    if (st == DEFT_OK) st = test(r, accuracy);
    return st;
}

static deft_status repeat(run *r, const run *first, const char *checkpoint, bool *equal)
{
    deft_status st = learning_resume(r->cx, checkpoint, &r->net);
    if (st == DEFT_OK) st = train(r, r->n_epochs, "resumed");
    if (st == DEFT_OK) st = learning_equal(&r->net, &first->net, equal);
    return st;
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    learning_options o = { 30, DIGITS_FILE, "cnn.safetensors", false };
    digits d = { 0 };
    run whole = { 0 }, resumed = { 0 };
    const run *failed = NULL; /* whose context knows why */
    deft_runtime *rt = NULL;
    int exit_code = 1;
    double accuracy = 0;
    bool equal = false;
    if (!learning_parse(argc, argv, &o, &exit_code)) return exit_code;
    const digits_status loaded = digits_load(o.data, &d);
    if (loaded != DIGITS_OK || d.n_train < 1 || d.n_train == d.n_images) {
        fprintf(stderr, "cnn: %s: %s\n", o.data, digits_message(loaded));
        goto done;
    }
    if (deft_runtime_create(NULL, &rt) != DEFT_OK) {
        fprintf(stderr, "cnn: no runtime\n");
        goto done;
    }
    printf("%u digits to learn from, %u to test\n", d.n_train, d.n_images - d.n_train);
    const double start = seconds();
    failed = &whole;
    if (run_open(rt, &d, o.n_epochs, &whole) != DEFT_OK) goto done;
    if (learn(&whole, o.checkpoint, &accuracy) != DEFT_OK) goto done;
    printf("  test accuracy %.1f %%, %.1f s\n", accuracy, seconds() - start);
    failed = &resumed;
    if (run_open(rt, &d, o.n_epochs, &resumed) != DEFT_OK) goto done;
    if (repeat(&resumed, &whole, o.checkpoint, &equal) != DEFT_OK) goto done;
    printf("  parameters %s\n", equal ? "equal, bit for bit" : "DIFFER");
    failed = NULL;
    exit_code = !equal || (o.n_epochs >= 20 && accuracy < 98);
done:
    if (failed)
        fprintf(stderr, "\ncnn: %s\n", failed->cx ? deft_message(failed->cx) : "no context");
    if (!o.keep) remove(o.checkpoint);
    run_close(&whole);
    run_close(&resumed);
    deft_runtime_destroy(&rt);
    digits_free(&d);
    return exit_code;
}
