/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan on a GPU. Every failure on the host happens before memory that outlives the
 * run is written. So a run begins in this order:
 *
 *   buffers   roots, or the memory of their donors
 *   layout    a kept one, when plan, slots and alignments are equal. Otherwise it is built, and the
 *             functions that it lacks are compiled.
 *
 * Then the run is enqueued as launches (call.c) or as a graph (graphs.c). A run with a kept
 * layout allocates no memory of the host but the headers of its roots. Its GPU memory,
 * roots and arena, comes from the cache of freed blocks. Plans with loops and branches run
 * part by part.
 */
#include "jit_cuda/graphs/graph.h"

#include "jit_cuda/exec/table.h"
#include "jit_cuda/graphs/conditional.h"

typedef df_cuda_call run;

/* ---- plans of kernels ---- */

/* Sets the memory of a root to that of its donor. Without a donor the root is allocated
 * later. */
static deft_status take_over(run *r, uint32_t i)
{
    df_buffer **const own = &r->f->own[i];
    *own = df_bind_donated(r->plan, &r->plan->bufs[i], r->t, r->slots, r->io);
    r->f->origin[i] = *own ? (*own)->data : (char *)DF_CUDA_NOWHERE;
    if (!*own) return DEFT_OK;
    r->stats.donated++;
    return df_gpu_used(*own, r->d, r->q);
}

/* Sets the origin of each buffer. A buffer without memory gets an address of its alignment.
 * For a temporary nothing else is needed. */
static deft_status take_buffers(run *r)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &r->plan->bufs[i];
        char **const origin = &r->f->origin[i];
        switch ((df_buf_kind)buf->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: *origin = r->t->inputs[buf->index].data; break;
        case DF_BUF_ROOT: TRY(take_over(r, i)); break;
        case DF_BUF_TEMP:
            *origin =
                (char *)DF_CUDA_NOWHERE + df_plan_region_offset(r->plan, r->slots, buf->index);
            break;
        }
    }
done:
    return st;
}

static void hand_out(run *r)
{
    for (uint32_t i = 0; i < r->plan->n_roots; i++) {
        const df_buf b = r->plan->root_buf[i];
        if (b.i == DF_NONE || r->plan->bufs[b.i].kind != DF_BUF_ROOT) continue;
        r->io->root[i] = df_buffer_ref(r->f->own[b.i]);
    }
}

static deft_status lay_out_so(run *r, df_diag *d)
{
    deft_status st = DEFT_OK;
    TRY(df_cuda_run_layout_build(r->f, d, r->c, df_gpu_facts_of(r->c->gpu), r->plan, r->t, r->slots,
                                 r->by_table));
    TRY(df_cuda_run_layout_load(r->f, d, r->c, r->plan, r->io->waiter));
done:
    return st;
}

/* Builds the layout, by value when a table was wanted and cannot be had. */
static deft_status lay_out(run *r)
{
    df_diag why = { 0 };
    if (!r->by_table) return lay_out_so(r, r->d);
    if (lay_out_so(r, &why) == DEFT_OK) return DEFT_OK;
    df_cuda_table_refuse(r->plan->attached, r->c->log, &why);
    r->by_table = false;
    return lay_out_so(r, r->d);
}

static deft_status run_kernels(run *r, df_cuda_graphs *graphs)
{
    deft_status st = DEFT_OK;
    df_cuda_run_layout *const f = r->f;
    TRY(take_buffers(r));
    if (!df_cuda_run_layout_fits(f, r->plan, r->slots, r->by_table) ||
        df_cuda_run_layout_is_outdated(f, r->c))
        TRY(lay_out(r));
    TRY(graphs ? df_cuda_graphs_run(graphs, r) : df_cuda_call_plain(r));
    hand_out(r);
done:
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) df_buffer_drop(&f->own[i]);
    return st;
}

static deft_status run_plan(df_cuda_device *c, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    run r = {
        .c = c, .d = d, .plan = plan, .t = t, .slots = slots, .io = io, .q = (df_queue *)io->queue
    };
    df_cuda_graphs *const graphs = df_cuda_graphs_of(c, r.q);
    r.by_table = graphs && df_cuda_graphs_want_table(graphs, plan);
    r.f = df_cuda_call_take_frame(&r);
    if (!r.f) return df_fail_mem(d, "run", sizeof *r.f);
    const deft_status st = run_kernels(&r, graphs);
    df_cuda_call_give_frame(&r, r.f);
    if (stats) *stats = r.stats;
    return st;
}

/* ---- plans of parts ---- */

typedef struct flow_self {
    df_cuda_device *c;
    df_queue *q;
} flow_self;

static deft_status flow_run(void *self, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    return df_cuda_run(((flow_self *)self)->c, d, plan, t, slots, io, stats);
}

static deft_status flow_run_tagged(void *self, df_diag *d, const df_plan *plan, const df_part *part,
                                   const int64_t *slots, void *const *in, void *const *out,
                                   bool *done)
{
    const flow_self *const s = self;
    return df_cuda_run_tagged(s->c, s->q, d, plan, part, slots, in, out, done);
}

static deft_status flow_run_whole(void *self, df_diag *d, const df_flow_construct *w, bool *done)
{
    const flow_self *const s = self;
    return df_cuda_run_conditional(s->c, s->q, d, w, done);
}

static deft_status flow_create(void *self, df_diag *d, int64_t bytes, df_buffer **out)
{
    return df_gpu_buffer(((flow_self *)self)->q, d, bytes, out);
}

static deft_status flow_copy(void *self, df_diag *d, void *to, const void *from, size_t bytes)
{
    return df_queue_copy(((flow_self *)self)->q, d, (uintptr_t)to, (uintptr_t)from, bytes);
}

static deft_status flow_put(void *self, df_diag *d, void *to, uint64_t bits, size_t bytes)
{
    return df_queue_put(((flow_self *)self)->q, d, (uintptr_t)to, &bits, bytes);
}

static deft_status flow_holds(void *self, df_diag *d, const void *at, bool *out)
{
    uint8_t b = 0;
    const deft_status st = df_queue_get(((flow_self *)self)->q, d, &b, (uintptr_t)at, sizeof b);
    *out = b != 0;
    return st;
}

deft_status df_cuda_run(df_cuda_device *c, df_diag *d, const df_plan *plan, const df_trace *t,
                        const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    flow_self self = { c, (df_queue *)io->queue };
    const df_flow_ops ops = { .mem = c->mem,
                              .run = flow_run,
                              .run_tagged = flow_run_tagged,
                              .run_whole = flow_run_whole,
                              .create = flow_create,
                              .copy = flow_copy,
                              .put = flow_put,
                              .holds = flow_holds };
    const df_cuda_plan *const p = plan->attached;
    if (!self.q) return df_fail(d, DEFT_E_ARG, "%s: a run without a queue", c->name);
    if (p->on_host) return df_cuda_run_on_host(c, d, plan, t, slots, io, stats);
    if (!plan->root_cell) return run_plan(c, d, plan, t, slots, io, stats);
    return df_flow_run(&ops, &self, d, plan, t, slots, io, stats);
}
