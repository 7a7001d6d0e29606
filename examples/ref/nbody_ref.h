/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain C checks for the N-body example.
 */
#ifndef EXAMPLES_REF_NBODY_REF_H
#define EXAMPLES_REF_NBODY_REF_H

#include <stdint.h>

/* n bodies as structure of arrays: positions, velocities, masses. */
typedef struct nbody_state {
    float *x, *y, *z, *vx, *vy, *vz;
    const float *m;
    int64_t n;
} nbody_state;

/* Accelerations of all bodies under softened gravity, without an n x n matrix: over all j
 *   dx = x[j] - x[i] and so on, r2 = (dx * dx + dy * dy) + dz * dz + eps2, inv = 1 / sqrt(r2)
 *   w  = m[j] * (inv * inv * inv),  ax[i] = sum(dx * w) and so on
 * in f32 and in the order a strict context sums: same bits. Build with -ffp-contract=off. */
void nbody_ref_accelerations(float *ax, float *ay, float *az, const nbody_state *s, float eps2);

/* One step of semi-implicit Euler: v += a * dt, then x += v * dt. ax, ay, az have room for n each.
 */
void nbody_ref_step(nbody_state *s, float *ax, float *ay, float *az, float eps2, float dt);

/* Kinetic and potential energy in f64; nearly constant over steps when dt is small. */
double nbody_ref_energy(const nbody_state *s, float eps2);

#endif
