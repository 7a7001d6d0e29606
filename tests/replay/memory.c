/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of a program like a GPT in training: a step for each of three lengths, and now and then
 * an evaluation. All graphs share a pool that is as large as the largest path needs, not larger;
 * printed beside what a pool each would take.
 */
#include <stdio.h>
#include <stdlib.h>

#include "replay/tree.h"

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)

enum {
    LAYERS = 12,
    WIDTH = 768,
    BATCH = 16,
    VOCABULARY = 50304,
    PARAMETERS = 50,
    MOST_HELD = 4096
};
enum { FORWARD, BACKWARD, OPTIMIZE, EVALUATE, N_FN };

/* A device that is nowhere; it counts what is backed. */
static uint64_t backed;

static deft_status plain(void *self, df_diag *d, df_tree_call *c)
{
    (void)self, (void)d, (void)c;
    return DEFT_OK;
}

static deft_status record(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                          void **graph, uint64_t *bytes)
{
    (void)self, (void)d, (void)c, (void)p;
    *graph = &backed;
    *bytes = 300 * KIB;
    return DEFT_OK;
}

static deft_status replay(void *self, df_diag *d, void *graph, df_tree_call *c,
                          const df_tree_placement *p)
{
    (void)self, (void)d, (void)graph, (void)c, (void)p;
    return DEFT_OK;
}

static void drop(void *self, void *graph)
{
    (void)self, (void)graph;
}

static deft_status back(void *self, df_diag *d, uint64_t bytes)
{
    (void)self, (void)d;
    backed = bytes;
    return DEFT_OK;
}

typedef struct made {
    df_tree_out out[MOST_HELD];
    uint32_t n;
} made;

static void must(deft_status st)
{
    if (st == DEFT_OK) return;
    printf("a call failed\n");
    exit(1);
}

static void run(df_tree *t, made *m, uint64_t fn, uint64_t length, uint64_t arena)
{
    df_diag d = { 0 };
    df_tree_call c = {
        .fn = fn, .variant = length, .arena_bytes = arena, .out = m->out, .n_out = m->n
    };
    must(df_tree_run(t, &d, &c));
}

static void add(made *m, uint64_t bytes)
{
    m->out[m->n++] = (df_tree_out){ .bytes = bytes };
}

static void drop_all(df_tree *t, made *m)
{
    for (uint32_t i = 0; i < m->n; i++) df_tree_drop(t, m->out[i].ticket);
    m->n = 0;
}

static uint64_t parameter_bytes(uint32_t i)
{
    const uint64_t layer[] = { 4 * WIDTH, 12 * WIDTH * WIDTH, 16 * WIDTH * WIDTH, 16 * WIDTH };
    return i == 0 ? (uint64_t)4 * VOCABULARY * WIDTH : i == 1 ? 4 * 1024 * WIDTH : layer[i % 4];
}

/* The loss and what the backward pass reads. */
static void forward(df_tree *t, made *m, uint64_t length, int fn)
{
    const uint64_t row = (uint64_t)BATCH * length * WIDTH * 2;
    add(m, 4);
    for (int i = 0; fn == FORWARD && i < LAYERS; i++) {
        add(m, 3 * row), add(m, row), add(m, 4 * row), add(m, 2 * row);
        add(m, (uint64_t)BATCH * length * 12 * 4);
    }
    if (fn == FORWARD) add(m, (uint64_t)BATCH * length * VOCABULARY * 2);
    run(t, m, (uint64_t)fn, length,
        fn == FORWARD ? 6 * row : 2 * row + BATCH * length * VOCABULARY * 2);
}

static void step(df_tree *t, uint64_t length)
{
    static made saved, grads, moments;
    const uint64_t row = (uint64_t)BATCH * length * WIDTH * 2;
    df_tree_begin(t);
    forward(t, &saved, length, FORWARD);
    for (uint32_t i = 0; i < PARAMETERS; i++) add(&grads, parameter_bytes(i));
    run(t, &grads, BACKWARD, length, 8 * row + BATCH * length * VOCABULARY * 2);
    drop_all(t, &saved);
    for (uint32_t i = 0; i < PARAMETERS; i++) add(&moments, parameter_bytes(i) / 256);
    run(t, &moments, OPTIMIZE, 0, 2 * MIB);
    drop_all(t, &grads);
    drop_all(t, &moments);
}

static void evaluate(df_tree *t, uint64_t length)
{
    static made loss;
    df_tree_begin(t);
    forward(t, &loss, length, EVALUATE);
    drop_all(t, &loss);
}

/* Bytes in the pool while the backward pass of the longest step runs: the most of any time. */
static uint64_t largest_need(uint64_t length)
{
    const uint64_t row = (uint64_t)BATCH * length * WIDTH * 2,
                   logits = BATCH * length * VOCABULARY * 2;
    uint64_t sum = DF_TREE_ALIGN + LAYERS * (10 * row + BATCH * length * 12 * 4) + logits;
    for (uint32_t i = 0; i < PARAMETERS; i++) sum += parameter_bytes(i);
    return sum + 8 * row + logits;
}

int main(void)
{
    static const uint64_t lengths[] = { 512, 1024, 256 };
    const df_tree_device dev = { NULL, plain, record, replay, drop, back };
    df_diag d = { 0 };
    df_tree *t = NULL;
    must(df_tree_create(&d, &df_mem_system, &dev, NULL, &t));
    for (int i = 0; i < 120; i++) {
        step(t, lengths[i * 7 / 3 % 3]);
        if (i % 10 == 9) evaluate(t, 1024);
    }
    df_tree_stats s = df_tree_read(t);
    const uint64_t need = largest_need(1024);
    printf("pool %.1f MiB, largest path %.1f MiB, a pool for each graph %.1f MiB; %llu graphs, "
           "%llu of %llu calls replayed\n",
           (double)s.pool_bytes / MIB, (double)need / MIB, (double)s.separate_bytes / MIB,
           (unsigned long long)s.n_graphs, (unsigned long long)s.by_action[DF_TREE_REPLAY],
           (unsigned long long)s.calls);
    bool fine = s.pool_bytes == need && s.peak_path_bytes == need && backed == need;
    fine &= s.n_graphs == 10 && s.separate_bytes > 2 * need && s.calls - s.by_action[2] == 20;
    df_tree_trim(t);
    s = df_tree_read(t);
    fine &= s.pool_bytes == 0 && backed == 0 && s.n_graphs == 0;
    df_tree_destroy(&t);
    return !fine;
}
