/* SPDX-License-Identifier: Apache-2.0
 *
 * How bare numbers (deft_num, deft_const_f, deft_param_f and their integer forms) become
 * records. Every call that takes several tensors calls df_meet, so that one function
 * decides their dtype.
 */
#ifndef DF_LAZY_MEET_H
#define DF_LAZY_MEET_H

#include "lazy/core/lazy.h"

/* The call for which df_meet converts operands. */
typedef struct df_meeting {
    const char *what; /* name of the public call, for messages: "where" */
    unsigned first;   /* the argument number of the first operand, from 1 */
    /* its policy of mixed precision (MIXED in ops.def) is applied to the tensors */
    df_op op;
    /* a composite that computes 16-bit floats in f32: its bare numbers become f32, too */
    bool lifts;
    uintptr_t site;
} df_meeting;

/* Sets node[i] to the record of t[i], for the n operands of one call. Bare numbers take
 * the dtype to which the tensors promote. When all operands are numbers, each keeps its
 * own dtype. *met is set to the dtype to which all operands promote, 16-bit floats
 * included; met may be NULL. Returns false with the error recorded. A NULL in t is an
 * error. */
bool df_meet(deft_ctx *cx, const df_meeting *m, deft_tensor *const *t, size_t n, uint32_t *node,
             deft_dtype *met);

/* A C number that the caller gave as a double, an int64_t, or a uint64_t, whose bits are in i. */
typedef struct df_literal {
    bool is_int, is_unsigned;
    double f;
    int64_t i;
} df_literal;

DF_INLINE df_literal df_literal_f(double v)
{
    return (df_literal){ .f = v };
}

DF_INLINE df_literal df_literal_i(int64_t v)
{
    return (df_literal){ .is_int = true, .i = v, .f = (double)v };
}

DF_INLINE df_literal df_literal_u(uint64_t v)
{
    return (df_literal){ .is_int = true, .is_unsigned = true, .i = (int64_t)v, .f = (double)v };
}

/* The record of v in dtype t. DF_BAD, with an error recorded, when v does not fit t. */
uint32_t df_literal_node(deft_ctx *cx, const char *what, deft_dtype t, df_literal v,
                         uintptr_t site);

/* A record of the bare number t in f64, i64 or u64, which holds all its bits. For calls that
 * convert the number themselves. DF_BAD on failure. */
uint32_t df_number_exact(deft_ctx *cx, const deft_tensor *t);

/* A new handle in the innermost scope for the same bare number. NULL when memory runs
 * out. */
deft_tensor *df_number_copy(deft_ctx *cx, const deft_tensor *t);
/* Makes *to the same bare number as t. *to need not belong to a scope. */
void df_number_move(deft_tensor *to, const deft_tensor *t);

#endif
