/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches within a trace. Everything stays one list of nodes; what belongs to a loop is
 * told by what it depends on.
 *
 *   %4 = loop i64[] %3 most=100       the number of the iteration; %3: a constant, or the loop
 *                                     that this one is part of
 *   %5 = carry f32[8] %init %4        a state: %init in the first iteration, then what next says
 *   %6 = each f32[8] %rows %4         row %4 of %rows, whose first axis has 100 elements
 *   %7 = add f32[8] %5 %6             any op: depends on %4, so it is part of the loop
 *   %8 = proceed bool[] %test %4      optional: when false, the iteration does not take place
 *   %9 = next f32[8] %5 %7 %8         all states advance together. next and stack form a list, by
 *  %10 = stack f32[100,8] %7 %9       their last operands, that begins at the proceed or the loop
 *  %11 = final f32[8] %9 %10          a state, or the rows, when the loop has ended; names the end
 *                                     of the list, so that all of a loop is needed or nothing
 *
 * A node that depends on nothing of the loop is none of its own: it is computed once, before.
 *
 *  %14 = cond f32[8] %test %a %b      %a if %test, else %b. What only %a needs is computed only
 *                                     when %test is true, and so with %b.
 */
#ifndef DF_TRACE_CONTROL_H
#define DF_TRACE_CONTROL_H

#include "trace/trace.h"

#define DF_MAX_NESTING 16

typedef struct df_loop_info {
    uint32_t node;
    uint32_t parent;  /* index of the loop it is part of, or DF_NONE */
    uint32_t depth;   /* 0: of none */
    uint32_t end;     /* last of its list; the loop itself when that is empty */
    uint32_t proceed; /* or DF_NONE */
    uint32_t n_states, n_rows;
    uint32_t *list; /* its next nodes, then its stack nodes, each in the order of the list */
} df_loop_info;

typedef struct df_control {
    df_loop_info *loops; /* in node order */
    uint32_t n_loops, n_conds;
    uint32_t *inside; /* per node: index of the innermost loop it is part of, or DF_NONE */
} df_control;

/* Whether t has loops or branches at all. */
bool df_has_control(const df_trace *t);

/* The loops of t, in arena, and whether they are well-formed: the sentence names the node. Takes
 * nothing for granted but what the verifier checks of single nodes. */
deft_status df_control_find(df_diag *d, const df_trace *t, df_arena *arena, df_control *out);

/* Whether loop `in` is `of` or is part of it; either may be DF_NONE. All is part of DF_NONE. */
bool df_control_is_within(const df_control *c, uint32_t in, uint32_t of);

/* The node before k in its loop's list. */
DF_INLINE uint32_t df_control_before(const df_trace *t, uint32_t k)
{
    return t->nodes[k].src[t->nodes[k].n_src - 1].i;
}

#endif
