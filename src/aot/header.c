/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of an exported program: its functions, with what each parameter is.
 */
#include "aot/program.h"

#include <ctype.h>
#include <string.h>

static const char *type_of(const program *p, const parameter *a)
{
    static const char *const types[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) [DEFT_##NAME] = #c_type,
#include "ops/dtypes.def"
    };
    return types[p->t->nodes[a->node].dtype];
}

static void put_shape(const program *p, const parameter *a, df_str *out)
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

/* "x        f32[128, n], read" */
static void put_parameter_note(const program *p, const parameter *a, df_str *out)
{
    df_str_fmt(out, " *   %-12s ", a->name);
    if (a->kind == PARAM_EXTENT) {
        df_str_put(out, "an extent, at least 0\n");
        return;
    }
    if (a->kind == PARAM_NUMBER) {
        df_str_fmt(out, "a number, used as %s\n",
                   a->dtype == DEFT_N_DTYPES ? "nothing" : deft_dtype_name(a->dtype));
        return;
    }
    df_str_put(out, deft_dtype_name((deft_dtype)p->t->nodes[a->node].dtype));
    put_shape(p, a, out);
    df_str_put(out, a->kind == PARAM_INPUT   ? ", read"
                    : a->kind == PARAM_INOUT ? ", read and written"
                                             : ", written");
    if (a->kind == PARAM_INPUT || a->kind == PARAM_INOUT) {
        const df_input *const in = &p->t->inputs[a->input];
        const uint32_t rank = p->t->nodes[a->node].rank;
        if (!df_strides_contiguous(df_trace_extents(p->t, a->node), in->stride, rank)) {
            df_str_put(out, "; strides, in elements: [");
            for (uint32_t x = 0; x < rank; x++)
                df_str_fmt(out, "%s%lld", x ? ", " : "", (long long)in->stride[x]);
            df_str_put(out, "]");
        }
    }
    if (a->kind == PARAM_OUTPUT && a->may_be != DF_NONE)
        df_str_fmt(out, "; may be the same array as %s", p->params.at[a->may_be].name);
    df_str_put(out, "\n");
}

void header_parameters(const program *p, df_str *out)
{
    for (size_t i = 0; i < p->params.n; i++) {
        const parameter *const a = &p->params.at[i];
        if (a->kind == PARAM_EXTENT)
            df_str_fmt(out, "int64_t %s, ", a->name);
        else if (a->kind == PARAM_NUMBER)
            df_str_fmt(out, "%s %s, ", program_is_double(a) ? "double" : "int64_t", a->name);
        else
            df_str_fmt(out, "%s%s *%s, ", a->kind == PARAM_INPUT ? "const " : "", type_of(p, a),
                       a->name);
    }
}

static const char threads_text[] =
    "#ifndef DEFT_EXPORTED\n"
    "#define DEFT_EXPORTED\n"
    "/* What exported functions return. */\n"
    "enum {\n"
    "    DEFT_EXPORTED_OK = 0,\n"
    "    DEFT_EXPORTED_EXTENT = 1,    /* the program does not accept these extents */\n"
    "    DEFT_EXPORTED_INDEX = 2,     /* an index was out of range; outputs have no values */\n"
    "    DEFT_EXPORTED_PROCESSOR = 3, /* no code for this processor */\n"
    "    DEFT_EXPORTED_ARGUMENT = 4,  /* the workspace is NULL */\n"
    "    DEFT_EXPORTED_COMPILER = 5   /* C was compiled with options that change results */\n"
    "};\n"
    "\n"
    "/* Threads of the caller. run calls task(data, i) for each i from 0 to n_tasks - 1, in any\n"
    " * order and on any threads, and returns when all calls have returned. n_tasks is at most n. "
    "*/\n"
    "typedef struct deft_threads {\n"
    "    int n;\n"
    "    void *user;\n"
    "    void (*run)(void *user, int n_tasks, void (*task)(void *data, int i), void *data);\n"
    "} deft_threads;\n"
    "#endif\n";

void header_write(const program *p, df_str *out)
{
    const char *const name = p->o->name;
    char upper[64];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof upper; n++) upper[n] = (char)toupper((unsigned char)name[n]);
    upper[n] = '\0';
    df_str_fmt(
        out,
        "/* %s: made by deft aot. Needs no library.\n"
        " *\n"
        " * Arrays are row-major, unless strides are given, and begin at an address that is a\n"
        " * multiple of the size of an element. No two of them may overlap, unless it says so\n"
        " * below. Any number of threads may call these functions at once, each with its own\n"
        " * workspace and arrays that are written.\n"
        " */\n"
        "#ifndef %s_H\n"
        "#define %s_H\n"
        "\n"
        "#include <stdint.h>\n"
        "\n"
        "#ifdef __cplusplus\n"
        "extern \"C\" {\n"
        "#endif\n"
        "\n",
        name, upper, upper);
    df_str_put(out, threads_text);
    df_str_put(out, "\n/* Runs the program. Returns one of the numbers above.\n *\n");
    for (size_t i = 0; i < p->params.n; i++) put_parameter_note(p, &p->params.at[i], out);
    df_str_fmt(out,
               " *   %-12s %s_workspace_bytes() bytes at any address\n"
               " *   %-12s NULL: this thread alone\n"
               " */\n"
               "int %s(",
               "workspace", name, "threads", name);
    header_parameters(p, out);
    df_str_fmt(
        out,
        "void *workspace,\n    const deft_threads *threads);\n"
        "\n"
        "/* Bytes of workspace for calls with so many threads (1 where threads is NULL).%s */\n"
        "int64_t %s_workspace_bytes(",
        p->n_extents ? " Returns -1 when\n * the program does not accept the extents." : "", name);
    for (uint32_t i = 0; i < p->n_extents; i++)
        df_str_fmt(out, "int64_t %s, ", p->params.at[i].name);
    df_str_fmt(out,
               "int64_t n_threads);\n"
               "\n"
               "#ifdef __cplusplus\n"
               "}\n"
               "#endif\n"
               "#endif /* %s_H */\n",
               upper);
}
