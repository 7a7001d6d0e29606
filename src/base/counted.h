/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference counts for values that outlive a call and that threads may share, such as cached plans
 * and executables. A df_counted is the first member of the value whose references it counts.
 */
#ifndef DF_BASE_COUNTED_H
#define DF_BASE_COUNTED_H

#include <stdatomic.h>

#include "base/compiler.h"

typedef struct df_counted {
    atomic_size_t refs;
    void (*destroy)(struct df_counted *self); /* called by the thread that drops the last one */
} df_counted;

/* Initialises the count to one reference, which the caller owns. */
DF_INLINE void df_counted_init(df_counted *c, void (*destroy)(df_counted *self))
{
    atomic_init(&c->refs, 1);
    c->destroy = destroy;
}

/* Adds a reference, which the caller owns, and returns c. During the call another reference must
 * exist, which the caller owns or which a lock of the caller protects. */
DF_INLINE df_counted *df_counted_ref(df_counted *c)
{
    const size_t before = atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    (void)before;
    df_assert(before > 0);
    return c;
}

/* Drops one reference and sets *c to NULL. *c may be NULL. */
DF_INLINE void df_counted_drop(df_counted **c)
{
    df_counted *const value = *c;
    *c = NULL;
    /* acquire-release: destroy must see everything that the other owners wrote. */
    if (value && atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) == 1)
        value->destroy(value);
}

#endif
