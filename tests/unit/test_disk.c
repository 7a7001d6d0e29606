/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache in folders: what is found again, damage of every kind, folders that others could write
 * to, layers, packs, a disk that is full, a home that is read-only, processes with raised rights,
 * sweeping, many processes at once, and processes that are killed.
 *
 * Why this file is long: its cases share the helpers for folders, entries and processes.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "cache/disk.h"
#include "cache/folder.h"
#include "cache/pack.h"
#include "support/budget.h"
#include "support/fail_mem.h"

/* ---- folders ---- */

static char base[64]; /* a new folder for each test; each runs in a process of its own */

static void make_base(void)
{
    snprintf(base, sizeof base, "/tmp/deft-disk-XXXXXX");
    cr_assert(mkdtemp(base));
}

static void remove_base(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    cr_expect(system(command) == 0);
}

TestSuite(disk, .init = make_base, .fini = remove_base);

static const char *in_base(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", base, name);
    return path;
}

/* ---- one cache ---- */

static char lines[4096]; /* of the log */
static int n_lines;

static void keep_line(void *user, const char *topic, const char *line)
{
    (void)user;
    n_lines++;
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s: %s\n", topic, line);
}

static df_disk *open_with(const char *folders, uint64_t max_bytes)
{
    static df_log log;
    df_log_init(&log, "cache", keep_line, NULL);
    const df_disk_options o = { .folders = folders, .max_bytes = max_bytes };
    return df_disk_open(&df_mem_system, &log, &o);
}

static df_disk *open_at(const char *folders)
{
    df_disk *const k = open_with(folders, 0);
    cr_assert(k, "%s", lines);
    return k;
}

static void add(df_disk *k, const char *key, const char *value)
{
    df_disk_add(k, key, strlen(key), value, strlen(value) + 1);
}

/* The value of the key, which lives until the next call; NULL: not found. */
static const char *find(df_disk *k, const char *key)
{
    static char text[4096];
    void *value = NULL;
    size_t n = 0;
    if (!df_disk_find(k, key, strlen(key), &value, &n)) return NULL;
    cr_assert_leq(n, sizeof text);
    memcpy(text, value, n);
    df_mem_free(&df_mem_system, value, n);
    return text;
}

#define EXPECT_FOUND(k, key, want)                                                                 \
    do {                                                                                           \
        const char *const found = find(k, key);                                                    \
        cr_assert(found, "%s was not found", key);                                                 \
        cr_assert_str_eq(found, want);                                                             \
    } while (0)

/* ---- files ---- */

static bool take_name(void *user, const char *name, uint64_t bytes)
{
    (void)bytes;
    snprintf(user, 64, "%s", name);
    return true;
}

/* The path of the one entry in the folder. */
static const char *entry_path(const char *folder)
{
    static char path[512];
    char name[64] = "", why[DF_FOLDER_WHY];
    const int fd = df_folder_open(folder, false, false, why);
    cr_assert_geq(fd, 0, "%s", why);
    cr_assert(df_folder_walk(fd, take_name, name));
    close(fd);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t read_file(const char *path, char *to, size_t size)
{
    FILE *const f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    const size_t n = fread(to, 1, size, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *from, size_t n)
{
    FILE *const f = fopen(path, "wb");
    cr_assert(f, "%s", path);
    cr_assert_eq(fwrite(from, 1, n, f), n);
    fclose(f);
}

static void set_age(const char *path, time_t seconds)
{
    const struct timespec t = { .tv_sec = time(NULL) - seconds };
    const struct timespec both[2] = { t, t };
    cr_assert_eq(utimensat(AT_FDCWD, path, both, 0), 0);
}

/* ---- finding ---- */

Test(disk, an_entry_is_found_by_another_process_and_replaced)
{
    df_disk *k = open_at(in_base("a/b"));
    cr_assert_null(find(k, "one"));
    add(k, "one", "first");
    add(k, "two", "");
    EXPECT_FOUND(k, "one", "first");
    df_disk_close(&k);
    k = open_at(in_base("a/b"));
    EXPECT_FOUND(k, "one", "first");
    EXPECT_FOUND(k, "two", "");
    add(k, "one", "second");
    EXPECT_FOUND(k, "one", "second");
    const df_disk_stats s = df_disk_stats_get(k);
    cr_assert(s.hits == 3 && s.misses == 0 && s.added == 1 && s.damaged == 0);
    df_disk_close(&k);
    cr_assert_null(k);
}

Test(disk, a_hit_needs_equal_keys_and_not_equal_names_of_files)
{
    char path[512], other[512];
    df_disk *k = open_at(in_base("a"));
    add(k, "one", "value of one");
    snprintf(path, sizeof path, "%s", entry_path(in_base("a")));
    add(k, "two", "value of two");
    cr_assert_eq(unlink(path), 0);
    snprintf(other, sizeof other, "%s", entry_path(in_base("a")));
    cr_assert_eq(rename(other, path), 0); /* as if both keys had one hash */
    cr_assert_null(find(k, "one"));
    cr_assert_eq(df_disk_stats_get(k).damaged, 0);
    df_disk_close(&k);
}

enum { LONGEST_KEY = 17, N_ZERO_KEYS = (LONGEST_KEY + 1) * (LONGEST_KEY + 2) / 2 };

typedef struct zero_key {
    char bytes[LONGEST_KEY + 1]; /* zeros, and a 1 at one place or at none */
    size_t n, n_file;
    char path[512], file[256]; /* of its entry */
} zero_key;

static bool finds(df_disk *k, const zero_key *key)
{
    void *value = NULL;
    size_t n = 0;
    if (!df_disk_find(k, key->bytes, key->n, &value, &n)) return false;
    df_mem_free(&df_mem_system, value, n);
    return true;
}

/* The file of each key gets the contents of each other one, as if all had one hash. */
Test(disk, keys_that_are_mostly_zeros_are_told_apart)
{
    static zero_key keys[N_ZERO_KEYS];
    size_t n_keys = 0;
    df_disk *k = open_at(in_base("a"));
    for (size_t n = 0; n <= LONGEST_KEY; n++)
        for (size_t at = 0; at <= n; at++) {
            zero_key *const z = &keys[n_keys++];
            z->n = n;
            if (at < n) z->bytes[at] = 1;
            df_disk_add(k, z->bytes, n, "v", 2);
            snprintf(z->path, sizeof z->path, "%s", entry_path(in_base("a")));
            z->n_file = read_file(z->path, z->file, sizeof z->file);
            cr_assert_eq(unlink(z->path), 0);
        }
    cr_assert_eq(n_keys, N_ZERO_KEYS);
    for (size_t a = 0; a < n_keys; a++)
        for (size_t b = 0; b < n_keys; b++) {
            write_file(keys[a].path, keys[b].file, keys[b].n_file);
            cr_assert_eq(finds(k, &keys[a]), a == b, "%zu and %zu", a, b);
        }
    cr_assert_eq(df_disk_stats_get(k).damaged, 0);
    df_disk_close(&k);
}

Test(disk, an_entry_of_the_version_before_is_whole_and_not_found)
{
    enum { HASH_AT = 8, HASHED_AT = 24 };
    char whole[1024], path[512];
    df_disk *k = open_at(in_base("a"));
    add(k, "key", "value");
    snprintf(path, sizeof path, "%s", entry_path(in_base("a")));
    const size_t n = read_file(path, whole, sizeof whole);
    for (uint64_t version = 0; version < 4; version++) {
        memcpy(whole + HASHED_AT, &version, sizeof version);
        const df_hash h = df_hash_bytes(whole + HASHED_AT, n - HASHED_AT);
        memcpy(whole + HASH_AT, &h, sizeof h);
        write_file(path, whole, n);
        cr_expect_eq(df_disk_is_entry(whole, n), version == 1 || version == 2);
        cr_expect_eq(find(k, "key") != NULL, version == 2);
    }
    cr_expect_eq(df_disk_stats_get(k).damaged, 2);
    df_disk_close(&k);
}

/* ---- damage ---- */

Test(disk, no_flipped_bit_and_no_truncation_is_taken_for_an_entry)
{
    char whole[1024], path[512];
    df_disk *k = open_at(in_base("a"));
    add(k, "the key of the entry", "the value of the entry");
    snprintf(path, sizeof path, "%s", entry_path(in_base("a")));
    const size_t n = read_file(path, whole, sizeof whole);
    cr_assert_gt(n, 40);
    uint64_t damaged = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        char copy[sizeof whole];
        memcpy(copy, whole, n);
        copy[bit / 8] = (char)(copy[bit / 8] ^ (1 << bit % 8));
        write_file(path, copy, n);
        cr_assert_null(find(k, "the key of the entry"), "bit %zu", bit);
        cr_assert_eq(df_disk_stats_get(k).damaged, ++damaged);
    }
    for (size_t left = 0; left < n; left++) {
        write_file(path, whole, left);
        cr_assert_null(find(k, "the key of the entry"), "%zu bytes", left);
    }
    write_file(path, whole, n);
    EXPECT_FOUND(k, "the key of the entry", "the value of the entry");
    cr_assert_eq(n_lines, 1, "%s", lines);
    cr_assert(strstr(lines, "damaged"), "%s", lines);
    add(k, "the key of the entry", "new"); /* a damaged entry is replaced */
    EXPECT_FOUND(k, "the key of the entry", "new");
    df_disk_close(&k);
}

Test(disk, only_plain_files_of_the_user_are_read)
{
    char whole[1024], path[512], other[512];
    df_disk *k = open_at(in_base("a"));
    add(k, "key", "value");
    snprintf(path, sizeof path, "%s", entry_path(in_base("a")));
    const size_t n = read_file(path, whole, sizeof whole);
    snprintf(other, sizeof other, "%s", in_base("elsewhere"));
    write_file(other, whole, n);

    cr_assert(unlink(path) == 0 && symlink(other, path) == 0);
    cr_assert_null(find(k, "key"), "through a symbolic link");
    cr_assert(unlink(path) == 0 && link(other, path) == 0);
    cr_assert_null(find(k, "key"), "a file with two names");
    cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    cr_assert_null(find(k, "key"), "a pipe");
    cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
    cr_assert_null(find(k, "key"), "a folder");
    cr_assert_eq(rmdir(path), 0);
    write_file(path, whole, n);
    EXPECT_FOUND(k, "key", "value");
    df_disk_close(&k);
}

/* ---- folders that are not used ---- */

/* The folder is refused with a reason that has `part` in it. */
static void expect_refused(const char *folder, const char *part)
{
    lines[0] = '\0';
    cr_assert_null(open_with(folder, 0), "%s", folder);
    cr_assert(strstr(lines, part), "wanted '%s' in: %s", part, lines);
}

Test(disk, folders_that_others_can_write_to_are_refused)
{
    char path[512];
    cr_assert_eq(mkdir(in_base("group"), 0700), 0);
    cr_assert_eq(chmod(in_base("group"), 0770), 0);
    expect_refused(in_base("group"), "other users may write to it");

    cr_assert_eq(mkdir(in_base("all"), 0700), 0);
    cr_assert_eq(chmod(in_base("all"), 0777), 0);
    expect_refused(in_base("all/deft"), "another user could change a folder above it");
    cr_assert_eq(chmod(in_base("all"), 01777), 0); /* sticky, as /tmp is */
    df_disk *k = open_at(in_base("all/deft"));
    df_disk_close(&k);

    /* A link in a folder where not root alone may write. */
    cr_assert_eq(mkdir(in_base("links"), 0700), 0);
    cr_assert_eq(chmod(in_base("links"), 0770), 0);
    snprintf(path, sizeof path, "%s", in_base("all/deft"));
    cr_assert_eq(symlink(path, in_base("links/deft")), 0);
    cr_assert_null(open_with(in_base("links/deft"), 0));
    expect_refused("relative/path", "not absolute");
    cr_assert_null(open_with("", 0));
    cr_assert_eq(mkdir(in_base("file"), 0700), 0);
    write_file(in_base("file/deft"), "", 0);
    cr_assert_null(open_with(in_base("file/deft"), 0));
}

Test(disk, the_first_folder_is_written_and_the_others_are_read)
{
    char list[512];
    df_disk *k = open_at(in_base("system"));
    add(k, "shared", "of the system");
    add(k, "both", "of the system");
    df_disk_close(&k);
    snprintf(list, sizeof list, "%s/user:%s/none::%s/system", base, base, base);
    k = open_at(list);
    EXPECT_FOUND(k, "shared", "of the system");
    add(k, "both", "of the user");
    EXPECT_FOUND(k, "both", "of the user");
    df_disk_close(&k);
    k = open_at(in_base("system"));
    EXPECT_FOUND(k, "both", "of the system");
    df_disk_close(&k);
    /* When the first one cannot be used, nothing is written anywhere. */
    cr_assert_eq(chmod(in_base("user"), 0777), 0);
    k = open_at(list);
    add(k, "new", "value");
    cr_assert_null(find(k, "new"));
    EXPECT_FOUND(k, "both", "of the system");
    df_disk_close(&k);
}

Test(disk, the_folder_follows_the_environment)
{
    char path[512];
    unsetenv("DEFT_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", in_base("home"), 1);
    df_disk *k = open_at(NULL);
    df_disk_close(&k);
    cr_assert_eq(access(in_base("home/.cache/deft"), R_OK), 0);
    setenv("XDG_CACHE_HOME", "relative", 1); /* as if it was not set */
    k = open_at(NULL);
    df_disk_close(&k);
    snprintf(path, sizeof path, "%s", in_base("caches"));
    setenv("XDG_CACHE_HOME", path, 1);
    k = open_at(NULL);
    df_disk_close(&k);
    cr_assert_eq(access(in_base("caches/deft"), R_OK), 0);
    setenv("DEFT_CACHE_DIR", "", 1);
    cr_assert_null(open_with(NULL, 0));
    cr_assert_eq(n_lines, 0, "%s", lines);
}

/* ---- packs ---- */

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, DF_PACK_NAME);
}

typedef struct pack_being_made {
    df_pack_entry index[16];
    char bytes[4096];
    size_t n, used;
    const char *folder;
} pack_being_made;

static bool add_to_pack(void *user, const char *name, uint64_t bytes)
{
    pack_being_made *const p = user;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    df_pack_entry *const e = &p->index[p->n++];
    memcpy(e->name, name, DF_PACK_NAME);
    e->at = p->used;
    e->size = read_file(path, p->bytes + p->used, sizeof p->bytes - p->used);
    cr_assert_eq(e->size, bytes);
    p->used += bytes;
    return true;
}

/* Packs the folder as `deft cache pack` does. Returns the bytes of the pack. */
static size_t make_pack(const char *folder, const char *path, char *file, size_t size)
{
    pack_being_made p = { .folder = folder };
    char why[DF_FOLDER_WHY];
    const int fd = df_folder_open(folder, false, false, why);
    cr_assert(fd >= 0 && df_folder_walk(fd, add_to_pack, &p), "%s", why);
    close(fd);
    const size_t index_size = p.n * sizeof *p.index, begin = sizeof(df_pack_head) + index_size;
    for (size_t i = 0; i < p.n; i++) p.index[i].at += begin;
    qsort(p.index, p.n, sizeof *p.index, compare_names);
    const df_pack_head h = { .magic = DF_PACK_MAGIC,
                             .version = DF_PACK_VERSION,
                             .n = p.n,
                             .hash = df_hash_bytes(p.index, index_size) };
    cr_assert_leq(begin + p.used, size);
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, p.index, index_size);
    memcpy(file + begin, p.bytes, p.used);
    write_file(path, file, begin + p.used);
    return begin + p.used;
}

Test(disk, a_pack_is_a_layer_that_is_only_read)
{
    char list[512], path[256], file[8192];
    df_disk *k = open_at(in_base("a"));
    add(k, "first", "of the pack");
    add(k, "second", "of the pack");
    add(k, "third", "of the pack");
    df_disk_close(&k);
    snprintf(path, sizeof path, "%s/a.pack", base);
    snprintf(list, sizeof list, "%s/user:%s", base, path);
    const size_t n = make_pack(in_base("a"), path, file, sizeof file);
    for (int packs_first = 0; packs_first < 2; packs_first++) {
        k = open_at(packs_first ? path : list);
        EXPECT_FOUND(k, "first", "of the pack");
        EXPECT_FOUND(k, "second", "of the pack");
        EXPECT_FOUND(k, "third", "of the pack");
        cr_assert_null(find(k, "fourth"));
        add(k, "fourth", "of the user");
        cr_assert_eq(find(k, "fourth") != NULL, !packs_first);
        df_disk_close(&k);
    }
    cr_assert_eq(n_lines, 0, "%s", lines);
    cr_assert_eq(chmod(path, 0666), 0);
    expect_refused(path, "other users may write to it");
    cr_assert_eq(chmod(path, 0600), 0);
    snprintf(list, sizeof list, "%s/a.pack/deft", base);
    cr_assert_null(open_with(list, 0), "a file is no folder");

    /* Whatever is damaged, no wrong value is found, and nothing of a damaged index. */
    const size_t index_end = sizeof(df_pack_head) + 3 * sizeof(df_pack_entry);
    for (size_t at = 0; at < 2 * n; at++) {
        const bool flips = at < n;
        if (flips) file[at] = (char)(file[at] ^ 0x20);
        write_file(path, file, flips ? n : at - n);
        k = open_with(path, 0);
        cr_assert_eq(k != NULL, at % n >= index_end, "byte %zu", at);
        const char *const keys[] = { "first", "second", "third" };
        int found = 0;
        for (int i = 0; i < 3 && k; i++) {
            const char *const value = find(k, keys[i]);
            found += value != NULL;
            if (value) cr_assert_str_eq(value, "of the pack", "byte %zu", at);
        }
        cr_assert_leq(found, 2, "byte %zu", at);
        df_disk_close(&k);
        if (flips) file[at] = (char)(file[at] ^ 0x20);
    }
    char why[DF_FOLDER_WHY];
    bool is_file = false;
    for (size_t fails = 1; fails < 4; fails++) {
        write_file(path, file, n);
        fail_mem *f = fail_mem_create();
        fail_mem_at(f, fails, false);
        const int fd = df_folder_open_layer(path, false, false, &is_file, why);
        cr_assert(fd >= 0 && is_file);
        df_pack *p = df_pack_open(fail_mem_get(f), fd);
        char name[DF_PACK_NAME];
        void *bytes = NULL;
        size_t size = 0;
        cr_assert_eq(p != NULL, fails > 2);
        if (p) {
            memcpy(name, p->index[0].name, sizeof name);
            cr_assert_neq(df_pack_read(p, name, &bytes, &size), DF_FOLDER_OK);
        }
        df_pack_close(&p);
        const fail_mem_counts c = fail_mem_count(f);
        cr_assert(c.live_blocks == 0 && c.faults == 0, "%s", fail_mem_fault(f));
        fail_mem_destroy(&f);
    }
}

/* ---- writing fails ---- */

/* Goes on as a user whom the system does not let write everywhere. */
static void be_no_root(void)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0) return;
    cr_assert(chown(base, NOBODY, NOBODY) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

Test(disk, a_home_that_is_read_only_keeps_nothing_and_is_read)
{
    be_no_root();
    unsetenv("DEFT_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", in_base("home"), 1);
    cr_assert_eq(mkdir(in_base("home"), 0500), 0);
    lines[0] = '\0';
    cr_assert_null(open_with(NULL, 0), "below a folder without the right to write");
    cr_assert(strstr(lines, "no code is kept in") && strstr(lines, "Permission denied"), "%s",
              lines);
    cr_assert_eq(n_lines, 1);
    cr_assert_eq(chmod(in_base("home"), 0700), 0);
    df_disk *k = open_at(NULL);
    add(k, "before", "value");
    df_disk_close(&k);
    cr_assert_eq(chmod(in_base("home/.cache/deft"), 0500), 0);
    k = open_at(NULL);
    for (int i = 0; i < 3; i++) add(k, "after", "value");
    cr_assert_null(find(k, "after"));
    EXPECT_FOUND(k, "before", "value");
    cr_assert_eq(n_lines, 2, "%s", lines);
    cr_assert(strstr(lines, "no more code is kept"), "%s", lines);
    df_disk_close(&k);
    cr_assert_eq(chmod(in_base("home/.cache/deft"), 0700), 0);
}

/* A copy of secure.c with the owner's rights, of another owner than root. */
Test(disk, a_process_with_raised_rights_keeps_nothing)
{
    enum { NOBODY = 65534 };
    char command[512], program[256], answer[64] = "";
    if (geteuid() != 0) cr_skip("only root can make such a program");
#if defined(__SANITIZE_ADDRESS__)
    cr_skip("a checker of addresses looks for leaks in the end, which needs usual rights");
#endif
    snprintf(program, sizeof program, "%s/secure", base);
    snprintf(command, sizeof command, "cp '%s' '%s'", SECURE_PROGRAM, program);
    cr_assert_eq(system(command), 0);
    cr_assert(chown(base, NOBODY, NOBODY) == 0 && chmod(base, 0755) == 0);
    for (int raised = 0; raised < 2; raised++) {
        cr_assert(chown(program, raised ? NOBODY : 0, 0) == 0 &&
                  chmod(program, raised ? 04755 : 0755) == 0);
        snprintf(command, sizeof command, "'%s' '%s/kept%d'", program, base, raised);
        if (!raised) cr_assert_eq(chown(base, 0, 0), 0);
        FILE *const f = popen(command, "r");
        cr_assert(f && fgets(answer, sizeof answer, f));
        cr_assert_eq(pclose(f), 0);
        if (raised && strncmp(answer, "usual", 5) == 0) cr_skip("the system ignores such rights");
        cr_assert_str_eq(answer, raised ? "raised, none\n" : "usual, open\n");
        cr_assert_eq(chown(base, NOBODY, NOBODY), 0);
    }
}

Test(disk, after_a_failure_nothing_is_written_and_all_is_still_read)
{
    static char large[65536];
    struct rlimit limit;
    df_disk *k = open_at(in_base("a"));
    add(k, "before", "value");
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 4096; /* a file that grows beyond gets an error, as on a full disk */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    df_disk_add(k, "large", 5, large, sizeof large);
    add(k, "after", "value");
    cr_assert_null(find(k, "large"));
    cr_assert_null(find(k, "after"));
    EXPECT_FOUND(k, "before", "value");
    cr_assert_eq(n_lines, 1, "%s", lines);
    cr_assert(strstr(lines, "no more code is kept"), "%s", lines);
    df_disk_close(&k);
    char command[256];
    snprintf(command, sizeof command, "ls -A '%s' | grep -q '^[.]new'", in_base("a"));
    cr_assert_neq(system(command), 0, "an unfinished file was left");
}

Test(disk, without_memory_nothing_is_found_or_written_and_nothing_leaks)
{
    for (size_t n = 1; n < 40; n++) {
        fail_mem *f = fail_mem_create();
        fail_mem_at(f, n, false);
        const df_disk_options o = { .folders = in_base("a") };
        df_disk *k = df_disk_open(fail_mem_get(f), NULL, &o);
        if (k) {
            void *value = NULL;
            size_t size = 0;
            df_disk_add(k, "key", 3, "value", 6);
            if (df_disk_find(k, "key", 3, &value, &size)) {
                cr_assert_str_eq(value, "value");
                df_mem_free(fail_mem_get(f), value, size);
            }
        }
        df_disk_close(&k);
        const fail_mem_counts c = fail_mem_count(f);
        cr_assert(c.live_blocks == 0 && c.faults == 0, "%s", fail_mem_fault(f));
        fail_mem_destroy(&f);
    }
}

/* ---- sweeping ---- */

Test(disk, sweeping_removes_what_was_not_used_for_longest)
{
    static char kilobyte[1024];
    char key[16], why[DF_FOLDER_WHY], path[512];
    df_disk *k = open_at(in_base("a"));
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        df_disk_add(k, key, strlen(key), kilobyte, sizeof kilobyte);
    }
    df_disk_close(&k);
    /* Entry i was last used i hours ago: ages by name are found by looking each one up. */
    const int fd = df_folder_open(in_base("a"), false, false, why);
    cr_assert_geq(fd, 0);
    k = open_at(in_base("a"));
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        const df_hash h = df_hash_bytes(key, strlen(key));
        snprintf(path, sizeof path, "%s/a/%016llx%016llx", base, (unsigned long long)h.hi,
                 (unsigned long long)h.lo);
        set_age(path, 3600 * i);
    }
    write_file(in_base("a/.new-1-1-1"), "x", 1);
    write_file(in_base("a/.new-2-2-2"), "x", 1);
    set_age(in_base("a/.new-1-1-1"), 7200);
    const df_folder_limits limits = { .max_bytes = 20 * 1024, .max_days = 60 };
    const uint64_t removed = df_folder_sweep(&df_mem_system, fd, &limits);
    cr_assert(removed > 20 && removed < 30, "%llu", (unsigned long long)removed);
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        cr_assert_eq(find(k, key) != NULL, i < 41 - (int)removed, "entry %d of %llu removed", i,
                     (unsigned long long)removed);
    }
    cr_assert_neq(access(in_base("a/.new-1-1-1"), F_OK), 0);
    cr_assert_eq(access(in_base("a/.new-2-2-2"), F_OK), 0);
    cr_assert(df_folder_is_swept(fd));
    const df_folder_limits old = { .max_bytes = UINT64_MAX, .max_days = 0 };
    cr_assert_gt(df_folder_sweep(&df_mem_system, fd, &old), 0);
    close(fd);
    df_disk_close(&k);
}

Test(disk, a_process_that_writes_much_sweeps)
{
    static char kilobyte[1024];
    char key[16];
    df_disk *k = open_with(in_base("a"), 64 * 1024);
    cr_assert(k);
    for (int i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "%d", i);
        df_disk_add(k, key, strlen(key), kilobyte, sizeof kilobyte);
    }
    const df_disk_stats s = df_disk_stats_get(k);
    cr_assert_geq(s.removed, 300, "%llu", (unsigned long long)s.removed);
    df_disk_close(&k);
}

/* ---- processes ---- */

enum { N_KEYS = 24 };

static void value_of(int key, char *text, size_t size)
{
    int n = 0;
    for (int i = 0; i < 40 + key; i++) n += snprintf(text + n, size - (size_t)n, "%d,", key * i);
}

/* Reads and writes entries for ever, or n times. Returns the number of wrong values. */
static int work(uint32_t seed, int n)
{
    df_disk *k = open_at(in_base("a"));
    char key[16], want[4096];
    int wrong = 0;
    for (int i = 0; n == 0 || i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const int number = (int)(seed >> 16) % N_KEYS;
        snprintf(key, sizeof key, "%d", number);
        value_of(number, want, sizeof want);
        const char *const found = find(k, key);
        wrong += found && strcmp(found, want) != 0;
        if (!found || i % 3 == 0) add(k, key, want);
    }
    wrong += df_disk_stats_get(k).damaged > 0;
    df_disk_close(&k);
    return wrong;
}

Test(disk, many_processes_may_use_one_folder)
{
    enum { N = 64 };
    pid_t child[N];
    for (int i = 0; i < N; i++) {
        child[i] = fork();
        if (child[i] == 0) _exit(work((uint32_t)i, 60) != 0);
    }
    for (int i = 0; i < N; i++) {
        int status;
        cr_assert_eq(waitpid(child[i], &status, 0), child[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d", i);
    }
}

Test(disk, a_process_may_be_killed_anywhere)
{
    int n = 0;
    for (; n < 1000 && (n < 200 || test_time_left(0.5)); n++) {
        const pid_t child = fork();
        if (child == 0) _exit(work((uint32_t)n, 0));
        const struct timespec t = { .tv_nsec = 200000 + 37000 * (n % 50) };
        nanosleep(&t, NULL);
        cr_assert_eq(kill(child, SIGKILL), 0);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        if (n % 50 == 49) cr_assert_eq(work((uint32_t)n, 100), 0, "after %d", n);
    }
    cr_assert_eq(work(1, 500), 0);
    printf("%d processes were killed\n", n);
}
