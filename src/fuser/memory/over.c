/* SPDX-License-Identifier: Apache-2.0
 *
 * Values over operands. A value that is first live at the peak is stored over an operand that is
 * live there for the last time. Its group must read just the element of the operand that it writes.
 *
 *   launch    4      5      6
 *             g -> u -> h -> v -> r      at launch 5, u and v take the memory of one
 *
 * It costs no time, so it is done wherever it lowers the peak enough. Under a bound on temporaries,
 * each value may be given up by itself only while it is stored by itself. So values are stored over
 * operands after each choice of keep.c, and apart again when that is not within the bound.
 */
#include "fuser/memory/keep.h"

/* Whether every group but that of v reads val u in an earlier launch, and that of v reads just the
 * element that it writes. */
static bool ends_with(pass *p, val_id u, val_id v)
{
    const group_id g = val_at(p, v)->group;
    for (load_id l = val_at(p, u)->readers; !IS_NONE(l); l = load_at(p, l)->next) {
        const load x = *load_at(p, l);
        if (same_group(x.group, g) ? !df_hazard_same_address(p, &x, u, v)
                                   : group_at(p, x.group)->level >= group_at(p, g)->level)
            return false;
    }
    return true;
}

static int64_t bytes_of(const keeper *k, val_id v)
{
    return k->bytes.at[val_at(k->p, v)->place.i];
}

/* The operand over which val v may be stored, or DF_NONE. At other sizes the two may differ in
 * bytes. That does no harm, because their region holds either. */
static val_id operand_under(const keeper *k, val_id v)
{
    pass *const p = k->p;
    const storage *const q = place_at(p, val_at(p, v)->place);
    const group *const g = group_at(p, val_at(p, v)->group);
    for (uint32_t i = 0; i < g->n_items; i++) {
        const val_id u = g->items[i].val;
        if (g->items[i].kind != IT_LOAD || IS_NONE(u) || !df_keep_is_alone(p, u)) continue;
        const storage *const r = place_at(p, val_at(p, u)->place);
        if (r->unused || r->last != q->first) continue;
        if (node_of(p, r->node)->dtype != node_of(p, q->node)->dtype) continue;
        if (bytes_of(k, u) == bytes_of(k, v) && ends_with(p, u, v)) return u;
    }
    return NO_VAL;
}

/* Whether u is stored over another value, or another one over it. */
static bool is_paired(const pass *p, place_id u)
{
    for (place_id q = { 0 }; q.i < p->places.n; q.i++)
        if (same_place(place_at(p, q)->over, u)) return true;
    return !IS_NONE(place_at(p, u)->over);
}

/* Whether val v may be stored over an operand for its size, and for the launch at which it is first
 * live. */
static bool pays_over(const keeper *k, val_id v)
{
    const int64_t bytes = df_region_rounded(bytes_of(k, v));
    const df_limits *const l = k->p->lim;
    if (bytes == 0 || l->saves_all) return bytes > 0;
    return bytes >= l->over_bytes && bytes >= df_keep_least_gain(k) &&
           place_at(k->p, val_at(k->p, v)->place)->first == k->peak;
}

val_id df_keep_store_over(keeper *k, val_id *under)
{
    pass *const p = k->p;
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        const place_id q = val_at(p, v)->place;
        if (!pays_over(k, v) || !df_keep_is_alone(p, v) || !df_keep_is_temporary(p, q) ||
            is_paired(p, q))
            continue;
        *under = operand_under(k, v);
        if (IS_NONE(*under) || is_paired(p, val_at(p, *under)->place)) continue;
        df_keep_count_place(k, q, -1);
        place_at(p, q)->over = val_at(p, *under)->place;
        df_keep_count_place(k, q, 1);
        return v;
    }
    return NO_VAL;
}

void df_keep_store_apart(keeper *k)
{
    for (place_id q = { 0 }; q.i < k->p->places.n; q.i++) {
        if (IS_NONE(place_at(k->p, q)->over)) continue;
        df_keep_count_place(k, q, -1);
        place_at(k->p, q)->over = NO_PLACE;
        df_keep_count_place(k, q, 1);
    }
}

void df_keep_explain_over(pass *p)
{
    for (place_id q = { 0 }; q.i < p->places.n && p->lim->keep_why; q.i++) {
        const storage *const w = place_at(p, q);
        if (IS_NONE(w->over)) continue;
        const df_slot numel = df_fuse_numel(p, w->node);
        const size_t size = deft_dtype_size((deft_dtype)node_of(p, w->node)->dtype);
        if (p->st != DEFT_OK) return;
        df_fuse_why(p, w->node, place_at(p, w->over)->node, "stored over it",
                    "%lld bytes, at launch %u", (long long)p->now.at[numel.i] * (long long)size,
                    w->first);
    }
}
