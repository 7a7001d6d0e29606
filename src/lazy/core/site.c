/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites of a context: lines that a language binding reports, and labels.
 *
 * Recording writes only return addresses. Lines and labels are kept in a short list of
 * site ranges beside the records: from this record on, that line and that label. The list
 * is read only when a new trace is cut or a message is made. So programs without lines
 * and labels pay nothing, and programs with them pay nothing when a cached cut is used
 * again.
 *
 * When memory for the list runs out, lines and labels are left out until the next epoch.
 */
#include "lazy/core/lazy.h"

/* Begins a site range at record n with the current line and label. */
static void mark(deft_ctx *cx, uint32_t n)
{
    const df_site_range m = { .from = n, .line = cx->line, .label = cx->label };
    while (cx->site_ranges.n && cx->site_ranges.at[cx->site_ranges.n - 1].from >= n)
        cx->site_ranges.n--;
    const df_site_range last =
        cx->site_ranges.n ? cx->site_ranges.at[cx->site_ranges.n - 1] : (df_site_range){ 0 };
    if (last.line == m.line && last.label == m.label) return;
    cx->n_marks++;
    if (!df_vec_push(cx->mem, &cx->site_ranges, m)) cx->site_ranges_lost = true;
}

void df_site_ranges_begin(deft_ctx *cx)
{
    mark(cx, cx->rec.n);
}

void df_site_ranges_truncate(deft_ctx *cx, uint32_t n)
{
    if (n == 0) cx->site_ranges_lost = false;
    mark(cx, n);
}

void df_site_ranges_renumber(deft_ctx *cx, const uint32_t *below)
{
    size_t n = 0;
    for (size_t i = 0; i < cx->site_ranges.n; i++) {
        df_site_range m = cx->site_ranges.at[i];
        m.from = below[m.from];
        if (n && cx->site_ranges.at[n - 1].from == m.from) n--; /* no record of that range stays */
        cx->site_ranges.at[n++] = m;
    }
    cx->site_ranges.n = n;
}

/* The site range that contains record i, found by bisection. */
static df_site_range mark_of(const deft_ctx *cx, uint32_t i)
{
    /* ranges before low begin at or before i, ranges from high on begin after i */
    size_t low = 0, high = cx->site_ranges.n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (cx->site_ranges.at[mid].from <= i)
            low = mid + 1;
        else
            high = mid;
    }
    return low ? cx->site_ranges.at[low - 1] : (df_site_range){ 0 };
}

static uintptr_t named(const deft_ctx *cx, uintptr_t address, uintptr_t line, uintptr_t label)
{
    return df_sites_within(cx->rt->sites, line ? line : address, label);
}

uintptr_t df_rec_site_named(const deft_ctx *cx, uint32_t i)
{
    const uintptr_t address = cx->rec.site[i];
    if (!address || cx->site_ranges_lost || df_site_is_name(address))
        return address; /* an input has no call; a gradient has the named site of its record */
    const df_site_range m = mark_of(cx, i);
    return named(cx, address, m.line, m.label);
}

/* The function of an operator has set labels of its own: its records get the names that the ranges
 * give them. */
void df_operator_name_by_ranges(deft_ctx *cx, uint32_t first, uint8_t n_labels)
{
    cx->n_labels = n_labels;
    for (uint32_t i = first; i < cx->rec.n; i++) {
        const df_site_range m = mark_of(cx, i);
        if (m.from >= first) cx->rec.site[i] = df_rec_site_named(cx, i);
    }
    mark(cx, cx->rec.n);
}

void df_rec_sites_set(deft_ctx *cx, uint32_t first, uintptr_t site)
{
    for (uint32_t i = first; i < cx->rec.n; i++) cx->rec.site[i] = site;
}

uintptr_t df_here_named(const deft_ctx *cx, uintptr_t site)
{
    return df_site_is_name(site) ? site : named(cx, site, cx->line, cx->label);
}

const char *df_ctx_site_text(const deft_ctx *cx, uintptr_t site, char *buf, size_t n)
{
    return df_site_text(cx->rt->sites, site, buf, n);
}

typedef struct sites_of {
    const deft_ctx *cx;
    const df_trace *t;
} sites_of;

static void put_site(df_str *out, uint32_t k, void *user)
{
    const sites_of *const s = user;
    char text[DF_SITE_TEXT];
    if (s->t->site && s->t->site[k])
        df_str_fmt(out, "  # at %s", df_ctx_site_text(s->cx, s->t->site[k], text, sizeof text));
}

void df_sites_print(const deft_ctx *cx, df_str *out, const df_trace *t)
{
    sites_of s = { cx, t };
    df_trace_print_noted(out, t, put_site, &s);
}
