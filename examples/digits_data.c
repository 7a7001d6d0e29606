/* SPDX-License-Identifier: Apache-2.0 */
#include "digits_data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_SIZE = 16, MAX_IMAGES = 1000000 };

static uint32_t little_endian(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool all_at_most(const uint8_t *values, size_t n, uint8_t most)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] > most) return false;
    return true;
}

static digits_status read_images(FILE *file, digits *d)
{
    uint8_t header[HEADER_SIZE];
    if (fread(header, 1, sizeof header, file) != sizeof header ||
        memcmp(header, "DIGITS01", 8) != 0)
        return DIGITS_BAD;
    d->n_images = little_endian(header + 8);
    d->n_train = little_endian(header + 12);
    if (d->n_images < 1 || d->n_images > MAX_IMAGES || d->n_train > d->n_images) return DIGITS_BAD;

    const size_t n = d->n_images, n_pixels = n * DIGITS_PIXELS;
    d->pixels = malloc(n_pixels);
    d->labels = malloc(n);
    if (!d->pixels || !d->labels) return DIGITS_NO_MEMORY;
    if (fread(d->pixels, 1, n_pixels, file) != n_pixels || fread(d->labels, 1, n, file) != n)
        return DIGITS_BAD;
    if (fgetc(file) != EOF) return DIGITS_BAD;
    return all_at_most(d->pixels, n_pixels, DIGITS_DARKEST) && all_at_most(d->labels, n, 9)
               ? DIGITS_OK
               : DIGITS_BAD;
}

digits_status digits_load(const char *path, digits *out)
{
    *out = (digits){ 0 };
    FILE *file = fopen(path, "rb");
    if (!file) return DIGITS_NO_FILE;
    digits_status st = read_images(file, out);
    if (ferror(file)) st = DIGITS_NO_FILE;
    fclose(file);
    if (st != DIGITS_OK) digits_free(out);
    return st;
}

void digits_free(digits *d)
{
    free(d->pixels);
    free(d->labels);
    *d = (digits){ 0 };
}

const char *digits_message(digits_status status)
{
    switch (status) {
    case DIGITS_OK: return "ok";
    case DIGITS_NO_FILE: return "the file cannot be opened or read";
    case DIGITS_NO_MEMORY: return "out of memory";
    case DIGITS_BAD: return "the file is no digits file, or it is damaged";
    }
    return "unknown status";
}
