/* SPDX-License-Identifier: Apache-2.0 */
#include "nbody_ref.h"

#include "strict_sum.h"

#include <math.h>

void nbody_ref_accelerations(float *ax, float *ay, float *az, const nbody_state *s, float eps2)
{
    for (int64_t i = 0; i < s->n; i++) {
        strict_sum x, y, z;
        strict_sum_start(&x), strict_sum_start(&y), strict_sum_start(&z);
        for (int64_t j = 0; j < s->n; j++) {
            const float dx = s->x[j] - s->x[i], dy = s->y[j] - s->y[i], dz = s->z[j] - s->z[i];
            const float r2 = (dx * dx + dy * dy) + dz * dz + eps2;
            const float inv = 1.0f / sqrtf(r2);
            const float w = s->m[j] * (inv * inv * inv);
            strict_sum_add(&x, dx * w), strict_sum_add(&y, dy * w), strict_sum_add(&z, dz * w);
        }
        ax[i] = strict_sum_end(&x), ay[i] = strict_sum_end(&y), az[i] = strict_sum_end(&z);
    }
}

static void move(float *x, float *v, const float *a, float dt, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] += a[i] * dt;
        x[i] += v[i] * dt;
    }
}

void nbody_ref_step(nbody_state *s, float *ax, float *ay, float *az, float eps2, float dt)
{
    nbody_ref_accelerations(ax, ay, az, s, eps2);
    move(s->x, s->vx, ax, dt, s->n);
    move(s->y, s->vy, ay, dt, s->n);
    move(s->z, s->vz, az, dt, s->n);
}

double nbody_ref_energy(const nbody_state *s, float eps2)
{
    double kinetic = 0, potential = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double vx = s->vx[i], vy = s->vy[i], vz = s->vz[i];
        kinetic += s->m[i] * (vx * vx + vy * vy + vz * vz) / 2;
        for (int64_t j = 0; j < i; j++) {
            const double dx = (double)s->x[j] - s->x[i], dy = (double)s->y[j] - s->y[i],
                         dz = (double)s->z[j] - s->z[i];
            potential -= (double)s->m[i] * s->m[j] / sqrt(dx * dx + dy * dy + dz * dz + eps2);
        }
    }
    return kinetic + potential;
}
