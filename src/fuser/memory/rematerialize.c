/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of groups. A copy runs in a later launch than the group. It reads the latest versions of
 * its operands that exist by then, and stores into places of its own. Later readers of the group's
 * values read the values of the copy. Readers up to the launch of the copy keep the group's values.
 */
#include "fuser/memory/keep.h"

static deft_status add_reader(pass *p, val_id v, load l)
{
    l.next = val_at(p, v)->readers;
    if (!df_vec_push(p->mem, &p->loads, l)) return df_keep_no_memory(p);
    val_at(p, v)->readers = (load_id){ (uint32_t)p->loads.n - 1 };
    return DEFT_OK;
}

/* Makes a copied group read the latest version of *u before its launch. Replaces *u by that version
 * and extends its live range. */
static deft_status read_version(keeper *k, load l, val_id *u)
{
    pass *const p = k->p;
    const uint32_t level = group_at(p, l.group)->level;
    *u = df_keep_version_at(k, *u, level);
    const place_id q = val_at(p, *u)->place;
    const uint32_t from = df_keep_free_from(p, q);
    storage *const w = place_at(p, q);
    if (w->kind == STORAGE_TEMP && from <= level) {
        df_keep_add_live(k, from, level, df_region_rounded(k->bytes.at[q.i]));
        w->last = level;
        w->unused = false;
    }
    return add_reader(p, *u, l);
}

/* The same for all that group gi, a copy, reads. */
static deft_status read_versions(keeper *k, group_id gi)
{
    deft_status st = DEFT_OK;
    group *const g = group_at(k->p, gi);
    for (uint32_t i = 0; i < g->n_items; i++) {
        item *const it = &g->items[i];
        if (IS_NONE(it->val)) continue;
        load l = load_of(gi, i, DF_NONE, it->map);
        if (it->kind == IT_LOAD) TRY(read_version(k, l, &it->val));
        if (it->kind != IT_TAKE) continue;
        l.item = DF_NONE;
        l.map = it->base_map;
        TRY(read_version(k, l, &it->val));
    }
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (!IS_NONE(g->mm_val[s]))
            TRY(read_version(k, load_of(gi, DF_NONE, s, g->mm_map[s]), &g->mm_val[s]));
done:
    return st;
}

/* Makes group gi read val `to` instead of val `from`. */
static void rebind(pass *p, group_id gi, val_id from, val_id to)
{
    group *const g = group_at(p, gi);
    for (uint32_t i = 0; i < g->n_items; i++)
        if (same_val(g->items[i].val, from)) g->items[i].val = to;
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (same_val(g->mm_val[s], from)) g->mm_val[s] = to;
}

/* Moves the readers of v after the launch of its copy to the copy. */
static void take_readers(keeper *k, val_id v, val_id copied)
{
    pass *const p = k->p;
    const uint32_t level = df_keep_level_of(p, copied);
    load_id *at = &val_at(p, v)->readers;
    while (!IS_NONE(*at)) {
        load *const l = load_at(p, *at);
        if (group_at(p, l->group)->level <= level) {
            at = &l->next;
            continue;
        }
        const load_id moved = *at;
        rebind(p, l->group, v, copied);
        *at = l->next;
        l->next = val_at(p, copied)->readers;
        val_at(p, copied)->readers = moved;
    }
}

/* Sets the live range of v from its readers, and counts its bytes. */
static void settle_life(keeper *k, val_id v)
{
    pass *const p = k->p;
    storage *const w = place_at(p, val_at(p, v)->place);
    const group *const g = group_at(p, val_at(p, v)->group);
    const readers r = df_keep_readers_of(p, v, UINT32_MAX);
    w->unused =
        same_val(g->product, v) && !IS_NONE(g->first_head) && IS_NONE(val_at(p, v)->readers);
    w->first = df_keep_level_of(p, v);
    w->last = r.early;
    df_keep_count_place(k, val_at(p, v)->place, 1);
}

/* Adds the val that group gi, a copy, computes in place of v. Returns DF_NONE when memory runs
 * out. */
static val_id copy_val(keeper *k, group_id gi, val_id v)
{
    pass *const p = k->p;
    const uint32_t node = val_at(p, v)->node;
    const val_id n = df_fuse_new_val(p, node, false);
    const place_id q = df_fuse_new_place(p, STORAGE_TEMP, 0, node);
    if (p->st != DEFT_OK || df_keep_follow(k) != DEFT_OK) return NO_VAL;
    val *const w = val_at(p, n);
    w->group = gi;
    w->map = val_at(p, v)->map;
    w->place = q;
    w->plain = true;
    k->newer.at[n.i] = k->newer.at[v.i];
    k->newer.at[v.i] = n;
    return n;
}

/* Divides the readers of v between v and its copy, and sets both live ranges. */
static void hand_over(keeper *k, val_id v, val_id copied)
{
    pass *const p = k->p;
    if (df_keep_is_alone(p, v)) {
        df_keep_count_place(k, val_at(p, v)->place, -1);
        take_readers(k, v, copied);
        settle_life(k, v);
    }
    settle_life(k, copied);
}

/* Adds group *out, a copy of a group in the launch c->level, without heads. */
static deft_status copy_group(keeper *k, const copy *c, group_id *out)
{
    pass *const p = k->p;
    const group_id gi = *out = df_fuse_new_group(p, group_at(p, c->group)->kind, 0);
    if (p->st != DEFT_OK) return p->st;
    group *const g = group_at(p, gi);
    *g = *group_at(p, c->group);
    g->level = c->level;
    g->first_head = g->last_head = NO_HEAD;
    g->first_edge = DF_NONE;
    g->next_frame = NO_GROUP;
    g->n_heads = 0;
    g->items =
        df_arena_copy(&p->tmp, g->items, (g->n_items + 1) * sizeof *g->items, _Alignof(item));
    if (!g->items || !df_fuse_own_operands(p, g)) return df_keep_no_memory(p);
    if (c->epilogue) {
        g->kind = DF_SEG_KERNEL;
        g->product = NO_VAL;
        g->n_operands = 0;
    }
    return DEFT_OK;
}

/* Sets the product that the items of a copy read: a tile of its own product, or a stored product.
 */
static void set_tiles(pass *p, group_id gi, val_id product, bool stored)
{
    group *const g = group_at(p, gi);
    for (uint32_t i = 0; i < g->n_items; i++) {
        if (g->items[i].kind != IT_TILE) continue;
        g->items[i].val = product;
        if (stored) g->items[i].kind = IT_LOAD;
    }
}

static deft_status do_copy(keeper *k, const copy *c)
{
    deft_status st = DEFT_OK;
    pass *const p = k->p;
    group_id gi;
    val_id made[MAX_MADE + 1], from[MAX_MADE + 1];
    uint32_t n = 0;
    const val_id product = group_at(p, c->group)->product;
    TRY(copy_group(k, c, &gi));
    if (!IS_NONE(product) && !c->epilogue) {
        from[n] = product;
        made[n] = group_at(p, gi)->product = copy_val(k, gi, product);
        n++;
        TRY(p->st);
    }
    set_tiles(p, gi, c->epilogue ? product : group_at(p, gi)->product, c->epilogue);
    for (head_id h = group_at(p, c->group)->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        head w = *head_at(p, h);
        from[n] = w.val;
        made[n] = w.val = copy_val(k, gi, w.val);
        n++;
        TRY(p->st);
        df_fuse_append_head(p, gi, w);
    }
    TRY(read_versions(k, gi));
    for (uint32_t i = 0; i < n; i++) hand_over(k, from[i], made[i]);
done:
    return st;
}

/* In order of launches, since copies read copies. */
deft_status df_keep_do_copies(keeper *k, val_id v)
{
    deft_status st = DEFT_OK;
    pass *const p = k->p;
    const uint32_t node = val_at(p, v)->node, before = k->copies[0].level + 1;
    const long long bytes = (long long)k->bytes.at[val_at(p, v)->place.i];
    for (uint32_t i = 1; i < k->n_copies; i++)
        for (uint32_t j = i; j > 0 && k->copies[j].level < k->copies[j - 1].level; j--) {
            const copy c = k->copies[j];
            k->copies[j] = k->copies[j - 1];
            k->copies[j - 1] = c;
        }
    for (uint32_t i = 0; i < k->n_copies; i++) TRY(do_copy(k, &k->copies[i]));
    p->n_repeated += k->n_copies;
    df_fuse_why(p, node, node, "computed again",
                "%lld bytes do not live across launch %u; done again for launch %u", bytes, k->peak,
                before);
done:
    return st;
}
