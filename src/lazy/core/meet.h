/* SPDX-License-Identifier: Apache-2.0
 *
 * How bare numbers (deft_num, deft_const_f, deft_param_f and their integer forms) become records.
 * Every call that takes several tensors asks df_meet, so that one function decides their dtype.
 */
#ifndef DF_LAZY_MEET_H
#define DF_LAZY_MEET_H

#include "lazy/core/lazy.h"

/* What df_meet has to know of a call. */
typedef struct df_meeting {
    const char *what; /* the public call, for messages: "where" */
    unsigned first;   /* the argument number of the first operand, from 1 */
    df_op op;         /* its policy of mixed precision holds for the tensors (MIXED in ops.def) */
    bool lifts;       /* a composite that computes halves in f32: its numbers are f32, too */
    uintptr_t site;
} df_meeting;

/* node[i] becomes the record of t[i], for the n operands of one call that meet in one dtype. Bare
 * numbers take the dtype that the tensors promote to; numbers alone have their own. *met, when met
 * is not NULL, is the dtype in which all of them meet, halves included. false: an error, which is
 * recorded; a NULL in t is one. */
bool df_meet(deft_ctx *cx, const df_meeting *m, deft_tensor *const *t, size_t n, uint32_t *node,
             deft_dtype *met);

/* A number that came as a C number of either kind. */
typedef struct df_literal {
    bool is_int;
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

/* Its record in dtype t; DF_BAD and an error when it does not fit. */
uint32_t df_literal_node(deft_ctx *cx, const char *what, deft_dtype t, df_literal v,
                         uintptr_t site);

/* A record of bare number t that holds all its bits, f64 or i64: for calls that convert it. */
uint32_t df_number_exact(deft_ctx *cx, const deft_tensor *t);

/* A handle of the innermost scope for the same bare number; NULL without memory. */
deft_tensor *df_number_copy(deft_ctx *cx, const deft_tensor *t);
/* Makes *to, which need not lie in a scope, the same bare number as t. */
void df_number_move(deft_tensor *to, const deft_tensor *t);

#endif
