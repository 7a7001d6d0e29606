/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an exported program as one C11 file: its header, the prelude of kernels (c.h), the runtime
 * part as text, the kernels, and the arrays of the image.
 */
#include "aot/program.h"

#include <stdio.h>
#include <string.h>

#include "aot/c.h"
#include "aot/facts.h"
#include "aot/rt_objects.h"

enum { NAME = 32, PER_LINE = 16 };

/* ---- text ---- */

DF_NOINLINE void text_put_runtime(df_str *out, const unsigned char *text, size_t n)
{
    const char *at = (const char *)text, *const end = at + n;
    while (at < end) {
        const char *const line = memchr(at, '\n', (size_t)(end - at));
        const size_t length = line ? (size_t)(line - at) + 1 : (size_t)(end - at);
        static const char skipped[] = "#include \"";
        if (length < sizeof skipped || memcmp(at, skipped, sizeof skipped - 1) != 0)
            df_str_putn(out, at, length);
        at += length;
    }
}

/* Appends an array of n structs of `words` words of 4 bytes each. */
static void put_rows(df_str *out, const char *type, const char *name, const void *rows, size_t n,
                     size_t words)
{
    const uint32_t *at = rows;
    df_str_fmt(out, "static const %s %s[] = {\n", type, name);
    for (size_t i = 0; i < n; i++) {
        df_str_put(out, "    { ");
        for (size_t k = 0; k < words; k++) df_str_fmt(out, "%s%uu", k ? ", " : "", *at++);
        df_str_put(out, " },\n");
    }
    df_str_put(out, n ? "};\n" : "    { 0 } };\n");
}

static void put_long(df_str *out, int64_t v)
{
    if (v == INT64_MIN)
        df_str_put(out, "INT64_MIN");
    else
        df_str_fmt(out, "INT64_C(%lld)", (long long)v);
}

static void put_longs(df_str *out, const char *name, const int64_t *at, size_t n)
{
    df_str_fmt(out, "static const int64_t %s[] = {", name);
    for (size_t i = 0; i < n; i++) {
        df_str_put(out, i % 8 ? " " : "\n    ");
        put_long(out, at[i]);
        df_str_put(out, ",");
    }
    df_str_put(out, n ? "\n};\n" : " 0 };\n");
}

static void put_data(const program *p, df_str *out)
{
    df_str_put(out, "_Alignas(64) static const unsigned char image_data[] = {");
    for (size_t i = 0; i < p->data.n; i++)
        df_str_fmt(out, "%s%u,", i % PER_LINE ? "" : "\n", (unsigned char)p->data.at[i]);
    df_str_put(out, p->data.n ? "\n};\n" : " 0 };\n");
}

/* ---- the image ---- */

#define ROWS(v, type, name)                                                                        \
    put_rows(out, type, name, p->v.at, p->v.n, sizeof *p->v.at / sizeof(uint32_t))

static void put_arrays(const program *p, df_str *out)
{
    put_longs(out, "image_values", p->values.at, p->values.n);
    ROWS(slots, "aot_slot", "image_slots");
    ROWS(bufs, "aot_buf", "image_bufs");
    ROWS(binds, "aot_bind", "image_binds");
    ROWS(segs, "aot_seg", "image_segs");
    ROWS(launches, "aot_launch", "image_launches");
    ROWS(steps, "aot_step", "image_steps");
    ROWS(loops, "aot_loop", "image_loops");
    ROWS(roots, "aot_root", "image_roots");
    ROWS(rows, "aot_row", "image_rows");
    ROWS(blocks, "aot_blocks", "image_blocks");
    ROWS(pieces, "aot_piece", "image_pieces");
    ROWS(routines, "aot_routine", "image_routines");
    df_str_put(out, "static const aot_guard image_guards[] = {\n");
    for (size_t i = 0; i < p->guards.n; i++) {
        const aot_guard *const g = &p->guards.at[i];
        df_str_fmt(out, "    { %uu, %uu, %uu, 0, ", g->kind, g->a, g->b);
        put_long(out, g->want);
        df_str_put(out, " },\n");
    }
    df_str_put(out, p->guards.n ? "};\n" : "    { 0 } };\n");
    df_str_put(out, "static const aot_num image_nums[] = {\n");
    for (size_t i = 0; i < p->nums.n; i++) {
        const aot_num *const n = &p->nums.at[i];
        df_str_fmt(out, "    { UINT64_C(%llu), %uu, %uu, %uu, %uu, %uu, 0 },\n",
                   (unsigned long long)n->bits, n->slot, n->parameter, n->as, n->bytes,
                   n->is_integer);
    }
    df_str_put(out, p->nums.n ? "};\n" : "    { 0 } };\n");
    df_str_put(out, "static const uint32_t image_list[] = {");
    for (size_t i = 0; i < p->list.n; i++)
        df_str_fmt(out, "%s%uu,", i % PER_LINE ? " " : "\n    ", p->list.at[i]);
    df_str_put(out, p->list.n ? "\n};\n" : " 0 };\n");
    put_data(p, out);
}

static void put_kernel_table(const program *p, df_str *out)
{
    df_str_put(out, "static const aot_kernel image_kernels[] = {\n");
    for (uint32_t i = 0; i < (uint32_t)p->kernels.n; i++) {
        if (df_code_has_parts(p->kernels.at[i], NULL))
            df_str_fmt(out, "    kernel%u, kernel%u_part, kernel%u_fin,\n", i, i, i);
        else
            df_str_fmt(out, "    kernel%u, NULL, NULL,\n", i);
    }
    df_str_put(out, (uint32_t)p->kernels.n ? "};\n" : "    NULL };\n");
}

static void put_image(const program *p, df_str *out)
{
    df_str_fmt(
        out,
        "static const aot_level image_levels[] = { { AOT_CPU_ANY, { %s, %s }, image_kernels } };\n"
        "static uint32_t image_level;\n"
        "static const aot_image image = {\n"
        "    .values = image_values, .slots = image_slots, .guards = image_guards,\n"
        "    .bufs = image_bufs, .binds = image_binds, .nums = image_nums,\n"
        "    .list = image_list, .segs = image_segs, .launches = image_launches,\n"
        "    .steps = image_steps, .loops = image_loops, .roots = image_roots,\n"
        "    .rows = image_rows, .blocks = image_blocks, .pieces = image_pieces,\n"
        "    .routines = image_routines, .routine = %s,\n"
        "    .levels = image_levels, .data = (const char *)image_data,\n"
        "    .level = &image_level,\n",
        program_has_products(p, false) ? "deft_aot_product" : "NULL",
        program_has_products(p, true) ? "deft_aot_product" : "NULL",
        p->routines.n > 0 ? "deft_aot_routine" : "NULL");
    df_str_fmt(out,
               "    .n_values = %zu, .n_slots = %zu, .n_guards = %zu, .n_bufs = %zu,\n"
               "    .n_segs = %zu, .n_steps = %zu, .n_roots = %zu, .n_levels = 1,\n"
               "    .n_parameters = %zu, .arena = %uu, .n_blocks = %zu\n"
               "};\n",
               p->values.n, p->slots.n, p->guards.n, p->bufs.n, p->segs.n, p->steps.n, p->roots.n,
               p->params.n, p->arena_slot, p->blocks.n);
}

/* ---- the exported functions ---- */

static void put_arguments(const program *p, df_str *out)
{
    for (size_t i = 0; i < p->params.n; i++) {
        const parameter *const a = &p->params.at[i];
        if (a->kind == PARAM_NUMBER)
            df_str_fmt(out, "        %s(%s),\n",
                       program_is_double(a) ? "aot_bits_of_double" : "(uint64_t)", a->name);
        else
            df_str_fmt(out, "        (uint64_t)%s%s,\n",
                       a->kind == PARAM_EXTENT ? "" : "(uintptr_t)", a->name);
    }
}

static void put_functions(const program *p, df_str *out)
{
    df_str_fmt(out, "int %s(", p->o->name);
    header_parameters(p, out);
    df_str_put(out, "void *workspace,\n    const deft_threads *threads)\n"
                    "{\n"
                    "    const uint64_t args[] = {\n");
    put_arguments(p, out);
    df_str_put(out, "        (uint64_t)(uintptr_t)workspace,\n"
                    "        (uint64_t)(uintptr_t)threads\n"
                    "    };\n"
                    "    if (image_level == 0) {\n"
                    "        const fp_state fp = fp_enter();\n"
                    "        const int is_sound = df_aot_c_check();\n"
                    "        fp_leave(fp);\n"
                    "        if (!is_sound) return AOT_COMPILER;\n"
                    "    }\n"
                    "    return deft_aot_run(&image, args);\n"
                    "}\n\n");
    df_str_fmt(out, "int64_t %s_workspace_bytes(", p->o->name);
    for (uint32_t i = 0; i < p->n_extents; i++)
        df_str_fmt(out, "int64_t %s, ", p->params.at[i].name);
    df_str_put(out, "int64_t n_threads)\n{\n    const int64_t extents[] = { ");
    for (uint32_t i = 0; i < p->n_extents; i++) df_str_fmt(out, "%s, ", p->params.at[i].name);
    df_str_put(out, "0 };\n    return deft_aot_workspace(&image, extents, n_threads);\n}\n");
}

deft_status c_file_write(program *p, df_str *out)
{
    deft_status st = DEFT_OK;
    header_write(p, out);
    df_str_put(out, "\n/* ---- what kernels need ---- */\n\n");
    df_aot_c_prelude(out);
    df_str_put(out, "\n/* ---- the runtime part ---- */\n\n"
                    "#define AOT_C_FILE\n"
                    "#define AOT_API static\n");
    if (p->blocks.n > 0) df_str_put(out, "#define AOT_BLOCKS\n");
    text_put_runtime(out, rt_text_image_h, sizeof rt_text_image_h);
    text_put_runtime(out, rt_text_number_h, sizeof rt_text_number_h);
    if (program_has_products(p, false) || program_has_products(p, true))
        text_put_runtime(out, rt_text_product_c, sizeof rt_text_product_c);
    if (p->routines.n > 0) text_put_runtime(out, rt_text_routine_c, sizeof rt_text_routine_c);
    if (p->blocks.n > 0) text_put_runtime(out, rt_text_finite_h, sizeof rt_text_finite_h);
    text_put_runtime(out, rt_text_run_c, sizeof rt_text_run_c);
    df_str_put(out, "\n/* ---- kernels ---- */\n\n");
    for (uint32_t i = 0; i < (uint32_t)p->kernels.n; i++) {
        char name[NAME];
        int64_t extents[DF_MAX_AXES];
        (void)snprintf(name, sizeof name, "kernel%u", i);
        facts_extents(p, i, extents);
        TRY(df_aot_c_kernel(p->d, p->kernels.at[i], extents, name, out));
    }
    df_str_put(out, "\n/* ---- the program ---- */\n\n");
    put_arrays(p, out);
    put_kernel_table(p, out);
    put_image(p, out);
    put_functions(p, out);
    if (!out->ok) st = df_fail_mem(p->d, "export", out->cap);
done:
    return st;
}
