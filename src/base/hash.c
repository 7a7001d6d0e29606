/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3-128, compiled from the header of xxHash, so that no library is linked. The hash of given
 * bytes is the same on every machine.
 */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

df_hash df_hash_bytes(const void *bytes, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (df_hash){ .lo = h.low64, .hi = h.high64 };
}
