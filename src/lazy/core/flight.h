/* SPDX-License-Identifier: Apache-2.0
 *
 * The submitted step that runs, or that has failed and waits for its rollback. run/submit.h has its
 * functions; the core only reads its undo log.
 *
 * While the state is RUNNING, the thread of the flight owns what df_cut_launch reads and
 * writes. That is the trace and buffers of the cut, the slots, and the last members of
 * df_flight. Everything else belongs to the program's thread: values, handles, records,
 * counters. The flight holds references to the buffers that the run reads, because
 * records and handles may drop theirs.
 */
#ifndef DF_LAZY_FLIGHT_H
#define DF_LAZY_FLIGHT_H

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

#endif
