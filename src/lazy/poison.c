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
    uint8_t *is; /* per record: 1: it cannot be used; 2: it can't be used by records from n on */
} taint;

static void see_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const taint *const s = user;
    if (t->lacks == mark_of(cx) && t->epoch == cx->epoch && !(t->flags & DF_HANDLE_WEAK))
        s->is[t->node] = 2;
}

static void spread(taint *s, uint32_t from)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t i = from; i < r->n; i++)
        for (uint32_t k = 0; k < 3 && s->is[i] != 1; k++) {
            const uint32_t src = r->nodes[i].src[k].i;
            if (src < i && s->is[src]) s->is[i] = 1;
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
    taint s = { cx, df_mem_zalloc(cx->mem, cx->rec.n) };
    if (!s.is) return true;
    df_each_outer(cx, cx->depth + 1, see_owing, &s);
    spread(&s, cx->owes_from);
    const bool owes = s.is[t->node] == 1;
    df_mem_free(cx->mem, s.is, cx->rec.n);
    return owes;
}

static void mark_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const taint *const s = user;
    if (t->epoch == cx->epoch && s->is[t->node] == 1 && !(t->flags & DF_HANDLE_WEAK))
        t->lacks = mark_of(cx);
}

void df_owe_bound(deft_ctx *cx, deft_tensor *dst)
{
    bool any = false;
    for (deft_tensor *t = dst; t; t = df_root_of(t)) any |= t->lacks == mark_of(cx);
    if (cx->pending == DEFT_OK || !any || cx->rec.n == 0) return;
    taint s = { cx, df_mem_zalloc(cx->mem, cx->rec.n) };
    if (!s.is) return;
    df_each_outer(cx, cx->depth + 1, see_owing, &s);
    spread(&s, cx->owes_epoch == cx->epoch ? cx->owes_from : 0);
    df_each_outer(cx, cx->depth + 1, mark_owing, &s);
    df_mem_free(cx->mem, s.is, cx->rec.n);
}

/* ---- values that cannot be had ---- */

static bool is_tainted(const taint *s, uint32_t node)
{
    return s->is[node] && !s->cx->rec.val[node];
}

static void lose_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    if (t->value || t->epoch != cx->epoch || t->flags & (DF_HANDLE_UNDO | DF_HANDLE_WEAK) ||
        !is_tainted(user, t->node))
        return;
    df_handle_unbind(cx, t);
    t->lacks = DF_LACKS_VALUE;
    t->node = cx->n_faults;
}

/* What was to be written into the caller's memory is not: its tensor has what it holds. */
static void lose_writes(deft_ctx *cx, const taint *s)
{
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (m->in_step || !m->now.due || m->now.what || !is_tainted(s, m->now.node)) continue;
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
    taint s = { cx, df_mem_zalloc(cx->mem, cx->rec.n) };
    if (!s.is) return; /* the next cut finds it again */
    s.is[k] = 1;
    spread(&s, k + 1);
    lose_writes(cx, &s);
    df_each_outer(cx, cx->depth + 1, lose_one, &s);
    df_mem_free(cx->mem, s.is, cx->rec.n);
}

void df_lose(deft_ctx *cx, uint32_t k, const df_diag *d)
{
    if (cx->relieving) return; /* nobody asked: whoever does finds it again */
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
