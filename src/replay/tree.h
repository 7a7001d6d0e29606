/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees, the policy: what of a program is recorded, what is replayed, and where its memory
 * lies. Plain C over a vtable; it knows neither CUDA nor plans.
 *
 * A *call* is one run of a plan, *function* and *variant* say which: calls that agree in both and
 * in all their sizes need the same launches, and differ in addresses and numbers. A call writes
 * *outputs*, which live for as long as somebody holds them, and works in an *arena*, which lives
 * for as long as the call. The calls of one generation (a step) make a *path*, and paths make a
 * tree, a node for each call that was seen at the end of its path:
 *
 *      generation ---> root ---f---> 1 ---g---> 2 ---h---> 3
 *                                     \---h---> 4
 *
 * A node is *warm* after so many calls there; the next one records a graph, and those that follow
 * replay it. Its *placement* says where in the pool its arena and its outputs lie. All nodes share
 * the pool: one range of addresses, of which as much is backed as the largest path needs, since
 * what is no longer held, or was never held, is there for whoever comes next on any path. All work
 * is in order (one queue), so that memory may be reused as soon as the host knows it is not needed.
 *
 * Nothing that is held is ever overwritten or moved: a placement is held against what is held at
 * every replay, whatever path led there. So a path says what is likely, never what is right, and
 * may begin anew anywhere; it does so by itself after max_path calls, for programs without
 * generations. Where something is held that was not when a node was placed, the node is placed anew
 * around it, and its graph updated to the new addresses. An output that was in the way more than
 * `learn_after` times is from then on not put into the pool: it gets memory of its own
 * (DF_TREE_OUTSIDE), whose address is one more parameter.
 *
 * A function with more than max_variants variants at one place has no node for each: the one that
 * was least recently used is updated. Nodes are bounded by count and by bytes of graphs; the least
 * recently used leaf goes first. When for more than half of the latest `window` calls a graph was
 * recorded again, placed anew or reshaped, or that failed, recording pauses for `pause` calls: what
 * fits as it is is replayed meanwhile, and afterwards all is tried again.
 *
 * Whatever fails while a graph is recorded, updated or launched (before anything of it ran) is no
 * failure of the call: it runs by plain launches, and the reason is kept. The node is tried again
 * after 1 call, then after 2, 4, ... 1024. A plain run for which memory is short is repeated once
 * all graphs are dropped and the pool is trimmed.
 *
 * Every decision has a reason, counted and told.
 */
#ifndef DF_REPLAY_TREE_H
#define DF_REPLAY_TREE_H

#include "base/diag.h"
#include "base/mem.h"

#define DF_TREE_OUTSIDE UINT64_MAX /* an offset: not in the pool */
#define DF_TREE_ALIGN 256

typedef enum df_tree_action {
    DF_TREE_PLAIN,  /* launched one by one, in memory of its own */
    DF_TREE_RECORD, /* a graph was made, and launched */
    DF_TREE_REPLAY, /* launched as it stood; addresses and numbers from outside may have changed */
    DF_TREE_PLACE,  /* placed anew, updated, launched */
    DF_TREE_RESHAPE /* another variant's graph, placed and updated for this one, launched */
} df_tree_action;

/* X(name, text) */
#define DF_TREE_REASONS(X)                                                                         \
    X(hit, "replayed")                                                                             \
    X(warming, "seen too seldom here to be recorded")                                              \
    X(first, "recorded for the first time here")                                                   \
    X(again, "recorded again: its graph was dropped")                                              \
    X(held, "something held lies where this was placed")                                           \
    X(learned, "an output is held too long for the pool")                                          \
    X(variants, "too many variants here for a graph each")                                         \
    X(unfit, "the device cannot put this call into a graph")                                       \
    X(paused, "recording pauses: too few of the latest calls were replayed")                       \
    X(no_memory, "no memory for the pool or a graph")                                              \
    X(failed, "the device could not record, update or launch a graph")                             \
    X(off, "graphs are off")

typedef enum df_tree_reason {
#define DF_TREE_REASON(name, text) DF_TREE_WHY_##name,
    DF_TREE_REASONS(DF_TREE_REASON)
#undef DF_TREE_REASON
        DF_TREE_N_REASONS
} df_tree_reason;

const char *df_tree_reason_text(df_tree_reason r);
const char *df_tree_reason_name(df_tree_reason r); /* "hit" */

/* Names an output for as long as it is held; afterwards it names nothing (generations). 0: none. */
typedef uint64_t df_tree_ticket;

/* One output of a call. */
typedef struct df_tree_out {
    uint64_t bytes;        /* in; 0 is as good as any */
    uint64_t offset;       /* out: in the pool, or DF_TREE_OUTSIDE: the device made memory for it */
    df_tree_ticket ticket; /* out: to be dropped; 0 with OUTSIDE */
} df_tree_out;

/* What a call reads is held until run returns. An output written in the place of an input is none
 * here: the input's ticket goes on naming that place. */
typedef struct df_tree_call {
    uint64_t fn, variant;
    uint64_t arena_bytes;
    df_tree_out *out;
    uint32_t n_out;
    bool unfit; /* the device cannot put it into a graph */
    void *user; /* the device's: the plan, its arguments */
    /* out: when run returns. While the device records or replays, what is being tried. */
    df_tree_action action;
    df_tree_reason reason;
    uint64_t node; /* its number, never given twice; 0: none */
    bool failed;   /* the device failed just now, which df_tree_failure tells; c ran plainly */
} df_tree_call;

/* Where a node's memory lies. Valid during the call it is handed to. */
typedef struct df_tree_placement {
    uint64_t arena;      /* offset; 0 where there is none */
    const uint64_t *out; /* per output: offset or DF_TREE_OUTSIDE */
} df_tree_placement;

/* What a tree does things by. On failure nothing has run, and d has the sentence. None may call the
 * tree, df_tree_drop excepted. */
typedef struct df_tree_device {
    void *self;
    /* Runs c in memory of its own. */
    deft_status (*plain)(void *self, df_diag *d, df_tree_call *c);
    /* A graph of c, placed at p, not launched. *bytes: what it takes. */
    deft_status (*record)(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                          void **graph, uint64_t *bytes);
    /* Launches graph for c at p, updating what differs from its latest launch or recording: with
     * DF_TREE_REPLAY p is as it was then. Makes the memory of outputs that are OUTSIDE. */
    deft_status (*replay)(void *self, df_diag *d, void *graph, df_tree_call *c,
                          const df_tree_placement *p);
    void (*drop)(void *self, void *graph); /* may still be running */
    /* Backs the first `bytes` of the pool's addresses; less than now: gives the rest back when what
     * runs there has ended. DEFT_E_MEMORY. */
    deft_status (*back)(void *self, df_diag *d, uint64_t bytes);
} df_tree_device;

typedef struct df_tree_options { /* 0: the default */
    uint32_t warm_after;         /* calls at a place before one is recorded: 1. UINT32_MAX: off */
    uint32_t max_variants;       /* 8 */
    uint32_t learn_after;        /* 1 */
    uint32_t max_nodes;          /* 4096 */
    uint64_t max_graph_bytes;    /* 256 MiB */
    uint64_t max_pool_bytes;     /* no bound */
    uint32_t window, pause;      /* 64, at most as many; 1024 */
    uint32_t max_path;           /* 64, and never more than max_nodes */
} df_tree_options;

typedef struct df_tree df_tree;

deft_status df_tree_create(df_diag *d, const df_mem *mem, const df_tree_device *dev,
                           const df_tree_options *o, df_tree **out);
/* Held outputs must have been dropped. NULL is fine. */
void df_tree_destroy(df_tree **t);

/* A generation begins: the path is the root's again. What is held stays. */
void df_tree_begin(df_tree *t);
/* Runs c, as it decides. Fails only as `plain` does; then no output exists. */
deft_status df_tree_run(df_tree *t, df_diag *d, df_tree_call *c);
/* The latest failure that was no failure of its call, in the device's words; status DEFT_OK: none
 * yet. */
const df_diag *df_tree_failure(const df_tree *t);
/* The output is not held any more; its memory may serve from the next call on. A ticket that names
 * nothing, dropped before say, is fine. Any thread; all else but df_tree_is_held is one thread's.
 */
void df_tree_drop(df_tree *t, df_tree_ticket k);
/* Whether k still names an output that is held. Any thread. */
bool df_tree_is_held(const df_tree *t, df_tree_ticket k);
/* Drops all graphs and gives back the pool behind what is held. Nodes stay, and stay warm. */
void df_tree_trim(df_tree *t);

typedef struct df_tree_stats {
    uint64_t calls, by_action[5], by_reason[DF_TREE_N_REASONS];
    uint64_t n_nodes, n_graphs, graph_bytes, evicted, trims;
    uint64_t pauses, pause_left; /* how often recording paused; calls that this one still lasts */
    uint64_t pool_bytes;         /* backed */
    uint64_t
        peak_path_bytes; /* since the latest trim, the most that was needed at once: what is held
                          * and what the running call has there. pool_bytes is this and gaps */
    uint64_t separate_bytes; /* what the graphs would need with a pool each */
    uint64_t held, held_bytes;
    uint64_t outside; /* outputs that nodes do not put into the pool */
} df_tree_stats;
df_tree_stats df_tree_read(df_tree *t);

/* What is known of a node, for dumps: parent, function, variant, calls, placement, learned outputs.
 */
typedef struct df_tree_about {
    uint64_t node, parent; /* parent 0: the root */
    uint64_t fn, variant, calls, replays, arena, arena_bytes, pool_bytes, graph_bytes;
    uint64_t recordings, placements; /* placements: of its graph to other places, reshaped or not */
    const uint64_t *out, *out_bytes; /* per output, of the tree until something is run: its offset
                                        or DF_TREE_OUTSIDE; NULL: not placed */
    uint32_t depth, n_out, n_outside;
    bool has_graph;
    const void *graph; /* the device's; NULL: none */
    df_tree_reason latest;
} df_tree_about;
/* The node of the latest call, when no path has begun since; false: it had none. */
bool df_tree_latest(const df_tree *t, df_tree_about *out);
/* f is called for each node, in order of their numbers. */
void df_tree_each(const df_tree *t, void (*f)(void *user, const df_tree_about *a), void *user);

#endif
