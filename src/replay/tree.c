/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call is run. First the memory of dropped outputs becomes free. Then the next node of the
 * path is found or created. The node decides what to try. If that fails, or if nothing is to be
 * tried, the call runs plainly. Last, the path advances to the node.
 *
 * Invariants:
 *   - A node that is placed has a graph, and its layout is the one of the graph's latest launch.
 *   - `at` is NULL, the root, or a node that must not be evicted. NULL means that the path left
 *     the tree; no node is used until the next path begins.
 *   - Held ranges do not overlap and end below pool_bytes. A launch writes to no held range.
 */
#include "replay/tree.h"

#include <string.h>

#include "replay/nodes.h"

enum { MAX_BACKOFF = 1024, MAX_WINDOW = 64 };

struct df_tree {
    df_mem mem;
    df_tree_device dev;
    df_tree_options o;
    df_holding holding;
    df_nodes nodes;
    df_tree_node *at;      /* the end of the path */
    df_tree_reason lost;   /* why `at` is NULL */
    uint32_t path;         /* number of calls on the path, also after it left the tree */
    uint64_t bad;          /* one bit for each of the latest `window` calls: a wasted attempt */
    uint64_t pause_left;   /* calls until recording resumes; 0 when it is not paused */
    df_taken_vec taken;    /* scratch memory of df_place */
    DF_VEC(df_held) fresh; /* scratch memory: ranges of the outputs of the running call */
    df_diag failure;       /* see df_tree_failure */
    uint64_t graph_bytes, pool_bytes, peak; /* peak: df_tree_stats.peak_path_bytes */
    uint64_t calls, by_action[5], by_reason[DF_TREE_N_REASONS], evicted, trims, pauses;
};

const char *df_tree_reason_text(df_tree_reason r)
{
    static const char *const text[] = {
#define REASON(name, text) text,
        DF_TREE_REASONS(REASON)
#undef REASON
    };
    return text[r];
}

const char *df_tree_reason_name(df_tree_reason r)
{
    static const char *const names[] = {
#define REASON(name, text) #name,
        DF_TREE_REASONS(REASON)
#undef REASON
    };
    return names[r];
}

static void fill_defaults(df_tree_options *o)
{
    if (!o->warm_after) o->warm_after = 1;
    if (!o->max_variants) o->max_variants = 8;
    if (!o->learn_after) o->learn_after = 1;
    if (!o->max_nodes) o->max_nodes = 4096;
    if (!o->max_graph_bytes) o->max_graph_bytes = (uint64_t)256 << 20;
    if (!o->max_pool_bytes || o->max_pool_bytes > DF_PLACE_MAX) o->max_pool_bytes = DF_PLACE_MAX;
    if (!o->window || o->window > MAX_WINDOW) o->window = MAX_WINDOW;
    if (!o->pause) o->pause = 1024;
    if (!o->max_path) o->max_path = 64;
    if (o->max_path > o->max_nodes) o->max_path = o->max_nodes;
}

deft_status df_tree_create(df_diag *d, const df_mem *mem, const df_tree_device *dev,
                           const df_tree_options *o, df_tree **out)
{
    df_tree *const t = df_mem_zalloc(mem, sizeof *t);
    if (!t) return df_fail_mem(d, "a graph tree", sizeof *t);
    t->mem = *mem;
    t->dev = *dev;
    if (o) t->o = *o;
    fill_defaults(&t->o);
    df_holding_init(&t->holding, &t->mem);
    if (!df_nodes_init(&t->nodes, &t->mem)) {
        df_mem_free(mem, t, sizeof *t);
        return df_fail_mem(d, "a graph tree", sizeof *t);
    }
    t->at = &t->nodes.root;
    *out = t;
    return DEFT_OK;
}

static void drop_graph(df_tree *t, df_tree_node *n)
{
    if (!n->graph) return;
    t->dev.drop(t->dev.self, n->graph);
    t->graph_bytes -= n->graph_bytes;
    n->graph = NULL;
    n->graph_bytes = 0;
    n->placed = false;
}

void df_tree_destroy(df_tree **tree)
{
    df_tree *const t = *tree;
    if (!t) return;
    df_holding_drain(&t->holding);
    df_assert(t->holding.held.n == t->holding.n_left);
    for (df_tree_node *n = t->nodes.first; n; n = n->after) drop_graph(t, n);
    if (t->pool_bytes) (void)t->dev.back(t->dev.self, &t->failure, 0);
    df_nodes_finish(&t->nodes);
    df_holding_finish(&t->holding);
    df_vec_finish(&t->mem, &t->taken);
    df_vec_finish(&t->mem, &t->fresh);
    const df_mem mem = t->mem;
    df_mem_free(&mem, t, sizeof *t);
    *tree = NULL;
}

void df_tree_begin(df_tree *t)
{
    t->at = &t->nodes.root;
    t->path = 0;
}

void df_tree_drop(df_tree *t, df_tree_ticket k)
{
    df_holding_drop(&t->holding, k);
}

bool df_tree_is_held(const df_tree *t, df_tree_ticket k)
{
    return df_holding_is_held(&t->holding, k);
}

const df_diag *df_tree_failure(const df_tree *t)
{
    return &t->failure;
}

static uint64_t held_end(df_tree *t)
{
    return df_holding_end(&t->holding);
}

void df_tree_trim(df_tree *t)
{
    df_holding_drain(&t->holding);
    for (df_tree_node *n = t->nodes.first; n; n = n->after) {
        drop_graph(t, n);
        n->had_graph = false;
    }
    if (held_end(t) < t->pool_bytes &&
        t->dev.back(t->dev.self, &t->failure, held_end(t)) == DEFT_OK)
        t->pool_bytes = held_end(t);
    t->peak = t->holding.bytes;
    t->trims++;
}

/* ---- the path ---- */

/* Evicts the least recently used leaf other than `but`. Returns false when there is none. The end
 * of the path may be a leaf, but it is the newest one. It is never the only leaf when a node must
 * be evicted, since a path has at most max_nodes calls. */
static bool evict(df_tree *t, const df_tree_node *but)
{
    df_tree_node *const n = df_nodes_oldest_leaf(&t->nodes, but);
    if (!n) return false;
    df_assert(n != t->at);
    drop_graph(t, n);
    df_holding_orphan(&t->holding, n);
    df_nodes_remove(&t->nodes, n);
    t->evicted++;
    return true;
}

static df_tree_node *make_node(df_tree *t, const df_tree_call *c)
{
    df_tree_node *oldest;
    if (df_nodes_variants(t->at, c->fn, &oldest) >= t->o.max_variants) {
        if (oldest->layout->n_out != c->n_out) df_holding_orphan(&t->holding, oldest);
        return df_nodes_rename(&t->nodes, oldest, c) ? oldest : NULL;
    }
    while (t->nodes.n >= t->o.max_nodes)
        if (!evict(t, NULL)) return NULL;
    return df_nodes_add(&t->nodes, t->at, c);
}

/* Finds or creates the node of c. Returns NULL when c gets none, and then t->lost is the reason. */
static df_tree_node *find_or_make_node(df_tree *t, const df_tree_call *c)
{
    if (t->o.warm_after == UINT32_MAX) {
        t->lost = DF_TREE_WHY_off;
        return NULL;
    }
    if (t->path == t->o.max_path) df_tree_begin(t);
    if (!t->at) return NULL;
    df_tree_node *n = df_nodes_find(&t->nodes, t->at, c);
    if (n) {
        df_nodes_touch(&t->nodes, n);
        return n;
    }
    t->lost = DF_TREE_WHY_paused;
    if (t->pause_left) return NULL;
    t->lost = DF_TREE_WHY_no_memory;
    return make_node(t, c);
}

/* ---- what to try ---- */

static void unplace(df_tree_node *n, df_tree_reason why)
{
    if (n->placed) n->why_unplaced = (uint8_t)why;
    n->placed = false;
}

/* The output that occupies a held range was in the way of a placement, of its own node or of
 * another. Counts that, and moves the output outside the pool when it happens too often. */
static void learn(df_tree *t, uint32_t slot)
{
    const df_held_slot *const s = df_holding_slot(&t->holding, slot);
    if (!s->maker) return;
    df_layout *const l = s->maker->layout;
    df_assert(s->out < l->n_out);
    if (l->outside[s->out] || ++l->in_way[s->out] <= t->o.learn_after) return;
    l->outside[s->out] = true;
    unplace(s->maker, DF_TREE_WHY_learned);
}

static bool is_in_way(df_tree *t, df_tree_node *n)
{
    const df_layout *const l = n->layout;
    const df_holding *const h = &t->holding;
    bool is = false;
    if (h->held.n == 0) return false;
    for (uint32_t i = 0; i < l->n_spans; i++)
        for (size_t k = df_holding_find(h, l->spans[i].begin);
             k < h->held.n && h->held.at[k].at.begin < l->spans[i].end; k++) {
            if (!h->held.at[k].slot) continue;
            if (!is) unplace(n, DF_TREE_WHY_held);
            is = true;
            learn(t, h->held.at[k].slot);
        }
    return is;
}

static df_tree_action action_of(df_tree *t, const df_tree_call *c, df_tree_node *n,
                                df_tree_reason *why)
{
    *why = DF_TREE_WHY_unfit;
    if (c->unfit) return DF_TREE_PLAIN;
    *why = DF_TREE_WHY_hit;
    if (n->placed && !is_in_way(t, n)) return DF_TREE_REPLAY;
    *why = DF_TREE_WHY_warming;
    if (!n->graph && n->calls < t->o.warm_after) return DF_TREE_PLAIN;
    *why = n->why_refused;
    if (n->tries_in > 0) {
        n->tries_in--;
        return DF_TREE_PLAIN;
    }
    *why = DF_TREE_WHY_paused;
    if (t->pause_left) return DF_TREE_PLAIN;
    *why = n->had_graph ? DF_TREE_WHY_again : DF_TREE_WHY_first;
    if (!n->graph) return DF_TREE_RECORD;
    *why = n->why_unplaced;
    return *why == DF_TREE_WHY_variants ? DF_TREE_RESHAPE : DF_TREE_PLACE;
}

/* ---- trying it ---- */

/* Makes c run plainly, and defers the next attempt at node n. Returns false. */
static bool back_off_node(df_tree_call *c, df_tree_node *n, df_tree_reason why)
{
    n->backoff = n->backoff ? (uint32_t)df_min_i64(2 * n->backoff, MAX_BACKOFF) : 1;
    n->tries_in = n->backoff;
    n->why_refused = (uint8_t)why;
    c->action = DF_TREE_PLAIN;
    c->reason = why;
    return false;
}

static df_tree_reason reason_of(deft_status st)
{
    return st == DEFT_E_MEMORY ? DF_TREE_WHY_no_memory : DF_TREE_WHY_failed;
}

/* Gives n a placement in the pool, and backs it with memory. */
static bool place(df_tree *t, df_tree_call *c, df_tree_node *n)
{
    uint64_t end;
    if (!df_place(n->layout, &t->holding, &t->taken, t->pool_bytes, t->o.max_pool_bytes, &end))
        return false;
    if (end <= t->pool_bytes) return true;
    c->failed = t->dev.back(t->dev.self, &t->failure, end) != DEFT_OK;
    if (c->failed) return false;
    t->pool_bytes = end;
    return true;
}

static bool record_node_graph(df_tree *t, df_tree_call *c, df_tree_node *n,
                              const df_tree_placement *p)
{
    void *graph = NULL;
    uint64_t bytes = 0;
    const deft_status st = t->dev.record(t->dev.self, &t->failure, c, p, &graph, &bytes);
    c->failed = st != DEFT_OK;
    if (c->failed) return back_off_node(c, n, reason_of(st));
    n->graph = graph;
    n->graph_bytes = bytes;
    t->graph_bytes += bytes;
    while (t->graph_bytes > t->o.max_graph_bytes && evict(t, n)) {
    }
    if (t->graph_bytes <= t->o.max_graph_bytes) return true;
    drop_graph(t, n);
    return back_off_node(c, n, DF_TREE_WHY_no_memory);
}

/* After a launch: fills in c->out, and holds the outputs that are in the pool. */
static void publish_node_outputs(df_tree *t, df_tree_call *c, df_tree_node *n)
{
    const df_layout *const l = n->layout;
    for (uint32_t i = 0; l->n_inside < l->n_out && i < l->n_out; i++)
        c->out[i].offset = DF_TREE_OUTSIDE, c->out[i].ticket = 0;
    for (uint32_t k = 0; k < l->n_inside; k++) {
        const uint32_t i = l->by_place[k];
        df_held *const f = &t->fresh.at[k];
        f->at = (df_span){ l->at[i], l->at[i] + df_place_bytes(l->bytes[i]) };
        c->out[i].offset = l->at[i];
        c->out[i].ticket = df_holding_ticket(&t->holding, n, i, f->at, &f->slot);
    }
    df_holding_add(&t->holding, t->fresh.at, l->n_inside);
    const uint64_t arena = l->arena_bytes ? df_place_bytes(l->arena_bytes) : 0;
    if (t->holding.bytes + arena > t->peak) t->peak = t->holding.bytes + arena;
}

/* Runs c as c->action says. Returns false when nothing ran; then c must run plainly. */
static bool launch_node(df_tree *t, df_tree_call *c, df_tree_node *n)
{
    t->fresh.n = 0;
    if (!df_holding_reserve(&t->holding, c->n_out) || !df_vec_reserve(&t->mem, &t->fresh, c->n_out))
        return back_off_node(c, n, DF_TREE_WHY_no_memory);
    if (!n->placed && !place(t, c, n)) return back_off_node(c, n, DF_TREE_WHY_no_memory);
    const df_tree_placement p = { n->layout->arena, n->layout->at };
    if (c->action == DF_TREE_RECORD && !record_node_graph(t, c, n, &p)) return false;
    const deft_status st = t->dev.replay(t->dev.self, &t->failure, n->graph, c, &p);
    n->had_graph = true;
    if (st != DEFT_OK) {
        c->failed = true;
        drop_graph(t, n);
        return back_off_node(c, n, reason_of(st));
    }
    n->placed = true;
    n->backoff = 0;
    n->done[c->action]++;
    publish_node_outputs(t, c, n);
    return true;
}

static deft_status run_plain(df_tree *t, df_diag *d, df_tree_call *c)
{
    c->action = DF_TREE_PLAIN;
    for (uint32_t i = 0; i < c->n_out; i++)
        c->out[i].offset = DF_TREE_OUTSIDE, c->out[i].ticket = 0;
    const deft_status st = t->dev.plain(t->dev.self, d, c);
    if (st != DEFT_E_MEMORY) return st;
    df_holding_drain(&t->holding);
    if (t->graph_bytes == 0 && t->pool_bytes <= held_end(t)) return st;
    df_tree_trim(t);
    return t->dev.plain(t->dev.self, d, c);
}

/* ---- after the call ---- */

/* Counts a call for pauses. bad: the call made a wasted attempt (tree.h). */
static void count_wasted_attempt(df_tree *t, bool bad)
{
    if (t->pause_left) {
        t->pause_left--;
        return;
    }
    const uint64_t mask = t->o.window == 64 ? UINT64_MAX : ((uint64_t)1 << t->o.window) - 1;
    t->bad = (t->bad << 1 | bad) & mask;
    if (!bad || df_popcount(t->bad) <= t->o.window / 2) return;
    t->bad = 0;
    t->pause_left = t->o.pause;
    t->pauses++;
}

static void advance_path(df_tree *t, const df_tree_call *c, df_tree_node *n, bool bad)
{
    t->by_action[c->action]++;
    t->by_reason[c->reason]++;
    count_wasted_attempt(t, bad);
    t->at = n;
    t->path++;
    if (!n) return;
    n->calls++;
    n->latest_reason = (uint8_t)c->reason;
}

deft_status df_tree_run(df_tree *t, df_diag *d, df_tree_call *c)
{
    bool tried = false, launched = false;
    df_holding_drain(&t->holding);
    t->calls++;
    df_tree_node *const n = find_or_make_node(t, c);
    c->node = n ? n->number : 0;
    c->failed = false;
    c->action = DF_TREE_PLAIN;
    c->reason = t->lost;
    if (n) c->action = action_of(t, c, n, &c->reason);
    const bool fine = c->action == DF_TREE_REPLAY || c->reason == DF_TREE_WHY_first;
    if (c->action != DF_TREE_PLAIN) tried = true, launched = launch_node(t, c, n);
    const deft_status st = launched ? DEFT_OK : run_plain(t, d, c);
    if (st == DEFT_OK) advance_path(t, c, n, tried && !(fine && launched));
    return st;
}

/* ---- statistics and dumps ---- */

static df_tree_about node_info(const df_tree_node *n)
{
    const df_layout *const l = n->layout;
    const uint64_t placements = n->done[DF_TREE_PLACE] + n->done[DF_TREE_RESHAPE];
    uint32_t n_outside = 0;
    for (uint32_t i = 0; i < l->n_out; i++) n_outside += l->outside[i];
    return (df_tree_about){ .node = n->number,
                            .parent = n->parent->number,
                            .fn = n->fn,
                            .variant = n->variant,
                            .calls = n->calls,
                            .replays = n->done[DF_TREE_REPLAY] + placements,
                            .recordings = n->done[DF_TREE_RECORD],
                            .placements = placements,
                            .arena = l->arena,
                            .arena_bytes = l->arena_bytes,
                            .pool_bytes = l->pool_bytes,
                            .out = n->placed ? l->at : NULL,
                            .out_bytes = l->bytes,
                            .graph_bytes = n->graph_bytes,
                            .depth = n->depth,
                            .n_out = l->n_out,
                            .n_outside = n_outside,
                            .has_graph = n->graph != NULL,
                            .graph = n->graph,
                            .latest = n->latest_reason };
}

bool df_tree_latest(const df_tree *t, df_tree_about *out)
{
    if (!t->at || t->at == &t->nodes.root) return false;
    *out = node_info(t->at);
    return true;
}

void df_tree_each(const df_tree *t, void (*f)(void *user, const df_tree_about *a), void *user)
{
    for (const df_tree_node *n = t->nodes.first; n; n = n->after) {
        const df_tree_about a = node_info(n);
        f(user, &a);
    }
}

df_tree_stats df_tree_read(df_tree *t)
{
    df_holding_drain(&t->holding);
    df_tree_stats s = { .calls = t->calls,
                        .n_nodes = t->nodes.n,
                        .graph_bytes = t->graph_bytes,
                        .evicted = t->evicted,
                        .trims = t->trims,
                        .pauses = t->pauses,
                        .pause_left = t->pause_left,
                        .pool_bytes = t->pool_bytes,
                        .peak_path_bytes = t->peak,
                        .held = t->holding.held.n - t->holding.n_left,
                        .held_bytes = t->holding.bytes };
    memcpy(s.by_action, t->by_action, sizeof s.by_action);
    memcpy(s.by_reason, t->by_reason, sizeof s.by_reason);
    for (const df_tree_node *n = t->nodes.first; n; n = n->after) {
        const df_tree_about a = node_info(n);
        s.n_graphs += a.has_graph;
        s.separate_bytes += a.has_graph ? a.pool_bytes : 0;
        s.outside += a.n_outside;
    }
    return s;
}
