/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a cut's inputs that the host can read, for dumps and logs.
 */
#include "lazy/core/devices.h"

#include <string.h>

deft_status df_cut_lend(deft_ctx *cx, df_diag *d, const df_cut *m, df_lent *out)
{
    deft_status st = DEFT_OK;
    const uint32_t n = m->t->n_inputs;
    *out = (df_lent){ .t = *m->t };
    if (!cx->n_queues || !n) return DEFT_OK;
    out->buf = df_mem_zalloc(cx->mem, n * sizeof *out->buf);
    out->inputs = df_mem_alloc(cx->mem, n * sizeof *out->inputs);
    if (!out->buf || !out->inputs) TRY(df_fail_mem(d, "inputs", n * sizeof *out->inputs));
    memcpy(out->inputs, m->t->inputs, n * sizeof *out->inputs);
    out->t.inputs = out->inputs;
    for (uint32_t k = 0; k < n; k++) {
        char *data = m->inputs[k]->data;
        if (df_value_where(cx, m->inputs[k]) != DEFT_CPU)
            TRY(df_value_span(cx, d, m->inputs[k], DEFT_CPU, &out->buf[k], &data));
        out->inputs[k].data = data;
    }
done:
    if (st != DEFT_OK) df_lent_drop(cx, out);
    return st;
}

void df_lent_drop(deft_ctx *cx, df_lent *l)
{
    const uint32_t n = l->t.n_inputs;
    for (uint32_t k = 0; l->buf && k < n; k++) df_buffer_drop(&l->buf[k]);
    df_mem_free(cx->mem, l->buf, n * sizeof *l->buf);
    df_mem_free(cx->mem, l->inputs, n * sizeof *l->inputs);
    *l = (df_lent){ 0 };
}
