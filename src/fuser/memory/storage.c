/* SPDX-License-Identifier: Apache-2.0
 *
 * In which memory each val is stored, and which groups must run before which.
 *
 * Every val gets a place: a temporary, the buffer of a root, or memory of the caller. An update
 * either writes into the place of its base, or gets a place of its own. In a place of its own, the
 * elements around the part that it replaces (the border) must be filled in. When the part is a box,
 * groups called frames do that, at most two for each axis:
 *
 *        +-----------------+
 *        |      above      |    box: written by the kernel of the value
 *        +---+---------+---+    above, below: frames along the first axis
 *        | l |   box   | r |    l, r: frames along the second axis
 *        +---+---------+---+
 *        |      below      |    Each frame evaluates the base. Frames and box touch disjoint
 *        +-----------------+    elements and do not need each other: they are one launch.
 *
 * A part that is no box (steps, diagonals) is written over a full copy of the base, which comes
 * first. The same holds for a routine that adds to its base.
 *
 * An update may be done in place when every group that reads the old contents runs before the
 * writer. The writer itself may read exactly the element that it writes. A value that reads other
 * elements of what it replaces is staged (hazards.c). When none of this is possible, the update
 * gets a place of its own. The same rules decide whether a root may be written straight into the
 * caller's memory.
 *
 * Pieces that are written into one `empty` (concatenation, stacking) are independent when each
 * begins, along one axis, where the pieces before it have ended. A guard checks that, and all
 * pieces run in one launch.
 * size: one question, where a value lives, over all kinds of update.
 */
#include "fuser/fuse.h"

#include <string.h>

/* ---- places ---- */

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

/* A new place for v alone: the buffer of its root, or a temporary. */
static uint32_t own_place(pass *p, uint32_t v)
{
    const val *const w = &p->vals.at[v];
    return is_new_root(p, v) ? df_fuse_new_place(p, STORAGE_ROOT, w->root, w->node)
                             : df_fuse_new_place(p, STORAGE_TEMP, 0, w->node);
}

/* ---- the caller's memory ---- */

/* Whether the memory of inputs a and b overlaps in this run, or may overlap. */
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

/* Whether no other input that the plan reads overlaps input k. With `guard`, guards keep that true.
 */
static bool disjoint(pass *p, uint32_t k, bool guard)
{
    for (uint32_t i = 0; i < p->t->n_inputs; i++) {
        if (i == k || p->in_readers[i] == DF_NONE) continue;
        if (overlap(p, i, k)) return false;
        if (guard) df_fuse_guard(p, DF_GUARD_disjoint, k, i, 0);
    }
    return true;
}

/* Whether a root other than that of v is written into this input's memory, or may overlap it. */
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

/* Adds a group that evaluates a box of base and writes it to the place of v. */
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
        /* A full axis keeps its class, so that reductions in the base can be matched. */
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

/* Adds the frames of update v around box b. */
static deft_status fill_frames(pass *p, uint32_t v, uint32_t base, const df_box *b)
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

/* Copies all of base into the place of v, before the group of v writes there. */
static deft_status copy_whole(pass *p, uint32_t v, uint32_t base)
{
    df_slot start[DEFT_MAX_RANK] = { 0 }, extent[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < node_of(p, base)->rank; j++)
        extent[j] = df_fuse_axis_extent(p, base, j);
    const deft_status st = add_frame(p, v, base, start, extent);
    if (st == DEFT_OK) df_fuse_edge(p, p->vals.at[v].frames, p->vals.at[v].group);
    return st;
}

/* Whether v, written over val `over`, may run beside all earlier writers of the place. That holds
 * when all of them write boxes, each beginning where the one before it ended along the same axis,
 * and nobody reads the contents in between. Returns that axis + 1, or 0. */
static uint8_t pieces_apart(pass *p, uint32_t v, uint32_t over)
{
    const uint32_t node = p->vals.at[v].node, rank = node_of(p, node)->rank;
    const val *const under = &p->vals.at[over];
    if (node_of(p, under->node)->op != DF_OP_update || !under->visible) return 0;
    if (under->frames != DF_NONE || under->readers != DF_NONE || under->staged) return 0;
    if (under->over != DF_NONE && under->apart == 0) return 0;
    const head *const h = df_hazard_head(p, v);
    const head *const k = df_hazard_head(p, over);
    if (!h || !k) return 0;
    const uint8_t axis = under->apart;
    const df_box b = df_box_of(p, &p->groups.at[p->vals.at[v].group], h->dest, node);
    const df_box last = df_box_of(p, &p->groups.at[under->group], k->dest, node);
    if (!b.is_box || !last.is_box) return 0;
    for (uint32_t j = 0; j < rank; j++) {
        if (axis != 0 && j + 1u != axis) continue;
        const df_slot gap = df_box_gap(p, &last, &b, j);
        if (p->st != DEFT_OK) return 0;
        if (p->now.at[gap] < 0) continue;
        if (p->slots.at[gap].op != DF_SLOT_const) df_fuse_guard(p, DF_GUARD_at_least, gap, 0, 0);
        return (uint8_t)(j + 1);
    }
    return 0;
}

/* Per node: how many live operators write over it. NULL when memory runs out. */
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

/* The val of the root at the end of the chain of updates from v on, when each is the only update of
 * the one before; else DF_NONE. */
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

/* Whether an input has the dtype, the layout and the extents of a root. */
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

static const char held[] = "a handle still holds the old value";
static const char lent[] = "the caller's memory is written when nothing can fail any more";
static const char other_version[] = "is another version of it";

/* Notes an obstacle, unless one is noted already. */
static void blame(hazard *h, uint32_t reader, const char *why)
{
    if (!h->why) *h = (hazard){ reader, why };
}

/* Another update of the same base as update `node`, or `node` itself when there is none. */
static uint32_t other_update(const pass *p, uint32_t node)
{
    const uint32_t base = node_of(p, node)->src[0].i;
    for (uint32_t n = base + 1; n < p->t->n_nodes; n++)
        if (n != node && (p->live[n] & 1) && df_op_writes_over((df_op)node_of(p, n)->op) &&
            node_of(p, n)->src[0].i == base)
            return n;
    return node;
}

/* Orders update v after all readers and earlier writers of the old contents, if that is possible,
 * and stages v if that helps. `over` is the val under v, or DF_NONE when v is written over an
 * input. Returns false when v cannot be done in place. */
static bool comes_last(pass *p, uint32_t list, uint32_t over, uint32_t input, uint32_t v, hazard *h)
{
    for (uint32_t turn = 0;; turn++) {
        if ((over == DF_NONE || df_hazard_after_writers(p, over, input, v, h)) &&
            df_hazard_may_order(p, list, v, h))
            break;
        if (turn || !df_hazard_stage(p, list, over, v, input != DF_NONE, h)) return false;
    }
    if (over != DF_NONE) df_hazard_follow_writers(p, over, input, v);
    df_hazard_order(p, list, v);
    return p->st == DEFT_OK;
}

/* Whether val `end`, the root of a chain of updates, may be stored in the memory of an input. */
static bool may_take(pass *p, uint32_t end, uint32_t input, hazard *h)
{
    const df_root *const r = &p->t->roots[p->vals.at[end].root];
    const uint32_t flags = p->t->inputs[input].flags;
    const bool into = r->kind == DF_ROOT_INTO;
    const char *why = NULL;
    if (into ? r->into != input : r->donor != input)
        why = flags & DF_INPUT_WRAPPED ? lent : held;
    else if (into && p->has_checks)
        why = "an index may be outside, so the caller's memory is written last";
    else if (into && (written_elsewhere(p, end, input) || !disjoint(p, input, false)))
        why = "other memory of the caller overlaps it";
    else if (!into && !(flags & DF_INPUT_SOLE))
        why = flags & DF_INPUT_WRAPPED ? lent : held;
    else if (!into && !fits_donor(p, p->vals.at[end].node, input))
        why = "the input's memory is laid out otherwise";
    if (why) blame(h, DF_NONE, why);
    return !why;
}

/* Tries to place update v of an input into the memory of that input. That needs a root, at the end
 * of the chain of updates, that is the new value of the input's owner. */
static bool over_input(pass *p, uint32_t v, uint32_t base, const uint32_t *n_over,
                       const uint32_t *next, hazard *h)
{
    if (node_of(p, base)->op != DF_OP_input) return false;
    if (n_over[base] != 1) {
        blame(h, other_update(p, p->vals.at[v].node), other_version);
        return false;
    }
    /* Where indices are checked, the run may have to copy the old contents first
     * (df_plan_buf.keep). A kernel copies faster. */
    if (p->has_checks && p->groups.at[p->vals.at[v].group].product == v) return false;
    const uint32_t input = node_of(p, base)->attr;
    const uint32_t end = end_of_chain(p, v, n_over, next);
    if (end == DF_NONE) {
        blame(h, DF_NONE, held);
        return false;
    }
    const bool into = p->t->roots[p->vals.at[end].root].kind == DF_ROOT_INTO;
    if (!may_take(p, end, input, h)) return false;
    if (!comes_last(p, p->in_readers[input], DF_NONE, into ? input : DF_NONE, v, h)) return false;
    const uint32_t q =
        into ? df_fuse_new_place(p, STORAGE_INTO, input, p->vals.at[v].node)
             : df_fuse_new_place(p, STORAGE_ROOT, p->vals.at[end].root, p->vals.at[v].node);
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

/* The input whose memory a place is, or may be in a run; else DF_NONE. */
static uint32_t input_under(const storage *w)
{
    return w->kind == STORAGE_INTO ? w->index : w->donor;
}

/* Tries to place v, the first piece of a new array, into the caller's memory. That needs a last
 * piece that is a root there, and v must be orderable with all readers of that memory. */
static bool first_into(pass *p, uint32_t v, const uint32_t *n_over, const uint32_t *next)
{
    hazard why = { DF_NONE, NULL };
    const uint32_t end = end_of_chain(p, v, n_over, next);
    if (end == DF_NONE || !is_into_root(p, end)) return false;
    const uint32_t input = p->t->roots[p->vals.at[end].root].into;
    if (!may_take(p, end, input, &why)) return false;
    if (!df_hazard_may_order(p, p->in_readers[input], v, &why)) return false;
    const uint32_t q = df_fuse_new_place(p, STORAGE_INTO, input, p->vals.at[v].node);
    if (p->st != DEFT_OK) return false;
    df_hazard_order(p, p->in_readers[input], v);
    disjoint(p, input, true);
    p->vals.at[v].place = q;
    p->in_over[input] = v;
    return true;
}

/* Tries to place update v in the place of the val that it updates. */
static bool over_val(pass *p, uint32_t v, uint32_t base, const uint32_t *n_over, hazard *h)
{
    const uint32_t over = p->node_val[base];
    if (over == DF_NONE) return false;
    if (n_over[base] != 1) {
        blame(h, other_update(p, p->vals.at[v].node), other_version);
        return false;
    }
    if (p->vals.at[over].root != DF_NONE) {
        blame(h, base, "is a result, too");
        return false;
    }
    const uint32_t q = p->vals.at[over].place;
    const uint32_t input = input_under(&p->places.at[q]);
    uint8_t apart = pieces_apart(p, v, over);
    /* In memory of an input, readers of that input come before every piece. */
    if (apart && input != DF_NONE && !df_hazard_may_order(p, p->in_readers[input], v, h)) apart = 0;
    if (!apart && !comes_last(p, p->vals.at[over].readers, over, input, v, h)) return false;
    if (apart && input != DF_NONE) df_hazard_order(p, p->in_readers[input], v);
    if (p->places.at[q].kind == STORAGE_TEMP && is_new_root(p, v)) {
        p->places.at[q].kind = STORAGE_ROOT;
        p->places.at[q].index = p->vals.at[v].root;
    }
    p->vals.at[v].apart = apart;
    p->vals.at[v].over = over;
    p->vals.at[over].over_by = v;
    p->vals.at[v].place = q;
    return p->st == DEFT_OK;
}

/* Moves the chain of updates under base to a temporary, if it was placed in memory of a root. The
 * chain does not reach that root after all, because the update of base gets a place of its own. The
 * contents of the input are copied first, unless the chain begins with an `empty`. */
static deft_status give_up_root(pass *p, uint32_t base)
{
    uint32_t v = p->node_val[base];
    if (v == DF_NONE || p->vals.at[v].place == DF_NONE || p->vals.at[v].root != DF_NONE)
        return DEFT_OK;
    storage *const w = &p->places.at[p->vals.at[v].place];
    if (w->kind == STORAGE_TEMP) return DEFT_OK;
    if (w->kind == STORAGE_INTO) {
        p->in_over[w->index] = DF_NONE;
        df_fuse_contiguous(p, w->node, w->stride);
    }
    w->kind = STORAGE_TEMP;
    w->index = 0;
    w->donor = DF_NONE;
    w->keep = false;
    uint32_t bottom = v;
    while (p->vals.at[bottom].over != DF_NONE) bottom = p->vals.at[bottom].over;
    const uint32_t first = node_of(p, p->vals.at[bottom].node)->src[0].i;
    if (node_of(p, first)->op == DF_OP_empty) return p->st;
    const deft_status st = copy_whole(p, bottom, first);
    for (uint32_t u = v; st == DEFT_OK && u != bottom; u = p->vals.at[u].over)
        df_fuse_edge(p, p->vals.at[bottom].frames, p->vals.at[u].group);
    return st;
}

/* Notes that the elements around a written part are copied to memory of its own, and why. */
static void tell_copy(pass *p, uint32_t base, uint32_t node, const hazard *h)
{
    const char *const why = h->why ? h->why : "the old contents are read by others";
    if (p->node_val[base] == DF_NONE && node_of(p, base)->op != DF_OP_input) {
        df_fuse_why(p, base, node, "written around", "what it changes is computed around it");
        return;
    }
    if (h->reader == DF_NONE)
        df_fuse_why(p, base, node, "double buffered", "%s", why);
    else
        df_fuse_why(p, base, node, "double buffered", "%s %s", df_fuse_name(p, h->reader), why);
    const df_copied c = { node, h->reader, why };
    if (!df_vec_push(p->mem, &p->copied, c)) p->st = df_fail_mem(p->diag, "fuser", sizeof c);
}

static deft_status place_update(pass *p, uint32_t v, const uint32_t *n_over, const uint32_t *next)
{
    const uint32_t node = p->vals.at[v].node, base = node_of(p, node)->src[0].i;
    const bool routine = node_of(p, node)->op != DF_OP_update;
    hazard why = { DF_NONE, NULL };
    if (node_of(p, base)->op == DF_OP_empty && !routine) {
        if (!first_into(p, v, n_over, next)) p->vals.at[v].place = own_place(p, v);
        return p->st;
    }
    if (over_input(p, v, base, n_over, next, &why) || over_val(p, v, base, n_over, &why)) {
        if (p->vals.at[v].staged)
            df_fuse_why(p, base, node, "staged", "%s %s", df_fuse_name(p, why.reader), why.why);
        else
            df_fuse_why(p, base, node, "in place", "all reads of the old contents come first");
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    const deft_status moved = give_up_root(p, base);
    if (moved != DEFT_OK) return moved;
    if (p->node_val[base] == DF_NONE && routine)
        df_fuse_why(p, base, node, "written first", "it is added to in the result's memory");
    else
        tell_copy(p, base, node, &why);
    p->vals.at[v].place = own_place(p, v);
    if (routine) return copy_whole(p, v, base);
    const head *const h = df_hazard_head(p, v);
    const df_box b = df_box_of(p, &p->groups.at[p->vals.at[v].group], h->dest, node);
    return b.is_box ? fill_frames(p, v, base, &b) : copy_whole(p, v, base);
}

/* ---- roots in the caller's memory ---- */

/* Places a root that is written into the caller's memory. It is written there at once when nobody
 * reads that memory later. Else it is a temporary that is copied. When the run has checks, which
 * may fail, the copy comes at the very end. */
static deft_status place_into(pass *p, uint32_t v)
{
    const uint32_t r = p->vals.at[v].root, input = p->t->roots[r].into, node = p->vals.at[v].node;
    const bool alone = !written_elsewhere(p, v, input) && disjoint(p, input, false);
    const uint32_t g = p->vals.at[v].group;
    const bool plain = p->vals.at[v].plain && p->groups.at[g].product != v;
    hazard why = { DF_NONE, NULL };
    if (plain && alone && !p->has_checks && df_hazard_may_order(p, p->in_readers[input], v, &why)) {
        df_hazard_order(p, p->in_readers[input], v);
        disjoint(p, input, true);
        p->vals.at[v].place = df_fuse_new_place(p, STORAGE_INTO, input, node);
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    if (p->vals.at[v].place == DF_NONE)
        p->vals.at[v].place = df_fuse_new_place(p, STORAGE_TEMP, 0, node);
    const uint32_t copy = df_fuse_new_val(p, node, false);
    const uint32_t gi = df_fuse_new_group(p, DF_SEG_KERNEL, node);
    if (p->st != DEFT_OK) return p->st;
    /* The copy must read the temporary, even if v is not the visible val of its node. */
    const uint32_t shown = p->node_val[node];
    p->node_val[node] = v;
    head h = { .expr = node, .val = copy };
    space sp;
    h.map = h.dest = df_space_of_node(p, node, &sp);
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
    p->vals.at[copy].place = df_fuse_new_place(p, STORAGE_INTO, input, node);
    /* After every read of that memory, through any input, and after every check. */
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        if (i == input || overlap(p, i, input))
            for (uint32_t l = p->in_readers[i]; l != DF_NONE; l = p->loads.at[l].next)
                df_fuse_edge(p, p->loads.at[l].group, gi);
        else if (p->in_readers[i] != DF_NONE)
            df_fuse_guard(p, DF_GUARD_disjoint, input, i, 0);
    for (uint32_t k = 0; k < p->groups.n; k++)
        if (p->groups.at[k].checks) df_fuse_edge(p, k, gi);
    /* Roots that are written into the same memory keep their order. */
    for (uint32_t q = 0; q < r; q++) {
        const df_root *const other = &p->t->roots[q];
        if (other->kind != DF_ROOT_INTO) continue;
        if (other->into == input || overlap(p, other->into, input))
            df_fuse_edge(p, p->vals.at[p->root_val[q]].group, gi);
    }
    return p->st;
}

/* ---- all vals ---- */

/* Per node: the val of the last update of it, or DF_NONE. NULL when memory runs out. */
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
    /* A part that is no box is written over a full copy of its base, so after the base in any case.
     * The same holds for a routine that adds to its base. */
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
        deft_status st = DEFT_OK;
        if (df_op_writes_over((df_op)node_of(p, n)->op) && p->vals.at[v].visible)
            st = place_update(p, v, n_over, next);
        else if (!is_into_root(p, v))
            p->vals.at[v].place = own_place(p, v);
        if (st == DEFT_OK) st = p->st;
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
        if (q != DF_NONE && p->places.at[q].kind == STORAGE_INTO) continue;
        const deft_status st = place_into(p, v);
        if (st != DEFT_OK) return st;
    }
    return p->st;
}

/* ---- donors ---- */

/* Moves group g to a later launch. Returns false when that launch does not exist, or is not before
 * all groups that wait for g. */
static bool wait_for(pass *p, uint32_t g, uint32_t level)
{
    if (level >= p->n_levels) return false;
    for (uint32_t e = p->groups.at[g].first_edge; e != DF_NONE; e = p->edges.at[e].next)
        if (p->groups.at[p->edges.at[e].to].level <= level) return false;
    p->groups.at[g].level = level;
    return true;
}

/* Whether all loads of a list come before v is written, or read just the element being written. The
 * group of v is moved to a later launch for that where it can be. */
static bool come_first(pass *p, uint32_t list, uint32_t v)
{
    const uint32_t g = p->vals.at[v].group;
    uint32_t level = p->groups.at[g].level;
    for (uint32_t l = list; l != DF_NONE; l = p->loads.at[l].next) {
        const load *const x = &p->loads.at[l];
        if (x->group == g && !df_hazard_same_element(p, x, v)) return false;
        const uint32_t after = p->groups.at[x->group].level + 1;
        if (x->group != g && level < after) level = after;
    }
    if (level > p->groups.at[g].level && !wait_for(p, g, level)) return false;
    for (uint32_t l = list; l != DF_NONE; l = p->loads.at[l].next)
        df_fuse_edge(p, p->loads.at[l].group, g); /* so that they are not moved to later launches */
    return p->st == DEFT_OK;
}

/* A root whose owner rebinds an input reuses the memory of that input. No group may read the input
 * later, or in the same launch at another element than the one being written. Launches are known.
 */
void df_fuse_donors(pass *p)
{
    for (uint32_t q = 0; q < p->places.n; q++)
        if (p->places.at[q].donor != DF_NONE) /* a root's */
            p->in_seen[p->places.at[q].donor] |= 2;
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        const uint32_t v = p->root_val[r];
        const val *const w = &p->vals.at[v];
        storage *const q = &p->places.at[w->place];
        if (root->donor == DF_NONE || root->kind != DF_ROOT_NEW || w->root != r) continue;
        if (!w->plain || q->kind != STORAGE_ROOT || q->donor != DF_NONE || q->node != w->node)
            continue;
        if ((p->in_seen[root->donor] & 2) || !fits_donor(p, w->node, root->donor)) continue;
        if (w->over_by != DF_NONE) continue; /* updates in this place bring writers of their own */
        if (!come_first(p, p->in_readers[root->donor], v)) continue;
        df_fuse_input_strides(p, root->donor); /* guards that it is contiguous */
        p->in_seen[root->donor] |= 2;
        q->donor = root->donor;
    }
}
