/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of COL kernels share; col.c describes how these kernels work. Calls go from col.c
 * to col_long.c and col_regs.c, and from there to col_chunk.c. A function that finds no memory does
 * not return: see df_gen_array.
 */
#ifndef DF_JIT_LLVM_COL_H
#define DF_JIT_LLVM_COL_H

#include "jit_llvm/gen.h"

/* What one accumulator of each lane takes in registers. */
typedef struct df_strand {
    LLVMValueRef from, to, step; /* elements from, from + step, .. below `to` */
    LLVMValueRef at;             /* index of the vector that gets the result of group 0 */
} df_strand;

typedef struct df_chunk {
    LLVMValueRef from, end; /* its first lane; the end of the lanes of this call */
    LLVMValueRef is_whole;  /* it has c->groups groups, and all have w active lanes */
    LLVMValueRef r0, to;    /* the block's first element, and the one behind its last */
    LLVMValueRef m;         /* accumulators in use */
    LLVMValueRef r;         /* several rows at once: the first of their elements */
    LLVMValueRef skip;      /* df_col_groups begins with this group; NULL: with group 0 */
    LLVMValueRef height;    /* entries of the stack of results below the block's */
    LLVMValueRef top;       /* index of the block's first accumulator vector; NULL: no reduction */
    LLVMValueRef acc_base;  /* index of the accumulator vector of element r in group 0 */
    LLVMValueRef b;         /* the current block */
    df_blocks blocks;
    uint32_t stage;  /* the current stage */
    uint32_t groups; /* most groups of a chunk */
    bool is_wide, is_long, is_sheet;
} df_chunk;

/* ---- short forms ---- */

DF_INLINE LLVMValueRef df_col_mul(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildMul(g->b, a, b, "");
}

DF_INLINE LLVMValueRef df_col_add(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAdd(g->b, a, b, "");
}

/* for (x = 0; x < n; x++) */
DF_INLINE void df_col_count(df_gen *g, df_loop *l, LLVMValueRef n)
{
    df_loop_begin(g, l, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 0);
}

/* ---- col_chunk.c ---- */

/* One vector of a reduction's values, and of its indices (argmin, argmax). */
LLVMTypeRef df_col_vector(const df_gen *g, const df_gen_red *r);
LLVMTypeRef df_col_index_vector(const df_gen *g);
bool df_col_is_of_stage(const df_gen *g, const df_gen_red *r, uint32_t stage);
/* Element `at` of the arrays of vectors v and idx. idx is NULL where r has no indices. */
df_pair df_col_load(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx,
                    LLVMValueRef at);
void df_col_store(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx, LLVMValueRef at,
                  df_pair p);

typedef void (*df_col_fn)(df_gen *g, df_chunk *c);
/* Writes a loop that does fn for every group of the chunk, with lane0 and mask set. Where masks are
 * not instructions, fn is written twice: for whole vectors and for the last, partial one. */
void df_col_groups(df_gen *g, df_chunk *c, df_col_fn fn);

/* The index of the vector of group 0 in entry `height` of the stack of results. */
LLVMValueRef df_col_entry(df_gen *g, const df_chunk *c, LLVMValueRef height);
/* The entry at `height` of the stack is new. Joins the two newest entries n times and returns the
 * number of entries afterwards. */
LLVMValueRef df_col_join_newest(df_gen *g, df_chunk *c, LLVMValueRef height, LLVMValueRef n);

/* ---- col_long.c ---- */

/* The most vectors of a long chunk. 0: the kernel has none. Marks the kernel. */
uint32_t df_col_long_vectors(df_gen *g);
/* The end of the lanes of long chunks, which begin with lane `from`. At run time it is `from`
 * unless the elements come from beyond the second cache. */
LLVMValueRef df_col_long_end(df_gen *g, LLVMValueRef from, LLVMValueRef to);
/* Writes stage 0 of a long chunk. Leaves the results in entries 0 of the stacks. */
void df_col_long_stage(df_gen *g, df_chunk *c);

/* The most groups of a sheet. 0: the kernel has none. Marks the kernel. */
uint32_t df_col_sheet_groups(df_gen *g);
/* The end of the lanes of sheets, as df_col_long_end. */
LLVMValueRef df_col_sheet_end(df_gen *g, LLVMValueRef from, LLVMValueRef to);
/* Exchanges the arrays of vectors with those of a sheet, which are in the workspace. A second call
 * undoes the first. mem: df_gen_values(g, g->n_reds), the same in both calls. */
void df_col_sheet_exchange(df_gen *g, LLVMValueRef *mem, uint32_t groups);

/* ---- col_regs.c ---- */

/* Whether elements need not come in their order, as long as those of each accumulator do. The
 * kernel is marked for the stage, here and below. */
bool df_col_may_leave_order(const df_gen *g, uint32_t stage);
/* Whether one accumulator for each reduction and group of a narrow chunk stays in registers. */
bool df_col_may_stay_in_registers(const df_gen *g, const df_chunk *c);
/* Writes the body for elements [from, to) and all groups of such a chunk. */
void df_col_narrow_block(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to);
/* The number of groups of a wide chunk. 0: the kernel has none. Marks the kernel. */
uint32_t df_col_wide_groups(df_gen *g);
/* Writes the body for elements [from, to), which are some, of a block of a wide chunk. Leaves the
 * block's result at c->top. */
void df_col_wide_block(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to);

#endif
