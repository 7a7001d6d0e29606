/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about dtypes (deft/array.h).
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "lazy/arrays/arrays.h"

#include <math.h>

static bool exists(deft_dtype t)
{
    return (unsigned)t < DEFT_N_DTYPES;
}

deft_float_info deft_finfo(deft_dtype dtype)
{
    deft_float_info out = { 0 };
    if (!exists(dtype)) return out;
    dtype = df_record_dtype(dtype); /* of a complex dtype: what its parts can hold */
    if (!df_is_float(dtype)) return out;
    /* The exponent bits of infinity are all ones, so those of 1 are half of the number. */
    const int fraction = (int)df_fraction_of(dtype);
    const int greatest =
        (int)(df_one_bits(dtype) >> fraction); /* exponent of the greatest number */
    out.bits = (int)df_bits_of(dtype);
    out.eps = ldexp(1, -fraction);
    out.max = ldexp(2 - out.eps, greatest);
    out.min = -out.max;
    out.smallest_normal = ldexp(1, 1 - greatest);
    return out;
}

deft_int_info deft_iinfo(deft_dtype dtype)
{
    deft_int_info out = { 0 };
    if (!exists(dtype) || !df_is_int(dtype)) return out;
    out.bits = (int)df_bits_of(dtype);
    out.min = df_int_least(dtype);
    out.max = (uint64_t)df_int_greatest(dtype);
    return out;
}

bool deft_isdtype(deft_dtype dtype, unsigned kinds)
{
    if (!exists(dtype)) return false;
    const unsigned own = df_is_stored(dtype)     ? 0
                         : df_is_complex(dtype)  ? DEFT_KIND_COMPLEX
                         : df_is_float(dtype)    ? DEFT_KIND_REAL
                         : df_is_unsigned(dtype) ? DEFT_KIND_UNSIGNED
                         : df_is_signed(dtype)   ? DEFT_KIND_SIGNED
                                                 : DEFT_KIND_BOOL;
    return (own & kinds) != 0;
}

bool deft_can_cast(deft_dtype from, deft_dtype to)
{
    return exists(from) && exists(to) && df_promote(from, to) == to;
}

deft_dtype deft_result_type(deft_tensor *const *t, size_t n)
{
    deft_dtype tensors = DEFT_BOOL, all;
    bool has_tensor = false, has_number = false;
    for (size_t i = 0; t && i < n; i++) {
        if (!t[i] || t[i]->flags & DF_HANDLE_WEAK) continue;
        const deft_dtype own = deft_dtype_of(t[i]);
        tensors = has_tensor ? df_promote(tensors, own) : own;
        has_tensor = true;
    }
    all = tensors;
    for (size_t i = 0; t && i < n; i++) {
        if (!t[i] || !(t[i]->flags & DF_HANDLE_WEAK)) continue;
        const deft_dtype as = df_weak_dtype(t[i], has_tensor ? tensors : deft_dtype_of(t[i]));
        all = has_tensor || has_number ? df_promote(all, as) : as;
        has_number = true;
    }
    return all;
}
