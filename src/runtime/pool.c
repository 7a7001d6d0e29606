/* SPDX-License-Identifier: Apache-2.0
 *
 * Fork-join on a pool of threads.
 *
 * The tasks of a region are divided into ranges, and each thread has a home range. So from region
 * to region a thread touches the same memory. A thread that has finished its home range takes
 * tasks of other ranges. A range is published as two words:
 *
 *   ticket   | region number | next task    |
 *   bounds   | region number | end of range |
 *              upper 32 bits   lower 32 bits
 *
 * A thread takes a task by adding one to the ticket. It owns the task number that it saw, under two
 * conditions: the number is below the end, and both words have the same region number. The bounds
 * are read after the ticket. The second condition is for late workers, which may add to the ticket
 * of a later region. A region cannot end before all tasks that were taken have ended. So equal
 * numbers mean that the region of the ticket still runs. No thread ever waits for a worker that
 * sleeps.
 *
 * Workers spin for a while, because waking a halted processor costs some 25 us. Then they sleep on
 * `region`. A worker increments n_asleep before it sleeps, and the caller publishes the region
 * before it reads n_asleep. Both are sequentially consistent, so that no wake-up is lost. The
 * caller spins and then sleeps on n_done in the same way, but spins longer.
 *
 * How long workers take to start varies fivefold with the caches that their processors share, and
 * a virtual machine's host changes that while programs run. So a few regions in a hundred are
 * timed: each worker notes when it begins its first task. This start delay is some 130 ns for near
 * processors, and 400 ns for far ones. df_pool_share is the only place that uses it to decide.
 *
 * Workers are pinned, and callers are not. When the system has put a caller on the processor of a
 * worker, that worker moves to the processor that no worker uses. Otherwise both would share one
 * processor until the system moves the caller, which takes milliseconds.
 */
#include "runtime/pool.h"

#include <stdalign.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "base/fp.h"
#include "runtime/os.h"

/* How long a worker spins for the next region. A step of a small network computes its loss on the
 * caller alone, which takes 40 to 50 us, and to wake the worker after that takes another 25 us. */
#define SPIN_NS 100000
/* The same where threads share processors; there the caller spins as long for the last tasks. */
#define CROWDED_SPIN_NS 40000
/* How long a caller spins for the last tasks, where each worker has a processor. A task takes less
 * than that, mostly. A caller that sleeps is woken so late that the workers sleep meanwhile. The
 * next region then has to wake them, its last task ends late, and so on. */
#define CALLER_SPIN_NS 200000
#define MOVE_NS 1000000 /* the shortest time between two moves of workers */
/* Waking workers costs the caller some 7 us, and they begin some 25 us later. Short work without
 * workers loses some 0.5 us. After this many pieces of it, the sleeping workers have cost as much
 * as waking them does. */
#define SHORT_UNTIL_WAKE 16
/* A region is worth its cost when each thread has work for this many start delays. Announcing a
 * region and reporting its end take about two of them, and fetching its data takes more. From
 * FAR_NS on, the processors share no cache. Data then takes so long that each ns counts as four. */
#define WORTH_DELAYS 4
#define FAR_NS 200
#define NEAR_NS 100 /* the least start delay that is believed, and the one of an unmeasured pool */
/* The start delay is the least of N_SAMPLES regions, because the system may interrupt a worker in
 * any of them. It is measured again every SAMPLE_PERIOD regions. When it is so long that work is
 * not divided, it is forgotten, and so measured again, after FAR_PERIOD such pieces of work. */
enum { MAX_THREADS = 1024, MAX_RANGES = 16, N_SAMPLES = 8, SAMPLE_PERIOD = 256, FAR_PERIOD = 2048 };

typedef void (*task_fn)(void *user, uint32_t i, uint32_t thread);

typedef struct worker {
    df_pool *pool;
    uint32_t thread; /* from 1: the caller is 0 */
    uint32_t seen;   /* number of the last region before the worker was started */
    int cpu;         /* the processor that it is pinned to; -1: not pinned */
    uint64_t spin_ns;
    pthread_t handle;
} worker;

typedef struct range {
    alignas(64) _Atomic uint64_t ticket;
    _Atomic uint64_t bounds;
} range;

struct df_pool {
    const df_mem *mem;
    void *raw; /* the allocation that holds this struct, before alignment */
    worker *workers;
    uint32_t n_threads;
    _Atomic uint32_t n_started; /* workers that exist; written only by the owner of busy */
    uint32_t n_tried;           /* workers that were tried to start; no second try. 0: not yet */
    df_fork_detector mark;
    _Atomic uint32_t busy;     /* 1 while a thread runs a region on the pool: that thread owns it */
    _Atomic uint32_t n_missed; /* pieces of short work, since the workers fell asleep */
    _Atomic uint32_t n_far;    /* pieces of work that were not divided because of start_ns */
    _Atomic uint32_t start_ns; /* the start delay; 0: not measured */
    uint32_t n_samples;        /* timed regions since start_ns was written; for the owner of busy */
    uint32_t sample_ns;        /* the least start delay of these; as n_samples */
    uint32_t n_untimed;        /* regions since then that were not timed; as n_samples */
    uint64_t (*now_ns)(void);  /* the clock of timed regions */
    int caller_cpu;            /* processor of the caller in the last region */
    int free_cpu;              /* no worker is pinned there; -1: workers are not pinned */
    uint64_t moved_ns;         /* when a worker was moved last */
    uint32_t n_ranges;
    range ranges[MAX_RANGES];
    alignas(64) _Atomic uint32_t region; /* number of the latest region; workers sleep on it */
    uint32_t n;                          /* tasks of the region; only owners of a task read it */
    task_fn task;                        /* as for n */
    void *user;                          /* as for n */
    uint64_t opened_ns;                  /* when the region was opened, if it is timed, else 0 */
    _Atomic uint32_t n_asleep;
    _Atomic bool stop;
    alignas(64) _Atomic uint32_t n_done;
    _Atomic bool caller_asleep;
    _Atomic uint32_t late_ns; /* longest delay of a worker in a timed region; 0: none took part */
};

/* Notes that a worker begins its first task of a timed region. */
static void note_start(df_pool *p)
{
    const uint64_t ns = p->now_ns() - p->opened_ns;
    const uint32_t late = ns == 0 ? 1 : ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    uint32_t seen = atomic_load_explicit(&p->late_ns, memory_order_relaxed);
    while (seen < late && !atomic_compare_exchange_weak_explicit(
                              &p->late_ns, &seen, late, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Runs tasks of the current region until none is left. */
static void take_part(df_pool *p, uint32_t thread)
{
    const uint32_t home = (uint32_t)((uint64_t)thread * p->n_ranges / p->n_threads);
    uint32_t mine = 0, n = 0;
    for (uint32_t i = 0; i < p->n_ranges; i++) {
        range *const r = &p->ranges[(home + i) % p->n_ranges];
        for (;;) {
            const uint64_t ticket = atomic_fetch_add_explicit(&r->ticket, 1, memory_order_acquire);
            const uint64_t bounds = atomic_load_explicit(&r->bounds, memory_order_acquire);
            if (ticket >> 32 != bounds >> 32 || (uint32_t)ticket >= (uint32_t)bounds) break;
            if (p->opened_ns && mine == 0 && thread > 0) note_start(p);
            p->task(p->user, (uint32_t)ticket, thread);
            n = p->n;
            mine++;
        }
    }
    if (mine == 0) return;
    const uint32_t n_done = atomic_fetch_add(&p->n_done, mine) + mine;
    if (n_done == n && atomic_load(&p->caller_asleep)) df_os_wake(&p->n_done, 1);
}

/* Waits for a region other than *seen, stores its number in *seen and returns true. Returns false
 * when the pool ends. The number is read only once: a second read could return the number that
 * announces the end, and the worker would then wait for a region that never comes. */
static bool wait_region(df_pool *p, uint32_t *seen, uint64_t spin_ns)
{
    const uint64_t until = df_os_now_ns() + spin_ns;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            const uint32_t region = atomic_load_explicit(&p->region, memory_order_acquire);
            if (region != *seen) {
                *seen = region;
                return !atomic_load_explicit(&p->stop, memory_order_acquire);
            }
            df_os_relax();
        }
        if (df_os_now_ns() < until) continue;
        atomic_fetch_add(&p->n_asleep, 1);
        while (atomic_load(&p->region) == *seen) df_os_wait(&p->region, *seen);
        atomic_fetch_sub(&p->n_asleep, 1);
    }
}

static void *pool_work(void *user)
{
    worker *const w = user;
    uint32_t seen = w->seen;
    /* A thread inherits the rounding mode of the thread that started it. */
    (void)df_fp_enter();
    while (wait_region(w->pool, &seen, w->spin_ns)) take_part(w->pool, w->thread);
    return NULL;
}

/* The caller owns busy. Workers get the processors in order, and the caller's is left over. */
static void start_workers(df_pool *p)
{
    int cpus[MAX_THREADS];
    const uint32_t n = df_os_cpus(cpus, MAX_THREADS);
    const bool pin = p->n_threads <= n;
    const uint32_t seen = atomic_load_explicit(&p->region, memory_order_relaxed);
    p->n_tried = p->n_threads - 1;
    for (uint32_t i = 0; i < p->n_tried; i++) {
        worker *const w = &p->workers[i];
        /* With more threads than processors, which only tests ask for, nothing is pinned. */
        *w = (worker){ .pool = p,
                       .thread = i + 1,
                       .seen = seen,
                       .cpu = pin ? cpus[i] : -1,
                       .spin_ns = pin ? SPIN_NS : CROWDED_SPIN_NS };
        if (!df_os_thread(&w->handle, pool_work, w, w->cpu)) break;
        p->n_started++;
    }
    p->free_cpu = pin ? cpus[n - 1] : -1;
    p->caller_cpu = -1;
}

/* Moves the worker that is pinned to `cpu`, the caller's processor, to the free one. The caller
 * owns busy. */
static void make_way(df_pool *p, int cpu)
{
    p->caller_cpu = cpu;
    if (p->free_cpu < 0 || cpu < 0) return;
    for (uint32_t i = 0; i < p->n_started; i++) {
        worker *const w = &p->workers[i];
        if (w->cpu != cpu) continue;
        const uint64_t now = df_os_now_ns();
        if (now - p->moved_ns < MOVE_NS) {
            p->caller_cpu = -1; /* callers alternate between processors: look again next time */
            return;
        }
        p->moved_ns = now;
        df_os_pin(w->handle, p->free_cpu);
        w->cpu = p->free_cpu;
        p->free_cpu = cpu;
        return;
    }
}

/* For a forked child, in which no workers exist and no thread is in a region. */
static void restart_after_fork(df_pool *p)
{
    p->n_started = p->n_tried = 0;
    atomic_store(&p->n_asleep, 0);
    atomic_store(&p->caller_asleep, false);
    atomic_store(&p->busy, 0);
    atomic_store(&p->start_ns, 0);
    p->n_samples = 0;
    df_fork_detector_done(&p->mark);
}

/* Whether workers exist, and all of them spin or work. They may fall asleep at any time. */
static bool is_awake(const df_pool *p)
{
    return atomic_load_explicit(&p->n_started, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&p->n_asleep, memory_order_relaxed) == 0;
}

/* Returns true when the next region shall be timed. Workers that sleep would make it a measure of
 * the system. The caller owns busy. */
static bool is_time_due(df_pool *p)
{
    if (!is_awake(p)) return false;
    if (atomic_load_explicit(&p->start_ns, memory_order_relaxed) == 0 || p->n_samples > 0)
        return true;
    return ++p->n_untimed > SAMPLE_PERIOD;
}

/* Takes the start delay of the timed region that has just ended. When no worker took part, the
 * workers would have started later than now. The caller owns busy. */
static void sample_start(df_pool *p)
{
    if (atomic_load_explicit(&p->late_ns, memory_order_relaxed) == 0) note_start(p);
    const uint32_t late = atomic_load_explicit(&p->late_ns, memory_order_relaxed);
    if (p->n_samples == 0 || late < p->sample_ns) p->sample_ns = late;
    if (++p->n_samples < N_SAMPLES) return;
    atomic_store_explicit(&p->start_ns, p->sample_ns, memory_order_relaxed);
    p->n_samples = p->n_untimed = 0;
}

static void open_region(df_pool *p, uint32_t n, task_fn task, void *user)
{
    const uint32_t region = atomic_load_explicit(&p->region, memory_order_relaxed) + 1;
    const uint64_t name = (uint64_t)region << 32;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    p->task = task;
    p->user = user;
    p->n = n;
    p->opened_ns = 0;
    if (is_time_due(p)) {
        atomic_store_explicit(&p->late_ns, 0, memory_order_relaxed);
        p->opened_ns = p->now_ns();
    }
    for (uint32_t i = 0; i < p->n_ranges; i++) {
        range *const r = &p->ranges[i];
        const uint64_t begin = (uint64_t)n * i / p->n_ranges;
        const uint64_t end = (uint64_t)n * (i + 1) / p->n_ranges;
        atomic_store_explicit(&r->bounds, name | end, memory_order_release);
        atomic_store_explicit(&r->ticket, name | begin, memory_order_release);
    }
    atomic_store(&p->region, region);
    if (atomic_load(&p->n_asleep) > 0) df_os_wake(&p->region, n - 1);
}

static void wait_done(df_pool *p, uint32_t n)
{
    const uint64_t until = df_os_now_ns() + (p->free_cpu < 0 ? CROWDED_SPIN_NS : CALLER_SPIN_NS);
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&p->n_done, memory_order_acquire) == n) return;
            df_os_relax();
        }
    } while (df_os_now_ns() < until);
    atomic_store(&p->caller_asleep, true);
    for (uint32_t done; (done = atomic_load(&p->n_done)) != n;) df_os_wait(&p->n_done, done);
    atomic_store(&p->caller_asleep, false);
}

static void *pool_align(void *raw)
{
    return (void *)(((uintptr_t)raw + alignof(df_pool) - 1) & ~(uintptr_t)(alignof(df_pool) - 1));
}

deft_status df_pool_create(df_diag *d, const df_mem *mem, uint32_t n_threads, df_pool **out)
{
    deft_status st = DEFT_OK;
    worker *workers = NULL;
    if (n_threads == 0) n_threads = df_os_n_cpus();
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    void *const raw = df_mem_alloc(mem, sizeof(df_pool) + alignof(df_pool));
    if (!raw) return df_fail_mem(d, "pool", sizeof(df_pool));
    if (n_threads > 1) {
        workers = df_mem_zalloc(mem, sizeof *workers * (n_threads - 1));
        if (!workers) {
            st = df_fail_mem(d, "pool", sizeof *workers * (n_threads - 1));
            df_mem_free(mem, raw, sizeof(df_pool) + alignof(df_pool));
            return st;
        }
    }
    df_pool *const p = pool_align(raw);
    *p = (df_pool){ .mem = mem, .raw = raw, .workers = workers, .n_threads = n_threads };
    p->now_ns = df_os_now_ns;
    p->n_ranges = n_threads < MAX_RANGES ? n_threads : MAX_RANGES;
    df_fork_detector_init(&p->mark);
    *out = p;
    return st;
}

void df_pool_destroy(df_pool **out)
{
    df_pool *const p = *out;
    if (!p) return;
    *out = NULL;
    if (df_fork_detector_seen(&p->mark)) restart_after_fork(p);
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->region, 1);
    df_os_wake(&p->region, p->n_threads);
    for (uint32_t i = 0; i < p->n_started; i++) pthread_join(p->workers[i].handle, NULL);
    df_fork_detector_finish(&p->mark);
    const df_mem *const mem = p->mem;
    if (p->workers) df_mem_free(mem, p->workers, sizeof *p->workers * (p->n_threads - 1));
    df_mem_free(mem, p->raw, sizeof *p + alignof(df_pool));
}

uint32_t df_pool_threads(const df_pool *p)
{
    return p->n_threads;
}

void df_pool_run(df_pool *p, uint32_t n, task_fn task, void *user)
{
    uint32_t idle = 0;
    if (n > 1 && p->n_threads > 1) {
        if (df_fork_detector_seen(&p->mark)) restart_after_fork(p);
        if (atomic_compare_exchange_strong_explicit(&p->busy, &idle, 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            if (p->n_tried == 0) start_workers(p);
            const int cpu = df_os_cpu();
            if (cpu != p->caller_cpu) make_way(p, cpu);
            open_region(p, n, task, user);
            take_part(p, 0);
            wait_done(p, n);
            if (p->opened_ns) sample_start(p);
            atomic_store_explicit(&p->busy, 0, memory_order_release);
            return;
        }
    }
    for (uint32_t i = 0; i < n; i++) task(user, i, 0);
}

uint32_t df_pool_start_ns(const df_pool *p)
{
    const uint32_t ns = atomic_load_explicit(&p->start_ns, memory_order_relaxed);
    return ns > NEAR_NS ? ns : NEAR_NS;
}

/* Returns how many threads have enough to do when they share work that takes `ns`. */
static uint32_t threads_worth(const df_pool *p, double ns, uint32_t start_ns)
{
    const double start = start_ns, beyond = start > FAR_NS ? start - FAR_NS : 0;
    const double n = ns / (WORTH_DELAYS * (start + 3 * beyond));
    return n < 2 ? 1 : n < p->n_threads ? (uint32_t)n : p->n_threads;
}

uint32_t df_pool_share(df_pool *p, double ns)
{
    const uint32_t start_ns = df_pool_start_ns(p);
    const bool is_long = ns > (start_ns > FAR_NS ? 2 : 1) * DF_POOL_LONG_NS;
    const uint32_t n = threads_worth(p, ns, is_long ? NEAR_NS : start_ns);
    if (is_long || p->n_threads == 1 || threads_worth(p, ns, NEAR_NS) == 1) return n;
    if (n == 1) {
        if (atomic_fetch_add_explicit(&p->n_far, 1, memory_order_relaxed) + 1 < FAR_PERIOD)
            return 1;
        atomic_store_explicit(&p->n_far, 0, memory_order_relaxed);
        atomic_store_explicit(&p->start_ns, 0, memory_order_relaxed);
        return 1;
    }
    if (!is_awake(p) &&
        atomic_fetch_add_explicit(&p->n_missed, 1, memory_order_relaxed) < SHORT_UNTIL_WAKE)
        return 1;
    atomic_store_explicit(&p->n_missed, 0, memory_order_relaxed);
    return n;
}

void df_pool_use_clock(df_pool *p, uint64_t (*now_ns)(void))
{
    p->now_ns = now_ns;
}
