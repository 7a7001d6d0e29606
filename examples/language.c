/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing windows of the text, forward pass, backward pass, clipping and AdamW are one step; all
 * steps replay one plan, and are recorded again at each: a record that stands where it stood costs
 * some nanoseconds.
 */
#include "language.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "draw.h"
#include "ppm.h"
#include "progress.h"

#ifndef KJV_FILE
#define KJV_FILE "examples/data/kjv.txt"
#endif

enum { HELD_OUT = 16 /* one part in so many is not learnt from */ };

/* Everything one training needs. */
typedef struct run {
    const language *l;
    const language_options *o;
    const language_text *text;
    int64_t n_train; /* tokens that are learnt from */
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw;
    transformer net;
    deft_tensor *all;   /* the text, i32 [n] */
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

char *language_file(const char *path, size_t *size)
{
    const size_t most = (size_t)16 << 20;
    FILE *const f = fopen(path, "rb");
    char *const at = f ? malloc(most + 1) : NULL;
    *size = at ? fread(at, 1, most, f) : 0;
    if (at) at[*size] = 0;
    if (f) fclose(f);
    return at;
}

/* ---- training ---- */

/* The mean loss over windows of the text that begin where starts, i64 [batch, 1], say. */
static deft_tensor *loss_at(const run *r, deft_tensor *starts)
{
    deft_tensor *const place = deft_iota(r->cx, DEFT_SHAPE(r->o->length), 0);
    deft_tensor *const at = deft_add(starts, place);
    return transformer_loss(&r->net, deft_take(r->all, at, 0),
                            deft_take(r->all, deft_add(at, 1), 0));
}

static double rate_at(const language_options *o, int64_t step)
{
    return o->rate * deft_schedule_warm_up(step, o->steps / 10) *
           deft_schedule_cosine(step, o->steps, 0.1);
}

static void print_memory(const run *r, deft_scope s)
{
    deft_step_memory m;
    if (r->o->memory == 0 || deft_step_memory_read(s, &m, sizeof m) != DEFT_OK) return;
    printf("%.1f MB beside parameters, %llu kernels and products done again\n",
           (double)m.temporary_bytes / 1048576, (unsigned long long)m.repeated);
}

static deft_status train_step(run *r)
{
    const size_t n = deft_optim_n(r->adamw);
    const deft_step_options bound = { .size = sizeof bound,
                                      .max_temporary_bytes = (uint64_t)r->o->memory << 20 };
    const deft_scope s = deft_step_begin_with(r->cx, &bound);
    deft_tensor *const starts = deft_randint(r->cx, deft_nn_rng(r->nn), DEFT_SHAPE(r->o->batch, 1),
                                             DEFT_I64, 0, r->n_train - r->o->length - 1);
    deft_tensor *const loss = loss_at(r, starts);
    deft_grad(&loss, NULL, 1, deft_optim_parameters(r->adamw), n, NULL, r->grad);
    deft_clip_grad_norm(r->grad, n, 1.0, NULL);
    deft_optim_step(r->adamw, r->grad, rate_at(r->o, r->done));
    deft_assign(r->loss, loss);
    if (r->done == 0) print_memory(r, s);
    const deft_status st = deft_step_end(s);
    if (st == DEFT_OK) r->done++;
    return st;
}

/* Over evenly spaced windows of what is held out. */
static deft_status held_out_loss(run *r, float *out)
{
    const int64_t n = r->o->batch, room = r->text->n - r->n_train - r->o->length - 1;
    deft_nn_set_training(r->nn, false);
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const k = deft_iota(r->cx, DEFT_SHAPE(n, 1), 0);
    const deft_status st = deft_item(loss_at(r, deft_add(deft_mul(k, room / n), r->n_train)), out);
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
        progress_show(r->done >= until, "step %5lld of %lld  loss %.3f  %8.0f tokens/s",
                      (long long)r->done, (long long)r->o->steps, (double)curve[r->done - 1],
                      (double)((r->done - first) * r->o->batch * r->o->length) / (t - start));
    }
    printf("\n");
    return DEFT_OK;
}

/* ---- writing ---- */

/* One more token after the n that are there: drawn as often as the network expects it, by
 * adding noise to the scores and taking the best (Gumbel 1954). */
static deft_status next_token(run *r, const int32_t *window, int64_t n, int32_t *out)
{
    const int64_t length = r->o->length;
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const tokens =
        deft_from(r->cx, DEFT_SHAPE(1, length), DEFT_I32, window, (size_t)length * sizeof *window);
    deft_tensor *const scores =
        deft_slice(transformer_call(&r->net, tokens), DEFT_AT(0), DEFT_AT(n - 1));
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
    const int64_t length = r->o->length;
    int32_t *const window = calloc((size_t)length, sizeof *window);
    int64_t n = 1;
    deft_status st = window ? DEFT_OK : DEFT_E_MEMORY;
    if (window) window[0] = r->text->first;
    deft_nn_set_training(r->nn, false);
    for (int64_t i = 0; i < r->o->n_write && st == DEFT_OK; i++) {
        int32_t token = 0;
        st = next_token(r, window, n, &token);
        if (st != DEFT_OK) break;
        fputs(r->text->spelling[token], stdout);
        fflush(stdout);
        if (n == length) memmove(window, window + 1, (size_t)--n * sizeof *window);
        window[n++] = token;
    }
    putchar('\n');
    deft_nn_set_training(r->nn, true);
    free(window);
    return st;
}

/* ---- the whole story ---- */

static deft_status run_open(run *r, deft_runtime *rt, const language *l, const language_options *o,
                            const language_text *text)
{
    *r = (run){ .l = l, .o = o, .text = text, .n_train = text->n - text->n / HELD_OUT };
    const deft_ctx_options cx_options = { .size = sizeof cx_options,
                                          .numerics = o->strict ? DEFT_STRICT : DEFT_FAST };
    deft_status st = deft_ctx_create(rt, &cx_options, &r->cx);
    if (st != DEFT_OK) return st;
    const deft_nn_options nn_options = { .size = sizeof nn_options, .seed = (uint64_t)o->seed };
    st = deft_nn_create(r->cx, &nn_options, &r->nn);
    if (st != DEFT_OK) return st;
    const deft_scope s = deft_scope_begin(r->cx);
    if (transformer_init(&r->net, r->nn, &o->net)) deft_nn_number(r->nn, "steps", &r->done);
    r->all = deft_keep(deft_from(r->cx, DEFT_SHAPE(text->n), DEFT_I32, text->at,
                                 (size_t)text->n * sizeof *text->at));
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
    deft_status st = run_open(&again, rt, whole->l, whole->o, whole->text);
    if (st == DEFT_OK) st = deft_nn_load(again.nn, path, DEFT_NN_ALL);
    if (st == DEFT_OK) st = train(&again, whole->done, curve);
    if (st == DEFT_OK) st = compare(whole, &again, &equal);
    if (st == DEFT_OK)
        printf("resumed half way: parameters %s\n", equal ? "equal, bit for bit" : "DIFFER");
    else
        fprintf(stderr, "%s: %s\n", whole->l->name,
                again.cx ? deft_message(again.cx) : "no context");
    run_close(&again);
    return !equal;
}

static bool parse_number(const char *name, const char *text, language_options *o)
{
    const struct {
        const char *name;
        int64_t *whole, least, most;
    } wholes[] = {
        { "--steps", &o->steps, 2, 1000000 },
        { "--layers", &o->net.layers, 1, TRANSFORMER_MAX_LAYERS },
        { "--width", &o->net.width, 1, 4096 },
        { "--heads", &o->net.heads, 1, 256 },
        { "--tokens", &o->net.n_tokens, 2, 1000000 },
        { "--length", &o->length, 2, 1024 },
        { "--batch", &o->batch, 1, 1024 },
        { "--write", &o->n_write, 0, 100000 },
        { "--seed", &o->seed, 0, INT64_MAX },
        { "--memory", &o->memory, 0, 1000000 },
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (strcmp(name, wholes[i].name) != 0) continue;
        *wholes[i].whole = strtoll(text, NULL, 10);
        return *wholes[i].whole >= wholes[i].least && *wholes[i].whole <= wholes[i].most;
    }
    if (!strcmp(name, "--rate")) return (o->rate = strtod(text, NULL)) > 0;
    if (!strcmp(name, "--temperature")) return (o->temperature = strtod(text, NULL)) > 0;
    if (!strcmp(name, "--drop")) return (o->net.drop = strtod(text, NULL)) >= 0 && o->net.drop < 1;
    if (!strcmp(name, "--strict")) return o->strict = atoi(text) != 0, true;
    if (!strcmp(name, "--check")) return o->check = atoi(text) != 0, true;
    return false;
}

static void print_usage(FILE *out, const char *program)
{
    fprintf(out, "usage: %s [OPTION VALUE]...\n", program);
    fputs("  --data FILE        the text\n"
          "  --steps N          training steps\n"
          "  --batch N          windows of text in each step\n"
          "  --length N         tokens of a window\n"
          "  --layers N         layers of the network\n"
          "  --width N          elements of a token's vector, a multiple of --heads\n"
          "  --heads N          attention heads\n"
          "  --tokens N         rows of the token table, where the text does not decide (gpt2)\n"
          "  --rate R           learning rate of AdamW\n"
          "  --drop P           probability of dropout, 0 <= P < 1\n"
          "  --seed N           seed of all random numbers\n"
          "  --write N          tokens to write at the end\n"
          "  --temperature T    randomness of the written text, above 0\n"
          "  --checkpoint FILE  writes the state to FILE at the end\n"
          "  --resume FILE      goes on from a state written by --checkpoint\n"
          "  --picture FILE     draws the losses as a curve (netpbm)\n"
          "  --strict 1         strict numerics\n"
          "  --memory MB        limits the temporaries of a step; what is not kept is computed\n"
          "                     again (docs/memory.md)\n"
          "  --check 1          writes a checkpoint half way, resumes from it, and compares every\n"
          "                     parameter bit by bit\n",
          out);
}

static bool parse(int argc, char **argv, language_options *o)
{
    if (!o->data) o->data = KJV_FILE;
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
    if (o->net.length < o->length) o->net.length = o->length;
    return o->net.width % o->net.heads == 0;
}

static void report(const run *r, int64_t n_steps, float first, float last)
{
    deft_stats s;
    deft_stats_read(r->cx, &s, sizeof s);
    printf("%lld plans, %.1f launches a step; loss %.3f -> %.3f (%.0f %%)\n",
           (long long)s.plans_built, (double)s.launches / (double)n_steps, (double)first,
           (double)last, 100 * (double)last / (double)first);
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

int language_main(const language *l, int argc, char **argv)
{
    language_options o = l->defaults;
    language_text text = { 0 };
    run r = { 0 };
    deft_runtime *rt = NULL;
    float *curve = NULL;
    int exit_code = 1;
    char half[64];
    snprintf(half, sizeof half, "%s-half.safetensors", l->name);
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        print_usage(stdout, l->name);
        return 0;
    }
    if (!parse(argc, argv, &o)) {
        print_usage(stderr, l->name);
        return 2;
    }
    if (!l->read(&text, o.data, &o.net.n_tokens) || text.n / HELD_OUT < o.length + o.batch + 2) {
        fprintf(stderr, "%s: %s: cannot be read, or is too short\n", l->name, o.data);
        goto done;
    }
    curve = calloc((size_t)o.steps, sizeof *curve);
    if (!curve || deft_runtime_create(NULL, &rt) != DEFT_OK) {
        fprintf(stderr, "%s: no runtime, or out of memory\n", l->name);
        goto done;
    }
    deft_status st = run_open(&r, rt, l, &o, &text);
    if (st == DEFT_OK)
        printf("%lld tokens, %lld different ones; %lld parameters\n", (long long)text.n,
               (long long)text.n_spellings, (long long)deft_nn_numel(r.nn, true));
    if (st == DEFT_OK) st = learn(&r, o.check ? half : NULL, curve);
    if (st == DEFT_OK) st = write_text(&r);
    if (st != DEFT_OK) {
        fprintf(stderr, "\n%s: %s\n", l->name, r.cx ? deft_message(r.cx) : "no context");
        goto done;
    }
    if (o.picture && !ppm_write_curve(o.picture, curve, (int)o.steps, 640, 320)) {
        fprintf(stderr, "%s: %s: cannot be written\n", l->name, o.picture);
        goto done;
    }
    exit_code = o.check ? resume_and_compare(&r, rt, half, curve) : 0;
done:
    if (o.check) remove(half);
    run_close(&r);
    deft_runtime_destroy(&rt);
    free(text.at);
    free(text.spelling);
    free(text.letters);
    free(curve);
    return exit_code;
}
