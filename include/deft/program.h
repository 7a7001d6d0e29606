/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs as data: traces that one program recorded, and that another one loads and calls.
 *
 *   deft_export(step, "heat", DEFT_EXPORT(.as_trace = true));     writes heat.trace
 *
 *   deft_program *heat;
 *   deft_program_load(cx, "heat.trace", &heat);                   in another program
 *   deft_program_call(heat, &u, 1, &next, 1);
 *
 * A file is a text trace (docs/trace-format.md) of any origin: deft_export, deft_store_next, a
 * structured log, or an editor. Nothing in it is trusted. It contains no machine code, so that it
 * runs on every machine.
 *
 * A trace has the dtypes and extents with which it was recorded, and a program accepts no others.
 * Numbers are those of the recording.
 */
#ifndef DEFT_PROGRAM_H
#define DEFT_PROGRAM_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A program that was loaded. The caller owns it. Its context must outlive it. */
typedef struct deft_program deft_program;

/** Reads the trace at path. *out is NULL on failure.
 *
 * DEFT_E_NOT_FOUND, DEFT_E_IO: the file cannot be read. DEFT_E_FORMAT: it is no trace, its version
 * is another one, or it has an operator that this library does not know; the sentence has the line
 * and the name. DEFT_E_LIMIT: it has more than 256 MiB. DEFT_E_ARG, DEFT_E_MEMORY and other
 * failures of checks of its operators are possible. */
DEFT_API DEFT_MUST_CHECK deft_status deft_program_load(deft_ctx *cx, const char *path,
                                                       deft_program **out);

/** Frees *p and sets it to NULL. Tensors that calls returned stay. */
DEFT_API void deft_program_destroy(deft_program **p);

/** How many inputs and results a program has. 0 for NULL. */
DEFT_API size_t deft_program_inputs(const deft_program *p);
DEFT_API size_t deft_program_outputs(const deft_program *p);

/** Sets *dtype and *shape to those of input i, or of result i. Each may be NULL. Returns false when
 * there is no such input or result. */
DEFT_API bool deft_program_input(const deft_program *p, size_t i, deft_dtype *dtype,
                                 deft_shape *shape);
DEFT_API bool deft_program_output(const deft_program *p, size_t i, deft_dtype *dtype,
                                  deft_shape *shape);

/** Records the program, as if its calls stood here, also in the functions of loops, branches and
 * deft_vmap. So it fuses with what is around it, and has gradients. Those of a branch (deft_cond)
 * are computed for both sides, as with deft_where. The inputs are borrowed. out gets the results.
 * Where the recording assigned a tensor, the new value is a result, and nothing is assigned.
 *
 * On a mistake, it returns false, out[] is NULL, and the sentence has the numbers:
 *   - DEFT_E_ARG: another number of inputs or results;
 *   - DEFT_E_DTYPE, DEFT_E_SHAPE: an input of another dtype or shape;
 *   - DEFT_E_LIMIT: its loops would nest more than 16 deep, with the functions around the call. */
DEFT_API bool deft_program_call(deft_program *p, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
