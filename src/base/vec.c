/* SPDX-License-Identifier: Apache-2.0
 *
 * Growth of the arrays that DF_VEC declares. Capacity doubles and is at least 64 bytes, so n pushes
 * cost O(n) and a small array costs one allocation.
 */
#include "base/vec.h"

#include <string.h>

bool df_vec_grow(const df_mem *mem, void **at, size_t n, size_t *cap, size_t elem, size_t n_more)
{
    size_t least, bytes;
    if (__builtin_add_overflow(n, n_more, &least)) return false;
    size_t want = *cap > SIZE_MAX / 2 ? SIZE_MAX : *cap * 2;
    if (want < 64 / elem) want = 64 / elem;
    if (want < least) want = least;
    if (__builtin_mul_overflow(want, elem, &bytes)) {
        want = least;
        if (__builtin_mul_overflow(want, elem, &bytes)) return false;
    }

    /* The pointer *at has another type, T *. So it is copied as bytes and never accessed as void *.
     */
    void *old;
    memcpy(&old, at, sizeof old);
    void *const p = mem->resize(mem->user, old, *cap * elem, bytes);
    if (!p) return false;
    memcpy(at, &p, sizeof p);
    *cap = want;
    return true;
}
