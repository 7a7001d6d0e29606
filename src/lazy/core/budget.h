/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets: how much may be pending before a recording call computes it. budget.c counts;
 * run/budget_flush.c computes. All functions need the thread of the context.
 */
#ifndef DF_LAZY_BUDGET_H
#define DF_LAZY_BUDGET_H

#include "lazy/core/context.h"

/* Puts the budget of a step that opens into force. With `o` NULL, that of the context. */
void df_budget_set(deft_ctx *cx, const deft_step_options *o);
/* Called before the records from n on are removed. */
void df_budget_truncate(deft_ctx *cx, uint32_t n);
/* Called when pending records begin, or cease, to refer to v. */
void df_budget_pin(deft_ctx *cx, const df_value *v);
void df_budget_unpin(deft_ctx *cx, const df_value *v);

/* A walk is a piece of work that holds record numbers while it makes recording calls, such as the
 * body of a loop. Budgets force no cut until the outermost walk has ended, because a cut gives
 * records new numbers. */
DF_INLINE void df_walk_begin(deft_ctx *cx)
{
    cx->n_walks++;
}

DF_INLINE void df_walk_end(deft_ctx *cx)
{
    df_assert(cx->n_walks > 0);
    cx->n_walks--;
}

/* The records that a budget counts: those since the latest cut that a budget forced. */
DF_INLINE uint32_t df_n_pending(const deft_ctx *cx)
{
    return cx->rec.n - cx->n_before;
}

/* ---- for budget_flush.c ---- */

/* Number of records between two checks of a budget. Reading the clock takes as long as
 * recording one or two operators. */
enum { DF_LOOK_EVERY = 16 };

/* Whether b bounds anything else than the number of records. Then it is checked often. */
DF_INLINE bool df_budget_is_close(const df_budget *b)
{
    return b->max_bytes || b->max_latency_ns;
}

/* The length of the list of records at which max_nodes records are pending. */
uint32_t df_budget_last_look(const deft_ctx *cx);
/* The budget is checked next when there are n records, or earlier, at
 * df_budget_last_look. */
void df_budget_look_at(deft_ctx *cx, uint32_t n);
/* Size in bytes of the memory that v holds. 0 for wrapped memory, which belongs to the
 * caller. */
uint64_t df_budget_bytes(const df_value *v);

#endif
