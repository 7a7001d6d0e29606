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

/* The n pieces one after another along axis (join.c). n is at least 1, and no piece is
 * DF_BAD. The caller has checked that their dtypes and their other extents are equal. */
uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site);

/* A tensor of shape *out that contains a and is `fill` elsewhere. On axis i, a begins at
 * index before[i], which is not negative, and ends within the extent of *out. `fill` has
 * rank 0 and the dtype of a. Returns DF_BAD also when a or `fill` is DF_BAD. */
uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site);

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
