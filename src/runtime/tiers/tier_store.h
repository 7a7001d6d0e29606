/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the tiers: what tier.c (general code) and tier_variant.c (variants) share.
 */
#ifndef DF_RUNTIME_TIER_STORE_H
#define DF_RUNTIME_TIER_STORE_H

#include <pthread.h>

#include "base/counted.h"
#include "base/fork.h"
#include "cache/cache.h"
#include "runtime/naming.h"
#include "runtime/tier.h"

/* How df_exec.state reads: one of these per level, O2's shifted by STATE_BITS. */
enum { STATE_NONE, STATE_QUEUED, STATE_BUSY, STATE_DONE, STATE_FAILED, STATE_BITS = 8 };

/* The upper bits of df_tiers.inside number the runs. */
enum { INSIDE_BITS = 20 };

typedef struct entry entry;

/* The members that each launch reads come first and lie together. */
struct df_variant {
    df_code code;
    _Atomic uint64_t used;     /* clock */
    _Atomic uint32_t n_missed; /* launches in a row of which its facts did not hold */
    df_variant_kind kind;
    df_facts facts;
    entry *of;
    size_t bytes;
    uint32_t generation;     /* of tiers: in a forked child older ones are on no list */
    uint32_t n_launches;     /* alike, before it was made */
    struct df_variant *next; /* live or retired */
};

struct entry {
    df_counted ref;
    df_exec exec;
    df_kernel kernel;
    df_tiers *tiers;
    void *storage; /* the kernel's arrays and key */
    size_t storage_size;
    df_code code[2]; /* by df_opt */
    bool has_code[2];
    struct entry *next[2]; /* in the queue of a level */
    uint64_t batch;        /* number of the plan it came with */
    uint32_t generation;   /* of tiers, when last queued */

    /* Variants. One is made at a time: `wish` until it is there. */
    df_variant *wish;
    struct entry *next_wish; /* in the queue of wishes */

    /* The plan that it was made for, for explanations. */
    uintptr_t site, plan_site;
    uint32_t owner, plan_number;
    char ops[128];
};

struct df_tiers {
    const df_mem *mem;
    const df_log *log;
    const df_compiler *compiler; /* NULL: none, or lost in a fork */
    df_naming *naming;           /* NULL: nobody asked for names. The device's */
    df_tier tier;
    df_cache *store;
    uint64_t max_bytes;     /* of the store and of variants */
    uint32_t variant_after; /* launches alike; 0: no variants */
    df_fork_detector mark;
    _Atomic bool has_started; /* the compiler */
    _Atomic bool is_refused;  /* it could not be started: kernels are interpreted */
    _Atomic uint32_t n_in_compiler;
    _Atomic uint64_t inside; /* runs that may be in a variant; above INSIDE_BITS: so far */
    pthread_mutex_t lock;    /* guards all below, and states and links of entries */
    pthread_cond_t changed;
    entry *head[2], *tail[2];
    entry *first_wish, *last_wish;
    uint32_t n_pending;  /* queued or being compiled by the thread */
    uint32_t generation; /* grows in a forked child */
    uint64_t n_batches;
    pthread_t thread;
    bool has_thread, stop, failure_told;
    df_tier_stats stats;
    df_listener *listeners;

    pthread_mutex_t
        variant_lock;       /* guards the rest and exec.variant; taken inside `lock`, if both */
    df_variant *variants;   /* live ones */
    df_variant *retired;    /* cannot be found any more, but a run may be in them */
    uint64_t variant_bytes; /* of live ones */
};

static inline entry *df_entry_of(df_exec *e)
{
    return (entry *)(void *)((char *)e - offsetof(entry, exec));
}

DF_INLINE uint32_t df_exec_state(const df_exec *e, df_opt level)
{
    return atomic_load_explicit(&e->state, memory_order_acquire) >> (level * STATE_BITS) & 0xFF;
}

DF_INLINE bool df_is_settled(uint32_t state)
{
    return state == STATE_DONE || state == STATE_FAILED;
}

/* The tier that decides for kernel k. */
DF_INLINE df_tier df_tier_for(const df_tiers *t, const df_kernel *k)
{
    if (!t->compiler || atomic_load_explicit(&t->is_refused, memory_order_relaxed))
        return DF_TIER_INTERP;
    if (t->tier == DF_TIER_AUTO && (k->flags & DF_KERNEL_FAST)) return DF_TIER_O2;
    return t->tier;
}

/* ---- tier_wait.c ---- */

/* What one wait is for: kernels, and the level of each. */
typedef struct df_wait {
    df_tiers *t;
    df_waiter *w; /* NULL: nobody asks */
    void *const *execs;
    uint32_t n;
    const df_opt *level; /* of all; NULL: as the tier of each decides */
    uint64_t begun_ns, told_ns;
    uint32_t n_asked; /* of n, not settled when it began */
} df_wait;

/* The level that the i-th kernel is waited for at; false: it is not. */
bool df_wait_level(const df_wait *s, uint32_t i, df_opt *level);
/* Under the lock: once, first. */
void df_wait_begin(df_wait *s);
/* Under the lock, which is given away meanwhile: sleeps until something changed. false: no longer,
 * by the waiter's wish. */
bool df_wait_once(df_wait *s);

/* ---- tier.c ---- */

void df_tiers_check_fork(df_tiers *t);
/* Under the lock: the compile thread, made when there is none yet; false: it cannot be had. */
bool df_tiers_need_thread(df_tiers *t);
/* ---- tier_code.c ---- */

/* Gives the code that the compiler made for e a name for profilers and debuggers. Called before any
 * run may enter the code. `mark` is df_code_about.mark. */
void df_code_show(df_tiers *t, const entry *e, const char *mark, df_code *code);
/* Returns code to the compiler. No run may be inside. */
void df_code_release(df_tiers *t, df_code *code);
/* Adds e to the events of the contexts that listen. The caller holds `lock`. */
void df_tiers_hear(df_tiers *t, const df_event *e);

/* ---- tier_notes.c ---- */

typedef struct df_kernel_notes {
    const char *tier;  /* "O0", "O2", "variant" */
    const char *facts; /* of a variant, else NULL */
    const char *error; /* read when it was not compiled */
    bool compiled;
    uint64_t code_bytes, compile_ns; /* ns: of the whole module */
    uint32_t n_in_module;
} df_kernel_notes;

/* What became of e, for the structured log. In the compiler's thread, or a caller who waits for it;
 * without the lock. */
void df_tier_log(df_tiers *t, entry *e, const df_kernel_notes *told);

/* ---- tier_variant.c ---- */

/* Under the lock: the next entry with a wish; keeps the queue's reference. NULL: none. */
entry *df_variant_take(df_tiers *t);
void df_variant_make(df_tiers *t, entry *e); /* compiles e's wish. Without the lock */
/* Drops variants, least recently used first, until `size` more bytes of general code fit or none is
 * left. */
void df_variants_make_room(df_tiers *t, size_t size);
void df_variants_sweep(df_tiers *t);            /* frees what no run can be in any more */
void df_variants_finish(df_tiers *t, entry *e); /* e dies: nobody runs it */
/* Frees v and its code at once. NULL is ignored. No run may be inside v. */
void df_variant_destroy(df_tiers *t, df_variant *v);
/* Takes v away from its kernel. v is freed later, when no run is inside. The caller holds
 * variant_lock. */
void df_variant_retire(df_tiers *t, df_variant *v);
/* Whether a launch can still find v. */
bool df_variant_is_live(const df_variant *v);
/* Fills in an event about v. `expected` and `found` are copied. */
void df_variant_event(df_event *out, const df_variant *v, df_reason reason, const char *expected,
                      const char *found);

#endif
