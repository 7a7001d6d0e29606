/* SPDX-License-Identifier: Apache-2.0
 *
 * Where time goes: launches by the call sites of what they compute. Kept only when somebody asked
 * (DEFT_STATS); a launch then costs two readings of the clock and a lock.
 */
#ifndef DF_RUNTIME_SPENT_H
#define DF_RUNTIME_SPENT_H

#include "base/mem.h"

typedef struct df_spending {
    uintptr_t site;
    char ops[64]; /* of the first kernel seen there; cut to fit */
    uint64_t ns, bytes;
    uint64_t n; /* segments: kernels, products, routines */
} df_spending;

typedef struct df_spent df_spent;

df_spent *df_spent_create(const df_mem *mem); /* NULL without memory */
void df_spent_destroy(df_spent **s);          /* NULL is fine */

/* Any thread; add->n counts, add->ops is kept when the site is new. Beyond 1024 sites, what comes
 * is counted as of site 0. */
void df_spent_add(df_spent *s, const df_spending *add);

/* Fills out with the n sites of most time, that first; returns how many there are, at most n. *all:
 * their sum and that of all others. */
uint32_t df_spent_top(df_spent *s, df_spending *out, uint32_t n, df_spending *all);

#endif
