/* SPDX-License-Identifier: Apache-2.0
 *
 * A bump allocator: pieces of one block of memory, each behind the other. A caller takes the
 * same pieces twice: first without a block, to learn how large the block must be, and then from
 * the block.
 */
#ifndef DF_BASE_BUMP_H
#define DF_BASE_BUMP_H

#include "base/compiler.h"

typedef struct df_bump {
    char *at;    /* the block, aligned to 64 bytes; borrowed. NULL: sizes are only added up */
    size_t used; /* bytes taken so far */
} df_bump;

/* Takes size bytes, aligned to 64. Returns NULL while there is no block. The caller sees to it that
 * the block is large enough. */
DF_INLINE void *df_bump_take(df_bump *b, size_t size)
{
    void *const p = b->at ? b->at + b->used : NULL;
    b->used += (size + 63) & ~(size_t)63;
    return p;
}

#endif
