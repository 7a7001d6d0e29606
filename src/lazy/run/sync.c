/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that need a value at once, and the sync policy of the step that allows or refuses
 * them.
 */
#include "lazy/log/notes.h"
#include "lazy/run/materialize.h"
#include "lazy/log/why.h"

#include <stdio.h>

static void log_sync(deft_ctx *cx, df_reason reason, uint32_t n, bool only_log)
{
    df_event e;
    char found[64];
    snprintf(found, sizeof found, "%u pending record%s", n, n == 1 ? "" : "s");
    df_event_make(&e, reason, cx->act_site, cx->act, "a value", found);
    if (cx->step_at) e.other = cx->scope[cx->step_at].site;
    if (only_log)
        df_event_log(&cx->rt->log, &e);
    else
        df_why_log(cx, &e);
}

deft_status df_sync(deft_ctx *cx, df_want *want, uint32_t n)
{
    const deft_sync_policy policy = cx->step_at ? cx->budget.syncs : DEFT_SYNC_ALLOW;
    if (policy == DEFT_SYNC_REFUSE) {
        char here[DF_SITE_TEXT], step[DF_SITE_TEXT];
        log_sync(cx, DF_WHY_sync_refused, cx->rec.n - cx->rec.n_inputs, false);
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "%s at %s: the value is pending, and the step opened at %s refuses to "
                       "compute before its end",
                       cx->act, df_ctx_site_text(cx, cx->act_site, here, sizeof here),
                       df_ctx_site_text(cx, cx->scope[cx->step_at].site, step, sizeof step));
    }
    const deft_status st = df_materialize_read(cx, want, n);
    if (st != DEFT_OK) return st;
    cx->stats.syncs++;
    if (df_ring_on(cx->ring)) df_log_sync(cx);
    /* A sync whose cut was cached is only counted, unless the program asked for warnings
     * or logs. */
    const bool warn = policy == DEFT_SYNC_WARN;
    if (!cx->matched || warn || df_log_on(&cx->rt->log, DF_LOG_why))
        log_sync(cx, warn ? DF_WHY_sync_in_step : DF_WHY_sync,
                 cx->last->n_nodes - cx->last->n_inputs, cx->matched && !warn);
    return DEFT_OK;
}
