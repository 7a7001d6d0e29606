/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotients and square roots in lanes of f32 without the divider of the processor.
 *
 * FAST kernels: the processor's 14-bit estimate (AVX-512) and one step of Newton's method. The
 * error is about 1.5 ULP. On Intel's cores the time is a third of that of vdivps and a quarter of
 * that of vsqrtps. AMD's cores divide 16 lanes in 6 cycles and take their roots in 10, beside other
 * work, while an estimate keeps the units for products busy for 7. So there only a / sqrt(x) is
 * estimated. Where the estimate is 0 or infinite, the step would give NaN, so the result is the
 * estimate itself. The inverse of a denormal number may overflow although the quotient does not. So
 * such a divisor and its dividend are multiplied by 2^24 first. Where whole vectors are computed,
 * the code first tries to do without these guards (bare.c).
 *
 *   1/d        y = rcp14(d)       y + y (1 - d y)
 *   1/sqrt(x)  y = rsqrt14(x)     y + y/2 (1 - x y y)
 *   sqrt(x)    r = x y            r + r/2 (1 - r y)
 *
 * Other kernels must give the bits of IEEE 754. In them this file writes 1/sqrt(x) for Intel's
 * cores, where a root and a division keep the divider busy for 22 cycles per 16 lanes. The root s
 * comes from the divider. Its inverse comes from the units for products, at the same time:
 *
 *   y = rcp14(s);  y = y + y (1 - s y);  e = 1 - s y, which is exact;  y + y e
 *
 * Before it is rounded, the result is (1 - e^2) / s, and |e| is at most 2^-23. It rounds as 1 / s
 * does, unless 1 / s is that near to the middle of two numbers. This is so for the largest fraction
 * alone, which has e = 2^-24. There, and where e is NaN because s is 0, infinite or NaN, a branch
 * divides. A test compares all inputs (tests/unit/test_inverse_roots.c). A strict N-body step of
 * 1024 bodies takes 326 us on one thread, and 426 with the divider alone.
 */
#include "jit_llvm/gen.h"

/* Whether the estimates are instructions for w lanes of t. */
static bool has_instructions(const df_gen *g, deft_dtype t, uint32_t w)
{
    return t == DEFT_F32 && (w == 8 || w == 16) && g->t->arch == DF_ARCH_X86_64 &&
           g->t->vector_bytes == 64;
}

bool df_estimate_has(const df_gen *g, deft_dtype t, uint32_t w)
{
    return g->k->flags & DF_KERNEL_FAST && has_instructions(g, t, w);
}

bool df_estimate_inverts_roots(const df_gen *g, deft_dtype t, uint32_t w)
{
    return !(g->k->flags & DF_KERNEL_FAST) && !g->t->fast_division && has_instructions(g, t, w);
}

bool df_estimate_pays(const df_gen *g, deft_dtype t, uint32_t w)
{
    return df_estimate_has(g, t, w) && !g->t->fast_division;
}

static uint32_t width(LLVMValueRef x)
{
    return LLVMGetVectorSize(LLVMTypeOf(x));
}

static LLVMValueRef real(df_gen *g, double v, LLVMValueRef like)
{
    return df_gen_splat(g, LLVMConstReal(g->f32, v), width(like));
}

static LLVMValueRef fused(df_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef s[3] = { a, b, c };
    return df_gen_intrinsic(g, "llvm.fma", &type, 1, s, 3);
}

/* 1 - a b */
static LLVMValueRef rest(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return fused(g, LLVMBuildFNeg(g->b, a, ""), b, real(g, 1, a));
}

static LLVMValueRef estimate(df_gen *g, LLVMValueRef x, bool of_root)
{
    static const char *const names[2][2] = {
        { "llvm.x86.avx512.rcp14.ps.256", "llvm.x86.avx512.rcp14.ps.512" },
        { "llvm.x86.avx512.rsqrt14.ps.256", "llvm.x86.avx512.rsqrt14.ps.512" },
    };
    const uint32_t w = width(x);
    LLVMTypeRef mask = LLVMIntTypeInContext(g->ctx, w);
    LLVMValueRef s[3] = { x, LLVMConstNull(LLVMTypeOf(x)), LLVMConstAllOnes(mask) };
    return df_gen_intrinsic(g, names[of_root][w == 16], NULL, 0, s, 3);
}

/* The lanes whose estimate is 0 or infinite. Exactly those values equal their double. */
static LLVMValueRef is_final(df_gen *g, LLVMValueRef y)
{
    return LLVMBuildFCmp(g->b, LLVMRealOEQ, y, LLVMBuildFAdd(g->b, y, y, ""), "");
}

static LLVMValueRef half(df_gen *g, LLVMValueRef x)
{
    return LLVMBuildFMul(g->b, x, real(g, 0.5, x), "");
}

/* The lanes that are denormal or 0. x86 tests the exponent's bits in one instruction. */
static LLVMValueRef is_denormal(df_gen *g, LLVMValueRef x)
{
    const uint32_t w = width(x);
    LLVMTypeRef words = df_gen_lanes(g->i32, w);
    LLVMValueRef exponent = df_gen_splat(g, LLVMConstInt(g->i32, 0x7f800000, 0), w);
    LLVMValueRef bits = LLVMBuildAnd(g->b, LLVMBuildBitCast(g->b, x, words, ""), exponent, "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, bits, LLVMConstNull(words), "");
}

LLVMValueRef df_estimate_div(df_gen *g, LLVMValueRef a, LLVMValueRef d)
{
    LLVMValueRef tiny = is_denormal(g, d), up = real(g, 0x1p24, d);
    a = LLVMBuildSelect(g->b, tiny, LLVMBuildFMul(g->b, a, up, ""), a, "");
    d = LLVMBuildSelect(g->b, tiny, LLVMBuildFMul(g->b, d, up, ""), d, "");
    LLVMValueRef y = estimate(g, d, false);
    LLVMValueRef better = fused(g, rest(g, d, y), y, y);
    return LLVMBuildFMul(g->b, a, LLVMBuildSelect(g->b, is_final(g, y), y, better, ""), "");
}

void df_estimate_bare_div(df_gen *g, const LLVMValueRef *a, const LLVMValueRef *d, uint32_t n,
                          LLVMValueRef *quotient)
{
    LLVMValueRef y[DF_COPIES], e[DF_COPIES];
    for (uint32_t c = 0; c < n; c++) y[c] = estimate(g, d[c], false);
    for (uint32_t c = 0; c < n; c++) e[c] = rest(g, d[c], y[c]);
    for (uint32_t c = 0; c < n; c++) y[c] = fused(g, e[c], y[c], y[c]);
    for (uint32_t c = 0; c < n; c++) quotient[c] = LLVMBuildFMul(g->b, a[c], y[c], "");
}

/* y / 2 for the estimate y of an inverse root, and 0 for 0. Such a y is a normal number, 0 or
 * infinity, so the exponent in its upper 16 bits becomes one less. Integers are subtracted by units
 * that products do not keep busy, and 0 stays 0 because this subtraction ends there. */
static LLVMValueRef half_of_estimate(df_gen *g, LLVMValueRef y)
{
    const uint32_t w = width(y);
    LLVMTypeRef halves = df_gen_lanes(g->i16, 2 * w), words = df_gen_lanes(g->i32, w);
    LLVMValueRef one = df_gen_splat(g, LLVMConstInt(g->i32, 1 << 23, 0), w);
    LLVMValueRef s[2] = { LLVMBuildBitCast(g->b, y, halves, ""),
                          LLVMBuildBitCast(g->b, one, halves, "") };
    LLVMValueRef less = df_gen_intrinsic(g, "llvm.usub.sat", &halves, 1, s, 2);
    return LLVMBuildBitCast(g->b, LLVMBuildBitCast(g->b, less, words, ""), LLVMTypeOf(y), "");
}

LLVMValueRef df_estimate_over_sqrt(df_gen *g, LLVMValueRef a, LLVMValueRef x)
{
    LLVMValueRef y = estimate(g, x, true), low = real(g, -1, x);
    LLVMValueRef e = rest(g, LLVMBuildFMul(g->b, x, y, ""), y);
    /* Where y is 0 or infinite, e is NaN. This is the maximum of x86, which then gives -1, and
     * y - y / 2 is y. Everywhere else e is almost 0. */
    e = LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, LLVMRealOGT, e, low, ""), e, low, "");
    return LLVMBuildFMul(g->b, a, fused(g, e, half_of_estimate(g, y), y), "");
}

LLVMValueRef df_estimate_sqrt(df_gen *g, LLVMValueRef x)
{
    LLVMValueRef y = estimate(g, x, true);
    LLVMValueRef r = LLVMBuildFMul(g->b, x, y, "");
    LLVMValueRef better = fused(g, rest(g, r, y), half(g, r), r);
    return LLVMBuildSelect(g->b, is_final(g, y), x, better,
                           ""); /* the root of 0 is 0, of infinity infinity */
}

/* The estimate of the inverse root of x, and of the least denormal number where x is 0. Then the
 * root becomes 0. As unsigned integers, the bits of all other numbers are larger. */
static LLVMValueRef estimate_above_zero(df_gen *g, LLVMValueRef x)
{
    LLVMTypeRef words = df_gen_lanes(g->i32, width(x));
    LLVMValueRef least = df_gen_splat(g, LLVMConstInt(g->i32, 1, 0), width(x));
    LLVMValueRef s[2] = { LLVMBuildBitCast(g->b, x, words, ""), least };
    LLVMValueRef above = df_gen_intrinsic(g, "llvm.umax", &words, 1, s, 2);
    return estimate(g, LLVMBuildBitCast(g->b, above, LLVMTypeOf(x), ""), true);
}

void df_estimate_bare_sqrt(df_gen *g, const LLVMValueRef *x, uint32_t n, LLVMValueRef *root)
{
    LLVMValueRef y[DF_COPIES], r[DF_COPIES], e[DF_COPIES], h[DF_COPIES];
    for (uint32_t c = 0; c < n; c++) y[c] = estimate_above_zero(g, x[c]);
    for (uint32_t c = 0; c < n; c++) r[c] = LLVMBuildFMul(g->b, x[c], y[c], "");
    for (uint32_t c = 0; c < n; c++) e[c] = rest(g, r[c], y[c]);
    for (uint32_t c = 0; c < n; c++) h[c] = half(g, r[c]);
    for (uint32_t c = 0; c < n; c++) root[c] = fused(g, e[c], h[c], r[c]);
}

void df_estimate_inverse_roots(df_gen *g, LLVMValueRef one, const LLVMValueRef *root, uint32_t n,
                               LLVMValueRef *inverse)
{
    const uint32_t w = width(one);
    LLVMTypeRef mask = LLVMIntTypeInContext(g->ctx, w);
    LLVMValueRef is_sure = NULL, v[DF_COPIES][2];
    for (uint32_t c = 0; c < n; c++) {
        LLVMValueRef y = estimate(g, root[c], false);
        y = fused(g, y, rest(g, root[c], y), y);
        LLVMValueRef e = rest(g, root[c], y);
        LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealONE, e, real(g, 0x1p-24, e), "");
        is_sure = is_sure ? LLVMBuildAnd(g->b, is_sure, is, "") : is;
        v[c][0] = fused(g, y, e, y);
    }
    if (g->mask) is_sure = LLVMBuildOr(g->b, is_sure, LLVMBuildNot(g->b, g->mask, ""), "");
    is_sure = LLVMBuildBitCast(g->b, is_sure, mask, "");
    LLVMValueRef are_all = LLVMBuildICmp(g->b, LLVMIntEQ, is_sure, LLVMConstAllOnes(mask), "");
    LLVMBasicBlockRef from[2] = { LLVMGetInsertBlock(g->b), df_gen_block(g, "divide") };
    LLVMBasicBlockRef after = df_gen_block(g, "inverse");
    LLVMBuildCondBr(g->b, are_all, after, from[1]);
    LLVMPositionBuilderAtEnd(g->b, from[1]);
    for (uint32_t c = 0; c < n; c++) v[c][1] = LLVMBuildFDiv(g->b, one, root[c], "");
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, after);
    for (uint32_t c = 0; c < n; c++) {
        inverse[c] = LLVMBuildPhi(g->b, LLVMTypeOf(one), "");
        LLVMAddIncoming(inverse[c], v[c], from, 2);
    }
}
