/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters and events of graph trees (docs/graphs.md). Devices that replay graphs report them, for
 * the program and for the structured log. Terms are those of replay/tree.h.
 */
#ifndef DF_RUNTIME_REPLAY_TOLD_H
#define DF_RUNTIME_REPLAY_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#define DF_REPLAY_OUTSIDE UINT64_MAX /* offset of an output that is not in the graph pool */

/* ---- a queue's tree ---- */

enum { DF_REPLAY_REASONS = 16 };

typedef struct df_replay_stats {
    bool is_on;
    /* calls: runs of plans and of external work, the sum of plain to reshaped. works: runs of
     * external work among them. work_calls: calls of df_work.fn. */
    uint64_t calls, works, work_calls;
    uint64_t plain, recorded, replayed, placed, reshaped; /* runs by df_tree_action */
    uint64_t updates;                   /* graph nodes whose argument words were set anew */
    uint64_t tables;                    /* tables of words that were enqueued before a graph */
    uint64_t launches;                  /* launches of graphs */
    uint64_t reason[DF_REPLAY_REASONS]; /* runs by df_tree_reason */
    const char *reason_text[DF_REPLAY_REASONS]; /* NULL from the number of reasons on */
    /* As in df_tree_stats. mapped_bytes is the memory that is mapped for the pool. */
    uint64_t n_nodes, n_graphs, graph_bytes, pool_bytes, mapped_bytes, peak_path_bytes,
        separate_bytes, held, held_bytes, outside;
    uint64_t evicted, trims, pauses, hits; /* hits: since the latest df_replay_event */
    const char *reason_name[DF_REPLAY_REASONS];
    char failure[512]; /* the latest failure of the device after which a run was plain; "": none */
} df_replay_stats;

/* ---- a run, or a node ---- */

/* A run that was not a plain hit, or the state of one node of a graph tree. docs/trace-format.md
 * describes the fields (`graph`, `graph_node`). Pointers are valid during the call of
 * df_replay_event_fn. */
typedef struct df_replay_event {
    uint64_t node, parent, depth; /* node 0: the run made none; parent 0: the root */
    uint64_t owner, number;       /* owner and number of the plan; number 0: it has none */
    uintptr_t site;
    uint64_t variant;            /* signature of the call */
    const char *action, *reason; /* names as in docs/graphs.md; action NULL: state of a node */
    const char *failure;         /* failure of the device in this run; NULL: none */
    uint64_t path, hits;         /* paths that have begun so far; hits since the event before */
    uint64_t updates;            /* graph nodes that were set since the event before */
    uint64_t calls, replays, recordings, placements, graph_bytes; /* of the node */
    uint64_t arena, arena_bytes;                                  /* offset in the pool, and size */
    uint64_t node_bytes; /* bytes of the pool that the node's graph uses */
    /* Per output: its offset or DF_REPLAY_OUTSIDE, and its size. out NULL: not placed. */
    const uint64_t *out, *out_bytes;
    uint32_t n_out, n_outside, device;
    bool has_graph;
    uint64_t pool_bytes, held_bytes, evicted, trims, pauses, pause_left; /* of the tree */
} df_replay_event;
typedef void (*df_replay_event_fn)(void *user, const df_replay_event *told);

#endif
