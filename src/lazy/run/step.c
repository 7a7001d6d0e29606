/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps: how they begin and end, and how they are submitted or aborted. A step is a scope
 * and a transaction (undo.c).
 */
#include "lazy/core/recorder.h"
#include "lazy/run/collect.h"
#include "lazy/core/devices.h"
#include "lazy/run/scope.h"
#include "lazy/run/submit.h"
#include "lazy/log/notes.h"
#include "lazy/run/materialize.h"
#include "lazy/run/run.h"
#include "lazy/log/why.h"

/* A handle that outlives the step may refer to an input record made inside the step. Its
 * value stays. */
static void forget_step_node(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (t->epoch == cx->epoch && t->node >= cx->step_n) t->epoch = 0;
}

static void step_rollback(deft_ctx *cx)
{
    const uint32_t at = cx->step_at;
    df_undo_all(cx, &cx->undo, DF_HANDLE_UNDO);
    df_each_outer(cx, at, forget_step_node, NULL);
    df_scope_pop(cx, at);
    /* What was assigned before the step is written by a later cut: restores it. */
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (!m->in_step) continue;
        df_value_drop(cx, &m->now.what);
        m->now = m->before;
        m->before = (df_write){ 0 };
        m->in_step = false;
        if (!m->t && !m->now.due) df_mut_forget(cx, i);
    }
    cx->step_at = 0;
    df_again_truncate(cx, cx->step_n);
    df_rec_truncate(cx, cx->step_n, cx->step_args, cx->step_ext);
    df_budget_set(cx, NULL);
    if (df_in_flight(cx) == DF_FLIGHT_FAILED) df_flight_roll_back(cx);
    df_lose_again(cx, df_materialize);
}

static deft_scope step_begin(deft_ctx *cx, const deft_step_options *options, uintptr_t at)
{
    if (!cx) return (deft_scope){ 0 };
    df_enter_call(cx, at);
    if (options && !df_check_options(cx, "step_begin_with", "deft_step_options", options->size))
        return df_scope_refused(cx);
    if (cx->body_at) {
        df_error(cx, DEFT_E_STATE, "step_begin: inside the function of a loop, branch or vmap");
        return df_scope_refused(cx);
    }
    if (cx->step_at) {
        char site[DF_SITE_TEXT];
        (void)df_ctx_site_text(cx, cx->scope[cx->step_at].site, site, sizeof site);
        df_error(cx, DEFT_E_STATE,
                 cx->recording ? "step_begin: the call of a capture at %s is a step itself"
                               : "step_begin: the step opened at %s is still open",
                 site);
        return df_scope_refused(cx);
    }
    df_scope_start_afresh(cx);
    if (!df_scope_push(cx, df_here(cx, at))) return df_scope_refused(cx);
    df_budget_set(cx, options);
    cx->step_at = cx->depth;
    cx->step_n = cx->rec.n;
    cx->step_args = cx->rec.n_args;
    cx->step_ext = cx->rec.n_ext;
    df_ctx_begin_generation(cx);
    if (df_ring_on(cx->ring)) df_log_step_begin(cx);
    return (deft_scope){ cx, cx->serial, cx->depth };
}

deft_scope deft_step_begin(deft_ctx *cx)
{
    return step_begin(cx, NULL, DF_SITE);
}

deft_scope deft_step_begin_with(deft_ctx *cx, const deft_step_options *options)
{
    return step_begin(cx, options, DF_SITE);
}

static void see_old(deft_ctx *cx, deft_tensor *t, void *user)
{
    bool *const any = user;
    if (df_is_pending(cx, t) && t->node < cx->step_n && !df_own_value(cx, t->node)) *any = true;
}

/* Whether a failure of the step would need records from before the step. A step that is
 * submitted removes those. */
static bool needs_old_records(deft_ctx *cx)
{
    bool any = false;
    df_each_outer(cx, cx->step_at, see_old, &any);
    for (size_t i = 0; i < cx->undo.n; i++)
        any |= !cx->undo.at[i].value && cx->undo.at[i].epoch == cx->epoch;
    for (size_t i = 0; i < cx->muts.n; i++)
        any |= cx->muts.at[i].in_step ? cx->muts.at[i].before.due : cx->muts.at[i].now.due;
    return any;
}

/* Delivers the mistake when the step assigns something computed from a tensor that missed
 * an assign before the step. */
static deft_status missed_before(deft_ctx *cx)
{
    for (size_t i = 0; i < cx->undo.n && cx->owes; i++)
        if (df_owes(cx, cx->undo.at[i].t)) return df_deliver(cx);
    for (size_t i = 0; i < cx->muts.n && cx->owes; i++) {
        const df_mut *const m = &cx->muts.at[i];
        if (m->in_step && m->t && df_owes(cx, m->t)) return df_deliver(cx);
    }
    return DEFT_OK;
}

static deft_status end_step(deft_scope s, bool submit)
{
    deft_ctx *const cx = s.cx;
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st; /* the step stays open: its loop is still being recorded */
    if (!cx->step_at || s.depth != cx->step_at || !df_scope_is_open(cx, s))
        return df_scope_not_open(cx, s);
    st = df_deliver_step(cx);
    if (st == DEFT_OK) st = missed_before(cx);
    if (st == DEFT_OK) st = df_wait_for_steps(cx);
    /* Handles of records with values get their own references first: a value with another
     * owner is not donated. */
    df_handles_resolve_outer(cx, cx->step_at);
    /* Work on a GPU is only enqueued, by this thread: there is nothing to submit. */
    submit = submit && !cx->recording && !cx->n_queues && !needs_old_records(cx);
    if (st == DEFT_OK)
        st = df_compute_outer(cx, cx->step_at, submit ? DF_CUT_SUBMIT : DF_CUT_COMMIT);
    if (df_ring_on(cx->ring)) df_log_step_end(cx, cx->act, st);
    if (st != DEFT_OK) {
        step_rollback(cx);
        return st;
    }
    const uint32_t at = cx->step_at;
    df_handles_resolve_outer(cx, at);
    if (cx->recording) cx->recorder->commit(cx);
    df_why_step(cx);
    df_undo_forget(cx, &cx->undo, DF_HANDLE_UNDO);
    df_scope_pop(cx, at);
    cx->step_at = 0;
    df_budget_set(cx, NULL);
    df_rec_reset(cx);
    return DEFT_OK;
}

deft_status deft_step_end(deft_scope s)
{
    if (!s.cx) return DEFT_E_ARG;
    df_act(s.cx, "step_end", DF_SITE);
    return end_step(s, false);
}

deft_status deft_step_memory_read(deft_scope s, deft_step_memory *out, size_t size)
{
    deft_ctx *const cx = s.cx;
    deft_step_memory m;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "step_memory_read", DF_SITE);
    deft_status st = DEFT_OK;
    if (!out || size == 0)
        return df_fail(&cx->diag, DEFT_E_ARG, "step_memory_read: nowhere to write to");
    if (cx->body_at || cx->recording)
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "step_memory_read: inside a captured function, a loop or a branch");
    if (!cx->step_at || s.depth != cx->step_at || !df_scope_is_open(cx, s))
        return df_fail(&cx->diag, DEFT_E_STATE, "step_memory_read: the step is not open");
    st = df_estimate(cx, &m);
    if (st == DEFT_OK) memcpy(out, &m, size < sizeof m ? size : sizeof m);
    return st;
}

deft_status deft_step_submit(deft_scope s)
{
    if (!s.cx) return DEFT_E_ARG;
    df_act(s.cx, "step_submit", DF_SITE);
    return end_step(s, true);
}

deft_status df_step_end(deft_scope s)
{
    return end_step(s, false);
}

void deft_step_abort(deft_scope s)
{
    deft_ctx *const cx = s.cx;
    if (!cx || !cx->step_at || s.depth != cx->step_at || !df_scope_is_open(cx, s)) return;
    if (cx->body_at) {
        df_enter_call(cx, DF_SITE);
        df_error(cx, DEFT_E_STATE, "step_abort: inside the function of a loop, branch or vmap");
        return;
    }
    if (cx->mistake_in_step) {
        cx->pending = DEFT_OK;
        cx->owes_mark = 0; /* tensors that missed an assign before the step still miss it */
    }
    if (df_ring_on(cx->ring)) df_log_step_end(cx, "step_abort", DEFT_OK);
    step_rollback(cx);
}
