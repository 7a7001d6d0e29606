/* SPDX-License-Identifier: Apache-2.0
 *
 * Halves (f16, bf16) as kernel ops. A kernel holds values of these dtypes but calculates with none:
 * it loads, stores, selects and passes them on, and casts them to f32 and from it. So every op
 * between two halves is the f32 op between casts, and the cast back is its one rounding:
 *
 *   c = add f16 a, b       a' = cast f32 a    b' = cast f32 b    s = add f32 a', b'    c = cast f16
 * s
 *
 * The casts stand in the kernel whether the value is stored or read on in a register: fused and
 * unfused kernels give the same bits.
 *
 * f32 is wide enough that rounding twice, to f32 and then to 11 or 8 bits, changes nothing in sums,
 * products, quotients and roots of halves (Figueroa 1995: 2p + 2 bits suffice), but for bf16
 * results that are denormal in both. It does change casts of i32, i64 and f64, which therefore go
 * through an f32 rounded to odd: where f32 cannot hold the value, of the two neighbours the one
 * whose last bit is set (Boldo and Melquiond 2008).
 */
#include "ops/recipe_build.h"
#include "ops/shape.h"

/* x, f64, as f32 rounded to odd. A NaN stays one: it compares neither less nor greater. */
static rid odd_f32(df_emit *e, rid x)
{
    const rb f32 = { e, DEFT_F32 }, f64 = { e, DEFT_F64 }, i32 = { e, DEFT_I32 };
    const rid near = r_cast(f32, x), back = r_cast(f64, near), bits = r_bits(f32, near);
    const rid inexact = r_either(f64, r_lt(f64, back, x), r_lt(f64, x, back));
    const rid even = r_eq(i32, r_and(i32, bits, r_ki(i32, 1)), r_ki(i32, 0));
    const rid beyond = r_lt(f64, r_abs(f64, x), r_abs(f64, back));
    const rid step = r_select(i32, beyond, r_ki(i32, -1), r_ki(i32, 1));
    const rid other = r_add(i32, bits, step);
    return r_of_bits(f32, r_select(i32, r_both(f64, inexact, even), other, bits));
}

/* x, i64, as an f64 that rounds to the same half: exact up to 2^53, and beyond it the lower bits
 * are one sticky bit. */
static rid sticky_f64(df_emit *e, rid x)
{
    const rb f64 = { e, DEFT_F64 }, i64 = { e, DEFT_I64 };
    const int64_t most = (int64_t)1 << 53, low = ((int64_t)1 << 11) - 1;
    const rid zero = r_ki(i64, 0);
    const rid lost = r_ne(i64, r_and(i64, x, r_ki(i64, low)), zero);
    const rid sticky = r_select(i64, lost, r_ki(i64, (int64_t)1 << 10), zero);
    const rid upper = r_or(i64, r_and(i64, x, r_ki(i64, ~low)), sticky);
    const rid fits = r_both(i64, r_lt(i64, x, r_ki(i64, most)), r_lt(i64, r_ki(i64, -most), x));
    return r_cast(f64, r_select(i64, fits, x, upper));
}

/* x, of any dtype but a half, as an f32 that rounds to a half as x does. */
static rid wide_of(df_emit *e, deft_dtype t, rid x)
{
    const rb f32 = { e, DEFT_F32 }, f64 = { e, DEFT_F64 };
    if (t == DEFT_F32) return x;
    if (t == DEFT_F64) return odd_f32(e, x);
    const uint32_t bits = df_bits_of(t); /* an integer or bool: exact in a float that has as many */
    if (bits <= 24) return r_cast(f32, x);
    return odd_f32(e, bits <= 53 ? r_cast(f64, x) : sticky_f64(e, x));
}

uint32_t df_emit_cast(df_emit *e, deft_dtype to, deft_dtype from, uint32_t x)
{
    if (to == from) return x;
    if (df_is_half(from)) {
        x = r_cast((rb){ e, DEFT_F32 }, x);
        from = DEFT_F32;
    }
    if (df_is_half(to))
        x = wide_of(e, from, x);
    else if (to == from)
        return x;
    return r_cast((rb){ e, to }, x);
}

/* Whether op gives halves for halves, so that nothing is rounded. */
static bool is_exact(df_op op)
{
    static const bool exact[DF_N_OPS] = {
        [DF_OP_neg] = true,     [DF_OP_abs] = true,     [DF_OP_sign] = true,
        [DF_OP_relu] = true,    [DF_OP_floor] = true,   [DF_OP_ceil] = true,
        [DF_OP_trunc] = true,   [DF_OP_round] = true,   [DF_OP_fmod] = true,
        [DF_OP_minimum] = true, [DF_OP_maximum] = true, [DF_OP_copysign] = true,
    };
    return exact[op];
}

uint32_t df_op_emit(df_emit *e, df_op op, deft_dtype t, deft_dtype out, const uint32_t src[3],
                    uint32_t attr)
{
    const df_op_info *const info = &df_op_infos[op];
    const bool moves_only =
        info->dtype_rule == DF_DTYPE_cast || info->dtype_rule == DF_DTYPE_select;
    if (!df_is_half(t) || moves_only) return info->body(e, t, out, src, attr);
    uint32_t wide[3] = { 0 };
    for (uint32_t i = 0; i < info->n_src; i++) wide[i] = df_emit_cast(e, DEFT_F32, t, src[i]);
    const bool is_half = df_is_half(out);
    const uint32_t y = info->body(e, DEFT_F32, is_half ? DEFT_F32 : out, wide, attr);
    if (!is_half) return y;
    return e->ins(e, DF_K_cast, out, y, 0, 0, is_exact(op) ? DF_CAST_EXACT : 0);
}
