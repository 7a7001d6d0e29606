/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading structured logs (docs/trace-format.md): line by line, in bounded memory whatever the
 * files hold. A log may come from anywhere: nothing in it is trusted, and what is no line of a log
 * is counted and passed over.
 */
#ifndef TOOL_LOG_H
#define TOOL_LOG_H

#include <jansson.h>

#include "base/compiler.h"

enum {
    LOG_MAX_LINE = 64 << 20, /* bytes; longer lines are passed over without being held */
    LOG_MAX_VALUES =
        1 << 20, /* of a line, lists and objects counted twice: bounds what they take */
};

typedef struct log_line {
    const char *path; /* of the file */
    uint64_t number;  /* of the line, from 1 */
    uint32_t process; /* files are grouped by process: below log_process_count */
    const char *type; /* one of log_schema.def */
    int64_t t_ns;     /* >= 0 */
    json_t *record;   /* borrowed until the function returns; json_incref keeps it */
} log_line;

/* The files of a folder, grouped by process (deft-PID-START), parts in order; or one file. */
typedef struct log_set log_set;

/* A folder: its regular files with names of logs; links are passed over. Else one file, which may
 * be a pipe, "-" is standard input. CLI_OK, or CLI_INPUT, told on stderr. The path must outlive the
 * set. */
int log_open(log_set **out, const char *folder_or_file);
/* One file that stands in memory. name and bytes must outlive the set. NULL: no memory. */
log_set *log_open_memory(const char *name, const void *bytes, size_t n);
void log_close(log_set **s); /* NULL is fine */

uint32_t log_process_count(const log_set *s);
/* "deft-PID-START", of a single file its path. */
const char *log_process_name(const log_set *s, uint32_t process);

/* What went wrong while reading: never fatal. Bad are lines that are cut, no JSON, no object, have
 * a field of another type than the schema states, are too long or of too many values. */
typedef struct log_faults {
    uint64_t lines, bad_lines, bytes;
    uint64_t unknown_lines; /* of types that the schema does not have: not bad */
    char first[8][256];     /* sentences "FILE:LINE: REASON" on the first bad ones, printable */
    uint32_t n_first;
    bool is_newer_schema; /* of some file */
    int64_t newest_schema;
} log_faults;

typedef bool (*log_line_fn)(void *user, const log_line *line); /* false: stop reading */

/* Hands over each good line in the order of the files. Fields may be absent; those that are there
 * have the types that the schema states, unknown ones are left as they are. Lines of older schemas
 * come as of today's. May be called again, unless what was opened is a pipe. CLI_OK, or CLI_INPUT
 * when a file cannot be read, told on stderr. */
int log_read(log_set *s, log_line_fn f, void *user, log_faults *out);

/* Writes a sentence to stderr for each of the first bad lines, how many more there are, and of a
 * newer schema. Nothing when all is well. */
void log_tell_faults(const log_faults *f);

/* ---- fields: absent and null are fine ---- */

const char *log_string(const json_t *record, const char *key); /* NULL: absent, null, no string */
int64_t log_int(const json_t *record, const char *key, int64_t otherwise);
bool log_bool(const json_t *record, const char *key); /* false: absent */

/* Copies text for people: what is no printable UTF-8 (terminals obey escape sequences) becomes '?',
 * and what has no room in n bytes is cut between characters. Returns out. */
char *log_clean(char *out, size_t n, const char *text);

#endif
