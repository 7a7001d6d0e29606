/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program (deft/extend.h). A runtime has a list of them, which
 * deft_runtime.op_lock guards. An operator does not change after it is defined.
 */
#ifndef DF_LAZY_OPERATORS_H
#define DF_LAZY_OPERATORS_H

#include "lazy/core/lazy.h"

#include "base/fork.h"

typedef struct df_formula df_formula;

struct deft_op {
    deft_runtime *rt;
    deft_op *next;
    char name[DEFT_OP_MAX_NAME + 1];
    deft_op_def def;       /* its name is the member above */
    bool is_simple;        /* it has neither a gradient nor a batch rule */
    bool takes_attributes; /* the program gives some to a call */
    uint32_t number;       /* in its runtime; never 0 */
    /* What its body records (extend/formula.h), or NULL. Calls have its address as attributes. */
    df_formula *formula;
    size_t formula_bytes;
    _Atomic uint32_t users; /* number of df_op_held of its calls (annotations.h) */
    uint32_t n_callers;     /* texts of formulas that call it; op_lock guards it */
    deft_op_batch_fn batch; /* what calls in deft_vmap use: that of `def`, or that of opaque ones */
    df_opaque_code code;    /* of an opaque operator */
    uint32_t opaque; /* the latest of its entries in deft_runtime.opaques; DF_NONE: there is none */
};

/* Frees an operator that is in no list, and sets *op to NULL. */
DF_INLINE void df_op_free(const df_mem *mem, deft_op **op)
{
    df_mem_free(mem, (*op)->formula, (*op)->formula_bytes);
    df_mem_free(mem, *op, sizeof **op);
    *op = NULL;
}

/* Takes deft_runtime.op_lock. */
DF_INLINE void df_operators_lock(deft_runtime *rt)
{
    /* In a forked child a missing thread was changing the list, which is not read again. */
    if (df_fork_lock_take(&rt->op_lock)) rt->ops = NULL;
}

DF_INLINE void df_operators_unlock(deft_runtime *rt)
{
    df_fork_lock_give(&rt->op_lock);
}

/* The operator of that name, or NULL. The caller holds deft_runtime.op_lock. */
deft_op *df_operator_named(deft_runtime *rt, const char *name);
/* The same for a caller that does not hold it. */
deft_op *df_operator_find(deft_runtime *rt, const char *name);
/* Finds or adds the entry of opaque operator op with these attributes. DEFT_E_LIMIT: there are too
 * many. DEFT_E_MEMORY is possible. */
deft_status df_opaque_number(df_diag *d, deft_op *op, const void *attributes, uint32_t *number);

/* ---- opaque operators: extend/opaque.c, extend/opaque_batch.c ---- */

/* Records a call of an opaque operator, and sets out[0..n_out). Returns false with the error
 * recorded. A body must be open. */
bool df_opaque_record(deft_ctx *cx, const deft_op *op, const void *attributes,
                      deft_tensor *const *in, deft_tensor **out);
/* The batch rule of an opaque operator without one: a loop over the examples. */
deft_status df_opaque_batch(deft_ctx *cx, int64_t n_examples, deft_tensor *const *in,
                            const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                            void *attributes);

#endif
