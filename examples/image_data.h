/* SPDX-License-Identifier: Apache-2.0
 *
 * A small picture to filter, computed instead of shipped.
 */
#ifndef EXAMPLES_IMAGE_DATA_H
#define EXAMPLES_IMAGE_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Fills rgb (height rows, pitch bytes apart, 3 bytes per pixel; pitch >= 3 * width) with a picture
 * that has soft gradients, hard edges, fine rings and a little noise. The same bytes on every
 * machine: integers only. Bytes between a row's end and the next row are left alone. */
void image_data_fill(uint8_t *rgb, int width, int height, size_t pitch);

#endif
