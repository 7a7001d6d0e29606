/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to checked records: see log.h.
 *
 *   file --blocks--> line (at most LOG_MAX_LINE) --jansson--> object --schema--> record of today
 *
 * Bounded: a line that is too long is passed over while it streams by; one of too many values is
 * refused before it is parsed, for a value takes up to some 300 bytes; depth is bounded by jansson
 * (2048). At most some 512 MiB are taken, for a line that is one string of 64 MiB.
 *
 * A schema newer than ours is read as far as it is known. Each older one gets a row in upgrades.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/journal.h"
#include "cli.h"
#include "log_files.h"

/* ---- fields ---- */

const char *log_string(const json_t *record, const char *key)
{
    return json_string_value(json_object_get(record, key));
}

int64_t log_int(const json_t *record, const char *key, int64_t otherwise)
{
    const json_t *const v = json_object_get(record, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

bool log_bool(const json_t *record, const char *key)
{
    return json_is_true(json_object_get(record, key));
}

/* Bytes of the character at p, 0 when it is none that may be printed. */
static size_t character(const unsigned char *p)
{
    if (*p < 0x80) return *p >= 0x20 && *p != 0x7f;
    const size_t n = *p >= 0xc2 && *p < 0xe0   ? 2
                     : *p >= 0xe0 && *p < 0xf0 ? 3
                     : *p >= 0xf0 && *p < 0xf5 ? 4
                                               : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    const bool is_control = n == 2 && p[0] == 0xc2 && p[1] < 0xa0;
    const bool is_overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    return is_control || is_overlong ? 0 : n;
}

char *log_clean(char *out, size_t room, const char *text)
{
    size_t at = 0;
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        const size_t n = character(p), wanted = n ? n : 1;
        if (at + wanted >= room) break;
        if (n)
            memcpy(out + at, p, n);
        else
            out[at] = '?';
        at += wanted;
        p += wanted;
    }
    out[at] = '\0';
    return out;
}

/* ---- the schema ---- */

typedef enum kind { KIND_int, KIND_bool, KIND_string, KIND_site, KIND_plan, KIND_list } kind;

typedef struct field {
    const char *name;
    kind kind;
    bool may_be_null;
} field;

typedef struct line_type {
    const char *name;
    const field *fields; /* ends with a name of NULL */
} line_type;

#define F(kind, name) { #name, KIND_##kind, false },
#define N(kind, name) { #name, KIND_##kind, true },
#define LINE(type, list) static const field fields_of_##type[] = { list{ NULL, KIND_int, false } };
#include "log_schema.def"
#undef LINE
#undef F
#undef N

static const line_type line_types[] = {
#define LINE(type, list) { #type, fields_of_##type },
#include "log_schema.def"
#undef LINE
};

static const line_type *type_named(const char *name)
{
    for (size_t i = 0; i < DF_LEN(line_types); i++)
        if (strcmp(line_types[i].name, name) == 0) return &line_types[i];
    return NULL;
}

static size_t digits(const char *text)
{
    return *text == '0' ? 0 : strspn(text, "0123456789");
}

/* "context.number", neither of them 0. */
static bool is_plan(const char *text)
{
    const size_t n = digits(text), m = n && text[n] == '.' ? digits(text + n + 1) : 0;
    return m && n <= 20 && m <= 20 && text[n + 1 + m] == '\0';
}

static bool fits(const json_t *v, const field *f)
{
    if (json_is_null(v)) return f->may_be_null;
    switch (f->kind) {
    case KIND_int: return json_is_integer(v) && json_integer_value(v) >= 0;
    case KIND_bool: return json_is_boolean(v);
    case KIND_string: return json_is_string(v);
    case KIND_site: return json_is_string(v) && json_string_length(v) > 0;
    case KIND_plan: return json_is_string(v) && is_plan(json_string_value(v));
    case KIND_list: return json_is_array(v);
    }
    df_unreachable();
}

static const field *first_misfit(const json_t *record, const field *fields)
{
    for (const field *f = fields; f->name; f++) {
        const json_t *const v = json_object_get(record, f->name);
        if (v && !fits(v, f)) return f;
    }
    return NULL;
}

/* upgrades[k] turns a record of schema k into one of k + 1. */
typedef void (*upgrade_fn)(json_t *record);
static const upgrade_fn upgrades[] = { NULL }; /* schema 1 is the oldest: there is no 0 */
_Static_assert(DF_LEN(upgrades) == DF_JOURNAL_SCHEMA, "each older schema needs its upgrade");

/* ---- one line ---- */

typedef struct reader {
    log_set *set;
    log_line_fn f;
    void *user;
    log_faults *faults;
    const log_file *file;
    uint64_t number;
    int64_t schema; /* of the file; ours until its process line was read */
    bool is_stopped;
} reader;

static bool bad(reader *r, const char *fmt, ...) DF_PRINTF(2, 3);

/* false, so that callers can return it. */
static bool bad(reader *r, const char *fmt, ...)
{
    char reason[200], text[512];
    log_faults *const out = r->faults;
    va_list ap;
    out->bad_lines++;
    if (out->n_first == DF_LEN(out->first)) return false;
    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    /* Of a long path the end says more. */
    const size_t n = strlen(r->file->path), most = 120;
    const char *const path = n > most ? r->file->path + n - most : r->file->path;
    (void)snprintf(text, sizeof text, "%s:%llu: %s", path, (unsigned long long)r->number, reason);
    log_clean(out->first[out->n_first++], sizeof out->first[0], text);
    return false;
}

/* Commas and opening brackets bound the values, however a line is written. */
static bool has_too_many_values(const char *line, size_t n)
{
    size_t n_values = 1;
    bool in_text = false;
    if (n < LOG_MAX_VALUES) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = line[i];
        if (c == '"') in_text = !in_text;
        if (in_text && c == '\\') i++;
        n_values += !in_text && (c == ',' || c == '[' || c == '{');
    }
    return n_values > LOG_MAX_VALUES;
}

static void note_schema(reader *r, const json_t *record)
{
    r->schema = log_int(record, "schema", DF_JOURNAL_SCHEMA);
    if (r->schema > r->faults->newest_schema) r->faults->newest_schema = r->schema;
    r->faults->is_newer_schema = r->faults->newest_schema > DF_JOURNAL_SCHEMA;
}

static bool take_record(reader *r, json_t *record)
{
    static const field context[] = { { "context", KIND_int, true }, { NULL, KIND_int, false } };
    const char *const name = log_string(record, "type");
    const int64_t t_ns = log_int(record, "t_ns", -1);
    if (!name) return bad(r, "has no type");
    if (t_ns < 0) return bad(r, "%.40s: t_ns is no time", name);
    if (strcmp(name, "process") == 0) note_schema(r, record);
    if (r->schema < 1) return bad(r, "schema %lld does not exist", (long long)r->schema);
    for (int64_t k = r->schema; k < DF_JOURNAL_SCHEMA; k++) upgrades[k](record);
    const line_type *const type = type_named(name);
    if (!type) {
        r->faults->unknown_lines++;
        return true;
    }
    const field *misfit = first_misfit(record, context);
    if (!misfit) misfit = first_misfit(record, type->fields);
    if (misfit) return bad(r, "%s: %s has a wrong type", name, misfit->name);
    const log_line line = { r->file->path, r->number, r->file->process, type->name, t_ns, record };
    r->is_stopped = !r->f(r->user, &line);
    return true;
}

static bool take_line(reader *r, const char *line, size_t n, bool is_ended)
{
    json_error_t e;
    /* Short, for a file may hold nothing else. */
    if (n == 0) return bad(r, "no JSON: an empty line");
    if (has_too_many_values(line, n)) return bad(r, "has more than %d values", (int)LOG_MAX_VALUES);
    json_t *const record = json_loadb(line, n, 0, &e);
    if (!record) return bad(r, "%s: %s", is_ended ? "no JSON" : "cut", e.text);
    const bool ok = json_is_object(record) ? take_record(r, record) : bad(r, "no object");
    json_decref(record);
    return ok;
}

/* ---- files ---- */

typedef struct holder {
    char *at;
    size_t n, cap;
    bool is_too_long; /* the rest of the line is passed over */
} holder;

static void finish_line(reader *r, holder *h, bool is_ended)
{
    r->number++;
    r->faults->lines++;
    if (h->is_too_long)
        (void)bad(r, "longer than %d bytes", (int)LOG_MAX_LINE);
    else
        (void)take_line(r, h->at ? h->at : "", h->n, is_ended);
    h->n = 0;
    h->is_too_long = false;
}

/* false: no memory. */
static bool hold(holder *h, const char *bytes, size_t n)
{
    if (h->is_too_long || n == 0) return true;
    if (h->n + n > LOG_MAX_LINE) {
        h->is_too_long = true;
        return true;
    }
    if (h->cap - h->n < n && !df_vec_grow(&df_mem_system, (void **)&h->at, h->n, &h->cap, 1, n))
        return false;
    memcpy(h->at + h->n, bytes, n);
    h->n += n;
    return true;
}

static bool take_block(reader *r, holder *h, const char *block, size_t n)
{
    r->faults->bytes += n;
    for (const char *at = block, *const end = block + n; at < end && !r->is_stopped;) {
        const char *const line_end = memchr(at, '\n', (size_t)(end - at));
        if (!hold(h, at, (size_t)((line_end ? line_end : end) - at))) return false;
        if (line_end) finish_line(r, h, true);
        at = line_end ? line_end + 1 : end;
    }
    return true;
}

/* -1: told on stderr. Files of a folder are not waited for, nor is what was read before. */
static int open_file(const log_set *s, const char *path)
{
    struct stat st;
    const bool is_stdin = !s->is_folder && strcmp(path, "-") == 0;
    const bool must_be_regular = s->is_folder || s->was_read;
    const int flags = (s->is_folder ? O_NOFOLLOW : 0) | (must_be_regular ? O_NONBLOCK : 0);
    const int fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0 || fstat(fd, &st) != 0)
        (void)cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    else if (must_be_regular && (is_stdin || !S_ISREG(st.st_mode)))
        (void)cli_fail(CLI_INPUT, "%s: %s", path,
                       s->was_read ? "can be read only once" : "no regular file");
    else
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int take_file(reader *r)
{
    static char block[1 << 16];
    const char *const path = r->file->path;
    holder h = { 0 };
    ssize_t n = 1;
    bool ok = true;
    const int fd = r->set->bytes ? -1 : open_file(r->set, path);
    if (!r->set->bytes && fd < 0) return CLI_INPUT;
    if (r->set->bytes) ok = take_block(r, &h, r->set->bytes, r->set->size);
    while (fd >= 0 && ok && !r->is_stopped) {
        n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        ok = take_block(r, &h, block, (size_t)n);
    }
    int code = CLI_OK;
    if (n < 0) code = cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    if (!ok) code = cli_fail(CLI_INPUT, "%s: out of memory", path);
    if (code == CLI_OK && !r->is_stopped && (h.n || h.is_too_long)) finish_line(r, &h, false);
    if (fd >= 0) close(fd);
    df_mem_free(&df_mem_system, h.at, h.cap);
    return code;
}

int log_read(log_set *s, log_line_fn f, void *user, log_faults *out)
{
    reader r = { .set = s, .f = f, .user = user, .faults = out };
    int code = CLI_OK;
    *out = (log_faults){ 0 };
    for (size_t i = 0; i < s->files.n && code == CLI_OK && !r.is_stopped; i++) {
        r.file = &s->files.at[i];
        r.number = 0;
        r.schema = DF_JOURNAL_SCHEMA;
        code = take_file(&r);
    }
    s->was_read = true;
    return code;
}

void log_tell_faults(const log_faults *f)
{
    for (uint32_t i = 0; i < f->n_first; i++) (void)cli_fail(CLI_OK, "%s", f->first[i]);
    if (f->bad_lines > f->n_first)
        (void)cli_fail(CLI_OK, "%llu more bad lines of %llu",
                       (unsigned long long)(f->bad_lines - f->n_first),
                       (unsigned long long)f->lines);
    if (f->is_newer_schema)
        (void)cli_fail(CLI_OK,
                       "schema %lld is newer than %d, which this deft knows: what it knows "
                       "is read",
                       (long long)f->newest_schema, DF_JOURNAL_SCHEMA);
}
