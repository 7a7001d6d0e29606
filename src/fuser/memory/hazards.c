/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether memory may be written while others read it, and what to do when it may not.
 *
 * A val may be written over old contents only if each reader of the old contents still gets them. A
 * reader is no obstacle when
 *
 *   - it runs in an earlier launch: it gets an edge to the writer;
 *   - it is the writer itself, and reads just the element that it is about to write;
 *   - it reads elements that are not written: the two boxes share no element, which a guard checks.
 *
 * Two updates of one place whose boxes share no element need no order either. The later one is then
 * *loose*: it is not ordered after the earlier one, and each reader of the place is ordered with
 * both of them separately.
 *
 * An update whose value reads other elements of the base than it writes, as a stencil does, is
 * *staged*:
 *
 *        base ---> kernel ---> part      a temporary of the size of the part
 *          ^                     |
 *          +------- copy <-------+       in a later launch, after all readers of the old contents
 *
 * So the base itself is never copied. Staging does not help against a reader that itself waits for
 * the new contents: it needs the old and the new contents at once. That node is kept in the hazard,
 * to be named in messages.
 */
#include "fuser/fuse.h"

#include <string.h>

/* ---- within one kernel ---- */

/* Whether load l is done when head h of the same kernel stores. */
static bool read_is_over(const pass *p, const group *g, const load *l, const head *h)
{
    if (l->item == DF_NONE) return false;
    const item *const it = &g->items[l->item];
    const index_map *const m = map_at(p, h->dest);
    bool elem = false;
    for (uint32_t j = 0; j < m->rank; j++) elem |= m->axis[j] != FIXED && g->sp.red[m->axis[j]];
    const item *const v = &g->items[h->item];
    const uint32_t at = elem ? (uint32_t)v->stage + (v->kind == IT_REDUCE) : g->n_stages - 1;
    if (!it->elem) return it->stage <= at;
    return elem ? it->need >> (at + 1) == 0 : it->need >> at == 0;
}

/* The head of group g that writes val v, or DF_NONE. */
static head_id head_index(const pass *p, group_id g, val_id v)
{
    head_id h = group_at(p, g)->first_head;
    while (!IS_NONE(h) && !same_val(head_at(p, h)->val, v)) h = head_at(p, h)->next;
    return h;
}

const head *df_hazard_head(const pass *p, val_id v)
{
    const head_id h = head_index(p, val_at(p, v)->group, v);
    return IS_NONE(h) ? NULL : head_at(p, h);
}

bool df_hazard_same_element(const pass *p, const load *l, val_id v)
{
    const group_id g = val_at(p, v)->group;
    const head *const h = df_hazard_head(p, v);
    return same_group(l->group, g) && h && same_map(l->map, h->dest) &&
           read_is_over(p, group_at(p, g), l, h);
}

bool df_hazard_same_address(pass *p, const load *l, val_id u, val_id v)
{
    const group_id g = val_at(p, v)->group;
    const head *const h = df_hazard_head(p, v);
    if (!same_group(l->group, g) || !h || !read_is_over(p, group_at(p, g), l, h)) return false;
    const location from = df_map_locate(p, l->map, place_at(p, val_at(p, u)->place)->stride);
    const location to = df_map_locate(p, h->dest, place_at(p, val_at(p, v)->place)->stride);
    return memcmp(&from, &to, sizeof from) == 0;
}

/* Whether two maps lead to the same elements in this run. With `guard`, guards keep that true. */
static bool maps_meet(pass *p, index_map a, const index_map *b, bool guard)
{
    for (uint32_t j = 0; j < a.rank; j++) {
        if (df_same_slot(a.off[j], b->off[j])) continue;
        if (p->now.at[a.off[j].i] != p->now.at[b->off[j].i]) return false;
        if (guard) df_fuse_guard_slots(p, DF_GUARD_same_place, a.off[j], b->off[j]);
        a.off[j] = b->off[j];
    }
    return memcmp(&a, b, sizeof a) == 0;
}

bool df_hazard_same_element_now(pass *p, const load *l, val_id v)
{
    const group_id g = val_at(p, v)->group;
    const head *const h = df_hazard_head(p, v);
    if (!same_group(l->group, g) || !h || !read_is_over(p, group_at(p, g), l, h)) return false;
    const index_map from = *map_at(p, l->map), to = *map_at(p, h->dest);
    return maps_meet(p, from, &to, false) && maps_meet(p, from, &to, true);
}

/* ---- boxes ---- */

/* The elements of node that a map reaches, over loops of these extents. */
static df_box box_over(pass *p, const df_slot *extent, map_id map, uint32_t node)
{
    const index_map m = *map_at(p, map);
    df_box b = { .is_box = df_map_is_box(&m) && m.rank == node_of(p, node)->rank };
    for (uint32_t j = 0; j < m.rank && b.is_box; j++) {
        b.start[j] = m.off[j];
        b.extent[j] = SLOT_ONE;
        if (m.axis[j] == SPECIAL) b.is_box = false;
        if (m.axis[j] != FIXED && b.is_box) b.extent[j] = extent[m.axis[j]];
        const uint32_t cls = df_fuse_cls(p, node, j);
        b.whole[j] = df_same_slot(m.off[j], SLOT_ZERO) &&
                     df_same_slot(b.extent[j], df_fuse_cls_extent(p, cls));
    }
    return b;
}

df_box df_box_of(pass *p, const group *g, map_id map, uint32_t node)
{
    return box_over(p, g->sp.extent, map, node);
}

/* The elements of node that load l reads. An operand of a product is read over its own axes. */
static df_box box_of_load(pass *p, const load *l, uint32_t node)
{
    const group *const g = group_at(p, l->group);
    if (l->operand == DF_NONE) return df_box_of(p, g, l->map, node);
    if (l->operand == 1 && g->windows != DF_NONE) return (df_box){ .is_box = false };
    df_slot extent[MAX_LOOPS] = { SLOT_ZERO };
    const uint32_t src = df_fuse_operand(p, val_at(p, g->product)->node, l->operand);
    for (uint32_t j = 0; j < node_of(p, src)->rank; j++) extent[j] = df_fuse_axis_extent(p, src, j);
    return box_over(p, extent, l->map, node);
}

/* The elements of its place that the group of v writes. */
static df_box box_of_write(pass *p, val_id v)
{
    const val *const w = val_at(p, v);
    return df_box_of(p, group_at(p, w->group), w->map, w->node);
}

df_slot df_box_gap(pass *p, const df_box *last, const df_box *b, uint32_t axis)
{
    return df_fuse_sub(p, b->start[axis], df_fuse_add(p, last->start[axis], last->extent[axis]));
}

/* The gap from a to b along axis j, or for j >= rank from b to a along axis j - rank. */
static df_slot gap_either_way(pass *p, const df_box *a, const df_box *b, uint32_t rank, uint32_t j)
{
    return j < rank ? df_box_gap(p, a, b, j) : df_box_gap(p, b, a, j - rank);
}

static bool is_fixed(const pass *p, df_slot s)
{
    return p->slots.at[s.i].op == DF_SLOT_const;
}

/* Whether two boxes share no element in this run: along some axis, one ends before the other
 * begins. With `guard`, a guard on the first such axis keeps that true. */
static bool boxes_apart(pass *p, const df_box *a, const df_box *b, uint32_t rank, bool guard)
{
    if (!a->is_box || !b->is_box) return false;
    for (uint32_t j = 0; j < 2 * rank; j++) {
        const df_slot gap = gap_either_way(p, a, b, rank, j);
        if (p->st != DEFT_OK) return false;
        if (p->now.at[gap.i] < 0) continue;
        if (guard && !is_fixed(p, gap)) df_fuse_guard_slot(p, DF_GUARD_at_least, gap, 0);
        return true;
    }
    return false;
}

/* Whether load l reads no element that the group of v writes. */
static bool reads_apart(pass *p, const load *l, val_id v, bool guard)
{
    const val *const w = val_at(p, v);
    if (same_val(group_at(p, w->group)->product, v)) return false; /* a routine adds at any index */
    const df_box from = box_of_load(p, l, w->node), to = box_of_write(p, v);
    return boxes_apart(p, &from, &to, node_of(p, w->node)->rank, guard);
}

/* Whether load l is in a group that writes a part of divided val v or of its node. */
static bool is_beside(const pass *p, const load *l, val_id v)
{
    bool is = false;
    for (val_id u = v; !IS_NONE(u) && val_at(p, u)->divided; u = val_at(p, u)->over)
        is |= same_group(val_at(p, u)->group, l->group);
    for (val_id u = v; !IS_NONE(u) && val_at(p, u)->divided; u = val_at(p, u)->over_by)
        is |= same_group(val_at(p, u)->group, l->group);
    return is;
}

bool df_hazard_reads_beside(pass *p, const load *l, val_id v, bool guard)
{
    return is_beside(p, l, v) && reads_apart(p, l, v, guard);
}

/* Guards that the boxes of a load and a write overlap. Where they do not, a better plan is
 * possible. */
static void guard_overlap(pass *p, const load *l, val_id v)
{
    const uint32_t rank = node_of(p, val_at(p, v)->node)->rank;
    const df_box from = box_of_load(p, l, val_at(p, v)->node), to = box_of_write(p, v);
    if (!from.is_box || !to.is_box) return;
    for (uint32_t j = 0; j < 2 * rank; j++) {
        const df_slot gap = gap_either_way(p, &from, &to, rank, j);
        if (p->st == DEFT_OK && !is_fixed(p, gap) && p->now.at[gap.i] < 0)
            df_fuse_guard_slot(p, DF_GUARD_at_most, gap, -1);
    }
}

bool df_map_is_full(pass *p, const group *g, map_id map, uint32_t node)
{
    const df_box b = df_box_of(p, g, map, node);
    bool whole = b.is_box;
    for (uint32_t j = 0; j < node_of(p, node)->rank && whole; j++) whole = b.whole[j];
    return whole;
}

/* ---- order ---- */

/* The node that messages name for load l: the operator that reads it, or else the result of its
 * group. */
static uint32_t reader_of(const pass *p, const load *l)
{
    const group *const g = group_at(p, l->group);
    if (l->operand != DF_NONE) return val_at(p, g->product)->node;
    for (uint32_t i = 0; i < g->n_items && l->item != DF_NONE; i++)
        for (uint32_t s = 0; s < 3; s++)
            if (g->items[i].src[s] == l->item) return g->items[i].node;
    return g->node;
}

/* Notes an obstacle, unless one is noted already. */
static const char reads_beside[] = "reads other elements of it than it writes";
static const char reads_both[] = "reads the old contents and needs the new ones";

/* Whether v may be written in spite of load l. With `act`, adds the edge or the guards for that. */
static bool lets_write(pass *p, const load *l, val_id v, bool act)
{
    const group_id writer = val_at(p, v)->group;
    const bool own = same_group(l->group, writer);
    if (own && df_hazard_same_element(p, l, v)) return true;
    /* The parts of a val run in one launch: there is no order between them. */
    if (is_beside(p, l, v)) return reads_apart(p, l, v, act);
    if (!own && !df_fuse_reaches(p, writer, l->group)) {
        if (act) df_fuse_edge(p, l->group, writer);
        return true;
    }
    if (!reads_apart(p, l, v, act)) return false;
    if (own || !act) return true;
    /* The load may come after v and still reads the old contents. In v's list of readers it is seen
     * by updates that are written over v. */
    load late = *l;
    late.next = val_at(p, v)->readers;
    late.is_old = true;
    if (!df_vec_push(p->mem, &p->loads, late))
        p->st = df_fail_mem(p->diag, "fuser", sizeof late);
    else
        val_at(p, v)->readers = (load_id){ (uint32_t)p->loads.n - 1 };
    return true;
}

bool df_hazard_may_order(pass *p, load_id list, val_id v, hazard *h)
{
    for (load_id i = list; !IS_NONE(i); i = load_at(p, i)->next) {
        const load l = *load_at(p, i);
        if (lets_write(p, &l, v, false)) continue;
        df_hazard_note(h, reader_of(p, &l),
                       same_group(l.group, val_at(p, v)->group) ? reads_beside : reads_both);
        return false;
    }
    return p->st == DEFT_OK;
}

void df_hazard_order(pass *p, load_id list, val_id v)
{
    for (load_id i = list; !IS_NONE(i); i = load_at(p, i)->next) {
        const load l = *load_at(p, i);
        lets_write(p, &l, v, true);
    }
}

/* Whether update u is ordered after all earlier writers of its place. */
static bool is_after_all(const val *u)
{
    return u->apart == 0 && !u->loose;
}

/* Calls f for each group that wrote the place of v before v, down from val `over`, until a call
 * returns false. Stops at an update that is ordered after all earlier writers. */
static bool each_under(pass *p, val_id over, val_id v, bool (*f)(pass *p, group_id g, val_id v))
{
    for (val_id u = over; !IS_NONE(u); u = val_at(p, u)->over) {
        if (!f(p, val_at(p, u)->group, v)) return false;
        for (group_id k = val_at(p, u)->frames; !IS_NONE(k); k = group_at(p, k)->next_frame)
            if (!f(p, k, v)) return false;
        if (is_after_all(val_at(p, u))) break;
    }
    return true;
}

/* Whether group g may run before the group of v. */
static bool comes_before(pass *p, group_id g, val_id v)
{
    return !df_fuse_reaches(p, val_at(p, v)->group, g);
}

static const char waits[] = "is written by a kernel that waits for this one";

/* Whether the parts that u and v write of one place share no element. */
static bool writes_apart(pass *p, val_id u, val_id v, bool guard)
{
    if (same_val(group_at(p, val_at(p, v)->group)->product, v)) return false;
    if (same_val(group_at(p, val_at(p, u)->group)->product, u) || val_at(p, u)->plain) return false;
    const df_box a = box_of_write(p, u), b = box_of_write(p, v);
    return boxes_apart(p, &a, &b, node_of(p, val_at(p, v)->node)->rank, guard);
}

/* Whether u, an earlier writer of the place of v, can run before v or beside it. Sets *loose when
 * they run side by side. */
static bool suits(pass *p, val_id u, val_id v, bool *loose)
{
    for (group_id k = val_at(p, u)->frames; !IS_NONE(k); k = group_at(p, k)->next_frame)
        if (!comes_before(p, k, v)) return false;
    if (comes_before(p, val_at(p, u)->group, v)) return true;
    /* Readers of v also read what u wrote, so u must be able to run before them. */
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l); l = load_at(p, l)->next)
        if (!load_at(p, l)->is_old && df_fuse_reaches(p, load_at(p, l)->group, val_at(p, u)->group))
            return false;
    return *loose = writes_apart(p, u, v, false);
}

/* Whether being after u means being after all writers before u. */
static bool ends_walk(pass *p, val_id u, val_id v)
{
    return is_after_all(val_at(p, u)) && comes_before(p, val_at(p, u)->group, v);
}

/* Orders v with the earlier writer u, as suits() found possible. */
static void hazard_order_writers(pass *p, val_id u, val_id v)
{
    const group_id writer = val_at(p, v)->group;
    for (group_id k = val_at(p, u)->frames; !IS_NONE(k); k = group_at(p, k)->next_frame)
        df_fuse_edge(p, k, writer);
    if (comes_before(p, val_at(p, u)->group, v)) {
        df_fuse_edge(p, val_at(p, u)->group, writer);
        return;
    }
    writes_apart(p, u, v, true);
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l); l = load_at(p, l)->next)
        if (!load_at(p, l)->is_old) df_fuse_edge(p, val_at(p, u)->group, load_at(p, l)->group);
}

/* Whether v can be ordered with all readers of the vals below `over`, and of the input whose memory
 * the place is. */
static bool may_order_all(pass *p, val_id over, uint32_t input, val_id v, hazard *h)
{
    for (val_id u = val_at(p, over)->over; !IS_NONE(u); u = val_at(p, u)->over)
        if (!df_hazard_may_order(p, val_at(p, u)->readers, v, h)) return false;
    return input == DF_NONE || df_hazard_may_order(p, p->in_readers[input], v, h);
}

static void order_all(pass *p, val_id over, uint32_t input, val_id v)
{
    for (val_id u = val_at(p, over)->over; !IS_NONE(u); u = val_at(p, u)->over)
        df_hazard_order(p, val_at(p, u)->readers, v);
    if (input != DF_NONE) df_hazard_order(p, p->in_readers[input], v);
}

bool df_hazard_after_writers(pass *p, val_id over, uint32_t input, val_id v, hazard *h)
{
    bool loose = false;
    for (val_id u = over; !IS_NONE(u); u = val_at(p, u)->over) {
        if (!suits(p, u, v, &loose)) {
            df_hazard_note(h, val_at(p, u)->node, waits);
            return false;
        }
        if (ends_walk(p, u, v)) break;
    }
    /* A loose v need not follow `over`, so it does not follow the earlier readers either. */
    if (loose && !may_order_all(p, over, input, v, h)) return false;
    val_at(p, v)->loose = loose;
    return true;
}

void df_hazard_follow_writers(pass *p, val_id over, uint32_t input, val_id v)
{
    if (val_at(p, v)->loose) order_all(p, over, input, v);
    for (val_id u = over; !IS_NONE(u); u = val_at(p, u)->over) {
        hazard_order_writers(p, u, v);
        if (ends_walk(p, u, v)) break;
    }
}

/* ---- staging ---- */

/* Calls f for each group that must run after the writer of v, until a call returns false. Those are
 * the readers of v and of all updates that build on v, and the groups of those updates that are
 * written over a full copy of their base (storage.c). */
static bool each_after(pass *p, val_id v, bool (*f)(pass *p, group_id g, group_id what),
                       group_id what)
{
    uint8_t *const above = df_arena_zalloc(&p->tmp, p->vals.n + 1, 1);
    if (!above) {
        p->st = df_fail_mem(p->diag, "fuser", p->vals.n);
        return false;
    }
    above[v.i] = 1;
    for (uint32_t n = val_at(p, v)->node; n < p->t->n_nodes; n++) {
        const val_id w = p->node_val[n];
        if (IS_NONE(w) || !(p->live[n] & 1)) continue;
        if (!same_val(w, v)) {
            if (!df_op_writes_over((df_op)node_of(p, n)->op)) continue;
            const val_id base = df_fuse_stored_under(p, node_of(p, n)->src[0].i);
            if (IS_NONE(base) || !above[base.i]) continue;
            const val *const x = val_at(p, w);
            const bool whole =
                same_val(group_at(p, x->group)->product, w) || !df_map_is_box(map_at(p, x->map));
            if (whole && !f(p, x->group, what)) return false;
            above[w.i] = 1;
        }
        for (load_id i = val_at(p, w)->readers; !IS_NONE(i); i = load_at(p, i)->next)
            if (!f(p, load_at(p, i)->group, what)) return false;
    }
    return true;
}

/* Whether group g need not wait for group `after`. */
static bool keeps_off(pass *p, group_id after, group_id g)
{
    return !df_fuse_reaches(p, after, g);
}

/* Whether group g can run before v when v is written by a copy in a group of its own. */
static bool stays_before(pass *p, group_id g, val_id v)
{
    return each_after(p, v, keeps_off, g);
}

static bool put_behind(pass *p, group_id after, group_id g)
{
    df_fuse_edge(p, g, after);
    return p->st == DEFT_OK;
}

/* The val that already holds what head w stores, so that a copy can read it; DF_NONE: none. */
static val_id stored_value(const pass *p, const head *w)
{
    const val_id s = p->node_val[w->expr];
    return !IS_NONE(s) && !same_val(s, w->val) && !IS_NONE(val_at(p, s)->group) ? s : NO_VAL;
}

/* Whether staging v removes the obstacle. If not, *h may receive the reader that prevents it. */
static bool can_stage(pass *p, load_id list, val_id over, val_id v, hazard *h)
{
    const group_id writer = val_at(p, v)->group;
    const head *const w = df_hazard_head(p, v);
    if (!w || group_at(p, writer)->frame) return false;
    /* Already a copy of what another kernel stored. */
    const val_id s = stored_value(p, w);
    if (!IS_NONE(s) && !same_group(val_at(p, s)->group, writer) &&
        group_at(p, writer)->n_heads == 1)
        return false;
    for (load_id i = list; !IS_NONE(i); i = load_at(p, i)->next) {
        const load l = *load_at(p, i);
        if (stays_before(p, l.group, v) || reads_apart(p, &l, v, false)) continue;
        *h = (hazard){ reader_of(p, &l), reads_both };
        return false;
    }
    return each_under(p, over, v, stays_before);
}

/* Whether staging costs less than memory of its own for the result. Staging reads and writes the
 * part once more. Memory of its own means to read and write all elements around the part. Staging
 * always pays where the alternative is to give up the memory of an input. */
static bool pays(pass *p, val_id v, bool in_input)
{
    const head *const w = df_hazard_head(p, v);
    if (in_input || !w || !df_map_is_box(map_at(p, w->dest))) return true;
    const df_slot part = df_fuse_numel(p, w->expr), all = df_fuse_numel(p, val_at(p, v)->node);
    const df_slot rest = df_fuse_sub(p, all, df_fuse_mul(p, part, df_fuse_const(p, 2)));
    if (p->st != DEFT_OK) return false;
    const bool is_small = p->now.at[rest.i] >= 0;
    if (!is_fixed(p, rest))
        df_fuse_guard_slot(p, is_small ? DF_GUARD_at_least : DF_GUARD_at_most, rest,
                           is_small ? 0 : -1);
    return is_small;
}

map_id df_space_of_node(pass *p, uint32_t node, space *sp)
{
    index_map m = df_map_blank(node_of(p, node)->rank);
    memset(sp, 0, sizeof *sp);
    for (uint32_t j = 0; j < m.rank; j++) {
        const uint32_t cls = df_fuse_cls(p, node, j);
        if (cls == CLS_ONE) continue;
        const uint32_t l = sp->n++;
        sp->cls[l] = cls;
        sp->extent[l] = df_fuse_cls_extent(p, cls);
        sp->order[l] = (uint8_t)l;
        m.axis[j] = (int8_t)l;
        m.coef[j] = SLOT_ONE;
    }
    return df_map_intern(p, &m);
}

/* Removes the head that writes v from its group. */
static void drop_head(pass *p, val_id v)
{
    group *const g = group_at(p, val_at(p, v)->group);
    head_id last = NO_HEAD;
    for (head_id *at = &g->first_head; !IS_NONE(*at);) {
        if (same_val(head_at(p, *at)->val, v)) {
            *at = head_at(p, *at)->next;
            g->n_heads--;
            continue;
        }
        last = *at;
        at = &head_at(p, *at)->next;
    }
    g->last_head = last;
}

/* Makes the head that writes v store into a temporary instead. Returns the val of the temporary, or
 * DF_NONE when memory runs out. */
static val_id head_to_temporary(pass *p, val_id v)
{
    const head_id i = head_index(p, val_at(p, v)->group, v);
    const uint32_t node = head_at(p, i)->expr;
    const val_id s = df_fuse_new_val(p, node, false);
    const place_id q = df_fuse_new_place(p, STORAGE_TEMP, 0, node);
    if (p->st != DEFT_OK) return NO_VAL;
    head *const w = head_at(p, i);
    w->val = s;
    w->dest = w->map;
    val_at(p, s)->group = val_at(p, v)->group;
    val_at(p, s)->map = w->map;
    val_at(p, s)->place = q;
    return s;
}

/* Whether s is `over` or a val below it: v, which is written over them, takes their memory. */
static bool is_under(const pass *p, val_id s, val_id over)
{
    for (; !IS_NONE(over); over = val_at(p, over)->over)
        if (same_val(s, over)) return true;
    return false;
}

/* Makes v be written by a copy, in a group of its own, of what its head computes. */
static deft_status stage(pass *p, val_id over, val_id v)
{
    const head w = *df_hazard_head(p, v);
    val_id s = stored_value(p, &w);
    if (IS_NONE(s) || is_under(p, s, over))
        s = head_to_temporary(p, v);
    else
        drop_head(p, v);
    const group_id gi = df_fuse_new_group(p, DF_SEG_KERNEL, val_at(p, v)->node);
    if (p->st != DEFT_OK) return p->st;
    head h = { .expr = w.expr, .val = v };
    space sp;
    h.map = df_space_of_node(p, w.expr, &sp);
    deft_status st = df_fuse_update_dest(p, val_at(p, v)->node, h.map, &h.dest);
    if (st != DEFT_OK) return st;
    group_at(p, gi)->sp = sp;
    group_at(p, gi)->frame = true;
    df_fuse_append_head(p, gi, h);
    val_at(p, v)->group = gi;
    val_at(p, v)->map = h.dest;
    /* The copy must read s, even if another val is the visible one of that node. */
    const val_id shown = p->node_val[w.expr];
    p->node_val[w.expr] = s;
    st = df_fuse_final_cone(p, gi);
    p->node_val[w.expr] = shown;
    if (st != DEFT_OK) return st;
    df_fuse_record_loads(p, gi);
    each_after(p, v, put_behind, gi);
    val_at(p, v)->staged = true;
    p->plan->n_staged++;
    return p->st;
}

bool df_hazard_stage(pass *p, load_id list, val_id over, val_id v, bool in_input, hazard *h)
{
    if (!h->why || p->st != DEFT_OK) return false;
    if (!can_stage(p, list, over, v, h) || !pays(p, v, in_input)) return false;
    for (load_id i = list; !IS_NONE(i); i = load_at(p, i)->next) {
        const load l = *load_at(p, i);
        if (lets_write(p, &l, v, false)) continue;
        guard_overlap(p, &l, v);
        break;
    }
    const deft_status st = stage(p, over, v);
    if (st != DEFT_OK) p->st = st;
    return p->st == DEFT_OK;
}
