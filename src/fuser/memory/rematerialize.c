/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of groups. A copy runs in a later launch than the group. It reads the latest versions of
 * its operands that exist by then, and stores into places of its own. Later readers of the group's
 * values read the values of the copy. Readers up to the launch of the copy keep the group's values.
 */
#include "fuser/memory/keep.h"

static deft_status add_reader(pass *p, uint32_t v, load l)
{
    l.next = p->vals.at[v].readers;
    if (!df_vec_push(p->mem, &p->loads, l)) return df_keep_no_memory(p);
    p->vals.at[v].readers = (uint32_t)p->loads.n - 1;
    return DEFT_OK;
}

/* Makes a copied group read the latest version of *u before its launch. Replaces *u by that version
 * and extends its live range. */
static deft_status read_version(keeper *k, load l, uint32_t *u)
{
    pass *const p = k->p;
    const uint32_t level = p->groups.at[l.group].level;
    *u = df_keep_version_at(k, *u, level);
    const uint32_t q = p->vals.at[*u].place, from = df_keep_free_from(p, q);
    storage *const w = &p->places.at[q];
    if (w->kind == STORAGE_TEMP && from <= level) {
        df_keep_add_live(k, from, level, df_keep_rounded(k->bytes.at[q]));
        w->last = level;
        w->unused = false;
    }
    return add_reader(p, *u, l);
}

/* The same for all that group gi, a copy, reads. */
static deft_status read_versions(keeper *k, uint32_t gi)
{
    deft_status st = DEFT_OK;
    group *const g = &k->p->groups.at[gi];
    for (uint32_t i = 0; i < g->n_items; i++) {
        item *const it = &g->items[i];
        if (it->val == DF_NONE) continue;
        load l = load_of(gi, i, DF_NONE, it->map);
        if (it->kind == IT_LOAD) TRY(read_version(k, l, &it->val));
        if (it->kind != IT_TAKE) continue;
        l.item = DF_NONE;
        l.map = it->base_map;
        TRY(read_version(k, l, &it->val));
    }
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (g->mm_val[s] != DF_NONE)
            TRY(read_version(k, load_of(gi, DF_NONE, s, g->mm_map[s]), &g->mm_val[s]));
done:
    return st;
}

/* Makes group gi read val `to` instead of val `from`. */
static void rebind(pass *p, uint32_t gi, uint32_t from, uint32_t to)
{
    group *const g = &p->groups.at[gi];
    for (uint32_t i = 0; i < g->n_items; i++)
        if (g->items[i].val == from) g->items[i].val = to;
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (g->mm_val[s] == from) g->mm_val[s] = to;
}

/* Moves the readers of v after the launch of its copy to the copy. */
static void take_readers(keeper *k, uint32_t v, uint32_t copied)
{
    pass *const p = k->p;
    const uint32_t level = df_keep_level_of(p, copied);
    uint32_t *at = &p->vals.at[v].readers;
    while (*at != DF_NONE) {
        load *const l = &p->loads.at[*at];
        if (p->groups.at[l->group].level <= level) {
            at = &l->next;
            continue;
        }
        const uint32_t moved = *at;
        rebind(p, l->group, v, copied);
        *at = l->next;
        l->next = p->vals.at[copied].readers;
        p->vals.at[copied].readers = moved;
    }
}

/* Sets the live range of v from its readers, and counts its bytes. */
static void settle_life(keeper *k, uint32_t v)
{
    pass *const p = k->p;
    storage *const w = &p->places.at[p->vals.at[v].place];
    const group *const g = &p->groups.at[p->vals.at[v].group];
    const readers r = df_keep_readers_of(p, v, UINT32_MAX);
    w->unused = g->product == v && g->first_head != DF_NONE && p->vals.at[v].readers == DF_NONE;
    w->first = df_keep_level_of(p, v);
    w->last = r.early;
    df_keep_count_place(k, p->vals.at[v].place, 1);
}

/* Adds the val that group gi, a copy, computes in place of v. Returns DF_NONE when memory runs
 * out. */
static uint32_t copy_val(keeper *k, uint32_t gi, uint32_t v)
{
    pass *const p = k->p;
    const uint32_t node = p->vals.at[v].node, n = df_fuse_new_val(p, node, false);
    const uint32_t q = df_fuse_new_place(p, STORAGE_TEMP, 0, node);
    if (p->st != DEFT_OK || df_keep_follow(k) != DEFT_OK) return DF_NONE;
    val *const w = &p->vals.at[n];
    w->group = gi;
    w->map = p->vals.at[v].map;
    w->place = q;
    w->plain = true;
    k->newer.at[n] = k->newer.at[v];
    k->newer.at[v] = n;
    return n;
}

/* Divides the readers of v between v and its copy, and sets both live ranges. */
static void hand_over(keeper *k, uint32_t v, uint32_t copied)
{
    pass *const p = k->p;
    if (df_keep_is_alone(p, v)) {
        df_keep_count_place(k, p->vals.at[v].place, -1);
        take_readers(k, v, copied);
        settle_life(k, v);
    }
    settle_life(k, copied);
}

/* Adds group *out, a copy of a group in the launch c->level, without heads. */
static deft_status copy_group(keeper *k, const copy *c, uint32_t *out)
{
    pass *const p = k->p;
    const uint32_t gi = *out = df_fuse_new_group(p, p->groups.at[c->group].kind, 0);
    if (p->st != DEFT_OK) return p->st;
    group *const g = &p->groups.at[gi];
    *g = p->groups.at[c->group];
    g->level = c->level;
    g->first_head = g->last_head = g->first_edge = g->next_frame = DF_NONE;
    g->n_heads = 0;
    g->items =
        df_arena_copy(&p->tmp, g->items, (g->n_items + 1) * sizeof *g->items, _Alignof(item));
    if (!g->items) return df_keep_no_memory(p);
    if (c->epilogue) {
        g->kind = DF_SEG_KERNEL;
        g->product = DF_NONE;
        g->n_operands = 0;
    }
    return DEFT_OK;
}

/* Sets the product that the items of a copy read: a tile of its own product, or a stored product.
 */
static void set_tiles(pass *p, uint32_t gi, uint32_t product, bool stored)
{
    group *const g = &p->groups.at[gi];
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
    uint32_t gi, made[MAX_MADE + 1], from[MAX_MADE + 1], n = 0;
    const uint32_t product = p->groups.at[c->group].product;
    TRY(copy_group(k, c, &gi));
    if (product != DF_NONE && !c->epilogue) {
        from[n] = product;
        made[n] = p->groups.at[gi].product = copy_val(k, gi, product);
        n++;
        TRY(p->st);
    }
    set_tiles(p, gi, c->epilogue ? product : p->groups.at[gi].product, c->epilogue);
    for (uint32_t h = p->groups.at[c->group].first_head; h != DF_NONE; h = p->heads.at[h].next) {
        head w = p->heads.at[h];
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
deft_status df_keep_do_copies(keeper *k, uint32_t v)
{
    deft_status st = DEFT_OK;
    pass *const p = k->p;
    const uint32_t node = p->vals.at[v].node, before = k->copies[0].level + 1;
    const long long bytes = (long long)k->bytes.at[p->vals.at[v].place];
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
