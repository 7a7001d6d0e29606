/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a report: how long the steps opened at each source line took, as histograms, and the
 * newest steps one by one. Lines `step_begin` and `step_end` are paired by process, context and
 * serial. Memory is bounded as the model's is.
 */
#ifndef TOOL_REPORT_STEPS_H
#define TOOL_REPORT_STEPS_H

#include "../log.h"

typedef struct report_steps report_steps;

/* n_events steps are kept one by one, the newest. NULL: out of memory. */
report_steps *report_steps_create(size_t n_events);
void report_steps_destroy(report_steps **s); /* NULL is fine */

/* Other lines are passed over. site: the step's row in the model's table of sites, or null; a
 * reference that is taken. false: out of memory. */
bool report_steps_add(report_steps *s, const log_line *line, json_t *site);

/* Puts `steps` and `step_times` into root, and how many steps there were into shown:
 *
 *   steps       [[process, begin, elapsed, site, failed]], times in ns, oldest first
 *   step_times  [{process, site, n, ns, least_ns, most_ns, buckets}]: bucket b of 160
 *               counts the steps of 2^(b/4) ns or more, and of less than 2^((b+1)/4) ns
 *
 * false: out of memory; s can only be destroyed then. */
bool report_steps_put(report_steps *s, json_t *root, json_t *shown);

#endif
