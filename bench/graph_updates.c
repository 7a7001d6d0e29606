/* SPDX-License-Identifier: Apache-2.0
 *
 * What does it cost the host when the addresses of a graph's launches change? A step of K small
 * kernels in one plan, of which each reads an input that alternates between two places, so that all
 * of them are given another address each time:
 *
 *   node updates     each node is set (DEFT_CUDA_TABLE=0)
 *   table            kernels read their words from memory, which one copy renews (1)
 *   recorded anew    the graph is dropped and made again, the pool stays
 *   plain launches   no graph
 *   nothing changed  the same place each time: what a graph costs by itself
 *   as chosen        whichever of updates and table is taken by itself (jit_cuda/exec/table.h)
 *
 * A step's time is that of the call that puts it in; *to its end*: until the GPU is done, as a
 * table makes each kernel wait for its words. Steps do not overlap. What was done is counted: a row
 * whose steps went another way is not ok.
 *
 * Runs on GPU 0. Where there is none it says so and has no rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "jit_cuda/exec/device_internal.h"
#include "jit_cuda/exec/table.h"

enum { SIDE = 32, MOST_STEPS = 101, STEPS_QUICK = 5, WARM = 4 + 2 * DF_CUDA_TABLE_REPLAYS };

typedef enum way { NODES, TABLE, ANEW, PLAIN, NOTHING, CHOSEN, N_WAYS } way;

static const char *const asked[N_WAYS] = {
    [NODES] = "0", [TABLE] = "1", [ANEW] = "0", [PLAIN] = NULL, [NOTHING] = "0", [CHOSEN] = NULL
};

typedef struct rig {
    df_device *dev;
    df_queue *q;
    df_arena arena;
    df_trace *t;
    df_plan *plan;
    int64_t *slots;
    df_buffer *in[2][2]; /* two places for each input */
    df_buffer *held;     /* keeps the pool when graphs are dropped */
    uint32_t n_kernels;
} rig;

/* Microseconds of a step, and what was amiss. */
typedef struct timing {
    double host, all;
    const char *why; /* NULL: it went as it should */
} timing;

static void must(const df_diag *d, deft_status st)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "graph_updates: %s\n", d->text);
    exit(1);
}

/* ---- a step ---- */

/* Sums along columns, then along rows, and so on: none begins before the one before it has ended,
 * and each is subtracted from the second input. One alone would be two kernels. */
static void write_chain(df_str *s, uint32_t n)
{
    uint32_t at = 0, next = 2;
    df_str_fmt(s, "%%0 = input f32[%d,%d]\n%%1 = input f32[%d,%d]\n", SIDE, SIDE, SIDE, SIDE);
    if (n == 1) {
        df_str_fmt(s, "%%2 = sub f32[%d,%d] %%1 %%0\noutput %%2\n", SIDE, SIDE);
        return;
    }
    for (uint32_t i = 0; i < n; i++, next += 3) {
        const uint32_t axis = i % 2;
        df_str_fmt(s, "%%%u = sum f32[%d,%d] %%%u axes=[%u] keepdims\n", next, axis ? SIDE : 1,
                   axis ? 1 : SIDE, at, axis);
        df_str_fmt(s, "%%%u = expand f32[%d,%d] %%%u\n", next + 1, SIDE, SIDE, next);
        df_str_fmt(s, "%%%u = sub f32[%d,%d] %%1 %%%u\n", next + 2, SIDE, SIDE, next + 1);
        at = next + 2;
    }
    df_str_fmt(s, "output %%%u\n", at);
}

static void make_plan(rig *r, uint32_t n)
{
    df_diag d = { 0 };
    df_str s;
    uint32_t *from = NULL;
    df_trace *whole = NULL;
    df_str_init(&s, &df_mem_system);
    write_chain(&s, n);
    must(&d, df_trace_parse(&d, s.at, s.n, &r->arena, &whole));
    must(&d, df_trace_simplify(&d, whole, DF_PASS_ALL, &r->arena, &r->t, &from));
    must(&d, df_fuse(&d, r->t, &r->dev->limits, &df_mem_system, &r->plan));
    must(&d, r->dev->prepare(r->dev, &d, r->plan, NULL));
    r->slots = df_arena_new(&r->arena, int64_t, r->plan->n_slots + 1);
    df_slots_eval(r->plan->slots, r->plan->n_slots, r->t, r->slots);
    df_str_finish(&s);
}

/* place: of its inputs. */
static df_buffer *run(const rig *r, int place)
{
    df_diag d = { 0 };
    df_trace t = *r->t;
    df_input inputs[2] = { t.inputs[0], t.inputs[1] };
    const df_buffer *buffers[2] = { r->in[place][0], r->in[place][1] };
    df_buffer *root = NULL;
    for (int i = 0; i < 2; i++) inputs[i].data = buffers[i]->data;
    t.inputs = inputs;
    df_launch_io io = { .root = &root, .input = buffers, .queue = r->q };
    r->dev->far->begin_generation(r->dev, r->q);
    must(&d, r->dev->run(r->dev, &d, r->plan, &t, r->slots, &io, NULL));
    return root;
}

static void wait(const rig *r)
{
    df_diag d = { 0 };
    must(&d, r->dev->far->wait(r->dev, &d, r->q));
}

/* ---- a way ---- */

static void set_table(const char *value)
{
    if (value)
        (void)setenv("DEFT_CUDA_TABLE", value, 1);
    else
        (void)unsetenv("DEFT_CUDA_TABLE");
}

static void put_inputs(rig *r)
{
    static float data[SIDE * SIDE];
    df_diag d = { 0 };
    const df_device_memory_ops *const far = r->dev->far;
    for (int i = 0; i < 4; i++) {
        df_buffer **const b = &r->in[i / 2][i % 2];
        must(&d, far->create(r->dev, &d, r->q, sizeof data, b));
        must(&d, far->put(r->dev, &d, r->q, (*b)->data, data, sizeof data));
    }
}

static void open_way(rig *r, way by)
{
    static const df_replay_options usual;
    df_diag d = { 0 };
    must(&d, r->dev->far->queue_create(r->dev, &d, NULL, &r->q));
    set_table(asked[by]);
    if (by != PLAIN) must(&d, r->dev->far->replay(r->dev, &d, r->q, &usual));
    put_inputs(r);
    for (int i = 0; i < WARM; i++) {
        df_buffer *root = run(r, by == NOTHING ? 0 : i % 2);
        wait(r);
        if (by == ANEW && i == 1)
            r->held = root;
        else
            df_buffer_drop(&root);
    }
}

static void close_way(rig *r)
{
    wait(r);
    df_buffer_drop(&r->held);
    for (int i = 0; i < 4; i++) df_buffer_drop(&r->in[i / 2][i % 2]);
    r->dev->far->queue_destroy(r->dev, &r->q);
}

/* How n steps differ from what they should have been; NULL: in nothing. */
static const char *amiss(const rig *r, way by, uint64_t n, const df_replay_stats *a,
                         const df_replay_stats *b)
{
    const uint64_t replayed = b->replayed - a->replayed, nodes = b->updates - a->updates;
    const uint64_t tables = b->tables - a->tables, all = n * r->n_kernels;
    if (by == PLAIN) return NULL;
    if (by == ANEW) return b->recorded - a->recorded == n ? NULL : "not all was recorded anew";
    if (replayed != n) return "not all was replayed";
    if (by == NOTHING) return nodes == 0 ? NULL : "something has changed";
    if (by == NODES) return nodes == all ? NULL : "not all nodes were updated";
    if (by == TABLE) return nodes == 0 && tables == n ? NULL : "not all went by a table";
    return nodes == all || tables == n ? NULL : "neither all nodes nor a table";
}

static timing measure(rig *r, way by, int n)
{
    double host[MOST_STEPS], all[MOST_STEPS];
    open_way(r, by);
    const df_replay_stats before = r->dev->far->read_replay(r->dev, r->q);
    for (int i = 0; i < n; i++) {
        const double start = bench_now();
        if (by == ANEW) r->dev->far->trim_replay(r->dev, r->q);
        df_buffer *root = run(r, by == NOTHING ? 0 : i % 2);
        host[i] = (bench_now() - start) * 1e6;
        wait(r);
        all[i] = (bench_now() - start) * 1e6;
        df_buffer_drop(&root);
    }
    const df_replay_stats after = r->dev->far->read_replay(r->dev, r->q);
    close_way(r);
    return (timing){ .host = bench_median(host, (size_t)n),
                     .all = bench_median(all, (size_t)n),
                     .why = amiss(r, by, (uint64_t)n, &before, &after) };
}

/* ---- rows ---- */

static void row(bench *b, uint32_t n, const char *what, const timing *x, const char *reference,
                const timing *y, bench_goal kind, double goal)
{
    char label[64];
    snprintf(label, sizeof label, "%u kernel%s, %s", n, n == 1 ? "" : "s", what);
    if (x->why || y->why)
        bench_row_without(b, label, x->host, "us/step", reference, x->why ? x->why : y->why, goal);
    else
        bench_row(b, label, x->host, "us/step", reference, y->host, kind, goal);
}

static void row_to_end(bench *b, uint32_t n, const timing *table, const timing *nodes, bool pays)
{
    timing x = *table, y = *nodes;
    x.host = x.all;
    y.host = y.all;
    row(b, n, "table, to its end", &x, "node updates, to their end", &y,
        pays ? BENCH_RATIO_AT_MOST : BENCH_RATIO_AT_LEAST, 1);
}

static void rows(bench *b, uint32_t n, const timing t[N_WAYS])
{
    const bool pays = n >= DF_CUDA_TABLE_FROM; /* so it is said there */
    const timing *const cheaper = t[TABLE].host < t[NODES].host ? &t[TABLE] : &t[NODES];
    row(b, n, "nothing changed", &t[NOTHING], "plain launches", &t[PLAIN], BENCH_RATIO_AT_MOST, 1);
    row(b, n, "node updates", &t[NODES], "plain launches", &t[PLAIN], BENCH_RATIO_AT_MOST, 1);
    row(b, n, "table", &t[TABLE], "node updates", &t[NODES],
        pays ? BENCH_RATIO_AT_MOST : BENCH_RATIO_AT_LEAST, 1);
    row_to_end(b, n, &t[TABLE], &t[NODES], pays);
    row(b, n, "recorded anew", &t[ANEW], "node updates", &t[NODES], BENCH_RATIO_AT_LEAST, 1);
    row(b, n, "as chosen", &t[CHOSEN], "the cheaper of both", cheaper, BENCH_RATIO_AT_MOST, 1.25);
}

/* first: the number of kernels from which on the table was cheaper; 0: it was not with the most. */
static void crossover(bench *b, const char *label, uint32_t first)
{
    if (first > 0)
        bench_row(b, label, first, "kernels", "DF_CUDA_TABLE_FROM", DF_CUDA_TABLE_FROM,
                  BENCH_RATIO_AT_MOST, 2);
    else
        bench_row_without(b, label, 0, "kernels", "DF_CUDA_TABLE_FROM", "not with the most", 2);
}

/* ---- the whole ---- */

static void see(uint32_t *first, uint32_t n, bool is_cheaper)
{
    if (!is_cheaper)
        *first = 0;
    else if (!*first)
        *first = n;
}

static void measure_step(bench *b, rig *r, uint32_t n, uint32_t first[2])
{
    timing t[N_WAYS];
    df_arena_init(&r->arena, &df_mem_system);
    make_plan(r, n);
    r->n_kernels = n;
    /* The plan remembers that it goes by table: that is measured last. */
    for (way by = 0; by < N_WAYS; by++) t[by] = measure(r, by, b->quick ? STEPS_QUICK : MOST_STEPS);
    rows(b, n, t);
    see(&first[0], n, t[TABLE].host < t[NODES].host);
    see(&first[1], n, t[TABLE].all < t[NODES].all);
    r->dev->release(r->dev, r->plan);
    df_plan_destroy(&r->plan, &df_mem_system);
    df_arena_finish(&r->arena);
}

void bench_graph_updates(bench *b)
{
    static const uint32_t kernels[] = { 1, 4, 10, 16, 32, 100, 500 }, few[] = { 1, 10 };
    static const df_gpu_request wish = { .size = sizeof wish };
    const uint32_t *const list = b->quick ? few : kernels;
    const size_t n = b->quick ? DF_LEN(few) : DF_LEN(kernels);
    const char *const before = getenv("DEFT_CUDA_TABLE");
    char *const theirs = before ? strdup(before) : NULL;
    uint32_t first[2] = { 0, 0 };
    df_diag d = { 0 };
    rig r = { 0 };
    if (df_cuda_create(&d, &df_mem_system, NULL, &wish, &r.dev) != DEFT_OK) {
        fprintf(stderr, "graph_updates: not measured: %s\n", d.text);
        free(theirs);
        return;
    }
    for (size_t i = 0; i < n; i++) measure_step(b, &r, list[i], first);
    crossover(b, "the table is cheaper from", first[0]);
    crossover(b, "and to its end", first[1]);
    set_table(theirs);
    free(theirs);
    r.dev->far->destroy(&r.dev);
}
