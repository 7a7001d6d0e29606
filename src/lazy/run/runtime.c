/* SPDX-License-Identifier: Apache-2.0
 *
 * Runtimes: creation, options and environment variables, destruction. A runtime holds
 * what contexts share: the device, the caches of plans and kernels, the log.
 */
#include "lazy/core/devices.h"
#include "lazy/core/operators.h"
#include "lazy/log/summary.h"
#include "runtime/code/kept.h"

#include <stdio.h>
#include <string.h>

const char *deft_version(void)
{
    return "0.1.0";
}

static deft_tier tier_of(deft_tier asked)
{
    const char *const s = df_env("DEFT_TIER");
    if (asked != DEFT_TIER_AUTO || !s) return asked;
    if (!strcmp(s, "interp")) return DEFT_TIER_INTERPRET;
    if (!strcmp(s, "0")) return DEFT_TIER_QUICK;
    if (!strcmp(s, "1") || !strcmp(s, "sync")) return DEFT_TIER_FULL;
    return DEFT_TIER_AUTO;
}

static df_tier device_tier(deft_tier t)
{
    switch (t) {
    case DEFT_TIER_AUTO: return DF_TIER_AUTO;
    case DEFT_TIER_INTERPRET: return DF_TIER_INTERP;
    case DEFT_TIER_QUICK: return DF_TIER_O0;
    case DEFT_TIER_FULL: return DF_TIER_O2;
    }
    return DF_TIER_AUTO;
}

static void runtime_free(deft_runtime **rt)
{
    deft_runtime *const r = *rt;
    *rt = NULL;
    if (!r) return;
    if (r->dev) df_summary_log(r->summary, r);
    df_cache_destroy(&r->plans);
    df_rt_gpus_close(r);
    if (r->dev) df_cpu_destroy(&r->dev);
    df_summary_close(&r->summary);
    df_journal_close(&r->journal);
    if (r->plugin) df_plugin_close(&r->compiler, &r->plugin);
    df_disk_close(&r->disk);
    df_sites_destroy(&r->sites);
    for (deft_op *op = r->ops, *next; op; op = next) {
        next = op->next;
        df_op_free(r->mem, &op);
    }
    df_arena_finish(&r->opaque_arena);
    df_fork_lock_finish(&r->op_lock);
    if (r->plugin_dir) df_mem_free(r->mem, r->plugin_dir, strlen(r->plugin_dir) + 1);
    const df_mem hooks = r->mem_hooks;
    df_mem_free(&hooks, r, sizeof *r);
}

/* Called when a call site is printed for the first time. */
static bool open_resolver(void *user, df_resolver *out)
{
    const deft_runtime *const r = user;
    return df_plugin_sites(r->plugin_dir, out);
}

static deft_status sites_open(deft_runtime *r, df_diag *d)
{
    const char *const dir = df_env("DEFT_PLUGIN_DIR");
    const size_t n = dir ? strlen(dir) + 1 : 0;
    if (n) {
        r->plugin_dir = df_mem_alloc(r->mem, n);
        if (!r->plugin_dir) return df_fail_mem(d, "runtime", n);
        memcpy(r->plugin_dir, dir, n);
    }
    r->sites = r->log.sites = df_sites_create(r->mem, open_resolver, r);
    return r->sites ? DEFT_OK : df_fail(d, DEFT_E_MEMORY, "runtime: no memory for call sites");
}

/* The folder of the structured log; NULL when none is wanted. */
static const char *trace_dir(const deft_runtime_options *o)
{
    const char *const dir = o->trace_dir ? o->trace_dir : df_env("DEFT_TRACE_DIR");
    return dir && *dir ? dir : NULL;
}

static void open_journal(deft_runtime *r, const deft_runtime_options *o)
{
    if (!trace_dir(o)) return;
    const df_journal_options journal = {
        .dir = trace_dir(o),
        .max_bytes =
            o->trace_file_bytes ? o->trace_file_bytes : (uint64_t)df_env_int("DEFT_TRACE_BYTES", 0),
        .max_files = o->trace_files ? o->trace_files : (uint32_t)df_env_int("DEFT_TRACE_FILES", 0),
        .code = df_env_flag("DEFT_TRACE_CODE", false),
        .launches = df_env_flag("DEFT_TRACE_LAUNCHES", false),
        .inputs = o->trace_inputs || df_env_flag("DEFT_TRACE_INPUTS", false),
        .input_bytes = o->trace_input_bytes ? o->trace_input_bytes
                                            : (uint64_t)df_env_int("DEFT_TRACE_INPUTS_BYTES", 0),
        .version = deft_version(),
        /* this starts the compiler, whose name begins the log */
        .compiler = deft_runtime_compiler(r),
        .n_threads = deft_runtime_threads(r),
        .problem = &r->trace_problem,
    };
    r->journal = r->log.journal = df_journal_open(r->mem, &r->log, &journal);
}

/* Puts the cache of compiled code in front of the compiler. Code for debuggers is not kept: GDB
 * gets its names from the compiler that made it. */
static void open_kept(deft_runtime *r, const deft_runtime_options *o,
                      const df_naming_options *naming)
{
    const df_disk_options disk = { .folders = o->cache_dir, .max_bytes = o->max_cache_dir_bytes };
    if (!naming->debugger) r->disk = df_disk_open(r->mem, &r->log, &disk);
    const df_kept_options kept = { .disk = r->disk,
                                   .max_vector_bytes = o->max_vector_bytes,
                                   .keep_frames = df_naming_keeps_frames(naming) };
    df_kept_open(r->mem, &r->log, &kept, &r->compiler);
}

static deft_status runtime_open(deft_runtime *r, const deft_runtime_options *o, df_diag *d)
{
    deft_status st = DEFT_OK;
    df_log_init(&r->log, o->log ? o->log : df_env("DEFT_LOG"), o->log_hook, o->log_user);
    TRY(sites_open(r, d));
    r->max_device_bytes = o->max_device_bytes;
    r->max_device_cached = o->max_device_cached_bytes;
    const deft_tier tier = tier_of(o->tier);
    r->summary = df_summary_open(r);
    r->measure = o->measure != 0 || trace_dir(o) || r->summary;
    r->gpus_wait = tier != DEFT_TIER_AUTO;
    df_diag plugin = { 0 };
    if (tier == DEFT_TIER_INTERPRET) {
        df_fail(&plugin, DEFT_E_BACKEND, "asked for");
    } else if (df_plugin_load(&plugin, r->mem, &r->log, NULL, o->max_vector_bytes, &r->compiler,
                              &r->plugin) == DEFT_OK) {
        r->has_compiler = true;
    } else {
        df_logf(&r->log, plugin, "no compiler, kernels are interpreted: %s", plugin.text);
    }
    if (!r->has_compiler)
        snprintf(r->compiler_text, sizeof r->compiler_text, "interpreter: %.160s", plugin.text);

    const df_naming_options naming = df_naming_wanted();
    if (r->has_compiler) open_kept(r, o, &naming);
    const df_cpu_options cpu = {
        .n_threads = o->n_threads ? o->n_threads : (uint32_t)df_env_int("DEFT_NUM_THREADS", 0),
        .tier = device_tier(tier),
        .max_cached = o->max_cached_bytes,
        .max_code = o->max_code_bytes,
        .variant_after =
            o->variant_launches ? o->variant_launches : (uint32_t)df_env_int("DEFT_VARIANTS", 0),
        .stream_bytes = (uint64_t)df_env_int("DEFT_STREAM_BYTES", 0),
        .last_cache = (uint64_t)df_env_int("DEFT_LAST_CACHE", 0),
        .compiler = r->has_compiler ? &r->compiler : NULL,
        .use_blas = true,
        .use_tiles = df_env_int("DEFT_AMX", 1) != 0,
        .naming = &naming,
        .spent = df_summary_spent(r->summary),
        .measure = r->measure,
    };
    TRY(df_cpu_create(d, r->mem, &r->log, &cpu, &r->dev));
    const df_cache_options cache = {
        .max_bytes = o->max_plan_bytes ? o->max_plan_bytes : (size_t)256 << 20,
        .hash_bits = o->hash_bits,
    };
    TRY(df_cache_create(r->mem, &cache, &r->plans));
    open_journal(r, o);
done:
    return st;
}

deft_status deft_runtime_create(const deft_runtime_options *options, deft_runtime **out)
{
    if (!out) return DEFT_E_ARG;
    *out = NULL;
    deft_runtime_options o;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (options && options->size == 0) return DEFT_E_ARG;
    const df_mem hooks = o.resize ? (df_mem){ o.resize, o.resize_user } : df_mem_system;
    deft_runtime *r = df_mem_zalloc(&hooks, sizeof *r);
    if (!r) return DEFT_E_MEMORY;
    r->mem_hooks = hooks;
    r->mem = o.resize ? &r->mem_hooks : &df_mem_system;
    r->refs = 1;
    df_arena_init(&r->opaque_arena, r->mem);
    const bool has_gpu_lock = df_fork_lock_init(&r->gpu_lock);
    if (!has_gpu_lock || !df_fork_lock_init(&r->op_lock)) {
        if (has_gpu_lock) df_fork_lock_finish(&r->gpu_lock);
        df_mem_free(&hooks, r, sizeof *r);
        return DEFT_E_MEMORY;
    }
    df_diag d = { 0 };
    const deft_status st = runtime_open(r, &o, &d);
    if (st != DEFT_OK) {
        df_logf(&r->log, error, "runtime: %s", d.text);
        runtime_free(&r);
        return st;
    }
    *out = r;
    return DEFT_OK;
}

void deft_runtime_destroy(deft_runtime **rt)
{
    if (!rt || !*rt) return;
    deft_runtime *r = *rt;
    *rt = NULL;
    if (atomic_fetch_sub(&r->refs, 1) == 1) runtime_free(&r);
}

const char *deft_runtime_compiler(const deft_runtime *rt)
{
    if (!rt) return "";
    return rt->has_compiler ? df_compiler_text(&rt->compiler, true) : rt->compiler_text;
}

uint32_t deft_runtime_threads(const deft_runtime *rt)
{
    return rt ? df_pool_threads(df_cpu_pool(rt->dev)) : 0;
}

void deft_runtime_settle(deft_runtime *rt)
{
    if (!rt) return;
    df_tiers_wait_idle(df_cpu_tiers(rt->dev));
    df_rt_gpus_wait_idle(rt);
}
