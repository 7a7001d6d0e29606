/* SPDX-License-Identifier: Apache-2.0
 *
 * The current vector: which lanes it holds, which of them are active, and which copy of the body is
 * being written.
 */
#include "jit_llvm/gen.h"

void df_gen_copy(df_gen *g, uint32_t copy)
{
    g->copy = copy;
    g->lane0 = g->lane0s[copy];
    g->n_active = g->n_actives[copy];
    g->mask = g->masks[copy];
}

/* A vector of so many lanes compares its indices in several vectors of words. */
enum { MANY_LANES = 32 };

/* The lanes of which there are n, at most g->w; 0 or a negative number: none. LLVM moves
 * comparisons into the loops that use them, where those of many lanes would take a third of the
 * time of a product of bytes. So the mask of many lanes is made of a number. */
static LLVMValueRef first_lanes(df_gen *g, LLVMValueRef n)
{
    if (!g->native_masks || g->w < MANY_LANES) {
        LLVMValueRef active = LLVMBuildTrunc(g->b, n, g->i32, "");
        return LLVMBuildICmp(g->b, LLVMIntSLT, df_gen_iota(g, g->i32, g->w),
                             df_gen_splat(g, active, g->w), "");
    }
    LLVMTypeRef t = LLVMIntTypeInContext(g->ctx, g->w);
    LLVMValueRef off = LLVMBuildSub(g->b, df_gen_i64(g, g->w), n, "");
    off = LLVMBuildAnd(g->b, off, df_gen_i64(g, g->w - 1), "");
    off = g->w < 64 ? LLVMBuildTrunc(g->b, off, t, "") : off;
    LLVMValueRef bits = LLVMBuildLShr(g->b, LLVMConstAllOnes(t), off, "");
    LLVMValueRef any = LLVMBuildICmp(g->b, LLVMIntSGT, n, df_gen_i64(g, 0), "");
    bits = LLVMBuildSelect(g->b, any, bits, LLVMConstNull(t), "");
    return LLVMBuildBitCast(g->b, bits, LLVMVectorType(g->i1, g->w), "");
}

void df_gen_copies_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n)
{
    g->epoch++;
    g->n_copies = n;
    for (uint32_t c = 0; c < n; c++) {
        if (c > 0) lane0 = LLVMBuildAdd(g->b, lane0, df_gen_i64(g, g->w), "");
        g->lane0s[c] = lane0;
        g->masks[c] = g->n_actives[c] = NULL;
        if (!end || g->w == 1) continue;
        LLVMValueRef left = LLVMBuildSub(g->b, end, lane0, "");
        int64_t n_left;
        if (df_gen_known(left, &n_left) && n_left >= g->w) continue; /* all lanes */
        g->n_actives[c] = df_gen_min(g, left, df_gen_i64(g, g->w));
        g->masks[c] = first_lanes(g, g->n_actives[c]);
    }
    for (uint32_t c = 0; c < n && g->is_jammed; c++) {
        g->lane0s[n + c] = g->lane0s[c];
        g->masks[n + c] = g->masks[c];
        g->n_actives[n + c] = g->n_actives[c];
    }
    if (g->is_jammed) g->n_copies = 2 * n;
    df_gen_copy(g, 0);
}

void df_gen_mask(df_gen *g, LLVMValueRef mask, LLVMValueRef n_active)
{
    for (uint32_t c = 0; c < g->n_copies; c++) {
        g->masks[c] = mask;
        g->n_actives[c] = n_active;
    }
    df_gen_copy(g, 0);
}

void df_gen_lanes_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end)
{
    df_gen_copies_begin(g, lane0, end, 1);
}

/* If `lanes` divides g->multiple, which divides from and to, all vectors are whole. */
LLVMValueRef df_gen_whole(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t lanes)
{
    if (g->multiple % lanes == 0) return to;
    LLVMValueRef n = LLVMBuildSub(g->b, to, from, "");
    n = LLVMBuildAnd(g->b, n, df_gen_i64(g, -(int64_t)lanes), "");
    return LLVMBuildAdd(g->b, from, n, "");
}
