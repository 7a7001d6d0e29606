/* SPDX-License-Identifier: Apache-2.0
 *
 * ROW: lanes run along the reduced axis. A block of 4096 elements is taken in steps of 64, one for
 * each accumulator. The accumulators are arrays of 64, which compilers keep in registers: the loop
 * over them has a constant length.
 *
 *     for each block:  accumulators = identity
 *         for each 64 elements:  for each lane:  the body; accumulator = join(accumulator, value)
 *         the rest of the block in the same way
 *         push(fold(accumulators))
 *     finish
 *
 * A row that is known to be short has no more accumulators than it needs: those beyond it would
 * have the identity, which changes nothing. One that is known to be a single block pushes none.
 *
 * With several RED axes, a run along the last of them may end at any lane. Then the operands of
 * reductions are gathered in arrays, a piece of a block at a time, and joined from there. A stage
 * with a scan takes its elements in order, one by one.
 */
#include <stdio.h>

#include "aot/c_gen.h"

enum {
    ROW_PIECE = 256, /* elements of a run that are gathered, a multiple of DF_LANES */
    ROW_BRIEF = 40,  /* most instructions of a body that is written twice */
    ROW_FEWEST = 8   /* accumulators */
};

#define FOR_REDS(i, g, s)                                                                          \
    for (uint32_t i = 0; i < (g)->k->n_ins; i++)                                                   \
        if (df_aot_is_at(g, i, s, DF_LEVEL_ELEM) && df_aot_is_reduce(g, i))

static bool row_has_scan(const df_aot_c *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_aot_is_at(g, i, stage, DF_LEVEL_ELEM) && df_aot_is_scan(g, i)) return true;
    return false;
}

static bool row_reduces(const df_aot_c *g, uint32_t stage)
{
    FOR_REDS(i, g, stage) return true;
    return false;
}

static uint32_t row_count(const df_aot_c *g, uint32_t stage)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) n += df_aot_is_at(g, i, stage, DF_LEVEL_ELEM);
    return n;
}

/* The number of elements of a row when it is known to be at most `most`; else 0. */
static int64_t row_at_most(const df_aot_c *g, int64_t most)
{
    const int64_t n = df_aot_known(g, DF_AXIS_RED);
    return n > 0 && n <= most ? n : 0;
}

/* Whether a block of the stage is a part of one loop over lanes. */
static bool row_is_short(const df_aot_c *g, uint32_t stage)
{
    return row_at_most(g, DF_LANES) && df_aot_count(g->k, DF_AXIS_RED) == 1 &&
           !row_has_scan(g, stage);
}

static uint32_t row_width(const df_aot_c *g, uint32_t stage)
{
    uint32_t n = row_is_short(g, stage) ? ROW_FEWEST : DF_LANES;
    while (n < row_at_most(g, DF_LANES)) n *= 2;
    return n;
}

static bool row_is_block(const df_aot_c *g)
{
    return row_at_most(g, DF_BLOCK) != 0;
}

/* ---- accumulators ---- */

static void row_start(df_aot_c *g, uint32_t i, const char *first)
{
    const char *const t = df_aot_type(df_aot_operand(g, i));
    char o[32];
    df_aot_red(g, i, o);
    df_aot_line(g, "%s a%u[%u];", t, i, g->lanes);
    if (df_aot_is_arg(g, i)) {
        df_aot_line(g, "i64 h%u[%u];", i, g->lanes);
        df_aot_line(g, "start_%s(a%u, h%u, %u, %s, 1);", o, i, i, g->lanes, first);
    } else {
        df_aot_line(g, "start_%s(a%u, %u);", o, i, g->lanes);
    }
}

/* Joins the current element to accumulator `lane`, at position g->red. */
static void row_join(df_aot_c *g, uint32_t i, const char *lane)
{
    char o[32], v[32];
    df_aot_red(g, i, o);
    df_aot_ref(g, g->k->ins[i].src[0], v);
    if (df_aot_is_arg(g, i)) {
        df_aot_line(g, "take_%s(&a%u[%s], &h%u[%s], %s, %s);", o, i, lane, i, lane, v, g->red);
        return;
    }
    const df_kop_info *const op = &df_kop_infos[g->k->ins[i].op];
    df_aot_line(g, "a%u[%s] = %s_%s(a%u[%s], %s);", i, lane, df_kop_infos[op->join].name,
                df_aot_type(df_aot_operand(g, i)), i, lane, v);
}

static void row_join_lane(df_aot_c *g, uint32_t i)
{
    row_join(g, i, "l");
}

static void row_in_order(df_aot_c *g, uint32_t i)
{
    char state[16];
    snprintf(state, sizeof state, "g%u", i);
    if (df_aot_is_scan(g, i))
        df_aot_scan_join(g, i, state);
    else
        row_join(g, i, "(r - first) % LANES");
}

static void row_gather(df_aot_c *g, uint32_t i)
{
    char v[32];
    df_aot_ref(g, g->k->ins[i].src[0], v);
    df_aot_line(g, "w%u[l + j] = %s;", i, v);
}

/* ---- blocks ---- */

static void row_put_lanes(df_aot_c *g, uint32_t stage, const char *n)
{
    g->at = g->red = "r + l";
    df_aot_open(g, "EACH_LANE for (i64 l = 0; l < %s; l++)", n);
    df_aot_elems(g, stage, row_join_lane);
    df_aot_close(g);
}

static void row_put_block_of_lanes(df_aot_c *g, uint32_t stage)
{
    if (row_is_short(g, stage)) {
        df_aot_line(g, "WORD i64 r = first;");
        row_put_lanes(g, stage, "length");
    } else if (row_count(g, stage) <= ROW_BRIEF) {
        df_aot_line(g, "i64 r = first;");
        df_aot_open(g, "for (; r + LANES <= end; r += LANES)");
        row_put_lanes(g, stage, "LANES");
        df_aot_close(g);
        row_put_lanes(g, stage, "end - r");
    } else {
        df_aot_open(g, "for (i64 r = first; r < end; r += LANES)");
        df_aot_line(g, "const i64 n = end - r < LANES ? end - r : LANES;");
        row_put_lanes(g, stage, "n");
        df_aot_close(g);
    }
}

static void row_put_block_in_order(df_aot_c *g, uint32_t stage)
{
    g->at = g->red = "r";
    df_aot_open(g, "for (i64 r = first; r < end; r++)");
    df_aot_elems(g, stage, row_in_order);
    df_aot_close(g);
}

/* One run along the last RED axis, or the part of it that a piece has: m is the position along
 * that axis, and `here` the number of elements. */
static void row_put_run(df_aot_c *g, uint32_t stage, const char *red)
{
    g->at = "m + j";
    g->red = red;
    g->has_red = true;
    df_aot_red_addresses(g, stage);
    df_aot_hoisted(g, stage);
    df_aot_open(g, "EACH_LANE for (i64 j = 0; j < here; j++)");
    df_aot_elems(g, stage, row_gather);
    df_aot_close(g);
    g->has_red = false;
}

/* The arrays in which runs are gathered have no position of their own; reductions join them. */
static void row_put_block_of_runs(df_aot_c *g, uint32_t stage)
{
    const int last = df_aot_axis(g->k, DF_AXIS_RED);
    char o[32];
    FOR_REDS(i, g, stage)
    df_aot_line(g, "%s w%u[%d];", df_aot_type(df_aot_operand(g, i)), i, ROW_PIECE);
    df_aot_open(g, "for (i64 r = first; r < end; r += %d)", ROW_PIECE);
    df_aot_line(g, "const i64 n = end - r < %d ? end - r : %d;", ROW_PIECE, ROW_PIECE);
    df_aot_open(g, "for (i64 l = 0; l < n;)");
    df_aot_line(g, "const i64 here = e%d - m < n - l ? e%d - m : n - l;", last, last);
    row_put_run(g, stage, "r + l + j");
    df_aot_line(g, "l += here, m += here;");
    df_aot_open(g, "if (m == e%d)", last);
    df_aot_line(g, "m = 0;");
    df_aot_step(g, DF_AXIS_RED, last);
    df_aot_close(g);
    df_aot_close(g);
    FOR_REDS(i, g, stage)
    {
        df_aot_red(g, i, o);
        if (df_aot_is_arg(g, i))
            df_aot_line(g, "gather_%s(a%u, h%u, w%u, n, r);", o, i, i, i);
        else
            df_aot_line(g, "gather_%s(a%u, w%u, n);", o, i, i);
    }
    df_aot_close(g);
}

/* The position of the first element of block `of`, for runs. */
static void row_put_start_of_runs(df_aot_c *g, const char *of)
{
    const int last = df_aot_axis(g->k, DF_AXIS_RED);
    char rest[64];
    df_aot_line(g, "i64 m = %s * BLOCK %% e%d;", of, last);
    snprintf(rest, sizeof rest, "%s * BLOCK / e%d", of, last);
    df_aot_split(g, DF_AXIS_RED, last, rest);
}

static void row_put_end_of_block(df_aot_c *g, uint32_t stage)
{
    char o[32];
    FOR_REDS(i, g, stage)
    {
        const uint32_t slot = df_aot_slot(g, i);
        const char *const t = df_aot_type(df_aot_operand(g, i));
        const bool is_arg = df_aot_is_arg(g, i);
        df_aot_red(g, i, o);
        if (g->pass == DF_AOT_MAIN) {
            if (is_arg) continue;
            if (row_is_block(g))
                df_aot_line(g, "v%u = fold_%s(a%u, %u);", i, o, i, g->lanes);
            else
                df_aot_line(g, "push_%s(k%u, b, fold_%s(a%u, %u));", o, i, o, i, g->lanes);
        } else if (is_arg) {
            df_aot_line(g, "fold_%s(a%u, h%u, %u);", o, i, i, g->lanes);
            df_aot_line(g, "args->partial[%u * plane + b] = to_word_%s(a%u[0]);", slot, t, i);
            df_aot_line(g, "args->partial[%u * plane + b] = (u64)h%u[0];", slot + 1, i);
        } else {
            df_aot_line(g, "args->partial[%u * plane + b] = to_word_%s(fold_%s(a%u, %u));", slot, t,
                        o, i, g->lanes);
        }
    }
}

/* Blocks [from, to) of a stage that reduces or scans. */
static void row_put_blocks(df_aot_c *g, uint32_t stage, const char *from, const char *to)
{
    const bool runs = df_aot_count(g->k, DF_AXIS_RED) > 1, in_order = row_has_scan(g, stage);
    g->lanes = row_width(g, stage);
    if (!runs) df_aot_hoisted(g, stage);
    if (runs) row_put_start_of_runs(g, from);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        char start[64];
        if (!df_aot_is_at(g, i, stage, DF_LEVEL_ELEM) || !df_aot_is_scan(g, i)) continue;
        df_aot_scan_start(g, i, start);
        df_aot_line(g, "%s g%u = %s;", df_aot_type(g->k->ins[i].dtype), i, start);
    }
    FOR_REDS(i, g, stage)
    {
        const char *const t = df_aot_type(df_aot_operand(g, i));
        if (g->pass != DF_AOT_MAIN) continue;
        if (df_aot_is_arg(g, i))
            row_start(g, i, "0");
        else if (!row_is_block(g))
            df_aot_line(g, "%s k%u[TREE_DEPTH];", t, i);
    }
    df_aot_open(g, "for (i64 b = %s; b < %s; b++)", from, to);
    df_aot_line(g, "const i64 first = b * BLOCK;");
    df_aot_line(g, "WORD i64 end = length - first < BLOCK ? length : first + BLOCK;");
    FOR_REDS(i, g, stage)
    if (g->pass != DF_AOT_MAIN || !df_aot_is_arg(g, i)) row_start(g, i, "first");
    if (runs)
        row_put_block_of_runs(g, stage);
    else if (in_order)
        row_put_block_in_order(g, stage);
    else
        row_put_block_of_lanes(g, stage);
    row_put_end_of_block(g, stage);
    df_aot_close(g);
}

/* A stage that neither reduces nor scans. */
static void row_put_plain(df_aot_c *g, uint32_t stage)
{
    const int last = df_aot_axis(g->k, DF_AXIS_RED);
    if (df_aot_count(g->k, DF_AXIS_RED) == 1) {
        df_aot_hoisted(g, stage);
        g->at = g->red = "r";
        df_aot_open(g, "EACH_LANE for (i64 r = 0; r < length; r++)");
        df_aot_elems(g, stage, NULL);
        df_aot_close(g);
        return;
    }
    df_aot_split(g, DF_AXIS_RED, last, "0");
    df_aot_open(g, "for (i64 r = 0; r < length; r += e%d)", last);
    df_aot_line(g, "const i64 m = 0, here = e%d;", last);
    row_put_run(g, stage, "r + j");
    df_aot_step(g, DF_AXIS_RED, last);
    df_aot_close(g);
}

/* ---- stages ---- */

static void row_put_stage(df_aot_c *g, uint32_t stage)
{
    char o[32], nothing[64];
    df_aot_row_level(g, stage);
    if (!df_aot_has_elem(g, stage)) return;
    FOR_REDS(i, g, stage)
    {
        const df_ins *const ins = &g->k->ins[i];
        const deft_dtype t = (deft_dtype)ins->dtype;
        const bool is_zero = df_aot_is_arg(g, i) || ins->op == DF_K_sum;
        df_aot_const(ins->dtype, is_zero ? 0 : df_kop_identity((df_kop)ins->op, t), nothing);
        df_aot_line(g, "%s v%u = %s;", df_aot_type(ins->dtype), i, nothing);
    }
    df_aot_open(g, "if (length > 0)");
    if (row_reduces(g, stage) || row_has_scan(g, stage))
        row_put_blocks(g, stage, "(i64)0", "n_blocks");
    else
        row_put_plain(g, stage);
    FOR_REDS(i, g, stage)
    {
        df_aot_red(g, i, o);
        if (df_aot_is_arg(g, i)) {
            df_aot_line(g, "fold_%s(a%u, h%u, %u);", o, i, i, g->lanes);
            df_aot_line(g, "v%u = h%u[0];", i, i);
        } else if (!row_is_block(g)) {
            df_aot_line(g, "v%u = finish_%s(k%u, n_blocks);", i, o, i);
        }
    }
    df_aot_close(g);
}

static void row_put_fin(df_aot_c *g)
{
    char o[32];
    df_aot_row_level(g, 0);
    FOR_REDS(i, g, 0)
    {
        df_aot_red(g, i, o);
        df_aot_line(g, "const %s v%u = joined_%s(args->partial + %u * plane, n_blocks, 1%s);",
                    df_aot_type(g->k->ins[i].dtype), i, o, df_aot_slot(g, i),
                    df_aot_is_arg(g, i) ? ", plane" : "");
    }
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_aot_row_level(g, s);
}

void df_aot_row(df_aot_c *g)
{
    df_aot_lengths(g);
    if (g->pass == DF_AOT_MAIN) {
        df_aot_open_rows(g);
        for (uint32_t s = 0; s < g->k->n_stages; s++) row_put_stage(g, s);
        df_aot_close_rows(g);
        return;
    }
    df_aot_split(g, DF_AXIS_OUTER, -1, "o0");
    df_aot_row_addresses(g);
    if (g->pass == DF_AOT_FIN) {
        row_put_fin(g);
    } else {
        df_aot_row_level(g, 0);
        row_put_blocks(g, 0, "i0", "i1");
    }
}
