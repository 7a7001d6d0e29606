/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides in which part each node of a trace with control is computed. Three steps:
 *
 *   level   the earliest part. A node that depends on no result of a unit (loop or group of
 *           branches) has level 0. A node that depends on the result of a unit of level k has at
 *           least level k + 1. Run part k computes nodes of level k. Units of level k stand between
 *           run parts k and k + 1.
 *   home    the assigned part. Every node moves down to the part just before its first reader. So
 *           it fuses with that reader, and takes no memory before. A node that only one branch
 *           reads moves into that branch, and is not computed when the other one is taken.
 *   last    a root that replaces an input moves to the last part, with the elementwise operations
 *           that only such roots need. The last part may write over what it replaces
 *           (runtime/flow.h).
 */
#include "fuser/control/outline.h"

#include <string.h>

/* ---- levels ---- */

/* Conds that follow each other and have the same condition are one group. So a node that several of
 * them need, on the same side, still belongs to one branch alone. Returns the node after the group
 * that begins at n. */
static uint32_t group_end(const outline *o, uint32_t n)
{
    uint32_t end = n + 1;
    for (; end < o->t->n_nodes && df_is_outer_cond(o, end); end++) {
        if (df_at(o, end)->src[0].i != df_at(o, n)->src[0].i) break;
        bool apart = true;
        for (uint32_t s = 1; s < 3; s++) apart &= df_at(o, end)->src[s].i < n;
        if (!apart) break;
    }
    return end;
}

static void find_levels(outline *o)
{
    const df_trace *const t = o->t;
    for (uint32_t n = 0; n < t->n_nodes; n++) {
        const uint32_t loop = df_outline_top_of(o, n), ended = df_ended_loop(o, n);
        uint32_t level = 0;
        if (!o->live[n]) continue;
        for (uint32_t s = 0; s < df_at(o, n)->n_src; s++) {
            const uint32_t src = df_at(o, n)->src[s].i;
            if (df_outline_top_of(o, src) == DF_NONE) df_raise(&level, o->level[src]);
        }
        if (loop != DF_NONE)
            df_raise(&o->loop_level[loop], level);
        else if (ended != DF_NONE)
            o->level[n] = o->loop_level[ended] + 1;
        else
            o->level[n] = level;
        df_raise(&o->n_levels, o->level[n] + 1);
        if (!df_is_outer_cond(o, n) || o->group[n] != DF_NONE) continue;
        const uint32_t end = group_end(o, n);
        for (uint32_t m = n; m < end; m++)
            for (uint32_t s = 0; s < 3; s++) df_raise(&level, o->level[df_at(o, m)->src[s].i]);
        for (uint32_t m = n; m < end; m++) {
            o->group[m] = n;
            o->level[m] = level + 1;
        }
        df_raise(&o->n_levels, level + 2);
        n = end - 1;
    }
}

/* ---- homes ---- */

/* The number of the last run part that can compute something for a reader at w. */
static uint32_t level_of(const outline *o, where w)
{
    return w.kind == IN_SIDE ? o->level[w.at] - 1 : w.at;
}

/* Adds a reader at w to the assigned part *to: two different readers meet in the run part before
 * both. */
static void demand(const outline *o, where *to, where w)
{
    if (to->kind == NOWHERE) {
        *to = w;
    } else if (!df_same_where(*to, w)) {
        const uint32_t a = level_of(o, *to), b = level_of(o, w);
        *to = df_in_run(a < b ? a : b);
    }
}

/* Adds n, computed at w, as a reader of its operands. */
static void demand_sources(outline *o, uint32_t n, where w)
{
    for (uint32_t s = 0; s < df_at(o, n)->n_src; s++) {
        const uint32_t src = df_at(o, n)->src[s].i;
        if (df_outline_top_of(o, src) == DF_NONE) demand(o, &o->home[src], w);
    }
}

/* The same for a group of branches. Its sides read values, and the group reads the condition. */
static void demand_group(outline *o, uint32_t first, uint32_t last)
{
    where home = { NOWHERE, 0, 0 };
    for (uint32_t n = first; n <= last; n++)
        if (o->live[n]) demand(o, &home, o->home[n]);
    for (uint32_t n = first; n <= last; n++) {
        if (!o->live[n]) continue;
        o->home[n] = home;
        if (home.kind == IN_SIDE) {
            demand_sources(o, n, home);
            continue;
        }
        demand(o, &o->home[df_at(o, n)->src[0].i], df_in_run(o->level[first] - 1));
        for (uint32_t s = 1; s < 3; s++)
            demand(o, &o->home[df_at(o, n)->src[s].i], (where){ IN_SIDE, first, s - 1 });
    }
}

static void find_homes(outline *o)
{
    const df_trace *const t = o->t;
    for (uint32_t r = 0; r < t->n_roots; r++)
        demand(o, &o->home[t->roots[r].node], df_in_run(o->level[t->roots[r].node]));
    for (uint32_t n = t->n_nodes; n-- > 0;) {
        const uint32_t loop = df_outline_top_of(o, n), ended = df_ended_loop(o, n);
        if (df_is_outer_cond(o, n)) {
            const uint32_t first = o->group[n];
            if (first == DF_NONE) continue; /* dead, as is its group */
            demand_group(o, first, n);
            n = first;
        } else if (!o->live[n]) {
            continue;
        } else if (loop != DF_NONE) {
            const where h = o->loop_home[loop];
            demand_sources(o, n, h.kind == IN_SIDE ? h : df_in_run(o->loop_level[loop]));
        } else if (ended != DF_NONE) {
            demand(o, &o->loop_home[ended], o->home[n]);
        } else {
            demand_sources(o, n, o->home[n]);
        }
    }
}

/* A call writes all its results at once, so they are in its part. */
static void join_results(outline *o)
{
    for (uint32_t n = 0; n < o->t->n_nodes; n++)
        if (o->live[n] && df_at(o, n)->op == DF_OP_result)
            o->home[n] = o->home[df_at(o, n)->src[0].i];
}

/* ---- the last part ---- */

/* In move_replacements: the readers of a node. */
enum { READ_BY_MOVED = 1, READ_BY_OTHERS = 2 };

/* Uses o->at for the readers of each node. */
static void move_replacements(outline *o)
{
    const df_trace *const t = o->t;
    uint32_t *const readers = o->at;
    memset(readers, 0, t->n_nodes * sizeof *readers);
    for (uint32_t r = 0; r < t->n_roots; r++)
        readers[t->roots[r].node] |=
            o->donor_of[t->roots[r].node] == DF_NONE ? READ_BY_OTHERS : READ_BY_MOVED;
    for (uint32_t n = t->n_nodes; n-- > 0;) {
        if (!o->live[n]) continue;
        const bool moves = readers[n] == READ_BY_MOVED && df_op_is_map((df_op)df_at(o, n)->op) &&
                           df_outline_top_of(o, n) == DF_NONE && o->home[n].kind == IN_RUN;
        if (moves) o->home[n] = df_in_run(o->n_levels - 1);
        for (uint32_t s = 0; s < df_at(o, n)->n_src; s++)
            readers[df_at(o, n)->src[s].i] |= moves ? READ_BY_MOVED : READ_BY_OTHERS;
    }
}

void df_outline_assign_parts(outline *o)
{
    find_levels(o);
    find_homes(o);
    join_results(o);
    if (o->last_replaces) move_replacements(o);
}
