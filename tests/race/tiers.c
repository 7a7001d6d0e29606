/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiers under several threads: kernels are found, made, compiled in the background, evicted and run
 * at once; variants come and go, for want of room, while others are in them; one device runs the
 * plans of several contexts.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "runtime/cpu.h"
#include "unit/hand_kernels.h"

enum { N_THREADS = 3, N_KERNELS = 12, N_ROUNDS = 400, N = 300 };

static atomic_int n_wrong, n_compiled, n_released;
static kb kernels[N_KERNELS];

/* Code that doubles, whatever the kernel: all kernels here double, too. */
static void twice(const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    (void)o0, (void)o1;
    const float *const x = (const float *)(const void *)a->ptr[0];
    float *const y = (float *)(void *)a->ptr[1];
    for (int64_t i = i0; i < i1; i++) y[i] = x[i] + x[i];
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    (void)self, (void)level;
    sched_yield();
    for (uint32_t i = 0; i < n; i++) {
        if (k[i]->ins[k[i]->n_ins - 1].imm % 7 == 6) return df_fail(d, DEFT_E_COMPILE, "refused");
        out[i] = (df_code){ .main = twice, .bytes = 64 };
    }
    atomic_fetch_add(&n_compiled, (int)n);
    return DEFT_OK;
}

static deft_status specialize(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out)
{
    if (facts->extent[0] != DF_ANY && facts->extent[0] % N != 0) atomic_fetch_add(&n_wrong, 1);
    return compile(self, d, &k, 1, DF_OPT_O2, out);
}

static void release(void *self, df_code *code)
{
    (void)self;
    if (code->main != twice) atomic_fetch_add(&n_wrong, 1);
    code->main = NULL;
    atomic_fetch_add(&n_released, 1);
}

static const df_compiler compiler = { .name = "twice",
                                      .vector_bytes = 64,
                                      .compile = compile,
                                      .specialize = specialize,
                                      .release = release };

static void build(kb *b, uint64_t number)
{
    kb_init(b, DF_MODE_MAP, "i", 1);
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1"));
    const uint32_t y = kb_ins(b, DF_K_add, DEFT_F32, x, x, 0, 0);
    kb_ins(b, DF_K_store, DEFT_F32, y, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "1"));
    kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, number); /* tells the kernels apart */
    kb_seal(b);
}

/* out = 2 * in by two kernels of the list. slots: 0, 1, N. */
static void run_once(df_device *dev, uint32_t first, float *x)
{
    df_kernel k[2] = { kernels[first % N_KERNELS].k, kernels[(first * 5 + 1) % N_KERNELS].k };
    df_bind bind[2][2];
    df_seg segs[2];
    df_launch launch = { 0, 2, 0 };
    df_buffer *root[2] = { NULL, NULL };
    df_buf root_buf[2] = { { 1 }, { 2 } };
    df_input input = { .data = x, .bytes = N * 4 };
    const int64_t slots[] = { 0, 1, N };
    df_plan_buf bufs[3] = {
        { .kind = DF_BUF_INPUT, .dtype = DEFT_F32, .numel = { 2 }, .donor = DF_NONE },
        { .kind = DF_BUF_ROOT, .dtype = DEFT_F32, .numel = { 2 }, .donor = DF_NONE },
        { .kind = DF_BUF_ROOT, .index = 1, .dtype = DEFT_F32, .numel = { 2 }, .donor = DF_NONE }
    };
    df_plan p = { .kernels = k,
                  .n_kernels = 2,
                  .segs = segs,
                  .n_segs = 2,
                  .launches = &launch,
                  .n_launches = 1,
                  .bufs = bufs,
                  .n_bufs = 3,
                  .root_buf = root_buf,
                  .n_roots = 2,
                  .n_inputs = 1 };
    const df_trace t = { .inputs = &input, .n_inputs = 1 };
    df_launch_io io = { .root = root };
    df_diag d = { 0 };
    memset(segs, 0, sizeof segs), memset(bind, 0, sizeof bind);
    for (uint32_t i = 0; i < 2; i++) {
        segs[i] = (df_seg){
            .kind = DF_SEG_KERNEL, .kernel = { i }, .extent = { { 2 } }, .bind = bind[i]
        };
        bind[i][0].buf = (df_buf){ 0 }, bind[i][1].buf = (df_buf){ 1 + i };
        bind[i][0].stride[0] = bind[i][1].stride[0] = (df_slot){ 1 };
    }
    if (dev->prepare(dev, &d, &p, NULL) != DEFT_OK) atomic_fetch_add(&n_wrong, 1);
    for (int again = 0; again < 4; again++) {
        if (dev->run(dev, &d, &p, &t, slots, &io, NULL) != DEFT_OK) atomic_fetch_add(&n_wrong, 1);
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < N; i++)
                if (((float *)root[r]->data)[i] != x[i] * 2) atomic_fetch_add(&n_wrong, 1);
            df_buffer_drop(&root[r]);
        }
    }
    dev->release(dev, &p);
}

typedef struct job {
    df_device *dev;
    uint32_t seed;
} job;

static void *work(void *user)
{
    const job *const j = user;
    float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i + (int)j->seed);
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        run_once(j->dev, i * (j->seed + 1) + i / 50, x);
        if (i % 100 == 99) df_tiers_wait_idle(df_cpu_tiers(j->dev));
    }
    return NULL;
}

/* SMALL: kernels leave all the time. ROOMY: all stay, and some variants beside them. */
enum { SMALL = 40000, ROOMY = 72000 };

static int run_tier(df_tier tier, uint64_t max_code)
{
    df_device *dev = NULL;
    pthread_t thread[N_THREADS];
    job jobs[N_THREADS];
    const df_cpu_options o = { .n_threads = 2,
                               .tier = tier,
                               .compiler = &compiler,
                               .max_code = max_code,
                               .variant_after = 1 };
    if (df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev) != DEFT_OK) return 1;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        jobs[i] = (job){ dev, i };
        if (pthread_create(&thread[i], NULL, work, &jobs[i]) != 0) return 1;
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(thread[i], NULL);
    const df_tier_stats s = df_tiers_read(df_cpu_tiers(dev));
    df_cpu_destroy(&dev);
    printf("tier %d: kernels %d hits %d compiled %d, of these variants %d, released %d failed %d "
           "evicted %d wrong %d\n",
           (int)tier, (int)s.kernels, (int)s.hits, atomic_load(&n_compiled), (int)s.variants,
           atomic_load(&n_released), (int)s.failed, (int)s.evicted, atomic_load(&n_wrong));
    return atomic_load(&n_wrong) || atomic_load(&n_compiled) != atomic_load(&n_released) ||
           s.hits == 0 || (s.evicted == 0) != (max_code == ROOMY) || s.compiled == 0 ||
           (max_code == ROOMY && s.variants < N_KERNELS);
}

int main(void)
{
    for (uint32_t i = 0; i < N_KERNELS; i++) build(&kernels[i], i);
    const int bad = run_tier(DF_TIER_AUTO, SMALL) | run_tier(DF_TIER_O0, SMALL) |
                    run_tier(DF_TIER_O2, SMALL) | run_tier(DF_TIER_AUTO, ROOMY) |
                    run_tier(DF_TIER_O2, ROOMY);
    return bad;
}
