/* SPDX-License-Identifier: Apache-2.0
 *
 * ROW: T warps work on a row together, as a team. T is 1, or with LONG all warps of a thread
 * block: 8 of them, and with HELD as many as the row has blocks of DF_BLOCK elements.
 *
 * A warp takes a block of DF_BLOCK reduced elements in 64 steps of 64. In each step thread
 * t takes elements 2t and 2t + 1. They belong to its accumulators (base/limits.h), and are
 * one access when rows are aligned (W).
 *
 * While U steps are left, they go through the body side by side, each instruction for all of
 * them before the next instruction. So their loads are in flight together, and no element is
 * tested for whether it exists. The accumulators take the steps in order, so the bits are the
 * same. The remaining steps are taken in fours, and the last ones in twos, tested.
 *
 * With HELD and WIDE the operands that the first stage reads and keeps come to shared memory before
 * it. A thread does not wait for one such copy before it begins the next (copy_ahead), so all of
 * a row is in flight at once.
 *
 * Results of blocks are joined like a binary counter, on a stack in shared memory. Without
 * LONG thread 0 of the warp joins them. With LONG thread 0 of the thread block does, after
 * each round in which every warp has reduced one block. All threads compute values of row
 * level alike.
 *
 * When the stacks of all reductions do not fit shared memory, they are in the local memory
 * of the thread that joins (lean). Then results of blocks reach that thread through shared
 * memory, one reduction after the other, and so do final results on their way to all
 * threads.
 *
 * A barrier of the team separates stages: a stage may read what the one before has stored,
 * and each stage reuses the shared memory.
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>

enum { LARGEST = 16 /* bytes of an accumulator */ };

/* ---- shared memory ---- */

/* Accumulators of one reduction: the stack, and with LONG one per warp that waits to be
 * pushed. */
static size_t row_stack_entries(bool is_long)
{
    return is_long ? DF_CUDA_DEPTH + DF_CUDA_WARPS : DF_CUDA_WARP_DEPTH;
}

size_t df_cuda_row_shared(const df_cuda_gen *g, bool is_long)
{
    size_t most = 16;
    if (g->lean) return (size_t)DF_CUDA_WARPS * LARGEST;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        const size_t n = df_cuda_shared(g, s, row_stack_entries(is_long), 0, DF_NONE);
        if (n > most) most = n;
    }
    return is_long ? most : most * DF_CUDA_WARPS;
}

bool df_cuda_holds(const df_kernel *k, uint8_t more, const df_kargs *a)
{
    const df_cuda_gen g = { .k = k };
    const df_cuda_entry e = { DF_CUDA_MAIN, (uint8_t)(more | DF_CUDA_HELD) };
    if (k->mode != DF_MODE_ROW) return false;
    const int64_t bytes = df_cuda_shared_bytes(k, e, a);
    const bool is_long = more & DF_CUDA_LONG;
    return bytes > 0 && bytes <= DF_CUDA_SHARED_BYTES &&
           bytes + (int64_t)df_cuda_row_shared(&g, is_long) <= DF_CUDA_SHARED_BYTES;
}

static void row_emit_stack(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    const uint32_t stage = g->k->ins[i].stage;
    df_cuda_red_type(g, i, o);
    if (g->lean) {
        df_cuda_line(g, "%s::t stack%u[L ? %d : %d], *const wait%u = (%s::t *)mem;", o, i,
                     DF_CUDA_DEPTH, DF_CUDA_WARP_DEPTH, i, o);
        return;
    }
    df_cuda_line(g, "%s::t *const stack%u = (%s::t *)(mem + (L ? %zu : %zu));", o, i, o,
                 df_cuda_shared(g, stage, row_stack_entries(true), 0, i),
                 df_cuda_shared(g, stage, row_stack_entries(false), 0, i));
    df_cuda_line(g, "%s::t *const wait%u = stack%u + %d;", o, i, i, DF_CUDA_DEPTH);
}

/* ---- elements ---- */

static void row_emit_positions(df_cuda_gen *g, bool all)
{
    df_cuda_line(g, "I r[V];");
    df_cuda_line(g, "bool on[V];");
    df_cuda_line(g, "EACH { r[l] = c + (I)(2 * lane) + l / 2 * 64 + l %% 2; on[l] = %s; }",
                 all ? "true" : "r[l] < end");
    df_cuda_moving(g);
}

/* The body over U steps from `c`. all: all elements of them exist; otherwise the row or block ends
 * at `end`. */
static void row_emit_elements(df_cuda_gen *g, uint32_t stage, bool counts, bool all)
{
    row_emit_positions(g, all);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        char o[32], v[24];
        if (ins->stage != stage || ins->level != DF_LEVEL_ELEM) continue;
        if (df_cuda_is_reduce(g, i)) {
            if (counts) df_cuda_accumulate(g, i);
        } else if (df_cuda_is_scan(g, i)) {
            df_cuda_red_type(g, i, o);
            g->lanes = true;
            df_cuda_ref(g, ins->src[0], v);
            df_cuda_line(g, "%s::t in%u[V], v%u[V];", o, i, i);
            df_cuda_line(g, "EACH in%u[l] = %s;", i, v);
            df_cuda_line(g,
                         "scan_warp<%s>(v%u, in%u, run%u, c == 0, (u32)(end - c < 64 ? end - c "
                         ": 64));",
                         o, i, i, i);
        } else {
            df_cuda_elem(g, i);
        }
    }
    g->lanes = false;
}

static void row_emit_fold(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "fold%u = fold_warp<%s>(acc%u[0], acc%u[1]);", i, o, i, i);
}

static void row_emit_folded(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::t fold%u;", o, i);
}

/* How many steps go through the body side by side. Values of longer bodies need the registers, and
 * rows that are held are not far away. The steps of a scan are in order. */
static uint32_t row_steps(const df_cuda_gen *g, uint32_t stage)
{
    enum { BRIEF = 12, USUAL = 64, HEAVY = 160 };
    const bool is_near = g->pass == DF_CUDA_MAIN && g->held.n > 0;
    uint32_t n = 0;
    if (df_cuda_scans(g, stage)) return 1;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n += g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM;
    return n <= BRIEF ? (is_near ? 8 : 16) : n <= USUAL ? 4 : n <= HEAVY ? 2 : 1;
}

typedef struct row_loop {
    const char *who, *n; /* as of row_emit_steps */
    uint32_t steps;      /* side by side */
    bool full;           /* only while all of them exist */
} row_loop;

/* A loop over the elements from `done` on, which it moves. */
static void row_emit_loop(df_cuda_gen *g, uint32_t stage, bool counts, const row_loop *o)
{
    df_cuda_brace(g);
    df_cuda_line(g, "enum { U = %u, V = 2 * U, MANY = U * 64 };", o->steps);
    df_cuda_line(g, o->full ? "const I stop = done + (end - done) / MANY * MANY;"
                            : "const I stop = end;");
    df_cuda_line(g, "_Pragma(\"unroll 1\")");
    df_cuda_open(g, "for (I c = done + %s * MANY; c < stop; c += %s * MANY)", o->who, o->n);
    row_emit_elements(g, stage, counts, o->full);
    df_cuda_close(g);
    df_cuda_line(g, "done = stop;");
    df_cuda_close(g);
}

/* The body over the elements from `begin` up to `end`. who, n: which warp of how many takes steps
 * in turn, as expressions. */
static void row_emit_steps(df_cuda_gen *g, uint32_t stage, bool counts, const char *who,
                           const char *n)
{
    enum { FEW = 4 };
    const uint32_t steps = row_steps(g, stage), last = steps > 1 ? 2 : 1;
    df_cuda_line(g, "I done = begin;");
    if (steps > FEW) row_emit_loop(g, stage, counts, &(row_loop){ who, n, steps, true });
    if (steps > 1)
        row_emit_loop(g, stage, counts, &(row_loop){ who, n, steps < FEW ? steps : FEW, true });
    row_emit_loop(g, stage, counts, &(row_loop){ who, n, last, false });
}

/* Reduces block `b` of the row by one warp, into the variables that row_emit_folded declares. */
static void row_emit_block(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "enum { A = 2 };");
    df_cuda_accumulators(g, stage);
    df_cuda_line(g, "const I begin = b * %d;", DF_BLOCK);
    df_cuda_line(g, "const I end = length - begin < %d ? length : begin + %d;", DF_BLOCK, DF_BLOCK);
    row_emit_steps(g, stage, true, "0", "1");
    df_cuda_each_red(g, stage, row_emit_fold);
}

static void row_emit_push_own(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "if (lane == 0) push<%s>(stack%u, 1, b, fold%u);", o, i, i);
}

static void row_emit_wait(df_cuda_gen *g, uint32_t i)
{
    df_cuda_line(g, "if (lane == 0 && b < n_red) wait%u[warp] = fold%u;", i, i);
}

static void row_emit_push_all(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g,
                 "if (first) for (u32 j = 0; j < T && b0 + (I)j < n_red; j++) "
                 "push<%s>(stack%u, 1, b0 + (I)j, wait%u[j]);",
                 o, i, i);
}

/* Reductions use the shared memory one after the other. */
static void row_emit_join_lean(df_cuda_gen *g, uint32_t i)
{
    row_emit_wait(g, i);
    df_cuda_line(g, "__syncthreads();");
    row_emit_push_all(g, i);
    df_cuda_line(g, "__syncthreads();");
}

static void row_emit_join(df_cuda_gen *g, uint32_t stage)
{
    if (g->lean) {
        df_cuda_each_red(g, stage, row_emit_join_lean);
        return;
    }
    df_cuda_each_red(g, stage, row_emit_wait);
    df_cuda_line(g, "__syncthreads();");
    df_cuda_each_red(g, stage, row_emit_push_all);
    df_cuda_line(g, "__syncthreads();");
}

/* The result of thread 0 of the team reaches all threads: through the first entry of the
 * stack, or, when lean, through `mem`. */
static void row_emit_finish(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    if (!g->lean) {
        df_cuda_line(g, "v%u = finish<%s>(stack%u, 1, n_red);", i, o, i);
        return;
    }
    df_cuda_line(g, "if (first) *(%s::result *)mem = finish<%s>(stack%u, 1, n_red);", o, o, i);
    df_cuda_line(g, "sync_team<L>();");
    df_cuda_line(g, "v%u = *(%s::result *)mem;", i, o);
    df_cuda_line(g, "sync_team<L>();");
}

static void row_emit_result(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "%s::result v%u;", o, i);
}

static void row_emit_blocks_together(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_open(g, "for (I b0 = 0; b0 < n_red; b0 += (I)T)");
    df_cuda_line(g, "const I b = b0 + (I)warp;");
    df_cuda_each_red(g, stage, row_emit_folded);
    df_cuda_open(g, "if (b < n_red)");
    row_emit_block(g, stage);
    df_cuda_close(g);
    df_cuda_open(g, "if (!L)");
    df_cuda_each_red(g, stage, row_emit_push_own);
    df_cuda_close(g);
    df_cuda_open(g, "else");
    row_emit_join(g, stage);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void row_emit_run(df_cuda_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && df_cuda_is_scan(g, i))
            df_cuda_line(g, "%s run%u = 0;", df_cuda_type(g->k->ins[i].dtype), i);
}

/* A stage with scans: the team's first warp takes block after block. */
static void row_emit_blocks_in_order(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_open(g, "if (warp == 0)");
    row_emit_run(g, stage);
    df_cuda_open(g, "for (I b = 0; b < n_red; b++)");
    df_cuda_each_red(g, stage, row_emit_folded);
    row_emit_block(g, stage);
    df_cuda_each_red(g, stage, row_emit_push_own);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void row_emit_plain_elements(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "const I begin = 0, end = length;");
    row_emit_steps(g, stage, false, "(I)warp", "(I)T");
}

/* All threads read what finish() needs. No thread writes it before the barrier of the next
 * stage. */
static void row_emit_stage(df_cuda_gen *g, uint32_t stage)
{
    df_cuda_line(g, "sync_team<L>();");
    df_cuda_row_level(g, stage, "first");
    if (!df_cuda_has_elem(g, stage)) return;
    if (df_cuda_row_stores(g, stage)) df_cuda_line(g, "sync_team<L>();");
    df_cuda_each_red(g, stage, row_emit_result);
    df_cuda_brace(g);
    df_cuda_each_red(g, stage, row_emit_stack);
    if (df_cuda_scans(g, stage))
        row_emit_blocks_in_order(g, stage);
    else if (df_cuda_reduces(g, stage))
        row_emit_blocks_together(g, stage);
    else
        row_emit_plain_elements(g, stage);
    if (df_cuda_reduces(g, stage)) df_cuda_line(g, "sync_team<L>();");
    df_cuda_each_red(g, stage, row_emit_finish);
    df_cuda_close(g);
}

/* ---- rows that are held ---- */

/* Copies to shared memory what the first stage reads and keeps. The barrier before it is for those
 * who still read the row before; the one behind it is that of the stage. */
static void row_emit_ahead(df_cuda_gen *g)
{
    bool any = false;
    for (uint32_t i = 0; i < g->held.n; i++) any |= df_cuda_comes_ahead(g, &g->held.row[i]);
    if (!any) return;
    df_cuda_open(g, "if (H && W)");
    df_cuda_line(g, "sync_team<L>();");
    df_cuda_line(g, "_Pragma(\"unroll 4\")");
    df_cuda_open(g, "for (I c = (I)warp * 64; c < length; c += (I)T * 64)");
    df_cuda_line(g, "enum { U = 1, V = 2, l = 0 };");
    df_cuda_line(g, "const I end = length;");
    row_emit_positions(g, false);
    g->lanes = true;
    for (uint32_t i = 0; i < g->held.n; i++) {
        const uint32_t access = g->held.row[i].access;
        df_str s;
        if (!df_cuda_comes_ahead(g, &g->held.row[i])) continue;
        df_str_init(&s, g->out->mem);
        df_cuda_offset(g, access, &s);
        df_cuda_line(g, "if (on[0]) copy_ahead(h%u + r[0], p%u + (%s), on[1]);", access, access,
                     s.ok ? s.at : "");
        g->out->ok &= s.ok;
        df_str_finish(&s);
    }
    g->lanes = false;
    df_cuda_close(g);
    df_cuda_line(g, "wait_for_copies();");
    df_cuda_close(g);
}

/* ---- functions ---- */

static void row_emit_head(df_cuda_gen *g)
{
    char red[160], rows[160];
    df_cuda_extents(g, DF_AXIS_RED, red, sizeof red);
    df_cuda_extents(g, DF_AXIS_OUTER, rows, sizeof rows);
    df_cuda_gen_words(g);
    df_cuda_consts(g);
    df_cuda_line(g, "const u32 lane = threadIdx.x & 31;");
    df_cuda_line(g, "const I length = %s, rows = %s;", red, rows);
    df_cuda_line(g, "const I n_red = divide(length + %d, (I)%d);", DF_BLOCK - 1, DF_BLOCK);
}

/* Declares at0, at1 and so on: where the rooms of the team's rows begin in shared memory; and the
 * rows of operands. */
static void row_emit_held(df_cuda_gen *g)
{
    df_cuda_line(g, "const u32 at0 = 0;");
    for (uint32_t i = 0; i < g->held.n_rooms; i++)
        df_cuda_line(g, "const u32 at%u = at%u + ((u32)(%u * even) + 15 & ~15u);", i + 1, i,
                     g->held.size[i]);
    df_cuda_line(g, "unsigned char *const held = held_rows + own * at%u;", g->held.n_rooms);
    for (uint32_t i = 0; i < g->held.n; i++) {
        const df_cuda_held_row *const row = &g->held.row[i];
        const df_access *const a = &g->k->access[row->access];
        const char *const t = df_cuda_type(a->dtype);
        if (a->kind == DF_ACCESS_LOAD)
            df_cuda_line(g, "%s *const h%u = (%s *)(held + at%u);", t, row->access, t, row->room);
    }
}

/* The address of a SCRATCH row becomes that of the team's. */
static void row_emit_scratch(df_cuda_gen *g, uint32_t i)
{
    const df_cuda_held_row *const row = df_cuda_held_row_of(&g->held, df_cuda_held_first(g->k, i));
    const char *const t = df_cuda_type(g->k->access[i].dtype);
    if (row)
        df_cuda_line(g, "p%u = H ? (%s *)(held + at%u) : p%u + (i64)team * even;", i, t, row->room,
                     i);
    else
        df_cuda_line(g, "p%u += (i64)team * even;", i);
}

static void row_emit_main(df_cuda_gen *g)
{
    df_cuda_open(g,
                 "template <typename I, bool L, bool W, bool H> "
                 "DEV void %s_main(const u64 *w, u32 block, u32 n)",
                 g->name);
    row_emit_head(g);
    df_cuda_line(g, "__shared__ __align__(16) unsigned char shared[L ? %zu : %zu];",
                 df_cuda_row_shared(g, true), df_cuda_row_shared(g, false));
    df_cuda_line(g, "const u32 T = L ? blockDim.x / 32 : 1, own = L ? 0 : threadIdx.x / 32;");
    df_cuda_line(g, "const u32 warp = L ? threadIdx.x / 32 : 0;");
    df_cuda_line(g, "const I team = L ? (I)block : (I)block * %d + (I)own;", DF_CUDA_WARPS);
    df_cuda_line(g, "unsigned char *const mem = shared + own * %zu;",
                 df_cuda_row_shared(g, false) / DF_CUDA_WARPS);
    df_cuda_line(g, "const bool first = L ? threadIdx.x == 0 : lane == 0;");
    df_cuda_line(g, "const i64 even = (i64)length + (i64)(length & 1);");
    if (g->held.n > 0) row_emit_held(g);
    for (uint32_t i = 0; i < g->k->n_access; i++)
        if (g->k->access[i].kind == DF_ACCESS_SCRATCH) row_emit_scratch(g, i);
    df_cuda_open(g, "for (I o = team; o < rows; o += (I)n * (L ? 1 : %d))", DF_CUDA_WARPS);
    df_cuda_outer(g);
    df_cuda_offsets(g);
    row_emit_ahead(g);
    for (uint32_t s = 0; s < g->k->n_stages; s++) row_emit_stage(g, s);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void row_emit_partial(df_cuda_gen *g, uint32_t i)
{
    char o[32];
    df_cuda_red_type(g, i, o);
    df_cuda_line(g, "if (lane == 0) %s::put(mine + %u * plane + b, plane, fold%u);", o,
                 df_cuda_slot(g, i), i);
}

static void row_emit_partial_base(df_cuda_gen *g)
{
    df_cuda_line(g, "const i64 plane = n_red;");
    df_cuda_line(g, "u64 *const mine = partial + (i64)o * %u * plane;", df_cuda_n_slots(g));
}

static void row_emit_part(df_cuda_gen *g)
{
    df_cuda_open(g,
                 "template <typename I, bool W> DEV void %s_part(const u64 *w, u32 block, u32 n)",
                 g->name);
    row_emit_head(g);
    df_cuda_open(g,
                 "for (i64 at = (i64)block * %d + threadIdx.x / 32; at < (i64)rows * n_red; "
                 "at += (i64)n * %d)",
                 DF_CUDA_WARPS, DF_CUDA_WARPS);
    df_cuda_line(g, "const I o = (I)divide(at, (i64)n_red), b = (I)(at - (i64)o * n_red);");
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_row_level(g, 0, NULL);
    df_cuda_each_red(g, 0, row_emit_folded);
    row_emit_block(g, 0);
    row_emit_partial_base(g);
    df_cuda_each_red(g, 0, row_emit_partial);
    df_cuda_close(g);
    df_cuda_close(g);
}

static void row_emit_fin(df_cuda_gen *g)
{
    df_cuda_open(g, "template <typename I> DEV void %s_fin(const u64 *w, u32 block, u32 n)",
                 g->name);
    row_emit_head(g);
    df_cuda_open(g, "for (I o = (I)block; o < rows; o += (I)n)");
    df_cuda_outer(g);
    df_cuda_offsets(g);
    df_cuda_row_level(g, 0, "threadIdx.x == 0");
    row_emit_partial_base(g);
    df_cuda_line(g, "const i64 n_blocks = n_red;");
    df_cuda_from_partial(g, "join_row", "");
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_cuda_row_level(g, s, "threadIdx.x == 0");
    df_cuda_close(g);
    df_cuda_close(g);
}

void df_cuda_row(df_cuda_gen *g)
{
    if (g->pass == DF_CUDA_MAIN)
        row_emit_main(g);
    else if (g->pass == DF_CUDA_PART)
        row_emit_part(g);
    else
        row_emit_fin(g);
}
