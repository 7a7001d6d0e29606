/* SPDX-License-Identifier: Apache-2.0
 *
 * The two parts of complex records.
 *
 * The record of a complex tensor of shape [M,N] is a real one of shape [M,N,2]. An operation takes
 * the parts of its operands, computes with them as with any reals, and joins the parts of its
 * result. The parts of a join are its pieces, and nothing is read back. So a chain of operations is
 * like one that a program writes for the parts itself. The conjugate of a tensor costs a sign where
 * it is used. The parts of a view of a join are views of the pieces.
 *
 * A gradient must still meet the complex record. It may be wanted with respect to that record, or
 * the record may have a hook, a stop or a custom rule. So a piece that is taken as a part is a
 * record of its own, with a df_part_read that names the complex record. A walk gives the gradient
 * of that record to the complex record where this matters, and else to the piece.
 *
 * As in lazy/core/record.h, a failure is recorded in cx, and the result is DF_BAD. Operands that
 * are DF_BAD make results DF_BAD.
 */
#ifndef DF_LAZY_PARTS_H
#define DF_LAZY_PARTS_H

#include "lazy/core/face.h"

/* Real records. Of a real number, im has no meaning. */
typedef struct df_parts {
    uint32_t re, im;
    bool is_real;
} df_parts;

/* The parts of record `node`, whose last axis has extent 2. */
df_parts df_parts_of(deft_ctx *cx, uint32_t node, uintptr_t site);
/* Part `which` of record `node`, 0 or 1, as a view of it. */
uint32_t df_part_view(deft_ctx *cx, uint32_t node, uint32_t which, uintptr_t site);
/* The complex record of two parts, whose shapes broadcast. A real number gets 0 as the other. */
uint32_t df_parts_join(deft_ctx *cx, df_parts p, uintptr_t site);
/* The handle of that record. */
deft_tensor *df_parts_result(deft_ctx *cx, df_parts p, uintptr_t site);

#endif
