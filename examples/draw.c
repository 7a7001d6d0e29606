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
