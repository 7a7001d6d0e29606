/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree itself: nodes, finding a child, the order of use of the leaves.
 */
#ifndef DF_REPLAY_NODES_H
#define DF_REPLAY_NODES_H

#include "replay/placement.h"

typedef struct df_tree_node {
    struct df_tree_node *parent, *latest;     /* latest: the child that was used last; or NULL */
    struct df_tree_node *child, *next, *prev; /* any child; brothers */
    struct df_tree_node *chain;               /* in the table */
    struct df_tree_node *older, *newer;       /* leaves: the order of use */
    struct df_tree_node *before, *after;      /* all: the order of numbers */
    uint64_t number, fn, variant;
    uint64_t used;           /* the clock when it was used last */
    uint64_t calls, done[5]; /* done: launches by df_tree_action */
    df_layout *layout;
    void *graph; /* NULL: none */
    uint64_t graph_bytes;
    bool placed;           /* layout is a placement, and graph's */
    bool had_graph;        /* since the latest trim */
    uint8_t why_unplaced;  /* with a graph: df_tree_reason */
    uint8_t why_refused;   /* while tries_in > 0: df_tree_reason */
    uint8_t latest_reason; /* df_tree_reason */
    uint32_t depth;
    uint32_t tries_in,
        backoff; /* calls until it is tried again; what the next failure makes them */
} df_tree_node;

typedef struct df_nodes {
    const df_mem *mem;
    df_tree_node root;
    df_tree_node leaves; /* a ring: leaves.older is the youngest, leaves.newer the oldest */
    df_tree_node *first, *last;
    df_tree_node **table;
    size_t n_slots; /* a power of two */
    size_t n;       /* the root aside */
    uint64_t n_made, clock;
} df_nodes;

bool df_nodes_init(df_nodes *s, const df_mem *mem);
void df_nodes_finish(df_nodes *s);

/* The child of p for c, NULL: none. */
df_tree_node *df_nodes_find(const df_nodes *s, const df_tree_node *p, const df_tree_call *c);
/* n is used now. */
void df_nodes_touch(df_nodes *s, df_tree_node *n);
/* A new child of p for c; NULL when memory is short. */
df_tree_node *df_nodes_add(df_nodes *s, df_tree_node *p, const df_tree_call *c);
/* n, without a graph, without children. */
void df_nodes_remove(df_nodes *s, df_tree_node *n);
/* n becomes c's, another variant of its function; what was learned of its outputs stays when they
 * are as many. false: memory is short, nothing changed. */
bool df_nodes_rename(df_nodes *s, df_tree_node *n, const df_tree_call *c);
/* How many children of p are of function fn, and the one of them that was used least recently. */
uint32_t df_nodes_variants(const df_tree_node *p, uint64_t fn, df_tree_node **oldest);
/* The least recently used leaf but for this one; NULL: none. */
df_tree_node *df_nodes_oldest_leaf(const df_nodes *s, const df_tree_node *but);

#endif
