/* SPDX-License-Identifier: Apache-2.0
 *
 * What does a bound on temporaries do to a training step? Strict steps of GPT-2 on 4 windows of 256
 * tokens (--quick: of 4 layers, 256 wide, on 8 windows of 64), with dropout, clipping and AdamW:
 * the most value memory beside what lived before the step, as the allocator counts it, against the
 * bound; whether losses and parameters after three steps have the same bits as without one; and
 * whether lower bounds ever take more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../examples/transformer.h"
#include "bench.h"

enum { MAX_PARAMETERS = 256, STEPS = 3, SWEEP = 10 };
static const double mib = 1 << 20;

typedef struct model {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_nn *nn;
    deft_optim *adamw;
    transformer net;
    deft_tensor *tokens, *next, *loss;
    deft_tensor *grad[MAX_PARAMETERS];
} model;

static void open_model(model *m, bool quick)
{
    transformer_options o = transformer_gpt2();
    deft_shape s = DEFT_SHAPE(4, 256);
    if (quick) {
        o = (transformer_options){ 1024, 64, 4, 256, 4, .is_tied = true };
        s = DEFT_SHAPE(8, 64);
    }
    o.drop = 0.1;
    memset(m, 0, sizeof *m);
    m->rt = bench_runtime(0, DEFT_TIER_FULL, 0);
    m->cx = bench_ctx(m->rt, DEFT_STRICT);
    bench_must(m->cx, deft_nn_create(m->cx, NULL, &m->nn), "bound");
    const deft_scope scope = deft_scope_begin(m->cx);
    transformer_init(&m->net, m->nn, &o);
    deft_rng *const rng = deft_nn_rng(m->nn);
    m->tokens = deft_keep(deft_randint(m->cx, rng, s, DEFT_I64, 0, o.n_tokens));
    m->next = deft_keep(deft_randint(m->cx, rng, s, DEFT_I64, 0, o.n_tokens));
    m->loss = deft_keep(deft_zeros(m->cx, DEFT_SHAPE(), DEFT_F32));
    bench_must(m->cx, deft_scope_end(scope), "bound");
    bench_must(m->cx, deft_optim_create(m->nn, NULL, &m->adamw), "bound");
    if (deft_optim_n(m->adamw) > MAX_PARAMETERS) exit(1);
}

static void close_model(model *m)
{
    deft_optim_destroy(&m->adamw);
    deft_nn_destroy(&m->nn);
    deft_ctx_destroy(&m->cx);
    deft_runtime_destroy(&m->rt);
}

static deft_scope record(model *m, uint64_t bound)
{
    const deft_step_options o = { .size = sizeof o, .max_temporary_bytes = bound };
    const size_t n = deft_optim_n(m->adamw);
    const deft_scope s = deft_step_begin_with(m->cx, &o);
    deft_tensor *const loss = transformer_loss(&m->net, m->tokens, m->next);
    deft_grad(&loss, NULL, 1, deft_optim_parameters(m->adamw), n, NULL, m->grad);
    deft_clip_grad_norm(m->grad, n, 1.0, NULL);
    deft_optim_step(m->adamw, m->grad, 1e-3);
    deft_assign(m->loss, loss);
    return s;
}

/* Plans a step, and takes it back. False: the bound cannot be met. */
static bool plan(model *m, uint64_t bound, deft_step_memory *out)
{
    deft_rng *const rng = deft_nn_rng(m->nn);
    const deft_rng saved = *rng;
    const int64_t steps = deft_optim_steps(m->adamw);
    const deft_scope s = record(m, bound);
    const deft_status st = deft_step_memory_read(s, out, sizeof *out);
    if (st != DEFT_OK && st != DEFT_E_MEMORY) bench_must(m->cx, st, "bound");
    deft_step_abort(s);
    deft_clear(m->cx);
    *rng = saved;
    deft_optim_set_steps(m->adamw, steps);
    return st == DEFT_OK;
}

/* ---- steps ---- */

typedef struct outcome {
    double seconds, peak; /* of the last step; bytes beside what lived before it */
    float *values;        /* owned: the loss and all parameters */
    size_t n;
} outcome;

static outcome run(uint64_t bound, bool quick)
{
    model m;
    outcome out = { 0 };
    open_model(&m, quick);
    for (int i = 0; i < STEPS; i++) {
        const double before = (double)bench_stats(m.cx).live_bytes, start = bench_now();
        bench_must(m.cx, deft_step_end(record(&m, bound)), "bound");
        out.seconds = bench_now() - start;
        /* The peak is that of the runtime's life, which here is highest within the first step. */
        if (i == 0) out.peak = (double)bench_stats(m.cx).peak_bytes - before;
    }
    out.n = 1 + (size_t)deft_nn_numel(m.nn, true);
    out.values = malloc(out.n * sizeof *out.values);
    if (!out.values) exit(1);
    bench_must(m.cx, deft_item(m.loss, &out.values[0]), "bound");
    float *at = out.values + 1;
    for (size_t i = 0; i < deft_nn_n_parameters(m.nn); i++) {
        deft_tensor *const p = deft_nn_parameter_at(m.nn, i);
        const size_t n = (size_t)deft_numel(p);
        bench_must(m.cx, deft_read(p, DEFT_F32, at, n * sizeof *at), "bound");
        at += n;
    }
    close_model(&m);
    return out;
}

static double apart(const outcome *a, const outcome *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) n += memcmp(&a->values[i], &b->values[i], sizeof(float)) != 0;
    return (double)n;
}

/* ---- rows ---- */

static void one_bound(bench *b, const outcome *free_of_it, double whole, int percent)
{
    char label[64];
    const uint64_t bound = (uint64_t)(whole * percent / 100);
    outcome o = run(bound, b->quick);
    snprintf(label, sizeof label, "%d %%, peak beside what was there", percent);
    bench_row(b, label, o.peak / mib, "MiB", "the bound", (double)bound / mib, BENCH_RATIO_AT_MOST,
              1);
    snprintf(label, sizeof label, "%d %%, values with other bits", percent);
    bench_row(b, label, apart(&o, free_of_it), "", "values", (double)o.n, BENCH_VALUE_AT_MOST, 0);
    snprintf(label, sizeof label, "%d %%, step", percent);
    bench_row(b, label, o.seconds * 1e3, "ms", "without a bound", free_of_it->seconds * 1e3,
              BENCH_RATIO_AT_MOST, 1.3);
    free(o.values);
}

/* Bounds from 95 % down, planned: how many take more memory, or do less again, than the one above.
 */
static void sweep(bench *b, const deft_step_memory *whole)
{
    model m;
    deft_step_memory last = *whole;
    double n = 0, met = 0;
    open_model(&m, b->quick);
    for (int i = 0; i < SWEEP; i++) {
        deft_step_memory now;
        const double share = 0.95 - 0.07 * i;
        if (!plan(&m, (uint64_t)((double)whole->temporary_bytes * share), &now)) continue;
        met++;
        n += now.temporary_bytes > last.temporary_bytes || now.repeated < last.repeated;
        last = now;
    }
    bench_row(b, "bounds that took more than a higher one", n, "", "bounds that were met", met,
              BENCH_VALUE_AT_MOST, 0);
    bench_row(b, "least that was met", (double)last.temporary_bytes / mib, "MiB", "without a bound",
              (double)whole->temporary_bytes / mib, BENCH_RATIO_AT_MOST, 0.7);
    close_model(&m);
}

void bench_bound(bench *b)
{
    model m;
    deft_step_memory whole;
    open_model(&m, b->quick);
    if (!plan(&m, 0, &whole)) bench_must(m.cx, DEFT_E_MEMORY, "bound");
    close_model(&m);
    sweep(b, &whole);
    outcome o = run(0, b->quick);
    bench_row(b, "no bound, peak beside what was there", o.peak / mib, "MiB", "as planned",
              (double)whole.temporary_bytes / mib, BENCH_RATIO_AT_MOST, 1.05);
    one_bound(b, &o, (double)whole.temporary_bytes, 70);
    one_bound(b, &o, (double)whole.temporary_bytes, 55);
    free(o.values);
}
