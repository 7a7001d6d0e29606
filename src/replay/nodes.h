/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes of a graph tree: how a child is found, and in which order the leaves were used.
 */
#ifndef DF_REPLAY_NODES_H
#define DF_REPLAY_NODES_H

#include "replay/placement.h"

/* One node: a call at the end of its path. */
typedef struct df_tree_node {
    struct df_tree_node *parent, *latest;     /* latest: the child that was used last; or NULL */
    struct df_tree_node *child, *next, *prev; /* child: any child; next, prev: siblings */
    struct df_tree_node *chain;               /* next node in the same cell of the table */
    struct df_tree_node *older, *newer;       /* only of leaves: the ring in order of use */
    struct df_tree_node *before, *after;      /* of all nodes: the list in order of numbers */
    uint64_t number, fn, variant;             /* fn and variant are those of df_tree_call */
    uint64_t used;                            /* df_nodes.clock when it was used last */
    uint64_t calls, done[5];                  /* done: launches of its graph by df_tree_action */
    df_layout *layout;
    void *graph; /* NULL when it has none */
    uint64_t graph_bytes;
    bool placed;           /* layout is the placement with which graph was last launched */
    bool had_graph;        /* it had a graph since the latest trim */
    uint8_t why_unplaced;  /* a df_tree_reason; valid with a graph that is not placed */
    uint8_t why_refused;   /* a df_tree_reason; valid while tries_in > 0 */
    uint8_t latest_reason; /* the df_tree_reason of the latest call */
    uint32_t depth;        /* number of calls on the path to it, itself included */
    uint32_t tries_in,
        backoff; /* calls until it is tried again; the value of tries_in at the latest failure */
} df_tree_node;

/* All nodes of a graph tree. */
typedef struct df_nodes {
    const df_mem *mem;
    df_tree_node root;
    df_tree_node leaves; /* head of a ring: leaves.older is the newest, leaves.newer the oldest */
    df_tree_node *first, *last; /* by number */
    df_tree_node **table;       /* hash table of all nodes but the root */
    size_t n_slots;             /* cells of the table, a power of two */
    size_t n;                   /* number of nodes without the root */
    uint64_t n_made, clock;     /* nodes ever created; calls of df_nodes_touch */
} df_nodes;

/* Returns false when memory runs out. mem is borrowed until df_nodes_finish. */
bool df_nodes_init(df_nodes *s, const df_mem *mem);
/* Frees all nodes. Their graphs must have been dropped. */
void df_nodes_finish(df_nodes *s);

/* The child of p with the function, signature and sizes of c, or NULL. */
df_tree_node *df_nodes_find(const df_nodes *s, const df_tree_node *p, const df_tree_call *c);
/* Makes n the most recently used node. */
void df_nodes_touch(df_nodes *s, df_tree_node *n);
/* Adds a child of p for c and makes it the most recently used node. Returns NULL when memory runs
 * out. */
df_tree_node *df_nodes_add(df_nodes *s, df_tree_node *p, const df_tree_call *c);
/* Removes and frees n, which must have neither a graph nor children. */
void df_nodes_remove(df_nodes *s, df_tree_node *n);
/* Turns n into the node of c, which has the same function and another signature. If both have
 * equally many outputs, n keeps which of them are outside the pool and how often each was in the
 * way. Returns false when memory runs out, and then changes nothing. */
bool df_nodes_rename(df_nodes *s, df_tree_node *n, const df_tree_call *c);
/* Counts the children of p with function fn. *oldest becomes the least recently used of them, or
 * NULL. */
uint32_t df_nodes_variants(const df_tree_node *p, uint64_t fn, df_tree_node **oldest);
/* The least recently used leaf other than `but`, which may be NULL. Returns NULL when there is
 * none. */
df_tree_node *df_nodes_oldest_leaf(const df_nodes *s, const df_tree_node *but);

#endif
