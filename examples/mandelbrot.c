/* SPDX-License-Identifier: Apache-2.0
 *
 * The Mandelbrot set, counted point by point and written as a picture.
 *
 *   mandelbrot [WIDTH HEIGHT [ITERATIONS [PICTURE.ppm]]]
 *
 * A step is BURST iterations, recorded by a plain C loop and run as one kernel; all steps after the
 * first replay it. The counts are compared with plain C.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"

#include "ppm.h"
#include "ref/mandelbrot_ref.h"

enum { BURST = 25 };

static deft_status count_points(deft_ctx *cx, const float *re, const float *im, int64_t width,
                                int64_t height, int n_iter, int32_t *count)
{
    const deft_shape shape = DEFT_SHAPE(height, width);
    deft_tensor *const cr =
        deft_from(cx, DEFT_SHAPE(width), DEFT_F32, re, (size_t)width * sizeof *re);
    deft_tensor *const ci =
        deft_from(cx, DEFT_SHAPE(height, 1), DEFT_F32, im, (size_t)height * sizeof *im);
    deft_tensor *const x = deft_zeros(cx, shape, DEFT_F32), *const y =
                                                                deft_zeros(cx, shape, DEFT_F32);
    deft_tensor *const n = deft_zeros(cx, shape, DEFT_I32);
    for (int done = 0; done < n_iter; done += BURST) {
        const deft_scope s = deft_step_begin(cx);
        for (int i = done; i < done + BURST && i < n_iter; i++) {
            deft_tensor *const xx = deft_square(x), *const yy = deft_square(y);
            deft_tensor *const alive = deft_le(deft_add(xx, yy), 4);
            deft_tensor *const xy = deft_mul(deft_mul(x, y), 2);
            deft_assign(n, deft_add(n, deft_cast(alive, DEFT_I32)));
            deft_assign(x, deft_where(alive, deft_add(deft_sub(xx, yy), cr), x));
            deft_assign(y, deft_where(alive, deft_add(xy, ci), y));
        }
        const deft_status st = deft_step_end(s);
        if (st != DEFT_OK) return st;
    }
    return deft_read(n, DEFT_I32, count, (size_t)(width * height) * sizeof *count);
}

static void fill_axis(float *at, int64_t n, float low, float high)
{
    for (int64_t i = 0; i < n; i++) at[i] = low + (high - low) * ((float)i + 0.5f) / (float)n;
}

static bool write_picture(const char *path, const int32_t *count, int width, int height, int n_iter)
{
    const size_t n = (size_t)width * (size_t)height;
    uint8_t *const rgb = malloc(3 * n);
    if (!rgb) return false;
    for (size_t i = 0; i < n; i++) {
        const float v = sqrtf((float)count[i] / (float)n_iter);
        ppm_heat_color(count[i] == n_iter ? 0 : v, rgb + 3 * i);
    }
    const bool ok = ppm_write_rgb(path, rgb, width, height, 3 * (size_t)width);
    free(rgb);
    return ok;
}

int main(int argc, char **argv)
{
    const int width = argc > 2 ? atoi(argv[1]) : 600, height = argc > 2 ? atoi(argv[2]) : 400;
    const int n_iter = argc > 3 ? atoi(argv[3]) : 200;
    const char *const picture = argc > 4 ? argv[4] : NULL;
    int exit_code = 1;
    deft_ctx *cx = NULL;
    float *axes = NULL;
    int32_t *count = NULL;
    if (width < 1 || height < 1 || width > 30000 || height > 30000 || n_iter < 1 ||
        n_iter > 1000000) {
        fprintf(stderr, "usage: mandelbrot [WIDTH HEIGHT [ITERATIONS [PICTURE.ppm]]]\n");
        return 2;
    }
    const size_t n = (size_t)width * (size_t)height;
    axes = malloc((size_t)(width + height) * sizeof *axes);
    count = malloc(2 * n * sizeof *count);
    if (!axes || !count || deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "mandelbrot: no context, or out of memory\n");
        goto done;
    }
    fill_axis(axes, width, -2.1f, 0.9f);
    fill_axis(axes + width, height, -1.0f, 1.0f);
    if (count_points(cx, axes, axes + width, width, height, n_iter, count) != DEFT_OK) {
        fprintf(stderr, "mandelbrot: %s\n", deft_message(cx));
        goto done;
    }
    if (picture && !write_picture(picture, count, width, height, n_iter)) {
        fprintf(stderr, "mandelbrot: cannot write %s\n", picture);
        goto done;
    }
    mandelbrot_ref(count + n, axes, axes + width, width, height, n_iter);
    if (memcmp(count, count + n, n * sizeof *count) != 0) {
        fprintf(stderr, "mandelbrot: differs from plain C\n");
        goto done;
    }
    size_t n_inside = 0;
    for (size_t i = 0; i < n; i++) n_inside += count[i] == n_iter;
    printf("%d x %d, %d iterations: %zu points inside; equal to plain C\n", width, height, n_iter,
           n_inside);
    exit_code = 0;
done:
    deft_ctx_destroy(&cx);
    free(axes);
    free(count);
    return exit_code;
}
