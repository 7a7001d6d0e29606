/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws with terminal characters: 8x8 digits, several beside each other, and curves.
 */
#ifndef EXAMPLES_DRAW_H
#define EXAMPLES_DRAW_H

#include <stdint.h>
#include <stdio.h>

/* Draws n digits side by side, eight lines of 16 columns each with two spaces between, darker
 * pixels with denser characters, and under each its caption (cut at 16 characters; captions may be
 * NULL). digits[i] points to 64 pixels of 0..16. */
void draw_digits(FILE *out, const uint8_t *const digits[], const char *const captions[], int n);

/* Draws n values (at least 1, none NaN) as a curve of columns x lines characters, means of
 * neighbours where there are more values than columns, its ends labelled on the left. */
void draw_curve(FILE *out, const float *values, int n, int columns, int lines);

#endif
