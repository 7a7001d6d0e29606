/* SPDX-License-Identifier: Apache-2.0
 *
 * See shrink.h. Each edit copies the trace record by record through a builder, which checks them,
 * and then leaves out what no root needs.
 */
#include "shrink.h"

#include <string.h>

#include "ops/shape.h"
#include "trace/control.h"

typedef struct copy {
    const df_trace *t;
    df_builder b;
    df_ref *to;      /* per node of t: what stands for it */
    uint32_t *input; /* per input of t: its ordinal in the copy, or DF_NONE */
} copy;

static df_shape shape_of(const df_trace *t, uint32_t k)
{
    df_shape s = { .rank = t->nodes[k].rank };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = df_trace_extents(t, k)[i];
    return s;
}

static deft_status copy_init(copy *c, df_diag *d, const df_trace *t, df_arena *arena)
{
    *c = (copy){ .t = t };
    const deft_status st = df_build_init(&c->b, arena, d);
    if (st != DEFT_OK) return st;
    c->b.t->flags = t->flags;
    c->b.t->opaques = t->opaques;
    c->b.t->max_temporary_bytes = t->max_temporary_bytes;
    c->to = df_arena_new(arena, df_ref, t->n_nodes);
    c->input = df_arena_new(arena, uint32_t, t->n_inputs);
    if (!c->to || !c->input) return df_fail_mem(d, "trace", t->n_nodes * sizeof *c->to);
    for (uint32_t i = 0; i < t->n_inputs; i++) c->input[i] = DF_NONE;
    for (uint32_t k = 0; k < t->n_nodes; k++) c->to[k] = DF_NO_REF;
    return DEFT_OK;
}

static void copy_input(copy *c, uint32_t k, const df_shape *s)
{
    const uint32_t ordinal = c->t->nodes[k].attr;
    const df_input *const in = &c->t->inputs[ordinal];
    const bool dense = (in->flags & DF_INPUT_CONTIGUOUS) != 0;
    c->input[ordinal] = c->b.t->n_inputs;
    c->to[k] =
        df_build_input(&c->b, (deft_dtype)c->t->nodes[k].dtype, s, dense ? NULL : in->stride);
    if (c->b.st == DEFT_OK)
        c->b.t->inputs[c->input[ordinal]].flags |= in->flags & ~(uint32_t)DF_INPUT_CONTIGUOUS;
}

static uint32_t n_args_of(const df_trace *t, uint32_t k)
{
    const df_node *const n = &t->nodes[k];
    return df_op_n_args((df_op)n->op, n->n_src ? t->nodes[n->src[0].i].rank : n->rank);
}

/* Record k over the copies src of its operands. */
static void copy_op(copy *c, uint32_t k, const df_ref *src, const int64_t *args, const df_shape *s)
{
    const df_node *const n = &c->t->nodes[k];
    for (uint32_t i = 0; i < n->n_src; i++) {
        if (src[i].i != DF_NONE || c->b.st != DEFT_OK) continue;
        c->b.st = df_fail(c->b.diag, DEFT_E_FORMAT, "%%%u: an operand is gone", k);
    }
    c->to[k] = df_build_op(&c->b, (df_op)n->op, (deft_dtype)n->dtype, n->attr, src, n->n_src, args,
                           n_args_of(c->t, k), s);
}

static void copy_root(copy *c, const df_root *r, df_ref node)
{
    const uint32_t donor = r->donor == DF_NONE ? DF_NONE : c->input[r->donor];
    const uint32_t into = r->into == DF_NONE ? DF_NONE : c->input[r->into];
    df_build_root(&c->b, node, into == DF_NONE ? DF_ROOT_NEW : DF_ROOT_INTO, into, donor);
}

/* ---- what no root needs ---- */

static bool *needed(const df_trace *t, df_arena *arena)
{
    bool *const need = df_arena_new(arena, bool, t->n_nodes);
    if (!need) return NULL;
    for (uint32_t r = 0; r < t->n_roots; r++) {
        need[t->roots[r].node] = true;
        if (t->roots[r].into != DF_NONE) need[t->inputs[t->roots[r].into].node] = true;
        if (t->roots[r].donor != DF_NONE) need[t->inputs[t->roots[r].donor].node] = true;
    }
    for (uint32_t k = t->n_nodes; k-- > 0;)
        for (uint32_t i = 0; need[k] && i < t->nodes[k].n_src; i++)
            need[t->nodes[k].src[i].i] = true;
    return need;
}

static deft_status drop_unused(df_diag *d, const df_trace *t, df_arena *arena, df_trace **out)
{
    deft_status st = DEFT_OK;
    copy c;
    const bool *const need = needed(t, arena);
    if (!need) TRY(df_fail_mem(d, "trace", t->n_nodes));
    TRY(copy_init(&c, d, t, arena));
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_node *const n = &t->nodes[k];
        const df_shape s = shape_of(t, k);
        df_ref src[3];
        if (!need[k]) continue;
        for (uint32_t i = 0; i < n->n_src; i++) src[i] = c.to[n->src[i].i];
        if (n->op == DF_OP_input)
            copy_input(&c, k, &s);
        else
            copy_op(&c, k, src, t->args + n->arg, &s);
    }
    for (uint32_t r = 0; r < t->n_roots; r++) copy_root(&c, &t->roots[r], c.to[t->roots[r].node]);
    TRY(c.b.st);
    TRY(df_trace_verify(d, c.b.t));
    *out = c.b.t;
done:
    return st;
}

/* ---- fewer nodes ---- */

/* The loop that a control node other than cond belongs to; DF_NONE for every other node. */
static uint32_t loop_of(const df_trace *t, uint32_t k)
{
    while (t->nodes[k].op != DF_OP_loop) {
        if (df_op_infos[t->nodes[k].op].cls != DF_CLASS_control || t->nodes[k].op == DF_OP_cond)
            return DF_NONE;
        k = t->nodes[k].op == DF_OP_final ? t->nodes[k].src[0].i : df_control_before(t, k);
    }
    return k;
}

/* Takes back from live what makes no loop any more. loop: per node. */
static void keep_loops_whole(const df_trace *t, const uint32_t *loop, bool *live)
{
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_node *const n = &t->nodes[k];
        if (loop[k] == DF_NONE) continue;
        live[k] &= live[loop[k]];
        if (n->op == DF_OP_next || n->op == DF_OP_final) live[k] &= live[n->src[0].i];
    }
    /* A state without its next is none. */
    for (uint32_t k = t->n_nodes; k-- > 0;) {
        const df_node *const n = &t->nodes[k];
        if (n->op == DF_OP_next && !live[k]) live[n->src[0].i] = false;
    }
}

/* The operands of k in the copy. tail: per loop of t, the end of its list so far. */
static void operands(copy *c, uint32_t k, const uint32_t *read, const uint32_t *loop,
                     const df_ref *tail, const bool *live, df_ref src[3])
{
    const df_node *const n = &c->t->nodes[k];
    for (uint32_t i = 0; i < n->n_src; i++) src[i] = c->to[read[n->src[i].i]];
    if (loop[k] == DF_NONE) return;
    if (n->op == DF_OP_loop) {
        const uint32_t outer = n->src[0].i;
        if (c->t->nodes[outer].op == DF_OP_loop && !live[outer])
            src[0] = df_build_op(&c->b, DF_OP_cst, DEFT_I64, 0, NULL, 0, NULL, 0, NULL);
    } else if (n->op != DF_OP_carry && n->op != DF_OP_each) {
        src[n->n_src - 1] = tail[loop[k]];
    }
}

/* Outputs: those that stay, then all that is computed, outside of loops, and not read. */
static deft_status cut_roots(copy *c, df_diag *d, const shrink_keep *keep, const bool *live)
{
    const df_trace *const t = c->t, *const made = c->b.t;
    df_control control = { 0 };
    bool *const used = df_arena_new(made->arena, bool, (size_t)made->n_nodes + 1);
    if (!used) return df_fail_mem(d, "trace", made->n_nodes);
    for (uint32_t k = 0; k < made->n_nodes; k++)
        for (uint32_t i = 0; i < made->nodes[k].n_src; i++) used[made->nodes[k].src[i].i] = true;
    const deft_status st = df_control_find(d, made, made->arena, &control);
    if (st != DEFT_OK) return st;
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t k = keep->read[t->roots[r].node];
        if (!keep->root[r] || !live[k]) continue;
        copy_root(c, &t->roots[r], c->to[k]);
        used[c->to[k].i] = true;
    }
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_ref at = c->to[k];
        if (!live[k] || t->nodes[k].n_src == 0 || used[at.i]) continue;
        if (keep->read[k] != k || control.inside[at.i] != DF_NONE) continue;
        df_build_root(&c->b, at, DF_ROOT_NEW, DF_NONE, DF_NONE);
    }
    return c->b.st;
}

deft_status shrink_cut(df_diag *d, const df_trace *t, const shrink_keep *keep, df_arena *arena,
                       df_trace **out)
{
    deft_status st = DEFT_OK;
    copy c;
    bool *const live = df_arena_new(arena, bool, t->n_nodes);
    uint32_t *const loop = df_arena_new(arena, uint32_t, t->n_nodes);
    df_ref *const tail = df_arena_new(arena, df_ref, t->n_nodes);
    if (!live || !loop || !tail) TRY(df_fail_mem(d, "trace", t->n_nodes * sizeof *tail));
    TRY(copy_init(&c, d, t, arena));
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        live[k] = keep->node[k] || t->nodes[k].n_src == 0;
        loop[k] = loop_of(t, k);
    }
    keep_loops_whole(t, loop, live);
    for (uint32_t k = 0; k < t->n_nodes && c.b.st == DEFT_OK; k++) {
        const df_node *const n = &t->nodes[k];
        const df_shape s = shape_of(t, k);
        df_ref src[3];
        if (n->op == DF_OP_input) {
            copy_input(&c, k, &s);
        } else if (!live[k]) {
            c.to[k] = df_build_input(&c.b, (deft_dtype)n->dtype, &s, NULL);
        } else {
            operands(&c, k, keep->read, loop, tail, live, src);
            copy_op(&c, k, src, t->args + n->arg, &s);
        }
        if (live[k] && loop[k] != DF_NONE && n->op != DF_OP_carry && n->op != DF_OP_each &&
            n->op != DF_OP_final)
            tail[loop[k]] = c.to[k];
    }
    TRY(c.b.st);
    TRY(cut_roots(&c, d, keep, live));
    TRY(drop_unused(d, c.b.t, arena, out));
done:
    return st;
}

/* ---- shorter axes ---- */

typedef struct resize {
    copy c;
    int64_t from, to;
    bool margins;
} resize;

static int64_t resized(const resize *r, int64_t extent)
{
    return extent == r->from ? r->to : extent;
}

/* One axis of a slice: n elements from *start of what has now m instead of `had`. */
static int64_t sliced(const resize *r, int64_t n, int64_t had, int64_t m, int64_t *start,
                      int64_t step)
{
    if (n == 0 || m == 0) {
        *start = 0;
        return n;
    }
    if (r->margins && m != had) {
        const int64_t last = *start + (n - 1) * step;
        if (step < 0) *start += m - had;
        const int64_t end = step < 0 ? last : last + m - had;
        return (end - *start) / step + 1;
    }
    if (m == had && resized(r, n) == n) return n;
    n = resized(r, n);
    if (*start + (n - 1) * step >= m || *start + (n - 1) * step < 0 || *start >= m)
        *start = step < 0 ? m - 1 : 0;
    return n;
}

/* The extents of a reshape of as many elements: one axis that changes takes what is left. */
static bool reshaped(const resize *r, int64_t numel, df_shape *s)
{
    for (uint32_t free = 0; free <= s->rank; free++) {
        int64_t rest = numel;
        bool fits = true;
        df_shape x = *s;
        for (uint32_t i = 0; i < s->rank && fits; i++) {
            if (i == free) continue;
            x.dim[i] = resized(r, s->dim[i]);
            fits = x.dim[i] > 0 && rest % x.dim[i] == 0;
            if (fits) rest /= x.dim[i];
        }
        if (fits && free < s->rank) x.dim[free] = rest;
        if (!fits || (free == s->rank && rest != 1)) continue;
        *s = x;
        return true;
    }
    return false;
}

static int64_t diagonal_length(const df_shape *a, uint32_t attr, int64_t offset)
{
    const int64_t rows = a->dim[attr & 15] - (offset < 0 ? -offset : 0);
    const int64_t columns = a->dim[attr >> 4 & 15] - (offset > 0 ? offset : 0);
    const int64_t n = rows < columns ? rows : columns;
    return n > 0 ? n : 0;
}

/* The extents and arguments of k, whose operand is now x. false: none are known. */
static bool extents_of(const resize *r, uint32_t k, const df_shape *x, df_shape *s, int64_t *args)
{
    const df_trace *const t = r->c.t;
    const df_node *const n = &t->nodes[k];
    const df_shape had = n->n_src ? shape_of(t, n->src[0].i) : (df_shape){ .rank = 0 };
    int64_t numel = 0;
    if (n->n_src && x->rank != had.rank) return false;
    switch (df_op_infos[n->op].shape_rule) {
    case DF_SHAPE_slice:
        for (uint32_t i = 0; i < s->rank; i++)
            s->dim[i] = sliced(r, s->dim[i], had.dim[i], x->dim[i], &args[2 * i], args[2 * i + 1]);
        return true;
    case DF_SHAPE_expand:
        for (uint32_t i = 0; i < s->rank; i++) {
            const uint32_t skip = s->rank - x->rank;
            const bool given = i < skip || had.dim[i - skip] == 1;
            s->dim[i] = given ? resized(r, s->dim[i]) : x->dim[i - skip];
        }
        return true;
    case DF_SHAPE_reshape: return df_shape_numel(x, &numel) && reshaped(r, numel, s);
    case DF_SHAPE_diagonal:
        for (uint32_t i = 0, at = 0; i < x->rank; i++)
            if (i != (n->attr & 15) && i != (n->attr >> 4 & 15)) s->dim[at++] = x->dim[i];
        s->dim[s->rank - 1] = diagonal_length(x, n->attr, args[0]);
        return true;
    case DF_SHAPE_stack:
        for (uint32_t i = 1; i < s->rank; i++) s->dim[i] = x->dim[i - 1];
        s->dim[0] = resized(r, s->dim[0]);
        return true;
    case DF_SHAPE_given:
        for (uint32_t i = 0; i < s->rank; i++) s->dim[i] = resized(r, s->dim[i]);
        return true;
    default: return false;
    }
}

static void resize_node(resize *r, uint32_t k)
{
    const df_trace *const t = r->c.t;
    const df_node *const n = &t->nodes[k];
    df_shape s = shape_of(t, k), x = { .rank = 0 };
    int64_t args[2 * DEFT_MAX_RANK];
    df_ref src[3];
    for (uint32_t i = 0; i < n->n_src; i++) src[i] = r->c.to[n->src[i].i];
    if (n->n_src) x = shape_of(r->c.b.t, src[0].i);
    const uint32_t n_args = n_args_of(t, k);
    if (n_args) memcpy(args, t->args + n->arg, n_args * sizeof *args);
    if (n->op == DF_OP_loop) args[0] = resized(r, args[0]);
    const bool is_known = extents_of(r, k, &x, &s, args);
    if (n->op == DF_OP_input)
        copy_input(&r->c, k, &s);
    else
        copy_op(&r->c, k, src, args, is_known ? &s : NULL);
}

deft_status shrink_extents(df_diag *d, const df_trace *t, int64_t from, int64_t to, bool margins,
                           df_arena *arena, df_trace **out)
{
    deft_status st = DEFT_OK;
    resize r = { .from = from, .to = to, .margins = margins };
    TRY(copy_init(&r.c, d, t, arena));
    for (uint32_t k = 0; k < t->n_nodes && r.c.b.st == DEFT_OK; k++) resize_node(&r, k);
    TRY(r.c.b.st);
    for (uint32_t i = 0; i < t->n_roots; i++)
        copy_root(&r.c, &t->roots[i], r.c.to[t->roots[i].node]);
    TRY(r.c.b.st);
    TRY(drop_unused(d, r.c.b.t, arena, out));
done:
    return st;
}
