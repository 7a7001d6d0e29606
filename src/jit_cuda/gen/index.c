/* SPDX-License-Identifier: Apache-2.0
 *
 * Positions and offsets. The offset of an access is a sum of two parts. a3 is what all
 * elements of a thread's loop share, and is computed once. The other part differs by
 * element.
 *
 * I is the type of positions and offsets: 32 bits where the launch has proved that they
 * suffice. INDEX values are numbers of the program and always have 64 bits.
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>

/* Whether positions along an axis differ by element of a thread. */
static bool moves(const df_cuda_gen *g, uint32_t axis)
{
    return g->k->role[axis] == (g->k->mode == DF_MODE_MAP ? DF_AXIS_INNER : DF_AXIS_RED);
}

/* Declares a number, once for each dtype that uses it. */
static void put_num(df_cuda_gen *g, uint32_t slot, uint32_t at)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        const char *const t = df_cuda_type(ins->dtype);
        if (ins->op == DF_K_num && ins->imm == slot)
            df_cuda_line(g, "const %s v%u = of_word<%s>(w[%u]);", t, i, t, at);
    }
}

static void put_word(void *user, uint32_t at, df_cuda_word w)
{
    df_cuda_gen *const g = user;
    const df_access *const a = w.access < g->k->n_access ? &g->k->access[w.access] : NULL;
    const char *const stride = a && a->kind == DF_ACCESS_INDEX ? "i64" : "I";
    switch ((df_cuda_word_kind)w.kind) {
    case DF_CUDA_WORD_PTR:
        df_cuda_line(g, "%s *p%u = (%s *)w[%u];", df_cuda_type(a->dtype), w.access,
                     df_cuda_type(a->dtype), at);
        break;
    case DF_CUDA_WORD_BASE: df_cuda_line(g, "const i64 p%u = (i64)w[%u];", w.access, at); break;
    case DF_CUDA_WORD_STRIDE:
        df_cuda_line(g, "const %s s%u_%u = (%s)w[%u];", stride, w.access, w.axis, stride, at);
        break;
    case DF_CUDA_WORD_EXTENT:
        if (g->k->mode == DF_MODE_LOOP && g->k->role[w.axis] == DF_AXIS_RED)
            df_cuda_line(g, "const i64 e%u = (i64)w[%u];", w.axis, at);
        else
            df_cuda_line(g, "const I e%u = (I)w[%u];", w.axis, at);
        break;
    case DF_CUDA_WORD_NUM: put_num(g, w.access, at); break;
    case DF_CUDA_WORD_FAULT: df_cuda_line(g, "i64 *const fault = (i64 *)w[%u];", at); break;
    case DF_CUDA_WORD_PARTIAL: df_cuda_line(g, "u64 *const partial = (u64 *)w[%u];", at); break;
    }
}

void df_cuda_gen_words(df_cuda_gen *g)
{
    df_cuda_layout(g->k, put_word, g);
}

int df_cuda_axis(const df_kernel *k, df_role role)
{
    int axis = -1;
    for (int x = 0; x < k->n_axes; x++)
        if (k->role[x] == role) axis = x;
    return axis;
}

void df_cuda_extents(df_cuda_gen *g, df_role role, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "(I)1");
    for (uint32_t x = 0; x < g->k->n_axes && n < cap; x++)
        if (g->k->role[x] == role) n += (size_t)snprintf(out + n, cap - n, " * e%u", x);
}

/* Writes the positions along the axes of a role, from the index `of`. Their names are
 * prefix, axis, suffix. `declare` is a type, or empty when they are elements of arrays. */
static void split(df_cuda_gen *g, df_role role, const char *of, const char *declare,
                  const char *prefix, const char *suffix)
{
    uint32_t first = 0;
    const int last = df_cuda_axis(g->k, role);
    if (last < 0) return;
    while (g->k->role[first] != role) first++;
    df_cuda_line(g, "I q%s = %s;", prefix, of);
    for (uint32_t x = (uint32_t)last; x > first; x--) {
        df_cuda_line(g, "const I t%u = divide(q%s, e%u);", x, prefix, x);
        df_cuda_line(g, "%s%s%u%s = q%s - t%u * e%u;", declare, prefix, x, suffix, prefix, x, x);
        df_cuda_line(g, "q%s = t%u;", prefix, x);
    }
    df_cuda_line(g, "%s%s%u%s = q%s;", declare, prefix, first, suffix, prefix);
}

/* MAP: positions of each pack. */
static void put_outer_of_groups(df_cuda_gen *g)
{
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (g->k->role[x] == DF_AXIS_OUTER) df_cuda_line(g, "I x%u[U];", x);
    df_cuda_open(g, "EACH_GROUP");
    split(g, DF_AXIS_OUTER, "o[u]", "", "x", "[u]");
    df_cuda_close(g);
}

void df_cuda_outer(df_cuda_gen *g)
{
    if (g->groups)
        put_outer_of_groups(g);
    else
        split(g, DF_AXIS_OUTER, "o", "const I ", "x", "");
}

void df_cuda_moving(df_cuda_gen *g)
{
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (moves(g, x)) df_cuda_line(g, "I m%u[V];", x);
    df_cuda_open(g, "EACH");
    split(g, g->k->mode == DF_MODE_MAP ? DF_AXIS_INNER : DF_AXIS_RED, "r[l]", "", "m", "[l]");
    df_cuda_close(g);
}

/* Appends the term of one axis, whose position is named prefix, axis, suffix. In an INDEX
 * the sum has 64 bits because its base and strides do. */
static void put_term(df_cuda_gen *g, df_str *out, uint32_t access, uint32_t axis,
                     const char *prefix, const char *suffix)
{
    const uint8_t step = g->k->access[access].step[axis];
    if (step == DF_STEP_ZERO) return;
    df_str_fmt(out, " + %s%u%s", prefix, axis, suffix);
    if (step == DF_STEP_ANY) df_str_fmt(out, " * s%u_%u", access, axis);
}

static bool has_offset(const df_access *a)
{
    return a->kind != DF_ACCESS_AT && a->kind != DF_ACCESS_SCRATCH;
}

void df_cuda_offsets(df_cuda_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_access; i++) {
        const df_access *const a = &g->k->access[i];
        const char *const type = a->kind == DF_ACCESS_INDEX ? "i64" : "I";
        df_str s;
        if (!has_offset(a)) continue;
        df_str_init(&s, g->out->mem);
        df_str_put(&s, a->kind == DF_ACCESS_INDEX ? "" : "(I)0");
        if (a->kind == DF_ACCESS_INDEX) df_str_fmt(&s, "p%u", i);
        for (uint32_t x = 0; x < g->k->n_axes; x++)
            if (!moves(g, x)) put_term(g, &s, i, x, "x", g->groups ? "[u]" : "");
        if (g->groups)
            df_cuda_line(g, "%s a%u[U]; EACH_GROUP a%u[u] = %s;", type, i, i, s.ok ? s.at : "");
        else
            df_cuda_line(g, "const %s a%u = %s;", type, i, s.ok ? s.at : "");
        g->out->ok &= s.ok;
        df_str_finish(&s);
    }
}

/* COL: appends the distance from the thread's first column to the current one. */
static void put_column(df_cuda_gen *g, df_str *out, uint32_t access)
{
    const uint32_t axis = g->k->n_axes - 1u;
    const uint8_t step = g->k->access[access].step[axis];
    if (step == DF_STEP_ZERO) return;
    df_str_put(out, g->lanes ? " + l % C" : " + j");
    if (step == DF_STEP_ANY) df_str_fmt(out, " * s%u_%u", access, axis);
}

void df_cuda_offset(df_cuda_gen *g, uint32_t access, df_str *out)
{
    const df_access *const a = &g->k->access[access];
    if (a->kind == DF_ACCESS_SCRATCH) {
        df_str_put(out, g->lanes ? "r[l]" : "0");
        return;
    }
    df_str_fmt(out, g->groups ? "a%u[l / G]" : "a%u", access);
    if (g->k->mode == DF_MODE_COL) put_column(g, out, access);
    for (uint32_t x = 0; x < g->k->n_axes && g->lanes; x++)
        if (moves(g, x)) put_term(g, out, access, x, "m", "[l]");
}
