/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stored values share a kernel. A head joins a group that already stores something it needs,
 * or that reads what the head reads, where that is legal and pays:
 *
 * Levels: the level of a group is one more than the highest level of a val that it loads, or 0. It
 * never rises. A head may join group g when all that it loads from other groups has a lower level
 * than g. Of g it may need only the elements that g computes in the same iteration. So edges
 * between groups always rise in level, and no path leaves a group and enters it again.
 *
 * Spaces: loops are matched by class, in order. A head over the rows of a group with RED loops
 * joins as its epilogue. A head may have the loops of a product in another order. A reduction may
 * join a group over the axes of its operand, and gives the group RED loops.
 *
 * The cone of the group with the head is computed and checked before anything is changed. So
 * joining is never a guess.
 */
#include "fuser/fuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_CANDIDATES 24
#define MAX_BESIDE 16 /* heads that share a kernel only because they read the same */
/* The same, because their elements alternate in memory. Code interleaves no more vectors
 * (jit_llvm/rows/turns.c). */
#define MAX_IN_TURN 8

typedef struct candidate {
    group_id group;
    uint32_t node; /* what the head needs of the group, or what both read */
    bool feeds;    /* the group stores something that the head needs */
    bool in_turn;  /* the group writes the elements beside those of the head; see piece_beside */
} candidate;

/* ---- joining ---- */

/* Lists loops from the outermost to the innermost: those whose role is `red`, or with `all` every
 * loop except kept ones of class ONE. Returns their number. */
static uint32_t loops_in_order(const space *sp, bool red, bool all, uint8_t out[MAX_LOOPS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sp->n; i++) {
        const uint8_t l = sp->order[i];
        if ((all || sp->red[l] == red) && !(all && sp->cls[l] == CLS_ONE && !sp->red[l]))
            out[n++] = l;
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

/* Whether the loops of both spaces are over the same classes in any order, each class once, and the
 * innermost loops are over the same class. Sets the loop of a for each loop of b. */
static bool same_classes_in_any_order(const space *a, const uint8_t *la, uint32_t na,
                                      const space *b, const uint8_t *lb, uint32_t nb,
                                      uint8_t to[MAX_LOOPS])
{
    if (na != nb || na == 0 || a->cls[la[na - 1]] != b->cls[lb[nb - 1]]) return false;
    for (uint32_t i = 0; i < nb; i++) {
        uint32_t n_a = 0, n_b = 0;
        for (uint32_t j = 0; j < na; j++) {
            n_b += b->cls[lb[j]] == b->cls[lb[i]];
            if (a->cls[la[j]] != b->cls[lb[i]]) continue;
            n_a++;
            to[lb[i]] = la[j];
        }
        if (n_a != 1 || n_b != 1 || b->cls[lb[i]] == DF_NONE) return false;
    }
    return true;
}

static uint32_t n_red_loops(const space *sp)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sp->n; i++) n += sp->red[i];
    return n;
}

/* Finds one space for group space g and head space n. to_g and to_n map their loops to its loops.
 * feeds: the group stores something that the head needs. is_product: the group has the loops of a
 * product, and no head changes their order. Returns false when there is none. */
static bool join_spaces(const space *g, const space *n, bool feeds, bool is_product, space *out,
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
    if (is_product) {
        *out = *g;
        return rn == 0 && same_classes_in_any_order(g, lg, a, n, ln, b, to_n);
    }
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

/* Renames the loops of all heads of group g. */
static void rename_heads(pass *p, group_id g, const uint8_t to[MAX_LOOPS])
{
    for (head_id h = group_at(p, g)->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        head *const w = head_at(p, h);
        val *const v = val_at(p, w->val);
        w->map = df_map_rename(p, w->map, to);
        w->dest = df_map_rename(p, w->dest, to);
        v->map = w->dest;
    }
}

/* Whether the current cone loads a val of group g. */
static bool loads_group(const pass *p, group_id g)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const val_id v = p->c.items.at[i].val;
        if (!IS_NONE(v) && same_group(val_at(p, v)->group, g)) return true;
    }
    return false;
}

/* Computes the cone of all heads of group g together with h. */
static deft_status run_joint(pass *p, group_id g, const space *sp, const head *h)
{
    cone *const c = &p->c;
    df_cone_begin(p, c);
    c->sp = *sp;
    c->group = g;
    c->level = group_at(p, g)->level;
    c->strict = true;
    c->grow = false;
    for (head_id k = group_at(p, g)->first_head; !IS_NONE(k); k = head_at(p, k)->next)
        df_cone_add_head(p, c, *head_at(p, k));
    df_cone_add_head(p, c, *h);
    /* The val that the head stores counts as one of the group already. */
    val_at(p, h->val)->group = g;
    val_at(p, h->val)->map = h->dest;
    const deft_status st = p->st == DEFT_OK ? df_cone_run(p, c) : p->st;
    val_at(p, h->val)->group = NO_GROUP;
    return st;
}

/* Makes the current cone that of group g. */
static void join_assign_cone(pass *p, group_id g)
{
    for (size_t i = 0; i < p->c.order.n; i++) p->touch[p->c.items.at[p->c.order.at[i]].node] = g;
    for (size_t i = 0; i < p->c.entered.n; i++) p->touch[p->c.entered.at[i]] = g;
    group_at(p, g)->size = p->c.n_ops;
    group_at(p, g)->sp = p->c.sp;
}

/* Makes h a head of group g. */
static void join_add_head(pass *p, group_id g, head h)
{
    val *const v = val_at(p, h.val);
    v->group = g;
    v->level = group_at(p, g)->level;
    v->map = h.dest;
    if (v->visible && node_of(p, v->node)->op == DF_OP_update) {
        /* Its readers also wait for the array that it updates. */
        const val_id base = df_fuse_stored_under(p, node_of(p, v->node)->src[0].i);
        if (!IS_NONE(base) && val_at(p, base)->level >= v->level)
            v->level = val_at(p, base)->level + 1;
    }
    df_fuse_append_head(p, g, h);
}

/* Notes why joining was refused: on the pair of the needed node and the node that needs it, or on
 * two nodes that read the same. */
static void apart(pass *p, const candidate *with, uint32_t node, const char *fmt, ...)
    DF_PRINTF(4, 5);
static void apart(pass *p, const candidate *with, uint32_t node, const char *fmt, ...)
{
    char text[160];
    if (!p->lim->keep_why) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const uint32_t a = with->feeds ? with->node : group_at(p, with->group)->node;
    if (a != node) df_fuse_why(p, a, node, "kept apart", "%s", text);
}

/* Tries to make h, whose own space is n, a head of the candidate group. The current cone is
 * replaced. */
static deft_status try_join(pass *p, const candidate *with, const space *n, head h, bool *joined)
{
    const group_id g = with->group;
    const uint32_t node = val_at(p, h.val)->node;
    const bool feeds = with->feeds;
    const uint32_t most = with->in_turn ? MAX_IN_TURN : MAX_BESIDE;
    space sp;
    uint8_t to_g[MAX_LOOPS], to_n[MAX_LOOPS], back[MAX_LOOPS];
    *joined = false;
    const bool matmul = group_at(p, g)->kind == DF_SEG_MATMUL;
    const space before = group_at(p, g)->sp;
    const char *const no = group_at(p, g)->kind == DF_SEG_ROUTINE ? "a routine stores its result"
                           : !join_spaces(&before, n, feeds, matmul, &sp, to_g, to_n)
                               ? "their loops are over different axes"
                           : matmul && (!feeds || n_red_loops(&sp) > 0)
                               ? "what follows a product in its tiles reduces nothing"
                           : !feeds && group_at(p, g)->n_heads >= most
                               ? "that kernel stores enough results already"
                               : NULL;
    if (no) {
        apart(p, with, node, "%s", no);
        return p->st;
    }
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
    bool ok = !p->c.failed && df_fuse_red_is_fine(p, &p->c);
    if (ok && p->c.multi) ok = df_fuse_pays(p, &p->c.sp, false);
    if (!ok) {
        if (p->c.failed)
            apart(p, with, node, "%s", p->c.why ? p->c.why : "no kernel");
        else if (!df_fuse_red_is_fine(p, &p->c))
            apart(p, with, node, "too many reductions over axes that do not merge");
        else
            apart(p, with, node, "too few rows, %lld, to keep %u threads busy",
                  df_space_rows_now(p, &p->c.sp), p->lim->n_threads);
        if (moved) rename_heads(p, g, back);
        return p->st;
    }
    if (p->c.multi) df_fuse_pays(p, &p->c.sp, true);
    if (with->in_turn)
        df_fuse_why(p, group_at(p, g)->node, node, "fused", "their elements alternate in memory");
    else if (!feeds)
        df_fuse_why(p, group_at(p, g)->node, node, "fused", "both read %%%u %s", with->node,
                    df_fuse_name(p, with->node));
    else
        df_fuse_why(p, with->node, node, "fused",
                    matmul ? "applied to tiles of the product" : "read where it is computed");
    join_add_head(p, g, h);
    join_assign_cone(p, g);
    *joined = true;
    return p->st;
}

/* Adds group g to the candidates, once. */
static void offer(candidate *list, uint32_t *n, group_id g, uint32_t node, bool feeds)
{
    for (uint32_t i = 0; i < *n; i++)
        if (same_group(list[i].group, g)) {
            if (feeds && !list[i].feeds) list[i].node = node;
            list[i].feeds |= feeds;
            return;
        }
    if (*n < MAX_CANDIDATES) list[(*n)++] = (candidate){ .group = g, .node = node, .feeds = feeds };
}

/* Offers group g, which reads what the head reads, when it has that level. When g computes a part
 * of a divided val, the groups of the other parts are offered, too: they read other elements. */
static void offer_beside(const pass *p, candidate *list, uint32_t *n, group_id g, uint32_t node,
                         uint32_t level)
{
    const head_id h = group_at(p, g)->first_head;
    val_id v = IS_NONE(h) ? NO_VAL : head_at(p, h)->val;
    if (group_at(p, g)->level == level) offer(list, n, g, node, false);
    while (!IS_NONE(v) && !IS_NONE(val_at(p, v)->over_by)) v = val_at(p, v)->over_by;
    for (; !IS_NONE(v) && val_at(p, v)->divided; v = val_at(p, v)->over) {
        const group_id part = val_at(p, v)->group; /* none yet: it is being planned */
        if (!IS_NONE(part) && group_at(p, part)->level == level) offer(list, n, part, node, false);
    }
}

/* The val of the piece that a stack along the last axis has before piece v: an update of one
 * element along that axis, over which v is written. NO_VAL: v is no such piece. One kernel stores
 * whole vectors of elements of both; two kernels would store element by element, and visit each
 * cache line twice. */
static val_id piece_beside(const pass *p, val_id v)
{
    if (!val_at(p, v)->visible) return NO_VAL;
    const df_node *const x = node_of(p, val_at(p, v)->node);
    if (x->op != DF_OP_update || x->rank == 0) return NO_VAL;
    const df_node *const base = node_of(p, x->src[0].i);
    const uint32_t last = x->rank - 1u;
    if (base->op != DF_OP_update || node_of(p, x->src[1].i)->rank != x->rank ||
        node_of(p, base->src[1].i)->rank != x->rank ||
        df_fuse_cls(p, x->src[1].i, last) != CLS_ONE ||
        df_fuse_cls(p, base->src[1].i, last) != CLS_ONE)
        return NO_VAL;
    return p->node_val[x->src[0].i];
}

/* Offers the group that writes the elements beside those of the head. Reductions gain nothing. */
static void offer_in_turn(const pass *p, const head *h, candidate *list, uint32_t *n,
                          uint32_t level)
{
    const val_id v = piece_beside(p, h->val);
    const group_id g = IS_NONE(v) ? NO_GROUP : val_at(p, v)->group;
    if (IS_NONE(g) || p->c.has_red || p->c.has_scan || *n == MAX_CANDIDATES) return;
    const group *const x = group_at(p, g);
    if (x->level != level || x->kind != DF_SEG_KERNEL || x->has_red || x->has_scan) return;
    for (uint32_t i = 0; i < *n; i++)
        if (same_group(list[i].group, g)) return;
    list[(*n)++] = (candidate){ .group = g, .node = val_at(p, v)->node, .in_turn = true };
}

/* Lists the groups that the head of the current cone could join. *level: one more than the highest
 * level of a val that it loads, or 0. */
static uint32_t candidates(const pass *p, candidate list[MAX_CANDIDATES], uint32_t *level)
{
    const cone *const c = &p->c;
    uint32_t n = 0;
    *level = 0;
    for (size_t i = 0; i < c->order.n; i++) {
        const val_id v = c->items.at[c->order.at[i]].val;
        if (!IS_NONE(v) && val_at(p, v)->level + 1 > *level) *level = val_at(p, v)->level + 1;
    }
    for (size_t i = 0; i < c->order.n; i++) {
        const item *const it = &c->items.at[c->order.at[i]];
        if (it->kind == IT_LOAD && val_at(p, it->val)->plain)
            offer(list, &n, val_at(p, it->val)->group, it->node, true);
        const group_id g = p->touch[it->node];
        if (it->kind != IT_NUM && !IS_NONE(g)) offer_beside(p, list, &n, g, it->node, *level);
    }
    return n;
}

/* Whether all vals that the current cone loads, except those of g, have a lower level than g. */
static bool lies_above(const pass *p, group_id g)
{
    for (size_t i = 0; i < p->c.items.n; i++) {
        const val_id v = p->c.items.at[i].val;
        if (IS_NONE(v) || same_group(val_at(p, v)->group, g)) continue;
        if (val_at(p, v)->level >= group_at(p, g)->level) return false;
    }
    return true;
}

/* First the groups that feed h are tried, then those that read what h reads. */
deft_status df_fuse_join_or_open(pass *p, head h, const space *from, val_id after)
{
    candidate list[MAX_CANDIDATES];
    bool legal[MAX_CANDIDATES];
    uint32_t level;
    uint32_t n = candidates(p, list, &level);
    offer_in_turn(p, &h, list, &n, level);
    if (!p->fuse || !IS_NONE(after)) n = 0;
    if (!IS_NONE(after) && val_at(p, after)->level >= level) level = val_at(p, after)->level + 1;
    const space sp = p->c.sp;
    bool joined = false;
    for (uint32_t i = 0; i < n; i++) {
        const group *const g = group_at(p, list[i].group);
        legal[i] = lies_above(p, list[i].group) &&
                   (list[i].feeds ? loads_group(p, list[i].group) : g->kind == DF_SEG_KERNEL);
        if (!legal[i])
            apart(p, &list[i], val_at(p, h.val)->node,
                  g->kind == DF_SEG_KERNEL ? "it also needs what is ready only after that kernel"
                                           : "a product has no room for what reads its operands");
    }
    for (uint32_t turn = 0; turn < 2 && !joined; turn++)
        for (uint32_t i = 0; i < n && !joined; i++) {
            if (!legal[i] || list[i].feeds != (turn == 0)) continue;
            const deft_status st = try_join(p, &list[i], &sp, h, &joined);
            if (st != DEFT_OK) return st;
        }
    if (joined) return DEFT_OK;
    bool progress;
    if (n > 0) {
        const deft_status st = df_fuse_run_alone(p, &h, from, &progress); /* the cone was used up */
        if (st != DEFT_OK) return st;
        df_assert(!progress);
    }
    const group_id g = df_fuse_new_group(p, DF_SEG_KERNEL, h.expr);
    if (p->st != DEFT_OK) return p->st;
    group_at(p, g)->level = level;
    join_add_head(p, g, h);
    join_assign_cone(p, g);
    return p->st;
}
