/* SPDX-License-Identifier: Apache-2.0
 *
 * Learns to read handwritten digits: a softmax regression, then a network of two layers, both
 * trained by Adam (Kingma, Ba 2015) with gradients written by hand.
 *
 *   digits [--epochs N] [--data FILE] [--checkpoint FILE]
 *
 * The network is trained three times, to show what the runtime promises:
 *   1. straight through, with a checkpoint written half way (kept when --checkpoint names it);
 *   2. from that checkpoint to the end: every parameter must come out equal, bit for bit;
 *   3. with fusion turned off: equal again, only slower.
 * A mini-batch is a window that slides over the shuffled training set. Its place, its size (the
 * last one is shorter), the learning rate and the number of the step are plain arguments: all steps
 * replay one plan.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "deft/deft.h"

#include "digits_data.h"
#include "draw.h"
#include "learning.h"
#include "progress.h"

#ifndef DIGITS_FILE
#define DIGITS_FILE "examples/data/digits.bin"
#endif

enum { BATCH = 64, HIDDEN = 128, SHOWN = 4 };
static const double RATE = 5e-3;

/* By its parameters: w, b, or w1, b1, w2, b2. */
enum { REGRESSION = 2, NETWORK = 4 };

/* Everything one training needs. */
typedef struct run {
    deft_ctx *cx;
    learned net;
    const digits *data;
    int64_t n_epochs;             /* of the whole training */
    int32_t *order;               /* of the training images in this epoch */
    deft_tensor *pixels, *labels; /* the caller's bytes, wrapped: all images */
    deft_tensor *x, *y; /* the training set as shuffled for this epoch: f32 [n,64], i32 [n] */
    deft_tensor *loss;  /* summed over the epoch */
    deft_stats spent;   /* by all training steps */
    deft_stats late;    /* by those of the later half, when nothing is being compiled any more */
    uint64_t late_ns, n_late;
} run;

static uint64_t now_ns(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- model ---- */

static void model_init(deft_ctx *cx, int kind, learned *net)
{
    deft_rng rng = { 2024, 0 };
    const int64_t width[] = { DIGITS_PIXELS, kind == NETWORK ? HIDDEN : DIGITS_CLASSES,
                              DIGITS_CLASSES };
    *net = (learned){ .n_params = kind };
    for (int i = 0; i < net->n_params; i += 2) {
        const int64_t from = width[i / 2], to = width[i / 2 + 1];
        net->p[i] =
            deft_normal(cx, &rng, DEFT_SHAPE(from, to), DEFT_F32, 0, sqrt(2.0 / (double)from));
        net->p[i + 1] = deft_zeros(cx, DEFT_SHAPE(to), DEFT_F32);
    }
    for (int i = 0; i < net->n_params; i++) {
        net->m[i] = deft_zeros(cx, deft_shape_get(net->p[i]), DEFT_F32);
        net->v[i] = deft_zeros(cx, deft_shape_get(net->p[i]), DEFT_F32);
    }
}

static deft_tensor *linear(const learned *net, int layer, deft_tensor *x)
{
    return deft_add(deft_matmul(x, net->p[2 * layer]), net->p[2 * layer + 1]);
}

/* The scores of the classes for each row of x; *hidden gets the first layer's result. */
static deft_tensor *scores_of(const learned *net, deft_tensor *x, deft_tensor **hidden)
{
    if (net->n_params == REGRESSION) return linear(net, 0, x);
    *hidden = deft_relu(linear(net, 0, x));
    return linear(net, 1, *hidden);
}

/* Gradients of the mean cross-entropy over n rows. */
static void gradients(const learned *net, deft_tensor *x, deft_tensor *hidden, deft_tensor *scores,
                      deft_tensor *labels, int64_t n, deft_tensor *g[NETWORK])
{
    deft_tensor *const wanted = deft_one_hot(labels, DIGITS_CLASSES, DEFT_F32);
    deft_tensor *d = deft_div(deft_sub(deft_softmax(scores, 1), wanted), (double)n);
    if (net->n_params == NETWORK) {
        g[2] = deft_matmul(deft_t(hidden), d);
        g[3] = deft_sum(d, DEFT_AXES(0), 0);
        d = deft_mul(deft_matmul(d, deft_t(net->p[2])), deft_cast(deft_gt(hidden, 0), DEFT_F32));
    }
    g[0] = deft_matmul(deft_t(x), d);
    g[1] = deft_sum(d, DEFT_AXES(0), 0);
}

static void adam(learned *net, deft_tensor *const g[NETWORK], double rate)
{
    const double c1 = 1 - pow(0.9, (double)net->n_steps), c2 = 1 - pow(0.999, (double)net->n_steps);
    for (int i = 0; i < net->n_params; i++) {
        deft_assign(net->m[i], deft_lerp(net->m[i], g[i], 0.1));
        deft_assign(net->v[i], deft_lerp(net->v[i], deft_square(g[i]), 0.001));
        deft_tensor *const den = deft_add(deft_sqrt(deft_div(net->v[i], c2)), 1e-8);
        deft_assign(net->p[i], deft_sub(net->p[i], deft_mul(deft_div(net->m[i], den), rate / c1)));
    }
}

/* ---- training ---- */

static deft_status run_open(deft_runtime *rt, bool fused, int kind, const digits *d,
                            int64_t n_epochs, run *r)
{
    const deft_ctx_options options = { .size = sizeof options, .no_fusion = !fused };
    const int64_t n = d->n_images, n_train = d->n_train;
    *r = (run){ .data = d, .n_epochs = n_epochs };
    const deft_status st = deft_ctx_create(rt, &options, &r->cx);
    if (st != DEFT_OK) return st;
    r->order = malloc((size_t)n_train * sizeof *r->order);
    if (!r->order) return DEFT_E_MEMORY;
    model_init(r->cx, kind, &r->net);
    r->pixels = deft_wrap(r->cx, DEFT_SHAPE(n, DIGITS_PIXELS), DEFT_U8, d->pixels,
                          (size_t)n * DIGITS_PIXELS, NULL);
    r->labels = deft_wrap(r->cx, DEFT_SHAPE(n), DEFT_U8, d->labels, (size_t)n, NULL);
    r->x = deft_zeros(r->cx, DEFT_SHAPE(n_train, DIGITS_PIXELS), DEFT_F32);
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
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const order =
        deft_from(r->cx, DEFT_SHAPE(n), DEFT_I32, r->order, n * sizeof *r->order);
    deft_assign(r->x, bright(deft_take(r->pixels, order, 0)));
    deft_assign(r->y, deft_cast(deft_take(r->labels, order, 0), DEFT_I32));
    deft_assign(r->loss, 0);
    return deft_step_end(s);
}

/* One step on the rows [from, to) of the shuffled set. */
static deft_status train_step(run *r, int64_t from, int64_t to)
{
    learned *const net = &r->net;
    deft_tensor *g[NETWORK], *hidden = NULL;
    net->n_steps++;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const x = deft_slice(r->x, DEFT_R(from, to)), *const y = deft_slice(
                                                                   r->y, DEFT_R(from, to));
    deft_tensor *const scores = scores_of(net, x, &hidden);
    gradients(net, x, hidden, scores, y, to - from, g);
    deft_assign(r->loss,
                deft_add(r->loss, deft_mul(deft_cross_entropy(scores, y), (double)(to - from))));
    adam(net, g, RATE);
    return deft_step_end(s);
}

static void add_spent(deft_stats *sum, const deft_stats *a, const deft_stats *b)
{
    sum->ops_recorded += b->ops_recorded - a->ops_recorded;
    sum->launches += b->launches - a->launches;
    sum->kernels_run += b->kernels_run - a->kernels_run;
    sum->plans_built += b->plans_built - a->plans_built;
    sum->plan_hits += b->plan_hits - a->plan_hits;
    sum->ns_record_to_key += b->ns_record_to_key - a->ns_record_to_key;
    sum->ns_plan += b->ns_plan - a->ns_plan;
    sum->ns_run += b->ns_run - a->ns_run;
}

/* Trains until so many epochs are done, with a progress line under `title` (NULL: none). */
static deft_status train(run *r, int64_t until, const char *title)
{
    const int64_t n = r->data->n_train;
    while (r->net.n_epochs < until) {
        deft_status st = shuffle(r);
        if (st != DEFT_OK) return st;
        const bool late = 2 * r->net.n_epochs >= r->n_epochs;
        if (late) deft_runtime_settle(deft_ctx_runtime(r->cx));
        deft_stats before, after;
        deft_stats_read(r->cx, &before, sizeof before);
        const uint64_t start = now_ns();
        for (int64_t from = 0; from < n; from += BATCH) {
            st = train_step(r, from, from + BATCH < n ? from + BATCH : n);
            if (st != DEFT_OK) return st;
        }
        const uint64_t ns = now_ns() - start;
        deft_stats_read(r->cx, &after, sizeof after);
        add_spent(&r->spent, &before, &after);
        if (late) {
            add_spent(&r->late, &before, &after);
            r->late_ns += ns;
            r->n_late += (uint64_t)((n + BATCH - 1) / BATCH);
        }
        float loss = 0;
        st = deft_item(r->loss, &loss);
        if (st != DEFT_OK) return st;
        r->net.n_epochs++;
        if (!title) continue;
        progress_show(r->net.n_epochs == r->n_epochs, "%-18s epoch %3lld of %lld  loss %.4f", title,
                      (long long)r->net.n_epochs, (long long)r->n_epochs, (double)loss / (double)n);
    }
    return DEFT_OK;
}

/* ---- what came out ---- */

/* The answers for all test images, and the part that is right. */
static deft_status test(run *r, int32_t *answers, double *accuracy)
{
    const digits *const d = r->data;
    const uint32_t n = d->n_images - d->n_train;
    const deft_scope scope = deft_scope_begin(r->cx);
    deft_tensor *hidden, *const x = bright(deft_slice(r->pixels, DEFT_R(d->n_train, DEFT_END)));
    deft_tensor *const best = deft_argmax(scores_of(&r->net, x, &hidden), DEFT_AXES(1), 0);
    const deft_status st = deft_read(best, DEFT_I32, answers, n * sizeof *answers);
    const deft_status end = deft_scope_end(scope);
    uint32_t n_right = 0;
    for (uint32_t i = 0; i < n; i++) n_right += answers[i] == d->labels[d->n_train + i];
    *accuracy = 100.0 * n_right / n;
    return st != DEFT_OK ? st : end;
}

/* Some digits of the test set with what was read: mistakes first, they are worth a look. */
static void draw_answers(const digits *d, const int32_t *answers)
{
    const uint32_t n = d->n_images - d->n_train;
    const uint8_t *pixels[SHOWN];
    char text[SHOWN][24];
    const char *captions[SHOWN];
    int n_shown = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n && n_shown < (pass ? SHOWN : SHOWN / 2); i++) {
            const int is = d->labels[d->n_train + i], read = answers[i];
            if ((is == read) != (pass == 1)) continue;
            pixels[n_shown] = d->pixels + (size_t)(d->n_train + i) * DIGITS_PIXELS;
            snprintf(text[n_shown], sizeof text[n_shown],
                     is == read ? "read as %d" : "read as %d, is %d", read, is);
            captions[n_shown] = text[n_shown];
            n_shown++;
        }
    printf("\n");
    draw_digits(stdout, pixels, captions, n_shown);
}

static void row(const char *what, double a, double b, int digits_after)
{
    printf("  %-34s %12.*f %20.*f\n", what, digits_after, a, digits_after, b);
}

/* Microseconds per step of the later half: all, recording, closing the trace, finding the plan,
 * running. */
static void split(const run *r, double out[5])
{
    const double part = 1e-3 / (double)r->n_late;
    const deft_stats *const s = &r->late;
    out[0] = (double)r->late_ns * part;
    out[2] = (double)s->ns_record_to_key * part;
    out[3] = (double)s->ns_plan * part;
    out[4] = (double)s->ns_run * part;
    out[1] = out[0] - out[2] - out[3] - out[4];
}

static void report(const deft_runtime *rt, const run *a, const run *b, uint64_t kernels_a,
                   uint64_t kernels_b)
{
    const double n = (double)a->net.n_steps;
    double t_a[5], t_b[5];
    const deft_stats *const s = &a->spent, *const t = &b->spent;
    printf("\nWhat the runtime did in %lld steps, on %u thread%s with %s:\n\n",
           (long long)a->net.n_steps, deft_runtime_threads(rt),
           deft_runtime_threads(rt) == 1 ? "" : "s", deft_runtime_compiler(rt));
    printf("  %-34s %12s %20s\n", "", "fused", "one kernel per op");
    row("operations recorded, per step", (double)s->ops_recorded / n, (double)t->ops_recorded / n,
        1);
    row("kernels run, per step", (double)s->kernels_run / n, (double)t->kernels_run / n, 1);
    row("launches, per step", (double)s->launches / n, (double)t->launches / n, 1);
    row("plans built", (double)s->plans_built, (double)t->plans_built, 0);
    row("plan hits", (double)s->plan_hits, (double)t->plan_hits, 0);
    row("kernels compiled", (double)kernels_a, (double)kernels_b, 0);
    split(a, t_a);
    split(b, t_b);
    row("time per step, us (later half)", t_a[0], t_b[0], 1);
    row("  recording", t_a[1], t_b[1], 1);
    row("  closing the trace, its key", t_a[2], t_b[2], 1);
    row("  finding the plan", t_a[3], t_b[3], 1);
    row("  running it", t_a[4], t_b[4], 1);
}

/* ---- the whole story ---- */

static uint64_t kernels_compiled(deft_runtime *rt, const deft_ctx *cx)
{
    deft_stats s;
    deft_runtime_settle(rt);
    deft_stats_read(cx, &s, sizeof s);
    return s.kernels_compiled;
}

/* Trains and tests; the checkpoint (NULL: none) is written half way. */
static deft_status learn(run *r, const char *title, const char *checkpoint, int32_t *answers,
                         double *accuracy)
{
    deft_status st = train(r, r->n_epochs / 2, title);
    if (st == DEFT_OK && checkpoint) st = learning_save(r->cx, checkpoint, &r->net);
    if (st == DEFT_OK) st = train(r, r->n_epochs, title);
    if (st == DEFT_OK) st = test(r, answers, accuracy);
    if (st == DEFT_OK) printf("  test accuracy %.1f %%\n", *accuracy);
    return st;
}

/* Trains to the end and says whether that gave what the first training gave. */
static deft_status repeat(run *r, const run *first, const char *how, bool *equal)
{
    deft_status st = train(r, r->n_epochs, NULL);
    if (st == DEFT_OK) st = learning_equal(&r->net, &first->net, equal);
    if (st == DEFT_OK) printf("%s: parameters %s\n", how, *equal ? "equal, bit for bit" : "DIFFER");
    return st;
}

int main(int argc, char **argv)
{
    learning_options o = { 40, DIGITS_FILE, "digits.safetensors", false };
    digits d = { 0 };
    run linear_run = { 0 }, whole = { 0 }, resumed = { 0 }, unfused = { 0 };
    const run *failed = NULL; /* whose context knows why */
    deft_runtime *rt = NULL;
    int32_t *answers = NULL;
    int exit_code = 1;
    double accuracy = 0, accuracy_linear = 0;
    bool equal_resumed = false, equal_unfused = false;
    if (!learning_parse(argc, argv, &o, &exit_code)) return exit_code;
    const digits_status loaded = digits_load(o.data, &d);
    if (loaded != DIGITS_OK || d.n_train < 1 || d.n_train == d.n_images) {
        fprintf(stderr, "digits: %s: %s\n", o.data, digits_message(loaded));
        goto done;
    }
    const deft_runtime_options rt_options = { .size = sizeof rt_options, .measure = 1 };
    answers = malloc(d.n_images * sizeof *answers);
    if (!answers || deft_runtime_create(&rt_options, &rt) != DEFT_OK) {
        fprintf(stderr, "digits: no runtime, or out of memory\n");
        goto done;
    }
    printf("%u digits to learn from, %u to test\n", d.n_train, d.n_images - d.n_train);

    failed = &linear_run;
    if (run_open(rt, true, REGRESSION, &d, o.n_epochs, &linear_run) != DEFT_OK) goto done;
    if (learn(&linear_run, "softmax regression", NULL, answers, &accuracy_linear) != DEFT_OK)
        goto done;

    failed = &whole;
    if (run_open(rt, true, NETWORK, &d, o.n_epochs, &whole) != DEFT_OK) goto done;
    const uint64_t before_fused = kernels_compiled(rt, whole.cx);
    if (learn(&whole, "network", o.checkpoint, answers, &accuracy) != DEFT_OK) goto done;
    const uint64_t n_fused = kernels_compiled(rt, whole.cx) - before_fused;

    failed = &resumed;
    if (run_open(rt, true, NETWORK, &d, o.n_epochs, &resumed) != DEFT_OK) goto done;
    if (learning_resume(resumed.cx, o.checkpoint, &resumed.net) != DEFT_OK) goto done;
    if (repeat(&resumed, &whole, "resumed from the checkpoint at half time", &equal_resumed) !=
        DEFT_OK)
        goto done;

    failed = &unfused;
    if (run_open(rt, false, NETWORK, &d, o.n_epochs, &unfused) != DEFT_OK) goto done;
    const uint64_t before_unfused = kernels_compiled(rt, unfused.cx);
    if (repeat(&unfused, &whole, "trained again without fusion", &equal_unfused) != DEFT_OK)
        goto done;
    const uint64_t n_unfused = kernels_compiled(rt, unfused.cx) - before_unfused;

    failed = NULL;
    draw_answers(&d, answers);
    report(rt, &whole, &unfused, n_fused, n_unfused);
    printf("\ntest accuracy: softmax regression %.1f %%, network %.1f %%\n", accuracy_linear,
           accuracy);
    exit_code = !equal_resumed || !equal_unfused || (o.n_epochs >= 20 && accuracy < 95);
done:
    if (failed)
        fprintf(stderr, "\ndigits: %s\n", failed->cx ? deft_message(failed->cx) : "no context");
    if (!o.keep) remove(o.checkpoint);
    run_close(&linear_run);
    run_close(&whole);
    run_close(&resumed);
    run_close(&unfused);
    deft_runtime_destroy(&rt);
    digits_free(&d);
    free(answers);
    return exit_code;
}
