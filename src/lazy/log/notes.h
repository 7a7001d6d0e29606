/* SPDX-License-Identifier: Apache-2.0
 *
 * What contexts tell the structured log (base/journal.h). None of these is called without one.
 */
#ifndef DF_LAZY_NOTES_H
#define DF_LAZY_NOTES_H

#include "lazy/core/history.h"

/* Times of making one plan. */
typedef struct df_phases {
    uint64_t simplify_ns, fuse_ns, prepare_ns;
} df_phases;

/* p was made for m; n_misses plans of its key did not fit. */
void df_log_plan(deft_ctx *cx, const df_cut *m, const df_plan *p, uint32_t n_misses,
                 const df_phases *phases);
/* The plan of m was made and runs next: stores what it reads. Never fails: what could not be stored
 * is told. */
void df_log_inputs(deft_ctx *cx, const df_cut *m);
/* g, a guard of p, does not hold on t. */
void df_log_miss(deft_ctx *cx, const df_plan *p, const df_guard *g, const df_trace *t,
                 const int64_t *slots);
/* The same of a program that no plan has the key of. */
void df_log_key_miss(deft_ctx *cx, const char *field, const char *expected, const char *found);
/* A cut has a plan, and runs next; then: it ran, or could not. */
void df_log_prepared(deft_ctx *cx, bool plan_hit, uint64_t plan_ns);
void df_log_cut(deft_ctx *cx, const df_cut *m, const df_run_stats *run, uint64_t run_ns,
                const df_diag *failed);
void df_log_sync(deft_ctx *cx);
void df_log_recompute(deft_ctx *cx, const df_cut *m);
void df_log_replay(deft_ctx *cx, const df_cut *m, uintptr_t capture_site, uint32_t recording,
                   uint32_t n_in, uint32_t n_out, deft_status st);
/* A df_replay_event_fn: a run on a GPU was no mere replay. user: the context. The
 * thread that runs the plan. */
void df_log_graph(void *user, const df_replay_event *told);
/* The graph tree of its queue on the GPU `device`, with all nodes: the queue is about to go. */
void df_log_graphs(deft_ctx *cx, uint32_t device);
void df_log_step_begin(deft_ctx *cx);
/* Before the step is closed. */
void df_log_step_end(deft_ctx *cx, const char *reason, deft_status st);
/* The innermost label, within which site is, has begun; or one has ended. */
void df_log_label(deft_ctx *cx, uintptr_t site, bool begins);

#endif
