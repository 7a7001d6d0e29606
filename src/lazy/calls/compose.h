/* SPDX-License-Identifier: Apache-2.0
 *
 * Composites on records that other composites are made of. DF_BAD passes through.
 */
#ifndef DF_LAZY_COMPOSE_H
#define DF_LAZY_COMPOSE_H

#include "lazy/core/recorder.h"

/* The record of an operand after the first. */
uint32_t df_operand(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t);

/* join.c: n pieces one after another along axis; their other extents and dtypes agree. */
uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site);

/* a with before[i] elements of record fill, which is 0-d, before it on axis i: out is the whole
 * shape. */
uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site);

#endif
