/* SPDX-License-Identifier: Apache-2.0
 *
 * 128-bit hashes by xxHash (XXH3). A hash only finds candidates: code that uses a hash must compare
 * all bytes afterwards.
 */
#ifndef DF_BASE_HASH_H
#define DF_BASE_HASH_H

#include "base/compiler.h"

typedef struct df_hash {
    uint64_t lo, hi;
} df_hash;

df_hash df_hash_bytes(const void *bytes, size_t n);

DF_INLINE bool df_hash_equal(df_hash a, df_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Mixes a word into a running 64-bit hash. For hash tables within one pass, never for keys. */
DF_INLINE uint64_t df_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

#endif
