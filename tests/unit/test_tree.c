/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees: what the policy promises, one behaviour at a time.
 */
#include "unit/tree_steps.h"

Test(tree, warms_up_records_replays)
{
    OPEN(w, .warm_after = 2);
    repeat_f(&w, 1);
    SAYS(&w, PLAIN, warming);
    repeat_f(&w, 1);
    SAYS(&w, PLAIN, warming);
    repeat_f(&w, 1);
    SAYS(&w, RECORD, first);
    repeat_f(&w, 1);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree, off_is_plain)
{
    OPEN(w, .warm_after = UINT32_MAX);
    repeat_f(&w, 5);
    SAYS(&w, PLAIN, off);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 0);
    close_world(&w);
}

Test(tree, unfit_calls_run_plainly_and_have_a_place_on_the_path)
{
    OPEN(w, 0);
    const uint64_t bytes = 512;
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        cr_assert(world_call_sized(&w, 6, 0, 0, 1, &bytes, true) == DEFT_OK);
        SAYS(&w, PLAIN, unfit);
        call(&w, WORLD_F, 0);
        world_drop_all(&w);
    }
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 2);
    close_world(&w);
}

Test(tree, program_without_generations_is_replayed)
{
    OPEN(w, .max_path = 8);
    for (int i = 0; i < 40; i++) {
        call(&w, WORLD_F, 0);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
    }
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 8);
    close_world(&w);
}

Test(tree, failing_call_is_no_step_on_the_path)
{
    OPEN(w, 0);
    repeat_f(&w, 3);
    df_tree_begin(w.t);
    w.device_calls = 0;
    w.fail_at = 1;
    cr_expect_eq(world_call(&w, WORLD_H, 0), DEFT_E_BACKEND);
    cr_expect_eq(w.n_held, 0);
    w.fail_at = 0;
    call(&w, WORLD_F, 0);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree, gaps_are_filled_before_the_pool_grows)
{
    OPEN(w, 0);
    for (int i = 0; i < 2; i++) {
        world_drop_all(&w);
        df_tree_begin(w.t);
        const uint64_t four[] = { 256, 256, 256, 256 };
        cr_assert(world_call_sized(&w, 4, 0, 0, 4, four, false) == DEFT_OK);
    }
    world_drop(&w, 3);
    world_drop(&w, 1);
    world_drop(&w, 0); /* 512 bytes are free, then 256 held, then 256 free */
    for (int i = 0; i < 2; i++) {
        df_tree_begin(w.t);
        const uint64_t two[] = { 256, 512 };
        cr_assert(world_call_sized(&w, 6, 0, 0, 2, two, false) == DEFT_OK);
    }
    SAYS(&w, RECORD, first);
    cr_expect_eq(w.backed, 1024);
    world_drop(&w, -1);
    world_drop(&w, -1);
    df_tree_begin(w.t);
    cr_assert(world_call_sized(&w, 6, 0, 0, 2, (uint64_t[]){ 256, 512 }, false) == DEFT_OK);
    SAYS(&w, REPLAY, hit); /* on both sides of what is held */
    close_world(&w);
}

Test(tree, learned_output_moves_out_of_an_earlier_node)
{
    OPEN(w, 0);
    /* f's output, when it is held into the next generation, is in the way of h there. */
    for (int i = 0; i < 3; i++) {
        step_f(&w, 0);
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
    }
    for (int i = 0; i < 2; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        SAYS(&w, REPLAY, hit);
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        SAYS(&w, PLACE, held);
        world_drop_all(&w);
        /* so that h lies at the bottom again */
        df_tree_trim(w.t);
        for (int k = 0; k < 2; k++) {
            step_f(&w, 0);
            df_tree_begin(w.t);
            call(&w, WORLD_H, 0);
            world_drop_all(&w);
        }
    }
    cr_expect_eq(df_tree_read(w.t).outside, 1);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    cr_expect_eq(w.held[0].offset, DF_TREE_OUTSIDE);
    df_tree_begin(w.t);
    call(&w, WORLD_H, 0);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree, the_least_recently_used_variant_is_reshaped)
{
    OPEN(w, .max_variants = 2);
    for (int i = 0; i < 3; i++)
        for (uint64_t v = 0; v < 2; v++) step_f(&w, v);
    step_f(&w, 2);
    SAYS(&w, RESHAPE, variants);
    step_f(&w, 1);
    SAYS(&w, REPLAY, hit);
    step_f(&w, 2);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree, variants_of_a_node_learn_together)
{
    OPEN(w, .max_variants = 1, .pause = 1);
    /* Each variant meets the last one's output once before the other comes. */
    for (uint64_t i = 0; i < 12; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, i / 2 % 2);
        if (w.n_held > 1) world_drop(&w, 0);
    }
    cr_expect_eq(df_tree_read(w.t).outside, 1);
    cr_expect_eq(w.held[0].offset, DF_TREE_OUTSIDE);
    close_world(&w);
}

Test(tree, a_variant_with_fewer_outputs_learns_nothing_of_the_last_one)
{
    OPEN(w, .max_variants = 1);
    const uint64_t three[] = { 256, 256, 256 };
    for (int i = 0; i < 3; i++) {
        world_drop_all(&w);
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
        df_tree_begin(w.t);
        cr_assert(world_call_sized(&w, 4, 0, 0, 3, three, false) == DEFT_OK);
    }
    world_drop(&w, 0);
    world_drop(&w, 0); /* the third is held, where h lies */
    df_tree_begin(w.t);
    cr_assert(world_call_sized(&w, 4, 1, 0, 1, three, false) == DEFT_OK);
    SAYS(&w, RESHAPE, variants);
    world_drop(&w, 1);
    df_tree_begin(w.t);
    call(&w, WORLD_H, 0);
    SAYS(&w, PLACE, held);
    close_world(&w);
}

Test(tree, a_child_is_found_under_its_own_parent)
{
    OPEN(w, .max_variants = 200);
    for (int i = 0; i < 3; i++)
        for (uint64_t v = 0; v < 100; v++) {
            df_tree_begin(w.t);
            call(&w, WORLD_F, v);
            call(&w, WORLD_H, 0);
            world_drop_all(&w);
        }
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 200);
    close_world(&w);
}

Test(tree, learning_places_a_graph_anew_once)
{
    OPEN(w, 0);
    repeat_f(&w, 3);
    for (uint64_t v = 0; v < 2; v++)
        for (int i = 0; i < 3; i++) {
            df_tree_begin(w.t);
            call(&w, WORLD_H, v);
            world_drop_all(&w);
        }
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    SAYS(&w, REPLAY, hit);
    for (uint64_t v = 0; v < 2; v++) {
        df_tree_begin(w.t);
        call(&w, WORLD_H, v);
        SAYS(&w, PLACE, held);
    }
    world_drop_all(&w);
    step_f(&w, 0);
    SAYS(&w, PLACE, learned);
    step_f(&w, 0);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree, the_least_recently_used_leaf_goes_first)
{
    OPEN(w, .max_nodes = 4);
    /* root - f0 - h, root - f1, root - f2: four. */
    for (int i = 0; i < 2; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
    }
    step_f(&w, 1);
    step_f(&w, 2);
    step_f(&w, 1);
    step_f(&w, 3); /* h goes, the oldest leaf; f0 is one now, older than all others */
    cr_expect_eq(df_tree_read(w.t).evicted, 1);
    step_f(&w, 4); /* f0 */
    step_f(&w, 5); /* f2 */
    cr_expect_eq(df_tree_read(w.t).evicted, 3);
    step_f(&w, 1);
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 4);
    close_world(&w);
}

Test(tree, the_path_itself_is_never_evicted)
{
    OPEN(w, .max_nodes = 3);
    for (int i = 0; i < 4; i++) {
        df_tree_begin(w.t);
        for (uint64_t v = 0; v < 9; v++) {
            call(&w, WORLD_F, v);
            world_drop_all(&w);
        }
        cr_expect_leq(df_tree_read(w.t).n_nodes, 3);
    }
    close_world(&w);
}

Test(tree, graphs_are_bounded_by_their_bytes)
{
    OPEN(w, .max_graph_bytes = 350);
    for (int i = 0; i < 3; i++)
        for (uint64_t v = 0; v < 3; v++) step_f(&w, v);
    cr_expect_eq(w.n_graphs, 3);
    for (int i = 0; i < 3; i++) step_f(&w, 4);
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(w.n_graphs, 3);
    cr_expect_eq(df_tree_read(w.t).evicted, 1);
    w.graph_bytes = 400;
    for (int i = 0; i < 3; i++) step_f(&w, 5);
    SAYS(&w, PLAIN, no_memory);
    cr_expect_eq(w.n_graphs, 0);
    close_world(&w);
}

Test(tree, pool_without_memory_is_plain)
{
    OPEN(w, .max_pool_bytes = 600);
    repeat_f(&w, 3);
    SAYS(&w, REPLAY, hit);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
    }
    SAYS(&w, PLAIN, no_memory);
    cr_expect_eq(w.backed, 512);
    close_world(&w);
}

/* Memory for plain runs comes before graphs. */
static deft_status short_plain(void *self, df_diag *d, df_tree_call *c)
{
    int *const graphs = self;
    (void)c;
    return *graphs ? df_fail(d, DEFT_E_MEMORY, "%d graphs are in the way", *graphs) : DEFT_OK;
}

static deft_status easy_plain(void *self, df_diag *d, df_tree_call *c)
{
    (void)self, (void)d, (void)c;
    return DEFT_OK;
}

static deft_status easy_record(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                               void **graph, uint64_t *bytes)
{
    (void)d, (void)c, (void)p;
    ++*(int *)self;
    *graph = self;
    *bytes = 1;
    return DEFT_OK;
}

static deft_status easy_replay(void *self, df_diag *d, void *graph, df_tree_call *c,
                               const df_tree_placement *p)
{
    (void)self, (void)d, (void)graph, (void)c, (void)p;
    return DEFT_OK;
}

static void easy_drop(void *self, void *graph)
{
    (void)graph;
    --*(int *)self;
}

static deft_status easy_back(void *self, df_diag *d, uint64_t bytes)
{
    (void)self, (void)d, (void)bytes;
    return DEFT_OK;
}

Test(tree, plain_run_without_memory_gets_that_of_graphs)
{
    int graphs = 0;
    const df_tree_device dev = { &graphs,     short_plain, easy_record,
                                 easy_replay, easy_drop,   easy_back };
    df_diag d = { 0 };
    df_tree *t = NULL;
    cr_assert(df_tree_create(&d, &df_mem_system, &dev, NULL, &t) == DEFT_OK);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(t);
        df_tree_call c = { .fn = 1, .arena_bytes = 1000 };
        cr_assert(df_tree_run(t, &d, &c) == DEFT_OK);
    }
    cr_expect_eq(graphs, 1);
    df_tree_call other = { .fn = 2 };
    cr_expect(df_tree_run(t, &d, &other) == DEFT_OK);
    cr_expect_eq(graphs, 0);
    cr_expect_eq(df_tree_read(t).pool_bytes, 0);
    df_tree_destroy(&t);
    df_tree_destroy(&t);
}

Test(tree, sizes_beyond_all_memory_are_plain)
{
    int graphs = 0;
    const df_tree_device dev = {
        &graphs, easy_plain, easy_record, easy_replay, easy_drop, easy_back
    };
    df_diag d = { 0 };
    df_tree *t = NULL;
    cr_assert(df_tree_create(&d, &df_mem_system, &dev, NULL, &t) == DEFT_OK);
    static const struct {
        uint64_t arena, out[2];
    } sizes[] = { { 0, { UINT64_MAX, 1 } },
                  { UINT64_MAX - 5, { 1, 1 } },
                  { 0, { UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1 } },
                  { UINT64_MAX / 4 + 1, { UINT64_MAX / 4 + 1, UINT64_MAX / 4 + 1 } } };
    for (size_t i = 0; i < 3 * DF_LEN(sizes); i++) {
        df_tree_out out[2] = { { .bytes = sizes[i / 3].out[0] }, { .bytes = sizes[i / 3].out[1] } };
        df_tree_call c = { .fn = i / 3, .arena_bytes = sizes[i / 3].arena, .out = out, .n_out = 2 };
        df_tree_begin(t);
        cr_assert(df_tree_run(t, &d, &c) == DEFT_OK);
        cr_expect_eq(c.action, DF_TREE_PLAIN);
        cr_expect(out[1].offset == DF_TREE_OUTSIDE && out[1].ticket == 0);
    }
    df_tree_destroy(&t);
}

typedef struct listed {
    uint64_t n, number, parents;
} listed;

static void list(void *user, const df_tree_about *a)
{
    listed *const l = user;
    cr_expect_gt(a->node, l->number);
    cr_expect_lt(a->parent, a->node);
    cr_expect(a->has_graph == (a->graph_bytes > 0));
    l->number = a->node;
    l->n++;
    l->parents += a->parent == 0;
}

Test(tree, nodes_are_told_in_order)
{
    OPEN(w, 0);
    for (int i = 0; i < 3; i++)
        for (uint64_t v = 0; v < 3; v++) {
            df_tree_begin(w.t);
            call(&w, WORLD_F, v);
            call(&w, WORLD_H, 0);
            world_drop_all(&w);
        }
    listed l = { 0 };
    df_tree_each(w.t, list, &l);
    cr_expect_eq(l.n, 6);
    cr_expect_eq(l.parents, 3);
    close_world(&w);
}
