/* SPDX-License-Identifier: Apache-2.0
 *
 * Long random programs on graph trees: variants, generations, trims, failures of the device, with
 * random bounds. After each action every output that is held is compared with an oracle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/tree_world.h"

enum { PROGRAM = 2000 };

static uint64_t state;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* 0, the default, half of the time. */
static uint32_t bound(uint32_t most)
{
    return draw(2) ? 0 : 1 + draw(most);
}

static df_tree_options draw_options(void)
{
    return (df_tree_options){ .warm_after = bound(3),
                              .max_variants = bound(4),
                              .learn_after = bound(5),
                              .max_nodes = bound(40),
                              .max_graph_bytes = 100 * (uint64_t)bound(30),
                              .max_pool_bytes = 1024 * (uint64_t)bound(20),
                              .window = bound(64),
                              .pause = bound(100),
                              .max_path = bound(10) };
}

/* A step as programs have them, its calls in the same order but for now and then one. */
typedef struct program {
    uint32_t fn[8], variant[8], n, at;
    uint32_t n_variants, drops, strays; /* the latter in percent */
} program;

static void draw_program(program *p)
{
    *p = (program){ .n = 1 + draw(8), .n_variants = 1 + draw(draw(3) ? 2 : 12) };
    p->drops = 10 + draw(60);
    p->strays = draw(3) ? draw(4) : 50;
    for (uint32_t i = 0; i < p->n; i++) p->fn[i] = draw(8), p->variant[i] = draw(p->n_variants);
}

static void call(world *w, const program *p)
{
    const bool astray = draw(100) < p->strays;
    const uint32_t fn = astray ? draw(8) : p->fn[p->at];
    const uint32_t variant = astray ? draw(p->n_variants) : p->variant[p->at];
    /* What a call makes is a function of its identity. */
    const uint64_t bytes[WORLD_OUTS] = { 8 * (fn + 1) + 256 * variant, 512, 8 * variant, 3000 };
    w->fail_at = draw(80) == 0 ? w->device_calls + 1 + draw(3) : 0;
    const deft_status st = world_call_sized(w, fn, variant, fn % 3 ? 300 * fn * (variant + 1) : 0,
                                            (fn + variant / 2) % (WORLD_OUTS + 1), bytes, fn == 7);
    if (st != DEFT_OK && !w->fail_at) world_wrong(w, "a call failed", fn, st);
    w->fail_at = 0;
}

static void act(world *w, program *p)
{
    if (draw(100) < p->drops) {
        world_drop(w, (int)draw((uint32_t)w->n_held + 1));
    } else if (p->at < p->n) {
        call(w, p);
        p->at++;
    } else {
        df_tree_begin(w->t);
        p->at = 0;
        for (int most = (int)draw(6); w->n_held > most;) world_drop(w, (int)draw(2) - 1);
        if (draw(500) == 0) df_tree_trim(w->t);
    }
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    const uint64_t n_actions = quick ? 100000 : 5000000;
    uint64_t by_action[5] = { 0 }, wrong = 0;
    for (uint64_t done = 0; done < n_actions && !wrong; done += PROGRAM) {
        world w;
        state = done;
        const df_tree_options o = draw_options();
        if (!world_open(&w, &df_mem_system, &o)) return 99;
        w.pool_limit = draw(3) ? 0 : 256 * (uint64_t)(1 + draw(60));
        program p;
        draw_program(&p);
        for (int i = 0; i < PROGRAM && !w.wrong; i++) {
            act(&w, &p);
            world_check(&w);
        }
        const df_tree_stats s = df_tree_read(w.t);
        for (int i = 0; i < 5; i++) by_action[i] += s.by_action[i];
        if (o.max_nodes && s.n_nodes > o.max_nodes) world_wrong(&w, "nodes", s.n_nodes, 0);
        if (o.max_graph_bytes && s.graph_bytes > o.max_graph_bytes)
            world_wrong(&w, "bytes of graphs", s.graph_bytes, o.max_graph_bytes);
        if (o.max_pool_bytes && s.pool_bytes > o.max_pool_bytes)
            world_wrong(&w, "bytes of the pool", s.pool_bytes, o.max_pool_bytes);
        world_close(&w);
        if (w.n_graphs || w.n_own || w.backed) world_wrong(&w, "a leak", 0, 0);
        if (w.wrong) printf("program %llu: %s\n", (unsigned long long)done, w.first_wrong);
        wrong += w.wrong;
    }
    printf("%llu actions: plain %llu record %llu replay %llu place %llu reshape %llu; %llu wrong\n",
           (unsigned long long)n_actions, (unsigned long long)by_action[0],
           (unsigned long long)by_action[1], (unsigned long long)by_action[2],
           (unsigned long long)by_action[3], (unsigned long long)by_action[4],
           (unsigned long long)wrong);
    return wrong != 0;
}
