/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions and scans: what reduce.c, row.c and col.c offer to each other and to the other files.
 * base/limits.h defines the order in which elements are reduced. Private to the plug-in; included
 * by gen.h.
 *
 * A kernel is a sequence of stages (fuser/plan.h). Instructions of a stage use the results of
 * reductions of earlier stages. A function that finds no memory does not return: see df_gen_array.
 */
#ifndef DF_JIT_LLVM_REDUCE_H
#define DF_JIT_LLVM_REDUCE_H

/* ---- reduce.c ---- */

/* Fills g->reds and g->n_reds from the reduce instructions of the kernel. g->reds has room for
 * g->k->n_ins entries. To be called before all other functions of this file. */
void df_reduce_plan(df_gen *g);
/* The number of reductions in `stage`. */
uint32_t df_reduce_count(const df_gen *g, uint32_t stage);
/* Joins the vector x to the accumulators of reduce instruction `ins`, with the op of that
 * reduction. When g->gather is set, x is stored in df_gen_red.operands at index g->lane0 +
 * g->gather instead, and df_reduce_gathered joins it later. */
void df_reduce_accumulate(df_gen *g, uint32_t ins, LLVMValueRef x);
/* The same for the operand x * by, which is not rounded before it is added. */
void df_reduce_accumulate_product(df_gen *g, uint32_t ins, LLVMValueRef x, LLVMValueRef by);
/* For each reduction of `stage`, loads one vector of stored operands and joins it to the
 * accumulators. The vector begins at index g->lane0 - g->gathered of df_gen_red.operands, where
 * g->gathered is the index of the block's first element. */
void df_reduce_gathered(df_gen *g, uint32_t stage);
/* Writes one stage of one row of a ROW kernel, with its scans. The stage contains at least one
 * reduction. Afterwards the results of its reductions are defined. In row.c. */
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
/* The identity of r's op in w lanes; a scalar when w is 1. For argmin and argmax, the worst value.
 * Accumulators start with the identity, except in COL when a float sum has no elements: it is
 * +0. */
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
/* a op b, where the op is that of r. base/limits.h fixes the order of the arguments. For argmin and
 * argmax the order does not matter: of equal values, that with the lower position wins. */
df_pair df_reduce_join(df_gen *g, const df_gen_red *r, df_pair a, df_pair b);
/* The n blocks of the reduction, of which this call handles [from, to). */
typedef struct df_blocks {
    LLVMValueRef from, to, n;
} df_blocks;
/* Emits the range of blocks of this call. With is_split the kernel is a SPLIT kernel
 * (runtime/device.h), whose function `part` handles only the blocks [i0, i1), its parameters. All
 * other functions handle all blocks. */
df_blocks df_reduce_blocks(df_gen *g, bool is_split);
/* Emits how often the two newest results on the stack are joined, after the result of block b was
 * pushed onto `height` others. This is the number of trailing zero bits of b + 1 (base/limits.h).
 * After block n - 1 it is `height`, which leaves one result. `part` joins nothing, and ignores
 * it. */
LLVMValueRef df_reduce_joins(df_gen *g, const df_blocks *blocks, LLVMValueRef b,
                             LLVMValueRef height);

/* Allocates and sets the running values of the scans of `stage`. COL has one vector per group of
 * lanes, ROW one scalar. */
void df_scan_begin(df_gen *g, uint32_t stage);
/* The value that the scan `ins` starts with, in g->w lanes. */
LLVMValueRef df_scan_start(df_gen *g, uint32_t ins);
/* Adds x, which has g->w lanes, to the running value of the scan `ins`. Returns the sum, which
 * includes x. In ROW kernels with a scan, g->w is 1. */
LLVMValueRef df_scan_step(df_gen *g, uint32_t ins, LLVMValueRef x);

/* ---- col.c ---- */

enum { DF_COL_GROUPS = 16 }; /* most vectors that a COL kernel works on side by side */
/* Writes one row of OUTER of a COL kernel, with all its stages. */
void df_col_row(df_gen *g);

#endif
