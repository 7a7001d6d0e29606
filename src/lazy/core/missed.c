/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensors miss an assign that failed.
 *
 * An assign that fails outside steps leaves its tensor unchanged. A program that later
 * reads the tensor, or something recorded from it since, would get a number that the
 * program does not mean. So such a read delivers the mistake instead. Inside a step this
 * is not needed, because the end of the step fails.
 *
 * Such a tensor has a mark in deft_tensor.failure, which is the index of an entry of
 * cx->missed. cx->owes_mark is the mark of the undelivered mistake. Marks stay when a
 * later mistake replaces their mistake, and end when the mistake is delivered. A tensor
 * that was recorded from a marked tensor is found through its records. It gets the mark
 * itself before the records or the marked tensor go.
 */
#include "lazy/core/flight.h"

#include <string.h>

static bool is_mark(uint8_t lacks)
{
    return lacks != DF_FAILURE_NOTHING && lacks != DF_FAILURE_VALUE;
}

static void each_log(df_undos *log, void (*f)(uint8_t *lacks, void *), void *user)
{
    for (size_t i = 0; i < log->n; i++) f(&log->at[i].failure, user);
}

typedef struct visit {
    void (*f)(uint8_t *lacks, void *user);
    void *user;
} visit;

static void visit_handle(deft_ctx *cx, deft_tensor *t, void *user)
{
    const visit *const v = user;
    (void)cx;
    v->f(&t->failure, v->user);
}

/* Calls f on the failure of each tensor, and on the failures that undo logs would
 * restore. */
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

/* Gives the undelivered mistake a mark that no tensor has. When all marks are in use, the
 * mistake shares one with an older mistake. */
static uint8_t new_mark(deft_ctx *cx)
{
    bool used[DF_FAILURE_VALUE + 1] = { false };
    each_lacks(cx, see_used, used);
    uint8_t mark = cx->last_mark;
    do mark = mark + 1 == DF_FAILURE_VALUE ? 1 : (uint8_t)(mark + 1);
    while (used[mark] && mark != cx->last_mark);
    for (uint32_t i = 0; i < DF_FAULTS; i++)
        if (cx->missed_mark[i] == mark) cx->missed_mark[i] = DF_FAILURE_NOTHING;
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
        if (t->failure != DF_FAILURE_VALUE) t->failure = mark;
}

typedef struct forgiven {
    uint8_t mark; /* DF_FAILURE_NOTHING: all */
    bool others;
} forgiven;

static void forgive_one(uint8_t *lacks, void *user)
{
    forgiven *const f = user;
    if (!is_mark(*lacks)) return;
    if (f->mark == DF_FAILURE_NOTHING || *lacks == f->mark)
        *lacks = DF_FAILURE_NOTHING;
    else
        f->others = true;
}

void df_owe_forgive(deft_ctx *cx, uint8_t mark)
{
    forgiven f = { mark, false };
    each_lacks(cx, forgive_one, &f);
    if (mark == DF_FAILURE_NOTHING || mark == cx->owes_mark) cx->owes_mark = DF_FAILURE_NOTHING;
    cx->owes = f.others;
}

void df_owe_delivered(deft_ctx *cx)
{
    if (cx->owes_mark) df_owe_forgive(cx, cx->owes_mark);
}

void df_owe_nothing(deft_ctx *cx)
{
    df_owe_forgive(cx, DF_FAILURE_NOTHING);
}

enum {
    MISSES = 1,      /* the record uses a tensor that misses an assign */
    MISSES_LATER = 2 /* only records from missed_from on use such a tensor through this record */
};

/* A search for the records that miss an assign. */
typedef struct missing {
    deft_ctx *cx;
    uint8_t *is;   /* per record: MISSES, MISSES_LATER or 0 */
    uint8_t *by;   /* per record: the mark that it has from a tensor */
    uint32_t from; /* no record before this one misses an assign */
} missing;

/* The first record that may use a tensor with that mark after its assign has failed. */
static uint32_t missed_from(const deft_ctx *cx, uint8_t mark)
{
    return cx->missed[mark].epoch == cx->epoch ? cx->missed[mark].from : 0;
}

static void see_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    missing *const s = user;
    if (!is_mark(t->failure) || t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK) return;
    const uint32_t from = missed_from(cx, t->failure);
    if (from < s->from) s->from = from;
    s->is[t->node] = MISSES_LATER;
    s->by[t->node] = t->failure;
}

/* Marks record i when one of its operands misses an assign. Either branch of a cond
 * counts. */
static void miss_by(missing *s, uint32_t i)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t src = r->nodes[i].src[k].i;
        if (src >= i || !s->is[src]) continue;
        if (s->is[src] == MISSES_LATER && i < missed_from(s->cx, s->by[src])) continue;
        s->is[i] = MISSES;
        s->by[i] = s->by[src];
        return;
    }
}

/* Finds the records that miss an assign. Returns false when memory runs out. The caller
 * ends s with give_missing. */
static bool find_missing(deft_ctx *cx, missing *s)
{
    const uint32_t n = cx->rec.n;
    *s = (missing){ .cx = cx, .is = df_mem_zalloc(cx->mem, (size_t)n * 2), .from = UINT32_MAX };
    if (!s->is) return false;
    s->by = s->is + n;
    df_each_outer(cx, cx->depth + 1, see_owing, s);
    for (uint32_t i = s->from; i < n; i++) miss_by(s, i);
    return true;
}

static void give_missing(missing *s, uint32_t n)
{
    df_mem_free(s->cx->mem, s->is, (size_t)n * 2);
}

uint8_t df_missing_some(deft_ctx *cx, const deft_tensor *t)
{
    missing s;
    if (is_mark(t->failure)) return t->failure;
    if (t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK || t->failure) return DF_FAILURE_NOTHING;
    if (!find_missing(cx, &s)) return cx->owes_mark;
    const uint8_t mark = s.is[t->node] == MISSES ? s.by[t->node] : DF_FAILURE_NOTHING;
    give_missing(&s, cx->rec.n);
    return mark;
}

static void mark_owing(deft_ctx *cx, deft_tensor *t, void *user)
{
    const missing *const s = user;
    if (t->epoch == cx->epoch && !(t->flags & DF_HANDLE_WEAK) && !t->failure &&
        s->is[t->node] == MISSES)
        t->failure = s->by[t->node];
}

void df_owe_recorded(deft_ctx *cx)
{
    missing s;
    if (!cx->owes || cx->rec.n == 0 || !find_missing(cx, &s)) return;
    df_each_outer(cx, cx->depth + 1, mark_owing, &s);
    give_missing(&s, cx->rec.n);
}

void df_owe_bound(deft_ctx *cx, const deft_tensor *dst)
{
    bool any = false;
    for (const deft_tensor *t = dst; t; t = df_root_of(t)) any |= is_mark(t->failure);
    if (any) df_owe_recorded(cx);
}
