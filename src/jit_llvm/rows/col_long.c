/* SPDX-License-Identifier: Apache-2.0
 *
 * Long chunks of COL kernels: their accumulators are in memory, so that each row is read from its
 * beginning to its end.
 *
 * An Intel server prefetches from its last cache along a row, and begins again with each row. A
 * chunk in registers reads 512 or 1024 bytes of a row. One row of 1024 i32 times a matrix of 4 MB
 * takes there, in C with intrinsics, beside 141 us for a plain read:
 *
 *   bytes of a row at a time    512   1024   all, one row   two    four   eight rows at once
 *   us                          181    188      152         148    144     140
 *
 * Prefetch instructions gain nothing for chunks in registers. A launch whose elements come from
 * beyond the second cache says so in df_kargs.fetches, which exec_stream.c sets. Reductions with
 * one accumulator for each lane then take ROWS rows at once, and load and store each accumulator
 * once for them. In the second cache, chunks in registers are faster.
 *
 * Other reductions go along whole rows in *sheets*: narrow chunks of up to 64 vectors of a row.
 * Their accumulators, 64 for each lane where the order matters, are in the workspace, and stay in
 * the second cache. Four rows that belong to one accumulator are taken at once, as col.c says, and
 * the next row is prefetched. A sum of columns of f32, in C on one thread of that server, in us,
 * with accumulators in small pages:
 *
 *   rows x columns                      4096 x 1024   5000 x 1000
 *   a plain read                                586           694
 *   wide chunks in registers                    792           736
 *   sheets, one row at once                     628           891
 *   sheets, four rows at once                   609           732
 */
#include "jit_llvm/rows/col.h"

#include <string.h>

enum {
    ROWS = 4,
    MOST_VECTORS = 256, /* of accumulators: 16 KiB, a third of the first cache */
    LEAST_VECTORS = 32, /* with fewer, chunks in registers also read whole rows */
    LEAST_LENGTH = 64,  /* rows */
    SHEET_GROUPS = 64,
    LEAST_SHEET = 16,   /* groups. With fewer, rows are read in short runs */
    SHEET_LENGTH = 1024 /* rows. For fewer, setting and folding accumulators takes too long */
};

/* What the code for one row has set outside of the loop over lanes. */
typedef struct row_state {
    df_val *val;
    df_acc_state *acc;
} row_state;

static bool has_row_vectors(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].place == PLACE_LANES && g->k->ins[i].stage == 0) return true;
    return false;
}

/* The reductions of the kernel have to be all of stage 0, to keep one accumulator, and to leave
 * nothing to do for the elements of later stages. */
uint32_t df_col_long_vectors(df_gen *g)
{
    if (!g->fetches || df_reduce_count(g, 0) != g->n_reds || has_row_vectors(g)) return 0;
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (g->reds[k].n_acc != 1) return 0;
    df_gen_mark(g, 0);
    return df_col_may_leave_order(g, 0) ? MOST_VECTORS : 0;
}

/* The bytes of accumulators and of the stack of results, for each group. */
static uint64_t sheet_bytes(const df_gen *g, const df_gen_red *r)
{
    return (uint64_t)(DF_TREE_DEPTH + r->n_acc) * g->w * df_bytes_of((deft_dtype)r->dtype);
}

uint32_t df_col_sheet_groups(df_gen *g)
{
    uint64_t bytes = 0; /* of a group */
    if (!g->t->is_intel_server || !g->fetches || g->n_reds == 0 ||
        df_reduce_count(g, 0) != g->n_reds || has_row_vectors(g))
        return 0;
    for (uint32_t k = 0; k < g->n_reds; k++) bytes += sheet_bytes(g, &g->reds[k]);
    const uint64_t groups = DF_SHEET_BYTES / bytes;
    if (df_col_wide_groups(g) == 0 || groups < LEAST_SHEET) return 0;
    return groups < SHEET_GROUPS ? (uint32_t)groups : SHEET_GROUPS;
}

void df_col_sheet_exchange(df_gen *g, LLVMValueRef *mem, uint32_t groups)
{
    uint64_t at = 0;
    LLVMValueRef work = NULL;
    if (!mem[0]) {
        work = df_gen_at(g, g->ptr, LLVMGetParam(g->fn, 0), df_gen_i64(g, DF_WORK_WORD));
        work = LLVMBuildLoad2(g->b, g->ptr, work, "");
    }
    for (uint32_t k = 0; k < g->n_reds; k++) {
        df_gen_red *const r = &g->reds[k];
        LLVMValueRef other = mem[k];
        if (!other) other = df_gen_offset(g, work, df_gen_i64(g, (int64_t)at));
        mem[k] = r->mem;
        g->val[r->ins].slot = r->mem = other;
        at += groups * sheet_bytes(g, r);
    }
}

/* Whether the order of blocks changes results, so that a column has to be one block. */
static bool wants_one_block(const df_gen *g)
{
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (df_is_real((deft_dtype)g->reds[k].dtype)) return true;
    return false;
}

static LLVMValueRef and_at_least(df_gen *g, LLVMValueRef is, LLVMValueRef n, int64_t least)
{
    LLVMValueRef more = LLVMBuildICmp(g->b, LLVMIntSGE, n, df_gen_i64(g, least), "");
    return LLVMBuildAnd(g->b, is, more, "");
}

LLVMValueRef df_col_long_end(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    LLVMValueRef is = g->fetches, lanes = LLVMBuildSub(g->b, to, from, "");
    is = and_at_least(g, is, lanes, (int64_t)LEAST_VECTORS * g->w);
    is = and_at_least(g, is, g->length, LEAST_LENGTH);
    if (wants_one_block(g)) {
        LLVMValueRef one = LLVMBuildICmp(g->b, LLVMIntSLE, g->length, df_gen_i64(g, DF_BLOCK), "");
        is = LLVMBuildAnd(g->b, is, one, "");
    }
    if (g->is_part) {
        LLVMValueRef shares = LLVMBuildOr(g->b, g->is_part, g->is_fin, "");
        is = LLVMBuildAnd(g->b, is, LLVMBuildNot(g->b, shares, ""), "");
    }
    LLVMValueRef n = LLVMBuildAnd(g->b, lanes, df_gen_i64(g, -(int64_t)g->w), "");
    return df_col_add(g, from, LLVMBuildSelect(g->b, is, n, df_gen_i64(g, 0), ""));
}

LLVMValueRef df_col_sheet_end(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    LLVMValueRef is = g->fetches;
    is = and_at_least(g, is, LLVMBuildSub(g->b, to, from, ""), (int64_t)LEAST_SHEET * g->w);
    is = and_at_least(g, is, g->length, SHEET_LENGTH);
    return LLVMBuildSelect(g->b, is, to, from, "");
}

/* Sets the accumulators of the chunk. They are the entries 0 of the stacks of results. */
static void set_accumulators(df_gen *g)
{
    df_loop l;
    df_col_count(g, &l, g->pitch);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        const df_pair p = { df_reduce_identity(g, r, g->w), NULL };
        df_col_store(g, r, r->mem, NULL, l.i, p);
    }
    df_loop_end(g, &l);
}

/* Writes what n rows from `row` on need outside of the loop over lanes. */
static void begin_rows(df_gen *g, LLVMValueRef row, row_state *at, uint32_t n)
{
    const size_t of_val = g->k->n_ins * sizeof *g->val, of_acc = g->k->n_access * sizeof *g->acc;
    for (uint32_t k = 0; k < n; k++) {
        g->red_at = df_col_add(g, row, df_gen_i64(g, k));
        df_nest_at(g, g->red[0], g->red_at);
        df_gen_place(g, PLACE_RED);
        at[k].val = df_gen_array(g, of_val);
        at[k].acc = df_gen_array(g, of_acc);
        memcpy(at[k].val, g->val, of_val);
        memcpy(at[k].acc, g->acc, of_acc);
        g->epoch++; /* no vector of this row is valid in the next */
    }
}

/* Loads one vector of each accumulator into a register, or stores it. */
static void move_accumulators(df_gen *g, LLVMValueRef at, bool loads)
{
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (loads)
            r->reg[0] = df_col_load(g, r, r->mem, NULL, at).v;
        else
            df_col_store(g, r, r->mem, NULL, at, (df_pair){ r->reg[0], NULL });
    }
}

/* Writes the body for elements row .. row + n - 1 and all vectors of the chunk. */
static void reduce_rows(df_gen *g, const df_chunk *c, LLVMValueRef row, uint32_t n)
{
    df_loop l;
    row_state at[ROWS];
    begin_rows(g, row, at, n);
    df_col_count(g, &l, g->pitch);
    g->group = l.i;
    df_gen_lanes_begin(g, df_col_add(g, c->from, df_col_mul(g, l.i, df_gen_i64(g, g->w))), NULL);
    move_accumulators(g, l.i, true);
    g->in_regs = true;
    g->reg = 0;
    for (uint32_t k = 0; k < n; k++) {
        memcpy(g->val, at[k].val, g->k->n_ins * sizeof *g->val);
        memcpy(g->acc, at[k].acc, g->k->n_access * sizeof *g->acc);
        g->red_at = df_col_add(g, row, df_gen_i64(g, k));
        df_gen_place(g, PLACE_BODY);
        g->epoch++;
    }
    g->in_regs = false;
    move_accumulators(g, l.i, false);
    df_loop_end(g, &l);
}

void df_col_long_stage(df_gen *g, df_chunk *c)
{
    df_loop rows, rest;
    LLVMValueRef zero = df_gen_i64(g, 0);
    LLVMValueRef end = LLVMBuildAnd(g->b, g->length, df_gen_i64(g, -ROWS), "");
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) r->reg = df_gen_values(g, 1);
    set_accumulators(g);
    df_gen_place(g, PLACE_PRE);
    df_loop_begin(g, &rows, zero, end, df_gen_i64(g, ROWS), 0);
    reduce_rows(g, c, rows.i, ROWS);
    df_loop_end(g, &rows);
    df_loop_begin(g, &rest, end, g->length, df_gen_i64(g, 1), 0);
    reduce_rows(g, c, rest.i, 1);
    df_loop_end(g, &rest);
}
