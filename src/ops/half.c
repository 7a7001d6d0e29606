/* SPDX-License-Identifier: Apache-2.0
 *
 * Halves (f16, bf16) as kernel ops. A kernel has values of these dtypes but no arithmetic on them.
 * It only loads, stores, selects and copies them, and casts them from and to f32. So an operator on
 * halves is the operator on f32 between casts. Only the cast back rounds:
 *
 *   c = add f16 a, b     becomes     a' = cast f32 a
 *                                    b' = cast f32 b
 *                                    s  = add f32 a', b'
 *                                    c  = cast f16 s
 *
 * The casts are part of the kernel, whether the value is stored or stays in a register. So fused
 * and unfused kernels give the same bits.
 *
 * relu, neg and abs give the same bits before and after rounding. Rounding keeps the order of
 * numbers, their signs, zeros and NaN. So they take the s of a c, and round their result
 * instead. That saves both casts of c when nothing else reads it.
 *
 * FAST kernels omit roundings between operators: an operator, a reduction or a cast reads s instead
 * of c. Only what is stored is rounded. A cast to a half that the program itself asks for rounds in
 * every kernel.
 *
 * Rounding twice, to f32 and then to 11 or 8 bits, does not change sums, products, quotients and
 * roots of halves. The width of f32 allows that, since 2p + 2 bits suffice (Figueroa 1995). The
 * exception are bf16 results that are denormal in both dtypes. Rounding twice would change casts
 * of i32, i64 and f64. Such a cast goes through an f32 that is rounded to odd. If f32 cannot
 * represent the value, that is the neighbour whose last bit is set (Boldo and Melquiond 2008).
 */
#include "ops/recipe_build.h"
#include "ops/shape.h"

/* The f64 x as an f32, rounded to odd. NaN remains NaN, because it compares neither less nor
 * greater. */
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

/* The x of dtype t, i64 or u64, as an f64 that rounds to the same half as x. Up to 2^53 the f64 is
 * exact; beyond, one sticky bit replaces the low bits. */
static rid sticky_f64(df_emit *e, deft_dtype t, rid x)
{
    const rb f64 = { e, DEFT_F64 }, whole = { e, t };
    const int64_t most = (int64_t)1 << 53, low = ((int64_t)1 << 11) - 1;
    const rid zero = r_ki(whole, 0);
    const rid lost = r_ne(whole, r_and(whole, x, r_ki(whole, low)), zero);
    const rid sticky = r_select(whole, lost, r_ki(whole, (int64_t)1 << 10), zero);
    const rid upper = r_or(whole, r_and(whole, x, r_ki(whole, ~low)), sticky);
    rid fits = r_lt(whole, x, r_ki(whole, most));
    if (df_is_signed(t)) fits = r_both(whole, fits, r_lt(whole, r_ki(whole, -most), x));
    return r_cast(f64, r_select(whole, fits, x, upper));
}

/* x, of dtype t, as an f32 that rounds to the same half as x. t must not be a half. */
static rid wide_of(df_emit *e, deft_dtype t, rid x)
{
    const rb f32 = { e, DEFT_F32 }, f64 = { e, DEFT_F64 };
    if (t == DEFT_F32) return x;
    if (t == DEFT_F64) return odd_f32(e, x);
    const uint32_t bits = df_bits_of(t); /* an integer or bool: exact with as much precision */
    if (bits <= 24) return r_cast(f32, x);
    return odd_f32(e, bits <= 53 ? r_cast(f64, x) : sticky_f64(e, t, x));
}

/* The half x as an f32. */
static rid wide_of_half(df_emit *e, rid x)
{
    const rid before = e->unrounded ? e->unrounded(e, x) : x;
    return before != x ? before : r_cast((rb){ e, DEFT_F32 }, x);
}

uint32_t df_emit_cast(df_emit *e, deft_dtype to, deft_dtype from, uint32_t x)
{
    if (to == from) return x;
    if (df_is_half(from)) {
        x = wide_of_half(e, x);
        from = DEFT_F32;
    }
    if (df_is_half(to))
        x = wide_of(e, from, x);
    else if (to == from)
        return x;
    return r_cast((rb){ e, to }, x);
}

/* Whether the result of op on halves is always a half, so that nothing is rounded. */
static bool is_exact(df_op op)
{
    static const bool exact[DF_N_OPS] = {
        [DF_OP_neg] = true,       [DF_OP_abs] = true,     [DF_OP_sign] = true,
        [DF_OP_relu] = true,      [DF_OP_floor] = true,   [DF_OP_ceil] = true,
        [DF_OP_trunc] = true,     [DF_OP_round] = true,   [DF_OP_fmod] = true,
        [DF_OP_minimum] = true,   [DF_OP_maximum] = true, [DF_OP_copysign] = true,
        [DF_OP_nextafter] = true,
    };
    return exact[op];
}

/* Whether op gives the same bits before and after the rounding of its operand. */
static bool commutes_with_rounding(df_op op)
{
    return op == DF_OP_relu || op == DF_OP_neg || op == DF_OP_abs;
}

/* The operand x of op, a half, as an f32. Sets *is_half: whether the half can represent it. */
static rid operand_of(df_emit *e, df_op op, rid x, bool *is_half)
{
    *is_half = true;
    /* The next number is that of the rounded operand, also where others read it unrounded. */
    if (op == DF_OP_nextafter) return r_cast((rb){ e, DEFT_F32 }, x);
    if (commutes_with_rounding(op) && e->before_cast) {
        const rid before = e->before_cast(e, x, is_half);
        if (before != x) return before;
    }
    *is_half = !e->unrounded || e->unrounded(e, x) == x;
    return wide_of_half(e, x);
}

uint32_t df_op_emit(df_emit *e, df_op op, deft_dtype t, deft_dtype out, const uint32_t src[3],
                    uint32_t attr)
{
    const df_op_info *const info = &df_op_infos[op];
    const bool moves_only = info->dtype_rule == DF_DTYPE_cast ||
                            info->dtype_rule == DF_DTYPE_bits ||
                            info->dtype_rule == DF_DTYPE_select;
    if (!df_is_half(t) || moves_only) return info->body(e, t, out, src, attr);
    uint32_t wide[3] = { 0 };
    bool exact = is_exact(op);
    for (uint32_t i = 0; i < info->n_src; i++) {
        bool operand_is_half;
        wide[i] = operand_of(e, op, src[i], &operand_is_half);
        exact = exact && operand_is_half;
    }
    const bool is_half = df_is_half(out);
    e->between_bf16 = t == DEFT_BF16 && is_half;
    e->half = is_half ? t : DEFT_F32;
    const uint32_t y = info->body(e, DEFT_F32, is_half ? DEFT_F32 : out, wide, attr);
    e->between_bf16 = false;
    e->half = DEFT_F32;
    if (!is_half) return y;
    const unsigned flags = (exact ? DF_CAST_EXACT : 0) | (e->unrounded ? DF_CAST_RESULT : 0);
    return e->ins(e, DF_K_cast, out, y, 0, 0, flags);
}
