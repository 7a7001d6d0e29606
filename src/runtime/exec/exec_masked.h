/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the executor: what causal attention need not compute (exec_masked.c).
 */
#ifndef DF_RUNTIME_EXEC_MASKED_H
#define DF_RUNTIME_EXEC_MASKED_H

#include "runtime/flow.h"

/* A causal loop over blocks of keys. Query i sees the keys 0 .. i. */
typedef struct df_masked {
    const df_flow_construct *w;
    const df_part_tag *tag;
    const int64_t *slots; /* of an iteration */
    int64_t n_queries, block, n_blocks;
} df_masked;

/* Returns false when the loop is not causal attention, forwards. */
bool df_masked_find(const df_flow_construct *w, df_masked *out);

/* Returns how many iterations the queries before `end` of a batch entry need. All later ones would
 * leave the states as they are, but for a -0 in acc. df_masked_finish makes that +0. */
int64_t df_masked_iterations(const df_masked *m, int64_t entry, int64_t end);

/* Adds +0 to n numbers, as the iterations that were left out would have done. */
void df_masked_finish(float *acc, int64_t n);

#endif
