/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the fuser: the bytes of temporaries that are live at the peak. Groups are moved to
 * later launches where that lowers it. Under a bound on temporaries, values are also computed again
 * instead of being kept. The unit of both is a group: a *copy* of a group does the same work in a
 * later launch.
 *
 *   postpone.c        moves groups to later launches
 *   keep.c            chooses what to compute again, and when to stop
 *   rematerialize.c   makes the copies of groups
 *   over.c            stores values over operands
 *   live_bytes.c      counts the bytes that are live at each launch
 */
#ifndef DF_FUSER_KEEP_H
#define DF_FUSER_KEEP_H

#include "fuser/fuse.h"

#define MAX_COPIES 12 /* groups that are computed again for one value */
#define MAX_MADE 64   /* values that one of these groups stores */
#define MAX_STRETCHES 64
#define MAX_RANGES 192

/* A copy of a group that is being tried. */
typedef struct copy {
    group_id group;
    uint32_t level; /* the launch of the copy */
    uint32_t until; /* the last launch at which another copy reads its values */
    bool epilogue;  /* only the epilogue of a product is computed again, not the product */
    bool stored;    /* another copy reads its product, which then cannot stay in tiles */
} copy;

/* A place whose live range would grow: up to launch `to`. */
typedef struct stretch {
    place_id place;
    uint32_t to;
} stretch;

/* A change of the live bytes at the launches from .. to. */
typedef struct range {
    uint32_t from, to;
    int64_t bytes;
} range;

typedef struct candidate {
    val_id val;
    double score; /* bytes freed at the peak per estimated nanosecond of work; 0: of no use */
} candidate;

typedef struct keeper {
    pass *p;
    int64_t *live;         /* per launch: bytes of live temporaries */
    uint32_t peak;         /* the launch with the most live bytes */
    DF_VEC(val_id) newer;  /* per val: its copy with the next later launch, or DF_NONE */
    DF_VEC(int64_t) bytes; /* per place, not rounded */
    uint32_t *until;       /* per input: the first launch that writes its memory */
    DF_VEC(candidate) at_peak;
    bool dear; /* products may be computed again, too */
    /* What is being tried: */
    copy copies[MAX_COPIES];
    uint32_t n_copies;
    stretch stretches[MAX_STRETCHES];
    uint32_t n_stretches;
    range ranges[MAX_RANGES];
    uint32_t n_ranges;
    double work; /* estimated nanoseconds */
    bool full;   /* there were more ranges than MAX_RANGES */
} keeper;

/* The launches that read a val, seen from a given launch. `early` is the last launch up to the
 * given one that reads the val, or else the launch that writes it. `first` and `last` are the first
 * and the last later launch that reads it. */
typedef struct readers {
    uint32_t early, first, last; /* first DF_NONE: no later launch reads it */
} readers;

/* Reports that memory ran out. Returns DEFT_E_MEMORY. */
DF_INLINE deft_status df_keep_no_memory(const pass *p)
{
    return df_fail_mem(p->diag, "fuser", p->vals.n * sizeof(uint32_t));
}

/* The launch that writes val v. */
DF_INLINE uint32_t df_keep_level_of(const pass *p, val_id v)
{
    return group_at(p, val_at(p, v)->group)->level;
}

/* Whether place q takes memory of the arena. */
DF_INLINE bool df_keep_is_temporary(const pass *p, place_id q)
{
    const storage *const w = place_at(p, q);
    return w->kind == STORAGE_TEMP && !w->unused && w->first <= w->last;
}

/* The first launch at which place q would take additional memory if a later reader were added. That
 * is the launch after its live range. A product that stays in tiles takes no memory so far. Its
 * first reader makes it stored, from the launch that computes it on. */
DF_INLINE uint32_t df_keep_free_from(const pass *p, place_id q)
{
    const storage *const w = place_at(p, q);
    return w->unused ? w->first : w->last + 1;
}

/* Whether val v has a temporary of its own, and one group writes all of it. */
DF_INLINE bool df_keep_is_alone(const pass *p, val_id v)
{
    const val *const w = val_at(p, v);
    return w->plain && IS_NONE(w->over) && IS_NONE(w->over_by) && IS_NONE(w->frames) &&
           w->root == DF_NONE && place_at(p, w->place)->kind == STORAGE_TEMP;
}

/* The latest copy of v, or v itself, that is computed before launch `level`. */
DF_INLINE val_id df_keep_version_at(const keeper *k, val_id v, uint32_t level)
{
    for (val_id n = k->newer.at[v.i]; !IS_NONE(n) && df_keep_level_of(k->p, n) < level;
         n = k->newer.at[n.i])
        v = n;
    return v;
}

/* ---- live_bytes.c ---- */

/* Adds bytes, which may be negative, to what lives at the launches from `from` to `to`. */
void df_keep_add_live(keeper *k, uint32_t from, uint32_t to, int64_t bytes);
/* Adds (sign 1) or subtracts (sign -1) the bytes of place q over its live range. Places that are no
 * temporaries count nothing. One that is stored over another counts from its second launch on. */
void df_keep_count_place(keeper *k, place_id q, int sign);
/* Appends rows for the vals and places that were added since the last call. Returns DEFT_E_MEMORY
 * when memory runs out. */
deft_status df_keep_follow(keeper *k);
/* Counts the bytes of all temporaries: sets k->live and k->bytes. Needs k->p and live ranges. */
deft_status df_keep_count(keeper *k);
/* Frees the vectors of k. */
void df_keep_finish(keeper *k);
/* The least bytes by which storing a value over an operand, or postponing a group, must lower the
 * peak. */
int64_t df_keep_least_gain(const keeper *k);
/* Sets k->peak. */
void df_keep_find_peak(keeper *k);
/* The launches that read val v, up to `launch` and after it. */
readers df_keep_readers_of(const pass *p, val_id v, uint32_t launch);
/* Notes that the live range of place q would last until launch `to`. Returns false when there are
 * too many such places. */
bool df_keep_stretch(keeper *k, place_id q, uint32_t to);
/* Adds a change to k->ranges, and one for each of k->stretches. Sets k->full when there are too
 * many. */
void df_keep_add_range(keeper *k, uint32_t from, uint32_t to, int64_t bytes);
void df_keep_add_stretches(keeper *k);
/* Adds the changes to the live bytes (sign 1), or takes them back (sign -1). */
void df_keep_apply_ranges(keeper *k, int sign);
/* Whether the changes lower the peak, and all launches at which they add bytes stay below it. */
bool df_keep_is_lower(keeper *k);

/* ---- over.c ---- */

/* Stores a value over an operand, if that lowers the live bytes at the peak. Returns the value and
 * sets *under to the operand. Returns DF_NONE when there is no such value. */
val_id df_keep_store_over(keeper *k, val_id *under);
/* Gives all values that are stored over operands memory of their own again. */
void df_keep_store_apart(keeper *k);
/* Notes for people which values are stored over operands. */
void df_keep_explain_over(pass *p);

/* ---- rematerialize.c ---- */

/* Adds the copies that are being tried, k->copies, to the plan. They make a copy of val v. */
deft_status df_keep_do_copies(keeper *k, val_id v);

#endif
