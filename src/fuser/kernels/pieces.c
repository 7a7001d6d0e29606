/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps over joined arrays. A joined array is recorded as updates that write pieces next to each
 * other along one axis of an empty array (concatenation, stacking, rolling, windows):
 *
 *   joined = update(update(empty, piece 0), piece 1)        piece k: [start k, start k + extent k)
 *
 * Where only maps read it, it is not stored. The kernel of such a map is divided at the boundaries
 * of the pieces. Each part reads one piece where that piece is, and writes its part of the result:
 *
 *   y = joined + x        part 0: y[0 .. s)  = piece 0 + x[0 .. s)
 *                         part 1: y[s .. n)  = piece 1 + x[s .. n)
 *
 * So the joined array is neither written nor read, each element of the map is computed once, and
 * all parts run in one launch. A map that reads several joined arrays is divided at the boundaries
 * of each, along several axes if need be.
 *
 * The result is a *divided* val: one val for each part, each written over the one before like an
 * update in place. The last is the visible one. The parts touch different elements, so they need no
 * order (val.loose).
 *
 * Two functions decide. df_fuse_find_joined looks at the readers. One like a reduction needs
 * the whole array. The array is then stored for all readers. pieces_pay looks at a map that is to
 * be divided.
 */
#include "fuser/fuse.h"

#include <string.h>

/* More pieces are stored, and so is an array that would divide a map into more parts. */
#define MOST_PIECES 16
/* The elements between two boundaries of a row must be so many on average. They fill a line of the
 * cache, so shorter parts would load and store lines that others load and store again. */
#define LEAST_RUN 16
/* Of fewer elements than this the lines stay in the first cache, and a launch less counts more. */
#define FEW_ELEMENTS 4096

/* ---- which arrays are joined ---- */

static bool pieces_have_op(const pass *p, uint32_t n, df_op op)
{
    return node_of(p, n)->op == op;
}

static uint32_t base_of(const pass *p, uint32_t update)
{
    return node_of(p, update)->src[0].i;
}

/* Whether update n writes a range along one axis of its base by steps of 1, and all elements along
 * the others. Returns that axis + 1; 0: it does not. */
static uint8_t piece_axis(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    if (x->op != DF_OP_update || x->rank == 0) return 0;
    const uint32_t place = x->src[2].i;
    if (!pieces_have_op(p, place, DF_OP_slice) || base_of(p, place) != base_of(p, n) ||
        node_of(p, x->src[1].i)->rank != x->rank)
        return 0;
    uint8_t axis = 0;
    for (uint32_t j = 0; j < x->rank; j++) {
        if (p->full[place] >> j & 1) continue;
        if (axis || !(p->unit[place] >> j & 1)) return 0;
        axis = (uint8_t)(j + 1);
    }
    return axis ? axis : 1;
}

static DF_COLD df_slot piece_start(pass *p, uint32_t update, uint32_t axis)
{
    const uint32_t place = node_of(p, update)->src[2].i;
    return p->full[place] >> axis & 1 ? SLOT_ZERO
                                      : df_fuse_arg(p, node_of(p, place)->arg + 2 * axis);
}

static DF_COLD df_slot piece_length(pass *p, uint32_t update, uint32_t axis)
{
    return df_fuse_axis_extent(p, node_of(p, update)->src[1].i, axis);
}

static DF_COLD df_slot piece_end(pass *p, uint32_t update, uint32_t axis)
{
    return df_fuse_add(p, piece_start(p, update, axis), piece_length(p, update, axis));
}

static int64_t now(const pass *p, df_slot s)
{
    return p->now.at[s.i];
}

/* Whether slot s is a number of the plan. */
static bool pieces_is_number(const pass *p, df_slot s)
{
    return p->slots.at[s.i].op == DF_SLOT_const;
}

/* Elements between the end of the piece under update n and its own start. */
static df_slot gap_below(pass *p, uint32_t n, uint32_t axis)
{
    return df_fuse_sub(p, piece_start(p, n, axis), piece_end(p, base_of(p, n), axis));
}

/* What df_fuse_find_joined knows of a node. */
enum {
    IS_ROOT = 1,
    IS_BASE = 2,    /* a piece is written over it */
    IS_DERIVED = 4, /* a map computes it from a joined array */
    IS_STORED = 8   /* a joined array that must be stored */
};

typedef struct search {
    uint8_t *axis;     /* per update: the axis + 1 of the pieces down to an `empty`, or 0 */
    uint8_t *flags;    /* per node */
    uint32_t *n_reads; /* per node: live nodes that read its value */
    uint32_t *needs;   /* per node: a joined array that it is computed from, or DF_NONE. Arrays of
                        * one map are one set, and the entry of an array leads to others */
} search;

/* Whether node n reads the value of its operand s, and not only its extents. */
static bool reads_value(const df_node *n, uint32_t s)
{
    return n->op != DF_OP_count && (n->op != DF_OP_update || s != 2);
}

static uint32_t set_of(const search *w, uint32_t joined)
{
    while (w->needs[joined] != joined) joined = w->needs[joined];
    return joined;
}

/* Finds the updates that write pieces. */
static void find_chains(pass *p, search *w)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++)
        for (uint32_t s = 0; s < node_of(p, n)->n_src && p->live[n] & 1; s++)
            w->n_reads[node_of(p, n)->src[s].i] += reads_value(node_of(p, n), s);
    for (uint32_t n = 0; n < p->t->n_nodes && p->st == DEFT_OK; n++) {
        const uint8_t axis = p->live[n] & 1 ? piece_axis(p, n) : 0;
        if (!axis) continue;
        const uint32_t base = base_of(p, n);
        if (w->n_reads[base] != 1 || w->flags[base] & IS_ROOT) continue;
        if (!pieces_have_op(p, base, DF_OP_empty)) {
            if (w->axis[base] != axis) continue;
            const df_slot gap = gap_below(p, n, axis - 1u);
            if (p->st != DEFT_OK || now(p, gap) < 0) continue;
        }
        w->axis[n] = axis;
        w->flags[base] |= IS_BASE;
    }
}

/* What reading `src`, which is computed from a joined array, means for that array. */
static void joined_reader(pass *p, search *w, uint32_t n, uint32_t s)
{
    const uint32_t src = node_of(p, n)->src[s].i;
    if (w->needs[src] == DF_NONE || (w->flags[src] & IS_ROOT)) return;
    const uint32_t from = set_of(w, w->needs[src]);
    bool follows = false, stores = false;
    switch ((df_op_class)class_of_op(p, n)) {
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary:
        follows = true;
        w->flags[n] |= IS_DERIVED;
        break;
    case DF_CLASS_view:
        follows = !pieces_have_op(p, n, DF_OP_reshape);
        w->flags[n] |= w->flags[src] & IS_DERIVED;
        break;
    case DF_CLASS_contract:
    case DF_CLASS_routine: stores = true; break;
    case DF_CLASS_update: stores = s == 0; break;
    case DF_CLASS_leaf:
    case DF_CLASS_reduce:
    case DF_CLASS_scan:
    case DF_CLASS_index:
    case DF_CLASS_control: break;
    }
    /* What must be stored anyway is stored by parts. */
    if (!follows && !(stores && w->flags[src] & IS_DERIVED)) w->flags[from] |= IS_STORED;
    if (!follows) return;
    const uint32_t own = w->needs[n] == DF_NONE ? from : set_of(w, w->needs[n]);
    w->needs[n] = own;
    w->needs[from] = own;
    w->flags[own] |= w->flags[from] & IS_STORED;
}

static void mark_joined(pass *p, const search *w, uint32_t top)
{
    uint32_t n = 0;
    for (uint32_t u = top; w->axis[u]; u = base_of(p, u)) n++;
    for (uint32_t u = top; w->axis[u] && n <= MOST_PIECES; u = base_of(p, u))
        p->joined[u] = w->axis[u];
}

/* Whether a joined array may begin anywhere: with an update of an `empty`. */
static bool may_have_joined(const pass *p)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++)
        if (p->live[n] & 1 && pieces_have_op(p, n, DF_OP_update) &&
            pieces_have_op(p, base_of(p, n), DF_OP_empty))
            return true;
    return false;
}

deft_status df_fuse_find_joined(pass *p)
{
    const uint32_t n_nodes = p->t->n_nodes;
    if (!p->fuse || !may_have_joined(p)) return p->st;
    search w = { df_arena_new(&p->tmp, uint8_t, n_nodes + 1),
                 df_arena_new(&p->tmp, uint8_t, n_nodes + 1),
                 df_arena_new(&p->tmp, uint32_t, n_nodes + 1),
                 df_arena_new(&p->tmp, uint32_t, n_nodes + 1) };
    p->joined = df_arena_new(&p->tmp, uint8_t, n_nodes + 1);
    if (!w.axis || !w.flags || !w.n_reads || !w.needs || !p->joined)
        return df_fail_mem(p->diag, "fuser", n_nodes * sizeof *w.needs);
    for (uint32_t r = 0; r < p->t->n_roots; r++) w.flags[p->t->roots[r].node] |= IS_ROOT;
    find_chains(p, &w);
    for (uint32_t n = 0; n < n_nodes; n++) {
        const bool is_top = w.axis[n] && !(w.flags[n] & (IS_BASE | IS_ROOT));
        w.needs[n] = is_top ? n : DF_NONE;
        for (uint32_t s = 0; s < node_of(p, n)->n_src && p->live[n] & 1; s++)
            if (reads_value(node_of(p, n), s)) joined_reader(p, &w, n, s);
    }
    for (uint32_t n = 0; n < n_nodes && p->st == DEFT_OK; n++)
        if (w.axis[n] && !(w.flags[n] & (IS_BASE | IS_ROOT)) &&
            !(w.flags[set_of(&w, n)] & IS_STORED))
            mark_joined(p, &w, n);
    return p->st;
}

void df_joined_again(pass *p)
{
    p->stored_late = false;
    /* Maps that were divided for an array that is stored now read that array. */
    for (size_t i = 0; i < p->whys.n; i++) {
        const df_why w = p->whys.at[i];
        if (p->joined[w.a] && p->must[w.a] && !strcmp(w.what, "fused"))
            df_fuse_why(p, w.a, w.b, "kept apart", "another kernel needs all of it");
    }
}

/* ---- reading one piece ---- */

static void pieces_guard_equal(pass *p, df_slot a, df_slot b)
{
    if (!df_same_slot(a, b)) df_fuse_guard_slots(p, DF_GUARD_equal, a, b);
}

static DF_COLD void guard_not_negative(pass *p, df_slot a)
{
    if (p->st == DEFT_OK && !pieces_is_number(p, a)) df_fuse_guard_slot(p, DF_GUARD_at_least, a, 0);
}

/* Guards that update u has the last word on its piece: those above it write behind it. */
static void guard_above(pass *p, uint32_t top, uint32_t u, uint32_t axis)
{
    for (uint32_t n = top; n != u; n = base_of(p, n)) guard_not_negative(p, gap_below(p, n, axis));
}

/* The elements `from` .. `from` + `extent` along the axis of the pieces are those of update u now.
 * Guards that they stay so. Returns their first index within the piece. When a slice chose `from`,
 * the plan also serves other bounds of the slice, within the piece. */
static df_slot enter_piece(pass *p, uint32_t u, uint32_t axis, df_slot from, df_slot extent)
{
    const df_slot start = piece_start(p, u, axis), length = piece_length(p, u, axis);
    df_slot off = SLOT_ZERO;
    if (p->st == DEFT_OK && pieces_is_number(p, from) && now(p, from) == now(p, start)) {
        pieces_guard_equal(p, from, start);
    } else {
        off = df_fuse_sub(p, from, start);
        guard_not_negative(p, off);
    }
    guard_not_negative(p, df_fuse_sub(p, length, df_fuse_add(p, off, extent)));
    return off;
}

bool df_joined_enter(pass *p, cone *c, uint32_t *node, map_id *map)
{
    const uint32_t top = *node, axis = p->joined[top] - 1u;
    index_map m = *map_at(p, *map);
    const int l = m.linear ? SPECIAL : m.axis[axis];
    if (l == SPECIAL || (l != FIXED && !df_same_slot(m.coef[axis], SLOT_ONE))) return false;
    const df_slot from = m.off[axis], extent = l == FIXED ? SLOT_ONE : c->sp.extent[l];
    for (uint32_t u = top; p->joined[u]; u = base_of(p, u)) {
        const df_slot start = piece_start(p, u, axis), end = piece_end(p, u, axis);
        if (p->st != DEFT_OK) return false;
        if (now(p, from) < now(p, start) || now(p, from) + now(p, extent) > now(p, end)) continue;
        guard_above(p, top, u, axis);
        m.off[axis] = enter_piece(p, u, axis, from, extent);
        *node = node_of(p, u)->src[1].i;
        *map = df_map_intern(p, &m);
        if (!df_vec_push(p->mem, &c->entered, top)) p->st = df_fail_mem(p->diag, "fuser", 4);
        return true;
    }
    if (l == FIXED || c->joined != DF_NONE) return false;
    c->joined = top;
    c->joined_map = *map;
    return false;
}

/* ---- dividing a map ---- */

/* A part of the loops of a head. */
typedef struct part {
    head h;
    space sp;
} part;

/* The updates of a joined array whose pieces have elements of `from` .. `to` along their axis now,
 * in order. Returns their number; 0: they do not cover all of these elements. */
static uint32_t pieces_between(pass *p, uint32_t top, df_slot from, df_slot to,
                               uint32_t list[MOST_PIECES])
{
    const uint32_t axis = p->joined[top] - 1u;
    int64_t until = now(p, to); /* where the pieces behind begin */
    uint32_t n = 0;
    for (uint32_t u = top; p->joined[u]; u = base_of(p, u)) {
        const df_slot start = piece_start(p, u, axis), end = piece_end(p, u, axis);
        if (p->st != DEFT_OK || n == MOST_PIECES) return 0;
        if (now(p, start) >= until || now(p, end) <= now(p, from)) continue;
        if (now(p, end) < until) return 0;
        until = now(p, start);
        list[n++] = u;
    }
    for (uint32_t k = 0; k < n / 2; k++) {
        const uint32_t u = list[k];
        list[k] = list[n - 1 - k];
        list[n - 1 - k] = u;
    }
    return until <= now(p, from) ? n : 0;
}

/* Guards whether slot s is at least `least`, and returns it. */
static bool guard_least(pass *p, df_slot s, int64_t least)
{
    if (p->st != DEFT_OK) return false;
    const bool is = now(p, s) >= least;
    if (!pieces_is_number(p, s))
        df_fuse_guard_slot(p, is ? DF_GUARD_at_least : DF_GUARD_at_most, s, is ? least : least - 1);
    return is;
}

/* Whether dividing loop l of space sp, over which a map of n_ops operators runs, into n parts pays.
 * Guards keep the answer. */
static bool pieces_pay(pass *p, const space *sp, uint32_t l, uint32_t n, uint32_t n_ops)
{
    df_slot run = SLOT_ONE, all = SLOT_ONE; /* elements of loop l and all within it; of all loops */
    if (n * (n_ops + 1) > p->lim->max_body) return false;
    for (uint32_t i = sp->n; i-- > 0;) {
        all = df_fuse_mul(p, all, sp->extent[sp->order[i]]);
        if (sp->order[i] == l) run = all;
    }
    return guard_least(p, run, (int64_t)n * LEAST_RUN) || !guard_least(p, all, FEW_ELEMENTS);
}

/* Removes loop l of *w, which runs once. Spaces of heads have no loops of class ONE. */
static void part_drop_loop(pass *p, part *w, uint32_t l)
{
    index_map m = *map_at(p, w->h.map);
    uint8_t to[MAX_LOOPS];
    uint32_t n = 0;
    for (uint32_t j = 0; j < m.rank; j++) {
        if (m.axis[j] != (int)l) continue;
        m.axis[j] = FIXED;
        m.coef[j] = SLOT_ZERO;
    }
    for (uint32_t i = 0; i < MAX_LOOPS; i++) to[i] = (uint8_t)(i > l ? i - 1 : i);
    w->h.map = w->h.dest = df_map_rename(p, df_map_intern(p, &m), to);
    for (uint32_t i = 0; i < w->sp.n; i++)
        if (w->sp.order[i] != l) w->sp.order[n++] = to[w->sp.order[i]];
    for (uint32_t i = l; i < n; i++) {
        w->sp.red[i] = w->sp.red[i + 1];
        w->sp.cls[i] = w->sp.cls[i + 1];
        w->sp.extent[i] = w->sp.extent[i + 1];
    }
    w->sp.n = (uint8_t)n;
}

/* Sets loop l of *w to the elements `from` .. `to` of update u's array. `was` is the first of these
 * elements so far. is_all: these are the elements of u by construction, if they are now. */
static void part_set(pass *p, part *w, uint32_t l, uint32_t u, uint32_t axis, df_slot was,
                     df_slot from, df_slot to, bool is_all)
{
    index_map m = *map_at(p, w->h.map);
    for (uint32_t j = 0; j < m.rank; j++) {
        if (m.axis[j] != (int)l) continue;
        m.off[j] = df_same_slot(m.off[j], was)
                       ? from
                       : df_fuse_add(p, m.off[j], df_fuse_sub(p, from, was));
    }
    w->h.map = w->h.dest = df_map_intern(p, &m);
    df_slot extent = df_fuse_sub(p, to, from);
    uint32_t cls = DF_NONE;
    const df_slot start = piece_start(p, u, axis), length = piece_length(p, u, axis);
    if (p->st != DEFT_OK) return;
    if (is_all && now(p, from) == now(p, start) && now(p, extent) == now(p, length)) {
        pieces_guard_equal(p, extent, length);
        extent = length;
        cls = df_fuse_cls(p, node_of(p, u)->src[1].i, axis);
    } else {
        guard_not_negative(p, extent);
    }
    w->sp.extent[l] = extent;
    w->sp.cls[l] = cls;
    if (cls == CLS_ONE) part_drop_loop(p, w, l);
}

/* Divides part i of a list at the boundaries of the joined array that its cone, the current one,
 * reads. Returns the new length of the list; 0: this is impossible or does not pay. */
static uint32_t pieces_divide(pass *p, part *list, uint32_t n, uint32_t i)
{
    const cone *const c = &p->c;
    const uint32_t axis = p->joined[c->joined] - 1u, n_ops = c->n_ops;
    const index_map m = *map_at(p, c->joined_map);
    const uint32_t l = (uint32_t)m.axis[axis];
    const part whole = list[i];
    uint32_t piece[MOST_PIECES];
    if (c->has_red || c->has_scan || l >= whole.sp.n) return 0;
    const df_slot from = m.off[axis], to = df_fuse_add(p, from, whole.sp.extent[l]);
    const uint32_t k = p->st == DEFT_OK ? pieces_between(p, c->joined, from, to, piece) : 0;
    if (k < 2 || n - 1 + k > MOST_PIECES || !pieces_pay(p, &whole.sp, l, k, n_ops * (n - 1 + k)))
        return 0;
    const df_slot end = df_fuse_axis_extent(p, c->joined, axis);
    memmove(&list[i + k], &list[i + 1], (n - i - 1) * sizeof *list);
    for (uint32_t t = 0; t < k; t++) {
        const bool is_last = t + 1 == k;
        list[i + t] = whole;
        part_set(p, &list[i + t], l, piece[t], axis, from,
                 t == 0 ? from : piece_start(p, piece[t], axis),
                 is_last ? to : piece_start(p, piece[t + 1], axis),
                 (t > 0 || pieces_is_number(p, from)) && (!is_last || df_same_slot(to, end)));
    }
    return n - 1 + k;
}

/* Makes each part a head with a val of its own. The val of the last is v. */
static deft_status store_parts(pass *p, val_id v, part *list, uint32_t n)
{
    const uint32_t node = val_at(p, v)->node;
    val_id below = NO_VAL;
    uint32_t level = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool progress;
        const val_id u = i + 1 < n ? df_fuse_new_val(p, node, false) : v;
        if (p->st != DEFT_OK) return p->st;
        val *const w = val_at(p, u);
        w->plain = false;
        w->divided = true;
        w->loose = i > 0;
        w->over = below;
        if (!IS_NONE(below)) val_at(p, below)->over_by = u;
        below = u;
        list[i].h.val = u;
        deft_status st = df_fuse_run_alone(p, &list[i].h, &list[i].sp, &progress);
        df_assert(st != DEFT_OK || !progress);
        if (st == DEFT_OK) st = df_fuse_join_or_open(p, list[i].h, &list[i].sp, NO_VAL);
        if (st != DEFT_OK) return st;
        if (val_at(p, u)->level > level) level = val_at(p, u)->level;
    }
    val_at(p, v)->level = level;
    return p->st;
}

deft_status df_fuse_plan_parts(pass *p, const head *h, const space *sp, bool *progress)
{
    static const char stored[] = "it is read across the boundaries of its pieces";
    part list[MOST_PIECES] = { { *h, *sp } };
    const uint32_t first = p->c.joined;
    uint32_t n = 1;
    for (uint32_t i = 0; i < n;) {
        if (p->c.joined != DF_NONE) {
            const uint32_t joined = p->c.joined, more = pieces_divide(p, list, n, i);
            if (p->st != DEFT_OK) return p->st;
            if (more == 0) {
                *progress |= df_fuse_demand(p, joined, h->expr, stored);
                return p->st;
            }
            n = more;
        } else {
            i++;
            if (i == n) break;
        }
        const deft_status st = df_fuse_run_alone(p, &list[i].h, &list[i].sp, progress);
        if (st != DEFT_OK || *progress) return st;
    }
    df_fuse_why(p, first, h->expr, "fused", "computed for each piece, in %u parts", n);
    return store_parts(p, h->val, list, n);
}
