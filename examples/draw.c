/* SPDX-License-Identifier: Apache-2.0 */
#include "draw.h"

enum { SIDE = 8, DARKEST = 16, WIDTH = 16 };

/* Two characters per pixel: terminal cells are about twice as high as wide. */
static void draw_row(FILE *out, const uint8_t *row)
{
    static const char shades[] = " .:-=+*#%@";
    enum { N_SHADES = sizeof shades - 1 };
    for (int x = 0; x < SIDE; x++) {
        const int p = row[x] < DARKEST ? row[x] : DARKEST;
        const char c = shades[p * (N_SHADES - 1) / DARKEST];
        fputc(c, out);
        fputc(c, out);
    }
}

void draw_digits(FILE *out, const uint8_t *const digits[], const char *const captions[], int n)
{
    for (int y = 0; y < SIDE; y++) {
        for (int i = 0; i < n; i++) {
            if (i) fputs("  ", out);
            draw_row(out, digits[i] + y * SIDE);
        }
        fputc('\n', out);
    }
    if (!captions) return;
    for (int i = 0; i < n; i++) fprintf(out, "%s%-*.*s", i ? "  " : "", WIDTH, WIDTH, captions[i]);
    fputc('\n', out);
}

/* The mean of what stands in column x. */
static float column(const float *values, int n, int columns, int x)
{
    const int from = (int)((long long)x * n / columns);
    int to = (int)((long long)(x + 1) * n / columns);
    if (to <= from) to = from + 1;
    float sum = 0;
    for (int i = from; i < to; i++) sum += values[i];
    return sum / (float)(to - from);
}

void draw_curve(FILE *out, const float *values, int n, int columns, int lines)
{
    float low = column(values, n, columns, 0), high = low;
    for (int x = 1; x < columns; x++) {
        const float v = column(values, n, columns, x);
        if (v < low) low = v;
        if (v > high) high = v;
    }
    const float height = high > low ? (high - low) / (float)(lines - 1) : 1;
    for (int y = 0; y < lines; y++) {
        const float at = high - height * (float)y;
        if (y == 0 || y == lines - 1)
            fprintf(out, "%8.3f |", (double)at);
        else
            fputs("         |", out);
        for (int x = 0; x < columns; x++) {
            const float from = at - column(values, n, columns, x);
            fputc(from < height / 2 && from >= -height / 2 ? '*' : ' ', out);
        }
        fputc('\n', out);
    }
}
