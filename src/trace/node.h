/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers that the builder and the verifier share. Internal header of this folder.
 */
#ifndef DF_TRACE_NODE_H
#define DF_TRACE_NODE_H

#include "ops/shape.h"
#include "trace/trace.h"

/* Checks that the attribute and the arguments of a node are values of its dtype t. Constants and
 * numbers must fit t, bools must be 0 or 1, and no integer may be raised to a negative power.
 * Returns DEFT_E_RANGE and a sentence otherwise. args points to the first argument of the node. */
deft_status df_node_check_values(df_diag *d, df_op op, deft_dtype t, uint32_t attr,
                                 const int64_t *args);

/* The rank and extents of a node as a df_shape. */
DF_INLINE df_shape df_node_shape(const df_trace *t, uint32_t node)
{
    df_shape s = { .rank = t->nodes[node].rank };
    const int64_t *const extents = df_trace_extents(t, node);
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = extents[i];
    return s;
}

#endif
