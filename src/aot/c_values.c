/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions as C. A map op is a call of its function in the prelude, which alone defines what
 * the op means. Each value is a constant of the innermost block that needs it. What another loop
 * over lanes reads, in COL and LOOP, is in an array, too.
 *
 * Elements are independent: a kernel may read and write one memory only where an element reads the
 * very place that it writes (fuser/memory/hazards.c). So a load that is the same for all lanes may
 * be done before the loop over lanes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "aot/c_gen.h"

bool df_aot_is_reduce(const df_aot_c *g, uint32_t i)
{
    return df_kop_infos[g->k->ins[i].op].kind == DF_KOP_reduce;
}

bool df_aot_is_arg(const df_aot_c *g, uint32_t i)
{
    return g->k->ins[i].op == DF_K_argmin || g->k->ins[i].op == DF_K_argmax;
}

bool df_aot_is_scan(const df_aot_c *g, uint32_t i)
{
    return df_kop_infos[g->k->ins[i].op].kind == DF_KOP_scan;
}

bool df_aot_is_at(const df_aot_c *g, uint32_t i, uint32_t stage, df_level level)
{
    const df_ins *const ins = &g->k->ins[i];
    return g->val[i].live && !g->val[i].uniform && ins->stage == stage && ins->level == level;
}

bool df_aot_has_elem(const df_aot_c *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_aot_is_at(g, i, stage, DF_LEVEL_ELEM)) return true;
    return false;
}

uint8_t df_aot_operand(const df_aot_c *g, uint32_t i)
{
    return g->k->ins[g->k->ins[i].src[0]].dtype;
}

int df_aot_axis(const df_kernel *k, df_role role)
{
    int axis = -1;
    for (int x = 0; x < k->n_axes; x++)
        if (k->role[x] == role) axis = x;
    return axis;
}

uint32_t df_aot_count(const df_kernel *k, df_role role)
{
    uint32_t n = 0;
    for (uint32_t x = 0; x < k->n_axes; x++) n += k->role[x] == role;
    return n;
}

static bool values_touches(const df_ins *ins)
{
    return df_kop_infos[ins->op].kind == DF_KOP_memory || ins->op == DF_K_index;
}

bool df_aot_is_used(const df_aot_c *g, uint32_t access)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].live && values_touches(&g->k->ins[i]) && g->k->ins[i].imm == access)
            return true;
    return false;
}

/* ---- operands ---- */

void df_aot_ref(const df_aot_c *g, uint32_t i, char out[32])
{
    const df_ins *const ins = &g->k->ins[i];
    const bool in_columns = g->k->mode == DF_MODE_COL || g->k->mode == DF_MODE_LOOP;
    const bool is_here = ins->stage == g->stage && ins->level == g->level;
    if (ins->op == DF_K_next) /* seen from stage 1, the value is the state */
        snprintf(out, 32, "w%u[i]", ins->src[0]);
    else if (!in_columns || g->val[i].uniform || (is_here && !df_aot_is_reduce(g, i)))
        snprintf(out, 32, "v%u", i);
    else
        snprintf(out, 32, "w%u[i]", i);
}

void df_aot_const(uint8_t dtype, uint64_t bits, char out[64])
{
    if (dtype == DEFT_F32)
        snprintf(out, 64, "bitcast_u32_f32(0x%08" PRIx64 "u)", bits & UINT32_MAX);
    else if (dtype == DEFT_F64)
        snprintf(out, 64, "bitcast_u64_f64(UINT64_C(0x%016" PRIx64 "))", bits);
    else
        snprintf(out, 64, "(%s)UINT64_C(0x%" PRIx64 ")", df_aot_type(dtype), bits);
}

/* ---- addresses ---- */

static bool values_moves(const df_access *a, uint32_t axis)
{
    return a->kind != DF_ACCESS_AT && a->kind != DF_ACCESS_SCRATCH && a->step[axis] != DF_STEP_ZERO;
}

/* Whether the access moves along a RED axis other than that of the lanes. */
static bool values_moves_along_red(const df_aot_c *g, const df_access *a)
{
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (g->k->role[x] == DF_AXIS_RED && (int)x != g->vec && values_moves(a, x)) return true;
    return false;
}

/* Appends " + position * stride" for each axis of a role along which the access moves. */
static void values_put_terms(const df_aot_c *g, df_str *s, uint32_t access, df_role role)
{
    const df_access *const a = &g->k->access[access];
    const char *sign = "";
    for (uint32_t x = 0; x < g->k->n_axes; x++) {
        if (g->k->role[x] != role || (int)x == g->vec || !values_moves(a, x)) continue;
        df_str_fmt(s, a->step[x] == DF_STEP_UNIT ? "%sx%u" : "%sx%u * s%u_%u", sign, x, access, x);
        sign = " + ";
    }
    if (!*sign) df_str_put(s, "0");
}

static void values_declare_address(df_aot_c *g, uint32_t access, char to, char from, df_role role)
{
    const df_access *const a = &g->k->access[access];
    const char *const t = df_aot_type(a->dtype);
    df_str s;
    df_str_init(&s, g->out->mem);
    values_put_terms(g, &s, access, role);
    const char *const by = s.ok ? s.at : "0";
    if (a->kind == DF_ACCESS_INDEX)
        df_aot_line(g, "WORD i64 %c%u = %c%u + (%s);", to, access, from, access, by);
    else if (a->kind == DF_ACCESS_PART)
        df_aot_line(g, "WORD mem_%s *%c%u = MOVED(%c%u, %s);", t, to, access, from, access, by);
    else
        df_aot_line(g, "%smem_%s *const %c%u = %c%u + (%s);",
                    a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_AT ? "const " : "", t, to,
                    access, from, access, by);
    g->out->ok &= s.ok;
    df_str_finish(&s);
}

void df_aot_row_addresses(df_aot_c *g)
{
    for (uint32_t i = 0; i < g->k->n_access; i++)
        if (df_aot_is_used(g, i)) values_declare_address(g, i, 'q', 'p', DF_AXIS_OUTER);
}

void df_aot_red_addresses(df_aot_c *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_access; i++) {
        bool used = false;
        for (uint32_t j = 0; j < g->k->n_ins; j++)
            used |= df_aot_is_at(g, j, stage, DF_LEVEL_ELEM) && values_touches(&g->k->ins[j]) &&
                    g->k->ins[j].imm == i;
        if (used && values_moves_along_red(g, &g->k->access[i]))
            values_declare_address(g, i, 'u', 'q', DF_AXIS_RED);
    }
}

/* Appends the place of an access at the current lane: an element, or the value of an INDEX. */
static void values_put_place(const df_aot_c *g, uint32_t access, df_str *s)
{
    const df_access *const a = &g->k->access[access];
    const bool in_red = g->has_red && g->level == DF_LEVEL_ELEM && values_moves_along_red(g, a);
    const bool is_index = a->kind == DF_ACCESS_INDEX;
    if (a->kind == DF_ACCESS_SCRATCH) {
        df_str_fmt(s, "q%u[%s]", access, g->level == DF_LEVEL_ELEM ? g->red : "0");
        return;
    }
    const bool moves = g->vec >= 0 && g->at && values_moves(a, (uint32_t)g->vec);
    df_str_fmt(s, is_index ? "%c%u + " : "%c%u[", in_red ? 'u' : 'q', access);
    if (!moves)
        df_str_put(s, "0");
    else if (a->step[g->vec] == DF_STEP_UNIT)
        df_str_fmt(s, is_index ? "(%s)" : "%s", g->at);
    else
        df_str_fmt(s, "(%s) * s%u_%u", g->at, access, (uint32_t)g->vec);
    if (!is_index) df_str_putc(s, ']');
}

/* ---- instructions ---- */

static void values_put_call(const df_aot_c *g, const df_ins *ins, df_str *s)
{
    char a[32];
    df_str_fmt(s, "%s_%s", df_kop_infos[ins->op].name, df_aot_type(g->k->ins[ins->src[0]].dtype));
    if (ins->op == DF_K_cast || ins->op == DF_K_bitcast)
        df_str_fmt(s, "_%s", df_aot_type(ins->dtype));
    for (uint32_t j = 0; j < df_kop_infos[ins->op].n_src; j++) {
        df_aot_ref(g, ins->src[j], a);
        df_str_fmt(s, "%s%s", j ? ", " : "(", a);
    }
    df_str_putc(s, ')');
}

static void values_put(const df_aot_c *g, uint32_t i, df_str *s)
{
    const df_ins *const ins = &g->k->ins[i];
    char a[32] = "", b[32] = "", c[32] = "", text[64];
    const uint32_t n_src = df_kop_infos[ins->op].n_src;
    if (n_src > 0) df_aot_ref(g, ins->src[0], a);
    if (n_src > 1) df_aot_ref(g, ins->src[1], b);
    if (n_src > 2) df_aot_ref(g, ins->src[2], c);
    const bool are_reals = n_src > 0 && (df_is_real((deft_dtype)ins->dtype) ||
                                         df_is_real((deft_dtype)df_aot_operand(g, i)));
    switch (ins->op) {
    case DF_K_const:
        df_aot_const(ins->dtype, ins->imm, text);
        df_str_put(s, text);
        return;
    case DF_K_num:
        df_str_fmt(s, "of_word_%s(args->num[%u])", df_aot_type(ins->dtype), (uint32_t)ins->imm);
        return;
    case DF_K_index:
    case DF_K_load: values_put_place(g, (uint32_t)ins->imm, s); return;
    case DF_K_load_at: df_str_fmt(s, "q%u[%s]", (uint32_t)ins->imm, a); return;
    case DF_K_load_if:
        df_str_fmt(s, "%s ? ", a);
        values_put_place(g, (uint32_t)ins->imm, s);
        df_str_fmt(s, " : %s", b);
        return;
    case DF_K_select: df_str_fmt(s, "%s ? %s : %s", a, b, c); return;
    case DF_K_check:
        df_str_fmt(s, "check_index(%s, %s, args->fault, %uu)", a, b, (uint32_t)ins->imm);
        return;
    case DF_K_bitcast:
        if (are_reals) break;
        df_str_fmt(s, "(%s)%s", df_aot_type(ins->dtype), a);
        return;
    case DF_K_cast:
        if (df_aot_operand(g, i) != ins->dtype) break;
        df_str_put(s, a);
        return;
    case DF_K_carry: df_str_fmt(s, "w%u[i]", i); return;
    }
    values_put_call(g, ins, s);
}

void df_aot_ins(df_aot_c *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    char a[32];
    df_str s;
    df_str_init(&s, g->out->mem);
    if (ins->op == DF_K_store) {
        values_put_place(g, (uint32_t)ins->imm, &s);
        df_aot_ref(g, ins->src[0], a);
        df_aot_line(g, "%s = %s;", s.ok ? s.at : "", a);
    } else {
        values_put(g, i, &s);
        df_aot_line(g, "const %s v%u = %s;", df_aot_type(ins->dtype), i, s.ok ? s.at : "");
        /* A check is made for its own sake: its load may be in another stage. */
        if (ins->op == DF_K_check) df_aot_line(g, "(void)v%u;", i);
        if (g->val[i].crosses) df_aot_line(g, "w%u[i] = v%u;", i, i);
    }
    g->out->ok &= s.ok;
    df_str_finish(&s);
}

/* ---- levels ---- */

static bool values_is_hoisted(const df_aot_c *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    return ins->op == DF_K_load && g->k->access[ins->imm].kind == DF_ACCESS_LOAD &&
           !values_moves(&g->k->access[ins->imm], (uint32_t)g->vec);
}

void df_aot_hoisted(df_aot_c *g, uint32_t stage)
{
    g->stage = stage;
    g->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_aot_is_at(g, i, stage, DF_LEVEL_ELEM) && g->val[i].shown && values_is_hoisted(g, i))
            df_aot_ins(g, i);
}

void df_aot_elems(df_aot_c *g, uint32_t stage, void (*each)(df_aot_c *g, uint32_t i))
{
    g->stage = stage;
    g->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_kop_kind kind = (df_kop_kind)df_kop_infos[g->k->ins[i].op].kind;
        if (!df_aot_is_at(g, i, stage, DF_LEVEL_ELEM) || !g->val[i].shown) continue;
        if (values_is_hoisted(g, i)) continue;
        if (kind == DF_KOP_reduce || kind == DF_KOP_scan) {
            df_assert(each);
            each(g, i);
        } else if (kind != DF_KOP_loop || g->k->ins[i].op == DF_K_carry) {
            df_aot_ins(g, i);
        }
    }
}

void df_aot_row_level(df_aot_c *g, uint32_t stage)
{
    const bool in_columns = g->k->mode != DF_MODE_ROW;
    bool any = false;
    g->stage = stage;
    g->level = DF_LEVEL_ROW;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (!df_aot_is_at(g, i, stage, DF_LEVEL_ROW)) continue;
        if (g->val[i].crosses) df_aot_line(g, "%s w%u[%u];", df_aot_type(ins->dtype), i, g->width);
        any = true;
    }
    if (!any) return;
    const char *const at = g->at;
    g->at = in_columns ? "c + i" : NULL;
    if (in_columns) df_aot_open(g, "EACH_LANE for (i64 i = 0; i < n; i++)");
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_aot_is_at(g, i, stage, DF_LEVEL_ROW)) df_aot_ins(g, i);
    if (in_columns) df_aot_close(g);
    g->at = at;
}

/* ---- words ---- */

static void values_put_access(df_aot_c *g, uint32_t i)
{
    const df_access *const a = &g->k->access[i];
    const char *const t = df_aot_type(a->dtype);
    if (a->kind == DF_ACCESS_INDEX)
        df_aot_line(g, "const i64 p%u = args->base[%u];", i, i);
    else if (a->kind == DF_ACCESS_STORE || a->kind == DF_ACCESS_SCRATCH)
        df_aot_line(g, "mem_%s *const p%u = (mem_%s *)(void *)args->ptr[%u];", t, i, t, i);
    else
        df_aot_line(g, "const mem_%s *const p%u = (const mem_%s *)(const void *)args->ptr[%u];", t,
                    i, t, i);
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (values_moves(a, x) && a->step[x] == DF_STEP_ANY)
            df_aot_line(g, "WORD i64 s%u_%u = args->stride[%u];", i, x, i * g->k->n_axes + x);
}

void df_aot_words(df_aot_c *g)
{
    for (uint32_t i = 0; i < g->k->n_access; i++)
        if (df_aot_is_used(g, i)) values_put_access(g, i);
    /* Compilers warn of a division by a constant zero, in code that would never run. */
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (g->extents[x] == DF_ANY || g->extents[x] == 0)
            df_aot_line(g, "WORD i64 e%u = args->extent[%u];", x, x);
        else
            df_aot_line(g, "WORD i64 e%u = %lld;", x, (long long)g->extents[x]);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].live && g->val[i].uniform) df_aot_ins(g, i);
}
