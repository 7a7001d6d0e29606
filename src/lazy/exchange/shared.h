/* SPDX-License-Identifier: Apache-2.0
 *
 * What all calls share that give values to other libraries.
 */
#ifndef DF_LAZY_SHARED_H
#define DF_LAZY_SHARED_H

#include "lazy/core/devices.h"

/* Whether the memory of v may change, or end at a time that deft does not know, while a consumer
 * has it. Then the consumer gets a copy. */
DF_INLINE bool df_must_copy(const df_value *v)
{
    return v->flags & DF_VALUE_MUT || (v->flags & DF_VALUE_WRAPPED && !v->buf->release.fn);
}

/* Adds a reference to the runtime of cx, which any thread may give back by deft_runtime_destroy. */
DF_INLINE deft_runtime *df_runtime_ref(deft_ctx *cx)
{
    atomic_fetch_add(&cx->rt->refs, 1);
    return cx->rt;
}

#endif
