/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel cache and its tiers.
 *
 * A kernel is looked up by its canonical bytes. The interpreter can run a new kernel at once. The
 * compile thread then makes O0 code and later O2 code, and publishes each by one atomic pointer.
 * Timing never changes a result: in strict mode all tiers give equal bits, and in fast mode the
 * tier does not depend on time.
 *
 * Any thread may call all functions, except create, name and destroy.
 */
#ifndef DF_RUNTIME_TIER_H
#define DF_RUNTIME_TIER_H

#include "guards/reason.h"
#include "runtime/variant.h"
#include "runtime/waiter.h"

typedef enum df_tier {
    DF_TIER_AUTO,   /* run by interpreter or O0 at once, compile at O2 in the background */
    DF_TIER_INTERP, /* never compile */
    DF_TIER_O0,     /* compile at O0, and wait for the code */
    DF_TIER_O2      /* compile at O2, and wait for the code */
} df_tier;

typedef struct df_variant df_variant;
enum { DF_VARIANTS = 2 }; /* live variants that a kernel has at most */

/* The executable form of one kernel, in the cache. */
typedef struct df_exec {
    const df_kernel *kernel; /* a copy that the cache owns */
    _Atomic(df_code *) code; /* best general code so far; NULL: interpret */
    _Atomic uint32_t state;  /* for tier.c only */
    _Atomic uint64_t launches;

    /* The rest is for tier_choose.c and tier_variant.c only. */
    bool may_vary; /* this kernel can have variants */
    _Atomic(df_variant *) variant[DF_VARIANTS];
    _Atomic uint32_t n_variants; /* variants that were made so far */
    df_number_slots numbers;     /* number slots that can be worth a variant */
    _Atomic uint64_t given_up;   /* bit i: slot i changed while a variant relied on it */
    df_watch watch;
} df_exec;

typedef struct df_tiers df_tiers;
struct df_naming;

/* Writes the name of a kernel in the structured log: the hash of its canonical bytes, in hex. */
enum { DF_KERNEL_NAME = 33 };
void df_kernel_name(const df_kernel *k, char name[DF_KERNEL_NAME]);

typedef struct df_tier_stats {
    uint64_t kernels, hits, compiled, compile_ns, failed, evicted;
    uint64_t variants, variants_dropped; /* `compiled` includes variants */
} df_tier_stats;

/* Creates the kernel cache.
 *
 * c is borrowed. c NULL: every kernel is interpreted. The compiler is called on the compile thread
 * and, in the tiers O0 and O2, on threads that wait. max_bytes bounds the code in the cache.
 *
 * variant_after is how many launches in a row must be alike before a variant is made. 0 means
 * DF_VARIANT_AFTER in AUTO, and no variants in other tiers. UINT32_MAX means no variants. In tier
 * O2 the launch that asks for a variant waits for it. */
deft_status df_tiers_create(df_diag *d, const df_mem *mem, const df_log *log, const df_compiler *c,
                            df_tier tier, uint64_t max_bytes, uint32_t variant_after,
                            df_tiers **out);
/* From now on, code that is compiled gets names. To be called before the first plan. n is borrowed,
 * and may be NULL. */
void df_tiers_name(df_tiers *t, struct df_naming *n);
void df_tiers_destroy(df_tiers **t); /* stops the compile thread first; *t may be NULL */

/* Starts the compiler when it has not started. Returns false when there is no compiler or it cannot
 * be started, which is logged once. Kernels are then interpreted. The caller must hold no lock of
 * the tiers. */
bool df_tiers_start(df_tiers *t);

/* Finds or adds the entry of each kernel of the plan. plan->execs gets a counted reference to each.
 *
 * In the tiers O0 and O2 the call returns when all kernels are compiled. With a waiter, the compile
 * thread compiles them, if that thread can be started; w NULL: the caller compiles. When the waiter
 * stops the wait, compilation continues, and the call fails with DEFT_E_INTERRUPTED. */
deft_status df_tiers_attach(df_tiers *t, df_diag *d, df_plan *plan, df_waiter *w);
/* Drops the references of plan->execs, which may be NULL and is NULL afterwards. */
void df_tiers_detach(df_tiers *t, df_plan *plan);

/* Returns the general code to run a kernel with, or NULL to interpret. To be called before the
 * kernel runs. `elements` is the work of this launch. The call may decide to wait for the compiler,
 * when this is quicker than running what exists. w may be NULL; a waiter that stops ends only the
 * wait. */
const df_code *df_tiers_code(df_tiers *t, df_exec *e, double elements, df_waiter *w);

/* Returns the code for a launch of e: `general`, or the code of a variant whose facts hold. Counts
 * the launch, and may ask for a new variant. `*is_inside` belongs to the run and is false at its
 * start. When it is true at the end of the run, the run must call df_tiers_leave once. Until
 * then no variant is freed. */
const df_code *df_tiers_choose(df_tiers *t, df_exec *e, const df_code *general, const df_call *c,
                               bool *is_inside);
void df_tiers_leave(df_tiers *t);

/* Waits until no compilation is queued or in progress. For tests and benchmarks. */
void df_tiers_wait_idle(df_tiers *t);
df_tier_stats df_tiers_read(df_tiers *t);

/* Receives the events about the kernels of one owner of plans. The owner embeds it, and sets all
 * members but `owner` to zero. */
typedef struct df_listener {
    uint32_t owner;   /* df_plan.owner of its plans */
    df_events events; /* guarded by the lock of the tiers */
    struct df_listener *next;
} df_listener;

void df_tiers_listen(df_tiers *t, df_listener *l);
void df_tiers_unlisten(df_tiers *t, df_listener *l); /* l need not be listening */
/* Adds an event to the listener of its owner, when there is one, and writes it to the log. */
void df_tiers_log(df_tiers *t, const df_event *e);
/* Copies the event after *seen to *out, and advances *seen. Returns false when there is none. Adds
 * the number of events that the ring has lost in between to *n_dropped. */
bool df_tiers_event(df_tiers *t, const df_listener *l, uint64_t *seen, uint64_t *n_dropped,
                    df_event *out);

#endif
