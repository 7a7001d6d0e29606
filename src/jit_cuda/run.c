/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a plan on a GPU. In this order, so that all that can fail on the host has failed
 * before memory that outlives the run is written:
 *
 *   buffers   roots, or their donors' memory
 *   frame     that of the latest run where plan, slots and alignments are the same, else laid out
 *             anew, and what it wants compiled
 *   arena     table, temporaries, scratch: one buffer, dropped when all is put in
 *   words     addresses and numbers; the table is put in
 *   launches  put in one after the other; behind the last that a check may fail in, the words of
 *             fault are read, which waits
 *
 * A warm run takes no memory of the host but its roots' headers, and of the GPU its roots and its
 * arena, which come from what was freed before. Only a driver that fails in the middle of launches
 * can leave a run half done; what it had put in is then memory of its own, unless it had already
 * been allowed to write over an input.
 */
#include "jit_cuda/own.h"

#include <string.h>

#include "runtime/flow.h"
#include "runtime/os.h"

enum { ALIGN = 256 };

typedef struct run {
    df_cuda_device *c;
    df_diag *d;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_launch_io *io;
    df_queue *q;
    df_cuda_frame *f;
    df_run_stats stats;
    df_buffer *arena;
    char *table; /* the arena's address, or NULL */
} run;

/* ---- buffers ---- */

static deft_status take_root(run *r, uint32_t i)
{
    deft_status st = DEFT_OK;
    const df_plan_buf *const buf = &r->plan->bufs[i];
    df_buffer **const own = &r->f->own[i];
    *own = df_bind_donated(r->plan, buf, r->t, r->slots, r->io);
    if (*own) {
        r->stats.donated++;
        TRY(df_gpu_used(*own, r->d, r->q));
    } else {
        const int64_t bytes = df_bind_bytes(buf, r->slots);
        TRY(df_gpu_buffer(r->q, r->d, bytes, own));
        r->stats.bytes_allocated += (uint64_t)bytes;
    }
    r->f->origin[i] = (*own)->data;
done:
    return st;
}

/* Of temporaries the origin has their alignment, no more. */
static deft_status take_buffers(run *r)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &r->plan->bufs[i];
        char **const origin = &r->f->origin[i];
        switch ((df_buf_kind)buf->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: *origin = r->t->inputs[buf->index].data; break;
        case DF_BUF_ROOT: TRY(take_root(r, i)); break;
        case DF_BUF_TEMP:
            *origin = (char *)DF_CUDA_NOWHERE + df_bind_region(r->plan, r->slots, buf->index);
            break;
        }
    }
done:
    return st;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) & ~(int64_t)(ALIGN - 1);
}

static deft_status take_arena(run *r)
{
    df_cuda_frame *const f = r->f;
    const int64_t table = aligned((int64_t)(f->table.word.n * sizeof(uint64_t)));
    const int64_t temps = aligned(f->temps_bytes);
    const int64_t bytes = table + temps + f->scratch_bytes;
    char *at = NULL;
    if (bytes > 0) {
        const deft_status st = df_gpu_buffer(r->q, r->d, bytes, &r->arena);
        if (st != DEFT_OK) return st;
        r->stats.bytes_allocated += (uint64_t)bytes;
        at = r->arena->data;
    }
    char **const origin = f->origin + r->plan->n_bufs;
    origin[DF_CUDA_ORIGIN_TABLE] = r->table = at;
    origin[DF_CUDA_ORIGIN_TEMPS] = at + table;
    origin[DF_CUDA_ORIGIN_SCRATCH] = at + table + temps;
    for (uint32_t i = 0; i < r->plan->n_bufs && f->jobs.n > 0; i++)
        if (r->plan->bufs[i].kind == DF_BUF_TEMP)
            f->origin[i] = at + table + df_bind_region(r->plan, r->slots, r->plan->bufs[i].index);
    return DEFT_OK;
}

/* The plan writes only a part of what these hold, and counts on finding the rest. */
static deft_status copy_kept(run *r)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &r->plan->bufs[i];
        if (buf->kind != DF_BUF_ROOT || !buf->keep) continue;
        const char *const from = r->t->inputs[buf->donor].data;
        if (r->f->origin[i] == from) continue; /* taken over */
        TRY(df_queue_copy(r->q, r->d, (uintptr_t)r->f->origin[i], (uintptr_t)from,
                          (size_t)df_bind_bytes(buf, r->slots)));
    }
done:
    return st;
}

/* ---- words ---- */

static void fill(const run *r, df_cuda_words *w)
{
    char *const *const origin = r->f->origin;
    for (size_t i = 0; i < w->fix.n; i++) {
        const df_cuda_fix *const x = &w->fix.at[i];
        w->word.at[x->at] = (uintptr_t)origin[x->origin] + (uint64_t)x->add;
    }
    for (size_t i = 0; i < w->num.n; i++)
        w->word.at[w->num.at[i].at] = (uint64_t)r->t->args[w->num.at[i].arg];
}

static deft_status put_table(run *r)
{
    const df_cuda_words *const t = &r->f->table;
    if (t->word.n == 0) return DEFT_OK;
    return df_queue_put(r->q, r->d, (uintptr_t)r->table, t->word.at,
                        t->word.n * sizeof *t->word.at);
}

/* ---- launches ---- */

static const char *ops_of(const run *r, const df_cuda_step *s)
{
    const df_seg *const seg = &r->plan->segs[s->seg];
    const char *const ops = df_cuda_ops(r->plan, s->kernel);
    if (ops || seg->kind == DF_SEG_KERNEL) return ops;
    return seg->kind == DF_SEG_MATMUL ? "matmul" : df_op_infos[seg->op].name;
}

static deft_status launch_step(run *r, const df_cuda_step *s, df_cu_stream stream)
{
    const char *const ops = ops_of(r, s);
    const bool has_kernel = r->plan->about && s->kernel != DF_NONE;
    const uintptr_t site = has_kernel ? r->plan->about[s->kernel].site : 0;
    if (s->of_job == DF_NONE) return df_cuda_job_run_lt(r->f, r->d, r->c, s, stream);
    void *param[1] = { r->f->params.word.at + s->param };
    const df_cu_result result =
        r->c->driver->launch(s->fn, s->n_blocks, 1, 1, s->n_threads, 1, 1, 0, stream, param, NULL);
    if (result)
        return df_queue_fail(r->q, r->d, result, "cuLaunchKernel of %u blocks of %s", s->n_blocks,
                             ops ? ops : "a kernel");
    const df_note note = { .owner = r->plan->owner,
                           .number = r->plan->number,
                           .site = site ? site : r->plan->site,
                           .ops = ops };
    return df_queue_launched(r->q, r->d, &note);
}

static deft_status report_fault(run *r)
{
    int64_t fault[3];
    const deft_status st = df_queue_get(r->q, r->d, fault, (uintptr_t)r->table, sizeof fault);
    return st == DEFT_OK ? df_bind_fault(r->d, r->t, fault) : st;
}

static bool is_interrupted(const run *r)
{
    const df_launch_io *const io = r->io;
    return (io->waiter && io->waiter->stopped) || io->interrupted(io->user);
}

static deft_status launch_all(run *r)
{
    deft_status st = DEFT_OK;
    const df_plan *const plan = r->plan;
    const df_cu_stream stream = df_queue_stream(r->q);
    char *const *const origin = r->f->origin;
    bool may_stop = r->io->interrupted != NULL;
    const bool kept = (may_stop || plan->checks_first) && df_bind_has_kept(plan, r->t, origin);
    uint32_t n_checked = plan->n_checked, step = r->f->n_first;
    if (plan->checks_first && kept) {
        for (uint32_t i = 0; i < r->f->n_first; i++)
            TRY(launch_step(r, &r->f->steps.at[i], stream));
        TRY(report_fault(r));
    } else if (plan->checks_first) {
        n_checked = plan->n_launches;
    }
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const df_launch *const l = &plan->launches[i];
        if (may_stop && is_interrupted(r))
            TRY(df_fail(r->d, DEFT_E_INTERRUPTED, "interrupted before launch %u of %u", i,
                        plan->n_launches));
        for (; step < r->f->end[i]; step++) TRY(launch_step(r, &r->f->steps.at[step], stream));
        if (i + 1 == n_checked) TRY(report_fault(r));
        if (kept && df_bind_writes_kept(plan, l, r->t, origin)) may_stop = false;
        r->stats.launches += l->n > 0;
        r->stats.segments += l->n;
    }
done:
    return st;
}

static deft_status launch(run *r)
{
    deft_status st = df_gpu_enter(r->c->gpu, r->d);
    if (st != DEFT_OK) return st;
    st = launch_all(r);
    df_gpu_leave(r->c->gpu);
    return st;
}

/* ---- the whole ---- */

static df_cuda_frame *take_frame(const run *r)
{
    df_cuda_plan *const p = r->plan->attached;
    df_cuda_frame *const f = atomic_exchange_explicit(&p->frame, NULL, memory_order_acquire);
    return f ? f : df_cuda_frame_create(r->c->mem, r->plan);
}

static void give_frame(const run *r)
{
    df_cuda_plan *const p = r->plan->attached;
    df_cuda_frame *old = atomic_exchange_explicit(&p->frame, r->f, memory_order_acq_rel);
    df_cuda_frame_destroy(r->c->mem, &old);
}

static void hand_out(run *r)
{
    for (uint32_t i = 0; i < r->plan->n_roots; i++) {
        const uint32_t b = r->plan->root_buf[i];
        if (b == DF_NONE || r->plan->bufs[b].kind != DF_BUF_ROOT) continue;
        r->io->root[i] = df_buffer_ref(r->f->own[b]);
    }
}

static deft_status run_kernels(run *r)
{
    deft_status st = DEFT_OK;
    df_cuda_frame *const f = r->f;
    const uint64_t start = r->c->measure ? df_os_now_ns() : 0;
    TRY(take_buffers(r));
    if (!df_cuda_frame_fits(f, r->plan, r->slots)) {
        TRY(df_cuda_frame_lay_out(f, r->d, r->c, r->plan, r->t, r->slots));
        TRY(df_cuda_frame_load(f, r->d, r->c, r->plan, r->io->waiter));
    }
    TRY(take_arena(r));
    fill(r, &f->table);
    fill(r, &f->params);
    TRY(df_cuda_jobs_fill(f, r->d, r->t, r->slots));
    TRY(copy_kept(r));
    TRY(put_table(r));
    const uint64_t bound = r->c->measure ? df_os_now_ns() : 0;
    TRY(launch(r));
    if (r->c->measure) {
        r->stats.t_bind_ns = bound - start;
        r->stats.t_run_ns = df_os_now_ns() - bound;
    }
    hand_out(r);
done:
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) df_buffer_drop(&f->own[i]);
    df_buffer_drop(&r->arena);
    return st;
}

static deft_status run_plan(df_cuda_device *c, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    run r = {
        .c = c, .d = d, .plan = plan, .t = t, .slots = slots, .io = io, .q = (df_queue *)io->queue
    };
    r.f = take_frame(&r);
    if (!r.f) return df_fail_mem(d, "run", sizeof *r.f);
    const deft_status st = run_kernels(&r);
    give_frame(&r);
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
