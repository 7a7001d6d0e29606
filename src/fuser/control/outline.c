/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a trace with loops or branches into the parts of a plan (plan.h).
 *
 * First each node is assigned to a part (assign_parts.c). Then the parts are made from the last to
 * the first. So it is known what later parts read of a part when that part is made. The trace of a
 * part is extracted (extract_part.c) and fused by itself; loops and branches within it are divided
 * in the same way. A loop that can be one kernel becomes one (loop_kernel.c). When all loops do,
 * the parts are joined into a plan without parts (flatten.c).
 */
#include "fuser/control/outline.h"

/* ---- parts ---- */

/* Notes the inputs of the trace that a plan of a part reads. */
static void note_reads(const outline *o, const df_subplan *b)
{
    for (uint32_t i = 0; b->plan && i < b->trace.n_inputs; i++) {
        const df_port *const port = &b->port[i];
        if (port->kind == DF_PORT_INPUT) o->read_later[port->index] = 1;
        if ((port->kind == DF_PORT_CELL || port->kind == DF_PORT_ROW) &&
            o->cells.at[port->index].kind == DF_CELL_INPUT)
            o->read_later[o->cells.at[port->index].from] = 1;
    }
}

/* Adds a part that was made, with the cells of its roots. */
static deft_status push_part(outline *o, df_part part, const uint32_t *out, size_t n_out)
{
    part.out = df_arena_copy(&o->p->plan->arena, out, n_out * sizeof *out, _Alignof(uint32_t));
    part.n_out = (uint32_t)n_out;
    if (!part.out || !df_vec_push(o->p->mem, &o->parts, part)) return df_outline_no_memory(o);
    note_reads(o, &part.body);
    note_reads(o, &part.other);
    return o->p->st;
}

/* Destroys the plans of a part that is in no list yet. Returns st. */
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

/* Makes run part `level`, with all that later parts read of it. Part 0 also copies inputs that must
 * be contiguous. */
static deft_status make_run(outline *o, uint32_t level)
{
    deft_status st = DEFT_OK;
    df_part part = { .kind = DF_PART_RUN, .cond = DF_NONE, .node = DF_NONE };
    DF_VEC(uint32_t) out = { 0 };
    o->roots.n = 0;
    for (uint32_t c = 0; c < o->cells.n; c++) {
        const uint32_t n = o->makers.at[c];
        const bool copy = df_at(o, n)->op == DF_OP_input;
        if (o->cells.at[c].kind != DF_CELL_PART) continue;
        if (copy ? level != 0 : !df_is_part_of(o, n, df_in_run(level))) continue;
        if (!df_vec_push(o->p->mem, &out, c)) TRY(df_outline_no_memory(o));
        TRY(add_root(o, n));
    }
    if (out.n == 0) goto done;
    TRY(df_outline_extract(o, df_in_run(level), 0, &part.body));
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

/* Makes the part of the group of branches that begins at cond `first`. */
static deft_status make_cond(outline *o, uint32_t first)
{
    deft_status st = DEFT_OK;
    df_part part = { .kind = DF_PART_COND, .node = first };
    DF_VEC(uint32_t) out = { 0 };
    for (uint32_t side = 0; side < 2; side++) {
        o->roots.n = 0;
        for (uint32_t n = first; n < o->t->n_nodes && o->group[n] == first; n++) {
            if (!o->live[n] || o->cell[n] == DF_NONE) continue;
            TRY(add_root(o, df_at(o, n)->src[1 + side].i));
            if (side == 0 && !df_vec_push(o->p->mem, &out, o->cell[n]))
                TRY(df_outline_no_memory(o));
        }
        TRY(df_outline_extract(o, (where){ IN_SIDE, first, side }, 0,
                               side ? &part.other : &part.body));
    }
    TRY(df_outline_need_cell(o, df_at(o, first)->src[0].i, &part.cond));
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

/* Extracts one iteration as the body of part. Its roots are the next states, then the rows. */
static deft_status cut_iteration(outline *o, uint32_t loop, df_part *part)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    df_slot *const row_bytes = df_arena_new(&o->p->plan->arena, df_slot, l->n_rows);
    if (!row_bytes) TRY(df_outline_no_memory(o));
    o->roots.n = 0;
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++) {
        const bool is_state = k < l->n_states;
        TRY(add_root(o, df_at(o, l->list[k])->src[is_state].i));
        if (!is_state) row_bytes[k - l->n_states] = df_outline_bytes(o, l->list[k], 1);
    }
    TRY(df_outline_extract(o, (where){ IN_LOOP, loop, 0 }, l->n_states, &part->body));
    part->row_bytes = row_bytes;
done:
    return st;
}

/* Finds the cells with the initial states of a loop. */
static deft_status find_starts(outline *o, const df_loop_info *l, df_part *part)
{
    deft_status st = DEFT_OK;
    uint32_t *const init = df_arena_new(&o->p->plan->arena, uint32_t, l->n_states);
    if (!init) TRY(df_outline_no_memory(o));
    for (uint32_t k = 0; k < l->n_states; k++) {
        const uint32_t state = df_at(o, l->list[k])->src[0].i;
        TRY(df_outline_need_cell(o, df_at(o, state)->src[0].i, &init[k]));
    }
    part->init = init;
    part->n_states = l->n_states;
done:
    return st;
}

/* WHOLE_MOST: a loop with a proceed and at most so many iterations runs as one kernel. WHOLE_CHUNK:
 * iterations between two tests of proceed, in a loop without a bound. */
enum { WHOLE_MOST = 1 << 20, WHOLE_CHUNK = 1 << 16 };
#define ENDLESS ((int64_t)1 << 62) /* a bound of at least this is none */

/* Tries to make one kernel of a loop; part->body.plan stays NULL when that is impossible. A loop
 * that may run for ever is done in chunks of iterations, so that it can be interrupted between
 * them. A bound between WHOLE_MOST and ENDLESS must hold exactly, which chunks do not: such a loop
 * is done an iteration at a time. The roots of the kernel are left in o->roots. */
static deft_status make_whole(outline *o, uint32_t loop, df_part *part)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    const int64_t most = o->t->args[df_at(o, l->node)->arg];
    const bool open = l->proceed != DF_NONE && most > WHOLE_MOST;
    if (!o->p->fuse || (open && most < ENDLESS)) return DEFT_OK;
    o->roots.n = 0;
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++)
        if (open || o->cell[l->list[k]] != DF_NONE) TRY(add_root(o, l->list[k]));
    const whole w = { loop, open ? WHOLE_CHUNK : 0 };
    TRY(df_outline_loop_kernel(o, &w, &part->body));
    if (!part->body.plan) return DEFT_OK;
    if (l->proceed != DF_NONE)
        df_fuse_guard_slot(o->p, open ? DF_GUARD_at_least : DF_GUARD_at_most, part->most,
                           open ? ENDLESS : WHOLE_MOST);
    if (!open) part->kind = DF_PART_RUN;
done:
    return st;
}

/* Makes the part of an outermost loop. */
static deft_status make_loop(outline *o, uint32_t loop)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[loop];
    df_part part = { .kind = DF_PART_LOOP, .cond = DF_NONE, .node = l->node };
    DF_VEC(uint32_t) out = { 0 };
    part.most = df_fuse_arg(o->p, df_at(o, l->node)->arg);
    TRY(make_whole(o, loop, &part));
    if (!part.body.plan) {
        TRY(cut_iteration(o, loop, &part));
        TRY(df_outline_tag(o, loop, &part));
    }
    for (uint32_t k = 0; k < l->n_states + l->n_rows; k++) {
        const uint32_t cell = o->cell[l->list[k]];
        if (part.kind == DF_PART_RUN && cell == DF_NONE) continue;
        if (!df_vec_push(o->p->mem, &out, cell)) TRY(df_outline_no_memory(o));
    }
    if (part.kind == DF_PART_LOOP) {
        TRY(find_starts(o, l, &part));
        if (l->proceed != DF_NONE) {
            o->roots.n = 0;
            TRY(add_root(o, df_at(o, l->proceed)->src[0].i));
            TRY(df_outline_extract(o, (where){ IN_LOOP, loop, 0 }, 0, &part.other));
        }
    }
    TRY(push_part(o, part, out.at, out.n));
done:
    if (st != DEFT_OK) drop_part(o, &part, st);
    df_vec_finish(o->p->mem, &out);
    return st;
}

/* Makes the units between run parts `level` and level + 1, the last first. */
static deft_status make_units(outline *o, uint32_t level)
{
    deft_status st = DEFT_OK;
    for (uint32_t n = o->t->n_nodes; n-- > 0;) {
        if (!o->live[n]) continue;
        const uint32_t loop = df_outline_top_of(o, n);
        if (df_is_outer_cond(o, n) && o->group[n] == n && o->home[n].kind == IN_RUN &&
            o->level[n] == level + 1)
            TRY(make_cond(o, n));
        if (loop != DF_NONE && o->c.loops[loop].node == n && o->loop_level[loop] == level &&
            o->loop_home[loop].kind == IN_RUN)
            TRY(make_loop(o, loop));
    }
done:
    return st;
}

/* Makes the last part, which writes roots into the caller's memory when all else has succeeded. */
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
    TRY(df_outline_fuse(o, &cut, &part.body));
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
    /* Before there is any part, so that the cells of roots live to the end. */
    for (uint32_t r = 0; r < t->n_roots; r++) {
        plan->root_cell[r] = DF_NONE;
        if (t->roots[r].kind == DF_ROOT_NEW)
            TRY(df_outline_need_cell(o, t->roots[r].node, &plan->root_cell[r]));
    }
    o->n_root_cells = (uint32_t)o->cells.n;
    TRY(make_store(o));
    for (uint32_t level = o->n_levels; level-- > 0;) {
        TRY(make_units(o, level));
        TRY(make_run(o, level));
    }
done:
    return st;
}

/* ---- beginning and end ---- */

/* Whether the trace has no branches, and all of its loops are likely to become kernels. */
static bool may_be_flat(const outline *o)
{
    const pass *const p = o->p;
    if (!p->fuse || p->keeps_parts || o->t->max_temporary_bytes) return false;
    for (uint32_t n = 0; n < o->t->n_nodes; n++)
        if (o->live[n] && df_is_outer_cond(o, n)) return false;
    for (uint32_t l = 0; l < o->c.n_loops; l++) {
        const df_loop_info *const loop = &o->c.loops[l];
        if (!o->live[loop->node] || o->top[l] != l) continue;
        if (!df_outline_is_elementwise(o, l)) return false;
        if (loop->proceed != DF_NONE && o->t->args[df_at(o, loop->node)->arg] > WHOLE_MOST)
            return false;
    }
    return true;
}

static deft_status outline_begin(outline *o)
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
    o->donor_of = df_arena_new(a, uint32_t, n);
    o->read_later = df_arena_new(a, uint8_t, t->n_inputs + 1);
    if (!o->live || !o->need || !o->level || !o->at || !o->home || !o->group || !o->cell ||
        !o->top || !o->loop_level || !o->loop_home || !o->donor_of || !o->read_later)
        TRY(df_outline_no_memory(o));
    for (uint32_t i = 0; i < t->n_nodes; i++) o->group[i] = o->cell[i] = o->donor_of[i] = DF_NONE;
    for (uint32_t r = 0; r < t->n_roots; r++)
        if (t->roots[r].kind == DF_ROOT_NEW) o->donor_of[t->roots[r].node] = t->roots[r].donor;
    for (uint32_t l = 0; l < o->c.n_loops; l++) {
        const uint32_t parent = o->c.loops[l].parent;
        o->top[l] = parent == DF_NONE ? l : o->top[parent];
    }
    for (uint32_t r = 0; r < t->n_roots; r++) o->live[t->roots[r].node] = 1;
    for (uint32_t i = t->n_nodes; i-- > 0;)
        for (uint32_t s = 0; o->live[i] && s < df_at(o, i)->n_src; s++)
            o->live[df_at(o, i)->src[s].i] = 1;
    o->is_flat = may_be_flat(o);
    o->last_replaces = !o->is_flat;
    for (uint32_t r = 0; r < t->n_roots; r++) /* a part that stores would follow */
        if (t->roots[r].kind == DF_ROOT_INTO) o->last_replaces = false;
done:
    return st;
}

/* Copies parts and cells to the plan, in the order in which they run. */
static deft_status parts_out(outline *o)
{
    df_plan *const plan = o->p->plan;
    const uint32_t n = (uint32_t)o->parts.n;
    plan->parts = df_arena_alloc(&plan->arena, n * sizeof *plan->parts, _Alignof(df_part));
    plan->cells = df_arena_copy(&plan->arena, o->cells.at, o->cells.n * sizeof *o->cells.at, 8);
    if (!plan->parts || !plan->cells) return df_outline_no_memory(o);
    for (uint32_t i = 0; i < n; i++) plan->parts[i] = o->parts.at[n - 1 - i];
    plan->n_cells = (uint32_t)o->cells.n;
    for (uint32_t c = 0; c < plan->n_cells; c++) /* was counted from the end */
        plan->cells[c].last = n - 1 - plan->cells[c].last;
    for (uint32_t r = 0; r < o->t->n_roots; r++)
        if (plan->root_cell[r] != DF_NONE) plan->cells[plan->root_cell[r]].is_root = true;
    plan->n_parts = n;
    o->parts.n = 0;
    return DEFT_OK;
}

deft_status df_fuse_outline(pass *p)
{
    deft_status st = DEFT_OK;
    outline o = { .p = p, .t = p->t };
    TRY(outline_begin(&o));
    df_outline_assign_parts(&o);
    TRY(make_parts(&o));
    if (!o.is_flat)
        TRY(parts_out(&o));
    else if (df_outline_may_flatten(&o))
        TRY(df_outline_flatten(&o));
    else
        p->restarts = true;
done:
    for (size_t i = 0; i < o.parts.n; i++) drop_part(&o, &o.parts.at[i], st);
    df_vec_finish(p->mem, &o.cells);
    df_vec_finish(p->mem, &o.makers);
    df_vec_finish(p->mem, &o.parts);
    df_vec_finish(p->mem, &o.ports);
    df_vec_finish(p->mem, &o.roots);
    return st;
}
