/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions of f16 and bf16 to f32 and back, with exactly the bits of base/half.h. A value of
 * either is an i16 lane.
 *
 *   bf16   integer instructions on every machine, because vcvtneps2bf16 treats denormals as zeros
 *   f16    the machine's conversion where it has one (F16C, AArch64), which rounds to nearest even
 *          as kernels do; else integer instructions, because LLVM would call a function per lane
 *
 * A kernel computes sums, products and quotients of f16 in f32, and rounds each. Where the
 * processor has instructions for f16, one of them takes the place of two conversions and the
 * operation. The bits are the same, because f32 has more than twice as many, so that a second
 * rounding changes nothing (Figueroa, 1995). All 2^32 pairs of operands were compared for each of
 * the four operations, NaN among them. A fused multiply-add has no such proof, and stays in f32.
 * x x + x and a maximum of 1 M elements take half of the time.
 *
 * Rounding to bf16 adds to the bits of an f32. The sum would turn some NaN into other numbers, so
 * in general a NaN is handled apart, which takes a third of the instructions. A NaN that comes from
 * bf16 operands has nothing in its low half, and the sum leaves its upper half alone. Arithmetic
 * gives the NaN of an operand, made quiet, or the processor's own NaN, whose low half is 0 too.
 * df_half_find_nans follows these two properties through a kernel.
 */
#include "jit_llvm/gen.h"

#include "base/half.h"

enum { MOST_CHOICES = 3 }; /* of one maximum: two operands, and whether either is NaN */

static LLVMValueRef word(df_gen *g, uint32_t v, uint32_t w)
{
    return df_gen_splat(g, LLVMConstInt(g->i32, v, 0), w);
}

static LLVMValueRef and_of(df_gen *g, LLVMValueRef x, uint32_t mask, uint32_t w)
{
    return LLVMBuildAnd(g->b, x, word(g, mask, w), "");
}

static LLVMValueRef add_of(df_gen *g, LLVMValueRef x, uint32_t v, uint32_t w)
{
    return LLVMBuildAdd(g->b, x, word(g, v, w), "");
}

static LLVMValueRef up_by(df_gen *g, LLVMValueRef x, uint32_t n, uint32_t w)
{
    return LLVMBuildShl(g->b, x, word(g, n, w), "");
}

static LLVMValueRef down_by(df_gen *g, LLVMValueRef x, uint32_t n, uint32_t w)
{
    return LLVMBuildLShr(g->b, x, word(g, n, w), "");
}

static LLVMValueRef select_less(df_gen *g, LLVMValueRef x, uint32_t limit, LLVMValueRef a,
                                LLVMValueRef b, uint32_t w)
{
    LLVMValueRef less = LLVMBuildICmp(g->b, LLVMIntULT, x, word(g, limit, w), "");
    return LLVMBuildSelect(g->b, less, a, b, "");
}

static LLVMValueRef as(df_gen *g, LLVMValueRef x, LLVMTypeRef t, uint32_t w)
{
    return LLVMBuildBitCast(g->b, x, df_gen_lanes(t, w), "");
}

/* ---- to f32 ---- */

static LLVMValueRef f32_of_f16(df_gen *g, LLVMValueRef x, uint32_t w)
{
    LLVMValueRef sign = up_by(g, and_of(g, x, 0x8000u, w), 16, w);
    LLVMValueRef rest = and_of(g, x, 0x7fffu, w), moved = up_by(g, rest, 13, w);
    LLVMValueRef base = as(g, word(g, 0x38800000u, w), g->f32, w);
    LLVMValueRef over = as(g, add_of(g, moved, 0x38800000u, w), g->f32, w);
    LLVMValueRef small = as(g, LLVMBuildFSub(g->b, over, base, ""), g->i32, w);
    LLVMValueRef normal = add_of(g, moved, 0x38000000u, w);
    LLVMValueRef infinite = add_of(g, normal, 0x38000000u, w);
    LLVMValueRef quiet = LLVMBuildOr(g->b, infinite, word(g, 0x400000u, w), "");
    LLVMValueRef v = select_less(g, rest, 0x7c01u, infinite, quiet, w);
    v = select_less(g, rest, 0x7c00u, normal, v, w);
    v = select_less(g, rest, 0x400u, small, v, w);
    return LLVMBuildOr(g->b, v, sign, "");
}

LLVMValueRef df_half_to_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w)
{
    if (t == DEFT_F16 && g->t->has_f16) {
        LLVMTypeRef half = LLVMHalfTypeInContext(g->ctx);
        return LLVMBuildFPExt(g->b, as(g, x, half, w), df_gen_lanes(g->f32, w), "");
    }
    LLVMValueRef bits = LLVMBuildZExt(g->b, x, df_gen_lanes(g->i32, w), "");
    bits = t == DEFT_BF16 ? up_by(g, bits, 16, w) : f32_of_f16(g, bits, w);
    return as(g, bits, g->f32, w);
}

/* ---- from f32 ---- */

/* Adds to x so that dropping its lowest n_lost bits rounds to nearest, ties to even: half of the
 * last kept bit's weight minus 1, plus that bit. */
static LLVMValueRef rounded(df_gen *g, LLVMValueRef x, uint32_t n_lost, uint32_t w)
{
    LLVMValueRef odd = and_of(g, down_by(g, x, n_lost, w), 1, w);
    return LLVMBuildAdd(g->b, add_of(g, x, (1u << (n_lost - 1)) - 1, w), odd, "");
}

/* The same for a bf16, with masks: a test and an addition in the lanes that pass it take the place
 * of a shift, a mask and an addition. */
static LLVMValueRef rounded_by_mask(df_gen *g, LLVMValueRef x, uint32_t w)
{
    LLVMValueRef zero = LLVMConstNull(df_gen_lanes(g->i32, w));
    LLVMValueRef odd = LLVMBuildICmp(g->b, LLVMIntNE, and_of(g, x, 0x10000u, w), zero, "");
    return LLVMBuildSelect(g->b, odd, add_of(g, x, 0x8000u, w), add_of(g, x, 0x7fffu, w), "");
}

/* The same by an instruction that multiplies the 16-bit halves of two words and adds both products
 * to a third word. The products are 0x7fff and the last kept bit. Returns NULL when the target has
 * no such instruction for w lanes. Two instructions take the place of three. */
static LLVMValueRef rounded_by_products(df_gen *g, LLVMValueRef x, uint32_t w)
{
    const char *name = w == 16  ? "llvm.x86.avx512.vpdpwssd.512"
                       : w == 8 ? "llvm.x86.avx512.vpdpwssd.256"
                       : w == 4 ? "llvm.x86.avx512.vpdpwssd.128"
                                : NULL;
    if (!name || !g->t->has_products) return NULL;
    LLVMValueRef added = LLVMBuildOr(g->b, and_of(g, x, 0x10000u, w), word(g, 0x7fffu, w), "");
    LLVMValueRef s[3] = { x, added, word(g, 0x10001u, w) };
    return df_gen_intrinsic(g, name, NULL, 0, s, 3);
}

static LLVMValueRef rounded_to_bf16(df_gen *g, LLVMValueRef x, uint32_t w)
{
    LLVMValueRef sum = rounded_by_products(g, x, w);
    if (sum) return sum;
    return w > 1 && g->t->mask_bytes ? rounded_by_mask(g, x, w) : rounded(g, x, 16, w);
}

static LLVMValueRef bf16_of_f32(df_gen *g, LLVMValueRef x, LLVMValueRef real, uint32_t w,
                                bool has_tame_nan)
{
    LLVMValueRef sum = rounded_to_bf16(g, x, w);
    if (has_tame_nan) return down_by(g, sum, 16, w);
    LLVMValueRef quiet = LLVMBuildOr(g->b, x, word(g, 0x400000u, w), "");
    LLVMValueRef is_nan = LLVMBuildFCmp(g->b, LLVMRealUNO, real, real, "");
    LLVMValueRef v = LLVMBuildSelect(g->b, is_nan, quiet, sum, "");
    return down_by(
        g, v, 16,
        w); /* last, so that LLVM merges this shift and that of a cast back to f32 into one mask */
}

/* f16 below 2^-14 has steps of 2^-24, which is the weight of the last bit of an f32 in [0.5, 1). So
 * adding 0.5 rounds to such a step. */
static LLVMValueRef small_f16(df_gen *g, LLVMValueRef magnitude, uint32_t w)
{
    LLVMValueRef half = as(g, word(g, 0x3f000000u, w), g->f32, w);
    LLVMValueRef sum = LLVMBuildFAdd(g->b, as(g, magnitude, g->f32, w), half, "");
    return LLVMBuildSub(g->b, as(g, sum, g->i32, w), word(g, 0x3f000000u, w), "");
}

static LLVMValueRef f16_of_f32(df_gen *g, LLVMValueRef x, uint32_t w)
{
    LLVMValueRef a = and_of(g, x, 0x7fffffffu, w);
    LLVMValueRef sign = and_of(g, down_by(g, x, 16, w), 0x8000u, w);
    LLVMValueRef normal = down_by(g, add_of(g, rounded(g, a, 13, w), 0u - 0x38000000u, w), 13, w);
    LLVMValueRef payload = and_of(g, down_by(g, a, 13, w), 0x3ffu, w);
    LLVMValueRef nan = LLVMBuildOr(g->b, payload, word(g, 0x7e00u, w), "");
    LLVMValueRef v = select_less(g, a, 0x7f800001u, word(g, 0x7c00u, w), nan, w);
    v = select_less(g, a, 0x47800000u, normal, v, w);
    v = select_less(g, a, 0x38800000u, small_f16(g, a, w), v, w);
    return LLVMBuildOr(g->b, v, sign, "");
}

/* The lane of a vector whose lanes are all alike, and the value itself where w is 1; NULL: it is
 * no such vector. */
static LLVMValueRef lane_of_all(LLVMValueRef x, uint32_t w)
{
    if (w == 1) return x;
    if (LLVMIsConstant(x)) return LLVMGetAggregateElement(x, 0);
    if (!LLVMIsAShuffleVectorInst(x)) return NULL;
    LLVMValueRef one = LLVMGetOperand(x, 0);
    return LLVMIsAInsertElementInst(one) ? LLVMGetOperand(one, 1) : NULL;
}

static LLVMValueRef half_behind(df_gen *g, LLVMValueRef x, uint32_t w, int depth);

/* Writes a comparison of casts of f16 as one of f16. Other conditions stay. */
static LLVMValueRef condition_in_f16(df_gen *g, LLVMValueRef c, uint32_t w)
{
    if (!LLVMIsAFCmpInst(c)) return c;
    LLVMValueRef a = half_behind(g, LLVMGetOperand(c, 0), w, 0);
    LLVMValueRef b = half_behind(g, LLVMGetOperand(c, 1), w, 0);
    return a && b ? LLVMBuildFCmp(g->b, LLVMGetFCmpPredicate(c), a, b, "") : c;
}

/* The f16 which x is, as a cast of it to f32, or a choice among `depth` times two such casts; NULL:
 * x is not known to be one. */
static LLVMValueRef half_behind(df_gen *g, LLVMValueRef x, uint32_t w, int depth)
{
    LLVMTypeRef half = LLVMHalfTypeInContext(g->ctx);
    if (LLVMIsASelectInst(x) && depth > 0) {
        LLVMValueRef a = half_behind(g, LLVMGetOperand(x, 1), w, depth - 1);
        LLVMValueRef b = a ? half_behind(g, LLVMGetOperand(x, 2), w, depth - 1) : NULL;
        return b ? LLVMBuildSelect(g->b, condition_in_f16(g, LLVMGetOperand(x, 0), w), a, b, "")
                 : NULL;
    }
    if (LLVMIsAFPExtInst(x)) {
        LLVMValueRef from = LLVMGetOperand(x, 0);
        return LLVMTypeOf(from) == df_gen_lanes(half, w) ? from : NULL;
    }
    LLVMValueRef one = lane_of_all(x, w);
    if (one && LLVMIsAConstantFP(one)) {
        LLVMBool is_other;
        const float v = (float)LLVMConstRealGetDouble(one, &is_other);
        if (is_other || df_f32_of_f16(df_f16_of_f32(v)) != v) return NULL;
        return df_gen_splat(g, LLVMConstReal(half, v), w);
    }
    if (!one || one == x || !LLVMIsAFPExtInst(one)) return NULL;
    LLVMValueRef from = LLVMGetOperand(one, 0);
    return LLVMTypeOf(from) == half ? df_gen_splat(g, from, w) : NULL;
}

/* The f16 nearest to x, where x is a sum, a product or a quotient of two f16, or chosen among f16;
 * NULL: it is not. */
static LLVMValueRef computed_in_f16(df_gen *g, LLVMValueRef x, uint32_t w)
{
    if (!g->t->has_f16_math || g->level == DF_OPT_O0) return NULL;
    if (LLVMIsASelectInst(x)) return half_behind(g, x, w, MOST_CHOICES);
    if (!LLVMIsABinaryOperator(x)) return NULL;
    const LLVMOpcode op = LLVMGetInstructionOpcode(x);
    if (op != LLVMFAdd && op != LLVMFSub && op != LLVMFMul && op != LLVMFDiv) return NULL;
    LLVMValueRef a = half_behind(g, LLVMGetOperand(x, 0), w, 0);
    LLVMValueRef b = half_behind(g, LLVMGetOperand(x, 1), w, 0);
    return a && b ? LLVMBuildBinOp(g->b, op, a, b, "") : NULL;
}

LLVMValueRef df_half_from_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w, unsigned flags)
{
    LLVMTypeRef i16 = df_gen_lanes(g->i16, w);
    if (t == DEFT_F16) {
        LLVMValueRef v = computed_in_f16(g, x, w);
        if (v) return LLVMBuildBitCast(g->b, v, i16, "");
    }
    if (t == DEFT_F16 && g->t->has_f16) {
        LLVMTypeRef half = df_gen_lanes(LLVMHalfTypeInContext(g->ctx), w);
        return LLVMBuildBitCast(g->b, LLVMBuildFPTrunc(g->b, x, half, ""), i16, "");
    }
    LLVMValueRef bits = as(g, x, g->i32, w);
    if (flags & DF_HALF_EXACT && t == DEFT_BF16)
        bits = down_by(g, bits, 16, w);
    else
        bits = t == DEFT_BF16 ? bf16_of_f32(g, bits, x, w, flags & DF_HALF_TAME_NAN)
                              : f16_of_f32(g, bits, w);
    return LLVMBuildTrunc(g->b, bits, i16, "");
}

/* ---- NaN ---- */

/* Whether value i of a cast or constant is never NaN, or only one whose low half is 0. */
static bool starts_short(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op == DF_K_const) return (ins->imm & 0x7fffffffu) <= 0x7f800000u;
    const deft_dtype from = (deft_dtype)g->k->ins[ins->src[0]].dtype;
    return from == DEFT_BF16 || !df_is_float(from);
}

/* Whether op is arithmetic: if the result is NaN, it is that of an operand, made quiet, or the
 * processor's own. */
static bool is_arithmetic(df_kop op)
{
    return op == DF_K_add || op == DF_K_sub || op == DF_K_mul || op == DF_K_div || op == DF_K_fma ||
           op == DF_K_scale || op == DF_K_sqrt;
}

/* Whether a NaN that op gives has the bits of an operand, but for the sign. */
static bool passes_nan(df_kop op)
{
    return op == DF_K_neg || op == DF_K_abs || op == DF_K_min || op == DF_K_max ||
           op == DF_K_select;
}

static void find_nan(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    df_val *v = &g->val[i];
    if (op == DF_K_const || op == DF_K_cast) {
        v->has_short_nan = starts_short(g, i);
        v->has_quiet_nan = op == DF_K_const
                               ? v->has_short_nan
                               : !df_is_float((deft_dtype)g->k->ins[ins->src[0]].dtype);
    } else if (is_arithmetic(op) || passes_nan(op)) {
        v->has_short_nan = v->has_quiet_nan = true;
        for (uint32_t s = op == DF_K_select ? 1 : 0; s < df_gen_n_src(g, i); s++) {
            v->has_short_nan &= g->val[ins->src[s]].has_short_nan;
            v->has_quiet_nan &= g->val[ins->src[s]].has_quiet_nan;
        }
        v->has_quiet_nan |= is_arithmetic(op);
    }
}

void df_half_find_nans(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].dtype == DEFT_F32) find_nan(g, i);
}
