/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, constants, addresses and memory of generated code: the smallest steps, which all other
 * files of the code generator use.
 */
#include "jit_llvm/gen.h"

#include <string.h>

/* ---- types and constants ---- */

/* The integer type of `bits` bits, which are 8, 16, 32 or 64. */
static LLVMTypeRef int_of(const df_gen *g, uint32_t bits)
{
    return bits == 8 ? g->i8 : bits == 16 ? g->i16 : bits == 32 ? g->i32 : g->i64;
}

LLVMTypeRef df_gen_type(const df_gen *g, deft_dtype t)
{
    return t == DEFT_BOOL ? g->i1 : df_gen_mem_type(g, t);
}

LLVMTypeRef df_gen_mem_type(const df_gen *g, deft_dtype t)
{
    if (df_is_real(t)) return t == DEFT_F32 ? g->f32 : g->f64;
    return int_of(g, df_bits_of(t));
}

LLVMTypeRef df_gen_lanes(LLVMTypeRef t, uint32_t w)
{
    return w == 1 ? t : LLVMVectorType(t, w);
}

LLVMValueRef df_gen_i64(const df_gen *g, int64_t v)
{
    return LLVMConstInt(g->i64, (unsigned long long)v, 1);
}

LLVMValueRef df_gen_const(const df_gen *g, deft_dtype t, uint64_t bits)
{
    /* A float is made from integer bits. LLVMConstReal takes a double and could change a NaN. */
    if (t == DEFT_BOOL) return LLVMConstInt(g->i1, bits & 1, 0);
    LLVMValueRef word = LLVMConstInt(int_of(g, df_bits_of(t)), bits & df_all_bits(t), 0);
    return df_is_real(t) ? LLVMConstBitCast(word, df_gen_type(g, t)) : word;
}

LLVMValueRef df_gen_splat(df_gen *g, LLVMValueRef scalar, uint32_t w)
{
    if (w == 1) return scalar;
    if (LLVMIsConstant(scalar)) {
        LLVMValueRef lane[64];
        for (uint32_t i = 0; i < w; i++) lane[i] = scalar;
        return LLVMConstVector(lane, w);
    }
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), w);
    LLVMValueRef one =
        LLVMBuildInsertElement(g->b, LLVMGetPoison(type), scalar, df_gen_i64(g, 0), "");
    return LLVMBuildShuffleVector(g->b, one, LLVMGetPoison(type),
                                  LLVMConstNull(LLVMVectorType(g->i32, w)), "");
}

LLVMValueRef df_gen_take_lanes(df_gen *g, LLVMValueRef v, uint32_t from, uint32_t n)
{
    LLVMValueRef lane[DF_LANES];
    if (n == 1) return LLVMBuildExtractElement(g->b, v, df_gen_i64(g, from), "");
    for (uint32_t i = 0; i < n; i++) lane[i] = LLVMConstInt(g->i32, from + i, 0);
    return LLVMBuildShuffleVector(g->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(lane, n),
                                  "");
}

LLVMValueRef df_gen_iota(const df_gen *g, LLVMTypeRef t, uint32_t w)
{
    (void)g;
    LLVMValueRef lane[64];
    for (uint32_t i = 0; i < w; i++) lane[i] = LLVMConstInt(t, i, 0);
    return w == 1 ? lane[0] : LLVMConstVector(lane, w);
}

enum { MOST_ARGS = 8 };

LLVMValueRef df_gen_intrinsic(df_gen *g, const char *name, LLVMTypeRef *types, unsigned n_types,
                              LLVMValueRef *args, unsigned n_args)
{
    const unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    df_assert(id != 0);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(g->m, id, types, n_types);
    LLVMTypeRef type = LLVMGlobalGetValueType(fn), takes[MOST_ARGS];
    df_assert(LLVMCountParamTypes(type) == n_args && n_args <= MOST_ARGS);
    LLVMGetParamTypes(type, takes);
    for (unsigned i = 0; i < n_args; i++) args[i] = LLVMBuildBitCast(g->b, args[i], takes[i], "");
    return LLVMBuildCall2(g->b, type, fn, args, n_args, "");
}

/* ---- values that are known ---- */

bool df_gen_known(LLVMValueRef v, int64_t *out)
{
    if (!LLVMIsAConstantInt(v)) return false;
    *out = (int64_t)LLVMConstIntGetSExtValue(v);
    return true;
}

bool df_gen_is(LLVMValueRef v, int64_t value)
{
    int64_t x;
    return df_gen_known(v, &x) && x == value;
}

bool df_gen_splits(const df_gen *g)
{
    return (g->k->flags & DF_KERNEL_SPLIT) && !g->facts;
}

LLVMValueRef df_gen_min(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, a, b, ""), a, b, "");
}

/* ---- addresses, memory, blocks ---- */

LLVMValueRef df_gen_offset(df_gen *g, LLVMValueRef p, LLVMValueRef bytes)
{
    return LLVMBuildGEP2(g->b, g->i8, p, &bytes, 1, "");
}

LLVMValueRef df_gen_at(df_gen *g, LLVMTypeRef t, LLVMValueRef p, LLVMValueRef index)
{
    if (LLVMIsConstant(index) && LLVMIsNull(index)) return p;
    return LLVMBuildGEP2(g->b, t, p, &index, 1, "");
}

LLVMValueRef df_gen_alloca(df_gen *g, LLVMTypeRef t, uint64_t n, unsigned align)
{
    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMValueRef at = LLVMGetFirstInstruction(g->first);
    if (at)
        LLVMPositionBuilderBefore(g->b, at);
    else
        LLVMPositionBuilderAtEnd(g->b, g->first);
    LLVMValueRef v = LLVMBuildArrayAlloca(g->b, t, LLVMConstInt(g->i64, n, 0), "");
    LLVMSetAlignment(v, align);
    LLVMPositionBuilderAtEnd(g->b, here);
    return v;
}

LLVMBasicBlockRef df_gen_block(df_gen *g, const char *name)
{
    return LLVMAppendBasicBlockInContext(g->ctx, g->fn, name);
}

void *df_gen_array(df_gen *g, size_t size)
{
    void *at = df_arena_zalloc(g->arena, size ? size : 1, 8);
    if (!at) longjmp(g->no_memory, 1);
    return at;
}

LLVMValueRef *df_gen_values(df_gen *g, uint32_t n)
{
    return df_gen_array(g, sizeof(LLVMValueRef) * n);
}
