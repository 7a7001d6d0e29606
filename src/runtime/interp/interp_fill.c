/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills vectors with one value.
 */
#include "runtime/interp/interp_run.h"

#include <string.h>

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

void df_put_bits(void *dst, uint64_t v, size_t size)
{
    const uint8_t v1 = (uint8_t)v;
    const uint16_t v2 = (uint16_t)v;
    const uint32_t v4 = (uint32_t)v;
    memcpy(dst,
           size == 1   ? (const void *)&v1
           : size == 2 ? (const void *)&v2
           : size == 4 ? (const void *)&v4
                       : (const void *)&v,
           size);
}

void df_splat_bits(void *dst, uint64_t bits, size_t size, uint32_t n)
{
    char value[8];
    df_put_bits(value, bits, size);
    df_splat(dst, value, size, n);
}
