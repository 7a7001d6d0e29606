/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects what a cut must compute, computes it, and binds the results.
 *
 * cx->want holds the wanted records. cx->who holds, per want, the first handle that is
 * bound to it, or NULL. Handles in the undo log and handles of wrapped memory are
 * collected from their own lists.
 */
#include "lazy/run/collect.h"

#include "lazy/core/recorder.h"
#include "lazy/core/devices.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"
#include "lazy/run/scope.h"

static void want_it(deft_ctx *cx, bool *ok, deft_tensor *t, const df_want *w)
{
    *ok = *ok && df_vec_push(cx->mem, &cx->want, *w) && df_vec_push(cx->mem, &cx->who, t);
}

/* Handles in the undo log and those of wrapped memory are collected from their own lists. */
static void collect_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    if (!df_is_pending(cx, t) || t->flags & (DF_HANDLE_UNDO | DF_HANDLE_MUT) ||
        df_own_value(cx, t->node))
        return;
    const df_want w = { .node = t->node };
    want_it(cx, user, t, &w);
}

/* ---- who gives its memory ----
 *
 * A result usually gets the memory of the value that it replaces. Where the step hands that value
 * on to another tensor, as in
 *
 *     deft_assign(before, u);  deft_assign(u, f(u, before));
 *
 * the other tensor loses its own old value instead, and that memory is as good. The chain goes on
 * until it comes to a value that no tensor of the step takes. So a scheme with several states works
 * in as much memory as the states have.
 */

/* The entries whose tensors take values that exist already, in the order of the log. */
typedef struct takers {
    size_t *at, n; /* in cx->pass */
} takers;

/* Without memory there are no takers: results then get other memory. */
static takers find_takers(deft_ctx *cx)
{
    takers t = { NULL, 0 };
    for (size_t i = 0; i < cx->undo.n; i++) {
        const deft_tensor *const taker = cx->undo.at[i].t;
        if (!taker->value || taker->flags & DF_HANDLE_MUT) continue;
        if (!t.at) {
            df_arena_reset(&cx->pass);
            t.at = df_arena_new(&cx->pass, size_t, cx->undo.n);
        }
        if (!t.at) break;
        t.at[t.n++] = i;
    }
    return t;
}

/* The entry whose tensor takes the old value of entry i; DF_NONE: there is none. When there are
 * several, it is the nearest one before i in the log, which begins again at its end. Programs hand
 * a value on just before they replace it. */
static size_t taker_of(const deft_ctx *cx, const takers *t, size_t i)
{
    size_t found = DF_NONE;
    for (size_t k = 0; k < t->n; k++) {
        const size_t at = t->at[k];
        if (at == i || cx->undo.at[at].t->value != cx->undo.at[i].value) continue;
        const bool is_nearer = found == DF_NONE || (found < i) <= (at < i);
        if (is_nearer) found = at;
    }
    return found;
}

/* The entry whose old value gives its memory to the result of entry i. */
static const df_undo *giver_of(const deft_ctx *cx, const takers *t, size_t i)
{
    for (size_t turn = 0; t->n > 0 && cx->undo.at[i].value && turn < cx->undo.n; turn++) {
        const size_t taker = taker_of(cx, t, i);
        if (taker == DF_NONE) break;
        i = taker;
    }
    return &cx->undo.at[i];
}

/* commit: the step ends with this cut, so that nothing can need the old values
 * afterwards. */
static void collect_assigned(deft_ctx *cx, bool *ok, bool commit)
{
    const takers hand_on = commit ? find_takers(cx) : (takers){ NULL, 0 };
    for (size_t i = 0; i < cx->undo.n; i++) {
        const df_undo *const u = &cx->undo.at[i];
        if (!df_is_pending(cx, u->t) || u->t->flags & DF_HANDLE_MUT || df_own_value(cx, u->t->node))
            continue;
        df_want w = { .node = u->t->node, .donor_refs = 1 };
        const df_undo *const from = giver_of(cx, &hand_on, i);
        if (commit && from->value) {
            w.donor = from->value;
            w.giver = from->t;
        }
        want_it(cx, ok, u->t, &w);
    }
}

/* Gives w the value of its record, if an earlier cut has computed it: then it is copied, which
 * needs no cut. Memory of the caller's is no such value: this or another write may change it. */
static void take_computed(deft_ctx *cx, df_write *w)
{
    if (w->due && !w->what) w->what = df_value_ref(df_own_value(cx, w->node));
}

/* Collects the writes into wrapped memory, including those whose handle has ended or ends
 * with this cut. A recording needs them all in its cut. */
static void collect_muts(deft_ctx *cx, bool *ok)
{
    for (size_t i = 0; i < cx->muts.n; i++) {
        df_mut *const m = &cx->muts.at[i];
        if (!cx->recording) take_computed(cx, &m->now);
        if (!m->now.due || m->now.what) continue;
        const df_want w = { .node = m->now.node, .into = m->value };
        want_it(cx, ok, m->t, &w);
    }
}

/* Called before the cut runs. Copies what earlier cuts of the step computed to the device
 * of the wrapped memory that it will be written to. */
static deft_status bring_muts(deft_ctx *cx)
{
    for (size_t i = 0; i < cx->muts.n && cx->n_queues; i++) {
        df_mut *const m = &cx->muts.at[i];
        df_value *what = m->now.what, *there;
        const deft_device where = df_value_where(cx, m->value);
        if (!what || df_value_where(cx, what) == where) continue;
        const deft_status st = df_value_moved(cx, &cx->diag, what, where, &there);
        if (st != DEFT_OK) return st;
        m->now.what = there;
        df_value_drop(cx, &what);
    }
    return DEFT_OK;
}

/* Called after success. Also writes what earlier cuts of the step computed, or leaves the
 * write to the flight (later). Forgets wrapped memory whose handle has ended. Fails only
 * when a GPU fails. */
static deft_status finish_muts(deft_ctx *cx, bool later)
{
    deft_status st = DEFT_OK;
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (m->now.what && m->t) {
            df_value_drop(cx, &m->t->value);
            m->t->value = df_value_ref(m->value);
        }
        if (m->now.what && later)
            df_flight_write(cx, m->value, &m->now.what);
        else if (m->now.what && st == DEFT_OK)
            st = df_value_assign(cx, &cx->diag, m->value, df_value_where(cx, m->value),
                                 m->now.what->data);
        df_value_drop(cx, &m->now.what);
        df_value_drop(cx, &m->before.what);
        m->now.due = m->in_step = false;
        if (!m->t) df_mut_forget(cx, i);
    }
    return st;
}

/* Gives every collected handle its value. */
static void bind_results(deft_ctx *cx)
{
    for (size_t i = 0; i < cx->want.n; i++) {
        deft_tensor *const t = cx->who.at[i];
        if (!t || (t->value && !cx->want.at[i].into)) continue;
        df_value_drop(cx, &t->value);
        t->value = df_value_ref(cx->want.at[i].result);
    }
}

static void collect_finish(deft_ctx *cx)
{
    for (size_t i = 0; i < cx->want.n; i++) df_value_drop(cx, &cx->want.at[i].result);
    cx->want.n = cx->who.n = 0;
}

deft_status df_compute_outer(deft_ctx *cx, uint32_t below, df_cut_kind kind)
{
    deft_status st = DEFT_OK;
    const bool commit = kind >= DF_CUT_COMMIT;
    /* Wrapped memory cannot be restored, and records that stay may read what it held. */
    const bool writes = commit || (kind == DF_CUT_MIDDLE && !cx->step_at);
    bool ok = true, later = false;
    df_cut *m = NULL;
    collect_assigned(cx, &ok, commit);
    if (writes) collect_muts(cx, &ok);
    df_each_outer(cx, below, collect_one, &ok);
    if (!ok) TRY(df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for its list of results"));
    if (writes) TRY(bring_muts(cx));
    if (kind == DF_CUT_SUBMIT && cx->want.n) TRY(df_flight_ready(cx, cx->muts.n, &later));
    if (later)
        TRY(df_materialize_prepare(cx, cx->want.at, (uint32_t)cx->want.n, &m));
    else if (cx->want.n)
        TRY(df_materialize(cx, cx->want.at, (uint32_t)cx->want.n));
    if (cx->recording) cx->recorder->wants(cx);
    bind_results(cx);
    if (writes) TRY(finish_muts(cx, later));
    if (later) df_flight_begin(cx, m, cx->act_site);
done:
    collect_finish(cx);
    return st;
}

static deft_status value_of_node(deft_ctx *cx, uint32_t node, df_value **out)
{
    *out = df_value_ref(df_own_value(cx, node));
    if (*out) return DEFT_OK;
    df_want w = { .node = node };
    const deft_status st = df_materialize(cx, &w, 1);
    *out = w.result;
    return st;
}

static deft_status value_of_write(deft_ctx *cx, df_write *w)
{
    return w->due && !w->what ? value_of_node(cx, w->node, &w->what) : DEFT_OK;
}

/* Computes what will later be written into wrapped memory. */
static deft_status compute_writes(deft_ctx *cx)
{
    for (size_t i = 0; i < cx->muts.n; i++) {
        df_mut *const m = &cx->muts.at[i];
        deft_status st = value_of_write(cx, &m->before);
        if (st == DEFT_OK) st = value_of_write(cx, &m->now);
        if (st != DEFT_OK) return st;
        if (m->t && !m->t->value) m->t->value = df_value_ref(m->now.what);
    }
    return DEFT_OK;
}

deft_status df_flush(deft_ctx *cx)
{
    df_assert(!cx->step_at && cx->undo.n == 0 && !cx->recording);
    const deft_status st = df_compute_outer(cx, cx->depth + 1, DF_CUT_MIDDLE);
    if (st != DEFT_OK) return st;
    df_handles_resolve(cx);
    df_rec_reset(cx);
    return DEFT_OK;
}

/* Called when something pending cannot be computed. The program may never need it. So
 * everything is computed by itself, and only what fails stays pending. A call that needs
 * it fails later. */
static deft_status compute_each(deft_ctx *cx)
{
    deft_status st = DEFT_OK;
    bool ok = true;
    for (size_t i = 0; i < cx->muts.n && st != DEFT_E_INTERRUPTED; i++) {
        df_mut *const m = &cx->muts.at[i];
        st = value_of_write(cx, &m->now);
        if (m->t && !m->t->value) m->t->value = df_value_ref(m->now.what);
    }
    collect_assigned(cx, &ok, false);
    df_each_outer(cx, cx->depth + 1, collect_one, &ok);
    for (size_t i = 0; i < cx->want.n && ok && st != DEFT_E_INTERRUPTED; i++) {
        deft_tensor *const t = cx->who.at[i];
        if (df_is_pending(cx, t))
            st = value_of_node(cx, t->node, &t->value); /* otherwise it has lost its record */
    }
    collect_finish(cx);
    return st == DEFT_E_INTERRUPTED ? st : DEFT_OK;
}

deft_status df_budget_flush(deft_ctx *cx)
{
    df_assert(cx->n_walks == 0);
    const df_diag said = cx->diag;
    deft_status st = df_wait_for_steps(cx);
    if (st != DEFT_OK) return st;
    df_recording_spoil(cx, "its records were cut by a bound", cx->act_site);
    cx->budget_flushing = true;
    st = compute_writes(cx);
    if (st == DEFT_OK) st = df_compute_outer(cx, cx->depth + 1, DF_CUT_BUDGET);
    if (st != DEFT_OK && st != DEFT_E_INTERRUPTED) {
        st = compute_each(cx);
        if (st == DEFT_OK) cx->diag = said;
    }
    cx->budget_flushing = false;
    return st;
}

static void see_pending(deft_ctx *cx, deft_tensor *t, void *user)
{
    bool *const any = user;
    if (df_is_pending(cx, t) && !df_own_value(cx, t->node)) *any = true;
}

bool df_has_pending_outer(deft_ctx *cx, uint32_t below)
{
    bool pending = false;
    df_each_outer(cx, below, see_pending, &pending);
    return pending;
}

static bool needs_record(deft_ctx *cx, df_write *w)
{
    take_computed(cx, w);
    return w->due && !w->what;
}

bool df_needs_cut(deft_ctx *cx)
{
    bool needs = df_has_pending_outer(cx, cx->depth + 1);
    for (size_t i = 0; i < cx->muts.n; i++) {
        needs |= needs_record(cx, &cx->muts.at[i].now);
        needs |= needs_record(cx, &cx->muts.at[i].before);
    }
    return needs;
}

bool df_has_pending(deft_ctx *cx)
{
    bool pending = df_has_pending_outer(cx, cx->depth + 1);
    for (size_t i = 0; i < cx->muts.n; i++) pending |= cx->muts.at[i].now.due;
    return pending;
}

deft_status df_estimate(deft_ctx *cx, deft_step_memory *out)
{
    bool ok = true;
    *out = (deft_step_memory){ 0 };
    df_handles_resolve_outer(cx, cx->step_at);
    collect_assigned(cx, &ok, true);
    collect_muts(cx, &ok);
    df_each_outer(cx, cx->step_at, collect_one, &ok);
    deft_status st = DEFT_OK;
    if (!ok)
        st = df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for its list of results");
    else if (cx->want.n)
        st = df_materialize_estimate(cx, cx->want.at, (uint32_t)cx->want.n, out);
    collect_finish(cx);
    return st;
}
