/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses kernels of attention.cu for a job, fills in their parameter, and writes their
 * text.
 *
 * Operands that were converted from halves are halves again in shared memory, exactly. The
 * operands k, v and dout are converted back unchanged. Operand q was multiplied by
 * 1 / sqrt(D) in f32, so it is multiplied by sqrt(D). The product is within 2 units in the
 * last place of f32 of the original, and rounding to a half gives the original. Scores and
 * dk are multiplied by 1 / sqrt(D) instead.
 */
#include "jit_cuda/kernels/attention.h"

#include "base/compiler.h"
#include "jit_cuda/attention_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IS_F32, IS_F16, IS_BF16, N_TYPES, N_WIDTHS = 4, ALIGN = 16, MOST_BLOCKS = 1 << 20 };

_Static_assert(ATTENTION_RANK == DEFT_MAX_RANK, "axes of a batch");
_Static_assert(DF_CUDA_ATTENTION_KERNELS == DF_CUDA_ATTENTION_N_PASSES * N_TYPES * N_WIDTHS &&
                   DF_CUDA_ATTENTION_KERNELS <= 64,
               "a set is a word");
_Static_assert(sizeof(attention_params) <= 4096, "a parameter of the oldest drivers");

/* ---- text ---- */

static uint32_t pass_of(uint32_t kernel)
{
    return kernel / (N_TYPES * N_WIDTHS);
}

static uint32_t type_of(uint32_t kernel)
{
    return kernel / N_WIDTHS % N_TYPES;
}

static uint32_t width_of(uint32_t kernel)
{
    return (kernel % N_WIDTHS + 1) * 32;
}

void df_cuda_attention_name(uint32_t kernel, char out[48])
{
    static const char *const passes[] = {
#define PASS(pass) #pass,
        DF_CUDA_ATTENTION_PASSES(PASS)
#undef PASS
    };
    static const char *const types[] = { "f32", "f16", "bf16" };
    snprintf(out, 48, "attention_%s_%s_%u", passes[pass_of(kernel)], types[type_of(kernel)],
             width_of(kernel));
}

static void put_entry(df_str *out, uint32_t kernel)
{
    static const char *const kinds[] = { "", "IS_F16, ", "IS_BF16, " };
    static const char *const by[] = { "", ", false", ", true" };
    char name[48];
    df_cuda_attention_name(kernel, name);
    df_str_fmt(
        out,
        "extern \"C\" __global__ void __launch_bounds__(%d, 1) %s(const attention_params a)\n"
        "{\n    attention%s_%s<%s%u%s>(a);\n}\n",
        ATTENTION_THREADS, name, pass_of(kernel) ? "_grad" : "", type_of(kernel) ? "halves" : "f32",
        kinds[type_of(kernel)], width_of(kernel), by[pass_of(kernel)]);
}

void df_cuda_attention_text(uint64_t kernels, df_str *out)
{
    df_str_putn(out, (const char *)attention_text, sizeof attention_text - 1);
    for (uint32_t i = 0; i < DF_CUDA_ATTENTION_KERNELS; i++)
        if (kernels >> i & 1) put_entry(out, i);
}

/* ---- which jobs are accepted ---- */

static bool is_read_wide(const df_cuda_attention_job *j, const df_cuda_matrix *m, bool in_blocks)
{
    bool wide = m->col == 1 && m->at % ALIGN == 0 && m->row % 4 == 0;
    if (in_blocks) wide &= m->block % 4 == 0;
    for (uint32_t i = 0; i < j->n_batch; i++) wide &= j->batch[i] == 1 || m->batch[i] % 4 == 0;
    return wide;
}

bool df_cuda_attention_takes(const df_cuda_attention_job *j, int arch)
{
    const bool is_grad = j->what.kind == DF_LOOP_ATTENTION_GRAD;
    int64_t n = j->n_queries;
    if (arch < 75 || j->what.kind == DF_LOOP_PLAIN || j->what.from == DEFT_F64) return false;
    for (uint32_t i = 0; i < j->n_batch; i++) n = j->batch[i] == 0 ? 0 : n;
    if (n == 0 || j->n_blocks == 0 || j->block != ATTENTION_BLOCK) return false;
    if (j->width != j->value_width || j->width <= 0 || j->width % 4 != 0 ||
        j->width > DF_CUDA_ATTENTION_MOST_WIDTH)
        return false;
    return is_read_wide(j, &j->q, false) && is_read_wide(j, &j->k, true) &&
           is_read_wide(j, &j->v, true) && (!is_grad || is_read_wide(j, &j->dout, false));
}

/* ---- the plan ---- */

static uint32_t kernel_type(const df_cuda_attention_job *j, int arch)
{
    if (arch < 80 || !j->what.is_scaled) return IS_F32;
    return j->what.from == DEFT_F16 ? IS_F16 : j->what.from == DEFT_BF16 ? IS_BF16 : IS_F32;
}

static attention_matrix matrix(const df_cuda_attention_job *j, const df_cuda_matrix *m)
{
    attention_matrix out = { .at = m->at, .row = m->row, .block = m->block };
    for (uint32_t i = 0; i < j->n_batch; i++) out.batch[i] = m->batch[i];
    return out;
}

/* Adds a launch. rows: the rows of a tile, at least. */
static void add(df_cuda_attention *out, df_cuda_attention_pass pass, uint32_t type, int64_t n_rows,
                int64_t rows)
{
    const uint32_t kernel =
        ((uint32_t)pass * N_TYPES + type) * N_WIDTHS + (uint32_t)(out->params.width - 1) / 32;
    const double n_blocks = (double)out->params.n_batch * (double)((n_rows + rows - 1) / rows);
    out->at[out->n].kernel = kernel;
    out->at[out->n++].n_blocks = n_blocks < (double)MOST_BLOCKS ? (uint32_t)n_blocks : MOST_BLOCKS;
    out->kernels |= (uint64_t)1 << kernel;
}

void df_cuda_attention_plan(const df_cuda_attention_job *j, int arch, df_cuda_attention *out)
{
    const uint32_t type = kernel_type(j, arch);
    const bool is_wide = j->width > 64;
    attention_params *const p = &out->params;
    *out = (df_cuda_attention){ 0 };
    *p = (attention_params){
        .q = matrix(j, &j->q),
        .k = matrix(j, &j->k),
        .v = matrix(j, &j->v),
        .dout = matrix(j, &j->dout),
        .m = j->m,
        .l = j->l,
        .acc = j->acc,
        .log_sum = j->log_sum,
        .less = j->less,
        .dq = j->dq,
        .dk = j->dk,
        .dv = j->dv,
        .n_queries = j->n_queries,
        .n_keys = j->n_blocks * j->block,
        .n_batch = 1,
        .rank = (int)j->n_batch,
        .width = (int)j->width,
        .is_causal = j->what.is_causal,
        .unscale = type == IS_F32 ? 1 : (float)sqrt((double)j->width),
        .scale = type == IS_F32 ? 1 : (float)(1 / sqrt((double)j->width)),
    };
    for (uint32_t i = 0; i < j->n_batch; i++) {
        p->extent[i] = j->batch[i];
        p->n_batch *= j->batch[i];
    }
    if (j->what.kind == DF_LOOP_ATTENTION) {
        if (j->m || j->l || j->acc)
            add(out, DF_CUDA_ATTENTION_forward, type, p->n_queries,
                type == IS_F32 && is_wide ? 32 : 64);
        return;
    }
    if (j->dq) add(out, DF_CUDA_ATTENTION_grad_q, type, p->n_queries, type == IS_F32 ? 32 : 64);
    if (j->dk || j->dv)
        add(out, DF_CUDA_ATTENTION_grad_kv, type, p->n_keys, type == IS_F32 ? 32 : 64);
}
