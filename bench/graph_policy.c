/* SPDX-License-Identifier: Apache-2.0
 *
 * What does a replayed step cost beside its graph? A graph tree (src/replay) on a device whose
 * replay does nothing: finding the node, holding its placement against what is held, tickets for
 * the outputs, and dropping them before the next step. The policy does not see kernels: a step of
 * many has a few more outputs (what is updated in place is none). Others are held for good, between
 * which it must fit.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/tree.h"

enum { MOST = 512, ROUNDS = 51 };

typedef struct rig {
    df_tree *t;
    df_tree_out out[MOST];
    uint32_t n_out, n_calls;
    df_tree_ticket kept[MOST];
    uint32_t n_kept;
} rig;

static deft_status run_nothing(void *self, df_diag *d, df_tree_call *c)
{
    (void)self, (void)d, (void)c;
    return DEFT_OK;
}

static deft_status record_nothing(void *self, df_diag *d, df_tree_call *c,
                                  const df_tree_placement *p, void **graph, uint64_t *bytes)
{
    (void)d, (void)c, (void)p;
    *graph = self;
    *bytes = 1;
    return DEFT_OK;
}

static deft_status replay_nothing(void *self, df_diag *d, void *graph, df_tree_call *c,
                                  const df_tree_placement *p)
{
    (void)self, (void)d, (void)graph, (void)c, (void)p;
    return DEFT_OK;
}

static void drop_nothing(void *self, void *graph)
{
    (void)self, (void)graph;
}

static deft_status back_nothing(void *self, df_diag *d, uint64_t bytes)
{
    (void)self, (void)d, (void)bytes;
    return DEFT_OK;
}

static df_tree_action call(rig *r, uint64_t fn)
{
    df_diag d;
    df_tree_call c = { .fn = fn, .arena_bytes = 1 << 20, .out = r->out, .n_out = r->n_out };
    if (df_tree_run(r->t, &d, &c) != DEFT_OK) exit(1);
    return c.action;
}

static void drop_outputs(rig *r)
{
    for (uint32_t i = 0; i < r->n_out; i++) df_tree_drop(r->t, r->out[i].ticket);
}

static void step(void *user)
{
    rig *const r = user;
    df_tree_begin(r->t);
    for (uint32_t i = 0; i < r->n_calls; i++) {
        (void)call(r, i);
        drop_outputs(r);
    }
}

/* Every other output of a large call is kept: the pool is full of gaps. */
static void keep(rig *r, uint32_t n)
{
    r->n_out = 2 * n;
    for (int i = 0; i < 3 && n; i++) {
        df_tree_begin(r->t);
        const bool last = call(r, 1000) == DF_TREE_REPLAY;
        for (uint32_t k = 0; k < r->n_out; k++)
            if (last && k % 2)
                r->kept[r->n_kept++] = r->out[k].ticket;
            else
                df_tree_drop(r->t, r->out[k].ticket);
    }
}

static void open(rig *r, uint32_t n_calls, uint32_t n_out, uint32_t n_kept)
{
    const df_tree_device dev = {
        r, run_nothing, record_nothing, replay_nothing, drop_nothing, back_nothing
    };
    df_diag d = { 0 };
    memset(r, 0, sizeof *r);
    if (df_tree_create(&d, &df_mem_system, &dev, NULL, &r->t) != DEFT_OK) exit(1);
    for (uint32_t i = 0; i < MOST; i++) r->out[i].bytes = 1000 + 100 * (i % 7);
    keep(r, n_kept);
    r->n_calls = n_calls;
    r->n_out = n_out;
    for (int i = 0; i < 3; i++) step(r);
}

static void close(rig *r)
{
    for (uint32_t i = 0; i < r->n_kept; i++) df_tree_drop(r->t, r->kept[i]);
    df_tree_destroy(&r->t);
}

/* What dropping that many outputs takes at least, since any thread may. */
static void atomics(void *user)
{
    static _Atomic uint64_t word;
    const rig *const r = user;
    for (uint32_t i = 0; i < 2 * r->n_out * r->n_calls; i++) {
        uint64_t was = atomic_load(&word);
        (void)atomic_compare_exchange_strong(&word, &was, was + 1);
    }
}

/* goal_us: of a step; 0: at most 4 times what its atomic operations take. */
static void measure(bench *b, const char *label, uint32_t n_calls, uint32_t n_out, uint32_t n_kept,
                    double goal_us)
{
    static rig r;
    double t, least;
    if (!bench_wants(b, label)) return;
    open(&r, n_calls, n_out, n_kept);
    const df_tree_stats before = df_tree_read(r.t);
    bench_pair(step, &r, atomics, &r, ROUNDS, bench_calls(step, &r, 0.002), &t, &least);
    const df_tree_stats s = df_tree_read(r.t);
    const bool replayed =
        s.calls - before.calls == s.by_action[DF_TREE_REPLAY] - before.by_action[DF_TREE_REPLAY];
    if (!replayed || s.held < n_kept)
        bench_row_without(b, label, t * 1e6, "us/step", "goal", "not all was replayed", goal_us);
    else
        bench_row(b, label, t * 1e6, "us/step", "its atomic operations", least * 1e6,
                  goal_us > 0 ? BENCH_VALUE_AT_MOST : BENCH_RATIO_AT_MOST,
                  goal_us > 0 ? goal_us : 4);
    close(&r);
}

void bench_graph_policy(bench *b)
{
    static const struct {
        const char *label;
        uint32_t n_out;
    } steps[] = { { "1 kernel, 1 output", 1 },
                  { "10 kernels, 1 output", 1 },
                  { "100 kernels, 4 outputs", 4 },
                  { "500 kernels, 8 outputs", 8 } };
    for (size_t i = 0; i < DF_LEN(steps); i++) {
        char label[64];
        measure(b, steps[i].label, 1, steps[i].n_out, 0, 1);
        snprintf(label, sizeof label, "%s, 200 held", steps[i].label);
        measure(b, label, 1, steps[i].n_out, 200, 1);
    }
    measure(b, "10 graphs, 1 output each, 200 held", 10, 1, 200, 10);
    measure(b, "200 outputs, each step anew", 1, 200, 0, 0);
}
