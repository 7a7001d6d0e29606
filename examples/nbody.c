/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies under softened gravity. Every pair is written down as a difference of a row and a column,
 * [n, n]; the sums over it are fused with it, so that no such matrix ever exists.
 *
 *   nbody [BODIES [STEPS]]
 *
 * Positions are compared, bit for bit, with plain C.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"

#include "ref/nbody_ref.h"

enum { X, Y, Z, VX, VY, VZ, M, FIELDS };

static const float EPS2 = 0.01f, DT = 0.001f;

/* A ball of bodies; the same on every machine. */
static void make_bodies(float *state[FIELDS], int64_t n)
{
    uint32_t seed = 1;
    for (int64_t i = 0; i < n; i++)
        for (int f = 0; f < FIELDS; f++) {
            seed = seed * 1664525u + 1013904223u; /* Numerical Recipes' generator */
            const float unit = (float)(seed >> 8) / 16777216.0f;
            state[f][i] = f == M   ? (0.5f + unit) / (float)n
                          : f < VX ? unit - 0.5f
                                   : 0.2f * (unit - 0.5f);
        }
}

static deft_status simulate(deft_ctx *cx, float *state[FIELDS], int64_t n, int n_steps)
{
    const size_t bytes = (size_t)n * sizeof(float);
    deft_tensor *t[FIELDS];
    for (int f = 0; f < FIELDS; f++) t[f] = deft_from(cx, DEFT_SHAPE(n), DEFT_F32, state[f], bytes);
    for (int step = 0; step < n_steps; step++) {
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *d[3], *r2 = NULL;
        for (int k = 0; k < 3; k++) { /* d[k][i][j]: from body i to body j */
            d[k] = deft_sub(deft_unsqueeze(t[k], 0), deft_unsqueeze(t[k], 1));
            r2 = k ? deft_add(r2, deft_square(d[k])) : deft_square(d[k]);
        }
        deft_tensor *const inv = deft_reciprocal(deft_sqrt(deft_add(r2, EPS2)));
        deft_tensor *const w = deft_mul(t[M], deft_mul(deft_mul(inv, inv), inv));
        for (int k = 0; k < 3; k++) {
            deft_tensor *const a = deft_sum(deft_mul(d[k], w), DEFT_AXES(1), 0);
            deft_assign(t[VX + k], deft_add(t[VX + k], deft_mul(a, DT)));
            deft_assign(t[k], deft_add(t[k], deft_mul(t[VX + k], DT)));
        }
        const deft_status st = deft_step_end(s);
        if (st != DEFT_OK) return st;
    }
    for (int f = 0; f < M; f++) {
        const deft_status st = deft_read(t[f], DEFT_F32, state[f], bytes);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? atoi(argv[1]) : 2000;
    const int n_steps = argc > 2 ? atoi(argv[2]) : 20;
    int exit_code = 1;
    deft_ctx *cx = NULL;
    float *data = NULL, *state[FIELDS], *own[FIELDS];
    if (n < 1 || n > 100000 || n_steps < 0) {
        fprintf(stderr, "usage: nbody [BODIES 1..100000 [STEPS]]\n");
        return 2;
    }
    data = malloc((2 * FIELDS + 3) * (size_t)n * sizeof *data);
    if (!data || deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "nbody: no context, or out of memory\n");
        goto done;
    }
    for (int f = 0; f < FIELDS; f++) {
        state[f] = data + f * n;
        own[f] = data + (FIELDS + f) * n;
    }
    make_bodies(state, n);
    memcpy(own[0], state[0], FIELDS * (size_t)n * sizeof *data);
    nbody_state ref = { own[X], own[Y], own[Z], own[VX], own[VY], own[VZ], own[M], n };
    const double before = nbody_ref_energy(&ref, EPS2);

    if (simulate(cx, state, n, n_steps) != DEFT_OK) {
        fprintf(stderr, "nbody: %s\n", deft_message(cx));
        goto done;
    }
    deft_stats stats;
    deft_stats_read(cx, &stats, sizeof stats);
    float *const a = data + 2 * FIELDS * n;
    for (int i = 0; i < n_steps; i++) nbody_ref_step(&ref, a, a + n, a + 2 * n, EPS2, DT);
    printf("%lld bodies, %d steps: energy %.6f, then %.6f\n", (long long)n, n_steps, before,
           nbody_ref_energy(&ref, EPS2));
    printf("values took %.2f MB at most; the matrix of pairs would take %.2f MB\n",
           (double)stats.peak_bytes / 1e6, 4e-6 * (double)n * (double)n);
    if (memcmp(own[0], state[0], FIELDS * (size_t)n * sizeof *data) != 0) {
        fprintf(stderr, "nbody: differs from plain C\n");
        goto done;
    }
    if (n >= 1000 && stats.peak_bytes >= 4 * (uint64_t)(n * n)) {
        fprintf(stderr, "nbody: the matrix of pairs was stored\n");
        goto done;
    }
    printf("equal to plain C, bit for bit\n");
    exit_code = 0;
done:
    deft_ctx_destroy(&cx);
    free(data);
    return exit_code;
}
