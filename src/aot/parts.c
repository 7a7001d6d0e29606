/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of parts becomes steps of the image (runtime/exec/flow.c runs such plans in the library).
 *
 * All memory is planned here. The cells of a plan come first in its part of the arena. Two cells
 * share memory when no part needs both. A cell that is a result lies where the result is wanted.
 * Behind the cells is what one part needs, which the next part overwrites: states and rows that
 * nothing reads later, then the temporaries of the plans within it.
 */
#include "aot/maker.h"

#include <string.h>

#define PUSH DF_AOT_PUSH

enum { NUMBER_BYTES = 8 };

/* A piece of the arena, which cells use one after the other. */
typedef struct region {
    uint32_t bytes; /* slot */
    uint32_t until; /* the last part that needs the current cell */
} region;

typedef struct parts {
    const block *b;
    uint32_t *cell;    /* per cell: its buffer */
    uint32_t *lies_in; /* per cell: its region; DF_NONE: none */
    region *regions;
    uint32_t n_regions;
    uint32_t arena; /* slot: the end of all regions */
    uint32_t end;   /* slot: the end of all that the parts need */
} parts;

/* The loop in which a plan runs. */
typedef struct loop_ports {
    uint32_t number;       /* buffer */
    const uint32_t *state; /* per state: the buffer that is read */
    uint32_t row;          /* the first of its rows in the image */
} loop_ports;

static uint32_t parts_slot(const parts *f, df_slot s)
{
    return f->b->m->slot[f->b->slot0 + s.i];
}

static void add_step(const parts *f, aot_step step)
{
    PUSH(f->b->m->p, steps, step);
}

/* ---- cells ---- */

/* How badly a cell of `bytes` (slot) fits into a region; -1: it does not. */
static int64_t misfit(const program *p, const region *r, uint32_t bytes)
{
    if (r->bytes == bytes) return 0;
    if (p->is_open.at[r->bytes] || p->is_open.at[bytes]) return -1;
    const int64_t d = p->values.at[r->bytes] - p->values.at[bytes];
    return d < 0 ? -d : d;
}

/* Gives cell c memory from part `from` to part `until`. */
static void find_cell_region(parts *f, uint32_t c, uint32_t from, uint32_t until)
{
    const program *const p = f->b->m->p;
    const uint32_t bytes = parts_slot(f, f->b->plan->cells[c].bytes);
    uint32_t best = f->n_regions;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < f->n_regions && p->st == DEFT_OK; i++) {
        const int64_t d = misfit(p, &f->regions[i], bytes);
        if (f->regions[i].until == DF_NONE || f->regions[i].until >= from || d < 0 || d >= least)
            continue;
        best = i;
        least = d;
    }
    if (best == f->n_regions) f->regions[f->n_regions++] = (region){ .bytes = bytes };
    region *const r = &f->regions[best];
    if (least > 0 && least < INT64_MAX && p->values.at[r->bytes] < p->values.at[bytes])
        r->bytes = bytes;
    r->until = until;
    f->lies_in[c] = best;
}

/* The place where root r of the plan is wanted. Several roots may be one cell. */
static uint32_t wanted_place(const parts *f, uint32_t c)
{
    const df_plan *const plan = f->b->plan;
    for (uint32_t r = 0; r < f->b->n_roots; r++)
        if (plan->root_cell[r] == c && f->b->dest[r] != AOT_NONE) return f->b->dest[r];
    return AOT_NONE;
}

static void place_numbers(parts *f)
{
    const df_plan *const plan = f->b->plan;
    for (uint32_t c = 0; c < plan->n_cells; c++) {
        const df_cell *const cell = &plan->cells[c];
        f->cell[c] = cell->kind == DF_CELL_INPUT ? f->b->port[cell->from] : wanted_place(f, c);
        if (f->cell[c] == AOT_NONE && cell->kind != DF_CELL_PART)
            find_cell_region(f, c, 0, DF_NONE);
    }
}

static deft_status place_cells(parts *f)
{
    program *const p = f->b->m->p;
    const df_plan *const plan = f->b->plan;
    place_numbers(f);
    for (uint32_t i = 0; i < plan->n_parts; i++) {
        const df_part *const part = &plan->parts[i];
        for (uint32_t k = 0; k < part->n_out; k++) {
            const uint32_t c = part->out[k];
            if (c == DF_NONE || f->cell[c] != AOT_NONE || f->lies_in[c] != DF_NONE) continue;
            find_cell_region(f, c, i, plan->cells[c].last > i ? plan->cells[c].last : i);
        }
    }
    uint32_t *const at = df_arena_new(&p->arena, uint32_t, f->n_regions + 1u);
    if (!at) return df_fail_mem(p->d, "export", sizeof *at);
    f->arena = f->b->arena;
    for (uint32_t i = 0; i < f->n_regions; i++) {
        at[i] = f->arena;
        f->arena = program_end_of(p, at[i], f->regions[i].bytes);
    }
    f->end = f->arena;
    for (uint32_t c = 0; c < plan->n_cells; c++)
        if (f->lies_in[c] != DF_NONE)
            f->cell[c] = program_add_buf(p, AOT_BUF_TEMPORARY, at[f->lies_in[c]]);
    return p->st;
}

/* The dtype of an argument of the trace that is a number. */
static deft_dtype argument_dtype(const program *p, uint32_t arg)
{
    for (uint32_t i = 0; i < p->t->n_nodes; i++)
        if (p->t->nodes[i].op == DF_OP_num && p->t->nodes[i].arg == arg)
            return (deft_dtype)p->t->nodes[i].dtype;
    return DEFT_I64;
}

/* Appends the steps that write the cells which are numbers, and results that are inputs. */
static deft_status write_cells(const parts *f)
{
    deft_status st = DEFT_OK;
    program *const p = f->b->m->p;
    const df_plan *const plan = f->b->plan;
    for (uint32_t c = 0; c < plan->n_cells; c++) {
        const df_cell *const cell = &plan->cells[c];
        if (cell->kind != DF_CELL_ARG && cell->kind != DF_CELL_CONST) continue;
        const uint32_t given = cell->kind == DF_CELL_ARG ? program_number(p, cell->from) : DF_NONE;
        const int64_t bytes = p->values.at[parts_slot(f, cell->bytes)];
        aot_num out = { .slot = AOT_NONE, .parameter = AOT_NONE, .bits = cell->bits };
        if (cell->kind == DF_CELL_ARG) out.bits = (uint64_t)p->t->args[cell->from];
        if (given != DF_NONE) {
            const deft_dtype t = argument_dtype(p, cell->from);
            TRY(program_use_number(p, given, t, &out));
        }
        PUSH(p, nums, out);
        add_step(f, (aot_step){ .kind = AOT_STEP_NUMBER,
                                .a = f->cell[c],
                                .b = (uint32_t)p->nums.n - 1,
                                .c = (uint32_t)bytes });
    }
    st = p->st;
done:
    return st;
}

/* Appends copies to the roots that lie elsewhere: in an input, or where another root is. */
static deft_status copy_roots(const parts *f, bool of_inputs)
{
    const df_plan *const plan = f->b->plan;
    for (uint32_t r = 0; r < f->b->n_roots; r++) {
        const uint32_t c = plan->root_cell[r];
        if (c == DF_NONE || f->b->dest[r] == AOT_NONE || f->cell[c] == f->b->dest[r]) continue;
        if ((plan->cells[c].kind == DF_CELL_INPUT) != of_inputs) continue;
        add_step(f, (aot_step){ .kind = AOT_STEP_COPY,
                                .a = f->b->dest[r],
                                .b = f->cell[c],
                                .c = parts_slot(f, plan->cells[c].bytes) });
    }
    return f->b->m->p->st;
}

/* ---- plans within parts ---- */

/* The buffer of a row port: each slice of each array has one in a loop. */
static uint32_t row_buffer(const parts *f, const loop_ports *l, const df_port *port)
{
    program *const p = f->b->m->p;
    aot_row row = { .of = f->cell[port->index],
                    .first = parts_slot(f, port->first_bytes),
                    .step = parts_slot(f, port->row_bytes) };
    for (size_t i = l->row; i < p->rows.n; i++) {
        const aot_row *const x = &p->rows.at[i];
        if (x->of == row.of && x->first == row.first && x->step == row.step) return x->buf;
    }
    row.buf = program_add_buf(p, AOT_BUF_MOVING, 0);
    PUSH(p, rows, row);
    return row.buf;
}

static uint32_t port_buffer(const parts *f, const loop_ports *l, const df_port *port)
{
    switch ((df_port_kind)port->kind) {
    case DF_PORT_INPUT: return f->b->port[port->index];
    case DF_PORT_CELL: return f->cell[port->index];
    case DF_PORT_STATE: return l->state[port->index];
    case DF_PORT_ROW: return row_buffer(f, l, port);
    case DF_PORT_NUMBER: return l->number;
    case DF_PORT_EXTENTS: break;
    }
    return AOT_NONE;
}

/* The buffers of the inputs of a plan within a part; NULL: no memory. */
static const uint32_t *port_buffers(const parts *f, const df_subplan *sub, const loop_ports *l)
{
    program *const p = f->b->m->p;
    uint32_t *const port = df_arena_new(&p->arena, uint32_t, sub->trace.n_inputs + 1u);
    if (!port) program_no_memory(p);
    for (uint32_t i = 0; port && i < sub->trace.n_inputs; i++)
        port[i] = port_buffer(f, l, &sub->port[i]);
    return port;
}

/* Appends the steps of a plan within a part. buf: as in blocks_import; *buf is NULL where the plan
 * has parts. */
static deft_status import_subplan(parts *f, const df_subplan *sub, const uint32_t *port,
                                  const uint32_t *dest, uint32_t arena, const uint32_t **buf)
{
    deft_status st = DEFT_OK;
    program *const p = f->b->m->p;
    uint32_t end;
    TRY(p->st);
    const block b = { .m = f->b->m,
                      .plan = sub->plan,
                      .slot0 = f->b->slot0 + sub->slot0,
                      .port = port,
                      .dest = dest,
                      .n_roots = sub->trace.n_roots,
                      .arena = arena };
    if (buf) *buf = NULL;
    TRY(sub->plan->root_cell ? parts_import(&b, &end) : blocks_import(&b, &end, buf));
    f->end = program_combine(p, AOT_SLOT_MAX, f->end, end);
done:
    return st;
}

/* The buffers of the results of a run or a branch. */
static const uint32_t *result_buffers(const parts *f, const df_part *part)
{
    program *const p = f->b->m->p;
    uint32_t *const dest = df_arena_new(&p->arena, uint32_t, part->n_out + 1u);
    if (!dest) program_no_memory(p);
    for (uint32_t i = 0; dest && i < part->n_out; i++)
        dest[i] = part->out[i] == DF_NONE ? AOT_NONE : f->cell[part->out[i]];
    return dest;
}

static deft_status import_run(parts *f, const df_part *part)
{
    return import_subplan(f, &part->body, port_buffers(f, &part->body, NULL),
                          result_buffers(f, part), f->arena, NULL);
}

static deft_status import_cond(parts *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    program *const p = f->b->m->p;
    const size_t at = p->steps.n;
    const uint32_t *const dest = result_buffers(f, part);
    add_step(f, (aot_step){ .kind = AOT_STEP_COND, .a = f->cell[part->cond] });
    TRY(import_subplan(f, &part->body, port_buffers(f, &part->body, NULL), dest, f->arena, NULL));
    const size_t second = p->steps.n;
    TRY(import_subplan(f, &part->other, port_buffers(f, &part->other, NULL), dest, f->arena, NULL));
    p->steps.at[at].n_first = (uint32_t)(second - at - 1);
    p->steps.at[at].n_second = (uint32_t)(p->steps.n - second);
done:
    return st;
}

/* ---- loops ---- */

/* A number that two roots of a plan have in common when they are stored once. */
static uint32_t storage_of(const df_plan *plan, uint32_t root)
{
    return plan->root_cell ? plan->root_cell[root] : plan->root_buf[root].i;
}

/* The root in whose memory root i of an iteration lies: the first row, or else the first state,
 * that is stored with it. */
static uint32_t stored_with(const df_part *part, uint32_t i)
{
    const df_plan *const plan = part->body.plan;
    for (uint32_t k = part->n_states; k < part->n_out; k++)
        if (storage_of(plan, k) == storage_of(plan, i)) return k;
    for (uint32_t k = 0; k < i; k++)
        if (storage_of(plan, k) == storage_of(plan, i)) return k;
    return i;
}

/* Whether the next value of state i may be written over the state (df_bind_donated). */
static bool is_written_in_place(const df_part *part, uint32_t i)
{
    const df_plan *const plan = part->body.plan;
    if (plan->root_cell) return false;
    const df_plan_buf *const b = &plan->bufs[plan->root_buf[i].i];
    for (uint32_t k = 0; k < part->n_out; k++)
        if (k != i && storage_of(plan, k) == storage_of(plan, i)) return false;
    return b->kind == DF_BUF_ROOT && b->donor != DF_NONE && b->first >= plan->n_checked &&
           part->body.port[b->donor].kind == DF_PORT_STATE && part->body.port[b->donor].index == i;
}

/* Takes `bytes` (slot) from the arena, which begins at *arena, for a new buffer. */
static uint32_t take_memory(const parts *f, uint32_t *arena, uint32_t bytes)
{
    program *const p = f->b->m->p;
    const uint32_t buf = program_add_buf(p, AOT_BUF_TEMPORARY, *arena);
    *arena = program_end_of(p, *arena, bytes);
    return buf;
}

/* Adds the results of an iteration. dest: where it stores them; state: where it reads states. */
static deft_status add_loop_roots(const parts *f, const df_part *part, uint32_t *arena,
                                  uint32_t *dest, uint32_t *state)
{
    program *const p = f->b->m->p;
    for (uint32_t i = 0; i < part->n_out && p->st == DEFT_OK; i++) {
        const bool is_state = i < part->n_states;
        aot_root x = { .same = stored_with(part, i), .next = AOT_NONE, .state = AOT_NONE };
        x.bytes = is_state ? parts_slot(f, f->b->plan->cells[part->init[i]].bytes)
                           : parts_slot(f, part->row_bytes[i - part->n_states]);
        if (part->out[i] != DF_NONE)
            x.out = f->cell[part->out[i]];
        else
            x.out = take_memory(
                f, arena,
                is_state ? x.bytes
                         : program_combine(p, AOT_SLOT_MUL, x.bytes, parts_slot(f, part->most)));
        if (x.same == i) dest[i] = x.next = program_add_buf(p, AOT_BUF_MOVING, 0);
        if (is_state) {
            state[i] = x.state = program_add_buf(p, AOT_BUF_MOVING, 0);
            x.init = f->cell[part->init[i]];
            if (is_written_in_place(part, i)) x.flags |= AOT_ROOT_IN_PLACE;
            x.own = *arena;
            if (x.same == i && !(x.flags & AOT_ROOT_IN_PLACE))
                *arena = program_end_of(p, *arena, x.bytes);
        }
        PUSH(p, roots, x);
    }
    for (uint32_t i = 0; i < part->n_out; i++) dest[i] = dest[stored_with(part, i)];
    return p->st;
}

static deft_status import_loop(parts *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    program *const p = f->b->m->p;
    uint32_t *const dest = df_arena_new(&p->arena, uint32_t, part->n_out + 1u);
    uint32_t *const state = df_arena_new(&p->arena, uint32_t, part->n_out + 1u);
    if (!dest || !state) return df_fail_mem(p->d, "export", sizeof *dest);
    uint32_t arena = f->arena;
    aot_loop l = { .most = parts_slot(f, part->most),
                   .test = AOT_NONE,
                   .blocks = AOT_NONE,
                   .root = (uint32_t)p->roots.n,
                   .n_roots = part->n_out,
                   .row = (uint32_t)p->rows.n };
    const uint32_t number_bytes = program_constant(p, NUMBER_BYTES);
    l.number = take_memory(f, &arena, number_bytes);
    if (part->other.plan) l.test = take_memory(f, &arena, number_bytes);
    TRY(add_loop_roots(f, part, &arena, dest, state));
    f->end = program_combine(p, AOT_SLOT_MAX, f->end, arena);
    /* The rows of this loop are side by side in the image, those of loops within it behind them. */
    const loop_ports ports = { l.number, state, l.row };
    const uint32_t *const body = port_buffers(f, &part->body, &ports);
    const uint32_t *const other = part->other.plan ? port_buffers(f, &part->other, &ports) : NULL;
    l.n_rows = (uint32_t)p->rows.n - l.row;
    const size_t at = p->steps.n;
    add_step(f, (aot_step){ .kind = AOT_STEP_LOOP, .a = (uint32_t)p->loops.n });
    PUSH(p, loops, l);
    if (part->other.plan) TRY(import_subplan(f, &part->other, other, &l.test, arena, NULL));
    const size_t second = p->steps.n;
    imported_loop made = { .part = part,
                           .slot0 = f->b->slot0 + part->body.slot0,
                           .loop = p->steps.at[at].a,
                           .seg = (uint32_t)p->segs.n,
                           .port = body };
    TRY(import_subplan(f, &part->body, body, dest, arena, &made.buf));
    if (made.buf && !part->other.plan && p->steps.n == second + 1)
        TRY(by_rows_find(f->b->m, &made));
    p->steps.at[at].n_first = (uint32_t)(second - at - 1);
    p->steps.at[at].n_second = (uint32_t)(p->steps.n - second);
done:
    return st;
}

/* ---- exported ---- */

deft_status parts_import(const block *b, uint32_t *end)
{
    deft_status st = DEFT_OK;
    program *const p = b->m->p;
    const df_plan *const plan = b->plan;
    if (!plan->root_cell) return blocks_import(b, end, NULL);
    const size_t n = plan->n_cells + 1u;
    parts f = { .b = b,
                .cell = df_arena_new(&p->arena, uint32_t, n),
                .lies_in = df_arena_new(&p->arena, uint32_t, n),
                .regions = df_arena_new(&p->arena, region, n) };
    if (!f.cell || !f.lies_in || !f.regions) return df_fail_mem(p->d, "export", n * sizeof(region));
    memset(f.lies_in, 0xFF, n * sizeof *f.lies_in);
    TRY(place_cells(&f));
    TRY(write_cells(&f));
    TRY(copy_roots(&f, true));
    for (uint32_t i = 0; i < plan->n_parts; i++) {
        const df_part *const part = &plan->parts[i];
        switch ((df_part_kind)part->kind) {
        case DF_PART_RUN: TRY(import_run(&f, part)); break;
        case DF_PART_COND: TRY(import_cond(&f, part)); break;
        case DF_PART_LOOP: TRY(import_loop(&f, part)); break;
        }
    }
    TRY(copy_roots(&f, false));
    *end = f.end;
done:
    return st;
}
