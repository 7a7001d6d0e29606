/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs of a runtime and the queues of a context. Nothing here records a mistake of
 * the program: failures are statuses with a sentence in the caller's df_diag.
 *
 * A GPU is opened when a context first needs it, and stays open until the runtime is
 * destroyed, because plans and values of several contexts refer to it. A context has one
 * queue on each GPU that it has used. Every value of the context on a GPU was created
 * through that queue.
 */
#include "lazy/core/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *df_device_text(deft_device where, char buf[DF_DEVICE_TEXT])
{
    if (where == DEFT_CPU)
        snprintf(buf, DF_DEVICE_TEXT, "cpu");
    else
        snprintf(buf, DF_DEVICE_TEXT, "cuda:%d", (int)where - 1);
    return buf;
}

static deft_status no_such(df_diag *d, deft_device where)
{
    return df_fail(d, DEFT_E_ARG, "device %d: DEFT_CPU is %d, and of GPUs there can be %d",
                   (int)where, (int)DEFT_CPU, DF_MAX_GPUS);
}

/* ---- GPUs of a runtime ---- */

/* Takes rt->gpu_lock, so that one thread at a time opens GPUs. On success the caller
 * gives the lock back. Fails in a child process when the fork happened while a GPU was
 * being opened. */
static deft_status lock(deft_runtime *rt, df_diag *d)
{
    if (df_fork_lock_take(&rt->gpu_lock)) rt->gpus_lost = true;
    if (!rt->gpus_lost) return DEFT_OK;
    df_fork_lock_give(&rt->gpu_lock);
    return df_fail(d, DEFT_E_BACKEND, "this process was forked while a GPU was being opened");
}

static deft_status need_plugin(deft_runtime *rt, df_diag *d)
{
    if (rt->gpu_plugin.library) return DEFT_OK;
    return df_plugin_open_gpu(&rt->gpu_plugin, d, rt->mem, &rt->log, rt->plugin_dir);
}

static deft_status open_gpu(deft_runtime *rt, df_diag *d, int ordinal, df_device **out)
{
    const df_gpu_request wish = { .size = sizeof wish,
                                  .ordinal = ordinal,
                                  .max_bytes = rt->max_device_bytes,
                                  .max_cached = rt->max_device_cached,
                                  .measure = rt->measure,
                                  .waits = rt->gpus_wait };
    const df_gpu_plugin *const p = &rt->gpu_plugin;
    deft_status st = need_plugin(rt, d);
    if (st == DEFT_OK) st = p->make(&p->host, p->host.build_id, d, &wish, out);
    if (st == DEFT_OK || st == DEFT_E_MEMORY) return st;
    return df_fail(d, DEFT_E_BACKEND, "cuda:%d: %s", ordinal, d->text);
}

deft_status df_rt_gpu(deft_runtime *rt, df_diag *d, deft_device where, df_device **out)
{
    if (!df_device_can_be(where) || where == DEFT_CPU) return no_such(d, where);
    df_device **const at = &rt->gpu[where - 1];
    deft_status st = lock(rt, d);
    if (st != DEFT_OK) return st;
    if (!*at) st = open_gpu(rt, d, (int)where - 1, at);
    if (st == DEFT_OK) *out = *at;
    df_fork_lock_give(&rt->gpu_lock);
    return st;
}

void df_rt_gpus_close(deft_runtime *rt)
{
    for (int i = 0; i < DF_MAX_GPUS; i++)
        if (rt->gpu[i]) rt->gpu[i]->far->destroy(&rt->gpu[i]);
    df_plugin_close_gpu(&rt->gpu_plugin);
    df_fork_lock_finish(&rt->gpu_lock);
}

void df_rt_gpus_wait_idle(deft_runtime *rt)
{
    df_device *gpu[DF_MAX_GPUS];
    if (lock(rt, NULL) != DEFT_OK) return;
    memcpy(gpu, rt->gpu, sizeof gpu);
    df_fork_lock_give(&rt->gpu_lock);
    for (int i = 0; i < DF_MAX_GPUS; i++)
        if (gpu[i] && gpu[i]->far->settle) gpu[i]->far->settle(gpu[i]);
}

deft_status df_rt_gpu_count(deft_runtime *rt, df_diag *d, int *out)
{
    deft_status st = lock(rt, d);
    if (st != DEFT_OK) return st;
    const df_gpu_plugin *const p = &rt->gpu_plugin;
    st = need_plugin(rt, d);
    if (st == DEFT_OK) st = p->count(&p->host, p->host.build_id, d, out);
    df_fork_lock_give(&rt->gpu_lock);
    return st;
}

df_device *df_rt_opened(deft_runtime *rt, deft_device where)
{
    df_diag d = { 0 };
    if (where == DEFT_CPU) return rt->dev;
    if (lock(rt, &d) != DEFT_OK) return NULL;
    df_device *const dev = rt->gpu[where - 1];
    df_fork_lock_give(&rt->gpu_lock);
    return dev;
}

/* ---- queues of a context ---- */

df_device *df_ctx_device(const deft_ctx *cx, deft_device where)
{
    return where == DEFT_CPU ? cx->rt->dev : cx->queues[where - 1].dev;
}

static deft_status wants_replay(const deft_ctx *cx, df_diag *d, bool *out)
{
    const char *const text = df_env("DEFT_REPLAY");
    *out = cx->opt.replay == DEFT_REPLAY_GRAPHS;
    if (cx->opt.replay != DEFT_REPLAY_DEFAULT || !text || !*text || !strcmp(text, "off"))
        return DEFT_OK;
    *out = !strcmp(text, "graphs");
    if (*out) return DEFT_OK;
    return df_fail(d, DEFT_E_ARG, "DEFT_REPLAY is \"%.32s\", and may be off or graphs", text);
}

/* Turns on replay by graphs where the options ask for that. A device without graphs runs
 * without them, which is logged. */
static deft_status begin_replay(deft_ctx *cx, df_diag *d, df_device *dev, struct df_queue *queue)
{
    bool wanted = false;
    deft_status st = wants_replay(cx, d, &wanted);
    if (st != DEFT_OK || !wanted) return st;
    const df_replay_options wish = { .warm_after = cx->opt.replay_warm_up,
                                     .max_pool_bytes = cx->opt.replay_max_bytes };
    st = dev->far->replay ? dev->far->replay(dev, d, queue, &wish)
                          : df_fail(d, DEFT_E_BACKEND, "%s: it has no graphs", dev->name);
    if (st != DEFT_E_BACKEND) return st;
    df_logf(&cx->rt->log, plugin, "nothing is replayed: %s", d->text);
    return DEFT_OK;
}

deft_status df_ctx_use(deft_ctx *cx, df_diag *d, deft_device where, void *theirs)
{
    df_device *dev = NULL;
    if (where == DEFT_CPU) return DEFT_OK;
    if (!df_device_can_be(where)) return no_such(d, where);
    df_ctx_queue *const q = &cx->queues[where - 1];
    if (q->dev) return DEFT_OK;
    deft_status st = df_rt_gpu(cx->rt, d, where, &dev);
    if (st == DEFT_OK) st = dev->far->queue_create(dev, d, theirs, &q->queue);
    if (st != DEFT_OK) return st;
    st = begin_replay(cx, d, dev, q->queue);
    if (st != DEFT_OK) {
        dev->far->queue_destroy(dev, &q->queue);
        return st;
    }
    q->dev = dev;
    cx->n_queues++;
    return DEFT_OK;
}

/* Parses "cpu", "cuda" or "cuda:3". */
static deft_status parse(df_diag *d, const char *text, deft_device *out)
{
    char *end = NULL;
    long ordinal = 0;
    *out = DEFT_CPU;
    if (!strcmp(text, "cpu") || !*text) return DEFT_OK;
    const bool numbered = !strncmp(text, "cuda:", 5);
    if (numbered) ordinal = strtol(text + 5, &end, 10);
    const bool good = numbered ? end != text + 5 && !*end : !strcmp(text, "cuda");
    if (!good || ordinal < 0 || ordinal >= DF_MAX_GPUS)
        return df_fail(d, DEFT_E_ARG, "DEFT_DEVICE is \"%.32s\", and may be cpu or cuda:0 to %d",
                       text, DF_MAX_GPUS - 1);
    *out = DEFT_CUDA((deft_device)ordinal);
    return DEFT_OK;
}

deft_status df_ctx_choose_device(deft_ctx *cx, df_diag *d)
{
    const char *const text = df_env("DEFT_DEVICE");
    deft_device where = cx->opt.device;
    deft_status st = DEFT_OK;
    if (where == DEFT_CPU && text) st = parse(d, text, &where);
    if (st != DEFT_OK) return st;
    if (where == DEFT_CPU && cx->opt.stream)
        return df_fail(d, DEFT_E_ARG, "a stream is for the context of a GPU");
    st = df_ctx_use(cx, d, where, cx->opt.stream);
    if (st == DEFT_OK) cx->default_device = where;
    if (st != DEFT_E_BACKEND || !cx->opt.allow_cpu) return st;
    df_logf(&cx->rt->log, plugin, "a context computes on the CPU: %s", d->text);
    return DEFT_OK;
}

const df_device_memory_ops *df_queue_replay(const df_ctx_queue *q)
{
    return q->dev && q->dev->far->replay ? q->dev->far : NULL;
}

void df_ctx_begin_generation(deft_ctx *cx)
{
    for (uint32_t i = 0; cx->n_queues && i < DF_MAX_GPUS; i++) {
        const df_ctx_queue *const q = &cx->queues[i];
        if (df_queue_replay(q)) q->dev->far->begin_generation(q->dev, q->queue);
    }
}

void df_ctx_show_replay(deft_ctx *cx, df_str *out)
{
    for (uint32_t i = 0; cx->n_queues && i < DF_MAX_GPUS; i++) {
        const df_ctx_queue *const q = &cx->queues[i];
        const df_device_memory_ops *const far = df_queue_replay(q);
        if (!far || !far->read_replay(q->dev, q->queue).is_on) continue;
        df_str_fmt(out, "cuda:%u\n", i);
        (void)far->show_replay(q->dev, q->queue, out);
    }
}

deft_status df_ctx_wait(deft_ctx *cx, df_diag *d)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0, left = cx->n_queues; left; i++) {
        const df_ctx_queue *const q = &cx->queues[i];
        df_diag other = { 0 };
        if (!q->dev) continue;
        left--;
        const deft_status one = q->dev->far->wait(q->dev, st == DEFT_OK ? d : &other, q->queue);
        if (st == DEFT_OK) st = one;
    }
    return st;
}

void df_ctx_drain(deft_ctx *cx)
{
    df_diag d = { 0 };
    const deft_status st = df_ctx_wait(cx, &d);
    if (st != DEFT_OK)
        df_logf(&cx->rt->log, error, "never collected: %s: %s", deft_status_text(st), d.text);
}

void df_ctx_leave(deft_ctx *cx)
{
    for (uint32_t i = 0; i < DF_MAX_GPUS; i++) {
        df_ctx_queue *const q = &cx->queues[i];
        if (q->dev) q->dev->far->queue_destroy(q->dev, &q->queue);
    }
}

deft_device df_value_device(const deft_ctx *cx, const df_value *v)
{
    if (!v->buf || !v->buf->home) return DEFT_CPU;
    deft_device where = 1;
    while (cx->queues[where - 1].dev != v->buf->home->dev) where++;
    return where;
}
