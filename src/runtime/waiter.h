/* SPDX-License-Identifier: Apache-2.0
 *
 * A waiter observes a thread that waits for the compiler. It gets reports of progress and can stop
 * the wait.
 */
#ifndef DF_RUNTIME_WAITER_H
#define DF_RUNTIME_WAITER_H

#include "base/compiler.h"

#define DF_WAITER_NS UINT64_C(100000000) /* 100 ms: between two calls, and before the first */

/* The progress of one wait. */
typedef struct df_waiting {
    const char *ops; /* "mul, exp": a kernel that is being compiled; "": none of these kernels is */
    uintptr_t site;  /* call site of that kernel; 0: none */
    uint32_t n_done, n; /* kernels that are compiled, and all kernels of this wait */
    uint64_t elapsed_ns;
} df_waiting;

/* May be used for several waits, one after another, on one thread. */
typedef struct df_waiter {
    /* Called on the thread that waits, with no lock held. Returns false to stop the wait. */
    bool (*go_on)(void *user, const df_waiting *now);
    void *user;
    bool stopped; /* go_on has returned false: this wait and all later ones end at once */
} df_waiter;

#endif
