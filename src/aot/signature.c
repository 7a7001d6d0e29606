/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of an exported program: a line for the program, and one for each parameter. A
 * shared library has it in its note, and its header has it too (runtime/exported.h). Two programs
 * of one signature can be called in the same way.
 */
#include "aot/program.h"

void signature_put_shape(const program *p, const parameter *a, df_str *out)
{
    const df_node *const n = &p->t->nodes[a->node];
    df_str_put(out, "[");
    for (uint32_t x = 0; x < n->rank; x++) {
        const uint32_t open = program_open_extent(p, a->node, x);
        if (x > 0) df_str_put(out, ", ");
        if (open != DF_NONE)
            df_str_put(out, p->params.at[open].name);
        else
            df_str_fmt(out, "%lld", (long long)df_trace_extents(p->t, a->node)[x]);
    }
    df_str_put(out, "]");
}

void signature_put_strides(const program *p, const parameter *a, const char *before, df_str *out)
{
    if (a->kind != PARAM_INPUT && a->kind != PARAM_INOUT) return;
    const df_input *const in = &p->t->inputs[a->input];
    const uint32_t rank = p->t->nodes[a->node].rank;
    if (df_strides_contiguous(df_trace_extents(p->t, a->node), in->stride, rank)) return;
    df_str_fmt(out, "%s[", before);
    for (uint32_t x = 0; x < rank; x++)
        df_str_fmt(out, "%s%lld", x ? ", " : "", (long long)in->stride[x]);
    df_str_put(out, "]");
}

const char *signature_dtype(const program *p, const parameter *a)
{
    return deft_dtype_name((deft_dtype)p->t->nodes[a->node].dtype);
}

static void put_line(const program *p, const parameter *a, df_str *out)
{
    if (a->kind == PARAM_EXTENT) {
        df_str_fmt(out, "extent %s\n", a->name);
        return;
    }
    if (a->kind == PARAM_NUMBER) {
        df_str_fmt(out, "%s %s\n", program_is_double(a) ? "double" : "integer", a->name);
        return;
    }
    df_str_fmt(out, "%s %s %s",
               a->kind == PARAM_INPUT   ? "read"
               : a->kind == PARAM_INOUT ? "change"
                                        : "write",
               a->name, signature_dtype(p, a));
    signature_put_shape(p, a, out);
    signature_put_strides(p, a, " strides ", out);
    if (a->kind == PARAM_OUTPUT && a->may_be != DF_NONE)
        df_str_fmt(out, " or %s", p->params.at[a->may_be].name);
    df_str_put(out, "\n");
}

void signature_write(const program *p, df_str *out)
{
    df_str_fmt(out, "program %s\n", p->o->name);
    for (size_t i = 0; i < p->params.n; i++) put_line(p, &p->params.at[i], out);
}
