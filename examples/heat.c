/* SPDX-License-Identifier: Apache-2.0
 *
 * Heat spreading over a square plate whose upper edge is kept at 100 degrees.
 *
 *   heat [SIZE [STEPS [PICTURE.ppm]]]
 *
 * Each step assigns to a view, the interior of u: one kernel, double-buffered by the runtime. The
 * change per step is looked at every hundred steps only, so that other steps need not be waited
 * for. At the end the plate is compared, bit for bit, with plain C.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"

#include "ppm.h"
#include "ref/heat_ref.h"

/* How many steps pass between two looks at the change, and the change that counts as none. */
enum { LOOK = 100 };
static const float STILL = 1e-4f;

/* [1, n - 1) moved by d, which is -1, 0 or 1. */
static deft_range inner(int d)
{
    return DEFT_R(1 + d, d == 1 ? DEFT_END : d - 1);
}

/* The interior of u, seen from dy rows below and dx columns to the right. */
static deft_tensor *in(deft_tensor *u, int dy, int dx)
{
    return deft_slice(u, inner(dy), inner(dx));
}

/* Runs until nothing changes or max_steps are done, and reads the plate. */
static deft_status simulate(deft_ctx *cx, int64_t size, int64_t max_steps, float *plate,
                            int64_t *n_steps)
{
    deft_tensor *const u = deft_zeros(cx, DEFT_SHAPE(size, size), DEFT_F32);
    deft_tensor *const worst = deft_zeros(cx, DEFT_SHAPE(), DEFT_F32);
    deft_assign(deft_slice(u, DEFT_AT(0), DEFT_FULL), 100.0);
    *n_steps = 0;
    for (int64_t step = 0; step < max_steps; step++) {
        const bool look = step % LOOK == 0;
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *const c = in(u, 0, 0);
        deft_tensor *const sum =
            deft_add(deft_add(in(u, -1, 0), in(u, 1, 0)), deft_add(in(u, 0, -1), in(u, 0, 1)));
        deft_tensor *const next = deft_add(c, deft_mul(deft_sub(sum, deft_mul(c, 4)), 0.2));
        if (look) deft_assign(worst, deft_max(deft_abs(deft_sub(next, c)), DEFT_ALL_AXES, 0));
        deft_assign(c, next);
        const deft_status st = deft_step_end(s);
        if (st != DEFT_OK) return st;
        *n_steps = step + 1;
        if (!look) continue;
        float change = 0;
        const deft_status read = deft_item(worst, &change);
        if (read != DEFT_OK) return read;
        if (change < STILL) break;
    }
    return deft_read(u, DEFT_F32, plate, (size_t)(size * size) * sizeof *plate);
}

static bool write_picture(const char *path, const float *plate, int size)
{
    const size_t n = (size_t)size * (size_t)size;
    uint8_t *const rgb = (uint8_t *)malloc(3 * n);
    if (!rgb) return false;
    for (size_t i = 0; i < n; i++) ppm_heat_color(plate[i] / 100, rgb + 3 * i);
    const bool ok = ppm_write_rgb(path, rgb, size, size, 3 * (size_t)size);
    free(rgb);
    return ok;
}

/* The same in plain C. */
static bool equals_reference(const float *plate, float *own, float *spare, int64_t size,
                             int64_t n_steps)
{
    const size_t n = (size_t)(size * size);
    memset(own, 0, n * sizeof *own);
    for (int64_t x = 0; x < size; x++) own[x] = 100;
    heat_ref(own, spare, size, n_steps);
    return memcmp(plate, own, n * sizeof *own) == 0;
}

int main(int argc, char **argv)
{
    const int size = argc > 1 ? atoi(argv[1]) : 200;
    const long max_steps = argc > 2 ? atol(argv[2]) : 20000;
    const char *const picture = argc > 3 ? argv[3] : NULL;
    int64_t n_steps = 0;
    int exit_code = 1;
    size_t n = 0;
    deft_ctx *cx = NULL;
    float *plates = NULL;
    if (size < 3 || size > 10000 || max_steps < 1) {
        fprintf(stderr, "usage: heat [SIZE 3..10000 [STEPS [PICTURE.ppm]]]\n");
        return 2;
    }
    n = (size_t)size * (size_t)size;
    plates = (float *)malloc(3 * n * sizeof *plates);
    if (!plates || deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "heat: no context, or out of memory\n");
        goto done;
    }
    if (simulate(cx, size, max_steps, plates, &n_steps) != DEFT_OK) {
        fprintf(stderr, "heat: %s\n", deft_message(cx));
        goto done;
    }
    printf("%d x %d after %lld steps: %.2f degrees in the middle\n", size, size, (long long)n_steps,
           (double)plates[n / 2 + (size_t)size / 2]);
    if (picture && !write_picture(picture, plates, size)) {
        fprintf(stderr, "heat: cannot write %s\n", picture);
        goto done;
    }
    if (!equals_reference(plates, plates + n, plates + 2 * n, size, n_steps)) {
        fprintf(stderr, "heat: differs from plain C\n");
        goto done;
    }
    printf("equal to plain C, bit for bit\n");
    exit_code = 0;
done:
    deft_ctx_destroy(&cx);
    free(plates);
    return exit_code;
}
