/* SPDX-License-Identifier: Apache-2.0
 *
 * The device of null.h: a CPU device with one thread and no compiler, behind functions that record
 * the calls.
 */
#include "runtime/tiers/null.h"

#include <string.h>

#include "runtime/cpu.h"

typedef struct null_device {
    df_device dev; /* must be first: a df_device is cast to its null_device */
    const df_mem *mem;
    df_device *cpu;
    df_null_options o;
    df_null_counts counts;
    uint32_t since_prepare, since_run; /* calls since the options were set */
    df_str record;
} null_device;

static null_device *null_of(df_device *dev)
{
    return (null_device *)(void *)dev;
}

static deft_status refuse(null_device *n, df_diag *d, const char *call, uint32_t number)
{
    n->counts.failures++;
    df_str_fmt(&n->record, "%s failed\n", call);
    return df_fail(d, n->o.status ? n->o.status : DEFT_E_BACKEND, "%s: call %u fails as asked",
                   call, number);
}

static deft_status prepare(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w)
{
    null_device *const n = null_of(dev);
    n->counts.prepares++;
    if (++n->since_prepare == n->o.fail_prepare) return refuse(n, d, "prepare", n->since_prepare);
    df_str_fmt(&n->record, "prepare kernels=%u segs=%u\n", plan->n_kernels, plan->n_segs);
    return n->cpu->prepare(n->cpu, d, plan, w);
}

/* Creates zeroed buffers for roots that need one. On failure there are none. */
static deft_status make_roots(null_device *n, df_diag *d, const df_plan *plan, const int64_t *slots,
                              df_launch_io *io)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < plan->n_roots; i++) {
        const int64_t bytes = df_plan_root_bytes(plan, i, slots);
        if (bytes < 0) continue;
        TRY(df_buffer_create(d, n->dev.allocator, bytes, &io->root[i]));
        memset(io->root[i]->data, 0, (size_t)bytes);
    }
done:
    for (uint32_t i = 0; st != DEFT_OK && i < plan->n_roots; i++) df_buffer_drop(&io->root[i]);
    return st;
}

static deft_status run(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    null_device *const n = null_of(dev);
    n->counts.runs++;
    if (++n->since_run == n->o.fail_run) return refuse(n, d, "run", n->since_run);
    n->counts.launches += plan->n_launches;
    n->counts.segments += plan->n_segs;
    df_str_fmt(&n->record, "run launches=%u segs=%u roots=%u\n", plan->n_launches, plan->n_segs,
               plan->n_roots);
    if (n->o.interpret) return n->cpu->run(n->cpu, d, plan, t, slots, io, stats);
    if (stats) *stats = (df_run_stats){ .launches = plan->n_launches, .segments = plan->n_segs };
    return make_roots(n, d, plan, slots, io);
}

static void release(df_device *dev, df_plan *plan)
{
    null_device *const n = null_of(dev);
    n->counts.releases++;
    df_str_put(&n->record, "release\n");
    n->cpu->release(n->cpu, plan);
}

deft_status df_null_create(df_diag *d, const df_mem *mem, const df_null_options *o, df_device **out)
{
    static const df_cpu_options cpu_options = { .n_threads = 1, .tier = DF_TIER_INTERP };
    null_device *n = df_mem_zalloc(mem, sizeof *n);
    if (!n) return df_fail_mem(d, "device", sizeof *n);
    const deft_status st = df_cpu_create(d, mem, NULL, &cpu_options, &n->cpu);
    if (st != DEFT_OK) {
        df_mem_free(mem, n, sizeof *n);
        return st;
    }
    n->mem = mem;
    df_str_init(&n->record, mem);
    n->dev = (df_device){ .name = "null",
                          .limits = n->cpu->limits,
                          .prepare = prepare,
                          .run = run,
                          .release = release,
                          .allocator = n->cpu->allocator };
    df_null_set(&n->dev, o);
    *out = &n->dev;
    return DEFT_OK;
}

void df_null_destroy(df_device **out)
{
    if (!*out) return;
    null_device *const n = null_of(*out);
    *out = NULL;
    df_cpu_destroy(&n->cpu);
    df_str_finish(&n->record);
    df_mem_free(n->mem, n, sizeof *n);
}

void df_null_set(df_device *dev, const df_null_options *o)
{
    null_device *const n = null_of(dev);
    n->o = o ? *o : (df_null_options){ .fuse = true };
    n->since_prepare = n->since_run = 0;
    dev->limits.fuse = n->o.fuse;
}

df_null_counts df_null_read(df_device *dev)
{
    return null_of(dev)->counts;
}

void df_null_record(df_device *dev, df_str *out)
{
    null_device *const n = null_of(dev);
    if (n->record.n) df_str_putn(out, n->record.at, n->record.n);
    df_str_finish(&n->record);
    df_str_init(&n->record, n->mem);
}
