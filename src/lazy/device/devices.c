/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that query the devices of a runtime and their state (deft/device.h).
 */
#include "lazy/core/devices.h"

#include <stdio.h>
#include <string.h>

static size_t put_text(char *buf, size_t n, const char *text)
{
    return buf && n ? (size_t)snprintf(buf, n, "%s", text) : 0;
}

uint32_t deft_gpu_count(deft_runtime *rt, char *why, size_t n)
{
    df_diag d = { 0 };
    int count = 0;
    put_text(why, n, "");
    if (!rt) return 0;
    const deft_status st = df_rt_gpu_count(rt, &d, &count);
    if (st == DEFT_OK && count > 0) return (uint32_t)df_min_i64(count, DF_MAX_GPUS);
    put_text(why, n, st == DEFT_OK ? "the driver has no GPU" : d.text);
    return 0;
}

deft_status deft_device_describe(deft_runtime *rt, deft_device where, char *buf, size_t n)
{
    char text[256];
    df_diag d = { 0 };
    df_device *dev = NULL;
    put_text(buf, n, "");
    if (!rt) return DEFT_E_ARG;
    if (where == DEFT_CPU) {
        snprintf(text, sizeof text, "cpu: %u threads, %s", deft_runtime_threads(rt),
                 deft_runtime_compiler(rt));
        put_text(buf, n, text);
        return DEFT_OK;
    }
    const deft_status st = df_rt_gpu(rt, &d, where, &dev);
    put_text(buf, n, st == DEFT_OK ? dev->name : d.text);
    return st;
}

deft_status deft_device_memory_read(deft_runtime *rt, deft_device where, deft_device_memory *out,
                                    size_t size)
{
    if (!rt || !out || !size || !df_device_can_be(where)) return DEFT_E_ARG;
    df_device *const dev = df_rt_opened(rt, where);
    df_allocator_stats a = { 0 };
    if (dev) a = dev->far ? dev->far->read(dev) : df_allocator_read(dev->allocator);
    const deft_device_memory m = { .live_bytes = a.live_bytes,
                                   .peak_bytes = a.peak_bytes,
                                   .cached_bytes = a.cached_bytes,
                                   .requests = a.requests,
                                   .system_allocations = a.system_allocations };
    memset(out, 0, size);
    memcpy(out, &m, size < sizeof m ? size : sizeof m);
    return DEFT_OK;
}

void deft_runtime_trim(deft_runtime *rt)
{
    if (!rt) return;
    for (deft_device where = DEFT_CPU; where <= DF_MAX_GPUS; where++) {
        df_device *const dev = df_rt_opened(rt, where);
        if (!dev) continue;
        if (dev->far)
            dev->far->trim(dev);
        else
            df_allocator_trim(dev->allocator);
    }
}

deft_status deft_replay_read(deft_ctx *cx, deft_device where, deft_replay_stats *out, size_t size)
{
    if (!cx || !out || !size || !df_device_can_be(where)) return DEFT_E_ARG;
    const df_ctx_queue *const q = where == DEFT_CPU ? NULL : &cx->queues[where - 1];
    const df_device_memory_ops *const far = q ? df_queue_replay(q) : NULL;
    df_replay_stats s = { 0 };
    if (far) s = far->read_replay(q->dev, q->queue);
    const deft_replay_stats all = { .is_on = s.is_on,
                                    .runs = s.calls,
                                    .plain = s.plain,
                                    .recorded = s.recorded,
                                    .replayed = s.replayed,
                                    .placed = s.placed,
                                    .reshaped = s.reshaped,
                                    .updates = s.updates,
                                    .graphs = s.n_graphs,
                                    .graph_bytes = s.graph_bytes,
                                    .pool_bytes = s.pool_bytes,
                                    .peak_path_bytes = s.peak_path_bytes,
                                    .separate_bytes = s.separate_bytes,
                                    .held = s.held,
                                    .tables = s.tables,
                                    .works = s.works,
                                    .work_calls = s.work_calls };
    memset(out, 0, size);
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    return DEFT_OK;
}

void *deft_stream(deft_ctx *cx, deft_device where)
{
    df_diag d = { 0 };
    if (!cx || where == DEFT_CPU) return NULL;
    const deft_status st = df_ctx_use(cx, &d, where, NULL);
    if (st != DEFT_OK) return df_error(cx, st, "stream: %s", d.text);
    const df_ctx_queue *const q = &cx->queues[where - 1];
    return q->dev->far->stream(q->dev, q->queue);
}
