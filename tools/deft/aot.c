/* SPDX-License-Identifier: Apache-2.0
 *
 * deft aot: a trace becomes an object, or a C file, with a header (src/aot/aot.h, docs/export.md).
 */
#include "cli.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aot/aot.h"
#include "base/env.h"

enum { MOST_OPEN = 8, MOST_NUMBERS = 64, MOST_LINKS = 512 };

typedef struct aot_options {
    const char *path, *out, *name, *levels, *names;
    uint32_t flags;
    bool wants_c, wants_shared, wants_cuda;
    const char *archs, *n_sms;
    df_aot_open_axis open[MOST_OPEN];
    char open_name[MOST_OPEN][64];
    uint32_t n_open;
    const char *number[MOST_NUMBERS]; /* "NAME=%NODE" */
    uint32_t n_numbers;
    const char *link[MOST_LINKS]; /* "NAME=FILE" or "NAME=FILE:TENSOR" */
    uint32_t n_links;
} aot_options;

/* "n=in0.0,in2.1": axis 0 of input 0 and axis 1 of input 2 have the extent n. */
static bool open_of(const char *text, aot_options *o)
{
    const char *const names = strchr(text, '=');
    const size_t n = names ? (size_t)(names - text) : 0;
    for (const char *at = names ? names + 1 : ""; *at;) {
        unsigned input, axis;
        int used = 0;
        if (n == 0 || n >= sizeof o->open_name[0] || o->n_open == MOST_OPEN ||
            sscanf(at, "in%u.%u%n", &input, &axis, &used) != 2 ||
            (at[used] != '\0' && at[used] != ','))
            break;
        (void)snprintf(o->open_name[o->n_open], sizeof o->open_name[0], "%.*s", (int)n, text);
        o->open[o->n_open] = (df_aot_open_axis){ o->open_name[o->n_open], input, axis };
        o->n_open++;
        at += used;
        if (*at == '\0') return true;
        at++;
    }
    (void)cli_fail(CLI_USAGE, "--open=%s: must be NAME=inI.AXIS,..., at most %d axes", text,
                   MOST_OPEN);
    return false;
}

static bool aot_option(aot_options *o, const char *a)
{
    const char *value;
    if (strcmp(a, "--fast") == 0) {
        o->flags |= DF_TRACE_FAST;
        return true;
    }
    if (strcmp(a, "--c") == 0) return o->wants_c = true;
    if (strcmp(a, "--shared") == 0) return o->wants_shared = true;
    if (strcmp(a, "--cuda") == 0) return o->wants_cuda = true;
    if (cli_value(a, "--architectures", &o->archs) || cli_value(a, "--multiprocessors", &o->n_sms))
        return true;
    if (cli_value(a, "--out", &o->out) || cli_value(a, "--name", &o->name) ||
        cli_value(a, "--levels", &o->levels) || cli_value(a, "--parameters", &o->names))
        return true;
    if (cli_value(a, "--open", &value)) return open_of(value, o);
    if (cli_value(a, "--number", &value) && o->n_numbers < MOST_NUMBERS) {
        o->number[o->n_numbers++] = value;
        return true;
    }
    if (cli_value(a, "--link", &value) && o->n_links < MOST_LINKS) {
        o->link[o->n_links++] = value;
        return true;
    }
    (void)cli_fail(CLI_USAGE, "aot: unknown option %s", a);
    return false;
}

static int aot_parse(int argc, char **argv, aot_options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        if (strcmp(a, "-o") == 0 && i + 1 < argc) {
            o->out = argv[++i];
        } else if (a[0] == '-' && a[1] != '\0') {
            if (!aot_option(o, a)) return CLI_USAGE;
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "aot: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    if (!o->path) return cli_fail(CLI_USAGE, "aot: which file?");
    if (o->wants_c + o->wants_shared + o->wants_cuda > 1)
        return cli_fail(CLI_USAGE, "aot: --c, --shared and --cuda are kinds of output: give one");
    if ((o->archs || o->n_sms) && !o->wants_cuda)
        return cli_fail(CLI_USAGE, "aot: --architectures and --multiprocessors are for --cuda");
    if (!o->out) return cli_fail(CLI_USAGE, "aot: which output? -o NAME writes NAME.h and NAME.o");
    if (!o->name) {
        const char *const slash = strrchr(o->out, '/');
        o->name = slash ? slash + 1 : o->out;
    }
    return CLI_OK;
}

static int aot_write(const char *out, const char *suffix, const df_str *bytes)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s%s", out, suffix) >= sizeof path)
        return cli_fail(CLI_USAGE, "%s: the name is too long", out);
    FILE *const f = fopen(path, "wb");
    if (!f) return cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    const bool ok = fwrite(bytes->at, 1, bytes->n, f) == bytes->n;
    if (fclose(f) != 0 || !ok) return cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    return CLI_OK;
}

/* Gives the names of the list to inputs, then to outputs. */
static int name_parameters(cli_program *p, const char *list, df_aot_input **input,
                           const char ***output)
{
    const df_trace *const t = p->trace;
    *input = df_arena_new(&p->arena, df_aot_input, t->n_inputs + 1u);
    *output = df_arena_new(&p->arena, const char *, t->n_roots + 1u);
    char *const text = df_arena_strdup(&p->arena, list);
    if (!*input || !*output || !text) return cli_fail(CLI_INPUT, "out of memory");
    memset(*input, 0, sizeof **input * (t->n_inputs + 1u));
    memset((void *)*output, 0, sizeof **output * (t->n_roots + 1u));
    uint32_t n = 0;
    for (char *at = text; *at; n++) {
        const size_t length = strcspn(at, ",");
        const bool is_last = at[length] == '\0';
        at[length] = '\0';
        if (length > 0 && n < t->n_inputs) (*input)[n].name = at;
        if (length > 0 && n >= t->n_inputs && n < t->n_inputs + t->n_roots)
            (*output)[n - t->n_inputs] = at;
        if (n >= t->n_inputs + t->n_roots)
            return cli_fail(CLI_USAGE, "--parameters: the program has %u inputs and %u outputs",
                            t->n_inputs, t->n_roots);
        at += length + !is_last;
    }
    return CLI_OK;
}

/* The input whose parameter has the name; n_inputs: none. */
static uint32_t find_input(const cli_program *p, const df_aot_input *input, const char *name)
{
    for (uint32_t i = 0; i < p->trace->n_inputs; i++) {
        char usual[16];
        (void)snprintf(usual, sizeof usual, "in%u", i);
        if (strcmp(input[i].name ? input[i].name : usual, name) == 0) return i;
    }
    return p->trace->n_inputs;
}

/* "w=net.safetensors:layer.weight": the input w is that tensor of the file. */
static int link_inputs(cli_program *p, const aot_options *o, df_aot_input *input)
{
    int code = CLI_OK;
    for (uint32_t i = 0; i < o->n_links && code == CLI_OK; i++) {
        char *const name = df_arena_strdup(&p->arena, o->link[i]), *data;
        char *const file = name ? strchr(name, '=') : NULL;
        char *const tensor = file ? strrchr(file, ':') : NULL;
        if (!name) return cli_fail(CLI_INPUT, "out of memory");
        if (!file || file == name || file[1] == '\0')
            return cli_fail(CLI_USAGE, "--link=%s: must be NAME=FILE or NAME=FILE:TENSOR",
                            o->link[i]);
        *file = '\0';
        if (tensor) *tensor = '\0';
        const uint32_t k = find_input(p, input, name);
        if (k == p->trace->n_inputs)
            return cli_fail(CLI_USAGE, "--link=%s: no input has the name %s", o->link[i], name);
        code = store_read_input(p, file + 1, tensor ? tensor + 1 : name, k, &data);
        if (code == CLI_OK) input[k].data = data;
    }
    return code;
}

/* "lr=%12": the number that node 12 yields is the parameter lr. */
static int find_numbers(cli_program *p, const aot_options *o, df_aot_number *out)
{
    for (uint32_t i = 0; i < o->n_numbers; i++) {
        const char *const at = strchr(o->number[i], '=');
        char *const name = df_arena_strdup(&p->arena, o->number[i]);
        unsigned node;
        int used = 0;
        if (!name) return cli_fail(CLI_INPUT, "out of memory");
        if (!at || sscanf(at, "=%%%u%n", &node, &used) != 1 || at[used] != '\0' ||
            node >= p->trace->n_nodes || p->trace->nodes[node].op != DF_OP_num)
            return cli_fail(CLI_USAGE, "--number=%s: must be NAME=%%N, where %%N is a num",
                            o->number[i]);
        name[at - o->number[i]] = '\0';
        out[i] = (df_aot_number){
            .name = name,
            .arg = p->trace->nodes[node].arg,
            .is_integer = !df_is_float((deft_dtype)p->trace->nodes[node].dtype),
        };
    }
    return CLI_OK;
}

/* Makes the files. The plug-in for GPUs is open meanwhile, where it is needed. */
static int aot_make(cli_program *p, const aot_options *o, df_aot_options *options,
                    df_aot_files *files)
{
    df_gpu_plugin plugin = { 0 };
    df_aot_gpu gpu = { .plugin = &plugin, .architectures = o->archs };
    deft_status st = DEFT_OK;
    if (o->n_sms) {
        char *end;
        const long n = strtol(o->n_sms, &end, 10);
        if (*end != '\0' || n < 1 || n > 100000)
            return cli_fail(CLI_USAGE, "--multiprocessors=%s: must be a number from 1 on",
                            o->n_sms);
        gpu.n_sms = (int)n;
    }
    if (o->wants_cuda) {
        options->gpu = &gpu;
        st = df_plugin_open_gpu(&plugin, &p->diag, &df_mem_system, NULL, df_env("DEFT_PLUGIN_DIR"));
    }
    if (st == DEFT_OK) st = df_aot_export(&p->diag, &df_mem_system, p->trace, options, files);
    df_plugin_close_gpu(&plugin);
    return st == DEFT_OK ? CLI_OK : cli_status(&p->diag, st, o->path);
}

int cli_aot(int argc, char **argv)
{
    aot_options o = { 0 };
    int code = aot_parse(argc, argv, &o);
    if (code != CLI_OK) return code;
    cli_program program;
    df_aot_files files;
    df_str_init(&files.header, &df_mem_system);
    df_str_init(&files.object, &df_mem_system);
    df_str_init(&files.shared, &df_mem_system);
    df_str_init(&files.c, &df_mem_system);
    code = cli_program_read(&program, o.path, o.flags);
    df_aot_input *input = NULL;
    const char **output = NULL;
    df_aot_number number[MOST_NUMBERS];
    if (code == CLI_OK) code = find_numbers(&program, &o, number);
    if (code == CLI_OK && (o.names || o.n_links))
        code = name_parameters(&program, o.names ? o.names : "", &input, &output);
    if (code == CLI_OK) code = link_inputs(&program, &o, input);
    if (code == CLI_OK) {
        df_aot_options options = { .name = o.name,
                                   .input = input,
                                   .output = output,
                                   .open = o.open,
                                   .n_open = o.n_open,
                                   .number = number,
                                   .n_numbers = o.n_numbers,
                                   .levels = o.levels,
                                   .wants_object = !o.wants_c && !o.wants_shared && !o.wants_cuda,
                                   .wants_shared = o.wants_shared,
                                   .wants_c = o.wants_c };
        code = aot_make(&program, &o, &options, &files);
    }
    if (code == CLI_OK) code = aot_write(o.out, ".h", &files.header);
    if (code == CLI_OK)
        code = o.wants_c || o.wants_cuda ? aot_write(o.out, ".c", &files.c)
               : o.wants_shared          ? aot_write(o.out, ".so", &files.shared)
                                         : aot_write(o.out, ".o", &files.object);
    df_str_finish(&files.header);
    df_str_finish(&files.object);
    df_str_finish(&files.shared);
    df_str_finish(&files.c);
    cli_program_finish(&program);
    return code;
}
