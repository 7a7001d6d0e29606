/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the fuser: keeping a plan within a limit of memory.
 *
 *   keep.c            what to compute again, and when to stop
 *   rematerialize.c   copies of groups
 *   live_bytes.c      bytes that live at each launch
 */
#ifndef DF_FUSER_KEEP_H
#define DF_FUSER_KEEP_H

#include "fuser/fuse.h"

#define MAX_COPIES 12 /* groups done again for the sake of one value */
#define MAX_MADE 64   /* values that one of them stores */
#define MAX_STRETCHES 64
#define MAX_RANGES 192

typedef struct copy {
    uint32_t group, level;
    uint32_t until; /* the last launch at which another copy reads it */
    bool epilogue;  /* of a product: what follows it alone */
    bool stored;    /* another copy reads its product, which therefore cannot stay in tiles */
} copy;

typedef struct stretch {
    uint32_t place, to;
} stretch;

typedef struct range {
    uint32_t from, to;
    int64_t bytes;
} range;

typedef struct candidate {
    uint32_t val;
    double score; /* bytes freed per work */
} candidate;

typedef struct keeper {
    pass *p;
    int64_t *live;          /* bytes, per launch */
    uint32_t peak;          /* the launch at which most lives */
    DF_VEC(uint32_t) newer; /* per val: the next copy of it, by launch; DF_NONE */
    DF_VEC(int64_t) bytes;  /* per place, not rounded */
    uint32_t *until;        /* per input: the first launch that writes its memory */
    DF_VEC(candidate) at_peak;
    bool dear; /* products may be repeated */
    /* what is tried */
    copy copies[MAX_COPIES];
    uint32_t n_copies;
    stretch stretches[MAX_STRETCHES];
    uint32_t n_stretches;
    range ranges[MAX_RANGES];
    uint32_t n_ranges;
    double work;
    bool full; /* more ranges than there is room for */
} keeper;

/* Readers up to a launch and beyond: the last of the former, first and last of the latter. */
typedef struct readers {
    uint32_t early, first, last; /* first DF_NONE: none is beyond */
} readers;

DF_INLINE deft_status df_keep_no_memory(const pass *p)
{
    return df_fail_mem(p->diag, "fuser", p->vals.n * sizeof(uint32_t));
}

DF_INLINE int64_t df_keep_rounded(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

DF_INLINE uint32_t df_keep_level_of(const pass *p, uint32_t v)
{
    return p->groups.at[p->vals.at[v].group].level;
}

DF_INLINE bool df_keep_is_temporary(const pass *p, uint32_t q)
{
    const storage *const w = &p->places.at[q];
    return w->kind == STORAGE_TEMP && !w->unused && w->first <= w->last;
}

/* The first launch from which place q takes memory that it does not take yet, if it gets a reader
 * later than all that it has. A product that nobody reads stays in tiles and takes no memory at
 * all: its first reader has it stored, from the launch that makes it. */
DF_INLINE uint32_t df_keep_free_from(const pass *p, uint32_t q)
{
    const storage *const w = &p->places.at[q];
    return w->unused ? w->first : w->last + 1;
}

/* A val with a temporary of its own, all written by one group. */
DF_INLINE bool df_keep_is_alone(const pass *p, uint32_t v)
{
    const val *const w = &p->vals.at[v];
    return w->plain && w->over == DF_NONE && w->over_by == DF_NONE && w->frames == DF_NONE &&
           w->root == DF_NONE && p->places.at[w->place].kind == STORAGE_TEMP;
}

/* The latest copy of v that is there before launch `level`. */
DF_INLINE uint32_t df_keep_version_at(const keeper *k, uint32_t v, uint32_t level)
{
    for (uint32_t n = k->newer.at[v]; n != DF_NONE && df_keep_level_of(k->p, n) < level;
         n = k->newer.at[n])
        v = n;
    return v;
}

/* ---- live_bytes.c ---- */

/* Adds bytes, which may be negative, to what lives at the launches from `from` to `to`. */
void df_keep_add_live(keeper *k, uint32_t from, uint32_t to, int64_t bytes);
/* Adds (sign 1) or subtracts (sign -1) the bytes of place q over its live range. Places that are no
 * temporaries count nothing. */
void df_keep_count_place(keeper *k, uint32_t q, int sign);
/* Appends rows for the vals and places that were added since the last call. Returns DEFT_E_MEMORY
 * when memory runs out. */
deft_status df_keep_follow(keeper *k);
/* The launches that read val v, on both sides of `launch`. */
readers df_keep_readers_of(const pass *p, uint32_t v, uint32_t launch);

/* ---- rematerialize.c ---- */

/* Does again what is tried, for the sake of val v. */
deft_status df_keep_do_copies(keeper *k, uint32_t v);

#endif
