/* SPDX-License-Identifier: Apache-2.0
 *
 * Which node of one trace stands for which of another.
 */
#ifndef TOOL_ALIGN_H
#define TOOL_ALIGN_H

#include "trace/trace.h"

/* One step through both traces at once: a pair, or a node that only one has (the other DF_NONE). */
typedef struct align_step {
    uint32_t a, b;
} align_step;

/* The steps in order; every node of a and of b is in one. Nodes are paired along a longest common
 * subsequence over op, dtype, rank, attribute and, by what they are, operands; what is left between
 * two such pairs is paired in order while ops are equal. In arena; *n steps. NULL: no memory. */
align_step *align(const df_trace *a, const df_trace *b, df_arena *arena, uint32_t *n);

#endif
