/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of opaque operators (deft/opaque.h) as records: one `pass` for each input, a `call`, and a
 * `result` for each further result (trace/opaque.h).
 */
#include "lazy/core/operators.h"
#include "lazy/grad/grad.h"

#include <string.h>

static bool enter_opaque_input(deft_ctx *cx, const deft_op *op, uint32_t i, deft_tensor *t,
                               uint32_t *node, deft_op_form *form)
{
    df_shape s;
    if (!df_enter_more(cx, op->name, i + 1, t)) return false;
    if ((*node = df_node_of(cx, t)) == DF_BAD) return false;
    df_rec_shape(&cx->rec, *node, &s);
    *form = (deft_op_form){ .dtype = df_dtype_at(cx, *node), .rank = s.rank };
    memcpy(form->extent, s.dim, s.rank * sizeof *s.dim);
    return true;
}

/* Lists the inputs. Returns the record of the list, or DF_BAD. */
static uint32_t pass_inputs(deft_ctx *cx, const uint32_t *node, uint32_t n, uintptr_t site)
{
    const df_shape none = { .rank = 0 };
    uint32_t list = df_cst(cx, DEFT_I64, 0, site);
    while (n-- > 0 && list != DF_BAD) {
        const uint32_t src[2] = { node[n], list };
        list = df_append(cx, DF_OP_pass, DEFT_F32, 0, src, NULL, 0, &none, site);
    }
    return list;
}

static uint32_t append_of_form(deft_ctx *cx, df_op op, const deft_op_form *f, uint32_t attr,
                               uint32_t src, uintptr_t site)
{
    df_shape s = { .rank = f->rank };
    memcpy(s.dim, f->extent, f->rank * sizeof *s.dim);
    return src == DF_BAD ? DF_BAD : df_append(cx, op, f->dtype, attr, &src, NULL, 0, &s, site);
}

bool df_opaque_record(deft_ctx *cx, const deft_op *op, const void *attributes,
                      deft_tensor *const *in, deft_tensor **out)
{
    deft_op_form in_form[DEFT_OP_MAX_TENSORS], out_form[DEFT_OP_MAX_TENSORS];
    uint32_t node[DEFT_OP_MAX_TENSORS], number;
    const uint32_t n_in = op->def.n_in, n_out = op->def.n_out;
    const uintptr_t site = cx->call;
    df_diag d = { 0 };
    for (uint32_t i = 0; i < n_in; i++)
        if (!enter_opaque_input(cx, op, i, in[i], &node[i], &in_form[i])) return false;
    deft_status st = df_opaque_number(&d, (deft_op *)(uintptr_t)op, attributes, &number);
    if (st == DEFT_OK)
        st = df_opaque_forms(&d, df_opaques_at(&cx->rt->opaques, number), &op->code, in_form,
                             out_form);
    if (st != DEFT_OK) {
        df_error(cx, st, "%s", d.text);
        return false;
    }
    const uint32_t list = pass_inputs(cx, node, n_in, site);
    const uint32_t call = append_of_form(cx, DF_OP_call, &out_form[0], number, list, site);
    for (uint32_t i = 0; i < n_out; i++) {
        uint32_t k = call;
        if (i > 0) k = append_of_form(cx, DF_OP_result, &out_form[i], i, call, site);
        /* A call with several results gets no value, since its results could not be computed from
         * that later. */
        else if (n_out > 1 && call != DF_BAD)
            k = df_grad_placeholder(cx, call, site);
        if (k == DF_BAD || !(out[i] = df_result(cx, k))) return false;
    }
    cx->finals += n_out > 1 ? n_out : 0; /* to be computed together */
    return true;
}
