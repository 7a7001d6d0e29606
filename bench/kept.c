/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept code worth? Whole processes that take training steps of network.h (start_process.c),
 * whose code is found in a folder or compiled, beyond an empty process, in turn. Then the time from
 * the key of a kernel of that step to a function that can be called, the size of an entry, and what
 * the first run of a small program takes beyond the interpreter's.
 */
#include "bench.h"

#include <dirent.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/disk.h"
#include "runtime/code/object.h"

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

/* The key of an entry, read from its file in the format that disk.c describes. Then the folder is
 * asked for that key: one that was read wrong is not found. */
typedef struct entry_key {
    char *at; /* NULL: the file is no entry */
    size_t n;
} entry_key;

typedef struct entries {
    entry_key key[MAX_ENTRIES];
    double kib[MAX_ENTRIES]; /* the size of the file */
    size_t n;
} entries;

static entry_key read_key(const unsigned char *file, size_t n)
{
    enum { HEAD = 48, N_KEY = 32 }; /* bytes of the head; where it has the length of the code */
    uint64_t n_code = 0, length = 0;
    entry_key key = { 0 };
    if (n < HEAD || !df_disk_is_entry(file, n)) return key;
    memcpy(&n_code, file + N_KEY, sizeof n_code);
    const unsigned char *from = file + n - n_code;
    if (n_code < sizeof length) return key;
    memcpy(&length, from, sizeof length);
    from += sizeof length;
    key.n = (size_t)length;
    key.at = calloc(1, key.n + 8);
    for (size_t i = 0; key.at && i < key.n && from < file + n; i += 8) {
        const unsigned bits = *from++;
        for (int k = 0; k < 8 && from < file + n; k++)
            if (bits >> k & 1) key.at[i + (size_t)k] = (char)*from++;
    }
    return key;
}

static void read_entries(entries *all)
{
    static unsigned char file[1 << 20];
    DIR *const dir = opendir(folder);
    all->n = 0;
    for (const struct dirent *e; dir && all->n < MAX_ENTRIES && (e = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *const f = e->d_name[0] != '.' ? fopen(path, "rb") : NULL;
        if (!f) continue;
        const size_t n = fread(file, 1, sizeof file, f);
        fclose(f);
        all->kib[all->n] = (double)n / 1024;
        all->key[all->n++] = read_key(file, n);
    }
    if (dir) closedir(dir);
}

/* Seconds from a key to a function that can be called; less than 0: there is no kernel of that key,
 * as of the micro-kernels of products. */
static double load_once(df_disk *disk, const entry_key *key)
{
    void *value = NULL;
    size_t n = 0;
    df_loaded loaded = { 0 };
    df_code code = { 0 };
    const double t = bench_now();
    if (!key->at || !df_disk_find(disk, key->at, key->n, &value, &n)) return -1;
    const bool is_kernel = df_object_is_sound(value, n) &&
                           df_object_load(NULL, value, &loaded, &code) == DEFT_OK && code.main;
    df_mem_free(&df_mem_system, value, n);
    const double seconds = bench_now() - t;
    if (is_kernel) df_object_unload(&loaded);
    return is_kernel ? seconds : -1;
}

/* Each kernel once in each round. The files are in the system's cache; in the first round, the code
 * that loads them is not yet in those of the processor. */
static void load_rows(bench *b, const entries *all)
{
    enum { LOADS = 15 };
    const df_disk_options o = { .folders = folder };
    static double t[MAX_ENTRIES][LOADS], of_kernel[MAX_ENTRIES], first[MAX_ENTRIES];
    size_t n = 0;
    for (int r = 0; r < LOADS; r++) {
        df_disk *disk = df_disk_open(&df_mem_system, NULL, &o);
        for (size_t i = 0; disk && i < all->n; i++) t[i][r] = load_once(disk, &all->key[i]);
        if (!disk) {
            bench_row(b, "cached kernel to callable, median", NAN, "us", "limit, us", 50,
                      BENCH_VALUE_AT_MOST, 50);
            return;
        }
        df_disk_close(&disk);
    }
    for (size_t i = 0; i < all->n; i++) {
        if (t[i][0] < 0) continue;
        first[n] = t[i][0] * 1e6;
        of_kernel[n++] = bench_median(t[i], LOADS) * 1e6;
    }
    if (n == 0) {
        bench_row_without(b, "cached kernel to callable, median", (double)NAN, "us", "limit, us",
                          "no kernel was kept", 50);
        return;
    }
    char more[128];
    const double median = bench_median(of_kernel, n); /* sorts */
    snprintf(more, sizeof more,
             ", \"kernels\": %zu, \"slowest_us\": %.6g, \"first_round_us\": %.6g", n,
             of_kernel[n - 1], bench_median(first, n));
    b->more = more;
    bench_row(b, "cached kernel to callable, median", median, "us", "limit, us", 50,
              BENCH_VALUE_AT_MOST, 50);
}

/* Sorts the sizes. */
static void size_row(bench *b, entries *all)
{
    const double median = all->n > 0 ? bench_median(all->kib, all->n) : (double)NAN;
    bench_row(b, "entry, median", median, "KiB", "limit, KiB", 4, BENCH_VALUE_AT_MOST, 4);
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
        bench_row_without(b, "first run of a kept kernel", 0, "us", "limit, us",
                          "no kernel was loaded", 50);
        return;
    }
    bench_row(b, "first run of a kept kernel", bench_median(with, 9) - bench_median(without, 9),
              "us", "limit, us", 50, BENCH_VALUE_AT_MOST, 50);
}

void bench_kept(bench *b)
{
    static const char *const steps[] = { "1", "20" };
    static entries all;
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
    read_entries(&all);
    load_rows(b, &all);
    size_row(b, &all);
    for (size_t i = 0; i < all.n; i++) free(all.key[i].at);
    kernels_row(b);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "%s was not removed\n", folder);
}
