/* SPDX-License-Identifier: Apache-2.0
 *
 * The cone of a kernel: every pair (node, map) that its heads need, down to loads. A pair may be
 * needed in a region only (surround.c), and is then one item for each region. A heap finds the
 * pairs in falling order of nodes. So when the bound on a body is reached, the heap is a clean
 * frontier: nothing above it is missing, and storing its nodes is always legal. There is no
 * recursion: the cost of a chain is its length.
 *
 * A reduction or scan within a cone fits when its kept axes run over the loops that are not RED,
 * each once. Its reduced axes must run over the RED loops in order. A head alone has no RED loops
 * yet. It takes them from the first reduction that is found (grow):
 *
 *   y[b,n] = e[b,n] / sum_n e[b,n]   loops b, n; the sum keeps b: n becomes RED (normalisation)
 *   y[b]   = log(sum_n e[b,n])       loop b; the sum keeps b: a RED loop n is added    (epilogue)
 *
 * Some nodes cannot be in the cone: a reduction that does not fit, a node behind a reshape which
 * the map does not pass, or a node beyond the bound. These nodes are put on `marks`. Other kernels
 * must store them before this cone is tried again.
 *
 * Stages: a value that depends on a RED loop exists only within the loop of one stage. Every stage
 * that needs it computes it again. A value that does not depend on a RED loop is computed once per
 * row. The result of a reduction in stage s is available from stage s + 1 on. Each item gets its
 * earliest stage and the set of stages that need it.
 * Why this file is long: one search; what each kind of operator does in a cone is in one file.
 */
#include "fuser/fuse.h"

#include <stdio.h>
#include <string.h>

void df_cone_begin(pass *p, cone *c)
{
    (void)p;
    c->failed = c->has_red = c->has_scan = c->multi = false;
    c->strict = false;
    c->why = NULL;
    c->joined = DF_NONE;
    c->n_ops = 0;
    c->n_stages = 1;
    c->heads.n = c->items.n = c->heap.n = c->order.n = c->marks.n = c->entered.n = 0;
    df_table_clear(&c->seen);
}

void df_cone_finish(cone *c, const df_mem *mem)
{
    df_vec_finish(mem, &c->heads);
    df_vec_finish(mem, &c->items);
    df_vec_finish(mem, &c->heap);
    df_vec_finish(mem, &c->order);
    df_vec_finish(mem, &c->marks);
    df_vec_finish(mem, &c->entered);
    df_table_finish(&c->seen, mem);
}

/* Notes that no kernel can compute the heads. Keeps the first reason. */
static void cone_note_failure(cone *c, const char *why)
{
    c->failed = true;
    if (!c->why) c->why = why;
}

/* Notes that node must be stored before this cone can be computed. */
static void cone_mark_node(pass *p, cone *c, uint32_t node, const char *why)
{
    cone_note_failure(c, why);
    if (!df_vec_push(p->mem, &c->marks, node)) p->st = df_fail_mem(p->diag, "fuser", sizeof node);
}

/* ---- heap of items, highest node first ---- */

static bool above(const cone *c, uint32_t a, uint32_t b)
{
    const uint32_t x = c->items.at[a].node, y = c->items.at[b].node;
    return x != y ? x > y : a > b;
}

static void heap_push(pass *p, cone *c, uint32_t it)
{
    if (!df_vec_push(p->mem, &c->heap, it)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof it);
        return;
    }
    uint32_t *const h = c->heap.at;
    size_t i = c->heap.n - 1;
    while (i > 0 && above(c, it, h[(i - 1) / 2])) {
        h[i] = h[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h[i] = it;
}

static uint32_t heap_pop(cone *c)
{
    uint32_t *const h = c->heap.at;
    const uint32_t top = h[0], last = h[--c->heap.n];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= c->heap.n) break;
        if (k + 1 < c->heap.n && above(c, h[k + 1], h[k])) k++;
        if (!above(c, h[k], last)) break;
        h[i] = h[k];
        i = k;
    }
    if (c->heap.n > 0) h[i] = last;
    return top;
}

/* ---- finding what an operand is ---- */

/* Whether node is loaded from its val here, instead of being computed. May fail the cone. */
static bool stops(pass *p, cone *c, uint32_t node, map_id map)
{
    const val_id v = p->node_val[node];
    if (IS_NONE(v)) return false;
    const val *const w = val_at(p, v);
    if (!IS_NONE(w->group) && same_group(w->group, c->group)) {
        if (!w->plain || !same_map(map, w->map))
            cone_note_failure(c, "needs other elements of what the kernel stores");
        return class_of_op(p, node) ==
               DF_CLASS_contract; /* a tile; other values are in registers */
    }
    if (IS_NONE(w->group)) {
        if (c->strict) cone_note_failure(c, "waits for a value that is still to be planned");
        return true;
    }
    if (w->level < c->level) return true;
    const uint8_t cls = class_of_op(p, node);
    const bool is_stored_only = cls == DF_CLASS_contract || cls == DF_CLASS_routine ||
                                (cls == DF_CLASS_update && !df_surround_is(p, node));
    if (c->strict || is_stored_only) cone_note_failure(c, "would wait for its own result");
    return false;
}

/* Whether node can be computed, or loaded as an input, through a linear map. */
static bool takes_linear(const pass *p, uint32_t node)
{
    const df_node *const x = node_of(p, node);
    switch ((df_op_class)df_op_infos[x->op].cls) {
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary: return true;
    case DF_CLASS_leaf:
        return x->op != DF_OP_iota &&
               (x->op != DF_OP_input || p->t->inputs[x->attr].flags & DF_INPUT_CONTIGUOUS);
    case DF_CLASS_reduce:
    case DF_CLASS_scan:
    case DF_CLASS_view:
    case DF_CLASS_index:
    case DF_CLASS_update:
    case DF_CLASS_contract:
    case DF_CLASS_control:
    case DF_CLASS_routine: return false;
    }
    df_unreachable();
}

/* What a cone needs: node at map, in a region. */
typedef struct wanted {
    uint32_t node;
    map_id map;
    region_id region;
} wanted;

/* The item of w, which is added if it is new. stored: it loads the val of w.node. */
static uint32_t item_at(pass *p, cone *c, wanted w, bool stored)
{
    const uint32_t node = w.node;
    map_id map = w.map;
    region_id where = w.region;
    const df_node *const x = node_of(p, node);
    const bool bare = !stored && (x->op == DF_OP_num || x->op == DF_OP_cst ||
                                  x->op == DF_OP_count || x->op == DF_OP_empty);
    if (bare) map = df_map_zero(p, 0);
    if (!stored && class_of_op(p, node) == DF_CLASS_leaf && x->op != DF_OP_input)
        where = NO_REGION; /* no memory is touched */
    const uint64_t h = df_mix(df_mix(df_mix(0, node), map.i), where.i);
    uint32_t pos = UINT32_MAX, i;
    while ((i = df_table_next(&c->seen, h, &pos)) != DF_NONE)
        if (c->items.at[i].node == node && same_map(c->items.at[i].map, map) &&
            same_region(c->items.at[i].region, where))
            return i;
    i = (uint32_t)c->items.n;
    const item it = { .node = node,
                      .map = map,
                      .src = { DF_NONE, DF_NONE, DF_NONE },
                      .region = where,
                      .inner = NO_REGION,
                      .around = DF_NONE,
                      .val = stored ? p->node_val[node] : NO_VAL,
                      .kind = stored ? IT_LOAD
                              : bare ? IT_NUM
                                     : IT_MAP };
    if (!df_vec_push(p->mem, &c->items, it) || !df_table_add(&c->seen, p->mem, h, i)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof it);
        return 0;
    }
    heap_push(p, c, i);
    return i;
}

/* The item that yields w, with all views resolved. forced: the node itself is not loaded, because
 * it is what the head stores. */
static uint32_t cone_resolve_views(pass *p, cone *c, wanted w, bool forced)
{
    uint32_t node = w.node;
    map_id map = w.map;
    for (; p->st == DEFT_OK; forced = false) {
        const wanted here = { node, map, w.region };
        if (!forced && stops(p, c, node, map)) return item_at(p, c, here, true);
        if (c->failed && c->strict) return 0;
        if (class_of_op(p, node) == DF_CLASS_view) {
            bool self;
            const uint32_t src = node_of(p, node)->src[0].i;
            const map_id next = df_map_view(p, node, map, &self);
            if (IS_NONE(next)) {
                cone_mark_node(p, c, self ? node : src, "does not pass a reshape");
                return 0;
            }
            node = src;
            map = next;
            continue;
        }
        if (df_joined_is(p, node)) {
            if (df_joined_enter(p, c, &node, &map)) continue;
            if (c->joined == DF_NONE)
                cone_mark_node(p, c, node, "is read in another order");
            else
                cone_note_failure(c, "reads several pieces of a joined array");
            return 0;
        }
        if (map_at(p, map)->linear && !takes_linear(p, node)) {
            cone_mark_node(p, c, node, "does not pass a reshape");
            return 0;
        }
        return item_at(p, c, here, false);
    }
    return 0;
}

/* ---- reductions and scans ---- */

/* Adds an innermost loop over a class. Returns its number. */
static uint32_t add_loop(pass *p, space *sp, uint32_t cls, bool red)
{
    const uint32_t l = sp->n++;
    sp->cls[l] = cls;
    sp->extent[l] = df_fuse_cls_extent(p, cls);
    sp->red[l] = red;
    sp->order[l] = (uint8_t)l;
    return l;
}

/* Whether axis j of map m is exactly a loop over class cls that is not RED. */
static bool plain_axis(const pass *p, const cone *c, const index_map *m, uint32_t j, uint32_t cls)
{
    const int d = m->axis[j];
    (void)p;
    return d != FIXED && d < MAX_LOOPS && df_same_slot(m->off[j], SLOT_ZERO) &&
           df_same_slot(m->coef[j], SLOT_ONE) && c->sp.cls[d] == cls && !c->sp.red[d];
}

/* How the axes of a reduction match the loops. */
typedef struct fit {
    int8_t loop[DEFT_MAX_RANK]; /* per operand axis: the kept loop, or FIXED */
    uint32_t n_red;
    uint32_t red_cls[DEFT_MAX_RANK]; /* reduced classes in order, without ONE; a single ONE when
                                      * there is no other */
} fit;

/* Matches the axes of reduction n at map m with the loops. *covered: a bit for each loop that a
 * kept axis runs over. Returns false when a kept axis does not run over a loop of its own. */
static bool fit_kept(const pass *p, const cone *c, uint32_t n, const index_map *m, fit *f,
                     uint32_t *covered)
{
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i, rank = node_of(p, src)->rank;
    uint32_t at = 0;
    *covered = 0;
    f->n_red = 0;
    for (uint32_t j = 0; j < rank; j++) {
        const uint32_t cls = df_fuse_cls(p, src, j);
        f->loop[j] = FIXED;
        if (x->attr >> j & 1) {
            if (x->attr & DF_REDUCE_KEEPDIMS) at++;
            if (cls != CLS_ONE) f->red_cls[f->n_red++] = cls;
            continue;
        }
        const uint32_t i = at++;
        if (cls == CLS_ONE) continue;
        if (!plain_axis(p, c, m, i, cls) || *covered >> m->axis[i] & 1) return false;
        *covered |= 1u << m->axis[i];
        f->loop[j] = m->axis[i];
    }
    if (f->n_red == 0) f->red_cls[f->n_red++] = CLS_ONE;
    return true;
}

static uint32_t red_loops(const space *sp, uint8_t out[MAX_LOOPS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sp->n; i++)
        if (sp->red[sp->order[i]]) out[n++] = sp->order[i];
    return n;
}

static bool classes_are(const cone *c, const uint8_t *loop, uint32_t n, const fit *f)
{
    if (n != f->n_red) return false;
    for (uint32_t i = 0; i < n; i++)
        if (c->sp.cls[loop[i]] != f->red_cls[i]) return false;
    return true;
}

/* Gives a space without RED loops the RED loops of this reduction. Loops that no kept axis covers
 * become RED; when there are none, new loops are added. Returns false when that is impossible. */
static bool cone_take_red_loops(pass *p, cone *c, uint32_t n, const fit *f, uint32_t covered)
{
    space *const sp = &c->sp;
    uint8_t rest[MAX_LOOPS];
    uint32_t n_rest = 0;
    for (uint32_t i = 0; i < sp->n; i++)
        if (!(covered >> sp->order[i] & 1)) rest[n_rest++] = sp->order[i];
    if (n_rest > 0) {
        if (!classes_are(c, rest, n_rest, f)) return false;
        for (uint32_t i = 0; i < n_rest; i++) sp->red[rest[i]] = true;
        return true;
    }
    if (sp->n + f->n_red > MAX_LOOPS) return false;
    /* The loops come in the order of the operand's axes. */
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i;
    uint8_t order[MAX_LOOPS];
    uint32_t at = 0, k = 0;
    for (uint32_t j = 0; j < node_of(p, src)->rank; j++) {
        if (f->loop[j] != FIXED)
            order[at++] = (uint8_t)f->loop[j];
        else if ((x->attr >> j & 1) && df_fuse_cls(p, src, j) != CLS_ONE)
            order[at++] = (uint8_t)add_loop(p, sp, f->red_cls[k++], true);
    }
    if (k == 0) order[at++] = (uint8_t)add_loop(p, sp, CLS_ONE, true);
    df_assert(at == sp->n);
    memcpy(sp->order, order, at);
    return true;
}

static bool has_red_loops(const space *sp)
{
    for (uint32_t i = 0; i < sp->n; i++)
        if (sp->red[i]) return true;
    return false;
}

/* The map of the operand of reduction n at map, or DF_NONE when the reduction does not fit. */
static map_id reduce_operand(pass *p, cone *c, uint32_t n, map_id map)
{
    const index_map m = *map_at(p, map);
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i;
    fit f;
    uint32_t covered = 0;
    uint8_t red[MAX_LOOPS];
    if (m.linear || !fit_kept(p, c, n, &m, &f, &covered)) return NO_MAP;
    if (!has_red_loops(&c->sp) && (!c->grow || !cone_take_red_loops(p, c, n, &f, covered)))
        return NO_MAP;
    const uint32_t n_red = red_loops(&c->sp, red);
    if (!classes_are(c, red, n_red, &f) || df_popcount(covered) + n_red != c->sp.n) return NO_MAP;

    index_map out;
    memset(&out, 0, sizeof out);
    out.rank = node_of(p, src)->rank;
    uint32_t k = 0;
    for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) {
        out.axis[j] = FIXED;
        if (j >= out.rank) continue;
        if (f.loop[j] != FIXED)
            out.axis[j] = f.loop[j];
        else if ((x->attr >> j & 1) && df_fuse_cls(p, src, j) != CLS_ONE)
            out.axis[j] = (int8_t)red[k++];
        if (out.axis[j] != FIXED) out.coef[j] = SLOT_ONE;
    }
    return df_map_intern(p, &out);
}

/* Whether scan n at map runs along the only RED loop. */
static bool scan_fits(pass *p, cone *c, uint32_t n, map_id map)
{
    const df_node *const x = node_of(p, n);
    const index_map m = *map_at(p, map);
    if (m.linear) return false;
    const int loop = m.axis[x->attr];
    if (loop == FIXED || loop >= MAX_LOOPS || !df_same_slot(m.off[x->attr], SLOT_ZERO) ||
        !df_same_slot(m.coef[x->attr], SLOT_ONE) || c->sp.cls[loop] != df_fuse_cls(p, n, x->attr))
        return false;
    for (uint32_t j = 0; j < x->rank; j++)
        if (j != x->attr && m.axis[j] == loop) return false;
    if (!has_red_loops(&c->sp)) {
        if (!c->grow) return false;
        c->sp.red[loop] = true;
    }
    for (uint32_t i = 0; i < c->sp.n; i++)
        if (c->sp.red[i] != ((int)i == loop)) return false;
    return true;
}

/* ---- expansion ---- */

static void expand_map(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    const map_id map = c->items.at[i].map;
    const df_node *const x = node_of(p, n);
    for (uint32_t s = 0; s < x->n_src; s++) {
        const map_id m = df_map_operand(p, n, x->src[s].i, map);
        if (IS_NONE(m)) {
            cone_mark_node(p, c, n, "does not pass a reshape");
            return;
        }
        const wanted w = { x->src[s].i, m, c->items.at[i].region };
        const uint32_t src = cone_resolve_views(p, c, w, false);
        c->items.at[i].src[s] = src;
    }
}

/* Expands an update that surrounds a value with one number. */
static void expand_surround(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    if (map_at(p, c->items.at[i].map)->linear) {
        cone_mark_node(p, c, n, "does not pass a reshape");
        return;
    }
    region_id inner;
    const map_id m = df_surround_enter(p, n, c->items.at[i].map, c->items.at[i].region, &inner);
    c->items.at[i].kind = IT_SURROUND;
    c->items.at[i].inner = inner;
    const wanted value = { node_of(p, n)->src[1].i, m, inner };
    const uint32_t src = cone_resolve_views(p, c, value, false);
    c->items.at[i].src[0] = src;
    if (c->failed || p->st != DEFT_OK) return;
    /* A load yields the number itself where it loads nothing. */
    item *const from = &c->items.at[src];
    const bool loads = from->kind == IT_LOAD || node_of(p, from->node)->op == DF_OP_input;
    c->items.at[i].around = df_surround_number(p, n);
    if (loads && same_region(from->region, inner) && from->around == DF_NONE)
        from->around = c->items.at[i].around;
}

static void expand_reduce(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    const map_id m = reduce_operand(p, c, n, c->items.at[i].map);
    if (IS_NONE(m) || c->has_scan) {
        cone_mark_node(p, c, n,
                       c->has_scan ? "a reduction beside a scan" : "reduces over other axes");
        return;
    }
    c->has_red = true;
    c->items.at[i].kind = IT_REDUCE;
    const wanted w = { node_of(p, n)->src[0].i, m, NO_REGION };
    const uint32_t src = cone_resolve_views(p, c, w, false);
    c->items.at[i].src[0] = src;
}

static void expand_scan(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    const map_id map = c->items.at[i].map;
    const df_node *const x = node_of(p, n);
    const bool trivial = df_fuse_cls(p, n, x->attr) == CLS_ONE;
    if (map_at(p, map)->linear || (!trivial && (c->has_red || !scan_fits(p, c, n, map)))) {
        cone_mark_node(p, c, n,
                       c->has_red ? "a scan beside a reduction" : "scans along another axis");
        return;
    }
    /* Along an axis of one element a running sum is its operand: a map op without an instruction.
     */
    c->has_scan |= !trivial;
    c->items.at[i].kind = trivial ? IT_MAP : IT_SCAN;
    const wanted w = { x->src[0].i, map, NO_REGION };
    const uint32_t src = cone_resolve_views(p, c, w, false);
    c->items.at[i].src[0] = src;
}

/* Operand 0 of take and gather must be stored, or be an input, below any views. SPECIAL drives the
 * indexed axis. */
static void expand_take(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    const df_node *const x = node_of(p, n);
    const index_map m = *map_at(p, c->items.at[i].map);
    const uint32_t a = x->src[0].i, b = x->src[1].i, rank = node_of(p, a)->rank;
    const uint32_t b_rank = node_of(p, b)->rank;
    index_map am = m, bm = m;
    if (x->op == DF_OP_take) {
        memset(&am, 0, sizeof am);
        memset(&bm, 0, sizeof bm);
        for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) am.axis[j] = bm.axis[j] = FIXED;
        am.rank = (uint8_t)rank;
        bm.rank = (uint8_t)b_rank;
        for (uint32_t j = 0; j < x->rank; j++) {
            const bool before = j < x->attr, in_b = !before && j < x->attr + b_rank;
            index_map *const to = in_b ? &bm : &am;
            const uint32_t at = before ? j : in_b ? j - x->attr : j - b_rank + 1;
            to->axis[at] = m.axis[j];
            to->off[at] = m.off[j];
            to->coef[at] = m.coef[j];
        }
    }
    am.axis[x->attr] = SPECIAL;
    am.off[x->attr] = SLOT_ZERO;
    am.coef[x->attr] = SLOT_ONE;
    c->items.at[i].kind = IT_TAKE;
    const wanted w = { b, df_map_intern(p, &bm), NO_REGION };
    const uint32_t index = cone_resolve_views(p, c, w, false);
    c->items.at[i].src[0] = index;

    uint32_t node = a;
    map_id map = df_map_intern(p, &am);
    while (p->st == DEFT_OK) {
        const bool in_group = !IS_NONE(p->node_val[node]) && !IS_NONE(c->group) &&
                              same_group(val_at(p, p->node_val[node])->group, c->group);
        if (in_group) {
            cone_note_failure(c, "needs other elements of what the kernel stores");
            return;
        }
        if (stops(p, c, node, map)) {
            c->items.at[i].val = p->node_val[node];
            break;
        }
        if (c->failed && c->strict) return;
        if (class_of_op(p, node) == DF_CLASS_view) {
            bool self;
            const uint32_t src = node_of(p, node)->src[0].i;
            const map_id next = df_map_view(p, node, map, &self);
            if (IS_NONE(next)) {
                cone_mark_node(p, c, self ? node : src, "is indexed");
                return;
            }
            node = src;
            map = next;
            continue;
        }
        if (node_of(p, node)->op == DF_OP_input &&
            (!map_at(p, map)->linear || takes_linear(p, node)))
            break;
        cone_mark_node(p, c, node, "is indexed");
        return;
    }
    c->items.at[i].base = node;
    c->items.at[i].base_map = map;
}

static void expand_leaf(pass *p, cone *c, uint32_t i)
{
    item *const it = &c->items.at[i];
    const df_node *const x = node_of(p, it->node);
    (void)p;
    switch (x->op) {
    case DF_OP_input: it->kind = IT_INPUT; return;
    case DF_OP_iota: it->kind = IT_IOTA; return;
    case DF_OP_random:
        it->kind = IT_RANDOM;
        c->n_ops += 8; /* less than its 100 instructions: often all words of one draw are used */
        return;
    }
    it->kind = IT_NUM;
}

static void expand(pass *p, cone *c, uint32_t i)
{
    const uint32_t n = c->items.at[i].node;
    const bool in_region = !IS_NONE(c->items.at[i].region);
    if (c->items.at[i].kind == IT_LOAD) {
        if (IS_NONE(c->group) || !same_group(val_at(p, c->items.at[i].val)->group, c->group))
            return;
        if (in_region) cone_note_failure(c, "needs other elements of what the kernel stores");
        c->items.at[i].kind = IT_TILE;
        return;
    }
    const uint8_t cls = class_of_op(p, n);
    if (in_region && (cls == DF_CLASS_reduce || cls == DF_CLASS_scan || cls == DF_CLASS_index)) {
        cone_mark_node(p, c, n, "it is read beside a number that surrounds it");
        return;
    }
    switch ((df_op_class)class_of_op(p, n)) {
    case DF_CLASS_leaf: expand_leaf(p, c, i); return;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary: c->n_ops++, expand_map(p, c, i); return;
    case DF_CLASS_reduce: c->n_ops++, expand_reduce(p, c, i); return;
    case DF_CLASS_scan: c->n_ops++, expand_scan(p, c, i); return;
    case DF_CLASS_index: c->n_ops += 4, expand_take(p, c, i); return;
    case DF_CLASS_update:
        if (df_surround_is(p, n)) {
            c->n_ops++, expand_surround(p, c, i);
            return;
        }
        cone_mark_node(p, c, n, "is stored by its nature");
        return;
    case DF_CLASS_contract:
    case DF_CLASS_control:
    case DF_CLASS_routine: cone_mark_node(p, c, n, "is stored by its nature"); return;
    case DF_CLASS_view: break;
    }
    df_unreachable();
}

/* The bound on a body is reached: marks all nodes that are still to be computed. */
static void cone_mark_frontier(pass *p, cone *c)
{
    bool any = false;
    char *const why = df_arena_alloc(&p->tmp, 48, 1);
    if (why) snprintf(why, 48, "a kernel holds %u ops at most", p->lim->max_body);
    c->why = NULL; /* the frontier is what matters */
    cone_note_failure(c, why);
    for (size_t i = 0; i < c->heap.n; i++) {
        const item *const it = &c->items.at[c->heap.at[i]];
        if (it->kind == IT_LOAD || class_of_op(p, it->node) == DF_CLASS_leaf) continue;
        cone_mark_node(p, c, it->node, why);
        any = true;
    }
    df_assert(any);
}

/* ---- levels and stages ---- */

/* Whether a map moves along a RED loop. */
static bool map_is_elem(const pass *p, const cone *c, map_id map)
{
    const index_map *const m = map_at(p, map);
    for (uint32_t j = 0; j < m->rank; j++)
        if (m->axis[j] != FIXED && m->axis[j] < MAX_LOOPS && c->sp.red[m->axis[j]]) return true;
    for (uint32_t l = 0; l < c->sp.n; l++)
        if (!df_same_slot(m->lcoef[l], SLOT_ZERO) && c->sp.red[l]) return true;
    return false;
}

/* Sets the level and the earliest stage of item i from those of its operands. */
static void place_item(const pass *p, cone *c, uint32_t i)
{
    item *const it = &c->items.at[i];
    const df_node *const x = node_of(p, it->node);
    it->elem = false;
    it->stage = 0;
    it->need = 0;
    for (uint32_t s = 0; s < 3; s++) {
        if (it->src[s] == DF_NONE) continue;
        const item *const o = &c->items.at[it->src[s]];
        const uint8_t from = (uint8_t)(o->stage + (o->kind == IT_REDUCE));
        if (from > it->stage) it->stage = from;
        it->elem |= o->elem;
    }
    switch ((item_kind)it->kind) {
    case IT_MAP:
    case IT_NUM: break;
    case IT_REDUCE: it->elem = false; break;
    case IT_SCAN: it->elem = true; break;
    case IT_IOTA: {
        const index_map *const m = map_at(p, it->map);
        const int d = m->axis[x->attr];
        it->elem = d != FIXED && d < MAX_LOOPS && c->sp.red[d];
        break;
    }
    case IT_TAKE: it->elem |= map_is_elem(p, c, it->base_map); break;
    case IT_SURROUND: it->elem |= df_region_moves(p, it->inner, c->sp.red); break;
    case IT_RANDOM:
    case IT_LOAD:
    case IT_INPUT:
    case IT_TILE:
        it->elem = map_is_elem(p, c, it->map) || df_region_moves(p, it->region, c->sp.red);
        break;
    }
}

static void need_sources(cone *c, const item *it, uint8_t bits)
{
    for (uint32_t s = 0; s < 3; s++)
        if (it->src[s] != DF_NONE && c->items.at[it->src[s]].elem)
            c->items.at[it->src[s]].need |= bits;
}

/* Sets level, stage and need of all items, and the number of stages. */
static void stages(pass *p, cone *c)
{
    uint32_t last = 0;
    for (size_t k = c->order.n; k-- > 0;) {
        place_item(p, c, c->order.at[k]);
        const item *const it = &c->items.at[c->order.at[k]];
        const uint32_t until = it->stage + (it->kind == IT_REDUCE);
        if (until >= DF_MAX_STAGES) {
            cone_mark_node(p, c, it->node, "too many stages");
            return;
        }
        if (until > last) last = until;
    }
    c->n_stages = last + 1;
    for (size_t h = 0; h < c->heads.n; h++) {
        const uint32_t i = c->heads.at[h].item;
        const bool elem = map_is_elem(p, c, c->heads.at[h].dest);
        if (elem && c->items.at[i].stage > 0) c->multi = true;
        if (c->items.at[i].elem) c->items.at[i].need |= (uint8_t)(1u << c->items.at[i].stage);
    }
    for (size_t k = 0; k < c->order.n; k++) {
        const item *const it = &c->items.at[c->order.at[k]];
        if (it->kind == IT_REDUCE)
            need_sources(c, it, (uint8_t)(1u << it->stage));
        else if (it->elem)
            need_sources(c, it, it->need);
        if (it->need > 1 || (it->kind == IT_REDUCE && it->stage > 0)) c->multi = true;
    }
}

/* ---- entry points ---- */

deft_status df_cone_add_head(pass *p, cone *c, head h)
{
    if (!df_vec_push(p->mem, &c->heads, h)) p->st = df_fail_mem(p->diag, "fuser", sizeof h);
    return p->st;
}

deft_status df_cone_run(pass *p, cone *c)
{
    for (size_t h = 0; h < c->heads.n && p->st == DEFT_OK; h++) {
        const uint32_t expr = c->heads.at[h].expr;
        const bool own =
            !IS_NONE(p->node_val[expr]) && (same_val(p->node_val[expr], c->heads.at[h].val) ||
                                            val_at(p, c->heads.at[h].val)->divided);
        const wanted w = { expr, c->heads.at[h].map, NO_REGION };
        const uint32_t i = cone_resolve_views(p, c, w, own);
        c->heads.at[h].item = i;
    }
    while (c->heap.n > 0 && p->st == DEFT_OK) {
        if (c->n_ops >= p->lim->max_body) {
            bool ops = false;
            for (size_t i = 0; i < c->heap.n && !ops; i++) {
                const item *const it = &c->items.at[c->heap.at[i]];
                ops = it->kind != IT_LOAD && class_of_op(p, it->node) != DF_CLASS_leaf;
            }
            if (ops) {
                cone_mark_frontier(p, c);
                break;
            }
        }
        const uint32_t i = heap_pop(c);
        if (!df_vec_push(p->mem, &c->order, i)) return df_fail_mem(p->diag, "fuser", sizeof i);
        expand(p, c, i);
        if (c->failed && c->strict) break;
    }
    if (p->st == DEFT_OK && !c->failed) stages(p, c);
    return p->st;
}

void df_space_of_head(pass *p, uint32_t expr, space *sp, map_id *map)
{
    const df_node *const x = node_of(p, expr);
    const bool reduce = df_op_infos[x->op].cls == DF_CLASS_reduce;
    const uint32_t src = reduce ? x->src[0].i : expr;
    index_map m;
    memset(&m, 0, sizeof m);
    memset(sp, 0, sizeof *sp);
    m.rank = x->rank;
    for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) m.axis[j] = FIXED;
    uint32_t at = 0;
    bool any = false;
    for (uint32_t j = 0; j < node_of(p, src)->rank; j++) {
        const uint32_t cls = df_fuse_cls(p, src, j);
        const bool red = reduce && x->attr >> j & 1;
        const bool skip = cls == CLS_ONE;
        uint32_t loop = 0;
        if (!skip) loop = add_loop(p, sp, cls, red);
        any |= red && !skip;
        if (red && !(x->attr & DF_REDUCE_KEEPDIMS)) continue;
        if (!red && !skip) {
            m.axis[at] = (int8_t)loop;
            m.coef[at] = SLOT_ONE;
        }
        at++;
    }
    if (reduce && !any) add_loop(p, sp, CLS_ONE, true);
    *map = df_map_intern(p, &m);
}

df_slot df_space_rows(pass *p, const space *sp)
{
    df_slot s = SLOT_ONE;
    for (uint32_t i = 0; i < sp->n; i++)
        if (!sp->red[i]) s = df_fuse_mul(p, s, sp->extent[i]);
    return s;
}

df_slot df_space_total(pass *p, const space *sp)
{
    df_slot s = SLOT_ONE;
    for (uint32_t i = 0; i < sp->n; i++) s = df_fuse_mul(p, s, sp->extent[i]);
    return s;
}
