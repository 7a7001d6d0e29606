/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of the journal, for Linux. When a write fails, the file is truncated to its last complete
 * line.
 */
#include "base/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 64, TRIES = 64 };

/* Writes the name of file number `part`. */
static void name_of(const df_journal_file *f, uint32_t part, char name[NAME])
{
    const int n =
        snprintf(name, NAME, "deft-%d-%llu", (int)getpid(), (unsigned long long)f->start_us);
    if (part > 0)
        snprintf(name + n, NAME - (size_t)n, ".%u.jsonl", part);
    else
        snprintf(name + n, NAME - (size_t)n, ".jsonl");
}

/* Fixes START, so that the next file is number 0. */
static void begin(df_journal_file *f)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    f->start_us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
    f->part = 0;
    f->fd = -1;
    f->n = 0;
    f->bytes = 0;
}

/* Creates dir, and the folders above it that are missing. */
static bool make_dirs(const char *dir)
{
    char path[PATH_MAX];
    const size_t n = strlen(dir);
    if (n >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        path[i] = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
        path[i] = dir[i];
    }
    return true;
}

bool df_journal_file_init(df_journal_file *f, const char *dir, uint64_t max_bytes,
                          uint32_t max_files)
{
    f->error = 0;
    f->max_bytes = max_bytes;
    f->max_files = max_files < 2 ? 2 : max_files;
    begin(f);
    f->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0 && errno == ENOENT && make_dirs(dir))
        f->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0) f->error = errno;
    return f->dir >= 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void df_journal_file_finish(df_journal_file *f)
{
    df_journal_file_flush(f);
    close_fd(&f->fd);
    close_fd(&f->dir);
}

void df_journal_file_forget(df_journal_file *f)
{
    close_fd(&f->fd);
    begin(f);
}

static int create(const df_journal_file *f)
{
    char name[NAME];
    name_of(f, f->part, name);
    return openat(f->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Removes the oldest file except number 0, when there are more than max_files. */
static void remove_old(const df_journal_file *f)
{
    char name[NAME];
    if (f->part < f->max_files) return;
    name_of(f, f->part - f->max_files + 1, name);
    (void)unlinkat(f->dir, name, 0);
}

bool df_journal_file_next(df_journal_file *f)
{
    if (f->fd >= 0) {
        df_journal_file_flush(f);
        close_fd(&f->fd);
        f->part++;
    }
    if (f->error) return false;
    f->fd = create(f);
    /* Another runtime of this process may have begun in the same microsecond. */
    for (int i = 0; f->fd < 0 && errno == EEXIST && f->part == 0 && i < TRIES; i++) {
        f->start_us++;
        f->fd = create(f);
    }
    if (f->fd < 0)
        f->error = errno;
    else
        remove_old(f);
    f->bytes = 0;
    return f->fd >= 0;
}

bool df_journal_file_full(const df_journal_file *f, size_t n)
{
    return f->fd >= 0 && f->bytes + n > f->max_bytes;
}

/* Writes n bytes of text, which are complete lines. On failure sets error and truncates the file to
 * its last complete line. */
static void write_all(df_journal_file *f, const char *text, size_t n)
{
    size_t done = 0;
    while (done < n && !f->error) {
        const ssize_t k = write(f->fd, text + done, n - done);
        if (k > 0)
            done += (size_t)k;
        else if (k == 0 || errno != EINTR)
            f->error = k == 0 ? ENOSPC : errno;
    }
    if (!f->error) return;
    size_t whole = done;
    while (whole > 0 && text[whole - 1] != '\n') whole--;
    const off_t at = lseek(f->fd, 0, SEEK_CUR);
    if (at >= 0 && whole < done && ftruncate(f->fd, at - (off_t)(done - whole)) != 0)
        return; /* an incomplete last line remains; readers must expect one */
}

void df_journal_file_flush(df_journal_file *f)
{
    if (f->fd >= 0 && f->n && !f->error) write_all(f, f->buf, f->n);
    f->n = 0;
}

void df_journal_file_put(df_journal_file *f, const char *line, size_t n)
{
    if (f->fd < 0 || f->error) return;
    if (n > sizeof f->buf - f->n) df_journal_file_flush(f);
    if (n > sizeof f->buf) {
        write_all(f, line, n);
    } else {
        memcpy(f->buf + f->n, line, n);
        f->n += n;
    }
    f->bytes += n;
}

int df_journal_file_folder(const df_journal_file *f, char *name, size_t room)
{
    struct stat info;
    (void)snprintf(name, room, "deft-%d-%llu.inputs", (int)getpid(),
                   (unsigned long long)f->start_us);
    if (mkdirat(f->dir, name, 0700) != 0 && errno != EEXIST) return -1;
    int fd = openat(f->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 077)) return fd;
    close_fd(&fd);
    errno = EACCES;
    return -1;
}
