/* SPDX-License-Identifier: Apache-2.0
 *
 * deft cache: what is in the folders and packs of compiled code, whether it is as it was written,
 * removing it, and packing the entries of folders into one file and back.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/replace.h"
#include "base/vec.h"
#include "cache/disk.h"
#include "cache/pack.h"

/* One layer: a folder, or a pack. */
typedef struct entries {
    int folder;    /* when pack is NULL */
    df_pack *pack; /* owned */
    DF_VEC(uint64_t) sizes;
    uint64_t bytes, damaged, removed;
    bool verifies, removes;
} entries;

/* Reads an entry of the layer. */
static df_folder_result read_entry(const entries *e, const char *name, void **file, size_t *n)
{
    return e->pack ? df_pack_read(e->pack, name, file, n)
                   : df_folder_read(&df_mem_system, e->folder, name, true, false, file, n);
}

static bool take_entry(void *user, const char *name, uint64_t bytes)
{
    entries *const e = user;
    void *file = NULL;
    size_t n = 0;
    if (!df_vec_push(&df_mem_system, &e->sizes, bytes)) return false;
    e->bytes += bytes;
    if (e->verifies) {
        const df_folder_result r = read_entry(e, name, &file, &n);
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

/* Calls `each` with the entries of the layer. Returns false when it cannot be read. */
static bool walk_layer(const entries *e, df_folder_each each, void *user)
{
    if (!e->pack) return df_folder_walk(e->folder, each, user);
    for (uint32_t i = 0; i < e->pack->n; i++) {
        char name[DF_PACK_NAME + 1] = "";
        memcpy(name, e->pack->index[i].name, DF_PACK_NAME);
        if (!each(user, name, e->pack->index[i].size)) break;
    }
    return true;
}

/* Opens a layer. Returns false when it is not used, which is printed. */
static bool open_layer(entries *e, const char *path)
{
    char why[DF_FOLDER_WHY];
    bool is_file = false;
    e->folder = df_folder_open_layer(path, false, true, &is_file, why);
    if (e->folder < 0) {
        printf("folder     not used: %s\n", why);
        return false;
    }
    e->pack = is_file ? df_pack_open(&df_mem_system, e->folder) : NULL;
    if (is_file && !e->pack) printf("pack       not used: %s: it is damaged or no pack\n", path);
    return !is_file || e->pack;
}

static void close_layer(entries *e)
{
    if (!e->pack) close(e->folder);
    df_pack_close(&e->pack);
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

/* Works on one layer. */
static int cache_layer(const char *path, entries *e)
{
    if (!open_layer(e, path)) return e->verifies && e->folder >= 0 ? CLI_FAILED : CLI_OK;
    printf("%s %s\n", e->pack ? "pack      " : "folder    ", path);
    if (e->removes && e->pack) {
        close_layer(e);
        return cli_fail(CLI_USAGE, "cache: %s is a pack, of which nothing is removed", path);
    }
    int code = walk_layer(e, take_entry, e) ? CLI_OK
                                            : cli_fail(CLI_INPUT, "cache: %s cannot be read", path);
    print_sizes(e);
    if (e->removes) printf("removed    %llu\n", (unsigned long long)e->removed);
    if (e->verifies) printf("damaged    %llu\n", (unsigned long long)e->damaged);
    if (code == CLI_OK && e->damaged > 0) code = CLI_FAILED;
    close_layer(e);
    return code;
}

/* ---- packing ---- */

typedef struct packed {
    char name[DF_PACK_NAME];
    uint32_t order; /* in which entries were found: of several, the first counts */
    void *file;     /* owned */
    size_t n;
} packed;

typedef struct packing {
    const entries *from;
    DF_VEC(packed) all;
    uint64_t damaged;
} packing;

/* Whether a name can be that of an entry: a hash in hex. */
static bool is_entry_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == DF_PACK_NAME && name[DF_PACK_NAME] == '\0';
}

static bool collect_entry(void *user, const char *name, uint64_t bytes)
{
    packing *const p = user;
    packed one = { .order = (uint32_t)p->all.n };
    (void)bytes;
    if (!is_entry_name(name)) return true;
    if (read_entry(p->from, name, &one.file, &one.n) != DF_FOLDER_OK) return true;
    memcpy(one.name, name, DF_PACK_NAME);
    const bool is_sound = df_disk_is_entry(one.file, one.n);
    p->damaged += !is_sound;
    if (is_sound && df_vec_push(&df_mem_system, &p->all, one)) return true;
    df_mem_free(&df_mem_system, one.file, one.n);
    return !is_sound;
}

static int by_name(const void *a, const void *b)
{
    const packed *const x = a, *const y = b;
    const int names = memcmp(x->name, y->name, DF_PACK_NAME);
    return names ? names : (x->order > y->order) - (x->order < y->order);
}

/* Sorts the entries, and leaves the first of each name. */
static void sort_entries(packing *p)
{
    size_t n = 0;
    qsort(p->all.at, p->all.n, sizeof *p->all.at, by_name);
    for (size_t i = 0; i < p->all.n; i++) {
        packed *const one = &p->all.at[i];
        if (n > 0 && memcmp(p->all.at[n - 1].name, one->name, DF_PACK_NAME) == 0)
            df_mem_free(&df_mem_system, one->file, one->n);
        else
            p->all.at[n++] = *one;
    }
    p->all.n = n;
}

static bool write_bytes(int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = write(fd, (const char *)from + done, n - done);
        if (k > 0)
            done += (size_t)k;
        else if (k == 0 || errno != EINTR)
            return false;
    }
    return true;
}

/* Writes head, index and entries to fd. Returns how many bytes; 0: it failed. */
static uint64_t write_pack(int fd, const packing *p)
{
    const size_t n = p->all.n, index_size = n * sizeof(df_pack_entry);
    df_pack_entry *const index = df_mem_zalloc(&df_mem_system, index_size);
    df_pack_head h = { .magic = DF_PACK_MAGIC, .version = DF_PACK_VERSION, .n = n };
    uint64_t at = sizeof h + index_size;
    if (!index) return 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(index[i].name, p->all.at[i].name, DF_PACK_NAME);
        index[i].at = at;
        index[i].size = p->all.at[i].n;
        at += p->all.at[i].n;
    }
    h.hash = df_hash_bytes(index, index_size);
    bool ok = write_bytes(fd, &h, sizeof h) && write_bytes(fd, index, index_size);
    for (size_t i = 0; i < n && ok; i++) ok = write_bytes(fd, p->all.at[i].file, p->all.at[i].n);
    df_mem_free(&df_mem_system, index, index_size);
    return ok ? at : 0;
}

static int save_pack(const packing *p, const char *path)
{
    df_replace r;
    if (p->all.n == 0) return cli_fail(CLI_INPUT, "cache: there are no entries to pack");
    const bool begun = df_replace_begin(&r, &df_mem_system, path, 0644);
    const uint64_t bytes = begun ? write_pack(r.fd, p) : 0;
    const bool ok = bytes > 0 && df_replace_commit(&r);
    const int error = errno;
    df_replace_finish(&r);
    if (!ok) return cli_fail(CLI_INPUT, "cache: %s: %s", path, strerror(error));
    printf("packed     %zu entries, %llu bytes\n", p->all.n, (unsigned long long)bytes);
    if (p->damaged > 0) printf("damaged    %llu\n", (unsigned long long)p->damaged);
    return CLI_OK;
}

/* Packs the entries of all layers. list: changed. */
static int cache_pack(const char *path, char *list)
{
    packing p = { 0 };
    for (char *at = list; at && *at;) {
        char *const folder = at;
        entries e = { 0 };
        at += strcspn(at, ":");
        if (*at) *at++ = '\0';
        if (!*folder || !open_layer(&e, folder)) continue;
        p.from = &e;
        if (!walk_layer(&e, collect_entry, &p)) printf("folder     cannot be read: %s\n", folder);
        close_layer(&e);
    }
    sort_entries(&p);
    const int code = save_pack(&p, path);
    for (size_t i = 0; i < p.all.n; i++)
        df_mem_free(&df_mem_system, p.all.at[i].file, p.all.at[i].n);
    df_vec_finish(&df_mem_system, &p.all);
    return code;
}

typedef struct unpacking {
    const entries *from;
    int folder;
    uint64_t written, damaged;
    int error; /* of the system, when an entry could not be written */
} unpacking;

static bool unpack_entry(void *user, const char *name, uint64_t bytes)
{
    unpacking *const u = user;
    void *file = NULL;
    size_t n = 0;
    (void)bytes;
    if (!is_entry_name(name) || read_entry(u->from, name, &file, &n) != DF_FOLDER_OK ||
        !df_disk_is_entry(file, n))
        u->damaged++;
    else if (df_folder_write(u->folder, name, file, n, &u->error))
        u->written++, u->error = 0;
    if (file) df_mem_free(&df_mem_system, file, n);
    return u->error == 0;
}

/* Writes the entries of a pack to the first folder of the list, which is changed. */
static int cache_unpack(const char *path, char *list)
{
    char why[DF_FOLDER_WHY];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cli_fail(CLI_INPUT, "cache: %s: %s", path, strerror(errno));
    entries e = { .pack = df_pack_open(&df_mem_system, fd) };
    if (!e.pack) return cli_fail(CLI_INPUT, "cache: %s is damaged or no pack", path);
    if (list) list[strcspn(list, ":")] = '\0';
    unpacking u = { .from = &e, .folder = -1 };
    int code = CLI_OK;
    if (!list || !*list)
        code = cli_fail(CLI_USAGE, "cache: there is no folder to unpack to");
    else if ((u.folder = df_folder_open(list, true, false, why)) < 0)
        code = cli_fail(CLI_INPUT, "cache: %s", why);
    else
        (void)walk_layer(&e, unpack_entry, &u);
    close_layer(&e);
    if (u.folder < 0) return code;
    close(u.folder);
    printf("unpacked   %llu entries\ndamaged    %llu\n", (unsigned long long)u.written,
           (unsigned long long)u.damaged);
    if (u.error) return cli_fail(CLI_INPUT, "cache: %s: %s", list, strerror(u.error));
    return u.damaged > 0 ? CLI_FAILED : CLI_OK;
}

/* ---- the command ---- */

int cli_cache(int argc, char **argv)
{
    const char *dir = NULL, *const what = argc > 1 ? argv[1] : "";
    const bool verifies = strcmp(what, "verify") == 0, removes = strcmp(what, "clear") == 0;
    const bool packs = strcmp(what, "pack") == 0, unpacks = strcmp(what, "unpack") == 0;
    const char *const file = (packs || unpacks) && argc > 2 ? argv[2] : NULL;
    if (!verifies && !removes && !packs && !unpacks && strcmp(what, "stat") != 0)
        return cli_fail(CLI_USAGE, "cache: '%s' is none of stat, verify, clear, pack, unpack",
                        what);
    if ((packs || unpacks) && (!file || file[0] == '-'))
        return cli_fail(CLI_USAGE, "cache %s: a file is missing", what);
    for (int i = file ? 3 : 2; i < argc; i++)
        if (!cli_value(argv[i], "--dir", &dir))
            return cli_fail(CLI_USAGE, "cache: unknown argument %s", argv[i]);
    df_str list;
    df_str_init(&list, &df_mem_system);
    df_disk_list(dir, &list);
    if (list.n == 0) printf("folder     none: no code is kept\n");
    int code = CLI_OK;
    if (file) code = packs ? cache_pack(file, list.at) : cache_unpack(file, list.at);
    for (char *at = file ? NULL : list.at; at && *at;) {
        char *const path = at;
        entries e = { .verifies = verifies, .removes = removes };
        at += strcspn(at, ":");
        if (*at) *at++ = '\0';
        const int one = *path ? cache_layer(path, &e) : CLI_OK;
        if (code == CLI_OK) code = one;
        df_vec_finish(&df_mem_system, &e.sizes);
        if (removes) break; /* the first folder alone is the user's to write to */
    }
    df_str_finish(&list);
    return code;
}
