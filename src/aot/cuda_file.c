/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an exported program for GPUs: its header, and a C file with the tables of its launches,
 * its code, and the runtime part (rt/cuda.c) as text.
 */
#include "aot/program.h"

#include <stdio.h>
#include <string.h>

#include "aot/rt_objects.h"
#include "base/hash.h"

enum { TABLE_PIECE = 512, WORDS_PER_LINE = 6 };

/* ---- the header ---- */

/* The arguments of NAME_run but for the module, the stream and the workspace. */
static void put_parameters(const program *p, df_str *out)
{
    for (size_t i = 0; i < p->params.n; i++) {
        const parameter *const a = &p->params.at[i];
        df_str_fmt(out, "%s %s, ",
                   a->kind != PARAM_NUMBER ? "uint64_t"
                   : program_is_double(a)  ? "double"
                                           : "int64_t",
                   a->name);
    }
}

static uint64_t signature_hash(const program *p, bool *ok)
{
    df_str text;
    df_str_init(&text, p->mem);
    signature_write(p, &text);
    df_str_fmt(&text, "%u programs, %u functions, %lld bytes\n", p->gpu.n_programs,
               p->gpu.n_functions, (long long)p->gpu.workspace_bytes);
    *ok = text.ok;
    const df_hash h = df_hash_bytes(text.at ? text.at : "", text.n);
    df_str_finish(&text);
    return h.lo;
}

static const char prototypes[] =
    "typedef struct %s_module {\n"
    "    deft_cuda_state state;\n"
    "    void *code[%u], *function[%u]; /* private */\n"
    "} %s_module;\n"
    "\n"
    "/* Loads the program into the current context, with its constants. Waits. */\n"
    "#define %s_load(module) %s_load_signed(module, UINT64_C(0x%llx))\n"
    "int %s_load_signed(%s_module *module, uint64_t signature);\n"
    "\n"
    "/* Gives back what was loaded. Nothing of it may run any more. */\n"
    "void %s_unload(%s_module *module);\n"
    "\n"
    "/* Bytes of workspace, in device memory, for a run. */\n"
    "int64_t %s_workspace_bytes(void);\n"
    "\n"
    "/* Puts a run into the stream (a CUstream), and does not wait. Addresses are those of device\n"
    " * memory (CUdeviceptr).\n"
    " *\n";

static void cuda_header_write(const program *p, df_str *out)
{
    const char *const name = p->o->name;
    char upper[HEADER_NAME];
    bool ok;
    header_upper(p, upper);
    df_str_fmt(
        out,
        "/* %s: made by deft aot, for NVIDIA GPUs. Needs the Driver API (libcuda) alone.\n"
        " *\n"
        " * Arrays are row-major, unless strides are given, and begin at an address that is a\n"
        " * multiple of 16; so does the workspace. No two of them may overlap, unless it says\n"
        " * so below. A module is for one thread at a time; runs in several streams may be in\n"
        " * flight at once, each with its own workspace and arrays that are written.\n"
        " *\n"
        " * The context into which the program was loaded must be current in every call.\n"
        " */\n"
        "#ifndef %s_H\n"
        "#define %s_H\n"
        "\n"
        "#ifdef __cplusplus\n"
        "extern \"C\" {\n"
        "#endif\n"
        "\n",
        name, upper, upper);
    df_str_putn(out, (const char *)rt_text_cuda_h, sizeof rt_text_cuda_h);
    df_str_put(out, "\n");
    const uint64_t hash = signature_hash(p, &ok);
    if (!ok) out->ok = false;
    df_str_fmt(out, prototypes, name, p->gpu.n_programs ? p->gpu.n_programs : 1,
               p->gpu.n_functions ? p->gpu.n_functions : 1, name, name, name,
               (unsigned long long)hash, name, name, name, name, name);
    header_parameter_notes(p, out);
    df_str_fmt(out,
               " *   %-12s %s_workspace_bytes() bytes of device memory\n"
               " */\n"
               "int %s_run(%s_module *module, void *stream, ",
               "workspace", name, name, name);
    put_parameters(p, out);
    df_str_fmt(
        out,
        "uint64_t workspace);\n"
        "\n"
        "/* Waits for the stream. Returns DEFT_CUDA_INDEX when an index was out of range in the\n"
        " * latest run with this workspace. %s */\n"
        "int %s_finish(%s_module *module, void *stream, uint64_t workspace);\n"
        "\n"
        "#ifdef __cplusplus\n"
        "}\n"
        "#endif\n"
        "#endif /* %s_H */\n",
        p->gpu.has_checks ? "The workspace must not have been used for anything else."
                          : "This program checks none.",
        name, name, upper);
}

/* ---- tables ---- */

/* Appends n bytes as words; the last one is filled up with zeros. */
static void gpu_put_bytes(const void *bytes, size_t n, df_str *out)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + i, n - i < 8 ? n - i : 8);
        df_str_fmt(out, "%s0x%llx,", i / 8 % WORDS_PER_LINE ? " " : "\n    ",
                   (unsigned long long)word);
    }
    df_str_put(out, n ? "\n};\n" : " 0 };\n");
}

/* The first of n rows, in the order of `at`, whose word is no less than `word`. */
static uint32_t first_fix(const program *p, uint32_t word)
{
    uint32_t i = 0;
    while (i < p->gpu.n_fixes && p->gpu.fix[i].at < word) i++;
    return i;
}

static uint32_t first_number(const program *p, uint32_t word)
{
    uint32_t i = 0;
    while (i < p->gpu.n_numbers && p->gpu.number[i].at < word) i++;
    return i;
}

static void gpu_put_range(const program *p, uint32_t first, uint32_t n, df_str *out)
{
    const uint32_t fix = first_fix(p, first), number = first_number(p, first);
    df_str_fmt(out, "{ %uu, %uu, %uu, %uu, %uu, %uu }", first, n, fix,
               first_fix(p, first + n) - fix, number, first_number(p, first + n) - number);
}

/* The range that has word `at`: its first word. */
static uint32_t gpu_range_of(const program *p, uint32_t at)
{
    if (at < p->gpu.n_table) return at - at % TABLE_PIECE;
    for (uint32_t i = 0; i < p->gpu.n_steps; i++) {
        const df_gpu_step *const s = &p->gpu.step[i];
        if (at >= s->first && at - s->first < s->n_words) return s->first;
    }
    return 0; /* of a launch that an export leaves out; nothing reads it */
}

static void gpu_put_fixes(const program *p, df_str *out)
{
    df_str_put(out, "static const cuda_fix program_fixes[] = {\n");
    for (uint32_t i = 0; i < p->gpu.n_fixes; i++) {
        const df_gpu_fix *const f = &p->gpu.fix[i];
        const gpu_place place = gpu_place_of(p, f->origin);
        df_str_fmt(out, "    { %uu, %uu, INT64_C(%lld) },\n", f->at - gpu_range_of(p, f->at),
                   place.origin, (long long)(f->add + place.add));
    }
    df_str_put(out, p->gpu.n_fixes ? "};\n" : "    { 0 } };\n");
    df_str_put(out, "static const cuda_number program_numbers[] = {\n");
    for (uint32_t i = 0; i < p->gpu.n_numbers; i++) {
        const df_gpu_number *const n = &p->gpu.number[i];
        const uint32_t k = program_number(p, n->arg);
        df_str_fmt(out, "    { UINT64_C(%llu), %uu, %uu, %uu, %uu, %uu, 0u },\n",
                   (unsigned long long)p->o->number[k].add, n->at - gpu_range_of(p, n->at),
                   gpu_number_index(p, p->number[k]), program_as_dtype(n->dtype),
                   (uint32_t)deft_dtype_size(n->dtype), p->o->number[k].is_integer);
    }
    df_str_put(out, p->gpu.n_numbers ? "};\n" : "    { 0 } };\n");
}

static void gpu_put_steps(const program *p, df_str *out)
{
    df_str_put(out, "static const cuda_range program_table[] = {\n");
    for (uint32_t i = 0; i < p->gpu.n_table; i += TABLE_PIECE) {
        const uint32_t left = p->gpu.n_table - i;
        df_str_put(out, "    ");
        gpu_put_range(p, i, left < TABLE_PIECE ? left : TABLE_PIECE, out);
        df_str_put(out, ",\n");
    }
    df_str_put(out, p->gpu.n_table ? "};\n" : "    { 0 } };\n");
    df_str_put(out, "static const cuda_step program_steps[] = {\n");
    for (uint32_t i = 0; i < p->gpu.n_steps; i++) {
        const df_gpu_step *const s = &p->gpu.step[i];
        df_str_fmt(out, "    { %uu, %uu, %uu, %uu, ", s->function, s->n_blocks, s->n_threads,
                   s->shared);
        gpu_put_range(p, s->first, s->n_words, out);
        df_str_put(out, " },\n");
    }
    df_str_put(out, p->gpu.n_steps ? "};\n" : "    { 0 } };\n");
    df_str_put(out, "static const cuda_copy program_copies[] = {\n");
    for (uint32_t i = 0; i < p->gpu.n_copies; i++) {
        const df_gpu_copy *const c = &p->gpu.copy[i];
        const df_gpu_origin to = { DF_GPU_ORIGIN_ROOT, c->root };
        df_str_fmt(out, "    { %uu, %uu, %lluu, %uu, %uu },\n", gpu_place_of(p, to).origin,
                   gpu_place_of(p, c->from).origin, (unsigned long long)c->bytes, c->is_last,
                   c->may_be);
    }
    df_str_put(out, p->gpu.n_copies ? "};\n" : "    { 0 } };\n");
}

static void gpu_put_code(const program *p, df_str *out)
{
    const df_gpu_export *const g = &p->gpu;
    for (uint32_t a = 0; a < g->n_archs; a++)
        for (uint32_t i = 0; i < g->n_programs; i++) {
            const df_gpu_code *const c = &g->code[a * g->n_programs + i];
            df_str_fmt(out, "static const uint64_t code%u_%u[] = { /* %s_%d */", a, i,
                       a + 1 == g->n_archs ? "compute" : "sm", g->arch[a]);
            gpu_put_bytes(c->at, c->size, out);
        }
    df_str_put(out, "static const uint64_t *const program_code[] = {");
    for (uint32_t i = 0; i < g->n_archs * g->n_programs; i++)
        df_str_fmt(out, " code%u_%u,", i / g->n_programs, i % g->n_programs);
    df_str_put(out, g->n_programs ? " };\n" : " NULL };\n");
    df_str_put(out, "static const int program_arch[] = {");
    for (uint32_t a = 0; a < g->n_archs; a++) df_str_fmt(out, " %d,", g->arch[a]);
    df_str_put(out, " };\nstatic const cuda_function program_functions[] = {\n");
    for (uint32_t i = 0; i < g->n_functions; i++)
        df_str_fmt(out, "    { %uu, \"%s\" },\n", g->function[i].program, g->function[i].name);
    df_str_put(out, g->n_functions ? "};\n" : "    { 0u, NULL } };\n");
}

/* The bytes that an array of the caller must have. Those with strides may have more. */
static int64_t bytes_of_array(const program *p, const parameter *a)
{
    return df_trace_numel(p->t, a->node) *
           (int64_t)deft_dtype_size((deft_dtype)p->t->nodes[a->node].dtype);
}

static void gpu_put_program(const program *p, bool *ok, df_str *out)
{
    const df_gpu_export *const g = &p->gpu;
    df_str_put(out, "static const uint64_t program_bytes[] = {");
    for (size_t i = 0; i < p->params.n; i++)
        if (p->params.at[i].kind != PARAM_NUMBER)
            df_str_fmt(out, " %lluu,", (unsigned long long)bytes_of_array(p, &p->params.at[i]));
    df_str_fmt(out, " %lluu, %lluu };\n", (unsigned long long)p->data.n,
               (unsigned long long)g->workspace_bytes);
    df_str_put(out, "static const uint64_t program_words[] = {");
    gpu_put_bytes(g->word, g->n_words * sizeof *g->word, out);
    df_str_put(out, "static const uint64_t program_data[] = {");
    gpu_put_bytes(p->data.at, p->data.n, out);
    df_str_fmt(out,
               "static const cuda_program program = {\n"
               "    .arch = program_arch, .code = program_code, .functions = program_functions,\n"
               "    .words = program_words, .fixes = program_fixes, .numbers = program_numbers,\n"
               "    .table = program_table, .steps = program_steps, .copies = program_copies,\n"
               "    .origin_bytes = program_bytes, .data = program_data, .data_bytes = %lluu,\n"
               "    .signature = UINT64_C(0x%llx), .n_archs = %uu, .n_programs = %uu,\n"
               "    .n_functions = %uu, .n_table = %uu, .n_steps = %uu, .n_copies = %uu,\n"
               "    .n_origins = %uu, .has_checks = %uu\n"
               "};\n\n",
               (unsigned long long)p->data.n, (unsigned long long)signature_hash(p, ok), g->n_archs,
               g->n_programs, g->n_functions, (g->n_table + TABLE_PIECE - 1) / TABLE_PIECE,
               g->n_steps, g->n_copies, gpu_n_arrays(p) + 2, g->has_checks);
}

static void gpu_put_functions(const program *p, df_str *out)
{
    const char *const name = p->o->name;
    df_str_fmt(out,
               "int %s_load_signed(%s_module *module, uint64_t signature)\n"
               "{\n"
               "    return cuda_load(&program, signature, &module->state, module->code,\n"
               "                     module->function);\n"
               "}\n\n"
               "void %s_unload(%s_module *module)\n"
               "{\n"
               "    cuda_unload(&program, &module->state, module->code);\n"
               "}\n\n"
               "int64_t %s_workspace_bytes(void)\n"
               "{\n"
               "    return INT64_C(%lld);\n"
               "}\n\n"
               "int %s_run(%s_module *module, void *stream, ",
               name, name, name, name, name, (long long)p->gpu.workspace_bytes, name, name);
    put_parameters(p, out);
    df_str_put(out, "uint64_t workspace)\n"
                    "{\n"
                    "    const uint64_t origin[] = { ");
    for (size_t i = 0; i < p->params.n; i++)
        if (p->params.at[i].kind != PARAM_NUMBER) df_str_fmt(out, "%s, ", p->params.at[i].name);
    df_str_put(out, "module->state.data, workspace };\n"
                    "    const uint64_t given[] = { ");
    for (size_t i = 0; i < p->params.n; i++)
        if (p->params.at[i].kind == PARAM_NUMBER)
            df_str_fmt(out, "%s(%s), ",
                       program_is_double(&p->params.at[i]) ? "aot_bits_of_double" : "(uint64_t)",
                       p->params.at[i].name);
    df_str_fmt(out,
               "0 };\n"
               "    return cuda_run(&program, &module->state, module->function, stream, origin,\n"
               "                    given);\n"
               "}\n\n"
               "int %s_finish(%s_module *module, void *stream, uint64_t workspace)\n"
               "{\n"
               "    return cuda_finish(&program, &module->state, stream, workspace);\n"
               "}\n",
               name, name);
}

deft_status cuda_file_write(const program *p, df_str *header, df_str *out)
{
    bool ok = true;
    cuda_header_write(p, header);
    df_str_putn(out, header->at ? header->at : "", header->n);
    df_str_put(out, "\n/* ---- the runtime part ---- */\n\n");
    text_put_runtime(out, rt_text_number_h, sizeof rt_text_number_h);
    text_put_runtime(out, rt_text_cuda_c, sizeof rt_text_cuda_c);
    df_str_put(out, "\n/* ---- the program ---- */\n\n");
    gpu_put_fixes(p, out);
    gpu_put_steps(p, out);
    gpu_put_code(p, out);
    gpu_put_program(p, &ok, out);
    gpu_put_functions(p, out);
    return out->ok && header->ok && ok ? DEFT_OK : df_fail_mem(p->d, "export", out->cap);
}
