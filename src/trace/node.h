/* SPDX-License-Identifier: Apache-2.0
 *
 * What builder and verifier both ask of a record; private to this folder.
 */
#ifndef DF_TRACE_NODE_H
#define DF_TRACE_NODE_H

#include "ops/shape.h"
#include "trace/trace.h"

/* Whether attribute and arguments are values of the record's dtype: constants and numbers fit it,
 * bools are 0 or 1, no integer is raised to a negative power. */
deft_status df_node_check_values(df_diag *d, df_op op, deft_dtype t, uint32_t attr,
                                 const int64_t *args);

DF_INLINE df_shape df_node_shape(const df_trace *t, uint32_t node)
{
    df_shape s = { .rank = t->nodes[node].rank };
    const int64_t *const extents = df_trace_extents(t, node);
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = extents[i];
    return s;
}

#endif
