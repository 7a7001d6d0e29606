/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph tree on a device that is bytes: the pool is memory, a launch writes and reads it at once,
 * and an oracle that knows nothing of graphs knows what each held output has to contain.
 *
 * Three functions, each in sizes by variant: f makes one output; g reads the newest output that is
 * held and makes two; h makes one and works in a large arena. All scribble over their arena and
 * over their outputs before they read.
 */
#ifndef TEST_TREE_WORLD_H
#define TEST_TREE_WORLD_H

#include "replay/tree.h"

enum { WORLD_HELD = 64, WORLD_OUTS = 4, WORLD_POOL = 1 << 17 };

typedef enum world_fn { WORLD_F, WORLD_G, WORLD_H, WORLD_N_FN } world_fn;

typedef struct world_held {
    df_tree_ticket ticket;
    uint64_t offset, bytes;
    unsigned char *own; /* OUTSIDE: its memory */
    uint64_t seed;      /* what it has to contain */
    uint64_t node;      /* that made it */
} world_held;

typedef struct world {
    df_tree *t;
    unsigned char *pool; /* WORLD_POOL bytes, backed or not */
    uint64_t backed, serial;
    world_held held[WORLD_HELD]; /* oldest first; when it is full, a call drops the oldest */
    int n_held;
    int n_graphs, n_own;            /* alive */
    uint64_t n_records, n_launches; /* that succeeded; of graphs */
    uint64_t device_calls, fail_at; /* the fail_at-th call fails, counted from 1; 0: none */
    bool fail_graphs_only;          /* plain runs do not count */
    bool fail_record, fail_replay;  /* always */

    uint64_t pool_limit;  /* back beyond it fails; 0: WORLD_POOL */
    uint64_t graph_bytes; /* of each graph; 0: 100 */
    uint64_t wrong;       /* what must not be */
    char first_wrong[160];
    df_tree_call last; /* of the latest call; out is NULL */
} world;

/* false: no memory for the tree. The world's own memory never runs out: it ends the program. */
bool world_open(world *w, const df_mem *mem, const df_tree_options *o);
/* Drops what is held. */
void world_close(world *w);

/* Begins anew with a new tree; cheaper than closing and opening. */
bool world_again(world *w, const df_mem *mem, const df_tree_options *o);

/* Runs fn; what it makes is held. When it fails nothing is. */
deft_status world_call(world *w, world_fn fn, uint64_t variant);
/* The same, of given sizes; n_out up to WORLD_OUTS. */
deft_status world_call_sized(world *w, uint64_t fn, uint64_t variant, uint64_t arena,
                             uint32_t n_out, const uint64_t *bytes, bool unfit);
void world_drop(world *w, int i); /* of held; negative: from the newest */
void world_drop_all(world *w);
/* Compares all that is held; what differs is counted in wrong. */
void world_check(world *w);
void world_wrong(world *w, const char *what, uint64_t a, uint64_t b);

#endif
