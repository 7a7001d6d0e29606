/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to lazy: the summary that a runtime gives of itself when it ends (DEFT_STATS). Its lines
 * go to the log hook under the topic "stats", and to a file where the variable names one.
 */
#ifndef DF_LAZY_SUMMARY_H
#define DF_LAZY_SUMMARY_H

#include "lazy/core/lazy.h"

typedef struct df_summary df_summary;

/* Before the device is made, whose launches it has measured. NULL: nobody asked, or there is no
 * memory, which is told under the topic "error". */
df_summary *df_summary_open(deft_runtime *r);
/* What the device is to tell of its launches; NULL for s NULL. */
struct df_spent *df_summary_spent(df_summary *s);
/* cx ends: what it counted is added. s NULL: nothing happens. Any thread. */
void df_summary_add(df_summary *s, const deft_ctx *cx);
/* All contexts have ended; the device is still there. */
void df_summary_log(df_summary *s, deft_runtime *r);
void df_summary_close(df_summary **s); /* NULL is fine */

#endif
