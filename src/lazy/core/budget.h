/* SPDX-License-Identifier: Apache-2.0
 *
 * What budget.c offers to budget_flush.c.
 */
#ifndef DF_LAZY_BUDGET_H
#define DF_LAZY_BUDGET_H

#include "lazy/core/lazy.h"

/* Records between two looks: a clock is read in the time of one or two. */
enum { DF_LOOK_EVERY = 16 };

/* Whether b bounds anything else than the number of records. */
DF_INLINE bool df_budget_is_close(const df_budget *b)
{
    return b->max_bytes || b->max_latency_ns;
}

/* The number of records with which max_nodes are pending. */
uint32_t df_budget_last_look(const deft_ctx *cx);
/* The next look is at n records, or at df_budget_last_look where that comes first. */
void df_budget_look_at(deft_ctx *cx, uint32_t n);
/* Bytes of memory that v holds; 0 for the caller's memory. */
uint64_t df_budget_bytes(const df_value *v);

#endif
