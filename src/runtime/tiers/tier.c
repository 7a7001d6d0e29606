/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel cache and the compile threads.
 *
 * The store (cache/cache.h) finds an *entry* by the canonical bytes of a kernel. Plans hold counted
 * references to entries. An entry owns a copy of its kernel and up to two pieces of code, which
 * live as long as the entry. A thread that runs code holds a reference to the entry, so code in use
 * is never freed.
 *
 *   attach --miss--> entry --> queue[O0] --compile thread--> code[O0] published in exec.code
 *                                   launched again: queue[O2] --> code[O2] published over it
 *
 * One lock guards the queues and the states of entries. One condition is signalled after every
 * change. The compiler is called without the lock. Kernels of one plan have one batch number and
 * are compiled as modules of several (tier_queue.c). When that fails, they are compiled one by one,
 * so that a refused kernel does not affect the others. When a kernel asks for O2 code, those of its
 * plan that have run once do too, so that the most expensive one is first.
 *
 * Waiting. A kernel without code is interpreted, unless this would take longer than to compile it.
 * A LOOP kernel that will run long waits for O2 code, because a loop may be launched only once. O0
 * code keeps its states in memory, which is 10 times as slow for x = r x (1 - x). Kernels in fast
 * mode always wait for O2. There, unlike in strict mode, tiers may differ in bits, and timing must
 * never choose a result.
 *
 * A forked child has no compile thread of its own at first. When a thread of the parent was in the
 * compiler, locks of the compiler stay taken in the child for ever. The child then interprets.
 *
 * Why this file is long: states of entries are changed in this file alone.
 */
#include "runtime/tiers/tier_store.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cpu.h"
#include "runtime/os.h"

/* Estimates in ns. Measured: the interpreter takes 0.04 to 0.1 ns per instruction and element; the
 * compiler at O0 takes 0.4 ms for a small kernel and 5 ms for 300 instructions. */
#define INTERP_NS_PER_OP 0.1
#define COMPILE_NS 1.5e6
#define COMPILE_NS_PER_INS 1e4
#define START_NS 2.5e7 /* to start the compiler */
/* A LOOP at O0, per instruction and element. The compiler at O2: 10 ms for 10 instructions, 20 ms
 * for 40. */
#define LOOP_O0_NS_PER_OP 0.1
#define O2_NS 8e6
#define O2_NS_PER_INS 3e5

#define LAUNCHES_FOR_O2 2

/* Memory is given back when this much time has been spent on compiling since the last time, and
 * GIVE_BACK_SHARE times as much as giving it back took. */
#define GIVE_BACK_AFTER_NS 20000000
#define GIVE_BACK_SHARE 15

/* More work than any launch has. */
#define MOST_WORK 1e300

/* ---- states ---- */

/* Sets the state of one level. The caller holds `lock`. */
static void set_state(df_exec *e, df_opt level, uint32_t state)
{
    const uint32_t mask = 0xFFu << (level * STATE_BITS);
    const uint32_t before = atomic_load_explicit(&e->state, memory_order_relaxed);
    atomic_store_explicit(&e->state, (before & ~mask) | state << (level * STATE_BITS),
                          memory_order_release);
}

/* ---- entries ---- */

static void tier_entry_destroy(df_counted *self)
{
    entry *const e = (entry *)(void *)self;
    df_tiers *const t = e->tiers;
    df_variants_finish(t, e);
    for (int level = 0; level < 2; level++)
        if (e->has_code[level]) df_code_release(t, &e->code[level]);
    df_mem_free(t->mem, e->storage, e->storage_size);
    df_mem_free(t->mem, e, sizeof *e);
}

static entry *tier_entry_create(df_tiers *t, const df_kernel *k)
{
    const size_t storage_size = df_kernel_storage_size(k);
    entry *const e = df_mem_zalloc(t->mem, sizeof *e);
    void *const storage = e ? df_mem_alloc(t->mem, storage_size) : NULL;
    if (!storage) {
        df_mem_free(t->mem, e, sizeof *e);
        return NULL;
    }
    df_counted_init(&e->ref, tier_entry_destroy);
    e->tiers = t;
    e->storage = storage;
    e->storage_size = storage_size;
    df_kernel_copy(&e->kernel, k, storage);
    e->exec.kernel = &e->kernel;
    /* In a loop, iterations dominate the time, and a variant does not help them. */
    e->exec.may_vary =
        t->variant_after && t->compiler && t->compiler->specialize && k->mode != DF_MODE_LOOP;
    e->exec.numbers = df_variant_slots(k);
    return e;
}

/* Returns the bytes that an entry is charged for in the store: the entry itself, and an estimate of
 * its code. An instruction takes about 12 bytes, unrolled and with tails, at two levels. */
static size_t charge(const entry *e)
{
    return sizeof *e + e->storage_size + 4096 + (size_t)e->kernel.n_ins * 96;
}

/* ---- compiling ---- */

/* Publishes code of a level; NULL: the compilation failed. The caller holds `lock`. */
static void tier_publish_code(entry *e, df_opt level, const df_code *code)
{
    if (!code) {
        set_state(&e->exec, level, STATE_FAILED);
        return;
    }
    e->code[level] = *code;
    e->has_code[level] = true;
    /* O0 code that arrives after O2 code is not used. */
    if (level == DF_OPT_O2 || !e->has_code[DF_OPT_O2])
        atomic_store_explicit(&e->exec.code, &e->code[level], memory_order_release);
    set_state(&e->exec, level, STATE_DONE);
}

/* Makes the event for the compilation of e at `level`, in a module of n kernels. d is the failure,
 * or NULL on success. */
static void make_event(df_event *out, const entry *e, df_opt level, uint32_t n, uint64_t ns,
                       const df_diag *d)
{
    const char *const name = level == DF_OPT_O0 ? "O0" : "O2";
    const bool again = level == DF_OPT_O2 && e->has_code[DF_OPT_O0];
    char expected[64], found[160];
    if (again)
        snprintf(expected, sizeof expected, "O2 after %d launches", LAUNCHES_FOR_O2);
    else
        snprintf(expected, sizeof expected, "code for it%s", d ? "" : " in the cache");
    if (d)
        snprintf(found, sizeof found, "at %s %.120s", name, d->text);
    else
        snprintf(found, sizeof found, "%s; %s took %.2f ms for %u in one module",
                 again ? "O0" : "none", name, (double)ns * 1e-6, n);
    df_event_make(out,
                  d       ? DF_WHY_kernel_failed
                  : again ? DF_WHY_kernel_better
                          : DF_WHY_kernel_new,
                  e->site ? e->site : e->plan_site, e->ops, expected, found);
    out->other = e->plan_site;
    out->owner = e->owner;
    out->n = e->plan_number;
}

static deft_status call_compiler(df_tiers *t, df_diag *d, entry *const *e, uint32_t n, df_opt level,
                                 df_code *out)
{
    const df_kernel *kernels[DF_MAX_MODULE];
    for (uint32_t i = 0; i < n; i++) kernels[i] = &e[i]->kernel;
    atomic_fetch_add(&t->n_in_compiler, 1);
    const deft_status st = t->compiler->compile(t->compiler->self, d, kernels, n, level, out);
    atomic_fetch_sub(&t->n_in_compiler, 1);
    return st;
}

bool df_tiers_start(df_tiers *t)
{
    if (!t->compiler) return false;
    if (DF_LIKELY(atomic_load_explicit(&t->has_started, memory_order_acquire))) return true;
    df_diag d = { 0 };
    const uint64_t begun = df_os_now_ns();
    atomic_fetch_add(&t->n_in_compiler, 1);
    const bool ok = df_compiler_start(t->compiler, &d) == DEFT_OK;
    atomic_fetch_sub(&t->n_in_compiler, 1);
    if (ok && !atomic_exchange(&t->has_started, true))
        df_logf(t->log, plugin, "%s: started in %.1f ms", df_compiler_text(t->compiler, false),
                (double)(df_os_now_ns() - begun) * 1e-6);
    if (!ok && !atomic_exchange(&t->is_refused, true))
        df_logf(t->log, plugin, "no compiler, kernels are interpreted: %s", d.text);
    return ok;
}

/* Marks n entries, which are BUSY at level, as failed, so that they are interpreted. The caller
 * must not hold `lock`. */
static void tier_fail_entries(df_tiers *t, entry *const *e, uint32_t n, df_opt level)
{
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < n; i++) tier_publish_code(e[i], level, NULL);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Compiles n entries, which are BUSY at level, and publishes the code. The caller must not hold
 * `lock`. */
static void tier_compile_entries(df_tiers *t, entry *const *e, uint32_t n, df_opt level)
{
    df_diag d = { 0 };
    df_code code[DF_MAX_MODULE];
    bool ok[DF_MAX_MODULE] = { false };
    df_event event[DF_MAX_MODULE];
    if (!df_tiers_start(t)) {
        tier_fail_entries(t, e, n, level);
        return;
    }
    memset(code, 0, sizeof code);
    const uint64_t start = df_os_now_ns();
    if (call_compiler(t, &d, e, n, level, code) == DEFT_OK) {
        for (uint32_t i = 0; i < n; i++) ok[i] = true;
    } else if (n > 1) {
        df_logf(t->log, compile, "%s; these %u kernels one by one", d.text, n);
        for (uint32_t i = 0; i < n; i++) {
            ok[i] = call_compiler(t, &d, &e[i], 1, level, &code[i]) == DEFT_OK;
            if (!ok[i]) make_event(&event[i], e[i], level, 1, 0, &d);
        }
    } else {
        make_event(&event[0], e[0], level, 1, 0, &d);
    }
    const uint64_t ns = df_os_now_ns() - start;
    for (uint32_t i = 0; i < n; i++)
        if (ok[i]) df_code_show(t, e[i], level == DF_OPT_O0 ? ".O0" : "", &code[i]);
    for (uint32_t i = 0; i < n; i++)
        if (ok[i]) make_event(&event[i], e[i], level, n, ns, NULL);
    df_logf(t->log, compile, "%u kernels at %s", n, level == DF_OPT_O0 ? "O0" : "O2");

    uint32_t n_failed = 0;
    pthread_mutex_lock(&t->lock);
    t->stats.compile_ns += ns;
    for (uint32_t i = 0; i < n; i++) {
        tier_publish_code(e[i], level, ok[i] ? &code[i] : NULL);
        if (level == DF_OPT_O0) df_tier_add_idle(t, e[i]);
        t->stats.compiled += ok[i];
        n_failed += !ok[i];
        df_tiers_hear(t, &event[i]);
    }
    const bool tell = n_failed > 0 && !t->failure_told;
    t->failure_told |= tell;
    t->stats.failed += n_failed;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < n; i++) {
        df_event_log(t->log, &event[i]);
        const df_kernel_notes told = { .tier = level == DF_OPT_O0 ? "O0" : "O2",
                                       .compiled = ok[i],
                                       .error = event[i].text + event[i].found,
                                       .code_bytes = code[i].bytes,
                                       .compile_ns = ns,
                                       .n_in_module = n };
        df_tier_log(t, e[i], &told);
    }
    if (tell) df_logf(t->log, error, "compile: %s; interpreted instead (told once)", d.text);
}

/* Takes the entries of the next module from the queues. The caller gets the references of the
 * queue. The caller holds `lock`. */
static uint32_t take_jobs(df_tiers *t, entry **out, df_opt *level)
{
    *level = t->queue[DF_OPT_O0].head ? DF_OPT_O0 : DF_OPT_O2;
    const uint32_t n = df_tier_queue_take(&t->queue[*level], *level, t->most_threads, out);
    for (uint32_t i = 0; i < n; i++) set_state(&out[i]->exec, *level, STATE_BUSY);
    return n;
}

/* A job may be in the compiler, as a forked child has to know. The caller must not hold `lock`. */
static void call_job(df_tiers *t, const df_tier_job *j)
{
    const uint64_t start = df_os_now_ns();
    atomic_fetch_add(&t->n_in_compiler, 1);
    j->run(j->user);
    atomic_fetch_sub(&t->n_in_compiler, 1);
    const uint64_t ns = df_os_now_ns() - start;
    pthread_mutex_lock(&t->lock);
    t->unused_ns += ns;
    pthread_cond_broadcast(&t->changed); /* a compile thread may give memory back */
    pthread_mutex_unlock(&t->lock);
}

/* Runs the first job of the queue, if there is one and no kernel waits for O0 code. Returns false
 * when it ran none. The caller holds `lock`, which is released while the job runs. */
static bool tier_run_job(df_tiers *t)
{
    df_tier_job *const j = t->first_job;
    if (!j || t->queue[DF_OPT_O0].head) return false;
    t->first_job = j->next;
    pthread_mutex_unlock(&t->lock);
    call_job(t, j);
    pthread_mutex_lock(&t->lock);
    j->state = DF_JOB_DONE;
    t->n_pending--;
    pthread_cond_broadcast(&t->changed);
    return true;
}

/* Gives back memory that compiling has left unused, if no thread is in the compiler and
 * enough was compiled that the call hardly counts. Returns false when it did nothing. The caller
 * holds `lock`, which is released during the call. */
static bool tier_give_back(df_tiers *t)
{
    const df_compiler *const c = t->compiler;
    if (atomic_load(&t->n_in_compiler) > 0 || t->unused_ns < GIVE_BACK_AFTER_NS ||
        t->unused_ns < GIVE_BACK_SHARE * t->give_back_ns || !c || !c->give_back)
        return false;
    t->unused_ns = 0;
    pthread_mutex_unlock(&t->lock);
    const uint64_t start = df_os_now_ns();
    c->give_back(c->self);
    const uint64_t ns = df_os_now_ns() - start;
    df_logf(t->log, compile, "memory given back in %.2f ms", (double)ns * 1e-6);
    pthread_mutex_lock(&t->lock);
    t->give_back_ns = ns;
    return true;
}

/* Adds e to the queue of a level. Without a compile thread nothing is queued: the kernel is
 * interpreted, and the next attach tries again. The caller holds `lock`. */
static void tier_enqueue_entry(df_tiers *t, entry *e, df_opt level)
{
    df_tier_queue_add(&t->queue[level], e, level);
    if (!df_tiers_need_thread(t)) {
        memset(&t->queue[level], 0, sizeof t->queue[level]); /* it had no other entry */
        return;
    }
    df_counted_ref(&e->ref);
    e->generation = t->generation;
    set_state(&e->exec, level, STATE_QUEUED);
    t->n_pending++;
    pthread_cond_broadcast(&t->changed);
}

/* Asks for O2 code of the next kernel that an idle thread shall make it for. One thread at a time
 * does so, and one kernel at a time, so that others have to wait little. Returns false when nothing
 * was done. The caller holds `lock`, which is released meanwhile. */
static bool tier_ask_when_idle(df_tiers *t)
{
    entry *const e = t->n_busy == 0 ? df_tier_take_idle(t) : NULL;
    if (!e) return false;
    if (df_exec_state(&e->exec, DF_OPT_O2) == STATE_NONE) tier_enqueue_entry(t, e, DF_OPT_O2);
    t->n_pending--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    df_counted *ref = &e->ref;
    df_counted_drop(&ref);
    pthread_mutex_lock(&t->lock);
    return true;
}

static void *compile_thread(void *user)
{
    df_tiers *const t = user;
    entry *jobs[DF_MAX_MODULE];
    df_opt level;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (tier_run_job(t)) continue;
        uint32_t n = take_jobs(t, jobs, &level);
        entry *const variant = n == 0 ? df_variant_take(t) : NULL;
        if (variant) jobs[n++] = variant;
        if (n == 0 && tier_ask_when_idle(t)) continue;
        if (n == 0) {
            if (!tier_give_back(t)) pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        t->n_busy++;
        pthread_mutex_unlock(&t->lock);
        const uint64_t start = df_os_now_ns();
        if (variant)
            df_variant_make(t, variant);
        else
            tier_compile_entries(t, jobs, n, level);
        for (uint32_t i = 0; i < n; i++) {
            df_counted *ref = &jobs[i]->ref;
            df_counted_drop(&ref);
        }
        const uint64_t ns = df_os_now_ns() - start;
        pthread_mutex_lock(&t->lock);
        t->unused_ns += ns;
        t->n_busy--;
        t->n_pending -= n;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

bool df_tiers_need_thread(df_tiers *t)
{
    const uint32_t n_free = t->n_threads - t->n_busy;
    const uint32_t n_queued = t->queue[DF_OPT_O0].n + t->queue[DF_OPT_O2].n;
    const bool is_short = t->n_threads == 0 || n_queued > n_free * DF_LEAST_MODULE;
    if (is_short && t->n_threads < t->most_threads &&
        df_os_thread(&t->thread[t->n_threads], compile_thread, t, -1))
        t->n_threads++;
    return t->n_threads > 0;
}

/* In a forked child, resets the states of compilations that were in progress in the parent: they
 * count as never begun. Published code counts as done, because it may be running. The caller holds
 * `lock`. */
static void forget_lost(const df_tiers *t, entry *e)
{
    if (e->generation == t->generation) return;
    const df_code *const code = atomic_load_explicit(&e->exec.code, memory_order_acquire);
    for (df_opt level = DF_OPT_O0; level <= DF_OPT_O2; level++)
        if (!df_is_settled(df_exec_state(&e->exec, level)))
            set_state(&e->exec, level, code == &e->code[level] ? STATE_DONE : STATE_NONE);
    e->generation = t->generation;
}

void df_tiers_check_fork(df_tiers *t)
{
    if (DF_LIKELY(!df_fork_detector_seen(&t->mark))) return;
    /* The lock may be held by a thread that does not exist here. */
    pthread_mutex_init(&t->lock, NULL);
    df_os_cond_init(&t->changed);
    pthread_mutex_init(&t->variant_lock, NULL);
    t->first_wish = NULL;
    t->first_idle = NULL;
    t->first_job = NULL;
    t->variants = t->retired = NULL; /* exec.variant stays valid; retired variants are leaked */
    t->variant_bytes = 0;
    atomic_store(&t->inside, 0);
    t->n_threads = t->n_busy = 0;
    memset(t->queue, 0, sizeof t->queue); /* the references of the queues are never dropped */
    t->n_pending = 0;
    t->generation++;
    if (atomic_load(&t->n_in_compiler) > 0) {
        t->compiler = NULL;
        df_logf(t->log, error, "fork: the compiler was at work; this child interprets new kernels");
    }
    atomic_store(&t->n_in_compiler, 0);
    df_fork_detector_done(&t->mark);
}

/* ---- kept code ---- */

/* Entries that are sought together. The stack of the caller, which may be small, holds them. */
enum { RECALLED_AT_ONCE = 4 };

/* Makes the event for code of a level that came from a folder. */
static void make_loaded_event(df_event *out, const entry *e, df_opt level)
{
    df_event_make(out, DF_WHY_kernel_loaded, e->site ? e->site : e->plan_site, e->ops,
                  "code for it in the cache",
                  level == DF_OPT_O0 ? "none; O0 was kept by an earlier process"
                                     : "none; O2 was kept by an earlier process");
    out->other = e->plan_site;
    out->owner = e->owner;
    out->n = e->plan_number;
}

/* Kept code of one kernel. */
typedef struct recalled {
    bool found;
    df_opt level;
    df_code code;
    df_event event; /* when code was found */
} recalled;

/* Finds the best kept code of e. The caller must not hold `lock`. */
static void recall_entry(df_tiers *t, const entry *e, recalled *out)
{
    const df_compiler *const c = t->compiler;
    out->level = DF_OPT_O2;
    out->found = c->recall(c->self, &e->kernel, NULL, DF_OPT_O2, &out->code);
    if (!out->found && df_tier_for(t, &e->kernel) == DF_TIER_AUTO) {
        out->level = DF_OPT_O0;
        out->found = c->recall(c->self, &e->kernel, NULL, DF_OPT_O0, &out->code);
    }
    if (!out->found) return;
    df_code_show(t, e, out->level == DF_OPT_O0 ? ".O0" : "", &out->code);
    make_loaded_event(&out->event, e, out->level);
}

/* Gives n entries, which are BUSY at O2, the code that earlier processes kept. Entries without such
 * code are as they were before. The caller holds `lock`, which is released meanwhile. */
static void tier_recall_entries(df_tiers *t, entry *const *e, uint32_t n)
{
    recalled r[RECALLED_AT_ONCE];
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < n; i++) recall_entry(t, e[i], &r[i]);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < n; i++) {
        set_state(&e[i]->exec, DF_OPT_O2, STATE_NONE);
        if (!r[i].found) continue;
        tier_publish_code(e[i], r[i].level, &r[i].code);
        t->stats.loaded++;
        df_tiers_hear(t, &r[i].event);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < n; i++) {
        const df_kernel_notes told = { .tier = "kept",
                                       .compiled = true,
                                       .code_bytes = r[i].code.bytes };
        if (!r[i].found) continue;
        df_event_log(t->log, &r[i].event);
        df_tier_log(t, e[i], &told);
    }
    pthread_mutex_lock(&t->lock);
}

/* Looks for kept code of the kernels of plan that nobody has begun to compile. The caller holds
 * `lock`, which is released meanwhile. */
static void tier_recall(df_tiers *t, const df_plan *plan)
{
    entry *some[RECALLED_AT_ONCE];
    uint32_t n = 0;
    if (!t->compiler || !t->compiler->recall) return;
    for (uint32_t i = 0; i <= plan->n_kernels; i++) {
        if (n == RECALLED_AT_ONCE || (i == plan->n_kernels && n > 0)) {
            tier_recall_entries(t, some, n);
            n = 0;
        }
        if (i == plan->n_kernels) return;
        entry *const e = df_entry_of(plan->execs[i]);
        const df_tier tier = df_tier_for(t, &e->kernel);
        if ((tier != DF_TIER_AUTO && tier != DF_TIER_O2) || e->was_sought ||
            df_exec_state(&e->exec, DF_OPT_O0) != STATE_NONE ||
            df_exec_state(&e->exec, DF_OPT_O2) != STATE_NONE)
            continue;
        e->was_sought = true;
        set_state(&e->exec, DF_OPT_O2, STATE_BUSY);
        some[n++] = e;
    }
}

/* ---- attach ---- */

static void set_origin(entry *e, const df_plan *plan, df_kern kernel)
{
    const df_kernel_about about = plan->about ? plan->about[kernel.i] : (df_kernel_about){ 0 };
    e->site = about.site;
    e->plan_site = plan->site;
    e->owner = plan->owner;
    e->plan_number = plan->number;
    snprintf(e->ops, sizeof e->ops, "%s", about.ops ? about.ops : "a kernel");
}

/* Finds or adds the entry of a kernel of plan, as a new reference. The caller holds `lock`. */
static deft_status find_or_add(df_tiers *t, df_diag *d, const df_plan *plan, df_kern kernel,
                               entry **out)
{
    const df_kernel *const k = &plan->kernels[kernel.i];
    const df_cache_key key = { .hash = k->key.hash, .bytes = k->key.bytes, .n = k->key.n };
    df_counted *const found = df_cache_find(t->store, &key, NULL, NULL);
    if (found) {
        t->stats.hits++;
        *out = (entry *)(void *)found;
        return DEFT_OK;
    }
    entry *e = tier_entry_create(t, k);
    if (!e) return df_fail_mem(d, "kernel", sizeof *e);
    e->batch = t->n_batches;
    e->generation = t->generation;
    set_origin(e, plan, kernel);
    t->stats.kernels++;
    df_counted_ref(&e->ref);
    df_variants_make_room(t, charge(e));
    /* The store may refuse e, because it is too large or memory runs out. It then lives as long as
     * its plan. */
    (void)df_cache_add(t->store, &key, &e->ref, charge(e));
    *out = e;
    return DEFT_OK;
}

/* Takes up to DF_MAX_MODULE entries that no thread has begun, and sets them BUSY at *level. With a
 * waiter, they are queued for the compile thread instead. *n_others counts the entries that are
 * queued or that other threads compile. The caller holds `lock`. */
static uint32_t tier_claim_entries(const df_wait *s, entry **jobs, df_opt *level,
                                   uint32_t *n_others)
{
    uint32_t n_jobs = 0;
    *n_others = 0;
    for (uint32_t i = 0; i < s->n && n_jobs < DF_MAX_MODULE; i++) {
        df_opt want;
        entry *const e = df_entry_of(s->execs[i]);
        if (!df_wait_level(s, i, &want)) continue;
        if (s->w && df_exec_state(&e->exec, want) == STATE_NONE) tier_enqueue_entry(s->t, e, want);
        const uint32_t state = df_exec_state(&e->exec, want);
        if (state == STATE_BUSY || state == STATE_QUEUED) ++*n_others;
        if (state != STATE_NONE || (n_jobs > 0 && want != *level)) continue;
        *level = want;
        set_state(&e->exec, want, STATE_BUSY);
        jobs[n_jobs++] = e;
    }
    return n_jobs;
}

/* The stack that tier_compile_entries() needs, without the compiler, which checks its own. */
#define COMPILE_STACK ((size_t)64 << 10)

typedef struct compile_call {
    df_tiers *t;
    entry *const *e;
    uint32_t n;
    df_opt level;
} compile_call;

static void tier_compile_callback(void *user)
{
    const compile_call *const c = user;
    tier_compile_entries(c->t, c->e, c->n, c->level);
}

/* Compiles on the thread of a caller, or on a new thread when the caller's stack is small. */
static void compile_for_caller(df_tiers *t, entry *const *e, uint32_t n, df_opt level)
{
    compile_call c = { t, e, n, level };
    if (df_os_call(COMPILE_STACK, tier_compile_callback, &c)) return;
    df_logf(t->log, compile, "no thread could be had to compile %u kernels in: interpreted", n);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < n; i++) tier_publish_code(e[i], level, NULL);
    t->stats.failed += n;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* Queues a part of the entries that need O2 code for the compile threads, when these are idle: two
 * threads compile 1.7 times as fast as one. Each entry goes to those who have less to do by then.
 * The caller holds `lock`. */
static void tier_share_entries(const df_wait *s)
{
    double here = 0, there = 0;
    if (s->t->n_pending > 0) return;
    for (uint32_t i = 0; i < s->n; i++) {
        df_opt want;
        entry *const e = df_entry_of(s->execs[i]);
        if (!df_wait_level(s, i, &want) || want != DF_OPT_O2) continue;
        if (df_exec_state(&e->exec, want) != STATE_NONE) continue;
        const double cost = O2_NS + O2_NS_PER_INS * e->kernel.n_ins;
        if (here * s->t->most_threads <= there) {
            here += cost;
        } else {
            there += cost;
            tier_enqueue_entry(s->t, e, want);
        }
    }
}

/* For the tiers O0 and O2: compiles the entries that no thread has begun, then waits for the
 * others. With a waiter, the compile thread compiles all of them. Returns false when the waiter
 * stopped the wait. */
static bool compile_now(df_tiers *t, void *const *execs, uint32_t n, df_waiter *w)
{
    entry *jobs[DF_MAX_MODULE];
    df_wait s = { .t = t, .w = w, .execs = execs, .n = n };
    bool goes_on = true;
    pthread_mutex_lock(&t->lock);
    df_wait_begin(&s);
    if (!w) tier_share_entries(&s);
    for (uint32_t n_jobs = 1, n_others = 1; goes_on && n_jobs + n_others > 0;) {
        df_opt level = DF_OPT_O0;
        n_jobs = tier_claim_entries(&s, jobs, &level, &n_others);
        if (n_jobs > 0) {
            pthread_mutex_unlock(&t->lock);
            compile_for_caller(t, jobs, n_jobs, level);
            pthread_mutex_lock(&t->lock);
        } else if (n_others > 0) {
            goes_on = df_wait_once(&s);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return goes_on;
}

deft_status df_tiers_attach(df_tiers *t, df_diag *d, df_plan *plan, df_waiter *w)
{
    deft_status st = DEFT_OK;
    bool waits = false;
    df_assert(!plan->execs);
    if (plan->n_kernels == 0) return DEFT_OK;
    df_tiers_check_fork(t);
    plan->execs = df_mem_zalloc(t->mem, sizeof *plan->execs * plan->n_kernels);
    if (!plan->execs) return df_fail_mem(d, "plan", sizeof *plan->execs * plan->n_kernels);

    pthread_mutex_lock(&t->lock);
    t->n_batches++;
    for (df_kern i = { 0 }; i.i < plan->n_kernels && st == DEFT_OK; i.i++) {
        entry *e = NULL;
        st = find_or_add(t, d, plan, i, &e);
        if (st != DEFT_OK) break;
        plan->execs[i.i] = &e->exec;
        forget_lost(t, e);
    }
    if (st == DEFT_OK) tier_recall(t, plan);
    for (uint32_t i = 0; i < plan->n_kernels && st == DEFT_OK; i++) {
        entry *const e = df_entry_of(plan->execs[i]);
        const df_tier tier = df_tier_for(t, &e->kernel);
        waits |= tier == DF_TIER_O0 || tier == DF_TIER_O2;
        if (tier == DF_TIER_AUTO && df_exec_state(&e->exec, DF_OPT_O0) == STATE_NONE &&
            df_exec_state(&e->exec, DF_OPT_O2) == STATE_NONE)
            tier_enqueue_entry(t, e, DF_OPT_O0);
    }
    pthread_mutex_unlock(&t->lock);
    if (st == DEFT_OK && waits && !compile_now(t, plan->execs, plan->n_kernels, w))
        st = df_fail(d, DEFT_E_INTERRUPTED, "interrupted while kernels were compiled");
    if (st != DEFT_OK) df_tiers_detach(t, plan);
    return st;
}

void df_tiers_detach(df_tiers *t, df_plan *plan)
{
    if (!plan->execs) return;
    df_variants_sweep(t);
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        df_counted *ref = plan->execs[i] ? &df_entry_of(plan->execs[i])->ref : NULL;
        df_counted_drop(&ref);
    }
    df_mem_free(t->mem, plan->execs, sizeof *plan->execs * plan->n_kernels);
    plan->execs = NULL;
}

/* ---- running ---- */

static const df_code *tier_wait_for_code(df_tiers *t, df_exec *x, df_opt level, df_waiter *w)
{
    void *const execs[1] = { x };
    df_wait s = { .t = t, .w = w, .execs = execs, .n = 1, .level = &level };
    pthread_mutex_lock(&t->lock);
    df_wait_begin(&s);
    for (bool goes_on = true; goes_on;) {
        const uint32_t state = df_exec_state(x, level);
        if (state != STATE_QUEUED && state != STATE_BUSY) break;
        goes_on = df_wait_once(&s);
    }
    pthread_mutex_unlock(&t->lock);
    return atomic_load_explicit(&x->code, memory_order_acquire);
}

/* Estimates how long it takes until the compiler can begin. */
static double start_ns(const df_tiers *t)
{
    return atomic_load_explicit(&t->has_started, memory_order_relaxed) ? 0 : START_NS;
}

/* Waits for O0 code when this is faster than interpreting. */
static const df_code *wait_or_interpret(df_tiers *t, df_exec *x, double elements, df_waiter *w)
{
    const double interp_ns = x->kernel->cost * elements * INTERP_NS_PER_OP;
    if (interp_ns < start_ns(t) + COMPILE_NS + COMPILE_NS_PER_INS * x->kernel->n_ins) return NULL;
    return tier_wait_for_code(t, x, DF_OPT_O0, w);
}

/* Returns true for a loop that ends sooner when it waits for O2 code than when it runs O0 code. */
static bool is_long_loop(df_tiers *t, const df_exec *x, double elements)
{
    const df_kernel *const k = x->kernel;
    if (k->mode != DF_MODE_LOOP || df_is_settled(df_exec_state(x, DF_OPT_O2))) return false;
    df_tiers_check_fork(t);
    if (df_tier_for(t, k) != DF_TIER_AUTO) return false;
    return k->cost * elements * LOOP_O0_NS_PER_OP > start_ns(t) + O2_NS + O2_NS_PER_INS * k->n_ins;
}

/* Notes the work of a launch, by which the queue for O2 code is ordered. */
static void note_work(df_tiers *t, df_exec *x, double elements)
{
    entry *const e = df_entry_of(x);
    pthread_mutex_lock(&t->lock);
    if (df_exec_state(x, DF_OPT_O2) == STATE_NONE) e->work = x->kernel->cost * elements;
    pthread_mutex_unlock(&t->lock);
}

/* Adds e to the queue for O2 code, unless it was there before. The caller holds `lock`. */
static void ask_for_o2(df_tiers *t, entry *e)
{
    forget_lost(t, e);
    if (df_exec_state(&e->exec, DF_OPT_O2) == STATE_NONE) tier_enqueue_entry(t, e, DF_OPT_O2);
}

/* Asks for O2 code of x, and of all kernels of its plan that have been launched. */
static void ask_for_plan(df_tiers *t, const df_plan *plan, const df_exec *x)
{
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        df_exec *const y = plan->execs[i];
        if (df_tier_for(t, y->kernel) != DF_TIER_AUTO) continue;
        if (y == x || atomic_load_explicit(&y->launches, memory_order_relaxed) > 0)
            ask_for_o2(t, df_entry_of(y));
    }
    pthread_mutex_unlock(&t->lock);
}

/* Notes that x, and all kernels of its plan that have been launched, shall have O2 code. The caller
 * holds `lock`. */
static void want_for_plan(df_tiers *t, const df_plan *plan, const df_exec *x)
{
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        df_exec *const y = plan->execs[i];
        if (df_tier_for(t, y->kernel) != DF_TIER_AUTO) continue;
        if (y == x || atomic_load_explicit(&y->launches, memory_order_relaxed) > 0)
            df_tier_want_o2(t, df_entry_of(y));
    }
}

/* Asks for O2 code of a loop whose launch waits for it: it is the next to be compiled. */
static void ask_for_loop(df_tiers *t, df_exec *x)
{
    entry *const e = df_entry_of(x);
    pthread_mutex_lock(&t->lock);
    if (df_exec_state(x, DF_OPT_O2) == STATE_NONE) e->work = MOST_WORK;
    ask_for_o2(t, e);
    pthread_mutex_unlock(&t->lock);
}

/* For a launch that finds no code in tier AUTO: asks for O0 code, and waits for it when this is
 * faster than interpreting. */
static const df_code *ask_for_o0(df_tiers *t, const df_plan *plan, df_exec *x, double elements,
                                 df_waiter *w)
{
    pthread_mutex_lock(&t->lock);
    entry *const e = df_entry_of(x);
    forget_lost(t, e);
    if (df_exec_state(x, DF_OPT_O0) == STATE_NONE) tier_enqueue_entry(t, e, DF_OPT_O0);
    if (atomic_load_explicit(&x->launches, memory_order_relaxed) >= LAUNCHES_FOR_O2 && !e->wants_o2)
        want_for_plan(t, plan, x);
    pthread_mutex_unlock(&t->lock);
    return wait_or_interpret(t, x, elements, w);
}

const df_code *df_tiers_code(df_tiers *t, const df_plan *plan, df_kern kernel, double elements,
                             df_waiter *w)
{
    df_exec *const x = plan->execs[kernel.i];
    const df_code *code = atomic_load_explicit(&x->code, memory_order_acquire);
    /* A count that gets lost between two threads does no harm. */
    const uint64_t launches = atomic_load_explicit(&x->launches, memory_order_relaxed) + 1;
    atomic_store_explicit(&x->launches, launches, memory_order_relaxed);
    if (is_long_loop(t, x, elements)) {
        ask_for_loop(t, x);
        return tier_wait_for_code(t, x, DF_OPT_O2, w);
    }
    if (t->tier != DF_TIER_AUTO || df_exec_state(x, DF_OPT_O2) != STATE_NONE) {
        if (code || t->tier != DF_TIER_AUTO) return code;
    }
    df_tiers_check_fork(t);
    if (df_tier_for(t, x->kernel) != DF_TIER_AUTO) return code;
    note_work(t, x, elements);
    if (!code) code = ask_for_o0(t, plan, x, elements, w);
    if (code && launches >= LAUNCHES_FOR_O2 && df_exec_state(x, DF_OPT_O2) == STATE_NONE)
        ask_for_plan(t, plan, x);
    return code;
}

void df_tiers_do(df_tiers *t, df_tier_job *j, bool now)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    if (j->state == DF_JOB_QUEUED && j->generation != t->generation) j->state = DF_JOB_NEW;
    const bool is_new = j->state == DF_JOB_NEW;
    const bool is_queued = is_new && !now && t->tier == DF_TIER_AUTO && df_tiers_need_thread(t);
    if (is_new) j->state = is_queued ? DF_JOB_QUEUED : DF_JOB_DONE;
    if (is_queued) {
        df_tier_job **at = &t->first_job;
        while (*at) at = &(*at)->next;
        *at = j;
        j->next = NULL;
        j->generation = t->generation;
        t->n_pending++;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    if (is_new && !is_queued) call_job(t, j);
}

void df_tiers_wait_idle(df_tiers *t)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    while (t->n_pending > 0) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

df_tier_stats df_tiers_read(df_tiers *t)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    df_tier_stats s = t->stats;
    pthread_mutex_unlock(&t->lock);
    s.evicted = df_cache_stats_get(t->store).evictions;
    return s;
}

void df_tiers_listen(df_tiers *t, df_listener *l)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    l->next = t->listeners;
    t->listeners = l;
    pthread_mutex_unlock(&t->lock);
}

void df_tiers_unlisten(df_tiers *t, df_listener *l)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    for (df_listener **at = &t->listeners; *at; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    pthread_mutex_unlock(&t->lock);
}

void df_tiers_log(df_tiers *t, const df_event *e)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    df_tiers_hear(t, e);
    pthread_mutex_unlock(&t->lock);
    df_event_log(t->log, e);
}

bool df_tiers_event(df_tiers *t, const df_listener *l, uint64_t *seen, uint64_t *n_dropped,
                    df_event *out)
{
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    const bool found = df_events_next(&l->events, seen, n_dropped, out);
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* ---- life ---- */

static uint32_t variants_after(df_tier tier, uint32_t asked)
{
    if (asked == UINT32_MAX || tier == DF_TIER_INTERP || tier == DF_TIER_O0) return 0;
    return asked ? asked : tier == DF_TIER_AUTO ? DF_VARIANT_AFTER : 0;
}

deft_status df_tiers_create(df_diag *d, const df_mem *mem, const df_log *log, const df_compiler *c,
                            df_tier tier, uint64_t max_bytes, uint32_t variant_after,
                            df_tiers **out)
{
    df_tiers *const t = df_mem_zalloc(mem, sizeof *t);
    if (!t) return df_fail_mem(d, "kernel cache", sizeof *t);
    const df_cache_options o = { .max_bytes = max_bytes };
    t->mem = mem;
    t->log = log;
    t->compiler = tier == DF_TIER_INTERP ? NULL : c;
    t->tier = t->compiler ? tier : DF_TIER_INTERP;
    atomic_init(&t->has_started, t->compiler && !t->compiler->start);
    if (df_cache_create(mem, &o, &t->store) != DEFT_OK) {
        df_mem_free(mem, t, sizeof *t);
        return df_fail_mem(d, "kernel cache", 0);
    }
    t->max_bytes = max_bytes;
    t->variant_after = variants_after(t->tier, variant_after);
    t->most_threads = 1;
    pthread_mutex_init(&t->variant_lock, NULL);
    pthread_mutex_init(&t->lock, NULL); /* on Linux these only fill in fields */
    df_os_cond_init(&t->changed);
    df_fork_detector_init(&t->mark);
    *out = t;
    return DEFT_OK;
}

void df_tiers_name(df_tiers *t, df_naming *n)
{
    t->naming = n;
}

void df_tiers_widen(df_tiers *t, uint32_t n_threads)
{
    t->most_threads = n_threads < 2                        ? 1
                      : n_threads < DF_MAX_COMPILE_THREADS ? n_threads
                                                           : DF_MAX_COMPILE_THREADS;
}

void df_tiers_destroy(df_tiers **out)
{
    df_tiers *const t = *out;
    if (!t) return;
    *out = NULL;
    df_tiers_check_fork(t);
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->n_threads; i++) pthread_join(t->thread[i], NULL);
    for (df_opt level = DF_OPT_O0; level <= DF_OPT_O2; level++)
        for (entry *e = t->queue[level].head, *next; e; e = next) {
            df_counted *ref = &e->ref;
            next = e->next[level];
            df_counted_drop(&ref);
        }
    for (entry *e; (e = df_variant_take(t)) != NULL || (e = df_tier_take_idle(t)) != NULL;) {
        df_counted *ref = &e->ref;
        df_counted_drop(&ref);
    }
    df_cache_destroy(&t->store);
    pthread_mutex_destroy(&t->variant_lock);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    df_fork_detector_finish(&t->mark);
    df_mem_free(t->mem, t, sizeof *t);
}
