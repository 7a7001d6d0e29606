/* SPDX-License-Identifier: Apache-2.0 */
#include "heat_ref.h"

#include <math.h>
#include <string.h>

static float step(float *next, const float *u, int64_t n)
{
    float worst = 0;
    for (int64_t y = 1; y < n - 1; y++)
        for (int64_t x = 1; x < n - 1; x++) {
            const float *c = u + y * n + x;
            const float sum = (c[-n] + c[n]) + (c[-1] + c[1]);
            const float v = c[0] + (sum - c[0] * 4.0f) * 0.2f;
            next[y * n + x] = v;
            const float change = fabsf(v - c[0]);
            if (!(change <= worst)) worst = change;
        }
    return worst;
}

float heat_ref(float *u, float *spare, int64_t n, int64_t steps)
{
    const size_t size = (size_t)(n * n) * sizeof *u;
    float worst = 0;
    memcpy(spare, u, size);
    for (int64_t i = 0; i < steps; i++) {
        worst = step(spare, u, n);
        memcpy(u, spare, size);
    }
    return worst;
}
