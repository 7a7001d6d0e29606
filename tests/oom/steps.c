/* SPDX-License-Identifier: Apache-2.0
 *
 * Fails allocation n = 1, 2, 3, ... of each scenario until it succeeds, once failing only that call
 * and once failing every later one too. Each failure must be DEFT_E_MEMORY with a sentence;
 * parameters that a step assigns must hold their bits of before; the context must work afterwards;
 * nothing may leak.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fail_mem.h"
#include "deft/deft.h"

enum { N = 24, N_PARAMS = 3 };

typedef struct world {
    fail_mem *mem;
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *p[N_PARAMS], *x, *labels;
    uint8_t target[N * 4];
} world;

static long n_cases, n_failed;

static void fail(const char *name, size_t n, const char *what)
{
    printf("%s, allocation %zu: %s\n", name, n, what);
    n_failed++;
}

static bool open_world(world *w)
{
    const df_mem *const m = fail_mem_get(w->mem);
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = m->resize,
                                     .resize_user = m->user };
    if (deft_runtime_create(&o, &w->rt) != DEFT_OK) return false;
    return deft_ctx_create(w->rt, NULL, &w->cx) == DEFT_OK;
}

static void close_world(world *w)
{
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

static bool fill(world *w)
{
    float v[N];
    uint8_t l[4] = { 0, 1, 2, 3 };
    for (int i = 0; i < N; i++) v[i] = (float)i / 8;
    for (int i = 0; i < N_PARAMS; i++)
        if (!(w->p[i] = deft_keep(deft_from(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, v, sizeof v))))
            return false;
    w->x = deft_keep(deft_from(w->cx, DEFT_SHAPE(4, N / 4), DEFT_F32, v, sizeof v));
    w->labels = deft_keep(deft_from(w->cx, DEFT_SHAPE(4), DEFT_U8, l, sizeof l));
    return w->x && w->labels;
}

/* ---- scenarios: DEFT_OK or the status of what failed ---- */

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
    deft_rng rng = { 5, 0 };
    deft_tensor *r = deft_normal(w->cx, &rng, DEFT_SHAPE(4, N / 4), DEFT_F32, 0, 1);
    deft_status st = deft_read(deft_add(r, w->x), DEFT_F32, out, sizeof out);
    if (st == DEFT_OK) st = deft_item(deft_max(r, DEFT_ALL_AXES, 0), &one);
    if (st == DEFT_OK) st = deft_format(deft_cumsum(w->x, 1), text, sizeof text, NULL);
    if (st == DEFT_OK)
        st = deft_item(deft_sum(deft_take(w->x, w->labels, 0), DEFT_ALL_AXES, 0), &one);
    const deft_status end = deft_scope_end(s);
    /* A read of NULL cannot name its context: the scope's end delivers the cause. */
    return end != DEFT_OK ? end : st;
}

typedef struct scenario {
    const char *name;
    deft_status (*run)(world *w);
} scenario;

static const scenario scenarios[] = { { "adam step", adam },
                                      { "assigns through views", views },
                                      { "matrix products", product },
                                      { "the caller's memory", wrapped },
                                      { "reads and draws", reads } };

static bool same(world *w, const float (*want)[N])
{
    float v[N];
    for (int i = 0; i < N_PARAMS; i++) {
        if (deft_read(w->p[i], DEFT_F32, v, sizeof v) != DEFT_OK) return false;
        if (memcmp(v, want[i], sizeof v) != 0) return false;
    }
    return true;
}

static void get(world *w, float (*out)[N])
{
    for (int i = 0; i < N_PARAMS; i++)
        if (deft_read(w->p[i], DEFT_F32, out[i], N * sizeof(float)) != DEFT_OK) abort();
}

/* One n. Returns true when no allocation was made to fail any more. */
static bool attempt(const scenario *sc, size_t n, bool keep_failing, const float (*after)[N])
{
    world w = { .mem = fail_mem_create() };
    float before[N_PARAMS][N], end[N_PARAMS][N];
    if (!open_world(&w) || !fill(&w)) abort();
    get(&w, before);
    fail_mem_at(w.mem, n, keep_failing);
    const deft_status st = sc->run(&w);
    const bool hit = fail_mem_count(w.mem).failed > 0;
    fail_mem_at(w.mem, 0, false);
    n_cases++;
    if (st != DEFT_OK) {
        if (st != DEFT_E_MEMORY) fail(sc->name, n, deft_status_text(st));
        if (!deft_message(w.cx)[0]) fail(sc->name, n, "no sentence");
        if (!same(&w, (const float(*)[N])before)) fail(sc->name, n, "a parameter changed");
        for (size_t i = 0; i < sizeof w.target; i++)
            if (w.target[i]) {
                fail(sc->name, n, "the caller's memory was written");
                break;
            }
        if (sc->run(&w) != DEFT_OK) fail(sc->name, n, "the context does not work afterwards");
    } else if (!hit && n == 1) {
        fail(sc->name, n, "allocates nothing: the test has lost its subject");
    }
    get(&w, end);
    if (memcmp(end, after, sizeof end) != 0) fail(sc->name, n, "the result differs");
    close_world(&w);
    const fail_mem_counts c = fail_mem_count(w.mem);
    if (c.live_blocks) fail(sc->name, n, "memory was lost");
    if (c.faults) fail(sc->name, n, fail_mem_fault(w.mem));
    fail_mem_destroy(&w.mem);
    return !hit;
}

/* Making and destroying a world. */
static void creation(bool keep_failing)
{
    for (size_t n = 1;; n++) {
        world w = { .mem = fail_mem_create() };
        fail_mem_at(w.mem, n, keep_failing);
        const bool made = open_world(&w) && fill(&w);
        const bool hit = fail_mem_count(w.mem).failed > 0;
        fail_mem_at(w.mem, 0, false);
        close_world(&w);
        n_cases++;
        if (!hit && !made) fail("creation", n, "failed by itself");
        if (fail_mem_count(w.mem).live_blocks) fail("creation", n, "memory was lost");
        if (fail_mem_count(w.mem).faults) fail("creation", n, fail_mem_fault(w.mem));
        fail_mem_destroy(&w.mem);
        if (!hit) return;
    }
}

int main(void)
{
    for (int keep = 0; keep < 2; keep++) {
        creation(keep);
        for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios; k++) {
            const scenario *const sc = &scenarios[k];
            world w = { .mem = fail_mem_create() };
            float after[N_PARAMS][N];
            if (!open_world(&w) || !fill(&w) || sc->run(&w) != DEFT_OK) {
                fail(sc->name, 0, w.cx ? deft_message(w.cx) : "no context");
                return 1;
            }
            get(&w, after);
            close_world(&w);
            fail_mem_destroy(&w.mem);
            size_t n = 1;
            while (n < 5000 && !attempt(sc, n, keep, (const float(*)[N])after)) n++;
            if (n == 5000) fail(sc->name, n, "never succeeds");
        }
    }
    printf("%ld allocations failed in turn, %ld faults\n", n_cases, n_failed);
    return n_failed ? 1 : 0;
}
