/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan of parts, one part after another. The device runs the plan within each part. Loops
 * run here, one iteration at a time, unless the device can run them at once. Of a branch, only the
 * side that the condition selects runs.
 *
 *   cell    an address and the buffer that holds the data; buffer NULL: an input of the trace
 *   state   of a loop: a cell that passes from iteration to iteration. A plan may write the next
 *           state into its memory when nothing else refers to the buffer (DF_INPUT_SOLE)
 *   row     of a loop that stacks results: where the result of one iteration lies among the others.
 *           Iterations store there. A state that is such a result is read there by the next
 *           iteration, and its cell has no buffer
 *
 * Only the last part writes memory that existed before the run: memory of the caller, or inputs
 * that results replace. So a run that fails in an earlier part changes nothing.
 */
#include "runtime/flow.h"

#include "base/bump.h"

#include <stdatomic.h>
#include <string.h>

typedef struct cell {
    char *data;
    df_buffer *buf; /* a reference; NULL: the data is borrowed */
} cell;

typedef struct flow {
    const df_flow_ops *ops;
    void *self; /* passed to ops */
    df_diag *d;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_launch_io *io;
    df_run_stats *stats;
    cell *cells;            /* of the plan */
    cell *states;           /* states of the current loop */
    cell *rows;             /* stacked rows of the current loop, one cell per root */
    df_buffer **made;       /* per root of the current subplan: its result */
    void **into;            /* per root of the current loop: its row of this iteration, or NULL */
    uint32_t *row_of;       /* per root of the current loop: see flow_find_rows */
    void **starts;          /* run_tagged: `in`, the addresses that an iteration reads */
    void **ends;            /* run_tagged: `out`; run_whole: `init` */
    df_input *inputs;       /* per input of the current subplan */
    df_input *others;       /* per input of part->other, when run_whole gets both */
    const df_buffer **bufs; /* per input of the current subplan: its buffer, or NULL */
    bool donates;           /* the current part may write over inputs that are SOLE */
    int64_t iteration;
    df_buffer *number; /* the iteration number on a device that cannot read memory of the host */
} flow;

/* ---- cells ---- */

static void flow_cell_set(cell *c, df_buffer *buf) /* takes the reference */
{
    df_buffer *old = c->buf;
    *c = (cell){ buf->data, buf };
    df_buffer_drop(&old);
}

static void flow_cell_drop(cell *c)
{
    df_buffer_drop(&c->buf);
    c->data = NULL;
}

static cell flow_cell_share(const cell *c)
{
    return (cell){ c->data, c->buf ? df_buffer_ref(c->buf) : NULL };
}

/* Initialises cell i, before any part has run. */
static deft_status set_out(flow *f, uint32_t i)
{
    const df_cell *const c = &f->plan->cells[i];
    df_buffer *buf = NULL;
    if (c->kind == DF_CELL_INPUT) f->cells[i].data = f->t->inputs[c->from].data;
    if (c->kind != DF_CELL_ARG && c->kind != DF_CELL_CONST) return DEFT_OK;
    const int64_t bytes = f->slots[c->bytes.i];
    deft_status st = f->ops->create(f->self, f->d, bytes, &buf);
    if (st != DEFT_OK) return st;
    flow_cell_set(&f->cells[i], buf);
    return f->ops->put(f->self, f->d, buf->data,
                       c->kind == DF_CELL_ARG ? (uint64_t)f->t->args[c->from] : c->bits,
                       (size_t)bytes);
}

/* ---- the plan within a part ---- */

static void bind_port(const flow *f, const df_port *port, df_input *in, const df_buffer **buf)
{
    const cell *from = NULL;
    *in = (df_input){ .flags = DF_INPUT_CONTIGUOUS };
    *buf = NULL;
    switch ((df_port_kind)port->kind) {
    case DF_PORT_INPUT:
        *in = f->t->inputs[port->index];
        if (!f->donates) in->flags &= ~(uint32_t)DF_INPUT_SOLE;
        if (f->io->input) *buf = f->io->input[port->index];
        return;
    case DF_PORT_CELL: from = &f->cells[port->index]; break;
    case DF_PORT_STATE: from = &f->states[port->index]; break;
    case DF_PORT_ROW:
        in->data = f->cells[port->index].data + f->slots[port->first_bytes.i] +
                   f->iteration * f->slots[port->row_bytes.i];
        return;
    case DF_PORT_NUMBER:
        in->data = f->number ? f->number->data : (void *)(uintptr_t)&f->iteration;
        return;
    case DF_PORT_EXTENTS: return;
    }
    in->data = from->data;
    *buf = from->buf;
    if (port->kind != DF_PORT_STATE || !from->buf) return;
    if (atomic_load_explicit(&from->buf->refs, memory_order_relaxed) == 1)
        in->flags |= DF_INPUT_SOLE;
}

static void bind_ports(flow *f, const df_subplan *b, df_input *inputs)
{
    for (uint32_t i = 0; i < b->trace.n_inputs; i++)
        bind_port(f, &b->port[i], &inputs[i], &f->bufs[i]);
}

/* Runs the plan of b once. Its results are in f->made, unless they are stored in `into`
 * (df_launch_io), which may be NULL. */
static deft_status run_block(flow *f, const df_subplan *b, void *const *into)
{
    df_trace t = b->trace;
    df_run_stats mine = { 0 };
    t.inputs = f->inputs;
    t.site = f->t->site; /* faults name nodes of the trace of the run */
    t.extents = f->t->extents;
    t.n_extents = f->t->n_extents;
    t.args = f->t->args;
    t.n_args = f->t->n_args;
    bind_ports(f, b, f->inputs);
    memset(f->made, 0, t.n_roots * sizeof *f->made);
    df_launch_io io = { .root = f->made,
                        .into = into,
                        .input = f->bufs,
                        .interrupted = f->io->interrupted,
                        .user = f->io->user,
                        .ring = f->io->ring,
                        .decided = f->io->decided,
                        .waiter = f->io->waiter,
                        .queue = f->io->queue };
    const deft_status st = f->ops->run(f->self, f->d, b->plan, &t, f->slots + b->slot0, &io, &mine);
    f->stats->launches += mine.launches;
    f->stats->forks += mine.forks;
    f->stats->segments += mine.segments;
    f->stats->bytes_allocated += mine.bytes_allocated;
    if (f->donates) f->stats->donated += mine.donated;
    f->stats->interpreted_segments += mine.interpreted_segments;
    f->stats->streamed_segments += mine.streamed_segments;
    f->stats->fetched_segments += mine.fetched_segments;
    f->stats->copied_segments += mine.copied_segments;
    f->stats->t_bind_ns += mine.t_bind_ns;
    f->stats->t_run_ns += mine.t_run_ns;
    return st;
}

static void take_outs(flow *f, const df_part *part)
{
    for (uint32_t i = 0; i < part->n_out; i++) {
        if (part->out[i] != DF_NONE) flow_cell_set(&f->cells[part->out[i]], f->made[i]);
        f->made[i] = NULL;
    }
}

/* ---- loops ---- */

static deft_status may_go_on(flow *f, const df_part *part, bool *goes)
{
    *goes = true;
    if (f->io->interrupted && f->io->interrupted(f->io->user))
        return df_fail(f->d, DEFT_E_INTERRUPTED, "interrupted before iteration %lld of a loop",
                       (long long)f->iteration);
    if (!part->other.plan) return DEFT_OK;
    deft_status st = run_block(f, &part->other, NULL);
    if (st == DEFT_OK) st = f->ops->holds(f->self, f->d, f->made[0]->data, goes);
    df_buffer_drop(&f->made[0]);
    return st;
}

/* Sets row_of: for each root that shares its buffer with stacked rows, the first root that these
 * rows are made of; DF_NONE for other roots. */
static void flow_find_rows(flow *f, const df_part *part)
{
    const df_plan *const plan = part->body.plan;
    for (uint32_t i = 0; i < part->n_out; i++) {
        f->row_of[i] = DF_NONE;
        f->into[i] = NULL;
        if (plan->root_cell) continue; /* a plan of parts has no root_buf */
        const df_buf buf = plan->root_buf[i];
        if (buf.i == DF_NONE || plan->bufs[buf.i].kind != DF_BUF_ROOT) continue;
        for (uint32_t k = part->n_out; k-- > part->n_states;)
            if (plan->root_buf[k].i == buf.i) f->row_of[i] = k;
    }
}

static deft_status flow_begin_loop(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    flow_find_rows(f, part);
    for (uint32_t i = 0; i < part->n_states; i++)
        f->states[i] = flow_cell_share(&f->cells[part->init[i]]);
    for (uint32_t i = part->n_states; i < part->n_out; i++) {
        const int64_t row = f->slots[part->row_bytes[i - part->n_states].i];
        df_buffer *all = NULL;
        TRY(f->ops->create(f->self, f->d, row * f->slots[part->most.i], &all));
        f->stats->bytes_allocated += (uint64_t)(row * f->slots[part->most.i]);
        flow_cell_set(&f->rows[i - part->n_states], all);
    }
done:
    return st;
}

static bool reads_number(const df_subplan *b)
{
    for (uint32_t i = 0; b->plan && i < b->trace.n_inputs; i++)
        if (b->port[i].kind == DF_PORT_NUMBER) return true;
    return false;
}

/* Writes the iteration number to device memory, where the plans within need it there. */
static deft_status flow_write_iteration(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    if (f->ops->reads_host || !(reads_number(&part->body) || reads_number(&part->other)))
        return DEFT_OK;
    if (!f->number) st = f->ops->create(f->self, f->d, sizeof f->iteration, &f->number);
    if (st != DEFT_OK) return st;
    return f->ops->put(f->self, f->d, f->number->data, (uint64_t)f->iteration, sizeof f->iteration);
}

/* Returns where row root k of this iteration lies among its rows. */
static char *flow_row_at(const flow *f, const df_part *part, uint32_t k)
{
    return f->rows[k - part->n_states].data +
           f->iteration * f->slots[part->row_bytes[k - part->n_states].i];
}

/* Runs the body of a loop once, and passes its results to the states and the rows. */
static deft_status flow_iterate_once(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    for (uint32_t k = part->n_states; k < part->n_out; k++)
        f->into[k] = f->row_of[k] == k ? flow_row_at(f, part, k) : NULL;
    TRY(run_block(f, &part->body, f->into));
    for (uint32_t k = part->n_states; k < part->n_out; k++) {
        char *const to = flow_row_at(f, part, k);
        df_assert(f->made[k] || f->row_of[k] != DF_NONE);
        const void *const from = f->made[k] ? f->made[k]->data : f->into[f->row_of[k]];
        const int64_t bytes = f->slots[part->row_bytes[k - part->n_states].i];
        if (from != to) TRY(f->ops->copy(f->self, f->d, to, from, (size_t)bytes));
        df_buffer_drop(&f->made[k]);
    }
    for (uint32_t i = 0; i < part->n_states; i++) {
        df_assert(f->made[i] || f->row_of[i] != DF_NONE);
        flow_cell_drop(&f->states[i]);
        if (f->made[i])
            f->states[i] = (cell){ f->made[i]->data, f->made[i] };
        else
            f->states[i].data = f->into[f->row_of[i]];
        f->made[i] = NULL;
    }
done:
    return st;
}

static deft_status flow_iterate_loop(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    bool goes;
    for (f->iteration = 0; f->iteration < f->slots[part->most.i]; f->iteration++) {
        TRY(flow_write_iteration(f, part));
        TRY(may_go_on(f, part, &goes));
        if (!goes) break;
        TRY(flow_iterate_once(f, part));
    }
done:
    for (uint32_t i = 0; i < part->n_out; i++) df_buffer_drop(&f->made[i]);
    return st;
}

/* Copies final states that lie in a row, because their cells outlive the rows. */
static deft_status flow_take_states(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < part->n_states && f->iteration > 0; i++) {
        if (f->states[i].buf || part->out[i] == DF_NONE) continue;
        const int64_t bytes = f->slots[f->plan->cells[part->out[i]].bytes.i];
        df_buffer *copy = NULL;
        TRY(f->ops->create(f->self, f->d, bytes, &copy));
        f->stats->bytes_allocated += (uint64_t)bytes;
        const void *const from = f->states[i].data;
        flow_cell_set(&f->states[i], copy);
        TRY(f->ops->copy(f->self, f->d, copy->data, from, (size_t)bytes));
    }
done:
    return st;
}

static void flow_end_loop(flow *f, const df_part *part, bool ok)
{
    for (uint32_t i = 0; i < part->n_out; i++) {
        const bool is_state = i < part->n_states;
        cell *const from = is_state ? &f->states[i] : &f->rows[i - part->n_states];
        if (ok && part->out[i] != DF_NONE) {
            f->cells[part->out[i]] = *from;
            *from = (cell){ 0 };
        }
        flow_cell_drop(from);
    }
}

/* Allocates the final states and rows of a loop in f->made, and sets their addresses in f->ends. */
static deft_status make_ends(flow *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < part->n_out; i++) {
        f->made[i] = NULL;
        f->ends[i] = NULL;
    }
    for (uint32_t i = 0; i < part->n_out; i++) {
        if (part->out[i] == DF_NONE) continue;
        const int64_t bytes = f->slots[f->plan->cells[part->out[i]].bytes.i];
        TRY(f->ops->create(f->self, f->d, bytes, &f->made[i]));
        f->stats->bytes_allocated += (uint64_t)bytes;
        f->ends[i] = f->made[i]->data;
    }
done:
    return st;
}

/* Runs a tagged loop by run_tagged. *done is false when the device refused. */
static deft_status run_at_once(flow *f, const df_part *part, bool *done)
{
    deft_status st = DEFT_OK;
    bool goes;
    *done = false;
    f->iteration = 0;
    TRY(make_ends(f, part));
    TRY(may_go_on(f, part, &goes));
    bind_ports(f, &part->body, f->inputs);
    for (uint32_t i = 0; i < part->body.trace.n_inputs; i++) f->starts[i] = f->inputs[i].data;
    TRY(f->ops->run_tagged(f->self, f->d, f->plan, part, f->slots, f->starts, f->ends, done));
    if (*done) take_outs(f, part);
done:
    for (uint32_t i = 0; i < part->n_out; i++) df_buffer_drop(&f->made[i]);
    return st;
}

/* Runs a loop or a branch by `run`: run_whole or run_loop of the device. *done is false when the
 * device refused. */
static deft_status run_as_whole(flow *f, const df_part *part, df_flow_run_fn *run, bool *done)
{
    const bool is_loop = part->kind == DF_PART_LOOP;
    const df_flow_construct w = { .plan = f->plan,
                                  .part = part,
                                  .t = f->t,
                                  .slots = f->slots,
                                  .io = f->io,
                                  .body = f->inputs,
                                  .other = f->others,
                                  .bufs = is_loop && !part->other.plan ? f->bufs : NULL,
                                  .init = f->ends,
                                  .cond = is_loop ? NULL : f->cells[part->cond].data,
                                  .made = f->made,
                                  .stats = f->stats };
    *done = false;
    f->iteration = 0;
    for (uint32_t i = 0; is_loop && i < part->n_states; i++)
        f->ends[i] = f->cells[part->init[i]].data;
    bind_ports(f, &part->body, f->inputs);
    bind_ports(f, &part->other, f->others);
    memset(f->made, 0, part->n_out * sizeof *f->made);
    const deft_status st = run(f->self, f->d, &w, done);
    if (st == DEFT_OK && *done) take_outs(f, part);
    f->stats->launches += *done;
    return st;
}

/* Counts a loop that ran on this thread alone as one launch, however many iterations it had. */
static deft_status run_loop(flow *f, const df_part *part)
{
    const uint64_t launches = f->stats->launches, forks = f->stats->forks;
    bool done = false;
    deft_status st = DEFT_OK;
    if (part->tag && part->tag->is_free && f->ops->run_tagged) st = run_at_once(f, part, &done);
    if (st != DEFT_OK || done) {
        f->stats->launches += done;
        return st;
    }
    df_flow_run_fn *const run = part->other.plan ? f->ops->run_whole : f->ops->run_loop;
    if (run) st = run_as_whole(f, part, run, &done);
    if (st != DEFT_OK || done) return st;
    st = flow_begin_loop(f, part);
    if (st == DEFT_OK) st = flow_iterate_loop(f, part);
    if (st == DEFT_OK) st = flow_take_states(f, part);
    flow_end_loop(f, part, st == DEFT_OK);
    const uint64_t n = f->stats->forks - forks;
    f->stats->launches = launches + (n ? n : 1);
    return st;
}

static deft_status run_part(flow *f, const df_part *part)
{
    bool takes_body = true, done = false;
    deft_status st = DEFT_OK;
    if (part->kind == DF_PART_LOOP) return run_loop(f, part);
    if (part->kind == DF_PART_COND) {
        if (f->ops->run_whole) TRY(run_as_whole(f, part, f->ops->run_whole, &done));
        if (done) return DEFT_OK;
        TRY(f->ops->holds(f->self, f->d, f->cells[part->cond].data, &takes_body));
    }
    TRY(run_block(f, takes_body ? &part->body : &part->other, NULL));
    take_outs(f, part);
done:
    return st;
}

/* ---- all parts ---- */

/* Passes the roots to the caller. Roots may share a buffer. A cell without a buffer is an input of
 * the trace, and is copied. */
static deft_status flow_publish_roots(flow *f)
{
    deft_status st = DEFT_OK;
    for (uint32_t r = 0; r < f->t->n_roots; r++) {
        const uint32_t i = f->plan->root_cell[r];
        if (i == DF_NONE) continue;
        const cell *const c = &f->cells[i];
        if (c->buf) {
            f->io->root[r] = df_buffer_ref(c->buf);
            continue;
        }
        const int64_t bytes = f->slots[f->plan->cells[i].bytes.i];
        TRY(f->ops->create(f->self, f->d, bytes, &f->io->root[r]));
        TRY(f->ops->copy(f->self, f->d, f->io->root[r]->data, c->data, (size_t)bytes));
        f->stats->bytes_allocated += (uint64_t)bytes;
    }
done:
    return st;
}

/* Copies what is still needed of the cells that have no buffer: inputs that are results, and states
 * of loops without iterations. The last part may write over the memory in which they lie. */
static deft_status flow_own_cells(flow *f)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < f->plan->n_cells; i++) {
        const df_cell *const c = &f->plan->cells[i];
        cell *const at = &f->cells[i];
        if (!at->data || at->buf || (c->kind == DF_CELL_INPUT && !c->is_root)) continue;
        df_buffer *own = NULL;
        TRY(f->ops->create(f->self, f->d, f->slots[c->bytes.i], &own));
        f->stats->bytes_allocated += (uint64_t)f->slots[c->bytes.i];
        const void *const from = at->data;
        flow_cell_set(at, own);
        TRY(f->ops->copy(f->self, f->d, own->data, from, (size_t)f->slots[c->bytes.i]));
    }
done:
    return st;
}

/* Whether part i may write over inputs. */
static bool flow_may_donate(const flow *f, uint32_t i)
{
    const df_part *const part = &f->plan->parts[i];
    return f->ops->donates && i + 1 == f->plan->n_parts && part->kind == DF_PART_RUN &&
           !part->stores;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void flow_allocate_arrays(flow *f, df_bump *b)
{
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; i < f->plan->n_parts; i++) {
        const df_part *const p = &f->plan->parts[i];
        n_in = most(n_in, most(p->body.trace.n_inputs, p->other.trace.n_inputs));
        n_out = most(n_out, most(p->body.trace.n_roots, p->other.trace.n_roots));
    }
    f->cells = df_bump_take(b, f->plan->n_cells * sizeof *f->cells);
    f->states = df_bump_take(b, n_out * sizeof *f->states);
    f->rows = df_bump_take(b, n_out * sizeof *f->rows);
    f->made = df_bump_take(b, n_out * sizeof *f->made);
    f->into = df_bump_take(b, n_out * sizeof *f->into);
    f->row_of = df_bump_take(b, n_out * sizeof *f->row_of);
    f->starts = df_bump_take(b, n_in * sizeof *f->starts);
    f->ends = df_bump_take(b, n_out * sizeof *f->ends);
    f->inputs = df_bump_take(b, n_in * sizeof *f->inputs);
    f->others = df_bump_take(b, n_in * sizeof *f->others);
    f->bufs = df_bump_take(b, n_in * sizeof *f->bufs);
}

deft_status df_flow_run(const df_flow_ops *ops, void *self, df_diag *d, const df_plan *plan,
                        const df_trace *t, const int64_t *slots, df_launch_io *io,
                        df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    df_run_stats mine = { 0 };
    flow f = { .ops = ops,
               .self = self,
               .d = d,
               .plan = plan,
               .t = t,
               .slots = slots,
               .io = io,
               .stats = &mine };
    df_bump b = { 0 };
    flow_allocate_arrays(&f, &b);
    const size_t size = b.used;
    char *const at = df_mem_zalloc(ops->mem, size + 64);
    if (!at) return df_fail_mem(d, "run", size);
    b = (df_bump){ .at = (char *)(((uintptr_t)at + 63) & ~(uintptr_t)63) };
    flow_allocate_arrays(&f, &b);
    for (uint32_t i = 0; i < plan->n_cells; i++) TRY(set_out(&f, i));
    for (uint32_t i = 0; i < plan->n_parts; i++) {
        if (plan->parts[i].stores)
            TRY(flow_publish_roots(&f)); /* copy results before they are overwritten */
        f.donates = flow_may_donate(&f, i);
        if (f.donates) TRY(flow_own_cells(&f));
        TRY(run_part(&f, &plan->parts[i]));
        for (uint32_t c = 0; c < plan->n_cells && i + 1 < plan->n_parts; c++)
            if (plan->cells[c].last == i) flow_cell_drop(&f.cells[c]);
    }
    if (plan->n_parts == 0 || !plan->parts[plan->n_parts - 1].stores) TRY(flow_publish_roots(&f));
done:
    for (uint32_t r = 0; st != DEFT_OK && r < t->n_roots; r++) df_buffer_drop(&io->root[r]);
    for (uint32_t i = 0; i < plan->n_cells; i++) flow_cell_drop(&f.cells[i]);
    df_buffer_drop(&f.number);
    df_mem_free(ops->mem, at, size + 64);
    if (stats) *stats = mine;
    return st;
}
