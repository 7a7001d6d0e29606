/* SPDX-License-Identifier: Apache-2.0
 *
 * Explanation: events that deft_explain shows, and the texts of plans. All functions need the
 * thread of the context.
 */
#ifndef DF_LAZY_WHY_H
#define DF_LAZY_WHY_H

#include "lazy/core/history.h"

/* Decisions of the fuser are kept only for programs of at most this many records, or for a log. */
#define DF_WHY_NODES 1024

/* Keeps the event for deft_explain, and logs it. */
void df_why_log(deft_ctx *cx, df_event *e);
/* Prints the events that are kept, one line each. They stay kept. */
void df_why_events_print(const deft_ctx *cx, df_str *out);
/* Called before the end of a step that succeeded. Adds an event when the step has recorded more
 * than the step before it at the same call site, several times in a row. */
void df_why_step(deft_ctx *cx);

/* Explains why no plan was found for m. n_misses plans had its key, but a guard of each
 * did not hold. */
void df_why_miss(deft_ctx *cx, const df_cut *m, uint32_t n_misses);
/* Logs that the plan p was made for m. n_misses as for df_why_miss. */
void df_why_plan(deft_ctx *cx, const df_cut *m, uint32_t n_misses, const df_plan *p);
/* Stores in the plan a text for each kernel that names the nodes it computes. Returns
 * false when memory runs out. */
bool df_why_kernels(df_plan *p, const df_trace *t);

#endif
