/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache line at a time, by the stores that need not read it before, and by plain loads.
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

void ref_read_all(const void *from, size_t size)
{
    static _Thread_local volatile int sink;
    const __m128i *const f = from;
    __m128i all[4] = { _mm_setzero_si128() };
    for (size_t i = 0; i < size / sizeof *f; i += 4)
        for (size_t k = 0; k < 4; k++) all[k] = _mm_or_si128(all[k], _mm_load_si128(&f[i + k]));
    const __m128i one = _mm_or_si128(all[0], all[1]), two = _mm_or_si128(all[2], all[3]);
    sink = _mm_cvtsi128_si32(_mm_or_si128(one, two));
    (void)sink;
}
