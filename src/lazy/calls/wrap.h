/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of memory that belongs to someone else, for the calls that take such memory in.
 */
#ifndef DF_LAZY_WRAP_H
#define DF_LAZY_WRAP_H

#include "lazy/core/devices.h"

/* Memory that a tensor is to borrow. */
typedef struct df_wrapping {
    const char *what;          /* the public call, for messages */
    deft_device where;         /* the device of the memory */
    deft_dtype dtype;          /* may be no dtype: df_wrap checks it */
    const deft_shape *shape;   /* checked, too */
    void *data;                /* the lowest address */
    size_t bytes;              /* all elements must lie in them */
    const int64_t *strides;    /* per axis, in elements; NULL: row-major */
    bool is_mutable;           /* assignments write the memory */
    df_buffer_release release; /* called when nothing uses the memory any more */
} df_wrapping;

/* Makes a tensor of memory. Where strides are negative, the first element is not the lowest one.
 * Returns NULL with the error recorded; `release` is then never called. cx may be NULL. */
deft_tensor *df_wrap(deft_ctx *cx, const df_wrapping *w);

/* The lowest and the highest offset that elements reach from the first one, in elements. Both are
 * 0 for one element. *high is -1 when there is none. Returns false on overflow. */
bool df_strides_reach(const df_shape *s, const int64_t *stride, int64_t *low, int64_t *high);

#endif
