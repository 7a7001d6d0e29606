/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept code worth? Whole processes that take training steps of network.h (start_process.c),
 * whose code is found in a folder or compiled, beyond an empty process, in turn. Then the time from
 * a kernel's key to its code, and the size of an entry.
 */
#include "bench.h"

#include <dirent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ROUNDS = 41, MAX_ENTRIES = 4096 };

static char folder[] = "/tmp/deft-bench-kept-XXXXXX";

/* Seconds of a process that takes so many steps; NULL: an empty one. -1: it failed. */
static double run_process(const char *steps)
{
    char program[512], name[] = "mlp", text[16];
    pid_t pid;
    int status = 1;
    snprintf(program, sizeof program, BENCH_BUILD_ROOT "/bench/%s",
             steps ? "bench-start" : "bench-empty");
    snprintf(text, sizeof text, "%s", steps ? steps : "");
    char *const argv[] = { program, steps ? name : NULL, text, NULL };
    const double t = bench_now();
    if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0) return -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? bench_now() - t : -1;
}

/* Sets the folder in which processes keep code; "": none. */
static void keep_in(const char *where)
{
    setenv("DEFT_CACHE_DIR", where, 1);
}

/* Median milliseconds of a process that takes `steps` steps, with kept code and without, beyond an
 * empty process. Returns false when one of them failed. */
static bool time_processes(const char *steps, double *kept, double *without)
{
    double t[3][ROUNDS];
    for (int r = -2; r < ROUNDS; r++) {
        for (int i = 0; i < 3; i++) {
            keep_in(i == 1 ? folder : "");
            const double one = run_process(i > 0 ? steps : NULL);
            keep_in("");
            if (one < 0) return false;
            if (r >= 0) t[i][r] = one;
        }
    }
    const double empty = bench_median(t[0], ROUNDS);
    *kept = (bench_median(t[1], ROUNDS) - empty) * 1e3;
    *without = (bench_median(t[2], ROUNDS) - empty) * 1e3;
    return true;
}

/* ---- entries ---- */

static double sizes[MAX_ENTRIES];

static size_t read_sizes(void)
{
    size_t n = 0;
    DIR *const dir = opendir(folder);
    for (const struct dirent *e; dir && n < MAX_ENTRIES && (e = readdir(dir)) != NULL;) {
        char path[512];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && stat(path, &s) == 0) sizes[n++] = (double)s.st_size / 1024;
    }
    if (dir) closedir(dir);
    return n;
}

/* One of 64 programs of one kernel. */
static deft_tensor *chain(deft_tensor *x, int number)
{
    for (int i = 0; i < 6; i++) x = number >> i & 1 ? deft_add(x, x) : deft_mul(x, x);
    return x;
}

/* Median microseconds of the first run of such a program. */
static double first_runs_us(deft_tier tier, uint64_t *loaded)
{
    enum { PROGRAMS = 64 };
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = tier, .cache_dir = folder
    };
    deft_runtime *rt = NULL;
    const float v[8] = { 1 };
    double t[PROGRAMS];
    if (deft_runtime_create(&o, &rt) != DEFT_OK) return -1;
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    deft_tensor *const x = deft_keep(deft_from(cx, DEFT_SHAPE(8), DEFT_F32, v, sizeof v));
    for (int i = 0; i < PROGRAMS; i++) {
        float out[8];
        const double t0 = bench_now();
        bench_must(cx, deft_read(chain(x, i), DEFT_F32, out, sizeof out), "read");
        t[i] = bench_now() - t0;
    }
    if (loaded) *loaded = bench_stats(cx).kernels_loaded;
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return bench_median(t, PROGRAMS) * 1e6;
}

/* Kernels that are kept, against the interpreter, which loads nothing. */
static void kernels_row(bench *b)
{
    uint64_t loaded = 0;
    (void)first_runs_us(DEFT_TIER_FULL, NULL); /* fills the folder */
    double with[9], without[9];
    for (int r = 0; r < 9; r++) {
        with[r] = first_runs_us(DEFT_TIER_FULL, &loaded);
        without[r] = first_runs_us(DEFT_TIER_INTERPRET, NULL);
    }
    if (loaded == 0) {
        bench_row_without(b, "kernel from its folder to code", 0, "us", "limit, us",
                          "no kernel was loaded", 50);
        return;
    }
    bench_row(b, "kernel from its folder to code", bench_median(with, 9) - bench_median(without, 9),
              "us", "limit, us", 50, BENCH_VALUE_AT_MOST, 50);
}

void bench_kept(bench *b)
{
    static const char *const steps[] = { "1", "20" };
    char command[128];
    if (!mkdtemp(folder)) return;
    setenv("DEFT_TIER", "1", 1); /* processes wait for their code */
    keep_in(folder);
    (void)run_process("1");
    keep_in("");
    for (int i = 0; i < 2; i++) {
        double kept = 0, without = 0;
        char label[64];
        snprintf(label, sizeof label, "process of %s training step%s", steps[i], i ? "s" : "");
        if (time_processes(steps[i], &kept, &without))
            bench_row(b, label, kept, "ms", "compiled in it", without, BENCH_RATIO_AT_MOST, 1);
    }
    unsetenv("DEFT_TIER");
    kernels_row(b);
    const size_t n = read_sizes();
    if (n > 0)
        bench_row(b, "entry, median", bench_median(sizes, n), "KiB", "limit, KiB", 4,
                  BENCH_VALUE_AT_MOST, 4);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "%s was not removed\n", folder);
}
