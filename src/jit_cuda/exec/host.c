/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans with segments that a GPU has no code for. The complete plan, with its parts, is run
 * on the host by the interpreter, because df_plan.execs is NULL. It runs on copies of its
 * inputs, and its results are uploaded. So every program runs, though slowly; the log says
 * so.
 */
#include "jit_cuda/exec/layout.h"

#include "runtime/cpu.h"

bool df_cuda_needs_host(const df_plan *plan, df_diag *why)
{
    for (uint32_t i = 0; i < plan->n_segs; i++)
        if (plan->segs[i].kind != DF_SEG_KERNEL && !df_cuda_job_can(why, plan, &plan->segs[i]))
            return true;
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        if (df_cuda_can(why, &plan->kernels[i]) != DEFT_OK) return true;
    return false;
}

/* One CPU device serves all queues. A run on it uses the calling thread. */
static deft_status get_host(df_cuda_device *c, df_diag *d, df_device **out)
{
    static const df_cpu_options options = { .n_threads = 1, .tier = DF_TIER_INTERP };
    deft_status st = DEFT_OK;
    pthread_mutex_lock(&c->lock);
    if (!c->host) st = df_cpu_create(d, c->mem, c->log, &options, &c->host);
    *out = c->host;
    pthread_mutex_unlock(&c->lock);
    return st;
}

typedef struct visit {
    df_cuda_device *c;
    df_diag *d;
    const df_plan *plan;
    df_launch_io *io;
    df_queue *q;
    df_device *host;
    df_trace t; /* the trace, with inputs on the host */
    const df_trace *theirs;
    df_buffer **copy; /* memory on the host, per input, then per root */
    int64_t *low;     /* per input: offset from element 0 to the start of its memory, at most 0 */
    uint32_t n_inputs, n_roots;
} visit;

static deft_status get_input(visit *v, uint32_t i)
{
    deft_status st = DEFT_OK;
    int64_t bytes = 0;
    if (!df_input_reach(v->theirs, i, &v->low[i], &bytes))
        return df_fail(v->d, DEFT_E_LIMIT, "input %u: its strides reach too far", i);
    df_input *const in = &v->t.inputs[i];
    *in = v->theirs->inputs[i];
    in->flags &= ~(uint32_t)DF_INPUT_SOLE;
    TRY(df_buffer_create(v->d, v->host->allocator, bytes, &v->copy[i]));
    char *const at = v->copy[i]->data;
    if (bytes > 0)
        TRY(df_queue_get(v->q, v->d, at, (uintptr_t)in->data + (uint64_t)v->low[i], (size_t)bytes));
    in->data = at - v->low[i];
done:
    return st;
}

static deft_status put_results(visit *v)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < v->n_roots; i++) {
        const df_root *const root = &v->theirs->roots[i];
        df_buffer *const made = v->copy[v->n_inputs + i];
        if (made) {
            TRY(df_gpu_buffer(v->q, v->d, made->bytes, &v->io->root[i]));
            TRY(df_queue_put(v->q, v->d, (uintptr_t)v->io->root[i]->data, made->data,
                             (size_t)made->bytes));
        }
        if (root->kind != DF_ROOT_INTO) continue;
        const df_buffer *const into = v->copy[root->into];
        const uint64_t to = (uintptr_t)v->theirs->inputs[root->into].data;
        TRY(df_queue_put(v->q, v->d, to + (uint64_t)v->low[root->into], into->data,
                         (size_t)into->bytes));
    }
done:
    return st;
}

static deft_status pay_visit(visit *v, const int64_t *slots, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    df_launch_io io = { .root = v->copy + v->n_inputs,
                        .interrupted = v->io->interrupted,
                        .user = v->io->user };
    for (uint32_t i = 0; i < v->n_inputs; i++) TRY(get_input(v, i));
    TRY(v->host->run(v->host, v->d, v->plan, &v->t, slots, &io, stats));
    TRY(put_results(v));
done:
    for (uint32_t i = 0; st != DEFT_OK && i < v->n_roots; i++) df_buffer_drop(&v->io->root[i]);
    for (uint32_t i = 0; i < v->n_inputs + v->n_roots; i++) df_buffer_drop(&v->copy[i]);
    return st;
}

deft_status df_cuda_run_on_host(df_cuda_device *c, df_diag *d, const df_plan *plan,
                                const df_trace *t, const int64_t *slots, df_launch_io *io,
                                df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    df_arena arena;
    visit v = { .c = c,
                .d = d,
                .plan = plan,
                .io = io,
                .q = (df_queue *)io->queue,
                .t = *t,
                .theirs = t,
                .n_inputs = t->n_inputs,
                .n_roots = t->n_roots };
    df_arena_init(&arena, c->mem);
    v.t.inputs = df_arena_new(&arena, df_input, v.n_inputs + 1);
    v.copy = df_arena_new(&arena, df_buffer *, v.n_inputs + v.n_roots + 1);
    v.low = df_arena_new(&arena, int64_t, v.n_inputs + 1);
    if (!v.t.inputs || !v.copy || !v.low)
        TRY(df_fail_mem(d, "run", v.n_inputs * sizeof *v.t.inputs));
    TRY(get_host(c, d, &v.host));
    TRY(pay_visit(&v, slots, stats));
done:
    df_arena_finish(&arena);
    return st;
}
