/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of two tensors for mixed_programs.c, which are recorded in two ways: as they are, and
 * as programs that were written as traces and loaded (deft/program.h). Both must have the same
 * bits.
 */
#ifndef MIXED_LOADED_H
#define MIXED_LOADED_H

#include "deft/deft.h"

enum {
    N_MIXED_LOADED = 36,      /* functions; number i takes tensors of rank i % 3 */
    MIXED_LOADED_RESULTS = 3, /* the first two have the shape of the operands, the last [] */
};

/* The number of a function for operands of that rank. With is_exact, all arithmetic of the function
 * is exact on small whole numbers. */
unsigned mixed_loaded_pick(unsigned p, uint32_t rank, bool is_exact);

/* Records function `which` of in[0] and in[1], of one shape, by the calls that it is made of. A
 * branch is a choice between two computed values, as its gradient is in a loaded program. */
void mixed_loaded_record(deft_ctx *cx, unsigned which, deft_tensor *const *in, deft_tensor **out);

/* Writes all functions as traces into the folder. `shape` has the shapes of the operands by their
 * rank. Returns false, with the message printed, when one cannot be written. */
bool mixed_loaded_write(deft_ctx *cx, const char *folder, const deft_shape *shape);

/* Loads function `which` from that folder. NULL: it cannot be loaded. */
deft_program *mixed_loaded_load(deft_ctx *cx, const char *folder, unsigned which);

/* Removes what mixed_loaded_write has written. */
void mixed_loaded_remove(const char *folder);

#endif
