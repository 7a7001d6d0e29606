/* SPDX-License-Identifier: Apache-2.0
 *
 * Forwarding: parts of one array that updates write one after the other, where the value of each
 * update depends on parts that were written before.
 *
 *   %3 = update %0 %2 %1          x[:, 1] = e
 *   %4 = slice %3 start=[0,1]     shows what %3 has written, so %4 is e itself: %2
 *   %5 = slice %3 start=[0,2]     shows nothing that %3 has written: the same slice of %0
 *   ...
 *   %9 = update %3 %8 %7          x[:, 2] = f(%4, %5)
 *
 * After the reads %4 and %5 are replaced in this way, the values of such a *run* of updates do not
 * wait for memory. One kernel computes and writes all of them. For 16 columns of a 2000 x 2000 f64
 * array, in runs of four updates, this takes 0.6 of the time.
 *
 * An update continues a run when three conditions hold:
 *   - each read of an array that the run has written is like %4 or like %5;
 *   - its value is computed elementwise;
 *   - the parts of the array that the updates replace have equal extents.
 * When one read of an update fails, none of its reads is forwarded, since its kernel has to wait
 * for memory in any case. The arguments of this run decide which views show one place and which
 * share no element. Each such answer is a df_same_place, which the plan guards.
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

/* What forwarding does with one node of the trace. All node numbers are those of the trace, and
 * DF_NONE where a field does not apply. A *version* of an array is the base or an update of it. */
typedef struct df_forward_of {
    bool is_member;     /* an update of a run, or a node that computes its value; it reads the
                       substitutes of its operands */
    bool is_read;       /* a view that a member reads, which has a substitute: `value`, or a view of
                       `base` */
    bool is_done;       /* used while searching */
    uint32_t value;     /* for a view: the node whose value replaces it */
    uint32_t base;      /* for a view: the version of the array that it reads instead */
    uint32_t args;      /* for a slice: an earlier slice with equal bounds; it uses the arguments
                           of that slice */
    uint32_t written;   /* for a value that is read back: the update that wrote it */
    uint32_t back;      /* for a node that reads back: the version of the array to read */
    uint8_t reads_back; /* bit i is set when operand i is read back */
} df_forward_of;

/* The result of df_forward_find. */
typedef struct df_forward {
    df_forward_of *of; /* per node; NULL when nothing is forwarded */
    uint32_t n_reads;  /* bound on the nodes that the substitutes add to a copy of the trace */
} df_forward;

/* Decides what is forwarded in t. The arrays of *out and places->forward live in arena.
 * places->forward gets the facts on which the decisions rely. When places->is_bounded, only the
 * facts of known_forward may be relied on; places->lost names the first that no longer holds.
 * Fails with DEFT_E_MEMORY only. */
deft_status df_forward_find(df_diag *d, const df_trace *t, df_places *places, df_arena *arena,
                            df_forward *out);

#endif
