/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the text of a kernel: indented lines and braces, and the names of types. Also
 * answers simple questions about a kernel that every mode asks. Nothing here calls a mode.
 */
#include "jit_cuda/gen/gen.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- lines ---- */

/* The room is twice that of the longest line, a load along DF_MAX_AXES axes. */
static void put_line(df_cuda_gen *g, const char *end, const char *fmt, va_list args)
{
    char text[512];
    for (uint32_t i = 0; i < g->depth; i++) df_str_put(g->out, "  ");
    const int n = vsnprintf(text, sizeof text, fmt, args);
    df_assert(n >= 0 && (size_t)n < sizeof text);
    df_str_putn(g->out, text, (size_t)n);
    df_str_put(g->out, end);
}

void df_cuda_line(df_cuda_gen *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    put_line(g, "\n", fmt, args);
    va_end(args);
}

void df_cuda_open(df_cuda_gen *g, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    put_line(g, " {\n", fmt, args);
    va_end(args);
    g->depth++;
}

void df_cuda_brace(df_cuda_gen *g)
{
    df_cuda_line(g, "{");
    g->depth++;
}

void df_cuda_close(df_cuda_gen *g)
{
    g->depth--;
    df_cuda_line(g, "}");
}

/* ---- properties of a kernel ---- */

const char *df_cuda_type(uint8_t dtype)
{
    static const char *const names[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) #cuda,
#include "ops/dtypes.def"
    };
    return names[dtype];
}

bool df_cuda_is_reduce(const df_cuda_gen *g, uint32_t ins)
{
    return df_kop_infos[g->k->ins[ins].op].kind == DF_KOP_reduce;
}

bool df_cuda_is_scan(const df_cuda_gen *g, uint32_t ins)
{
    return df_kop_infos[g->k->ins[ins].op].kind == DF_KOP_scan;
}

bool df_cuda_has_elem(const df_cuda_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM) return true;
    return false;
}

bool df_cuda_row_stores(const df_cuda_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ROW &&
            g->k->ins[i].op == DF_K_store)
            return true;
    return false;
}

bool df_cuda_reduces(const df_cuda_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && df_cuda_is_reduce(g, i)) return true;
    return false;
}

bool df_cuda_scans(const df_cuda_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && df_cuda_is_scan(g, i)) return true;
    return false;
}
