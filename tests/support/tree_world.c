/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of tree_world.h. Its graphs remember where they were last placed, and a launch that
 * is said to be a mere replay has to be placed there.
 */
#include "support/tree_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { JUNK = 0xE7 };

typedef struct graph {
    uint64_t fn, variant, arena_bytes, arena, at[WORLD_OUTS], bytes[WORLD_OUTS];
    uint32_t n_out;
} graph;

/* A call on its way: what it reads, and where its outputs came to lie. */
typedef struct job {
    world *w;
    const world_held *reads; /* or NULL */
    unsigned char *out[WORLD_OUTS];
    bool own[WORLD_OUTS];
} job;

static void *must_alloc(size_t n)
{
    void *const p = malloc(n ? n : 1);
    if (!p) exit(99);
    return p;
}

void world_wrong(world *w, const char *what, uint64_t a, uint64_t b)
{
    if (w->wrong++ == 0)
        (void)snprintf(w->first_wrong, sizeof w->first_wrong, "%s: %llu, %llu", what,
                       (unsigned long long)a, (unsigned long long)b);
}

/* ---- what is computed ---- */

static uint64_t words(uint64_t bytes)
{
    return bytes / sizeof(uint64_t);
}

static uint64_t word(uint64_t seed, uint64_t i)
{
    return seed + i * 0x9E3779B97F4A7C15u;
}

static void fill(unsigned char *p, uint64_t seed, uint64_t bytes)
{
    for (uint64_t i = 0; i < words(bytes); i++) {
        const uint64_t v = word(seed, i);
        memcpy(p + i * sizeof v, &v, sizeof v);
    }
}

/* Of what is there; and of what should be there. */
static uint64_t digest(const unsigned char *p, uint64_t bytes)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < words(bytes); i++) {
        uint64_t v;
        memcpy(&v, p + i * sizeof v, sizeof v);
        sum += v ^ i;
    }
    return sum;
}

static uint64_t digest_of_seed(uint64_t seed, uint64_t bytes)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < words(bytes); i++) sum += word(seed, i) ^ i;
    return sum;
}

static uint64_t seed_of(uint64_t serial, uint64_t read, uint32_t out)
{
    return df_mix(df_mix(df_mix(1, serial), read), out);
}

static unsigned char *memory_of(world *w, const world_held *h)
{
    return h->own ? h->own : w->pool + h->offset;
}

static void compute(job *j, const df_tree_call *c, unsigned char *arena)
{
    world *const w = j->w;
    memset(arena, JUNK, c->arena_bytes);
    for (uint32_t i = 0; i < c->n_out; i++) memset(j->out[i], JUNK + 1, c->out[i].bytes);
    const uint64_t read = j->reads ? digest(memory_of(w, j->reads), j->reads->bytes) : 0;
    for (uint32_t i = 0; i < c->n_out; i++)
        fill(j->out[i], seed_of(w->serial, read, i), c->out[i].bytes);
}

/* ---- the device ---- */

static deft_status count_call(world *w, df_diag *d, bool plain)
{
    if (plain && w->fail_graphs_only) return DEFT_OK;
    if (++w->device_calls != w->fail_at) return DEFT_OK;
    return df_fail(d, w->fail_at % 2 ? DEFT_E_BACKEND : DEFT_E_MEMORY, "call %llu fails",
                   (unsigned long long)w->fail_at);
}

static void make_own(job *j, uint32_t i, uint64_t bytes)
{
    j->out[i] = must_alloc(bytes);
    j->own[i] = true;
    j->w->n_own++;
}

static deft_status plain(void *self, df_diag *d, df_tree_call *c)
{
    world *const w = self;
    job *const j = c->user;
    const deft_status st = count_call(w, d, true);
    if (st != DEFT_OK) return st;
    unsigned char *const arena = must_alloc(c->arena_bytes);
    for (uint32_t i = 0; i < c->n_out; i++) make_own(j, i, c->out[i].bytes);
    compute(j, c, arena);
    free(arena);
    return DEFT_OK;
}

static void remember(graph *g, const df_tree_call *c, const df_tree_placement *p)
{
    g->variant = c->variant;
    g->arena_bytes = c->arena_bytes;
    g->arena = p->arena;
    for (uint32_t i = 0; i < c->n_out; i++) g->at[i] = p->out[i], g->bytes[i] = c->out[i].bytes;
}

static deft_status record(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                          void **out, uint64_t *bytes)
{
    world *const w = self;
    deft_status st = count_call(w, d, false);
    if (st == DEFT_OK && w->fail_record) st = df_fail(d, DEFT_E_BACKEND, "no recording");
    if (st != DEFT_OK) return st;
    if (c->action != DF_TREE_RECORD) world_wrong(w, "recorded for another action", c->action, 0);
    graph *const g = must_alloc(sizeof *g);
    *g = (graph){ .fn = c->fn, .n_out = c->n_out };
    remember(g, c, p);
    w->n_graphs++;
    w->n_records++;
    *out = g;
    *bytes = w->graph_bytes ? w->graph_bytes : 100;
    return DEFT_OK;
}

static void check_backed(world *w, uint64_t offset, uint64_t bytes)
{
    if (offset % DF_TREE_ALIGN) world_wrong(w, "not aligned", offset, bytes);
    if (offset + bytes > w->backed) world_wrong(w, "not backed", offset, bytes);
}

/* A mere replay changes nothing but addresses from outside. */
static void check_same(world *w, const graph *g, const df_tree_call *c, const df_tree_placement *p)
{
    bool same = g->variant == c->variant && g->arena_bytes == c->arena_bytes;
    if (c->arena_bytes) same &= g->arena == p->arena;
    for (uint32_t i = 0; i < c->n_out; i++)
        same &= g->at[i] == p->out[i] && g->bytes[i] == c->out[i].bytes;
    if (!same) world_wrong(w, "replayed with another placement", c->fn, c->variant);
}

static deft_status replay(void *self, df_diag *d, void *graph_, df_tree_call *c,
                          const df_tree_placement *p)
{
    world *const w = self;
    job *const j = c->user;
    graph *const g = graph_;
    deft_status st = count_call(w, d, false);
    if (st == DEFT_OK && w->fail_replay) st = df_fail(d, DEFT_E_BACKEND, "no launching");
    if (st != DEFT_OK) return st;
    if (g->fn != c->fn) world_wrong(w, "another function's graph", g->fn, c->fn);
    if (c->action == DF_TREE_REPLAY) check_same(w, g, c, p);
    if (c->action == DF_TREE_PLACE && g->variant != c->variant)
        world_wrong(w, "placed for another variant", g->variant, c->variant);
    remember(g, c, p);
    if (c->arena_bytes) check_backed(w, p->arena, c->arena_bytes);
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (p->out[i] == DF_TREE_OUTSIDE) {
            make_own(j, i, c->out[i].bytes);
            continue;
        }
        check_backed(w, p->out[i], c->out[i].bytes);
        j->out[i] = w->pool + p->out[i];
    }
    compute(j, c, w->pool + p->arena);
    w->n_launches++;
    return DEFT_OK;
}

static void drop(void *self, void *graph_)
{
    world *const w = self;
    w->n_graphs--;
    free(graph_);
}

static deft_status back(void *self, df_diag *d, uint64_t bytes)
{
    world *const w = self;
    const uint64_t limit = w->pool_limit ? w->pool_limit : WORLD_POOL;
    const deft_status st = count_call(w, d, false);
    if (st != DEFT_OK) return st;
    if (bytes > limit && bytes > w->backed)
        return df_fail(d, DEFT_E_MEMORY, "the pool ends at %llu", (unsigned long long)limit);
    if (bytes < w->backed) memset(w->pool + bytes, JUNK + 2, w->backed - bytes);
    w->backed = bytes;
    return DEFT_OK;
}

/* ---- the program ---- */

bool world_again(world *w, const df_mem *mem, const df_tree_options *o)
{
    const df_tree_device dev = { w, plain, record, replay, drop, back };
    df_diag d = { 0 };
    world_drop_all(w);
    df_tree_destroy(&w->t);
    w->device_calls = w->serial = w->n_records = w->n_launches = 0;
    return df_tree_create(&d, mem, &dev, o, &w->t) == DEFT_OK;
}

bool world_open(world *w, const df_mem *mem, const df_tree_options *o)
{
    *w = (world){ .pool = must_alloc(WORLD_POOL) };
    return world_again(w, mem, o);
}

void world_close(world *w)
{
    world_drop_all(w);
    df_tree_destroy(&w->t);
    free(w->pool);
}

/* The outputs are held, each in its own memory or at a ticket. */
static void hold(world *w, const df_tree_call *c, const job *j, uint64_t read)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        const df_tree_out *const o = &c->out[i];
        if ((o->offset == DF_TREE_OUTSIDE) != j->own[i] || (o->ticket == 0) != j->own[i])
            world_wrong(w, "an output's offset and ticket", o->offset, o->ticket);
        w->held[w->n_held++] = (world_held){ .ticket = o->ticket,
                                             .offset = o->offset,
                                             .bytes = o->bytes,
                                             .own = j->own[i] ? j->out[i] : NULL,
                                             .seed = seed_of(w->serial, read, i),
                                             .node = c->node };
    }
}

deft_status world_call_sized(world *w, uint64_t fn, uint64_t variant, uint64_t arena,
                             uint32_t n_out, const uint64_t *bytes, bool unfit)
{
    df_tree_out out[WORLD_OUTS];
    df_diag d = { 0 };
    while (w->n_held + (int)n_out > WORLD_HELD) world_drop(w, 0);
    job j = { .w = w };
    if (fn % 2 && w->n_held) j.reads = &w->held[w->n_held - 1];
    const uint64_t read = j.reads ? digest_of_seed(j.reads->seed, j.reads->bytes) : 0;
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = (df_tree_out){ .bytes = bytes[i], .offset = 12345, .ticket = 12345 };
    df_tree_call c = { .fn = fn,
                       .variant = variant,
                       .arena_bytes = arena,
                       .out = out,
                       .n_out = n_out,
                       .unfit = unfit,
                       .user = &j };
    w->serial++;
    const deft_status st = df_tree_run(w->t, &d, &c);
    w->last = c;
    w->last.out = NULL;
    if (st == DEFT_OK)
        hold(w, &c, &j, read);
    else if (d.status != st)
        world_wrong(w, "a failure without a sentence", st, d.status);
    return st;
}

/* Odd functions read. */
deft_status world_call(world *w, world_fn fn, uint64_t variant)
{
    const uint64_t more = 256 * variant;
    switch (fn) {
    case WORLD_F:
        return world_call_sized(w, fn, variant, 200, 1, (uint64_t[]){ 256 + more }, false);
    case WORLD_G:
        return world_call_sized(w, fn, variant, 256 + more, 2, (uint64_t[]){ 200, 512 + more },
                                false);
    case WORLD_H:
        return world_call_sized(w, fn, variant, 1024 + more, 1, (uint64_t[]){ 512 }, false);
    case WORLD_N_FN: break;
    }
    return DEFT_E_ARG;
}

void world_drop(world *w, int i)
{
    if (i < 0) i += w->n_held;
    if (i < 0 || i >= w->n_held) return;
    const world_held h = w->held[i];
    w->n_held--;
    memmove(w->held + i, w->held + i + 1, (size_t)(w->n_held - i) * sizeof *w->held);
    if (h.own) {
        w->n_own--;
        free(h.own);
        return;
    }
    if (!df_tree_is_held(w->t, h.ticket)) world_wrong(w, "not held", h.ticket, h.offset);
    df_tree_drop(w->t, h.ticket);
    if (df_tree_is_held(w->t, h.ticket)) world_wrong(w, "held still", h.ticket, h.offset);
}

void world_drop_all(world *w)
{
    while (w->n_held) world_drop(w, -1);
}

void world_check(world *w)
{
    for (int i = 0; i < w->n_held; i++) {
        const world_held *const h = &w->held[i];
        const unsigned char *const p = memory_of(w, h);
        uint64_t other = 0;
        for (uint64_t k = 0; k < words(h->bytes); k++) {
            uint64_t v;
            memcpy(&v, p + k * sizeof v, sizeof v);
            other |= v ^ word(h->seed, k);
        }
        if (other) world_wrong(w, "a held output was overwritten", w->serial, h->node);
    }
}
