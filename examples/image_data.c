/* SPDX-License-Identifier: Apache-2.0 */
#include "image_data.h"

/* Noise in [0, 16) from a pixel's place: the finalizer of MurmurHash3 (Appleby, public domain). */
static int noise(uint32_t x, uint32_t y)
{
    uint32_t h = x * 0x9E3779B1u ^ y * 0x85EBCA77u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return (int)((h ^ h >> 16) & 15);
}

static uint8_t to_byte(int v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* A triangle wave of the squared distance from the centre: rings that get finer outwards. */
static int rings(int64_t dx, int64_t dy, int64_t scale)
{
    const int phase = (int)((dx * dx + dy * dy) * 64 / scale % 256);
    return phase < 128 ? phase : 255 - phase;
}

void image_data_fill(uint8_t *rgb, int width, int height, size_t pitch)
{
    const int64_t scale = (int64_t)width * 4 + 1;
    for (int y = 0; y < height; y++) {
        uint8_t *row = rgb + (size_t)y * pitch;
        for (int x = 0; x < width; x++) {
            const int slope_x = (int)((int64_t)x * 200 / width),
                      slope_y = (int)((int64_t)y * 200 / height);
            const int ring = rings(2 * (int64_t)x - width, 2 * (int64_t)y - height, scale);
            const int square = (x / 16 + y / 16) % 2 ? 24 : -24;
            const int grain = noise((uint32_t)x, (uint32_t)y);
            row[3 * x + 0] = to_byte(slope_x + ring / 2 + grain);
            row[3 * x + 1] = to_byte(slope_y + square + ring + grain);
            row[3 * x + 2] = to_byte(255 - slope_x / 2 - slope_y / 2 + square - ring / 2 + grain);
        }
    }
}
