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
 * Reading back is the reverse. After an assignment through a handle, the handle denotes the
 * assigned value (%2) wherever the program uses it. Suppose that an update of a later run uses the
 * handle. Its kernel would compute the value again, from elements of %0 that the earlier run
 * overwrites, and all of %0 would have to be copied first. Such an update therefore reads a view of
 * %9 instead. This is possible when no update since then has written to the same place.
 */
#ifndef DF_TRACE_FORWARD_H
#define DF_TRACE_FORWARD_H

#include "trace/place.h"

/* What is known of one node of the trace. */
typedef struct df_forward_of {
    bool is_member; /* a value of a run, or part of one: it reads the substitutes of its operands */
    bool is_read;   /* a view that such a node reads; it has a substitute: `value`, or a view of
                       `base` */
    bool is_done;
    uint32_t value;     /* of a view: the node whose value it shows; DF_NONE */
    uint32_t base;      /* of a view: the version of the array that it shows; DF_NONE: unchanged */
    uint32_t args;      /* of a slice: an earlier slice with equal bounds; DF_NONE */
    uint32_t written;   /* of a value that is read back: the update that wrote it; DF_NONE */
    uint32_t back;      /* of a node that reads back: the version of the array to read; DF_NONE */
    uint8_t reads_back; /* bit i: operand i is read back */
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
