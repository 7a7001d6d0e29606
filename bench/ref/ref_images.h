/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows that slide over images, in C that was written for the purpose; one table per compiler
 * found. Images are [planes, h, w], a plane being a channel of an image. Results are [planes, ho,
 * wo]. A caller splits the planes over threads. Sums are in the order of deft_conv2d and
 * deft_avg_pool2d, so that the bits are equal.
 */
#ifndef REF_IMAGES_H
#define REF_IMAGES_H

#include <stdint.h>

typedef struct ref_window {
    int64_t channels, h, w, ho, wo; /* channels: plane p has the weights of channel p % channels */
    int64_t kernel, stride, padding;
} ref_window;

typedef void ref_slide_fn(float *restrict out, const float *restrict x,
                          const float *restrict weights, const ref_window *s, int64_t begin,
                          int64_t end);

typedef struct ref_images {
    ref_slide_fn *depthwise;           /* weights [channels, kernel, kernel] */
    ref_slide_fn *max_pool, *avg_pool; /* no weights */
} ref_images;

extern const ref_images ref_images_gcc, ref_images_clang;

#endif
