/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a small transformer to go on with a text, one character after the other, and lets it write
 * (as GPT-2: Radford et al. 2019; layer norms before attention and after it).
 *
 *   gpt [--data FILE] [--steps N] [--layers N] [--width N] [--heads N] [--time N] [--batch N]
 *       [--rate R] [--drop P] [--seed N] [--write N] [--temperature T] [--checkpoint FILE]
 *       [--resume FILE] [--picture FILE] [--strict 1] [--check 1]
 *
 * Choosing windows of the text, forward pass, backward pass, clipping and AdamW are one step, and
 * all steps replay one plan. --checkpoint writes the state at the end, --resume goes on from one.
 * --check writes one half way, resumes from it, and compares every parameter bit by bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"

#include "draw.h"
#include "ppm.h"

#ifndef KJV_FILE
#define KJV_FILE "examples/data/kjv.txt"
#endif

enum { MAX_LAYERS = 24, HELD_OUT = 16 /* one part in so many is not learnt from */ };

typedef struct options {
    const char *data, *checkpoint, *resume, *picture;
    int64_t steps, layers, width, heads, time, batch, seed, n_write;
    double rate, drop, temperature;
    bool strict, check;
} options;

/* A text as numbers of characters. */
typedef struct corpus {
    uint8_t *at; /* owned */
    int64_t n, n_train;
    int n_chars;
    char chars[256];
    uint8_t number[256]; /* of each byte that occurs */
} corpus;

typedef struct block {
    deft_nn_norm before, after;
    deft_nn_self_attention attention;
    deft_nn_linear up, down;
    deft_nn_dropout drop;
} block;

/* Everything one training needs. */
typedef struct run {
    const options *o;
    const corpus *text;
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw;
    deft_nn_embedding chars, places;
    block blocks[MAX_LAYERS];
    deft_nn_norm last;
    deft_nn_linear head;
    deft_tensor *all;   /* the text, u8 [n] */
    deft_tensor *loss;  /* of the latest step */
    deft_tensor **grad; /* of the parameters of adamw; owned */
    int64_t done;       /* steps */
} run;

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the text ---- */

static bool corpus_read(corpus *c, const char *path)
{
    *c = (corpus){ 0 };
    FILE *const f = fopen(path, "rb");
    if (!f) return false;
    const size_t most = (size_t)16 << 20;
    c->at = malloc(most);
    c->n = c->at ? (int64_t)fread(c->at, 1, most, f) : 0;
    fclose(f);
    bool occurs[256] = { false };
    for (int64_t i = 0; i < c->n; i++) occurs[c->at[i]] = true;
    for (int b = 0; b < 256; b++)
        if (occurs[b]) {
            c->chars[c->n_chars] = (char)b;
            c->number[b] = (uint8_t)c->n_chars++;
        }
    for (int64_t i = 0; i < c->n; i++) c->at[i] = c->number[c->at[i]];
    c->n_train = c->n - c->n / HELD_OUT;
    return c->n > 1000;
}

/* ---- the network ---- */

static bool block_init(block *b, run *r, int64_t i)
{
    const options *const o = r->o;
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", (int)i);
    b->drop = (deft_nn_dropout){ r->nn, o->drop };
    if (!deft_nn_push(r->nn, name)) return false;
    const bool ok = deft_nn_norm_init_layer(&b->before, r->nn, "before", o->width) &&
                    deft_nn_self_attention_init(&b->attention, r->nn, "attention", o->width,
                                                o->heads, o->drop) &&
                    deft_nn_norm_init_layer(&b->after, r->nn, "after", o->width) &&
                    deft_nn_linear_init(&b->up, r->nn, "up", o->width, 4 * o->width, true) &&
                    deft_nn_linear_init(&b->down, r->nn, "down", 4 * o->width, o->width, true);
    deft_nn_pop(r->nn);
    return ok;
}

static deft_tensor *block_call(const block *b, deft_tensor *x)
{
    deft_tensor *y = deft_nn_self_attention_call(&b->attention, deft_nn_norm_call(&b->before, x));
    x = deft_add(x, deft_nn_dropout_call(&b->drop, y));
    y = deft_nn_linear_call(
        &b->down, deft_gelu(deft_nn_linear_call(&b->up, deft_nn_norm_call(&b->after, x))));
    return deft_add(x, deft_nn_dropout_call(&b->drop, y));
}

static bool network_init(run *r)
{
    const options *const o = r->o;
    const deft_init small = { DEFT_INIT_NORMAL, 0, 0.02 };
    bool ok = deft_nn_embedding_init(&r->chars, r->nn, "chars", r->text->n_chars, o->width) &&
              deft_nn_embedding_init(&r->places, r->nn, "places", o->time, o->width) &&
              deft_nn_fill(r->nn, "chars.weight", small) &&
              deft_nn_fill(r->nn, "places.weight", small);
    for (int64_t i = 0; i < o->layers && ok; i++) ok = block_init(&r->blocks[i], r, i);
    return ok && deft_nn_norm_init_layer(&r->last, r->nn, "last", o->width) &&
           deft_nn_linear_init(&r->head, r->nn, "head", o->width, r->text->n_chars, false) &&
           deft_nn_number(r->nn, "steps", &r->done);
}

/* Integers [batch, time] -> scores of the next character [batch, time, n_chars]. */
static deft_tensor *network_call(const run *r, deft_tensor *chars)
{
    deft_tensor *x = deft_add(deft_nn_embedding_call(&r->chars, chars), r->places.weight);
    for (int64_t i = 0; i < r->o->layers; i++) x = block_call(&r->blocks[i], x);
    return deft_nn_linear_call(&r->head, deft_nn_norm_call(&r->last, x));
}

/* The mean loss over windows of the text that begin where starts, i64 [batch, 1], say. */
static deft_tensor *loss_at(const run *r, deft_tensor *starts)
{
    const int64_t rows = deft_dim(starts, 0) * r->o->time;
    deft_tensor *const place = deft_iota(r->cx, DEFT_SHAPE(r->o->time), 0);
    deft_tensor *const at = deft_add(starts, place);
    deft_tensor *const scores = network_call(r, deft_take(r->all, at, 0));
    deft_tensor *const next = deft_take(r->all, deft_add(at, 1), 0);
    return deft_cross_entropy(deft_reshape(scores, DEFT_SHAPE(rows, r->text->n_chars)),
                              deft_reshape(next, DEFT_SHAPE(rows)));
}

/* ---- training ---- */

static double rate_at(const options *o, int64_t step)
{
    return o->rate * deft_schedule_warm_up(step, o->steps / 10) *
           deft_schedule_cosine(step, o->steps, 0.1);
}

static deft_status train_step(run *r)
{
    const size_t n = deft_optim_n(r->adamw);
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const starts = deft_randint(r->cx, deft_nn_rng(r->nn), DEFT_SHAPE(r->o->batch, 1),
                                             DEFT_I64, 0, r->text->n_train - r->o->time - 1);
    deft_tensor *const loss = loss_at(r, starts);
    deft_grad(&loss, NULL, 1, deft_optim_parameters(r->adamw), n, NULL, r->grad);
    deft_clip_grad_norm(r->grad, n, 1.0, NULL);
    deft_optim_step(r->adamw, r->grad, rate_at(r->o, r->done));
    deft_assign(r->loss, loss);
    const deft_status st = deft_step_end(s);
    if (st == DEFT_OK) r->done++;
    return st;
}

/* Over evenly spaced windows of what is held out. */
static deft_status held_out_loss(run *r, float *out)
{
    const int64_t n = r->o->batch, room = r->text->n - r->text->n_train - r->o->time - 1;
    deft_nn_set_training(r->nn, false);
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const k = deft_iota(r->cx, DEFT_SHAPE(n, 1), 0);
    const deft_status st =
        deft_item(loss_at(r, deft_add(deft_mul(k, room / n), r->text->n_train)), out);
    const deft_status end = deft_scope_end(s);
    deft_nn_set_training(r->nn, true);
    return st != DEFT_OK ? st : end;
}

/* Trains until so many steps are done; curve[i] gets the loss of step i. */
static deft_status train(run *r, int64_t until, float *curve)
{
    const double start = now();
    double said = start;
    const int64_t first = r->done;
    while (r->done < until) {
        deft_status st = train_step(r);
        if (st == DEFT_OK) st = deft_item(r->loss, &curve[r->done - 1]);
        if (st != DEFT_OK) return st;
        const double t = now();
        if (t - said < 1 && r->done < until) continue;
        said = t;
        printf("\rstep %5lld of %lld  loss %.3f  %8.0f tokens/s", (long long)r->done,
               (long long)r->o->steps, (double)curve[r->done - 1],
               (double)((r->done - first) * r->o->batch * r->o->time) / (t - start));
        fflush(stdout);
    }
    printf("\n");
    return DEFT_OK;
}

/* ---- writing ---- */

/* One more character after the n that are there: drawn as often as the network expects it, by
 * adding noise to the scores and taking the best (Gumbel 1954). */
static deft_status next_char(run *r, const int32_t *window, int64_t n, int32_t *out)
{
    const int64_t time = r->o->time;
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const chars =
        deft_from(r->cx, DEFT_SHAPE(1, time), DEFT_I32, window, (size_t)time * sizeof *window);
    deft_tensor *const scores = deft_slice(network_call(r, chars), DEFT_AT(0), DEFT_AT(n - 1));
    deft_tensor *const u =
        deft_uniform(r->cx, deft_nn_rng(r->nn), deft_shape_get(scores), DEFT_F32, 1e-9, 1);
    deft_tensor *const noise = deft_neg(deft_log(deft_neg(deft_log(u))));
    deft_tensor *const best =
        deft_argmax(deft_add(deft_div(scores, r->o->temperature), noise), DEFT_ALL_AXES, 0);
    const deft_status st = deft_item(best, out);
    const deft_status end = deft_scope_end(s);
    return st != DEFT_OK ? st : end;
}

static deft_status write_text(run *r)
{
    const int64_t time = r->o->time;
    int32_t *const window = calloc((size_t)time, sizeof *window);
    int64_t n = 1; /* begins with a new line */
    deft_status st = window ? DEFT_OK : DEFT_E_MEMORY;
    if (window) window[0] = r->text->number['\n'];
    deft_nn_set_training(r->nn, false);
    for (int64_t i = 0; i < r->o->n_write && st == DEFT_OK; i++) {
        int32_t c = 0;
        st = next_char(r, window, n, &c);
        if (st != DEFT_OK) break;
        putchar(r->text->chars[c]);
        fflush(stdout);
        if (n == time) memmove(window, window + 1, (size_t)--n * sizeof *window);
        window[n++] = c;
    }
    putchar('\n');
    deft_nn_set_training(r->nn, true);
    free(window);
    return st;
}

/* ---- the whole story ---- */

static deft_status run_open(run *r, deft_runtime *rt, const options *o, const corpus *text)
{
    *r = (run){ .o = o, .text = text };
    const deft_ctx_options cx_options = { .size = sizeof cx_options,
                                          .numerics = o->strict ? DEFT_STRICT : DEFT_FAST };
    deft_status st = deft_ctx_create(rt, &cx_options, &r->cx);
    if (st != DEFT_OK) return st;
    const deft_nn_options nn_options = { .size = sizeof nn_options, .seed = (uint64_t)o->seed };
    st = deft_nn_create(r->cx, &nn_options, &r->nn);
    if (st != DEFT_OK) return st;
    const deft_scope s = deft_scope_begin(r->cx);
    network_init(r);
    r->all = deft_keep(deft_from(r->cx, DEFT_SHAPE(text->n), DEFT_U8, text->at, (size_t)text->n));
    r->loss = deft_keep(deft_zeros(r->cx, DEFT_SHAPE(), DEFT_F32));
    st = deft_scope_end(s);
    if (st == DEFT_OK) st = deft_optim_create(r->nn, NULL, &r->adamw);
    if (st != DEFT_OK) return st;
    r->grad = calloc(deft_optim_n(r->adamw), sizeof(deft_tensor *));
    return r->grad ? DEFT_OK : DEFT_E_MEMORY;
}

static void run_close(run *r)
{
    deft_optim_destroy(&r->adamw);
    deft_nn_destroy(&r->nn);
    deft_ctx_destroy(&r->cx);
    free(r->grad);
}

static deft_status compare(const run *a, const run *b, bool *equal)
{
    *equal = true;
    for (size_t i = 0; i < deft_nn_n_parameters(a->nn); i++) {
        deft_mapped ma, mb = { 0 };
        deft_status st = deft_map(deft_nn_parameter_at(a->nn, i), &ma);
        if (st == DEFT_OK) st = deft_map(deft_nn_parameter_at(b->nn, i), &mb);
        if (st == DEFT_OK) *equal = *equal && memcmp(ma.data, mb.data, ma.bytes) == 0;
        deft_unmap(&ma);
        deft_unmap(&mb);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

/* The same again from the checkpoint; 1 when it comes out otherwise. */
static int resume_and_compare(const run *whole, deft_runtime *rt, const char *path, float *curve)
{
    run again;
    bool equal = false;
    deft_status st = run_open(&again, rt, whole->o, whole->text);
    if (st == DEFT_OK) st = deft_nn_load(again.nn, path, DEFT_NN_ALL);
    if (st == DEFT_OK) st = train(&again, whole->done, curve);
    if (st == DEFT_OK) st = compare(whole, &again, &equal);
    if (st == DEFT_OK)
        printf("resumed half way: parameters %s\n", equal ? "equal, bit for bit" : "DIFFER");
    else
        fprintf(stderr, "gpt: %s\n", again.cx ? deft_message(again.cx) : "no context");
    run_close(&again);
    return !equal;
}

static bool parse_number(const char *name, const char *text, options *o)
{
    const struct {
        const char *name;
        int64_t *whole, least, most;
    } wholes[] = {
        { "--steps", &o->steps, 2, 1000000 },  { "--layers", &o->layers, 1, MAX_LAYERS },
        { "--width", &o->width, 1, 4096 },     { "--heads", &o->heads, 1, 256 },
        { "--time", &o->time, 2, 256 },        { "--batch", &o->batch, 1, 1024 },
        { "--write", &o->n_write, 0, 100000 }, { "--seed", &o->seed, 0, INT64_MAX },
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (strcmp(name, wholes[i].name) != 0) continue;
        *wholes[i].whole = strtoll(text, NULL, 10);
        return *wholes[i].whole >= wholes[i].least && *wholes[i].whole <= wholes[i].most;
    }
    if (!strcmp(name, "--rate")) return (o->rate = strtod(text, NULL)) > 0;
    if (!strcmp(name, "--temperature")) return (o->temperature = strtod(text, NULL)) > 0;
    if (!strcmp(name, "--drop")) return (o->drop = strtod(text, NULL)) >= 0 && o->drop < 1;
    if (!strcmp(name, "--strict")) return o->strict = atoi(text) != 0, true;
    if (!strcmp(name, "--check")) return o->check = atoi(text) != 0, true;
    return false;
}

static bool parse(int argc, char **argv, options *o)
{
    *o = (options){ .data = KJV_FILE,
                    .steps = 400,
                    .layers = 4,
                    .width = 128,
                    .heads = 4,
                    .time = 64,
                    .batch = 12,
                    .rate = 2e-3,
                    .seed = 1,
                    .n_write = 400,
                    .temperature = 0.8 };
    for (int i = 1; i < argc; i += 2) {
        const char *const name = argv[i], *const value = i + 1 < argc ? argv[i + 1] : NULL;
        const char **const text = !strcmp(name, "--data")         ? &o->data
                                  : !strcmp(name, "--checkpoint") ? &o->checkpoint
                                  : !strcmp(name, "--resume")     ? &o->resume
                                  : !strcmp(name, "--picture")    ? &o->picture
                                                                  : NULL;
        if (!value) return false;
        if (text) *text = value;
        if (!text && !parse_number(name, value, o)) return false;
    }
    return o->width % o->heads == 0;
}

static void report(const run *r, int64_t n_steps, float first, float last)
{
    deft_stats s;
    deft_stats_read(r->cx, &s, sizeof s);
    printf("%lld parameters; %lld plans, %.1f launches a step; loss %.3f -> %.3f (%.0f %%)\n",
           (long long)deft_nn_numel(r->nn, false), (long long)s.plans_built,
           (double)s.launches / (double)n_steps, (double)first, (double)last,
           100 * (double)last / (double)first);
}

/* The mean of the last few. */
static float level(const float *curve, int64_t n)
{
    const int64_t few = n < 10 ? n : 10;
    float sum = 0;
    for (int64_t i = n - few; i < n; i++) sum += curve[i];
    return sum / (float)few;
}

static deft_status learn(run *r, const char *half, float *curve)
{
    const int64_t steps = r->o->steps;
    float held_out = 0;
    deft_status st = r->o->resume ? deft_nn_load(r->nn, r->o->resume, DEFT_NN_ALL) : DEFT_OK;
    const int64_t from = r->done;
    for (int64_t i = 0; i < from && i < steps; i++) curve[i] = NAN;
    if (st == DEFT_OK && half) st = train(r, steps / 2, curve);
    if (st == DEFT_OK && half) st = deft_nn_save(r->nn, half, DEFT_NN_ALL);
    if (st == DEFT_OK) st = train(r, steps, curve);
    if (st == DEFT_OK && r->o->checkpoint) st = deft_nn_save(r->nn, r->o->checkpoint, DEFT_NN_ALL);
    if (st == DEFT_OK) st = held_out_loss(r, &held_out);
    if (st != DEFT_OK || from >= steps) return st;
    draw_curve(stdout, curve + from, (int)(steps - from), 64, 12);
    report(r, steps - from, curve[from], level(curve + from, steps - from));
    printf("loss on text it has not seen: %.3f\n\n", (double)held_out);
    return DEFT_OK;
}

int main(int argc, char **argv)
{
    options o;
    corpus text = { 0 };
    run r = { 0 };
    deft_runtime *rt = NULL;
    float *curve = NULL;
    int exit_code = 1;
    const char *const half = "gpt-half.safetensors";
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "gpt: the first comment of examples/gpt.c lists the options; width is a "
                        "multiple of heads\n");
        return 2;
    }
    if (!corpus_read(&text, o.data)) {
        fprintf(stderr, "gpt: %s: cannot be read, or is too short\n", o.data);
        goto done;
    }
    if (text.n - text.n_train < o.time + o.batch + 2) {
        fprintf(stderr, "gpt: %s: too short for windows of %lld\n", o.data, (long long)o.time);
        goto done;
    }
    curve = calloc((size_t)o.steps, sizeof *curve);
    if (!curve || deft_runtime_create(NULL, &rt) != DEFT_OK) {
        fprintf(stderr, "gpt: no runtime, or out of memory\n");
        goto done;
    }
    printf("%lld characters, %d different ones\n", (long long)text.n, text.n_chars);
    deft_status st = run_open(&r, rt, &o, &text);
    if (st == DEFT_OK) st = learn(&r, o.check ? half : NULL, curve);
    if (st == DEFT_OK) st = write_text(&r);
    if (st != DEFT_OK) {
        fprintf(stderr, "\ngpt: %s\n", r.cx ? deft_message(r.cx) : "no context");
        goto done;
    }
    if (o.picture && !ppm_write_curve(o.picture, curve, (int)o.steps, 640, 320)) {
        fprintf(stderr, "gpt: %s: cannot be written\n", o.picture);
        goto done;
    }
    exit_code = o.check ? resume_and_compare(&r, rt, half, curve) : 0;
done:
    if (o.check) remove(half);
    run_close(&r);
    deft_runtime_destroy(&rt);
    free(text.at);
    free(curve);
    return exit_code;
}
