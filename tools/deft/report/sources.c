/* SPDX-License-Identifier: Apache-2.0
 *
 * Source text for the sites of a log. Sites name files by their last part; a walk of the folders,
 * in an order that does not change, takes the first that has the name and as many lines as the
 * sites ask for. A log may name anything: only files with the ending of a source are read, no links
 * are followed, and nothing outside the folders.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../log.h"
#include "base/mem.h"
#include "parts.h"

enum {
    MAX_DEPTH = 8,
    MAX_ENTRIES = 50000,
    MAX_FILE = 1 << 20,
    MAX_ALL = 8 << 20,
};

typedef struct search {
    json_t *wanted; /* name: the greatest line asked for */
    json_t *found;  /* name: text */
    size_t n_entries, n_bytes;
    bool ok;
} search;

static bool is_source(const char *name)
{
    static const char *const endings[] = { ".c",  ".h",   ".cc", ".cpp", ".cxx", ".hpp",
                                           ".hh", ".inc", ".py", ".pyx", ".rs",  ".f90",
                                           ".jl", ".m",   ".mm", ".zig", ".d",   ".go" };
    const char *const dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < DF_LEN(endings); i++)
        if (strcmp(dot, endings[i]) == 0) return true;
    return false;
}

/* The file and line that a site names; false: none. */
static bool part_site(const char *site, char *name, size_t room, json_int_t *line)
{
    const size_t n = strcspn(site, ":");
    if (site[n] != ':' || n == 0 || n >= room) return false;
    memcpy(name, site, n);
    name[n] = '\0';
    *line = strtoll(site + n + 1, NULL, 10);
    return *line > 0 && !strchr(name, '/') && is_source(name);
}

static json_t *wanted_of(const json_t *sites)
{
    json_t *const wanted = json_object();
    for (size_t i = 0; i < json_array_size(sites) && wanted; i++) {
        char name[256];
        json_int_t line;
        const char *const site = json_string_value(json_array_get(sites, i));
        if (!site || !part_site(site, name, sizeof name, &line)) continue;
        if (line > log_int(wanted, name, 0))
            (void)json_object_set_new(wanted, name, json_integer(line));
    }
    return wanted;
}

/* What is no UTF-8 becomes '?', so that JSON can hold it. */
static void clean(char *text, size_t n)
{
    json_t *const whole = json_stringn(text, n);
    if (!whole)
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)text[i] >= 0x80) text[i] = '?';
    json_decref(whole);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\0') text[i] = '?';
}

static json_int_t count_lines(const char *text, size_t n)
{
    json_int_t lines = 1;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

static void take(search *s, int folder, const char *name)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    char *text = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_FILE &&
        s->n_bytes + (size_t)st.st_size <= MAX_ALL)
        text = df_mem_alloc(&df_mem_system, (size_t)st.st_size + 1);
    const ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n >= 0 && count_lines(text, (size_t)n) >= log_int(s->wanted, name, 0)) {
        clean(text, (size_t)n);
        if (json_object_set_new(s->found, name, json_stringn(text, (size_t)n)) != 0) s->ok = false;
        s->n_bytes += (size_t)n;
    }
    if (text) df_mem_free(&df_mem_system, text, (size_t)st.st_size + 1);
    close(fd);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static void walk(search *s, int folder, int depth)
{
    struct dirent **list = NULL;
    const int n = scandirat(folder, ".", &list, is_visible, by_name);
    for (int i = 0; i < n; i++) {
        const char *const name = list[i]->d_name;
        if (s->n_entries++ < MAX_ENTRIES && json_object_get(s->wanted, name) &&
            !json_object_get(s->found, name))
            take(s, folder, name);
    }
    const bool is_done = json_object_size(s->found) == json_object_size(s->wanted);
    for (int i = 0; i < n && !is_done && depth < MAX_DEPTH; i++) {
        const int fd =
            list[i]->d_type != DT_DIR && list[i]->d_type != DT_UNKNOWN
                ? -1
                : openat(folder, list[i]->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (s->n_entries < MAX_ENTRIES) walk(s, fd, depth + 1);
        close(fd);
    }
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
}

json_t *report_sources(const json_t *sites, const char *const *folders, size_t n)
{
    search s = { .wanted = wanted_of(sites), .found = json_object(), .ok = true };
    s.ok = s.wanted && s.found;
    for (size_t i = 0; i < n && s.ok; i++) {
        const int fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) continue;
        s.n_entries = 0;
        walk(&s, fd, 0);
        close(fd);
    }
    json_decref(s.wanted);
    if (s.ok) return s.found;
    json_decref(s.found);
    return NULL;
}
