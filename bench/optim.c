/* SPDX-License-Identifier: Apache-2.0
 *
 * What does the update of all parameters cost? AdamW over the 148 tensors of GPT-2 (Radford et al.
 * 2019), with gradients that are there: launches, and bytes a second against a copy of as many
 * bytes. It reads parameter, gradient and both means and writes all but the gradient: 28 bytes an
 * element.
 */
#include "bench.h"

#include "deft/nn.h"
#include "ref_copy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_PARAMETERS = 160, ELEMENT_BYTES = 28 };

/* width 768: GPT-2, 124,439,808 elements. */
typedef struct model {
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw;
    deft_tensor *grad[MAX_PARAMETERS];
    int64_t steps;
} model;

static void add(model *w, const char *name, deft_shape shape)
{
    const deft_init init = { DEFT_INIT_CONSTANT, 0.02, 0 };
    deft_nn_parameter(w->nn, name, shape, init);
}

/* A layer of a block: rows x columns and what is added; rows 0: a norm. */
static void add_layer(model *w, const char *name, int64_t rows, int64_t columns)
{
    deft_nn_push(w->nn, name);
    add(w, "weight", rows ? DEFT_SHAPE(rows, columns) : DEFT_SHAPE(columns));
    add(w, "bias", DEFT_SHAPE(columns));
    deft_nn_pop(w->nn);
}

static void open_model(model *w, deft_runtime *rt, int64_t width, int64_t n_tokens)
{
    deft_ctx *const cx = w->cx = bench_ctx(rt, DEFT_STRICT);
    bench_must(cx, deft_nn_create(cx, NULL, &w->nn), "optim");
    add(w, "wte", DEFT_SHAPE(n_tokens, width));
    add(w, "wpe", DEFT_SHAPE(1024, width));
    for (int i = 0; i < 12; i++) {
        char name[8];
        snprintf(name, sizeof name, "h.%d", i);
        deft_nn_push(w->nn, name);
        add_layer(w, "ln_1", 0, width);
        add_layer(w, "attn.c_attn", width, 3 * width);
        add_layer(w, "attn.c_proj", width, width);
        add_layer(w, "ln_2", 0, width);
        add_layer(w, "mlp.c_fc", width, 4 * width);
        add_layer(w, "mlp.c_proj", 4 * width, width);
        deft_nn_pop(w->nn);
    }
    add_layer(w, "ln_f", 0, width);
    bench_must(cx, deft_optim_create(w->nn, NULL, &w->adamw), "optim");
    for (size_t i = 0; i < deft_optim_n(w->adamw); i++) {
        const deft_shape shape = deft_shape_get(deft_nn_parameter_at(w->nn, i));
        w->grad[i] = deft_keep(deft_full(cx, shape, DEFT_F32, 1e-3));
        bench_must(cx, deft_eval(&w->grad[i], 1), "optim");
    }
}

static void close_model(model *w)
{
    for (size_t i = 0; i < deft_optim_n(w->adamw); i++) deft_drop(&w->grad[i]);
    deft_optim_destroy(&w->adamw);
    deft_nn_destroy(&w->nn);
    deft_ctx_destroy(&w->cx);
}

/* The rate is another one each time. */
static void update(void *user)
{
    model *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    deft_optim_step(w->adamw, w->grad, 1e-3 * deft_schedule_cosine(w->steps++, 1000, 0.1));
    bench_must(w->cx, deft_step_end(s), "optim");
}

/* ---- what is counted ---- */

static void count(bench *b, model *w, const char *label, double got, const char *unit,
                  const char *reference, double all, bench_goal kind, double goal)
{
    char text[64];
    snprintf(text, sizeof text, "AdamW, %lld M: %s",
             (long long)(deft_nn_numel(w->nn, true) / 1000000), label);
    if (bench_wants(b, text)) bench_row(b, text, got, unit, reference, all, kind, goal);
}

/* The second update: the first is planned and compiled. */
static void count_launches(bench *b, model *w)
{
    const deft_stats start = bench_stats(w->cx);
    update(w);
    const deft_stats before = bench_stats(w->cx);
    update(w);
    const deft_stats after = bench_stats(w->cx);
    count(b, w, "launches", (double)(after.launches - before.launches), "launches", "goal", 1,
          BENCH_VALUE_AT_MOST, 1);
    count(b, w, "results in place", (double)(after.donated - before.donated), "results", "all",
          3 * (double)deft_optim_n(w->adamw), BENCH_RATIO_AT_LEAST, 1);
    count(b, w, "most memory held", (double)after.peak_bytes / 1e6, "MB", "before it",
          (double)start.live_bytes / 1e6, BENCH_RATIO_AT_MOST, 1.001);
}

/* ---- copies ---- */

typedef void (*copy_fn)(void *to, const void *from, size_t size);

static void copy_libc(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

enum { MAX_THREADS = 64, LINE = 64 };

typedef struct copy {
    char *from, *to;
    size_t size; /* of either */
    uint32_t n_threads;
    copy_fn f;
} copy;

typedef struct share {
    const copy *c;
    uint32_t i;
} share;

static void *copy_share(void *user)
{
    const share *const s = user;
    const size_t lines = s->c->size / LINE, n = s->c->n_threads;
    const size_t begin = lines * s->i / n * LINE, end = lines * (s->i + 1) / n * LINE;
    s->c->f(s->c->to + begin, s->c->from + begin, end - begin);
    return NULL;
}

static void copy_all(const copy *c)
{
    pthread_t id[MAX_THREADS];
    share s[MAX_THREADS];
    for (uint32_t i = 0; i < c->n_threads; i++) {
        s[i] = (share){ c, i };
        if (i > 0 && pthread_create(&id[i], NULL, copy_share, &s[i]) != 0) exit(1);
    }
    copy_share(&s[0]);
    for (uint32_t i = 1; i < c->n_threads; i++) pthread_join(id[i], NULL);
}

/* The update and both copies in turn, against the faster copy. */
static void compare(bench *b, model *w, deft_runtime *rt)
{
    enum { MAX_ROUNDS = 15 };
    const double bytes = (double)ELEMENT_BYTES * (double)deft_nn_numel(w->nn, true);
    copy c = { .size = (size_t)bytes / 2 / LINE * LINE, .n_threads = deft_runtime_threads(rt) };
    if (c.n_threads > MAX_THREADS) c.n_threads = MAX_THREADS;
    c.from = bench_map(c.size);
    c.to = bench_map(c.size);
    const copy_fn copies[2] = { ref_copy_stream, copy_libc };
    const int rounds = b->quick ? 3 : MAX_ROUNDS;
    double t[3][MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double start = bench_now();
        update(w);
        t[2][i] = bench_now() - start;
        for (int k = 0; k < 2; k++) {
            c.f = copies[k];
            start = bench_now();
            copy_all(&c);
            t[k][i] = bench_now() - start;
        }
    }
    double s[3];
    for (int k = 0; k < 3; k++) s[k] = bench_median(t[k], (size_t)rounds);
    const double best = s[0] < s[1] ? s[0] : s[1];
    count(b, w, "read and written", bytes / s[2] / 1e9, "GB/s",
          s[0] < s[1] ? "streaming copy, GB/s" : "memcpy, GB/s", bytes / best / 1e9,
          BENCH_RATIO_AT_LEAST, 0.9);
    munmap(c.from, c.size);
    munmap(c.to, c.size);
}

void bench_optim(bench *b)
{
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_FULL, 0);
    model w = { 0 };
    open_model(&w, rt, b->quick ? 96 : 768, 50257);
    count_launches(b, &w);
    compare(b, &w, rt);
    close_model(&w);
    deft_runtime_destroy(&rt);
}
