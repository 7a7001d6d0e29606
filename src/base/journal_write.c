/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer: a thread that polls the rings and the queue and writes lines. It pauses between two
 * rounds, shortly when it has found something, and longer and longer when not.
 *
 * A round first reads the head of each ring, then writes all queued records, then the notes up to
 * these heads. A record is queued before any note that refers to it, so this order writes the
 * record before the note.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/journal_internal.h"

#define LEAST_PAUSE_NS 10000000u
#define MOST_PAUSE_NS 160000000u

typedef enum field_type { TYPE_count, TYPE_flag, TYPE_word, TYPE_site, TYPE_plan } field_type;

enum { KEY = 32 };

typedef struct field {
    char key[KEY]; /* ',', the quoted name and ':'. All KEY bytes are copied, which is faster */
    uint8_t n, type;
} field;

#define F(type, name) { ",\"" #name "\":", sizeof #name + 3, TYPE_##type },
#define NOTE(id, fields) static const field id##_fields[] = { fields };
#include "base/notes.def"
#undef NOTE
#undef F

static const struct {
    const char *type;
    const field *fields;
    uint32_t n;
} notes[DF_N_NOTES] = {
#define NOTE(id, fields) { #id, id##_fields, DF_LEN(id##_fields) },
#include "base/notes.def"
#undef NOTE
};

/* ---- lines ---- */

/* A line under construction. It has room for any note, because sites and words are truncated. */
typedef struct line {
    char at[DF_NOTE_MOST * DF_SITE_TEXT * DF_JSON_MOST];
    size_t n;
} line;

static void journal_append_text(line *l, const char *text, size_t n)
{
    memcpy(l->at + l->n, text, n);
    l->n += n;
}

#define PUT(l, literal) journal_append_text((l), (literal), sizeof(literal) - 1)

static void journal_append_key(line *l, const field *f)
{
    memcpy(l->at + l->n, f->key, KEY);
    l->n += f->n;
}

/* Appends a decimal number. Digits are produced in pairs from the end of 24 characters, all of
 * which are then copied. */
static void journal_append_number(line *l, uint64_t n)
{
    enum { MOST = 24 };
    char text[2 * MOST];
    size_t at = MOST;
    if (n < 10) {
        l->at[l->n++] = (char)('0' + n);
        return;
    }
    for (; n >= 10; n /= 100) {
        const unsigned two = (unsigned)(n % 100);
        text[--at] = (char)('0' + two % 10);
        text[--at] = (char)('0' + two / 10);
    }
    if (n) text[--at] = (char)('0' + n);
    memcpy(l->at + l->n, text + at, MOST);
    l->n += MOST - at;
}

/* Writes text, of at most DF_SITE_TEXT bytes, as a JSON string to out. out needs DF_JSON_MOST times
 * as many bytes. Returns the length. */
static size_t quote(char *out, size_t room, const char *text)
{
    const char *at = text, *const end = text + strlen(text);
    out[0] = '"';
    const size_t n = 1 + df_json_escape(out + 1, room - 1, &at, end);
    out[n] = '"';
    return n + 1;
}

static void journal_append_word(line *l, const char *text)
{
    PUT(l, "\"");
    journal_append_text(l, text, strlen(text));
    PUT(l, "\"");
}

/* Appends the quoted name of a call site, which is cached. */
static void journal_append_site(df_journal *j, line *l, uintptr_t site)
{
    char text[DF_SITE_TEXT], json[(DF_SITE_TEXT + 2) * DF_JSON_MOST];
    df_site_name *const name = &j->names[(site ^ site >> 8) % DF_SITE_NAMES_KEPT];
    if (name->site != site) {
        const size_t n =
            quote(json, sizeof json, df_site_text(j->log->sites, site, text, sizeof text));
        if (n > sizeof name->text) {
            journal_append_text(l, json, n);
            return;
        }
        memcpy(name->text, json, n);
        name->site = site;
        name->n = (uint32_t)n;
    }
    journal_append_text(l, name->text, name->n);
}

static void journal_append_plan(line *l, uint64_t plan)
{
    PUT(l, "\"");
    journal_append_number(l, plan >> 32);
    PUT(l, ".");
    journal_append_number(l, plan & UINT32_MAX);
    PUT(l, "\"");
}

static void journal_append_value(df_journal *j, line *l, field_type type, uint64_t v)
{
    if (v == 0 && type != TYPE_count && type != TYPE_flag) {
        PUT(l, "null");
        return;
    }
    switch (type) {
    case TYPE_count: journal_append_number(l, v); return;
    case TYPE_flag: journal_append_text(l, v ? "true" : "false", v ? 4 : 5); return;
    case TYPE_word: journal_append_word(l, (const char *)(uintptr_t)v); return;
    case TYPE_site: journal_append_site(j, l, (uintptr_t)v); return;
    case TYPE_plan: journal_append_plan(l, v); return;
    }
}

static void journal_append_head(line *l, const char *type, uint64_t ns)
{
    l->n = 0;
    PUT(l, "{\"type\":\"");
    journal_append_text(l, type, strlen(type));
    PUT(l, "\",\"t_ns\":");
    journal_append_number(l, ns);
    PUT(l, ",\"context\":");
}

static void journal_append_note(df_journal *j, line *l, uint32_t context, const df_told *t)
{
    journal_append_head(l, notes[t->note].type, t->ns);
    if (context)
        journal_append_number(l, context);
    else
        PUT(l, "null");
    for (uint32_t i = 0; i < notes[t->note].n; i++) {
        const field *const f = &notes[t->note].fields[i];
        journal_append_key(l, f);
        journal_append_value(j, l, (field_type)f->type, t->v[i]);
    }
    PUT(l, "}\n");
}

/* ---- files ---- */

static uint64_t journal_clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Writes the first line of a file. */
static void journal_write_process(df_journal *j)
{
    df_str s;
    df_record_begin(&s, j, "process", 0);
    df_json_count(&s, "schema", DF_JOURNAL_SCHEMA);
    df_json_text(&s, "library_version", j->options.version);
    df_json_count(&s, "process_id", (uint64_t)getpid());
    df_json_count(&s, "parent_process_id", (uint64_t)getppid());
    df_json_text(&s, "program", program_invocation_short_name);
    df_json_count(&s, "clock_unix_ns", journal_clock_ns(CLOCK_REALTIME));
    df_json_count(&s, "part", j->file.part);
    df_json_flag(&s, "forked", j->is_child);
    df_json_text(&s, "compiler", j->compiler);
    df_json_count(&s, "threads", j->options.n_threads);
    df_json_flag(&s, "has_launches", j->options.launches);
    df_json_flag(&s, "has_code", j->options.code);
    df_json_close(&s, '}');
    df_str_putc(&s, '\n');
    if (s.ok) df_journal_file_put(&j->file, s.at, s.n);
    df_str_finish(&s);
}

static void next_file(df_journal *j)
{
    if (df_journal_file_next(&j->file)) journal_write_process(j);
}

static void journal_write_line(df_journal *j, const char *text, size_t n)
{
    if (df_journal_file_full(&j->file, n)) next_file(j);
    df_journal_file_put(&j->file, text, n);
    j->n_written++;
}

/* Logs the first failure to write, once. */
static void check_error(df_journal *j)
{
    char why[128];
    if (!j->file.error || atomic_load(&j->is_dead)) return;
    atomic_store(&j->is_dead, true);
    df_logf(j->log, error, "trace_dir: %s; nothing more is written",
            df_errno_text(j->file.error, why, sizeof why));
}

/* ---- rounds ---- */

static uintptr_t read_site(const char *digits)
{
    uintptr_t site = 0;
    for (int i = 0; i < 16; i++)
        site = site << 4 | (uintptr_t)(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
    return site;
}

/* Writes a record, with names in place of its call sites. */
static void journal_write_record(df_journal *j, const df_str *s, line *l)
{
    df_str out;
    df_str_init(&out, j->mem);
    const char *at = s->at, *const end = s->at + s->n;
    for (const char *mark; at < end; at = mark + 17) {
        mark = memchr(at, DF_JSON_SITE, (size_t)(end - at));
        df_str_putn(&out, at, (size_t)((mark ? mark : end) - at));
        if (!mark) break;
        l->n = 0;
        journal_append_site(j, l, read_site(mark + 1));
        df_str_putn(&out, l->at, l->n);
    }
    if (out.ok)
        journal_write_line(j, out.at, out.n);
    else
        atomic_fetch_add(&j->n_lost_records, 1);
    df_str_finish(&out);
}

/* Reverses a list, so that the oldest record is the first. */
static df_record *reverse(df_record *t)
{
    df_record *first = NULL;
    for (df_record *next; t; t = next) {
        next = t->next;
        t->next = first;
        first = t;
    }
    return first;
}

/* Writes and frees all queued records. Returns whether there were any. */
static bool journal_write_records(df_journal *j, line *l)
{
    df_record *const first = reverse(atomic_exchange(&j->records, NULL));
    for (df_record *t = first, *next; t; t = next) {
        next = t->next;
        journal_write_record(j, &t->s, l);
        atomic_fetch_sub(&j->record_bytes, t->s.n);
        df_str_finish(&t->s);
        df_mem_free(j->mem, t, sizeof *t);
    }
    return first != NULL;
}

/* Writes the notes that the ring had when the round began. Returns whether there were any. */
static bool journal_write_ring(df_journal *j, df_ring *r, line *l)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    const bool any = tail != r->seen;
    for (; tail != r->seen; tail++) {
        journal_append_note(j, l, r->context, &r->at[tail % DF_RING]);
        atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
        journal_write_line(j, l->at, l->n);
    }
    return any;
}

/* Frees rings that have ended and whose notes are all written. If another thread is inserting a
 * ring before such a ring, it is freed in a later round. */
static void drop_ended(df_journal *j)
{
    df_ring *before = NULL;
    for (df_ring *r = atomic_load(&j->rings), *next; r; r = next) {
        next = atomic_load(&r->next);
        df_ring *first = r;
        if (!r->is_last_round ||
            (!before && !atomic_compare_exchange_strong(&j->rings, &first, next))) {
            before = r;
            continue;
        }
        if (before) atomic_store(&before->next, next);
        atomic_fetch_add(&j->n_lost_notes, atomic_load(&r->n_lost));
        df_mem_free(j->mem, r, sizeof *r);
    }
}

static uint64_t lost_notes(df_journal *j)
{
    uint64_t n = atomic_load(&j->n_lost_notes);
    for (df_ring *r = atomic_load(&j->rings); r; r = atomic_load(&r->next))
        n += atomic_load_explicit(&r->n_lost, memory_order_relaxed);
    return n;
}

/* Writes the numbers of written lines and of dropped notes and records so far. */
static void journal_write_totals(df_journal *j, const char *type, line *l)
{
    journal_append_head(l, type, journal_clock_ns(CLOCK_MONOTONIC));
    PUT(l, "null,\"written\":");
    journal_append_number(l, j->n_written);
    PUT(l, ",\"dropped_notes\":");
    journal_append_number(l, j->told_lost_notes);
    PUT(l, ",\"dropped_records\":");
    journal_append_number(l, j->told_lost_records);
    PUT(l, "}\n");
    journal_write_line(j, l->at, l->n);
}

/* Writes a line when notes or records were dropped since the last such line. */
static void journal_write_dropped(df_journal *j, line *l)
{
    const uint64_t n = lost_notes(j), n_records = atomic_load(&j->n_lost_records);
    if (n == j->told_lost_notes && n_records == j->told_lost_records) return;
    j->told_lost_notes = n;
    j->told_lost_records = n_records;
    journal_write_totals(j, "dropped", l);
}

/* Does one round. Returns whether it found a note or a record. */
static bool journal_write_round(df_journal *j, line *l)
{
    bool any = false;
    df_ring *const first = atomic_load(&j->rings);
    for (df_ring *r = first; r; r = atomic_load(&r->next)) {
        r->is_last_round = atomic_load_explicit(&r->ended, memory_order_acquire);
        r->seen = atomic_load_explicit(&r->head, memory_order_acquire);
    }
    for (int i = 0; i < DF_SITE_NAMES_KEPT; i++) j->names[i].site = 0;
    any |= journal_write_records(j, l);
    for (df_ring *r = first; r; r = atomic_load(&r->next)) any |= journal_write_ring(j, r, l);
    journal_write_dropped(j, l);
    drop_ended(j);
    df_journal_file_flush(&j->file);
    check_error(j);
    return any;
}

/* Pauses for ns nanoseconds, or until a thread that logs wakes the writer. */
static void journal_pause(df_journal *j, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const uint64_t sum = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(sum / 1000000000u);
    until.tv_nsec = (long)(sum % 1000000000u);
    while (sem_timedwait(&j->wake, &until) != 0 && errno == EINTR) {
    }
    atomic_store_explicit(&j->is_awake, false, memory_order_release);
}

void *df_journal_write(void *journal)
{
    df_journal *const j = journal;
    line l;
    uint64_t pause = LEAST_PAUSE_NS;
    if (j->file.fd < 0)
        next_file(j);
    else
        journal_write_process(j);
    while (!atomic_load(&j->stop)) {
        pause = journal_write_round(j, &l) ? LEAST_PAUSE_NS : pause * 2;
        if (pause > MOST_PAUSE_NS) pause = MOST_PAUSE_NS;
        journal_pause(j, pause);
    }
    journal_write_round(j, &l);
    journal_write_totals(j, "end", &l);
    df_journal_file_flush(&j->file);
    check_error(j);
    return NULL;
}
