/* SPDX-License-Identifier: Apache-2.0
 *
 * The step in flight: deft_step_submit.
 *
 *        NONE --df_flight_begin--> RUNNING --df_wait--> NONE             it succeeded
 *                                     |   \\
 *                                     |    +----------> NONE             it failed: put back
 *                                     +---------------> FAILED --> NONE  it failed while a step was
 *                                                                        open: put back at its end
 *
 * While RUNNING the thread owns what df_cut_launch reads and writes: the made cut's trace and
 * buffers, the slots, and what stands under "the thread's" below. All else is the program's:
 * values, handles, records, counters. The buffers that are read are held here, because records and
 * handles may let go of them.
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

/* A write into the caller's memory of what an earlier cut of the step computed. Both counted. */
typedef struct df_late_write {
    df_value *to, *from;
} df_late_write;

typedef struct df_flight {
    df_flight_state state;
    uintptr_t site; /* where it was submitted */
    df_cut *made;   /* in the context's ring: no cut is made while it runs */
    df_wants want;  /* results are counted here */
    df_undos undo;  /* bindings of before the step, and of what was assigned outside steps since */
    DF_VEC(df_late_write) writes;
    df_ints slots;
    bool lost; /* this is a forked child: the thread is gone, and what it was writing */

    deft_ctx *cx;
    pthread_t thread;
    bool started;
    df_fork_detector mark;
    _Atomic uint32_t word; /* what the thread is to do, or has done; both sides sleep on it */

    deft_status status; /* from here on the thread's */
    df_diag diag;
    df_run_stats run;
    uint64_t ns;
} df_flight;

DF_INLINE df_flight_state df_in_flight(const deft_ctx *cx)
{
    return DF_LIKELY(!cx->flight) ? DF_FLIGHT_NONE : cx->flight->state;
}

/* Waits for the step in flight and takes its results over. On failure it has been put back, or will
 * be when the open step ends; the sentence is in cx->diag. */
deft_status df_flight_wait(deft_ctx *cx);

DF_INLINE deft_status df_wait(deft_ctx *cx)
{
    return DF_LIKELY(df_in_flight(cx) == DF_FLIGHT_NONE) ? DEFT_OK : df_flight_wait(cx);
}

/* The same when v, or what is pending where v is NULL, can't be read before. */
DF_INLINE deft_status df_wait_for(deft_ctx *cx, const df_value *v)
{
    const bool is_there = v && !(v->flags & (DF_VALUE_FUTURE | DF_VALUE_WRAPPED));
    return is_there && df_in_flight(cx) == DF_FLIGHT_RUNNING ? DEFT_OK : df_wait(cx);
}

/* Before anything of a step is left to run: its thread, and room for n writes. *ready false: there
 * is no thread. */
deft_status df_flight_ready(deft_ctx *cx, size_t n, bool *ready);
void df_flight_write(deft_ctx *cx, df_value *to, DEFT_OWN df_value **from);
/* m runs from here on. Takes cx->want, cx->undo and cx->slots over. Never fails. */
void df_flight_begin(deft_ctx *cx, df_cut *m, uintptr_t site);
/* When FAILED, at the end of the open step: all is as before. */
void df_flight_roll_back(deft_ctx *cx);
void df_flight_finish(deft_ctx *cx); /* waits; a failure goes to the log */

/* Before the first assign outside steps to t since the step was submitted. false: no memory. */
bool df_flight_save(deft_ctx *cx, deft_tensor *t);
/* The entry of t for the handle that goes on for it: taken before t ends, given to the other one
 * afterwards; t NULL there: there was none. */
bool df_flight_take(deft_ctx *cx, deft_tensor *t, df_undo *out);
void df_flight_give(deft_ctx *cx, deft_tensor *t, df_undo *u); /* t NULL: dropped */

#endif
