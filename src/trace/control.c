/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds which loop contains each node: the innermost loop that contains any of its operands. One
 * walk over the nodes in their order suffices, since the operands of a node are below the node.
 */
#include "trace/control.h"

#include <inttypes.h>

typedef struct finder {
    df_diag *d;
    const df_trace *t;
    df_control *c;
    uint32_t *loop_of; /* per loop, carry, proceed, next, stack: index of its loop; else DF_NONE */
    uint8_t *followed; /* per node: another node follows in the list; for a carry: it has a next */
} finder;

bool df_has_control(const df_trace *t)
{
    for (uint32_t k = 0; k < t->n_nodes; k++)
        if (df_op_infos[t->nodes[k].op].cls == DF_CLASS_control) return true;
    return false;
}

bool df_control_is_within(const df_control *c, uint32_t in, uint32_t of)
{
    if (of == DF_NONE) return true;
    while (in != DF_NONE && in != of) in = c->loops[in].parent;
    return in == of;
}

static deft_status fail(const finder *f, uint32_t k, const char *what)
{
    return df_fail(f->d, DEFT_E_FORMAT, "%%%" PRIu32 ": %s: %s", k,
                   df_op_infos[f->t->nodes[k].op].name, what);
}

static uint32_t src(const finder *f, uint32_t k, uint32_t i)
{
    return f->t->nodes[k].src[i].i;
}

/* The index of the loop that is operand i of k; DF_NONE when that operand is no loop. */
static uint32_t loop_operand(const finder *f, uint32_t k, uint32_t i)
{
    const uint32_t s = src(f, k, i);
    return f->t->nodes[s].op == DF_OP_loop ? f->loop_of[s] : DF_NONE;
}

/* Finds the innermost loop that contains any of the first n operands of k. */
static deft_status join(finder *f, uint32_t k, uint32_t n, uint32_t *out)
{
    uint32_t in = DF_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = f->c->inside[src(f, k, i)];
        if (df_control_is_within(f->c, s, in))
            in = s;
        else if (!df_control_is_within(f->c, in, s))
            return fail(f, k, "depends on two loops that are not part of one another");
    }
    *out = in;
    return DEFT_OK;
}

static deft_status see_loop(finder *f, uint32_t k)
{
    df_control *const c = f->c;
    const uint32_t i = c->n_loops++, parent = loop_operand(f, k, 0);
    df_loop_info *const l = &c->loops[i];
    if (parent == DF_NONE && c->inside[src(f, k, 0)] != DF_NONE)
        return fail(f, k, "the operand is part of a loop without being it");
    *l = (df_loop_info){ .node = k, .parent = parent, .end = k, .proceed = DF_NONE };
    l->depth = parent == DF_NONE ? 0 : c->loops[parent].depth + 1;
    if (l->depth >= DF_MAX_NESTING)
        return df_fail(f->d, DEFT_E_LIMIT, "%%%" PRIu32 ": loop: nested more than %d deep", k,
                       DF_MAX_NESTING);
    f->loop_of[k] = c->inside[k] = i;
    return DEFT_OK;
}

/* Checks a carry or an each: its first operand must be computed before the loop begins. */
static deft_status see_entry(finder *f, uint32_t k)
{
    df_control *const c = f->c;
    const df_trace *const t = f->t;
    const uint32_t i = loop_operand(f, k, 1);
    if (i == DF_NONE) return fail(f, k, "the last operand is no loop");
    if (!df_control_is_within(c, c->loops[i].parent, c->inside[src(f, k, 0)]))
        return fail(f, k, "the first operand is not there before the loop");
    if (t->nodes[k].op == DF_OP_each &&
        df_trace_extents(t, src(f, k, 0))[0] != t->args[t->nodes[c->loops[i].node].arg])
        return fail(f, k, "there are not as many rows as iterations");
    if (t->nodes[k].op == DF_OP_carry) f->loop_of[k] = i;
    c->inside[k] = i;
    return DEFT_OK;
}

/* Checks a proceed, next or stack: k comes after its last operand in the list of the loop. */
static deft_status see_list(finder *f, uint32_t k)
{
    df_control *const c = f->c;
    const df_trace *const t = f->t;
    const df_node *const n = &t->nodes[k];
    const uint32_t last = df_control_before(t, k), i = f->loop_of[last];
    uint32_t in = DF_NONE;
    if (i == DF_NONE || t->nodes[last].op == DF_OP_carry)
        return fail(f, k, "the last operand is neither a loop nor in a loop's list");
    df_loop_info *const l = &c->loops[i];
    if (f->followed[last]) return fail(f, k, "the list has two ends");
    deft_status st = join(f, k, n->n_src, &in);
    if (st != DEFT_OK) return st;
    if (in != i) return fail(f, k, "an operand is part of another loop");
    if (n->op == DF_OP_proceed) {
        if (last != l->node) return fail(f, k, "is not the first in its loop's list");
        l->proceed = k;
    }
    if (n->op == DF_OP_next) {
        const uint32_t state = src(f, k, 0);
        if (t->nodes[state].op != DF_OP_carry || f->loop_of[state] != i)
            return fail(f, k, "the first operand is no state of the loop");
        if (f->followed[state]) return fail(f, k, "the state has a next already");
        f->followed[state] = 1;
        l->n_states++;
    }
    if (n->op == DF_OP_stack) {
        if (l->proceed != DF_NONE)
            return fail(f, k, "a loop that may end early has no known number of rows");
        if (df_trace_extents(t, k)[0] != t->args[t->nodes[l->node].arg])
            return fail(f, k, "there are not as many rows as iterations");
        l->n_rows++;
    }
    f->followed[last] = 1;
    f->loop_of[k] = c->inside[k] = i;
    l->end = k;
    return DEFT_OK;
}

static deft_status see_final(finder *f, uint32_t k)
{
    const uint32_t what = src(f, k, 0), end = src(f, k, 1), i = f->loop_of[what];
    const uint8_t op = f->t->nodes[what].op;
    if (i == DF_NONE || (op != DF_OP_next && op != DF_OP_stack))
        return fail(f, k, "the first operand is neither next nor stack");
    if (f->c->loops[i].end != end) return fail(f, k, "the last operand is not the list's end");
    f->c->inside[k] = f->c->loops[i].parent;
    return DEFT_OK;
}

static deft_status see(finder *f, uint32_t k)
{
    const df_node *const n = &f->t->nodes[k];
    switch (n->op) {
    case DF_OP_loop: return see_loop(f, k);
    case DF_OP_carry:
    case DF_OP_each: return see_entry(f, k);
    case DF_OP_proceed:
    case DF_OP_next:
    case DF_OP_stack: return see_list(f, k);
    case DF_OP_final: return see_final(f, k);
    }
    f->c->n_conds += n->op == DF_OP_cond;
    return join(f, k, n->n_src, &f->c->inside[k]);
}

/* The checks that are possible only after all nodes were seen. */
static deft_status see_whole(const finder *f)
{
    const df_trace *const t = f->t;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        if (t->nodes[k].op == DF_OP_carry && !f->followed[k])
            return fail(f, k, "the state has no next");
        if (t->nodes[k].op == DF_OP_final &&
            f->c->loops[f->loop_of[src(f, k, 0)]].end != src(f, k, 1))
            return fail(f, k, "the list goes on after its end");
    }
    for (uint32_t r = 0; r < t->n_roots; r++)
        if (f->c->inside[t->roots[r].node] != DF_NONE)
            return fail(f, t->roots[r].node, "is part of a loop, of which final alone is seen");
    return DEFT_OK;
}

static bool fill_list(const df_trace *t, df_arena *arena, df_loop_info *l)
{
    uint32_t state = l->n_states, row = l->n_states + l->n_rows;
    l->list = df_arena_new(arena, uint32_t, row);
    for (uint32_t k = l->end; l->list && k != l->node; k = df_control_before(t, k)) {
        if (t->nodes[k].op == DF_OP_next) l->list[--state] = k;
        if (t->nodes[k].op == DF_OP_stack) l->list[--row] = k;
    }
    return l->list != NULL;
}

deft_status df_control_find(df_diag *d, const df_trace *t, df_arena *arena, df_control *out)
{
    deft_status st = DEFT_OK;
    uint32_t n_loops = 0;
    finder f = { .d = d, .t = t, .c = out };
    for (uint32_t k = 0; k < t->n_nodes; k++) n_loops += t->nodes[k].op == DF_OP_loop;
    const size_t size = (size_t)t->n_nodes * sizeof *out->inside;
    *out = (df_control){ .loops = df_arena_new(arena, df_loop_info, (size_t)n_loops + 1) };
    out->inside = df_arena_alloc(arena, size, _Alignof(uint32_t));
    f.loop_of = df_arena_alloc(arena, size, _Alignof(uint32_t));
    f.followed = df_arena_new(arena, uint8_t, (size_t)t->n_nodes + 1);
    if (!out->loops || !out->inside || !f.loop_of || !f.followed)
        return df_fail_mem(d, "trace", size);
    for (uint32_t k = 0; k < t->n_nodes; k++) out->inside[k] = f.loop_of[k] = DF_NONE;
    for (uint32_t k = 0; k < t->n_nodes; k++) TRY(see(&f, k));
    TRY(see_whole(&f));
    for (uint32_t l = 0; l < out->n_loops; l++)
        if (!fill_list(t, arena, &out->loops[l])) TRY(df_fail_mem(d, "trace", size));
done:
    return st;
}
