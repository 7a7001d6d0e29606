/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls on results whose size depends on data share with the room above.
 */
#ifndef DF_LAZY_SIZES_H
#define DF_LAZY_SIZES_H

#include "lazy/core/recorder.h"

/* Checks that a result of call `what` may have max rows, and sets *out to its shape. Returns false
 * with the error recorded. */
bool df_check_room(deft_ctx *cx, const char *what, int64_t max, df_shape *out);

/* deft_unique of record a, which is not of complex numbers. max is checked. */
deft_tensor *df_unique(deft_ctx *cx, uint32_t a, int64_t max, deft_tensor **count, uintptr_t site);

#endif
