/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions. A map op is a call of its function in the prelude, which alone defines what
 * the op means. A value of row level is one constant, which all threads of the row compute
 * alike. A value of element level is an array, written by a loop over the lanes of the
 * thread.
 *
 * Memory is read where on[l] holds; otherwise the value is taken as 0. Every op is defined
 * for all operands, so only reads, writes, checks and reductions depend on on[l].
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>
#include <string.h>

/* ---- operands ---- */

/* Whether the value is one for all lanes, at element level too. */
static bool is_single(const df_cuda_gen *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    const uint8_t kind = df_kop_infos[ins->op].kind;
    if (ins->op == DF_K_const || ins->op == DF_K_num || ins->op == DF_K_carry) return true;
    if (kind == DF_KOP_reduce) return true;
    return g->k->mode != DF_MODE_MAP && ins->level == DF_LEVEL_ROW;
}

/* Whether the value is one for each column of a thread in COL. */
static bool is_of_column(const df_cuda_gen *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    return g->k->mode == DF_MODE_COL && ins->op != DF_K_const && ins->op != DF_K_num &&
           is_single(g, i);
}

void df_cuda_ref(df_cuda_gen *g, uint32_t i, char out[24])
{
    const df_ins *const ins = &g->k->ins[i];
    if (is_of_column(g, i)) {
        snprintf(out, 24, g->lanes ? "v%u[l %% C]" : "v%u[j]", i);
        return;
    }
    if (ins->op == DF_K_next) i = ins->src[0]; /* next, seen from stage 1, is the state */
    snprintf(out, 24, is_single(g, i) || ins->op == DF_K_next ? "v%u" : "v%u[l]", i);
}

void df_cuda_consts(df_cuda_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        const char *const t = df_cuda_type(ins->dtype);
        if (ins->op == DF_K_const)
            df_cuda_line(g, "const %s v%u = of_word<%s>(0x%llxull);", t, i, t,
                         (unsigned long long)ins->imm);
    }
}

/* ---- expressions ---- */

static void put_call(df_cuda_gen *g, const df_ins *ins, df_str *s)
{
    const char *const from = df_cuda_type(g->k->ins[ins->src[0]].dtype);
    const bool fast = g->k->flags & DF_KERNEL_FAST && df_is_real((deft_dtype)ins->dtype) &&
                      (ins->op == DF_K_add || ins->op == DF_K_sub || ins->op == DF_K_mul);
    char a[24];
    df_str_fmt(s, "%s%s_%s", fast ? "fast_" : "", df_kop_infos[ins->op].name, from);
    if (ins->op == DF_K_cast || ins->op == DF_K_bitcast)
        df_str_fmt(s, "_%s", df_cuda_type(ins->dtype));
    for (uint32_t j = 0; j < df_kop_infos[ins->op].n_src; j++) {
        df_cuda_ref(g, ins->src[j], a);
        df_str_fmt(s, "%s%s", j ? ", " : "(", a);
    }
    df_str_putc(s, ')');
}

static void put_value_load(df_cuda_gen *g, const df_ins *ins, const char *on, df_str *s)
{
    char at[24];
    const bool has_condition = ins->op == DF_K_load_if;
    if (on) df_str_fmt(s, has_condition ? "%s && " : "%s ? ", on);
    if (has_condition) {
        df_cuda_ref(g, ins->src[0], at);
        df_str_fmt(s, "%s ? ", at);
    }
    df_str_fmt(s, "p%u[", (uint32_t)ins->imm);
    if (ins->op == DF_K_load_at) {
        df_cuda_ref(g, ins->src[0], at);
        df_str_put(s, at);
    } else {
        df_cuda_offset(g, (uint32_t)ins->imm, s);
    }
    df_str_putc(s, ']');
    if (has_condition) df_cuda_ref(g, ins->src[1], at);
    if (has_condition)
        df_str_fmt(s, " : %s", at);
    else if (on)
        df_str_fmt(s, " : %s()", df_cuda_type(ins->dtype));
}

/* Writes the value of an instruction. on: an expression for where memory may be accessed;
 * NULL: everywhere. */
static void put_value(df_cuda_gen *g, uint32_t i, const char *on, df_str *s)
{
    const df_ins *const ins = &g->k->ins[i];
    char a[24], b[24], c[24];
    switch (ins->op) {
    case DF_K_index: df_cuda_offset(g, (uint32_t)ins->imm, s); return;
    case DF_K_load:
    case DF_K_load_if:
    case DF_K_load_at: put_value_load(g, ins, on, s); return;
    case DF_K_select:
        df_cuda_ref(g, ins->src[0], a);
        df_cuda_ref(g, ins->src[1], b);
        df_cuda_ref(g, ins->src[2], c);
        df_str_fmt(s, "%s ? %s : %s", a, b, c);
        return;
    case DF_K_check:
        df_cuda_ref(g, ins->src[0], a);
        df_cuda_ref(g, ins->src[1], b);
        df_str_fmt(s, "check_index(%s, %s, %s, fault, %uu)", on ? on : "true", a, b,
                   (uint32_t)ins->imm);
        return;
    case DF_K_bitcast:
        if (!df_is_real((deft_dtype)ins->dtype) &&
            !df_is_real((deft_dtype)g->k->ins[ins->src[0]].dtype)) {
            df_cuda_ref(g, ins->src[0], a);
            df_str_fmt(s, "(%s)%s", df_cuda_type(ins->dtype), a);
            return;
        }
        break;
    case DF_K_cast:
        if (g->k->ins[ins->src[0]].dtype == ins->dtype) {
            df_cuda_ref(g, ins->src[0], a);
            df_str_put(s, a);
            return;
        }
        break;
    }
    put_call(g, ins, s);
}

/* ---- row level ---- */

static const char *row_on(const df_cuda_gen *g)
{
    return g->k->mode == DF_MODE_COL && g->pass != DF_CUDA_FIN ? "in" : NULL;
}

static const char *each_column(const df_cuda_gen *g)
{
    return g->k->mode == DF_MODE_COL ? "EACH_COLUMN " : "";
}

static void put_row_store(df_cuda_gen *g, const df_ins *ins, const char *once)
{
    df_str s;
    char v[24];
    if (!once) return;
    df_str_init(&s, g->out->mem);
    df_cuda_offset(g, (uint32_t)ins->imm, &s);
    df_cuda_ref(g, ins->src[0], v);
    df_cuda_line(g, "%sif (%s) p%u[%s] = %s;", each_column(g), once, (uint32_t)ins->imm,
                 s.ok ? s.at : "", v);
    g->out->ok &= s.ok;
    df_str_finish(&s);
}

void df_cuda_row_level(df_cuda_gen *g, uint32_t stage, const char *once)
{
    g->lanes = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (ins->stage != stage || ins->level != DF_LEVEL_ROW) continue;
        if (ins->op == DF_K_const || ins->op == DF_K_num) continue;
        if (ins->op == DF_K_store) {
            put_row_store(g, ins, once);
            continue;
        }
        df_str s;
        df_str_init(&s, g->out->mem);
        put_value(g, i, row_on(g), &s);
        if (g->k->mode == DF_MODE_COL)
            df_cuda_line(g, "%s v%u[C]; EACH_COLUMN v%u[j] = %s;", df_cuda_type(ins->dtype), i, i,
                         s.ok ? s.at : "");
        else
            df_cuda_line(g, "const %s v%u = %s;", df_cuda_type(ins->dtype), i, s.ok ? s.at : "");
        g->out->ok &= s.ok;
        df_str_finish(&s);
    }
}

/* ---- element level ---- */

/* MAP: whether neighbours of one thread are one access when they are aligned. */
static bool goes_near(const df_cuda_gen *g, const df_ins *ins)
{
    const df_access *const a = &g->k->access[ins->imm];
    return g->k->mode == DF_MODE_MAP && ins->op != DF_K_load_at && ins->op != DF_K_load_if &&
           a->step[g->k->n_axes - 1u] == DF_STEP_UNIT;
}

/* COL: whether the columns of a thread in one row are one access. */
static bool goes_in_columns(const df_cuda_gen *g, const df_ins *ins)
{
    const df_access *const a = &g->k->access[ins->imm];
    return g->k->mode == DF_MODE_COL && ins->op != DF_K_load_at &&
           (a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_STORE) &&
           a->step[g->k->n_axes - 1u] == DF_STEP_UNIT;
}

/* ROW: where the two neighbours of a thread are one access. W: when rows are aligned, as those of
 * SCRATCH always are. */
typedef enum pairing { NO_PAIRS, PAIRS_WHEN_W, PAIRS } pairing;

static pairing pairs_of(const df_cuda_gen *g, const df_ins *ins)
{
    const df_access *const a = &g->k->access[ins->imm];
    if (g->k->mode != DF_MODE_ROW || ins->op == DF_K_load_at) return NO_PAIRS;
    if (a->kind == DF_ACCESS_SCRATCH) return PAIRS;
    const bool is_unit = (a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_STORE) &&
                         a->step[g->k->n_axes - 1u] == DF_STEP_UNIT;
    return is_unit ? PAIRS_WHEN_W : NO_PAIRS;
}

/* The row in which an operand's elements are kept for stages after its first; NULL: nowhere. */
static const df_cuda_held_row *operand_row(const df_cuda_gen *g, const df_ins *ins)
{
    if (g->pass != DF_CUDA_MAIN || ins->op != DF_K_load ||
        g->k->access[ins->imm].kind != DF_ACCESS_LOAD)
        return NULL;
    return df_cuda_held_row_of(&g->held, (uint32_t)ins->imm);
}

bool df_cuda_comes_ahead(const df_cuda_gen *g, const df_cuda_held_row *row)
{
    enum { LEAST = 4 /* bytes of such a copy */ };
    const df_access *const a = &g->k->access[row->access];
    return a->kind == DF_ACCESS_LOAD && row->first == 0 && 2 * row->size >= LEAST &&
           a->step[g->k->n_axes - 1u] == DF_STEP_UNIT;
}

static void open_pairs(df_cuda_gen *g, pairing pairs)
{
    if (pairs == PAIRS)
        df_cuda_brace(g);
    else
        df_cuda_open(g, "if (W)");
}

static void put_elem_store(df_cuda_gen *g, const df_ins *ins, df_str *s)
{
    char v[24];
    df_cuda_ref(g, ins->src[0], v);
    if (goes_near(g, ins)) {
        const char *const t = df_cuda_type(ins->dtype);
        df_cuda_brace(g);
        df_cuda_line(g, "%s near[V];", t);
        df_cuda_line(g, "EACH near[l] = %s;", v);
        df_cuda_line(
            g,
            g->groups
                ? "EACH_GROUP store_near<G>(p%u + a%u[u] + r[u * G], near + u * G, on + u * G);"
                : "store_near<V>(p%u + a%u + r[0], near, on);",
            (uint32_t)ins->imm, (uint32_t)ins->imm);
        df_cuda_close(g);
        return;
    }
    df_cuda_offset(g, (uint32_t)ins->imm, s);
    if (goes_in_columns(g, ins)) {
        df_cuda_brace(g);
        df_cuda_line(g, "%s near[V];", df_cuda_type(ins->dtype));
        df_cuda_line(g, "EACH near[l] = %s;", v);
        df_cuda_line(
            g, "EACH_ROW { const int l = u * C; store_near<C>(p%u + (%s), near + l, on + l); }",
            (uint32_t)ins->imm, s->ok ? s->at : "");
        df_cuda_close(g);
        return;
    }
    const pairing pairs = pairs_of(g, ins);
    if (pairs != NO_PAIRS) {
        open_pairs(g, pairs);
        df_cuda_line(g, "%s near[V];", df_cuda_type(ins->dtype));
        df_cuda_line(g, "EACH near[l] = %s;", v);
        df_cuda_line(
            g, "EACH_GROUP { const int l = 2 * u; store_near<2>(p%u + (%s), near + l, on + l); }",
            (uint32_t)ins->imm, s->ok ? s->at : "");
        df_cuda_close(g);
        if (pairs == PAIRS) return;
        df_cuda_line(g, "else");
    }
    df_cuda_line(g, "EACH if (on[l]) p%u[%s] = %s;", (uint32_t)ins->imm, s->ok ? s->at : "", v);
}

/* The value of lane after lane, but for loads of pairs. */
static void put_elem_value(df_cuda_gen *g, uint32_t i, df_str *s)
{
    const df_ins *const ins = &g->k->ins[i];
    const pairing pairs = ins->op == DF_K_load ? pairs_of(g, ins) : NO_PAIRS;
    if (pairs != NO_PAIRS) {
        df_cuda_offset(g, (uint32_t)ins->imm, s);
        open_pairs(g, pairs);
        df_cuda_line(
            g, "EACH_GROUP { const int l = 2 * u; load_near<2>(v%u + l, p%u + (%s), on + l); }", i,
            (uint32_t)ins->imm, s->ok ? s->at : "");
        df_cuda_close(g);
        if (pairs == PAIRS) return;
        df_cuda_line(g, "else");
        s->n = 0;
    }
    put_value(g, i, "on[l]", s);
    df_cuda_line(g, "EACH v%u[l] = %s;", i, s->ok ? s->at : "");
}

/* The same; with H an operand that is kept is read from its row, or put there. */
static void put_held_value(df_cuda_gen *g, uint32_t i, df_str *s)
{
    const df_ins *const ins = &g->k->ins[i];
    const df_cuda_held_row *const row = operand_row(g, ins);
    const uint32_t access = (uint32_t)ins->imm;
    const bool is_first = row && ins->stage == row->first;
    const bool is_ahead = is_first && df_cuda_comes_ahead(g, row);
    df_cuda_line(g, "%s v%u[V];", df_cuda_type(ins->dtype), i);
    if (row && (!is_first || is_ahead)) {
        df_cuda_line(g, is_ahead ? "if (H && W)" : "if (H)");
        df_cuda_line(
            g, "EACH_GROUP { const int l = 2 * u; load_near<2>(v%u + l, h%u + r[l], on + l); }", i,
            access);
        df_cuda_line(g, "else");
    }
    put_elem_value(g, i, s);
    if (!is_first) return;
    df_cuda_line(g, is_ahead ? "if (H && !W)" : "if (H)");
    df_cuda_line(g,
                 "EACH_GROUP { const int l = 2 * u; store_near<2>(h%u + r[l], v%u + l, on + l); }",
                 access, i);
}

void df_cuda_elem(df_cuda_gen *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    const char *const t = df_cuda_type(ins->dtype);
    df_str s;
    g->lanes = true;
    df_str_init(&s, g->out->mem);
    if (ins->op == DF_K_const || ins->op == DF_K_num) {
    } else if (ins->op == DF_K_store) {
        put_elem_store(g, ins, &s);
    } else if (ins->op == DF_K_load && g->tile && ins->imm == g->tile_access) {
        df_cuda_line(g, "%s v%u[V];", t, i);
        df_cuda_line(g, "EACH v%u[l] = %s[l];", i, g->tile);
    } else if (ins->op == DF_K_load && goes_near(g, ins)) {
        df_cuda_line(g, "%s v%u[V];", t, i);
        df_cuda_line(
            g,
            g->groups ? "EACH_GROUP load_near<G>(v%u + u * G, p%u + a%u[u] + r[u * G], on + u * G);"
                      : "load_near<V>(v%u, p%u + a%u + r[0], on);",
            i, (uint32_t)ins->imm, (uint32_t)ins->imm);
    } else if (ins->op == DF_K_load && goes_in_columns(g, ins)) {
        df_cuda_offset(g, (uint32_t)ins->imm, &s);
        df_cuda_line(g, "%s v%u[V];", t, i);
        df_cuda_line(g,
                     "EACH_ROW { const int l = u * C; load_near<C>(v%u + l, p%u + (%s), on + l); }",
                     i, (uint32_t)ins->imm, s.ok ? s.at : "");
    } else {
        put_held_value(g, i, &s);
    }
    g->out->ok &= s.ok;
    df_str_finish(&s);
}
