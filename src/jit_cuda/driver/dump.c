/* SPDX-License-Identifier: Apache-2.0
 *
 * DEFT_CUDA_DUMP=FOLDER writes the CUDA C of each compiled program to FOLDER/HASH.cu, for
 * people who read it or compile it themselves. The hash is that of the text. A file that
 * exists is left as it is. A failure to write is only a line under the log topic `error`.
 */
#include "jit_cuda/driver/module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/hash.h"

static bool write_all(int fd, const char *at, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

void df_cuda_dump(const df_log *log, const char *text)
{
    const char *const folder = df_env("DEFT_CUDA_DUMP");
    if (!folder || !*folder) return;
    const size_t n = strlen(text);
    const df_hash h = df_hash_bytes(text, n);
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%016llx%016llx.cu", folder,
                                (unsigned long long)h.hi, (unsigned long long)h.lo);
    int fd = -1;
    if (length >= (int)sizeof path)
        errno = ENAMETOOLONG;
    else
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return;
    bool good = fd >= 0 && write_all(fd, text, n);
    if (fd >= 0 && close(fd) != 0) good = false;
    if (!good) df_logf(log, error, "DEFT_CUDA_DUMP: %s: %s", path, strerror(errno));
}
