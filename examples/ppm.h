/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes pictures in the two simplest binary formats (netpbm), which every viewer reads.
 */
#ifndef EXAMPLES_PPM_H
#define EXAMPLES_PPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Red, green, blue interleaved, rows pitch bytes apart. False when the file could not be written
 * whole; a partly written file is removed. */
bool ppm_write_rgb(const char *path, const uint8_t *rgb, int width, int height, size_t pitch);

/* One gray byte per pixel, rows pitch bytes apart. */
bool ppm_write_gray(const char *path, const uint8_t *gray, int width, int height, size_t pitch);

/* The n values (at least 1) from left to right as a line, black on white, from the lowest value to
 * the highest, with gray lines at each whole number; values that are no numbers are left out. */
bool ppm_write_curve(const char *path, const float *values, int n, int width, int height);

/* Maps 0..1 to black, red, yellow, white ("hot"); outside it is clamped, NaN is black. */
void ppm_heat_color(float value, uint8_t rgb[3]);

#endif
