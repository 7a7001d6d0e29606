/* SPDX-License-Identifier: Apache-2.0
 *
 * What does the structured log cost? Off: instructions of a warm cut of 1000 ops, recording and
 * kernel with it, beside a library that was built without the log; counted by callgrind, where
 * valgrind is there. On: time of the training step, captured and recorded again, beside the same
 * step without.
 */
#include "bench.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "network.h"

enum { FEW = 20, MANY = 220, BATCH = 64, ROUNDS = 101 };

/* ---- off ---- */

/* Of the whole program; 0: valgrind is not there, or failed. */
static double instructions(const char *program, int cuts)
{
    char command[1024], line[256];
    unsigned long long n = 0;
    snprintf(command, sizeof command,
             "valgrind --tool=callgrind --callgrind-out-file=/dev/null %s/bench/%s %d 2>&1",
             BENCH_BUILD_ROOT, program, cuts);
    FILE *const p = popen(command, "r");
    while (p && fgets(line, sizeof line, p)) {
        const char *const at = strstr(line, "Collected : ");
        if (at) n = strtoull(at + strlen("Collected : "), NULL, 10);
    }
    return p && pclose(p) == 0 ? (double)n : 0;
}

static double per_cut(const char *program)
{
    const double many = instructions(program, MANY), few = instructions(program, FEW);
    return many > few && few > 0 ? (many - few) / (MANY - FEW) : 0;
}

static void off(bench *b)
{
    static const char label[] = "off: warm cut of 1000 ops, instructions";
    const double with = per_cut("bench-cuts"), without = per_cut("bench-cuts-without");
    if (with > 0 && without > 0)
        bench_row(b, label, with, "", "built without the log", without, BENCH_RATIO_AT_MOST, 1.01);
    else
        bench_row_without(b, label, with, "", "built without the log", "valgrind did not run",
                          1.01);
}

/* ---- on ---- */

static deft_runtime *runtime_with(const char *trace_dir)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .tier = DEFT_TIER_FULL,
                                     .log = "error",
                                     .trace_dir = trace_dir,
                                     .trace_file_bytes = 64 << 20,
                                     .trace_files = 2 };
    deft_runtime *rt = NULL;
    if (deft_runtime_create(&o, &rt) == DEFT_OK) return rt;
    fprintf(stderr, "no runtime\n");
    exit(1);
}

static void clear(const char *dir)
{
    char path[600];
    DIR *const d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

static double least(const double *v, int n)
{
    double best = v[0];
    for (int i = 1; i < n; i++)
        if (v[i] < best) best = v[i];
    return best;
}

/* Steps a second also depend on where things happen to lie, and on what else the machine does: the
 * two take turns, each several times in networks of its own, and the best median of each counts. */
static void on(bench *b, const char *dir, const char *label, void (*train)(void *))
{
    enum { TURNS = 7 };
    double with[TURNS], without[TURNS];
    for (int i = 0; i < TURNS; i++) {
        deft_runtime *rt[2] = { runtime_with(dir), runtime_with("") };
        network w[2];
        for (int k = 0; k < 2; k++) network_open(&w[k], rt[k], BATCH);
        for (int k = 0; k < 200; k++) {
            train(&w[0]);
            train(&w[1]);
        }
        bench_pair(train, &w[0], train, &w[1], ROUNDS, bench_calls(train, &w[1], 2e-3), &with[i],
                   &without[i]);
        for (int k = 0; k < 2; k++) {
            network_close(&w[k]);
            deft_runtime_destroy(&rt[k]);
        }
    }
    bench_row(b, label, least(with, TURNS) * 1e6, "us", "off, us", least(without, TURNS) * 1e6,
              BENCH_RATIO_AT_MOST, 1.05);
}

void bench_trace(bench *b)
{
    char dir[] = "/tmp/deft-bench-XXXXXX";
    off(b);
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
    on(b, dir, "on: training step, captured", network_train_captured);
    on(b, dir, "on: training step, recorded again", network_train_again);
    clear(dir);
}
