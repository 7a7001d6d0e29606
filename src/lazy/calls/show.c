/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_show: descriptions of a context's latest cut and other state, as text.
 */
#include "lazy/core/devices.h"
#include "lazy/log/notes.h"
#include "lazy/log/why.h"

#include <string.h>

static void show_key(df_str *s, const df_trace *t)
{
    df_key key;
    df_diag d;
    if (df_trace_key(&d, t, &key) != DEFT_OK) return;
    df_str_fmt(s, "%016llx%016llx %zu bytes\n", (unsigned long long)key.hash.hi,
               (unsigned long long)key.hash.lo, key.n);
}

static void show_why(const deft_ctx *cx, df_str *s, const df_plan *p)
{
    if (p && p->n_why) df_why_print(s, p, cx->last);
    if (p && !p->n_why && cx->last->n_nodes > DF_WHY_NODES)
        df_str_fmt(s,
                   "what the fuser decided is kept for programs of at most %d records, and for "
                   "the log topic fusion\n",
                   DF_WHY_NODES);
    df_why_events_print(cx, s);
}

/* Appends a line such as "f32[2,3] 24 bytes, kept once at train.c:12 (main)". */
static void show_kept_one(const deft_ctx *cx, df_str *s, const df_kept *k)
{
    char shape[DF_SHAPE_TEXT], site[DF_SITE_TEXT], times[32] = "once";
    df_shape of;
    int64_t n = 0;
    if (!k->t->keeps) return; /* dropped meanwhile */
    const deft_dtype t = df_shown_dtype(cx, k->t);
    df_shown_shape(cx, k->t, &of);
    (void)df_shape_numel(&of, &n);
    if (k->t->keeps > 1) snprintf(times, sizeof times, "%u times, first", k->t->keeps);
    df_str_fmt(s, "%s%s %lld bytes, kept %s at %s%s\n", deft_dtype_name(t),
               df_shape_text(&of, shape, sizeof shape),
               (long long)n * (long long)deft_dtype_size(t), times,
               df_ctx_site_text(cx, k->site, site, sizeof site),
               k->t->value || k->t->flags & DF_HANDLE_WEAK ? "" : ", not computed");
}

static void show(deft_ctx *cx, const char *what, df_str *s)
{
    const df_plan *const p = cx->last ? df_plan_held(cx->last_plan) : NULL;
    if (!strcmp(what, "graphs")) df_ctx_show_replay(cx, s);
    if (!strcmp(what, "why")) show_why(cx, s, p);
    for (size_t i = 0; i < cx->kept.n && !strcmp(what, "kept"); i++)
        show_kept_one(cx, s, &cx->kept.at[i]);
    if (!p) return;
    if (!strcmp(what, "trace")) df_trace_print(s, cx->last);
    if (!strcmp(what, "plan")) df_plan_print(s, p, cx->last);
    if (!strcmp(what, "guards")) df_guard_print(s, p->guards, p->n_guards, p->slots, cx->last);
    if (!strcmp(what, "key")) show_key(s, cx->last);
    if (!strcmp(what, "sites")) df_sites_print(cx, s, cx->last);
}

size_t deft_show(deft_ctx *cx, const char *what, char *buf, size_t n)
{
    if (n && buf) buf[0] = 0;
    if (!cx || !what) return 0;
    df_str s;
    df_str_init(&s, cx->mem);
    show(cx, what, &s);
    const size_t length = s.ok ? s.n : 0; /* a part of the text would look complete */
    if (n && buf && length) {
        const size_t take = length < n ? length : n - 1;
        memcpy(buf, s.at, take);
        buf[take] = 0;
    }
    df_str_finish(&s);
    return length;
}
