/* SPDX-License-Identifier: Apache-2.0
 *
 * Results whose elements follow each other in memory in turn: three or more tensors that are
 * stacked along a new last axis.
 *
 *   y[i,0] = a    y[i,1] = b    y[i,2] = c       memory: a0 b0 c0 a1 b1 c1 a2 b2 c2 ..
 *
 * Stored one by one, each element is an instruction. Here the vectors of all results are
 * interleaved in registers (interleave.c), and stored as whole vectors. Pairs are handled in
 * twos.c: they may also be loaded, and go around the caches.
 *
 * Whether results are in turn is known from their addresses and strides. So the loop over the lanes
 * is written twice, for results in turn and for others. Stores that may be in turn follow each
 * other, and go through accesses that do.
 */
#include "jit_llvm/gen.h"

enum {
    LONG_BODY = 200, /* instructions. In a longer body the accesses take little of the time */
};

bool df_turns_pay(const df_gen *g)
{
    if (g->k->mode != DF_MODE_MAP || g->w == 1 || g->level == DF_OPT_O0 || g->vec_axis < 0 ||
        g->has_inside || g->is_jammed || df_gen_body_size(g) > LONG_BODY)
        return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_is_here(g, i, PLACE_BODY) && df_access_stores_in_turn(g, i) > 0) return true;
    return false;
}

LLVMValueRef df_turns_hold(df_gen *g)
{
    LLVMValueRef is = LLVMConstInt(g->i1, 1, 0);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const uint32_t n = df_access_stores_in_turn(g, i);
        const uint32_t first = (uint32_t)g->k->ins[i].imm;
        for (uint32_t a = first; a < first + n; a++) {
            const int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
            LLVMValueRef step = df_gen_i64(g, n * size);
            LLVMValueRef same = LLVMBuildICmp(g->b, LLVMIntEQ, g->acc[a].step, step, "");
            is = LLVMBuildAnd(g->b, is, same, "");
            if (a > first) is = LLVMBuildAnd(g->b, is, df_access_is_behind(g, a - 1, a), "");
        }
    }
    return is;
}
