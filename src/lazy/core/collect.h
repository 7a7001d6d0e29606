/* SPDX-License-Identifier: Apache-2.0
 *
 * Which records a cut must compute, for whom, and what happens to the results: collect.c serves
 * scope.c and step.c.
 */
#ifndef DF_LAZY_COLLECT_H
#define DF_LAZY_COLLECT_H

#include "lazy/core/lazy.h"

typedef enum df_cut_kind {
    DF_CUT_RELIEF, /* forced by a budget */
    DF_CUT_MIDDLE, /* in the middle of a step, or outside steps */
    DF_CUT_COMMIT, /* ends a step */
    DF_CUT_SUBMIT  /* ends a step, which is left to run */
} df_cut_kind;

/* Whether t is bound to a record and to no value. */
DF_INLINE bool df_is_pending(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch == cx->epoch;
}

/* The value of a record as a tensor may keep it, or NULL. Borrowed memory does not count: it is the
 * caller's again once the step has ended, and is copied before. */
DF_INLINE df_value *df_own_value(const deft_ctx *cx, uint32_t node)
{
    const uint32_t i = cx->rec.val[node];
    df_value *const v = i ? cx->rec.vals.at[i] : NULL;
    return v && !(v->flags & DF_VALUE_WRAPPED) ? v : NULL;
}

/* Computes every pending handle that is owned outside depth `below`, and binds it to its value. */
deft_status df_compute_outer(deft_ctx *cx, uint32_t below, df_cut_kind kind);
/* Handles outside depth `below` whose records have values get references of their own. */
void df_settle_outer(deft_ctx *cx, uint32_t below);
/* Whether a handle outside depth `below` waits for a record without a value. */
bool df_has_pending_outer(deft_ctx *cx, uint32_t below);
/* Plans what the end of the open step would compute, without running it. */
deft_status df_foresee(deft_ctx *cx, deft_step_memory *out);

#endif
