/* SPDX-License-Identifier: Apache-2.0
 *
 * The compile threads: which kernels they take first, and how they share them. The compiler here
 * makes nothing that could run, and notes what it was asked for. A kernel is told by its number of
 * instructions.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <time.h>

#include "runtime/tier.h"
#include "unit/hand_kernels.h"

enum { MOST = 64, KERNELS = 16, PLAIN = 3 /* instructions of kernel 0 */ };

/* What the compiler was asked for, in order. Guarded by `lock`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t n_modules, n_inside, most_inside, n_awaited, n_given_back;
static long compile_ns; /* what each module takes at least */
static struct {
    df_opt level;
    uint32_t n, kernel[KERNELS];
} module[MOST];

static void nothing(const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    (void)a, (void)o0, (void)o1, (void)i0, (void)i1;
}

/* Stays inside until n_awaited threads are, for at most 20 seconds. */
static void wait_for_others(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    if (++n_inside > most_inside) most_inside = n_inside;
    pthread_cond_broadcast(&changed);
    while (most_inside < n_awaited && pthread_cond_timedwait(&changed, &lock, &until) == 0) {
    }
    n_inside--;
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    (void)self, (void)d;
    pthread_mutex_lock(&lock);
    cr_assert(n_modules < MOST && n <= KERNELS);
    module[n_modules].level = level;
    module[n_modules].n = n;
    for (uint32_t i = 0; i < n; i++) module[n_modules].kernel[i] = k[i]->n_ins - PLAIN;
    n_modules++;
    wait_for_others();
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){ .tv_nsec = compile_ns }, NULL);
    for (uint32_t i = 0; i < n; i++) out[i] = (df_code){ .main = nothing, .bytes = 100 };
    return DEFT_OK;
}

static void release(void *self, df_code *code)
{
    (void)self, (void)code;
}

static void give_back(void *self)
{
    (void)self;
    pthread_mutex_lock(&lock);
    n_given_back++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const df_compiler compiler = {
    .vector_bytes = 64, .compile = compile, .release = release, .give_back = give_back
};

/* Nothing was kept. */
static bool recall(void *self, const df_kernel *k, const df_facts *facts, df_opt level,
                   df_code *out)
{
    (void)self, (void)k, (void)facts, (void)level, (void)out;
    return false;
}

static const df_compiler keeping_compiler = {
    .vector_bytes = 64, .compile = compile, .recall = recall, .release = release
};

/* A plan of n kernels of the form y = x + c, of which kernel i has i more constants. */
typedef struct rig {
    df_tiers *t;
    kb built[KERNELS];
    df_kernel kernels[KERNELS];
    df_plan plan;
} rig;

static void open_with(rig *r, uint32_t n, uint32_t n_threads, const df_compiler *with)
{
    df_diag d = { 0 };
    memset(r, 0, sizeof *r);
    n_modules = most_inside = n_awaited = n_given_back = 0;
    for (uint32_t i = 0; i < n; i++) {
        kb *const b = &r->built[i];
        kb_init(b, DF_MODE_MAP, "i", 1);
        const uint32_t x =
            kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1"));
        const uint32_t y = kb_ins(b, DF_K_neg, DEFT_F32, x, 0, 0, 0);
        kb_ins(b, DF_K_store, DEFT_F32, y, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "1"));
        for (uint32_t c = 0; c < i; c++) kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, c);
        kb_seal(b);
        b->k.cost = 1;
        r->kernels[i] = b->k;
    }
    cr_assert(df_tiers_create(&d, &df_mem_system, NULL, with, DF_TIER_AUTO, 1 << 20, UINT32_MAX,
                              &r->t) == DEFT_OK);
    df_tiers_widen(r->t, n_threads);
    r->plan = (df_plan){ .kernels = r->kernels, .n_kernels = n };
    cr_assert(df_tiers_attach(r->t, &d, &r->plan, NULL) == DEFT_OK, "%s", d.text);
}

static void open_rig(rig *r, uint32_t n, uint32_t n_threads)
{
    open_with(r, n, n_threads, &compiler);
}

static void close_rig(rig *r)
{
    df_tiers_detach(r->t, &r->plan);
    df_tiers_destroy(&r->t);
}

/* Launches kernels 0 to n - 1 once, each with its number of elements. */
static void launch(rig *r, const double *elements, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        (void)df_tiers_code(r->t, &r->plan, (df_kern){ i }, elements[i], NULL);
}

/* The number of kernels that module m has, or 0 when it is not one of O2 code. */
static uint32_t size_of_o2(uint32_t m)
{
    return m < n_modules && module[m].level == DF_OPT_O2 ? module[m].n : 0;
}

Test(tiers, the_kernel_with_most_work_is_first)
{
    rig r;
    open_rig(&r, 3, 1);
    launch(&r, (const double[]){ 10, 1000, 100 }, 3);
    df_tiers_wait_idle(r.t);
    const uint32_t first = n_modules;
    launch(&r, (const double[]){ 10 }, 1);
    df_tiers_wait_idle(r.t);
    cr_assert_eq(n_modules, first + 3, "each is three quarters of what waits");
    const uint32_t expected[] = { 1, 2, 0 };
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(size_of_o2(first + i), 1);
        cr_expect_eq(module[first + i].kernel[0], expected[i]);
    }
    launch(&r, (const double[]){ 10, 1000, 100 }, 3);
    df_tiers_wait_idle(r.t);
    cr_expect_eq(n_modules, first + 3, "nothing is compiled twice");
    close_rig(&r);
}

Test(tiers, kernels_with_equal_work_share_a_module)
{
    rig r;
    const double elements[8] = { 5, 5, 5, 5, 5, 5, 5, 5 };
    open_rig(&r, 8, 1);
    launch(&r, elements, 8);
    df_tiers_wait_idle(r.t);
    const uint32_t first = n_modules;
    launch(&r, elements, 1);
    df_tiers_wait_idle(r.t);
    cr_assert_eq(n_modules, first + 2);
    cr_expect_eq(size_of_o2(first), 6);
    cr_expect_eq(size_of_o2(first + 1), 2);
    for (uint32_t i = 0; i < 6; i++) cr_expect_eq(module[first].kernel[i], i, "in their order");
    close_rig(&r);
}

Test(tiers, a_kernel_that_has_not_run_waits_for_its_own_launches)
{
    rig r;
    open_rig(&r, 3, 1);
    launch(&r, (const double[]){ 1, 1 }, 2);
    df_tiers_wait_idle(r.t);
    const uint32_t first = n_modules;
    launch(&r, (const double[]){ 1 }, 1);
    df_tiers_wait_idle(r.t);
    cr_assert_eq(n_modules, first + 1);
    cr_expect_eq(size_of_o2(first), 2, "kernel 2 has not run");
    close_rig(&r);
}

/* Waits for n calls of give_back, for at most 20 seconds. Returns their number. */
static uint32_t wait_for_give_back(uint32_t n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (n_given_back < n && pthread_cond_timedwait(&changed, &lock, &until) == 0) {
    }
    n = n_given_back;
    pthread_mutex_unlock(&lock);
    return n;
}

static void run_slow_job(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}

Test(tiers, memory_is_given_back_after_much_compiling)
{
    rig r;
    compile_ns = 30000000;
    open_rig(&r, 1, 1);
    launch(&r, (const double[]){ 10 }, 1);
    df_tiers_wait_idle(r.t);
    cr_expect_eq(wait_for_give_back(1), 1);
    df_tier_job job = { .run = run_slow_job };
    df_tiers_do(r.t, &job, true);
    cr_expect_eq(wait_for_give_back(2), 2, "also after a job of another thread");
    close_rig(&r);
    cr_expect_eq(n_given_back, 2, "and not again for the same time");
    compile_ns = 0;
}

Test(tiers, threads_share_the_kernels_of_a_plan)
{
    rig r;
    pthread_mutex_lock(&lock);
    open_rig(&r, 16, 4);
    n_awaited = 4;
    pthread_mutex_unlock(&lock);
    df_tiers_wait_idle(r.t);
    cr_expect_eq(most_inside, 4, "%u threads compiled at once", most_inside);
    cr_assert_eq(n_modules, 4);
    bool seen[16] = { false };
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t i = 0; i < module[m].n; i++) seen[module[m].kernel[i]] = true;
    for (uint32_t i = 0; i < 16; i++) cr_expect(seen[i], "kernel %u", i);
    close_rig(&r);
}

Test(tiers, one_thread_takes_them_all_at_once)
{
    rig r;
    open_rig(&r, 16, 1);
    df_tiers_wait_idle(r.t);
    uint32_t n = 0;
    for (uint32_t m = 0; m < n_modules; m++) n += module[m].n;
    cr_expect_eq(n, 16);
    cr_expect_eq(most_inside, 1);
    close_rig(&r);
}

/* Launches kernel 0 twice, and kernel 1 once between them, before any code is made. Returns how
 * many kernels get O2 code. */
static uint32_t o2_after_early_launches(const df_compiler *c, uint32_t n_threads)
{
    rig r;
    uint32_t n_o2 = 0;
    pthread_mutex_lock(&lock); /* so the compile thread waits */
    open_with(&r, 3, n_threads, c);
    launch(&r, (const double[]){ 1, 1 }, 2);
    launch(&r, (const double[]){ 1 }, 1);
    pthread_mutex_unlock(&lock);
    df_tiers_wait_idle(r.t);
    for (uint32_t m = 0; m < n_modules; m++) n_o2 += size_of_o2(m);
    for (uint32_t m = 1; m < n_modules; m++)
        cr_expect(module[m - 1].level <= module[m].level, "O0 code is made first");
    close_rig(&r);
    return n_o2;
}

Test(tiers, o2_code_is_kept_for_kernels_that_were_launched_before_they_had_code)
{
    cr_expect_eq(o2_after_early_launches(&keeping_compiler, 1), 2, "kernel 2 was not launched");
    cr_expect_eq(o2_after_early_launches(&keeping_compiler, 4), 2);
}

Test(tiers, without_kept_code_they_get_none)
{
    cr_expect_eq(o2_after_early_launches(&compiler, 1), 0);
}

/* Nothing is left behind when the tiers end before an idle thread has come to them. */
Test(tiers, kernels_may_wait_for_an_idle_thread_at_the_end)
{
    rig r;
    pthread_mutex_lock(&lock);
    open_with(&r, 16, 1, &keeping_compiler);
    for (int i = 0; i < 2; i++) launch(&r, (const double[16]){ 1 }, 16);
    pthread_mutex_unlock(&lock);
    close_rig(&r);
    cr_expect(n_modules <= 2 + 16);
}
