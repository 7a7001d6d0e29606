/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: every task exactly once, results of tasks visible after the region, two callers at
 * once, small regions in quick succession, regions after workers have gone to sleep, pools made and
 * destroyed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/buffer.h"
#include "runtime/pool.h"
#include "support/budget.h"

enum { N_TASKS = 200, N_ROUNDS = 300, N_THREADS = 4, N_POOLS = 5000 };

static atomic_int n_wrong;

typedef struct region {
    int count[N_TASKS]; /* plain: ordered by the pool alone */
    uint32_t n_threads;
    sigset_t *mask; /* not NULL: see that workers block signals */
} region;

static void task(void *user, uint32_t i, uint32_t thread)
{
    region *const r = user;
    r->count[i]++;
    if (thread >= r->n_threads) atomic_fetch_add(&n_wrong, 1);
    if (r->mask && thread > 0) {
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        if (!sigismember(&now, SIGUSR1) || !sigismember(&now, SIGINT))
            atomic_fetch_add(&n_wrong, 1);
    }
}

static void run_region(df_pool *p, uint32_t n, int rounds, sigset_t *mask)
{
    region r = { .n_threads = df_pool_threads(p), .mask = mask };
    for (int k = 0; k < rounds; k++) {
        df_pool_run(p, n, task, &r);
        for (uint32_t i = 0; i < n; i++)
            if (r.count[i] != k + 1) atomic_fetch_add(&n_wrong, 1);
    }
}

static void *caller(void *user)
{
    df_pool *const p = user;
    for (int k = 0; k < N_ROUNDS; k++) run_region(p, 1 + (uint32_t)k % N_TASKS, 3, NULL);
    return NULL;
}

static void *use_buffers(void *user)
{
    df_allocator *const a = user;
    for (int k = 0; k < 3000; k++) {
        df_buffer *b = NULL, *c;
        if (df_buffer_create(NULL, a, 1 << (k % 20), &b) != DEFT_OK) return NULL;
        *(char *)b->data = (char)k;
        c = df_buffer_ref(b);
        df_buffer_drop(&b);
        if (*(char *)c->data != (char)k) atomic_fetch_add(&n_wrong, 1);
        df_buffer_drop(&c);
        if (k % 500 == 0) df_allocator_trim(a);
    }
    return NULL;
}

static void two_threads(void *(*fn)(void *), void *user)
{
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, fn, user) != 0) return;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

int main(void)
{
    df_pool *p = NULL;
    df_allocator *a = NULL;
    sigset_t before, after;
    memset(&before, 0, sizeof before); /* the system fills in only what it uses */
    memset(&after, 0, sizeof after);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    if (df_pool_create(NULL, &df_mem_system, N_THREADS, &p) != DEFT_OK) return 1;
    run_region(p, N_TASKS, N_ROUNDS, &before);
    run_region(p, 2, 5000, NULL);
    two_threads(caller, p);
    for (int k = 0; k < 20; k++) {
        nanosleep(&(struct timespec){ .tv_nsec = 300000 }, NULL); /* the workers fall asleep */
        run_region(p, 1 + (uint32_t)k, 1, NULL);
    }
    df_pool_destroy(&p);
    /* Often: a worker may wake up for the last region while the pool ends. */
    for (int64_t k = 0, n = test_size(N_POOLS, N_POOLS / 4); k < n; k++) {
        if (df_pool_create(NULL, &df_mem_system, 1 + (uint32_t)k % 4, &p) != DEFT_OK) return 1;
        if (k % 5) run_region(p, 2 + (uint32_t)k % 6, 1 + k % 3, NULL);
        df_pool_destroy(&p);
    }
    if (df_allocator_create(NULL, &df_mem_system, 100000, &a) != DEFT_OK) return 1;
    two_threads(use_buffers, a);
    if (df_allocator_read(a).live_bytes != 0) atomic_fetch_add(&n_wrong, 1);
    df_allocator_destroy(&a);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    if (memcmp(&before, &after, sizeof before) != 0) atomic_fetch_add(&n_wrong, 1);
    printf("pool: %d wrong\n", atomic_load(&n_wrong));
    return atomic_load(&n_wrong) != 0;
}
