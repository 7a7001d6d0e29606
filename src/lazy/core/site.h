/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites: the line of the program, and the labels, that each record comes from. A call site is
 * a return address, or a name of base/site.h that stands for a line given by deft_site together
 * with the open labels. All functions need the thread of the context.
 */
#ifndef DF_LAZY_SITE_H
#define DF_LAZY_SITE_H

#include "lazy/core/context.h"

/* The slow path of df_rec_site. */
uintptr_t df_rec_site_named(const deft_ctx *cx, uint32_t i);
/* The call site of record i: the line and labels that held when it was recorded, or its return
 * address. */
DF_INLINE uintptr_t df_rec_site(const deft_ctx *cx, uint32_t i)
{
    return DF_LIKELY(!cx->site_ranges.n) ? cx->rec.site[i] : df_rec_site_named(cx, i);
}

/* The slow path of df_here. */
uintptr_t df_here_named(const deft_ctx *cx, uintptr_t site);
/* The call site of a call that runs at this moment, whose return address is `site`. When memory or
 * names run out, the labels are left out. */
DF_INLINE uintptr_t df_here(const deft_ctx *cx, uintptr_t site)
{
    return DF_LIKELY(!cx->line && !cx->label) ? site : df_here_named(cx, site);
}

/* Makes `site` the call site of all records from `first` on. */
void df_rec_sites_set(deft_ctx *cx, uint32_t first, uintptr_t site);

/* What was in force before a function of an operator (deft/extend.h) was called. */
typedef struct df_operator_call {
    uintptr_t named; /* the call site of what the function records */
    uintptr_t line, label;
    const char *op_name;
    uint32_t first;   /* the first record */
    uint32_t n_marks; /* deft_ctx.n_marks */
    uint8_t n_labels;
} df_operator_call;
/* Until df_operator_end, records and mistakes belong to the operator `name`. `named` becomes the
 * call site of the records, where labels of the function make it no other. Mistakes have the line
 * `line`, which may be any call site, and the label `label`. */
DF_INLINE df_operator_call df_operator_begin(deft_ctx *cx, const char *name, uintptr_t named,
                                             uintptr_t line, uintptr_t label)
{
    const df_operator_call was = { named,     cx->line,    cx->label,   cx->op_name,
                                   cx->rec.n, cx->n_marks, cx->n_labels };
    cx->op_name = name;
    cx->line = line;
    cx->label = label;
    return was;
}

void df_operator_name_by_ranges(deft_ctx *cx, uint32_t first, uint8_t n_labels) DF_COLD;
DF_INLINE void df_operator_end(deft_ctx *cx, df_operator_call was)
{
    cx->op_name = was.op_name;
    cx->line = was.line;
    cx->label = was.label;
    if (DF_UNLIKELY(cx->n_marks != was.n_marks))
        df_operator_name_by_ranges(cx, was.first, was.n_labels);
    uintptr_t *site = cx->rec.site + was.first, *const end = cx->rec.site + cx->rec.n;
    for (; site < end; site++) /* an input has no call */
        if (DF_LIKELY(df_site_is_address(*site))) *site = was.named;
}

/* The text of a call site, in buf, which holds n bytes. Returns buf. */
const char *df_ctx_site_text(const deft_ctx *cx, uintptr_t site, char *buf, size_t n);
/* Prints t as text, each record with its call site as a comment. */
void df_sites_print(const deft_ctx *cx, df_str *out, const df_trace *t);

/* Called after cx->line or cx->label has changed: the records that follow have the new ones. When
 * memory runs out, lines and labels are left out until the next epoch. */
void df_site_ranges_begin(deft_ctx *cx);
/* Called before the records from n on are removed. */
void df_site_ranges_truncate(deft_ctx *cx, uint32_t n);
/* Called when records are removed from the middle. below[i] is how many of the first i records
 * stay, for i from 0 to the number of records. */
void df_site_ranges_renumber(deft_ctx *cx, const uint32_t *below);

#endif
