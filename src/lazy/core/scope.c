/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes, steps, keeping, and the undo log that makes a step a transaction.
 *
 * The first assign of a step to a handle that outlives the step saves the handle's binding. When
 * the step fails, bindings are restored and its records cut off: nothing else remembers it. When it
 * succeeds, the log dies; an old value that only the log and the records held may already have been
 * taken over in place (df_want.donor). The log of a step that is left to run lives until it has
 * (submit.h).
 * size: what a cut collects, computes and binds is one list for all who cut.
 */
#include "lazy/device/devices.h"
#include "lazy/core/meet.h"
#include "lazy/capture/recording.h"
#include "lazy/core/submit.h"
#include "lazy/log/tell.h"

void df_undo_all(deft_ctx *cx, df_undos *log, uint8_t flag)
{
    while (log->n) {
        df_undo *const u = &log->at[--log->n];
        deft_tensor *const t = u->t;
        df_value_drop(cx, &t->value);
        t->value = u->value;
        t->root = t->keeps ? NULL : u->root; /* what is kept is a view of nothing */
        t->node = u->node;
        t->epoch = u->epoch;
        t->place = t->keeps ? DF_NONE : u->place;
        /* What was missed before is missed again; a step in flight may have missed more since. */
        if (flag == DF_HANDLE_UNDO || u->lacks) t->lacks = u->lacks;
        t->flags &= (uint8_t)~flag;
    }
}

void df_undo_forget(deft_ctx *cx, df_undos *log, uint8_t flag)
{
    while (log->n) {
        df_undo *const u = &log->at[--log->n];
        u->t->flags &= (uint8_t)~flag;
        df_value_drop(cx, &u->value);
    }
}

static void undo_end(deft_ctx *cx, df_undos *log, const deft_tensor *t)
{
    for (size_t i = 0; i < log->n; i++) {
        df_undo *const u = &log->at[i];
        if (u->t != t) continue;
        df_value_drop(cx, &u->value);
        *u = log->at[--log->n];
        return;
    }
}

void df_undo_end(deft_ctx *cx, const deft_tensor *t)
{
    if (t->flags & DF_HANDLE_UNDO) undo_end(cx, &cx->undo, t);
    if (t->flags & DF_HANDLE_FLIGHT) undo_end(cx, &cx->flight->undo, t);
}

/* Handles that outlive the step may name input records made inside it; their values stand on their
 * own. */
static void forget_step_node(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (t->epoch == cx->epoch && t->node >= cx->step_n) t->epoch = 0;
}

void df_scope_pop(deft_ctx *cx, uint32_t depth)
{
    if (DF_UNLIKELY(cx->owes)) df_owe_recorded(cx);
    while (cx->depth >= depth && cx->depth > 0) {
        df_scope_free_handles(cx, &cx->frame[cx->depth]);
        df_labels_end(cx, cx->frame[cx->depth].n_labels);
        cx->depth--;
    }
}

static void forget_mut(deft_ctx *cx, size_t i)
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
        if (!m->t) forget_mut(cx, i);
    }
}

static void step_rollback(deft_ctx *cx)
{
    const uint32_t at = cx->step_at;
    df_undo_all(cx, &cx->undo, DF_HANDLE_UNDO);
    df_each_outer(cx, at, forget_step_node, NULL);
    df_scope_pop(cx, at);
    /* What was assigned before the step is written by a later cut: the handle has it again. */
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (!m->in_step) continue;
        df_value_drop(cx, &m->now.what);
        m->now = m->before;
        m->before = (df_write){ 0 };
        m->in_step = false;
        if (!m->t && !m->now.due) forget_mut(cx, i);
    }
    cx->step_at = 0;
    df_again_cut_off(cx, cx->step_n);
    df_rec_truncate(cx, cx->step_n, cx->step_args, cx->step_ext);
    df_budget_set(cx, NULL);
    if (df_in_flight(cx) == DF_FLIGHT_FAILED) df_flight_put_back(cx);
    df_lose_again(cx);
}

/* ---- collecting what a cut must compute ---- */

/* Into cx->want and cx->who: per want the first handle bound to it. ok: memory sufficed. */

/* Whether t waits for a record that a cut must compute. */
static bool waits(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch == cx->epoch;
}

/* The value of a record as a tensor may keep it: memory that is only borrowed is the caller's again
 * once the step has ended, and is copied before. */
static df_value *own_value(const deft_ctx *cx, uint32_t node)
{
    const uint32_t i = cx->rec.val[node];
    df_value *const v = i ? cx->rec.vals.at[i] : NULL;
    return v && !(v->flags & DF_VALUE_WRAPPED) ? v : NULL;
}

static void want_it(deft_ctx *cx, bool *ok, deft_tensor *t, const df_want *w)
{
    *ok = *ok && df_vec_push(cx->mem, &cx->want, *w) && df_vec_push(cx->mem, &cx->who, t);
}

/* Handles in the undo log and those of wrapped memory are collected from their own lists. */
static void collect_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    if (!waits(cx, t) || t->flags & (DF_HANDLE_UNDO | DF_HANDLE_MUT) || own_value(cx, t->node))
        return;
    const df_want w = { .node = t->node };
    want_it(cx, user, t, &w);
}

/* Which cut it is: one for a budget; one in the middle of a step, or outside steps; the one that
 * ends a step; the same, left to run. */
typedef enum cut_kind { RELIEF, MIDDLE, COMMIT, SUBMIT } cut_kind;

/* commit: the step ends with this cut, so that nobody will ask for the old values again. */
static void collect_assigned(deft_ctx *cx, bool *ok, bool commit)
{
    for (size_t i = 0; i < cx->undo.n; i++) {
        const df_undo *const u = &cx->undo.at[i];
        if (!waits(cx, u->t) || u->t->flags & DF_HANDLE_MUT || own_value(cx, u->t->node)) continue;
        const df_want w = { .node = u->t->node,
                            .donor = commit ? u->value : NULL,
                            .donor_refs = 1 };
        want_it(cx, ok, u->t, &w);
    }
}

/* Writes into the caller's memory, also through handles that have ended or end with this cut. */
static void collect_muts(deft_ctx *cx, bool *ok)
{
    for (size_t i = 0; i < cx->muts.n; i++) {
        const df_mut *const m = &cx->muts.at[i];
        if (!m->now.due || m->now.what) continue;
        const df_want w = { .node = m->now.node, .into = m->value };
        want_it(cx, ok, m->t, &w);
    }
}

/* Before that: what earlier cuts of the step computed comes to where it is to be written. */
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

/* After success: what earlier cuts of the step computed is written too, or will be; memory whose
 * handle has ended is done with. Fails only as a GPU does. */
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
        if (!m->t) forget_mut(cx, i);
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

/* Computes every pending handle owned outside depth `below`. */
static deft_status compute_outer(deft_ctx *cx, uint32_t below, cut_kind kind)
{
    deft_status st = DEFT_OK;
    const bool commit = kind >= COMMIT;
    /* Memory of the caller's can't be restored, and records that stay may read what it held. */
    const bool writes = commit || (kind == MIDDLE && !cx->step_at);
    bool ok = true, later = false;
    df_made *m = NULL;
    collect_assigned(cx, &ok, commit);
    if (writes) collect_muts(cx, &ok);
    df_each_outer(cx, below, collect_one, &ok);
    if (!ok) TRY(df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for its list of results"));
    if (writes) TRY(bring_muts(cx));
    if (kind == SUBMIT && cx->want.n) TRY(df_flight_ready(cx, cx->muts.n, &later));
    if (later)
        TRY(df_materialize_later(cx, cx->want.at, (uint32_t)cx->want.n, &m));
    else if (cx->want.n)
        TRY(df_materialize(cx, cx->want.at, (uint32_t)cx->want.n));
    if (cx->recording) df_recording_wants(cx);
    bind_results(cx);
    if (writes) TRY(finish_muts(cx, later));
    if (later) df_flight_begin(cx, m, cx->act_site);
done:
    collect_finish(cx);
    return st;
}

static void settle_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (waits(cx, t) && !(t->flags & DF_HANDLE_MUT))
        t->value = df_value_ref(own_value(cx, t->node));
}

static deft_status value_of_node(deft_ctx *cx, uint32_t node, df_value **out)
{
    *out = df_value_ref(own_value(cx, node));
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

/* What will be written into the caller's memory later. */
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
    const deft_status st = compute_outer(cx, cx->depth + 1, MIDDLE);
    if (st != DEFT_OK) return st;
    df_each_outer(cx, cx->depth + 1, settle_one, NULL);
    df_rec_reset(cx);
    return DEFT_OK;
}

void df_settle(deft_ctx *cx)
{
    df_each_outer(cx, cx->depth + 1, settle_one, NULL);
}

/* Something among what is pending cannot be computed, which may never be asked for: that alone goes
 * on waiting. Its mistake is told to whoever asks. */
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
        if (waits(cx, t)) st = value_of_node(cx, t->node, &t->value); /* else it has lost that */
    }
    collect_finish(cx);
    return st == DEFT_E_INTERRUPTED ? st : DEFT_OK;
}

deft_status df_relieve(deft_ctx *cx)
{
    df_assert(cx->n_walks == 0);
    const df_diag said = cx->diag;
    deft_status st = df_wait(cx);
    if (st != DEFT_OK) return st;
    if (cx->recording) df_recording_spoil(cx, "its records were cut by a bound", cx->act_site);
    cx->relieving = true;
    st = compute_writes(cx);
    if (st == DEFT_OK) st = compute_outer(cx, cx->depth + 1, RELIEF);
    if (st != DEFT_OK && st != DEFT_E_INTERRUPTED) {
        st = compute_each(cx);
        if (st == DEFT_OK) cx->diag = said;
    }
    cx->relieving = false;
    return st;
}

/* ---- scopes ---- */

static void see_pending(deft_ctx *cx, deft_tensor *t, void *user)
{
    bool *const any = user;
    if (waits(cx, t) && !own_value(cx, t->node)) *any = true;
}

bool df_has_pending(deft_ctx *cx)
{
    bool pending = false;
    df_each_outer(cx, cx->depth + 1, see_pending, &pending);
    for (size_t i = 0; i < cx->muts.n; i++) pending |= cx->muts.at[i].now.due;
    return pending;
}

/* Views of before are views no more, whether they were computed or not: when work runs must not
 * change what a program means. */
static void forget_place(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)cx;
    (void)user;
    if (!(t->flags & DF_HANDLE_WEAK)) t->place = DF_NONE;
}

/* Before an outermost scope opens, with nothing pending: the old records go, so that those inside
 * begin the same way each time. */
static void start_afresh(deft_ctx *cx)
{
    if (cx->depth > 0) return;
    df_each_outer(cx, 1, forget_place, NULL);
    if (cx->rec.n == 0 || df_has_pending(cx)) return;
    df_each_outer(cx, 1, settle_one, NULL);
    df_rec_reset(cx);
}

/* What could not begin: its end delivers the mistake. */
static deft_scope refused(deft_ctx *cx)
{
    cx->refused = cx->n_mistakes;
    return (deft_scope){ cx, 0, 0 };
}

deft_scope deft_scope_begin(deft_ctx *cx)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return (deft_scope){ 0 };
    start_afresh(cx);
    if (!df_scope_push(cx, df_here(cx, DF_SITE))) return refused(cx);
    if (cx->depth == 1) df_ctx_begin_generation(cx);
    return (deft_scope){ cx, cx->serial, cx->depth };
}

static bool token_open(const deft_ctx *cx, deft_scope s)
{
    return s.depth > 0 && s.depth <= cx->depth && cx->frame[s.depth].serial == s.serial;
}

/* The end of what never opened delivers the mistake of its beginning. */
static deft_status not_open(deft_ctx *cx, deft_scope s)
{
    if (s.depth == 0 && cx->pending != DEFT_OK) {
        if (cx->mistake_number == cx->refused) cx->mistake_in_step = false;
        return df_deliver(cx);
    }
    return df_fail(&cx->diag, DEFT_E_STATE, "%s: the %s is not open", cx->act,
                   strcmp(cx->act, "scope_end") ? "step" : "scope");
}

/* After the outermost scope: kept values are computed; with nothing left pending the records go.
 * Where the caller's memory is written, all that is pending is computed: it may read what that
 * memory held. */
static deft_status outermost_end(deft_ctx *cx)
{
    bool pending = false, writes = false;
    for (size_t i = 0; i < cx->muts.n; i++) writes |= cx->muts.at[i].now.due;
    deft_status st = compute_outer(cx, writes ? 1 : 0, MIDDLE);
    if (st != DEFT_OK) return st;
    df_each_outer(cx, 1, see_pending, &pending);
    if (!pending) {
        df_each_outer(cx, 1, settle_one, NULL);
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
    if (!token_open(cx, s)) return not_open(cx, s);
    if (cx->step_at && s.depth <= cx->step_at)
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "scope_end: a step is open inside this scope, or it is the step itself");
    /* Nothing can act any more on the tensors that the mistake should have made. */
    const bool mine = cx->pending != DEFT_OK && !cx->mistake_in_step && !cx->body_at &&
                      cx->mistake_serial - s.serial < UINT32_MAX / 2;
    const bool told = cx->mistake_told;
    df_scope_pop(cx, s.depth);
    const deft_status st = cx->depth == 0 ? outermost_end(cx) : DEFT_OK;
    if (!mine || st != DEFT_OK) return st;
    const deft_status mistake = df_deliver(cx);
    return told ? DEFT_OK : mistake;
}

deft_tensor *deft_scope_return(deft_scope s, deft_tensor *t)
{
    deft_ctx *const cx = s.cx;
    if (!cx) return NULL;
    df_enter_call(cx, DF_SITE);
    const bool mine = df_enter_more(cx, "scope_return", 2, t);
    if (!token_open(cx, s) || (cx->step_at && s.depth <= cx->step_at) ||
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
            t->flags &= (uint8_t)~DF_HANDLE_MUT;
        } else {
            saved.flags &= (uint8_t)~DF_HANDLE_MUT;
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
    out->lacks = saved.lacks;
    out->flags = (out->flags & DF_HANDLE_FLIGHT) | (saved.flags & (DF_HANDLE_LIVE | DF_HANDLE_MUT));
    return out;
}

/* ---- steps ---- */

static deft_scope step_begin(deft_ctx *cx, const deft_step_options *options, uintptr_t at)
{
    if (!cx) return (deft_scope){ 0 };
    df_enter_call(cx, at);
    if (options && !df_check_options(cx, "step_begin_with", "deft_step_options", options->size))
        return refused(cx);
    if (cx->body_at) {
        df_error(cx, DEFT_E_STATE, "step_begin: inside the function of a loop, branch or vmap");
        return refused(cx);
    }
    if (cx->step_at) {
        char site[DF_SITE_TEXT];
        df_error(cx, DEFT_E_STATE, "step_begin: the step opened at %s is still open",
                 df_ctx_site_text(cx, cx->frame[cx->step_at].site, site, sizeof site));
        return refused(cx);
    }
    start_afresh(cx);
    if (!df_scope_push(cx, df_here(cx, at))) return refused(cx);
    df_budget_set(cx, options);
    cx->step_at = cx->depth;
    cx->step_n = cx->rec.n;
    cx->step_args = cx->rec.n_args;
    cx->step_ext = cx->rec.n_ext;
    df_ctx_begin_generation(cx);
    if (df_ring_on(cx->ring)) df_tell_step_begin(cx);
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
    if (waits(cx, t) && t->node < cx->step_n && !own_value(cx, t->node)) *any = true;
}

/* Whether records of before the step would have to be there again should it fail: they go when it
 * is left to run. */
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

/* What the step assigns may come of a tensor that missed an assign before the step. */
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
    if (st != DEFT_OK) return st; /* the step goes on: its loop is still being recorded */
    if (!cx->step_at || s.depth != cx->step_at || !token_open(cx, s)) return not_open(cx, s);
    st = df_deliver_step(cx);
    if (st == DEFT_OK) st = missed_before(cx);
    if (st == DEFT_OK) st = df_wait(cx);
    /* Handles on values get references of their own first: a value with another owner is not
     * donated. */
    df_each_outer(cx, cx->step_at, settle_one, NULL);
    /* What a GPU does is only put in, by this thread. */
    submit = submit && !cx->recording && !cx->n_queues && !needs_old_records(cx);
    if (st == DEFT_OK) st = compute_outer(cx, cx->step_at, submit ? SUBMIT : COMMIT);
    if (df_ring_on(cx->ring)) df_tell_step_end(cx, cx->act, st);
    if (st != DEFT_OK) {
        step_rollback(cx);
        return st;
    }
    const uint32_t at = cx->step_at;
    df_each_outer(cx, at, settle_one, NULL);
    if (cx->recording) df_recording_commit(cx);
    df_why_step(cx);
    df_undo_forget(cx, &cx->undo, DF_HANDLE_UNDO);
    df_scope_pop(cx, at);
    cx->step_at = 0;
    df_budget_set(cx, NULL);
    df_rec_reset(cx);
    return DEFT_OK;
}

/* Collects what the end of the step would compute, and looks at the plan of it. */
static deft_status foresee(deft_ctx *cx, deft_step_memory *out)
{
    bool ok = true;
    *out = (deft_step_memory){ 0 };
    df_each_outer(cx, cx->step_at, settle_one, NULL);
    collect_assigned(cx, &ok, true);
    collect_muts(cx, &ok);
    df_each_outer(cx, cx->step_at, collect_one, &ok);
    deft_status st = DEFT_OK;
    if (!ok)
        st = df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for its list of results");
    else if (cx->want.n)
        st = df_materialize_foresee(cx, cx->want.at, (uint32_t)cx->want.n, out);
    collect_finish(cx);
    return st;
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
    if (!cx->step_at || s.depth != cx->step_at || !token_open(cx, s))
        return df_fail(&cx->diag, DEFT_E_STATE, "step_memory_read: the step is not open");
    st = foresee(cx, &m);
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
    if (!cx || !cx->step_at || s.depth != cx->step_at || !token_open(cx, s)) return;
    if (cx->body_at) {
        df_enter_call(cx, DF_SITE);
        df_error(cx, DEFT_E_STATE, "step_abort: inside the function of a loop, branch or vmap");
        return;
    }
    if (cx->mistake_in_step) {
        cx->pending = DEFT_OK;
        cx->owes_mark = 0; /* what tensors missed before the step they go on missing */
    }
    if (df_ring_on(cx->ring)) df_tell_step_end(cx, "step_abort", DEFT_OK);
    step_rollback(cx);
}

/* ---- keeping ---- */

deft_tensor *deft_keep(deft_tensor *t)
{
    deft_ctx *const cx = df_peek("keep", 1, t, DF_SITE);
    if (!cx) return NULL;
    if (t->keeps == UINT16_MAX)
        return df_error(cx, DEFT_E_LIMIT, "keep: kept %d times already", UINT16_MAX);
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
        t->root = NULL; /* a tensor of its own from here on */
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

/* t's slot is free again: views of t are tensors of their own from here on. */
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
    if (t->flags & DF_HANDLE_ADRIFT) {
        end_views(cx, t);
        df_undo_end(cx, t);
        df_mut_end(cx, t);
        df_handle_unbind(cx, t);
        t->flags = 0;
    }
}
