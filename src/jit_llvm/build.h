/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, constants, addresses and memory of generated code (build.c). Private to the plug-in;
 * included by gen.h.
 */
#ifndef DF_JIT_LLVM_BUILD_H
#define DF_JIT_LLVM_BUILD_H

#include "ops/dtype.h"

/* ---- types and constants ---- */

/* The type of a value of t in a register: i1 for bool. */
LLVMTypeRef df_gen_type(const df_gen *g, deft_dtype t);
/* The type of a value of t in memory: i8 for bool. */
LLVMTypeRef df_gen_mem_type(const df_gen *g, deft_dtype t);
/* A vector of w lanes of t, or t itself if w is 1. */
LLVMTypeRef df_gen_lanes(LLVMTypeRef t, uint32_t w);
/* The constant v. */
LLVMValueRef df_gen_i64(const df_gen *g, int64_t v);
/* The constant of dtype t whose bits are the low bits of `bits`. NaNs keep their payload. */
LLVMValueRef df_gen_const(const df_gen *g, deft_dtype t, uint64_t bits);
/* The scalar in all of w lanes. */
LLVMValueRef df_gen_splat(df_gen *g, LLVMValueRef scalar, uint32_t w);
/* Lanes [from, from + n) of vector v: a vector, or a scalar if n is 1. n is at most DF_LANES. */
LLVMValueRef df_gen_take_lanes(df_gen *g, LLVMValueRef v, uint32_t from, uint32_t n);
/* 0, 1, ... w - 1 as lanes of t. */
LLVMValueRef df_gen_iota(const df_gen *g, LLVMTypeRef t, uint32_t w);
/* Calls the LLVM intrinsic of that name, overloaded for `types`. Arguments may be vectors of other
 * lanes than it takes: LLVM has changed those of instructions from version to version. */
LLVMValueRef df_gen_intrinsic(df_gen *g, const char *name, LLVMTypeRef *types, unsigned n_types,
                              LLVMValueRef *args, unsigned n_args);

/* ---- values that are known while code is generated ---- */

/* Whether v is a constant integer. Sets *out if it is. Extents that a variant knows (df_facts) are
 * constants. */
bool df_gen_known(LLVMValueRef v, int64_t *out);
/* Whether v is the constant `value`. */
bool df_gen_is(LLVMValueRef v, int64_t value);
/* Whether the kernel gets three functions: main, and part and fin, which divide a reduction between
 * threads (runtime/device.h). Variants have main alone. */
bool df_gen_splits(const df_gen *g);
/* The smaller of two signed i64. */
LLVMValueRef df_gen_min(df_gen *g, LLVMValueRef a, LLVMValueRef b);

/* ---- addresses, memory, blocks ---- */

/* The address `bytes` bytes behind p. */
LLVMValueRef df_gen_offset(df_gen *g, LLVMValueRef p, LLVMValueRef bytes);
/* The address of element `index` of an array of t at p. */
LLVMValueRef df_gen_at(df_gen *g, LLVMTypeRef t, LLVMValueRef p, LLVMValueRef index);
/* An array of n values of t in the frame of the function, allocated once on entry. */
LLVMValueRef df_gen_alloca(df_gen *g, LLVMTypeRef t, uint64_t n, unsigned align);
/* Appends an empty block to the function. The builder stays where it is. */
LLVMBasicBlockRef df_gen_block(df_gen *g, const char *name);
/* The stride of an access along an axis: in bytes, or in units for an access of kind INDEX. In
 * flow.c. */
LLVMValueRef df_gen_stride(df_gen *g, uint32_t access, int axis);
/* `size` bytes, all 0, which live until df_gen_kernel returns and are never freed singly. When
 * memory runs out, the function does not return: longjmp goes to df_gen_kernel, which returns
 * DEFT_E_MEMORY. No frame of LLVM is skipped. Callers must hold nothing that has to be released. */
void *df_gen_array(df_gen *g, size_t size);
/* The same for n values, all NULL. */
LLVMValueRef *df_gen_values(df_gen *g, uint32_t n);

#endif
