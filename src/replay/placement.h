/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement of a call in the pool: the sizes of its arena and its outputs, and an offset for
 * each of them, such that they overlap no held range.
 */
#ifndef DF_REPLAY_PLACE_H
#define DF_REPLAY_PLACE_H

#include "replay/held.h"
#include "replay/tree.h"

/* Offsets and sizes are below this bound, so that the sum of two never overflows. */
#define DF_PLACE_MAX ((uint64_t)1 << 62)

/* The sizes of a call and, once it is placed, its offsets in the pool. The struct and its arrays
 * are one block of memory. */
typedef struct df_layout {
    size_t block_size;                 /* bytes of that block */
    uint64_t arena_bytes;              /* as in df_tree_call, not rounded */
    uint64_t arena;                    /* offset of the arena; 0 when there is none */
    uint64_t pool_bytes;               /* of the pool: the arena and the outputs in it together */
    uint32_t n_out, n_inside, n_spans; /* outputs; outputs in the pool; elements of spans */
    uint64_t *bytes, *at; /* per output: size, as in df_tree_call; offset or DF_TREE_OUTSIDE */
    df_span *spans;       /* ranges of the arena and the outputs; ascending, adjacent ones joined */
    uint32_t *by_size;    /* all outputs, smallest first */
    uint32_t *by_place;   /* the outputs in the pool, by ascending offset */

    /* tree.c changes these two, and nodes.c copies them to a new layout. df_place leaves them as
     * they are. */
    uint32_t *in_way; /* per output: how often, still held, it was in the way of a node */
    bool *outside;    /* per output: it must not be placed in the pool */
} df_layout;

/* Creates a layout with the sizes of c, without offsets. The caller destroys it with the same mem.
 * Returns NULL when memory runs out. */
df_layout *df_layout_create(const df_mem *mem, const df_tree_call *c);
/* *l may be NULL, and is NULL afterwards. */
void df_layout_destroy(const df_mem *mem, df_layout **l);

/* Whether c has the sizes of l. */
bool df_layout_fits(const df_layout *l, const df_tree_call *c);

/* A range that is occupied while offsets are searched. */
typedef struct df_taken {
    df_span at;
    uint32_t what; /* an output, or a constant of placement.c */
} df_taken;
typedef DF_VEC(df_taken) df_taken_vec;

/* Finds offsets for the arena and the outputs of l. Their ranges overlap neither each other nor a
 * held range. Stores in *end where the last of these ranges ends. First removes the left ranges of
 * h (held.h).
 *
 * `backed` is how many bytes of the pool are backed with memory. A result that ends within them is
 * accepted at once. Otherwise several orders are tried, and the one that ends first is chosen.
 *
 * Returns false when memory runs out, or when the result would end after `max`, which is at most
 * DF_PLACE_MAX. The offsets of l and *end are then undefined, and l keeps its spans.
 *
 * *taken is scratch memory. The caller keeps it between calls, and frees it. */
bool df_place(df_layout *l, df_holding *h, df_taken_vec *taken, uint64_t backed, uint64_t max,
              uint64_t *end);

/* The bytes that n bytes occupy in the pool: rounded up, at least DF_TREE_ALIGN. n must be below
 * DF_PLACE_MAX. */
DF_INLINE uint64_t df_place_bytes(uint64_t n)
{
    return n ? (n + DF_TREE_ALIGN - 1) / DF_TREE_ALIGN * DF_TREE_ALIGN : DF_TREE_ALIGN;
}

#endif
