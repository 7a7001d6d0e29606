/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins the plans of parts into one plan without parts, a flat plan.
 *
 * A loop that is one kernel needs no host to run it. When all loops of a trace are such kernels,
 * all parts are run parts, and their launches can follow each other in one plan:
 *
 *        part 0   launches 0 1 2  --cell-->  part 1   launch 0  --cell-->  part 2   launches 0 1
 *
 *        flat     launches 0 1 2 ............. 3 ........................ 4 5
 *                                  temporary          temporary
 *
 * A cell becomes a temporary, or the buffer of the root that it holds. So a run allocates
 * everything before its first launch, as runs of other flat plans do. Only this permits donation,
 * because a step that fails must leave all tensors as they were
 * (docs/decisions/steps-are-transactions.md).
 *
 * A part may donate an input or a cell only when no later part reads it (df_outline_extract). Its
 * own plan proves that all reads within the part come before the write. A part that updates a cell
 * in place writes to the buffer of the cell. So a chain of updates over several parts has one
 * buffer.
 */
#include "fuser/control/outline.h"

#include <string.h>

typedef struct flattener {
    outline *o;
    pass *p;        /* of the flat plan */
    df_buf *cell;   /* per cell: its buffer, when a part has made it; else DF_NO_BUF */
    df_buf *input;  /* per input of the trace: the buffer through which it is read, or DF_NO_BUF */
    uint32_t *root; /* per cell: the first root of the trace that it holds, or DF_NONE */

    /* Of the current part: */
    const df_part *part;
    const df_plan *plan;
    df_buf *buf;     /* per buffer of `plan`: its buffer in the flat plan, or DF_NO_BUF */
    df_kern *kernel; /* per kernel of `plan`: the kernel of the flat plan */
    uint32_t launch0, seg0, from0;
} flattener;

/* ---- which plans ---- */

/* Whether a run can find the buffer of each port, and fill it. */
static bool has_plain_ports(const outline *o, const df_subplan *b)
{
    for (uint32_t i = 0; i < b->trace.n_inputs; i++) {
        const df_port *const port = &b->port[i];
        if (port->kind == DF_PORT_INPUT || port->kind == DF_PORT_EXTENTS) continue;
        if (port->kind != DF_PORT_CELL) return false;
        const uint32_t kind = o->cells.at[port->index].kind;
        if (kind != DF_CELL_INPUT && kind != DF_CELL_PART) return false;
    }
    return true;
}

bool df_outline_may_flatten(const outline *o)
{
    const df_trace *const t = o->t;
    bool has_checks = false;
    for (size_t i = o->parts.n; i-- > 0;) { /* in the order in which they run */
        const df_part *const part = &o->parts.at[i];
        const df_plan *const plan = part->body.plan;
        if (part->kind != DF_PART_RUN || plan->root_cell || !has_plain_ports(o, &part->body))
            return false;
        if (plan->n_checked == 0 && !plan->checks_first) continue;
        /* Checks report numbers of the list of faults of their own plan, and there is one list. An
         * index that a part before has computed cannot be checked first. */
        if (has_checks || (plan->checks_first && i + 1 != o->parts.n)) return false;
        has_checks = true;
    }
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t c = o->p->plan->root_cell[r];
        if (c != DF_NONE && o->cells.at[c].kind != DF_CELL_PART) return false;
    }
    return true;
}

/* ---- numbers of a part, and of the flat plan ---- */

static df_slot flat_slot(const flattener *f, df_slot s)
{
    df_assert(s.i < f->plan->n_slots);
    return (df_slot){ s.i + f->part->body.slot0 };
}

static void flat_slots(const flattener *f, df_slot *s, size_t n)
{
    for (size_t i = 0; i < n; i++) s[i] = flat_slot(f, s[i]);
}

static void flat_bind(const flattener *f, df_bind *b)
{
    if (b->buf.i != DF_NONE) b->buf = f->buf[b->buf.i];
    b->offset = flat_slot(f, b->offset);
    flat_slots(f, b->stride, DF_MAX_AXES);
}

/* ---- buffers ---- */

static df_buf flat_add_buf(flattener *f, df_plan_buf b)
{
    if (df_vec_push(f->p->mem, &f->p->bufs, b)) return (df_buf){ (uint32_t)f->p->bufs.n - 1 };
    f->p->st = df_fail_mem(f->p->diag, "fuser", sizeof b);
    return DF_NO_BUF;
}

/* The buffer through which input `index` of the trace is read. b: the same of the part. */
static df_buf flat_input(flattener *f, uint32_t index, df_plan_buf b)
{
    if (f->input[index].i == DF_NONE) {
        b.index = index;
        b.numel = flat_slot(f, b.numel);
        f->input[index] = flat_add_buf(f, b);
    }
    return f->input[index];
}

/* The buffer of input b of the part. */
static df_buf flat_port(flattener *f, const df_plan_buf *b)
{
    const df_port *const port = &f->part->body.port[b->index];
    if (port->kind == DF_PORT_INPUT) return flat_input(f, port->index, *b);
    if (port->kind == DF_PORT_EXTENTS) return DF_NO_BUF;
    const df_cell *const c = &f->o->cells.at[port->index];
    if (c->kind == DF_CELL_INPUT) return flat_input(f, c->from, *b);
    df_assert(f->cell[port->index].i != DF_NONE); /* an earlier part made it */
    return f->cell[port->index];
}

/* The input of the trace that input i of the part is; DF_NONE: i is DF_NONE. */
static uint32_t flat_donor(const flattener *f, uint32_t i)
{
    if (i == DF_NONE) return DF_NONE;
    df_assert(f->part->body.port[i].kind == DF_PORT_INPUT);
    return f->part->body.port[i].index;
}

/* The cell whose memory the part writes over, if root buffer b is such a cell updated in place;
 * else DF_NONE. */
static uint32_t flat_cell_under(const flattener *f, const df_plan_buf *b)
{
    if (b->donor == DF_NONE || f->part->body.port[b->donor].kind != DF_PORT_CELL) return DF_NONE;
    return f->part->body.port[b->donor].index;
}

/* Root buffer i of the part. It is a root of the trace when one of its cells is, or when a later
 * part makes such a cell in its memory. */
static df_buf flat_made(flattener *f, uint32_t i)
{
    df_plan_buf b = f->plan->bufs[i];
    uint32_t root = DF_NONE;
    for (uint32_t r = f->plan->n_roots; r-- > 0;) {
        const uint32_t cell = f->part->out[r];
        if (f->plan->root_buf[r].i == i && f->root[cell] != DF_NONE) root = f->root[cell];
    }
    const uint32_t under = flat_cell_under(f, &b);
    df_buf made;
    if (under == DF_NONE) {
        b.kind = root == DF_NONE && b.donor == DF_NONE ? DF_BUF_TEMP : DF_BUF_ROOT;
        b.index = root;
        b.numel = flat_slot(f, b.numel);
        b.donor = flat_donor(f, b.donor);
        b.first += f->launch0;
        b.last += f->launch0;
        made = flat_add_buf(f, b);
    } else {
        made = f->cell[under];
        df_plan_buf *const there = &f->p->bufs.at[made.i];
        if (root != DF_NONE) there->kind = DF_BUF_ROOT, there->index = root;
        if (f->launch0 + b.last > there->last) there->last = f->launch0 + b.last;
    }
    for (uint32_t r = 0; r < f->plan->n_roots; r++)
        if (f->plan->root_buf[r].i == i) f->cell[f->part->out[r]] = made;
    return made;
}

static deft_status flat_buffers(flattener *f)
{
    f->buf = df_arena_new(&f->p->tmp, df_buf, f->plan->n_bufs);
    if (!f->buf) return df_outline_no_memory(f->o);
    for (uint32_t i = 0; i < f->plan->n_bufs; i++) {
        df_plan_buf b = f->plan->bufs[i];
        switch ((df_buf_kind)b.kind) {
        case DF_BUF_INPUT: f->buf[i] = flat_port(f, &b); continue;
        case DF_BUF_ROOT: f->buf[i] = flat_made(f, i); continue;
        case DF_BUF_INTO: b.index = flat_donor(f, b.index); break;
        case DF_BUF_TEMP: b.index = DF_NONE; break;
        }
        df_assert(b.over.i == DF_NONE || b.over.i < i);
        if (b.over.i != DF_NONE) b.over = f->buf[b.over.i];
        b.numel = flat_slot(f, b.numel);
        b.first += f->launch0;
        b.last += f->launch0;
        f->buf[i] = flat_add_buf(f, b);
    }
    return f->p->st;
}

/* ---- kernels and segments ---- */

static bool same_key(const df_key *a, const df_key *b)
{
    return df_hash_equal(a->hash, b->hash) && a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static deft_status flat_kernels(flattener *f)
{
    pass *const p = f->p;
    f->kernel = df_arena_new(&p->tmp, df_kern, f->plan->n_kernels);
    if (!f->kernel) return df_outline_no_memory(f->o);
    for (uint32_t i = 0; i < f->plan->n_kernels; i++) {
        const df_kernel *const k = &f->plan->kernels[i];
        uint32_t at = 0;
        while (at < p->kernels.n && !same_key(&p->kernels.at[at].key, &k->key)) at++;
        f->kernel[i] = (df_kern){ at };
        if (at < p->kernels.n) continue;
        df_kernel copy;
        void *const room = df_arena_alloc(&p->plan->arena, df_kernel_storage_size(k), 16);
        if (!room) return df_outline_no_memory(f->o);
        df_kernel_copy(&copy, k, room);
        if (!df_vec_push(p->mem, &p->kernels, copy)) return df_outline_no_memory(f->o);
    }
    return p->st;
}

/* Extends the live range of a buffer to the launch that reads it. */
static void flat_lives_at(const flattener *f, df_buf buf, uint32_t launch)
{
    if (buf.i == DF_NONE) return;
    df_plan_buf *const b = &f->p->bufs.at[buf.i];
    if (b->kind != DF_BUF_INPUT && b->kind != DF_BUF_INTO && launch > b->last) b->last = launch;
}

/* Copies what a segment binds to its kernel. */
static deft_status flat_operands(flattener *f, df_seg *s, const df_kernel *k, uint32_t launch)
{
    df_arena *const arena = &f->p->plan->arena;
    df_bind *const bind = df_arena_copy(arena, s->bind, k->n_access * sizeof *bind, 8);
    uint32_t *const num = df_arena_copy(arena, s->num, k->n_num * sizeof *num, 8);
    s->num_dtype = df_arena_copy(arena, s->num_dtype, k->n_num, 1);
    if (!bind || !num || !s->num_dtype) return df_outline_no_memory(f->o);
    for (uint32_t i = 0; i < k->n_access; i++) {
        flat_bind(f, &bind[i]);
        flat_lives_at(f, bind[i].buf, launch);
    }
    for (uint32_t i = 0; i < k->n_num; i++)
        if (num[i] & DF_NUM_IS_SLOT)
            num[i] = flat_slot(f, (df_slot){ num[i] & ~DF_NUM_IS_SLOT }).i | DF_NUM_IS_SLOT;
    s->bind = bind;
    s->num = num;
    return DEFT_OK;
}

static deft_status flat_windows(flattener *f, df_seg *s)
{
    df_arena *const arena = &f->p->plan->arena;
    df_windows *const w = df_arena_copy(arena, s->windows, sizeof *w, 8);
    df_slot *const tap =
        df_arena_copy(arena, s->windows->tap, 2 * s->windows->n_taps * sizeof *tap, 8);
    if (!w || !tap) return df_outline_no_memory(f->o);
    flat_slots(f, tap, 2 * (size_t)w->n_taps);
    flat_slots(f, w->step, 2);
    flat_slots(f, w->before, 2);
    flat_slots(f, w->extent, 2);
    flat_slots(f, w->out, 2);
    w->tap = tap;
    s->windows = w;
    return DEFT_OK;
}

static void flat_call_operands(const flattener *f, df_call_operand *x, uint32_t n, uint32_t launch)
{
    for (uint32_t i = 0; i < n; i++) {
        flat_bind(f, &x[i].bind);
        flat_lives_at(f, x[i].bind.buf, launch);
        flat_slots(f, x[i].extent, x[i].rank);
    }
}

static deft_status flat_call(flattener *f, df_seg *s, uint32_t launch)
{
    df_arena *const arena = &f->p->plan->arena;
    df_seg_call *const c = df_arena_copy(arena, s->call, sizeof *c, 8);
    if (!c) return df_outline_no_memory(f->o);
    c->in = df_arena_copy(arena, c->in, c->n_in * sizeof *c->in, 8);
    c->out = df_arena_copy(arena, c->out, c->n_out * sizeof *c->out, 8);
    if (!c->in || !c->out) return df_outline_no_memory(f->o);
    flat_call_operands(f, c->in, c->n_in, launch);
    flat_call_operands(f, c->out, c->n_out, launch);
    s->call = c;
    return DEFT_OK;
}

static deft_status flat_seg(flattener *f, const df_seg *seg, uint32_t launch)
{
    deft_status st = DEFT_OK;
    df_seg s = *seg;
    const df_kernel *const k = df_seg_kernel(f->plan, seg);
    if (k) {
        s.kernel = f->kernel[seg->kernel.i];
        flat_slots(f, s.extent, k->n_axes);
        TRY(flat_operands(f, &s, k, launch));
    }
    if (s.kind != DF_SEG_KERNEL) {
        flat_bind(f, &s.a);
        flat_bind(f, &s.b);
        flat_bind(f, &s.c);
        flat_lives_at(f, s.a.buf, launch);
        flat_lives_at(f, s.b.buf, launch);
        flat_lives_at(f, s.c.buf, launch);
        s.m = flat_slot(f, s.m);
        s.n = flat_slot(f, s.n);
        s.k = flat_slot(f, s.k);
        flat_slots(f, s.batch, DEFT_MAX_RANK);
        if (s.windows) TRY(flat_windows(f, &s));
        if (s.call) TRY(flat_call(f, &s, launch));
    }
    s.from += f->from0;
    if (!df_vec_push(f->p->mem, &f->p->segs, s)) TRY(df_outline_no_memory(f->o));
done:
    return st;
}

static deft_status flat_launches(flattener *f)
{
    deft_status st = DEFT_OK;
    pass *const p = f->p;
    for (uint32_t l = 0; l < f->plan->n_launches; l++) {
        df_launch launch = f->plan->launches[l];
        for (uint32_t i = launch.first; i < launch.first + launch.n; i++)
            TRY(flat_seg(f, &f->plan->segs[i], f->launch0 + l));
        launch.first += f->seg0;
        if (!df_vec_push(p->mem, &p->launches, launch)) TRY(df_outline_no_memory(f->o));
    }
    for (uint32_t i = 0; i < f->plan->n_from; i++)
        if (!df_vec_push(p->mem, &p->from, f->plan->from[i])) TRY(df_outline_no_memory(f->o));
done:
    return st;
}

/* ---- parts ---- */

/* Takes over the checks of the only part that has any. */
static deft_status flat_checks(flattener *f)
{
    df_plan *const flat = f->p->plan;
    if (f->plan->n_checked == 0 && !f->plan->checks_first) return DEFT_OK;
    flat->n_checked = f->plan->n_checked ? f->launch0 + f->plan->n_checked : 0;
    flat->n_faults = f->plan->n_faults;
    flat->faults =
        df_arena_copy(&flat->arena, f->plan->faults, f->plan->n_faults * sizeof *flat->faults, 8);
    return flat->faults ? DEFT_OK : df_outline_no_memory(f->o);
}

static deft_status flatten_part(flattener *f, const df_part *part)
{
    deft_status st = DEFT_OK;
    f->part = part;
    f->plan = part->body.plan;
    f->launch0 = (uint32_t)f->p->launches.n;
    f->seg0 = (uint32_t)f->p->segs.n;
    f->from0 = (uint32_t)f->p->from.n;
    TRY(flat_buffers(f));
    TRY(flat_kernels(f));
    TRY(flat_launches(f));
    TRY(flat_checks(f));
done:
    return st;
}

/* Sets plan->root_buf. Only the last part writes into memory of the caller, in the order of the
 * roots. */
static deft_status flat_roots(flattener *f)
{
    df_plan *const plan = f->p->plan;
    const df_trace *const t = f->o->t;
    uint32_t n_into = 0;
    plan->n_roots = t->n_roots;
    plan->root_buf = df_arena_new(&plan->arena, df_buf, t->n_roots);
    if (!plan->root_buf) return df_outline_no_memory(f->o);
    for (uint32_t r = 0; r < t->n_roots; r++)
        plan->root_buf[r] = t->roots[r].kind == DF_ROOT_NEW ? f->cell[plan->root_cell[r]]
                                                            : f->buf[f->plan->root_buf[n_into++].i];
    plan->root_cell = NULL;
    return DEFT_OK;
}

/* The plans of the parts end after this. */
static deft_status keep_reasons(outline *o)
{
    for (size_t i = 0; i < o->p->whys.n; i++) {
        df_why *const w = &o->p->whys.at[i];
        w->reason = df_arena_strdup(&o->p->plan->arena, w->reason);
        if (!w->reason) return df_outline_no_memory(o);
    }
    return DEFT_OK;
}

deft_status df_outline_flatten(outline *o)
{
    deft_status st = DEFT_OK;
    df_arena *const tmp = &o->p->tmp;
    df_plan *const plan = o->p->plan;
    flattener f = { .o = o, .p = o->p };
    f.cell = df_arena_new(tmp, df_buf, o->cells.n + 1);
    f.root = df_arena_new(tmp, uint32_t, o->cells.n + 1);
    f.input = df_arena_new(tmp, df_buf, o->t->n_inputs + 1);
    if (!f.cell || !f.root || !f.input) TRY(df_outline_no_memory(o));
    for (size_t c = 0; c < o->cells.n; c++) {
        f.cell[c] = DF_NO_BUF;
        f.root[c] = DF_NONE;
    }
    for (uint32_t i = 0; i < o->t->n_inputs; i++) f.input[i] = DF_NO_BUF;
    for (uint32_t r = o->t->n_roots; r-- > 0;)
        if (plan->root_cell[r] != DF_NONE) f.root[plan->root_cell[r]] = r;
    plan->n_checked = 0; /* so far, the greatest number of any part */
    for (size_t i = o->parts.n; i-- > 0;) TRY(flatten_part(&f, &o->parts.at[i]));
    TRY(flat_roots(&f));
    TRY(df_fuse_regions(o->p));
    TRY(keep_reasons(o));
done:
    return st;
}
