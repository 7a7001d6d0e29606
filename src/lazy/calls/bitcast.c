/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_bitcast: one record between dtypes of one size. Between others, elements are divided into
 * smaller ones or joined to larger ones by shifts of unsigned integers, the low bits first.
 */
#include "lazy/core/face.h"
#include "lazy/core/lazy.h"

static deft_dtype unsigned_of(uint32_t bits)
{
    return bits == 8 ? DEFT_U8 : bits == 16 ? DEFT_U16 : bits == 32 ? DEFT_U32 : DEFT_U64;
}

/* a in dtype t, which has as many bits. */
static uint32_t with_dtype(deft_ctx *cx, uint32_t a, deft_dtype t, uintptr_t site)
{
    if (a == DF_BAD || df_dtype_at(cx, a) == t) return a;
    return df_append(cx, DF_OP_bitcast, t, 0, &a, NULL, 0, NULL, site);
}

static uint32_t with_shape(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_reshape, df_dtype_at(cx, a), 0, &a, NULL, 0, s, site);
}

/* By how many bits each of n parts is shifted: 0, bits, 2 bits, ... */
static uint32_t shifts(deft_ctx *cx, deft_dtype t, int64_t n, uint32_t bits, uintptr_t site)
{
    const df_shape s = { .rank = 1, .dim = { n } };
    return df_map2(cx, DF_OP_mul, df_to(cx, df_iota_node(cx, &s, 0, site), t, site),
                   df_cst(cx, t, (int32_t)bits, site), site);
}

/* [..., n] to [..., n * k], each element as k smaller ones. */
static uint32_t divided(deft_ctx *cx, uint32_t a, df_shape s, deft_dtype to, uintptr_t site)
{
    const deft_dtype from = df_dtype_at(cx, a), large = unsigned_of(df_bits_of(from));
    const int64_t k = df_bits_of(from) / df_bits_of(to);
    df_shape parts = s;
    parts.dim[parts.rank++] = 1;
    const uint32_t bits = with_shape(cx, with_dtype(cx, a, large, site), &parts, site);
    const uint32_t all =
        df_map2(cx, DF_OP_shift_right, bits, shifts(cx, large, k, df_bits_of(to), site), site);
    const uint32_t low = df_to(cx, all, unsigned_of(df_bits_of(to)), site);
    s.dim[s.rank - 1] *= k;
    return with_dtype(cx, with_shape(cx, low, &s, site), to, site);
}

/* [..., n] to [..., n / k], each element made of k smaller ones. */
static uint32_t joined(deft_ctx *cx, uint32_t a, df_shape s, deft_dtype to, uintptr_t site)
{
    const deft_dtype from = df_dtype_at(cx, a), large = unsigned_of(df_bits_of(to));
    const int64_t k = df_bits_of(to) / df_bits_of(from);
    s.dim[s.rank - 1] /= k;
    df_shape parts = s;
    parts.dim[parts.rank++] = k;
    const uint32_t bits =
        with_shape(cx, with_dtype(cx, a, unsigned_of(df_bits_of(from)), site), &parts, site);
    const uint32_t apart = df_map2(cx, DF_OP_shift_left, df_to(cx, bits, large, site),
                                   shifts(cx, large, k, df_bits_of(from), site), site);
    const uint32_t sum = df_reduce(cx, DF_OP_sum, apart, 1u << s.rank, false, site);
    return with_dtype(cx, df_to(cx, sum, large, site), to, site);
}

static uint32_t bitcast(deft_ctx *cx, uint32_t a, deft_dtype dtype, uintptr_t site)
{
    df_shape s;
    const deft_dtype own = df_dtype_at(cx, a);
    df_rec_shape(&cx->rec, a, &s);
    if (own == dtype) return a;
    if (own == DEFT_BOOL || dtype == DEFT_BOOL)
        return df_error(cx, DEFT_E_DTYPE, "bitcast: %s to %s: the bits of a bool are no number",
                        deft_dtype_name(own), deft_dtype_name(dtype)),
               DF_BAD;
    const uint32_t from = df_bits_of(own), to = df_bits_of(dtype);
    if (from == to) return with_dtype(cx, a, dtype, site);
    const int64_t n = s.rank ? s.dim[s.rank - 1] : 0;
    if (s.rank == 0 || s.rank == DEFT_MAX_RANK || (to > from && n % (to / from) != 0))
        return df_error(cx, DEFT_E_SHAPE,
                        "bitcast: %s to %s: the last of %u axes has %lld elements",
                        deft_dtype_name(own), deft_dtype_name(dtype), s.rank, (long long)n),
               DF_BAD;
    return to < from ? divided(cx, a, s, dtype, site) : joined(cx, a, s, dtype, site);
}

/* The handle that shows the bytes of record a as codes of storage dtype t. */
static deft_tensor *as_codes(deft_ctx *cx, uint32_t a, deft_dtype t)
{
    df_shape s;
    if (a == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, a, &s);
    return df_face_hide(cx, "bitcast", df_face_for(t), &s) ? df_result_faced(cx, a, df_face_for(t))
                                                           : NULL;
}

deft_tensor *deft_bitcast(deft_tensor *t, deft_dtype dtype)
{
    uint32_t a;
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_enter_of("bitcast", 1, t, DF_ALL_FACES & ~DF_COMPLEX_FACES, site);
    if (!cx || (a = df_node_of(cx, t)) == DF_BAD) return NULL;
    if (!df_check_any_dtype(cx, "bitcast", dtype)) return NULL;
    if (df_is_complex(dtype))
        return df_error(cx, DEFT_E_DTYPE, "bitcast: not for %s", deft_dtype_name(dtype));
    const df_face face = df_face_of(t);
    if (df_shown_dtype(cx, t) == dtype) return df_result_faced(cx, a, face);
    if (face > DF_N_FACES)
        return df_refuse_stored(cx, "bitcast", face, "and its rows end within a byte");
    /* the codes of a storage dtype are u8 */
    if (df_is_stored(dtype)) return as_codes(cx, bitcast(cx, a, DEFT_U8, site), dtype);
    return df_result(cx, bitcast(cx, a, dtype, site));
}
