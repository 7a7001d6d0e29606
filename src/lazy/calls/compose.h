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

#endif
