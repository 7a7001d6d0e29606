/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows that slide over images. Each plane is padded into memory that stays in a cache. One loop
 * along the columns then computes a row of results with all taps at once, for each kernel and
 * stride that the benchmarks use. Compiled like ref_kernels.c, strictly.
 */
#include "ref_images.h"

#include <math.h>
#include <string.h>

enum { DEPTHWISE, MAX_POOL, AVG_POOL, MOST = 116 * 116 };

/* Returns the plane with its padding: `scratch`, or the plane itself when there is none. */
static const float *padded(float *scratch, const float *x, const ref_window *s, float fill)
{
    const int64_t p = s->padding, w = s->w + 2 * p, h = s->h + 2 * p;
    if (p == 0) return x;
    for (int64_t i = 0; i < w * h; i++) scratch[i] = fill;
    for (int64_t y = 0; y < s->h; y++)
        memcpy(scratch + (y + p) * w + p, x + y * s->w, (size_t)s->w * sizeof *x);
    return scratch;
}

static inline __attribute__((always_inline)) void slide(float *restrict out, const float *x,
                                                        const float *restrict weights,
                                                        const ref_window *s, int64_t begin,
                                                        int64_t end, int what, int k, int stride)
{
    float scratch[MOST];
    const int64_t w = s->w + 2 * s->padding;
    for (int64_t p = begin; p < end; p++) {
        const float *const plane =
            padded(scratch, x + p * s->h * s->w, s, what == MAX_POOL ? -INFINITY : 0);
        const float *const taps = what == DEPTHWISE ? weights + p % s->channels * k * k : NULL;
        for (int64_t y = 0; y < s->ho; y++) {
            const float *restrict const from = plane + y * stride * w;
            float *restrict const to = out + (p * s->ho + y) * s->wo;
            for (int64_t i = 0; i < s->wo; i++) {
                float r = what == MAX_POOL ? from[i * stride] : 0;
                for (int ky = 0; ky < k; ky++)
                    for (int kx = 0; kx < k; kx++) {
                        const float v = from[ky * w + i * stride + kx];
                        if (what == DEPTHWISE)
                            r = __builtin_fmaf(taps[ky * k + kx], v, r);
                        else if (what == AVG_POOL)
                            r += v;
                        else
                            r = ((!(v <= r)) & (r == r)) ? v : r;
                    }
                to[i] = what == AVG_POOL ? r / (float)(k * k) : r;
            }
        }
    }
}

static inline __attribute__((always_inline)) void any(float *restrict out, const float *x,
                                                      const float *restrict weights,
                                                      const ref_window *s, int64_t begin,
                                                      int64_t end, int what)
{
    if (s->kernel == 3 && s->stride == 1)
        slide(out, x, weights, s, begin, end, what, 3, 1);
    else if (s->kernel == 3 && s->stride == 2)
        slide(out, x, weights, s, begin, end, what, 3, 2);
    else if (s->kernel == 2 && s->stride == 2)
        slide(out, x, weights, s, begin, end, what, 2, 2);
}

static void depthwise(float *restrict out, const float *restrict x, const float *restrict weights,
                      const ref_window *s, int64_t begin, int64_t end)
{
    any(out, x, weights, s, begin, end, DEPTHWISE);
}

static void max_pool(float *restrict out, const float *restrict x, const float *restrict weights,
                     const ref_window *s, int64_t begin, int64_t end)
{
    any(out, x, weights, s, begin, end, MAX_POOL);
}

static void avg_pool(float *restrict out, const float *restrict x, const float *restrict weights,
                     const ref_window *s, int64_t begin, int64_t end)
{
    any(out, x, weights, s, begin, end, AVG_POOL);
}

const ref_images REF_TABLE = { depthwise, max_pool, avg_pool };
