/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a whole training step faster than the same step in other libraries? Each peer is a process
 * that bench/peers/step.py installs, starts and describes; it gets our parameters and data and
 * answers lines on a pipe, so that all take turns within one run on the same cores: ours captured,
 * ours re-traced, each peer, and again. Every turn starts from the same numbers, so that nobody
 * trains on into denormals.
 *
 * A peer that cannot be had, or whose loss is not ours, has rows that say so and are not ok.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "network.h"
#include "peer.h"

enum {
    N_PEERS = 5,
    N_WAYS = 2,
    MIN_ROUNDS = 11,
    MAX_ROUNDS = 41,
    BATCH_SECONDS = 30, /* after which MIN_ROUNDS are enough */
    STEPS = 100,        /* of a turn */
    STEPS_UNTIMED = 5,  /* before them; step.py has its own */
    STEPS_WARM = 100,
    STEPS_TO_LOSS = 3, /* few: losses that have reached 0 are all alike */
    PAUSE_US = 5000,   /* before a turn: the last one's idle threads stop spinning */
};
static const double loss_bound = 1e-4;

typedef struct library {
    peer p;
    char label[64]; /* with its version */
    double loss;
    double seconds[MAX_ROUNDS]; /* of a step */
} library;

typedef struct way {
    const char *name;
    void (*run)(void *);
    network w;
    double loss;
    double seconds[MAX_ROUNDS];
} way;

/* ---- a library's process ---- */

static bool loaded(peer *p, const network_start *start, size_t batch)
{
    if (*p->why) return false;
    fprintf(p->to, "load %zu\n", batch);
    fwrite(start->p, sizeof start->p, 1, p->to);
    fwrite(start->x, sizeof *start->x * NETWORK_IN, batch, p->to);
    fwrite(start->labels, sizeof *start->labels, batch, p->to);
    if (fflush(p->to) != 0) return peer_fails(p, "its process ended");
    return peer_heard(p);
}

/* Installs the library where need be: minutes. */
static void library_open(const bench *b, library *l, const char *name, unsigned threads)
{
    char peer_option[64], threads_option[64], venv[512];
    snprintf(peer_option, sizeof peer_option, "--peer=%s", name);
    snprintf(threads_option, sizeof threads_option, "--threads=%u", threads);
    char python[] = "python3", script[] = BENCH_SOURCE_ROOT "/bench/peers/step.py";
    bench_environment_option(b, venv, sizeof venv);
    *l = (library){ 0 };
    peer_open(&l->p, name,
              (char *const[]){ python, script, venv, peer_option, threads_option, NULL });
    snprintf(l->label, sizeof l->label, *l->p.version ? "%s %s, us" : "%s", name, l->p.version);
}

/* ---- turns ---- */

static void steps(way *y, int n)
{
    for (int i = 0; i < n; i++) y->run(&y->w);
}

static void our_turn(way *y, int round)
{
    network_reset(&y->w);
    steps(y, STEPS_UNTIMED);
    const double t = bench_now();
    steps(y, STEPS);
    y->seconds[round] = (bench_now() - t) / STEPS;
}

static void librarys_turn(library *l, int round)
{
    double t = 0;
    if (peer_asked(&l->p, &t, "time %d", STEPS)) l->seconds[round] = t / STEPS;
}

/* How many rounds were had: at most `rounds`, fewer on a machine that is too busy. */
static int all_turns(way *ways, library *peers, int rounds)
{
    const double until = bench_now() + BATCH_SECONDS;
    int done = 0;
    while (done < rounds && (done < MIN_ROUNDS || bench_now() < until)) {
        for (int i = 0; i < N_WAYS; i++) usleep(PAUSE_US), our_turn(&ways[i], done);
        for (int i = 0; i < N_PEERS; i++) usleep(PAUSE_US), librarys_turn(&peers[i], done);
        done++;
    }
    return done;
}

/* ---- rows ---- */

/* Whether the peer computes what we do, both ways. */
static void losses_row(bench *b, const way *ways, library *p, int batch)
{
    char label[64];
    double apart = 0;
    for (int i = 0; i < N_WAYS; i++) apart = fmax(apart, fabs(ways[i].loss - p->loss));
    snprintf(label, sizeof label, "loss apart, batch %d, %d steps", batch, STEPS_TO_LOSS);
    char reference[64];
    snprintf(reference, sizeof reference, "%s's loss", p->p.name);
    bench_row(b, label, apart, "", reference, p->loss, BENCH_VALUE_AT_MOST, loss_bound);
    if (!(apart <= loss_bound))
        peer_fails(&p->p, "at batch %d its loss after %d steps is %.7g, ours %.7g", batch,
                   STEPS_TO_LOSS, p->loss, ways[0].loss);
}

static void time_rows(bench *b, way *y, library *peers, int batch, int rounds)
{
    char label[64];
    snprintf(label, sizeof label, "whole step, batch %d, %s", batch, y->name);
    const double us = bench_median(y->seconds, (size_t)rounds) * 1e6;
    for (int i = 0; i < N_PEERS; i++) {
        library *const p = &peers[i];
        if (*p->p.why)
            bench_row_without(b, label, us, "us", p->label, p->p.why, 1);
        else
            bench_row(b, label, us, "us", p->label, bench_median(p->seconds, (size_t)rounds) * 1e6,
                      BENCH_RATIO_AT_MOST, 1);
    }
}

static void one_batch(bench *b, deft_runtime *rt, library *peers, int batch)
{
    way ways[N_WAYS] = { { .name = "captured", .run = network_train_captured },
                         { .name = "re-traced", .run = network_train_again } };
    static network_start start;
    for (int i = 0; i < N_WAYS; i++) {
        network_open(&ways[i].w, rt, batch);
        steps(&ways[i], STEPS_WARM);
        network_reset(&ways[i].w);
        steps(&ways[i], STEPS_TO_LOSS);
        ways[i].loss = network_loss(&ways[i].w);
    }
    network_read_start(&ways[0].w, &start);
    for (int i = 0; i < N_PEERS; i++)
        if (loaded(&peers[i].p, &start, (size_t)batch) &&
            peer_asked(&peers[i].p, &peers[i].loss, "loss %d", STEPS_TO_LOSS))
            losses_row(b, ways, &peers[i], batch);
    const int rounds = all_turns(ways, peers, b->quick ? MIN_ROUNDS : MAX_ROUNDS);
    for (int i = 0; i < N_WAYS; i++) {
        time_rows(b, &ways[i], peers, batch, rounds);
        network_close(&ways[i].w);
    }
}

void bench_overhead_peers(bench *b)
{
    static const char *const names[N_PEERS] = { "torch", "torch-by-hand", "torch-compile", "jax",
                                                "drjit" };
    static const int batches[] = { 1, 8, 64 };
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_FULL, 0);
    static library peers[N_PEERS];
    void (*const before)(int) = signal(SIGPIPE, SIG_IGN); /* a peer's death is not ours */
    for (int i = 0; i < N_PEERS; i++)
        library_open(b, &peers[i], names[i], deft_runtime_threads(rt));
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        one_batch(b, rt, peers, batches[i]);
    for (int i = 0; i < N_PEERS; i++) peer_close(&peers[i].p);
    signal(SIGPIPE, before);
    deft_runtime_destroy(&rt);
}
