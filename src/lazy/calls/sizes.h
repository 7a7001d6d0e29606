/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls on results whose size depends on data, and on parts of an order, share with the room
 * above.
 */
#ifndef DF_LAZY_SIZES_H
#define DF_LAZY_SIZES_H

#include "lazy/core/recorder.h"

/* Checks that a result of call `what` may have max rows, and sets *out to its shape. Returns false
 * with the error recorded. */
bool df_check_room(deft_ctx *cx, const char *what, int64_t max, df_shape *out);

/* The elements [first, first + m) along an axis of deft_sort(t, axis, false), without a sort of the
 * rest. The axis and the positions exist. */
deft_tensor *df_order_part(deft_tensor *t, int axis, int64_t first, int64_t m);

#endif
