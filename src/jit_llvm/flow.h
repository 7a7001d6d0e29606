/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow for generated code. Private to the plug-in; included by gen.h.
 */
#ifndef DF_JIT_LLVM_FLOW_H
#define DF_JIT_LLVM_FLOW_H

#include <llvm-c/Core.h>

#include "fuser/plan.h"

typedef struct df_gen df_gen;

/* A counted loop, tested at its end and guarded before: for (i = from; i < to; i += step). Carried
 * values become phis; after df_loop_end their last values stand in out. */
typedef struct df_loop {
    LLVMBasicBlockRef pre, body, after;
    LLVMValueRef i, to, step;
    LLVMValueRef *phi, *next, *init, *out;
    uint32_t n;
} df_loop;
void df_loop_begin(df_gen *g, df_loop *l, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step,
                   uint32_t max_carried);
LLVMValueRef df_loop_carry(df_gen *g, df_loop *l, LLVMValueRef init); /* right after begin */
void df_loop_end(df_gen *g, df_loop *l); /* next[] filled in by the caller */

/* if (cond) { ... }: begin gives the block to go on in. */
typedef struct df_if {
    LLVMBasicBlockRef before, then, after;
} df_if;
void df_if_begin(df_gen *g, df_if *f, LLVMValueRef cond);
void df_if_end(df_gen *g, df_if *f);

/* A walk over axes in row-major order from linear index `from` to `to`; in[a] is each access's
 * address on the way in, out[a] (df_acc_state.row or .at) the address at the current position. */
typedef struct df_walk {
    const int *axes;
    int n;
    bool is_outer;                  /* writes row, reads base; else writes at, reads row */
    LLVMValueRef from, to, o, last; /* last: index on the innermost walked axis */
    LLVMValueRef rebase_o;
    LLVMBasicBlockRef rebase, body, after;
    LLVMValueRef index[DF_MAX_AXES];
    LLVMValueRef *inc;
    df_if guard;
} df_walk;
void df_walk_guard(df_gen *g, df_walk *w); /* if (from < to) {: what stands here runs once */
void df_walk_begin(df_gen *g, df_walk *w);
void df_walk_end(df_gen *g, df_walk *w);

#endif
