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
 * Why this file is long: one question, where a value lives, over all kinds of update.
 */
#include "fuser/fuse.h"

#include <string.h>

/* ---- places ---- */

static bool is_new_root(const pass *p, val_id v)
{
    const uint32_t r = val_at(p, v)->root;
    return r != DF_NONE && p->t->roots[r].kind == DF_ROOT_NEW;
}

static bool is_into_root(const pass *p, val_id v)
{
    const uint32_t r = val_at(p, v)->root;
    return r != DF_NONE && p->t->roots[r].kind == DF_ROOT_INTO;
}

/* A new place for v alone: the buffer of its root, or a temporary. */
static place_id own_place(pass *p, val_id v)
{
    const val *const w = val_at(p, v);
    return is_new_root(p, v) ? df_fuse_new_place(p, STORAGE_ROOT, w->root, w->node)
                             : df_fuse_new_place(p, STORAGE_TEMP, 0, w->node);
}

/* The val of the part before v, when v is divided; else DF_NONE. */
static DF_NOINLINE val_id part_before(const pass *p, val_id v)
{
    return val_at(p, v)->divided ? val_at(p, v)->over : NO_VAL;
}

/* Stores v in place q, with all of its parts. */
static DF_NOINLINE void storage_set_place(pass *p, val_id v, place_id q)
{
    for (; !IS_NONE(v); v = part_before(p, v)) val_at(p, v)->place = q;
}

/* ---- the caller's memory ---- */

/* Whether the memory of inputs a and b overlaps in this run, or may overlap. */
static bool storage_inputs_overlap(const pass *p, uint32_t a, uint32_t b)
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
        if (i == k || IS_NONE(p->in_readers[i])) continue;
        if (storage_inputs_overlap(p, i, k)) return false;
        if (guard) df_fuse_guard_input(p, DF_GUARD_disjoint, k, i, 0);
    }
    return true;
}

/* Whether a root other than that of v is written into this input's memory, or may overlap it. */
static bool written_elsewhere(const pass *p, val_id v, uint32_t input)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        if (same_val(p->root_val[r], v) || root->kind != DF_ROOT_INTO) continue;
        if (root->into == input || storage_inputs_overlap(p, root->into, input)) return true;
    }
    return false;
}

/* ---- updates ---- */

/* Adds a group that evaluates a box of base and writes it to the place of v. */
static deft_status add_frame(pass *p, val_id v, uint32_t base, const df_slot *start,
                             const df_slot *extent)
{
    const group_id gi = df_fuse_new_group(p, DF_SEG_KERNEL, val_at(p, v)->node);
    if (p->st != DEFT_OK) return p->st;
    group *const g = group_at(p, gi);
    const uint32_t rank = node_of(p, base)->rank;
    index_map m = df_map_blank(rank);
    for (uint32_t j = 0; j < rank; j++) {
        m.off[j] = start[j];
        if (df_same_slot(extent[j], SLOT_ONE)) continue;
        const uint32_t l = g->sp.n++;
        m.axis[j] = (int8_t)l;
        m.coef[j] = SLOT_ONE;
        g->sp.order[l] = (uint8_t)l;
        g->sp.extent[l] = extent[j];
        /* A full axis keeps its class, so that reductions in the base can be matched. */
        g->sp.cls[l] = df_same_slot(start[j], SLOT_ZERO) &&
                               df_same_slot(extent[j], df_fuse_axis_extent(p, base, j))
                           ? df_fuse_cls(p, base, j)
                           : DF_NONE;
    }
    g->frame = true;
    const map_id map = df_map_intern(p, &m);
    df_fuse_append_head(p, gi, (head){ .expr = base, .map = map, .dest = map, .val = v });
    const deft_status st = df_fuse_final_cone(p, gi);
    if (st != DEFT_OK) return st;
    df_fuse_record_loads(p, gi);
    group_at(p, gi)->next_frame = val_at(p, v)->frames;
    val_at(p, v)->frames = gi;
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l); l = load_at(p, l)->next)
        df_fuse_edge(p, gi, load_at(p, l)->group);
    return p->st;
}

/* Adds the frames of update v around box b. */
static deft_status fill_frames(pass *p, val_id v, uint32_t base, const df_box *b)
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
        if (!df_same_slot(b->start[j], SLOT_ZERO)) {
            extent[j] = b->start[j];
            st = add_frame(p, v, base, start, extent);
        }
        const df_slot rest = df_fuse_sub(p, all, end);
        if (st == DEFT_OK && !df_same_slot(rest, SLOT_ZERO)) {
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
static deft_status copy_whole(pass *p, val_id v, uint32_t base)
{
    df_slot start[DEFT_MAX_RANK] = { 0 }, extent[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < node_of(p, base)->rank; j++)
        extent[j] = df_fuse_axis_extent(p, base, j);
    const deft_status st = add_frame(p, v, base, start, extent);
    if (st == DEFT_OK) df_fuse_edge(p, val_at(p, v)->frames, val_at(p, v)->group);
    return st;
}

/* Whether v, written over val `over`, may run beside all earlier writers of the place. That holds
 * when all of them write boxes, each beginning where the one before it ended along the same axis,
 * and nobody reads the contents in between. Returns that axis + 1, or 0. */
static uint8_t pieces_apart(pass *p, val_id v, val_id over)
{
    const uint32_t node = val_at(p, v)->node, rank = node_of(p, node)->rank;
    const val *const under = val_at(p, over);
    if (node_of(p, under->node)->op != DF_OP_update || !under->visible) return 0;
    if (!IS_NONE(under->frames) || !IS_NONE(under->readers) || under->staged) return 0;
    if (!IS_NONE(under->over) && under->apart == 0) return 0;
    const head *const h = df_hazard_head(p, v);
    const head *const k = df_hazard_head(p, over);
    if (!h || !k) return 0;
    const uint8_t axis = under->apart;
    const df_box b = df_box_of(p, group_at(p, val_at(p, v)->group), h->dest, node);
    const df_box last = df_box_of(p, group_at(p, under->group), k->dest, node);
    if (!b.is_box || !last.is_box) return 0;
    for (uint32_t j = 0; j < rank; j++) {
        if (axis != 0 && j + 1u != axis) continue;
        const df_slot gap = df_box_gap(p, &last, &b, j);
        if (p->st != DEFT_OK) return 0;
        if (p->now.at[gap.i] < 0) continue;
        if (p->slots.at[gap.i].op != DF_SLOT_const)
            df_fuse_guard_slot(p, DF_GUARD_at_least, gap, 0);
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
static val_id end_of_chain(const pass *p, val_id v, const uint32_t *n_over, const val_id *next)
{
    while (val_at(p, v)->root == DF_NONE) {
        const uint32_t n = val_at(p, v)->node;
        if (n_over[n] != 1 || IS_NONE(next[n])) return NO_VAL;
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

static const char laid_out[] = "the input's memory is laid out otherwise";
static const char held[] = "a handle still holds the old value";
static const char lent[] = "the caller's memory is written when nothing can fail any more";
static const char other_version[] = "is another version of it";

/* Notes an obstacle, unless one is noted already. */
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
static bool comes_last(pass *p, load_id list, val_id over, uint32_t input, val_id v, hazard *h)
{
    for (uint32_t turn = 0;; turn++) {
        if ((IS_NONE(over) || df_hazard_after_writers(p, over, input, v, h)) &&
            df_hazard_may_order(p, list, v, h))
            break;
        if (turn || !df_hazard_stage(p, list, over, v, input != DF_NONE, h)) return false;
    }
    if (!IS_NONE(over)) df_hazard_follow_writers(p, over, input, v);
    df_hazard_order(p, list, v);
    return p->st == DEFT_OK;
}

/* Whether the elements of v are where its readers look for them when v is stored in the memory of
 * an input. A reader behind a reshape takes that memory for row-major. */
static bool fits_readers(const pass *p, val_id v, uint32_t input)
{
    if (p->t->inputs[input].flags & DF_INPUT_CONTIGUOUS) return true;
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l); l = load_at(p, l)->next)
        if (map_at(p, load_at(p, l)->map)->linear) return false;
    return true;
}

/* Whether the chain of updates from v to val `end`, which is a root, may be stored in the memory of
 * an input. */
static bool may_take(pass *p, val_id v, val_id end, const val_id *next, uint32_t input, hazard *h)
{
    const df_root *const r = &p->t->roots[val_at(p, end)->root];
    const uint32_t flags = p->t->inputs[input].flags;
    const bool into = r->kind == DF_ROOT_INTO;
    const char *why = NULL;
    if (into ? r->into != input : r->donor != input)
        why = flags & DF_INPUT_WRAPPED ? lent : held;
    else if (into && p->has_checks)
        why = "an index may be outside, so the caller's memory is written last";
    else if (into && (written_elsewhere(p, end, input) || !disjoint(p, input, false)))
        why = "other memory of the caller overlaps it";
    else if (!into && !fits_donor(p, val_at(p, end)->node, input))
        why = laid_out;
    else if (!into && !(flags & DF_INPUT_SOLE) && !p->lim->takes_held) {
        why = flags & DF_INPUT_WRAPPED ? lent : held;
        df_fuse_guard_input(p, DF_GUARD_sole, input, 0, 0);
    }
    for (; into && !why; v = next[val_at(p, v)->node]) {
        if (!fits_readers(p, v, input)) why = laid_out;
        if (same_val(v, end)) break;
    }
    if (why) df_hazard_note(h, DF_NONE, why);
    return !why;
}

/* Tries to place update v of an input into the memory of that input. That needs a root, at the end
 * of the chain of updates, that is the new value of the input's owner. */
static bool over_input(pass *p, val_id v, uint32_t base, const uint32_t *n_over, const val_id *next,
                       hazard *h)
{
    if (node_of(p, base)->op != DF_OP_input) return false;
    if (n_over[base] != 1) {
        df_hazard_note(h, other_update(p, val_at(p, v)->node), other_version);
        return false;
    }
    /* Where indices are checked, the run may have to copy the old contents first
     * (df_plan_buf.keep). A kernel copies faster. */
    if (p->has_checks && same_val(group_at(p, val_at(p, v)->group)->product, v)) return false;
    const uint32_t input = node_of(p, base)->attr;
    const val_id end = end_of_chain(p, v, n_over, next);
    if (IS_NONE(end)) {
        df_hazard_note(h, DF_NONE, held);
        return false;
    }
    const bool into = p->t->roots[val_at(p, end)->root].kind == DF_ROOT_INTO;
    if (!may_take(p, v, end, next, input, h)) return false;
    if (!comes_last(p, p->in_readers[input], NO_VAL, into ? input : DF_NONE, v, h)) return false;
    const place_id q =
        into ? df_fuse_new_place(p, STORAGE_INTO, input, val_at(p, v)->node)
             : df_fuse_new_place(p, STORAGE_ROOT, val_at(p, end)->root, val_at(p, v)->node);
    if (p->st != DEFT_OK) return false;
    if (into) {
        disjoint(p, input, true);
    } else {
        df_fuse_input_strides(p, input); /* guards that it is contiguous */
        place_at(p, q)->donor = input;
        place_at(p, q)->keep = true;
    }
    val_at(p, v)->place = q;
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
static bool first_into(pass *p, val_id v, const uint32_t *n_over, const val_id *next)
{
    hazard why = { DF_NONE, NULL };
    const val_id end = end_of_chain(p, v, n_over, next);
    if (IS_NONE(end) || !is_into_root(p, end)) return false;
    const uint32_t input = p->t->roots[val_at(p, end)->root].into;
    if (!may_take(p, v, end, next, input, &why)) return false;
    if (!df_hazard_may_order(p, p->in_readers[input], v, &why)) return false;
    const place_id q = df_fuse_new_place(p, STORAGE_INTO, input, val_at(p, v)->node);
    if (p->st != DEFT_OK) return false;
    df_hazard_order(p, p->in_readers[input], v);
    disjoint(p, input, true);
    val_at(p, v)->place = q;
    p->in_over[input] = v;
    return true;
}

/* Tries to place update v in the place of the val that it updates. */
static bool over_val(pass *p, val_id v, uint32_t base, const uint32_t *n_over, hazard *h)
{
    const val_id over = p->node_val[base];
    if (IS_NONE(over)) return false;
    if (n_over[base] != 1) {
        df_hazard_note(h, other_update(p, val_at(p, v)->node), other_version);
        return false;
    }
    if (val_at(p, over)->root != DF_NONE) {
        df_hazard_note(h, base, "is a result, too");
        return false;
    }
    const place_id q = val_at(p, over)->place;
    const uint32_t input = input_under(place_at(p, q));
    uint8_t apart = pieces_apart(p, v, over);
    /* In memory of an input, readers of that input come before every piece. */
    if (apart && input != DF_NONE && !df_hazard_may_order(p, p->in_readers[input], v, h)) apart = 0;
    if (!apart && !comes_last(p, val_at(p, over)->readers, over, input, v, h)) return false;
    if (apart && input != DF_NONE) df_hazard_order(p, p->in_readers[input], v);
    if (place_at(p, q)->kind == STORAGE_TEMP && is_new_root(p, v)) {
        place_at(p, q)->kind = STORAGE_ROOT;
        place_at(p, q)->index = val_at(p, v)->root;
    }
    val_at(p, v)->apart = apart;
    val_at(p, v)->over = over;
    val_at(p, over)->over_by = v;
    val_at(p, v)->place = q;
    return p->st == DEFT_OK;
}

/* Moves the chain of updates under base to a temporary, if it was placed in memory of a root. The
 * chain does not reach that root after all, because the update of base gets a place of its own. The
 * contents of the input are copied first, unless the chain begins with an `empty`. */
static deft_status give_up_root(pass *p, uint32_t base)
{
    val_id v = p->node_val[base];
    if (IS_NONE(v) || IS_NONE(val_at(p, v)->place) || val_at(p, v)->root != DF_NONE) return DEFT_OK;
    storage *const w = place_at(p, val_at(p, v)->place);
    if (w->kind == STORAGE_TEMP) return DEFT_OK;
    if (w->kind == STORAGE_INTO) {
        p->in_over[w->index] = NO_VAL;
        df_fuse_contiguous(p, w->node, w->stride);
    }
    w->kind = STORAGE_TEMP;
    w->index = 0;
    w->donor = DF_NONE;
    w->keep = false;
    val_id bottom = v;
    while (!IS_NONE(val_at(p, bottom)->over)) bottom = val_at(p, bottom)->over;
    const uint32_t first = node_of(p, val_at(p, bottom)->node)->src[0].i;
    if (node_of(p, first)->op == DF_OP_empty) return p->st;
    const deft_status st = copy_whole(p, bottom, first);
    for (val_id u = v; st == DEFT_OK && !same_val(u, bottom); u = val_at(p, u)->over)
        df_fuse_edge(p, val_at(p, bottom)->frames, val_at(p, u)->group);
    return st;
}

/* Tells what becomes of the update `node` of base, and the obstacle: why, and who reads the old
 * contents, unless no node does. */
static void tell_obstacle(pass *p, uint32_t base, uint32_t node, const char *what, uint32_t reader,
                          const char *why)
{
    if (reader == DF_NONE)
        df_fuse_why(p, base, node, what, "%s", why);
    else
        df_fuse_why(p, base, node, what, "%s %s", df_fuse_name(p, reader), why);
}

/* Notes that the elements around a written part are copied to memory of its own, and why. */
static void tell_copy(pass *p, uint32_t base, uint32_t node, const hazard *h)
{
    const char *const why = h->why ? h->why : "the old contents are read by others";
    if (IS_NONE(p->node_val[base]) && node_of(p, base)->op != DF_OP_input) {
        df_fuse_why(p, base, node, "written around", "what it changes is computed around it");
        return;
    }
    tell_obstacle(p, base, node, "double buffered", h->reader, why);
    const df_copied c = { node, h->reader, why };
    if (!df_vec_push(p->mem, &p->copied, c)) p->st = df_fail_mem(p->diag, "fuser", sizeof c);
}

static deft_status place_update(pass *p, val_id v, const uint32_t *n_over, const val_id *next)
{
    const uint32_t node = val_at(p, v)->node, base = node_of(p, node)->src[0].i;
    const bool routine = node_of(p, node)->op != DF_OP_update;
    hazard why = { DF_NONE, NULL };
    if (node_of(p, base)->op == DF_OP_empty && !routine) {
        if (!first_into(p, v, n_over, next)) val_at(p, v)->place = own_place(p, v);
        return p->st;
    }
    if (over_input(p, v, base, n_over, next, &why) || over_val(p, v, base, n_over, &why)) {
        if (val_at(p, v)->staged)
            tell_obstacle(p, base, node, "staged", why.reader, why.why);
        else
            df_fuse_why(p, base, node, "in place", "all reads of the old contents come first");
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    const deft_status moved = give_up_root(p, base);
    if (moved != DEFT_OK) return moved;
    if (IS_NONE(p->node_val[base]) && routine)
        df_fuse_why(p, base, node, "written first", "it is added to in the result's memory");
    else
        tell_copy(p, base, node, &why);
    val_at(p, v)->place = own_place(p, v);
    if (routine) return copy_whole(p, v, base);
    const head *const h = df_hazard_head(p, v);
    const df_box b = df_box_of(p, group_at(p, val_at(p, v)->group), h->dest, node);
    return b.is_box ? fill_frames(p, v, base, &b) : copy_whole(p, v, base);
}

/* ---- roots in the caller's memory ---- */

/* Whether v, with all of its parts, may be written over what the loads of a list read. */
static bool may_order_parts(pass *p, load_id list, val_id v)
{
    hazard why = { DF_NONE, NULL };
    for (; !IS_NONE(v); v = part_before(p, v))
        if (!df_hazard_may_order(p, list, v, &why)) return false;
    return p->st == DEFT_OK;
}

/* Places a root that is written into the caller's memory. It is written there at once when nobody
 * reads that memory later. Else it is a temporary that is copied. When the run has checks, which
 * may fail, the copy comes at the very end. */
static deft_status place_into(pass *p, val_id v)
{
    const uint32_t r = val_at(p, v)->root, input = p->t->roots[r].into, node = val_at(p, v)->node;
    const bool alone = !written_elsewhere(p, v, input) && disjoint(p, input, false);
    const group_id g = val_at(p, v)->group;
    const bool all = val_at(p, v)->plain || val_at(p, v)->divided;
    const bool plain = all && !same_val(group_at(p, g)->product, v) && fits_readers(p, v, input);
    if (plain && alone && !p->has_checks && may_order_parts(p, p->in_readers[input], v)) {
        for (val_id u = v; !IS_NONE(u); u = part_before(p, u))
            df_hazard_order(p, p->in_readers[input], u);
        disjoint(p, input, true);
        storage_set_place(p, v, df_fuse_new_place(p, STORAGE_INTO, input, node));
        return p->st;
    }
    if (p->st != DEFT_OK) return p->st;
    if (IS_NONE(val_at(p, v)->place))
        storage_set_place(p, v, df_fuse_new_place(p, STORAGE_TEMP, 0, node));
    const val_id copy = df_fuse_new_val(p, node, false);
    const group_id gi = df_fuse_new_group(p, DF_SEG_KERNEL, node);
    if (p->st != DEFT_OK) return p->st;
    /* The copy must read the temporary, even if v is not the visible val of its node. */
    const val_id shown = p->node_val[node];
    p->node_val[node] = v;
    head h = { .expr = node, .val = copy };
    space sp;
    h.map = h.dest = df_space_of_node(p, node, &sp);
    group_at(p, gi)->sp = sp;
    group_at(p, gi)->frame = true;
    df_fuse_append_head(p, gi, h);
    val_at(p, copy)->group = gi;
    val_at(p, copy)->map = h.dest;
    val_at(p, copy)->root = r;
    val_at(p, v)->root = DF_NONE;
    p->root_val[r] = copy;
    const deft_status st = df_fuse_final_cone(p, gi);
    p->node_val[node] = shown;
    if (st != DEFT_OK) return st;
    df_fuse_record_loads(p, gi);
    val_at(p, copy)->place = df_fuse_new_place(p, STORAGE_INTO, input, node);
    /* After every read of that memory, through any input, and after every check. */
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        if (i == input || storage_inputs_overlap(p, i, input))
            for (load_id l = p->in_readers[i]; !IS_NONE(l); l = load_at(p, l)->next)
                df_fuse_edge(p, load_at(p, l)->group, gi);
        else if (!IS_NONE(p->in_readers[i]))
            df_fuse_guard_input(p, DF_GUARD_disjoint, input, i, 0);
    for (group_id k = { 0 }; k.i < p->groups.n; k.i++)
        if (group_at(p, k)->checks) df_fuse_edge(p, k, gi);
    /* Roots that are written into the same memory keep their order. */
    for (uint32_t q = 0; q < r; q++) {
        const df_root *const other = &p->t->roots[q];
        if (other->kind != DF_ROOT_INTO) continue;
        if (other->into == input || storage_inputs_overlap(p, other->into, input))
            df_fuse_edge(p, val_at(p, p->root_val[q])->group, gi);
    }
    return p->st;
}

/* ---- all vals ---- */

/* Per node: the val of the last update of it, or DF_NONE. NULL when memory runs out. */
static val_id *next_updates(pass *p)
{
    val_id *const next =
        df_arena_alloc(&p->tmp, (p->t->n_nodes + 1) * sizeof *next, _Alignof(val_id));
    if (!next) {
        p->st = df_fail_mem(p->diag, "fuser", p->t->n_nodes * sizeof *next);
        return NULL;
    }
    for (uint32_t i = 0; i < p->t->n_nodes; i++) next[i] = NO_VAL;
    for (uint32_t i = 0; i < p->t->n_nodes; i++)
        if ((p->live[i] & 1) && df_op_writes_over((df_op)node_of(p, i)->op))
            next[node_of(p, i)->src[0].i] = p->node_val[i];
    return next;
}

deft_status df_fuse_places(pass *p)
{
    p->search_left = DF_MAX_SEARCH;
    p->in_readers =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_readers, _Alignof(load_id));
    p->in_over =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_over, _Alignof(val_id));
    if (!p->in_readers || !p->in_over)
        return df_fail_mem(p->diag, "fuser", p->t->n_inputs * sizeof(uint32_t));
    for (uint32_t i = 0; i <= p->t->n_inputs; i++) {
        p->in_readers[i] = NO_LOAD;
        p->in_over[i] = NO_VAL;
    }
    const uint32_t n_groups = (uint32_t)p->groups.n;
    for (group_id g = { 0 }; g.i < n_groups; g.i++) df_fuse_record_loads(p, g);
    /* A part that is no box is written over a full copy of its base, so after the base in any case.
     * The same holds for a routine that adds to its base. */
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        const val *const w = val_at(p, v);
        const bool routine = same_val(group_at(p, w->group)->product, v);
        if (w->plain || (!routine && df_map_is_box(map_at(p, w->map)))) continue;
        const val_id base = p->node_val[node_of(p, w->node)->src[0].i];
        if (!IS_NONE(base)) df_fuse_writer_edges(p, base, w->group);
    }
    const uint32_t *const n_over = n_over_of(p);
    const val_id *const next = next_updates(p);
    if (p->st != DEFT_OK) return p->st;

    for (uint32_t n = 0; n < p->t->n_nodes; n++) {
        const val_id v = p->node_val[n];
        if (IS_NONE(v)) continue;
        deft_status st = DEFT_OK;
        if (df_op_writes_over((df_op)node_of(p, n)->op) && val_at(p, v)->visible)
            st = place_update(p, v, n_over, next);
        else if (!is_into_root(p, v))
            storage_set_place(p, v, own_place(p, v));
        if (st == DEFT_OK) st = p->st;
        if (st != DEFT_OK) return st;
    }
    const uint32_t n_vals = (uint32_t)p->vals.n;
    for (val_id v = { 0 }; v.i < n_vals; v.i++) {
        if (!IS_NONE(val_at(p, v)->place) || is_into_root(p, v)) continue;
        val_at(p, v)->place = own_place(p, v);
    }
    for (uint32_t r = 0; r < p->t->n_roots && p->st == DEFT_OK; r++) {
        const val_id v = p->root_val[r];
        if (!is_into_root(p, v)) continue;
        const place_id q = val_at(p, v)->place;
        if (!IS_NONE(q) && place_at(p, q)->kind == STORAGE_INTO) continue;
        const deft_status st = place_into(p, v);
        if (st != DEFT_OK) return st;
    }
    return p->st;
}

/* ---- donors ---- */

/* Moves group g to a later launch. Returns false when that launch does not exist, or is not before
 * all groups that wait for g. */
static bool storage_defer_group(pass *p, group_id g, uint32_t level)
{
    if (level >= p->n_levels) return false;
    for (uint32_t e = group_at(p, g)->first_edge; e != DF_NONE; e = p->edges.at[e].next)
        if (group_at(p, p->edges.at[e].to)->level <= level) return false;
    group_at(p, g)->level = level;
    return true;
}

/* Whether all loads of a list come before group g writes its part of v, or read just the element
 * that the group of v is writing. g is moved to a later launch for that where it can be. */
static bool storage_order_loads(pass *p, load_id list, val_id v, group_id g)
{
    const group_id own = val_at(p, v)->group;
    uint32_t level = group_at(p, g)->level;
    for (load_id l = list; !IS_NONE(l); l = load_at(p, l)->next) {
        const load *const x = load_at(p, l);
        if (same_group(x->group, own) && df_hazard_same_element_now(p, x, v)) continue;
        if (df_hazard_reads_beside(p, x, v, true)) continue;
        if (same_group(x->group, own) || same_group(x->group, g)) return false;
        const uint32_t after = group_at(p, x->group)->level + 1;
        if (level < after) level = after;
    }
    if (level > group_at(p, g)->level && !storage_defer_group(p, g, level)) return false;
    /* So that they are not moved to later launches: */
    for (load_id l = list; !IS_NONE(l); l = load_at(p, l)->next)
        if (group_at(p, load_at(p, l)->group)->level < group_at(p, g)->level)
            df_fuse_edge(p, load_at(p, l)->group, g);
    return p->st == DEFT_OK;
}

/* The same for all groups that write v. The frames of a box write none of its elements, so they may
 * run beside the group that reads those. */
static bool storage_order_writers(pass *p, load_id list, val_id v)
{
    const val *const w = val_at(p, v);
    if (!IS_NONE(w->frames) && !df_map_is_box(map_at(p, w->map))) return false;
    if (!storage_order_loads(p, list, v, w->group)) return false;
    for (group_id f = w->frames; !IS_NONE(f); f = group_at(p, f)->next_frame)
        if (!storage_order_loads(p, list, v, f)) return false;
    return true;
}

/* The same for v with all of its parts. */
static bool storage_order_parts(pass *p, load_id list, val_id v)
{
    for (; !IS_NONE(v); v = part_before(p, v))
        if (!storage_order_writers(p, list, v)) return false;
    return true;
}

/* A root reuses the memory of the input that it replaces, or of another input that its step
 * replaces. No group may read the input later, or in the same launch at another element than the
 * one being written. Launches are known. */
void df_fuse_donors(pass *p)
{
    for (place_id q = { 0 }; q.i < p->places.n; q.i++)
        if (place_at(p, q)->donor != DF_NONE) /* a root's */
            p->in_seen[place_at(p, q)->donor] |= 2;
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        const val_id v = p->root_val[r];
        const val *const w = val_at(p, v);
        storage *const q = place_at(p, w->place);
        if (root->donor == DF_NONE || root->kind != DF_ROOT_NEW || w->root != r) continue;
        if (q->kind != STORAGE_ROOT || q->donor != DF_NONE || q->node != w->node) continue;
        if ((p->in_seen[root->donor] & 2) || !fits_donor(p, w->node, root->donor)) continue;
        /* updates in this place bring writers of their own */
        if (!IS_NONE(w->over_by) || (!IS_NONE(w->over) && !w->divided) || w->staged) continue;
        /* A call may write its results in any order, while it reads its inputs. */
        const uint8_t op = node_of(p, w->node)->op;
        if (op == DF_OP_call || op == DF_OP_result) continue;
        /* a routine adds to a copy of its base */
        if (!w->plain && same_val(group_at(p, w->group)->product, v)) continue;
        if (!storage_order_parts(p, p->in_readers[root->donor], v)) continue;
        df_fuse_input_strides(p, root->donor); /* guards that it is contiguous */
        p->in_seen[root->donor] |= 2;
        q->donor = root->donor;
    }
}
