/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads with pread, whole or not at all.
 */
#include "lazy/files/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel moves at most 2^31 - 4096 bytes per call. */
#define MAX_TRANSFER ((size_t)1 << 30)

static DF_COLD deft_status reader_failed(const df_reader *r, const char *call)
{
    const int code = errno;
    return df_fail(r->d, code == ENOENT ? DEFT_E_NOT_FOUND : DEFT_E_IO, "%s: %s: %s: %s", r->what,
                   r->path, call, strerror(code));
}

deft_status df_reader_open(df_reader *r)
{
    struct stat info;
    df_assert(r->fd < 0);
    /* O_NONBLOCK, because opening a pipe without a writer must not block; a pipe is then refused */
    do r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (r->fd < 0 && errno == EINTR);
    if (r->fd < 0) return reader_failed(r, "open");
    if (fstat(r->fd, &info)) return reader_failed(r, "fstat");
    if (!S_ISREG(info.st_mode))
        return df_fail(r->d, DEFT_E_IO, "%s: %s: not a regular file", r->what, r->path);
    r->size = (uint64_t)info.st_size;
    return DEFT_OK;
}

static deft_status ended(const df_reader *r, uint64_t at)
{
    return df_fail(r->d, DEFT_E_FORMAT, "%s: %s: the file became shorter, at byte %llu", r->what,
                   r->path, (unsigned long long)at);
}

deft_status df_reader_at(const df_reader *r, void *dst, size_t n, uint64_t from)
{
    char *to = dst;
    if (r->memory) {
        if (from > r->size || n > r->size - from) return ended(r, from);
        if (n) memcpy(dst, r->memory + from, n);
        return DEFT_OK;
    }
    while (n) {
        const ssize_t done = pread(r->fd, to, n < MAX_TRANSFER ? n : MAX_TRANSFER, (off_t)from);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return reader_failed(r, "read");
        if (done == 0) return ended(r, from);
        to += done;
        from += (uint64_t)done;
        n -= (size_t)done;
    }
    return DEFT_OK;
}

void df_reader_close(df_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}
