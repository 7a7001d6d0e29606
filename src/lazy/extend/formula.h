/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas (deft/formula.h): texts that become bodies of operators. formula.c translates a text to
 * code, formula_run.c records the operations of the code.
 */
#ifndef DF_LAZY_FORMULA_H
#define DF_LAZY_FORMULA_H

#include "deft/formula.h"
#include "lazy/core/operators.h"

/* The functions of steps: those of the lists of deft/ops.h, and these. */
typedef enum df_formula_op {
#define DF_FORMULA_OP(name) DF_FORMULA_##name,
    DEFT_UNARY_OPS(DF_FORMULA_OP) DEFT_BINARY_OPS(DF_FORMULA_OP)
#undef DF_FORMULA_OP
        DF_FORMULA_FMA,
    DF_FORMULA_WHERE,
    DF_FORMULA_CAST, /* its second operand is the dtype */
    DF_FORMULA_CALL, /* of another formula; operands: which, the first argument and their number */
    DF_FORMULA_OPS
} df_formula_op;
enum {
    DF_FORMULA_FIRST_BINARY = DF_FORMULA_add,
    DF_FORMULA_MOST_STEPS = 1000,
    DF_FORMULA_MOST_VALUES = DF_FORMULA_MOST_STEPS + 2 * DEFT_OP_MAX_TENSORS,
};

/* An operand: an input, or the result of a step after all inputs, or a number. */
typedef uint16_t df_formula_ref;
#define DF_FORMULA_NUMBER 0x8000u

typedef struct df_formula_step {
    uint16_t op; /* df_formula_op */
    df_formula_ref operand[3];
} df_formula_step;

typedef struct df_formula_number {
    double f;
    int64_t i; /* when it is an integer */
    bool is_int;
} df_formula_number;

/* A function. Its lists are in the block of the formula. */
typedef struct df_formula_code {
    uint32_t n_inputs, n_steps, n_results, n_called;
    const deft_op *const *called;
    const df_formula_number *number;
    const df_formula_step *step;
    const df_formula_ref *result;
    const df_formula_ref *argument; /* of all calls */
} df_formula_code;

/* What an operator has that is defined by a formula: one block of memory, which does not change. */
struct df_formula {
    df_formula_code value;
    df_formula_code slope;         /* the partial derivatives, when there is a derivative */
    const char *text, *derivative; /* the second may be NULL */
    deft_formula_fn reference;
    double ulps;
};

DF_INLINE double df_formula_ulps(const deft_formula_def *def)
{
    return def->ulps > 0 ? def->ulps : 4;
}

/* How a text finds another formula: the operator of this name, or NULL. */
typedef deft_op *(*df_formula_find_fn)(deft_runtime *rt, const char *name);

/* Translates def to a block of *bytes. Returns NULL with *st and a sentence in why, of n bytes,
 * when def is refused. */
df_formula *df_formula_new(deft_runtime *rt, df_formula_find_fn find, const deft_formula_def *def,
                           size_t *bytes, deft_status *st, char *why, size_t n);

/* The body of an operator, and its gradient. The attributes are a pointer to the formula. */
deft_status df_formula_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *attributes);
deft_status df_formula_grad(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *attributes);

#endif
