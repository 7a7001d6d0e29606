/* SPDX-License-Identifier: Apache-2.0
 *
 * LOOP: a thread per INNER element and row runs all iterations, with its states in
 * registers. All states are updated together at the end of an iteration. Each thread leaves
 * the loop when its own `proceed` is false.
 */
#include "jit_cuda/gen/gen.h"

static void put_carries(df_cuda_gen *g)
{
    g->lanes = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        char from[24];
        if (g->k->ins[i].op != DF_K_carry) continue;
        df_cuda_ref(g, g->k->ins[i].src[0], from);
        df_cuda_line(g, "%s v%u = %s;", df_cuda_type(g->k->ins[i].dtype), i, from);
    }
}

static void put_nexts(df_cuda_gen *g)
{
    char v[24];
    df_cuda_line(g, "const int l = 0;");
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (ins->op != DF_K_next) continue;
        df_cuda_ref(g, ins->src[1], v);
        df_cuda_line(g, "const %s n%u = %s;", df_cuda_type(ins->dtype), i, v);
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_next) df_cuda_line(g, "v%u = n%u;", g->k->ins[i].src[0], i);
}

static void put_proceed(df_cuda_gen *g, const df_ins *ins)
{
    char v[24];
    df_cuda_ref(g, ins->src[0], v);
    df_cuda_brace(g);
    df_cuda_line(g, "const int l = 0;");
    df_cuda_line(g, "if (!%s) break;", v);
    df_cuda_close(g);
}

static void put_iterations(df_cuda_gen *g)
{
    df_cuda_open(g, "for (i64 it = 0; it < e%d; it++)", df_cuda_axis(g->k, DF_AXIS_RED));
    df_cuda_line(g, "enum { V = 1 };");
    df_cuda_line(g, "const bool on[1] = { true };");
    df_cuda_line(g, "const I r[1] = { (I)it };");
    df_cuda_moving(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (ins->level != DF_LEVEL_ELEM) continue;
        g->lanes = true;
        if (ins->op == DF_K_proceed)
            put_proceed(g, ins);
        else if (ins->op != DF_K_carry && ins->op != DF_K_next)
            df_cuda_elem(g, i);
    }
    put_nexts(g);
    df_cuda_close(g);
}

void df_cuda_loop(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    char rows[160];
    df_cuda_extents(g, DF_AXIS_OUTER, rows, sizeof rows);
    df_cuda_open(g, "template <typename I> DEV void %s_main(const u64 *w, u32 block, u32 n)",
                 g->name);
    df_cuda_gen_words(g);
    df_cuda_consts(g);
    df_cuda_line(g, "const I rows = %s, step = (I)n * (I)blockDim.x;", rows);
    df_cuda_open(g,
                 "for (I at = (I)block * (I)blockDim.x + (I)threadIdx.x; at < e%d * rows; "
                 "at += step)",
                 inner);
    df_cuda_line(g, "const I o = divide(at, e%d), x%d = at - o * e%d;", inner, inner, inner);
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_row_level(g, 0, "true");
    put_carries(g);
    if (df_cuda_has_elem(g, 0)) put_iterations(g);
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_cuda_row_level(g, s, "true");
    df_cuda_close(g);
    df_cuda_close(g);
}
