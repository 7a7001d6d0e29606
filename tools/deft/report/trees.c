/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees: see trees.h.
 *
 * A tree is that of a process, a context and a device. Of a node the latest line counts. A log may
 * hold anything: a node's parent need not be there, and the page asks of it no more than that its
 * number is smaller.
 */
#include "trees.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "deft/status.h"

enum {
    MAX_TREES = 256,
    MAX_REASONS = 64,      /* of a tree */
    MAX_WORD = 64,         /* bytes of a reason or an action */
    MAX_FAILURE = 512,     /* of what a device said */
    MAX_NODE_RANGES = 512, /* of a layout: the rest is left out */
    MAX_RANGES = 1 << 17,  /* of all layouts together */
};

struct report_trees {
    bool ok;
    json_t *trees, *index, *decisions; /* index: rows of trees by name */
    json_t *nodes[MAX_TREES];          /* rows of nodes by number */
    size_t max_events, max_nodes, n_kept_nodes, n_ranges;
    uint64_t n_trees, n_nodes, n_decisions;
};

static void put(report_trees *t, json_t *object, const char *key, DEFT_OWN json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) t->ok = false;
}

static void append(report_trees *t, json_t *array, DEFT_OWN json_t *value)
{
    if (json_array_append_new(array, value) != 0) t->ok = false;
}

static int64_t count_of(const json_t *record, const char *key)
{
    const int64_t n = log_int(record, key, 0);
    return n > 0 ? n : 0;
}

static void add_to(report_trees *t, json_t *object, const char *key, int64_t n)
{
    const int64_t had = count_of(object, key);
    put(t, object, key, json_integer(had > INT64_MAX - n ? INT64_MAX : had + n));
}

/* The numbers of list, "a b c"; 0 where there is none. */
static void copy_counts(report_trees *t, json_t *to, const json_t *record, const char *list)
{
    char key[64];
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, list);
        put(t, to, key, json_integer(count_of(record, key)));
    }
}

/* A text of at most n bytes, cut between characters; null: there is none. */
static json_t *text_of(const json_t *record, const char *key, size_t n)
{
    const char *const text = log_string(record, key);
    if (!text) return json_null();
    if (strlen(text) <= n) return json_string(text);
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    return json_stringn(text, n);
}

/* ---- trees, nodes ---- */

static json_t *new_tree(const log_line *line)
{
    const json_t *const context = json_object_get(line->record, "context");
    return json_pack("{s:i s:I s:I s:[] s:{} s:{} s:I s:n}", "process", (int)line->process,
                     "context",
                     json_is_integer(context) ? json_integer_value(context) : (json_int_t)0,
                     "device", (json_int_t)count_of(line->record, "device"), "nodes", "actions",
                     "reasons", "hits", (json_int_t)0, "totals");
}

/* The row of the line's tree, made when it is the first; NULL: too many. */
static json_t *tree_of(report_trees *t, const log_line *line, size_t *at)
{
    char name[96];
    snprintf(name, sizeof name, "%u/%lld/%lld", line->process,
             (long long)count_of(line->record, "context"),
             (long long)count_of(line->record, "device"));
    const json_t *const known = json_object_get(t->index, name);
    *at = known ? (size_t)json_integer_value(known) : json_array_size(t->trees);
    if (known) return json_array_get(t->trees, *at);
    t->n_trees++;
    if (*at == MAX_TREES) return NULL;
    t->nodes[*at] = json_object();
    append(t, t->trees, new_tree(line));
    put(t, t->index, name, json_integer((json_int_t)*at));
    t->ok &= t->nodes[*at] != NULL;
    return t->ok ? json_array_get(t->trees, *at) : NULL;
}

/* The row of a node, made when it is the first; NULL: it is none, or too many. */
static json_t *node_of(report_trees *t, size_t tree, const json_t *record)
{
    char name[32];
    const int64_t number = log_int(record, "node", 0);
    if (number <= 0) return NULL;
    snprintf(name, sizeof name, "%lld", (long long)number);
    json_t *row = json_object_get(t->nodes[tree], name);
    if (row) return row;
    t->n_nodes++;
    if (t->n_kept_nodes == t->max_nodes) return NULL;
    t->n_kept_nodes++;
    put(t, t->nodes[tree], name, json_object());
    row = json_object_get(t->nodes[tree], name);
    append(t, json_object_get(json_array_get(t->trees, tree), "nodes"), json_incref(row));
    return t->ok ? row : NULL;
}

static bool is_range(const json_t *r)
{
    const json_t *const offset = json_array_get(r, 0), *const bytes = json_array_get(r, 1);
    if (json_array_size(r) != 2 || !json_is_integer(bytes)) return false;
    if (json_is_null(offset)) return json_integer_value(bytes) >= 0;
    return json_is_integer(offset) && json_integer_value(offset) >= 0 &&
           json_integer_value(bytes) >= 0;
}

/* Pairs of offset, or null, and bytes, so that the page need not ask again; null: not placed. */
static json_t *layout_of(report_trees *t, const json_t *layout)
{
    const size_t n = json_array_size(layout);
    if (n == 0) return json_null();
    json_t *const out = json_array();
    for (size_t i = 0; i < n && i < MAX_NODE_RANGES && t->n_ranges < MAX_RANGES; i++) {
        json_t *const r = json_array_get(layout, i);
        if (!is_range(r)) break;
        append(t, out, json_incref(r));
        t->n_ranges++;
    }
    return out;
}

static void fill_node(report_trees *t, json_t *row, const json_t *r)
{
    copy_counts(t, row, r,
                "node parent depth runs replays recordings placements outputs outside arena_bytes "
                "node_bytes graph_bytes");
    put(t, row, "variant", text_of(r, "variant", MAX_WORD));
    put(t, row, "reason", text_of(r, "reason", MAX_WORD));
    put(t, row, "has_graph", json_boolean(log_bool(r, "has_graph")));
    t->n_ranges -= json_array_size(json_object_get(row, "layout"));
    put(t, row, "layout", layout_of(t, json_object_get(r, "layout")));
}

/* ---- lines ---- */

/* Counts a word; what is beyond the bound is left out. */
static void tally(report_trees *t, json_t *counts, const json_t *r, const char *key)
{
    const char *const word = log_string(r, key);
    if (!word || strlen(word) > MAX_WORD) return;
    if (!json_object_get(counts, word) && json_object_size(counts) == MAX_REASONS) return;
    add_to(t, counts, word, 1);
}

/* Keeps the newest: twice as many as are wanted are held, so that dropping is rare. */
static void keep_newest(report_trees *t, size_t most, size_t beyond)
{
    const size_t n = json_array_size(t->decisions);
    if (n < most + beyond) return;
    json_t *const newest = json_array();
    for (size_t i = n - most; i < n && newest; i++)
        if (json_array_append(newest, json_array_get(t->decisions, i)) != 0) t->ok = false;
    t->ok &= newest != NULL;
    json_decref(t->decisions);
    t->decisions = newest;
}

static void add_decision(report_trees *t, const log_line *line, size_t tree)
{
    const json_t *const r = line->record;
    json_t *const e = json_object();
    put(t, e, "tree", json_integer((json_int_t)tree));
    put(t, e, "t", json_integer(line->t_ns));
    copy_counts(t, e, r, "node path hits updates evicted trims pauses pause_left pool_bytes");
    put(t, e, "action", text_of(r, "action", MAX_WORD));
    put(t, e, "reason", text_of(r, "reason", MAX_WORD));
    put(t, e, "failure", text_of(r, "failure", MAX_FAILURE));
    append(t, t->decisions, e);
    t->n_decisions++;
    keep_newest(t, t->max_events, t->max_events);
}

static void add_graph(report_trees *t, const log_line *line, int64_t plan, DEFT_OWN json_t *site)
{
    const json_t *const r = line->record;
    size_t at;
    json_t *const tree = tree_of(t, line, &at), *const row = tree ? node_of(t, at, r) : NULL;
    if (row) {
        fill_node(t, row, r);
        put(t, row, "plan", plan < 0 ? json_null() : json_integer(plan));
        put(t, row, "site", json_incref(site));
    }
    json_decref(site);
    if (!tree) return;
    tally(t, json_object_get(tree, "actions"), r, "action");
    tally(t, json_object_get(tree, "reasons"), r, "reason");
    add_to(t, tree, "hits", count_of(r, "hits"));
    copy_counts(t, tree, r, "pool_bytes held_bytes evicted trims pauses path");
    add_decision(t, line, at);
}

static void add_node(report_trees *t, const log_line *line)
{
    size_t at;
    json_t *const row = tree_of(t, line, &at) ? node_of(t, at, line->record) : NULL;
    if (row) fill_node(t, row, line->record);
    if (row) put(t, row, "stayed", json_true());
}

static void add_totals(report_trees *t, const log_line *line)
{
    size_t at;
    json_t *const tree = tree_of(t, line, &at), *const totals = json_object();
    const json_t *const reasons = json_object_get(line->record, "reasons");
    json_t *const counts = json_object();
    copy_counts(t, totals, line->record,
                "runs plain recorded replayed placed reshaped hits updates launches nodes graphs "
                "graph_bytes pool_bytes mapped_bytes peak_path_bytes separate_bytes held_bytes "
                "outside evicted trims pauses");
    for (size_t i = 0; i < json_array_size(reasons) && i < MAX_REASONS; i++) {
        const json_t *const one = json_array_get(reasons, i);
        const char *const word = log_string(one, "reason");
        if (word && strlen(word) <= MAX_WORD)
            put(t, counts, word, json_integer(count_of(one, "runs")));
    }
    put(t, totals, "reasons", counts);
    if (tree)
        put(t, tree, "totals", totals);
    else
        json_decref(totals);
}

bool report_trees_add(report_trees *t, const log_line *line, int64_t plan, DEFT_OWN json_t *site)
{
    if (strcmp(line->type, "graph") == 0) {
        add_graph(t, line, plan, site);
        return t->ok;
    }
    json_decref(site);
    if (strcmp(line->type, "graph_node") == 0)
        add_node(t, line);
    else if (strcmp(line->type, "graph_tree") == 0)
        add_totals(t, line);
    return t->ok;
}

/* ---- the whole ---- */

report_trees *report_trees_create(size_t n_events, size_t n_nodes)
{
    report_trees *t = df_mem_zalloc(&df_mem_system, sizeof *t);
    if (!t) return NULL;
    t->max_events = n_events;
    t->max_nodes = n_nodes;
    t->trees = json_array();
    t->index = json_object();
    t->decisions = json_array();
    t->ok = t->trees && t->index && t->decisions;
    if (!t->ok) report_trees_destroy(&t);
    return t;
}

void report_trees_destroy(report_trees **trees)
{
    report_trees *const t = *trees;
    *trees = NULL;
    if (!t) return;
    for (size_t i = 0; i < MAX_TREES; i++) json_decref(t->nodes[i]);
    json_decref(t->trees);
    json_decref(t->index);
    json_decref(t->decisions);
    df_mem_free(&df_mem_system, t, sizeof *t);
}

static void put_list(report_trees *t, json_t *root, json_t *shown, const char *name, json_t *list,
                     uint64_t n)
{
    put(t, root, name, json_incref(list));
    put(t, shown, name, json_pack("[II]", (json_int_t)json_array_size(list), (json_int_t)n));
}

bool report_trees_put(report_trees *t, json_t *root, json_t *shown)
{
    keep_newest(t, t->max_events, 1);
    put_list(t, root, shown, "trees", t->trees, t->n_trees);
    put_list(t, root, shown, "decisions", t->decisions, t->n_decisions);
    put(t, shown, "nodes", json_pack("[II]", (json_int_t)t->n_kept_nodes, (json_int_t)t->n_nodes));
    return t->ok;
}
