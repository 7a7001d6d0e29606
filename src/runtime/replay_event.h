/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters and events of graph trees (docs/graphs.md). Devices that replay graphs report them, for
 * the program and for the structured log. Terms are those of replay/tree.h.
 */
#ifndef DF_RUNTIME_REPLAY_EVENT_H
#define DF_RUNTIME_REPLAY_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#define DF_REPLAY_OUTSIDE UINT64_MAX /* offset of an output that is not in the graph pool */

/* ---- a queue's tree ---- */

enum { DF_REPLAY_REASONS = 16 }; /* more than there are reasons: DF_TREE_N_REASONS */

/* Counters since the tree was created, and sizes at the moment. */
typedef struct df_replay_stats {
    bool is_on;     /* the queue replays graphs. If not, all other fields are 0 */
    uint64_t calls; /* runs of plans and of external work */
    uint64_t works; /* those of them that are external work */
    /* Calls of df_work.fn. A run of external work whose graph is replayed makes no such call. */
    uint64_t work_calls;
    /* Runs that succeeded, by df_tree_action. */
    uint64_t plain;    /* by plain launches */
    uint64_t recorded; /* a graph was recorded */
    uint64_t replayed; /* a graph was launched with its placement unchanged */
    uint64_t placed;   /* a graph got new addresses in the pool */
    uint64_t reshaped; /* the graph of another signature was updated for the run */
    uint64_t updates;  /* graph nodes whose argument words were set anew */
    /* Uploads of a table of argument words, which is enqueued before a graph whose kernels read
     * their words there. Tables of conditional graphs are not counted. */
    uint64_t tables;
    uint64_t launches;                  /* launches of graphs */
    uint64_t reason[DF_REPLAY_REASONS]; /* runs by df_tree_reason */
    /* Per reason: text for people, for example "replayed". Static; NULL after the last reason. */
    const char *reason_text[DF_REPLAY_REASONS];
    uint64_t n_nodes, n_graphs, graph_bytes; /* graph_bytes: an estimate, of all graphs */
    uint64_t pool_bytes; /* the first bytes of the graph pool, behind which the tree needs memory */
    uint64_t
        mapped_bytes; /* GPU memory that is mapped for the pool, in pieces of the driver's size */
    uint64_t peak_path_bytes;  /* the most bytes needed at once since the latest trim */
    uint64_t separate_bytes;   /* bytes that the graphs would need if each had its own pool */
    uint64_t held, held_bytes; /* outputs in the pool that are held, and their bytes */
    uint64_t outside;          /* outputs of nodes that are outside the pool */
    uint64_t evicted, trims;   /* nodes that were evicted; how often all graphs were dropped */
    uint64_t pauses;           /* how often recording was paused */
    /* Simple replays (DF_TREE_REPLAY) since the latest df_replay_event of a run. Only runs with a
     * df_replay_event_fn are counted. */
    uint64_t hits;
    /* Per reason: its short name, for example "hit". Static; NULL after the last reason. */
    const char *reason_name[DF_REPLAY_REASONS];
    /* The latest failure of the device to record, update or launch a graph. The run that failed
     * then used plain launches. "": none. */
    char failure[512];
} df_replay_stats;

/* ---- a run, or a node ---- */

/* A run that was not a simple replay, or the state of one node of a graph tree. The fields of a
 * state that describe a run or the tree are 0. docs/trace-format.md describes the fields too
 * (`graph`, `graph_node`). Pointers are valid during the call of df_replay_event_fn. */
typedef struct df_replay_event {
    uint64_t node, parent, depth; /* node 0: the run made none; parent 0: the root */
    /* Of a run: owner and number of the plan. number 0: it has none (external work). */
    uint64_t owner, number;
    /* Of a run: call site of the cut that made the plan, or of the external work. */
    uintptr_t site;
    uint64_t variant;    /* signature of the call */
    const char *action;  /* name as in docs/graphs.md; NULL: this is the state of a node */
    const char *reason;  /* name as in docs/graphs.md. Of a node: of its latest call */
    const char *failure; /* of a run: failure of the device in it; NULL: none */
    /* Of a run: how many generations, such as steps, have begun on this queue. Paths that the tree
     * begins by itself after max_path calls (replay/tree.h) are not counted. */
    uint64_t path;
    /* Of a run: simple replays, and graph nodes that were set, since the event of the preceding run
     * on this queue. */
    uint64_t hits, updates;
    uint64_t calls, replays, recordings, placements, graph_bytes; /* of the node */
    /* Offset in the pool, and size, of the memory that the node uses only during a run. */
    uint64_t arena, arena_bytes;
    uint64_t node_bytes; /* bytes of the pool that the node's graph uses */
    /* Per output: its offset or DF_REPLAY_OUTSIDE, and its size. out NULL: not placed. */
    const uint64_t *out, *out_bytes;
    uint32_t n_out, n_outside; /* outputs of the node, and those of them outside the pool */
    uint32_t device;           /* ordinal of the GPU */
    bool has_graph;
    /* Of the tree, as in df_replay_stats. pause_left: calls until the pause of recording ends; 0:
     * recording is not paused. */
    uint64_t pool_bytes, held_bytes, evicted, trims, pauses, pause_left;
} df_replay_event;

/* Receives one event. The thread that runs the plan or asks for the nodes calls this function. That
 * thread holds the lock of the graph tree. So the function must not run plans, or ask for
 * statistics, on that queue. */
typedef void (*df_replay_event_fn)(void *user, const df_replay_event *event);

#endif
