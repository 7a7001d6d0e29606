/* SPDX-License-Identifier: Apache-2.0 */
#include "image_ref.h"

#include <math.h>

static int inside(int v, int n)
{
    return v < 0 ? 0 : v < n ? v : n - 1;
}

/* Channel c of row at column x, edges repeated. */
static float value(const uint8_t *row, int x, int c, int width)
{
    return (float)row[3 * inside(x, width) + c] / 255.0f;
}

static float along_row(const uint8_t *row, int x, int c, int width)
{
    return (value(row, x - 1, c, width) + value(row, x + 1, c, width)) +
           value(row, x, c, width) * 2.0f;
}

static uint8_t to_byte(float v)
{
    return (uint8_t)rintf(v < 0 ? 0 : v > 255 ? 255 : v);
}

void image_ref(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch, int width,
               int height, float amount)
{
    for (int y = 0; y < height; y++) {
        const uint8_t *above = src + (size_t)inside(y - 1, height) * src_pitch;
        const uint8_t *row = src + (size_t)y * src_pitch;
        const uint8_t *below = src + (size_t)inside(y + 1, height) * src_pitch;
        uint8_t *to = dst + (size_t)y * dst_pitch;
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                const float p = value(row, x, c, width);
                const float outer = along_row(above, x, c, width) + along_row(below, x, c, width);
                const float blur = (outer + along_row(row, x, c, width) * 2.0f) / 16.0f;
                const float sharp = p + (p - blur) * amount;
                to[3 * x + c] = to_byte(sharp * 255.0f);
            }
    }
}
