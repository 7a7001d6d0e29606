/* SPDX-License-Identifier: Apache-2.0
 *
 * Complete writes to a temporary file.
 */
#include "lazy/files/writer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The kernel moves at most 2^31 - 4096 bytes per call. */
#define MAX_TRANSFER ((size_t)1 << 30)

static DF_COLD deft_status writer_io(const df_writer *w, const char *path, const char *call)
{
    return df_fail(w->d, DEFT_E_IO, "%s: %s: %s: %s", w->what, path, call, strerror(errno));
}

static DF_COLD deft_status writer_failed(const df_writer *w)
{
    const df_replace *const f = &w->file;
    if (f->is_irregular)
        return df_fail(w->d, DEFT_E_IO,
                       "%s: %s: a folder, device or pipe, no regular file: it is not replaced",
                       w->what, w->path);
    if (!f->call) return df_fail_mem(w->d, w->what, strlen(w->path));
    return writer_io(w, f->temporary ? f->temporary : w->path, f->call);
}

deft_status df_writer_begin(df_writer *w, const df_mem *mem)
{
    return df_replace_begin(&w->file, mem, w->path, 0666) ? DEFT_OK : writer_failed(w);
}

deft_status df_writer_put(df_writer *w, const void *data, size_t n)
{
    const char *at = data;
    if (w->crc) df_crc_add(w->crc, data, n);
    while (n) {
        const ssize_t done = write(w->file.fd, at, n < MAX_TRANSFER ? n : MAX_TRANSFER);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return writer_io(w, w->file.temporary, "write");
        at += done;
        n -= (size_t)done;
        w->at += (uint64_t)done;
    }
    return DEFT_OK;
}

deft_status df_writer_patch(df_writer *w, const void *data, size_t n, uint64_t at)
{
    const ssize_t done = pwrite(w->file.fd, data, n, (off_t)at);
    if (done == (ssize_t)n) return DEFT_OK;
    if (done >= 0) errno = EIO;
    return writer_io(w, w->file.temporary, "write");
}

deft_status df_writer_commit(df_writer *w)
{
    return df_replace_commit(&w->file) ? DEFT_OK : writer_failed(w);
}

void df_writer_finish(df_writer *w)
{
    df_replace_finish(&w->file);
}
