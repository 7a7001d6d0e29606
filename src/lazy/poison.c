/* SPDX-License-Identifier: Apache-2.0
 *
 * What mistakes leave behind in tensors.
 *
 * An assign that failed outside steps leaves its tensor as it was. Whoever reads that tensor, or
 * what was recorded from it since, would get a number that the program does not mean: the read
 * delivers the mistake instead. Inside a step this is not needed, since the step's end fails.
 *
 * A record whose indices are out of range can never be computed: values do not change. A tensor
 * that waits for it would make every later step fail that computes what lives on. Such tensors lose
 * their record when the fault is found; the sentence is kept for those who ask for them again.
 * Which branch a cond takes is known only when it has run: a tensor that needs such a record in a
 * branch alone is computed by itself then, and loses its record when the same record fails again.
 */
#include "lazy/lazy.h"

#include <string.h>

/* ---- assigns that failed ---- */

static uint8_t mark_of(const deft_ctx *cx)
{
    return (uint8_t)(1 + cx->mistake_number % 251);
}

void df_owe(deft_ctx *cx, deft_tensor *dst)
{
    if (cx->pending == DEFT_OK) return;
    if (cx->step_at || cx->body_at) {
        cx->mistake_in_step = cx->mistake_in_step || cx->step_at;
        return;
    }
    if (!cx->owes || cx->owes_epoch != cx->epoch) cx->owes_from = cx->rec.n;
    cx->owes = true;
    cx->owes_epoch = cx->epoch;
    df_owe_value(cx, dst);
}

void df_owe_value(const deft_ctx *cx, deft_tensor *dst)
{
    for (deft_tensor *t = dst; t; t = df_root_of(t))
        if (t->lacks != DF_LACKS_VALUE) t->lacks = mark_of(cx);
}

typedef struct taint {
    deft_ctx *cx;
    uint8_t *is;    /* per record: TAINT_*, or 0 */
    uint32_t fault; /* the record that cannot be computed, where one is sought for */
} taint;

enum {
    TAINT_SURE = 1,  /* it cannot be used */
    TAINT_LATER = 2, /* only records that follow it cannot be used */
    TAINT_TAKEN = 3  /* it cannot be used when a cond takes a certain branch */
};

static void see_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const taint *const s = user;
    if (t->lacks == mark_of(cx) && t->epoch == cx->epoch && !(t->flags & DF_HANDLE_WEAK))
        s->is[t->node] = TAINT_LATER;
}

/* To the records from `from` on that use tainted ones. both: what a cond has in either branch
 * counts as used for certain. */
static void spread(taint *s, uint32_t from, bool both)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t i = from; i < r->n; i++)
        for (uint32_t k = 0; k < 3 && s->is[i] != TAINT_SURE; k++) {
            const uint32_t src = r->nodes[i].src[k].i;
            if (src >= i || !s->is[src]) continue;
            const bool in_branch = k > 0 && r->nodes[i].op == DF_OP_cond && !both;
            s->is[i] = in_branch || s->is[src] == TAINT_TAKEN ? TAINT_TAKEN : TAINT_SURE;
        }
}

bool df_owes_some(deft_ctx *cx, deft_tensor *t)
{
    if (cx->pending == DEFT_OK) {
        cx->owes = false;
        return false;
    }
    if (t->lacks == mark_of(cx)) return true;
    if (cx->owes_epoch != cx->epoch) { /* all its records are younger than the mistake */
        cx->owes_epoch = cx->epoch;
        cx->owes_from = 0;
    }
    if (t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK || t->node < cx->owes_from) return false;
    taint s = { .cx = cx, .is = df_mem_zalloc(cx->mem, cx->rec.n) };
    if (!s.is) return true;
    df_each_outer(cx, cx->depth + 1, see_owing, &s);
    spread(&s, cx->owes_from, true);
    const bool owes = s.is[t->node] == TAINT_SURE;
    df_mem_free(cx->mem, s.is, cx->rec.n);
    return owes;
}

static void mark_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const taint *const s = user;
    if (t->epoch == cx->epoch && s->is[t->node] == TAINT_SURE && !(t->flags & DF_HANDLE_WEAK))
        t->lacks = mark_of(cx);
}

void df_owe_bound(deft_ctx *cx, deft_tensor *dst)
{
    bool any = false;
    for (deft_tensor *t = dst; t; t = df_root_of(t)) any |= t->lacks == mark_of(cx);
    if (cx->pending == DEFT_OK || !any || cx->rec.n == 0) return;
    taint s = { .cx = cx, .is = df_mem_zalloc(cx->mem, cx->rec.n) };
    if (!s.is) return;
    df_each_outer(cx, cx->depth + 1, see_owing, &s);
    spread(&s, cx->owes_epoch == cx->epoch ? cx->owes_from : 0, true);
    df_each_outer(cx, cx->depth + 1, mark_owing, &s);
    df_mem_free(cx->mem, s.is, cx->rec.n);
}

/* ---- values that cannot be had ---- */

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
    spread(s, node + 1, false);
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
    spread(&s, k + 1, false);
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
