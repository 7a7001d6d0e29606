/* SPDX-License-Identifier: Apache-2.0
 *
 * Background compilation of entries whose runs use a more general entry as the fallback.
 * One thread compiles a few entries to a program. So each entry arrives soon, and
 * destroying the device waits for a few entries at most.
 *
 * What must hold:
 * - A job owns copies of all that it needs, because plans come and go.
 * - Each entry is requested once, however many runs want it. An entry that failed is not tried
 *   again.
 * - A forked child has no such thread and must not start one: the missing thread may hold locks of
 *   NVRTC.
 */
#include "jit_cuda/driver/module.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "runtime/os.h"

enum { MOST_JOBS = 256, IN_PROGRAM = 4 };

typedef enum job_state { QUEUED, BUSY, FAILED } job_state;

typedef struct job {
    struct job *next;
    df_kernel kernel; /* points into `storage` */
    void *storage;
    size_t storage_size;
    df_cuda_entry entry;
    job_state state;
    char ops[96];
} job;

struct df_cuda_background {
    const df_mem *mem;
    const df_log *log;
    df_modules *m;
    df_fork_detector mark;
    atomic_bool is_lost; /* in a forked child, where the lock may be held for ever */
    atomic_uint_fast64_t arrived;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop, has_told;
    job *jobs; /* in the order of requests */
    uint32_t n_jobs, n_pending;
};

/* ---- jobs ---- */

static void job_destroy(const df_mem *mem, job *j)
{
    df_mem_free(mem, j->storage, j->storage_size);
    df_mem_free(mem, j, sizeof *j);
}

static job *job_create(const df_mem *mem, const df_kernel *k, df_cuda_entry e, const char *ops)
{
    job *const j = df_mem_zalloc(mem, sizeof *j);
    if (!j) return NULL;
    j->storage_size = df_kernel_storage_size(k);
    j->storage = df_mem_alloc(mem, j->storage_size);
    if (!j->storage) {
        df_mem_free(mem, j, sizeof *j);
        return NULL;
    }
    j->entry = e;
    df_kernel_copy(&j->kernel, k, j->storage);
    snprintf(j->ops, sizeof j->ops, "%s", ops ? ops : "");
    return j;
}

static bool is_of(const job *j, const df_kernel *k, df_cuda_entry e)
{
    return j->entry.pass == e.pass && j->entry.flags == e.flags &&
           df_hash_equal(j->kernel.key.hash, k->key.hash) && j->kernel.key.n == k->key.n &&
           memcmp(j->kernel.key.bytes, k->key.bytes, k->key.n) == 0;
}

/* ---- making ---- */

/* Compiles n jobs as one program. made[i] says whether the modules then have entry i. The
 * first error is in d. */
static void make(df_cuda_background *l, df_diag *d, job *const *jobs, uint32_t n, bool *made)
{
    df_cuda_want want[IN_PROGRAM];
    for (uint32_t i = 0; i < n; i++)
        want[i] = (df_cuda_want){ .kernel = &jobs[i]->kernel,
                                  .entry = jobs[i]->entry,
                                  .ops = jobs[i]->ops[0] ? jobs[i]->ops : NULL };
    const deft_status st = df_modules_get(l->m, d, want, n, 1, NULL);
    for (uint32_t i = 0; i < n; i++) {
        df_cuda_fn *fn = df_modules_find(l->m, &jobs[i]->kernel, jobs[i]->entry);
        made[i] = fn != NULL;
        df_cuda_fn_drop(&fn);
        if (st == DEFT_OK) df_cuda_fn_drop(&want[i].fn);
    }
}

/* Compiles n jobs as one program, then each missing one alone, so that a refused entry does
 * not take others with it. */
static void make_all(df_cuda_background *l, df_diag *d, job *const *jobs, uint32_t n, bool *made)
{
    make(l, d, jobs, n, made);
    for (uint32_t i = 0; i < n && n > 1; i++) {
        df_diag own = { 0 };
        if (!made[i]) make(l, &own, &jobs[i], 1, &made[i]);
        if (!made[i] && own.text[0]) *d = own;
    }
}

/* Under the lock. Marks the oldest queued jobs as BUSY and returns how many there are. */
static uint32_t take(df_cuda_background *l, job **out)
{
    uint32_t n = 0;
    for (job *j = l->jobs; j && n < IN_PROGRAM; j = j->next) {
        if (j->state != QUEUED) continue;
        j->state = BUSY;
        out[n++] = j;
    }
    return n;
}

/* Under the lock. Removes the jobs that were compiled. Failed jobs stay in the list, so
 * that they are not tried again. */
static void settle_jobs(df_cuda_background *l, job *const *jobs, uint32_t n, const bool *made)
{
    for (uint32_t i = 0; i < n; i++) {
        job **at = &l->jobs;
        jobs[i]->state = FAILED;
        l->n_pending--;
        if (!made[i]) continue;
        while (*at != jobs[i]) at = &(*at)->next;
        *at = jobs[i]->next;
        l->n_jobs--;
        job_destroy(l->mem, jobs[i]);
    }
    atomic_fetch_add(&l->arrived, 1);
    pthread_cond_broadcast(&l->changed);
}

static void tell(df_cuda_background *l, const df_diag *d, const bool *made, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++) all &= made[i];
    if (all || l->has_told) return;
    l->has_told = true;
    df_logf(l->log, why, "cuda: compiled beside runs: %s; more general entries go on (told once)",
            d->text[0] ? d->text : "code too large to be kept");
}

static void *work(void *user)
{
    df_cuda_background *const l = user;
    df_os_be_patient();
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        job *jobs[IN_PROGRAM];
        bool made[IN_PROGRAM];
        df_diag d = { 0 };
        const uint32_t n = take(l, jobs);
        if (n == 0) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        make_all(l, &d, jobs, n, made);
        tell(l, &d, made, n);
        pthread_mutex_lock(&l->lock);
        settle_jobs(l, jobs, n, made);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- requests ---- */

static bool is_lost(df_cuda_background *l)
{
    if (DF_UNLIKELY(df_fork_detector_seen(&l->mark))) {
        atomic_store(&l->is_lost, true);
        df_fork_detector_done(&l->mark);
    }
    return atomic_load(&l->is_lost);
}

/* Under the lock. When the list is full, the answer is not final while jobs are pending,
 * because each compiled job makes room. */
static df_cuda_answer enqueue(df_cuda_background *l, const df_kernel *k, df_cuda_entry e,
                              const char *ops)
{
    job **at = &l->jobs;
    for (; *at; at = &(*at)->next)
        if (is_of(*at, k, e)) return (*at)->state == FAILED ? DF_CUDA_NEVER : DF_CUDA_COMES;
    if (l->n_jobs == MOST_JOBS) return l->n_pending > 0 ? DF_CUDA_COMES : DF_CUDA_NEVER;
    if (!l->has_thread) l->has_thread = df_os_thread(&l->thread, work, l, -1);
    if (!l->has_thread) return DF_CUDA_NOBODY;
    *at = job_create(l->mem, k, e, ops);
    if (!*at) return DF_CUDA_NOBODY;
    l->n_jobs++;
    l->n_pending++;
    pthread_cond_broadcast(&l->changed);
    return DF_CUDA_COMES;
}

df_cuda_answer df_cuda_background_ask(df_cuda_background *l, const df_kernel *k, df_cuda_entry e,
                                      const char *ops)
{
    if (is_lost(l)) return DF_CUDA_NOBODY;
    pthread_mutex_lock(&l->lock);
    const df_cuda_answer a = enqueue(l, k, e, ops);
    pthread_mutex_unlock(&l->lock);
    return a;
}

uint64_t df_cuda_background_arrived(const df_cuda_background *l)
{
    return l ? atomic_load(&l->arrived) : 0;
}

void df_cuda_background_settle(df_cuda_background *l)
{
    if (!l || is_lost(l)) return;
    pthread_mutex_lock(&l->lock);
    while (l->n_pending > 0) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* ---- creating, destroying ---- */

deft_status df_cuda_background_create(df_diag *d, const df_mem *mem, const df_log *log,
                                      df_modules *m, df_cuda_background **out)
{
    df_cuda_background *const l = df_mem_zalloc(mem, sizeof *l);
    if (!l) return df_fail_mem(d, "kernels", sizeof *l);
    l->mem = mem;
    l->log = log;
    l->m = m;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    df_fork_detector_init(&l->mark);
    *out = l;
    return DEFT_OK;
}

static void stop(df_cuda_background *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread) pthread_join(l->thread, NULL);
}

/* In a forked child the jobs are leaked: the missing thread may have been changing the
 * list. */
void df_cuda_background_destroy(df_cuda_background **out)
{
    df_cuda_background *const l = *out;
    *out = NULL;
    if (!l) return;
    if (!is_lost(l)) {
        stop(l);
        for (job *j = l->jobs, *next; j; j = next) {
            next = j->next;
            job_destroy(l->mem, j);
        }
    }
    df_fork_detector_finish(&l->mark);
    df_mem_free(l->mem, l, sizeof *l);
}
