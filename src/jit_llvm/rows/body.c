/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies: which instructions the loop of a stage contains, in which order they are written, and in
 * which versions.
 *
 * In each iteration, all loads of a vector precede all its stores, whatever their order in the
 * body. So an output may have the memory of an input that it replaces element by element, and no
 * alias information is needed.
 */
#include "jit_llvm/gen.h"

#include <string.h>
/* ---- arms (arms.c) ---- */

/* Whether no lane of any copy takes the arm of the select `end`. */
static LLVMValueRef skips_arm(df_gen *g, uint32_t end, uint32_t first, uint32_t n)
{
    const uint32_t condition = g->k->ins[end].src[0];
    LLVMValueRef takes = NULL;
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        LLVMValueRef lanes = df_gen_vec(g, condition);
        if (g->val[end].arm_side == 2) lanes = LLVMBuildNot(g->b, lanes, "");
        if (g->mask) lanes = LLVMBuildAnd(g->b, lanes, g->mask, "");
        takes = takes ? LLVMBuildOr(g->b, takes, lanes, "") : lanes;
    }
    if (g->w > 1) takes = LLVMBuildBitCast(g->b, takes, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, takes, LLVMConstNull(LLVMTypeOf(takes)), "");
}

/* Writes the vectors that the arm reads and that were not needed before. They are written outside
 * of the arm, because later code may read them, too. */
static void need_operands(df_gen *g, uint32_t end)
{
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t s = 0; g->val[i].arm == end && s < df_gen_n_src(g, i); s++)
            if (g->val[g->k->ins[i].src[s]].arm != end) df_gen_vec(g, g->k->ins[i].src[s]);
}

/* Writes the arm whose last select is `end`, for the copies from `first` up to but excluding n. */
static void write_arm(df_gen *g, uint32_t end, uint32_t first, uint32_t n)
{
    LLVMValueRef skips = skips_arm(g, end, first, n);
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        need_operands(g, end);
    }
    LLVMBasicBlockRef from[2] = { LLVMGetInsertBlock(g->b), df_gen_block(g, "arm") };
    LLVMBasicBlockRef after = df_gen_block(g, "arm_end");
    LLVMBuildCondBr(g->b, skips, after, from[1]);
    LLVMPositionBuilderAtEnd(g->b, from[1]);
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t c = first; c < n && g->val[i].arm == end; c++) {
            df_gen_copy(g, c);
            df_gen_emit_lanes(g, i);
        }
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, after);
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t c = first; c < n && g->val[i].arm == end && !g->val[i].in_arm; c++) {
            df_gen_copy(g, c);
            const uint32_t other = g->k->ins[i].src[3 - g->val[i].arm_side];
            LLVMValueRef v[2] = { df_gen_vec(g, other), df_gen_vec(g, i) };
            LLVMValueRef either = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
            LLVMAddIncoming(either, v, from, 2);
            df_gen_set_lanes(g, i, either);
        }
}

/* ---- the marked body ---- */

void df_gen_mark(df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i].is_marked = false;
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        const df_ins *ins = &g->k->ins[i];
        df_val *v = &g->val[i];
        if (ins->level != DF_LEVEL_ELEM || ins->stage > stage) continue;
        if (ins->stage == stage) v->is_marked = true;
        if (!v->is_marked) continue;
        /* Elements of an earlier stage are rematerialized. */
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            if (df_gen_kind(g, ins->src[s]) != DF_KOP_reduce) g->val[ins->src[s]].is_marked = true;
    }
    df_arms_find(g);
    df_nans_find(g);
    df_bare_find(g);
}

bool df_gen_has_elem(const df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM &&
            g->val[i].place != PLACE_ENTRY)
            return true;
    return false;
}

/* A body of more instructions keeps the units for products as busy as the divider. */
enum { MOST_BESIDE_ROOTS = 32 };

bool df_gen_inverts_root(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op != DF_K_div || g->level == DF_OPT_O0) return false;
    const df_ins *one = &g->k->ins[ins->src[0]], *root = &g->k->ins[ins->src[1]];
    return one->op == DF_K_const && one->imm == 0x3f800000 && root->op == DF_K_sqrt &&
           g->val[ins->src[1]].place == PLACE_BODY &&
           df_estimate_inverts_roots(g, (deft_dtype)ins->dtype, g->w) &&
           df_gen_body_size(g) <= MOST_BESIDE_ROOTS;
}

/* Writes 1 / sqrt(x) for the copies from `first` up to but excluding n. The divider, which is idle
 * while products invert, takes every fourth copy. */
static void write_inverse_roots(df_gen *g, uint32_t i, uint32_t first, uint32_t n)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef root[DF_COPIES], inverse[DF_COPIES], one = df_gen_vec(g, ins->src[0]);
    uint32_t of[DF_COPIES], n_inverted = 0;
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        if (c % 4 == 3) {
            df_gen_emit_lanes(g, i);
        } else {
            root[n_inverted] = df_gen_vec(g, ins->src[1]);
            of[n_inverted++] = c;
        }
    }
    if (n_inverted > 0) df_estimate_inverse_roots(g, one, root, n_inverted, inverse);
    for (uint32_t k = 0; k < n_inverted; k++) {
        df_gen_copy(g, of[k]);
        df_gen_set_lanes(g, i, inverse[k]);
    }
}

static void place_copies(df_gen *g, df_gen_level place, uint32_t first, uint32_t end)
{
    const bool has_begun = place == PLACE_BODY && df_bare_place(g, first, end);
    const bool are_lanes = place == PLACE_BODY || place == PLACE_LANES;
    for (int stores = 0; stores < 2; stores++)
        for (uint32_t i = 0; i < g->k->n_ins; i++) {
            if (!df_gen_is_here(g, i, place) || (g->k->ins[i].op == DF_K_store) != stores) continue;
            if (df_gen_kind(g, i) == DF_KOP_loop) continue; /* iterate.c */
            if (has_begun && (g->val[i].is_bare || g->val[i].is_before)) continue;
            if (!are_lanes) df_gen_scalar(g, i);
            if (are_lanes && g->val[i].arm != 0) {
                if (g->val[i].arm == i) write_arm(g, i, first, end);
                continue;
            }
            if (are_lanes && df_gen_inverts_root(g, i)) {
                write_inverse_roots(g, i, first, end);
                continue;
            }
            for (uint32_t c = first; c < end && are_lanes; c++) {
                df_gen_copy(g, c);
                df_gen_emit_lanes(g, i);
            }
        }
}

/* ---- vectors without NaN (nans.c) ---- */

/* The lanes of `lanes` (NULL: all) in which neither a nor b is NaN. */
static LLVMValueRef and_ordered(df_gen *g, LLVMValueRef lanes, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealORD, a, b, "");
    return lanes ? LLVMBuildAnd(g->b, lanes, is, "") : is;
}

/* The lanes of this copy that are inactive, or in which nothing that is asked for NaN is one. */
static LLVMValueRef lanes_without_nan(df_gen *g)
{
    LLVMValueRef without = NULL, one = NULL; /* one: a value that has no partner yet */
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!g->val[i].asks_nan) continue;
        LLVMValueRef x = df_gen_vec(g, g->k->ins[i].src[0]);
        const bool is_pair = one && LLVMTypeOf(one) == LLVMTypeOf(x);
        if (one) without = and_ordered(g, without, one, is_pair ? x : one);
        one = is_pair ? NULL : x;
    }
    if (one) without = and_ordered(g, without, one, one);
    return g->mask ? LLVMBuildOr(g->b, without, LLVMBuildNot(g->b, g->mask, ""), "") : without;
}

static LLVMValueRef are_without_nan(df_gen *g, uint32_t first, uint32_t end)
{
    LLVMValueRef all = NULL;
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        LLVMValueRef without = lanes_without_nan(g);
        all = all ? LLVMBuildAnd(g->b, all, without, "") : without;
    }
    all = LLVMBuildBitCast(g->b, all, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, all, LLVMConstAllOnes(LLVMTypeOf(all)), "");
}

/* Writes the loads, and both versions of the rest. Vectors that one version makes are not there in
 * the other one. */
static void place_versions(df_gen *g, uint32_t first, uint32_t end)
{
    df_pair_mask masks[DF_PAIR_MASKS];
    df_val *const kept = df_gen_array(g, g->k->n_ins * sizeof *kept);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t c = first; c < end && g->val[i].is_asked; c++) {
            df_gen_copy(g, c);
            if (df_gen_is_here(g, i, PLACE_BODY)) df_gen_emit_lanes(g, i);
        }
    LLVMValueRef without = are_without_nan(g, first, end);
    LLVMBasicBlockRef version[2] = { df_gen_block(g, "no_nan"), df_gen_block(g, "any") };
    LLVMBasicBlockRef after = df_gen_block(g, "after_versions");
    LLVMBuildCondBr(g->b, without, version[0], version[1]);
    memcpy(kept, g->val, g->k->n_ins * sizeof *kept);
    memcpy(masks, g->pair_mask, sizeof masks);
    g->is_rest = true;
    for (int v = 0; v < 2; v++) {
        LLVMPositionBuilderAtEnd(g->b, version[v]);
        g->has_no_nan = v == 0;
        place_copies(g, PLACE_BODY, first, end);
        LLVMBuildBr(g->b, after);
        memcpy(g->val, kept, g->k->n_ins * sizeof *kept);
        memcpy(g->pair_mask, masks, sizeof masks);
    }
    g->is_rest = g->has_no_nan = false;
    LLVMPositionBuilderAtEnd(g->b, after);
}

/* Where rows are divided, lanes outside of the inside and its edges are few. */
static bool has_versions(const df_gen *g, df_gen_level place)
{
    return place == PLACE_BODY && g->n_questions > 0 && !g->is_jammed &&
           (!g->has_inside || g->part != DF_ROW_ANY);
}

void df_gen_place_copies(df_gen *g, df_gen_level place, uint32_t first, uint32_t end)
{
    if (has_versions(g, place))
        place_versions(g, first, end);
    else
        place_copies(g, place, first, end);
}

void df_gen_place(df_gen *g, df_gen_level place)
{
    df_gen_place_copies(g, place, 0, g->n_copies);
}

uint32_t df_gen_body_size(const df_gen *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n += df_gen_is_here(g, i, PLACE_BODY) && !g->val[i].is_address && !g->val[i].in_arm &&
             !g->val[i].is_contracted;
    return n;
}

static bool is_row_level(const df_gen *g, uint32_t i, uint32_t stage, df_gen_level place,
                         bool is_store)
{
    const df_ins *ins = &g->k->ins[i];
    return ins->level == DF_LEVEL_ROW && ins->stage == stage && g->val[i].place == place &&
           (ins->op == DF_K_store) == is_store;
}

/* Emits the values first, then the stores. A call of part needs only the values; fin stores. */
static void row_level(df_gen *g, uint32_t stage, df_gen_level place,
                      void (*emit)(df_gen *g, uint32_t i))
{
    bool has_stores = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (is_row_level(g, i, stage, place, false)) emit(g, i);
        has_stores |= is_row_level(g, i, stage, place, true);
    }
    if (!has_stores) return;
    df_if stores;
    const bool is_guarded = stage == 0 && g->is_part;
    if (is_guarded) df_if_begin(g, &stores, LLVMBuildNot(g->b, g->is_part, ""));
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (is_row_level(g, i, stage, place, true)) emit(g, i);
    if (is_guarded) df_if_end(g, &stores);
}

void df_gen_row_level(df_gen *g, uint32_t stage)
{
    row_level(g, stage, PLACE_ROW, df_gen_scalar);
}

void df_gen_row_lanes(df_gen *g, uint32_t stage)
{
    row_level(g, stage, PLACE_LANES, df_gen_emit_lanes);
}
