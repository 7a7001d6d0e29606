/* SPDX-License-Identifier: Apache-2.0
 *
 * deft cache: what is in the folder of compiled code, whether it is as it was written, and removing
 * it.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "cache/disk.h"
#include "cache/folder.h"

typedef struct entries {
    int folder;
    DF_VEC(uint64_t) sizes;
    uint64_t bytes, damaged, removed;
    bool verifies, removes;
} entries;

static bool take_entry(void *user, const char *name, uint64_t bytes)
{
    entries *const e = user;
    void *file = NULL;
    size_t n = 0;
    if (!df_vec_push(&df_mem_system, &e->sizes, bytes)) return false;
    e->bytes += bytes;
    if (e->verifies) {
        const df_folder_result r =
            df_folder_read(&df_mem_system, e->folder, name, true, false, &file, &n);
        const bool is_sound = r == DF_FOLDER_OK && df_disk_is_entry(file, n);
        if (!is_sound && r != DF_FOLDER_MISSING) {
            printf("damaged    %s\n", name);
            e->damaged++;
        }
        if (file) df_mem_free(&df_mem_system, file, n);
    }
    if (e->removes) e->removed += unlinkat(e->folder, name, 0) == 0;
    return true;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_sizes(entries *e)
{
    qsort(e->sizes.at, e->sizes.n, sizeof *e->sizes.at, by_size);
    printf("entries    %zu, %llu bytes in all", e->sizes.n, (unsigned long long)e->bytes);
    if (e->sizes.n > 0)
        printf(", median %llu, largest %llu", (unsigned long long)e->sizes.at[e->sizes.n / 2],
               (unsigned long long)e->sizes.at[e->sizes.n - 1]);
    printf("\n");
}

/* Works on one folder. */
static int cache_folder(const char *path, entries *e)
{
    char why[DF_FOLDER_WHY];
    e->folder = df_folder_open(path, false, true, why);
    if (e->folder < 0) {
        printf("folder     not used: %s\n", why);
        return CLI_OK;
    }
    printf("folder     %s\n", path);
    int code = df_folder_walk(e->folder, take_entry, e)
                   ? CLI_OK
                   : cli_fail(CLI_INPUT, "cache: %s cannot be read", path);
    print_sizes(e);
    if (e->removes) printf("removed    %llu\n", (unsigned long long)e->removed);
    if (e->verifies) printf("damaged    %llu\n", (unsigned long long)e->damaged);
    if (code == CLI_OK && e->damaged > 0) code = CLI_FAILED;
    close(e->folder);
    return code;
}

int cli_cache(int argc, char **argv)
{
    const char *dir = NULL, *const what = argc > 1 ? argv[1] : "";
    const bool verifies = strcmp(what, "verify") == 0, removes = strcmp(what, "clear") == 0;
    if (!verifies && !removes && strcmp(what, "stat") != 0)
        return cli_fail(CLI_USAGE, "cache: '%s' is none of stat, verify, clear", what);
    for (int i = 2; i < argc; i++)
        if (!cli_value(argv[i], "--dir", &dir))
            return cli_fail(CLI_USAGE, "cache: unknown argument %s", argv[i]);
    df_str list;
    df_str_init(&list, &df_mem_system);
    df_disk_list(dir, &list);
    if (list.n == 0) printf("folder     none: no code is kept\n");
    int code = CLI_OK;
    for (char *at = list.at; at && *at;) {
        char *const path = at;
        entries e = { .verifies = verifies, .removes = removes };
        at += strcspn(at, ":");
        if (*at) *at++ = '\0';
        const int one = *path ? cache_folder(path, &e) : CLI_OK;
        if (code == CLI_OK) code = one;
        df_vec_finish(&df_mem_system, &e.sizes);
        if (removes) break; /* the first folder alone is the user's to write to */
    }
    df_str_finish(&list);
    return code;
}
