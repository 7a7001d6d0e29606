/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that can wait: a group runs in the first launch at which its operands are there. Where its
 * results are larger than what it reads, and are read much later, they take memory for nothing. In
 * the training of a language model, the gradient of the words is of this kind. The scores give one
 * half of it early, at the launch with the most live bytes, and the lookup gives the other half in
 * the last launches. Such a group is moved to the last launch before its first reader.
 *
 *   launch    123      124  ...  232      233
 *             g -> v ----------------------> r      v is live from 123 to 233
 *             u -----------------> g -> v -> r      u from 122 to 232, v from 232 on
 *
 * What it reads is then kept longer instead. Groups are moved one by one: of those whose results
 * are live at the peak, the one that lowers it most. No group is moved past one that waits for it,
 * so the order of writes stays, and no result changes. Groups that check indices stay, because
 * results are stored over what they replace only after the last check.
 *
 * Where no group can wait, a value is stored over an operand (over.c). Then the peak may be
 * elsewhere, and other groups can wait.
 */
#include "fuser/memory/keep.h"

/* The last launch in which group g could run. */
static uint32_t last_launch_of(const pass *p, group_id g)
{
    uint32_t last = p->n_levels - 1;
    for (uint32_t e = group_at(p, g)->first_edge; e != DF_NONE; e = p->edges.at[e].next) {
        const uint32_t before = group_at(p, p->edges.at[e].to)->level;
        /* What runs at the end of a launch has an edge from a group of that launch. */
        if (before <= last) last = before > 0 ? before - 1 : 0;
    }
    return last;
}

/* Whether val v begins the live range of a temporary. What is written over it in place comes after
 * launch `to`. */
static bool begins_alone(const pass *p, val_id v, uint32_t to)
{
    const val *const w = val_at(p, v);
    const storage *const q = place_at(p, w->place);
    if (q->unused) return true; /* a product that stays in tiles */
    if (!IS_NONE(q->over) || q->kind != STORAGE_TEMP || w->root != DF_NONE || !w->plain ||
        !IS_NONE(w->frames) || !IS_NONE(w->over))
        return false;
    for (val_id u = w->over_by; !IS_NONE(u); u = val_at(p, u)->over_by)
        if (df_keep_level_of(p, u) <= to || !IS_NONE(val_at(p, u)->frames)) return false;
    return true;
}

static bool may_wait(const pass *p, group_id gi, uint32_t to)
{
    const group *const g = group_at(p, gi);
    if (g->dead || g->frame || g->after || g->checks) return false;
    if (!IS_NONE(g->product) && !begins_alone(p, g->product, to)) return false;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        if (!begins_alone(p, head_at(p, h)->val, to)) return false;
    return true;
}

/* The result of a group that would be stored later. */
static void store_later(keeper *k, val_id v, uint32_t to)
{
    const place_id q = val_at(k->p, v)->place;
    const storage *const w = place_at(k->p, q);
    const int64_t bytes = df_region_rounded(k->bytes.at[q.i]);
    if (!df_keep_is_temporary(k->p, q)) return;
    df_keep_add_range(k, w->first, w->last < to ? w->last : to - 1, -bytes);
    if (w->last < to) df_keep_add_range(k, to, to, bytes); /* only its own group reads it */
}

/* An operand of group g that would be read later. Returns false when there are too many. */
static bool read_later(keeper *k, group_id g, val_id v, uint32_t to)
{
    const pass *const p = k->p;
    if (IS_NONE(v) || same_group(val_at(p, v)->group, g)) return true;
    const place_id q = val_at(p, v)->place;
    return !df_keep_is_temporary(p, q) || place_at(p, q)->last >= to || df_keep_stretch(k, q, to);
}

static bool read_all_later(keeper *k, group_id gi, uint32_t to)
{
    const group *const g = group_at(k->p, gi);
    for (uint32_t i = 0; i < g->n_items; i++) {
        const item *const it = &g->items[i];
        if (it->kind == IT_LOAD && !read_later(k, gi, it->val, to)) return false;
    }
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (!read_later(k, gi, g->mm_val[s], to)) return false;
    return true;
}

/* Tries to move group gi as far as possible: fills in the changes of live bytes. Returns by how
 * many bytes they lower the peak, or 0. */
static int64_t try_group(keeper *k, group_id gi)
{
    const pass *const p = k->p;
    const group *const g = group_at(p, gi);
    const uint32_t to = last_launch_of(p, gi);
    k->n_ranges = k->n_stretches = 0;
    k->full = false;
    /* The call writes the result, at its own time. */
    if (g->kind == DF_SEG_ROUTINE && node_of(p, g->node)->op == DF_OP_result) return 0;
    if (g->level > k->peak || to <= k->peak || !may_wait(p, gi, to)) return 0;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        store_later(k, head_at(p, h)->val, to);
    if (!IS_NONE(g->product)) store_later(k, g->product, to);
    if (!read_all_later(k, gi, to)) return 0;
    df_keep_add_stretches(k);
    int64_t freed = 0;
    for (uint32_t i = 0; i < k->n_ranges; i++)
        if (k->ranges[i].from <= k->peak && k->peak <= k->ranges[i].to) freed -= k->ranges[i].bytes;
    return k->full || freed < df_keep_least_gain(k) || !df_keep_is_lower(k) ? 0 : freed;
}

/* The group that lowers the peak most when it waits; DF_NONE: no group does. */
static group_id best_group(keeper *k)
{
    group_id best = NO_GROUP;
    int64_t most = 0;
    for (group_id g = { 0 }; g.i < k->p->groups.n; g.i++) {
        const int64_t freed = try_group(k, g);
        if (freed <= most) continue;
        most = freed;
        best = g;
    }
    return best;
}

static void start_later(pass *p, val_id v, uint32_t launch)
{
    storage *const q = place_at(p, val_at(p, v)->place);
    q->first = launch;
    if (q->last < launch) q->last = launch;
}

static void postpone(keeper *k, group_id gi)
{
    pass *const p = k->p;
    group *const g = group_at(p, gi);
    const uint32_t from = g->level, to = last_launch_of(p, gi);
    const int64_t freed = try_group(k, gi);
    df_keep_apply_ranges(k, 1);
    for (uint32_t i = 0; i < k->n_stretches; i++)
        place_at(p, k->stretches[i].place)->last = k->stretches[i].to;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        start_later(p, head_at(p, h)->val, to);
    if (!IS_NONE(g->product)) start_later(p, g->product, to);
    g->level = to;
    p->plan->n_postponed++;
    df_fuse_why(p, g->node, g->node, "waits",
                "launch %u instead of %u: %lld bytes less are live at the peak", to, from,
                (long long)freed);
}

/* Stores one value over an operand. The other readers of the operand must stay before its group. */
static bool lower_in_place(keeper *k)
{
    pass *const p = k->p;
    val_id u;
    const val_id v = df_keep_store_over(k, &u);
    for (load_id l = IS_NONE(v) ? NO_LOAD : val_at(p, u)->readers; !IS_NONE(l);
         l = load_at(p, l)->next)
        df_fuse_edge(p, load_at(p, l)->group, val_at(p, v)->group);
    return !IS_NONE(v);
}

static bool lower(keeper *k)
{
    df_keep_find_peak(k);
    const group_id g = best_group(k);
    if (!IS_NONE(g)) postpone(k, g);
    return !IS_NONE(g) || lower_in_place(k);
}

deft_status df_fuse_postpone(pass *p)
{
    deft_status st = DEFT_OK;
    keeper k = { .p = p };
    if (p->n_levels < 2) return DEFT_OK;
    TRY(df_keep_count(&k));
    while (p->st == DEFT_OK && lower(&k)) {
    }
    st = p->st;
done:
    df_keep_finish(&k);
    return st;
}
