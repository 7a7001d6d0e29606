/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace has numbers as extents. When some axes of inputs are open, other extents follow from
 * them: those that the shape rules compute, and those that met one of them in an operator. The plan
 * guards that the latter are equal, so its guards say which they are.
 *
 * Every parameter stands for a large prime number, its *probe*, while the shape rules compute the
 * extents of all nodes again. An extent that is a probe afterwards is that parameter. An extent
 * that is as it was does not depend on a parameter. Any other one follows from parameters in a way
 * of its own.
 */
#include "aot/extents.h"

#include <stdio.h>
#include <string.h>

#include "ops/shape.h"

/* Larger than extents that programs have, and far apart. */
static const int64_t probes[] = { 1000003, 1300021, 1700021, 2200013,
                                  2900017, 3700001, 4800007, 6200003 };

/* By node and axis: the extent with probes. */
static int64_t *row_of(const program *p, uint32_t node)
{
    return p->probed + (size_t)node * DEFT_MAX_RANK;
}

static uint32_t parameter_of(int64_t probe, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (probes[i] == probe) return i;
    return DF_NONE;
}

uint32_t program_open_extent(const program *p, uint32_t node, uint32_t axis)
{
    return p->probed ? parameter_of(row_of(p, node)[axis], p->n_extents) : DF_NONE;
}

uint32_t extents_find(program *p, uint32_t node, uint32_t axis, int64_t *value)
{
    *value = df_trace_extents(p->t, node)[axis];
    const uint32_t param = program_open_extent(p, node, axis);
    if (param != DF_NONE || !p->probed || row_of(p, node)[axis] == *value) return param;
    if (p->st == DEFT_OK)
        p->st = df_fail(p->d, DEFT_E_ARG,
                        "export: axis %u of %%%u (%s) is computed from an open extent, and the "
                        "program needs its number",
                        axis, node, df_op_infos[p->t->nodes[node].op].name);
    return DF_NONE;
}

/* ---- extents that are equal because they met ---- */

/* Sets the extent that slot `to` of the plan is to that of slot `from`, where only the latter is
 * open. Returns whether it did. */
static bool spread_over(const program *p, uint32_t from, uint32_t to)
{
    const df_slot_def *const a = &p->plan->slots[from], *const b = &p->plan->slots[to];
    if (a->op != DF_SLOT_extent || b->op != DF_SLOT_extent) return false;
    const int64_t probe = row_of(p, a->a)[a->b];
    int64_t *const at = &row_of(p, b->a)[b->b];
    if (parameter_of(probe, p->n_extents) == DF_NONE || *at == probe) return false;
    if (parameter_of(*at, p->n_extents) != DF_NONE) return false; /* the guard stays a condition */
    *at = probe;
    return true;
}

static void spread_equal(const program *p)
{
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t i = 0; i < p->plan->n_guards; i++) {
            const df_guard *const g = &p->plan->guards[i];
            if (g->kind != DF_GUARD_equal) continue;
            changes |= spread_over(p, g->a, g->b);
            changes |= spread_over(p, g->b, g->a);
        }
    }
}

/* ---- the shape rules ---- */

static void probed_shape(const program *p, uint32_t node, df_shape *s)
{
    s->rank = p->t->nodes[node].rank;
    memcpy(s->dim, row_of(p, node), s->rank * sizeof *s->dim);
}

static bool is_probed(const program *p, uint32_t node)
{
    for (uint32_t x = 0; x < p->t->nodes[node].rank; x++)
        if (row_of(p, node)[x] != df_trace_extents(p->t, node)[x]) return true;
    return false;
}

/* Completes the extents of a node that takes them from the program. */
static deft_status complete(const program *p, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    int64_t *const row = row_of(p, node);
    if (n->n_src == 0 || !is_probed(p, n->src[0].i)) return DEFT_OK;
    const int64_t *const from = row_of(p, n->src[0].i);
    const int64_t *const was = df_trace_extents(p->t, n->src[0].i);
    const uint8_t rule = df_op_infos[n->op].shape_rule;
    if (rule == DF_SHAPE_expand) {
        for (uint32_t x = 0; x < n->rank; x++)
            if (was[x] != 1) row[x] = from[x];
        return DEFT_OK;
    }
    if (rule == DF_SHAPE_slice) {
        for (uint32_t x = 0; x < n->rank; x++) {
            if (from[x] == was[x] || row[x] != df_trace_extents(p->t, node)[x]) continue;
            const int64_t start = p->t->args[n->arg + 2 * x], step = p->t->args[n->arg + 2 * x + 1];
            const bool is_whole = row[x] == was[x] && start == 0 && step == 1;
            if (is_whole) row[x] = from[x];
            if (!is_whole)
                return df_fail(p->d, DEFT_E_ARG,
                               "export: %%%u is a slice of axis %u, whose extent is open; the "
                               "program does not say how the slice follows from it",
                               node, x);
        }
        return DEFT_OK;
    }
    if (rule != DF_SHAPE_reshape) return DEFT_OK;
    /* Extents in the order of the elements: equal ones are kept, and one may be left over. */
    int64_t given = 1, all = 1, missing = -1;
    for (uint32_t x = 0; x < p->t->nodes[n->src[0].i].rank; x++) all *= from[x];
    for (uint32_t x = 0; x < n->rank; x++) {
        if (row[x] == df_trace_extents(p->t, node)[x] && x < p->t->nodes[n->src[0].i].rank &&
            row[x] == was[x])
            row[x] = from[x];
        given *= row[x];
    }
    if (given == all) return DEFT_OK;
    for (uint32_t x = 0; x < n->rank && missing < 0; x++) {
        const int64_t others = row[x] ? given / row[x] : 0;
        if (others > 0 && all % others == 0 && row[x] == df_trace_extents(p->t, node)[x]) {
            row[x] = all / others;
            missing = x;
        }
    }
    return DEFT_OK;
}

/* Computes the extents of a node. */
static deft_status infer(const program *p, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    df_shape src[3], out;
    if (n->op == DF_OP_input) return DEFT_OK;
    if (df_shape_takes_extents((df_op)n->op)) {
        const deft_status st = complete(p, node);
        if (st != DEFT_OK) return st;
    }
    bool any = is_probed(p, node);
    for (uint32_t i = 0; i < n->n_src; i++) {
        probed_shape(p, n->src[i].i, &src[i]);
        any |= is_probed(p, n->src[i].i);
    }
    if (!any) return DEFT_OK;
    probed_shape(p, node, &out);
    df_diag d = { 0 };
    const deft_status st =
        df_shape_infer(&d, (df_op)n->op, n->attr, p->t->args + n->arg, src, n->n_src, &out);
    if (st != DEFT_OK)
        return df_fail(p->d, DEFT_E_ARG,
                       "export: with an open extent, %%%u does not fit together: %s", node, d.text);
    memcpy(row_of(p, node), out.dim, out.rank * sizeof *out.dim);
    return DEFT_OK;
}

/* ---- exported ---- */

static uint32_t parameter_named(const program *p, uint32_t open)
{
    char own[16];
    const char *name = p->o->open[open].name;
    (void)snprintf(own, sizeof own, "n%u", open);
    if (!name) name = own;
    for (uint32_t i = 0; i + 1 < p->n_extents; i++)
        if (strcmp(p->params.at[i].name, name) == 0) return i;
    return p->n_extents - 1;
}

deft_status extents_spread(program *p)
{
    deft_status st = DEFT_OK;
    if (p->n_extents == 0) return DEFT_OK;
    if (p->n_extents > DF_LEN(probes))
        return df_fail(p->d, DEFT_E_ARG, "export: at most %zu extents can be open", DF_LEN(probes));
    p->probed = df_arena_new(&p->arena, int64_t, (size_t)p->t->n_nodes * DEFT_MAX_RANK);
    if (!p->probed) return df_fail_mem(p->d, "export", p->t->n_nodes * sizeof *p->probed);
    for (uint32_t k = 0; k < p->t->n_nodes; k++)
        memcpy(row_of(p, k), df_trace_extents(p->t, k), p->t->nodes[k].rank * sizeof *p->probed);
    for (uint32_t i = 0; i < p->o->n_open; i++) {
        const df_aot_open_axis *const o = &p->o->open[i];
        const df_input *const in = &p->t->inputs[o->input];
        if (!df_strides_contiguous(df_trace_extents(p->t, in->node), in->stride,
                                   p->t->nodes[in->node].rank))
            return df_fail(p->d, DEFT_E_ARG,
                           "export: input %u is not row-major, so no axis of it can be open",
                           o->input);
        row_of(p, in->node)[o->axis] = probes[parameter_named(p, i)];
    }
    spread_equal(p);
    for (uint32_t k = 0; k < p->t->n_nodes; k++) TRY(infer(p, k));
done:
    return st;
}
