/* SPDX-License-Identifier: Apache-2.0
 *
 * MAP: a thread takes packs of G neighbours along INNER and strides over the grid. G is 1,
 * or with WIDE what fills 16 bytes of the widest dtype. Then a load or store of a pack is
 * one access.
 *
 * A thread takes N full packs at a time, one stride apart. They go through the body side by
 * side, each instruction for all packs before the next instruction. So the loads of all
 * packs are in flight together. The remaining packs, and rows whose last pack is not full,
 * are taken one pack at a time.
 */
#include "jit_cuda/gen/gen.h"

void df_cuda_map_body(df_cuda_gen *g)
{
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_line(g, "I r[V];");
    df_cuda_line(g, "bool on[V];");
    if (g->groups)
        df_cuda_line(g, "EACH { r[l] = r0[l / G] + l %% G; on[l] = true; }");
    else
        df_cuda_line(g, "EACH { r[l] = r0 + l; on[l] = r[l] < e%d; }",
                     df_cuda_axis(g->k, DF_AXIS_INNER));
    df_cuda_moving(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) df_cuda_elem(g, i);
}

/* The loop over N packs at a time. With fewer than N packs, `far` need not fit I, so it is
 * an i64. */
static void put_many(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    df_cuda_brace(g);
    df_cuda_line(g, "enum { U = N, V = G * N };");
    df_cuda_line(g, "const i64 far = (i64)(N - 1) * step;");
    if (df_cuda_axis(g->k, DF_AXIS_OUTER) < 0)
        df_cuda_line(g, "const I whole = divide(e%d, (I)G);", inner);
    else
        df_cuda_line(g, "const I whole = e%d %% G == 0 ? total : 0;", inner);
    df_cuda_line(g, "const I end = far < whole ? (I)(whole - far) : 0;");
    df_cuda_open(g, "for (; at < end; at += N * step)");
    df_cuda_line(g, "I o[U], r0[U];");
    if (df_cuda_axis(g->k, DF_AXIS_OUTER) < 0)
        df_cuda_line(g, "EACH_GROUP { o[u] = 0; r0[u] = (at + u * step) * G; }");
    else
        df_cuda_line(g, "EACH_GROUP { const I t = at + u * step; o[u] = divide(t, groups); "
                        "r0[u] = (t - o[u] * groups) * G; }");
    g->groups = true;
    df_cuda_map_body(g);
    g->groups = false;
    df_cuda_close(g);
    df_cuda_close(g);
}

void df_cuda_map(df_cuda_gen *g)
{
    char rows[160];
    df_cuda_extents(g, DF_AXIS_OUTER, rows, sizeof rows);
    df_cuda_open(g,
                 "template <typename I, int G, int N> DEV void %s_main(const u64 *w, u32 block, "
                 "u32 n)",
                 g->name);
    df_cuda_gen_words(g);
    df_cuda_consts(g);
    df_cuda_line(g, "const I groups = divide(e%d + (G - 1), (I)G), total = groups * %s;",
                 df_cuda_axis(g->k, DF_AXIS_INNER), rows);
    df_cuda_line(g, "const I step = (I)n * (I)blockDim.x;");
    df_cuda_line(g, "I at = (I)block * (I)blockDim.x + (I)threadIdx.x;");
    if (df_cuda_packs(g->k, DF_CUDA_WIDE) > 1 || df_cuda_packs(g->k, 0) > 1) put_many(g);
    df_cuda_line(g, "enum { V = G };");
    df_cuda_line(g, "_Pragma(\"unroll 1\")");
    df_cuda_open(g, "for (; at < total; at += step)");
    if (df_cuda_axis(g->k, DF_AXIS_OUTER) < 0)
        df_cuda_line(g, "const I o = 0, r0 = at * G;");
    else
        df_cuda_line(g, "const I o = divide(at, groups), r0 = (at - o * groups) * G;");
    df_cuda_map_body(g);
    df_cuda_close(g);
    df_cuda_close(g);
}
