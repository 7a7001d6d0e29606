/* SPDX-License-Identifier: Apache-2.0
 *
 * What a forked child finds. Of its parent's threads it has one, the one that forked: the others
 * are gone, whatever they were doing and whatever they had locked. So a child starts threads anew,
 * and forgets what a lost thread was changing: its memory is never given back, and cached things
 * are made again. Nothing is registered with the process and no fork waits for anybody, but for the
 * LLVM plug-in while it is loaded (jit_llvm/start.c).
 */
#ifndef DF_BASE_FORK_H
#define DF_BASE_FORK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "deft/status.h"

/* Tells a child from its parent without a system call: a page that the kernel empties. */
typedef struct df_fork_detector {
    _Atomic uint32_t *page; /* NULL: not supported, pid is compared */
    _Atomic int pid;
} df_fork_detector;

void df_fork_detector_init(df_fork_detector *m);
void df_fork_detector_finish(df_fork_detector *m);

/* true for one thread of a child, once: it must put its state right and then call
 * df_fork_detector_done; other threads wait inside meanwhile. */
bool df_fork_detector_seen(df_fork_detector *m);
void df_fork_detector_done(df_fork_detector *m);

/* A mutex that a child can lock, whoever held it in the parent. */
typedef struct df_fork_lock {
    pthread_mutex_t mutex;
    df_fork_detector mark;
    bool is_held; /* guarded by the mutex */
} df_fork_lock;

bool df_fork_lock_init(df_fork_lock *l);
void df_fork_lock_finish(df_fork_lock *l);

/* true: locked, in a child, and a lost thread held it: what it guards may be half changed and has
 * to be made anew before anything is read. */
DEFT_MUST_CHECK bool df_fork_lock_take(df_fork_lock *l);
void df_fork_lock_give(df_fork_lock *l);

#endif
