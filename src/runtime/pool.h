/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread pool: fork-join over pinned worker threads, which spin shortly and then sleep on a
 * futex.
 *
 * A *region* is one call of df_pool_run. The calling thread takes part in it. The pool runs one
 * region at a time: a second caller runs all tasks of its region alone, on its own thread.
 * Workers block signals (base/signals.h), and never change the affinity or the floating-point state
 * of the caller. They are started by the first region, and again in a forked child.
 */
#ifndef DF_RUNTIME_POOL_H
#define DF_RUNTIME_POOL_H

#include "base/diag.h"
#include "base/mem.h"

typedef struct df_pool df_pool;

/* n_threads counts the caller. 0: the number of processors that the process may use, by affinity
 * mask and control group quota. */
deft_status df_pool_create(df_diag *d, const df_mem *mem, uint32_t n_threads, df_pool **out);
void df_pool_destroy(df_pool **p);          /* *p may be NULL; no region may be running */
uint32_t df_pool_threads(const df_pool *p); /* how many threads, with the caller */

/* Whether workers exist, and all of them spin or work. They may fall asleep at any time. */
bool df_pool_is_awake(const df_pool *p);

/* Does the same as df_pool_run, for work of a few microseconds: less than it costs to wake a
 * worker. Workers take part only while they still spin after an earlier region. A long series of
 * such calls wakes sleeping workers once in a while, so that later calls find them spinning. */
void df_pool_run_short(df_pool *p, uint32_t n,
                       void (*task)(void *user, uint32_t i, uint32_t thread), void *user);

/* Calls task(user, i, thread) once for each i in [0, n), and returns when all calls have ended.
 * `thread` is below df_pool_threads and names the calling thread within this region; the caller is
 * 0. Each thread begins with its own range of neighbouring tasks, in increasing order, and then
 * takes tasks of other ranges. */
void df_pool_run(df_pool *p, uint32_t n, void (*task)(void *user, uint32_t i, uint32_t thread),
                 void *user);

#endif
