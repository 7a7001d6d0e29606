/* SPDX-License-Identifier: Apache-2.0
 *
 * Reasons: why something took time, as data (reasons.def) and as lines for people. An event names
 * its reason and carries what the reason's text asks for; a ring keeps the latest ones. Nothing
 * here allocates, so that what is told does not depend on what memory is left; naming a line of
 * source may (site.h), and does without.
 */
#ifndef DF_GUARDS_REASON_H
#define DF_GUARDS_REASON_H

#include "base/log.h"
#include "base/site.h"

typedef enum df_reason {
#define REASON(id, severity, text, advice) DF_WHY_##id,
#include "guards/reasons.def"
#undef REASON
    DF_N_REASONS
} df_reason;

typedef enum df_severity { DF_WHY_note, DF_WHY_warning } df_severity;

typedef struct df_reason_info {
    const char *id;
    df_severity severity;
    const char *text, *advice;
} df_reason_info;

extern const df_reason_info df_reason_infos[DF_N_REASONS];

#define DF_EVENT_TEXT 256

typedef struct df_event {
    uint64_t ns;           /* when: CLOCK_MONOTONIC; orders events of several rings */
    uintptr_t site, other; /* call sites; 0: unknown */
    uint64_t n;
    uint32_t owner; /* the context that it is told to */
    uint16_t reason;
    uint16_t used;            /* of text */
    uint32_t times;           /* it happened in a row, equal in all but ns */
    uint16_t expected, found; /* where they begin in text; field begins at 0 */
    char text[DF_EVENT_TEXT]; /* field, expected, found, each with its NUL; cut to fit */
} df_event;

/* NULL counts as "". The texts are copied. */
void df_event_make(df_event *e, df_reason reason, uintptr_t site, const char *field,
                   const char *expected, const char *found);

/* "warning sync_in_step: <text>. Advice: <advice>." with what the event carries, into buf,
 * cut at n and terminated. Returns the full length, like snprintf. sites: as in df_site_text. */
size_t df_event_text(const df_event *e, df_sites *sites, char *buf, size_t n);
/* The same to the log, when the topic why is on, and as a record to the structured log. */
void df_event_log(const df_log *log, const df_event *e);

#define DF_EVENTS 128

typedef struct df_events {
    uint64_t total; /* events so far; event i is at[i % DF_EVENTS] while i + DF_EVENTS >= total */
    df_event at[DF_EVENTS];
} df_events;

/* An event equal to the newest one only raises its `times`, unless that was read (i < seen). */
void df_events_add(df_events *r, const df_event *e, uint64_t seen);
/* The event after *seen, which moves on; false when there is none. *n_dropped grows by those that
 * are no longer kept. */
bool df_events_next(const df_events *r, uint64_t *seen, uint64_t *n_dropped, df_event *out);

#endif
