/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a GPU. Opening queries its properties and retains its primary
 * context. Closing frees its cached memory and its events.
 */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "jit_cuda/driver/gpu_internal.h"

enum { OLDEST_ARCH = 75, FIRST_WITH_CONDITIONALS = 12040 };

/* CUdevice_attribute */
enum {
    ATTR_SHARED_PER_BLOCK = 8,
    ATTR_N_SMS = 16,
    ATTR_L2_BYTES = 38,
    ATTR_THREADS_PER_SM = 39,
    ATTR_MAJOR = 75,
    ATTR_MINOR = 76,
    ATTR_SHARED_PER_SM = 81,
    ATTR_SHARED_OPTIN = 97,
    ATTR_VA = 102
};

static deft_status ask_facts(df_gpu *g, df_diag *d)
{
    const df_driver *const dr = g->dr;
    df_gpu_properties *const f = &g->facts;
    size_t bytes = 0;
    int major = 0, minor = 0, l2 = 0, has_va = 0;
    const struct {
        int attribute;
        int *to;
    } ask[] = {
        { ATTR_MAJOR, &major },
        { ATTR_MINOR, &minor },
        { ATTR_L2_BYTES, &l2 },
        { ATTR_VA, &has_va },
        { ATTR_N_SMS, &f->n_sms },
        { ATTR_THREADS_PER_SM, &f->threads_per_sm },
        { ATTR_SHARED_PER_BLOCK, &f->shared_per_block },
        { ATTR_SHARED_OPTIN, &f->shared_per_block_optin },
        { ATTR_SHARED_PER_SM, &f->shared_per_sm },
    };
    df_cu_result r = dr->device_get(&g->device, g->ordinal);
    if (r) return df_gpu_failed(g, NULL, d, r, false, "cuDeviceGet");
    r = dr->device_name(f->name, sizeof f->name, g->device);
    if (r) return df_gpu_failed(g, NULL, d, r, false, "cuDeviceGetName");
    r = dr->device_bytes(&bytes, g->device);
    if (r) return df_gpu_failed(g, NULL, d, r, false, "cuDeviceTotalMem");
    for (size_t i = 0; i < DF_LEN(ask); i++) {
        r = dr->device_attribute(ask[i].to, ask[i].attribute, g->device);
        if (r) return df_gpu_failed(g, NULL, d, r, false, "cuDeviceGetAttribute");
    }
    f->arch = 10 * major + minor;
    f->bytes = bytes;
    f->l2_bytes = (uint64_t)l2;
    f->has_va = has_va && dr->va_granularity && dr->va_reserve && dr->va_free && dr->va_create &&
                dr->va_release && dr->va_map && dr->va_unmap && dr->va_access;
    f->has_graphs = dr->graph_create && dr->graph_destroy && dr->graph_kernel && dr->graph_memcpy &&
                    dr->graph_memset && dr->graph_child && dr->graph_empty &&
                    dr->graph_instantiate && dr->exec_destroy && dr->exec_launch &&
                    dr->exec_kernel && dr->exec_memcpy && dr->exec_memset && dr->exec_child &&
                    dr->capture_begin && dr->capture_end;
    f->has_conditionals = f->has_graphs && dr->graph_node && dr->graph_condition &&
                          dr->version >= FIRST_WITH_CONDITIONALS;
    if (f->arch < OLDEST_ARCH)
        return df_fail(d, DEFT_E_BACKEND,
                       "cuda: GPU %d (%s) has compute capability %d.%d: 7.5 or higher is needed",
                       g->ordinal, f->name, major, minor);
    return DEFT_OK;
}

deft_status df_gpu_open(df_diag *d, const df_driver *dr, const df_log *log, int ordinal,
                        const df_gpu_options *o, df_gpu **out)
{
    deft_status st = df_driver_usable(dr, d);
    if (st != DEFT_OK) return st;
    if (ordinal < 0 || ordinal >= dr->n_devices)
        return df_fail(d, DEFT_E_ARG, "cuda: there is no GPU %d: %d are here, counted from 0",
                       ordinal, dr->n_devices);
    df_gpu *g = df_mem_zalloc(dr->mem, sizeof *g);
    if (!g) return df_fail_mem(d, "GPU", sizeof *g);
    g->dr = dr;
    g->mem = dr->mem;
    g->log = log;
    g->ordinal = ordinal;
    if (o) g->o = *o;
    g->o.blocking = g->o.blocking || df_env_flag("DEFT_CUDA_BLOCKING", false);
    atomic_init(&g->is_lost, false);
    df_memory_init(g);
    if (pthread_mutex_init(&g->lock, NULL) != 0) {
        df_mem_free(dr->mem, g, sizeof *g);
        return df_fail(d, DEFT_E_MEMORY, "GPU: no mutex could be had");
    }
    TRY(ask_facts(g, d));
    const df_cu_result r = dr->ctx_retain(&g->ctx, g->device);
    if (r) TRY(df_gpu_failed(g, NULL, d, r, false, "cuDevicePrimaryCtxRetain"));
    df_logf(log, plugin, "cuda: GPU %d is %s, sm_%d, %llu MiB, driver of CUDA %d.%d", ordinal,
            g->facts.name, g->facts.arch, (unsigned long long)(g->facts.bytes >> 20),
            dr->version / 1000, dr->version % 1000 / 10);
    *out = g;
    g = NULL;
done:
    df_gpu_close(&g);
    return st;
}

void df_gpu_close(df_gpu **out)
{
    df_gpu *const g = *out;
    *out = NULL;
    if (!g) return;
    const bool is_usable = df_driver_usable(g->dr, NULL) == DEFT_OK;
    df_assert(!is_usable || (!g->queues && g->stats.live_bytes == 0));
    if (is_usable && g->ctx) {
        const bool is_entered = df_gpu_enter_last(g);
        df_memory_finish(g, is_entered);
        for (size_t i = 0; i < g->events.n && is_entered; i++)
            (void)g->dr->event_destroy(g->events.at[i]);
        if (is_entered) df_gpu_leave(g);
        (void)g->dr->ctx_release(g->device);
    }
    df_vec_finish(g->mem, &g->events);
    pthread_mutex_destroy(&g->lock);
    df_mem_free(g->mem, g, sizeof *g);
}
