/* SPDX-License-Identifier: Apache-2.0
 *
 * See train_gaps.h.
 */
#include "train_gaps.h"

#include <math.h>
#include <string.h>

enum { AHEAD = 800, MOST_ROUNDS = 11, FEWEST_STEPS = 5, MOST_STEPS = 1000 };
static const double turn_s = 0.05;

static void because(gap *g, const char *why)
{
    snprintf(g->why, sizeof g->why, "%.150s", why);
}

/* Turns long enough for the wait at their end to be little of them. */
static bool measure_step(gap *g, peer *p, int rounds)
{
    double t = 0, turn[MOST_ROUNDS];
    if (!peer_asked(p, &t, "time %d", FEWEST_STEPS)) return false;
    const double fit = turn_s / (t / FEWEST_STEPS);
    const int n = fit < FEWEST_STEPS ? FEWEST_STEPS : fit > MOST_STEPS ? MOST_STEPS : (int)fit;
    if (rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
    for (int i = 0; i < rounds; i++)
        if (!peer_asked(p, &turn[i], "time %d", n)) return false;
    g->step_s = bench_median(turn, (size_t)rounds) / n;
    return true;
}

gap gap_measure(peer *p, int rounds)
{
    gap g = { 0 };
    double first = 0;
    if (!measure_step(&g, p, rounds) || !peer_asked(p, &first, "gap %d", AHEAD))
        because(&g, p->why);
    else if (sscanf(p->line, "ok %lf %lf %lf", &g.gpu_s, &g.host_s, &g.n_waits) != 3)
        because(&g, p->line + strlen("ok nan "));
    return g;
}

void gap_row(bench *b, const char *model, const char *mode, const gap *g, double goal)
{
    char label[96], more[128];
    const double us = 1e6;
    const double idle = g->step_s > g->gpu_s ? g->step_s - g->gpu_s : 0;
    snprintf(label, sizeof label, "%s, GPU idle, %s", model, mode);
    if (*g->why) {
        bench_row_without(b, label, NAN, "us", "step", g->why, goal);
        return;
    }
    snprintf(more, sizeof more, ",\"host_us\":%.6g,\"gpu_us\":%.6g,\"waits\":%.3g", g->host_s * us,
             g->gpu_s * us, g->n_waits);
    b->more = more;
    bench_row(b, label, idle * us, "us", "step", g->step_s * us, BENCH_RATIO_AT_MOST, goal);
}
