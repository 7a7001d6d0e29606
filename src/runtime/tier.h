/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel cache and its tiers.
 *
 * A kernel is looked up by its canonical bytes. The interpreter can run a new kernel at once. The
 * compile threads then make O0 code and later O2 code, and publish each by one atomic pointer.
 * Timing never changes a result. In strict mode all tiers give equal bits. A kernel in fast mode
 * (DF_KERNEL_FAST) always waits for O2 code, unless the tier is INTERP or O0.
 *
 * Any thread may call all functions. df_tiers_create, df_tiers_name, df_tiers_widen and
 * df_tiers_destroy must not run while another thread uses the same tiers.
 */
#ifndef DF_RUNTIME_TIER_H
#define DF_RUNTIME_TIER_H

#include "guards/reason.h"
#include "runtime/variant.h"
#include "runtime/waiter.h"

typedef enum df_tier {
    /* Interpret or run O0 code first, and compile at O2 in the background. A launch waits for code
     * when that is quicker (df_tiers_code). Kernels in fast mode are compiled as in DF_TIER_O2. */
    DF_TIER_AUTO,
    DF_TIER_INTERP, /* never compile */
    DF_TIER_O0,     /* compile at O0, and wait for the code */
    DF_TIER_O2      /* compile at O2, and wait for the code */
} df_tier;

/* A variant of a kernel: code that is correct only for launches with certain facts, for example
 * known extents (df_variant_kind). */
typedef struct df_variant df_variant;
enum { DF_VARIANTS = 2 }; /* live variants that a kernel has at most */

/* The executable form of one kernel, in the cache. */
typedef struct df_exec {
    const df_kernel *kernel;   /* a copy that the cache owns */
    _Atomic(df_code *) code;   /* best general code so far; NULL: interpret */
    _Atomic uint32_t state;    /* only for the files in tiers/; tier_store.h explains it */
    _Atomic uint64_t launches; /* so far; a few may be missing when several threads count */

    /* Apart from tier.c, which initializes them, only tier_choose.c and tier_variant.c use
     * these. */
    bool may_vary; /* this kernel can have variants */
    _Atomic(df_variant *) variant[DF_VARIANTS];
    _Atomic uint32_t
        n_variants; /* variants that were requested so far; DF_MAX_VARIANTS after a failure */
    df_number_slots numbers;   /* slots that hold divisors; known divisors make better code */
    _Atomic uint64_t given_up; /* bit i: slot i changed while a variant relied on it */
    df_watch watch;            /* counts how many launches in a row were alike (variant.h) */
} df_exec;

typedef struct df_tiers df_tiers; /* the kernel cache with its compile threads */
struct df_naming;                 /* names of code for profilers and debuggers (naming.h) */

/* Writes the name of a kernel in the structured log: the hash of its canonical bytes, in hex. */
enum { DF_KERNEL_NAME = 33 };
void df_kernel_name(const df_kernel *k, char name[DF_KERNEL_NAME]);

/* Counts since df_tiers_create. */
typedef struct df_tier_stats {
    uint64_t kernels;          /* entries created */
    uint64_t hits;             /* kernels of plans that had an entry */
    uint64_t compiled;         /* codes that were made: one per level of a kernel, and variants */
    uint64_t loaded;           /* codes that an earlier process had kept */
    uint64_t compile_ns;       /* time of all compilations */
    uint64_t failed;           /* kernels and variants that the compiler failed to compile */
    uint64_t evicted;          /* entries that left the cache */
    uint64_t variants;         /* variants that were made */
    uint64_t variants_dropped; /* variants whose facts did not hold any more */
} df_tier_stats;

/* Creates the kernel cache.
 *
 * mem, log and c are borrowed until df_tiers_destroy. With c NULL every kernel is interpreted. The
 * compiler is called on compile threads. It is also called by df_tiers_attach without a waiter,
 * and in tier O2 by the launch that asks for a variant. The code in the cache is bounded by
 * max_bytes. With 0, general code is not bounded, and no variant is kept.
 *
 * variant_after is how many launches in a row must be alike before the first variant is made. Each
 * further variant of a kernel needs twice as many. A variant for numbers needs DF_NUMBERS_FACTOR
 * times as many. 0 means DF_VARIANT_AFTER in AUTO, and no variants in O2. UINT32_MAX means no
 * variants. The tiers INTERP and O0 never make variants. */
deft_status df_tiers_create(df_diag *d, const df_mem *mem, const df_log *log, const df_compiler *c,
                            df_tier tier, uint64_t max_bytes, uint32_t variant_after,
                            df_tiers **out);
/* From now on, code that is compiled gets names. Must be called before the first plan is attached.
 * n is borrowed. With n NULL, code gets no names. */
void df_tiers_name(df_tiers *t, struct df_naming *n);
/* Permits up to n_threads compile threads, at most DF_MAX_COMPILE_THREADS. They start when there is
 * work for them. Without this call there is one. */
void df_tiers_widen(df_tiers *t, uint32_t n_threads);
/* Stops the compile threads first. All plans must have been detached, and no thread may be in a
 * call. *t may be NULL, and is NULL afterwards. */
void df_tiers_destroy(df_tiers **t);

/* Starts the compiler when it has not started. Returns false when there is no compiler or it cannot
 * be started, which is logged once. Kernels are then interpreted. The caller must hold no lock of
 * the tiers. */
bool df_tiers_start(df_tiers *t);

/* Finds or adds the entry of each kernel of the plan. plan->execs gets a counted reference to each.
 * It must be NULL before, and is NULL after a failure.
 *
 * In the tiers O0 and O2, and in AUTO for kernels in fast mode, the call returns when these kernels
 * are compiled. A kernel that cannot be compiled is interpreted, and the call succeeds.
 *
 * With a waiter, the compile threads compile, if one can be started. With w NULL the caller
 * compiles, on a new thread when its own stack is too small. For O2 code, the compile threads
 * then take a part when they are idle. When the waiter stops the wait,
 * compilation continues, and the call fails with DEFT_E_INTERRUPTED. */
deft_status df_tiers_attach(df_tiers *t, df_diag *d, df_plan *plan, df_waiter *w);
/* Drops the references of plan->execs, which may be NULL and is NULL afterwards. */
void df_tiers_detach(df_tiers *t, df_plan *plan);

/* Returns the general code to run a kernel of the plan with, or NULL to interpret. Must be called
 * before the kernel runs, and counts the launch. The code is valid while the caller holds the
 * reference of plan->execs.
 *
 * `elements` is the work of this launch. In AUTO the call waits for O0 code when interpreting would
 * take longer, and a long LOOP waits for O2 code. w may be NULL. A waiter that stops ends only the
 * wait. The second launch asks for O2 code, for all kernels of the plan that have been launched.
 * Those with the most work are compiled first. When the second launch finds no code, the O2 code is
 * made by a thread that has nothing else to do, and only if it is kept for later processes. */
const df_code *df_tiers_code(df_tiers *t, const df_plan *plan, df_kern kernel, double elements,
                             df_waiter *w);

/* Returns the code for a launch of e: `general`, or the code of a variant whose facts hold.
 * `general` is the result of df_tiers_code and must not be NULL. The call compares the launch with
 * those before, and may ask for a new variant. In tier O2 it then waits for the variant.
 *
 * `*is_inside` belongs to the run and is false at its start. When it is true at the end of the run,
 * the run must call df_tiers_leave once. Until then the variants of a living entry are not
 * freed. */
const df_code *df_tiers_choose(df_tiers *t, df_exec *e, const df_code *general, const df_call *c,
                               bool *is_inside);
void df_tiers_leave(df_tiers *t);

/* Counts a launch of e that is interpreted, as df_tiers_choose counts others, and may ask for a
 * variant. `c` is what code would be called with, and the time that code would take. `*is_inside`
 * is that of df_tiers_choose. */
void df_tiers_watch(df_tiers *t, df_exec *e, const df_call *c, bool *is_inside);

/* Work for a compile thread that is not a kernel. The owner embeds it and sets `run`, `user`, and
 * all other members to zero. It must live until df_tiers_destroy. */
typedef struct df_tier_job {
    void (*run)(void *user);
    void *user;
    enum { DF_JOB_NEW, DF_JOB_QUEUED, DF_JOB_DONE } state; /* guarded by the lock of the tiers */
    uint32_t generation;                                   /* of the tiers when it was queued */
    struct df_tier_job *next;
} df_tier_job;

/* Runs j->run once. In tier AUTO a compile thread runs it, after the kernels that need O0 code
 * and before those that need O2 code. In the other tiers, when `now` is true, and when there is no
 * compile thread, the caller runs it before the call returns. Later calls with the same job do
 * nothing. In a forked child, a job that the parent did not finish counts as new. */
void df_tiers_do(df_tiers *t, df_tier_job *j, bool now);

/* Waits until the compile threads have nothing to do. Callers may still compile. For tests and
 * benchmarks. */
void df_tiers_wait_idle(df_tiers *t);
/* Returns the statistics so far. */
df_tier_stats df_tiers_read(df_tiers *t);

/* Receives the events about the kernels of one owner of plans. The owner embeds it, and sets all
 * members but `owner` to zero. */
typedef struct df_listener {
    uint32_t owner;           /* df_plan.owner of its plans */
    df_events events;         /* guarded by the lock of the tiers */
    struct df_listener *next; /* in the list of the tiers */
} df_listener;

/* l must not be moved or freed before df_tiers_unlisten. */
void df_tiers_listen(df_tiers *t, df_listener *l);
void df_tiers_unlisten(df_tiers *t, df_listener *l); /* l need not be listening */
/* Adds a copy of e to the listener of its owner, when there is one, and writes e to the log. */
void df_tiers_log(df_tiers *t, const df_event *e);
/* Copies the event after *seen to *out, and advances *seen. *seen is 0 before the first call.
 * Returns false when there is no such event. Adds the number of events that were overwritten in
 * between to *n_dropped. */
bool df_tiers_event(df_tiers *t, const df_listener *l, uint64_t *seen, uint64_t *n_dropped,
                    df_event *out);

#endif
