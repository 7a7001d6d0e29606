/* SPDX-License-Identifier: Apache-2.0
 *
 * Two contexts on two threads, each submitting steps, with launches told: four rings and the
 * writer. While a step is in flight its context goes on telling. Afterwards every note is in the
 * log, or counted as dropped, and every plan is stored, with a trace and its inputs.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/budget.h"
#include "deft/deft.h"

enum { STEPS = 300, ROUNDS = 3, SUBMIT_EVERY = 4, LABELS = 40 };

static int n_rounds(void)
{
    return test_is_limited() ? 1 : ROUNDS;
}

static deft_runtime *rt;
static bool wrong;
static _Atomic int n_plans;

static void *work(void *user)
{
    deft_ctx *cx = NULL;
    (void)user;
    for (int round = 0; round < n_rounds(); round++) {
        if (deft_ctx_create(rt, NULL, &cx) != DEFT_OK) abort();
        deft_tensor *x = deft_keep(deft_ones(cx, DEFT_SHAPE(64), DEFT_F32));
        for (int i = 0; i < STEPS; i++) {
            const deft_scope s = deft_step_begin(cx);
            deft_label_begin(cx, i % 2 ? "odd" : "even");
            deft_assign(x, deft_add(deft_mul(x, 0.5), i % 3));
            if ((i % SUBMIT_EVERY ? deft_step_end(s) : deft_step_submit(s)) != DEFT_OK) abort();
            for (int k = 0; k < LABELS && i % SUBMIT_EVERY == 0; k++) {
                deft_label_begin(cx, "in flight");
                deft_label_end(cx);
            }
        }
        deft_stats stats;
        deft_stats_read(cx, &stats, sizeof stats);
        atomic_fetch_add(&n_plans, (int)stats.plans_built);
        deft_drop(&x);
        deft_ctx_destroy(&cx);
    }
    return NULL;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void check(const char *path)
{
    static char text[16 << 20];
    FILE *const f = fopen(path, "r");
    if (!f) abort();
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    static const char *const types[] = { "cut",      "launch",      "step_begin",
                                         "step_end", "label_begin", "label_end" };
    size_t n = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char what[64];
        snprintf(what, sizeof what, "{\"type\":\"%s\"", types[i]);
        n += count(text, what);
    }
    const char *const end = strstr(text, "{\"type\":\"end\"");
    const char *const dropped = end ? strstr(end, "\"dropped_notes\":") : NULL;
    const size_t lost = dropped ? strtoul(dropped + 16, NULL, 10) : 0;
    const size_t told =
        (size_t)2 * (size_t)n_rounds() * (6 * STEPS + STEPS / SUBMIT_EVERY * 2 * LABELS);
    wrong |= !dropped || n + lost != told;
    printf("told %zu, written %zu, dropped %zu\n", told, n, lost);
}

/* Removes the folder of inputs and what is in it. */
static void check_inputs(const char *path)
{
    char name[1024];
    int n = 0;
    DIR *const d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%.200s", path, e->d_name);
        wrong |= unlink(name) != 0;
        n++;
    }
    closedir(d);
    wrong |= rmdir(path) != 0 || n != 2 * atomic_load(&n_plans);
}

int main(void)
{
    char dir[] = "/tmp/deft-journal-XXXXXX", path[512] = "";
    pthread_t thread[2];
    if (!mkdtemp(dir)) return 77;
    setenv("DEFT_TRACE_LAUNCHES", "1", 1);
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 2, .trace_dir = dir, .trace_inputs = 1
    };
    if (deft_runtime_create(&o, &rt) != DEFT_OK) return 1;
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    deft_runtime_destroy(&rt);
    DIR *const d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, "deft-", 5) != 0) continue;
        snprintf(path, sizeof path, "%s/%.200s", dir, e->d_name);
        if (strstr(path, ".inputs")) {
            check_inputs(path);
            continue;
        }
        check(path);
        unlink(path);
    }
    closedir(d);
    rmdir(dir);
    return wrong || !path[0];
}
