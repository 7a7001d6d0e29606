/* SPDX-License-Identifier: Apache-2.0
 *
 * Every program of up to N actions on a graph tree. After each action every output that is held is
 * compared with an oracle that knows no graphs.
 *
 * The actions: a generation begins and f is called; g; h; the oldest output is dropped; the newest;
 * all graphs are dropped and the pool is trimmed. Each set of options is one row; some begin with
 * paths that are recorded already, since eight actions are few to get there. Under a limit of time
 * (support/budget.h) the programs of a row are drawn from all of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/tree_world.h"

enum { N_ACTIONS = 6, MOST = 8 };

typedef struct setting {
    const char *name;
    df_tree_options o;
    bool recorded;       /* f g h and f h are, and were replayed twice */
    uint32_t n_variants; /* which come by turns */
    int length, quick_length;
    uint64_t pool_limit;
} setting;

static const setting settings[] = {
    { "as it is", { 0 }, false, 1, 8, 6, 0 },
    { "recorded paths", { 0 }, true, 1, 8, 5, 0 },
    { "never learning", { .learn_after = UINT32_MAX }, true, 1, 7, 5, 0 },
    { "warm after 2", { .warm_after = 2 }, false, 1, 7, 5, 0 },
    { "2 nodes", { .max_nodes = 2 }, true, 1, 7, 5, 0 },
    { "paths of 2", { .max_path = 2 }, true, 1, 7, 5, 0 },
    { "3 variants, 2 nodes for them", { .max_variants = 2 }, true, 3, 7, 5, 0 },
    { "2 variants, 1 node for them", { .max_variants = 1 }, true, 2, 7, 5, 0 },
    { "pausing soon", { .window = 2, .pause = 2 }, true, 1, 7, 5, 0 },
    { "graphs of one path", { .max_graph_bytes = 200 }, true, 1, 7, 5, 0 },
    { "a pool of 2 KiB", { .max_pool_bytes = 2048 }, true, 1, 7, 5, 0 },
    { "memory for 1 KiB", { 0 }, true, 1, 7, 5, 1024 },
    { "off", { .warm_after = UINT32_MAX }, false, 1, 6, 4, 0 },
};

typedef struct count {
    uint64_t sequences, actions, by_action[5], wrong;
} count;

static void call(world *w, world_fn fn, uint64_t variant)
{
    if (world_call(w, fn, variant) != DEFT_OK) world_wrong(w, "a call failed", fn, 0);
}

static void act(world *w, int action, uint64_t variant)
{
    switch (action) {
    case 0:
        df_tree_begin(w->t);
        call(w, WORLD_F, variant);
        break;
    case 1: call(w, WORLD_G, variant); break;
    case 2: call(w, WORLD_H, variant); break;
    case 3: world_drop(w, 0); break;
    case 4: world_drop(w, -1); break;
    default: df_tree_trim(w->t); break;
    }
    world_check(w);
}

static void record_paths(world *w)
{
    static const world_fn fns[] = { WORLD_F, WORLD_G, WORLD_H, WORLD_F, WORLD_H };
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < DF_LEN(fns); i++) {
            if (fns[i] == WORLD_F) world_drop_all(w), df_tree_begin(w->t);
            call(w, fns[i], 0);
        }
    world_drop_all(w);
}

static void run(world *w, const setting *s, const int *actions, int n, count *sum)
{
    if (!world_again(w, &df_mem_system, &s->o)) exit(99);
    if (s->recorded) record_paths(w);
    for (int i = 0; i < n; i++) act(w, actions[i], (uint64_t)i % s->n_variants);
    const df_tree_stats st = df_tree_read(w->t);
    if (st.n_graphs != (uint64_t)w->n_graphs) world_wrong(w, "graphs", st.n_graphs, 0);
    if (st.held_bytes > st.pool_bytes) world_wrong(w, "held", st.held_bytes, st.pool_bytes);
    if (st.pool_bytes != w->backed) world_wrong(w, "backed", st.pool_bytes, w->backed);
    for (int i = 0; i < 5; i++) sum->by_action[i] += st.by_action[i];
    sum->sequences++;
    sum->actions += (uint64_t)n;
}

/* All of length n: what is shorter is the beginning of one of them. share: of the test's time, when
 * it is limited, that may be used up at the end. */
static void run_all(world *w, const setting *s, int n, double share, count *sum)
{
    int actions[MOST] = { 0 };
    uint32_t n_all = 1;
    for (int k = 0; k < n; k++) n_all *= N_ACTIONS;
    for (uint32_t i = 0; i < n_all && w->wrong == 0 && (i < 100 || test_time_left(share)); i++) {
        uint32_t which = test_scattered(i, n_all);
        for (int k = n; k-- > 0; which /= N_ACTIONS) actions[k] = (int)(which % N_ACTIONS);
        run(w, s, actions, n, sum);
    }
    if (!w->wrong) return;
    printf("%s: wrong: %s, after", s->name, w->first_wrong);
    for (int k = 0; k < n; k++) printf(" %s", &"f\0g\0h\0o\0n\0t\0"[2 * actions[k]]);
    printf(" or just before (o, n: oldest, newest dropped; t: trim)\n");
    sum->wrong += w->wrong;
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    count all = { 0 };
    world w;
    for (size_t i = 0; i < DF_LEN(settings); i++) {
        const setting *const s = &settings[i];
        count sum = { 0 };
        if (!world_open(&w, &df_mem_system, NULL)) return 99;
        w.pool_limit = s->pool_limit;
        run_all(&w, s, quick ? s->quick_length : s->length, (double)(i + 1) / DF_LEN(settings),
                &sum);
        world_close(&w);
        if (w.n_graphs || w.n_own || w.backed) sum.wrong++, printf("%s: leaks\n", s->name);
        printf(
            "%-32s %8llu sequences; plain %llu record %llu replay %llu place %llu reshape %llu\n",
            s->name, (unsigned long long)sum.sequences, (unsigned long long)sum.by_action[0],
            (unsigned long long)sum.by_action[1], (unsigned long long)sum.by_action[2],
            (unsigned long long)sum.by_action[3], (unsigned long long)sum.by_action[4]);
        all.sequences += sum.sequences;
        all.actions += sum.actions;
        all.wrong += sum.wrong;
    }
    printf("%llu sequences, %llu actions, %llu mismatches\n", (unsigned long long)all.sequences,
           (unsigned long long)all.actions, (unsigned long long)all.wrong);
    return all.wrong != 0;
}
