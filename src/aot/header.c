/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of an exported program: its functions, with what each parameter is.
 */
#include "aot/program.h"

#include <ctype.h>
#include <string.h>

#include "aot/rt_objects.h"

static const char *type_of(const program *p, const parameter *a)
{
    static const char *const types[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) [DEFT_##NAME] = #c_type,
#include "ops/dtypes.def"
    };
    return types[p->t->nodes[a->node].dtype];
}

/* "x        f32[128, n], read" */
static void put_parameter_note(const program *p, const parameter *a, df_str *out)
{
    df_str_fmt(out, " *   %-12s ", a->name);
    if (a->kind == PARAM_EXTENT) {
        df_str_fmt(out, "an extent, at least %lld", (long long)a->bounds.least);
        if (a->bounds.most) df_str_fmt(out, ", at most %lld", (long long)a->bounds.most);
        df_str_put(out, "\n");
        return;
    }
    if (a->kind == PARAM_NUMBER) {
        df_str_put(out, "a number, used as");
        for (uint32_t t = 0, n = 0; t < DEFT_N_DTYPES; t++)
            if (a->used_as >> t & 1)
                df_str_fmt(out, "%s %s", n++ ? "," : "", deft_dtype_name((deft_dtype)t));
        if (!a->used_as) df_str_put(out, " nothing");
        if (a->n_draws > 0) df_str_fmt(out, "; a call takes %u, from this one on", a->n_draws);
        df_str_put(out, "\n");
        return;
    }
    df_str_put(out, signature_dtype(p, a));
    signature_put_shape(p, a, out);
    df_str_put(out, a->kind == PARAM_INPUT   ? ", read"
                    : a->kind == PARAM_INOUT ? ", read and written"
                                             : ", written");
    signature_put_strides(p, a, "; strides, in elements: ", out);
    if (a->kind == PARAM_OUTPUT && a->may_be != DF_NONE)
        df_str_fmt(out, "; may be the same array as %s", p->params.at[a->may_be].name);
    df_str_put(out, "\n");
}

void header_parameter_notes(const program *p, df_str *out)
{
    for (size_t i = 0; i < p->params.n; i++) put_parameter_note(p, &p->params.at[i], out);
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

/* Appends a text as a string of C, a line of it in each line. */
static void put_string(const char *text, df_str *out)
{
    df_str_put(out, "\"");
    for (; *text; text++) {
        if (*text != '\n')
            df_str_putc(out, *text);
        else
            df_str_put(out, text[1] ? "\\n\"\n        \"" : "\\n");
    }
    df_str_put(out, "\"");
}

/* The parameters of a pointer to the program, and of one to its workspace_bytes. */
static void put_pointers(const program *p, df_str *out)
{
    df_str_put(out, "    int (*run)(");
    header_parameters(p, out);
    df_str_put(out, "void *workspace,\n        const deft_threads *threads);\n"
                    "    int64_t (*workspace_bytes)(");
    for (uint32_t i = 0; i < p->n_extents; i++)
        df_str_fmt(out, "int64_t %s, ", p->params.at[i].name);
    df_str_put(out, "int64_t n_threads);\n");
}

/* The function that opens the program as a shared library. */
static void put_opener(const program *p, df_str *out)
{
    const char *const name = p->o->name;
    df_str signature;
    df_str_init(&signature, p->mem);
    signature_write(p, &signature);
    if (!signature.ok) out->ok = false;
    df_str_fmt(out,
               "\n/* %s.so, opened while the program runs. */\n"
               "typedef struct %s_library {\n"
               "    void *handle; /* NULL: not open */\n",
               name, name);
    put_pointers(p, out);
    df_str_fmt(
        out,
        "} %s_library;\n\n"
        "/* Opens the library at path. It must be complete, of this version, and have the\n"
        " * parameters that are declared here; all this is checked before any of its code\n"
        " * runs. Else it returns DEFT_EXPORTED_FILE, DEFT_EXPORTED_VERSION or\n"
        " * DEFT_EXPORTED_SIGNATURE, with a sentence of at most n bytes. */\n"
        "static inline int %s_open(%s_library *l, const char *path, char *sentence, size_t n)\n"
        "{\n"
        "    const char *const signature =\n        ",
        name, name, name);
    put_string(signature.ok && signature.at ? signature.at : "", out);
    df_str_fmt(out,
               ";\n"
               "    const char *const names[2] = { \"%s\", \"%s_workspace_bytes\" };\n"
               "    void *functions[2];\n"
               "    const int st = deft_exported_open(path, signature, names, functions,\n"
               "                                      &l->handle, sentence, n);\n"
               "    if (st != DEFT_EXPORTED_OK) return st;\n"
               "    memcpy(&l->run, &functions[0], sizeof l->run);\n"
               "    memcpy(&l->workspace_bytes, &functions[1], sizeof l->workspace_bytes);\n"
               "    return DEFT_EXPORTED_OK;\n"
               "}\n\n"
               "static inline void %s_close(%s_library *l)\n"
               "{\n"
               "    if (l->handle) (void)dlclose(l->handle);\n"
               "    l->handle = NULL;\n"
               "}\n",
               name, name, name, name);
    df_str_finish(&signature);
}

void header_upper(const program *p, char out[HEADER_NAME])
{
    const char *const name = p->o->name;
    size_t n = 0;
    for (; name[n] && n + 1 < HEADER_NAME; n++) out[n] = (char)toupper((unsigned char)name[n]);
    out[n] = '\0';
}

void header_write(const program *p, df_str *out)
{
    const char *const name = p->o->name;
    char upper[HEADER_NAME];
    header_upper(p, upper);
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
    if (p->o->wants_shared) {
        df_str_put(out, "\n");
        df_str_putn(out, (const char *)rt_text_exported_h, sizeof rt_text_exported_h);
    }
    df_str_put(out, "\n/* Runs the program. Returns one of the numbers above.\n *\n");
    header_parameter_notes(p, out);
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
    df_str_put(out, "int64_t n_threads);\n");
    if (p->o->wants_shared) put_opener(p, out);
    df_str_fmt(out,
               "\n"
               "#ifdef __cplusplus\n"
               "}\n"
               "#endif\n"
               "#endif /* %s_H */\n",
               upper);
}
