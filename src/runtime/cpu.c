/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device. It owns the thread pool, the allocator, the tiers, the micro-kernels and the
 * BLAS, and lends them to the executor (exec.c), which runs the plans.
 */
#include "runtime/cpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "runtime/exec/exec.h"
#include "runtime/matmul/tile.h"
#include "runtime/os.h"

/* sysconf refuses this number, where the library for C does not know the sizes of caches. */
#ifndef _SC_LEVEL1_DCACHE_SIZE
#define _SC_LEVEL1_DCACHE_SIZE (-1)
#define _SC_LEVEL2_CACHE_SIZE (-1)
#endif

#define DEFAULT_CACHED ((uint64_t)1 << 30)
#define DEFAULT_CODE ((uint64_t)256 << 20)
/* Launches that move more than this share of the last cache may write around it. */
#define STREAM_SHARE 0.9375
/* As STREAM_SHARE, of the part of a shared cache that the process may count on. ms for
 * relu(a x + b) of f16 on one thread of such a guest of two processors, by the MiB that it moves:
 *
 *   MiB                    48     64     80     88     96    112
 *   through the caches   1.82   2.41   3.17   3.74   3.94   4.58
 *   around them          1.91   2.54   3.36   3.58   3.89   4.59
 *
 * Besides, who reads the result next finds it in the cache. */
#define SHARED_STREAM_SHARE 1.25
/* A last cache that is larger serves other processors too. A guest of two processors is told the
 * 480 MiB that all of its host share, and reads 59 GB/s up to 64 MiB, 43 at 128 MiB, and 31 at 384,
 * which is the speed of memory. */
#define LAST_PER_CPU ((double)(32 << 20))

/* The micro-kernel for products of one dtype, which the compiler makes once. */
typedef struct product_code {
    df_tier_job job;
    struct cpu *c;
    df_tiers *tiers; /* a job may run while the device is destroyed, which forgets exec.tiers */
    deft_dtype dtype;
    df_gemm_kernel kernel;
    bool is_asked; /* guarded by cpu.lock, like the rest: the plan that asked first, for the log */
    uintptr_t site;
    uint32_t owner, plan_number;
} product_code;

typedef struct cpu {
    df_device dev; /* must be first: a df_device is cast to its cpu */
    const df_mem *mem;
    const df_log *log;
    df_executor exec;
    df_compiler compiler;
    df_naming *naming; /* NULL: compiled code gets no names */
    bool has_compiler;
    bool use_blas;
    product_code product[2]; /* f32, f64 */
    df_fork_lock lock;       /* guards the rest */
    _Atomic bool blas_tried;
    _Atomic uint64_t n_prepared; /* plans that were prepared so far */
} cpu;

static cpu *cpu_of(df_device *dev)
{
    return (cpu *)(void *)dev;
}

/* In a forked child, a missing thread may have been anywhere in the guarded code. The child then
 * asks for no BLAS that the parent did not have. */
static void lock(cpu *c)
{
    if (df_fork_lock_take(&c->lock))
        atomic_store_explicit(&c->blas_tried, true, memory_order_release);
}

static void log_product_code(const product_code *p)
{
    char found[64];
    df_event e;
    snprintf(found, sizeof found, "none; tiles of %u by %u", p->kernel.mr, p->kernel.nr);
    df_event_make(&e, DF_WHY_tile_new, p->site, deft_dtype_name(p->dtype), "code for it", found);
    e.owner = p->owner;
    e.n = p->plan_number;
    df_tiers_log(p->tiers, &e);
}

/* The job of a product_code. */
static void make_product_code(void *user)
{
    product_code *const p = user;
    cpu *const c = p->c;
    df_diag d = { 0 };
    const bool known =
        c->compiler.recall_gemm && c->compiler.recall_gemm(c->compiler.self, p->dtype, &p->kernel);
    if (known ? !p->kernel.fn : !df_tiers_start(p->tiers)) return;
    if (!known && c->compiler.gemm(c->compiler.self, &d, p->dtype, &p->kernel) != DEFT_OK) {
        df_logf(c->log, compile, "matmul: no micro-kernel for %s: %s", deft_dtype_name(p->dtype),
                d.text);
        return;
    }
    df_naming_show_gemm(c->naming, p->dtype, &p->kernel);
    atomic_store_explicit(&c->exec.gemm[p->dtype == DEFT_F64], &p->kernel, memory_order_release);
    if (!known) log_product_code(p);
}

/* Asks for the micro-kernel for products of dtype t. Until it is there, products use the tiles in
 * C, which give the same bits. Where these have no wide vectors, a large product would take many
 * times as long with them, and the call waits. */
static void prepare_product(cpu *c, deft_dtype t, const df_plan *plan)
{
    product_code *const p = &c->product[t == DEFT_F64];
    if (!c->has_compiler || !c->compiler.gemm) return;
    lock(c);
    if (!p->is_asked) {
        p->site = plan->site;
        p->owner = plan->owner;
        p->plan_number = plan->number;
        p->is_asked = true;
    }
    df_fork_lock_give(&c->lock);
    const bool has_wide_tiles =
        df_tiles_pick(t) != (t == DEFT_F64 ? &df_tiles_base_f64 : &df_tiles_base_f32);
    df_tiers_do(p->tiers, &p->job, !has_wide_tiles);
}

/* Opens a BLAS, once. Called before the first product in fast mode. */
static void open_blas(cpu *c)
{
    df_diag d = { 0 };
    df_blas *blas = NULL;
    lock(c);
    if (!atomic_load_explicit(&c->blas_tried, memory_order_relaxed)) {
        if (df_blas_open(&d, c->mem, &blas) == DEFT_OK)
            atomic_store_explicit(&c->exec.blas, blas, memory_order_release);
        else
            df_logf(c->log, plugin, "%s", d.text);
        atomic_store_explicit(&c->blas_tried, true, memory_order_release);
    }
    df_fork_lock_give(&c->lock);
}

static deft_status find_matmul(df_plan *plan, void *user)
{
    bool *const found = user;
    for (uint32_t i = 0; i < plan->n_segs; i++) *found |= plan->segs[i].kind == DF_SEG_MATMUL;
    return DEFT_OK;
}

static bool has_matmul(const df_plan *plan)
{
    bool found = false;
    df_plan_each((df_plan *)(uintptr_t)plan, find_matmul, &found);
    return found;
}

typedef struct preparation {
    cpu *c;
    df_diag *d;
    df_waiter *w;
} preparation;

static deft_status prepare_one(df_plan *plan, void *user)
{
    const preparation *const p = user;
    plan->serial = atomic_fetch_add_explicit(&p->c->n_prepared, 1, memory_order_relaxed) + 1;
    const deft_status st = df_tiers_attach(p->c->exec.tiers, p->d, plan, p->w);
    for (uint32_t i = 0; st == DEFT_OK && i < plan->n_segs; i++)
        if (plan->segs[i].kind == DF_SEG_MATMUL) prepare_product(p->c, plan->segs[i].dtype, plan);
    return st;
}

static deft_status release_one(df_plan *plan, void *user)
{
    df_tiers_detach(user, plan);
    return DEFT_OK;
}

static void release(df_device *dev, df_plan *plan)
{
    df_plan_each(plan, release_one, cpu_of(dev)->exec.tiers);
}

static deft_status prepare(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w)
{
    preparation p = { cpu_of(dev), d, w };
    const deft_status st = df_plan_each(plan, prepare_one, &p);
    if (st != DEFT_OK) release(dev, plan);
    return st;
}

static deft_status run(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    cpu *const c = cpu_of(dev);
    if (c->use_blas && (t->flags & DF_TRACE_FAST) &&
        !atomic_load_explicit(&c->blas_tried, memory_order_acquire) && has_matmul(plan))
        open_blas(c);
    return df_executor_run(&c->exec, d, plan, t, slots, io, stats);
}

static int64_t cache_size(int name, int64_t fallback)
{
    const long n = sysconf(name);
    return n > 0 ? n : fallback;
}

deft_status df_cpu_create(df_diag *d, const df_mem *mem, const df_log *log, const df_cpu_options *o,
                          df_device **out)
{
    deft_status st = DEFT_OK;
    cpu *c = df_mem_zalloc(mem, sizeof *c);
    df_device *dev = NULL;
    if (!c) return df_fail_mem(d, "device", sizeof *c);
    if (!df_fork_lock_init(&c->lock)) {
        df_mem_free(mem, c, sizeof *c);
        return df_fail(d, DEFT_E_MEMORY, "device: no mutex could be had");
    }
    dev = &c->dev;
    c->mem = mem;
    c->log = log;
    c->use_blas = o->use_blas;
    c->exec.mem = mem;
    c->exec.measure = o->measure;
    c->exec.spent = o->spent;
    c->exec.bf16 = df_matmul_try_bf16();
    atomic_init(&c->exec.tiles, o->use_tiles ? DF_TILES_UNKNOWN : DF_TILES_NONE);
    c->exec.near_bytes = df_os_cache(2);
    const double last = o->last_cache ? (double)o->last_cache : df_os_cache(3);
    const double ours = LAST_PER_CPU * df_os_n_cpus();
    c->exec.shares_far = isfinite(last) && last > ours;
    c->exec.far_bytes = c->exec.shares_far ? ours : last;
    c->exec.stream_bytes =
        o->stream_bytes
            ? (double)o->stream_bytes
            : (c->exec.shares_far ? SHARED_STREAM_SHARE : STREAM_SHARE) * c->exec.far_bytes;
    c->has_compiler = o->compiler && o->tier != DF_TIER_INTERP;
    if (c->has_compiler) c->compiler = *o->compiler;
    const uint64_t max_cached = o->max_cached ? o->max_cached : DEFAULT_CACHED;
    TRY(df_allocator_create(d, mem, max_cached, &c->exec.allocator));
    TRY(df_packs_create(d, mem, c->exec.allocator, max_cached, &c->exec.packs));
    TRY(df_pool_create(d, mem, o->n_threads, &c->exec.pool));
    TRY(df_pool_create(d, mem, 1, &c->exec.alone));
    TRY(df_tiers_create(d, mem, log, c->has_compiler ? &c->compiler : NULL, o->tier,
                        o->max_code ? o->max_code : DEFAULT_CODE, o->variant_after,
                        &c->exec.tiers));
    df_tiers_widen(c->exec.tiers, df_pool_threads(c->exec.pool) / 2);
    for (int i = 0; i < 2; i++)
        c->product[i] = (product_code){ .job = { .run = make_product_code, .user = &c->product[i] },
                                        .c = c,
                                        .tiers = c->exec.tiers,
                                        .dtype = i ? DEFT_F64 : DEFT_F32 };
    if (o->naming && c->has_compiler) c->naming = df_naming_open(mem, log, &c->compiler, o->naming);
    df_tiers_name(c->exec.tiers, c->naming);
    *dev = (df_device){ .name = c->has_compiler ? "cpu" : "cpu (interpreter)",
                        .prepare = prepare,
                        .run = run,
                        .release = release,
                        .allocator = c->exec.allocator };
    dev->limits = (df_limits){ .n_threads = df_pool_threads(c->exec.pool),
                               .max_body = DF_MAX_BODY,
                               .l1_bytes = cache_size(_SC_LEVEL1_DCACHE_SIZE, 32 << 10),
                               .l2_bytes = cache_size(_SC_LEVEL2_CACHE_SIZE, 512 << 10),
                               .over_bytes = DF_OVER_BYTES,
                               .fuse = true,
                               .windows = true,
                               .splits_columns = true,
                               .lifts_bf16 = c->exec.bf16 == DF_BF16_CHAINS,
                               .lifts_fast_bf16 = c->exec.bf16 != DF_BF16_NONE };
    *out = dev;
    dev = NULL;
done:
    df_cpu_destroy(&dev);
    return st;
}

void df_cpu_destroy(df_device **out)
{
    if (!*out) return;
    cpu *const c = cpu_of(*out);
    df_blas *blas = atomic_load(&c->exec.blas);
    *out = NULL;
    df_tiers_destroy(&c->exec.tiers);
    df_naming_close(&c->naming);
    df_pool_destroy(&c->exec.pool);
    df_pool_destroy(&c->exec.alone);
    df_executor_finish(&c->exec);
    df_packs_destroy(&c->exec.packs);
    df_allocator_destroy(&c->exec.allocator);
    df_blas_close(&blas);
    df_fork_lock_finish(&c->lock);
    df_mem_free(c->mem, c, sizeof *c);
}

df_tiers *df_cpu_tiers(df_device *dev)
{
    return cpu_of(dev)->exec.tiers;
}

df_pool *df_cpu_pool(df_device *dev)
{
    return cpu_of(dev)->exec.pool;
}
