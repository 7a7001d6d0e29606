/* SPDX-License-Identifier: Apache-2.0
 *
 * What does linking deft cost? The stripped size of the core library, and the start of a process
 * that computes without a compiler, against an empty program, in turn.
 */
#include "bench.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double run(char *const argv[])
{
    pid_t pid;
    int status = 1;
    const double t = bench_now();
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0) return -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? bench_now() - t : -1;
}

double bench_start_ms(const char *path, const char *argument, const char *other, double *other_ms)
{
    double a[101], c[101];
    char pa[512], pc[512], arg[32];
    snprintf(pa, sizeof pa, "%s", path);
    snprintf(arg, sizeof arg, "%s", argument);
    snprintf(pc, sizeof pc, "%s", other);
    char *const av[] = { pa, *arg ? arg : NULL, NULL }, *const cv[] = { pc, NULL };
    for (int i = -5; i < 101; i++) {
        const double x = run(av), y = run(cv);
        if (x < 0 || y < 0) return NAN;
        if (i >= 0) a[i] = x, c[i] = y;
    }
    *other_ms = bench_median(c, 101) * 1e3;
    return bench_median(a, 101) * 1e3;
}

void bench_library(bench *b)
{
    const char *const so = BENCH_BUILD_ROOT "/libdeft.so.0.1.0";
    char copy[] = "/tmp/deft-bench-XXXXXX";
    const int fd = mkstemp(copy);
    struct stat s;
    if (fd >= 0) {
        close(fd);
        char from[512], to[64];
        snprintf(from, sizeof from, "%s", so);
        snprintf(to, sizeof to, "%s", copy);
        char strip[] = "strip", o[] = "-o";
        char *const argv[] = { strip, o, to, from, NULL };
        if (run(argv) >= 0 && stat(copy, &s) == 0)
            bench_row(b, "core library, stripped", (double)s.st_size / 1e6, "MB", "limit, MB", 2,
                      BENCH_VALUE_AT_MOST, 2);
        unlink(copy);
    }
    double empty = 0;
    const double t = bench_start_ms(BENCH_BUILD_ROOT "/bench/bench-start", "",
                                    BENCH_BUILD_ROOT "/bench/bench-empty", &empty);
    bench_row(b, "process start, no compiler: added", t - empty, "ms", "an empty program, ms",
              empty, BENCH_VALUE_AT_MOST, 2);
}
