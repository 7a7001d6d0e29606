/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to deft report: what stands beside the model on the page, and the page.
 */
#ifndef TOOL_REPORT_PARTS_H
#define TOOL_REPORT_PARTS_H

#include <jansson.h>
#include <stdio.h>

#include "base/compiler.h"

/* What the machine can do at most, in 1e9 a second; 0: unknown. record_ns: the time that one
 * recording call takes, in ns. */
typedef struct report_limits {
    double gbytes, gflops, record_ns;
    uint32_t threads;
} report_limits;

/* Memory by a sum of three arrays that no cache holds, operations by the library's own product of
 * matrices that one does, each on all threads that the process may use. Less than half a second. */
report_limits report_measure(void);
/* The time of one recording call in a sequence that is recorded again and again, in ns; 0 when no
 * context can be created. Some milliseconds. */
double report_measure_recording(void);

/* Texts of the files that the sites ("mlp.c:41 (train) in encoder") name, as {"mlp.c": text},
 * looked for below the folders: regular files only, no links, bounded. NULL: out of memory. */
json_t *report_sources(const json_t *sites, const char *const *folders, size_t n);

/* The text, packed where that is worth it: see pack.c. A new reference; null for null, NULL: out of
 * memory. */
json_t *report_pack(const json_t *text);

/* The data as it stands in the page: JSON of ASCII without any '<'. false: it could not be written.
 */
bool report_write_data(FILE *f, const json_t *data);

/* The whole page. false: it could not be written, or there was no memory. */
bool report_write_page(FILE *f, const json_t *data);

#endif
