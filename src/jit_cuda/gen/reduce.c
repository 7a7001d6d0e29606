/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of one stage, in any mode. Each reduction has a struct in the prelude, which
 * defines its accumulator and how two accumulators are joined. An accumulator of argmin or
 * argmax is a value and its position. A mode only adds which thread holds which accumulator.
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>

static bool is_arg(const df_ins *ins)
{
    return ins->op == DF_K_argmin || ins->op == DF_K_argmax;
}

/* The reduction that joins two accumulators as a scan does; a reduction itself. */
static df_kop total_of(df_kop op)
{
    if (op == DF_K_cumsum) return DF_K_sum;
    if (op == DF_K_cumprod) return DF_K_prod;
    if (op == DF_K_cummin) return DF_K_rmin;
    if (op == DF_K_cummax) return DF_K_rmax;
    df_assert(df_kop_infos[op].kind == DF_KOP_reduce);
    return op;
}

static uint8_t operand_dtype(const df_cuda_gen *g, uint32_t i)
{
    return g->k->ins[g->k->ins[i].src[0]].dtype;
}

void df_cuda_red_type(const df_cuda_gen *g, uint32_t i, char out[32])
{
    const df_ins *const ins = &g->k->ins[i];
    const uint8_t t = operand_dtype(g, i);
    const df_kop op = total_of((df_kop)ins->op);
    const bool fast = g->k->flags & DF_KERNEL_FAST && (t == DEFT_F32 || t == DEFT_F64) &&
                      (op == DF_K_sum || op == DF_K_prod);
    snprintf(out, 32, is_arg(ins) ? "%s%s<%s>" : "%s%s_%s", fast ? "fast_" : "",
             df_kop_infos[op].name, df_cuda_type(t));
}

size_t df_cuda_red_size(const df_cuda_gen *g, uint32_t i)
{
    return is_arg(&g->k->ins[i]) ? 16 : deft_dtype_size((deft_dtype)operand_dtype(g, i));
}

void df_cuda_each_red(df_cuda_gen *g, uint32_t stage, void (*f)(df_cuda_gen *g, uint32_t ins))
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && df_cuda_is_reduce(g, i)) f(g, i);
}

static void put_accumulators(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::t acc%u[A];", o, i);
    df_cuda_line(g, "_Pragma(\"unroll\") for (int l = 0; l < A; l++) acc%u[l] = %s::identity();", i,
                 o);
}

void df_cuda_accumulators(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_each_red(g, stage, put_accumulators);
}

void df_cuda_accumulate(df_cuda_gen *g, uint32_t i)
{
    char o[32], v[24];
    df_cuda_red_type(g, i, o);
    g->lanes = true;
    df_cuda_ref(g, g->k->ins[i].src[0], v);
    df_cuda_line(g, "EACH if (on[l]) acc%u[l %% A] = %s::join(acc%u[l %% A], %s::of(%s, r[l]));", i,
                 o, i, o, v);
}

/* ---- shared memory ---- */

size_t df_cuda_shared(const df_cuda_gen *g, uint32_t stage, size_t each, size_t common, uint32_t of)
{
    size_t at = common;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].stage != stage || !df_cuda_is_reduce(g, i)) continue;
        if (i == of) return at;
        at += (each * df_cuda_red_size(g, i) + 15) & ~(size_t)15;
    }
    return at;
}

/* ---- partial ---- */

uint32_t df_cuda_slot(const df_cuda_gen *g, uint32_t i)
{
    uint32_t slot = 0;
    for (uint32_t j = 0; j < i; j++)
        if (df_cuda_is_reduce(g, j)) slot += is_arg(&g->k->ins[j]) ? 2 : 1;
    return slot;
}

uint32_t df_cuda_n_slots(const df_cuda_gen *g)
{
    return df_cuda_slot(g, g->k->n_ins);
}

void df_cuda_from_partial(df_cuda_gen *g, const char *join, const char *by)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        char o[32];
        if (!df_cuda_is_reduce(g, i)) continue;
        df_cuda_red_type(g, i, o);
        df_cuda_line(g,
                     "const %s::result v%u%s = { %s<%s>(mine + %u * plane, n_blocks, %splane) };",
                     o, i, g->k->mode == DF_MODE_COL ? "[1]" : "", join, o, df_cuda_slot(g, i), by);
    }
}
