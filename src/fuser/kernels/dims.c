/* SPDX-License-Identifier: Apache-2.0
 *
 * Symbolic dimensions. Each axis of each node belongs to a class. Axes that meet in one operator
 * share a class. So the plan can speak of classes instead of numbers, and serves every run in which
 * the axes that met still agree. Extents that are equal only by chance are never unified. A batch
 * of 64 and a hidden size of 64 are two classes, so the plan also serves a batch of 65.
 *
 * A class begins at an axis whose extent nothing else determines: inputs, leaves, and the results
 * of slice, expand, reshape and diagonal. Unifying two classes costs one `equal` guard between the
 * axes where they began.
 *
 * An axis that is 1 by construction (kept reduced axes, unsqueeze) has class ONE, which meets any
 * class for free. So a batch that happens to be 1 is unified with the batch that it meets. A class
 * becomes ONE only where it must be 1. An axis of extent 1 that meets another extent is such a
 * case, because it is broadcast. Others are a value that is written to a place of one element, and
 * a reshape of one element. That costs an `is_const` guard. No kernel has a loop along such an
 * axis.
 *
 * A slice notes the axes that it takes in full (start 0, step 1, all elements). They keep the class
 * of the operand, under guards. So neighbouring axes can merge through a slice of rows.
 */
#include "fuser/fuse.h"

#include <string.h>

/* The class that represents class c after unification. */
static uint32_t dims_find_class(const pass *p, uint32_t c)
{
    uint32_t *const up = p->cls_parent.at;
    while (up[c] != c) {
        up[c] = up[up[c]];
        c = up[c];
    }
    return c;
}

uint32_t df_fuse_cls(const pass *p, uint32_t node, uint32_t axis)
{
    return dims_find_class(p, p->axis_cls[p->axis0[node] + axis]);
}

static int64_t extent_now(const pass *p, uint32_t node, uint32_t axis)
{
    return df_trace_extents(p->t, node)[axis];
}

/* Begins a class at this axis. After a failure, the lists of classes may differ in length, so that
 * no further class begins. */
static uint32_t dims_begin_class(pass *p, uint32_t node, uint32_t axis)
{
    const uint32_t c = (uint32_t)p->cls_parent.n;
    if (p->st != DEFT_OK) return CLS_ONE;
    if (!df_vec_push(p->mem, &p->cls_parent, c) || !df_vec_push(p->mem, &p->cls_node, node) ||
        !df_vec_push(p->mem, &p->cls_axis, axis)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof c);
        return CLS_ONE;
    }
    return c;
}

/* Unifies two classes. The older one stays, so that classes are named after the axis that came
 * first. */
static uint32_t unify(pass *p, uint32_t a, uint32_t b)
{
    a = dims_find_class(p, a);
    b = dims_find_class(p, b);
    if (a == b) return a;
    if (a > b) {
        const uint32_t x = a;
        a = b;
        b = x;
    }
    p->cls_parent.at[b] = a;
    return a;
}

static int64_t cls_now(const pass *p, uint32_t c)
{
    return c == CLS_ONE ? 1 : extent_now(p, p->cls_node.at[c], p->cls_axis.at[c]);
}

df_slot df_fuse_cls_extent(pass *p, uint32_t c)
{
    c = dims_find_class(p, c);
    return c == CLS_ONE ? SLOT_ONE : df_fuse_node_extent(p, p->cls_node.at[c], p->cls_axis.at[c]);
}

df_slot df_fuse_axis_extent(pass *p, uint32_t node, uint32_t axis)
{
    return df_fuse_cls_extent(p, df_fuse_cls(p, node, axis));
}

static void set_cls(pass *p, uint32_t node, uint32_t axis, uint32_t c)
{
    p->axis_cls[p->axis0[node] + axis] = c;
}

static void guard_one(pass *p, uint32_t c)
{
    df_fuse_guard_slot(p, DF_GUARD_is_const,
                       df_fuse_node_extent(p, p->cls_node.at[c], p->cls_axis.at[c]), 1);
}

/* Lets axes of two classes meet, with broadcasting. Returns the class of the resulting axis. */
static uint32_t meet(pass *p, uint32_t a, uint32_t b)
{
    if (a == b || b == CLS_ONE) return a;
    if (a == CLS_ONE) return b;
    const int64_t x = cls_now(p, a), y = cls_now(p, b);
    if (x == y) return unify(p, a, b);
    df_assert(x == 1 || y == 1 || p->st != DEFT_OK);
    unify(p, CLS_ONE, x == 1 ? a : b);
    return x == 1 ? b : a;
}

static void dims_map(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    for (uint32_t i = 0; i < x->rank; i++) set_cls(p, n, i, CLS_ONE);
    for (uint32_t s = 0; s < x->n_src; s++) {
        const uint32_t src = x->src[s].i, rank = node_of(p, src)->rank;
        for (uint32_t j = 0; j < rank; j++) {
            const uint32_t i = j + x->rank - rank;
            set_cls(p, n, i, meet(p, df_fuse_cls(p, n, i), df_fuse_cls(p, src, j)));
        }
    }
}

static void dims_fresh(pass *p, uint32_t n)
{
    for (uint32_t i = 0; i < node_of(p, n)->rank; i++) set_cls(p, n, i, dims_begin_class(p, n, i));
}

static void dims_same(pass *p, uint32_t n, uint32_t src)
{
    for (uint32_t i = 0; i < node_of(p, n)->rank; i++) set_cls(p, n, i, df_fuse_cls(p, src, i));
}

static void dims_reduce(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i;
    uint32_t at = 0;
    for (uint32_t j = 0; j < node_of(p, src)->rank; j++) {
        const bool reduced = x->attr >> j & 1;
        if (reduced && !(x->attr & DF_REDUCE_KEEPDIMS)) continue;
        set_cls(p, n, at++, reduced ? CLS_ONE : df_fuse_cls(p, src, j));
    }
}

static void dims_slice(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i;
    for (uint32_t i = 0; i < x->rank; i++) {
        const uint32_t start = x->arg + 2 * i, step = start + 1;
        const bool whole = p->t->args[start] == 0 && p->t->args[step] == 1 &&
                           extent_now(p, n, i) == extent_now(p, src, i);
        uint32_t c = dims_begin_class(p, n, i);
        if (p->t->args[step] == 1) {
            p->unit[n] |= (uint8_t)(1u << i);
            df_fuse_guard_slot(p, DF_GUARD_is_const, df_fuse_arg(p, step), 1);
        }
        if (whole) {
            p->full[n] |= (uint8_t)(1u << i);
            df_fuse_guard_slot(p, DF_GUARD_is_const, df_fuse_arg(p, start), 0);
            const uint32_t whose = df_fuse_cls(p, src, i);
            if (whose == CLS_ONE) {
                guard_one(p, c);
                c = CLS_ONE;
            } else {
                c = unify(p, c, whose);
            }
        }
        set_cls(p, n, i, c);
    }
}

static void dims_expand(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i, rank = node_of(p, src)->rank;
    dims_fresh(p, n);
    for (uint32_t j = 0; j < rank; j++) {
        const uint32_t i = j + x->rank - rank;
        set_cls(p, n, i, meet(p, df_fuse_cls(p, n, i), df_fuse_cls(p, src, j)));
    }
}

_Static_assert(DF_N_VIEWS == 7, "a new view needs a case in dims_move, or its own");

static void dims_move(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t src = x->src[0].i, rank = node_of(p, src)->rank;
    uint32_t at = 0;
    switch (x->op) {
    case DF_OP_permute:
        for (uint32_t i = 0; i < rank; i++)
            set_cls(p, n, i, df_fuse_cls(p, src, x->attr >> 4 * i & 15));
        return;
    case DF_OP_squeeze:
        for (uint32_t j = 0; j < rank; j++)
            if (!(x->attr >> j & 1)) set_cls(p, n, at++, df_fuse_cls(p, src, j));
        return;
    case DF_OP_unsqueeze:
        for (uint32_t i = 0; i < x->rank; i++)
            set_cls(p, n, i, x->attr >> i & 1 ? CLS_ONE : df_fuse_cls(p, src, at++));
        return;
    case DF_OP_diagonal:
        for (uint32_t j = 0; j < rank; j++)
            if (j != (x->attr & 15) && j != (x->attr >> 4 & 15))
                set_cls(p, n, at++, df_fuse_cls(p, src, j));
        set_cls(p, n, at, dims_begin_class(p, n, at));
    }
}

static void dims_take(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t a = x->src[0].i, b = x->src[1].i;
    uint32_t at = 0;
    for (uint32_t j = 0; j < node_of(p, a)->rank; j++) {
        if (j != x->attr) {
            set_cls(p, n, at++, df_fuse_cls(p, a, j));
            continue;
        }
        for (uint32_t k = 0; k < node_of(p, b)->rank; k++)
            set_cls(p, n, at++, df_fuse_cls(p, b, k));
    }
}

/* Unifies axes whose extents the shape rule demands to be equal. A class that meets ONE here is 1
 * in every run that the plan serves, and becomes ONE itself. So a value never has a loop that the
 * place it is written to does not have. */
static void must_equal(pass *p, uint32_t a, uint32_t b)
{
    if (a != b) unify(p, a, b);
}

static void dims_matmul(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t a = x->src[0].i, b = x->src[1].i, r = x->rank;
    for (uint32_t i = 0; i + 2 < r; i++) {
        must_equal(p, df_fuse_cls(p, a, i), df_fuse_cls(p, b, i));
        set_cls(p, n, i, df_fuse_cls(p, a, i));
    }
    must_equal(p, df_fuse_cls(p, a, r - 1), df_fuse_cls(p, b, r - 2));
    set_cls(p, n, r - 2, df_fuse_cls(p, a, r - 2));
    set_cls(p, n, r - 1, df_fuse_cls(p, b, r - 1));
}

static void dims_update(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t b = x->src[1].i, c = x->src[2].i;
    for (uint32_t i = 0; i < node_of(p, b)->rank; i++)
        must_equal(p, df_fuse_cls(p, b, i), df_fuse_cls(p, c, i));
    dims_same(p, n, x->src[0].i);
}

static void dims_scatter(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const uint32_t a = x->src[0].i, b = x->src[1].i, c = x->src[2].i, rank = node_of(p, b)->rank;
    const bool slices = df_op_scatters_slices((df_op)x->op);
    for (uint32_t i = 0, first = slices ? x->attr : 0; i < rank; i++)
        must_equal(p, df_fuse_cls(p, c, first + i), df_fuse_cls(p, b, i));
    for (uint32_t i = 0; slices && i < x->rank; i++)
        if (i != x->attr)
            must_equal(p, df_fuse_cls(p, c, i < x->attr ? i : i + rank - 1), df_fuse_cls(p, a, i));
    dims_same(p, n, a);
}

static void dims_of(pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    switch ((df_shape_rule)df_op_infos[x->op].shape_rule) {
    case DF_SHAPE_given:
    case DF_SHAPE_reshape: dims_fresh(p, n); return;
    case DF_SHAPE_same:
    case DF_SHAPE_order: dims_same(p, n, x->src[0].i); return;
    case DF_SHAPE_broadcast: dims_map(p, n); return;
    case DF_SHAPE_reduce: dims_reduce(p, n); return;
    case DF_SHAPE_slice: dims_slice(p, n); return;
    case DF_SHAPE_expand: dims_expand(p, n); return;
    case DF_SHAPE_permute:
    case DF_SHAPE_squeeze:
    case DF_SHAPE_unsqueeze:
    case DF_SHAPE_diagonal: dims_move(p, n); return;
    case DF_SHAPE_matmul: dims_matmul(p, n); return;
    case DF_SHAPE_take: dims_take(p, n); return;
    case DF_SHAPE_gather: dims_same(p, n, x->src[1].i); return;
    case DF_SHAPE_update: dims_update(p, n); return;
    case DF_SHAPE_scatter_add:
    case DF_SHAPE_index_add: dims_scatter(p, n); return;
    case DF_SHAPE_one: /* control: in no trace that comes here (outline.c) */
    case DF_SHAPE_each:
    case DF_SHAPE_next:
    case DF_SHAPE_stack:
    case DF_SHAPE_cond: break;
    }
    df_unreachable();
}

/* A root has the shape of the memory that it is written to or reuses: an assignment has broadcast
 * the value to it. */
static void dims_root(pass *p, const df_root *r)
{
    const uint32_t input = r->kind == DF_ROOT_INTO ? r->into : r->donor;
    if (input == DF_NONE) return;
    const uint32_t n = p->t->inputs[input].node, rank = node_of(p, n)->rank;
    bool equal = rank == node_of(p, r->node)->rank;
    for (uint32_t i = 0; i < rank && equal; i++)
        equal = extent_now(p, n, i) == extent_now(p, r->node, i);
    for (uint32_t i = 0; i < rank && equal; i++)
        must_equal(p, df_fuse_cls(p, r->node, i), df_fuse_cls(p, n, i));
}

static bool all_one(const pass *p, uint32_t n)
{
    for (uint32_t i = 0; i < node_of(p, n)->rank; i++)
        if (df_fuse_cls(p, n, i) != CLS_ONE) return false;
    return true;
}

/* A reshape of one element has one element: both sides get class ONE. This comes last, since axes
 * may become ONE at any time, and is repeated until nothing changes. */
static void dims_reshapes(pass *p)
{
    for (bool again = true; again;) {
        again = false;
        for (uint32_t n = 0; n < p->t->n_nodes; n++) {
            if (!p->live[n] || node_of(p, n)->op != DF_OP_reshape) continue;
            const uint32_t src = node_of(p, n)->src[0].i;
            const bool one = all_one(p, n);
            if (one == all_one(p, src)) continue;
            const uint32_t to = one ? src : n;
            for (uint32_t i = 0; i < node_of(p, to)->rank; i++)
                unify(p, CLS_ONE, df_fuse_cls(p, to, i));
            again = true;
        }
    }
}

static deft_status dims_allocate(pass *p)
{
    const uint32_t n = p->t->n_nodes;
    p->axis0 = df_arena_alloc(&p->tmp, sizeof *p->axis0 * (n + 1), _Alignof(uint32_t));
    p->full = df_arena_new(&p->tmp, uint8_t, n + 1);
    p->unit = df_arena_new(&p->tmp, uint8_t, n + 1);
    p->in_stride = df_arena_new(&p->tmp, df_slot, (p->t->n_inputs + 1) * DEFT_MAX_RANK);
    p->in_seen = df_arena_new(&p->tmp, uint8_t, p->t->n_inputs + 1);
    if (!p->axis0 || !p->full || !p->unit || !p->in_stride || !p->in_seen)
        return df_fail_mem(p->diag, "fuser", n * sizeof *p->axis0);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        p->axis0[i] = at;
        at += p->t->nodes[i].rank;
    }
    p->axis_cls = df_arena_new(&p->tmp, uint32_t, at + 1);
    return p->axis_cls ? DEFT_OK : df_fail_mem(p->diag, "fuser", at * sizeof(uint32_t));
}

deft_status df_fuse_dims(pass *p)
{
    deft_status st = dims_allocate(p);
    if (st != DEFT_OK) return st;
    dims_begin_class(p, 0, 0); /* class ONE */
    for (uint32_t n = 0; n < p->t->n_nodes && p->st == DEFT_OK; n++)
        if (p->live[n]) dims_of(p, n);
    for (uint32_t r = 0; r < p->t->n_roots && p->st == DEFT_OK; r++) dims_root(p, &p->t->roots[r]);
    if (p->st != DEFT_OK) return p->st;
    dims_reshapes(p);
    for (uint32_t c = CLS_ONE + 1; c < p->cls_parent.n; c++) {
        if (dims_find_class(p, c) == CLS_ONE)
            guard_one(p, c);
        else if (dims_find_class(p, c) != c)
            df_fuse_guard_slots(p, DF_GUARD_equal,
                                df_fuse_node_extent(p, p->cls_node.at[c], p->cls_axis.at[c]),
                                df_fuse_cls_extent(p, c));
    }
    return p->st;
}

/* ---- derived extents and strides ---- */

df_slot df_fuse_numel(pass *p, uint32_t node)
{
    df_slot s = SLOT_ONE;
    for (uint32_t i = 0; i < node_of(p, node)->rank; i++)
        s = df_fuse_mul(p, s, df_fuse_axis_extent(p, node, i));
    return s;
}

void df_fuse_contiguous(pass *p, uint32_t node, df_slot stride[DEFT_MAX_RANK])
{
    df_slot s = SLOT_ONE;
    for (uint32_t i = node_of(p, node)->rank; i-- > 0;) {
        stride[i] = s;
        s = df_fuse_mul(p, s, df_fuse_axis_extent(p, node, i));
    }
}

/* The strides of an input that is not contiguous. Guards fix an innermost stride of 1, and each
 * stride that exactly spans the next axis inside it. The other strides stay numbers of the run. */
static void strided(pass *p, uint32_t input, df_slot *stride)
{
    const df_input *const in = &p->t->inputs[input];
    uint32_t inner = DF_NONE; /* the nearest axis inside that is not structurally 1 */
    for (uint32_t i = node_of(p, in->node)->rank; i-- > 0;) {
        if (df_fuse_cls(p, in->node, i) == CLS_ONE) continue;
        const df_slot given = df_fuse_stride(p, input, i);
        stride[i] = given;
        if (inner == DF_NONE && in->stride[i] == 1) {
            df_fuse_guard_input(p, DF_GUARD_unit, input, i, 1);
            stride[i] = SLOT_ONE;
        } else if (inner != DF_NONE) {
            const df_slot span =
                df_fuse_mul(p, stride[inner], df_fuse_axis_extent(p, in->node, inner));
            if (p->st == DEFT_OK && !df_same_slot(span, SLOT_ZERO) &&
                p->now.at[span.i] == in->stride[i]) {
                df_fuse_guard_slots(p, DF_GUARD_equal, given, span);
                stride[i] = span;
            }
        }
        inner = i;
    }
}

const df_slot *df_fuse_input_strides(pass *p, uint32_t input)
{
    df_slot *const stride = p->in_stride + input * DEFT_MAX_RANK;
    if (p->in_seen[input]) return stride;
    p->in_seen[input] = 1;
    if (p->t->inputs[input].flags & DF_INPUT_CONTIGUOUS) {
        df_fuse_guard_input(p, DF_GUARD_contiguous, input, 0, 1);
        df_fuse_contiguous(p, p->t->inputs[input].node, stride);
    } else {
        strided(p, input, stride);
    }
    return stride;
}
