/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches: the launch of a group is the length of the longest path of edges that leads to it. All
 * groups of one launch depend on earlier launches only, whatever their sizes and kinds. Within a
 * launch they keep the order in which they were made, which follows the trace.
 *
 * The last launch is often a single scalar, such as the mean of a loss, reduced from the rows of a
 * kernel. The order of its reduction needs all rows, so it cannot be folded into that kernel. But
 * it is little work, and waking threads for it would take longer. So it joins the launch before and
 * runs when the other groups of that launch have ended (group.after).
 *
 * A step that fails must leave everything as it was. While an index may still be out of range,
 * results are not stored over what they replace. So it matters which launch has the last check. A
 * lookup that is computed several times, as in a backward pass, counts in the first launch that
 * computes all of its elements.
 */
#include "base/limits.h"
#include "fuser/fuse.h"

deft_status df_fuse_launches(pass *p)
{
    const uint32_t n = (uint32_t)p->groups.n;
    for (group_id g = { 0 }; g.i < n; g.i++) {
        group_at(p, g)->level = 0;
        group_at(p, g)->n_before = 0;
    }
    for (group_id g = { 0 }; g.i < n; g.i++)
        for (uint32_t e = group_at(p, g)->first_edge; e != DF_NONE; e = p->edges.at[e].next)
            group_at(p, p->edges.at[e].to)->n_before++;
    p->group_stack.n = 0;
    if (!df_vec_reserve(p->mem, &p->group_stack, n + 1)) return df_fail_mem(p->diag, "fuser", n);
    for (group_id g = { n }; g.i-- > 0;)
        if (group_at(p, g)->n_before == 0) p->group_stack.at[p->group_stack.n++] = g;
    uint32_t n_done = 0;
    p->n_levels = 0;
    while (p->group_stack.n > 0) {
        const group_id g = p->group_stack.at[--p->group_stack.n];
        const uint32_t level = group_at(p, g)->level + 1;
        n_done++;
        if (level > p->n_levels) p->n_levels = level;
        for (uint32_t e = group_at(p, g)->first_edge; e != DF_NONE; e = p->edges.at[e].next) {
            group *const to = group_at(p, p->edges.at[e].to);
            if (to->level < level) to->level = level;
            if (--to->n_before == 0) p->group_stack.at[p->group_stack.n++] = p->edges.at[e].to;
        }
    }
    if (n_done != n) return df_fail(p->diag, DEFT_E_INTERNAL, "fuser: kernels wait for each other");
    return DEFT_OK;
}

/* Whether g is a kernel that reduces at most one block of elements to a single element. */
static bool is_little(pass *p, const group *g)
{
    bool rows = g->kind != DF_SEG_KERNEL || !g->has_red || g->checks;
    for (uint32_t l = 0; l < g->sp.n; l++) rows |= !g->sp.red[l] && g->sp.cls[l] != CLS_ONE;
    if (rows) return false;
    const df_slot total = df_space_total(p, &g->sp); /* may move p->now */
    return p->now.at[total.i] <= DF_BLOCK;
}

void df_fuse_tail(pass *p)
{
    if (p->n_levels < 2 || p->st != DEFT_OK) return;
    const uint32_t last = p->n_levels - 1;
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++)
        if (group_at(p, g)->level == last && !is_little(p, group_at(p, g))) return;
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        group *const w = group_at(p, g);
        if (w->level != last) continue;
        df_fuse_guard_slot(p, DF_GUARD_at_most, df_space_total(p, &w->sp), DF_BLOCK);
        w->level--;
        w->after = true;
        const df_slot total = df_space_total(p, &w->sp);
        df_fuse_why(p, w->node, w->node, "runs last",
                    "%lld elements are too few to wake threads for", (long long)p->now.at[total.i]);
    }
    p->n_levels--;
}

/* ---- checks ---- */

typedef struct lookups {
    uint32_t *first; /* per node: the first launch that computes all elements of this lookup, and so
                        checks all its indices; DF_NONE: none does */
    uint32_t *take;  /* per node: the last take that has it as indices, or DF_NONE */
    uint32_t *next;  /* per take: the previous take with the same indices, or DF_NONE */
} lookups;

static bool lookups_make(pass *p, lookups *l)
{
    const uint32_t n = p->t->n_nodes;
    l->first = df_arena_new(&p->tmp, uint32_t, n + 1);
    l->take = df_arena_new(&p->tmp, uint32_t, n + 1);
    l->next = df_arena_new(&p->tmp, uint32_t, n + 1);
    return l->first && l->take && l->next;
}

static void find_takes(pass *p, lookups *l)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++) l->take[n] = DF_NONE;
    for (uint32_t n = 0; n < p->t->n_nodes; n++) {
        const df_node *const take = node_of(p, n);
        if (take->op != DF_OP_take) continue;
        l->next[n] = l->take[take->src[1].i];
        l->take[take->src[1].i] = n;
    }
}

/* Finds for each lookup the first launch that computes it in full. */
static void find_first_whole(pass *p, uint32_t *first)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++) first[n] = DF_NONE;
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        const group *const w = group_at(p, g);
        for (uint32_t i = 0; i < w->n_items; i++) {
            const item *const it = &w->items[i];
            if (it->kind == IT_TAKE && w->level < first[it->node] &&
                df_map_is_full(p, w, it->map, it->node))
                first[it->node] = w->level;
        }
    }
}

/* Whether an earlier launch looks up all rows at the indices of g, in a table of the same length.
 * Then the indices are checked already. The gradient of a lookup is of this kind. */
static bool was_looked_up(pass *p, const group *g, const lookups *l)
{
    const df_node *const add = node_of(p, g->node);
    if (!df_op_scatters_slices((df_op)add->op)) return false;
    const uint32_t cls = df_fuse_cls(p, g->node, add->attr);
    for (uint32_t n = l->take[add->src[1].i]; n != DF_NONE; n = l->next[n]) {
        const df_node *const take = node_of(p, n);
        if (l->first[n] < g->level && take->attr == add->attr &&
            df_fuse_cls(p, take->src[0].i, take->attr) == cls)
            return true;
    }
    return false;
}

deft_status df_fuse_checked(pass *p)
{
    if (!p->has_checks) return p->st;
    lookups l;
    if (!lookups_make(p, &l)) return df_fail_mem(p->diag, "fuser", p->t->n_nodes * sizeof *l.first);
    find_first_whole(p, l.first);
    find_takes(p, &l);
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        const group *const w = group_at(p, g);
        if (w->kind == DF_SEG_ROUTINE && w->checks && w->level >= p->n_checked &&
            !was_looked_up(p, w, &l))
            p->n_checked = w->level + 1;
        for (uint32_t i = 0; i < w->n_items; i++) {
            if (w->items[i].kind != IT_TAKE) continue;
            const uint32_t done = l.first[w->items[i].node], in = done < w->level ? done : w->level;
            if (in >= p->n_checked) p->n_checked = in + 1;
        }
    }
    return p->st;
}
