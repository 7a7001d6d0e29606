/* SPDX-License-Identifier: Apache-2.0
 *
 * Time by call site: how much time launches took, summed by the call site of what they compute.
 * Collected only when DEFT_STATS or the log topic `stats` asks for it. A launch then costs two
 * clock readings, and a lock for each of its segments. A segment is one kernel, product or routine
 * of a launch. The time of a launch is divided among its segments by their estimated times.
 */
#ifndef DF_RUNTIME_SPENT_H
#define DF_RUNTIME_SPENT_H

#include "base/mem.h"

/* What segments of one call site took. */
typedef struct df_spending {
    uintptr_t site; /* 0: unknown */
    char ops[64];   /* operators of the first segment of this site, truncated to fit */
    uint64_t ns;    /* time */
    uint64_t bytes; /* bytes that the segments read and wrote, computed from sizes */
    uint64_t n;     /* segments that ran; a segment counts anew in each run */
} df_spending;

/* The table of all call sites. */
typedef struct df_spent df_spent;

/* Creates an empty table. *mem must outlive the table. Returns NULL when memory runs out. */
df_spent *df_spent_create(const df_mem *mem);
/* Destroys a table that no thread uses any more. *s may be NULL, and is NULL afterwards. */
void df_spent_destroy(df_spent **s);

/* Adds ns, bytes and n of *add to its site. add->n must not be 0. add->ops is copied when the site
 * is new. When there are 1024 sites, further new sites count as site 0. Any thread. */
void df_spent_add(df_spent *s, const df_spending *add);

/* Writes the sites with the most time to out, at most n, in descending order. Site 0 is ranked like
 * the others. Returns how many were written. *all receives the sums of ns, bytes and n over all
 * sites; its site is 0 and its ops are "". Any thread. */
uint32_t df_spent_top(df_spent *s, df_spending *out, uint32_t n, df_spending *all);

#endif
