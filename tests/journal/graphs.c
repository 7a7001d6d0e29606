/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose context replays graphs on the stand-in GPU (cuda/standin/standin.h, through the
 * environment): steps of two cuts at two lengths, a value kept now and then, a loop and a
 * work every few steps. What deft_replay_read counts is printed for run_journal.
 */
#include <stdio.h>
#include <stdlib.h>

#include "deft/deft.h"

enum { N_STEPS = 26, WIDTH = 24 };

static void need(deft_ctx *cx, deft_status st)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "%s: %s\n", deft_status_text(st), deft_message(cx));
    exit(1);
}

static double mean_of(deft_ctx *cx, deft_tensor *t)
{
    double out = 0;
    need(cx, deft_read(deft_mean(t, DEFT_ALL_AXES, 0), DEFT_F64, &out, sizeof out));
    return out;
}

static void train(deft_ctx *cx, deft_tensor *w, int step, deft_tensor **kept)
{
    static float data[2 * WIDTH * WIDTH];
    const int64_t n = step / 2 % 2 ? WIDTH : 2 * WIDTH;
    for (int64_t i = 0; i < n * WIDTH; i++) data[i] = (float)((i * 7 + step) % 13) / 8;
    const deft_scope s = deft_step_begin(cx);
    deft_tensor *const x =
        deft_from(cx, DEFT_SHAPE(n, WIDTH), DEFT_F32, data, (size_t)(n * WIDTH) * sizeof *data);
    deft_tensor *const y = deft_tanh(deft_mul(x, w));
    const double mean = mean_of(cx, y);
    deft_assign(w, deft_sub(w, deft_mul(deft_mean(y, DEFT_AXES(0), 0), 0.01 * mean)));
    if (step % 5 == 0) {
        deft_drop(kept);
        *kept = deft_keep(deft_exp(y));
    }
    need(cx, deft_step_end(s));
}

static deft_status soften(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_softmax(in[0], 0);
    return DEFT_OK;
}

/* Work of the program's that puts nothing in. */
static deft_status nothing(void *stream, const void *const *in, void *const *out, void *user)
{
    (void)stream, (void)in, (void)out, (void)user;
    return DEFT_OK;
}

/* A loop, whose iterations are runs of a plan within a plan; and a work. */
static void evaluate(deft_ctx *cx, deft_tensor *w)
{
    deft_tensor *out = NULL;
    const deft_scope s = deft_step_begin(cx);
    deft_tensor *const init = deft_square(w);
    if (!deft_scan(cx, soften, NULL, &init, 1, NULL, 0, 3, 0, &out)) need(cx, deft_error(cx));
    const deft_work work = { .size = sizeof work, .fn = nothing, .key = 1 };
    need(cx, deft_device_work(cx, &work, &out, 1, NULL, NULL, 0));
    (void)mean_of(cx, out);
    need(cx, deft_step_end(s));
}

static void tell_counts(deft_ctx *cx)
{
    deft_replay_stats s;
    need(cx, deft_replay_read(cx, DEFT_CUDA(0), &s, sizeof s));
    const struct {
        const char *name;
        uint64_t n;
    } all[] = {
        { "runs", s.runs },         { "plain", s.plain },   { "recorded", s.recorded },
        { "replayed", s.replayed }, { "placed", s.placed }, { "reshaped", s.reshaped },
        { "updates", s.updates },   { "graphs", s.graphs }, { "pool_bytes", s.pool_bytes }
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        printf("%s=%llu\n", all[i].name, (unsigned long long)all[i].n);
}

int main(void)
{
    const deft_ctx_options o = { .size = sizeof o,
                                 .device = DEFT_CUDA(0),
                                 .replay = DEFT_REPLAY_GRAPHS };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    if (deft_runtime_create(NULL, &rt) != DEFT_OK || deft_ctx_create(rt, &o, &cx) != DEFT_OK)
        return 1;
    deft_tensor *w = deft_keep(deft_full(cx, DEFT_SHAPE(WIDTH), DEFT_F32, 0.5)), *kept = NULL;
    for (int step = 0; step < N_STEPS; step++) {
        train(cx, w, step, &kept);
        if (step % 4 == 3) evaluate(cx, w);
    }
    tell_counts(cx);
    deft_drop(&kept);
    deft_drop(&w);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return 0;
}
