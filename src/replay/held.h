/* SPDX-License-Identifier: Apache-2.0
 *
 * The held ranges of the pool, in the order of their addresses. Each range has a ticket, which any
 * thread may drop. A range whose ticket was dropped is a *left* range: it stays in the list without
 * a slot, until the same range is held again or until it is removed.
 *
 * One thread calls all functions except df_holding_drop and df_holding_is_held.
 */
#ifndef DF_REPLAY_HELD_H
#define DF_REPLAY_HELD_H

#include <stdatomic.h>

#include "base/mem.h"
#include "base/vec.h"

struct df_tree_node;

/* A range of the pool. */
typedef struct df_span {
    uint64_t begin, end; /* offsets in the pool, multiples of DF_TREE_ALIGN; end is exclusive */
} df_span;

/* A range in the list of held and left ranges. */
typedef struct df_held {
    df_span at;
    uint32_t slot; /* number of its slot; 0 for a left range, which is not held */
} df_held;

/* The state of one ticket. A slot never moves in memory, because other threads read it. */
typedef struct df_held_slot {
    _Atomic uint64_t generation; /* odd while held; a ticket names one slot and one generation */
    uint32_t next;               /* next slot in the list of dropped or of free slots; 0: none */
    uint32_t out;                /* index of the output of maker */
    struct df_tree_node *maker;  /* the node whose call wrote the output; NULL if it is gone */
    uint64_t begin;              /* offset of its range */
    uint32_t position;           /* index of its range in df_holding.held when it was added */
} df_held_slot;

enum { DF_HELD_CHUNKS = 17 }; /* chunks have 64, 128, 256, ... slots: less than 2^23 in all */

/* All ranges and tickets of a graph tree. */
typedef struct df_holding {
    const df_mem *mem;
    df_held_slot *chunk[DF_HELD_CHUNKS];
    uint32_t n_chunks, n_free, free; /* free: the first free slot; slots are numbered from 1 */
    _Atomic uint32_t dropped;        /* head of the list of dropped slots; 0: none */
    DF_VEC(df_held) held;            /* held and left ranges, ascending and disjoint */
    size_t n_left;                   /* number of left ranges in held */
    uint64_t bytes;                  /* size of all ranges that are held */
} df_holding;

/* mem is borrowed until df_holding_finish. */
void df_holding_init(df_holding *h, const df_mem *mem);
void df_holding_finish(df_holding *h);

/* Makes room for n more ranges and tickets. Returns false when memory runs out. */
bool df_holding_reserve(df_holding *h, uint32_t n);
/* Turns the ranges of all dropped tickets into left ranges. */
void df_holding_drain(df_holding *h);
/* Removes all left ranges. */
void df_holding_tidy(df_holding *h);
/* Creates a ticket for output `out` of maker in the range `at`, and stores the number of its slot.
 * A slot must have been reserved. df_holding_add must then add the range. */
uint64_t df_holding_ticket(df_holding *h, struct df_tree_node *maker, uint32_t out, df_span at,
                           uint32_t *slot);
/* Adds n ranges, in ascending order, for which room was reserved. They must overlap no held range
 * and not each other. */
void df_holding_add(df_holding *h, const df_held *more, uint32_t n);

/* The slot with a number from 1 on. */
df_held_slot *df_holding_slot(const df_holding *h, uint32_t slot);
/* The index of the first range, held or left, that ends after offset; held.n when there is none. */
size_t df_holding_find(const df_holding *h, uint64_t offset);
/* The end of the last held range; 0 when nothing is held. Removes left ranges. */
uint64_t df_holding_end(df_holding *h);
/* Whether all ranges, held and left, are ascending and disjoint. For assertions. */
bool df_holding_is_ordered(const df_holding *h);
/* Forgets the node maker, which is about to be removed. Its outputs remain held. Removes left
 * ranges. */
void df_holding_orphan(df_holding *h, const struct df_tree_node *maker);

/* Drops a ticket. A ticket that is 0 or names nothing has no effect. Any thread may call this. */
void df_holding_drop(df_holding *h, uint64_t ticket);
/* Whether the ticket still names a held range. Any thread may call this. */
bool df_holding_is_held(const df_holding *h, uint64_t ticket);

#endif
