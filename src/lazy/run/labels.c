/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that set source lines and labels. What they set applies to the records
 * that follow (site.c).
 */
#include "lazy/log/notes.h"
#include "lazy/run/materialize.h"

void deft_site(deft_ctx *cx, const char *file, int line)
{
    if (!cx) return;
    cx->line = file ? df_sites_line(cx->rt->sites, file, line) : 0;
    df_site_ranges_begin(cx);
}

bool df_caller_begin(deft_ctx *cx, uintptr_t site)
{
    if (!cx || cx->line) return false;
    cx->line = site; /* an address may be stored in place of a line */
    df_site_ranges_begin(cx);
    return true;
}

void df_caller_end(deft_ctx *cx, bool began)
{
    if (!began) return;
    cx->line = 0;
    df_site_ranges_begin(cx);
}

static void set_label(deft_ctx *cx, uint32_t n)
{
    cx->n_labels = (uint8_t)n;
    cx->label = n ? cx->labels[n - 1] : 0;
    df_site_ranges_begin(cx);
}

void df_labels_end(deft_ctx *cx, uint32_t n)
{
    if (cx->n_labels <= n) return;
    set_label(cx, n);
    if (df_ring_on(cx->ring)) df_log_label(cx, 0, false);
}

void deft_label_begin(deft_ctx *cx, const char *name)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return;
    if (!name) {
        df_error(cx, DEFT_E_ARG, "label_begin: the name is NULL");
    } else if (cx->n_labels == DF_MAX_LABELS) {
        df_error(cx, DEFT_E_LIMIT, "label_begin: \"%s\" would be one of more than %d labels open",
                 name, DF_MAX_LABELS);
    } else {
        /* The label of an operator that runs is open, and not on the stack yet. */
        if (cx->op_name && cx->n_labels + 1 < DF_MAX_LABELS &&
            (!cx->n_labels || cx->labels[cx->n_labels - 1] != cx->label))
            cx->labels[cx->n_labels++] = cx->label;
        const uintptr_t label = df_sites_label(cx->rt->sites, cx->label, name);
        cx->labels[cx->n_labels] = label ? label : cx->label;
        set_label(cx, cx->n_labels + 1);
        if (df_ring_on(cx->ring)) df_log_label(cx, df_here(cx, DF_SITE), true);
    }
}

void deft_label_end(deft_ctx *cx)
{
    df_enter_call(cx, DF_SITE);
    char site[DF_SITE_TEXT];
    if (!cx) return;
    if (!cx->n_labels)
        df_error(cx, DEFT_E_STATE, "label_end: no label is open");
    else if (cx->n_labels == cx->scope[cx->depth].n_labels)
        df_error(cx, DEFT_E_STATE,
                 "label_end: all %u open labels were begun outside the scope opened at %s",
                 cx->n_labels, df_ctx_site_text(cx, cx->scope[cx->depth].site, site, sizeof site));
    else
        df_labels_end(cx, cx->n_labels - 1u);
}
