/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the files of a log: see log.h. A folder may have been sent by anybody, so only regular
 * files with exactly the names that the library gives are looked at.
 */
#include "log_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "log.h"

/* ---- names ---- */

static bool number(const char **at, uint64_t most, uint64_t *out)
{
    const char *p = *at;
    uint64_t v = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (v > (most - digit) / 10) return false;
        v = v * 10 + digit;
    }
    if (p == *at) return false;
    *at = p;
    *out = v;
    return true;
}

static bool word(const char **at, const char *text)
{
    const size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

bool log_name(const char *name, const char *ending, log_file *out)
{
    uint64_t part = 0;
    const char *at = name;
    if (!word(&at, "deft-") || !number(&at, UINT64_MAX, &out->process_id) || !word(&at, "-") ||
        !number(&at, UINT64_MAX, &out->start))
        return false;
    const char *const dot = at;
    if (!word(&at, ".") || !number(&at, UINT32_MAX, &part)) at = dot;
    out->part = (uint32_t)part;
    return strcmp(at, ending) == 0;
}

static int by_process_and_part(const void *a, const void *b)
{
    const log_file *const x = a, *const y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    if (x->process_id != y->process_id) return x->process_id < y->process_id ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* ---- files ---- */

static const char *keep(log_set *s, const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *const path = df_arena_alloc(&s->arena, n, 1);
    if (path) (void)snprintf(path, n, "%s%s%s", folder, *folder ? "/" : "", name);
    return path;
}

static bool add_process(log_set *s, const char *name)
{
    return name && df_vec_push(&df_mem_system, &s->processes, name);
}

static bool add_file(log_set *s, const log_file *f)
{
    return f->path && df_vec_push(&df_mem_system, &s->files, *f);
}

/* Sorted files to processes. */
static bool group(log_set *s)
{
    char name[64];
    if (s->files.n) qsort(s->files.at, s->files.n, sizeof *s->files.at, by_process_and_part);
    for (size_t i = 0; i < s->files.n; i++) {
        log_file *const f = &s->files.at[i];
        const bool is_next = i == 0 || f[-1].start != f->start || f[-1].process_id != f->process_id;
        (void)snprintf(name, sizeof name, "deft-%llu-%llu", (unsigned long long)f->process_id,
                       (unsigned long long)f->start);
        if (is_next && !add_process(s, keep(s, "", name))) return false;
        f->process = (uint32_t)s->processes.n - 1;
    }
    return true;
}

static bool is_regular(DIR *d, const char *name)
{
    struct stat st;
    return fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static int list(log_set *s, const char *folder)
{
    bool ok = true;
    DIR *const d = opendir(folder);
    if (!d) return cli_fail(CLI_INPUT, "%s: %s", folder, strerror(errno));
    for (struct dirent *e; ok && (e = readdir(d)) != NULL;) {
        log_file f = { 0 };
        if (!log_name(e->d_name, ".jsonl", &f) || !is_regular(d, e->d_name)) continue;
        f.path = keep(s, folder, e->d_name);
        ok = add_file(s, &f);
    }
    closedir(d);
    if (!ok || !group(s)) return cli_fail(CLI_INPUT, "%s: out of memory", folder);
    if (s->files.n == 0)
        return cli_fail(CLI_INPUT, "%s: holds no log (deft-PID-START.jsonl)", folder);
    return CLI_OK;
}

static log_set *create(void)
{
    log_set *const s = df_mem_zalloc(&df_mem_system, sizeof *s);
    if (s) df_arena_init(&s->arena, &df_mem_system);
    return s;
}

static bool add_only(log_set *s, const char *path)
{
    return add_process(s, path) && add_file(s, &(log_file){ .path = path });
}

int log_open(log_set **out, const char *path)
{
    struct stat st;
    log_set *s = create();
    int code = CLI_OK;
    if (!s) return cli_fail(CLI_INPUT, "%s: out of memory", path);
    const bool is_stdin = strcmp(path, "-") == 0;
    if (!is_stdin && stat(path, &st) != 0)
        code = cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    else if (!is_stdin && S_ISDIR(st.st_mode))
        s->is_folder = true, code = list(s, path);
    else if (!add_only(s, path))
        code = cli_fail(CLI_INPUT, "%s: out of memory", path);
    if (code == CLI_OK)
        *out = s;
    else
        log_close(&s);
    return code;
}

log_set *log_open_memory(const char *name, const void *bytes, size_t n)
{
    log_set *s = create();
    if (s && add_only(s, name)) {
        s->bytes = n ? bytes : "";
        s->size = n;
        return s;
    }
    log_close(&s);
    return NULL;
}

void log_close(log_set **sp)
{
    log_set *const s = *sp;
    if (!s) return;
    df_vec_finish(&df_mem_system, &s->files);
    df_vec_finish(&df_mem_system, &s->processes);
    df_arena_finish(&s->arena);
    df_mem_free(&df_mem_system, s, sizeof *s);
    *sp = NULL;
}

uint32_t log_process_count(const log_set *s)
{
    return (uint32_t)s->processes.n;
}

const char *log_process_name(const log_set *s, uint32_t process)
{
    return s->processes.at[process];
}
