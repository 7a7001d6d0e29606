/* SPDX-License-Identifier: Apache-2.0
 *
 * The faults that recorded graphs are known for elsewhere, by name: none of them happens here.
 */
#include "unit/tree_steps.h"

Test(tree_faults, held_output_is_overwritten_by_the_next_replay)
{
    OPEN(w, .learn_after = 100);
    repeat_f(&w, 3);
    SAYS(&w, REPLAY, hit);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    for (int i = 0; i < 10; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        SAYS(&w, PLACE, held);
    }
    cr_expect_eq(w.n_held, 11);
    close_world(&w);
}

Test(tree_faults, accumulation_buffer_under_replay)
{
    OPEN(w, 0);
    call(&w, WORLD_G, 0);
    world_drop(&w, 0);
    /* sum = g(sum): each reads what the one before wrote, which is dropped then. */
    for (int i = 0; i < 20; i++) {
        df_tree_begin(w.t);
        const uint64_t bytes = 512;
        cr_assert(world_call_sized(&w, WORLD_G, 7, 256, 1, &bytes, false) == DEFT_OK);
        world_check(&w);
        world_drop(&w, 0);
    }
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree_faults, outputs_are_lost_when_a_generation_begins)
{
    OPEN(w, 0);
    for (int i = 0; i < 3; i++) {
        world_drop_all(&w);
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        call(&w, WORLD_G, 0);
    }
    for (int i = 0; i < 4; i++) df_tree_begin(w.t);
    for (int i = 0; i < w.n_held; i++) cr_expect(df_tree_is_held(w.t, w.held[i].ticket));
    call(&w, WORLD_F, 0);
    call(&w, WORLD_H, 0);
    cr_expect_eq(w.n_held, 5);
    close_world(&w);
}

Test(tree_faults, recording_after_replays_forgets_what_they_hold)
{
    OPEN(w, 0);
    repeat_f(&w, 3);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    call(&w, WORLD_H, 0); /* warming, where f is replayed */
    world_drop_all(&w);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    SAYS(&w, REPLAY, hit);
    call(&w, WORLD_H, 0);
    SAYS(&w, RECORD, first);
    close_world(&w);
}

Test(tree_faults, each_shape_gets_a_graph_without_bound)
{
    OPEN(w, .max_variants = 3, .pause = 10);
    for (int round = 0; round < 3; round++)
        for (uint64_t v = 0; v < 20; v++) step_f(&w, v);
    df_tree_stats s = df_tree_read(w.t);
    cr_expect_eq(s.n_nodes, 3);
    cr_expect_leq(s.n_graphs, 3);
    cr_expect_gt(s.by_action[DF_TREE_RESHAPE], 0);
    for (int i = 0; i < 20; i++) step_f(&w, 5);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree_faults, memory_of_the_pool_is_never_returned)
{
    OPEN(w, 0);
    repeat_f(&w, 3);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        world_drop(&w, -1);
    }
    cr_expect_gt(w.backed, 256);
    df_tree_trim(w.t);
    cr_expect_eq(w.backed, 256, "f's output is held, at the bottom");
    cr_expect_eq(w.n_graphs, 0);
    world_check(&w);
    world_drop_all(&w);
    df_tree_trim(w.t);
    cr_expect_eq(w.backed, 0);
    step_f(&w, 0);
    SAYS(&w, RECORD, first);
    close_world(&w);
}

Test(tree_faults, graphs_need_more_memory_than_without)
{
    OPEN(w, 0);
    for (int i = 0; i < 4; i++) {
        for (uint64_t v = 0; v < 6; v++) {
            df_tree_begin(w.t);
            call(&w, WORLD_F, v);
            call(&w, WORLD_H, v);
            world_drop_all(&w);
        }
    }
    const df_tree_stats s = df_tree_read(w.t);
    const uint64_t f = 256 + 5 * 256, h = 512 + 1024 + 5 * 256;
    cr_expect_eq(s.pool_bytes, f + h);
    cr_expect_eq(s.peak_path_bytes, s.pool_bytes);
    cr_expect_gt(s.separate_bytes, 3 * s.pool_bytes);
    close_world(&w);
}

Test(tree_faults, input_at_another_address_is_recorded_again)
{
    OPEN(w, .learn_after = 100);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_G, 0);
        world_drop_all(&w);
    }
    /* Read from memory outside, and from several places of the pool. */
    for (int i = 0; i < 4; i++) {
        df_tree_begin(w.t);
        for (int k = 0; k <= i; k++) call(&w, WORLD_F, 0);
        for (int k = 0; k < i; k++) world_drop(&w, 0);
        df_tree_begin(w.t);
        call(&w, WORLD_G, 0);
        cr_expect_neq(w.last.action, DF_TREE_RECORD);
        world_drop_all(&w);
    }
    cr_expect_lt(w.n_records, 6);
    close_world(&w);
}

Test(tree_faults, too_many_recordings_and_never_again_a_graph)
{
    OPEN(w, .learn_after = UINT32_MAX, .window = 8, .pause = 20);
    /* Each run finds the last one's output in its way. */
    bool paused = false;
    for (int i = 0; i < 30; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        if (w.n_held > 1) world_drop(&w, 0);
        paused |= w.last.reason == DF_TREE_WHY_paused;
    }
    cr_expect(paused);
    world_drop_all(&w);
    repeat_f(&w, 24);
    SAYS(&w, REPLAY, hit);
    /* And again: it pauses whenever it has to, and never for good. */
    const uint64_t before = w.n_launches;
    for (int i = 0; i < 100; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        if (w.n_held > 1) world_drop(&w, 0);
    }
    cr_expect_gt(w.n_launches, before + 10);
    cr_expect_lt(w.n_launches, before + 50);
    close_world(&w);
}

Test(tree_faults, pause_still_replays_what_fits)
{
    OPEN(w, .learn_after = UINT32_MAX, .window = 4, .pause = 50);
    repeat_f(&w, 3);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        world_drop_all(&w);
    }
    for (int i = 0; w.last.reason != DF_TREE_WHY_paused; i++) {
        cr_assert_lt(i, 40);
        df_tree_begin(w.t);
        call(&w, WORLD_H, 0);
        if (w.n_held > 1) world_drop(&w, 0);
    }
    world_drop_all(&w);
    step_f(&w, 0);
    SAYS(&w, REPLAY, hit);
    step_f(&w, 1); /* new ones have no node, and neither have those behind them */
    SAYS(&w, PLAIN, paused);
    cr_expect_eq(w.last.node, 0);
    call(&w, WORLD_G, 0);
    SAYS(&w, PLAIN, paused);
    close_world(&w);
}

Test(tree_faults, weak_handle_finds_an_output_that_died)
{
    OPEN(w, 0);
    repeat_f(&w, 2);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    const df_tree_ticket dead = w.held[0].ticket;
    cr_expect(df_tree_is_held(w.t, dead));
    world_drop_all(&w);
    cr_expect(!df_tree_is_held(w.t, dead));
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0); /* at the same place */
    cr_expect(!df_tree_is_held(w.t, dead));
    cr_expect(df_tree_is_held(w.t, w.held[0].ticket));
    cr_expect(!df_tree_is_held(w.t, 0));
    close_world(&w);
}

Test(tree_faults, dying_output_is_freed_twice)
{
    OPEN(w, 0);
    repeat_f(&w, 2);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    const df_tree_ticket dead = w.held[0].ticket;
    world_drop_all(&w);
    df_tree_drop(w.t, dead);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0); /* the same slot, the same place */
    df_tree_drop(w.t, dead);
    df_tree_drop(w.t, 0);
    cr_expect(df_tree_is_held(w.t, w.held[0].ticket));
    cr_expect_eq(df_tree_read(w.t).held, 1);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    close_world(&w);
}

Test(tree_faults, warm_up_spreads_to_what_is_recorded)
{
    OPEN(w, 0);
    for (int i = 0; i < 3; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        call(&w, WORLD_G, 0);
        world_drop_all(&w);
    }
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    call(&w, WORLD_H, 0);
    SAYS(&w, PLAIN, warming);
    world_drop_all(&w);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    SAYS(&w, REPLAY, hit);
    call(&w, WORLD_G, 0);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree_faults, output_that_always_escapes_is_placed_anew_forever)
{
    OPEN(w, 0);
    uint64_t places = 0;
    for (int i = 0; i < 50; i++) {
        df_tree_begin(w.t);
        call(&w, WORLD_F, 0);
        if (w.n_held > 1) world_drop(&w, 0);
        if (i == 10) places = df_tree_read(w.t).by_action[DF_TREE_PLACE];
    }
    SAYS(&w, REPLAY, hit);
    const df_tree_stats s = df_tree_read(w.t);
    cr_expect_eq(s.by_action[DF_TREE_PLACE], places);
    cr_expect_leq(places, 3);
    cr_expect_eq(s.outside, 1);
    cr_expect_eq(w.held[0].offset, DF_TREE_OUTSIDE);
    close_world(&w);
}

Test(tree_faults, equal_variant_of_other_sizes_is_replayed)
{
    OPEN(w, 0);
    for (int i = 0; i < 3; i++)
        for (uint64_t k = 0; k < 4; k++) {
            const uint64_t bytes = 256 << (k & 1), arena = 1024 << (k >> 1);
            df_tree_begin(w.t);
            cr_assert(world_call_sized(&w, 4, 9, arena, 1, &bytes, false) == DEFT_OK);
            world_check(&w);
            world_drop_all(&w);
        }
    SAYS(&w, REPLAY, hit);
    cr_expect_eq(df_tree_read(w.t).n_nodes, 4);
    close_world(&w);
}

Test(tree_faults, step_that_fails_to_record_fails)
{
    OPEN(w, 0);
    w.fail_record = true;
    repeat_f(&w, 2);
    SAYS(&w, PLAIN, failed);
    cr_expect_eq(df_tree_failure(w.t)->status, DEFT_E_BACKEND);
    cr_expect_str_eq(df_tree_failure(w.t)->text, "no recording");
    w.fail_record = false;
    step_f(&w, 0);
    SAYS(&w, PLAIN, failed); /* not at once */
    step_f(&w, 0);
    SAYS(&w, RECORD, first);
    w.fail_replay = true;
    step_f(&w, 0);
    SAYS(&w, PLAIN, failed);
    cr_expect_eq(w.n_graphs, 0);
    w.fail_replay = false;
    repeat_f(&w, 2);
    SAYS(&w, RECORD, again);
    step_f(&w, 0);
    SAYS(&w, REPLAY, hit);
    close_world(&w);
}

Test(tree_faults, what_fails_is_tried_at_each_call)
{
    OPEN(w, .window = 64);
    w.fail_record = true;
    repeat_f(&w, 2000);
    /* 1, 2, 4, ... 1024 calls apart */
    cr_expect_leq(w.device_calls, 2000 + 12);
    cr_expect_geq(w.device_calls, 2000 + 10);
    close_world(&w);
}
