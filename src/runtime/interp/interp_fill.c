/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills vectors with one value.
 */
#include "runtime/interp/interp_run.h"

#include <string.h>

#include "base/bits.h"

void df_splat(void *dst, const void *value, size_t size, uint32_t n)
{
    if (size == 1) {
        memset(dst, *(const unsigned char *)value, n);
    } else if (size == 2) {
        uint16_t v, *const d = dst;
        memcpy(&v, value, sizeof v);
        for (uint32_t i = 0; i < n; i++) d[i] = v;
    } else if (size == 4) {
        uint32_t v, *const d = dst;
        memcpy(&v, value, sizeof v);
        for (uint32_t i = 0; i < n; i++) d[i] = v;
    } else {
        uint64_t v, *const d = dst;
        memcpy(&v, value, sizeof v);
        for (uint32_t i = 0; i < n; i++) d[i] = v;
    }
}

void df_splat_bits(void *dst, uint64_t bits, size_t size, uint32_t n)
{
    char value[8];
    df_bits_store(value, bits, size);
    df_splat(dst, value, size, n);
}
