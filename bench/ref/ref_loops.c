/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over time, as C programs have them: the state in memory, or in a register. Compiled like
 * ref_kernels.c, strictly.
 */
#include "ref_loops.h"

static void by_time(float *restrict x, int64_t n, int64_t steps, float r)
{
    for (int64_t t = 0; t < steps; t++)
        for (int64_t i = 0; i < n; i++) x[i] = x[i] * r * (1.0f - x[i]);
}

static void by_element(float *restrict x, int64_t n, int64_t steps, float r)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        for (int64_t t = 0; t < steps; t++) v = v * r * (1.0f - v);
        x[i] = v;
    }
}

/* s = a * s + row, every s kept: an exponential average along the first axis. */
static void smooth(const float *restrict rows, float *restrict out, int64_t steps, int64_t n,
                   float a)
{
    for (int64_t i = 0; i < n; i++) out[i] = rows[i];
    for (int64_t t = 1; t < steps; t++)
        for (int64_t i = 0; i < n; i++) out[t * n + i] = a * out[(t - 1) * n + i] + rows[t * n + i];
}

const ref_loops REF_TABLE = { { by_time, by_element }, smooth };
