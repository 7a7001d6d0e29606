/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5000 }; /* allocations of one scenario */

static long n_cases, n_faults;

void oom_fault(const char *name, size_t n, const char *what)
{
    printf("%s, allocation %zu: %s\n", name, n, what);
    n_faults++;
}

long oom_cases(void)
{
    return n_cases;
}

long oom_faults(void)
{
    return n_faults;
}

void oom_count(void)
{
    n_cases++;
}

/* ---- worlds ---- */

bool world_open(world *w, const deft_ctx_options *options)
{
    const df_mem *const m = fail_mem_get(w->mem);
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = m->resize,
                                     .resize_user = m->user };
    if (deft_runtime_create(&o, &w->rt) != DEFT_OK) return false;
    return deft_ctx_create(w->rt, options && options->size ? options : NULL, &w->cx) == DEFT_OK;
}

bool world_fill(world *w)
{
    const deft_shape s = DEFT_SHAPE(4, N / 4);
    float v[N];
    int32_t k[N];
    const uint8_t l[4] = { 0, 1, 2, 3 };
    for (int i = 0; i < N; i++) {
        v[i] = (float)i / 8;
        k[i] = i % 4;
    }
    for (int i = 0; i < N_PARAMS; i++)
        if (!(w->p[i] = deft_keep(deft_from(w->cx, s, DEFT_F32, v, sizeof v)))) return false;
    w->x = deft_keep(deft_from(w->cx, s, DEFT_F32, v, sizeof v));
    w->i = deft_keep(deft_from(w->cx, s, DEFT_I32, k, sizeof k));
    w->labels = deft_keep(deft_from(w->cx, DEFT_SHAPE(4), DEFT_U8, l, sizeof l));
    w->rng = (deft_rng){ 5, 0 };
    return w->x && w->i && w->labels;
}

void world_close(world *w)
{
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

void world_get(world *w, outcome *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < N_PARAMS; i++)
        if (deft_read(w->p[i], DEFT_F32, out->p[i], sizeof out->p[i]) != DEFT_OK) abort();
    memcpy(out->target, w->target, sizeof out->target);
    memcpy(out->got, w->got, sizeof out->got);
    out->subject = w->subject;
}

/* ---- scenarios ---- */

static deft_status run(world *w, const scenario *sc)
{
    w->rng = (deft_rng){ 5, 0 };
    w->subject = 0;
    memset(w->got, 0, sizeof w->got);
    return sc->run(w);
}

void world_finish(world *w, const char *name, size_t n)
{
    world_close(w);
    const fail_mem_counts c = fail_mem_count(w->mem);
    if (c.live_blocks) oom_fault(name, n, "memory was lost");
    if (c.faults) oom_fault(name, n, fail_mem_fault(w->mem));
    fail_mem_destroy(&w->mem);
}

bool scenario_once(const scenario *sc, outcome *out)
{
    world w = { .mem = fail_mem_create() };
    const long before = n_faults;
    if (!world_open(&w, &sc->options) || !world_fill(&w)) abort();
    if (run(&w, sc) != sc->want) oom_fault(sc->name, 0, deft_message(w.cx));
    if (w.wrong) oom_fault(sc->name, 0, w.wrong);
    world_get(&w, out);
    world_finish(&w, sc->name, 0);
    return n_faults == before;
}

static bool same_state(const outcome *a, const outcome *b)
{
    return !memcmp(a->p, b->p, sizeof a->p) && !memcmp(a->target, b->target, sizeof a->target);
}

void world_check(world *w, const scenario *sc, size_t n, deft_status st, const outcome *before,
                 const outcome *want, deft_status (*again)(world *w, const scenario *sc))
{
    outcome end;
    if (st != sc->want) {
        if (st != DEFT_E_MEMORY) oom_fault(sc->name, n, deft_status_text(st));
        if (!w->silent && !deft_message(w->cx)[0]) oom_fault(sc->name, n, "no sentence");
        deft_clear(w->cx);
        world_get(w, &end);
        if (memcmp(end.p, before->p, sizeof end.p) != 0)
            oom_fault(sc->name, n, "a parameter changed");
        if (memcmp(end.target, before->target, sizeof end.target) != 0)
            oom_fault(sc->name, n, "the caller's memory was written");
        if (memcmp(end.got, before->got, sizeof end.got) != 0)
            oom_fault(sc->name, n, "something was handed out");
        if (again(w, sc) != sc->want)
            oom_fault(sc->name, n, "the context does not work afterwards");
    }
    if (w->wrong) oom_fault(sc->name, n, w->wrong);
    world_get(w, &end);
    if (!same_state(&end, want) || memcmp(end.got, want->got, sizeof end.got) != 0)
        oom_fault(sc->name, n, "the result differs");
}

static size_t every = 1, only;

/* One n. Returns true when no allocation was made to fail any more. */
static bool attempt(const scenario *sc, size_t n, bool keep_failing, const outcome *want)
{
    world w = { .mem = fail_mem_create() };
    outcome before;
    if (!world_open(&w, &sc->options) || !world_fill(&w)) abort();
    world_get(&w, &before);
    fail_mem_only(w.mem, only);
    fail_mem_at(w.mem, n, keep_failing);
    const deft_status st = run(&w, sc);
    const bool hit = fail_mem_count(w.mem).failed > 0;
    fail_mem_at(w.mem, 0, false);
    n_cases++;
    if (!hit && n == 1) oom_fault(sc->name, n, "allocates nothing: the test has lost its subject");
    world_check(&w, sc, n, st, &before, want, run);
    world_finish(&w, sc->name, n);
    return !hit;
}

void scenario_every(size_t n)
{
    every = n;
}

void scenario_only(size_t size)
{
    only = size;
}

void scenario_fail_each(const scenario *sc, bool keep_failing, const outcome *want)
{
    size_t n = 1;
    while (n < MOST && !attempt(sc, n, keep_failing, want)) n += every;
    if (n >= MOST) oom_fault(sc->name, n, "never succeeds");
}
