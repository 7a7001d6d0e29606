/* SPDX-License-Identifier: Apache-2.0
 *
 * COL: lanes run along INNER, in chunks of columns. Each of the 64 accumulators of a reduction has
 * a lane for each column of the chunk, and element r is joined to accumulator r % 64. Accumulators
 * without elements are left out. The width of a chunk is such that the arrays of all reductions
 * fit the stack.
 */
#include <stdio.h>

#include "aot/c_gen.h"

enum {
    COL_MOST_BYTES = 48 << 10, /* of the arrays of a chunk, where its width allows it */
    COL_MOST_COLUMNS = 64
};

#define FOR_REDS(i, g, s)                                                                          \
    for (uint32_t i = 0; i < (g)->k->n_ins; i++)                                                   \
        if (df_aot_is_at(g, i, s, DF_LEVEL_ELEM) && df_aot_is_reduce(g, i))

/* The columns of a chunk: a power of two. Blocks of one column are 64 accumulators, and the entries
 * of a stack that rows of up to 2^24 elements use. */
static uint32_t col_width(const df_aot_c *g)
{
    size_t most = 0;
    uint32_t width = COL_MOST_COLUMNS;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        size_t bytes = 0;
        FOR_REDS(i, g, s)
        bytes += df_aot_is_arg(g, i)
                     ? 16
                     : (DF_LANES + 12) * deft_dtype_size((deft_dtype)df_aot_operand(g, i));
        if (bytes > most) most = bytes;
    }
    while (width > 1 && most * width > COL_MOST_BYTES) width /= 2;
    return width;
}

/* ---- accumulators ---- */

static void col_declare(df_aot_c *g, uint32_t i)
{
    const char *const t = df_aot_type(df_aot_operand(g, i));
    if (df_aot_is_arg(g, i)) {
        df_aot_line(g, "%s a%u[%u];", t, i, g->width);
        df_aot_line(g, "i64 h%u[%u];", i, g->width);
    } else {
        df_aot_line(g, "%s a%u[LANES * %u];", t, i, g->width);
        if (g->pass == DF_AOT_MAIN) df_aot_line(g, "%s k%u[TREE_DEPTH * %u];", t, i, g->width);
    }
}

static void col_start(df_aot_c *g, uint32_t i)
{
    char o[32];
    df_aot_red(g, i, o);
    if (!df_aot_is_arg(g, i))
        df_aot_line(g, "start_%s(a%u, n_acc * %u);", o, i, g->width);
    else if (g->pass == DF_AOT_MAIN)
        df_aot_line(g, "if (b == 0) start_%s(a%u, h%u, n, 0, 0);", o, i, i);
    else
        df_aot_line(g, "start_%s(a%u, h%u, n, first, 0);", o, i, i);
}

static void col_join(df_aot_c *g, uint32_t i)
{
    char o[32], v[32], state[24];
    if (df_aot_is_scan(g, i)) {
        snprintf(state, sizeof state, "g%u[i]", i);
        df_aot_scan_join(g, i, state);
        return;
    }
    df_aot_red(g, i, o);
    df_aot_ref(g, g->k->ins[i].src[0], v);
    if (df_aot_is_arg(g, i)) {
        df_aot_line(g, "take_%s(&a%u[i], &h%u[i], %s, r);", o, i, i, v);
        return;
    }
    const df_kop_info *const op = &df_kop_infos[g->k->ins[i].op];
    df_aot_line(g, "z%u[i] = %s_%s(z%u[i], %s);", i, df_kop_infos[op->join].name,
                df_aot_type(df_aot_operand(g, i)), i, v);
}

static void col_put_end_of_block(df_aot_c *g, uint32_t i)
{
    char o[32];
    const uint32_t slot = df_aot_slot(g, i);
    const char *const t = df_aot_type(df_aot_operand(g, i));
    const bool is_arg = df_aot_is_arg(g, i);
    df_aot_red(g, i, o);
    if (!is_arg) df_aot_line(g, "fold_columns_%s(a%u, %u, n_acc, n);", o, i, g->width);
    if (g->pass == DF_AOT_MAIN) {
        if (!is_arg) df_aot_line(g, "push_columns_%s(k%u, %u, b, a%u, n);", o, i, g->width, i);
        return;
    }
    df_aot_open(g, "for (i64 i = 0; i < n; i++)");
    df_aot_line(g, "args->partial[%u * plane + b * n_inner + c + i] = to_word_%s(a%u[i]);", slot, t,
                i);
    if (is_arg)
        df_aot_line(g, "args->partial[%u * plane + b * n_inner + c + i] = (u64)h%u[i];", slot + 1,
                    i);
    df_aot_close(g);
}

/* ---- blocks ---- */

/* Row r of a chunk. */
static void col_put_elements(df_aot_c *g, uint32_t stage)
{
    df_aot_open(g, "for (i64 r = first; r < end; r++)");
    g->at = "c + i";
    g->has_red = true;
    df_aot_red_addresses(g, stage);
    FOR_REDS(i, g, stage)
    if (!df_aot_is_arg(g, i))
        df_aot_line(g, "%s *const z%u = a%u + (r - first) %% LANES * %u;",
                    df_aot_type(df_aot_operand(g, i)), i, i, g->width);
    df_aot_hoisted(g, stage);
    df_aot_open_lanes(g);
    df_aot_elems(g, stage, col_join);
    df_aot_close(g);
    g->has_red = false;
    df_aot_step(g, DF_AXIS_RED, -1);
    df_aot_close(g);
}

static void col_put_blocks(df_aot_c *g, uint32_t stage, const char *from, const char *to)
{
    char first[48], start[64];
    snprintf(first, sizeof first, "%s * BLOCK", from);
    df_aot_split(g, DF_AXIS_RED, -1, first);
    FOR_REDS(i, g, stage) col_declare(g, i);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_aot_is_at(g, i, stage, DF_LEVEL_ELEM) || !df_aot_is_scan(g, i)) continue;
        df_aot_scan_start(g, i, start);
        df_aot_line(g, "%s g%u[%u];", df_aot_type(g->k->ins[i].dtype), i, g->width);
        df_aot_line(g, "for (i64 i = 0; i < n; i++) g%u[i] = %s;", i, start);
    }
    df_aot_open(g, "for (i64 b = %s; b < %s; b++)", from, to);
    df_aot_line(g, "const i64 first = b * BLOCK;");
    df_aot_line(g, "const i64 end = length - first < BLOCK ? length : first + BLOCK;");
    df_aot_line(g, "WORD i64 n_acc = end - first < LANES ? end - first : LANES;");
    FOR_REDS(i, g, stage) col_start(g, i);
    col_put_elements(g, stage);
    FOR_REDS(i, g, stage) col_put_end_of_block(g, i);
    df_aot_close(g);
}

static void col_put_stage(df_aot_c *g, uint32_t stage)
{
    char o[32];
    df_aot_row_level(g, stage);
    if (!df_aot_has_elem(g, stage)) return;
    FOR_REDS(i, g, stage)
    {
        df_aot_line(g, "%s w%u[%u];", df_aot_type(g->k->ins[i].dtype), i, g->width);
        if (df_aot_is_arg(g, i)) df_aot_line(g, "for (i64 i = 0; i < n; i++) w%u[i] = 0;", i);
    }
    /* Without elements there are no positions. The results are those of no blocks. */
    df_aot_open(g, "if (length > 0)");
    col_put_blocks(g, stage, "(i64)0", "n_blocks");
    FOR_REDS(i, g, stage)
    {
        df_aot_red(g, i, o);
        if (df_aot_is_arg(g, i))
            df_aot_line(g, "for (i64 i = 0; i < n; i++) w%u[i] = h%u[i];", i, i);
        else
            df_aot_line(g, "finish_columns_%s(w%u, k%u, %u, n_blocks, n);", o, i, i, g->width);
    }
    df_aot_close(g);
    bool any = false;
    FOR_REDS(i, g, stage) any |= !df_aot_is_arg(g, i);
    if (!any) return;
    df_aot_open(g, "else");
    FOR_REDS(i, g, stage)
    {
        df_aot_red(g, i, o);
        if (!df_aot_is_arg(g, i))
            df_aot_line(g, "finish_columns_%s(w%u, w%u, %u, 0, n);", o, i, i, g->width);
    }
    df_aot_close(g);
}

static void col_put_fin(df_aot_c *g)
{
    char o[32];
    df_aot_row_level(g, 0);
    FOR_REDS(i, g, 0)
    {
        df_aot_red(g, i, o);
        df_aot_line(g, "%s w%u[%u];", df_aot_type(g->k->ins[i].dtype), i, g->width);
        df_aot_open(g, "for (i64 i = 0; i < n; i++)");
        df_aot_line(g,
                    "w%u[i] = joined_%s(args->partial + %u * plane + c + i, n_blocks, n_inner%s);",
                    i, o, df_aot_slot(g, i), df_aot_is_arg(g, i) ? ", plane" : "");
        df_aot_close(g);
    }
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_aot_row_level(g, s);
}

void df_aot_col(df_aot_c *g)
{
    g->width = col_width(g);
    df_aot_lengths(g);
    if (g->pass == DF_AOT_MAIN) {
        df_aot_open_rows(g);
        df_aot_open_columns(g, "i0", "i1");
        for (uint32_t s = 0; s < g->k->n_stages; s++) col_put_stage(g, s);
        df_aot_close(g);
        df_aot_close_rows(g);
        return;
    }
    df_aot_split(g, DF_AXIS_OUTER, -1, "o0");
    df_aot_row_addresses(g);
    if (g->pass == DF_AOT_FIN) {
        df_aot_open_columns(g, "i0", "i1");
        col_put_fin(g);
    } else {
        df_aot_open_columns(g, "(i64)0", "n_inner");
        df_aot_row_level(g, 0);
        col_put_blocks(g, 0, "i0", "i1");
    }
    df_aot_close(g);
}
