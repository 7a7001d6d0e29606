/* SPDX-License-Identifier: Apache-2.0
 *
 * The transfers that a cut needs. Before the cut runs, inputs on other devices are copied
 * to the device of the run. The copies are for this run only: wrapped memory belongs to
 * the program, which may change it before the next run. Values that are needed often
 * should be moved once, by deft_to. Inputs are copied before a plan is looked for, so the
 * plan's guards see the copies. A copy overlaps nothing, and has the alignment of its
 * original. The run may reuse the memory of a copy for a result where it could have
 * reused that of the value. After the run, results that belong to memory on another
 * device are copied there.
 *
 *   device of the run         another device
 *   in->data = copy   <-----  m->inputs[k]
 *   m->bufs[i]        ----->  want[i].into
 */
#include "lazy/core/devices.h"
#include "lazy/log/why.h"

#include <stdio.h>
#include <string.h>

/* ---- before the run ---- */

/* Logs the transfers of a cut, once for a cut that is used again. */
static void tell(deft_ctx *cx, df_cut *m, uint32_t n, uint64_t bytes, deft_device from)
{
    char field[64], found[64], a[DF_DEVICE_TEXT], b[DF_DEVICE_TEXT];
    df_event e;
    if (m->logged_staged) return;
    m->logged_staged = true;
    snprintf(field, sizeof field, "%u input%s of %llu bytes", n, n == 1 ? "" : "s",
             (unsigned long long)bytes);
    snprintf(found, sizeof found, "the first on %s", df_device_text(from, b));
    df_event_make(&e, DF_WHY_staged, cx->act_site, field, df_device_text(m->where, a), found);
    df_why_log(cx, &e);
}

deft_status df_cut_stage(deft_ctx *cx, df_cut *m)
{
    uint32_t n = 0;
    uint64_t bytes = 0;
    deft_device from = m->where;
    if (!cx->n_queues) return DEFT_OK;
    for (uint32_t k = 0; k < m->t->n_inputs; k++) {
        const df_value *const v = m->inputs[k];
        df_input *const in = &m->t->inputs[k];
        const deft_device where = df_value_where(cx, v);
        char *data = NULL;
        if (where == m->where) continue;
        if (k < m->n_read) {
            const deft_status st = df_value_span(cx, &cx->diag, v, m->where, &m->staged[k], &data);
            if (st != DEFT_OK) {
                df_cut_unstage(m);
                return st;
            }
            if (n++ == 0) from = where;
            bytes += (uint64_t)m->staged[k]->bytes;
        }
        in->data = data; /* NULL: memory that only gets a result, after the run */
    }
    if (n) tell(cx, m, n, bytes, from);
    return DEFT_OK;
}

void df_cut_unstage(df_cut *m)
{
    for (uint32_t k = 0; k < m->t->n_inputs; k++) df_buffer_drop(&m->staged[k]);
}

/* ---- after the run ---- */

/* Whether result i of m has a destination that the run does not write itself, and that is
 * on the host (to_host) or on a GPU. Called only for runs on a GPU: a destination on a GPU
 * makes the cut run there. */
static bool is_copied(const deft_ctx *cx, const df_cut *m, const df_want *w, uint32_t i,
                      bool to_host)
{
    if (!w->into || m->t->roots[i].kind != DF_ROOT_NEW) return false;
    return (df_value_where(cx, w->into) == DEFT_CPU) == to_host;
}

deft_status df_cut_ready(deft_ctx *cx, df_cut *m, const df_want *want)
{
    deft_status st = DEFT_OK;
    if (m->where == DEFT_CPU) return DEFT_OK;
    for (uint32_t i = 0; i < m->n_want; i++) {
        if (!is_copied(cx, m, &want[i], i, true)) continue;
        int64_t n;
        (void)df_shape_numel(&want[i].into->shape, &n);
        n *= (int64_t)deft_dtype_size((deft_dtype)want[i].into->dtype);
        TRY(df_ctx_buffer(cx, &cx->diag, DEFT_CPU, n, &m->back[i]));
    }
done:
    if (st != DEFT_OK) df_cut_unready(m);
    return st;
}

void df_cut_unready(df_cut *m)
{
    for (uint32_t i = 0; i < m->n_want; i++) df_buffer_drop(&m->back[i]);
}

deft_status df_cut_bring(deft_ctx *cx, df_cut *m, const df_want *want, df_diag *d)
{
    deft_status st = DEFT_OK;
    if (m->where == DEFT_CPU) return DEFT_OK;
    for (uint32_t i = 0; i < m->n_want; i++) {
        if (!m->back[i]) continue;
        TRY(df_ctx_copy(cx, d, DEFT_CPU, m->back[i]->data, m->where, m->bufs[i]->data,
                        (size_t)m->back[i]->bytes));
        df_buffer_drop(&m->bufs[i]);
        m->bufs[i] = m->back[i];
        m->back[i] = NULL;
    }
    for (uint32_t i = 0; i < m->n_want; i++) {
        if (!is_copied(cx, m, &want[i], i, false)) continue;
        TRY(df_value_assign(cx, d, want[i].into, m->where, m->bufs[i]->data));
        df_buffer_drop(&m->bufs[i]);
    }
done:
    for (uint32_t i = 0; st != DEFT_OK && i < m->n_want; i++) df_buffer_drop(&m->bufs[i]);
    return st;
}
