/* SPDX-License-Identifier: Apache-2.0
 *
 * What the modes that reduce share: names of reductions in the prelude, and where the results of
 * blocks are in df_kargs.partial.
 */
#include <stdio.h>

#include "aot/c_gen.h"

void df_aot_red(const df_aot_c *g, uint32_t i, char out[32])
{
    df_assert(df_aot_is_reduce(g, i));
    snprintf(out, 32, "%s_%s", df_kop_infos[g->k->ins[i].op].name,
             df_aot_type(df_aot_operand(g, i)));
}

uint32_t df_aot_slot(const df_aot_c *g, uint32_t i)
{
    uint32_t slot = 0;
    for (uint32_t j = 0; j < i; j++)
        if (df_aot_is_reduce(g, j)) slot += df_aot_is_arg(g, j) ? 2 : 1;
    return slot;
}

void df_aot_lengths(df_aot_c *g)
{
    char red[96], inner[96];
    df_aot_extents(g, DF_AXIS_RED, red, sizeof red);
    df_aot_extents(g, DF_AXIS_INNER, inner, sizeof inner);
    df_aot_line(g, "WORD i64 length = %s, n_blocks = (length + BLOCK - 1) / BLOCK;", red);
    df_aot_line(g, "WORD i64 n_inner = %s, plane = n_blocks * n_inner;", inner);
}

void df_aot_scan_start(df_aot_c *g, uint32_t i, char out[64])
{
    const df_ins *const ins = &g->k->ins[i];
    df_aot_const(ins->dtype, df_kop_identity((df_kop)ins->op, (deft_dtype)ins->dtype), out);
}

void df_aot_scan_join(df_aot_c *g, uint32_t i, const char *state)
{
    const df_ins *const ins = &g->k->ins[i];
    const char *const join = df_kop_infos[df_kop_infos[ins->op].join].name;
    const char *const t = df_aot_type(ins->dtype);
    char v[32];
    df_aot_ref(g, ins->src[0], v);
    df_aot_line(g, "const %s v%u = %s_%s(%s, %s);", t, i, join, t, state, v);
    df_aot_line(g, "%s = v%u;", state, i);
}
