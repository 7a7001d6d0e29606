/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole programs with every allocation failing in turn (world.h): steps of several kinds, reads,
 * and the making of runtimes and contexts. With the argument "arenas" (arenas.c) what is asked of
 * an arena fails, and nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "support/budget.h"
#include "world.h"

static deft_status adam(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *p = w->p[0], *m = w->p[1], *v = w->p[2];
    deft_tensor *g =
        deft_sub(deft_softmax(deft_mul(p, w->x), -1), deft_one_hot(w->labels, N / 4, DEFT_F32));
    deft_assign(m, deft_lerp(m, g, 0.1));
    deft_assign(v, deft_lerp(v, deft_square(g), 0.001));
    deft_assign(p, deft_sub(p, deft_mul(deft_div(m, deft_add(deft_sqrt(v), 1e-8)), 0.01)));
    return deft_step_end(s);
}

static deft_status views(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *c = deft_slice(w->p[0], DEFT_R(1, -1), DEFT_R(1, -1));
    deft_assign(c, deft_mul(deft_add(c, deft_slice(w->p[0], DEFT_R(0, -2), DEFT_R(1, -1))), 0.5));
    deft_assign(deft_slice(w->p[1], DEFT_AT(0)), 1.0);
    deft_tensor *both[2] = { w->p[1], deft_t(deft_reshape(w->p[0], DEFT_SHAPE(N / 4, 4))) };
    deft_assign(w->p[2], deft_slice(deft_concat(both, 2, 0), DEFT_R(2, 6)));
    return deft_step_end(s);
}

static deft_status product(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *y = deft_relu(deft_add(deft_matmul(w->p[0], deft_t(w->p[1])), 1));
    deft_assign(w->p[2], deft_matmul(y, w->p[2]));
    deft_assign(w->p[0], deft_add(w->p[0], deft_mean(y, DEFT_ALL_AXES, 0)));
    return deft_step_end(s);
}

static deft_status wrapped(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *out =
        deft_wrap_mut(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, w->target, sizeof w->target, NULL);
    deft_assign(out, deft_add(w->p[0], 1));
    deft_assign(w->p[1], deft_add(w->p[1], 1));
    return deft_step_end(s);
}

static deft_status reads(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    float out[N], one;
    char text[256];
    deft_tensor *r = deft_normal(w->cx, &w->rng, DEFT_SHAPE(4, N / 4), DEFT_F32, 0, 1);
    deft_status st = deft_read(deft_add(r, w->x), DEFT_F32, out, sizeof out);
    if (st == DEFT_OK) st = deft_item(deft_max(r, DEFT_ALL_AXES, 0), &one);
    if (st == DEFT_OK) st = deft_format(deft_cumsum(w->x, 1), text, sizeof text, NULL);
    if (st == DEFT_OK)
        st = deft_item(deft_sum(deft_take(w->x, w->labels, 0), DEFT_ALL_AXES, 0), &one);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    const deft_status end = deft_scope_end(s);
    /* A read of NULL cannot name its context: the scope's end delivers the cause. */
    return end != DEFT_OK ? end : st;
}

/* max_nodes is reached in the middle: what earlier cuts of the step computed is undone too. */
static deft_status forced_cuts(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *out =
        deft_wrap_mut(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, w->target, sizeof w->target, NULL);
    deft_assign(out, deft_mul(w->x, 2));
    for (int i = 0; i < 12; i++) {
        deft_tensor *const p = w->p[i % N_PARAMS];
        deft_assign(p, deft_add(p, deft_slice(w->x, DEFT_R(i % 4, i % 4 + 1))));
        deft_assign(out, deft_sub(out, p));
    }
    return deft_step_end(s);
}

/* Cut by a bound on what records alone hold, which is then forgotten; of what stays, extents too.
 */
static deft_status forgetting(world *w)
{
    const float v[4] = { 1, 2, 3, 4 };
    const deft_scope s = deft_step_begin(w->cx);
    for (int i = 0; i < 3; i++) {
        const deft_scope one = deft_scope_begin(w->cx);
        deft_tensor *y = deft_from(w->cx, DEFT_SHAPE(4, 1), DEFT_F32, v, sizeof v);
        for (int k = 0; k < 3; k++) y = deft_sin(y);
        deft_assign(w->p[i], deft_mul(w->p[i], y));
        (void)deft_neg(
            deft_transpose(deft_from(w->cx, DEFT_SHAPE(2, 2), DEFT_F32, v, sizeof v), 0, 1));
        const deft_status st = deft_scope_end(one);
        if (st != DEFT_OK) {
            deft_step_abort(s);
            return st;
        }
    }
    return deft_step_end(s);
}

/* Another context of the runtime, and plans of one key that only guards tell apart. */
static deft_status two_contexts(world *w)
{
    float out[2][N], v[N];
    deft_ctx *cx = NULL;
    deft_status st = DEFT_OK;
    for (int j = 0; j < N; j++) v[j] = (float)j;
    for (int k = 0; k < 2 && st == DEFT_OK; k++) {
        st = deft_ctx_create(w->rt, NULL, &cx);
        w->silent = st != DEFT_OK;
        for (int i = 0; i < 2 && st == DEFT_OK; i++) {
            deft_tensor *a = deft_full(cx, DEFT_SHAPE(N), DEFT_F32, 3);
            deft_tensor *b =
                deft_from(cx, DEFT_SHAPE(i ? 1 : N), DEFT_F32, v, (i ? 1 : N) * sizeof *v);
            deft_tensor *sum = deft_add(a, b);
            st = deft_error(cx);
            if (st == DEFT_OK) st = deft_read(sum, DEFT_F32, out[i], sizeof out[i]);
            w->silent = st != DEFT_OK && deft_message(cx)[0]; /* the sentence is that context's */
            deft_clear(cx);
        }
        deft_ctx_destroy(&cx);
    }
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

static deft_status nested(world *w)
{
    deft_scope s[12];
    deft_tensor *t = w->x;
    for (int i = 0; i < 12; i++) {
        s[i] = deft_scope_begin(w->cx);
        t = deft_add(t, w->p[i % N_PARAMS]);
    }
    deft_status st = DEFT_OK;
    for (int i = 12; i-- > 6;) {
        t = deft_scope_return(s[i], t);
        if (st == DEFT_OK) st = deft_error(w->cx);
    }
    deft_tensor *kept = deft_keep(deft_exp(t));
    const deft_status end = deft_scope_end(s[0]);
    float out[N];
    if (st == DEFT_OK) st = end;
    if (st == DEFT_OK) st = deft_read(kept, DEFT_F32, out, sizeof out);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    deft_drop(&kept);
    return st;
}

/* Handles of a scope, until it needs room for more of them; each is a copy of one from outside. */
static deft_status returned(world *w)
{
    float out[N];
    const deft_scope outer = deft_scope_begin(w->cx);
    deft_status st = DEFT_OK;
    deft_tensor *t = w->x;
    for (int i = 0; i < 2200 && st == DEFT_OK; i++) {
        t = deft_scope_return(deft_scope_begin(w->cx), i % 2 ? t : w->x);
        st = deft_error(w->cx);
    }
    if (st == DEFT_OK) st = deft_read(t, DEFT_F32, out, sizeof out);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    const deft_status end = deft_scope_end(outer);
    return st == DEFT_OK ? end : st;
}

static deft_status submitted(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *out =
        deft_wrap_mut(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, w->target, sizeof w->target, NULL);
    deft_assign(out, deft_add(w->p[0], 1));
    for (int i = 0; i < 12; i++) {
        deft_tensor *const p = w->p[i % N_PARAMS];
        deft_assign(p, deft_add(p, deft_slice(w->x, DEFT_R(i % 4, i % 4 + 1))));
    }
    const deft_status st = deft_step_submit(s);
    return st == DEFT_OK ? deft_wait(w->cx) : st;
}

/* What is assigned and handed out while it runs. Nothing else changes: steps may have succeeded
 * when a later call fails. */
static deft_status submitted_inside(world *w)
{
    float out[N], v[N] = { 0 };
    const deft_scope outer = deft_scope_begin(w->cx);
    deft_scope inner = outer;
    deft_tensor *t[16], *kept = NULL;
    deft_status st = DEFT_OK;
    for (int i = 0; i < 16; i++) {
        if (i == 15) inner = deft_scope_begin(w->cx);
        t[i] = deft_from(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, v, sizeof v);
    }
    for (int i = 0; i < 2 && st == DEFT_OK; i++) {
        const deft_scope s = deft_step_begin(w->cx);
        deft_assign(t[i], deft_add(t[i + 1], w->x));
        if (i == 1) kept = deft_keep(deft_exp(t[i]));
        st = deft_step_submit(s);
    }
    for (int i = 0; i < 16; i++) deft_assign(t[i], deft_sub(t[(i + 1) % 16], w->x));
    deft_tensor *last_kept = deft_keep(t[15]), *all = deft_scope_return(inner, t[15]);
    deft_assign(all, deft_add(all, kept));
    if (st == DEFT_OK) st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_read(all, DEFT_F32, out, sizeof out);
    deft_drop(&kept);
    deft_drop(&last_kept);
    const deft_status end = deft_scope_end(outer), last = deft_wait(w->cx);
    if (st == DEFT_OK) st = end != DEFT_OK ? end : last;
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

/* ---- captures ---- */

typedef struct captured {
    world *w;
    bool assigns;
} captured;

static deft_status captured_fn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const captured *const c = user;
    world *const w = c->w;
    (void)n_in, (void)n_out;
    deft_tensor *const y = deft_add(deft_mul(in[0], deft_param_f(cx, "rate")), in[1]);
    if (c->assigns) {
        deft_assign(w->p[0], y);
        deft_assign(deft_slice(w->p[2], DEFT_AT(1), DEFT_FULL), deft_sum(y, DEFT_AXES(0), 0));
    }
    out[0] = deft_add(deft_uniform(cx, &w->rng, DEFT_SHAPE(4, N / 4), DEFT_F32, 0, 1), y);
    return DEFT_OK;
}

static deft_status capture(world *w, int calls, bool assigns)
{
    captured user = { w, assigns };
    deft_tensor *out[1] = { NULL };
    float got[N];
    const deft_scope s = deft_scope_begin(w->cx);
    deft_capture *c = deft_capture_create(w->cx, captured_fn, &user);
    deft_status st = c ? deft_capture_set_f(c, "rate", 0.5) : deft_error(w->cx);
    for (int i = 0; i < calls && st == DEFT_OK; i++) {
        deft_tensor *const in[2] = { w->x, i % 2 ? w->p[1] : deft_add(w->x, 1) };
        st = deft_capture_call(c, in, 2, out, 1);
    }
    if (st == DEFT_OK) st = deft_read(out[0], DEFT_F32, got, sizeof got);
    if (st == DEFT_OK) memcpy(w->got, got, sizeof got);
    deft_capture_destroy(&c);
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}

static deft_status captured_assign(world *w)
{
    return capture(w, 1, true);
}

static deft_status captured_replays(world *w)
{
    return capture(w, 4, false);
}

static const scenario scenarios[] = {
    { .name = "adam step", .run = adam },
    { .name = "assigns through views", .run = views },
    { .name = "matrix products", .run = product },
    { .name = "the caller's memory", .run = wrapped },
    { .name = "reads and draws", .run = reads },
    { .name = "cuts inside a step",
      .run = forced_cuts,
      .options = { .size = sizeof(deft_ctx_options), .max_nodes = 24 } },
    { .name = "cuts that forget",
      .run = forgetting,
      .options = { .size = sizeof(deft_ctx_options), .max_bytes = 1 } },
    { .name = "one kernel per op",
      .run = adam,
      .options = { .size = sizeof(deft_ctx_options), .no_fusion = 1 } },
    { .name = "contexts of one runtime", .run = two_contexts },
    { .name = "scopes in scopes", .run = nested },
    { .name = "returns of what is older", .run = returned },
    { .name = "left to run", .run = submitted },
    { .name = "left to run after cuts inside",
      .run = submitted,
      .options = { .size = sizeof(deft_ctx_options), .max_nodes = 24 } },
    { .name = "while it runs", .run = submitted_inside },
    { .name = "a capture that assigns", .run = captured_assign },
    { .name = "replays of a capture", .run = captured_replays },
};

/* Making and destroying a world. */
static void creation(bool keep_failing)
{
    for (size_t n = 1;; n++) {
        world w = { .mem = fail_mem_create() };
        fail_mem_at(w.mem, n, keep_failing);
        const bool made = world_open(&w, NULL) && world_fill(&w);
        const bool hit = fail_mem_count(w.mem).failed > 0;
        fail_mem_at(w.mem, 0, false);
        world_close(&w);
        oom_count();
        if (!hit && !made) oom_fault("creation", n, "failed by itself");
        if (fail_mem_count(w.mem).live_blocks) oom_fault("creation", n, "memory was lost");
        if (fail_mem_count(w.mem).faults) oom_fault("creation", n, fail_mem_fault(w.mem));
        fail_mem_destroy(&w.mem);
        if (!hit) return;
    }
}

int main(int argc, char **argv)
{
    const bool arenas = argc > 1 && !strcmp(argv[1], "arenas");
    if (arenas) scenario_only(1);
    for (int keep = 0; keep < (arenas ? 1 : 2); keep++) {
        if (!arenas) creation(keep);
        scenario_every((size_t)test_size(1, keep ? 4 : 2));
        for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios; k++) {
            outcome want;
            if (arenas && scenarios[k].run == returned) continue; /* asks none for anything */
            if (scenario_once(&scenarios[k], &want)) scenario_fail_each(&scenarios[k], keep, &want);
        }
    }
    printf("%ld allocations failed in turn, %ld faults\n", oom_cases(), oom_faults());
    return oom_faults() ? 1 : 0;
}
