/* SPDX-License-Identifier: Apache-2.0
 *
 * Runtimes and contexts: creation, errors, counters. The runtime holds what threads share (device,
 * plan and kernel caches); a context holds one program's records and handles.
 */
#include "lazy/device/devices.h"
#include "lazy/files/store.h"
#include "lazy/core/submit.h"
#include "lazy/log/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *deft_version(void)
{
    return "0.1.0";
}

/* ---- runtime ---- */

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

void df_take_options(void *to, size_t to_size, const void *from, size_t from_size)
{
    memset(to, 0, to_size);
    if (from) memcpy(to, from, from_size < to_size ? from_size : to_size);
}

bool df_check_options(deft_ctx *cx, const char *what, const char *name, size_t size)
{
    if (size) return true;
    df_error(cx, DEFT_E_ARG, "%s: the size of %s is 0, it must be sizeof(%s)", what, name, name);
    return false;
}

static void runtime_free(deft_runtime **rt)
{
    deft_runtime *const r = *rt;
    *rt = NULL;
    if (!r) return;
    if (r->dev) df_summary_tell(r->summary, r);
    df_cache_destroy(&r->plans);
    df_rt_gpus_close(r);
    if (r->dev) df_cpu_destroy(&r->dev);
    df_summary_close(&r->summary);
    df_journal_close(&r->journal);
    if (r->plugin) df_plugin_close(&r->compiler, &r->plugin);
    df_sites_destroy(&r->sites);
    if (r->plugin_dir) df_mem_free(r->mem, r->plugin_dir, strlen(r->plugin_dir) + 1);
    const df_mem hooks = r->mem_hooks;
    df_mem_free(&hooks, r, sizeof *r);
}

/* When the first call site is to be text. */
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

/* The folder of the structured log, NULL: none is wanted. */
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
        .compiler = deft_runtime_compiler(r), /* starts it: the log begins with its name */
        .n_threads = deft_runtime_threads(r),
        .problem = &r->trace_problem,
    };
    r->journal = r->log.journal = df_journal_open(r->mem, &r->log, &journal);
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
    const df_cpu_options cpu = {
        .n_threads = o->n_threads ? o->n_threads : (uint32_t)df_env_int("DEFT_NUM_THREADS", 0),
        .tier = device_tier(tier),
        .max_cached = o->max_cached_bytes,
        .max_code = o->max_code_bytes,
        .variant_after =
            o->variant_launches ? o->variant_launches : (uint32_t)df_env_int("DEFT_VARIANTS", 0),
        .compiler = r->has_compiler ? &r->compiler : NULL,
        .use_blas = true,
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
    if (!df_fork_lock_init(&r->gpu_lock)) {
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
    df_tiers_settle(df_cpu_tiers(rt->dev));
    df_rt_gpus_settle(rt);
}

/* ---- context ---- */

static void fill_tables(deft_ctx *cx)
{
    for (int op = 0; op < DF_N_OPS; op++)
        for (int t = 0; t < DEFT_N_DTYPES; t++) {
            deft_dtype u;
            if (df_dtype_operand(NULL, (df_op)op, (deft_dtype)t, &u) == DEFT_OK &&
                u == (deft_dtype)t)
                cx->direct[op] |= (uint8_t)(1u << t);
        }
}

deft_status deft_ctx_create(deft_runtime *rt, const deft_ctx_options *options, deft_ctx **out)
{
    if (!out) return DEFT_E_ARG;
    *out = NULL;
    if (options && options->size == 0) {
        if (rt)
            df_logf(&rt->log, error,
                    "context: the size of deft_ctx_options is 0, it must be "
                    "sizeof(deft_ctx_options)");
        return DEFT_E_ARG;
    }
    deft_runtime *own = NULL;
    if (!rt) {
        const deft_status st = deft_runtime_create(NULL, &own);
        if (st != DEFT_OK) return st;
        rt = own;
    } else {
        atomic_fetch_add(&rt->refs, 1);
    }
    deft_ctx *cx = df_mem_zalloc(rt->mem, sizeof *cx);
    if (!cx) {
        deft_runtime_destroy(&rt);
        return DEFT_E_MEMORY;
    }
    cx->rt = rt;
    cx->mem = rt->mem;
    cx->epoch = 1;
    cx->body_loop = DF_NONE;
    do cx->id = atomic_fetch_add(&rt->n_ctx, 1) + 1;
    while (cx->id == 0);
    df_take_options(&cx->opt, sizeof cx->opt, options, options ? options->size : 0);
    if (!cx->opt.max_nodes) cx->opt.max_nodes = 1u << 21;
    if (cx->opt.numerics == DEFT_FAST) cx->trace_flags |= DF_TRACE_FAST;
    if (cx->opt.no_fusion) cx->trace_flags |= DF_TRACE_NOFUSE;
    cx->rec.id = cx->spine_id = 1;
    df_budget_set(cx, NULL);
    cx->compiles.owner = cx->id;
    df_tiers_listen(df_cpu_tiers(rt->dev), &cx->compiles);
    cx->ring = df_ring_open(rt->journal, cx->id);
    if (df_ring_on(cx->ring) && df_journal_has_launches(rt->journal))
        cx->launch_ring = df_ring_open(rt->journal, cx->id);
    df_arena_init(&cx->pass, cx->mem);
    fill_tables(cx);
    df_diag d = { 0 };
    deft_status st = df_ctx_settle(cx, &d);
    if (st != DEFT_OK)
        df_logf(&rt->log, error, "context: %s", d.text);
    else if (!df_vec_push(cx->mem, &cx->rec.vals, NULL) || !df_scope_push(cx, 0))
        st = DEFT_E_MEMORY;
    if (st != DEFT_OK) {
        deft_ctx_destroy(&cx);
        return st;
    }
    cx->diag = rt->trace_problem; /* no failure of a call: the first sentence of the context */
    cx->diag.status = DEFT_OK;
    *out = cx;
    return DEFT_OK;
}

/* The sentence of d with the line of its call, unless the sentence has it already. */
static const char *sentence(deft_ctx *cx, const df_diag *d, uintptr_t site)
{
    char at[DF_SITE_TEXT];
    if (!d->text[0] || !site) return d->text;
    (void)df_ctx_site_text(cx, site, at, sizeof at);
    if (strstr(d->text, at)) return d->text;
    snprintf(cx->sentence, sizeof cx->sentence, "%s, at %s", d->text, at);
    return cx->sentence;
}

static void drop_kept(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    df_handle_unbind(cx, t);
    t->flags = 0;
}

void deft_ctx_destroy(deft_ctx **pcx)
{
    if (!pcx || !*pcx) return;
    deft_ctx *const cx = *pcx;
    *pcx = NULL;
    if (cx->pending != DEFT_OK && !cx->mistake_told)
        df_logf(&cx->rt->log, error, "never collected: %s: %s", deft_status_text(cx->pending),
                sentence(cx, &cx->mistake, cx->mistake.site));
    df_flight_finish(cx);
    df_summary_add(cx->rt->summary, cx);
    while (cx->undo.n) df_value_drop(cx, &cx->undo.at[--cx->undo.n].value);
    if (cx->frame[0].first) df_each_outer(cx, cx->depth + 1, drop_kept, NULL);
    while (cx->muts.n) {
        df_mut *const m = &cx->muts.at[--cx->muts.n];
        df_value_drop(cx, &m->value);
        df_value_drop(cx, &m->now.what);
        df_value_drop(cx, &m->before.what);
    }
    for (size_t i = 1; i < cx->rec.vals.n; i++) df_value_drop(cx, &cx->rec.vals.at[i]);
    for (df_value *v = cx->free_values, *next; v; v = next) {
        next = v->next;
        df_mem_free(cx->mem, v, sizeof *v);
    }
    df_ctx_leave(cx);
    df_tiers_unlisten(df_cpu_tiers(cx->rt->dev), &cx->compiles);
    df_counted_drop(&cx->last_plan);
    df_store_forget(cx);
    df_spine_finish(cx);
    df_arena_finish(&cx->pass);
    df_rec_finish(cx, &cx->rec);
    df_vec_finish(cx->mem, &cx->rec.vals);
    for (size_t i = 0; i < cx->chunks.n; i += 2)
        df_mem_free(cx->mem, cx->chunks.at[i], (size_t)(uintptr_t)cx->chunks.at[i + 1]);
    df_vec_finish(cx->mem, &cx->chunks);
    df_vec_finish(cx->mem, &cx->kept);
    df_vec_finish(cx->mem, &cx->undo);
    df_vec_finish(cx->mem, &cx->want);
    df_vec_finish(cx->mem, &cx->who);
    df_vec_finish(cx->mem, &cx->muts);
    df_vec_finish(cx->mem, &cx->slots);
    df_vec_finish(cx->mem, &cx->again);
    df_vec_finish(cx->mem, &cx->marks);
    df_grad_marks_cut_off(cx, 0);
    df_vec_finish(cx->mem, &cx->grad_marks);
    df_ring_end(&cx->ring);
    df_ring_end(&cx->launch_ring);
    deft_runtime *rt = cx->rt;
    df_mem_free(cx->mem, cx, sizeof *cx);
    deft_runtime_destroy(&rt);
}

deft_runtime *deft_ctx_runtime(deft_ctx *cx)
{
    return cx ? cx->rt : NULL;
}

/* ---- errors ---- */

/* Whether the undelivered mistake gives way to a new one. The first mistake of a step is what its
 * end delivers. Elsewhere the first since the latest acting call is the cause of what follows, and
 * an older one is about something else. */
static bool is_over(const deft_ctx *cx)
{
    if (cx->pending == DEFT_OK) return true;
    if (cx->step_at) return !cx->mistake_in_step;
    return cx->mistake_told || cx->mistake_act != cx->n_acts;
}

void df_said(deft_ctx *cx)
{
    if (cx->diag.status != DEFT_OK && !cx->diag.site) cx->diag.site = cx->act_site;
    cx->diag.status = DEFT_OK;
}

void df_error_older(deft_ctx *cx, const df_diag *d)
{
    if (cx->n_mistakes == cx->act_mark) cx->own = *d;
    cx->n_mistakes++;
    df_said(cx);
}

/* d: a sentence that is not cx->mistake. */
static void *note_mistake(deft_ctx *cx, const df_diag *d)
{
    df_error_older(cx, d);
    if (!is_over(cx)) return NULL;
    cx->mistake = *d;
    cx->pending = d->status;
    cx->owes_mark = 0; /* what an earlier one kept from tensors is none of this one's */
    cx->mistake_number = cx->n_mistakes;
    cx->mistake_act = cx->n_acts;
    cx->mistake_serial = cx->serial;
    cx->mistake_in_step = cx->step_at != 0;
    cx->mistake_told = false;
    return NULL;
}

void *df_error(deft_ctx *cx, deft_status st, const char *fmt, ...)
{
    df_diag d = { .status = st, .site = df_here(cx, cx->call) };
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d.text, sizeof d.text, fmt, ap);
    va_end(ap);
    return note_mistake(cx, &d);
}

void *df_error_keep(deft_ctx *cx, deft_status st)
{
    df_diag d = cx->diag;
    d.status = st;
    if (!d.site) d.site = df_here(cx, cx->call);
    return note_mistake(cx, &d);
}

deft_status df_refuse(deft_ctx *cx, deft_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cx->diag.text, sizeof cx->diag.text, fmt, ap);
    va_end(ap);
    cx->diag.node = 0;
    cx->diag.site = df_here(cx, cx->call);
    return cx->diag.status = st;
}

uint32_t df_mistakes(const deft_ctx *cx)
{
    return cx->n_mistakes;
}

bool df_step_has_mistake(const deft_ctx *cx)
{
    return cx->step_at && cx->pending != DEFT_OK && cx->mistake_in_step;
}

const df_mem *df_ctx_mem(const deft_ctx *cx)
{
    return cx->mem;
}

bool df_ctx_in_step(const deft_ctx *cx)
{
    return cx->step_at != 0;
}

bool df_ctx_is_passing(const deft_ctx *cx)
{
    return cx->step_at || cx->recording || cx->body_at;
}

void df_calls(deft_ctx *cx, uintptr_t site)
{
    df_enter_call(cx, site);
}

void df_acts(deft_ctx *cx, const char *what, uintptr_t site)
{
    df_act(cx, what, site);
}

deft_status df_may_act(deft_ctx *cx)
{
    if (!cx->body_at) return DEFT_OK;
    return df_fail(&cx->diag, DEFT_E_STATE,
                   "%s: inside the function of a loop, branch or vmap nothing can be computed",
                   cx->act ? cx->act : "call");
}

/* The undelivered mistake has been told to the program. */
static void end_mistake(deft_ctx *cx)
{
    cx->pending = DEFT_OK;
    if (DF_UNLIKELY(cx->owes)) df_owe_delivered(cx);
}

deft_status df_deliver(deft_ctx *cx)
{
    if (cx->n_mistakes != cx->act_mark) { /* the acting call's own */
        if (cx->mistake_number > cx->act_mark) end_mistake(cx);
        cx->act_mark = cx->n_mistakes;
        cx->diag = cx->own;
        return cx->diag.status;
    }
    const deft_status st = cx->pending;
    if (st == DEFT_OK) return st;
    cx->diag = cx->mistake;
    cx->mistake_told = true;
    if (!cx->mistake_in_step) end_mistake(cx);
    return st;
}

deft_status df_deliver_step(deft_ctx *cx)
{
    const deft_status st = cx->pending;
    if (st == DEFT_OK || !cx->mistake_in_step) return DEFT_OK;
    cx->diag = cx->mistake;
    end_mistake(cx);
    cx->act_mark = cx->n_mistakes;
    return st;
}

deft_status deft_error(const deft_ctx *cx)
{
    return cx ? cx->pending : DEFT_E_ARG;
}

const char *deft_message(const deft_ctx *c)
{
    if (!c) return "";
    deft_ctx *const cx = (deft_ctx *)(uintptr_t)c; /* which belongs to this thread */
    if (cx->diag.status == DEFT_OK && cx->pending != DEFT_OK) {
        cx->mistake_told = true;
        return sentence(cx, &cx->mistake, cx->mistake.site);
    }
    const bool latest = cx->diag.status != DEFT_OK;
    return sentence(cx, &cx->diag, cx->diag.site || !latest ? cx->diag.site : cx->act_site);
}

void deft_clear(deft_ctx *cx)
{
    if (!cx) return;
    cx->pending = DEFT_OK;
    if (DF_UNLIKELY(cx->owes)) df_owe_nothing(cx);
    df_diag_clear(&cx->diag);
}

void deft_interrupt(deft_ctx *cx)
{
    if (cx) atomic_store(&cx->interrupted, 1);
}

/* ---- counters ---- */

void deft_stats_read(const deft_ctx *cx, deft_stats *out, size_t size)
{
    if (!cx || !out) return;
    deft_stats s = cx->stats;
    s.ops_recorded += cx->rec.n - cx->rec.n_inputs; /* the pending ones are not counted yet */
    const df_allocator_stats a = df_allocator_read(cx->rt->dev->allocator);
    const df_tier_stats t = df_tiers_read(df_cpu_tiers(cx->rt->dev));
    s.system_allocations = a.system_allocations;
    s.live_bytes = a.live_bytes;
    s.peak_bytes = a.peak_bytes;
    s.kernels_compiled = t.compiled;
    s.kernels_known = t.kernels;
    s.ns_compile = t.compile_ns;
    s.variants_made = t.variants;
    s.variants_dropped = t.variants_dropped;
    memset(out, 0, size);
    memcpy(out, &s, size < sizeof s ? size : sizeof s);
}
