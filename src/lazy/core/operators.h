/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program (deft/extend.h). A runtime has a list of them, which
 * deft_runtime.op_lock guards. An operator does not change after it is defined.
 */
#ifndef DF_LAZY_OPERATORS_H
#define DF_LAZY_OPERATORS_H

#include "lazy/core/lazy.h"

typedef struct df_formula df_formula;

struct deft_op {
    deft_runtime *rt;
    deft_op *next;
    char name[DEFT_OP_MAX_NAME + 1];
    deft_op_def def;       /* its name is the member above */
    bool is_simple;        /* it has neither a gradient nor a batch rule */
    bool takes_attributes; /* a call gives some */
    uint32_t number;       /* in its runtime; never 0 */
    df_formula *formula;   /* what its body records (extend/formula.h), or NULL */
    size_t formula_bytes;
    const void *own;        /* the attributes of all calls: &formula, or NULL */
    _Atomic uint32_t users; /* number of df_op_held of its calls (annotations.h) */
    uint32_t n_callers;     /* texts of formulas that call it; op_lock guards it */
};

/* Frees an operator that is in no list, and sets *op to NULL. */
DF_INLINE void df_op_free(const df_mem *mem, deft_op **op)
{
    df_mem_free(mem, (*op)->formula, (*op)->formula_bytes);
    df_mem_free(mem, *op, sizeof **op);
    *op = NULL;
}

#endif
