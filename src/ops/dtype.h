/* SPDX-License-Identifier: Apache-2.0
 *
 * The properties of each dtype from dtypes.def, as constants and inline functions, so that a
 * plug-in needs no table of the library. All functions take a valid dtype. The "bits" of a value
 * are its bits in memory, zero-extended to 64.
 *
 * Why this file is long: every property of a dtype is one function here, and nowhere else.
 */
#ifndef DF_OPS_DTYPE_H
#define DF_OPS_DTYPE_H

#include "base/compiler.h"
#include "deft/dtype.h"

/* The kinds of dtypes: dtypes.def. */
typedef enum df_dtype_kind {
    DF_KIND_boolean,
    DF_KIND_natural,
    DF_KIND_integer,
    DF_KIND_real,
    DF_KIND_half,
    DF_KIND_complex,
    DF_KIND_coded,
    DF_KIND_packed
} df_dtype_kind;

/* The index of each row, the number of rows, and the number of dtypes that a record can have. */
enum {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) DF_ROW_##NAME,
#define FACE(name, NAME, kind, bits, record, c_type, file) DF_ROW_##NAME,
#include "ops/dtypes.def"
    DF_N_ROWS,
    DF_N_RECORDED = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) +1
#include "ops/dtypes.def"
};
_Static_assert((int)DF_N_ROWS == DEFT_N_DTYPES, "ops/dtypes.def has a row for each dtype");

#define FACE(name, NAME, kind, bits, record, c_type, file)                                         \
    _Static_assert((int)DF_ROW_##NAME == (int)DEFT_##NAME, #name " stands in the wrong row");      \
    _Static_assert((int)DF_ROW_##NAME >= (int)DF_N_RECORDED, #name " comes after all records");    \
    _Static_assert(sizeof(c_type) * 8 == (bits) * (DF_KIND_##kind == DF_KIND_packed ? 2 : 1),      \
                   #name " has other bits than its C type");
#include "ops/dtypes.def"

#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    _Static_assert((int)DF_ROW_##NAME == (int)DEFT_##NAME, #name " stands in the wrong row");      \
    _Static_assert(sizeof(c_type) * 8 == (bits), #name " has other bits than its C type");         \
    _Static_assert(((fraction) != 0) == (DF_KIND_##kind >= DF_KIND_real),                          \
                   #name " is a float if it has a fraction");                                      \
    _Static_assert(sizeof(file) > 1, #name " has no name in safetensors files");
#include "ops/dtypes.def"

/* Sets of dtypes: bit t of DF_REALS is set when dtype t is a real. */
enum {
    DF_BOOLEANS = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    | (DF_KIND_##kind == DF_KIND_boolean) << DEFT_##NAME
#include "ops/dtypes.def"
    ,
    DF_NATURALS = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    | (DF_KIND_##kind == DF_KIND_natural) << DEFT_##NAME
#include "ops/dtypes.def"
    ,
    DF_INTEGERS = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    | (DF_KIND_##kind == DF_KIND_integer) << DEFT_##NAME
#include "ops/dtypes.def"
    ,
    DF_REALS = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    | (DF_KIND_##kind == DF_KIND_real) << DEFT_##NAME
#include "ops/dtypes.def"
    ,
    DF_HALVES = 0
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    | (DF_KIND_##kind == DF_KIND_half) << DEFT_##NAME
#include "ops/dtypes.def"
};

DF_INLINE df_dtype_kind df_kind_of(deft_dtype t)
{
    static const uint8_t kinds[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) DF_KIND_##kind,
#define FACE(name, NAME, kind, bits, record, c_type, file) DF_KIND_##kind,
#include "ops/dtypes.def"
    };
    return (df_dtype_kind)kinds[t];
}

/* The number of bits of an element. */
DF_INLINE uint32_t df_bits_of(deft_dtype t)
{
    static const uint8_t sizes[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) bits,
#define FACE(name, NAME, kind, bits, record, c_type, file) bits,
#include "ops/dtypes.def"
    };
    return sizes[t];
}

/* The number of bytes of an element; 1 where two elements share a byte. */
DF_INLINE uint32_t df_bytes_of(deft_dtype t)
{
    return (df_bits_of(t) + 7) / 8;
}

/* The number of bits of the stored fraction of a float; 0 for other dtypes. */
DF_INLINE uint32_t df_fraction_of(deft_dtype t)
{
    static const uint8_t fractions[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) fraction,
#include "ops/dtypes.def"
    };
    return fractions[t];
}

/* Whether t is a float that is stored in 16 bits, with arithmetic in f32 (ops/half.c). */
DF_INLINE bool df_is_half(deft_dtype t)
{
    return DF_HALVES >> t & 1;
}

/* Whether t is a float with arithmetic of its own. */
DF_INLINE bool df_is_real(deft_dtype t)
{
    return DF_REALS >> t & 1;
}

/* Whether t is a float: a real or a half. */
DF_INLINE bool df_is_float(deft_dtype t)
{
    return (DF_REALS | DF_HALVES) >> t & 1;
}

/* Whether t is an integer, signed or not. bool is not an integer. */
DF_INLINE bool df_is_int(deft_dtype t)
{
    return (DF_NATURALS | DF_INTEGERS) >> t & 1;
}

/* Whether t is a signed integer. A float is not. */
DF_INLINE bool df_is_signed(deft_dtype t)
{
    return DF_INTEGERS >> t & 1;
}

/* Whether t is an unsigned integer. bool is not an integer. */
DF_INLINE bool df_is_unsigned(deft_dtype t)
{
    return DF_NATURALS >> t & 1;
}

/* Whether t is complex. A complex dtype is no float. */
DF_INLINE bool df_is_complex(deft_dtype t)
{
    return df_kind_of(t) == DF_KIND_complex;
}

/* Whether t is a storage dtype, which has no arithmetic. */
DF_INLINE bool df_is_stored(deft_dtype t)
{
    return df_kind_of(t) >= DF_KIND_coded;
}

/* Whether only a handle can have dtype t: its record has dtype df_record_dtype(t). */
DF_INLINE bool df_is_face(deft_dtype t)
{
    return (int)t >= DF_N_RECORDED;
}

/* The dtype of the record of a tensor of dtype t. */
DF_INLINE deft_dtype df_record_dtype(deft_dtype t)
{
    static const uint8_t records[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) DEFT_##NAME,
#define FACE(name, NAME, kind, bits, record, c_type, file) DEFT_##record,
#include "ops/dtypes.def"
    };
    return (deft_dtype)records[t];
}

/* The complex dtype whose parts have dtype t, which is a float. */
DF_INLINE deft_dtype df_complex_of(deft_dtype t)
{
    return t == DEFT_F64 ? DEFT_C128 : DEFT_C64;
}

/* ---- limits ---- */

/* The bits of an element with all bits set. */
DF_INLINE uint64_t df_all_bits(deft_dtype t)
{
    return UINT64_MAX >> (64 - df_bits_of(t));
}

/* The least and the greatest value of an integer dtype or bool. */
DF_INLINE int64_t df_int_least(deft_dtype t)
{
    return df_is_signed(t) ? -(int64_t)(df_all_bits(t) >> 1) - 1 : 0;
}

DF_INLINE uint64_t df_int_greatest(deft_dtype t)
{
    if (t == DEFT_BOOL) return 1;
    return df_is_signed(t) ? df_all_bits(t) >> 1 : df_all_bits(t);
}

/* Whether an integer dtype or bool holds v. */
DF_INLINE bool df_int_holds(deft_dtype t, int64_t v)
{
    return v < 0 ? v >= df_int_least(t) : (uint64_t)v <= df_int_greatest(t);
}

/* The bits of v in an integer dtype or bool. v wraps. A v of u64 is given by its bits. */
DF_INLINE uint64_t df_int_bits(deft_dtype t, int64_t v)
{
    return t == DEFT_BOOL ? v != 0 : (uint64_t)v & df_all_bits(t);
}

/* The value of the bits of an integer dtype or bool. Of u64, the result has the bits of the value.
 */
DF_INLINE int64_t df_int_of_bits(deft_dtype t, uint64_t bits)
{
    const uint32_t unused = 64 - df_bits_of(t);
    return df_is_signed(t) ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* The sign bit of an element of 8 to 64 bits. */
DF_INLINE uint64_t df_sign_bit(deft_dtype t)
{
    return (uint64_t)1 << (df_bits_of(t) - 1);
}

/* The bits of positive infinity in a float dtype. */
DF_INLINE uint64_t df_infinity_bits(deft_dtype t)
{
    return (df_all_bits(t) >> 1) & ~(((uint64_t)1 << df_fraction_of(t)) - 1);
}

/* The bits of the quiet NaN that operations return in a float dtype. */
DF_INLINE uint64_t df_nan_bits(deft_dtype t)
{
    return df_infinity_bits(t) | (uint64_t)1 << (df_fraction_of(t) - 1);
}

/* The bits of 1 in a float dtype. */
DF_INLINE uint64_t df_one_bits(deft_dtype t)
{
    const uint64_t exponents = df_infinity_bits(t) >> df_fraction_of(t);
    return (exponents >> 1) << df_fraction_of(t);
}

/* ---- identities of reductions ---- */

/* The bits of the identity of each reduction: joined to a value, it changes no bit of that value.
 * The identity of `least` is the greatest value of the dtype, or infinity. */
DF_INLINE uint64_t df_identity_sum(deft_dtype t)
{
    return df_is_float(t) ? df_sign_bit(t) : 0;
}

DF_INLINE uint64_t df_identity_prod(deft_dtype t)
{
    return df_is_float(t) ? df_one_bits(t) : 1;
}

DF_INLINE uint64_t df_identity_least(deft_dtype t)
{
    return df_is_float(t) ? df_infinity_bits(t) : df_int_greatest(t);
}

DF_INLINE uint64_t df_identity_greatest(deft_dtype t)
{
    return df_is_float(t) ? df_infinity_bits(t) | df_sign_bit(t) : df_int_bits(t, df_int_least(t));
}

DF_INLINE uint64_t df_identity_any(deft_dtype t)
{
    (void)t;
    return 0;
}

DF_INLINE uint64_t df_identity_all(deft_dtype t)
{
    (void)t;
    return 1;
}

/* For kernel ops without an identity. */
DF_INLINE uint64_t df_identity_none(deft_dtype t)
{
    (void)t;
    return 0;
}

#endif
