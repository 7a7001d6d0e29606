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
 *
 * Where the function was recorded with other extents as well (df_aot_other), an extent that is the
 * parameter in each of these recordings is that parameter, too. Everything that was found is then
 * compared with them.
 */
#include "aot/extents.h"

#include <stdio.h>
#include <string.h>

#include "ops/shape.h"

/* Larger than extents that programs have, and far apart. */
static const int64_t probes[] = { 1000003, 1300021, 1700021, 2200013,
                                  2900017, 3700001, 4800007, 6200003 };

/* By node and axis: the extent with probes. */
static int64_t *probed_row(const program *p, uint32_t node)
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
    return p->probed ? parameter_of(probed_row(p, node)[axis], p->n_extents) : DF_NONE;
}

/* Names node k of the program in a sentence that has just been written. */
static void name_node(const program *p, df_diag *d, uint32_t k)
{
    if (d && p->from) d->node = p->from[k] + 1;
}

uint32_t extents_find(program *p, uint32_t node, uint32_t axis, int64_t *value)
{
    *value = df_trace_extents(p->t, node)[axis];
    const uint32_t param = program_open_extent(p, node, axis);
    if (param != DF_NONE || !p->probed || probed_row(p, node)[axis] == *value) return param;
    if (p->st == DEFT_OK) {
        p->st = df_fail(p->d, DEFT_E_ARG,
                        "export: axis %u of %%%u (%s) is computed from an open extent, and the "
                        "program needs its number",
                        axis, node, df_op_infos[p->t->nodes[node].op].name);
        name_node(p, p->d, node);
    }
    return DF_NONE;
}

/* ---- the function with other extents ---- */

static int64_t extent_in(const program *p, const df_aot_other *other, uint32_t node, uint32_t axis)
{
    return df_trace_extents(other->t, p->from[node])[axis];
}

/* Whether an extent is the parameter in all recordings. */
static bool is_parameter_in_all(const program *p, uint32_t param, uint32_t node, uint32_t axis)
{
    bool is = p->n_other > 0;
    for (uint32_t i = 0; is && i < p->n_other; i++)
        is = extent_in(p, &p->other[i], node, axis) == p->other[i].extent[param];
    return is;
}

/* Whether an extent is the same number in all recordings. */
static bool has_one_extent(const program *p, uint32_t node, uint32_t axis)
{
    bool is = p->n_other > 0;
    for (uint32_t i = 0; is && i < p->n_other; i++)
        is = extent_in(p, &p->other[i], node, axis) == df_trace_extents(p->t, node)[axis];
    return is;
}

/* Makes open what the recordings show to be open. Inputs are not concerned: their axes are those
 * that the caller named, and those that met one of them. */
static void spread_over_recordings(const program *p)
{
    for (uint32_t k = 0; k < p->t->n_nodes; k++)
        for (uint32_t x = 0; p->t->nodes[k].op != DF_OP_input && x < p->t->nodes[k].rank; x++)
            for (uint32_t i = 0; i < p->n_extents; i++)
                if (is_parameter_in_all(p, i, k, x)) probed_row(p, k)[x] = probes[i];
}

/* Compares what was found with the recordings. */
static deft_status compare_recordings(const program *p)
{
    for (uint32_t k = 0; k < p->t->n_nodes; k++) {
        for (uint32_t x = 0; x < p->t->nodes[k].rank; x++) {
            const int64_t was = df_trace_extents(p->t, k)[x];
            const uint32_t param = parameter_of(probed_row(p, k)[x], p->n_extents);
            if (param == DF_NONE && probed_row(p, k)[x] != was) continue; /* it has no number */
            for (uint32_t i = 0; i < p->n_other; i++) {
                const df_aot_other *const other = &p->other[i];
                const int64_t want = param == DF_NONE ? was : other->extent[param];
                const int64_t is = extent_in(p, other, k, x);
                if (is == want) continue;
                (void)df_fail(p->d, DEFT_E_ARG,
                              "export: axis %u of %%%u (%s) has %lld elements in the recording, "
                              "and %lld with another extent; how it follows is not known",
                              x, k, df_op_infos[p->t->nodes[k].op].name, (long long)was,
                              (long long)is);
                name_node(p, p->d, k);
                return DEFT_E_ARG;
            }
        }
    }
    return DEFT_OK;
}

/* ---- extents that are equal because they met ---- */

/* Sets the extent that slot `to` of the plan is to that of slot `from`, where only the latter is
 * open. Returns whether it did. */
static bool spread_over(const program *p, uint32_t from, uint32_t to)
{
    const df_slot_def *const a = &p->plan->slots[from], *const b = &p->plan->slots[to];
    if (a->op != DF_SLOT_extent || b->op != DF_SLOT_extent) return false;
    const int64_t probe = probed_row(p, a->a)[a->b];
    int64_t *const at = &probed_row(p, b->a)[b->b];
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

/* Axis x of node a and axis y of node b have one extent. Returns whether one of them becomes open
 * because the other one is. */
static bool extents_meet(const program *p, uint32_t a, uint32_t x, uint32_t b, uint32_t y)
{
    int64_t *const at[2] = { &probed_row(p, a)[x], &probed_row(p, b)[y] };
    const int64_t was = df_trace_extents(p->t, a)[x];
    if (was == 1 || was != df_trace_extents(p->t, b)[y]) return false;
    for (int i = 0; i < 2; i++) {
        if (parameter_of(*at[i], p->n_extents) == DF_NONE || *at[!i] != was) continue;
        *at[!i] = *at[i];
        return true;
    }
    return false;
}

/* Lets the last axes of two nodes meet. An extent of 1 is repeated, and meets none. */
static bool meet_from_last(const program *p, uint32_t a, uint32_t b)
{
    const uint32_t rank[2] = { p->t->nodes[a].rank, p->t->nodes[b].rank };
    bool changes = false;
    for (uint32_t i = 1; i <= rank[0] && i <= rank[1]; i++)
        changes |= extents_meet(p, a, rank[0] - i, b, rank[1] - i);
    return changes;
}

/* Whether a slice has all elements along an axis, in the numbers of the trace. */
static bool is_whole_slice(const program *p, uint32_t node, uint32_t x)
{
    const df_node *const n = &p->t->nodes[node];
    return df_trace_extents(p->t, node)[x] == df_trace_extents(p->t, n->src[0].i)[x] &&
           p->t->args[n->arg + 2 * x] == 0 && p->t->args[n->arg + 2 * x + 1] == 1;
}

static bool meet_in_reduction(const program *p, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    const uint32_t from = n->src[0].i;
    bool changes = false;
    for (uint32_t x = 0, y = 0; x < p->t->nodes[from].rank; x++) {
        if (!(n->attr >> x & 1))
            changes |= extents_meet(p, from, x, node, y++);
        else if (n->attr & DF_REDUCE_KEEPDIMS)
            y++;
    }
    return changes;
}

static bool meet_in_product(const program *p, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    const uint32_t a = n->src[0].i, b = n->src[1].i, last = n->rank - 1u;
    bool changes = extents_meet(p, a, last, b, last - 1);
    for (uint32_t x = 0; x < last; x++) changes |= extents_meet(p, a, x, node, x);
    for (uint32_t x = 0; x <= last; x++)
        if (x + 1 != last) changes |= extents_meet(p, b, x, node, x);
    return changes;
}

/* Lets extents meet that are one in every run of the node: an operator needs it. So an extent that
 * the program gave as a number, as in a gradient that was expanded, may be found to be open. */
static bool meet_in(const program *p, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    const uint8_t rule = df_op_infos[n->op].shape_rule;
    const bool is_from_last = rule == DF_SHAPE_same || rule == DF_SHAPE_broadcast ||
                              rule == DF_SHAPE_order || rule == DF_SHAPE_expand ||
                              rule == DF_SHAPE_cond || rule == DF_SHAPE_next ||
                              rule == DF_SHAPE_each || rule == DF_SHAPE_stack;
    bool changes = false;
    for (uint32_t i = 0; is_from_last && i < n->n_src; i++)
        changes |= meet_from_last(p, node, n->src[i].i);
    for (uint32_t x = 0; rule == DF_SHAPE_permute && x < n->rank; x++)
        changes |= extents_meet(p, node, x, n->src[0].i, n->attr >> 4 * x & 15);
    for (uint32_t x = 0; rule == DF_SHAPE_slice && x < n->rank; x++)
        if (is_whole_slice(p, node, x)) changes |= extents_meet(p, node, x, n->src[0].i, x);
    if (rule == DF_SHAPE_reduce) changes |= meet_in_reduction(p, node);
    if (rule == DF_SHAPE_matmul) changes |= meet_in_product(p, node);
    if (rule == DF_SHAPE_update) {
        changes |= meet_from_last(p, node, n->src[0].i);
        changes |= meet_from_last(p, n->src[1].i, n->src[2].i);
    }
    return changes; /* else the shape rules go from the sources to the node alone */
}

static void meet_everywhere(const program *p)
{
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t k = 0; k < p->t->n_nodes; k++) changes |= meet_in(p, k);
        for (uint32_t k = p->t->n_nodes; k-- > 0;) changes |= meet_in(p, k);
    }
}

/* ---- the shape rules ---- */

static void probed_shape(const program *p, uint32_t node, df_shape *s)
{
    s->rank = p->t->nodes[node].rank;
    memcpy(s->dim, probed_row(p, node), s->rank * sizeof *s->dim);
}

static bool is_probed(const program *p, uint32_t node)
{
    for (uint32_t x = 0; x < p->t->nodes[node].rank; x++)
        if (probed_row(p, node)[x] != df_trace_extents(p->t, node)[x]) return true;
    return false;
}

/* Completes the extents of a node that takes them from the program. */
static deft_status complete(const program *p, df_diag *d, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    int64_t *const row = probed_row(p, node);
    if (n->n_src == 0 || !is_probed(p, n->src[0].i)) return DEFT_OK;
    const int64_t *const from = probed_row(p, n->src[0].i);
    const int64_t *const was = df_trace_extents(p->t, n->src[0].i);
    const uint8_t rule = df_op_infos[n->op].shape_rule;
    if (rule == DF_SHAPE_expand) {
        const uint32_t rank = p->t->nodes[n->src[0].i].rank, more = n->rank - rank;
        for (uint32_t x = 0; x < rank; x++)
            if (was[x] != 1) row[more + x] = from[x];
        return DEFT_OK;
    }
    if (rule == DF_SHAPE_slice) {
        for (uint32_t x = 0; x < n->rank; x++) {
            if (from[x] == was[x] || row[x] != df_trace_extents(p->t, node)[x]) continue;
            if (is_whole_slice(p, node, x)) {
                row[x] = from[x];
            } else if (!has_one_extent(p, node, x)) {
                (void)df_fail(d, DEFT_E_ARG,
                              "export: %%%u is a slice of axis %u, whose extent is open; the "
                              "program does not say how the slice follows from it",
                              node, x);
                name_node(p, d, node);
                return DEFT_E_ARG;
            }
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
static deft_status infer(const program *p, df_diag *d, uint32_t node)
{
    const df_node *const n = &p->t->nodes[node];
    df_shape src[3], out;
    if (n->op == DF_OP_input) return DEFT_OK;
    if (df_shape_takes_extents((df_op)n->op)) {
        const deft_status st = complete(p, d, node);
        if (st != DEFT_OK) return st;
    }
    bool any = is_probed(p, node);
    for (uint32_t i = 0; i < n->n_src; i++) {
        probed_shape(p, n->src[i].i, &src[i]);
        any |= is_probed(p, n->src[i].i);
    }
    if (!any) return DEFT_OK;
    probed_shape(p, node, &out);
    df_diag own = { 0 };
    const deft_status st =
        df_shape_infer(&own, (df_op)n->op, n->attr, p->t->args + n->arg, src, n->n_src, &out);
    if (st != DEFT_OK) {
        (void)df_fail(d, DEFT_E_ARG, "export: with an open extent, %%%u does not fit together: %s",
                      node, own.text);
        name_node(p, d, node);
        return DEFT_E_ARG;
    }
    memcpy(probed_row(p, node), out.dim, out.rank * sizeof *out.dim);
    return DEFT_OK;
}

/* Computes the extents of all nodes, and lets them meet, until no extent changes any more. A node
 * that does not fit yet may do so when it has met another one. */
static deft_status infer_all(program *p)
{
    const size_t bytes = (size_t)p->t->n_nodes * DEFT_MAX_RANK * sizeof *p->probed;
    int64_t *const before = df_arena_alloc(&p->arena, bytes ? bytes : 1, sizeof *p->probed);
    if (!before) return df_fail_mem(p->d, "export", bytes);
    do {
        memcpy(before, p->probed, bytes);
        meet_everywhere(p);
        for (uint32_t k = 0; k < p->t->n_nodes; k++) {
            df_diag none = { 0 };
            int64_t was[DEFT_MAX_RANK];
            memcpy(was, probed_row(p, k), sizeof was);
            (void)infer(p, &none, k);
            for (uint32_t x = 0; x < DEFT_MAX_RANK; x++) /* what was found stays */
                if (parameter_of(was[x], p->n_extents) != DF_NONE) probed_row(p, k)[x] = was[x];
        }
    } while (memcmp(before, p->probed, bytes) != 0);
    return DEFT_OK;
}

/* Fails where a node does not fit. */
static deft_status check_all(const program *p)
{
    deft_status st = DEFT_OK;
    for (uint32_t k = 0; k < p->t->n_nodes && st == DEFT_OK; k++) st = infer(p, p->d, k);
    return st;
}

/* Lets the function be recorded with other extents. */
static deft_status run_trials(program *p)
{
    const df_aot_trials *const trials = p->o->trials;
    df_aot_bounds bounds[DF_LEN(probes)] = { { 0, 0 } };
    df_aot_found_axis *const axis =
        df_arena_new(&p->arena, df_aot_found_axis, (size_t)p->t->n_inputs * DEFT_MAX_RANK + 1);
    uint32_t n = 0;
    if (!axis) return df_fail_mem(p->d, "export", p->t->n_inputs * sizeof *axis);
    for (uint32_t i = 0; i < p->t->n_inputs; i++) {
        const uint32_t node = p->t->inputs[i].node;
        for (uint32_t x = 0; x < p->t->nodes[node].rank; x++) {
            const uint32_t param = program_open_extent(p, node, x);
            if (param == DF_NONE) continue;
            axis[n++] = (df_aot_found_axis){ param, p->params.at[param].name, i, x };
        }
    }
    const deft_status st =
        trials->run(trials->user, axis, n, p->n_extents, &p->other, &p->n_other, bounds);
    for (uint32_t i = 0; i < p->n_extents; i++) p->params.at[i].bounds = bounds[i];
    return st;
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
        memcpy(probed_row(p, k), df_trace_extents(p->t, k),
               p->t->nodes[k].rank * sizeof *p->probed);
    for (uint32_t i = 0; i < p->o->n_open; i++) {
        const df_aot_open_axis *const o = &p->o->open[i];
        const df_input *const in = &p->t->inputs[o->input];
        if (!df_strides_contiguous(df_trace_extents(p->t, in->node), in->stride,
                                   p->t->nodes[in->node].rank))
            return df_fail(p->d, DEFT_E_ARG,
                           "export: input %u is not row-major, so no axis of it can be open",
                           o->input);
        probed_row(p, in->node)[o->axis] = probes[parameter_named(p, i)];
    }
    spread_equal(p);
    TRY(infer_all(p));
    if (p->o->trials) {
        TRY(run_trials(p));
        spread_over_recordings(p);
        TRY(infer_all(p));
    }
    TRY(check_all(p));
    TRY(compare_recordings(p));
done:
    return st;
}
