/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions and scans as loops.c and each other see them. Private to the plug-in; included by
 * gen.h.
 */
#ifndef DF_JIT_LLVM_REDUCE_H
#define DF_JIT_LLVM_REDUCE_H

/* ---- reduce.c ---- */

void df_reduce_plan(df_gen *g); /* fills reds */
uint32_t df_reduce_count(const df_gen *g, uint32_t stage);
void df_reduce_accumulate(df_gen *g, uint32_t ins, LLVMValueRef x); /* one vector, as df_gen says */
/* The same for all reductions of stage, from operands put aside before (g->gathered). */
void df_reduce_gathered(df_gen *g, uint32_t stage);
void df_reduce_row_stage(df_gen *g, uint32_t stage); /* row.c */

/* Reductions of one stage, in order. */
df_gen_red *df_reduce_next(df_gen *g, df_gen_red *from, uint32_t stage);
#define DF_FOR_REDS(r, g, stage)                                                                   \
    for (df_gen_red *r = df_reduce_next((g), (g)->reds, (stage)); r;                               \
         r = df_reduce_next((g), r + 1, (stage)))

enum { DF_BLOCK_LOG2 = 12 };
_Static_assert(1 << DF_BLOCK_LOG2 == DF_BLOCK, "blocks are counted by a shift");
LLVMTypeRef df_reduce_type(const df_gen *g, const df_gen_red *r);
LLVMValueRef df_reduce_identity(df_gen *g, const df_gen_red *r, uint32_t w);
/* Vector number index of an array of w-lane vectors of t: its address, its value. */
LLVMValueRef df_reduce_at(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index);
LLVMValueRef df_reduce_load(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index);

/* Values of one reduction: the index only for argmin and argmax. */
typedef struct df_pair {
    LLVMValueRef v, i;
} df_pair;
df_pair df_reduce_join(df_gen *g, const df_gen_red *r, df_pair older, df_pair newer);
/* The blocks that this call looks at, and how many there are. */
typedef struct df_blocks {
    LLVMValueRef from, to, n;
} df_blocks;
df_blocks df_reduce_blocks(df_gen *g, bool is_split);
/* How many times the two newest results are joined once block b lies on top of height others. */
LLVMValueRef df_reduce_joins(df_gen *g, const df_blocks *blocks, LLVMValueRef b,
                             LLVMValueRef height);

/* Running values of the stage's scans, one vector per group of lanes (ROW: one scalar). */
void df_scan_begin(df_gen *g, uint32_t stage);
LLVMValueRef df_scan_start(df_gen *g, uint32_t ins);
LLVMValueRef df_scan_step(df_gen *g, uint32_t ins, LLVMValueRef x);

/* ---- col.c ---- */

enum { DF_COL_GROUPS = 4 }; /* most vectors that a COL kernel works on side by side */
void df_col_row(df_gen *g); /* everything of one row of a COL kernel */

#endif
