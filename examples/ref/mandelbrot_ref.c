/* SPDX-License-Identifier: Apache-2.0 */
#include "mandelbrot_ref.h"

/* Leaving at the first round outside is the same: a point outside stays where it is. */
static int32_t rounds_near(float cx, float cy, int32_t n_iter)
{
    float x = 0, y = 0;
    for (int32_t i = 0; i < n_iter; i++) {
        const float x2 = x * x, y2 = y * y;
        if (!(x2 + y2 <= 4.0f)) return i;
        y = x * y * 2.0f + cy;
        x = x2 - y2 + cx;
    }
    return n_iter;
}

void mandelbrot_ref(int32_t *count, const float *cx, const float *cy, int64_t width, int64_t height,
                    int32_t n_iter)
{
    for (int64_t row = 0; row < height; row++)
        for (int64_t column = 0; column < width; column++)
            count[row * width + column] = rounds_near(cx[column], cy[row], n_iter);
}
