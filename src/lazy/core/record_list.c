/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on the list of records as a whole: the values of records, and removing
 * records. record.c appends to the list; history.c compares it with earlier epochs.
 */
#include "lazy/core/history.h"

void df_rec_shape(const df_rec *r, uint32_t node, df_shape *out)
{
    out->rank = r->nodes[node].rank;
    for (uint32_t i = 0; i < out->rank; i++) out->dim[i] = r->ext[r->shape[node] + i];
}

static void forget_epoch(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)cx;
    (void)user;
    t->epoch = 0;
}

void df_rec_reset(deft_ctx *cx)
{
    df_assert(cx->n_walks == 0);
    if (DF_UNLIKELY(cx->owes)) df_owe_recorded(cx);
    cx->n_left = 0;
    cx->held_left = 0;
    cx->cuts_left = cx->stats.cuts;
    cx->vals_seen = 0;
    cx->look_at = cx->first_look;
    cx->finals = 0;
    df_rec_truncate(cx, 0, 0, 0);
    /* epoch numbers start again: no handle may keep an old one */
    if (DF_UNLIKELY(++cx->epoch == 0)) {
        cx->epoch = 1;
        df_each_outer(cx, cx->depth + 1, forget_epoch, NULL);
    }
    cx->step_n = cx->step_args = cx->step_ext = 0;
}

void df_rec_release(deft_ctx *cx, df_value **v)
{
    if (*v && --(*v)->in_records == 0) df_budget_unpin(cx, *v);
    df_value_drop(cx, v);
}

void df_rec_truncate(deft_ctx *cx, uint32_t n, uint32_t n_args, uint32_t n_ext)
{
    df_rec *const r = &cx->rec;
    df_assert(n <= r->n && n_args <= r->n_args && n_ext <= r->n_ext);
    if (n == 0) {
        for (size_t i = 1; i < r->vals.n; i++) df_rec_release(cx, &r->vals.at[i]);
        r->vals.n = 1;
    } else {
        for (uint32_t i = n; i < r->n; i++)
            if (r->val[i]) df_rec_release(cx, &r->vals.at[r->val[i]]);
    }
    cx->stats.ops_recorded += r->n - r->n_inputs;
    r->n_inputs = 0;
    df_budget_truncate(cx, n);
    if (DF_UNLIKELY(cx->line || cx->label || cx->site_ranges.n)) df_site_ranges_truncate(cx, n);
    if (DF_UNLIKELY(cx->grad_annotations.n || cx->customs || cx->part_reads.n))
        df_grad_annotations_truncate(cx, n);
    if (n == 0) {
        df_history_rewind(cx, r);
        return;
    }
    df_history_truncate(cx, n);
    cx->stats.ops_recorded -= n; /* they were counted already, and stay */
    r->n = n;
    r->n_args = n_args;
    r->n_ext = n_ext;
}

void df_rec_resolve(deft_ctx *cx, uint32_t node, df_value *v)
{
    df_rec *const r = &cx->rec;
    if (r->val[node]) return;
    /* Room was made before anything ran (df_materialize). */
    r->val[node] = (uint32_t)r->vals.n;
    r->vals.at[r->vals.n++] = df_value_ref(v);
    if (v->in_records++ == 0) df_budget_pin(cx, v);
}
