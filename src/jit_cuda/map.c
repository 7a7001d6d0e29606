/* SPDX-License-Identifier: Apache-2.0
 *
 * MAP: a thread takes V neighbours along INNER at a time and strides over the grid; V is 1, or what
 * fills 16 bytes of the widest dtype (WIDE), for which loads and stores of the neighbours are one
 * access each. The neighbours go through the body side by side, so that their loads are in flight
 * together. The last group of a row may be short.
 */
#include "jit_cuda/gen.h"

void df_cuda_map_body(df_cuda_gen *g)
{
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_line(g, "I r[V];");
    df_cuda_line(g, "bool on[V];");
    df_cuda_line(g, "EACH { r[l] = r0 + l; on[l] = r[l] < e%d; }",
                 df_cuda_axis(g->k, DF_AXIS_INNER));
    df_cuda_moving(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) df_cuda_elem(g, i);
}

void df_cuda_map(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    char rows[160];
    df_cuda_extents(g, DF_AXIS_OUTER, rows, sizeof rows);
    df_cuda_open(g, "template <typename I, int V> DEV void %s_main(const u64 *w, u32 block, u32 n)",
                 g->name);
    df_cuda_words(g);
    df_cuda_consts(g);
    df_cuda_line(g, "const I groups = divide(e%d + (V - 1), (I)V), rows = %s;", inner, rows);
    df_cuda_line(g, "const I step = (I)n * (I)blockDim.x;");
    df_cuda_open(g, "for (I at = (I)block * (I)blockDim.x + (I)threadIdx.x; at < groups * rows; "
                    "at += step)");
    df_cuda_line(g, "const I o = divide(at, groups), r0 = (at - o * groups) * V;");
    df_cuda_map_body(g);
    df_cuda_close(g);
    df_cuda_close(g);
}
