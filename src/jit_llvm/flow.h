/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow of generated code: counted loops, ifs and loop nests. Each construct has a
 * `begin`, after which the caller writes the body, and an `end`. Private to the plug-in; included
 * by gen.h.
 */
#ifndef DF_JIT_LLVM_FLOW_H
#define DF_JIT_LLVM_FLOW_H

#include <llvm-c/Core.h>

#include "fuser/plan.h"

typedef struct df_gen df_gen;

/* A counted loop: for (i = from; i < to; i += step), in signed i64. The generated code tests the
 * condition once before the loop and then at the end of each iteration. A carried value passes from
 * one iteration to the next in a phi. */
typedef struct df_loop {
    LLVMBasicBlockRef pre, body, after; /* pre: the block that jumps into the loop */
    LLVMValueRef i, to, step;
    LLVMValueRef *phi, *next, *init, *out; /* per carried value, in order of df_loop_carry */
    uint32_t n;                            /* carried values */
} df_loop;
/* Begins the loop and puts the builder into its body. At most max_carried values can be carried. */
void df_loop_begin(df_gen *g, df_loop *l, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step,
                   uint32_t max_carried);
/* Adds a carried value that starts as `init`, and returns its value in the current iteration. All
 * calls come directly after df_loop_begin, before any other instruction of the body. */
LLVMValueRef df_loop_carry(df_gen *g, df_loop *l, LLVMValueRef init);
/* Ends the loop and puts the builder behind it. Before, the caller sets l->next[k] to what carried
 * value k is in the next iteration; by default it does not change. Afterwards l->out[k] is its last
 * value, which is the initial one if no iteration took place. */
void df_loop_end(df_gen *g, df_loop *l);

/* if (cond) { ... } The caller writes the block `then` between begin and end. `before` is the block
 * that evaluates cond, for phis that the caller adds in `after`. */
typedef struct df_if {
    LLVMBasicBlockRef before, then, after;
} df_if;
void df_if_begin(df_gen *g, df_if *f, LLVMValueRef cond);
void df_if_end(df_gen *g, df_if *f);

/* A loop nest over axes in row-major order. It begins at linear index `from` and ends before `to`.
 * An outer nest reads df_acc_state.base of every access, and sets .row to the address at the
 * current position. An inner nest reads .row and sets .at. The caller sets the first five
 * members. */
typedef struct df_nest {
    const int *axes; /* the axes of the kernel that the nest goes over, the innermost last */
    int n;           /* axes; 0: the body runs once if from < to */
    bool is_outer;
    /* o: the current linear index. last: the index on the innermost axis; NULL if n is below 2. */
    LLVMValueRef from, to, o, last;
    LLVMValueRef rebase_o; /* the linear index in the block `rebase`, if n is above 1 */
    LLVMBasicBlockRef rebase, body, after; /* rebase computes all addresses from the indices */
    LLVMValueRef index[DF_MAX_AXES];       /* the indices in rebase, in the order of axes */
    LLVMValueRef *inc; /* per access: its stride along the innermost axis; NULL: does not move */
    df_if guard;
} df_nest;
/* Begins `if (from < to)`. Code written between df_nest_guard and df_nest_begin runs once, before
 * the first iteration, and only when there is one. */
void df_nest_guard(df_gen *g, df_nest *nest);
/* Begins the nest, for which df_nest_guard has been called, and puts the builder into its body. */
void df_nest_begin(df_gen *g, df_nest *nest);
/* Ends the nest and its guard. The addresses of all accesses are again those before the nest. */
void df_nest_end(df_gen *g, df_nest *nest);

/* Sets the address of each access to that at index i of `axis`, the only axis that is left. */
void df_nest_at(df_gen *g, int axis, LLVMValueRef i);

#endif
