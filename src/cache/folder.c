/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of folder.h, for POSIX. Everything is done relative to descriptors, so a folder that is
 * renamed meanwhile cannot lead elsewhere.
 */
#include "cache/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/vec.h"

#define NEW_FILE ".new-" /* begins the names of files that are being written */
#define SWEPT ".swept"   /* its time is that of the last sweep */
enum { DAY_S = 86400, HOUR_S = 3600 };

/* ---- trust ---- */

static bool is_root_or_user(const struct stat *s)
{
    return s->st_uid == 0 || s->st_uid == geteuid();
}

/* Whether a folder above can be trusted. */
static bool is_safe_parent(const struct stat *s)
{
    return is_root_or_user(s) && (!(s->st_mode & S_IWOTH) || (s->st_mode & S_ISVTX));
}

/* Whether only root can make names in the folder. */
static bool is_of_root(const struct stat *s)
{
    return s->st_uid == 0 && !(s->st_mode & (S_IWGRP | S_IWOTH));
}

static int refuse_folder(int fd, char why[DF_FOLDER_WHY], const char *path, const char *reason)
{
    if (fd >= 0) close(fd);
    (void)snprintf(why, DF_FOLDER_WHY, "%.200s: %s", path, reason);
    return -1;
}

/* Opens `name` in the folder `parent`, creating it if that is wanted. With `file`, it may be a
 * plain file. */
static int enter(int parent, const struct stat *above, const char *name, bool create, bool file)
{
    struct stat s;
    if (create && mkdirat(parent, name, 0700) != 0 && errno != EEXIST) return -1;
    if (fstatat(parent, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    if (file && S_ISREG(s.st_mode)) return openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const int follow = S_ISLNK(s.st_mode) && is_of_root(above) ? 0 : O_NOFOLLOW;
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
}

/* is_file: NULL when a file is not wanted. */
static int open_path(const char *path, bool create, bool shared, bool *is_file,
                     char why[DF_FOLDER_WHY])
{
    char name[NAME_MAX + 1];
    struct stat s;
    if (path[0] != '/') return refuse_folder(-1, why, path, "the path is not absolute");
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *at = path; fd >= 0;) {
        if (fstat(fd, &s) != 0) return refuse_folder(fd, why, path, strerror(errno));
        at += strspn(at, "/");
        if (*at == '\0') break;
        if (!is_safe_parent(&s))
            return refuse_folder(fd, why, path, "another user could change a folder above it");
        const size_t n = strcspn(at, "/");
        if (n >= sizeof name) return refuse_folder(fd, why, path, strerror(ENAMETOOLONG));
        memcpy(name, at, n);
        name[n] = '\0';
        at += n;
        const bool is_last = at[strspn(at, "/")] == '\0';
        const int next = enter(fd, &s, name, create, is_last && is_file);
        const int error = errno;
        close(fd);
        errno = error;
        fd = next;
    }
    if (fd < 0) return refuse_folder(-1, why, path, strerror(errno));
    if (s.st_uid != geteuid() && !(shared && s.st_uid == 0))
        return refuse_folder(fd, why, path, "it belongs to another user");
    if (s.st_mode & (S_IWGRP | S_IWOTH))
        return refuse_folder(fd, why, path, "other users may write to it");
    if (is_file) *is_file = S_ISREG(s.st_mode);
    return fd;
}

int df_folder_open(const char *path, bool create, bool shared, char why[DF_FOLDER_WHY])
{
    return open_path(path, create, shared, NULL, why);
}

int df_folder_open_layer(const char *path, bool create, bool shared, bool *is_file,
                         char why[DF_FOLDER_WHY])
{
    return open_path(path, create, shared, is_file, why);
}

/* ---- files ---- */

/* Reads exactly n bytes. */
static bool read_all(int fd, char *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = read(fd, to + done, n - done);
        if (k > 0)
            done += (size_t)k;
        else if (k == 0 || errno != EINTR)
            return false;
    }
    return true;
}

static bool write_all(int fd, const char *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = write(fd, from + done, n - done);
        if (k > 0) {
            done += (size_t)k;
        } else if (k == 0 || errno != EINTR) {
            if (k == 0) errno = ENOSPC;
            return false;
        }
    }
    return true;
}

/* The file is copied, never mapped: a process that truncates it must not end this one. */
df_folder_result df_folder_read(const df_mem *mem, int folder, const char *name, bool shared,
                                bool touch, void **bytes, size_t *n)
{
    struct stat s;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? DF_FOLDER_MISSING : DF_FOLDER_REFUSED;
    df_folder_result result = DF_FOLDER_REFUSED;
    char *block = NULL;
    /* A file without a name was replaced since it was opened, and is as good as before. */
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink <= 1 &&
        (s.st_uid == geteuid() || (shared && s.st_uid == 0)) && s.st_size > 0 &&
        (uint64_t)s.st_size <= DF_FOLDER_MAX_FILE)
        block = df_mem_alloc(mem, (size_t)s.st_size);
    if (block && read_all(fd, block, (size_t)s.st_size)) {
        result = DF_FOLDER_OK;
        *bytes = block;
        *n = (size_t)s.st_size;
        if (touch && s.st_mtime < time(NULL) - DAY_S) (void)futimens(fd, NULL);
    } else if (block) {
        df_mem_free(mem, block, (size_t)s.st_size);
    }
    close(fd);
    return result;
}

/* Makes a name that no other process uses. */
static void new_name(char name[DF_FOLDER_NAME])
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    (void)snprintf(name, DF_FOLDER_NAME, NEW_FILE "%x-%x-%llx", (unsigned)getpid(),
                   (unsigned)gettid(), (unsigned long long)ns);
}

bool df_folder_write(int folder, const char *name, const void *bytes, size_t n, int *error)
{
    char temporary[DF_FOLDER_NAME];
    new_name(temporary);
    const int fd =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        *error = errno;
        return false;
    }
    bool ok = write_all(fd, bytes, n);
    *error = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        *error = errno;
    }
    if (ok && renameat(folder, temporary, folder, name) != 0) {
        ok = false;
        *error = errno;
    }
    if (!ok) (void)unlinkat(folder, temporary, 0);
    return ok;
}

/* ---- all files of a folder ---- */

/* Called with each file of a folder. Returning false ends the walk. */
typedef bool (*each_file)(void *user, const char *name, const struct stat *s);

static bool walk_files(int folder, each_file each, void *user)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) close(fd);
        return false;
    }
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat s;
        if (fstatat(folder, e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
            continue;
        if (!each(user, e->d_name, &s)) break;
    }
    closedir(dir);
    return true;
}

typedef struct entry_walk {
    df_folder_each each;
    void *user;
} entry_walk;

static bool show_entry(void *user, const char *name, const struct stat *s)
{
    const entry_walk *const w = user;
    return name[0] == '.' || w->each(w->user, name, (uint64_t)s->st_size);
}

bool df_folder_walk(int folder, df_folder_each each, void *user)
{
    entry_walk w = { each, user };
    return walk_files(folder, show_entry, &w);
}

/* ---- sweeping ---- */

typedef struct old_file {
    time_t used;
    uint64_t bytes;
    char name[DF_FOLDER_NAME];
} old_file;

typedef struct sweep {
    const df_mem *mem;
    int folder;
    time_t now, oldest;
    uint64_t bytes, removed;
    DF_VEC(old_file) files;
} sweep;

static bool sweep_file(void *user, const char *name, const struct stat *s)
{
    sweep *const w = user;
    const bool is_new = strncmp(name, NEW_FILE, sizeof NEW_FILE - 1) == 0;
    if (name[0] == '.' && !is_new) return true;
    if (s->st_mtime < (is_new ? w->now - HOUR_S : w->oldest)) {
        w->removed += unlinkat(w->folder, name, 0) == 0;
        return true;
    }
    old_file f = { .used = s->st_mtime, .bytes = (uint64_t)s->st_size };
    if (is_new || strlen(name) >= sizeof f.name) return true;
    memcpy(f.name, name, strlen(name) + 1);
    if (!df_vec_push(w->mem, &w->files, f)) return false;
    w->bytes += f.bytes;
    return true;
}

static int by_use(const void *a, const void *b)
{
    const old_file *const x = a, *const y = b;
    return (x->used > y->used) - (x->used < y->used);
}

bool df_folder_is_swept(int folder)
{
    struct stat s;
    const time_t now = time(NULL);
    return fstatat(folder, SWEPT, &s, AT_SYMLINK_NOFOLLOW) == 0 && s.st_mtime > now - DAY_S &&
           s.st_mtime <= now + DAY_S;
}

uint64_t df_folder_sweep(const df_mem *mem, int folder, const df_folder_limits *l)
{
    sweep w = { .mem = mem, .folder = folder, .now = time(NULL) };
    int error;
    w.oldest = w.now - (time_t)l->max_days * DAY_S;
    (void)df_folder_write(folder, SWEPT, "", 0, &error);
    (void)walk_files(folder, sweep_file, &w);
    if (w.bytes > l->max_bytes) {
        qsort(w.files.at, w.files.n, sizeof *w.files.at, by_use);
        for (size_t i = 0; w.bytes > l->max_bytes - l->max_bytes / 8 && i < w.files.n; i++) {
            w.bytes -= w.files.at[i].bytes;
            w.removed += unlinkat(folder, w.files.at[i].name, 0) == 0;
        }
    }
    df_vec_finish(mem, &w.files);
    return w.removed;
}
