/* SPDX-License-Identifier: Apache-2.0
 *
 * The undo log that makes a step a transaction, and writes into wrapped memory that wait
 * for the end of a step.
 *
 * The first assign of a step to a handle that outlives the step saves the handle's
 * binding. When the step fails, the bindings are restored and its records are removed;
 * nothing else refers to the step. When the step succeeds, the log is dropped. An old
 * value to which only the log and the records refer may then have been donated already
 * (df_want.donor). The log of a submitted step stays until its run has ended (submit.h).
 */
#include "lazy/core/lazy.h"
#include "lazy/run/scope.h"

void df_undo_all(deft_ctx *cx, df_undos *log, uint8_t flag)
{
    while (log->n) {
        df_undo *const u = &log->at[--log->n];
        deft_tensor *const t = u->t;
        df_value_drop(cx, &t->value);
        t->value = u->value;
        t->root = t->keeps ? NULL : u->root; /* a kept tensor is no view */
        t->node = u->node;
        t->epoch = u->epoch;
        t->place = t->keeps ? DF_NONE : u->place;
        /* A missed assign from before is missed again. With a step in flight, later ones
         * stay missed, too. */
        if (flag == DF_HANDLE_UNDO || u->failure) t->failure = u->failure;
        df_flags_change(t, flag, 0);
    }
}

void df_undo_forget(deft_ctx *cx, df_undos *log, uint8_t flag)
{
    while (log->n) {
        df_undo *const u = &log->at[--log->n];
        df_flags_change(u->t, flag, 0);
        df_value_drop(cx, &u->value);
    }
}

void df_mut_forget(deft_ctx *cx, size_t i)
{
    df_value_drop(cx, &cx->muts.at[i].value);
    df_value_drop(cx, &cx->muts.at[i].now.what);
    df_value_drop(cx, &cx->muts.at[i].before.what);
    cx->muts.at[i] = cx->muts.at[--cx->muts.n];
}

void df_muts_forget(deft_ctx *cx)
{
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        df_value_drop(cx, &m->now.what);
        m->now.due = false;
        if (!m->t) df_mut_forget(cx, i);
    }
}
