/* SPDX-License-Identifier: Apache-2.0
 *
 * The step in flight: deft_step_submit.
 *
 *        NONE --df_flight_begin--> RUNNING --df_wait--> NONE            it succeeded
 *                                     |  |
 *                                     |  +------------> NONE            it failed: rolled back
 *                                     |
 *                                     +---------------> FAILED -> NONE  it failed while another
 *                                                                       step was open: rolled back
 *                                                                       when that step ends
 *
 * While the state is RUNNING, the thread of the flight owns what df_cut_launch reads and
 * writes. That is the trace and buffers of the cut, the slots, and the last members of
 * df_flight. Everything else belongs to the program's thread: values, handles, records,
 * counters. The flight holds references to the buffers that the run reads, because
 * records and handles may drop theirs.
 */
#ifndef DF_LAZY_SUBMIT_H
#define DF_LAZY_SUBMIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "lazy/core/history.h"

typedef enum df_flight_state {
    DF_FLIGHT_NONE,
    DF_FLIGHT_RUNNING,
    DF_FLIGHT_FAILED
} df_flight_state;

/* A write into wrapped memory of a value that an earlier cut of the step computed. Both
 * values are counted. */
typedef struct df_late_write {
    df_value *to, *from;
} df_late_write;

typedef struct df_flight {
    df_flight_state state;
    uintptr_t site; /* where it was submitted */
    df_cut *made;   /* a cached cut of the context; no other cut is made while it runs */
    df_wants want;  /* the wants of the run, whose results are counted */
    df_undos undo;  /* bindings from before the step, and of tensors assigned outside steps since */
    DF_VEC(df_late_write) writes;
    df_ints slots;
    /* this is a forked child: the thread is missing, and what it was writing is undefined */
    bool lost;

    deft_ctx *cx;
    pthread_t thread;
    bool started;
    df_fork_detector mark;
    _Atomic uint32_t word; /* the state of the handshake (submit.c); both threads wait on it */

    deft_status status; /* from here on owned by the thread while the state is RUNNING */
    df_diag diag;
    df_run_stats run;
    uint64_t ns;
} df_flight;

/* The state of the context's flight. */
DF_INLINE df_flight_state df_in_flight(const deft_ctx *cx)
{
    return DF_LIKELY(!cx->flight) ? DF_FLIGHT_NONE : cx->flight->state;
}

/* Waits for the step in flight and publishes its results. When it has failed, it is
 * rolled back, or will be when the open step ends. The sentence is in cx->diag. */
deft_status df_flight_wait(deft_ctx *cx);

/* The same. Costs little when no step is in flight. */
DF_INLINE deft_status df_wait(deft_ctx *cx)
{
    return DF_LIKELY(df_in_flight(cx) == DF_FLIGHT_NONE) ? DEFT_OK : df_flight_wait(cx);
}

/* Waits like df_wait, but only when v cannot be read before. v NULL stands for everything
 * pending. */
DF_INLINE deft_status df_wait_for(deft_ctx *cx, const df_value *v)
{
    const bool is_there = v && !(v->flags & (DF_VALUE_FUTURE | DF_VALUE_WRAPPED));
    return is_there && df_in_flight(cx) == DF_FLIGHT_RUNNING ? DEFT_OK : df_wait(cx);
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
