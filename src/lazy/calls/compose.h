/* SPDX-License-Identifier: Apache-2.0
 *
 * Composites on records, of which other composites are made. Each returns DF_BAD, with
 * the error recorded, on failure, and also when an operand is DF_BAD.
 */
#ifndef DF_LAZY_COMPOSE_H
#define DF_LAZY_COMPOSE_H

#include "lazy/core/recorder.h"

/* The record of t, an operand after the first one. `what` and `which` (from 1) are for
 * messages. DF_BAD when t cannot be used. */
uint32_t df_operand(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t);

/* The n pieces one after another along axis (join.c). Their dtypes and their other
 * extents are equal. */
uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site);

/* a with padding: on axis i, before[i] elements of the 0-d record `fill` before it, and
 * as many after it as the extents of the result, `out`, need. */
uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site);

#endif
