/* SPDX-License-Identifier: Apache-2.0
 *
 * One head in a kernel of its own. If no kernel can compute the head's cone, or if one kernel would
 * be slow, the nodes that must be stored first become vals. They are planned before the head.
 */
#include "fuser/fuse.h"

#include <stdio.h>

bool df_fuse_pays(pass *p, const space *sp, bool guard)
{
    const int64_t small = 64 * 1024;
    if (p->lim->n_threads <= 1) return true;
    const df_slot rows = df_space_rows(p, sp), total = df_space_total(p, sp);
    if (p->st != DEFT_OK) return true;
    const int64_t enough = 4 * (int64_t)p->lim->n_threads;
    if (p->now.at[total.i] < small) {
        if (guard) df_fuse_guard_slot(p, DF_GUARD_at_most, total, small - 1);
        return true;
    }
    const bool pays = p->now.at[rows.i] >= enough;
    if (guard) {
        df_fuse_guard_slot(p, pays ? DF_GUARD_at_least : DF_GUARD_at_most, rows,
                           pays ? enough : enough - 1);
        if (!pays) df_fuse_guard_slot(p, DF_GUARD_at_least, total, small);
    }
    return pays;
}

/* ---- merging of RED loops ---- */

static const df_slot *val_strides(pass *p, uint32_t node, df_slot stride[DEFT_MAX_RANK])
{
    df_fuse_contiguous(p, node, stride);
    return stride;
}

static bool merges(pass *p, const space *sp, const uint8_t *red, uint32_t n_red, const location *at)
{
    for (uint32_t k = 0; k + 1 < n_red; k++)
        if (!df_same_slot(at->stride[red[k]],
                          df_fuse_mul(p, at->stride[red[k + 1]], sp->extent[red[k + 1]])))
            return false;
    return true;
}

/* Whether every access of a cone moves through its RED loops as through one loop. */
static bool red_merges(pass *p, const cone *c)
{
    uint8_t red[MAX_LOOPS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->sp.n; i++)
        if (c->sp.red[c->sp.order[i]]) red[n++] = c->sp.order[i];
    if (n < 2) return true;
    df_slot stride[DEFT_MAX_RANK];
    location at;
    for (size_t i = 0; i < c->order.n && p->st == DEFT_OK; i++) {
        const item *const it = &c->items.at[c->order.at[i]];
        const df_node *const x = node_of(p, it->node);
        map_id map = it->map;
        const df_slot *s = stride;
        const region_id where = it->kind == IT_SURROUND ? it->inner : it->region;
        if (df_region_moves(p, where, c->sp.red)) return false;
        switch ((item_kind)it->kind) {
        case IT_MAP:
        case IT_REDUCE:
        case IT_SCAN:
        case IT_SURROUND:
        case IT_NUM: continue;
        case IT_IOTA:
            for (uint32_t j = 0; j < DEFT_MAX_RANK; j++)
                stride[j] = j == x->attr ? SLOT_ONE : SLOT_ZERO;
            break;
        case IT_TAKE:
            map = it->base_map;
            if (IS_NONE(it->val))
                s = df_fuse_input_strides(p, node_of(p, it->base)->attr);
            else
                s = val_strides(p, it->base, stride);
            break;
        case IT_INPUT: s = df_fuse_input_strides(p, x->attr); break;
        case IT_RANDOM:
        case IT_LOAD:
        case IT_TILE: s = val_strides(p, it->node, stride); break;
        }
        at = df_map_locate(p, map, s);
        if (!merges(p, &c->sp, red, n, &at)) return false;
    }
    for (size_t h = 0; h < c->heads.n; h++) {
        const uint32_t node = val_at(p, c->heads.at[h].val)->node;
        at = df_map_locate(p, c->heads.at[h].dest, val_strides(p, node, stride));
        if (!merges(p, &c->sp, red, n, &at)) return false;
    }
    return true;
}

/* A kernel whose RED loops stay separate needs a kept axis innermost. If the last axis is reduced,
 * the kernel goes run by run instead, which bounds its reductions and excludes scans. */
bool df_fuse_red_is_fine(pass *p, const cone *c)
{
    if (c->sp.n == 0 || !c->sp.red[c->sp.order[c->sp.n - 1]]) return true;
    uint32_t n = 0;
    for (size_t i = 0; i < c->order.n; i++) n += c->items.at[c->order.at[i]].kind == IT_REDUCE;
    return red_merges(p, c) || (n <= DF_MAX_RUN_REDS && !c->has_scan);
}

/* ---- what must be stored first ---- */

static const char many_runs[] = "too many reductions over axes that do not merge";

void df_fuse_push_val(pass *p, val_id v)
{
    if (!df_vec_push(p->mem, &p->val_stack, v)) p->st = df_fail_mem(p->diag, "fuser", sizeof v);
}

bool df_fuse_demand(pass *p, uint32_t node, uint32_t user, const char *why)
{
    if (!IS_NONE(p->node_val[node])) return false;
    p->stored_late |= df_joined_is(p, node) && !IS_NONE(p->touch[node]);
    p->must[node] = 1;
    df_fuse_why(p, node, user, "kept apart", "%s", why ? why : "no kernel");
    df_fuse_push_val(p, df_fuse_new_val(p, node, true));
    return true;
}

/* Demands the nodes that the cone marked, except `own`. */
static void copy_marks(pass *p, uint32_t user, uint32_t own, bool *progress)
{
    for (size_t i = 0; i < p->c.marks.n; i++)
        if (p->c.marks.at[i] != own)
            *progress |= df_fuse_demand(p, p->c.marks.at[i], user, p->c.why);
}

/* Demands the reductions of the cone, except `own`. */
static void demand_reductions(pass *p, uint32_t user, uint32_t own, const char *why, bool *progress)
{
    for (size_t i = 0; i < p->c.order.n; i++) {
        const item *const it = &p->c.items.at[p->c.order.at[i]];
        if (it->kind == IT_REDUCE && it->node != own)
            *progress |= df_fuse_demand(p, it->node, user, why);
    }
}

/* Pushes the vals that the cone loads and that have no group yet. */
static void demand_unplanned(pass *p, bool *progress)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const val_id v = p->c.items.at[i].val;
        if (IS_NONE(v) || !IS_NONE(val_at(p, v)->group)) continue;
        df_fuse_push_val(p, v);
        *progress = true;
    }
}

/* When head n is itself the only reduction, demands its operand. The operand is then in memory in
 * the order in which it is reduced, so that the RED loops merge. Does nothing when the reduced axes
 * are not the last ones. */
static void demand_operand(pass *p, uint32_t n, bool *progress)
{
    const df_node *const x = node_of(p, n);
    if (df_op_infos[x->op].cls != DF_CLASS_reduce) return;
    const uint32_t src = x->src[0].i;
    bool tail = true; /* reduced axes are the last ones */
    bool kept_seen = false;
    for (uint32_t j = node_of(p, src)->rank; j-- > 0;) {
        if (df_fuse_cls(p, src, j) == CLS_ONE) continue;
        if (!(x->attr >> j & 1))
            kept_seen = true;
        else if (kept_seen)
            tail = false;
    }
    if (tail) *progress |= df_fuse_demand(p, src, n, many_runs);
}

deft_status df_fuse_run_alone(pass *p, const head *h, const space *sp, bool *progress)
{
    cone *const c = &p->c;
    *progress = false;
    df_cone_begin(p, c);
    c->sp = *sp;
    c->group = NO_GROUP;
    c->level = UINT32_MAX;
    c->grow = true;
    deft_status st = df_cone_add_head(p, c, *h);
    if (st == DEFT_OK) st = df_cone_run(p, c);
    if (st != DEFT_OK) return st;
    const uint32_t own = same_val(p->node_val[h->expr], h->val) ? h->expr : DF_NONE;
    demand_unplanned(p, progress);
    if (c->failed) {
        copy_marks(p, h->expr, own, progress);
        if (!*progress && c->joined != DF_NONE) return p->st;
        if (!*progress) demand_reductions(p, h->expr, own, c->why, progress);
        if (!*progress)
            return df_fail(p->diag, DEFT_E_INTERNAL, "fuser: %%%u: %s", h->expr,
                           c->why ? c->why : "no kernel");
    }
    if (*progress) return p->st;
    if (c->multi && !df_fuse_pays(p, &c->sp, true)) {
        char why[80];
        snprintf(why, sizeof why, "too few rows, %lld, to keep %u threads busy",
                 df_space_rows_now(p, &c->sp), p->lim->n_threads);
        demand_reductions(p, h->expr, own, why, progress);
        if (*progress) return p->st;
    }
    if (!df_fuse_red_is_fine(p, c)) {
        demand_reductions(p, h->expr, own, many_runs, progress);
        if (!*progress) demand_operand(p, h->expr, progress);
    }
    return p->st;
}
