/* SPDX-License-Identifier: Apache-2.0
 *
 * df_bits_load, df_bits_store and memcpy of one element whose size only a variable has. They are
 * moves here. Under AddressSanitizer a memcpy of a variable size is a call that checks a range,
 * which takes 20 times as long.
 */
#ifndef TEST_ELEMENTS_H
#define TEST_ELEMENTS_H

#include "base/bits.h"

/* The bits of the element at `at`, which has 1, 2, 4 or 8 bytes. */
static inline uint64_t element_load(const void *at, size_t size)
{
    switch (size) {
    case 1: return df_bits_load(at, 1);
    case 2: return df_bits_load(at, 2);
    case 4: return df_bits_load(at, 4);
    default: return df_bits_load(at, 8);
    }
}

static inline void element_store(void *at, uint64_t bits, size_t size)
{
    switch (size) {
    case 1: df_bits_store(at, bits, 1); break;
    case 2: df_bits_store(at, bits, 2); break;
    case 4: df_bits_store(at, bits, 4); break;
    default: df_bits_store(at, bits, 8);
    }
}

static inline void element_copy(void *to, const void *from, size_t size)
{
    element_store(to, element_load(from, size), size);
}

#endif
