/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes of the program, and how acting calls deliver them.
 *
 * A recording call cannot fail: it records its mistake (df_error) and returns NULL. The
 * next acting call delivers the mistake as its status (df_deliver), and deft_message
 * gives the sentence. Only one mistake at a time waits for its delivery; is_over decides
 * which of two it is.
 */
#include "lazy/core/recorder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool df_check_options(deft_ctx *cx, const char *what, const char *name, size_t size)
{
    if (size) return true;
    df_error(cx, DEFT_E_ARG, "%s: the size of %s is 0, it must be sizeof(%s)", what, name, name);
    return false;
}

bool df_layer_options(deft_ctx *cx, const char *what, const char *name, void *to, size_t to_size,
                      const void *given, size_t given_size)
{
    if (given && !df_check_options(cx, what, name, given_size)) return false;
    df_take_options(to, to_size, given, given_size);
    return true;
}

const char *df_error_text(deft_ctx *cx, const df_diag *d, uintptr_t site)
{
    char at[DF_SITE_TEXT];
    if (!d->text[0] || !site) return d->text;
    (void)df_ctx_site_text(cx, site, at, sizeof at);
    if (strstr(d->text, at)) return d->text;
    snprintf(cx->sentence, sizeof cx->sentence, "%s, at %s", d->text, at);
    return cx->sentence;
}

/* Whether a new mistake replaces the undelivered one. The end of a step delivers the
 * first mistake of the step. Outside steps, the first mistake since the latest acting
 * call is the cause of those that follow; an older one is unrelated to them. */
static bool is_over(const deft_ctx *cx)
{
    if (cx->pending == DEFT_OK) return true;
    if (cx->step_at) return !cx->mistake_in_step;
    return cx->mistake_told || cx->mistake_act != cx->n_acts;
}

void df_said(deft_ctx *cx)
{
    if (cx->diag.status != DEFT_OK && !cx->diag.site) cx->diag.site = cx->act_site;
    cx->diag.status = DEFT_OK;
}

void df_error_older(deft_ctx *cx, const df_diag *d)
{
    if (cx->n_mistakes == cx->act_mark) cx->own = *d;
    cx->n_mistakes++;
    cx->n_troubles++;
    df_said(cx);
}

/* Makes d the undelivered mistake when it replaces the earlier one. d must not point to
 * cx->mistake. Returns NULL. */
static void *note_mistake(deft_ctx *cx, const df_diag *d)
{
    df_error_older(cx, d);
    if (!is_over(cx)) return NULL;
    cx->mistake = *d;
    cx->pending = d->status;
    /* tensors that miss the assign of an earlier mistake do not miss one of this mistake */
    cx->owes_mark = 0;
    cx->mistake_number = cx->n_mistakes;
    cx->mistake_act = cx->n_acts;
    cx->mistake_serial = cx->serial;
    cx->mistake_in_step = cx->step_at != 0;
    cx->mistake_told = false;
    return NULL;
}

void *df_error(deft_ctx *cx, deft_status st, const char *fmt, ...)
{
    df_diag d = { .status = st, .site = df_here(cx, cx->call) };
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d.text, sizeof d.text, fmt, ap);
    va_end(ap);
    return note_mistake(cx, &d);
}

void *df_error_keep(deft_ctx *cx, deft_status st)
{
    df_diag d = cx->diag;
    d.status = st;
    if (!d.site) d.site = df_here(cx, cx->call);
    return note_mistake(cx, &d);
}

deft_status df_refuse(deft_ctx *cx, deft_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cx->diag.text, sizeof cx->diag.text, fmt, ap);
    va_end(ap);
    cx->diag.node = 0;
    cx->diag.site = df_here(cx, cx->call);
    return cx->diag.status = st;
}

uint32_t df_mistakes(const deft_ctx *cx)
{
    return cx->n_mistakes;
}

bool df_step_has_mistake(const deft_ctx *cx)
{
    return cx->step_at && cx->pending != DEFT_OK && cx->mistake_in_step;
}

void df_calls(deft_ctx *cx, uintptr_t site)
{
    df_enter_call(cx, site);
}

void df_acts(deft_ctx *cx, const char *what, uintptr_t site)
{
    df_act(cx, what, site);
}

deft_status df_may_act(deft_ctx *cx)
{
    if (!cx->body_at) return DEFT_OK;
    cx->n_refused++;
    cx->n_troubles++;
    return df_fail(
        &cx->diag, DEFT_E_STATE,
        "%s: inside the function of a loop, branch, vmap or operator nothing can be computed",
        cx->act ? cx->act : "call");
}

/* The program has been given the undelivered mistake: it is delivered. */
static void end_mistake(deft_ctx *cx)
{
    cx->pending = DEFT_OK;
    if (DF_UNLIKELY(cx->owes)) df_owe_delivered(cx);
}

deft_status df_deliver(deft_ctx *cx)
{
    if (cx->n_mistakes != cx->act_mark) { /* the acting call's own mistake */
        if (cx->mistake_number > cx->act_mark) end_mistake(cx);
        cx->act_mark = cx->n_mistakes;
        cx->diag = cx->own;
        return cx->diag.status;
    }
    const deft_status st = cx->pending;
    if (st == DEFT_OK) return st;
    cx->diag = cx->mistake;
    cx->mistake_told = true;
    if (!cx->mistake_in_step) end_mistake(cx);
    return st;
}

deft_status df_deliver_step(deft_ctx *cx)
{
    const deft_status st = cx->pending;
    if (st == DEFT_OK || !cx->mistake_in_step) return DEFT_OK;
    cx->diag = cx->mistake;
    end_mistake(cx);
    cx->act_mark = cx->n_mistakes;
    return st;
}

deft_status deft_error(const deft_ctx *cx)
{
    return cx ? cx->pending : DEFT_E_ARG;
}

const char *deft_message(const deft_ctx *c)
{
    if (!c) return "";
    deft_ctx *const cx = (deft_ctx *)(uintptr_t)c; /* the context belongs to this thread */
    if (cx->diag.status == DEFT_OK && cx->pending != DEFT_OK) {
        cx->mistake_told = true;
        return df_error_text(cx, &cx->mistake, cx->mistake.site);
    }
    const bool latest = cx->diag.status != DEFT_OK;
    return df_error_text(cx, &cx->diag, cx->diag.site || !latest ? cx->diag.site : cx->act_site);
}

void deft_clear(deft_ctx *cx)
{
    if (!cx) return;
    cx->pending = DEFT_OK;
    if (DF_UNLIKELY(cx->owes)) df_owe_nothing(cx);
    df_diag_clear(&cx->diag);
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
    df_owe_forgive(cx, mark);
    return true;
}

void df_error_lost(deft_ctx *cx, const char *what, const deft_tensor *t)
{
    if (t->failure != DF_FAILURE_VALUE) {
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

uint32_t df_recording_refuses(deft_ctx *cx, const char *what, double v, uintptr_t site)
{
    char text[DF_SITE_TEXT];
    df_error(cx, DEFT_E_STATE,
             "%s: the number %.17g (at %s) would stay for ever in a capture: take it from "
             "deft_param_f/_i, or mark it by deft_const_f/_i",
             what, v, df_ctx_site_text(cx, df_here(cx, site), text, sizeof text));
    return DF_BAD;
}
