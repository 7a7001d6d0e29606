/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU: its primary context, its events, and how errors of the driver are handled. The
 * context is retained once, and is current only within a call of this library. Events are
 * created once and reused.
 *
 * The driver's documentation says which errors stay ("the process must be terminated and
 * relaunched"). After such an error only calls that destroy things are made. So the error
 * that is reported is the first one, and not a consequence of it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/site.h"
#include "jit_cuda/driver/gpu_internal.h"

/* ---- errors ---- */

bool df_gpu_is_lasting(df_cu_result r)
{
    switch (r) {
    case 214: /* ECC_UNCORRECTABLE */
    case 220: /* NVLINK_UNCORRECTABLE */
    case 700: /* ILLEGAL_ADDRESS */
    case 702: /* LAUNCH_TIMEOUT */
    case 709: /* CONTEXT_IS_DESTROYED */
    case 710: /* ASSERT */
    case 714: /* HARDWARE_STACK_ERROR */
    case 715: /* ILLEGAL_INSTRUCTION */
    case 716: /* MISALIGNED_ADDRESS */
    case 717: /* INVALID_ADDRESS_SPACE */
    case 718: /* INVALID_PC */
    case 719: /* LAUNCH_FAILED */ return true;
    }
    return false;
}

/* Appends to d which launch an error may come from. */
static void tell_note(const df_gpu *g, const df_queue *q, df_diag *d)
{
    char site[DF_SITE_TEXT];
    const uint64_t open = q->n_noted - q->n_ended;
    if (open == 0) {
        (void)df_fail_more(d, "; all launches that this queue knows of have ended");
        return;
    }
    const uint64_t kept = open < DF_QUEUE_NOTES ? open : DF_QUEUE_NOTES;
    const df_queue_noted *const it = &q->noted[(q->n_noted - kept) % DF_QUEUE_NOTES];
    (void)df_site_text(g->log ? g->log->sites : NULL, it->n.site, site, sizeof site);
    if (open == 1)
        (void)df_fail_more(d, "; in the launch of %s (plan %u.%u) at %s", it->ops, it->n.owner,
                           it->n.number, site);
    else
        (void)df_fail_more(d,
                           "; in the launch of %s (plan %u.%u) at %s or one of %llu that follow%s; "
                           "DEFT_CUDA_BLOCKING=1 finds which",
                           it->ops, it->n.owner, it->n.number, site, (unsigned long long)(kept - 1),
                           kept < open ? ", or before" : "");
}

static void lose(df_gpu *g, const char *text)
{
    pthread_mutex_lock(&g->lock);
    if (!atomic_load_explicit(&g->is_lost, memory_order_relaxed)) {
        (void)snprintf(g->lost, sizeof g->lost, "%s", text);
        atomic_store_explicit(&g->is_lost, true, memory_order_release);
    }
    pthread_mutex_unlock(&g->lock);
}

deft_status df_gpu_failed(df_gpu *g, df_queue *q, df_diag *d, df_cu_result r, bool comes_late,
                          const char *call)
{
    df_diag own = { 0 };
    const bool lasts = df_gpu_is_lasting(r);
    const deft_status st = df_driver_fail(g->dr, &own, r, "GPU %d: %s", g->ordinal, call);
    if (q && (comes_late || lasts)) tell_note(g, q, &own);
    if (lasts) lose(g, own.text);
    return df_fail(d, st, "%s%s", own.text,
                   lasts ? "; this GPU cannot be used until the process ends" : "");
}

static deft_status tell_lost(const df_gpu *g, df_diag *d)
{
    return df_fail(d, DEFT_E_BACKEND,
                   "cuda: GPU %d cannot be used until the process ends, since this was: %s",
                   g->ordinal, g->lost);
}

/* ---- context ---- */

deft_status df_gpu_check(const df_gpu *g, df_diag *d)
{
    const deft_status st = df_driver_usable(g->dr, d);
    if (st == DEFT_OK && DF_UNLIKELY(atomic_load_explicit(&g->is_lost, memory_order_acquire)))
        return tell_lost(g, d);
    return st;
}

deft_status df_gpu_enter(const df_gpu *g, df_diag *d)
{
    const deft_status st = df_gpu_check(g, d);
    if (st != DEFT_OK) return st;
    const df_cu_result r = g->dr->ctx_push(g->ctx);
    return r ? df_driver_fail(g->dr, d, r, "GPU %d: cuCtxPushCurrent", g->ordinal) : DEFT_OK;
}

void df_gpu_leave(const df_gpu *g)
{
    df_cu_ctx ctx;
    (void)g->dr->ctx_pop(&ctx);
}

bool df_gpu_enter_last(const df_gpu *g)
{
    return g->dr->ctx_push(g->ctx) == 0 || g->dr->ctx_push(g->ctx) == 0;
}

deft_status df_queue_enter(df_queue *q, df_diag *d)
{
    const deft_status st = df_gpu_enter(q->g, d);
    if (st != DEFT_OK || DF_LIKELY(!q->late)) return st;
    const df_cu_result late = q->late;
    q->late = 0;
    df_gpu_leave(q->g);
    return df_gpu_failed(q->g, q, d, late, true, "cuStreamQuery");
}

void df_queue_unref(df_queue *q)
{
    if (--q->refs == 0) df_mem_free(q->g->mem, q, sizeof *q);
}

df_cu_ctx df_gpu_ctx(const df_gpu *g)
{
    return g->ctx;
}

const df_gpu_properties *df_gpu_facts_of(const df_gpu *g)
{
    return &g->facts;
}

const df_driver *df_gpu_driver(const df_gpu *g)
{
    return g->dr;
}

/* ---- events ---- */

df_cu_result df_gpu_event_take(df_gpu *g, df_cu_event *out)
{
    enum { DISABLE_TIMING = 2 };
    if (g->events.n > 0) {
        *out = g->events.at[--g->events.n];
        return 0;
    }
    /* Reserves entries for all events that exist, so that df_gpu_event_give cannot fail. */
    if (!df_vec_reserve(g->mem, &g->events, g->n_events + 1)) return DF_CU_OUT_OF_MEMORY;
    const df_cu_result r = g->dr->event_create(out, DISABLE_TIMING);
    g->n_events += r == 0;
    return r;
}

void df_gpu_event_give(df_gpu *g, df_cu_event *ev)
{
    if (*ev) g->events.at[g->events.n++] = *ev;
    *ev = NULL;
}
