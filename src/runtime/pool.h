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

/* Work that takes one thread longer than this is worth waking workers for. Measured on a virtual
 * machine: 40 us of work then take 35 us, and 20 us of work take 25 us. */
#define DF_POOL_LONG_NS 40e3

/* Returns how many threads should share work that takes one thread about `ns`; 1: the caller alone.
 * The answer depends on the start delay, as far as earlier regions have shown it, and on whether
 * the workers are awake. After a series of questions, sleeping workers are woken nonetheless, so
 * that later work finds them spinning. Work of more than DF_POOL_LONG_NS, and of more than twice
 * that on far processors, is always shared. The caller then runs a region, with about as many
 * tasks. */
uint32_t df_pool_share(df_pool *p, double ns);

/* Returns the start delay: the time from the opening of a region until all workers that take part
 * have begun. It is never below the delay of near processors, which an unmeasured pool also has. */
uint32_t df_pool_start_ns(const df_pool *p);

/* For tests: start delays are measured by this clock. No region may be running. */
void df_pool_use_clock(df_pool *p, uint64_t (*now_ns)(void));

/* Calls task(user, i, thread) once for each i in [0, n), and returns when all calls have ended.
 * `thread` is below df_pool_threads and names the calling thread within this region; the caller is
 * 0. Each thread begins with its own range of neighbouring tasks, in increasing order, and then
 * takes tasks of other ranges. */
void df_pool_run(df_pool *p, uint32_t n, void (*task)(void *user, uint32_t i, uint32_t thread),
                 void *user);

#endif
