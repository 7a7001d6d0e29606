/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel cache and its tiers. A kernel is looked up by its canonical bytes; a new one can be
 * run by the interpreter at once, while O0 and then O2 code arrive from the compile thread.
 * Publication is one atomic pointer per tier. Timing never changes a result: all tiers give equal
 * bits.
 */
#ifndef DF_RUNTIME_TIER_H
#define DF_RUNTIME_TIER_H

#include "guards/reason.h"
#include "runtime/variant.h"
#include "runtime/waiter.h"

typedef enum df_tier {
    DF_TIER_AUTO,   /* interpreter or O0 at once, O2 in the background */
    DF_TIER_INTERP, /* never compile */
    DF_TIER_O0,     /* compile at O0, wait */
    DF_TIER_O2      /* compile at O2, wait */
} df_tier;

typedef struct df_variant df_variant;
enum { DF_VARIANTS = 2 }; /* live ones of a kernel */

typedef struct df_exec {
    const df_kernel *kernel; /* owned copy, as cached */
    _Atomic(df_code *) code; /* best general code so far; NULL: interpret */
    _Atomic uint32_t state;  /* tier.c's own, as is the count of references */
    _Atomic uint64_t launches;

    /* tier_variant.c's own */
    bool may_vary;
    _Atomic(df_variant *) variant[DF_VARIANTS];
    _Atomic uint32_t n_variants; /* made so far */
    df_number_slots numbers;     /* what may be worth a variant at all */
    _Atomic uint64_t given_up;   /* slots whose number changed under a variant */
    df_watch watch;
} df_exec;

typedef struct df_tiers df_tiers;
struct df_naming;

/* The hash of its canonical bytes, in hex: how the structured log names a kernel. */
enum { DF_KERNEL_NAME = 33 };
void df_kernel_name(const df_kernel *k, char name[DF_KERNEL_NAME]);

typedef struct df_tier_stats {
    uint64_t kernels, hits, compiled, compile_ns, failed, evicted;
    uint64_t variants, variants_dropped; /* made: also in compiled */
} df_tier_stats;

/* compiler NULL: everything is interpreted. Calls to it are made from the compile thread and, in
 * waiting tiers, from the caller. variant_after: launches alike that a variant takes; 0:
 * DF_VARIANT_AFTER in AUTO, none in other tiers; UINT32_MAX: none. O2 waits for them. */
deft_status df_tiers_create(df_diag *d, const df_mem *mem, const df_log *log, const df_compiler *c,
                            df_tier tier, uint64_t max_bytes, uint32_t variant_after,
                            df_tiers **out);
/* Code that is compiled from now on is given names; n is borrowed. Before the first plan. */
void df_tiers_name(df_tiers *t, struct df_naming *n);
void df_tiers_destroy(df_tiers **t); /* stops the compile thread first */

/* Starts the compiler, when nobody has. false: there is none, or it cannot be started, which is
 * logged once; kernels are then interpreted. Without locks. */
bool df_tiers_start(df_tiers *t);

/* One counted exec per kernel of the plan into plan->execs. With a waiter (NULL: none) even waiting
 * tiers leave compiling to the thread, if one is to be had; stopped, that goes on by itself, and
 * this fails with DEFT_E_INTERRUPTED. */
deft_status df_tiers_attach(df_tiers *t, df_diag *d, df_plan *plan, df_waiter *w);
void df_tiers_detach(df_tiers *t, df_plan *plan);

/* Called before a kernel runs over `elements`: may decide that waiting for the compiler beats
 * interpreting; w as above, and stopped ends the waiting only. Returns the code to run, NULL to
 * interpret. */
const df_code *df_tiers_code(df_tiers *t, df_exec *e, double elements, df_waiter *w);

/* The code for a launch of e, whose general code is `general`: that, or a variant's. A run that was
 * given a variant is *is_inside, and leaves when it has ended. */
const df_code *df_tiers_choose(df_tiers *t, df_exec *e, const df_code *general, const df_call *c,
                               bool *is_inside);
void df_tiers_leave(df_tiers *t);

/* Blocks until nothing is queued (tests, benches). */
void df_tiers_wait_idle(df_tiers *t);
df_tier_stats df_tiers_read(df_tiers *t);

/* Who asked for kernels hears what became of them. Embedded in its owner; zero but for owner. */
typedef struct df_listener {
    uint32_t owner;   /* df_plan.owner of its plans */
    df_events events; /* guarded by the tiers' lock */
    struct df_listener *next;
} df_listener;

void df_tiers_listen(df_tiers *t, df_listener *l);
void df_tiers_unlisten(df_tiers *t, df_listener *l); /* fine when it does not listen */
/* Tells the event's owner, when it still listens, and the log. Any thread. */
void df_tiers_log(df_tiers *t, const df_event *e);
/* The event after *seen, which moves on; false when there is none. *n_dropped grows by those that
 * the ring lost in between. */
bool df_tiers_event(df_tiers *t, const df_listener *l, uint64_t *seen, uint64_t *n_dropped,
                    df_event *out);

#endif
