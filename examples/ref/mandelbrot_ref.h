/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain C checks for the Mandelbrot example.
 */
#ifndef EXAMPLES_REF_MANDELBROT_REF_H
#define EXAMPLES_REF_MANDELBROT_REF_H

#include <stdint.h>

/* count[row * width + column]: in how many of n_iter rounds (cx[column], cy[row]) was still near 0.
 * From x = y = 0, n_iter times
 *
 *   alive = x * x + y * y <= 4,  count += alive
 *   (x, y) = alive ? (x * x - y * y + cx, x * y * 2 + cy) : (x, y)
 *
 * in f32, each operation rounded once, left to right: a strict context gives the same counts. Build
 * with -ffp-contract=off. */
void mandelbrot_ref(int32_t *count, const float *cx, const float *cy, int64_t width, int64_t height,
                    int32_t n_iter);

#endif
