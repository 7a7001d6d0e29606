/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare estimates: quotients and roots without the guards of estimate.c, in FAST kernels.
 *
 * The guards take a third of the time of an estimate, and hardly any vector needs them. Without
 * them, a lane with such an operand becomes NaN (estimate.c says which). Sums and products keep a
 * NaN. So a body computes its estimates bare first, and asks only whether a result is NaN:
 *
 *     the bare values and all that they depend on
 *     if (an active lane of a bare value that something else reads is NaN) {
 *         the bare values once more, with guards;
 *     }
 *     the rest of the body
 *
 * The bare values are the estimates, and the sums and products that depend on them. In all
 * other lanes both ways give the same bits, so a result does not depend on its neighbours. What
 * depends on a bare value in another way, such as a comparison, belongs to the rest. So does every
 * later estimate that depends on that. Where lanes are masked off, all estimates have their guards.
 * On an Intel Xeon, the fast update of Adam on 4096 elements takes 0.96 us, and 1.31 with guards.
 */
#include "jit_llvm/gen.h"

#include "jit_llvm/rows/lanes.h"

#include <math.h>
#include <string.h>

/* Whether the value is NaN if an operand is. */
static bool keeps_nan(const df_ins *ins)
{
    static const uint8_t ops[] = { DF_K_add, DF_K_sub, DF_K_mul, DF_K_div,
                                   DF_K_fma, DF_K_neg, DF_K_abs, DF_K_sqrt };
    return ins->dtype == DEFT_F32 && memchr(ops, ins->op, sizeof ops);
}

static bool is_in_body(const df_gen *g, uint32_t i)
{
    return df_gen_is_here(g, i, PLACE_BODY) && g->val[i].arm == 0;
}

/* Whether i is a / sqrt(x), which has an estimate of its own, and no need of guards. */
static bool is_over_root(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op != DF_K_div || !is_in_body(g, ins->src[1])) return false;
    const df_ins *root = &g->k->ins[ins->src[1]];
    return root->op == DF_K_sqrt && is_in_body(g, root->src[0]);
}

/* Whether something reads the root i other than a quotient that has an estimate of its own. */
static bool is_read_as_root(const df_gen *g, uint32_t i)
{
    for (uint32_t r = i + 1; r < g->k->n_ins; r++)
        for (uint32_t s = 0; s < df_gen_n_src(g, r); s++)
            if (g->k->ins[r].src[s] == i && (s == 0 || !is_over_root(g, r))) return true;
    return false;
}

static bool is_estimated(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (!is_in_body(g, i) || !df_estimate_pays(g, (deft_dtype)ins->dtype, g->w)) return false;
    if (ins->op == DF_K_sqrt) return is_read_as_root(g, i);
    return ins->op == DF_K_div && !g->val[ins->src[1]].wants_inverse && !is_over_root(g, i);
}

/* Whether i is a quotient by a scalar, whose guard is `lift`. */
static bool has_lift(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    return is_in_body(g, i) && ins->op == DF_K_div && ins->dtype == DEFT_F32 &&
           g->val[ins->src[1]].wants_inverse;
}

/* Sets is_bare of all values. is_late[i]: whether i depends on a bare value in another way. */
static void find_bare(df_gen *g, bool *is_late)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        bool reads_bare = false;
        is_late[i] = g->val[i].arm != 0;
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) {
            reads_bare |= g->val[ins->src[s]].is_bare;
            is_late[i] |= is_late[ins->src[s]];
        }
        is_late[i] |= reads_bare && !keeps_nan(ins);
        const bool begins = is_estimated(g, i) || has_lift(g, i);
        g->val[i].is_bare = !is_late[i] && (begins || reads_bare);
    }
}

/* Sets is_watched of the bare operands of i, which reads them in the rest of the body. */
static void watch_operands(df_gen *g, uint32_t i)
{
    for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) {
        const uint32_t from = g->k->ins[i].src[s];
        if (!g->val[from].is_bare) continue;
        g->val[from].is_watched = !g->val[from].is_contracted;
        if (g->val[from].is_contracted) watch_operands(g, from); /* a product has no lanes */
    }
}

void df_bare_find(df_gen *g)
{
    bool has_estimate = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        g->val[i].is_bare = g->val[i].is_watched = g->val[i].is_before = false;
        has_estimate |= is_estimated(g, i);
    }
    g->has_bare = false;
    if (!has_estimate || g->level == DF_OPT_O0 || g->w == 1) return;
    bool *const is_late = df_arena_new(g->arena, bool, g->k->n_ins);
    if (!is_late) return; /* the code is slower, and as right */
    memset(is_late, 0, g->k->n_ins * sizeof *is_late);
    find_bare(g, is_late);
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        df_val *const v = &g->val[i];
        g->has_bare |= v->is_bare;
        if (df_gen_is_here(g, i, PLACE_BODY) && !v->is_bare) watch_operands(g, i);
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            g->val[g->k->ins[i].src[s]].is_before |= v->is_bare || v->is_before;
    }
}

/* ---- the code ---- */

/* Whether the bare value i is itself an estimate. */
static bool is_bare_estimate(const df_gen *g, uint32_t i)
{
    return g->val[i].is_bare && is_estimated(g, i);
}

static bool has_lanes(const df_gen *g, uint32_t i, uint32_t copy)
{
    return g->val[i].epoch == g->epoch && g->val[i].lanes[copy];
}

/* Whether the body is written in this way: all vectors are whole, and no bare value is there. */
static bool begins_bare(const df_gen *g, uint32_t first, uint32_t end)
{
    if (!g->has_bare) return false;
    for (uint32_t c = first; c < end; c++) {
        if (g->masks[c]) return false;
        for (uint32_t i = 0; i < g->k->n_ins; i++)
            if (g->val[i].is_bare && has_lanes(g, i, c)) return false;
    }
    return true;
}

/* Writes the estimate i without guards for some copies. */
static void emit_estimates(df_gen *g, uint32_t i, uint32_t first, uint32_t end)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef s[2][DF_COPIES], v[DF_COPIES];
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        for (uint32_t k = 0; k < df_gen_n_src(g, i); k++)
            s[k][c - first] = df_gen_vec(g, ins->src[k]);
    }
    if (ins->op == DF_K_sqrt)
        df_estimate_bare_sqrt(g, s[0], end - first, v);
    else
        df_estimate_bare_div(g, s[0], s[1], end - first, v);
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        df_gen_set_lanes(g, i, v[c - first]);
    }
}

static void emit_bare(df_gen *g, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->is_bare_try && is_bare_estimate(g, i)) {
            emit_estimates(g, i, first, end);
            continue;
        }
        for (uint32_t c = first; c < end; c++) {
            if (df_gen_kind(g, i) == DF_KOP_loop) continue; /* iterate.c */
            const bool is_here = g->val[i].is_bare || (g->val[i].is_before && !has_lanes(g, i, c));
            if (!is_here || !df_gen_is_here(g, i, PLACE_BODY)) continue;
            df_gen_copy(g, c);
            df_gen_emit_lanes(g, i);
        }
    }
}

/* Whether a lane of a watched value is NaN (i1). One comparison asks two vectors. */
static LLVMValueRef is_any_nan(df_gen *g, uint32_t first, uint32_t end)
{
    LLVMValueRef any = NULL, one = NULL; /* one: a vector that has no partner yet */
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t c = first; c < end && g->val[i].is_watched; c++) {
            LLVMValueRef x = g->val[i].lanes[c];
            if (one) {
                LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealUNO, one, x, "");
                any = any ? LLVMBuildOr(g->b, any, is, "") : is;
            }
            one = one ? NULL : x;
        }
    if (one) {
        LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealUNO, one, one, "");
        any = any ? LLVMBuildOr(g->b, any, is, "") : is;
    }
    any = LLVMBuildBitCast(g->b, any, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntNE, any, LLVMConstNull(LLVMTypeOf(any)), "");
}

/* Tells LLVM that the branch is hardly ever taken, so that its target is written out of the way. */
static void mark_rare(df_gen *g, LLVMValueRef branch)
{
    static const char name[] = "branch_weights";
    LLVMMetadataRef parts[3] = {
        LLVMMDStringInContext2(g->ctx, name, sizeof name - 1),
        LLVMValueAsMetadata(LLVMConstInt(g->i32, 1, 0)),
        LLVMValueAsMetadata(LLVMConstInt(g->i32, 1 << 16, 0)),
    };
    LLVMMetadataRef weights = LLVMMDNodeInContext2(g->ctx, parts, 3);
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(g->ctx, "prof", 4),
                    LLVMMetadataAsValue(g->ctx, weights));
}

bool df_bare_place(df_gen *g, uint32_t first, uint32_t end)
{
    if (!begins_bare(g, first, end)) return false;
    const uint32_t n = g->k->n_ins;
    LLVMValueRef *const tried = df_gen_values(g, n * DF_COPIES);
    g->is_bare_try = true;
    emit_bare(g, first, end);
    g->is_bare_try = false;
    LLVMBasicBlockRef from[2] = { NULL, df_gen_block(g, "guarded") };
    LLVMBasicBlockRef after = df_gen_block(g, "after_estimates");
    LLVMValueRef any = is_any_nan(g, first, end);
    from[0] = LLVMGetInsertBlock(g->b);
    mark_rare(g, LLVMBuildCondBr(g->b, any, from[1], after));
    LLVMPositionBuilderAtEnd(g->b, from[1]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = first; c < end && g->val[i].is_bare; c++) {
            tried[i * DF_COPIES + c] = g->val[i].lanes[c];
            g->val[i].lanes[c] = NULL;
        }
    emit_bare(g, first, end);
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, after);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = first; c < end && g->val[i].is_watched; c++) {
            LLVMValueRef v[2] = { tried[i * DF_COPIES + c], g->val[i].lanes[c] };
            LLVMValueRef either = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
            LLVMAddIncoming(either, v, from, 2);
            df_gen_copy(g, c);
            df_gen_set_lanes(g, i, either);
        }
    return true;
}
