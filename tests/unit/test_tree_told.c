/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees: what is told of a call, its node and the tree.
 */
#include "unit/tree_steps.h"

Test(tree_told, a_node_says_what_was_done_for_it)
{
    OPEN(w, 0);
    df_tree_about a;
    cr_expect_not(df_tree_latest(w.t, &a), "nothing has run");
    step_f(&w, 0);
    cr_assert(df_tree_latest(w.t, &a));
    cr_expect(a.node == 1 && a.parent == 0 && a.calls == 1 && a.recordings == 0 && !a.out);
    repeat_f(&w, 2);
    df_tree_begin(w.t);
    cr_expect_not(df_tree_latest(w.t, &a), "a path has begun");
    call(&w, WORLD_F, 0);
    cr_assert(df_tree_latest(w.t, &a));
    cr_expect(a.calls == 4 && a.recordings == 1 && a.replays == 2 && a.placements == 0);
    cr_expect(a.n_out == 1 && a.out[0] == w.held[0].offset && a.out_bytes[0] == w.held[0].bytes);
    df_tree_begin(w.t);
    call(&w, WORLD_F, 0);
    SAYS(&w, PLACE, held);
    cr_assert(df_tree_latest(w.t, &a));
    cr_expect(a.recordings == 1 && a.replays == 3 && a.placements == 1);
    cr_expect(a.out[0] == w.held[1].offset && a.out[0] != w.held[0].offset);
    call(&w, WORLD_H, 0);
    cr_assert(df_tree_latest(w.t, &a));
    cr_expect(a.node == 2 && a.parent == 1 && a.calls == 1);
    close_world(&w);
}

Test(tree_told, a_graph_without_a_place_tells_none)
{
    OPEN(w, 0);
    df_tree_about a;
    repeat_f(&w, 3);
    df_tree_trim(w.t);
    cr_assert(df_tree_latest(w.t, &a));
    cr_expect(!a.has_graph && !a.out && a.recordings == 1);
    close_world(&w);
}

Test(tree_told, the_device_fails_in_one_call_and_is_told_there)
{
    OPEN(w, 0);
    step_f(&w, 0);
    w.fail_record = true;
    step_f(&w, 0);
    SAYS(&w, PLAIN, failed);
    cr_expect(w.last.failed && df_tree_failure(w.t)->status != DEFT_OK);
    step_f(&w, 0);
    SAYS(&w, PLAIN, failed);
    cr_expect_not(w.last.failed, "it was not asked");
    w.fail_record = false;
    w.fail_replay = true;
    for (int i = 0; i < 10 && !w.last.failed; i++) step_f(&w, 0);
    cr_assert(w.last.failed);
    w.fail_replay = false;
    for (int i = 0; i < 10; i++) step_f(&w, 0);
    SAYS(&w, REPLAY, hit);
    cr_expect_not(w.last.failed);
    close_world(&w);
}

Test(tree_told, a_pool_that_is_not_backed_is_a_failure)
{
    OPEN(w, 0);
    w.pool_limit = 1;
    repeat_f(&w, 2);
    SAYS(&w, PLAIN, no_memory);
    cr_expect(w.last.failed);
    close_world(&w);
}

Test(tree_told, a_pool_beyond_its_bound_is_none)
{
    OPEN(w, .max_pool_bytes = 1);
    repeat_f(&w, 2);
    SAYS(&w, PLAIN, no_memory);
    cr_expect_not(w.last.failed);
    close_world(&w);
}

Test(tree_told, trims_and_pauses_are_counted)
{
    OPEN(w, .max_variants = 1, .window = 4, .pause = 6);
    cr_expect_eq(df_tree_read(w.t).trims, 0);
    df_tree_trim(w.t);
    cr_expect_eq(df_tree_read(w.t).trims, 1);
    df_tree_stats s = { 0 };
    for (uint64_t v = 0; s.pauses == 0 && v < 40; v++) {
        step_f(&w, v % 2);
        s = df_tree_read(w.t);
    }
    cr_expect(s.pauses == 1 && s.pause_left == 6);
    step_f(&w, 7);
    SAYS(&w, PLAIN, paused);
    cr_expect_eq(df_tree_read(w.t).pause_left, 5);
    close_world(&w);
}

Test(tree_told, reasons_have_names)
{
    cr_expect_str_eq(df_tree_reason_name(DF_TREE_WHY_hit), "hit");
    cr_expect_str_eq(df_tree_reason_name(DF_TREE_WHY_no_memory), "no_memory");
}

static deft_status plain(void *self, df_diag *d, df_tree_call *c)
{
    (void)self, (void)d, (void)c;
    return DEFT_OK;
}

Test(tree_told, a_call_that_is_used_again_says_what_happens_now)
{
    const df_tree_device dev = { .plain = plain };
    df_diag d = { 0 };
    df_tree *t = NULL;
    cr_assert(df_tree_create(&d, &df_mem_system, &dev, NULL, &t) == DEFT_OK);
    df_tree_call c = { .fn = 1, .failed = true };
    cr_assert(df_tree_run(t, &d, &c) == DEFT_OK);
    cr_expect_not(c.failed);
    df_tree_destroy(&t);
}
