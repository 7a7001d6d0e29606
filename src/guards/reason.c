/* SPDX-License-Identifier: Apache-2.0
 *
 * Events as lines of text, and rings of events: reason.h.
 */
#include "guards/reason.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/journal.h"
#include "base/str.h"

const df_reason_info df_reason_infos[DF_N_REASONS] = {
#define REASON(id, severity, text, advice) { #id, DF_WHY_##severity, text, advice },
#include "guards/reasons.def"
#undef REASON
};

/* Appends to the text of e and returns the index where it begins. The text is shortened so that
 * `left` bytes remain free. */
static uint16_t put_text(df_event *e, const char *text, size_t left)
{
    static const char cut[] = "...";
    const uint16_t at = e->used;
    const size_t room = sizeof e->text - at - 1 - left;
    size_t n = text ? strlen(text) : 0;
    if (n > room) {
        n = room;
        memcpy(e->text + at, text, n - strlen(cut));
        memcpy(e->text + at + n - strlen(cut), cut, strlen(cut));
    } else if (n) {
        memcpy(e->text + at, text, n);
    }
    e->text[at + n] = '\0';
    e->used = (uint16_t)(at + n + 1);
    return at;
}

void df_event_make(df_event *e, df_reason reason, uintptr_t site, const char *field,
                   const char *expected, const char *found)
{
    enum { LEAST = 48 }; /* bytes of each text that are kept, however long the others are */
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    *e = (df_event){ .ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec,
                     .reason = (uint16_t)reason,
                     .site = site,
                     .times = 1 };
    const size_t n_expected = expected ? strlen(expected) : 0, n_found = found ? strlen(found) : 0;
    const size_t keep_expected = n_expected < LEAST ? n_expected : LEAST;
    const size_t keep_found = n_found < LEAST ? n_found : LEAST;
    put_text(e, field, keep_expected + keep_found + 2);
    e->expected = put_text(e, expected, keep_found + 1);
    e->found = put_text(e, found, 0);
}

/* ---- lines ---- */

typedef struct line {
    char *buf;
    size_t room, n; /* size of buf; length of the full text so far, which may exceed room */
} line;

static void put(line *l, const char *text, size_t n)
{
    if (l->n < l->room) {
        const size_t left = l->room - l->n;
        memcpy(l->buf + l->n, text, n < left ? n : left);
    }
    l->n += n;
}

static void puts_to(line *l, const char *text)
{
    put(l, text, strlen(text));
}

static void put_number(line *l, uint64_t n)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    put(l, text, (size_t)length);
}

static void put_field(line *l, const df_event *e, df_sites *sites, const char *name, size_t n)
{
    char site[DF_SITE_TEXT];
    if (n == 1)
        put_number(l, e->n);
    else if (df_text_equals(name, n, "site"))
        puts_to(l, df_site_text(sites, e->site, site, sizeof site));
    else if (df_text_equals(name, n, "other"))
        puts_to(l, df_site_text(sites, e->other, site, sizeof site));
    else if (df_text_equals(name, n, "expected"))
        puts_to(l, e->text + e->expected);
    else if (df_text_equals(name, n, "found"))
        puts_to(l, e->text + e->found);
    else
        puts_to(l, e->text);
}

static const char *const severities[] = { "note", "warning" };

size_t df_event_text(const df_event *e, df_sites *sites, char *buf, size_t n)
{
    const df_reason_info *const info = &df_reason_infos[e->reason];
    line l = { .buf = buf, .room = n };
    puts_to(&l, severities[info->severity]);
    puts_to(&l, " ");
    puts_to(&l, info->id);
    puts_to(&l, ": ");
    for (const char *at = info->text; *at;) {
        const size_t plain = strcspn(at, "{");
        put(&l, at, plain);
        at += plain;
        if (!*at) break;
        const size_t name = strcspn(++at, "}");
        put_field(&l, e, sites, at, name);
        at += name + 1;
    }
    if (e->times > 1) {
        puts_to(&l, " (");
        put_number(&l, e->times);
        puts_to(&l, " times)");
    }
    puts_to(&l, ". Advice: ");
    puts_to(&l, info->advice);
    puts_to(&l, ".");
    if (n) buf[l.n < n ? l.n : n - 1] = '\0';
    return l.n;
}

static void record(df_journal *j, const df_event *e)
{
    df_str s;
    const df_reason_info *const info = &df_reason_infos[e->reason];
    df_record_begin(&s, j, "why", e->owner);
    df_json_text(&s, "reason", info->id);
    df_json_text(&s, "severity", severities[info->severity]);
    df_json_site(&s, "site", e->site);
    df_json_site(&s, "other_site", e->other);
    df_json_count(&s, "count", e->n);
    df_json_text(&s, "field", e->text);
    df_json_text(&s, "expected", e->text + e->expected);
    df_json_text(&s, "found", e->text + e->found);
    df_json_text(&s, "template", info->text);
    df_json_text(&s, "advice", info->advice);
    df_record_end(&s, j);
}

void df_event_log(const df_log *log, const df_event *e)
{
    char text[1024];
    if (log && df_journal_on(log->journal)) record(log->journal, e);
    if (!df_log_on(log, DF_LOG_why)) return;
    df_event_text(e, log->sites, text, sizeof text);
    df_log_write(log, DF_LOG_why, "%s", text);
}

/* ---- rings ---- */

static bool same(const df_event *a, const df_event *b)
{
    return a->reason == b->reason && a->site == b->site && a->other == b->other && a->n == b->n &&
           a->owner == b->owner && a->used == b->used && !memcmp(a->text, b->text, a->used);
}

void df_events_add(df_events *r, const df_event *e, uint64_t seen)
{
    df_event *const newest = r->total > seen ? &r->at[(r->total - 1) % DF_EVENTS] : NULL;
    if (newest && same(newest, e)) {
        newest->times++;
        newest->ns = e->ns;
        return;
    }
    r->at[r->total++ % DF_EVENTS] = *e;
}

bool df_events_next(const df_events *r, uint64_t *seen, uint64_t *n_dropped, df_event *out)
{
    if (r->total > *seen + DF_EVENTS) {
        *n_dropped += r->total - DF_EVENTS - *seen;
        *seen = r->total - DF_EVENTS;
    }
    if (*seen >= r->total) return false;
    *out = r->at[(*seen)++ % DF_EVENTS];
    return true;
}
