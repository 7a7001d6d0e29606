/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the trace of a part. It holds all that the roots of the part need and that is assigned to
 * the part. What is assigned to another part becomes an input, and a port says where to find it. A
 * value that passes between parts is stored in a cell. Views, and leaves that cost no more than a
 * read, are assigned to no part: each part has its own.
 */
#include "fuser/control/outline.h"

#include <string.h>

/* ---- cells ---- */

/* The node under which the value of n has its cell. Several nodes may name one result of a loop,
 * which is stored once. */
static uint32_t stored(const outline *o, uint32_t n)
{
    return df_at(o, n)->op == DF_OP_final ? df_at(o, n)->src[0].i : n;
}

df_slot df_outline_bytes(const outline *o, uint32_t n, uint32_t from_axis)
{
    df_slot bytes = df_fuse_const(o->p, (int64_t)deft_dtype_size((deft_dtype)df_at(o, n)->dtype));
    for (uint32_t j = from_axis; j < df_at(o, n)->rank; j++)
        bytes = df_fuse_mul(o->p, bytes, df_fuse_node_extent(o->p, n, j));
    return bytes;
}

/* Makes *cell an argument or a constant when n is a single number: that needs no kernel. */
static void see_number(const outline *o, uint32_t n, df_cell *cell)
{
    while (df_at(o, n)->op == DF_OP_expand && df_at(o, df_at(o, n)->src[0].i)->rank == 0)
        n = df_at(o, n)->src[0].i;
    if (df_at(o, n)->op == DF_OP_num) {
        cell->kind = DF_CELL_ARG;
        cell->from = df_at(o, n)->arg;
    } else if (df_at(o, n)->op == DF_OP_cst) {
        cell->kind = DF_CELL_CONST;
        cell->bits = df_body_bits((deft_dtype)df_at(o, n)->dtype, df_at(o, n)->attr);
    }
}

deft_status df_outline_need_cell(outline *o, uint32_t n, uint32_t *out)
{
    pass *const p = o->p;
    const uint32_t key = stored(o, n);
    if (o->cell[key] == DF_NONE) {
        /* Parts are made in reverse order, so the part that asks first is the last that reads the
         * cell. */
        df_cell cell = { .kind = DF_CELL_PART,
                         .last = (uint32_t)o->parts.n,
                         .bytes = df_outline_bytes(o, n, 0) };
        if (df_at(o, n)->op == DF_OP_input) {
            const uint32_t k = df_at(o, n)->attr;
            if (o->t->inputs[k].flags & DF_INPUT_CONTIGUOUS) {
                df_fuse_guard_input(p, DF_GUARD_contiguous, k, 0, 1);
                cell.kind = DF_CELL_INPUT;
                cell.from = k;
            }
        } else if (df_at(o, n)->rank == 0) {
            see_number(o, n, &cell);
        }
        o->cell[key] = (uint32_t)o->cells.n;
        if (!df_vec_push(p->mem, &o->cells, cell) || !df_vec_push(p->mem, &o->makers, n))
            return df_outline_no_memory(o);
    }
    *out = o->cell[key];
    return p->st;
}

/* ---- extracting a trace ---- */

bool df_is_part_of(const outline *o, uint32_t n, where w)
{
    const uint32_t loop = df_outline_top_of(o, n);
    /* A node in a loop belongs to the iterations of that loop. It also belongs to the side of a
     * branch on which the whole loop runs. */
    if (w.kind == IN_LOOP) return loop == w.at;
    if (loop != DF_NONE) return w.kind == IN_SIDE && df_same_where(o->loop_home[loop], w);
    /* A run part contains no units, so it computes neither results of loops nor branches. */
    if (w.kind == IN_RUN && (df_ended_loop(o, n) != DF_NONE || df_is_outer_cond(o, n)))
        return false;
    const uint32_t ended = df_ended_loop(o, n);
    return df_same_where(ended == DF_NONE ? o->home[n] : o->loop_home[ended], w);
}

/* Whether n is a carry, each or loop node of the loop whose iteration is extracted. */
static bool is_entry(const outline *o, uint32_t n, where w)
{
    const uint8_t op = df_at(o, n)->op;
    if (w.kind != IN_LOOP || o->c.inside[n] != w.at) return false;
    return op == DF_OP_carry || op == DF_OP_each || op == DF_OP_loop;
}

/* Whether the trace of w computes n, instead of reading it through a port. */
static bool extract_computes(const outline *o, uint32_t n, where w)
{
    if (df_at(o, n)->op == DF_OP_input || is_entry(o, n, w)) return false;
    return df_is_part_of(o, n, w) || (df_outline_top_of(o, n) == DF_NONE && df_is_free(o, n));
}

/* Marks in o->need all that the roots need within w, from node `high` down. */
static void extract_mark_needs(outline *o, where w, uint32_t high)
{
    for (uint32_t n = high + 1; n-- > 0;) {
        if (!(o->need[n] & NEED_VALUE) || !extract_computes(o, n, w)) continue;
        for (uint32_t s = 0; s < df_at(o, n)->n_src; s++)
            o->need[df_at(o, n)->src[s].i] |=
                df_at(o, n)->op == DF_OP_count ? NEED_EXTENTS : NEED_VALUE;
    }
}

/* The index of carry n among the states of its loop. */
static uint32_t state_of(const outline *o, uint32_t n)
{
    const df_loop_info *const l = &o->c.loops[o->c.inside[n]];
    uint32_t k = 0;
    while (df_at(o, l->list[k])->src[0].i != n) k++;
    return k;
}

/* Whether the slice n shows all of its operand but for the direction of its first axis. */
static bool shows_whole_rows(const outline *o, uint32_t n)
{
    const df_node *const x = df_at(o, n);
    const uint32_t src = x->src[0].i;
    for (uint32_t j = 0; j < x->rank; j++) {
        const int64_t *const arg = &o->t->args[x->arg + 2 * j]; /* start and step */
        if (df_trace_extents(o->t, n)[j] != df_trace_extents(o->t, src)[j]) return false;
        if (j > 0 && (arg[0] != 0 || arg[1] != 1)) return false;
    }
    return true;
}

/* Guards that shows_whole_rows holds in every run. */
static void guard_whole_rows(const outline *o, uint32_t n)
{
    pass *const p = o->p;
    const df_node *const x = df_at(o, n);
    for (uint32_t j = 0; j < x->rank; j++) {
        df_fuse_guard_slots(p, DF_GUARD_equal, df_fuse_node_extent(p, n, j),
                            df_fuse_node_extent(p, x->src[0].i, j));
        if (j == 0) continue;
        df_fuse_guard_slot(p, DF_GUARD_is_const, df_fuse_arg(p, x->arg + 2 * j), 0);
        df_fuse_guard_slot(p, DF_GUARD_is_const, df_fuse_arg(p, x->arg + 2 * j + 1), 1);
    }
}

/* The port of `each` node n. Rows in reverse order, as gradients of loops read them, are read where
 * their operand lies: the slice that reverses them is not stored. */
static deft_status row_port(outline *o, uint32_t n, df_port *port)
{
    pass *const p = o->p;
    const uint32_t rows = df_at(o, n)->src[0].i;
    const df_node *const x = df_at(o, rows);
    const df_slot bytes = df_outline_bytes(o, n, 0);
    *port = (df_port){ .kind = DF_PORT_ROW, .first_bytes = SLOT_ZERO, .row_bytes = bytes };
    if (x->op != DF_OP_slice || !shows_whole_rows(o, rows))
        return df_outline_need_cell(o, rows, &port->index);
    guard_whole_rows(o, rows);
    port->first_bytes = df_fuse_mul(p, df_fuse_arg(p, x->arg), bytes);
    port->row_bytes = df_fuse_mul(p, df_fuse_arg(p, x->arg + 1), bytes);
    return df_outline_need_cell(o, x->src[0].i, &port->index);
}

/* The port through which the trace of w reads n. */
static deft_status port_of(outline *o, uint32_t n, where w, df_port *port)
{
    const df_node *const x = df_at(o, n);
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
        return row_port(o, n, port);
    } else {
        return df_outline_need_cell(o, n, &port->index);
    }
    return o->p->st;
}

/* The input of the extracted trace that is read through a port. */
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
    for (uint32_t j = df_at(o, n)->rank; j-- > 0;) {
        const int64_t extent = df_trace_extents(o->t, n)[j];
        in.stride[j] = step;
        step *= extent ? extent : 1;
    }
    in.bytes = df_trace_numel(o->t, n) * (int64_t)deft_dtype_size((deft_dtype)df_at(o, n)->dtype);
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
    df_node x = *df_at(o, n);
    for (uint32_t s = 0; s < x.n_src; s++) x.src[s].i = o->at[x.src[s].i];
    return df_outline_append(o, cut, n, x);
}

deft_status df_outline_add_port(outline *o, cut_trace *cut, uint32_t n, const df_port *port,
                                uint32_t *out)
{
    const uint32_t i = cut->t.n_inputs++;
    const df_node x = { .op = DF_OP_input,
                        .dtype = df_at(o, n)->dtype,
                        .rank = df_at(o, n)->rank,
                        .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                        .attr = i };
    *out = df_outline_append(o, cut, n, x);
    cut->input[i] = port->kind == DF_PORT_INPUT ? port->index : DF_NONE;
    cut->t.inputs[i] = input_of(o, n, port, *out);
    return df_vec_push(o->p->mem, &o->ports, *port) ? DEFT_OK : df_outline_no_memory(o);
}

deft_status df_outline_fuse(outline *o, const cut_trace *cut, df_subplan *out)
{
    deft_status st = DEFT_OK;
    pass *const p = o->p;
    df_plan *plan = NULL;
    df_assert_slow(df_verify_passed(df_trace_verify(NULL, &cut->t)));
    df_trace t = cut->t;
    const uint32_t serial = p->n_fused++;
    t.max_temporary_bytes = p->part_most ? p->part_most[serial] : 0;
    TRY(df_fuse(p->diag, &t, p->lim, p->mem, &plan));
    TRY(df_outline_take_plan(o, cut, plan, out));
    out->serial = serial;
done:
    return st;
}

deft_status df_outline_take_plan(outline *o, const cut_trace *cut, df_plan *plan, df_subplan *out)
{
    deft_status st = DEFT_OK;
    pass *const p = o->p;
    df_plan_translate(plan, cut->from, cut->input);
    /* From here on *out owns the plan, also when a later step fails. */
    *out = (df_subplan){ .plan = plan, .serial = DF_NONE, .trace = cut->t };
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

/* The input of the cut that the chain of updates under root r begins with, when that is a cell
 * which no later part reads, and no result of the run; else DF_NONE. */
static uint32_t cell_to_update(const outline *o, where w, const cut_trace *cut, uint32_t r)
{
    uint32_t n = o->roots.at[r];
    while (extract_computes(o, n, w) && df_op_writes_over((df_op)df_at(o, n)->op))
        n = df_at(o, n)->src[0].i;
    const uint32_t c = o->cell[n], node = o->at[n];
    /* Several nodes may name one result of a loop. */
    if (extract_computes(o, n, w) || c == DF_NONE || df_at(o, n)->op == DF_OP_final) return DF_NONE;
    const df_cell *const cell = &o->cells.at[c];
    if (cell->kind != DF_CELL_PART || cell->last != o->parts.n || c < o->n_root_cells)
        return DF_NONE;
    const uint32_t i = cut->t.nodes[node].attr;
    return o->ports.at[i].kind == DF_PORT_CELL ? i : DF_NONE;
}

/* Lets root r of a part be stored in the memory of the input that it replaces, when this part reads
 * the input and no later part does; in a flat plan also in that of the cell that it updates. */
static void offer_donor(const outline *o, where w, const cut_trace *cut, uint32_t r)
{
    const uint32_t donor = o->donor_of[o->roots.at[r]];
    const uint32_t cell = o->is_flat ? cell_to_update(o, w, cut, r) : DF_NONE;
    if (cell != DF_NONE) {
        cut->t.inputs[cell].flags |= DF_INPUT_SOLE;
        cut->t.roots[r].donor = cell;
        return;
    }
    if (donor == DF_NONE || o->read_later[donor]) return;
    for (uint32_t i = 0; i < cut->t.n_inputs; i++) {
        if (cut->input[i] != donor) continue;
        cut->t.inputs[i].flags |= o->t->inputs[donor].flags & DF_INPUT_SOLE;
        cut->t.roots[r].donor = i;
    }
}

/* The part that makes a cell may store it in the memory of an input when a root is stored in that
 * memory, and the root updates the cell in place. */
static void pass_donors_on(const outline *o, const cut_trace *cut, const df_plan *plan)
{
    for (uint32_t r = 0; r < plan->n_roots && plan->root_buf; r++) {
        const uint32_t i = plan->bufs[plan->root_buf[r].i].donor;
        if (i == DF_NONE || o->ports.at[i].kind != DF_PORT_CELL) continue;
        o->donor_of[cut->from[cut->t.inputs[i].node]] = o->donor_of[o->roots.at[r]];
    }
}

deft_status df_outline_extract(outline *o, where w, uint32_t n_next, df_subplan *out)
{
    deft_status st = DEFT_OK;
    uint32_t high = 0, n_nodes = 0;
    cut_trace cut;
    const bool is_last = w.kind == IN_RUN && w.at + 1 == o->n_levels;
    const bool may_replace = o->is_flat || (o->last_replaces && is_last);
    memset(o->need, 0, o->t->n_nodes);
    for (size_t r = 0; r < o->roots.n; r++) {
        o->need[o->roots.at[r]] = NEED_VALUE;
        df_raise(&high, o->roots.at[r]);
    }
    extract_mark_needs(o, w, high);
    for (uint32_t n = 0; n <= high; n++) n_nodes += o->need[n] != 0;
    TRY(df_outline_begin_cut(o, n_nodes, (uint32_t)o->roots.n, &cut));
    for (uint32_t n = 0; n <= high; n++) {
        df_port port;
        if (!o->need[n]) continue;
        if ((o->need[n] & NEED_VALUE) && extract_computes(o, n, w)) {
            o->at[n] = add_node(o, &cut, n);
        } else {
            TRY(port_of(o, n, w, &port));
            TRY(df_outline_add_port(o, &cut, n, &port, &o->at[n]));
        }
    }
    /* The next value of a state may be stored in the memory of that state. */
    for (size_t r = 0; r < o->roots.n; r++) {
        df_root *const root = &cut.t.roots[r];
        *root = (df_root){ .node = o->at[o->roots.at[r]], .into = DF_NONE, .donor = DF_NONE };
        for (uint32_t i = 0; r < n_next && i < cut.t.n_inputs; i++)
            if (o->ports.at[i].kind == DF_PORT_STATE && o->ports.at[i].index == r) root->donor = i;
        if (may_replace) offer_donor(o, w, &cut, (uint32_t)r);
    }
    TRY(df_outline_fuse(o, &cut, out));
    if (o->is_flat) pass_donors_on(o, &cut, out->plan);
done:
    return st;
}
