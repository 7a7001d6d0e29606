/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_vmap of an opaque operator without a batch rule: a loop calls it for each example.
 */
#include "deft/control.h"
#include "deft/extend.h"
#include "lazy/core/annotations.h"
#include "lazy/core/operators.h"

#include <stddef.h>

typedef struct each_example {
    const deft_op *op;
    const void *attributes;
    deft_tensor *const *in;
    const bool *is_mapped;
} each_example;

/* The operator of a call, whose attributes are those of a df_op_held. */
static const deft_op *operator_of_held(const void *attributes)
{
    const df_op_held *const h =
        (const df_op_held *)(const void *)((const char *)attributes - DF_OP_HELD_HEAD);
    const char *const users = (const char *)(const void *)h->users;
    return (const deft_op *)(const void *)(users - offsetof(deft_op, users));
}

/* The body of the loop: rows are the mapped inputs. The others are the same in all iterations. */
static deft_status call_one(deft_ctx *cx, deft_tensor *const *rows, size_t n_rows,
                            deft_tensor **out, size_t n_out, void *user)
{
    const each_example *const e = user;
    deft_tensor *in[DEFT_OP_MAX_TENSORS];
    size_t row = 0;
    (void)n_rows;
    for (uint32_t i = 0; i < e->op->def.n_in; i++) in[i] = e->is_mapped[i] ? rows[row++] : e->in[i];
    return deft_op_call(cx, e->op, in, e->op->def.n_in, e->attributes, out, n_out) ? DEFT_OK
                                                                                   : DEFT_E_STATE;
}

deft_status df_opaque_batch(deft_ctx *cx, int64_t n_examples, deft_tensor *const *in,
                            const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                            void *attributes)
{
    each_example e = { operator_of_held(attributes), attributes, in, is_mapped };
    deft_tensor *rows[DEFT_OP_MAX_TENSORS];
    size_t n_rows = 0;
    if (!e.op->def.attribute_bytes) e.attributes = NULL;
    for (size_t i = 0; i < n_in; i++)
        if (is_mapped[i]) rows[n_rows++] = in[i];
    return deft_scan(cx, call_one, &e, NULL, 0, rows, n_rows, n_examples, n_out, out)
               ? DEFT_OK
               : DEFT_E_STATE;
}
