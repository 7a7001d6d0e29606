/* SPDX-License-Identifier: Apache-2.0
 *
 * Forwarding: parts of one array that are written one after the other, each from those before.
 *
 *   %3 = update %0 %2 %1          x[:, 1] = e
 *   %4 = slice %3 start=[0,1]     what was just written: e itself, %2
 *   %5 = slice %3 start=[0,2]     nothing of what was written: the same slice of %0
 *   ...
 *   %9 = update %3 %8 %7          x[:, 2] = f(%4, %5)
 *
 * Read so, the values of such a *run* of updates wait for no memory, and one kernel computes and
 * writes all of them: 16 columns of 2000 x 2000 f64, four to a run, take 0.6 of the time.
 *
 * An update continues a run when each of its reads of what the run has written is one of the two,
 * when its value is computed elementwise, and when parts have equal extents. Of an update that
 * fails at one read nothing is forwarded, as its kernel has to wait then in any case. Which views
 * show one place and which share no element is taken from the numbers of this run; each answer is a
 * df_same_place that the plan guards.
 *
 * Reading back is the reverse. A handle that was assigned to stands for the value, %2, wherever it
 * is used. An update of a later run that used it would compute it again, from elements of %0 that
 * are written over by then; all of %0 would be copied to save them. It reads a view of %9 instead,
 * where no update since has written to that place.
 */
#ifndef DF_TRACE_FORWARD_H
#define DF_TRACE_FORWARD_H

#include "trace/place.h"

/* Per node of the trace. */
typedef struct df_forward_of {
    bool is_member; /* reads what stands in for its operands, where something does */
    bool is_read;   /* a view that a member reads: something stands in for it */
    bool is_done;
    uint32_t value; /* is_read: the node that it shows; DF_NONE: it stays a view, of */
    uint32_t base;  /* this node, or DF_NONE: of what stands in for its operand, or of that */
    uint32_t args;  /* a slice: an earlier one with equal bounds; DF_NONE */
    uint32_t
        written;   /* an update that wrote this value, which others read back from there; DF_NONE */
    uint32_t back; /* what such a node reads then: the place of that update on this base, */
    uint8_t reads_back; /* for each operand whose bit is set */
} df_forward_of;

typedef struct df_forward {
    df_forward_of *of; /* NULL: nothing is forwarded */
    uint32_t n_reads;
} df_forward;

/* Finds what is to be forwarded, in arena, and notes in places->forward what that relies on.
 * DEFT_E_MEMORY. */
deft_status df_forward_find(df_diag *d, const df_trace *t, df_places *places, df_arena *arena,
                            df_forward *out);

#endif
