/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of buffers: multiples of 64 up to 512 bytes, then eight sizes per power of two. So the
 * memory of one buffer can be reused for others of nearly its size. The sizes in a plan
 * (fuser/plan.h) are therefore those that the allocator uses.
 */
#ifndef DF_BASE_SIZE_CLASS_H
#define DF_BASE_SIZE_CLASS_H

#include <stdint.h>

#include "base/compiler.h"

#define DF_SIZE_CLASS_ALIGN 64u

/* Returns the index of the smallest class of at least `bytes` bytes, and stores its size. */
DF_INLINE uint32_t df_size_class(uint64_t bytes, uint64_t *size)
{
    if (bytes <= 8 * DF_SIZE_CLASS_ALIGN) {
        const uint64_t n = bytes ? (bytes + DF_SIZE_CLASS_ALIGN - 1) / DF_SIZE_CLASS_ALIGN : 1;
        *size = n * DF_SIZE_CLASS_ALIGN;
        return (uint32_t)n - 1;
    }
    const unsigned high = 63 - (unsigned)__builtin_clzll(bytes - 1); /* 2^high <= bytes - 1 */
    const uint32_t eighth = (uint32_t)((bytes - 1) >> (high - 3) & 7);
    *size = (uint64_t)(8 + eighth + 1) << (high - 3);
    return 8 + (high - 9) * 8 + eighth;
}

/* The size of the class for a buffer of that many bytes; 0 when bytes <= 0, where no buffer is
 * needed. */
DF_INLINE int64_t df_buffer_bytes(int64_t bytes)
{
    uint64_t size = 0;
    if (bytes > 0) (void)df_size_class((uint64_t)bytes, &size);
    return (int64_t)size;
}

/* The largest size of a class that is at most `bytes`; 0 when there is none. */
DF_INLINE uint64_t df_size_class_within(uint64_t bytes)
{
    if (bytes <= 8 * DF_SIZE_CLASS_ALIGN) return bytes / DF_SIZE_CLASS_ALIGN * DF_SIZE_CLASS_ALIGN;
    const unsigned high = 63 - (unsigned)__builtin_clzll(bytes);
    return bytes >> (high - 3) << (high - 3);
}

#endif
