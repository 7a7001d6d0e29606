/* SPDX-License-Identifier: Apache-2.0
 *
 * Replacing files: replace.h. Links are followed one at a time, because the last of them may name a
 * file that does not exist yet, which realpath does not accept.
 */
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINKS 40 /* the limit of Linux */
#define MAX_LINK_TEXT 4096
/* Bound on names that are tried. Crashed processes with the same number may have left some. */
#define MAX_TEMPORARY 100

static bool refuse(df_replace *r, const char *call)
{
    r->call = call;
    return false;
}

static bool set_path(df_replace *r, const char *folder, size_t n_folder, const char *name)
{
    const size_t size = n_folder + strlen(name) + 1;
    char *const path = df_mem_alloc(r->mem, size);
    if (!path) return false;
    if (n_folder) memcpy(path, folder, n_folder);
    memcpy(path + n_folder, name, size - n_folder);
    df_mem_free(r->mem, r->path, r->path_size);
    r->path = path;
    r->path_size = size;
    return true;
}

/* Replaces r->path, which is a link, by its target. `to` has MAX_LINK_TEXT bytes. */
static bool follow_one(df_replace *r, char *to)
{
    const ssize_t n = readlink(r->path, to, MAX_LINK_TEXT);
    if (n < 0) return refuse(r, "readlink");
    if (n == MAX_LINK_TEXT) {
        errno = ENAMETOOLONG;
        return refuse(r, "readlink");
    }
    to[n] = '\0';
    const char *const slash = strrchr(r->path, '/');
    const size_t n_folder = to[0] != '/' && slash ? (size_t)(slash + 1 - r->path) : 0;
    return set_path(r, r->path, n_folder, to);
}

/* Follows all links from r->path. *exists says whether there is a file, which info then
 * describes. */
static bool follow(df_replace *r, struct stat *info, bool *exists)
{
    char *to = NULL;
    bool ok = false;
    *exists = false;
    for (int i = 0; i <= MAX_LINKS; i++) {
        if (lstat(r->path, info) != 0) {
            ok = errno == ENOENT || refuse(r, "open");
            goto done;
        }
        if (!S_ISLNK(info->st_mode)) {
            *exists = ok = true;
            goto done;
        }
        if (!to) to = df_mem_alloc(r->mem, MAX_LINK_TEXT);
        if (!to || !follow_one(r, to)) goto done;
    }
    errno = ELOOP;
    (void)refuse(r, "open");
done:
    df_mem_free(r->mem, to, MAX_LINK_TEXT);
    return ok;
}

/* Sets the permissions of the temporary file, which only its owner could open until then. */
static bool take_over(df_replace *r, const struct stat *before)
{
    struct stat now;
    mode_t mode = before->st_mode & 07777;
    if (fstat(r->fd, &now) != 0) return refuse(r, "fstat");
    const bool keeps_both = (now.st_uid == before->st_uid && now.st_gid == before->st_gid) ||
                            fchown(r->fd, before->st_uid, before->st_gid) == 0;
    const bool keeps_group =
        keeps_both || now.st_gid == before->st_gid || fchown(r->fd, (uid_t)-1, before->st_gid) == 0;
    if (!keeps_both) mode &= 01777;
    /* The group is another one, so it gets only those permissions that everybody had. */
    if (!keeps_group) mode &= ~(mode_t)070 | (mode & 07) << 3;
    return fchmod(r->fd, mode) == 0 || refuse(r, "fchmod");
}

static bool open_temporary(df_replace *r, unsigned mode)
{
    for (int i = 0; i < MAX_TEMPORARY; i++) {
        (void)snprintf(r->temporary, r->temporary_size, "%s.tmp-%ld-%d", r->path, (long)getpid(),
                       i);
        do r->fd = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
        while (r->fd < 0 && errno == EINTR);
        if (r->fd >= 0) return true;
        if (errno != EEXIST) break;
    }
    return refuse(r, "open");
}

bool df_replace_begin(df_replace *r, const df_mem *mem, const char *path, unsigned mode)
{
    struct stat before;
    bool exists = false;
    *r = (df_replace){ .mem = mem, .fd = -1 };
    if (!set_path(r, NULL, 0, path) || !follow(r, &before, &exists)) return false;
    if (exists && !S_ISREG(before.st_mode)) {
        r->is_irregular = true;
        return false;
    }
    r->temporary_size = r->path_size + 48;
    r->temporary = df_mem_alloc(mem, r->temporary_size);
    if (!r->temporary) return false;
    if (!open_temporary(r, exists ? 0600 : mode)) return false;
    return !exists || take_over(r, &before);
}

bool df_replace_commit(df_replace *r)
{
    int rc;
    do rc = fsync(r->fd);
    while (rc && errno == EINTR);
    if (rc) return refuse(r, "fsync");
    if (rename(r->temporary, r->path) != 0) return refuse(r, "rename");
    (void)close(r->fd); /* fsync has reported all errors */
    r->fd = -1;
    return true;
}

void df_replace_finish(df_replace *r)
{
    const int code = errno;
    if (r->fd >= 0) {
        (void)close(r->fd);
        (void)unlink(r->temporary);
    }
    df_mem_free(r->mem, r->path, r->path_size);
    df_mem_free(r->mem, r->temporary, r->temporary_size);
    *r = (df_replace){ .fd = -1 };
    errno = code;
}
