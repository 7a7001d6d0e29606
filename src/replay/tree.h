/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees, the policy: which calls of a program are recorded as graphs, which are replayed,
 * and where their memory is. This is plain C over a vtable; it depends neither on CUDA nor on
 * plans.
 *
 * A *call* is one run of a plan. It names its *function* (field fn) and its *signature* (field
 * variant). Calls that agree in both and in all sizes need the same launches; they differ only in
 * addresses and numbers. A call writes *outputs*, which live as long as somebody holds them, and
 * uses an *arena*, which lives only during the call. The calls of one generation (a step) make a
 * *path*. All paths together make a tree, which has a node for each call at the end of its path:
 *
 *      generation ---> root ---f---> 1 ---g---> 2 ---h---> 3
 *                                     \---h---> 4
 *
 * A node is *warm* after `warm_after` calls at it. The next call records a graph, and later calls
 * replay it. The *placement* of a node says where in the pool its arena and its outputs are.
 *
 * All nodes share the pool, one range of addresses. Only as much of it is backed by memory as the
 * largest path needs, because any call may reuse memory that is not held. All work is in order in
 * one queue, so memory may be reused as soon as the host knows that it is not needed.
 *
 * A held output is never overwritten and never moved. Every replay compares the placement of its
 * node with the outputs that are held. So the tree is only a prediction: correctness does not
 * depend on the path, and a path may begin anywhere. A path has at most max_path calls; the next
 * call begins a new one, also within a generation. When a held output is in the way of a node's
 * placement, the node is placed again around that output and its graph is updated to the new
 * addresses. An output that was in the way more than `learn_after` times gets memory of its own
 * outside the pool (DF_TREE_OUTSIDE). The address of that memory is one more parameter of the
 * graph.
 *
 * One function may have at most max_variants signatures below one node. For a further signature,
 * the least recently used of these nodes is reused and its graph is updated. The number of nodes
 * and the bytes of all graphs are bounded; the least recently used leaf is evicted first.
 *
 * Recording may cost more than it saves. An attempt is wasted when it fails, or when a node whose
 * graph existed before is recorded, placed or reshaped again. When more than half of the latest
 * `window` calls were wasted attempts, recording pauses for `pause` calls. During a pause, only
 * graphs that fit unchanged are replayed.
 *
 * A failure to record, update or launch a graph changes nothing that outlives the call, and does
 * not fail it. The call runs by plain launches instead, and the reason is kept. The node is
 * tried again after 1 call, then after 2, 4, ... 1024. When a plain run has too little memory,
 * all graphs are dropped, the pool is trimmed, and the run is repeated once.
 *
 * Every decision has a reason, which is counted.
 *
 * One thread uses a tree. Only df_tree_drop and df_tree_is_held may be called by any thread.
 */
#ifndef DF_REPLAY_TREE_H
#define DF_REPLAY_TREE_H

#include "base/diag.h"
#include "base/mem.h"

#define DF_TREE_OUTSIDE UINT64_MAX /* in place of an offset: the output is not in the pool */
#define DF_TREE_ALIGN 256          /* offsets and sizes in the pool are multiples of this */

/* How a call was run. */
typedef enum df_tree_action {
    DF_TREE_PLAIN,  /* by plain launches, in memory outside the pool */
    DF_TREE_RECORD, /* a graph was recorded and launched */
    DF_TREE_REPLAY, /* the graph was launched with its placement unchanged; numbers, and addresses
                       outside the pool, may have changed */
    DF_TREE_PLACE,  /* the graph got a new placement, was updated and launched */
    DF_TREE_RESHAPE /* the graph of another signature was placed and updated for this one, and
                       launched */
} df_tree_action;

/* X(name, text): why an action was chosen. */
#define DF_TREE_REASONS(X)                                                                         \
    X(hit, "replayed")                                                                             \
    X(warming, "seen too seldom here to be recorded")                                              \
    X(first, "recorded for the first time here")                                                   \
    X(again, "recorded again: its graph was dropped")                                              \
    X(held, "something held lies where this was placed")                                           \
    X(learned, "an output is held too long for the pool")                                          \
    X(variants, "too many variants here for a graph each")                                         \
    X(unfit, "the device cannot put this call into a graph")                                       \
    X(paused, "recording pauses: too many of the latest calls were wasted attempts")               \
    X(no_memory, "no memory for the pool or a graph")                                              \
    X(failed, "the device could not record, update or launch a graph")                             \
    X(off, "graphs are off")

typedef enum df_tree_reason {
#define DF_TREE_REASON(name, text) DF_TREE_WHY_##name,
    DF_TREE_REASONS(DF_TREE_REASON)
#undef DF_TREE_REASON
        DF_TREE_N_REASONS
} df_tree_reason;

/* The text of a reason for people: "replayed". */
const char *df_tree_reason_text(df_tree_reason r);
/* The name of a reason: "hit". */
const char *df_tree_reason_name(df_tree_reason r);

/* Names an output while it is held. Afterwards the ticket names nothing, also when the memory is
 * used again. 0 is no ticket. */
typedef uint64_t df_tree_ticket;

/* One output of a call. */
typedef struct df_tree_out {
    uint64_t bytes;        /* in: its size, which may be 0 */
    uint64_t offset;       /* out: offset in the pool; or DF_TREE_OUTSIDE, when the device has
                              allocated memory for it */
    df_tree_ticket ticket; /* out: the caller drops it (df_tree_drop); 0 for DF_TREE_OUTSIDE */
} df_tree_out;

/* The caller holds everything that a call reads until df_tree_run returns. A result that is written
 * into the memory of an input is not an output here: the ticket of the input continues to name
 * that memory. */
typedef struct df_tree_call {
    uint64_t fn, variant; /* its function and its signature */
    uint64_t arena_bytes; /* 0 when it needs no arena */
    df_tree_out *out;
    uint32_t n_out;
    bool unfit; /* the device cannot put this call into a graph */
    void *user; /* for the device: the plan and its arguments */
    /* out: how the call ran and why, after df_tree_run. While the device records or replays: the
     * attempt that is being made. */
    df_tree_action action;
    df_tree_reason reason;
    uint64_t node; /* out: number of its node, which is never used for another; 0: no node */
    bool failed;   /* out: the device failed at the attempt (df_tree_failure), and the call
                      ran plainly */
} df_tree_call;

/* Where the memory of a node is. Valid only during the callback that receives it. */
typedef struct df_tree_placement {
    uint64_t arena;      /* offset in the pool; 0 when there is no arena */
    const uint64_t *out; /* per output: offset in the pool or DF_TREE_OUTSIDE */
} df_tree_placement;

/* The callbacks by which a tree uses a device. When one fails, d has the sentence. After a
 * failure of record, replay or back, nothing has changed that outlives the call, so the call can
 * run plainly. The same holds when `plain` fails with DEFT_E_MEMORY: the tree may repeat it.
 * Callbacks must not call the tree, except for df_tree_drop. */
typedef struct df_tree_device {
    void *self; /* passed to every callback */
    /* Runs c by plain launches, in memory that is not of the pool. */
    deft_status (*plain)(void *self, df_diag *d, df_tree_call *c);
    /* Records a graph of c with placement p, without launching it. Stores the memory in bytes that
     * the graph needs. */
    deft_status (*record)(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                          void **graph, uint64_t *bytes);
    /* Launches the graph for c with placement p. First updates everything that differs from its
     * latest launch or recording. When c->action is DF_TREE_REPLAY, p does not differ. Allocates
     * the outputs that are DF_TREE_OUTSIDE. */
    deft_status (*replay)(void *self, df_diag *d, void *graph, df_tree_call *c,
                          const df_tree_placement *p);
    /* Destroys a graph, which may still be running. */
    void (*drop)(void *self, void *graph);
    /* Backs the first `bytes` bytes of the pool with memory. When more is backed already, frees the
     * rest after the work there has ended. May fail with DEFT_E_MEMORY. */
    deft_status (*back)(void *self, df_diag *d, uint64_t bytes);
} df_tree_device;

/* 0 selects the default of an option. A value above a bound is reduced to the bound. */
typedef struct df_tree_options {
    uint32_t warm_after;      /* plain calls at a node before it is recorded; default 1. UINT32_MAX
                                 switches graphs off */
    uint32_t max_variants;    /* signatures of one function below one node; default 8 */
    uint32_t learn_after;     /* see the header comment; default 1 */
    uint32_t max_nodes;       /* default 4096 */
    uint64_t max_graph_bytes; /* default 256 MiB */
    uint64_t max_pool_bytes;  /* default: no bound */
    uint32_t window, pause;   /* in calls; defaults 64, which is the greatest window, and 1024 */
    uint32_t max_path;        /* in calls; default 64, and at most max_nodes */
} df_tree_options;

typedef struct df_tree df_tree;

/* Creates a tree. mem, dev and o are copied. o may be NULL for the defaults. Fails with
 * DEFT_E_MEMORY only. */
deft_status df_tree_create(df_diag *d, const df_mem *mem, const df_tree_device *dev,
                           const df_tree_options *o, df_tree **out);
/* Destroys a tree and all graphs, and frees the pool. All outputs must have been dropped, and no
 * other thread may be in a call. *t may be NULL, and is NULL afterwards. */
void df_tree_destroy(df_tree **t);

/* Begins a generation: a new path starts at the root. Held outputs remain held. */
void df_tree_begin(df_tree *t);
/* Runs c in the way that the tree chooses. Fails only when the `plain` callback fails, and then no
 * output exists. */
deft_status df_tree_run(df_tree *t, df_diag *d, df_tree_call *c);
/* The latest failure of a device callback that did not fail the call, with the device's sentence.
 * Its status is DEFT_OK when there was none. It belongs to the tree, and the next df_tree_run or
 * df_tree_trim may change it. */
const df_diag *df_tree_failure(const df_tree *t);
/* Ends the holding of an output. The next call may reuse its memory. A ticket that names nothing,
 * for example one that was dropped before, has no effect. Any thread may call this. */
void df_tree_drop(df_tree *t, df_tree_ticket k);
/* Whether k still names an output that is held. Any thread may call this. */
bool df_tree_is_held(const df_tree *t, df_tree_ticket k);
/* Drops all graphs, and frees the memory of the pool at offsets above all held outputs. When the
 * device fails to free it, the memory stays. Nodes remain, and remain warm. */
void df_tree_trim(df_tree *t);

/* Counters since the tree was created, and sizes at the moment. */
typedef struct df_tree_stats {
    uint64_t calls, by_action[5], by_reason[DF_TREE_N_REASONS];
    uint64_t n_nodes, n_graphs, graph_bytes, evicted, trims;
    uint64_t pauses, pause_left; /* number of pauses; calls until the current pause ends */
    uint64_t pool_bytes;         /* backed with memory */
    /* The greatest number of bytes that was needed at once since the latest trim. All held outputs
     * and the arena of the running call count. Gaps between them make pool_bytes larger. */
    uint64_t peak_path_bytes;
    uint64_t separate_bytes;   /* bytes that the graphs would need if each had its own pool */
    uint64_t held, held_bytes; /* outputs in the pool that are held, and their size */
    uint64_t outside;          /* outputs of nodes that are outside the pool */
} df_tree_stats;
/* The statistics at the moment. First frees the memory of dropped outputs. */
df_tree_stats df_tree_read(df_tree *t);

/* Facts about one node, for dumps. */
typedef struct df_tree_about {
    uint64_t node, parent; /* numbers; parent is 0 for a child of the root */
    uint64_t fn, variant, calls, replays, arena, arena_bytes, pool_bytes, graph_bytes;
    uint64_t recordings, placements; /* placements: how often its graph got a new placement */
    /* Per output: offset or DF_TREE_OUTSIDE, and size. `out` is NULL when the node has no
     * placement. Both belong to the tree and are valid until the next df_tree_run. */
    const uint64_t *out, *out_bytes;
    uint32_t depth, n_out, n_outside; /* depth is 1 for a child of the root */
    bool has_graph;
    const void *graph;     /* the device's graph, or NULL */
    df_tree_reason latest; /* of the latest call at this node */
} df_tree_about;
/* Describes the node of the latest call that succeeded. Returns false when that call had no node,
 * or when a path has begun since. *out is then not set. */
bool df_tree_latest(const df_tree *t, df_tree_about *out);
/* Calls f for each node, in the order of their numbers. */
void df_tree_each(const df_tree *t, void (*f)(void *user, const df_tree_about *a), void *user);

#endif
