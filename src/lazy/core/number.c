/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of bare numbers. They have no record, because a number takes the dtype of the
 * tensors it meets.
 */
#include "lazy/core/lazy.h"

#include <string.h>

/* Makes a handle without a record. Each use appends a record in the dtype that the use
 * needs. */
static deft_tensor *weak(deft_ctx *cx, int64_t bits, deft_dtype t, uint8_t flags)
{
    deft_tensor *const n = df_handle_new(cx, 0);
    if (!n) return NULL;
    n->epoch = 0;
    n->flags |= (uint8_t)(DF_HANDLE_WEAK | flags);
    n->number = bits;
    n->place = (uint32_t)t;
    return n;
}

deft_tensor *df_weak_f(deft_ctx *cx, double value, uint8_t flags)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return cx ? weak(cx, bits, DEFT_F64, flags) : NULL;
}

deft_tensor *df_weak_i(deft_ctx *cx, int64_t value, uint8_t flags)
{
    return cx ? weak(cx, value, DEFT_I64, flags) : NULL;
}

deft_tensor *df_weak_u(deft_ctx *cx, uint64_t value, uint8_t flags)
{
    return cx ? weak(cx, (int64_t)value, value > INT64_MAX ? DEFT_U64 : DEFT_I64, flags) : NULL;
}
