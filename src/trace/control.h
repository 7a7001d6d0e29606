/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches within a trace. All nodes remain in one list. Whether a node is part of a
 * loop follows from its operands.
 *
 *    %4 = loop i64[] %3 most=100      The number of the iteration, at most 100 of them. %3 is a
 *                                     constant, or the loop that contains this loop.
 *    %5 = carry f32[8] %init %4       A state: %init in the first iteration, later the second
 *                                     operand of its next.
 *    %6 = each f32[8] %rows %4        Row %4 of %rows, whose first axis has 100 elements.
 *    %7 = add f32[8] %5 %6            Any operator. It depends on %4, so it is in the loop.
 *    %8 = proceed bool[] %test %4     Optional. The loop ends before the first iteration in which
 *                                     %test is false.
 *    %9 = next f32[8] %5 %7 %8        State %5 becomes %7. All states advance together.
 *   %10 = stack f32[100,8] %7 %9      The values of %7 in all iterations, as rows.
 *   %11 = final f32[8] %9 %10         The last value of a state, or all rows, after the loop.
 *
 * proceed, next and stack form the *list* of a loop. The last operand of each is the element
 * before it. The first element names the loop itself. The second operand of every final is the
 * end of the list, so that either the complete loop is needed or nothing of it.
 *
 * A node that does not depend on the loop is outside: it is computed once, before the loop.
 *
 *   %14 = cond f32[8] %test %a %b     %a if %test is true, else %b. Nodes that only %a needs are
 *                                     computed only when %test is true; likewise for %b.
 */
#ifndef DF_TRACE_CONTROL_H
#define DF_TRACE_CONTROL_H

#include "trace/trace.h"

#define DF_MAX_NESTING 16 /* loops around a node */

/* One loop. Loops are numbered from 0 in node order. */
typedef struct df_loop_info {
    uint32_t node;             /* its loop node */
    uint32_t parent;           /* index of the loop that contains this loop, or DF_NONE */
    uint32_t depth;            /* number of loops around this loop */
    uint32_t end;              /* last node of its list; the loop node when the list is empty */
    uint32_t proceed;          /* its proceed node, or DF_NONE */
    uint32_t n_states, n_rows; /* numbers of its next nodes and of its stack nodes */
    uint32_t *list; /* its next nodes, then its stack nodes, each in the order of the list */
} df_loop_info;

/* All loops of a trace, and the number of its branches. */
typedef struct df_control {
    df_loop_info *loops; /* in node order */
    uint32_t n_loops, n_conds;
    uint32_t *inside; /* per node: index of the innermost loop that contains it, or DF_NONE */
} df_control;

/* Whether t has any loop or branch. */
bool df_has_control(const df_trace *t);

/* Finds the loops of t and checks that they are well-formed. The arrays of *out live in arena. On
 * failure, d gets a sentence that names the node. The nodes of t must have passed the checks that
 * df_trace_verify applies to single nodes; nothing else is assumed. */
deft_status df_control_find(df_diag *d, const df_trace *t, df_arena *arena, df_control *out);

/* Whether loop `in` equals loop `of` or is nested in it. Both are indices of loops. DF_NONE stands
 * for the trace outside all loops, so every loop is within DF_NONE. */
bool df_control_is_within(const df_control *c, uint32_t in, uint32_t of);

/* The last operand of node k. For a proceed, next or stack node this is the element before k in
 * the list of its loop, or the loop itself. */
DF_INLINE uint32_t df_control_before(const df_trace *t, uint32_t k)
{
    return t->nodes[k].src[t->nodes[k].n_src - 1].i;
}

#endif
