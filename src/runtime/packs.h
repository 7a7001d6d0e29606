/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed copies of weights: the elements of a matrix once more, in the order in which the
 * micro-kernels of products read them.
 *
 * A copy belongs to the buffer that it was made from. Whoever changes the elements of a buffer
 * calls df_buffer_changed, and the copies of the buffer are dropped. They are also dropped with the
 * buffer, and when memory is short. A run that uses a copy holds a reference to it meanwhile.
 *
 * A copy costs about as much as one or two products, so it pays from the third use on. It is made
 * when a product wants the layout that the latest product with this buffer wanted, too. All
 * copies together take at most max_bytes. When there is no room, copies make place that were not
 * used for a long time. No other copy does: programs whose weights take more would else pack in
 * turns.
 *
 * Any thread may call all functions.
 */
#ifndef DF_RUNTIME_PACKS_H
#define DF_RUNTIME_PACKS_H

#include "runtime/buffer.h"

typedef struct df_packs df_packs;

/* Which elements of a buffer are packed, and how. There is no padding, because keys are compared
 * as bytes. */
typedef struct df_pack_key {
    int64_t offset;      /* of the first element, in bytes */
    int64_t k, n;        /* rows and columns */
    int64_t row, column; /* strides, in elements */
    uint32_t size;       /* of an element, in bytes */
    uint32_t width;      /* columns of a panel */
} df_pack_key;

/* The allocator gets a watcher, and must outlive the copies. */
deft_status df_packs_create(df_diag *d, const df_mem *mem, df_allocator *a, uint64_t max_bytes,
                            df_packs **out);
void df_packs_destroy(df_packs **p); /* *p may be NULL */

/* Returns a new reference to the copy, or NULL when there is none. In the latter case *make says
 * whether the caller should make a copy of `bytes` bytes, and add it. The caller holds a reference
 * to `owner`, whose elements nobody may be writing. */
df_buffer *df_packs_find(df_packs *p, df_buffer *owner, const df_pack_key *key, int64_t bytes,
                         bool *make);
/* Keeps a copy that was made for `owner`, by a reference of its own. When there is no memory, the
 * copy is not kept. */
void df_packs_add(df_packs *p, df_buffer *owner, const df_pack_key *key, df_buffer *copy);

#endif
