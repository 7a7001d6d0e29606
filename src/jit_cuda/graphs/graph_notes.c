/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of the graph tree of a queue, and its text for people.
 */
#include "jit_cuda/graphs/graphs.h"

#include <stdio.h>

_Static_assert((int)DF_TREE_N_REASONS < (int)DF_REPLAY_REASONS,
               "the last one says that there are no more");

static df_replay_stats read_stats(df_cuda_graphs *s)
{
    const df_tree_stats t = df_tree_read(s->tree);
    df_replay_stats out = { .is_on = true,
                            .calls = t.calls,
                            .plain = t.by_action[DF_TREE_PLAIN],
                            .recorded = t.by_action[DF_TREE_RECORD],
                            .replayed = t.by_action[DF_TREE_REPLAY],
                            .placed = t.by_action[DF_TREE_PLACE],
                            .reshaped = t.by_action[DF_TREE_RESHAPE],
                            .updates = s->updates,
                            .tables = s->tables,
                            .launches = s->launches,
                            .works = s->works,
                            .work_calls = s->work_calls,
                            .n_nodes = t.n_nodes,
                            .n_graphs = t.n_graphs,
                            .graph_bytes = t.graph_bytes,
                            .pool_bytes = t.pool_bytes,
                            .mapped_bytes = df_cuda_pool_bytes(s->pool),
                            .peak_path_bytes = t.peak_path_bytes,
                            .separate_bytes = t.separate_bytes,
                            .held = t.held,
                            .held_bytes = t.held_bytes,
                            .outside = t.outside,
                            .evicted = t.evicted,
                            .trims = t.trims,
                            .pauses = t.pauses,
                            .hits = s->told.hits };
    for (uint32_t i = 0; i < DF_TREE_N_REASONS; i++) {
        out.reason[i] = t.by_reason[i];
        out.reason_text[i] = df_tree_reason_text((df_tree_reason)i);
        out.reason_name[i] = df_tree_reason_name((df_tree_reason)i);
    }
    const df_diag *const failure = df_tree_failure(s->tree);
    if (failure->status != DEFT_OK)
        (void)snprintf(out.failure, sizeof out.failure, "%s", failure->text);
    return out;
}

df_replay_stats df_cuda_graphs_read(df_cuda_graphs *s)
{
    df_cuda_graphs_lock(s);
    const df_replay_stats out = read_stats(s);
    df_cuda_graphs_unlock(s);
    return out;
}

static void show_node(void *user, const df_tree_about *a)
{
    df_str *const out = user;
    const df_cuda_kept *const k = a->graph;
    df_str_fmt(out, "%*snode %llu: ", (int)(2 * a->depth), "", (unsigned long long)a->node);
    if (df_cuda_is_work(a->fn))
        df_str_fmt(out, "work%s%s", k ? " " : "", k ? df_cuda_captured_name(k->work) : "");
    else
        df_str_fmt(out, "%s %llu", a->fn & DF_CUDA_WHOLE ? "loop or branch of plan" : "plan",
                   (unsigned long long)(a->fn & ~DF_CUDA_WHOLE));
    df_str_fmt(out, ", %llu calls, %llu replayed: %s\n", (unsigned long long)a->calls,
               (unsigned long long)a->replays, df_tree_reason_text(a->latest));
    if (!a->has_graph) return;
    df_str_fmt(out,
               "%*s  %llu bytes of the pool, arena %llu at %llu, %u outputs, %u of them "
               "outside\n",
               (int)(2 * a->depth), "", (unsigned long long)a->pool_bytes,
               (unsigned long long)a->arena_bytes, (unsigned long long)a->arena, a->n_out,
               a->n_outside);
}

void df_cuda_graphs_each(df_cuda_graphs *s, df_replay_event_fn listen, void *user)
{
    df_cuda_graphs_lock(s);
    df_cuda_tree_notes_each(s->tree, df_cuda_graphs_device(s), listen, user);
    df_cuda_graphs_unlock(s);
}

bool df_cuda_graphs_show(df_cuda_graphs *s, df_str *out)
{
    df_cuda_graphs_lock(s);
    const df_replay_stats t = read_stats(s);
    df_str_fmt(out,
               "%llu runs: %llu plain, %llu recorded, %llu replayed, %llu placed anew, "
               "%llu reshaped; %llu nodes updated, %llu tables put in\npool: %llu bytes, the most "
               "at once %llu, "
               "%llu in pools apart; %llu outputs held\n",
               (unsigned long long)t.calls, (unsigned long long)t.plain,
               (unsigned long long)t.recorded, (unsigned long long)t.replayed,
               (unsigned long long)t.placed, (unsigned long long)t.reshaped,
               (unsigned long long)t.updates, (unsigned long long)t.tables,
               (unsigned long long)t.pool_bytes, (unsigned long long)t.peak_path_bytes,
               (unsigned long long)t.separate_bytes, (unsigned long long)t.held);
    if (t.works > 0)
        df_str_fmt(out, "%llu of the runs are works, whose functions were called %llu times\n",
                   (unsigned long long)t.works, (unsigned long long)t.work_calls);
    if (t.failure[0]) df_str_fmt(out, "the latest graph that failed: %s\n", t.failure);
    df_tree_each(s->tree, show_node, out);
    df_cuda_graphs_unlock(s);
    return out->ok;
}
