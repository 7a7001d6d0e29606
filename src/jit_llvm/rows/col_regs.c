/* SPDX-License-Identifier: Apache-2.0
 *
 * COL kernels whose accumulators are in registers: those of a whole block when the order is free,
 * else one after the other.
 */
#include "jit_llvm/rows/col.h"

enum {
    NARROW_UNROLLED = 24, /* most instructions of a body that is written out for every group */
    WIDE_UNROLLED = 96,   /* the same in wide chunks */
    MOST_REGS = 16,       /* accumulators that stay in registers */
    LEAST_WIDE = 8,       /* groups of a wide chunk: with fewer, rows are read in short runs */
};

bool df_col_may_leave_order(const df_gen *g, uint32_t stage)
{
    if (df_reduce_count(g, stage) == 0 || g->n_red != 1) return false;
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (df_col_is_of_stage(g, &g->reds[k], stage) && g->reds[k].is_arg) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_kop op = (df_kop)g->k->ins[i].op;
        if ((op == DF_K_store || df_gen_kind(g, i) == DF_KOP_scan) &&
            df_gen_is_here(g, i, PLACE_BODY))
            return false;
    }
    return true;
}

/* Whether each reduction of the stage keeps one accumulator. */
static bool keeps_one(const df_gen *g, uint32_t stage)
{
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (df_col_is_of_stage(g, &g->reds[k], stage) && g->reds[k].n_acc != 1) return false;
    return true;
}

bool df_col_may_stay_in_registers(const df_gen *g, const df_chunk *c)
{
    return g->level != DF_OPT_O0 && df_gen_body_size(g) * c->groups <= NARROW_UNROLLED &&
           df_col_may_leave_order(g, c->stage) && keeps_one(g, c->stage) &&
           df_reduce_count(g, c->stage) * c->groups <= MOST_REGS;
}

/* Element r of `groups` groups. The first is group `group` of the chunk; its lanes begin at
 * `first`. */
static void groups_in_registers(df_gen *g, LLVMValueRef group, LLVMValueRef first, uint32_t groups)
{
    for (g->reg = 0; g->reg < groups; g->reg++) {
        if (groups > 1) {
            g->group = df_col_add(g, group, df_gen_i64(g, g->reg));
            df_gen_lanes_begin(g, df_col_add(g, first, df_gen_i64(g, g->reg * g->w)), NULL);
        }
        df_gen_place(g, PLACE_BODY);
    }
}

/* The elements of e for `groups` groups. The first is group `group` of the chunk; its lanes begin
 * at `first`. One group may be partial: its mask is set. */
static void rows_in_registers(df_gen *g, df_chunk *c, df_strand e, LLVMValueRef group,
                              LLVMValueRef first, uint32_t groups)
{
    df_loop l;
    LLVMValueRef at = df_col_add(g, e.at, group);
    uint32_t n = groups * df_reduce_count(g, c->stage);
    df_loop_begin(g, &l, e.from, e.to, e.step, n);
    DF_FOR_REDS(r, g, c->stage)
    {
        LLVMValueRef identity = df_reduce_identity(g, r, g->w);
        r->reg = df_gen_values(g, groups);
        for (uint32_t u = 0; u < groups; u++) r->reg[u] = df_loop_carry(g, &l, identity);
    }
    g->red_at = l.i;
    df_nest_at(g, g->red[0], l.i);
    df_gen_place(g, PLACE_RED);
    g->in_regs = true;
    groups_in_registers(g, group, first, groups);
    g->in_regs = false;
    n = 0;
    DF_FOR_REDS(r, g, c->stage)
    for (uint32_t u = 0; u < groups; u++) l.next[n++] = r->reg[u];
    df_loop_end(g, &l);
    n = 0;
    DF_FOR_REDS(r, g, c->stage)
    for (uint32_t u = 0; u < groups; u++) {
        const df_pair p = { l.out[n++], NULL };
        df_col_store(g, r, r->mem, NULL, df_col_add(g, at, df_gen_i64(g, u)), p);
    }
    g->epoch++; /* nothing of a row is valid outside */
}

static void one_group_in_registers(df_gen *g, df_chunk *c)
{
    const df_strand e = { c->r0, c->to, df_gen_i64(g, 1), c->top };
    rows_in_registers(g, c, e, g->group, g->lane0, 1);
}

/* The groups of a chunk that is not whole: halves, quarters and so on of a whole chunk, as many as
 * there are, and the others one after the other. */
static void part_in_registers(df_gen *g, df_chunk *c, df_strand e)
{
    LLVMValueRef done = df_gen_i64(g, 0);
    for (uint32_t n = c->groups / 2; n > 1; n /= 2) {
        df_if some;
        LLVMValueRef after = df_col_add(g, done, df_gen_i64(g, n)), w = df_gen_i64(g, g->w);
        LLVMValueRef first = df_col_add(g, c->from, df_col_mul(g, done, w));
        LLVMValueRef end = df_col_add(g, c->from, df_col_mul(g, after, w));
        LLVMValueRef fits = LLVMBuildICmp(g->b, LLVMIntSLE, end, c->end, "");
        df_if_begin(g, &some, fits);
        rows_in_registers(g, c, e, done, first, n);
        df_if_end(g, &some);
        done = LLVMBuildSelect(g->b, fits, after, done, "");
    }
    c->skip = done;
    c->to = e.to;
    df_col_groups(g, c, one_group_in_registers);
    c->skip = NULL;
}

/* All groups of a whole chunk move along the rows together. */
void df_col_narrow_block(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    df_if any, whole, part;
    const df_strand e = { from, to, df_gen_i64(g, 1), c->top };
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, from, to, ""));
    df_gen_place(g, PLACE_PRE);
    df_if_begin(g, &whole, c->is_whole);
    rows_in_registers(g, c, e, df_gen_i64(g, 0), c->from, c->groups);
    df_if_end(g, &whole);
    df_if_begin(g, &part, LLVMBuildNot(g->b, c->is_whole, ""));
    part_in_registers(g, c, e);
    df_if_end(g, &part);
    df_if_end(g, &any);
}

/* ---- wide chunks ---- */

/* The number of bits that number n accumulators, which are not 0 and at most DF_LANES. */
static LLVMValueRef bits_of_count(df_gen *g, LLVMValueRef n)
{
    LLVMValueRef args[2] = { LLVMBuildSub(g->b, n, df_gen_i64(g, 1), ""),
                             LLVMConstInt(g->i1, 0, 0) };
    LLVMValueRef zeros = df_gen_intrinsic(g, "llvm.ctlz", &g->i64, 1, args, 2);
    return LLVMBuildSub(g->b, df_gen_i64(g, 64), zeros, "");
}

/* The lowest `bits` bits of i in reverse, where the others are 0. */
static LLVMValueRef reversed(df_gen *g, LLVMValueRef i, LLVMValueRef bits)
{
    LLVMValueRef v = df_gen_intrinsic(g, "llvm.bitreverse", &g->i64, 1, &i, 1);
    v = LLVMBuildLShr(g->b, v, df_gen_i64(g, 1), ""); /* a shift by 64 would be undefined */
    return LLVMBuildLShr(g->b, v, LLVMBuildSub(g->b, df_gen_i64(g, 63), bits, ""), "");
}

/* How often the two newest entries are joined after accumulator number i was pushed: as often as i
 * has trailing one bits. */
static LLVMValueRef trailing_ones(df_gen *g, LLVMValueRef i)
{
    LLVMValueRef args[2] = { LLVMBuildNot(g->b, i, ""), LLVMConstInt(g->i1, 0, 0) };
    return df_gen_intrinsic(g, "llvm.cttz", &g->i64, 1, args, 2);
}

/* The block [from, to), which is not empty. Finishes the accumulators one after the other, in the
 * order of their reversed bits, and folds them. A short block has fewer of them: the next power of
 * two. Those behind its last element stay at the identity, and to join that changes no bit. */
static void accumulators_in_turn(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    df_loop l;
    LLVMValueRef bits = bits_of_count(g, c->m);
    LLVMValueRef n = LLVMBuildShl(g->b, df_gen_i64(g, 1), bits, "");
    df_loop_begin(g, &l, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 1);
    LLVMValueRef height = df_loop_carry(g, &l, c->height);
    LLVMValueRef first = df_col_add(g, from, reversed(g, l.i, bits));
    const df_strand e = { first, to, df_gen_i64(g, DF_LANES), df_col_entry(g, c, height) };
    rows_in_registers(g, c, e, df_gen_i64(g, 0), c->from, c->groups);
    l.next[0] = df_col_join_newest(g, c, height, trailing_ones(g, l.i));
    df_loop_end(g, &l);
}

void df_col_wide_block(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    const df_strand all = { from, to, df_gen_i64(g, 1), c->top };
    df_gen_place(g, PLACE_PRE);
    if (keeps_one(g, c->stage))
        rows_in_registers(g, c, all, df_gen_i64(g, 0), c->from, c->groups);
    else
        accumulators_in_turn(g, c, from, to);
}

uint32_t df_col_wide_groups(df_gen *g)
{
    const uint32_t regs =
        df_gen_vector_registers(g) / 2 < MOST_REGS ? df_gen_vector_registers(g) / 2 : MOST_REGS;
    uint32_t groups = DF_COL_GROUPS;
    if (g->level == DF_OPT_O0 || g->n_reds == 0 || g->w == 1) return 0;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        const uint32_t n = df_reduce_count(g, s);
        if (n == 0) continue;
        df_gen_mark(g, s);
        if (!df_col_may_leave_order(g, s)) return 0;
        while (groups * n > regs || groups * df_gen_body_size(g) > WIDE_UNROLLED) groups /= 2;
    }
    return groups < LEAST_WIDE ? 0 : groups;
}
