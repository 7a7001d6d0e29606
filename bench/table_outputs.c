/* SPDX-License-Identifier: Apache-2.0
 *
 * The outputs of all sides of the table of peers: read, and compared with those of the reference.
 */
#include "table.h"

#include <math.h>
#include <stdlib.h>

static int64_t total(const table_outputs *o)
{
    int64_t n = 0;
    for (int i = 0; i < o->n; i++) n += o->n_each[i];
    return n;
}

void table_outputs_free(table_outputs *o)
{
    free(o->v);
    *o = (table_outputs){ 0 };
}

bool table_outputs_load(table_outputs *o, const table_outputs *like, const char *path)
{
    const size_t n = (size_t)total(like);
    *o = *like;
    o->v = malloc((n + 1) * sizeof *o->v);
    FILE *const f = fopen(path, "rb");
    /* One number more is asked for: a longer file is no such output either. */
    const size_t found = f && o->v ? fread(o->v, sizeof *o->v, n + 1, f) : 0;
    if (f) fclose(f);
    if (found == n && n > 0) return true;
    table_outputs_free(o);
    return false;
}

static double root_of_mean_square(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(v[i])) sum += v[i] * v[i];
    return sqrt(sum / (double)n);
}

/* Of one output. */
static double apart(const double *v, const double *r, int64_t n, bool on_average)
{
    const double scale = root_of_mean_square(r, n);
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (v[i] == r[i] || (isnan(v[i]) && isnan(r[i]))) continue;
        const double d = fabs(v[i] - r[i]);
        if (!isfinite(d)) return INFINITY;
        if (d > most) most = d;
        sum += d * d;
    }
    if (most == 0) return 0;
    return (on_average ? sqrt(sum / (double)n) : most) / scale;
}

double table_apart(const table_outputs *o, const table_outputs *reference, bool on_average)
{
    double most = 0;
    int64_t at = 0;
    for (int i = 0; i < reference->n; i++) {
        most = fmax(most, apart(o->v + at, reference->v + at, reference->n_each[i], on_average));
        at += reference->n_each[i];
    }
    return most;
}

double table_moments_apart(const table_outputs *o, bool standard)
{
    const double n = (double)total(o);
    const double mean = standard ? 0 : 0.5, deviation = standard ? 1 : sqrt(1 / 12.);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < (int64_t)n; i++) sum += o->v[i] - mean;
    for (int64_t i = 0; i < (int64_t)n; i++) square += (o->v[i] - mean) * (o->v[i] - mean);
    /* Five deviations of the mean and of the deviation, of n numbers each. */
    const double of_mean = fabs(sum / n) / (5 * deviation / sqrt(n));
    const double of_deviation = fabs(sqrt(square / n) - deviation) / (5 * deviation / sqrt(n));
    return fmax(of_mean, of_deviation);
}
