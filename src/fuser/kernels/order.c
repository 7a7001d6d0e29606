/* SPDX-License-Identifier: Apache-2.0
 *
 * Which group runs before which: edges between groups, and lists of the loads of each memory. A
 * group that loads a val comes after all writers of that val. storage.c adds the edges that writing
 * over old contents needs.
 */
#include "fuser/fuse.h"

/* ---- edges ---- */

void df_fuse_edge(pass *p, group_id from, group_id to)
{
    group *const g = group_at(p, from);
    if (same_group(from, to) || p->st != DEFT_OK) return;
    if (g->first_edge != DF_NONE && same_group(p->edges.at[g->first_edge].to, to)) return;
    const edge e = { .to = to, .next = g->first_edge };
    if (!df_vec_push(p->mem, &p->edges, e)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof e);
        return;
    }
    g->first_edge = (uint32_t)p->edges.n - 1;
}

/* Whether there is an edge between the groups, among the `depth` latest edges of `from`. */
static bool has_edge(const pass *p, group_id from, group_id to, uint32_t depth)
{
    for (uint32_t e = group_at(p, from)->first_edge; e != DF_NONE && depth-- > 0;
         e = p->edges.at[e].next)
        if (same_group(p->edges.at[e].to, to)) return true;
    return false;
}

/* The searches of a pass follow a bounded number of edges together. After that the answer is always
 * true, which may cost a copy somewhere, but never gives a wrong order. */
bool df_fuse_reaches(pass *p, group_id from, group_id to)
{
    if (same_group(from, to)) return true;
    if (has_edge(p, to, from, 8)) return false; /* there are no circles */
    if (p->search_left <= 0) return true;
    if (!p->seen || p->n_seen < p->groups.n) {
        p->n_seen = (uint32_t)p->groups.n * 2;
        p->seen = df_arena_new(&p->tmp, uint32_t, p->n_seen);
        p->seen_mark = 0;
        if (!p->seen) {
            p->st = df_fail_mem(p->diag, "fuser", p->n_seen * sizeof *p->seen);
            return true;
        }
    }
    uint32_t *const seen = p->seen, mark = ++p->seen_mark;
    const size_t bottom = p->group_stack.n;
    if (!df_vec_push(p->mem, &p->group_stack, from)) p->st = df_fail_mem(p->diag, "fuser", 4);
    bool found = false;
    while (p->group_stack.n > bottom && !found && p->st == DEFT_OK) {
        const group_id g = p->group_stack.at[--p->group_stack.n];
        for (uint32_t e = group_at(p, g)->first_edge; e != DF_NONE; e = p->edges.at[e].next) {
            const group_id next = p->edges.at[e].to;
            if (same_group(next, to)) found = true;
            p->search_left--;
            if (seen[next.i] == mark) continue;
            seen[next.i] = mark;
            if (!df_vec_push(p->mem, &p->group_stack, next))
                p->st = df_fail_mem(p->diag, "fuser", 4);
        }
    }
    p->group_stack.n = bottom;
    return found;
}

val_id df_fuse_stored_under(const pass *p, uint32_t node)
{
    while (IS_NONE(p->node_val[node]) && class_of_op(p, node) == DF_CLASS_view)
        node = node_of(p, node)->src[0].i;
    return p->node_val[node];
}

/* Whether group g is among the latest `depth` readers of val v. */
static bool is_reader(const pass *p, val_id v, group_id g, uint32_t depth)
{
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l) && depth-- > 0; l = load_at(p, l)->next)
        if (same_group(load_at(p, l)->group, g)) return true;
    return false;
}

/* Whether update w waits for its base and for all that the base contains. A group that reads the
 * base does. So does one that writes over the base in place, unless one of the two writes is loose.
 * An edge between the groups alone does not say so: the group of w may wait for another val of that
 * group. */
static bool waits_for_chain(const pass *p, const val *w, val_id base)
{
    if (w->loose) return false;
    if (is_reader(p, base, w->group, 8)) return true;
    return !IS_NONE(w->place) && !val_at(p, base)->loose &&
           has_edge(p, val_at(p, base)->group, w->group, 8);
}

/* An update in place also contains what its base was, so the writers of the base count. An update
 * in a place of its own has frames, which wait for the base themselves. Such an update without
 * frames replaces all elements, and may even be computed before its base. As long as places are not
 * chosen, the writers of the base always count. */
void df_fuse_writer_edges(pass *p, val_id v, group_id to)
{
    for (;;) {
        const val *const w = val_at(p, v);
        df_fuse_edge(p, w->group, to);
        for (group_id f = w->frames; !IS_NONE(f); f = group_at(p, f)->next_frame)
            df_fuse_edge(p, f, to);
        if (w->divided) {
            if (IS_NONE(w->over)) return;
            v = w->over;
            continue;
        }
        if (!w->visible || node_of(p, w->node)->op != DF_OP_update) return;
        if (!IS_NONE(w->place) && IS_NONE(w->over)) return; /* memory of its own */
        const val_id base = df_fuse_stored_under(p, node_of(p, w->node)->src[0].i);
        /* A chain whose links wait for each other anyway need not be walked to its end. */
        if (IS_NONE(base) || waits_for_chain(p, w, base)) return;
        v = base;
    }
}

static void add_load(pass *p, load_id *list, load l)
{
    l.next = *list;
    if (!df_vec_push(p->mem, &p->loads, l)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof l);
        return;
    }
    *list = (load_id){ (uint32_t)p->loads.n - 1 };
}

/* Orders the load of group g before updates that are already placed over what it reads: the first
 * one, and those that run beside it. Only frames and copies are added so late, and they wait for
 * nothing that depends on such an update. */
static void before_writers(pass *p, group_id g, val_id over_by)
{
    for (val_id u = over_by; !IS_NONE(u); u = val_at(p, u)->over_by) {
        if (!same_val(u, over_by) && val_at(p, u)->apart == 0 && !val_at(p, u)->loose) return;
        df_fuse_edge(p, g, val_at(p, u)->group);
    }
}

/* Records a load of val v, or of input node `node` when v is DF_NONE. */
static void record_load(pass *p, load l, val_id v, uint32_t node)
{
    const group_id g = l.group;
    if (!IS_NONE(v)) {
        df_fuse_writer_edges(p, v, g);
        before_writers(p, g, val_at(p, v)->over_by);
        add_load(p, &val_at(p, v)->readers, l);
    } else {
        before_writers(p, g, p->in_over[node_of(p, node)->attr]);
        add_load(p, &p->in_readers[node_of(p, node)->attr], l);
    }
}

void df_fuse_record_loads(pass *p, group_id gi)
{
    const group *const g = group_at(p, gi);
    for (uint32_t i = 0; i < g->n_items; i++) {
        const item it = group_at(p, gi)->items[i];
        if (it.kind == IT_LOAD || it.kind == IT_INPUT)
            record_load(p, load_of(gi, i, DF_NONE, it.map), it.val, it.node);
        if (it.kind == IT_TAKE)
            record_load(p, load_of(gi, DF_NONE, DF_NONE, it.base_map), it.val, it.base);
    }
    if (node_of(p, group_at(p, gi)->node)->op == DF_OP_result && !IS_NONE(group_at(p, gi)->product))
        df_fuse_writer_edges(p, p->node_val[node_of(p, group_at(p, gi)->node)->src[0].i], gi);
    for (uint32_t s = 0; s < group_at(p, gi)->n_operands; s++) {
        const group w = *group_at(p, gi);
        record_load(p, load_of(gi, DF_NONE, s, w.mm_map[s]), w.mm_val[s], w.mm_node[s]);
    }
}
