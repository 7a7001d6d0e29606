/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions of f16 and bf16 to f32 and back, with exactly the bits of base/half.h. A value of
 * either is an i16 lane.
 *
 *   bf16   integer instructions on every machine, because vcvtneps2bf16 treats denormals as zeros
 *   f16    the machine's conversion where it has one (F16C, AArch64), which rounds to nearest even
 *          as kernels do; else integer instructions, because LLVM would call a function per lane
 */
#include "jit_llvm/gen.h"

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

static LLVMValueRef bf16_of_f32(df_gen *g, LLVMValueRef x, LLVMValueRef real, uint32_t w)
{
    LLVMValueRef quiet = LLVMBuildOr(g->b, x, word(g, 0x400000u, w), "");
    LLVMValueRef is_nan = LLVMBuildFCmp(g->b, LLVMRealUNO, real, real, "");
    LLVMValueRef v = LLVMBuildSelect(g->b, is_nan, quiet, rounded(g, x, 16, w), "");
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

LLVMValueRef df_half_from_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w, bool exact)
{
    LLVMTypeRef i16 = df_gen_lanes(g->i16, w);
    if (t == DEFT_F16 && g->t->has_f16) {
        LLVMTypeRef half = df_gen_lanes(LLVMHalfTypeInContext(g->ctx), w);
        return LLVMBuildBitCast(g->b, LLVMBuildFPTrunc(g->b, x, half, ""), i16, "");
    }
    LLVMValueRef bits = as(g, x, g->i32, w);
    if (exact && t == DEFT_BF16)
        bits = down_by(g, bits, 16, w);
    else
        bits = t == DEFT_BF16 ? bf16_of_f32(g, bits, x, w) : f16_of_f32(g, bits, w);
    return LLVMBuildTrunc(g->b, bits, i16, "");
}
