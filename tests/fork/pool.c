/* SPDX-License-Identifier: Apache-2.0
 *
 * A forked child goes on working: the pool starts its workers again, also when another thread was
 * in a region, tiers their thread; a child forked while the compiler was at work interprets. The
 * parent notices nothing.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/cpu.h"
#include "unit/hand_kernels.h"

enum { N = 2000000 };

static _Atomic bool hold;
static atomic_int n_compiling;

static void main_plus(const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    (void)o0, (void)o1;
    const float *const x = (const float *)(const void *)a->ptr[0];
    float *const y = (float *)(void *)a->ptr[1];
    for (int64_t i = i0; i < i1; i++) y[i] = x[i] + x[i];
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    (void)self, (void)d, (void)k, (void)level;
    atomic_fetch_add(&n_compiling, 1);
    while (atomic_load(&hold)) sched_yield();
    for (uint32_t i = 0; i < n; i++) out[i] = (df_code){ .main = main_plus, .bytes = 64 };
    return DEFT_OK;
}

static void release(void *self, df_code *code)
{
    (void)self;
    code->main = NULL;
}

static const df_compiler compiler = {
    .name = "plus", .vector_bytes = 64, .compile = compile, .release = release
};

static _Atomic uint64_t threads_seen;

static void task(void *user, uint32_t i, uint32_t thread)
{
    (void)user, (void)i;
    atomic_fetch_or(&threads_seen, (uint64_t)1 << thread);
    const struct timespec t = { .tv_nsec = 200000 };
    nanosleep(&t, NULL);
}

typedef void (*pool_run)(df_pool *p, uint32_t n, void (*task)(void *, uint32_t, uint32_t),
                         void *user);

/* With this clock, workers seem to start at once, whatever else the machine does. */
static uint64_t stopped_clock(void)
{
    return 0;
}

static void run_short(df_pool *p, uint32_t n, void (*run)(void *, uint32_t, uint32_t), void *user)
{
    if (df_pool_share(p, DF_POOL_LONG_NS - 1) > 1)
        df_pool_run(p, n, run, user);
    else
        for (uint32_t i = 0; i < n; i++) run(user, i, 0);
}

static bool several_take_part(df_pool *p, pool_run run)
{
    for (int k = 0; k < 200; k++) {
        atomic_store(&threads_seen, 0);
        run(p, 8, task, NULL);
        if (atomic_load(&threads_seen) != 1) return true;
    }
    return false;
}

/* Whether several threads take part within some regions. */
static bool pool_works(df_pool *p)
{
    return several_take_part(p, run_short) && several_take_part(p, df_pool_run);
}

static _Atomic bool hold_region;
static atomic_int n_in_region;

static void holding_task(void *user, uint32_t i, uint32_t thread)
{
    (void)user, (void)i, (void)thread;
    atomic_fetch_add(&n_in_region, 1);
    while (atomic_load(&hold_region)) sched_yield();
}

static void *hold_a_region(void *user)
{
    df_pool_run(user, 8, holding_task, NULL);
    return NULL;
}

static bool plan_works(df_device *dev, uint64_t number, float *x, uint64_t *interpreted)
{
    kb b;
    kb_init(&b, DF_MODE_MAP, "i", 1);
    const uint32_t l =
        kb_ins(&b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_F32, "1"));
    const uint32_t y = kb_ins(&b, DF_K_add, DEFT_F32, l, l, 0, 0);
    kb_ins(&b, DF_K_store, DEFT_F32, y, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "1"));
    kb_ins(&b, DF_K_const, DEFT_F32, 0, 0, 0, number);
    b.k.cost = 100; /* so much that waiting for the compiler pays */
    kb_seal(&b);
    df_bind bind[2] = { { .buf = { 0 }, .stride = { { 1 } } },
                        { .buf = { 1 }, .stride = { { 1 } } } };
    df_seg seg = { .kind = DF_SEG_KERNEL, .extent = { { 2 } }, .bind = bind };
    df_launch launch = { 0, 1, 0 };
    df_buffer *root = NULL;
    df_buf root_buf = { 1 };
    df_input input = { .data = x, .bytes = (int64_t)N * 4 };
    const int64_t slots[] = { 0, 1, N };
    df_plan_buf bufs[2] = {
        { .kind = DF_BUF_INPUT, .dtype = DEFT_F32, .numel = { 2 }, .donor = DF_NONE },
        { .kind = DF_BUF_ROOT, .dtype = DEFT_F32, .numel = { 2 }, .donor = DF_NONE }
    };
    df_plan p = { .kernels = &b.k,
                  .n_kernels = 1,
                  .segs = &seg,
                  .n_segs = 1,
                  .launches = &launch,
                  .n_launches = 1,
                  .bufs = bufs,
                  .n_bufs = 2,
                  .root_buf = &root_buf,
                  .n_roots = 1 };
    const df_trace t = { .inputs = &input, .n_inputs = 1 };
    df_launch_io io = { .root = &root };
    df_run_stats stats = { 0 };
    df_diag d = { 0 };
    bool ok = dev->prepare(dev, &d, &p, NULL) == DEFT_OK &&
              dev->run(dev, &d, &p, &t, slots, &io, &stats) == DEFT_OK;
    for (int i = 0; ok && i < N; i++) ok = ((float *)root->data)[i] == x[i] * 2;
    *interpreted = stats.interpreted_segments;
    df_buffer_drop(&root);
    dev->release(dev, &p);
    return ok;
}

/* Forks; the child returns number's verdict as its status. */
static bool in_child(df_device *dev, uint64_t number, float *x, uint64_t want_interpreted)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) return false;
    if (pid == 0) {
        uint64_t interpreted = 9;
        alarm(60);
        const bool pool = pool_works(df_cpu_pool(dev));
        const bool plan = plan_works(dev, number, x, &interpreted);
        if (!pool || !plan || interpreted != want_interpreted)
            printf("child %d: pool %d plan %d interpreted %d\n", (int)number, pool, plan,
                   (int)interpreted);
        fflush(stdout);
        const bool ok = pool && plan && interpreted == want_interpreted;
        df_cpu_destroy(&dev);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
    df_device *dev = NULL;
    uint64_t interpreted = 0;
    int bad = 0;
    float *const x = random_floats(N, 1);
    const df_cpu_options o = { .n_threads = 3, .tier = DF_TIER_AUTO, .compiler = &compiler };
    if (df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev) != DEFT_OK) return 1;
    df_pool_use_clock(df_cpu_pool(dev), stopped_clock);
    bad += !in_child(dev, 1, x, 0); /* before anything was started */
    bad += !pool_works(df_cpu_pool(dev));
    bad += !plan_works(dev, 2, x, &interpreted) || interpreted != 0;
    df_tiers_wait_idle(df_cpu_tiers(dev));
    bad += !in_child(dev, 3, x, 0);
    bad += !in_child(dev, 2, x, 0); /* code of the parent's */
    /* A region of another thread's is open while we fork. */
    pthread_t holder;
    atomic_store(&hold_region, true);
    if (pthread_create(&holder, NULL, hold_a_region, df_cpu_pool(dev)) != 0) return 1;
    while (atomic_load(&n_in_region) < 3) sched_yield();
    bad += !in_child(dev, 3, x, 0);
    atomic_store(&hold_region, false);
    pthread_join(holder, NULL);
    bad += !pool_works(df_cpu_pool(dev));
    /* The compiler is at work while we fork. */
    atomic_store(&hold, true);
    const int before = atomic_load(&n_compiling);
    kb b;
    kb_init(&b, DF_MODE_MAP, "i", 1);
    kb_seal(&b);
    df_plan busy = { .kernels = &b.k, .n_kernels = 1 };
    if (df_tiers_attach(df_cpu_tiers(dev), NULL, &busy, NULL) != DEFT_OK) return 1;
    while (atomic_load(&n_compiling) == before) sched_yield();
    bad += !in_child(dev, 5, x, 1);
    bad += !in_child(dev, 2, x, 0);
    atomic_store(&hold, false);
    df_tiers_detach(df_cpu_tiers(dev), &busy);
    bad += !plan_works(dev, 6, x, &interpreted) || interpreted != 0;
    bad += !pool_works(df_cpu_pool(dev));
    df_cpu_destroy(&dev);
    free(x);
    printf("fork: %d wrong\n", bad);
    return bad != 0;
}
