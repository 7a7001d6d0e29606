/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain C checks for the image example: sharpening by an unsharp mask.
 */
#ifndef EXAMPLES_REF_IMAGE_REF_H
#define EXAMPLES_REF_IMAGE_REF_H

#include <stddef.h>
#include <stdint.h>

/* Sharpens an RGB picture (3 bytes per pixel, width and height >= 1, rows src_pitch and dst_pitch
 * bytes apart, each >= 3 * width). dst and src do not overlap; bytes of dst beyond a row's end are
 * left alone. Per channel, in f32, each operation rounded once in the order of the parentheses:
 *
 *   p      = value / 255
 *   h      = (left + right) + p * 2                 of p, along the row
 *   blur   = ((h above + h below) + h * 2) / 16     the binomial 3 x 3 kernel 1 2 1, 2 4 2, 1 2 1
 *   sharp  = p + (p - blur) * amount
 *   result = round(clamp(sharp * 255, 0, 255))      to the nearest integer, ties to even
 *
 * Beyond the edge the picture continues with its outermost pixels. A strict context gives the same
 * bytes. Build with -ffp-contract=off. */
void image_ref(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch, int width,
               int height, float amount);

#endif
