/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of a cut share. materialize.c calls plan.c and run.c.
 */
#ifndef DF_LAZY_RUN_H
#define DF_LAZY_RUN_H

#include "lazy/core/history.h"
#include "runtime/os.h"

/* The time now, or 0 when nothing is measured. */
DF_INLINE uint64_t df_ctx_now_ns(const deft_ctx *cx)
{
    return cx->rt->measure ? df_os_now_ns() : 0;
}

/* Whether deft_interrupt was called for the context `user` since the last call of this
 * function. Any thread. */
bool df_ctx_interrupted(void *user);
/* Calls the progress callback of the context `user` while a run waits for the compiler.
 * Returns false when the program does not want to wait, or has called deft_interrupt. Any
 * thread. */
bool df_ctx_goes_on(void *user, const df_waiting *now);

/* Finds or makes the plan of m, and evaluates its slots into cx->slots. The plan of m's
 * latest run is used when its guards still hold. On failure m keeps the plan it had. */
deft_status df_cut_find_plan(deft_ctx *cx, df_cut *m);

#endif
