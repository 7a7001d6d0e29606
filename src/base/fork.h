/* SPDX-License-Identifier: Apache-2.0
 *
 * Support for forked children. A child has only the thread that called fork. The other threads of
 * its parent are missing in the child: they stopped at an arbitrary point, perhaps with locks held.
 * So the child starts new threads, and discards every structure that a missing thread was changing.
 * The memory of such a structure is never freed, and cached values are computed again. The library
 * registers no fork handlers, and fork never waits for a lock. The exception is the LLVM plug-in
 * while it is loaded (jit_llvm/start.c).
 */
#ifndef DF_BASE_FORK_H
#define DF_BASE_FORK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "deft/status.h"

/* Detects that the process is a child of the one that initialised the detector. This needs no
 * system call: it uses a page that the kernel zeroes in a child. */
typedef struct df_fork_detector {
    _Atomic uint32_t *page; /* NULL when the kernel does not support it; then pid is compared */
    _Atomic int pid;
} df_fork_detector;

void df_fork_detector_init(df_fork_detector *m);
void df_fork_detector_finish(df_fork_detector *m);

/* Returns true in a child, once and in one thread only. That thread must repair its state and then
 * call df_fork_detector_done. Until then all other threads that call this function wait in it. */
bool df_fork_detector_seen(df_fork_detector *m);
void df_fork_detector_done(df_fork_detector *m);

/* A mutex that a child can lock even if another thread of the parent held it at the fork. */
typedef struct df_fork_lock {
    pthread_mutex_t mutex;
    df_fork_detector mark;
    bool is_held; /* guarded by the mutex */
} df_fork_lock;

/* Returns false when the system could not create the mutex. */
bool df_fork_lock_init(df_fork_lock *l);
void df_fork_lock_finish(df_fork_lock *l);

/* Locks the mutex. Returns true in a child if a missing thread held the mutex at the fork. Then the
 * protected state may be inconsistent: the caller must reinitialise it before reading any of it. */
DEFT_MUST_CHECK bool df_fork_lock_take(df_fork_lock *l);
void df_fork_lock_give(df_fork_lock *l);

#endif
