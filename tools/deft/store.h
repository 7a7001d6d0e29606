/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs and results of a program in safetensors files: tensors named in0, in1, ... by their
 * ordinals in the trace, out0, out1, ... in the order of its outputs, with dtypes and extents of
 * the trace, row-major. Each call returns an exit code, its failure told on stderr; memory is the
 * program's arena.
 */
#ifndef TOOL_STORE_H
#define TOOL_STORE_H

#include "execute.h"

/* Sets data->input from the file at path. What it lacks is left to be generated, and told on
 * stderr; one that has none of the inputs is an error, and so is another dtype or shape. */
int store_read_inputs(cli_program *p, const char *path, data_source *data);
/* data->input must have all of them (run_inputs). */
int store_write_inputs(cli_program *p, const char *path, const data_source *data);

/* Sets *out to the tensor `name` of the file at path, with dtype and extents of an input. */
int store_read_input(cli_program *p, const char *path, const char *name, uint32_t input,
                     char **out);

/* All must be there. */
int store_read_outputs(cli_program *p, const char *path, run_results *out);
int store_write_outputs(cli_program *p, const char *path, const run_results *r);

#endif
