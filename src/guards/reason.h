/* SPDX-License-Identifier: Apache-2.0
 *
 * Reasons: why something took time, as data (reasons.def) and as lines for people. An event names
 * its reason and contains the values that the text of the reason uses. A ring keeps the latest
 * events. Making, keeping and printing events allocates no memory, so that they are reported even
 * when memory is short. The name of a source line (site.h) and a record of the structured log need
 * memory, and are left out without it.
 */
#ifndef DF_GUARDS_REASON_H
#define DF_GUARDS_REASON_H

#include "base/log.h"
#include "base/site.h"

/* One constant per row of reasons.def. */
typedef enum df_reason {
#define REASON(id, severity, text, advice) DF_WHY_##id,
#include "guards/reasons.def"
#undef REASON
    DF_N_REASONS
} df_reason;

typedef enum df_severity { DF_WHY_note, DF_WHY_warning } df_severity;

typedef struct df_reason_info {
    const char *id; /* as in reasons.def: "plan_miss" */
    df_severity severity;
    const char *text, *advice; /* text has {fields}; see reasons.def */
} df_reason_info;

extern const df_reason_info df_reason_infos[DF_N_REASONS];

#define DF_EVENT_TEXT 256

/* Something that happened, with its reason. */
typedef struct df_event {
    uint64_t ns;              /* time by CLOCK_MONOTONIC, which orders events of several rings */
    uintptr_t site, other;    /* the call sites {site} and {other}; 0 when unknown */
    uint64_t n;               /* the number {n} */
    uint32_t owner;           /* serial number of the context that reports the event */
    uint16_t reason;          /* df_reason */
    uint16_t used;            /* bytes of text that are used */
    uint32_t times;           /* how often in a row it happened, equal in everything but ns */
    uint16_t expected, found; /* index in text of these two; {field} begins at 0 */
    char text[DF_EVENT_TEXT]; /* field, expected, found, each with a NUL; shortened to fit */
} df_event;

/* Initialises *e with the current time, times 1, and other, n and owner 0. The three texts are
 * copied and shortened if needed. A text that is NULL counts as "". */
void df_event_make(df_event *e, df_reason reason, uintptr_t site, const char *field,
                   const char *expected, const char *found);

/* Writes "warning sync_in_step: <text>. Advice: <advice>." with the values of the event into
 * buf, and " (<n> times)" when times is above 1. The result is truncated to n bytes and
 * terminated. Returns its full length, without the NUL. sites is as for df_site_text. */
size_t df_event_text(const df_event *e, df_sites *sites, char *buf, size_t n);
/* Writes the event as a line to the log, if the topic `why` is on. Also writes a record of type
 * `why` to the structured log, if that is on, whatever the topic. With log NULL the call does
 * nothing. */
void df_event_log(const df_log *log, const df_event *e);

#define DF_EVENTS 128 /* events that a ring keeps */

/* A ring of events, empty when all is 0. Events are numbered from 0 in the order of
 * df_events_add. One thread at a time. */
typedef struct df_events {
    uint64_t total; /* events so far; event i is at[i % DF_EVENTS] while i + DF_EVENTS >= total */
    df_event at[DF_EVENTS];
} df_events;

/* Appends *e. If *e equals the newest event, only `times` and `ns` of that one change. Events below
 * `seen` were read already, and are not changed. With seen UINT64_MAX, events are never merged. */
void df_events_add(df_events *r, const df_event *e, uint64_t seen);
/* Copies event *seen to *out and increments *seen. Events that the ring no longer keeps are
 * skipped, and *n_dropped grows by their number. Returns false when all events were read. */
bool df_events_next(const df_events *r, uint64_t *seen, uint64_t *n_dropped, df_event *out);

#endif
