/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads examples/data/digits.bin (format and origin in examples/data/README.md).
 */
#ifndef EXAMPLES_DIGITS_DATA_H
#define EXAMPLES_DIGITS_DATA_H

#include <stdint.h>

enum { DIGITS_PIXELS = 64, DIGITS_SIDE = 8, DIGITS_CLASSES = 10, DIGITS_DARKEST = 16 };

typedef struct digits {
    uint32_t n_images; /* all of them; at least 1 */
    uint32_t n_train;  /* images [0, n_train) are for training, the rest for testing */
    uint8_t *pixels;   /* n_images x 64, 0..16 */
    uint8_t *labels;   /* n_images, 0..9 */
} digits;

typedef enum digits_status {
    DIGITS_OK,
    DIGITS_NO_FILE,   /* cannot be opened or read */
    DIGITS_NO_MEMORY, /* not enough memory */
    DIGITS_BAD        /* not a digits file, cut short, too long, or values out of range */
} digits_status;

/* Fills *out and makes the caller its owner; on failure *out is all zero. */
digits_status digits_load(const char *path, digits *out);

/* Releases the arrays and zeroes *d. An all-zero *d is fine. */
void digits_free(digits *d);

/* One sentence for a status. */
const char *digits_message(digits_status status);

#endif
