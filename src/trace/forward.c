/* SPDX-License-Identifier: Apache-2.0
 *
 * Forwarding and reading back: forward.h. One walk visits the updates of a trace in order. Each
 * update continues the run that its first operand ends, if that is possible. Otherwise the update
 * begins a new run.
 */
#include "trace/forward.h"

#include <string.h>

enum {
    MOST_UPDATES = 4, /* updates in a run. The kernel of a run reads and writes as many places at
                         once, and more of them may exceed the associativity of a cache */
    MOST_NODES = 64,  /* nodes between the reads of an update and its value */
    MOST_BACK = 16,   /* updates between a value that is read back and the reader */
    WORDS = 6         /* arrays of the finder that have one word per node */
};

typedef struct finder {
    const df_trace *t;
    const uint8_t *is_updated;
    df_places *places;
    df_forward_of *of;
    uint32_t *words;
    uint32_t *n_users; /* per node: uses as an operand or a root */
    uint32_t *n_apart; /* per node: uses that are neither an elementwise operator nor the value of
                          an update */
    uint32_t *run_of;  /* per node: the last run on which it depends; 0 when none */
    uint32_t *seen;    /* per node: the last try that visited it */
    uint32_t *n_seen;  /* per node: how often that try visited it */
    uint32_t *stored;  /* per node: the last update whose value it is; DF_NONE */
    /* The updates of the current run, where n == 0 means no run, and serial numbers of the run and
     * of the last try. */
    uint32_t update[MOST_UPDATES], n, run, try;
    uint32_t stack[MOST_NODES], n_cone; /* elementwise nodes of the value that is tried: walk */
    uint32_t read[MOST_NODES], n_read;  /* views that this value reads */
    uint32_t n_reads, n_back;           /* df_forward.n_reads; operands that are read back */
    uint32_t base;                      /* first operand of the update that begins the next run */
    bool is_apart; /* runs have one update, and no fact about places is relied on */
} finder;

static const df_node *forward_node_at(const finder *f, uint32_t k)
{
    return &f->t->nodes[k];
}

static df_op_class forward_class_at(const finder *f, uint32_t k)
{
    return (df_op_class)df_op_infos[forward_node_at(f, k)->op].cls;
}

static bool forward_is_elementwise(const finder *f, uint32_t k)
{
    const df_op_class c = forward_class_at(f, k);
    return c == DF_CLASS_unary || c == DF_CLASS_binary || c == DF_CLASS_ternary;
}

/* ---- places ---- */

static df_view_place forward_place_at(const finder *f, uint32_t view)
{
    df_view_place p;
    df_place_now(f->t, view, f->is_updated, &p);
    return p;
}

static bool have_equal_extents(const finder *f, uint32_t a, uint32_t b)
{
    const uint32_t rank = forward_node_at(f, a)->rank;
    return rank == forward_node_at(f, b)->rank &&
           memcmp(df_trace_extents(f->t, a), df_trace_extents(f->t, b), rank * sizeof(int64_t)) ==
               0;
}

static bool show_one_place(const finder *f, uint32_t a, uint32_t b)
{
    const df_view_place p = forward_place_at(f, a), q = forward_place_at(f, b);
    return have_equal_extents(f, a, b) && p.rank == q.rank &&
           memcmp(p.axis, q.axis, sizeof p.axis) == 0 && memcmp(p.off, q.off, sizeof p.off) == 0 &&
           memcmp(p.coef, q.coef, sizeof p.coef) == 0;
}

static int64_t end_along(const finder *f, uint32_t view, const df_view_place *p, uint32_t j)
{
    return p->off[j] + (p->axis[j] < 0 ? 1 : df_trace_extents(f->t, view)[p->axis[j]]);
}

static bool steps_by_one(const df_view_place *p)
{
    bool by_one = true;
    for (uint32_t j = 0; j < p->rank; j++) by_one &= p->axis[j] < 0 || p->coef[j] == 1;
    return by_one;
}

/* The first gap between the places of two views, as in df_same_place. Returns 0 when no gap is
 * found. */
static uint32_t gap_between(const finder *f, uint32_t a, uint32_t b)
{
    const df_view_place p = forward_place_at(f, a), q = forward_place_at(f, b);
    if (p.rank != q.rank || !steps_by_one(&p) || !steps_by_one(&q)) return 0;
    for (uint32_t j = 0; j < p.rank; j++) {
        if (end_along(f, a, &p, j) <= q.off[j]) return 1 + 2 * j;
        if (end_along(f, b, &q, j) <= p.off[j]) return 2 + 2 * j;
    }
    return 0;
}

static bool is_so(const finder *f, const df_same_place *pair)
{
    if (pair->gap == 0) return show_one_place(f, pair->node, pair->as);
    const df_view_place p = forward_place_at(f, pair->node), q = forward_place_at(f, pair->as);
    const uint32_t j = (pair->gap - 1) / 2;
    if (!steps_by_one(&p) || !steps_by_one(&q)) return false;
    return pair->gap % 2 ? end_along(f, pair->node, &p, j) <= q.off[j]
                         : end_along(f, pair->as, &q, j) <= p.off[j];
}

/* The lowest view of a chain: its operand is the base that df_place_of finds. */
static uint32_t bottom_of(const finder *f, uint32_t view)
{
    const uint32_t base = forward_place_at(f, view).base;
    while (view != base && forward_node_at(f, view)->src[0].i != base)
        view = forward_node_at(f, view)->src[0].i;
    return view;
}

static void rely_on(finder *f, uint32_t view, uint32_t as, uint32_t gap)
{
    df_places *const p = f->places;
    p->forward[p->n_forward++] = (df_same_place){ view, as, gap };
}

/* ---- what a member may read ---- */

/* The index, in the run, of the update whose result view `bottom` needs: the last update below it
 * that may have written some of its elements. Returns f->n when there is no such update. */
static uint32_t stands_on(const finder *f, uint32_t bottom)
{
    uint32_t i = f->n;
    while (i > 0 && f->update[i - 1] != forward_node_at(f, bottom)->src[0].i) i--;
    for (; i > 0; i--)
        if (!gap_between(f, bottom, forward_node_at(f, f->update[i - 1])->src[2].i)) return i - 1;
    return f->n;
}

/* Whether a member may read view k. It may when k depends on no update of the run, when k shows
 * exactly the place of one update, and when k shows nothing that the run has written. */
static bool may_read(const finder *f, uint32_t k)
{
    if (f->run_of[k] != f->run) return true;
    const uint32_t bottom = bottom_of(f, k), base = forward_node_at(f, bottom)->src[0].i;
    bool in_run = false;
    for (uint32_t i = 0; i < f->n; i++) in_run |= base == f->update[i];
    if (bottom == forward_place_at(f, k).base || !in_run) return false;
    const uint32_t on = stands_on(f, bottom);
    return on == f->n || show_one_place(f, k, forward_node_at(f, f->update[on])->src[2].i);
}

/* ---- values that were written before ---- */

static uint32_t base_of_run(const finder *f)
{
    return f->n > 0 ? forward_node_at(f, f->update[0])->src[0].i : f->base;
}

static bool is_of_run(const finder *f, uint32_t k)
{
    bool is_one = false;
    for (uint32_t i = 0; i < f->n; i++) is_one |= f->stored[k] == f->update[i];
    return is_one;
}

/* Whether the place of update u is a chain of views that can be built again on u, or on an update
 * that comes after u. */
static bool forward_can_rebuild_place(const finder *f, uint32_t u)
{
    return forward_place_at(f, forward_node_at(f, u)->src[2].i).base ==
           forward_node_at(f, u)->src[0].i;
}

static bool are_apart(finder *f, uint32_t u, uint32_t later, bool tell)
{
    const uint32_t a = forward_node_at(f, u)->src[2].i, b = forward_node_at(f, later)->src[2].i;
    const uint32_t gap = gap_between(f, a, b);
    if (gap && tell) rely_on(f, a, b, gap);
    return gap != 0;
}

/* Whether an earlier update wrote value k to the array, and no update since then has overwritten
 * it: neither one before the run nor one of the run. With `tell`, records the facts that the
 * answer relies on. */
static bool is_written(finder *f, uint32_t k, bool tell)
{
    const uint32_t u = f->stored[k];
    uint32_t v = base_of_run(f);
    if (u == DF_NONE || v < u || !forward_is_elementwise(f, k) || !forward_can_rebuild_place(f, u))
        return false;
    for (uint32_t n = 0; v != u; v = forward_node_at(f, v)->src[0].i, n++)
        if (n == (f->is_apart ? 0 : MOST_BACK) || forward_node_at(f, v)->op != DF_OP_update ||
            !forward_can_rebuild_place(f, v) || !are_apart(f, u, v, tell))
            return false;
    for (uint32_t i = 0; i < f->n; i++)
        if (!are_apart(f, u, f->update[i], tell)) return false;
    return true;
}

/* Notes that node k reads its operand s back, from the version of the array before the run. */
static void note_back(finder *f, uint32_t k, uint32_t s)
{
    const uint32_t o = forward_node_at(f, k)->src[s].i, base = base_of_run(f), u = f->stored[o];
    df_forward_of *const of = &f->of[k];
    if ((of->back != DF_NONE && of->back != base) || of->reads_back >> s & 1) return;
    if (f->of[o].written != DF_NONE && f->of[o].written != u) return;
    (void)is_written(f, o, true);
    of->back = base;
    of->reads_back |= (uint8_t)(1 << s);
    f->of[o].written = u;
    for (uint32_t v = forward_node_at(f, u)->src[2].i; v != forward_node_at(f, u)->src[0].i;
         v = forward_node_at(f, v)->src[0].i)
        f->n_reads++;
    f->n_back++;
}

/* Finds all operands that the value of update u can read back. It looks through elementwise
 * operations and views. Only nodes that were recorded after the base of the run can read the base.
 */
static void forward_find_read_backs(finder *f, uint32_t u)
{
    const uint32_t base = base_of_run(f);
    uint32_t n = 1;
    f->try++;
    f->stack[0] = u;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = f->stack[i], end = k == u ? 2 : forward_node_at(f, k)->n_src;
        for (uint32_t s = k == u; s < end; s++) {
            const uint32_t o = forward_node_at(f, k)->src[s].i;
            if (is_written(f, o, false)) {
                note_back(f, k, s);
            } else if (o > base && f->seen[o] != f->try && n < MOST_NODES && !is_of_run(f, o) &&
                       (forward_is_elementwise(f, o) || forward_class_at(f, o) == DF_CLASS_view)) {
                f->seen[o] = f->try;
                f->stack[n++] = o;
            }
        }
    }
}

/* ---- one update ---- */

static bool forward_visit_node(finder *f, uint32_t k)
{
    if (f->seen[k] != f->try) f->n_seen[k] = 0;
    f->n_seen[k]++;
    if (f->seen[k] == f->try) return true;
    f->seen[k] = f->try;
    if (is_of_run(f, k) || is_written(f, k, false)) return true;
    if (f->n_cone + f->n_read == MOST_NODES) return false;
    if (forward_is_elementwise(f, k)) {
        f->stack[f->n_cone++] = k;
        return true;
    }
    if (forward_class_at(f, k) == DF_CLASS_leaf) return true;
    if (forward_class_at(f, k) != DF_CLASS_view || !may_read(f, k)) return false;
    f->read[f->n_read++] = k;
    return true;
}

/* Whether value e is computed elementwise from leaves, from values that the run has written, and
 * from views that it may read. Fills f->stack with the elementwise nodes and f->read with the
 * views. */
static bool forward_walk_cone(finder *f, uint32_t e)
{
    f->try++;
    f->n_cone = f->n_read = 0;
    if (!forward_visit_node(f, e)) return false;
    for (uint32_t i = 0; i < f->n_cone; i++)
        for (uint32_t s = 0; s < forward_node_at(f, f->stack[i])->n_src; s++)
            if (!forward_visit_node(f, forward_node_at(f, f->stack[i])->src[s].i)) return false;
    /* A node that is also used outside the cone keeps its own reads, so it would be computed
     * twice. Only the value e itself may have other users: later updates. */
    for (uint32_t i = 0; i < f->n_cone; i++) {
        const uint32_t k = f->stack[i];
        if (f->run_of[k] != f->run) continue;
        if (k == e ? f->n_apart[k] > 0 : f->n_seen[k] != f->n_users[k]) return false;
    }
    return true;
}

/* Whether only update u and its value read the last update of the run. */
static bool is_read_by_none_else(const finder *f, uint32_t u)
{
    const uint32_t last = f->update[f->n - 1],
                   place = bottom_of(f, forward_node_at(f, u)->src[2].i);
    uint32_t n = 1; /* u itself */
    bool has_place = false;
    for (uint32_t i = 0; i < f->n_read; i++) {
        const uint32_t b = bottom_of(f, f->read[i]);
        bool is_new = forward_node_at(f, b)->src[0].i == last;
        for (uint32_t j = 0; j < i; j++) is_new &= bottom_of(f, f->read[j]) != b;
        n += is_new;
        has_place |= b == place;
    }
    n += !has_place && forward_node_at(f, place)->src[0].i == last;
    return n == f->n_users[last];
}

static bool forward_continues_run(finder *f, uint32_t u)
{
    if (f->is_apart || f->n == 0 || f->n == MOST_UPDATES ||
        forward_node_at(f, u)->src[0].i != f->update[f->n - 1])
        return false;
    const uint32_t first = forward_node_at(f, f->update[0])->src[2].i,
                   place = forward_node_at(f, u)->src[2].i;
    return have_equal_extents(f, first, place) &&
           forward_walk_cone(f, forward_node_at(f, u)->src[1].i) && is_read_by_none_else(f, u);
}

/* Gives the views from k down to its bottom substitutes, which read `base`. */
static void read_below(finder *f, uint32_t k, uint32_t bottom, uint32_t base)
{
    for (;; k = forward_node_at(f, k)->src[0].i) {
        f->n_reads += !f->of[k].is_read;
        f->of[k].is_read = true;
        if (k == bottom) break;
    }
    f->of[bottom].base = base;
}

/* Lets a slice that an update reads and the slice that it writes share arguments, when both show
 * one place. Then the fuser sees that each element is read at the place where it is written. */
static void share_bounds(finder *f, uint32_t bottom, uint32_t place)
{
    const uint32_t to = bottom_of(f, place);
    if (bottom >= to || f->of[to].args != DF_NONE || forward_node_at(f, to)->op != DF_OP_slice ||
        forward_node_at(f, bottom)->op != DF_OP_slice || !show_one_place(f, bottom, to))
        return;
    f->of[to].args = bottom;
    rely_on(f, to, bottom, 0);
}

/* Records the substitute of view k, which the update with the given place reads: see stands_on. */
static void forward_read(finder *f, uint32_t k, uint32_t place)
{
    if (f->run_of[k] != f->run) return;
    const uint32_t bottom = bottom_of(f, k), on = stands_on(f, bottom);
    if (on == f->n) share_bounds(f, bottom, place);
    if (f->of[k].is_done) return;
    f->of[k].is_done = true;
    uint32_t i = f->n;
    while (f->update[i - 1] != forward_node_at(f, bottom)->src[0].i) i--;
    for (; i > (on == f->n ? 0 : on + 1); i--) {
        const uint32_t to = forward_node_at(f, f->update[i - 1])->src[2].i;
        rely_on(f, bottom, to, gap_between(f, bottom, to));
    }
    read_below(f, k, bottom,
               on == f->n ? forward_node_at(f, f->update[0])->src[0].i : f->update[on]);
    if (on == f->n) return;
    f->of[k].value = forward_node_at(f, f->update[on])->src[1].i;
    rely_on(f, k, forward_node_at(f, f->update[on])->src[2].i, 0);
}

static void forward_add_update(finder *f, uint32_t u)
{
    for (uint32_t i = 0; i < f->n_cone; i++) f->of[f->stack[i]].is_member = true;
    f->of[u].is_member = true;
    for (uint32_t i = 0; i < f->n_read; i++)
        forward_read(f, f->read[i], forward_node_at(f, u)->src[2].i);
    forward_find_read_backs(f, u);
    f->update[f->n++] = u;
}

static void try_update(finder *f, uint32_t u)
{
    const uint32_t value = forward_node_at(f, u)->src[1].i;
    if (forward_can_rebuild_place(f, u) && forward_continues_run(f, u)) {
        forward_add_update(f, u);
    } else {
        f->n = 0;
        f->run++;
        f->base = forward_node_at(f, u)->src[0].i;
        forward_find_read_backs(f, u);
        if (forward_can_rebuild_place(f, u) && forward_walk_cone(f, value)) f->update[f->n++] = u;
    }
    if (f->n_apart[value] > 0) f->n = 0; /* the value is stored in any case */
    f->run_of[u] = f->n > 0 ? f->run : 0;
    f->stored[value] = u;
}

/* ---- all of them ---- */

static void forward_visit_updates(finder *f)
{
    const df_trace *const t = f->t;
    const size_t n = t->n_nodes + 1u;
    memset(f->words, 0, WORDS * n * sizeof *f->words);
    f->n_users = f->words;
    f->run_of = f->words + n;
    f->seen = f->words + 2 * n;
    f->n_seen = f->words + 3 * n;
    f->stored = f->words + 4 * n;
    f->n_apart = f->words + 5 * n;
    f->n = f->run = f->try = f->n_reads = f->n_back = 0;
    f->places->n_forward = 0;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        f->of[k] = (df_forward_of){
            .value = DF_NONE, .base = DF_NONE, .args = DF_NONE, .written = DF_NONE, .back = DF_NONE
        };
        f->stored[k] = DF_NONE;
        for (uint32_t s = 0; s < t->nodes[k].n_src; s++) {
            const uint32_t o = t->nodes[k].src[s].i;
            f->n_users[o]++;
            f->n_apart[o] +=
                !forward_is_elementwise(f, k) && !(t->nodes[k].op == DF_OP_update && s == 1);
        }
    }
    for (uint32_t r = 0; r < t->n_roots; r++) {
        f->n_users[t->roots[r].node]++;
        f->n_apart[t->roots[r].node]++;
    }
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        for (uint32_t s = 0; s < t->nodes[k].n_src; s++) {
            const uint32_t run = f->run_of[t->nodes[k].src[s].i];
            if (run > f->run_of[k]) f->run_of[k] = run;
        }
        if (t->nodes[k].op == DF_OP_update) try_update(f, k);
    }
}

/* Whether the facts that were found are the known ones. Otherwise sets places->lost to the first
 * known fact that does not hold. */
static bool is_as_known(const finder *f)
{
    df_places *const p = f->places;
    const size_t size = p->n_forward * sizeof *p->forward;
    if (p->n_forward == p->n_known_forward && memcmp(p->forward, p->known_forward, size) == 0)
        return true;
    for (uint32_t i = 0; i < p->n_known_forward && p->lost == DF_NONE; i++)
        if (!is_so(f, &p->known_forward[i])) p->lost = i;
    return false;
}

/* Bounds the number of facts that can be relied on. Each view has a few: what it shows, from which
 * places it has a gap, and which bounds it shares. Each use of a value that was written has a gap
 * from the place of every update since then. Returns false when memory runs out. */
static bool count_pairs(const df_trace *t, uint32_t n_views, df_arena *arena, size_t *n)
{
    uint8_t *const is_written_once = df_arena_zalloc(arena, t->n_nodes + 1u, 1);
    if (!is_written_once) return false;
    *n = n_views * (MOST_UPDATES + 2u) + 1;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        for (uint32_t s = 0; s < t->nodes[k].n_src; s++)
            *n += is_written_once[t->nodes[k].src[s].i] ? MOST_BACK + MOST_UPDATES : 0;
        if (t->nodes[k].op == DF_OP_update) is_written_once[t->nodes[k].src[1].i] = 1;
    }
    return true;
}

deft_status df_forward_find(df_diag *d, const df_trace *t, df_places *places, df_arena *arena,
                            df_forward *out)
{
    uint32_t n_updates = 0, n_views = 0;
    bool has_control = false;
    *out = (df_forward){ 0 };
    places->n_forward = 0;
    places->lost = DF_NONE;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        n_updates += t->nodes[k].op == DF_OP_update;
        n_views += df_op_infos[t->nodes[k].op].cls == DF_CLASS_view;
        has_control |= df_op_infos[t->nodes[k].op].cls == DF_CLASS_control;
    }
    if (n_updates < 2 || has_control) return DEFT_OK;
    const size_t n = t->n_nodes + 1u;
    size_t n_pairs;
    finder *const f = df_arena_new(arena, finder, 1);
    uint32_t *const words = df_arena_new(arena, uint32_t, WORDS * n);
    df_forward_of *const of = df_arena_new(arena, df_forward_of, n);
    uint8_t *const is_updated = df_arena_zalloc(arena, n, 1);
    places->forward = count_pairs(t, n_views, arena, &n_pairs)
                          ? df_arena_new(arena, df_same_place, n_pairs)
                          : NULL;
    if (!f || !words || !of || !is_updated || !places->forward)
        return df_fail_mem(d, "forwarding", n * sizeof *of);
    *f = (finder){ .t = t, .is_updated = is_updated, .places = places, .of = of, .words = words };
    df_place_find_updated(t, is_updated);
    forward_visit_updates(f);
    if (places->is_bounded && !is_as_known(f)) {
        f->is_apart = true;
        forward_visit_updates(f);
    }
    if (places->n_forward > 0 || f->n_back > 0) *out = (df_forward){ of, f->n_reads };
    return DEFT_OK;
}
