/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of MAP on bf16, two elements to a word of 32 bits:
 *
 *   elements in memory    0   1   2   3   4   5   6   7
 *   words                 1:0     3:2     5:4     7:6
 *   copy 0 of the body    0       2       4       6        word << 16
 *   copy 1                1       3       5       7        word & 0xffff0000
 *
 * As f32, an element is the upper half of a word. So one instruction widens the even elements of a
 * vector of words, and one the odd elements. Neighbouring elements would first be spread over a
 * vector. Two instructions store the results of two copies, where each copy would be shifted and
 * packed. LLVM finds these instructions: a half is an i16 lane here as everywhere, and the casts
 * from and to f32 shift it. A map does not ask which element is in which lane, as long as all its
 * accesses have the same order. df_gen_may_have_words decides that.
 *
 * On Zen 5, relu(a x + b) of 256 K elements takes 0.85 of the time.
 */
#include "jit_llvm/gen.h"

static LLVMValueRef sixteen(df_gen *g)
{
    return df_gen_splat(g, LLVMConstInt(g->i32, 16, 0), g->w);
}

/* The address of the words, of which the current copy has the even elements. */
static LLVMValueRef words_at(df_gen *g, uint32_t access)
{
    df_assert(g->has_words && g->copy % 2 == 0 && !g->mask);
    return df_gen_at(g, g->i16, g->acc[access].at, g->lane0);
}

void df_words_load(df_gen *g, uint32_t access, LLVMValueRef out[2])
{
    LLVMTypeRef halves = df_gen_lanes(g->i16, g->w);
    LLVMValueRef at = words_at(g, access);
    df_access_prefetch(g, access, at);
    LLVMValueRef v = LLVMBuildLoad2(g->b, df_gen_lanes(g->i32, g->w), at, "");
    LLVMSetAlignment(v, 2);
    out[0] = LLVMBuildTrunc(g->b, v, halves, "");
    out[1] = LLVMBuildTrunc(g->b, LLVMBuildLShr(g->b, v, sixteen(g), ""), halves, "");
}

void df_words_store(df_gen *g, uint32_t access, LLVMValueRef even, LLVMValueRef odd)
{
    LLVMTypeRef words = df_gen_lanes(g->i32, g->w);
    LLVMValueRef high = LLVMBuildZExt(g->b, odd, words, "");
    high = LLVMBuildShl(g->b, high, sixteen(g), "");
    LLVMValueRef v = LLVMBuildOr(g->b, high, LLVMBuildZExt(g->b, even, words, ""), "");
    LLVMValueRef p = words_at(g, access);
    if (g->is_streaming && df_access_may_stream(g->k, access)) {
        df_stream_store(g, v, p, 4);
    } else {
        df_access_prefetch(g, access, p);
        LLVMSetAlignment(LLVMBuildStore(g->b, v, p), 2);
    }
}
