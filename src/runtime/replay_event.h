/* SPDX-License-Identifier: Apache-2.0
 *
 * What devices that replay graphs tell of their graph trees (docs/graphs.md), for the structured
 * log.
 */
#ifndef DF_RUNTIME_REPLAY_TOLD_H
#define DF_RUNTIME_REPLAY_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#define DF_REPLAY_OUTSIDE UINT64_MAX /* an offset: not in the pool */

/* ---- a queue's tree ---- */

enum { DF_REPLAY_REASONS = 16 };

typedef struct df_replay_stats {
    bool is_on;
    uint64_t calls, works, work_calls; /* runs of plans and works; the latter; calls of their fn */
    uint64_t plain, recorded, replayed, placed, reshaped; /* what was done for them; their sum */
    uint64_t updates;                                     /* nodes that were given other words */
    uint64_t tables;                                      /* of words, put in before a graph */
    uint64_t launches;                                    /* of graphs */
    uint64_t reason[DF_REPLAY_REASONS];                   /* why: how often */
    const char *reason_text[DF_REPLAY_REASONS];           /* NULL: there are no more */
    uint64_t n_nodes, n_graphs, graph_bytes, pool_bytes, mapped_bytes, peak_path_bytes,
        separate_bytes, held, held_bytes, outside; /* as df_tree_stats; mapped_bytes: of memory */
    uint64_t evicted, trims, pauses, hits;         /* hits: that no df_replay_event has told */
    const char *reason_name[DF_REPLAY_REASONS];
    char failure[512]; /* the latest that was no failure of its run; "": none */
} df_replay_stats;

/* ---- a run, or a node ---- */

/* What a queue's graph tree has done, or one of its nodes as it is (docs/graphs.md). Pointers are
 * valid while it is told. */
typedef struct df_replay_event {
    uint64_t node, parent, depth; /* node: 0: none; parent: 0: the root */
    uint64_t owner, number;       /* the plan; 0: it is not told */
    uintptr_t site;
    uint64_t variant;
    const char *action, *reason; /* as the docs name them; action: NULL: as it is */
    const char *failure;         /* of the device, just now; or NULL */
    uint64_t path, hits;         /* paths so far; runs since what was told before that were hits */
    uint64_t updates;            /* nodes of graphs that were set since then */
    uint64_t calls, replays, recordings, placements, graph_bytes; /* of the node */
    uint64_t arena, arena_bytes;
    uint64_t node_bytes;             /* what it takes of the pool */
    const uint64_t *out, *out_bytes; /* offsets, or OUTSIDE; out: NULL: it is not placed */
    uint32_t n_out, n_outside, device;
    bool has_graph;
    uint64_t pool_bytes, held_bytes, evicted, trims, pauses, pause_left; /* of the tree */
} df_replay_event;
typedef void (*df_replay_event_fn)(void *user, const df_replay_event *told);

#endif
