/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes: how they begin and end, and how tensors leave them or are kept beyond them.
 */
#include "lazy/core/devices.h"
#include "lazy/core/meet.h"
#include "lazy/core/recorder.h"
#include "lazy/run/collect.h"
#include "lazy/run/scope.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

void df_scope_pop(deft_ctx *cx, uint32_t depth)
{
    if (DF_UNLIKELY(cx->owes)) df_owe_recorded(cx);
    while (cx->depth >= depth && cx->depth > 0) {
        df_scope_free_handles(cx, &cx->scope[cx->depth]);
        df_labels_end(cx, cx->scope[cx->depth].n_labels);
        cx->depth--;
    }
}

/* A view from before becomes a tensor of its own, whether it was computed or not. The
 * time at which work runs must not change what a program means. */
static void forget_place(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)cx;
    (void)user;
    if (!(t->flags & DF_HANDLE_WEAK)) t->place = DF_NONE;
}

void df_scope_start_afresh(deft_ctx *cx)
{
    if (cx->depth > 0) return;
    df_each_outer(cx, 1, forget_place, NULL);
    if (cx->rec.n == 0 || df_has_pending(cx)) return;
    df_handles_resolve_outer(cx, 1);
    df_rec_reset(cx);
}

deft_scope df_scope_refused(deft_ctx *cx)
{
    cx->refused = cx->n_mistakes;
    return (deft_scope){ cx, 0, 0 };
}

deft_scope deft_scope_begin(deft_ctx *cx)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return (deft_scope){ 0 };
    df_scope_start_afresh(cx);
    if (!df_scope_push(cx, df_here(cx, DF_SITE))) return df_scope_refused(cx);
    if (cx->depth == 1) df_ctx_begin_generation(cx);
    return (deft_scope){ cx, cx->serial, cx->depth };
}

bool df_scope_is_open(const deft_ctx *cx, deft_scope s)
{
    return s.depth > 0 && s.depth <= cx->depth && cx->scope[s.depth].serial == s.serial;
}

deft_status df_scope_not_open(deft_ctx *cx, deft_scope s)
{
    if (s.depth == 0 && cx->pending != DEFT_OK) {
        if (cx->mistake_number == cx->refused) cx->mistake_in_step = false;
        return df_deliver(cx);
    }
    return df_fail(&cx->diag, DEFT_E_STATE, "%s: the %s is not open", cx->act,
                   strcmp(cx->act, "scope_end") ? "step" : "scope");
}

/* A tensor that has a value no longer knows its record, and so not where the value came from. */
static void forget_record(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (t->epoch == cx->epoch && t->value && !(t->flags & (DF_HANDLE_WEAK | DF_HANDLE_MUT)))
        t->epoch = 0;
}

/* Called after the outermost scope has ended. Computes kept tensors. When nothing is left pending,
 * the records are removed. Otherwise tensors that were made outside scopes are pending. Then what
 * has been computed forgets its record, because gradients must not depend on what else is pending.
 * Records that no pending tensor needs are removed when they are many. When wrapped memory is
 * written, everything pending is computed, because it may read what that memory held. */
static deft_status outermost_end(deft_ctx *cx)
{
    bool writes = false;
    for (size_t i = 0; i < cx->muts.n; i++) writes |= cx->muts.at[i].now.due;
    deft_status st = df_compute_outer(cx, writes ? 1 : 0, DF_CUT_MIDDLE);
    if (st != DEFT_OK) return st;
    const bool is_pending = df_has_pending_outer(cx, 1);
    df_handles_resolve_outer(cx, 1);
    if (is_pending) {
        df_each_outer(cx, 1, forget_record, NULL);
        df_forget_ended(cx);
    } else {
        df_rec_reset(cx);
    }
    return DEFT_OK;
}

deft_status deft_scope_end(deft_scope s)
{
    deft_ctx *const cx = s.cx;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "scope_end", DF_SITE);
    if (cx->body_at && s.depth <= cx->body_at) return df_may_act(cx);
    if (!df_scope_is_open(cx, s)) return df_scope_not_open(cx, s);
    if (cx->step_at && s.depth <= cx->step_at)
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "scope_end: a step is open inside this scope, or it is the step itself");
    /* No acting call can use the tensors that the mistake should have made. */
    const bool mine = cx->pending != DEFT_OK && !cx->mistake_in_step && !cx->body_at &&
                      cx->mistake_serial - s.serial < UINT32_MAX / 2;
    const bool told = cx->mistake_told;
    df_scope_pop(cx, s.depth);
    const deft_status st = cx->depth == 0 ? outermost_end(cx) : DEFT_OK;
    if (cx->depth > 0) df_forget_ended(cx);
    if (!mine || st != DEFT_OK) return st;
    const deft_status mistake = df_deliver(cx);
    return told ? DEFT_OK : mistake;
}

deft_tensor *deft_scope_return(deft_scope s, deft_tensor *t)
{
    deft_ctx *const cx = s.cx;
    if (!cx) return NULL;
    df_enter_call(cx, DF_SITE);
    const bool mine = df_enter_more_of(cx, "scope_return", 2, t, DF_ALL_FACES);
    if (!df_scope_is_open(cx, s) || (cx->step_at && s.depth <= cx->step_at) ||
        (cx->body_at && s.depth <= cx->body_at))
        return df_error(cx, DEFT_E_STATE, "scope_return: the scope is not open, or it is a step");
    deft_tensor saved = { 0 };
    df_undo undo = { 0 };
    const bool ok = mine && df_flight_take(cx, t, &undo);
    if (ok) {
        if (DF_UNLIKELY(cx->owes)) df_owe_recorded(cx);
        saved = *t;
        df_value_ref(saved.value);
        df_mut *const m = t->keeps ? NULL : df_mut_of(cx, t);
        if (m) {
            m->t = &saved;
            df_flags_change(t, DF_HANDLE_MUT, 0);
        } else {
            df_flags_change(&saved, DF_HANDLE_MUT, 0);
        }
    }
    df_scope_pop(cx, s.depth);
    if (!ok) return NULL;
    deft_tensor *const root = df_root_of(&saved);
    deft_tensor *const out = df_handle_new(cx, saved.node);
    df_flight_give(cx, out, &undo);
    if (!out) {
        df_mut_end(cx, &saved);
        df_value_drop(cx, &saved.value);
        return NULL;
    }
    if (saved.flags & DF_HANDLE_WEAK) {
        df_number_move(out, &saved);
        return out;
    }
    df_mut *const m = df_mut_of(cx, &saved);
    if (m) m->t = out;
    out->value = saved.value;
    out->root = root;
    out->epoch = saved.epoch;
    out->place = root ? saved.place : DF_NONE;
    out->failure = saved.failure;
    df_flags_change(out, ~(uint32_t)DF_HANDLE_FLIGHT,
                    (saved.flags & DF_HANDLE_MUT) | df_face_flags(df_face_of(&saved)));
    df_forget_ended(cx);
    return out;
}

/* ---- keeping ---- */

deft_tensor *deft_keep(deft_tensor *t)
{
    deft_ctx *const cx = df_peek_faced("keep", 1, t, DF_SITE);
    if (!cx) return NULL;
    if (t->keeps == DF_MAX_KEEPS)
        return df_error(cx, DEFT_E_LIMIT, "keep: kept %u times already", DF_MAX_KEEPS);
    if (cx->body_at && !df_is_outside_body(cx, t))
        return df_error(cx, DEFT_E_STATE,
                        "keep: a tensor made inside a loop, branch or vmap stays there: make it a "
                        "state or a result");
    if (cx->recording && !df_is_outer(cx, t))
        df_recording_spoil(cx, "it keeps a tensor that it made", DF_SITE);
    if (t->keeps == 0 && !df_vec_push(cx->mem, &cx->kept, ((df_kept){ t, df_here(cx, DF_SITE) })))
        return df_error(cx, DEFT_E_MEMORY, "keep: no memory for the list of kept tensors");
    t->keeps++;
    if (!(t->flags & DF_HANDLE_WEAK)) {
        t->root = NULL; /* no view any more */
        t->place = DF_NONE;
    }
    return t;
}

static void forget_root(deft_ctx *cx, deft_tensor *t, void *root)
{
    (void)cx;
    if (t->flags & DF_HANDLE_WEAK || t->root != root) return;
    t->root = NULL;
    t->place = DF_NONE;
}

static void forget_root_in(df_undos *log, const deft_tensor *root)
{
    for (size_t i = 0; i < log->n; i++) {
        if (log->at[i].root != root) continue;
        log->at[i].root = NULL;
        log->at[i].place = DF_NONE;
    }
}

/* The slot of t becomes free: views of t become tensors of their own. */
static void end_views(deft_ctx *cx, deft_tensor *t)
{
    if (!(t->flags & DF_HANDLE_VIEWED) || t->flags & DF_HANDLE_WEAK) return;
    df_each_outer(cx, UINT32_MAX, forget_root, t);
    forget_root_in(&cx->undo, t);
    if (cx->flight) forget_root_in(&cx->flight->undo, t);
}

void deft_drop(deft_tensor **pt)
{
    if (!pt) return;
    deft_tensor *const t = *pt;
    *pt = NULL;
    deft_ctx *const cx = df_look(t); /* NULL when t is NULL */
    if (!cx) return;
    if (DF_UNLIKELY(cx->owes)) df_owe_bound(cx, t);
    if (!t->keeps && df_slab_of(t)->depth == 0 && !t->value && !cx->step_at && !cx->body_at &&
        !(t->flags & DF_HANDLE_WEAK)) {
        df_undo_end(cx, t);
        df_mut_end(cx, t);
        df_handle_unbind(cx, t);
        t->flags = 0;
        return;
    }
    if (!t->keeps || --t->keeps) return;
    for (size_t i = cx->kept.n; i-- > 0;)
        if (cx->kept.at[i].t == t) {
            cx->kept.at[i] = cx->kept.at[--cx->kept.n];
            break;
        }
    if (t->flags & DF_HANDLE_ESCAPED) {
        end_views(cx, t);
        df_undo_end(cx, t);
        df_mut_end(cx, t);
        df_handle_unbind(cx, t);
        t->flags = 0;
    }
}
