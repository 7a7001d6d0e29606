/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the tiers: the types that all their files share.
 *
 *   tier.c           the kernel cache; general code; the compile threads
 *   tier_queue.c     the order in which they take kernels
 *   tier_choose.c    the choice between general code and variants, per launch
 *   tier_variant.c   making and freeing variants
 *   tier_wait.c      waiting for the compiler
 *   tier_code.c      functions for both kinds of code
 *   tier_notes.c     kernels in the structured log
 */
#ifndef DF_RUNTIME_TIER_STORE_H
#define DF_RUNTIME_TIER_STORE_H

#include <pthread.h>

#include "base/counted.h"
#include "base/fork.h"
#include "cache/cache.h"
#include "runtime/naming.h"
#include "runtime/tier.h"

/* df_exec.state holds one state per level. That of O0 is in the low STATE_BITS bits, that of O2 in
 * the next ones. QUEUED: waits for the compile thread. BUSY: is being compiled. */
enum { STATE_NONE, STATE_QUEUED, STATE_BUSY, STATE_DONE, STATE_FAILED, STATE_BITS = 8 };

/* df_tiers.inside: the low INSIDE_BITS bits count the runs that are inside now, the upper bits the
 * runs so far. */
enum { INSIDE_BITS = 20 };

typedef struct entry entry;

/* A variant, live or retired. The members that each launch reads come first. */
struct df_variant {
    df_code code;
    _Atomic uint64_t used;     /* number of the run that used it last */
    _Atomic uint32_t n_missed; /* launches in a row of which its facts did not hold */
    df_variant_kind kind;
    df_facts facts;
    entry *of;
    size_t bytes;            /* of its code and of this struct */
    uint32_t generation;     /* df_tiers.generation when it was made; older ones are on no list */
    uint32_t n_launches;     /* alike launches after which it was made */
    struct df_variant *next; /* in the list of live or of retired variants */
};

/* One kernel in the cache. */

struct entry {
    df_counted ref;
    df_exec exec;
    df_kernel kernel;
    df_tiers *tiers;
    void *storage; /* the kernel's arrays and key */
    size_t storage_size;
    df_code code[2]; /* by df_opt */
    bool has_code[2];
    bool was_sought;         /* kept code was looked for */
    bool wants_o2;           /* it was launched often enough for O2 code, before it had any code */
    struct entry *next[2];   /* in the queue of a level */
    struct entry *next_idle; /* in the queue of idle compile threads */
    double work;             /* instructions times elements of the last launch before O2 code was
                            * asked for; 0: not launched */
    uint64_t batch;          /* number of the df_tiers_attach that created it */
    uint32_t generation;     /* df_tiers.generation when it was queued last */

    /* The variant that is requested or being compiled. There is one at a time. NULL: none. */
    df_variant *wish;
    struct entry *next_wish; /* in the queue of wishes */

    /* The plan for which it was created; for explanations. */
    uintptr_t site, plan_site;
    uint32_t owner, plan_number;
    char ops[128];
};

/* Threads share the kernels that wait for code. A module with fewer kernels than DF_LEAST_MODULE
 * would save less time than it costs, so such a part is not divided. */
enum { DF_LEAST_MODULE = 4, DF_MAX_MODULE = 16, DF_MAX_COMPILE_THREADS = 4 };

/* Kernels that wait for the compile threads at one level, in the order of tier_queue.c. */
typedef struct df_tier_queue {
    entry *head, *tail;
    uint32_t n;
} df_tier_queue;

struct df_tiers {
    const df_mem *mem;
    const df_log *log;
    const df_compiler *compiler; /* NULL: none, or unusable after a fork */
    df_naming *naming;           /* borrowed; NULL: code gets no names */
    df_tier tier;
    df_cache *store;
    uint64_t max_bytes;     /* bound on the store and the variants together */
    uint32_t variant_after; /* alike launches before a variant is made; 0: no variants */
    df_fork_detector mark;
    _Atomic bool has_started;       /* the compiler has started */
    _Atomic bool is_refused;        /* the compiler cannot be started: kernels are interpreted */
    _Atomic uint32_t n_in_compiler; /* threads that are in a call of the compiler */
    _Atomic uint64_t inside;        /* see INSIDE_BITS */
    pthread_mutex_t lock;           /* guards all below, and states and links of entries */
    pthread_cond_t changed;         /* signalled after every change of a state or queue */
    df_tier_queue queue[2];         /* of each level */
    df_tier_job *first_job;         /* the queue of jobs: a few at most, the latest one last */
    entry *first_wish, *last_wish;  /* the queue of variants */
    entry *first_idle, *last_idle;  /* kernels that get O2 code when nothing else is to be made */
    uint32_t n_pending;             /* jobs of the compile threads, queued or in progress */
    uint32_t generation;            /* incremented in a forked child */
    uint64_t n_batches;
    pthread_t thread[DF_MAX_COMPILE_THREADS];
    uint32_t most_threads; /* how many compile threads there may be */
    uint32_t n_threads;    /* compile threads that run */
    uint32_t n_busy;       /* those of them that compile */
    uint64_t unused_ns;    /* spent on compiling since memory was last given back */
    uint64_t give_back_ns; /* what the latest call of give_back took */
    bool stop, failure_told;
    df_tier_stats stats;
    df_listener *listeners;

    pthread_mutex_t
        variant_lock;       /* guards the rest and exec.variant; taken inside `lock`, if both */
    df_variant *variants;   /* live: launches can find them */
    df_variant *retired;    /* launches cannot find them, but a run may still be inside */
    uint64_t variant_bytes; /* of live variants */
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

/* Returns the tier by which kernel k is compiled. In fast mode AUTO becomes O2, because code of
 * different tiers may differ in bits. */
DF_INLINE df_tier df_tier_for(const df_tiers *t, const df_kernel *k)
{
    if (!t->compiler || atomic_load_explicit(&t->is_refused, memory_order_relaxed))
        return DF_TIER_INTERP;
    if (t->tier == DF_TIER_AUTO && (k->flags & DF_KERNEL_FAST)) return DF_TIER_O2;
    return t->tier;
}

/* ---- tier_wait.c ---- */

/* One wait for kernels. */
typedef struct df_wait {
    df_tiers *t;
    df_waiter *w; /* may be NULL */
    void *const *execs;
    uint32_t n;
    const df_opt *level;        /* the level of all kernels; NULL: that of each kernel's tier */
    uint64_t begun_ns, told_ns; /* when the wait began; when the waiter was called last */
    uint32_t n_asked;           /* kernels that were not settled when the wait began */
} df_wait;

/* Gives the level of code for which kernel i is waited for. Returns false when the wait does not
 * need that kernel. */
bool df_wait_level(const df_wait *s, uint32_t i, df_opt *level);
/* Begins a wait. The caller holds `lock`. */
void df_wait_begin(df_wait *s);
/* Sleeps until something changed. Returns false when the waiter stopped the wait. The caller holds
 * `lock`, which is released during the sleep. */
bool df_wait_once(df_wait *s);

/* ---- tier.c ---- */

/* In a forked child, resets what the child cannot use. Called without locks, before they are
 * taken. */
void df_tiers_check_fork(df_tiers *t);
/* Starts a compile thread when none runs, or when more kernels wait than those that are free would
 * take at once and there may be one more. Returns false when none runs and none can be started. The
 * caller holds `lock`. */
bool df_tiers_need_thread(df_tiers *t);

/* ---- tier_queue.c. The caller holds the lock of the tiers. ---- */

/* Adds e: at O0 as the last, at O2 before those with less work. */
void df_tier_queue_add(df_tier_queue *q, entry *e, df_opt level);
/* Takes the kernels of the next module, all of one batch. Returns their number; 0: none waits.
 * n_threads share the queue. */
uint32_t df_tier_queue_take(df_tier_queue *q, df_opt level, uint32_t n_threads,
                            entry *out[DF_MAX_MODULE]);
/* Notes that e shall have O2 code for later processes, which an idle thread makes. */
void df_tier_want_o2(df_tiers *t, entry *e);
/* Queues e for idle threads, if it shall have O2 code. Called when its O0 code is published. */
void df_tier_add_idle(df_tiers *t, entry *e);
/* Takes the next kernel for an idle thread, with the reference of the queue. NULL: none. */
entry *df_tier_take_idle(df_tiers *t);

/* ---- tier_code.c ---- */

/* Gives the code that the compiler made for e a name for profilers and debuggers. Called before any
 * run may enter the code. `mark` is df_code_about.mark. */
void df_code_show(df_tiers *t, const entry *e, const char *mark, df_code *code);
/* Returns code to the compiler. No run may be inside. */
void df_code_release(df_tiers *t, df_code *code);
/* Adds e to the events of the contexts that listen. The caller holds `lock`. */
void df_tiers_hear(df_tiers *t, const df_event *e);

/* ---- tier_notes.c ---- */

/* The result of one compilation, for the structured log. */
typedef struct df_kernel_notes {
    const char *tier;  /* "O0", "O2", "variant", or "kept" for code of an earlier process */
    const char *facts; /* of a variant; else NULL */
    const char *error; /* the reason when `compiled` is false */
    bool compiled;
    uint64_t code_bytes, compile_ns; /* compile_ns: for all kernels of the module */
    uint32_t n_in_module;            /* kernels in the module */
} df_kernel_notes;

/* Writes the result of compiling e to the structured log. Called on the compile thread, or on a
 * thread that compiles itself. The caller must not hold `lock`. */
void df_tier_log(df_tiers *t, entry *e, const df_kernel_notes *told);

/* ---- tier_variant.c ---- */

/* Takes the next entry from the queue of wishes; NULL: none. The caller gets the reference of the
 * queue. The caller holds `lock`. */
entry *df_variant_take(df_tiers *t);
/* Compiles the wish of e and publishes the variant. The caller must not hold `lock`. */
void df_variant_make(df_tiers *t, entry *e);
/* Drops the least recently used variants until `size` more bytes of general code fit, or all. */
void df_variants_make_room(df_tiers *t, size_t size);
/* Frees the retired variants when no run is inside. */
void df_variants_sweep(df_tiers *t);
/* Frees all variants of e, which is being destroyed. No run may use e. */
void df_variants_finish(df_tiers *t, entry *e);
/* Frees v and its code at once. NULL is ignored. No run may be inside v. */
void df_variant_destroy(df_tiers *t, df_variant *v);
/* Takes v away from its kernel. It is freed when no run is inside. Call it under variant_lock. */
void df_variant_retire(df_tiers *t, df_variant *v);
/* Whether a launch can still find v. */
bool df_variant_is_live(const df_variant *v);
/* Fills in an event about v. `expected` and `found` are copied. */
void df_variant_event(df_event *out, const df_variant *v, df_reason reason, const char *expected,
                      const char *found);

#endif
