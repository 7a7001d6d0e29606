/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording a view again. Needs the thread of the context.
 */
#ifndef DF_LAZY_VIEWS_H
#define DF_LAZY_VIEWS_H

#include "lazy/core/record.h"

/* Appends record k once more with other operands. The first operand must have the rank of the first
 * operand of k. */
uint32_t df_append_like(deft_ctx *cx, uint32_t k, const uint32_t *src, uintptr_t site);
/* Records the views that lead from record `place` down to record `base` again, on top of record
 * `onto`, which has the shape of base. Returns the record for `place`. Fails with DEFT_E_LIMIT when
 * the views are too many. */
uint32_t df_rebase(deft_ctx *cx, uint32_t place, uint32_t base, uint32_t onto);

#endif
