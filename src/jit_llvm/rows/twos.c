/* SPDX-License-Identifier: Apache-2.0
 *
 * Results whose elements alternate in memory: the parts of complex numbers, or two tensors that are
 * stacked along the last axis.
 *
 *   x[i,0] = re    stores of two accesses, each with a step of two elements along the lanes
 *   x[i,1] = im
 *
 * A store with a step works lane by lane, which takes most of the time of a short kernel. Whether
 * two accesses alternate is known from their addresses and strides. So the loop over the lanes is
 * written twice. In one, all accesses that step along the lanes step by two elements: the stores
 * are made in twos (df_access_store_two), and no load tests its step. The other one is for all
 * else.
 * a b + a of 256 K complex numbers in caches takes half of the time.
 */
#include "jit_llvm/gen.h"

enum {
    LONG_BODY = 200, /* instructions. In a longer body the stores take little of the time */
};

static bool two_pay(const df_gen *g)
{
    if (g->k->mode != DF_MODE_MAP || g->w == 1 || g->level == DF_OPT_O0 || g->vec_axis < 0 ||
        g->has_inside || df_gen_body_size(g) > LONG_BODY)
        return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_access_begins_twos(g, i)) return true;
    return false;
}

/* Whether all accesses that step along the lanes step by two elements, and results alternate. */
static LLVMValueRef alternate(df_gen *g)
{
    LLVMValueRef is = LLVMConstInt(g->i1, 1, 0);
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!df_access_steps(g, a)) continue;
        const int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
        LLVMValueRef same =
            LLVMBuildICmp(g->b, LLVMIntEQ, g->acc[a].step, df_gen_i64(g, 2 * size), "");
        is = LLVMBuildAnd(g->b, is, same, "");
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_access_begins_twos(g, i)) continue;
        const uint32_t a = (uint32_t)g->k->ins[i].imm;
        const int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
        LLVMValueRef next = df_gen_offset(g, g->acc[a].at, df_gen_i64(g, size));
        is = LLVMBuildAnd(g->b, is, LLVMBuildICmp(g->b, LLVMIntEQ, g->acc[a + 1].at, next, ""), "");
    }
    return is;
}

void df_twos_lanes(df_gen *g, const df_lanes *l)
{
    if (g->is_jammed || !two_pay(g)) {
        df_lanes_loop(g, l);
        return;
    }
    df_if twos, other;
    LLVMValueRef is = alternate(g);
    df_if_begin(g, &twos, is);
    g->are_twos = true;
    df_lanes_loop(g, l);
    g->are_twos = false;
    df_if_end(g, &twos);
    df_if_begin(g, &other, LLVMBuildNot(g->b, is, ""));
    df_lanes_loop(g, l);
    df_if_end(g, &other);
}
