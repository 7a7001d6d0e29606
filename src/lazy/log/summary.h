/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of a runtime, which is written when the runtime ends (DEFT_STATS). Its
 * lines go to the log hook under the topic "stats", and to a file when the variable names
 * one.
 */
#ifndef DF_LAZY_SUMMARY_H
#define DF_LAZY_SUMMARY_H

#include "lazy/core/lazy.h"

typedef struct df_summary df_summary;

/* Creates the summary before the device, whose launches are measured for it. Returns NULL
 * when no summary is wanted. Also returns NULL when memory runs out, which is logged
 * under "error". */
df_summary *df_summary_open(deft_runtime *r);
/* Where the device reports its launches. NULL when s is NULL. */
struct df_spent *df_summary_spent(df_summary *s);
/* Adds the counters of cx, which ends. Does nothing when s is NULL. Any thread. */
void df_summary_add(df_summary *s, const deft_ctx *cx);
/* Writes the summary. All contexts have ended, and the device still exists. s may be
 * NULL. */
void df_summary_log(df_summary *s, deft_runtime *r);
void df_summary_close(df_summary **s); /* *s may be NULL, and is NULL afterwards */

#endif
