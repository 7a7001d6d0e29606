/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted references for what outlives a call and may be shared between threads: cached plans and
 * executables. A df_counted is the first member of the value it counts.
 */
#ifndef DF_BASE_COUNTED_H
#define DF_BASE_COUNTED_H

#include <stdatomic.h>

#include "base/compiler.h"

typedef struct df_counted {
    atomic_size_t refs;
    void (*destroy)(struct df_counted *self); /* called by whoever drops the last reference */
} df_counted;

/* One reference, the caller's. */
DF_INLINE void df_counted_init(df_counted *c, void (*destroy)(df_counted *self))
{
    atomic_init(&c->refs, 1);
    c->destroy = destroy;
}

/* One reference more. c must be held by the caller or by something the caller has locked. */
DF_INLINE df_counted *df_counted_ref(df_counted *c)
{
    const size_t before = atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    (void)before;
    df_assert(before > 0);
    return c;
}

/* Gives one reference back and leaves *c NULL; NULL is fine. */
DF_INLINE void df_counted_drop(df_counted **c)
{
    df_counted *const value = *c;
    *c = NULL;
    /* acquire-release: the destroyer must see what every other holder wrote. */
    if (value && atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) == 1)
        value->destroy(value);
}

#endif
