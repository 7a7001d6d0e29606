/* SPDX-License-Identifier: Apache-2.0
 *
 * The step in flight (core/flight.h): deft_step_submit.
 *
 *        NONE --df_flight_begin--> RUNNING --df_wait--> NONE            it succeeded
 *                                     |  |
 *                                     |  +------------> NONE            it failed: rolled back
 *                                     |
 *                                     +---------------> FAILED -> NONE  it failed while another
 *                                                                       step was open: rolled back
 *                                                                       when that step ends
 */
#ifndef DF_LAZY_SUBMIT_H
#define DF_LAZY_SUBMIT_H

#include "lazy/core/flight.h"

/* Waits for the step in flight and publishes its results. When it has failed, it is
 * rolled back, or will be when the open step ends. The sentence is in cx->diag. */
deft_status df_flight_wait(deft_ctx *cx);

/* The same. Costs little when no step is in flight. */
DF_INLINE deft_status df_wait_for_steps(deft_ctx *cx)
{
    return DF_LIKELY(df_in_flight(cx) == DF_FLIGHT_NONE) ? DEFT_OK : df_flight_wait(cx);
}

/* Waits like df_wait, but only when v cannot be read before. v NULL stands for everything
 * pending. */
DF_INLINE deft_status df_wait_for(deft_ctx *cx, const df_value *v)
{
    const bool is_there = v && !(v->flags & (DF_VALUE_FUTURE | DF_VALUE_WRAPPED));
    return is_there && df_in_flight(cx) == DF_FLIGHT_RUNNING ? DEFT_OK : df_wait_for_steps(cx);
}

/* Called before a step is submitted. Starts the thread and makes room for n writes. Sets
 * *ready to false when there is no thread; then the step must run at once. */
deft_status df_flight_ready(deft_ctx *cx, size_t n, bool *ready);
/* Adds a write of *from into wrapped memory `to` after the run. Takes *from, and sets it
 * to NULL. df_flight_ready has made room. */
void df_flight_write(deft_ctx *cx, df_value *to, DEFT_OWN df_value **from);
/* Starts the run of m. Takes the contents of cx->want, cx->undo and cx->slots. Never
 * fails. */
void df_flight_begin(deft_ctx *cx, df_cut *m, uintptr_t site);
/* Rolls the failed step back. Called in state FAILED at the end of the open step, or at
 * once. */
void df_flight_roll_back(deft_ctx *cx);
void df_flight_finish(deft_ctx *cx); /* waits for the run, logs a failure, and frees the flight */

/* Called before the first assign to t outside steps since the step was submitted: saves
 * the binding of t. Returns false, with the error recorded, when memory runs out. */
bool df_flight_save(deft_ctx *cx, deft_tensor *t);
/* Copies the entry of t in the undo log, for another handle that continues t. Called
 * before t ends. out->t is NULL when there is no entry. Returns false, with the error
 * recorded, when memory runs out. */
bool df_flight_take(deft_ctx *cx, deft_tensor *t, df_undo *out);
/* gives the entry of df_flight_take to t; t NULL: drops it */
void df_flight_give(deft_ctx *cx, deft_tensor *t, df_undo *u);

#endif
