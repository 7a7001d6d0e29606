/* SPDX-License-Identifier: Apache-2.0
 *
 * Places: which elements of a base a chain of views shows.
 *
 * Bounds of slices are arguments, so the identity of a trace does not decide whether two slices
 * show one place. The values of the arguments in this run decide it. A plan that relies on the
 * answer must guard it (fuser/plan.h, df_plan_guard_places). So the plan remains valid when two
 * equal windows move together.
 *
 *   %1 = slice %0 start=[1]      a place of %0: element i is element 1 + i of %0
 *   %2 = slice %0 start=[1]      the same place, if the extents are equal too
 *   %3 = slice %1 start=[1]      element i is element 2 + i of %0
 */
#ifndef DF_TRACE_PLACE_H
#define DF_TRACE_PLACE_H

#include "trace/trace.h"

enum { DF_PLACE_MOST_VIEWS = 32 }; /* bound on the views of a chain that df_place_of follows */

/* A fact about two views in one run, `node` and `as`, which are nodes of the trace.
 *
 *   gap == 0           They show the same elements.
 *   gap == 1 + 2 * j   `node` ends before `as` begins, along axis j of the array.
 *   gap == 2 + 2 * j   `node` begins after the end of `as`, along axis j of the array.
 *
 * With a gap, the two may be views of two versions of one array (trace/forward.h), and both have
 * step 1 along all axes. */
typedef struct df_same_place {
    uint32_t node, as, gap;
} df_same_place;

/* Facts about places that df_trace_simplify_now may use, and those that it has used. */
typedef struct df_places {
    /* In. When is_bounded, two views count as one place only if these pairs say so too. */
    const df_same_place *known;
    uint32_t n_known;
    bool is_bounded;     /* in: only known facts may be used */
    df_same_place *pair; /* out: pairs that the copy relies on, by rising `node`, in its arena */
    uint32_t n;          /* out: number of pairs */
    /* In. When is_bounded, forwarding relies on exactly these facts, or on none. */
    const df_same_place *known_forward;
    uint32_t n_known_forward;
    df_same_place *forward; /* out: facts that forwarding relies on, in the arena of the copy */
    uint32_t n_forward;     /* out */
    uint32_t lost; /* out: first index in known_forward that does not hold in this run; DF_NONE */
} df_places;

/* The place of a view. Take element i of the view, where i is one index per axis. Its index along
 * axis j of the base is
 *     off[j] + coef[j] * i[axis[j]], or off[j] where axis[j] is -1.
 * off and coef are terms, as df_place_terms defines them. From index `rank` on, axis is -1 and the
 * other two are 0. */
typedef struct df_view_place {
    uint32_t base, rank; /* a node, and its rank */
    int64_t off[DEFT_MAX_RANK];
    int64_t coef[DEFT_MAX_RANK]; /* 0 where axis is -1 */
    int8_t axis[DEFT_MAX_RANK];
} df_view_place;

/* How the terms of a place are computed. A term is either a number of this run or the index of a
 * slot of a plan. In both cases the terms 0 and 1 mean the numbers 0 and 1. */
typedef struct df_place_terms {
    int64_t (*arg)(void *user, uint32_t arg); /* the term of argument `arg` of the trace */
    /* The term of a sum, difference, product or maximum of two terms. */
    int64_t (*op)(void *user, df_slot_op op, int64_t a, int64_t b);
    void *user;
} df_place_terms;

/* Finds the place of a node by following its chain of views down to the base. The walk stops at a
 * node that is no view, and at a reshape or an expand. Below `node` itself, the walk also stops at
 * a node that is set in is_updated, which has one byte per node and may be NULL. After
 * DF_PLACE_MOST_VIEWS views the walk stops in any case. A node at which the walk stops immediately
 * is its own base. */
void df_place_of(const df_trace *t, uint32_t node, const uint8_t *is_updated,
                 const df_place_terms *terms, df_view_place *out);

/* df_place_of with the numbers of this run as terms. */
void df_place_now(const df_trace *t, uint32_t node, const uint8_t *is_updated, df_view_place *out);

/* Sets is_updated[k] to 1 for each node k that is the first operand of an update. The caller
 * passes t->n_nodes bytes, all 0. */
void df_place_find_updated(const df_trace *t, uint8_t *is_updated);

/* Like df_trace_simplify. Under DF_PASS_CSE the copy may also share views that show one place in
 * this run, and forward what an update has written (trace/forward.h). The copy is valid for a run
 * of the same key if all facts in places->pair and places->forward hold in that run. With places
 * NULL this is df_trace_simplify. */
deft_status df_trace_simplify_now(df_diag *d, const df_trace *in, uint32_t passes,
                                  df_places *places, df_arena *arena, df_trace **out,
                                  uint32_t **from);

/* ---- finding ---- */

/* One view of the copy that df_trace_simplify_now builds. */
typedef struct df_place_entry {
    df_view_place place; /* its base is a node of the copy */
    uint64_t hash;
    uint32_t node; /* the view, as a node of the copy */
    uint32_t from; /* the view, as a node of the trace */
    uint32_t op;   /* reshape or expand, whose operand is the base; 0 for any other view */
} df_place_entry;

/* Finds views of the copy by the elements that they show. */
typedef struct df_place_table {
    const df_trace *t;
    const uint8_t *is_updated; /* per node of t, from df_place_find_updated */
    df_places *places;
    df_place_entry *entry; /* has room for every view of t */
    uint32_t n;            /* number of entries */
    uint32_t *index;       /* hash table with open addressing: index of an entry + 1; 0 is free */
    uint32_t mask;         /* number of cells of the hash table - 1 */
    uint32_t *first; /* per node of t: the first node of the same place, by places->known; NULL
                        unless places->is_bounded */
} df_place_table;

/* Initialises an empty table. All its arrays and places->pair live in arena. Fails with
 * DEFT_E_MEMORY only. */
deft_status df_place_table_init(df_diag *d, df_place_table *s, const df_trace *t,
                                const uint8_t *is_updated, df_places *places, df_arena *arena);
/* Returns the node of the copy that shows the same elements as view k of the trace, and appends
 * the two views to places->pair. Returns DF_NONE when there is no such node. map gives the node of
 * the copy for each node of the trace below k. */
uint32_t df_place_find(df_place_table *s, uint32_t k, const uint32_t *map);
/* Adds view k of the trace, which is node `copy` of the copy. map is as for df_place_find. */
void df_place_add(df_place_table *s, uint32_t k, uint32_t copy, const uint32_t *map);

#endif
