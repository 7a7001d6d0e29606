/* SPDX-License-Identifier: Apache-2.0
 *
 * Contraction in FAST kernels: a sum or difference of a product becomes one fused multiply-add.
 *
 * The rule looks at the instructions of the kernel alone. So the general code and all variants of
 * a kernel round alike, and give equal bits. Instructions have no fast-math flags. With flags, LLVM
 * contracts within one basic block. The result would then depend on loops and tails, and the time
 * at which a variant is ready would choose between results.
 *
 * A product is contracted when one instruction reads it, at the place where the product would be
 * computed. Of two such products, the later one is taken, because its operands are ready last.
 */
#include "jit_llvm/gen.h"

/* Whether instruction i is a product, or a quotient that is computed as one. */
static bool is_product(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (!df_is_real((deft_dtype)ins->dtype)) return false;
    if (ins->op == DF_K_mul) return true;
    return ins->op == DF_K_div && g->val[i].place == PLACE_BODY &&
           g->val[ins->src[1]].wants_inverse;
}

/* Whether instruction i may take in a product. A row with runs keeps the operands of reductions in
 * memory, for a later pass. */
static bool takes_product(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (!df_is_real((deft_dtype)ins->dtype) || g->val[i].place == PLACE_LANES) return false;
    if (ins->op == DF_K_sum) return !g->has_runs;
    return ins->op == DF_K_add || ins->op == DF_K_sub;
}

static uint32_t *count_readers(df_gen *g)
{
    uint32_t *const n = df_gen_array(g, sizeof *n * g->k->n_ins);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) n[g->k->ins[i].src[s]]++;
    return n;
}

void df_contract_find(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        g->val[i].is_contracted = false;
        g->val[i].product = DF_NONE;
    }
    if (!(g->k->flags & DF_KERNEL_FAST)) return;
    const uint32_t *const n_readers = count_readers(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        uint32_t best = DF_NONE;
        for (uint32_t s = 0; s < df_gen_n_src(g, i) && takes_product(g, i); s++) {
            const uint32_t p = ins->src[s];
            const bool fits = is_product(g, p) && n_readers[p] == 1 &&
                              g->val[p].place == g->val[i].place &&
                              g->k->ins[p].level == ins->level && g->k->ins[p].dtype == ins->dtype;
            if (fits && (best == DF_NONE || p > best)) best = p;
        }
        if (best == DF_NONE) continue;
        g->val[i].product = best;
        g->val[best].is_contracted = true;
    }
}

LLVMValueRef df_contract_fma(df_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    LLVMValueRef s[3] = { a, b, c };
    LLVMTypeRef type = LLVMTypeOf(a);
    return df_gen_intrinsic(g, "llvm.fma", &type, 1, s, 3);
}

LLVMValueRef df_contract_into(df_gen *g, uint32_t i, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef other)
{
    const df_ins *ins = &g->k->ins[i];
    const bool is_sub = ins->op == DF_K_sub, is_first = ins->src[0] == g->val[i].product;
    if (is_sub && !is_first) a = LLVMBuildFNeg(g->b, a, "");
    if (is_sub && is_first) other = LLVMBuildFNeg(g->b, other, "");
    return df_contract_fma(g, a, b, other);
}
