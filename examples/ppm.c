/* SPDX-License-Identifier: Apache-2.0 */
#include "ppm.h"

#include <stdio.h>

static bool write_rows(const char *path, const char *magic, const uint8_t *pixels, int width,
                       int height, size_t row_bytes, size_t pitch)
{
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    bool ok = fprintf(file, "%s\n%d %d\n255\n", magic, width, height) > 0;
    for (int y = 0; ok && y < height; y++)
        ok = fwrite(pixels + (size_t)y * pitch, 1, row_bytes, file) == row_bytes;
    ok = fclose(file) == 0 && ok;
    if (!ok) remove(path);
    return ok;
}

bool ppm_write_rgb(const char *path, const uint8_t *rgb, int width, int height, size_t pitch)
{
    return write_rows(path, "P6", rgb, width, height, (size_t)width * 3, pitch);
}

bool ppm_write_gray(const char *path, const uint8_t *gray, int width, int height, size_t pitch)
{
    return write_rows(path, "P5", gray, width, height, (size_t)width, pitch);
}

static uint8_t ramp(float v)
{
    return v > 1 ? 255 : v > 0 ? (uint8_t)(v * 255 + 0.5f) : 0;
}

void ppm_heat_color(float value, uint8_t rgb[3])
{
    for (int c = 0; c < 3; c++) rgb[c] = ramp(3 * value - (float)c);
}
