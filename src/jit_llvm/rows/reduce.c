/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions in the order of base/limits.h, and scans: what ROW (row.c) and COL (col.c) share.
 *
 * argmin and argmax carry an index. Their result does not depend on the order: NaN wins over every
 * number, a better value over a worse one, and of equal values that with the least index. An
 * accumulator starts with the worst value and the index of the first element that belongs to it. If
 * the row is too short to have that element, its index is larger than all others, so it never wins.
 * A row of only worst values still gives the index of its first element.
 */
#include "jit_llvm/gen.h"

/* ---- the reductions of a kernel ---- */

static bool is_reduce(const df_gen *g, uint32_t i)
{
    return g->host->kops[g->k->ins[i].op].kind == DF_KOP_reduce;
}

/* Whether the reduction may use fewer accumulators: the kernel is FAST, or every order gives the
 * same bits. */
static bool is_order_free(const df_gen *g, const df_gen_red *r)
{
    return r->is_arg || !df_is_real((deft_dtype)r->dtype) || g->k->flags & DF_KERNEL_FAST;
}

void df_reduce_plan(df_gen *g)
{
    uint32_t slot = 0;
    g->n_reds = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_reduce(g, i)) continue;
        const df_ins *ins = &g->k->ins[i];
        df_gen_red *r = &g->reds[g->n_reds++];
        const uint8_t t = g->k->ins[ins->src[0]].dtype;
        *r = (df_gen_red){ .ins = i, .op = ins->op, .dtype = t == DEFT_BOOL ? DEFT_U8 : t };
        r->is_arg = ins->op == DF_K_argmin || ins->op == DF_K_argmax;
        r->n_acc = is_order_free(g, r) ? 1 : DF_LANES;
        r->first_slot = slot;
        slot += r->is_arg ? 2 : 1;
    }
}

uint32_t df_reduce_count(const df_gen *g, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->n_reds; k++) n += g->k->ins[g->reds[k].ins].stage == stage;
    return n;
}

df_gen_red *df_reduce_next(df_gen *g, df_gen_red *r, uint32_t stage)
{
    while (r < g->reds + g->n_reds && g->k->ins[r->ins].stage != stage) r++;
    return r < g->reds + g->n_reds ? r : NULL;
}

LLVMTypeRef df_reduce_type(const df_gen *g, const df_gen_red *r)
{
    return df_gen_mem_type(g, (deft_dtype)r->dtype);
}

df_blocks df_reduce_blocks(df_gen *g, bool is_split)
{
    df_blocks x = { .from = df_gen_i64(g, 0) };
    x.n = LLVMBuildAdd(g->b, g->length, df_gen_i64(g, DF_BLOCK - 1), "");
    x.n = x.to = LLVMBuildLShr(g->b, x.n, df_gen_i64(g, DF_BLOCK_LOG2), "");
    if (!is_split) return x;
    x.from = LLVMBuildSelect(g->b, g->is_part, g->i0, x.from, "");
    x.to = LLVMBuildSelect(g->b, g->is_part, g->i1_, x.n, "");
    return x;
}

/* The binary counter of base/limits.h. After the last block all entries are joined, which takes as
 * many joins as there were entries before it. */
LLVMValueRef df_reduce_joins(df_gen *g, const df_blocks *blocks, LLVMValueRef b,
                             LLVMValueRef height)
{
    LLVMValueRef next = LLVMBuildAdd(g->b, b, df_gen_i64(g, 1), "");
    LLVMValueRef args[2] = { next, LLVMConstInt(g->i1, 1, 0) };
    LLVMValueRef zeros = df_gen_intrinsic(g, "llvm.cttz", &g->i64, 1, args, 2);
    LLVMValueRef is_last = LLVMBuildICmp(g->b, LLVMIntEQ, next, blocks->n, "");
    return LLVMBuildSelect(g->b, is_last, height, zeros, "");
}

LLVMValueRef df_reduce_identity(df_gen *g, const df_gen_red *r, uint32_t w)
{
    const deft_dtype t = (deft_dtype)r->dtype;
    return df_gen_splat(g, df_gen_const(g, t, df_kop_identity((df_kop)r->op, t)), w);
}

/* ---- argmin, argmax ---- */

static LLVMValueRef both(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAnd(g->b, a, b, "");
}

/* Whether the value b wins over the value a, regardless of their indices. */
static LLVMValueRef is_better(df_gen *g, const df_gen_red *r, LLVMValueRef b, LLVMValueRef a)
{
    const bool is_max = r->op == DF_K_argmax;
    const deft_dtype t = (deft_dtype)r->dtype;
    if (!df_is_real(t)) {
        const bool sign = df_is_signed(t);
        const LLVMIntPredicate more = sign ? LLVMIntSGT : LLVMIntUGT;
        const LLVMIntPredicate less = sign ? LLVMIntSLT : LLVMIntULT;
        return LLVMBuildICmp(g->b, is_max ? more : less, b, a, "");
    }
    /* Nothing beats a NaN; a NaN beats every number. */
    return both(g, LLVMBuildFCmp(g->b, is_max ? LLVMRealUGT : LLVMRealULT, b, a, ""),
                LLVMBuildFCmp(g->b, LLVMRealORD, a, a, ""));
}

static LLVMValueRef is_same(df_gen *g, const df_gen_red *r, LLVMValueRef a, LLVMValueRef b)
{
    if (!df_is_real((deft_dtype)r->dtype)) return LLVMBuildICmp(g->b, LLVMIntEQ, a, b, "");
    LLVMValueRef nans = both(g, LLVMBuildFCmp(g->b, LLVMRealUNO, a, a, ""),
                             LLVMBuildFCmp(g->b, LLVMRealUNO, b, b, ""));
    return LLVMBuildOr(g->b, LLVMBuildFCmp(g->b, LLVMRealOEQ, a, b, ""), nans, "");
}

df_pair df_reduce_join(df_gen *g, const df_gen_red *r, df_pair a, df_pair b)
{
    if (!r->is_arg)
        return (df_pair){ df_lower_join(g, (df_kop)r->op, (deft_dtype)r->dtype, a.v, b.v), NULL };
    LLVMValueRef lower = LLVMBuildICmp(g->b, LLVMIntSLT, b.i, a.i, "");
    LLVMValueRef takes_b =
        LLVMBuildOr(g->b, is_better(g, r, b.v, a.v), both(g, is_same(g, r, a.v, b.v), lower), "");
    return (df_pair){ LLVMBuildSelect(g->b, takes_b, b.v, a.v, ""),
                      LLVMBuildSelect(g->b, takes_b, b.i, a.i, "") };
}

/* ---- accumulating one vector ---- */

LLVMValueRef df_reduce_at(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index)
{
    return df_gen_at(g, df_gen_lanes(t, g->w), mem, index);
}

LLVMValueRef df_reduce_load(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index)
{
    return LLVMBuildLoad2(g->b, df_gen_lanes(t, g->w), df_reduce_at(g, mem, t, index), "");
}

/* The positions of the lanes among the reduced elements. In COL all lanes have the same one. */
static LLVMValueRef positions(df_gen *g)
{
    LLVMValueRef at = df_gen_splat(g, g->red_at, g->w);
    if (g->k->mode == DF_MODE_COL || g->w == 1) return at;
    return LLVMBuildAdd(g->b, at, df_gen_iota(g, g->i64, g->w), "");
}

/* by: the operand is x * by, which is contracted; NULL: the operand is x. */
static df_pair accumulated(df_gen *g, const df_gen_red *r, df_pair acc, LLVMValueRef x,
                           LLVMValueRef by)
{
    if (!r->is_arg) {
        df_pair n = by ? (df_pair){ df_contract_fma(g, x, by, acc.v), NULL }
                       : df_reduce_join(g, r, acc, (df_pair){ x, NULL });
        if (g->mask) n.v = LLVMBuildSelect(g->b, g->mask, n.v, acc.v, "");
        return n;
    }
    /* The indices that reach one accumulator ascend, so the first of equal values stays. */
    LLVMValueRef takes = is_better(g, r, x, acc.v);
    if (g->mask) takes = both(g, takes, g->mask);
    return (df_pair){ LLVMBuildSelect(g->b, takes, x, acc.v, ""),
                      LLVMBuildSelect(g->b, takes, positions(g), acc.i, "") };
}

/* The address of the stored operands of this vector, at index lane0 + from. */
static LLVMValueRef operands_at(df_gen *g, const df_gen_red *r, LLVMValueRef from)
{
    return df_gen_at(g, df_reduce_type(g, r), r->operands, LLVMBuildAdd(g->b, g->lane0, from, ""));
}

static void accumulate(df_gen *g, df_gen_red *r, LLVMValueRef x, LLVMValueRef by)
{
    LLVMTypeRef t = df_reduce_type(g, r);
    if (g->in_regs) {
        const df_pair acc = { r->reg[g->reg], r->is_arg ? r->reg_idx[g->reg] : NULL };
        const df_pair n = accumulated(g, r, acc, x, by);
        r->reg[g->reg] = n.v;
        if (r->is_arg) r->reg_idx[g->reg] = n.i;
        return;
    }
    LLVMValueRef at = r->n_acc == 1 && g->k->mode == DF_MODE_COL ? g->acc_one : g->acc_at;
    df_pair acc = { df_reduce_load(g, r->mem, t, at), NULL };
    if (r->is_arg) acc.i = df_reduce_load(g, r->mem_idx, g->i64, at);
    const df_pair n = accumulated(g, r, acc, x, by);
    LLVMBuildStore(g->b, n.v, df_reduce_at(g, r->mem, t, at));
    if (r->is_arg) LLVMBuildStore(g->b, n.i, df_reduce_at(g, r->mem_idx, g->i64, at));
}

static df_gen_red *reduction_of(df_gen *g, uint32_t ins)
{
    df_gen_red *r = g->reds;
    while (r->ins != ins) r++;
    return r;
}

void df_reduce_accumulate_product(df_gen *g, uint32_t ins, LLVMValueRef x, LLVMValueRef by)
{
    df_assert(!g->gather);
    accumulate(g, reduction_of(g, ins), x, by);
}

void df_reduce_accumulate(df_gen *g, uint32_t ins, LLVMValueRef x)
{
    df_gen_red *r = reduction_of(g, ins);
    LLVMTypeRef t = df_reduce_type(g, r);
    const deft_dtype from = (deft_dtype)g->k->ins[g->k->ins[ins].src[0]].dtype;
    if (from == DEFT_BOOL) x = LLVMBuildZExt(g->b, x, df_gen_lanes(t, g->w), "");
    if (g->gather)
        df_access_store_unit(g, x, operands_at(g, r, g->gather), df_bytes_of((deft_dtype)r->dtype));
    else
        accumulate(g, r, x, NULL);
}

void df_reduce_gathered(df_gen *g, uint32_t stage)
{
    LLVMValueRef back = LLVMBuildNeg(g->b, g->gathered, "");
    DF_FOR_REDS(r, g, stage)
    accumulate(g, r,
               df_access_load_unit(g, df_reduce_type(g, r), operands_at(g, r, back),
                                   df_bytes_of((deft_dtype)r->dtype)),
               NULL);
}

/* ---- scans ---- */

LLVMValueRef df_scan_start(df_gen *g, uint32_t i)
{
    const deft_dtype t = (deft_dtype)g->k->ins[i].dtype;
    return df_gen_splat(g, df_gen_const(g, t, df_kop_identity((df_kop)g->k->ins[i].op, t)), g->w);
}

void df_scan_begin(df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (df_gen_kind(g, i) != DF_KOP_scan || ins->stage != stage) continue;
        const deft_dtype t = (deft_dtype)ins->dtype;
        LLVMTypeRef type = df_gen_lanes(df_gen_mem_type(g, t), g->w);
        LLVMValueRef start = df_scan_start(g, i);
        const bool is_col = g->k->mode == DF_MODE_COL;
        if (!g->val[i].scan)
            g->val[i].scan = df_gen_alloca(g, type, is_col ? g->slot_groups : 1, 64);
        if (!is_col) {
            LLVMBuildStore(g->b, start, g->val[i].scan);
            continue;
        }
        df_loop l;
        df_loop_begin(g, &l, df_gen_i64(g, 0), g->pitch, df_gen_i64(g, 1), 0);
        LLVMBuildStore(g->b, start, df_gen_at(g, type, g->val[i].scan, l.i));
        df_loop_end(g, &l);
    }
}

LLVMValueRef df_scan_step(df_gen *g, uint32_t i, LLVMValueRef x)
{
    const deft_dtype t = (deft_dtype)g->k->ins[i].dtype;
    LLVMTypeRef type = df_gen_lanes(df_gen_mem_type(g, t), g->w);
    LLVMValueRef at = g->val[i].scan;
    const df_kop op = (df_kop)g->k->ins[i].op;
    if (g->scans_in_regs) return g->val[i].scan = df_lower_join(g, op, t, at, x);
    if (g->k->mode == DF_MODE_COL) at = df_gen_at(g, type, at, g->group);
    LLVMValueRef v = df_lower_join(g, op, t, LLVMBuildLoad2(g->b, type, at, ""), x);
    LLVMBuildStore(g->b, v, at);
    return v;
}
