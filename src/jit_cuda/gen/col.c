/* SPDX-License-Identifier: Apache-2.0
 *
 * COL: a thread block takes a tile of 32 * C neighbours along INNER, and reduces all of
 * their columns. C is 1, or more with WIDE; then a thread's columns are one access in each
 * row. Neighbours along x read neighbours in memory.
 *
 * Thread (x, y), with 32 x and 16 y, holds accumulators y, y + 16, y + 32 and y + 48 of C
 * columns (base/limits.h). The thread does the folds by 32 and 16 itself. The folds by 8,
 * 4, 2 and 1 go through shared memory. Threads with y = 0 push the results on the stacks of
 * their columns. Columns behind the end of INNER are computed too, but `in` is false for
 * them.
 *
 * A scan runs along a column in order. Threads with y = 0 compute a stage with scans alone,
 * with all 64 accumulators of its reductions in local memory. Stacks that do not fit shared
 * memory are in the local memory of the threads that push (lean).
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>

enum { TILE_THREADS = DF_CUDA_TILE * DF_CUDA_TILE_Y, LARGEST = 16 };

/* ---- shared memory: the area for folding, then the stacks of a stage ---- */

static size_t folding(void)
{
    return (size_t)TILE_THREADS * LARGEST;
}

/* Accumulators in the stacks of one reduction, when a thread has so many columns. */
static size_t col_stack_entries(uint32_t columns)
{
    return (size_t)DF_CUDA_DEPTH * DF_CUDA_TILE * columns;
}

size_t df_cuda_col_shared(const df_cuda_gen *g, uint32_t columns)
{
    size_t most = 16;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        if (!df_cuda_reduces(g, s)) continue;
        if (g->lean) return folding();
        const size_t n = df_cuda_shared(g, s, col_stack_entries(columns), folding(), DF_NONE);
        if (n > most) most = n;
    }
    return most;
}

static void col_emit_stack(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    if (g->lean) {
        df_cuda_line(g, "%s::t stack%u[%d];", o, i, DF_CUDA_DEPTH);
        return;
    }
    const uint32_t stage = g->k->ins[i].stage;
    df_cuda_line(g, "%s::t *const stack%u = (%s::t *)(mem + (C == 1 ? %zu : %zu)) + tx * C;", o, i,
                 o, df_cuda_shared(g, stage, col_stack_entries(1), folding(), i),
                 df_cuda_shared(g, stage, col_stack_entries(df_cuda_lanes(g->k)), folding(), i));
}

/* The distance between entries of a stack. */
static const char *by(const df_cuda_gen *g)
{
    return g->lean ? "1" : "TILE * C";
}

/* ---- elements ---- */

/* The body over 16 V / C rows from `c`. all: all of them exist; otherwise they end at `end`. */
static void col_emit_elements(df_cuda_gen *g, uint32_t stage, bool counts, bool all)
{
    df_cuda_line(g, "I r[V];");
    df_cuda_line(g, "bool on[V];");
    df_cuda_line(g, "EACH { r[l] = c + (I)ty + l / C * %d; on[l] = in%s; }", DF_CUDA_TILE_Y,
                 all ? "" : " && r[l] < end");
    df_cuda_moving(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (ins->stage != stage || ins->level != DF_LEVEL_ELEM) continue;
        if (!df_cuda_is_reduce(g, i))
            df_cuda_elem(g, i);
        else if (counts)
            df_cuda_accumulate(g, i);
    }
    g->lanes = false;
}

/* The elements that a thread takes side by side, so that their loads are in flight together: a
 * multiple of the 4 accumulators of a column. Values of longer bodies need the registers. */
static uint32_t col_elements(const df_cuda_gen *g, uint32_t stage)
{
    enum { BRIEF = 12, USUAL = 48 };
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n += g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM;
    return n <= BRIEF ? 16 : n <= USUAL ? 8 : 4;
}

/* The body over the rows from `begin` up to `end`. The accumulators take the rows in order. */
static void col_emit_steps(df_cuda_gen *g, uint32_t stage, bool counts)
{
    df_cuda_line(g, "enum { STEPS = %u > 4 * C ? %u / (4 * C) : 1, MANY = STEPS * 64 };",
                 col_elements(g, stage), col_elements(g, stage));
    df_cuda_line(g, "const I full = begin + (end - begin) / MANY * MANY;");
    df_cuda_line(g, "_Pragma(\"unroll 1\")");
    df_cuda_open(g, "for (I c = begin; c < full; c += MANY)");
    df_cuda_line(g, "enum { A = 4 * C, V = A * STEPS };");
    col_emit_elements(g, stage, counts, true);
    df_cuda_close(g);
    df_cuda_line(g, "_Pragma(\"unroll 1\")");
    df_cuda_open(g, "for (I c = full; c < end; c += 64)");
    df_cuda_line(g, "enum { V = 4 * C, A = V };");
    col_emit_elements(g, stage, counts, false);
    df_cuda_close(g);
}

/* Folds acc into `fold`, which is then valid for y = 0. Barriers precede the reads of other
 * threads and the next use of the memory. */
static void col_emit_fold(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::t fold%u[C];", o, i);
    df_cuda_line(g,
                 "EACH_COLUMN fold%u[j] = %s::join(%s::join(acc%u[j], acc%u[2 * C + j]), "
                 "%s::join(acc%u[C + j], acc%u[3 * C + j]));",
                 i, o, o, i, i, o, i, i);
    df_cuda_brace(g);
    df_cuda_line(g, "%s::t *const all = (%s::t *)mem + tx * C;", o, o);
    df_cuda_line(g, "EACH_COLUMN all[ty * TILE * C + j] = fold%u[j];", i);
    df_cuda_open(g, "for (u32 h = %d; h >= 1; h /= 2)", DF_CUDA_TILE_Y / 2);
    df_cuda_line(g, "__syncthreads();");
    df_cuda_line(g,
                 "if (ty < h) EACH_COLUMN all[ty * TILE * C + j] = fold%u[j] = %s::join(fold%u[j], "
                 "all[(ty + h) * TILE * C + j]);",
                 i, o, i);
    df_cuda_close(g);
    df_cuda_line(g, "__syncthreads();");
    df_cuda_close(g);
}

/* Reduces block `b` of the columns. */
static void col_emit_block(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "enum { A = 4 * C };");
    df_cuda_accumulators(g, stage);
    df_cuda_line(g, "const I begin = b * %d;", DF_BLOCK);
    df_cuda_line(g, "const I end = length - begin < %d ? length : begin + %d;", DF_BLOCK, DF_BLOCK);
    col_emit_steps(g, stage, true);
    df_cuda_each_red(g, stage, col_emit_fold);
}

static void col_emit_push(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "if (ty == 0) EACH_COLUMN push<%s>(stack%u + j, %s, b, fold%u[j]);", o, i,
                 by(g), i);
}

static void col_emit_result(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::result v%u[C];", o, i);
}

static void col_emit_finish(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    if (!g->lean) {
        df_cuda_line(g, "EACH_COLUMN v%u[j] = finish<%s>(stack%u + j, %s, n_red);", i, o, i, by(g));
        return;
    }
    df_cuda_line(g, "if (ty == 0) ((%s::result *)mem)[tx] = finish<%s>(stack%u, 1, n_red);", o, o,
                 i);
    df_cuda_line(g, "__syncthreads();");
    df_cuda_line(g, "v%u[0] = ((%s::result *)mem)[tx];", i, o);
    df_cuda_line(g, "__syncthreads();");
}

static void col_emit_reducing(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_each_red(g, stage, col_emit_stack);
    df_cuda_open(g, "for (I b = 0; b < n_red; b++)");
    col_emit_block(g, stage);
    df_cuda_each_red(g, stage, col_emit_push);
    df_cuda_close(g);
    df_cuda_line(g, "__syncthreads();");
    df_cuda_each_red(g, stage, col_emit_finish);
}

static void col_emit_plain(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "const I begin = 0, end = length;");
    col_emit_steps(g, stage, false);
}

static void col_emit_scan(df_cuda_gen *g, uint32_t i)
{
    char o[32], v[24];
    df_cuda_red_type(g, i, o);
    g->lanes = true;
    df_cuda_ref(g, g->k->ins[i].src[0], v);
    df_cuda_line(g, "%s v%u[V];", df_cuda_type(g->k->ins[i].dtype), i);
    df_cuda_line(g, "EACH v%u[l] = run%u[l] = c == 0 ? %s : %s::join(run%u[l], %s);", i, i, v, o, i,
                 v);
}

static void col_emit_all(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::t all%u[C][64];", o, i);
    df_cuda_line(g, "EACH_COLUMN set_all<%s>(all%u[j]);", o, i);
}

static void col_emit_join_one(df_cuda_gen *g, uint32_t i)
{
    char o[32], v[24];
    df_cuda_red_type(g, i, o);
    df_cuda_ref(g, g->k->ins[i].src[0], v);
    df_cuda_line(g,
                 "EACH if (on[l]) all%u[l][c %% 64] = %s::join(all%u[l][c %% 64], %s::of(%s, c));",
                 i, o, i, o, v);
}

static void col_emit_push_alone(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "EACH_COLUMN push<%s>(stack%u + j, %s, c / %d, fold_alone<%s>(all%u[j]));", o,
                 i, by(g), DF_BLOCK, o, i);
}

static void col_emit_in_order(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_each_red(g, stage, col_emit_stack);
    df_cuda_open(g, "if (ty == 0)");
    df_cuda_each_red(g, stage, col_emit_all);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && df_cuda_is_scan(g, i))
            df_cuda_line(g, "%s run%u[C] = {};", df_cuda_type(g->k->ins[i].dtype), i);
    df_cuda_open(g, "for (I c = 0; c < length; c++)");
    df_cuda_line(g, "enum { V = C };");
    df_cuda_line(g, "I r[V];");
    df_cuda_line(g, "bool on[V];");
    df_cuda_line(g, "EACH { r[l] = c; on[l] = in; }");
    df_cuda_moving(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].stage != stage || g->k->ins[i].level != DF_LEVEL_ELEM) continue;
        g->lanes = true;
        if (df_cuda_is_scan(g, i))
            col_emit_scan(g, i);
        else if (df_cuda_is_reduce(g, i))
            col_emit_join_one(g, i);
        else
            df_cuda_elem(g, i);
    }
    g->lanes = false;
    if (df_cuda_reduces(g, stage)) {
        df_cuda_open(g, "if (c + 1 == length || c %% %d == %d)", DF_BLOCK, DF_BLOCK - 1);
        df_cuda_each_red(g, stage, col_emit_push_alone);
        df_cuda_close(g);
    }
    df_cuda_close(g);
    df_cuda_close(g);
    if (df_cuda_reduces(g, stage)) df_cuda_line(g, "__syncthreads();");
    df_cuda_each_red(g, stage, col_emit_finish);
}

static void col_emit_stage(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "__syncthreads();");
    df_cuda_row_level(g, stage, "in && ty == 0");
    if (!df_cuda_has_elem(g, stage)) return;
    if (df_cuda_row_stores(g, stage)) df_cuda_line(g, "__syncthreads();");
    df_cuda_each_red(g, stage, col_emit_result);
    df_cuda_brace(g);
    if (df_cuda_scans(g, stage))
        col_emit_in_order(g, stage);
    else if (df_cuda_reduces(g, stage))
        col_emit_reducing(g, stage);
    else
        col_emit_plain(g, stage);
    df_cuda_close(g);
}

/* ---- functions ---- */

static void col_emit_head(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    df_cuda_line(g, "enum { TILE = %d };", DF_CUDA_TILE);
    char red[160], rows[160];
    df_cuda_extents(g, DF_AXIS_RED, red, sizeof red);
    df_cuda_extents(g, DF_AXIS_OUTER, rows, sizeof rows);
    df_cuda_gen_words(g);
    df_cuda_consts(g);
    df_cuda_line(g, "const I length = %s, rows = %s;", red, rows);
    df_cuda_line(g, "const I n_red = divide(length + %d, (I)%d);", DF_BLOCK - 1, DF_BLOCK);
    df_cuda_line(g, "const I tiles = divide(e%d + (TILE * C - 1), (I)TILE * C);", inner);
}

static void col_emit_tile(df_cuda_gen *g, const char *tile)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    df_cuda_line(g, "const I x%d = (%s * TILE + (I)tx) * C;", inner, tile);
    df_cuda_line(g, "const bool in = x%d < e%d;", inner, inner);
    df_cuda_outer(g);
    df_cuda_offsets(g);
}

static void col_emit_threads(df_cuda_gen *g)
{
    df_cuda_line(g, "__shared__ __align__(16) unsigned char mem[C == 1 ? %zu : %zu];",
                 df_cuda_col_shared(g, 1), df_cuda_col_shared(g, df_cuda_lanes(g->k)));
    df_cuda_line(g, "const u32 tx = threadIdx.x %% TILE, ty = threadIdx.x / TILE;");
}

static void col_emit_main(df_cuda_gen *g)
{
    df_cuda_open(g, "template <typename I, int C> DEV void %s_main(const u64 *w, u32 block, u32 n)",
                 g->name);
    col_emit_head(g);
    col_emit_threads(g);
    df_cuda_open(g, "for (I at = (I)block; at < rows * tiles; at += (I)n)");
    df_cuda_line(g, "const I o = divide(at, tiles);");
    col_emit_tile(g, "(at - o * tiles)");
    for (uint32_t s = 0; s < g->k->n_stages; s++) col_emit_stage(g, s);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void col_emit_partial(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(
        g,
        "if (in && ty == 0) EACH_COLUMN %s::put(mine + %u * plane + (i64)b * e%d + j, plane, "
        "fold%u[j]);",
        o, df_cuda_slot(g, i), df_cuda_axis(g->k, DF_AXIS_INNER), i);
}

static void col_emit_partial_base(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    df_cuda_line(g, "const i64 plane = (i64)n_red * e%d;", inner);
    df_cuda_line(g, "u64 *const mine = partial + (i64)o * %u * plane + x%d;", df_cuda_n_slots(g),
                 inner);
}

static void col_emit_part(df_cuda_gen *g)
{
    df_cuda_open(g, "template <typename I, int C> DEV void %s_part(const u64 *w, u32 block, u32 n)",
                 g->name);
    col_emit_head(g);
    col_emit_threads(g);
    df_cuda_line(g, "const i64 of_row = (i64)n_red * tiles;");
    df_cuda_open(g, "for (i64 at = block; at < (i64)rows * of_row; at += n)");
    df_cuda_line(g, "const I o = (I)divide(at, of_row);");
    df_cuda_line(g, "const i64 in_row = at - (i64)o * of_row;");
    df_cuda_line(g, "const I b = (I)divide(in_row, (i64)tiles);");
    col_emit_tile(g, "(I)(in_row - (i64)b * tiles)");
    df_cuda_row_level(g, 0, NULL);
    col_emit_block(g, 0);
    col_emit_partial_base(g);
    df_cuda_each_red(g, 0, col_emit_partial);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void col_emit_fin(df_cuda_gen *g)
{
    const int inner = df_cuda_axis(g->k, DF_AXIS_INNER);
    char by[16];
    snprintf(by, sizeof by, "e%d, ", inner);
    df_cuda_open(g, "template <typename I> DEV void %s_fin(const u64 *w, u32 block, u32 n)",
                 g->name);
    df_cuda_line(g, "enum { C = 1 };");
    col_emit_head(g);
    df_cuda_line(g, "const I step = (I)n * (I)blockDim.x;");
    df_cuda_open(g,
                 "for (I at = (I)block * (I)blockDim.x + (I)threadIdx.x; at < rows * e%d; "
                 "at += step)",
                 inner);
    df_cuda_line(g, "const I o = divide(at, e%d), x%d = at - o * e%d;", inner, inner, inner);
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_row_level(g, 0, "true");
    col_emit_partial_base(g);
    df_cuda_line(g, "const i64 n_blocks = n_red;");
    df_cuda_from_partial(g, "join_column", by);
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_cuda_row_level(g, s, "true");
    df_cuda_close(g);
    df_cuda_close(g);
}

void df_cuda_col(df_cuda_gen *g)
{
    if (g->pass == DF_CUDA_MAIN)
        col_emit_main(g);
    else if (g->pass == DF_CUDA_PART)
        col_emit_part(g);
    else
        col_emit_fin(g);
}
