/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool alone: each task once whatever their number and that of the threads; home ranges, in
 * order, and helping in others; workers that come late; short work; how long workers take to start,
 * and what that decides; which signals threads of the library block.
 */
#include <criterion/criterion.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "runtime/os.h"
#include "runtime/pool.h"

enum { MAX_TASKS = 200 };

static df_pool *make_pool(uint32_t n_threads)
{
    df_pool *p = NULL;
    cr_assert_eq(df_pool_create(NULL, &df_mem_system, n_threads, &p), DEFT_OK);
    cr_assert_eq(df_pool_threads(p), n_threads);
    return p;
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

/* ---- each task once ---- */

typedef struct region {
    _Atomic uint32_t count[MAX_TASKS];
    _Atomic uint32_t n_strange, n_open;
    uint32_t n, n_threads;
} region;

static void count_task(void *user, uint32_t i, uint32_t thread)
{
    region *const r = user;
    if (i >= r->n || thread >= r->n_threads || !atomic_load(&r->n_open))
        atomic_fetch_add(&r->n_strange, 1);
    else
        atomic_fetch_add(&r->count[i], 1);
}

typedef void (*pool_run)(df_pool *p, uint32_t n, void (*task)(void *, uint32_t, uint32_t),
                         void *user);

static void run_counted(df_pool *p, uint32_t n, pool_run run)
{
    region r = { .n = n, .n_threads = df_pool_threads(p) };
    atomic_store(&r.n_open, 1);
    run(p, n, count_task, &r);
    atomic_store(&r.n_open, 0);
    cr_assert_eq(r.n_strange, 0, "%u threads, %u tasks", r.n_threads, n);
    for (uint32_t i = 0; i < n; i++)
        cr_assert_eq(r.count[i], 1, "%u threads, %u tasks: task %u %u times", r.n_threads, n, i,
                     r.count[i]);
}

static uint64_t stopped_clock(void)
{
    return 0;
}

/* With a stopped clock, workers seem to start at once. */
static df_pool *make_near_pool(uint32_t n_threads)
{
    df_pool *const p = make_pool(n_threads);
    df_pool_use_clock(p, stopped_clock);
    return p;
}

/* Work for all threads of a near pool, which does not wake sleeping ones at once. */
static const double SHORT_NS = DF_POOL_LONG_NS - 1;

static void run_short(df_pool *p, uint32_t n, void (*task)(void *, uint32_t, uint32_t), void *user)
{
    if (df_pool_share(p, SHORT_NS) > 1)
        df_pool_run(p, n, task, user);
    else
        for (uint32_t i = 0; i < n; i++) task(user, i, 0);
}

/* From fewer ranges than threads to more, and from fewer tasks than ranges to more. */
Test(pool, each_task_runs_once)
{
    for (uint32_t n_threads = 1; n_threads <= 32; n_threads++) {
        df_pool *p = make_near_pool(n_threads);
        for (uint32_t n = 0; n <= MAX_TASKS; n += n < 40 || n_threads % 8 < 2 ? 1 : 7) {
            run_counted(p, n, df_pool_run);
            run_counted(p, n, run_short);
        }
        df_pool_destroy(&p);
        cr_assert_null(p);
    }
}

/* ---- who runs what ---- */

typedef struct trail {
    uint32_t thread[MAX_TASKS], order[MAX_TASKS]; /* of the task; when */
    _Atomic uint32_t n_begun, n_others;
    uint32_t n_threads, slow; /* the task that waits for all others */
    bool gave_up;
} trail;

static void wait_for(const _Atomic uint32_t *n, uint32_t want, bool *gave_up)
{
    const uint64_t until = df_os_now_ns() + 20000000000u;
    while (atomic_load(n) < want && !*gave_up) {
        sched_yield();
        *gave_up |= df_os_now_ns() > until;
    }
}

/* A task of the first round waits until each thread has one, so that none does others' work. */
static void trail_task(void *user, uint32_t i, uint32_t thread)
{
    trail *const t = user;
    t->thread[i] = thread;
    t->order[i] = atomic_fetch_add(&t->n_begun, 1);
    if (t->order[i] < t->n_threads) wait_for(&t->n_begun, t->n_threads, &t->gave_up);
}

Test(pool, a_thread_begins_at_home)
{
    static const uint32_t n_threads[] = { 2, 3, 4, 7 };
    for (size_t k = 0; k < sizeof n_threads / sizeof *n_threads; k++) {
        const uint32_t n = n_threads[k], each = 10;
        df_pool *p = make_pool(n);
        for (int round = 0; round < 5; round++) {
            trail t = { .n_threads = n };
            df_pool_run(p, n * each, trail_task, &t);
            cr_assert_not(t.gave_up, "a thread had no task");
            for (uint32_t r = 0; r < n; r++)
                cr_expect_eq(t.thread[r * each], r, "%u threads: range %u begun by %u", n, r,
                             t.thread[r * each]);
            for (uint32_t i = 0; i + 1 < n * each; i++)
                if ((i + 1) % each != 0 && t.thread[i] == t.thread[i + 1])
                    cr_expect_lt(t.order[i], t.order[i + 1], "tasks %u and the next", i);
        }
        df_pool_destroy(&p);
    }
}

static void slow_task(void *user, uint32_t i, uint32_t thread)
{
    trail *const t = user;
    t->thread[i] = thread;
    if (i == t->slow)
        wait_for(&t->n_others, MAX_TASKS - 1, &t->gave_up);
    else
        atomic_fetch_add(&t->n_others, 1);
}

/* One task ends only after all others: someone else must do those of its range. */
Test(pool, others_help_in_a_range_with_a_long_task)
{
    for (uint32_t n = 2; n <= 14; n += 3) {
        df_pool *p = make_pool(n);
        for (uint32_t slow = 0; slow < MAX_TASKS; slow += 66) {
            trail t = { .slow = slow };
            df_pool_run(p, MAX_TASKS, slow_task, &t);
            cr_assert_not(t.gave_up, "%u threads, task %u: nobody helped", n, slow);
            uint32_t end = 0; /* of the range that holds slow */
            for (uint32_t r = 1; end <= slow; r++) end = MAX_TASKS * r / n;
            for (uint32_t i = slow + 1; i < end; i++)
                cr_assert_neq(t.thread[i], t.thread[slow], "task %u was handed out later", i);
        }
        df_pool_destroy(&p);
    }
}

/* ---- late workers ---- */

/* Regions that follow each other at once, of changing sizes, with more threads than processors: a
 * worker is put off anywhere and comes back in a later region. */
Test(pool, late_workers_run_nothing_twice)
{
    static const uint32_t n_threads[] = { 2, 5, 24 };
    for (size_t k = 0; k < sizeof n_threads / sizeof *n_threads; k++) {
        df_pool *p = make_pool(n_threads[k]);
        for (uint32_t i = 0; i < 20000; i++) {
            run_counted(p, 2 + i * 7 % 23, df_pool_run);
            if (i % 4096 == 0) sleep_us(500);
        }
        df_pool_destroy(&p);
    }
}

/* ---- short work ---- */

static void who_task(void *user, uint32_t i, uint32_t thread)
{
    (void)i;
    atomic_fetch_or((_Atomic uint32_t *)user, 1u << thread);
    sleep_us(100);
}

/* Calls until a worker takes part, at most so many as would take seconds. */
static int calls_until_helped(df_pool *p)
{
    _Atomic uint32_t who = 0;
    int n = 0;
    while (who <= 1 && n < 5000) run_short(p, 8, who_task, &who), n++;
    cr_assert_lt(n, 5000);
    return n;
}

Test(pool, short_work_wakes_after_a_while)
{
    df_pool *p = make_near_pool(3);
    _Atomic uint32_t who = 0;
    run_short(p, 8, who_task, &who);
    cr_expect_eq(who, 1, "nobody is started for one");
    for (int round = 0; round < 3; round++) {
        (void)calls_until_helped(p); /* the count begins anew */
        sleep_us(100000);            /* they fall asleep */
        const int n = calls_until_helped(p);
        cr_expect_gt(n, 16, "sleeping workers were woken at call %d", n);
    }
    df_pool_destroy(&p);
}

/* ---- the start delay ---- */

/* A clock that goes on by a step each time it is read. A timed region of two threads reads it
 * twice: when it is opened, and when the worker begins. */
static _Atomic uint64_t clock_ns, clock_step;

static uint64_t stepping_clock(void)
{
    return atomic_fetch_add(&clock_ns, atomic_load(&clock_step));
}

/* Runs regions in which both threads have a task, until the start delay is `want`. */
static void run_until_start_is(df_pool *p, uint32_t want)
{
    int n = 0;
    for (; n < 20000 && df_pool_start_ns(p) != want; n++) {
        trail t = { .n_threads = 2 };
        df_pool_run(p, 2, trail_task, &t);
        cr_assert_not(t.gave_up, "a thread had no task");
    }
    cr_assert_eq(df_pool_start_ns(p), want, "%u ns instead, after %d regions", df_pool_start_ns(p),
                 n);
}

/* Asks so often that sleeping workers are woken. */
static uint32_t share_of(df_pool *p, double ns)
{
    uint32_t n = 1;
    for (int i = 0; i < 20 && n == 1; i++) n = df_pool_share(p, ns);
    return n;
}

Test(pool, work_is_shared_only_when_it_takes_several_start_delays)
{
    enum { NEAR = 150, FAR = 1000 };
    const double work = 2000;
    df_pool *p = make_pool(2);
    df_pool_use_clock(p, stepping_clock);
    atomic_store(&clock_step, NEAR);
    run_until_start_is(p, NEAR);
    cr_expect_eq(share_of(p, work), 2);
    cr_expect_eq(share_of(p, work / 4), 1, "the parts are too short for any pool");
    /* The processors move apart: later regions show it. */
    atomic_store(&clock_step, FAR);
    run_until_start_is(p, FAR);
    for (int i = 0; i < 1000; i++) cr_assert_eq(df_pool_share(p, work), 1, "question %d", i);
    cr_expect_eq(share_of(p, 20.0 * FAR), 1, "far processors fetch the data slowly, too");
    cr_expect_eq(share_of(p, 30.0 * FAR), 2, "this work takes long enough");
    atomic_store(&clock_step, 8 * FAR);
    run_until_start_is(p, 8 * FAR);
    cr_expect_eq(share_of(p, 2 * DF_POOL_LONG_NS), 1);
    cr_expect_eq(df_pool_share(p, 2 * DF_POOL_LONG_NS + 1), 2, "long work is always shared");
    /* They come back: the pool tries such work again after a while, and measures. */
    atomic_store(&clock_step, NEAR);
    int n = 0;
    while (n < 5000 && df_pool_share(p, work) == 1) n++;
    cr_expect_lt(n, 5000, "far processors are far for ever");
    run_until_start_is(p, NEAR);
    cr_expect_eq(share_of(p, work), 2);
    df_pool_destroy(&p);
}

Test(pool, a_pool_of_one_thread_shares_nothing)
{
    df_pool *p = make_pool(1);
    cr_expect_eq(share_of(p, SHORT_NS), 1);
    cr_expect_eq(share_of(p, 1e9), 1);
    df_pool_destroy(&p);
}

/* ---- signals ---- */

static void *look_at_mask(void *user)
{
    pthread_sigmask(SIG_SETMASK, NULL, user);
    return NULL;
}

/* What the process is told is for threads of the program; a handler hears of what a thread does. */
Test(pool, threads_block_signals_of_the_process_alone)
{
    static const int of_process[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGCHLD, SIGXFSZ };
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t mask, before, after;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    cr_assert(df_os_thread(&thread, look_at_mask, &mask, -1));
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (size_t i = 0; i < sizeof of_process / sizeof *of_process; i++)
        cr_expect_eq(sigismember(&mask, of_process[i]), 1, "signal %d", of_process[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        cr_expect_eq(sigismember(&mask, own[i]), 0, "signal %d", own[i]);
    for (int i = 1; i < 32; i++)
        cr_expect_eq(sigismember(&after, i), sigismember(&before, i), "signal %d", i);
}
