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

/* Computes the n wanted records: df_materialize. */
typedef deft_status (*df_compute_fn)(deft_ctx *cx, df_want *want, uint32_t n);

/* Record k can never be computed, as d says. Tensors that wait for k lose their records, except
 * those that the open step has assigned. A tensor that needs k only in one branch of a cond is
 * computed with `compute` to find out (lost.c). */
void df_lose(deft_ctx *cx, uint32_t k, const df_diag *d, df_compute_fn compute) DF_COLD;
/* The same for the fault of the step that was just rolled back. */
void df_lose_again(deft_ctx *cx, df_compute_fn compute) DF_COLD;

/* ---- stages of a run (run.c) ---- */

/* Does what may fail before the run: the plan of m and its slots (cx->slots), and values without
 * memory for the results. */
deft_status df_cut_prepare(deft_ctx *cx, df_cut *m, df_want *want);
/* Runs m. Any thread: of cx, it reads only what does not change, and `interrupted`. *d gets the
 * sentence of a failure. */
deft_status df_cut_launch(deft_ctx *cx, df_cut *m, const df_want *want, const int64_t *slots,
                          df_diag *d, df_run_stats *stats, uint64_t *ns);
/* Makes the results of a run that succeeded the values of the wants. With `recorded`, records of m
 * are records of this epoch and get their values too. */
void df_cut_publish(deft_ctx *cx, df_cut *m, df_want *want, bool recorded,
                    const df_run_stats *stats, uint64_t ns);
/* Called instead of df_cut_publish when the run failed, as d says. */
void df_cut_fail(deft_ctx *cx, df_cut *m, df_want *want, const df_run_stats *stats, uint64_t ns,
                 const df_diag *d);

/* ---- plans (plan.c) ---- */

/* Finds or makes the plan of m, and evaluates its slots into cx->slots. The plan of m's
 * latest run is used when its guards still hold. On failure m keeps the plan it had. */
deft_status df_cut_find_plan(deft_ctx *cx, df_cut *m);

#endif
