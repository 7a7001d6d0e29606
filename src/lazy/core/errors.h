/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes of the program, and assigns that tensors miss because of them. lazy/layer.h has the
 * functions that modules above this one use too. All functions need the thread of the context.
 *
 * A recording call that fails records a mistake and returns NULL. The next acting call that needs
 * the result delivers the mistake: it returns the status of the mistake.
 */
#ifndef DF_LAZY_ERRORS_H
#define DF_LAZY_ERRORS_H

#include <string.h>

#include "lazy/core/site.h"

/* ---- mistakes (errors.c) ---- */

/* Begins an acting call: from now on, deft_message does not show the failure of the call before. */
void df_said(deft_ctx *cx) DF_COLD;
/* Begins the acting call `what` at call site `site`. Cuts and events that it causes have this call
 * site. */
DF_INLINE void df_act(deft_ctx *cx, const char *what, uintptr_t site)
{
    if (DF_UNLIKELY(cx->diag.status != DEFT_OK)) df_said(cx);
    cx->act = what;
    cx->call = site;
    cx->act_site = df_here(cx, site);
    cx->act_mark = cx->n_mistakes;
    cx->n_acts++;
}

/* The sentence of d with the line of its call, unless the sentence has that line already. With
 * site 0 there is no line. The text is valid until the next call for cx. */
const char *df_error_text(deft_ctx *cx, const df_diag *d, uintptr_t site);
/* Makes the acting call that runs fail as d says. The undelivered mistake stays. */
void df_error_older(deft_ctx *cx, const df_diag *d) DF_COLD;
/* Records why t, which has neither value nor record, cannot be used by the public call `what`. */
void df_error_lost(deft_ctx *cx, const char *what, const deft_tensor *t) DF_COLD;
/* Checks the size of an options structure. Returns false, with a mistake recorded, when `size` is
 * 0. `what` is the public call ("conv2d"), `name` the type of the options. */
bool df_check_options(deft_ctx *cx, const char *what, const char *name, size_t size);

bool df_owes_some(deft_ctx *cx, deft_tensor *t) DF_COLD;
/* Whether t misses an assign, so that an acting call cannot use t. If so, df_deliver returns the
 * mistake that made the assign fail. */
DF_INLINE bool df_owes(deft_ctx *cx, deft_tensor *t)
{
    return DF_UNLIKELY(cx->owes) && df_owes_some(cx, t);
}

/* ---- assigns that failed (missed.c) ---- */

/* Notes that an assign to dst failed. What is computed from dst misses the assign. */
void df_owe(deft_ctx *cx, deft_tensor *dst) DF_COLD;
/* Gives dst, and what dst is a view of, the mark of an assign: dst is bound to a value that misses
 * it. */
void df_owe_value(deft_tensor *dst, uint8_t mark) DF_COLD;
/* Called before dst, which may miss an assign, is bound to another record. What was recorded from
 * dst in the meantime goes on missing the assign. */
void df_owe_bound(deft_ctx *cx, const deft_tensor *dst) DF_COLD;
/* Called before records or tensors go. Tensors go on missing what their records miss. */
void df_owe_recorded(deft_ctx *cx) DF_COLD;
/* Called when the undelivered mistake has been delivered: no tensor misses its assign any more. */
void df_owe_delivered(deft_ctx *cx) DF_COLD;
/* Makes no tensor miss the assign of `mark` any more. DF_FAILURE_NOTHING stands for every
 * assign. */
void df_owe_forgive(deft_ctx *cx, uint8_t mark) DF_COLD;
/* Makes no tensor miss any assign any more. */
void df_owe_nothing(deft_ctx *cx) DF_COLD;
uint8_t df_missing_some(deft_ctx *cx, const deft_tensor *t) DF_COLD;
/* The mark of an assign that t misses, or that a tensor misses from which t is computed.
 * DF_FAILURE_NOTHING when there is none. */
DF_INLINE uint8_t df_missing(deft_ctx *cx, const deft_tensor *t)
{
    return DF_UNLIKELY(cx->owes) ? df_missing_some(cx, t) : (uint8_t)DF_FAILURE_NOTHING;
}

/* ---- options ---- */

/* Copies the options of a caller. A caller that was built against an older header has a shorter
 * structure; the members that it lacks become zero, which is their default. from may be NULL. */
DF_INLINE void df_take_options(void *to, size_t to_size, const void *from, size_t from_size)
{
    memset(to, 0, to_size);
    if (from) memcpy(to, from, from_size < to_size ? from_size : to_size);
}

#endif
