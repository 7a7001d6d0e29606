/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of a GPU: its driver, NVRTC, kernels and queues, and its memory calls. A plan
 * that is prepared gets entries for the functions of its kernels, which are filled when a
 * run first needs them, and for run layouts. See device_internal.h for where a run is
 * implemented.
 */
#include "jit_cuda/graphs/conditional.h"
#include "jit_cuda/device/work_run.h"
#include "jit_cuda/graphs/graph.h"

#include <stdio.h>

#include "runtime/cpu.h"

#define DEFAULT_CODE ((uint64_t)256 << 20)

/* ---- plans ---- */

static size_t fns_size(const df_cuda_plan *p)
{
    return (p->n_kernels * (size_t)DF_CUDA_ENTRIES + 1) * sizeof *p->fn;
}

static deft_status device_release_one(df_plan *plan, void *user)
{
    df_cuda_device *const c = user;
    df_cuda_plan *const p = plan->attached;
    plan->attached = NULL;
    if (!p) return DEFT_OK;
    for (uint32_t i = 0; i < DF_CUDA_FRAMES; i++) {
        df_cuda_run_layout *f = atomic_load(&p->frame[i]);
        df_cuda_run_layout_destroy(c->mem, &f);
    }
    for (uint32_t i = 0; p->fn && i < p->n_kernels * DF_CUDA_ENTRIES; i++) {
        df_cuda_fn *fn = atomic_load(&p->fn[i]);
        df_cuda_fn_drop(&fn);
    }
    df_mem_free(c->mem, (void *)p->fn, fns_size(p));
    df_mem_free(c->mem, p, sizeof *p);
    return DEFT_OK;
}

static void device_release(df_device *dev, df_plan *plan)
{
    df_plan_each(plan, device_release_one, df_cuda_device_of(dev));
}

typedef struct preparation {
    df_cuda_device *c;
    df_diag *d;
    bool on_host; /* one of the plans so far needs it */
} preparation;

static deft_status device_prepare_one(df_plan *plan, void *user)
{
    preparation *const prep = user;
    df_cuda_device *const c = prep->c;
    df_diag why = { 0 };
    plan->serial = atomic_fetch_add_explicit(&c->n_prepared, 1, memory_order_relaxed) + 1;
    df_cuda_plan *const p = plan->attached = df_mem_zalloc(c->mem, sizeof *p);
    if (!p) return df_fail_mem(prep->d, "plan", sizeof *p);
    p->n_kernels = plan->n_kernels;
    p->fn = df_mem_zalloc(c->mem, fns_size(p));
    if (!p->fn) return df_fail_mem(prep->d, "plan", fns_size(p));
    if (!prep->on_host && df_cuda_needs_host(plan, &why)) {
        prep->on_host = true;
        df_logf(c->log, why, "a plan for %s runs on the host: %s", c->name, why.text);
    }
    return DEFT_OK;
}

static deft_status device_prepare(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w)
{
    preparation p = { .c = df_cuda_device_of(dev), .d = d };
    (void)w; /* kernels are compiled when a run first needs them */
    const deft_status st = df_plan_each(plan, device_prepare_one, &p);
    if (st == DEFT_OK)
        ((df_cuda_plan *)plan->attached)->on_host = p.on_host;
    else
        device_release(dev, plan);
    return st;
}

static deft_status device_run(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                              const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    df_cuda_device *const c = df_cuda_device_of(dev);
    df_nvtx_begin(&c->nvtx, plan);
    const deft_status st = df_cuda_run(c, d, plan, t, slots, io, stats);
    df_nvtx_end(&c->nvtx);
    return st;
}

/* ---- queues ---- */

/* Waits for all queues before code is unloaded, because work in them may run the code. The
 * queues report errors themselves. */
static void device_wait_queues(void *user)
{
    df_cuda_device *const c = user;
    if (df_gpu_enter(c->gpu, NULL) != DEFT_OK) return;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->queues.n; i++)
        (void)c->driver->stream_wait(df_queue_stream(c->queues.at[i].q));
    pthread_mutex_unlock(&c->lock);
    df_gpu_leave(c->gpu);
}

static deft_status queue_create(df_device *dev, df_diag *d, void *theirs, df_queue **out)
{
    df_cuda_device *const c = df_cuda_device_of(dev);
    df_queue *q = NULL;
    deft_status st = df_queue_create(d, c->gpu, theirs, &q);
    if (st != DEFT_OK) return st;
    pthread_mutex_lock(&c->lock);
    if (!df_vec_push(c->mem, &c->queues, (df_cuda_queue_entry){ .q = q }))
        st = df_fail_mem(d, "queue", sizeof q);
    pthread_mutex_unlock(&c->lock);
    if (st != DEFT_OK)
        df_queue_destroy(&q);
    else
        *out = q;
    return st;
}

static void queue_destroy(df_device *dev, df_queue **q)
{
    df_cuda_device *const c = df_cuda_device_of(dev);
    if (!*q) return;
    df_cuda_graphs *graphs = NULL;
    pthread_mutex_lock(&c->lock);
    df_cuda_queue_entry *const lane = df_cuda_queue_entry_of(c, *q);
    if (lane) {
        graphs = lane->graphs;
        *lane = c->queues.at[--c->queues.n];
    }
    pthread_mutex_unlock(&c->lock);
    df_cuda_graphs_close(&graphs);
    df_queue_destroy(q);
}

static deft_status wait(df_device *dev, df_diag *d, df_queue *q)
{
    (void)dev;
    return df_queue_wait(q, d);
}

static void *stream(df_device *dev, df_queue *q)
{
    (void)dev;
    return df_queue_stream(q);
}

/* ---- memory ---- */

static deft_status device_create_buffer(df_device *dev, df_diag *d, df_queue *q, int64_t bytes,
                                        df_buffer **out)
{
    const deft_status st = df_gpu_buffer(q, d, bytes, out);
    df_cuda_graphs *const graphs =
        st == DEFT_E_MEMORY ? df_cuda_graphs_of(df_cuda_device_of(dev), q) : NULL;
    if (!graphs) return st;
    df_cuda_graphs_trim(graphs);
    return df_gpu_buffer(q, d, bytes, out);
}

static deft_status device_wrap_memory(df_device *dev, df_diag *d, void *data, int64_t bytes,
                                      df_buffer **out)
{
    return df_gpu_wrap(df_cuda_device_of(dev)->gpu, d, data, bytes, out);
}

static deft_status device_upload(df_device *dev, df_diag *d, df_queue *q, void *to,
                                 const void *from, size_t bytes)
{
    (void)dev;
    return df_queue_put(q, d, (uintptr_t)to, from, bytes);
}

static deft_status device_download(df_device *dev, df_diag *d, df_queue *q, void *to,
                                   const void *from, size_t bytes)
{
    (void)dev;
    return df_queue_get(q, d, to, (uintptr_t)from, bytes);
}

static deft_status device_copy(df_device *dev, df_diag *d, df_queue *q, void *to, const void *from,
                               size_t bytes)
{
    (void)dev;
    return df_queue_copy(q, d, (uintptr_t)to, (uintptr_t)from, bytes);
}

static deft_status device_copy_peer(df_device *dev, df_diag *d, df_queue *q, void *to,
                                    df_device *other, df_queue *others, const void *from,
                                    size_t bytes)
{
    (void)dev;
    (void)other;
    return df_queue_copy_peer(q, d, (uintptr_t)to, others, (uintptr_t)from, bytes);
}

static deft_status device_run_work(df_device *dev, df_diag *d, df_queue *q, const df_work *w,
                                   df_buffer **out)
{
    return df_cuda_work_run(df_cuda_device_of(dev), d, q, w, out);
}

static df_allocator_stats device_read_memory_stats(df_device *dev)
{
    return df_gpu_read(df_cuda_device_of(dev)->gpu);
}

/* Goes from the last queue to the first. A queue that is destroyed meanwhile is replaced by
 * the last one. */
static void trim_graphs(df_cuda_device *c)
{
    pthread_mutex_lock(&c->lock);
    for (size_t i = c->queues.n; i-- > 0;) {
        df_cuda_graphs *const s =
            i < c->queues.n ? df_cuda_graphs_ref(c->queues.at[i].graphs) : NULL;
        if (!s) continue;
        pthread_mutex_unlock(&c->lock);
        df_cuda_graphs_trim_from_outside(s);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

static void device_trim(df_device *dev)
{
    df_cuda_device *const c = df_cuda_device_of(dev);
    if (df_driver_usable(c->driver, NULL) != DEFT_OK) return;
    trim_graphs(c);
    df_gpu_trim(c->gpu);
}

static void device_wait_until_idle(df_device *dev)
{
    df_cuda_background_settle(df_cuda_device_of(dev)->later);
}

/* ---- graphs ---- */

static deft_status device_enable_replay(df_device *dev, df_diag *d, df_queue *q,
                                        const df_replay_options *wish)
{
    df_cuda_device *const c = df_cuda_device_of(dev);
    df_cuda_graphs *graphs = NULL;
    df_assert(!df_cuda_graphs_of(c, q));
    const deft_status st = df_cuda_graphs_create(d, c, q, wish, &graphs);
    if (st != DEFT_OK) return st;
    pthread_mutex_lock(&c->lock);
    df_cuda_queue_entry_of(c, q)->graphs = graphs;
    pthread_mutex_unlock(&c->lock);
    return DEFT_OK;
}

static void begin_generation(df_device *dev, df_queue *q)
{
    df_cuda_graphs *const graphs = df_cuda_graphs_of(df_cuda_device_of(dev), q);
    if (graphs) df_cuda_graphs_begin(graphs);
}

static void trim_replay(df_device *dev, df_queue *q)
{
    df_cuda_graphs *const graphs = df_cuda_graphs_of(df_cuda_device_of(dev), q);
    if (graphs) df_cuda_graphs_trim(graphs);
}

static df_replay_stats read_replay(df_device *dev, df_queue *q)
{
    df_cuda_graphs *const graphs = df_cuda_graphs_of(df_cuda_device_of(dev), q);
    return graphs ? df_cuda_graphs_read(graphs) : (df_replay_stats){ 0 };
}

static bool show_replay(df_device *dev, df_queue *q, df_str *out)
{
    df_cuda_graphs *const graphs = df_cuda_graphs_of(df_cuda_device_of(dev), q);
    return !graphs || df_cuda_graphs_show(graphs, out);
}

static void each_replay(df_device *dev, df_queue *q, df_replay_event_fn tell, void *user)
{
    df_cuda_graphs *const graphs = df_cuda_graphs_of(df_cuda_device_of(dev), q);
    if (graphs) df_cuda_graphs_each(graphs, tell, user);
}

/* ---- the device ---- */

static void device_destroy(df_device **out)
{
    df_cuda_device *const c = *out ? df_cuda_device_of(*out) : NULL;
    *out = NULL;
    if (!c) return;
    df_assert(c->queues.n == 0);
    df_cuda_background_destroy(&c->later);
    df_cuda_conditionals_destroy(c);
    df_modules_destroy(&c->modules);
    df_cpu_destroy(&c->host);
    if (c->lt && df_gpu_enter(c->gpu, NULL) == DEFT_OK) {
        df_cublaslt_close(&c->lt);
        df_gpu_leave(c->gpu);
    }
    df_gpu_close(&c->gpu);
    df_nvrtc_close(&c->nvrtc);
    df_driver_close(&c->driver);
    df_vec_finish(c->mem, &c->queues);
    pthread_mutex_destroy(&c->lock);
    df_mem_free(c->mem, c, sizeof *c);
}

static const df_device_memory_ops far_calls = { .queue_create = queue_create,
                                                .queue_destroy = queue_destroy,
                                                .wait = wait,
                                                .stream = stream,
                                                .create = device_create_buffer,
                                                .wrap = device_wrap_memory,
                                                .put = device_upload,
                                                .get = device_download,
                                                .copy = device_copy,
                                                .copy_peer = device_copy_peer,
                                                .work = device_run_work,
                                                .read = device_read_memory_stats,
                                                .trim = device_trim,
                                                .settle = device_wait_until_idle,
                                                .replay = device_enable_replay,
                                                .begin_generation = begin_generation,
                                                .trim_replay = trim_replay,
                                                .read_replay = read_replay,
                                                .show_replay = show_replay,
                                                .each_replay = each_replay,
                                                .destroy = device_destroy };

static void device_init(df_cuda_device *c, int ordinal)
{
    const df_gpu_properties *const g = df_gpu_facts_of(c->gpu);
    (void)snprintf(c->name, sizeof c->name, "cuda:%d (%s)", ordinal, g->name);
    c->dev = (df_device){ .name = c->name,
                          .prepare = device_prepare,
                          .run = device_run,
                          .release = device_release,
                          .far = &far_calls };
    c->dev.limits = df_cuda_limits(g);
}

deft_status df_cuda_create(df_diag *d, const df_mem *mem, const df_log *log,
                           const df_gpu_request *wish, df_device **out)
{
    deft_status st = DEFT_OK;
    df_cuda_device *const c = df_mem_zalloc(mem, sizeof *c);
    if (!c) return df_fail_mem(d, "device", sizeof *c);
    df_device *dev = &c->dev;
    c->mem = mem;
    c->log = log;
    c->nvtx = df_nvtx_open(log);
    c->measure = wish->measure;
    pthread_mutex_init(&c->lock, NULL);
    const df_gpu_options o = { .max_bytes = wish->max_bytes,
                               .max_cached = wish->max_cached,
                               .dev = dev };
    const df_modules_options kernels = { .max_bytes = DEFAULT_CODE,
                                         .settle = device_wait_queues,
                                         .user = c };
    TRY(df_driver_open(d, mem, NULL, &c->driver));
    TRY(df_gpu_open(d, c->driver, log, wish->ordinal, &o, &c->gpu));
    TRY(df_nvrtc_open(d, mem, NULL, &c->nvrtc));
    TRY(df_modules_create(d, mem, log, c->gpu, c->nvrtc, &kernels, &c->modules));
    if (!wish->waits) TRY(df_cuda_background_create(d, mem, log, c->modules, &c->later));
    device_init(c, wish->ordinal);
    *out = dev;
    dev = NULL;
done:
    device_destroy(&dev);
    return st;
}
