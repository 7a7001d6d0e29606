/* SPDX-License-Identifier: Apache-2.0
 *
 * What budget.c offers to budget_flush.c.
 */
#ifndef DF_LAZY_BUDGET_H
#define DF_LAZY_BUDGET_H

#include "lazy/core/lazy.h"

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
