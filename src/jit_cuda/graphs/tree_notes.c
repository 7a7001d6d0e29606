/* SPDX-License-Identifier: Apache-2.0
 *
 * What the graph tree of a queue writes to the structured log (docs/trace-format.md,
 * `graph`). Each run is a note, with its node at that time, unless it was a hit. Hits are
 * counted, and the next note has their number.
 */
#include "jit_cuda/graphs/graph.h"

_Static_assert(DF_REPLAY_OUTSIDE == DF_TREE_OUTSIDE, "offsets are handed over as they are");

static df_replay_event told_of(const df_tree_about *a, uint32_t device)
{
    return (df_replay_event){ .node = a->node,
                              .parent = a->parent,
                              .depth = a->depth,
                              .variant = a->variant,
                              .reason = df_tree_reason_name(a->latest),
                              .calls = a->calls,
                              .replays = a->replays,
                              .recordings = a->recordings,
                              .placements = a->placements,
                              .graph_bytes = a->graph_bytes,
                              .arena = a->arena,
                              .arena_bytes = a->arena_bytes,
                              .node_bytes = a->has_graph ? a->pool_bytes : 0,
                              .out = a->out,
                              .out_bytes = a->out_bytes,
                              .n_out = a->n_out,
                              .n_outside = a->n_outside,
                              .device = device,
                              .has_graph = a->has_graph };
}

static void put_tree(df_replay_event *told, df_tree *tree)
{
    const df_tree_stats t = df_tree_read(tree);
    told->pool_bytes = t.pool_bytes;
    told->held_bytes = t.held_bytes;
    told->evicted = t.evicted;
    told->trims = t.trims;
    told->pauses = t.pauses;
    told->pause_left = t.pause_left;
}

void df_cuda_tree_notes_run(df_cuda_tree_notes *s, df_tree *tree, const df_cuda_teller *by,
                            const df_tree_call *c, uint64_t updates)
{
    static const char *const actions[] = { "plain", "record", "replay", "place", "reshape" };
    df_tree_about about = { 0 };
    if (c->action == DF_TREE_REPLAY) {
        s->hits++;
        return;
    }
    df_replay_event told = { .variant = c->variant, .device = by->device, .n_out = c->n_out };
    if (df_tree_latest(tree, &about)) told = told_of(&about, by->device);
    told.owner = by->owner;
    told.number = by->number;
    told.site = by->site;
    told.action = actions[c->action];
    told.reason = df_tree_reason_name(c->reason);
    told.failure = c->failed ? df_tree_failure(tree)->text : NULL;
    told.path = s->paths;
    told.hits = s->hits;
    told.updates = updates - s->updates;
    put_tree(&told, tree);
    s->hits = 0;
    s->updates = updates;
    by->decided(by->user, &told);
}

typedef struct listener {
    uint32_t device;
    df_replay_event_fn tell;
    void *user;
} listener;

static void log_node(void *user, const df_tree_about *a)
{
    const listener *const l = user;
    const df_replay_event told = told_of(a, l->device);
    l->tell(l->user, &told);
}

void df_cuda_tree_notes_each(const df_tree *tree, uint32_t device, df_replay_event_fn tell,
                             void *user)
{
    listener l = { device, tell, user };
    df_tree_each(tree, log_node, &l);
}
