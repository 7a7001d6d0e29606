/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of a runtime: summary.h. The counters of contexts are added up when the
 * contexts end. The executor measures time by call site (runtime/spent.h).
 */
#include "lazy/log/summary.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "runtime/os.h"
#include "runtime/spent.h"

enum { N_TOP = 5, PATH = 1024 };

struct df_summary {
    const df_mem *mem;
    df_fork_lock lock; /* guards total and n_contexts */
    deft_stats total;
    uint64_t n_contexts;
    uint64_t begun_ns;
    df_spent *spent;
    char file[PATH]; /* "": none */
};

df_summary *df_summary_open(deft_runtime *r)
{
    const char *const asked = df_env("DEFT_STATS");
    const bool is_file = asked && strchr(asked, '/');
    if (!is_file && !df_env_flag("DEFT_STATS", false) && !df_log_on(&r->log, DF_LOG_stats))
        return NULL;
    df_summary *s = df_mem_zalloc(r->mem, sizeof *s);
    if (s) {
        s->mem = r->mem;
        s->begun_ns = df_os_now_ns();
        s->spent = df_spent_create(r->mem);
        if (is_file) (void)snprintf(s->file, sizeof s->file, "%s", asked);
        if (s->spent && df_fork_lock_init(&s->lock)) return s;
        df_spent_destroy(&s->spent);
        df_mem_free(r->mem, s, sizeof *s);
    }
    df_logf(&r->log, error, "DEFT_STATS: no memory");
    return NULL;
}

void df_summary_close(df_summary **out)
{
    df_summary *const s = *out;
    *out = NULL;
    if (!s) return;
    df_spent_destroy(&s->spent);
    df_fork_lock_finish(&s->lock);
    df_mem_free(s->mem, s, sizeof *s);
}

struct df_spent *df_summary_spent(df_summary *s)
{
    return s ? s->spent : NULL;
}

void df_summary_add(df_summary *s, const deft_ctx *cx)
{
    if (!s) return;
    deft_stats c;
    deft_stats_read(cx, &c, sizeof c);
    /* In a forked child, a sum that a missing thread was adding may be incomplete. */
    const bool lost = df_fork_lock_take(&s->lock);
    deft_stats *const t = &s->total;
    s->n_contexts += lost ? 0 : 1;
    t->ops_recorded += c.ops_recorded;
    t->cuts += c.cuts;
    t->cuts_matched += c.cuts_matched;
    t->plans_built += c.plans_built;
    t->plan_hits += c.plan_hits;
    t->plan_misses += c.plan_misses;
    t->guard_misses += c.guard_misses;
    t->launches += c.launches;
    t->kernels_run += c.kernels_run;
    t->interpreted += c.interpreted;
    t->recomputed += c.recomputed;
    t->donated += c.donated;
    t->syncs += c.syncs;
    t->ns_record_to_key += c.ns_record_to_key;
    t->ns_plan += c.ns_plan;
    t->ns_run += c.ns_run;
    t->ns_kernels += c.ns_kernels;
    t->submitted += c.submitted;
    df_fork_lock_give(&s->lock);
}

/* ---- lines ---- */

static void line(df_str *text, const df_log *log, const char *fmt, ...) DF_PRINTF(3, 4);

static void line(df_str *text, const df_log *log, const char *fmt, ...)
{
    char one[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(one, sizeof one, fmt, args);
    va_end(args);
    df_log_write(log, DF_LOG_stats, "%s", one);
    df_str_fmt(text, "deft: %s\n", one);
}

static double ms(uint64_t ns)
{
    return (double)ns * 1e-6;
}

#define U(n) (unsigned long long)(n)

static void put_sites(df_str *text, const df_summary *s, const deft_runtime *r)
{
    df_spending top[N_TOP], all;
    char site[DF_SITE_TEXT];
    const uint32_t n = df_spent_top(s->spent, top, N_TOP, &all);
    for (uint32_t i = 0; i < n; i++)
        line(text, &r->log, "%5.1f %% %.2f ms, %llu runs, %.3g MB: %s (%s)",
             all.ns ? 100.0 * (double)top[i].ns / (double)all.ns : 0.0, ms(top[i].ns), U(top[i].n),
             (double)top[i].bytes * 1e-6, df_site_text(r->sites, top[i].site, site, sizeof site),
             top[i].ops);
}

void df_summary_log(df_summary *s, deft_runtime *r)
{
    if (!s) return;
    const deft_stats *const t = &s->total;
    const df_allocator_stats a = df_allocator_read(r->dev->allocator);
    const df_tier_stats k = df_tiers_read(df_cpu_tiers(r->dev));
    df_spending top, all;
    df_str text;
    const char *const compiler =
        r->has_compiler ? df_compiler_text(&r->compiler, false) : r->compiler_text;
    df_str_init(&text, r->mem);
    (void)df_spent_top(s->spent, &top, 1, &all);
    line(&text, &r->log, "process %d, %.2f s, %llu contexts, %s", (int)getpid(),
         (double)(df_os_now_ns() - s->begun_ns) * 1e-9, U(s->n_contexts),
         compiler ? compiler : "nothing compiled");
    line(&text, &r->log,
         "%llu ops recorded, %llu cuts (%llu known), %llu reads that had to compute, %llu records "
         "computed again, %llu steps submitted",
         U(t->ops_recorded), U(t->cuts), U(t->cuts_matched), U(t->syncs), U(t->recomputed),
         U(t->submitted));
    line(&text, &r->log, "plans: %llu built, %llu hits, %llu misses, %llu of them by guards",
         U(t->plans_built), U(t->plan_hits), U(t->plan_misses), U(t->guard_misses));
    line(&text, &r->log,
         "kernels: %llu known, %llu compiled in %.2f ms, %llu variants, %llu refused", U(k.kernels),
         U(k.compiled), ms(k.compile_ns), U(k.variants), U(k.failed));
    line(&text, &r->log,
         "launches: %llu of %llu kernels (%llu interpreted), %llu results in place, %.3g MB moved",
         U(t->launches), U(t->kernels_run), U(t->interpreted), U(t->donated),
         (double)all.bytes * 1e-6);
    line(&text, &r->log, "time: %.2f ms from records to keys, %.2f plans, %.2f runs (%.2f kernels)",
         ms(t->ns_record_to_key), ms(t->ns_plan), ms(t->ns_run), ms(t->ns_kernels));
    line(&text, &r->log, "memory: %.3g MB at most, %llu allocations of the system",
         (double)a.peak_bytes * 1e-6, U(a.system_allocations));
    put_sites(&text, s, r);
    if (s->file[0] && (!text.ok || !df_os_append(s->file, text.at, text.n)))
        df_logf(&r->log, error, "DEFT_STATS: cannot write %.200s", s->file);
    df_str_finish(&text);
}
