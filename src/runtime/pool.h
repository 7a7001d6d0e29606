/* SPDX-License-Identifier: Apache-2.0
 *
 * Fork-join over pinned worker threads: short spin, then futex. The calling thread takes part. One
 * region at a time; a second caller meanwhile runs its region alone on its own thread. Workers
 * block all signals, never touch the caller's affinity or floating-point state, and are started on
 * first use (again in a forked child).
 */
#ifndef DF_RUNTIME_POOL_H
#define DF_RUNTIME_POOL_H

#include "base/diag.h"
#include "base/mem.h"

typedef struct df_pool df_pool;

/* n_threads counts the caller; 0: as many as the process may run on (affinity mask, cgroup quota).
 */
deft_status df_pool_create(df_diag *d, const df_mem *mem, uint32_t n_threads, df_pool **out);
void df_pool_destroy(df_pool **p);
uint32_t df_pool_threads(const df_pool *p);

/* As df_pool_run, for work of a few microseconds, which a wake-up costs more than: workers take
 * part while they still spin after an earlier region. Asked again and again, sleeping ones are
 * woken once in a while, so that a series of such calls finds them spinning. */
void df_pool_run_short(df_pool *p, uint32_t n,
                       void (*task)(void *user, uint32_t i, uint32_t thread), void *user);

/* Calls task(user, i, thread) for i in [0, n); thread < df_pool_threads. Each thread begins
 * with its own range of neighbouring tasks, in increasing order, and then helps in the others.
 * Returns when all are done. */
void df_pool_run(df_pool *p, uint32_t n, void (*task)(void *user, uint32_t i, uint32_t thread),
                 void *user);

#endif
