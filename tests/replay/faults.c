/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call of the device fails once, and each allocation of the host, in programs that warm up,
 * record, replay, place anew and reshape. A graph that fails costs speed alone: the call runs
 * plainly; a plain run that fails makes nothing. Nothing leaks, nothing that is held changes, and
 * graphs come back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fail_mem.h"
#include "support/tree_world.h"

/* f, g, h: call; F, G, H: with the next variant; b: begin; o, n: drop the oldest, the newest; a:
 * drop all; t: trim. */
static const char *const programs[] = {
    "bfghabfghabfghabfgha",         "bfbfbfbfbfbfbfoooobfaaabf",
    "bfggnnghobfgghooobfgghabfggh", "bFFFFFFFFbFFFFFFFFbFFFFaFFF",
    "bfghtbfghtabfghbfgh",          "bffffffffhhhhhhhhggggggggaffffffff",
    "bhbhbhnbhobhtbhbhbhabhbh",     "bfHbfHbfHabfHabfHabfH",
};

static const df_tree_options settings[] = {
    { 0 },
    { .max_variants = 2, .max_nodes = 6 },
    { .max_path = 3, .max_graph_bytes = 300 },
    { .window = 4, .pause = 5 },
};

enum { LOOPS = 3, RECOVER = 600 };

static void call(world *w, world_fn fn, uint64_t variant, bool may_fail)
{
    const deft_status st = world_call(w, fn, variant);
    if (st != DEFT_OK && !may_fail) world_wrong(w, "a call failed", fn, st);
}

static void act(world *w, char action, bool may_fail)
{
    switch (action) {
    case 'f': call(w, WORLD_F, 0, may_fail); break;
    case 'g': call(w, WORLD_G, 0, may_fail); break;
    case 'h': call(w, WORLD_H, 0, may_fail); break;
    case 'F': call(w, WORLD_F, w->serial % 4, may_fail); break;
    case 'G': call(w, WORLD_G, w->serial % 4, may_fail); break;
    case 'H': call(w, WORLD_H, w->serial % 4, may_fail); break;
    case 'b': df_tree_begin(w->t); break;
    case 'o': world_drop(w, 0); break;
    case 'n': world_drop(w, -1); break;
    case 'a': world_drop_all(w); break;
    default: df_tree_trim(w->t); break;
    }
    world_check(w);
}

static void run(world *w, const char *program, bool may_fail)
{
    for (int loop = 0; loop < LOOPS; loop++)
        for (const char *p = program; *p; p++) act(w, *p, may_fail);
}

/* All is replayed again, after a pause at most. */
static void recover(world *w)
{
    int in_turn = 0;
    world_drop_all(w);
    for (int i = 0; i < RECOVER && in_turn < 5; i++) {
        const uint64_t before = w->n_launches - w->n_records;
        df_tree_begin(w->t);
        call(w, WORLD_F, 0, false);
        call(w, WORLD_H, 0, false);
        world_check(w);
        world_drop_all(w);
        in_turn = w->n_launches - w->n_records - before == 2 ? in_turn + 1 : 0;
    }
    if (in_turn < 5) world_wrong(w, "graphs do not come back", w->n_launches, w->n_records);
}

static bool finish(world *w, const char *program, const char *what, size_t n)
{
    world_close(w);
    if (w->n_graphs || w->n_own || w->backed) world_wrong(w, "a leak", w->n_own, w->backed);
    if (w->wrong) printf("%s, %s %zu fails: %s\n", program, what, n, w->first_wrong);
    return w->wrong == 0;
}

/* The n-th call of the device fails; false: there are fewer. Plain ones only where asked. */
static bool fail_device(const char *program, const df_tree_options *o, uint64_t n, bool plain,
                        bool *fine)
{
    world w;
    if (!world_open(&w, &df_mem_system, o)) exit(99);
    w.fail_graphs_only = !plain;
    w.fail_at = n;
    run(&w, program, plain);
    const bool failed = w.device_calls >= n;
    if (failed && !plain && df_tree_failure(w.t)->status == DEFT_OK)
        world_wrong(&w, "a failure that is not kept", n, 0);
    w.fail_at = 0;
    recover(&w);
    *fine &= finish(&w, program, plain ? "call" : "graph call", n);
    return failed;
}

static bool fail_host(const char *program, const df_tree_options *o, size_t n, bool keep_failing,
                      bool *fine)
{
    fail_mem *f = fail_mem_create();
    world w;
    fail_mem_at(f, n, keep_failing);
    bool open = world_open(&w, fail_mem_get(f), o);
    if (open) {
        run(&w, program, false);
        recover(&w);
    }
    const bool failed = fail_mem_count(f).failed > 0;
    fail_mem_at(f, 0, false);
    if (!open && world_again(&w, fail_mem_get(f), o)) open = true;
    *fine &= open && finish(&w, program, "allocation", n);
    const fail_mem_counts c = fail_mem_count(f);
    if (c.live_blocks || c.faults)
        printf("%s: %zu blocks leak; %s\n", program, c.live_blocks, fail_mem_fault(f)),
            *fine = false;
    fail_mem_destroy(&f);
    return failed;
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    uint64_t n_device = 0, n_host = 0;
    bool fine = true;
    for (size_t p = 0; p < DF_LEN(programs); p++)
        for (size_t s = 0; s < (quick ? 2 : DF_LEN(settings)); s++) {
            for (int plain = 0; plain < 2; plain++)
                for (uint64_t n = 1;
                     fine && fail_device(programs[p], &settings[s], n, plain, &fine);)
                    n++, n_device++;
            for (size_t n = 1; fine && fail_host(programs[p], &settings[s], n, false, &fine);)
                n++, n_host++;
        }
    printf("%llu calls of the device failed, %llu allocations: %s\n", (unsigned long long)n_device,
           (unsigned long long)n_host, fine ? "all recovered" : "wrong");
    return !fine;
}
