/* SPDX-License-Identifier: Apache-2.0
 *
 * Which values are stored, and which stored values share a kernel.
 *
 * Vals are planned in node order, each as the head of a cone of its own first (cone.c). What the cone
 * says must be stored becomes a val and is planned before it, on an explicit stack. Then the head joins
 * a group that already stores something it needs, or that reads what it reads, where that is legal:
 *
 *   Levels. A group has the level 0 or one more than the highest val it loads; it never rises. A head
 *   may join group g when all it loads from elsewhere lies below g, and what it needs of g it needs at
 *   the very element that g computes. Edges between groups then always rise, so no path leaves a group
 *   and re-enters it, however many groups lie between.
 *
 *   Spaces. Loops are matched by class in order. A head over the rows of a group with RED loops joins as
 *   its epilogue; a reduction may join a group over its operand's axes and gives it RED loops.
 *
 * Sharing. A value computed again by several kernels is stored instead when that costs more than a load;
 * only then is the grouping run again with it among the vals, at most MAX_ROUNDS times.
 */
#include "fuser/fuse.h"

#include <string.h>

#define MAX_ROUNDS 4
#define MAX_CANDIDATES 24
#define MAX_BESIDE 16 /* heads that share a kernel only because they read the same */
#define CHEAP 10.0f        /* vector instructions an element that may be spent again per kernel */
#define CHEAP_SCALAR 200.0f /* the same for values of one element */
#define CHEAP_WITHIN 64.0f /* all repetitions at other elements within one kernel */

/* ---- vals and groups ---- */

uint32_t df_fuse_new_val(pass *p, uint32_t node, bool visible)
{
    const uint32_t v = (uint32_t)p->vals.n;
    const val w = { .node = node,
                    .group = DF_NONE,
                    .place = DF_NONE,
                    .root = DF_NONE,
                    .over = DF_NONE,
                    .over_by = DF_NONE,
                    .frames = DF_NONE,
                    .readers = DF_NONE,
                    .visible = visible,
                    .plain = !visible || node_of(p, node)->op != DF_OP_update };
    if (!df_vec_push(p->mem, &p->vals, w)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof w);
        return 0;
    }
    if (visible) p->node_val[node] = v;
    return v;
}

uint32_t df_fuse_new_group(pass *p, uint32_t kind, uint32_t node)
{
    const uint32_t g = (uint32_t)p->groups.n;
    const group w = { .kind = kind,
                      .first_head = DF_NONE,
                      .last_head = DF_NONE,
                      .node = node,
                      .product = DF_NONE,
                      .first_edge = DF_NONE,
                      .next_frame = DF_NONE };
    if (!df_vec_push(p->mem, &p->groups, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return p->st == DEFT_OK ? g : 0;
}

void df_fuse_append_head(pass *p, uint32_t g, head h)
{
    const uint32_t i = (uint32_t)p->heads.n;
    h.next = DF_NONE;
    if (!df_vec_push(p->mem, &p->heads, h)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof h);
        return;
    }
    group *const w = &p->groups.at[g];
    if (w->last_head == DF_NONE)
        w->first_head = i;
    else
        p->heads.at[w->last_head].next = i;
    w->last_head = i;
    w->n_heads++;
}

static void push(pass *p, uint32_t v)
{
    if (!df_vec_push(p->mem, &p->stack, v)) p->st = df_fail_mem(p->diag, "fuser", sizeof v);
}

/* Makes node a val, to be planned before what is on the stack. False when it is one already. */
static bool demand(pass *p, uint32_t node, uint32_t user, const char *why)
{
    if (p->node_val[node] != DF_NONE) return false;
    p->must[node] = 1;
    df_fuse_why(p, node, user, "kept apart", why);
    push(p, df_fuse_new_val(p, node, true));
    return true;
}

/* ---- policy ---- */

/* Whether rows of a kernel with several stages keep the threads busy, or the work is too small to
 * matter. guard: the decision is the plan's, so it must stay. */
bool df_fuse_pays(pass *p, const space *sp, bool guard)
{
    const int64_t small = 64 * 1024;
    if (p->lim->n_threads <= 1) return true;
    const df_slot rows = df_space_rows(p, sp), total = df_space_total(p, sp);
    if (p->st != DEFT_OK) return true;
    const int64_t enough = 4 * (int64_t)p->lim->n_threads;
    if (p->now.at[total] < small) {
        if (guard) df_fuse_guard(p, DF_GUARD_at_most, total, 0, small - 1);
        return true;
    }
    const bool pays = p->now.at[rows] >= enough;
    if (guard) {
        df_fuse_guard(p, pays ? DF_GUARD_at_least : DF_GUARD_at_most, rows, 0,
                      pays ? enough : enough - 1);
        if (!pays) df_fuse_guard(p, DF_GUARD_at_least, total, 0, small);
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
        if (at->stride[red[k]] !=
            df_fuse_mul(p, at->stride[red[k + 1]], sp->extent[red[k + 1]]))
            return false;
    return true;
}

/* Whether all accesses of a cone step through its RED loops as through one. */
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
        uint32_t map = it->map;
        const df_slot *s = stride;
        switch ((item_kind)it->kind) {
        case IT_MAP:
        case IT_REDUCE:
        case IT_SCAN:
        case IT_NUM: continue;
        case IT_IOTA:
            for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) stride[j] = j == x->attr;
            break;
        case IT_TAKE:
            map = it->base_map;
            if (it->val == DF_NONE)
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
        const uint32_t node = p->vals.at[c->heads.at[h].val].node;
        at = df_map_locate(p, c->heads.at[h].dest, val_strides(p, node, stride));
        if (!merges(p, &c->sp, red, n, &at)) return false;
    }
    return true;
}

/* RED loops that stay several need a kernel with a kept innermost axis; where the ops have none, or the
 * last axis is reduced, contiguous memory is better. */
static bool red_is_fine(pass *p, const cone *c)
{
    if (c->sp.n == 0 || !c->sp.red[c->sp.order[c->sp.n - 1]]) return true;
    return red_merges(p, c);
}

/* ---- a head alone ---- */

typedef struct candidate {
    uint32_t group;
    bool feeds; /* stores something the head needs */
} candidate;

static void copy_marks(pass *p, uint32_t user, uint32_t own, bool *progress)
{
    for (size_t i = 0; i < p->c.marks.n; i++)
        if (p->c.marks.at[i] != own)
            *progress |= demand(p, p->c.marks.at[i], user, p->c.why);
}

static void demand_reductions(pass *p, uint32_t user, uint32_t own, const char *why, bool *progress)
{
    for (size_t i = 0; i < p->c.order.n; i++) {
        const item *const it = &p->c.items.at[p->c.order.at[i]];
        if (it->kind == IT_REDUCE && it->node != own) *progress |= demand(p, it->node, user, why);
    }
}

static void demand_unplanned(pass *p, bool *progress)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const uint32_t v = p->c.items.at[i].val;
        if (v == DF_NONE || p->vals.at[v].group != DF_NONE) continue;
        push(p, v);
        *progress = true;
    }
}

/* The single reduction that is this head: store its operand in memory, in the order it is reduced. */
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
    if (tail) *progress |= demand(p, src, n, "reduced axes do not merge");
}

/* Runs head h alone. *progress: vals were demanded, try again after them. */
static deft_status run_alone(pass *p, const head *h, const space *sp, bool *progress)
{
    cone *const c = &p->c;
    *progress = false;
    df_cone_begin(p, c);
    c->sp = *sp;
    c->group = DF_NONE;
    c->level = UINT32_MAX;
    c->grow = true;
    deft_status st = df_cone_add_head(p, c, *h);
    if (st == DEFT_OK) st = df_cone_run(p, c);
    if (st != DEFT_OK) return st;
    const uint32_t own = p->node_val[h->expr] == h->val ? h->expr : DF_NONE;
    demand_unplanned(p, progress);
    if (c->failed) {
        copy_marks(p, h->expr, own, progress);
        if (!*progress) demand_reductions(p, h->expr, own, c->why, progress);
        if (!*progress)
            return df_fail(p->diag, DEFT_E_INTERNAL, "fuser: %%%u: %s", h->expr,
                           c->why ? c->why : "no kernel");
    }
    if (*progress) return p->st;
    if (c->multi && !df_fuse_pays(p, &c->sp, true)) {
        demand_reductions(p, h->expr, own, "too few rows for the threads", progress);
        if (*progress) return p->st;
    }
    if (!red_is_fine(p, c)) {
        demand_reductions(p, h->expr, own, "reduced axes do not merge", progress);
        if (!*progress) demand_operand(p, h->expr, progress);
    }
    return p->st;
}

/* ---- joining ---- */

static uint32_t loops_in_order(const space *sp, bool red, bool all, uint8_t out[MAX_LOOPS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sp->n; i++) {
        const uint8_t l = sp->order[i];
        if ((all || sp->red[l] == red) && !(all && sp->cls[l] == CLS_ONE && !sp->red[l])) out[n++] = l;
    }
    return n;
}

static bool same_classes(const space *a, const uint8_t *la, uint32_t na, const space *b,
                         const uint8_t *lb, uint32_t nb)
{
    if (na != nb) return false;
    for (uint32_t i = 0; i < na; i++)
        if (a->cls[la[i]] != b->cls[lb[i]] || a->cls[la[i]] == DF_NONE) return false;
    return true;
}

static uint32_t n_red_loops(const space *sp)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sp->n; i++) n += sp->red[i];
    return n;
}

/* One space for group g and head space n. to_g, to_n: where their loops go. */
static bool join_spaces(const space *g, const space *n, bool feeds, space *out,
                        uint8_t to_g[MAX_LOOPS], uint8_t to_n[MAX_LOOPS])
{
    uint8_t lg[MAX_LOOPS], ln[MAX_LOOPS];
    const uint32_t rg = n_red_loops(g), rn = n_red_loops(n);
    for (uint32_t i = 0; i < MAX_LOOPS; i++) to_g[i] = to_n[i] = (uint8_t)i;
    uint32_t a = loops_in_order(g, false, true, lg), b = loops_in_order(n, false, true, ln);
    if (same_classes(g, lg, a, n, ln, b)) {
        *out = *g;
        bool equal = true;
        for (uint32_t i = 0; i < a; i++) {
            to_n[ln[i]] = lg[i];
            equal &= g->red[lg[i]] == n->red[ln[i]];
            out->red[lg[i]] |= n->red[ln[i]];
        }
        return equal || rg == 0 || rn == 0;
    }
    if (!feeds) return false;
    if (rn == 0 && rg > 0) {
        a = loops_in_order(g, false, false, lg);
        if (!same_classes(g, lg, a, n, ln, b)) return false;
        *out = *g;
        for (uint32_t i = 0; i < a; i++) to_n[ln[i]] = lg[i];
        return true;
    }
    if (rg == 0 && rn > 0) {
        a = loops_in_order(g, false, true, lg);
        b = loops_in_order(n, false, false, ln);
        if (!same_classes(g, lg, a, n, ln, b)) return false;
        *out = *n;
        for (uint32_t i = 0; i < a; i++) to_g[lg[i]] = ln[i];
        return true;
    }
    return false;
}

static void rename_heads(pass *p, uint32_t g, const uint8_t to[MAX_LOOPS])
{
    for (uint32_t h = p->groups.at[g].first_head; h != DF_NONE; h = p->heads.at[h].next) {
        head *const w = &p->heads.at[h];
        val *const v = &p->vals.at[w->val];
        w->map = df_map_rename(p, w->map, to);
        w->dest = df_map_rename(p, w->dest, to);
        v->map = w->dest;
    }
}

static bool loads_group(const pass *p, uint32_t g)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const uint32_t v = p->c.items.at[i].val;
        if (v != DF_NONE && p->vals.at[v].group == g) return true;
    }
    return false;
}

static deft_status run_joint(pass *p, uint32_t g, const space *sp, const head *h)
{
    cone *const c = &p->c;
    df_cone_begin(p, c);
    c->sp = *sp;
    c->group = g;
    c->level = p->groups.at[g].level;
    c->strict = true;
    c->grow = false;
    for (uint32_t k = p->groups.at[g].first_head; k != DF_NONE; k = p->heads.at[k].next)
        df_cone_add_head(p, c, p->heads.at[k]);
    df_cone_add_head(p, c, *h);
    /* What the head stores counts as the group's own already. */
    p->vals.at[h->val].group = g;
    p->vals.at[h->val].map = h->dest;
    const deft_status st = p->st == DEFT_OK ? df_cone_run(p, c) : p->st;
    p->vals.at[h->val].group = DF_NONE;
    return st;
}

static void remember(pass *p, uint32_t g)
{
    for (size_t i = 0; i < p->c.order.n; i++)
        p->touch[p->c.items.at[p->c.order.at[i]].node] = g;
    p->groups.at[g].size = p->c.n_ops;
    p->groups.at[g].sp = p->c.sp;
}

static void settle(pass *p, uint32_t g, head h)
{
    val *const v = &p->vals.at[h.val];
    v->group = g;
    v->level = p->groups.at[g].level;
    v->map = h.dest;
    if (v->visible && node_of(p, v->node)->op == DF_OP_update) {
        /* Its readers also wait for what lies under it. */
        const uint32_t base = p->node_val[node_of(p, v->node)->src[0].i];
        if (base != DF_NONE && p->vals.at[base].level >= v->level)
            v->level = p->vals.at[base].level + 1;
    }
    df_fuse_append_head(p, g, h);
}

/* Tries to make h, with space n of its own, a head of group g. The alone cone is lost. */
static deft_status try_join(pass *p, uint32_t g, bool feeds, const space *n, head h, bool *joined)
{
    space sp;
    uint8_t to_g[MAX_LOOPS], to_n[MAX_LOOPS], back[MAX_LOOPS];
    *joined = false;
    const bool matmul = p->groups.at[g].kind == DF_SEG_MATMUL;
    const space before = p->groups.at[g].sp;
    if (!join_spaces(&before, n, feeds, &sp, to_g, to_n)) return DEFT_OK;
    if (matmul && (!feeds || n_red_loops(&sp) > 0)) return DEFT_OK;
    if (!feeds && p->groups.at[g].n_heads >= MAX_BESIDE) return DEFT_OK;
    bool moved = false;
    for (uint32_t i = 0; i < MAX_LOOPS; i++) {
        back[i] = (uint8_t)i;
        moved |= to_g[i] != i;
    }
    if (moved) {
        for (uint32_t i = 0; i < before.n; i++) back[to_g[i]] = (uint8_t)i;
        rename_heads(p, g, to_g);
    }
    h.map = df_map_rename(p, h.map, to_n);
    h.dest = df_map_rename(p, h.dest, to_n);
    deft_status st = run_joint(p, g, &sp, &h);
    if (st != DEFT_OK) return st;
    bool ok = !p->c.failed && red_is_fine(p, &p->c);
    if (ok && p->c.multi) ok = df_fuse_pays(p, &p->c.sp, false);
    if (!ok) {
        df_fuse_why(p, p->groups.at[g].node, h.expr, "kept apart",
                    !p->c.failed ? "too few rows for the threads, or axes that do not merge"
                    : p->c.why   ? p->c.why
                                 : "");
        if (moved) rename_heads(p, g, back);
        return p->st;
    }
    if (p->c.multi) df_fuse_pays(p, &p->c.sp, true);
    df_fuse_why(p, p->groups.at[g].node, h.expr, "fused",
                feeds ? "reads what the kernel computes" : "reads what the kernel reads");
    settle(p, g, h);
    remember(p, g);
    *joined = true;
    return p->st;
}

static void offer(candidate *list, uint32_t *n, uint32_t g, bool feeds)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i].group == g) {
            list[i].feeds |= feeds;
            return;
        }
    if (*n < MAX_CANDIDATES) list[(*n)++] = (candidate){ g, feeds };
}

/* Groups the alone cone could join; *level: of the highest val it loads, plus 1. */
static uint32_t candidates(const pass *p, candidate list[MAX_CANDIDATES], uint32_t *level)
{
    const cone *const c = &p->c;
    uint32_t n = 0;
    *level = 0;
    for (size_t i = 0; i < c->order.n; i++) {
        const uint32_t v = c->items.at[c->order.at[i]].val;
        if (v != DF_NONE && p->vals.at[v].level + 1 > *level) *level = p->vals.at[v].level + 1;
    }
    for (size_t i = 0; i < c->order.n; i++) {
        const item *const it = &c->items.at[c->order.at[i]];
        if (it->kind == IT_LOAD && p->vals.at[it->val].plain)
            offer(list, &n, p->vals.at[it->val].group, true);
        const uint32_t g = p->touch[it->node];
        if (it->kind != IT_NUM && g != DF_NONE && p->groups.at[g].level == *level)
            offer(list, &n, g, false);
    }
    return n;
}

/* Whether all that the alone cone loads, but for g's own, lies below g. */
static bool lies_above(const pass *p, uint32_t g)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const uint32_t v = p->c.items.at[i].val;
        if (v == DF_NONE || p->vals.at[v].group == g) continue;
        if (p->vals.at[v].level >= p->groups.at[g].level) return false;
    }
    return true;
}

/* after: a val that must be complete before h is written, though h does not load it; or DF_NONE. */
static deft_status join_or_open(pass *p, head h, const space *from, uint32_t after)
{
    candidate list[MAX_CANDIDATES];
    bool legal[MAX_CANDIDATES];
    uint32_t level;
    uint32_t n = candidates(p, list, &level);
    if (!p->fuse || after != DF_NONE) n = 0;
    if (after != DF_NONE && p->vals.at[after].level >= level) level = p->vals.at[after].level + 1;
    const space sp = p->c.sp;
    bool joined = false;
    for (uint32_t i = 0; i < n; i++) {
        const group *const g = &p->groups.at[list[i].group];
        legal[i] = lies_above(p, list[i].group) &&
                   (list[i].feeds ? loads_group(p, list[i].group) : g->kind == DF_SEG_KERNEL);
    }
    for (uint32_t turn = 0; turn < 2 && !joined; turn++)
        for (uint32_t i = 0; i < n && !joined; i++) {
            if (!legal[i] || list[i].feeds != (turn == 0)) continue;
            const deft_status st = try_join(p, list[i].group, list[i].feeds, &sp, h, &joined);
            if (st != DEFT_OK) return st;
        }
    if (joined) return DEFT_OK;
    bool progress;
    if (n > 0) {
        const deft_status st = run_alone(p, &h, from, &progress); /* the cone was used up */
        if (st != DEFT_OK) return st;
        df_assert(!progress);
    }
    const uint32_t g = df_fuse_new_group(p, DF_SEG_KERNEL, h.expr);
    if (p->st != DEFT_OK) return p->st;
    p->groups.at[g].level = level;
    settle(p, g, h);
    remember(p, g);
    return p->st;
}

/* ---- planning one val ---- */

/* Where an update writes: the base's axes over the loops of the value. */
static deft_status update_dest(pass *p, uint32_t n, uint32_t map, uint32_t *dest)
{
    const df_node *const x = node_of(p, n);
    uint32_t node = x->src[2].i;
    while (node != x->src[0].i && p->st == DEFT_OK) {
        bool self;
        const uint32_t next =
            class_of_op(p, node) == DF_CLASS_view ? df_map_view(p, node, map, &self) : DF_NONE;
        if (next == DF_NONE)
            return df_fail(p->diag, DEFT_E_ARG, "update: %%%u is no view of %%%u that can be written",
                           x->src[2].i, x->src[0].i);
        map = next;
        node = node_of(p, node)->src[0].i;
    }
    *dest = map;
    return p->st;
}

static deft_status plan_update_base(pass *p, uint32_t n, bool is_box, bool *progress)
{
    /* Under a fresh copy the base is computed again around the box: only what is no more than a load. */
    const uint32_t base = node_of(p, n)->src[0].i;
    uint32_t node = base;
    bool reshaped = false;
    if (p->node_val[base] != DF_NONE) {
        if (p->vals.at[p->node_val[base]].group == DF_NONE) {
            push(p, p->node_val[base]);
            *progress = true;
        }
        return p->st;
    }
    while (class_of_op(p, node) == DF_CLASS_view && p->node_val[node] == DF_NONE) {
        reshaped |= node_of(p, node)->op == DF_OP_reshape;
        node = node_of(p, node)->src[0].i;
    }
    const bool stored = p->node_val[node] != DF_NONE;
    if (reshaped || (stored ? !is_box : class_of_op(p, node) != DF_CLASS_leaf))
        *progress |= demand(p, base, n, "is written over");
    return p->st;
}

/* A matmul operand as strides on something stored. */
static deft_status plan_operand(pass *p, uint32_t n, uint32_t s, group *g, bool *progress)
{
    uint32_t node = node_of(p, n)->src[s].i;
    uint32_t map = df_map_identity(p, node_of(p, n)->rank);
    g->mm_val[s] = DF_NONE;
    while (p->st == DEFT_OK) {
        const uint32_t v = p->node_val[node];
        if (v != DF_NONE) {
            if (p->vals.at[v].group == DF_NONE) {
                push(p, v);
                *progress = true;
                return p->st;
            }
            g->mm_val[s] = v;
            if (p->vals.at[v].level + 1 > g->level) g->level = p->vals.at[v].level + 1;
            break;
        }
        if (class_of_op(p, node) == DF_CLASS_view) {
            bool self;
            const uint32_t src = node_of(p, node)->src[0].i;
            const uint32_t next = df_map_view(p, node, map, &self);
            if (next == DF_NONE) {
                *progress |= demand(p, self ? node : src, n, "is a matmul operand");
                return p->st;
            }
            node = src;
            map = next;
            continue;
        }
        const bool input = node_of(p, node)->op == DF_OP_input;
        const bool linear = p->maps.at[map].linear != 0;
        if (input && (!linear || p->t->inputs[node_of(p, node)->attr].flags & DF_INPUT_CONTIGUOUS))
            break;
        *progress |= demand(p, node, n, "is a matmul operand");
        return p->st;
    }
    g->mm_node[s] = node;
    g->mm_map[s] = map;
    return p->st;
}

static deft_status plan_matmul(pass *p, uint32_t v, bool *progress)
{
    const uint32_t n = p->vals.at[v].node, rank = node_of(p, n)->rank;
    group w = { .level = 0 };
    *progress = false;
    for (uint32_t s = 0; s < 2; s++) {
        const deft_status st = plan_operand(p, n, s, &w, progress);
        if (st != DEFT_OK) return st;
    }
    if (*progress) return p->st;
    const uint32_t g = df_fuse_new_group(p, DF_SEG_MATMUL, n);
    if (p->st != DEFT_OK) return p->st;
    group *to = &p->groups.at[g];
    to->level = w.level;
    to->product = v;
    memcpy(to->mm_val, w.mm_val, sizeof w.mm_val);
    memcpy(to->mm_node, w.mm_node, sizeof w.mm_node);
    memcpy(to->mm_map, w.mm_map, sizeof w.mm_map);
    /* All its axes are loops; those of extent 1 drive nothing, so that maps of consumers compare. */
    const uint32_t whole = df_map_identity(p, rank);
    index_map m = p->maps.at[whole];
    to = &p->groups.at[g];
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t cls = df_fuse_cls(p, n, i);
        to->sp.cls[i] = cls;
        to->sp.extent[i] = df_fuse_cls_extent(p, cls);
        to->sp.order[i] = (uint8_t)i;
        if (cls == CLS_ONE) {
            m.axis[i] = FIXED;
            m.coef[i] = SLOT_ZERO;
        }
    }
    to->sp.n = (uint8_t)rank;
    val *const x = &p->vals.at[v];
    x->group = g;
    x->level = to->level;
    x->map = df_map_intern(p, &m);
    return p->st;
}

static deft_status plan_val(pass *p, uint32_t v, bool *progress)
{
    const val w = p->vals.at[v];
    const bool update = w.visible && node_of(p, w.node)->op == DF_OP_update;
    deft_status st;
    *progress = false;
    if (w.visible && node_of(p, w.node)->op == DF_OP_matmul) return plan_matmul(p, v, progress);
    head h = { .expr = update ? node_of(p, w.node)->src[1].i : w.node, .val = v };
    space sp;
    df_space_of_head(p, h.expr, &sp, &h.map);
    h.dest = h.map;
    uint32_t after = DF_NONE;
    if (update) {
        st = update_dest(p, w.node, h.map, &h.dest);
        if (st != DEFT_OK) return st;
        const bool is_box = df_map_is_box(&p->maps.at[h.dest]);
        st = plan_update_base(p, w.node, is_box, progress);
        if (st != DEFT_OK || *progress) return st;
        if (!is_box) after = p->node_val[node_of(p, w.node)->src[0].i];
    }
    st = run_alone(p, &h, &sp, progress);
    if (st != DEFT_OK || *progress) return st;
    return join_or_open(p, h, &sp, after);
}

static deft_status plan_vals(pass *p, uint32_t v)
{
    push(p, v);
    while (p->stack.n > 0 && p->st == DEFT_OK) {
        const uint32_t top = p->stack.at[p->stack.n - 1];
        if (p->vals.at[top].group != DF_NONE) {
            p->stack.n--;
            continue;
        }
        bool progress;
        const deft_status st = plan_val(p, top, &progress);
        if (st != DEFT_OK) return st;
        df_assert(progress || p->vals.at[top].group != DF_NONE);
    }
    return p->st;
}

/* ---- rounds ---- */

static float own_cost(const df_node *x)
{
    const df_op_info *const o = &df_op_infos[x->op];
    switch ((df_op_class)o->cls) {
    case DF_CLASS_leaf: return x->op == DF_OP_random ? 60 : x->op == DF_OP_input ? 1 : 0;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary:
        if (o->how == DF_LOWER_recipe) return 20;
        if (o->how == DF_LOWER_body) return 3;
        return o->kop == DF_K_div || o->kop == DF_K_sqrt || o->kop == DF_K_rem ? 4 : 1;
    case DF_CLASS_reduce:
    case DF_CLASS_scan: return 1e6f;
    case DF_CLASS_view: return 0;
    case DF_CLASS_index: return 8;
    case DF_CLASS_update:
    case DF_CLASS_contract: return 1e6f;
    }
    df_unreachable();
}

static void costs(pass *p)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++) {
        if (!(p->live[n] & 1)) continue;
        const df_node *const x = node_of(p, n);
        float sum = own_cost(x);
        if (df_op_infos[x->op].cls != DF_CLASS_leaf)
            for (uint32_t s = 0; s < x->n_src; s++) {
                const uint32_t src = x->src[s].i;
                sum += p->node_val[src] != DF_NONE ? 1 : p->cost[src];
            }
        p->cost[n] = sum < 1e9f ? sum : 1e9f;
    }
}

static bool stored_by_nature(const pass *p, uint32_t n)
{
    const df_op op = (df_op)node_of(p, n)->op;
    switch ((df_op_class)df_op_infos[op].cls) {
    case DF_CLASS_update:
    case DF_CLASS_contract: return true;
    case DF_CLASS_leaf:
    case DF_CLASS_view: return false;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary:
    case DF_CLASS_reduce:
    case DF_CLASS_scan:
    case DF_CLASS_index: return !p->fuse;
    }
    df_unreachable();
}

/* A root that is only a reshape of something computed: that is computed into the root's memory. */
static uint32_t behind_reshapes(const pass *p, uint32_t n)
{
    uint32_t src = n;
    while (node_of(p, src)->op == DF_OP_reshape) src = node_of(p, src)->src[0].i;
    const uint8_t cls = class_of_op(p, src);
    return cls == DF_CLASS_leaf || cls == DF_CLASS_view ? n : src;
}

static void root_vals(pass *p)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        const bool into = root->kind == DF_ROOT_INTO;
        const uint32_t n = into ? root->node : behind_reshapes(p, root->node);
        const uint8_t cls = class_of_op(p, n);
        const bool bare = cls == DF_CLASS_leaf || cls == DF_CLASS_view;
        uint32_t v = bare ? DF_NONE : p->node_val[n];
        if (bare || (v != DF_NONE && p->vals.at[v].root != DF_NONE)) {
            /* A copy of its own; a second new root of one node shares the first one's buffer. */
            if (!bare && !into && p->t->roots[p->vals.at[v].root].kind == DF_ROOT_NEW) {
                p->root_val[r] = v;
                continue;
            }
            v = df_fuse_new_val(p, n, false);
        } else if (v == DF_NONE) {
            v = df_fuse_new_val(p, n, true);
        }
        if (p->st != DEFT_OK) return;
        p->vals.at[v].root = r;
        p->root_val[r] = v;
    }
}

static deft_status one_round(pass *p)
{
    const uint32_t n_nodes = p->t->n_nodes;
    p->vals.n = p->heads.n = p->groups.n = p->stack.n = 0;
    for (uint32_t n = 0; n < n_nodes; n++) p->node_val[n] = p->touch[n] = DF_NONE;
    for (uint32_t n = 0; n < n_nodes; n++)
        if ((p->live[n] & 1) && (p->must[n] || stored_by_nature(p, n))) df_fuse_new_val(p, n, true);
    root_vals(p);
    if (p->st != DEFT_OK) return p->st;
    costs(p);
    for (uint32_t n = 0; n < n_nodes; n++) {
        if (p->node_val[n] == DF_NONE) continue;
        const deft_status st = plan_vals(p, p->node_val[n]);
        if (st != DEFT_OK) return st;
    }
    for (uint32_t v = 0; v < p->vals.n; v++) {
        if (p->vals.at[v].visible) continue;
        const deft_status st = plan_vals(p, v);
        if (st != DEFT_OK) return st;
    }
    return p->st;
}

/* ---- final cones ---- */

static void drop_unused_roles(pass *p, group *g)
{
    if (g->has_red || g->has_scan) return;
    uint32_t used = 0;
    for (uint32_t h = g->first_head; h != DF_NONE; h = p->heads.at[h].next) {
        const index_map *const m = &p->maps.at[p->heads.at[h].dest];
        for (uint32_t j = 0; j < m->rank; j++)
            if (m->axis[j] != FIXED) used |= 1u << m->axis[j];
        for (uint32_t l = 0; l < MAX_LOOPS; l++)
            if (m->lcoef[l] != SLOT_ZERO) used |= 1u << l;
    }
    for (uint32_t l = 0; l < g->sp.n; l++) {
        if (!g->sp.red[l]) continue;
        g->sp.red[l] = false;
        if (used >> l & 1) continue;
        g->sp.extent[l] = SLOT_ONE; /* it served a reduction that is loaded now */
        g->sp.cls[l] = CLS_ONE;
    }
    for (uint32_t i = 0; i < g->n_items; i++) g->items[i].elem = false;
}

deft_status df_fuse_final_cone(pass *p, uint32_t gi)
{
    cone *const c = &p->c;
    df_cone_begin(p, c);
    c->sp = p->groups.at[gi].sp;
    c->group = gi;
    c->level = p->groups.at[gi].frame ? UINT32_MAX : p->groups.at[gi].level;
    c->grow = true;
    for (uint32_t h = p->groups.at[gi].first_head; h != DF_NONE; h = p->heads.at[h].next)
        df_cone_add_head(p, c, p->heads.at[h]);
    deft_status st = p->st == DEFT_OK ? df_cone_run(p, c) : p->st;
    if (st != DEFT_OK) return st;
    if (c->failed)
        return df_fail(p->diag, DEFT_E_INTERNAL, "fuser: %%%u: %s", p->groups.at[gi].node,
                       c->why ? c->why : "no kernel");
    group *const g = &p->groups.at[gi];
    const uint32_t n = (uint32_t)c->order.n;
    uint32_t *const to = df_arena_alloc(&p->tmp, (c->items.n + 1) * sizeof *to, _Alignof(uint32_t));
    g->items = df_arena_alloc(&p->tmp, (n + 1) * sizeof *g->items, _Alignof(item));
    if (!to || !g->items) return df_fail_mem(p->diag, "fuser", n * sizeof *g->items);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = c->order.at[n - 1 - k];
        to[i] = k;
        g->items[k] = c->items.at[i];
        for (uint32_t s = 0; s < 3; s++)
            if (g->items[k].src[s] != DF_NONE) g->items[k].src[s] = to[g->items[k].src[s]];
    }
    g->n_items = n;
    g->sp = c->sp;
    g->n_stages = c->n_stages;
    g->has_red = c->has_red;
    g->has_scan = c->has_scan;
    uint32_t k = 0;
    for (uint32_t h = g->first_head; h != DF_NONE; h = p->heads.at[h].next)
        p->heads.at[h].item = to[c->heads.at[k++].item];
    g->checks = false;
    for (uint32_t i = 0; i < n; i++) g->checks |= g->items[i].kind == IT_TAKE;
    p->has_checks |= g->checks;
    drop_unused_roles(p, g);
    return p->st;
}

deft_status df_fuse_final_cones(pass *p)
{
    for (uint32_t g = 0; g < p->groups.n; g++) {
        const deft_status st = df_fuse_final_cone(p, g);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

/* ---- sharing ---- */

enum { SEEN = 1, TWICE = 2, WITHIN = 4 };

static bool computes(const item *it)
{
    return it->kind == IT_MAP || it->kind == IT_REDUCE || it->kind == IT_SCAN || it->kind == IT_TAKE ||
           it->kind == IT_RANDOM;
}

static bool worth_storing(const pass *p, uint32_t n, uint8_t how)
{
    bool scalar = true;
    for (uint32_t j = 0; j < node_of(p, n)->rank; j++) scalar &= df_fuse_cls(p, n, j) == CLS_ONE;
    const float limit = scalar ? CHEAP_SCALAR : how & TWICE ? CHEAP : CHEAP_WITHIN;
    return p->node_val[n] == DF_NONE && p->cost[n] > limit;
}

/* Marks what several kernels, or one kernel at several elements, compute at a price. *again: found some. */
static deft_status find_shared(pass *p, bool *again)
{
    const uint32_t n_nodes = p->t->n_nodes;
    uint8_t *const how = df_arena_zalloc(&p->tmp, n_nodes + 1, 1);
    uint32_t *const last = df_arena_alloc(&p->tmp, (n_nodes + 1) * sizeof *last, _Alignof(uint32_t));
    if (!how || !last) return df_fail_mem(p->diag, "fuser", n_nodes * sizeof *last);
    *again = false;
    for (uint32_t g = 0; g < p->groups.n; g++)
        for (uint32_t i = 0; i < p->groups.at[g].n_items; i++) {
            const item *const it = &p->groups.at[g].items[i];
            if (!computes(it)) continue;
            if (how[it->node] & SEEN) how[it->node] |= last[it->node] == g ? WITHIN : TWICE;
            how[it->node] |= SEEN;
            last[it->node] = g;
        }
    for (uint32_t g = 0; g < p->groups.n; g++) {
        const group *const w = &p->groups.at[g];
        for (uint32_t i = 0; i < w->n_items; i++)
            for (uint32_t s = 0; s < 3 && computes(&w->items[i]); s++) {
                if (w->items[i].src[s] == DF_NONE) continue;
                const uint32_t n = w->items[w->items[i].src[s]].node;
                if (!computes(&w->items[w->items[i].src[s]]) || how[n] == SEEN) continue;
                /* Only the last shared value of a chain is stored. */
                if (how[w->items[i].node] != SEEN || !worth_storing(p, n, how[n]) || p->must[n])
                    continue;
                p->must[n] = 1;
                *again = true;
                df_fuse_why(p, n, w->items[i].node, "kept apart", "several kernels need it");
            }
        for (uint32_t h = w->first_head; h != DF_NONE; h = p->heads.at[h].next) {
            const item *const it = &w->items[p->heads.at[h].item];
            if (!computes(it) || how[it->node] == SEEN || !worth_storing(p, it->node, how[it->node]) ||
                p->must[it->node])
                continue;
            p->must[it->node] = 1;
            *again = true;
            df_fuse_why(p, it->node, it->node, "kept apart", "several kernels need it");
        }
    }
    return DEFT_OK;
}

deft_status df_fuse_groups(pass *p)
{
    const uint32_t n = p->t->n_nodes;
    p->node_val = df_arena_alloc(&p->tmp, (n + 1) * sizeof *p->node_val, _Alignof(uint32_t));
    p->touch = df_arena_alloc(&p->tmp, (n + 1) * sizeof *p->touch, _Alignof(uint32_t));
    p->cost = df_arena_new(&p->tmp, float, n + 1);
    p->must = df_arena_new(&p->tmp, uint8_t, n + 1);
    p->root_val = df_arena_new(&p->tmp, uint32_t, p->t->n_roots + 1);
    if (!p->node_val || !p->touch || !p->cost || !p->must || !p->root_val)
        return df_fail_mem(p->diag, "fuser", n * sizeof *p->node_val);
    for (uint32_t round = 0;; round++) {
        bool again = false;
        p->has_checks = false;
        deft_status st = one_round(p);
        if (st == DEFT_OK) st = df_fuse_final_cones(p);
        if (st == DEFT_OK && p->fuse && round + 1 < MAX_ROUNDS) st = find_shared(p, &again);
        if (st != DEFT_OK || !again) return st;
    }
}
