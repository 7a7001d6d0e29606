/* SPDX-License-Identifier: Apache-2.0
 *
 * Values for a program's inputs, made from a seed and each input's place in the list: the same
 * numbers on every machine, for every tier and however the program is planned.
 */
#ifndef TOOL_DATA_H
#define TOOL_DATA_H

#include "runtime/buffer.h"
#include "trace/trace.h"

/* Gives every input of t memory of its own with values in it: floats in [-4, 4), small integers,
 * and for what is used as an index a valid one. buffers: one reference per input, the caller's. On
 * failure none is left. */
deft_status data_fill(df_diag *d, df_trace *t, df_allocator *a, uint64_t seed, df_buffer **buffers);

/* The elements of input k in row-major order. out has room for all. */
void data_gather(const df_trace *t, uint32_t k, char *out);

#endif
