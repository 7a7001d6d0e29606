/* SPDX-License-Identifier: Apache-2.0
 *
 * Random traces, for tests of what reads, writes, shrinks and runs traces: every op of the table,
 * loops within loops, branches, inputs with gaps and reversed axes, outputs into inputs. All of it
 * runs: indices are in range.
 */
#ifndef TEST_RANDOM_TRACE_H
#define TEST_RANDOM_TRACE_H

#include "trace/trace.h"

/* A verified trace of about n_ops nodes, which follows from seed and n_ops. plant: among them is a
 * product that is rounded down, on which an output depends. NULL: no memory. */
df_trace *random_trace(uint64_t seed, uint32_t n_ops, bool plant, df_arena *arena);

#endif
