/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a plan without parts, by launches, and the steps that a graph of it shares: memory,
 * words, phases and checks.
 *
 *   arena     table, temporaries, scratch: one buffer, dropped when all launches are enqueued
 *   words     addresses and numbers; the table is copied to the GPU
 *   launches  enqueued one after the other; behind the last that a check may fail in, the words of
 *             fault are read, which waits
 *
 * Only a driver that fails in the middle of the launches can leave a run half done. What the run
 * had enqueued then writes memory of its own, unless the run had been allowed to write over an
 * input.
 */
#include "jit_cuda/exec/call.h"

#include <string.h>

#include "runtime/os.h"

enum { ALIGN = 256 };

typedef df_cuda_call run;

/* ---- buffers ---- */

bool df_cuda_call_wants(const run *r, df_buf buf)
{
    return r->plan->bufs[buf.i].kind == DF_BUF_ROOT && !r->f->own[buf.i];
}

deft_status df_cuda_call_new_root(run *r, df_buf buf)
{
    const int64_t bytes = df_bind_bytes(&r->plan->bufs[buf.i], r->slots);
    const deft_status st = df_gpu_buffer(r->q, r->d, bytes, &r->f->own[buf.i]);
    if (st != DEFT_OK) return st;
    r->stats.bytes_allocated += (uint64_t)bytes;
    r->f->origin[buf.i] = r->f->own[buf.i]->data;
    return DEFT_OK;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) & ~(int64_t)(ALIGN - 1);
}

static int64_t bytes_of(const df_cuda_run_layout *f, size_t n_words)
{
    return aligned((int64_t)(n_words * sizeof(uint64_t))) + aligned(f->temps_bytes) +
           f->scratch_bytes;
}

int64_t df_cuda_call_arena_bytes(const run *r)
{
    return bytes_of(r->f, r->f->table.word.n + r->f->n_spare);
}

int64_t df_cuda_call_least_bytes(const run *r)
{
    return bytes_of(r->f, r->f->table.word.n);
}

static void aim_arena(run *r, char *at)
{
    df_cuda_run_layout *const f = r->f;
    const int64_t table = aligned((int64_t)(f->table.word.n * sizeof(uint64_t)));
    char **const origin = f->origin + r->plan->n_bufs;
    origin[DF_CUDA_ORIGIN_TABLE] = r->table = at;
    origin[DF_CUDA_ORIGIN_TEMPS] = at + table;
    origin[DF_CUDA_ORIGIN_SCRATCH] = at + table + aligned(f->temps_bytes);
    for (uint32_t i = 0; i < r->plan->n_bufs && f->jobs.n > 0; i++)
        if (r->plan->bufs[i].kind == DF_BUF_TEMP)
            f->origin[i] =
                at + table + df_plan_region_offset(r->plan, r->slots, r->plan->bufs[i].index);
}

static deft_status take_arena(run *r)
{
    const int64_t bytes = df_cuda_call_least_bytes(r);
    if (bytes == 0) return DEFT_OK;
    const deft_status st = df_gpu_buffer(r->q, r->d, bytes, &r->arena);
    if (st == DEFT_OK) r->stats.bytes_allocated += (uint64_t)bytes;
    return st;
}

/* Lists the copies for roots of which the plan writes only a part. The plan expects the
 * rest to hold the donor's contents. */
static deft_status note_kept(run *r)
{
    r->f->copies.n = 0;
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        const df_plan_buf *const buf = &r->plan->bufs[i];
        if (buf->kind != DF_BUF_ROOT || !buf->keep) continue;
        const char *const from = r->t->inputs[buf->donor].data;
        const df_cuda_copy copy = { .buf = i,
                                    .bytes = (size_t)df_bind_bytes(buf, r->slots),
                                    .to = (uintptr_t)r->f->origin[i],
                                    .from = (uintptr_t)from };
        if (copy.to == copy.from || copy.bytes == 0) continue; /* the donor's memory was donated */
        if (!df_vec_push(r->c->mem, &r->f->copies, copy))
            return df_fail_mem(r->d, "run", sizeof copy);
    }
    return DEFT_OK;
}

static deft_status copy_kept(run *r)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->f->copies.n && st == DEFT_OK; i++) {
        const df_cuda_copy *const c = &r->f->copies.at[i];
        st = df_queue_copy(r->q, r->d, c->to, c->from, c->bytes);
    }
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

deft_status df_cuda_call_fill(run *r, char *arena)
{
    aim_arena(r, arena);
    fill(r, &r->f->table);
    fill(r, &r->f->params);
    const deft_status st = df_cuda_jobs_fill(r->f, r->d, r->t, r->slots);
    return st == DEFT_OK ? note_kept(r) : st;
}

deft_status df_cuda_call_put_table(run *r)
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
    const bool has_kernel = r->plan->about && s->kernel.i != DF_NONE;
    const uintptr_t site = has_kernel ? r->plan->about[s->kernel.i].site : 0;
    if (s->of_job == DF_NONE) return df_cuda_job_run_lt(r->f, r->d, r->c, s, stream);
    void *param[1] = { r->f->params.word.at + s->param };
    const df_cu_result result = r->c->driver->launch(s->fn, s->n_blocks, 1, 1, s->n_threads, 1, 1,
                                                     s->shared, stream, param, NULL);
    if (result)
        return df_queue_fail(r->q, r->d, result, "cuLaunchKernel of %u blocks of %s", s->n_blocks,
                             ops ? ops : "a kernel");
    const df_launch_note note = { .owner = r->plan->owner,
                                  .number = r->plan->number,
                                  .site = site ? site : r->plan->site,
                                  .ops = ops };
    return df_queue_launched(r->q, r->d, &note);
}

deft_status df_cuda_call_fault(run *r)
{
    int64_t fault[3];
    const deft_status st = df_queue_get(r->q, r->d, fault, (uintptr_t)r->table, sizeof fault);
    return st == DEFT_OK ? df_bind_fault(r->d, r->plan, r->t, fault) : st;
}

bool df_cuda_call_is_interrupted(const run *r)
{
    const df_launch_io *const io = r->io;
    return io->interrupted && ((io->waiter && io->waiter->stopped) || io->interrupted(io->user));
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
        TRY(df_cuda_call_fault(r));
    } else if (plan->checks_first) {
        n_checked = plan->n_launches;
    }
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const df_launch *const l = &plan->launches[i];
        if (may_stop && df_cuda_call_is_interrupted(r))
            TRY(df_fail(r->d, DEFT_E_INTERRUPTED, "interrupted before launch %u of %u", i,
                        plan->n_launches));
        for (; step < r->f->end[i]; step++) TRY(launch_step(r, &r->f->steps.at[step], stream));
        if (i + 1 == n_checked) TRY(df_cuda_call_fault(r));
        if (kept && df_bind_writes_kept(plan, l, r->t, origin)) may_stop = false;
        r->stats.launches += l->n > 0;
        r->stats.segments += l->n;
    }
done:
    return st;
}

static void add_phase(df_cuda_run_layout *f, uint32_t *begin, uint32_t end, bool is_checked)
{
    if (*begin == end && !is_checked) return;
    f->phase[f->n_phases++] = (df_cuda_phase){ *begin, end, is_checked };
    *begin = end;
}

/* Divides the steps into phases in the way in which launch_all runs them. */
void df_cuda_call_divide(run *r)
{
    const df_plan *const plan = r->plan;
    df_cuda_run_layout *const f = r->f;
    const bool first = plan->checks_first && df_bind_has_kept(plan, r->t, f->origin);
    const uint32_t n = plan->checks_first && !first ? plan->n_launches : plan->n_checked;
    uint32_t begin = first ? 0 : f->n_first;
    f->n_phases = 0;
    if (first) add_phase(f, &begin, f->n_first, true);
    if (n > 0) add_phase(f, &begin, f->end[n - 1], true);
    add_phase(f, &begin, (uint32_t)f->steps.n, false);
}

static deft_status launch(run *r)
{
    deft_status st = df_gpu_enter(r->c->gpu, r->d);
    if (st != DEFT_OK) return st;
    st = launch_all(r);
    df_gpu_leave(r->c->gpu);
    return st;
}

/* ---- run layouts of a plan ---- */

static df_cuda_run_layout *take_out(df_cuda_plan *p, uint32_t i)
{
    return atomic_exchange_explicit(&p->frame[i], NULL, memory_order_acquire);
}

/* Stores f in a free entry. Returns false when another run has stored one there. */
static bool put_in(df_cuda_plan *p, uint32_t i, df_cuda_run_layout *f)
{
    df_cuda_run_layout *none = NULL;
    return atomic_compare_exchange_strong_explicit(&p->frame[i], &none, f, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static bool is_for(const df_cuda_run_layout *f, const run *r)
{
    return f->is_laid_out && f->by_table == r->by_table &&
           memcmp(f->slots, r->slots, r->plan->n_slots * sizeof *r->slots) == 0;
}

void df_cuda_call_give_frame(const run *r, df_cuda_run_layout *f)
{
    df_cuda_plan *const p = r->plan->attached;
    for (uint32_t i = 0; i < DF_CUDA_FRAMES; i++)
        if (put_in(p, i, f)) return;
    df_cuda_run_layout_destroy(r->c->mem, &f);
}

/* Takes a run layout with equal slots and by_table. When all entries are in use by other
 * sizes, the entries are replaced in turn. Returns NULL when memory runs out. */
df_cuda_run_layout *df_cuda_call_take_frame(const run *r)
{
    df_cuda_plan *const p = r->plan->attached;
    df_cuda_run_layout *f = NULL;
    for (uint32_t i = 0; i < DF_CUDA_FRAMES; i++) {
        f = take_out(p, i);
        if (!f) return df_cuda_run_layout_create(r->c->mem, r->plan);
        if (is_for(f, r)) return f;
        if (!put_in(p, i, f)) df_cuda_run_layout_destroy(r->c->mem, &f);
    }
    f = take_out(p,
                 atomic_fetch_add_explicit(&p->n_taken, 1, memory_order_relaxed) % DF_CUDA_FRAMES);
    return f ? f : df_cuda_run_layout_create(r->c->mem, r->plan);
}

deft_status df_cuda_call_plain(run *r)
{
    deft_status st = DEFT_OK;
    const uint64_t start = r->c->measure ? df_os_now_ns() : 0;
    for (df_buf i = { 0 }; i.i < r->plan->n_bufs; i.i++)
        if (df_cuda_call_wants(r, i)) TRY(df_cuda_call_new_root(r, i));
    TRY(take_arena(r));
    TRY(df_cuda_call_fill(r, r->arena ? r->arena->data : NULL));
    TRY(copy_kept(r));
    TRY(df_cuda_call_put_table(r));
    const uint64_t bound = r->c->measure ? df_os_now_ns() : 0;
    r->has_begun = true;
    TRY(launch(r));
    if (r->c->measure) {
        r->stats.t_bind_ns = bound - start;
        r->stats.t_run_ns = df_os_now_ns() - bound;
    }
done:
    df_buffer_drop(&r->arena);
    return st;
}
