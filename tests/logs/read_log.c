/* SPDX-License-Identifier: Apache-2.0
 *
 * read_log [--twice|--memory|--first] FILE|FOLDER: what the reader of logs hands over: each line as
 * JSON behind process, number and time, then the faults. --memory: FILE is read into memory first;
 * --first: reading is stopped after one line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "log.h"

static bool stops;

static bool show(void *user, const log_line *line)
{
    char *const text = json_dumps(line->record, JSON_COMPACT);
    (void)user;
    printf("%u %llu %lld %s %s\n", line->process, (unsigned long long)line->number,
           (long long)line->t_ns, line->type, text);
    free(text);
    return !stops;
}

static int read_once(log_set *s)
{
    log_faults f;
    const int code = log_read(s, show, NULL, &f);
    printf("faults lines=%llu bad=%llu bytes=%llu unknown=%llu newer=%d newest=%lld\n",
           (unsigned long long)f.lines, (unsigned long long)f.bad_lines,
           (unsigned long long)f.bytes, (unsigned long long)f.unknown_lines, f.is_newer_schema,
           (long long)f.newest_schema);
    log_tell_faults(&f);
    return code;
}

static log_set *open_in_memory(const char *path, char **bytes)
{
    FILE *const f = fopen(path, "rb");
    size_t n = 1 << 20;
    *bytes = malloc(n);
    if (!f || !*bytes) exit(CLI_INPUT);
    n = fread(*bytes, 1, n, f);
    fclose(f);
    /* Exactly as large as it is, so that reading past the end is seen. */
    *bytes = realloc(*bytes, n + !n);
    return log_open_memory(path, *bytes, n);
}

int main(int argc, char **argv)
{
    const char *const way = argc > 2 ? argv[1] : "", *const path = argv[argc - 1];
    log_set *s = NULL;
    char *bytes = NULL;
    int code = CLI_OK;
    stops = strcmp(way, "--first") == 0;
    if (strcmp(way, "--memory") == 0)
        s = open_in_memory(path, &bytes);
    else
        code = log_open(&s, path);
    if (code == CLI_OK && !s) code = CLI_INPUT;
    for (uint32_t i = 0; s && i < log_process_count(s); i++)
        printf("process %u %s\n", i, log_process_name(s, i));
    for (int i = 0; code == CLI_OK && i <= (strcmp(way, "--twice") == 0); i++) code = read_once(s);
    log_close(&s);
    free(bytes);
    return code;
}
