/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands and results whose elements alternate in memory: the parts of complex numbers, rotations
 * of pairs, or two tensors that are stacked along the last axis.
 *
 *   x[i,0] = re    accesses with a step of two elements along the lanes
 *   x[i,1] = im
 *
 * An access with a step is stored lane by lane, which takes most of the time of a short kernel. It
 * is loaded as two vectors, of which half is thrown away. Whether two accesses alternate is known
 * from their addresses and strides. So the loop over the lanes is written twice. In one, all
 * accesses that step along the lanes step by two elements: loads and stores are made in twos
 * (df_access_load_two, df_access_store_two), and no load tests its step. The other one is for all
 * else. a b + a of 256 K complex numbers in caches takes half of the time, and their sum 0.7.
 *
 * Where both parts are only summed, each lane keeps its place in memory, and the accumulators are
 * divided at the end. So 128 K c64 take 7.7 instead of 9.5 us on an Intel server.
 *
 * The plan names loads that may alternate (df_access.twin), because a kernel does not know which of
 * its accesses read one buffer. Stores that may alternate follow each other.
 */
#include "jit_llvm/gen.h"
#include "jit_llvm/rows/reduce.h"

enum {
    LONG_BODY = 200, /* instructions. In a longer body the accesses take little of the time */
};

bool df_twos_pay(const df_gen *g)
{
    const bool is_map = g->k->mode == DF_MODE_MAP, is_row = g->k->mode == DF_MODE_ROW;
    if ((!is_map && (!is_row || g->has_runs)) || g->w == 1 || g->level == DF_OPT_O0 ||
        g->vec_axis < 0 || g->has_inside || g->is_jammed || df_gen_body_size(g) > LONG_BODY)
        return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (df_access_begins_twos(g, i)) return true;
        if (g->k->ins[i].op == DF_K_load && df_access_is_twin(g, (uint32_t)g->k->ins[i].imm))
            return true;
    }
    return false;
}

LLVMValueRef df_twos_hold(df_gen *g)
{
    LLVMValueRef is = LLVMConstInt(g->i1, 1, 0);
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!df_access_steps(g, a)) continue;
        const int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
        LLVMValueRef same =
            LLVMBuildICmp(g->b, LLVMIntEQ, g->acc[a].step, df_gen_i64(g, 2 * size), "");
        is = LLVMBuildAnd(g->b, is, same, "");
        if (df_access_is_twin(g, a))
            is = LLVMBuildAnd(g->b, is, df_access_is_behind(g, g->k->access[a].twin - 1u, a), "");
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_access_begins_twos(g, i)) continue;
        const uint32_t a = (uint32_t)g->k->ins[i].imm;
        is = LLVMBuildAnd(g->b, is, df_access_is_behind(g, a, a + 1), "");
    }
    return is;
}

bool df_twos_may_stream(const df_gen *g)
{
    if (df_kernel_streamed_twos(g->k) == DF_NONE || !df_twos_pay(g)) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_access_begins_twos(g, i)) return true;
    return false;
}

/* The access that the operand of a reduction is loaded through; DF_NONE: it is no load. */
static uint32_t operand_access(const df_gen *g, const df_gen_red *r)
{
    const df_ins *const operand = &g->k->ins[g->k->ins[r->ins].src[0]];
    return operand->op == DF_K_load ? (uint32_t)operand->imm : DF_NONE;
}

bool df_twos_reduce_as_loaded(df_gen *g, uint32_t stage)
{
    const df_gen_red *red[2] = { NULL, NULL };
    uint32_t n_reds = 0, n_ins = 0;
    DF_FOR_REDS(r, g, stage)
    {
        if (n_reds == 2 || r->is_arg || operand_access(g, r) == DF_NONE) return false;
        red[n_reds++] = r;
    }
    if (n_reds < 2 || red[0]->op != red[1]->op || red[0]->dtype != red[1]->dtype) return false;
    const uint32_t a = operand_access(g, red[0]), b = operand_access(g, red[1]);
    const uint32_t first = df_access_first_of_two(g, a);
    if (a == b || first == DF_NONE || df_access_first_of_two(g, b) != first) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) n_ins += df_gen_is_here(g, i, PLACE_BODY);
    return n_ins == 4; /* both loads and both reductions */
}

void df_twos_part_accumulators(df_gen *g, uint32_t stage, uint32_t n)
{
    LLVMValueRef lane[DF_LANES];
    df_gen_red *const one = df_reduce_next(g, g->reds, stage);
    df_gen_red *const other = df_reduce_next(g, one + 1, stage);
    const uint32_t access = operand_access(g, one);
    const bool is_first = df_access_first_of_two(g, access) == access;
    df_gen_red *const red[2] = { is_first ? one : other, is_first ? other : one };
    for (uint32_t j = 0; j < n; j++) {
        LLVMValueRef low = red[0]->reg[j], high = red[1]->reg[j];
        for (uint32_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < g->w; i++) lane[i] = LLVMConstInt(g->i32, 2 * i + k, 0);
            LLVMValueRef order = LLVMConstVector(lane, g->w);
            red[k]->reg[j] = LLVMBuildShuffleVector(g->b, low, high, order, "");
        }
    }
}
