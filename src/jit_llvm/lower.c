/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel op to IR. The same code serves scalars and vectors: IR instructions take both, only
 * constants differ. Every op gives exactly the bits that kops.def and the interpreter give:
 *
 * - No instruction has fast-math flags, so instruction selection contracts nothing. contract.c
 *   contracts in FAST kernels.
 * - Poison is never observed. Selects guard shifts, divisions and conversions.
 * - Vectors of integers are divided as floats, because x86 and AArch64 have no vector division of
 *   integers. The floats are f32 for at most 16 bits and f64 for 32 bits. Their significand has at
 *   least as many bits as the integers, so the correctly rounded quotient truncates to the exact
 *   one. Wider integers, and unsigned ones of 32 bits, are divided lane by lane.
 *
 * LLVM aborts the process on an instruction that it cannot compile. So df_gen_check lets only pass
 * what kops.def allows, and tests/unit/test_llvm.c compiles all of that.
 */
#include "jit_llvm/gen.h"

#include <float.h>
#include <string.h>

/* ---- types and constants ---- */

/* The constant of dtype t with these bits, in w lanes. */
static LLVMValueRef k(df_gen *g, deft_dtype t, uint64_t bits, uint32_t w)
{
    return df_gen_splat(g, df_gen_const(g, t, bits), w);
}

static uint64_t bits_of_double(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static uint64_t bits_of_real(deft_dtype t, double v)
{
    if (t == DEFT_F64) return bits_of_double(v);
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* ---- arithmetic ---- */

static LLVMValueRef lower_select(df_gen *g, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(g->b, c, a, b, "");
}

static LLVMValueRef fcmp(df_gen *g, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildFCmp(g->b, p, a, b, "");
}

static LLVMValueRef icmp(df_gen *g, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildICmp(g->b, p, a, b, "");
}

static LLVMValueRef lower_unary(df_gen *g, const char *name, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    return df_gen_intrinsic(g, name, &type, 1, &x, 1);
}

/* p 2^n in one instruction of AVX-512, or NULL when there is none for w lanes. */
static LLVMValueRef scale_at_once(df_gen *g, deft_dtype t, LLVMValueRef p, LLVMValueRef n,
                                  uint32_t w)
{
    static const char *const names[2][3] = {
        { "llvm.x86.avx512.mask.scalef.ps.128", "llvm.x86.avx512.mask.scalef.ps.256",
          "llvm.x86.avx512.mask.scalef.ps.512" },
        { "llvm.x86.avx512.mask.scalef.pd.128", "llvm.x86.avx512.mask.scalef.pd.256",
          "llvm.x86.avx512.mask.scalef.pd.512" }
    };
    const uint32_t bytes = w * (uint32_t)deft_dtype_size(t);
    if (g->t->arch != DF_ARCH_X86_64 || g->t->vector_bytes != 64) return NULL;
    if (bytes != 16 && bytes != 32 && bytes != 64) return NULL;
    const uint32_t size = bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
    const uint32_t mask_bits = w < 8 ? 8 : w;
    LLVMTypeRef mask = LLVMIntTypeInContext(g->ctx, mask_bits);
    LLVMValueRef s[5] = { p, n, LLVMConstNull(LLVMTypeOf(p)), LLVMConstAllOnes(mask),
                          LLVMConstInt(g->i32, 4, 0) /* rounded as MXCSR says */ };
    return df_gen_intrinsic(g, names[t == DEFT_F64][size], NULL, 0, s, size == 2 ? 5 : 4);
}

/* src0 2^src1 (kops.def). Both ways give the same bits.
 *
 * Intel's processors take some 150 cycles when the instruction rounds a lane to 0 or to a denormal.
 * Lanes that are 0 for certain are masked out, which costs one comparison. Recipes scale positive
 * numbers only, so this 0 is +0. */
static LLVMValueRef lower_scale(df_gen *g, deft_dtype t, LLVMValueRef s[3], uint32_t w)
{
    LLVMValueRef at_once = scale_at_once(g, t, s[0], s[1], w);
    if (at_once) {
        const double zero_from = t == DEFT_F64 ? -1077 : -152; /* 4 2^n rounds to 0 */
        LLVMValueRef exists = fcmp(g, LLVMRealUGT, s[1], k(g, t, bits_of_real(t, zero_from), w));
        return lower_select(g, exists, at_once, LLVMConstNull(LLVMTypeOf(at_once)));
    }
    const deft_dtype word = t == DEFT_F64 ? DEFT_I64 : DEFT_I32;
    LLVMTypeRef real = LLVMTypeOf(s[0]), words = df_gen_lanes(df_gen_type(g, word), w);
    LLVMValueRef fraction = k(g, word, t == DEFT_F64 ? 52 : 23, w), one = k(g, word, 1, w);
    LLVMValueRef bits = LLVMBuildBitCast(g->b, s[2], words, "");
    LLVMValueRef half = LLVMBuildLShr(g->b, bits, one, "");
    LLVMValueRef rest = LLVMBuildSub(g->b, bits, half, "");
    LLVMValueRef a = LLVMBuildBitCast(g->b, LLVMBuildShl(g->b, half, fraction, ""), real, "");
    LLVMValueRef b = LLVMBuildBitCast(g->b, LLVMBuildShl(g->b, rest, fraction, ""), real, "");
    return LLVMBuildFMul(g->b, LLVMBuildFMul(g->b, s[0], a, ""), b, "");
}

static LLVMValueRef is_less(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef b)
{
    if (df_is_real(t)) return fcmp(g, LLVMRealOLT, a, b);
    return icmp(g, df_is_signed(t) ? LLVMIntSLT : LLVMIntULT, a, b);
}

/* (a < b || a != a) ? a : b, written so that x86 selects minps, cmpunordps and a blend. */
static LLVMValueRef extreme(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef b, bool is_max)
{
    LLVMValueRef takes_a = is_max ? is_less(g, t, b, a) : is_less(g, t, a, b);
    LLVMValueRef v = lower_select(g, takes_a, a, b);
    return df_is_real(t) ? lower_select(g, fcmp(g, LLVMRealUNO, a, a), a, v) : v;
}

/* Whether the instruction is max(x, +0) where no NaN of x is signalling. The join of a reduction
 * has no operands among the instructions, so both are number 0. */
static bool is_relu_of_quiet(const df_gen *g, const df_ins *ins)
{
    if (ins->src[0] == ins->src[1] || !df_is_real((deft_dtype)ins->dtype)) return false;
    const df_ins *const zero = &g->k->ins[ins->src[1]];
    return zero->op == DF_K_const && zero->imm == 0 && g->val[ins->src[0]].has_quiet_nan;
}

/* max(x, +0) for such x. x86 selects maxps, which gives its second operand for a NaN and for two
 * zeros. The addition makes +0 of -0. */
static LLVMValueRef relu_of_quiet(df_gen *g, LLVMValueRef x, LLVMValueRef zero)
{
    LLVMValueRef v = lower_select(g, fcmp(g, LLVMRealOGT, zero, x), zero, x);
    return LLVMBuildFAdd(g->b, v, zero, "");
}

/* a / d, truncated, in w lanes. d is neither 0 nor -1. */
static LLVMValueRef quotient(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef d, uint32_t w)
{
    const bool sign = df_is_signed(t);
    const uint32_t bits = df_bits_of(t);
    if (w == 1 || bits > 32)
        return sign ? LLVMBuildSDiv(g->b, a, d, "") : LLVMBuildUDiv(g->b, a, d, "");
    LLVMTypeRef real = df_gen_lanes(bits <= 16 ? g->f32 : g->f64, w);
    LLVMTypeRef wide = df_gen_lanes(g->i32, w);
    if (bits == 32 && !sign) {
        a = LLVMBuildUIToFP(g->b, a, real, "");
        d = LLVMBuildUIToFP(g->b, d, real, "");
        return LLVMBuildFPToUI(g->b, LLVMBuildFDiv(g->b, a, d, ""), wide, "");
    }
    if (bits < 32) {
        a = sign ? LLVMBuildSExt(g->b, a, wide, "") : LLVMBuildZExt(g->b, a, wide, "");
        d = sign ? LLVMBuildSExt(g->b, d, wide, "") : LLVMBuildZExt(g->b, d, wide, "");
    }
    a = LLVMBuildSIToFP(g->b, a, real, "");
    d = LLVMBuildSIToFP(g->b, d, real, "");
    LLVMValueRef q = LLVMBuildFPToSI(g->b, LLVMBuildFDiv(g->b, a, d, ""), wide, "");
    return bits < 32 ? LLVMBuildTrunc(g->b, q, df_gen_lanes(df_gen_type(g, t), w), "") : q;
}

/* a / d of integers, where x / 0 is 0 and MIN / -1 is MIN. */
static LLVMValueRef int_div(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef d, uint32_t w)
{
    LLVMValueRef zero = k(g, t, 0, w), one = k(g, t, 1, w);
    LLVMValueRef is_zero = icmp(g, LLVMIntEQ, d, zero);
    if (!df_is_signed(t))
        return lower_select(g, is_zero, zero,
                            quotient(g, t, a, lower_select(g, is_zero, one, d), w));
    LLVMValueRef is_minus = icmp(g, LLVMIntEQ, d, k(g, t, UINT64_MAX, w));
    LLVMValueRef safe = lower_select(g, LLVMBuildOr(g->b, is_zero, is_minus, ""), one, d);
    LLVMValueRef q = quotient(g, t, a, safe, w);
    q = lower_select(g, is_minus, LLVMBuildNeg(g->b, a, ""), q);
    return lower_select(g, is_zero, zero, q);
}

static LLVMValueRef lower_div(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef b, uint32_t w)
{
    if (!df_is_real(t)) return int_div(g, t, a, b, w);
    if (df_estimate_pays(g, t, w)) return df_estimate_div(g, a, b);
    return LLVMBuildFDiv(g->b, a, b, "");
}

/* For floats, frem becomes calls of fmod, which is exact. For integers, x - (x / d) d and the rules
 * of division give x % 0 = x and x % -1 = 0. */
static LLVMValueRef lower_rem(df_gen *g, deft_dtype t, LLVMValueRef a, LLVMValueRef b, uint32_t w)
{
    if (df_is_real(t)) return LLVMBuildFRem(g->b, a, b, "");
    LLVMValueRef q = int_div(g, t, a, b, w);
    return LLVMBuildSub(g->b, a, LLVMBuildMul(g->b, q, b, ""), "");
}

static LLVMValueRef lower_abs(df_gen *g, deft_dtype t, LLVMValueRef a)
{
    if (df_is_real(t)) return lower_unary(g, "llvm.fabs", a);
    if (!df_is_signed(t)) return a;
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef args[2] = { a, LLVMConstInt(g->i1, 0, 0) }; /* abs(MIN) is not poison */
    return df_gen_intrinsic(g, "llvm.abs", &type, 1, args, 2);
}

/* A count outside [0, width) gives 0, or for a signed right shift all sign bits. The select drops
 * the poison that LLVM's shift has then. */
static LLVMValueRef lower_shift(df_gen *g, df_kop op, deft_dtype t, LLVMValueRef a, LLVMValueRef n,
                                uint32_t w)
{
    const uint64_t width = 8u * df_bytes_of(t);
    LLVMValueRef in_range = icmp(g, LLVMIntULT, n, k(g, t, width, w));
    if (op == DF_K_shr && df_is_signed(t))
        return LLVMBuildAShr(g->b, a, lower_select(g, in_range, n, k(g, t, width - 1, w)), "");
    LLVMValueRef v = op == DF_K_shl ? LLVMBuildShl(g->b, a, n, "") : LLVMBuildLShr(g->b, a, n, "");
    return lower_select(g, in_range, v, k(g, t, 0, w));
}

static LLVMValueRef lower_compare(df_gen *g, df_kop op, deft_dtype t, LLVMValueRef a,
                                  LLVMValueRef b)
{
    const bool sign = df_is_signed(t);
    if (op == DF_K_eq) return df_is_real(t) ? fcmp(g, LLVMRealOEQ, a, b) : icmp(g, LLVMIntEQ, a, b);
    if (op == DF_K_ne) return df_is_real(t) ? fcmp(g, LLVMRealUNE, a, b) : icmp(g, LLVMIntNE, a, b);
    if (op == DF_K_lt) return is_less(g, t, a, b);
    return df_is_real(t) ? fcmp(g, LLVMRealOLE, a, b)
                         : icmp(g, sign ? LLVMIntSLE : LLVMIntULE, a, b);
}

/* ---- conversions ---- */

/* Conversions that saturate and turn NaN into 0. LLVM's conversion of a value out of range is
 * poison, so that such values are replaced before, or their results after. Both forms of clamping
 * are one instruction of x86, whose minimum and maximum return the second operand when one is NaN.
 */

/* x where it is at least `low`, else `low`. NaN stays NaN. */
static LLVMValueRef float_at_least(df_gen *g, LLVMValueRef x, LLVMValueRef low)
{
    return lower_select(g, fcmp(g, LLVMRealOGT, low, x), low, x);
}

/* x where it is greater than 0, else 0, also for NaN. */
static LLVMValueRef float_above_zero(df_gen *g, LLVMValueRef x, LLVMValueRef zero)
{
    return lower_select(g, fcmp(g, LLVMRealOGT, x, zero), x, zero);
}

static LLVMValueRef float_to_signed(df_gen *g, deft_dtype to, deft_dtype from, LLVMValueRef x,
                                    uint32_t w)
{
    const double top = (double)df_sign_bit(to);
    LLVMValueRef high = k(g, from, bits_of_real(from, top), w);
    LLVMValueRef y = float_at_least(g, x, k(g, from, bits_of_real(from, -top), w));
    LLVMValueRef v = LLVMBuildFPToSI(g->b, y, df_gen_lanes(df_gen_type(g, to), w), "");
    v = lower_select(g, fcmp(g, LLVMRealORD, x, x), v, k(g, to, 0, w));
    return lower_select(g, fcmp(g, LLVMRealOGE, x, high), k(g, to, df_identity_least(to), w), v);
}

/* Converts to less than 32 bits through i32: every instruction set has that conversion for vectors.
 * Floats hold the limits of `to`. */
static LLVMValueRef float_to_narrow(df_gen *g, deft_dtype to, deft_dtype from, LLVMValueRef x,
                                    uint32_t w)
{
    const bool is_signed = df_is_signed(to);
    LLVMValueRef low = k(g, from, bits_of_real(from, (double)df_int_least(to)), w);
    LLVMValueRef high = k(g, from, bits_of_real(from, (double)df_int_greatest(to)), w);
    LLVMValueRef y = is_signed ? float_at_least(g, x, low) : float_above_zero(g, x, low);
    y = lower_select(g, fcmp(g, LLVMRealOLT, high, y), high, y);
    LLVMValueRef v = LLVMBuildFPToSI(g->b, y, df_gen_lanes(df_gen_type(g, DEFT_I32), w), "");
    if (is_signed) v = lower_select(g, fcmp(g, LLVMRealORD, x, x), v, k(g, DEFT_I32, 0, w));
    return LLVMBuildTrunc(g->b, v, df_gen_lanes(df_gen_type(g, to), w), "");
}

static LLVMValueRef float_to_unsigned(df_gen *g, deft_dtype to, deft_dtype from, LLVMValueRef x,
                                      uint32_t w)
{
    const double top = 2 * (double)df_sign_bit(to);
    LLVMValueRef high = k(g, from, bits_of_real(from, top), w);
    LLVMValueRef y = float_above_zero(g, x, k(g, from, 0, w));
    LLVMValueRef v = LLVMBuildFPToUI(g->b, y, df_gen_lanes(df_gen_type(g, to), w), "");
    return lower_select(g, fcmp(g, LLVMRealOGE, x, high), k(g, to, df_all_bits(to), w), v);
}

static LLVMValueRef float_to_int(df_gen *g, deft_dtype to, deft_dtype from, LLVMValueRef x,
                                 uint32_t w)
{
    if (df_bits_of(to) < 32) return float_to_narrow(g, to, from, x, w);
    return df_is_signed(to) ? float_to_signed(g, to, from, x, w)
                            : float_to_unsigned(g, to, from, x, w);
}

static LLVMValueRef lower_cast(df_gen *g, deft_dtype to, deft_dtype from, LLVMValueRef x,
                               uint32_t w, unsigned half_flags)
{
    LLVMTypeRef type = df_gen_lanes(df_gen_type(g, to), w);
    if (to == from) return x;
    if (df_is_half(from)) return df_half_to_f32(g, from, x, w);
    if (df_is_half(to)) return df_half_from_f32(g, to, x, w, half_flags);
    if (to == DEFT_BOOL)
        return df_is_real(from) ? fcmp(g, LLVMRealUNE, x, k(g, from, 0, w))
                                : icmp(g, LLVMIntNE, x, k(g, from, 0, w));
    if (from == DEFT_BOOL) {
        if (df_is_real(to))
            return lower_select(g, x, k(g, to, bits_of_real(to, 1), w), k(g, to, 0, w));
        return LLVMBuildZExt(g->b, x, type, "");
    }
    if (df_is_real(to) && df_is_real(from))
        return to == DEFT_F64 ? LLVMBuildFPExt(g->b, x, type, "")
                              : LLVMBuildFPTrunc(g->b, x, type, "");
    if (df_is_real(to))
        return df_is_signed(from) ? LLVMBuildSIToFP(g->b, x, type, "")
                                  : LLVMBuildUIToFP(g->b, x, type, "");
    if (df_is_real(from)) return float_to_int(g, to, from, x, w);
    if (df_bytes_of(to) < df_bytes_of(from)) return LLVMBuildTrunc(g->b, x, type, "");
    if (df_bytes_of(to) == df_bytes_of(from)) return x;
    return df_is_signed(from) ? LLVMBuildSExt(g->b, x, type, "") : LLVMBuildZExt(g->b, x, type, "");
}

/* What is known of the operand of a cast from f32 to a half. */
static unsigned half_flags(const df_gen *g, const df_ins *ins)
{
    const df_val *x = &g->val[ins->src[0]];
    const bool is_tame = x->has_short_nan && x->has_quiet_nan;
    return (ins->imm & DF_CAST_EXACT ? DF_HALF_EXACT : 0) | (is_tame ? DF_HALF_TAME_NAN : 0);
}

/* ---- check ---- */

/* Stores the fault of one failing lane in the three fault words, unless they hold one. The exchange
 * ensures that the three words come from one lane, whatever other threads do. */
static void record_fault(df_gen *g, uint64_t id, LLVMValueRef index, LLVMValueRef extent)
{
    LLVMValueRef old =
        LLVMBuildAtomicCmpXchg(g->b, g->p_fault, df_gen_i64(g, 0), df_gen_i64(g, (int64_t)id + 1),
                               LLVMAtomicOrderingMonotonic, LLVMAtomicOrderingMonotonic, 0);
    df_if first;
    df_if_begin(g, &first, LLVMBuildExtractValue(g->b, old, 1, ""));
    LLVMBuildStore(g->b, index, df_gen_at(g, g->i64, g->p_fault, df_gen_i64(g, 1)));
    LLVMBuildStore(g->b, extent, df_gen_at(g, g->i64, g->p_fault, df_gen_i64(g, 2)));
    df_if_end(g, &first);
}

/* Returns for each lane whether the index is not in [0, extent). An index that was cast from i32 is
 * compared as such: a vector has twice as many lanes of that size. */
static LLVMValueRef is_outside(df_gen *g, LLVMValueRef index, LLVMValueRef extent, uint32_t w)
{
    LLVMValueRef short_index = w > 1 && LLVMIsASExtInst(index) ? LLVMGetOperand(index, 0) : NULL;
    if (!short_index || LLVMTypeOf(short_index) != LLVMVectorType(g->i32, w))
        return icmp(g, LLVMIntUGE, index, extent);
    LLVMTypeRef type = LLVMTypeOf(extent);
    LLVMValueRef least[2] = { extent, k(g, DEFT_I64, (uint64_t)1 << 31, w) };
    LLVMValueRef bound = df_gen_intrinsic(g, "llvm.umin", &type, 1, least, 2);
    return icmp(g, LLVMIntUGE, short_index,
                LLVMBuildTrunc(g->b, bound, LLVMTypeOf(short_index), ""));
}

/* A mask of the active lanes that are true, as an i64; w == 1: an i1. */
static LLVMValueRef active_bits(df_gen *g, LLVMValueRef is, uint32_t w)
{
    if (w == 1) return is;
    if (g->mask) is = LLVMBuildAnd(g->b, is, g->mask, "");
    LLVMValueRef bits = LLVMBuildBitCast(g->b, is, LLVMIntTypeInContext(g->ctx, w), "");
    return w < 64 ? LLVMBuildZExt(g->b, bits, g->i64, "") : bits;
}

static LLVMValueRef is_any(df_gen *g, LLVMValueRef bits, uint32_t w)
{
    return w == 1 ? bits : icmp(g, LLVMIntNE, bits, df_gen_i64(g, 0));
}

/* Most indices are in [0, extent), and one comparison finds that out: no extent is negative. In the
 * other block, negative indices count from the end, and the others are faults. What follows need
 * not wait for the comparison. Inactive lanes may hold any index and get 0. */
static LLVMValueRef lower_check(df_gen *g, uint64_t id, LLVMValueRef index, LLVMValueRef extent,
                                uint32_t w)
{
    LLVMValueRef zero = k(g, DEFT_I64, 0, w), places[2] = { index };
    LLVMBasicBlockRef from[2];
    df_if other, bad;
    df_if_begin(g, &other, is_any(g, active_bits(g, is_outside(g, index, extent, w), w), w));
    from[0] = other.before;
    LLVMValueRef up = LLVMBuildAdd(g->b, index, extent, "");
    LLVMValueRef place = lower_select(g, icmp(g, LLVMIntSLT, index, zero), up, index);
    LLVMValueRef fails = icmp(g, LLVMIntUGE, place, extent);
    LLVMValueRef bits = active_bits(g, fails, w);
    df_if_begin(g, &bad, is_any(g, bits, w));
    if (w == 1) {
        record_fault(g, id, place, extent);
    } else {
        LLVMValueRef args[2] = { bits, LLVMConstInt(g->i1, 1, 0) };
        LLVMValueRef lane = df_gen_intrinsic(g, "llvm.cttz", &g->i64, 1, args, 2);
        record_fault(g, id, LLVMBuildExtractElement(g->b, place, lane, ""),
                     LLVMBuildExtractElement(g->b, extent, lane, ""));
    }
    df_if_end(g, &bad);
    places[1] = lower_select(g, fails, zero, place);
    from[1] = LLVMGetInsertBlock(g->b);
    df_if_end(g, &other);
    LLVMValueRef phi = LLVMBuildPhi(g->b, LLVMTypeOf(index), "");
    LLVMAddIncoming(phi, places, from, 2);
    return w > 1 && g->mask ? lower_select(g, g->mask, phi, zero) : phi;
}

/* ---- exported ---- */

LLVMValueRef df_lower_op(df_gen *g, const df_ins *ins, deft_dtype src, LLVMValueRef s[3],
                         uint32_t w)
{
    const deft_dtype t = ins->dtype;
    const bool real = df_is_real(t);
    LLVMBuilderRef b = g->b;
    switch ((df_kop)ins->op) {
    case DF_K_add: return real ? LLVMBuildFAdd(b, s[0], s[1], "") : LLVMBuildAdd(b, s[0], s[1], "");
    case DF_K_sub: return real ? LLVMBuildFSub(b, s[0], s[1], "") : LLVMBuildSub(b, s[0], s[1], "");
    case DF_K_mul: return real ? LLVMBuildFMul(b, s[0], s[1], "") : LLVMBuildMul(b, s[0], s[1], "");
    case DF_K_div: return lower_div(g, t, s[0], s[1], w);
    case DF_K_rem: return lower_rem(g, t, s[0], s[1], w);
    case DF_K_fma: {
        LLVMTypeRef type = LLVMTypeOf(s[0]);
        return df_gen_intrinsic(g, "llvm.fma", &type, 1, s, 3);
    }
    case DF_K_scale: return lower_scale(g, t, s, w);
    case DF_K_neg: return real ? LLVMBuildFNeg(b, s[0], "") : LLVMBuildNeg(b, s[0], "");
    case DF_K_abs: return lower_abs(g, t, s[0]);
    case DF_K_sqrt:
        return df_estimate_pays(g, t, w) ? df_estimate_sqrt(g, s[0])
                                         : lower_unary(g, "llvm.sqrt", s[0]);
    case DF_K_min: return extreme(g, t, s[0], s[1], false);
    case DF_K_max:
        return is_relu_of_quiet(g, ins) ? relu_of_quiet(g, s[0], s[1])
                                        : extreme(g, t, s[0], s[1], true);
    case DF_K_floor: return lower_unary(g, "llvm.floor", s[0]);
    case DF_K_ceil: return lower_unary(g, "llvm.ceil", s[0]);
    case DF_K_trunc: return lower_unary(g, "llvm.trunc", s[0]);
    case DF_K_rint: return lower_unary(g, "llvm.rint", s[0]);
    case DF_K_and: return LLVMBuildAnd(b, s[0], s[1], "");
    case DF_K_or: return LLVMBuildOr(b, s[0], s[1], "");
    case DF_K_xor: return LLVMBuildXor(b, s[0], s[1], "");
    case DF_K_not: return LLVMBuildNot(b, s[0], "");
    case DF_K_shl:
    case DF_K_shr:
    case DF_K_lshr: return lower_shift(g, (df_kop)ins->op, t, s[0], s[1], w);
    case DF_K_eq:
    case DF_K_ne:
    case DF_K_lt:
    case DF_K_le: return lower_compare(g, (df_kop)ins->op, src, s[0], s[1]);
    case DF_K_select: return lower_select(g, s[0], s[1], s[2]);
    case DF_K_cast: return lower_cast(g, t, src, s[0], w, half_flags(g, ins));
    case DF_K_bitcast: return LLVMBuildBitCast(b, s[0], df_gen_lanes(df_gen_type(g, t), w), "");
    case DF_K_check: return lower_check(g, ins->imm, s[0], s[1], w);
#define KOP(name, n_src, kind, types, join, identity) DF_CASE_##kind(name)
#include "ops/kops.def"
    case DF_N_KOPS: break;
    }
    df_unreachable();
}

LLVMValueRef df_lower_join(df_gen *g, df_kop op, deft_dtype t, LLVMValueRef a, LLVMValueRef b)
{
    const df_ins join = { .op = g->host->kops[op].join, .dtype = (uint8_t)t };
    LLVMValueRef both[3] = { a, b, NULL };
    df_assert(join.op != DF_K_none);          /* ops_check.c: then it is a map of two operands */
    return df_lower_op(g, &join, t, both, 1); /* these ops do not use w */
}
