/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops over rows and over chunks of columns, and the modes that reduce nothing.
 *
 * MAP is one loop over lanes for each row. LOOP keeps the states of a chunk of columns in arrays,
 * which stay in the L1 cache, and has a loop over lanes in each iteration. What a `proceed` needs
 * is the same for all lanes, and is computed for the first of them before that loop.
 */
#include <stdio.h>

#include "aot/c_gen.h"

enum { LOOP_COLUMNS = 64 };

/* ---- positions ---- */

static bool loops_takes(const df_aot_c *g, uint32_t x, df_role role, int except)
{
    return g->k->role[x] == role && (int)x != except;
}

void df_aot_split(df_aot_c *g, df_role role, int except, const char *of)
{
    uint32_t n = 0;
    for (uint32_t x = 0; x < g->k->n_axes; x++) n += loops_takes(g, x, role, except);
    if (n == 0) return;
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (loops_takes(g, x, role, except)) df_aot_line(g, "__attribute__((unused)) i64 x%u;", x);
    df_aot_brace(g);
    df_aot_line(g, "i64 rest = %s;", of);
    for (uint32_t x = g->k->n_axes; x-- > 0;) {
        if (!loops_takes(g, x, role, except)) continue;
        if (--n == 0)
            df_aot_line(g, "x%u = rest;", x);
        else
            df_aot_line(g, "x%u = rest %% e%u, rest /= e%u;", x, x, x);
    }
    df_aot_close(g);
}

void df_aot_step(df_aot_c *g, df_role role, int except)
{
    uint32_t open = 0;
    int first = 0;
    while (first < g->k->n_axes && !loops_takes(g, (uint32_t)first, role, except)) first++;
    for (int x = g->k->n_axes; x-- > first;) {
        if (!loops_takes(g, (uint32_t)x, role, except)) continue;
        if (x == first) {
            df_aot_line(g, "x%d++;", x);
            break;
        }
        df_aot_open(g, "if (++x%d == e%d)", x, x);
        df_aot_line(g, "x%d = 0;", x);
        open++;
    }
    while (open-- > 0) df_aot_close(g);
}

int64_t df_aot_known(const df_aot_c *g, df_role role)
{
    int64_t n = 1;
    for (uint32_t x = 0; x < g->k->n_axes; x++) {
        if (g->k->role[x] != role) continue;
        if (g->extents[x] == DF_ANY || __builtin_mul_overflow(n, g->extents[x], &n)) return DF_ANY;
    }
    return n;
}

void df_aot_extents(const df_aot_c *g, df_role role, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "1");
    for (uint32_t x = 0; x < g->k->n_axes && n < cap; x++)
        if (g->k->role[x] == role)
            n = (n == 1 ? 0 : n) +
                (size_t)snprintf(out + (n == 1 ? 0 : n), cap - n, n == 1 ? "e%u" : " * e%u", x);
}

void df_aot_open_rows(df_aot_c *g)
{
    df_aot_split(g, DF_AXIS_OUTER, -1, "o0");
    df_aot_open(g, "for (i64 o = o0; o < o1; o++)");
    df_aot_row_addresses(g);
}

void df_aot_close_rows(df_aot_c *g)
{
    df_aot_step(g, DF_AXIS_OUTER, -1);
    df_aot_close(g);
}

void df_aot_open_columns(df_aot_c *g, const char *from, const char *to)
{
    df_aot_open(g, "for (i64 c = %s; c < %s; c += %u)", from, to, g->width);
    df_aot_line(g, "const i64 n = %s - c < %u ? %s - c : %u;", to, g->width, to, g->width);
}

void df_aot_open_lanes(df_aot_c *g)
{
    df_aot_open(g, "EACH_LANE for (i64 i = 0; i < n; i++)");
}

/* ---- MAP ---- */

void df_aot_map(df_aot_c *g)
{
    g->at = "i";
    df_aot_open_rows(g);
    df_aot_hoisted(g, 0);
    df_aot_open(g, "EACH_LANE for (i64 i = i0; i < i1; i++)");
    df_aot_elems(g, 0, NULL);
    df_aot_close(g);
    df_aot_close_rows(g);
}

/* ---- LOOP ---- */

static void loops_put_carries(df_aot_c *g)
{
    char from[32];
    g->stage = 0;
    g->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_carry)
            df_aot_line(g, "%s w%u[%u];", df_aot_type(g->k->ins[i].dtype), i, g->width);
    df_aot_open_lanes(g);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].op != DF_K_carry) continue;
        df_aot_ref(g, g->k->ins[i].src[0], from);
        df_aot_line(g, "w%u[i] = %s;", i, from);
    }
    df_aot_close(g);
}

/* Leaves the loop when the operand of a proceed is false in lane 0. */
static void loops_put_proceeds(df_aot_c *g)
{
    char v[32];
    bool any = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) any |= g->k->ins[i].op == DF_K_proceed;
    if (!any) return;
    df_aot_brace(g);
    df_aot_line(g, "WORD i64 i = 0;");
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (!df_aot_is_at(g, i, 0, DF_LEVEL_ELEM)) continue;
        if (ins->op == DF_K_proceed) {
            df_aot_ref(g, ins->src[0], v);
            df_aot_line(g, "if (!%s) break;", v);
        } else if (g->val[i].decides) {
            df_aot_ins(g, i);
        }
    }
    df_aot_close(g);
}

static void loops_put_nexts(df_aot_c *g)
{
    char v[32];
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].op != DF_K_next) continue;
        df_aot_ref(g, g->k->ins[i].src[1], v);
        df_aot_line(g, "w%u[i] = %s;", g->k->ins[i].src[0], v);
    }
}

static void loops_put_iterations(df_aot_c *g)
{
    const int red = df_aot_axis(g->k, DF_AXIS_RED);
    df_aot_open(g, "for (i64 x%d = 0; x%d < e%d; x%d++)", red, red, red, red);
    g->has_red = true;
    g->at = "c + i";
    g->stage = 0;
    g->level = DF_LEVEL_ELEM;
    df_aot_red_addresses(g, 0);
    loops_put_proceeds(g);
    df_aot_hoisted(g, 0);
    df_aot_open_lanes(g);
    df_aot_elems(g, 0, NULL);
    loops_put_nexts(g);
    df_aot_close(g);
    g->has_red = false;
    df_aot_close(g);
}

void df_aot_loop(df_aot_c *g)
{
    g->width = LOOP_COLUMNS;
    df_aot_open_rows(g);
    df_aot_open_columns(g, "i0", "i1");
    df_aot_row_level(g, 0);
    loops_put_carries(g);
    if (df_aot_has_elem(g, 0)) loops_put_iterations(g);
    for (uint32_t s = 1; s < g->k->n_stages; s++) df_aot_row_level(g, s);
    df_aot_close(g);
    df_aot_close_rows(g);
}
