/* SPDX-License-Identifier: Apache-2.0
 *
 * Computing records: what this room offers to other rooms. A function that returns deft_status
 * leaves the sentence of a failure in cx->diag. All functions need the thread of the context.
 */
#ifndef DF_LAZY_MATERIALIZE_H
#define DF_LAZY_MATERIALIZE_H

#include "lazy/core/history.h"

/* ---- materialize.c ---- */

/* Computes the n wanted records. On success, each want has its result, and the records whose
 * values the run has stored have these values. On failure nothing has changed. */
deft_status df_materialize(deft_ctx *cx, df_want *want, uint32_t n);
/* The same for a call that reads. Results of loops that are computed on the way get values too. */
deft_status df_materialize_read(deft_ctx *cx, df_want *want, uint32_t n);
/* The same up to the run: *out is a prepared cut. Records get no values, because their epoch
 * ends. */
deft_status df_materialize_prepare(deft_ctx *cx, df_want *want, uint32_t n, df_cut **out);
/* Makes the plan, and returns in *out the memory that a run would take. */
deft_status df_materialize_estimate(deft_ctx *cx, df_want *want, uint32_t n, deft_step_memory *out);
/* Computes the wants of m. With `recorded`, the records of m are records of this epoch, and get
 * their values. */
deft_status df_cut_run(deft_ctx *cx, df_cut *m, df_want *want, bool recorded);

/* ---- sync.c ---- */

/* df_materialize for an acting call that reads: the sync policy of the open step may refuse it, and
 * it counts as a sync. */
deft_status df_sync(deft_ctx *cx, df_want *want, uint32_t n);

/* ---- read.c ---- */

/* Begins the acting call `what`, whose return address is `site`, and computes the value of its
 * operand t. The context goes to *cx, once t is known to have one. The value goes to *out, which is
 * borrowed, because t or its record holds the value. */
deft_status df_read_value(const char *what, uintptr_t site, deft_tensor *t, deft_ctx **cx,
                          df_value **out);
/* The same for a call that knows faces (core/face.h), which df_read_value refuses. */
deft_status df_read_faced(const char *what, uintptr_t site, deft_tensor *t, deft_ctx **cx,
                          df_value **out);

/* ---- collect.c ---- */

/* Whether df_flush would compute anything. */
bool df_has_pending(deft_ctx *cx);
/* Computes all pending handles, and begins a new epoch. */
deft_status df_flush(deft_ctx *cx);
/* Computes what is pending, as deft_eval of every live handle would. The records stay, because
 * gradients, views and the undo log of a step need them. Nothing is written into memory of the
 * caller. */
deft_status df_budget_flush(deft_ctx *cx);

/* ---- budget_flush.c ---- */

/* Called when a recording call finds cx->look_at records. Computes everything pending if a budget
 * is used up. Returns false, with the error recorded, when that failed. */
bool df_make_room(deft_ctx *cx);
/* Called when a scope has ended while others are open or tensors are pending. Forgets records that
 * nothing can refer to any more, if they are many or hold much memory. */
void df_forget_ended(deft_ctx *cx);

/* ---- scopes and steps ---- */

/* Ends the scope at that depth, and all scopes inside it (scope.c). */
void df_scope_pop(deft_ctx *cx, uint32_t depth);
/* Ends the step s for an acting call that is under way (step.c). */
deft_status df_step_end(deft_scope s);
/* Closes the open labels, except the n outermost ones (labels.c). */
void df_labels_end(deft_ctx *cx, uint32_t n);

#endif
