/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of graph trees share: worlds that fail the test, and steps in them.
 */
#ifndef TESTS_TREE_STEPS_H
#define TESTS_TREE_STEPS_H

#include <criterion/criterion.h>

#include "support/tree_world.h"

#define SAYS(w, act, why)                                                                          \
    cr_assert((w)->last.action == DF_TREE_##act && (w)->last.reason == DF_TREE_WHY_##why,          \
              "action %d, %s", (w)->last.action, df_tree_reason_text((w)->last.reason))

#define OPEN(w, ...)                                                                               \
    world w;                                                                                       \
    cr_assert(world_open(&w, &df_mem_system, &(df_tree_options){ __VA_ARGS__ }))

static inline void close_world(world *w)
{
    world_check(w);
    cr_expect(w->wrong == 0, "%s", w->first_wrong);
    world_close(w);
    cr_expect(w->n_graphs == 0 && w->n_own == 0 && w->backed == 0, "%d graphs, %d buffers leak",
              w->n_graphs, w->n_own);
    cr_expect(w->wrong == 0, "%s", w->first_wrong);
}

static inline void call(world *w, world_fn fn, uint64_t variant)
{
    cr_assert(world_call(w, fn, variant) == DEFT_OK);
    world_check(w);
    cr_assert(w->wrong == 0, "%s", w->first_wrong);
}

/* A generation: f, then what is held is dropped. */
static inline void step_f(world *w, uint64_t variant)
{
    df_tree_begin(w->t);
    call(w, WORLD_F, variant);
    world_drop_all(w);
}

static inline void repeat_f(world *w, int n)
{
    for (int i = 0; i < n; i++) step_f(w, 0);
}

#endif
