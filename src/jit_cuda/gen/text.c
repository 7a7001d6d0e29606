/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a kernel. What cannot be generated is refused with a sentence. Then each
 * requested phase gets one function template, whose parameters are the type of positions
 * and what else its entries differ in. Each entry only calls an instance of a template. The
 * text depends only on the kernel, its name and the entries.
 */
#include "jit_cuda/gen/gen.h"

#include <stdio.h>

#include "jit_cuda/prelude_text.h"

const char *df_cuda_prelude(size_t *n)
{
    *n = sizeof prelude_text - 1;
    return (const char *)prelude_text;
}

/* ---- what is refused ---- */

static deft_status check_ins(const df_cuda_gen *g, df_diag *d, uint32_t i)
{
    const df_kernel *const k = g->k;
    const df_ins *const ins = &k->ins[i];
    if (ins->op >= DF_N_KOPS || ins->dtype >= DF_N_RECORDED)
        return df_fail(d, DEFT_E_COMPILE, "cuda: instruction %u is none", i);
    const df_kop_info *const op = &df_kop_infos[ins->op];
    for (uint32_t j = 0; j < op->n_src; j++)
        if (ins->src[j] >= i)
            return df_fail(d, DEFT_E_COMPILE, "cuda: %s, instruction %u, reads instruction %u",
                           op->name, i, ins->src[j]);
    const uint8_t src = op->n_src ? k->ins[ins->src[0]].dtype : ins->dtype;
    if (!df_kop_takes((df_kop_types)op->types, (deft_dtype)ins->dtype, (deft_dtype)src))
        return df_fail(d, DEFT_E_COMPILE, "cuda: no %s of %s from %s", op->name,
                       deft_dtype_name((deft_dtype)ins->dtype), deft_dtype_name((deft_dtype)src));
    const bool touches = op->kind == DF_KOP_memory || ins->op == DF_K_index;
    if (touches && ins->imm >= k->n_access)
        return df_fail(d, DEFT_E_COMPILE, "cuda: %s of access %llu, of %u", op->name,
                       (unsigned long long)ins->imm, k->n_access);
    if (ins->op == DF_K_num && ins->imm >= k->n_num)
        return df_fail(d, DEFT_E_COMPILE, "cuda: number %llu, of %u", (unsigned long long)ins->imm,
                       k->n_num);
    if (ins->op == DF_K_check && !(k->flags & DF_KERNEL_CHECKS))
        return df_fail(d, DEFT_E_COMPILE, "cuda: a check in a kernel without DF_KERNEL_CHECKS");
    return DEFT_OK;
}

deft_status df_cuda_check(const df_cuda_gen *g, df_diag *d)
{
    const df_kernel *const k = g->k;
    deft_status st = DEFT_OK;
    if (k->mode > DF_MODE_LOOP || k->n_axes == 0 || k->n_axes > DF_MAX_AXES)
        TRY(df_fail(d, DEFT_E_COMPILE, "cuda: mode %u with %u axes", k->mode, k->n_axes));
    for (uint32_t i = 0; i < k->n_ins; i++) TRY(check_ins(g, d, i));
done:
    return st;
}

deft_status df_cuda_can(df_diag *d, const df_kernel *k)
{
    const df_cuda_gen g = { .k = k };
    return df_cuda_check(&g, d);
}

static deft_status check_entry(const df_kernel *k, df_diag *d, df_cuda_entry e)
{
    if (e.pass >= DF_CUDA_N_PASSES || (e.pass != DF_CUDA_MAIN && !(k->flags & DF_KERNEL_SPLIT)))
        return df_fail(d, DEFT_E_COMPILE, "cuda: pass %u of a kernel that has none", e.pass);
    const bool may_be_wide =
        k->mode == DF_MODE_MAP ||
        ((k->mode == DF_MODE_ROW || k->mode == DF_MODE_COL) && e.pass != DF_CUDA_FIN);
    if ((e.flags & DF_CUDA_WIDE && !may_be_wide) ||
        (e.flags & (DF_CUDA_LONG | DF_CUDA_HELD) &&
         (k->mode != DF_MODE_ROW || e.pass != DF_CUDA_MAIN)) ||
        (e.flags & DF_CUDA_HELD && df_cuda_held_of(k).n == 0))
        return df_fail(d, DEFT_E_COMPILE, "cuda: flags %u mean nothing here", e.flags);
    if (!(e.flags & DF_CUDA_MANY) && !df_cuda_by_value(k))
        return df_fail(d, DEFT_E_COMPILE, "cuda: %u words do not go by value: %d bytes do",
                       df_cuda_layout(k, NULL, NULL), DF_CUDA_PARAM_BYTES);
    return DEFT_OK;
}

/* ---- entries ---- */

static const char *const pass_names[] = { "main", "part", "fin" };

void df_cuda_entry_name(const char *name, df_cuda_entry e, char *out, size_t cap)
{
    snprintf(out, cap, "%s_%s_%s%s%s%s%s", name, pass_names[e.pass],
             e.flags & DF_CUDA_NARROW ? "n" : "x", e.flags & DF_CUDA_WIDE ? "w" : "",
             e.flags & DF_CUDA_LONG ? "l" : "", e.flags & DF_CUDA_HELD ? "h" : "",
             e.flags & DF_CUDA_MANY ? "m" : "");
}

static void put_entry(df_cuda_gen *g, df_cuda_entry e)
{
    const char *const index = e.flags & DF_CUDA_NARROW ? "i32" : "i64";
    const uint32_t n_words = df_cuda_layout(g->k, NULL, NULL);
    char name[64], more[16] = "";
    df_cuda_entry_name(g->name, e, name, sizeof name);
    if (g->k->mode == DF_MODE_MAP)
        snprintf(more, sizeof more, ", %u, %u", e.flags & DF_CUDA_WIDE ? df_cuda_lanes(g->k) : 1,
                 df_cuda_packs(g->k, e.flags));
    if (g->k->mode == DF_MODE_COL && e.pass != DF_CUDA_FIN)
        snprintf(more, sizeof more, ", %u", e.flags & DF_CUDA_WIDE ? df_cuda_lanes(g->k) : 1);
    if (g->k->mode == DF_MODE_ROW && e.pass == DF_CUDA_MAIN)
        snprintf(more, sizeof more, ", %d, %d, %d", (e.flags & DF_CUDA_LONG) != 0,
                 (e.flags & DF_CUDA_WIDE) != 0, (e.flags & DF_CUDA_HELD) != 0);
    if (g->k->mode == DF_MODE_ROW && e.pass == DF_CUDA_PART)
        snprintf(more, sizeof more, ", %d", (e.flags & DF_CUDA_WIDE) != 0);
    const char *const pass = pass_names[e.pass];
    const uint32_t threads = df_cuda_threads(g->k, (df_cuda_pass)e.pass);
    /* With 1 the assembler does not spill registers in order to fill the multiprocessor. */
    df_str_fmt(g->out, "extern \"C\" __global__ void __launch_bounds__(%u, 1) %s(", threads, name);
    if (e.flags & DF_CUDA_MANY) {
        df_cuda_open(g, "const many a)");
        df_cuda_line(g, "const u32 s = segment_of(a, blockIdx.x), first = a.first[s];");
        df_cuda_line(g,
                     "%s_%s<%s%s>(a.table + s * %uull, blockIdx.x - first, end_of(a, s) - first);",
                     g->name, pass, index, more, n_words);
    } else {
        df_cuda_open(g, "const one<%u> a)", n_words);
        df_cuda_line(g, "%s_%s<%s%s>(a.w, blockIdx.x, gridDim.x);", g->name, pass, index, more);
    }
    df_cuda_close(g);
}

static size_t shared_memory(const df_cuda_gen *g)
{
    if (g->k->mode == DF_MODE_COL) return df_cuda_col_shared(g, 1);
    if (g->k->mode != DF_MODE_ROW) return 0;
    const size_t warps = df_cuda_row_shared(g, false), team = df_cuda_row_shared(g, true);
    return warps > team ? warps : team;
}

/* Sets g->lean: stacks of reductions are in local memory when shared memory is too small. */
static void choose_stacks(df_cuda_gen *g)
{
    g->lean = shared_memory(g) > DF_CUDA_SHARED_BYTES;
    df_assert(shared_memory(g) <= DF_CUDA_SHARED_BYTES);
}

static void put_function(df_cuda_gen *g, df_cuda_pass pass)
{
    g->pass = pass;
    switch ((df_mode)g->k->mode) {
    case DF_MODE_MAP: df_cuda_map(g); break;
    case DF_MODE_ROW: df_cuda_row(g); break;
    case DF_MODE_COL: df_cuda_col(g); break;
    case DF_MODE_LOOP: df_cuda_loop(g); break;
    }
}

deft_status df_cuda_text(df_diag *d, const df_kernel *k, const char *name,
                         const df_cuda_entry *entry, uint32_t n, const df_mem *mem, df_str *out)
{
    df_str s;
    df_cuda_gen g = { .k = k, .name = name, .out = &s };
    deft_status st = DEFT_OK;
    df_str_init(&s, mem);
    TRY(df_cuda_check(&g, d));
    choose_stacks(&g);
    g.held = df_cuda_held_of(k);
    for (uint32_t i = 0; i < n; i++) TRY(check_entry(k, d, entry[i]));
    for (int pass = 0; pass < DF_CUDA_N_PASSES; pass++) {
        bool wanted = false;
        for (uint32_t i = 0; i < n; i++) wanted |= entry[i].pass == pass;
        if (wanted) put_function(&g, (df_cuda_pass)pass);
    }
    for (uint32_t i = 0; i < n; i++) put_entry(&g, entry[i]);
    if (s.ok) df_str_putn(out, s.at ? s.at : "", s.n);
    if (!s.ok || !out->ok) TRY(df_fail_mem(d, "cuda text", s.n));
done:
    df_str_finish(&s);
    return st;
}
