/* SPDX-License-Identifier: Apache-2.0
 *
 * Where each val lives, and which groups must run before which.
 *
 * Every val gets a place: a temporary, a root's buffer, or the caller's memory. An update either
 * writes into the place of what it updates, or gets a fresh one whose remaining elements are filled
 * in:
 *
 *        +-----------------+    the box is written by the value's own kernel; up to two frames an
 * axis, |  above          |    each reading the base, fill the rest. Frames and box touch disjoint
 *        +---+---------+---+    elements and need nothing of each other: one launch.
 *        | l |   box   | r |
 *        +---+---------+---+    A region that is no box (steps, diagonals): the base is copied
 * whole |  below          |    first, then written over.
 *        +-----------------+
 *
 * In place is legal when every group that reads the old contents runs before the writer, or is the
 * writer itself and reads exactly the element that it writes. Those groups get an edge to the
 * writer; an edge that would close a circle makes the update take a fresh place instead. The same
 * test decides whether a root may be written straight into the caller's memory.
 *
 * What a routine adds to is no box either, and lies in its place before.
 *
 * Pieces written into one `empty` (concatenation, stacking) are independent when each begins, along
 * one axis, where the pieces before it have ended: that is guarded, and all run in one launch.
 * size: one question, where a value lives, over all kinds of update.
 */
#include "fuser/fuse.h"

#include <string.h>

/* ---- places ---- */

uint32_t df_fuse_new_place(pass *p, uint32_t kind, uint32_t index, uint32_t node)
{
    place w = { .kind = kind, .index = index, .node = node, .donor = DF_NONE, .buf = DF_NONE };
    if (kind == PLACE_INTO)
        memcpy(w.stride, df_fuse_input_strides(p, index), sizeof w.stride);
    else
        df_fuse_contiguous(p, node, w.stride);
    if (!df_vec_push(p->mem, &p->places, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return (uint32_t)p->places.n - 1;
}

static bool is_new_root(const pass *p, uint32_t v)
{
    const uint32_t r = p->vals.at[v].root;
    return r != DF_NONE && p->t->roots[r].kind == DF_ROOT_NEW;
}

static bool is_into_root(const pass *p, uint32_t v)
{
    const uint32_t r = p->vals.at[v].root;
    return r != DF_NONE && p->t->roots[r].kind == DF_ROOT_INTO;
}

static uint32_t own_place(pass *p, uint32_t v)
{
    const val *const w = &p->vals.at[v];
    return is_new_root(p, v) ? df_fuse_new_place(p, PLACE_ROOT, w->root, w->node)
                             : df_fuse_new_place(p, PLACE_TEMP, 0, w->node);
}

/* ---- writing where somebody reads ---- */

/* The stage from which a load's memory may be written, within one kernel. */
static bool read_is_over(const pass *p, const group *g, const load *l, const head *h)
{
    if (l->item == DF_NONE) return false;
    const item *const it = &g->items[l->item];
    const index_map *const m = &p->maps.at[h->dest];
    bool elem = false;
    for (uint32_t j = 0; j < m->rank; j++) elem |= m->axis[j] != FIXED && g->sp.red[m->axis[j]];
    const item *const v = &g->items[h->item];
    const uint32_t at = elem ? (uint32_t)v->stage + (v->kind == IT_REDUCE) : g->n_stages - 1;
    if (!it->elem) return it->stage <= at;
    return elem ? it->need >> (at + 1) == 0 : it->need >> at == 0;
}

static const head *head_of(const pass *p, uint32_t g, uint32_t v)
{
    for (uint32_t h = p->groups.at[g].first_head; h != DF_NONE; h = p->heads.at[h].next)
        if (p->heads.at[h].val == v) return &p->heads.at[h];
    return NULL;
}

/* Whether load l and the head that writes v touch the same element at each step, the load first. */
static bool same_element(const pass *p, const load *l, uint32_t v)
{
    const uint32_t g = p->vals.at[v].group;
    const head *const h = head_of(p, g, v);
    return l->group == g && h && l->map == h->dest && read_is_over(p, &p->groups.at[g], l, h);
}

/* ---- boxes ---- */

typedef struct box {
    bool is_box;
    df_slot start[DEFT_MAX_RANK], extent[DEFT_MAX_RANK];
    bool whole[DEFT_MAX_RANK];
} box;

/* What a map over node's axes touches as the loops of g run. */
static box box_of(pass *p, const group *g, uint32_t map, uint32_t node)
{
    const index_map m = p->maps.at[map];
    box b = { .is_box = df_map_is_box(&m) };
    for (uint32_t j = 0; j < m.rank && b.is_box; j++) {
        b.start[j] = m.off[j];
        b.extent[j] = SLOT_ONE;
        if (m.axis[j] == SPECIAL) b.is_box = false;
        if (m.axis[j] != FIXED && b.is_box) b.extent[j] = g->sp.extent[m.axis[j]];
        const uint32_t cls = df_fuse_cls(p, node, j);
        b.whole[j] = m.off[j] == SLOT_ZERO && b.extent[j] == df_fuse_cls_extent(p, cls);
    }
    return b;
}

bool df_place_is_whole(pass *p, const group *g, uint32_t map, uint32_t node)
{
    const box b = box_of(p, g, map, node);
    bool whole = b.is_box;
    for (uint32_t j = 0; j < node_of(p, node)->rank && whole; j++) whole = b.whole[j];
    return whole;
}

/* Elements between the end of one box and the start of the next along an axis; below 0: they
 * overlap. */
static df_slot gap_between(pass *p, const box *last, const box *b, uint32_t axis)
{
    return df_fuse_sub(p, b->start[axis], df_fuse_add(p, last->start[axis], last->extent[axis]));
}

/* Whether two boxes share no element, as a guard can hold: the first axis along which one ends
 * before the other begins. */
static bool boxes_apart(pass *p, const box *a, const box *b, uint32_t rank)
{
    if (!a->is_box || !b->is_box) return false;
    for (uint32_t j = 0; j < 2 * rank; j++) {
        const df_slot gap = j < rank ? gap_between(p, a, b, j) : gap_between(p, b, a, j - rank);
        if (p->st != DEFT_OK) return false;
        if (p->now.at[gap] < 0) continue;
        if (p->slots.at[gap].op != DF_SLOT_const) df_fuse_guard(p, DF_GUARD_at_least, gap, 0, 0);
        return true;
    }
    return false;
}

/* Whether load l, in the kernel that writes v, reads none of what is written. */
static bool reads_apart(pass *p, const load *l, uint32_t v)
{
    const val *const w = &p->vals.at[v];
    const group *const g = &p->groups.at[w->group];
    const uint32_t rank = node_of(p, w->node)->rank;
    if (g->product == v) return false; /* its operands have loops of their own */
    if (p->maps.at[l->map].linear || p->maps.at[l->map].rank != rank || p->maps.at[w->map].linear)
        return false;
    const box from = box_of(p, g, l->map, w->node), to = box_of(p, g, w->map, w->node);
    return boxes_apart(p, &from, &to, rank);
}

/* Orders all loads of a list before the writer of v, or finds that this cannot be. */
static bool order_readers(pass *p, uint32_t list, uint32_t v)
{
    const uint32_t writer = p->vals.at[v].group;
    for (uint32_t i = list; i != DF_NONE; i = p->loads.at[i].next) {
        const load l = p->loads.at[i];
        if (l.group == writer ? !same_element(p, &l, v) && !reads_apart(p, &l, v)
                              : df_fuse_reaches(p, writer, l.group))
            return false;
    }
    for (uint32_t i = list; i != DF_NONE; i = p->loads.at[i].next)
        df_fuse_edge(p, p->loads.at[i].group, writer);
    return p->st == DEFT_OK;
}

/* ---- the caller's memory ---- */

static bool overlap(const pass *p, uint32_t a, uint32_t b)
{
    const df_input *const x = &p->t->inputs[a], *const y = &p->t->inputs[b];
    int64_t low[2], bytes[2];
    if (!df_input_reach(p->t, a, &low[0], &bytes[0]) ||
        !df_input_reach(p->t, b, &low[1], &bytes[1]))
        return true;
    if (!x->data || !y->data || bytes[0] == 0 || bytes[1] == 0) return false;
    const uintptr_t from = (uintptr_t)x->data + (uintptr_t)low[0];
    const uintptr_t other = (uintptr_t)y->data + (uintptr_t)low[1];
    return from < other + (uint64_t)bytes[1] && other < from + (uint64_t)bytes[0];
}

/* Nothing that the plan reads lies in input k's memory but under its own name. */
static bool disjoint(pass *p, uint32_t k, bool guard)
{
    for (uint32_t i = 0; i < p->t->n_inputs; i++) {
        if (i == k || p->in_readers[i] == DF_NONE) continue;
        if (overlap(p, i, k)) return false;
        if (guard) df_fuse_guard(p, DF_GUARD_disjoint, k, i, 0);
    }
    return true;
}

static bool written_elsewhere(const pass *p, uint32_t v, uint32_t input)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        if (p->root_val[r] == v || root->kind != DF_ROOT_INTO) continue;
        if (root->into == input || overlap(p, root->into, input)) return true;
    }
    return false;
}

/* ---- updates ---- */

/* A group that evaluates base over a box of it and writes that to val v's place. */
static deft_status add_frame(pass *p, uint32_t v, uint32_t base, const df_slot *start,
                             const df_slot *extent)
{
    const uint32_t gi = df_fuse_new_group(p, DF_SEG_KERNEL, p->vals.at[v].node);
    if (p->st != DEFT_OK) return p->st;
    group *const g = &p->groups.at[gi];
    const uint32_t rank = node_of(p, base)->rank;
    index_map m = df_map_blank(rank);
    for (uint32_t j = 0; j < rank; j++) {
        m.off[j] = start[j];
        if (extent[j] == SLOT_ONE) continue;
        const uint32_t l = g->sp.n++;
        m.axis[j] = (int8_t)l;
        m.coef[j] = SLOT_ONE;
        g->sp.order[l] = (uint8_t)l;
        g->sp.extent[l] = extent[j];
        /* A whole axis keeps its class, so that reductions in the base can be matched. */
        g->sp.cls[l] = start[j] == SLOT_ZERO && extent[j] == df_fuse_axis_extent(p, base, j)
                           ? df_fuse_cls(p, base, j)
                           : DF_NONE;
    }
    g->frame = true;
    const uint32_t map = df_map_intern(p, &m);
    df_fuse_append_head(p, gi, (head){ .expr = base, .map = map, .dest = map, .val = v });
    const deft_status st = df_fuse_final_cone(p, gi);
    if (st != DEFT_OK) return st;
    df_fuse_record_loads(p, gi);
    p->groups.at[gi].next_frame = p->vals.at[v].frames;
    p->vals.at[v].frames = gi;
    for (uint32_t l = p->vals.at[v].readers; l != DF_NONE; l = p->loads.at[l].next)
        df_fuse_edge(p, gi, p->loads.at[l].group);
    return p->st;
}

static deft_status fill_frames(pass *p, uint32_t v, uint32_t base, const box *b)
{
    const uint32_t rank = node_of(p, base)->rank;
    df_slot start[DEFT_MAX_RANK], extent[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < rank; j++) {
        start[j] = SLOT_ZERO;
        extent[j] = df_fuse_axis_extent(p, base, j);
    }
    for (uint32_t j = 0; j < rank; j++) {
        if (b->whole[j]) continue;
        const df_slot all = extent[j], end = df_fuse_add(p, b->start[j], b->extent[j]);
        deft_status st = DEFT_OK;
        if (b->start[j] != SLOT_ZERO) {
            extent[j] = b->start[j];
            st = add_frame(p, v, base, start, extent);
        }
        const df_slot rest = df_fuse_sub(p, all, end);
        if (st == DEFT_OK && rest != SLOT_ZERO) {
            start[j] = end;
            extent[j] = rest;
            st = add_frame(p, v, base, start, extent);
        }
        if (st != DEFT_OK) return st;
        start[j] = b->start[j];
        extent[j] = b->extent[j];
    }
    return p->st;
}

static deft_status copy_whole(pass *p, uint32_t v, uint32_t base)
{
    df_slot start[DEFT_MAX_RANK] = { 0 }, extent[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < node_of(p, base)->rank; j++)
        extent[j] = df_fuse_axis_extent(p, base, j);
    const deft_status st = add_frame(p, v, base, start, extent);
    if (st == DEFT_OK) df_fuse_edge(p, p->vals.at[v].frames, p->vals.at[v].group);
    return st;
}

/* Whether v, over val `over`, may run beside all writers of that place: the chain consists of
 * boxes, each beyond the last along one and the same axis, in memory whose old contents nobody
 * needs to be ordered with here. Returns that axis + 1, or 0. */
static uint8_t pieces_apart(pass *p, uint32_t v, uint32_t over)
{
    const uint32_t node = p->vals.at[v].node, rank = node_of(p, node)->rank;
    const val *const under = &p->vals.at[over];
    if (node_of(p, under->node)->op != DF_OP_update || !under->visible) return 0;
    if (under->frames != DF_NONE || under->readers != DF_NONE) return 0;
    if (under->over != DF_NONE && under->apart == 0) return 0;
    const head *const h = head_of(p, p->vals.at[v].group, v);
    const head *const k = head_of(p, under->group, over);
    if (!h || !k) return 0;
    const uint8_t axis = under->apart;
    const box b = box_of(p, &p->groups.at[p->vals.at[v].group], h->dest, node);
    const box last = box_of(p, &p->groups.at[under->group], k->dest, node);
    if (!b.is_box || !last.is_box) return 0;
    for (uint32_t j = 0; j < rank; j++) {
        if (axis != 0 && j + 1u != axis) continue;
        const df_slot gap = gap_between(p, &last, &b, j);
        if (p->st != DEFT_OK) return 0;
        if (p->now.at[gap] < 0) continue;
        if (p->slots.at[gap].op != DF_SLOT_const) df_fuse_guard(p, DF_GUARD_at_least, gap, 0, 0);
        return (uint8_t)(j + 1);
    }
    return 0;
}

static uint32_t *n_over_of(pass *p)
{
    uint32_t *const n = df_arena_new(&p->tmp, uint32_t, p->t->n_nodes + 1);
    if (!n) {
        p->st = df_fail_mem(p->diag, "fuser", p->t->n_nodes * sizeof *n);
        return NULL;
    }
    for (uint32_t i = 0; i < p->t->n_nodes; i++)
        if ((p->live[i] & 1) && df_op_writes_over((df_op)node_of(p, i)->op))
            n[node_of(p, i)->src[0].i]++;
    return n;
}

/* The root at the end of a chain of updates that starts with v, if each is the only one over the
 * last. */
static uint32_t end_of_chain(const pass *p, uint32_t v, const uint32_t *n_over,
                             const uint32_t *next)
{
    while (p->vals.at[v].root == DF_NONE) {
        const uint32_t n = p->vals.at[v].node;
        if (n_over[n] != 1 || next[n] == DF_NONE) return DF_NONE;
        v = next[n];
    }
    return v;
}

static bool fits_donor(const pass *p, uint32_t root_node, uint32_t input)
{
    const uint32_t n = p->t->inputs[input].node;
    const df_node *const a = node_of(p, root_node), *const b = node_of(p, n);
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    if (!(p->t->inputs[input].flags & DF_INPUT_CONTIGUOUS)) return false;
    for (uint32_t j = 0; j < a->rank; j++)
        if (df_fuse_cls(p, root_node, j) != df_fuse_cls(p, n, j)) return false;
    return true;
}

/* An update of an input whose owner the chain's root rebinds: into that very memory. */
static bool over_input(pass *p, uint32_t v, uint32_t base, const uint32_t *n_over,
                       const uint32_t *next)
{
    if (node_of(p, base)->op != DF_OP_input || n_over[base] != 1) return false;
    /* Where indices are checked, memory may have to be copied in the end, and a kernel copies
     * faster than the binding. */
    if (p->has_checks && p->groups.at[p->vals.at[v].group].product == v) return false;
    const uint32_t input = node_of(p, base)->attr;
    const uint32_t end = end_of_chain(p, v, n_over, next);
    if (end == DF_NONE) return false;
    const df_root *const r = &p->t->roots[p->vals.at[end].root];
    const bool into = r->kind == DF_ROOT_INTO;
    if (into ? r->into != input : r->donor != input) return false;
    if (into && (p->has_checks || written_elsewhere(p, end, input) || !disjoint(p, input, false)))
        return false;
    if (!into && !(p->t->inputs[input].flags & DF_INPUT_SOLE)) return false;
    if (!into && !fits_donor(p, p->vals.at[v].node, input)) return false;
    if (!order_readers(p, p->in_readers[input], v)) return false;
    const uint32_t q =
        into ? df_fuse_new_place(p, PLACE_INTO, input, p->vals.at[v].node)
             : df_fuse_new_place(p, PLACE_ROOT, p->vals.at[end].root, p->vals.at[v].node);
    if (p->st != DEFT_OK) return false;
    if (into) {
        disjoint(p, input, true);
    } else {
        df_fuse_input_strides(p, input); /* guards that it is contiguous */
        p->places.at[q].donor = input;
        p->places.at[q].keep = true;
    }
    p->vals.at[v].place = q;
    p->in_over[input] = v;
    return true;
}

/* In the place of the val it updates. */
static bool over_val(pass *p, uint32_t v, uint32_t base, const uint32_t *n_over)
{
    const uint32_t over = p->node_val[base];
    if (over == DF_NONE || n_over[base] != 1 || p->vals.at[over].root != DF_NONE) return false;
    const uint32_t q = p->vals.at[over].place;
    place *const w = &p->places.at[q];
    /* A root's memory may hold this only on the way to that root, and two roots do not share. */
    if (w->kind == PLACE_TEMP && is_into_root(p, v)) return false;
    const uint32_t writer = p->vals.at[v].group;
    uint8_t apart = pieces_apart(p, v, over);
    if (apart && w->kind != PLACE_TEMP) {
        /* Memory that held an input: its readers come before every piece. */
        const uint32_t input = w->kind == PLACE_INTO ? w->index : w->donor;
        if (input != DF_NONE && !order_readers(p, p->in_readers[input], v)) apart = 0;
    }
    if (!apart) {
        for (uint32_t u = over; u != DF_NONE; u = p->vals.at[u].over) {
            if (df_fuse_reaches(p, writer, p->vals.at[u].group)) return false;
            for (uint32_t f = p->vals.at[u].frames; f != DF_NONE; f = p->groups.at[f].next_frame)
                if (df_fuse_reaches(p, writer, f)) return false;
            if (p->vals.at[u].apart == 0) break; /* it came after all below it */
        }
        if (!order_readers(p, p->vals.at[over].readers, v)) return false;
        df_fuse_writer_edges(p, over, writer);
    }
    if (w->kind == PLACE_TEMP && is_new_root(p, v)) {
        w->kind = PLACE_ROOT;
        w->index = p->vals.at[v].root;
    }
    p->vals.at[v].apart = apart;
    p->vals.at[v].over = over;
    p->vals.at[over].over_by = v;
    p->vals.at[v].place = q;
    return p->st == DEFT_OK;
}

/* The chain under base had taken the memory of a root, new or the caller's, that it does not reach
 * after all: it gets a temporary, with the input's contents copied first. */
static deft_status give_up_root(pass *p, uint32_t base)
{
    uint32_t v = p->node_val[base];
    if (v == DF_NONE || p->vals.at[v].place == DF_NONE || p->vals.at[v].root != DF_NONE)
        return DEFT_OK;
    place *const w = &p->places.at[p->vals.at[v].place];
    if (w->kind == PLACE_TEMP) return DEFT_OK;
    if (w->kind == PLACE_INTO) {
        p->in_over[w->index] = DF_NONE;
        df_fuse_contiguous(p, w->node, w->stride);
    }
    w->kind = PLACE_TEMP;
    w->index = 0;
    w->donor = DF_NONE;
    w->keep = false;
    uint32_t bottom = v;
    while (p->vals.at[bottom].over != DF_NONE) bottom = p->vals.at[bottom].over;
    const deft_status st = copy_whole(p, bottom, node_of(p, p->vals.at[bottom].node)->src[0].i);
    for (uint32_t u = v; st == DEFT_OK && u != bottom; u = p->vals.at[u].over)
        df_fuse_edge(p, p->vals.at[bottom].frames, p->vals.at[u].group);
    return st;
}

static deft_status place_update(pass *p, uint32_t v, const uint32_t *n_over, const uint32_t *next)
{
    const uint32_t node = p->vals.at[v].node, base = node_of(p, node)->src[0].i;
    const bool routine = node_of(p, node)->op != DF_OP_update;
    if (node_of(p, base)->op == DF_OP_empty && !routine) {
        p->vals.at[v].place = own_place(p, v);
        return p->st;
    }
    if (over_input(p, v, base, n_over, next) || over_val(p, v, base, n_over)) {
        df_fuse_why(p, base, node, "in place", "all reads of the old contents come first");
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    const deft_status moved = give_up_root(p, base);
    if (moved != DEFT_OK) return moved;
    if (p->node_val[base] == DF_NONE && routine)
        df_fuse_why(p, base, node, "written first", "it is added to in the result's memory");
    else
        df_fuse_why(p, base, node, "double buffered", "the old contents are read by others");
    p->vals.at[v].place = own_place(p, v);
    if (routine) return copy_whole(p, v, base);
    const head *const h = head_of(p, p->vals.at[v].group, v);
    const box b = box_of(p, &p->groups.at[p->vals.at[v].group], h->dest, node);
    return b.is_box ? fill_frames(p, v, base, &b) : copy_whole(p, v, base);
}

/* ---- roots in the caller's memory ---- */

/* A root that goes into the caller's memory: at once when nobody reads that memory later, else
 * through a temporary and a copy. With checks, which may fail, always at the very end. */
static deft_status place_into(pass *p, uint32_t v)
{
    const uint32_t r = p->vals.at[v].root, input = p->t->roots[r].into, node = p->vals.at[v].node;
    const bool alone = !written_elsewhere(p, v, input) && disjoint(p, input, false);
    const uint32_t g = p->vals.at[v].group;
    const bool plain = p->vals.at[v].plain && p->groups.at[g].product != v;
    if (plain && alone && !p->has_checks && order_readers(p, p->in_readers[input], v)) {
        disjoint(p, input, true);
        p->vals.at[v].place = df_fuse_new_place(p, PLACE_INTO, input, node);
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    if (p->vals.at[v].place == DF_NONE)
        p->vals.at[v].place = df_fuse_new_place(p, PLACE_TEMP, 0, node);
    const uint32_t copy = df_fuse_new_val(p, node, false);
    const uint32_t gi = df_fuse_new_group(p, DF_SEG_KERNEL, node);
    if (p->st != DEFT_OK) return p->st;
    /* Reads the temporary whatever v is: a copy of v is no val of its node. */
    const uint32_t shown = p->node_val[node];
    p->node_val[node] = v;
    head h = { .expr = node, .val = copy };
    space sp;
    memset(&sp, 0, sizeof sp);
    index_map m = df_map_blank(node_of(p, node)->rank);
    for (uint32_t j = 0; j < m.rank; j++) {
        const uint32_t cls = df_fuse_cls(p, node, j);
        if (cls == CLS_ONE) continue;
        const uint32_t l = sp.n++;
        sp.cls[l] = cls;
        sp.extent[l] = df_fuse_cls_extent(p, cls);
        sp.order[l] = (uint8_t)l;
        m.axis[j] = (int8_t)l;
        m.coef[j] = SLOT_ONE;
    }
    h.map = h.dest = df_map_intern(p, &m);
    p->groups.at[gi].sp = sp;
    p->groups.at[gi].frame = true;
    df_fuse_append_head(p, gi, h);
    p->vals.at[copy].group = gi;
    p->vals.at[copy].map = h.dest;
    p->vals.at[copy].root = r;
    p->vals.at[v].root = DF_NONE;
    p->root_val[r] = copy;
    const deft_status st = df_fuse_final_cone(p, gi);
    p->node_val[node] = shown;
    if (st != DEFT_OK) return st;
    df_fuse_record_loads(p, gi);
    p->vals.at[copy].place = df_fuse_new_place(p, PLACE_INTO, input, node);
    /* After every read of that memory, under whatever name, and after every check. */
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        if (i == input || overlap(p, i, input))
            for (uint32_t l = p->in_readers[i]; l != DF_NONE; l = p->loads.at[l].next)
                df_fuse_edge(p, p->loads.at[l].group, gi);
        else if (p->in_readers[i] != DF_NONE)
            df_fuse_guard(p, DF_GUARD_disjoint, input, i, 0);
    for (uint32_t k = 0; k < p->groups.n; k++)
        if (p->groups.at[k].checks) df_fuse_edge(p, k, gi);
    /* Roots into the same memory: in order. */
    for (uint32_t q = 0; q < r; q++) {
        const df_root *const other = &p->t->roots[q];
        if (other->kind != DF_ROOT_INTO) continue;
        if (other->into == input || overlap(p, other->into, input))
            df_fuse_edge(p, p->vals.at[p->root_val[q]].group, gi);
    }
    return p->st;
}

/* ---- all of it ---- */

static uint32_t *next_updates(pass *p)
{
    uint32_t *const next =
        df_arena_alloc(&p->tmp, (p->t->n_nodes + 1) * sizeof *next, _Alignof(uint32_t));
    if (!next) {
        p->st = df_fail_mem(p->diag, "fuser", p->t->n_nodes * sizeof *next);
        return NULL;
    }
    for (uint32_t i = 0; i < p->t->n_nodes; i++) next[i] = DF_NONE;
    for (uint32_t i = 0; i < p->t->n_nodes; i++)
        if ((p->live[i] & 1) && df_op_writes_over((df_op)node_of(p, i)->op))
            next[node_of(p, i)->src[0].i] = p->node_val[i];
    return next;
}

deft_status df_fuse_places(pass *p)
{
    p->search_left = DF_MAX_SEARCH;
    p->in_readers =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_readers, _Alignof(uint32_t));
    p->in_over =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_over, _Alignof(uint32_t));
    if (!p->in_readers || !p->in_over)
        return df_fail_mem(p->diag, "fuser", p->t->n_inputs * sizeof(uint32_t));
    for (uint32_t i = 0; i <= p->t->n_inputs; i++) p->in_readers[i] = p->in_over[i] = DF_NONE;
    const uint32_t n_groups = (uint32_t)p->groups.n;
    for (uint32_t g = 0; g < n_groups; g++) df_fuse_record_loads(p, g);
    /* What is no box is written over a whole copy of its base, so after the base in any case; so is
     * what a routine adds to. */
    for (uint32_t v = 0; v < p->vals.n; v++) {
        const val *const w = &p->vals.at[v];
        const bool routine = p->groups.at[w->group].product == v;
        if (w->plain || (!routine && df_map_is_box(&p->maps.at[w->map]))) continue;
        const uint32_t base = p->node_val[node_of(p, w->node)->src[0].i];
        if (base != DF_NONE) df_fuse_writer_edges(p, base, w->group);
    }
    const uint32_t *const n_over = n_over_of(p), *const next = next_updates(p);
    if (p->st != DEFT_OK) return p->st;

    for (uint32_t n = 0; n < p->t->n_nodes; n++) {
        const uint32_t v = p->node_val[n];
        if (v == DF_NONE) continue;
        deft_status st = p->st;
        if (df_op_writes_over((df_op)node_of(p, n)->op) && p->vals.at[v].visible)
            st = place_update(p, v, n_over, next);
        else if (!is_into_root(p, v))
            p->vals.at[v].place = own_place(p, v);
        if (st != DEFT_OK) return st;
    }
    const uint32_t n_vals = (uint32_t)p->vals.n;
    for (uint32_t v = 0; v < n_vals; v++) {
        if (p->vals.at[v].place != DF_NONE || is_into_root(p, v)) continue;
        p->vals.at[v].place = own_place(p, v);
    }
    for (uint32_t r = 0; r < p->t->n_roots && p->st == DEFT_OK; r++) {
        const uint32_t v = p->root_val[r];
        if (!is_into_root(p, v)) continue;
        const uint32_t q = p->vals.at[v].place;
        if (q != DF_NONE && p->places.at[q].kind == PLACE_INTO) continue;
        const deft_status st = place_into(p, v);
        if (st != DEFT_OK) return st;
    }
    return p->st;
}

/* ---- donors ---- */

/* Moves a group to a later launch, one that there is anyway and that no reader of its comes before.
 */
static bool wait_for(pass *p, uint32_t g, uint32_t level)
{
    if (level >= p->n_levels) return false;
    for (uint32_t e = p->groups.at[g].first_edge; e != DF_NONE; e = p->edges.at[e].next)
        if (p->groups.at[p->edges.at[e].to].level <= level) return false;
    p->groups.at[g].level = level;
    return true;
}

/* Whether all loads of a list come before val v is written, or at the element being written; its
 * group waits for them where it can. */
static bool come_first(pass *p, uint32_t list, uint32_t v)
{
    const uint32_t g = p->vals.at[v].group;
    uint32_t level = p->groups.at[g].level;
    for (uint32_t l = list; l != DF_NONE; l = p->loads.at[l].next) {
        const load *const x = &p->loads.at[l];
        if (x->group == g && !same_element(p, x, v)) return false;
        const uint32_t after = p->groups.at[x->group].level + 1;
        if (x->group != g && level < after) level = after;
    }
    if (level > p->groups.at[g].level && !wait_for(p, g, level)) return false;
    for (uint32_t l = list; l != DF_NONE; l = p->loads.at[l].next)
        df_fuse_edge(p, p->loads.at[l].group, g); /* nor do they wait for later launches */
    return p->st == DEFT_OK;
}

/* Roots whose owner rebinds an input take over its memory where no group reads that later, or
 * elsewhere than at the element being written. Levels are known. */
void df_fuse_donors(pass *p)
{
    for (uint32_t q = 0; q < p->places.n; q++)
        if (p->places.at[q].kind == PLACE_ROOT && p->places.at[q].donor != DF_NONE)
            p->in_seen[p->places.at[q].donor] |= 2;
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        const uint32_t v = p->root_val[r];
        const val *const w = &p->vals.at[v];
        place *const q = &p->places.at[w->place];
        if (root->donor == DF_NONE || root->kind != DF_ROOT_NEW || w->root != r) continue;
        if (!w->plain || q->kind != PLACE_ROOT || q->donor != DF_NONE || q->node != w->node)
            continue;
        if ((p->in_seen[root->donor] & 2) || !fits_donor(p, w->node, root->donor)) continue;
        if (w->over_by != DF_NONE) continue; /* updates in this place bring writers of their own */
        if (!come_first(p, p->in_readers[root->donor], v)) continue;
        df_fuse_input_strides(p, root->donor); /* guards that it is contiguous */
        p->in_seen[root->donor] |= 2;
        q->donor = root->donor;
    }
}
