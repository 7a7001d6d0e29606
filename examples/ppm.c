/* SPDX-License-Identifier: Apache-2.0 */
#include "ppm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Row of a value, 0 at the top; outside low..high it is clamped. */
static int row_of(float v, float low, float high, int height)
{
    const float part = high > low ? (v - low) / (high - low) : 0.5f;
    const int y = (int)((1 - part) * (float)(height - 1) + 0.5f);
    return y < 0 ? 0 : y < height ? y : height - 1;
}

static void draw_line(uint8_t *pixels, const float *values, int n, int width, int height, float low,
                      float high)
{
    int before = -1;
    for (int x = 0; x < width; x++) {
        const float v = values[(int)((long long)x * n / width)];
        if (!isfinite(v)) continue;
        const int y = row_of(v, low, high, height), from = before < 0 ? y : before;
        for (int k = from < y ? from : y; k <= (from < y ? y : from); k++)
            pixels[(size_t)k * (size_t)width + (size_t)x] = 0;
        before = y;
    }
}

bool ppm_write_curve(const char *path, const float *values, int n, int width, int height)
{
    const size_t row = (size_t)width;
    uint8_t *const pixels = malloc(row * (size_t)height);
    if (!pixels) return false;
    memset(pixels, 255, row * (size_t)height);
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (isfinite(values[i]) && values[i] < low) low = values[i];
        if (isfinite(values[i]) && values[i] > high) high = values[i];
    }
    for (float v = ceilf(low); v <= high && high - low < 100; v++)
        memset(pixels + (size_t)row_of(v, low, high, height) * row, 200, row);
    draw_line(pixels, values, n, width, height, low, high);
    const bool ok = ppm_write_gray(path, pixels, width, height, row);
    free(pixels);
    return ok;
}

static uint8_t ramp(float v)
{
    return v > 1 ? 255 : v > 0 ? (uint8_t)(v * 255 + 0.5f) : 0;
}

void ppm_heat_color(float value, uint8_t rgb[3])
{
    for (int c = 0; c < 3; c++) rgb[c] = ramp(3 * value - (float)c);
}
