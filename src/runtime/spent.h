/* SPDX-License-Identifier: Apache-2.0
 *
 * Time by call site: how much time launches took, summed by the call site of what they compute.
 * Collected only when DEFT_STATS asks for it. A launch then costs two clock readings and a lock.
 */
#ifndef DF_RUNTIME_SPENT_H
#define DF_RUNTIME_SPENT_H

#include "base/mem.h"

typedef struct df_spending {
    uintptr_t site; /* 0: unknown */
    char ops[64];   /* operators of the first segment of this site, truncated to fit */
    uint64_t ns, bytes;
    uint64_t n; /* segments that ran: kernels, products, routines */
} df_spending;

typedef struct df_spent df_spent;

df_spent *df_spent_create(const df_mem *mem); /* returns NULL when memory runs out */
void df_spent_destroy(df_spent **s);          /* *s may be NULL */

/* Adds ns, bytes and n of *add to its site. add->n must not be 0. add->ops is kept when the site is
 * new. When there are 1024 sites, further new sites count as site 0. Any thread. */
void df_spent_add(df_spent *s, const df_spending *add);

/* Writes the sites with the most time to out, at most n, in descending order. Returns how many were
 * written. *all gets the sums over all sites. Any thread. */
uint32_t df_spent_top(df_spent *s, df_spending *out, uint32_t n, df_spending *all);

#endif
