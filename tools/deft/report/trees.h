/* SPDX-License-Identifier: Apache-2.0
 *
 * Graph trees of a report: lines `graph`, `graph_node` and `graph_tree` summed up, for the page
 * "Graph trees" (the shape is described in js/trees.js). Memory is bounded as the model's is.
 */
#ifndef TOOL_REPORT_TREES_H
#define TOOL_REPORT_TREES_H

#include "../log.h"

typedef struct report_trees report_trees;

/* n_events decisions are kept one by one, the newest; n_nodes of all trees. NULL: out of memory. */
report_trees *report_trees_create(size_t n_events, size_t n_nodes);
void report_trees_destroy(report_trees **t); /* NULL is fine */

/* Other lines are passed over. plan: its row, or -1; site: of the model, a reference that is taken.
 * false: out of memory. */
bool report_trees_add(report_trees *t, const log_line *line, int64_t plan, json_t *site);

/* Puts `trees` and `decisions` into root, and how many there were into shown. false: out of memory;
 * t can only be destroyed then. */
bool report_trees_put(report_trees *t, json_t *root, json_t *shown);

#endif
