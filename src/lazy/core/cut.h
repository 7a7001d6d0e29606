/* SPDX-License-Identifier: Apache-2.0
 *
 * From records to a trace: which records a cut computes, from which values. cut.c. All functions
 * need the thread of the context.
 */
#ifndef DF_LAZY_CUT_H
#define DF_LAZY_CUT_H

#include "lazy/core/context.h"

/* Whether a run may write a result over the memory of v, the value that the result replaces.
 * `dying` references to v end with the replacement. This is the one proof that donation needs, for
 * steps, submitted steps, replays of captures, and graphs. They all get its answer as
 * DF_INPUT_SOLE:
 *
 *   1. The memory is deft's own: v does not wrap memory of the caller, on the host or on a GPU.
 *   2. Nobody names v after the run. Every owner that outlives the run counts in v->refs: handles,
 *      undo entries, mappings, and what is still to be written to the caller's memory. Whoever
 *      cuts must therefore, before the cut is made, count those that would refer to v only after
 *      the run: handles that look through a record (resolve_one in handle.c), and tensors to which
 *      a replay hands v unchanged (hold_passed in capture.c). Then v->refs equals `dying`.
 *   3. No other value and no run in flight uses the buffer: its count is 1.
 *
 * The plan proves that all reads of v within the run come before the write
 * (fuser/memory/storage.c, and fuser/control/flatten.c for traces with loops). States of a loop,
 * which nobody outside the run can name, are judged by their buffers (runtime/exec/flow.c). */
bool df_may_donate(const df_value *v, uint32_t dying);

/* Fills in *out with the closed trace of the n wanted records, and the value behind each input.
 * On failure the error is in cx->diag. */
deft_status df_extract(deft_ctx *cx, const df_want *want, uint32_t n, struct df_cut *out);
/* Finds the device on which the record `node` would be computed by itself. */
deft_status df_cut_where(deft_ctx *cx, uint32_t node, deft_device *out);
/* Adds to cx->want the other results of each loop or call that cx->want needs, if a handle names
 * them or is computed from them. */
deft_status df_want_siblings(deft_ctx *cx);
/* Refreshes the cached cut m: arguments, extents and values become those of this epoch. Returns
 * false when the trace of m is not the trace of the wanted records any more. */
bool df_extract_again(deft_ctx *cx, const df_want *want, uint32_t n, struct df_cut *m);
/* Refreshes a cut whose trace was not made from records of this epoch. Input k reads values[k];
 * NULL stands for memory that is only written. Arguments and extents stay as they are. */
bool df_extract_values(deft_ctx *cx, const df_want *want, df_value *const *values,
                       struct df_cut *m);

#endif
