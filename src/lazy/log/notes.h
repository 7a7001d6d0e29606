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
/* A new plan for m runs next. Stores the trace and its inputs as files in a folder of the
 * journal (df_journal_folder). Either all are stored, or nothing is, and the note says
 * why. */
void df_log_inputs(deft_ctx *cx, const df_cut *m);
/* The guard g of plan p does not hold for the trace t with these slots. */
void df_log_miss(deft_ctx *cx, const df_plan *p, const df_guard *g, const df_trace *t,
                 const int64_t *slots);
/* No plan has the key of a program. `field` describes that program, for example "a new
 * program of 3 records and 1 result". `found` says what differs from the nearest known
 * program, and `expected` what that one has there. Both are empty when no program is
 * known. */
void df_log_key_miss(deft_ctx *cx, const char *field, const char *expected, const char *found);
/* df_log_prepared: a cut has a plan and runs next. df_log_cut: it has run, or has failed;
 * then `failed` is not NULL. Both take durations in nanoseconds. df_log_prepared only
 * remembers its arguments, and df_log_cut writes the note. *run must be valid also after
 * a failure. */
void df_log_prepared(deft_ctx *cx, bool plan_hit, uint64_t plan_ns);
void df_log_cut(deft_ctx *cx, const df_cut *m, const df_run_stats *run, uint64_t run_ns,
                const df_diag *failed);
/* The call cx->act needed a value at once. The cut that computes the value has run, and
 * its plan is cx->last_plan. */
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
/* Writes the graph tree of the context's queue on the GPU with ordinal `device`, with all
 * nodes. The queue is open, and df_queue_replay gives its functions. Writes nothing when
 * the queue has no replay. Called before the queue is destroyed. */
void df_log_graphs(deft_ctx *cx, uint32_t device);
/* A step has been opened. */
void df_log_step_begin(deft_ctx *cx);
/* Called before the step is closed. reason: the call that ends the step; a static
 * string. */
void df_log_step_end(deft_ctx *cx, const char *reason, deft_status st);
/* The innermost label has begun at `site`, or a label has ended; `site` is then ignored. */
void df_log_label(deft_ctx *cx, uintptr_t site, bool begins);

#endif
