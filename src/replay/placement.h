/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the memory of a call lies in the pool: its sizes, and a place for each of them that
 * overlaps nothing that is held.
 */
#ifndef DF_REPLAY_PLACE_H
#define DF_REPLAY_PLACE_H

#include "replay/held.h"
#include "replay/tree.h"

/* Offsets and sizes stay below this: sums of two do not overflow. */
#define DF_PLACE_MAX ((uint64_t)1 << 62)

/* One block of memory. */
typedef struct df_layout {
    size_t block_size;
    uint64_t arena_bytes; /* as called with, as bytes[] */
    uint64_t arena;       /* offset */
    uint64_t pool_bytes;  /* what it takes of the pool, rounded up */
    uint32_t n_out, n_inside, n_spans;
    uint64_t *bytes, *at; /* per output; at: offset or DF_TREE_OUTSIDE */
    df_span *spans;       /* all that it takes, ascending; neighbours are one */
    uint32_t *by_size;    /* the outputs, smallest first */
    uint32_t *by_place;   /* those inside, ascending */
    uint32_t *in_way;     /* per output: how often it was */
    bool *outside;        /* per output: not to be put into the pool */
} df_layout;

/* Not placed; NULL when memory is short. */
df_layout *df_layout_create(const df_mem *mem, const df_tree_call *c);
void df_layout_destroy(const df_mem *mem, df_layout **l);

/* Whether c has these sizes. */
bool df_layout_fits(const df_layout *l, const df_tree_call *c);

/* What is taken while a place is searched; kept between searches. */
typedef struct df_taken {
    df_span at;
    uint32_t what;
} df_taken;
typedef DF_VEC(df_taken) df_taken_vec;

/* Places l around what is held, its arena and outputs apart, and tells where it ends. Within
 * `backed` it is enough to fit; beyond, several ways are tried. false: memory is short, or more
 * than max would be needed; l is then as it was but for its offsets. */
bool df_place(df_layout *l, df_holding *h, df_taken_vec *taken, uint64_t backed, uint64_t max,
              uint64_t *end);

/* Bytes that n take of the pool. n is below DF_PLACE_MAX. */
DF_INLINE uint64_t df_place_bytes(uint64_t n)
{
    return n ? (n + DF_TREE_ALIGN - 1) / DF_TREE_ALIGN * DF_TREE_ALIGN : DF_TREE_ALIGN;
}

#endif
