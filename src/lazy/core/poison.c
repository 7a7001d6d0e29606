/* SPDX-License-Identifier: Apache-2.0
 *
 * What mistakes leave behind in tensors.
 *
 * An assign that failed outside steps leaves its tensor as it was. Whoever reads that tensor, or
 * what was recorded from it since, would get a number that the program does not mean: the read
 * delivers the mistake instead. Inside a step this is not needed, since the step's end fails.
 *
 * Such a tensor has a mark, deft_tensor.lacks, which is the number of an entry of cx->missed. The
 * mark of the undelivered mistake is cx->owes_mark. Marks outlive a mistake that gave way to a
 * later one, and end when it is delivered. What was recorded from a marked tensor is found by its
 * records, and gets the mark itself before records or the tensor go.
 *
 * A record whose indices are out of range can never be computed: values do not change. A tensor
 * that waits for it would make every later step fail that computes what lives on. Such tensors lose
 * their record when the fault is found; the sentence is kept for those who ask for them again.
 * Which branch a cond takes is known only when it has run: a tensor that needs such a record in a
 * branch alone is computed by itself then, and loses its record when the same record fails again.
 */
#include "lazy/core/submit.h"

#include <stdio.h>
#include <string.h>

/* ---- assigns that failed ---- */

static bool is_mark(uint8_t lacks)
{
    return lacks != DF_LACKS_NOTHING && lacks != DF_LACKS_VALUE;
}

static void each_log(df_undos *log, void (*f)(uint8_t *lacks, void *), void *user)
{
    for (size_t i = 0; i < log->n; i++) f(&log->at[i].lacks, user);
}

typedef struct visit {
    void (*f)(uint8_t *lacks, void *user);
    void *user;
} visit;

static void visit_handle(deft_ctx *cx, deft_tensor *t, void *user)
{
    const visit *const v = user;
    (void)cx;
    v->f(&t->lacks, v->user);
}

/* Calls f on what each tensor lacks, and on what it lacks again when an undo log restores it. */
static void each_lacks(deft_ctx *cx, void (*f)(uint8_t *lacks, void *), void *user)
{
    visit v = { f, user };
    df_each_outer(cx, cx->depth + 1, visit_handle, &v);
    each_log(&cx->undo, f, user);
    if (cx->flight) each_log(&cx->flight->undo, f, user);
}

static void see_used(uint8_t *lacks, void *user)
{
    bool *const used = user;
    used[*lacks] = true;
}

/* A mark that no tensor has, for the undelivered mistake. When there is none left, one is shared
 * with an older mistake. */
static uint8_t new_mark(deft_ctx *cx)
{
    bool used[DF_LACKS_VALUE + 1] = { false };
    each_lacks(cx, see_used, used);
    uint8_t mark = cx->last_mark;
    do mark = mark + 1 == DF_LACKS_VALUE ? 1 : (uint8_t)(mark + 1);
    while (used[mark] && mark != cx->last_mark);
    for (uint32_t i = 0; i < DF_FAULTS; i++)
        if (cx->missed_mark[i] == mark) cx->missed_mark[i] = DF_LACKS_NOTHING;
    cx->missed[mark] = (df_missed){ cx->rec.n, cx->epoch };
    const uint32_t at = cx->n_missed++ % DF_FAULTS;
    cx->missed_mark[at] = mark;
    cx->missed_said[at] = cx->mistake;
    return cx->last_mark = mark;
}

void df_owe(deft_ctx *cx, deft_tensor *dst)
{
    if (cx->pending == DEFT_OK) return;
    if (cx->step_at || cx->body_at) {
        cx->mistake_in_step = cx->mistake_in_step || cx->step_at;
        return;
    }
    if (!cx->owes_mark) cx->owes_mark = new_mark(cx);
    cx->owes = true;
    df_owe_value(dst, cx->owes_mark);
}

void df_owe_value(deft_tensor *dst, uint8_t mark)
{
    for (deft_tensor *t = dst; t; t = df_root_of(t))
        if (t->lacks != DF_LACKS_VALUE) t->lacks = mark;
}

typedef struct forgiven {
    uint8_t mark; /* DF_LACKS_NOTHING: all */
    bool others;
} forgiven;

static void forgive_one(uint8_t *lacks, void *user)
{
    forgiven *const f = user;
    if (!is_mark(*lacks)) return;
    if (f->mark == DF_LACKS_NOTHING || *lacks == f->mark)
        *lacks = DF_LACKS_NOTHING;
    else
        f->others = true;
}

static void forgive(deft_ctx *cx, uint8_t mark)
{
    forgiven f = { mark, false };
    each_lacks(cx, forgive_one, &f);
    if (mark == DF_LACKS_NOTHING || mark == cx->owes_mark) cx->owes_mark = DF_LACKS_NOTHING;
    cx->owes = f.others;
}

void df_owe_delivered(deft_ctx *cx)
{
    if (cx->owes_mark) forgive(cx, cx->owes_mark);
}

void df_owe_nothing(deft_ctx *cx)
{
    forgive(cx, DF_LACKS_NOTHING);
}

typedef struct taint {
    deft_ctx *cx;
    uint8_t *is;    /* per record: TAINT_*, or 0 */
    uint32_t fault; /* the record that cannot be computed, where one is sought for */
    uint8_t *by;    /* per record: the mark that it has from a tensor, where those are sought for */
    uint32_t from;  /* no record before this one misses an assign */
} taint;

enum {
    TAINT_SURE = 1,  /* it cannot be used */
    TAINT_LATER = 2, /* only records that follow it cannot be used */
    TAINT_TAKEN = 3  /* it cannot be used when a cond takes a certain branch */
};

/* The first record that may use a tensor with that mark, in its place. */
static uint32_t missed_from(const deft_ctx *cx, uint8_t mark)
{
    return cx->missed[mark].epoch == cx->epoch ? cx->missed[mark].from : 0;
}

static void see_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    taint *const s = user;
    if (!is_mark(t->lacks) || t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK) return;
    const uint32_t from = missed_from(cx, t->lacks);
    if (from < s->from) s->from = from;
    s->is[t->node] = TAINT_LATER;
    s->by[t->node] = t->lacks;
}

/* What a record misses by what it uses. Either branch of a cond counts. */
static void miss_by(taint *s, uint32_t i)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t src = r->nodes[i].src[k].i;
        if (src >= i || !s->is[src]) continue;
        if (s->is[src] == TAINT_LATER && i < missed_from(s->cx, s->by[src])) continue;
        s->is[i] = TAINT_SURE;
        s->by[i] = s->by[src];
        return;
    }
}

/* Finds the records that miss an assign. false: there is no memory for that. */
static bool find_missing(deft_ctx *cx, taint *s)
{
    const uint32_t n = cx->rec.n;
    *s = (taint){ .cx = cx, .is = df_mem_zalloc(cx->mem, (size_t)n * 2), .from = UINT32_MAX };
    if (!s->is) return false;
    s->by = s->is + n;
    df_each_outer(cx, cx->depth + 1, see_owing, s);
    for (uint32_t i = s->from; i < n; i++) miss_by(s, i);
    return true;
}

static void give_missing(taint *s, uint32_t n)
{
    df_mem_free(s->cx->mem, s->is, (size_t)n * 2);
}

uint8_t df_missing_some(deft_ctx *cx, const deft_tensor *t)
{
    taint s;
    if (is_mark(t->lacks)) return t->lacks;
    if (t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK || t->lacks) return DF_LACKS_NOTHING;
    if (!find_missing(cx, &s)) return cx->owes_mark;
    const uint8_t mark = s.is[t->node] == TAINT_SURE ? s.by[t->node] : DF_LACKS_NOTHING;
    give_missing(&s, cx->rec.n);
    return mark;
}

bool df_owes_some(deft_ctx *cx, deft_tensor *t)
{
    const uint8_t mark = df_missing_some(cx, t);
    if (!mark) return false;
    if (mark == cx->owes_mark && cx->pending != DEFT_OK) return true;
    df_diag d = { .status = DEFT_E_STATE };
    (void)snprintf(d.text, sizeof d.text,
                   "an assign failed to this tensor, or to one that it was computed from; later "
                   "mistakes have taken the place of its sentence");
    for (uint32_t i = 0; i < DF_FAULTS; i++)
        if (cx->missed_mark[i] == mark) d = cx->missed_said[i];
    df_error_older(cx, &d);
    forgive(cx, mark);
    return true;
}

static void mark_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const taint *const s = user;
    if (t->epoch == cx->epoch && !(t->flags & DF_HANDLE_WEAK) && !t->lacks &&
        s->is[t->node] == TAINT_SURE)
        t->lacks = s->by[t->node];
}

void df_owe_recorded(deft_ctx *cx)
{
    taint s;
    if (!cx->owes || cx->rec.n == 0 || !find_missing(cx, &s)) return;
    df_each_outer(cx, cx->depth + 1, mark_owing, &s);
    give_missing(&s, cx->rec.n);
}

void df_owe_bound(deft_ctx *cx, const deft_tensor *dst)
{
    bool any = false;
    for (const deft_tensor *t = dst; t; t = df_root_of(t)) any |= is_mark(t->lacks);
    if (any) df_owe_recorded(cx);
}

/* ---- values that cannot be had ---- */

/* To the records from `from` on that use tainted ones. */
static void spread(taint *s, uint32_t from)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t i = from; i < r->n; i++)
        for (uint32_t k = 0; k < 3 && s->is[i] != TAINT_SURE; k++) {
            const uint32_t src = r->nodes[i].src[k].i;
            if (src >= i || !s->is[src]) continue;
            const bool in_branch = k > 0 && r->nodes[i].op == DF_OP_cond;
            s->is[i] = in_branch || s->is[src] == TAINT_TAKEN ? TAINT_TAKEN : TAINT_SURE;
        }
}

/* Whether record k fails when `node` alone is computed, now that nothing else is. Without an answer
 * the next cut that fails asks again. */
static bool needs_fault(deft_ctx *cx, uint32_t node, uint32_t k)
{
    const df_diag said = cx->diag;
    df_want w = { .node = node };
    cx->trying = true;
    cx->tried_fault = DF_NONE;
    const deft_status st = df_materialize(cx, &w, 1);
    df_value_drop(cx, &w.result); /* the record holds a reference of its own */
    cx->trying = false;
    cx->diag = said;
    if (st == DEFT_E_INTERRUPTED) atomic_store(&cx->interrupted, 1); /* for the call to come */
    return st != DEFT_OK && cx->tried_fault == k;
}

/* Whether what waits for `node` waits in vain. A tensor that belongs to the open step is not
 * computed for the answer, since the step may be ending. */
static bool is_lost(taint *s, uint32_t node, bool is_outer)
{
    deft_ctx *const cx = s->cx;
    if (!s->is[node] || cx->rec.val[node]) return false;
    if (s->is[node] == TAINT_SURE) return true;
    if (cx->recording || (cx->step_at && !is_outer)) return false;
    if (!needs_fault(cx, node, s->fault)) return false;
    s->is[node] = TAINT_SURE;
    spread(s, node + 1);
    return true;
}

static void lose_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    if (t->value || t->epoch != cx->epoch || t->flags & (DF_HANDLE_UNDO | DF_HANDLE_WEAK) ||
        !is_lost(user, t->node, df_is_outer(cx, t)))
        return;
    df_handle_unbind(cx, t);
    t->lacks = DF_LACKS_VALUE;
    t->node = cx->n_faults;
}

/* What was to be written into the caller's memory is not: its tensor has what it holds. */
static void lose_writes(deft_ctx *cx, taint *s)
{
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (m->in_step || !m->now.due || m->now.what || !is_lost(s, m->now.node, true)) continue;
        m->now = (df_write){ 0 };
        if (m->t) {
            df_handle_unbind(cx, m->t);
            m->t->value = df_value_ref(m->value);
        } else {
            df_value_drop(cx, &m->value);
            *m = cx->muts.at[--cx->muts.n];
        }
    }
}

static void lose(deft_ctx *cx, uint32_t k)
{
    taint s = { .cx = cx, .is = df_mem_zalloc(cx->mem, cx->rec.n), .fault = k };
    if (!s.is) return; /* the next cut finds it again */
    s.is[k] = TAINT_SURE;
    spread(&s, k + 1);
    lose_writes(cx, &s);
    df_each_outer(cx, cx->depth + 1, lose_one, &s);
    df_mem_free(cx->mem, s.is, cx->rec.n);
}

void df_lose(deft_ctx *cx, uint32_t k, const df_diag *d)
{
    if (cx->relieving) return; /* nobody asked: whoever does finds it again */
    if (cx->trying) {
        cx->tried_fault = k;
        return;
    }
    cx->faults[++cx->n_faults % DF_FAULTS] = *d;
    cx->fault_record = k;
    cx->fault_epoch = cx->epoch;
    lose(cx, k);
}

void df_lose_again(deft_ctx *cx)
{
    if (cx->n_faults && cx->fault_epoch == cx->epoch && cx->fault_record < cx->rec.n)
        lose(cx, cx->fault_record);
    cx->fault_epoch = 0; /* another record may stand there from now on */
}

void df_error_lost(deft_ctx *cx, const char *what, const deft_tensor *t)
{
    if (t->lacks != DF_LACKS_VALUE) {
        df_error(cx, DEFT_E_STATE, "%s: a tensor has neither value nor record", what);
        return;
    }
    const bool known = cx->n_faults - t->node < DF_FAULTS;
    const df_diag *const d = known ? &cx->faults[t->node % DF_FAULTS] : NULL;
    char at[DF_SITE_TEXT];
    if (d && d->site)
        df_error(cx, d->status, "%s: a tensor has no value, since computing it failed: %s, at %s",
                 what, d->text, df_ctx_site_text(cx, d->site, at, sizeof at));
    else
        df_error(cx, d ? d->status : DEFT_E_STATE,
                 "%s: a tensor has no value, since computing it failed%s%s", what, d ? ": " : "",
                 d ? d->text : "");
}
