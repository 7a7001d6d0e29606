/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the files of perf.c safely (perf_file.h).
 */
#include "runtime/tiers/perf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NEW = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };

/* ---- whose file ---- */

/* Returns when this process was started, in ticks since the machine was; 0: unknown. This is field
 * 22 of /proc/self/stat. Field 2 is in brackets and may contain any text. */
static unsigned long long start_ticks(void)
{
    char text[1024];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Returns true when the file was modified after this process began. Times of files lag by a tick,
 * so a slightly earlier time counts too. No other process can have had this PID in between. */
static bool is_of_now(const struct stat *s)
{
    struct timespec now, up;
    const unsigned long long ticks = start_ticks();
    const double slack = 0.02;
    if (ticks == 0 || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        clock_gettime(CLOCK_BOOTTIME, &up) != 0)
        return false;
    const double age = (double)up.tv_sec + (double)up.tv_nsec * 1e-9 -
                       (double)ticks / (double)sysconf(_SC_CLK_TCK);
    const double file_age = (double)(now.tv_sec - s->st_mtim.tv_sec) +
                            (double)(now.tv_nsec - s->st_mtim.tv_nsec) * 1e-9;
    return file_age <= age + slack;
}

static bool is_ours(const struct stat *s)
{
    return S_ISREG(s->st_mode) && s->st_uid == geteuid() && s->st_nlink == 1 &&
           !(s->st_mode & (S_IWGRP | S_IWOTH));
}

/* ---- exported ---- */

int df_perf_open_map(char path[DF_PERF_PATH])
{
    struct stat s;
    (void)snprintf(path, DF_PERF_PATH, "/tmp/perf-%d.map", (int)getpid());
    const int made = open(path, O_WRONLY | O_APPEND | NEW, 0600);
    if (made >= 0 || errno != EEXIST) return made;
    const int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    const bool known = fstat(fd, &s) == 0 && is_ours(&s);
    if (known && is_of_now(&s)) return fd;
    close(fd);
    errno = EEXIST;
    if (!known || unlink(path) != 0) return -1;
    return open(path, O_WRONLY | O_APPEND | NEW, 0600);
}

int df_perf_open_dump(const char *base, char path[DF_PERF_PATH])
{
    const int n = snprintf(path, DF_PERF_PATH, "%s/deft-perf-XXXXXX", base);
    errno = ENAMETOOLONG;
    if (n < 0 || n + 32 > DF_PERF_PATH || !mkdtemp(path)) return -1;
    (void)snprintf(path + n, DF_PERF_PATH - (size_t)n, "/jit-%d.dump", (int)getpid());
    return open(path, O_RDWR | NEW, 0600);
}

bool df_perf_write(int fd, const void *from, size_t n)
{
    const char *at = from;
    while (n > 0) {
        const ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = ENOSPC;
        if (k <= 0) return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}
