/* SPDX-License-Identifier: Apache-2.0
 *
 * Composites on records, of which other composites are made. Each returns DF_BAD on
 * failure, with the error recorded. All functions need the thread of the context.
 */
#ifndef DF_LAZY_COMPOSE_H
#define DF_LAZY_COMPOSE_H

#include "lazy/core/recorder.h"

/* The record of t, an operand after the first one. `what` and `which` (from 1) are for
 * messages. DF_BAD when t cannot be used. */
uint32_t df_operand(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t);

/* A tensor of shape *out that contains a and is `fill` elsewhere. On axis i, a begins at
 * index before[i], which is not negative, and ends within the extent of *out. `fill` has
 * rank 0 and the dtype of a. Returns DF_BAD also when a or `fill` is DF_BAD. */
uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site);

/* A window that slides over the last n axes ("sides") of images [N, C, ...], as options describe
 * it. */
enum { DF_SIDES = 3 };
typedef struct df_slide {
    uint32_t n; /* 1 to DF_SIDES */
    int64_t kernel[DF_SIDES], stride[DF_SIDES], dilation[DF_SIDES];
    int64_t padding[DF_SIDES]; /* elements added before and behind */
    int64_t behind[DF_SIDES];  /* elements added behind, beyond the padding */
    int64_t out[DF_SIDES];     /* number of windows */
} df_slide;

/* What messages call side i of n: "rows". */
const char *df_side_name(uint32_t n, uint32_t i);

/* Entry i of an option with a number for each side, where 0 has no meaning and stands for the
 * first entry. When that is 0, too, the result is `otherwise`. */
int64_t df_slide_option(const int64_t *of, uint32_t i, int64_t otherwise);

/* Checks that a padding of n sides was not written as one number without braces. `written` is the
 * text of the options, or NULL. Returns false with the error recorded. */
bool df_check_padding(deft_ctx *cx, const char *what, const int64_t *padding, uint32_t n,
                      const char *written);

/* Checks the numbers of a window. Returns false with the error recorded. */
bool df_slide_check(deft_ctx *cx, const char *what, const df_slide *w);

/* Sets w->out for images of shape s. Returns false, with the error recorded, when no window fits
 * into them. */
bool df_slide_fit(deft_ctx *cx, const char *what, const df_shape *s, df_slide *w);

/* The images a with `fill` around them, as w says. `fill` has rank 0. */
uint32_t df_slide_pad(deft_ctx *cx, uint32_t a, const df_slide *w, uint32_t fill, uintptr_t site);

/* Moves `at`, a position in the window, to the next position in row-major order. After the last
 * one, returns false, and `at` is the first position again. */
bool df_slide_next(const df_slide *w, int64_t at[DF_SIDES]);

/* The elements of padded images a at position `at` of every window: [N, C, w->out]. */
uint32_t df_slide_at(deft_ctx *cx, uint32_t a, const df_slide *w, const int64_t at[DF_SIDES],
                     uintptr_t site);

/* A window that moves over images. Index 0 is for rows, 1 for columns. The element at position
 * (i, j) of window (y, x) is at row start[0] + i * dilation[0] + y * stride[0] of the image, and
 * at column start[1] + j * dilation[1] + x * stride[1]. */
typedef struct df_window {
    int64_t kernel[2]; /* positions of the window */
    int64_t start[2], dilation[2], stride[2];
    int64_t out[2]; /* windows */
} df_window;

/* All windows of images [C, N, H, W]. Each must lie within its image. The result is
 * [C, kh * kw, N, Ho, Wo], or [C, N, Ho, Wo] for a window of one element. fuser/kernels/windows.c
 * describes what is recorded. Resets the arena cx->pass. */
uint32_t df_windows_of(deft_ctx *cx, uint32_t images, const df_window *w, uintptr_t site);

#endif
