/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions and scans: what reduce.c, row.c and col.c offer to each other and to the other files.
 * base/limits.h defines the order in which elements are reduced. Private to the plug-in; included
 * by gen.h.
 */
#ifndef DF_JIT_LLVM_REDUCE_H
#define DF_JIT_LLVM_REDUCE_H

/* ---- reduce.c ---- */

/* Fills g->reds and g->n_reds from the reduce instructions of the kernel. */
void df_reduce_plan(df_gen *g);
/* The number of reductions in `stage`. */
uint32_t df_reduce_count(const df_gen *g, uint32_t stage);
/* Adds the vector x to the accumulators of reduce instruction `ins`. If g->gather is set, stores x
 * as an operand for df_reduce_gathered instead. */
void df_reduce_accumulate(df_gen *g, uint32_t ins, LLVMValueRef x);
/* Adds one vector of stored operands to the accumulators, for each reduction of `stage`. The vector
 * is that of g->lane0, in the block whose first element is g->gathered. */
void df_reduce_gathered(df_gen *g, uint32_t stage);
/* Writes stage `stage` of one row of a ROW kernel, which has at least one reduction, and defines
 * the results of its reductions. In row.c. */
void df_reduce_row_stage(df_gen *g, uint32_t stage);

/* The first reduction of `stage` at or after `from`, which points into g->reds; NULL: none. */
df_gen_red *df_reduce_next(df_gen *g, df_gen_red *from, uint32_t stage);
/* Visits the reductions of one stage, in order of their instructions. */
#define DF_FOR_REDS(r, g, stage)                                                                   \
    for (df_gen_red *r = df_reduce_next((g), (g)->reds, (stage)); r;                               \
         r = df_reduce_next((g), r + 1, (stage)))

enum { DF_BLOCK_LOG2 = 12 };
_Static_assert(1 << DF_BLOCK_LOG2 == DF_BLOCK, "blocks are counted by a shift");
/* The type in memory of one lane of r's accumulator. */
LLVMTypeRef df_reduce_type(const df_gen *g, const df_gen_red *r);
/* The value that an accumulator of r starts with, in w lanes. */
LLVMValueRef df_reduce_identity(df_gen *g, const df_gen_red *r, uint32_t w);
/* The address of element `index` of an array of vectors at mem, which have g->w lanes of t. */
LLVMValueRef df_reduce_at(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index);
/* The value of that element. */
LLVMValueRef df_reduce_load(df_gen *g, LLVMValueRef mem, LLVMTypeRef t, LLVMValueRef index);

/* An accumulator or result of one reduction: its value, and for argmin and argmax the position of
 * that value. i is NULL for other reductions. */
typedef struct df_pair {
    LLVMValueRef v, i;
} df_pair;
/* older op newer, where the op is that of r. */
df_pair df_reduce_join(df_gen *g, const df_gen_red *r, df_pair older, df_pair newer);
/* The n blocks of the reduction, of which this call handles [from, to). */
typedef struct df_blocks {
    LLVMValueRef from, to, n;
} df_blocks;
/* The blocks of the reduction. With is_split, a call of `part` handles the blocks [i0, i1) only. */
df_blocks df_reduce_blocks(df_gen *g, bool is_split);
/* How often the two newest results on the stack are joined, after the result of block b was pushed
 * onto `height` others. After the last block, as often as leaves one result. */
LLVMValueRef df_reduce_joins(df_gen *g, const df_blocks *blocks, LLVMValueRef b,
                             LLVMValueRef height);

/* Allocates and sets the running values of the scans of `stage`. COL has one vector per group of
 * lanes, ROW one scalar. */
void df_scan_begin(df_gen *g, uint32_t stage);
/* The value that the scan `ins` starts with, in g->w lanes. */
LLVMValueRef df_scan_start(df_gen *g, uint32_t ins);
/* Adds x to the running value of the scan `ins` and returns the sum. */
LLVMValueRef df_scan_step(df_gen *g, uint32_t ins, LLVMValueRef x);

/* ---- col.c ---- */

enum { DF_COL_GROUPS = 4 }; /* most vectors that a COL kernel works on side by side */
/* Writes one row of OUTER of a COL kernel, with all its stages. */
void df_col_row(df_gen *g);

#endif
