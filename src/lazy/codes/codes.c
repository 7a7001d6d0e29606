/* SPDX-License-Identifier: Apache-2.0
 *
 * The codes of storage dtypes (codes.h).
 *
 * f8e4m3fn and f8e5m2 are those of OFP8 (Open Compute Project, 8-bit Floating Point
 * Specification, 2023), and e8m0 is the scale of the MX formats (Microscaling Formats
 * Specification, 2023). Numbers become codes as in PyTorch: rounded to nearest, ties to even. e8m0
 * takes the magnitude, and rounds a tie up.
 */
#include "lazy/codes/codes.h"
#include "lazy/complex/complex.h"

/* A call: its context and its site. */
typedef struct coder {
    deft_ctx *cx;
    uintptr_t site;
} coder;

/* A float of 8 bits. */
typedef struct small_float {
    int32_t fraction, bias; /* bits of the stored fraction; what the stored exponent exceeds */
    int32_t greatest;       /* the code of the greatest number */
    int32_t overflow;       /* the code of numbers beyond it */
} small_float;

static const small_float e4m3fn = { 3, 7, 0x7e, 0x7e }, e5m2 = { 2, 15, 0x7b, 0x7c };

enum {
    F32_FRACTION = 23,
    F32_BIAS = 127,
    F32_MAGNITUDE = 0x7fffffff,
    F32_INFINITY = 0x7f800000,
    F32_QUIET = 22,    /* the index of the bit that makes a NaN quiet */
    INFINITY_8 = 0x7c, /* the infinity of f8e5m2 */
    NAN_8 = 0x7f,
    SIGN_8 = 0x80
};

static const small_float *layout_of(deft_dtype t)
{
    return t == DEFT_F8E4M3FN ? &e4m3fn : &e5m2;
}

/* ---- operators on u32 ---- */

static uint32_t word(const coder *c, int32_t v)
{
    return df_cst(c->cx, DEFT_U32, v, c->site);
}

static uint32_t with_record(const coder *c, df_op op, uint32_t a, uint32_t b)
{
    return df_map2(c->cx, op, a, b, c->site);
}

/* Operator op on a and the number v, in the dtype of a. */
static uint32_t with_number(const coder *c, df_op op, uint32_t a, int32_t v)
{
    if (a == DF_BAD) return DF_BAD;
    return with_record(c, op, a, df_cst(c->cx, df_dtype_at(c->cx, a), v, c->site));
}

static uint32_t as_dtype(const coder *c, uint32_t a, deft_dtype t)
{
    return df_to(c->cx, a, t, c->site);
}

static uint32_t bits_as(const coder *c, uint32_t a, deft_dtype t)
{
    return df_append(c->cx, DF_OP_bitcast, t, 0, &a, NULL, 0, NULL, c->site);
}

/* The bit number `at` of a word that is otherwise 0: set where the bool a is true. */
static uint32_t bit_where(const coder *c, uint32_t a, int32_t at)
{
    return with_number(c, DF_OP_shift_left, as_dtype(c, a, DEFT_U32), at);
}

static uint32_t choose(const coder *c, uint32_t condition, uint32_t a, uint32_t b)
{
    return df_where(c->cx, condition, a, b, c->site);
}

/* The positive f32 with a stored exponent, and no fraction. */
static int32_t power(int32_t exponent)
{
    return exponent << F32_FRACTION;
}

/* ---- floats of 8 bits ---- */

/* The exponent and the fraction are those of an f32 whose bias is another, denormals included. The
 * product with a power of two mends that, and is exact. */
static uint32_t read_float(const coder *c, uint32_t code, const small_float *f)
{
    const uint32_t magnitude = with_number(c, DF_OP_bitwise_and, code, SIGN_8 - 1);
    const uint32_t sign =
        with_number(c, DF_OP_shift_left, with_number(c, DF_OP_bitwise_and, code, SIGN_8), 24);
    const uint32_t up = with_number(c, DF_OP_shift_left, magnitude, F32_FRACTION - f->fraction);
    const uint32_t scale = bits_as(c, word(c, power(2 * F32_BIAS - f->bias)), DEFT_F32);
    const uint32_t number =
        bits_as(c, with_record(c, DF_OP_mul, bits_as(c, up, DEFT_F32), scale), DEFT_U32);
    const uint32_t other = with_number(
        c, DF_OP_bitwise_or,
        bit_where(c, with_number(c, DF_OP_ne, magnitude, INFINITY_8), F32_QUIET), F32_INFINITY);
    const uint32_t is_number = with_number(c, DF_OP_le, magnitude, f->greatest);
    return bits_as(c, with_record(c, DF_OP_bitwise_or, choose(c, is_number, number, other), sign),
                   DEFT_F32);
}

/* Normal results are rounded in integers. For a denormal one, the sum with a power of two rounds:
 * its last bit has the value of the code 1. */
static uint32_t make_float(const coder *c, uint32_t bits, const small_float *f)
{
    const int32_t gone = F32_FRACTION - f->fraction, least = F32_BIAS + 1 - f->bias;
    const uint32_t magnitude = with_number(c, DF_OP_bitwise_and, bits, F32_MAGNITUDE);
    const uint32_t last =
        with_number(c, DF_OP_bitwise_and, with_number(c, DF_OP_shift_right, magnitude, gone), 1);
    const uint32_t up = with_number(c, DF_OP_add, with_record(c, DF_OP_add, magnitude, last),
                                    (1 << (gone - 1)) - 1);
    const uint32_t normal = with_number(c, DF_OP_sub, with_number(c, DF_OP_shift_right, up, gone),
                                        (F32_BIAS - f->bias) << f->fraction);
    const uint32_t unit = word(c, power(least + gone));
    const uint32_t sum =
        with_record(c, DF_OP_add, bits_as(c, magnitude, DEFT_F32), bits_as(c, unit, DEFT_F32));
    const uint32_t denormal = with_record(c, DF_OP_sub, bits_as(c, sum, DEFT_U32), unit);
    const uint32_t is_small = with_number(c, DF_OP_lt, magnitude, power(least));
    const uint32_t code =
        with_number(c, DF_OP_minimum, choose(c, is_small, denormal, normal), f->overflow);
    const uint32_t is_number = with_number(c, DF_OP_le, magnitude, F32_INFINITY);
    const uint32_t sign =
        with_number(c, DF_OP_bitwise_and, with_number(c, DF_OP_shift_right, bits, 24), SIGN_8);
    return with_record(c, DF_OP_bitwise_or, choose(c, is_number, code, word(c, NAN_8)), sign);
}

/* ---- powers of two ---- */

/* The code 0 is a denormal f32, and 255 is NaN: both have the upper bit of the fraction. */
static uint32_t read_power(const coder *c, uint32_t code)
{
    const uint32_t next =
        with_number(c, DF_OP_bitwise_and, with_number(c, DF_OP_add, code, 1), 255);
    const uint32_t ends = bit_where(c, with_number(c, DF_OP_lt, next, 2), F32_QUIET);
    return bits_as(c,
                   with_record(c, DF_OP_bitwise_or,
                               with_number(c, DF_OP_shift_left, code, F32_FRACTION), ends),
                   DEFT_F32);
}

/* A normal f32 is rounded up from 1.5 times a power of two on. What is above 2^-127 becomes 2^-126,
 * as in PyTorch. */
static uint32_t make_power(const coder *c, uint32_t bits)
{
    const uint32_t magnitude = with_number(c, DF_OP_bitwise_and, bits, F32_MAGNITUDE);
    const uint32_t is_normal = with_record(c, DF_OP_le, word(c, power(1)), magnitude);
    const uint32_t up =
        with_number(c, DF_OP_add, with_record(c, DF_OP_add, magnitude, bit_where(c, is_normal, 0)),
                    (1 << F32_QUIET) - 1);
    return with_number(c, DF_OP_minimum, with_number(c, DF_OP_shift_right, up, F32_FRACTION), 255);
}

/* ---- two codes in a byte ---- */

static uint32_t in_shape(const coder *c, uint32_t a, const df_shape *s)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(c->cx, DF_OP_reshape, df_dtype_at(c->cx, a), 0, &a, NULL, 0, s, c->site);
}

/* The code in the low half of each byte, then that in the high half, as numbers. */
static uint32_t read_packed(const coder *c, uint32_t bytes, df_face face)
{
    const bool is_signed = df_face_dtype(face) == DEFT_I4;
    df_shape pairs, all, shown;
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    df_rec_shape(&c->cx->rec, bytes, &all);
    shown = pairs = all;
    df_face_show(face, &shown);
    all.dim[all.rank - 1] *= 2;
    uint32_t low = with_number(c, DF_OP_bitwise_and, bytes, 15), high = bytes;
    if (is_signed) {
        low = bits_as(c, with_number(c, DF_OP_shift_left, bytes, 4), DEFT_I8);
        low = with_number(c, DF_OP_shift_right, low, 4);
        high = bits_as(c, high, DEFT_I8);
    }
    high = with_number(c, DF_OP_shift_right, high, 4);
    const df_parts p = { low, high, false };
    const uint32_t out = in_shape(c, df_parts_join(c->cx, p, c->site), &all);
    if (df_shape_equal(&all, &shown)) return out;
    for (uint32_t i = 0; i < all.rank; i++) step[i] = 1;
    return df_slice_node(c->cx, out, start, step, &shown, c->site);
}

/* The integers x as codes of 4 bits, each in a byte: floats are clamped, integers wrap, as in casts
 * to wider integers. */
static uint32_t make_nibbles(const coder *c, uint32_t x, deft_dtype t)
{
    if (x == DF_BAD) return DF_BAD;
    if (df_is_float(df_dtype_at(c->cx, x))) {
        const int32_t least = t == DEFT_I4 ? -8 : 0;
        x = with_number(c, DF_OP_maximum, as_dtype(c, x, DEFT_I32), least);
        x = with_number(c, DF_OP_minimum, x, least + 15);
    }
    return with_number(c, DF_OP_bitwise_and, as_dtype(c, x, DEFT_U8), 15);
}

/* Two codes in each byte of a record of shape `packed`. An odd row gets a 0 at its end. */
static uint32_t pack(const coder *c, uint32_t code, bool is_odd, const df_shape *packed)
{
    df_shape s = *packed;
    const uint32_t last = s.rank - 1;
    if (code == DF_BAD) return DF_BAD;
    if (is_odd) {
        s.dim[last] = 1;
        const uint32_t zero = df_expand_to(c->cx, df_cst(c->cx, DEFT_U8, 0, c->site), &s, c->site);
        const uint32_t piece[2] = { code, zero };
        if (zero == DF_BAD) return DF_BAD;
        code = df_join(c->cx, piece, 2, last, c->site);
        s.dim[last] = packed->dim[last];
    }
    s.dim[s.rank++] = 2;
    const uint32_t pairs = in_shape(c, code, &s);
    const uint32_t low = df_part_view(c->cx, pairs, 0, c->site);
    const uint32_t high = df_part_view(c->cx, pairs, 1, c->site);
    return with_record(c, DF_OP_bitwise_or, low, with_number(c, DF_OP_shift_left, high, 4));
}

/* ---- all of them ---- */

/* x as the bits of an f32 that becomes the same code. An f64, or an integer that f32 may not hold,
 * is rounded to odd, so that it is not rounded twice (ops/half.c). */
static uint32_t f32_bits_of(const coder *c, uint32_t x)
{
    if (x == DF_BAD) return DF_BAD;
    const deft_dtype own = df_dtype_at(c->cx, x);
    if (df_bits_of(own) < 32 || own == DEFT_F32)
        return bits_as(c, as_dtype(c, x, DEFT_F32), DEFT_U32);
    const uint32_t wide = as_dtype(c, x, DEFT_F64), near = as_dtype(c, wide, DEFT_F32);
    const uint32_t back = as_dtype(c, near, DEFT_F64);
    const uint32_t beyond = with_record(c, DF_OP_lt, df_map1(c->cx, DF_OP_abs, wide, c->site),
                                        df_map1(c->cx, DF_OP_abs, back, c->site));
    const uint32_t toward_0 =
        with_record(c, DF_OP_sub, bits_as(c, near, DEFT_U32), bit_where(c, beyond, 0));
    return with_record(c, DF_OP_bitwise_or, toward_0,
                       bit_where(c, with_record(c, DF_OP_ne, wide, back), 0));
}

static uint32_t read_codes(const coder *c, uint32_t codes, df_face face)
{
    const deft_dtype t = df_face_dtype(face);
    if (df_face_is_packed(face)) return read_packed(c, codes, face);
    const uint32_t code = as_dtype(c, codes, DEFT_U32);
    return t == DEFT_E8M0 ? read_power(c, code) : read_float(c, code, layout_of(t));
}

static uint32_t make_codes(const coder *c, uint32_t x, deft_dtype t, df_face *face)
{
    df_shape s;
    df_rec_shape(&c->cx->rec, x, &s);
    *face = df_face_fitting(t, &s);
    if (!df_face_hide(c->cx, "cast", *face, &s)) return DF_BAD;
    if (df_face_is_packed(*face)) return pack(c, make_nibbles(c, x, t), *face > DF_N_FACES, &s);
    const uint32_t bits = f32_bits_of(c, x);
    return as_dtype(c, t == DEFT_E8M0 ? make_power(c, bits) : make_float(c, bits, layout_of(t)),
                    DEFT_U8);
}

deft_tensor *df_cast_stored(deft_ctx *cx, const deft_tensor *t, uint32_t x, deft_dtype dtype,
                            uintptr_t site)
{
    const coder c = { cx, site };
    df_face face = df_face_of(t);
    if (df_face_is_complex(face))
        return df_error(cx, DEFT_E_DTYPE, "cast: from %s to %s: take deft_real or deft_imag first",
                        deft_dtype_name(df_face_dtype(face)), deft_dtype_name(dtype));
    if (x == DF_BAD) return NULL;
    if (face && df_face_dtype(face) == dtype) return df_result_faced(cx, x, face);
    if (face) x = read_codes(&c, x, face);
    if (x == DF_BAD) return NULL;
    if (df_is_complex(dtype))
        return df_complex_cast(cx, (df_parts){ x, DF_BAD, true }, dtype, site);
    if (!df_is_stored(dtype)) return df_result(cx, as_dtype(&c, x, dtype));
    x = make_codes(&c, x, dtype, &face);
    return x == DF_BAD ? NULL : df_result_faced(cx, x, face);
}
