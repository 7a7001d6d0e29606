/* SPDX-License-Identifier: Apache-2.0
 *
 * Smaller traces from a trace: by leaving nodes out, by shorter axes. What comes out is a verified
 * trace with dense arguments, or a status: then there is no such trace.
 */
#ifndef TOOL_SHRINK_H
#define TOOL_SHRINK_H

#include "trace/trace.h"

/* What of a trace stays: an entry per node or root. */
typedef struct shrink_keep {
    const bool *node;     /* is computed; any other that is needed becomes an input of its dtype and
                           * extents. Nodes without operands stay where they are needed. Of a loop
                           * stays what still makes a loop. */
    const uint32_t *read; /* the node that users of this one read instead: itself, or an earlier one
                           * of equal dtype and extents */
    const bool *root; /* stays if its node does. What is computed and not read becomes a root. */
} shrink_keep;

deft_status shrink_cut(df_diag *d, const df_trace *t, const shrink_keep *keep, df_arena *arena,
                       df_trace **out);

/* Every axis of `from` elements gets `to`, and so do loops of so many iterations; what follows from
 * them follows. Slices keep their ends' distances (margins), or their lengths where there is room.
 * from == to: extents are inferred anew, after a change of attributes or arguments. */
deft_status shrink_extents(df_diag *d, const df_trace *t, int64_t from, int64_t to, bool margins,
                           df_arena *arena, df_trace **out);

#endif
