/* SPDX-License-Identifier: Apache-2.0
 *
 * What contexts write to the structured log (base/journal.h). All functions need the
 * structured log to be on, and the thread of the context unless they say otherwise. They
 * return nothing, and a note that cannot be written is dropped.
 */
#ifndef DF_LAZY_NOTES_H
#define DF_LAZY_NOTES_H

#include "lazy/core/history.h"

/* Time that each stage of making one plan took, in nanoseconds. */
typedef struct df_phases {
    uint64_t simplify_ns, fuse_ns, prepare_ns;
} df_phases;

/* The plan p was made for m. The guards of n_misses plans with the same key did not hold. */
void df_log_plan(deft_ctx *cx, const df_cut *m, const df_plan *p, uint32_t n_misses,
                 const df_phases *phases);
/* A new plan for m runs next: stores the inputs that it reads as files. Never fails.
 * Inputs that could not be stored are logged. */
void df_log_inputs(deft_ctx *cx, const df_cut *m);
/* The guard g of plan p does not hold for the trace t with these slots. */
void df_log_miss(deft_ctx *cx, const df_plan *p, const df_guard *g, const df_trace *t,
                 const int64_t *slots);
/* No plan has the key of a program, which `field` describes. The nearest known program
 * has `expected` where this one has `found`. Both are empty when no program is known. */
void df_log_key_miss(deft_ctx *cx, const char *field, const char *expected, const char *found);
/* df_log_prepared: a cut has a plan and runs next. df_log_cut: it has run, or has failed;
 * then `failed` is not NULL. Both need nanoseconds. */
void df_log_prepared(deft_ctx *cx, bool plan_hit, uint64_t plan_ns);
void df_log_cut(deft_ctx *cx, const df_cut *m, const df_run_stats *run, uint64_t run_ns,
                const df_diag *failed);
/* A call needed a value at once, and its cut has run. */
void df_log_sync(deft_ctx *cx);
/* The cut m computed records that earlier cuts of its epoch had computed, too. */
void df_log_recompute(deft_ctx *cx, const df_cut *m);
/* A call of a capture replayed recording number `recording` by the cut m, or failed with
 * st. */
void df_log_replay(deft_ctx *cx, const df_cut *m, uintptr_t capture_site, uint32_t recording,
                   uint32_t n_in, uint32_t n_out, deft_status st);
/* A df_replay_event_fn, called when a run on a GPU was not only a replay. user: the
 * context. Called by the thread that runs the plan. */
void df_log_graph(void *user, const df_replay_event *told);
/* Writes the graph tree of the context's queue on the GPU number `device`, with all
 * nodes. Called before the queue is destroyed. */
void df_log_graphs(deft_ctx *cx, uint32_t device);
/* A step has been opened. */
void df_log_step_begin(deft_ctx *cx);
/* Called before the step is closed. reason: the call that ends the step. */
void df_log_step_end(deft_ctx *cx, const char *reason, deft_status st);
/* The innermost label has begun at `site`, or a label has ended. */
void df_log_label(deft_ctx *cx, uintptr_t site, bool begins);

#endif
