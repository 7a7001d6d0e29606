/* SPDX-License-Identifier: Apache-2.0
 *
 * Forks while another thread stands inside a lock: in the cache, at each place where it calls out;
 * in the allocator, at random; in the device. The child works and has lost at most what was cached;
 * the parent notices nothing.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "runtime/cpu.h"

enum { HANGS_AFTER_S = 10, N_KEYS = 300 };

/* The address sanitizer's own malloc stays locked in a child when another thread was in it. */
#ifdef __SANITIZE_ADDRESS__
enum { N_STORMS = 0, SETTLE_US = 50000 };
#else
enum { N_STORMS = 200, SETTLE_US = 0 };
#endif

static int n_wrong;

static void wrong(const char *what, long n)
{
    printf("wrong: %s (%ld)\n", what, n);
    n_wrong++;
}

/* ---- the other thread ---- */

static _Thread_local bool is_other;
static atomic_bool hold; /* the other thread may not pass */
static atomic_bool is_held, is_over;

static void stand(void)
{
    if (!is_other || !atomic_load(&hold)) return;
    atomic_store(&is_held, true);
    while (atomic_load(&hold)) sched_yield();
}

typedef struct errand {
    void (*go)(void *user);
    void *user;
} errand;

static void *other(void *user)
{
    const errand *const e = user;
    is_other = true;
    e->go(e->user);
    atomic_store(&is_over, true);
    return NULL;
}

typedef bool (*check)(void *user);

static void in_child(const char *what, long n, check fn, void *user)
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(HANGS_AFTER_S);
        _exit(fn(user) ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) wrong(what, n);
}

/* Forks while the other thread stands within go, and lets it end. false: it came through. */
static bool fork_within(const char *what, long n, void (*go)(void *), check fn, void *user)
{
    errand e = { go, user };
    pthread_t t;
    atomic_store(&is_held, false);
    atomic_store(&is_over, false);
    atomic_store(&hold, true);
    if (pthread_create(&t, NULL, other, &e) != 0) exit(1);
    while (!atomic_load(&is_held) && !atomic_load(&is_over)) sched_yield();
    const bool held = atomic_load(&is_held);
    (void)usleep(SETTLE_US); /* threads that start leave the sanitizer's malloc */
    if (held) in_child(what, n, fn, user);
    atomic_store(&hold, false);
    pthread_join(t, NULL);
    return held;
}

/* ---- the cache ---- */

typedef struct value {
    df_counted ref;
    int id;
} value;

static void value_destroy(df_counted *self)
{
    free(self);
}

static bool add(df_cache *c, int id)
{
    value *const v = malloc(sizeof *v);
    if (!v) return false;
    df_counted_init(&v->ref, value_destroy);
    v->id = id;
    const df_cache_key key = df_cache_key_make(&id, sizeof id);
    return df_cache_add(c, &key, &v->ref, 100) == DEFT_OK;
}

static bool standing_match(const df_counted *v, void *user)
{
    stand();
    return ((const value *)v)->id == *(int *)user;
}

static bool find(df_cache *c, int id)
{
    const df_cache_key key = df_cache_key_make(&id, sizeof id);
    df_counted *v = df_cache_find(c, &key, standing_match, &id);
    const bool found = v && ((value *)v)->id == id;
    df_counted_drop(&v);
    return found;
}

static bool cache_works(void *user)
{
    df_cache *c = user;
    bool ok = true;
    for (int i = 0; i < N_KEYS; i++) ok &= add(c, 1000 + i);
    for (int i = 0; i < N_KEYS; i++) ok &= find(c, 1000 + i);
    if (df_cache_stats_get(c).entries < N_KEYS) ok = false;
    df_cache_clear(c);
    ok &= df_cache_stats_get(c).bytes == 0;
    df_cache_destroy(&c);
    return ok;
}

static bool cache_is_forgotten(void *user)
{
    return !find(user, 1) && cache_works(user);
}

static bool cache_is_kept(void *user)
{
    const bool kept = find(user, 1);
    in_child("a child's child", 0, cache_works, user);
    return kept && n_wrong == 0 && find(user, 1) && cache_works(user);
}

static void find_one(void *user)
{
    if (!find(user, 1)) wrong("the parent lost an entry", 1);
}

static void test_match(void)
{
    df_cache *c = NULL;
    if (df_cache_create(&df_mem_system, NULL, &c) != DEFT_OK || !add(c, 1)) exit(1);
    in_child("nobody inside", 0, cache_is_kept, c);
    if (!fork_within("in match", 0, find_one, cache_is_forgotten, c)) wrong("nobody stood", 0);
    find_one(c);
    in_child("nobody inside any more", 0, cache_is_kept, c);
    df_cache_destroy(&c);
}

/* Stands at its n-th call. */
typedef struct counting_mem {
    long n, at;
} counting_mem;

static void *counting_resize(void *user, void *old, size_t old_size, size_t new_size)
{
    counting_mem *const m = user;
    if (is_other && ++m->n == m->at) stand();
    return df_mem_system.resize(NULL, old, old_size, new_size);
}

static void add_many(void *user)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!add(user, i)) wrong("add", i);
}

/* Among others where the table has been copied and the old one is freed. */
static void test_table(void)
{
    long n_stood = 0;
    for (long at = 1; n_wrong == 0; at += 1 + (at % 64 > 8 && at % 64 < 56) * 5) {
        counting_mem m = { 0, at };
        const df_mem mem = { counting_resize, &m };
        df_cache *c = NULL;
        if (df_cache_create(&mem, NULL, &c) != DEFT_OK) exit(1);
        const bool stood = fork_within("at an allocation", at, add_many, cache_works, c);
        for (int i = 0; i < N_KEYS; i++)
            if (!find(c, i)) wrong("the parent lost an entry", i);
        df_cache_destroy(&c);
        if (!stood) break;
        n_stood++;
    }
    if (n_stood < 40) wrong("allocations", n_stood);
}

/* ---- the allocator ---- */

static bool buffers_work(void *user)
{
    df_allocator *const a = user;
    for (int round = 0; round < 3; round++)
        for (int k = 0; k < 18; k++) {
            df_buffer *b[2] = { NULL, NULL };
            for (int i = 0; i < 2; i++) {
                if (df_buffer_create(NULL, a, 1 << k, &b[i]) != DEFT_OK) return false;
                memset(b[i]->data, i, 1 << k);
            }
            if (b[0]->data == b[1]->data || *(char *)b[0]->data != 0) return false;
            df_buffer_drop(&b[0]);
            df_buffer_drop(&b[1]);
        }
    df_allocator_trim(a);
    return true;
}

static bool buffers_work_alone(void *user)
{
    return buffers_work(user) && df_allocator_read(user).cached_bytes == 0;
}

static void use_buffers(void *user)
{
    while (atomic_load(&hold))
        if (!buffers_work(user)) wrong("buffers", 0);
}

static void test_allocator(void)
{
    df_allocator *a = NULL;
    errand e = { use_buffers, NULL };
    pthread_t t[2];
    if (df_allocator_create(NULL, &df_mem_system, 200000, &a) != DEFT_OK) exit(1);
    e.user = a;
    atomic_store(&hold, true);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, other, &e) != 0) exit(1);
    for (int i = 0; i < N_STORMS; i++) in_child("allocator", i, buffers_work_alone, a);
    atomic_store(&hold, false);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    if (!buffers_work_alone(a)) wrong("the parent's allocator", 0);
    df_allocator_destroy(&a);
}

/* ---- the device ---- */

static deft_status standing_gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    (void)self, (void)t, (void)out;
    is_other = true; /* the compile thread, too */
    stand();
    return df_fail(d, DEFT_E_BACKEND, "none");
}

static deft_status no_compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                              df_opt level, df_code *out)
{
    (void)self, (void)k, (void)n, (void)level, (void)out;
    return df_fail(d, DEFT_E_BACKEND, "none");
}

static bool prepare(void *user)
{
    df_device *const dev = user;
    df_seg seg = { .kind = DF_SEG_MATMUL, .dtype = DEFT_F32 };
    df_plan p = { .segs = &seg, .n_segs = 1 };
    const bool ok = dev->prepare(dev, NULL, &p, NULL) == DEFT_OK;
    dev->release(dev, &p);
    return ok;
}

static bool prepare_and_destroy(void *user)
{
    df_device *dev = user;
    const bool ok = prepare(dev);
    df_cpu_destroy(&dev);
    return ok && !dev;
}

static void prepare_other(void *user)
{
    if (!prepare(user)) wrong("prepare", 0);
}

/* The compile thread calls the compiler; the thread that prepares does not wait for it. */
static void prepare_without_waiting(void *user)
{
    prepare_other(user);
    while (!atomic_load(&is_held)) sched_yield();
}

static void test_device(df_tier tier, void (*go)(void *))
{
    static const df_compiler c = { .name = "none", .compile = no_compile, .gemm = standing_gemm };
    const df_cpu_options o = { .n_threads = 2, .tier = tier, .compiler = &c };
    df_device *dev = NULL;
    if (df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev) != DEFT_OK) exit(1);
    if (!fork_within("in gemm", (long)tier, go, prepare_and_destroy, dev)) wrong("nobody stood", 1);
    df_cpu_destroy(&dev);
}

int main(void)
{
    test_match();
    test_table();
    test_allocator();
    test_device(DF_TIER_O2, prepare_other);
    test_device(DF_TIER_AUTO, prepare_without_waiting);
    printf("locks: %d wrong\n", n_wrong);
    return n_wrong != 0;
}
