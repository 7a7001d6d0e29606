/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache line at a time, by the stores that need not read it before.
 */
#include "ref_copy.h"

#include <emmintrin.h>

void ref_copy_stream(void *to, const void *from, size_t size)
{
    __m128i *const t = to;
    const __m128i *const f = from;
    for (size_t i = 0; i < size / sizeof *t; i += 4)
        for (size_t k = i; k < i + 4; k++) _mm_stream_si128(&t[k], _mm_load_si128(&f[k]));
    _mm_sfence();
}
