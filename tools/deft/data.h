/* SPDX-License-Identifier: Apache-2.0
 *
 * Values for a program's inputs: given ones, and else numbers made from a seed and each input's
 * place in the list: the same on every machine, for every tier and however the program is planned.
 */
#ifndef TOOL_DATA_H
#define TOOL_DATA_H

#include "runtime/buffer.h"
#include "trace/trace.h"

/* Where values come from. */
typedef struct data_source {
    uint64_t seed;
    char *const *input; /* for each input its elements, row-major; NULL as a whole or for an
                         * input: made from seed */
} data_source;

/* Gives every input of t memory of its own with values in it. Made ones: floats in [-4, 4), small
 * integers; where program, of which t is what the passes left, wants something else of an input, as
 * an index or a logarithm does, then that. buffers: one reference per input, the caller's. On
 * failure none is left. */
deft_status data_fill(df_diag *d, const df_trace *program, df_trace *t, df_allocator *a,
                      const data_source *from, df_buffer **buffers);

#endif
