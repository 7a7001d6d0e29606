/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report shows, made from the lines of structured logs: one JSON object, whose shape is
 * described where the page reads it (js/data.js). Memory is bounded whatever the logs hold: events
 * are summed up, the newest of them are kept one by one, and texts have a budget. `shown` of the
 * object says how many there were of each and how many are in it.
 *
 * Texts in it are as a log has them: nothing is trusted, and whoever shows them escapes them.
 */
#ifndef TOOL_REPORT_MODEL_H
#define TOOL_REPORT_MODEL_H

#include "../log.h"

typedef struct report_model report_model;

/* The most that is kept. 0 of a field: its default. */
typedef struct report_bounds {
    size_t n_events;   /* of each kind, one by one: 1000 */
    size_t n_rows;     /* plans, kernels, sites, groups of events: 20000 each */
    size_t text_bytes; /* of traces, plans and code together: 32 MiB each of plans and kernels */
} report_bounds;

report_model *report_model_create(uint32_t n_processes, const report_bounds *bounds); /* or NULL */
void report_model_destroy(report_model **m);

/* A log_line_fn: user is the model. false: out of memory. */
bool report_model_add(void *user, const log_line *line);

/* The object, of which the caller has a reference; NULL: out of memory. The model can only be
 * destroyed then. */
json_t *report_model_finish(report_model *m);

#endif
