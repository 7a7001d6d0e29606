/* SPDX-License-Identifier: Apache-2.0
 *
 * The budgets in force, and the number of records at which they are checked next
 * (budget_flush.c checks them).
 */
#include "lazy/core/budget.h"

#include "lazy/core/history.h"
#include "runtime/os.h"

uint32_t df_budget_last_look(const deft_ctx *cx)
{
    const uint32_t most = cx->budget.max_nodes, before = cx->n_before;
    return most < UINT32_MAX - before ? before + most : UINT32_MAX;
}

void df_budget_look_at(deft_ctx *cx, uint32_t n)
{
    const uint32_t last = df_budget_last_look(cx);
    cx->look_at = n < last ? n : last;
    df_history_look(cx);
}

void df_budget_set(deft_ctx *cx, const deft_step_options *options)
{
    deft_step_options o = { 0 };
    const deft_ctx_options *const d = &cx->opt;
    if (options) df_take_options(&o, sizeof o, options, options->size);
    const df_budget b = {
        .syncs = o.syncs    ? o.syncs
                 : d->syncs ? d->syncs
                            : DEFT_SYNC_ALLOW,
        .max_nodes = o.max_nodes ? o.max_nodes : d->max_nodes,
        .max_bytes = o.max_bytes ? o.max_bytes : d->max_bytes,
        .max_latency_ns = o.max_latency_ns ? o.max_latency_ns : d->max_latency_ns,
        .max_temporary_bytes =
            o.max_temporary_bytes ? o.max_temporary_bytes : d->max_temporary_bytes,
    };
    cx->budget = b;
    cx->first_look =
        df_budget_is_close(&b) && DF_LOOK_EVERY < b.max_nodes ? DF_LOOK_EVERY : b.max_nodes;
    cx->since_ns = b.max_latency_ns ? df_os_now_ns() : 0;
    const uint32_t at =
        df_budget_is_close(&b) ? cx->rec.n + DF_LOOK_EVERY : df_budget_last_look(cx);
    if (at != cx->look_at) df_budget_look_at(cx, at);
}

uint64_t df_budget_bytes(const df_value *v)
{
    return v->buf && !(v->flags & DF_VALUE_WRAPPED) ? (uint64_t)v->buf->bytes : 0;
}

void df_budget_truncate(deft_ctx *cx, uint32_t n)
{
    if (cx->n_before > n) cx->n_before = n;
}

void df_budget_pin(deft_ctx *cx, const df_value *v)
{
    cx->pinned += df_budget_bytes(v);
    /* Checking costs time per value, so the next check waits for some more records. */
    const uint32_t at = cx->rec.n + (uint32_t)(cx->rec.vals.n / 64);
    if (cx->budget.max_bytes && cx->pinned > cx->budget.max_bytes && cx->look_at > at)
        df_budget_look_at(cx, at);
}

void df_budget_unpin(deft_ctx *cx, const df_value *v)
{
    cx->pinned -= df_budget_bytes(v);
}
