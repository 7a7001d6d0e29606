/* SPDX-License-Identifier: Apache-2.0
 *
 * Which records a cut must compute, for which handles, and what happens to the results.
 * collect.c serves scope.c and step.c.
 */
#ifndef DF_LAZY_COLLECT_H
#define DF_LAZY_COLLECT_H

#include "lazy/core/lazy.h"

typedef enum df_cut_kind {
    DF_CUT_BUDGET, /* forced by a budget */
    DF_CUT_MIDDLE, /* in the middle of a step, or outside steps */
    DF_CUT_COMMIT, /* ends a step */
    DF_CUT_SUBMIT  /* ends a step that is submitted: a thread runs it */
} df_cut_kind;

/* Computes every pending handle that is owned outside depth `below`, and binds it to its
 * value. On failure the sentence is in cx->diag. */
deft_status df_compute_outer(deft_ctx *cx, uint32_t below, df_cut_kind kind);
/* Whether something is pending that needs a cut. Writes into memory of the caller's whose values
 * have been computed get these values first. */
bool df_needs_cut(deft_ctx *cx);
/* Whether a handle outside depth `below` has a record without a value. */
bool df_has_pending_outer(deft_ctx *cx, uint32_t below);
/* Plans what the end of the open step would compute, without running it. *out gets the
 * memory that it would need. */
deft_status df_estimate(deft_ctx *cx, deft_step_memory *out);

#endif
