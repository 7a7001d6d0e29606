/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements as unsigned numbers, in memory and in files. Values have the byte order of the machine
 * in memory. Files have the low byte first.
 */
#ifndef DF_BASE_BITS_H
#define DF_BASE_BITS_H

#include <string.h>

#include "base/compiler.h"

/* Whether the high byte of a number is first in memory. */
#define DF_IS_BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

/* The bits of the element at `at`, which has 1, 2, 4 or 8 bytes and need not be aligned. */
DF_INLINE uint64_t df_bits_load(const void *at, size_t size)
{
    uint64_t bits = 0;
    memcpy((char *)&bits + (DF_IS_BIG_ENDIAN ? sizeof bits - size : 0), at, size);
    return bits;
}

/* Writes the low bits as an element of 1, 2, 4 or 8 bytes. */
DF_INLINE void df_bits_store(void *at, uint64_t bits, size_t size)
{
    memcpy(at, (const char *)&bits + (DF_IS_BIG_ENDIAN ? sizeof bits - size : 0), size);
}

/* The 8 bytes at `at` as a number whose byte k has the value 2^(8 k). */
DF_INLINE uint64_t df_bits_of_bytes(const void *at)
{
    uint64_t bits;
    memcpy(&bits, at, sizeof bits);
    return DF_IS_BIG_ENDIAN ? __builtin_bswap64(bits) : bits;
}

/* Reverses the bytes of each element. n is the size of all elements in bytes. */
DF_INLINE void df_bits_reverse(void *elements, uint64_t n, uint32_t size)
{
    unsigned char *const at = elements;
    for (uint64_t i = 0; i < n; i += size)
        for (uint32_t k = 0; k < size / 2; k++) {
            const unsigned char low = at[i + k];
            at[i + k] = at[i + size - 1 - k];
            at[i + size - 1 - k] = low;
        }
}

#endif
