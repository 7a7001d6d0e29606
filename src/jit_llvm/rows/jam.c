/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of MAP in pairs. A stencil loads elements of several rows for each row that it writes, and
 * the next row loads most of them again. Facts know which accesses read the same elements, one row
 * apart (df_facts.below). Then one pass over the lanes computes two rows, and loads once what both
 * rows need:
 *
 *   row      0    1    2    3    4        to
 *   code    [0    1]  [2    3]  [4]            for from = 0
 *                [1]  [2    3]  [4]            for from = 1
 *
 * A pair begins at an even index on the last outer axis, so that the pairs of a row do not depend
 * on where a call begins. The code of the body is written for twice as many copies. The second half
 * of them is for the next row, with the same lanes. All loads of a pair precede all its stores.
 * That is allowed, because different threads may compute the two rows at the same time anyway.
 *
 * The inside of an array begins one element behind a cache line. Vectors that are counted from
 * there cross a line each, those of the store and those of loads of the same column. So where all
 * rows are long and begin equally far behind a line, one masked vector leads to the next line, and
 * the others are stored aligned:
 *
 *   line      |...............|...............|...............|
 *   row        xxxxxxxxxxxxxxx xxxxxxxxxxxxxxx xxxxxxxxxxxxxx
 *   vectors    [    head     ] [   aligned   ] [  masked    ]
 *
 * A cross of 5 points then takes 0.9 of the time at 512 x 512 elements.
 */
#include "jit_llvm/gen.h"

enum {
    LINE_BYTES = 64,
    LONG_ROW = 16, /* vectors. Shorter rows are faster as one piece */
};

bool df_jam_is_next(const df_gen *g)
{
    return g->is_jammed && g->copy >= g->n_copies / 2;
}

/* The load through access b in the body, or DF_NONE. */
static uint32_t load_through(const df_gen *g, uint32_t b)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_load && g->k->ins[i].imm == b &&
            df_gen_is_here(g, i, PLACE_BODY))
            return i;
    return DF_NONE;
}

/* Whether instruction i is the same in both rows, or is computed from loads of rows. */
static bool may_jam(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    if (g->val[i].place == PLACE_ENTRY) return true;
    if (g->val[i].place != PLACE_BODY || ins->level != DF_LEVEL_ELEM || g->val[i].arm != 0)
        return false;
    if (op == DF_K_load || op == DF_K_store)
        return df_gen_lane_step(g, (uint32_t)ins->imm) == DF_STEP_UNIT;
    return op != DF_K_index && op != DF_K_load_if && op != DF_K_load_at && op != DF_K_check;
}

bool df_jam_find(df_gen *g)
{
    bool shares = false;
    if (!g->facts || !g->facts->shares || g->has_inside || g->n_outer == 0) return false;
    if (g->w == 1 || g->level == DF_OPT_O0) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (!may_jam(g, i)) return false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const uint32_t b = g->facts->below[a];
        g->acc[a].below = b ? load_through(g, b - 1) : DF_NONE;
        shares |= g->acc[a].below != DF_NONE;
    }
    return shares;
}

static uint32_t first_store(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_store && df_gen_is_here(g, i, PLACE_BODY))
            return (uint32_t)g->k->ins[i].imm;
    return DF_NONE;
}

/* Whether all rows of an access begin equally far behind a cache line (i1). */
static LLVMValueRef has_even_pitch(df_gen *g, uint32_t access)
{
    LLVMValueRef bits = df_gen_i64(g, 0);
    for (int i = 0; i < g->n_outer; i++)
        if (g->k->access[access].step[g->outer[i]] != DF_STEP_ZERO)
            bits = LLVMBuildOr(g->b, bits, df_gen_stride(g, access, g->outer[i]), "");
    bits = LLVMBuildAnd(g->b, bits, df_gen_i64(g, LINE_BYTES - 1), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, bits, df_gen_i64(g, 0), "");
}

/* Divides rows that have a head, and finds out whether rows have one. */
static void cut_head(df_gen *g, df_jam_lanes *l)
{
    int64_t n_known;
    const uint32_t a = first_store(g);
    const uint32_t size = a == DF_NONE ? 0 : df_bytes_of((deft_dtype)g->k->access[a].dtype);
    const int64_t least = (int64_t)LONG_ROW * g->w;
    LLVMValueRef n = LLVMBuildSub(g->b, g->i1_, g->i0, "");
    if (!g->native_masks || g->w * size != LINE_BYTES) return;
    if (df_gen_known(n, &n_known) && n_known < least) return;
    LLVMValueRef at = LLVMBuildPtrToInt(g->b, g->acc[a].base, g->i64, "");
    LLVMValueRef past = LLVMBuildUDiv(g->b, at, df_gen_i64(g, size), ""); /* in elements */
    past = LLVMBuildAdd(g->b, past, g->i0, "");
    past = LLVMBuildAnd(g->b, past, df_gen_i64(g, g->w - 1), "");
    LLVMValueRef is_past = LLVMBuildICmp(g->b, LLVMIntNE, past, df_gen_i64(g, 0), "");
    LLVMValueRef is_long = LLVMBuildICmp(g->b, LLVMIntSGE, n, df_gen_i64(g, least), "");
    l->has_head =
        LLVMBuildAnd(g->b, LLVMBuildAnd(g->b, is_past, is_long, ""), has_even_pitch(g, a), "");
    LLVMValueRef rest = LLVMBuildSub(g->b, df_gen_i64(g, g->w), past, "");
    l->first = LLVMBuildAdd(g->b, g->i0, rest, "");
    g->is_jammed = true;
    l->aligned = df_lanes_cut(g, l->first, g->i1_);
    g->is_jammed = false;
}

df_jam_lanes df_jam_cut(df_gen *g)
{
    df_jam_lanes l = { .has_head = NULL };
    g->is_jammed = true;
    l.all = df_lanes_cut(g, g->i0, g->i1_);
    g->is_jammed = false;
    cut_head(g, &l);
    return l;
}

static void write_pair(df_gen *g, const df_nest *rows, const df_jam_lanes *pair)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        LLVMValueRef at = g->acc[a].at;
        g->acc[a].next = at && rows->inc[a] ? df_gen_offset(g, at, rows->inc[a]) : at;
    }
    df_if head, other;
    g->is_jammed = true;
    if (pair->has_head) {
        df_if_begin(g, &head, pair->has_head);
        df_lanes_body(g, g->i0, pair->first, 1);
        df_lanes_loop(g, &pair->aligned);
        df_if_end(g, &head);
        df_if_begin(g, &other, LLVMBuildNot(g->b, pair->has_head, ""));
    }
    df_lanes_loop(g, &pair->all);
    if (pair->has_head) df_if_end(g, &other);
    g->is_jammed = false;
}

void df_jam_row(df_gen *g, const df_nest *rows, const df_lanes *l, const df_jam_lanes *pair)
{
    if (rows->n == 0) { /* there is one row */
        df_stream_lanes(g, l, false);
        return;
    }
    LLVMValueRef one = df_gen_i64(g, 1), index = rows->n > 1 ? rows->last : rows->o;
    LLVMValueRef extent = g->extent[rows->axes[rows->n - 1]];
    LLVMValueRef is_odd = LLVMBuildTrunc(g->b, index, g->i1, "");
    LLVMValueRef has_next =
        LLVMBuildICmp(g->b, LLVMIntSLT, LLVMBuildAdd(g->b, rows->o, one, ""), rows->to, "");
    LLVMValueRef is_last =
        LLVMBuildICmp(g->b, LLVMIntSGE, LLVMBuildAdd(g->b, index, one, ""), extent, "");
    has_next = LLVMBuildAnd(g->b, has_next, LLVMBuildNot(g->b, is_last, ""), "");
    LLVMValueRef has_before = LLVMBuildICmp(g->b, LLVMIntSGT, rows->o, rows->from, "");
    LLVMValueRef is_paired = LLVMBuildSelect(g->b, is_odd, has_before, has_next, "");
    if (g->streams)
        is_paired = LLVMBuildAnd(g->b, is_paired, LLVMBuildNot(g->b, g->streams, ""), "");
    LLVMValueRef begins = LLVMBuildAnd(g->b, is_paired, LLVMBuildNot(g->b, is_odd, ""), "");
    df_if two, single;
    df_if_begin(g, &two, begins);
    write_pair(g, rows, pair);
    df_if_end(g, &two);
    df_if_begin(g, &single, LLVMBuildNot(g->b, is_paired, ""));
    df_stream_lanes(g, l, false);
    df_if_end(g, &single);
}
