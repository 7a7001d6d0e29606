/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the pool is held: ranges in order of their addresses, and a ticket for each, which any
 * thread may drop.
 */
#ifndef DF_REPLAY_HELD_H
#define DF_REPLAY_HELD_H

#include <stdatomic.h>

#include "base/mem.h"
#include "base/vec.h"

struct df_tree_node;

typedef struct df_span {
    uint64_t begin, end; /* offsets in the pool, multiples of DF_TREE_ALIGN */
} df_span;

typedef struct df_held {
    df_span at;
    uint32_t slot; /* 0: left; nothing is held here */
} df_held;

/* Stays where it is: other threads look at it. */
typedef struct df_held_slot {
    _Atomic uint64_t generation; /* odd: held. A ticket names one generation */
    uint32_t next;               /* dropped or free: the next one there; 0: none */
    uint32_t out;                /* which output of maker */
    struct df_tree_node *maker;  /* NULL: it is gone */
    uint64_t begin;
    uint32_t position; /* where its range stood when it was added */
} df_held_slot;

enum { DF_HELD_CHUNKS = 17 }; /* of 64, 128, 256, ... slots: less than 2^23 in all */

typedef struct df_holding {
    const df_mem *mem;
    df_held_slot *chunk[DF_HELD_CHUNKS];
    uint32_t n_chunks, n_free, free; /* the first free slot; slots are numbered from 1 */
    _Atomic uint32_t dropped;        /* the slot that was dropped last */
    DF_VEC(df_held) held;            /* ascending, disjoint */
    size_t n_left;                   /* ranges of held that were left */
    uint64_t bytes;                  /* held */
} df_holding;

void df_holding_init(df_holding *h, const df_mem *mem);
void df_holding_finish(df_holding *h);

/* Room for n more; false when memory is short. */
bool df_holding_reserve(df_holding *h, uint32_t n);
/* Leaves what has been dropped. */
void df_holding_drain(df_holding *h);
/* Takes the ranges out that were left. */
void df_holding_tidy(df_holding *h);
/* A ticket for output `out` of maker, at `at`; its range is added by df_holding_add. */
uint64_t df_holding_ticket(df_holding *h, struct df_tree_node *maker, uint32_t out, df_span at,
                           uint32_t *slot);
/* Adds n ranges that overlap nothing, ascending; reserved before. */
void df_holding_add(df_holding *h, const df_held *more, uint32_t n);

df_held_slot *df_holding_slot(const df_holding *h, uint32_t slot);
/* The first range, held or left, that ends behind offset; held.n: none does. */
size_t df_holding_find(const df_holding *h, uint64_t offset);
/* Where the last range ends that is held. */
uint64_t df_holding_end(df_holding *h);
/* Whether ranges, held or left, ascend and are disjoint: for assertions. */
bool df_holding_is_ordered(const df_holding *h);
/* maker goes: what it made stays. */
void df_holding_orphan(df_holding *h, const struct df_tree_node *maker);

/* Any thread. */
void df_holding_drop(df_holding *h, uint64_t ticket);
bool df_holding_is_held(const df_holding *h, uint64_t ticket);

#endif
