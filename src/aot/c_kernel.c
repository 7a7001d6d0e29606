/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel as C: what is refused, what each function needs, and the functions. The text depends on
 * the kernel and its name alone.
 */
#include <stdio.h>

#include "aot/c_gen.h"
#include "aot/c_prelude_text.h"
#include "base/diag.h"

void df_aot_c_prelude(df_str *out)
{
    df_str_putn(out, (const char *)c_prelude_text, sizeof c_prelude_text - 1);
}

/* ---- what is refused ---- */

static deft_status kernel_check_ins(const df_kernel *k, df_diag *d, uint32_t i)
{
    const df_ins *const ins = &k->ins[i];
    if (ins->op >= DF_N_KOPS || ins->dtype >= DF_N_RECORDED || ins->stage >= k->n_stages)
        return df_fail(d, DEFT_E_COMPILE, "C export: instruction %u is none", i);
    const df_kop_info *const op = &df_kop_infos[ins->op];
    for (uint32_t j = 0; j < op->n_src; j++)
        if (ins->src[j] >= i)
            return df_fail(d, DEFT_E_COMPILE, "C export: %s, instruction %u, reads instruction %u",
                           op->name, i, ins->src[j]);
    const uint8_t src = op->n_src ? k->ins[ins->src[0]].dtype : ins->dtype;
    if (!df_kop_takes((df_kop_types)op->types, (deft_dtype)ins->dtype, (deft_dtype)src))
        return df_fail(d, DEFT_E_COMPILE, "C export: there is no %s of %s from %s", op->name,
                       deft_dtype_name((deft_dtype)ins->dtype), deft_dtype_name((deft_dtype)src));
    const bool touches = op->kind == DF_KOP_memory || ins->op == DF_K_index;
    if (touches && ins->imm >= k->n_access)
        return df_fail(d, DEFT_E_COMPILE, "C export: %s of access %llu, of %u", op->name,
                       (unsigned long long)ins->imm, k->n_access);
    if (ins->op == DF_K_num && ins->imm >= k->n_num)
        return df_fail(d, DEFT_E_COMPILE, "C export: number %llu, of %u",
                       (unsigned long long)ins->imm, k->n_num);
    return DEFT_OK;
}

static deft_status kernel_check(const df_kernel *k, df_diag *d)
{
    deft_status st = DEFT_OK;
    if (k->mode > DF_MODE_LOOP || k->n_axes == 0 || k->n_axes > DF_MAX_AXES)
        TRY(df_fail(d, DEFT_E_COMPILE, "C export: mode %u with %u axes", k->mode, k->n_axes));
    for (uint32_t i = 0; i < k->n_ins; i++) TRY(kernel_check_ins(k, d, i));
done:
    return st;
}

/* ---- what a function needs ---- */

static void kernel_find_uniform(df_aot_c *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        const df_kop_info *const op = &df_kop_infos[ins->op];
        bool uniform = ins->op == DF_K_const || ins->op == DF_K_num ||
                       (op->kind == DF_KOP_map && ins->op != DF_K_check);
        for (uint32_t j = 0; j < op->n_src; j++) uniform &= g->val[ins->src[j]].uniform;
        g->val[i].uniform = uniform;
    }
}

/* Whether the function of g->pass runs the instruction for its own sake. */
static bool kernel_is_root(const df_aot_c *g, uint32_t i)
{
    const df_ins *const ins = &g->k->ins[i];
    const bool is_row = ins->level == DF_LEVEL_ROW, is_store = ins->op == DF_K_store;
    if (g->pass == DF_AOT_PART) {
        if (ins->stage > 0) return false;
        return df_aot_is_reduce(g, i) || ins->op == DF_K_check || (is_store && !is_row);
    }
    if (g->pass == DF_AOT_FIN && !is_row) return false;
    return is_store || ins->op == DF_K_check || ins->op == DF_K_next;
}

static void kernel_find_live(df_aot_c *g)
{
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        const df_ins *const ins = &g->k->ins[i];
        df_aot_val *const v = &g->val[i];
        v->decides |= ins->op == DF_K_proceed;
        v->shown |= kernel_is_root(g, i);
        v->live = v->decides || v->shown || ins->op == DF_K_carry;
        if (g->pass == DF_AOT_FIN && df_aot_is_reduce(g, i)) continue;
        for (uint32_t j = 0; j < df_kop_infos[ins->op].n_src; j++) {
            if (ins->op == DF_K_next && j == 0) continue; /* the state, not a value of it */
            g->val[ins->src[j]].shown |= v->shown || ins->op == DF_K_carry;
            g->val[ins->src[j]].decides |= v->decides;
        }
    }
}

/* In COL and LOOP, values of row level that another loop over lanes reads. */
static void kernel_find_crossing(df_aot_c *g)
{
    if (g->k->mode != DF_MODE_COL && g->k->mode != DF_MODE_LOOP) return;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *const ins = &g->k->ins[i];
        if (!g->val[i].live) continue;
        for (uint32_t j = 0; j < df_kop_infos[ins->op].n_src; j++) {
            const df_ins *const src = &g->k->ins[ins->src[j]];
            const bool is_same = src->stage == ins->stage && src->level == ins->level;
            if (src->level == DF_LEVEL_ROW && !is_same && !g->val[ins->src[j]].uniform)
                g->val[ins->src[j]].crosses = true;
        }
    }
}

/* ---- functions ---- */

static void kernel_put_function(df_aot_c *g, df_aot_pass pass)
{
    static const char *const suffix[DF_AOT_N_PASSES] = { "", "_part", "_fin" };
    g->pass = pass;
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i] = (df_aot_val){ 0 };
    kernel_find_uniform(g);
    kernel_find_live(g);
    kernel_find_crossing(g);
    df_str_put(g->out, "\n");
    df_aot_line(g,
                "DF_AOT_KERNEL void %s%s(const struct df_aot_kargs *args, i64 o0, i64 o1, i64 i0, "
                "i64 i1)",
                g->name, suffix[pass]);
    df_aot_brace(g);
    df_aot_line(g, "if (o0 >= o1 || i0 >= i1) return;");
    df_aot_words(g);
    switch ((df_mode)g->k->mode) {
    case DF_MODE_MAP: df_aot_map(g); break;
    case DF_MODE_ROW: df_aot_row(g); break;
    case DF_MODE_COL: df_aot_col(g); break;
    case DF_MODE_LOOP: df_aot_loop(g); break;
    }
    df_aot_close(g);
}

deft_status df_aot_c_kernel(df_diag *d, const df_kernel *k, const int64_t *extents,
                            const char *name, df_str *out)
{
    const df_mem *const mem = out->mem;
    const size_t size = sizeof(df_aot_val) * (k->n_ins + 1u);
    int64_t nothing[DF_MAX_AXES];
    df_str s;
    df_aot_val *val = NULL;
    deft_status st = DEFT_OK;
    df_str_init(&s, mem);
    for (uint32_t x = 0; x < DF_MAX_AXES; x++) nothing[x] = DF_ANY;
    TRY(kernel_check(k, d));
    val = df_mem_alloc(mem, size);
    if (!val) TRY(df_fail_mem(d, "C export", size));
    df_aot_c g = { .k = k,
                   .name = name,
                   .extents = extents ? extents : nothing,
                   .out = &s,
                   .val = val,
                   .vec = -1 };
    g.vec = df_aot_axis(k, k->mode == DF_MODE_ROW ? DF_AXIS_RED : DF_AXIS_INNER);
    kernel_put_function(&g, DF_AOT_MAIN);
    if (k->flags & DF_KERNEL_SPLIT) {
        kernel_put_function(&g, DF_AOT_PART);
        kernel_put_function(&g, DF_AOT_FIN);
    }
    if (s.ok) df_str_putn(out, s.at, s.n);
    if (!s.ok || !out->ok) TRY(df_fail_mem(d, "C export", s.n));
done:
    df_mem_free(mem, val, size);
    df_str_finish(&s);
    return st;
}
