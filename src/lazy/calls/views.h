/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording existing records again, on other operands. Assignment through views, gradients and
 * vmap use this. As in lazy/core/record.h, a failure is recorded in cx and the function returns
 * DF_BAD. All functions need the thread of the context.
 */
#ifndef DF_LAZY_VIEWS_H
#define DF_LAZY_VIEWS_H

#include "lazy/core/record.h"

/* Records the operator, attribute and arguments of record k again, on the operands src. Returns the
 * new record. k may have any operator, and src has as many entries as k has operands. The first
 * operand must have the rank of the first operand of k. Where the extents are not determined by the
 * operands, as for reshape, they are those of k. */
uint32_t df_append_like(deft_ctx *cx, uint32_t k, const uint32_t *src, uintptr_t site);
/* Records a chain of views again, with another base. `place` is the last view of the chain, and the
 * first one views `base`. The same views are recorded on `onto`, which has the shape and dtype
 * of base, each under its earlier call site. Returns the record that corresponds to `place`;
 * `onto` when place is base. Fails with DEFT_E_LIMIT when there are more than 32 views. */
uint32_t df_rebase(deft_ctx *cx, uint32_t place, uint32_t base, uint32_t onto);

/* Assigns v to dst, for an acting call that is under way. Returns the status of a mistake, with its
 * sentence in cx->diag. */
deft_status df_assign_value(deft_ctx *cx, deft_tensor *dst, df_value *v);

#endif
