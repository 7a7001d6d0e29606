/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h for Linux. The page of a detector uses madvise(MADV_WIPEONFORK), which exists since Linux
 * 4.14.
 */
#include "base/fork.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_SIZE 4096 /* the kernel rounds up to its own page size */

/* Values of a detector's page. CHILD: the kernel has zeroed it. BUSY: a thread repairs its state.
 * PARENT: no repair is needed. */
enum { MARK_CHILD = 0, MARK_PARENT = 1, MARK_BUSY = 2 };

void df_fork_detector_init(df_fork_detector *m)
{
    void *const p =
        mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m->page = NULL;
    atomic_init(&m->pid, getpid());
    if (p == MAP_FAILED) return;
    if (madvise(p, PAGE_SIZE, MADV_WIPEONFORK) != 0) {
        munmap(p, PAGE_SIZE);
        return;
    }
    m->page = p;
    atomic_init(m->page, MARK_PARENT);
}

void df_fork_detector_finish(df_fork_detector *m)
{
    if (m->page) munmap((void *)m->page, PAGE_SIZE);
    m->page = NULL;
}

/* The detector without a page. A negative pid means that a thread of that process is repairing its
 * state. */
static bool seen_by_pid(df_fork_detector *m)
{
    const int now = getpid();
    int before = atomic_load_explicit(&m->pid, memory_order_acquire);
    if (before == now) return false;
    if (before != -now && atomic_compare_exchange_strong(&m->pid, &before, -now)) return true;
    while (atomic_load_explicit(&m->pid, memory_order_acquire) != now) sched_yield();
    return false;
}

bool df_fork_detector_seen(df_fork_detector *m)
{
    if (!m->page) return seen_by_pid(m);
    uint32_t seen = atomic_load_explicit(m->page, memory_order_acquire);
    if (DF_LIKELY(seen == MARK_PARENT)) return false;
    if (seen == MARK_CHILD && atomic_compare_exchange_strong(m->page, &seen, MARK_BUSY))
        return true;
    while (atomic_load_explicit(m->page, memory_order_acquire) != MARK_PARENT) sched_yield();
    return false;
}

void df_fork_detector_done(df_fork_detector *m)
{
    if (m->page)
        atomic_store_explicit(m->page, MARK_PARENT, memory_order_release);
    else
        atomic_store_explicit(&m->pid, getpid(), memory_order_release);
}

bool df_fork_lock_init(df_fork_lock *l)
{
    if (pthread_mutex_init(&l->mutex, NULL) != 0) return false;
    df_fork_detector_init(&l->mark);
    l->is_held = false;
    return true;
}

void df_fork_lock_finish(df_fork_lock *l)
{
    pthread_mutex_destroy(&l->mutex);
    df_fork_detector_finish(&l->mark);
}

bool df_fork_lock_take(df_fork_lock *l)
{
    if (DF_LIKELY(!df_fork_detector_seen(&l->mark))) {
        pthread_mutex_lock(&l->mutex);
        l->is_held = true;
        return false;
    }
    /* No thread of this process has passed the detector yet, so a holder is a missing thread. */
    const bool was_held = pthread_mutex_trylock(&l->mutex) != 0;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_lock(&l->mutex);
    l->is_held = true;
    df_fork_detector_done(&l->mark);
    return was_held;
}

void df_fork_lock_give(df_fork_lock *l)
{
    df_assert(l->is_held);
    l->is_held = false;
    pthread_mutex_unlock(&l->mutex);
}
