/* SPDX-License-Identifier: Apache-2.0
 *
 * Places: which elements of a value a chain of views shows.
 *
 * Bounds of slices are arguments, so the identity of a trace does not say whether two slices show
 * one place. Here their values decide. Whoever relies on the answer guards it (fuser/plan.h,
 * df_plan_guard_places), and so a window that moves together with its twin keeps its plan.
 *
 *   %1 = slice %0 start=[1]      a place of %0: element i is element 1 + i
 *   %2 = slice %0 start=[1]      the same place, when the extents are equal too
 *   %3 = slice %1 start=[1]      element i is element 2 + i of %0
 */
#ifndef DF_TRACE_PLACE_H
#define DF_TRACE_PLACE_H

#include "trace/trace.h"

enum { DF_PLACE_MOST_VIEWS = 32 }; /* of a chain that are looked through */

/* View `node` shows the elements that the earlier view `as` shows. Or, of two versions of one array
 * (trace/forward.h), it shows none of them: `gap` is then 1 + 2 * axis of the array where `node`
 * ends before `as` begins, 2 + 2 * axis where it begins behind the end of `as`; both step by one.
 */
typedef struct df_same_place {
    uint32_t node, as, gap;
} df_same_place;

/* What simplification is told of places and what it tells. */
typedef struct df_places {
    /* Where is_bounded, two views may be taken for one place only when these pairs say it too. */
    const df_same_place *known;
    uint32_t n_known;
    bool is_bounded;
    df_same_place *pair; /* out: in the arena of the copy, in rising order of `node` */
    uint32_t n;
    /* The same for forwarding. Where is_bounded, it relies on just these pairs or on none. */
    const df_same_place *known_forward;
    uint32_t n_known_forward;
    df_same_place *forward; /* out: in the arena of the copy */
    uint32_t n_forward;
    uint32_t lost; /* out: the first of known_forward that is not so in this run, or DF_NONE */
} df_places;

/* Element [i...] of a view is element off[j] + coef[j] * i[axis[j]] along axis j of base; where
 * axis[j] is -1, element off[j]. */
typedef struct df_view_place {
    uint32_t base, rank;         /* a node, and its rank */
    int64_t off[DEFT_MAX_RANK];  /* terms: see df_place_terms */
    int64_t coef[DEFT_MAX_RANK]; /* a term; 0 where axis is -1 */
    int8_t axis[DEFT_MAX_RANK];
} df_view_place;

/* How the terms of a place are computed: as the numbers of this run, or as slots of a plan. In both
 * the terms 0 and 1 stand for the numbers 0 and 1. */
typedef struct df_place_terms {
    int64_t (*arg)(void *user, uint32_t arg);
    int64_t (*op)(void *user, df_slot_op op, int64_t a, int64_t b); /* add, sub, mul, max */
    void *user;
} df_place_terms;

/* The place of a view, through the views below it down to a node that is none, is a reshape or an
 * expand, or is marked in is_updated (which may be NULL). A node that is not seen through at all is
 * its own base. */
void df_place_of(const df_trace *t, uint32_t node, const uint8_t *is_updated,
                 const df_place_terms *terms, df_view_place *out);

/* The same, its terms the numbers of this run. */
void df_place_now(const df_trace *t, uint32_t node, const uint8_t *is_updated, df_view_place *out);

/* Marks the nodes that some update writes over: is_updated has t->n_nodes bytes, all 0. */
void df_place_find_updated(const df_trace *t, uint8_t *is_updated);

/* df_trace_simplify that may also share views which show one place in this run, and forward what an
 * update has written (trace/forward.h), under DF_PASS_CSE. The copy is then valid for the runs of
 * the key in which each pair that it notes in *places is still as it says. places NULL: the same as
 * df_trace_simplify. */
deft_status df_trace_simplify_now(df_diag *d, const df_trace *in, uint32_t passes,
                                  df_places *places, df_arena *arena, df_trace **out,
                                  uint32_t **from);

/* ---- finding ---- */

typedef struct df_place_entry {
    df_view_place place; /* the base is a node of the copy */
    uint64_t hash;
    uint32_t node; /* of the copy */
    uint32_t from; /* of the trace */
    uint32_t op;   /* 0: seen through its operand; else that op */
} df_place_entry;

typedef struct df_place_table {
    const df_trace *t;
    const uint8_t *is_updated;
    df_places *places;
    df_place_entry *entry; /* room for every view of t */
    uint32_t n;
    uint32_t *index; /* open addressing: entry + 1; 0 is free */
    uint32_t mask;
    uint32_t *first; /* per node of t, where places->is_bounded: the first that it is the same as */
} df_place_table;

/* In arena, places->pair as well. DEFT_E_MEMORY. */
deft_status df_place_table_init(df_diag *d, df_place_table *s, const df_trace *t,
                                const uint8_t *is_updated, df_places *places, df_arena *arena);
/* The node of the copy that shows what view k of the trace shows, which is then noted as a pair;
 * DF_NONE: none. map: node of the copy for each node of the trace below k. */
uint32_t df_place_find(df_place_table *s, uint32_t k, const uint32_t *map);
/* View k of the trace is node `copy` of the copy. */
void df_place_add(df_place_table *s, uint32_t k, uint32_t copy, const uint32_t *map);

#endif
