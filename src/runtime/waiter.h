/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for the compiler, and may want to know how it goes, or to wait no longer.
 */
#ifndef DF_RUNTIME_WAITER_H
#define DF_RUNTIME_WAITER_H

#include "base/compiler.h"

#define DF_WAITER_NS UINT64_C(100000000) /* between two calls, and before the first */

typedef struct df_waiting {
    const char *ops; /* of a kernel that is in the compiler now: "mul, exp"; "": none of these is */
    uintptr_t site;  /* its call site */
    uint32_t n_done, n; /* of the kernels waited for */
    uint64_t elapsed_ns;
} df_waiting;

/* One wait after another, on one thread. */
typedef struct df_waiter {
    /* Called by the thread that waits, with no lock held. false: it is not to wait any longer. */
    bool (*go_on)(void *user, const df_waiting *now);
    void *user;
    bool stopped; /* go_on has said false: nothing is waited for any more */
} df_waiter;

#endif
