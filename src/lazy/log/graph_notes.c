/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees in the structured log: runs that were not only replays, when they have run;
 * nodes and totals when a queue is destroyed. All functions are called only while the log
 * is on. The fields are those of docs/trace-format.md. Strings belong to the device, which
 * may be destroyed before the writer runs. So everything is written as records, which are
 * copies.
 */
#include "lazy/log/notes.h"

#include <stdio.h>

/* Writes n; 0 becomes null. */
static void put_number_or_null(df_str *s, const char *key, uint64_t n)
{
    if (n)
        df_json_count(s, key, n);
    else
        df_json_text(s, key, NULL);
}

static void put_range(df_str *s, uint64_t offset, uint64_t bytes)
{
    df_json_open(s, NULL, '[');
    if (offset == DF_REPLAY_OUTSIDE)
        df_json_text(s, NULL, NULL);
    else
        df_json_count(s, NULL, offset);
    df_json_count(s, NULL, bytes);
    df_json_close(s, ']');
}

/* Writes the placements of the arena and then of the outputs. Writes nothing for a node that is not
 * placed: its `out` is NULL. An offset is null when the memory is outside the pool. */
static void put_layout(df_str *s, const df_replay_event *t)
{
    if (!t->out) return;
    df_json_open(s, "layout", '[');
    put_range(s, t->arena_bytes ? t->arena : DF_REPLAY_OUTSIDE, t->arena_bytes);
    for (uint32_t i = 0; i < t->n_out; i++) put_range(s, t->out[i], t->out_bytes[i]);
    df_json_close(s, ']');
}

/* Writes the description and the counters of a node. */
static void put_node(df_str *s, const df_replay_event *t)
{
    char variant[24];
    (void)snprintf(variant, sizeof variant, "%016llx", (unsigned long long)t->variant);
    df_json_count(s, "device", t->device);
    put_number_or_null(s, "node", t->node);
    put_number_or_null(s, "parent", t->parent);
    df_json_count(s, "depth", t->depth);
    df_json_text(s, "variant", variant);
    df_json_text(s, "reason", t->reason);
    df_json_flag(s, "has_graph", t->has_graph);
    df_json_count(s, "runs", t->calls);
    df_json_count(s, "replays", t->replays);
    df_json_count(s, "recordings", t->recordings);
    df_json_count(s, "placements", t->placements);
    df_json_count(s, "outputs", t->n_out);
    df_json_count(s, "outside", t->n_outside);
    df_json_count(s, "arena_bytes", t->arena_bytes);
    df_json_count(s, "node_bytes", t->node_bytes);
    df_json_count(s, "graph_bytes", t->graph_bytes);
}

void df_log_graph(void *user, const df_replay_event *t)
{
    deft_ctx *const cx = user;
    df_str s;
    df_record_begin(&s, cx->rt->journal, "graph", cx->id);
    put_node(&s, t);
    df_record_plan(&s, "plan", df_plan_id((uint32_t)t->owner, (uint32_t)t->number));
    df_json_site(&s, "site", t->site);
    df_json_text(&s, "action", t->action);
    df_json_text(&s, "failure", t->failure);
    df_json_count(&s, "path", t->path);
    df_json_count(&s, "hits", t->hits);
    df_json_count(&s, "updates", t->updates);
    df_json_count(&s, "pool_bytes", t->pool_bytes);
    df_json_count(&s, "held_bytes", t->held_bytes);
    df_json_count(&s, "evicted", t->evicted);
    df_json_count(&s, "trims", t->trims);
    df_json_count(&s, "pauses", t->pauses);
    df_json_count(&s, "pause_left", t->pause_left);
    put_layout(&s, t);
    df_record_end(&s, cx->rt->journal);
}

/* Writes one node of the tree: a df_replay_event_fn. user: the context. */
static void log_node(void *user, const df_replay_event *t)
{
    deft_ctx *const cx = user;
    df_str s;
    df_record_begin(&s, cx->rt->journal, "graph_node", cx->id);
    put_node(&s, t);
    put_layout(&s, t);
    df_record_end(&s, cx->rt->journal);
}

/* Writes how many runs had each reason. */
static void put_reasons(df_str *s, const df_replay_stats *t)
{
    df_json_open(s, "reasons", '[');
    for (uint32_t i = 0; i < DF_REPLAY_REASONS && t->reason_name[i]; i++) {
        df_json_open(s, NULL, '{');
        df_json_text(s, "reason", t->reason_name[i]);
        df_json_count(s, "runs", t->reason[i]);
        df_json_close(s, '}');
    }
    df_json_close(s, ']');
}

/* Writes the counters of the whole tree of a queue on GPU `device`. */
static void log_tree(deft_ctx *cx, uint32_t device, const df_replay_stats *t)
{
    const struct {
        const char *key;
        uint64_t n;
    } numbers[] = { { "device", device },
                    { "runs", t->calls },
                    { "plain", t->plain },
                    { "recorded", t->recorded },
                    { "replayed", t->replayed },
                    { "placed", t->placed },
                    { "reshaped", t->reshaped },
                    { "hits", t->hits },
                    { "updates", t->updates },
                    { "launches", t->launches },
                    { "nodes", t->n_nodes },
                    { "graphs", t->n_graphs },
                    { "graph_bytes", t->graph_bytes },
                    { "pool_bytes", t->pool_bytes },
                    { "mapped_bytes", t->mapped_bytes },
                    { "peak_path_bytes", t->peak_path_bytes },
                    { "separate_bytes", t->separate_bytes },
                    { "held_bytes", t->held_bytes },
                    { "outside", t->outside },
                    { "evicted", t->evicted },
                    { "trims", t->trims },
                    { "pauses", t->pauses } };
    df_str s;
    df_record_begin(&s, cx->rt->journal, "graph_tree", cx->id);
    for (size_t i = 0; i < DF_LEN(numbers); i++) df_json_count(&s, numbers[i].key, numbers[i].n);
    put_reasons(&s, t);
    df_record_end(&s, cx->rt->journal);
}

void df_log_graphs(deft_ctx *cx, uint32_t device)
{
    const df_ctx_queue *const q = &cx->queues[device];
    const df_replay_stats t = q->dev->far->read_replay(q->dev, q->queue);
    if (!t.is_on) return;
    q->dev->far->each_replay(q->dev, q->queue, log_node, cx);
    log_tree(cx, device, &t);
}
