/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace with loops or branches becomes a plan of parts (plan.h). Per level of nesting:
 *
 *   level     what depends on no loop's or branch's result is computed in run part 0, what depends
 *             on results of units (loops, groups of branches) after run part k in part k + 1. Units
 *             of level k stand between run parts k and k + 1.
 *   home      then everything moves down to just before its first reader, so that it fuses with it
 *             and holds no memory before; or into a branch, when nobody else reads it: what only
 *             the other branch needs is not computed.
 *   parts     from the last to the first, so that it is known of each what others read of it. A
 *             part's trace is what its roots need; what has its home elsewhere is an input. Leaves
 *             and views have no home: each part has its own.
 *   plans     each trace is fused by itself, loops and branches within it in the same way.
 *
 * size: one pass, whose steps share its state.
 */
#include "fuser/outline.h"

#include <string.h>

deft_status df_outline_no_memory(const outline *o)
{
    return df_fail_mem(o->p->diag, "fuser", o->t->n_nodes * sizeof(uint32_t));
}

/* ---- what a node is ---- */

static const df_node *at(const outline *o, uint32_t n)
{
    return &o->t->nodes[n];
}

/* The outermost loop n is part of, DF_NONE: none. */
uint32_t df_outline_top_of(const outline *o, uint32_t n)
{
    const uint32_t in = o->c.inside[n];
    return in == DF_NONE ? DF_NONE : o->top[in];
}

/* The outermost loop whose result n is; DF_NONE: of none. */
static uint32_t ended_loop(const outline *o, uint32_t n)
{
    if (at(o, n)->op != DF_OP_final || o->c.inside[n] != DF_NONE) return DF_NONE;
    return o->top[o->c.inside[at(o, n)->src[1].i]];
}

static bool is_outer_cond(const outline *o, uint32_t n)
{
    return at(o, n)->op == DF_OP_cond && o->c.inside[n] == DF_NONE;
}

/* Costs nothing, or no more than reading it would. */
static bool is_free(const outline *o, uint32_t n)
{
    const uint8_t cls = df_op_infos[at(o, n)->op].cls, op = at(o, n)->op;
    return cls == DF_CLASS_view ||
           (cls == DF_CLASS_leaf && op != DF_OP_input && op != DF_OP_random);
}

/* ---- levels ---- */

static void raise(uint32_t *to, uint32_t level)
{
    if (level > *to) *to = level;
}

/* Conds one after the other that ask the same are one group: what several of them need is then
 * still needed by one branch alone. Returns the node after the group that begins at n. */
static uint32_t group_end(const outline *o, uint32_t n)
{
    uint32_t end = n + 1;
    for (; end < o->t->n_nodes && is_outer_cond(o, end); end++) {
        if (at(o, end)->src[0].i != at(o, n)->src[0].i) break;
        bool apart = true;
        for (uint32_t s = 1; s < 3; s++) apart &= at(o, end)->src[s].i < n;
        if (!apart) break;
    }
    return end;
}

static void find_levels(outline *o)
{
    const df_trace *const t = o->t;
    for (uint32_t n = 0; n < t->n_nodes; n++) {
        const uint32_t loop = df_outline_top_of(o, n), ended = ended_loop(o, n);
        uint32_t level = 0;
        if (!o->live[n]) continue;
        for (uint32_t s = 0; s < at(o, n)->n_src; s++) {
            const uint32_t src = at(o, n)->src[s].i;
            if (df_outline_top_of(o, src) == DF_NONE) raise(&level, o->level[src]);
        }
        if (loop != DF_NONE)
            raise(&o->loop_level[loop], level);
        else if (ended != DF_NONE)
            o->level[n] = o->loop_level[ended] + 1;
        else
            o->level[n] = level;
        raise(&o->n_levels, o->level[n] + 1);
        if (!is_outer_cond(o, n) || o->group[n] != DF_NONE) continue;
        const uint32_t end = group_end(o, n);
        for (uint32_t m = n; m < end; m++)
            for (uint32_t s = 0; s < 3; s++) raise(&level, o->level[at(o, m)->src[s].i]);
        for (uint32_t m = n; m < end; m++) {
            o->group[m] = n;
            o->level[m] = level + 1;
        }
        raise(&o->n_levels, level + 2);
        n = end - 1;
    }
}

/* ---- homes ---- */

static where in_run(uint32_t level)
{
    return (where){ IN_RUN, level, 0 };
}

/* The level of the run part before what is at w. */
static uint32_t level_of(const outline *o, where w)
{
    return w.kind == IN_SIDE ? o->level[w.at] - 1 : w.at;
}

static bool same_where(where a, where b)
{
    return a.kind == b.kind && a.at == b.at && a.side == b.side;
}

static void demand(const outline *o, where *to, where w)
{
    if (to->kind == NOWHERE) {
        *to = w;
    } else if (!same_where(*to, w)) {
        const uint32_t a = level_of(o, *to), b = level_of(o, w);
        *to = in_run(a < b ? a : b);
    }
}

static void demand_sources(outline *o, uint32_t n, where w)
{
    for (uint32_t s = 0; s < at(o, n)->n_src; s++) {
        const uint32_t src = at(o, n)->src[s].i;
        if (df_outline_top_of(o, src) == DF_NONE) demand(o, &o->home[src], w);
    }
}

static void demand_group(outline *o, uint32_t first, uint32_t last)
{
    where home = { NOWHERE, 0, 0 };
    for (uint32_t n = first; n <= last; n++)
        if (o->live[n]) demand(o, &home, o->home[n]);
    for (uint32_t n = first; n <= last; n++) {
        if (!o->live[n]) continue;
        o->home[n] = home;
        if (home.kind == IN_SIDE) {
            demand_sources(o, n, home);
            continue;
        }
        demand(o, &o->home[at(o, n)->src[0].i], in_run(o->level[first] - 1));
        for (uint32_t s = 1; s < 3; s++)
            demand(o, &o->home[at(o, n)->src[s].i], (where){ IN_SIDE, first, s - 1 });
    }
}

static void find_homes(outline *o)
{
    const df_trace *const t = o->t;
    for (uint32_t r = 0; r < t->n_roots; r++)
        demand(o, &o->home[t->roots[r].node], in_run(o->level[t->roots[r].node]));
    for (uint32_t n = t->n_nodes; n-- > 0;) {
        const uint32_t loop = df_outline_top_of(o, n), ended = ended_loop(o, n);
        if (is_outer_cond(o, n)) {
            const uint32_t first = o->group[n];
            if (first == DF_NONE) continue; /* dead, as is its group */
            demand_group(o, first, n);
            n = first;
        } else if (!o->live[n]) {
            continue;
        } else if (loop != DF_NONE) {
            const where h = o->loop_home[loop];
            demand_sources(o, n, h.kind == IN_SIDE ? h : in_run(o->loop_level[loop]));
        } else if (ended != DF_NONE) {
            demand(o, &o->loop_home[ended], o->home[n]);
        } else {
            demand_sources(o, n, o->home[n]);
        }
    }
}

/* ---- cells ---- */

/* What is stored for n: a loop's result is stored once, however many nodes name it. */
static uint32_t stored(const outline *o, uint32_t n)
{
    return at(o, n)->op == DF_OP_final ? at(o, n)->src[0].i : n;
}

static df_slot bytes_of(const outline *o, uint32_t n, uint32_t from_axis)
{
    df_slot bytes = df_fuse_const(o->p, (int64_t)deft_dtype_size((deft_dtype)at(o, n)->dtype));
    for (uint32_t j = from_axis; j < at(o, n)->rank; j++)
        bytes = df_fuse_mul(o->p, bytes, df_fuse_node_extent(o->p, n, j));
    return bytes;
}

/* One number needs no kernel to store it. */
static void see_number(const outline *o, uint32_t n, df_cell *cell)
{
    while (at(o, n)->op == DF_OP_expand && at(o, at(o, n)->src[0].i)->rank == 0)
        n = at(o, n)->src[0].i;
    if (at(o, n)->op == DF_OP_num) {
        cell->kind = DF_CELL_ARG;
        cell->from = at(o, n)->arg;
    } else if (at(o, n)->op == DF_OP_cst) {
        cell->kind = DF_CELL_CONST;
        cell->bits = df_body_bits((deft_dtype)at(o, n)->dtype, at(o, n)->attr);
    }
}

deft_status df_outline_need_cell(outline *o, uint32_t n, uint32_t *out)
{
    pass *const p = o->p;
    const uint32_t key = stored(o, n);
    if (o->cell[key] == DF_NONE) {
        df_cell cell = { .kind = DF_CELL_PART,
                         .last = (uint32_t)o->parts.n,
                         .bytes = bytes_of(o, n, 0) };
        if (at(o, n)->op == DF_OP_input) {
            const uint32_t k = at(o, n)->attr;
            if (o->t->inputs[k].flags & DF_INPUT_CONTIGUOUS) {
                df_fuse_guard(p, DF_GUARD_contiguous, k, 0, 1);
                cell.kind = DF_CELL_INPUT;
                cell.from = k;
            }
        } else if (at(o, n)->rank == 0) {
            see_number(o, n, &cell);
        }
        o->cell[key] = (uint32_t)o->cells.n;
        if (!df_vec_push(p->mem, &o->cells, cell) || !df_vec_push(p->mem, &o->makers, n))
            return df_outline_no_memory(o);
    }
    *out = o->cell[key];
    return p->st;
}

/* ---- cutting a trace out ---- */

static bool is_part_of(const outline *o, uint32_t n, where w)
{
    const uint32_t loop = df_outline_top_of(o, n);
    if (w.kind == IN_LOOP) return loop == w.at;
    if (loop != DF_NONE) return w.kind == IN_SIDE && same_where(o->loop_home[loop], w);
    if (w.kind == IN_RUN && (ended_loop(o, n) != DF_NONE || is_outer_cond(o, n))) return false;
    const uint32_t ended = ended_loop(o, n);
    return same_where(ended == DF_NONE ? o->home[n] : o->loop_home[ended], w);
}

/* carry, each and loop of the loop whose iteration is cut out. */
static bool is_entry(const outline *o, uint32_t n, where w)
{
    const uint8_t op = at(o, n)->op;
    if (w.kind != IN_LOOP || o->c.inside[n] != w.at) return false;
    return op == DF_OP_carry || op == DF_OP_each || op == DF_OP_loop;
}

static bool is_inside(const outline *o, uint32_t n, where w)
{
    if (at(o, n)->op == DF_OP_input || is_entry(o, n, w)) return false;
    return is_part_of(o, n, w) || (df_outline_top_of(o, n) == DF_NONE && is_free(o, n));
}

/* Marks what the roots need within w. */
static void mark(outline *o, where w, uint32_t high)
{
    for (uint32_t n = high + 1; n-- > 0;) {
        if (!(o->need[n] & NEED_VALUE) || !is_inside(o, n, w)) continue;
        for (uint32_t s = 0; s < at(o, n)->n_src; s++)
            o->need[at(o, n)->src[s].i] |= at(o, n)->op == DF_OP_count ? NEED_EXTENTS : NEED_VALUE;
    }
}

/* The number of carry n among the states of its loop. */
static uint32_t state_of(const outline *o, uint32_t n)
{
    const df_loop_info *const l = &o->c.loops[o->c.inside[n]];
    uint32_t k = 0;
    while (at(o, l->list[k])->src[0].i != n) k++;
    return k;
}

static deft_status port_of(outline *o, uint32_t n, where w, df_port *port)
{
    const df_node *const x = at(o, n);
    *port = (df_port){ .kind = DF_PORT_CELL };
    if (!(o->need[n] & NEED_VALUE)) {
        port->kind = DF_PORT_EXTENTS;
    } else if (x->op == DF_OP_input) {
        *port = (df_port){ .kind = DF_PORT_INPUT, .index = x->attr };
    } else if (is_entry(o, n, w) && x->op == DF_OP_loop) {
        port->kind = DF_PORT_NUMBER;
    } else if (is_entry(o, n, w) && x->op == DF_OP_carry) {
        *port = (df_port){ .kind = DF_PORT_STATE, .index = state_of(o, n) };
    } else if (is_entry(o, n, w)) {
        *port = (df_port){ .kind = DF_PORT_ROW, .row_bytes = bytes_of(o, n, 0) };
        return df_outline_need_cell(o, x->src[0].i, &port->index);
    } else {
        return df_outline_need_cell(o, n, &port->index);
    }
    return o->p->st;
}

/* What is read through a port, as an input of the trace cut out. */
static df_input input_of(const outline *o, uint32_t n, const df_port *port, uint32_t node)
{
    df_input in = { .node = node, .flags = DF_INPUT_CONTIGUOUS };
    int64_t step = 1;
    if (port->kind == DF_PORT_INPUT) {
        in = o->t->inputs[port->index];
        in.node = node;
        in.flags &= ~(uint32_t)DF_INPUT_SOLE;
        return in;
    }
    if (port->kind == DF_PORT_STATE) in.flags |= DF_INPUT_SOLE;
    for (uint32_t j = at(o, n)->rank; j-- > 0;) {
        const int64_t extent = df_trace_extents(o->t, n)[j];
        in.stride[j] = step;
        step *= extent ? extent : 1;
    }
    in.bytes = df_trace_numel(o->t, n) * (int64_t)deft_dtype_size((deft_dtype)at(o, n)->dtype);
    return in;
}

deft_status df_outline_begin_cut(outline *o, uint32_t n_nodes, uint32_t n_roots, cut_trace *cut)
{
    df_arena *const arena = &o->p->plan->arena, *const tmp = &o->p->tmp;
    df_trace *const t = &cut->t;
    const size_t words = n_nodes * sizeof(uint32_t);
    o->ports.n = 0;
    *t = *o->t;
    t->arena = tmp;
    t->n_nodes = t->n_inputs = 0;
    t->n_roots = n_roots;
    t->nodes = df_arena_alloc(arena, n_nodes * sizeof *t->nodes, _Alignof(df_node));
    t->roots = df_arena_new(arena, df_root, n_roots);
    t->shape = df_arena_alloc(tmp, words, _Alignof(uint32_t));
    t->inputs = df_arena_new(tmp, df_input, n_nodes);
    if (t->site) t->site = df_arena_alloc(tmp, n_nodes * sizeof *t->site, _Alignof(uintptr_t));
    cut->from = df_arena_alloc(tmp, words, _Alignof(uint32_t));
    cut->input = df_arena_alloc(tmp, words, _Alignof(uint32_t));
    return t->nodes && t->roots && t->shape && t->inputs && cut->from && cut->input &&
                   (t->site || !o->t->site)
               ? DEFT_OK
               : df_outline_no_memory(o);
}

uint32_t df_outline_append(const outline *o, cut_trace *cut, uint32_t n, df_node x)
{
    df_trace *const t = &cut->t;
    const uint32_t k = t->n_nodes++;
    t->nodes[k] = x;
    t->shape[k] = o->t->shape[n];
    if (t->site) t->site[k] = o->t->site[n];
    cut->from[k] = n;
    return k;
}

static uint32_t add_node(const outline *o, cut_trace *cut, uint32_t n)
{
    df_node x = *at(o, n);
    for (uint32_t s = 0; s < x.n_src; s++) x.src[s].i = o->at[x.src[s].i];
    return df_outline_append(o, cut, n, x);
}

deft_status df_outline_add_port(outline *o, cut_trace *cut, uint32_t n, const df_port *port,
                                uint32_t *out)
{
    const uint32_t i = cut->t.n_inputs++;
    const df_node x = { .op = DF_OP_input,
                        .dtype = at(o, n)->dtype,
                        .rank = at(o, n)->rank,
                        .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                        .attr = i };
    *out = df_outline_append(o, cut, n, x);
    cut->input[i] = port->kind == DF_PORT_INPUT ? port->index : DF_NONE;
    cut->t.inputs[i] = input_of(o, n, port, *out);
    return df_vec_push(o->p->mem, &o->ports, *port) ? DEFT_OK : df_outline_no_memory(o);
}

static deft_status fuse_cut(outline *o, const cut_trace *cut, df_subplan *out)
{
    deft_status st = DEFT_OK;
    pass *const p = o->p;
    df_plan *plan = NULL;
    df_assert_slow(df_trace_verify(NULL, &cut->t) % DEFT_E_MEMORY == 0);
    TRY(df_fuse(p->diag, &cut->t, p->lim, p->mem, &plan));
    TRY(df_outline_take_plan(o, cut, plan, out));
done:
    return st;
}

deft_status df_outline_take_plan(outline *o, const cut_trace *cut, df_plan *plan, df_subplan *out)
{
    deft_status st = DEFT_OK;
    pass *const p = o->p;
    df_plan_translate(plan, cut->from, cut->input);
    *out = (df_subplan){ .plan = plan, .trace = cut->t };
    out->trace.shape = NULL;
    out->trace.site = NULL;
    out->trace.inputs = NULL;
    out->trace.extents = out->trace.args = NULL;
    out->port = df_arena_copy(&p->plan->arena, o->ports.at, o->ports.n * sizeof *o->ports.at, 8);
    if (!out->port) TRY(df_outline_no_memory(o));
    TRY(df_fuse_splice(p, plan, &out->slot0));
done:
    return st;
}

/* A trace whose roots are the nodes in o->roots, as far as it is in w, and its plan. */
static deft_status cut_out(outline *o, where w, df_subplan *out)
{
    deft_status st = DEFT_OK;
    uint32_t high = 0, n_nodes = 0;
    cut_trace cut;
    memset(o->need, 0, o->t->n_nodes);
    for (size_t r = 0; r < o->roots.n; r++) {
        o->need[o->roots.at[r]] = NEED_VALUE;
        raise(&high, o->roots.at[r]);
    }
    mark(o, w, high);
    for (uint32_t n = 0; n <= high; n++) n_nodes += o->need[n] != 0;
    TRY(df_outline_begin_cut(o, n_nodes, (uint32_t)o->roots.n, &cut));
    for (uint32_t n = 0; n <= high; n++) {
        df_port port;
        if (!o->need[n]) continue;
        if ((o->need[n] & NEED_VALUE) && is_inside(o, n, w)) {
            o->at[n] = add_node(o, &cut, n);
        } else {
            TRY(port_of(o, n, w, &port));
            TRY(df_outline_add_port(o, &cut, n, &port, &o->at[n]));
        }
    }
    for (size_t r = 0; r < o->roots.n; r++) {
        df_root *const root = &cut.t.roots[r];
        *root = (df_root){ .node = o->at[o->roots.at[r]], .into = DF_NONE, .donor = DF_NONE };
        for (uint32_t i = 0; i < cut.t.n_inputs; i++)
            if (o->ports.at[i].kind == DF_PORT_STATE && o->ports.at[i].index == r) root->donor = i;
    }
    TRY(fuse_cut(o, &cut, out));
done:
    return st;
}

/* ---- parts ---- */

static deft_status push_part(outline *o, df_part part, const uint32_t *out, size_t n_out)
{
    part.out = df_arena_copy(&o->p->plan->arena, out, n_out * sizeof *out, _Alignof(uint32_t));
    part.n_out = (uint32_t)n_out;
    if (!part.out || !df_vec_push(o->p->mem, &o->parts, part)) return df_outline_no_memory(o);
    return o->p->st;
}

/* A part that fails half-made owns plans which no list knows yet. */
static deft_status drop_part(const outline *o, df_part *part, deft_status st)
{
    df_plan_destroy(&part->body.plan, o->p->mem);
    df_plan_destroy(&part->other.plan, o->p->mem);
    return st;
}

static deft_status add_root(outline *o, uint32_t n)
{
    return df_vec_push(o->p->mem, &o->roots, n) ? DEFT_OK : df_outline_no_memory(o);
}

/* What later parts read of run part `level`; inputs that must lie contiguous are copied first of
 * all. */
static deft_status make_run(outline *o, uint32_t level)
{
    deft_status st = DEFT_OK;
    df_part part = { .kind = DF_PART_RUN, .cond = DF_NONE, .node = DF_NONE };
    DF_VEC(uint32_t) out = { 0 };
    o->roots.n = 0;
    for (uint32_t c = 0; c < o->cells.n; c++) {
        const uint32_t n = o->makers.at[c];
        const bool copy = at(o, n)->op == DF_OP_input;
        if (o->cells.at[c].kind != DF_CELL_PART) continue;
        if (copy ? level != 0 : !is_part_of(o, n, in_run(level))) continue;
        if (!df_vec_push(o->p->mem, &out, c)) TRY(df_outline_no_memory(o));
        TRY(add_root(o, n));
    }
    if (out.n == 0) goto done;
    TRY(cut_out(o, in_run(level), &part.body));
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

static deft_status make_cond(outline *o, uint32_t first)
{
    deft_status st = DEFT_OK;
    df_part part = { .kind = DF_PART_COND, .node = first };
    DF_VEC(uint32_t) out = { 0 };
    for (uint32_t side = 0; side < 2; side++) {
        o->roots.n = 0;
        for (uint32_t n = first; n < o->t->n_nodes && o->group[n] == first; n++) {
            if (!o->live[n] || o->cell[n] == DF_NONE) continue;
            TRY(add_root(o, at(o, n)->src[1 + side].i));
            if (side == 0 && !df_vec_push(o->p->mem, &out, o->cell[n]))
                TRY(df_outline_no_memory(o));
        }
        TRY(cut_out(o, (where){ IN_SIDE, first, side }, side ? &part.other : &part.body));
    }
    TRY(df_outline_need_cell(o, at(o, first)->src[0].i, &part.cond));
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

/* One iteration by itself: what it makes of each state, and each row. */
static deft_status cut_iteration(outline *o, uint32_t loop, df_part *part)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    df_slot *const row_bytes = df_arena_new(&o->p->plan->arena, df_slot, l->n_rows);
    if (!row_bytes) TRY(df_outline_no_memory(o));
    o->roots.n = 0;
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++) {
        const bool is_state = k < l->n_states;
        TRY(add_root(o, at(o, l->list[k])->src[is_state].i));
        if (!is_state) row_bytes[k - l->n_states] = bytes_of(o, l->list[k], 1);
    }
    TRY(cut_out(o, (where){ IN_LOOP, loop, 0 }, &part->body));
    part->row_bytes = row_bytes;
done:
    return st;
}

static deft_status find_starts(outline *o, const df_loop_info *l, df_part *part)
{
    deft_status st = DEFT_OK;
    uint32_t *const init = df_arena_new(&o->p->plan->arena, uint32_t, l->n_states);
    if (!init) TRY(df_outline_no_memory(o));
    for (uint32_t k = 0; k < l->n_states; k++) {
        const uint32_t state = at(o, l->list[k])->src[0].i;
        TRY(df_outline_need_cell(o, at(o, state)->src[0].i, &init[k]));
    }
    part->init = init;
    part->n_states = l->n_states;
done:
    return st;
}

/* Iterations between two looks at whether to stop, of a loop without a bound. */
enum { WHOLE_MOST = 1 << 20, WHOLE_CHUNK = 1 << 16 };
#define ENDLESS ((int64_t)1 << 62)

/* A loop that may run for ever is asked between chunks of iterations whether it goes on, so that it
 * can be interrupted; one that has a bound in between, which must hold exactly, at each one. What
 * the kernel makes is in o->roots. */
static deft_status make_whole(outline *o, uint32_t loop, df_part *part)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    const int64_t most = o->t->args[at(o, l->node)->arg];
    const bool open = l->proceed != DF_NONE && most > WHOLE_MOST;
    if (!o->p->fuse || (open && most < ENDLESS)) return DEFT_OK;
    o->roots.n = 0;
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++)
        if (open || o->cell[l->list[k]] != DF_NONE) TRY(add_root(o, l->list[k]));
    const whole w = { loop, open ? WHOLE_CHUNK : 0 };
    TRY(df_outline_whole(o, &w, &part->body));
    if (!part->body.plan) return DEFT_OK;
    if (l->proceed != DF_NONE)
        df_fuse_guard(o->p, open ? DF_GUARD_at_least : DF_GUARD_at_most, part->most, 0,
                      open ? ENDLESS : WHOLE_MOST);
    if (!open) part->kind = DF_PART_RUN;
done:
    return st;
}

static deft_status make_loop(outline *o, uint32_t loop)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    df_part part = { .kind = DF_PART_LOOP, .cond = DF_NONE, .node = l->node };
    DF_VEC(uint32_t) out = { 0 };
    part.most = df_fuse_arg(o->p, at(o, l->node)->arg);
    TRY(make_whole(o, loop, &part));
    if (!part.body.plan) TRY(cut_iteration(o, loop, &part));
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++) {
        const uint32_t cell = o->cell[l->list[k]];
        if (part.kind == DF_PART_RUN && cell == DF_NONE) continue;
        if (!df_vec_push(o->p->mem, &out, cell)) TRY(df_outline_no_memory(o));
    }
    if (part.kind == DF_PART_LOOP) {
        TRY(find_starts(o, l, &part));
        if (l->proceed != DF_NONE) {
            o->roots.n = 0;
            TRY(add_root(o, at(o, l->proceed)->src[0].i));
            TRY(cut_out(o, (where){ IN_LOOP, loop, 0 }, &part.other));
        }
    }
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

/* Units between run parts `level` and level + 1, the last first. */
static deft_status make_units(outline *o, uint32_t level)
{
    deft_status st = DEFT_OK;
    for (uint32_t n = o->t->n_nodes; n-- > 0;) {
        if (!o->live[n]) continue;
        const uint32_t loop = df_outline_top_of(o, n);
        if (is_outer_cond(o, n) && o->group[n] == n && o->home[n].kind == IN_RUN &&
            o->level[n] == level + 1)
            TRY(make_cond(o, n));
        if (loop != DF_NONE && o->c.loops[loop].node == n && o->loop_level[loop] == level &&
            o->loop_home[loop].kind == IN_RUN)
            TRY(make_loop(o, loop));
    }
done:
    return st;
}

/* Roots that are the caller's memory: written when all else has succeeded. */
static deft_status make_store(outline *o)
{
    deft_status st = DEFT_OK;
    const df_trace *const t = o->t;
    df_part part = { .kind = DF_PART_RUN, .cond = DF_NONE, .node = DF_NONE, .stores = true };
    cut_trace cut;
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->n_roots; r++) n += t->roots[r].kind == DF_ROOT_INTO;
    if (n == 0) return DEFT_OK;
    TRY(df_outline_begin_cut(o, 2 * n, n, &cut));
    uint32_t *const out = df_arena_alloc(&o->p->tmp, n * sizeof *out, _Alignof(uint32_t));
    if (!out) TRY(df_outline_no_memory(o));
    n = 0;
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const df_root *const root = &t->roots[r];
        const df_port into = { .kind = DF_PORT_INPUT, .index = root->into };
        df_port from = { .kind = DF_PORT_CELL };
        uint32_t at_into;
        if (root->kind != DF_ROOT_INTO) continue;
        df_root *const made = &cut.t.roots[n];
        *made = (df_root){ .kind = DF_ROOT_INTO, .into = cut.t.n_inputs + 1, .donor = DF_NONE };
        TRY(df_outline_need_cell(o, root->node, &from.index));
        TRY(df_outline_add_port(o, &cut, root->node, &from, &made->node));
        TRY(df_outline_add_port(o, &cut, t->inputs[root->into].node, &into, &at_into));
        out[n++] = DF_NONE;
    }
    TRY(fuse_cut(o, &cut, &part.body));
    TRY(push_part(o, part, out, n));
done:
    return st == DEFT_OK ? st : drop_part(o, &part, st);
}

static deft_status make_parts(outline *o)
{
    deft_status st = DEFT_OK;
    df_plan *const plan = o->p->plan;
    const df_trace *const t = o->t;
    plan->root_cell = df_arena_new(&plan->arena, uint32_t, t->n_roots);
    if (!plan->root_cell) TRY(df_outline_no_memory(o));
    /* Before there is any part: what is handed out is needed until the end. */
    for (uint32_t r = 0; r < t->n_roots; r++) {
        plan->root_cell[r] = DF_NONE;
        if (t->roots[r].kind == DF_ROOT_NEW)
            TRY(df_outline_need_cell(o, t->roots[r].node, &plan->root_cell[r]));
    }
    TRY(make_store(o));
    for (uint32_t level = o->n_levels; level-- > 0;) {
        TRY(make_units(o, level));
        TRY(make_run(o, level));
    }
done:
    return st;
}

/* ---- the whole ---- */

static deft_status begin(outline *o)
{
    deft_status st = DEFT_OK;
    pass *const p = o->p;
    const df_trace *const t = o->t;
    df_arena *const a = &p->tmp;
    const size_t n = (size_t)t->n_nodes + 1;
    TRY(df_control_find(p->diag, t, a, &o->c));
    const size_t n_loops = (size_t)o->c.n_loops + 1;
    o->live = df_arena_new(a, uint8_t, n);
    o->need = df_arena_new(a, uint8_t, n);
    o->level = df_arena_new(a, uint32_t, n);
    o->at = df_arena_new(a, uint32_t, n);
    o->home = df_arena_new(a, where, n);
    o->group = df_arena_new(a, uint32_t, n);
    o->cell = df_arena_new(a, uint32_t, n);
    o->top = df_arena_new(a, uint32_t, n_loops);
    o->loop_level = df_arena_new(a, uint32_t, n_loops);
    o->loop_home = df_arena_new(a, where, n_loops);
    if (!o->live || !o->need || !o->level || !o->at || !o->home || !o->group || !o->cell ||
        !o->top || !o->loop_level || !o->loop_home)
        TRY(df_outline_no_memory(o));
    for (uint32_t i = 0; i < t->n_nodes; i++) o->group[i] = o->cell[i] = DF_NONE;
    for (uint32_t l = 0; l < o->c.n_loops; l++) {
        const uint32_t parent = o->c.loops[l].parent;
        o->top[l] = parent == DF_NONE ? l : o->top[parent];
    }
    for (uint32_t r = 0; r < t->n_roots; r++) o->live[t->roots[r].node] = 1;
    for (uint32_t i = t->n_nodes; i-- > 0;)
        for (uint32_t s = 0; o->live[i] && s < at(o, i)->n_src; s++)
            o->live[at(o, i)->src[s].i] = 1;
done:
    return st;
}

static deft_status parts_out(outline *o)
{
    df_plan *const plan = o->p->plan;
    const uint32_t n = (uint32_t)o->parts.n;
    plan->parts = df_arena_alloc(&plan->arena, n * sizeof *plan->parts, _Alignof(df_part));
    plan->cells = df_arena_copy(&plan->arena, o->cells.at, o->cells.n * sizeof *o->cells.at, 8);
    if (!plan->parts || !plan->cells) return df_outline_no_memory(o);
    for (uint32_t i = 0; i < n; i++) plan->parts[i] = o->parts.at[n - 1 - i];
    plan->n_cells = (uint32_t)o->cells.n;
    for (uint32_t c = 0; c < plan->n_cells; c++) /* it was counted from the end */
        plan->cells[c].last = n - 1 - plan->cells[c].last;
    plan->n_parts = n;
    o->parts.n = 0;
    return DEFT_OK;
}

deft_status df_fuse_outline(pass *p)
{
    deft_status st = DEFT_OK;
    outline o = { .p = p, .t = p->t };
    TRY(begin(&o));
    find_levels(&o);
    find_homes(&o);
    TRY(make_parts(&o));
    TRY(parts_out(&o));
done:
    for (size_t i = 0; i < o.parts.n; i++) drop_part(&o, &o.parts.at[i], st);
    df_vec_finish(p->mem, &o.cells);
    df_vec_finish(p->mem, &o.makers);
    df_vec_finish(p->mem, &o.parts);
    df_vec_finish(p->mem, &o.ports);
    df_vec_finish(p->mem, &o.roots);
    return st;
}
